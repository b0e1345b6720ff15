"""The JSON contract between the planning side and the running side.

Standard library only: this module travels to the Spark driver. A spec is immutable and versioned, and
contains no secret. ``fingerprint()`` identifies the work (not the attempt): a retry of the same plan has the
same fingerprint, so it recognises its own commit in the target's log.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from delta_cdc.core import codec
from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.column_changes import ColumnChange  # noqa: TC001 - the codec reads hints
from delta_cdc.core.errors import SpecUnreadable
from delta_cdc.core.options import ApplyOptions, IngestOptions, QueryOptions
from delta_cdc.core.requests import ApplyRequest  # noqa: TC001 - the codec reads hints
from delta_cdc.core.watermark import PipelineState, Seal, SealStep, TableVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delta_cdc.core.watermark import StepKind

SPEC_VERSION = 1

#: The job committed; Delta skipped it because a newer seal exists; it lost a race; the target changed since
#: planning; or it failed with a named error.
#: ``planned``: a dry run. ``unreached``: a part of a batch that has not finished.
JobStatus = Literal["committed", "skipped", "conflict", "stale", "failed", "planned", "unreached"]


#: The column that marks soft-deleted rows.
DELETED_COLUMN = "_deleted"


@dataclass(frozen=True)
class Staging:
    """A sealed batch of change rows: the table, the version that holds it, and its kind.

    :param kind: ``changes`` (rows of the change feed) or ``snapshot`` (a whole snapshot, as inserts)
    """

    uri: str
    version: int
    kind: Literal["changes", "snapshot"]


@dataclass(frozen=True)
class ReadRange:
    """A range of versions (both ends inclusive) with one read method.

    :param method: the read method; see :data:`ReadMethod`
    :param reason: why the planner chose the method, for people
    :param size: bytes to read, as the log records them
    :param net: only the two ends of the range are read: its rows are the net effect
    :param compare: find rows that were removed and added back unchanged in one version; they are not changes
    :param timestamps: for read methods that read files: (version, epoch milliseconds) of every commit of the
        range that changes data, ascending
    :param by_manifest: Spark reads it through its file manifest (:mod:`delta_cdc.delta_log.file_manifests`),
        not by Delta's reader of the change feed; set with the manifests, and not part of the fingerprint
    """

    starting_version: int
    ending_version: int
    method: Literal["change_files", "row_tracking", "snapshot_diff", "added_files"]
    reason: str
    size: int
    net: bool = False
    compare: bool = False
    timestamps: tuple[tuple[int, int], ...] = ()
    by_manifest: bool = False

    @property
    def needs_manifest(self) -> bool:
        """Return whether the rows can be read only through a file manifest."""
        return self.method != "change_files"


@dataclass(frozen=True, kw_only=True)
class _SealedStep:
    """One sealed commit of a target or of staging.

    :param watermark: the watermark that the seal will record
    :param planned_on: the table as planned; None if no table exists yet, or the previous step creates it
    :param before: the pipeline's state before the step; None: the state after the previous step, or no
        state. A step without rows copies this state into its own seal
    """

    watermark: TableVersion
    seal_number: int
    planned_on: TableVersion | None = None
    before: PipelineState | None = None

    @property
    def at(self) -> int:
        """Return the version of the source that the target reflects after this step."""
        return self.watermark.version

    @property
    def ending_version(self) -> int:
        """Return the last version that the step covers."""
        return self.watermark.version

    @property
    def highest_sequence(self) -> str | None:
        """Return the greatest sequence that earlier steps applied, as text."""
        return self.before.highest_sequence if self.before is not None else None

    @property
    def truncate_sequences(self) -> tuple[str, ...]:
        """Return the newest truncates that earlier steps applied."""
        return self.before.truncate_sequences if self.before is not None else ()


@dataclass(frozen=True, kw_only=True)
class _RowStep(_SealedStep):
    """A step that reads the source and writes rows.

    :param source_columns: the source's columns as of the watermark
    :param horizons: change log: (version, sequence) ascending: the sequence of an event that arrived after
        the version must not be lower: the allowed lateness
    :param column_changes: changes of the source's columns since the step before, which the target follows
    """

    source_columns: tuple[str, ...] = ()
    horizons: tuple[tuple[int, str], ...] = ()
    column_changes: tuple[ColumnChange, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LoadStep(_RowStep):
    """Load the snapshot of the watermark's version; version -1 is before all rows.

    :param kind: ``load``; ``reset`` (the snapshot replaces all rows); or ``baseline`` (no rows are loaded,
        the target's content counts as that snapshot; an empty target is created if none exists)
    :param staging: the snapshot is a staged batch
    """

    kind: Literal["load", "baseline", "reset"] = "load"
    staging: Staging | None = None

    @property
    def starting_version(self) -> int:
        """Return the version of the snapshot."""
        return self.at

    @property
    def is_empty(self) -> bool:
        """Return whether the step writes no rows."""
        return self.kind == "baseline" or self.at < 0


@dataclass(frozen=True, kw_only=True)
class ApplyStep(_RowStep):
    """Apply, or stage, the changes of a range.

    :param read_ranges: the ranges to read, in order. They begin with the first version that changes data:
        commits before it may lie outside retention, or before the feed was turned on
    :param staging: the changes are a staged batch
    """

    starting_version: int
    read_ranges: tuple[ReadRange, ...] = ()
    staging: Staging | None = None
    kind: Literal["apply"] = "apply"


@dataclass(frozen=True, kw_only=True)
class ReloadStep(_RowStep):
    """Apply the difference between the target and the source as of the watermark.

    For a change log, all keys are computed again.
    """

    kind: Literal["reload"] = "reload"

    @property
    def starting_version(self) -> int:
        """Return the version that the target is compared with."""
        return self.at


@dataclass(frozen=True, kw_only=True)
class RepairStep(_RowStep):
    """Compute some keys again, as of the watermark, which the step does not move.

    :param read_ranges: the ranges to read, see :class:`ApplyStep`
    :param repaired_to: the keys are those changed in versions ``starting_version`` to this one
    :param keys_where: Spark SQL predicate over the key columns, instead of a range
    :param replayed: the keys are those in the quarantine table
    """

    starting_version: int
    repaired_to: int
    read_ranges: tuple[ReadRange, ...] = ()
    keys_where: str | None = None
    replayed: bool = False
    kind: Literal["repair"] = "repair"

    @property
    def ending_version(self) -> int:
        """Return the last version whose keys are computed again."""
        return self.repaired_to


@dataclass(frozen=True, kw_only=True)
class StateStep(_SealedStep):
    """A seal without rows.

    :param kind: ``renew`` (the same state under a new seal) or ``take_over`` (this pipeline's seal of the
        state of another pipeline of the target; with ``successor``, the closing seal of that other pipeline)
    :param pipeline: the pipeline of the seal; None is the spec's
    :param successor: the pipeline that continues where this seal ends the other one
    """

    starting_version: int
    pipeline: str | None = None
    successor: str | None = None
    kind: Literal["renew", "take_over"]


@dataclass(frozen=True, kw_only=True)
class StagingStep(_SealedStep):
    """A commit of a staging table that reads only staged rows.

    :param kind: ``answer`` (the query, computed over the staged change rows, replaces them) or ``complete``
        (no rows: the staged rows are the batch)
    :param source_columns: the source's columns as of the watermark
    """

    starting_version: int
    source_columns: tuple[str, ...] = ()
    kind: Literal["answer", "complete"]


@dataclass(frozen=True)
class CommitStep:
    """The sealed commit for a staged batch that was delivered completely; it writes no rows.

    :param starting_version: first version of the batch
    :param watermark: every version up to this one is delivered
    :param planned_on: the staging table as planned
    """

    starting_version: int
    watermark: TableVersion
    seal_number: int
    applied_from: int
    planned_on: TableVersion | None = None
    configuration: dict[str, Any] = field(default_factory=dict)
    kind: Literal["commit"] = "commit"

    @property
    def ending_version(self) -> int:
        """Return the last version of the batch."""
        return self.watermark.version


@dataclass(frozen=True)
class IngestStep:
    """The sealed commit of one batch in a change log; its seal has the number of the batch.

    :param kind: ``ingest`` (events of files or of a topic), ``replay`` (records that were in quarantine) or
        ``renew`` (no rows: the same state under a new seal)
    :param applied_from: number of the first batch that counts
    :param planned_on: the log as planned; None if no table exists yet
    :param configuration: the seal's record of the batches up to its own batch
    """

    kind: Literal["ingest", "replay", "renew"]
    seal_number: int
    applied_from: int
    planned_on: TableVersion | None = None
    configuration: dict[str, Any] = field(default_factory=dict)


#: A sealed commit of a target, by an apply.
RowStep = LoadStep | ApplyStep | ReloadStep | RepairStep
TargetStep = RowStep | StateStep
#: A sealed commit of a staging table, by a read.
ReadStep = LoadStep | ApplyStep | StagingStep
#: One sealed commit of any job.
Step = TargetStep | StagingStep | CommitStep | IngestStep


def ranges_of(steps: Iterable[Step]) -> list[ReadRange]:
    """Return the ranges that steps read, in order."""
    return [
        read_range
        for step in steps
        if isinstance(step, ApplyStep | RepairStep)
        for read_range in step.read_ranges
    ]


@dataclass(frozen=True)
class ApplySpec:
    """Move changes of ``source`` into ``target``: one or more sealed commits, in order.

    :param single_driver: the user guarantees that only one Spark driver at a time writes to the tables;
        needed on S3 without a log store for several writers
    :param manifests_uri: folder of the file manifests of ranges; not part of the fingerprint
    :param quarantine_uri: side table for events that cannot be applied; "" if nothing is quarantined
    :param dry_run: compute what would be written, and write nothing
    :param may_lack_layout: the target may lack its clustering or a property, because a crash followed its
        creation: the job checks it after the commit
    :param target_bytes: size of the target's files, as its log recorded it at planning time; None if the log
        did not. It only decides how the job shuffles and writes; not part of the fingerprint
    :param target_shows_writes: readers of the target can see that a row was written again with equal values,
        because it has a change feed or tracks its rows; not part of the fingerprint
    :param source_name: catalog name of the source, "" if it was given by its location; like the other names,
        not part of the fingerprint
    :param target_name: the same of the target; the job registers a target that it creates
    :param target_comment: comment of a table that gets its name here
    """

    pipeline: str
    run_id: str
    source_uri: str
    target_uri: str
    options: ApplyOptions
    steps: tuple[TargetStep, ...]
    single_driver: bool = False
    manifests_uri: str = ""
    quarantine_uri: str = ""
    dry_run: bool = False
    may_lack_layout: bool = True
    target_bytes: int | None = None
    target_shows_writes: bool = True
    source_name: str = ""
    target_name: str = ""
    target_comment: str = ""
    job: Literal["apply"] = "apply"


@dataclass(frozen=True)
class ReadSpec:
    """Write one batch, the changes of a range or a snapshot, to a staging table: one sealed commit per step.

    The last step completes the batch.

    :param starting_version: first version of the batch; an earlier attempt may have staged its beginning
    :param applied_from: first version of the source that the target holds, or will hold with this batch
    :param continues: the first step adds to the staged rows; otherwise it replaces them
    :param plain: stage change rows unchanged, for a later step that computes the query over all rows
    :param configuration: the record of the batch in each of its seals
    """

    pipeline: str
    run_id: str
    source_uri: str
    staging_uri: str
    steps: tuple[ReadStep, ...]
    kind: Literal["changes", "snapshot"]
    starting_version: int
    applied_from: int
    continues: bool = False
    plain: bool = False
    single_driver: bool = False
    manifests_uri: str = ""
    options: QueryOptions = field(default_factory=QueryOptions)
    configuration: dict[str, Any] = field(default_factory=dict)
    job: Literal["read"] = "read"


@dataclass(frozen=True)
class CommitSpec:
    """Seal the staging table: everything up to some version was delivered."""

    pipeline: str
    run_id: str
    source_uri: str
    staging_uri: str
    step: CommitStep
    single_driver: bool = False
    job: Literal["commit"] = "commit"

    @property
    def steps(self) -> tuple[CommitStep, ...]:
        """Return the one step, as a tuple like other specs."""
        return (self.step,)


@dataclass(frozen=True)
class SourceFile:
    """One file of a batch.

    :param uri: its location in Spark's form, without additional escaping
    :param size: bytes
    :param modified: epoch milliseconds
    :param etag: the store's own fingerprint; "" if it has none
    :param again: it was, or may have been, ingested before: only events missing from the log are new
    :param columns: Parquet: the file's own columns, in order; () if unknown
    :param unreadable: why the whole file cannot be read; "" if it can
    :param missing: a crashed attempt recorded it, and it no longer exists
    """

    uri: str
    size: int
    modified: int
    etag: str = ""
    again: bool = False
    columns: tuple[str, ...] = ()
    unreadable: str = ""
    missing: bool = False


@dataclass(frozen=True)
class OffsetRange:
    """Records of one partition of a topic.

    :param starting_offset: the first offset
    :param ending_offset: the offset after the last one
    :param again: some may have been ingested before: only records missing from the log are new
    """

    topic: str
    partition: int
    starting_offset: int
    ending_offset: int
    again: bool = False


@dataclass(frozen=True)
class IngestSpec:
    """Append the events of one batch to a change log: record its files or offsets, then write the events.

    :param source_uri: the records' source: the path, prefix or ``kafka://<servers>/<topics>``
    :param log_uri: the change log
    :param ingested_uri: side table: which files and offsets each batch took
    :param quarantine_uri: side table: records that are not events
    :param recorded: whether an earlier attempt wrote this batch into the side table
    :param horizon: the allowed lateness of the log, from its property; None if not set
    :param after: the apply from the log after this ingest, in the same application; None: no apply follows
    :param may_lack_layout: as for :class:`ApplySpec`, for the change log
    :param log_name: catalog name of the change log, "" if it was given by its location; not part of the
        fingerprint
    :param reads_alone: read each file alone before the batch, because earlier applications failed; not part
        of the fingerprint
    """

    pipeline: str
    run_id: str
    source_uri: str
    log_uri: str
    ingested_uri: str
    quarantine_uri: str
    options: IngestOptions
    step: IngestStep
    files: tuple[SourceFile, ...] = ()
    offsets: tuple[OffsetRange, ...] = ()
    recorded: bool = False
    horizon: str | None = None
    single_driver: bool = False
    after: ApplyRequest | None = None
    may_lack_layout: bool = True
    log_name: str = ""
    reads_alone: bool = False
    job: Literal["ingest"] = "ingest"

    @property
    def steps(self) -> tuple[IngestStep, ...]:
        """Return the one step, as a tuple like other specs."""
        return (self.step,)


@dataclass(frozen=True)
class OtherTable:
    """A target to compare with another one.

    :param version: the version to read
    :param options: the options that it was built with
    """

    uri: str
    version: int
    options: ApplyOptions


@dataclass(frozen=True)
class VerifySpec:
    """Check the rows of a target as of one version; nothing is written.

    :param target_version: the version to read
    :param options: the options that it was built with
    :param checks: names of :data:`delta_cdc.core.checks.CHECKS`
    :param source_uri: its source; None if the two are not compared
    :param step: the reload (without keys, the load) that would make it equal to the source at the watermark
    :param current: a target of the other SCD type; None: no comparison
    :param source_keeps_all: the source has every row that was ever appended to it
    :param knows_on_conflict: ``on_conflict`` is the pipeline's value, not a substituted default
    """

    pipeline: str
    run_id: str
    target_uri: str
    target_version: int
    options: ApplyOptions
    checks: tuple[str, ...]
    source_uri: str | None = None
    step: LoadStep | ReloadStep | None = None
    current: OtherTable | None = None
    source_keeps_all: bool = True
    knows_on_conflict: bool = True
    job: Literal["verify"] = "verify"


class _OfOneTable:
    """A maintenance job of one table. Callers fill its request, planning the rest."""

    job: str
    table_uri: str

    @property
    def pipeline(self) -> str:
        """Return a description of the job, for people."""
        return f"{self.job} of {self.table_uri}"


@dataclass(frozen=True)
class OptimizeSpec(_OfOneTable):
    """Rewrite the file layout of one table; no row changes.

    :param where: Spark SQL predicate over partition columns; None is the whole table
    :param zorder_by: columns whose similar values are stored together
    :param full: for a clustered table, also rewrite files that are already clustered
    :param purge: rewrite files with masked rows, to remove these rows
    :param single_driver: see :class:`ApplySpec`
    """

    run_id: str
    table_uri: str
    where: str | None = None
    zorder_by: tuple[str, ...] = ()
    full: bool = False
    purge: bool = False
    single_driver: bool = False
    job: Literal["optimize"] = "optimize"


@dataclass(frozen=True)
class VacuumSpec(_OfOneTable):
    """Delete the files that one table no longer needs.

    :param lite: delete only files that the log records as removed, without listing the table's folder
    :param dry_run: list the files, and delete nothing
    :param single_driver: see :class:`ApplySpec`
    :param properties: planned: table properties to set first
    :param version: planned: the table's newest version
    :param files: planned: the number of its files
    """

    run_id: str
    table_uri: str
    lite: bool = False
    dry_run: bool = False
    single_driver: bool = False
    properties: dict[str, str] = field(default_factory=dict)
    version: int | None = None
    files: int | None = None
    job: Literal["vacuum"] = "vacuum"


@dataclass(frozen=True)
class ExpireSpec(_OfOneTable):
    """Delete a change log's events that are below its allowed lateness and no longer needed; raise the bound.

    :param horizon: the new bound, as Spark casts the sequence to a string; None keeps the current one
    :param dry_run: count the events to delete, and write nothing
    :param single_driver: see :class:`ApplySpec`
    :param table_id: planned: the log's id
    :param readers: planned: the newest seals of its consumers; events that a consumer needs are retained
    :param below: planned: the sequence below which events are deleted; None deletes no events
    :param since: planned: the version of the log that set ``below``: later events below it do not count
    """

    run_id: str
    table_uri: str
    horizon: str | None = None
    dry_run: bool = False
    single_driver: bool = False
    table_id: str | None = None
    readers: tuple[Seal, ...] = ()
    below: str | None = None
    since: int | None = None
    job: Literal["expire"] = "expire"


@dataclass(frozen=True)
class BatchSpec:
    """A batch: several jobs in one application, each with its own result; a failed job stops no other.

    :param parts: specs, but not another batch
    :param parallel: the number of parts that run at once
    """

    run_id: str
    parts: tuple[ApplySpec | IngestSpec | VerifySpec | OptimizeSpec | VacuumSpec | ExpireSpec, ...]
    parallel: int = 1
    job: Literal["batch"] = "batch"


@dataclass(frozen=True)
class EnableSpec:
    """Turn table features on. Exactly one of ``tables`` (paths or names) and ``schema`` is set.

    :param single_driver: see :class:`ApplySpec`
    """

    run_id: str
    tables: tuple[str, ...] = ()
    schema: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    single_driver: bool = False
    job: Literal["enable"] = "enable"


@dataclass(frozen=True)
class TargetName:
    """The catalog name of a target, which need not exist yet.

    :param location: path or URI of the table; "" takes the folder of that name in the schema's location
    :param comment: comment of a table that gets its name here; "" sets none
    :param dry_run: register nothing
    """

    name: str
    location: str = ""
    comment: str = ""
    dry_run: bool = False


@dataclass(frozen=True)
class ResolveSpec:
    """Look up catalog names: the locations and ids of their tables.

    :param tables: the names, each once
    :param targets: those of the names whose tables need not exist
    """

    run_id: str
    tables: tuple[str, ...]
    targets: tuple[TargetName, ...] = ()
    job: Literal["resolve"] = "resolve"


#: Maintenance jobs of one table.
CareSpec = OptimizeSpec | VacuumSpec | ExpireSpec
Spec = (
    ApplySpec
    | ReadSpec
    | CommitSpec
    | IngestSpec
    | VerifySpec
    | CareSpec
    | BatchSpec
    | EnableSpec
    | ResolveSpec
)


@dataclass(frozen=True)
class JobResult:
    """The result that a job reports. It has no watermark, because the target's log records the watermark.

    :param counts: counts known to the job (see docs), summed over its steps
    :param tables: one entry per table, for ``enable``: {table, table_id, location, changed}; for
        ``resolve``: the same without ``changed``; one entry per check, for ``verify``
    :param error: :meth:`DeltaCdcError.to_dict` of the named error, for ``failed``
    :param statements: of a dry run: the statements that would run, one text per step
    :param parts: of a batch: one result per part, in order
    :param then: of an ingest: the result of the apply after it; None if no apply followed
    :param application: the id of the Spark application; "" if unknown
    :param seconds: ``work``: how long the job ran; ``start``: how long its caller waited besides, for the
        application's start and end
    :param reading: of an ingest in a batch that is ``unreached`` or ``failed``: the file that it read alone,
        or "" if it read the whole input; None if it had not begun
    """

    status: JobStatus
    counts: dict[str, int] = field(default_factory=dict)
    message: str = ""
    tables: tuple[dict[str, Any], ...] = ()
    error: dict[str, str] | None = None
    statements: tuple[str, ...] = ()
    parts: tuple[JobResult, ...] = ()
    then: JobResult | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    application: str = ""
    reading: str | None = None

    def to_json(self) -> str:
        """Return the text of ``result.json``."""
        return codec.dumps(self)

    @classmethod
    def from_json(cls, text: str) -> JobResult:
        """Read ``result.json``.

        :raises UnreadableJson: for any other text
        """
        return codec.loads(cls, text)


def to_json(spec: Spec) -> str:
    """Return the spec's canonical JSON (sorted keys)."""
    return codec.dumps({"spec_version": SPEC_VERSION, **codec.encoded(spec)})


def sha256(text: str) -> str:
    """Return the SHA-256 of a text, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(spec: ApplySpec | ReadSpec | CommitSpec | IngestSpec) -> str:
    """Identify a plan: the same for every attempt, different for any other work."""
    if isinstance(spec, CommitSpec):
        return sha256(codec.dumps(spec))
    if isinstance(spec, IngestSpec):
        return sha256(codec.dumps(replace(spec, log_name="", reads_alone=False)))
    return sha256(codec.dumps(_unprepared(spec)))


def _unprepared(spec: ApplySpec | ReadSpec) -> ApplySpec | ReadSpec:
    """Return a spec before file manifests were written, without the target's size and the catalog's names.

    Two plans of the same work may differ in the size: Delta writes it to the log after the commit.
    """
    steps: Any = tuple(
        replace(step, read_ranges=tuple(replace(one, by_manifest=False) for one in step.read_ranges))
        if isinstance(step, ApplyStep | RepairStep)
        else step
        for step in spec.steps
    )
    if isinstance(spec, ApplySpec):
        spec = replace(
            spec,
            target_bytes=None,
            target_shows_writes=True,
            source_name="",
            target_name="",
            target_comment="",
        )
    return replace(spec, steps=steps, manifests_uri="")


def step_fingerprint(spec: ApplySpec | ReadSpec | CommitSpec | IngestSpec, seal_number: int) -> str:
    """Identify one step of a plan by the number of its seal; the text begins with the plan's fingerprint."""
    return f"{fingerprint(spec)}:{seal_number}"


def seal_of(
    spec: ApplySpec | ReadSpec | CommitSpec | IngestSpec,
    step: Step,
    state: PipelineState,
    *,
    kind: StepKind,
    versions: tuple[int, int],
    counts: Mapping[str, int] | None = None,
) -> Seal:
    """Return the seal of a step.

    :param state: the pipeline's state after the step
    :param versions: first and last version that the seal records
    """
    return Seal(
        pipeline=spec.pipeline,
        number=step.seal_number,
        source_uri=spec.source_uri,
        state=state,
        step=SealStep(
            kind,
            *versions,
            fingerprint=step_fingerprint(spec, step.seal_number),
            run_id=spec.run_id,
            planned_on=step.planned_on,
            counts=dict(counts or {}),
        ),
    )


def from_json(text: str) -> Spec:
    """Read a spec.

    :raises SpecUnreadable: the text is not a spec, or a spec of another version
    """
    remedy = "run the job with the delta_cdc of the version that wrote the spec."
    try:
        data: dict[str, Any] = codec.loads(dict[str, Any], text)
        version = data.pop("spec_version", None)
        if version != SPEC_VERSION:
            raise SpecUnreadable(
                f"The spec is of version {version!r}; this engine reads version {SPEC_VERSION}.",
                remedy=remedy,
            )
        spec: Spec = codec.decoded(cast("Any", Spec), data)
    except UnreadableJson as error:
        raise SpecUnreadable(f"Not a job spec: {error}.", remedy=remedy) from error
    return spec


def read(path: str, expected_sha256: str) -> Spec:
    """Read a spec file and check it against the hash from the command line.

    :raises SpecUnreadable: the file has another hash
    """
    text = Path(path).read_text()
    if sha256(text) != expected_sha256:
        raise SpecUnreadable(
            f"The spec file {path} is not the one this job was started with (its SHA-256 differs).",
            remedy="clear the task, so that a new spec is written.",
        )
    return from_json(text)


LINE_PREFIX = "delta_cdc| "
