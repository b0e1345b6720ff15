"""Rebuild a version from commits and a checkpoint.

The replay reads newer commits first, because the newest action of a kind counts: so it often ends without
the checkpoint. It skips an unreadable checkpoint if an older one, or the commits from version 0 on, can
replace it.
"""

from __future__ import annotations

import asyncio
import typing
from contextlib import aclosing
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from delta_cdc.core.concurrency import gathered
from delta_cdc.core.errors import CorruptLog
from delta_cdc.delta_log.actions import (
    HELD,
    Add,
    FileAction,
    MetaData,
    Protocol,
    Remove,
    TooManyFilesError,
    Txn,
    most_log_memory,
    too_large,
)
from delta_cdc.delta_log.checkpoint import DamagedCheckpointError, read_files, read_state

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence

    from delta_cdc.delta_log.actions import Action, Commit, Key
    from delta_cdc.delta_log.listing import Checkpoint, Listing
    from delta_cdc.delta_log.log_files import LogFiles
    from delta_cdc.delta_log.requests import Storage

_FIRST_BATCH = 4
_LARGEST_BATCH = 64
#: Number of commits whose lists of files are in memory at once, and the most files of each: longer lists are
#: read one after another.
_FILES_BATCH, _FEW = 16, 1_000
#: Bytes of an action without its texts.
_ADD = 300
F = TypeVar("F", bound=FileAction)


class History:
    """The commits of a log for walks to older versions; it reads each once, in growing concurrent batches."""

    def __init__(self, find: Callable[[int], Coroutine[Any, Any, Commit | None]]) -> None:
        self._find = find
        self._commits: dict[int, Commit | None] = {}
        self._batch = _FIRST_BATCH

    async def get(self, version: int, oldest: int = 0) -> Commit | None:
        """Return a commit, or None if its file does not exist.

        :param oldest: the oldest version that the walk can need
        """
        if version not in self._commits:
            versions = range(max(oldest, version - self._batch + 1), version + 1)
            self._batch = min(self._batch * 2, _LARGEST_BATCH)
            commits = await gathered(map(self._find, versions), limit=_LARGEST_BATCH)
            self._commits.update(zip(versions, commits, strict=True))
        return self._commits[version]

    def known(self, version: int) -> Commit | None:
        """Return a commit that was read already; None if it was not, or does not exist."""
        return self._commits.get(version)

    async def read(self, versions: Sequence[int]) -> list[Commit | None]:
        """Return commits in the given order; None for each whose file does not exist."""
        unread = [version for version in versions if self._commits.get(version) is None]
        commits = await gathered(map(self._find, unread), limit=_LARGEST_BATCH)
        self._commits.update(zip(unread, commits, strict=True))
        return [self._commits[version] for version in versions]


class Room:
    """The memory that the names of files may take in one read of a log.

    :param what: has the files, for the error
    """

    def __init__(self, what: str, uri: str) -> None:
        self._what, self._uri = what, uri
        self._most_bytes = most_log_memory()
        self._files = self._held = 0

    def take(self, key: Key, *, details: int = 0) -> None:
        """Count a name.

        :param details: bytes of what is kept with it
        :raises LogTooLarge: the names take more than the limit
        """
        self._files += 1
        self._held += HELD + len(key[0]) + len(key[1]) + details
        if self._held > self._most_bytes:
            raise too_large(self._what, self._uri, str(TooManyFilesError(self._files, self._most_bytes)))


class Active(typing.Protocol):
    """Takes the active files of a version."""

    @property
    def is_enough(self) -> bool:
        """Return whether no further file is needed."""

    def add(self, file: Add) -> None:
        """Take a file."""


W = TypeVar("W", bound=Active)


class Files:
    """Keeps the active files."""

    is_enough = False

    def __init__(self, room: Room) -> None:
        self.by_key: dict[Key, Add] = {}
        self._room = room

    def __copy__(self) -> Files:
        copied = Files(copy(self._room))
        copied.by_key = dict(self.by_key)
        return copied

    def add(self, file: Add) -> None:
        """Take a file.

        :raises LogTooLarge: the files take more memory than the limit
        """
        key = file.key
        if key not in self.by_key:
            self._room.take(key, details=_ADD)
        self.by_key[key] = file


@dataclass
class Totals:
    """Counts the active files.

    :param masked_files: files with masked rows
    :param rows: visible rows; None if the log lacks the number of a file
    :param folders: with files
    """

    files: int = 0
    masked_files: int = 0
    bytes: int = 0
    rows: int | None = 0
    folders: set[str] = field(default_factory=set)
    is_enough = False

    def __copy__(self) -> Totals:
        return replace(self, folders=set(self.folders))

    def add(self, file: Add) -> None:
        """Count a file."""
        self.files += 1
        self.masked_files += file.deletion_vector is not None
        self.bytes += file.size or 0
        rows = file.rows
        self.rows = None if rows is None or self.rows is None else self.rows + rows - file.masked_rows
        self.folders.add(file.key[0].rpartition("/")[0])


class AnyRow:
    """Looks for a file with a visible row.

    :param count_rows: returns the number of rows of a file whose number the log lacks; None counts as rows
    """

    def __init__(self, count_rows: Callable[[str], int | None]) -> None:
        self._count_rows = count_rows
        self.is_enough = False

    def add(self, file: Add) -> None:
        """Look at a file."""
        if self.is_enough:
            return
        rows = self._count_rows(file.key[0]) if file.rows is None else file.rows
        self.is_enough = rows is None or rows > file.masked_rows


class _Decided:
    """The files that the walk has seen in commits.

    :param wanted: keys of the files that count; None: all
    """

    def __init__(self, room: Room, wanted: Collection[Key] | None) -> None:
        self.keys: set[Key] = set()
        self.undecided = None if wanted is None else set(wanted)
        self._room = room

    @property
    def all_wanted(self) -> bool:
        return self.undecided is not None and not self.undecided

    def show(self, actions: Iterable[Add | Remove], found: Active) -> None:
        """Take the actions of an older commit; show those that add active files."""
        for action in actions:
            key = action.key
            if key in self.keys or (self.undecided is not None and key not in self.undecided):
                continue
            self._room.take(key)
            self.keys.add(key)
            if isinstance(action, Add):
                found.add(action)
            if self.undecided is not None:
                self.undecided.discard(key)


async def _slim(action: F) -> F:
    """Return an action without its statistics, but with its number of rows."""
    rows = await asyncio.to_thread(getattr, action, "rows") if action.is_large else action.rows
    return action.with_rows(rows)


class Replay:
    """One version of a table.

    :param listing: the log from the checkpoint to use
    :param full: lists the whole log; called only if ``listing`` is not enough
    """

    def __init__(
        self,
        log: LogFiles,
        storage: Storage,
        *,
        version: int,
        listing: Listing,
        full: Callable[[], Awaitable[Listing]] | None,
        history: History,
    ) -> None:
        self.version = version
        self._log = log
        self._storage = storage
        self._listing = listing
        self._full = full
        self._damaged: dict[Checkpoint, str] = {}
        #: The commits that the replay has read: a walk from the same version does not read them again.
        self.history = history
        self._next = version
        self._metadata: MetaData | None = None
        self._protocol: Protocol | None = None
        self._txns: dict[str, int] = {}

    async def check(self) -> None:
        """Reject a version if some of its files are missing.

        :raises VersionsExpired: the log was cleaned
        :raises LogGap: a commit file is missing
        :raises CorruptLog: the checkpoint that would replace the missing file cannot be read
        """
        base = await self._base(self.version)
        floor = -1 if base is None else base.version
        hole = self._listing.hole(floor + 1, self.version)
        if hole is None and (self.version in self._listing.commits or floor == self.version):
            return
        if self._damaged:
            raise self._corrupt()
        raise await self._log.missing(self.version if hole is None else hole)

    async def state(self) -> tuple[Protocol, MetaData]:
        """Return protocol and metadata.

        :raises CorruptLog: one of them is missing
        """
        while self._protocol is None or self._metadata is None:
            if not await self._read_older():
                action_name = "protocol" if self._protocol is None else "metaData"
                raise CorruptLog(
                    f"The log of {self._log.uri} has no {action_name} up to version {self.version}.",
                    remedy="bring the log back from a backup. Or, if the table was dropped while a job wrote "
                    "to it, move its folder away.",
                )
        return self._protocol, self._metadata

    async def transaction(self, app_id: str) -> int | None:
        """Return the version an application recorded last."""
        while app_id not in self._txns:
            if not await self._read_older():
                return None
        return self._txns[app_id]

    async def transactions(self) -> dict[str, int]:
        """Return the version that each application recorded last."""
        while await self._read_older():
            pass
        return dict(self._txns)

    async def files(self, wanted: Collection[Key] | None = None) -> dict[Key, Add]:
        """Return active files; see :func:`delta_cdc.delta_log.checkpoint.read_files`.

        :param wanted: keys of the files; the walk ends as soon as it has decided all. None: all files
        :raises LogTooLarge: their names take more memory than the limit
        """
        return (await self.walk(Files(self._room()), wanted)).by_key

    async def walk(self, found: W, wanted: Collection[Key] | None = None) -> W:
        """Show the active files, one by one, to something that counts or keeps them, until it has enough.

        In memory are only the names of the files that the commits after the checkpoint added or removed.

        :param found: takes the files of the commits; a copy of it takes those of the checkpoint too
        :param wanted: as for :meth:`files`
        :return: the one that took all
        :raises LogTooLarge: these names take more memory than the limit
        """
        decided = _Decided(self._room(), wanted)
        version = self.version
        while version >= 0 and not (decided.all_wanted or found.is_enough):
            base = await self._base(version)
            if base is not None and base.version == version:
                try:
                    # A copy, because the checkpoint may turn out to be damaged after some of its files.
                    return await self._walk_checkpoint(base, copy(found), decided)
                except DamagedCheckpointError as error:
                    await self._pass_over(base, error)
                    continue
            floor = -1 if base is None else base.version
            versions = range(version, max(floor, version - _FILES_BATCH), -1)
            beginnings = await gathered(
                (self._changes(one, wanted=decided.undecided) for one in versions), limit=_FILES_BATCH
            )
            for one, actions in zip(versions, beginnings, strict=True):
                if actions is None:
                    await self._walk_commit(one, found, decided)
                else:
                    decided.show(actions, found)
            version = versions[-1] - 1
        return found

    # -- inside -----------------------------------------------------------------------------------
    async def _changes(self, version: int, *, wanted: Collection[Key] | None) -> list[Add | Remove] | None:
        """Return a commit's actions on the wanted files (None: of all); None if they are many."""
        changes: list[Add | Remove] = []
        async with aclosing(self._log.actions(version)) as actions:
            async for action in actions:
                if isinstance(action, Add | Remove) and (wanted is None or action.key in wanted):
                    if len(changes) >= _FEW:
                        return None
                    changes.append(await _slim(action) if wanted is None else action)
        return changes

    async def _walk_commit(self, version: int, found: Active, decided: _Decided) -> None:
        async with aclosing(self._log.actions(version)) as actions:
            async for action in actions:
                if isinstance(action, Add | Remove):
                    decided.show([action if decided.undecided is not None else await _slim(action)], found)
                    if found.is_enough:
                        break

    async def _walk_checkpoint(self, base: Checkpoint, found: W, decided: _Decided) -> W:
        async with aclosing(read_files(self._storage, base, decided.undecided)) as batches:
            async for adds in batches:
                for add in adds:
                    if add.key not in decided.keys:
                        found.add(add)
                if found.is_enough:
                    break
        return found

    def _room(self) -> Room:
        return Room(f"list of files of version {self.version}", self._log.uri)

    async def _read_older(self) -> bool:
        """Read the next older commit, or the checkpoint; return False if nothing is left to read."""
        if self._next < 0:
            return False
        base = await self._base(self._next)
        if base is None or base.version < self._next:
            commit = await self.history.get(self._next, 0 if base is None else base.version + 1)
            if commit is None:
                raise await self._log.missing(self._next)
            self._keep_newest((commit.metadata, commit.protocol, *commit.txns))
            self._next -= 1
            return True
        try:
            self._keep_newest(await read_state(self._storage, base))
        except DamagedCheckpointError as error:
            await self._pass_over(base, error)
            return True
        self._next = -1
        return True

    def _keep_newest(self, actions: Iterable[Action | None]) -> None:
        """Keep the newest action of each kind."""
        for action in actions:
            if isinstance(action, MetaData):
                self._metadata = self._metadata or action
            elif isinstance(action, Protocol):
                self._protocol = self._protocol or action
            elif isinstance(action, Txn):
                self._txns.setdefault(action.app_id, action.version)

    async def _base(self, version: int) -> Checkpoint | None:
        """Return the newest readable checkpoint up to a version, or None."""
        checkpoint = self._undamaged(version)
        if checkpoint is None and self._full is not None:
            full, self._full = self._full, None
            self._listing = await full()
            checkpoint = self._undamaged(version)
        return checkpoint

    def _undamaged(self, version: int) -> Checkpoint | None:
        usable = (c for c in reversed(self._listing.checkpoints) if c.version <= version)
        return next((checkpoint for checkpoint in usable if checkpoint not in self._damaged), None)

    async def _pass_over(self, base: Checkpoint, error: DamagedCheckpointError) -> None:
        self._damaged[base] = str(error)
        older = await self._base(base.version)
        if self._listing.hole(0 if older is None else older.version + 1, base.version) is not None:
            raise self._corrupt() from error

    def _corrupt(self) -> CorruptLog:
        reasons = "; ".join(self._damaged.values())
        return CorruptLog(
            f"A checkpoint of {self._log.uri} that version {self.version} needs is damaged: {reasons}.",
            remedy="bring the file back from a backup; if all commit files from version 0 on exist, "
            "deleting it is enough.",
        )
