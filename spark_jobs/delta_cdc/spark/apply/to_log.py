"""Append the changes of a table to a change log, as events: for a target of the kind ``change_log``.

An event has the values of its row (a delete, the values before it), and the columns of a log
(:data:`delta_cdc.core.change_log.LOG_COLUMNS`). It carries all columns of its row, so ``_columns`` is NULL.
Its position is the name of the pipeline and the version of the source, so the log shows where it came from.
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
from delta_cdc.spark.apply import batches, from_feed, load, refusals, schema
from delta_cdc.spark.apply.prepared_step import PreparedStep, StepContext
from delta_cdc.spark.apply.rows import OWN_SEQUENCE
from delta_cdc.spark.apply.sequences import as_text
from delta_cdc.spark.changes import states

if TYPE_CHECKING:
    from delta_cdc.core.spec import ApplySpec
    from delta_cdc.core.steps import Step
    from delta_cdc.spark.apply.rows import Shape

_POSITION_PARTS = ("file", "row", "topic", "partition", "offset")


def first(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    """Prepare the append of the rows of a snapshot, each as an upsert. It makes a log that does not exist."""
    context = StepContext.of(session, spec, step)
    snapshot, shape = load.read(context)
    _refuse_reserved(shape, context)
    # The check is that of a history: each row needs a key of its own, and a sequence.
    totals = load.checked(context, snapshot, replace(shape, sequence_type=shape.order_type))
    context.counts = {"rows": totals["rows"], **context.counts}
    state = F.struct(*[F.col(quote(name)) for name in (*shape.values, COMMIT_TIMESTAMP)])
    events = snapshot.select(
        state.alias(states.AFTER),
        F.lit(None).cast(_type_of(snapshot, state)).alias(states.BEFORE),
        states.SEQUENCE,
        F.col(COMMIT_VERSION).alias(ORDER),
    )
    log_rows, of_log = _logged(events, shape, context)
    return load.prepared(context, step, log_rows, of_log, totals["highest"])


def apply(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    """Prepare the append of each change of a range.

    Changes are those of the filtered and projected rows: a row that leaves the filter, or whose key changes,
    is a delete.
    """
    context = StepContext.of(session, spec, step)
    changes, shape = context.read(from_feed.change_rows(context))
    _refuse_reserved(shape, context)
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
    log_rows, of_log = _logged(batch.rows, shape, context)
    schema.check_target(context, of_log)
    log_rows = context.commented(log_rows)
    writer = log_rows.write.format("delta").mode("append").option("mergeSchema", "true")
    return PreparedStep(
        lambda: writer.save(spec.target_uri),
        context.counts,
        batch.totals["highest"],
        of_log,
        inserts=log_rows,
        alters=context.alters,
    )


def _logged(events: DataFrame, shape: Shape, context: StepContext) -> tuple[DataFrame, Shape]:
    """Return the rows of the log, and their shape.

    :param events: the states before and after, each with the time of its commit; sequence, and order
    """
    before, after = F.col(states.BEFORE), F.col(states.AFTER)
    row = F.coalesce(after, before)
    known = {"file": F.lit(context.spec.pipeline), "offset": F.col(ORDER)}
    position = F.struct(*[known.get(name, F.lit(None)).alias(name) for name in _POSITION_PARTS])
    columns: dict[str, Column] = {
        OP: F.when(after.isNull(), DELETE).otherwise(UPSERT),
        SEQUENCE: F.col(states.SEQUENCE),
        COLUMNS: F.lit(None).cast("array<string>"),
        TIMESTAMP: row.getField(COMMIT_TIMESTAMP),
        POSITION: position.cast(POSITION_DDL),
    }
    values = [row.getField(name).alias(name) for name in shape.values]
    rows = events.select(*values, *[columns[name].alias(name) for name in LOG_COLUMNS])
    for field in shape.schema.fields:
        if field.metadata:
            rows = rows.withMetadata(field.name, field.metadata)
    of_log = replace(shape, values=tuple(rows.columns), schema=rows.schema, order_type=None)
    return rows, of_log


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
