"""Debezium's change events: envelopes and unwrapped ones, with and without schema, order by connector."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.ingest import adapters
from delta_cdc.ingest.record import Record
from tests.support import debezium as d
from tests.support.change_sets import Event, adapted, at, by_row, json_records
from tests.support.slow import slow_but

PG = d.postgresql(100, 120)
AT = "2023-11-14 22:13:20.123000"
HERE = "00000000000000000100/1/00000000000000000120"
ROW = {"id": 1, "v": "a", "w": None}


def event(op: str, row: dict[str, Any], columns: tuple[str, ...] | None = None, index: int = 1) -> Event:
    return Event(op, row, f"{HERE}/{index}", columns, None, AT)


#: Case, the message's value, the message's key, and the events.
GOLDEN: list[tuple[str, str | None, str | None, list[Event]]] = [
    ("create", d.message(d.change("c", None, ROW, PG)), None, [event("upsert", ROW, ("id", "v", "w"))]),
    (
        "update",
        d.message(d.change("u", ROW, {**ROW, "v": "b"}, PG)),
        None,
        [event("upsert", {**ROW, "v": "b"}, ("id", "v", "w"))],
    ),
    (
        "delete",
        d.message(d.change("d", {"id": 1, "v": None, "w": None}, None, PG)),
        None,
        [event("delete", {"id": 1, "v": None, "w": None})],
    ),
    (
        "delete of a message's key",
        d.message(d.change("d", None, None, PG)),
        '{"id":1}',
        [event("delete", {"id": 1, "v": None, "w": None})],
    ),
    (
        "delete of a key with schema",
        d.message(d.change("d", None, None, PG)),
        d.message({"id": 1}, {"type": "struct", "fields": [d.field("id", "int32")]}),
        [event("delete", {"id": 1, "v": None, "w": None})],
    ),
    (
        "delete of nothing",
        d.message(d.change("d", None, None, PG)),
        None,
        [Event(error="no value for after, or of a delete for before or a key")],
    ),
    (
        "key change",
        d.message(d.change("u", {"id": 1}, {"id": 2, "v": "é"}, PG)),
        None,
        [
            event("delete", {"id": 1, "v": None, "w": None}, None, 0),
            event("upsert", {"id": 2, "v": "é", "w": None}, ("id", "v")),
        ],
    ),
    (
        "unavailable value",
        d.message(d.change("u", None, {**ROW, "v": d.PLACEHOLDER}, PG)),
        None,
        [event("upsert", {"id": 1, "v": None, "w": None}, ("id", "w"))],
    ),
    (
        "unavailable value of a wide number",
        d.message(d.change("u", None, {"id": 1, "w": d.PLACEHOLDER}, PG)),
        None,
        [event("upsert", {"id": 1, "v": None, "w": None}, ("id",))],
    ),
    ("truncate", d.message(d.change("t", None, None, PG)), None, [event("truncate", {})]),
    (
        "message of the database's log",
        d.message(d.change("m", None, None, PG)),
        None,
        [Event("ignore")],
    ),
    ("tombstone", None, '{"id":1}', [Event("ignore")]),
    ("tombstone in a file", "null", None, [Event("ignore")]),
    ("tombstone with schema", '{"schema":null,"payload":null}', None, [Event("ignore")]),
    (
        "unknown operation",
        d.message(d.change("x", None, ROW, PG)),
        None,
        [Event(error="unknown operation 'x'")],
    ),
    ("no envelope", '{"id":1,"v":"a"}', None, [Event(error="no value for op: no change event")]),
    (
        "cut in half",
        d.message(d.change("c", None, ROW, PG))[:-20],
        None,
        [Event(error="not JSON")],
    ),
    (
        "snapshot",
        d.message(d.change("r", None, ROW, d.postgresql(None, 900, snapshot="first"))),
        None,
        [
            replace(
                event("upsert", ROW, ("id", "v", "w")),
                sequence="00000000000000000000/0/00000000000000000900/1",
            )
        ],
    ),
    (
        "no place in the log",
        d.message(d.change("c", None, ROW, {"connector": "postgresql", "lsn": 5})),
        None,
        [Event(error="no value for source.sequence")],
    ),
    (
        "another connector",
        d.message(d.change("c", None, ROW, {"connector": "vitess"})),
        None,
        [Event(error="no order is known for the connector 'vitess': give adapter_options sequence_by")],
    ),
    (
        "a value that does not fit",
        d.message(d.change("c", None, {"id": 1, "w": "x"}, PG)),
        None,
        [Event(error="column w is no bigint")],
    ),
    (
        "a delete, whatever does not fit",
        d.message(d.change("d", {"id": 1, "w": "x"}, None, PG)),
        None,
        [event("delete", {"id": 1, "v": None, "w": None})],
    ),
]


def test_golden_envelopes_without_schema() -> None:
    records = json_records([line for _, line, _, _ in GOLDEN], keys=[key for _, _, key, _ in GOLDEN])
    found = by_row(adapted(records, "debezium", {}, schema="id int, v string, w bigint"))
    wrong = {
        case: found[n] for n, (case, _, _, wanted) in enumerate(GOLDEN) if [*map(plainly, found[n])] != wanted
    }
    assert wrong == {}


def plainly(event: Event) -> Event:
    """Return an event; the reader says more behind the colon of some reasons."""
    is_json = event.error is not None and event.error.startswith("not JSON:")
    return replace(event, error="not JSON") if is_json else event


# -- schemas in the messages --------------------------------------------------------------------
TIME = "io.debezium.time"
#: Field, value in the message, Spark's type, value in the row.
ENCODINGS: list[tuple[d.Field, Any, str, Any]] = [
    (d.field("i8", "int8"), -128, "tinyint", -128),
    (d.field("i16", "int16"), 32767, "smallint", 32767),
    (d.field("i32", "int32"), -(2**31), "int", -(2**31)),
    (d.field("i64", "int64"), 2**63 - 1, "bigint", 2**63 - 1),
    (d.field("f32", "float"), 0.5, "float", 0.5),
    (d.field("f64", "double"), 1e-300, "double", 1e-300),
    (d.field("bool", "boolean"), True, "boolean", True),
    (d.field("text", "string"), 'ünï\n"', "string", 'ünï\n"'),
    (d.field("bytes", "bytes"), base64.b64encode(b"\x00\xff").decode(), "binary", b"\x00\xff"),
    (
        d.field("bits", "bytes", "io.debezium.data.Bits", parameters={"length": "9"}),
        "AQE=",
        "binary",
        b"\x01\x01",
    ),
    (
        d.decimal_field("dec", 10, 2),
        d.unscaled(Decimal("-12345.67"), 2),
        "decimal(10,2)",
        Decimal("-12345.67"),
    ),
    (d.decimal_field("wide", 38, 0), d.unscaled(10**38 - 1), "decimal(38,0)", Decimal(10**38 - 1)),
    (d.decimal_field("low", None, 4), d.unscaled(Decimal("-0.0001"), 4), "decimal(38,4)", Decimal("-0.0001")),
    (
        d.field(
            "vary",
            "struct",
            "io.debezium.data.VariableScaleDecimal",
            fields=[d.field("scale", "int32"), d.field("value", "bytes")],
        ),
        {"scale": 3, "value": d.unscaled(-1500)},
        "decimal(38,18)",
        Decimal("-1.5"),
    ),
    (d.field("day", "int32", f"{TIME}.Date"), -719162, "date", date(1, 1, 1)),
    (d.field("cday", "int32", f"{d.CONNECT}.Date"), 19000, "date", date(2022, 1, 8)),
    (d.field("ms", "int64", f"{TIME}.Timestamp"), -1, "timestamp", at(1969, 12, 31, 23, 59, 59, 999_000)),
    (
        d.field("us", "int64", f"{TIME}.MicroTimestamp"),
        -1,
        "timestamp",
        at(1969, 12, 31, 23, 59, 59, 999_999),
    ),
    (d.field("ns", "int64", f"{TIME}.NanoTimestamp"), -1, "timestamp", at(1969, 12, 31, 23, 59, 59, 999_999)),
    (d.field("cms", "int64", f"{d.CONNECT}.Timestamp"), 1, "timestamp", at(1970, 1, 1, 0, 0, 0, 1000)),
    (
        d.field("zoned", "string", f"{TIME}.ZonedTimestamp"),
        "2024-01-31T12:00:00.5+02:00",
        "timestamp",
        at(2024, 1, 31, 10, 0, 0, 500_000),
    ),
    (d.field("tms", "int32", f"{TIME}.Time"), 3_723_004, "string", "01:02:03.004000"),
    (d.field("tus", "int64", f"{TIME}.MicroTime"), -3_020_399_000_000, "string", "-838:59:59.000000"),
    (d.field("tns", "int64", f"{TIME}.NanoTime"), 1_000, "string", "00:00:00.000001"),
    (d.field("ztime", "string", f"{TIME}.ZonedTime"), "12:00:00Z", "string", "12:00:00Z"),
    (d.field("span", "int64", f"{TIME}.MicroDuration"), -5, "bigint", -5),
    (d.field("year", "int32", f"{TIME}.Year"), 1999, "int", 1999),
    (d.field("json", "string", "io.debezium.data.Json"), '{"a": 1.10}', "string", '{"a": 1.10}'),
    (d.field("enum", "string", "io.debezium.data.Enum"), "x", "string", "x"),
    (
        d.field("uuid", "string", "io.debezium.data.Uuid"),
        "c0ffee00-0000-0000-0000-000000000000",
        "string",
        "c0ffee00-0000-0000-0000-000000000000",
    ),
    (d.field("list", "array", items={"type": "int32"}), [1, None], "array<int>", [1, None]),
    (
        d.field("decs", "array", items={k: v for k, v in d.decimal_field("x", 5, 1).items() if k != "field"}),
        [d.unscaled(15)],
        "array<decimal(5,1)>",
        [Decimal("1.5")],
    ),
    (
        d.field("map", "map", keys={"type": "string"}, values={"type": "string"}),
        {"a": "b"},
        "map<string,string>",
        {"a": "b"},
    ),
    (
        d.field(
            "point",
            "struct",
            "io.debezium.data.geometry.Geometry",
            fields=[d.field("wkb", "bytes"), d.field("srid", "int32")],
        ),
        {"wkb": "AQ==", "srid": None},
        "struct<wkb:binary,srid:int>",
        {"wkb": b"\x01", "srid": None},
    ),
]


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return bytes(value) if isinstance(value, bytearray) else value


def test_every_encoding_by_the_schema_in_the_message() -> None:
    fields = [d.field("id", "int32"), *[field for field, *_ in ENCODINGS]]
    schema = d.envelope_schema(fields)
    full = {"id": 1, **{field["field"]: value for field, value, _, _ in ENCODINGS}}
    empty = {"id": 2, **dict.fromkeys(name["field"] for name, *_ in ENCODINGS)}
    lines = [d.message(d.change("c", None, row, PG), schema) for row in (full, empty)]
    # A decimal of 39 digits, which no type of Spark holds.
    lines.append(d.message(d.change("c", None, {**empty, "low": d.unscaled(10**38)}, PG), schema))
    events = adapted(json_records(lines), "debezium", {})
    types = events.types
    assert types == {"id": "int", **{field["field"]: kind for field, _, kind, _ in ENCODINGS}}
    found = by_row(events)
    row = found[0][0].row
    wrong = {f["field"]: row[f["field"]] for f, _, _, wanted in ENCODINGS if plain(row[f["field"]]) != wanted}
    assert wrong == {}
    assert found[1][0].row == empty
    assert found[1][0].columns is not None
    assert len(found[1][0].columns) == len(fields)
    assert found[2][0].error == "column low is no decimal(38,4)"


def test_the_unavailable_value_in_every_type() -> None:
    mark, given = d.PLACEHOLDER, d.PLACEHOLDER.encode()
    row = {
        "id": 1,
        "text": mark,
        "bytes": base64.b64encode(given).decode(),
        "texts": [mark],
        "blobs": [base64.b64encode(given).decode()],
        "numbers": list(given),
        "map": {mark: mark},
        "kept": [mark, mark],
        # Makes all numbers of the message texts, so that its own digits stay.
        "long": 0.1234567890123456,
    }
    fields = [
        d.field("id", "int32"),
        d.field("text", "string"),
        d.field("bytes", "bytes"),
        d.field("texts", "array", items={"type": "string"}),
        d.field("blobs", "array", items={"type": "bytes"}),
        d.field("numbers", "array", items={"type": "int32"}),
        d.field("map", "map", keys={"type": "string"}, values={"type": "string"}),
        d.field("kept", "array", items={"type": "string"}),
        d.field("long", "double"),
    ]
    lines = [d.message(d.change("u", None, row, PG), d.envelope_schema(fields))]
    (found,) = by_row(adapted(json_records(lines), "debezium", {}))[0]
    assert found.columns == ("id", "kept", "long")
    assert {name for name, value in found.row.items() if value is not None} == {"id", "kept", "long"}
    own = {"unavailable_value_placeholder": "n/a"}
    lines = [d.message(d.change("u", None, {"id": 1, "v": "n/a", "hex": b"n/a".hex()}, PG))]
    (found,) = by_row(adapted(json_records(lines), "debezium", own, schema="id int, v string, hex string"))[0]
    assert found.columns == ("id",)


def test_schemas_that_change_inside_a_batch() -> None:
    """Each message is read by its own schema: the same column in milliseconds, and in microseconds."""
    old = d.envelope_schema(
        [d.field("id", "int32"), d.field("at", "int64", f"{TIME}.Timestamp"), d.decimal_field("n", 5, 1)]
    )
    new = d.envelope_schema(
        [
            d.field("id", "int64"),
            d.field("at", "int64", f"{TIME}.MicroTimestamp"),
            d.decimal_field("n", 7, 3),
            d.field("new", "string"),
        ]
    )
    lines = [
        d.message(d.change("c", None, {"id": 1, "at": 1000, "n": d.unscaled(15)}, PG), old),
        d.message(d.change("c", None, {"id": 2, "at": 1000, "n": d.unscaled(15), "new": "x"}, PG), new),
        d.message(
            {"status": "BEGIN", "id": "571"}, {"type": "struct", "fields": [d.field("status", "string")]}
        ),
    ]
    events = adapted(json_records(lines), "debezium", {})
    assert events.type == ("struct<id:bigint,at:timestamp,n:decimal(7,3),new:string>")
    found = by_row(events)
    assert found[0][0].row == {"id": 1, "at": at(1970, 1, 1, 0, 0, 1), "n": Decimal("1.5"), "new": None}
    assert found[1][0].row == {
        "id": 2,
        "at": at(1970, 1, 1, 0, 0, 0, 1000),
        "n": Decimal("0.015"),
        "new": "x",
    }
    assert found[0][0].columns == ("at", "id", "n")
    assert found[2][0].error == "no value for op: no change event"
    # The types of the log stay.
    known = adapted(json_records(lines), "debezium", {}, known="id int, at timestamp, n decimal(10,3)")
    assert known.type == ("struct<id:int,at:timestamp,n:decimal(10,3),new:string>")
    assert by_row(known)[0][0].row["n"] == Decimal("1.500")


def test_numbers_whose_type_changes_inside_a_batch_stay_numbers() -> None:
    """A value that the common type does not hold exactly makes its record invalid."""
    first = {"id": "int32", "a": "int32", "b": "float", "c": "int64", "d": "int64", "e": "int32"}
    second = {**first, "a": "double", "b": "double", "d": "double", "e": "string"}
    envelopes = [
        d.envelope_schema([d.field(name, kind) for name, kind in first.items()]),
        d.envelope_schema(
            [
                d.decimal_field(name, 5, 2) if name == "c" else d.field(name, kind)
                for name, kind in second.items()
            ]
        ),
    ]
    long, cents = 2**63 - 1, d.unscaled(Decimal("1.25"), 2)
    rows = [
        (0, {"id": 1, "a": 2**31 - 1, "b": 0.5, "c": long, "d": long, "e": 7}),
        (1, {"id": 2, "a": 1e300, "b": 1e300, "c": cents, "d": 0.1, "e": "x"}),
        (1, {"id": 3, "a": 0.5, "b": 0.5, "c": cents, "d": 1e300, "e": "x"}),
    ]
    lines = [d.message(d.change("c", None, row, PG), envelopes[number]) for number, row in rows]
    events = adapted(json_records(lines), "debezium", {})
    assert events.type == ("struct<id:int,a:double,b:double,c:decimal(22,2),d:decimal(38,18),e:string>")
    found = by_row(events)
    wanted = {"a": float(2**31 - 1), "b": 0.5, "c": Decimal(long), "d": Decimal(long), "e": "7"}
    assert found[0][0].row == {"id": 1, **wanted}
    wanted = {"a": 1e300, "b": 1e300, "c": Decimal("1.25"), "d": Decimal("0.1"), "e": "x"}
    assert found[1][0].row == {"id": 2, **wanted}
    assert found[2][0].error == "column d is no decimal(38,18)"


# -- no schema in the messages ------------------------------------------------------------------
def test_what_the_connector_was_told_has_to_be_told_here() -> None:
    row = {"id": 1, "price": d.unscaled(Decimal("-1.50"), 2), "at": -1, "day": -1, "raw": b"a".hex()}
    records = json_records([d.message(d.change("c", None, row, PG))])
    schema = "id int, price decimal(10,2), at timestamp, day date, raw binary"
    with pytest.raises(InvalidConfiguration, match="give decimal_handling_mode"):
        adapted(records, "debezium", {}, schema=schema)
    with pytest.raises(InvalidConfiguration, match="give time_precision_mode"):
        adapted(records, "debezium", {"decimal_handling_mode": "precise"}, schema=schema)
    modes = {
        "decimal_handling_mode": "precise",
        "time_precision_mode": "connect",
        "binary_handling_mode": "hex",
    }
    (found,) = by_row(adapted(records, "debezium", modes, schema=schema))[0]
    assert found.row == {
        "id": 1,
        "price": Decimal("-1.50"),
        "at": at(1969, 12, 31, 23, 59, 59, 999_000),
        "day": date(1969, 12, 31),
        "raw": bytearray(b"a"),
    }
    # The unit of adaptive modes depends on the column: without it, a number is none.
    adaptive = {**modes, "time_precision_mode": "adaptive"}
    assert (
        by_row(adapted(records, "debezium", adaptive, schema=schema))[0][0].error
        == "column at is no timestamp"
    )
    units = {**adaptive, "time_units": {"at": "us"}}
    (found,) = by_row(adapted(records, "debezium", units, schema=schema))[0]
    assert found.row["at"] == at(1969, 12, 31, 23, 59, 59, 999_999)
    # Texts say themselves what they are; numbers of unknown scale say their scale.
    row = {
        "id": 1,
        "price": {"scale": 1, "value": d.unscaled(15)},
        "at": "2024-01-01T00:00:00Z",
        "day": "2024-01-01",
    }
    records = json_records([d.message(d.change("c", None, row, PG))])
    (found,) = by_row(adapted(records, "debezium", adaptive, schema=schema))[0]
    assert (found.row["price"], found.row["at"]) == (Decimal("1.50"), at(2024, 1, 1))
    (found,) = by_row(adapted(records, "debezium", {}))[0]
    assert found.row["at"] == "2024-01-01T00:00:00Z"


# -- unwrapped ----------------------------------------------------------------------------------
def test_unwrapped_events() -> None:
    """What ``add.fields`` adds is no column; without a word on deletes, nothing is an event."""
    sequence = json.dumps(["100", "120"])
    told = {"__source_sequence": sequence, "__source_ts_ms": 1_700_000_000_123}
    lines = [
        json.dumps({"id": 1, "v": "a", "__op": "c", **told}),
        json.dumps({"id": 1, "v": None, "__deleted": "true", **told}),
        json.dumps({"id": 1, "v": d.PLACEHOLDER, "__deleted": "false", **told}),
        json.dumps({"id": 1, "v": "a", "__op": "d", **told}),
        json.dumps({"id": 1, "v": "a", **told}),
        json.dumps({"id": 1, "v": "a", "__op": "u", "__lsn": 120}),
        None,
    ]
    options = {"unwrapped": True, "connector": "postgresql"}
    found = by_row(adapted(json_records(lines), "debezium", options))
    assert found[0] == [event("upsert", {"id": 1, "v": "a"}, ("id", "v"))]
    assert [found[n][0].op for n in (1, 2, 3)] == ["delete", "upsert", "delete"]
    assert found[2][0].columns == ("id",)
    assert found[4][0].error == "no value for __op or __deleted, so deletes cannot be recognized"
    assert found[5][0].error == "no value for source.sequence"
    assert found[6][0].op == "ignore"


# -- order --------------------------------------------------------------------------------------
def my(file: str, pos: int, row: int, **more: Any) -> dict[str, Any]:
    return {"connector": "mysql", "file": file, "pos": pos, "row": row, "snapshot": "false", **more}


def ms(commit: str, change: str | None, serial: int | None, **more: Any) -> dict[str, Any]:
    return {
        "connector": "sqlserver",
        "commit_lsn": commit,
        "change_lsn": change,
        "event_serial_no": serial,
        **more,
    }


def ora(
    scn: int, commit: int | None, rs_id: str | None = None, ssn: int | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "connector": "oracle",
        "scn": str(scn),
        "commit_scn": None if commit is None else str(commit),
        "rs_id": rs_id,
        "ssn": ssn,
        **more,
    }


#: Per connector, events in the order in which they happened.
ORDERS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "postgresql": [
        ("r", d.postgresql(None, 900, snapshot="true")),
        # Written before the snapshot was taken, and committed after it.
        ("u", d.postgresql(None, 899)),
        ("u", d.postgresql(950, 901)),
        ("u", d.postgresql(950, 902)),
        ("u", d.postgresql(1000, 960)),
        # Another snapshot, later on: the connector knows its last commit.
        ("r", d.postgresql(9999, 10_000, snapshot="last")),
        ("u", d.postgresql(9999, 9_990)),
        ("r", d.postgresql(9999, 9_995, snapshot="incremental")),
        ("u", d.postgresql(10_500, 10_001)),
        ("u", d.postgresql(2**63, 2**63 + 5)),
    ],
    "mysql": [
        ("r", my("bin.000009", 154, 0, snapshot="true")),
        ("u", my("bin.000009", 154, 0)),
        ("u", my("bin.000009", 154, 1)),
        ("u", my("bin.000009", 154, 10)),
        ("u", my("bin.000009", 1000, 0)),
        ("u", my("bin.000010", 4, 0)),
        ("u", my("bin.1000000", 4, 0)),
    ],
    "sqlserver": [
        ("r", ms("00000027:00000758:0005", None, None, snapshot="true")),
        ("u", ms("00000027:00000758:0005", "00000027:00000758:0003", 1)),
        ("u", ms("00000027:00000758:0005", "00000027:00000758:0003", 2)),
        ("u", ms("00000027:00000758:0005", "00000027:00000758:0004", 1)),
        ("u", ms("00000027:00000ac0:0002", "00000027:00000ab0:0002", 1)),
        ("u", ms("0000002A:00000001:0001", "0000002A:00000001:0001", 10)),
    ],
    "oracle": [
        ("r", ora(1000, None, snapshot="true")),
        # Began before the snapshot.
        ("u", ora(999, 1001, "0x000074.00007e8a.0010", 0)),
        ("u", ora(999, 1001, "0x000074.00007e8a.0010", 1)),
        ("u", ora(999, 1001, " 0x000074.00007e8b.0000 ", 0)),
        ("u", ora(1000, 1001, "0x000074.00007e8b.0010", 0)),
        ("u", ora(900, 1002)),
        ("u", ora(10**15, 10**15 + 1)),
    ],
}


@pytest.mark.parametrize("told", slow_but([True, False], False))
def test_order_of_every_connector(told: bool) -> None:
    """The text's order is the order, whether the connector is told or read in each event."""
    rows = [(name, op, source) for name, several in ORDERS.items() for op, source in several]
    lines = [d.message(d.change(op, None, {"id": 1}, source)) for _, op, source in rows]
    for name in ORDERS if told else [None]:
        found = by_row(adapted(json_records(lines), "debezium", {"connector": name}, schema="id int"))
        for connector in [name] if name else ORDERS:
            texts = [found[n][0].sequence for n, row in enumerate(rows) if row[0] == connector]
            assert None not in texts, connector
            assert texts == sorted(texts), connector
            assert len(set(texts)) == len(texts), connector
            assert len({len(text) for text in texts}) == 1, connector


def test_a_second_snapshot_of_a_connector_that_forgot() -> None:
    """Its slot and offsets are lost: nothing but the user can say that this snapshot is a later one."""
    lines = [
        d.message(d.change("u", None, {"id": 1}, d.postgresql(950, 990))),
        d.message(d.change("r", None, {"id": 1}, d.postgresql(None, 2000, snapshot="first"))),
        d.message(d.change("u", None, {"id": 1}, d.postgresql(2000, 2010))),
    ]
    for reads, wanted in (("first", [1, 0, 2]), ("in_order", [0, 1, 2])):
        found = by_row(adapted(json_records(lines), "debezium", {"snapshot_reads": reads}))
        assert sorted(range(3), key=lambda n: found[n][0].sequence) == wanted


def test_events_of_other_tables_are_left_out() -> None:
    lines = [
        d.message(d.change("c", None, {"id": 1}, PG)),
        d.message(d.change("c", None, {"id": 2}, {**PG, "table": "u"})),
        d.message(d.change("c", None, {"id": 3}, {**PG, "schema": "other"})),
    ]
    found = by_row(adapted(json_records(lines), "debezium", {"table": "public.T"}, schema="id int"))
    assert [found[n][0].op for n in range(3)] == ["upsert", "ignore", "ignore"]


# -- what a change must not lose ------------------------------------------------------------------
GONE = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ({"id": 1, "v": "kept"}, {"id": 2, "v": GONE}, {"id": 2, "v": "kept", "w": None}),
        ({"id": 1, "v": "kept", "w": 5}, {"id": 2, "v": "new"}, {"id": 2, "v": "new", "w": 5}),
        ({"id": 1}, {"id": 2, "v": GONE}, None),
        ({"id": 1, "v": GONE}, {"id": 2, "v": GONE}, None),
    ],
    ids=["value before", "column before", "nowhere", "unavailable twice"],
)
def test_a_changed_key_has_the_whole_row(
    before: dict[str, Any], after: dict[str, Any], wanted: dict[str, Any] | None
) -> None:
    lines = [d.message(d.change("u", before, after, PG))]
    found = by_row(adapted(json_records(lines), "debezium", {}, schema="id int, v string, w int"))[0]
    if wanted is None:
        assert [event.error for event in found] == ["a key change without the whole row"]
    else:
        assert [(event.op, event.row["id"]) for event in found] == [("delete", 1), ("upsert", 2)]
        assert found[1].row == wanted


def test_an_update_without_the_new_row_is_no_event() -> None:
    """The image before is the old row: as a new one, it would undo the update."""
    lines = [d.message(d.change("u", {"id": 1, "v": "old"}, None, PG))]
    (event,) = by_row(adapted(json_records(lines), "debezium", {}, schema="id int, v string"))[0]
    assert event.error == "no value for after, or of a delete for before or a key"


def test_metadata_in_headers() -> None:
    """``add.headers``: JSON with or without schema, or bare texts. The row's own fields go first."""
    given = {"unwrapped": True, "connector": "postgresql"}
    options = adapters.check("debezium", given, keys=("id",), format="json")
    adapter = adapters.named("debezium", options, keys=("id",), format="json")
    headers = {
        "__op": b'"d"',
        "__source_connector": b'{"schema":{"type":"string"},"payload":"postgresql"}',
        "__source_sequence": b'["100","120"]',
        "other": b"x",
    }
    (deleted,) = adapter.events(Record({"id": 1}, headers=headers))
    assert (deleted.op, deleted.row, deleted.sequence) == ("delete", {"id": 1}, f"{HERE}/1")
    bare = {**headers, "__op": b"c"}
    (created,) = adapter.events(Record({"id": 1, "v": 2}, headers=bare))
    assert (created.op, created.row) == ("upsert", {"id": 1, "v": 2})


def test_damaged_schemas_make_one_record_invalid() -> None:
    """Whatever a schema is, it raises nothing, and the other records arrive."""
    draw = random.Random(20261126)
    odd: list[Any] = [None, 7, "x", [], {}, [1], {"fields": 1}, "int32", {"type": "struct"}, -1, "1e9", GONE]

    def damaged(value: Any) -> Any:
        if draw.random() < 0.08:
            return draw.choice(odd)
        if isinstance(value, dict):
            return {name: damaged(part) for name, part in value.items() if draw.random() > 0.03}
        return [damaged(part) for part in value] if isinstance(value, list) else value

    fields = [field for field, *_ in ENCODINGS]
    values = {field["field"]: value for field, value, *_ in ENCODINGS}
    whole = json.loads(
        d.message(
            d.change("c", None, {"id": 1, **values}, PG), d.envelope_schema([d.field("id", "int32"), *fields])
        )
    )
    lines = [json.dumps(damaged(whole)) for _ in range(1_500)]
    found = by_row(
        adapted(json_records([*lines, json.dumps(whole)]), "debezium", {}, schema="id int, i8 tinyint")
    )
    assert len(found) == len(lines) + 1
    assert found[len(lines)][0].row == {"id": 1, "i8": -128}
    assert sum(events[0].error is not None for events in found.values()) > 100
