"""Members of a record by name, and what follows from the names of many records alike."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from delta_cdc.ingest.values import json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_MOST_SHAPES, _MOST_NAMES = 1_000, 100_000
_STEP = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|`(?:[^`]|``)+`")
_PATH = re.compile(rf"(?:{_STEP.pattern})(?:\.(?:{_STEP.pattern}))*")
_T = TypeVar("_T")


class Remembered(Generic[_T]):
    """Remembers what follows from some texts alone, such as the names of a row: most records have the same.

    :param make: computes it
    """

    def __init__(self, make: Callable[[tuple[str, ...]], _T]) -> None:
        self._make = make
        self._known: dict[tuple[str, ...], _T] = {}

    def of(self, texts: Iterable[str]) -> _T:
        """Return what follows from texts, or from the names of a row."""
        members = tuple(texts)
        found = self._known.get(members)
        if found is None:
            found = self._make(members)
            if sum(map(len, members)) <= _MOST_NAMES:
                if len(self._known) >= _MOST_SHAPES:
                    self._known.clear()
                self._known[members] = found
        return found


class Names:
    """Finds members by their names: exactly, else without regard to case.

    :param wanted: the names
    """

    def __init__(self, wanted: Iterable[str]) -> None:
        self._wanted = tuple(wanted)
        self._lower = frozenset(name.lower() for name in self._wanted)
        self._known = Remembered(self._found)
        #: Returns for each wanted name how a row spells it; None if the row lacks it.
        self.of = self._known.of

    def values(self, row: Mapping[str, Any]) -> list[Any]:
        """Return the value of each wanted name; None if the row lacks it."""
        return [None if name is None else row[name] for name in self.of(row)]

    def _found(self, members: tuple[str, ...]) -> tuple[str | None, ...]:
        exact = frozenset(members)
        by_lower = {name.lower(): name for name in reversed(members) if name.lower() in self._lower}
        return tuple(name if name in exact else by_lower.get(name.lower()) for name in self._wanted)


def member_name(row: Mapping[str, Any], name: str) -> str | None:
    """Return how a row spells a name: exactly, else without regard to case; None if the row lacks it."""
    if name in row:
        return name
    lower = name.lower()
    return next((other for other in row if other.lower() == lower), None)


def member(row: Mapping[str, Any], name: str) -> Any:
    """Return a member: by its exact name, else without regard to case; None if the row lacks it."""
    found = member_name(row, name)
    return None if found is None else row[found]


def path_of(text: str) -> tuple[str, ...] | None:
    """Return the names of a member inside of members (``source.lsn``); None if the text is something else.

    Names are quoted as in SQL.
    """
    if _PATH.fullmatch(text) is None:
        return None
    return tuple(step[1:-1].replace("``", "`") if step[0] == "`" else step for step in _STEP.findall(text))


def inside(value: Any, path: Iterable[str]) -> Any:
    """Return a member inside of members; None if it does not exist."""
    for name in path:
        if type(value) is not dict:
            return None
        value = member(value, name)
    return value


def shown(value: Any) -> str:
    """Return a value as text: what a text column would have; "" for none."""
    if isinstance(value, str):
        return value
    return "" if value is None else json_text(value)
