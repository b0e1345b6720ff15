"""Problems of a configuration, and their places."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The maximum length of a value in a message.
_LONGEST = 80
#: The most names that a remedy lists.
_MOST_NAMES = 20
#: The maximum number of findings. More mean that the wrong file was given, and each nearest name takes time.
MOST = 200


@dataclass(frozen=True, order=True)
class Place:
    """A position in a configuration.

    :param file: path as given; for a mapping, ``mapping`` and the path of the key
    :param line: number from 1; 0 for the whole file, or a mapping
    :param column: number from 1; 0 for the whole file, or a mapping
    """

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, order=True)
class Finding:
    """One problem.

    :param message: a sentence with the problem and its key
    :param remedy: the remedy, with the nearest valid name if there is one
    """

    place: Place
    message: str
    remedy: str

    def __str__(self) -> str:
        column = f":{self.place.column}" if self.place.line else ""
        return f"{self.place}{column}: {self.message} Remedy: {self.remedy}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**asdict(self.place), "message": self.message, "remedy": self.remedy}


class Enough(Exception):
    """Stops the search at the maximum number of findings."""


class Findings:
    """Collects all problems, to report them together.

    :ivar is_partial: whether some checks were left out because of an earlier problem
    """

    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self.is_partial = False

    def add(self, place: Place, message: str, remedy: str) -> None:
        """Add a finding.

        :param message: a sentence
        :param remedy: a sentence
        :raises Enough: there are already :data:`MOST` findings
        """
        if len(self._findings) == MOST:
            message = f"There are more than {MOST} findings; the rest of the configuration is not checked."
            self._findings.append(Finding(place, message, "correct these first."))
            raise Enough
        self._findings.append(Finding(place, message, remedy))

    def sorted(self) -> list[Finding]:
        """Return all findings in the order of their places, without duplicates."""
        return sorted(set(self._findings))

    def __len__(self) -> int:
        return len(self._findings)


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return the remedy for an unknown name.

    :param name: the unknown name
    """
    names = list(valid)
    near = get_close_matches(name.lower(), names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    more = "" if len(names) <= _MOST_NAMES else f", … ({len(names)} in all)"
    return f"use one of {', '.join(names[:_MOST_NAMES])}{more}."


def shown(value: Any) -> str:
    """Return a value for a message, truncated if long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
