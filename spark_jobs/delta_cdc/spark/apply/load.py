"""Load a snapshot of the source as the first commit of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, StructType, TimestampNTZType, TimestampType

from delta_cdc.core import reserved_columns
from delta_cdc.core.errors import NullKey, NullSequence, TargetSchemaClash
from delta_cdc.core.reserved_columns import DELETED_COLUMN, OF_END, TIMES
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark import column_needs, quarantine
from delta_cdc.spark.apply import (
    batches,
    layout,
    refusals,
    row_hash,
    rows,
    schema,
    target_columns,
    value_rules,
)
from delta_cdc.spark.apply.prepared_step import PreparedStep, StepContext
from delta_cdc.spark.apply.sequences import as_text
from delta_cdc.spark.changes import feed, states
from delta_cdc.spark.changes.equality import ddl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.core.spec import ApplySpec
    from delta_cdc.core.steps import Step
    from delta_cdc.spark.apply.rows import Shape

_ROWS, _HIGHEST = f"{PLAN_PREFIX}rows", f"{PLAN_PREFIX}highest"
_LACKS_SEQUENCE = f"{PLAN_PREFIX}lacks_sequence"


def load(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    """Prepare the load of a snapshot, or set a baseline."""
    context = StepContext.of(session, spec, step)
    options = spec.options
    quarantines = options.on_invalid == "quarantine"
    snapshot, shape = read(context, raw=step.source_columns if quarantine.may_hold(context) else ())
    try:
        totals = checked(context, snapshot, shape)
    except (NullKey, NullSequence):
        if not quarantines:
            raise
        reason = F.when(batches.null_key(shape), refusals.NULL_KEY)
        reason = reason.when(lacks_sequence(shape), refusals.NULL_SEQUENCE)
        invalid = snapshot.where(reason.isNotNull())
        quarantine.set_aside(context, invalid, shape, reason, unless_held=context.reads_again)
        snapshot = snapshot.where(reason.isNull())
        totals = checked(context, snapshot, shape)
    if options.insert_only:
        value_rules.check(context, snapshot, shape, f"version {max(step.at, 0)}")
    elif options.rules:
        value_rules.count(context, totals)
        if value_rules.sets_aside(options, totals):
            snapshot = without_stopped(context, snapshot, shape)
            totals = checked(context, snapshot, shape)
    if step.kind == "reset":
        quarantine.settle(context, snapshot, shape)
    if not options.insert_only:
        context.counts = {"rows": totals["rows"], **context.counts}
    highest = totals["highest"]
    builds_on_target = step.planned_on is not None and step.kind != "reset" and step.read.is_empty
    if builds_on_target and shape.sequence_type is not None:
        # The types of the layout's columns first: what follows compares their values.
        schema.check_target(context, shape)
        highest = _highest_in_target(session, spec, shape.sequence_type)
    return prepared(context, step, as_target(snapshot, shape, options), shape, highest)


def without_stopped(context: StepContext, snapshot: DataFrame, shape: Shape) -> DataFrame:
    """Set the rows of a snapshot aside that a rule stops; return the others.

    :param snapshot: with the row of the source, and the version
    """
    options = context.options
    stopped = snapshot.where(value_rules.is_stopped(options))
    quarantine.set_aside(
        context, stopped, shape, value_rules.reason(options), unless_held=context.reads_again
    )
    return snapshot.where(~value_rules.is_stopped(options))


def prepared(
    context: StepContext,
    step: Step,
    target_rows: DataFrame,
    shape: Shape,
    highest: str | None,
    truncates: tuple[str, ...] = (),
) -> PreparedStep:
    """Return the prepared load of some rows."""
    if step.kind == "reset" and step.planned_on is not None:
        session, uri = context.session, context.spec.target_uri
        needs = column_needs.statements(session, uri, [target_rows.schema], StructType())
        context.alters = (*layout.outdated_statistics(session, context.spec, shape), *needs)
    elif step.planned_on is not None:
        schema.check_target(context, shape)
    return PreparedStep(
        write_step(context.spec, step, target_rows, shape),
        context.counts,
        highest,
        shape,
        truncates,
        inserts=target_rows,
        quarantined=context.quarantined,
        settled=context.settled,
        alters=context.alters,
    )


def read(context: StepContext, raw: Sequence[str] = ()) -> tuple[DataFrame, Shape]:
    """Return the source's projected rows as of the step, with their sequence, and their shape.

    :param raw: see :func:`delta_cdc.spark.apply.rows.read`
    """
    step = context.step
    # An empty load at version -1 uses the schema of version 0.
    version = max(step.at, 0)
    columns, staging = step.source_columns, context.step.read.staging
    snapshot = feed.snapshot_rows(context.session, context.source, version, columns, staging)
    if step.read.is_empty:
        snapshot = snapshot.limit(0)
    snapshot = snapshot.withColumn(reserved_columns.CHANGE_TYPE, F.lit("insert"))
    return context.read(stamped(context, snapshot), raw)


def stamped(context: StepContext, snapshot: DataFrame, version: int | None = None) -> DataFrame:
    """Add the version and the time of a commit of the source.

    :param version: of the commit; None: the one that the step reads
    """
    options, version = context.options, max(context.step.at, 0) if version is None else version
    expressions = " ".join([*options.sequences, options.delete_sequence or ""]).lower()
    commit_time = F.lit(None).cast("timestamp")
    of_history = context.has_history and reserved_columns.COMMIT_TIMESTAMP in expressions
    of_rows = options.has_times and not context.only_compares
    if options.writes_events or of_history or of_rows:
        commit_time = feed.commit_timestamp(context.session, context.source, version)
    return snapshot.withColumns(
        {
            reserved_columns.COMMIT_VERSION: F.lit(version).cast("bigint"),
            reserved_columns.COMMIT_TIMESTAMP: commit_time,
        }
    )


def write_step(spec: ApplySpec, step: Step, target_rows: DataFrame, shape: Shape) -> Callable[[], None]:
    """Return the write of a load's rows: create a target, fill an empty one, or replace all rows (reset)."""
    options = spec.options
    writer = layout.arranged(target_rows, shape, options).write.format("delta")
    if step.kind == "reset":
        writer = writer.mode("overwrite").option("overwriteSchema", "true")
        writer = writer.options(**layout.properties(shape, options))
    elif step.planned_on is None:
        # One commit holds data, properties and seal. This mode ignores files of a crashed attempt.
        writer = writer.mode("error").options(**layout.properties(shape, options))
    else:
        writer = writer.mode("append").option("mergeSchema", "true")
    # The limit assumes that the rows are as wide as the source's rows.
    sizing_table = spec.source_uri if step.read.staging is None else step.read.staging.uri
    extent = (0, 0) if step.read.is_empty else layout.extent(target_rows.sparkSession, sizing_table)
    row_limit = layout.rows_per_file(*extent, options)
    if row_limit is not None:
        writer = writer.option("maxRecordsPerFile", row_limit)
    if options.partition_by and (step.kind == "reset" or step.planned_on is None):
        writer = writer.partitionBy(*options.partition_by)
    return lambda: writer.save(spec.target_uri)


def as_target(snapshot: DataFrame, shape: Shape, options: ApplyOptions) -> DataFrame:
    """Return existing (not deleted) rows as the target stores them.

    :param snapshot: values, and :data:`~delta_cdc.spark.changes.states.SEQUENCE`
    """
    added: dict[str, str] = {}
    if shape.sequence_type is not None:
        no_end = f"CAST(NULL AS {ddl(shape.sequence_type)})"
        added = target_columns.stored(options, shape.sequence_type, quote(states.SEQUENCE), no_end)
    elif options.keeps_deleted:
        added = {DELETED_COLUMN: "false"}
    for name in TIMES:
        if getattr(options, name) is not None:
            added[getattr(options, name)] = quote(rows.TIME)
    target = snapshot.select(*[quote(name) for name in shape.values], *target_columns.as_columns(added))
    return row_hash.with_hash(target, shape, options)


def _highest_in_target(session: SparkSession, spec: ApplySpec, sequence_type: DataType) -> str | None:
    """Return the greatest sequence in rows that the target had before its first seal.

    :raises TargetSchemaClash: the columns of the layout do not fit the starts and ends of these rows
    """
    options = spec.options
    bounds = [F.max(quote(name)) for name in (options.start_column, options.end_column)]
    existing = session.read.format("delta").load(spec.target_uri)
    _check_open_rows(existing, spec)
    _check_layout(existing, spec)
    existing = target_columns.plain(existing, options)
    highest = existing.select(as_text(F.greatest(*bounds), sequence_type).alias("highest")).collect()
    return None if highest[0]["highest"] is None else str(highest[0]["highest"])


def _check_open_rows(existing: DataFrame, spec: ApplySpec) -> None:
    """Refuse a history whose open rows seem to end with a value such as 9999-12-31, without ``end_value``.

    The pipeline would take these rows for closed ones, and open a second row for each key.
    """
    options = spec.options
    if options.end_value is not None:
        return
    end = F.col(quote(options.end_column))
    data_type = existing.select(end).schema.fields[0].dataType
    is_time = isinstance(data_type, (DateType, TimestampType, TimestampNTZType))
    # Ends of closed rows may be of a clock in another zone, or planned.
    in_future = end > F.expr("current_timestamp() + INTERVAL '1' YEAR") if is_time else F.lit(False)
    found = existing.agg(
        F.count("*").alias("rows"),
        F.count_if(end.isNull()).alias("open"),
        F.count_if(in_future).alias("in_future"),
        F.max(end).cast("string").alias("greatest"),
    ).collect()[0]
    name = options.end_column
    problem = ""
    if found["rows"] and not found["open"]:
        problem = f"No row of {spec.target_uri} is open: {name} is NULL in none"
    elif found["in_future"]:
        problem = f"{found['in_future']} row(s) of {spec.target_uri} end more than a year from now"
    if problem:
        raise TargetSchemaClash(
            f"{problem}; the greatest {name} is {found['greatest']}.",
            remedy=f"if this is what {name} is in open rows, set end_value in layout to it. Otherwise set it "
            f"to NULL in open rows; if no row is open, set end_value to a value above each {name}.",
        )


def _check_layout(existing: DataFrame, spec: ApplySpec) -> None:
    options = spec.options
    if options.end_value is None and options.current_column is None:
        return
    data_type = target_columns.end_type(existing, options)
    count = existing.where(F.expr(target_columns.wrong(options, data_type))).count()
    if count:
        given = [name for name in OF_END if getattr(options, name) is not None]
        raise TargetSchemaClash(
            f"{count} row(s) of {spec.target_uri} do not have what {' and '.join(given)} in layout say about "
            "them, so the table cannot be the baseline of this pipeline.",
            remedy=f"correct them once: {target_columns.corrected(options, data_type, spec.target_uri)}",
        )


def lacks_sequence(shape: Shape) -> Column:
    """Return whether a row of :func:`read` has no position in its key's history."""
    return F.col(states.SEQUENCE).isNull() if shape.sequence_type is not None else F.lit(False)


def checked(context: StepContext, snapshot: DataFrame, shape: Shape) -> dict[str, Any]:
    """Refuse null keys, duplicate keys, null sequences and broken rules of a snapshot; return totals.

    :param snapshot: keys, :data:`~delta_cdc.spark.changes.states.SEQUENCE`, and with rules
        :data:`~delta_cdc.spark.changes.states.BROKEN`
    :return: among others ``rows``, ``highest``, and those of
        :func:`delta_cdc.spark.apply.value_rules.totals`
    """
    of_rules = value_rules.totals(context.options)
    if context.options.insert_only:
        return {"highest": None}
    per_key = snapshot.groupBy(*shape.key_columns).agg(
        F.count("*").alias(_ROWS),
        F.count_if(lacks_sequence(shape)).alias(_LACKS_SEQUENCE),
        F.max(states.SEQUENCE).alias(_HIGHEST),
        *[total.alias(name) for name, total in of_rules.items()],
    )
    highest = F.lit(None)
    if shape.sequence_type is not None:
        highest = as_text(F.max(_HIGHEST), shape.sequence_type)
    totals = per_key.agg(
        F.coalesce(F.sum(_ROWS), F.lit(0)).alias("rows"),
        F.count_if(batches.null_key(shape)).alias(refusals.NULL_KEY),
        F.count_if(F.col(_ROWS) > 1).alias(refusals.DUPLICATE),
        F.coalesce(F.sum(_LACKS_SEQUENCE), F.lit(0)).alias(refusals.NULL_SEQUENCE),
        highest.alias("highest"),
        *[F.coalesce(F.sum(quote(name)), F.lit(0)).alias(name) for name in of_rules],
    )
    counts = totals.collect()[0].asDict()
    conditions = {refusals.DUPLICATE: F.col(_ROWS) > 1, refusals.NULL_SEQUENCE: F.col(_LACKS_SEQUENCE) > 0}
    versions = f"version {max(context.step.at, 0)}"
    refusals.refuse(counts, per_key, shape, context, conditions, versions)
    value_rules.refuse(context, counts, snapshot, shape, versions)
    return counts
