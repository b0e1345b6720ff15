"""Plans a VACUUM from the logs alone: whether a file can be deleted, and which consumers still need it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import InvalidConfiguration, VacuumWouldLose
from delta_cdc.core.retention import FILE_RETENTION, extended, milliseconds_of, readable, text_of
from delta_cdc.core.uris import spark_uri
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.consumers import now_ms, observe_consumers
from delta_cdc.planning.maintenance_commits import MOST_COMMITS, backwards
from delta_cdc.planning.plan import JobPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.spec import VacuumSpec
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import TableState
    from delta_cdc.planning.consumers import Consumer

_HOUR = 3_600_000
_DAY = 24 * _HOUR


async def plan_vacuum(
    spec: VacuumSpec,
    consumers: Sequence[Consumer] = (),
    *,
    extend_retention: bool = False,
    always: bool = False,
    storage_options: dict[str, str] | None = None,
    now: int | None = None,
) -> JobPlan[VacuumSpec, dict[str, Any]]:
    """Decide whether a VACUUM is due, and may run. Starts no process and writes nothing.

    :param consumers: the pipelines that read the table; those of other tables are left out
    :param extend_retention: raise the table's retention if a consumer would lose something
    :param always: it is due: a try that died, or woke up late, may have left files that no commit records
    :param now: the time in epoch milliseconds; None is now
    :raises InvalidConfiguration: ``extend_retention`` without a consumer
    :raises VacuumWouldLose: names each consumer that would lose something, what, and since when
    """
    if extend_retention and not consumers:
        raise InvalidConfiguration(
            "extend_retention is given, and no consumer is named.",
            remedy="name them with consumers, or the configuration that has them with config.",
        )
    now = now_ms() if now is None else now
    log = DeltaLog(spec.table_uri, storage_options)
    state = await log.snapshot()
    observed = await observe_consumers(log, state, consumers, storage_options)
    kept = milliseconds_of(FILE_RETENTION, state.configuration)
    # Files were written before their version was committed, and reading them takes time, too.
    needed_from = now - kept + min(_HOUR, kept // 10)
    losing = [
        consumer for consumer in observed if consumer.since is not None and consumer.since < needed_from
    ]
    unreadable = [consumer for consumer in observed if consumer.error is not None]
    if unreadable or (losing and not extend_retention):
        raise _would_lose(state, kept, losing, unreadable)
    notes = [f"{consumer.pipeline}: {consumer.note}" for consumer in observed if consumer.note]
    properties: dict[str, str] = {}
    if losing:
        properties, kept = _extended(state, losing, now)
        behind = ", ".join(consumer.pipeline for consumer in losing)
        notes.append(f"{FILE_RETENTION} is raised to {properties[FILE_RETENTION]} for {behind}")
    outcome = {"retention": readable(kept), "files": 0, "bytes": 0}
    is_due = always or spec.dry_run or bool(properties) or await _is_due(log, state, now, kept)
    if not is_due:
        return JobPlan(None, outcome, (*notes, "nothing to delete yet"))
    planned = replace(
        spec,
        table_uri=spark_uri(spec.table_uri),
        properties=properties,
        version=state.version,
        files=await asyncio.to_thread(lambda: state.num_files),
    )
    return JobPlan(planned, outcome, tuple(notes))


# -- which consumers would lose what --------------------------------------------------------------
def _would_lose(
    state: TableState, kept: int, losing: Sequence[Consumer], unreadable: Sequence[Consumer]
) -> VacuumWouldLose:
    reasons = [
        f"{one.pipeline} ({one.target}) has read up to version {one.seal.watermark}, but not "
        f"version {one.unread} of {_at(one.since)}, whose files are kept until {_at(one.since + kept)}"
        for one in losing
        if one.seal is not None and one.since is not None
    ]
    reasons += [
        f"the progress of {one.pipeline} ({one.target}) cannot be read "
        f"({type(one.error).__name__}: {one.error.message})"
        for one in unreadable
        if one.error is not None
    ]
    first = ", ".join(one.pipeline for one in (losing or unreadable))
    return VacuumWouldLose(
        f"VACUUM of {state.uri} would delete files that its consumers have not read ({FILE_RETENTION} is "
        f"{text_of(FILE_RETENTION, state.configuration)}): {'; '.join(reasons)}.",
        remedy=f"run {first} first. Or set extend_retention, which raises the retention before the VACUUM."
        if losing
        else f"correct or remove these consumers first: {first}.",
    )


def _at(moment: int) -> str:
    return datetime.fromtimestamp(moment / 1000, tz=UTC).isoformat(timespec="seconds")


def _extended(state: TableState, losing: Sequence[Consumer], now: int) -> tuple[dict[str, str], int]:
    """Return the properties under which no consumer loses anything, and for how long files are kept then."""
    age = max(now - consumer.since for consumer in losing if consumer.since is not None)
    properties = extended(state.configuration, age)
    return properties, milliseconds_of(FILE_RETENTION, properties)


# -- whether it is due ----------------------------------------------------------------------------
async def _is_due(log: DeltaLog, state: TableState, now: int, kept: int) -> bool:
    """Return whether a VACUUM may delete files that the last one could not.

    This is the case if a commit removed files that have become older than the retention since then. No commit
    records the files that a crash left over: for these files, one VACUUM runs per retention, or per day.
    """
    free_until, oldest = now - kept, state.version
    freed: list[int] = []
    done_to, has_ended = None, False
    async for commit in backwards(log, state.version, MOST_COMMITS, table_id=state.table_id):
        oldest = commit.version
        if commit.timestamp <= free_until and (commit.n_removes or commit.has_cdc):
            freed.append(commit.timestamp)
        if done_to is None:
            has_ended = has_ended or commit.info.operation == "VACUUM END"
            done_to = reached(commit) if has_ended else None
            if done_to is None:
                continue
            if now - commit.timestamp >= max(kept, _DAY):
                return True
        if any(moment > done_to for moment in freed):
            return True
        if commit.timestamp <= done_to or done_to >= free_until:
            return False
    # Without an earlier VACUUM, or if the log does not reach back far enough, one is due.
    return done_to is None or oldest > 0


def reached(commit: Commit) -> int | None:
    """Return the time up to which a VACUUM deleted removed files; None for other commits.

    Delta's log has a start and an end of each VACUUM; only the start records how long files were kept.
    """
    if commit.info.operation != "VACUUM START":
        return None
    # RETAIN n HOURS, or else the table's property.
    kept = commit.info.whole_parameter("specifiedRetentionMillis")
    kept = commit.info.whole_parameter("defaultRetentionMillis") if kept is None else kept
    return None if kept is None else commit.timestamp - kept


async def deleted(spec: VacuumSpec, storage_options: dict[str, str] | None = None) -> dict[str, int]:
    """Return ``files`` and ``bytes`` that VACUUMs since the planning of a job have deleted, by the log."""
    assert spec.version is not None
    log = DeltaLog(spec.table_uri, storage_options)
    newest = await log.newest_version(after=spec.version)
    counts = {"files": 0, "bytes": 0}
    for commit in await log.commits(range(spec.version + 1, newest + 1)):
        if commit.info.operation == "VACUUM START":
            counts["bytes"] += commit.info.metric("sizeOfDataToDelete") or 0
        if commit.info.operation == "VACUUM END":
            counts["files"] += commit.info.metric("numDeletedFiles") or 0
    return counts
