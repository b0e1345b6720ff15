"""OPTIMIZE and VACUUM of tables that pipelines fill and read: nobody loses anything, and files really go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes, job
from delta_cdc.core.errors import VacuumWouldLose
from delta_cdc.core.spec import OptimizeSpec, VacuumSpec
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.consumers import Consumer
from delta_cdc.planning.optimize import plan_optimize
from delta_cdc.planning.vacuum import deleted, plan_vacuum
from tests.support.engine import age, metadata, newest, newest_seal

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    Table = Callable[[str], str]

FEED = "'delta.enableChangeDataFeed' = 'true'"
MASKS = "'delta.enableDeletionVectors' = 'true'"
RETENTION = "delta.deletedFileRetentionDuration"


def optimized(spark: SparkSession, table: str, **asked: Any) -> dict[str, Any]:
    """Plan, and run what there is to do."""
    planned = run_sync(plan_optimize(OptimizeSpec(run_id="r", table_uri=table, **asked)))
    if planned.spec is None:
        return {**planned.outcome, "note": planned.notes[0]}
    result = job.run(spark, planned.spec)
    assert result.error is None, result.message
    return result.tables[0]


def rows(spark: SparkSession, table: str) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, spark.read.format("delta").load(table).collect()), key=str)


@pytest.mark.slow
def test_targets_are_laid_out_and_pipelines_go_on(spark: SparkSession, tmp_table: Table) -> None:
    source, partitioned, clustered = (tmp_table(name) for name in ("source", "partitioned", "clustered"))
    spark.sql(
        f"CREATE TABLE delta.`{source}` (k INT, part STRING, v STRING) USING delta TBLPROPERTIES ({FEED})"
    )
    spark.sql(f"INSERT INTO delta.`{source}` SELECT id, IF(id % 2 = 0, 'a', 'b'), 'x' FROM range(20)")
    one: dict[str, Any] = {"keys": ["k", "part"], "layout": {"partition_by": ["part"]}, "pipeline": "one"}
    two: dict[str, Any] = {"keys": ["k"], "stored_as_scd_type": 2, "pipeline": "two"}

    def change(*statements: str) -> None:
        for statement in statements:
            spark.sql(statement.format(f"delta.`{source}`"))
        apply_changes(spark, source, partitioned, **one)
        apply_changes(spark, source, clustered, **two)

    def update(text: str) -> None:
        change(f"UPDATE {{}} SET v = '{text}' WHERE k % 5 = 0", f"DELETE FROM {{}} WHERE k = {len(text)}")

    update("y")
    # The MERGE of an update writes the file of a small partition again, so only inserts make it two files.
    change("INSERT INTO {} SELECT id, IF(id % 2 = 0, 'a', 'b'), 'new' FROM range(20, 30)")
    before = rows(spark, partitioned), rows(spark, clustered)
    seals = newest_seal(partitioned), newest_seal(clustered)
    partly = {"where": "part = 'a'"}
    done = optimized(spark, partitioned, **partly)
    assert done["files_removed"] > done["files_added"] == 1
    assert optimized(spark, partitioned, **partly)["note"].startswith("no file has come since")
    assert optimized(spark, partitioned, zorder_by=("k",), where="part = 'b'")["files_added"] == 1
    assert optimized(spark, partitioned, zorder_by=("k",), where="part = 'b'")["files_added"] == 0
    assert optimized(spark, clustered)["files_removed"] > 1
    assert optimized(spark, clustered)["note"].startswith("no file has come since")
    spark.sql(f"DELETE FROM delta.`{source}` WHERE k = 7")
    assert optimized(spark, source, purge=True)["files_added"] == 0, "its rows are not masked, but rewritten"
    assert (rows(spark, partitioned), rows(spark, clustered)) == before
    assert (newest_seal(partitioned), newest_seal(clustered)) == seals

    update("yyy")
    assert optimized(spark, partitioned, purge=True)["note"] == "no row is masked"
    spark.sql(f"ALTER TABLE delta.`{source}` SET TBLPROPERTIES ({MASKS})")
    spark.sql(f"DELETE FROM delta.`{source}` WHERE k = 8")
    assert optimized(spark, source, purge=True)["files_removed"] > 0
    assert optimized(spark, source, purge=True)["note"] == "no row is masked"
    assert optimized(spark, clustered, purge=True)["note"] == "no row is masked"
    masked = tmp_table("masked")
    spark.sql(f"CREATE TABLE delta.`{masked}` (k INT) USING delta CLUSTER BY (k) TBLPROPERTIES ({MASKS})")
    for statement in ("INSERT INTO {} SELECT id FROM range(20)", "OPTIMIZE {}", "DELETE FROM {} WHERE k = 3"):
        spark.sql(statement.format(f"delta.`{masked}`"))
    assert optimized(spark, masked, purge=True)["note"].startswith("nothing was purged")
    version = newest(clustered)
    update("yyyy")
    assert newest(clustered) > version
    expected = rows(spark, source)
    assert rows(spark, partitioned) == sorted(expected, key=str)
    opened = spark.read.format("delta").load(clustered).where("__END_AT IS NULL").select("k", "part", "v")
    assert sorted(map(tuple, opened.collect()), key=str) == expected
    bad = run_sync(plan_optimize(OptimizeSpec(run_id="r", table_uri=clustered, where="k = 1"))).spec
    assert bad is not None
    failed = job.run(spark, bad)
    assert failed.error is not None
    assert failed.error["class"] == "InvalidConfiguration"


def data_files(table: str) -> set[str]:
    return {str(file.relative_to(table)) for file in Path(table).rglob("*.parquet")}


@pytest.mark.slow
def test_vacuum_and_its_consumers(spark: SparkSession, tmp_table: Table) -> None:
    source, target, other = tmp_table("source"), tmp_table("target"), tmp_table("other")
    kept = f"'{RETENTION}' = 'interval 24 hours'"
    spark.sql(f"CREATE TABLE delta.`{source}` (k INT, v STRING) USING delta TBLPROPERTIES ({FEED}, {kept})")
    spark.sql(f"INSERT INTO delta.`{source}` SELECT id, 'x' FROM range(4)")
    # A seal knows the commit it was made from, so a commit is as old as it is to be before it is applied.
    for version, hours in ((0, 80), (1, 75)):
        age(source, version, hours)
    apply_changes(spark, source, target, pipeline="lags", keys=["k"])
    spark.sql(f"UPDATE delta.`{source}` SET v = 'y' WHERE k < 2")
    spark.sql(f"UPDATE delta.`{source}` SET v = 'z' WHERE k < 1")
    for version, hours in ((2, 50), (3, 30)):
        age(source, version, hours)
    apply_changes(spark, source, other, pipeline="runs", keys=["k"])
    consumers = (
        Consumer("lags", source, target),
        Consumer("runs", source, other),
        Consumer("new", source, tmp_table("new")),
    )
    whole = data_files(source)

    def plan(*, dry_run: bool = False, extend_retention: bool = False) -> Any:
        spec = VacuumSpec(run_id="r", table_uri=source, dry_run=dry_run)
        return run_sync(plan_vacuum(spec, consumers, extend_retention=extend_retention))

    with pytest.raises(VacuumWouldLose) as refused:
        plan()
    assert "lags (" in refused.value.message
    assert "but not version 2" in refused.value.message
    assert "runs" not in refused.value.message
    assert data_files(source) == whole

    extended = plan(extend_retention=True)
    assert extended.spec.properties == {RETENTION: "interval 6 days"}
    assert "new: it has not run yet" in extended.notes[0]
    assert job.run(spark, extended.spec).error is None
    assert metadata(source)["configuration"][RETENTION] == "interval 6 days"
    assert data_files(source) == whole
    apply_changes(spark, source, target, pipeline="lags", keys=["k"])
    assert rows(spark, target) == rows(spark, source) == [(0, "z"), (1, "y"), (2, "x"), (3, "x")]
    assert plan().spec is None, "all is kept for six days, and nothing is older"

    # Without anybody who lags, files go: those that were removed, and change files.
    spark.sql(f"ALTER TABLE delta.`{source}` SET TBLPROPERTIES ({kept})")
    shown = plan(dry_run=True)
    named = job.run(spark, shown.spec)
    assert (named.status, data_files(source)) == ("planned", whole)
    free = plan()
    assert job.run(spark, free.spec).error is None
    gone = whole - data_files(source)
    assert {name.split("/")[0] for name in gone} >= {"_change_data"}
    assert run_sync(deleted(free.spec))["files"] == len(gone) > 2
    assert rows(spark, source) == [(0, "z"), (1, "y"), (2, "x"), (3, "x")]
    assert plan().spec is None
