"""The adapter ``mongodb``: documents as one column, or by their fields."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from delta_cdc.ingest.record import Event, Invalid
from delta_cdc.ingest.types import LONG, STRING, TIMESTAMP, VARIANT, Type
from delta_cdc.ingest.values import converter
from tests.support import adapters
from tests.support.adapters import IGNORED, broken, check

OID = {"$oid": "65531f90a4c1d2e3f4a5b6c7"}
ID_KEY = json.dumps({"id": json.dumps(OID)}).encode()
HERE = f"1700000000/{3:010d}/1/{0:010d}"
AT = 1_700_000_000_000_000
FULL = {"_id": OID, "name": "Ada", "n": {"$numberLong": "5"}}
WAY_OUT = "set capture.mode to change_streams_update_full in the connector"


def source(**changes: Any) -> dict[str, Any]:
    return {
        "version": "3.0.0.Final",
        "connector": "mongodb",
        "name": "shop",
        "ts_ms": 1_700_000_000_000,
        "snapshot": "false",
        "db": "shop",
        "collection": "people",
        "ord": 3,
        "lsid": None,
        "txnNumber": None,
        "wallTime": 1_700_000_000_456,
        **changes,
    }


def change(op: str, after: Any = None, **more: Any) -> dict[str, Any]:
    text = json.dumps(after) if isinstance(after, dict) else after
    given = {"before": None, "after": text, "updateDescription": None, "source": source(), "op": op}
    return {**given, "ts_ms": 1_700_000_000_789, "transaction": None, **more}


def described(updated: Any = None, removed: Any = None, truncated: Any = None) -> dict[str, Any]:
    text = json.dumps(updated) if isinstance(updated, dict) else updated
    return {"updatedFields": text, "removedFields": removed, "truncatedArrays": truncated}


def made(options: dict[str, Any] | None = None, *, has_schema: bool = False) -> Any:
    given = options or ({} if has_schema else {"document": "document"})
    typed = {"_id", "name", "n"} if has_schema else ()
    return adapters.made("mongodb", given, keys=("_id",), typed=typed)


def events(adapter: Any, value: Any, key: Any = ID_KEY) -> Any:
    return adapters.events(adapter, value, key)


def upsert(row: dict[str, Any]) -> Event:
    return Event("upsert", row, HERE, AT)


def delete(row: dict[str, Any]) -> Event:
    return Event("delete", row, HERE, AT)


TEXT = json.dumps(FULL)
DOCUMENT = upsert({"_id": OID, "document": TEXT})
IN_KEY = upsert({"_id": OID, "document": '{"name": "Ada"}'})
KEY = delete({"_id": OID})
NO_ID = "the document and the key of the message have no _id"
NO_KEY = "a delete without before and without a key of the message"
NO_PLACE = "no value for source.ts_ms and source.ord"
PARTIAL = f"an update without the whole document, and the document is one column: {WAY_OUT}; if"
PART = f"an update of a part of a field (address.city), without the field: {WAY_OUT}"
SHORTENED = f"an update that shortens a list, without the list itself: {WAY_OUT}"
TRUNCATE = Event("truncate", {}, HERE, AT)


def update(*arguments: Any) -> dict[str, Any]:
    return change("u", updateDescription=described(*arguments))


#: Case: value, key, the event of the fields, and that of the document if it is another; or reasons.
CASES: dict[str, tuple[Any, ...]] = {
    "create": (change("c", FULL), None, upsert(FULL), DOCUMENT),
    "whole update": (change("u", FULL), ID_KEY, upsert(FULL), DOCUMENT),
    "whole update, and what changed": (change("u", FULL, updateDescription=described({"a.b": 1})), ID_KEY,
        upsert(FULL), DOCUMENT),
    "with schema": ({"schema": {}, "payload": change("c", FULL)}, None, upsert(FULL), DOCUMENT),
    "document that is an object": ({**change("c"), "after": {"name": "Ada"}}, ID_KEY,
        upsert({"name": "Ada", "_id": OID}), upsert({"_id": OID, "document": {"name": "Ada"}})),
    "id in the key alone": (change("c", {"name": "Ada"}), ID_KEY, upsert({"name": "Ada", "_id": OID}),
        IN_KEY),
    "no id": (change("c", {"name": "Ada"}), None, NO_ID),
    "changed fields": (update({"name": "Eve", "n": None}), ID_KEY,
        upsert({"name": "Eve", "n": None, "_id": OID}), PARTIAL),
    "removed fields": (update(None, ["name", "old"], []), ID_KEY,
        upsert({"name": None, "old": None, "_id": OID}), PARTIAL),
    "part of a field": (update({"address.city": "Oslo"}), ID_KEY, PART, PARTIAL),
    "removed part of a field": (update({"name": "Eve"}, ["address.city"]), ID_KEY, PART, PARTIAL),
    "shortened list": (update({}, [], [{"field": "tags", "size": 2}]), ID_KEY, SHORTENED, PARTIAL),
    "changed fields without key": (update({"name": "Eve"}), None, NO_ID, PARTIAL),
    "what changed is a text": (change("u", updateDescription="x"), ID_KEY, "updateDescription is no object",
        PARTIAL),
    "changed fields that are a list": (update([1]), ID_KEY, "updatedFields is no document", PARTIAL),
    "removed fields that are a text": (update(None, "name"), ID_KEY, "removedFields is no list of names",
        PARTIAL),
    "removed fields that are numbers": (update(None, [1]), ID_KEY, "removedFields is no list of names",
        PARTIAL),
    "nothing": (change("u"), ID_KEY, "no value for after, nor for updateDescription"),
    "delete": (change("d"), ID_KEY, KEY),
    "delete with before": (change("d", before=TEXT), ID_KEY, delete(FULL), KEY),
    "delete by before alone": (change("d", before=TEXT), None, delete(FULL), KEY),
    "delete by before and the key": (change("d", before='{"name":"Ada"}'), ID_KEY,
        delete({"name": "Ada", "_id": OID}), KEY),
    "delete by before without id": (change("d", before="{}"), None, NO_ID),
    "delete by a damaged before": (change("d", before="{"), ID_KEY, "before is no document: not JSON"),
    "delete by a key with schema": (change("d"),
        json.dumps({"schema": {}, "payload": {"id": json.dumps(OID)}}).encode(), KEY),
    "delete by a key of Avro": (change("d"), {"id": json.dumps(OID)}, KEY),
    "delete by a whole number": (change("d"), b'{"id":"1004"}', delete({"_id": 1004})),
    "delete by a text": (change("d"), b'{"id":"\\"a\\""}', delete({"_id": "a"})),
    "delete by nothing": (change("d"), None, NO_KEY),
    "delete by a damaged key": (change("d"), b'{"id":"{"}', "not JSON"),
    "delete by no JSON": (change("d"), b"\xff", NO_KEY),
    "no document": (change("c", "[1]"), ID_KEY, "after is no document"),
    "damaged document": (change("c", '{"_id":'), ID_KEY, "after is no document: not JSON"),
    "half of a character": (change("c", '{"_id":1,"a":"\ud800"}'), ID_KEY, "after is no document: not UTF-8"),
    "document twice": (change("c", '{"_id":1,"_id":2}'), ID_KEY, "after is no document: not strict JSON"),
    "number as document": (change("c", 7), ID_KEY, "after is no document"),
    "truncate": (change("t"), None, TRUNCATE), "message": (change("m"), None, IGNORED[0]),
    "tombstone": (None, ID_KEY, IGNORED[0]),
    "tombstone with schema": ({"schema": None, "payload": None}, ID_KEY, IGNORED[0]),
    "unknown operation": (change("x", FULL), None, "unknown operation 'x'"),
    "no change": ({"_id": 1}, None, "no value for op: no change event"),
    "no object": ("x", None, "not JSON"),
    "no place": (change("c", FULL, source=source(ord=None)), None, NO_PLACE),
    "no source": (change("c", FULL, source=7), None, NO_PLACE),
}  # fmt: skip


@pytest.mark.parametrize("has_schema", [True, False], ids=["fields", "document"])
@pytest.mark.parametrize("case", CASES)
def test_events(case: str, has_schema: bool) -> None:
    value, key, fields, *document = CASES[case]
    found = events(made(has_schema=has_schema), value, key)
    wanted = fields if has_schema or not document else document[0]
    for one in found if isinstance(found, list) else ():
        one.encodings = None
    check(found, wanted if isinstance(wanted, str) else [wanted])


def test_a_whole_document_has_no_value_for_a_field_that_it_lacks() -> None:
    """Else a field that was removed would keep its value."""
    adapter = made(has_schema=True)
    adapter.sequence({"_id": STRING, "name": STRING, "old": LONG}, None)
    (found,) = events(adapter, change("u", FULL))
    assert found.row == {"_id": OID, "name": "Ada", "old": None, "n": {"$numberLong": "5"}}
    (found,) = events(adapter, change("u", updateDescription=described({"name": "Eve"})))
    assert found.row == {"_id": OID, "name": "Eve"}
    (found,) = events(adapter, change("d"))
    assert found.row == {"_id": OID}


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (STRING, OID, OID["$oid"]),
        (STRING, 1004, "1004"),
        (STRING, {"$numberLong": "1004"}, "1004"),
        (LONG, {"$numberLong": "5"}, 5),
        (TIMESTAMP, {"$date": 1_700_000_000_123}, 1_700_000_000_123_000),
        (STRING, {"a": 1}, '{"a":1}'),
    ],
)
def test_values_are_extended_json(kind: Type, value: Any, wanted: Any) -> None:
    assert converter(made(has_schema=True).encodings({"x": kind})["x"])(value) == wanted


def test_the_document_stays_as_it_is() -> None:
    adapter = made()
    text = '{"_id": {"$oid": "65531f90a4c1d2e3f4a5b6c7"},  "n": 1.50}'
    (found,) = events(adapter, change("c", text))
    for encodings in (found.encodings, adapter.encodings({"_id": STRING, "document": STRING})):
        assert {name: encodings[name].type for name in ("_id", "document")} == {
            "_id": STRING,
            "document": STRING,
        }
        assert converter(encodings["document"])(found.row["document"]) == text
        assert converter(encodings["_id"])(found.row["_id"]) == OID["$oid"]
    assert converter(adapter.encodings({"document": VARIANT})["document"])(text) == text


def test_order() -> None:
    """Second, entry, snapshot before changes, place in the transaction."""
    adapter = made(has_schema=True)
    sequencer = adapter.sequence({}, None)
    in_order = [
        change("c", FULL, source=source(ord=2)),
        change("r", FULL, source=source(snapshot="true")),
        change("r", FULL, source=source(snapshot="incremental")),
        change("u", FULL, transaction={"id": "x", "total_order": 2}),
        change("u", FULL, transaction={"id": "x", "total_order": 10}),
        change("u", FULL, source=source(ord=10)),
        change("u", FULL, source=source(ts_ms=1_700_000_001_000, ord=1)),
    ]
    texts = [sequencer.value(events(adapter, value)[0].sequence) for value in in_order]
    assert texts == sorted(texts)
    assert len(set(texts)) == len(texts)


def test_other_orders_and_tables() -> None:
    (found,) = events(made({"document": "d", "sequence_by": "_offset"}), change("c", FULL, source={}))
    assert found.sequence == f"{42:020d}"
    for value in (change("c", FULL), {"schema": {}, "payload": change("c", FULL)}):
        (found,) = events(made({"document": "d", "sequence_by": ["source.ord", "_offset"]}), value)
        assert found.sequence == f"{3:020d}/{42:020d}"
    odd = events(made({"document": "d", "sequence_by": "source.nothing"}), change("c", FULL))
    assert odd == Invalid("no value for sequence_by, or no number of at most 20 digits (source.nothing)")
    for name, op in (
        ("people", "upsert"),
        ("shop.People", "upsert"),
        ("x.people", "ignore"),
        ("x", "ignore"),
    ):
        assert events(made({"document": "d", "table": name}), change("c", FULL))[0].op == op


@pytest.mark.parametrize(
    ("options", "key", "wanted"),
    [
        ({}, ID_KEY, "ignore"),
        ({"tombstones": "delete"}, ID_KEY, "has nothing that orders it"),
        ({"tombstones": "delete", "sequence_by": "source.ord"}, ID_KEY, "has nothing that orders it"),
        ({"tombstones": "delete", "sequence_by": "_offset"}, ID_KEY, f"{42:020d}"),
        ({"tombstones": "delete", "sequence_by": "_offset"}, b"\0\0\0\0\7" + ID_KEY, f"{42:020d}"),
        ({"tombstones": "delete", "sequence_by": "_offset"}, None, "have no _id"),
        ({"tombstones": "delete", "sequence_by": "_offset"}, b'{"id":"{"}', "not JSON"),
    ],
)
def test_tombstones(options: dict[str, Any], key: Any, wanted: str) -> None:
    found = events(made({"document": "d", **options}), None, key)
    if isinstance(found, Invalid):
        assert wanted in found.reason
        return
    (one,) = found
    assert wanted in (one.op, one.sequence)
    assert one.row == ({"_id": OID} if one.op == "delete" else {})


def test_a_cloud_event() -> None:
    value = {"iodebeziumop": "c", "iodebeziumconnector": "mongodb", "iodebeziumord": 3, "specversion": "1.0"}
    value |= {"iodebeziumtsms": "1700000000000", "data": {"before": None, "after": TEXT}}
    assert events(made(has_schema=True), value) == [upsert(FULL)]


def test_options() -> None:
    adapter = made({"table": "people"})
    assert "there is no schema" in str(adapter.problem)
    for code in ("c", "d"):
        assert events(adapter, change(code, FULL)) == Invalid(str(adapter.problem))
    assert events(adapter, change("t"))[0].op == "truncate"
    assert made().problem is None
    assert made(has_schema=True).problem is None


def test_nothing_raises() -> None:
    draw = random.Random(38)
    odd: list[Any] = [
        *(None, 7, "", "{}", "[]", '{"_id":null}', '{"a', "\ud800"),
        *([], {}, [[]], {"$oid": 7}, b"\xff", True),
    ]
    some = [
        made(),
        made(has_schema=True),
        made({"document": "d", "sequence_by": ["_offset", "transaction.total_order"]}),
        made({"document": "d", "tombstones": "delete", "sequence_by": "_offset", "table": "people"}),
    ]

    seen: dict[str, int] = {}
    for number in range(30_000):
        value = change(
            draw.choice("crudtm"),
            draw.choice((None, TEXT, TEXT[: draw.randrange(len(TEXT))], FULL)),
            before=draw.choice((None, TEXT)),
            updateDescription=draw.choice(
                (
                    None,
                    described({"n": 1}, ["a"], draw.choice(odd)),
                    described(draw.choice(odd), draw.choice(odd)),
                )
            ),
        )
        adapter = some[number % 4]
        key = draw.choice((ID_KEY, None, b"", b"\xff", b"{}", {"id": draw.choice(odd)}, b'{"id":"["}', [1]))
        found = events(adapter, broken(draw, value, odd, 0.05), key)
        for one in () if isinstance(found, Invalid) else found:
            types = dict.fromkeys(one.row, STRING)
            for name, encoding in adapter.encodings(types).items():
                if number % 20 == 0:
                    converter(encoding)(one.row[name])
        kind = "invalid" if isinstance(found, Invalid) else found[0].op
        seen[kind] = seen.get(kind, 0) + 1
    assert min(seen[kind] for kind in ("invalid", "upsert", "delete", "truncate", "ignore")) > 300, seen
