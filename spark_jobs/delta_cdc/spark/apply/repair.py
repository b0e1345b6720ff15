"""Reload and repair: compute rows of the target again, and write only the differences.

A key's desired rows come from the source as of the watermark (type 1 of a feed, reload), from the feed since
a version (type 2 of a feed: earlier history stays), or from all of its events (change logs, snapshots).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from delta_cdc.core import reserved_columns
from delta_cdc.core.errors import InvalidConfiguration, NullSequence, SequenceNotIncreasing
from delta_cdc.core.spec import RepairStep
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark.apply import batch as b
from delta_cdc.spark.apply import (
    boundary,
    difference,
    events,
    from_events,
    intervals,
    partial_columns,
    quarantine,
    rows,
    schema,
    timeline,
)
from delta_cdc.spark.apply.from_events import Cut
from delta_cdc.spark.apply.sequences import as_text
from delta_cdc.spark.apply.timeline import Selection
from delta_cdc.spark.changes import feed, states
from delta_cdc.spark.changes.queries import raised

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from delta_cdc.core.spec import ApplySpec, ReloadStep
    from delta_cdc.spark.apply.from_events import Job
    from delta_cdc.spark.apply.prepared_step import Work
    from delta_cdc.spark.apply.rows import Shape

_LAST, _OPEN = f"{PLAN_PREFIX}last", f"{PLAN_PREFIX}open"
_ROWS, _NULL = f"{PLAN_PREFIX}rows", f"{PLAN_PREFIX}null"


def reload(session: SparkSession, spec: ApplySpec, step: ReloadStep) -> Work:
    """Prepare the difference between the target and the source as of the step's version."""
    job = from_events.job_of(session, spec, step)
    if job.options.takes_events:
        return _from_events(job, Selection())
    return _from_snapshot(job, Selection())


def repair(session: SparkSession, spec: ApplySpec, step: RepairStep) -> Work:
    """Prepare the difference for the keys that a range changed, that were chosen, or that are quarantined."""
    job = from_events.job_of(session, spec, step)
    options = job.options
    if options.takes_events:
        return _from_events(job, _chosen(job) or _of_events(job))
    if options.stored_as_scd_type == 1:
        return _from_snapshot(job, _chosen(job) or _of_states(job))
    if options.is_partial:
        raise InvalidConfiguration(
            f"{spec.target_uri}: history whose events carry some of the columns only cannot be repaired from "
            "a change feed, which does not say what each event was to leave as it was.",
            remedy="use mode='reload' to bring the open rows up to the source.",
        )
    return _from_states(job)


def _chosen(job: Job) -> Selection | None:
    """Return the keys that the step names; None if a range determines them."""
    from pyspark.sql import types as T

    step = job.step
    if not isinstance(step, RepairStep) or (step.keys_where is None and not step.replayed):
        return None
    shape = event_shape(job) if job.options.takes_events else snapshot(job)[1]
    if step.keys_where is not None:
        keys = T.StructType([shape.schema[key] for key in shape.keys])
        states.check_predicate(job.session.createDataFrame([], keys), "repair_keys", step.keys_where)
        return Selection(predicate=step.keys_where)
    found = quarantine.keys_of(job.session, job.spec.quarantine_uri, job.spec.pipeline, shape)
    return Selection(keys=found.localCheckpoint())


def _keys(found: DataFrame, shape: Shape) -> Selection:
    keys = found.select(*[quote(key) for key in shape.keys]).distinct().where(~b.null_key(shape))
    return Selection(keys=keys.localCheckpoint())


# -- all events of a key ------------------------------------------------------------------------
def event_shape(job: Job) -> Shape:
    """Return the shape of the rows that a source of events makes."""
    return job.events(from_events.all_rows(job).limit(0)).shape


def _of_events(job: Job) -> Selection:
    """Return the keys of the events of a range; all keys if a truncate is among them."""
    from pyspark.sql import functions as F

    found = job.events(from_events.batch_rows(job))
    if job.options.source_kind == "snapshot":
        # A snapshot also changes the keys that are missing from it.
        return Selection()
    if not found.rows.where(F.col(events.KIND) == events.TRUNCATE).isEmpty():
        return Selection()
    return _keys(found.rows, found.shape)


def _from_events(job: Job, selection: Selection) -> Work:
    job.truncated = job.options.apply_as_truncates is not None
    shape = event_shape(job)
    evolve = schema.check_target(job.session, job.spec, schema.target_schema(shape, job.spec.options))
    made = from_events.cut_again(job, selection, None, shape, ())
    merge = from_events.merged(job, [made], shape, (), evolve=evolve)
    highest, truncates = None, job.step.truncate_sequences
    if job.step.kind == "reload":
        highest, told = events.extent(from_events.all_rows(job), job.options, job.source, job.step.horizons)
        truncates = told or truncates
    return from_events.work(job, merge, shape, highest, truncates)


# -- the source as of a version -----------------------------------------------------------------
def snapshot(job: Job) -> tuple[DataFrame, Shape]:
    """Return the source's rows as of the step, projected, with their sequence."""
    from pyspark.sql import functions as F

    options, step = job.options, job.step
    columns = step.source_columns
    source_rows = feed.snapshot_rows(job.session, job.source, step.at, columns)
    stamped = _stamped(job, source_rows.withColumn(reserved_columns.CHANGE_TYPE, F.lit("insert")))
    told = rows.with_sequence(stamped, options)
    carried = []
    if options.columns_to_update is not None:
        told = told.withColumn(events.CARRIED, events.carried(source_rows, options))
        carried = [events.CARRIED]
    found = rows.projected(told, options, (*reserved_columns.METADATA_COLUMNS, states.SEQUENCE, *carried))
    return found, rows.shape_of(found.drop(*carried), source_rows, options, job.source)


def _stamped(job: Job, found: DataFrame) -> DataFrame:
    """Add version and time of the step's commit."""
    from pyspark.sql import functions as F

    told = " ".join([*job.options.sequences, job.options.delete_sequence or ""]).lower()
    moment = F.lit(None).cast("timestamp")
    if job.options.stored_as_scd_type == 2 and reserved_columns.COMMIT_TIMESTAMP in told:
        moment = feed.commit_timestamp(job.session, job.source, job.step.at)
    return found.withColumn(reserved_columns.COMMIT_VERSION, F.lit(job.step.at).cast("bigint")).withColumn(
        reserved_columns.COMMIT_TIMESTAMP, moment
    )


def _from_snapshot(job: Job, selection: Selection) -> Work:
    """Bring chosen keys to the source's state as of the step: delete keys that the source lacks."""
    _, shape = snapshot(job)
    evolve = schema.check_target(job.session, job.spec, schema.target_schema(shape, job.spec.options))
    made, highest = _compared(job, selection)
    merge = from_events.merged(job, [made], shape, (), evolve=evolve)
    return from_events.work(job, merge, shape, highest, job.step.truncate_sequences)


def _compared(job: Job, selection: Selection) -> tuple[Cut, str | None]:
    """Return the rows to be written for chosen keys, and their greatest sequence as text."""
    from pyspark.sql import functions as F

    options = job.options
    history = options.stored_as_scd_type == 2
    found, shape = snapshot(job)
    state = F.struct(*[F.col(quote(name)) for name in shape.values])
    named = F.col(events.CARRIED) if events.CARRIED in found.columns else F.lit(None).cast("array<string>")
    parts = partial_columns.leaves(shape, options)
    told = selection.of(found, shape).select(
        *[F.col(quote(key)) for key in shape.keys],
        states.SEQUENCE,
        F.lit(events.UPSERT).alias(events.KIND),
        state.alias(states.AFTER),
        partial_columns.authored(parts, options, state, named).alias(events.AUTHORED),
        F.lit(1).cast("bigint").alias(reserved_columns.ORDER),
    )
    told = told.repartition(*[F.col(quote(key)) for key in shape.keys]).localCheckpoint()
    _refuse_unusable(job, told, shape)
    usable = told.where(~unusable(shape)) if options.on_invalid == "quarantine" else told
    if history:
        usable = _above_history(job, selection, usable, shape)
    of_keys = timeline.of_events(usable, shape, reserved_columns.ORDER)
    current = selection.of(difference.target_rows(job.session, job.spec.target_uri, shape, options), shape)
    if history:
        current = current.where(F.col(difference.FOUND_END).isNull())
    gone = current.join(told, on=list(shape.keys), how="left_anti")
    deletes = _absent(job, gone, shape, told)
    whole = timeline.of_target(current, of_keys, shape).unionByName(of_keys)
    whole = whole.unionByName(timeline.of_events(deletes, shape, reserved_columns.ORDER))
    whole = intervals.inherited(whole, shape, options)
    if history:
        dated = {*options.sequences, options.delete_sequence or reserved_columns.COMMIT_VERSION}
        by_commit = dated <= {reserved_columns.COMMIT_VERSION, reserved_columns.COMMIT_TIMESTAMP}
        made = difference.against_base(intervals.runs(whole, shape), shape, growing=True, in_place=by_commit)
    else:
        made = difference.operations(intervals.last_states(whole, shape), shape, options, compared=True)
    highest = None
    if shape.order_type is not None:
        sequences = usable.select(states.SEQUENCE).union(deletes.select(states.SEQUENCE))
        greatest = as_text(F.max(states.SEQUENCE), shape.order_type)
        highest = sequences.agg(greatest.alias("highest")).collect()[0]["highest"]
    return Cut(made, compared=True), highest


def _absent(job: Job, gone: DataFrame, shape: Shape, like: DataFrame) -> DataFrame:
    """Return deletes of rows of the target; their sequence comes from the row itself or from the commit.

    :param like: events, for their types
    """
    from pyspark.sql import functions as F

    options = job.options
    flat = _stamped(job, gone.select(f"{difference.FOUND}.*"))
    sequence = F.lit(None)
    if shape.sequence_type is not None:
        text = options.delete_sequence
        expressions = options.sequences if text is None else (text,)
        states.resolve(flat, "delete_sequence" if text is not None else "sequence_by", expressions)
        missing = "the sequence of a row that the source no longer has is NULL."
        sequence = F.coalesce(rows.combined(expressions), raised(NullSequence, [missing]))
    return flat.select(
        *[F.col(quote(key)) for key in shape.keys],
        sequence.cast(like.schema[states.SEQUENCE].dataType).alias(states.SEQUENCE),
        F.lit(events.DELETE).alias(events.KIND),
        F.lit(None).cast(like.schema[states.AFTER].dataType).alias(states.AFTER),
        F.lit(None).cast("array<boolean>").alias(events.AUTHORED),
        F.lit(1).cast("bigint").alias(reserved_columns.ORDER),
    )


def unusable(shape: Shape) -> Column:
    """Return whether a row of :func:`snapshot` has no key, or no position in its key's history."""
    from pyspark.sql import functions as F

    lacks = F.col(states.SEQUENCE).isNull() if shape.sequence_type is not None else F.lit(False)
    return b.null_key(shape) | lacks


def _above_history(job: Job, selection: Selection, told: DataFrame, shape: Shape) -> DataFrame:
    """Let Spark raise, when it evaluates the rows, if a row would open inside closed history."""
    from pyspark.sql import functions as F

    options = job.options
    if set(options.sequences) <= {reserved_columns.COMMIT_VERSION}:
        return told
    existing = difference.target_rows(job.session, job.spec.target_uri, shape, options)
    keys = [F.col(quote(key)) for key in shape.keys]
    per_key = selection.of(existing, shape).groupBy(*keys)
    history = per_key.agg(
        F.max(difference.FOUND_END).alias(_LAST), F.max(F.col(difference.FOUND_END).isNull()).alias(_OPEN)
    )
    inside = ~F.coalesce(_OPEN, F.lit(False)) & (F.col(states.SEQUENCE) < F.col(_LAST))
    text = "a key that comes back has a sequence inside its closed history in the target."
    sequence = F.when(inside, raised(SequenceNotIncreasing, [text])).otherwise(F.col(states.SEQUENCE))
    found = told.join(history, on=list(shape.keys), how="left").withColumn(states.SEQUENCE, sequence)
    return found.drop(_LAST, _OPEN)


def _refuse_unusable(job: Job, told: DataFrame, shape: Shape) -> None:
    """:raises NullKey: likewise KeyNotUnique, NullSequence: in the source as of the step"""
    from pyspark.sql import functions as F

    if job.options.on_invalid == "quarantine":
        # They were quarantined when they came.
        told = told.where(~unusable(shape))
    versions = f"version {job.step.at}"
    per_key = told.groupBy(*[F.col(quote(key)) for key in shape.keys]).agg(
        F.count("*").alias(_ROWS), F.max(F.col(states.SEQUENCE).isNull()).alias(_NULL)
    )
    history = shape.sequence_type is not None
    found = per_key.agg(
        F.count_if(b.null_key(shape)).alias("null_keys"),
        F.count_if(F.col(_ROWS) > 1).alias("duplicates"),
        F.count_if(_NULL).alias("null_sequences"),
    ).collect()[0]
    b.refuse_null_keys(found["null_keys"], job.source, versions, shape.keys)
    if found["duplicates"]:
        sample = b.samples(per_key, shape.keys, F.col(_ROWS) > 1)
        b.refuse_duplicates(found["duplicates"], job.source, versions, sample)
    if history and found["null_sequences"]:
        sample = b.samples(per_key, shape.keys, F.col(_NULL))
        expression = ", ".join(job.options.sequences)
        b.refuse_null_sequences(found["null_sequences"], job.source, versions, sample, expression)


# -- the feed since a version -------------------------------------------------------------------
def _of_states(job: Job) -> Selection:
    """Return the keys of the changes of a range, including those that a filter leaves out."""
    from pyspark.sql import functions as F

    plain = replace(job.options, where=None, apply_as_deletes=None)
    found, shape = from_events.states_of(replace(job, options=plain))
    return _keys(found.where(F.col(reserved_columns.ORDER) <= job.step.ending_version), shape)


def _from_states(job: Job) -> Work:
    """Recompute history from each key's first change that the feed still has; earlier history stays."""
    from pyspark.sql import functions as F

    found, shape = from_events.states_of(job)
    evolve = schema.check_target(job.session, job.spec, schema.target_schema(shape, job.spec.options))
    chosen = _chosen(job) or _of_states(job)
    batch = from_events.checked_states(job, chosen.of(found, shape), shape)
    told = batch.rows.where(F.col(events.REASON).isNull())
    firsts = told.groupBy(*[F.col(quote(key)) for key in shape.keys]).agg(
        F.min_by(states.SEQUENCE, reserved_columns.ORDER).alias(boundary.FIRST),
        F.min_by(states.BEFORE, reserved_columns.ORDER).alias(states.AFTER),
    )
    of_keys = timeline.of_events(told, shape, reserved_columns.ORDER)
    before = timeline.of_events(
        firsts.where(F.col(states.AFTER).isNotNull()).select(
            *[F.col(quote(key)) for key in shape.keys],
            F.lit(None).cast(of_keys.schema[states.SEQUENCE].dataType).alias(states.SEQUENCE),
            F.lit(events.UPSERT).alias(events.KIND),
            states.AFTER,
            F.lit(None).cast("array<boolean>").alias(events.AUTHORED),
            F.lit(None).cast("bigint").alias(reserved_columns.ORDER),
        ),
        shape,
        reserved_columns.ORDER,
    ).withColumn(intervals.RANK, F.lit(0))
    runs = intervals.runs(before.unionByName(of_keys), shape)
    existing = difference.target_rows(job.session, job.spec.target_uri, shape, job.options)
    runs, existing = boundary.since(runs, existing, firsts, shape)
    made = Cut(difference.against_rows(runs, existing, shape), compared=True)
    # Keys without changes in the feed since then are compared with the source's current rows.
    untold = replace(chosen, without=firsts.select(*[F.col(quote(key)) for key in shape.keys]))
    others, highest = _compared(job, untold)
    merge = from_events.merged(job, [made, others], shape, (), evolve=evolve)
    return from_events.work(job, merge, shape, highest, ())
