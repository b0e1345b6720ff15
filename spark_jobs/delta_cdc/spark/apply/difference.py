"""Compare desired rows with the target's rows: what a MERGE has to insert, update and delete.

The comparison stays lazy, so that Spark computes it inside the MERGE, on the version of the target that the
MERGE commits on. A difference computed earlier would silently overwrite the commits of other writers in
between, without any conflict.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from delta_cdc.core import sql
from delta_cdc.core.adapters import UPSERT as EVENT_UPSERT
from delta_cdc.core.errors import SequenceNotIncreasing
from delta_cdc.core.spec import DELETED_COLUMN
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark.apply import intervals, layout
from delta_cdc.spark.apply.events import KIND
from delta_cdc.spark.apply.intervals import BASE, DELETED, END, FOUND_DELETED, FROM_NOTHING, START
from delta_cdc.spark.apply.merge import Clause, Merge, from_source
from delta_cdc.spark.apply.prepared_step import PreparedStep
from delta_cdc.spark.apply.refusals import DUPLICATE_MARK
from delta_cdc.spark.apply.sequences import greater
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import comparable, conformed, laid_out_as, same
from delta_cdc.spark.changes.queries import raised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.spark.apply.prepared_step import StepContext
    from delta_cdc.spark.apply.rows import Shape

log = logging.getLogger(__name__)

OPERATION, _REPLACED = f"{PLAN_PREFIX}operation", f"{PLAN_PREFIX}replaced"
#: Columns of a row of the target: its values (struct) and its end.
FOUND, FOUND_END = f"{PLAN_PREFIX}existing", f"{PLAN_PREFIX}existing_end"
UPSERT, INSERT, UPDATE, DELETE, MARK, CLOSE = "upsert", "insert", "update", "delete", "mark", "close"
#: The sequence of a key's first change.
FIRST = f"{PLAN_PREFIX}first"
_SPANNING, _HAD = f"{PLAN_PREFIX}spanning", f"{PLAN_PREFIX}had"
#: Whether the key of a feed had a row before the range.
EXISTED = f"{PLAN_PREFIX}existed"
#: Conf of a MERGE whose source reads the target: Delta computes the source once, inside the transaction.
LAZY = {"spark.databricks.delta.merge.materializeSource": "auto"}


def target_rows(context: StepContext, shape: Shape, pruning: Sequence[str] = ()) -> DataFrame:
    """Return rows of the target: keys, values as :data:`FOUND`, start and end, or the soft-delete flag.

    :param pruning: SQL conditions on the keys of the alias ``t`` that skip files
    """
    options = context.options
    rows = context.session.read.format("delta").load(context.spec.target_uri).alias("t")
    for condition in pruning:
        rows = rows.where(F.expr(condition))
    types = {field.name.lower(): field for field in rows.schema.fields}

    def value_of(name: str) -> Column:
        desired_type = shape.schema[name].dataType
        field = types.get(name.lower())
        if field is None:
            return F.lit(None).cast(desired_type)
        return F.expr(conformed(sql.column("t", field.name), field.dataType, desired_type))

    columns = [value_of(key).alias(key) for key in shape.keys]
    columns.append(F.struct(*[value_of(name).alias(name) for name in shape.values]).alias(FOUND))
    if shape.sequence_type is not None:
        columns.append(F.col(f"t.{quote(options.start_column)}").alias(START))
        columns.append(F.col(f"t.{quote(options.end_column)}").alias(FOUND_END))
    if options.delete_mode == "soft":
        columns.append(F.coalesce(F.col(f"t.{quote(DELETED_COLUMN)}"), F.lit(False)).alias(FOUND_DELETED))
    return rows.select(*columns)


# -- type 1 -------------------------------------------------------------------------------------
def operations(last: DataFrame, shape: Shape, options: ApplyOptions, *, compared: bool) -> DataFrame:
    """Add the operation for each key's row, type 1; NULL for a row that stays as it is.

    :param last: rows with the columns of :func:`delta_cdc.spark.apply.intervals.last_states`
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
        if soft:
            unchanged = unchanged & (F.col(FOUND_DELETED) == F.col(DELETED))
            nothing = unchanged | (deleted & (base.isNull() | F.coalesce(F.col(FOUND_DELETED), F.lit(True))))
        else:
            nothing = (unchanged & ~F.col(DELETED)) | (F.col(DELETED) & base.isNull())
        operation = F.when(~nothing, operation)
    return last.withColumn(OPERATION, operation)


def merge_states(
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
    rows, shape = _laid_out(context, rows, shape)
    soft = context.options.delete_mode == "soft"
    operation = sql.column("s", OPERATION)
    values = from_source(shape.values)
    others = from_source(shape.others)
    if soft:
        others[DELETED_COLUMN] = values[DELETED_COLUMN] = sql.column("s", DELETED)
    clauses = [Clause(True, f"{operation} = '{DELETE}'", "delete")]
    mark = sql.column("t", DELETED_COLUMN)
    if EXISTED in rows.columns:
        first = shape.keys[0]
        key = sql.column("s", first)
        problem = f"concat('{DUPLICATE_MARK}', CAST({key} AS STRING))"
        unexpected = f"NOT {sql.column('s', EXISTED)}"
        checked_key = f"CASE WHEN {unexpected} THEN raise_error({problem}) ELSE {key} END"
        if soft:
            unexpected += f" AND NOT coalesce({mark}, false)"
        # The other columns come from the source, so that the MERGE need not read those of the target.
        clauses.append(Clause(True, unexpected, "update", {**others, first: checked_key}, raises=problem))
    if soft:
        clauses.append(
            Clause(
                True,
                f"{operation} = '{MARK}' AND NOT coalesce({mark}, false)",
                "update",
                {DELETED_COLUMN: "true"},
            )
        )
    if others:
        changed = f"{operation} = '{UPSERT}'"
        if compares:
            changed += f" AND NOT ({_same(context, shape, soft=soft)})"
        clauses.append(Clause(True, changed, "update", others))
    clauses.append(Clause(False, f"{operation} = '{UPSERT}'", "insert", values))
    on = _keys_match(context, shape)
    confs = LAZY if lazy else {}
    return Merge(context.spec.target_uri, rows, (*on, *pruning), tuple(clauses), confs=confs)


def _laid_out(context: StepContext, rows: DataFrame, shape: Shape) -> tuple[DataFrame, Shape]:
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


def _keys_match(context: StepContext, shape: Shape) -> list[str]:
    """Return the conditions of ON that a row of the source and a row of the target have the same key."""
    conditions = []
    for key in shape.keys:
        wanted = shape.schema[key].dataType
        target_type = context.target_types.get(key.lower(), wanted)
        conditions.append(f"{conformed(sql.column('t', key), target_type, wanted)} = {sql.column('s', key)}")
    return conditions


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
    if soft:
        conditions.append(f"{sql.column('t', DELETED_COLUMN)} <=> {sql.column('s', DELETED)}")
    return " AND ".join(conditions) or "true"


# -- type 2 -------------------------------------------------------------------------------------
def against_base(runs: DataFrame, shape: Shape, *, growing: bool = False, in_place: bool = True) -> DataFrame:
    """Add the operations for runs of keys whose open row, if any, is the base of their timeline.

    :param runs: :func:`delta_cdc.spark.apply.intervals.runs`
    :param growing: the sequence must be above the start of the open row; otherwise Spark raises
        :class:`~delta_cdc.core.errors.SequenceNotIncreasing` when it evaluates the rows
    :param in_place: an event at exactly that start replaces the row, because it is the same event
    :return: the rows of history with :data:`OPERATION`; NULL for a row that stays as it is
    """
    runs = intervals.history_rows(runs)
    base, end = F.col(BASE), F.col(END)
    # An event at the start of the base replaces the base: the target has one row, not two.
    at_start = Window.partitionBy(*shape.key_columns, START)
    replaced = F.count("*").over(at_start) > 1
    runs = runs.withColumn(_REPLACED, replaced)
    nothing = F.lit(None).cast("string")
    unchanged = end.isNull() & same(BASE, states.AFTER, shape.schema, shape.values)
    problem = "a key's sequence does not lie above the start of its open row in the target."
    shrinking = raised(SequenceNotIncreasing, [problem]) if growing else F.lit(DELETE)
    operation = (
        F.when(base.isNull(), F.when(F.col(_REPLACED), UPDATE).otherwise(INSERT))
        .when(F.lit(in_place) & F.col(_REPLACED), nothing)
        .when(F.lit(in_place) & (end == F.col(START)), DELETE)
        .when(end.isNotNull() & ~(F.col(START) < end), shrinking)
        .when(~unchanged, UPDATE)
    )
    return runs.withColumn(OPERATION, operation)


def against_states(runs: DataFrame) -> DataFrame:
    """Add the operations for runs of a feed, whose bases are the states before the first events.

    The open row of a key ends with its base's run; its start and its other values are unknown.

    :param runs: :func:`delta_cdc.spark.apply.intervals.runs`
    :return: ``runs`` with :data:`OPERATION`; NULL for a run of deletes
    """
    operation = F.when(F.col(BASE).isNull(), INSERT).when(F.col(START).isNull(), CLOSE).otherwise(UPDATE)
    return runs.withColumn(OPERATION, F.when(F.col(KIND) == EVENT_UPSERT, operation))


def against_rows(desired: DataFrame, existing: DataFrame, shape: Shape) -> DataFrame:
    """Return the rows of keys whose whole history is recomputed, with their operations.

    :param desired: :func:`delta_cdc.spark.apply.intervals.history_rows`
    :param existing: :func:`target_rows` of these keys
    :return: only rows that the target lacks, has to delete, or has with other values
    """
    keys = shape.key_columns
    is_desired = F.lit(True).alias(_THERE)
    desired = desired.select(*keys, START, END, states.AFTER, is_desired)
    names = [*shape.keys, START]
    joined = desired.join(existing.select(*keys, START, FOUND, FOUND_END), on=names, how="full")
    unchanged = F.col(END).eqNullSafe(F.col(FOUND_END)) & same(
        FOUND, states.AFTER, shape.schema, shape.values
    )
    operation = (
        F.when(F.col(_THERE).isNull(), DELETE).when(F.col(FOUND).isNull(), INSERT).when(~unchanged, UPDATE)
    )
    return joined.withColumn(OPERATION, operation)


_THERE = f"{PLAN_PREFIX}there"


def is_changed() -> Column:
    """Return whether a row of the target has to change."""
    return F.col(OPERATION).isNotNull()


def flat(rows: DataFrame, shape: Shape, further_columns: Sequence[str | Column] = ()) -> DataFrame:
    """Return the source of a MERGE: keys, values, operation, and start and end, or the soft-delete flag.

    :param rows: rows with :data:`OPERATION`
    """
    placed = [START, END] if shape.sequence_type is not None else [DELETED]
    return rows.select(
        *shape.key_columns,
        *[F.col(states.AFTER).getField(name).alias(name) for name in shape.others],
        *placed,
        OPERATION,
        *further_columns,
    )


def merge_history(
    context: StepContext,
    rows: DataFrame,
    shape: Shape,
    pruning: Sequence[str],
    *,
    open_only: bool,
    lazy: bool,
) -> Merge:
    """Return the MERGE of type 2.

    :param rows: from :func:`against_base`, :func:`against_states` and :func:`against_rows`, flat
    :param open_only: the rows change only open rows of the target, at most one for each key; Delta skips
        files that have no open row. Otherwise rows match by keys and start
    :param lazy: the rows are computed from rows of the target
    """
    rows, shape = _laid_out(context, rows, shape)
    options = context.options
    operation, start, end = (sql.column("s", name) for name in (OPERATION, START, END))
    values = from_source(shape.values)
    others = from_source(shape.others)
    close = {options.end_column: end}
    insert = {**values, options.start_column: start, options.end_column: end}
    on = _keys_match(context, shape)
    if open_only:
        on += [f"{sql.column('t', options.end_column)} IS NULL", f"{operation} <> '{INSERT}'"]
    else:
        on.append(f"{sql.column('t', options.start_column)} = {start}")
    # If the target started without a snapshot, an updated key may have no open row. Then it gets one.
    missing = f"{operation} = '{UPDATE}' AND ({end} IS NULL OR {start} < {end})"
    clauses = (
        Clause(True, f"{operation} = '{DELETE}'", "delete"),
        Clause(True, f"{operation} = '{CLOSE}'", "update", close),
        Clause(True, f"{operation} = '{UPDATE}'", "update", {**others, **close}),
        Clause(False, f"({operation} = '{INSERT}' OR {missing})", "insert", insert),
    )
    confs = LAZY if lazy else {}
    return Merge(context.spec.target_uri, rows, (*on, *pruning), tuple(clauses), confs=confs)


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

    :param merge: from :func:`merge_states` or :func:`merge_history`
    :param highest: greatest sequence of the step's rows, as text
    :param truncates: sequences for the seal, including those of earlier steps
    """
    merge = replace(merge, source=context.commented(merge.source), evolve=context.evolve)
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
        alters=context.alters,
    )


# -- history before a boundary stays ---------------------------------------------------------------
def from_horizon(
    desired: DataFrame, existing: DataFrame, shape: Shape, boundary: Column
) -> tuple[DataFrame, DataFrame]:
    """Keep rows that were closed before a boundary, and the start of the row that spans it.

    :param desired: rows of history; some events below the boundary may no longer exist
    :param existing: rows of the target
    :param boundary: a sequence
    :return: desired rows and rows of the target, without the rows that stay unchanged
    """
    keys = shape.key_columns
    reaches = F.col(FOUND_END).isNull() | (F.col(FOUND_END) >= boundary)
    overlapping = existing.where(reaches)
    spanning = overlapping.where(F.col(START) < boundary).groupBy(*keys).agg(F.max(START).alias(_SPANNING))
    desired = desired.where(F.col(END).isNull() | (F.col(END) >= boundary))
    desired = desired.join(spanning, on=list(shape.keys), how="left")
    start = F.when(F.col(START) < boundary, F.coalesce(F.col(_SPANNING), F.col(START))).otherwise(
        F.col(START)
    )
    return desired.withColumn(START, start).drop(_SPANNING), overlapping


def from_first_change(
    desired: DataFrame, existing: DataFrame, firsts: DataFrame, shape: Shape
) -> tuple[DataFrame, DataFrame]:
    """Keep history that is older than the first change of each key.

    :param desired: rows of history; a row that was open before the first change (it has a base) takes the
        start of the target's last row before that change
    :param firsts: keys, :data:`FIRST`, and the state before that change (NULL: no state)
    :return: desired rows and rows of the target, without the rows that stay unchanged
    """
    keys = shape.key_columns
    names = list(shape.keys)
    had_state = F.col(states.AFTER).isNotNull().alias(_HAD)
    existing_rows = existing.join(firsts.select(*keys, FIRST, had_state), on=names)
    starts = F.max(F.when(F.col(START) < F.col(FIRST), F.col(START))).alias(_SPANNING)
    spanning = existing_rows.groupBy(*keys).agg(starts)
    existing_rows = existing_rows.join(spanning, on=names)
    is_last = F.coalesce(F.col(START) == F.col(_SPANNING), F.lit(False))
    reaches = F.col(FOUND_END).isNull() | (F.col(FOUND_END) >= F.col(FIRST))
    overlapping = existing_rows.where(reaches | (F.col(_HAD) & is_last))
    desired = desired.join(firsts.select(*keys, FIRST), on=names).join(spanning, on=names, how="left")
    start = F.when(F.col(BASE).isNull(), F.col(START)).otherwise(F.coalesce(_SPANNING, FIRST))
    desired = desired.withColumn(START, start).where(F.col(END).isNull() | (F.col(START) < F.col(END)))
    # The source had no row before the key's first change, so the target's row ends at that change.
    closed = overlapping.where(~F.col(_HAD) & (F.col(START) < F.col(FIRST))).select(
        *keys, START, F.col(FIRST).alias(END), F.col(FOUND).alias(states.AFTER)
    )
    return desired.select(*keys, START, END, states.AFTER).unionByName(closed), overlapping
