"""Plans a read of changes without a watermark: the caller names the range."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delta_cdc.core import rules, validation
from delta_cdc.core.errors import RangeNotContiguous, RangeTooLong
from delta_cdc.core.times import epoch_ms
from delta_cdc.core.versions import VersionRange
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning import followed_columns, preconditions, read_methods
from delta_cdc.planning.observe import first_version
from delta_cdc.planning.plan import range_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delta_cdc.core.requests import ChangesRequest
    from delta_cdc.core.steps import ReadRange
    from delta_cdc.delta_log.clock import Bound
    from delta_cdc.delta_log.table import TableState


@dataclass(frozen=True)
class ChangesPlan:
    """How to read the changes of a range, decided from the log. ``str()`` gives readable lines.

    :param table: the table as of the range's end
    :param log: the table's log
    :param versions: the range, both ends inclusive; None if it contains no version
    :param read_ranges: the ranges to read, in order; empty if no commit of the range changes data
    :param notes: notes for users, one sentence each
    """

    table: TableState
    log: DeltaLog = field(repr=False, compare=False)
    versions: VersionRange | None = None
    read_ranges: tuple[ReadRange, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(f"{name:<10} {text}".rstrip() for name, text in self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield "table", self.table.uri
        yield "versions", str(self.versions) if self.versions is not None else "none"
        if not self.read_ranges:
            yield "to read", "nothing: no commit of the range changes data"
        yield from range_lines("read", self.read_ranges)
        for note in self.notes:
            yield "note", note


def plan_changes(request: ChangesRequest) -> ChangesPlan:
    """Plan how to read the changes of a range; see :func:`plan_changes_async`."""
    return run_sync(plan_changes_async(request))


async def plan_changes_async(request: ChangesRequest, *, now_ms: int | None = None) -> ChangesPlan:
    """Resolve the bounds, read the commits, check the preconditions and choose the read methods.

    Starts no process.

    :param now_ms: the time in epoch milliseconds; None is now
    :raises DeltaCdcError: a named error with its remedy for everything that stops the read
    """
    rules.check_changes(request)
    log = DeltaLog(request.table, request.storage_options)
    newest = await log.snapshot()
    versions = await _range(request, log, newest)
    if versions is None:
        return ChangesPlan(newest, log)
    is_newest = versions.ending_version == newest.version
    at_end = newest if is_newest else await log.snapshot(versions.ending_version)
    validation.check_feed_columns(at_end.schema_columns, newest.uri, at_end.version)
    commits = await preconditions.read_range(log, versions.starting_version, versions.ending_version)
    notes: tuple[str, ...] = ()
    if any(commit.changes_data for commit in commits):
        notes = (await followed_columns.check(log, commits)).notes
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    source = read_methods.Source(log, at_end, newest, now, commits)
    read_ranges, reading_notes = await read_methods.choose(source, commits, request.options)
    too_much = read_methods.beyond_limits(read_ranges, commits, scratch=request.scratch)
    if too_much is not None:
        raise _too_long(newest.uri, versions, too_much)
    await read_methods.check_files(source, read_ranges, commits)
    return ChangesPlan(at_end, log, versions, read_ranges, (*notes, *reading_notes))


def _too_long(uri: str, versions: VersionRange, at: int) -> RangeTooLong:
    first, last = versions.starting_version, at - 1
    return RangeTooLong(
        f"Versions {versions} of {uri} are too many for one DataFrame. One DataFrame can read at most "
        f"{read_methods.MOST_VERSIONS} versions with changes one by one, in at most "
        f"{read_methods.MOST_PARTS} parts. In at most {read_methods.MOST_COMPARED} of these versions, "
        "Delta's own reader may have to compare deletion vectors.",
        remedy=f"read versions {first}-{last} first, and continue at {at}. For the changes since a "
        "watermark, DeltaReadChangesOperator divides the range.",
    )


async def _range(request: ChangesRequest, log: DeltaLog, newest: TableState) -> VersionRange | None:
    """Resolve the bounds to versions; None if the range contains no version (yet).

    :raises RangeNotContiguous: a named version does not exist
    """
    start = await _resolved(request.starting_version, request.starting_timestamp, "start", log, newest)
    end = await _resolved(request.ending_version, request.ending_timestamp, "end", log, newest)
    start = newest.version + 1 if start is None else start
    if end is None:
        if request.ending_timestamp is not None:
            raise RangeNotContiguous(
                f"ending_timestamp {request.ending_timestamp} is before the oldest commit that the log of "
                f"{newest.uri} still has.",
                remedy="set a later time, or remove it.",
            )
        end = newest.version
    if end > newest.version:
        raise _beyond("ending_version", end, newest)
    if start > newest.version + 1:
        raise _beyond("starting_version", start, newest)
    return VersionRange(start, end) if start <= end else None


def _beyond(name: str, version: int, newest: TableState) -> RangeNotContiguous:
    return RangeNotContiguous(
        f"{name} {version} does not exist yet: the newest version of {newest.uri} is {newest.version}.",
        remedy=f"name {newest.version} or before, or wait for the version.",
    )


async def _resolved(
    version: int | None, timestamp: str | None, bound: Bound, log: DeltaLog, newest: TableState
) -> int | None:
    if timestamp is None:
        return version
    if bound == "start":
        return await first_version(log, timestamp, newest)
    return await log.version_at(epoch_ms("ending_timestamp", timestamp), bound=bound, state=newest)
