"""A table's log: newest version, commits, and the state at a version."""

from __future__ import annotations

import asyncio
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from delta_cdc.core import codec
from delta_cdc.core.codec import INTEGERS, UnreadableJson
from delta_cdc.core.errors import (
    CorruptLog,
    LogGap,
    NotADeltaTable,
    TableNotFound,
    UnsupportedTable,
    VersionsExpired,
)
from delta_cdc.core.retention import LOG_GAP_REMEDY, expired
from delta_cdc.core.uris import canonical_uri, local_path
from delta_cdc.delta_log import clock, deletion_vectors
from delta_cdc.delta_log.actions import (
    LARGE_LINE,
    NO_ACTION,
    BadActionError,
    CommitFold,
    CommitInfo,
    Lines,
    LongLineError,
    corrupt_commit,
    long_line,
    parse_lines,
)
from delta_cdc.delta_log.checkpoint import count_rows
from delta_cdc.delta_log.listing import of_a_commit, read_names
from delta_cdc.delta_log.replay import History, Replay
from delta_cdc.delta_log.requests import LOG, Storage
from delta_cdc.delta_log.schema_changes import read_schema

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Callable,
        Collection,
        Coroutine,
        Iterable,
        Sequence,
    )

    from delta_cdc.delta_log.actions import (
        Action,
        Add,
        Commit,
        FileAction,
        Key,
        MetaData,
        Protocol,
    )
    from delta_cdc.delta_log.listing import Listing
    from delta_cdc.delta_log.requests import Opened

T = TypeVar("T")
_LOG_ENTRY = re.compile(r"^_delta_log(/|$)")
_DATA_FILE = re.compile(r"(^|/)part-[^/]+\.parquet$")
_CATALOG_MANAGED = ("catalogManaged", "catalogOwned-preview")
#: Reader features that do not change how to read the log; Spark, which reads the data, has its own list.
_READABLE = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
_NEWEST_READER = 3
#: Maximum bytes of one commit file, and of all commit files, whose actions are kept for a second reader.
_SMALL, _ROOM = 64 * 1024, 4 * 1024 * 1024
#: After this many consecutive versions that exist, one listing is cheaper than further requests.
_WALK = 8
#: Delta starts to make file times increase this many commits before the first requested version.
_LOOK_BACK = 100
_LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"


@dataclass(frozen=True)
class TableState:
    """A table at one version.

    :param created_time: epoch milliseconds, as ``metaData.createdTime`` has it
    :param features: reader and writer features together
    """

    uri: str
    table_id: str
    version: int
    configuration: dict[str, str]
    schema_columns: tuple[str, ...]
    schema_string: str
    partition_columns: tuple[str, ...]
    created_time: int | None
    features: tuple[str, ...]
    _list_files: Callable[[], dict[Key, Add]] = field(repr=False, compare=False, default=dict)
    _count_rows: Callable[[str], int | None] = field(repr=False, compare=False, default=lambda path: None)

    @cached_property
    def num_files(self) -> int:
        """Return the number of active files. This reads the log back to the newest checkpoint."""
        return len(self._files)

    @cached_property
    def num_masked_files(self) -> int:
        """Return the number of active files with masked rows, at the cost of :attr:`num_files`."""
        return sum(file.deletion_vector is not None for file in self._files.values())

    @cached_property
    def num_folders(self) -> int:
        """Return the number of folders with active files: the number of partitions with rows."""
        return len({path.rpartition("/")[0] for path, _ in self._files})

    @cached_property
    def is_empty(self) -> bool:
        """Return whether the table has no visible row.

        If the log has no row count for a file, this reads the file's footer. A missing or unreadable file
        counts as a file with rows.
        """
        return not any(self._has_rows(path, file) for (path, _), file in self._files.items())

    @cached_property
    def _files(self) -> dict[Key, Add]:
        return self._list_files()

    def _has_rows(self, path: str, file: Add) -> bool:
        rows = self._count_rows(path) if file.rows is None else file.rows
        return rows is None or rows > file.masked_rows


class DeltaLog:
    """Reads one table's log. Every method is asynchronous; :func:`run_sync` runs one synchronously.

    Every method may raise :class:`~delta_cdc.core.errors.StoreUnavailable`, if storage doesn't answer or
    refuses, and :class:`~delta_cdc.core.errors.CorruptLog`, if a file that it needs is damaged.

    :param table: path or URI
    :param storage_options: credentials and client options, as delta-rs names them
    """

    def __init__(self, table: str, storage_options: dict[str, str] | None = None) -> None:
        self.uri = canonical_uri(table)
        self._storage = Storage(self.uri, storage_options)
        self._opened: Replay | None = None
        self._history: History | None = None
        #: The newest small commit files that :meth:`find` has read.
        self._contents: dict[int, bytes] = {}
        self._room = _ROOM

    # -- versions ---------------------------------------------------------------------------------
    async def newest_version(self, after: int | None = None) -> int:
        """Return the newest version. With ``after``, this takes one request if no newer version exists.

        :param after: a known version: look for later versions only, first one by one, then, if there are
            many, by a listing
        :raises TableNotFound: the location is empty or does not exist
        :raises NotADeltaTable: the location has files, but no commit
        :raises LogGap: a commit file before the newest is missing
        """
        if after is None:
            listing, _ = await self._newest_listing(None)
            return max(listing.commits)
        for _ in range(_WALK):
            if not await self.has_commit(after + 1):
                return after
            after += 1
        listing = read_names(await self._storage.list_log(f"{after:020d}.json"))
        return max(listing.commits, default=after)

    async def oldest_version(self) -> int:
        """Return the oldest version whose commit file still exists."""
        return min((await self._full_listing()).commits)

    async def has_commit(self, version: int) -> bool:
        """Return whether a version's commit file exists: one request."""
        return version >= 0 and await self._storage.head(_path(version)) is not None

    async def fingerprint(self, version: int) -> str | None:
        """Return a fingerprint that distinguishes commit files of the same version: one request.

        :return: an opaque text; None if the file does not exist
        """
        entry = await self._storage.head(_path(version)) if version >= 0 else None
        if entry is None:
            return None
        return f"{entry.e_tag} {entry.size} {entry.modified} {await self._changed(version)}"

    async def _changed(self, version: int) -> str:
        """Return inode and change time of a commit file on a disk: a copied file keeps its other times."""
        folder = local_path(self.uri)
        if folder is None:
            return ""
        try:
            status = await asyncio.to_thread(os.stat, Path(folder, _path(version)))
        except OSError:
            return ""
        return f"{status.st_ino} {status.st_ctime_ns}"

    async def version_at(
        self, timestamp_ms: int, *, bound: clock.Bound, state: TableState | None = None
    ) -> int | None:
        """Return the version that a time refers to, among those whose commit files exist.

        A commit's time is its in-commit timestamp, from the version on that enabled these timestamps. Earlier
        commits have the modification time of their file; :mod:`delta_cdc.delta_log.clock` makes these times
        increase as Delta does.

        :param timestamp_ms: epoch milliseconds
        :param bound: ``start`` rounds up, to the first commit at or after the time; ``end`` rounds down, to
            the last one at or before it
        :param state: the table's newest state, if known
        :return: None for a start later than the newest commit, and for an end earlier than the oldest one
        """
        state = state or await self.snapshot()
        try:
            since = clock.in_commit_since(state.configuration)
        except ValueError as error:
            raise CorruptLog(
                f"The version since which {self.uri} has in-commit timestamps is not readable ({error}).",
                remedy="correct the table property delta.inCommitTimestampEnablementVersion.",
            ) from error
        listing = await self._full_listing()
        versions = [version for version in listing.commits if version <= state.version]
        stamped = [] if since is None else [version for version in versions if version >= since]
        plain = versions[: len(versions) - len(stamped)]

        async def stamp(position: int) -> int:
            return await self._in_commit_timestamp(stamped[position])

        if stamped:
            # As Delta does: the first in-commit timestamp decides on which side to search.
            first = await stamp(0)
            if timestamp_ms >= first:
                index = await clock.search(len(stamped), stamp, timestamp_ms, bound)
                return None if index is None else stamped[index]
        times = clock.increasing([listing.commits[version].modified for version in plain])
        index = clock.choose(times, timestamp_ms, bound)
        if index is not None:
            return plain[index]
        return stamped[0] if stamped and bound == "start" else None

    async def timestamps(self, versions: Sequence[int], commits: Iterable[Commit] = ()) -> dict[int, int]:
        """Return commit timestamps as Delta's change feed has them (``_commit_timestamp``).

        A commit's timestamp is its in-commit timestamp, else the modification time of its file. A file time
        that is not later than its predecessor becomes the predecessor's plus one millisecond; Delta starts
        this a hundred commits before the first version. So, as in the feed, a version's time may differ if
        the caller also requests much older versions.

        :param versions: ascending
        :param commits: commits that the caller has already read; this does not read them again
        :return: version -> epoch milliseconds
        :raises VersionsExpired: log cleanup has deleted one of them
        :raises LogGap: one of them is missing, but not by log cleanup
        """
        if not versions:
            return {}
        first = max(versions[0] - _LOOK_BACK, 0)
        listing = read_names(await self._storage.list_log(f"{first:020d}"))
        listed_versions = [version for version in listing.commits if version <= versions[-1]]
        times = clock.increasing([listing.commits[version].modified for version in listed_versions])
        by_version = dict(zip(listed_versions, times, strict=True))
        known_commits = {commit.version: commit for commit in commits}
        for commit in await self.commits(sorted(set(versions) - set(known_commits))):
            known_commits[commit.version] = commit
        for version in versions:
            stamp = known_commits[version].info.in_commit_timestamp
            if stamp is not None:
                by_version[version] = stamp
            elif version not in by_version:
                raise await self.missing(version)
        return {version: by_version[version] for version in versions}

    # -- commits ----------------------------------------------------------------------------------
    async def actions(self, version: int) -> AsyncGenerator[Action]:
        """Yield a commit's actions in the order of the file; read the file in chunks.

        A small file that the log has already read is not read again.

        :raises VersionsExpired: log cleanup has deleted it
        :raises LogGap: it is missing, but not by log cleanup
        """
        async with self._open(version) as opened:
            if opened is None:
                raise await self.missing(version)
            async for actions in self._parsed(version, opened, Lines()):
                for action in actions:
                    yield action

    async def commit(self, version: int) -> Commit:
        """Return one commit.

        :raises VersionsExpired: log cleanup has deleted it
        :raises LogGap: it is missing, but not by log cleanup
        """
        (commit,) = await self.commits([version])
        return commit

    async def find(
        self, version: int, *, enough: Callable[[CommitFold], bool] | None = None, hashed: bool = True
    ) -> Commit | None:
        """Return one commit, or None if its file does not exist. This reads the file in any case.

        :param enough: the actions after those that are enough are not read: the commit does not have them
        :param hashed: False: the rest of the file is not read either, and ``sha256`` is that of the part
        """
        if version < 0:
            return None
        async with self._storage.open(_path(version)) as opened:
            if opened is None:
                return None
            return await self._folded(version, opened, enough, hashed=hashed)

    async def commits(self, versions: Sequence[int]) -> tuple[Commit, ...]:
        """Return the commits of some versions; read those that :meth:`history` lacks, concurrently.

        :raises VersionsExpired: log cleanup has deleted one of them
        :raises LogGap: one of them is missing, but not by log cleanup
        """
        commits: list[Commit] = []
        for version, commit in zip(versions, await self.history().read(versions), strict=True):
            if commit is None:
                # Report the first missing version, regardless of the order of answers.
                raise await self.missing(version)
            commits.append(commit)
        return tuple(commits)

    def history(self) -> History:
        """Return the history, which reads commits for a walk from newer to older versions.

        Each call returns the same history, so a second walk over the same commits reads nothing. The first
        :meth:`snapshot` without a version uses this history too; each later one starts a new history.
        """
        if self._history is None:
            self._history = History(self.find)
        return self._history

    # -- states -----------------------------------------------------------------------------------
    async def snapshot(self, version: int | None = None) -> TableState:
        """Return the table as of a version (default: newest).

        :raises TableNotFound: the location is empty or does not exist
        :raises NotADeltaTable: the location has files, but no commit
        :raises VersionsExpired: the version can no longer be rebuilt
        :raises LogGap: a commit file that the version needs is missing
        :raises UnsupportedTable: for catalog-managed tables and unknown reader features
        """
        if version is None:
            self._contents.clear()
            self._room = _ROOM
        replay, protocol, metadata = await self._replay_state(version)
        columns = self.columns(metadata, replay.version)
        if version is None:
            self._opened, self._history = replay, replay.history
        return TableState(
            uri=self.uri,
            table_id=metadata.id,
            version=replay.version,
            configuration=dict(metadata.configuration),
            schema_columns=columns,
            schema_string=metadata.schema_string,
            partition_columns=metadata.partition_columns,
            created_time=metadata.created_time,
            features=tuple(sorted({*protocol.reader_features, *protocol.writer_features})),
            _list_files=lambda: run_sync(replay.files()),
            _count_rows=lambda path: count_rows(self._storage, path),
        )

    async def transaction(self, app_id: str) -> int | None:
        """Return the version that an application recorded last.

        This reads the table's version that :meth:`snapshot` without a version opened last, else the newest
        version.
        """
        return await (await self._newest()).transaction(app_id)

    async def transactions(self) -> dict[str, int]:
        """Return the version that each application recorded last; see :meth:`transaction`."""
        return await (await self._newest()).transactions()

    async def files(self, version: int) -> frozenset[tuple[str, str, int]]:
        """Return path, deletion vector and number of masked rows of each active file of a version.

        Two versions with equal results have equal rows.
        """
        replay, _, _ = await self._replay_state(version)
        return frozenset(
            (*key, 0 if file.deletion_vector is None else file.deletion_vector.cardinality)
            for key, file in (await replay.files()).items()
        )

    async def checksum_size(self, version: int) -> int | None:
        """Return the bytes of all active files as a version's checksum file records them, else None."""
        content = await self._storage.read(f"_delta_log/{version:020d}.crc")
        try:
            # In a thread, because the file may list all files of the table.
            parsed = await asyncio.to_thread(codec.parsed, content) if content is not None else {}
            size = parsed.get("tableSizeBytes")
        except (UnreadableJson, AttributeError):
            # A checksum file is optional; the log is complete without it.
            return None
        return size if isinstance(size, int) and size in INTEGERS else None

    async def described(self, version: int) -> tuple[Protocol, MetaData]:
        """Return a version's protocol and metadata from the log; raise the errors of :meth:`snapshot`."""
        _, protocol, metadata = await self._replay_state(version)
        return protocol, metadata

    async def active(self, version: int, wanted: Collection[Key]) -> dict[Key, Add]:
        """Return the given files that are part of a version, with all details that a reader needs.

        :param wanted: the files' keys
        """
        return await (await self._replay(version)).files(wanted)

    async def masked(self, file: FileAction) -> deletion_vectors.Positions:
        """Return the positions of a file's masked rows.

        :raises UnsupportedVectorError: its deletion vector cannot be read here
        :raises UnreadableVectorError: its deletion vector does not match the log
        :raises FileNotFoundError: the file of its deletion vector does not exist
        """
        vector = file.deletion_vector
        if vector is None:
            return {}
        kind, path_or_inline, size = vector.storage_type, vector.path_or_inline, vector.size_in_bytes
        if path_or_inline is None or size is None or (kind != "i" and vector.offset is None):
            raise deletion_vectors.UnreadableVectorError("the log does not say where it is")
        if min(size, vector.offset or 0) < 0:
            raise deletion_vectors.UnreadableVectorError("its size or offset is negative")
        if max(size, len(path_or_inline)) > deletion_vectors.LARGEST:
            raise deletion_vectors.UnsupportedVectorError("it is too large to be read here")
        if kind == "i":
            return await asyncio.to_thread(deletion_vectors.inline_positions, path_or_inline, size)
        path = deletion_vectors.file_of(path_or_inline) if kind == "u" else path_or_inline
        vector_bytes = await self._storage.read_range(path, vector.offset or 0, size + 8)
        if vector_bytes is None:
            raise deletion_vectors.UnsupportedVectorError("its deletion vector cannot be looked up")
        if len(vector_bytes) <= _SMALL:
            return deletion_vectors.stored_positions(vector_bytes)
        return await asyncio.to_thread(deletion_vectors.stored_positions, vector_bytes)

    def columns(self, metadata: MetaData, version: int) -> tuple[str, ...]:
        """Return the columns of a schema, which then is in the form that all readers of schemas expect.

        :param version: the version that has the schema, for the error
        :raises CorruptLog: it is not readable
        """
        try:
            return tuple(entry["name"] for entry in read_schema(metadata.schema_string)["fields"])
        except UnreadableJson as error:
            raise CorruptLog(
                f"The schema of {self.uri} as of version {version} is not readable: {error}.",
                remedy="bring the log back from a backup.",
            ) from error

    # -- presence ---------------------------------------------------------------------------------
    async def has_file(self, path: str) -> bool:
        """Return whether a data or change file named by an action exists: one request.

        :param path: as in the action: percent-encoded; relative to the table, or an absolute URI, as in
            shallow clones. A file whose scheme cannot be read here counts as existing
        """
        return await self._storage.has(path)

    async def left_over(self) -> bool:
        """Return whether the location is empty, or holds only the remains of a crash before version 0."""
        path = local_path(self.uri)
        if path is not None:
            with self._storage.named():
                return await asyncio.to_thread(_local_left_over, Path(path))
        return _stored_left_over(await self._storage.list_all())

    async def missing(self, version: int) -> LogGap | VersionsExpired:
        """Build the error for a missing commit file."""
        versions = list((await self._full_listing()).commits)
        if version < versions[0]:
            return expired(
                f"Version {version} of {self.uri} was cleaned from the log (the oldest is {versions[0]})."
            )
        return LogGap(
            f"The commit file of version {version} of {self.uri} is missing (the newest is {versions[-1]}).",
            remedy=LOG_GAP_REMEDY,
        )

    # -- inside -----------------------------------------------------------------------------------
    async def _newest(self) -> Replay:
        if self._opened is None:
            await self.snapshot()
        assert self._opened is not None
        return self._opened

    async def _replay_state(self, version: int | None) -> tuple[Replay, Protocol, MetaData]:
        replay = await self._replay(version)
        protocol, metadata = await replay.state()
        self._refuse_unsupported(protocol)
        return replay, protocol, metadata

    @asynccontextmanager
    async def _open(self, version: int) -> AsyncIterator[AsyncIterator[bytes] | None]:
        """Open a commit file, or what is kept of it; give None if it does not exist."""
        content = self._contents.get(version)
        if content is not None or version < 0:
            yield None if content is None else _chunks(content)
            return
        async with self._storage.open(_path(version)) as opened:
            yield None if opened is None else opened[1]

    async def _folded(
        self,
        version: int,
        opened: Opened,
        enough: Callable[[CommitFold], bool] | None = None,
        *,
        hashed: bool = True,
    ) -> Commit:
        entry, chunks = opened
        if entry.size <= min(_SMALL, self._room):
            content = b"".join([chunk async for chunk in chunks])
            self._room -= len(content) - len(self._contents.get(version, b""))
            self._contents[version] = content
            chunks = _chunks(content)
        fold, lines = CommitFold(), Lines()
        async with aclosing(self._parsed(version, chunks, lines)) as parsed:
            async for actions in parsed:
                for action in actions:
                    fold.add(action)
                if enough is not None and enough(fold):
                    break
        if hashed:
            # Nothing is left unless the actions were enough.
            async for chunk in chunks:
                lines.skip(chunk)
        return fold.commit(version, sha256=lines.sha256, modified=entry.modified)

    async def _parsed(
        self, version: int, chunks: AsyncIterator[bytes], lines: Lines
    ) -> AsyncGenerator[list[Action]]:
        """Yield the actions of each piece of a commit file."""
        is_empty = True
        try:
            async for chunk in chunks:
                actions = await _parsed_lines(lines.feed(chunk), lines.number)
                is_empty = is_empty and not actions
                yield [action for action in actions if action is not None]
            actions = await _parsed_lines(lines.close(), lines.number)
        except BadActionError as error:
            raise corrupt_commit(version, self.uri, str(error)) from error
        except LongLineError as error:
            raise long_line(version, self.uri, str(error)) from error
        if is_empty and not actions:
            raise corrupt_commit(version, self.uri, NO_ACTION)
        yield [action for action in actions if action is not None]

    async def _in_commit_timestamp(self, version: int) -> int:
        async with aclosing(self.actions(version)) as actions:
            async for action in actions:
                if isinstance(action, CommitInfo) and action.in_commit_timestamp is not None:
                    return action.in_commit_timestamp
        raise corrupt_commit(version, self.uri, "it has no inCommitTimestamp, and the table has them on")

    async def _full_listing(self) -> Listing:
        listing = read_names(await self._storage.list_log())
        if not listing.commits:
            raise await self._absence_error(traces=listing.traces)
        return listing

    async def _newest_listing(self, version: int | None) -> tuple[Listing, bool]:
        """Return a listing of the log from the newest checkpoint (up to a version) to the end.

        ``_last_checkpoint`` only suggests where to start: if a listing from there has no commit, this lists
        the whole log.

        :return: the listing, and whether it covers the whole log
        """
        hint = await self._hint()
        listing, full = None, False
        if hint is not None and (version is None or hint <= version):
            listing = read_names(await self._storage.list_log(f"{hint:020d}"))
        if listing is None or not listing.commits:
            listing, full = await self._full_listing(), True
        if version is None:
            self._refuse_holes(listing)
        return listing, full

    def _refuse_holes(self, listing: Listing) -> None:
        newest = max(listing.commits)
        checkpoint = listing.checkpoints[-1].version if listing.checkpoints else -1
        hole = listing.hole(max(min(listing.commits), checkpoint + 1), newest)
        if checkpoint > newest:
            hole, newest = checkpoint, checkpoint
        if hole is not None:
            raise LogGap(
                f"The commit file of version {hole} of {self.uri} is missing (the newest is {newest}).",
                remedy=LOG_GAP_REMEDY,
            )

    async def _hint(self) -> int | None:
        content = await self._storage.read(_LAST_CHECKPOINT)
        try:
            version = codec.parsed(content or b"").get("version")
        except (UnreadableJson, AttributeError):
            return None
        return version if isinstance(version, int) and 0 <= version < 10**19 else None

    async def _replay(self, version: int | None) -> Replay:
        listing, full = await self._newest_listing(version)
        newest = max(listing.commits)
        if version is not None and (version > newest or version < 0):
            raise await self.missing(version)
        # A newer look at the table starts a new history, unless nothing was looked at.
        known_history = self._history if version is not None or self._opened is None else None
        replay = Replay(
            self,
            self._storage,
            version=newest if version is None else version,
            listing=listing,
            full=None if full else self._full_listing,
            history=History(self.find) if known_history is None else known_history,
        )
        await replay.check()
        return replay

    async def _absence_error(self, *, traces: bool) -> CorruptLog | TableNotFound | NotADeltaTable:
        if traces:
            return CorruptLog(
                f"The log of {self.uri} has no commit file, but other files of a log.",
                remedy="bring the log back from a backup.",
            )
        if await self.left_over():
            return TableNotFound(
                f"There is no Delta table at {self.uri}.",
                remedy="check the location, or create the table.",
            )
        return NotADeltaTable(
            f"There are files at {self.uri}, but no Delta log.",
            remedy="name a Delta table's root folder, or CONVERT TO DELTA first. Of a new target, delete "
            "what a crash of its first load left there.",
        )

    def _refuse_unsupported(self, protocol: Protocol) -> None:
        for feature in _CATALOG_MANAGED:
            if feature in protocol.reader_features or feature in protocol.writer_features:
                raise UnsupportedTable(
                    f"The table {self.uri} is managed by its catalog (feature {feature}): its log does not "
                    "show which commits count.",
                    remedy="use a table that is not catalog-managed.",
                )
        unknown = sorted(set(protocol.reader_features) - _READABLE)
        if unknown or protocol.min_reader_version > _NEWEST_READER:
            features = f"the reader features {', '.join(unknown)}" if unknown else "a protocol"
            raise UnsupportedTable(
                f"The table {self.uri} uses {features} (reader version {protocol.min_reader_version}) that "
                "cannot be read here.",
                remedy="drop the feature from the table, or use a newer release of this package.",
            )


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end: in this thread, or in another one if an event loop already runs here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        looping = False
    else:
        looping = True
    if not looping:
        # Outside of the handler, so that "no running event loop" isn't shown as the cause of an error.
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="delta-cdc-log") as pool:
        return pool.submit(asyncio.run, coroutine).result()


async def _parsed_lines(lines: list[bytes], number: int) -> list[Action | None]:
    """Parse lines: in a thread if the first one is large. Only the first one can be larger than a piece."""
    if lines and len(lines[0]) > LARGE_LINE:
        return await asyncio.to_thread(parse_lines, lines, first=number)
    return parse_lines(lines, first=number)


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _local_left_over(path: Path) -> bool:
    """Return whether a local folder is empty, or holds only the remains of a crash before version 0.

    Unlike plain Parquet files, such remains include the log's folder: Spark creates it before it writes data.
    """
    if not path.is_dir() or not any(path.iterdir()):
        return True
    log = path / LOG
    return log.is_dir() and not any(of_a_commit(entry.name) for entry in log.iterdir())


def _stored_left_over(names: list[str]) -> bool:
    """Do as :func:`_local_left_over` for an object store, where a folder is a marker object or a prefix."""
    if any(of_a_commit(name.removeprefix(f"{LOG}/")) for name in names if name.startswith(f"{LOG}/")):
        return False
    rest = [name for name in names if not _LOG_ENTRY.match(name)]
    return not names or (len(rest) < len(names) and all(map(_DATA_FILE.search, rest)))


def _path(version: int) -> str:
    return f"{LOG}/{version:020d}.json"
