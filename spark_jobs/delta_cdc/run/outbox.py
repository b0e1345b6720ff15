"""The log of a written table is the outbox of its events: it has what is committed and not announced yet.

The caller announces commits, for example by an event of Airflow that other pipelines wait for. If it dies
after a commit, and before that event is stored, the next run finds the commit in the log, and its result
includes it. So each commit with rows is announced at least once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from delta_cdc.core.uris import canonical_uri
from delta_cdc.planning.reconcile import commits_after

if TYPE_CHECKING:
    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import DeltaLog
    from delta_cdc.planning.reconcile import RecordedWatermark

#: Returns the number of the newest seal of a table that was announced: everything up to it was. None if no
#: announcement is known. Takes ``"target"`` or ``"log"``, the table's location, its id (a copy at another
#: location has the same one), and the number of its newest seal.
Announced = Callable[[str, str, str, int], int | None]
#: Sealed commits, oldest first.
Sealed = tuple[tuple["Seal", "Commit"], ...]

#: Kinds of steps that are announced, by the table that they write.
_MOVING = {
    "target": ("load", "apply", "reload", "reset", "repair"),
    "log": ("ingest", "replay"),
}


async def unannounced(
    log: DeltaLog, table: str, recorded: RecordedWatermark | None, announced: Announced | None
) -> Sealed:
    """Return the commits in effect that are to be announced, oldest first.

    If no announcement is known, or the last one is of a state of the table that is gone, these are the newest
    commits.

    :param log: the log of the written table
    :param table: ``"target"`` or ``"log"``
    :param recorded: the newest seal of the table
    :param announced: None: the caller announces nothing
    """
    if announced is None or recorded is None or recorded.seal is None:
        return ()
    state, seal = recorded.target, recorded.seal
    last = await asyncio.to_thread(announced, table, canonical_uri(state.uri), state.table_id, seal.number)
    if last is not None and last >= recorded.next_number:
        # The table was put back from a copy of its files, and the same numbers are given again.
        last = None
    if last is not None and seal.number <= last:
        return ()
    found = await commits_after(log, seal.pipeline, state, last)
    return tuple(pair for pair in found if is_announced(table, pair[0]))


def is_announced(table: str, seal: Seal) -> bool:
    """Return whether the commit of a seal is to be announced: one without rows is not.

    :param table: the written table, ``"target"`` or ``"log"``
    """
    return seal.step.kind in _MOVING[table] and (table == "target" or bool(seal.step.counts.get("events")))


def merged(commits: Sealed, others: Sealed) -> Sealed:
    """Return commits of one table without duplicates, oldest first."""
    by_version = {commit.version: (seal, commit) for seal, commit in (*commits, *others)}
    return tuple(by_version[version] for version in sorted(by_version))
