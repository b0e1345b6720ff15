"""Which versions of the source: bounds, the gates of the whole range, milestones and their steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from delta_cdc import gates
from delta_cdc.errors import ChangeFeedDisabled, RangeNotContiguous
from delta_cdc.plan import captures, events
from delta_cdc.plan.request import ApplyRequest
from delta_cdc.spec import Step
from delta_cdc.versions import VersionRange

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from delta_cdc.log.actions import Commit
    from delta_cdc.log.table import TableState
    from delta_cdc.plan.sight import Sight
    from delta_cdc.spec import QueryOptions
    from delta_cdc.watermark import Seal

    Read = Callable[[int, int], Awaitable[tuple[Commit, ...]]]

_CHUNK = 64


@dataclass(frozen=True)
class Nothing:
    """A range in which no commit changes data.

    :param ending: its end; the watermark where there is no newer version at all
    :param source_commit_hash: of the source's commit file at ``ending``
    :param commits: of the range, ascending
    :param tracked_from: the last of them that turned row tracking on, of a table of events; -1 is none
    """

    ending: int
    source_commit_hash: str
    notes: tuple[str, ...]
    commits: tuple[Commit, ...] = ()
    tracked_from: int = -1


@dataclass(frozen=True)
class Chosen:
    """A range with changes that passed its gates.

    :param at_end: the source as of the range's end
    :param arrivals: what the commits say beside, where the source is a table of events
    """

    commits: tuple[Commit, ...]
    at_end: TableState
    notes: tuple[str, ...]
    arrivals: events.Arrivals | None = field(default=None, repr=False, compare=False)

    @property
    def versions(self) -> VersionRange:
        """Return the range, both ends inclusive."""
        return VersionRange(self.commits[0].version, self.commits[-1].version)

    @property
    def tracked_from(self) -> int:
        """Return the last version that turned row tracking on, of a table of events; -1 is none."""
        return _tracked_from(self.commits, self.arrivals)

    @property
    def read(self) -> tuple[Commit, ...]:
        """Return the commits from the first one on that changes data."""
        first = next(at for at, commit in enumerate(self.commits) if commit.changes_data)
        return self.commits[first:]


async def choose(sight: Sight, seal: Seal) -> Chosen | Nothing:
    """Choose the range after the watermark.

    :raises RangeNotContiguous: an explicit start would leave versions out, or an explicit end is not there
    :raises DeltaCdcError: a gate that failed
    """
    identity = await gates.check_identity(sight.log, sight.source, seal)
    notes: tuple[str, ...] = (identity.note,) if identity.note else ()
    ending, said = _ending(sight, seal.watermark)
    notes += said
    if ending <= seal.watermark:
        return Nothing(seal.watermark, seal.source_commit_hash, notes)
    found = await choose_after(sight, seal.watermark, ending, notes)
    if identity.replaced and isinstance(found, Chosen):
        # Only the feed shows what a REPLACE did to rows that were applied from the table before it.
        try:
            await gates.check_feed(sight.log, found.read, found.at_end)
        except ChangeFeedDisabled as error:
            raise gates.replaced(sight.source, seal) from error
    return found


async def choose_after(sight: Sight, watermark: int, ending: int, notes: tuple[str, ...]) -> Chosen | Nothing:
    """Read the commits of ``(watermark, ending]``, as far as the run's limits go, and pass the gates."""
    request, uri = sight.request, sight.source.uri
    # A pinned end is what an earlier try made of the same limits.
    free = sight.pinned_end is None
    arrivals = arrivals_of(sight)
    commits = await _up_to(
        reader(sight, arrivals),
        watermark + 1,
        ending,
        request.max_versions if free else None,
        request.max_bytes if free else None,
    )
    last = commits[-1]
    if not any(commit.changes_data for commit in commits):
        text = f"No commit in versions {commits[0].version}-{last.version} of {uri} changes data."
        since = _tracked_from(commits, arrivals)
        return Nothing(last.version, last.sha256, (*notes, text), commits, since)
    said = await gates.check_schema(sight.log, commits)
    return Chosen(commits, await sight.at(last.version), (*notes, *said), arrivals)


def _tracked_from(commits: tuple[Commit, ...], arrivals: events.Arrivals | None) -> int:
    known = arrivals.tracked_from if arrivals is not None else set()
    return max((commit.version for commit in commits if commit.version in known), default=-1)


def arrivals_of(sight: Sight) -> events.Arrivals | None:
    """Return what reads the source's commits where it is a table of events, else None."""
    request = sight.request
    if not isinstance(request, ApplyRequest) or not request.options.takes_events:
        return None
    return events.Arrivals(sight.log, sight.source)


def reader(sight: Sight, arrivals: events.Arrivals | None) -> Read:
    """Return what reads the commits of a range."""
    if arrivals is not None:
        return arrivals.read
    return lambda starting, ending: gates.read_range(sight.log, starting, ending)


def _ending(sight: Sight, committed: int) -> tuple[int, tuple[str, ...]]:
    """Return the range's end, and what to say about a range that was named and is applied already."""
    newest, uri = sight.source.version, sight.source.uri
    start, end = sight.starting, sight.ending
    # A time of which there is no version yet leaves none out.
    awaited = sight.request.starting_timestamp is not None and start == newest + 1
    if start is not None and start > committed + 1 and not awaited:
        raise RangeNotContiguous(
            f"starting_version {start} of {uri} would leave versions {committed + 1}-{start - 1} unapplied: "
            f"the watermark of pipeline {sight.request.pipeline} is {committed}.",
            remedy=f"start at {committed + 1}, or leave the start out.",
        )
    refuse_beyond(sight)
    ends = (newest, end, sight.pinned_end, committed if awaited else None)
    ending = min(version for version in ends if version is not None)
    if awaited:
        note = f"No version of {uri} is as new as {sight.request.starting_timestamp} yet."
        return ending, (note,)
    if start is not None and start <= committed:
        last = max(min(committed, committed if end is None else end), start)
        note = f"Versions {start}-{last} of {uri} are already applied and are left out (the watermark is "
        return ending, (f"{note}{committed}).",)
    if end is not None and end <= committed:
        note = f"Everything up to version {end} of {uri} is already applied (the watermark is {committed})."
        return ending, (note,)
    return ending, ()


def refuse_beyond(sight: Sight) -> None:
    """Refuse an explicit end that does not exist yet: Spark would clip it in silence.

    :raises RangeNotContiguous: names the newest version
    """
    end, newest = sight.ending, sight.source.version
    if end is not None and end > newest:
        raise RangeNotContiguous(
            f"ending_version {end} does not exist yet: the newest version of {sight.source.uri} is {newest}.",
            remedy=f"end at {newest} or before, or wait for the version.",
        )


# -- a snapshot ---------------------------------------------------------------------------------
async def load_step(sight: Sight, version: int, *, declared: bool = False) -> tuple[Step, TableState]:
    """Return the step that loads a snapshot of a version as one sealed commit, and the source as of it.

    :param declared: no rows: what the target holds counts as that snapshot
    """
    at = await sight.at(version)
    commit = await sight.log.commit(version)
    if version < sight.source.version:
        gates.check_retention(commit, sight.source, sight.now_ms)
    step = Step(
        kind="declare" if declared else "load",
        starting_version=version,
        ending_version=version,
        seal_number=sight.next_number,
        applied_from=0,
        source_commit_hash=commit.sha256,
        source_columns=at.schema_columns,
        planned_on=sight.planned_on,
        horizons=events.horizon_at(at) if arrivals_of(sight) is not None else (),
    )
    return step, at


# -- milestones ---------------------------------------------------------------------------------
def milestones(
    commits: tuple[Commit, ...], versions: int | None, size: int | None
) -> tuple[tuple[Commit, ...], ...]:
    """Cut a range into parts of at most so many versions and so many bytes to read.

    Every part but a range without any change holds at least one commit that changes data, and the count
    begins there: maintenance commits before the first change, and after the last one of the range, cost
    nothing.

    :param commits: ascending, gap-free
    :param versions: None is no limit
    :param size: bytes, by the log; a single commit may have more; None is no limit
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
    """Read the commits of a range, no further than its first milestone needs."""
    if versions is None and size is None:
        return await read(starting, ending)
    commits: tuple[Commit, ...] = ()
    batch = _CHUNK if versions is None else min(versions + 1, _CHUNK)
    while not commits or commits[-1].version < ending:
        after = commits[-1].version + 1 if commits else starting
        commits += await read(after, min(ending, after + batch - 1))
        parts = milestones(commits, versions, size)
        if len(parts) > 1:
            return parts[0]
        batch = _CHUNK
    return commits


# -- steps --------------------------------------------------------------------------------------
async def steps(
    sight: Sight,
    chosen: Chosen,
    options: QueryOptions,
    *,
    number: int,
    applied_from: int,
    versions: int | None = None,
    size: int | None = None,
    one_by_one: bool = False,
) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """Return one step per milestone, and what is to be said about how they are read.

    :param options: what is asked of the changes
    :param number: the seal number of the first one
    :param versions: the milestones' limit, see :func:`milestones`
    :param size: bytes, likewise
    :param one_by_one: see :func:`delta_cdc.plan.captures.choose`
    """
    made: list[Step] = []
    notes: list[str] = []
    arrivals = chosen.arrivals
    horizons = arrivals.horizons if arrivals is not None else {}
    left_out = arrivals.left_out if arrivals is not None else {}
    cut = events.cut(chosen.commits, horizons, left_out)
    parts = [one for part in cut for one in milestones(part, versions, size)]
    for part in parts:
        async for commits, captured in _within_limits(sight, chosen, part, options, one_by_one=one_by_one):
            last = commits[-1]
            notes += captured.notes
            made.append(
                Step(
                    kind="apply",
                    starting_version=commits[0].version,
                    ending_version=last.version,
                    seal_number=number + len(made),
                    applied_from=applied_from,
                    source_commit_hash=last.sha256,
                    source_columns=await _columns_at(sight, chosen, last.version),
                    planned_on=None,
                    segments=captured.segments,
                    horizons=events.since(events.horizon_of(commits, horizons), chosen.tracked_from),
                )
            )
    return tuple(made), tuple(notes)


async def _within_limits(
    sight: Sight,
    chosen: Chosen,
    commits: tuple[Commit, ...],
    options: QueryOptions,
    *,
    one_by_one: bool,
) -> AsyncIterator[tuple[tuple[Commit, ...], captures.Captured]]:
    """Yield a milestone, cut where reading it would take a plan that no driver should hold."""
    table = captures.Table(sight.log, chosen.at_end, sight.source, sight.now_ms)
    await table.look_up_times(commits)
    left_out = chosen.arrivals.left_out if chosen.arrivals is not None else {}
    choose = partial(captures.choose, left_out=left_out, one_by_one=one_by_one)
    while commits:
        part = captures.window(commits, options)
        table = replace(table, at_end=await _state_at(sight, chosen, part[-1].version))
        captured = await choose(table, part, options)
        too_much = captures.beyond_limits(captured.segments, part, scratch=sight.request.scratch)
        if too_much is not None:
            part = part[: too_much - part[0].version]
            table = replace(table, at_end=await _state_at(sight, chosen, part[-1].version))
            captured = await choose(table, part, options)
        await captures.pass_gates(table, captured.segments, part)
        yield part, captured
        commits = commits[len(part) :]


async def _state_at(sight: Sight, chosen: Chosen, version: int) -> TableState:
    if all(commit.metadata is None for commit in chosen.commits if commit.version > version):
        return chosen.at_end
    return await sight.at(version)


async def _columns_at(sight: Sight, chosen: Chosen, version: int) -> tuple[str, ...]:
    return (await _state_at(sight, chosen, version)).schema_columns
