"""The files of a change data feed's file manifest: per commit, those that Delta's own reader reads.

If a commit has change files, only these count. Else its added data was inserted, and its removed data was
deleted. If a file is on both sides, its masked rows changed: newly masked rows were deleted, and unmasked
rows were inserted; the manifest shows only these rows, by a deletion vector that masks all others.

In any unexpected case, Delta's own reader reads the range.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from delta_cdc.core.concurrency import gathered
from delta_cdc.core.errors import CorruptLog, LogGap, VersionsExpired
from delta_cdc.core.manifest_columns import CHANGED_MARK, DELETED_MARK, INSERTED_MARK, side
from delta_cdc.core.retention import expired
from delta_cdc.delta_log import deletion_vectors
from delta_cdc.delta_log.actions import Add, Cdc, DeletionVector, Remove
from delta_cdc.delta_log.checkpoint import num_records
from delta_cdc.delta_log.manifest_table import File, Listed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterator, Sequence

    from delta_cdc.core.spec import Segment
    from delta_cdc.delta_log.actions import Commit, MetaData
    from delta_cdc.delta_log.checkpoint import Key
    from delta_cdc.delta_log.manifest_table import Table
    from delta_cdc.delta_log.table import DeltaLog

#: How many commits have their files, and how many files their deletion vectors, in memory at once.
_BATCH = 16
#: From this many bytes of changes on, or commits whose deletion vectors Delta's own reader compares one by
#: one, that reader takes longer than a file manifest, which costs 0.7 CPU seconds just to open its log.
WORTHWHILE, COMPARED = 64 * 1024 * 1024, 3
#: Memory limits, here and in Spark's driver: files of a file manifest, bytes of its vectors.
MOST_FILES, MOST_VECTOR_BYTES = 100_000, 32 * 1024 * 1024
_MODE = "delta.columnMapping.mode"
_ID, _PHYSICAL_NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"
_BY_ID = "id"


class NotSliceableError(Exception):
    """Delta's own reader has to read the range; the message gives the reason."""


class _Told(NamedTuple):
    """The files that a commit removes and adds as data, and its change files."""

    version: int
    removed: list[File]
    added: list[File]
    changed: list[File]


class History:
    """The commits of the ranges that get file manifests, and their times: read once for all ranges."""

    def __init__(self, log: DeltaLog, commits: tuple[Commit, ...], times: dict[int, int]) -> None:
        self._log = log
        self._commits = commits
        self._before: MetaData | None = None
        self.times = times

    @classmethod
    async def of(cls, log: DeltaLog, first: int, last: int) -> History:
        commits = await log.commits(range(first, last + 1))
        return cls(log, commits, await log.timestamps(range(first, last + 1), commits))

    def is_worthwhile(self, segment: Segment) -> bool:
        """Return whether a read of a range through a file manifest is faster than by Delta's own reader.

        To open a log that is new to it, Spark takes about as long as Delta's own reader takes for
        :data:`WORTHWHILE` bytes of changes, or for :data:`COMPARED` commits whose deletion vectors it has to
        compare.
        """
        changing = set(self.changing(segment))
        compared = sum(c.compares_vectors for c in self._commits if c.version in changing)
        return segment.size >= WORTHWHILE or compared >= COMPARED

    def changing(self, segment: Segment) -> list[int]:
        """Return the versions of a range that change data."""
        versions = range(segment.starting_version, segment.ending_version + 1)
        return [
            commit.version for commit in self._commits if commit.changes_data and commit.version in versions
        ]

    async def described(self, segment: Segment) -> list[MetaData]:
        """Return the metadata under which the range's files were written; empty if it has not changed since.

        :raises NotSliceableError: the log was cleaned beyond it
        """
        told = [(c.version, c.metadata) for c in self._commits if c.metadata is not None]
        start, end = segment.starting_version, segment.ending_version
        if not any(version >= start for version, _ in told):
            return []
        found = [metadata for version, metadata in told if start <= version <= end]
        earlier = [metadata for version, metadata in told if version < start]
        if earlier:
            return [earlier[-1], *found]
        first = self._commits[0].version
        if self._before is None and first > 0:
            try:
                _, self._before = await self._log.described(first - 1)
            except (VersionsExpired, LogGap) as error:
                raise NotSliceableError(f"no telling which columns files have: {error}") from error
        return found if self._before is None else [self._before, *found]


async def files(log: DeltaLog, segment: Segment, table: Table, history: History) -> Collection[Listed]:
    """List the files of a range of the feed, each with its sides.

    :param table: the source as of the end of the last range
    :param history: from this range's start, or before, to the end of the last range
    :raises NotSliceableError: see there
    :raises CorruptLog: a deletion vector is damaged
    :raises VersionsExpired: the file of a deletion vector is gone
    """
    found: dict[Key, Listed] = {}
    if not history.is_worthwhile(segment):
        raise NotSliceableError("there is little to read")
    sides: list[tuple[str, int, File]] = []
    room = MOST_VECTOR_BYTES
    _check_schemas(table, await history.described(segment))
    versions = history.changing(segment)
    for start in range(0, len(versions), _BATCH):
        batch = (_read(log, version) for version in versions[start : start + _BATCH])
        for told in await gathered(batch, limit=_BATCH):
            async for mark, file in _Sides(log, told):
                sides.append((mark, told.version, file))
                room -= len(file.vector.path_or_inline or "") if file.vector is not None else 0
            if len(sides) > MOST_FILES or room < 0:
                raise NotSliceableError("too many files")
    for mark, version, file in sides:
        listed = found.setdefault(file.key, Listed(file))
        listed.file = listed.file.filled(file)
        listed.sides.append(side(mark, version, history.times[version]))
    for listed in found.values():
        _check_file(table, listed)
    return found.values()


async def _read(log: DeltaLog, version: int) -> _Told:
    told = _Told(version, [], [], [])
    async for action in log.actions(version):
        if isinstance(action, Cdc):
            told.changed.append(
                File(action.path, version, action.size, action.partition_values, None, None, None)
            )
        elif isinstance(action, Add | Remove) and action.data_change:
            (told.added if isinstance(action, Add) else told.removed).append(_file(version, action))
        if len(told.added) + len(told.removed) + len(told.changed) > 2 * MOST_FILES:
            raise NotSliceableError(f"too many files in version {version}")
    return told


def _file(version: int, action: Add | Remove) -> File:
    """Return the details needed to read the file; the feed uses no row ids."""
    return File(
        action.path,
        version,
        action.size,
        action.partition_values,
        None,
        None,
        action.deletion_vector,
        num_records(action.stats),
    )


# -- the sides of a commit ------------------------------------------------------------------------
class _Sides:
    """Yields the changes to the files of a commit: (mark, file)."""

    def __init__(self, log: DeltaLog, told: _Told) -> None:
        self._log = log
        self._told = told
        self._version = told.version

    async def __aiter__(self) -> AsyncIterator[tuple[str, File]]:
        if self._told.changed:
            for file in self._told.changed:
                yield CHANGED_MARK, file
            return
        removed, added = self._by_path(self._told.removed), self._by_path(self._told.added)
        for path, file in removed.items():
            if path not in added:
                yield DELETED_MARK, file
        for path, file in added.items():
            if path not in removed:
                yield INSERTED_MARK, file
        both = [(file, added[path]) for path, file in removed.items() if path in added]
        for start in range(0, len(both), _BATCH):
            pairs = (self._remasked(before, after) for before, after in both[start : start + _BATCH])
            for found in await gathered(pairs, limit=_BATCH):
                for mark, file in found:
                    yield mark, file

    def _by_path(self, found: Sequence[File]) -> dict[str, File]:
        by_path = {unquote(file.path): file for file in found}
        if len(by_path) < len(found):
            raise NotSliceableError(f"version {self._version} names a file twice")
        return by_path

    async def _remasked(self, before: File, after: File) -> list[tuple[str, File]]:
        """Return the file with the rows that were masked, and with those that were unmasked."""
        if before.key == after.key:
            raise NotSliceableError(f"version {self._version} exchanges {after.path} for itself")
        old, new = await asyncio.gather(self._masked(before), self._masked(after))
        file = after.filled(before)
        rows = after.rows if before.rows is None else before.rows
        if rows is None or (after.rows is not None and after.rows != rows):
            raise NotSliceableError(f"version {self._version} does not tell how many rows {after.path} has")
        found = []
        for mark, shown in (
            (DELETED_MARK, deletion_vectors.minus(new, old)),
            (INSERTED_MARK, deletion_vectors.minus(old, new)),
        ):
            if shown:
                found.append((mark, self._showing(file, shown, rows)))
        return found

    def _showing(self, file: File, shown: deletion_vectors.Positions, rows: int) -> File:
        last = max(shown)
        if (last << 16) + shown[last].bit_length() > rows:
            raise NotSliceableError(f"version {self._version} masks rows that {file.path} does not have")
        masked = rows - deletion_vectors.count(shown)
        if not masked:
            return replace(file, vector=None)
        data = deletion_vectors.all_but(shown, rows)
        text = deletion_vectors.encode(data)
        return replace(file, vector=DeletionVector(f"i{text}", masked, "i", text, size_in_bytes=len(data)))

    async def _masked(self, file: File) -> deletion_vectors.Positions:
        if file.vector is None:
            return {}
        try:
            return deletion_vectors.positions(await self._log.vector(file.vector))
        except deletion_vectors.BeyondVectorError as error:
            raise NotSliceableError(f"{file.path}: {error}") from error
        except FileNotFoundError as error:
            if await self._log.has_vector(file.vector):
                raise NotSliceableError(f"the deletion vector of {file.path} cannot be looked up") from error
            raise expired(
                f"The deletion vector of {file.path}, which tells the changes of version {self._version} of "
                f"{self._log.uri}, is gone (VACUUM)."
            ) from error
        except deletion_vectors.UnreadableVectorError as error:
            raise CorruptLog(
                f"The deletion vector of {file.path} (version {self._version} of {self._log.uri}) is "
                f"damaged: {error}.",
                remedy="bring its file back from a backup, or load the target anew.",
            ) from error


# -- further preconditions ------------------------------------------------------------------------
def _check_file(table: Table, listed: Listed) -> None:
    file = listed.file
    if file.partition_values is None or file.size is None:
        raise NotSliceableError(f"the log does not tell what {file.path} is")
    names = file.partition_values.keys()
    # With column mapping, Spark omits NULL partition values.
    if names != table.partition_names and not (table.is_mapped and names < table.partition_names):
        raise NotSliceableError(f"{file.path} is partitioned otherwise")
    if file.vector is not None and "deletionVectors" not in table.protocol.reader_features:
        raise NotSliceableError("the table has no deletion vectors any more")
    if listed.sides[0][0] == CHANGED_MARK and table.metadata.configuration.get(_MODE) == _BY_ID:
        raise NotSliceableError("the column of change types has no id, and columns are mapped by id")


def _check_schemas(table: Table, described: list[MetaData]) -> None:
    """Reject files whose physical column names or partitions differ from the table's now."""
    now = _physical(table.metadata) if described else {}
    for metadata in described:
        if metadata.partition_columns != table.metadata.partition_columns:
            raise NotSliceableError("the partition columns changed")
        for path, name in _physical(metadata).items():
            if now.get(path, name) != name:
                raise NotSliceableError(f"the column {path} has another name in older files")


def _physical(metadata: MetaData) -> dict[str, tuple[str, Any]]:
    """Return the name and id of each column in the files."""
    mode = metadata.configuration.get(_MODE, "none")
    try:
        schema = json.loads(metadata.schema_string)
        return dict(_fields(schema, "", is_mapped=mode != "none", by_id=mode == _BY_ID))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotSliceableError(f"a schema is not readable ({error!r})") from error


def _fields(of: Any, path: str, *, is_mapped: bool, by_id: bool) -> Iterator[tuple[str, tuple[str, Any]]]:
    if not isinstance(of, dict):
        return
    for entry in of.get("fields", ()):
        own = f"{path}.{entry['name'].lower()}"
        metadata = entry.get("metadata") or {}
        name = metadata.get(_PHYSICAL_NAME, entry["name"]) if is_mapped else entry["name"]
        yield own, (name, metadata.get(_ID) if by_id else None)
        yield from _fields(entry["type"], own, is_mapped=is_mapped, by_id=by_id)
    for inside in ("elementType", "keyType", "valueType"):
        yield from _fields(of.get(inside), f"{path}.{inside}", is_mapped=is_mapped, by_id=by_id)
