"""Type 1: the last state of a key from its entries, and the MERGE that brings it into the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delta_cdc.core import sql
from delta_cdc.core.adapters import UPSERT as EVENT_UPSERT
from delta_cdc.core.reserved_columns import DELETED_COLUMN
from delta_cdc.spark.apply import row_hash, times
from delta_cdc.spark.apply.difference import (
    DELETE,
    EXISTED,
    LAZY,
    MARK,
    OPERATION,
    UPSERT,
    checked_key,
    keys_match,
    laid_out,
)
from delta_cdc.spark.apply.entries import BASE, DELETED, FOUND_DELETED, FROM_NOTHING, NO_ROW, order
from delta_cdc.spark.apply.events import KIND
from delta_cdc.spark.apply.merge import Clause, Merge, from_source
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import comparable, same

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.spark.apply.prepared_step import StepContext
    from delta_cdc.spark.apply.rows import Shape


def last_states(entries: DataFrame, shape: Shape) -> DataFrame:
    """Return the state of every key after its timeline, type 1.

    :param entries: after :func:`delta_cdc.spark.apply.entries.inherited`; a base that is soft-deleted is a
        delete
    :return: keys, values (struct; for a deleted key those of its last upsert, NULL if it had none), deleted,
        base and its soft-delete flag, whether the key began with :data:`NO_ROW`; and the times of the row
        (:func:`delta_cdc.spark.apply.times.of_last_life`), if the target has them
    """
    keys = shape.key_columns
    of_times: list[Column] = []
    if shape.time_type is not None:
        entries, of_times = times.flagged(entries, shape), times.of_last_life()
    in_order = F.struct(*order())
    has_values = F.col(states.AFTER).isNotNull()
    return entries.groupBy(*keys).agg(
        F.max_by(states.AFTER, F.when(has_values, in_order)).alias(states.AFTER),
        (F.max_by(KIND, in_order) != EVENT_UPSERT).alias(DELETED),
        F.min_by(BASE, in_order).alias(BASE),
        F.max(FOUND_DELETED).alias(FOUND_DELETED),
        F.max(F.col(KIND) == NO_ROW).alias(FROM_NOTHING),
        *of_times,
    )


def operations(last: DataFrame, shape: Shape, options: ApplyOptions, *, compared: bool) -> DataFrame:
    """Add the operation for each key's row, type 1; NULL for a row that stays as it is.

    :param last: rows with the columns of :func:`last_states`
    :param compared: the base is the target's row; otherwise the conditions of the MERGE compare
    """
    soft = options.delete_mode == "soft"
    # If no event carries the values of a deleted row, the target keeps its values. But if a conflict removed
    # all upserts of a key that had no row before, the row is deleted.
    deletion = F.when(F.col(FROM_NOTHING), DELETE).otherwise(MARK) if soft else F.lit(DELETE)
    has_values = F.col(states.AFTER).isNotNull()
    deleted = F.col(DELETED) & ~has_values if soft else F.col(DELETED)
    operation = F.when(deleted, deletion).otherwise(UPSERT)
    if compared:
        base = F.col(BASE)
        unchanged = base.isNotNull() & has_values & same(BASE, states.AFTER, shape.schema, shape.values)
        if shape.time_type is not None:
            unchanged = unchanged & times.are_those_of_base()
        if soft:
            unchanged = unchanged & (F.col(FOUND_DELETED) == F.col(DELETED))
            nothing = unchanged | (deleted & (base.isNull() | F.coalesce(F.col(FOUND_DELETED), F.lit(True))))
        else:
            nothing = (unchanged & ~F.col(DELETED)) | (F.col(DELETED) & base.isNull())
        operation = F.when(~nothing, operation)
    return last.withColumn(OPERATION, operation)


def merge(
    context: StepContext,
    rows: DataFrame,
    shape: Shape,
    pruning: Sequence[str],
    *,
    compares: bool = False,
    lazy: bool = False,
) -> Merge:
    """Return the MERGE of type 1: one source row per key.

    :param rows: from :func:`operations`, flat. If they have the column :data:`EXISTED`, the statement fails
        if the source inserts a key that the target has, because then two rows of the source share the key
    :param compares: the statement leaves out the rows that the target already has; otherwise every row
        differs, or may be written with equal values
    :param lazy: the rows are computed from rows of the target
    """
    rows, shape = laid_out(context, rows, shape)
    options = context.options
    rows = row_hash.with_hash(rows, shape, options)
    soft = options.delete_mode == "soft"
    operation = sql.column("s", OPERATION)
    values = from_source(shape.values)
    others = from_source(shape.others)
    if soft:
        others[DELETED_COLUMN] = values[DELETED_COLUMN] = sql.column("s", DELETED)
    of_row = {name: sql.column("s", column) for name, column in times.columns(options).items()}
    values |= of_row
    others |= of_row
    if options.row_hash_column is not None:
        values |= from_source([options.row_hash_column])
        others |= from_source([options.row_hash_column]) if others else {}
    clauses = [Clause(True, f"{operation} = '{DELETE}'", "delete")]
    mark = sql.column("t", DELETED_COLUMN)
    if EXISTED in rows.columns:
        unexpected = f"NOT {sql.column('s', EXISTED)}"
        problem, key = checked_key(shape, unexpected)
        if soft:
            unexpected += f" AND NOT coalesce({mark}, false)"
        # The other columns come from the source, so that the MERGE need not read those of the target.
        clauses.append(Clause(True, unexpected, "update", {**others, **key}, raises=problem))
    if soft:
        marked = {name: value for name, value in of_row.items() if name == options.changed_column}
        clauses.append(
            Clause(
                True,
                f"{operation} = '{MARK}' AND NOT coalesce({mark}, false)",
                "update",
                {DELETED_COLUMN: "true", **marked},
            )
        )
    if others:
        changed = f"{operation} = '{UPSERT}'"
        if compares:
            changed += f" AND NOT ({_same(context, shape, soft=soft)})"
        clauses.append(Clause(True, changed, "update", others))
    clauses.append(Clause(False, f"{operation} = '{UPSERT}'", "insert", values))
    on = keys_match(context, shape)
    confs = LAZY if lazy else {}
    return Merge(context.spec.target_uri, rows, (*on, *pruning), tuple(clauses), confs=confs)


def _same(context: StepContext, shape: Shape, *, soft: bool) -> str:
    """Return the SQL condition that the target's row (``t``) already has the values of the source's row.

    The statement cannot refer to a column of the target that it adds.
    """
    conditions = []
    for name in shape.others:
        target_type, wanted = context.target_types.get(name.lower()), shape.schema[name].dataType
        if target_type is None:
            conditions.append(f"{sql.column('s', name)} IS NULL")
            continue
        current_value = comparable(sql.column("t", name), target_type, wanted)
        conditions.append(f"{current_value} <=> {comparable(sql.column('s', name), wanted)}")
    for name, column in times.columns(context.options).items():
        conditions.append(f"{sql.column('t', name)} <=> {sql.column('s', column)}")
    if soft:
        conditions.append(f"{sql.column('t', DELETED_COLUMN)} <=> {sql.column('s', DELETED)}")
    return " AND ".join(conditions) or "true"
