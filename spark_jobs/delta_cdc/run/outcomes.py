"""The results of the flows, as the logs of the written tables confirm them."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from delta_cdc.planning.written import sealed_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from delta_cdc.core.spec import JobResult
    from delta_cdc.core.versions import VersionRange
    from delta_cdc.core.watermark import Seal, TableVersion
    from delta_cdc.delta_log.actions import Commit


@dataclass
class Effort:
    """What a flow took. The flow adds to it until its end.

    :param seconds: seconds by stage: ``plan``, ``start`` (of Spark, until the job begins), ``work`` (of the
        job) and ``confirm``
    :param attempts_lost: the number of attempts that another writer beat
    """

    seconds: dict[str, float] = field(default_factory=dict)
    attempts_lost: int = 0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of a block to a stage."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.add({name: time.monotonic() - began})

    def add(self, seconds: Mapping[str, float], attempts_lost: int = 0) -> None:
        """Add seconds by stage, and lost attempts."""
        for name, value in seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value
        self.attempts_lost += attempts_lost

    def to_dict(self) -> dict[str, Any]:
        """Return the plain JSON form that is published."""
        seconds = {name: round(value, 3) for name, value in self.seconds.items()}
        return {"seconds": seconds, "attempts_lost": self.attempts_lost}


class Published(Protocol):
    """The parts that the results of all flows share."""

    @property
    def applied(self) -> bool: ...

    def to_dict(self) -> dict[str, Any]:
        """Return the plain JSON form that is published."""


@dataclass(frozen=True)
class ApplyResult:
    """The result of an apply, as the target's log confirms it.

    :param applied: whether this work moved any rows, in this try or an earlier one
    :param versions: the range that was moved; None if nothing was moved
    :param watermark: the watermark of the target now; None only if no target exists yet
    :param counts: rows inserted, updated, deleted, and the other counts of the seal
    :param timestamp: when this result was made, ISO 8601 in UTC
    :param plan_key: the key of the saved plan that :func:`published` deletes; it is not published
    :param backup: the newest seal in full
        (:meth:`delta_cdc.planning.reconcile.WatermarkBackup.to_dict`), for a store
        outside the target; it is not published either
    :param dry_run: the result of a dry run: ``table``, a row per commit; ``steps``, one text each; the
        ``statements`` that would run; and ``counts``. None for any other run
    :param bytes_written: size of the files that the commits of this work added
    :param lag: how far the target is behind its source now (:meth:`delta_cdc.planning.status.Lag.to_dict`);
        None if unknown
    :param effort: what the flow took
    """

    applied: bool
    versions: VersionRange | None
    watermark: TableVersion | None
    counts: dict[str, int]
    target_version: int | None
    pipeline: str
    seal: int | None
    source_table: str
    target_table: str | None
    target_table_id: str | None
    timestamp: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    plan_key: str = field(default="", kw_only=True, repr=False, compare=False)
    backup: dict[str, Any] | None = field(default=None, kw_only=True, repr=False, compare=False)
    dry_run: dict[str, Any] | None = field(default=None, kw_only=True, repr=False)
    bytes_written: int = field(default=0, kw_only=True)
    lag: dict[str, Any] | None = field(default=None, kw_only=True, compare=False)
    effort: Effort = field(default_factory=Effort, kw_only=True, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the plain JSON form that is published."""
        published = {
            "pipeline": self.pipeline,
            "seal": self.seal,
            "source_table": self.source_table,
            "source_table_id": self.watermark.table_id if self.watermark else None,
            "version": self.watermark.version if self.watermark else None,
            "starting_version": self.versions.starting_version if self.versions else None,
            "ending_version": self.versions.ending_version if self.versions else None,
            "applied": self.applied,
            "target_table": self.target_table,
            "target_table_id": self.target_table_id,
            "target_version": self.target_version,
            "counts": self.counts,
            "bytes_written": self.bytes_written,
            "lag": self.lag,
            **self.effort.to_dict(),
            "timestamp": self.timestamp,
        }
        return published if self.dry_run is None else {**published, "dry_run": self.dry_run}


@dataclass(frozen=True)
class IngestResult:
    """The result of an ingest, as the Delta log of the change log confirms it.

    :param applied: whether this work wrote a batch into the change log, in this try or an earlier one
    :param seal: the number of the seal in effect; None only if no change log exists yet
    :param log_version: the version that holds the batch; without a batch, the newest version
    :param counts: ``events``, ``deletes``, ``truncates``, ``ignored``, ``quarantined``, ``late``,
        ``repeated``, ``files`` and ``missing``, without those that are zero
    :param left: the input that the bounds leave for another run: ``files`` and ``bytes``, or ``offsets``
    :param timestamp: when this result was made, ISO 8601 in UTC
    :param plan_key: the key of the saved plan that :func:`published` deletes; it is not published
    :param then: the result that the same application reported for the apply after the ingest; None without
        such an apply. Only the target's log confirms the apply
    :param bytes_written: size of the files that the batch added to the change log
    :param effort: what the flow took
    """

    applied: bool
    pipeline: str
    seal: int | None
    log_table: str
    log_table_id: str | None
    log_version: int | None
    counts: dict[str, int]
    left: dict[str, int]
    timestamp: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    plan_key: str = field(default="", kw_only=True, repr=False, compare=False)
    then: JobResult | None = field(default=None, kw_only=True, repr=False, compare=False)
    bytes_written: int = field(default=0, kw_only=True)
    effort: Effort = field(default_factory=Effort, kw_only=True, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the plain JSON form that is published."""
        return {
            "pipeline": self.pipeline,
            "seal": self.seal,
            "applied": self.applied,
            "log_table": self.log_table,
            "log_table_id": self.log_table_id,
            "log_version": self.log_version,
            "counts": self.counts,
            "left": self.left,
            "bytes_written": self.bytes_written,
            **self.effort.to_dict(),
            "timestamp": self.timestamp,
        }


@dataclass(frozen=True)
class ReadResult(ApplyResult):
    """The result of a read: that of :class:`ApplyResult` and the open batch. ``applied`` means that this call
    wrote a batch.

    ``counts`` always has ``rows``. It has the change types if they are known, from the job that completed the
    batch. For a custom sink, ``target_table`` is None, and ``watermark`` is the end of the last committed
    batch.

    :param staging: location of the staging table
    :param staging_version: the version of the staging table that holds the batch; None without a batch
    :param rows: change rows in the batch
    """

    staging: str = ""
    staging_version: int | None = None
    rows: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the plain JSON form that is published."""
        batch = {"staging": self.staging, "staging_version": self.staging_version, "rows": self.rows}
        return {**super().to_dict(), **batch}


@dataclass(frozen=True)
class CommitResult:
    """The result of a commit, as the staging table's log confirms it.

    :param applied: whether this run committed, in this try or an earlier one; false if another run did
    :param versions: the batch that was committed; None if ``applied`` is false
    :param watermark: the watermark of the staging table now; None if no batch was ever committed
    :param staging_version: version of the staging table; None without one
    :param timestamp: when this result was made, ISO 8601 in UTC
    """

    applied: bool
    versions: VersionRange | None
    watermark: TableVersion | None
    pipeline: str
    seal: int | None
    source_table: str | None
    staging: str
    staging_version: int | None
    timestamp: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))

    def to_dict(self) -> dict[str, Any]:
        """Return the plain JSON form that is published."""
        return {
            "pipeline": self.pipeline,
            "seal": self.seal,
            "source_table": self.source_table,
            "source_table_id": self.watermark.table_id if self.watermark else None,
            "version": self.watermark.version if self.watermark else None,
            "starting_version": self.versions.starting_version if self.versions else None,
            "ending_version": self.versions.ending_version if self.versions else None,
            "applied": self.applied,
            "staging": self.staging,
            "staging_version": self.staging_version,
            "timestamp": self.timestamp,
        }


def summed(commits: tuple[tuple[Seal, Commit], ...]) -> dict[str, int]:
    return total(sealed_counts(seal, commit) for seal, commit in commits)


def total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    together: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            together[name] = together.get(name, 0) + count
    return together


def counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "no rows"
