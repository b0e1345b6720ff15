"""The type of two types, against the type that Spark gives to a UNION of their values."""

from __future__ import annotations

import random
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from delta_cdc.spark.ingest.widening import wider

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHOLE = ("tinyint", "smallint", "int", "bigint")
OTHERS = ("float", "double", "date", "timestamp_ntz", "string")


def drawn_types(draw: random.Random) -> list[str]:
    """Return all simple types, and decimals around the limits (15, 38 digits) and anywhere."""
    decimals = {(15, 2), (16, 2), (15, 15), (38, 0), (38, 38), (19, 0), (10, 0)}
    for _ in range(9):
        precision = draw.randint(1, 38)
        decimals.add((precision, draw.randint(0, precision)))
    return [*WHOLE, *OTHERS, *(f"decimal({precision},{scale})" for precision, scale in sorted(decimals))]


def numbers(kind: str, draw: random.Random) -> list[str]:
    """Return literals of a type: also the greatest ones, which lose digits first."""
    if kind in ("float", "double"):
        return [f"CAST('{draw.uniform(-1e6, 1e6)}' AS {kind})", f"CAST('1e30' AS {kind})"]
    parsed = T.DataType.fromDDL(kind)
    if isinstance(parsed, T.DecimalType):
        most, scale = 10**parsed.precision - 1, parsed.scale
    else:
        most, scale = 2 ** (8 * 2 ** WHOLE.index(kind) - 1) - 2, 0
    values = (most, -most, draw.randint(-most, most), most // 3 * 2)
    return [f"CAST({value}{f'e-{scale}BD' if scale else ''} AS {kind})" for value in values]


def test_as_spark_does_but_only_if_no_value_changes(spark: SparkSession) -> None:
    draw = random.Random(1)
    pairs = list(combinations_with_replacement(drawn_types(draw), 2))
    types = {pair: [T.DataType.fromDDL(kind) for kind in pair] for pair in pairs}
    is_number = {pair: all(isinstance(kind, T.NumericType) for kind in types[pair]) for pair in pairs}
    ours = {pair: wider(*types[pair]) for pair in pairs}
    compared = [pair for pair in pairs if ours[pair] is not None or is_number[pair]]
    union = [f"coalesce(CAST(NULL AS {one}), CAST(NULL AS {other}))" for one, other in compared]
    fields = spark.sql(f"SELECT {', '.join(union)}").schema.fields
    theirs = {pair: field.dataType for pair, field in zip(compared, fields, strict=True)}
    assert {pair: kind for pair, kind in ours.items() if kind not in (None, theirs.get(pair))} == {}
    # Spark's type restores the values of both types exactly where we have a type.
    checks = [
        (pair, f"try_cast(try_cast({value} AS {theirs[pair].simpleString()}) AS {kind}) <=> {value}")
        for pair in compared
        if is_number[pair]
        for kind in pair
        for value in numbers(kind, draw)
    ]
    lossy = set()
    for start in range(0, len(checks), 500):
        some = checks[start : start + 500]
        (kept,) = spark.sql(f"SELECT array({', '.join(check for _, check in some)})").collect()[0]
        lossy |= {pair for (pair, _), is_kept in zip(some, kept, strict=True) if not is_kept}
    assert lossy == {pair for pair in compared if ours[pair] is None}
    assert len(compared) - len(lossy) > len(lossy) > 50
