"""A second opinion: Spark's own ``SELECT … CHANGES FROM VERSION …`` over Delta tables with row tracking.

It is internal and off by default in Delta 4.4.0, shares no code with the engine, and answers two of the four
questions: every change (``dropCarryovers``) and the net effect per row (``netChanges``). Where the two differ
by design, the docs say how: "Differences from Spark's CHANGES".
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import read_changes
from delta_cdc.core.sql import table as sql_name
from tests.support.change_histories import ChangeHistories, Layout, drawn_steps, number_of_histories
from tests.support.random_logs import replayable, seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    Told = Counter[tuple[Any, ...]]

pytestmark = pytest.mark.slow

_SWITCH = "spark.databricks.delta.changelogV2.enabled"
PAIR = ("update_preimage", "update_postimage")


@pytest.fixture(scope="module")
def second_opinion(spark: SparkSession) -> Iterator[Callable[..., Told]]:
    """Return what asks Spark's CHANGES: ``(table, starting, ending, mode)`` -> rows as a bag."""
    spark.conf.set(_SWITCH, "true")

    def ask(path: str, starting: int, ending: int, mode: str, columns: str = "* EXCEPT (_metadata)") -> Told:
        rows = spark.sql(
            f"SELECT {columns} FROM {sql_name(path)} CHANGES FROM VERSION {starting} TO VERSION "
            f"{ending} WITH (deduplicationMode = '{mode}', computeUpdates = true)"
        )
        return _bag(rows)

    yield ask
    spark.conf.unset(_SWITCH)


def _bag(rows: Any) -> Told:
    return Counter(map(tuple, rows.collect()))


def _ours(spark: SparkSession, path: str, starting: int, ending: int, query: str) -> Told:
    found = read_changes(
        spark, path, starting_version=starting, ending_version=ending, query=query, method="row_tracking"
    )
    return _bag(found)


def _random(spark: SparkSession, tmp_path: Path, seed: int) -> ChangeHistories:
    layout = Layout(vectors=bool(seed % 2), partition_by=("u",) if seed % 3 else ())
    world = ChangeHistories(spark, str(tmp_path / "table"), seed, number_of_histories(60), layout)
    world.create()
    for step in drawn_steps(seed, 8, column=bool(seed % 2)):
        world.step(step)
    return world


def _agree(spark: SparkSession, ask: Callable[..., Told], world: ChangeHistories) -> None:
    newest = world.model.newest
    for starting, ending in ((0, newest), (1, newest // 2), (newest // 2, newest)):
        theirs = ask(world.path, starting, ending, "dropCarryovers")
        ours = _ours(spark, world.path, starting, ending, "full_delta")
        assert ours == _without_rows_that_came_back(theirs), (starting, ending)
        by_row = ask(world.path, starting, ending, "netChanges", "_metadata.row_id, * EXCEPT (_metadata)")
        net = Counter(row[:1] + row[2:] for row in _without_idle_pairs(_untimed(by_row)).elements())
        ours = _untimed(_ours(spark, world.path, starting, ending, "min_delta"))
        assert ours == net, (starting, ending)


def _untimed(rows: Told) -> Told:
    return Counter((row[-3], *row[:-3]) for row in rows.elements())


def _without_rows_that_came_back(rows: Told) -> Told:
    """Drop a delete and an insert of the same values in one version: an overwrite's carry-over."""
    kept = Counter(rows)
    for row in rows:
        if row[-3] == "delete":
            came = (*row[:-3], "insert", *row[-2:])
            both = min(rows[row], rows[came])
            kept[row] -= both
            kept[came] -= both
    return +kept


def _without_idle_pairs(rows: Told) -> Told:
    """Drop pre-images with a post-image of the same values; a value may be the row's id."""
    kept = Counter(rows)
    for row in rows:
        if row[0] == PAIR[0]:
            both = min(rows[row], rows[(PAIR[1], *row[1:])])
            kept[row] -= both
            kept[(PAIR[1], *row[1:])] -= both
    return +kept


@pytest.mark.parametrize("seed", seeds(6))
def test_random_histories(
    spark: SparkSession, second_opinion: Callable[..., Told], tmp_path: Path, seed: int
) -> None:
    world = _random(spark, tmp_path, seed)
    test = "tests/integration/changes/test_against_spark_changes.py::test_random_histories"
    with replayable(seed, test, world.log):
        _agree(spark, second_opinion, world)
