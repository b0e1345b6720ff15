"""The same pipeline in each way: Spark in the worker, on a Spark Connect server, and started by a watcher."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.sdk import DAG

from airflow_delta_cdc.operators import DeltaApplyChangesOperator
from airflow_delta_cdc.triggers.asset import watched_asset

FOLDER = Path(os.environ["COMMIT_FOLDER"])
_LOOKS_EVERY = 1.0


def pipeline(way: str) -> DAG:
    """Return the DAG of a way, which is its name."""
    source, target = (str(FOLDER / way / table) for table in ("source", "target"))
    schedule = [watched_asset(source, poll_interval=_LOOKS_EVERY)] if way == "watcher" else None
    with DAG(way, schedule=schedule, max_active_runs=1) as made:
        DeltaApplyChangesOperator(
            task_id="apply",
            pipeline=way,
            source=source,
            target=target,
            keys=["id"],
            spark_conn_id="spark_server" if way == "connect" else None,
        )
    return made


worker, connect, watcher = pipeline("worker"), pipeline("connect"), pipeline("watcher")
