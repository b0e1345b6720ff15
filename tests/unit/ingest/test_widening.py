"""The types of Spark that hold the values of two others; ``test_infer.py`` has the rules."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from delta_cdc.spark.ingest.widening import wider

INT, LONG, TEXT = T.IntegerType(), T.LongType(), T.StringType()


def struct(**fields: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (INT, INT, INT),
        (T.NullType(), TEXT, TEXT),
        (T.DecimalType(5, 2), LONG, T.DecimalType(22, 2)),
        (T.DateType(), T.TimestampNTZType(), T.TimestampNTZType()),
        (T.TimestampType(), T.TimestampNTZType(), None),
        (T.VarcharType(3), TEXT, TEXT),
        (T.ArrayType(INT), T.ArrayType(LONG), T.ArrayType(LONG)),
        (T.MapType(TEXT, INT), T.MapType(TEXT, LONG), T.MapType(TEXT, LONG)),
        (struct(a=INT), struct(A=LONG, b=TEXT), struct(a=LONG, b=TEXT)),
    ],
    ids=str,
)
def test_wider(one: T.DataType, other: T.DataType, both: T.DataType | None) -> None:
    assert wider(one, other) == both
    turned = wider(other, one)
    assert (turned is None) == (both is None)
    if not isinstance(one, T.StructType):
        assert turned == both
