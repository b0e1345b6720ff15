"""Avro: messages with a schema's id, and object container files.

A strict reader of the binary encoding: each index, length and number must be one that the specification
allows, and every byte belongs to the value. Of a damaged value, nothing is guessed. A schema becomes
functions once; a schema that refers to itself is refused, because no column could hold its values.

Values are plain: ``None``, ``bool``, ``int``, ``float``, ``str``, ``bytes``, ``list`` and ``dict``; of
logical types ``Decimal``, ``date``, ``time``, and ``datetime`` (in UTC; without zone for local timestamps). A
number that is no date of the years 1 to 9999 stays an ``int``, which fits no column of dates. For records of
Kafka Connect, logical types can be left as they are written, as Connect's JSON has them;
:attr:`Schema.connect` then describes them.

Standard library only. Blocks that are compressed with snappy or zstandard need a function of the caller.
"""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import reduce
from typing import Any, NamedTuple
from uuid import UUID

from delta_cdc.core import codec
from delta_cdc.ingest import types
from delta_cdc.ingest.record import Invalid
from delta_cdc.ingest.types import BINARY, BOOLEAN, DOUBLE, FLOAT, INTEGER, LONG, STRING, VOID, Type

#: Levels of records, arrays and maps in a value, and fields of a schema with all its parts.
MOST_LEVELS, MOST_FIELDS = 100, 10_000
#: Definitions inside of each other, in the text of a schema: reading one takes several levels of the stack.
_MOST_DEPTH = 150
#: The most schemas that the messages of a batch may name.
MOST_SCHEMAS = 1_000
#: The most bytes of a block of a file, once it is decompressed.
MOST_BLOCK_BYTES = 256 * 1024 * 1024
#: The most bytes of a decimal: far more than any column holds.
_MOST_DECIMAL = 1_000

#: Returns a value, and where it ends.
_Read = Callable[[bytes, int], tuple[Any, int]]
#: What the functions of readers raise for bytes that are no value: also IndexError where the bytes end.
_DAMAGE = (IndexError, struct.error, ValueError)
#: Decompresses the block of a file. It raises ValueError for bytes that it cannot decompress.
Decompress = Callable[[bytes], bytes]


class _Damaged(ValueError):
    """Bytes that are no value of their schema."""


class _Refused(ValueError):
    """A schema that cannot be used."""


# -- reading ------------------------------------------------------------------------------------
def _long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise _Damaged("a number of more than 64 bits")
    if number >> 64:
        raise _Damaged("a number of more than 64 bits")
    return (number >> 1) ^ -(number & 1), at


def _int(data: bytes, at: int) -> tuple[int, int]:
    number, at = _long(data, at)
    if not -0x80000000 <= number <= 0x7FFFFFFF:
        raise _Damaged("a number of more than 32 bits")
    return number, at


def _null(data: bytes, at: int) -> tuple[None, int]:
    return None, at


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    byte = data[at]
    if byte > 1:
        raise _Damaged("a boolean that is neither 0 nor 1")
    return byte == 1, at + 1


_FLOAT, _DOUBLE = struct.Struct("<f").unpack_from, struct.Struct("<d").unpack_from


def _float(data: bytes, at: int) -> tuple[float, int]:
    return _FLOAT(data, at)[0], at + 4


def _double(data: bytes, at: int) -> tuple[float, int]:
    return _DOUBLE(data, at)[0], at + 8


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size = data[at]
    if size < 0x80 and not size & 1:
        size, at = size >> 1, at + 1
    else:
        size, at = _long(data, at)
    end = at + size
    if size < 0 or end > len(data):
        raise _Damaged(f"a length of {size} bytes where {len(data) - at} are left")
    return data[at:end], end


def _string(data: bytes, at: int) -> tuple[str, int]:
    value, at = _bytes(data, at)
    return value.decode(), at


def _fixed(size: int) -> _Read:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        if end > len(data):
            raise _Damaged(f"a length of {size} bytes where {len(data) - at} are left")
        return data[at:end], end

    return read


def _enum(symbols: list[str]) -> _Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        number, at = _long(data, at)
        if number < 0:
            raise _Damaged("a symbol that its schema does not have")
        return symbols[number], at

    return read


def _union(branches: list[_Read]) -> _Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        number, at = _long(data, at)
        if number < 0:
            raise _Damaged("a branch of a union that its schema does not have")
        return branches[number](data, at)

    return read


def _optional(inner: _Read, null: int, value: int) -> _Read:
    """Return the reader of a union of null and one type.

    :param null: the byte before null
    :param value: the byte before a value
    """

    def read(data: bytes, at: int) -> tuple[Any, int]:
        branch = data[at]
        if branch == null:
            return None, at + 1
        if branch == value:
            return inner(data, at + 1)
        raise _Damaged("a branch of a union that its schema does not have")

    return read


def _array(element: _Read) -> _Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        count, at = _count(data, at)
        while count:
            for _ in range(count):
                item, at = element(data, at)
                found.append(item)
            count, at = _count(data, at)
        return found, at

    return read


def _map(element: _Read) -> _Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        count, at = _count(data, at)
        while count:
            for _ in range(count):
                name, at = _string(data, at)
                if name in found:
                    raise _Damaged(f"the key {name[:100]} twice in a map")
                found[name], at = element(data, at)
            count, at = _count(data, at)
        return found, at

    return read


def _count(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of elements of a block. A negative number is followed by the size of the block."""
    count, at = _long(data, at)
    if count >= 0:
        return count, at
    size, at = _long(data, at)
    if size < 0 or at + size > len(data):
        raise _Damaged(f"a block of {size} bytes where {len(data) - at} are left")
    return -count, at


def _record(names: list[str], readers: list[_Read]) -> _Read:
    fields = list(zip(names, readers, strict=True))

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        for name, reader in fields:
            found[name], at = reader(data, at)
        return found, at

    return read


def _mapped(inner: _Read, convert: Callable[[Any], Any]) -> _Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        value, at = inner(data, at)
        return convert(value), at

    return read


# -- logical types ------------------------------------------------------------------------------
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_LAST_DAY = date.max.toordinal()
_DAY_MICROS = 86_400_000_000
_EXACT = Context(prec=3 * _MOST_DECIMAL, Emax=MAX_EMAX, Emin=MIN_EMIN)
#: The microseconds of a unit, as a fraction.
_UNITS = {"millis": (1_000, 1), "micros": (1, 1), "nanos": (1, 1_000)}


def _decimal(scale: int) -> Callable[[bytes], Decimal]:
    def convert(value: bytes) -> Decimal:
        if len(value) > _MOST_DECIMAL:
            raise _Damaged(f"a decimal of {len(value)} bytes")
        return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, _EXACT)

    return convert


def _date(days: int) -> date | int:
    ordinal = days + _EPOCH_DAY
    return date.fromordinal(ordinal) if 1 <= ordinal <= _LAST_DAY else days


def _moment(unit: str, epoch: datetime) -> Callable[[int], datetime | int]:
    factor, divisor = _UNITS[unit]

    def convert(value: int) -> datetime | int:
        try:
            return epoch + timedelta(microseconds=value * factor // divisor)
        except OverflowError:
            return value

    return convert


def _clock(unit: str) -> Callable[[int], time | int]:
    factor, divisor = _UNITS[unit]

    def convert(value: int) -> time | int:
        micros = value * factor // divisor
        if not 0 <= micros < _DAY_MICROS:
            return value
        seconds, micros = divmod(micros, 1_000_000)
        return time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)

    return convert


#: For each logical type, by the type that it is written as: the column type, the name in Kafka Connect, and
#: what makes its value.
_LOGICAL: dict[tuple[str, str], tuple[Type, str, Callable[[Any], Any]]] = {
    ("int", "date"): (types.DATE, "org.apache.kafka.connect.data.Date", _date),
    ("int", "time-millis"): (STRING, "org.apache.kafka.connect.data.Time", _clock("millis")),
    ("long", "time-micros"): (STRING, "io.debezium.time.MicroTime", _clock("micros")),
    ("long", "time-nanos"): (STRING, "io.debezium.time.NanoTime", _clock("nanos")),
}
for _unit, _name in (
    ("millis", "org.apache.kafka.connect.data.Timestamp"),
    ("micros", "io.debezium.time.MicroTimestamp"),
    ("nanos", "io.debezium.time.NanoTimestamp"),
):
    _LOGICAL["long", f"timestamp-{_unit}"] = (types.TIMESTAMP, _name, _moment(_unit, _EPOCH))
    _LOGICAL["long", f"local-timestamp-{_unit}"] = (
        types.TIMESTAMP_NTZ,
        _name,
        _moment(_unit, _LOCAL_EPOCH),
    )


# -- schemas ------------------------------------------------------------------------------------
class _Part(NamedTuple):
    """What follows from a schema, or a part of it.

    :param least: the fewest bytes of a value
    :param levels: of records, arrays and maps
    :param fields: fields of all records in it
    """

    read: _Read
    type: Type
    connect: dict[str, Any]
    least: int
    levels: int = 0
    fields: int = 0


@dataclass(frozen=True, eq=False)
class Schema:
    """A schema of Avro.

    :param type: the type of its values: a struct, if the schema is a record
    :param connect: the same as Kafka Connect's JSON describes it, for values as they are written
    """

    type: Type
    connect: dict[str, Any]
    _part: _Part = field(repr=False)

    def value(self, data: bytes, at: int = 0) -> Any:
        """Return the value that the bytes are, or an :class:`Invalid`.

        :param at: where the value begins
        """
        try:
            found, end = self._part.read(data, at)
        except _DAMAGE as error:
            return Invalid(_reason(error))
        return found if end == len(data) else Invalid(f"{len(data) - end} bytes after the value")

    def first(self, data: bytes, at: int) -> Any:
        """Return the value that begins somewhere, which :meth:`values` has found."""
        return self._part.read(data, at)[0]

    def values(self, data: bytes, count: int) -> Iterator[tuple[Any, int]]:
        """Yield the values of a block, and where each begins.

        The last is an :class:`Invalid` if the bytes are others.
        """
        read, at = self._part.read, 0
        if count > len(data) // max(1, self._part.least) or not self._part.least:
            yield Invalid(f"a block of {count} values in {len(data)} bytes"), 0
            return
        for _ in range(count):
            start = at
            try:
                found, at = read(data, start)
            except _DAMAGE as error:
                yield Invalid(_reason(error)), start
                return
            yield found, start
        if at < len(data):
            yield Invalid(f"{len(data) - at} bytes after the values of a block"), at


def _reason(error: Exception) -> str:
    if isinstance(error, _Damaged):
        return str(error)
    if isinstance(error, UnicodeDecodeError):
        return "a text that is not UTF-8"
    return "it ends inside of a value, or has a number that its schema does not allow"


_PRIMITIVE = {
    "null": _Part(_null, VOID, {"type": "string", "optional": True}, 0),
    "boolean": _Part(_boolean, BOOLEAN, {"type": "boolean"}, 1),
    "int": _Part(_int, INTEGER, {"type": "int32"}, 1),
    "long": _Part(_long, LONG, {"type": "int64"}, 1),
    "float": _Part(_float, FLOAT, {"type": "float"}, 4),
    "double": _Part(_double, DOUBLE, {"type": "double"}, 8),
    "bytes": _Part(_bytes, BINARY, {"type": "bytes"}, 1),
    "string": _Part(_string, STRING, {"type": "string"}, 1),
}
#: What Kafka Connect adds to a schema of Avro.
_CONNECT = {"connect.name": "name", "connect.version": "version", "connect.parameters": "parameters"}


def compiled(text: str, *, is_connect: bool = False) -> Schema | Invalid:
    """Return the schema of a JSON text, or why it cannot be used.

    :param is_connect: leave values of logical types as they are written
    """
    try:
        part = _Compiler(is_connect).part(codec.parsed(text), "")
    except codec.UnreadableJson as error:
        return Invalid(f"its Avro schema is {error}")
    except _Refused as error:
        return Invalid(f"its Avro schema {error}")
    return Schema(part.type, part.connect, part)


class _Compiler:
    """Makes the functions of one schema."""

    def __init__(self, is_connect: bool) -> None:
        self._is_connect = is_connect
        self._depth = 0
        #: Named types; None while the definition is read.
        self._named: dict[str, _Part | None] = {}

    def part(self, schema: Any, namespace: str) -> _Part:
        """Return what follows from a part of a schema.

        :param namespace: of names without one
        """
        if isinstance(schema, str):
            return self._by_name(schema, namespace)
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise _Refused(f"has more than {_MOST_DEPTH} levels")
        if isinstance(schema, list):
            found = self._union_part(schema, namespace)
        elif isinstance(schema, dict):
            found = self._object_part(schema, namespace)
        else:
            raise _Refused("has a type that is neither a name, an object nor a list")
        self._depth -= 1
        return found

    def _object_part(self, schema: Mapping[str, Any], namespace: str) -> _Part:
        kind = schema.get("type")
        if not isinstance(kind, str):
            return _described(self.part(kind, namespace), schema)
        make = {
            "record": self._record_part,
            "error": self._record_part,
            "enum": self._enum_part,
            "fixed": self._fixed_part,
            "array": self._array_part,
            "map": self._map_part,
        }.get(kind)
        if make is not None:
            return _described(_limited(make(schema, namespace)), schema)
        return _described(self._logical(self._by_name(kind, namespace), kind, schema), schema)

    def _by_name(self, name: str, namespace: str) -> _Part:
        if name in _PRIMITIVE:
            return _PRIMITIVE[name]
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        key = full if full in self._named else name
        if key not in self._named:
            raise _Refused(f"has no type {name[:100]}")
        part = self._named[key]
        if part is None:
            raise _Refused(f"has the type {name[:100]}, which contains itself, so that no column can hold it")
        return part

    def _defined(self, schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
        """Return the full name of a definition, and the namespace inside of it."""
        name, own = schema.get("name"), schema.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(own, str):
            raise _Refused("has a type without a name")
        full = name if "." in name or not own else f"{own}.{name}"
        if full in self._named:
            raise _Refused(f"defines the type {full[:100]} twice")
        self._named[full] = None
        return full, full.rpartition(".")[0]

    def _record_part(self, schema: Mapping[str, Any], namespace: str) -> _Part:
        full, inner = self._defined(schema, namespace)
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(
            isinstance(field, dict) and isinstance(field.get("name"), str) for field in fields
        ):
            raise _Refused(f"has no fields in the record {full[:100]}")
        names = [field["name"] for field in fields]
        if len(set(names)) < len(names):
            raise _Refused(f"has a field twice in the record {full[:100]}")
        parts = [self.part(field.get("type"), inner) for field in fields]
        found = _Part(
            _record(names, [part.read for part in parts]),
            types.struct([(name, part.type) for name, part in zip(names, parts, strict=True)]),
            {
                "type": "struct",
                "name": full,
                "fields": [{**part.connect, "field": name} for name, part in zip(names, parts, strict=True)],
            },
            sum(part.least for part in parts),
            1 + max((part.levels for part in parts), default=0),
            len(parts) + sum(part.fields for part in parts),
        )
        self._named[full] = _described(_limited(found), schema)
        return found

    def _enum_part(self, schema: Mapping[str, Any], namespace: str) -> _Part:
        full, _ = self._defined(schema, namespace)
        symbols = schema.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise _Refused(f"has no symbols in the enumeration {full[:100]}")
        found = _Part(_enum(symbols), STRING, {"type": "string"}, 1)
        self._named[full] = found
        return found

    def _fixed_part(self, schema: Mapping[str, Any], namespace: str) -> _Part:
        full, _ = self._defined(schema, namespace)
        size = schema.get("size")
        if type(size) is not int or not 0 <= size < 2**31:
            raise _Refused(f"has no size of the fixed type {full[:100]}")
        found = self._logical(_Part(_fixed(size), BINARY, {"type": "bytes"}, size), "fixed", schema)
        self._named[full] = found
        return found

    def _element(self, schema: Mapping[str, Any], name: str, namespace: str) -> _Part:
        part = self.part(schema.get(name), namespace)
        return part._replace(levels=part.levels + 1)

    def _array_part(self, schema: Mapping[str, Any], namespace: str) -> _Part:
        part = self._element(schema, "items", namespace)
        if not part.least:
            # Any number of them would be in a few bytes.
            raise _Refused("has an array of values without bytes")
        connect = {"type": "array", "items": part.connect}
        return part._replace(read=_array(part.read), type=types.array(part.type), connect=connect, least=1)

    def _map_part(self, schema: Mapping[str, Any], namespace: str) -> _Part:
        part = self._element(schema, "values", namespace)
        connect = {"type": "map", "keys": {"type": "string"}, "values": part.connect}
        kind = types.map_of(STRING, part.type)
        return part._replace(read=_map(part.read), type=kind, connect=connect, least=1)

    def _union_part(self, schema: list[Any], namespace: str) -> _Part:
        parts = [self.part(branch, namespace) for branch in schema]
        if not parts:
            raise _Refused("has a union without types")
        nulls = [at for at, part in enumerate(parts) if part.read is _null]
        others = [part for part in parts if part.read is not _null]
        if len(parts) == 2 and len(nulls) == 1:
            read = _optional(others[0].read, 2 * nulls[0], 2 - 2 * nulls[0])
        else:
            read = _union([part.read for part in parts])
        kind = reduce(_common, [part.type for part in others]) if others else VOID
        connect: dict[str, Any] = dict(others[0].connect) if len(others) == 1 else {"type": "string"}
        if nulls:
            connect["optional"] = True
        levels, fields = max(part.levels for part in parts), sum(part.fields for part in parts)
        return _limited(_Part(read, kind, connect, 1, levels, fields))

    def _logical(self, part: _Part, kind: str, schema: Mapping[str, Any]) -> _Part:
        """Return a part with its logical type. One that is unknown or impossible does not count."""
        logical = schema.get("logicalType")
        if not isinstance(logical, str):
            return part
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return self._decimal_part(part, schema)
        if logical == "uuid" and kind == "fixed" and schema.get("size") == 16:
            read = part.read if self._is_connect else _mapped(part.read, lambda value: str(UUID(bytes=value)))
            return part if self._is_connect else part._replace(read=read, type=STRING)
        found = _LOGICAL.get((kind, logical))
        if found is None:
            return part
        column, name, convert = found
        read = part.read if self._is_connect else _mapped(part.read, convert)
        return part._replace(read=read, type=column, connect={**part.connect, "name": name})

    def _decimal_part(self, part: _Part, schema: Mapping[str, Any]) -> _Part:
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision <= 10_000:
            return part
        if not precision:
            return part
        read = part.read if self._is_connect else _mapped(part.read, _decimal(scale))
        column = types.decimal(precision, scale) if precision <= 38 else STRING
        parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
        connect = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}
        return part._replace(read=read, type=column, connect=connect)


def _limited(part: _Part) -> _Part:
    if part.levels > MOST_LEVELS:
        raise _Refused(f"has more than {MOST_LEVELS} levels")
    if part.fields > MOST_FIELDS:
        raise _Refused(f"has more than {MOST_FIELDS} fields, with all parts of records")
    return part


def _described(part: _Part, schema: Mapping[str, Any]) -> _Part:
    """Return a part with what Kafka Connect says about it."""
    added = {name: schema[key] for key, name in _CONNECT.items() if key in schema}
    kind = schema.get("connect.type")
    if kind in ("int8", "int16") and part.connect.get("type") == "int32":
        added["type"] = kind
    if not added:
        return part
    if isinstance(added.get("parameters"), Mapping) and isinstance(part.connect.get("parameters"), Mapping):
        added["parameters"] = {**part.connect["parameters"], **added["parameters"]}
    return part._replace(connect={**part.connect, **added})


def _common(one: Type, other: Type) -> Type:
    """Return the type of values of two branches of a union; text, if no other type holds both."""
    if one == other:
        return one
    names = {one.name, other.name}
    if names == {"integer", "long"}:
        return LONG
    return DOUBLE if names in ({"float", "double"}, {"integer", "double"}) else STRING


# -- messages -----------------------------------------------------------------------------------
#: Headers in which Apicurio's serializers put the id, eight bytes each, and whether it is that of a content.
_ID_HEADERS = (("apicurio.{}.globalId", False), ("apicurio.{}.contentId", True))


class SchemaId(NamedTuple):
    """The id of a schema in a registry.

    :param is_content: whether it is Apicurio's id of a content; None: the message does not say it
    """

    number: int
    is_content: bool | None = None


def schema_id(
    raw: bytes, headers: Mapping[str, bytes] | None = None, part: str = "value"
) -> SchemaId | Invalid:
    """Return the id of the schema of a message.

    :param headers: of the message
    :param part: of which part of the message: ``value`` or ``key``
    """
    found = _id_and_start(raw, headers, part)
    return found if isinstance(found, Invalid) else found[0]


def _id_and_start(
    raw: bytes, headers: Mapping[str, bytes] | None, part: str
) -> tuple[SchemaId, int] | Invalid:
    if headers:
        for name, is_content in _ID_HEADERS:
            header = headers.get(name.format(part))
            if header is not None:
                if len(header) != 8:
                    return Invalid(f"the header {name.format(part)} has {len(header)} bytes, not 8")
                return SchemaId(int.from_bytes(header, "big"), is_content), 0
    if raw[:1] != b"\0":
        return Invalid("it does not begin with a zero byte and the id of a schema")
    # Confluent's ids have 4 bytes, and begin with 1; Apicurio's have 8, and never need the first 4.
    size = 8 if raw[1:5] == b"\0\0\0\0" else 4
    if len(raw) < 1 + size:
        return Invalid("it ends inside of the id of its schema")
    return SchemaId(int.from_bytes(raw[1 : 1 + size], "big")), 1 + size


class Decoded(NamedTuple):
    """A value, and what its schema says about it."""

    value: Any
    schema: Schema


class MessageDecoder:
    """Decodes messages that name their schema by its id. One decoder serves the records of one task.

    :param schemas: the schemas as JSON, by id; why one is not one of Avro; None for one that the registry
        does not have
    :param is_connect: leave values of logical types as they are written
    :param part: of which part of the messages: ``value`` or ``key``
    """

    def __init__(
        self,
        schemas: Mapping[SchemaId, str | Invalid | None],
        *,
        is_connect: bool = False,
        part: str = "value",
    ) -> None:
        self._texts, self._is_connect, self._part = schemas, is_connect, part
        self._schemas: dict[SchemaId, Schema | Invalid] = {}

    def __call__(self, raw: bytes, headers: Mapping[str, bytes] | None = None) -> Decoded | Invalid:
        """Return the value of a message.

        :param headers: of the message
        """
        found = _id_and_start(raw, headers, self._part)
        if isinstance(found, Invalid):
            return Invalid(f"not Avro: {found.reason}")
        id_, start = found
        schema = self._schemas.get(id_)
        if schema is None:
            if id_ not in self._texts:
                return Invalid(
                    f"schema {id_.number} was not requested: the batch names more than {MOST_SCHEMAS}"
                )
            text = self._texts[id_]
            if text is None:
                return Invalid(f"not Avro: the registry has no schema {id_.number}")
            if isinstance(text, Invalid):
                return text
            schema = compiled(text, is_connect=self._is_connect)
            self._schemas[id_] = schema
        if isinstance(schema, Invalid):
            return schema
        value = schema.value(raw, start)
        if isinstance(value, Invalid):
            return Invalid(f"not Avro as schema {id_.number} says: {value.reason}")
        return Decoded(value, schema)


# -- files --------------------------------------------------------------------------------------
def _inflate(data: bytes) -> bytes:
    reader = zlib.decompressobj(-15)
    try:
        found = reader.decompress(data, MOST_BLOCK_BYTES)
    except zlib.error as error:
        raise _Damaged("a block that is not compressed with deflate") from error
    # Some writers leave part of zlib's checksum behind the data.
    if not reader.eof:
        raise _Damaged("a block that is incomplete, or larger than the limit")
    return found


def _bunzip(data: bytes) -> bytes:
    reader = bz2.BZ2Decompressor()
    try:
        found = reader.decompress(data, MOST_BLOCK_BYTES)
    except (OSError, EOFError) as error:
        raise _Damaged("a block that is not compressed with bzip2") from error
    if not reader.eof or reader.unused_data:
        raise _Damaged("a block that is incomplete, or larger than the limit")
    return found


def _unxz(data: bytes) -> bytes:
    reader = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MOST_BLOCK_BYTES)
    try:
        found = reader.decompress(data, MOST_BLOCK_BYTES)
    except (lzma.LZMAError, EOFError) as error:
        raise _Damaged("a block that is not compressed with xz") from error
    if not reader.eof or reader.unused_data:
        raise _Damaged("a block that is incomplete, or larger than the limit")
    return found


def snappy_size(data: bytes) -> int:
    """Return the size that data in snappy's raw form says it has once it is decompressed."""
    size, shift = 0, 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return size


def _checked_snappy(decompress: Decompress) -> Decompress:
    """Return the function for blocks of Avro: behind the data is its CRC."""

    def read(data: bytes) -> bytes:
        if len(data) < 5 or snappy_size(data) > MOST_BLOCK_BYTES:
            raise _Damaged("a block that is incomplete, or larger than the limit")
        found = decompress(data[:-4])
        if zlib.crc32(found).to_bytes(4, "big") != data[-4:]:
            raise _Damaged("a block whose checksum is another one")
        return found

    return read


_CODECS: Mapping[str, Decompress] = {"null": bytes, "deflate": _inflate, "bzip2": _bunzip, "xz": _unxz}


class ObjectFile:
    """The values of an object container file.

    :param schema: of its values
    """

    def __init__(self, schema: Schema, raw: bytes, start: int, decompress: Decompress) -> None:
        self.schema = schema
        self._raw, self._start, self._decompress = raw, start, decompress

    def __iter__(self) -> Iterator[Any]:
        """Yield the values; the last is an :class:`Invalid` if the rest of the file is damaged."""
        return (value for value, _, _ in self.placed())

    def placed(self) -> Iterator[tuple[Any, bytes, int]]:
        """Yield the values with their block, and where they begin in it (:meth:`Schema.first`)."""
        raw, at = self._raw, self._start
        sync = raw[at - 16 : at]
        while at < len(raw):
            try:
                count, at = _long(raw, at)
                data, at = _bytes(raw, at)
                if raw[at : at + 16] != sync:
                    raise _Damaged("a block without the mark at its end")
                at += 16
                if count < 0:
                    raise _Damaged(f"a block of {count} values")
                data = self._decompress(data)
            except _DAMAGE as error:
                yield Invalid(f"not Avro: {_reason(error)}"), b"", 0
                return
            for value, start in self.schema.values(data, count):
                if isinstance(value, Invalid):
                    reason = f"not Avro as the schema of its file says: {value.reason}"
                    yield Invalid(reason), data, start
                    return
                yield value, data, start


_HEADER = _map(_bytes)


def object_file(
    raw: bytes, *, is_connect: bool = False, codecs: Mapping[str, Decompress] | None = None
) -> ObjectFile | Invalid:
    """Return the values of an object container file.

    :param is_connect: leave values of logical types as they are written
    :param codecs: what decompresses blocks of ``snappy`` and ``zstandard``, of at most
        :data:`MOST_BLOCK_BYTES`
    """
    if not raw.startswith(b"Obj\x01"):
        return Invalid("not Avro: it is no object container file")
    try:
        header, at = _HEADER(raw, 4)
        text = header.get("avro.schema", b"").decode()
        name = header.get("avro.codec", b"null").decode()
    except _DAMAGE as error:
        return Invalid(f"not Avro: {_reason(error)}")
    if len(raw) < at + 16:
        return Invalid("not Avro: it ends inside of its header")
    given = dict(codecs or {})
    if "snappy" in given:
        given["snappy"] = _checked_snappy(given["snappy"])
    decompress = {**given, **_CODECS}.get(name)
    if decompress is None:
        return Invalid(
            f"its blocks are compressed with {name[:100]}, which is not read; write it with deflate"
        )
    schema = compiled(text, is_connect=is_connect)
    return schema if isinstance(schema, Invalid) else ObjectFile(schema, raw, at + 16, decompress)
