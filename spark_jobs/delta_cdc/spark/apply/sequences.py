"""Convert sequence values to text, which seals and table properties use, and back.

A single value becomes its text under CAST. A sequence of several parts becomes a JSON list of such texts,
because the text of a struct cannot be converted back.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType

from delta_cdc.core import codec
from delta_cdc.core.sql import string


def as_text(value: Column, data_type: DataType) -> Column:
    """Return a sequence value as text; NULL if it is NULL."""
    if not isinstance(data_type, T.StructType):
        return value.cast("string")
    parts = F.array(*[value.getField(field.name).cast("string") for field in data_type.fields])
    return F.when(value.isNotNull(), F.to_json(parts))


def from_text(text: str, data_type: DataType) -> Column:
    """Return the sequence value of a text."""
    if not isinstance(data_type, T.StructType):
        return F.lit(text).cast(data_type)
    parts = zip(codec.parsed(text), data_type.fields, strict=True)
    return F.struct(*[F.lit(part).cast(field.dataType).alias(field.name) for part, field in parts])


def is_below_sql(text: str, bound: str, data_type: DataType) -> str:
    """Return the SQL of whether a sequence value is below a bound; NULL for a text of another type.

    :param text: SQL of the text
    :param bound: the bound's text
    """
    return f"{_value_sql(text, data_type)} < {_value_sql(string(bound), data_type)}"


def _value_sql(text: str, data_type: DataType) -> str:
    if not isinstance(data_type, T.StructType):
        return f"try_cast({text} AS {data_type.simpleString()})"
    parts = [
        f"try_cast(get(from_json({text}, 'array<string>'), {index}) AS {field.dataType.simpleString()})"
        for index, field in enumerate(data_type.fields)
    ]
    return f"struct({', '.join(parts)})"


def greater(
    session: SparkSession, data_type: DataType | None, one: str | None, other: str | None
) -> str | None:
    """Return the greater of two sequence values as text; None is lower than any value."""
    if one is None or other is None:
        # Compare with None, because an empty text is a value.
        return other if one is None else one
    assert data_type is not None
    ranks = [_rank(text, data_type) for text in (one, other)]
    if None not in ranks:
        return one if ranks[0] > ranks[1] else other  # type: ignore[operator]
    values = [from_text(text, data_type) for text in (one, other)]
    rows = session.range(1).select(as_text(F.greatest(*values), data_type).alias("greatest")).collect()
    return str(rows[0]["greatest"])


def _rank(text: str | None, data_type: DataType) -> tuple[Any, ...] | None:
    """Return a value that Python orders as Spark orders the sequence; None if only Spark knows the order."""
    if text is None:
        # A field of a struct.
        return None
    if isinstance(data_type, T.StructType):
        parts = zip(codec.parsed(text), data_type.fields, strict=True)
        ranks = [_rank(part, field.dataType) for part, field in parts]
        return None if None in ranks else tuple(ranks)
    if isinstance(data_type, T.IntegralType | T.DecimalType):
        return (Decimal(text),)
    if data_type == T.StringType():
        # Spark compares bytes.
        return (text.encode(),)
    if isinstance(data_type, T.DateType | T.TimestampType | T.TimestampNTZType) and _FOUR_DIGITS.match(text):
        # The texts of these years have parts of fixed width; a fraction of a second has no final zeros.
        return (text,)
    return None


_FOUR_DIGITS = re.compile("[0-9]{4}-")
