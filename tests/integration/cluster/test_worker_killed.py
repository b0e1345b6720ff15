"""A worker that dies in the middle of an apply, with work of it half done."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import pytest

from delta_cdc.api.changes import apply_changes
from tests.integration.cluster.test_standalone import PIPELINES, append, context, grow, operator, rows
from tests.support.engine import newest_seal, seal_of, versions
from tests.support.holding import PATIENCE, DriverGate, Running
from tests.support.spark_cluster import SMALL

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.spark_cluster import SparkCluster

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

#: The MERGE starts only when both executors are there, and its tasks go to both.
_BOTH = {
    **SMALL,
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.cores.max": "2",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}
_STARTED = re.compile(r"Starting task \S+ in stage \S+ \(TID \d+\) \([^,]+,\s*executor (\d+),")


def test_right_result_and_one_commit(
    spark: SparkSession,
    cluster: SparkCluster,
    connected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Frozen while it has tasks of the MERGE, and then killed: what it did is done again elsewhere."""
    source, embedded, clustered = (tmp_path / name for name in ("source", "embedded", "clustered"))
    append(source, [(number, f"row {number}") for number in range(1, 40)], feed=True)
    for target in (embedded, clustered):
        apply_changes(spark, str(source), str(target), pipeline="history", **PIPELINES["history"])
    grow(source, "change_feed")
    apply_changes(spark, str(source), str(embedded), pipeline="history", **PIPELINES["history"])
    before = versions(str(clustered))

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    gate = DriverGate("before_commit", tmp_path / "pipes")
    for name, value in gate.environment.items():
        monkeypatch.setenv(name, value)
    task = operator(connected, "history", source, clustered, conf=_BOTH)
    running = Running(lambda: task.execute(context()), "the task")
    gate.wait()
    log = next((tmp_path / "tmp").glob("delta-cdc-*/spark.log"))
    known = len(log.read_text())
    (executor,) = cluster.executors_of(1)
    cluster.freeze_worker(1)
    gate.open()
    _await_task(log, known, executor)
    cluster.kill_worker(1)

    said = running.result()
    assert isinstance(said, dict)
    # The rows that the step had computed and kept lay on that worker, too.
    assert "computing them again" in capsys.readouterr().out
    assert said["applied"] is True
    assert rows(spark, clustered) == rows(spark, embedded)
    made = [version for version in versions(str(clustered)) if version not in before]
    assert [seal_of(str(clustered), version) is not None for version in made].count(True) == 1
    seal = newest_seal(str(clustered))
    assert seal is not None
    assert seal.watermark.version == versions(str(source))[-1]


def _await_task(log: Path, known: int, executor: str) -> None:
    """Wait until the driver gives a task to an executor."""
    with log.open() as lines:
        lines.seek(known)
        turn = threading.Event()
        for _ in range(int(PATIENCE * 10)):
            if executor in _STARTED.findall(lines.read()):
                return
            turn.wait(0.1)
    raise AssertionError(f"executor {executor} was given no task")
