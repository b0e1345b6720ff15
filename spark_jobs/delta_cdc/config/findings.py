"""What is wrong with a configuration, and where."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delta_cdc.config.tree import Place

#: Of a value in a message.
_LONGEST = 80
#: Who wrote so much that is wrong gave the wrong file; and looking for near names takes its time.
MOST = 200


@dataclass(frozen=True, order=True)
class Finding:
    """One thing that is wrong.

    :param file: as it was given; ``mapping`` of a mapping
    :param line: counted from 1; 0 where the file as a whole is meant, or a mapping
    :param column: likewise
    :param message: what is wrong, and with which key, one sentence
    :param remedy: what to do about it, with the nearest valid name where there is one
    """

    file: str
    line: int
    column: int
    message: str
    remedy: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{where}: {self.message} Remedy: {self.remedy}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "message": self.message,
            "remedy": self.remedy,
        }


class Enough(Exception):
    """There are so many findings that nobody looks for more."""


class Findings:
    """Collects what is wrong, so that all of it is said at once."""

    def __init__(self) -> None:
        self._found: list[Finding] = []

    def add(self, place: Place, message: str, remedy: str) -> None:
        """Add one.

        :param message: a sentence
        :param remedy: a sentence
        :raises Enough: there were :data:`MOST` before
        """
        if len(self._found) == MOST:
            said = f"There are more than {MOST} findings; what comes after is not looked at."
            self._found.append(Finding(place.file, place.line, place.column, said, "mend these first."))
            raise Enough
        self._found.append(Finding(place.file, place.line, place.column, message, remedy))

    def sorted(self) -> list[Finding]:
        """Return all of them in the order of their places, each once."""
        return sorted(set(self._found))

    def __len__(self) -> int:
        return len(self._found)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the remedy for a name that is none of the known ones.

    :param name: as it was given
    """
    names = list(known)
    near = get_close_matches(name.lower(), names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(names)}."


def shown(value: Any) -> str:
    """Return a value for a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
