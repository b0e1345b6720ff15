"""Advice in situations that are made: each figure is compared with the one that the next run shows.

The tables are small, so the least number of bytes of an advice is, too; ``tests/unit/test_advice.py``
tests it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes, job
from delta_cdc.core.errors import VersionsExpired
from delta_cdc.core.retention import FILE_RETENTION
from delta_cdc.core.spec import OptimizeSpec, VacuumSpec
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning import advice
from delta_cdc.planning.advice import AboutTable, Advice, advise_all
from delta_cdc.planning.evidence import Evidence, gather
from delta_cdc.planning.optimize import plan_optimize
from delta_cdc.planning.vacuum import plan_vacuum
from tests.support.engine import age, commit_info, newest, picked, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    Table = Callable[[str], str]

HOUR = 3_600_000
FEED = "'delta.enableChangeDataFeed' = 'true'"
PLAIN = "'delta.enableDeletionVectors' = 'false'"
#: Rows of 40 random characters, as wide as they look: compression does not help.
ROWS = "SELECT id, sha1(cast(id + {salt} AS STRING)) AS v, {more} FROM range({rows})"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "LEAST_BYTES", 256 * 1024)


def make(
    spark: SparkSession,
    table: str,
    properties: str,
    *,
    rows: int = 50_000,
    files: int = 1,
    partition: str = "",
    more: str = "0 AS n",
) -> None:
    """Make a table with the columns ``id``, ``v`` and those of ``more``."""
    rows_of = ROWS.format(salt=0, rows=rows, more=more)
    spark.sql(
        f"CREATE TABLE delta.`{table}` USING delta {partition} TBLPROPERTIES ({properties}) "
        f"AS SELECT /*+ REPARTITION({files}) */ * FROM ({rows_of})"
    )


def update(spark: SparkSession, table: str, where: str, salt: int) -> None:
    spark.sql(f"UPDATE delta.`{table}` SET v = sha1(cast(id + {salt} AS STRING)) WHERE {where}")


def advised(target: str, now: int | None = None, **given: Any) -> dict[str, Advice]:
    (found,) = run_sync(advise_all([AboutTable("p", target, **given)], now_ms=now))
    return {one.rule: one for one in found}


def evidence(target: str) -> Evidence:
    found = run_sync(gather("p", target, now_ms=time.time_ns() // 1_000_000))
    assert found is not None
    return found


def run(spark: SparkSession, source: str, target: str, **given: Any) -> Any:
    return apply_changes(spark, source, target, **{"pipeline": "p", "keys": ["id"], **given})


def taken_over(spark: SparkSession, source: str, target: str, **given: Any) -> None:
    """Make the target as another writer does, and begin the pipeline there."""
    run(spark, source, target, initial_load={"none_at": newest(source)}, **given)


def near(found: float, expected: float) -> bool:
    """Return whether a number of bytes is what was expected: files have heads and feet, too."""
    return expected / 2 <= found <= expected * 2


# -- what runs read and write ----------------------------------------------------------------------
@pytest.mark.slow
def test_a_feed_is_off_and_runs_read_whole_files(spark: SparkSession, tmp_table: Table) -> None:
    source, target = tmp_table("source"), tmp_table("target")
    make(spark, source, PLAIN)
    run(spark, source, target)
    for salt in (1, 2):
        update(spark, source, "id % 50 = 0", salt)
        run(spark, source, target)
    found = advised(target)
    assert set(found) == {"change_feed"}
    one = found["change_feed"]
    assert (one.table, one.setting, one.value) == (source, "delta.enableChangeDataFeed", "true")
    assert one.figures["expected_rows_read"] == 2 * 2 * 1000
    before = [read_range for run in evidence(target).applied for read_range in run.ranges]
    assert one.figures["bytes_read"] == sum(read_range.size for read_range in before)

    spark.sql(f"ALTER TABLE delta.`{source}` SET TBLPROPERTIES ({FEED})")
    for salt in (3, 4):
        update(spark, source, "id % 50 = 0", salt)
        run(spark, source, target)
    ranges = [read_range for run in evidence(target).applied[-2:] for read_range in run.ranges]
    assert {read_range.method for read_range in ranges} == {"change_files"}
    read = sum(read_range.size for read_range in ranges)
    assert near(read, one.figures["expected_bytes_read"]), (read, one.figures)
    changes = spark.read.format("delta").option("readChangeFeed", "true")
    changes = changes.option("startingVersion", newest(source) - 1)
    assert changes.load(source).count() == one.figures["expected_rows_read"]
    print(f"change_feed: {one.figures}, then {read} bytes")


@pytest.mark.slow
def test_merges_copy_rows_that_do_not_change(spark: SparkSession, tmp_table: Table) -> None:
    source, target = tmp_table("source"), tmp_table("target")
    make(spark, source, FEED, rows=250_000)
    make(spark, target, PLAIN, rows=250_000)
    taken_over(spark, source, target)
    update(spark, source, "id % 1000 = 0", 1)
    run(spark, source, target)
    found = advised(target)
    assert set(found) == {"deletion_vectors"}
    one = found["deletion_vectors"]
    assert (one.figures["rows_changed"], one.figures["rows_copied"]) == (250, 249_750)

    spark.sql(f"ALTER TABLE delta.`{target}` SET TBLPROPERTIES ('{one.setting}' = '{one.value}')")
    update(spark, source, "id % 1000 = 0", 2)
    run(spark, source, target)
    metrics = commit_info(target, newest(target))["operationMetrics"]
    assert int(metrics["numTargetRowsCopied"]) == one.figures["expected_rows_copied"]
    written = int(metrics["numTargetBytesAdded"])
    assert near(written, one.figures["expected_bytes_written"]), (written, one.figures)
    assert not advised(target)
    print(f"deletion_vectors: {one.figures}, then {written} bytes")


# -- which files runs skip -------------------------------------------------------------------------
@pytest.mark.slow
def test_keys_without_bounds(spark: SparkSession, tmp_table: Table) -> None:
    source, target = tmp_table("source"), tmp_table("target")
    make(spark, source, FEED)
    make(spark, target, "'delta.dataSkippingStatsColumns' = 'v'", files=20)
    taken_over(spark, source, target)
    one = advised(target)["key_statistics"]
    assert (one.value, one.figures["files_without_bounds"]) == ("v,`id`", 20)

    spark.sql(f"ALTER TABLE delta.`{target}` SET TBLPROPERTIES ('{one.setting}' = '{one.value}')")
    spark.sql(f"OPTIMIZE delta.`{target}`")
    layout = evidence(target).layout
    assert layout is not None
    without = [bounds for bounds in layout.bounds if "id" not in bounds.of_keys]
    assert len(without) == one.figures["expected_files_without_bounds"]
    assert "key_statistics" not in advised(target)


@pytest.mark.slow
def test_bounds_of_keys_that_prune_nothing(spark: SparkSession, tmp_table: Table) -> None:
    source, target = tmp_table("source"), tmp_table("target")
    make(spark, source, FEED)
    make(spark, target, "'delta.dataSkippingNumIndexedCols' = '32'", files=20)
    taken_over(spark, source, target)
    for salt in (1, 2, 3):
        update(spark, source, f"id = {salt}", salt)
        run(spark, source, target)
    one = advised(target)["clustering"]
    assert (one.setting, one.value) == ("DeltaOptimizeOperator(zorder_by)", '["id"]')
    assert one.figures["overlapping_files"] > one.figures["files"] * 0.8

    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(128 * 1024))
    try:
        spark.sql(f"OPTIMIZE delta.`{target}` ZORDER BY (id)")
    finally:
        spark.conf.unset("spark.databricks.delta.optimize.maxFileSize")
    layout = evidence(target).layout
    assert layout is not None
    assert layout.files > 8
    found = advice.depth(layout.bounds, "id")
    assert found is not None
    assert found <= one.figures["expected_overlapping_files"]
    assert "clustering" not in advised(target)
    print(f"clustering: {one.figures}, then {found}")


# -- files of the target ---------------------------------------------------------------------------
@pytest.mark.slow
def test_small_files(spark: SparkSession, tmp_table: Table) -> None:
    source, target = tmp_table("source"), tmp_table("target")
    make(spark, source, FEED, rows=2_000)
    make(spark, target, PLAIN, files=40, rows=2_000)
    taken_over(spark, source, target)
    found = advised(target)
    assert set(found) == {"small_files"}
    one = found["small_files"]
    assert one.figures["files"] == 40

    planned = run_sync(plan_optimize(OptimizeSpec(run_id="r", table_uri=target))).spec
    assert planned is not None
    (done,) = job.run(spark, planned).tables
    assert (done["files_removed"], done["files_added"]) == (40, one.figures["expected_files"])
    assert not advised(target)


@pytest.mark.slow
def test_partitions_that_are_too_small(spark: SparkSession, tmp_table: Table) -> None:
    source, target = tmp_table("source"), tmp_table("target")
    make(spark, source, FEED, rows=2_000, more="id % 20 AS n")
    keys = {"keys": ["id", "n"]}
    run(spark, source, target, layout={"partition_by": ["n"]}, **keys)
    found = advised(target)
    assert set(found) == {"partitions"}
    one = found["partitions"]
    assert (one.figures["partitions"], one.figures["files"]) == (20, 20)

    run(spark, source, target, layout={"cluster_by": ["id"]}, mode="reset", **keys)
    layout = evidence(target).layout
    assert layout is not None
    assert layout.files == one.figures["expected_files"]
    assert not advised(target)


@pytest.mark.slow
def test_rows_that_are_deleted_stay_in_the_files(spark: SparkSession, tmp_table: Table) -> None:
    source, target = tmp_table("source"), tmp_table("target")
    make(spark, source, FEED)
    make(spark, target, "'delta.enableDeletionVectors' = 'true'")
    spark.sql(f"DELETE FROM delta.`{target}` WHERE id % 4 = 0")
    taken_over(spark, source, target)
    found = advised(target)
    assert set(found) == {"masked_rows"}
    one = found["masked_rows"]
    assert (one.figures["masked_rows"], one.figures["rows_in_files"]) == (12_500, 50_000)

    planned = run_sync(plan_optimize(OptimizeSpec(run_id="r", table_uri=target, purge=True))).spec
    assert planned is not None
    assert job.run(spark, planned).error is None
    layout = evidence(target).layout
    assert layout is not None
    assert layout.rows == one.figures["expected_rows_in_files"]
    assert layout.masked_rows == one.figures["expected_masked_rows"]
    assert not advised(target)


@pytest.mark.slow
def test_removed_files_that_no_vacuum_deletes(spark: SparkSession, tmp_table: Table) -> None:
    source, target = tmp_table("source"), tmp_table("target")
    make(spark, source, FEED, rows=20_000)
    make(spark, target, f"{PLAIN}, '{FILE_RETENTION}' = 'interval 2 hours'", rows=20_000)
    for salt in (1, 2):
        update(spark, target, "id % 10 = 0", salt)
    for version in versions(target):
        age(target, version, 6 - version)
    taken_over(spark, source, target)
    one = advised(target)["vacuum"]
    assert (one.figures["since_version"], one.figures["expected_files_deleted"]) == (1, 2)

    planned = run_sync(plan_vacuum(VacuumSpec(run_id="r", table_uri=target))).spec
    assert planned is not None
    result = job.run(spark, planned)
    assert result.error is None, result.message
    ended = {operation(target, version): version for version in versions(target)}
    deleted = commit_info(target, ended["VACUUM END"])["operationMetrics"]["numDeletedFiles"]
    assert int(deleted) == one.figures["expected_files_deleted"]
    size = commit_info(target, ended["VACUUM START"])["operationMetrics"]["sizeOfDataToDelete"]
    assert int(size) == one.figures["expected_bytes_deleted"]
    assert "vacuum" not in advised(target)


def operation(table: str, version: int) -> str:
    found: str = commit_info(table, version)["operation"]
    return found


# -- schedule and retention ------------------------------------------------------------------------
class Days:
    """A source that changes at some hours, and runs at others; the commits are as old as they say."""

    def __init__(self, spark: SparkSession, source: str, target: str, hours: float) -> None:
        self.spark, self.source, self.target = spark, source, target
        #: Full hours, so that a schedule of full hours fires at them.
        self.begin = (time.time_ns() // 1_000_000 // HOUR - int(hours)) * HOUR
        make(spark, source, FEED, rows=10)
        self._dated(source, 0)
        run(spark, source, target)
        self._dated(target, 0)
        self.outcomes: list[bool] = []

    def _dated(self, table: str, hour: float) -> None:
        moment = (self.begin + hour * HOUR) / 1000
        for version in versions(table):
            commit = Path(table) / "_delta_log" / f"{version:020d}.json"
            if version > getattr(self, f"_dated_{Path(table).name}", -1):
                os.utime(commit, (moment, moment))
        setattr(self, f"_dated_{Path(table).name}", newest(table))

    def change(self, hour: float) -> None:
        update(self.spark, self.source, "id < 5", round(hour * 100))
        self._dated(self.source, hour)

    def run(self, hour: float) -> None:
        before = newest(self.target)
        run(self.spark, self.source, self.target)
        self._dated(self.target, hour)
        self.outcomes.append(newest(self.target) > before)

    def until(self, end: int, *, changes: set[float], runs: Iterator[float]) -> None:
        """Change and run in the order of the hours; a change comes before the run of its hour."""
        pending = sorted(changes)
        for hour in runs:
            while pending and pending[0] <= hour <= end:
                self.change(pending.pop(0))
            self.run(hour)

    def now(self, hour: float) -> int:
        return self.begin + round(hour * HOUR)


@pytest.mark.slow
def test_runs_that_have_nothing_to_do(spark: SparkSession, tmp_table: Table) -> None:
    days = Days(spark, tmp_table("source"), tmp_table("target"), 24)
    days.until(23, changes={3.5, 9.5, 20.5}, runs=iter(map(float, range(1, 24))))
    table = AboutTable("p", days.target, group="g", schedule="0 * * * *", tables_of_group=1)
    (found,) = run_sync(advise_all([table], now_ms=days.now(23)))
    (one,) = found
    assert (one.rule, one.table, one.value) == ("idle_runs", "g", "on_change")
    assert one.figures["scheduled_runs"] == len(days.outcomes)
    assert one.figures["runs_with_work"] == days.outcomes.count(True) == 3
    assert one.figures["expected_idle_runs"] == days.outcomes.count(False)


@pytest.mark.slow
def test_runs_that_are_late(spark: SparkSession, tmp_table: Table) -> None:
    days = Days(spark, tmp_table("source"), tmp_table("target"), 24)
    changes = {2.0, 6.0, 10.0}
    days.until(12, changes=changes, runs=iter((4.0, 8.0, 12.0)))
    found = advised(days.target, days.now(12), freshness=3600.0)
    assert set(found) == {"late_runs"}
    one = found["late_runs"]
    assert "each 30 minutes" in one.value
    assert (one.figures["late_runs"], one.figures["longest_seconds"]) == (3, 7200)

    days.until(16, changes={12.7, 13.9, 14.2}, runs=(12 + step / 2 for step in range(1, 9)))
    waits = [run.waited for run in evidence(days.target).applied[-3:]]
    late = [waited for waited in waits if waited is not None and waited > HOUR]
    assert len(waits) == 3
    assert len(late) == one.figures["expected_late_runs"]


@pytest.mark.slow
def test_a_retention_that_the_slowest_reader_nearly_exceeds(spark: SparkSession, tmp_table: Table) -> None:
    pauses = []
    # A pause, and one of twice its length, with the same retention.
    for hour in (21.5, 19):
        days = Days(spark, tmp_table(f"source_{hour:.0f}"), tmp_table(f"target_{hour:.0f}"), 24)
        kept = f"'{FILE_RETENTION}' = 'interval 4 hours'"
        spark.sql(f"ALTER TABLE delta.`{days.source}` SET TBLPROPERTIES ({kept})")
        days.change(hour)
        pauses.append(days)
    first, second = pauses
    first.run(24)
    found = advised(first.target, first.now(24))
    assert set(found) == {"retention"}
    one = found["retention"]
    assert (one.setting, one.value) == (FILE_RETENTION, "interval 2 days")
    assert (one.figures["longest_seconds"], one.figures["kept_seconds"]) == (9_000, 4 * 3600)

    with pytest.raises(VersionsExpired):
        second.run(24)
    spark.sql(f"ALTER TABLE delta.`{second.source}` SET TBLPROPERTIES ('{one.setting}' = '{one.value}')")
    second.run(24)
    (applied,) = evidence(second.target).applied
    assert applied.waited == 2 * 9_000 * 1000
    assert applied.waited / 1000 < one.figures["expected_kept_seconds"] == 2 * 86_400


@pytest.mark.slow
def test_silence_if_all_is_well(spark: SparkSession, tmp_table: Table) -> None:
    source, target = tmp_table("source"), tmp_table("target")
    make(spark, source, FEED)
    run(spark, source, target)
    for salt in (1, 2, 3):
        update(spark, source, "id % 1000 = 0", salt)
        run(spark, source, target)
    assert picked(target, newest(target), "add")
    assert not advised(target, freshness=3600.0, group="g", schedule="@hourly")
