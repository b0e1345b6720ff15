"""A table's log: newest version, commits, and the state at a version."""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from delta_cdc.core import sql
from delta_cdc.core.codec import INTEGERS, UnreadableJson
from delta_cdc.core.errors import CorruptLog, UnsupportedTable
from delta_cdc.core.retention import FILE_RETENTION, unreadable_retention
from delta_cdc.delta_log import clock, deletion_vectors
from delta_cdc.delta_log.actions import LARGE_LINE
from delta_cdc.delta_log.checkpoint import count_rows
from delta_cdc.delta_log.log_files import SMALL, LogFiles, parsed_json
from delta_cdc.delta_log.replay import AnyRow, History, Replay, Totals
from delta_cdc.delta_log.schema_changes import read_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence

    from delta_cdc.delta_log.actions import Add, Commit, FileAction, Key, MetaData, Protocol
    from delta_cdc.delta_log.listing import Commits

T = TypeVar("T")
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
#: Delta starts to make file times increase this many commits before the first requested version.
_LOOK_BACK = 100


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
    _count_files: Callable[[], Totals] = field(repr=False, compare=False, default=Totals)
    _has_rows: Callable[[], bool] = field(repr=False, compare=False, default=lambda: False)

    @property
    def num_files(self) -> int:
        """Return the number of active files. This reads the log back to the newest checkpoint."""
        return self._totals.files

    @property
    def num_masked_files(self) -> int:
        """Return the number of active files with masked rows, at the cost of :attr:`num_files`."""
        return self._totals.masked_files

    @property
    def num_folders(self) -> int:
        """Return the number of folders with active files: the number of partitions with rows."""
        return len(self._totals.folders)

    @cached_property
    def is_empty(self) -> bool:
        """Return whether the table has no visible row.

        If the log has no row count for a file, this reads the file's footer. A missing or unreadable file
        counts as a file with rows.
        """
        return not self._has_rows()

    @property
    def num_bytes(self) -> int:
        """Return the size of the active files, at the cost of :attr:`num_files`."""
        return self._totals.bytes

    @property
    def num_rows(self) -> int | None:
        """Return the number of visible rows, at the cost of :attr:`num_files`; None if the log lacks it."""
        return self._totals.rows

    @cached_property
    def _totals(self) -> Totals:
        return self._count_files()


class DeltaLog(LogFiles):
    """Reads one table's log. Every method is asynchronous; :func:`run_sync` runs one synchronously.

    Every method may raise :class:`~delta_cdc.core.errors.StoreUnavailable`, if storage doesn't answer or
    refuses, and :class:`~delta_cdc.core.errors.CorruptLog`, if a file that it needs is damaged.

    :param table: path or URI
    :param storage_options: credentials and client options, as delta-rs names them
    """

    def __init__(self, table: str, storage_options: dict[str, str] | None = None) -> None:
        super().__init__(table, storage_options)
        self._opened: Replay | None = None
        self._history: History | None = None

    # -- versions ---------------------------------------------------------------------------------
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
        commits = (await self._full_listing()).commits
        # In a thread, because there may be millions.
        plain, times, stamped = await asyncio.to_thread(_by_kind_of_time, commits, state.version, since)

        async def stamp(position: int) -> int:
            return await self._in_commit_timestamp(stamped[position])

        if stamped:
            # As Delta does: the first in-commit timestamp decides on which side to search.
            first = await stamp(0)
            if timestamp_ms >= first:
                index = await clock.search(len(stamped), stamp, timestamp_ms, bound)
                return None if index is None else stamped[index]
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
        listed = (await self._listed(f"{first:020d}")).commits
        plain, times, _ = await asyncio.to_thread(_by_kind_of_time, listed, versions[-1], None)
        by_version = dict(zip(plain, times, strict=True))
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
    async def commit(self, version: int) -> Commit:
        """Return one commit.

        :raises VersionsExpired: log cleanup has deleted it
        :raises LogGap: it is missing, but not by log cleanup
        """
        (commit,) = await self.commits([version])
        return commit

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
            self._forget_contents()
        replay, protocol, metadata = await self._replay_state(version)
        if len(metadata.schema_string) > LARGE_LINE:
            columns = await asyncio.to_thread(self.columns, metadata, replay.version)
        else:
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
            _count_files=lambda: run_sync(replay.walk(Totals())),
            _has_rows=lambda: run_sync(replay.walk(AnyRow(partial(count_rows, self._storage)))).is_enough,
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

    async def columns_with_nulls(self, version: int) -> frozenset[str]:
        """Return the columns, by their names in the files, that certainly have a NULL, from statistics alone.

        A column that is missing here may have NULLs, too: writers may omit the statistics of a column, and
        those of a file with masked rows count rows that are gone.
        """
        replay, _, _ = await self._replay_state(version)
        described = await replay.files(set(await replay.files()))
        return frozenset(name for file in described.values() for name in file.columns_with_nulls())

    async def checksum_size(self, version: int) -> int | None:
        """Return the bytes of all active files as a version's checksum file records them, else None."""
        content = await self._storage.read(f"_delta_log/{version:020d}.crc")
        try:
            # The file may list all files of the table.
            size = (await parsed_json(content)).get("tableSizeBytes") if content is not None else None
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
        if len(vector_bytes) <= SMALL:
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
        if version is None:
            # An older version with such a property is history: the remedy may be done.
            self._refuse_retention(metadata)
        return replay, protocol, metadata

    async def _replay(self, version: int | None) -> Replay:
        listing, full = await self._newest_listing(version)
        newest = listing.commits.newest
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

    def _refuse_retention(self, metadata: MetaData) -> None:
        kept = unreadable_retention(metadata.configuration)
        if kept is not None:
            raise UnsupportedTable(
                f"Delta cannot read the table {self.uri}, because its property {FILE_RETENTION} is {kept!r}: "
                "months and years have no fixed length.",
                remedy=f"{sql.set_properties(self.uri, {FILE_RETENTION: 'interval 30 days'})}. Spark "
                "may report an internal error; the property is set all the same.",
            )


def _by_kind_of_time(
    commits: Commits, last: int, since: int | None
) -> tuple[array[int], list[int], array[int]]:
    """Return the versions up to the last one that have file times, with these times, and the other versions.

    :param since: the first version with in-commit timestamps; None: no version has one
    """
    versions = array("q", (version for version in commits if version <= last))
    count = len(versions) if since is None else bisect_left(versions, since)
    plain = versions[:count]
    return plain, clock.increasing(commits[version] for version in plain), versions[count:]


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
