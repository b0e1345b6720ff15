"""Append the changes of a table to a change log, as events: for a target of the kind ``change_log``.

The source may be a table of events itself: then each of its rows is an event.
An event has the values of its row (a delete, the values before it), and the columns of a log
(:data:`delta_cdc.core.change_log.LOG_COLUMNS`). It carries all columns of its row, so ``_columns`` is NULL.
Its position is the first name of the pipeline and the version of the source, so the log shows where it came
from.
The order of events is that of their sequences, however late one is appended.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core.adapters import DELETE, UPSERT
from delta_cdc.core.change_log import COLUMNS, LOG_COLUMNS, OP, POSITION, POSITION_DDL, SEQUENCE
from delta_cdc.core.change_log import SOURCE_TIMESTAMP as TIMESTAMP
from delta_cdc.core.errors import ReservedColumnName
from delta_cdc.core.reserved_columns import COMMIT_TIMESTAMP, COMMIT_VERSION, ORDER
from delta_cdc.core.sql import quote
from delta_cdc.spark import column_needs
from delta_cdc.spark.apply import batches, events, from_events, from_feed, load, refusals, schema
from delta_cdc.spark.apply.prepared_step import PreparedStep, StepContext
from delta_cdc.spark.apply.rows import OWN_SEQUENCE
from delta_cdc.spark.apply.sequences import as_text
from delta_cdc.spark.changes import states

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta_cdc.core.spec import ApplySpec
    from delta_cdc.core.steps import Step
    from delta_cdc.spark.apply.rows import Shape

_POSITION_PARTS = ("file", "row", "topic", "partition", "offset")


def first(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    """Prepare the first append, which makes a log that does not exist: the rows of a snapshot, or all events.

    A row of a snapshot is an upsert.
    """
    context = StepContext.of(session, spec, step)
    if context.options.source_kind == "change_log":
        added = F.coalesce(COMMIT_VERSION, F.lit(step.at).cast("bigint"))
        read = from_events.all_rows(context, with_versions=True).withColumn(COMMIT_VERSION, added)
        log_rows, of_log, highest = _events(context, read.limit(0) if step.read.is_empty else read)
        return load.prepared(context, step, log_rows, of_log, highest)
    snapshot, shape = load.read(context)
    # The check is that of a history: each row needs a key of its own, and a sequence.
    totals = load.checked(context, snapshot, replace(shape, sequence_type=shape.order_type))
    context.counts = {"rows": totals["rows"], **context.counts}
    state = F.struct(*[F.col(quote(name)) for name in (*shape.values, COMMIT_TIMESTAMP)])
    changes = snapshot.select(
        state.alias(states.AFTER),
        F.lit(None).cast(_type_of(snapshot, state)).alias(states.BEFORE),
        states.SEQUENCE,
        F.col(COMMIT_VERSION).alias(ORDER),
    )
    log_rows, of_log = _of_changes(changes, shape, context)
    return load.prepared(context, step, log_rows, of_log, totals["highest"])


def apply(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    """Prepare the append of each change of a range.

    Changes are those of the filtered and projected rows: a row that leaves the filter, or whose key changes,
    is a delete. Of a table of events, they are the added events that match the filter.
    """
    context = StepContext.of(session, spec, step)
    if context.options.source_kind == "change_log":
        return _appended(context, *_events(context, from_events.batch_rows(context)))
    changes, shape = context.read(from_feed.change_rows(context))
    by_version = states.version_states(changes, shape.keys, (*shape.values, COMMIT_TIMESTAMP, OWN_SEQUENCE))
    faulty = F.col(states.DUPLICATE) | F.col(states.UNKNOWN)
    before, after = F.col(states.BEFORE), F.col(states.AFTER)
    # With a later sequence, equal values may count before those of another source.
    is_moved = ~before.getField(OWN_SEQUENCE).eqNullSafe(after.getField(OWN_SEQUENCE))
    moved = before.isNotNull() & after.isNotNull() & is_moved
    entries = by_version.where(from_feed.is_change(states.BEFORE, shape) | moved | faulty)
    sequence = F.col(states.SEQUENCE)
    # Else the row, with the higher sequence, would count for ever.
    disorder = after.isNull() & (sequence < before.getField(OWN_SEQUENCE))
    assert shape.order_type is not None
    lacks_sequence = sequence.isNull()
    batch = batches.materialise(
        entries,
        shape,
        {
            "events": F.count("*"),
            "highest": as_text(F.max(sequence), shape.order_type),
            refusals.UNKNOWN_TYPE: F.count_if(states.UNKNOWN),
            refusals.NULL_KEY: F.count_if(batches.null_key(shape)),
            # Rows without a key have no identity, so they cannot be duplicates.
            refusals.DUPLICATE: F.count_if(F.col(states.DUPLICATE) & ~batches.null_key(shape)),
            refusals.NULL_SEQUENCE: F.count_if(lacks_sequence),
            refusals.DISORDER: F.count_if(disorder),
        },
        with_ranges=False,
    )
    conditions = {
        refusals.DUPLICATE: F.col(states.DUPLICATE),
        refusals.NULL_SEQUENCE: lacks_sequence,
        refusals.DISORDER: disorder,
    }
    refusals.refuse(batch.totals, batch.rows, shape, context, conditions)
    context.count(events=batch.totals["events"])
    return _appended(context, *_of_changes(batch.rows, shape, context), batch.totals["highest"])


def _appended(context: StepContext, log_rows: DataFrame, of_log: Shape, highest: str | None) -> PreparedStep:
    """Return the prepared append of some rows of the log."""
    schema.check_target(context, of_log)
    log_rows = context.commented(log_rows)
    writer = log_rows.write.format("delta").mode("append").option("mergeSchema", "true")
    return PreparedStep(
        lambda: writer.save(context.spec.target_uri),
        context.counts,
        highest,
        of_log,
        inserts=log_rows,
        alters=context.alters,
    )


def _events(context: StepContext, source_rows: DataFrame) -> tuple[DataFrame, Shape, str | None]:
    """Check the events of a source; return the rows of the log, their shape, and the highest sequence.

    Equal keys and sequences are no fault: the apply of the log decides between such events.
    """
    found = events.of_step(context, source_rows, counted=True)
    shape, sequence = found.shape, F.col(states.SEQUENCE)
    assert shape.order_type is not None
    batch = batches.materialise(
        found.rows,
        shape,
        {
            "events": F.count("*"),
            "highest": as_text(F.max(sequence), shape.order_type),
            **{reason: F.count_if(F.col(events.REASON) == reason) for reason in events.INVALID},
        },
        with_ranges=False,
    )
    events.refuse_invalid(context, batch, shape)
    context.count(events=batch.totals["events"])
    after = F.col(states.AFTER)
    values = {
        # A delete has its key alone: the values of its row may be anything.
        name: F.col(quote(name)) if name in shape.keys else after.getField(name)
        for name in shape.values
    }
    # The time of an event is known if it is what orders the events.
    time = sequence if isinstance(shape.order_type, T.TimestampType) else F.lit(None)
    added = {OP: F.col(events.KIND), TIMESTAMP: time}
    log_rows, of_log = _logged(batch.rows, shape, context, values, added, F.col(COMMIT_VERSION))
    return log_rows, of_log, batch.totals["highest"]


def _of_changes(changes: DataFrame, shape: Shape, context: StepContext) -> tuple[DataFrame, Shape]:
    """Return the rows of the log, and their shape.

    :param changes: the states before and after, each with the time of its commit; sequence, and order
    """
    before, after = F.col(states.BEFORE), F.col(states.AFTER)
    row = F.coalesce(after, before)
    values = {name: row.getField(name) for name in shape.values}
    added = {
        OP: F.when(after.isNull(), DELETE).otherwise(UPSERT),
        TIMESTAMP: row.getField(COMMIT_TIMESTAMP),
    }
    return _logged(changes, shape, context, values, added, F.col(ORDER))


def _logged(
    rows: DataFrame,
    shape: Shape,
    context: StepContext,
    values: Mapping[str, Column],
    added: Mapping[str, Column],
    version: Column,
) -> tuple[DataFrame, Shape]:
    """Return rows with the columns of the log, and their shape.

    :param rows: with :data:`~delta_cdc.spark.changes.states.SEQUENCE`
    :param values: the columns of the source
    :param added: the columns of a log that differ by source
    :param version: the version of the source that added a row
    """
    _refuse_reserved(shape, context)
    known = {"file": F.lit(context.origin), "offset": version}
    position = F.struct(*[known.get(name, F.lit(None)).alias(name) for name in _POSITION_PARTS])
    of_all: dict[str, Column] = {
        **added,
        SEQUENCE: F.col(states.SEQUENCE),
        COLUMNS: F.lit(None).cast("array<string>"),
        TIMESTAMP: added[TIMESTAMP].cast("timestamp"),
        POSITION: position.cast(POSITION_DDL),
    }
    log_rows = rows.select(
        *[column.alias(name) for name, column in values.items()],
        *[of_all[name].alias(name) for name in LOG_COLUMNS],
    )
    with_some = {field.name: field.metadata for field in shape.schema.fields if field.metadata}
    log_rows = column_needs.with_metadata(log_rows, with_some)
    of_log = replace(shape, values=tuple(log_rows.columns), schema=log_rows.schema, order_type=None)
    return log_rows, of_log


def _type_of(rows: DataFrame, state: Column) -> T.DataType:
    return rows.select(state.alias("state")).schema["state"].dataType


def _refuse_reserved(shape: Shape, context: StepContext) -> None:
    """Refuse columns that a log has itself.

    :raises ReservedColumnName: names them
    """
    taken = [name for name in shape.values if name.lower() in LOG_COLUMNS]
    if taken:
        raise ReservedColumnName(
            f"The rows of {context.source} have the column {', '.join(taken)}, which a change log has "
            "itself.",
            remedy="rename it with select, or leave it out with except_column_list.",
        )
