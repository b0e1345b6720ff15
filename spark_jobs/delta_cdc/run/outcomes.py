"""What became of a piece of work, as the log proves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from delta_cdc.core.spec import JobResult
    from delta_cdc.core.versions import VersionRange
    from delta_cdc.core.watermark import Seal, TableVersion
    from delta_cdc.delta_log.actions import Commit

_METRICS = {
    "numTargetRowsInserted": "inserted",
    "numTargetRowsUpdated": "updated",
    "numTargetRowsDeleted": "deleted",
}


class Published(Protocol):
    """What every flow's result tells."""

    @property
    def applied(self) -> bool: ...

    def to_dict(self) -> dict[str, Any]:
        """Return the plain JSON form that is published."""


@dataclass(frozen=True)
class ApplyResult:
    """What became of an apply, as the target's log proves it.

    :param applied: whether this piece of work moved anything
    :param versions: the range it moved; None where there was nothing to do
    :param watermark: what the target proves now; None only where no target exists yet
    :param counts: rows inserted, updated, deleted, and what else the seal counts
    :param timestamp: when this was found out, ISO 8601 in UTC
    :param plan_key: what :func:`published` forgets; not part of what is published
    :param backup: the newest seal in full
        (:meth:`delta_cdc.planning.reconcile.WatermarkBackup.to_dict`), for a store
        outside the target; not part of what is published either
    :param dry_run: what a dry run found out: ``table``, a row per commit, ``steps``, one text each, the
        ``statements`` that would run, and ``counts``; None where it was none
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
            "timestamp": self.timestamp,
        }
        return published if self.dry_run is None else {**published, "dry_run": self.dry_run}


@dataclass(frozen=True)
class IngestResult:
    """What became of an ingest, as the change log's own log proves it.

    :param applied: whether this piece of work brought a batch into the change log
    :param seal: the number of the seal in effect; None only where no log exists yet
    :param log_version: the version that carries the batch; where there was none, the newest one
    :param counts: ``events``, ``deletes``, ``truncates``, ``ignored``, ``quarantined``, ``late``,
        ``repeated``, ``files`` and ``missing``, those that are zero left out
    :param left: what the bounds left for another run: ``files`` and ``bytes``, or ``offsets``
    :param timestamp: when this was found out, ISO 8601 in UTC
    :param plan_key: what :func:`published` forgets; not part of what is published
    :param then: what the same application made of the apply after it; None where it had none. What counts
        is the target's log
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
            "timestamp": self.timestamp,
        }


@dataclass(frozen=True)
class ReadResult(ApplyResult):
    """What became of a read: as :class:`ApplyResult` (``applied``: a batch was written by this call), plus
    the open batch.

    ``counts`` holds ``rows`` always, and the change types where they are known: by the job that completed the
    batch, and in the seal of a batch that was written as files, too. ``target_table`` is None for a custom
    sink, and ``watermark`` then what was committed last.

    :param staging: location of the staging table
    :param staging_version: its version that holds the batch; None where there is none
    :param rows: change rows in the batch
    :param output: the folder that holds the batch as files; None where none were asked for
    """

    staging: str = ""
    staging_version: int | None = None
    rows: int = 0
    output: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the plain JSON form that is published."""
        batch = {
            "staging": self.staging,
            "staging_version": self.staging_version,
            "rows": self.rows,
            "output": self.output,
        }
        return {**super().to_dict(), **batch}


@dataclass(frozen=True)
class CommitResult:
    """What became of a commit, as the staging table's log proves it.

    :param applied: whether this run committed, by this try or an earlier one; false where others did before
    :param versions: the batch that was committed; None where ``applied`` is false
    :param watermark: what staging proves now; None where nothing was ever committed
    :param staging_version: version of the staging table; None where there is none
    :param timestamp: when this was found out, ISO 8601 in UTC
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


def sealed_counts(seal: Seal, commit: Commit) -> dict[str, int]:
    """Return a sealed commit's counts: Delta's own metrics, and what the job knew before it."""
    metrics = commit.info.operation_metrics
    counts = {name: int(metrics[metric]) for metric, name in _METRICS.items() if metric in metrics}
    if not counts and "numOutputRows" in metrics:
        counts = {"inserted": int(metrics["numOutputRows"])}
    return {**counts, **seal.step.counts}


def summed(commits: tuple[tuple[Seal, Commit], ...]) -> dict[str, int]:
    total: dict[str, int] = {}
    for seal, commit in commits:
        for name, count in sealed_counts(seal, commit).items():
            total[name] = total.get(name, 0) + count
    return total


def counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "no rows"
