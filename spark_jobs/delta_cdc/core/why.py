"""Why a row of a target is as it is: for each value, the change that set it, and which run applied that.

A job reads the row, the changes of its key in the source in the order in which the target takes them, and
the events that do not count (:class:`Found`). A value comes from the change after which the source has had
the same value without a break (:func:`origins`).

Standard library only: this module travels to the Spark driver.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Literal

from delta_cdc.core import codec
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.text_table import clipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: The most characters of a value or a record in the text for people.
_WIDEST = 120


@dataclass(frozen=True)
class Change:
    """The state of a key in the source after a change.

    :param kind: ``base``: the state before the oldest change that was read
    :param sequence: its place in the history of the key, as text; None for a base
    :param values: the value of each column as JSON; None for NULL. Without a row: None
    :param version: the version of the source with the change; None if the source does not record it
    :param record: where an ingested event came from, such as ``{"file": …, "row": …}``; empty for others
    :param carried: positions of the columns that the event sets; None: all
    :param parts: the events, if it was made of several that set different columns
    """

    kind: Literal["base", "upsert", "delete", "truncate"]
    sequence: str | None = None
    values: tuple[str | None, ...] | None = None
    version: int | None = None
    record: dict[str, Any] = field(default_factory=dict)
    carried: tuple[int, ...] | None = None
    parts: tuple[Change, ...] = ()

    def sets(self, column: int) -> bool:
        """Return whether the event sets a column."""
        return self.carried is None or column in self.carried


@dataclass(frozen=True)
class Lost:
    """An event or a row of the key that does not count.

    :param why: a phrase
    """

    why: str
    change: Change


@dataclass(frozen=True)
class TargetRow:
    """A row of the target.

    :param values: as in :class:`Change`
    :param start: type 2: the value of the start column, as text
    :param end: the same of the end column; None: the row is open
    :param deleted: the row is marked as deleted
    """

    values: tuple[str | None, ...]
    start: str | None = None
    end: str | None = None
    deleted: bool = False


@dataclass(frozen=True)
class Erased:
    """An erasure of a key, from the ledger of the target.

    :param hash: the keyed hash by which the target remembers the key
    :param at: when it was erased, ISO 8601
    :param run_id: of the erasure
    :param rows: how many rows of the key the version still has; an erasure that is run again deletes them
    """

    hash: str
    at: str
    run_id: str
    rows: int = 0

    def __str__(self) -> str:
        text = f"This key was erased at {self.at} by run {self.run_id} (hash {self.hash})."
        if self.rows:
            return f"{text} This version still has {self.rows} of its rows, which are not shown."
        return f"{text} Every run leaves it out, and the changes of the source that it had are not shown."


@dataclass(frozen=True)
class Found:
    """What the job read about a key.

    :param columns: of the target, without those that the engine adds
    :param rows: the target's rows of the key, ascending
    :param changes: in the order in which the target takes them
    :param lost: changes that the target does not take
    :param all_changes: False: only the newest changes were read
    :param erased: the key was erased; then there is nothing else of it
    :param unsearched: number of rows in quarantine whose key has columns of other names
    """

    columns: tuple[str, ...]
    rows: tuple[TargetRow, ...]
    changes: tuple[Change, ...]
    lost: tuple[Lost, ...] = ()
    all_changes: bool = True
    erased: Erased | None = None
    unsearched: int = 0


# -- the rule ---------------------------------------------------------------------------------------
def until(row: TargetRow, changes: Sequence[Change]) -> Sequence[Change]:
    """Return the changes up to the last one that the row has taken.

    A row of history takes those before the change that ended it, and a deleted row those before its delete.
    """
    if row.end is not None:
        at = next((at for at, change in enumerate(changes) if change.sequence == row.end), len(changes))
        changes = changes[:at]
    last = len(changes)
    while row.deleted and last and changes[last - 1].values is None:
        last -= 1
    return changes[:last]


def origins(row: TargetRow, changes: Sequence[Change], *, older: bool = False) -> list[Change | None]:
    """Return for each value the change that set it: since then, the source has had it without a break.

    :param changes: :attr:`Found.changes`
    :param older: the source had earlier changes, which were not read
    :return: a ``base`` if the value is older than all changes; None if the source has another value, or no
        row, after the last change that the row has taken
    """
    if older and _ended_before(row, changes):
        return [Change("base")] * len(row.values)
    taken = until(row, changes)
    return [_origin(value, at, taken) for at, value in enumerate(row.values)]


def _ended_before(row: TargetRow, changes: Sequence[Change]) -> bool:
    """Return whether a row ended before the first change that was read."""
    if row.end is None:
        return row.deleted and all(change.values is not None for change in changes)
    first = next((one.sequence for one in changes if one.sequence is not None), None)
    if first is None:
        return True
    try:
        return Decimal(row.end) < Decimal(first)
    except InvalidOperation:
        # Times sort as their texts.
        return row.end < first


def _origin(value: str | None, column: int, taken: Sequence[Change]) -> Change | None:
    found = None
    for change in reversed(taken):
        if change.values is None or change.values[column] != value:
            break
        found = change
    if found is None:
        return None
    return next((part for part in found.parts if part.sets(column)), found)


def with_sequence(changes: Sequence[Change], sequence: str | None) -> Change | None:
    """Return the first change at a place."""
    return next((one for one in changes if sequence is not None and one.sequence == sequence), None)


# -- the answer -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Where:
    """Where something came from, and how it reached the target.

    :param version: of the source; None if the source does not record it
    :param time: when the source committed it, ISO 8601; None if unknown
    :param record: as in :class:`Change`
    :param sequence: its place in the history of the key, as text
    :param target_version: the target's version that applied it; None if its log does not have it any more
    :param applied_at: the time of that commit
    :param run_id: of the run that made it
    :param work: what the run did, such as ``apply`` or ``load``
    """

    version: int | None = None
    time: str | None = None
    record: dict[str, Any] = field(default_factory=dict)
    sequence: str | None = None
    target_version: int | None = None
    applied_at: str | None = None
    run_id: str | None = None
    work: str | None = None

    def __str__(self) -> str:
        return ", ".join(self._parts()) or "unknown"

    def _parts(self) -> Iterator[str]:
        place = {name: value for name, value in self.record.items() if value is not None}
        if place:
            yield clipped(", ".join(f"{name} {value}" for name, value in place.items()), _WIDEST)
        if self.version is not None:
            yield f"version {self.version} of the source" + (f" ({self.time})" if self.time else "")
        elif self.time:
            yield self.time
        if not place and self.version is None and self.sequence is not None:
            yield f"sequence {self.sequence}"
        if self.target_version is not None:
            yield f"{self.work} into version {self.target_version} ({self.applied_at}) by run {self.run_id}"


@dataclass(frozen=True)
class Value:
    """A value of a row.

    :param value: as JSON; None for NULL
    :param since: the change that set it; None: see ``note``
    :param note: why no change is named
    """

    column: str
    value: str | None
    since: Where | None = None
    note: str = ""


@dataclass(frozen=True)
class ExplainedRow:
    """A row, and where its values come from.

    :param start: type 2: the value of the start column as text; ``opened`` is the change that began the row
    :param end: the same of the end column and ``closed``; of a deleted row, ``closed`` is its delete
    """

    values: tuple[Value, ...]
    start: str | None = None
    end: str | None = None
    deleted: bool = False
    opened: Where | None = None
    closed: Where | None = None


@dataclass(frozen=True)
class NotTaken:
    """An event or a row that the target did not take."""

    why: str
    where: Where
    values: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """Why the rows of a key are as they are.

    :param key: the key columns, as the caller gave them
    :param version: the version of the target that was read
    :param watermark: the version of the source that it contains
    :param options: the options of the pipeline that decide the rows, without defaults
    :param rows: of the target; of a history, ascending
    :param gone: without a row: the change that ended the last one
    :param not_taken: what the target did not take
    :param notes: what limits the answer, one sentence each
    :param upstream: the same question for the source, if a pipeline writes it
    :param erased: the key was erased; then the answer has no value, and nothing of the source
    """

    pipeline: str
    target: str
    key: dict[str, str]
    version: int
    source: str
    watermark: int
    options: dict[str, Any] = field(default_factory=dict)
    rows: tuple[ExplainedRow, ...] = ()
    gone: Where | None = None
    not_taken: tuple[NotTaken, ...] = ()
    notes: tuple[str, ...] = ()
    upstream: Answer | None = None
    erased: Erased | None = None

    def only(self, columns: Sequence[str]) -> Answer:
        """Return the answer for some columns.

        :raises InvalidConfiguration: a row has no such column
        """
        wanted = {name.lower() for name in columns}
        existing = {one.column.lower() for row in self.rows for one in row.values}
        if self.rows and not wanted <= existing:
            raise InvalidConfiguration(
                f"{self.target} has no column {', '.join(sorted(wanted - existing))}.",
                remedy=f"name some of {', '.join(sorted(existing))}.",
                argument="column",
            )
        return self._only(wanted)

    def _only(self, wanted: set[str]) -> Answer:
        rows = tuple(
            replace(row, values=tuple(one for one in row.values if one.column.lower() in wanted))
            for row in self.rows
        )
        upstream = None if self.upstream is None else self.upstream._only(wanted)
        return replace(self, rows=rows, upstream=upstream)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        encoded: dict[str, Any] = codec.encoded(self)
        return encoded

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        key = ", ".join(f"{name} = {value}" for name, value in self.key.items())
        yield f"{self.pipeline}: {key} in version {self.version} of {self.target}"
        yield f"source: version {self.watermark} of {self.source}"
        if self.options:
            yield f"options: {', '.join(f'{name} = {shown(value)}' for name, value in self.options.items())}"
        places = _Places()
        if self.erased is not None:
            yield str(self.erased)
        elif not self.rows:
            ended = f"; the last one ended with {places.number(self.gone)}" if self.gone is not None else ""
            yield f"There is no row of this key{ended}."
        for row in self.rows:
            yield ""
            yield from _row_lines(row, places)
        if self.not_taken:
            yield ""
            yield "Not taken:"
            yield from (_not_taken_line(one, places) for one in self.not_taken)
        if places.lines:
            yield ""
            yield from places.lines
        yield from (f"note: {note}" for note in self.notes)
        if self.upstream is not None:
            yield ""
            yield f"Where {self.source} has it from:"
            yield from (f"  {line}".rstrip() for line in str(self.upstream).split("\n"))


class _Places:
    """The places that an answer names, each with a number and a line."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, place: Where) -> str:
        """Return the number of a place, such as ``[1]``."""
        return f"[{self._numbers.setdefault(str(place), len(self._numbers) + 1)}]"

    @property
    def lines(self) -> list[str]:
        """Return a line for each place."""
        return [f"[{number}] {text}" for text, number in self._numbers.items()]


def shown(value: Any) -> str:
    """Return a value on one line of limited width."""
    return clipped(value if isinstance(value, str) else codec.dumps(value), _WIDEST)


def _row_lines(row: ExplainedRow, places: _Places) -> Iterator[str]:
    if row.start is not None:
        opened = f" {places.number(row.opened)}" if row.opened is not None else ""
        closed = f" {places.number(row.closed)}" if row.closed is not None else ""
        yield f"from {row.start}{opened} to {row.end or 'now'}{closed}{', deleted' if row.deleted else ''}"
    elif row.deleted:
        yield "deleted" + (f" {places.number(row.closed)}" if row.closed is not None else "")
    texts = ["NULL" if one.value is None else shown(one.value) for one in row.values]
    names = max((len(one.column) for one in row.values), default=0)
    widest = min(max(map(len, texts), default=0), _WIDEST // 2)
    for one, text in zip(row.values, texts, strict=True):
        origin = places.number(one.since) if one.since is not None else one.note
        yield f"  {one.column:<{names}}  {text:<{widest}}  {origin}"


def _not_taken_line(one: NotTaken, places: _Places) -> str:
    values = ", ".join(f"{name} = {'NULL' if text is None else text}" for name, text in one.values.items())
    return f"  {places.number(one.where)} {one.why}" + (f": {shown(values)}" if values else "")
