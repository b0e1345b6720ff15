"""Records of Avro through adapters to rows: files that fastavro writes, and messages with ids of schemas."""

from __future__ import annotations

import io
import json
import zlib
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest

from delta_cdc.ingest import adapters, local, sources
from delta_cdc.ingest.batch import (
    COLUMNS,
    OP,
    RAW,
    REASON,
    SEQUENCE,
    UNKNOWN,
    Found,
    Maker,
    found_of,
    ids_of,
    read_of,
)
from delta_cdc.ingest.layout import layout
from delta_cdc.ingest.reading import Reading
from delta_cdc.ingest.record import Invalid
from delta_cdc.ingest.records.avro import SchemaId
from delta_cdc.ingest.types import LONG, STRING
from tests.support.change_sets import quarantined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NOON = datetime(2026, 1, 2, 12, 0, 0, 123456, UTC)


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


ROW = record(
    "Row",
    ("id", "long"),
    ("ts", "long"),
    ("v", ["null", "string"]),
    ("amount", logical("bytes", "decimal", precision=20, scale=4)),
    ("day", ["null", logical("int", "date")]),
    ("at", logical("long", "timestamp-micros")),
    ("local", logical("long", "local-timestamp-micros")),
    ("clock", logical("long", "time-micros")),
    ("blob", "bytes"),
    ("size", "double"),
    ("tags", {"type": "array", "items": "string"}),
    ("more", {"type": "map", "values": "int"}),
    ("inner", record("Inner", ("a", ["null", "int"]), ("nothing", "null"))),
    ("nothing", "null"),
)
VALUE: dict[str, Any] = {
    "id": 1, "ts": 7, "v": "x", "amount": Decimal("1234567890123456.7891"), "day": date(2026, 1, 2),
    "at": NOON, "local": NOON.replace(tzinfo=None), "clock": time(1, 2, 3, 4), "blob": b"\xff\x00",
    "size": 0.1, "tags": ["a", "b"], "more": {"k": 5}, "inner": {"a": None, "nothing": None}, "nothing": None,
}  # fmt: skip
TYPES = {
    "id": "bigint", "ts": "bigint", "v": "string", "amount": "decimal(20,4)", "day": "date",
    "at": "timestamp", "local": "timestamp_ntz", "clock": "string", "blob": "binary", "size": "double",
    "tags": "array<string>", "more": "map<string,int>", "inner": "struct<a:int,nothing:string>",
}  # fmt: skip


def enveloped(image: Any) -> dict[str, Any]:
    """Return the schema of Debezium's envelope for PostgreSQL.

    :param image: the schema of a row, of the name ``Value``
    """
    source = record("Source", ("connector", "string"), ("sequence", "string"), ("table", "string"))
    images = (("before", ["null", image]), ("after", ["null", "Value"]))
    return record("Envelope", *images, ("source", source), ("op", "string"))


def placed(lsn: int) -> dict[str, str]:
    """Return the source of a change at a position of the log."""
    return {"connector": "postgresql", "sequence": f'["1","{lsn}"]', "table": "t"}


def reading_of(adapter: str = "plain", options: Mapping[str, Any] | None = None, **more: Any) -> Reading:
    given = {"sequence_by": "ts"} if options is None else dict(options)
    checked = adapters.check(adapter, given, keys=("id",), format="avro")
    return Reading(
        format="avro",
        adapter=adapter,
        adapter_options=checked,
        keys=("id",),
        is_whole=True,
        numbered=True,
        **more,
    )


def file_of(path: Path, schema: Any, values: Sequence[Any], codec: str = "deflate") -> Path:
    is_ours = codec in _BLOCKS
    with path.open("wb") as out:
        fastavro.writer(out, schema, values, codec="null" if is_ours else codec, sync_marker=_MARK)
    if is_ours:
        # fastavro compresses so only with a further library: the one block of the file is compressed here.
        head, body = path.read_bytes().replace(b"\x08null", _length(codec) + codec.encode()).split(_MARK)[:2]
        data = b"".join(binary(schema, value) for value in values)
        assert body.endswith(data)
        block = _BLOCKS[codec](data)
        count, size = (binary("long", number) for number in (len(values), len(block)))
        path.write_bytes(head + _MARK + count + size + block + _MARK)
    return path


_MARK = bytes(range(16))
#: How blocks are compressed, as the specification of Avro says: behind data of snappy is its CRC.
_BLOCKS = {
    "snappy": lambda data: pa.compress(data, "snappy", asbytes=True) + zlib.crc32(data).to_bytes(4, "big"),
    "zstandard": lambda data: pa.compress(data, "zstd", asbytes=True),
}


def _length(text: str) -> bytes:
    return binary("long", len(text))


def rows_of(path: Path, reading: Reading) -> tuple[dict[str, str], list[dict[str, Any]]]:
    complete = local.complete(reading, path, None)
    types = {name: str(kind) for name, kind in complete.columns}
    return types, local.rows_of_file(complete, path)


def binary(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def messages(rows: Sequence[tuple[bytes | None, bytes | None, dict[str, bytes]]]) -> pa.RecordBatch:
    """Return messages: value, key, headers."""
    count = len(rows)
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    texts = [[{"key": n, "value": v} for n, v in headers.items()] for _, _, headers in rows]
    return pa.RecordBatch.from_pydict(
        {
            sources.VALUE: pa.array([raw for raw, _, _ in rows], pa.binary()),
            sources.KEY: pa.array([key for _, key, _ in rows], pa.binary()),
            sources.HEADERS: pa.array(texts, header),
            sources.TOPIC: pa.array(["t"] * count),
            sources.PARTITION: pa.array([0] * count, pa.int32()),
            sources.OFFSET: pa.array(range(count), pa.int64()),
            sources.PUBLISHED: pa.nulls(count, pa.int64()),
        }
    )


def made(batch: pa.RecordBatch, reading: Reading) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return the columns of a first batch of messages, and its rows."""
    found = Found()
    for part in found_of(reading)(iter([batch])):
        for text in part.column(0).to_pylist():
            found.merge(Found.of_text(text))
    columns, others = layout(reading.made_adapter(), None, None, {}, found, keys=reading.keys, excluded=())
    complete = reading.with_columns(columns, others)
    rows = [row for part in Maker(complete).batches([batch]) for row in part.to_pylist()]
    return {name: str(kind) for name, kind in columns}, rows


# -- files --------------------------------------------------------------------------------------
@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy", "zstandard"])
def test_a_file_keeps_its_types(tmp_path: Path, codec: str) -> None:
    """Each value is the one that fastavro wrote; a field that is always null is no column yet."""
    path = file_of(tmp_path / "a.avro", ROW, [VALUE, {**VALUE, "id": 2, "v": None, "day": None}], codec)
    types, rows = rows_of(path, reading_of())
    assert types == TYPES
    wanted = {name: value for name, value in VALUE.items() if name != "nothing"}
    wanted |= {"clock": "01:02:03.000004", "more": [("k", 5)]}
    for row, changed in zip(rows, ({}, {"id": 2, "v": None, "day": None}), strict=True):
        assert {name: row[name] for name in TYPES} == wanted | changed
        assert (row[OP], row[REASON], row[SEQUENCE]) == ("upsert", None, 7)
        assert set(row[COLUMNS]) == {*TYPES, "nothing"}


def test_an_invalid_record_keeps_its_exact_value(tmp_path: Path) -> None:
    """A record that is no event goes to quarantine as JSON, and a replay reads the same from it."""
    values = [{**VALUE, "id": 1}, {**VALUE, "id": 2, "ts": -1}]
    path = file_of(tmp_path / "a.avro", ROW, values)
    reading = reading_of(
        options={"sequence_by": "ts", "operation_column": "v", "operations": {"y": "upsert"}}
    )
    _, rows = rows_of(path, reading)
    assert [row[REASON] for row in rows] == ["unknown operation 'x'"] * 2
    texts = json.loads(rows[0][RAW])
    assert (texts["id"], texts["at"]) == (1, "2026-01-02T12:00:00.123456Z")
    assert '"amount":1234567890123456.7891' in rows[0][RAW].replace(" ", "")
    columns = local.complete(reading_of(), path, None)
    batch = quarantined([row[RAW] for row in rows], file="/a.avro")
    parts = Maker(replace(columns, is_again=True)).batches([batch])
    replayed = [row for part in parts for row in part.to_pylist()]
    direct = local.rows_of_file(columns, path)
    assert [{name: row[name] for name in TYPES} for row in replayed] == [
        {name: row[name] for name in TYPES} for row in direct
    ]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda raw: raw[:-20], "is a damaged file: not Avro: "),
        (lambda raw: b"no Avro at all", "is a damaged file: not Avro: it is no object container file"),
        (lambda raw: raw[:40], "is a damaged file: not Avro: "),
        (lambda raw: raw[:-30] + bytes(14) + raw[-16:], "is a damaged file: not Avro"),
    ],
    ids=["end", "other", "header", "zeros"],
)
def test_a_damaged_file_is_refused_as_a_whole(tmp_path: Path, damage: Any, reason: str) -> None:
    path = file_of(tmp_path / "a.avro", ROW, [VALUE] * 50, "null")
    path.write_bytes(damage(path.read_bytes()))
    reading = reading_of()
    with pytest.raises(sources.FileDamaged, match=reason):
        list(read_of(reading)(local.batches_of(path, reading)))
    with pytest.raises(sources.FileDamaged, match=str(path)):
        local.complete(reading, path, None)


def test_a_file_without_bytes(tmp_path: Path) -> None:
    path, reading = tmp_path / "a.avro", reading_of()
    path.write_bytes(b"")
    assert [len(batch) for batch in read_of(reading)(local.batches_of(path, reading))] == [0]


def test_debeziums_envelope_in_a_file(tmp_path: Path) -> None:
    """Connect's names of types are those of the schema: values are written as in its JSON."""
    image = record(
        "Value",
        ("id", "int"),
        ("price", logical("bytes", "decimal", precision=10, scale=2)),
        ("at", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp", "connect.version": 1}),
        ("day", {"type": "int", "connect.name": "io.debezium.time.Date"}),
        ("blob", "bytes"),
    )
    envelope = enveloped(image)
    micros = int(NOON.timestamp()) * 1_000_000 + NOON.microsecond
    row = {"id": 1, "price": Decimal("12.34"), "at": micros, "day": 20455, "blob": b"\x01"}
    values = [
        {"before": None, "after": row, "source": placed(5), "op": "c"},
        {"before": row, "after": None, "source": placed(6), "op": "d"},
        {"before": None, "after": row, "source": placed(5), "op": "?"},
    ]
    path = file_of(tmp_path / "a.avro", envelope, values)
    types, rows = rows_of(path, reading_of("debezium", {}))
    kinds = {"id": "int", "price": "decimal(10,2)", "at": "timestamp", "day": "date", "blob": "binary"}
    assert types == kinds
    wanted = {"id": 1, "price": Decimal("12.34"), "at": NOON, "day": date(2026, 1, 2), "blob": b"\x01"}
    found = [(row[OP], {name: row[name] for name in types}) for row in rows[:2]]
    assert found == [("upsert", wanted), ("delete", wanted)]
    texts = json.loads(rows[2][RAW])
    assert (rows[2][REASON], texts["payload"]["after"]["price"]) == ("unknown operation '?'", "BNI=")
    assert texts["schema"]["name"] == "Envelope"


# -- messages -----------------------------------------------------------------------------------
OLD = record("R", ("id", "long"), ("ts", "long"), ("v", "string"))
NEW = record("R", ("id", "long"), ("ts", "long"), ("v", "string"), ("day", logical("int", "date")))
KEY = record("K", ("id", "long"))
SCHEMAS: dict[SchemaId, str | None] = {
    SchemaId(1): json.dumps(OLD),
    SchemaId(2): json.dumps(NEW),
    SchemaId(3): json.dumps(KEY),
    SchemaId(4): None,
    SchemaId(9, is_content=False): json.dumps(OLD),
    SchemaId(9, is_content=True): json.dumps(NEW),
}


def prefixed(number: int, schema: Any, value: Any) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + binary(schema, value)


def test_messages_of_several_schemas() -> None:
    """A new field of a later schema is a new column; an unknown schema stops its messages alone."""
    old, new = {"id": 1, "ts": 1, "v": "a"}, {"id": 2, "ts": 2, "v": "b", "day": date(2026, 1, 2)}
    in_header = {"apicurio.value.globalId": (9).to_bytes(8, "big")}
    by_content = {"apicurio.value.contentId": (9).to_bytes(8, "big")}
    batch = messages(
        [
            (prefixed(1, OLD, old), None, {}),
            (prefixed(2, NEW, new), None, {}),
            (b"\0" + (2).to_bytes(8, "big") + binary(NEW, {**new, "id": 3}), None, {}),
            (binary(OLD, {**old, "id": 4}), None, in_header),
            (binary(NEW, {**new, "id": 5}), None, by_content),
            (prefixed(4, OLD, old), None, {}),
            (prefixed(1, OLD, old) + b"!", None, {}),
            (b'{"id":1}', None, {}),
            (b"", None, {}),
            (None, None, {}),
        ]
    )
    types, rows = made(batch, reading_of(is_messages=True, schemas=SCHEMAS))
    assert types == {"id": "bigint", "ts": "bigint", "v": "string", "day": "date"}
    day, first = date(2026, 1, 2), ["id", "ts", "v"]
    assert [(row["id"], row["day"]) for row in rows[:5]] == [
        (1, None),
        (2, day),
        (3, day),
        (4, None),
        (5, day),
    ]
    assert all(row[COLUMNS] == ([*first, "day"] if row["day"] else first) for row in rows[:5])
    no_id = "not Avro: it does not begin with a zero byte and the id of a schema"
    after = "not Avro as schema 1 says: 1 bytes after the value"
    reasons = ["not Avro: the registry has no schema 4", after, no_id, no_id, None]
    assert [row[REASON] for row in rows[5:]] == reasons
    assert sources.bytes_of(rows[6][RAW]) == prefixed(1, OLD, old) + b"!"
    assert rows[9][OP] == "ignore"


def test_the_id_of_a_schema_of_another_type_concerns_one_message() -> None:
    """Others may use the registry for other formats, and a number as a key looks like an id."""
    foreign = Invalid("not Avro: schema 4 of the registry is of the type PROTOBUF")
    value, key = {"id": 1, "ts": 1, "v": "a"}, (4 << 24 | 5).to_bytes(8, "big")
    batch = messages(
        [
            (prefixed(1, OLD, value), key, {}),
            (b"\0\0\0\0\4\0noise", None, {}),
            (prefixed(1, OLD, {**value, "id": 2}), None, {}),
        ]
    )
    _, rows = made(batch, reading_of(is_messages=True, schemas={**SCHEMAS, SchemaId(4): foreign}))
    assert [row[REASON] for row in rows] == [None, foreign.reason, None]
    assert [row["id"] for row in rows if row[REASON] is None] == [1, 2]


def test_the_ids_that_messages_name() -> None:
    """Also those of keys; a number that a serializer of numbers wrote as a key does not count."""
    batch = messages(
        [
            (prefixed(1, OLD, {"id": 1, "ts": 1, "v": ""}), prefixed(3, KEY, {"id": 1}), {}),
            (None, (5).to_bytes(8, "big"), {}),
            (b"", b"\0\0\0\7", {"apicurio.value.globalId": (2**64 - 1).to_bytes(8, "big")}),
            (b"{}", b"text", {}),
        ]
    )
    found = pa.Table.from_batches(ids_of([batch])).to_pylist()
    ids = {(row["number"] % 2**64, row["is_content"]) for row in found}
    assert ids == {(1, None), (3, None), (2**64 - 1, False)}


def test_a_tombstone_deletes_by_the_key_in_avro() -> None:
    value = {"id": 1, "ts": 1, "v": "a"}
    batch = messages(
        [
            (prefixed(1, OLD, value), prefixed(3, KEY, {"id": 1}), {}),
            (None, prefixed(3, KEY, {"id": 1}), {}),
            (None, b'{"id": 8}', {}),
            (None, prefixed(4, KEY, {"id": 1}), {}),
        ]
    )
    options = {"sequence_by": "_offset", "tombstones": "delete"}
    _, rows = made(batch, reading_of(options=options, is_messages=True, schemas=SCHEMAS))
    assert [(row[OP], row["id"]) for row in rows[:3]] == [("upsert", 1), ("delete", 1), ("delete", 8)]
    assert "key" in rows[3][REASON]


def test_debezium_finds_the_row_of_a_delete_in_the_key() -> None:
    image = record("Value", ("id", "int"), ("v", "string"))
    envelope = enveloped(image)
    create = {"before": None, "after": {"id": 1, "v": "x"}, "source": placed(5), "op": "c"}
    delete = {"before": None, "after": None, "source": placed(6), "op": "d"}
    schemas = {SchemaId(1): json.dumps(envelope), SchemaId(3): json.dumps(KEY)}
    key = prefixed(3, KEY, {"id": 1})
    batch = messages([(prefixed(1, envelope, create), key, {}), (prefixed(1, envelope, delete), key, {})])
    types, rows = made(batch, reading_of("debezium", {}, is_messages=True, schemas=schemas))
    assert types == {"id": "int", "v": "string"}
    assert [(row[OP], row["id"], row["v"]) for row in rows] == [("upsert", 1, "x"), ("delete", 1, None)]


def test_a_replay_knows_the_schema_that_a_header_named() -> None:
    """Headers are not kept, so the raw form has the id in itself."""
    raw = binary(OLD, {"id": 1, "ts": 1, "v": "a"})
    batch = messages([(raw, None, {"apicurio.value.globalId": (9).to_bytes(8, "big")})])
    broken = reading_of(
        options={"sequence_by": "ts", "operation_column": "v", "operations": {"y": "upsert"}},
        is_messages=True,
        schemas=SCHEMAS,
    )
    _, rows = made(batch, broken)
    assert rows[0][REASON] == "unknown operation 'a'"
    kept = sources.bytes_of(rows[0][RAW])
    assert kept == b"\0" + (9).to_bytes(8, "big") + raw
    again = messages([(kept, None, {})])
    ids = pa.Table.from_batches(ids_of([again])).to_pylist()
    assert ids == [{"number": 9, "is_content": None}]
    columns = (("id", LONG), ("ts", LONG), ("v", STRING))
    fine = reading_of(is_again=True, schemas={SchemaId(9): json.dumps(OLD)}, columns=columns)
    (replayed,) = [
        row for part in Maker(fine).batches([quarantined([rows[0][RAW]])]) for row in part.to_pylist()
    ]
    assert (replayed[OP], replayed["id"], replayed["v"], replayed[REASON]) == ("upsert", 1, "a", None)


def test_a_new_column_gets_the_type_of_its_schema(tmp_path: Path) -> None:
    """Not the type that the values of the batch seem to have."""
    path = file_of(tmp_path / "a.avro", ROW, [{**VALUE, "amount": Decimal("1.0000")}])
    reading = reading_of(columns=(("id", LONG), ("ts", LONG)))
    (batch,) = Maker(reading).batches(local.batches_of(path, reading))
    found = Found.of_text(batch.column(UNKNOWN)[0].as_py())
    assert str(found.typed["amount"]) == "decimal(20,4)"
