"""Computes a pipeline's lag behind its source, and how long that can last, from the two logs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from delta_cdc.core import codec
from delta_cdc.core.concurrency import settled
from delta_cdc.core.errors import VersionsExpired
from delta_cdc.core.retention import (
    FILE_RETENTION,
    LOG_RETENTION,
    VERSIONS_EXPIRED_REMEDY,
    milliseconds_of,
    readable,
    text_of,
)
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning import preconditions
from delta_cdc.planning.ingest_status import IngestStatus, ingest_status, is_ingested
from delta_cdc.planning.reconcile import reconcile_async

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import TableState
    from delta_cdc.planning.reconcile import RecordedWatermark


@dataclass(frozen=True)
class Status:
    """Status of one pipeline.

    :param target: location of the target
    :param source: location of the source; None if neither a seal nor the caller names it
    :param source_version: the source's newest version
    :param committed: the watermark; None if no watermark is recorded yet
    :param lag_versions: number of source versions after the watermark
    :param lag_commits: number of those that change data
    :param lag_bytes: bytes to read for those commits
    :param lag_seconds: age of the oldest of those commits; 0 if there are no such commits
    :param readable_until: time until which the pipeline can continue: then retention removes the sealed
        commit from the target's log, or unapplied changes from the source's log or storage; ISO 8601 in UTC
    :param findings: problems that need attention, one sentence each
    :param seal: the newest seal as JSON
    :param ingest: for a change log that an ingest fills: the status of that ingest. Its source has no
        versions, so all fields on versions and lag are None
    """

    pipeline: str
    target: str
    target_version: int | None = None
    source: str | None = None
    source_version: int | None = None
    committed: int | None = None
    lag_versions: int | None = None
    lag_commits: int | None = None
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    readable_until: str | None = None
    findings: tuple[str, ...] = ()
    seal: dict[str, Any] | None = None
    ingest: IngestStatus | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        encoded: dict[str, Any] = codec.encoded(self)
        if self.ingest is None:
            del encoded["ingest"]
            return encoded
        return {**encoded, "ingest": self.ingest.to_dict()}


async def status_async(
    pipeline: str,
    target: str,
    *,
    source: str | None = None,
    storage_options: dict[str, str] | None = None,
    now_ms: int | None = None,
) -> Status:
    """Compare a pipeline's watermark with its source, without starting a process or writing anything.

    :param target: path or URI
    :param source: path or URI; None: the source that the seal names
    :param now_ms: the time in epoch milliseconds; None: now
    :raises DeltaCdcError: the target's log has no usable recorded watermark, or the source is another table
    """
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    log = DeltaLog(target, storage_options)
    recorded = await reconcile_async(log, pipeline)
    if recorded is not None and is_ingested(recorded):
        return await _ingested(log.uri, pipeline, recorded, storage_options, now)
    seal = recorded.seal if recorded is not None else None
    source_location = source or (seal.source_uri if seal is not None else None)
    source_log = DeltaLog(source_location, storage_options) if source_location is not None else None
    state = await source_log.snapshot() if source_log is not None else None
    if recorded is None or seal is None or source_log is None or state is None:
        state_text = "there is no table yet" if recorded is None else "the table is empty and has no seal"
        return Status(
            pipeline=pipeline,
            target=log.uri,
            target_version=recorded.target.version if recorded is not None else None,
            source=source_log.uri if source_log is not None else None,
            source_version=state.version if state is not None else None,
            findings=(f"{log.uri}: {state_text}; the next run of {pipeline} loads it.",),
        )
    return await _compared(source_log, state, recorded, seal, now)


async def _ingested(
    log: str, pipeline: str, recorded: RecordedWatermark, storage_options: dict[str, str] | None, now: int
) -> Status:
    ingest = await ingest_status(log, pipeline, recorded, storage_options, now)
    until, warnings = _terms(recorded.target, recorded, (), now)
    seal = recorded.seal
    return Status(
        pipeline=pipeline,
        target=recorded.target.uri,
        target_version=recorded.target.version,
        source=seal.source_uri if seal is not None else None,
        readable_until=until,
        findings=(*recorded.notes, *ingest.findings, *warnings),
        seal=codec.encoded(seal) if seal is not None else None,
        ingest=ingest,
    )


async def _compared(
    read: DeltaLog, state: TableState, recorded: RecordedWatermark, seal: Seal, now: int
) -> Status:
    identity = await preconditions.check_identity(read, state, seal)
    notes = (*recorded.notes, identity.note) if identity.note else recorded.notes
    unread, lost = await _unread(read, seal, state)
    changing = [commit for commit in unread if commit.changes_data]
    age = now - changing[0].timestamp if changing else 0
    until, warnings = _terms(state, recorded, unread, now)
    return Status(
        pipeline=seal.pipeline,
        target=recorded.target.uri,
        target_version=recorded.target.version,
        source=read.uri,
        source_version=state.version,
        committed=seal.watermark.version,
        lag_versions=max(0, state.version - seal.watermark.version),
        lag_commits=len(changing),
        lag_bytes=sum(commit.bytes_to_read for commit in changing),
        lag_seconds=age / 1000,
        readable_until=until,
        findings=(*notes, *lost, *warnings),
        seal=codec.encoded(seal),
    )


async def _unread(
    read: DeltaLog, seal: Seal, state: TableState
) -> tuple[tuple[Commit, ...], tuple[str, ...]]:
    try:
        return await read.commits(range(seal.watermark.version + 1, state.version + 1)), ()
    except VersionsExpired as error:
        first = max(await read.oldest_version(), seal.watermark.version + 1)
        return await read.commits(range(first, state.version + 1)), (str(error),)


def _terms(
    state: TableState, recorded: RecordedWatermark, unread: tuple[Commit, ...], now: int
) -> tuple[str | None, list[str]]:
    """Return until when the pipeline can continue, and warnings, soonest expiry first.

    Both concern the commits that must still exist when the pipeline runs next.
    """
    terms = []
    if recorded.commit is not None:
        subject = f"Version {recorded.commit.version} of the target, which carries the watermark,"
        terms.append(_term(subject, recorded.commit, LOG_RETENTION, recorded.target, now))
    if unread:
        subject = f"Version {unread[0].version} of the source, the first one after the watermark,"
        terms.append(_term(subject, unread[0], LOG_RETENTION, state, now))
    changing = next((commit for commit in unread if commit.changes_data), None)
    if changing is not None:
        subject = f"Version {changing.version} of the source, the oldest change that is not applied,"
        terms.append(_term(subject, changing, FILE_RETENTION, state, now))
    terms.sort(key=lambda term: term[0])
    warnings = [warning for _, warning in terms if warning is not None]
    return _iso(terms[0][0]) if terms else None, warnings


def _term(
    subject: str, commit: Commit, retention: str, table: TableState, now: int
) -> tuple[int, str | None]:
    """Return when retention removes a commit or its files (epoch milliseconds), and a warning.

    It warns after half of the retention, and otherwise after all of it, if the loss is immediate.
    """
    kept_ms, age_ms = milliseconds_of(retention, table.configuration), now - commit.timestamp
    until = commit.timestamp + kept_ms
    if age_ms <= kept_ms // 2:
        return until, None
    kept = f"{retention} of {table.uri} is {text_of(retention, table.configuration)}"
    if age_ms > kept_ms and retention == FILE_RETENTION:
        # Delta now refuses to read from it, so running the pipeline does not help.
        return (
            until,
            f"{subject} is {readable(age_ms)} old, past what is kept ({kept}): {VERSIONS_EXPIRED_REMEDY}",
        )
    return (
        until,
        f"{subject} is {readable(age_ms)} old, past half of what is kept ({kept}): run the pipeline.",
    )


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC).isoformat(timespec="seconds")


async def status_of_all(
    pairs: list[tuple[str, str]],
    storage_options: Sequence[dict[str, str] | None] = (),
    sources: Sequence[str | None] = (),
) -> list[Status | Exception]:
    """Return the status, or the error, of several (pipeline, target) pairs, in their order.

    :param storage_options: options of each pair; empty: no options
    :param sources: source of each pair, if known; None: the source that the seal names
    """
    nothing = [None] * len(pairs)
    looks = (
        status_async(pipeline, target, source=source, storage_options=options)
        for (pipeline, target), options, source in zip(
            pairs, storage_options or nothing, sources or nothing, strict=True
        )
    )
    return await settled(looks)
