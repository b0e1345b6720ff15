"""The JSON contract between the planning side and the running side.

Standard library only: this module travels to the Spark driver. A spec is immutable and versioned, and
contains no secret. ``fingerprint()`` identifies the work (not the attempt): a retry of the same plan has the
same fingerprint, so it recognises its own commit in the target's log.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from delta_cdc.core import codec
from delta_cdc.core.codec import OUTSIDE_IDENTITY, UnreadableJson
from delta_cdc.core.erasure import ErasedKeys
from delta_cdc.core.errors import SpecUnreadable
from delta_cdc.core.guard import Guard
from delta_cdc.core.options import ApplyOptions, IngestOptions, QueryOptions
from delta_cdc.core.requests import ApplyRequest  # noqa: TC001 - the codec reads hints
from delta_cdc.core.shadow import Names, Pair  # noqa: TC001
from delta_cdc.core.steps import Step, ranges_of
from delta_cdc.core.uris import is_name, spark_uri
from delta_cdc.core.watermark import Seal, SealStep, TableVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta_cdc.core.watermark import PipelineState, StepKind

SPEC_VERSION = 1

#: The job committed; Delta skipped it because a newer seal exists; it lost a race; the target changed since
#: planning; or it failed with a named error.
#: ``planned``: a dry run. ``unreached``: a part of a batch that has not finished.
JobStatus = Literal["committed", "skipped", "conflict", "stale", "failed", "planned", "unreached"]


#: Assumed size of a topic's record, in bytes.
BYTES_OF_A_RECORD = 1_024
#: Assumed bytes of text that become one byte of Parquet; and names of files that hold several in one byte.
#: Measured: an ingest and apply of 260 MB of JSON takes as much CPU time with either start of the JVM, one of
#: 65 MB two thirds of it with the quick one (docs/contributing/benchmarks.md).
TEXT, COMPRESSED = 4, (".gz", ".zst", ".bz2", ".xz", ".lz4", ".snappy", ".deflate", ".zip")


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What every job has. Its methods answer what other modules ask of a job of any type.

    :param pipeline: "" for a job of tables, without a pipeline
    :param single_driver: the user guarantees that only one Spark driver at a time writes to the tables;
        needed on S3 without a log store for several writers
    :param steps: the sealed commits to make, in order; () for a job without a seal
    :param job: the name of the type
    """

    run_id: str
    pipeline: str = ""
    single_driver: bool = False
    steps: tuple[Step, ...] = ()
    job: str

    @property
    def name(self) -> str:
        """Return what the job is called in a log: its pipeline, or what it does to which table."""
        return self.pipeline

    @property
    def place(self) -> str:
        """Return the tables and versions of the job, for errors that do not name them."""
        return self.name

    @property
    def each(self) -> tuple[Spec, ...]:
        """Return the jobs to run: the parts of a batch, or this one."""
        return (self,)

    @property
    def locations(self) -> list[str]:
        """Return the locations to read and write: the job's Spark starts with access to them."""
        return []

    @property
    def catalog_names(self) -> list[str]:
        """Return the catalog names that the job compares with the locations that it was planned for."""
        return []

    @property
    def whole_tables(self) -> list[tuple[str, int | None]]:
        """Return the tables that the job reads as a whole: location and version; None is the newest."""
        return []

    @property
    def input_bytes(self) -> int | None:
        """Return the bytes that the job reads, and may write again, besides whole tables; None if unknown.

        They are bytes of Parquet: the work of Spark, not that of Python, which decodes records.
        """
        return 0

    @property
    def reads_topics(self) -> bool:
        """Return whether the job reads topics of Kafka."""
        return False

    @property
    def reads_alone(self) -> bool:
        """Return whether each of the job's files is first read alone."""
        return False

    @property
    def after(self) -> tuple[ApplyRequest, ...]:
        """Return the applies that follow in the same application."""
        return ()


@dataclass(frozen=True, kw_only=True)
class SealedSpec(Spec, ABC):
    """A job that moves rows of a source into a table: its steps are sealed commits of this table.

    :param manifests_uri: folder of the file manifests of ranges; "" if none has a manifest
    """

    source_uri: str
    manifests_uri: str = field(default="", metadata=OUTSIDE_IDENTITY)

    @property
    @abstractmethod
    def into(self) -> str:
        """Return the table that the steps write."""

    @property
    def place(self) -> str:
        """Return source, versions and table."""
        first, last = self.steps[0].starting_version, self.steps[-1].ending_version
        return f"{self.source_uri}, versions {first}-{last}, into {self.into}"

    @property
    def locations(self) -> list[str]:
        """Return the source, if rows of it are read, the table, and the staged batches to read."""
        source = [self.source_uri] if any(step.read.has_rows for step in self.steps) else []
        staged = [step.read.staging.uri for step in self.steps if step.read.staging is not None]
        return [*source, self.into, *staged]

    @property
    def whole_tables(self) -> list[tuple[str, int | None]]:
        """Return the versions of the source and of staged batches that steps read as a whole."""
        tables: list[tuple[str, int | None]] = []
        for step in self.steps:
            staging = step.read.staging
            if staging is not None:
                tables.append((staging.uri, staging.version))
            elif step.read.reads_source and not step.read.ranges and not step.read.is_empty:
                tables.append((self.source_uri, step.ending_version))
        return tables

    @property
    def input_bytes(self) -> int | None:
        """Return the bytes of the ranges that the steps read."""
        return sum(read_range.size for read_range in ranges_of(self.steps))


@dataclass(frozen=True, kw_only=True)
class ApplySpec(SealedSpec):
    """Move changes of ``source`` into ``target``.

    :param quarantine_uri: side table for events that cannot be applied; "" if nothing is quarantined
    :param dry_run: compute what would be written, and write nothing
    :param may_lack_layout: the target may lack its clustering or a property, because a crash followed its
        creation: the job checks it after the commit
    :param target_bytes: size of the target's files, as its log recorded it at planning time; None if the log
        did not. It only decides how the job shuffles and writes. Two plans of the same work may differ in it:
        Delta writes it to the log after the commit
    :param target_shows_writes: readers of the target can see that a row was written again with equal values,
        because it has a change feed or tracks its rows
    :param source_name: catalog name of the source, "" if it was given by its location
    :param target_name: the same of the target; the job registers a target that it creates
    :param target_comment: comment of a table that gets its name here
    :param guard: limits beyond which a step commits nothing
    :param may_end_early: options may end the range of a step before the newest version of the source
    :param erased: the erased keys of source and target, whose rows the job does not write
    :param shadows: the pairs of this pipeline, which the job compares after its commits
    """

    target_uri: str
    options: ApplyOptions
    quarantine_uri: str = ""
    dry_run: bool = False
    may_lack_layout: bool = True
    target_bytes: int | None = field(default=None, metadata=OUTSIDE_IDENTITY)
    target_shows_writes: bool = field(default=True, metadata=OUTSIDE_IDENTITY)
    source_name: str = field(default="", metadata=OUTSIDE_IDENTITY)
    target_name: str = field(default="", metadata=OUTSIDE_IDENTITY)
    target_comment: str = field(default="", metadata=OUTSIDE_IDENTITY)
    guard: Guard = field(default=Guard(), metadata=OUTSIDE_IDENTITY)
    may_end_early: bool = field(default=False, metadata=OUTSIDE_IDENTITY)
    erased: ErasedKeys = field(default=ErasedKeys(), metadata=OUTSIDE_IDENTITY)
    shadows: tuple[Pair, ...] = field(default=(), metadata=OUTSIDE_IDENTITY)
    job: Literal["apply"] = "apply"

    @property
    def into(self) -> str:
        """Return the target."""
        return self.target_uri

    @property
    def locations(self) -> list[str]:
        """Return also the targets to compare; the job looks up catalog names."""
        compared = [target for pair in self.shadows for target in (pair.original_target, pair.shadow_target)]
        return [*super().locations, *[spark_uri(target) for target in compared if not is_name(target)]]

    @property
    def whole_tables(self) -> list[tuple[str, int | None]]:
        """Return also the target, once for each step that may read all of it, if its size is not known."""
        tables = super().whole_tables
        return (
            tables
            if self.target_bytes is not None
            else [*tables, *[(self.target_uri, version) for version in self._merges]]
        )

    @property
    def input_bytes(self) -> int | None:
        """Return the bytes of the ranges, and those of the target for each step that may read all of it."""
        return (super().input_bytes or 0) + (self.target_bytes or 0) * len(self._merges)

    @property
    def _merges(self) -> list[int]:
        """Return the version of the target that was planned on, once for each step that reads it."""
        if self.options.writes_events:
            return []
        steps = [step for step in self.steps if not step.read.is_empty]
        planned_on = next((step.planned_on for step in steps if step.planned_on is not None), None)
        return [] if planned_on is None else [planned_on.version] * len(steps)

    @property
    def catalog_names(self) -> list[str]:
        """Return the names of source and target."""
        return [name for name in (self.source_name, self.target_name) if name]


@dataclass(frozen=True, kw_only=True)
class ReadSpec(SealedSpec):
    """Write one batch, the changes of a range or a snapshot, to a staging table: one sealed commit per step.

    The last step completes the batch. A single step of the kind ``commit`` records that the batch was
    delivered.

    :param starting_version: first version of the batch; an earlier attempt may have staged its beginning
    :param applied_from: first version of the source that the target holds, or will hold with this batch
    :param continues: the first step adds to the staged rows; otherwise it replaces them
    :param plain: stage change rows unchanged, for a later step that computes the query over all rows
    :param configuration: the record of the batch in each of its seals
    """

    staging_uri: str
    kind: Literal["changes", "snapshot"]
    starting_version: int
    applied_from: int
    continues: bool = False
    plain: bool = False
    options: QueryOptions = field(default_factory=QueryOptions)
    configuration: dict[str, Any] = field(default_factory=dict)
    job: Literal["read"] = "read"

    @property
    def into(self) -> str:
        """Return the staging table."""
        return self.staging_uri


@dataclass(frozen=True)
class SourceFile:
    """One file of a batch.

    :param uri: its location in Spark's form, without additional escaping
    :param size: bytes
    :param modified: epoch milliseconds
    :param etag: the store's own fingerprint; "" if it has none
    :param again: it was, or may have been, ingested before: only events missing from the log are new
    :param columns: Parquet: the file's own columns, in order; () if unknown
    :param untyped: Parquet: those of them that have no value, and no type
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
    untyped: tuple[str, ...] = ()


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


@dataclass(frozen=True, kw_only=True)
class IngestSpec(SealedSpec):
    """Append the events of one batch to a change log: record its files or offsets, then write the events.

    :param source_uri: the records' source: the path, prefix or ``kafka://<servers>/<topics>``
    :param log_uri: the change log
    :param ingested_uri: side table: which files and offsets each batch took
    :param quarantine_uri: side table: records that are not events
    :param recorded: whether an earlier attempt wrote this batch into the side table
    :param horizon: the allowed lateness of the log, from its property; None if not set
    :param after: the applies from the log after this ingest, in the same application
    :param may_lack_layout: as for :class:`ApplySpec`, for the change log
    :param log_name: catalog name of the change log, "" if it was given by its location
    :param reads_alone: read each file alone before the batch, because earlier applications failed
    :param erased: the erased keys of the log, whose records the job ignores
    """

    log_uri: str
    ingested_uri: str
    quarantine_uri: str
    options: IngestOptions
    files: tuple[SourceFile, ...] = ()
    offsets: tuple[OffsetRange, ...] = ()
    recorded: bool = False
    horizon: str | None = None
    after: tuple[ApplyRequest, ...] = field(default=(), metadata=OUTSIDE_IDENTITY)
    may_lack_layout: bool = True
    log_name: str = field(default="", metadata=OUTSIDE_IDENTITY)
    reads_alone: bool = field(default=False, metadata=OUTSIDE_IDENTITY)
    erased: ErasedKeys = field(default=ErasedKeys(), metadata=OUTSIDE_IDENTITY)
    job: Literal["ingest"] = "ingest"

    @property
    def step(self) -> Step:
        """Return the only step."""
        (step,) = self.steps
        return step

    @property
    def into(self) -> str:
        """Return the change log."""
        return self.log_uri

    @property
    def place(self) -> str:
        """Return source, batch and log."""
        return f"{self.source_uri}, batch {self.step.seal_number}, into {self.log_uri}"

    @property
    def locations(self) -> list[str]:
        """Return the source, unless it is a topic, the log, and the targets of the applies that follow."""
        source = [] if self.reads_topics else [self.source_uri]
        return [*source, self.log_uri, *(one.target for one in self.after)]

    @property
    def catalog_names(self) -> list[str]:
        """Return the name of the log."""
        return [self.log_name] if self.log_name else []

    @property
    def input_bytes(self) -> int | None:
        """Return the bytes of the files and records, as Parquet; None if some may be in the log already."""
        if any(file.again for file in self.files) or any(part.again for part in self.offsets):
            return None
        records = sum(part.ending_offset - part.starting_offset for part in self.offsets)
        size = sum(map(self._as_parquet, self.files)) + BYTES_OF_A_RECORD * records // TEXT
        return size * (1 + len(self.after))

    def _as_parquet(self, file: SourceFile) -> int:
        if self.options.format in ("parquet", "avro"):
            return file.size
        return file.size * 2 if file.uri.lower().endswith(COMPRESSED) else file.size // TEXT

    @property
    def whole_tables(self) -> list[tuple[str, int | None]]:
        """Return the tables of the applies that follow: they read all of the log after their watermarks."""
        return [(table, None) for one in self.after for table in (self.log_uri, one.target)]

    @property
    def reads_topics(self) -> bool:
        """Return whether the source is a set of topics."""
        return self.options.source_kind == "kafka"


@dataclass(frozen=True)
class ComparedTarget:
    """A target to compare with another one.

    :param read: the version to read
    :param options: the options that it was built with
    """

    uri: str
    read: TableVersion
    options: ApplyOptions


@dataclass(frozen=True, kw_only=True)
class VerifySpec(Spec):
    """Check the rows of a target as of one version; nothing is written.

    :param target_version: the version to read
    :param options: the options that it was built with
    :param checks: names of :data:`delta_cdc.core.checks.CHECKS`
    :param source_uri: its source; None if the two are not compared
    :param compared: the reload (without keys, the load) that would make it equal to the source at the
        watermark; it is not made
    :param current: a target of the other SCD type; None: no comparison
    :param source_keeps_all: the source has every row that was ever appended to it
    :param knows_on_conflict: ``on_conflict`` is the pipeline's value, not a substituted default
    :param erased: the erased keys of source and target, which the target must not have
    """

    target_uri: str
    target_version: int
    options: ApplyOptions
    checks: tuple[str, ...]
    source_uri: str | None = None
    compared: Step | None = None
    current: ComparedTarget | None = None
    source_keeps_all: bool = True
    knows_on_conflict: bool = True
    erased: ErasedKeys = field(default=ErasedKeys(), metadata=OUTSIDE_IDENTITY)
    job: Literal["verify"] = "verify"

    @property
    def place(self) -> str:
        """Return the target and its version."""
        return f"{self.target_uri}, version {self.target_version}"

    @property
    def locations(self) -> list[str]:
        """Return the tables to read."""
        others = [self.source_uri, self.current.uri if self.current is not None else None]
        return [self.target_uri, *[uri for uri in others if uri is not None]]

    @property
    def whole_tables(self) -> list[tuple[str, int | None]]:
        """Return the versions to read."""
        tables: list[tuple[str, int | None]] = [(self.target_uri, self.target_version)]
        if self.current is not None:
            tables.append((self.current.uri, self.current.read.version))
        if self.source_uri is not None and self.compared is not None:
            tables.append((self.source_uri, self.compared.at))
        return tables


@dataclass(frozen=True, kw_only=True)
class WhySpec(SealedSpec):
    """Read the rows of a key in a target, and their changes in its source; nothing is written.

    :param target_version: the version to read
    :param options: the options that it was built with
    :param key: the value of each key column, as text
    :param quarantine_uri: the target's quarantine table; "" if there is no table
    :param records_uri: the quarantine of the change log that the target applies; "" if there is no table
    :param ledger_uri: the table of the target's erased keys; "" if there is no table
    :param source_size: bytes of the source as of the watermark, if all of it is searched for the key; None if
        unknown
    :param most_bytes: the most bytes to read of one table
    :param steps: the repair of this key, which is not made: its ranges are the changes to read
    """

    target_uri: str
    target_version: int
    options: ApplyOptions
    key: dict[str, str]
    quarantine_uri: str = ""
    records_uri: str = ""
    ledger_uri: str = ""
    source_size: int | None = None
    most_bytes: int = 1 << 30
    job: Literal["why"] = "why"

    @property
    def into(self) -> str:
        """Return the target."""
        return self.target_uri

    @property
    def step(self) -> Step:
        """Return the only step."""
        (step,) = self.steps
        return step


@dataclass(frozen=True, kw_only=True)
class ShadowSpec(Spec):
    """Compare the current rows of a target with those of its shadow, and record the result in the shadow.

    :param source: the version of the source that both contain
    :param share: compare one of so many rows, chosen by the hash of the key
    :param share_of: which of the shares
    :param number: of the transaction that records the result
    """

    pair: Pair
    original: ComparedTarget
    shadow: ComparedTarget
    source: TableVersion
    share: int
    share_of: int
    number: int
    job: Literal["shadow"] = "shadow"

    @property
    def name(self) -> str:
        """Return the two pipelines."""
        return f"{self.pair.shadow}, shadow of {self.pair.original}"

    @property
    def locations(self) -> list[str]:
        """Return the two targets."""
        return [self.original.uri, self.shadow.uri]

    @property
    def whole_tables(self) -> list[tuple[str, int | None]]:
        """Return the versions to read."""
        return [(side.uri, side.read.version) for side in (self.original, self.shadow)]


@dataclass(frozen=True, kw_only=True)
class ExchangeSpec(Spec):
    """Look up the catalog names of two targets, and exchange the names.

    :param original_id: id of the table that the original name gives away; "" only looks the names up
    :param original_uri: its location
    :param shadow_id: id of the table that gets the original name
    :param shadow_uri: its location
    """

    names: Names
    original_id: str = ""
    original_uri: str = ""
    shadow_id: str = ""
    shadow_uri: str = ""
    job: Literal["exchange"] = "exchange"

    @property
    def name(self) -> str:
        """Return the two names."""
        return f"exchange of {self.names.original} and {self.names.shadow}"


@dataclass(frozen=True, kw_only=True)
class MaintenanceSpec(Spec):
    """A maintenance job of one table. Callers fill its request, planning the rest.

    :param dry_run: show what would be done, and write nothing
    """

    table_uri: str
    dry_run: bool = False

    @property
    def name(self) -> str:
        """Return the job and the table."""
        return f"{self.job} of {self.table_uri}"

    @property
    def locations(self) -> list[str]:
        """Return the table."""
        return [self.table_uri]

    @property
    def whole_tables(self) -> list[tuple[str, int | None]]:
        """Return the table."""
        return [(self.table_uri, None)]


@dataclass(frozen=True, kw_only=True)
class OptimizeSpec(MaintenanceSpec):
    """Rewrite the file layout of one table; no row changes.

    :param where: Spark SQL predicate over partition columns; None is the whole table
    :param zorder_by: columns whose similar values are stored together
    :param full: for a clustered table, also rewrite files that are already clustered
    :param purge: rewrite files with masked rows, to remove these rows
    """

    where: str | None = None
    zorder_by: tuple[str, ...] = ()
    full: bool = False
    purge: bool = False
    job: Literal["optimize"] = "optimize"

    @property
    def tag(self) -> dict[str, Any]:
        """Return the content of the maintenance tag: the options."""
        return {
            "where": self.where,
            "zorder_by": list(self.zorder_by),
            "full": self.full,
            "purge": self.purge,
        }


@dataclass(frozen=True, kw_only=True)
class VacuumSpec(MaintenanceSpec):
    """Delete the files that one table no longer needs.

    :param lite: delete only files that the log records as removed, without listing the table's folder
    :param properties: planned: table properties to set first
    :param version: planned: the table's newest version
    :param files: planned: the number of its files
    """

    lite: bool = False
    properties: dict[str, str] = field(default_factory=dict)
    version: int | None = None
    files: int | None = None
    job: Literal["vacuum"] = "vacuum"


@dataclass(frozen=True, kw_only=True)
class ExpireSpec(MaintenanceSpec):
    """Delete a change log's events that are below its allowed lateness and no longer needed; raise the bound.

    :param horizon: the new bound, as Spark casts the sequence to a string; None keeps the current one
    :param table_id: planned: the log's id
    :param readers: planned: the newest seals of its consumers; events that a consumer needs are retained
    :param below: planned: the sequence below which events are deleted; None deletes no events
    :param since: planned: the version of the log that set ``below``: later events below it do not count
    """

    horizon: str | None = None
    table_id: str | None = None
    readers: tuple[Seal, ...] = ()
    below: str | None = None
    since: int | None = None
    job: Literal["expire"] = "expire"


#: How a table that an erasure searches holds keys: ``rows`` in columns; ``keys`` of an apply's quarantine in
#: JSON; ``records`` of an ingest's quarantine somewhere in a text.
KeyPlace = Literal["rows", "keys", "records"]


@dataclass(frozen=True, kw_only=True)
class EraseSpec(MaintenanceSpec):
    """Remove keys from one table. A target or change log also remembers them.

    :param keys: each key: column -> its value as text
    :param place: how the table holds keys
    :param owner: the target or change log whose keys these are; its own location for itself
    :param remembers: the table is a target or change log, and so gets a ledger
    :param deletes_records: of an ingest's quarantine: delete the records that may be of the key, instead of
        only counting them
    :param table_id: planned: the table's id
    """

    keys: tuple[dict[str, str], ...] = field(repr=False)
    place: KeyPlace = "rows"
    owner: str = ""
    remembers: bool = False
    deletes_records: bool = False
    table_id: str | None = None
    job: Literal["erase"] = "erase"


#: The types of jobs that may be parts of a batch.
Part = (
    ApplySpec
    | IngestSpec
    | VerifySpec
    | WhySpec
    | ShadowSpec
    | ExchangeSpec
    | OptimizeSpec
    | VacuumSpec
    | ExpireSpec
    | EraseSpec
)


@dataclass(frozen=True, kw_only=True)
class BatchSpec(Spec):
    """A batch: several jobs in one application, each with its own result; a failed job stops no other.

    :param parts: specs, but not another batch
    :param parallel: the number of parts that run at once
    """

    parts: tuple[Part, ...]
    parallel: int = 1
    job: Literal["batch"] = "batch"

    @property
    def each(self) -> tuple[Spec, ...]:
        """Return the parts."""
        return self.parts

    @property
    def locations(self) -> list[str]:
        """Return the locations of all parts."""
        return [location for part in self.parts for location in part.locations]

    @property
    def reads_topics(self) -> bool:
        """Return whether a part reads topics."""
        return any(part.reads_topics for part in self.parts)


@dataclass(frozen=True, kw_only=True)
class EnableSpec(Spec):
    """Turn table features on. Exactly one of ``tables`` (paths or names) and ``schema`` is set."""

    tables: tuple[str, ...] = ()
    schema: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    job: Literal["enable"] = "enable"

    @property
    def name(self) -> str:
        """Return the tables, or the schema."""
        return ", ".join(self.tables) or f"schema {self.schema}"

    @property
    def locations(self) -> list[str]:
        """Return the tables."""
        return list(self.tables)


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


@dataclass(frozen=True, kw_only=True)
class ResolveSpec(Spec):
    """Look up catalog names: the locations and ids of their tables.

    :param tables: the names, each once
    :param targets: those of the names whose tables need not exist
    """

    tables: tuple[str, ...]
    targets: tuple[TargetName, ...] = ()
    job: Literal["resolve"] = "resolve"

    @property
    def name(self) -> str:
        """Return the names."""
        return ", ".join(self.tables)

    @property
    def locations(self) -> list[str]:
        """Return the given locations of targets."""
        return [target.location for target in self.targets if target.location]


#: Every type of spec, for the codec.
AnySpec = Part | ReadSpec | BatchSpec | EnableSpec | ResolveSpec


@dataclass(frozen=True)
class JobResult:
    """The result that a job reports. It has no watermark, because the target's log records the watermark.

    :param counts: counts known to the job (see docs), summed over its steps
    :param tables: one entry per table, for ``enable``: {table, table_id, location, changed}; for
        ``resolve``: the same without ``changed``; one entry per check, for ``verify``; for ``why``: one
        :class:`delta_cdc.core.why.Found`; for ``shadow``, and one per pair for ``apply``: a
        :class:`delta_cdc.core.shadow.Comparison`; for ``exchange``: per name {table, table_id, location}
    :param error: :meth:`DeltaCdcError.to_dict` of the named error, for ``failed``
    :param statements: of a dry run: the statements that would run, one text per step
    :param parts: of a batch: one result per part, in order
    :param then: of an ingest: the results of the applies after it, in order
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
    then: tuple[JobResult, ...] = ()
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


def fingerprint(spec: Spec) -> str:
    """Identify a plan: the same for every attempt, different for any other work.

    Fields that say only how or where the job runs do not count
    (:data:`~delta_cdc.core.codec.OUTSIDE_IDENTITY`).
    """
    return sha256(codec.identity(spec))


def step_fingerprint(spec: Spec, seal_number: int) -> str:
    """Identify one step of a plan by the number of its seal; the text begins with the plan's fingerprint."""
    return f"{fingerprint(spec)}:{seal_number}"


def new_seal(
    spec: SealedSpec,
    step: Step,
    state: PipelineState,
    *,
    kind: StepKind | None = None,
    versions: tuple[int, int] | None = None,
    counts: Mapping[str, int] | None = None,
) -> Seal:
    """Return the seal of a step.

    :param state: the pipeline's state after the step
    :param kind: the kind that the seal records; None: that of the step
    :param versions: first and last version that the seal records; None: those of the step
    """
    return Seal(
        pipeline=step.read.pipeline or spec.pipeline,
        number=step.seal_number,
        source_uri=spec.source_uri,
        state=state,
        step=SealStep(
            cast("StepKind", step.kind) if kind is None else kind,
            *(step.versions if versions is None else versions),
            fingerprint=step_fingerprint(spec, step.seal_number),
            run_id=spec.run_id,
            planned_on=step.planned_on,
            counts=dict(counts or {}),
        ),
        successor=step.read.successor,
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
        spec: Spec = codec.decoded(cast("Any", AnySpec), data)
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
