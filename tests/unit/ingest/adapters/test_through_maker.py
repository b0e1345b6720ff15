"""Records through an adapter and :class:`delta_cdc.ingest.batch.Maker`: types, values, carried columns."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from delta_cdc.core.errors import InvalidConfiguration
from tests.support import debezium as d
from tests.support.adapters import broken
from tests.support.change_sets import Event, adapted, at, by_row, json_records, table_records

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


def plain(ts: int, row: dict[str, Any], *columns: str) -> Event:
    return Event("upsert", row, ts, columns)


#: Record, and the event that it is; keys ``id``, order ``ts``, operation ``op``.
PLAIN: dict[str, tuple[str | None, Event]] = {
    "every kind of value": (
        (
            '{"op":"I","ts":1,"id":1,"name":"ünï\\u00e7","price":"-12345678901234567890123456789012345678",'
            '"day":"0001-01-01","at":"1969-12-31T23:59:59.999999Z","ok":true,"raw":"AP8=",'
            '"tags":["a",null],"box":{"w":1,"in":{"d":"2024-02-29"}},"m":{"k":1.5}}'
        ),
        plain(
            1,
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
            *("at", "box", "day", "id", "m", "name", "ok", "price", "raw", "tags"),
        ),
    ),
    "missing is not null": ('{"op":"U","ts":2,"id":1,"name":null}', plain(2, {"id": 1}, "id", "name")),
    "long numbers inside of a text": (
        '{"op":"I","ts":3,"id":7,"name":{"a":1.1234567890123456789,"b":[12345678.5,"x"],"c":"1.123456789"}}',
        plain(
            3,
            {"id": 7, "name": '{"a":1.1234567890123456789,"b":[12345678.5,"x"],"c":"1.123456789"}'},
            *("id", "name"),
        ),
    ),
    "delete with its key alone": ('{"op":"D","ts":4,"id":1}', Event("delete", {"id": 1}, 4)),
    "a delete, whatever does not fit": ('{"op":"d","ts":4,"id":1,"day":"x"}', Event("delete", {"id": 1}, 4)),
    "truncate": ('{"op":"TR","ts":5}', Event("truncate", {}, 5)),
    "old image, left out": ('{"op":"UO","ts":6,"id":"no number"}', Event("ignore")),
    "unknown operation": ('{"op":"X","ts":7,"id":1}', Event(error="unknown operation 'X'")),
    "a key that does not fit": ('{"op":"D","ts":8,"id":"x"}', Event(error="column id is no bigint")),
    "a value that does not fit": (
        '{"op":"I","ts":8,"id":1,"price":0.5}',
        Event(error="column price is no decimal(38,0)"),
    ),
    "a value inside that does not fit": (
        '{"op":"I","ts":8,"id":1,"box":{"w":1,"in":{"d":"2023-02-29"}}}',
        Event(error="column box is no struct<w:int,in:struct<d:date>>"),
    ),
    "a null key": ('{"op":"I","ts":8,"id":null}', Event(error="null key: id")),
    "no sequence": (
        '{"op":"I","id":1}',
        Event(error="no value for sequence_by, or no number of at most 20 digits (ts)"),
    ),
    # Only NULL is a tombstone.
    "an empty value": ("", Event(error="not JSON: not exactly one whole object")),
    "blanks": ("  ", Event(error="not JSON: not exactly one whole object")),
    "a tombstone": (None, Event("ignore")),
    "columns that nobody declared": ('{"op":"I","ts":9,"id":3,"new":1}', plain(9, {"id": 3}, "id")),
}


def plainly(event: Event) -> Event:
    """Return an event without NULLs, with times as texts."""

    def shown(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: shown(one) for name, one in value.items()}
        if isinstance(value, datetime):
            return value.isoformat(sep=" ")
        return value.isoformat() if isinstance(value, date) else bytewise(value)

    row = {name: shown(value) for name, value in event.row.items() if value is not None}
    return replace(event, row=row)


def bytewise(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: bytewise(one) for name, one in value.items()}
    return bytes(value) if isinstance(value, bytearray) else value


def test_plain() -> None:
    records = json_records([line for line, _ in PLAIN.values()])
    found = by_row(adapted(records, "plain", OPTIONS, schema=SCHEMA))
    assert {case: [*map(plainly, found[number])] for number, case in enumerate(PLAIN)} == {
        case: [wanted] for case, (_, wanted) in PLAIN.items()
    }


# -- types ----------------------------------------------------------------------------------------
BY_TS = {"sequence_by": "ts"}


def test_types_that_nobody_declared() -> None:
    """Whole numbers, fractions by their digits, texts, objects; the log's types stay, and may be added to."""
    lines = [
        '{"id":1,"ts":1,"small":1.5,"exact":12345678901234567.89,"big":12345678901234567890,"flag":true}',
        '{"id":2,"ts":2,"small":null,"mixed":1,"list":[1,2],"obj":{"a":{"b":"x"}},"never":null,"none":[]}',
        '{"id":3,"ts":3,"mixed":"text","small":0.25,"known":"5"}',
    ]
    events = adapted(json_records(lines), "plain", BY_TS, known="id int, known int")
    assert events.types == {
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


def test_objects_gain_members() -> None:
    """The log's objects have some of them; whatever the batch shows is added, in lists, too."""
    lines = ['{"id":1,"ts":1,"s":{"a":1,"b":{"c":"x"}},"l":[{"a":2},{"d":true}]}']
    known = "id int, s struct<a:int>, l array<struct<a:int>>"
    events = adapted(json_records(lines), "plain", BY_TS, known=known)
    assert events.types["s"] == "struct<a:int,b:struct<c:string>>"
    assert events.types["l"] == "array<struct<a:int,d:boolean>>"
    assert by_row(events)[0][0].row["s"] == {"a": 1, "b": {"c": "x"}}
    assert by_row(events)[0][0].row["l"] == [{"a": 2, "d": None}, {"a": None, "d": True}]
    records = table_records("id int, ts int, s struct<a:bigint,b:string>", [(1, 1, (5, "new"))])
    events = adapted(records, "plain", BY_TS, known="id int, s struct<a:int>", format="parquet")
    assert by_row(events)[0][0].row["s"] == {"a": 5, "b": "new"}


def test_a_member_in_another_case_is_a_misfit() -> None:
    lines = ['{"id":1,"ts":1,"s":{"A":1}}', '{"id":1,"ts":2,"s":{"a":1}}']
    found = by_row(adapted(json_records(lines), "plain", BY_TS, known="id int, s struct<a:int>"))
    assert found[0][0].error == "column s has a member in another case than the log: A"
    assert found[1][0].row["s"] == {"a": 1}


# -- columns --------------------------------------------------------------------------------------
def test_columns_of_a_file_and_no_others_are_carried() -> None:
    """Parquet files of several ages: NULL of a column that the file does not have is no value."""
    rows, present = [(1, None, None, 1), (2, None, 0.5, 2)], [("id", "v", "seq"), None]
    records = table_records("id int, v string, w double, seq bigint", rows, present=present)
    events = adapted(records, "plain", {"sequence_by": "seq"}, known="id bigint, v string", format="parquet")
    assert [by_row(events)[at][0].columns for at in range(2)] == [("id", "seq", "v"), ("id", "seq", "v", "w")]
    assert events.types["id"] == "bigint"
    # DMS: a full load has no Op.
    files, present = ["s3a://b/t/LOAD00000001.parquet", "s3a://b/t/20240131-1.parquet"], [("id", "v"), None]
    rows = [(1, "a", None), (1, "b", "U")]
    records = table_records("id int, v string, Op string", rows, files=files, present=present)
    found = by_row(adapted(records, "dms", {}, format="parquet"))
    assert [(found[at][0].op, found[at][0].columns) for at in range(2)] == [("upsert", ("id", "v"))] * 2
    assert found[0][0].sequence < found[1][0].sequence


def test_odd_names() -> None:
    row = {"id": 1, "ts": 1, "a b": 1, "d.o.t": 2, "ba`ck": 3, 'quo"te': 4, "Ünï": 5}
    assert by_row(adapted(json_records([json.dumps(row)]), "plain", BY_TS))[0][0].row == row


def test_columns_left_out_in_another_spelling_are_not_carried() -> None:
    lines = ['{"id":1,"ts":1,"v":2,"secret":3}', '{"id":1,"ts":2,"secret":4}']
    found = by_row(adapted(json_records(lines), "plain", {**BY_TS, "except_column_list": "SECRET"}))
    assert [found[at][0].columns for at in range(2)] == [("id", "ts", "v"), ("id", "ts")]
    assert [set(found[at][0].row) for at in range(2)] == [{"id", "ts", "v"}, {"id", "ts", "v"}]


# -- changed keys, flags, and placeholders ----------------------------------------------------------
PG = d.postgresql(100, 120)
HERE = "00000000000000000100/1/00000000000000000120"


@pytest.mark.parametrize(
    ("adapter", "options", "line"),
    [
        (
            "plain",
            {**BY_TS, "old_keys": {"ID": "old"}, "except_column_list": "ts"},
            '{"ts":1,"id":2,"v":"b","old":1}',
        ),
        ("debezium", {}, d.message(d.change("u", {"id": 1, "v": "a"}, {"id": 2, "v": "b"}, PG))),
    ],
    ids=["plain", "debezium"],
)
def test_a_changed_key(adapter: str, options: dict[str, Any], line: str) -> None:
    """Keys are found however they are spelt."""
    found = by_row(adapted(json_records([line]), adapter, options, keys=["ID"], schema="id int, v string"))
    old, new = found[0]
    assert (old.op, old.row["id"], old.columns) == ("delete", 1, None)
    assert (new.op, new.row, new.columns) == ("upsert", {"id": 2, "v": "b"}, ("id", "v"))
    assert old.sequence < new.sequence


def test_types_of_goldengate() -> None:
    """The envelope is no column; flags are none either."""
    lines = [
        '{"op_type":"I","pos":1,"after":{"id":1,"id_isMissing":false,"V":1.5},"tokens":{"R":"AAAW"}}',
        '{"op_type":"U","pos":2,"after":{"id":1,"W":"x","NONE":null,"NONE_isMissing":true}}',
    ]
    events = adapted(json_records(lines), "goldengate", {})
    assert events.type == "struct<id:bigint,V:double,W:string>"
    assert [by_row(events)[at][0].columns for at in range(2)] == [("V", "id"), ("W", "id")]


# -- Debezium's schemas -----------------------------------------------------------------------------
TIME = "io.debezium.time"
UUID = "c0ffee00-0000-0000-0000-000000000000"
#: Field, value in the message, Spark's type, value in the row.
ENCODINGS: list[tuple[d.Field, Any, str, Any]] = [
    (d.field("i8", "int8"), -128, "tinyint", -128), (d.field("i16", "int16"), 32767, "smallint", 32767),
    (d.field("i32", "int32"), -(2**31), "int", -(2**31)),
    (d.field("i64", "int64"), 2**63 - 1, "bigint", 2**63 - 1),
    (d.field("f32", "float"), 0.5, "float", 0.5),
    (d.field("f64", "double"), 1e-300, "double", 1e-300),
    (d.field("bool", "boolean"), True, "boolean", True),
    (d.field("text", "string"), 'ünï\n"', "string", 'ünï\n"'),
    (d.field("bytes", "bytes"), base64.b64encode(b"\x00\xff").decode(), "binary", b"\x00\xff"),
    (d.field("bits", "bytes", "io.debezium.data.Bits"), "AQE=", "binary", b"\x01\x01"),
    (d.decimal_field("dec", 10, 2), d.unscaled(Decimal("-1.67"), 2), "decimal(10,2)", Decimal("-1.67")),
    (d.decimal_field("wide", 38, 0), d.unscaled(10**38 - 1), "decimal(38,0)", Decimal(10**38 - 1)),
    (d.decimal_field("low", None, 4), d.unscaled(Decimal("-0.0001"), 4), "decimal(38,4)", Decimal("-0.0001")),
    (d.field("vary", "struct", "io.debezium.data.VariableScaleDecimal", fields=[d.field("scale", "int32")]),
     {"scale": 3, "value": d.unscaled(-1500)}, "decimal(38,18)", Decimal("-1.5")),
    (d.field("day", "int32", f"{TIME}.Date"), -719162, "date", date(1, 1, 1)),
    (d.field("cday", "int32", f"{d.CONNECT}.Date"), 19000, "date", date(2022, 1, 8)),
    (d.field("ms", "int64", f"{TIME}.Timestamp"), -1, "timestamp", at(1969, 12, 31, 23, 59, 59, 999_000)),
    (d.field("us", "int64", f"{TIME}.MicroTimestamp"), 1, "timestamp", at(1970, 1, 1, 0, 0, 0, 1)),
    (d.field("ns", "int64", f"{TIME}.NanoTimestamp"), 1_999, "timestamp", at(1970, 1, 1, 0, 0, 0, 1)),
    (d.field("cms", "int64", f"{d.CONNECT}.Timestamp"), 1, "timestamp", at(1970, 1, 1, 0, 0, 0, 1000)),
    (d.field("zoned", "string", f"{TIME}.ZonedTimestamp"), "2024-01-31T12:00:00.5+02:00", "timestamp",
     at(2024, 1, 31, 10, 0, 0, 500_000)),
    (d.field("tms", "int32", f"{TIME}.Time"), 3_723_004, "string", "01:02:03.004000"),
    (d.field("tus", "int64", f"{TIME}.MicroTime"), -3_020_399_000_000, "string", "-838:59:59.000000"),
    (d.field("tns", "int64", f"{TIME}.NanoTime"), 1_000, "string", "00:00:00.000001"),
    (d.field("ztime", "string", f"{TIME}.ZonedTime"), "12:00:00Z", "string", "12:00:00Z"),
    (d.field("span", "int64", f"{TIME}.MicroDuration"), -5, "bigint", -5),
    (d.field("year", "int32", f"{TIME}.Year"), 1999, "int", 1999),
    (d.field("json", "string", "io.debezium.data.Json"), '{"a": 1.10}', "string", '{"a": 1.10}'),
    (d.field("enum", "string", "io.debezium.data.Enum"), "x", "string", "x"),
    (d.field("uuid", "string", "io.debezium.data.Uuid"), UUID, "string", UUID),
    (d.field("list", "array", items={"type": "int32"}), [1, None], "array<int>", [1, None]),
    (d.field("decs", "array", items={k: v for k, v in d.decimal_field("x", 5, 1).items() if k != "field"}),
     [d.unscaled(15)], "array<decimal(5,1)>", [Decimal("1.5")]),
    (d.field("map", "map", keys={"type": "string"}, values={"type": "string"}), {"a": "b"},
     "map<string,string>", {"a": "b"}),
    (d.field("point", "struct", fields=[d.field("wkb", "bytes"), d.field("srid", "int32")]),
     {"wkb": "AQ==", "srid": None}, "struct<wkb:binary,srid:int>", {"wkb": b"\x01", "srid": None}),
]  # fmt: skip
FIELDS = [d.field("id", "int32"), *[field for field, *_ in ENCODINGS]]
VALUES = {field["field"]: value for field, value, *_ in ENCODINGS}


def test_every_encoding_by_the_schema_in_the_message() -> None:
    schema = d.envelope_schema(FIELDS)
    empty = {"id": 2, **dict.fromkeys(VALUES)}
    # The last one has a decimal of 39 digits, which no type of Spark holds.
    rows = [{"id": 1, **VALUES}, empty, {**empty, "low": d.unscaled(10**38)}]
    lines = [d.message(d.change("c", None, row, PG), schema) for row in rows]
    events = adapted(json_records(lines), "debezium", {})
    assert events.types == {"id": "int", **{field["field"]: kind for field, _, kind, _ in ENCODINGS}}
    found = by_row(events)
    wanted = {"id": 1, **{field["field"]: value for field, _, _, value in ENCODINGS}}
    assert bytewise(found[0][0].row) == wanted
    assert found[1][0].row == empty
    assert found[1][0].columns == tuple(sorted(empty))
    assert found[2][0].error == "column low is no decimal(38,4)"


def test_damaged_schemas_make_one_record_invalid() -> None:
    """Whatever a schema is, it raises nothing, and the other records arrive."""
    draw = random.Random(20261126)
    odd: list[Any] = [None, 7, "x", [], {}, [1], {"fields": 1}, "int32", {"type": "struct"}, -1, "1e9"]

    whole = json.loads(d.message(d.change("c", None, {"id": 1, **VALUES}, PG), d.envelope_schema(FIELDS)))
    lines = [json.dumps(broken(draw, whole, odd, 0.08)) for _ in range(800)]
    records = json_records([*lines, json.dumps(whole)])
    found = by_row(adapted(records, "debezium", {}, schema="id int, i8 tinyint"))
    assert len(found) == len(lines) + 1
    assert found[len(lines)][0].row == {"id": 1, "i8": -128}
    assert sum(events[0].error is not None for events in found.values()) > 50


def test_schemas_that_change_inside_a_batch() -> None:
    """Each message is read by its own schema: the same column in milliseconds, and in microseconds."""
    old = [d.field("id", "int32"), d.field("at", "int64", f"{TIME}.Timestamp"), d.decimal_field("n", 5, 1)]
    new = [
        d.field("id", "int64"),
        d.field("at", "int64", f"{TIME}.MicroTimestamp"),
        d.decimal_field("n", 7, 3),
        d.field("new", "string"),
    ]
    first = {"id": 1, "at": 1000, "n": d.unscaled(15)}
    lines = [
        d.message(d.change("c", None, first, PG), d.envelope_schema(old)),
        d.message(d.change("c", None, {**first, "new": "x"}, PG), d.envelope_schema(new)),
        d.message({"status": "BEGIN"}, {"type": "struct", "fields": [d.field("status", "string")]}),
    ]
    events = adapted(json_records(lines), "debezium", {})
    assert events.type == "struct<id:bigint,at:timestamp,n:decimal(7,3),new:string>"
    found = by_row(events)
    assert found[0][0].row == {"id": 1, "at": at(1970, 1, 1, 0, 0, 1), "n": Decimal("1.5"), "new": None}
    micros = at(1970, 1, 1, 0, 0, 0, 1000)
    assert found[1][0].row == {"id": 1, "at": micros, "n": Decimal("0.015"), "new": "x"}
    assert found[0][0].columns == ("at", "id", "n")
    assert found[2][0].error == "no value for op: no change event"
    # The types of the log stay.
    known = adapted(json_records(lines), "debezium", {}, known="id int, at timestamp, n decimal(10,3)")
    assert known.type == "struct<id:int,at:timestamp,n:decimal(10,3),new:string>"
    assert by_row(known)[0][0].row["n"] == Decimal("1.500")


def test_numbers_whose_type_changes_inside_a_batch_stay_numbers() -> None:
    """A value that the common type does not hold exactly makes its record invalid."""
    first = {"id": "int32", "a": "int32", "b": "float", "c": "int64", "d": "int64", "e": "int32"}
    second = {**first, "a": "double", "b": "double", "d": "double", "e": "string"}
    old = d.envelope_schema([d.field(name, kind) for name, kind in first.items()])
    fields = {name: d.field(name, kind) for name, kind in second.items()}
    new = d.envelope_schema([*{**fields, "c": d.decimal_field("c", 5, 2)}.values()])
    long, cents = 2**63 - 1, d.unscaled(Decimal("1.25"), 2)
    rows = [
        (old, {"id": 1, "a": 2**31 - 1, "b": 0.5, "c": long, "d": long, "e": 7}),
        (new, {"id": 2, "a": 1e300, "b": 1e300, "c": cents, "d": 0.1, "e": "x"}),
        (new, {"id": 3, "a": 0.5, "b": 0.5, "c": cents, "d": 1e300, "e": "x"}),
    ]
    lines = [d.message(d.change("c", None, row, PG), schema) for schema, row in rows]
    events = adapted(json_records(lines), "debezium", {})
    assert events.type == "struct<id:int,a:double,b:double,c:decimal(22,2),d:decimal(38,18),e:string>"
    found = by_row(events)
    wanted = {"a": float(2**31 - 1), "b": 0.5, "c": Decimal(long), "d": Decimal(long), "e": "7"}
    assert found[0][0].row == {"id": 1, **wanted}
    wanted = {"a": 1e300, "b": 1e300, "c": Decimal("1.25"), "d": Decimal("0.1"), "e": "x"}
    assert found[1][0].row == {"id": 2, **wanted}
    assert found[2][0].error == "column d is no decimal(38,18)"


def test_values_without_schema() -> None:
    """Texts say what they are; numbers need the options of the connector."""
    schema = "id int, price decimal(10,2), at timestamp, day date, raw binary"
    modes = {
        "decimal_handling_mode": "precise",
        "time_precision_mode": "adaptive",
        "binary_handling_mode": "hex",
    }
    numbers = {"id": 1, "price": d.unscaled(Decimal("-1.50"), 2), "at": -1, "day": -1, "raw": b"a".hex()}
    texts = {**numbers, "price": {"scale": 1, "value": d.unscaled(15)}, "at": "2024-01-01T00:00:00Z"}
    records = json_records([d.message(d.change("c", None, row, PG)) for row in (numbers, texts)])
    with pytest.raises(InvalidConfiguration, match="give decimal_handling_mode"):
        adapted(records, "debezium", {}, schema=schema)
    found = by_row(adapted(records, "debezium", modes, schema=schema))
    assert found[0][0].error == "column at is no timestamp, but a number of an unknown unit"
    del modes["time_precision_mode"]
    assert by_row(adapted(records, "debezium", modes, schema=schema)) == found
    assert (found[1][0].row["price"], found[1][0].row["at"]) == (Decimal("1.50"), at(2024, 1, 1))
    found = by_row(adapted(records, "debezium", {**modes, "time_units": {"at": "us"}}, schema=schema))
    moment = at(1969, 12, 31, 23, 59, 59, 999_999)
    wanted = {"id": 1, "price": Decimal("-1.50"), "at": moment, "day": date(1969, 12, 31), "raw": b"a"}
    assert bytewise(found[0][0].row) == wanted
    assert found[0][0].sequence == f"{HERE}/1"


def test_messages_of_dms_have_hexadecimal_digits_for_bytes() -> None:
    metadata = {"record-type": "data", "operation": "update"}
    texts = ("0xCAFE", "CAFE", "", "YQ==", None)
    records = [json.dumps({"data": {"id": 1, "raw": text}, "metadata": metadata}) for text in texts]
    messages = replace(json_records(records), is_messages=True)
    found = by_row(adapted(messages, "dms", {"envelope": True}, schema="id int, raw binary"))
    assert [event.error or bytewise(event.row)["raw"] for (event,) in found.values()] == [
        *(b"\xca\xfe", b"\xca\xfe", b"", "column raw is no binary", None),
    ]


@pytest.mark.parametrize("has_schema", [True, False])
def test_iso_texts(has_schema: bool) -> None:
    """Debezium writes dates and times without zone as if they were in UTC."""
    fields = [
        d.field("id", "int32"),
        d.field("day", "string", f"{TIME}.IsoDate"),
        d.field("at", "string", f"{TIME}.IsoTimestamp"),
        d.field("here", "string", f"{TIME}.IsoTimestamp"),
    ]
    row = {"id": 1, "day": "2014-09-08Z", "at": "2014-09-08T10:00:00Z", "here": "2014-09-08T10:00:00.5Z"}
    line = d.message(d.change("c", None, row, PG), d.envelope_schema(fields) if has_schema else None)
    options = {} if has_schema else {"time_precision_mode": "isostring"}
    schema = "id int, day date, at timestamp, here timestamp_ntz"
    ((found,),) = by_row(adapted(json_records([line]), "debezium", options, schema=schema)).values()
    assert found.row == {
        "id": 1,
        "day": date(2014, 9, 8),
        "at": at(2014, 9, 8, 10),
        "here": datetime(2014, 9, 8, 10, 0, 0, 500_000),  # noqa: DTZ001
    }


def test_decimals_that_are_numbers() -> None:
    """Kafka Connect's ``decimal.format=NUMERIC``."""
    fields = [d.field("id", "int32"), d.decimal_field("price", 10, 2)]
    line = d.message(d.change("c", None, {"id": 1, "price": 12.5}, PG), d.envelope_schema(fields))
    ((found,),) = by_row(adapted(json_records([line]), "debezium", {})).values()
    assert found.row == {"id": 1, "price": Decimal("12.50")}
    line = d.message(d.change("c", None, {"id": 1, "price": 12.5}, PG))
    options = {"decimal_handling_mode": "precise"}
    events = adapted(json_records([line]), "debezium", options, schema="id int, price decimal(10,2)")
    assert by_row(events)[0][0].row == found.row


def test_infinity() -> None:
    infinity = 9_223_372_036_825_200_000
    fields = [d.field("id", "int32"), d.field("at", "int64", f"{TIME}.MicroTimestamp")]
    line = d.message(d.change("c", None, {"id": 1, "at": infinity}, PG), d.envelope_schema(fields))
    bare = d.message(d.change("c", None, {"id": 1, "at": infinity}, PG))
    for given, options in ((line, {}), (bare, {"time_units": {"at": "us"}})):
        found = by_row(adapted(json_records([given]), "debezium", options, schema="id int, at timestamp"))
        reason = "column at is no timestamp, but a number beyond the years 1 to 9999, as infinity is"
        assert found[0][0].error == reason
        found = by_row(adapted(json_records([given]), "debezium", options, schema="id int, at string"))
        assert found[0][0].row == {"id": 1, "at": str(infinity)}


def test_bytes_that_a_schema_has_as_text() -> None:
    """Hex digits are also base64, so the option must say which it is."""
    fields = [d.field("id", "int32"), d.field("Raw", "string"), d.field("note", "string")]
    row = {"id": 1, "Raw": "CAFEBABE", "note": "CAFEBABE"}
    line = d.message(d.change("c", None, row, PG), d.envelope_schema(fields))
    schema = "id int, Raw binary, note string"

    def read(**options: Any) -> Any:
        return by_row(adapted(json_records([line]), "debezium", options, schema=schema))[0][0]

    for mode, data in (("hex", bytes.fromhex("CAFEBABE")), ("base64", base64.b64decode("CAFEBABE"))):
        assert bytewise(read(binary_handling_mode=mode).row) == {**row, "Raw": data}
    error = read().error
    assert "text for the column Raw of bytes" in error
    assert "give binary_handling_mode" in error
    assert adapted(json_records([line]), "debezium", {}).types["Raw"] == "string"


def test_a_column_that_begins_like_an_added_field() -> None:
    """Mongoose writes ``__v`` into each document."""
    line = json.dumps({"id": 1, "__v": 3, "__op": "c", "__source_sequence": PG["sequence"]})
    options = {"unwrapped": True, "connector": "postgresql"}
    found = adapted(json_records([line]), "debezium", options, schema="id int, __v int, __op string")
    assert found.types == {"id": "int", "__v": "int"}
    assert by_row(found)[0][0].row == {"id": 1, "__v": 3}
