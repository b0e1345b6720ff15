"""Which types hold the values of two others."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from delta_cdc.spark.ingest.widening import wider

BYTE, SHORT, INT, LONG = T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType()
FLOAT, DOUBLE, TEXT = T.FloatType(), T.DoubleType(), T.StringType()
DATE, ZONED, NAIVE = T.DateType(), T.TimestampType(), T.TimestampNTZType()


def struct(**fields: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (INT, INT, INT),
        (INT, LONG, LONG),
        (BYTE, SHORT, SHORT),
        (T.NullType(), TEXT, TEXT),
        (FLOAT, DOUBLE, DOUBLE),
        (INT, DOUBLE, DOUBLE),
        # Not every whole number of this size is a double, nor every int a float.
        (LONG, DOUBLE, None),
        (INT, FLOAT, DOUBLE),
        (T.DecimalType(5, 2), T.DecimalType(10, 0), T.DecimalType(12, 2)),
        (T.DecimalType(5, 2), LONG, T.DecimalType(22, 2)),
        (T.DecimalType(38, 2), T.DecimalType(38, 4), None),
        (T.DecimalType(5, 2), DOUBLE, DOUBLE),
        (T.DecimalType(16, 2), DOUBLE, None),
        (DATE, NAIVE, NAIVE),
        # Midnight of which zone?
        (DATE, ZONED, None),
        (ZONED, NAIVE, None),
        (TEXT, INT, None),
        (T.VarcharType(3), TEXT, TEXT),
        (T.ArrayType(INT), T.ArrayType(LONG), T.ArrayType(LONG)),
        (T.ArrayType(INT), INT, None),
        (T.MapType(TEXT, INT), T.MapType(TEXT, LONG), T.MapType(TEXT, LONG)),
        (T.MapType(TEXT, INT), T.MapType(TEXT, TEXT), None),
        (struct(a=INT), struct(A=LONG, b=TEXT), struct(a=LONG, b=TEXT)),
        (struct(a=INT), struct(a=TEXT), None),
    ],
    ids=str,
)
def test_wider(one: T.DataType, other: T.DataType, both: T.DataType | None) -> None:
    assert wider(one, other) == both
    turned = wider(other, one)
    assert (turned is None) == (both is None)
    if not isinstance(one, T.StructType):
        assert turned == both
