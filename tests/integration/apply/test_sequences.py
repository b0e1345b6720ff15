"""The order of sequence values in Python is that of Spark."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.spark.apply import sequences

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

SEED = 20261123

#: Type -> a Spark expression that makes a value of it from a number ``n`` of random size and sign.
VALUES: dict[str, Callable[[random.Random], str]] = {
    "bigint": lambda r: str(r.choice([r.getrandbits(63), -r.getrandbits(63), r.randrange(-20, 20)])),
    "decimal(20,4)": lambda r: f"{r.randrange(-(10**9), 10**9)}.{r.randrange(10**4):04d}",
    "string": lambda r: "".join(r.choice("aAzZ09 .-_\u00e9\uffee\U0001f600") for _ in range(r.randrange(5))),
    "date": lambda r: f"{r.choice([r.randrange(1, 10_000), 2026]):04d}-{r.randrange(1, 13):02d}-01",
    "timestamp": lambda r: _time(r),
    "timestamp_ntz": lambda r: _time(r),
}


def _time(r: random.Random) -> str:
    fraction = r.choice(["", f".{r.randrange(10**6):06d}", f".{r.randrange(10)}"])
    day = f"{r.choice([1, 999, 2026, 9999]):04d}-02-{r.randrange(1, 28):02d}"
    return f"{day} 10:{r.randrange(60):02d}:07{fraction}"


def pairs(of_type: str) -> list[tuple[str, str]]:
    chance = random.Random(f"{SEED} {of_type}")
    return [(VALUES[of_type](chance), VALUES[of_type](chance)) for _ in range(300)]


@pytest.mark.parametrize("of_type", list(VALUES))
def test_python_orders_as_spark_does(spark: SparkSession, of_type: str) -> None:
    frame = spark.createDataFrame(pairs(of_type), "one string, other string")
    values = [F.col(name).cast(of_type).alias(name) for name in ("one", "other")]
    data_type = frame.select(*values).schema["one"].dataType
    texts = [sequences.as_text(value, data_type) for value in (*values, F.greatest(*values))]
    rows = frame.select(*[text.alias(name) for text, name in zip(texts, "abg", strict=True)]).collect()
    assert len(rows) == 300
    for row in rows:
        assert sequences._rank(row["a"], data_type) is not None
        # If two values are equal, their texts are equal.
        assert sequences.greater(spark, data_type, row["a"], row["b"]) == row["g"]


@pytest.mark.parametrize(
    ("data_type", "one", "other", "greatest"),
    [
        (T.DoubleType(), "NaN", "1.0E10", "NaN"),
        (T.TimestampType(), "+10000-01-01 00:00:00", "2026-01-01 00:00:00", "+10000-01-01 00:00:00"),
        (T.DateType(), "-0001-01-01", "0001-01-01", "0001-01-01"),
        (
            T.StructType([T.StructField("a", T.StringType()), T.StructField("b", T.LongType())]),
            '["x",null]',
            '["x","1"]',
            '["x","1"]',
        ),
        (
            T.StructType([T.StructField("a", T.DateType()), T.StructField("b", T.LongType())]),
            '["2026-01-01","9"]',
            '["2026-01-01","10"]',
            '["2026-01-01","10"]',
        ),
    ],
)
def test_values_whose_texts_do_not_sort(
    spark: SparkSession, data_type: T.DataType, one: str, other: str, greatest: str
) -> None:
    assert sequences.greater(spark, data_type, one, other) == greatest
    assert sequences.greater(spark, data_type, other, one) == greatest
