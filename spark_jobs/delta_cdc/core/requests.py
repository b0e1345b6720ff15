"""What a run has to do: the arguments of one apply, read, commit or ingest, with its tables."""

from __future__ import annotations

from dataclasses import dataclass, field

from delta_cdc.core import codec
from delta_cdc.core.arguments import ONWARDS
from delta_cdc.core.errors import (
    DeltaCdcError,
    TargetChangedUnderneath,
    TargetHistoryChanged,
    TargetReplaced,
    TargetWithoutWatermark,
    WatermarkExpired,
)
from delta_cdc.core.guard import Guard
from delta_cdc.core.options import (
    ApplyOptions,
    Bounds,
    IngestOptions,
    IngestRunOptions,
    QueryOptions,
    RangeOptions,
    RunOptions,
)
from delta_cdc.core.quarantine import quarantine_of
from delta_cdc.core.shadow import Pair, pairs
from delta_cdc.core.times import epoch_ms
from delta_cdc.core.topics import is_topics
from delta_cdc.core.uris import spark_uri

#: The errors of a target that a reset mends: it deletes all rows, and loads them again.
MENDED_BY_RESET = (
    TargetReplaced,
    TargetWithoutWatermark,
    TargetChangedUnderneath,
    TargetHistoryChanged,
    WatermarkExpired,
)


@dataclass(frozen=True, kw_only=True)
class Request(RangeOptions):
    """The common fields of apply and read.

    :param source: path or URI of the source
    :param target: path or URI of the target, whose watermark counts; None only for a read
    :param scratch: whether a folder for file manifests will exist; without it, Delta's reader reads the
        change feed
    :param storage_options: object-store options with delta-rs's names; they may hold credentials, so no spec
        contains them
    """

    pipeline: str
    source: str
    target: str | None = None
    run_id: str = ""
    scratch: bool = True
    storage_options: dict[str, str] | None = field(default=None, repr=False, metadata=codec.UNWRITTEN)

    # What planning asks of any request. An apply answers differently.
    @property
    def applied(self) -> ApplyOptions | None:
        """Return the options of the apply; None: the request applies nothing."""
        return None

    @property
    def predecessor(self) -> str | None:
        """Return the pipeline whose watermark this one takes over."""
        return None

    @property
    def may_lack_predecessor(self) -> bool:
        """Return whether the predecessor may have no seal: then the pipeline is a new source."""
        return False

    @property
    def sets_baseline(self) -> bool:
        """Return whether the user guarantees the rows of a target without a seal."""
        return False

    @property
    def ends_before(self) -> bool:
        """Return whether the end time is exclusive: the next data interval begins there."""
        return False

    @property
    def forgiven(self) -> tuple[type[DeltaCdcError], ...]:
        """Return the errors of the target that do not matter, because all of its rows are computed again."""
        return ()


@dataclass(frozen=True, kw_only=True)
class ApplyRequest(Request, RunOptions):
    """One apply.

    :param source_name: catalog name of the source, once ``source`` is its location; "" without a name
    :param target_name: the same of the target
    :param inherits_take_over: ``take_over_from`` was written for the pipeline that has this one as a source
    """

    target: str
    options: ApplyOptions
    source_name: str = ""
    target_name: str = ""
    inherits_take_over: bool = field(default=False, metadata=codec.UNWRITTEN)

    @property
    def quarantine(self) -> str | None:
        """Return the quarantine's location beside the target, in Spark's form; None without a quarantine."""
        if not (self.options.quarantines or self.repair_quarantined):
            return None
        return quarantine_of(self.target)

    @property
    def guard(self) -> Guard:
        """Return the limits of the run."""
        return Guard(
            max_deleted=self.max_deleted,
            max_changed=self.max_changed,
            min_source_rows=self.min_source_rows,
            approved=self.approve or "",
        )

    @property
    def shadows(self) -> tuple[Pair, ...]:
        """Return the pairs of this pipeline that are compared after its commits."""
        return pairs(self.pipeline, self.target, self.shadow_of, self.shadowed_by)

    @property
    def may_end_early(self) -> bool:
        """Return whether options may end the range of a run, or of a commit, before the newest version."""
        ends = (self.ending_version, self.ending_timestamp, self.max_versions, self.max_bytes)
        return any(one is not None for one in (*ends, self.versions_per_commit, self.bytes_per_commit))

    @property
    def goes_on(self) -> bool:
        """Return whether the run only applies the changes after the watermark."""
        return self.mode in ONWARDS

    @property
    def applied(self) -> ApplyOptions:
        """Return the options."""
        return self.options

    @property
    def predecessor(self) -> str | None:
        """Return the pipeline whose watermark this one takes over."""
        return self.take_over_from

    @property
    def may_lack_predecessor(self) -> bool:
        """Return whether the predecessor is only what this source would have been called before."""
        return self.inherits_take_over

    @property
    def sets_baseline(self) -> bool:
        """Return whether ``initial_load`` says that the target has rows already."""
        return self.initial_load == "none" or (
            isinstance(self.initial_load, dict) and "none_at" in self.initial_load
        )

    @property
    def ends_before(self) -> bool:
        """Return whether the run is of a data interval."""
        return self.mode == "interval"

    @property
    def forgiven(self) -> tuple[type[DeltaCdcError], ...]:
        """Return the errors of the target that a reset, or a reload by policy, mends."""
        if self.mode == "reset":
            return MENDED_BY_RESET
        return (TargetReplaced,) if self.on_target_replaced == "reload" else ()


@dataclass(frozen=True, kw_only=True)
class ReadRequest(Request):
    """One read into staging.

    The baseline is the target's watermark. Without a target it is the last version committed in staging
    itself (:class:`CommitRequest`).

    :param staging: location of the staging table
    :param options: the query over the changes, and the read method
    """

    staging: str
    options: QueryOptions = field(default_factory=QueryOptions)


@dataclass(frozen=True, kw_only=True)
class CommitRequest:
    """The commit of one batch.

    :param staging: location of the staging table
    :param ending_version: last version of the batch that has arrived; None: that of the open batch
    :param single_driver: see :class:`RangeOptions`
    :param storage_options: see :class:`Request`
    """

    pipeline: str
    staging: str
    ending_version: int | None = None
    single_driver: bool = False
    run_id: str = ""
    storage_options: dict[str, str] | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class IngestRequest(IngestRunOptions):
    """One ingest.

    :param log_name: catalog name of the log, once ``log`` is its location; "" without a name
    :param after: the applies that the same application runs from the log afterwards, one after the other
    :param storage_options: options of the object store, as delta-rs names them
    :param kafka_options: options of the Kafka client
    """

    pipeline: str
    source: str
    log: str
    options: IngestOptions
    log_name: str = ""
    run_id: str = ""
    after: tuple[ApplyRequest, ...] = ()
    storage_options: dict[str, str] | None = field(default=None, repr=False)
    kafka_options: dict[str, str] | None = field(default=None, repr=False)

    @property
    def is_kafka(self) -> bool:
        """Return whether the source is a topic."""
        return is_topics(self.source.strip())

    @property
    def source_uri(self) -> str:
        """Return the source as Spark names it."""
        return self.source.strip() if self.is_kafka else spark_uri(self.source)

    @property
    def starting_ms(self) -> int | None:
        """Return ``starting_timestamp`` in epoch milliseconds."""
        timestamp = self.starting_timestamp
        return None if timestamp is None else epoch_ms("starting_timestamp", timestamp)


@dataclass(frozen=True, kw_only=True)
class ChangesRequest(Bounds):
    """The changes of a table that a caller wants to read; a range without a start is refused.

    :param table: path or URI
    :param options: the query and its read method
    :param scratch: see :class:`Request`
    :param storage_options: see :class:`Request`
    """

    table: str
    options: QueryOptions = field(default_factory=QueryOptions)
    scratch: bool = True
    storage_options: dict[str, str] | None = field(default=None, repr=False)
