"""Truncates and absences in the timelines of keys, against plain Python; work that grows with the events."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as T

from delta_cdc.core.adapters import DELETE, TRUNCATE, UPSERT
from delta_cdc.spark.apply import timeline
from delta_cdc.spark.apply.entries import PLACE, RANK
from delta_cdc.spark.apply.events import KIND
from delta_cdc.spark.apply.rows import Shape
from delta_cdc.spark.changes import states

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

#: Key, rank, place and kind. A base has rank 0 and no place.
Entry = tuple[int, int, int | None, str]

SCHEMA = T.StructType(
    [
        T.StructField("k", T.IntegerType()),
        T.StructField(RANK, T.IntegerType()),
        T.StructField(PLACE, T.IntegerType()),
        T.StructField(states.SEQUENCE, T.IntegerType()),
        T.StructField(KIND, T.StringType()),
    ]
)
SHAPE = Shape(("k",), ("k",), (), (), T.StructType(SCHEMA.fields[:1]), T.IntegerType(), T.IntegerType())


def drawn(draw: random.Random, places: list[int]) -> list[Entry]:
    """Return the entries of many keys: some have a base, all have events at some of the places."""
    rows: list[Entry] = []
    for key in range(60):
        rows += [(key, 0, None, draw.choice([UPSERT, DELETE]))] if draw.random() < 0.5 else []
        chosen = draw.sample(places, draw.randint(0, len(places)))
        rows += [(key, 1, place, draw.choice([UPSERT, UPSERT, DELETE])) for place in chosen]
    return rows


def added(
    spark: SparkSession, rows: list[Entry], numbers: list[int], add: Callable[..., DataFrame]
) -> tuple[list[Entry], str]:
    """Return the entries that a function adds to timelines, and its plan."""
    timelines = spark.createDataFrame([(k, rank, at, at, kind) for k, rank, at, kind in rows], SCHEMA)
    sequences = spark.createDataFrame([(number,) for number in numbers], f"`{states.SEQUENCE}` int")
    result = add(timelines, sequences, SHAPE)
    found = [tuple(row) for row in result.select("k", RANK, PLACE, KIND).collect()]
    for row in rows:
        found.remove(row)
    return sorted(found), result._jdf.queryExecution().toString()


@pytest.mark.parametrize("seed", range(3))
def test_the_next_truncate_after_each_upsert(spark: SparkSession, seed: int) -> None:
    draw = random.Random(seed)
    rows = drawn(draw, list(range(20)))
    truncates = [draw.randrange(-2, 22) for _ in range((1, 5, 40)[seed])]
    wanted = set()
    for key, _, place, kind in rows:
        later = [truncate for truncate in truncates if place is None or truncate > place]
        if kind == UPSERT and later:
            wanted.add((key, 1, min(later), TRUNCATE))
    found, plan = added(spark, rows, truncates, timeline.with_truncates)
    assert found == sorted(wanted)
    assert "NestedLoop" not in plan
    assert "CartesianProduct" not in plan


@pytest.mark.parametrize("seed", range(2))
def test_a_key_is_deleted_where_the_next_snapshot_lacks_it(spark: SparkSession, seed: int) -> None:
    draw = random.Random(seed)
    versions = sorted(draw.sample(range(100), 9))
    rows = drawn(draw, versions)
    at: dict[tuple[int, int | None], Any] = {(key, place): kind for key, _, place, kind in rows}
    wanted = [
        (key, 1, following, DELETE)
        for key in range(60)
        for place, following in zip([None, *versions], versions, strict=False)
        if at.get((key, place)) == UPSERT and (key, following) not in at
    ]
    found, plan = added(spark, rows, [*versions, *versions], timeline.with_absences)
    assert found == sorted(wanted)
    assert "NestedLoop" not in plan
