"""Random histories of a table, many of them side by side in one real Delta table.

Every history has a key space of its own (column ``history``), and one commit is one statement that carries
out each history's own next operation; overwriting, RESTORE and OPTIMIZE concern all of them at once. What a
history does in a step is drawn from the seed, its number and the step alone: one that fails can be
replayed without the others.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.change_model import Row, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

KEYS = ("history", "id")
COLUMNS = ("history", "id", "v", "u")
TYPES = {"history": "int", "id": "int", "v": "string", "u": "int", "w": "int"}
#: Keys of one history; small, so that keys come back.
IDS = 6
#: A row's key as one number, for lists of keys in a WHERE.
_SPAN = 16
_VALUES = ("a", "b", "", None)
_NUMBERS = (0, 1, None)

FEED, ROWS, VECTORS = "delta.enableChangeDataFeed", "delta.enableRowTracking", "delta.enableDeletionVectors"


@dataclass(frozen=True)
class Layout:
    """How the table lies on disk, and what is known of its rows."""

    feed: bool = True
    row_tracking: bool = True
    vectors: bool = True
    partition_by: tuple[str, ...] = ()
    mapping: bool = False
    in_commit_timestamps: bool = False

    @property
    def properties(self) -> dict[str, str]:
        made = {
            FEED: str(self.feed).lower(),
            ROWS: str(self.row_tracking).lower(),
            VECTORS: str(self.vectors).lower(),
            "delta.enableInCommitTimestamps": str(self.in_commit_timestamps).lower(),
        }
        return {**made, "delta.columnMapping.mode": "name"} if self.mapping else made


def number_of_histories(count: int) -> list[int]:
    """Return the numbers of a table's histories; ``DELTA_CDC_HISTORIES=7,8`` replays some of them."""
    given = os.environ.get("DELTA_CDC_HISTORIES")
    return [int(number) for number in given.split(",")] if given else list(range(count))


@dataclass
class ChangeHistories:
    """A Delta table and its model, kept in step.

    :param log: what made each version
    :param steps: statements so far, those that found nothing to do as well
    :param feed: of each version, whether the change feed is on
    """

    spark: SparkSession
    path: str
    seed: int
    numbers: list[int]
    layout: Layout
    model: Table = field(default_factory=lambda: Table(COLUMNS, KEYS))
    log: list[str] = field(default_factory=list)
    feed: list[bool] = field(default_factory=list)
    steps: int = 0

    @property
    def name(self) -> str:
        return f"delta.`{self.path}`"

    # -- the table ------------------------------------------------------------------------------
    def create(self) -> None:
        """Write version 0: some rows of most histories; none where Delta cannot do both at once."""
        self.feed.append(self.layout.feed)
        if self.layout.mapping:
            self._create_empty()
            return
        rows = [row for number in self.numbers for row in self._fresh_rows(number, taken=set(), chance=0.5)]
        self._frame(rows).createOrReplaceTempView("first_rows")
        self.spark.sql(f"CREATE TABLE {self.name} USING delta {self._clauses()} AS SELECT * FROM first_rows")
        self.model.change(inserts=rows, statement="CREATE TABLE AS SELECT")
        self._done("create")

    def _create_empty(self) -> None:
        columns = ", ".join(f"{name} {TYPES[name]}" for name in COLUMNS)
        self.spark.sql(f"CREATE TABLE {self.name} ({columns}) USING delta {self._clauses()}")
        self.model.change(statement="CREATE TABLE")
        self._done("create")

    def _clauses(self) -> str:
        by, properties = self.layout.partition_by, self.layout.properties
        told = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        partitioned = f"PARTITIONED BY ({', '.join(by)}) " if by else ""
        return f"{partitioned}TBLPROPERTIES ({told})"

    def step(self, name: str) -> None:
        """Make the next version."""
        self.feed.append({"feed_off": False, "feed_on": True}.get(name, self.feed[-1]))
        getattr(self, f"_{name}")()
        self._done(name)

    def _done(self, name: str) -> None:
        self.steps += 1
        self.log.append(name)
        newest = max(int(file.stem) for file in (Path(self.path) / "_delta_log").glob("*.json"))
        if newest == self.model.newest - 1 and self.model.is_idle:
            # A statement that finds nothing to do need not commit.
            self.model.versions.pop()
            self.log.pop()
            self.feed.pop()
        assert newest == self.model.newest, f"{name} made version {newest}, the model {self.model.newest}"

    def checked(self) -> None:
        """Demand that the table is the model's: else they agree about nothing."""
        newest = self.model.newest
        found = map(tuple, self.snapshot(newest).select(*self.model.columns).collect())
        assert Counter(found) == self.model.bag(newest), f"seed {self.seed} after {self.log}"

    def snapshot(self, version: int) -> DataFrame:
        return self.spark.read.format("delta").option("versionAsOf", version).load(self.path)

    def _frame(self, rows: Iterable[Row]) -> DataFrame:
        types = ", ".join(f"{name} {TYPES[name]}" for name in self.model.columns)
        return self.spark.createDataFrame(list(rows), types).repartition(3, "history", "id")

    # -- what each history draws ----------------------------------------------------------------
    def _draw(self, number: int) -> random.Random:
        return random.Random(f"{self.seed} {number} {self.steps}")

    def _own(self, number: int) -> dict[int, Row]:
        return {i: kept.row for i, kept in self.model.rows.items() if kept.row[0] == number}

    def _by_number(self) -> dict[int, dict[int, Row]]:
        found: dict[int, dict[int, Row]] = {number: {} for number in self.numbers}
        for identity, kept in self.model.rows.items():
            found[kept.row[0]][identity] = kept.row
        return found

    def _row(self, draw: random.Random, number: int, key: int) -> Row:
        row: Row = (number, key, draw.choice(_VALUES), draw.choice(_NUMBERS))
        return (*row, *(draw.choice(_NUMBERS) for _ in self.model.columns[4:]))

    def _fresh_rows(self, number: int, *, taken: set[int], chance: float) -> list[Row]:
        draw = self._draw(number)
        free = [key for key in range(IDS) if key not in taken]
        return [self._row(draw, number, key) for key in free if draw.random() < chance]

    # -- statements that name rows --------------------------------------------------------------
    def _insert(self) -> None:
        rows = [
            row
            for number, own in self._by_number().items()
            for row in self._fresh_rows(number, taken={row[1] for row in own.values()}, chance=0.4)
        ]
        self._frame(rows).write.format("delta").mode("append").save(self.path)
        self.model.change(inserts=rows, statement="WRITE")

    def _chosen(self, chance: float = 0.4) -> dict[int, Row]:
        chosen: dict[int, Row] = {}
        for number, own in self._by_number().items():
            draw = self._draw(number)
            chosen.update({i: row for i, row in own.items() if draw.random() < chance})
        return chosen

    def _among(self, rows: Iterable[Row]) -> str:
        codes = ", ".join(["-1", *(str(row[0] * _SPAN + row[1]) for row in rows)])
        return f"history * {_SPAN} + id IN ({codes})"

    def _update_rows(self, rows: Mapping[int, Row], assignment: str, after: Callable[[Row], Row]) -> None:
        self.spark.sql(f"UPDATE {self.name} SET {assignment} WHERE {self._among(rows.values())}")
        self.model.change(updates={i: after(row) for i, row in rows.items()}, statement="UPDATE")

    def _update(self) -> None:
        self._update_rows(
            self._chosen(),
            "v = CASE WHEN v IS NULL THEN 'a' WHEN v = 'b' THEN NULL ELSE 'b' END",
            lambda row: (*row[:2], "a" if row[2] is None else None if row[2] == "b" else "b", *row[3:]),
        )

    def _update_number(self) -> None:
        self._update_rows(
            self._chosen(),
            "u = CASE WHEN u IS NULL THEN 0 WHEN u = 1 THEN NULL ELSE 1 END",
            lambda row: (*row[:3], 0 if row[3] is None else None if row[3] == 1 else 1, *row[4:]),
        )

    def _update_nothing(self) -> None:
        self._update_rows(self._chosen(), "v = v, id = id", lambda row: row)

    def _move(self) -> None:
        """Give half of the histories other keys: each goes one place on, and the last comes first."""
        rows = {
            i: row
            for number, own in self._by_number().items()
            if self._draw(number).random() < 0.5
            for i, row in own.items()
        }
        self._update_rows(rows, f"id = (id + 1) % {IDS}", lambda row: (row[0], (row[1] + 1) % IDS, *row[2:]))

    def _delete(self) -> None:
        rows = self._chosen(0.3)
        self.spark.sql(f"DELETE FROM {self.name} WHERE {self._among(rows.values())}")
        self.model.change(deletes=rows, statement="DELETE")

    def _delete_by_number(self) -> None:
        """Whole partitions, where the table is partitioned by u."""
        self.spark.sql(f"DELETE FROM {self.name} WHERE u = 1")
        gone = [i for i, kept in self.model.rows.items() if kept.row[3] == 1]
        self.model.change(deletes=gone, statement="DELETE")

    def _truncate(self) -> None:
        self.spark.sql(f"DELETE FROM {self.name}")
        self.model.change(deletes=list(self.model.rows), statement="DELETE")

    def _merge(self) -> None:
        """Insert, update (also to what is there), move to a free key, swap keys, and delete."""
        inserts: list[Row] = []
        updates: dict[int, Row] = {}
        deletes: list[int] = []
        for number, own in self._by_number().items():
            added, changed, dropped = self._drawn_merge(number, own)
            inserts, updates, deletes = inserts + added, {**updates, **changed}, deletes + dropped
        rows = self.model.rows
        ops = [(*row[:2], "insert", *row) for row in inserts]
        ops += [(*rows[i].row[:2], "update", *row) for i, row in updates.items()]
        ops += [(*rows[i].row[:2], "delete", *rows[i].row) for i in deletes]
        types = ", ".join(f"{name} {TYPES[name]}" for name in self.model.columns)
        self.spark.createDataFrame(ops, f"at int, old_id int, op string, {types}").createOrReplaceTempView(
            "ops"
        )
        columns = self.model.columns
        self.spark.sql(f"""
            MERGE INTO {self.name} t USING ops s ON t.history = s.at AND t.id = s.old_id AND s.op != 'insert'
            WHEN MATCHED AND s.op = 'delete' THEN DELETE
            WHEN MATCHED THEN UPDATE SET {", ".join(f"t.{c} = s.{c}" for c in columns)}
            WHEN NOT MATCHED THEN INSERT ({", ".join(columns)})
                VALUES ({", ".join(f"s.{c}" for c in columns)})""")
        self.model.change(inserts=inserts, updates=updates, deletes=deletes)

    def _drawn_merge(
        self, number: int, own: Mapping[int, Row]
    ) -> tuple[list[Row], dict[int, Row], list[int]]:
        draw = self._draw(number)
        updates: dict[int, Row] = {}
        deletes: list[int] = []
        for identity, row in own.items():
            dice = draw.random()
            if dice < 0.2:
                deletes.append(identity)
            elif dice < 0.35:
                updates[identity] = row
            elif dice < 0.6:
                updates[identity] = self._row(draw, number, row[1])
        if draw.random() < 0.3:
            # All that stay get other keys, at once: changes, swaps, rings.
            stay = [identity for identity in own if identity not in deletes]
            keys = draw.sample(range(IDS), len(stay))
            for identity, key in zip(stay, keys, strict=True):
                row = updates.get(identity, own[identity])
                if key != row[1]:
                    updates[identity] = (number, key, *row[2:])
        after = {
            row[1] for identity, row in own.items() if identity not in deletes and identity not in updates
        }
        after |= {row[1] for row in updates.values()}
        # A key that a delete or a move has left free may be taken again in the same statement; but not by an
        # equal row, which the feed tells and row ids don't.
        inserts = [
            self._row(draw, number, key) for key in range(IDS) if key not in after and draw.random() < 0.2
        ]
        gone = {own[identity] for identity in deletes}
        return [row for row in inserts if row not in gone], updates, deletes

    # -- statements that exchange rows ----------------------------------------------------------
    def _drawn_exchange(self, number: int, old: Iterable[Row], taken: set[int]) -> list[Row]:
        """Draw the rows that come for ``old``: many as they were."""
        draw = self._draw(number)
        rows: dict[int, Row] = {}
        for row in old:
            dice = draw.random()
            if dice < 0.5:
                rows[row[1]] = row
            elif dice < 0.75:
                rows[row[1]] = self._row(draw, number, row[1])
        for key in range(IDS):
            if key not in taken and key not in rows and draw.random() < 0.25:
                rows[key] = self._row(draw, number, key)
        return list(rows.values())

    def _overwrite(self) -> None:
        rows = [
            row
            for number, own in self._by_number().items()
            for row in self._drawn_exchange(number, own.values(), set())
        ]
        self._frame(rows).write.format("delta").mode("overwrite").save(self.path)
        self.model.exchange(self.model.rows, rows)

    def _replace_where(self) -> None:
        """Replace every third history, by a condition on a column of the data."""
        gone, rows = [], []
        for number, own in self._by_number().items():
            if number % 3 == 1:
                gone += list(own)
                rows += self._drawn_exchange(number, own.values(), set())
        writer = self._frame(rows).write.format("delta").mode("overwrite")
        writer.option("replaceWhere", "history % 3 = 1").save(self.path)
        self.model.exchange(gone, rows, "REPLACE WHERE")

    def _replace_partition(self) -> None:
        """Replace the rows with u = 1: one partition, where the table is partitioned by u."""
        gone, rows = [], []
        for number, own in self._by_number().items():
            old = {i: row for i, row in own.items() if row[3] == 1}
            gone += list(old)
            taken = {row[1] for i, row in own.items() if i not in old}
            came = self._drawn_exchange(number, old.values(), taken)
            rows += [(*row[:3], 1, *row[4:]) for row in came]
        writer = self._frame(rows).write.format("delta").mode("overwrite")
        writer.option("replaceWhere", "u = 1").save(self.path)
        self.model.exchange(gone, rows, "REPLACE WHERE")

    def _restore(self) -> None:
        """Go back to one of the last versions that has the columns of now; its properties come back too."""
        now = self.model.newest
        able = [
            v for v in range(max(0, now - 4), now) if self.model.versions[v].columns == self.model.columns
        ]
        back = random.Random(f"{self.seed} restore {self.steps}").choice(able or [now])
        self.spark.sql(f"RESTORE TABLE {self.name} TO VERSION AS OF {back}")
        self.model.restore(back)
        self.feed[-1] = self.feed[back]

    # -- statements that change no rows ---------------------------------------------------------
    def _optimize(self) -> None:
        self.spark.sql(f"OPTIMIZE {self.name}")
        self.model.nothing()

    def _purge(self) -> None:
        self.spark.sql(f"REORG TABLE {self.name} APPLY (PURGE)")
        self.model.nothing("REORG")

    def _property(self) -> None:
        self.spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('team.owner' = 'nobody {len(self.log)}')")
        self.model.nothing("SET TBLPROPERTIES")

    def _vectors(self) -> None:
        """Turn deletion vectors on or off; those that are there stay."""
        value = random.Random(f"{self.seed} vectors {self.steps}").choice(["true", "false"])
        self.spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('{VECTORS}' = '{value}')")
        self.model.nothing("SET TBLPROPERTIES")

    def _feed_off(self) -> None:
        self.spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('{FEED}' = 'false')")
        self.model.nothing("SET TBLPROPERTIES")

    def _feed_on(self) -> None:
        self.spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('{FEED}' = 'true')")
        self.model.nothing("SET TBLPROPERTIES")

    def _add_column(self) -> None:
        self.spark.sql(f"ALTER TABLE {self.name} ADD COLUMN (w INT)")
        self.model.add_column("w")


#: Statements, and how often they are drawn.
_WEIGHTS = {
    "merge": 5,
    "insert": 2,
    "update": 2,
    "update_number": 1,
    "update_nothing": 1,
    "move": 1,
    "delete": 2,
    "delete_by_number": 1,
    "overwrite": 1,
    "replace_where": 1,
    "replace_partition": 1,
    "restore": 1,
    "optimize": 1,
    "purge": 1,
    "property": 0.5,
    "vectors": 1,
    "truncate": 0.3,
}


def drawn_steps(seed: int, length: int, *, hole: bool = False, column: bool = False) -> list[str]:
    """Draw the statements of a table.

    :param hole: turn the change feed off and on again in the middle
    :param column: add a column somewhere
    """
    draw = random.Random(f"{seed} steps")
    steps = draw.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=length)
    if column:
        steps.insert(draw.randint(1, length - 1), "add_column")
    if hole:
        starting = draw.randint(1, length // 2)
        steps.insert(starting, "feed_off")
        steps.insert(draw.randint(starting + 2, starting + 4), "feed_on")
    return steps
