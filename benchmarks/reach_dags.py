"""The pipeline four times: stock operators, plain and tuned; ours, in the worker and over a warm server."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

from airflow_delta_cdc.dags import build_dags
from airflow_delta_cdc.operators import DeltaEnableChangeDataFeedOperator
from airflow_delta_cdc.sensors import DeltaVersionSensor

FOLDER = Path(os.environ["REACH_FOLDER"])
_STEPS = ("enable", "wait", "read", "scd1", "scd2")

#: What a careful user sets for small tables: their defaults, 200 and 50, are made for clusters.
_TUNED = {"spark.sql.shuffle.partitions": "2", "spark.databricks.delta.snapshotPartitions": "2"}


def stock(name: str, confs: dict[str, str]) -> DAG:
    """Return the DAG of one of the others: an application for each step."""
    with DAG(name, schedule=None, max_active_runs=1) as made:
        previous = None
        for step in _STEPS:
            task = SparkSubmitOperator(
                task_id=step,
                conn_id="spark_local",
                application=os.environ["REACH_STEP"],
                application_args=[step, str(FOLDER / name)],
                jars=os.environ["REACH_JARS"],
                conf={
                    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
                    **confs,
                },
            )
            if previous is not None:
                previous >> task
            previous = task
    return made


def ours(name: str, spark_conn_id: str | None) -> DAG | None:
    """Return the DAG of one of our arms; None while Airflow runs a task of another one."""
    source = str(FOLDER / name / "source")
    target = {kind: str(FOLDER / name / kind) for kind in ("current", "history")}
    where = {"spark_conn_id": spark_conn_id} if spark_conn_id else {}
    of_all = {"group": name, "source": source, "keys": ["id"]}
    told = {
        "groups": {name: {"backfill": False, **where}},
        "pipelines": {
            f"{name}_current": {**of_all, "target": target["current"]},
            f"{name}_history": {**of_all, "target": target["history"], "stored_as_scd_type": 2},
        },
    }
    made = build_dags(told).get(name)
    if made is None:
        return None
    with made:
        enable = DeltaEnableChangeDataFeedOperator(task_id="enable", table=source, **where)
        wait = DeltaVersionSensor(
            task_id="wait", table=source, pipeline=f"{name}_current", target=target["current"]
        )
        enable >> wait >> made.get_task("detect_changes")
    return made


plain = stock("stock", {})
tuned = stock("stock-tuned", _TUNED)
embedded = ours("embedded", None)
connect = ours("connect", "spark_server")
