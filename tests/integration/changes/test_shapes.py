"""Wide rows, row ids and surviving inserts, over random histories, against the model of the versions."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import commit_watermark, job, read_changes
from delta_cdc.core.options import QueryOptions
from delta_cdc.core.requests import ReadRequest
from delta_cdc.core.reserved_columns import TRACKING_COLUMNS
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from tests.support.change_histories import (
    KEYS,
    ChangeHistories,
    Layout,
    drawn_steps,
    number_of_histories,
)
from tests.support.change_model import Change, Row, widened
from tests.support.random_logs import seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

#: A filter on the partition column, with NULL in it.
WHERE = "u IS NULL OR u = 1"
WIDE = ["old", "new", "_change_type", "_commit_version", "_commit_timestamp"]
#: Kind, version, state before, state after.
Wide = tuple[str, int | None, Row | None, Row | None]


def shown(row: Row) -> Row | None:
    return row if row[3] in (None, 1) else None


class Answers:
    """Asks about a range of a world, and compares the answers with the model's."""

    def __init__(self, world: ChangeHistories, starting: int, ending: int) -> None:
        self.world, self.model = world, world.model
        self.span = (starting, ending)
        width = len(self.model.versions[ending].columns)
        self.columns = self.model.versions[ending].columns
        self.width = width
        self.ids: dict[int, int] = {}

    def ask(self, query: str, **options: Any) -> DataFrame:
        span = {"starting_version": self.span[0], "ending_version": self.span[1]}
        return read_changes(self.world.spark, self.world.path, query=query, **span, **options)

    def wide(self, query: str, **options: Any) -> list[tuple[Wide, Any, Any]]:
        """Return each wide row, with the columns of row tracking of both states."""
        found = self.ask(query, wide=True, **options)
        assert found.columns == WIDE
        rows = []
        for old, new, kind, version, _ in found.collect():
            before, after = (None if state is None else tuple(state[: self.width]) for state in (old, new))
            ids = [None if state is None else tuple(state[self.width :]) for state in (old, new)]
            rows.append(((kind, version, before, after), *ids))
        return rows

    def same(self, found: Iterable[Any], expected: Iterable[Any]) -> None:
        left, right = Counter(found), Counter(expected)
        note = f"seed {self.world.seed}, versions {self.span}, {list(enumerate(self.world.log))}"
        assert left == right, f"{note}: found {left - right}, expected {right - left}"

    # -- what is right --------------------------------------------------------------------------
    def wide_by_key(
        self, view: Callable[[Row], Row | None] = lambda row: row, by: Any = "feed"
    ) -> list[Wide]:
        changes = self.model.changes_by_key(*self.span, view, by=by)
        return [(kind, number, *states) for number, _, change in changes for kind, *states in [change.wide]]

    def wide_net(self, sides: Iterable[tuple[Row | None, Row | None]]) -> list[Wide]:
        return [(kind, None, *states) for a, b in sides if a != b for kind, *states in [Change(a, b).wide]]

    def keyed_sides(self) -> list[tuple[Row | None, Row | None]]:
        ending = self.span[1]
        before, after = (self.model.keyed(at, ending=ending) for at in (self.span[0] - 1, ending))
        return [(before.get(key), after.get(key)) for key in before.keys() | after.keys()]

    def sides_by_identity(self) -> list[tuple[Row | None, Row | None]]:
        before = self.model.versions[self.span[0] - 1].rows if self.span[0] else {}
        after = self.model.versions[self.span[1]].rows
        return [
            (
                widened(before[identity].row, self.width) if identity in before else None,
                widened(after[identity].row, self.width) if identity in after else None,
            )
            for identity in before.keys() | after.keys()
        ]

    def check_ids(self, changes: Iterable[tuple[int, int, int, tuple[int, int]]]) -> None:
        """An id always stands for the same row, and a state's version is the one that wrote it.

        :param changes: version of the change, version whose state it is, identity in the model, found columns
        """
        count = 0
        for number, at, identity, (row_id, row_version) in changes:
            count += 1
            assert self.ids.setdefault(identity, row_id) == row_id, (number, identity)
            assert row_version == self.model.versions[at].rows[identity].changed, (number, identity)
        assert len(set(self.ids.values())) == len(self.ids)
        assert count


def check(answers: Answers) -> None:
    """Hold all answers of a range to the model."""
    check_by_key(answers)
    check_by_row_id(answers)
    check_net(answers)
    check_surviving(answers)


def check_by_key(answers: Answers) -> None:
    found = [row for row, *_ in answers.wide("full_delta", keys=KEYS, method="change_files")]
    answers.same(found, answers.wide_by_key())
    found = [row for row, *_ in answers.wide("full_delta", keys=KEYS, where=WHERE, method="change_files")]
    answers.same(found, answers.wide_by_key(shown))
    found = [row for row, *_ in answers.wide("full_delta", keys=KEYS, where=WHERE, method="row_tracking")]
    answers.same(found, answers.wide_by_key(shown, by="row id"))


def check_by_row_id(answers: Answers) -> None:
    """Compare states, ids and versions of wide rows, and the same rows if they are not wide."""
    by_identity = list(answers.model.changes_by_identity(*answers.span))
    tracked = answers.wide("full_delta", row_ids=True)
    answers.same(
        (row for row, *_ in tracked),
        [(kind, n, *states) for n, _, change in by_identity for kind, *states in [change.wide]],
    )
    of_change = {(n, change.before, change.after): identity for n, identity, change in by_identity}
    ids = []
    for (_, number, before, after), old, new in tracked:
        assert number is not None
        identity = of_change[number, before, after]
        ids += [(number, number - 1, identity, old)] if old else []
        ids += [(number, number, identity, new)] if new else []
    answers.check_ids(ids)
    narrow = answers.ask("full_delta", row_ids=True)
    assert tuple(narrow.columns) == (*answers.columns, *TRACKING_COLUMNS, *WIDE[2:])
    unfolded = [
        (*state, *columns, version)
        for (_, version, before, after), old, new in tracked
        for state, columns in ((before, old), (after, new))
        if state is not None
    ]
    found_rows = ((*row[: answers.width + 2], row["_commit_version"]) for row in narrow.collect())
    answers.same(found_rows, unfolded)


def check_net(answers: Answers) -> None:
    net = answers.wide("min_delta", keys=KEYS)
    answers.same(
        ((kind, None, *states) for (kind, _, *states), *_ in net), answers.wide_net(answers.keyed_sides())
    )
    net = answers.wide("min_delta", row_ids=True)
    sides = answers.sides_by_identity()
    answers.same(((kind, None, *states) for (kind, _, *states), *_ in net), answers.wide_net(sides))


def check_surviving(answers: Answers) -> None:
    model, span = answers.model, answers.span
    surviving: dict[str, Any] = {"only_surviving": True}
    by_feed = answers.ask("append_only", keys=KEYS, method="change_files", **surviving)
    answers.same(_inserts(by_feed), model.surviving_by_key(*span))
    by_filter = answers.ask("append_only", keys=KEYS, where=WHERE, method="row_tracking", **surviving)
    answers.same(_inserts(by_filter), model.surviving_by_key(*span, shown, by="row id"))
    answers.same(_inserts(answers.ask("append_only", **surviving)), model.surviving_by_identity(*span))


def _inserts(rows: DataFrame) -> list[Any]:
    return [(row["_change_type"], row["_commit_version"], tuple(row[:-3])) for row in rows.collect()]


def played(spark: SparkSession, path: str, seed: int, count: int, steps: Iterable[str], **layout: Any) -> Any:
    world = ChangeHistories(spark, path, seed, number_of_histories(count), Layout(**layout))
    world.create()
    for step in steps:
        world.step(step)
    return world


@pytest.mark.slow
def test_rows_by_their_ids_are_the_models(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that move between partitions, rows that leave and come back; all shapes: test_shapes_over_many."""
    steps = ("merge", "update_number", "overwrite", "restore")
    world = played(spark, str(tmp_path / "table"), 1, 15, steps, partition_by=("u",))
    check_by_row_id(Answers(world, 1, world.model.newest))


STAGED = {
    "surviving, by row id": QueryOptions("append_only", only_surviving=True),
    "net and wide, with row ids": QueryOptions("min_delta", keys=KEYS, wide=True, row_ids=True),
    "wide, by row id": QueryOptions(wide=True),
    "surviving, by key": QueryOptions("append_only", keys=KEYS, only_surviving=True),
    "net, by row id": QueryOptions("min_delta", wide=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STAGED)
def test_a_batch_in_several_commits_is_the_answer_of_its_range(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """What an earlier commit staged is left out if a later one deletes it; the first batch is a snapshot."""
    options = STAGED[name]
    steps = ("merge", "insert", "delete", "merge")
    world = played(spark, str(tmp_path / "table"), 5, 12, steps)
    staging = str(tmp_path / "staging")
    read = partial(ReadRequest, pipeline="p", source=world.path, staging=staging, options=options)
    services = Services(execute=partial(job.execute, spark, None, None), say=lambda text: None)

    def staged() -> DataFrame:
        return spark.read.format("delta").load(staging)

    first = run(read(ending_version=1), services)
    assert first.counts["rows"] == first.counts["insert"] == len(world.model.versions[1].rows)
    columns = [*world.model.columns, *(TRACKING_COLUMNS if options.row_ids else ())]
    assert staged().columns == (WIDE if options.wide else [*columns, *WIDE[2:]])
    inserted = [tuple(row["new"] if options.wide else row)[:4] for row in staged().collect()]
    assert Counter(inserted) == world.model.bag(1)
    commit_watermark(spark, staging, pipeline="p", ending_version=1)
    batch = run(read(versions_per_commit=1), services)
    assert (str(batch.versions), batch.counts["rows"]) == (f"2-{world.model.newest}", staged().count())
    given = {key: value for key, value in vars(options).items() if key != "on_change_commit"}
    answer = read_changes(spark, world.path, starting_version=2, **given)
    assert answer.columns == staged().columns
    # The version of a net delete depends on the parts that a read method compares.
    others = WIDE[3:] if options.is_net else []
    found, expected = (Counter(map(str, rows.drop(*others).collect())) for rows in (staged(), answer))
    assert found == expected
    assert batch.counts["rows"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(8, first=200))
def test_shapes_over_many(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Each layout, with a column that comes later."""
    layouts: list[dict[str, Any]] = [
        {},
        {"vectors": False},
        {"partition_by": ("u",)},
        {"partition_by": ("u",), "mapping": True, "vectors": False},
    ]
    steps = drawn_steps(seed, 9, column=seed % 3 == 2)
    world = played(spark, str(tmp_path / "table"), seed, 150, steps, **layouts[seed % len(layouts)])
    newest = world.model.newest
    for starting in {1, random.Random(seed).randint(1, newest)}:
        check(Answers(world, starting, newest))
