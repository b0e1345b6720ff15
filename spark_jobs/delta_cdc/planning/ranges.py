"""Chooses the source versions to process: bounds, preconditions of the range, commits and their steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from delta_cdc.core.column_changes import FOLLOWED
from delta_cdc.core.errors import ChangeFeedDisabled, RangeNotContiguous
from delta_cdc.core.steps import Changes, Snapshot, Step
from delta_cdc.core.versions import VersionRange
from delta_cdc.core.watermark import TableVersion
from delta_cdc.planning import (
    appended_events,
    followed_columns,
    maintenance_commits,
    preconditions,
    read_methods,
)
from delta_cdc.planning.followed_columns import FollowedColumns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from delta_cdc.core.options import QueryOptions
    from delta_cdc.core.steps import ReadRange
    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import TableState
    from delta_cdc.planning.observe import Observation

    Read = Callable[[int, int], Awaitable[tuple[Commit, ...]]]

_CHUNK = 64
#: Versions that a run takes if neither a limit nor an end is given. A commit takes 1 to 3 KiB of memory.
MOST_COMMITS = 100_000


@dataclass(frozen=True)
class Nothing:
    """A range in which no commit changes data.

    :param ended: its end; the watermark if there is no newer version
    :param commits: commits of the range, ascending
    :param tracked_from: for a table of events: the last commit that turned row tracking on; -1: no commit did
    :param identity: the comparison of the source with the table of the watermark: a seal without rows, which
        moves the watermark, needs it (:func:`delta_cdc.planning.preconditions.refuse_unproven`)
    """

    ended: TableVersion
    notes: tuple[str, ...]
    commits: tuple[Commit, ...] = ()
    tracked_from: int = -1
    identity: preconditions.Identity = field(default_factory=preconditions.Identity)


@dataclass(frozen=True)
class Chosen:
    """A range with changes, of rows or of followed columns, that passed its preconditions.

    :param at_end: the source as of the range's end
    :param arrivals: event information from the commits, if the source is a table of events
    :param followed: the schema changes of the range
    """

    commits: tuple[Commit, ...]
    at_end: TableState
    notes: tuple[str, ...]
    arrivals: appended_events.Arrivals | None = field(default=None, repr=False, compare=False)
    followed: FollowedColumns = field(default_factory=FollowedColumns, repr=False, compare=False)

    @property
    def versions(self) -> VersionRange:
        """Return the range, both ends inclusive."""
        return VersionRange(self.commits[0].version, self.commits[-1].version)

    @property
    def tracked_from(self) -> int:
        """Return, for a table of events, the last version that turned row tracking on; -1: no version did."""
        return _tracked_from(self.commits, self.arrivals)

    @property
    def read(self) -> tuple[Commit, ...]:
        """Return the commits, starting at the first one that changes data."""
        changing = [index for index, commit in enumerate(self.commits) if commit.changes_data]
        return self.commits[changing[0] :] if changing else ()


async def choose(observed: Observation[Any], seal: Seal) -> Chosen | Nothing:
    """Choose the range after the watermark.

    :raises RangeNotContiguous: an explicit start would leave versions out, or an explicit end does not exist
    :raises DeltaCdcError: a precondition failed
    """
    identity = await preconditions.check_identity(observed.log, observed.source, seal)
    notes: tuple[str, ...] = (identity.note,) if identity.note else ()
    watermark = seal.watermark.version
    ending, range_notes = _ending(observed, watermark)
    notes += range_notes
    if ending <= watermark:
        return Nothing(seal.watermark, notes)
    found = await choose_after(observed, watermark, ending, notes)
    if isinstance(found, Nothing):
        return replace(found, identity=identity)
    preconditions.refuse_unproven(identity, observed.source, seal)
    options = observed.request.applied
    is_copy = options is not None and options.takes_copies
    if identity.replaced and found.read and not is_copy:
        # Only the feed shows what a REPLACE did to rows that were applied from the previous table. Copies are
        # compared by their keys.
        try:
            await preconditions.check_feed(observed.log, found.read, found.at_end)
        except ChangeFeedDisabled as error:
            and_then = "; if a job replaces the source each time, give it source_kind 'snapshot'"
            raise preconditions.replaced(observed.source, seal, and_then) from error
    return found


async def choose_after(
    observed: Observation[Any], watermark: int, ending: int, notes: tuple[str, ...]
) -> Chosen | Nothing:
    """Read the commits of ``(watermark, ending]`` up to the run's limits, and check the preconditions."""
    request, uri = observed.request, observed.source.uri
    arrivals = arrivals_of(observed)
    commits = await _up_to(
        reader(observed, arrivals),
        watermark + 1,
        ending,
        # Also up to a saved end, which the limits gave: people can edit the store that holds it.
        _most_versions(observed, ending - watermark),
        request.max_bytes,
    )
    last = commits[-1]
    changes_data = any(commit.changes_data for commit in commits)
    if changes_data or _follows_columns(observed):
        followed = await followed_columns.check(observed.log, commits, observed)
        if changes_data or followed.changes(commits[0].version, last.version) or followed.splits:
            at_end = await observed.at(last.version)
            return Chosen(commits, at_end, (*notes, *followed.notes), arrivals, followed)
    text = f"No commit in versions {commits[0].version}-{last.version} of {uri} changes data."
    since = _tracked_from(commits, arrivals)
    return Nothing(ended(observed.source, last), (*notes, text), commits, since)


def _most_versions(observed: Observation[Any], versions: int) -> int | None:
    """Return how many versions a run takes at most; None: all."""
    given: int | None = observed.request.max_versions
    if given is not None or observed.ending is not None or observed.saved_end is not None:
        return given
    # The next run takes the others: the commits of a very long log do not fit into memory.
    return MOST_COMMITS if versions > MOST_COMMITS else None


def _follows_columns(observed: Observation[Any]) -> bool:
    """Return whether a change of columns alone is work for a target."""
    options = observed.request.applied
    return options is not None and options.schema_evolution in FOLLOWED


def ended(source: TableState, commit: Commit) -> TableVersion:
    """Return the source version that a range ends with."""
    return TableVersion(source.table_id, commit.version, commit.sha256)


def _tracked_from(commits: tuple[Commit, ...], arrivals: appended_events.Arrivals | None) -> int:
    tracking_versions = arrivals.tracked_from if arrivals is not None else set()
    return max((commit.version for commit in commits if commit.version in tracking_versions), default=-1)


def arrivals_of(observed: Observation[Any]) -> appended_events.Arrivals | None:
    """Return the commit reader for a source that is a table of events, else None."""
    options = observed.request.applied
    if options is None or not options.takes_events:
        return None
    return appended_events.Arrivals(observed.log, observed.source, copied=options.writes_events)


def reader(observed: Observation[Any], arrivals: appended_events.Arrivals | None) -> Read:
    """Return the function that reads the commits of a range."""
    if arrivals is not None:
        return arrivals.read
    options = observed.request.applied
    is_append = options is not None and options.insert_only

    async def read(starting: int, ending: int) -> tuple[Commit, ...]:
        commits = await preconditions.read_range(observed.log, starting, ending)
        if not is_append:
            return commits
        # A target without keys cannot follow a delete; its own rows are erased by its own erasure.
        return tuple(
            replace(one, changes_data=False) if maintenance_commits.erases(one.info) else one
            for one in commits
        )

    return read


def _ending(observed: Observation[Any], committed: int) -> tuple[int, tuple[str, ...]]:
    """Return the range's end, and notes on a requested range that is already applied or not there yet."""
    newest, uri = observed.source.version, observed.source.uri
    start, end = observed.starting, observed.ending
    # A starting time after the newest version leaves no version out.
    awaited = observed.request.starting_timestamp is not None and start == newest + 1
    if start is not None and start > committed + 1 and not awaited:
        raise _gap(observed, start, committed)
    refuse_beyond(observed)
    ends = (newest, end, observed.saved_end, committed if awaited else None)
    ending = min(version for version in ends if version is not None)
    if awaited:
        return ending, (f"No version of {uri} is as new as {observed.request.starting_timestamp} yet.",)
    if start is not None and start <= committed:
        last = max(min(committed, committed if end is None else end), start)
        note = (
            f"Versions {start}-{last} of {uri} are already applied and are left out (the watermark is "
            f"{committed})."
        )
        return ending, (note,)
    if end is not None and end <= committed:
        note = f"Everything up to version {end} of {uri} is already applied (the watermark is {committed})."
        return ending, (note,)
    return ending, ()


def _gap(observed: Observation[Any], start: int, committed: int) -> RangeNotContiguous:
    """Return the error for an explicit start that would leave versions out, and possibly ends too late."""
    newest, end = observed.source.version, observed.ending
    uri, pipeline = observed.source.uri, observed.request.pipeline
    if end is not None and end > newest:
        return RangeNotContiguous(
            f"starting_version {start} of {uri} would leave versions {committed + 1}-{start - 1} unapplied: "
            f"the watermark of pipeline {pipeline} is {committed}. ending_version {end} does not exist yet: "
            f"the newest version of the source is {newest}.",
            remedy=f"start at {committed + 1}, or leave the start out; end at {newest} or before.",
        )
    return RangeNotContiguous(
        f"starting_version {start} of {uri} would leave versions {committed + 1}-{start - 1} unapplied: "
        f"the watermark of pipeline {pipeline} is {committed}.",
        remedy=f"start at {committed + 1}, or leave the start out.",
    )


def refuse_beyond(observed: Observation[Any]) -> None:
    """Refuse an explicit end that does not exist yet: Spark would silently shorten the range.

    :raises RangeNotContiguous: names the newest version
    """
    start, end, newest = observed.starting, observed.ending, observed.source.version
    if end is None or end <= newest:
        return
    remedy = f"end at {newest} or before, or wait for the version."
    if start is not None and start > newest:
        raise RangeNotContiguous(
            f"starting_version {start} is after the newest version, and ending_version {end} does not exist "
            f"yet: the newest version of the source is {newest} (table {observed.source.uri}).",
            remedy=remedy,
        )
    raise RangeNotContiguous(
        f"ending_version {end} does not exist yet: the newest version of the source is {newest} (table "
        f"{observed.source.uri}).",
        remedy=remedy,
    )


# -- a snapshot ---------------------------------------------------------------------------------
async def load_step(
    observed: Observation[Any], version: int, *, declared: bool = False
) -> tuple[Step, TableState]:
    """Return the step that loads a version's snapshot as one sealed commit, and the source at that version.

    :param declared: load no rows: set the target's contents as the baseline for that snapshot
    """
    at = await observed.at(version)
    commit = await observed.log.commit(version)
    if version < observed.source.version:
        preconditions.check_retention(commit, observed.source, observed.now_ms)
    step = Step(
        kind="baseline" if declared else "load",
        read=Snapshot(is_empty=declared),
        starting_version=version,
        applied_to=ended(at, commit),
        seal_number=observed.next_number,
        source_columns=at.schema_columns,
        planned_on=observed.planned_on,
        horizons=appended_events.lateness_bounds_at(at) if arrivals_of(observed) is not None else (),
    )
    return step, at


# -- commits (versions_per_commit) --------------------------------------------------------------
def commit_parts(
    commits: tuple[Commit, ...], versions: int | None, size: int | None
) -> tuple[tuple[Commit, ...], ...]:
    """Split a range into parts, one per target commit, by maximum versions and maximum bytes to read.

    Each part holds at least one commit that changes data, unless the whole range has none. Counting begins at
    the part's first such commit: maintenance commits before it, and after the range's last data change, are
    not counted.

    :param commits: ascending, gap-free
    :param versions: maximum number of versions; None: no limit
    :param size: maximum bytes, from the log; a single commit may exceed it; None: no limit
    """
    parts: list[list[Commit]] = []
    part: list[Commit] = []
    counted, taken = 0, 0
    for commit in commits:
        full = counted and (
            (versions is not None and counted >= versions)
            or (size is not None and commit.changes_data and taken + commit.bytes_to_read > size)
        )
        if full:
            parts.append(part)
            part, counted, taken = [], 0, 0
        part.append(commit)
        if commit.changes_data:
            taken += commit.bytes_to_read
        if counted or commit.changes_data:
            counted += 1
    if parts and not any(commit.changes_data for commit in part):
        part = parts.pop() + part
    return tuple(map(tuple, (*parts, part))) if part else ()


async def _up_to(
    read: Read, starting: int, ending: int, versions: int | None, size: int | None
) -> tuple[Commit, ...]:
    """Read the commits of a range, only as far as the first part of :func:`commit_parts` needs."""
    if versions is None and size is None:
        return await read(starting, ending)
    commits: tuple[Commit, ...] = ()
    batch = _CHUNK if versions is None else min(versions + 1, _CHUNK)
    while not commits or commits[-1].version < ending:
        after = commits[-1].version + 1 if commits else starting
        commits += await read(after, min(ending, after + batch - 1))
        parts = commit_parts(commits, versions, size)
        if len(parts) > 1:
            return parts[0]
        # Larger from time to time, because each turn divides all commits so far.
        batch = max(_CHUNK, len(commits) // 4)
    return commits


# -- steps --------------------------------------------------------------------------------------
async def steps(
    observed: Observation[Any],
    chosen: Chosen,
    options: QueryOptions,
    *,
    number: int,
    versions: int | None = None,
    size: int | None = None,
    one_by_one: bool = False,
) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """Return one step per target commit, and notes on how the changes are read.

    :param options: the query over the changes
    :param number: seal number of the first step
    :param versions: maximum versions per commit, see :func:`commit_parts`
    :param size: maximum bytes per commit, see :func:`commit_parts`
    :param one_by_one: see :func:`delta_cdc.planning.read_methods.choose`
    """
    steps_made: list[Step] = []
    notes: list[str] = []
    arrivals = chosen.arrivals
    horizons = arrivals.horizons if arrivals is not None else {}
    left_out = arrivals.left_out if arrivals is not None else {}
    intervals = appended_events.split(chosen.commits, horizons, left_out)
    readable = [part for interval in intervals for part in chosen.followed.parts(interval)]
    parts = [commit_part for part in readable for commit_part in commit_parts(part, versions, size)]
    for part in parts:
        async for commits, read_ranges, reading_notes in _within_limits(
            observed, chosen, part, options, one_by_one=one_by_one
        ):
            last = commits[-1]
            notes += reading_notes
            steps_made.append(
                Step(
                    kind="apply",
                    read=Changes(read_ranges),
                    starting_version=commits[0].version,
                    applied_to=ended(chosen.at_end, last),
                    seal_number=number + len(steps_made),
                    source_columns=await _columns_at(observed, chosen, last.version),
                    horizons=appended_events.since(
                        appended_events.horizon_of(commits, horizons), chosen.tracked_from
                    ),
                    column_changes=chosen.followed.changes(commits[0].version, last.version),
                )
            )
    return tuple(steps_made), tuple(notes)


async def _within_limits(
    observed: Observation[Any],
    chosen: Chosen,
    commits: tuple[Commit, ...],
    options: QueryOptions,
    *,
    one_by_one: bool,
) -> AsyncIterator[tuple[tuple[Commit, ...], tuple[ReadRange, ...], tuple[str, ...]]]:
    """Yield a commit's versions, split if one Spark plan over them would be too large for the driver."""
    table = read_methods.Source(observed.log, chosen.at_end, observed.source, observed.now_ms, commits)
    left_out = chosen.arrivals.left_out if chosen.arrivals is not None else {}
    # The readers of these commits take them for commits that change no data (see reader).
    erasures = {
        one.version for one in commits if not one.changes_data and maintenance_commits.erases(one.info)
    }
    choose = partial(read_methods.choose, left_out={*left_out, *erasures}, one_by_one=one_by_one)
    while commits:
        part = read_methods.window(commits, options)
        table = replace(table, at_end=await _state_at(observed, chosen, part[-1].version))
        read_ranges, notes = await choose(table, part, options)
        too_much = read_methods.beyond_limits(read_ranges, part, scratch=observed.request.scratch)
        if too_much is not None:
            part = part[: too_much - part[0].version]
            table = replace(table, at_end=await _state_at(observed, chosen, part[-1].version))
            read_ranges, notes = await choose(table, part, options)
        await read_methods.check_files(table, read_ranges, part)
        yield part, read_ranges, notes
        commits = commits[len(part) :]


async def _state_at(observed: Observation[Any], chosen: Chosen, version: int) -> TableState:
    if all(commit.metadata is None for commit in chosen.commits if commit.version > version):
        return chosen.at_end
    return await observed.at(version)


async def _columns_at(observed: Observation[Any], chosen: Chosen, version: int) -> tuple[str, ...]:
    return (await _state_at(observed, chosen, version)).schema_columns
