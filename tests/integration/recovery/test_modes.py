"""Repair, reload and reset of targets that somebody changed by hand: what is proved, and what is held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import VersionRange
from delta_cdc.core import errors
from tests.support.world import Source, current, expected, held, history, listing, ranges, seals

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome

    Apply = Callable[..., Outcome]


def spoil(spark: SparkSession, target: str, keys: str) -> None:
    spark.sql(f"UPDATE delta.`{target}` SET name = 'spoilt', amount = -1 WHERE id IN ({keys})")


def kinds(target: str) -> list[str]:
    return [seal["step"]["kind"] for seal in seals(target)]


@pytest.mark.slow
def test_repaired_by_range_and_by_keys(
    spark: SparkSession, source: Source, target: str, apply: Apply, scd: int, through: Callable[..., None]
) -> None:
    through(scd, 10, 20)
    # Key 1 changed in version 15; key 100 is chosen by its key.
    spoil(spark, target, "1, 100")
    before = listing(target)
    dry = apply(scd, mode="repair", starting_version=11, ending_version=20, dry_run=True)
    assert listing(target) == before
    assert (dry.applied, dry.watermark and dry.watermark.version) == (False, 20)
    assert dry.dry_run is not None
    assert "MERGE" in dry.dry_run["statements"][0]
    first = apply(scd, mode="repair", starting_version=11, ending_version=20)
    assert (first.applied, first.versions) == (True, VersionRange(11, 20))
    second = apply(scd, mode="repair", repair_keys="id <= 100")
    assert second.watermark is not None
    assert second.watermark.version == 20
    if scd == 1:
        # History of key 100 begins with the load, which no feed tells.
        assert held(spark, target, scd) == expected(source, scd, 10, 20)
    assert [end for _, end in ranges(target)] == [10, 20, 20, 20]
    assert kinds(target) == ["load", "apply", "repair", "repair"]
    assert apply(scd).versions == VersionRange(21, 30)


@pytest.mark.slow
def test_a_replaced_target_is_reloaded_and_a_reset_taken_back(
    spark: SparkSession, source: Source, target: str, apply: Apply, through: Callable[..., None]
) -> None:
    through(1, 10, 20)
    spark.sql(f"DELETE FROM delta.`{target}`")
    with pytest.raises(errors.TargetReplaced):
        apply()
    given: dict[str, Any] = {"on_target_replaced": "reload", "ending_version": 25}
    reloaded = apply(**given)
    assert (reloaded.applied, reloaded.versions) == (True, VersionRange(25, 25))
    assert held(spark, target) == current(source.states[25])
    assert not apply(**given).applied
    spoil(spark, target, "1, 2, 3")
    reset = apply(mode="reset", ending_version=28)
    assert reset.watermark is not None
    assert reset.watermark.version == 28
    assert held(spark, target) == current(source.states[28])
    assert kinds(target) == ["load", "apply", "reload", "reset"]
    assert apply().versions == VersionRange(29, 30)
    assert held(spark, target) == current(source.states[30])
    # Back before the reset: the watermark is the one that is true there.
    spark.sql(f"RESTORE TABLE delta.`{target}` TO VERSION AS OF {seals(target)[2]['at']}").collect()
    assert apply().versions == VersionRange(26, 30)
    assert held(spark, target) == current(source.states[30])


@pytest.mark.slow
def test_history_is_kept_by_a_reload_and_thrown_away_by_a_reset(
    spark: SparkSession, source: Source, target: str, apply: Apply, through: Callable[..., None]
) -> None:
    through(2, 10, 20)
    reloaded = apply(2, mode="reload")
    assert reloaded.watermark is not None
    assert reloaded.watermark.version == 30
    rows = held(spark, target, 2)
    assert [row[:3] for row in rows if row[-1] is None] == current(source.states[30])
    # What was closed before stands; what is closed by the reload is closed at its version.
    assert {row[-1] for row in rows if row[-1] is not None and row[-1] > 20} <= {30}
    assert [row for row in rows if (row[-1] or 99) <= 20] == [
        row for row in history(source, 10, 20) if row[-1] is not None
    ]
    assert not apply(2, mode="reload").counts.get("updated")
    with pytest.raises(errors.InvalidConfiguration, match="discard_history"):
        apply(2, mode="reset")
    assert apply(2, mode="reset", discard_history=True).applied
    assert held(spark, target, 2) == history(source, 30)


@pytest.mark.slow
def test_a_reset_changes_the_type(
    spark: SparkSession, source: Source, target: str, apply: Apply, through: Callable[..., None]
) -> None:
    """The old table has statistics of its start and end columns, which Delta does not find in the new one."""
    through(2, 10)
    assert apply(1, mode="reset", discard_history=True, ending_version=20).applied
    assert held(spark, target) == current(source.states[20])
    assert apply(2, mode="reset", discard_history=True).applied
    assert held(spark, target, 2) == history(source, 30)


@pytest.mark.slow
def test_a_reset_from_a_version_applies_what_follows(
    spark: SparkSession, source: Source, target: str, apply: Apply, through: Callable[..., None]
) -> None:
    """The step after the reset must not take the reset's own overwrite for another writer's."""
    through(1, 10)
    done = apply(mode="reset", starting_version=21)
    assert (done.applied, done.watermark and done.watermark.version) == (True, 30)
    assert kinds(target) == ["load", "reset", "apply"]
    assert held(spark, target) == current(source.states[30])
