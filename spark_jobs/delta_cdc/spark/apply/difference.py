"""Compare desired rows with the target's rows: what a MERGE has to insert, update and delete.

The comparison stays lazy, so that Spark computes it inside the MERGE, on the version of the target that the
MERGE commits on. A difference computed earlier would silently overwrite the commits of other writers in
between, without any conflict.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from delta_cdc.core import sql
from delta_cdc.core.reserved_columns import DELETED_COLUMN, TIMES
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark.apply import layout, target_columns
from delta_cdc.spark.apply.entries import CHANGED, CREATED, DELETED, END, FOUND_DELETED, START
from delta_cdc.spark.apply.prepared_step import PreparedStep
from delta_cdc.spark.apply.refusals import DUPLICATE_MARK
from delta_cdc.spark.apply.sequences import greater
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import conformed, laid_out_as

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.spark.apply.merge import Merge
    from delta_cdc.spark.apply.prepared_step import StepContext
    from delta_cdc.spark.apply.rows import Shape

log = logging.getLogger(__name__)

OPERATION = f"{PLAN_PREFIX}operation"
#: Columns of a row of the target: its values (struct) and its end.
FOUND, FOUND_END = f"{PLAN_PREFIX}existing", f"{PLAN_PREFIX}existing_end"
#: The times of a row of the target, type 1.
FOUND_CREATED, FOUND_CHANGED = f"{PLAN_PREFIX}existing_created", f"{PLAN_PREFIX}existing_changed"
UPSERT, INSERT, UPDATE, DELETE, MARK, CLOSE = "upsert", "insert", "update", "delete", "mark", "close"
#: Of a key that came and went within a range: the target must not have it, and does not change.
ABSENT = "absent"
#: Whether the key of a feed had a row before the range.
EXISTED = f"{PLAN_PREFIX}existed"
#: Of a row of history: whether it is the first one of a key that had no row before the range.
IS_FIRST = f"{PLAN_PREFIX}is_first"
#: Conf of a MERGE whose source reads the target: Delta computes the source once, inside the transaction.
LAZY = {"spark.databricks.delta.merge.materializeSource": "auto"}


def target_rows(
    context: StepContext, shape: Shape, pruning: Sequence[str] = (), *, open_only: bool = False
) -> DataFrame:
    """Return rows of the target: keys, values as :data:`FOUND`, start and end, mark of deleted rows, times.

    :param pruning: SQL conditions on the keys of the alias ``t`` that skip files
    :param open_only: of a history, only the open rows
    """
    options = context.options
    rows = context.session.read.format("delta").load(context.spec.target_uri).alias("t")
    if open_only and shape.sequence_type is not None:
        # On the stored value, so that Delta skips files without such rows.
        end_type, end = target_columns.end_type(rows, options), f"t.{quote(options.end_column)}"
        rows = rows.where(F.expr(target_columns.is_open(options, end_type, end)))
    rows = target_columns.plain(rows, options).alias("t")
    for condition in pruning:
        rows = rows.where(F.expr(condition))
    types = {field.name.lower(): field for field in rows.schema.fields}

    def value_of(name: str) -> Column:
        desired_type = shape.schema[name].dataType
        # A limit on changes is checked before columns are renamed: a new name is no change of all rows.
        field = types.get(context.old_names.get(name.lower(), name).lower())
        if field is None:
            return F.lit(None).cast(desired_type)
        if name == shape.flag:
            return F.coalesce(F.col(f"t.{quote(field.name)}"), F.lit(False))
        return F.expr(conformed(sql.column("t", field.name), field.dataType, desired_type))

    columns = [value_of(key).alias(key) for key in shape.keys]
    columns.append(F.struct(*[value_of(name).alias(name) for name in shape.values]).alias(FOUND))
    if shape.sequence_type is not None:
        columns.append(F.col(f"t.{quote(options.start_column)}").alias(START))
        columns.append(F.col(f"t.{quote(options.end_column)}").alias(FOUND_END))
    if options.keeps_deleted:
        columns.append(F.coalesce(F.col(f"t.{quote(DELETED_COLUMN)}"), F.lit(False)).alias(FOUND_DELETED))
    if shape.time_type is not None:
        for option, found in zip(TIMES, (FOUND_CREATED, FOUND_CHANGED), strict=True):
            time = types.get((getattr(options, option) or "").lower())
            value = F.lit(None) if time is None else F.col(f"t.{quote(time.name)}")
            columns.append(value.cast(shape.time_type).alias(found))
    return rows.select(*columns)


def laid_out(context: StepContext, rows: DataFrame, shape: Shape) -> tuple[DataFrame, Shape]:
    """Return the source of a MERGE with the fields of structs in the target's order.

    Delta 4.4 matches them by position in arrays of arrays, arrays of maps, and keys of maps in arrays.
    """
    fields, moved = [], {}
    for field in shape.schema.fields:
        target_type = context.target_types.get(field.name.lower(), field.dataType)
        placed = laid_out_as(field.dataType, target_type)
        value = conformed(quote(field.name), field.dataType, placed)
        if value != quote(field.name):
            moved[field.name] = F.expr(value)
            field = StructField(field.name, placed, field.nullable, field.metadata)
        fields.append(field)
    return rows.withColumns(moved) if moved else rows, replace(shape, schema=StructType(fields))


def keys_match(context: StepContext, shape: Shape) -> list[str]:
    """Return the conditions of ON that a row of the source and a row of the target have the same key."""
    conditions = []
    for key in shape.keys:
        wanted = shape.schema[key].dataType
        target_type = context.target_types.get(key.lower(), wanted)
        conditions.append(f"{conformed(sql.column('t', key), target_type, wanted)} = {sql.column('s', key)}")
    return conditions


def is_merged() -> Column:
    """Return whether a row takes part in the MERGE: it changes the target, or is checked against it."""
    return F.col(OPERATION).isNotNull()


def is_changed() -> Column:
    """Return whether a row of the target has to change."""
    return is_merged() & (F.col(OPERATION) != ABSENT)


def checked_key(shape: Shape, unexpected: str) -> tuple[str, dict[str, str]]:
    """Return what makes a MERGE fail that finds a row of the target which the source says does not exist.

    Then two rows of the source share the key.

    :param unexpected: SQL condition on the rows
    :return: SQL of the message; the first key column with an SQL expression that raises it
    """
    first = shape.keys[0]
    key = sql.column("s", first)
    problem = f"concat('{DUPLICATE_MARK}', CAST({key} AS STRING))"
    return problem, {first: f"CASE WHEN {unexpected} THEN raise_error({problem}) ELSE {key} END"}


def flat(rows: DataFrame, shape: Shape, further_columns: Sequence[str | Column] = ()) -> DataFrame:
    """Return the source of a MERGE: keys, values, operation, and start and end, or the soft-delete flag
    and the times.

    :param rows: rows with :data:`OPERATION`
    """
    placed = [START, END] if shape.sequence_type is not None else [DELETED]
    if shape.time_type is not None:
        placed += [CREATED, CHANGED]
    return rows.select(
        *shape.key_columns,
        *[F.col(states.AFTER).getField(name).alias(name) for name in shape.others],
        *placed,
        OPERATION,
        *further_columns,
    )


def prepared(
    context: StepContext,
    merge: Merge,
    shape: Shape,
    highest: str | None = None,
    truncates: tuple[str, ...] = (),
    *,
    changed: int,
    rewritten: int,
    size: int | None,
) -> PreparedStep:
    """Return the step with its MERGE.

    For ``changed``, ``rewritten`` and ``size`` see :func:`delta_cdc.spark.apply.layout.tuned`.

    :param merge: of :mod:`~delta_cdc.spark.apply.latest` or :mod:`~delta_cdc.spark.apply.history`
    :param highest: greatest sequence of the step's rows, as text
    :param truncates: sequences for the seal, including those of earlier steps
    """
    merge = replace(merge, source=context.commented(merge.source), evolve=context.evolve)
    highest = greater(context.session, shape.order_type, highest, context.highest)
    merge = layout.tuned(context, merge, changed=changed, rewritten=rewritten, size=size)
    log.debug("%s", merge.statement)
    return PreparedStep(
        lambda: merge.run(context.session),
        context.counts,
        greater(context.session, shape.order_type, context.step.highest_sequence, highest),
        shape,
        truncates,
        merge=merge,
        quarantined=context.quarantined,
        settled=context.settled,
        alters=context.alters,
        changed=changed,
        copies=context.copies,
    )
