"""Version ranges of a Delta table."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TEXT = re.compile(r"^\s*(\d+)\s*(?:-\s*(\d+)\s*)?$")


@dataclass(frozen=True, order=True)
class VersionRange:
    """The versions ``starting_version`` … ``ending_version`` of a Delta table, both inclusive.

    Both ends are inclusive because Delta's own ``startingVersion`` and ``endingVersion`` are.
    ``str()`` gives the text form ``"101-110"``, which :meth:`parse` reads back.

    :param starting_version: first version, >= 0
    :param ending_version: last version, >= ``starting_version``
    :raises ValueError: negative versions, or an end before the start
    """

    starting_version: int
    ending_version: int

    def __post_init__(self) -> None:
        if self.starting_version < 0:
            raise ValueError(f"starting_version must be >= 0, got {self.starting_version}")
        if self.ending_version < self.starting_version:
            raise ValueError(
                f"ending_version {self.ending_version} lies before starting_version {self.starting_version}"
            )

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Read ``"101-110"``, or ``"101"`` for a single version."""
        match = _TEXT.match(text)
        if match is None:
            raise ValueError(f"not a version range: {text!r} (expected for instance '101-110')")
        start = int(match.group(1))
        return cls(start, int(match.group(2)) if match.group(2) else start)

    def __str__(self) -> str:
        return f"{self.starting_version}-{self.ending_version}"

    def __len__(self) -> int:
        return self.ending_version - self.starting_version + 1

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.starting_version <= version <= self.ending_version
