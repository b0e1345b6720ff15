"""Classifies the commits of a table to which events are appended, and tracks the allowed lateness.

Events never change. Maintenance deletes events below the allowed-lateness bound (``horizon``), which affects
no reader that continues from its watermark. Every other commit that removes rows raises an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from delta_cdc.core.errors import LogGap, NotAppendOnly, VersionsExpired
from delta_cdc.core.properties import LATENESS_HORIZON, tracks_rows
from delta_cdc.planning import maintenance_commits, preconditions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import DeltaLog, TableState


@dataclass
class Arrivals:
    """Reads commits of such a table, ascending and in parts, and collects their allowed-lateness bounds.

    :param newest: the table's newest state
    :param copied: the reader appends the events to another log, and so cannot compute its rows again
    :param left_out: version that only deletes events below a bound -> that bound
    :param horizons: version that appends events -> the allowed-lateness bound in effect when they arrived
    :param tracked_from: versions that turned row tracking on. Older events have no reliable arrival version
    """

    log: DeltaLog
    newest: TableState
    copied: bool = False
    left_out: dict[int, str] = field(default_factory=dict)
    horizons: dict[int, str] = field(default_factory=dict)
    tracked_from: set[int] = field(default_factory=set)
    _configuration: Mapping[str, str] = field(default_factory=dict)
    _next: int | None = None

    async def read(self, starting: int, ending: int) -> tuple[Commit, ...]:
        """Return the commits of a range; maintenance commits count as changing no data.

        :raises NotAppendOnly: names the first other version that removes rows
        :raises VersionsExpired: log cleanup removed the start of the range
        :raises LogGap: a commit file is missing
        """
        commits = await preconditions.read_range(self.log, starting, ending)
        if self._next != starting:
            self._configuration = await _before(self.log, self.newest, commits)
        self._next = ending + 1
        return tuple(self._seen(commit) for commit in commits)

    def _seen(self, commit: Commit) -> Commit:
        before = self._configuration.get(LATENESS_HORIZON)
        if commit.metadata is not None:
            if _begins_to_track(self._configuration, commit):
                self.tracked_from.add(commit.version)
            self._configuration = commit.metadata.configuration
        if not commit.changes_data:
            return commit
        if commit.n_data_removes:
            if maintenance_commits.erases(commit.info):
                return replace(commit, changes_data=False)
            below = _deleted_below(commit, before)
            if below is None:
                raise _changed(self.log.uri, commit, maintained=before is not None, copied=self.copied)
            self.left_out[commit.version] = below
            return replace(commit, changes_data=False)
        if before is not None:
            self.horizons[commit.version] = before
        return commit


def _deleted_below(commit: Commit, horizon: str | None) -> str | None:
    """Return the allowed-lateness bound below which maintenance deleted; None for any other commit.

    A manual DELETE counts, too: setting a bound makes the user responsible for deletions below it.

    :param horizon: the bound in effect
    """
    if horizon is None:
        return None
    return horizon if commit.info.operation == "DELETE" else maintenance_commits.expired_below(commit.info)


async def _before(log: DeltaLog, newest: TableState, commits: tuple[Commit, ...]) -> Mapping[str, str]:
    """Return the table's properties before the first of some commits."""
    if commits[-1].version == newest.version and all(commit.metadata is None for commit in commits):
        return newest.configuration
    first = commits[0].version
    if first == 0:
        return {}
    try:
        return (await log.snapshot(first - 1)).configuration
    except (VersionsExpired, LogGap):
        # The log no longer holds the older properties. A bound is only added or raised: use the newest.
        return newest.configuration


def _begins_to_track(before: Mapping[str, str], commit: Commit) -> bool:
    after = commit.metadata
    return after is not None and tracks_rows(after.configuration) and not tracks_rows(before)


def _changed(uri: str, commit: Commit, *, maintained: bool, copied: bool) -> NotAppendOnly:
    deletes = commit.info.operation == "DELETE" and not maintained
    without = (
        f" and the table has no {LATENESS_HORIZON}, below which events may be deleted" if deletes else ""
    )
    remedy = (
        "give this source another name (without take_over_from). Then all of its events are appended again, "
        "and equal ones count once"
        if copied
        else 'run once with mode="reload", which computes every key again from the events that exist now'
    )
    return NotAppendOnly(
        f"Version {commit.version} of {uri} ({commit.info.operation or 'unknown operation'}) updates or "
        f"removes rows, but events are only ever appended{without}.",
        remedy=f"{remedy}; and correct an event by a later one.",
    )


# -- row tracking -------------------------------------------------------------------------------
async def tracked_from(log: DeltaLog, newest: TableState, starting: int, ending: int) -> int | None:
    """Return the last version of a range that turned row tracking on; -1: no such version, None: unknown."""
    if starting > ending:
        return -1
    try:
        commits = await preconditions.read_range(log, starting, ending)
    except (VersionsExpired, LogGap):
        return None
    before, version = await _before(log, newest, commits), -1
    for commit in commits:
        if _begins_to_track(before, commit):
            version = commit.version
        if commit.metadata is not None:
            before = commit.metadata.configuration
    return version


def since(horizons: tuple[tuple[int, str], ...], version: int) -> tuple[tuple[int, str], ...]:
    """Return the allowed-lateness bounds, each in effect only after the given version or a later one.

    If that version turned row tracking on, the arrival of older events is unknown, now and whenever their
    key's intervals are computed again. So all of them count as in time.
    """
    return tuple((max(began, version), text) for began, text in horizons)


# -- allowed lateness ---------------------------------------------------------------------------
def lateness_bounds_at(state: TableState) -> tuple[tuple[int, str], ...]:
    """Return the allowed-lateness bound in effect as of a version, in the form of ``Step.horizons``."""
    bound = state.configuration.get(LATENESS_HORIZON)
    return ((state.version, bound),) if bound is not None else ()


def horizon_of(commits: tuple[Commit, ...], horizons: Mapping[int, str]) -> tuple[tuple[int, str], ...]:
    """Return the allowed-lateness bound of a part from :func:`split`, in the form of ``Step.horizons``."""
    first = next((commit.version for commit in commits if commit.changes_data), None)
    return ((first - 1, horizons[first]),) if first is not None and first in horizons else ()


def split(
    commits: tuple[Commit, ...], horizons: Mapping[int, str], left_out: Mapping[int, str]
) -> tuple[tuple[Commit, ...], ...]:
    """Split a range so that each part has one allowed-lateness bound, and its deletions lie below that bound.

    So a bound that was withdrawn no longer applies. Events that arrived under an earlier bound, or under no
    bound, are applied from the log as it was before maintenance deleted some of them. This only concerns a
    target that was restored to a state before the deletion: maintenance itself waits for every consumer.

    :param horizons: version that appends events -> the bound in effect
    :param left_out: version that deletes -> the bound below which it deletes
    :return: parts with events. Commits after the last event may be missing
    """
    parts: list[list[Commit]] = [[]]
    current: str | None = None
    for commit in commits:
        brings, deletes = commit.changes_data, commit.version in left_out
        held = left_out[commit.version] if deletes else horizons.get(commit.version)
        if (brings or deletes) and held != current and _brings(parts[-1]):
            parts.append([])
        if brings:
            current = held
        parts[-1].append(commit)
    if len(parts) > 1 and not _brings(parts[-1]):
        parts.pop()
    return tuple(map(tuple, parts))


def _brings(part: list[Commit]) -> bool:
    return any(commit.changes_data for commit in part)


def outlived(commits: tuple[Commit, ...], arrivals: Arrivals) -> Commit | None:
    """Return a commit of a range whose events may be deleted; None if there is no such commit.

    It arrived under another allowed-lateness bound than one below which the range deletes.
    """
    arrived: list[Commit] = []
    for commit in commits:
        deleted = arrivals.left_out.get(commit.version)
        if commit.changes_data:
            arrived.append(commit)
        lost = (
            earlier
            for earlier in arrived
            if deleted is not None and arrivals.horizons.get(earlier.version) != deleted
        )
        lost_commit = next(lost, None)
        if lost_commit is not None:
            return lost_commit
    return None
