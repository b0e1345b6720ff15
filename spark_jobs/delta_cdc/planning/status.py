"""Computes a pipeline's lag behind its source, and how long that can last, from the two logs."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from delta_cdc.core import codec
from delta_cdc.core.concurrency import settled
from delta_cdc.core.errors import DeltaCdcError, NotADeltaTable, TableNotFound, VersionsExpired
from delta_cdc.core.metrics import METRICS, Sample, commit_samples, is_late, lag_samples, shadow_samples
from delta_cdc.core.quarantine import quarantine_of
from delta_cdc.core.reasons import unnamed
from delta_cdc.core.retention import (
    FILE_RETENTION,
    LOG_RETENTION,
    VERSIONS_EXPIRED_REMEDY,
    milliseconds_of,
    readable,
    text_of,
)
from delta_cdc.core.shadow import Agreement
from delta_cdc.core.watermark import app_id
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning import preconditions
from delta_cdc.planning.ingest_status import IngestStatus, ingest_status, is_ingested
from delta_cdc.planning.quarantine import missing, rows_held
from delta_cdc.planning.reconcile import reconcile_async
from delta_cdc.planning.shadow import comparisons
from delta_cdc.planning.staging import arrived
from delta_cdc.planning.vacuum import reached
from delta_cdc.planning.written import bytes_of, sealed_counts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import TableState
    from delta_cdc.planning.reconcile import RecordedWatermark

#: The most commits that a run reads to say how far it is behind; on an object store each is a request.
MOST_COMMITS = 1000


@dataclass(frozen=True)
class Lag:
    """How far a pipeline is behind its source.

    :param source_version: the source's newest version
    :param versions: number of source versions after the watermark
    :param commits: number of those that change data; None if not all of them were read
    :param size: bytes to read for those commits; None in the same case
    :param seconds: age of the oldest of those commits; 0 if there are no such commits
    :param readable_until: as in :class:`Status`
    :param findings: problems that need attention, one sentence each
    """

    source_version: int
    versions: int
    commits: int | None
    size: int | None
    seconds: float
    readable_until: str | None
    findings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the published form."""
        return {
            "source_version": self.source_version,
            "versions": self.versions,
            "bytes": self.size,
            "seconds": self.seconds,
            "readable_until": self.readable_until,
        }


#: The published names of the parts of a lag, after ``lag_``.
_LAG = {"versions": "versions", "commits": "commits", "bytes": "size", "seconds": "seconds"}


@dataclass(frozen=True)
class Status:
    """Status of one pipeline.

    :param target: location of the target
    :param source: location of the source; None if neither a seal nor the caller names it
    :param source_version: the source's newest version
    :param committed: the watermark; None if no watermark is recorded yet
    :param lag: how far the pipeline is behind its source; None without a watermark, and for an ingest
    :param readable_until: time until which the pipeline can continue: then retention removes the sealed
        commit from the target's log, or unapplied changes from the source's log or storage; ISO 8601 in UTC
    :param findings: problems that need attention, one sentence each
    :param seal: the newest seal as JSON
    :param counts: rows of the newest sealed commit, by kind; None if that commit is not in the log any more
    :param bytes_written: size of the files that it added
    :param committed_at: its time, ISO 8601 in UTC
    :param freshness: the age in seconds that the oldest change that is not applied may have; None if the
        caller sets none
    :param late: whether that change is older; None if unknown
    :param quarantine: location of the quarantine of the target or change log, if it has rows of the pipeline
    :param rows_in_quarantine: how many; None before the first run, and if it cannot be read
    :param shadow: of a shadow: what its newest comparisons found; None without one
    :param ingest: for a change log that an ingest fills: the status of that ingest. Its source has no
        versions, so it leaves all fields on versions and the lag at None
    """

    pipeline: str
    target: str
    target_version: int | None = None
    source: str | None = None
    source_version: int | None = None
    committed: int | None = None
    lag: Lag | None = None
    readable_until: str | None = None
    findings: tuple[str, ...] = ()
    seal: dict[str, Any] | None = None
    counts: dict[str, int] | None = None
    bytes_written: int | None = None
    committed_at: str | None = None
    freshness: float | None = None
    late: bool | None = None
    ingest: IngestStatus | None = None
    quarantine: str | None = None
    rows_in_quarantine: int | None = None
    shadow: Agreement | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        encoded: dict[str, Any] = codec.encoded(replace(self, lag=None, ingest=None))
        del encoded["lag"], encoded["ingest"]
        if self.shadow is None:
            del encoded["shadow"]
        lag = {f"lag_{name}": getattr(self.lag, field, None) for name, field in _LAG.items()}
        ingest = {"ingest": self.ingest.to_dict()} if self.ingest is not None else {}
        return {**encoded, **lag, **ingest}

    def expected(self, freshness: float | None) -> Status:
        """Return the status with a freshness, and with a finding if the pipeline is late."""
        seconds = self.lag.seconds if self.lag is not None else None
        late = is_late(seconds, freshness)
        findings = self.findings
        if late and freshness is not None and seconds is not None:
            age, allowed = readable(int(seconds * 1000)), readable(int(freshness * 1000))
            finding = f"Late: the oldest change that is not applied is {age} old, and freshness is {allowed}"
            findings = (*findings, f"{finding}: run the pipeline.")
        return replace(self, freshness=freshness, late=late, findings=findings)

    def samples(self, now: datetime) -> Iterator[Sample]:
        """Yield the samples of the metrics that a status has."""
        lag = {
            "versions": self.lag.versions if self.lag is not None else None,
            "seconds": self.lag.seconds if self.lag is not None else None,
            "readable_until": self.readable_until,
            "late": self.late,
        }
        yield from lag_samples(self.pipeline, lag, now)
        yield Sample(METRICS["problems"], self.pipeline, len(self.findings))
        if self.rows_in_quarantine is not None:
            yield Sample(METRICS["rows_in_quarantine"], self.pipeline, self.rows_in_quarantine)
        if self.shadow is not None:
            yield from shadow_samples(self.pipeline, [self.shadow.newest.counts])
        if self.counts is not None and self.bytes_written is not None and self.committed_at is not None:
            yield from commit_samples(self.pipeline, self.counts, self.bytes_written, prefix="last_")
            age = (now - datetime.fromisoformat(self.committed_at)).total_seconds()
            yield Sample(METRICS["last_commit_age_seconds"], self.pipeline, max(0.0, age))


async def status_async(
    pipeline: str,
    target: str,
    *,
    source: str | None = None,
    storage_options: dict[str, str] | None = None,
    now_ms: int | None = None,
    collects: bool = False,
    once: bool = False,
) -> Status:
    """Compare a pipeline's watermark with its source, without starting a process or writing anything.

    :param target: path or URI
    :param source: path or URI; None: the source that the seal names
    :param now_ms: the time in epoch milliseconds; None: now
    :param collects: the target is a change log, which may have events of other pipelines
    :param once: the source is loaded once: after that, its versions do not count, and it may be gone
    :raises DeltaCdcError: the target's log has no usable recorded watermark, or the source is another table
    """
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    log = DeltaLog(target, storage_options)
    newest = await reconcile_async(log, pipeline, declared=collects)
    recorded = await arrived(log, pipeline, newest)
    if recorded is not None and is_ingested(recorded):
        return await _ingested(log.uri, pipeline, recorded, storage_options, now)
    seal = recorded.seal if recorded is not None else None
    if once and recorded is not None and seal is not None:
        return await _with_quarantine(_loaded_once(pipeline, recorded, seal, now), seal, storage_options)
    source_location = source or (seal.source_uri if seal is not None else None)
    source_log = DeltaLog(source_location, storage_options) if source_location is not None else None
    try:
        state = await source_log.snapshot() if source_log is not None else None
    except TableNotFound:
        if recorded is not None:
            raise
        # Before the first run of an ingest, its log does not exist either.
        source = source_log.uri if source_log is not None else None
        text = f"{source}: there is no table yet. First run what writes it; if that has run, check the path."
        return Status(pipeline=pipeline, target=log.uri, source=source, findings=(text,))
    if recorded is None or seal is None or source_log is None or state is None:
        state_text = "the table is empty and has no seal"
        if newest is not None and newest.seal is not None:
            state_text = "the first batch of the sink is not committed yet"
        elif recorded is None:
            state_text = "there is no table yet"
        elif collects and not recorded.empty:
            state_text = f"the change log has no events of {pipeline} yet"
        return Status(
            pipeline=pipeline,
            target=log.uri,
            target_version=recorded.target.version if recorded is not None else None,
            source=source_log.uri if source_log is not None else None,
            source_version=state.version if state is not None else None,
            findings=(f"{log.uri}: {state_text}; the next run of {pipeline} loads it.",),
        )
    status = await _compared(source_log, state, recorded, seal, now)
    status = await _with_quarantine(status, seal, storage_options)
    found = await comparisons(log, None, pipeline)
    return replace(status, shadow=Agreement.of(found)) if found else status


async def _with_quarantine(
    status: Status, seal: Seal | None, storage_options: dict[str, str] | None
) -> Status:
    """Return a status with the number of rows in the quarantine of its table."""
    quarantine = quarantine_of(status.target)
    try:
        lost = await missing(seal, status.target, storage_options) if seal is not None else None
        if lost is not None:
            return replace(status, findings=(*status.findings, f"{lost}"))
        rows = await rows_held(quarantine, status.pipeline, storage_options, seal)
    except (DeltaCdcError, FileNotFoundError) as error:
        # The pipeline itself is as it is.
        finding = f"The quarantine {quarantine} cannot be read: {error}"
        return replace(status, findings=(*status.findings, finding))
    return replace(status, quarantine=quarantine if rows else None, rows_in_quarantine=rows)


def _loaded_once(pipeline: str, recorded: RecordedWatermark, seal: Seal, now: int) -> Status:
    until, warnings = _terms(recorded.target, recorded, (), now)
    return Status(
        pipeline=pipeline,
        target=recorded.target.uri,
        target_version=recorded.target.version,
        source=seal.source_uri,
        source_version=seal.watermark.version,
        committed=seal.watermark.version,
        readable_until=until,
        findings=(*recorded.notes, *warnings),
        seal=codec.encoded(seal),
        **_written(recorded),
    )


async def _ingested(
    log: str, pipeline: str, recorded: RecordedWatermark, storage_options: dict[str, str] | None, now: int
) -> Status:
    ingest = await ingest_status(log, pipeline, recorded, storage_options, now)
    until, warnings = _terms(recorded.target, recorded, (), now)
    seal = recorded.seal
    status = Status(
        pipeline=pipeline,
        target=recorded.target.uri,
        target_version=recorded.target.version,
        source=seal.source_uri if seal is not None else None,
        readable_until=until,
        findings=(*recorded.notes, *ingest.findings, *warnings),
        seal=codec.encoded(seal) if seal is not None else None,
        ingest=ingest,
        **_written(recorded),
    )
    return await _with_quarantine(status, seal, storage_options)


def _written(recorded: RecordedWatermark) -> dict[str, Any]:
    """Return the fields of a status about the newest sealed commit."""
    if recorded.seal is None or recorded.commit is None:
        return {}
    return {
        "counts": sealed_counts(recorded.seal, recorded.commit),
        "bytes_written": bytes_of([recorded.commit]),
        "committed_at": _iso(recorded.commit.timestamp),
    }


async def _compared(
    read: DeltaLog, state: TableState, recorded: RecordedWatermark, seal: Seal, now: int
) -> Status:
    identity = await preconditions.check_identity(read, state, seal)
    notes = (*recorded.notes, identity.note) if identity.note else recorded.notes
    lag = await lag_of(read, state, recorded, seal, now)
    return Status(
        pipeline=seal.pipeline,
        target=recorded.target.uri,
        target_version=recorded.target.version,
        source=read.uri,
        source_version=lag.source_version,
        committed=seal.watermark.version,
        lag=lag,
        readable_until=lag.readable_until,
        findings=(*notes, *lag.findings),
        seal=codec.encoded(seal),
        **_written(recorded),
    )


async def lag_of(
    read: DeltaLog,
    state: TableState,
    recorded: RecordedWatermark,
    seal: Seal,
    now_ms: int | None = None,
    *,
    most: int | None = None,
) -> Lag:
    """Return how far a watermark is behind its source. Reads only commits that ``read`` has not read yet.

    :param read: the source's log
    :param state: the source's state
    :param seal: the seal of ``recorded``
    :param now_ms: the time in epoch milliseconds; None: now
    :param most: the most commits to read; None: all after the watermark
    """
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    unread, lost = await _unread(read, seal, state, most)
    is_complete = not unread or unread[-1].version == state.version
    changing = [commit for commit in unread if commit.changes_data]
    until, warnings = _terms(state, recorded, unread, now)
    return Lag(
        source_version=state.version,
        versions=max(0, state.version - seal.watermark.version),
        commits=len(changing) if is_complete else None,
        size=sum(commit.bytes_to_read for commit in changing) if is_complete else None,
        seconds=max(0, now - changing[0].timestamp) / 1000 if changing else 0.0,
        readable_until=until,
        findings=(*lost, *warnings),
    )


async def _unread(
    read: DeltaLog, seal: Seal, state: TableState, most: int | None
) -> tuple[tuple[Commit, ...], tuple[str, ...]]:
    versions = range(seal.watermark.version + 1, state.version + 1)
    try:
        return await read.commits(versions[:most]), ()
    except VersionsExpired as error:
        first = max(await read.oldest_version(), versions.start)
        return await read.commits(range(first, versions.stop)[:most]), (str(error),)


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
        terms += _vacuumed(unread)
    terms.sort(key=lambda term: term[0])
    warnings = [warning for _, warning in terms if warning is not None]
    return _iso(terms[0][0]) if terms else None, warnings


def _vacuumed(unread: tuple[Commit, ...]) -> list[tuple[int, str | None]]:
    """Return since when a VACUUM may have deleted files of a change, and a warning; nothing without one.

    It deletes files that were removed, and those of the change feed. Commits that only add files lose none.
    """
    losing = [commit for commit in unread if commit.n_removes or commit.has_cdc]
    for commit in unread:
        until = reached(commit)
        lost = next((one for one in losing if until is not None and one.timestamp <= until), None)
        if lost is not None:
            text = (
                f"Version {lost.version} of the source, which is not applied, may have lost its files to the "
                f"VACUUM in version {commit.version}: run the pipeline. If it cannot read them: "
                f"{VERSIONS_EXPIRED_REMEDY}"
            )
            return [(commit.timestamp, text)]
    return []


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


async def not_named(
    log: str, named: Sequence[str], storage_options: dict[str, str] | None = None
) -> tuple[str, ...]:
    """Return a finding about pipelines that collected changes in a log, and that its configuration lacks.

    :param log: location of the change log
    :param named: the pipelines that the configuration names
    """
    table, prefix = DeltaLog(log, storage_options), app_id("")
    try:
        apps = await table.transactions()
    except (TableNotFound, NotADeltaTable):
        return ()
    names = {app.removeprefix(prefix) for app in apps if app.startswith(prefix)} - set(named)
    left = []
    for name in sorted(names):
        try:
            recorded = await reconcile_async(table, name, declared=True, closed=True)
        except DeltaCdcError:
            # Its seal was cleaned from the log, for instance.
            recorded = None
        if recorded is None or recorded.seal is None or recorded.seal.successor is None:
            left.append(name)
    if not left:
        return ()
    finding = (
        f"{table.uri} has events of {', '.join(left)}, which the configuration does not name among the "
        "sources. They stay. If a source is not needed any more, write removed: true for it; if it has a new "
        "name, write take_over_from with the old one."
    )
    return (finding,)


async def status_of_all(
    pairs: list[tuple[str, str]],
    storage_options: Sequence[dict[str, str] | None] = (),
    sources: Sequence[str | None] = (),
    kinds: Sequence[Mapping[str, bool]] = (),
) -> list[Status | DeltaCdcError]:
    """Return the status, or the error, of several (pipeline, target) pairs, in their order.

    :param storage_options: options of each pair; empty: no options
    :param sources: source of each pair, if known; None: the source that the seal names
    :param kinds: ``collects`` and ``once`` of each pair (:func:`status_async`); empty: neither
    """
    nothing = [None] * len(pairs)
    looks = (
        status_async(pipeline, target, source=source, storage_options=options, **kind)
        for (pipeline, target), options, source, kind in zip(
            pairs, storage_options or nothing, sources or nothing, kinds or [{}] * len(pairs), strict=True
        )
    )
    found = await settled(looks)
    return [_named(one, pipeline) for one, (pipeline, _) in zip(found, pairs, strict=True)]


def _named(found: Status | Exception, pipeline: str) -> Status | DeltaCdcError:
    """Give an error its name: one table's must not end the answer about all."""
    if not isinstance(found, Exception) or isinstance(found, DeltaCdcError):
        return found
    remedy = "look again; if it happens again, look at what the message names."
    named = unnamed(found, f"The status of pipeline {pipeline} ended with", remedy=remedy)
    named.__cause__ = found
    return named
