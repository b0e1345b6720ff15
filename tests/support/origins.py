"""Where each value of a row comes from, read off a history as it happens.

Nothing here knows Spark or the engine. The engine looks back from a row; this model goes forward, and notes
for each value the place at which it came.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

COLUMNS = ("a", "b", "c")
_VALUES: dict[str, tuple[Any, ...]] = {
    "a": (1, 2, None),
    "b": ("x", "", "NULL", None),
    "c": ("1.50", "-2.00", None),
}


@dataclass(frozen=True)
class Event:
    """What happens to a key.

    :param place: its place in the order of the key
    :param values: the values that it sets; None: it deletes the row
    """

    place: int
    values: dict[str, Any] | None


@dataclass
class Row:
    """A row, with the place at which each value came; ``end`` is None while it is open."""

    start: int
    values: dict[str, Any]
    since: dict[str, int]
    end: int | None = None


@dataclass
class Kept:
    """The rows of a key after some events."""

    rows: list[Row] = field(default_factory=list)

    @property
    def open(self) -> Row | None:
        last = self.rows[-1] if self.rows else None
        return None if last is None or last.end is not None else last

    def take(self, event: Event) -> None:
        """Let an event happen; a value that an event leaves out stays."""
        now = self.open
        if event.values is None:
            if now is not None:
                now.end = event.place
            return
        before = now.values if now is not None else dict.fromkeys(COLUMNS)
        values = {**before, **event.values}
        since = dict(now.since) if now is not None else {}
        for name in COLUMNS:
            if now is None or values[name] != before[name]:
                since[name] = event.place
        if now is not None and values == before:
            return
        if now is not None:
            now.end = event.place
        self.rows.append(Row(event.place, values, since))


def kept(events: Iterable[Event], loaded: int | None = None) -> list[Row]:
    """Return the rows of a key, ascending.

    :param loaded: of a feed: the place of the load, at which the history in the target begins
    """
    found = Kept()
    for event in sorted(events, key=lambda one: one.place):
        found.take(event)
    if loaded is None:
        return found.rows
    rows = [row for row in found.rows if row.end is None or row.end > loaded]
    for row in rows:
        row.start = max(row.start, loaded)
    return rows


def drawn(draw: random.Random, places: Sequence[int], *, partial: bool = False) -> list[Event]:
    """Draw a history.

    :param partial: an event may leave columns out
    """
    found = []
    for place in places:
        kind = draw.random()
        if kind < 0.15:
            found.append(Event(place, None))
        elif kind < 0.75:
            names = [name for name in COLUMNS if not partial or draw.random() < 0.6]
            found.append(Event(place, {name: draw.choice(_VALUES[name]) for name in names}))
    return found


def as_json(name: str, value: Any) -> str | None:
    """Return a value as the answer shows it."""
    if value is None:
        return None
    return json.dumps(value, ensure_ascii=False) if name == "b" else str(value)
