"""The files of a change data feed's file manifest: for each commit, the files that Delta's own reader reads.

If a commit has change files, only these count. Else its added files are inserted rows, and its removed files
are deleted rows. If a file is on both sides, its masked rows changed: newly masked rows were deleted, and
unmasked rows were inserted; the manifest shows only these rows, by a deletion vector that masks all others.

In any unexpected case, Delta's own reader reads the range.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.concurrency import gathered
from delta_cdc.core.errors import CorruptLog, LogGap, VersionsExpired
from delta_cdc.core.manifest_columns import CHANGED_MARK, DELETED_MARK, INSERTED_MARK, side
from delta_cdc.core.properties import COLUMN_MAPPING
from delta_cdc.core.retention import expired
from delta_cdc.delta_log import deletion_vectors
from delta_cdc.delta_log.actions import Add, Cdc, Remove
from delta_cdc.delta_log.manifest_table import Listed, showing
from delta_cdc.delta_log.schema_changes import moved_column

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from delta_cdc.core.steps import ReadRange
    from delta_cdc.delta_log.actions import Commit, FileAction, Key, MetaData
    from delta_cdc.delta_log.manifest_table import Table
    from delta_cdc.delta_log.table import DeltaLog

#: Number of commits whose files, and number of files whose deletion vectors, are in memory at once.
_BATCH = 16
#: From this many bytes of changes on, or from this many commits on whose deletion vectors Delta's own reader
#: compares one by one, that reader takes longer than a file manifest. To open the manifest's log alone takes
#: 0.7 CPU seconds.
WORTHWHILE, COMPARED = 64 * 1024 * 1024, 3
#: Memory limits, here and in Spark's driver: files of a file manifest, bytes of its vectors.
MOST_FILES, MOST_VECTOR_BYTES = 100_000, 32 * 1024 * 1024
_BY_ID = "id"


class NoManifest(Exception):
    """Delta's own reader has to read the range; the message gives the reason."""


class Commits:
    """The commits of the ranges that get file manifests, and their times: read once for all ranges."""

    def __init__(self, log: DeltaLog, commits: tuple[Commit, ...]) -> None:
        self._log = log
        self._commits = commits
        self._before: MetaData | None = None
        self._times: dict[int, int] = {}

    @classmethod
    async def of(cls, log: DeltaLog, first: int, last: int) -> Commits:
        return cls(log, await log.commits(range(first, last + 1)))

    async def times(self) -> dict[int, int]:
        """Return version -> epoch milliseconds."""
        if not self._times:
            versions = [commit.version for commit in self._commits]
            self._times = await self._log.timestamps(versions, self._commits)
        return self._times

    def is_worthwhile(self, read_range: ReadRange) -> bool:
        """Return whether Spark reads a range faster through a file manifest than by Delta's own reader.

        It is the only way if Delta's reader refuses a commit of the range. Else Spark takes about as long to
        open a new log as Delta's own reader takes for :data:`WORTHWHILE` bytes of changes, or for
        :data:`COMPARED` commits whose deletion vectors it has to compare.
        """
        versions = set(self.changing(read_range))
        changing = [commit for commit in self._commits if commit.version in versions]
        if any(commit.refused_by_delta for commit in changing):
            return True
        compared = sum(commit.compares_vectors for commit in changing)
        return read_range.size >= WORTHWHILE or compared >= COMPARED

    def changing(self, read_range: ReadRange) -> list[int]:
        """Return the versions of a range that change data."""
        versions = range(read_range.starting_version, read_range.ending_version + 1)
        return [
            commit.version for commit in self._commits if commit.changes_data and commit.version in versions
        ]

    async def described(self, read_range: ReadRange) -> list[MetaData]:
        """Return each metadata under which the range's files were written; empty if it has not changed since.

        :raises NoManifest: the log no longer has the commit of that metadata
        """
        all_metadata = [(c.version, c.metadata) for c in self._commits if c.metadata is not None]
        start, end = read_range.starting_version, read_range.ending_version
        if not any(version >= start for version, _ in all_metadata):
            return []
        inside = [metadata for version, metadata in all_metadata if start <= version <= end]
        earlier = [metadata for version, metadata in all_metadata if version < start]
        if earlier:
            return [earlier[-1], *inside]
        first = self._commits[0].version
        if self._before is None and first > 0:
            try:
                _, self._before = await self._log.described(first - 1)
            except (VersionsExpired, LogGap) as error:
                raise NoManifest(f"the columns of the files are not known: {error}") from error
        return inside if self._before is None else [self._before, *inside]


async def files(log: DeltaLog, read_range: ReadRange, table: Table, commits: Commits) -> Collection[Listed]:
    """List the files of a range of the feed, each with its sides.

    :param table: the source as of the end of the last range
    :param commits: from this range's start, or an earlier version, to the end of the last range
    :raises NoManifest: Delta's own reader has to read the range
    :raises CorruptLog: a deletion vector is damaged
    :raises VersionsExpired: the file of a deletion vector was deleted
    """
    _check_schemas(table, await commits.described(read_range))
    listing: dict[Key, Listed] = {}
    times = await commits.times()
    count, room = 0, MOST_VECTOR_BYTES
    versions = commits.changing(read_range)
    for start in range(0, len(versions), _BATCH):
        batch = versions[start : start + _BATCH]
        actions = await gathered((_read(log, version) for version in batch), limit=_BATCH)
        for version, (removed, added, changed) in zip(batch, actions, strict=True):
            changes: list[tuple[str, FileAction]] = [(CHANGED_MARK, file) for file in changed]
            for mark, file in changes or await _changes(log, version, removed, added):
                entry = listing.setdefault(file.key, Listed(version, file))
                entry.action = entry.action.filled(file)
                entry.sides.append(side(mark, version, times[version]))
                count += 1
                room -= len(file.deletion_vector.path_or_inline or "") if file.deletion_vector else 0
            if count > MOST_FILES or room < 0:
                raise NoManifest("too many files")
    for entry in listing.values():
        _check_file(table, entry)
    return listing.values()


async def _read(log: DeltaLog, version: int) -> tuple[list[Remove], list[Add], list[Cdc]]:
    """Return the files that a commit removes and adds as data, and its change files."""
    removed: list[Remove] = []
    added: list[Add] = []
    changed: list[Cdc] = []
    async for action in log.actions(version):
        if isinstance(action, Cdc):
            changed.append(action)
        elif isinstance(action, Add | Remove) and action.data_change:
            # The feed uses no row ids.
            slim = replace(action.with_rows(action.rows), base_row_id=None, row_commit_version=None)
            if isinstance(slim, Add):
                added.append(slim)
            else:
                removed.append(slim)
        if len(added) + len(removed) + len(changed) > 2 * MOST_FILES:
            raise NoManifest(f"too many files in version {version}")
    return removed, added, changed


async def _changes(
    log: DeltaLog, version: int, removed: Sequence[Remove], added: Sequence[Add]
) -> list[tuple[str, FileAction]]:
    """Return mark and file of each change in a commit without change files."""
    old = {file.key[0]: file for file in removed}
    new = {file.key[0]: file for file in added}
    if len(old) < len(removed) or len(new) < len(added):
        raise NoManifest(f"version {version} names a file twice")
    changes: list[tuple[str, FileAction]] = [(DELETED_MARK, old[path]) for path in old if path not in new]
    changes += [(INSERTED_MARK, new[path]) for path in new if path not in old]
    pairs = (_remasked(log, version, old[path], new[path]) for path in old if path in new)
    return changes + [
        change for file_changes in await gathered(pairs, limit=_BATCH) for change in file_changes
    ]


async def _remasked(log: DeltaLog, version: int, before: Remove, after: Add) -> list[tuple[str, FileAction]]:
    """Return the file with the newly masked rows, and the file with the unmasked rows, each with its mark."""
    if before.key == after.key:
        raise NoManifest(f"version {version} exchanges {after.path} for itself")
    old, new = await asyncio.gather(_masked(log, version, before), _masked(log, version, after))
    rows = after.rows if before.rows is None else before.rows
    if rows is None or (after.rows is not None and after.rows != rows):
        raise NoManifest(f"version {version} does not say how many rows {after.path} has")
    changes: list[tuple[str, FileAction]] = []
    for mark, shown in (
        (DELETED_MARK, deletion_vectors.minus(new, old)),
        (INSERTED_MARK, deletion_vectors.minus(old, new)),
    ):
        if shown:
            last = max(shown)
            if (last << 16) + shown[last].bit_length() > rows:
                raise NoManifest(f"version {version} masks rows that {after.path} does not have")
            changes.append((mark, showing(after.filled(before), shown, rows)))
    return changes


async def _masked(log: DeltaLog, version: int, file: FileAction) -> deletion_vectors.Positions:
    try:
        return await log.masked(file)
    except deletion_vectors.UnsupportedVectorError as error:
        raise NoManifest(f"{file.path}: {error}") from error
    except FileNotFoundError as error:
        raise expired(
            f"VACUUM deleted the deletion vector of {file.path}, which holds the changes of version "
            f"{version} of {log.uri}."
        ) from error
    except deletion_vectors.UnreadableVectorError as error:
        raise CorruptLog(
            f"The deletion vector of {file.path} (version {version} of {log.uri}) is damaged: {error}.",
            remedy="bring its file back from a backup, or load the target again.",
        ) from error


# -- further preconditions ------------------------------------------------------------------------
def _check_file(table: Table, listed: Listed) -> None:
    file = listed.action
    if file.partition_values is None or file.size is None:
        raise NoManifest(f"the log does not describe {file.path}")
    names = file.partition_values.keys()
    # Spark omits NULL partition values of removed files, and with column mapping those of all files. Whoever
    # says that a record is not whole may have omitted others.
    if not (names == table.partition_names or (file.is_extended and names < table.partition_names)):
        raise NoManifest(f"{file.path} is partitioned otherwise")
    if file.deletion_vector is not None and "deletionVectors" not in table.protocol.reader_features:
        raise NoManifest("the table has no deletion vectors any more")
    if listed.sides[0][0] == CHANGED_MARK and table.metadata.configuration.get(COLUMN_MAPPING) == _BY_ID:
        raise NoManifest("the column of change types has no id, and columns are mapped by id")


def _check_schemas(table: Table, described: list[MetaData]) -> None:
    """Reject files whose physical column names or partitions differ from the table's current ones."""
    for metadata in described:
        if metadata.partition_columns != table.metadata.partition_columns:
            raise NoManifest("the partition columns changed")
        try:
            moved = moved_column(metadata, table.metadata)
        except UnreadableJson as error:
            raise NoManifest(f"a schema is not readable: {error}") from error
        if moved is not None:
            raise NoManifest(f"the column {moved} has another name in older files")
