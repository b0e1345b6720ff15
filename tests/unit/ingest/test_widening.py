"""The types of Spark that hold the values of two others; ``test_infer.py`` has the rules."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from delta_cdc.core.spec import SourceFile
from delta_cdc.spark.ingest import columnar
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


def test_a_column_of_parquet_without_a_type_is_of_any_type() -> None:
    """Spark reads it as INT, which says nothing of the values that other files have."""
    empty, full = SourceFile("/in/a", 1, 0, untyped=("v",)), SourceFile("/in/b", 1, 0)
    groups = [(struct(id=INT, v=INT), [empty]), (struct(id=LONG, v=TEXT), [full])]
    for given in (groups, groups[::-1]):
        assert columnar._widest(given) == struct(id=LONG, v=TEXT)
    assert columnar._widest(groups[:1]) == struct(id=INT, v=T.NullType())
