"""Repair, reload and horizons: what differs is mended, what is right stays, and others' writes are seen."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes
from delta_cdc.core import failpoints
from delta_cdc.core.errors import InvalidConfiguration, TooLate
from tests.support.engine import newest, seal_of
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    Table = Callable[[str], str]

EVENT = "k int, v string, n int, op string, s long"
LOG: dict[str, Any] = {
    "source_kind": "change_log",
    "keys": ["k"],
    "sequence_by": "s",
    "apply_as_deletes": "op = 'D'",
    "except_column_list": ["op", "s"],
}


def put(spark: SparkSession, table: str, *rows: tuple[Any, ...], schema: str = EVENT) -> None:
    """Append rows."""
    spark.createDataFrame(list(rows), schema).write.format("delta").mode("append").save(table)


def held(spark: SparkSession, table: str) -> list[tuple[Any, ...]]:
    """Return all rows, sorted."""
    return sorted(map(tuple, spark.read.format("delta").load(table).collect()), key=str)


def do(spark: SparkSession, *statements: str) -> None:
    """Run statements."""
    for statement in statements:
        spark.sql(statement)


@pytest.fixture(scope="module")
def _feed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    source = str(tmp_path_factory.mktemp("feed") / "source")
    do(
        spark,
        f"CREATE TABLE delta.`{source}` (k INT, v STRING) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        f"INSERT INTO delta.`{source}` VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e'), (6, 'f')",
        f"UPDATE delta.`{source}` SET v = v || '2' WHERE k < 6",
        f"DELETE FROM delta.`{source}` WHERE k = 4",
        f"UPDATE delta.`{source}` SET v = v || '3' WHERE k IN (1, 5)",
        f"INSERT INTO delta.`{source}` VALUES (4, 'again')",
    )
    return source


@pytest.fixture
def feed(_feed: str, tmp_table: Table) -> str:
    """Return a source of four commits after the load: every key is a case."""
    return shutil.copytree(_feed, tmp_table("source"))


@pytest.mark.slow
@pytest.mark.parametrize("scd", slow_but([1, 2], 2))
def test_a_repair_mends_the_keys_of_its_range_and_moves_no_watermark(
    spark: SparkSession, feed: str, tmp_table: Table, scd: int
) -> None:
    target = tmp_table("target")
    asked: dict[str, Any] = {"pipeline": "p", "keys": ["k"], "stored_as_scd_type": scd}
    apply_changes(spark, feed, target, initial_load={"from_version": 2}, **asked)
    right, seal = held(spark, target), seal_of(target, newest(target))
    assert seal is not None
    open_row = "AND `__END_AT` IS NULL" if scd == 2 else ""
    do(
        spark,
        f"DELETE FROM delta.`{target}` WHERE k = 1",
        f"UPDATE delta.`{target}` SET v = 'damaged' WHERE k IN (5, 6) {open_row}",
        f"INSERT INTO delta.`{target}` VALUES (2, 'hand', 3, 4)"
        if scd == 2
        else f"UPDATE delta.`{target}` SET v = 'hand' WHERE k = 2",
    )
    if scd == 2:
        # The start of what was open before the range cannot be known from it: only rows since are made again.
        put_back = [row for row in right if row[0] == 1 and row[2] < 2]
        put(spark, target, *put_back, schema="k int, v string, `__START_AT` long, `__END_AT` long")
    damaged = held(spark, target)
    result = apply_changes(spark, feed, target, mode="repair", starting_version=2, ending_version=4, **asked)
    untouched = [row for row in damaged if row[0] == 6]
    assert held(spark, target) == sorted([row for row in right if row[0] != 6] + untouched, key=str)
    repaired = seal_of(target, newest(target))
    assert repaired is not None
    assert (repaired.step.kind, repaired.watermark.version, repaired.number) == ("repair", 5, seal.number + 1)
    assert result.watermark is not None
    assert (result.applied, result.watermark.version) == (True, 5)

    again = apply_changes(spark, feed, target, mode="repair", repair={"keys": "k = 6"}, **asked)
    if scd == 1:
        assert held(spark, target) == right
    assert again.watermark == result.watermark
    before = held(spark, target)
    nothing = apply_changes(spark, feed, target, **asked)
    assert (nothing.applied, held(spark, target)) == (False, before)


@pytest.mark.slow
@pytest.mark.parametrize("scd", [1, 2])
def test_a_reload_closes_and_opens_at_its_version_and_overwrites_no_history(
    spark: SparkSession, feed: str, tmp_table: Table, scd: int
) -> None:
    target = tmp_table("target")
    asked: dict[str, Any] = {"pipeline": "p", "keys": ["k"], "stored_as_scd_type": scd}
    apply_changes(spark, feed, target, ending_version=1, **asked)
    # As if versions 2 to 5 could no longer be read.
    apply_changes(spark, feed, target, mode="reload", **asked)
    rows = held(spark, target)
    if scd == 1:
        assert rows == held(spark, feed)
    else:
        changed = {1: ("a", "a23"), 2: ("b", "b2"), 3: ("c", "c2"), 4: ("d", "again"), 5: ("e", "e23")}
        expected = [(6, "f", 1, None)]
        for key, (old, new) in changed.items():
            expected += [(key, old, 1, 5), (key, new, 5, None)]
        assert rows == sorted(expected, key=str)
    do(spark, f"DELETE FROM delta.`{feed}` WHERE k = 6")
    apply_changes(spark, feed, target, **asked)
    assert [row for row in held(spark, target) if row[0] == 6] == ([] if scd == 1 else [(6, "f", 1, 6)])
    unchanged = newest(target)
    apply_changes(spark, feed, target, mode="reload", **asked)
    (metrics,) = (
        spark.sql(f"DESCRIBE HISTORY delta.`{target}` LIMIT 1").select("operationMetrics").collect()[0]
    )
    assert newest(target) == unchanged + 1
    assert {metrics[name] for name in ("numTargetFilesAdded", "numTargetFilesRemoved")} == {"0"}


@pytest.mark.slow
def test_a_log_is_cut_again_for_keys_ranges_or_as_a_whole(spark: SparkSession, tmp_table: Table) -> None:
    log, target = tmp_table("log"), tmp_table("target")
    asked = {"pipeline": "p", "stored_as_scd_type": 2, **LOG}
    put(spark, log, *[(k, "a", k, "I", 10) for k in (1, 2, 3)])
    put(spark, log, *[(k, "b", k, "U", 20) for k in (1, 2, 3)], (3, None, None, "D", 30))
    apply_changes(spark, log, target, **asked)
    right = held(spark, target)

    def damage() -> None:
        do(
            spark,
            f"DELETE FROM delta.`{target}` WHERE k = 1 AND v = 'a'",
            f"UPDATE delta.`{target}` SET n = 99 WHERE k = 2",
            f"INSERT INTO delta.`{target}` VALUES (3, 'hand', 1, 40, NULL), (9, 'hand', 1, 1, NULL)",
        )

    def other(*keys: int) -> list[tuple[Any, ...]]:
        return [row for row in held(spark, target) if row[0] not in keys]

    damage()
    apply_changes(spark, log, target, mode="repair", repair={"keys": "k = 1"}, **asked)
    assert [row for row in held(spark, target) if row[0] == 1] == [row for row in right if row[0] == 1]
    assert [row for row in held(spark, target) if row[0] == 2] != [row for row in right if row[0] == 2]
    apply_changes(spark, log, target, mode="repair", starting_version=1, ending_version=1, **asked)
    assert other(9) == right
    apply_changes(spark, log, target, mode="reload", **asked)
    assert held(spark, target) == right


@pytest.mark.slow
def test_rows_behind_the_horizon_are_frozen_and_later_ones_cut_again(
    spark: SparkSession, tmp_table: Table
) -> None:
    log, target = tmp_table("log"), tmp_table("target")
    options = {"pipeline": "p", "stored_as_scd_type": 2, "track_history_column_list": ["v"], **LOG}
    tracked = "TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
    do(spark, f"CREATE TABLE delta.`{log}` ({EVENT}) USING delta {tracked}")
    first = [(k, "a", 1, "I", 10) for k in (1, 2, 3, 4)] + [(k, "b", 2, "U", 20) for k in (1, 2, 3, 4)]
    put(spark, log, *first, *[(k, "b", 3, "U", 40) for k in (1, 2, 3, 4)])
    apply_changes(spark, log, target, **options)
    # Expiry: the log keeps the last event before the horizon, and all from there on.
    do(spark, f"ALTER TABLE delta.`{log}` SET TBLPROPERTIES ('delta_cdc.latenessHorizon' = '30')")
    do(spark, f"DELETE FROM delta.`{log}` WHERE s < 20")
    put(
        spark, log, (1, "x", 9, "U", 35), (2, None, None, "D", 30), (3, "b", 7, "U", 50), (4, "c", 1, "U", 41)
    )
    apply_changes(spark, log, target, **options)
    expected = [
        # An event inside the run that spans the horizon: the run's start is the target's own, and its values
        # before the event are those of its last event before it.
        *[(1, "a", 1, 10, 20), (1, "b", 2, 20, 35), (1, "x", 9, 35, 40), (1, "b", 3, 40, None)],
        *[(2, "a", 1, 10, 20), (2, "b", 2, 20, 30), (2, "b", 3, 40, None)],
        *[(3, "a", 1, 10, 20), (3, "b", 7, 20, None)],
        *[(4, "a", 1, 10, 20), (4, "b", 3, 20, 41), (4, "c", 1, 41, None)],
    ]
    assert held(spark, target) == sorted(expected, key=str)

    put(spark, log, (1, "late", 0, "U", 25))
    with pytest.raises(TooLate, match=r"1 event.*k = 1"):
        apply_changes(spark, log, target, **options)
    assert held(spark, target) == sorted(expected, key=str)
    # The remedy: the range keeps the version that added the event, so the delete alone is not enough.
    do(spark, f"DELETE FROM delta.`{log}` WHERE v = 'late'")
    with pytest.raises(TooLate):
        apply_changes(spark, log, target, **options)
    apply_changes(spark, log, target, mode="reload", **options)
    assert held(spark, target) == sorted(expected, key=str)
    put(spark, log, (4, "d", 1, "U", 60))
    apply_changes(spark, log, target, **options)
    assert (4, "d", 1, 60, None) in held(spark, target)


@pytest.mark.slow
def test_what_is_late_for_good_is_discarded_and_left_out_ever_after(
    spark: SparkSession, tmp_table: Table
) -> None:
    log, target = tmp_table("log"), tmp_table("target")
    given = {"pipeline": "p", "stored_as_scd_type": 2, **LOG}
    tracked = "TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
    do(spark, f"CREATE TABLE delta.`{log}` ({EVENT}) USING delta {tracked}")
    put(spark, log, (1, "b", 2, "U", 20), (1, "x", 9, "U", 35), (1, "b", 3, "U", 40))
    apply_changes(spark, log, target, **given)
    do(spark, f"ALTER TABLE delta.`{log}` SET TBLPROPERTIES ('delta_cdc.latenessHorizon' = '30')")
    expected = [(1, "b", 2, 20, 35), (1, "x", 9, 35, 40), (1, "b", 3, 40, None)]
    put(spark, log, (1, "late", 0, "U", 25))
    with pytest.raises(TooLate, match=r"1 event.*k = 1"):
        apply_changes(spark, log, target, **given)
    assert held(spark, target) == sorted(expected, key=str)
    shown = apply_changes(spark, log, target, policies={"on_late": "discard"}, dry_run=True, **given)
    result = apply_changes(spark, log, target, policies={"on_late": "discard"}, **given)
    assert (shown.counts["discarded"], result.counts["discarded"]) == (1, 1)
    assert held(spark, target) == sorted(expected, key=str)
    # Cut again, the key is what it would be without the event that was discarded.
    put(spark, log, (1, "y", 9, "U", 36))
    apply_changes(spark, log, target, policies={"on_late": "discard"}, **given)
    mended = [(1, "x", 9, 35, 36), (1, "y", 9, 36, 40)]
    kept = [row for row in expected if row != (1, "x", 9, 35, 40)]
    assert held(spark, target) == sorted([*kept, *mended], key=str)


@pytest.mark.slow
def test_nothing_is_discarded_that_a_later_cut_could_not_leave_out(
    spark: SparkSession, tmp_table: Table
) -> None:
    log, target = tmp_table("log"), tmp_table("target")
    put(spark, log, (1, "a", 1, "I", 10))
    apply_changes(spark, log, target, pipeline="p", **LOG)
    do(spark, f"ALTER TABLE delta.`{log}` SET TBLPROPERTIES ('delta_cdc.latenessHorizon' = '30')")
    put(spark, log, (1, "late", 1, "I", 5))
    before = newest(target)
    with pytest.raises(InvalidConfiguration, match="enableRowTracking"):
        apply_changes(spark, log, target, pipeline="p", policies={"on_late": "discard"}, **LOG)
    assert newest(target) == before


@pytest.mark.slow
@pytest.mark.parametrize("partial", [False, True], ids=["type 2", "type 1, columns kept"])
def test_what_others_write_between_plan_and_commit_is_seen(
    spark: SparkSession, tmp_table: Table, partial: bool
) -> None:
    log, target = tmp_table("log"), tmp_table("target")
    asked: dict[str, Any] = {"pipeline": "p", **LOG}
    asked |= {"ignore_null_updates": True} if partial else {"stored_as_scd_type": 2}
    put(spark, log, (1, "a", 1, "I", 10), (2, "a", 1, "I", 10))
    apply_changes(spark, log, target, **asked)
    put(spark, log, (1, None, 5, "U", 20), (2, "b", 1, "U", 20))
    history = "" if partial else ", `__START_AT` = 15"

    def interfere(point: str) -> None:
        if point == "before_commit":
            do(spark, f"UPDATE delta.`{target}` SET v = 'by hand'{history} WHERE k = 1")

    remove = failpoints.install(interfere)
    try:
        apply_changes(spark, log, target, **asked)
    finally:
        remove()
    found = [row for row in held(spark, target) if row[0] == 1]
    if partial:
        assert found == [(1, "by hand", 5)]
    else:
        assert found == [(1, "by hand", 1, 15, 20), (1, None, 5, 20, None)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["incremental", "repair", "reload", "load"])
def test_a_dry_run_counts_and_writes_nothing(spark: SparkSession, tmp_table: Table, mode: str) -> None:
    log, target = tmp_table("log"), tmp_table("target")
    asked: dict[str, Any] = {"pipeline": "p", "stored_as_scd_type": 2, **LOG}
    put(spark, log, (1, "a", 1, "I", 10), (2, "a", 1, "I", 10))
    counts = {"inserted": 2}
    if mode != "load":
        apply_changes(spark, log, target, **asked)
        put(spark, log, (1, "b", 1, "U", 20), (2, None, None, "D", 20))
        counts = {"inserted": 1, "updated": 2, "deleted": 0}
    if mode == "repair":
        do(spark, f"DELETE FROM delta.`{target}` WHERE k = 1")
        asked |= {"repair": {"keys": "k = 1"}}
        counts = {"inserted": 1, "updated": 0, "deleted": 0}
    if mode in ("repair", "reload"):
        asked |= {"mode": mode}
    before = newest(target) if mode != "load" else None
    result = apply_changes(spark, log, target, dry_run=True, **asked)
    assert not result.applied
    assert {name: result.counts.get(name) for name in counts} == counts
    assert (newest(target) if mode != "load" else None) == before
    done = apply_changes(spark, log, target, **asked)
    assert {name: done.counts.get(name) for name in counts} == counts
