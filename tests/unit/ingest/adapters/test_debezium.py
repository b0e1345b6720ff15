"""The adapter ``debezium``: envelopes, unwrapped rows, headers, placeholders, tombstones, order."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import uuid
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from delta_cdc.core.errors import InvalidConfiguration, InvalidExpression
from delta_cdc.ingest.record import Event, Invalid, Number, Record
from delta_cdc.ingest.types import INTEGER, LONG, STRING, Type, decimal
from delta_cdc.ingest.values import converter
from tests.support import adapters
from tests.support import debezium as d
from tests.support.adapters import IGNORED, LINE, MESSAGE, broken, check, events

PG = d.postgresql(100, 120)
AT = 1_700_000_000_123_000
HERE = "00000000000000000100/1/00000000000000000120"
ROW = {"id": 1, "v": "a", "w": None}
NOT_WHOLE = Invalid("a key change without the whole row")
FLAT_OPTIONS = {"unwrapped": True, "connector": "postgresql"}
made = partial(adapters.made, "debezium")


def event(op: str, row: dict[str, Any], index: int = 1, **more: Any) -> Event:
    return Event(op, row, f"{HERE}/{index}", AT, **more)


#: Case, value, key, events or the reason.
ENVELOPES: list[tuple[str, Any, Any, Any]] = [
    ("create", d.change("c", None, ROW, PG), None, [event("upsert", ROW)]),
    ("update", d.change("u", ROW, {**ROW, "v": "b"}, PG), None, [event("upsert", {**ROW, "v": "b"})]),
    ("delete", d.change("d", {"id": 1}, None, PG), None, [event("delete", {"id": 1})]),
    ("delete, whatever is after", d.change("d", {"id": 1}, ROW, PG), None, [event("delete", {"id": 1})]),
    ("delete by key", d.change("d", None, None, PG), b'{"id":1}', [event("delete", {"id": 1})]),
    ("delete by a key with a prefix", d.change("d", None, None, PG), b'\0\0\0\0\7{"id":1}',
        [event("delete", {"id": 1})]),
    ("delete by a key of Avro", d.change("d", None, None, PG), {"id": 1}, [event("delete", {"id": 1})]),
    ("delete by a key without types", d.change("d", None, None, PG),
     b'{"schema":{"type":"string"},"payload":{"id":1}}', [event("delete", {"id": 1})]),
    *(
        (
            f"delete by the key {key!r}",
            d.change("d", None, None, PG),
            key,
            "no value for after, or of a delete for before or a key",
        )
        for key in (None, b"", b"7", b'{"id":', b'{"schema":{},"payload":7}', [1])
    ),
    ("key change", d.change("u", {"id": 1, "v": "a"}, {"id": 2, "v": "b"}, PG), None,
     [event("delete", {"id": 1, "v": "a"}, 0), event("upsert", {"id": 2, "v": "b"})]),
    ("a key as text", d.change("u", {"id": 1}, {"id": "1"}, PG), None, [event("upsert", {"id": "1"})]),
    ("key of NULL", d.change("u", {"id": None}, {"id": 1}, PG), None, [event("upsert", {"id": 1})]),
    ("update without after", d.change("u", ROW, None, PG), None, "no value for after, or of a delete"),
    ("truncate", d.change("t", None, None, PG), None, [event("truncate", {})]),
    ("message of the log", d.change("m", None, None, PG), None, IGNORED),
    ("heartbeat", {"ts_ms": 5}, b'{"serverName":"shop"}', IGNORED),
    ("begin of a transaction", {"status": "BEGIN", "id": "571:53195829", "ts_ms": 5, "event_count": None,
     "data_collections": None}, None, IGNORED),
    ("end of a transaction", {"payload": {"status": "END", "id": "571", "event_count": 2,
     "data_collections": []}}, None, IGNORED),
    ("change of the schema", {"source": {"server": "shop"}, "ts_ms": 5, "ts_us": 5000, "databaseName": "shop",
     "schemaName": None, "ddl": "ALTER TABLE t ADD c INT", "tableChanges": []}, None, IGNORED),
    ("a row with ddl", {"source": "x", "databaseName": "shop", "ddl": "DROP"}, None,
     "no value for op: no change event"),
    ("a row with such columns", {"status": "END", "id": 1}, None, "no value for op: no change event"),
    ("tombstone", None, b'{"id":1}', IGNORED),
    ("tombstone with schema", {"schema": None, "payload": None}, None, IGNORED),
    ("payload alone", {"payload": d.change("c", None, ROW, PG)}, None, [event("upsert", ROW)]),
    ("unknown operation", d.change("x", None, ROW, PG), None, "unknown operation 'x'"),
    ("operation that is an object", d.change({"c": 1}, None, ROW, PG), None, "unknown operation '{\"c\":1}'"),
    ("no envelope", {"id": 1, "v": "a"}, None, "no value for op: no change event"),
    ("no object", [1], None, "not JSON"),
    ("payload that is a text", {"payload": "x"}, None, "not JSON"),
    ("an image that is a list", d.change("c", None, [1], PG), None, "before or after is no object"),
    ("a document", d.change("c", None, '{"_id":1}', PG), None,
     "before or after is no object, but text: documents of MongoDB need"),
    ("no place", d.change("c", None, ROW, {"connector": "postgresql"}), None, "no value for source.sequence"),
    ("no source", {"op": "c", "after": ROW}, None, "no order is known for the connector ''"),
    ("odd source", {"op": "c", "after": ROW, "source": "x"}, None, "no order is known for the connector ''"),
    ("another connector", d.change("c", None, ROW, {"connector": "x" * 99}), None,
     f"no order is known for the connector '{'x' * 40}':"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "key", "wanted"), [c[1:] for c in ENVELOPES], ids=[c[0] for c in ENVELOPES]
)
def test_envelopes(value: Any, key: Any, wanted: Any) -> None:
    check(events(made(), value, key), wanted)


@pytest.mark.parametrize(
    ("clocks", "wanted"),
    [
        ({"ts_ms": 5}, 5_000), ({"ts_ms": "5"}, 5_000),
        ({"ts_ms": 5, "ts_us": 5_678, "ts_ns": 5_678_999}, 5_678),
        ({"ts_ms": 5, "ts_ns": 5_678_999}, 5_678), ({"ts_ms": 5, "ts_us": 5_678}, 5_678),
        ({"ts_ms": -1}, -1_000), ({"ts_ms": 0}, 0),
        ({"ts_ms": 253_402_300_799_999}, 253_402_300_799_999_000),
        ({"ts_ms": 253_402_300_800_000}, None), ({"ts_ms": 10**18}, None),
        ({"ts_ms": "x", "ts_us": None}, None), ({}, None),
    ],
)  # fmt: skip
def test_the_finest_clock(clocks: dict[str, Any], wanted: int | None) -> None:
    source = {**PG, **clocks}
    if "ts_ms" not in clocks:
        del source["ts_ms"]
    (found,) = events(made(), d.change("c", None, ROW, source))
    assert found.source_timestamp == wanted


def test_rows_of_a_snapshot_may_be_in_order() -> None:
    value = d.change("r", None, ROW, d.postgresql(None, 900, snapshot="first"))
    for choice, commit in (("first", 0), ("in_order", 900)):
        (found,) = events(made({"snapshot_reads": choice}), value)
        assert found.sequence == f"{commit:020d}/0/{900:020d}/1"


def test_tables() -> None:
    for name in ("T", "public.t"):
        assert events(made({"table": name}), d.change("c", None, ROW, PG)) == [event("upsert", ROW)]
    for name in ("other", "other.t"):
        for value in (d.change("c", None, ROW, PG), {"status": "BEGIN"}):
            assert events(made({"table": name}), value) == IGNORED
    by_database = {**PG, "schema": None, "table": None, "collection": "t"}
    assert events(made({"table": "shop.t"}), d.change("c", None, ROW, by_database))[0].op == "upsert"


# -- values that are not there --------------------------------------------------------------------
MARK = d.PLACEHOLDER
RAW = MARK.encode()


def _uuid(text: str) -> str:
    """Return the UUID of version 3 of bytes without a name space, as Java makes it."""
    return str(uuid.UUID(bytes=hashlib.md5(text.encode(), usedforsecurity=False).digest(), version=3))


PLACEHOLDERS = {
    "text": MARK, "base64": base64.b64encode(RAW).decode(),
    "base64-url-safe": base64.urlsafe_b64encode(RAW).decode().rstrip("="),
    "hex": RAW.hex(), "HEX": RAW.hex().upper(), "bytes of Avro": RAW, "texts": [MARK],
    "list of bytes": [base64.b64encode(RAW).decode()], "list of bytes of Avro": [RAW], "numbers": list(RAW),
    "map": {MARK: MARK}, "map as JSON": json.dumps({MARK: MARK}),
    "short map as JSON": json.dumps({MARK: MARK}, separators=(",", ":")),
    "list as JSON": json.dumps([MARK]), "UUIDs": [_uuid(MARK)],
}  # fmt: skip
KEPT = {
    "twice": [MARK, MARK],
    "inside": {"a": MARK},
    "longer": MARK + "s",
    "shouted": MARK.upper(),
    "odd": [[]],
}


@pytest.mark.parametrize("is_flat", [False, True], ids=["envelope", "unwrapped"])
@pytest.mark.parametrize("form", PLACEHOLDERS)
def test_a_placeholder_is_no_value(form: str, is_flat: bool) -> None:
    row = {"id": 1, **KEPT, "gone": PLACEHOLDERS[form]}
    if is_flat:
        adapter = made(FLAT_OPTIONS)
        value: dict[str, Any] = {**row, "__op": "u", "__source_sequence": PG["sequence"]}
    else:
        adapter, value = made(), {"op": "u", "before": None, "after": row, "source": PG}
    (found,) = adapter.events(Record(value))
    assert found.row == {"id": 1, **KEPT}
    assert found.whole is False


def test_the_placeholder_is_an_option() -> None:
    adapter = made({"unavailable_value_placeholder": "n/a"})
    (found,) = events(adapter, d.change("u", None, {"id": 1, "v": "n/a", "x": b"n/a".hex(), "w": MARK}, PG))
    assert found.row == {"id": 1, "w": MARK}


def test_the_placeholder_may_be_hexadecimal() -> None:
    """The connector decodes it: a text has the text, bytes have the bytes."""
    adapter = made({"unavailable_value_placeholder": "hex:" + b"n/a".hex()})
    row = {"id": 1, "v": "n/a", "x": b"n/a".hex(), "y": base64.b64encode(b"n/a").decode(), "z": _uuid("n/a")}
    (found,) = events(adapter, d.change("u", None, {**row, "w": MARK, "z": [row["z"]]}, PG))
    assert found.row == {"id": 1, "w": MARK}
    adapter = made({"unavailable_value_placeholder": "hex:ff"})
    (found,) = events(adapter, d.change("u", None, {"id": 1, "v": "/w==", "w": "\ufffd"}, PG))
    assert found.row == {"id": 1}
    with pytest.raises(InvalidConfiguration, match="pairs of hexadecimal digits"):
        made({"unavailable_value_placeholder": "hex:0"})


@pytest.mark.parametrize("form", PLACEHOLDERS)
def test_a_changed_key_takes_the_value_from_before(form: str) -> None:
    after = {"id": 2, "w": 1, "v": PLACEHOLDERS[form]}
    value = {
        "op": "u",
        "source": PG,
        "before": {"id": 1, "v": "old", "w": 0, "x": 5, "y": MARK},
        "after": after,
    }
    delete, upsert = made().events(Record(value))
    assert delete.row == {"id": 1, "v": "old", "w": 0, "x": 5}
    # What is in the image before alone is known, too.
    assert (upsert.row, upsert.whole) == ({"id": 2, "v": "old", "w": 1, "x": 5}, False)


@pytest.mark.parametrize("before", [{"id": 1, "v": None}, {"id": 1}, {"id": 1, "v": MARK}])
def test_a_changed_key_needs_the_whole_row(before: dict[str, Any]) -> None:
    """An image of the key alone has NULL for all other columns, and a placeholder never stands for NULL."""
    assert events(made(), d.change("u", before, {"id": 2, "v": MARK}, PG)) == NOT_WHOLE


@pytest.mark.parametrize(("code", "whole"), [("c", True), ("r", True), ("u", False), ("C", True)])
def test_a_new_row_must_be_whole(code: str, whole: bool) -> None:
    """A connector may write a changed key as a delete and a create, whose large values are not in the log."""
    (found,) = events(made(), d.change(code, None, {"id": 2, "v": MARK}, PG))
    assert (found.row, found.whole) == ({"id": 2}, whole)
    flat = {"id": 2, "v": MARK, "__op": code, "__source_sequence": PG["sequence"]}
    (found,) = events(made(FLAT_OPTIONS), flat)
    assert (found.row, found.whole) == ({"id": 2}, whole)
    (found,) = events(made(), d.change(code, None, {"id": 2, "v": "there"}, PG))
    assert found.whole is False


# -- unwrapped ------------------------------------------------------------------------------------
META = {"__source_sequence": PG["sequence"], "__source_ts_ms": PG["ts_ms"]}
FLAT: list[tuple[dict[str, Any], Any]] = [
    ({"id": 1, "v": "a", "__op": "c", **META}, event("upsert", {"id": 1, "v": "a"})),
    ({"id": 1, "__op": "d", **META}, event("delete", {"id": 1})),
    ({"id": 1, "__deleted": "true", **META}, event("delete", {"id": 1})),
    ({"id": 1, "__deleted": True, "__op": "u", **META}, event("delete", {"id": 1})),
    ({"id": 1, "__deleted": "false", "__op": "d", **META}, event("delete", {"id": 1})),
    ({"id": 1, "__deleted": "false", "__other": 5, **META}, event("upsert", {"id": 1})),
    ({"id": 1, "__op": "t", **META}, event("truncate", {})),
    ({"id": 1, "__op": "m"}, Event("ignore", {})),
    ({"ts_ms": 5}, Event("ignore", {})),
    ({"ts_ms": 5, "__op": "c", **META}, event("upsert", {"ts_ms": 5})),
    ({"id": 1, "status": "END", **META}, "no value for __op or __deleted"),
    ({"id": 1, "__op": "c", "__sequence": PG["sequence"], "__ts_ms": PG["ts_ms"]},
     event("upsert", {"id": 1})),
    ({"id": 1, "__op": "c", "__sequence": "[1]", **META}, event("upsert", {"id": 1})),
    ({"id": 1, **META}, "no value for __op or __deleted, so deletes cannot be recognized"),
    ({"id": 1, "__deleted": "maybe", **META}, "unknown operation ''"),
    ({"id": 1, "__op": "z", **META}, "unknown operation 'z'"),
    ({"id": 1, "__op": "c", "__lsn": 5}, "no value for source.sequence"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "wanted"), FLAT)
def test_unwrapped(value: dict[str, Any], wanted: Any) -> None:
    check(events(made(FLAT_OPTIONS), value), wanted if isinstance(wanted, str) else [wanted])


def test_what_describes_an_unwrapped_event_is_no_column() -> None:
    adapter = made({"unwrapped": True, "connector": "postgresql", "field_prefix": "_m_"})
    assert [adapter.describes(name) for name in ("_m_x", "__op", "_M_x")] == [True, False, False]
    assert not made().describes("__op")
    (found,) = events(adapter, {"id": 1, "__op": 5, "_m_op": "c", "_m_source_sequence": PG["sequence"]})
    assert found.row == {"id": 1, "__op": 5}


def test_a_column_that_begins_like_an_added_field() -> None:
    """Mongoose writes ``__v`` into each document. ``schema`` or ``keys`` say that it is a column."""
    value = {"id": 1, "__v": 3, "__other": 4, "__op": "c", **META, "__lsn": 5}
    typed = {"id", "__v", "__op", "__lsn", "__source_ts_ms"}
    for facts in ({"typed": typed}, {"keys": ("id", "__V")}):
        adapter = made(FLAT_OPTIONS, **facts)
        assert events(adapter, value) == [event("upsert", {"id": 1, "__v": 3})]
        assert [name for name in value if not adapter.describes(name)] == ["id", "__v"]
    assert events(made(FLAT_OPTIONS), value) == [event("upsert", {"id": 1})]


HEADERS = {"__op": b'"u"', "__source_sequence": PG["sequence"].encode(), "__source_ts_ms": b"1700000000123"}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"__op": b"u"},
        {"__op": b'{"schema":{"type":"string","optional":false},"payload":"u"}'},
        {"__source_sequence": json.dumps(PG["sequence"]).encode()},
        {"__source_sequence": json.dumps({"schema": {}, "payload": PG["sequence"]}).encode()},
        {"other": b"\xff"},
        {"__source_lsn": b"\xff\x00"},
        {"__source_row": b"null"},
    ],
)
def test_headers_have_what_the_row_has_not(changed: dict[str, bytes]) -> None:
    adapter = made(FLAT_OPTIONS)
    assert events(adapter, {"id": 1}, None, **{**HEADERS, **changed}) == [event("upsert", {"id": 1})]


def test_the_row_goes_before_the_headers() -> None:
    adapter = made(FLAT_OPTIONS)
    (found,) = events(adapter, {"id": 1, "__op": "d", "__source_sequence": None}, None, **HEADERS)
    assert found == event("delete", {"id": 1})


# -- messages without a value -----------------------------------------------------------------------
DELETES = {"tombstones": "delete"}


FLAT_DELETES = {**DELETES, **FLAT_OPTIONS}
BY_OFFSET = {**DELETES, "sequence_by": "_offset"}
NO_DELETE = "a message without a value, which tombstones makes a delete, has nothing that orders it"
FLAT_DELETE = (
    "a message without a value: a delete that nothing orders. Set delete.tombstone.handling.mode=rewrite"
)
#: Options, key, headers; the reason, the sequence of a delete, or None if the message is left out.
TOMBSTONES: list[tuple[dict[str, Any], Any, dict[str, bytes], str | None]] = [
    ({}, b'{"id":1}', {}, None),
    ({"sequence_by": "_offset"}, b'{"id":1}', {}, None),
    (DELETES, b'{"id":1}', {}, NO_DELETE),
    (DELETES, b'{"id":1}', HEADERS, NO_DELETE),
    ({**DELETES, "sequence_by": "source.lsn"}, b'{"id":1}', {}, NO_DELETE),
    ({**DELETES, "sequence_by": "hash(op)"}, b'{"id":1}', {}, NO_DELETE),
    (BY_OFFSET, b'{"id":1}', {}, f"{42:020d}"),
    ({**DELETES, "sequence_by": ["_offset", "_offset"]}, b'{"id":1}', {}, f"{42:020d}/{42:020d}"),
    (BY_OFFSET, b'{"schema":{},"payload":{"id":1}}', {}, f"{42:020d}"),
    (BY_OFFSET, None, {}, "a message without a value, which tombstones makes a delete, has no key"),
    (BY_OFFSET, b'{"x":1}', {}, "the key of the message has no id"),
    (FLAT_DELETES, b'{"id":1}', {}, FLAT_DELETE),
    # With rewrite-with-tombstone and add.headers, such a message follows a delete.
    (FLAT_DELETES, b'{"id":1}', {"__op": b"d"}, FLAT_DELETE),
    ({**FLAT_OPTIONS, "tombstones": "ignore"}, b'{"id":1}', {"__op": b"d"}, None),
    (FLAT_DELETES, b'{"id":1}', {**HEADERS, "__op": b"d"}, f"{HERE}/1"),
    # The transformation's default makes a message without a value of a delete.
    (FLAT_OPTIONS, b'{"id":1}', {}, FLAT_DELETE),
    (FLAT_OPTIONS, b'{"id":1}', {**HEADERS, "__op": b"d"}, f"{HERE}/1"),
    ({**FLAT_OPTIONS, "sequence_by": "_offset"}, b'{"id":1}', {}, f"{42:020d}"),
    ({**FLAT_OPTIONS, "sequence_by": "source.lsn"}, b'{"id":1}', {"__op": b"d"}, FLAT_DELETE),
    ({**FLAT_DELETES, "connector": "mysql"}, b'{"id":1}', HEADERS, "no value for source.file"),
    ({**FLAT_DELETES, "table": "other"}, b'{"id":1}', {**HEADERS, "__source_table": b"t"}, None),
    ({**FLAT_DELETES, "table": "T"}, b'{"id":1}', {**HEADERS, "__source_table": b"t"}, f"{HERE}/1"),
    # The header need not be there.
    ({**FLAT_DELETES, "table": "other"}, b'{"id":1}', HEADERS, f"{HERE}/1"),
]


@pytest.mark.parametrize(("options", "key", "headers", "wanted"), TOMBSTONES)
def test_tombstones(options: dict[str, Any], key: Any, headers: dict[str, bytes], wanted: str | None) -> None:
    adapter = made(options)
    found = events(adapter, None, key, **headers)
    if wanted is None or isinstance(found, Invalid):
        check(found, IGNORED if wanted is None else wanted)
        return
    assert [(one.op, one.row) for one in found] == [("delete", {"id": 1})]
    assert found[0].source_timestamp == (AT if headers else None)
    assert adapters.sequences(adapter, found, {}) == [wanted]


def test_a_delete_by_key_is_written_as_the_schema_of_the_key_says() -> None:
    key = json.dumps(
        {
            "schema": {"type": "struct", "fields": [d.field("id", "int32", f"{d.CONNECT}.Date")]},
            "payload": {"id": 5},
        }
    )
    for options, value in (
        ({**DELETES, "sequence_by": "_offset"}, None),
        ({}, d.change("d", None, None, PG)),
    ):
        (found,) = events(made(options), value, key.encode())
        assert (found.op, found.encodings["id"].coding) == ("delete", "days")


def test_blank_lines_of_a_file_are_no_deletes() -> None:
    assert events(made(FLAT_OPTIONS), None, None, LINE) == IGNORED


# -- sequence_by ------------------------------------------------------------------------------------
VITESS = {"connector": "vitess", "lsn": 5, "ts_ms": 9, "vgtid": "x"}
CHANGE = {**d.change("c", None, {"id": 1}, VITESS), "transaction": {"total_order": 3}}


@pytest.mark.parametrize(
    ("texts", "log_type", "kind", "wanted"),
    [
        ("source.lsn", None, STRING, f"{5:020d}"), ("SOURCE.LSN", None, STRING, f"{5:020d}"),
        ("source.lsn", LONG, LONG, 5),
        ("ts_ms", None, STRING, f"{1_700_000_000_456:020d}"),
        ("_offset", None, STRING, f"{42:020d}"), ("_offset", LONG, LONG, 42),
        ("transaction.total_order", None, STRING, f"{3:020d}"),
        (["source.ts_ms", "transaction.total_order"], None, STRING, f"{9:020d}/{3:020d}"),
        ("cast(source.lsn as bigint)", None, LONG, 5), ("CAST ( source.lsn AS BIGINT )", None, LONG, 5),
        ("try_cast(source.lsn as int)", None, INTEGER, 5), ("bigint(source.lsn)", None, LONG, 5),
        ("cast(source.lsn as int)", LONG, LONG, 5),
        ("cast(source.lsn as decimal(20))", None, decimal(20, 0), Decimal(5)),
        (["cast(source.ts_ms as bigint)", "transaction.total_order"], None, STRING, f"{9:020d}/{3:020d}"),
        ("source.vgtid", None, STRING, None), ("cast(source.vgtid as bigint)", None, LONG, None),
        ("source.nothing", None, STRING, None), ("op", None, STRING, None),
        (["cast(source.vgtid as bigint)", "source.lsn"], None, STRING, None),
    ],
)  # fmt: skip
def test_members_that_order(texts: Any, log_type: Type | None, kind: Type, wanted: Any) -> None:
    adapter = made({"sequence_by": texts})
    assert adapter.expressions == ()
    sequencer = adapter.sequence({}, log_type)
    assert sequencer.type == kind
    found = events(adapter, CHANGE)
    value = found if isinstance(found, Invalid) else sequencer.value(found[0].sequence)
    lacking = Invalid("no value for sequence_by")
    assert value == (lacking if wanted is None else wanted)
    assert sequencer.value(None) == lacking


@pytest.mark.parametrize(
    "text", ["source.lsn + 1", "cast(source.lsn as string)", "lsn", "after.id", "hash(op)", "bigint(lsn)"]
)
def test_other_expressions_are_for_spark(text: str) -> None:
    """They see the envelope: texts, and the members of ``source``."""
    adapter = made({"sequence_by": [text, "source.lsn"]})
    assert adapter.expressions == (text, "source.lsn")
    (found,) = events(adapter, CHANGE)
    assert found.sequence is None
    assert found.others["source"]["lsn"] == 5
    assert {name: found.others[name] for name in ("op", "ts_us", "transaction")} == {
        "op": "c",
        "ts_us": None,
        "transaction": {"total_order": 3},
    }
    assert set(found.others) == set(adapter.member_types)
    assert set(dict(adapter.member_types["source"].fields)) == set(found.others["source"])


def test_the_transaction_of_an_unwrapped_event() -> None:
    adapter = made({**FLAT_OPTIONS, "sequence_by": "transaction.total_order"})
    for value, headers in (
        ({"__transaction_total_order": 7}, {}),
        ({}, {"__transaction_total_order": b"7"}),
        ({"__transaction_total_order": 7}, {"__transaction_total_order": b"8"}),
    ):
        (found,) = events(adapter, {"id": 1, "__op": "c", **value}, None, **headers)
        assert (found.row, found.sequence) == ({"id": 1}, 7)
    assert events(adapter, {"id": 1, "__op": "c"}) == Invalid("no value for sequence_by")


def test_an_option_names_the_connector_of_unwrapped_events() -> None:
    adapter = made({"unwrapped": True, "connector": "mysql", "sequence_by": "lower(source.connector)"})
    (found,) = events(adapter, {"id": 1, "__op": "c", "__source_file": "bin.1"})
    assert (found.others["source"]["connector"], found.others["source"]["file"]) == ("mysql", "bin.1")


def test_a_cast_needs_a_log_of_its_type() -> None:
    with pytest.raises(InvalidExpression, match="the log's sequences are texts"):
        made({"sequence_by": "cast(source.lsn as bigint)"}).sequence({}, STRING)


# -- whatever comes -----------------------------------------------------------------------------------
ODD: list[Any] = [
    *(None, True, 0, -1, 2**63, Number("1e400"), Number("-0.0"), "", "x" * 200, "\ud800", "[null]", "c"),
    *([], {}, [[]], {"": None}, b"\xff", 1.5, float("nan"), Decimal("sNaN"), Decimal("1e999999"), MARK),
]


def test_nothing_raises() -> None:
    """Each message has damage somewhere: in values, names, schema, key or headers."""
    draw = random.Random(38)
    fields = [
        d.field("f0", "int32", f"{d.CONNECT}.Date"),
        d.decimal_field("f1", 10, 2),
        d.field("f2", "struct", "io.debezium.data.VariableScaleDecimal"),
        d.field("f3", "map", keys={"type": "string"}, values={"type": "bytes"}),
        d.field("f4", "struct", fields=[d.field("a", "int64", "io.debezium.time.MicroTime")]),
        d.field("f5", "array", items={"type": "string"}),
    ]
    row = {"id": 1, **{field["field"]: draw.choice(ODD) for field in fields}}
    schema = d.envelope_schema([d.field("id", "int32"), *fields])

    def damaged(value: Any, share: float) -> Any:
        return broken(draw, value, ODD, share, ("", "op", "payload", MARK))

    schemas = [damaged(schema, 0.01) for _ in range(150)]
    flat = {"unwrapped": True, "connector": "postgresql", "tombstones": "delete"}
    some = [
        made(),
        made({"tombstones": "delete", "sequence_by": "_offset"}),
        made({"sequence_by": ["cast(source.lsn as bigint)", "transaction.total_order"]}),
        made({"sequence_by": "hash(op)", "table": "public.t"}),
        made(flat),
        made({"unwrapped": True, "connector": "oracle", "table": "t"}),
    ]
    sequencers = [adapter.sequence({}, None) for adapter in some]
    seen: dict[str, int] = {}
    for number in range(30_000):
        at = number % len(some)
        if at < 4:
            source = draw.choice((PG, {"connector": "oracle", "scn": "5"}, {"connector": "mysql", "pos": 4}))
            small = {"id": number, "v": draw.choice(ODD), "w": draw.choice(ODD)}
            code = draw.choice(("c", "u", "d", "u", "t", "r"))
            value: Any = damaged(d.change(code, {"id": 1}, small, source), 0.03)
        else:
            value = damaged({**row, "__op": "u", **META, "__deleted": draw.choice(ODD)}, 0.02)
        if number % 3 == 0:
            value = {"schema": draw.choice(schemas), "payload": value}
        headers = {"__op": b"u", "__source_sequence": draw.choice((b"\xff", b"[", b'["1","2"]', b"{}"))}
        key = draw.choice((None, b"", b'{"id":1}', b'{"id"', b"\xff", {"id": 2}, [3], 7))
        found = some[at].events(Record(value, MESSAGE, key, headers if number % 5 == 0 else {}))
        kind = "invalid" if isinstance(found, Invalid) else found[0].op
        seen[kind] = seen.get(kind, 0) + 1
        for one in () if isinstance(found, Invalid) else found:
            sequencers[at].value(one.sequence)
            for name, encoding in (one.encodings or {}).items():
                if number % 50 == 0 and name in one.row:
                    converter(encoding)(one.row[name])
    assert min(seen[kind] for kind in ("invalid", "upsert", "delete", "truncate")) > 300, seen
