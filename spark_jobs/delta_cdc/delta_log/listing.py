"""Parse the names in a log folder, and find its commits and complete checkpoints.

Log compaction files, ``.crc`` files, ``_staged_commits`` and all other files repeat what commits and
checkpoints contain, so this module ignores them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delta_cdc.delta_log.requests import Entry

_COMMIT = re.compile(r"([0-9]{20})\.json", re.ASCII)
_CHECKPOINT = re.compile(
    r"([0-9]{20})\.checkpoint(?:\.([0-9]{10})\.([0-9]{10})\.parquet|(?:\.[0-9A-Za-z-]{36})?\.(?:parquet|json))",
    re.ASCII,
)
_LARGEST = 2**63 - 1
#: Names of files that Delta writes only after a commit: they prove that a commit existed.
_TRACE = re.compile(
    r"_last_checkpoint|[0-9]{20}\.(?:crc|checkpoint\..*|[0-9]{20}\.compacted\.json)", re.ASCII
)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint with all its files (sidecars are not checked: only the checkpoint itself names them)."""

    version: int
    files: tuple[Entry, ...]


@dataclass(frozen=True)
class Listing:
    """The files of a log folder, or only those from some version on.

    :param commits: by version, ascending
    :param checkpoints: the complete checkpoints, by version, ascending
    :param traces: whether a file proves that a commit existed
    """

    commits: dict[int, Entry] = field(default_factory=dict)
    checkpoints: tuple[Checkpoint, ...] = ()
    traces: bool = False

    def hole(self, first: int, last: int) -> int | None:
        """Return the newest version of a range, both ends included, that has no commit file."""
        # Count down from the end, so that a file with an absurdly high number costs nothing.
        while last >= first and last in self.commits:
            last -= 1
        return last if last >= first else None


def of_a_commit(name: str) -> bool:
    """Return whether a file of a log folder is a commit, or proves that a commit existed."""
    return _COMMIT.fullmatch(name) is not None or _TRACE.fullmatch(name) is not None


def read_names(entries: Iterable[Entry]) -> Listing:
    """Classify the files of a log folder."""
    commits: dict[int, Entry] = {}
    checkpoints: list[Checkpoint] = []
    parts: dict[tuple[int, int], dict[int, Entry]] = {}
    traces = False
    for entry in entries:
        name = entry.name.rpartition("/")[2]
        traces = traces or _TRACE.fullmatch(name) is not None
        if (match := _COMMIT.fullmatch(name)) is not None:
            if int(match[1]) <= _LARGEST:
                commits[int(match[1])] = entry
        elif (match := _CHECKPOINT.fullmatch(name)) is not None:
            if match[2] is None:
                checkpoints.append(Checkpoint(int(match[1]), (entry,)))
            else:
                parts.setdefault((int(match[1]), int(match[3])), {})[int(match[2])] = entry
    for (version, count), found in parts.items():
        if sorted(found) == list(range(1, count + 1)):
            checkpoints.append(Checkpoint(version, tuple(found[part] for part in sorted(found))))
    return Listing(
        commits=dict(sorted(commits.items())),
        checkpoints=tuple(
            sorted(checkpoints, key=lambda checkpoint: (checkpoint.version, checkpoint.files[0].name))
        ),
        traces=traces,
    )
