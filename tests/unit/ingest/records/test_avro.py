"""Avro, against fastavro's writer and reader; messages, against those of Confluent's serializer."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import random
import ssl
import struct
import time as clock
import zlib
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from delta_cdc.core.errors import DeltaCdcError, InvalidConfiguration, SourceUnreadable, StoreUnavailable
from delta_cdc.ingest.record import Invalid
from delta_cdc.ingest.records import avro
from delta_cdc.ingest.records.avro import (
    Decoded,
    MessageDecoder,
    Schema,
    SchemaId,
    compiled,
    object_file,
    schema_id,
)
from delta_cdc.ingest.records.registry import Registry, inlined
from tests.support.schema_registry import Served, serving

if TYPE_CHECKING:
    from collections.abc import Iterator


def record(*fields: tuple[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, **more, "fields": [{"name": n, "type": t} for n, t in fields]}


def made(schema: Any, **options: Any) -> Schema:
    found = compiled(json.dumps(schema), **options)
    assert isinstance(found, Schema), found
    return found


def written(schema: Any, value: Any) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


NOON = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
DECIMAL = logical("bytes", "decimal", precision=10, scale=2)
FIXED = {"type": "fixed", "name": "F", "size": 6}


# -- values -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("schema", "value", "sql"),
    [
        ("boolean", True, "boolean"),
        ("int", -(2**31), "int"),
        ("int", 2**31 - 1, "int"),
        *[("long", value, "bigint") for value in (0, -1, 63, 64, -65, 2**40, -(2**63), 2**63 - 1)],
        ("float", 0.5, "float"),
        ("double", 1e300, "double"),
        ("double", float("inf"), "double"),
        ("bytes", b"\x00\xff", "binary"),
        ("string", "ü\U0001f600", "string"),
        ("string", "x" * 100, "string"),
        (FIXED, b"123456", "binary"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "string"),
        ({"type": "array", "items": "int"}, list(range(200)), "array<int>"),
        (
            {"type": "array", "items": {"type": "array", "items": "string"}},
            [[], ["a"]],
            "array<array<string>>",
        ),
        ({"type": "map", "values": "long"}, {"a": 1, "": 2}, "map<string,bigint>"),
        (["null", "string"], None, "string"),
        (["null", "string"], "x", "string"),
        (["string", "null"], None, "string"),
        (["string", "null"], "x", "string"),
        (["int", "long", "null"], 2**40, "bigint"),
        (["float", "double"], 1e300, "double"),
        (["string", "long"], 5, "string"),
        (["null", "string", {"type": "array", "items": "int"}], [1], "string"),
        ([record(("a", "int"))], {"a": 1}, "struct<a:int>"),
        (
            record(("a", "int"), ("b c", ["null", "string"])),
            {"a": 1, "b c": None},
            "struct<a:int,`b c`:string>",
        ),
        (logical("int", "date"), date(1, 1, 1), "date"),
        (logical("int", "date"), date(9999, 12, 31), "date"),
        (logical("int", "time-millis"), time(23, 59, 59, 999000), "string"),
        (logical("long", "time-micros"), time(0, 0, 0, 1), "string"),
        (logical("long", "timestamp-millis"), NOON.replace(microsecond=123000), "timestamp"),
        (logical("long", "timestamp-micros"), NOON, "timestamp"),
        (logical("long", "timestamp-micros"), datetime(1, 1, 1, tzinfo=UTC), "timestamp"),
        (logical("long", "local-timestamp-millis"), datetime(1969, 12, 31, 23, 59), "timestamp_ntz"),  # noqa: DTZ001
        (logical("long", "local-timestamp-micros"), NOON.replace(tzinfo=None), "timestamp_ntz"),
        (DECIMAL, Decimal("-12345678.90"), "decimal(10,2)"),
        (logical("bytes", "decimal", precision=4), Decimal(-128), "decimal(4,0)"),
        ({**FIXED, "logicalType": "decimal", "precision": 10, "scale": 1}, Decimal("-0.1"), "decimal(10,1)"),
        (logical("string", "uuid"), "9b2f7a4e-0f5c-4a9e-8a44-6f0d7f6f1a11", "string"),
        # Logical types that are unknown or impossible do not count.
        (logical("string", "iso-date"), "x", "string"),
        (logical("string", "date"), "x", "string"),
        (logical("long", "time-millis"), 5, "bigint"),
    ],
)
def test_values(schema: Any, value: Any, sql: str) -> None:
    found = made(schema)
    back = found.value(written(schema, value))
    assert (type(back), back, str(found.type)) == (type(value), value, sql)


@pytest.mark.parametrize(
    ("schema", "number", "wanted"),
    [
        (logical("int", "date"), 2**31 - 1, 2**31 - 1),
        (logical("int", "date"), -719_163, -719_163),
        (logical("long", "timestamp-micros"), 2**63 - 1, 2**63 - 1),
        (logical("long", "timestamp-millis"), -(2**63), -(2**63)),
        (logical("long", "timestamp-micros"), -62_135_596_800_000_001, -62_135_596_800_000_001),
        (logical("long", "local-timestamp-millis"), 253_402_300_800_000, 253_402_300_800_000),
        (logical("long", "timestamp-nanos"), -1, datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
        (logical("long", "timestamp-nanos"), 1_999, datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        (logical("int", "time-millis"), 86_400_000, 86_400_000),
        (logical("int", "time-millis"), -1, -1),
        (logical("long", "time-nanos"), 1_000, time(0, 0, 0, 1)),
    ],
)
def test_numbers_that_are_no_dates_stay(schema: dict[str, Any], number: int, wanted: Any) -> None:
    raw = written(schema["type"], number)
    assert made(schema).value(raw) == wanted
    assert made(schema, is_connect=True).value(raw) == number


def test_decimals_are_exact() -> None:
    schema = made(logical("bytes", "decimal", precision=3, scale=1))
    for number in (66051, -66051, 0, 2**400, -(2**400)):
        raw = number.to_bytes(60, "big", signed=True)
        assert schema.value(written("bytes", raw)) * 10 == number or abs(number) == 2**400
        digits = schema.value(written("bytes", raw)).as_tuple()
        assert int("".join(map(str, digits.digits))) == abs(number)
        assert digits.exponent == -1
    assert schema.value(written("bytes", b"")) == 0
    assert made(logical("bytes", "decimal", precision=60, scale=1)).type.name == "string"
    assert schema.value(written("bytes", b"1" * 1_001)) == Invalid("a decimal of 1001 bytes")
    for more in (
        {"precision": 0},
        {"precision": 2, "scale": 3},
        {"precision": "4"},
        {},
        {"precision": 4, "scale": -1},
    ):
        assert str(made(logical("bytes", "decimal", **more)).type) == "binary"
    assert made(DECIMAL, is_connect=True).value(b"\x04\x01\x02") == b"\x01\x02"


def test_a_type_in_a_type() -> None:
    assert made({"type": {"type": "long"}}).value(b"\x0a") == 5
    assert made({"type": logical("int", "date"), "connect.name": "x"}).value(b"\x02") == date(1970, 1, 2)


def test_a_uuid_of_bytes() -> None:
    schema = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    assert made(schema).value(bytes(range(16))) == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert made(schema, is_connect=True).value(bytes(range(16))) == bytes(range(16))


END = "it ends inside of a value, or has a number that its schema does not allow"
WIDE = "a number of more than 64 bits"


@pytest.mark.parametrize(
    ("schema", "raw", "reason"),
    [
        ("boolean", b"\x02", "a boolean that is neither 0 nor 1"),
        ("boolean", b"", END),
        ("int", b"\xff\xff\xff\xff\x1f", "a number of more than 32 bits"),
        ("long", b"\xff" * 10 + b"\x01", WIDE), ("long", b"\xff" * 9 + b"\x02", WIDE),
        ("long", b"\x80" * 10 + b"\0", WIDE), ("long", b"\xff\xff", END), ("float", b"\0\0\0", END),
        ("double", b"\0" * 7, END),
        ("bytes", b"\x01x", "a length of -1 bytes where 1 are left"),
        ("bytes", b"\x06ab", "a length of 3 bytes where 2 are left"),
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f",
         f"a length of {2**62 - 1} bytes where 0 are left"),
        ("string", b"\x02\xff", "a text that is not UTF-8"),
        (FIXED, b"12345", "a length of 6 bytes where 5 are left"),
        (["null", "string"], b"\x01\x02x", "a branch of a union that its schema does not have"),
        (["null", "string"], b"\x04\x02x", "a branch of a union that its schema does not have"),
        (["null", "string", "int"], b"\x01\x02x", "a branch of a union that its schema does not have"),
        (["null", "string", "int"], b"\x06\x02x", END),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", "a symbol that its schema does not have"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", END),
        ({"type": "map", "values": "int"}, b"\x04\x02a\x02\x02a\x04\0", "the key a twice in a map"),
        ({"type": "array", "items": "int"}, b"\x02\x02", END),
        ({"type": "array", "items": "int"}, b"\x01\x40\x02\0", "a block of 32 bytes where 2 are left"),
        ({"type": "array", "items": "int"}, b"\x01\x03\x02\0", "a block of -2 bytes where 2 are left"),
        ("int", b"\x02\x02\x02", "2 bytes after the value"),
    ],
)  # fmt: skip
def test_damage(schema: Any, raw: bytes, reason: str) -> None:
    assert made(schema).value(raw) == Invalid(reason)


def test_a_block_with_its_size() -> None:
    assert made({"type": "array", "items": "int"}).value(b"\x03\x04\x02\x04\x02\x06\0") == [1, 2, 3]


# -- schemas ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("[", "is not JSON: "),
        ("[" * 1000, "that can be read: it has more than 256 levels"),
        ("5", "has a type that is neither a name, an object nor a list"),
        ('{"type":5}', "has a type that is neither a name, an object nor a list"),
        ("[]", "has a union without types"),
        ('"text"', "has no type text"),
        (record(("n", ["null", "R"])), "has the type R, which contains itself"),
        (record(("n", {"type": "array", "items": "R"})), "which contains itself"),
        (record(("n", {"type": "map", "values": record(("x", "R"), name="S")})), "which contains itself"),
        (record(("a", "int"), ("a", "int")), "has a field twice in the record R"),
        (record(("a", record(("b", "int")))), "defines the type R twice"),
        ({"type": "record", "name": "R"}, "has no fields in the record R"),
        ({"type": "record", "name": "R", "fields": [{"type": "int"}]}, "has no fields in the record R"),
        ({"type": "record", "fields": []}, "has a type without a name"),
        ({"type": "enum", "name": "E"}, "has no symbols in the enumeration E"),
        ({"type": "fixed", "name": "F"}, "has no size of the fixed type F"),
        ({"type": "fixed", "name": "F", "size": -1}, "has no size of the fixed type F"),
        ({"type": "fixed", "name": "F", "size": True}, "has no size of the fixed type F"),
        ({"type": "array"}, "has a type that is neither"),
        ({"type": "array", "items": "null"}, "has an array of values without bytes"),
        ({"type": "array", "items": record()}, "has an array of values without bytes"),
    ],
)
def test_refused_schemas(schema: Any, reason: str) -> None:
    found = compiled(schema if isinstance(schema, str) else json.dumps(schema))
    assert isinstance(found, Invalid)
    assert found.reason.startswith("its Avro schema ")
    assert reason in found.reason


def test_schemas_that_grow() -> None:
    """Short texts whose types are huge, or deep."""
    twice: dict[str, Any] = record(("x", "int"), name="R0")
    for number in range(1, 40):
        twice = record(("a", twice), ("b", f"R{number - 1}"), name=f"R{number}")
    found = compiled(json.dumps(twice))
    assert found == Invalid("its Avro schema has more than 10000 fields, with all parts of records")
    chain = record(
        ("r", record(("x", "int"), name="R0")),
        *[(f"f{number}", record(("x", f"R{number - 1}"), name=f"R{number}")) for number in range(1, 200)],
    )
    assert compiled(json.dumps(chain)) == Invalid("its Avro schema has more than 100 levels")
    arrays: Any = "int"
    for _ in range(120):
        arrays = {"type": "array", "items": arrays}
    assert compiled(json.dumps(arrays)) == Invalid("its Avro schema has more than 100 levels")
    types: Any = "int"
    for _ in range(200):
        types = {"type": types}
    assert compiled(json.dumps(types)) == Invalid("its Avro schema has more than 150 levels")
    for _ in range(60):
        types = [types]
    assert isinstance(compiled(json.dumps(types)), Invalid)


def test_names() -> None:
    """Names with and without namespaces, as the specification resolves them."""
    inner = record(("x", "int"), name="Inner")
    schema = record(
        ("a", inner),
        ("b", "Inner"),
        ("c", "shop.Inner"),
        ("d", record(("e", "Inner"), ("f", "shop.Inner"), name="other.D")),
        ("g", {"type": "enum", "name": "E", "namespace": "", "symbols": ["S"]}),
        name="shop.R",
    )
    value = {"a": {"x": 1}, "b": {"x": 2}, "c": {"x": 3}, "g": "S"}
    bad = compiled(json.dumps(schema))
    assert bad == Invalid("its Avro schema has no type Inner")
    schema["fields"][3]["type"]["fields"].pop(0)
    value["d"] = {"f": {"x": 4}}
    assert made(schema).value(written(schema, value)) == value


CONNECT = "org.apache.kafka.connect.data"
PRICE = {"connect.parameters": {"scale": "2", "x": "y"}}
ROW_OF_CONNECT = {"type": "struct", "name": "srv.V", "fields": [{"type": "float", "field": "f"}]}
#: Name and schema of a field, and what Kafka Connect's schema says of it.
FIELDS: list[tuple[str, Any, dict[str, Any]]] = [
    ("id", "int", {"type": "int32"}),
    ("small", {"type": "int", "connect.type": "int16"}, {"type": "int16"}),
    ("v", ["null", "string"], {"type": "string", "optional": True}),
    ("t", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp", "connect.version": 1},
     {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1}),
    ("day", logical("int", "date", **{"connect.name": f"{CONNECT}.Date"}),
     {"type": "int32", "name": f"{CONNECT}.Date"}),
    ("ts", logical("long", "timestamp-millis"), {"type": "int64", "name": f"{CONNECT}.Timestamp"}),
    ("price", logical("bytes", "decimal", precision=5, scale=2, **PRICE),
     {"type": "bytes", "name": f"{CONNECT}.Decimal",
      "parameters": {"scale": "2", "connect.decimal.precision": "5", "x": "y"}}),
    ("list", {"type": "array", "items": "double"}, {"type": "array", "items": {"type": "double"}}),
    ("map", {"type": "map", "values": ["null", "boolean"]},
     {"type": "map", "keys": {"type": "string"}, "values": {"type": "boolean", "optional": True}}),
    ("row", record(("f", "float"), name="V", **{"connect.name": "srv.V"}), ROW_OF_CONNECT),
    ("again", ["null", "V"], {**ROW_OF_CONNECT, "optional": True}),
    ("u", ["null", "string", "int"], {"type": "string", "optional": True}),
]  # fmt: skip


def test_connect() -> None:
    """What a schema of Kafka Connect's converter says again."""
    schema = record(*((name, kind) for name, kind, _ in FIELDS), **{"connect.name": "srv.Envelope"})
    fields = [{"field": name, **wanted} for name, _, wanted in FIELDS]
    assert made(schema).connect == {"type": "struct", "name": "srv.Envelope", "fields": fields}


# -- against fastavro ---------------------------------------------------------------------------
class Drawn:
    """Draws schemas, and values of them."""

    LOGICAL = (
        *(DECIMAL, logical("int", "date")),
        *(logical("long", "timestamp-micros"), logical("int", "time-millis")),
    )
    SIMPLE = ("null", "boolean", "int", "long", "double", "bytes", "string", "enum", "fixed", "logical")

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._number = 0

    def name(self) -> str:
        self._number += 1
        return f"T{self._number}"

    def schema(self, level: int = 0) -> Any:
        chance = self.chance
        nested = () if level > 3 else ("record", "record", "array", "map", "union")
        kind = chance.choice((*self.SIMPLE, *nested))
        if kind == "record":
            fields = [(f"f{n}", self.schema(level + 1)) for n in range(chance.randrange(1, 5))]
            return record(*fields, name=self.name())
        if kind in ("array", "map"):
            below = self.schema(level + 1)
            has_bytes = below != "null" and (not isinstance(below, dict) or written_size(below))
            return {"type": kind, "items" if kind == "array" else "values": below if has_bytes else "string"}
        if kind == "union":
            # Kinds that a value identifies.
            return chance.sample(["null", "string", "boolean", "bytes", "double"], chance.randrange(1, 4))
        if kind == "enum":
            return {"type": "enum", "name": self.name(), "symbols": ["A", "B", "C"]}
        if kind == "fixed":
            return {"type": "fixed", "name": self.name(), "size": chance.randrange(1, 5)}
        return chance.choice(self.LOGICAL) if kind == "logical" else kind

    def value(self, schema: Any) -> Any:
        chance = self.chance
        if isinstance(schema, list):
            return self.value(chance.choice(schema))
        kind = schema.get("logicalType", schema["type"]) if isinstance(schema, dict) else schema
        if kind == "record":
            return {field["name"]: self.value(field["type"]) for field in schema["fields"]}
        if kind == "array":
            return [self.value(schema["items"]) for _ in range(chance.randrange(4))]
        if kind == "map":
            return {f"k{n}": self.value(schema["values"]) for n in range(chance.randrange(4))}
        micros = chance.randrange(3 * 10**17)
        return {
            "null": None,
            "boolean": chance.random() < 0.5,
            "int": chance.randrange(-(2**31), 2**31) >> chance.randrange(32),
            "long": chance.randrange(-(2**63), 2**63) >> chance.randrange(64),
            "double": chance.uniform(-1e9, 1e9),
            "bytes": chance.randbytes(chance.randrange(80)),
            "string": "ü" * chance.randrange(80),
            "enum": chance.choice("ABC"),
            "fixed": chance.randbytes(schema["size"]) if kind == "fixed" else b"",
            "decimal": Decimal(chance.randrange(-(10**9), 10**9)).scaleb(-2),
            "date": date.fromordinal(chance.randrange(1, 3_652_060)),
            "timestamp-micros": datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros),
            "time-millis": time(chance.randrange(24), 59, 59, 1000 * chance.randrange(1000)),
        }[str(kind)]


def written_size(schema: Any) -> int:
    """Return whether values of a schema have bytes."""
    if isinstance(schema, dict) and schema["type"] == "record":
        return sum(written_size(field["type"]) for field in schema["fields"])
    return 0 if schema == "null" else 1


def test_drawn_values() -> None:
    drawn = Drawn(38)
    for _ in range(400):
        schema = record(("v", drawn.schema()), ("w", drawn.schema()), name=drawn.name())
        found = made(schema)
        for _ in range(5):
            value = drawn.value(schema)
            assert found.value(written(schema, value)) == value


def without_logical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [without_logical(branch) for branch in schema]
    if isinstance(schema, dict):
        return {name: without_logical(part) for name, part in schema.items() if name != "logicalType"}
    return schema


def test_damaged_values() -> None:
    """Nothing raises; what is accepted is what fastavro reads of all the bytes."""
    drawn, accepted = Drawn(7), 0
    chance = drawn.chance
    for _ in range(300):
        schema = record(("v", drawn.schema()), ("w", drawn.schema()), name=drawn.name())
        found, other = made(schema, is_connect=True), fastavro.parse_schema(without_logical(schema))
        plain = made(schema)
        raw = written(schema, drawn.value(schema))
        for _ in range(40):
            data = bytearray(raw)
            for _ in range(chance.choice((1, 1, 2))):
                at = chance.randrange(len(data) + 1)
                if chance.random() < 0.3:
                    del data[at : at + chance.randrange(1, 4)]
                elif chance.random() < 0.3:
                    data[at:at] = chance.randbytes(chance.randrange(1, 4))
                elif at < len(data):
                    data[at] = chance.randrange(256)
            value = found.value(bytes(data))
            assert isinstance(plain.value(bytes(data)), Invalid) == isinstance(value, Invalid)
            if not isinstance(value, Invalid):
                accepted += 1
                file = io.BytesIO(data)
                assert repr(fastavro.schemaless_reader(file, other)) == repr(value)
                assert file.tell() == len(data)
    assert 1_000 < accepted < 11_000


def test_no_length_costs_more_than_its_bytes() -> None:
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    items = made(record(("a", {"type": "array", "items": "int"}), ("b", {"type": "map", "values": "string"})))
    began = clock.process_time()
    assert isinstance(items.value(huge + b"\0" * 100_000), Invalid)
    assert isinstance(items.value(b"\0" + huge + b"\0" * 100_000), Invalid)
    assert isinstance(made("bytes").value(huge), Invalid)
    assert clock.process_time() - began < 30


# -- messages -----------------------------------------------------------------------------------
ROW = record(
    ("id", "long"), ("v", ["null", "string"]), ("at", logical("long", "timestamp-millis")), name="shop.Row"
)
VALUE = {"id": 7, "v": "x", "at": NOON.replace(microsecond=0)}
RAW = written(ROW, VALUE)


@pytest.mark.parametrize(
    ("raw", "headers", "wanted"),
    [
        (b"\0\0\0\0\x07" + RAW, {}, SchemaId(7)),
        (b"\0\x7f\xff\xff\xff" + RAW, None, SchemaId(2**31 - 1)),
        (b"\0" + (9).to_bytes(8, "big") + RAW, None, SchemaId(9)),
        (RAW, {"apicurio.value.globalId": (2**40).to_bytes(8, "big")}, SchemaId(2**40, is_content=False)),
        (RAW, {"apicurio.value.contentId": (5).to_bytes(8, "big"), "other": b"x"},
         SchemaId(5, is_content=True)),
        (RAW, {"apicurio.value.globalId": b"5"},
         Invalid("the header apicurio.value.globalId has 1 bytes, not 8")),
        (b'{"a":1}', {}, Invalid("it does not begin with a zero byte and the id of a schema")),
        (b"", {}, Invalid("it does not begin with a zero byte and the id of a schema")),
        (b"\0\0\x01", {}, Invalid("it ends inside of the id of its schema")),
        (b"\0\0\0\0\0\x01", {}, Invalid("it ends inside of the id of its schema")),
    ],
)  # fmt: skip
def test_ids(raw: bytes, headers: dict[str, bytes] | None, wanted: Any) -> None:
    assert schema_id(raw, headers) == wanted


FOREIGN = Invalid("not Avro: schema 10 of the registry is of the type JSON")


def test_messages() -> None:
    global_7, key_8 = (SchemaId(number, is_content=False) for number in (7, 8))
    texts = {SchemaId(7): json.dumps(ROW), global_7: json.dumps(ROW), SchemaId(9): '{"type":"x"}'}
    decode, message = (
        MessageDecoder({**texts, SchemaId(5): None, SchemaId(10): FOREIGN}),
        b"\0\0\0\0\x07" + RAW,
    )
    in_header = {"apicurio.value.globalId": (7).to_bytes(8, "big")}
    for found in (decode(message), decode(message), decode(RAW, in_header)):
        assert isinstance(found, Decoded)
        assert found.value == VALUE
        assert str(found.schema.type) == "struct<id:bigint,v:string,at:timestamp>"
    assert decode(message).schema is decode(message).schema  # type: ignore[union-attr]
    raw = MessageDecoder(texts, is_connect=True)(message)
    assert isinstance(raw, Decoded)
    assert raw.value["at"] == int(VALUE["at"].timestamp() * 1000)  # type: ignore[attr-defined]
    headers = {"apicurio.key.globalId": (8).to_bytes(8, "big"), "apicurio.value.globalId": b""}
    kept = MessageDecoder({key_8: json.dumps("string")}, part="key")(b"\x02x", headers)
    assert isinstance(kept, Decoded)
    assert kept.value == "x"
    for body, reason in (
        (b"\0\0\0\0\x05" + RAW, "not Avro: the registry has no schema 5"),
        (b"\0\0\0\0\x06" + RAW, "schema 6 was not requested: the batch names more than 1000"),
        (message + b"!", "not Avro as schema 7 says: 1 bytes after the value"),
        (message[:-1], f"not Avro as schema 7 says: {END}"),
        (b"\0\0\0\0\x07", f"not Avro as schema 7 says: {END}"),
        (b"\0\0\0\0\x09" + RAW, "its Avro schema has no type x"),
        (b"\0\0\0\0\x0a" + RAW, FOREIGN.reason),
        (b"{}", "not Avro: it does not begin with a zero byte and the id of a schema"),
    ):
        assert decode(body) == decode(body) == Invalid(reason)


# -- files --------------------------------------------------------------------------------------
ROWS = [
    {"id": number, "v": None if number % 3 else f"v{number}", "at": NOON.replace(microsecond=0)}
    for number in range(500)
]


def file_of(codec: str, rows: list[dict[str, Any]] = ROWS) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, fastavro.parse_schema(ROW), rows, codec=codec, sync_interval=1_000)
    return file.getvalue()


def packed(codec: str, compress: Any) -> bytes:
    """Return a file whose blocks are compressed by a function."""
    texts = ("avro.schema", json.dumps(ROW), "avro.codec", codec)
    out, sync = b"Obj\x01\x04" + b"".join(written("string", text) for text in texts) + b"\0", b"s" * 16
    out += sync
    for at in range(0, 500, 100):
        block = compress(b"".join(written(ROW, row) for row in ROWS[at : at + 100]))
        out += written("long", 100) + written("bytes", block) + sync
    return out


def values_of(raw: bytes, **options: Any) -> list[Any]:
    found = object_file(raw, **options)
    assert not isinstance(found, Invalid), found
    return list(found)


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_files(codec: str) -> None:
    raw = file_of(codec)
    assert values_of(raw) == ROWS
    found = object_file(raw)
    assert not isinstance(found, Invalid)
    assert str(found.schema.type) == "struct<id:bigint,v:string,at:timestamp>"
    assert values_of(raw, is_connect=True)[0]["at"] == int(NOON.replace(microsecond=0).timestamp() * 1000)
    assert values_of(file_of(codec, [])) == []


def snappy_size(data: bytes) -> int:
    return data[0] & 0x7F | (data[1] & 0x7F) << 7 | (data[2] << 14 if data[1] > 0x7F else 0)


def test_codecs_of_the_caller() -> None:
    def compress(data: bytes) -> bytes:
        return bytes(pa.compress(data, "snappy", asbytes=True)) + struct.pack(">I", zlib.crc32(data))

    def decompress(data: bytes) -> bytes:
        return bytes(pa.decompress(data, snappy_size(data), "snappy", asbytes=True))

    raw = packed("snappy", compress)
    assert values_of(raw, codecs={"snappy": decompress}) == ROWS
    assert object_file(raw) == Invalid(
        "its blocks are compressed with snappy, which is not read; write it with deflate"
    )
    damaged = packed("snappy", lambda data: compress(data)[:-1] + b"\0")
    assert values_of(damaged, codecs={"snappy": decompress})[-1] == Invalid(
        "not Avro: a block whose checksum is another one"
    )
    bomb = packed("snappy", lambda _: b"\xff\xff\xff\xff\x0f" + b"\0" * 10)
    assert values_of(bomb, codecs={"snappy": decompress}) == [
        Invalid("not Avro: a block that is incomplete, or larger than the limit")
    ]


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz"])
def test_damaged_blocks(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert values_of(packed(codec, lambda _: b"no")) in (
        [Invalid(f"not Avro: a block that is not compressed with {codec}")],
        [Invalid("not Avro: a block that is incomplete, or larger than the limit")],
    )
    whole = {"deflate": lambda data: zlib.compress(data)[2:], "bzip2": bz2.compress, "xz": lzma.compress}[
        codec
    ]
    assert values_of(packed(codec, whole)) == ROWS
    assert values_of(packed(codec, lambda data: whole(data)[:-30])) == [
        Invalid("not Avro: a block that is incomplete, or larger than the limit")
    ]
    monkeypatch.setattr(avro, "MOST_BLOCK_BYTES", 100)
    assert isinstance(values_of(file_of(codec))[-1], Invalid)
    assert len(values_of(file_of(codec))) == 1


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_incomplete_files(codec: str) -> None:
    """Each value before the end is given, and the rest is one reason, wherever the file ends."""
    raw = file_of(codec)
    header = raw.index(b"\0", raw.index(b"avro.codec")) + 17
    for end in [*range(0, header, 7), *range(header, len(raw), 97)]:
        found = object_file(raw[:end])
        if end < header:
            assert isinstance(found, Invalid)
            continue
        assert not isinstance(found, Invalid)
        values = list(found)
        good = [value for value in values if not isinstance(value, Invalid)]
        assert good == ROWS[: len(good)]
        assert len(values) - len(good) <= 1
        assert values[:-1] == good[: len(values) - 1]


def test_other_files() -> None:
    assert object_file(b"{}") == Invalid("not Avro: it is no object container file")
    assert object_file(b"Obj\x01") == Invalid(f"not Avro: {END}")
    assert isinstance(object_file(b"Obj\x01\0" + b"0" * 16), Invalid)
    head, by_schema = file_of("null", []), "not Avro as the schema of its file says: "
    for block, reason in (
        (b"\x01\0", "not Avro: a block of -1 values"),
        (b"\x0a" + written("bytes", RAW), f"{by_schema}a block of 5 values in {len(RAW)} bytes"),
        (b"\x02" + written("bytes", RAW + b"\0"), f"{by_schema}1 bytes after the values"),
        (b"\x02" + written("bytes", b"\0" * 2), f"{by_schema}a block of 1 values in 2 bytes"),
        (b"\x02" + written("bytes", RAW[:-1]), f"{by_schema}it ends inside"),
        (b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\0", "values in 0 bytes"),
    ):
        assert reason in values_of(head + block + head[-16:])[-1].reason
    unmarked = values_of(head + b"\x02" + written("bytes", RAW) + b"0" * 16)
    assert unmarked == [Invalid("not Avro: a block without the mark at its end")]
    empty = io.BytesIO()
    fastavro.writer(empty, fastavro.parse_schema(record()), [{}, {}])
    assert values_of(empty.getvalue()) == [Invalid(f"{by_schema}a block of 2 values in 0 bytes")]


# -- registries ---------------------------------------------------------------------------------
@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as found:
        yield found


def test_confluents_serializer(served: Served) -> None:
    """What Confluent's own client writes, by the schemas that it registered."""
    client = SchemaRegistryClient({"url": served.url})
    schemas: dict[SchemaId, str | None] = {}
    for topic, value in (("a", VALUE), ("b", {**VALUE, "id": -1, "v": None})):
        schema = {**ROW, "name": f"shop.{topic}"}
        write = AvroSerializer(client, json.dumps(schema))
        raw = write(value, SerializationContext(topic, MessageField.VALUE))
        number = schema_id(raw)
        assert isinstance(number, SchemaId)
        text = Registry(served.url).schema(number.number, is_content=number.is_content)
        assert text is not None
        schemas[number] = text
        found = MessageDecoder(schemas)(raw)
        assert isinstance(found, Decoded)
        assert found.value == value
    assert sorted(schemas) == [SchemaId(1), SchemaId(2)]


def test_confluents_registry(served: Served) -> None:
    number = served.register("t-value", json.dumps(ROW))
    found = Registry(f"{served.url}/")
    assert found.schema(number) == found.schema(number) == json.dumps(ROW)
    assert served.requests == [f"GET /schemas/ids/{number}"]
    assert found.schema(99) is None


def test_references(served: Served) -> None:
    country = record(("code", "string"), name="Country", namespace="geo")
    address = record(("country", "geo.Country"), ("city", "string"), name="Address")
    customer = record(
        ("home", "Address"),
        ("work", ["null", "Address"]),
        ("at", "geo.Country"),
        name="Customer",
        namespace="shop",
    )
    served.register("geo/x", json.dumps(country))
    to_country = {"name": "geo.Country", "subject": "geo/x", "version": 1}
    served.register("address", json.dumps(address), references=[to_country])
    references = [{"name": "Address", "subject": "address", "version": 1}, to_country]
    number = served.register("customer", json.dumps(customer), references=references)
    text = Registry(served.url).schema(number)
    assert text is not None
    schema = made(json.loads(text))
    assert str(schema.type) == (
        "struct<home:struct<country:struct<code:string>,city:string>,"
        "work:struct<country:struct<code:string>,city:string>,at:struct<code:string>>"
    )
    value = {"home": {"country": {"code": "A"}, "city": "b"}, "work": None, "at": {"code": "C"}}
    whole = record(("c", record(("code", "string"), name="C")), ("city", "string"), name="A")
    plain = record(("home", whole), ("work", ["null", "A"]), ("at", "C"))
    other = {"home": {"c": {"code": "A"}, "city": "b"}, "work": None, "at": {"code": "C"}}
    assert schema.value(written(plain, other)) == value
    served.register("broken", '"Missing"', references=[{"name": "Missing", "subject": "gone", "version": 1}])
    with pytest.raises(SourceUnreadable, match="has no version 1 of gone"):
        Registry(served.url).schema(4)


def test_inlined() -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["A"]}
    schema = record(("a", {"type": "array", "items": "E"}), ("b", {"type": "map", "values": "E"}), ("c", "E"))
    found = inlined(schema, {"E": enum})
    assert found["fields"][0]["type"]["items"] == {**enum, "namespace": ""}
    assert [found["fields"][1]["type"]["values"], found["fields"][2]["type"]] == ["E", "E"]
    assert inlined("int", {"int": enum}) == "int"
    assert inlined({"type": 5, "fields": [3]}, {}) == {"type": 5, "fields": [3]}


def test_many_references(served: Served) -> None:
    for number in range(120):
        below = [{"name": f"R{number - 1}", "subject": f"s{number - 1}", "version": 1}] if number else []
        kind = f"R{number - 1}" if number else "int"
        served.register(f"s{number}", json.dumps(record(("x", kind), name=f"R{number}")), references=below)
    assert made(json.loads(Registry(served.url).schema(20) or "")).type.is_nested
    with pytest.raises(SourceUnreadable, match="refers to too many others"):
        Registry(served.url).schema(120)


def test_references_in_a_circle(served: Served) -> None:
    to_itself = {"name": "S", "subject": "s", "version": 1}
    number = served.register("s", json.dumps(record(("x", "int"), name="S")), references=[to_itself])
    assert Registry(served.url).schema(number) is not None
    assert served.requests == [f"GET /schemas/ids/{number}", "GET /subjects/s/versions/1"]


def test_references_with_many_levels(served: Served) -> None:
    for number in range(90):
        kind: Any = f"R{number - 1}" if number else "int"
        below = [{"name": kind, "subject": f"s{number - 1}", "version": 1}] if number else []
        for _ in range(12):
            kind = {"type": "array", "items": kind}
        served.register(f"s{number}", json.dumps(record(("x", kind), name=f"R{number}")), references=below)
    with pytest.raises(SourceUnreadable, match="or to too many levels"):
        Registry(served.url).schema(90)


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_apicurios_registry(served: Served, version: str) -> None:
    number, schema = served.register("x", json.dumps(ROW)), json.dumps(ROW)
    url = f"{served.url}/apis/registry/{version}"
    found = Registry(url)
    assert found.schema(number, is_content=False) == found.schema(100 + number, is_content=True) == schema
    assert found.schema(99, is_content=False) is None
    # Where a message does not say which id it has, it is the one that serializers of this version write.
    usual = number if version == "v2" else 100 + number
    assert found.schema(usual) == schema
    assert found.schema(201 - usual) is None
    assert Registry.of({"url": url, "use-id": "globalId"}).schema(number) == schema
    assert Registry.of({"url": url, "use-id": "contentId"}).schema(100 + number) == schema


def test_credentials(served: Served) -> None:
    served.register("x", json.dumps(ROW))
    host, basic, bearer = served.url.removeprefix("http://"), "Basic bWU6Z2VoZWlt", "Bearer geheim"
    for registry, sent in (
        (
            Registry.of({"url": f" {served.url}/ ", "basic.auth.user.info": "me:geh:eim"}),
            "Basic bWU6Z2VoOmVpbQ==",
        ),
        (Registry.of({"url": served.url, "bearer.auth.token": "geheim"}), bearer),
        (Registry.of({"url": served.url}), None),
        (Registry(served.url, user="me", password="geheim"), basic),
        (Registry(f"http://me:gehe%69m@{host}"), basic),
        (Registry(served.url, headers={"Authorization": bearer}), bearer),
    ):
        assert registry.schema(1) == json.dumps(ROW)
        assert served.headers[-1].get("Authorization") == sent
    with pytest.raises(InvalidConfiguration, match="cannot be read"):
        Registry.of({"url": served.url, "ssl.ca.location": "/nowhere.pem"})


@pytest.mark.parametrize(
    ("path", "error", "text"),
    [
        ("/status/401", SourceUnreadable, "refuses these credentials"),
        ("/status/403", SourceUnreadable, "refuses these credentials"),
        ("/status/404", InvalidConfiguration, "the status 404"),
        ("/nothing", InvalidConfiguration, "the status 404"),
        ("/apis/registry/v9", InvalidConfiguration, "the status 404"),
        ("/status/301", InvalidConfiguration, "the status 301"),
        ("/status/307", InvalidConfiguration, "the status 307"),
        ("/status/429", StoreUnavailable, "the status 429"),
        ("/status/500", StoreUnavailable, "the status 500"),
        ("/text/html", InvalidConfiguration, "its answer is no JSON object"),
        ("/text/list", InvalidConfiguration, "its answer is no JSON object"),
        ("/text/none", InvalidConfiguration, "its answer has no schema"),
        ("/text/wrong", InvalidConfiguration, "its answer has no schema"),
        ("/text/long", InvalidConfiguration, "its answer has more than"),
        ("/bytes", InvalidConfiguration, "its answer is not UTF-8"),
        ("/hang", StoreUnavailable, "does not answer: "),
        ("/drop", StoreUnavailable, "does not answer: IncompleteRead"),
    ],
)
def test_errors(served: Served, path: str, error: type[DeltaCdcError], text: str) -> None:
    served.register("x", json.dumps(ROW))
    host = served.url.removeprefix("http://")
    found = Registry(f"http://me:geheim@{host}{path}", headers={"X-Key": "geheim"}, timeout=0.5)
    with pytest.raises(error) as caught:
        found.schema(1)
    assert text in str(caught.value)
    assert "geheim" not in str(caught.value)
    assert served.url in caught.value.message
    assert caught.value.retryable is (error is StoreUnavailable)
    # A redirect is not followed: the next server would get the credentials.
    assert len(served.requests) == 1


def test_other_types(served: Served) -> None:
    number = served.register("x", "syntax", schemaType="PROTOBUF")
    found = Registry(served.url)
    wanted = Invalid(f"not Avro: schema {number} of the registry is of the type PROTOBUF")
    assert found.schema(number) == found.schema(number) == wanted
    assert len(served.requests) == 1
    broken = served.register("y", "[", references=[{"name": "a", "subject": "x", "version": 1}])
    with pytest.raises(SourceUnreadable, match="is not JSON"):
        Registry(served.url).schema(broken)


@pytest.mark.parametrize(
    "url", ["", "host:8081", "file:///etc/passwd", "ftp://host", "http://", "http://h:x", "http://[::1"]
)
def test_addresses(url: str) -> None:
    with pytest.raises(InvalidConfiguration, match="The address of the schema registry"):
        Registry(url)


def test_unreachable() -> None:
    with serving() as served:
        url = served.url
    with pytest.raises(StoreUnavailable, match="does not answer"):
        Registry(url, timeout=1).schema(1)
    with pytest.raises(InvalidConfiguration, match="headers for the schema registry cannot be sent"):
        Registry(url, headers={"Authorization": "Bearer a\nb"}).schema(1)
    with pytest.raises(InvalidConfiguration, match=r"certificates '/no\.pem' cannot be read"):
        Registry(url, ca_file="/no.pem")


def test_certificates(tmp_path: Any) -> None:
    """A server whose certificate is not trusted, and its authority's file."""
    key, now, pem = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC), tmp_path / "c.pem"
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
    for extension in (
        x509.SubjectAlternativeName([x509.DNSName("localhost")]),
        x509.BasicConstraints(ca=True, path_length=None),
    ):
        builder = builder.add_extension(extension, critical=False)
    pem.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with serving(context) as served:
        served.register("x", '"int"')
        assert Registry(served.url, ca_file=str(pem)).schema(1) == '"int"'
        with pytest.raises(InvalidConfiguration, match="is not trusted"):
            Registry(served.url).schema(1)
