"""Whether an array of texts has exactly some names."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from delta_cdc.spark.changes.equality import is_list_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

SEED = 20261124
#: UTF-8 and UTF-16 sort the last two in another order.
NAMES = ("id", "ID", "v", "v2", "größe", "\uffee", "\U0001f600")


def test_a_list_has_all_names(spark: SparkSession) -> None:
    draw = random.Random(SEED)
    lists: list[Sequence[str | None] | None] = [None, [], [*NAMES], [*reversed(NAMES)], [*NAMES[1:], "id2"]]
    for _ in range(2000):
        names: list[str | None] = draw.sample(NAMES, draw.choice((len(NAMES), len(NAMES), len(NAMES) - 1)))
        if draw.random() < 0.5:
            names[draw.randrange(len(names))] = draw.choice((*NAMES, "x", None))
        lists.append(names)
    rows = spark.createDataFrame(list(enumerate(lists)), "i int, names array<string>")
    found = {row[0]: row[1] for row in rows.select("i", is_list_of(F.col("names"), NAMES)).collect()}
    wanted = {
        at: None if names is None else len(names) == len(NAMES) and set(names) == set(NAMES)
        for at, names in enumerate(lists)
    }
    assert found == wanted
    assert {True, False, None} == set(wanted.values())


def test_a_list_with_a_collation_is_compared_exactly(spark: SparkSession) -> None:
    collated = "CAST({} AS array<string COLLATE UTF8_LCASE>) AS names"
    for names, wanted in (("array('v', 'id')", True), ("array('V', 'id')", False), ("NULL", None)):
        rows = spark.sql(f"SELECT {collated.format(names)}")
        assert rows.select(is_list_of(F.col("names"), ("id", "v"))).collect()[0][0] is wanted
