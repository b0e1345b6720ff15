"""Commits of a table to which events are appended: which of them bring some, and what may still arrive.

Events are never changed. Maintenance deletes those behind the lateness horizon, which changes nothing for
anybody who reads on; every other commit that removes rows is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from delta_cdc import gates
from delta_cdc.errors import LogGap, NotAppendOnly, VersionsExpired
from delta_cdc.properties import LATENESS_HORIZON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta_cdc.log.actions import Commit
    from delta_cdc.log.table import DeltaLog, TableState


@dataclass
class Arrivals:
    """Reads commits of such a table, ascending and in parts, and remembers what they say.

    :param newest: the table's newest state
    :param left_out: versions that only delete behind the horizon
    :param horizons: version that brings events -> the lateness horizon that was in effect when they arrived
    """

    log: DeltaLog
    newest: TableState
    left_out: set[int] = field(default_factory=set)
    horizons: dict[int, str] = field(default_factory=dict)
    _horizon: str | None = None
    _next: int | None = None

    async def read(self, starting: int, ending: int) -> tuple[Commit, ...]:
        """Return the commits of a range; those of maintenance count as changing no data.

        :raises NotAppendOnly: names the first version that removes rows otherwise
        :raises VersionsExpired: the log was cleaned beyond the start
        :raises LogGap: a commit file is missing
        """
        commits = await gates.read_range(self.log, starting, ending)
        if self._next != starting:
            self._horizon = await self._before(commits)
        self._next = ending + 1
        return tuple(self._seen(commit) for commit in commits)

    def _seen(self, commit: Commit) -> Commit:
        before = self._horizon
        if commit.metadata is not None:
            self._horizon = commit.metadata.configuration.get(LATENESS_HORIZON)
        if not commit.changes_data:
            return commit
        if commit.n_data_removes:
            if commit.info.operation != "DELETE" or before is None:
                raise _changed(self.log.uri, commit, maintained=before is not None)
            self.left_out.add(commit.version)
            return replace(commit, changes_data=False)
        if before is not None:
            self.horizons[commit.version] = before
        return commit

    async def _before(self, commits: tuple[Commit, ...]) -> str | None:
        """Return the horizon in effect before the first of some commits."""
        if all(commit.metadata is None for commit in commits):
            last = commits[-1].version
            if last == self.newest.version:
                return self.newest.configuration.get(LATENESS_HORIZON)
        first = commits[0].version
        if first == 0:
            return None
        try:
            return (await self.log.snapshot(first - 1)).configuration.get(LATENESS_HORIZON)
        except (VersionsExpired, LogGap):
            # What it was cannot be known any more; a horizon only ever comes, and rises.
            return self.newest.configuration.get(LATENESS_HORIZON)


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


def horizon_at(state: TableState) -> tuple[tuple[int, str], ...]:
    """Return the horizon in effect as of a version, as a step carries it."""
    found = state.configuration.get(LATENESS_HORIZON)
    return ((state.version, found),) if found is not None else ()


def horizon_of(commits: tuple[Commit, ...], horizons: Mapping[int, str]) -> tuple[tuple[int, str], ...]:
    """Return the one horizon of a part that :func:`cut` made, as a step carries it."""
    first = next((commit.version for commit in commits if commit.changes_data), None)
    return ((first - 1, horizons[first]),) if first is not None and first in horizons else ()


def cut(commits: tuple[Commit, ...], horizons: Mapping[int, str]) -> tuple[tuple[Commit, ...], ...]:
    """Cut a range so that in each part one horizon held; so a horizon that was taken back holds no more."""
    parts: list[list[Commit]] = [[]]
    current: str | None = None
    for commit in commits:
        if commit.changes_data:
            held = horizons.get(commit.version)
            if held != current and any(one.changes_data for one in parts[-1]):
                parts.append([])
            current = held
        parts[-1].append(commit)
    return tuple(map(tuple, parts))
