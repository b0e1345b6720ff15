"""Rows that a step has computed and kept, gone when it needs them: an executor died with them in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delta_cdc.core.options import ApplyOptions
from tests.support.engine import Flow, seal_of, versions
from tests.support.holding import hooked, once
from tests.support.world import Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


def forgetting(spark: SparkSession) -> Callable[[], object]:
    """Return what does to a local Spark what the death of an executor does to a cluster."""

    def forget() -> None:
        for rdd in spark.sparkContext._jsc.getPersistentRDDs().values():
            rdd.unpersist(True)

    return forget


@pytest.fixture
def flow(spark: SparkSession, tmp_table: Callable[[str], str]) -> Flow:
    source = Source(tmp_table("source")).create(spark)
    source.insert(spark, {1: ("a", 1), 2: ("b", 2)})
    made = Flow(spark, source.path, tmp_table("target"), ApplyOptions(keys=("id",), stored_as_scd_type=2))
    assert made.load().status == "committed"
    source.update(spark, {1: ("A", 3)})
    source.delete(spark, [2])
    return made


def test_a_step_computes_them_again(spark: SparkSession, flow: Flow) -> None:
    before = versions(flow.target)
    with hooked(once("before_commit", forgetting(spark))):
        result = flow.apply()
    assert result.status == "committed", result
    made = [version for version in versions(flow.target) if version not in before]
    assert [version for version in made if seal_of(flow.target, version)] == made[:1], "one commit"
    current = {row["id"]: row["name"] for row in flow.rows("__END_AT IS NULL")}
    assert current == {1: "A"}
    assert len(flow.rows()) == 3


@pytest.mark.slow
def test_a_cluster_that_keeps_losing_them(spark: SparkSession, flow: Flow) -> None:
    """Given up after a few times, by a name that retry rules can match; nothing is written."""
    before, forget, came = versions(flow.target), forgetting(spark), []

    def every_time(point: str) -> None:
        if point == "before_commit":
            came.append(point)
            forget()

    with hooked(every_time):
        result = flow.apply()
    assert result.status == "failed"
    assert (result.error or {})["class"] == "ExecutorLost"
    assert len(came) == 3
    assert versions(flow.target) == before
