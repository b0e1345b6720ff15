"""RESTORE and its like, on both sides: the watermark is always the one that is true of the rows."""

from __future__ import annotations

import random
import re
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delta_cdc import VersionRange
from delta_cdc.core import errors
from tests.support.holding import hooked, once
from tests.support.slow import slow_but
from tests.support.world import Source, commits, expected, held, listing, ranges, seals

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome

    Apply = Callable[..., Outcome]


def restore(spark: SparkSession, table: str, version: int) -> None:
    spark.sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF {version}").collect()


def _restorable(error: errors.DeltaCdcError) -> int:
    """Return the version that a remedy names."""
    found = re.search(r"RESTORE the (?:target|table) to version (\d+)", error.remedy)
    assert found is not None, error.remedy
    return int(found[1])


def sealed_at(target: str, watermark: int) -> int:
    """Return the target's version that carries a watermark."""
    return next(seal["at"] for seal in seals(target) if seal["state"]["applied_to"]["version"] == watermark)


# -- the target -----------------------------------------------------------------------------------
@pytest.mark.slow
def test_restored_by_version(
    spark: SparkSession, source: Source, target: str, apply: Apply, scd: int, through: Callable[..., None]
) -> None:
    through(scd, 10, 15, 25)
    restore(spark, target, sealed_at(target, 15))
    result = apply(scd)
    assert result.versions == VersionRange(16, 30)
    assert held(spark, target, scd) == expected(source, scd, 10)


@pytest.mark.slow
def test_restored_by_timestamp(
    spark: SparkSession, source: Source, target: str, apply: Apply, scd: int, through: Callable[..., None]
) -> None:
    through(scd, 10, 15, 25)
    sealed = sealed_at(target, 15)
    history = spark.sql(f"DESCRIBE HISTORY delta.`{target}`").collect()
    moment = next(row["timestamp"] for row in history if row["version"] == sealed)
    stamp = moment.isoformat(sep=" ", timespec="milliseconds")
    spark.sql(f"RESTORE TABLE delta.`{target}` TO TIMESTAMP AS OF '{stamp}'").collect()
    with pytest.raises(errors.WatermarkExpired, match="RESTORE to a time"):
        apply(scd)
    restore(spark, target, sealed)
    assert apply(scd).versions == VersionRange(16, 30)
    assert held(spark, target, scd) == expected(source, scd, 10)


@pytest.mark.slow
def test_restored_twice_and_forth(
    spark: SparkSession, source: Source, target: str, apply: Apply, scd: int, through: Callable[..., None]
) -> None:
    through(scd, 10, 15, 20, 25)
    at_15, at_20, at_25 = (sealed_at(target, end) for end in (15, 20, 25))
    restore(spark, target, at_15)
    back_at_15 = max(commits(target))
    restore(spark, target, at_25)
    # To the version that is itself a RESTORE to 15, over one that went forth to 25.
    restore(spark, target, back_at_15)
    assert apply(scd, ending_version=20).versions == VersionRange(16, 20)
    restore(spark, target, at_20)
    assert apply(scd).versions == VersionRange(21, 30)
    assert held(spark, target, scd) == expected(source, scd, 10)


@pytest.mark.slow
def test_restored_to_the_initial_load(
    spark: SparkSession, source: Source, target: str, apply: Apply, scd: int, through: Callable[..., None]
) -> None:
    through(scd, 10, 20)
    restore(spark, target, sealed_at(target, 10))
    assert apply(scd).versions == VersionRange(11, 30)
    assert held(spark, target, scd) == expected(source, scd, 10)
    numbers = [seal["number"] for seal in seals(target)]
    assert numbers == sorted(set(numbers))


@pytest.mark.slow
def test_restored_to_before_our_first_seal(
    spark: SparkSession, source: Source, target: str, apply: Apply
) -> None:
    spark.sql(f"CREATE TABLE delta.`{target}` (id BIGINT, name STRING, amount BIGINT) USING delta")
    apply(ending_version=10)
    apply(ending_version=20)
    restore(spark, target, 0)
    result = apply()
    assert seals(target)[-1]["step"]["kind"] == "load"
    assert result.watermark.version == 30
    assert held(spark, target) == expected(source, 1, 30)


@pytest.mark.slow
def test_restored_with_nothing_new_in_the_source(
    spark: SparkSession, source: Source, target: str, apply: Apply, scd: int, through: Callable[..., None]
) -> None:
    """A watermark that lived in Airflow would say 30 here, and the rows would stay at 20 for ever."""
    through(scd, 10, 20, 30)
    restore(spark, target, sealed_at(target, 20))
    assert apply(scd).versions == VersionRange(21, 30)
    assert held(spark, target, scd) == expected(source, scd, 10)


@pytest.mark.slow
@pytest.mark.parametrize("back_to", [10, 15])
def test_restored_between_planning_and_the_merge(
    spark: SparkSession,
    source: Source,
    target: str,
    apply: Apply,
    scd: int,
    through: Callable[..., None],
    back_to: int,
) -> None:
    through(scd, 10, 15, 20)
    action = partial(restore, spark, target, sealed_at(target, back_to))
    with hooked(once("planned", action)):
        result = apply(scd)
    assert ranges(target)[-1] == (back_to + 1, 30)
    assert result.watermark.version == 30
    assert held(spark, target, scd) == expected(source, scd, 10)


@pytest.mark.slow
def test_restored_after_the_last_look_before_the_merge(
    spark: SparkSession, source: Source, target: str, apply: Apply, scd: int, through: Callable[..., None]
) -> None:
    """The MERGE meets a key that was deleted since 10 and is back in 21-30: it fails, and is planned again.

    Where it meets none, the run and each later one fail: see the simulator.
    """
    through(scd, 10, 15, 20)
    action = partial(restore, spark, target, sealed_at(target, 10))
    with hooked(once("before_commit", action)):
        assert apply(scd).versions == VersionRange(11, 30)
    assert held(spark, target, scd) == expected(source, scd, 10)


@pytest.mark.slow
def test_restored_right_after_the_commit(
    spark: SparkSession, source: Source, target: str, apply: Apply, scd: int, through: Callable[..., None]
) -> None:
    """A seal that was rolled back before it was confirmed is no proof: not published, and repeated."""
    through(scd, 10, 15)
    action = partial(restore, spark, target, sealed_at(target, 15))
    with hooked(once("committed", action)), pytest.raises(errors.OutcomeUnknown):
        apply(scd)
    assert held(spark, target, scd) == expected(source, scd, 10, 15)
    assert apply(scd).versions == VersionRange(16, 30)
    assert held(spark, target, scd) == expected(source, scd, 10)


REPLACEMENTS = {
    "replace": "CREATE OR REPLACE TABLE {t} USING delta AS SELECT 7L AS id, 'theirs' AS name, 7L AS amount",
    "overwrite": "INSERT OVERWRITE {t} SELECT 7L, 'theirs', 7L",
    "truncate": "TRUNCATE TABLE {t}",
    "delete all": "DELETE FROM {t}",
}


@pytest.mark.slow
@pytest.mark.parametrize("statement", REPLACEMENTS)
def test_replaced_by_somebody_else(
    spark: SparkSession,
    source: Source,
    target: str,
    apply: Apply,
    through: Callable[..., None],
    statement: str,
) -> None:
    through(1, 10, 20)
    intact = max(commits(target))
    spark.sql(REPLACEMENTS[statement].format(t=f"delta.`{target}`"))
    before = listing(target)
    with pytest.raises(errors.TargetReplaced) as error:
        apply()
    assert listing(target) == before
    assert f"RESTORE the target to version {intact}" in error.value.remedy
    restore(spark, target, intact)
    assert apply().versions == VersionRange(21, 30)
    assert held(spark, target) == expected(source, 1, 10)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["before_commit", "planned"])
@pytest.mark.parametrize("statement", REPLACEMENTS.values(), ids=REPLACEMENTS.keys())
def test_replaced_while_a_run_is_under_way(
    spark: SparkSession,
    source: Source,
    target: str,
    apply: Apply,
    through: Callable[..., None],
    statement: str,
    point: str,
) -> None:
    """Whatever comes out is named, and following the remedy leads to the right rows."""
    through(1, 10, 20)
    action = partial(spark.sql, statement.format(t=f"delta.`{target}`"))
    with hooked(once(point, action)), pytest.raises(errors.DeltaCdcError) as error:
        apply()
    assert isinstance(error.value, errors.TargetReplaced | errors.TargetChangedUnderneath)
    restore(spark, target, _restorable(error.value))
    if isinstance(error.value, errors.TargetChangedUnderneath):
        # What is left is the other writer's replacement, which has a remedy of its own.
        with pytest.raises(errors.TargetReplaced) as error:
            apply()
        restore(spark, target, _restorable(error.value))
    assert apply().versions == VersionRange(21, 30)
    assert held(spark, target) == expected(source, 1, 10)


@pytest.mark.slow
@pytest.mark.parametrize("way_out", slow_but(["restore", "reset"], "restore"))
def test_a_commit_that_another_driver_overwrote(
    spark: SparkSession,
    source: Source,
    target: str,
    apply: Apply,
    through: Callable[..., None],
    tmp_path: Path,
    way_out: str,
) -> None:
    """A driver that was frozen between its look and its rename, on a disk with Delta's own log store."""
    through(1, 10, 15)
    lost = max(commits(target)) + 1
    # Its commit, planned on the same version. Its log goes over ours after the next two applies.
    theirs = tmp_path / "theirs"
    shutil.copytree(target, theirs)
    spark.sql(f"INSERT INTO delta.`{theirs}` SELECT 1L + max(id), 'theirs', 7L FROM delta.`{theirs}`")
    apply(ending_version=20)
    apply(ending_version=25)
    file = f"_delta_log/{lost:020d}.json"
    shutil.copytree(theirs, target, dirs_exist_ok=True, ignore=lambda *_: {"_delta_log"})
    shutil.copyfile(theirs / file, Path(target) / file)
    (Path(target) / "_delta_log" / f".{lost:020d}.json.crc").unlink(missing_ok=True)
    before = listing(target)
    # A reload would leave rows that are there twice now.
    for given in ({}, {"mode": "reload"}, {"policies": {"on_target_replaced": "reload"}}):
        with pytest.raises(errors.TargetHistoryChanged, match=rf"Version {lost} .* was overwritten") as error:
            apply(**given)
    assert listing(target) == before
    assert _restorable(error.value) == lost - 1
    if way_out == "restore":
        restore(spark, target, lost - 1)
        assert apply().versions == VersionRange(16, 30)
    else:
        apply(mode="reset")
    assert held(spark, target) == expected(source, 1, 10)
    assert apply().applied is False, "it stays good"


def test_dropped(spark: SparkSession, source: Source, target: str, apply: Apply, scd: int) -> None:
    apply(scd, ending_version=10)
    first = seals(target)[-1]["number"]
    shutil.rmtree(target)
    result = apply(scd)
    assert result.watermark.version == 30
    assert held(spark, target, scd) == expected(source, scd, 30)
    # A zombie of the dropped table must not be able to commit.
    assert seals(target)[-1]["number"] > first + 1


# -- the source -----------------------------------------------------------------------------------
@pytest.mark.slow
def test_restored_source_is_a_change_like_any_other(
    spark: SparkSession, source: Source, target: str, apply: Apply, scd: int, through: Callable[..., None]
) -> None:
    through(scd, 10, 20, 30)
    source.restore(spark, 12)
    source.grow(spark, random.Random(5), 2)
    source.restore(spark, 28)
    assert apply(scd).versions == VersionRange(31, 34)
    assert held(spark, target, scd) == expected(source, scd, 10)


@pytest.mark.slow
def test_source_replaced_inside_its_log_goes_on(
    spark: SparkSession, source: Source, target: str, apply: Apply, scd: int, through: Callable[..., None]
) -> None:
    """Another table id, but a log without a gap, with the feed on: its change rows are right."""
    through(scd, 10, 30)
    spark.sql(
        f"CREATE OR REPLACE TABLE delta.`{source.path}` USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true') "
        "AS SELECT * FROM VALUES (1L, 'a', 1L), (100L, 'another', 2L) AS rows(id, name, amount)"
    )
    source.states.append({1: ("a", 1), 100: ("another", 2)})
    source.update(spark, {100: ("one more", 3)})
    assert apply(scd).versions == VersionRange(31, 32)
    assert held(spark, target, scd) == expected(source, scd, 10)


@pytest.mark.slow
@pytest.mark.parametrize("commits_after", [2, 25], ids=["shorter", "longer"])
def test_recreated_source(
    spark: SparkSession,
    source: Source,
    target: str,
    apply: Apply,
    through: Callable[..., None],
    commits_after: int,
) -> None:
    through(1, 10, 20)
    shutil.rmtree(source.path)
    again = Source(source.path).create(spark)
    again.grow(spark, random.Random(9), commits_after)
    before = listing(target)
    with pytest.raises(errors.SourceTableReplaced):
        apply()
    assert listing(target) == before


@pytest.mark.slow
def test_source_copied_back_from_a_backup(
    spark: SparkSession,
    source: Source,
    target: str,
    apply: Apply,
    tmp_path: Path,
    through: Callable[..., None],
) -> None:
    backup = source.copy(tmp_path / "backup")
    source.grow(spark, random.Random(1), 2)
    apply(ending_version=32)
    backup.grow(spark, random.Random(2), 4)
    shutil.rmtree(source.path)
    shutil.copytree(backup.path, source.path)
    before = listing(target)
    with pytest.raises(errors.SourceHistoryChanged):
        apply()
    assert listing(target) == before


@pytest.mark.slow
def test_dropped_source(source: Source, target: str, apply: Apply, through: Callable[..., None]) -> None:
    through(1, 10, 20)
    shutil.rmtree(source.path)
    before = listing(target)
    with pytest.raises(errors.TableNotFound):
        apply()
    assert listing(target) == before
