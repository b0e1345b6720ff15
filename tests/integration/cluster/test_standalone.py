"""The operators on a real standalone cluster: what they leave is what an embedded Spark leaves."""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from delta_cdc.api.changes import apply_changes
from delta_cdc.core.errors import EnvironmentNotReady
from tests.support.engine import newest_seal, table_rows, versions
from tests.support.spark_cluster import SMALL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.core.watermark import Seal
    from tests.support.spark_cluster import SparkCluster

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

#: By pipeline: what the operator and the function are both told.
PIPELINES: dict[str, dict[str, Any]] = {
    "current": {"keys": ["id"], "stored_as_scd_type": 1},
    "history": {"keys": ["id"], "stored_as_scd_type": 2, "sequence_by": "_commit_timestamp"},
    "copies": {"keys": ["id"], "stored_as_scd_type": 2, "source_kind": "snapshot"},
}


def append(table: Path, rows: Sequence[tuple[int, str]], *, feed: bool, mode: str = "append") -> None:
    data = pa.table({"id": pa.array([i for i, _ in rows], pa.int64()), "name": [name for _, name in rows]})
    properties = {"delta.enableChangeDataFeed": "true"} if feed else {}
    write_deltalake(str(table), data, mode=mode, configuration=properties)  # type: ignore[call-overload]


def grow(source: Path, kind: str) -> None:
    """Insert, update and delete; a table of copies by a copy without, with, and with other rows."""
    if kind == "snapshot":
        append(source, [(1, "a"), (2, "B"), (4, "d")], feed=False, mode="overwrite")
        append(source, [(2, "B"), (4, "D"), (5, "e")], feed=False, mode="overwrite")
        return
    append(source, [(4, "d"), (5, "e")], feed=True)
    DeltaTable(str(source)).delete("id = 1")
    DeltaTable(str(source)).update(updates={"name": "'B'"}, predicate="id = 2")


def operator(connection: str, pipeline: str, source: Path, target: Path, **more: Any) -> Any:
    from airflow_delta_cdc.operators import DeltaApplyChangesOperator

    return DeltaApplyChangesOperator(
        task_id=f"apply_{pipeline}",
        pipeline=pipeline,
        source=str(source),
        target=str(target),
        spark_conn_id=connection,
        **PIPELINES[pipeline],
        **{"conf": SMALL, **more},
    )


def rows(spark: SparkSession, table: Path) -> list[str]:
    """Return all rows, in an order of their own."""
    return sorted(map(str, table_rows(spark, str(table))))


class Kept:
    """A state store of one task."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self.kept.get(key, default)

    def set(self, key: str, value: Any) -> None:
        self.kept[key] = value

    def delete(self, key: str) -> None:
        del self.kept[key]


class Everywhere:
    """The asset stores of a task, and what it announces: nothing is kept."""

    def __getitem__(self, _: Any) -> Any:
        return self

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None


def context() -> Any:
    """Return what an operator is executed with."""

    class Pushed:
        def xcom_push(self, **_: Any) -> None:
            """Nobody pulls."""

    return {
        "ti": Pushed(),
        "run_id": "manual__1",
        "task_state_store": Kept(),
        "asset_state_store": Everywhere(),
        "outlet_events": Everywhere(),
    }


def state(seal: Seal | None) -> Mapping[str, Any]:
    """Return what a seal says, without when it was made, and on which target."""
    assert seal is not None
    said = asdict(seal)
    for name in ("fingerprint", "run_id", "planned_on"):
        del said["step"][name]
    del said["number"]
    return said


@pytest.mark.slow
def test_a_target_is_the_same_as_embedded(
    spark: SparkSession, cluster: SparkCluster, connected: str, tmp_path: Path
) -> None:
    """Full copies, which are compared by lists of their files: those go by the shared folder."""
    _is_alike(spark, cluster, connected, tmp_path, "copies")


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["current", "history"])
def test_a_target_of_a_feed_is_the_same_as_embedded(
    spark: SparkSession, cluster: SparkCluster, connected: str, tmp_path: Path, pipeline: str
) -> None:
    _is_alike(spark, cluster, connected, tmp_path, pipeline)


def _is_alike(
    spark: SparkSession, cluster: SparkCluster, connected: str, folder: Path, pipeline: str
) -> None:
    kind = PIPELINES[pipeline].get("source_kind", "change_feed")
    source, embedded, clustered = (folder / name for name in ("source", "embedded", "clustered"))
    append(source, [(1, "a"), (2, "b"), (3, "c")], feed=kind == "change_feed")
    apply_changes(spark, str(source), str(embedded), pipeline=pipeline, **PIPELINES[pipeline])
    shutil.copytree(embedded, clustered)
    grow(source, kind)
    apply_changes(spark, str(source), str(embedded), pipeline=pipeline, **PIPELINES[pipeline])

    ran = {worker: len(cluster.executors_of(worker)) for worker in (0, 1)}
    published = operator(connected, pipeline, source, clustered).execute(context())
    assert published["applied"] is True
    for worker, before in ran.items():
        assert len(cluster.executors_of(worker)) > before, f"worker {worker} had no part in it"
    assert rows(spark, clustered) == rows(spark, embedded)
    assert state(newest_seal(str(clustered))) == state(newest_seal(str(embedded)))
    assert versions(str(clustered)) == versions(str(embedded))
    assert not list((folder / "results").rglob("*.json")), "the lists of files are deleted afterwards"


@pytest.mark.slow
def test_an_ingest_needs_pyarrow_on_the_executors(connected: str, tmp_path: Path) -> None:
    """Where it is missing, the run fails by name before anything is written."""
    from airflow_delta_cdc.operators import DeltaIngestChangesOperator

    hidden, python = tmp_path / "hidden" / "pyarrow", tmp_path / "python"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'pyarrow'\")\n")
    python.write_text(f'#!/bin/sh\nPYTHONPATH={hidden.parent}:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    landing, log = tmp_path / "landing", tmp_path / "log"
    landing.mkdir()
    (landing / "1.json").write_text('{"id":1,"ts":1}\n{"id":2,"ts":2}\n{"id":3}\n')

    def ingest(**confs: str) -> Any:
        return DeltaIngestChangesOperator(
            task_id="ingest",
            pipeline="p",
            source=str(landing),
            log=str(log),
            keys=["id"],
            schema="id INT, ts BIGINT",
            adapter_options={"sequence_by": "ts"},
            spark_conn_id=connected,
            conf={**SMALL, **confs},
        ).execute(context())

    with pytest.raises(EnvironmentNotReady, match=r"Python on the executors .*No module named 'pyarrow'"):
        ingest(**{"spark.pyspark.python": str(python), "spark.pyspark.driver.python": sys.executable})
    assert not log.exists()
    published = ingest()
    assert (published["counts"]["events"], published["counts"]["quarantined"]) == (2, 1)


@pytest.mark.slow
def test_the_doctor_merges_on_it(cluster: SparkCluster, connected: str, tmp_path: Path) -> None:
    """With the connection of Airflow, where executors and driver see the folder."""
    from airflow_delta_cdc.doctor import Connections
    from delta_cdc.doctor import Questions, examined

    (tmp_path / "lake").mkdir()
    confs = {name: value for name, value in SMALL.items() if not name.endswith("driver.bindAddress")}
    asked = Questions(storage=str(tmp_path / "lake"), confs=confs, timeout=180)
    checks = Connections(asked, set(), spark=connected).checks()
    entries = {entry.name: entry for entry in examined(checks, timeout=180, secrets=())}
    assert entries["spark-connection"].found == f"cluster is {cluster.url}, deploy mode client"
    assert entries["master-address"].status == "ok"
    assert entries["master-job"].status == "ok", entries["master-job"]
    assert entries["master-python"].status == "ok", entries["master-python"]
    assert list((tmp_path / "lake").iterdir()) == [], "nothing is left behind"


@pytest.mark.slow
def test_the_doctor_of_a_cluster_without_a_free_core(cluster: SparkCluster, tmp_path: Path) -> None:
    """More memory than any worker has: no executor ever comes, and somebody has to say why."""
    from delta_cdc.doctor import Questions, examined

    asked = Questions(confs={**SMALL, "spark.executor.memory": "64g"}, timeout=45)
    job, python, defaults = list(examined(asked.checks_of_spark(cluster.url), timeout=45, secrets=()))[-3:]
    assert (job.status, python.status, defaults.status) == ("failed", "skipped", "skipped")
    assert "did not end within 45 s, at the step 'query'" in job.found
    assert "Initial job has not accepted any resources" in job.found
    assert "free cores and memory" in job.remedy
