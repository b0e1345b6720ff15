"""File manifests: small Delta tables that name files of another table, so that Spark reads only those.

A file manifest is one commit in its own folder. It has the protocol and the schema of the source as of some
version, one more partition column (:data:`delta_cdc.core.manifest_columns.SIDES`), and one ``add`` for each
file, by its absolute URI. It holds no data, and exists only for the read that it was written for.

If a commit only changes which rows of a file are masked, the file is on both sides of the commit. The
manifest then shows only the rows that one side has and the other has not, by a custom deletion vector.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from delta_cdc.core.concurrency import gathered
from delta_cdc.core.errors import CaptureUnavailable, ReservedColumnName
from delta_cdc.core.manifest_columns import (
    AFTER_MARK,
    BEFORE_MARK,
    DELETED_MARK,
    INSERTED_MARK,
    location,
    side,
)
from delta_cdc.core.spec import ApplySpec, ApplyStep, ReadSpec, RepairStep, segments_of
from delta_cdc.delta_log import deletion_vectors, manifest_feed
from delta_cdc.delta_log.actions import Add, DeletionVector, MetaData, Remove
from delta_cdc.delta_log.checkpoint import key_of
from delta_cdc.delta_log.manifest_table import File, Listed, Table, lines
from delta_cdc.delta_log.requests import delete_folder, put_stream
from delta_cdc.delta_log.table import DeltaLog, run_sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Sequence

    from delta_cdc.core.spec import Segment
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.checkpoint import Key

_log = logging.getLogger(__name__)

S = TypeVar("S", ApplySpec, ReadSpec)
#: How many commits have their files, and how many files their deletion vectors, in memory at once.
_BATCH = 16
#: A file manifest gets no longer vector: Spark then reads the whole file, from both sides.
_LONGEST_VECTOR = 1024 * 1024
_COMMIT = "_delta_log/00000000000000000000.json"


def prepared(spec: S, root: str, storage_options: dict[str, str] | None = None) -> S:
    """Write the file manifests through which Spark reads a spec's ranges (``segments``).

    :param root: folder of the manifests, as Spark names it; used by no other job or purpose; "" means no
        folder
    :param storage_options: of the source and of the folder
    :return: the spec with ``slices_uri`` and the marked ranges; the same spec if no range has a manifest
    :raises CaptureUnavailable: there is no folder, and a range needs one
    :raises DeltaCdcError: see :func:`write_slice`
    """
    steps = tuple(
        replace(
            step,
            segments=write_slices(
                spec.source_uri,
                step.segments,
                root,
                at=step.at,
                storage_options=storage_options,
            ),
        )
        if isinstance(step, ApplyStep | RepairStep)
        else step
        for step in spec.steps
    )
    if not any(segment.sliced for segment in segments_of(steps)):
        return spec
    return replace(spec, steps=steps, slices_uri=root)


def write_slices(
    table: str,
    segments: Iterable[Segment],
    root: str,
    *,
    at: int,
    storage_options: dict[str, str] | None = None,
) -> tuple[Segment, ...]:
    """Write the file manifests of some ranges (``segments``).

    :param table: path or URI of the source
    :param root: folder of the manifests; see :func:`prepared`
    :param at: the version whose schema the manifests have, the end of the last range
    :return: the ranges; those that Spark reads through manifests are marked ``sliced``
    :raises CaptureUnavailable: there is no folder, and a range needs one
    :raises DeltaCdcError: see :func:`write_slice`
    """
    given = tuple(segments)

    async def write() -> tuple[Segment, ...]:
        log = DeltaLog(table, storage_options)
        range_ = _Range(log, Table(log.uri, *await log.described(at)), given, at)
        return tuple(
            [
                replace(one, sliced=await range_.write(one, location(root, one), storage_options))
                for one in given
            ]
        )

    if root:
        return run_sync(write()) if given else given
    needed = next((segment for segment in given if segment.needs_slice), None)
    if needed is not None:
        raise no_folder(needed)
    return given


def forget(root: str, storage_options: dict[str, str] | None = None) -> None:
    """Delete the file manifests of a job that has ended, if there are any.

    :param root: folder of the manifests; see :func:`prepared`
    """
    run_sync(delete_folder(root, storage_options))


def no_folder(segment: Segment) -> CaptureUnavailable:
    """Build the error for a range that needs a file manifest when no folder is given."""
    return CaptureUnavailable(
        f"Versions {segment.starting_version}-{segment.ending_version} are read by {segment.capture} through "
        "a small log that lists their files, and the executors of this session do not see the folders of "
        "this machine.",
        remedy="name a folder with scratch= that this process and all executors reach.",
    )


async def write_slice(
    log: DeltaLog,
    segment: Segment,
    folder: str,
    storage_options: dict[str, str] | None = None,
    *,
    schema_version: int | None = None,
) -> bool:
    """Write the file manifest of a range; overwrite an existing one.

    :param log: of the source
    :param folder: path or URI
    :param storage_options: of the folder
    :param schema_version: the version whose schema the manifest has, the end of the last range; None is this
        range's last version
    :return: whether it was written; False only for the change data feed, if Delta's own reader has to read
        the range: then nothing is written
    :raises CaptureUnavailable: the range's read method (``capture``) cannot read a file of the range
    :raises VersionsExpired: the log's record of a file was cleaned
    :raises ReservedColumnName: the source has a column with the name that the manifest adds
    """
    version = segment.ending_version if schema_version is None else schema_version
    table = Table(log.uri, *await log.described(version))
    return await _Range(log, table, (segment,), version).write(segment, folder, storage_options)


class _Range:
    """Context shared by several consecutive ranges (``segments``).

    :param table: the source as of ``at``
    :param at: the end of the range
    """

    def __init__(self, log: DeltaLog, table: Table, segments: Sequence[Segment], at: int) -> None:
        self._log = log
        self._table = table
        self._first = min(segment.starting_version for segment in segments)
        self._last = at
        self._history: manifest_feed.History | None = None

    async def write(self, segment: Segment, folder: str, storage_options: dict[str, str] | None) -> bool:
        """Write a file manifest; see :func:`write_slice`."""
        try:
            self._table.check(segment)
            found = lines(self._table, segment, await self._listed(segment))
            await put_stream(folder, _COMMIT, found, storage_options)
        except (manifest_feed.NotSliceableError, CaptureUnavailable, ReservedColumnName) as why:
            if segment.needs_slice:
                raise
            versions = f"{segment.starting_version}-{segment.ending_version}"
            _log.info("Delta's own reader reads versions %s of %s: %s", versions, self._log.uri, why)
            return False
        return True

    async def _listed(self, segment: Segment) -> Collection[Listed]:
        if segment.capture != "change_files":
            return await (_net if segment.net else _by_commit)(self._log, segment, self._table)
        if self._history is None:
            self._history = await manifest_feed.History.of(self._log, self._first, self._last)
        return await manifest_feed.files(self._log, segment, self._table, self._history)


async def net_bytes(log: DeltaLog, commits: Sequence[Commit]) -> int | None:
    """Return how many bytes a read of both ends of a range takes, computed from its commits alone.

    :param commits: of the range, ascending and gap-free
    :return: size of the files that only one end has, or whose masked rows differ; None if writers omitted
        sizes
    """
    touched: dict[Key, tuple[bool, bool]] = {}
    sizes: dict[str, int | None] = {}
    versions = [commit.version for commit in commits if commit.n_adds or commit.n_removes]
    # A commit that only restates existing files leaves them at both ends.
    restated = {c.version for c in commits if c.n_adds and not c.n_removes and not c.n_data_adds}
    async for version, actions in _commits(log, versions):
        for action in actions:
            if isinstance(action, MetaData) or version in restated:
                continue
            key = key_of(action)
            was, _ = touched.get(key, (isinstance(action, Remove), False))
            touched[key] = (was, isinstance(action, Add))
            sizes[key[0]] = action.size if action.size is not None else sizes.get(key[0])
    found = [sizes[path] for path in {path for (path, _), (was, is_) in touched.items() if was != is_}]
    told = [size for size in found if size is not None]
    return sum(told) if len(told) == len(found) else None


# -- which files ----------------------------------------------------------------------------------
async def _by_commit(log: DeltaLog, segment: Segment, table: Table) -> Collection[Listed]:
    """List the files that the range's commits added and removed as data."""
    times = dict(segment.timestamps)
    found: dict[Key, Listed] = {}
    versions = range(segment.starting_version, segment.ending_version + 1)
    async for version, actions in _commits(log, versions):
        for action in actions:
            if isinstance(action, MetaData):
                table.check_names(segment, version, action)
        if version in times:
            removed, added = _data(log, segment, version, actions)
            _list(found, segment, *await _differing(log, removed, added), version, times[version])
    lacking: dict[int, dict[Key, Listed]] = {}
    for key, one in found.items():
        if table.lacks(segment, one.file):
            lacking.setdefault(one.file.version - 1, {})[key] = one
    for version, some in lacking.items():
        for key, add in (await _active(log, version, some.keys())).items():
            some[key].file = some[key].file.filled(File.of(version, add))
    return found.values()


def _data(
    log: DeltaLog, segment: Segment, version: int, actions: Iterable[Add | Remove | MetaData]
) -> tuple[list[File], list[File]]:
    """Return the files that a commit removes and adds as data."""
    only_added = segment.capture == "added_files"
    removed: list[File] = []
    added: list[File] = []
    for action in actions:
        if not isinstance(action, MetaData) and action.data_change:
            file = File.of(version, action, stats=only_added)
            (added if isinstance(action, Add) else removed).append(file)
    if removed and only_added:
        raise CaptureUnavailable(
            f"Version {version} of {log.uri} removes rows (file {removed[0].path}), and added_files reads "
            "added ones only.",
            remedy="leave capture at auto, or leave such commits out by on_change_commit='skip'.",
        )
    return removed, added


async def _net(log: DeltaLog, segment: Segment, table: Table) -> Collection[Listed]:
    """List the files that only one end of the range has."""
    first, last = segment.starting_version, segment.ending_version
    ends = await _Ends.of(log, segment, table)
    lacking = {key for key, file in ends.files.items() if ends.was.get(key) and table.lacks(segment, file)}
    state = await _active(log, first - 1, ends.unsure | lacking)
    removed: list[File] = []
    added: list[File] = []
    for key, file in ends.files.items():
        was = key in state if key in ends.unsure else ends.was[key]
        if was != ends.is_[key]:
            whole = file.filled(File.of(first - 1, state[key])) if key in state else file
            (removed if was else added).append(whole)
    found: dict[Key, Listed] = {}
    # The last commit may not have changed data.
    times = dict(segment.timestamps) if last in dict(segment.timestamps) else await log.timestamps([last])
    _list(found, segment, *await _differing(log, removed, added), last, times[last])
    return found.values()


class _Ends:
    """The two ends of a range, as its commits describe them.

    :ivar files: the known details of each file
    :ivar was: whether it existed before the first commit
    :ivar is_: whether it exists after the last one
    :ivar unsure: files whose existence before the first commit the commits don't show
    """

    def __init__(self) -> None:
        self.files: dict[Key, File] = {}
        self.was: dict[Key, bool] = {}
        self.is_: dict[Key, bool] = {}
        self.unsure: set[Key] = set()

    @classmethod
    async def of(cls, log: DeltaLog, segment: Segment, table: Table) -> _Ends:
        ends = cls()
        versions = range(segment.starting_version, segment.ending_version + 1)
        async for version, actions in _commits(log, versions):
            for action in actions:
                if isinstance(action, MetaData):
                    table.check_names(segment, version, action)
                else:
                    ends._take(version, action)
        return ends

    def _take(self, version: int, action: Add | Remove) -> None:
        file, key = File.of(version, action), key_of(action)
        self.files[key] = file.filled(self.files[key]) if key in self.files else file
        added = isinstance(action, Add)
        if key not in self.was:
            self.was[key] = not added
            # A commit may add details of an existing file, such as its row ids.
            if added and not action.data_change:
                self.unsure.add(key)
        self.is_[key] = added


def _list(
    found: dict[Key, Listed],
    segment: Segment,
    removed: Sequence[File],
    added: Sequence[File],
    version: int,
    time: int,
) -> None:
    """Add the files that were added and removed together to the listing."""
    # With one side only, or when rows are matched by key, there is nothing to match.
    matched = bool(removed and added) and segment.capture == "row_tracking"
    before, after = (BEFORE_MARK, AFTER_MARK) if matched else (DELETED_MARK, INSERTED_MARK)
    for files, mark in ((removed, before), (added, after)):
        for file in files:
            listed = found.get(file.key)
            if listed is None:
                listed = found[file.key] = Listed(file)
            else:
                listed.file = file.filled(listed.file)
            listed.sides.append(side(mark, version, time))


async def _differing(log: DeltaLog, removed: list[File], added: list[File]) -> tuple[list[File], list[File]]:
    """Reduce files that are on both sides to the rows that only one side has."""
    old: dict[str, list[File]] = {}
    for file in removed:
        old.setdefault(unquote(file.path), []).append(file)
    pairs = [(old[path][0], new) for new in added if len(old.get(path := unquote(new.path), ())) == 1]
    if not pairs:
        return removed, added
    gone, back = {file.key: [file] for file in removed}, {file.key: [file] for file in added}
    for at in range(0, len(pairs), _BATCH):
        some = pairs[at : at + _BATCH]
        shown = await gathered((_shown(log, before, after) for before, after in some), limit=_BATCH)
        for (before, after), found in zip(some, shown, strict=True):
            if found is not None:
                gone[before.key], back[after.key] = found
    return [f for files in gone.values() for f in files], [f for files in back.values() for f in files]


async def _shown(log: DeltaLog, before: File, after: File) -> tuple[list[File], list[File]] | None:
    """Return the file with the rows that only ``before`` has, and with those that only ``after`` has.

    :return: None if this cannot be determined: then the whole file is read, from both sides
    """
    old, new = await asyncio.gather(_positions(log, before), _positions(log, after))
    if old is None or new is None:
        return None
    found: list[list[File]] = []
    for seen, file in ((deletion_vectors.minus(new, old), before), (deletion_vectors.minus(old, new), after)):
        if not seen:
            found.append([])
            continue
        rows = after.rows if before.rows is None else before.rows
        data = b"" if rows is None else deletion_vectors.all_but(seen, rows)
        if rows is None or len(data) > _LONGEST_VECTOR:
            return None
        text = deletion_vectors.encode(data)
        vector = DeletionVector(
            f"i{text}", rows - deletion_vectors.count(seen), "i", text, size_in_bytes=len(data)
        )
        other = after if file is before else before
        found.append([replace(file.filled(other), vector=vector)])
    return found[0], found[1]


async def _positions(log: DeltaLog, file: File) -> deletion_vectors.Positions | None:
    if file.vector is None:
        return {}
    try:
        return deletion_vectors.positions(await log.vector(file.vector))
    except (FileNotFoundError, deletion_vectors.UnreadableVectorError):
        # No error here: Spark reports it when it reads the vectors.
        return None


async def _active(log: DeltaLog, version: int, keys: Collection[Key]) -> dict[Key, Add]:
    """Return those of the given files that are part of a version."""
    return await log.active(version, keys) if keys and version >= 0 else {}


async def _commits(
    log: DeltaLog, versions: Sequence[int]
) -> AsyncIterator[tuple[int, list[Add | Remove | MetaData]]]:
    """Yield the file actions and new metadata of commits, in order."""

    async def one(version: int) -> list[Add | Remove | MetaData]:
        return [a async for a in log.actions(version) if isinstance(a, Add | Remove | MetaData)]

    for at in range(0, len(versions), _BATCH):
        part = versions[at : at + _BATCH]
        for version, found in zip(part, await gathered(map(one, part), limit=_BATCH), strict=True):
            yield version, found
