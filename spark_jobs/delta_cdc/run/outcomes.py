"""The outcomes of runs, as the logs of the written tables confirm them."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from delta_cdc.core import codec
from delta_cdc.core.text_table import named_counts
from delta_cdc.planning.written import sealed_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from delta_cdc.core.quarantine import Held
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


_VERSIONS = ("source_table", "source_table_id", "version", "starting_version", "ending_version", "applied")
_TARGET = ("target_table", "target_table_id", "target_version", "counts", "bytes_written", "lag")
_LOG = ("applied", "log_table", "log_table_id", "log_version", "counts", "left", "bytes_written")
_STAGING = ("staging", "staging_version")
_EFFORT = ("seconds", "attempts_lost", "timestamp")
#: The names of the published JSON object of each kind of work, after ``pipeline`` and ``seal``.
_PUBLISHED = {
    "apply": (*_VERSIONS, *_TARGET, *_EFFORT),
    "read": (*_VERSIONS, *_TARGET, *_EFFORT, *_STAGING, "rows"),
    "commit": (*_VERSIONS, *_STAGING, "timestamp"),
    "ingest": (*_LOG, *_EFFORT),
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run did, as the log of the written table confirms it.

    Fields that say nothing about a kind of work have their default.

    :param kind: ``apply``, ``read``, ``commit`` (of a batch that was delivered) or ``ingest``
    :param applied: whether this work moved rows, or wrote or committed a batch, in this try or an earlier one
    :param seal: the number of the seal in effect; of a read, that of its open batch; None without one
    :param versions: the range that was moved, staged or committed; None if none was
    :param watermark: the watermark now; None if no seal records one. Of a read for a custom sink, it is the
        end of the last committed batch
    :param counts: rows inserted, updated, deleted, and the other counts of the seal. Of a read, ``rows`` and
        the change types, if they are known. Of an ingest, ``events``, ``deletes``, ``truncates``,
        ``ignored``, ``quarantined``, ``late``, ``repeated``, ``files`` and ``missing``, without zeros
    :param source_table: location of the source; None if it is not known
    :param target_table: location of the target; None for a read or a commit without a target
    :param target_version: the version of the target with the newest commit
    :param staging: location of the staging table
    :param staging_version: the version of the staging table that holds the batch; None without a batch
    :param rows: change rows in the batch
    :param log_table: location of the change log
    :param log_version: the version that holds the batch; without a batch, the newest version
    :param left: the input that the bounds leave for another run: ``files`` and ``bytes``, or ``offsets``
    :param bytes_written: size of the files that the commits of this work added
    :param partitions: the partitions of the target that these commits changed
        (:func:`delta_cdc.planning.partitions.changed_partitions`); None if the target is not partitioned, or
        if nothing was applied
    :param lag: how far the target is behind its source now (:meth:`delta_cdc.planning.status.Lag.to_dict`);
        None if unknown
    :param dry_run: the result of a dry run: ``table``, a row per commit; ``steps``, one text each; the
        ``statements`` that would run; and ``counts``. None for any other run
    :param shadow: of a pipeline with a shadow, or of a shadow: the comparisons after the commit
        (:class:`delta_cdc.core.shadow.Comparison`), in their published form; None without one
    :param held: the pipeline's rows in quarantine after the run; None without a quarantine, or if not known.
        Published as ``in_quarantine``
    :param timestamp: when this outcome was made, ISO 8601 in UTC
    :param plan_key: the key of the saved plan that :func:`delta_cdc.run.saved_plans.forget_saved_plans`
        deletes; it is not published
    :param backup: the newest seal in full
        (:meth:`delta_cdc.planning.reconcile.WatermarkBackup.to_dict`), for a store outside the target; it is
        not published either
    :param then: of an ingest: the results that the same application reported for the applies after it. Only
        the targets' logs confirm them
    :param effort: what the run took
    """

    kind: Literal["apply", "read", "commit", "ingest"]
    applied: bool
    pipeline: str
    seal: int | None
    versions: VersionRange | None = None
    watermark: TableVersion | None = None
    counts: dict[str, int] = field(default_factory=dict)
    source_table: str | None = None
    target_table: str | None = None
    target_table_id: str | None = None
    target_version: int | None = None
    staging: str = ""
    staging_version: int | None = None
    rows: int = 0
    log_table: str = ""
    log_table_id: str | None = None
    log_version: int | None = None
    left: dict[str, int] = field(default_factory=dict)
    bytes_written: int = 0
    partitions: tuple[str, ...] | None = None
    lag: dict[str, Any] | None = field(default=None, compare=False)
    dry_run: dict[str, Any] | None = field(default=None, repr=False)
    shadow: tuple[dict[str, Any], ...] | None = None
    held: Held | None = None
    timestamp: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    plan_key: str = field(default="", repr=False, compare=False)
    backup: dict[str, Any] | None = field(default=None, repr=False, compare=False)
    then: tuple[JobResult, ...] = field(default=(), repr=False, compare=False)
    effort: Effort = field(default_factory=Effort, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the plain JSON form that is published."""
        everything = {
            **vars(self),
            "source_table_id": self.watermark.table_id if self.watermark else None,
            "version": self.watermark.version if self.watermark else None,
            "starting_version": self.versions.starting_version if self.versions else None,
            "ending_version": self.versions.ending_version if self.versions else None,
            **self.effort.to_dict(),
        }
        names = ("pipeline", "seal", *_PUBLISHED[self.kind])
        published = {name: everything[name] for name in names}
        if self.partitions is not None:
            published["partitions"] = list(self.partitions)
        if self.shadow is not None:
            published["shadow"] = list(self.shadow)
        if self.held is not None:
            published["in_quarantine"] = codec.encoded(self.held)
        return published if self.dry_run is None else {**published, "dry_run": self.dry_run}


def summed(commits: tuple[tuple[Seal, Commit], ...]) -> dict[str, int]:
    return total(sealed_counts(seal, commit) for seal, commit in commits)


def total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    together: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            together[name] = together.get(name, 0) + count
    return together


def counted(counts: dict[str, int]) -> str:
    return named_counts(counts) or "no rows"
