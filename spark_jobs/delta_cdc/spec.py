"""The JSON contract between the side that plans and the side that runs.

Standard library only: this module travels to the Spark driver. A spec is immutable, versioned, and names
no secret. ``fingerprint()`` identifies the work (not the attempt): a retry of the same plan has the same
fingerprint, which is how a retry recognises its own commit in the target's log.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from delta_cdc.errors import SpecUnreadable
from delta_cdc.watermark import PlannedOn

SPEC_VERSION = 1

#: The job committed, was skipped by Delta because a newer seal exists, lost a race, found the target
#: changed since planning, or failed with a named error.
#: ``planned``: a dry run. ``unreached``: a part of a bundle that has not come to its end.
JobStatus = Literal["committed", "skipped", "conflict", "stale", "failed", "planned", "unreached"]


#: The change queries, as J. Vanlightly's comparison of table formats names them.
Query = Literal["append_only", "upsert", "min_delta", "full_delta"]
#: Where changes are read from: Delta's change data feed; files that were added or removed, rows matched by
#: their row ids; the same, matched by key; files of commits that only add.
Capture = Literal["auto", "change_files", "row_tracking", "snapshot_diff", "added_files"]


#: What the source is: a table whose change feed is read, an append-only table of events, or periodic full
#: copies (one per version, or one per value of a column).
SourceKind = Literal["change_feed", "change_log", "snapshot"]
#: The column of a soft delete's mark.
DELETED_COLUMN = "_deleted"


@dataclass(frozen=True)
class ApplyOptions:
    """What the user said about the rows of the target. Names follow Databricks AUTO CDC.

    :param keys: key columns (of the projected rows); empty only with ``insert_only``
    :param source_kind: see :data:`SourceKind`
    :param sequence_by: ``change_feed``, ``snapshot``: what start and end hold (type 2): ``_commit_version``
        (default), ``_commit_timestamp`` or a Spark SQL expression. ``change_log``: the order of events: an
        expression, or several, compared one after the other
    :param delete_sequence: same, for deletes of a feed; required where ``sequence_by`` is an expression
    :param where: Spark SQL predicate on states: a row that leaves it is a delete, one that enters an insert.
        Of events: which of them count, deletes among them
    :param select: Spark SQL projections, for instance ``("id", "upper(name) AS name")``
    :param apply_as_deletes: Spark SQL predicate over source columns: such an event is a delete; of a feed,
        such a state is none
    :param apply_as_truncates: ``change_log``: such an event, without a key, deletes all that is below it
    :param column_list: of the projected columns, those that land; keys always do
    :param except_column_list: of the projected columns, those that do not land
    :param ignore_null_updates: a NULL in an upsert keeps what was there
    :param ignore_null_updates_column_list: only in these columns, or leaves of structs (``a.b``)
    :param ignore_null_updates_except_column_list: in all but these
    :param columns_to_update: source column with an array of the columns that the event carries; NULL is all
    :param on_tie: two different events of one key at one sequence: ``fail``, ``quarantine``, or ``last_by``
    :param tie_order: ``last_by``: columns of the source; the greatest wins
    :param on_invalid: an event without key or sequence: ``fail`` or ``quarantine``
    :param on_late: an event below the lateness horizon of its log: ``fail`` or ``discard``
    :param delete_mode: ``hard``, or ``soft`` (type 1): a deleted row stays, marked in :data:`DELETED_COLUMN`
    :param snapshot_version_column: ``snapshot``: each value of it, ascending, is one full copy
    :param partition_by: partition column -> Spark SQL expression, or None for an existing column
    :param cluster_by: clustering columns; None means the first four keys of a clusterable type, ``()`` none
    """

    keys: tuple[str, ...] = ()
    source_kind: SourceKind = "change_feed"
    stored_as_scd_type: int = 1
    sequence_by: str | tuple[str, ...] = "_commit_version"
    delete_sequence: str | None = None
    where: str | None = None
    select: tuple[str, ...] = ()
    track_history_column_list: tuple[str, ...] | None = None
    track_history_except_column_list: tuple[str, ...] | None = None
    insert_only: bool = False
    start_column: str = "__START_AT"
    end_column: str = "__END_AT"
    partition_by: dict[str, str | None] = field(default_factory=dict)
    cluster_by: tuple[str, ...] | None = None
    target_properties: dict[str, str] = field(default_factory=dict)
    publish_changes: bool = False
    schema_evolution: str = "additive"
    apply_as_deletes: str | None = None
    apply_as_truncates: str | None = None
    column_list: tuple[str, ...] | None = None
    except_column_list: tuple[str, ...] | None = None
    ignore_null_updates: bool = False
    ignore_null_updates_column_list: tuple[str, ...] | None = None
    ignore_null_updates_except_column_list: tuple[str, ...] | None = None
    columns_to_update: str | None = None
    on_tie: Literal["fail", "quarantine", "last_by"] = "fail"
    tie_order: tuple[str, ...] = ()
    on_invalid: Literal["fail", "quarantine"] = "fail"
    on_late: Literal["fail", "discard"] = "fail"
    delete_mode: Literal["hard", "soft"] = "hard"
    snapshot_version_column: str | None = None

    @property
    def sequences(self) -> tuple[str, ...]:
        """Return the expressions of ``sequence_by``, one or several."""
        return (self.sequence_by,) if isinstance(self.sequence_by, str) else self.sequence_by

    @property
    def is_partial(self) -> bool:
        """Return whether an event may carry some of the columns only."""
        return (
            self.ignore_null_updates
            or self.ignore_null_updates_column_list is not None
            or self.ignore_null_updates_except_column_list is not None
            or self.columns_to_update is not None
        )

    @property
    def quarantines(self) -> bool:
        """Return whether there may be a quarantine table."""
        return "quarantine" in (self.on_tie, self.on_invalid)

    @property
    def takes_events(self) -> bool:
        """Return whether rows of the source are events, not states before and after a commit."""
        return self.source_kind == "change_log" or self.snapshot_version_column is not None


@dataclass(frozen=True)
class Staging:
    """A sealed batch of change rows: the table, the version that carries it, and what kind it is.

    :param kind: ``changes`` (rows of the change feed) or ``snapshot`` (a whole snapshot, as inserts)
    """

    uri: str
    version: int
    kind: Literal["changes", "snapshot"]


@dataclass(frozen=True)
class QueryOptions:
    """What is asked of the changes of a range.

    :param query: which of the four change queries
    :param keys: columns that identify a row; the net queries need them
    :param capture: how the changes are read; ``auto`` decides per segment from the log
    :param raw: ``full_delta``: exactly what the change feed holds
    :param where: Spark SQL predicate on states: a row that leaves it is a delete, one that enters an insert
    :param select: Spark SQL projections of states
    :param on_change_commit: ``added_files``: what to do about a commit that removes rows
    """

    query: Query = "full_delta"
    keys: tuple[str, ...] = ()
    capture: Capture = "auto"
    raw: bool = False
    where: str | None = None
    select: tuple[str, ...] = ()
    on_change_commit: Literal["fail", "skip"] = "fail"

    @property
    def is_net(self) -> bool:
        """Return whether only the net effect of a range counts, not what happened between its ends."""
        return self.query in ("upsert", "min_delta")


@dataclass(frozen=True)
class Segment:
    """Versions of a range (both ends inclusive) that are read in one way.

    :param capture: how the changes are read; see :data:`Capture`
    :param reason: why this way, for people
    :param size: bytes that reading it takes, by the log
    :param net: only the two ends of the segment are read: its rows are the net effect
    :param compare: a row that left and came back unchanged in one version is no change, and is looked for
    :param timestamps: captures that read files: (version, epoch milliseconds) of every commit of the segment
        that changes data, ascending
    :param sliced: it is read through its slice (:mod:`delta_cdc.log.slices`), not by Delta's reader of the
        change feed; set where slices are written, and says nothing about the work
    """

    starting_version: int
    ending_version: int
    capture: Literal["change_files", "row_tracking", "snapshot_diff", "added_files"]
    reason: str
    size: int
    net: bool = False
    compare: bool = False
    timestamps: tuple[tuple[int, int], ...] = ()
    sliced: bool = False

    @property
    def needs_slice(self) -> bool:
        """Return whether the rows can be read through a slice only (:mod:`delta_cdc.log.slices`)."""
        return self.capture != "change_files"


@dataclass(frozen=True)
class Step:
    """One sealed commit.

    :param kind: ``load`` (a snapshot of ``ending_version``; -1 is before all rows), ``declare`` (no rows:
        what the target holds counts as that snapshot; makes an empty target where there is none), ``apply``
        (the changes of the range), ``reseal`` (no rows: the same state under a new seal) or ``adopt`` (no
        rows: the state of another pipeline of this target under a seal of this one; with ``successor`` the
        closing seal of that other pipeline), ``reload`` (the difference between the target and the source as
        of ``ending_version``; a change log: all keys are cut again), ``reset`` (a load in the place of all
        rows) or ``repair`` (the same difference, for some keys). In staging also: ``answer`` (the query,
        computed over the change rows that are staged, takes their place), ``complete`` (no rows: what is
        staged is the batch) and ``commit`` (no rows: the batch has arrived where it was to go). In a change
        log: ``ingest`` (events of files or of a topic) and ``replay`` (records that were in quarantine);
        there the number of the seal stands for the version
    :param applied_from: what the seal will say; see :class:`delta_cdc.watermark.Seal`
    :param planned_on: the target as planned; None = no table yet, or made by the step before
    :param source_columns: the source's columns as of ``ending_version``
    :param segments: ``apply``: what is read, in order. It begins with the first version that changes data:
        commits before it may lie outside retention, or before the feed was turned on
    :param configuration: what the seal before this step says of it; of a step without rows, what its own seal
        is to say
    :param pipeline: under which name the seal stands; None is the spec's
    :param successor: the pipeline that goes on where this seal ends the other one
    :param watermark: what the seal proves; None is ``ending_version``. A repair does not move it: there
        ``starting_version`` to ``ending_version`` is the range whose keys are repaired
    :param keys_where: ``repair``: Spark SQL predicate over the key columns, instead of a range
    :param replayed: ``repair``: the keys are those in the quarantine table
    :param horizons: change log: (version, sequence) ascending: events that arrived after that version must
        not lie below that sequence, the lateness horizon
    :param known_horizons: those that the seal before this step knows: they began earlier than a range tells
    :param loaded_version: the version that the target was loaded from, as the seal before this step has it
    :param truncate_sequences: change log: the newest truncates applied before, as the seal has them
    """

    kind: Literal[
        "load",
        "declare",
        "apply",
        "reseal",
        "adopt",
        "reload",
        "reset",
        "repair",
        "answer",
        "complete",
        "commit",
        "ingest",
        "replay",
    ]
    starting_version: int
    ending_version: int
    seal_number: int
    applied_from: int
    source_commit_hash: str
    source_columns: tuple[str, ...]
    planned_on: PlannedOn | None = None
    staging: Staging | None = None
    highest_sequence: str | None = None
    segments: tuple[Segment, ...] = ()
    configuration: dict[str, Any] = field(default_factory=dict)
    pipeline: str | None = None
    successor: str | None = None
    watermark: int | None = None
    keys_where: str | None = None
    replayed: bool = False
    horizons: tuple[tuple[int, str], ...] = ()
    known_horizons: tuple[tuple[int, str], ...] = ()
    loaded_version: int = -1
    truncate_sequences: tuple[str, ...] = ()

    @property
    def at(self) -> int:
        """Return the version of the source that the target stands for after this step."""
        return self.ending_version if self.watermark is None else self.watermark

    @property
    def is_empty(self) -> bool:
        """Return whether a load or declaration brings no rows."""
        return self.kind == "declare" or self.ending_version < 0

    @property
    def first_read(self) -> int:
        """Return the version from which changes are read."""
        return self.segments[0].starting_version if self.segments else self.starting_version


@dataclass(frozen=True)
class ApplySpec:
    """Move changes of ``source`` into ``target``: one or more sealed commits, in order.

    :param single_driver: the user vouches that only one Spark driver at a time writes to the tables; needed
        on S3 without a log store for several writers
    :param slices_uri: folder of the slices that segments are read through; says nothing about the work
    :param quarantine_uri: side table for what cannot be applied; "" where nothing is quarantined
    :param dry_run: find out what would be written, and write nothing
    """

    pipeline: str
    run_id: str
    source_uri: str
    source_table_id: str
    target_uri: str
    options: ApplyOptions
    steps: tuple[Step, ...]
    single_driver: bool = False
    slices_uri: str = ""
    quarantine_uri: str = ""
    dry_run: bool = False
    job: str = "apply"


@dataclass(frozen=True)
class ReadSpec:
    """Write one batch, the changes of a range or a snapshot, into a staging table: a sealed commit per step.

    The last step completes the batch.

    :param starting_version: of the batch; an earlier try may have staged its beginning
    :param continues: the first step adds to what is staged; else it takes its place
    :param plain: change rows are staged as they are read, for a step that computes the query over all of them
    :param configuration: what every seal of the batch says of it
    :param output_uri: the batch's own folder, to which it is written as files, too; "" is none
    """

    pipeline: str
    run_id: str
    source_uri: str
    source_table_id: str
    staging_uri: str
    steps: tuple[Step, ...]
    kind: Literal["changes", "snapshot"]
    starting_version: int
    continues: bool = False
    plain: bool = False
    single_driver: bool = False
    slices_uri: str = ""
    options: QueryOptions = QueryOptions()
    configuration: dict[str, Any] = field(default_factory=dict)
    output_uri: str = ""
    output_format: Literal["parquet", "json"] = "parquet"
    job: str = "read"


@dataclass(frozen=True)
class CommitSpec:
    """Seal the staging table: everything up to some version has arrived where it was to go."""

    pipeline: str
    run_id: str
    source_uri: str
    source_table_id: str
    staging_uri: str
    step: Step
    single_driver: bool = False
    job: str = "commit"

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the one step, as other specs have theirs."""
        return (self.step,)


@dataclass(frozen=True)
class IngestOptions:
    """What an external change set looks like, and what its events mean.

    :param source_kind: ``files`` or ``kafka``
    :param format: of a file: ``json`` (one object per line), ``csv`` or ``parquet``; of a topic's values:
        ``json``
    :param adapter: ``plain``, ``debezium``, ``dms``, ``goldengate``, or the dotted name of a function
        (:mod:`delta_cdc.ingest.shape`)
    :param adapter_options: what the adapter is told
    :param keys: key columns of the events; empty only with ``insert_only``
    :param schema: the events' columns as Spark SQL DDL; None takes those of the log, and those that the
        records themselves show
    :param format_options: options of Spark's reader, for instance ``{"sep": ";"}`` for CSV
    :param insert_only: every record is a new row; no keys
    :param on_invalid: a record that cannot be decoded, or has no key or sequence: ``quarantine`` or ``fail``
    :param cluster_by: clustering columns of a log that is made here; None takes the first keys
    :param log_properties: its table properties
    """

    source_kind: Literal["files", "kafka"] = "files"
    format: Literal["json", "csv", "parquet"] = "json"
    adapter: str = "plain"
    adapter_options: dict[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    schema: str | None = None
    format_options: dict[str, str] = field(default_factory=dict)
    insert_only: bool = False
    on_invalid: Literal["quarantine", "fail"] = "quarantine"
    cluster_by: tuple[str, ...] | None = None
    log_properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceFile:
    """One file of a batch.

    :param uri: where it is, as Spark names it, without any escaping of its own
    :param size: bytes
    :param modified: epoch milliseconds
    :param etag: the store's own fingerprint; "" where there is none
    :param again: it was taken before, or may have been: only what the log does not hold of it is new
    :param columns: Parquet: the file's own columns, in order; () where unknown
    :param unreadable: why it cannot be read as a whole; "" where it can
    :param missing: it was recorded by a try that died, and has gone since
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

    :param starting_offset: the first one
    :param ending_offset: the one after the last
    :param again: some of them may have been taken before: only what the log does not hold is new
    """

    topic: str
    partition: int
    starting_offset: int
    ending_offset: int
    again: bool = False


@dataclass(frozen=True)
class IngestSpec:
    """Append the events of one batch to a change log: the record of what was taken first, then the events.

    :param source_uri: where records come from: the path, prefix or ``kafka://<servers>/<topics>``
    :param log_uri: the change log
    :param ingested_uri: side table: which files and offsets each batch took
    :param quarantine_uri: side table: records that are no events
    :param recorded: the side table has this batch already: a try before this one wrote it
    :param horizon: the lateness horizon of the log, as its property says; None is none
    :param then: what is to be applied from the log after it, in the same application
        (:func:`delta_cdc.ingest.then.described`); None is nothing
    """

    pipeline: str
    run_id: str
    source_uri: str
    log_uri: str
    ingested_uri: str
    quarantine_uri: str
    options: IngestOptions
    step: Step
    files: tuple[SourceFile, ...] = ()
    offsets: tuple[OffsetRange, ...] = ()
    recorded: bool = False
    horizon: str | None = None
    single_driver: bool = False
    then: dict[str, Any] | None = None
    job: str = "ingest"

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the one step, as other specs have theirs."""
        return (self.step,)


@dataclass(frozen=True)
class OtherTable:
    """A target that is compared with another one.

    :param version: as of which it is read
    :param options: those that it was built with
    """

    uri: str
    version: int
    options: ApplyOptions


@dataclass(frozen=True)
class VerifySpec:
    """Look at the rows of a target as of one version; nothing is written.

    :param target_version: as of which it is read
    :param options: those that it was built with
    :param checks: names of :data:`delta_cdc.verify.checks.CHECKS`
    :param source: the reload that would bring it to the source as of the watermark; None where the two are
        not compared
    :param current: a target of the other SCD type; None where there is none to compare with
    :param source_keeps_all: the source has every row that was ever appended to it
    :param ties_told: ``on_tie`` is what the pipeline has, not a default in the place of what nobody told
    """

    pipeline: str
    run_id: str
    target_uri: str
    target_version: int
    options: ApplyOptions
    checks: tuple[str, ...]
    source: ApplySpec | None = None
    current: OtherTable | None = None
    source_keeps_all: bool = True
    ties_told: bool = True
    job: str = "verify"


@dataclass(frozen=True)
class OptimizeSpec:
    """Lay the files of one table out anew; no row changes.

    :param where: Spark SQL predicate over partition columns; None is the whole table
    :param zorder_by: columns along which rows are put together
    :param full: of a clustered table also what is clustered already
    :param purge: rewrite the files with masked rows, without these
    :param single_driver: see :class:`ApplySpec`
    """

    run_id: str
    table_uri: str
    where: str | None = None
    zorder_by: tuple[str, ...] = ()
    full: bool = False
    purge: bool = False
    single_driver: bool = False
    job: str = "optimize"

    @property
    def pipeline(self) -> str:
        """Return what is done, for people."""
        return f"{self.job} of {self.table_uri}"


@dataclass(frozen=True)
class VacuumSpec:
    """Delete the files of one table that it does not need any more.

    :param properties: are set first
    :param lite: only files that the log says were removed, without a listing of the table's folder
    :param files: how many files there are about; None is unknown
    :param dry_run: say which, and delete nothing
    :param single_driver: see :class:`ApplySpec`
    """

    run_id: str
    table_uri: str
    properties: dict[str, str] = field(default_factory=dict)
    lite: bool = False
    files: int | None = None
    dry_run: bool = False
    single_driver: bool = False
    job: str = "vacuum"

    @property
    def pipeline(self) -> str:
        """Return what is done, for people."""
        return f"{self.job} of {self.table_uri}"


@dataclass(frozen=True)
class Reader:
    """How a consumer of a change log reads it, as its seal says.

    :param horizons: those that it knows, see :class:`delta_cdc.watermark.Seal`
    :param highest_sequence: greatest sequence that it has applied, as text
    """

    pipeline: str
    options: ApplyOptions
    horizons: tuple[tuple[int, str], ...] = ()
    highest_sequence: str | None = None


@dataclass(frozen=True)
class ExpireSpec:
    """Delete the events of a change log that lie behind its horizon and that nobody needs; raise the horizon.

    :param table_id: the log as it was planned on
    :param readers: its consumers; what one of them needs, stays
    :param below: the horizon behind which events are deleted; None where none are
    :param since: the version of the log that set it: what came later and lies below it does not count
    :param horizon: the new one; None leaves what is there
    :param dry_run: count what would be deleted, and write nothing
    :param single_driver: see :class:`ApplySpec`
    """

    run_id: str
    table_uri: str
    table_id: str
    readers: tuple[Reader, ...]
    below: str | None = None
    since: int = -1
    horizon: str | None = None
    dry_run: bool = False
    single_driver: bool = False
    job: str = "expire"

    @property
    def pipeline(self) -> str:
        """Return what is done, for people."""
        return f"{self.job} of {self.table_uri}"


@dataclass(frozen=True)
class BundleSpec:
    """Several jobs in one application, each with a result of its own; one that fails stops no other.

    :param parts: specs, none of them a bundle
    :param parallel: how many of them run at the same moment
    """

    run_id: str
    parts: tuple[ApplySpec | IngestSpec | VerifySpec | OptimizeSpec | VacuumSpec | ExpireSpec, ...]
    parallel: int = 1
    job: str = "bundle"


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
    job: str = "enable"


@dataclass(frozen=True)
class ResolveSpec:
    """Look catalog names up: where their tables lie, and which tables they are."""

    run_id: str
    tables: tuple[str, ...]
    job: str = "resolve"


#: What takes care of one table.
CareSpec = OptimizeSpec | VacuumSpec | ExpireSpec
Spec = (
    ApplySpec
    | ReadSpec
    | CommitSpec
    | IngestSpec
    | VerifySpec
    | CareSpec
    | BundleSpec
    | EnableSpec
    | ResolveSpec
)


@dataclass(frozen=True)
class JobResult:
    """What a job says about itself. The proof is never here: it is in the target's log.

    :param counts: counts known to the job (see docs), summed over its steps
    :param tables: one entry per table, for ``enable``: {table, table_id, location, changed}; for
        ``resolve``: the same without ``changed``; one entry per check, for ``verify``
    :param error: :meth:`DeltaCdcError.to_dict` of the named error, for ``failed``
    :param statements: of a dry run: what would be run, one text per step
    :param parts: of a bundle: one result per part, in order
    :param then: of an ingest: what became of the apply after it; None where there was none
    """

    status: JobStatus
    counts: dict[str, int] = field(default_factory=dict)
    message: str = ""
    tables: tuple[dict[str, Any], ...] = ()
    error: dict[str, str] | None = None
    statements: tuple[str, ...] = ()
    parts: tuple[JobResult, ...] = ()
    then: JobResult | None = None

    def to_json(self) -> str:
        """Return the text of ``result.json``."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> JobResult:
        """Read ``result.json``."""
        return cls._built(json.loads(text))

    @classmethod
    def _built(cls, data: dict[str, Any]) -> JobResult:
        then = data.get("then")
        return cls(
            **{
                **data,
                "tables": tuple(data.get("tables", ())),
                "statements": tuple(data.get("statements", ())),
                "parts": tuple(cls._built(part) for part in data.get("parts", ())),
                "then": cls._built(then) if then else None,
            }
        )


def to_json(spec: Spec) -> str:
    """Return the spec's canonical JSON (sorted keys)."""
    return json.dumps({"spec_version": SPEC_VERSION, **asdict(spec)}, sort_keys=True)


def sha256(text: str) -> str:
    """Return the SHA-256 of a text, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(spec: ApplySpec | ReadSpec | CommitSpec | IngestSpec) -> str:
    """Identify a plan: the same in every attempt at it, different for any other work."""
    work = spec if isinstance(spec, CommitSpec | IngestSpec) else _unprepared(spec)
    return sha256(json.dumps(asdict(work), sort_keys=True))


def _unprepared(spec: ApplySpec | ReadSpec) -> ApplySpec | ReadSpec:
    """Return a spec as it was planned, before slices were written."""
    steps = tuple(
        replace(step, segments=tuple(replace(one, sliced=False) for one in step.segments))
        for step in spec.steps
    )
    return replace(spec, steps=steps, slices_uri="")


def step_fingerprint(spec: ApplySpec | ReadSpec | CommitSpec | IngestSpec, seal_number: int) -> str:
    """Identify one step of a plan, by the number of its seal; it begins with the plan's fingerprint."""
    return f"{fingerprint(spec)}:{seal_number}"


def from_json(text: str) -> Spec:
    """Read a spec.

    :raises SpecUnreadable: for text that is no spec, or a spec of another version
    """
    remedy = "run the job with the delta_cdc of the version that wrote the spec."
    try:
        data = json.loads(text)
        version, _ = data.pop("spec_version"), data["job"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpecUnreadable(f"Not a job spec: {error!r}.", remedy=remedy) from error
    if version != SPEC_VERSION:
        raise SpecUnreadable(
            f"The spec is of version {version!r}; this engine reads version {SPEC_VERSION}.", remedy=remedy
        )
    try:
        spec: Spec = _built(data)
    except (KeyError, TypeError) as error:
        raise SpecUnreadable(f"The spec has unknown or missing fields: {error}.", remedy=remedy) from error
    return spec


def read(path: str, expected_sha256: str) -> Spec:
    """Read a spec file and check it against the hash from the command line.

    :raises SpecUnreadable: where the file's hash is another one
    """
    text = Path(path).read_text()
    if sha256(text) != expected_sha256:
        raise SpecUnreadable(
            f"The spec file {path} is not the one this job was started with (its SHA-256 differs).",
            remedy="clear the task, so that a new spec is written.",
        )
    return from_json(text)


def _tupled(cls: type, data: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no tuples: turn the lists of tuple-typed fields back."""
    names = {f.name for f in fields(cls)}
    unknown = set(data) - names
    if unknown:
        raise TypeError(f"unknown: {sorted(unknown)}")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}


def _step(data: dict[str, Any]) -> Step:
    step = Step(**_tupled(Step, data))
    planned, staging = data.get("planned_on"), data.get("staging")
    return replace(
        step,
        planned_on=PlannedOn(**planned) if planned else None,
        staging=Staging(**staging) if staging else None,
        segments=tuple(_segment(segment) for segment in data.get("segments", ())),
        horizons=_pairs(data.get("horizons", ())),
        known_horizons=_pairs(data.get("known_horizons", ())),
    )


def _pairs(data: Any) -> tuple[tuple[int, str], ...]:
    return tuple((version, text) for version, text in data)


def _segment(data: dict[str, Any]) -> Segment:
    times = tuple((version, moment) for version, moment in data.get("timestamps", ()))
    return replace(Segment(**_tupled(Segment, data)), timestamps=times)


def _apply(data: dict[str, Any]) -> ApplySpec:
    spec = ApplySpec(**_tupled(ApplySpec, data))
    options = ApplyOptions(**_tupled(ApplyOptions, data["options"]))
    return replace(spec, options=options, steps=tuple(_step(step) for step in data["steps"]))


def _read(data: dict[str, Any]) -> ReadSpec:
    options = QueryOptions(**_tupled(QueryOptions, data.get("options", {})))
    steps = tuple(_step(step) for step in data["steps"])
    return replace(ReadSpec(**_tupled(ReadSpec, data)), steps=steps, options=options)


def _commit(data: dict[str, Any]) -> CommitSpec:
    return replace(CommitSpec(**_tupled(CommitSpec, data)), step=_step(data["step"]))


def _ingest(data: dict[str, Any]) -> IngestSpec:
    return replace(
        IngestSpec(**_tupled(IngestSpec, data)),
        options=IngestOptions(**_tupled(IngestOptions, data["options"])),
        step=_step(data["step"]),
        files=tuple(SourceFile(**_tupled(SourceFile, file)) for file in data.get("files", ())),
        offsets=tuple(OffsetRange(**_tupled(OffsetRange, part)) for part in data.get("offsets", ())),
    )


def _verify(data: dict[str, Any]) -> VerifySpec:
    source, current = data.get("source"), data.get("current")
    return replace(
        VerifySpec(**_tupled(VerifySpec, data)),
        options=ApplyOptions(**_tupled(ApplyOptions, data["options"])),
        source=_apply(source) if source else None,
        current=_other(current) if current else None,
    )


def _expire(data: dict[str, Any]) -> ExpireSpec:
    return replace(
        ExpireSpec(**_tupled(ExpireSpec, data)), readers=tuple(_reader(one) for one in data["readers"])
    )


def _reader(data: dict[str, Any]) -> Reader:
    return replace(
        Reader(**_tupled(Reader, data)),
        options=ApplyOptions(**_tupled(ApplyOptions, data["options"])),
        horizons=_pairs(data.get("horizons", ())),
    )


def _other(data: dict[str, Any]) -> OtherTable:
    options = ApplyOptions(**_tupled(ApplyOptions, data["options"]))
    return replace(OtherTable(**_tupled(OtherTable, data)), options=options)


def _bundle(data: dict[str, Any]) -> BundleSpec:
    bundle = BundleSpec(**_tupled(BundleSpec, data))
    return replace(bundle, parts=tuple(_built(part) for part in data["parts"]))


def _built(data: dict[str, Any]) -> Any:
    return _BUILDERS[data["job"]](data)


_BUILDERS: dict[str, Any] = {
    "apply": _apply,
    "read": _read,
    "commit": _commit,
    "ingest": _ingest,
    "verify": _verify,
    "optimize": lambda data: OptimizeSpec(**_tupled(OptimizeSpec, data)),
    "vacuum": lambda data: VacuumSpec(**_tupled(VacuumSpec, data)),
    "expire": _expire,
    "bundle": _bundle,
    "enable": lambda data: EnableSpec(**_tupled(EnableSpec, data)),
    "resolve": lambda data: ResolveSpec(**_tupled(ResolveSpec, data)),
}
