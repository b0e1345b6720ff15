"""A second opinion: Spark's own ``SELECT … CHANGES FROM VERSION …`` over Delta tables with row tracking.

It is internal and off by default in Delta 4.4.0, shares no code with the engine, and answers two of the four
questions: every change (``dropCarryovers``) and the net effect per row (``netChanges``). Where the two differ
by design, the difference is a test here and a line in the docs, "Differences from Spark's CHANGES".
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
FEED = "'delta.enableChangeDataFeed' = 'true'"
PROPERTIES = f"'delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = 'true', {FEED}"
FIRST = "VALUES (1, 'a'), (2, 'a'), (3, 'a'), (4, 'a'), (5, 'a'), (6, 'a'), (9, 'stays')"
#: One table, one case per key; every UPDATE and DELETE names its rows.
CASES = (
    f"CREATE TABLE {{}} USING delta TBLPROPERTIES ({PROPERTIES}) AS SELECT * FROM {FIRST} t(id, v)",
    "UPDATE {} SET v = 'b' WHERE id IN (1, 2, 6)",
    "UPDATE {} SET v = CASE id WHEN 1 THEN 'c' ELSE 'a' END WHERE id IN (1, 2)",
    "DELETE FROM {} WHERE id IN (3, 6)",
    "INSERT INTO {} VALUES (3, 'again')",
    "UPDATE {} SET id = 40 WHERE id = 4",
)


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


@pytest.fixture(scope="module")
def cases(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("second opinion") / "cases")
    for statement in CASES:
        spark.sql(statement.format(sql_name(path)))
    return path


def _bag(rows: Any) -> Told:
    return Counter(map(tuple, rows.collect()))


def _ours(spark: SparkSession, path: str, starting: int, ending: int, query: str, **asked: Any) -> Told:
    return _bag(
        read_changes(
            spark,
            path,
            starting_version=starting,
            ending_version=ending,
            query=query,
            **{"method": "row_tracking", **asked},
        )
    )


def _short(rows: Told, key: int | None = None) -> list[tuple[Any, ...]]:
    """Return change type, version and values, sorted, perhaps of one key."""
    told = [(row[-3], row[-2], *row[:-3]) for row in rows.elements() if key is None or row[0] == key]
    return sorted(told, key=lambda row: (row[1], row[0] != PAIR[0], repr(row)))


# -- where both say the same --------------------------------------------------------------------
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


# -- where they differ --------------------------------------------------------------------------
def test_every_change_is_the_same(
    spark: SparkSession, second_opinion: Callable[..., Told], cases: str
) -> None:
    """Versions and commit timestamps too: without an overwrite there is no difference."""
    theirs = second_opinion(cases, 1, 5, "dropCarryovers")
    assert _ours(spark, cases, 1, 5, "full_delta") == theirs
    assert _ours(spark, cases, 1, 5, "full_delta", method="change_files") == theirs


def test_changed_and_back_is_nothing(
    spark: SparkSession, second_opinion: Callable[..., Told], cases: str
) -> None:
    theirs = second_opinion(cases, 1, 5, "netChanges")
    assert [row[0] for row in _short(theirs, 2)] == list(PAIR)
    assert _short(_ours(spark, cases, 1, 5, "min_delta", keys="id"), 2) == []


def test_a_key_that_comes_back_is_an_update(
    spark: SparkSession, second_opinion: Callable[..., Told], cases: str
) -> None:
    """Spark nets by row id, we net by key; without keys we net by row id as well."""
    theirs = second_opinion(cases, 1, 5, "netChanges")
    by_row = [("delete", 3, 3, "a"), ("insert", 4, 3, "again")]
    by_key = [(PAIR[0], 4, 3, "a"), (PAIR[1], 4, 3, "again")]
    assert _short(theirs, 3) == by_row
    assert _short(_ours(spark, cases, 1, 5, "min_delta", keys="id", method="change_files"), 3) == by_key
    assert [row[0] for row in _short(_ours(spark, cases, 1, 5, "min_delta"), 3)] == ["insert", "delete"]


def test_a_key_that_moves_is_a_delete_and_an_insert(
    spark: SparkSession, second_opinion: Callable[..., Told], cases: str
) -> None:
    theirs = [row for row in _short(second_opinion(cases, 1, 5, "netChanges")) if row[2] in (4, 40)]
    assert theirs == [(PAIR[0], 5, 4, "a"), (PAIR[1], 5, 40, "a")]
    ours = _ours(spark, cases, 1, 5, "min_delta", keys="id")
    assert _short(ours, 4) + _short(ours, 40) == [("delete", 5, 4, "a"), ("insert", 5, 40, "a")]
    told = [row for row in _short(_ours(spark, cases, 1, 5, "min_delta")) if row[2] in (4, 40)]
    assert told == theirs


def test_both_rows_of_a_pair_say_the_last_version(
    spark: SparkSession, second_opinion: Callable[..., Told], cases: str
) -> None:
    """Spark's pre-image keeps the version of the first change, and so does its delete."""
    theirs = second_opinion(cases, 1, 5, "netChanges")
    ours = _ours(spark, cases, 1, 5, "min_delta", keys="id", method="change_files")
    assert _short(theirs, 1) == [(PAIR[0], 1, 1, "a"), (PAIR[1], 2, 1, "c")]
    assert _short(ours, 1) == [(PAIR[0], 2, 1, "a"), (PAIR[1], 2, 1, "c")]
    assert _short(theirs, 6) == [("delete", 1, 6, "a")]
    assert _short(ours, 6) == [("delete", 3, 6, "a")]
    # Read from the two ends alone, a delete has the version of the end.
    assert _short(_ours(spark, cases, 1, 5, "min_delta", keys="id"), 6) == [("delete", 5, 6, "a")]


def test_rows_that_an_overwrite_brings_back_are_no_changes(
    spark: SparkSession, second_opinion: Callable[..., Told], tmp_path: Path
) -> None:
    """An overwrite gives every row a new id; and a RESTORE brings the old ids back."""
    path = str(tmp_path / "overwritten")
    name = sql_name(path)
    for statement in (
        CASES[0],
        "INSERT OVERWRITE {} VALUES (1, 'a'), (2, 'new')",
        "RESTORE TABLE {} TO VERSION AS OF 0",
    ):
        spark.sql(statement.format(name))
    theirs = second_opinion(path, 1, 1, "dropCarryovers")
    assert _short(theirs, 1) == [("delete", 1, 1, "a"), ("insert", 1, 1, "a")]
    ours = _ours(spark, path, 1, 1, "full_delta")
    assert _short(ours, 1) == []
    assert ours == _without_rows_that_came_back(theirs)
    net = second_opinion(path, 1, 2, "netChanges")
    assert {row[0] for row in _short(net)} == set(PAIR)
    assert not _ours(spark, path, 1, 2, "min_delta", keys="id")


def test_ranges_that_spark_refuses(
    spark: SparkSession, second_opinion: Callable[..., Told], tmp_path: Path
) -> None:
    """Before row tracking was on, the change feed answers; Spark's CHANGES refuses the range."""
    path = str(tmp_path / "late")
    name = sql_name(path)
    for statement in (
        f"CREATE TABLE {{}} (id INT, v STRING) USING delta TBLPROPERTIES ({FEED})",
        "INSERT INTO {} VALUES (1, 'a'), (2, 'b')",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
        "UPDATE {} SET v = 'x' WHERE id = 1",
    ):
        spark.sql(statement.format(name))
    newest = spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()[0]["version"]
    with pytest.raises(Exception, match="DELTA_CHANGELOG_ROW_TRACKING_DISABLED_IN_RANGE"):
        second_opinion(path, 1, newest, "netChanges")
    ours = _ours(spark, path, 1, newest, "min_delta", keys="id", method="auto")
    assert _short(ours) == [("insert", 1, 2, "b"), ("insert", newest, 1, "x")]
    assert _short(second_opinion(path, newest, newest, "netChanges")) == _short(
        _ours(spark, path, newest, newest, "min_delta", keys="id")
    )
