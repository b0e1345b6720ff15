"""An Airflow of the demo's own: its home, its settings, its database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from demo.places import PROJECT

if TYPE_CHECKING:
    from demo.places import Places


def environment(places: Places, **more: str) -> dict[str, str]:
    """Return the environment of every process of this Airflow.

    :param more: further variables, or other values
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "_AIRFLOW"))}
    return {
        **inherited,
        # airflow standalone starts its parts by name, and the environment need not be activated.
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
        "PYTHONPATH": os.pathsep.join((str(PROJECT), str(PROJECT / "spark_jobs"))),
        "AIRFLOW_HOME": str(places.airflow_home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "15",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "DELTA_CDC_EXAMPLE_TABLES": str(places.tables),
        "SPARK_CONF_DIR": str(places.spark_conf),
        # Small tables: a JVM that starts in half the CPU time beats one that is fast once warm.
        "SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
        "PYTHONWARNINGS": "ignore",
        "PYTHONUNBUFFERED": "1",
        **more,
    }


def prepare(places: Places, settings: dict[str, str]) -> None:
    """Make the folders and the metadata database.

    Every Spark application of this Airflow leaves an event log: that is how the demo counts them.

    :param settings: the processes' environment, from :func:`environment`
    :raises RuntimeError: if the database can't be made
    """
    for folder in (places.airflow_home, places.spark_conf, places.spark_events, places.tables):
        folder.mkdir(parents=True, exist_ok=True)
    (places.spark_conf / "spark-defaults.conf").write_text(
        "spark.eventLog.enabled true\n"
        f"spark.eventLog.dir {places.spark_events.as_uri()}\n"
        "spark.driver.memory 1g\n"
    )
    with places.log.open("a") as log:
        done = subprocess.run(
            [sys.executable, "-m", "airflow", "db", "migrate"],
            env=settings,
            cwd=PROJECT,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        raise RuntimeError(f"airflow db migrate failed; see {places.log}")


def applications(places: Places) -> int:
    """Return how many Spark applications the operators have started so far."""
    return sum(1 for entry in places.spark_events.iterdir() if not entry.name.startswith("."))
