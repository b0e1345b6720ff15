"""What operations people run do to a flow: VACUUM, log cleaning, a replaced source, a zombie's commit."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from delta_cdc import VersionRange
from delta_cdc.core import errors
from tests.support.engine import session_like
from tests.support.holding import hooked, once
from tests.support.world import Source, expected, held, listing, seals

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome

    Apply = Callable[..., Outcome]
    Through = Callable[..., None]

DAYS = 86_400


def vacuum(spark: SparkSession, table: str) -> None:
    """Delete everything that the newest version does not need, the change files among it."""
    session = session_like(spark)
    session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    session.sql(f"VACUUM delta.`{table}` RETAIN 0 HOURS").collect()


def clean_log(table: str) -> None:
    """Let the log's retention pass for all commits there are, and clean it as Delta does."""
    for number, file in enumerate(sorted(Path(table, "_delta_log").glob("*.json"))):
        moment = time.time() - 60 * DAYS + number
        os.utime(file, (moment, moment))
    made = DeltaTable(table)
    made.create_checkpoint()
    made.cleanup_metadata()


def versions_left(table: str) -> list[int]:
    return sorted(int(file.stem) for file in Path(table, "_delta_log").glob("*.json"))


@pytest.mark.slow
def test_vacuum_behind_us(
    through: Through, spark: SparkSession, source: Source, target: str, apply: Apply
) -> None:
    """The log still names what is gone: the gate looks for it, before Spark starts."""
    through(1, 15)
    vacuum(spark, source.path)
    before = listing(source.path), listing(target)
    started: list[str] = []
    with hooked(started.append), pytest.raises(errors.VersionsExpired, match=r"is gone \(VACUUM\)") as error:
        apply()
    assert started == []
    assert "delta.deletedFileRetentionDuration" in error.value.remedy
    assert (listing(source.path), listing(target)) == before


@pytest.mark.slow
def test_vacuum_of_what_was_applied_is_fine(
    through: Through, spark: SparkSession, source: Source, target: str, apply: Apply
) -> None:
    through(1, 20)
    apply()
    vacuum(spark, source.path)
    # It leaves two commits that change nothing.
    source.states += [dict(source.states[-1])] * 2
    source.update(spark, {1: ("after", 1)})
    assert apply().versions == VersionRange(31, 33)
    assert held(spark, target) == expected(source, 1, 20)


def test_source_log_cleaned_behind_us(through: Through, source: Source, target: str, apply: Apply) -> None:
    through(1, 5)
    clean_log(source.path)
    assert versions_left(source.path)[0] > 6
    before = listing(source.path), listing(target)
    with pytest.raises(errors.VersionsExpired, match="Version 6 "):
        apply()
    assert (listing(source.path), listing(target)) == before


@pytest.mark.slow
def test_target_log_cleaned(
    through: Through, spark: SparkSession, source: Source, target: str, apply: Apply
) -> None:
    """The checkpoint keeps the transaction; it alone is never trusted."""
    through(1, 15, 20)
    spark.sql(f"OPTIMIZE delta.`{target}`").collect()
    spark.sql(f"ALTER TABLE delta.`{target}` SET TBLPROPERTIES ('a' = 'b')")
    clean_log(target)
    assert seals(target) == []
    before = listing(target)
    with pytest.raises(errors.WatermarkExpired):
        apply()
    assert listing(target) == before


@pytest.mark.slow
def test_source_replaced_without_its_feed(
    through: Through, spark: SparkSession, source: Source, target: str, apply: Apply
) -> None:
    """CREATE OR REPLACE drops the property where it is not named again: no feed, no way on."""
    through(1, 20)
    apply()
    spark.sql(
        f"CREATE OR REPLACE TABLE delta.`{source.path}` USING delta "
        "AS SELECT * FROM VALUES (1L, 'a', 1L) AS rows(id, name, amount)"
    )
    before = listing(target)
    with pytest.raises(errors.SourceTableReplaced):
        apply()
    assert listing(target) == before


@pytest.mark.slow
def test_restored_source_twice_over(
    through: Through, spark: SparkSession, source: Source, target: str, apply: Apply, scd: int
) -> None:
    """Each RESTORE is a version with changes, also one that undoes a RESTORE, across runs."""
    through(scd, 10, 20)
    source.restore(spark, 12)
    apply(scd)
    source.restore(spark, 28)
    source.restore(spark, 31)
    source.update(spark, {1: ("last", 9)})
    assert apply(scd).versions == VersionRange(32, 34)
    assert held(spark, target, scd) == expected(source, scd, 10)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["planned", "before_commit"])
def test_a_zombie_of_a_dropped_table(
    through: Through, spark: SparkSession, source: Source, target: str, apply: Apply, point: str
) -> None:
    """A run hangs; its table is dropped and loaded anew; then the run wakes up and wants to commit.

    Its seal number belongs to the table that is gone, and is below every number of the new one.
    """
    through(1, 10, 20)

    def dropped_and_loaded() -> None:
        shutil.rmtree(target)
        apply(ending_version=25, run_id="new")

    with hooked(once(point, dropped_and_loaded)):
        result = apply(run_id="zombie")
    # It lost, looked again, and found the rest of the work.
    assert result.versions == VersionRange(26, 30)
    assert [seal["state"]["applied_to"]["version"] for seal in seals(target)] == [25, 30]
    assert held(spark, target) == expected(source, 1, 25)


@pytest.mark.slow
def test_planned_on_one_seal_restored_to_an_older_one(
    through: Through, spark: SparkSession, source: Source, target: str, apply: Apply, scd: int
) -> None:
    """The compare-and-swap alone would let it through: RESTORE keeps the transactions."""
    through(scd, 10, 15, 20)
    older = next(seal["at"] for seal in seals(target) if seal["state"]["applied_to"]["version"] == 15)

    def restore() -> None:
        spark.sql(f"RESTORE TABLE delta.`{target}` TO VERSION AS OF {older}").collect()

    with hooked(once("planned", restore)):
        result = apply(scd)
    assert result.versions == VersionRange(16, 30)
    assert held(spark, target, scd) == expected(source, scd, 10)
