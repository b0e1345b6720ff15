"""Problems of a configuration, and their places."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delta_cdc.config.tree import Place

#: The maximum length of a value in a message.
_LONGEST = 80
#: More problems mean that the wrong file was given; and finding nearest names takes time.
MOST = 200


@dataclass(frozen=True, order=True)
class Finding:
    """One problem.

    :param file: as given; ``mapping`` for a mapping
    :param line: counted from 1; 0 for the file as a whole, or a mapping
    :param column: counted from 1, or 0 likewise
    :param message: a sentence: the problem, with its key
    :param remedy: what to do about it, with the nearest valid name if there is one
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
    """The maximum number of findings is reached, so the search stops."""


class Findings:
    """Collects problems, so that all of them are reported together."""

    def __init__(self) -> None:
        self._found: list[Finding] = []

    def add(self, place: Place, message: str, remedy: str) -> None:
        """Add a finding.

        :param message: a sentence
        :param remedy: a sentence
        :raises Enough: there were already :data:`MOST`
        """
        if len(self._found) == MOST:
            said = f"There are more than {MOST} findings; what comes after is not looked at."
            self._found.append(Finding(place.file, place.line, place.column, said, "mend these first."))
            raise Enough
        self._found.append(Finding(place.file, place.line, place.column, message, remedy))

    def sorted(self) -> list[Finding]:
        """Return all findings in the order of their places, without duplicates."""
        return sorted(set(self._found))

    def __len__(self) -> int:
        return len(self._found)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the remedy for an unknown name.

    :param name: as given
    """
    names = list(known)
    near = get_close_matches(name.lower(), names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(names)}."


def shown(value: Any) -> str:
    """Return a value for a message, truncated if long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
