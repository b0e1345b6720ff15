"""What the change queries must answer, from a table that is a Python dictionary.

Nothing here knows Spark, the log or the engine: a version is a set of rows, each with an identity of its own
(as a row id is in Delta) and the version that changed it last. Statements turn one version into the next, and
the answers are read off the versions, straight from the definitions in docs/explanation/change-queries.md.

A statement is told in one of two ways. DELETE, UPDATE, MERGE and INSERT say what they did to which row. An
overwrite and a RESTORE exchange rows wholesale: what they changed is the difference of two bags of rows, so
that a row which left and came back unchanged is no change.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

Row = tuple[Any, ...]
#: Change type, version (None where it is left out) and the row.
ChangeRow = tuple[str, int | None, Row]

Telling = Literal["feed", "row id"]

BEFORE = ("delete", "update_preimage")
AFTER = ("insert", "update_postimage")


@dataclass(frozen=True)
class Kept:
    """A row as a version holds it.

    :param changed: the version that inserted or updated it
    """

    row: Row
    changed: int


@dataclass(frozen=True)
class Change:
    """What a statement did to one row."""

    before: Row | None
    after: Row | None

    def seen(self, view: Callable[[Row], Row | None]) -> Change:
        """Return the change without the states that a view does not show."""
        before, after = (
            None if row is None or view(row) is None else row for row in (self.before, self.after)
        )
        return Change(before, after)

    @property
    def wide(self) -> tuple[str, Row | None, Row | None]:
        """Return the change as one row: its kind and both states."""
        kind = "insert" if self.before is None else "delete" if self.after is None else "update"
        return kind, self.before, self.after

    def rows(self, version: int) -> list[ChangeRow]:
        """Return the change as the rows that tell it; none without a state."""
        if self.before is None and self.after is None:
            return []
        if self.before is None or self.after is None:
            kind, row = ("delete", self.before) if self.after is None else ("insert", self.after)
            assert row is not None
            return [(kind, version, row)]
        return [("update_preimage", version, self.before), ("update_postimage", version, self.after)]


@dataclass(frozen=True)
class Version:
    """One version of the table.

    :param rows: identity -> row
    :param changes: what the statement said it did, row by row; empty for an exchange
    :param exchanged: identities that left and came, for a statement that exchanges rows
    """

    columns: tuple[str, ...]
    rows: Mapping[int, Kept]
    statement: str
    changes: tuple[Change, ...] = ()
    exchanged: tuple[frozenset[int], frozenset[int]] | None = None

    @property
    def restored(self) -> bool:
        return self.statement == "RESTORE"


@dataclass
class Table:
    """A table from its first version on; a version is what one statement left."""

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    versions: list[Version] = field(default_factory=list)
    _fresh: int = 0

    @property
    def newest(self) -> int:
        return len(self.versions) - 1

    @property
    def rows(self) -> dict[int, Kept]:
        """Return the rows of the newest version, by identity."""
        return dict(self.versions[-1].rows) if self.versions else {}

    @property
    def is_idle(self) -> bool:
        """Return whether the newest version left the rows and columns as they were."""
        last, before = self.versions[-1], self.versions[-2]
        return (last.rows, last.columns) == (before.rows, before.columns)

    def _commit(self, statement: str, rows: Mapping[int, Kept], **told: Any) -> None:
        self.versions.append(Version(self.columns, dict(rows), statement, **told))

    def _identities(self, rows: Iterable[Row]) -> dict[int, Kept]:
        made = {}
        for row in rows:
            made[self._fresh] = Kept(row, len(self.versions))
            self._fresh += 1
        return made

    # -- statements -----------------------------------------------------------------------------
    def change(
        self,
        *,
        inserts: Sequence[Row] = (),
        updates: Mapping[int, Row] | None = None,
        deletes: Iterable[int] = (),
        statement: str = "MERGE",
    ) -> None:
        """INSERT, UPDATE, DELETE or MERGE; an update may change a key, and may change nothing."""
        rows = self.rows
        told = [Change(rows.pop(identity).row, None) for identity in deletes]
        for identity, row in (updates or {}).items():
            told.append(Change(rows[identity].row, row))
            rows[identity] = Kept(row, len(self.versions))
        told += [Change(None, row) for row in inserts]
        self._commit(statement, {**rows, **self._identities(inserts)}, changes=tuple(told))

    def exchange(self, gone: Iterable[int], rows: Sequence[Row], statement: str = "OVERWRITE") -> None:
        """Take rows out and put others in, as overwriting and replaceWhere do: all are new rows."""
        gone = frozenset(gone)
        fresh = self._identities(rows)
        kept = {identity: row for identity, row in self.rows.items() if identity not in gone}
        self._commit(statement, {**kept, **fresh}, exchanged=(gone, frozenset(fresh)))

    def restore(self, version: int) -> None:
        """Bring the rows of a version back, with their identities and what was known of them."""
        now, back = self.rows, self.versions[version].rows
        assert self.versions[version].columns == self.columns, "RESTORE brings the columns back too"
        gone = frozenset(i for i, kept in now.items() if back.get(i) != kept)
        came = frozenset(i for i, kept in back.items() if now.get(i) != kept)
        self._commit("RESTORE", back, exchanged=(gone, came))

    def nothing(self, statement: str = "OPTIMIZE") -> None:
        """Commit without a change of rows."""
        self._commit(statement, self.rows)

    def add_column(self, name: str) -> None:
        """Add a column; the rows that are there have NULL in it, and have not changed."""
        self.columns = (*self.columns, name)
        rows = {i: Kept((*kept.row, None), kept.changed) for i, kept in self.rows.items()}
        self._commit("ADD COLUMNS", rows)

    # -- versions -------------------------------------------------------------------------------
    def key(self, row: Row) -> Row:
        """Return the key of a row (or of a projection that begins with the table's columns in order)."""
        return tuple(row[self.columns.index(name)] for name in self.keys)

    def bag(self, version: int, *, ending: int | None = None) -> Counter[Row]:
        """Return the rows of a version; -1 is before the table was made.

        :param ending: in the columns of this version
        """
        if version < 0:
            return Counter()
        width = len(self.versions[self.newest if ending is None else ending].columns)
        return Counter(widened(kept.row, width) for kept in self.versions[version].rows.values())

    def keyed(
        self, version: int, *, ending: int, view: Callable[[Row], Row | None] | None = None
    ) -> dict[Row, Row]:
        """Return the rows of a version by key, as a filter and a projection show them."""
        shown: dict[Row, Row] = {}
        for row in self.bag(version, ending=ending):
            seen = row if view is None else view(row)
            if seen is not None:
                assert self.key(row) not in shown, f"the model has two rows of {self.key(row)}"
                shown[self.key(row)] = seen
        return shown

    def restores_in(self, starting: int, ending: int) -> bool:
        return any(version.restored for version in self.versions[starting : ending + 1])

    # -- the four queries -----------------------------------------------------------------------
    def min_delta(
        self, starting: int, ending: int, view: Callable[[Row], Row | None] | None = None
    ) -> list[ChangeRow]:
        """Existed before? Exists after? The versions are left out: :meth:`last_changes` has them."""
        before = self.keyed(starting - 1, ending=ending, view=view)
        after = self.keyed(ending, ending=ending, view=view)
        told: list[ChangeRow] = []
        for key in before.keys() | after.keys():
            old, new = before.get(key), after.get(key)
            if old != new:
                told += [(kind, None, row) for kind, _, row in Change(old, new).rows(ending)]
        return told

    def upsert(
        self, starting: int, ending: int, view: Callable[[Row], Row | None] | None = None
    ) -> list[ChangeRow]:
        """The after side of the net effect."""
        return [row for row in self.min_delta(starting, ending, view) if row[0] in AFTER]

    def min_delta_by_row_id(self, starting: int, ending: int) -> list[ChangeRow]:
        """The same with the row's own identity for a key: needs none, and a moved key is an update."""
        width = len(self.versions[ending].columns)
        before = self.versions[starting - 1].rows if starting else {}
        after = self.versions[ending].rows
        told: list[ChangeRow] = []
        for identity in before.keys() | after.keys():
            old, new = (
                widened(side[identity].row, width) if identity in side else None for side in (before, after)
            )
            if old != new:
                told += [(kind, None, row) for kind, _, row in Change(old, new).rows(ending)]
        return told

    def full_delta(
        self, starting: int, ending: int, *, by: Telling = "feed", columns_of: int | None = None
    ) -> list[ChangeRow]:
        """Every change of every version.

        :param by: how a RESTORE is told: by the feed as rows that left and rows that came; by row ids a row
            that was there before and after, in two states, is an update
        :param columns_of: the version whose columns are wanted, if not ``ending``
        """
        width = len(self.versions[ending if columns_of is None else columns_of].columns)
        told: list[ChangeRow] = []
        for number in range(starting, ending + 1):
            for change in self._changes(number, by):
                told += [(kind, at, widened(row, width)) for kind, at, row in change.rows(number)]
        return told

    def full_delta_by_key(
        self,
        starting: int,
        ending: int,
        view: Callable[[Row], Row | None],
        *,
        by: Telling = "feed",
        columns_of: int | None = None,
    ) -> list[ChangeRow]:
        """With a filter, each version is told per key: a state that shows no other side came or left.

        Both sides are an update, unless the version says itself that one row went and another came. Row ids
        match the states that the filter leaves: there, a row that enters or leaves the filter comes or goes.
        """
        width = len(self.versions[ending if columns_of is None else columns_of].columns)
        told: list[ChangeRow] = []
        for number in range(starting, ending + 1):
            sides: dict[Row, dict[bool, ChangeRow]] = {}
            for change in self._changes(number, by):
                if by == "row id":
                    change = change.seen(lambda row: view(widened(row, width)))
                for kind, _, row in change.rows(number):
                    seen = view(widened(row, width))
                    side = sides.setdefault(self.key(row), {})
                    if seen is not None:
                        assert (kind in AFTER) not in side, f"the model has two rows of {self.key(row)}"
                        side[kind in AFTER] = (kind, number, seen)
            for side in sides.values():
                told += _paired(side)
        return told

    # -- other shapes ---------------------------------------------------------------------------
    def changes_by_identity(self, starting: int, ending: int) -> Iterator[tuple[int, int, Change]]:
        """Yield version, identity and states of each row that a version changed, by the row's own identity.

        A row that is written again under another identity is another row.
        """
        width = len(self.versions[ending].columns)
        for number in range(starting, ending + 1):
            old = self.versions[number - 1].rows if number else {}
            new = self.versions[number].rows
            for identity in sorted(old.keys() | new.keys()):
                was, now = old.get(identity), new.get(identity)
                if (was and was.changed) != (now and now.changed):
                    rows = [kept and widened(kept.row, width) for kept in (was, now)]
                    yield number, identity, Change(*rows)

    def changes_by_key(
        self,
        starting: int,
        ending: int,
        view: Callable[[Row], Row | None] = lambda row: row,
        *,
        by: Telling = "feed",
    ) -> Iterator[tuple[int, Row, Change]]:
        """Yield version, key and states of each key that a version changed, as a filter shows them."""
        width = len(self.versions[ending].columns)
        for number in range(starting, ending + 1):
            sides: dict[Row, list[Row | None]] = {}
            for change in self._changes(number, by):
                for at, row in enumerate((change.before, change.after)):
                    if row is not None and view(widened(row, width)) is not None:
                        sides.setdefault(self.key(row), [None, None])[at] = view(widened(row, width))
            for key, (before, after) in sides.items():
                yield number, key, Change(before, after)

    def surviving_by_key(
        self,
        starting: int,
        ending: int,
        view: Callable[[Row], Row | None] = lambda row: row,
        *,
        by: Telling = "feed",
    ) -> list[ChangeRow]:
        """Return the inserts after which no version deleted the key."""
        changes = self.full_delta_by_key(starting, ending, view, by=by)
        gone: dict[Row, int] = {}
        for kind, version, row in changes:
            if kind == "delete":
                gone[self.key(row)] = max(version or 0, gone.get(self.key(row), -1))
        return [
            row for row in changes if row[0] == "insert" and (row[1] or 0) >= gone.get(self.key(row[2]), -1)
        ]

    def surviving_by_identity(self, starting: int, ending: int) -> list[ChangeRow]:
        """Return the last insert of each row that the range inserted and that exists at its end."""
        last = {
            identity: ("insert", number, change.after or ())
            for number, identity, change in self.changes_by_identity(starting, ending)
            if change.before is None
        }
        return [row for identity, row in last.items() if identity in self.versions[ending].rows]

    def _changes(self, number: int, by: Telling) -> list[Change]:
        version = self.versions[number]
        if version.exchanged is None:
            return list(version.changes)
        gone, came = version.exchanged
        old = self.versions[number - 1].rows if number else {}
        paired = gone & came if version.restored and by == "row id" else frozenset()
        width = len(version.columns)
        told = [Change(widened(old[i].row, width), version.rows[i].row) for i in paired]
        left = Counter(widened(old[i].row, width) for i in gone - paired)
        new = Counter(version.rows[i].row for i in came - paired)
        told += [Change(row, None) for row in (left - new).elements()]
        told += [Change(None, row) for row in (new - left).elements()]
        return told

    def last_changes(self, starting: int, ending: int) -> dict[Row, int]:
        """Return the version that last touched each key, also where it left it as it was.

        A RESTORE touches the files it exchanges, which is more than the rows it changes: ranges with one
        have no answer here.
        """
        assert not self.restores_in(starting, ending)
        last: dict[Row, int] = {}
        for number in range(starting, ending + 1):
            version = self.versions[number]
            old = self.versions[number - 1].rows if number else {}
            gone, came = version.exchanged or (frozenset(), frozenset())
            touched = [old[i].row for i in gone] + [version.rows[i].row for i in came]
            touched += [row for change in version.changes for row in (change.before, change.after) if row]
            last.update({self.key(row): number for row in touched})
        return last


def _paired(side: Mapping[bool, ChangeRow]) -> list[ChangeRow]:
    before, after = side.get(False), side.get(True)
    if before is None or after is None:
        kind = "insert" if before is None else "delete"
        return [(kind, version, row) for _, version, row in side.values()]
    if (before[0], after[0]) == ("delete", "insert"):
        return [before, after]
    return [("update_preimage", *before[1:]), ("update_postimage", *after[1:])]


def widened(row: Row, width: int) -> Row:
    """Return a row with NULL in the columns that came later."""
    return row + (None,) * (width - len(row))


def applied(changes: Iterable[ChangeRow], state: Counter[Row]) -> Counter[Row]:
    """Carry changes out on a bag of rows: version by version, states before leave, states after come.

    :raises AssertionError: where a row is to leave that is not there
    """
    result = Counter(state)
    by_version: dict[int, list[ChangeRow]] = {}
    for change in changes:
        by_version.setdefault(-1 if change[1] is None else change[1], []).append(change)
    for _, batch in sorted(by_version.items()):
        for kind, _, row in batch:
            if kind in BEFORE:
                assert result[row] > 0, f"{kind} of a row that is not there: {row}"
                result[row] -= 1
        for kind, _, row in batch:
            if kind in AFTER:
                result[row] += 1
    return +result


def netted(parts: Iterable[Iterable[ChangeRow]], key: Callable[[Row], Row]) -> list[ChangeRow]:
    """Compose the net effects of ranges that follow one another to that of the whole."""
    first: dict[Row, Row | None] = {}
    last: dict[Row, Row | None] = {}
    for part in parts:
        sides: dict[Row, tuple[Row | None, Row | None]] = {}
        for kind, _, row in part:
            old, new = sides.get(key(row), (None, None))
            sides[key(row)] = (row, new) if kind in BEFORE else (old, row)
        for where, (old, new) in sides.items():
            first.setdefault(where, old)
            last[where] = new
    told: list[ChangeRow] = []
    for where, old in first.items():
        if old != last[where]:
            told += [(kind, None, row) for kind, _, row in Change(old, last[where]).rows(0)]
    return told
