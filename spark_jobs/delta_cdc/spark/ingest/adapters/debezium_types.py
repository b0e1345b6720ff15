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
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core import codec
from delta_cdc.core.adapters import BYTES, TIME_UNITS, required
from delta_cdc.core.validation import invalid
from delta_cdc.spark.ingest.adapters import parsing
from delta_cdc.spark.ingest.adapters.values import Value, aimed, plain_value, spelt_otherwise
from delta_cdc.spark.ingest.widening import wider, widest_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta_cdc.core.change_log import Context

_SCALED = "io.debezium.data.VariableScaleDecimal"
#: For each logical type: the coding and the Spark type.
_LOGICAL = {
    "io.debezium.time.Date": ("days", "date"),
    "org.apache.kafka.connect.data.Date": ("days", "date"),
    "io.debezium.time.Timestamp": ("epoch:ms", "timestamp"),
    "io.debezium.time.MicroTimestamp": ("epoch:us", "timestamp"),
    "io.debezium.time.NanoTimestamp": ("epoch:ns", "timestamp"),
    "org.apache.kafka.connect.data.Timestamp": ("epoch:ms", "timestamp"),
    "io.debezium.time.ZonedTimestamp": ("text", "timestamp"),
    "io.debezium.time.IsoTimestamp": ("text", "timestamp"),
    "io.debezium.time.IsoDate": ("text", "date"),
    "io.debezium.time.Time": ("time:ms", "string"),
    "io.debezium.time.MicroTime": ("time:us", "string"),
    "io.debezium.time.NanoTime": ("time:ns", "string"),
    "org.apache.kafka.connect.data.Time": ("time:ms", "string"),
}
_PRIMITIVE = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "float32": "float",
    "double": "double",
    "float64": "double",
    "boolean": "boolean",
    "string": "string",
}


def columns_of(
    frame: DataFrame, context: Context, options: Mapping[str, Any], schema: str, schema_id: str
) -> tuple[dict[str, Value], parsing.Alternatives]:
    """Return the columns of a batch, and their encodings in the messages of each schema.

    One pass over the batch finds the schemas. If messages have no schema, and neither the option ``schema``
    nor the log has their types, a second pass infers the types from the values.

    :param schema: the column with the message's schema as text
    :param schema_id: the column with the hash of this schema
    :raises InvalidConfiguration: an option is missing on which the encoding of values depends
    """
    has_row = F.col(parsing.ROW).isNotNull()
    summary = frame.agg(
        F.collect_set(F.when(F.col(schema).isNotNull(), F.struct(schema_id, schema))).alias("schemas"),
        F.count_if(F.col(schema).isNull() & has_row).alias("bare"),
    ).collect()[0]
    schema_columns = {row[0]: row_columns(row[1], options) for row in sorted(summary["schemas"])}
    # Other schemas in the topic (for instance of transaction messages) have no row.
    schema_columns = {way: columns for way, columns in schema_columns.items() if columns}
    known_types = _known_types(context)
    bare_columns: dict[str, Value] = {}
    if summary["bare"]:
        bare_rows = frame.where(F.col(schema).isNull())
        bare_columns = {
            name: bare_value(name, value.data_type, options)
            for name, value in parsing.layout(bare_rows, context).items()
        }
    names = _names(context, known_types, bare_columns, schema_columns)
    encodings = {
        name: [columns[name] for columns in schema_columns.values() if name in columns] for name in names
    }
    types = {
        name: known_types.get(name) or reduce(_common, [value.data_type for value in encodings[name]])
        if encodings[name]
        else None
        for name in names
    }
    ways = {
        way: {
            name: aimed(value, types[name] or value.data_type)
            for name, value in columns.items()
            if name in types
        }
        for way, columns in schema_columns.items()
    }
    columns = {}
    for name in names:
        schema_encoding = next((way[name] for way in ways.values() if name in way), None)
        kind = known_types.get(name) or types[name]
        # A column without a value in the batch has a known type, from the log or from ``schema``.
        encoding = bare_columns.get(name) or schema_encoding or plain_value(known_types[name])
        columns[name] = aimed(encoding, kind) if kind is not None and name in bare_columns else encoding
    return columns, parsing.Alternatives(F.col(schema_id), ways)


def _known_types(context: Context) -> dict[str, T.DataType]:
    """Return the types of the option ``schema``, or else those of the log."""
    known_schema = context.declared or context.known
    return {field.name: field.dataType for field in known_schema.fields} if known_schema is not None else {}


def _names(
    context: Context,
    known_types: Mapping[str, T.DataType],
    bare_columns: Mapping[str, Value],
    schema_columns: Mapping[int, Mapping[str, Value]],
) -> list[str]:
    """Return the columns of the batch: those of the option ``schema``, else those of the log and new ones."""
    if context.declared is not None:
        return list(known_types)
    names = list(known_types)
    for columns in (bare_columns, *schema_columns.values()):
        lower = {name.lower() for name in names}
        names += [name for name in columns if name.lower() not in lower]
    return names


def _common(first: T.DataType, second: T.DataType) -> T.DataType:
    """Return the type of a column whose type changed inside a batch; string for types of different kinds."""
    kind = None if spelt_otherwise(first, second) else wider(first, second)
    if kind is None and isinstance(first, T.NumericType) and isinstance(second, T.NumericType):
        return widest_number(first, second)
    return kind or T.StringType()


# -- by schema ----------------------------------------------------------------------------------
def row_columns(text: str, options: Mapping[str, Any]) -> dict[str, Value]:
    """Return the columns of the row from the schema of a message; an empty dict if it describes no row."""
    schema = codec.parsed(text)
    fields = schema.get("fields") or []
    if options["unwrapped"]:
        prefix = options["field_prefix"]
        return {f["field"]: value_of(f, options) for f in fields if not f["field"].startswith(prefix)}
    images = {f["field"]: f for f in fields if f.get("field") in ("before", "after")}
    image = images.get("after") or images.get("before") or {}
    return {f["field"]: value_of(f, options) for f in image.get("fields") or []}


def value_of(schema: Mapping[str, Any], options: Mapping[str, Any]) -> Value:
    """Return the encoding and the Spark type of a field of a Kafka Connect schema.

    :raises InvalidConfiguration: a map's keys are not text
    """
    name, kind = schema.get("name") or "", schema["type"]
    if name in _LOGICAL:
        coding, ddl = _LOGICAL[name]
        return Value(T.DataType.fromDDL(ddl), coding)
    if name == _SCALED:
        return Value(T.DecimalType(38, 18), "scaled")
    if kind == "bytes":
        return _bytes_value(schema, name)
    if kind == "struct":
        fields = tuple((f["field"], value_of(f, options)) for f in schema["fields"])
        return Value(T.StructType([T.StructField(n, v.data_type) for n, v in fields]), fields=fields)
    if kind == "array":
        element = value_of(schema["items"], options)
        return Value(T.ArrayType(element.data_type), element=element)
    if kind == "map":
        if schema["keys"]["type"] != "string":
            raise invalid(
                f"the messages' schema has a map with keys of type {schema['keys']['type']}",
                "leave the column out where the connector reads it, or have it sent as JSON.",
            )
        element = value_of(schema["values"], options)
        return Value(T.MapType(T.StringType(), element.data_type), element=element)
    return Value(T.DataType.fromDDL(_PRIMITIVE[kind]))


def _bytes_value(schema: Mapping[str, Any], name: str) -> Value:
    if name != "org.apache.kafka.connect.data.Decimal":
        return Value(T.BinaryType(), "bytes:base64")
    parameters = schema.get("parameters") or {}
    scale = int(parameters["scale"])
    precision = int(parameters.get("connect.decimal.precision") or 38)
    # A decimal of a database may exceed Spark's precision. A value that does not fit becomes an error.
    fits = 0 <= scale <= 38 and precision <= 38
    decimal_type = (
        T.DecimalType(max(precision, scale), scale) if fits else T.DecimalType(38, min(max(scale, 0), 38))
    )
    return Value(decimal_type, f"decimal:{scale}")


# -- without schema -----------------------------------------------------------------------------
def bare_value(name: str, data_type: T.DataType, options: Mapping[str, Any]) -> Value:
    """Return the encoding of a value without schema, from the connector's options.

    :raises InvalidConfiguration: an option is missing
    """
    if isinstance(data_type, T.StructType):
        fields = tuple(
            (f.name, bare_value(f"{name}.{f.name}", f.dataType, options)) for f in data_type.fields
        )
        return Value(data_type, fields=fields)
    if isinstance(data_type, T.ArrayType):
        return Value(data_type, element=bare_value(name, data_type.elementType, options))
    if isinstance(data_type, T.DecimalType):
        return Value(data_type, _decimal_coding(name, data_type.scale, options))
    if isinstance(data_type, T.BinaryType):
        return Value(data_type, f"bytes:{BYTES[options['binary_handling_mode']]}")
    if isinstance(data_type, T.DateType):
        # In every mode, a number means days.
        return Value(data_type, "days_or_text")
    if isinstance(data_type, T.TimestampType | T.TimestampNTZType):
        return Value(data_type, _timestamp_coding(name, options))
    return plain_value(data_type)


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


def placeholders(text: str) -> list[str]:
    """Return the encodings of a connector's placeholder: as text, bytes, array, map, or UUIDs."""
    encoded = text.encode()
    digest = bytearray(hashlib.md5(encoded, usedforsecurity=False).digest())
    digest[6], digest[8] = digest[6] & 0x0F | 0x30, digest[8] & 0x3F | 0x80
    encodings = [
        text,
        base64.b64encode(encoded).decode(),
        base64.urlsafe_b64encode(encoded).decode(),
        base64.urlsafe_b64encode(encoded).decode().rstrip("="),
        encoded.hex(),
        encoded.hex().upper(),
        json.dumps([text]),
        json.dumps([base64.b64encode(encoded).decode()]),
        json.dumps(list(encoded), separators=(",", ":")),
        # The adapter reads numbers as text to keep all digits.
        json.dumps([str(byte) for byte in encoded], separators=(",", ":")),
        json.dumps({text: text}, separators=(",", ":")),
        json.dumps([str(uuid.UUID(bytes=bytes(digest)))]),
    ]
    return list(dict.fromkeys(encodings))
