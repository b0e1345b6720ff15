"""Applies drawn from a seed: a source of any kind with many histories side by side, and options at random.

A drawn apply writes a source, knows the arguments of ``apply_changes``, and says by the plain model of events
what the target must hold. What a history goes through depends on the seed and its number alone, so that one
history is replayed without the others.
"""

from __future__ import annotations

import datetime as dt
import random
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tests.support import event_model as model
from tests.support import event_streams, histories
from tests.support.engine import newest
from tests.support.event_model import Event, Rules
from tests.support.event_streams import SPAN, TELLING, VALUES, Flavour, World, drawn_world
from tests.support.oracle import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from tests.support.event_flow import LogFlow
    from tests.support.event_streams import Style

Row = dict[str, Any]
#: Orders of events: arguments, and what the engine makes of the number in the log.
_SEQUENCES: list[tuple[Any, Callable[[int], Any]]] = [
    ("seq", lambda seq: seq),
    ("lpad(seq, 6, '0')", lambda seq: f"{seq:06}"),
    (["hi", "lo"], lambda seq: divmod(seq, event_streams.PART)),
    ("date_from_unix_date(seq)", lambda seq: dt.date(1970, 1, 1) + dt.timedelta(days=seq)),
]
#: Fields of structs, by column.
_FIELDS = {"s": ("s.a", "s.deep", "s.deep.b")}
#: Versions of a source of states.
LENGTH = 7


@dataclass(frozen=True)
class Configuration:
    """How a source is applied, to the engine and to the model.

    :param arguments: of ``apply_changes``, with the options of groups under their own names
    :param sequence: what the engine's ``sequence_by`` makes of the number in a log
    """

    scd_type: int
    arguments: dict[str, Any]
    rules: Rules
    sequence: Callable[[int], Any] = lambda seq: seq
    start: str = model.START
    end: str = model.END

    @property
    def is_soft(self) -> bool:
        return self.arguments.get("delete_mode") == "soft"

    @property
    def is_partial(self) -> bool:
        return bool(self.rules.null_keeps) or self.rules.columns_to_update

    @property
    def columns(self) -> tuple[str, ...]:
        more: tuple[str, ...] = (self.start, self.end) if self.scd_type == 2 else ()
        return (*self.rules.keys, *self.rules.columns, *((model.DELETED,) if self.is_soft else more))

    def differs(self, rows: Sequence[Row], events: Sequence[Event]) -> bool:
        """Return whether the rows of a target differ from those of the model, or contradict each other."""
        if self.bag(rows) != self.bag(self.rows(events)):
            return True
        return self.scd_type == 2 and bool(
            model.faults(rows, self.rules.keys, start=self.start, end=self.end)
        )

    def bag(self, rows: Sequence[Row]) -> Counter[tuple[Any, ...]]:
        """Return rows for a comparison."""
        # Not sorted by their text: that of a map depends on the order in which its entries came.
        return Counter(tuple(plain(row[name]) for name in self.columns) for row in rows)

    def rows(self, events: Sequence[Event]) -> list[Row]:
        """Return the rows of a target by the model."""
        if self.scd_type == 2:
            return model.type_2(events, self.rules, start=self.start, end=self.end)
        return model.type_1_soft(events, self.rules) if self.is_soft else model.type_1(events, self.rules)


# -- options --------------------------------------------------------------------------------------
def _some(draw: random.Random, names: Iterable[str], least: int = 0) -> list[str]:
    """Draw a list of columns, in any order and case."""
    names = list(names)
    chosen = draw.sample(names, draw.randint(min(least, len(names)), len(names)))
    return [draw.choice([name, name.upper()]) for name in chosen]


def _without(names: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    lowered = {name.lower() for name in others}
    return tuple(name for name in names if name.lower() not in lowered)


def _configured(
    draw: random.Random,
    keys: tuple[str, ...],
    values: Mapping[str, Any],
    *,
    hidden: Sequence[str],
    order: Sequence[str],
    by_event: str | None = None,
) -> Configuration:
    """Draw the options that all kinds of sources have.

    :param values: columns that may land
    :param hidden: columns that must not land
    :param order: columns that the sequence reads
    :param by_event: a column with the names of the columns that an event carries
    """
    scd_type = draw.choice([1, 2])
    given: dict[str, Any] = {"keys": list(keys), "stored_as_scd_type": scd_type}
    partial = draw.choice(["", "", "all", "list", "except", "carried" if by_event else ""])
    landing = list(values)
    if partial != "carried" and draw.random() < 0.4:
        landing = list(_without(values, _some(draw, list(values)[1:])))
    if draw.random() < 0.5:
        given["column_list"] = [draw.choice([name, name.upper()]) for name in landing]
    elif left_out := [*hidden, *_without(values, landing)]:
        given["except_column_list"] = left_out
    rules = Rules(keys=keys, columns={name: values[name] for name in landing})
    if partial == "all":
        given["ignore_null_updates"] = True
        rules = replace(rules, ignore_null_updates=True)
    elif partial in ("list", "except"):
        names = [path for name in landing for path in (name, *_FIELDS.get(name, ()))]
        argument = f"ignore_null_updates_{'except_' if partial == 'except' else ''}column_list"
        given[argument] = _some(draw, names, 1)
        rules = replace(rules, **{argument: tuple(given[argument])})
    elif partial == "carried":
        given["columns_to_update"] = by_event
        rules = replace(rules, columns_to_update=True)
    if scd_type == 1:
        if draw.random() < 0.4:
            given["delete_mode"] = "soft"
        return Configuration(1, _laid_out(draw, given), rules)
    tracked = draw.choice(["", "", "track_history_column_list", "track_history_except_column_list"])
    if tracked:
        given[tracked] = _some(draw, landing, 0 if tracked == "track_history_column_list" else 1)
    left_out = (
        _without(landing, given[tracked])
        if tracked == "track_history_column_list"
        else given.get(tracked, order)
    )
    rules = replace(rules, tracked=_without(landing, left_out))
    start, end = draw.choice([(model.START, model.END), ("valid from", "valid to")])
    given |= {"start_column": start, "end_column": end} if start != model.START else {}
    return Configuration(2, _laid_out(draw, given), rules, start=start, end=end)


def _laid_out(draw: random.Random, given: dict[str, Any]) -> dict[str, Any]:
    layouts = [{}, {}, {"target_properties": {"delta.enableDeletionVectors": "false"}}, {"cluster_by": []}]
    more = draw.choice(layouts)
    return {**given, **more, **draw.choice([{}, {}, {"versions_per_commit": draw.randint(1, 3)}])}


# -- applies --------------------------------------------------------------------------------------
@dataclass
class DrawnApply(ABC):
    """One source, and how it is applied.

    :param numbers: of the histories
    """

    kind: str
    seed: int
    numbers: Sequence[int]

    @property
    def draw(self) -> random.Random:
        return random.Random(f"{self.seed} {self.kind}")

    @property
    @abstractmethod
    def configuration(self) -> Configuration:
        """Return how the source is applied."""

    @property
    @abstractmethod
    def history_column(self) -> str:
        """Return the column with the number of a row's history."""

    @abstractmethod
    def played(self, flow: LogFlow) -> Iterator[int]:
        """Write the source and yield the versions up to which a run applies it, each when it exists."""

    @abstractmethod
    def healed(self, flow: LogFlow, draw: random.Random) -> None:
        """Damage the target where a repair or a reload brings the rows back, and do that."""

    @abstractmethod
    def events(self, number: int) -> list[Event]:
        """Return a history as the model's events."""


def drawn_apply(kind: str, seed: int, numbers: Sequence[int]) -> DrawnApply:
    """Return the apply of a seed.

    :param kind: of the source, as ``source_kind``
    """
    return (DrawnLog if kind == "change_log" else DrawnStates)(kind, seed, numbers)


def drawn_log(draw: random.Random, flavour: Flavour, *, by_number: bool = False) -> Configuration:
    """Draw how a log of a flavour is applied.

    :param by_number: the sequence is a number
    """
    sequence_by, sequence = draw.choice(_SEQUENCES[:1] if by_number else _SEQUENCES)
    lands = draw.random() < 0.2 and sequence_by == "seq"
    values = {**VALUES, "seq": None} if lands else VALUES
    drawn = _configured(
        draw,
        event_streams.KEYS,
        values,
        hidden=_without(TELLING, values),
        order=["seq"],
        by_event="cols",
    )
    given = {"sequence_by": sequence_by, "apply_as_deletes": "op = 'delete'", **drawn.arguments}
    rules = drawn.rules
    if flavour.truncates:
        given["apply_as_truncates"] = "op = 'truncate'"
    if flavour.contradicting:
        conflict = draw.choice(["last_by", "quarantine"])
        given["on_conflict"] = {"last_by": ["pos"]} if conflict == "last_by" else conflict
        rules = replace(rules, on_conflict=conflict)
    if flavour.invalid:
        given["on_invalid"] = "quarantine"
    return replace(drawn, arguments=given, rules=rules, sequence=sequence)


@dataclass
class DrawnLog(DrawnApply):
    """A change log: events in any order, twice, late, in ties, without a key; and truncates."""

    history_column = "history"

    @cached_property
    def flavour(self) -> Flavour:
        draw = self.draw
        tied, invalid, truncates = draw.random() < 0.5, draw.random() < 0.3, draw.choice([0, 0, 3])
        return Flavour(f"{tied} {invalid} {truncates}", tied, invalid, truncates)

    @cached_property
    def configuration(self) -> Configuration:
        drawn = drawn_log(self.draw, self.flavour)
        late = {"on_late": "discard"} if self.lateness is not None else {}
        return replace(drawn, arguments={"source_kind": "change_log", **drawn.arguments, **late})

    @cached_property
    def lateness(self) -> tuple[int, int] | None:
        """Return after which batch the lateness bound is set, and the bound; None is without."""
        draw = random.Random(f"{self.seed} lateness")
        if draw.random() < 0.7 or drawn_log(self.draw, self.flavour).arguments["sequence_by"] != "seq":
            return None
        batch = draw.randint(1, self.world.windows - 1)
        return batch, draw.randint(1, batch * SPAN)

    @cached_property
    def world(self) -> World:
        return drawn_world(self.seed, self.flavour, self.numbers)

    @cached_property
    def batches(self) -> list[event_streams.Batch]:
        style: Style = self.draw.choice(["windows", "shuffled"])
        return event_streams.delivered(self.world, style)

    def played(self, flow: LogFlow) -> Iterator[int]:
        draw = random.Random(f"{self.seed} runs")
        event_streams.create_log(flow.spark, flow.log)
        name = f"delta.`{flow.log}`"
        if self.lateness is not None:
            flow.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
        ends = {*draw.sample(range(1, len(self.batches)), draw.randint(0, 3)), len(self.batches)}
        for count, batch in enumerate(self.batches, start=1):
            event_streams.append(flow.spark, flow.log, [posted.row(history) for history, posted in batch])
            if count in ends:
                yield newest(flow.log)
            if self.lateness is not None and self.lateness[0] == count:
                below = f"'delta_cdc.latenessHorizon' = '{self.lateness[1]}'"
                flow.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({below})")

    def healed(self, flow: LogFlow, draw: random.Random) -> None:
        if self.lateness is not None:
            # What the target holds from before the bound is frozen.
            return
        first, step = draw.choice(sorted(self.numbers)), len(self.numbers) // 5
        some = f"history BETWEEN {first} AND {first + step}"
        flow.spark.sql(f"DELETE FROM delta.`{flow.target}` WHERE {some}")
        how = draw.choice([{"mode": "reload"}, {"mode": "repair", "repair_keys": some}])
        flow.apply(None, versions_per_commit=None, **how)

    def events(self, number: int) -> list[Event]:
        after, below = self.lateness or (len(self.batches), 0)
        return [
            posted.event(number, self.configuration.sequence)
            for count, batch in enumerate(self._by_history, start=1)
            for posted in (*batch.get(number, ()), *batch.get(None, ()))
            if count <= after or posted.seq is None or posted.seq >= below
        ]

    @cached_property
    def _by_history(self) -> list[dict[int | None, list[event_streams.Posted]]]:
        found = []
        for batch in self.batches:
            by_history: dict[int | None, list[event_streams.Posted]] = defaultdict(list)
            for history, posted in batch:
                by_history[history].append(posted)
            found.append(by_history)
        return found


#: Predicates over states, as SQL and in Python.
_FILTERS: dict[str, list[tuple[str, Callable[[Row], bool]]]] = {
    "where": [
        ("u IS NULL OR u <> 1", lambda row: row["u"] != 1),
        ("v IS DISTINCT FROM 'b'", lambda row: row["v"] != "b"),
        ("coalesce(v, 'a') = 'a'", lambda row: row["v"] in ("a", None)),
    ],
    "apply_as_deletes": [
        ("u = 0", lambda row: row["u"] == 0),
        ("v = 'b'", lambda row: row["v"] == "b"),
        ("v IS NULL", lambda row: row["v"] is None),
    ],
}
_SOURCES: list[dict[str, Any]] = [
    {},
    {"properties": {"delta.enableDeletionVectors": "true"}, "partition_by": ("u",)},
    {"properties": {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}},
    {"properties": {"delta.enableChangeDataFeed": "false", "delta.enableRowTracking": "true"}},
]


@dataclass
class DrawnStates(DrawnApply):
    """A table whose states count: one with a change feed, or full copies, one per version or per value."""

    history_column = "case"

    @cached_property
    def copies(self) -> bool:
        """Return whether each value of a column is one full copy."""
        return self.kind == "snapshot" and self.draw.random() < 0.5

    @cached_property
    def where(self) -> dict[str, tuple[str, Callable[[Row], bool]]]:
        draw = random.Random(f"{self.seed} filters")
        return {name: draw.choice(filters) for name, filters in _FILTERS.items() if draw.random() < 0.3}

    @cached_property
    def configuration(self) -> Configuration:
        draw = self.draw
        draw.random()
        projects, orders = draw.random() < 0.3, draw.random() < 0.3
        values = {"v": None, "u": None, **({"w": None} if projects else {})}
        hidden, order = (["copy"], []) if self.copies else ([], ["u"] if orders else [])
        drawn = _configured(draw, histories.KEYS, values, hidden=hidden, order=order)
        given = {"source_kind": self.kind, **drawn.arguments}
        given |= {name: sql for name, (sql, _) in self.where.items()}
        if projects:
            given["select"] = ["*", "upper(v) AS w"]
        if self.copies:
            given["snapshot_version_column"] = "copy"
        elif order and drawn.scd_type == 2:
            given["sequence_by"] = ["_commit_version", "coalesce(u, 9)"]
            given["delete_sequence"] = "struct(_commit_version, 9 AS last)"
        elif order and not any(name.startswith("track_history") for name in given):
            # No sequence reads u, so it is tracked.
            drawn = replace(drawn, rules=replace(drawn.rules, tracked=tuple(drawn.rules.columns)))
        return replace(drawn, arguments=given)

    @cached_property
    def histories(self) -> histories.Histories:
        scripts = {
            str(number): histories.drawn(random.Random(f"{self.seed} {number}"), LENGTH)
            for number in self.numbers
        }
        return histories.played(scripts, LENGTH)

    @cached_property
    def commits(self) -> list[list[int]]:
        """Return which states each version of the source brings."""
        if not self.copies:
            return [[number] for number in range(LENGTH)]
        draw, found = random.Random(f"{self.seed} commits"), [[]]
        for number in range(LENGTH):
            if number and draw.random() < 0.3:
                found[-1].append(number)
            else:
                found.append([number])
        return found

    @cached_property
    def ends(self) -> list[int]:
        draw = random.Random(f"{self.seed} runs")
        first, last = (1 if self.copies else 0), len(self.commits) - 1
        loaded = draw.choice([first, first, first + 1])
        inner = [version for version in range(loaded + 1, last) if draw.random() < 0.3]
        return [loaded, *inner, last]

    def played(self, flow: LogFlow) -> Iterator[int]:
        if self.kind == "change_feed":
            draw = random.Random(f"{self.seed} layout")
            histories.write(flow.spark, flow.log, self.histories, **draw.choice(_SOURCES))
        else:
            self._write_copies(flow.spark, flow.log)
        yield from self.ends

    def _write_copies(self, spark: SparkSession, source: str) -> None:
        ddl = histories.DDL + (", copy int" if self.copies else "")
        for states in self.commits:
            rows = [
                (*row.values(), *((10 * number,) if self.copies else ()))
                for number in states
                for row in self.histories.states[number].values()
            ]
            frame = spark.createDataFrame(rows, ddl).coalesce(1)
            frame.write.format("delta").mode("append" if self.copies else "overwrite").save(source)

    def healed(self, flow: LogFlow, draw: random.Random) -> None:
        configuration = self.configuration
        if configuration.is_partial:
            # States do not say which columns a change carried, so neither is possible.
            return
        if configuration.scd_type == 1 and not configuration.is_soft:
            flow.spark.sql(f"DELETE FROM delta.`{flow.target}` WHERE id = {draw.randrange(4)}")
            flow.apply(None, versions_per_commit=None, mode="reload")
        elif len(self.ends) > 1:
            # What the target held before the range cannot be known from it, so nothing is damaged.
            start = draw.choice(self.ends[:-1]) + 1
            flow.apply(None, versions_per_commit=None, mode="repair", starting_version=start)

    def _state(self, number: int, history: str) -> dict[Any, Row]:
        """Return the rows that count, with what is projected."""
        orders = self.configuration.arguments.get("delete_sequence") is not None
        found = {}
        for key in ((history, id_) for id_ in range(histories.IDS)):
            row = self.histories.states[number].get(key)
            if row is None or not self._counts(row):
                continue
            upper = None if row["v"] is None else row["v"].upper()
            sequence = (number, 9 if row["u"] is None else row["u"]) if orders else number
            found[key] = {**row, "w": upper, "sequence": 10 * number if self.copies else sequence}
        return found

    def _counts(self, row: Row) -> bool:
        where, deletes = (self.where.get(name) for name in ("where", "apply_as_deletes"))
        return (where is None or where[1](row)) and (deletes is None or not deletes[1](row))

    def events(self, number: int) -> list[Event]:
        loaded = 0 if self.copies else self.ends[0]
        orders = self.configuration.arguments.get("delete_sequence") is not None
        found, before = [], {}
        for at in range(loaded, LENGTH):
            state = self._state(at, str(number))
            end = 10 * at if self.copies else (at, 9) if orders else at
            found += [Event(key, end, "delete") for key in before if key not in state]
            for key, row in state.items():
                values = {name: value for name, value in row.items() if name != "sequence"}
                if key not in before or values != before[key]:
                    found.append(Event(key, row["sequence"], values=values))
                state[key] = values
            before = state
        return found
