"""Plans a VACUUM from the logs alone: whether there is anything to delete, and who would miss it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import InvalidConfiguration, LogGap, VacuumWouldLose, VersionsExpired
from delta_cdc.core.retention import FILE_RETENTION, LOG_RETENTION, milliseconds_of, readable, text_of
from delta_cdc.core.spec import VacuumSpec
from delta_cdc.core.uris import spark_uri
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.consumers import held_async, now_ms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import TableState
    from delta_cdc.planning.consumers import Consumer, Held

_HOUR = 3_600_000
_DAY = 24 * _HOUR
#: Commits that are read on the way back to the last VACUUM; what lies further back is a reason to run one.
_MOST_COMMITS = 2_000
_BATCH = 200


@dataclass(frozen=True, kw_only=True)
class VacuumRequest:
    """What a VACUUM is asked to do.

    :param table: path or URI
    :param consumers: the pipelines that read it; those of other tables are left out
    :param extend_retention: raise the table's retention where a consumer would lose something
    :param full: list the table's folder; False trusts the log
    """

    table: str
    consumers: Sequence[Consumer] = ()
    extend_retention: bool = False
    full: bool = True
    dry_run: bool = False
    single_driver: bool = False
    run_id: str = ""
    storage_options: dict[str, str] | None = field(default=None, repr=False)

    def check(self) -> None:
        """Refuse what cannot be meant.

        :raises InvalidConfiguration: ``extend_retention`` without anybody to extend it for
        """
        if self.extend_retention and not self.consumers:
            raise InvalidConfiguration(
                "extend_retention is given, and no consumer is named.",
                remedy="name them with consumers, or the configuration that has them with config.",
            )


@dataclass(frozen=True)
class Vacuum:
    """What there is to do.

    :param spec: None where nothing is
    :param version: the newest version of the table
    :param found: for people: ``table``, ``retention``, ``files`` (0), ``bytes`` (0) and ``note``
    """

    spec: VacuumSpec | None
    version: int
    found: dict[str, Any]
    held: tuple[Held, ...]


async def plan_vacuum(request: VacuumRequest, *, now: int | None = None) -> Vacuum:
    """Decide whether a VACUUM is due, and may run. Starts no process and writes nothing.

    :param now: the time in epoch milliseconds; None is now
    :raises InvalidConfiguration: see :class:`VacuumRequest`
    :raises VacuumWouldLose: names each consumer that would lose something, what, and since when
    """
    request.check()
    moment = now_ms() if now is None else now
    log = DeltaLog(request.table, request.storage_options)
    state = await log.snapshot()
    held = tuple(await held_async(request.table, request.consumers, storage_options=request.storage_options))
    kept = milliseconds_of(FILE_RETENTION, state.configuration)
    losing = [one for one in held if one.since is not None and one.since < moment - kept + _margin(kept)]
    unknown = [one for one in held if one.refused is not None]
    properties: dict[str, str] = {}
    if unknown or (losing and not request.extend_retention):
        raise _would_lose(state, kept, losing, unknown)
    if losing:
        properties, kept = _extended(state, losing, moment)
    notes = [f"{one.consumer.pipeline}: {one.note}" for one in held if one.note]
    if properties:
        waiting = ", ".join(one.consumer.pipeline for one in losing)
        notes.append(f"{FILE_RETENTION} is raised to {properties[FILE_RETENTION]} for {waiting}")
    found = {"table": log.uri, "retention": readable(kept), "files": 0, "bytes": 0, "note": "; ".join(notes)}
    if not properties and not request.dry_run and not await _is_due(log, state, moment, kept):
        return Vacuum(
            None, state.version, {**found, "note": "; ".join([*notes, "nothing to delete yet"])}, held
        )
    spec = VacuumSpec(
        run_id=request.run_id,
        table_uri=spark_uri(request.table),
        properties=properties,
        lite=not request.full,
        files=await asyncio.to_thread(lambda: state.num_files),
        dry_run=request.dry_run,
        single_driver=request.single_driver,
    )
    return Vacuum(spec, state.version, found, held)


def _margin(kept: int) -> int:
    """Return by how much a version is looked after earlier: its files were written before it was committed,
    and reading them takes its time, too."""
    return min(_HOUR, kept // 10)


# -- who would miss what --------------------------------------------------------------------------
def _would_lose(
    state: TableState, kept: int, losing: Sequence[Held], unknown: Sequence[Held]
) -> VacuumWouldLose:
    said = [
        f"{one.consumer.pipeline} ({one.consumer.target}) stands at version {one.watermark} and has not read "
        f"version {one.unread} of {_at(one.since)}, whose files are kept until {_at(one.since + kept)}"
        for one in losing
        if one.since is not None
    ]
    said += [
        f"how far {one.consumer.pipeline} ({one.consumer.target}) is cannot be told "
        f"({type(one.refused).__name__}: {one.refused.message})"
        for one in unknown
        if one.refused is not None
    ]
    after = "mend or leave out" if not losing else "run"
    return VacuumWouldLose(
        f"VACUUM of {state.uri} would delete what its consumers have not read ({FILE_RETENTION} is "
        f"{text_of(FILE_RETENTION, state.configuration)}): {'; '.join(said)}.",
        remedy=f"{after} {', '.join(one.consumer.pipeline for one in (losing or unknown))} first"
        + ("; or set extend_retention, which raises the property before." if losing else "."),
    )


def _at(moment: int) -> str:
    return datetime.fromtimestamp(moment / 1000, tz=UTC).isoformat(timespec="seconds")


def _extended(state: TableState, losing: Sequence[Held], moment: int) -> tuple[dict[str, str], int]:
    """Return the properties under which nothing is lost, and for how long files are kept then.

    Until its oldest version is as old as it is now once more, and a day, each consumer has time to come.
    """
    age = max(moment - one.since for one in losing if one.since is not None)
    days = -(-2 * age // _DAY) + 1
    text = f"interval {days} days"
    properties = {FILE_RETENTION: text}
    if milliseconds_of(LOG_RETENTION, state.configuration) < days * _DAY:
        # Delta refuses a log that is kept for a shorter time than the files.
        properties[LOG_RETENTION] = text
    return properties, days * _DAY


# -- whether it is due ----------------------------------------------------------------------------
async def _is_due(log: DeltaLog, state: TableState, now: int, kept: int) -> bool:
    """Tell whether files may have become free since the last VACUUM.

    That is so where a commit removed some that are as old as that by now and were not then. What a crash left
    behind no commit tells of, so that one VACUUM runs in the time for which files are kept, or in a day.
    """
    free_until = now - kept
    freed: list[int] = []
    last: Commit | None = None
    ended = False
    async for commit in _backwards(log, state.version):
        if commit is None:
            return True
        if commit.timestamp <= free_until and (commit.n_removes or commit.has_cdc):
            freed.append(commit.timestamp)
        if last is None:
            ended = ended or commit.info.operation == "VACUUM END"
            last = commit if ended and _reached(commit) is not None else None
        if last is None:
            continue
        reached = _reached(last)
        assert reached is not None
        if now - last.timestamp >= max(kept, _DAY) or any(moment > reached for moment in freed):
            return True
        if commit.timestamp <= reached or reached >= free_until:
            return False
    # All commits are told; without a VACUUM among them there is one to come.
    return last is None


async def _backwards(log: DeltaLog, newest: int) -> AsyncIterator[Commit | None]:
    """Yield commits from the newest one back; None where they are not told any further."""
    for end in range(newest, -1, -_BATCH):
        if newest - end >= _MOST_COMMITS:
            yield None
            return
        try:
            commits = await log.commits(range(max(0, end - _BATCH + 1), end + 1))
        except (VersionsExpired, LogGap):
            yield None
            return
        for commit in reversed(commits):
            yield commit


def _reached(commit: Commit) -> int | None:
    """Return up to which time a VACUUM that went through had deleted removed files; None for other commits.

    Delta's log has a start and an end of each; only the start says how long files were kept.
    """
    if commit.info.operation != "VACUUM START":
        return None
    kept = commit.info.operation_parameters.get("defaultRetentionMillis")
    try:
        return commit.timestamp - int(str(kept))
    except ValueError:
        return None


async def deleted(
    table: str, version: int, *, storage_options: dict[str, str] | None = None
) -> dict[str, int]:
    """Return ``files`` and ``bytes`` that VACUUMs after a version have deleted, as the table's log tells."""
    log = DeltaLog(table, storage_options)
    newest = await log.newest_version(after=version)
    found = {"files": 0, "bytes": 0}
    for commit in await log.commits(range(version + 1, newest + 1)):
        metrics = commit.info.operation_metrics
        if commit.info.operation == "VACUUM START":
            found["bytes"] += int(metrics.get("sizeOfDataToDelete", 0))
        if commit.info.operation == "VACUUM END":
            found["files"] += int(metrics.get("numDeletedFiles", 0))
    return found
