"""What a DAG file pays for importing the provider."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

import pytest

from airflow_delta_cdc import engine

HEAVY = (
    *("pyspark", "pandas", "pyarrow", "numpy", "grpc", "deltalake", "obstore", "pydantic", "openlineage"),
    *("yaml", "aiohttp", "requests", "jinja2", "sqlalchemy", "pendulum", "confluent_kafka", "fastavro"),
)
#: Modules of ``core`` with so many dataclasses that their import takes longer than that of all others.
ONLY_FOR_RUNS = {f"delta_cdc.core.{name}" for name in ("spec", "steps", "requests", "shadow", "watermark")}

_PROBE = """
import json, sys
import airflow.sdk
from airflow.sdk import Asset, AssetAlias
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.triggers.base import BaseTrigger
before = set(sys.modules)
import {modules}
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.mark.parametrize(
    "modules",
    [
        {"airflow_delta_cdc.operators", "airflow_delta_cdc.sensors", "airflow_delta_cdc.triggers"},
        {"airflow_delta_cdc.dags", "airflow_delta_cdc.decorators", "airflow_delta_cdc.hooks.table"},
    ],
    ids=["operators", "dags"],
)
def test_importing_pulls_nothing_heavy(modules: set[str]) -> None:
    probe = _PROBE.format(modules=", ".join(modules))
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    new = json.loads(done.stdout.splitlines()[-1])
    assert modules <= set(new)
    assert not {name.split(".")[0] for name in new} & set(HEAVY)
    assert not ONLY_FOR_RUNS & set(new)
    assert {name.split(".")[1] for name in new if name.startswith("delta_cdc.")} <= {"_version", "core"}


@pytest.mark.parametrize("name", sorted(engine.NAMES))
def test_each_name_of_the_engine_is_there(name: str) -> None:
    module, there = engine.NAMES[name]
    assert getattr(engine, name) is getattr(import_module(module), there)


def test_a_name_that_is_not_listed_is_none() -> None:
    with pytest.raises(AttributeError, match="has no 'run_everything': add its import"):
        getattr(engine, "run_" + "everything")
