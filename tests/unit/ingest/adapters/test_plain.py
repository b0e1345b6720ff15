"""Rows with a column that says what happened: flat JSON, CSV and Parquet."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from delta_cdc.core.errors import ColumnNotFound, InvalidExpression, ReservedColumnName
from tests.support.change_sets import Event, adapted, by_row, json_records, table_records

LONG = "ü" * 100_000

#: The reasons say more behind the colon.
NOT_JSON = [Event(error="not JSON")]
NOT_STRICT = [Event(error="not strict JSON")]
HALF = [Event(error="a text has only half of a surrogate pair (\\ud800 to \\udfff)")]
#: Case, record, and the events it is; keys ``id``, order ``ts``, operation ``op``.
GOLDEN: list[tuple[str, str | None, list[Event]]] = [
    (
        "insert with every kind of value",
        (
            '{"op":"I","ts":1,"id":1,"name":"ünï\\u00e7","price":"-12345678901234567890123456789012345678",'
            '"day":"0001-01-01","at":"1969-12-31T23:59:59.999999Z","ok":true,"raw":"AP8=",'
            '"tags":["a",null],"box":{"w":1,"in":{"d":"2024-02-29"}},"m":{"k":1.5}}'
        ),
        [
            Event(
                "upsert",
                {
                    "id": 1,
                    "name": "ünïç",
                    "price": Decimal("-12345678901234567890123456789012345678"),
                    "day": "0001-01-01",
                    "at": "1969-12-31 23:59:59.999999",
                    "ok": True,
                    "raw": b"\x00\xff",
                    "tags": ["a", None],
                    "box": {"w": 1, "in": {"d": "2024-02-29"}},
                    "m": {"k": Decimal("1.5")},
                },
                1,
                ("at", "box", "day", "id", "m", "name", "ok", "price", "raw", "tags"),
            )
        ],
    ),
    (
        "missing is not null",
        '{"op":"U","ts":2,"id":1,"name":null}',
        [Event("upsert", {"id": 1}, 2, ("id", "name"))],
    ),
    (
        "texts as values",
        '{"op":"update","ts":"3","id":"7","ok":"t"}',
        [Event("upsert", {"id": 7, "ok": True}, 3, ("id", "ok"))],
    ),
    (
        "long numbers inside of a text",
        '{"op":"I","ts":3,"id":7,"name":{"a":1.1234567890123456789,"b":[12345678.5,"x"],"c":"1.123456789"}}',
        [
            Event(
                "upsert",
                {"id": 7, "name": '{"a":1.1234567890123456789,"b":[12345678.5,"x"],"c":"1.123456789"}'},
                3,
                ("id", "name"),
            )
        ],
    ),
    (
        "an escaped backslash before what looks like half a character",
        '{"op":"I","ts":3,"id":7,"name":"\\\\ud800"}',
        [Event("upsert", {"id": 7, "name": "\\ud800"}, 3, ("id", "name"))],
    ),
    (
        "a text that looks like it",
        '{"op":"I","ts":3,"id":7,"name":"[1.1234567890123456789 ","ok":true}',
        [Event("upsert", {"id": 7, "name": "[1.1234567890123456789 ", "ok": True}, 3, ("id", "name", "ok"))],
    ),
    ("delete with its key alone", '{"op":"D","ts":4,"id":1}', [Event("delete", {"id": 1}, 4)]),
    (
        "a delete, whatever does not fit",
        '{"op":"d","ts":4,"id":1,"day":"x"}',
        [Event("delete", {"id": 1}, 4)],
    ),
    ("truncate, said by the user", '{"op":"TR","ts":5}', [Event("truncate", {}, 5)]),
    ("old image, left out", '{"op":"UO","ts":6,"id":"no number"}', [Event("ignore")]),
    ("unknown operation", '{"op":"X","ts":7,"id":1}', [Event(error="unknown operation 'X'")]),
    ("no operation", '{"ts":7,"id":1}', [Event(error="unknown operation ''")]),
    ("cut in half", '{"op":"I","ts":8,"id":1,"na', NOT_JSON),
    ("two on a line", '{"op":"I","ts":8,"id":1}{"op":"I","ts":9,"id":2}', NOT_JSON),
    ("members of nothing", '{"op":"I","ts":8,"id":1},"x":{"op":"I","ts":9,"id":2}', NOT_JSON),
    ("two with a comma", '{"op":"I","ts":8,"id":1} , {"op":"I","ts":9,"id":2}', NOT_JSON),
    ("no object", "[1]", NOT_JSON),
    ("single quotes", "{'op':'I'}", NOT_STRICT),
    ("closed twice", '{"op":"I","ts":8,"id":1}}', NOT_JSON),
    ("two behind a brace", '{"op":"I","ts":8,"id":1}}{"op":"I","ts":9,"id":2}', NOT_JSON),
    ("a word behind a brace", '{"op":"I","ts":8,"id":1}} garbage', NOT_JSON),
    ("a number behind a brace", '{"op":"I","ts":8,"id":1}}, 7', NOT_JSON),
    ("closed by a bracket", '{"op":"I","ts":8,"id":1}]', NOT_JSON),
    ("a number that is none", '{"op":"I","ts":8,"id":1,"w":01.123456789}', NOT_JSON),
    ("a name twice", '{"op":"I","ts":8,"id":1,"id":2}', NOT_STRICT),
    ("a name twice inside", '{"op":"I","ts":8,"id":1,"name":{"a":1,"a":2}}', NOT_STRICT),
    ("half a character", '{"op":"I","ts":8,"id":1,"name":"\\ud83d"}', HALF),
    ("the other half", '{"op":"I","ts":8,"id":1,"name":"\\uDE00\\ud83d"}', HALF),
    ("half of a name", '{"op":"I","ts":8,"id":1,"\\ud83d":1}', HALF),
    ("halves apart", '{"op":"I","ts":8,"id":1,"name":"\\ud83d\\\\\\ude00"}', HALF),
    (
        "another case",
        '{"op":"I","ts":8,"ID":1}',
        [Event(error="a column of another case than in the log: ID")],
    ),
    ("a key that does not fit", '{"op":"D","ts":8,"id":"x"}', [Event(error="column id is no bigint")]),
    (
        "a value that does not fit",
        '{"op":"I","ts":8,"id":1,"price":0.5}',
        [Event(error="column price is no decimal(38,0)")],
    ),
    (
        "a value inside that does not fit",
        '{"op":"I","ts":8,"id":1,"box":{"w":1,"in":{"d":"2023-02-29"}}}',
        [Event(error="column box is no struct<w:int,in:struct<d:date>>")],
    ),
    ("a null key", '{"op":"I","ts":8,"id":null}', [Event(error="null key: id")]),
    (
        "no sequence",
        '{"op":"I","id":1}',
        [Event(error="no value for sequence_by, or a text that is no number (ts)")],
    ),
    ("an empty line", "  ", [Event("ignore")]),
    ("a tombstone", None, [Event("ignore")]),
    (
        "very long",
        json.dumps({"op": "I", "ts": 9, "id": 2, "name": LONG}),
        [Event("upsert", {"id": 2, "name": LONG}, 9, ("id", "name"))],
    ),
    (
        "columns nobody declared do not land",
        '{"op":"I","ts":9,"id":3,"new":1}',
        [Event("upsert", {"id": 3}, 9, ("id",))],
    ),
]
SCHEMA = (
    "id bigint, name string, price decimal(38,0), day date, at timestamp, ok boolean, raw binary, "
    "tags array<string>, box struct<w:int,in:struct<d:date>>, m map<string,decimal(3,1)>, ts bigint"
)
OPTIONS = {
    "operation_column": "op",
    "operations": {"UO": "ignore", "TR": "truncate"},
    "sequence_by": "ts",
    "except_column_list": ["ts"],
}


def told(event: Event) -> Event:
    """Return an event without the values that are NULL, and times as texts."""
    from dataclasses import replace
    from datetime import date, datetime

    def shown(value: object) -> object:
        if isinstance(value, dict):
            return {name: shown(one) for name, one in value.items()}
        if isinstance(value, bytearray):
            return bytes(value)
        if isinstance(value, datetime):
            return value.isoformat(sep=" ")
        return value.isoformat() if isinstance(value, date) else value

    error = event.error
    if error is not None and error.startswith(("not JSON:", "not strict JSON:")):
        error = error.partition(":")[0]
    row = {name: shown(value) for name, value in event.row.items() if value is not None}
    return replace(event, row=row, error=error)


def test_golden_records() -> None:
    records = json_records([line for _, line, _ in GOLDEN])
    found = by_row(adapted(records, "plain", OPTIONS, schema=SCHEMA))
    wrong = {
        case: [told(event) for event in found[at]]
        for at, (case, _, wanted) in enumerate(GOLDEN)
        if [told(event) for event in found[at]] != wanted
    }
    assert wrong == {}


def test_the_articles_flag_column() -> None:
    """FLAG, ID, VALUE, CDC_TIMESTAMP; Oracle's old images (UO) are left out."""
    rows = [
        ("I", 1, "a", "2024-01-01 10:00:00"),
        ("UO", 1, "a", "2024-01-01 10:05:00"),
        ("UN", 1, "b", "2024-01-01 10:05:00"),
        ("D", 1, "b", "2024-01-01 10:09:00"),
    ]
    records = table_records("FLAG string, ID string, VALUE string, CDC_TIMESTAMP string", [
        tuple(map(str, row)) for row in rows
    ])  # fmt: skip
    options = {
        "operation_column": "FLAG",
        "operations": {"UO": "ignore", "UN": "upsert"},
        "sequence_by": "CDC_TIMESTAMP",
        "source_timestamp": "CDC_TIMESTAMP",
    }
    schema = "FLAG string, ID int, VALUE string, CDC_TIMESTAMP timestamp"
    events = adapted(records, "plain", options, keys=["ID"], schema=schema, format="csv")
    assert events.type == ("struct<ID:int,VALUE:string,CDC_TIMESTAMP:timestamp>")
    found = by_row(events)
    assert [found[at][0].op for at in range(4)] == ["upsert", "ignore", "upsert", "delete"]
    assert found[2][0].row["VALUE"] == "b"
    assert found[2][0].timestamp == "2024-01-01 10:05:00"
    assert found[0][0].sequence < found[2][0].sequence < found[3][0].sequence


def test_types_that_nobody_declared() -> None:
    """Whole numbers, fractions by their digits, texts, objects; the log's types stay, and may be added to."""
    lines = [
        '{"id":1,"ts":1,"small":1.5,"exact":12345678901234567.89,"big":12345678901234567890,"flag":true}',
        '{"id":2,"ts":2,"small":null,"mixed":1,"list":[1,2],"obj":{"a":{"b":"x"}},"never":null,"none":[]}',
        '{"id":3,"ts":3,"mixed":"text","small":0.25,"known":"5"}',
    ]
    events = adapted(json_records(lines), "plain", {"sequence_by": "ts"}, known="id int, known int")
    types = events.types
    assert types == {
        "id": "int",
        "known": "int",
        "ts": "bigint",
        "small": "double",
        "exact": "decimal(38,18)",
        "big": "decimal(38,0)",
        "flag": "boolean",
        "mixed": "string",
        "list": "array<bigint>",
        "obj": "struct<a:struct<b:string>>",
    }
    found = by_row(events)
    assert found[0][0].row["exact"] == Decimal("12345678901234567.89")
    assert found[0][0].row["big"] == Decimal("12345678901234567890")
    # What is NULL throughout has no type, and is carried all the same.
    assert found[1][0].columns == ("id", "list", "mixed", "never", "none", "obj", "small", "ts")
    assert found[2][0].row["known"] == 5


def test_a_known_double_takes_no_more_digits_than_it_holds() -> None:
    lines = ['{"id":1,"ts":1,"v":12345678901234567.89}', '{"id":1,"ts":2,"v":0.1}']
    found = by_row(adapted(json_records(lines), "plain", {"sequence_by": "ts"}, known="id int, v double"))
    assert found[0][0].error == "column v is no double"
    assert found[1][0].row["v"] == 0.1


def test_columns_of_a_file_and_no_others_are_carried() -> None:
    """Parquet files of several ages: NULL of a column that the file does not have is no value."""
    records = table_records("id int, v string, w double, seq bigint", [(1, None, None, 1), (2, None, 0.5, 2)],
        present=[("id", "v", "seq"), None],
    )  # fmt: skip
    events = adapted(records, "plain", {"sequence_by": "seq"}, known="id bigint, v string", format="parquet")
    found = by_row(events)
    assert found[0][0].columns == ("id", "seq", "v")
    assert found[1][0].columns == ("id", "seq", "v", "w")
    assert events.types["id"] == "bigint"


def test_order_of_several_parts_and_in_the_file() -> None:
    lines = ['{"id":1,"ts":9}', '{"id":1,"ts":10}', '{"id":1,"ts":10}', '{"id":1,"ts":-1}']
    records = json_records(lines)
    found = by_row(adapted(records, "plain", {"sequence_by": ["ts", "_row"]}, schema="id int, ts bigint"))
    ordered = sorted(range(4), key=lambda at: found[at][0].sequence)
    assert ordered == [3, 0, 1, 2]
    with pytest.raises(InvalidExpression, match="lpad"):
        adapted(records, "plain", {"sequence_by": ["ts", "name"]}, schema="id int, ts int, name string")


def test_numbers_that_are_texts_are_in_the_order_of_numbers() -> None:
    """Nobody declared ``lsn``: "1000" is above "999", and what is no number is no order."""
    lines = ['{"id":1,"lsn":"999"}', '{"id":1,"lsn":"1000"}', '{"id":1,"lsn":"x"}']
    for schema in ("id int", None):
        found = by_row(adapted(json_records(lines), "plain", {"sequence_by": "lsn"}, schema=schema))
        assert found[0][0].sequence < found[1][0].sequence
        assert found[2][0].error == "no value for sequence_by, or a text that is no number (lsn)"
    records = json_records(['{"id":1,"lsn":1001}'])
    options = {"sequence_by": "lsn", "except_column_list": "lsn"}
    (later,) = by_row(adapted(records, "plain", options, known="id bigint", sequence_type="string"))[0]
    assert later.sequence == f"{1001:020d}"


def test_a_changed_key_is_a_delete_and_then_an_upsert() -> None:
    options = {"sequence_by": "ts", "operation_column": "op", "old_keys": {"id": "old_id"}}
    lines = [
        '{"op":"U","ts":5,"id":2,"old_id":1,"v":"a"}',
        '{"op":"U","ts":6,"id":2,"old_id":2,"v":"b"}',
        '{"op":"I","ts":7,"id":3,"v":"c"}',
        '{"op":"D","ts":8,"id":3,"old_id":1}',
    ]
    found = by_row(adapted(json_records(lines), "plain", options, schema="id int, v string, ts bigint"))
    old, new = found[0]
    assert (old.op, old.row["id"], new.op, new.row["id"]) == ("delete", 1, "upsert", 2)
    assert old.sequence < new.sequence < found[1][0].sequence
    assert [len(found[at]) for at in (1, 2, 3)] == [1, 1, 1]
    assert (found[3][0].op, found[3][0].row["id"]) == ("delete", 3)
    assert new.columns == ("id", "ts", "v")
    spelt = {**options, "old_keys": {"ID": "old_id"}}
    found = by_row(adapted(json_records(lines), "plain", spelt, keys=["ID"], schema="id int, ts bigint"))
    assert [event.row["id"] for event in found[0]] == [1, 2]


def test_a_list_of_columns_in_the_record() -> None:
    options = {"sequence_by": "ts", "columns_to_update": "changed"}
    lines = [
        '{"ts":1,"id":1,"v":1,"w":2,"changed":"V, id"}',
        '{"ts":2,"id":1,"v":1,"w":2,"changed":["w"]}',
        '{"ts":3,"id":1,"v":1,"w":2,"changed":null}',
        '{"ts":4,"id":1,"changed":["nothing"]}',
        '{"ts":5,"id":1,"v":1,"w":2,"changed":"[\\"w\\"]]"}',
        '{"ts":6,"id":1,"v":1,"w":2,"changed":"[\\"w\\""}',
        '{"ts":7,"id":1,"v":1,"w":2,"changed":["w",null]}',
    ]
    found = by_row(adapted(json_records(lines), "plain", options, schema="id int, v int, w int, ts int"))
    assert [found[at][0].columns for at in range(3)] == [("id", "v"), ("w",), ("id", "ts", "v", "w")]
    assert [(found[at][0].error or "").split(": ")[1:] for at in range(3, 7)] == [
        ["nothing"],
        ['["w"]]'],
        ['["w"'],
        ["null"],
    ]
    rows = [(1, 1, ["v"], 1), (1, 1, None, 2)]
    records = table_records("id int, v int, changed array<string>, ts int", rows)
    found = by_row(adapted(records, "plain", options, format="parquet"))
    assert [found[at][0].columns for at in range(2)] == [("v",), ("id", "ts", "v")]


def test_names_that_cannot_be() -> None:
    records = json_records(['{"id":1,"ts":1,"_op":"x"}'])
    with pytest.raises(ReservedColumnName, match="except_column_list"):
        adapted(records, "plain", {"sequence_by": "ts"})
    found = by_row(adapted(records, "plain", {"sequence_by": "ts", "except_column_list": "_op"}))
    assert found[0][0].row == {"id": 1, "ts": 1}
    with pytest.raises(ColumnNotFound, match="'key'"):
        adapted(records, "plain", {"sequence_by": "ts", "except_column_list": "_op"}, keys=["key"])
    nothing = by_row(adapted(json_records(["{", ""]), "plain", {"sequence_by": "ts"}))
    assert nothing[0][0].error.startswith("not JSON: ")
    assert nothing[1][0].op == "ignore"


def test_odd_names() -> None:
    line = json.dumps({"id": 1, "ts": 1, "a b": 1, "d.o.t": 2, "ba`ck": 3, 'quo"te': 4, "Ünï": 5})
    found = by_row(adapted(json_records([line]), "plain", {"sequence_by": "ts"}))
    assert found[0][0].row == {"id": 1, "ts": 1, "a b": 1, "d.o.t": 2, "ba`ck": 3, 'quo"te': 4, "Ünï": 5}


def test_columns_left_out_in_another_spelling_are_not_carried() -> None:
    lines = ['{"id":1,"ts":1,"v":2,"secret":3}', '{"id":1,"ts":2,"secret":4}']
    options = {"sequence_by": "ts", "except_column_list": "SECRET"}
    found = by_row(adapted(json_records(lines), "plain", options))
    assert [found[at][0].columns for at in range(2)] == [("id", "ts", "v"), ("id", "ts")]
    assert [set(found[at][0].row) for at in range(2)] == [{"id", "ts", "v"}, {"id", "ts", "v"}]


def test_the_logs_type_of_the_sequence_stays() -> None:
    lines = ['{"id":1,"ts":1.5}', '{"id":1,"ts":3}']
    options = {"sequence_by": "ts", "except_column_list": "ts"}
    found = adapted(json_records(lines), "plain", options, known="id bigint", sequence_type="bigint")
    assert str(found.sequence) == "bigint"
    events = by_row(found)
    assert events[0][0].error is not None
    assert events[1][0].sequence == 3


def test_the_log_has_texts_and_now_a_number_is_declared() -> None:
    records = json_records(['{"id":1,"ts":1000}'])
    with pytest.raises(InvalidExpression, match="cannot be compared"):
        adapted(records, "plain", {"sequence_by": "ts"}, schema="id int, ts bigint", sequence_type="string")


def test_objects_gain_members() -> None:
    """The log's objects have some of them; whatever the batch shows is added, in lists, too."""
    lines = ['{"id":1,"ts":1,"s":{"a":1,"b":{"c":"x"}},"l":[{"a":2},{"d":true}]}']
    known = "id int, s struct<a:int>, l array<struct<a:int>>"
    events = adapted(json_records(lines), "plain", {"sequence_by": "ts"}, known=known)
    types = events.types
    assert types["s"] == "struct<a:int,b:struct<c:string>>"
    assert types["l"] == "array<struct<a:int,d:boolean>>"
    assert by_row(events)[0][0].row["s"] == {"a": 1, "b": {"c": "x"}}
    assert by_row(events)[0][0].row["l"] == [{"a": 2, "d": None}, {"a": None, "d": True}]
    rows = [(1, 1, (5, "new"))]
    records = table_records("id int, ts int, s struct<a:bigint,b:string>", rows)
    events = adapted(
        records, "plain", {"sequence_by": "ts"}, known="id int, s struct<a:int>", format="parquet"
    )
    assert by_row(events)[0][0].row["s"] == {"a": 5, "b": "new"}


def test_a_member_in_another_case_is_a_misfit() -> None:
    lines = ['{"id":1,"ts":1,"s":{"A":1}}', '{"id":1,"ts":2,"s":{"a":1}}']
    found = by_row(
        adapted(json_records(lines), "plain", {"sequence_by": "ts"}, known="id int, s struct<a:int>")
    )
    assert found[0][0].error == "column s has a member in another case than the log: A"
    assert found[1][0].row["s"] == {"a": 1}
