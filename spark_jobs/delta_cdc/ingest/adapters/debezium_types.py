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

from delta_cdc.core.adapters import BYTES, TIME_UNITS, required
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
    from collections.abc import Mapping

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
    "io.debezium.time.IsoTimestamp": ("text", TIMESTAMP),
    "io.debezium.time.IsoDate": ("text", DATE),
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


class _Damaged(Exception):
    """The schema of a message is damaged."""


# -- by schema ----------------------------------------------------------------------------------
def row_encodings(schema: Any, options: Mapping[str, Any]) -> dict[str, Encoding] | Invalid:
    """Return the encodings of a row's columns from the schema of a message; {} if it describes no row."""
    try:
        fields = _fields(schema)
        if options["unwrapped"]:
            prefix = options["field_prefix"]
            return {name: _encoding(field) for name, field in fields.items() if not name.startswith(prefix)}
        image = fields.get("after") or fields.get("before")
        if image is None:
            return {}
        return {name: _encoding(field) for name, field in _fields(image).items()}
    except _Damaged as error:
        return Invalid(f"the schema of the message is damaged: {error}")


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
        found[name] = field
    return found


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
        fields = tuple((n, _encoding(field, level + 1)) for n, field in _fields(schema).items())
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
    precision = _number(parameters.get("connect.decimal.precision"))
    if scale is None:
        raise _Damaged("a decimal has no scale")
    if precision is None:
        precision = 38
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
        return Encoding(kind, "days_or_text")
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
    column_unit = (options["time_units"] or {}).get(name)
    if column_unit is not None:
        return f"epoch_or_text:{column_unit}"
    mode = options["time_precision_mode"]
    if mode is None:
        reason_text = f"Messages without schema do not say in which unit the timestamp {name} is written"
        raise required("debezium", "time_precision_mode", reason_text)
    unit = TIME_UNITS[mode]
    return f"epoch_or_text:{unit}" if unit else "text"


class Placeholders:
    """Recognises a connector's placeholder of an unavailable value: as text, bytes, list, map, or UUIDs."""

    def __init__(self, text: str) -> None:
        encoded = text.encode()
        digest = bytearray(hashlib.md5(encoded, usedforsecurity=False).digest())
        digest[6], digest[8] = digest[6] & 0x0F | 0x30, digest[8] & 0x3F | 0x80
        url = base64.urlsafe_b64encode(encoded).decode()
        texts = [
            text,
            base64.b64encode(encoded).decode(),
            url,
            url.rstrip("="),
            encoded.hex(),
            encoded.hex().upper(),
        ]
        #: Texts that are one.
        self.texts = frozenset(texts)
        nested = [
            [text],
            [base64.b64encode(encoded).decode()],
            list(encoded),
            [str(byte) for byte in encoded],
            {text: text},
            [str(uuid.UUID(bytes=bytes(digest)))],
        ]
        self._nested = frozenset(json.dumps(one, separators=(",", ":")) for one in nested)
        self._longest = max(map(len, self._nested))

    def __call__(self, value: Any) -> bool:
        """Return whether a value is a placeholder."""
        if isinstance(value, str):
            return value in self.texts or (value[:1] in ("[", "{") and value in self._nested)
        if isinstance(value, list | dict) and 0 < len(value) <= self._longest:
            return json_text(value) in self._nested
        return False
