"""Files that AWS DMS writes to S3: CSV and Parquet, full loads and changes."""

from __future__ import annotations

from typing import Any

from tests.support.change_sets import adapted, by_row, json_records, table_records

LOAD, LATER_LOAD = "s3a://b/db/t/LOAD00000001.csv", "s3a://b/db/t/LOAD0000000A.csv"
CHANGES, LATER = "s3a://b/db/t/20240131-120000123.csv", "s3a://b/db/t/2024/02/20240201-000000001.csv.gz"
CSV = "Op string, id string, v string, at string"
SCHEMA = "Op string, id int, v string, at timestamp"
T1, T2 = "2024-01-31 11:59:59.000001", "2024-01-31 11:59:59.000002"


def test_golden_csv() -> None:
    """Changes of one commit have one timestamp, and are in the order of their rows."""
    cases: list[tuple[tuple[Any, ...], str, Any]] = [
        ((None, "1", "loaded", "2030-01-01 00:00:00"), LOAD, "upsert"),
        (("I", "2", "loaded", "2030-01-01 00:00:00"), LATER_LOAD, "upsert"),
        (("I", "3", "a", T1), CHANGES, "upsert"),
        (("U", "3", "b", T1), CHANGES, "upsert"),
        (("D", "3", None, T1), CHANGES, "delete"),
        (("I", "3", "c", T2), CHANGES, "upsert"),
        (("U", "3", "d", T2), LATER, "upsert"),
        ((None, "3", "e", T2), LATER, "no value for Op, and no file of a full load"),
        (("X", "3", "e", T2), LATER, "unknown operation 'X'"),
        (("U", "3", "e", "no time"), LATER, "column at is no timestamp"),
        (("U", "3", "e", None), LATER, "no value for at, or no file to order by"),
        (("U", "x", "e", T2), LATER, "column id is no int"),
        (("D", "x", "e", T2), LATER, "column id is no int"),
    ]
    records = table_records(CSV, [row for row, _, _ in cases], files=[file for _, file, _ in cases])
    options = {"timestamp_column": "at"}
    events = adapted(records, "dms", options, schema=SCHEMA, format="csv")
    assert events.type == "struct<id:int,v:string,at:timestamp>"
    found = by_row(events)
    assert [found[at][0].error or found[at][0].op for at in range(len(cases))] == [told for *_, told in cases]
    ordered = [found[at][0].sequence for at in range(7)]
    assert ordered == sorted(ordered)
    assert len(set(ordered)) == 7
    assert len({len(text) for text in ordered}) == 1
    assert found[2][0].timestamp == "2024-01-31 11:59:59.000001"
    assert found[2][0].columns == ("at", "id", "v")


def test_without_a_timestamp_the_files_name_is_the_order() -> None:
    rows = [("U", "1", "c", None), ("U", "1", "b", None), ("U", "1", "a", None)]
    records = table_records(CSV, rows, files=[LATER, CHANGES, LOAD])
    found = by_row(adapted(records, "dms", {}, schema=SCHEMA, format="csv"))
    assert sorted(range(3), key=lambda at: found[at][0].sequence) == [2, 1, 0]


def test_a_change_sequence_goes_before_all() -> None:
    """The header AR_H_CHANGE_SEQ as a column: a time and a counter, 35 digits."""
    first, second = "20240131120000120000000000000000009", "20240131120000120000000000000000010"
    rows = [("U", 1, "b", second), ("U", 1, "a", first), (None, 1, "z", None), ("U", 1, "x", "n/a")]
    records = table_records(
        "Op string, id int, v string, seq string", rows, files=[CHANGES, LATER, LOAD, CHANGES]
    )
    found = by_row(adapted(records, "dms", {"change_sequence": "seq"}, format="parquet"))
    assert sorted(range(3), key=lambda at: found[at][0].sequence) == [2, 1, 0]
    assert found[3][0].error == "no value for seq, or no whole number in it"
    assert found[0][0].row == {"id": 1, "v": "b"}


def test_parquet_files_of_a_full_load_have_no_op() -> None:
    rows = [(None, 1, "a"), ("U", 1, "b")]
    present = [("id", "v"), ("Op", "id", "v")]
    records = table_records("Op string, id int, v string", rows, files=[LOAD, CHANGES], present=present)
    found = by_row(adapted(records, "dms", {}, format="parquet"))
    assert [found[at][0].op for at in range(2)] == ["upsert", "upsert"]
    assert found[0][0].sequence < found[1][0].sequence
    alone = table_records("id int, v string", [(1, "a")], files=[LOAD])
    assert by_row(adapted(alone, "dms", {}, format="parquet"))[0][0].columns == ("id", "v")


def test_json() -> None:
    lines = ['{"Op":"I","id":1,"v":"a"}', '{"Op":"D","id":1}', '{"id":1}', '{"Op":"I","id":']
    found = by_row(adapted(json_records(lines, file=CHANGES), "dms", {}))
    assert [found[at][0].op for at in range(4)] == ["upsert", "delete", None, None]
    assert found[2][0].error == "no value for Op, and no file of a full load"
    assert found[3][0].error.startswith("not JSON: ")
    assert found[0][0].columns == ("id", "v")
