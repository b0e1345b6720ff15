"""A table with a change feed, many key spaces side by side, and the target that must come of it.

The source is played twice: by statements in Spark, and on rows that are dicts. The target goes forward from
version to version, as a clerk with a card for each key would; it knows no range, no net change and no plan.
"""

from __future__ import annotations

import random
from collections import defaultdict
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.engine import newest
from tests.support.oracle import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import SparkSession

Row = dict[str, Any]
Key = tuple[int, int]
State = dict[Key, Row]

KEYS = ("space", "id")
#: Keys of a space; few, so that keys come back.
IDS = 5
START, END, DELETED = "__START_AT", "__END_AT", "_deleted"
WIDER = {"INT": "BIGINT", "FLOAT": "DOUBLE"}
_VALUES: dict[str, tuple[Any, ...]] = {
    "STRING": ("a", "b", "", None),
    "INT": (0, 1, None),
    "BIGINT": (0, 3_000_000_000, None),
    "FLOAT": (0.5, 0.0, -0.0, float("nan"), None),
    "DOUBLE": (0.5, 0.0, float("nan"), None),
}
#: What a policy of schema changes follows, the least first.
POLICIES = ("additive", "widen", "keep_dropped", "mirror")
_NEEDS = {"add": 0, "widen": 1, "drop": 2, "rename": 3}

#: Statements of the source, and how often they are drawn.
STEPS = {
    "merge": 6,
    "insert": 2,
    "update": 2,
    "delete": 2,
    "overwrite": 0.7,
    "truncate": 0.3,
    "optimize": 1,
    "restore": 1,
    "add": 0.7,
    "widen": 0.5,
    "drop": 0.4,
    "rename": 0.4,
}


@dataclass(frozen=True)
class Options:
    """What is drawn of an apply, for the engine and for the target here.

    :param arguments: of ``apply_changes``, without groups
    :param shown: returns a source's row as the target is to have it; None where it does not count
    :param tracked: columns whose changes make a new version; None is all
    :param broken: returns whether a rule takes the row out
    """

    scd: int
    arguments: dict[str, Any]
    policy: str
    soft: bool = False
    keeps_null: bool = False
    follows_names: bool = True
    tracked: tuple[str, ...] | None = None
    shown: Callable[[Row], Row | None] = lambda row: row
    broken: Callable[[Row], bool] = lambda row: False


def drawn_options(draw: random.Random) -> Options:
    """Draw how a feed is applied."""
    scd, policy = draw.choice([1, 2]), draw.choice(POLICIES)
    given: dict[str, Any] = {"source_kind": "change_feed", "keys": list(KEYS), "stored_as_scd_type": scd}
    given["target_properties"] = {"delta.columnMapping.mode": "name"}
    if draw.random() < 0.3:
        given["versions_per_commit"] = draw.randint(1, 3)
    more: dict[str, Any] = {}
    if scd == 1 and draw.random() < 0.4:
        given["delete_mode"], more["soft"] = "soft", True
    variant = draw.choice(["plain", "plain", "plain", "where", "select", "rule", "nulls", "tracked"])
    if variant == "where":
        given["where"] = "n IS NULL OR n <> 1"
        more["shown"] = lambda row: row if row["n"] != 1 else None
    elif variant == "select":
        given["select"] = ["*", "upper(v) AS w"]
        more["shown"] = lambda row: {**row, "w": None if row["v"] is None else row["v"].upper()}
    elif variant == "rule":
        given["rules"] = {"known": {"check": "v IS NULL OR v <> 'b'", "on_break": "quarantine"}}
        more["broken"] = lambda row: row["v"] == "b"
    elif variant == "nulls":
        given["ignore_null_updates"] = more["keeps_null"] = True
    elif variant == "tracked" and scd == 2:
        given["track_history_column_list"], more["tracked"] = ["v"], ("v",)
    return Options(scd, given, policy, follows_names=variant == "plain", **more)


@dataclass
class Source:
    """A table and its rows by version.

    :param changes: of columns, by version: kind, name and new name
    :param types: of the value columns, by version
    :param without_rows: versions that change no rows
    """

    spark: SparkSession
    path: str
    seed: int
    spaces: Sequence[int]
    options: Options
    states: list[State] = field(default_factory=list)
    types: list[dict[str, str]] = field(default_factory=list)
    changes: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    without_rows: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        return f"delta.`{self.path}`"

    @property
    def newest(self) -> int:
        return len(self.states) - 1

    def create(self) -> None:
        draw = random.Random(f"{self.seed} create")
        tracks = draw.random() < 0.3
        properties = {
            "delta.enableChangeDataFeed": "true",
            "delta.columnMapping.mode": "name",
            "delta.enableTypeWidening": "true",
            "delta.enableDeletionVectors": draw.choice(["true", "true", "false"]),
            "delta.enableRowTracking": str(tracks).lower(),
        }
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        self.spark.sql(
            f"CREATE TABLE {self.name} (space INT, id INT, v STRING, n INT, r FLOAT) USING delta "
            f"TBLPROPERTIES ({listed})"
        )
        self.types.append({"v": "STRING", "n": "INT", "r": "FLOAT"})
        self.states.append({})
        self.step("insert", 0)

    def step(self, name: str, number: int) -> None:
        """Carry a statement out; one that would have nothing to do is left out."""
        types, before = self.types[-1], self.states[-1]
        after = getattr(self, f"_{name}")(number, before, dict(types))
        if after is None:
            return
        state, kinds, change = after
        if newest(self.path) == self.newest:
            assert state == before, f"{name} made no version"
            return
        self.states.append(state)
        self.types.append(kinds)
        if change is not None:
            self.changes[self.newest] = change
        if change is not None or name == "optimize":
            self.without_rows.add(self.newest)
        assert newest(self.path) == self.newest, f"{name} made version {newest(self.path)}"

    def refusals(self, first: int, end: int, policy: str) -> list[int]:
        """Return the versions of a range whose changes of columns a policy does not follow."""
        level = POLICIES.index(policy)
        return [v for v, (kind, *_) in self.changes.items() if first <= v <= end and _NEEDS[kind] > level]

    def is_idle(self, first: int, end: int) -> bool:
        """Return whether a range changes no rows: then a run has nothing to do, and refuses nothing."""
        return self.without_rows.issuperset(range(first, end + 1))

    def needed(self, first: int, end: int, policy: str) -> str:
        """Return the least policy that follows all changes of a range, at least ``policy``."""
        levels = [_NEEDS[kind] for v, (kind, *_) in self.changes.items() if first <= v <= end]
        return POLICIES[max([POLICIES.index(policy), *levels])]

    def misfits(self, first: int, end: int) -> bool:
        """Return whether the range has what no policy allows."""
        return False

    # -- statements -------------------------------------------------------------------------------
    def _drawn(self, space: int, number: int) -> random.Random:
        return random.Random(f"{self.seed} {number} {space}")

    def _row(self, draw: random.Random, key: Key, types: dict[str, str]) -> Row:
        return {**dict(zip(KEYS, key, strict=True)), **{c: draw.choice(_VALUES[t]) for c, t in types.items()}}

    def _frame(self, rows: Iterable[Row], types: dict[str, str], name: str, more: str = "") -> Any:
        ddl = ", ".join(["space INT", "id INT", *(f"`{c}` {t}" for c, t in types.items())])
        columns = [*KEYS, *types, *([more.split()[0], "op"] if more else [])]
        listed = [tuple(row.get(column) for column in columns) for row in rows]
        frame = self.spark.createDataFrame(listed, ddl + (f", {more}, op STRING" if more else "")).coalesce(1)
        frame.createOrReplaceTempView(name)
        return frame

    def _insert(self, number: int, before: State, types: dict[str, str]) -> Any:
        rows = {}
        for space in self.spaces:
            draw = self._drawn(space, number)
            for id_ in range(IDS):
                if (space, id_) not in before and draw.random() < 0.4:
                    rows[space, id_] = self._row(draw, (space, id_), types)
        self._frame(rows.values(), types, "rows_").write.format("delta").mode("append").save(self.path)
        return {**before, **rows}, types, None

    def _merge(self, number: int, before: State, types: dict[str, str]) -> Any:
        """Insert, update (also to what is there), delete, and change keys: to free ones, swaps, rings."""
        ops: list[Row] = []
        after = dict(before)
        for space in self.spaces:
            draw = self._drawn(space, number)
            own = [(space, id_) for id_ in range(IDS) if (space, id_) in before]
            gone = [key for key in own if draw.random() < 0.2]
            stay = [key for key in own if key not in gone]
            moves = draw.random() < 0.25
            places = draw.sample(range(IDS), len(stay)) if moves else [id_ for _, id_ in stay]
            for key in own:
                after.pop(key)
            ops += [{**before[key], "at": key[1], "op": "delete"} for key in gone]
            for key, place in zip(stay, places, strict=True):
                row = before[key]
                touched = draw.random() < 0.5
                if touched:
                    row = draw.choice([row, self._row(draw, key, types), self._row(draw, key, types)])
                row = {**row, "id": place}
                after[space, place] = row
                if touched or place != key[1]:
                    ops.append({**row, "at": key[1], "op": "update"})
            for id_ in range(IDS):
                if (space, id_) not in after and draw.random() < 0.2:
                    after[space, id_] = self._row(draw, (space, id_), types)
                    ops.append({**after[space, id_], "at": id_, "op": "insert"})
        self._frame(ops, types, "ops", "at INT")
        columns = [*KEYS, *(f"`{name}`" for name in types)]
        self.spark.sql(
            f"MERGE INTO {self.name} t USING ops s ON t.space = s.space AND t.id = s.at AND s.op <> 'insert' "
            "WHEN MATCHED AND s.op = 'delete' THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{c} = s.{c}' for c in columns)} "
            f"WHEN NOT MATCHED THEN INSERT ({', '.join(columns)}) "
            f"VALUES ({', '.join(f's.{c}' for c in columns)})"
        )
        return after, types, None

    def _chosen(self, number: int) -> tuple[str, Callable[[Key], bool]]:
        """Choose rows by arithmetic, other ones in each space: as SQL, and in Python."""
        draw = random.Random(f"{self.seed} {number} chosen")
        a, b, c, modulus = (
            draw.randrange(1, 97),
            draw.randrange(1, 89),
            draw.randrange(7),
            draw.choice([3, 5, 7]),
        )
        sql = f"(space * space * {a} + id * {b} + space + {c}) % {modulus} = 0"
        return sql, lambda key: (key[0] ** 2 * a + key[1] * b + key[0] + c) % modulus == 0

    def _update(self, number: int, before: State, types: dict[str, str]) -> Any:
        draw = random.Random(f"{self.seed} {number} update")
        where, chosen = self._chosen(number)
        column = draw.choice(list(types))
        value = draw.choice(_VALUES[types[column]])
        text = "NULL" if value is None else "double('NaN')" if value != value else repr(value)
        self.spark.sql(f"UPDATE {self.name} SET `{column}` = {text} WHERE {where}")
        return {k: {**row, column: value} if chosen(k) else row for k, row in before.items()}, types, None

    def _delete(self, number: int, before: State, types: dict[str, str]) -> Any:
        where, chosen = self._chosen(number)
        self.spark.sql(f"DELETE FROM {self.name} WHERE {where}")
        return {key: row for key, row in before.items() if not chosen(key)}, types, None

    def _overwrite(self, number: int, before: State, types: dict[str, str]) -> Any:
        after = {}
        for space in self.spaces:
            draw = self._drawn(space, number)
            for id_ in range(IDS):
                key = (space, id_)
                dice = draw.random()
                if key in before and dice < 0.5:
                    after[key] = before[key]
                elif dice < 0.7:
                    after[key] = self._row(draw, key, types)
        self._frame(after.values(), types, "rows_").write.format("delta").mode("overwrite").save(self.path)
        return after, types, None

    def _truncate(self, number: int, before: State, types: dict[str, str]) -> Any:
        self.spark.sql(f"DELETE FROM {self.name}")
        return {}, types, None

    def _optimize(self, number: int, before: State, types: dict[str, str]) -> Any:
        self.spark.sql(f"OPTIMIZE {self.name}")
        return before, types, None

    def _restore(self, number: int, before: State, types: dict[str, str]) -> Any:
        """Go back to a version with the columns of now."""
        floor = max(self.changes, default=0)
        able = range(floor, self.newest)
        if not able:
            return None
        back = random.Random(f"{self.seed} {number} restore").choice(able)
        self.spark.sql(f"RESTORE TABLE {self.name} TO VERSION AS OF {back}").collect()
        return self.states[back], types, None

    def _add(self, number: int, before: State, types: dict[str, str]) -> Any:
        kind = random.Random(f"{self.seed} {number} add").choice(list(_VALUES))
        name = f"c{number}"
        self.spark.sql(f"ALTER TABLE {self.name} ADD COLUMN {name} {kind}")
        return {k: {**row, name: None} for k, row in before.items()}, {**types, name: kind}, ("add", name, "")

    def _widen(self, number: int, before: State, types: dict[str, str]) -> Any:
        able = [name for name, kind in types.items() if kind in WIDER]
        if not able:
            return None
        name = random.Random(f"{self.seed} {number} widen").choice(able)
        kind = WIDER[types[name]]
        self.spark.sql(f"ALTER TABLE {self.name} ALTER COLUMN {name} TYPE {kind}")
        return before, {**types, name: kind}, ("widen", name, "")

    def _drop(self, number: int, before: State, types: dict[str, str]) -> Any:
        if not self.options.follows_names or len(types) < 2:
            return None
        name = random.Random(f"{self.seed} {number} drop").choice(list(types))
        self.spark.sql(f"ALTER TABLE {self.name} DROP COLUMN {name}")
        rows = {k: {n: value for n, value in row.items() if n != name} for k, row in before.items()}
        return rows, {n: kind for n, kind in types.items() if n != name}, ("drop", name, "")

    def _rename(self, number: int, before: State, types: dict[str, str]) -> Any:
        if not self.options.follows_names:
            return None
        draw = random.Random(f"{self.seed} {number} rename")
        name, new = draw.choice(list(types)), f"c{number}"
        self.spark.sql(f"ALTER TABLE {self.name} RENAME COLUMN {name} TO {new}")
        rows = {k: renamed(row, name, new) for k, row in before.items()}
        return rows, {new if n == name else n: kind for n, kind in types.items()}, ("rename", name, new)


def renamed(row: Row, name: str, new: str) -> Row:
    """Return a row with another name for a column."""
    return {new if n == name else n: value for n, value in row.items()}


@dataclass
class Target:
    """What a target must hold.

    :param rows: by key: of a history all, the open one last
    :param seen: what of the source counted as of the watermark
    :param kept: columns that the source dropped, and that stay
    :param floor: the last version that a repair of a history must not begin at
    :param orphans: always empty: a feed has the state of each key
    """

    source: Source
    watermark: int = -1
    rows: dict[Key, tuple[Row, ...]] = field(default_factory=dict)
    seen: State = field(default_factory=dict)
    orphans: dict[int, list[Row]] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    floor: int = 0

    @property
    def options(self) -> Options:
        return self.source.options

    @property
    def columns(self) -> tuple[str, ...]:
        more = ("w",) if "select" in self.options.arguments else ()
        marks = (START, END) if self.options.scd == 2 else (DELETED,) if self.options.soft else ()
        return (*KEYS, *self.source.types[self.watermark], *more, *self.kept, *marks)

    def copied(self) -> Target:
        """Return it as it is now; rows are never changed in place."""
        other = copy(self)
        other.rows, other.seen = dict(self.rows), dict(self.seen)
        return other

    # -- steps ------------------------------------------------------------------------------------
    def load(self, version: int) -> None:
        """Begin with a snapshot."""
        self.rows, self.seen, self.kept = {}, {}, ()
        self._look(version)
        self.floor = version

    reset = load

    def advance(self, end: int, policy: str) -> None:
        """Apply the versions up to one, one after the other."""
        for version in range(self.watermark + 1, end + 1):
            self._alter(version, policy)
            self._look(version)

    def reload(self, end: int, policy: str) -> None:
        """Look at one version only."""
        for version in range(self.watermark + 1, end + 1):
            self._alter(version, policy)
        self._look(end)
        self.floor = end

    def emptied(self) -> None:
        """Lose all rows."""
        self.rows, self.seen = {}, {}

    # -- rows -------------------------------------------------------------------------------------
    def _alter(self, version: int, policy: str) -> None:
        kind, name, new = self.source.changes.get(version, ("", "", ""))
        if not kind:
            return
        self.floor = version
        if kind == "rename":
            self.rows = {k: tuple(renamed(row, name, new) for row in rows) for k, rows in self.rows.items()}
            self.seen = {k: renamed(row, name, new) for k, row in self.seen.items()}
        elif kind == "drop":
            self.seen = {k: _without(row, name) for k, row in self.seen.items()}
            if policy == "mirror":
                self.rows = {k: tuple(_without(row, name) for row in rows) for k, rows in self.rows.items()}
            else:
                self.kept = (*self.kept, name)

    def _look(self, version: int) -> None:
        self.watermark = version
        names = [*KEYS, *self.source.types[version]]
        state: State = {}
        for key, row in self.source.states[version].items():
            shown = self.options.shown({name: row.get(name) for name in names})
            if shown is not None:
                state[key] = shown
        for key in [key for key in self.seen if key not in state]:
            self._ended(key, version)
        for key, row in state.items():
            if key not in self.seen or not _same(self.seen[key], row, row):
                self._written(key, row, version)
        self.seen = state

    def _ended(self, key: Key, version: int) -> None:
        *closed, row = self.rows.get(key, ()) or (None,)
        if row is None or row.get(END) is not None or row.get(DELETED):
            return
        if self.options.soft:
            self.rows[key] = ({**row, DELETED: True},)
        elif self.options.scd == 1:
            del self.rows[key]
        else:
            self.rows[key] = (*closed, {**row, END: version})

    def _written(self, key: Key, row: Row, version: int) -> None:
        if self.options.broken(row):
            return
        *closed, old = self.rows.get(key, ()) or (None,)
        if old is not None and (old.get(END) is not None or old.get(DELETED)):
            closed, old = ([*closed, old] if self.options.scd == 2 else []), None
        if old is not None and self.options.keeps_null:
            row = {name: old.get(name) if value is None else value for name, value in row.items()}
        if self.options.scd == 1:
            self.rows[key] = ({**(old or {}), **row, DELETED: False},)
            return
        tracked = self.options.tracked or list(row)
        if old is not None and _same(old, row, tracked):
            self.rows[key] = (*closed, {**old, **row})
            return
        ended = [*closed, {**old, END: version}] if old is not None else closed
        self.rows[key] = (*ended, {**row, START: version, END: None})

    def by_space(self) -> dict[int, list[Row]]:
        """Return the rows of each key space."""
        found: dict[int, list[Row]] = defaultdict(list)
        for (space, _), rows in self.rows.items():
            found[space] += rows
        return found


def _same(one: Row, other: Row, names: Iterable[str]) -> bool:
    return all(plain(one.get(name)) == plain(other.get(name)) for name in names)


def _without(row: Row, name: str) -> Row:
    return {n: value for n, value in row.items() if n != name}
