"""A change log, many key spaces side by side, and the target that must come of it.

Events, options and the rows they come to are those of the test of laws. Here the log itself has a history:
batches, batches that arrive again, new columns, OPTIMIZE, and what a log must not go through.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tests.support import event_streams
from tests.support.drawn_applies import Configuration, drawn_log
from tests.support.engine import newest
from tests.support.event_model import DELETED
from tests.support.event_streams import Flavour, Posted, World, delivered, drawn_world

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from tests.support.event_streams import Batch

POLICIES = ("additive", "widen")
#: Statements of the log, and how often they are drawn.
STEPS = {"batch": 9, "again": 1, "optimize": 1, "add": 0.7, "widen": 0.4, "restore": 0.4, "delete": 0.4}


@dataclass
class Source:
    """A log and the events that it holds, by version.

    :param added: columns that came later, by version
    :param broken: versions in which the log lost events
    :param sent_with: the added columns that an event had, by key space, key and sequence
    """

    spark: SparkSession
    path: str
    seed: int
    spaces: Sequence[int]
    events: list[Batch] = field(default_factory=list)
    added: dict[int, str] = field(default_factory=dict)
    widened: list[int] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)
    sent: int = 0
    sent_with: dict[tuple[Any, ...], tuple[str, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"delta.`{self.path}`"

    @property
    def newest(self) -> int:
        return len(self.events) - 1

    @cached_property
    def flavour(self) -> Flavour:
        draw = random.Random(f"{self.seed} flavour")
        tied, invalid, truncates = draw.random() < 0.5, draw.random() < 0.3, draw.choice([0, 0, 3])
        return Flavour(f"{tied} {invalid} {truncates}", tied, invalid, truncates)

    @cached_property
    def configuration(self) -> Configuration:
        drawn = drawn_log(random.Random(f"{self.seed} options"), self.flavour)
        return replace(drawn, arguments={"source_kind": "change_log", **drawn.arguments})

    @cached_property
    def policy(self) -> str:
        return random.Random(f"{self.seed} policy").choice(POLICIES)

    @cached_property
    def batches(self) -> list[Batch]:
        world: World = drawn_world(self.seed, self.flavour, self.spaces)
        return delivered(world, random.Random(f"{self.seed} style").choice(["windows", "shuffled"]))

    def create(self) -> None:
        event_streams.create_log(self.spark, self.path)
        self.spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
        self.events += [[], []]
        self.step("batch", 0)

    def step(self, name: str, number: int) -> None:
        """Carry a statement out; one that would have nothing to do is left out."""
        after = getattr(self, f"_{name}")(number)
        if after is None or newest(self.path) == self.newest:
            return
        self.events.append(after)
        assert newest(self.path) == self.newest, f"{name} made version {newest(self.path)}"

    def refusals(self, first: int, end: int, policy: str) -> list[int]:
        """Return the versions of a range whose changes of columns a policy does not follow."""
        return [version for version in self.widened if first <= version <= end and policy == "additive"]

    def is_idle(self, first: int, end: int) -> bool:
        """Return whether a range has no events; a run without events may refuse all the same."""
        return False

    def needed(self, first: int, end: int, policy: str) -> str:
        """Return the least policy that follows all changes of a range, at least ``policy``."""
        return "widen" if self.refusals(first, end, policy) else policy

    def misfits(self, first: int, end: int) -> bool:
        """Return whether the log lost events in a range."""
        return any(first <= version <= end for version in self.broken)

    # -- statements -------------------------------------------------------------------------------
    @property
    def _now(self) -> Batch:
        return self.events[-1]

    def _append(self, batch: Batch) -> Batch:
        columns = list(self.added.values())
        ddl = event_streams.DDL.replace(" n int,", " n bigint,") if self.widened else event_streams.DDL
        rows = [(*posted.row(space), *(posted.values.get(c) for c in columns)) for space, posted in batch]
        event_streams.append(self.spark, self.path, rows, ", ".join([ddl, *(f"{c} int" for c in columns)]))
        return [*self._now, *batch]

    def _batch(self, number: int) -> Batch | None:
        if self.sent == len(self.batches):
            return self._again(number)
        batch = self.batches[self.sent]
        self.sent += 1
        self.batches[self.sent - 1] = batch = [
            (space, self._filled(space, posted)) for space, posted in batch
        ]
        return self._append(batch)

    def _filled(self, space: int | None, posted: Posted) -> Posted:
        # Events of one key and sequence must agree: all have the columns that there were at the first one.
        names = self.sent_with.setdefault((space, posted.id, posted.seq), tuple(self.added.values()))
        if posted.op == "truncate" or not posted.values or not names:
            return posted
        more = {
            name: random.Random(f"{space} {posted.id} {posted.seq} {name}").choice([0, 1, None])
            for name in names
        }
        return replace(posted, values={**posted.values, **more})

    def _again(self, number: int) -> Batch | None:
        """Append events that came before once more."""
        batch = random.Random(f"{self.seed} {number} again").choice(self.batches[: self.sent])
        return self._append(
            [(space, posted) for space, posted in batch if space is None or space % 3 == number % 3]
        )

    def _optimize(self, number: int) -> Batch:
        self.spark.sql(f"OPTIMIZE {self.name}")
        return self._now

    def _add(self, number: int) -> Batch | None:
        if len(self.added) == 2:
            return None
        self.spark.sql(f"ALTER TABLE {self.name} ADD COLUMN c{number} INT")
        self.added[self.newest + 1] = f"c{number}"
        return self._now

    def _widen(self, number: int) -> Batch | None:
        if self.widened:
            return None
        self.spark.sql(f"ALTER TABLE {self.name} ALTER COLUMN n TYPE BIGINT")
        self.widened.append(self.newest + 1)
        return self._now

    def _restore(self, number: int) -> Batch | None:
        """Lose the last batches: a log must not."""
        floor = max([1, *self.added, *self.widened])
        able = [v for v in range(floor, self.newest) if len(self.events[v]) < len(self._now)]
        if not able:
            return None
        back = random.Random(f"{self.seed} {number} restore").choice(able)
        self.spark.sql(f"RESTORE TABLE {self.name} TO VERSION AS OF {back}").collect()
        self.broken.append(self.newest + 1)
        return self.events[back]

    def _delete(self, number: int) -> Batch | None:
        gone = [(s, p) for s, p in self._now if s is not None and s % 7 == number % 7]
        if not gone:
            return None
        self.spark.sql(f"DELETE FROM {self.name} WHERE history % 7 = {number % 7}")
        self.broken.append(self.newest + 1)
        return [(s, p) for s, p in self._now if s is None or s % 7 != number % 7]


@dataclass
class Target:
    """What a target must hold: it depends on the events of the log, and on what soft deletes kept.

    :param orphans: rows by key space: a reload marks a row as deleted if the log has no event of its key with
        values any more
    """

    source: Source
    watermark: int = -1
    empty: bool = False
    floor: int = 0
    orphans: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def configuration(self) -> Configuration:
        """Return the options with the columns that there are by now."""
        drawn = self.source.configuration
        given, rules = drawn.arguments, drawn.rules
        if "column_list" in given:
            return drawn
        came = [name for version, name in self.source.added.items() if version <= self.watermark]
        tracked = rules.tracked
        if tracked is not None and "track_history_column_list" not in given:
            tracked = (*tracked, *came)
        columns = {**rules.columns, **dict.fromkeys(came)}
        return replace(drawn, rules=replace(rules, columns=columns, tracked=tracked))

    @property
    def columns(self) -> tuple[str, ...]:
        return self.configuration.columns

    def copied(self) -> Target:
        """Return it as it is now."""
        return replace(self)

    def load(self, version: int) -> None:
        """Begin with all events."""
        self.watermark, self.empty, self.floor, self.orphans = version, False, version, {}

    reset = load

    def advance(self, end: int, policy: str) -> None:
        """Apply the events up to a version."""
        self.watermark = end

    def reload(self, end: int, policy: str) -> None:
        """Compute all keys from all events."""
        before = self.by_space() if self.configuration.is_soft else {}
        self.load(end)
        known = (
            {(space, row["id"]) for space, rows in self.by_space().items() for row in rows} if before else ()
        )
        self.orphans = {
            space: [{**row, DELETED: True} for row in rows if (space, row["id"]) not in known]
            for space, rows in before.items()
        }

    def emptied(self) -> None:
        """Lose all rows."""
        self.empty, self.orphans = True, {}

    @property
    def rows(self) -> bool:
        return not self.empty and any(self.by_space().values())

    def by_space(self) -> dict[int, list[dict[str, Any]]]:
        """Return the rows of each key space."""
        if self.empty or self.watermark < 0:
            return {}
        configuration = self.configuration
        events: dict[int | None, list[Posted]] = defaultdict(list)
        for space, posted in self.source.events[self.watermark]:
            events[space].append(posted)
        found = {
            space: configuration.rows(
                [posted.event(space, configuration.sequence) for posted in (*own, *events.get(None, ()))]
            )
            for space, own in events.items()
            if space is not None
        }
        for space, rows in self.orphans.items():
            ids = {row["id"] for row in found.get(space, ())}
            names = dict.fromkeys(self.columns)
            found.setdefault(space, []).extend({**names, **row} for row in rows if row["id"] not in ids)
        return found
