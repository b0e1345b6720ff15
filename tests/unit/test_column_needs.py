"""Which names need column mapping."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from delta_cdc.core.properties import COLUMN_MAPPING
from delta_cdc.spark.column_needs import mapping


def struct(name: str) -> T.StructType:
    return T.StructType([T.StructField(name, T.IntegerType())])


@pytest.mark.parametrize(
    "name", ["a", "a.b", "a`b", "größe", "a b", "a,b", "a;b", "a=b", "a(b)", "{a}", "a\tb"]
)
def test_a_name_anywhere_in_a_type(name: str) -> None:
    needed = {COLUMN_MAPPING: "name"} if set(name) & set(" ,;{}()\n\t=") else {}
    for data_type in (
        T.IntegerType(),
        struct(name),
        T.ArrayType(T.ArrayType(struct(name))),
        T.MapType(struct(name), T.IntegerType()),
        T.MapType(T.StringType(), struct(name)),
    ):
        nested = T.StructType([T.StructField("v", T.StructType([T.StructField("w", data_type)]))])
        assert mapping(nested) == ({} if isinstance(data_type, T.IntegerType) else needed)
    assert mapping(struct(name)) == needed
