"""Rules of events that one small table shows, each by a case of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes
from delta_cdc.core.errors import ConfigurationDrift, InvalidEvent, KeyNotUnique, SequenceNotIncreasing
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    Table = Callable[[str], str]

EVENT = "k int, v string, op string, s long"
LOG: dict[str, Any] = {
    "pipeline": "p",
    "source_kind": "change_log",
    "keys": ["k"],
    "sequence_by": "s",
    "apply_as_deletes": "op = 'D'",
    "apply_as_truncates": "op = 'T'",
    "except_column_list": ["op", "s"],
}


def put(spark: SparkSession, table: str, *rows: tuple[Any, ...], schema: str = EVENT) -> None:
    """Append rows."""
    spark.createDataFrame(list(rows), schema).write.format("delta").mode("append").save(table)


def held(spark: SparkSession, table: str) -> list[tuple[Any, ...]]:
    """Return all rows, sorted."""
    return sorted(map(tuple, spark.read.format("delta").load(table).collect()), key=str)


@pytest.mark.slow
def test_a_truncate_acts_whatever_stands_in_its_key(spark: SparkSession, tmp_table: Table) -> None:
    log, target = tmp_table("log"), tmp_table("target")
    put(spark, log, (1, "a", "I", 10), (2, "b", "I", 10), (3, "c", "I", 10))
    apply_changes(spark, log, target, **LOG)
    # Its key is that of a late event, and of events that are tied.
    put(spark, log, (1, None, "T", 20), (1, "old", "I", 5), (1, "new", "I", 20), (1, "new", "I", 20))
    apply_changes(spark, log, target, **LOG)
    assert held(spark, target) == [(1, "new")]


@pytest.mark.slow
def test_equal_events_that_leave_out_the_same_column_are_not_tied(
    spark: SparkSession, tmp_table: Table
) -> None:
    log, target = tmp_table("log"), tmp_table("target")
    schema = "k int, v string, w string, op string, s long, cols array<string>"
    given = LOG | {"columns_to_update": "cols", "except_column_list": ["op", "s", "cols"]}
    all_columns, some = ["k", "v", "w"], ["k", "v"]
    put(spark, log, (1, "a", "w", "I", 10, all_columns), (2, "a", "w", "I", 10, all_columns), schema=schema)
    apply_changes(spark, log, target, **given)
    again, other = (1, "b", None, "U", 20, some), (2, "b", None, "U", 20, some)
    whole = (2, "b", "x", "U", 20, all_columns)
    put(spark, log, again, again, other, whole, schema=schema)
    assert apply_changes(spark, log, target, **given).counts["tied"] == 1, "that of key 2"
    assert held(spark, target) == [(1, "b", "w"), (2, "b", "x")]


@pytest.mark.slow
def test_a_tie_takes_out_what_was_applied_before(spark: SparkSession, tmp_table: Table) -> None:
    log, target = tmp_table("log"), tmp_table("target")
    asked = LOG | {"policies": {"on_conflict": "quarantine"}}
    put(spark, log, (1, "a", "I", 10), (2, "b", "I", 10))
    apply_changes(spark, log, target, **asked)
    put(spark, log, (1, "other", "I", 10))
    result = apply_changes(spark, log, target, **asked)
    assert held(spark, target) == [(2, "b")]
    assert {name: result.counts[name] for name in ("tied", "quarantined", "late")} == {
        "tied": 1,
        "quarantined": 2,
        "late": 1,
    }
    # What is mended is replayed; what is not stays in quarantine.
    put(spark, log, (1, "last", "D", 10), (2, "c", "I", None), (3, "d", "I", 30))
    asked |= {"policies": {"on_conflict": "quarantine", "on_invalid": "quarantine"}}
    apply_changes(spark, log, target, **asked)
    assert held(spark, target) == [(2, "b"), (3, "d")]
    side = spark.read.format("delta").load(f"{target}__quarantine")
    asked |= {"mode": "repair", "repair": {"quarantined": True}}
    apply_changes(spark, log, target, **asked)
    side = spark.read.format("delta").load(f"{target}__quarantine")
    assert [(row["reason"], row["keys"]) for row in side.collect()] == [("null_sequence", '{"k":"2"}')]


@pytest.mark.slow
def test_a_copy_without_rows_that_count_is_a_copy(spark: SparkSession, tmp_table: Table) -> None:
    copies, target = tmp_table("copies"), tmp_table("target")
    asked: dict[str, Any] = {
        "pipeline": "p",
        "source_kind": "snapshot",
        "snapshot_version_column": "day",
        "keys": ["k"],
        "where": "region = 'EU'",
        "select": ["k", "v", "day"],
        "except_column_list": ["day"],
        "stored_as_scd_type": 2,
    }
    schema = "k int, v string, region string, day int"
    put(spark, copies, (1, "a", "EU", 1), (2, "b", "US", 1), schema=schema)
    apply_changes(spark, copies, target, **asked)
    put(spark, copies, (2, "b", "US", 2), schema=schema)
    apply_changes(spark, copies, target, **asked)
    put(spark, copies, (1, "a", "EU", 3), schema=schema)
    apply_changes(spark, copies, target, **asked)
    assert held(spark, target) == [(1, "a", 1, 2), (1, "a", 3, None)]


@pytest.mark.slow
@pytest.mark.parametrize("case", slow_but(["in one range", "in closed history"], "in one range"))
def test_a_sequence_that_goes_back_is_refused_where_events_are_partial(
    spark: SparkSession, tmp_table: Table, case: str
) -> None:
    source, target = tmp_table("source"), tmp_table("target")
    asked: dict[str, Any] = {
        "pipeline": "p",
        "keys": ["k"],
        "stored_as_scd_type": 2,
        "sequence_by": "at",
        "delete_sequence": "at + 50",
        "ignore_null_updates": True,
    }
    feed = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    spark.sql(f"CREATE TABLE delta.`{source}` (k INT, v STRING, at INT) USING delta {feed}")
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (1, 'a', 3)")
    apply_changes(spark, source, target, **asked)
    if case == "in one range":
        spark.sql(f"UPDATE delta.`{source}` SET v = 'b', at = 9")
        spark.sql(f"UPDATE delta.`{source}` SET v = 'c', at = 4")
    else:
        spark.sql(f"DELETE FROM delta.`{source}`")
        apply_changes(spark, source, target, **asked)
        assert held(spark, target) == [(1, "a", 3, 3, 53)]
        spark.sql(f"INSERT INTO delta.`{source}` VALUES (1, 'b', 20)")
    before = held(spark, target)
    with pytest.raises(SequenceNotIncreasing, match="k = 1"):
        apply_changes(spark, source, target, **asked)
    assert held(spark, target) == before


@pytest.mark.slow
def test_a_column_that_comes_later_is_added(spark: SparkSession, tmp_table: Table) -> None:
    log, target = tmp_table("log"), tmp_table("target")
    asked = {**LOG, "apply_as_deletes": None, "apply_as_truncates": None, "except_column_list": ["s"]}
    put(spark, log, (1, (1,), 10), (2, (2,), 10), schema="k int, st struct<a int>, s long")
    apply_changes(spark, log, target, **asked)
    rows = [(1, (1, None), 20, None), (2, (2, 5), 20, "new"), (3, None, 20, None)]
    frame = spark.createDataFrame(rows, "k int, st struct<a int, b int>, s long, w string")
    frame.write.format("delta").mode("append").option("mergeSchema", "true").save(log)
    apply_changes(spark, log, target, **asked)
    assert held(spark, target) == [(1, (1, None), None), (2, (2, 5), "new"), (3, None, None)]


@pytest.mark.slow
def test_a_sequence_of_another_type_is_drift(spark: SparkSession, tmp_table: Table) -> None:
    log, target = tmp_table("log"), tmp_table("target")
    put(spark, log, (1, "a", "I", 100))
    apply_changes(spark, log, target, **LOG)
    put(spark, log, (1, "b", "I", 99))
    with pytest.raises(ConfigurationDrift, match=r"type bigint.*gives string"):
        apply_changes(spark, log, target, **LOG | {"sequence_by": "CAST(s AS STRING)"})
    assert held(spark, target) == [(1, "a")]


@pytest.mark.slow
def test_what_an_event_carries_may_not_land(spark: SparkSession, tmp_table: Table) -> None:
    log, target = tmp_table("log"), tmp_table("target")
    schema = "k int, v string, n int, note string, s long, cols array<string>"
    asked = {**LOG, "apply_as_deletes": None, "apply_as_truncates": None, "columns_to_update": "cols"}
    asked["except_column_list"] = ["note", "s"]
    put(spark, log, (1, "a", 1, "x", 10, None), (1, None, 2, "y", 20, ["n", "NOTE"]), schema=schema)
    apply_changes(spark, log, target, **asked)
    assert held(spark, target) == [(1, "a", 2)]
    put(spark, log, (1, None, 3, "y", 30, ["n", "nothing"]), schema=schema)
    with pytest.raises(InvalidEvent, match="k = 1"):
        apply_changes(spark, log, target, **asked)


#: How history is kept -> what of it there is after three copies.
KEPT: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {
    "type 2": (
        {"stored_as_scd_type": 2},
        [(1, "a", 1, 2), (1, "b", 2, None), (2, "x", 1, 3), (3, "n", 3, None), (4, "g", 1, 2)],
    ),
    "soft": ({"delete_mode": "soft"}, [(1, "b", False), (2, "x", True), (3, "n", False), (4, "g", True)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("kept", KEPT)
def test_history_before_the_oldest_copy_stands(spark: SparkSession, tmp_table: Table, kept: str) -> None:
    copies, target = tmp_table("copies"), tmp_table("target")
    asked: dict[str, Any] = {
        "pipeline": "p",
        "source_kind": "snapshot",
        "snapshot_version_column": "day",
        "keys": ["k"],
        "except_column_list": ["day"],
        **KEPT[kept][0],
    }
    for day, rows in enumerate(
        [[(1, "a"), (2, "x"), (4, "g")], [(1, "b"), (2, "x")], [(1, "b"), (3, "n")]], 1
    ):
        put(spark, copies, *[(*row, day) for row in rows], schema="k int, v string, day int")
        apply_changes(spark, copies, target, **asked)
    right = held(spark, target)
    assert right == KEPT[kept][1]
    spark.sql(f"DELETE FROM delta.`{copies}` WHERE day < 3")
    apply_changes(spark, copies, target, mode="reload", **asked)
    assert held(spark, target) == right


@pytest.mark.slow
def test_keys_that_two_rows_share_are_refused_where_events_are_partial(
    spark: SparkSession, tmp_table: Table
) -> None:
    source, target = tmp_table("source"), tmp_table("target")
    feed = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    spark.sql(f"CREATE TABLE delta.`{source}` (k INT, v STRING) USING delta {feed}")
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (1, 'a')")
    asked: dict[str, Any] = {"pipeline": "p", "keys": ["k"], "ignore_null_updates": True}
    apply_changes(spark, source, target, **asked)
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (1, 'second')")
    with pytest.raises(KeyNotUnique):
        apply_changes(spark, source, target, **asked)
    spark.sql(f"DELETE FROM delta.`{source}` WHERE v = 'second'")
    with pytest.raises(KeyNotUnique):
        apply_changes(spark, source, target, **asked)
    assert held(spark, target) == [(1, "a")]
