"""Rebuild a version from commits and a checkpoint.

The replay goes backwards, because the newest action of a kind counts: it often ends before it reaches the
checkpoint. It skips an unreadable checkpoint if an older one, or the commits from version 0 on, can replace
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from delta_cdc.core.concurrency import gathered
from delta_cdc.core.errors import CorruptLog
from delta_cdc.delta_log.actions import Add, Remove
from delta_cdc.delta_log.checkpoint import (
    ActiveFile,
    DamagedCheckpointError,
    key_of,
    num_records,
    read_adds,
    read_files,
    read_state,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection

    from delta_cdc.delta_log import actions
    from delta_cdc.delta_log.actions import Action, Commit, MetaData
    from delta_cdc.delta_log.checkpoint import Key
    from delta_cdc.delta_log.listing import Checkpoint, Listing
    from delta_cdc.delta_log.requests import Storage

_FIRST_BATCH = 4
_LARGEST_BATCH = 128
#: How many commits have their lists of files in memory at once.
_FILES_BATCH = 16


class Commits(Protocol):
    """Source of the commits; :class:`delta_cdc.delta_log.table.DeltaLog`."""

    uri: str

    def actions(self, version: int) -> AsyncIterator[Action]:
        """Yield a commit's actions."""

    async def commits(self, versions: range) -> tuple[Commit, ...]:
        """Return the commits of a range, ascending."""

    async def missing(self, version: int) -> Exception:
        """Build the error for a missing commit file."""


class Replay:
    """One version of a table.

    :param listing: of the log, from the checkpoint to use
    :param full: lists the whole log; called only if ``listing`` is not enough
    """

    def __init__(
        self,
        log: Commits,
        storage: Storage,
        *,
        version: int,
        listing: Listing,
        full: Callable[[], Awaitable[Listing]] | None,
    ) -> None:
        self.version = version
        self._log = log
        self._storage = storage
        self._listing = listing
        self._full = full
        self._damaged: dict[Checkpoint, str] = {}
        self._next = version
        self._batch = _FIRST_BATCH
        self._over = False
        self._metadata: MetaData | None = None
        self._protocol: actions.Protocol | None = None
        self._txns: dict[str, int] = {}

    async def check(self) -> None:
        """Reject a version if some of its files are missing.

        :raises VersionsExpired: the log was cleaned
        :raises LogGap: a commit file is missing
        :raises CorruptLog: the checkpoint that would replace it cannot be read
        """
        base = await self._base(self.version)
        floor = -1 if base is None else base.version
        hole = self._listing.hole(floor + 1, self.version)
        if hole is None and (self.version in self._listing.commits or floor == self.version):
            return
        if self._damaged:
            raise self._corrupt()
        raise await self._log.missing(self.version if hole is None else hole)

    async def state(self) -> tuple[actions.Protocol, MetaData]:
        """Return protocol and metadata.

        :raises CorruptLog: one of them is missing
        """
        while self._protocol is None or self._metadata is None:
            if not await self._further():
                what = "protocol" if self._protocol is None else "metaData"
                raise CorruptLog(
                    f"The log of {self._log.uri} has no {what} up to version {self.version}.",
                    remedy="bring the log back from a backup.",
                )
        return self._protocol, self._metadata

    async def transaction(self, app_id: str) -> int | None:
        """Return the version an application recorded last."""
        while app_id not in self._txns:
            if not await self._further():
                return None
        return self._txns[app_id]

    async def transactions(self) -> dict[str, int]:
        """Return the version that each application recorded last."""
        while await self._further():
            pass
        return dict(self._txns)

    async def files(self) -> dict[Key, ActiveFile]:
        """Return the active files by path and deletion vector."""
        active: dict[Key, ActiveFile] = {}
        gone: set[Key] = set()

        def take(action: Add | Remove) -> bool:
            file = _file(action)
            if isinstance(action, Add) and file.key not in gone:
                active.setdefault(file.key, file)
            gone.add(file.key)
            return True

        async def finish(base: Checkpoint) -> None:
            for file in await read_files(self._storage, base):
                if file.key not in gone:
                    active.setdefault(file.key, file)

        await self._back(take, finish)
        return active

    async def find(self, wanted: Collection[Key]) -> dict[Key, Add]:
        """Return those of the given files that are active, with their ``add`` actions.

        Ends as soon as every file is resolved.
        """
        active: dict[Key, Add] = {}
        open_ = set(wanted)

        def take(action: Add | Remove) -> bool:
            key = key_of(action)
            if key in open_:
                open_.discard(key)
                if isinstance(action, Add):
                    active[key] = action
            return bool(open_)

        async def finish(base: Checkpoint) -> None:
            active.update(await read_adds(self._storage, base, open_))

        if open_:
            await self._back(take, finish)
        return active

    async def _back(
        self, take: Callable[[Add | Remove], bool], finish: Callable[[Checkpoint], Awaitable[None]]
    ) -> None:
        """Go backwards through the actions on files, up to a checkpoint.

        :param take: gets each action of the commits, newest commit first; returns whether it needs more
        :param finish: gets the checkpoint, if one is reached
        """
        version = self.version
        while version >= 0:
            base = await self._base(version)
            if base is not None and base.version == version:
                try:
                    await finish(base)
                except DamagedCheckpointError as error:
                    await self._pass_over(base, error)
                    continue
                return
            floor = -1 if base is None else base.version
            versions = range(version, max(floor, version - _FILES_BATCH), -1)
            more = True
            for changes in await gathered(map(self._changes, versions), limit=_FILES_BATCH):
                for action in changes:
                    more = take(action)
            if not more:
                return
            version = versions[-1] - 1

    # -- inside -----------------------------------------------------------------------------------
    async def _changes(self, version: int) -> list[Add | Remove]:
        """Return a commit's file actions."""
        return [a async for a in self._log.actions(version) if isinstance(a, Add | Remove)]

    async def _further(self) -> bool:
        """Read further back; return whether anything was left."""
        if self._over or self._next < 0:
            return False
        base = await self._base(self._next)
        if base is not None and base.version == self._next:
            try:
                state = await read_state(self._storage, base)
            except DamagedCheckpointError as error:
                await self._pass_over(base, error)
                return True
            self._over = True
            self._metadata = self._metadata or state.metadata
            self._protocol = self._protocol or state.protocol
            for app_id, txn in state.txns.items():
                self._txns.setdefault(app_id, txn.version)
            return True
        floor = -1 if base is None else base.version
        versions = range(max(floor + 1, self._next - self._batch + 1), self._next + 1)
        self._batch = min(self._batch * 2, _LARGEST_BATCH)
        for commit in reversed(await self._log.commits(versions)):
            self._take(commit)
        self._next = versions.start - 1
        return True

    def _take(self, commit: Commit) -> None:
        self._metadata = self._metadata or commit.metadata
        self._protocol = self._protocol or commit.protocol
        for txn in commit.txns:
            self._txns.setdefault(txn.app_id, txn.version)

    async def _base(self, version: int) -> Checkpoint | None:
        """Return the newest readable checkpoint up to a version; None if it does not exist."""
        found = self._undamaged(version)
        if found is None and self._full is not None:
            full, self._full = self._full, None
            self._listing = await full()
            found = self._undamaged(version)
        return found

    def _undamaged(self, version: int) -> Checkpoint | None:
        return next((base for base in self._listing.bases(version) if base not in self._damaged), None)

    async def _pass_over(self, base: Checkpoint, error: DamagedCheckpointError) -> None:
        self._damaged[base] = str(error)
        older = await self._base(base.version)
        if self._listing.hole(0 if older is None else older.version + 1, base.version) is not None:
            raise self._corrupt() from error

    def _corrupt(self) -> CorruptLog:
        reasons = "; ".join(self._damaged.values())
        return CorruptLog(
            f"A checkpoint of {self._log.uri} that version {self.version} needs is damaged: {reasons}.",
            remedy="bring the file back from a backup; where all commit files from version 0 on are there, "
            "deleting it is enough.",
        )


def _file(action: Add | Remove) -> ActiveFile:
    stats = action.stats if isinstance(action, Add) else None
    return ActiveFile(unquote(action.path), action.deletion_vector, num_records(stats))
