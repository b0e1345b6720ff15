"""Parse the names in a log folder, and find its commits and complete checkpoints.

Log compaction files, ``.crc`` files, ``_staged_commits`` and all other files repeat what commits and
checkpoints contain, so this module ignores them.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delta_cdc.delta_log.requests import Entry

_COMMIT = re.compile(r"([0-9]{20})\.json", re.ASCII)
_CHECKPOINT = re.compile(
    r"([0-9]{20})\.checkpoint(?:\.([0-9]{10})\.([0-9]{10})\.parquet|(?:\.[0-9A-Za-z-]{36})?\.(?:parquet|json))",
    re.ASCII,
)
_LARGEST = 2**63 - 1
#: Versions in a block of :class:`Commits`, and what a version without a commit file has there.
_BLOCK, _MISSING = 64, -(2**63)
_NO_COMMIT = array("q", [_MISSING]) * _BLOCK
#: Names of files that Delta writes only after a commit: they prove that a commit existed.
_TRACE = re.compile(
    r"_last_checkpoint|[0-9]{20}\.(?:crc|checkpoint\..*|[0-9]{20}\.compacted\.json)", re.ASCII
)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint with all its files (sidecars are not checked: only the checkpoint itself names them)."""

    version: int
    files: tuple[Entry, ...]


class Commits(Mapping[int, int]):
    """The commit files of a log: by version, ascending, the file's modification time (epoch milliseconds).

    A log may have millions of commit files, so a commit takes eight bytes here: in blocks of consecutive
    versions, of which a file with an absurdly high number costs one.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, array[int]] = {}
        self._count = 0

    def add(self, version: int, modified: int) -> None:
        """Add a commit file."""
        number, place = divmod(version, _BLOCK)
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = array("q", _NO_COMMIT)
        self._count += block[place] == _MISSING
        block[place] = modified

    @property
    def newest(self) -> int:
        """Return the newest version.

        :raises ValueError: there is no commit
        """
        number = max(self._blocks)
        block, place = self._blocks[number], _BLOCK - 1
        while block[place] == _MISSING:
            place -= 1
        return number * _BLOCK + place

    @property
    def oldest(self) -> int:
        """Return the oldest version.

        :raises ValueError: there is no commit
        """
        number = min(self._blocks)
        block, place = self._blocks[number], 0
        while block[place] == _MISSING:
            place += 1
        return number * _BLOCK + place

    def newest_missing(self, first: int, last: int) -> int | None:
        """Return the newest version of a range, both ends included, that has no commit file."""
        # Down from the end, so that a file with an absurdly high number costs nothing.
        while last >= first:
            number, place = divmod(last, _BLOCK)
            block = self._blocks.get(number, _NO_COMMIT)
            if place == _BLOCK - 1 and last - place >= first and _MISSING not in block:
                last -= _BLOCK
            elif block[place] == _MISSING:
                return last
            else:
                last -= 1
        return None

    def __len__(self) -> int:
        return self._count

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self._modified(version) != _MISSING

    def __getitem__(self, version: int) -> int:
        modified = self._modified(version)
        if modified == _MISSING:
            raise KeyError(version)
        return modified

    def __iter__(self) -> Iterator[int]:
        for number in sorted(self._blocks):
            for place, modified in enumerate(self._blocks[number], number * _BLOCK):
                if modified != _MISSING:
                    yield place

    def _modified(self, version: int) -> int:
        block = self._blocks.get(version // _BLOCK)
        return _MISSING if block is None else block[version % _BLOCK]


@dataclass(frozen=True)
class Listing:
    """The files of a log folder, or only those from some version on.

    :param commits: the versions with a commit file
    :param checkpoints: the complete checkpoints, by version, ascending
    :param traces: whether a file proves that a commit existed
    """

    commits: Commits = field(default_factory=Commits)
    checkpoints: tuple[Checkpoint, ...] = ()
    traces: bool = False

    def hole(self, first: int, last: int) -> int | None:
        """Return the newest version of a range, both ends included, that has no commit file."""
        return self.commits.newest_missing(first, last)


def of_a_commit(name: str) -> bool:
    """Return whether a file of a log folder is a commit, or proves that a commit existed."""
    return _COMMIT.fullmatch(name) is not None or _TRACE.fullmatch(name) is not None


class Names:
    """Classifies the files of a log folder, one by one, in any order; keeps only what a reader needs."""

    def __init__(self) -> None:
        self._commits = Commits()
        self._checkpoints: list[Checkpoint] = []
        self._parts: dict[tuple[int, int], dict[int, Entry]] = {}
        self._traces = False

    def add(self, entry: Entry) -> None:
        """Take a file."""
        name = entry.name.rpartition("/")[2]
        if (match := _COMMIT.fullmatch(name)) is not None:
            version = int(match[1])
            if version <= _LARGEST:
                self._commits.add(version, entry.modified)
            return
        self._traces = self._traces or _TRACE.fullmatch(name) is not None
        if (match := _CHECKPOINT.fullmatch(name)) is None:
            return
        if match[2] is None:
            self._checkpoints.append(Checkpoint(int(match[1]), (entry,)))
        else:
            self._parts.setdefault((int(match[1]), int(match[3])), {})[int(match[2])] = entry

    def listing(self) -> Listing:
        """Return the listing of the files so far."""
        complete = [
            Checkpoint(version, tuple(found[part] for part in sorted(found)))
            for (version, count), found in self._parts.items()
            if sorted(found) == list(range(1, count + 1))
        ]
        checkpoints = sorted(
            (*self._checkpoints, *complete),
            key=lambda checkpoint: (checkpoint.version, checkpoint.files[0].name),
        )
        return Listing(commits=self._commits, checkpoints=tuple(checkpoints), traces=self._traces)
