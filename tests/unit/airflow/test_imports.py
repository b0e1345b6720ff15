"""What a DAG file pays for importing the provider."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("pyspark", "pandas", "pyarrow", "grpc", "deltalake", "obstore", "pydantic")

_PROBE = """
import json, sys
import airflow.sdk
from airflow.sdk import Asset, AssetAlias
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.triggers.base import BaseTrigger
before = set(sys.modules)
import {module}
print(json.dumps(sorted({{name.split(".")[0] for name in set(sys.modules) - before}})))
"""


@pytest.mark.parametrize(
    "module",
    ["airflow_delta_cdc.operators", "airflow_delta_cdc.sensors", "airflow_delta_cdc.triggers"],
)
def test_importing_pulls_nothing_heavy(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROBE.format(module=module)], capture_output=True, text=True, check=True
    )
    new = set(json.loads(done.stdout.splitlines()[-1]))
    assert "airflow_delta_cdc" in new
    assert not new & set(HEAVY)
