"""CloudEvents of Debezium: everything in the value, or attributes in headers."""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any

import pytest

from delta_cdc.ingest.adapters.cloudevents import header_value, unpack_cloud_event
from delta_cdc.ingest.record import Event, Invalid, Position, Record
from tests.support import adapters
from tests.support import debezium as d
from tests.support.adapters import check

SEQUENCE = '["100","120"]'
HERE = "00000000000000000100/1/00000000000000000120/1"
AT = 1_700_000_000_123_000
ROW = {"id": 1, "v": "a"}
#: What Debezium's converter writes for an event of PostgreSQL: all numbers of 64 bits are texts.
ATTRIBUTES = {
    "id": "name:shop;lsn:120;txId:556;sequence:100", "source": "/debezium/postgresql/shop",
    "specversion": "1.0",
    "type": "io.debezium.connector.postgresql.DataChangeEvent",
    "time": "2023-11-14T22:13:20.123Z", "datacontenttype": "application/json", "iodebeziumop": "u",
    "iodebeziumversion": "3.0.0.Final", "iodebeziumconnector": "postgresql", "iodebeziumname": "shop",
    "iodebeziumtsms": "1700000000123", "iodebeziumsnapshot": "false", "iodebeziumdb": "shop",
    "iodebeziumsequence": SEQUENCE, "iodebeziumschema": "public", "iodebeziumtable": "t",
    "iodebeziumtxId": "556", "iodebeziumlsn": "120", "iodebeziumxmin": None, "iodebeziumtxid": "556",
    "iodebeziumtxtotalorder": "1", "iodebeziumtxdatacollectionorder": "1",
}  # fmt: skip
made = partial(adapters.made, "debezium")


def structured(data: Any, **changes: Any) -> Record:
    return Record(json.loads(json.dumps({**ATTRIBUTES, **changes, "data": data})))


def binary(data: Any, **changes: Any) -> Record:
    headers = {
        f"ce_{name}": str(value).encode() for name, value in {**ATTRIBUTES, **changes}.items() if value
    }
    return Record(json.loads(json.dumps(data)), headers={**headers, "content-type": b"application/json"})


SCHEMA = d.envelope_schema([d.field("id", "int32"), d.field("v", "string")])
FLAT_SCHEMA = {"type": "struct", "fields": [d.field("id", "int32", "io.debezium.time.Date")]}
#: Changed attributes, data, events or the reason.
CASES: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "images": ({}, {"before": None, "after": ROW}, [Event("upsert", ROW, HERE, AT)]),
    "one image": ({"iodebeziumop": "d"}, {"before": ROW}, [Event("delete", ROW, HERE, AT)]),
    "key change": ({}, {"before": {"id": 2, "v": "a"}, "after": ROW},
        [Event("delete", {"id": 2, "v": "a"}, HERE[:-1] + "0", AT), Event("upsert", ROW, HERE, AT)]),
    "the row itself": ({}, ROW, [Event("upsert", ROW, HERE, AT)]),
    "the old row itself": ({"iodebeziumop": "d"}, ROW, [Event("delete", ROW, HERE, AT)]),
    "truncate": ({"iodebeziumop": "t"}, {"before": None, "after": None}, [Event("truncate", {}, HERE, AT)]),
    "unknown operation": ({"iodebeziumop": "x"}, {"after": ROW}, "unknown operation 'x'"),
    "no place": ({"iodebeziumsequence": "[]"}, {"after": ROW}, "no value for source.sequence"),
    "no place at all": ({"iodebeziumsequence": None}, {"after": ROW}, "no value for source.sequence"),
}  # fmt: skip


@pytest.mark.parametrize("mode", [structured, binary])
@pytest.mark.parametrize("case", CASES)
def test_events(case: str, mode: Any) -> None:
    changes, data, wanted = CASES[case]
    found = made().events(mode(data, **changes))
    check(found if isinstance(found, Invalid) else list(found), wanted)


@pytest.mark.parametrize("mode", [structured, binary])
def test_schemas_of_the_data(mode: Any) -> None:
    adapter = made()
    (found,) = adapter.events(mode({"schema": SCHEMA, "payload": {"before": None, "after": ROW}}))
    assert (found.row, list(found.encodings)) == (ROW, ["id", "v"])
    (found,) = adapter.events(mode({"schema": FLAT_SCHEMA, "payload": {"id": 5}}))
    assert (found.row, found.encodings["id"].coding) == ({"id": 5}, "days")
    # The envelope's schema is that of its images, also where the connector unwraps other events.
    unwrapping = made({"unwrapped": True, "connector": "postgresql"})
    (found,) = unwrapping.events(mode({"schema": SCHEMA, "payload": {"before": None, "after": ROW}}))
    assert list(found.encodings) == ["id", "v"]
    broken = {"type": "struct", "fields": [7]}
    for payload in ({"id": 5}, {"after": {"id": 5}}):
        found = adapter.events(mode({"schema": broken, "payload": payload}))
        assert found.reason.startswith("the schema of the message is damaged")


@pytest.mark.parametrize("data", [None, "AAAAAAE=", 7, [], {"schema": None, "payload": None}])
def test_data_that_is_no_object(data: Any) -> None:
    check(made().events(structured(data)), "the data of a CloudEvent is no JSON object")


def test_an_unwrapped_row_in_a_cloud_event() -> None:
    adapter = made({"unwrapped": True, "connector": "postgresql"})
    (found,) = adapter.events(structured({**ROW, "__deleted": "false"}))
    assert found == Event("upsert", ROW, HERE, AT)


def test_tables_and_other_connectors() -> None:
    assert made({"table": "other"}).events(structured({"after": ROW}))[0].op == "ignore"
    place = {
        "iodebeziumconnector": "sqlserver",
        "iodebeziumcommitlsn": "0000002A:00000001:0001",
        "iodebeziumchangelsn": "00000027:00000758:0005",
        "iodebeziumeventserialno": "2",
    }
    (found,) = made().events(structured({"after": ROW}, **place))
    assert found.sequence == "0000002a:00000001:0001/00000027:00000758:0005/0000000002/1"
    (found,) = made({"sequence_by": "transaction.total_order"}).events(structured({"after": ROW}))
    assert found.sequence == "1"


def test_members_of_the_source() -> None:
    found = unpack_cloud_event({**ATTRIBUTES, "iodebeziumtxid": None, "data": {}}, {})
    assert found is not None
    assert not isinstance(found, Invalid)
    assert found[0]["source"]["txId"] == "556"
    assert found[0]["transaction"] == {"total_order": "1", "data_collection_order": "1"}


def test_what_is_no_cloud_event() -> None:
    assert unpack_cloud_event({"specversion": "1.0", "data": {}}, {}) is None
    assert unpack_cloud_event({"iodebeziumop": "c", "data": {}}, {}) is None
    assert unpack_cloud_event({}, {"ce_specversion": b"1.0"}) is None
    envelope = d.change("c", None, ROW, d.postgresql(100, 120))
    assert made().events(Record({**envelope, "specversion": "1.0"}))[0].op == "upsert"
    # A tombstone has no data.
    headers = {f"ce_{name}": b"x" for name in ATTRIBUTES}
    assert made().events(Record(None, Position(offset=1), headers=headers))[0].op == "ignore"


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (b"u", "u"), (b'"u"', "u"), (b"12", 12), (b"true", True), (b"null", None),
        (b'{"schema":{},"payload":"u"}', "u"), (b'{"payload":5}', 5), (b'{"a":5}', {"a": 5}),
        (b"binlog.000003", "binlog.000003"),
        (b"00000027:00000758:0005", "00000027:00000758:0005"),
        (b"truth", "truth"), (b'{"a"', '{"a"'), (b"", ""), (b"\xff", "�"), (None, None),
    ],
)  # fmt: skip
def test_values_of_headers(raw: Any, wanted: Any) -> None:
    assert header_value(raw) == wanted


def test_nothing_raises() -> None:
    draw = random.Random(38)
    odd: list[Any] = [None, 7, "", "x", [], {}, {"after": 7}, b"\xff", "\ud800", {"payload": 5}, [[]]]
    adapter, flat = made(), made({"unwrapped": True, "connector": "mysql"})
    seen = {"invalid": 0, "event": 0}
    whole = {**ATTRIBUTES, "data": {"before": None, "after": dict(ROW)}}
    for number in range(10_000):
        kept = [name for name in whole if draw.random() > 0.01]
        value = {name: draw.choice(odd) if draw.random() < 0.03 else whole[name] for name in kept}
        names = kept if number % 4 == 0 else ()
        headers = {f"ce_{name}": draw.choice((b"", b"\xff", b"{", b"u")) for name in names}
        found = (flat if number % 3 == 0 else adapter).events(Record(value, headers=headers))
        seen["invalid" if isinstance(found, Invalid) else "event"] += 1
    assert min(seen.values()) > 1_000, seen
