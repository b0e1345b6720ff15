"""File manifests: small Delta tables that name files of another table, so that Spark reads only those.

A file manifest is one commit in its own folder. It has the protocol and the schema of the source as of some
version, one more partition column (:data:`delta_cdc.core.manifest_columns.SIDES`), and one ``add`` for each
file, by its absolute URI. It holds no data, and exists only for the read that it was written for.

If a commit only changes which rows of a file are masked, the file is on both sides of the commit. The
manifest then has a custom deletion vector, which leaves only the rows visible that one side lacks.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from delta_cdc.core.concurrency import gathered
from delta_cdc.core.errors import ReadMethodUnavailable, ReservedColumnName
from delta_cdc.core.manifest_columns import (
    AFTER_MARK,
    BEFORE_MARK,
    DELETED_MARK,
    INSERTED_MARK,
    location,
    side,
)
from delta_cdc.core.spec import SealedSpec, Spec
from delta_cdc.core.steps import ranges_of
from delta_cdc.core.uris import short_name
from delta_cdc.delta_log import deletion_vectors, manifest_feed
from delta_cdc.delta_log.actions import Add, MetaData, Remove
from delta_cdc.delta_log.manifest_table import Listed, Table, lines, showing
from delta_cdc.delta_log.requests import delete_folder, put_stream
from delta_cdc.delta_log.table import DeltaLog, run_sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence

    from delta_cdc.core.steps import ReadRange
    from delta_cdc.delta_log.actions import Commit, FileAction, Key

_log = logging.getLogger(__name__)

S = TypeVar("S", bound=Spec)
#: Number of commits whose files, and number of files whose deletion vectors, are in memory at once.
_BATCH = 16
#: The maximum bytes of a vector in a file manifest: for a longer one, Spark reads the whole file, on both
#: sides.
_LONGEST_VECTOR = 1024 * 1024
_COMMIT = "_delta_log/00000000000000000000.json"


def prepared(spec: S, root: str, storage_options: dict[str, str] | None = None) -> S:
    """Write the file manifests through which Spark reads a spec's ranges.

    :param root: folder of the manifests, as Spark names it; used by no other job or purpose; "" means no
        folder
    :param storage_options: of the source and of the folder
    :return: the spec with ``manifests_uri`` and the marked ranges; the same spec if no range has a manifest
    :raises ReadMethodUnavailable: a range needs a folder, but there is no folder
    :raises DeltaCdcError: see :func:`write_manifests`
    """
    if not isinstance(spec, SealedSpec) or not ranges_of(spec.steps):
        return spec
    write = partial(write_manifests, DeltaLog(spec.source_uri, storage_options))
    written = [
        step.reading(ranges=write(step.read.ranges, root, at=step.at, storage_options=storage_options))
        if step.read.ranges
        else step
        for step in spec.steps
    ]
    if not any(read_range.by_manifest for read_range in ranges_of(written)):
        return spec
    return replace(spec, steps=tuple(written), manifests_uri=root)


def write_manifests(
    log: DeltaLog,
    read_ranges: Iterable[ReadRange],
    root: str,
    *,
    at: int,
    storage_options: dict[str, str] | None = None,
) -> tuple[ReadRange, ...]:
    """Write the file manifests of some ranges.

    :param log: of the source; it does not read again what it has read for a plan
    :param root: folder of the manifests; see :func:`prepared`
    :param at: the version whose schema the manifests have, the end of the last range
    :param storage_options: of the folder
    :return: the ranges; those that Spark reads through manifests are marked ``by_manifest``. Without a
        folder, or if Delta's own reader has to read it, a range of the change data feed has no mark
    :raises ReadMethodUnavailable: a range needs a folder, but there is no folder; or the range's read method
        (``method``) cannot read a file of the range
    :raises VersionsExpired: the log's record of a file was cleaned
    :raises ReservedColumnName: the source has a column with the name that the manifest adds
    """
    read_ranges = tuple(read_ranges)
    needing = next((read_range for read_range in read_ranges if read_range.needs_manifest), None)
    if not root and needing is not None:
        raise ReadMethodUnavailable(
            f"Versions {needing.starting_version}-{needing.ending_version} are read by {needing.method} "
            "through a small log that lists their files, and the executors of this session do not see the "
            "folders of this machine.",
            remedy="name a folder with scratch= that this process and all executors reach.",
        )
    return (
        run_sync(_write(log, read_ranges, root, at, storage_options)) if root and read_ranges else read_ranges
    )


def forget(root: str, storage_options: dict[str, str] | None = None) -> None:
    """Delete the file manifests of a job that has ended, if they exist.

    :param root: folder of the manifests; see :func:`prepared`
    """
    run_sync(delete_folder(root, storage_options))


async def _write(
    log: DeltaLog,
    read_ranges: tuple[ReadRange, ...],
    root: str,
    end: int,
    storage_options: dict[str, str] | None,
) -> tuple[ReadRange, ...]:
    table: Table | None = None
    first = min(read_range.starting_version for read_range in read_ranges)
    commits: manifest_feed.Commits | None = None
    marked = []
    for read_range in read_ranges:
        is_written = True
        try:
            if read_range.method == "change_files":
                commits = commits or await manifest_feed.Commits.of(log, first, end)
                if not commits.is_worthwhile(read_range):
                    raise manifest_feed.NoManifest("there is little to read")
            table = table or Table(log.uri, *await log.described(end))
            table.check(read_range)
            if commits is not None and read_range.method == "change_files":
                files = await manifest_feed.files(log, read_range, table, commits)
            else:
                files = await (_net if read_range.net else _by_commit)(log, read_range, table)
            actions = lines(table, read_range, files)
            await put_stream(location(root, read_range), _COMMIT, actions, storage_options)
        except (manifest_feed.NoManifest, ReadMethodUnavailable, ReservedColumnName) as error:
            if read_range.needs_manifest:
                raise
            versions = f"{read_range.starting_version}-{read_range.ending_version}"
            _log.info("Delta's own reader reads versions %s of %s: %s", versions, short_name(log.uri), error)
            is_written = False
        marked.append(replace(read_range, by_manifest=is_written))
    return tuple(marked)


async def net_bytes(log: DeltaLog, commits: Sequence[Commit]) -> int | None:
    """Return how many bytes a read of both ends of a range takes, computed from the range's commits alone.

    :param commits: all commits of the range, ascending
    :return: size of the files that only one end has, or whose masked rows differ; None if a writer omitted
        a size
    """
    # A commit that only restates existing files leaves them at both ends.
    versions = [c.version for c in commits if c.n_removes or c.n_data_adds]
    ends = await _ends(log, versions)
    sizes: dict[str, int | None] = {}
    for (path, _), end in ends.items():
        sizes[path] = sizes.get(path) if end.file.size is None else end.file.size
    differing = {path for (path, _), end in ends.items() if bool(end.was) != end.is_}
    known_sizes = [size for path in differing if (size := sizes[path]) is not None]
    return sum(known_sizes) if len(known_sizes) == len(differing) else None


# -- which files ----------------------------------------------------------------------------------
async def _by_commit(log: DeltaLog, read_range: ReadRange, table: Table) -> Collection[Listed]:
    """List the files that the range's commits added and removed as data."""
    times = dict(read_range.timestamps)
    listing: dict[Key, Listed] = {}
    versions = range(read_range.starting_version, read_range.ending_version + 1)
    # Spark skips added files by their statistics; other reads need only the number of rows.
    with_statistics = read_range.method == "added_files"
    async for version, actions in _commits(log, versions, with_statistics=with_statistics):
        for action in actions:
            if isinstance(action, MetaData):
                table.check_names(read_range, version, action)
        if version in times:
            removed, added = _data(log, read_range, version, actions)
            _add_files(listing, read_range, *await _differing(log, removed, added), version, times[version])
    lacking: dict[int, dict[Key, Listed]] = {}
    for key, one in listing.items():
        if table.lacks(read_range, one.action):
            lacking.setdefault(one.version - 1, {})[key] = one
    for version, some in lacking.items():
        for key, add in (await _active(log, version, some.keys())).items():
            some[key].action = some[key].action.filled(add)
    return listing.values()


def _data(
    log: DeltaLog, read_range: ReadRange, version: int, actions: Iterable[Add | Remove | MetaData]
) -> tuple[list[Listed], list[Listed]]:
    """Return the files that a commit removes and adds as data."""
    removed: list[Listed] = []
    added: list[Listed] = []
    for action in actions:
        if not isinstance(action, MetaData) and action.data_change:
            file = Listed(version, action)
            (added if isinstance(action, Add) else removed).append(file)
    if removed and read_range.method == "added_files":
        raise ReadMethodUnavailable(
            f"Version {version} of {log.uri} removes rows (file {removed[0].action.path}), and added_files "
            "reads added ones only.",
            remedy="leave method at auto, or leave such commits out by on_change_commit='skip'.",
        )
    return removed, added


async def _net(log: DeltaLog, read_range: ReadRange, table: Table) -> Collection[Listed]:
    """List the files that only one end of the range has."""
    first, last = read_range.starting_version, read_range.ending_version
    ends = await _ends(
        log,
        range(first, last + 1),
        lambda version, metadata: table.check_names(read_range, version, metadata),
    )
    unsure = {key for key, end in ends.items() if end.was is None}
    lacking = {key for key, end in ends.items() if end.was and table.lacks(read_range, end.file)}
    state = await _active(log, first - 1, unsure | lacking)
    removed: list[Listed] = []
    added: list[Listed] = []
    for key, end in ends.items():
        was = key in state if end.was is None else end.was
        if was != end.is_:
            file = end.file.filled(state[key]) if key in state else end.file
            (removed if was else added).append(Listed(end.version, file))
    listing: dict[Key, Listed] = {}
    # The last commit may not have changed data.
    times = (
        dict(read_range.timestamps) if last in dict(read_range.timestamps) else await log.timestamps([last])
    )
    _add_files(listing, read_range, *await _differing(log, removed, added), last, times[last])
    return listing.values()


@dataclass(slots=True)
class _End:
    """A file that the commits of a range add or remove.

    :param version: the last commit that names the file
    :param file: the file's known details
    :param was: whether the file existed before the first commit; None if the commits don't show that
    :param is_: whether the file exists after the last commit
    """

    version: int
    file: FileAction
    was: bool | None
    is_: bool


async def _ends(
    log: DeltaLog, versions: Sequence[int], on_metadata: Callable[[int, MetaData], None] | None = None
) -> dict[Key, _End]:
    """Return the files that differ, or may differ, between the two ends of a range."""
    ends: dict[Key, _End] = {}
    async for version, actions in _commits(log, versions):
        for action in actions:
            if isinstance(action, MetaData):
                if on_metadata is not None:
                    on_metadata(version, action)
                continue
            key, added = action.key, isinstance(action, Add)
            end = ends.get(key)
            if end is None:
                # A commit may add details of an existing file, such as its row ids.
                was = None if added and not action.data_change else not added
                ends[key] = _End(version, action, was, added)
            else:
                end.version, end.file, end.is_ = version, action.filled(end.file), added
    return ends


def _add_files(
    listing: dict[Key, Listed],
    read_range: ReadRange,
    removed: Sequence[Listed],
    added: Sequence[Listed],
    version: int,
    time: int,
) -> None:
    """Add the files that were added and removed together to the listing."""
    # If the commit has one side only, or rows are matched by key, no row ids need to match.
    matched = bool(removed and added) and read_range.method == "row_tracking"
    before, after = (BEFORE_MARK, AFTER_MARK) if matched else (DELETED_MARK, INSERTED_MARK)
    for files, mark in ((removed, before), (added, after)):
        for file in files:
            entry = listing.setdefault(file.action.key, file)
            entry.version, entry.action = file.version, file.action.filled(entry.action)
            entry.sides.append(side(mark, version, time))


async def _differing(
    log: DeltaLog, removed: list[Listed], added: list[Listed]
) -> tuple[list[Listed], list[Listed]]:
    """Reduce files that are on both sides to the rows that only one side has."""
    old: dict[str, list[Listed]] = {}
    for file in removed:
        old.setdefault(file.action.key[0], []).append(file)
    pairs = [(old[path][0], new) for new in added if len(old.get(path := new.action.key[0], ())) == 1]
    if not pairs:
        return removed, added
    removed_files, added_files = (
        {file.action.key: [file] for file in removed},
        {file.action.key: [file] for file in added},
    )
    partial_files = await gathered(
        (_partial_files(log, before.action, after.action) for before, after in pairs), limit=_BATCH
    )
    for (before, after), files in zip(pairs, partial_files, strict=True):
        if files is not None:
            removed_files[before.action.key] = [Listed(before.version, file) for file in files[0]]
            added_files[after.action.key] = [Listed(after.version, file) for file in files[1]]
    return [f for files in removed_files.values() for f in files], [
        f for files in added_files.values() for f in files
    ]


async def _partial_files(
    log: DeltaLog, before: FileAction, after: FileAction
) -> tuple[list[FileAction], list[FileAction]] | None:
    """Return the file with the rows that only ``before`` has, and with the rows that only ``after`` has.

    :return: None if these rows are unknown: then Spark reads the whole file, on both sides
    """
    try:
        old, new = await asyncio.gather(log.masked(before), log.masked(after))
    except (FileNotFoundError, deletion_vectors.UnreadableVectorError):
        # This raises no error: Spark reports the damage when it reads the vectors.
        return None
    rows = after.rows if before.rows is None else before.rows
    sides: list[list[FileAction]] = []
    for seen, file in ((deletion_vectors.minus(new, old), before), (deletion_vectors.minus(old, new), after)):
        if not seen:
            sides.append([])
            continue
        if rows is None:
            return None
        masked = showing(file.filled(after if file is before else before), seen, rows)
        if (
            masked.deletion_vector is not None
            and (masked.deletion_vector.size_in_bytes or 0) > _LONGEST_VECTOR
        ):
            return None
        sides.append([masked])
    return sides[0], sides[1]


async def _active(log: DeltaLog, version: int, keys: Collection[Key]) -> dict[Key, Add]:
    """Return the given files that are part of a version."""
    return await log.active(version, keys) if keys and version >= 0 else {}


async def _commits(
    log: DeltaLog, versions: Sequence[int], *, with_statistics: bool = False
) -> AsyncIterator[tuple[int, list[Add | Remove | MetaData]]]:
    """Yield the file actions and new metadata of commits, in order.

    :param with_statistics: False: the files have only the number of rows, to save memory
    """

    async def one(version: int) -> list[Add | Remove | MetaData]:
        return [
            action if with_statistics or isinstance(action, MetaData) else action.with_rows(action.rows)
            async for action in log.actions(version)
            if isinstance(action, Add | Remove | MetaData)
        ]

    for start in range(0, len(versions), _BATCH):
        batch = versions[start : start + _BATCH]
        for version, actions in zip(batch, await gathered(map(one, batch), limit=_BATCH), strict=True):
            yield version, actions
