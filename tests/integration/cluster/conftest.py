"""A real standalone cluster, and an Airflow connection that names it."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

from tests.integration.airflow.conftest import airflow, one_airflow
from tests.support.spark_cluster import SparkCluster, spark_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["airflow", "one_airflow"]

if "AIRFLOW_HOME" not in os.environ:
    # Airflow writes its configuration there when it is imported, which test modules do.
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="delta-cdc-airflow-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers, once per module."""
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def connected(cluster: SparkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a connection to the cluster, in an Airflow whose results lie where both can see them."""
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "spark", "host": cluster.url}))
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", (tmp_path / "results").as_uri())
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    return "cluster"
