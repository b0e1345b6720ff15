"""One DAG in a real Airflow, in the worker and then on a cluster: nothing but the connection changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.airflow.test_ingest import succeeded, values
from tests.integration.cluster.test_standalone import append, grow
from tests.support.spark_cluster import SMALL

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.airflow.conftest import Airflow
    from tests.support.spark_cluster import SparkCluster

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

_FILE = """
import os

# As the worker's environment would say it.
os.environ.update({environment!r})

from airflow_delta_cdc.dags import build_dags

dags = build_dags({configuration!r}, default_args={{"retries": 0}})
"""


def pipelines(folder: Path) -> dict[str, Any]:
    """Return a group with a current table and a history of one feed, and a history of full copies."""
    keyed = {"group": "shop", "keys": ["id"]}
    feed = {**keyed, "source": str(folder / "orders")}
    history = {"stored_as_scd_type": 2}
    copies = {**keyed, **history, "source": str(folder / "stock"), "source_kind": "snapshot"}
    return {
        "groups": {
            "shop": {"backfill": False, "spark_conn_id": "etl", "conf": SMALL, "max_parallel_tables": 1}
        },
        "pipelines": {
            "current": {**feed, "target": str(folder / "current")},
            "history": {**feed, **history, "target": str(folder / "history")},
            "copies": {**copies, "target": str(folder / "copies")},
        },
    }


def test_a_group_moves_to_a_cluster(airflow: Airflow, cluster: SparkCluster, tmp_path: Path) -> None:
    def file(master: str) -> Path:
        environment = {
            "AIRFLOW_CONN_ETL": json.dumps({"conn_type": "spark", "host": master}),
            "AIRFLOW__DELTA_CDC__RESULTS_URI": (tmp_path / "results").as_uri(),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        return airflow.dag("shop", _FILE.format(environment=environment, configuration=pipelines(tmp_path)))

    for name, feed in (("orders", True), ("stock", False)):
        append(tmp_path / name, [(1, "a"), (2, "b"), (3, "c")], feed=feed)
    loaded = succeeded(airflow.run(file("local[2]"), dag="shop"))
    assert loaded.submits == 1
    assert cluster.executors_of(0) == cluster.executors_of(1) == []

    grow(tmp_path / "orders", "change_feed")
    grow(tmp_path / "stock", "snapshot")
    moved = succeeded(airflow.run(file(cluster.url), dag="shop"))
    assert moved.submits == 1
    assert cluster.executors_of(0)
    assert cluster.executors_of(1)
    now = [(2, "B"), (3, "c"), (4, "d"), (5, "e")]
    assert values(tmp_path / "current", "id", "name") == now
    history = values(tmp_path / "history", "id", "name", "__END_AT")
    assert sorted((key, name) for key, name, end in history if end is None) == now
    assert len(history) == 6
    copies = values(tmp_path / "copies", "id", "name", "__END_AT")
    assert sorted((key, name) for key, name, end in copies if end is None) == [(2, "B"), (4, "D"), (5, "e")]
