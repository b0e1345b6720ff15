"""Gates on real tables: a named error with its remedy, and not a byte changed on either side."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delta_cdc import VersionRange
from delta_cdc.core import errors
from tests.support.world import Source, expected, held, listing

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome

    Apply = Callable[..., Outcome]

FEED = "delta.enableChangeDataFeed"


@pytest.fixture
def refused(source: Source, target: str, apply: Apply) -> Callable[..., errors.DeltaCdcError]:
    """Apply, expect an error by name, and compare both tables with what they were."""

    def run(
        error: type[errors.DeltaCdcError], *, says: str, scd: int = 1, **arguments: int
    ) -> errors.DeltaCdcError:
        before = listing(source.path), listing(target)
        with pytest.raises(error) as raised:
            apply(scd, **arguments)
        assert (listing(source.path), listing(target)) == before
        assert type(raised.value) is error
        assert raised.value.remedy.strip()
        assert says in raised.value.message, raised.value.message
        return raised.value

    return run


def properties(spark: SparkSession, table: str, **values: str) -> None:
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in values.items())
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ({listed})")


def commit_file(table: str, version: int) -> Path:
    return Path(table, "_delta_log", f"{version:020}.json")


# -- the feed -------------------------------------------------------------------------------------
def hole(spark: SparkSession, source: Source) -> None:
    """Change rows with the feed on, off and on again; version 33 is the first one in the dark."""
    source.grow(spark, random.Random(3), 1)
    properties(spark, source.path, **{FEED: "false"})
    source.states.append(dict(source.states[-1]))
    source.update(spark, {min(source.states[-1]): ("in the dark", 1)})
    source.grow(spark, random.Random(1), 2)
    properties(spark, source.path, **{FEED: "true"})
    source.states.append(dict(source.states[-1]))
    source.grow(spark, random.Random(2), 1)


@pytest.mark.slow
def test_type_1_goes_on_over_a_hole_in_the_feed(
    spark: SparkSession, source: Source, target: str, apply: Apply
) -> None:
    """The net effect of the versions in the dark is what their two ends differ in."""
    apply()
    hole(spark, source)
    assert apply().applied
    assert held(spark, target) == expected(source, 1, 30)


@pytest.mark.slow
def test_type_2_ends_at_a_hole_in_the_feed(
    through: Callable[..., None],
    spark: SparkSession,
    source: Source,
    apply: Apply,
    refused: Callable[..., errors.DeltaCdcError],
) -> None:
    through(2, 30)
    hole(spark, source)
    found = refused(errors.ChangeFeedDisabled, says="is off in version 33 ", scd=2)
    assert "DeltaEnableChangeDataFeedOperator" in found.remedy


@pytest.mark.slow
def test_feed_off_before_the_range_does_not_matter(
    spark: SparkSession, source: Source, target: str, apply: Apply
) -> None:
    properties(spark, source.path, **{FEED: "false"})
    source.states.append(dict(source.states[-1]))
    source.grow(spark, random.Random(1), 1)
    properties(spark, source.path, **{FEED: "true"})
    source.states.append(dict(source.states[-1]))
    apply()
    source.grow(spark, random.Random(2), 2)
    assert apply().versions == VersionRange(34, 35)
    assert held(spark, target) == expected(source, 1, 33)


# -- the log --------------------------------------------------------------------------------------
def test_log_cleaned_behind_us(
    through: Callable[..., None], source: Source, apply: Apply, refused: Callable[..., errors.DeltaCdcError]
) -> None:
    through(1, 12)
    for version in range(20):
        commit_file(source.path, version).unlink()
    refused(errors.VersionsExpired, says="Version 13 ")


@pytest.mark.slow
def test_log_cleaned_up_to_the_watermark_is_fine(
    through: Callable[..., None],
    spark: SparkSession,
    source: Source,
    target: str,
    apply: Apply,
    refused: Callable[..., errors.DeltaCdcError],
    scd: int,
) -> None:
    """The commit at the watermark shows that the log is still the one that was applied: it must be there."""
    through(scd, 20)
    for version in range(20):
        commit_file(source.path, version).unlink()
    watermark = commit_file(source.path, 20)
    away = watermark.rename(watermark.with_suffix(".away"))
    refused(errors.VersionsExpired, says="Version 20 ", scd=scd)
    away.rename(watermark)
    assert apply(scd).versions == VersionRange(21, 30)
    assert held(spark, target, scd) == expected(source, scd, 20)


@pytest.mark.parametrize("missing", [16, 22, 29])
def test_a_hole_in_the_log(
    through: Callable[..., None],
    source: Source,
    apply: Apply,
    refused: Callable[..., errors.DeltaCdcError],
    missing: int,
) -> None:
    """Delta's batch reader passes over a hole in silence; the rows of that version would be lost for ever."""
    through(1, 15)
    commit_file(source.path, missing).unlink()
    refused(errors.LogGap, says=f"version {missing} ")


# -- retention ------------------------------------------------------------------------------------
def test_retention_passed(
    through: Callable[..., None],
    spark: SparkSession,
    source: Source,
    apply: Apply,
    refused: Callable[..., errors.DeltaCdcError],
) -> None:
    through(1, 15)
    three_days_ago = time.time() - 3 * 86_400
    for version in range(31):
        os.utime(commit_file(source.path, version), (three_days_ago + version,) * 2)
    properties(spark, source.path, **{"delta.deletedFileRetentionDuration": "interval 2 days"})
    refused(errors.VersionsExpired, says="longer than delta.deletedFileRetentionDuration = interval 2 days")


@pytest.mark.slow
def test_inside_retention(
    through: Callable[..., None], spark: SparkSession, source: Source, target: str, apply: Apply
) -> None:
    through(1, 15)
    three_days_ago = time.time() - 3 * 86_400
    for version in range(31):
        os.utime(commit_file(source.path, version), (three_days_ago + version,) * 2)
    assert apply().versions == VersionRange(16, 30)
    assert held(spark, target) == expected(source, 1, 15)


def test_change_files_vacuumed(
    through: Callable[..., None],
    source: Source,
    apply: Apply,
    scd: int,
    refused: Callable[..., errors.DeltaCdcError],
) -> None:
    through(scd, 15)
    change_files = list(Path(source.path, "_change_data").glob("*.parquet"))
    assert change_files
    for file in change_files:
        file.unlink()
    refused(errors.VersionsExpired, says="", scd=scd)


def test_data_files_vacuumed(
    through: Callable[..., None], source: Source, apply: Apply, refused: Callable[..., errors.DeltaCdcError]
) -> None:
    """Inserts have no change file: their rows are read from the data file, which VACUUM may have taken."""
    through(1, 12)
    for file in Path(source.path).glob("*.parquet"):
        file.unlink()
    refused(errors.VersionsExpired, says="")


# -- confs, target, range -------------------------------------------------------------------------
@pytest.mark.parametrize(
    "conf",
    [
        "spark.sql.files.ignoreMissingFiles",
        "spark.sql.files.ignoreCorruptFiles",
        "spark.databricks.delta.changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled",
    ],
)
def test_confs_that_make_loss_silent(
    through: Callable[..., None],
    spark: SparkSession,
    source: Source,
    apply: Apply,
    refused: Callable[..., errors.DeltaCdcError],
    conf: str,
) -> None:
    through(1, 15)
    spark.conf.set(conf, "true")
    try:
        refused(errors.ForbiddenConf, says=conf)
    finally:
        spark.conf.unset(conf)


@pytest.mark.slow
def test_target_that_forgets_transactions(
    through: Callable[..., None],
    spark: SparkSession,
    source: Source,
    target: str,
    apply: Apply,
    refused: Callable[..., errors.DeltaCdcError],
) -> None:
    through(1, 15)
    name = "delta.setTransactionRetentionDuration"
    properties(spark, target, **{name: "interval 1 hour"})
    found = refused(errors.TransactionRetentionSet, says=name)
    assert "UNSET TBLPROPERTIES" in found.remedy
    spark.sql(f"ALTER TABLE delta.`{target}` UNSET TBLPROPERTIES ('{name}')")
    assert apply().versions == VersionRange(16, 30)
    assert held(spark, target) == expected(source, 1, 15)


def test_range_that_leaves_versions_out(
    through: Callable[..., None], source: Source, apply: Apply, refused: Callable[..., errors.DeltaCdcError]
) -> None:
    through(1, 15)
    found = refused(errors.RangeNotContiguous, says="16-17", starting_version=18)
    assert "start at 16" in found.remedy


def test_range_beyond_the_newest_version(
    through: Callable[..., None], source: Source, apply: Apply, refused: Callable[..., errors.DeltaCdcError]
) -> None:
    """Spark would clip it in silence."""
    through(1, 15)
    refused(errors.RangeNotContiguous, says="newest version", ending_version=31)


@pytest.mark.slow
def test_range_that_was_applied_in_part(
    through: Callable[..., None], spark: SparkSession, source: Source, target: str, apply: Apply, scd: int
) -> None:
    through(scd, 15)
    assert apply(scd, starting_version=11, ending_version=20).versions == VersionRange(16, 20)
    before = listing(target)
    assert not apply(scd, starting_version=11, ending_version=20).applied
    assert listing(target) == before
    assert held(spark, target, scd) == expected(source, scd, 15, 20)
