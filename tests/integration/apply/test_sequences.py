"""Sequences: their order in Python is that of Spark; their parts may have any type."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc import apply_changes
from delta_cdc.spark.apply import sequences

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


@pytest.mark.slow
def test_a_part_that_is_never_null_with_partial_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Delta stores the parts of a sequence as nullable, whatever the type of their expressions."""
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    spark.sql(
        f"CREATE TABLE delta.`{source}` (id INT, v STRING, u INT) USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    arguments: dict[str, Any] = {
        "keys": ["id"],
        "stored_as_scd_type": 2,
        "ignore_null_updates": True,
        "sequence_by": ["_commit_version", "coalesce(u, 9)"],
        "delete_sequence": "struct(_commit_version, 9 AS last)",
    }
    for statement in ("INSERT INTO {} VALUES (1, 'a', 1), (2, 'b', 2)", "UPDATE {} SET v = 'c' WHERE id = 1"):
        spark.sql(statement.format(f"delta.`{source}`"))
        apply_changes(spark, source, target, pipeline="parts", **arguments)
    rows = spark.read.format("delta").load(target).select("id", "v", "__START_AT", "__END_AT").collect()
    found = [(row[0], row[1], tuple(row[2]), row[3] and tuple(row[3])) for row in rows]
    assert sorted(found, key=str) == [
        (1, "a", (1, 1), (2, 1)),
        (1, "c", (2, 1), None),
        (2, "b", (1, 2), None),
    ]
