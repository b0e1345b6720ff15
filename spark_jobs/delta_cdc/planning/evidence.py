"""Gathers from two logs what the advice about a pipeline rests on. Reads no data, and starts no process.

The work is bounded: a number of the newest commits of each log, the list of the files of one version of the
target, and one request for a removed file. A commit with too many files is not read file by file.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from delta_cdc.core import codec
from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.retention import FILE_RETENTION, milliseconds_of
from delta_cdc.core.validation import options_of
from delta_cdc.delta_log.actions import Add, Remove
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning import read_methods
from delta_cdc.planning.apply import query_for
from delta_cdc.planning.ingest_status import is_ingested
from delta_cdc.planning.maintenance_commits import backwards
from delta_cdc.planning.reconcile import reconcile_async
from delta_cdc.planning.seal_chain import seal_of
from delta_cdc.planning.vacuum import reached

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.core.steps import ReadRange
    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit, Key
    from delta_cdc.delta_log.table import TableState

#: The most commits of a log, runs whose read method is determined, and files of a table.
MOST_COMMITS, MOST_RUNS, MOST_FILES = 200, 20, 10_000
#: The types of which Delta keeps bounds.
_BOUNDED = ("byte", "short", "integer", "long", "float", "double", "decimal", "string", "date", "timestamp")


@dataclass(frozen=True)
class Run:
    """A sealed commit of the target.

    :param read: the commits of the source that it applied, ascending; empty if the log lacks one of them
    :param ranges: how a run reads them, by the properties that the source had; empty if it is not known
    """

    seal: Seal
    commit: Commit
    read: tuple[Commit, ...] = ()
    ranges: tuple[ReadRange, ...] = ()

    @property
    def waited(self) -> int | None:
        """Return the age of the oldest change when it was applied, in milliseconds; None if unknown."""
        changing = next((commit for commit in self.read if commit.changes_data), None)
        return None if changing is None else max(0, self.commit.timestamp - changing.timestamp)


class Bounds(NamedTuple):
    """What the statistics of a file show about the keys: the least and the greatest value of each.

    A key without bounds is missing.
    """

    of_keys: dict[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Layout:
    """The active files of a table.

    :param sizes: their bytes, by partition
    :param rows: before masking; None if the log lacks it
    :param bounds: of the files that commits of the evidence added
    """

    sizes: dict[tuple[tuple[str, str | None], ...], tuple[int, ...]] = field(repr=False)
    rows: int | None
    masked_rows: int
    bounds: tuple[Bounds, ...] = field(repr=False, default=())

    @cached_property
    def files(self) -> int:
        """Return their number."""
        return sum(map(len, self.sizes.values()))

    @cached_property
    def bytes(self) -> int:
        """Return their size."""
        return sum(map(sum, self.sizes.values()))


@dataclass(frozen=True)
class Garbage:
    """The removed files that are older than the retention, and that no VACUUM has deleted.

    :param since: the version that removed the first of them
    """

    files: int
    bytes: int
    since: int


@dataclass(frozen=True)
class Evidence:
    """What the logs show about one pipeline.

    :param now: epoch milliseconds
    :param options: those that its newest seal records; None for an ingest
    :param source: None for an ingest, whose source has no versions
    :param commits: the newest commits of the target, ascending
    :param runs: the sealed commits among them, ascending
    :param layout: None if the target has too many files
    :param garbage: None without such files
    :param target_bytes: of the target's active files
    :param freshness: seconds, from the configuration
    :param schedule: that of the pipeline's group in a configuration
    :param is_watchable: whether this schedule may be ``on_change``
    :param bounded_keys: the keys that can have bounds, as the target spells them
    """

    pipeline: str
    now: int
    options: ApplyOptions | None
    source: TableState | None
    target: TableState
    commits: tuple[Commit, ...] = ()
    runs: tuple[Run, ...] = ()
    layout: Layout | None = None
    garbage: Garbage | None = None
    target_bytes: int = 0
    freshness: float | None = None
    schedule: Any = None
    is_watchable: bool = True
    bounded_keys: tuple[str, ...] = ()

    @cached_property
    def applied(self) -> tuple[Run, ...]:
        """Return the runs that applied a range of versions."""
        return tuple(run for run in self.runs if run.seal.step.kind == "apply")


async def gather(
    pipeline: str,
    target: str,
    *,
    source: str | None = None,
    storage_options: dict[str, str] | None = None,
    freshness: float | None = None,
    now_ms: int,
) -> Evidence | None:
    """Return the evidence about a pipeline; None if its target has no seal.

    :param target: path or URI
    :param source: path or URI; None: the source that the seal names
    :raises DeltaCdcError: a log cannot be read
    """
    log = DeltaLog(target, storage_options)
    recorded = await reconcile_async(log, pipeline, declared=True)
    if recorded is None or recorded.seal is None:
        return None
    found = [commit async for commit in backwards(log, recorded.target.version, MOST_COMMITS)]
    commits = tuple(reversed(found))
    sealed = [(seal, commit) for commit in commits if (seal := seal_of(commit, pipeline)) is not None]
    runs, options, state = [Run(*pair) for pair in sealed], None, None
    if not is_ingested(recorded):
        options = options_of(recorded.seal)
        read = DeltaLog(source or recorded.seal.source_uri, storage_options)
        state = await read.snapshot()
        runs = await _with_reads(read, state, runs, options, now_ms)
    keys = _bounded_keys(recorded.target, options.keys if options is not None else ())
    layout, garbage = await _files(log, recorded.target, commits, keys, now_ms)
    return Evidence(
        pipeline=pipeline,
        now=now_ms,
        options=options,
        source=state,
        target=recorded.target,
        commits=commits,
        runs=tuple(runs),
        layout=layout,
        garbage=garbage,
        target_bytes=await asyncio.to_thread(lambda: recorded.target.num_bytes) if garbage is not None else 0,
        freshness=freshness,
        bounded_keys=tuple(keys),
    )


# -- what the runs read ---------------------------------------------------------------------------
async def _with_reads(
    log: DeltaLog, newest: TableState, runs: Sequence[Run], options: ApplyOptions, now: int
) -> list[Run]:
    """Add to the newest runs what they read."""
    found = []
    for run in runs[-MOST_RUNS:]:
        step = run.seal.step
        read: tuple[Commit, ...] = ()
        is_short = step.ending_version - step.starting_version < MOST_COMMITS
        if step.kind == "apply" and step.starting_version >= 0 and step.ending_version <= newest.version:
            versions = range(step.starting_version, step.ending_version + 1) if is_short else range(0)
            commits = await log.history().read(versions)
            read = tuple(commit for commit in commits if commit is not None)
            read = read if len(read) == len(commits) else ()
        ranges = await _ranges(log, newest, read, options, now)
        found.append(Run(run.seal, run.commit, read, ranges))
    return [*runs[:-MOST_RUNS], *found]


async def _ranges(
    log: DeltaLog, newest: TableState, read: tuple[Commit, ...], options: ApplyOptions, now: int
) -> tuple[ReadRange, ...]:
    if not read:
        return ()
    try:
        at_end = await log.snapshot(read[-1].version)
        chosen = read_methods.Source(log, at_end, newest, now, read)
        ranges, _ = await read_methods.choose(
            chosen, read, query_for(options), one_by_one=options.takes_copies
        )
    except DeltaCdcError:
        # A run of today could not read the range; advice about what it costs has no evidence.
        return ()
    return ranges


# -- the files of the target ----------------------------------------------------------------------
async def _files(
    log: DeltaLog, state: TableState, commits: Sequence[Commit], keys: dict[str, str], now: int
) -> tuple[Layout | None, Garbage | None]:
    bounds: dict[Key, Bounds] = {}
    removed: dict[str, Remove] = {}
    done_to = max((moment for commit in commits if (moment := reached(commit)) is not None), default=None)
    free_until = now - milliseconds_of(FILE_RETENTION, state.configuration)
    since = None
    for commit in commits:
        is_free = commit.timestamp <= free_until and (done_to is None or commit.timestamp > done_to)
        if not (commit.n_adds or commit.n_removes):
            continue
        if commit.n_adds + commit.n_removes > MOST_FILES:
            # It is not read. It may add files again that earlier commits removed.
            removed, since = {}, None
            continue
        paths: set[str] = set()
        found: dict[str, Remove] = {}
        async for action in log.actions(commit.version):
            if isinstance(action, Add):
                paths.add(action.path)
                if keys:
                    bounds[action.key] = _bounds(action.stats, keys)
            elif isinstance(action, Remove) and is_free:
                found[action.path] = action
        # A file whose masked rows change is removed and added in one commit.
        removed = {path: action for path, action in (removed | found).items() if path not in paths}
        if since is None and found.keys() - paths:
            since = commit.version
    garbage = None
    if since is not None and removed and await log.has_file(next(iter(removed))):
        size = sum(action.size or 0 for action in removed.values())
        garbage = Garbage(len(removed), size, since)
    return await _layout(log, state, bounds), garbage


async def _layout(log: DeltaLog, state: TableState, bounds: dict[Key, Bounds]) -> Layout | None:
    listed = await log.files(state.version)
    if not 0 < len(listed) <= MOST_FILES:
        return None
    active = await log.active(state.version, [(path, vector) for path, vector, _ in listed])
    sizes: dict[tuple[tuple[str, str | None], ...], list[int]] = {}
    for add in active.values():
        partition = tuple(sorted((add.partition_values or {}).items()))
        sizes.setdefault(partition, []).append(add.size or 0)
    rows = state.num_rows
    masked = sum(masked for _, _, masked in listed)
    return Layout(
        sizes={partition: tuple(found) for partition, found in sizes.items()},
        rows=None if rows is None else rows + masked,
        masked_rows=masked,
        bounds=tuple(bounds[key] for key in active if key in bounds),
    )


def _bounded_keys(state: TableState, keys: Sequence[str]) -> dict[str, str]:
    """Return the names in the files of the keys that can have bounds, by the names of the keys."""
    try:
        fields = codec.parsed(state.schema_string)["fields"]
    except (UnreadableJson, TypeError, KeyError):
        return {}
    names: dict[str, str] = {}
    wanted = {key.lower() for key in keys} - {name.lower() for name in state.partition_columns}
    for one in fields:
        if str(one["name"]).lower() in wanted and str(one["type"]).startswith(_BOUNDED):
            metadata = one.get("metadata") or {}
            names[one["name"]] = metadata.get("delta.columnMapping.physicalName", one["name"])
    return names


def _bounds(stats: str | None, keys: dict[str, str]) -> Bounds:
    try:
        found = codec.parsed(stats or "{}")
        least, greatest = found.get("minValues") or {}, found.get("maxValues") or {}
        return Bounds(
            {
                key: (least[name], greatest[name])
                for key, name in keys.items()
                if name in least and name in greatest
            }
        )
    except (UnreadableJson, AttributeError, TypeError):
        return Bounds({})
