"""Run one ingest: record the batch, write its quarantine, then commit its events to the change log.

1. **read and check**: in one pass, the driver adapts, checks and counts the records, and compares them with
   the log.
2. **record**: the driver writes the batch's files and offsets to the side table, under the batch's number. A
   second driver with the same number stops here.
3. **quarantine**: the driver writes the invalid records.
4. **commit**: the driver writes the events in one commit of the log. Its seal has the same number.

A crash between 2 and 4 leaves a batch that is recorded but not in the log. The next plan repeats that batch.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from delta_cdc.core import failpoints
from delta_cdc.core.change_log import SEQUENCE, log_properties
from delta_cdc.core.errors import DeltaCdcError, NoEventYet, SourceUnreadable
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.properties import LATENESS_HORIZON, STATISTICS_COLUMNS
from delta_cdc.core.reasons import causes
from delta_cdc.core.spec import IngestSpec, JobResult, new_seal
from delta_cdc.core.sql import quote, table
from delta_cdc.core.text_table import plural
from delta_cdc.core.watermark import Seal
from delta_cdc.ingest.adapters.guess import likely_adapter
from delta_cdc.ingest.sources import DAMAGED, GREW
from delta_cdc.spark import catalog, erased_keys, quarantine, written_rows
from delta_cdc.spark.apply import layout
from delta_cdc.spark.apply.rows import Shape
from delta_cdc.spark.changes import feed
from delta_cdc.spark.ingest import columnar, events, ingested, kafka, lines, readable_files, redelivery
from delta_cdc.spark.ingest.decoding import Decoding, content_of, restore_splits
from delta_cdc.spark.ingest.events import Batch
from delta_cdc.spark.ingest.executors import require_python
from delta_cdc.spark.sealed.commit_safety import refuse_unsafe_log_store
from delta_cdc.spark.sealed.constraints import CHANGE_THE_RULE, Destination
from delta_cdc.spark.sealed.steps import NotCommitted, SealedSteps
from delta_cdc.spark.sessions import FEW_BYTES, hide_statements, private_session, shuffle_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from delta_cdc.core.spec import SourceFile
    from delta_cdc.core.steps import Step
    from delta_cdc.spark.ingest.events import Known
    from delta_cdc.spark.sealed.commit import TableState
    from delta_cdc.spark.sealed.settling import Settled

log = logging.getLogger(__name__)

#: How often a batch is read if it seems to have damaged files; and how many groups of files are read at once
#: to find these.
_ATTEMPTS, _GROUPS = 3, 16
#: Errors of Spark and Delta for a file or log that was deleted between planning and reading.
_GONE = (
    "PATH_NOT_FOUND",
    "FAILED_READ_FILE.FILE_NOT_EXIST",
    "FileNotFoundException",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_PATH_DOES_NOT_EXIST",
)
#: Errors of Spark for a damaged file.
_DAMAGE = (
    DAMAGED,
    "CANNOT_READ_FILE_FOOTER",
    columnar.ILLEGAL,
    "is not a Parquet file",
    "can not read class org.apache.parquet",
    "ParquetDecodingException",
    "MalformedInputException",
    "FAILED_TO_UNCOMPRESS",
    "SnappyError",
    "ZstdIOException",
    "LZ4Exception",
    "EOFException",
    "ZipException",
    "DataFormatException",
    "not a gzip file",
    "gzip stream CRC failure",
    "invalid stored block",
    "Unexpected end of",
    "incorrect header check",
    "IndexOutOfBoundsException",
    "NegativeArraySizeException",
    "BufferUnderflowException",
    "MALFORMED_",
)


def run(
    spark: SparkSession,
    spec: IngestSpec,
    kafka_options: Mapping[str, str] | None = None,
    after: Sequence[Callable[[SparkSession], JobResult]] = (),
    reads: Callable[[str], object] = log.debug,
) -> JobResult:
    """Ingest one batch.

    :param kafka_options: how to reach the brokers; None: use the options that this driver was started with
    :param after: what runs in the same session once the batch is in the log, even if another driver ingested
        it; the session keeps the rows of the commit (:mod:`delta_cdc.spark.written_rows`). The results are
        ``then``
    :param reads: takes what is read next: the location of a file that is read alone, or "" for the batch
    :return: ``committed``; ``skipped`` or ``conflict`` if another driver recorded or committed a batch with
        this number; ``stale`` if files or the log changed after planning
    :raises DeltaCdcError: the input is bad; in this case the driver writes nothing
    """
    feed.refuse_forbidden_confs(spark)
    with private_session(spark) as session:
        for uri in (spec.log_uri, spec.ingested_uri, spec.quarantine_uri):
            refuse_unsafe_log_store(session, uri, single_driver=spec.single_driver)
        if spec.log_name:
            catalog.require(session, spec.log_name, spec.log_uri)
        if spec.options.source_kind == "kafka":
            hide_statements(session)
        steps = IngestSteps(session, spec, kafka_options, reads)
        result = steps.run()
        if not after or result.status not in ("committed", "skipped"):
            return result
        # The rows are materialised: what follows reads tables, in parts of their own.
        restore_splits(session)
        with ExitStack() as stack:
            if steps.written is not None:
                stack.enter_context(written_rows.kept(session, spec.log_uri, *steps.written))
            return replace(result, then=tuple(follow(session) for follow in after))


class IngestSteps(SealedSteps[IngestSpec, Batch]):
    """The one step of an ingest.

    :param kafka_options: see :func:`run`
    :param reads: see :func:`run`
    """

    #: The batch is recorded before its commit, and a second reading might find other damaged files. So the
    #: next plan repeats the batch.
    attempts = 1

    def __init__(
        self,
        session: SparkSession,
        spec: IngestSpec,
        kafka_options: Mapping[str, str] | None = None,
        reads: Callable[[str], object] = log.debug,
    ) -> None:
        super().__init__(session, spec)
        self.kafka_options, self.reads = kafka_options, reads
        #: The version and the rows of the commit.
        self.written: tuple[int, DataFrame] | None = None

    def run(self) -> JobResult:
        """Ingest the batch; if it ended an application before, read each of its files alone first."""
        shuffle_for(self.session, few_rows=_has_few_rows(self.spec))
        if self.spec.reads_alone:
            _read_alone(self.session, self.spec, self.reads)
        self.reads("")
        return super().run()

    def described(self, step: Step) -> str:
        """Return what the batch is."""
        return described(self.spec)

    def logs(self, step: Step) -> list[str]:
        """Return the log, and the side table if the batch is not recorded yet."""
        if step.planned_on is None:
            return []
        return [self.spec.log_uri, *([] if self.spec.recorded else [self.spec.ingested_uri])]

    def prepare(self, step: Step) -> Batch:
        """Read and check the batch."""
        return _read_batch(self.session, self.spec, self.kafka_options)

    def alters_left(self, step: Step, prepared: Batch) -> tuple[str, ...]:
        """Return all statements: to look, the batch would be read again."""
        return prepared.alters

    def misfit(self, step: Step, state: TableState) -> str | None:
        """Return why a batch does not fit a log that has newer commits."""
        return (
            _sealed_since(self.session, self.spec, step, state)
            or _other_horizon(self.spec, state)
            or erased_keys.changed_since(self.spec.erased, state.properties, self.spec.log_uri)
        )

    def settles(self, step: Step, prepared: Batch) -> Settled | None:
        """Return the records that a replay takes out of the quarantine."""
        if prepared.settled is None:
            return None
        return quarantine.settled_records(prepared.spec, prepared.settled)

    @property
    def quarantine_uri(self) -> str:
        """Return the location of the log's quarantine."""
        return self.spec.quarantine_uri

    def before_commit(self, step: Step, prepared: Batch, seal: Seal) -> None:
        """Record the batch, write its quarantine, and remove from it the files that are readable now."""
        spec = prepared.spec
        if not spec.recorded:
            outcome = ingested.write(self.session, spec, seal)
            if outcome.status != "committed":
                raise NotCommitted(outcome.status, outcome.message)
        failpoints.reached("recorded")
        if prepared.rejects is not None:
            quarantine.write_records(self.session, spec, seal, prepared.rejects)
        # Before the commit: the batch is recorded, so a run that dies here does this again.
        redelivered = [file.uri for file in readable_files.readable(spec) if file.again]
        quarantine.forget_files(self.session, spec, redelivered)
        failpoints.reached("quarantined")

    def seal(self, step: Step, prepared: Batch) -> Seal:
        """Return the seal of the batch."""
        assert step.before is not None
        # The next plan compares this number with the side table to detect missing rows.
        configuration = {**step.before.configuration, "rows": len(ingested.rows(self.spec))}
        configuration |= self.spec.erased.sealed
        return new_seal(
            self.spec, step, replace(step.before, configuration=configuration), counts=prepared.counts
        )

    def write(self, step: Step, prepared: Batch) -> Callable[[], object]:
        """Return the append of the events; the first one creates the log."""
        writer, uri = prepared.events.write.format("delta"), self.spec.log_uri
        if prepared.have is None:
            # This one commit writes events, properties and seal. It ignores files that a crash left.
            writer = writer.mode("error").options(**layout.properties(*_layout(prepared)))
        else:
            writer = writer.mode("append").option("mergeSchema", "true")
        return lambda: writer.save(uri)

    def destination(self, prepared: Batch) -> Destination:
        """Return the log, and the events."""
        shape, _ = _layout(prepared)
        remedy = f"deliver a corrected file under the same name, or {CHANGE_THE_RULE}"
        if self.spec.offsets:
            # The recorded batch has the offsets of these messages.
            remedy = CHANGE_THE_RULE
        return Destination(self.spec.log_uri, lambda: prepared.events, shape.keys, remedy)

    def complete(self, step: Step, prepared: Batch, version: int) -> None:
        """Complete the layout of the log."""
        self.written = version, prepared.events
        spec = prepared.spec
        erased_keys.delete_again(self.session, spec.erased, spec.log_uri, step.planned_on, version)
        if spec.may_lack_layout:
            shape, options = _layout(prepared)
            layout.complete(self.session, spec.log_uri, shape, options, is_new=step.planned_on is None)
        erased_keys.mark(self.session, spec.erased, spec.log_uri)


def _has_few_rows(spec: IngestSpec) -> bool:
    """Return whether a batch only reads new files, of few bytes."""
    reads_log = spec.step.kind == "replay" or redelivery.flagged(spec) is not None
    return not reads_log and not spec.offsets and sum(file.size for file in spec.files) <= FEW_BYTES


def described(spec: IngestSpec) -> str:
    """Describe a batch for log messages."""
    step = spec.step
    if step.kind == "renew":
        return f"a seal without events for {spec.log_uri}"
    if step.kind == "replay":
        return f"the records in the quarantine {spec.quarantine_uri}"
    parts = [plural(len(spec.files), "file")] if spec.files else []
    parts += (
        [f"{sum(p.ending_offset - p.starting_offset for p in spec.offsets)} offsets"] if spec.offsets else []
    )
    return f"batch {step.seal_number} of {spec.source_uri} ({', '.join(parts) or 'nothing'})"


def _sealed_since(session: SparkSession, spec: IngestSpec, step: Step, log_state: TableState) -> str | None:
    """Return a message if a batch of this pipeline entered the log after planning.

    The seal number alone cannot show this, because the plan may know that batch only from the side table.
    """
    planned_on = step.planned_on
    assert planned_on is not None
    new_commits = log_state.version - planned_on.version
    if new_commits <= 0:
        return None
    history = session.sql(f"DESCRIBE HISTORY {table(spec.log_uri)} LIMIT {new_commits}")
    for row in history.select("version", "userMetadata").collect():
        seal = Seal.from_json(row["userMetadata"])
        if row["version"] > planned_on.version and seal is not None and seal.pipeline == spec.pipeline:
            return f"another run committed version {row['version']} of {spec.log_uri} after planning"
    return None


def _other_horizon(spec: IngestSpec, log_state: TableState) -> str | None:
    """Return a message if maintenance moved the log's ``horizon`` after planning.

    With another horizon, other records are late.
    """
    horizon = log_state.properties.get(LATENESS_HORIZON)
    if horizon == spec.horizon:
        return None
    return f"the lateness horizon of {spec.log_uri} changed after planning, from {spec.horizon} to {horizon}"


# -- read and check -------------------------------------------------------------------------------
def _read_batch(session: SparkSession, spec: IngestSpec, secrets: Mapping[str, str] | None) -> Batch:
    """Read a batch. If a file is damaged, find all damaged files, and read the batch without them.

    :raises NotCommitted: a file was deleted or changed after planning
    """
    attempt = 0
    while True:
        try:
            if attempt:
                spec = _without_damaged(session, spec)
            return _read(session, spec, secrets)
        except Exception as error:
            error_text = str(error)
            if _names_deleted(spec, error_text):
                raise NotCommitted("stale", f"a file was deleted after planning: {_cause(error)}") from error
            if GREW in error_text:
                raise NotCommitted("stale", f"a file changed after planning: {_cause(error)}") from error
            attempt += 1
            if attempt == _ATTEMPTS or not _is_damage(spec, error_text):
                raise
            log.warning("files of %s may be damaged: %s", spec.source_uri, _cause(error))


def _read_alone(session: SparkSession, spec: IngestSpec, reads: Callable[[str], object]) -> None:
    """Read each file of a batch alone, and drop its events.

    If a file ends the application, ``reads`` has its location. An error that the batch deals with does not
    count here. After any other error this stops, because the JVM may be gone.
    """
    log_schema = events.known(session, spec.log_uri) if spec.step.planned_on is not None else None
    for file in readable_files.readable(spec):
        log.info("%s: reading %s alone", spec.pipeline, file.uri)
        reads(file.uri)
        try:
            decoding = _decoding(session, replace(spec, files=(file,)), log_schema, None)
            assert decoding is not None
            decoding.look()
            rows, _, _ = decoding.rows()
            rows.write.format("noop").mode("overwrite").save()
        except Exception as error:
            text = str(error)
            is_dealt_with = _is_damage(spec, text) or _names_deleted(spec, text) or GREW in text
            if not (is_dealt_with or isinstance(error, DeltaCdcError)):
                raise
            log.info("%s: %s", file.uri, _cause(error))


def _names_deleted(spec: IngestSpec, error_text: str) -> bool:
    planned_uris = [file.uri for file in readable_files.readable(spec)]
    if spec.step.planned_on is not None:
        planned_uris.append(spec.log_uri)
    return any(mark in error_text for mark in _GONE) and lines.names(error_text, planned_uris)


def _is_damage(spec: IngestSpec, error_text: str) -> bool:
    """Return whether an error names a damaged file of the batch.

    Errors of an unavailable store look similar but are temporary, so they mark no file as unreadable.
    """
    uris = [file.uri for file in readable_files.readable(spec)]
    return any(mark in error_text for mark in _DAMAGE) and lines.names(error_text, uris)


def _without_damaged(session: SparkSession, spec: IngestSpec) -> IngestSpec:
    """Return the spec with its damaged files marked as unreadable.

    Spark's error names one file only. So this reads the files in groups, and splits only the groups that
    fail: each round reads a file at most once, and the number of rounds depends on the number of files, not
    on that of damaged files.
    """
    reasons: dict[str, str] = {}
    failed = [readable_files.readable(spec)]
    with ThreadPoolExecutor(_GROUPS) as pool:
        while failed:
            groups = [part for group in failed for part in _split(group)]
            errors = list(pool.map(lambda group: _damage(session, spec, group), groups))
            failed = [group for group, error in zip(groups, errors, strict=True) if error and len(group) > 1]
            for group, error in zip(groups, errors, strict=True):
                if error and len(group) == 1:
                    log.warning("%s cannot be read: %s", group[0].uri, error)
                    reasons[group[0].uri] = f"it is damaged: {error}"
    files = (
        replace(file, unreadable=reasons[file.uri]) if file.uri in reasons else file for file in spec.files
    )
    return replace(spec, files=tuple(files))


def _split(files: list[SourceFile]) -> list[list[SourceFile]]:
    """Split a group into at most :data:`_GROUPS` groups."""
    size = -(-len(files) // _GROUPS)
    return [files[start : start + size] for start in range(0, len(files), size)]


def _damage(session: SparkSession, spec: IngestSpec, files: list[SourceFile]) -> str:
    """Read files to their end. Return why this fails if one of them is damaged; "" if all are sound.

    A single file must fail twice, because a truncated response of the store looks like a truncated file.
    """
    group = replace(spec, files=tuple(files))
    cause = ""
    for _ in range(2 if len(files) == 1 else 1):
        try:
            content_of(session, group).write.format("noop").mode("overwrite").save()
        except Exception as error:
            if not _is_damage(group, str(error)):
                raise
            cause = _cause(error)
        else:
            return ""
    return cause


def _cause(error: Exception) -> str:
    """Return the root cause of an error as one line; of our own error, what it says of the file."""
    line = unquote(causes(error)[-1].line)
    return line.partition(f" {DAMAGED}: ")[2].removesuffix(" SQLSTATE: 38000") or line


def _read(session: SparkSession, spec: IngestSpec, secrets: Mapping[str, str] | None) -> Batch:
    log_schema = events.known(session, spec.log_uri) if spec.step.planned_on is not None else None
    decoding = _decoding(session, spec, log_schema, secrets)
    if decoding is None:
        batch = events.nothing(session, spec, _existing_log(spec, log_schema))
    else:
        log_rows = session.read.format("delta").load(spec.log_uri) if log_schema is not None else None
        batch = events.prepared(session, spec, decoding, log_schema, log_rows)
        _refuse_unknown_types(spec, batch, log_schema)
    unreadable_files = readable_files.unreadable(spec)
    if unreadable_files and spec.options.on_invalid == "fail":
        raise SourceUnreadable(
            f"{len(unreadable_files)} file(s) of the batch cannot be read, for instance "
            f"{unreadable_files[0][0].uri}: {unreadable_files[0][1]}.",
            remedy="correct or remove the files, or let them go to quarantine (on_invalid in policies).",
        )
    rejected, quarantined = _rejected(session, spec, batch, unreadable_files)
    missing_files = sum(file.missing for file in spec.files)
    counts = {
        **batch.counts,
        "quarantined": quarantined,
        "files": len(spec.files) - missing_files,
        "missing": missing_files,
    }
    counts = {name: count for name, count in {"events": 0, **counts}.items() if count or name == "events"}
    return replace(batch, counts=counts, rejects=rejected)


def _decoding(
    session: SparkSession, spec: IngestSpec, log_schema: Known | None, secrets: Mapping[str, str] | None
) -> Decoding | None:
    """Return the records of a batch; None if it has no records to read."""
    options = spec.options
    if spec.step.kind == "renew":
        return None
    files = readable_files.readable(spec)
    if spec.step.kind != "replay" and options.source_kind != "kafka" and not files:
        return None
    replayed = None
    if spec.step.kind == "replay":
        replayed = quarantine.replayable(session, spec)
        if replayed is None:
            return None
    require_python(session)
    decoding = Decoding(
        options,
        declared=readable_files.declared(options),
        known=log_schema.payload if log_schema is not None else None,
        log_sequence=log_schema.sequence if log_schema is not None else None,
    )
    is_kafka = options.source_kind == "kafka"
    registry = kafka.registry(session, secrets) if is_kafka and options.format == "avro" else None
    if replayed is not None:
        decoding.add_again(replayed, registry)
    elif is_kafka:
        decoding.add_messages(kafka.read(session, spec, secrets), registry)
    else:
        decoding.add_files(session, files, may_have_grown=spec.recorded)
    return decoding


def _refuse_unknown_types(spec: IngestSpec, batch: Batch, log_schema: Known | None) -> None:
    """Refuse to create a log if no column type is known, because the types of a log are permanent."""
    has_types = spec.options.schema or spec.options.format == "parquet" or batch.counts["events"]
    if log_schema is not None or has_types:
        return
    reasons, samples = events.samples(batch.rejects)
    listed = "; ".join(f"{plural(count, 'time')} {text}" for text, count in reasons)
    why = f": {listed}. For instance {'; '.join(sample[:200] for sample in samples)}" if listed else ""
    adapter = likely_adapter(samples)
    hint = f"set adapter to {adapter!r}" if adapter not in (None, spec.options.adapter) else "set schema"
    raise NoEventYet(
        f"The first batch of {spec.source_uri} has no event, so the columns of {spec.log_uri} and their "
        f"types are unknown. {plural(batch.counts['quarantined'], 'record')} are not events{why}.",
        remedy=f"{hint}. Or correct the input, or wait for more input, and run again. To try "
        "options on one file, use delta-cdc decode.",
    )


def _existing_log(spec: IngestSpec, log_schema: Known | None) -> Known:
    if log_schema is None:
        reasons = "; ".join(f"{file.uri}: {reason}" for file, reason in readable_files.unreadable(spec)[:3])
        raise NoEventYet(
            f"None of the {len(spec.files)} files of the first batch can be read "
            f"({reasons or 'they are gone'}), so the columns of {spec.log_uri} are unknown.",
            remedy="correct one of the files, or deliver another one, and run again."
            if not spec.recorded
            else f"nothing was ingested yet: delete {spec.ingested_uri}, and run again.",
        )
    return log_schema


def _rejected(
    session: SparkSession, spec: IngestSpec, batch: Batch, unreadable_files: list[tuple[SourceFile, str]]
) -> tuple[DataFrame | None, int]:
    """Return the rows that go to quarantine, and their number."""
    rejects, count = batch.rejects, batch.counts.get("quarantined", 0)
    if spec.step.kind == "replay":
        # The quarantine already has the records that are still invalid.
        return None, 0
    if unreadable_files:
        files = quarantine.file_rejects(session, unreadable_files)
        rejects = files if rejects is None else rejects.unionByName(files)
        count += len(unreadable_files)
    if rejects is None:
        return None, 0
    found = quarantine.new(session, spec, rejects)
    if found is rejects:
        return rejects, count
    rejects = found.localCheckpoint()
    count = rejects.count()
    return (rejects if count else None), count


# -- the log --------------------------------------------------------------------------------------
def _layout(batch: Batch) -> tuple[Shape, ApplyOptions]:
    """Return the layout of a log: as for a target, clustered by its keys, with statistics of its sequence."""
    options = batch.spec.options
    columns = {field.name.lower(): field for field in batch.payload.fields}
    if batch.have is not None:
        columns = {field.name.lower(): field for field in batch.have.payload.fields} | columns
    columns[SEQUENCE] = T.StructField(SEQUENCE, batch.sequence)
    keys = tuple(columns[key.lower()].name for key in options.keys if key.lower() in columns)
    shape = Shape(
        keys=keys,
        values=tuple(field.name for field in columns.values()),
        tracked=(),
        partitions=(),
        schema=T.StructType(list(columns.values())),
        sequence_type=None,
    )
    options_of_layout = ApplyOptions(keys=keys, cluster_by=options.cluster_by)
    statistics_columns = dict.fromkeys(
        (*layout.clustering_columns(shape, options_of_layout), *keys, SEQUENCE)
    )
    statistics = ",".join(quote(name) for name in statistics_columns if layout.has_statistics(shape, name))
    with_bounds = {STATISTICS_COLUMNS: statistics} if statistics else {}
    return shape, replace(options_of_layout, target_properties={**with_bounds, **log_properties(options)})
