"""The origin of each value in drawn histories, compared with a model that follows them forward."""

from __future__ import annotations

import os
import random
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from delta_cdc import apply_changes, explain_row
from tests.support.origins import COLUMNS, Event, as_json, drawn, kept

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from delta_cdc import Answer
    from tests.support.origins import Row

    Table = Callable[[str], str]

_DDL = "k INT, a INT, b STRING, c DECIMAL(10, 2)"
#: As Python gives the rows.
_GIVEN = "k INT, a INT, b STRING, c STRING"
_BATCHES = 6
_LOADED = 2
#: How many keys of each kind of source are compared; after how many batches one run applies them.
SOME, MANY = 2, int(os.environ.get("DELTA_CDC_HISTORIES", "25"))
SELDOM, ALWAYS = 2, 1


@dataclass
class Source(ABC):
    """A source whose keys have drawn histories; :meth:`grow` makes its next version.

    :param by_sequence: places are sequences; otherwise they are versions of the source
    """

    spark: SparkSession
    path: str
    draw: random.Random
    keys: int
    events: dict[int, list[Event]] = field(default_factory=dict)
    #: Of a log: (key, place) -> the versions with the event.
    versions: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    options: dict[str, Any] = field(default_factory=dict)
    by_sequence: ClassVar[bool] = False

    @abstractmethod
    def create(self) -> None:
        """Make the table, and draw the histories of its keys."""

    @abstractmethod
    def grow(self, batch: int) -> None:
        """Make the changes of a place."""

    def frame(self, rows: list[tuple[Any, ...]], ddl: str) -> Any:
        return self.spark.createDataFrame(rows, ddl)

    def state(self, key: int, place: int) -> dict[str, Any] | None:
        """Return the row of a key after a place."""
        rows = kept(event for event in self.events[key] if event.place <= place)
        return rows[-1].values if rows and rows[-1].end is None else None


def _row(key: int, values: dict[str, Any]) -> tuple[Any, ...]:
    return key, values["a"], values["b"], values["c"]


class Feed(Source):
    """A table that is updated."""

    def create(self) -> None:
        self.events = {key: drawn(self.draw, range(1, _BATCHES + 1)) for key in range(self.keys)}
        self.spark.sql(
            f"CREATE TABLE delta.`{self.path}` ({_DDL}) USING delta "
            "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
        )

    def grow(self, batch: int) -> None:
        rows = []
        for key, events in self.events.items():
            event = next((one for one in events if one.place == batch), None)
            if event is not None:
                rows.append((*_row(key, event.values or dict.fromkeys(COLUMNS)), event.values is None))
        changes = self.frame(rows, f"{_GIVEN}, gone BOOLEAN")
        changes.createOrReplaceTempView("changes_of_why")
        self.spark.sql(
            f"""MERGE INTO delta.`{self.path}` t USING changes_of_why s ON t.k = s.k
            WHEN MATCHED AND s.gone THEN DELETE
            WHEN MATCHED THEN UPDATE SET a = s.a, b = s.b, c = CAST(s.c AS DECIMAL(10, 2))
            WHEN NOT MATCHED AND NOT s.gone THEN
              INSERT (k, a, b, c) VALUES (s.k, s.a, s.b, CAST(s.c AS DECIMAL(10, 2)))"""
        )


class Copies(Feed):
    """A table that each copy overwrites, without a change feed."""

    def create(self) -> None:
        self.options = {"source_kind": "snapshot", "policies": {"allow_empty": True}}
        self.events = {key: drawn(self.draw, range(1, _BATCHES + 1)) for key in range(self.keys)}
        # A key that is in every copy.
        self.events[self.keys] = [Event(1, dict.fromkeys(COLUMNS))]
        self.spark.sql(f"CREATE TABLE delta.`{self.path}` ({_DDL}) USING delta")

    def grow(self, batch: int) -> None:
        states = {key: self.state(key, batch) for key in self.events}
        rows = [_row(key, state) for key, state in states.items() if state is not None]
        copy = self.frame(rows, _GIVEN)
        copy = copy.withColumn("c", copy["c"].cast("decimal(10, 2)"))
        copy.write.format("delta").mode("overwrite").save(self.path)


class Snapshots(Copies):
    """A table to which copies are appended, each with its number."""

    by_sequence: ClassVar[bool] = True

    def create(self) -> None:
        super().create()
        self.options = {
            "source_kind": "snapshot",
            "snapshot_version_column": "d",
            "except_column_list": ["d"],
        }
        self.spark.sql(f"ALTER TABLE delta.`{self.path}` ADD COLUMNS (d INT)")

    def grow(self, batch: int) -> None:
        states = {key: self.state(key, batch) for key in self.events}
        rows = [(*_row(key, state), batch) for key, state in states.items() if state is not None]
        copy = self.frame(rows, f"{_GIVEN}, d INT")
        copy = copy.withColumn("c", copy["c"].cast("decimal(10, 2)"))
        copy.write.format("delta").mode("append").save(self.path)


class Log(Source):
    """A table of events, which come in any order and twice, and may leave columns out."""

    by_sequence: ClassVar[bool] = True

    def create(self) -> None:
        self.options = {
            "source_kind": "change_log",
            "sequence_by": "s",
            "apply_as_deletes": "op = 'D'",
            "columns_to_update": "cols",
            "except_column_list": ["op", "s", "cols"],
        }
        self.spark.sql(
            f"CREATE TABLE delta.`{self.path}` ({_DDL}, op STRING, s INT, cols ARRAY<STRING>) USING delta "
            "TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
        )
        self.events = {
            key: drawn(self.draw, range(10, 10 * _BATCHES + 10, 10), partial=True) for key in range(self.keys)
        }
        self.batches: dict[int, list[tuple[int, Event]]] = {n: [] for n in range(1, _BATCHES + 1)}
        for key, events in self.events.items():
            for event in events:
                times = 2 if self.draw.random() < 0.2 else 1
                for batch in sorted(self.draw.sample(range(1, _BATCHES + 1), times)):
                    self.batches[batch].append((key, event))
                    self.versions.setdefault((key, event.place), []).append(batch)

    def grow(self, batch: int) -> None:
        rows = []
        for key, event in self.batches[batch]:
            values = event.values or {}
            full = {**dict.fromkeys(COLUMNS), **values}
            is_delete = event.values is None
            rows.append(
                (*_row(key, full), "D" if is_delete else "U", event.place, None if is_delete else [*values])
            )
        rows.append((-1, None, None, None, "U", 1, None))
        frame = self.frame(rows, f"{_GIVEN}, op STRING, s INT, cols ARRAY<STRING>")
        frame = frame.withColumn("c", frame["c"].cast("decimal(10, 2)"))
        frame.write.format("delta").mode("append").save(self.path)


def _expected(source: Source, key: int, scd_type: int) -> list[Row]:
    rows = kept(source.events[key], None if source.by_sequence else _LOADED)
    return rows if scd_type == 2 else [row for row in rows if row.end is None]


def _check(answer: Answer, source: Source, key: int, scd_type: int, runs: range) -> None:
    expected = _expected(source, key, scd_type)
    assert len(answer.rows) == len(expected), (key, source.events[key], str(answer))
    for row, wanted in zip(answer.rows, expected, strict=True):
        if scd_type == 2:
            assert (row.start, row.end) == (
                str(wanted.start),
                None if wanted.end is None else str(wanted.end),
            )
        values = {one.column: one for one in row.values if one.column != "k"}
        for name in COLUMNS:
            context = (key, name, source.events[key], str(answer))
            assert values[name].value == as_json(name, wanted.values[name]), context
            since = values[name].since
            assert since is not None, context
            place = wanted.since[name]
            if isinstance(source, Log):
                assert since.version == source.versions[key, place][0], context
            elif source.by_sequence:
                assert since.sequence == str(place), context
            else:
                assert since.version == place, context
            if since.version is not None:
                first = next(batch for batch in runs if batch >= since.version)
                assert since.run_id == f"run {first}" or source.by_sequence, context
    if isinstance(source, Log):
        repeated = sum(len(versions) - 1 for (one, _), versions in source.versions.items() if one == key)
        assert [one.why for one in answer.not_taken] == ["it repeats another event"] * repeated


def _compare(
    spark: SparkSession, tmp_table: Table, kind: type[Source], scd_type: int, keys: int, every: int
) -> None:
    runs = range(_LOADED, _BATCHES + 1, every)
    source = kind(spark, tmp_table("source"), random.Random(f"{kind.__name__} {scd_type} {keys}"), keys)
    source.create()
    target = tmp_table("target")
    for batch in range(1, _BATCHES + 1):
        source.grow(batch)
        if batch in runs:
            apply_changes(
                spark, source.path, target, pipeline="drawn", keys=["k"], run_id=f"run {batch}",
                stored_as_scd_type=scd_type, **source.options,
            )  # fmt: skip
    for key in range(keys):
        answer = explain_row(spark, target, pipeline="drawn", key={"k": key})
        _check(answer, source, key, scd_type, runs)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "scd_type"), [(Feed, 2), (Log, 2)])
def test_some_drawn_histories(
    spark: SparkSession, tmp_table: Table, kind: type[Source], scd_type: int
) -> None:
    _compare(spark, tmp_table, kind, scd_type, SOME, SELDOM)


@pytest.mark.slow
@pytest.mark.parametrize("scd_type", [1, 2])
@pytest.mark.parametrize("kind", [Feed, Log, Copies, Snapshots])
def test_drawn_histories(spark: SparkSession, tmp_table: Table, kind: type[Source], scd_type: int) -> None:
    _compare(spark, tmp_table, kind, scd_type, MANY, ALWAYS)
