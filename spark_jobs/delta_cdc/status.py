"""How far a pipeline is behind its source, and for how long that can go on: told from the two logs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from delta_cdc import gates
from delta_cdc.errors import VersionsExpired
from delta_cdc.log.table import DeltaLog, run_sync
from delta_cdc.plan.ingest_status import IngestStatus, ingest_status, is_ingested
from delta_cdc.reconcile import reconcile_async
from delta_cdc.retention import (
    FILE_RETENTION,
    LOG_RETENTION,
    milliseconds_of,
    readable,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.log.actions import Commit
    from delta_cdc.log.table import TableState
    from delta_cdc.reconcile import Proof
    from delta_cdc.watermark import Seal


@dataclass(frozen=True)
class Status:
    """Where one pipeline stands.

    :param target: location of the target
    :param source: location of the source; None where neither a seal nor the caller names it
    :param source_version: its newest version
    :param committed: the watermark; None where nothing is proved yet
    :param lag_versions: versions of the source beyond the watermark
    :param lag_commits: those among them that change data
    :param lag_bytes: bytes that reading them takes
    :param lag_seconds: age of the oldest of them; 0 where there is none
    :param readable_until: until when the pipeline can go on: then the sealed commit leaves the target's log,
        or what is not applied yet leaves the source's log or its storage; ISO 8601 in UTC
    :param findings: what somebody should see to, one sentence each
    :param seal: the newest seal as JSON
    :param ingest: of a change log that an ingest fills: what it has taken. Its source has no versions, so
        that all about versions and lag is None
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
        made = {**asdict(self), "findings": list(self.findings)}
        if self.ingest is None:
            del made["ingest"]
            return made
        return {**made, "ingest": self.ingest.to_dict()}


def status(
    pipeline: str,
    target: str,
    *,
    source: str | None = None,
    storage_options: dict[str, str] | None = None,
    now_ms: int | None = None,
) -> Status:
    """Return where a pipeline stands; see :func:`status_async`."""
    found = status_async(pipeline, target, source=source, storage_options=storage_options, now_ms=now_ms)
    return run_sync(found)


async def status_async(
    pipeline: str,
    target: str,
    *,
    source: str | None = None,
    storage_options: dict[str, str] | None = None,
    now_ms: int | None = None,
) -> Status:
    """Compare a pipeline's watermark with its source. Starts no process and writes nothing.

    :param target: path or URI
    :param source: path or URI; None takes the one that the seal names
    :param now_ms: the time in epoch milliseconds; None is now
    :raises DeltaCdcError: the target's log holds no usable proof, or the source is another table
    """
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    log = DeltaLog(target, storage_options)
    proof = await reconcile_async(log, pipeline)
    if proof is not None and is_ingested(proof):
        return await _ingested(log.uri, pipeline, proof, storage_options, now)
    seal = proof.seal if proof is not None else None
    where = source or (seal.source_uri if seal is not None else None)
    read = DeltaLog(where, storage_options) if where is not None else None
    state = await read.snapshot() if read is not None else None
    if proof is None or seal is None or read is None or state is None:
        what = "there is no table yet" if proof is None else "the table is empty and has no seal"
        return Status(
            pipeline=pipeline,
            target=log.uri,
            target_version=proof.target.version if proof is not None else None,
            source=read.uri if read is not None else None,
            source_version=state.version if state is not None else None,
            findings=(f"{log.uri}: {what}; the next run of {pipeline} loads it.",),
        )
    return await _compared(read, state, proof, seal, now)


async def _ingested(
    log: str, pipeline: str, proof: Proof, storage_options: dict[str, str] | None, now: int
) -> Status:
    found = await ingest_status(log, pipeline, proof, storage_options, now)
    terms = _terms(proof.target, proof, ())
    warnings = [warning for term in terms if (warning := term.warning(now)) is not None]
    seal = proof.seal
    return Status(
        pipeline=pipeline,
        target=proof.target.uri,
        target_version=proof.target.version,
        source=seal.source_uri if seal is not None else None,
        readable_until=_iso(terms[0].until) if terms else None,
        findings=(*proof.notes, *found.findings, *warnings),
        seal={**asdict(seal)} if seal is not None else None,
        ingest=found,
    )


async def _compared(read: DeltaLog, state: TableState, proof: Proof, seal: Seal, now: int) -> Status:
    identity = await gates.check_identity(read, state, seal)
    notes = (*proof.notes, identity.note) if identity.note else proof.notes
    behind, lost = await _behind(read, seal, state)
    changing = [commit for commit in behind if commit.changes_data]
    age = now - changing[0].timestamp if changing else 0
    terms = _terms(state, proof, behind)
    warnings = [warning for term in terms if (warning := term.warning(now)) is not None]
    return Status(
        pipeline=seal.pipeline,
        target=proof.target.uri,
        target_version=proof.target.version,
        source=read.uri,
        source_version=state.version,
        committed=seal.watermark,
        lag_versions=max(0, state.version - seal.watermark),
        lag_commits=len(changing),
        lag_bytes=sum(commit.bytes_to_read for commit in changing),
        lag_seconds=age / 1000,
        readable_until=_iso(terms[0].until) if terms else None,
        findings=(*notes, *lost, *warnings),
        seal={**asdict(seal)},
    )


async def _behind(
    read: DeltaLog, seal: Seal, state: TableState
) -> tuple[tuple[Commit, ...], tuple[str, ...]]:
    try:
        return await read.commits(range(seal.watermark + 1, state.version + 1)), ()
    except VersionsExpired as error:
        first = max(await read.oldest_version(), seal.watermark + 1)
        return await read.commits(range(first, state.version + 1)), (str(error),)


@dataclass(frozen=True)
class _Term:
    """Something that is kept for a time only, and that the pipeline needs (times in epoch milliseconds)."""

    what: str
    since: int
    retention: str
    table: TableState

    @property
    def until(self) -> int:
        return self.since + milliseconds_of(self.retention, self.table.configuration)

    def warning(self, now: int) -> str | None:
        """Return a sentence past half of the time."""
        if now - self.since <= (self.until - self.since) // 2:
            return None
        kept = f"{self.retention} of {self.table.uri} is {text_of(self.retention, self.table.configuration)}"
        age = readable(now - self.since)
        return f"{self.what} is {age} old, past half of what is kept ({kept}): run the pipeline."


def _terms(state: TableState, proof: Proof, behind: tuple[Commit, ...]) -> list[_Term]:
    """Return what has to be there when the pipeline runs next."""
    found = []
    if proof.commit is not None:
        what = f"Version {proof.commit.version} of the target, which carries the watermark,"
        found.append(_Term(what, proof.commit.timestamp, LOG_RETENTION, proof.target))
    if behind:
        what = f"Version {behind[0].version} of the source, the first one after the watermark,"
        found.append(_Term(what, behind[0].timestamp, LOG_RETENTION, state))
    changing = next((commit for commit in behind if commit.changes_data), None)
    if changing is not None:
        what = f"Version {changing.version} of the source, the oldest change that is not applied,"
        found.append(_Term(what, changing.timestamp, FILE_RETENTION, state))
    return sorted(found, key=lambda term: term.until)


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC).isoformat(timespec="seconds")


async def status_of_all(
    pairs: list[tuple[str, str]],
    storage_options: Sequence[dict[str, str] | None] = (),
    sources: Sequence[str | None] = (),
) -> list[Status | Exception]:
    """Return the status, or the error, of several (pipeline, target) pairs, in their order.

    :param storage_options: of each pair; none are given where it is empty
    :param sources: of each pair, where they are known; None takes the one that the seal names
    """
    nothing = [None] * len(pairs)
    looks = [
        status_async(pipeline, target, source=source, storage_options=of_it)
        for (pipeline, target), of_it, source in zip(
            pairs, storage_options or nothing, sources or nothing, strict=True
        )
    ]
    found = await asyncio.gather(*looks, return_exceptions=True)
    return [entry if isinstance(entry, Status | Exception) else _reraised(entry) for entry in found]


def _reraised(error: BaseException) -> Exception:
    raise error
