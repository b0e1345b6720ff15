"""What a target must hold after a set of events, in plain Python: the judge of the events path.

A model, not an engine: it knows no log, no batch and no target. Events that share key and sequence are
settled into one, a key's events are told in the order of their sequence, and the rows are read off that.

A value column is a leaf or a struct of leaves; arrays and maps are leaves. Structs go in as mappings and come
out as tuples, in the order of their fields; a struct whose leaves are all null is null.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from tests.support.oracle import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Key = tuple[Any, ...]
#: Where a leaf lies: its column, then field by field.
Path = tuple[str, ...]
#: What a version of a row holds, by leaf; None is no row.
State = dict[Path, Any] | None

START, END, DELETED = "__START_AT", "__END_AT", "_deleted"


class Tied(AssertionError):
    """Events of one key and sequence contradict each other."""


class Unknown(AssertionError):
    """An event says that it carries a column that there is not."""


@dataclass(frozen=True)
class Event:
    """One event.

    :param key: empty for a truncate; a None in it makes the event invalid
    :param sequence: anything with an order, a tuple where ``sequence_by`` is a list; None is invalid
    :param values: by column; what is left out is null
    :param columns: what ``columns_to_update`` holds; None is all columns
    :param order: what the columns of ``last_by`` hold
    """

    key: Key
    sequence: Any
    kind: Literal["upsert", "delete", "truncate"] = "upsert"
    values: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None
    order: tuple[Any, ...] = ()

    @property
    def is_valid(self) -> bool:
        return self.sequence is not None and None not in self.key


@dataclass(frozen=True)
class Rules:
    """The options that decide about rows, named as the arguments of ``apply_changes``.

    :param columns: the columns that land, without keys: of a struct its fields, else None
    :param tracked: columns whose changes make a new version; None is all
    """

    keys: tuple[str, ...]
    columns: Mapping[str, Any]
    tracked: tuple[str, ...] | None = None
    ignore_null_updates: bool = False
    ignore_null_updates_column_list: tuple[str, ...] | None = None
    ignore_null_updates_except_column_list: tuple[str, ...] | None = None
    columns_to_update: bool = False
    on_conflict: Literal["fail", "last_by", "quarantine"] = "fail"

    @cached_property
    def leaves(self) -> tuple[Path, ...]:
        return tuple(path for name, shape in self.columns.items() for path in _paths((name,), shape))

    @cached_property
    def null_keeps(self) -> frozenset[Path]:
        """Return the leaves in which a null of an upsert says nothing."""
        if self.ignore_null_updates:
            return frozenset(self.leaves)
        if self.ignore_null_updates_column_list is not None:
            return self.named(self.ignore_null_updates_column_list)
        if self.ignore_null_updates_except_column_list is not None:
            return frozenset(self.leaves) - self.named(self.ignore_null_updates_except_column_list)
        return frozenset()

    def named(self, names: Iterable[str]) -> frozenset[Path]:
        """Return the leaves of columns, fields or leaves, whose names have no case.

        :raises Unknown: for a name that is none
        """
        found: set[Path] = set()
        for name in names:
            wanted = tuple(name.lower().split("."))
            leaves = {p for p in self.leaves if tuple(map(str.lower, p))[: len(wanted)] == wanted}
            if not leaves and name.lower() not in map(str.lower, self.keys):
                raise Unknown(name)
            found |= leaves
        return frozenset(found)

    def authored(self, event: Event) -> dict[Path, Any]:
        """Return what an upsert says, leaf by leaf; what it does not carry is left out."""
        said = {path: _at(event.values, path) for path in self.leaves}
        if self.columns_to_update and event.columns is not None:
            carried = self.named(event.columns)
            said = {path: value for path, value in said.items() if path in carried}
        return {p: value for p, value in said.items() if value is not None or p not in self.null_keeps}

    def shown(self, state: dict[Path, Any]) -> dict[str, Any]:
        """Return a state as the values of columns."""
        return {name: _shaped(state, (name,), shape) for name, shape in self.columns.items()}

    def same(self, one: dict[Path, Any], other: dict[Path, Any], columns: Iterable[str]) -> bool:
        """Return whether two states are equal in some columns; null equals null."""
        wanted = set(columns)
        return all(plain(one[path]) == plain(other[path]) for path in self.leaves if path[0] in wanted)


def _paths(path: Path, shape: Any) -> Iterator[Path]:
    if shape is None:
        yield path
        return
    for name, inner in shape.items():
        yield from _paths((*path, name), inner)


def _at(values: Any, path: Path) -> Any:
    for name in path:
        if values is None:
            return None
        values = values.get(name)
    return values


def _shaped(state: dict[Path, Any], path: Path, shape: Any) -> Any:
    if shape is None:
        return state[path]
    fields = tuple(_shaped(state, (*path, name), inner) for name, inner in shape.items())
    return None if all(value is None for value in fields) else fields


# -- events of one key and sequence -------------------------------------------------------------
@dataclass(frozen=True)
class Told:
    """What a key's events at one sequence come to: leaves that an upsert says, or None for a delete."""

    sequence: Any
    said: dict[Path, Any] | None


def _merged(upserts: Sequence[Event], rules: Rules) -> dict[Path, Any] | None:
    """Return upserts as one, or None where two of them carry a leaf and differ in it."""
    said: dict[Path, Any] = {}
    for event in upserts:
        for path, value in rules.authored(event).items():
            if path in said and plain(said[path]) != plain(value):
                return None
            said[path] = value
    return said


def _rank(event: Event) -> tuple[tuple[bool, Any], ...]:
    return tuple((value is not None, value) for value in event.order)


def settled(group: Sequence[Event], rules: Rules) -> Told | None:
    """Return what events of one key and sequence come to; None where they are taken out.

    :raises Tied: where the rules don't settle it
    """
    sequence = group[0].sequence
    deletes = [event for event in group if event.kind == "delete"]
    if deletes and (len(deletes) == len(group) or rules.on_conflict != "last_by"):
        return Told(sequence, None)
    if not deletes:
        said = _merged(group, rules)
        if said is not None:
            return Told(sequence, said)
    if rules.on_conflict == "quarantine":
        return None
    if rules.on_conflict == "last_by":
        last = [event for event in group if _rank(event) == max(map(_rank, group))]
        if any(event.kind == "delete" for event in last):
            return Told(sequence, None)
        said = _merged(last, rules)
        if said is not None:
            return Told(sequence, said)
    raise Tied(f"key {group[0].key} at {sequence}: {list(group)}")


def _groups(events: Iterable[Event]) -> dict[Key, dict[Any, list[Event]]]:
    found: dict[Key, dict[Any, list[Event]]] = {}
    for event in events:
        if event.kind != "truncate" and event.is_valid:
            found.setdefault(event.key, {}).setdefault(event.sequence, []).append(event)
    return found


def taken_out(events: Sequence[Event], rules: Rules) -> list[Event]:
    """Return the events that belong into quarantine: without key or sequence, and tied."""
    out = [e for e in events if e.sequence is None or (e.kind != "truncate" and not e.is_valid)]
    for by_sequence in _groups(events).values():
        for group in by_sequence.values():
            if settled(group, rules) is None:
                out += group
    return out


# -- the events of one key, in order ------------------------------------------------------------
@dataclass(frozen=True)
class Version:
    """A key from a sequence on; no state is no row."""

    sequence: Any
    state: State


def versions(events: Sequence[Event], rules: Rules) -> dict[Key, list[Version]]:
    """Return what every key went through: a version for every event that concerns it."""
    cuts = {event.sequence for event in events if event.kind == "truncate" and event.is_valid}
    return {key: _told(list(groups.values()), cuts, rules) for key, groups in _groups(events).items()}


def _told(groups: Sequence[Sequence[Event]], cuts: Iterable[Any], rules: Rules) -> list[Version]:
    # A truncate comes before the upsert of its own sequence.
    steps: list[tuple[Any, int, Told]] = [(cut, 0, Told(cut, None)) for cut in cuts]
    for group in groups:
        told = settled(group, rules)
        if told is not None:
            steps.append((told.sequence, 1, told))
    state: State = None
    walked: list[Version] = []
    for sequence, _, told in sorted(steps, key=lambda step: step[:2]):
        if told.said is None:
            state = None
        else:
            before = state or dict.fromkeys(rules.leaves)
            state = {**before, **told.said}
        walked.append(Version(sequence, state))
    return walked


# -- rows ---------------------------------------------------------------------------------------
Row = dict[str, Any]


def _row(rules: Rules, key: Key, state: dict[Path, Any], **more: Any) -> Row:
    return {**dict(zip(rules.keys, key, strict=True)), **rules.shown(state), **more}


def type_1(events: Sequence[Event], rules: Rules) -> list[Row]:
    """Return the rows of a type 1 target."""
    last = {key: walked[-1].state for key, walked in versions(events, rules).items() if walked}
    return [_row(rules, key, state) for key, state in last.items() if state is not None]


def type_1_soft(events: Sequence[Event], rules: Rules) -> list[Row]:
    """Return the rows of a type 1 target that keeps deleted rows, with their last values."""
    rows = []
    for key, walked in versions(events, rules).items():
        alive = [version.state for version in walked if version.state is not None]
        if alive:
            rows.append(_row(rules, key, alive[-1], **{DELETED: walked[-1].state is None}))
    return rows


def type_2(events: Sequence[Event], rules: Rules, *, start: str = START, end: str = END) -> list[Row]:
    """Return the rows of a type 2 target."""
    tracked = tuple(rules.columns) if rules.tracked is None else rules.tracked
    rows: list[Row] = []
    for key, walked in versions(events, rules).items():
        for first, last, ended in _runs(walked, tracked, rules):
            assert last.state is not None
            rows.append(_row(rules, key, last.state, **{start: first.sequence, end: ended}))
    return rows


def _runs(
    walked: Sequence[Version], tracked: Sequence[str], rules: Rules
) -> Iterator[tuple[Version, Version, Any]]:
    """Yield first and last version of every run, and the sequence that ends it."""
    first: Version | None = None
    for version, following in pairwise([*walked, None]):
        assert version is not None
        if version.state is None:
            continue
        first = first or version
        goes_on = (
            following is not None
            and following.state is not None
            and rules.same(version.state, following.state, tracked)
        )
        if not goes_on:
            yield first, version, None if following is None else following.sequence
            first = None


# -- what holds of every history ----------------------------------------------------------------
def faults(rows: Sequence[Row], keys: Sequence[str], *, start: str = START, end: str = END) -> list[str]:
    """Return what is wrong with the rows of a type 2 target, whatever events led to it.

    Of a key at most one row is open; a row starts before it ends; no two rows share a moment.
    """
    by_key: dict[Key, list[Row]] = {}
    for row in rows:
        by_key.setdefault(tuple(row[name] for name in keys), []).append(row)
    found = []
    for key, history in by_key.items():
        if sum(row[end] is None for row in history) > 1:
            found.append(f"{key} has more than one open row")
        found += [
            f"{key} has a row from {row[start]} to {row[end]}"
            for row in history
            if row[start] is None or (row[end] is not None and not row[start] < row[end])
        ]
        ordered = sorted((row for row in history if row[start] is not None), key=lambda row: row[start])
        for one, other in pairwise(ordered):
            if one[end] is None or one[end] > other[start]:
                found.append(f"{key} has two rows at {other[start]}")
    return found


def opened(rows: Sequence[Row], *, start: str = START, end: str = END) -> list[Row]:
    """Return the open rows of a history as those of a type 1 target."""
    return [{k: v for k, v in row.items() if k not in (start, end)} for row in rows if row[end] is None]


def alive(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of a soft type 1 target that are not deleted, as those of a hard one."""
    return [{k: v for k, v in row.items() if k != DELETED} for row in rows if not row[DELETED]]
