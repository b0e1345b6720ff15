"""CHAR and VARCHAR columns: values as Spark documents them, and targets of STRING columns.

Spark pads CHAR when it reads, so values that differ by spaces at the end are one value. VARCHAR is a STRING
with a limit. Delta has no MERGE into a table with CHAR columns (delta-io/delta#3868).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes
from delta_cdc.api.verify import verify_table
from delta_cdc.core.errors import DeltaCdcError, TargetSchemaClash
from delta_cdc.core.sql import table
from tests.support.engine import versions
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COLUMNS = (
    "k CHAR(3), v CHAR(4), w VARCHAR(4), s STRUCT<a: CHAR(3), b: INT>, l ARRAY<CHAR(2)>, "
    "m MAP<STRING, CHAR(2)>"
)
FEED = {"delta.enableChangeDataFeed": "true"}
ROW_IDS = {"delta.enableRowTracking": "true"}
NOTHING: dict[str, str] = {}
READ = {"feed": FEED, "row_ids": ROW_IDS, "comparison": NOTHING}
VALUES = {
    "a": "'a', 'x', 'y ', named_struct('a', 'p', 'b', 1), array('q', NULL), map('k', 'r')",
    "b": "'b ', NULL, 'y', named_struct('a', NULL, 'b', 2), array(), NULL",
    "c": "'c', 'long', '', NULL, NULL, map()",
    "d": "'d', 'x', 'y', named_struct('a', 'p', 'b', 1), array('q'), map('k', 'r')",
}


def padded(text: str | None, length: int) -> str | None:
    """Return a CHAR value as Spark reads it."""
    return None if text is None else text.ljust(length)


def row(k: str, v: str | None, w: str, s: Any, listed: Any, m: Any) -> tuple[Any, ...]:
    return (
        padded(k, 3),
        padded(v, 4),
        w,
        None if s is None else (padded(s[0], 3), s[1]),
        None if listed is None else [padded(text, 2) for text in listed],
        None if m is None else {key: padded(text, 2) for key, text in m.items()},
    )


A = row("a", "x", "y ", ("p", 1), ["q", None], {"k": "r"})
A_LATER = row("a", "z", "y ", ("p", 1), ["q", None], {"k": "r"})
B = row("b", None, "y", (None, 2), [], None)
C = row("c", "long", "", None, None, {})
C_LATER = row("c", "long", "", ("o", 0), None, {})
D = row("d", "x", "y", ("p", 1), ["q"], {"k": "r"})


def made(spark: SparkSession, path: Path, properties: dict[str, str], columns: str = COLUMNS) -> str:
    given = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    clause = f" TBLPROPERTIES ({given})" if given else ""
    spark.sql(f"CREATE TABLE {table(str(path))} ({columns}) USING delta{clause}")
    return str(path)


def insert(spark: SparkSession, source: str, *names: str, more: str = "") -> None:
    for name in names:
        spark.sql(f"INSERT INTO {table(source)} VALUES ({VALUES[name]}{more})")


def stored(spark: SparkSession, target: str, where: str = "true") -> list[tuple[Any, ...]]:
    rows = spark.read.format("delta").load(target).where(where).select("k", "v", "w", "s", "l", "m")
    found = [(r.k, r.v, r.w, None if r.s is None else tuple(r.s), r.l, r.m) for r in rows.collect()]
    return sorted(found, key=repr)


def expected(*rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def is_settled(spark: SparkSession, target: str, given: dict[str, Any]) -> bool:
    """Return whether a further run writes nothing, the columns are plain, and a verification agrees."""
    before = versions(target)
    again = apply_changes(spark, given.pop("source"), target, **given)
    schema = spark.read.format("delta").load(target).schema
    plain = not any(field.metadata for field in schema.fields)
    findings = verify_table(spark, target, pipeline=given["pipeline"]).findings
    return not again.applied and versions(target) == before and plain and findings == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "scd_type"),
    # Without a feed and row ids, two copies are compared, which gives no history.
    slow_but([("feed", 1), ("feed", 2), ("row_ids", 1), ("row_ids", 2), ("comparison", 1)], ("feed", 1)),
)
def test_rows_of_a_table(spark: SparkSession, tmp_path: Path, read: str, scd_type: int) -> None:
    source, target = made(spark, tmp_path / "source", READ[read]), str(tmp_path / "target")
    given: dict[str, Any] = {"pipeline": "p", "keys": ["k"], "stored_as_scd_type": scd_type}
    open_rows = "__END_AT IS NULL" if scd_type == 2 else "true"
    insert(spark, source, "a", "b", "c")
    assert apply_changes(spark, source, target, **given).applied
    assert stored(spark, target) == expected(A, B, C)

    spark.sql(f"UPDATE {table(source)} SET v = 'z' WHERE rtrim(k) = 'a'")
    spark.sql(f"UPDATE {table(source)} SET s = named_struct('a', 'o', 'b', 0) WHERE rtrim(k) = 'c'")
    spark.sql(f"DELETE FROM {table(source)} WHERE rtrim(k) = 'b'")
    insert(spark, source, "d")
    assert apply_changes(spark, source, target, **given).applied
    assert stored(spark, target, open_rows) == expected(A_LATER, C_LATER, D)
    assert scd_type == 1 or stored(spark, target, "__END_AT IS NOT NULL") == expected(A, B, C)

    # The same values, with other spaces at their end.
    spark.sql(f"UPDATE {table(source)} SET k = 'a  ', v = 'z ' WHERE rtrim(k) = 'a'")
    apply_changes(spark, source, target, **given)
    assert stored(spark, target, open_rows) == expected(A_LATER, C_LATER, D)
    assert scd_type == 1 or stored(spark, target, "__END_AT IS NOT NULL") == expected(A, B, C)
    assert is_settled(spark, target, {"source": source, **given})


@pytest.mark.slow
@pytest.mark.parametrize("scd_type", [1, 2])
def test_events(spark: SparkSession, tmp_path: Path, scd_type: int) -> None:
    source, target = made(spark, tmp_path / "log", FEED, f"{COLUMNS}, n INT"), str(tmp_path / "target")
    given: dict[str, Any] = {"pipeline": "p", "keys": ["k"], "stored_as_scd_type": scd_type}
    given |= {"source_kind": "change_log", "sequence_by": "n", "except_column_list": ["n"]}
    given |= {"apply_as_deletes": "v = 'gone'"}
    insert(spark, source, "a", "b", more=", 1")
    assert apply_changes(spark, source, target, **given).applied
    for number, values in enumerate(("'a ', 'z'", "'b', 'gone'", "'a', 'z '"), 2):
        rest = VALUES["a"].split(", ", 2)[2]
        spark.sql(f"INSERT INTO {table(source)} VALUES ({values}, {rest}, {number})")
    assert apply_changes(spark, source, target, **given).applied
    assert stored(spark, target, "__END_AT IS NULL" if scd_type == 2 else "true") == expected(A_LATER)
    assert scd_type == 1 or stored(spark, target, "__END_AT IS NOT NULL") == expected(A, B)
    assert is_settled(spark, target, {"source": source, **given})


@pytest.mark.slow
@pytest.mark.parametrize("scd_type", [1, 2])
def test_full_copies(spark: SparkSession, tmp_path: Path, scd_type: int) -> None:
    source, target = made(spark, tmp_path / "copies", NOTHING), str(tmp_path / "target")
    given: dict[str, Any] = {"pipeline": "p", "keys": ["k"], "stored_as_scd_type": scd_type}
    given |= {"source_kind": "snapshot"}
    spark.sql(f"INSERT OVERWRITE {table(source)} VALUES ({VALUES['a']}), ({VALUES['b']})")
    assert apply_changes(spark, source, target, **given).applied
    spark.sql(f"INSERT OVERWRITE {table(source)} VALUES ({VALUES['b']}), ({VALUES['d']})")
    assert apply_changes(spark, source, target, **given).applied
    assert stored(spark, target, "__END_AT IS NULL" if scd_type == 2 else "true") == expected(B, D)
    assert is_settled(spark, target, {"source": source, **given})


@pytest.mark.parametrize("scd_type", slow_but([1, 2], 1))
def test_columns_with_a_collation(spark: SparkSession, tmp_path: Path, scd_type: int) -> None:
    """Delta 4.4 reads and cannot write them, so Databricks' table is the commit that it would write."""
    source, target = (
        made(spark, tmp_path / "source", FEED, "`k.k` STRING COMMENT 'c', v STRING"),
        str(tmp_path / "t"),
    )
    first = tmp_path / "source" / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            for field in schema["fields"]:
                field["metadata"]["__COLLATIONS"] = {field["name"]: "spark.UTF8_LCASE"}
            action["metaData"]["schemaString"] = json.dumps(schema)
        if "protocol" in action:
            features = ["appendOnly", "invariants", "changeDataFeed", "collations-preview"]
            action["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    plain = first.read_text()
    spark.sql(f"INSERT INTO {table(source)} VALUES ('Abc', 'x'), ('other', 'y')")
    spark.sql(f"UPDATE {table(source)} SET v = 'X' WHERE v = 'x'")
    spark.sql(f"INSERT INTO {table(source)} VALUES ('abc', 'z')")
    first.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    for crc in first.parent.glob("*.crc"):
        crc.unlink()
    assert plain != first.read_text()
    given: dict[str, Any] = {"pipeline": "p", "keys": ["k.k"], "stored_as_scd_type": scd_type}
    apply_changes(spark, source, target, ending_version=1, **given)
    apply_changes(spark, source, target, **given)
    found = spark.read.format("delta").load(target)
    assert [(field.dataType.simpleString(), field.metadata) for field in found.schema.fields[:2]] == [
        ("string", {"comment": "c"}),
        ("string", {}),
    ]
    open_rows = found.where("__END_AT IS NULL" if scd_type == 2 else "true").select("`k.k`", "v").collect()
    assert sorted(map(tuple, open_rows)) == [("Abc", "X"), ("abc", "z"), ("other", "y")]


@pytest.mark.slow
def test_a_target_with_char_columns_made_by_hand(spark: SparkSession, tmp_path: Path) -> None:
    source = made(spark, tmp_path / "source", FEED, "k CHAR(3), v CHAR(4)")
    target = made(spark, tmp_path / "target", NOTHING, "k VARCHAR(3), v CHAR(4)")
    spark.sql(f"INSERT INTO {table(source)} VALUES ('a', 'x')")
    with pytest.raises(TargetSchemaClash, match=r"type CHAR.*v char\(4\)") as refused:
        apply_changes(spark, source, target, pipeline="p", keys=["k"])
    assert versions(target) == [0]
    spark.sql(refused.value.remedy.split(": ")[1].split(";")[0])
    assert apply_changes(spark, source, target, pipeline="p", keys=["k"]).applied
    spark.sql(f"UPDATE {table(source)} SET v = 'y' WHERE rtrim(k) = 'a'")
    assert apply_changes(spark, source, target, pipeline="p", keys=["k"]).applied
    assert spark.read.format("delta").load(target).collect() == [("a  ", "y   ")]


@pytest.mark.slow
def test_char_inside_of_a_column_of_a_target_made_by_hand(spark: SparkSession, tmp_path: Path) -> None:
    source = made(spark, tmp_path / "source", FEED, "k INT, s STRUCT<a: STRING>")
    target = made(spark, tmp_path / "target", NOTHING, "k INT, s STRUCT<a: CHAR(3)>")
    spark.sql(f"INSERT INTO {table(source)} VALUES (1, named_struct('a', 'x'))")
    with pytest.raises(TargetSchemaClash, match=r"s struct<a:char\(3\)>"):
        apply_changes(spark, source, target, pipeline="p", keys=["k"])
    assert versions(target) == [0]


@pytest.mark.slow
def test_a_value_too_long_for_a_target_made_by_hand(spark: SparkSession, tmp_path: Path) -> None:
    source = made(spark, tmp_path / "source", FEED, "k INT, w STRING")
    target = made(spark, tmp_path / "target", NOTHING, "k INT, w VARCHAR(4)")
    spark.sql(f"INSERT INTO {table(source)} VALUES (1, 'four')")
    assert apply_changes(spark, source, target, pipeline="p", keys=["k"]).applied
    spark.sql(f"UPDATE {table(source)} SET w = 'five5' WHERE k = 1")
    before = versions(target)
    with pytest.raises(DeltaCdcError, match=r"(?i)length|varchar") as refused:
        apply_changes(spark, source, target, pipeline="p", keys=["k"])
    assert type(refused.value).__name__ not in ("JobFailed", "JobRefused")
    assert versions(target) == before
