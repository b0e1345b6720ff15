"""Several tables whose changes one change log collects, and the targets that this log is applied to.

Each key is a history of its own: ``DELTA_CDC_HISTORIES`` is their number.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes
from delta_cdc.cli import main
from delta_cdc.core.errors import (
    ConflictingEvents,
    DeltaCdcError,
    ReservedColumnName,
    SequenceNotIncreasing,
    TargetSchemaClash,
)
from tests.support.holding import hooked, once

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome

HISTORIES = int(os.environ.get("DELTA_CDC_HISTORIES", "150"))
COLUMNS = "id BIGINT, name STRING, at BIGINT"
#: Sequences are multiples of it, so a delete lies between two upserts of any source.
STEP = 10
#: The name of rows that the filter of a source leaves out.
HIDDEN = "hidden"

Row = tuple[str, int]
State = dict[int, Row]
#: Key, sequence, name; None for a delete.
Event = tuple[int, int, str | None]


class Crash(Exception):
    """Ends a job at a failpoint."""


@dataclass
class Collected:
    """One source: a table, its states by version, and the version collected last."""

    spark: SparkSession
    name: str
    path: str
    log: str
    arguments: dict[str, Any]
    states: list[State] = field(default_factory=list)
    collected: int = -1
    events: Counter[Event] = field(default_factory=Counter)

    def write(self, state: State) -> None:
        """Make the table have these rows, in one commit: a MERGE, or a new copy."""
        rows = [(key, *values) for key, values in sorted(state.items())]
        given = self.spark.createDataFrame(rows, COLUMNS)
        if not self.states or self.arguments.get("source_kind") == "snapshot":
            writer = given.coalesce(1).write.format("delta").mode("overwrite")
            writer.option("delta.enableChangeDataFeed", "true").save(self.path)
        else:
            given.createOrReplaceTempView("given")
            self.spark.sql(
                f"MERGE INTO delta.`{self.path}` t USING given s ON t.id = s.id "
                "WHEN MATCHED AND (t.name <> s.name OR t.at <> s.at) THEN UPDATE SET * "
                "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE"
            ).collect()
        self.states.append(dict(state))

    @property
    def has_changes(self) -> bool:
        """Return whether the next run has work; each change changes rows that no filter hides."""
        return self.collected < 0 or (
            self.collected < len(self.states) - 1 and not self.arguments.get("once")
        )

    def collect(self, **changes: Any) -> Outcome:
        """Collect what is new, and note the events that this must have appended."""
        given = {
            "pipeline": f"p.{self.name}",
            "keys": ["id"],
            "sequence_by": "at",
            "delete_sequence": f"at + {STEP // 2}",
            "target_kind": "change_log",
            **self.arguments,
            **changes,
        }
        try:
            return apply_changes(self.spark, self.path, self.log, **given)
        finally:
            self._note()

    def _note(self) -> None:
        if self.arguments.get("once") and self.collected >= 0:
            return
        first = self.collected < 0
        newest = len(self.states) - 1
        for version in [newest] if first else range(self.collected + 1, newest + 1):
            before = {} if first else self._seen(version - 1)
            after = self._seen(version)
            self.events.update(
                (key, at, name) for key, (name, at) in after.items() if before.get(key) != (name, at)
            )
            gone = {key: at for key, (_, at) in before.items() if key not in after}
            self.events.update((key, at + STEP // 2, None) for key, at in gone.items())
        self.collected = newest

    def _seen(self, version: int) -> State:
        hides = "where" in self.arguments
        return {key: row for key, row in self.states[version].items() if not (hides and row[0] == HIDDEN)}


@dataclass
class Appended(Collected):
    """A source whose rows are events: it is only appended to, in any order, and some events come twice."""

    written: list[Event] = field(default_factory=list)
    noted: int = 0

    def write(self, state: State) -> None:
        before = self.states[-1] if self.states else {}
        added: list[Event] = [
            (key, at, name) for key, (name, at) in state.items() if before.get(key) != (name, at)
        ]
        added += [(key, at + STEP // 2, None) for key, (_, at) in before.items() if key not in state]
        added += added[:5]
        random.Random(len(self.states)).shuffle(added)
        # A delete needs its key alone.
        rows = [(key, name, at, "D" if name is None else "U") for key, at, name in added]
        given = self.spark.createDataFrame(rows, f"{COLUMNS}, op STRING")
        given.write.format("delta").mode("append").save(self.path)
        self.written += added
        self.states.append(dict(state))

    def _note(self) -> None:
        new = self.written[self.noted :]
        hides = "where" in self.arguments
        self.events.update(event for event in new if not (hides and event[2] == HIDDEN))
        self.noted, self.collected = len(self.written), len(self.states) - 1


#: The arguments of such a source.
OF_EVENTS = {
    "source_kind": "change_log",
    "delete_sequence": None,
    "apply_as_deletes": "op = 'D'",
    "except_column_list": ["op"],
}


def current(events: Counter[Event]) -> set[tuple[Any, ...]]:
    """Return the rows that these events leave, by an independent rule: the last event of a key decides."""
    last = {key: (at, name) for key, at, name in sorted(events, key=lambda event: event[1])}
    return {(key, name, at) for key, (at, name) in last.items() if name is not None}


def intervals(events: Counter[Event]) -> set[tuple[Any, ...]]:
    """Return the rows of history: each upsert holds until the next event of its key."""
    by_key: dict[int, list[tuple[int, str | None]]] = {}
    for key, at, name in sorted(set(events), key=lambda event: event[1]):
        by_key.setdefault(key, []).append((at, name))
    return {
        (key, name, at, at, ends[place + 1][0] if place + 1 < len(ends) else None)
        for key, ends in by_key.items()
        for place, (at, name) in enumerate(ends)
        if name is not None
    }


class Lake:
    """The sources, their log, and its targets of both types."""

    def __init__(self, spark: SparkSession, folder: Path, seed: int) -> None:
        self.spark, self.folder, self.seed = spark, folder, seed
        self.random = random.Random(seed)
        self.log = str(folder / "log")
        self.sources: dict[str, Collected] = {}
        self._unused: dict[int, list[int]] = {}

    def source(self, name: str, **arguments: Any) -> Collected:
        """Make a source without rows."""
        kind = Appended if arguments.get("source_kind") == "change_log" else Collected
        made = kind(self.spark, name, str(self.folder / name), self.log, arguments)
        self.sources[name] = made
        return made

    def change(self, source: Collected) -> None:
        """Change, insert and delete rows of many keys, with sequences that no event of their key has yet."""
        state = dict(source.states[-1]) if source.states else {}
        for key in range(HISTORIES):
            kind = self.random.choice(("keep", "upsert", "upsert", "delete"))
            if kind == "delete":
                state.pop(key, None)
            elif kind == "upsert":
                name = HIDDEN if self.random.random() < 0.2 else f"{source.name} {self.random.randrange(9)}"
                state[key] = (name, self._sequence(key))
        source.write(state)

    def _sequence(self, key: int) -> int:
        left = self._unused.setdefault(key, self.random.sample(range(1, 200), 60))
        return left.pop() * STEP

    def apply(self, scd: int) -> Outcome:
        """Apply the log to the target of a type."""
        return apply_changes(
            self.spark, self.log, self.target(scd), pipeline="p", keys=["id"], stored_as_scd_type=scd
        )

    def target(self, scd: int) -> str:
        return str(self.folder / f"scd{scd}")

    @property
    def events(self) -> Counter[Event]:
        return sum((source.events for source in self.sources.values()), Counter())

    def check(self) -> None:
        """Compare log and targets with the model."""
        log = self.spark.read.format("delta").load(self.log).collect()
        found = Counter((row.id, row._sequence, None if row._op == "delete" else row.name) for row in log)
        assert found == self.events, f"seed {self.seed}"
        of_type_1 = self.spark.read.format("delta").load(self.target(1)).collect()
        assert len(of_type_1) == len(current(self.events))
        assert {tuple(row) for row in of_type_1} == current(self.events), f"seed {self.seed}"
        of_type_2 = self.spark.read.format("delta").load(self.target(2)).collect()
        assert len(of_type_2) == len(intervals(self.events))
        assert {tuple(row) for row in of_type_2} == intervals(self.events), f"seed {self.seed}"


def _change(lake: Lake, named: list[Collected]) -> None:
    for one in named:
        lake.change(one)
        if lake.random.random() < 0.3:
            lake.change(one)


def _collect(lake: Lake, named: list[Collected], points: list[str]) -> None:
    """Collect most of the sources in any order; the first ones after a crash at a point.

    If the job dies after its commit, the log proves it, and the next run appends nothing twice.
    """
    for one in lake.random.sample(named, len(named)):
        if not points and lake.random.random() < 0.3:
            continue
        if points and one.has_changes:
            with hooked(_crashing(points.pop())), pytest.raises(DeltaCdcError):
                one.collect()
        one.collect()


def _crashing(point: str) -> Callable[[str], None]:
    def crash() -> None:
        raise Crash(point)

    return once(point, crash)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 8))
def test_random_histories_of_several_sources(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Feed, copies, events, and a table that is loaded once; kills between them; one comes later, one gets a
    new name, one is not named any more. The events are those of the model, each once, and so are the targets.
    """
    lake = Lake(spark, tmp_path, seed)
    stream = lake.source("stream", where=f"op = 'D' OR name <> '{HIDDEN}'", **OF_EVENTS)
    eu = lake.source("eu", where=f"name <> '{HIDDEN}'")
    old = lake.source("old", once=True)
    copies = lake.source("copies", source_kind="snapshot")
    named = [eu, old, copies, stream]
    for one in named:
        lake.change(one)
    _collect(lake, [eu, old, stream], ["before_commit", "committed"])
    lake.apply(1)
    lake.apply(2)
    copies.collect()
    stream.collect()
    _change(lake, named)
    _collect(lake, named, ["before_commit", "committed"])
    copies.collect()
    lake.apply(2)
    # Another source is added, one gets another name, and one is not named any more.
    added = lake.source("us")
    eu.arguments |= {"pipeline": "p.europe", "take_over_from": "p.eu"}
    named = [eu, old, added, stream]
    for _ in range(2):
        _change(lake, named)
        _collect(lake, named, [])
    lake.apply(1)
    _change(lake, named)
    for one in named:
        one.collect()
    for scd in (1, 2):
        lake.apply(scd)
    lake.check()
    # Nothing is left to do.
    assert not any(one.collect().applied for one in named)
    assert not lake.apply(2).applied


@pytest.mark.slow
def test_equal_sequences_and_refusals(spark: SparkSession, tmp_path: Path) -> None:
    """Equal sequences of two sources are never guessed; what a log cannot take changes nothing."""
    log, target = str(tmp_path / "log"), str(tmp_path / "target")
    paths = {name: str(tmp_path / name) for name in ("eu", "us", "no", "wide", "moved")}
    rows = {"eu": "(1, 'a', 10), (2, 'same', 10)", "us": "(1, 'b', 10), (2, 'same', 10)"}

    def made(name: str, values: str, columns: str = COLUMNS) -> str:
        spark.sql(
            f"CREATE TABLE delta.`{paths[name]}` ({columns}) USING delta "
            "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        )
        spark.sql(f"INSERT INTO delta.`{paths[name]}` VALUES {values}")
        return paths[name]

    def collect(source: str, into: str = log, **given: Any) -> Outcome:
        options = {"keys": ["id"], "sequence_by": "at", "delete_sequence": "at + 1", **given}
        options = {"pipeline": f"p.{last_part(source)}", **options}
        return apply_changes(spark, source, into, target_kind="change_log", **options)

    for name, values in rows.items():
        collect(made(name, values))
    # A type of the sequence that the log does not have, a key twice, no sequence, a column of logs.
    before = spark.read.format("delta").load(log).count()
    no = made("no", "(7, 'x', 1), (7, 'y', 2), (8, 'z', NULL)")
    for given, error in (
        (
            {
                "sequence_by": "cast(at AS DECIMAL(20, 0))",
                "delete_sequence": "cast(at AS DECIMAL(20, 0))",
                "where": "id = 9",
                "policies": {"schema_evolution": "widen"},
            },
            TargetSchemaClash,
        ),
        ({"where": "id = 7"}, DeltaCdcError),
        ({"where": "id = 8"}, DeltaCdcError),
        ({"select": ["*", "name AS _op"], "where": "id = 9"}, ReservedColumnName),
    ):
        with pytest.raises(error):
            collect(no, **given)
    with pytest.raises(TargetSchemaClash, match="no change log"):
        collect(no, into=paths["eu"])
    assert spark.read.format("delta").load(log).count() == before
    # A later sequence is a change, also if the log does not get its column; a delete is not before its row.
    moved, other = made("moved", "(1, 'a', 1)"), str(tmp_path / "other")
    collect(moved, other, except_column_list=["at"])
    spark.sql(f"UPDATE delta.`{moved}` SET at = 10")
    collect(moved, other, except_column_list=["at"])
    spark.sql(f"DELETE FROM delta.`{moved}`")
    with pytest.raises(SequenceNotIncreasing):
        collect(moved, other, except_column_list=["at"], delete_sequence="at - 1")
    collect(moved, other, except_column_list=["at"])
    events = spark.read.format("delta").load(other).orderBy("_sequence").collect()
    assert [(row["_op"], row["_sequence"]) for row in events] == [
        ("upsert", 1),
        ("upsert", 10),
        ("delete", 11),
    ]
    # Rows of both sources are equal, or differ.
    arguments: dict[str, Any] = {"pipeline": "p", "keys": ["id"], "source_kind": "change_log"}
    with pytest.raises(ConflictingEvents):
        apply_changes(spark, log, target, **arguments)
    decided = {"on_conflict": {"last_by": ["_position"]}}
    apply_changes(spark, log, target, policies=decided, **arguments)
    found = spark.read.format("delta").load(target).orderBy("id").collect()
    assert [tuple(row) for row in found] == [(1, "b", 10), (2, "same", 10)]
    # Within a source, the later version wins; and a column that only one source has becomes one of the log.
    spark.sql(f"UPDATE delta.`{paths['us']}` SET name = 'c' WHERE id = 1")
    collect(paths["us"])
    collect(made("wide", "(3, 'w', 30, 5)", f"{COLUMNS}, more INT"))
    apply_changes(spark, log, target, policies=decided, **arguments)
    found = spark.read.format("delta").load(target).orderBy("id").collect()
    assert [tuple(row) for row in found] == [(1, "c", 10, None), (2, "same", 10, None), (3, "w", 30, 5)]
    # Also if the source got a name that comes before the old one.
    spark.sql(f"UPDATE delta.`{paths['us']}` SET name = 'd' WHERE id = 1")
    collect(paths["us"], pipeline="p.america", take_over_from="p.us")
    apply_changes(spark, log, target, policies=decided, **arguments)
    spark.sql(f"UPDATE delta.`{paths['us']}` SET name = 'e' WHERE id = 1")
    collect(paths["us"], pipeline="p.america")
    apply_changes(spark, log, target, policies=decided, **arguments)
    found = spark.read.format("delta").load(target).where("id = 1").collect()
    assert [row["name"] for row in found] == ["e"]
    events = spark.read.format("delta").load(log).where("name IN ('d', 'e')").collect()
    assert {row["_position"]["file"] for row in events} == {"p.us"}


def last_part(location: str) -> str:
    return location.rpartition("/")[2]


@pytest.mark.slow
def test_tables_of_events_are_sources(spark: SparkSession, tmp_path: Path) -> None:
    """They are appended as they come: late, twice, and deletes with a key alone. A faulty one stops them."""
    lake = Lake(spark, tmp_path, 1)
    stream = lake.source("stream", where=f"op = 'D' OR name <> '{HIDDEN}'", **OF_EVENTS)
    eu = lake.source("eu")
    stream.write({1: ("a", 10), 2: (HIDDEN, 10), 3: ("c", 10)})
    eu.write({1: ("late", 5), 4: ("d", 10)})
    for one in (stream, eu):
        one.collect()
    stream.write({1: ("a", 10), 3: ("new", 30)})
    eu.write({1: ("later", 20), 4: ("d", 10), 3: ("between", 20)})
    assert stream.collect().counts["events"] == 4
    eu.collect()
    assert not stream.collect().applied
    for scd in (1, 2):
        lake.apply(scd)
    lake.check()
    log = spark.read.format("delta").load(lake.log).where("_position.file = 'p.stream'")
    assert {(row.id, row._position.offset) for row in log.collect()} == {(1, 0), (3, 0), (3, 1), (2, 1)}
    spark.sql(f"INSERT INTO delta.`{stream.path}` VALUES (9, 'x', NULL, 'U')")
    with pytest.raises(DeltaCdcError, match="sequence"):
        apply_changes(
            *(spark, stream.path, lake.log),
            pipeline="p.stream",
            keys=["id"],
            sequence_by="at",
            target_kind="change_log",
            **{name: value for name, value in stream.arguments.items() if value is not None},
        )
    assert spark.read.format("delta").load(lake.log).where("id = 9").isEmpty()
    # Events that are loaded once: later ones do not count.
    loaded = [
        apply_changes(
            *(spark, eu.path, str(tmp_path / "once")),
            once=True,
            **{**OF_EVENTS, "apply_as_deletes": "name = 'd'", "except_column_list": ["name"]},
            pipeline="once",
            keys=["id"],
            sequence_by="at",
        )
        for _ in range(2)
    ]
    assert [one.applied for one in loaded] == [True, False]
    assert {row.id for row in spark.read.format("delta").load(str(tmp_path / "once")).collect()} == {1, 3}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ", "BIGINT"])
def test_events_that_a_time_orders_give_rows_their_times(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """The time of an event is its sequence if that is a TIMESTAMP; of another type it is unknown."""
    log, target = str(tmp_path / "log"), str(tmp_path / "target")
    of_log = {**OF_EVENTS, "except_column_list": ["op", "at"], "target_kind": "change_log"}
    layout = {"created_column": "created_at", "changed_column": "changed_at"}

    def at(day: int) -> dt.datetime:
        return dt.datetime(2026, 1, day, 12, 30, 15, 123456)  # noqa: DTZ001

    def post(name: str, *posted: tuple[int, str | None, int]) -> None:
        rows = [(key, value, day, "U" if value else "D") for key, value, day in posted]
        of_day = {"BIGINT": "day"}.get(
            kind, f"CAST(make_timestamp(2026, 1, day, 12, 30, 15.123456) AS {kind})"
        )
        given = spark.createDataFrame(rows, "id BIGINT, name STRING, day INT, op STRING")
        given = given.selectExpr("id", "name", f"CAST({of_day} AS {kind}) AS at", "op")
        given.write.format("delta").mode("append").save(str(tmp_path / name))
        apply_changes(
            *(spark, str(tmp_path / name), log), pipeline=f"p.{name}", keys=["id"], sequence_by="at", **of_log
        )

    def found(mode: str | None = None) -> dict[int, tuple[Any, ...]]:
        more = {} if mode is None else {"mode": mode}
        apply_changes(
            *(spark, log, target), pipeline="p", keys=["id"], delete_mode="soft", layout=layout, **more
        )
        rows = spark.read.format("delta").load(target).collect()
        return {row.id: (row.name, row._deleted, row.created_at, row.changed_at) for row in rows}

    post("eu", (1, "a", 3), (2, "b", 3), (3, "c", 3), (3, None, 5))
    post("us", (1, "a", 6), (4, "d", 4), (4, "d", 4))
    first = {
        1: ("a", False, 3, 3),
        2: ("b", False, 3, 3),
        3: ("c", True, 3, 5),
        4: ("d", False, 4, 4),
    }
    # An event that begins a life earlier, one between two, and one after a delete, from the other source.
    then = {1: ("a", False, 2, 6), 2: ("x", False, 3, 7), 3: ("e", False, 8, 8), 4: ("d", True, 1, 9)}

    def expected(days: dict[int, tuple[Any, ...]]) -> dict[int, tuple[Any, ...]]:
        known = kind == "TIMESTAMP"
        return {
            key: (name, is_deleted, *(at(day) if known else None for day in of_row))
            for key, (name, is_deleted, *of_row) in days.items()
        }

    assert found() == expected(first)
    post("us", (1, "z", 2), (1, "y", 4), (2, "x", 7), (3, "e", 8))
    post("eu", (4, "d", 1), (4, None, 9))
    assert found() == expected(then)
    assert found("reload") == expected(then), "the whole log gives the same times"


def test_a_configuration_runs_sources_first(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    """One failing source stops neither the others nor the apply of what has come; a crash before the log is
    described is mended by a run without new rows, even if the source that was loaded once is gone.
    """
    lake = Lake(spark, tmp_path, 1)
    old, us = lake.source("old", once=True), lake.source("us")
    old.write({1: ("a", 10), 2: ("b", 10)})
    us.write({1: ("c", 20)})
    file = tmp_path / "pipelines.yaml"
    file.write_text(
        f"""
pipelines:
  p:
    target: {lake.target(1)}
    log: {lake.log}
    keys: [id]
    sequence_by: at
    delete_sequence: at + 5
    sources:
      old: {{source: {old.path}, once: true}}
      us: {{source: {us.path}}}
      none: {{source: {tmp_path / "none"}}}
"""
    )

    with hooked(_crashing("committed")), pytest.raises(DeltaCdcError):
        old.collect()
    old.path = str(tmp_path / "gone")
    (tmp_path / "old").rename(old.path)
    for number in range(2):
        assert main(["run", str(file), "p", "--json"]) == 1
        shown = capsys.readouterr().out
        assert "TableNotFound" in shown
        found = spark.read.format("delta").load(lake.target(1)).orderBy("id").collect()
        assert [tuple(row) for row in found] == [(1, "cd"[number], 20 + 10 * number), (2, "b", 10)]
        us.write({1: ("d", 30)})
    assert main(["status", str(file), "p.old"]) == 0
    assert "loaded once" in capsys.readouterr().out
