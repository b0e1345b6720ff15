"""Commits of a table to which events are appended: which of them bring some, and what may still arrive.

Events are never changed. Maintenance deletes those behind the lateness horizon, which changes nothing for
anybody who reads on; every other commit that removes rows is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from delta_cdc import gates
from delta_cdc.errors import LogGap, NotAppendOnly, VersionsExpired
from delta_cdc.maintain import marks
from delta_cdc.properties import LATENESS_HORIZON, tracks_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta_cdc.log.actions import Commit
    from delta_cdc.log.table import DeltaLog, TableState


@dataclass
class Arrivals:
    """Reads commits of such a table, ascending and in parts, and remembers what they say.

    :param newest: the table's newest state
    :param left_out: version that only deletes behind a horizon -> that horizon
    :param horizons: version that brings events -> the lateness horizon that was in effect when they arrived
    :param tracked_from: versions that turned row tracking on. No event from before knows when it really came
    """

    log: DeltaLog
    newest: TableState
    left_out: dict[int, str] = field(default_factory=dict)
    horizons: dict[int, str] = field(default_factory=dict)
    tracked_from: set[int] = field(default_factory=set)
    _configuration: Mapping[str, str] = field(default_factory=dict)
    _next: int | None = None

    async def read(self, starting: int, ending: int) -> tuple[Commit, ...]:
        """Return the commits of a range; those of maintenance count as changing no data.

        :raises NotAppendOnly: names the first version that removes rows otherwise
        :raises VersionsExpired: the log was cleaned beyond the start
        :raises LogGap: a commit file is missing
        """
        commits = await gates.read_range(self.log, starting, ending)
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
            below = _deleted_below(commit, before)
            if below is None:
                raise _changed(self.log.uri, commit, maintained=before is not None)
            self.left_out[commit.version] = below
            return replace(commit, changes_data=False)
        if before is not None:
            self.horizons[commit.version] = before
        return commit


def _deleted_below(commit: Commit, horizon: str | None) -> str | None:
    """Return the horizon behind which maintenance deleted; None where a commit is no such thing.

    A DELETE by hand counts, too: who sets a horizon vouches for what is deleted behind it.

    :param horizon: the one in effect
    """
    if horizon is None:
        return None
    return horizon if commit.info.operation == "DELETE" else marks.expired_below(commit.info)


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
        # What they were cannot be known any more; a horizon only ever comes, and rises.
        return newest.configuration


def _begins_to_track(before: Mapping[str, str], commit: Commit) -> bool:
    after = commit.metadata
    return after is not None and tracks_rows(after.configuration) and not tracks_rows(before)


def _changed(uri: str, commit: Commit, *, maintained: bool) -> NotAppendOnly:
    deletes = commit.info.operation == "DELETE" and not maintained
    without = (
        f" and the table has no {LATENESS_HORIZON}, behind which events may be deleted" if deletes else ""
    )
    return NotAppendOnly(
        f"Version {commit.version} of {uri} ({commit.info.operation or 'unknown operation'}) updates or "
        f"removes rows, but events are only ever appended{without}.",
        remedy='run once with mode="reload", which computes every key again from the events that are there '
        "now; and correct an event by a later one.",
    )


# -- row tracking -------------------------------------------------------------------------------
async def tracked_from(log: DeltaLog, newest: TableState, starting: int, ending: int) -> int | None:
    """Return the last version of a range that turned row tracking on; -1 is none, None is unknown."""
    if starting > ending:
        return -1
    try:
        commits = await gates.read_range(log, starting, ending)
    except (VersionsExpired, LogGap):
        return None
    before, found = await _before(log, newest, commits), -1
    for commit in commits:
        if _begins_to_track(before, commit):
            found = commit.version
        if commit.metadata is not None:
            before = commit.metadata.configuration
    return found


def since(horizons: tuple[tuple[int, str], ...], version: int) -> tuple[tuple[int, str], ...]:
    """Return horizons that hold for what comes after a version, at the earliest.

    Where that one turned row tracking on, no event that was there before can be told to be late, now or by a
    later cut of its key. So all of them count.
    """
    return tuple((max(began, version), text) for began, text in horizons)


# -- the horizon --------------------------------------------------------------------------------
def horizon_at(state: TableState) -> tuple[tuple[int, str], ...]:
    """Return the horizon in effect as of a version, as a step carries it."""
    found = state.configuration.get(LATENESS_HORIZON)
    return ((state.version, found),) if found is not None else ()


def horizon_of(commits: tuple[Commit, ...], horizons: Mapping[int, str]) -> tuple[tuple[int, str], ...]:
    """Return the one horizon of a part that :func:`cut` made, as a step carries it."""
    first = next((commit.version for commit in commits if commit.changes_data), None)
    return ((first - 1, horizons[first]),) if first is not None and first in horizons else ()


def cut(
    commits: tuple[Commit, ...], horizons: Mapping[int, str], left_out: Mapping[int, str]
) -> tuple[tuple[Commit, ...], ...]:
    """Cut a range so that in each part one horizon held, and what is deleted lies behind it.

    So a horizon that was taken back holds no more; and events that came under an earlier horizon, or none,
    are applied from the log as it was before maintenance deleted some of them. That happens to a target that
    was restored to before the deletion: maintenance itself waits for every consumer.

    :param horizons: version that brings events -> the horizon that was in effect
    :param left_out: version that deletes -> the horizon behind which it does
    :return: parts with events. What follows the last of these may be missing: it brings none
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
    """Return a commit of a range with events that may be gone: it came under another horizon than one behind
    which the range deletes. None where there is none."""
    before: list[Commit] = []
    for commit in commits:
        deleted = arrivals.left_out.get(commit.version)
        if commit.changes_data:
            before.append(commit)
        lost = (
            one for one in before if deleted is not None and arrivals.horizons.get(one.version) != deleted
        )
        found = next(lost, None)
        if found is not None:
            return found
    return None
