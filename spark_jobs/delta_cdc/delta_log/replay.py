"""Rebuild a version from commits and a checkpoint.

The replay reads newer commits first, because the newest action of a kind counts: so it often ends without
the checkpoint. It skips an unreadable checkpoint if an older one, or the commits from version 0 on, can
replace it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from delta_cdc.core.concurrency import gathered
from delta_cdc.core.errors import CorruptLog
from delta_cdc.delta_log.actions import Add, MetaData, Protocol, Remove, Txn
from delta_cdc.delta_log.checkpoint import DamagedCheckpointError, read_files, read_state

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence

    from delta_cdc.delta_log.actions import Action, Commit, Key
    from delta_cdc.delta_log.listing import Checkpoint, Listing
    from delta_cdc.delta_log.log_files import LogFiles
    from delta_cdc.delta_log.requests import Storage

_FIRST_BATCH = 4
_LARGEST_BATCH = 64
#: Number of commits whose lists of files are in memory at once.
_FILES_BATCH = 16


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
                    remedy="bring the log back from a backup.",
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
        """
        active: dict[Key, Add] = {}
        decided: set[Key] = set()
        undecided = None if wanted is None else set(wanted)
        version = self.version
        while version >= 0 and (undecided is None or undecided):
            base = await self._base(version)
            if base is not None and base.version == version:
                try:
                    checkpoint_files = await read_files(self._storage, base, undecided)
                except DamagedCheckpointError as error:
                    await self._pass_over(base, error)
                    continue
                return {**{key: add for key, add in checkpoint_files.items() if key not in decided}, **active}
            floor = -1 if base is None else base.version
            versions = range(version, max(floor, version - _FILES_BATCH), -1)
            changes_of = partial(self._changes, wanted=undecided)
            for changes in await gathered(map(changes_of, versions), limit=_FILES_BATCH):
                for action in changes:
                    key = action.key
                    if undecided is not None and key not in undecided:
                        continue
                    if isinstance(action, Add) and key not in decided:
                        active.setdefault(key, action)
                    decided.add(key)
                    if undecided is not None:
                        undecided.discard(key)
            version = versions[-1] - 1
        return active

    # -- inside -----------------------------------------------------------------------------------
    async def _changes(self, version: int, *, wanted: Collection[Key] | None) -> list[Add | Remove]:
        """Return a commit's actions on the wanted files; of all files (None), without their statistics."""
        return [
            a.with_rows(a.rows) if wanted is None else a
            async for a in self._log.actions(version)
            if isinstance(a, Add | Remove) and (wanted is None or a.key in wanted)
        ]

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
