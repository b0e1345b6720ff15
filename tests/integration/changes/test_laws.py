"""The four queries over random histories of real tables: every answer is the model's, and the laws hold.

``DELTA_CDC_SEED`` and ``DELTA_CDC_HISTORIES`` replay what a failure names.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import plan_changes, read_changes
from delta_cdc.delta_log import manifest_feed
from tests.support.change_histories import (
    KEYS,
    ChangeHistories,
    Layout,
    drawn_steps,
    number_of_histories,
)
from tests.support.change_model import AFTER, ChangeRow, Row, Table, applied, netted, widened
from tests.support.random_logs import seeds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

TEST = "tests/integration/changes/test_laws.py"
METADATA = ("_change_type", "_commit_version", "_commit_timestamp")

#: A filter with NULL in it, and the same in Python.
WHERE = "coalesce(u, 9) <> 1 AND v IS DISTINCT FROM ''"
SELECT = ("history", "id", "upper(v) AS w")


def filtered(row: Row) -> Row | None:
    return None if row[3] == 1 or row[2] == "" else row


def projected(row: Row) -> Row | None:
    return (*row[:2], row[2] and row[2].upper())


def filtered_and_projected(row: Row) -> Row | None:
    return None if filtered(row) is None else projected(row)


VIEWS: dict[str, tuple[dict[str, Any], Any]] = {
    "": ({}, None),
    "where": ({"where": WHERE}, filtered),
    "select": ({"select": SELECT}, projected),
    "both": ({"where": WHERE, "select": SELECT}, filtered_and_projected),
}


@dataclass(frozen=True)
class Question:
    """One call of ``read_changes``."""

    starting: int
    ending: int
    query: str
    method: str = "auto"
    view: str = ""
    raw: bool = False
    keyless: bool = False

    @property
    def arguments(self) -> dict[str, Any]:
        keyed = not self.keyless and (
            self.query in ("min_delta", "upsert") or "where" in self.arguments_of_view
        )
        return {
            "starting_version": self.starting,
            "ending_version": self.ending,
            "query": self.query,
            "method": self.method,
            **({"raw": True} if self.raw else {}),
            **({"keys": KEYS} if keyed else {}),
            **self.arguments_of_view,
        }

    @property
    def arguments_of_view(self) -> dict[str, Any]:
        return VIEWS[self.view][0]

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())


@dataclass(frozen=True)
class Answer:
    """What came back.

    :param rows: with their versions
    :param times: epoch microseconds of each version
    """

    rows: tuple[ChangeRow, ...]
    times: frozenset[tuple[int, int]]

    @property
    def net(self) -> list[ChangeRow]:
        return [(kind, None, row) for kind, _, row in self.rows]


@dataclass
class Laws:
    """Asks, compares, and says what to run to see a difference again."""

    world: ChangeHistories
    test: str
    answers: dict[Question, Answer] = field(default_factory=dict)

    # -- asking ---------------------------------------------------------------------------------
    def ask(self, questions: Iterable[Question]) -> None:
        """Read the answers that are not known yet."""
        for question in questions:
            if question not in self.answers:
                with _Noted(self._told(question)):
                    self.answers[question] = self._answer(question)

    def _answer(self, question: Question) -> Answer:
        from pyspark.sql import functions as F

        frame = read_changes(self.world.spark, self.world.path, **question.arguments)
        width = len(frame.columns) - len(METADATA)
        assert tuple(frame.columns[width:]) == METADATA
        # Spark hands out local times.
        found = frame.withColumn(METADATA[2], F.unix_micros(METADATA[2])).collect()
        rows = tuple((row[width], row[width + 1], tuple(row[:width])) for row in found)
        return Answer(rows, frozenset((row[width + 1], row[width + 2]) for row in found))

    # -- what there is to ask -------------------------------------------------------------------
    def feed_on(self, starting: int, ending: int) -> bool:
        return all(self.world.feed[starting : ending + 1])

    def methods(self, starting: int, ending: int, *, net: bool) -> list[str]:
        able = ["auto"] if net or self.feed_on(starting, ending) or self.world.layout.row_tracking else []
        if self.feed_on(starting, ending):
            able.append("change_files")
        if self.world.layout.row_tracking:
            able.append("row_tracking")
        return [*able, "snapshot_diff"] if net else able

    # -- laws -----------------------------------------------------------------------------------
    def check(self, question: Question) -> None:
        """Every answer is the model's, and its versions and times are right."""
        answer = self.answers[question]
        if question.query in ("min_delta", "upsert"):
            self._compare(question, answer.net, self._net(question))
            self._check_versions(question, answer)
        else:
            expected = self._feed(question) if question.raw else self._full(question)
            self._compare(question, answer.rows, expected)
        self._check_times(question, answer)

    def check_application(self, question: Question) -> None:
        """The state before with the changes carried out is the state after."""
        model, end = self.world.model, question.ending
        before = model.bag(question.starting - 1, ending=end)
        rows = self.answers[question].rows
        changes = self.answers[question].net if question.query == "min_delta" else rows
        with _Noted(self._told(question)):
            after = applied(changes, before)
        self._compare_bags(question, after, model.bag(end, ending=end))

    def check_split(self, whole: Question, parts: list[Question]) -> None:
        """Net effects of ranges that follow one another compose to that of the whole."""
        width = len(self.world.model.versions[whole.ending].columns)
        nets = [
            [(kind, None, widened(row, width)) for kind, _, row in self.answers[part].net] for part in parts
        ]
        composed = netted(nets, self.world.model.key)
        self._compare(whole, self.answers[whole].net, composed)

    def _net(self, question: Question) -> list[ChangeRow]:
        model, span = self.world.model, (question.starting, question.ending)
        if question.keyless:
            return model.min_delta_by_row_id(*span)
        answer = model.min_delta if question.query == "min_delta" else model.upsert
        return answer(*span, VIEWS[question.view][1])

    def _full(self, question: Question) -> list[ChangeRow]:
        """The model's answer; what it says of a RESTORE depends on what each segment is read by."""
        model, view = self.world.model, VIEWS[question.view][1]
        told: list[ChangeRow] = []
        for read_range in plan_changes(self.world.path, **question.arguments).read_ranges:
            span = (read_range.starting_version, read_range.ending_version)
            by: Any = "row id" if read_range.method == "row_tracking" else "feed"
            if "where" in question.arguments_of_view:
                told += model.full_delta_by_key(*span, view, by=by, columns_of=question.ending)
                continue
            rows = model.full_delta(*span, by=by, columns_of=question.ending)
            told += [(kind, at, view(row)) for kind, at, row in rows] if view else rows
        return [row for row in told if row[0] == "insert"] if question.query == "append_only" else told

    def _feed(self, question: Question) -> list[ChangeRow]:
        """What Delta's own reader says."""
        reader = self.world.spark.read.format("delta").option("readChangeFeed", "true")
        reader = reader.option("startingVersion", question.starting).option("endingVersion", question.ending)
        columns = self.world.model.versions[question.ending].columns
        rows = reader.load(self.world.path).select(*columns, *METADATA[:2]).collect()
        return [(row[-2], row[-1], tuple(row[:-2])) for row in rows]

    def _check_versions(self, question: Question, answer: Answer) -> None:
        """A net row carries the version of its key's last change."""
        model, span = self.world.model, (question.starting, question.ending)
        for kind, version, row in answer.rows:
            assert version is not None
            assert span[0] <= version <= span[1], (kind, version, row, self._told(question))
        if question.view or question.keyless or model.restores_in(*span):
            return
        read_ranges = plan_changes(self.world.path, **question.arguments).read_ranges
        methods = {read_range.method for read_range in read_ranges}
        if methods == {"snapshot_diff"}:
            end = read_ranges[-1].ending_version
            expected: dict[Row, int] = dict.fromkeys((row[2][:2] for row in answer.rows), end)
        elif len(methods) == 1:
            expected = model.last_changes(*span)
        else:
            return
        # A row that is gone does not tell which commit took it away; only the feed does.
        alive = {row[2][:2] for row in answer.rows if row[0] in AFTER}
        for kind, version, row in answer.rows:
            if row[:2] in alive or methods != {"row_tracking"}:
                assert version == expected[row[:2]], (
                    f"{kind} of {row} says version {version}, last changed by {expected[row[:2]]}: "
                    f"{self._told(question, row[0])}"
                )

    def _check_times(self, question: Question, answer: Answer) -> None:
        """A version's time is the one Delta knows it by."""
        for version, time in answer.times:
            assert time == self._times[version], f"time of version {version}: {self._told(question)}"

    @cached_property
    def _times(self) -> dict[int, int]:
        rows = self.world.spark.sql(f"DESCRIBE HISTORY {self.world.name}").selectExpr(
            "version", "unix_micros(timestamp) AS at"
        )
        return {row["version"]: row["at"] for row in rows.collect()}

    # -- saying what is wrong -------------------------------------------------------------------
    def _compare(self, question: Question, found: Iterable[ChangeRow], expected: Iterable[ChangeRow]) -> None:
        self._compare_bags(question, Counter(found), Counter(expected), of=lambda row: row[2][0])

    def _compare_bags(
        self, question: Question, found: Counter[Any], expected: Counter[Any], of: Any = lambda row: row[0]
    ) -> None:
        if found == expected:
            return
        wrong = {of(row) for row in [*(found - expected), *(expected - found)]}
        # The shortest story is the one to read.
        first = min(wrong, key=lambda number: sum(of(row) == number for row in [*found, *expected]))
        lines = [
            f"{len(wrong)} of {len(self.world.numbers)} histories are wrong. {self._told(question, first)}"
        ]
        for title, rows in (("found", found - expected), ("expected", expected - found)):
            own = sorted((row for row in rows.elements() if of(row) == first), key=repr)
            lines.append(f"{title}, and not {'expected' if title == 'found' else 'found'}: {own}")
        pytest.fail("\n".join([*lines, *self._story(first, question)]), pytrace=False)

    def _story(self, number: int, question: Question) -> Iterator[str]:
        for version in range(max(question.starting - 1, 0), question.ending + 1):
            rows = self.world.model.versions[version].rows.values()
            own = sorted((kept.row[1:] for kept in rows if kept.row[0] == number), key=repr)
            yield f"v{version} {self.world.log[version]}: {own}"

    def _told(self, question: Question, number: int | None = None) -> str:
        steps = " ".join(f"{version}:{name}" for version, name in enumerate(self.world.log))
        only = "" if number is None else f"DELTA_CDC_HISTORIES={number} "
        return (
            f"seed {self.world.seed}, history {number}, {question}\n{self.world.layout} {steps}\n"
            f"replay: DELTA_CDC_SEED={self.world.seed} {only}python -m pytest '{self.test}'"
        )


class _Noted:
    """Adds a note to whatever is raised inside."""

    def __init__(self, note: str) -> None:
        self.note = note

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(self.note)


# -- what is asked ------------------------------------------------------------------------------
def _ranges(laws: Laws, count: int) -> list[tuple[int, int]]:
    """Draw ranges; the first is the whole table."""
    draw, newest = random.Random(f"{laws.world.seed} ranges"), laws.world.model.newest
    drawn = [tuple(sorted(draw.choices(range(newest + 1), k=2))) for _ in range(count - 1)]
    return [(0, newest), *drawn]  # type: ignore[list-item]


def _questions(laws: Laws, starting: int, ending: int, draw: random.Random) -> list[Question]:
    """Return all that a range can be asked: every query by every method, with and without a view."""
    span = (starting, ending)
    net, told = laws.methods(*span, net=True), laws.methods(*span, net=False)
    asked = [Question(*span, query, method) for query in ("min_delta", "upsert") for method in net]
    asked += [Question(*span, query, method) for query in ("full_delta", "append_only") for method in told]
    views = list(VIEWS)[1:]
    asked += [Question(*span, "min_delta", method, draw.choice(views)) for method in net]
    asked += [
        Question(*span, query, method, draw.choice(views))
        for query in ("full_delta", "append_only")
        for method in told
    ]
    if laws.feed_on(*span):
        asked.append(Question(*span, "full_delta", "change_files", raw=True))
    if laws.world.layout.row_tracking:
        asked.append(Question(*span, "min_delta", "row_tracking", keyless=True))
    return asked


def _parts(laws: Laws, starting: int, ending: int, draw: random.Random) -> list[Question]:
    """Cut a range at one or two points, and ask each part by any method."""
    cuts = sorted(draw.sample(range(starting + 1, ending + 1), min(draw.randint(1, 2), ending - starting)))
    return [
        Question(first, after - 1, "min_delta", draw.choice(laws.methods(first, after - 1, net=True)))
        for first, after in pairwise([starting, *cuts, ending + 1])
    ]


def check_range(laws: Laws, asked: list[Question], parts: list[Question]) -> None:
    """Hold the answers of a range to the laws.

    :param asked: questions of the whole range
    :param parts: questions of its parts, in order
    """
    laws.ask([*asked, *parts])
    for question in [*asked, *parts]:
        laws.check(question)
    for question in asked:
        if question.view or question.keyless or question.query not in ("min_delta", "full_delta"):
            continue
        laws.check_application(question)
        if question.query == "min_delta":
            laws.check_split(question, parts)


def _played(world: ChangeHistories, steps: Iterable[str]) -> ChangeHistories:
    world.create()
    for step in steps:
        world.step(step)
    return world


LAYOUTS = (
    Layout(),
    Layout(vectors=False),
    Layout(partition_by=("u",), in_commit_timestamps=True),
    Layout(vectors=False, partition_by=("u",), mapping=True),
    Layout(row_tracking=False),
    Layout(row_tracking=False, vectors=False, partition_by=("u",)),
)


def _cut(starting: int, ending: int, *, at: int) -> list[Question]:
    first = Question(starting, at, "min_delta", "snapshot_diff")
    return [first, Question(at + 1, ending, "min_delta")]


@pytest.fixture(autouse=True)
def _feed_reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the feed through slices where the seed is odd, however small; else mostly by Delta's reader."""
    call = getattr(request.node, "callspec", None)
    if call is None or call.params["seed"] % 2:
        monkeypatch.setattr(manifest_feed, "WORTHWHILE", 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1))
def test_laws_where_all_captures_can_be_asked(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Feed, row tracking and deletion vectors; with rows exchanged, brought back and moved to other files.

    Each way of asking is asked once; :func:`test_laws_over_many` asks all of them of all layouts.
    """
    steps = ("merge", "move", "delete", "overwrite", "optimize", "merge", "restore", "update_nothing")
    world = ChangeHistories(spark, str(tmp_path / "table"), seed, number_of_histories(60), Layout())
    _played(world, steps).checked()
    laws = Laws(world, f"{TEST}::test_laws_where_all_captures_can_be_asked[{seed}]")
    span = (1, world.model.newest)
    asked = [
        Question(*span, "min_delta"),
        Question(*span, "full_delta", "row_tracking"),
        Question(*span, "append_only", "change_files"),
        Question(*span, "full_delta", "change_files", raw=True),
        Question(*span, "min_delta", "row_tracking", keyless=True),
        Question(*span, "min_delta", "snapshot_diff", "both"),
    ]
    check_range(laws, asked, _cut(*span, at=4))


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, first=2))
def test_laws_around_a_hole_in_the_feed(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """No deletion vectors, partitions, a column that comes later; captures are composed."""
    steps = ("merge", "feed_off", "replace_partition", "add_column", "merge", "feed_on", "delete_by_number")
    layout = Layout(row_tracking=bool(seed % 2), vectors=False, partition_by=("u",))
    world = ChangeHistories(spark, str(tmp_path / "table"), seed, number_of_histories(60), layout)
    _played(world, steps).checked()
    laws = Laws(world, f"{TEST}::test_laws_around_a_hole_in_the_feed[{seed}]")
    span = (0, world.model.newest)
    asked = [
        Question(*span, "min_delta"),
        Question(*span, "upsert"),
        Question(*span, "min_delta", view="both"),
    ]
    check_range(laws, asked, _cut(*span, at=3))


@pytest.mark.slow
def test_rows_that_are_alike(spark: SparkSession, tmp_path: Path) -> None:
    """A table without a key is a bag of rows: where k leave and m alike come, the difference counts."""
    path = str(tmp_path / "bag")
    name = f"delta.`{path}`"
    model = Table(("a", "b"), ())
    first: list[Row] = [(1, "x")] * 3 + [(2, "y")] * 2 + [(None, None)] * 2
    second: list[Row] = [(1, "x")] * 2 + [(2, "y")] * 3 + [(None, None)] + [(4, "w")]

    def rows(wanted: Iterable[Row]) -> DataFrame:
        return spark.createDataFrame(list(wanted), "a int, b string").repartition(2)

    options = {f"delta.{name}": "true" for name in ("enableChangeDataFeed", "enableRowTracking")}
    rows(first).write.format("delta").options(**options).save(path)
    model.change(inserts=first)
    rows([(1, "x"), (3, "z"), (3, "z")]).write.format("delta").mode("append").save(path)
    model.change(inserts=[(1, "x"), (3, "z"), (3, "z")])
    rows(second).write.format("delta").mode("overwrite").save(path)
    model.exchange(model.rows, second)
    spark.sql(f"DELETE FROM {name} WHERE a = 2")
    model.change(deletes=[i for i, kept in model.rows.items() if kept.row[0] == 2])
    spark.sql(f"UPDATE {name} SET b = 'q' WHERE a = 1")
    model.change(updates={i: (1, "q") for i, kept in model.rows.items() if kept.row[0] == 1})
    spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF 2")
    model.restore(2)
    for starting, ending in ((0, 5), (2, 2)):
        asked: dict[str, Any] = {"starting_version": starting, "ending_version": ending}
        for method, by in (("change_files", "feed"), ("row_tracking", "row id")):
            found = read_changes(spark, path, method=method, **asked).drop(METADATA[2]).collect()
            told = [(row[2], row[3], tuple(row[:2])) for row in found]
            assert Counter(told) == Counter(model.full_delta(starting, ending, by=by))  # type: ignore[arg-type]
            assert applied(told, model.bag(starting - 1)) == model.bag(ending)
        net = read_changes(spark, path, query="min_delta", **asked).collect()
        assert Counter((row[2], None, tuple(row[:2])) for row in net) == Counter(
            model.min_delta_by_row_id(starting, ending)
        )


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(10, first=100))
def test_laws_over_many(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """2,200 histories: every layout, with and without a hole in the feed, with a column that comes later."""
    steps = drawn_steps(seed, 10, hole=seed % 3 == 1, column=seed % 3 == 2)
    world = ChangeHistories(
        spark, str(tmp_path / "table"), seed, number_of_histories(220), LAYOUTS[seed % len(LAYOUTS)]
    )
    _played(world, steps).checked()
    laws = Laws(world, f"{TEST}::test_laws_over_many[{seed}]")
    draw = random.Random(f"{seed} questions")
    for number, (starting, ending) in enumerate(_ranges(laws, 3)):
        asked = _questions(laws, starting, ending, draw)
        # All of the first range, and some of the others.
        chosen = asked if number == 0 else draw.sample(asked, len(asked) // 3)
        check_range(laws, chosen, _parts(laws, starting, ending, draw))
