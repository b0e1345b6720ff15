"""Find how Debezium encodes values: from the schema in the message, else from the connector's options.

| written as | becomes |
|---|---|
| `io.debezium.time.Date`, `org.apache.kafka.connect.data.Date` | date |
| `…Timestamp`, `…MicroTimestamp`, `…NanoTimestamp`, `…ZonedTimestamp`, Connect's `Timestamp` | timestamp |
| `…Time`, `…MicroTime`, `…NanoTime`, Connect's `Time` | string HH:MM:SS.ffffff |
| Connect's `Decimal` | decimal of its precision (38 if unknown) and scale |
| `io.debezium.data.VariableScaleDecimal` | decimal(38,18), or the type of the log or of the option `schema` |
| `bytes`, `io.debezium.data.Bits` | binary |
| JSON, XML, enumerations, UUID, intervals | string |
| structs (geometry, point), arrays, maps with text keys | struct, array, map |
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from typing import TYPE_CHECKING, Any

from delta_cdc.core.adapters import BYTES, TIME_UNITS, placeholder_bytes, required
from delta_cdc.ingest.record import Invalid
from delta_cdc.ingest.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    Type,
    array,
    decimal,
    map_of,
    struct,
)
from delta_cdc.ingest.values import Encoding, json_text, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SCALED = "io.debezium.data.VariableScaleDecimal"
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
#: For each logical type: the coding and the Spark type.
_LOGICAL = {
    "io.debezium.time.Date": ("days", DATE),
    "org.apache.kafka.connect.data.Date": ("days", DATE),
    "io.debezium.time.Timestamp": ("epoch:ms", TIMESTAMP),
    "io.debezium.time.MicroTimestamp": ("epoch:us", TIMESTAMP),
    "io.debezium.time.NanoTimestamp": ("epoch:ns", TIMESTAMP),
    "org.apache.kafka.connect.data.Timestamp": ("epoch:ms", TIMESTAMP),
    "io.debezium.time.ZonedTimestamp": ("text", TIMESTAMP),
    "io.debezium.time.IsoTimestamp": ("iso", TIMESTAMP),
    "io.debezium.time.IsoDate": ("iso", DATE),
    "io.debezium.time.Time": ("time:ms", STRING),
    "io.debezium.time.MicroTime": ("time:us", STRING),
    "io.debezium.time.NanoTime": ("time:ns", STRING),
    "org.apache.kafka.connect.data.Time": ("time:ms", STRING),
}
_PRIMITIVE = {
    "int8": BYTE,
    "int16": SHORT,
    "int32": INTEGER,
    "int64": LONG,
    "float": FLOAT,
    "float32": FLOAT,
    "double": DOUBLE,
    "float64": DOUBLE,
    "boolean": BOOLEAN,
    "string": STRING,
}
#: The most levels of a schema.
_MOST_LEVELS = 64
#: The most schemas that are remembered, and the characters of their texts.
_MOST_SCHEMAS, _MOST_CHARACTERS = 200, 16_000_000


class _Damaged(Exception):
    """The schema of a message is damaged."""


# -- by schema ----------------------------------------------------------------------------------
def row_encodings(
    schema: Any, options: Mapping[str, Any], describes: Callable[[str], bool] | None
) -> dict[str, Encoding] | Invalid:
    """Return the encodings of a row's columns from the schema of a message; {} if it describes no row.

    :param options: of the adapter; a column that they leave out may be of any type
    :param describes: the schema describes the row itself, and no envelope; whether a field of it is no column
    """
    try:
        if not isinstance(schema, dict):
            raise _Damaged("it is no object")
        fields = _fields(schema)
        if describes is None:
            fields = _fields(fields.get("after") or fields.get("before"))
        else:
            fields = {name: field for name, field in fields.items() if not describes(name)}
        excluded = {name.lower() for name in options["except_column_list"]}
        return {name: _encoding(field) for name, field in fields.items() if name.lower() not in excluded}
    except _Damaged as error:
        return Invalid(f"the schema of the message is damaged: {error}")


def text_coding(name: str, options: Mapping[str, Any]) -> Encoding:
    """Return how texts write the bytes of a column that a schema has as text: hex digits may also be base64.

    :raises InvalidConfiguration: the option is missing
    """
    mode = options["binary_handling_mode"]
    if mode == "bytes":
        reason = f"The schema of the messages has text for the column {name} of bytes"
        raise required("debezium", "binary_handling_mode", reason)
    return Encoding(BINARY, f"bytes:{BYTES[mode]}")


def _fields(schema: Any) -> dict[str, Any]:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    if fields is None:
        return {}
    if not isinstance(fields, list):
        raise _Damaged("fields is no list")
    found = {}
    for field in fields:
        name = field.get("field") if isinstance(field, dict) else None
        if not isinstance(name, str):
            raise _Damaged("a field has no name")
        if name in found:
            raise _Damaged(f"the field {name[:100]} is there twice")
        found[name] = field
    return found


def _members(schema: Mapping[str, Any], level: int) -> tuple[tuple[str, Encoding], ...]:
    """Return the fields of a struct inside of a row. No column has fields that differ in case only."""
    fields = _fields(schema)
    if not fields or "" in fields:
        raise _Damaged("an object has no fields, or one without a name")
    if len({name.lower() for name in fields}) < len(fields):
        raise _Damaged("fields of an object differ in case only")
    return tuple((name, _encoding(field, level)) for name, field in fields.items())


def _encoding(schema: Any, level: int = 0) -> Encoding:
    if not isinstance(schema, dict) or level > _MOST_LEVELS:
        raise _Damaged("a type is no object" if level <= _MOST_LEVELS else "it has too many levels")
    name, kind = schema.get("name") or "", schema.get("type")
    if not isinstance(name, str) or not isinstance(kind, str):
        raise _Damaged("a type has no name")
    if name in _LOGICAL:
        coding, data_type = _LOGICAL[name]
        return Encoding(data_type, coding)
    if name == _SCALED:
        return Encoding(decimal(38, 18), "scaled")
    if kind == "bytes":
        return _bytes_encoding(schema, name)
    if kind == "struct":
        fields = _members(schema, level + 1)
        return Encoding(struct([(n, one.type) for n, one in fields]), fields=fields)
    if kind == "array":
        element = _encoding(schema.get("items"), level + 1)
        return Encoding(array(element.type), element=element)
    if kind == "map":
        return _map_encoding(schema, level)
    if kind not in _PRIMITIVE:
        raise _Damaged(f"the type {kind[:40]} is unknown")
    return plain(_PRIMITIVE[kind])


def _map_encoding(schema: Mapping[str, Any], level: int) -> Encoding:
    keys = schema.get("keys")
    key = keys.get("type") if isinstance(keys, dict) else None
    if key != "string":
        raise _Damaged(
            f"a map has keys of type {str(key)[:40]}: leave the column out where the connector reads it, or "
            "have it sent as JSON"
        )
    element = _encoding(schema.get("values"), level + 1)
    return Encoding(map_of(STRING, element.type), element=element)


def _bytes_encoding(schema: Mapping[str, Any], name: str) -> Encoding:
    if name != _DECIMAL:
        return Encoding(BINARY, "bytes:base64")
    parameters = schema.get("parameters")
    if not isinstance(parameters, dict):
        raise _Damaged("a decimal has no scale")
    scale = _number(parameters.get("scale"))
    precision = _number(parameters.get("connect.decimal.precision", 38))
    if scale is None:
        raise _Damaged("a decimal has no scale")
    if precision is None:
        raise _Damaged("the precision of a decimal is no number")
    # A decimal of a database may exceed Spark's precision. A value that does not fit becomes an error.
    fits = 0 <= scale <= 38 and 0 < precision <= 38
    kind = decimal(max(precision, scale), scale) if fits else decimal(38, min(max(scale, 0), 38))
    return Encoding(kind, f"decimal:{scale}")


def _number(value: Any) -> int | None:
    """Return a whole number of at most nine digits, also as text."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value) if isinstance(value, int) and value.bit_length() < 40 else value
    if not isinstance(text, str) or len(text) > 11:
        return None
    sign = -1 if text.startswith("-") else 1
    text = text.removeprefix("-")
    return sign * int(text) if text.isdigit() and text.isascii() else None


# -- without schema -----------------------------------------------------------------------------
def bare_encoding(name: str, kind: Type, options: Mapping[str, Any]) -> Encoding:
    """Return the encoding of a value without schema, from the connector's options.

    :raises InvalidConfiguration: an option is missing
    """
    if kind.name == "struct":
        fields = tuple((n, bare_encoding(f"{name}.{n}", part, options)) for n, part in kind.fields)
        return Encoding(kind, fields=fields)
    if kind.name == "array":
        assert kind.element is not None
        return Encoding(kind, element=bare_encoding(name, kind.element, options))
    if kind.name == "decimal":
        return Encoding(kind, _decimal_coding(name, kind.scale, options))
    if kind == BINARY:
        return Encoding(kind, f"bytes:{BYTES[options['binary_handling_mode']]}")
    if kind == DATE:
        # In every mode, a number means days.
        return Encoding(kind, "days_or_iso")
    if kind.name in ("timestamp", "timestamp_ntz"):
        return Encoding(kind, _timestamp_coding(name, options))
    return plain(kind)


def _decimal_coding(name: str, scale: int, options: Mapping[str, Any]) -> str:
    mode = options["decimal_handling_mode"]
    if mode is None:
        reason_text = f"Messages without schema do not say how the decimal {name} is written"
        raise required("debezium", "decimal_handling_mode", reason_text)
    return f"decimal_or_scaled:{scale}" if mode == "precise" else "text"


def _timestamp_coding(name: str, options: Mapping[str, Any]) -> str:
    """Return how a timestamp is written; without a unit, only texts are read, and a number is invalid."""
    mode = options["time_precision_mode"]
    unit = (options["time_units"] or {}).get(name) or (TIME_UNITS[mode] if mode is not None else None)
    return f"epoch_or_text:{unit}" if unit else "iso" if mode == "isostring" else "text"


class Schemas:
    """Remembers what follows from the schemas of messages.

    Messages share the object of a schema if their reader knows that its bytes are the same. Where it does
    not, equal schemas still give one result, so that columns of a batch can be read together.

    :param make: computes it
    """

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make
        #: By identity; each schema is kept, so that its identity stays its own.
        self._by_identity: dict[int, tuple[Any, Any]] = {}
        self._by_text: dict[str, Any] = {}
        self._size = 0

    def of(self, schema: Any) -> Any:
        """Return what follows from a schema."""
        known = self._by_identity.get(id(schema))
        if known is not None:
            return known[1]
        text = json_text(schema)
        if text in self._by_text:
            found = self._by_text[text]
        else:
            found = self._make(schema)
            self._size += len(text)
            if len(self._by_text) >= _MOST_SCHEMAS or self._size > _MOST_CHARACTERS:
                self._by_text.clear()
                self._by_identity.clear()
                self._size = len(text)
            self._by_text[text] = found
        if len(self._by_identity) >= _MOST_SCHEMAS:
            self._by_identity.clear()
        self._by_identity[id(schema)] = (schema, found)
        return found


class Placeholders:
    """Recognises a connector's placeholder of an unavailable value: as text, bytes, list, map, or UUIDs.

    :param text: the placeholder, or ``hex:`` and its bytes
    """

    def __init__(self, text: str) -> None:
        encoded = placeholder_bytes(text)
        text = encoded.decode("utf-8", "replace")
        digest = bytearray(hashlib.md5(encoded, usedforsecurity=False).digest())
        digest[6], digest[8] = digest[6] & 0x0F | 0x30, digest[8] & 0x3F | 0x80
        in_base64, url = base64.b64encode(encoded).decode(), base64.urlsafe_b64encode(encoded).decode()
        self._nested: list[Any] = [
            [text],
            [in_base64],
            [encoded],
            list(encoded),
            {text: text},
            [str(uuid.UUID(bytes=bytes(digest)))],
        ]
        texts = [text, in_base64, url, url.rstrip("="), encoded.hex(), encoded.hex().upper()]
        # A column of JSON may have a list or an object as text.
        texts += [json_text(value) for value in self._nested]
        texts += [json.dumps(value) for value in ([text], {text: text})]
        self._single: frozenset[Any] = frozenset((*texts, encoded))
        self._longest = max(map(len, self._nested))

    def of(self, row: Mapping[str, Any]) -> Sequence[str]:
        """Return the names of the columns whose values are placeholders."""
        try:
            if self._single.isdisjoint(row.values()):
                return ()
        except TypeError:
            # A list or an object has no hash.
            pass
        return [name for name, value in row.items() if self(value)]

    def __call__(self, value: Any) -> bool:
        """Return whether a value is a placeholder."""
        kind = type(value)
        if kind is str or kind is bytes:
            return value in self._single
        if kind is list or kind is dict:
            return len(value) <= self._longest and value in self._nested
        return False
