"""Spark reads each predicate that a repair accepts as the same comparisons of keys."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.key_predicates import check_key_predicate
from tests.support.drawn_predicates import KEYS, drawn, mutated

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ROWS = [(1, "a", 0), (-3, "ab", 7), (0, "", None), (None, "b'", 1), (7, None, -3), (8, "B%", 2)]


def test_the_meaning_of_accepted_predicates(spark: SparkSession) -> None:
    draw = random.Random(80)
    predicates = [drawn(draw) for _ in range(300)]
    frame = spark.createDataFrame(ROWS, "id BIGINT, `a.b` STRING, `we``ird` INT")
    found = frame.select("*", *[F.expr(" ".join(tokens)) for tokens, _ in predicates]).collect()
    for row in found:
        values = dict(zip(frame.columns, row, strict=False))
        for (tokens, meaning), value in zip(predicates, list(row)[len(frame.columns) :], strict=True):
            assert value == meaning(values), (" ".join(tokens), values)


def test_whatever_else_is_accepted_is_a_predicate_for_spark(spark: SparkSession) -> None:
    draw = random.Random(81)
    frame = spark.createDataFrame([], "id BIGINT, `a.b` STRING, `we``ird` INT")
    resolved = 0
    for _ in range(800):
        text = mutated(draw, drawn(draw)[0])
        try:
            check_key_predicate(text, KEYS)
        except InvalidConfiguration:
            continue
        predicate = F.expr(text)
        found = _type(frame, predicate)
        assert found in ("boolean", "void") or found.startswith("DATATYPE_MISMATCH"), text
        resolved += found == "boolean"
    assert resolved > 50


def _type(frame: DataFrame, predicate: Column) -> str:
    try:
        return frame.select(predicate).schema[0].dataType.simpleString()
    except AnalysisException as error:
        return str(error.getCondition())
