"""A hash of a row's values, which another system can compute, too.

The *digest* of a text is its SHA-256 in lower-case hexadecimal digits. The digest of another value is that of
a text made of it:

- number: its decimal digits without trailing zeros after the point; of binary floating point, Spark's text of
  a double, without the sign of zero
- BOOLEAN: ``true`` or ``false``; BINARY: its hexadecimal digits, in lower case; DATE: ``2026-01-31``
- time: ``2026-01-31T23:59:59.000000``, with a ``Z`` for UTC if the type has a zone
- struct: for each field that is not NULL, by name, the digest of its name in lower case, and that of its
  value
- array: the digests of its elements, in their order; 64 zeros for NULL
- map: for each entry, in the order of the keys' digests, the digest of its key, and that of its value, or
  zeros
- VARIANT: its JSON text

The hash of a row is the digest of the row as a struct. So a column without a value does not count, and
neither does the order of the columns. Nothing in the engine depends on the hash: it only shows what was
written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType

from delta_cdc.core.sql import quote, string

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.spark.apply.rows import Shape

_NONE = "0" * 64
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"


def with_hash(rows: DataFrame, shape: Shape, options: ApplyOptions) -> DataFrame:
    """Return rows with the hash of their values; without the option, ``rows``.

    :param rows: with the values of the shape
    """
    if options.row_hash_column is None:
        return rows
    return rows.withColumn(options.row_hash_column, F.expr(hash_sql(counted(shape, options))))


def counted(shape: Shape, options: ApplyOptions) -> dict[str, DataType]:
    """Return the columns that count, and their types: those that the pipeline fills from its source.

    A column that only the target has (``keep_dropped``, or of a table that existed before) does not count:
    another program may change it, and the source cannot compute its part of the hash. Columns that
    ``partition_by`` computes belong to the layout.
    """
    computed = {name.lower() for name, text in options.partition_by.items() if text is not None}
    return {
        field.name: field.dataType
        for field in shape.schema.fields
        if field.name.lower() not in computed and field.name != shape.flag
    }


def hash_sql(columns: dict[str, DataType]) -> str:
    """Return SQL of the hash of a row.

    :param columns: the columns that count, and their types
    """
    return _digest(_pairs((name, quote(name), data_type) for name, data_type in columns.items()))


def _pairs(fields: Iterable[tuple[str, str, DataType]], depth: int = 0) -> str:
    """Return SQL of the digests of names and values, by name.

    :param fields: name, SQL of the value, type
    """
    parts = []
    for name, value, data_type in sorted(fields, key=lambda field: field[0].lower().encode()):
        pair = f"concat({_digest(string(name.lower()))}, {_of_value(value, data_type, depth)})"
        parts.append(f"CASE WHEN {value} IS NOT NULL THEN {pair} ELSE '' END")
    return f"concat({', '.join(parts)})" if parts else "''"


def _of_value(value: str, data_type: DataType, depth: int) -> str:
    """Return SQL of the digest of a value that is not NULL.

    :param depth: number of enclosing lambdas
    """
    return _digest(_text(value, data_type, depth))


def _or_zeros(value: str, data_type: DataType, depth: int) -> str:
    return f"CASE WHEN {value} IS NULL THEN '{_NONE}' ELSE {_of_value(value, data_type, depth)} END"


def _text(value: str, data_type: DataType, depth: int) -> str:
    item = f"h{depth}"
    if isinstance(data_type, T.StructType):
        fields = [(field.name, f"{value}.{quote(field.name)}", field.dataType) for field in data_type.fields]
        return _pairs(fields, depth)
    if isinstance(data_type, T.ArrayType):
        element = _or_zeros(item, data_type.elementType, depth + 1)
        return f"array_join(transform({value}, {item} -> {element}), '')"
    if isinstance(data_type, T.MapType):
        key = _of_value(f"{item}.key", data_type.keyType, depth + 1)
        entry = _or_zeros(f"{item}.value", data_type.valueType, depth + 1)
        entries = f"transform(map_entries({value}), {item} -> concat({key}, {entry}))"
        return f"array_join(array_sort({entries}), '')"
    if isinstance(data_type, T.DecimalType) and data_type.scale:
        # CAST writes small numbers with an exponent.
        plain = f"replace(format_number({value}, {data_type.scale}), ',', '')"
        return f"regexp_replace({plain}, '[.]?0+$', '')"
    if isinstance(data_type, T.FloatType | T.DoubleType):
        return f"CAST(CAST({value} AS DOUBLE) + 0D AS STRING)"
    if isinstance(data_type, T.BinaryType):
        return f"lower(hex({value}))"
    if isinstance(data_type, T.TimestampType):
        return f"concat(date_format({value}, {string(_TIME)}), 'Z')"
    if isinstance(data_type, T.TimestampNTZType):
        return f"date_format({value}, {string(_TIME)})"
    if isinstance(data_type, T.VariantType):
        return f"to_json({value})"
    return f"CAST({value} AS STRING)"


def _digest(text: str) -> str:
    return f"sha2(CAST({text} AS BINARY), 256)"
