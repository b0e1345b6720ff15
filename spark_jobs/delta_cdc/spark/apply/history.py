"""History (SCD type 2): the rows of a key from its entries, and the MERGE that brings them into the target.

:func:`runs` makes runs of entries: consecutive entries with equal tracked columns belong to one row. Then one
of three functions compares them with the target: :func:`against_states` (a feed, which has the states
before), :func:`against_base` (the open row is the base), or :func:`against_rows` (the whole history of the
keys is computed again). :func:`merge` writes what differs.

Worked example, tracked = name::

    base      (1, ann, city a)  from 3
    events    5: ann, city b     tracked columns equal: the run continues
              7: bob, city b     a new run starts
              9: delete
    rows      (1, ann, city b) [3, 7)     the base's start, values of the run's last event
              (1, bob, city b) [7, 9)
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from delta_cdc.core import sql
from delta_cdc.core.adapters import UPSERT as EVENT_UPSERT
from delta_cdc.core.errors import SequenceNotIncreasing
from delta_cdc.core.sql import PLAN_PREFIX
from delta_cdc.spark.apply import difference, row_hash, target_columns
from delta_cdc.spark.apply.difference import (
    CLOSE,
    DELETE,
    FOUND,
    FOUND_END,
    INSERT,
    LAZY,
    OPERATION,
    UPDATE,
    keys_match,
    laid_out,
)
from delta_cdc.spark.apply.entries import BASE, END, START, order, order_window
from delta_cdc.spark.apply.events import KIND
from delta_cdc.spark.apply.merge import Clause, Merge, from_source
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import same
from delta_cdc.spark.changes.queries import raised

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.spark.apply.prepared_step import StepContext
    from delta_cdc.spark.apply.rows import Shape

#: Number of a run of history: 0 continues the base's row, later runs start rows of their own.
RUN = f"{PLAN_PREFIX}run"
#: The sequence of a key's first change.
FIRST = f"{PLAN_PREFIX}first"
_BOUNDARY, _PREVIOUS, _IS_FIRST = f"{PLAN_PREFIX}boundary", f"{PLAN_PREFIX}previous", f"{PLAN_PREFIX}is_first"
_REPLACED, _THERE = f"{PLAN_PREFIX}replaced", f"{PLAN_PREFIX}there"
_KEPT = f"{PLAN_PREFIX}kept"
_SPANNING, _HAD = f"{PLAN_PREFIX}spanning", f"{PLAN_PREFIX}had"
_IS_BEFORE, _IS_BASE = f"{PLAN_PREFIX}is_before", f"{PLAN_PREFIX}is_base"


# -- the rows of a key ------------------------------------------------------------------------------
def runs(
    entries: DataFrame,
    shape: Shape,
    totals: Mapping[str, Column] = MappingProxyType({}),
    *,
    of_feed: bool = False,
) -> DataFrame:
    """Return the runs of history, type 2: consecutive entries that belong to one row, or to none.

    :param entries: after :func:`delta_cdc.spark.apply.entries.inherited`
    :param totals: further columns: aggregates over the entries of a run
    :param of_feed: the bases are states of the source, which has no deleted rows. If the target keeps these,
        a key that comes back has a run that ends its open row, if any, with NULL for its values
    :return: keys, :data:`RUN`, kind of the run's first entry, start, end (start of the next run; NULL: open),
        values (struct), base (NULL for runs after the first), and ``totals``. If the first entry of a key is
        an event that ends its base, the base's row is a run without start and totals.
    """
    keys = shape.key_columns
    window = order_window(shape)
    is_upsert = F.col(KIND) == EVENT_UPSERT
    if shape.flag:
        entries = _with_kept_states(entries, shape)
        is_upsert = F.col(states.AFTER).isNotNull()
    previous = F.when(F.row_number().over(window) == 1, F.col(BASE)).otherwise(
        F.lag(states.AFTER).over(window)
    )
    before = entries.withColumn(_PREVIOUS, previous)
    equal = same(_PREVIOUS, states.AFTER, shape.schema, shape.tracked)
    if shape.flag:
        was, now = (F.col(state).getField(shape.flag) for state in (_PREVIOUS, states.AFTER))
        # A key that comes back begins a row. Whether its delete does, depends on the tracked columns.
        stays = F.lit(shape.flag not in shape.tracked) | was
        equal = F.when(now, stays).otherwise(~was & equal)
    goes_on = is_upsert & F.col(_PREVIOUS).isNotNull() & equal
    numbered = before.withColumn(_BOUNDARY, (~goes_on).cast("int")).drop(_PREVIOUS)
    numbered = numbered.withColumn(RUN, F.sum(_BOUNDARY).over(window))
    in_order = F.struct(*order())
    run_rows = numbered.groupBy(*keys, RUN).agg(
        F.min_by(KIND, in_order).alias(KIND),
        F.min_by(states.SEQUENCE, in_order).alias(START),
        F.max_by(states.AFTER, in_order).alias(states.AFTER),
        F.min_by(BASE, in_order).alias(BASE),
        *[total.alias(name) for name, total in totals.items()],
    )
    if shape.flag:
        is_state = F.col(states.AFTER).isNotNull()
        run_rows = run_rows.withColumn(KIND, F.when(is_state, EVENT_UPSERT).otherwise(F.col(KIND)))
    following = Window.partitionBy(*keys).orderBy(RUN)
    ended = run_rows.withColumns(
        {END: F.lead(START).over(following), _IS_FIRST: F.row_number().over(following) == 1}
    )
    own_values = {
        BASE: F.when(F.col(RUN) == 0, F.col(BASE)),
        # If deleted keys keep an open row, a key that comes back has one.
        difference.IS_FIRST: F.col(_IS_FIRST) & F.col(BASE).isNull() & F.lit(not shape.flag),
    }
    base_values = {
        RUN: F.lit(0).cast(ended.schema[RUN].dataType),
        KIND: F.lit(EVENT_UPSERT),
        END: F.col(START),
        states.AFTER: F.col(BASE),
        BASE: F.col(BASE),
        difference.IS_FIRST: F.lit(False),
    }
    columns = (RUN, KIND, START, END, states.AFTER, BASE, *totals)
    if of_feed:
        columns = (*columns, difference.IS_FIRST)
    own_row = F.struct(*[own_values.get(name, F.col(name)).alias(name) for name in columns])
    base_row = F.struct(
        *[
            base_values.get(name, F.lit(None).cast(ended.schema[name].dataType)).alias(name)
            for name in columns
        ]
    )
    # If deleted keys keep an open row, a key without a base may have one, too.
    may_end = F.col(BASE).isNotNull() if not shape.flag or not of_feed else F.lit(True)
    ends_base = F.col(_IS_FIRST) & (F.col(RUN) > 0) & may_end
    run_structs = F.when(ends_base, F.array(base_row, own_row)).otherwise(F.array(own_row))
    return ended.select(*keys, F.inline(run_structs))


def history_rows(runs: DataFrame) -> DataFrame:
    """Return the rows of history: runs of upserts that end after their start, and the bases' rows."""
    has_width = F.col(END).isNull() | F.col(START).isNull() | (F.col(START) < F.col(END))
    return runs.where((F.col(KIND) == EVENT_UPSERT) & (has_width | F.col(BASE).isNotNull()))


def _with_kept_states(entries: DataFrame, shape: Shape) -> DataFrame:
    """Give deletes and truncates a state: the last values of the key, with the mark of deleted rows.

    Those of a key without earlier values get no state. The kinds stay, because they belong to the order.
    """
    is_upsert = F.col(KIND) == EVENT_UPSERT
    # The base of an event of a feed is the state before it, that of a base the row of the target.
    values = F.last(F.coalesce(states.AFTER, BASE), ignorenulls=True).over(order_window(shape))
    state = F.struct(
        *[
            (F.lit(True) if name == shape.flag else F.col(_KEPT).getField(name)).alias(name)
            for name in shape.values
        ]
    )
    kept = entries.withColumn(_KEPT, F.when(~is_upsert, values))
    has_values = F.col(_KEPT).isNotNull()
    return kept.withColumn(states.AFTER, F.when(has_values, state).otherwise(F.col(states.AFTER))).drop(_KEPT)


# -- compared with the target ------------------------------------------------------------------------
def against_states(runs: DataFrame) -> DataFrame:
    """Add the operations for runs of a feed, whose bases are the states before the first events.

    The open row of a key ends with its base's run; its start and its other values are unknown.

    :param runs: :func:`runs`
    :return: ``runs`` with :data:`OPERATION`; NULL for a run of deletes
    """
    # A run that ends the row of a deleted key has no base and no number of its own.
    is_new = F.col(BASE).isNull() & (F.col(RUN) > 0)
    operation = F.when(is_new, INSERT).when(F.col(START).isNull(), CLOSE).otherwise(UPDATE)
    return runs.withColumn(OPERATION, F.when(F.col(KIND) == EVENT_UPSERT, operation))


def against_base(runs: DataFrame, shape: Shape, *, growing: bool = False, in_place: bool = True) -> DataFrame:
    """Add the operations for runs of keys whose open row, if any, is the base of their timeline.

    :param runs: :func:`runs`
    :param growing: the sequence must be above the start of the open row; otherwise Spark raises
        :class:`~delta_cdc.core.errors.SequenceNotIncreasing` when it evaluates the rows
    :param in_place: an event at exactly that start replaces the row, because it is the same event
    :return: the rows of history with :data:`OPERATION`; NULL for a row that stays as it is
    """
    runs = history_rows(runs)
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


def against_rows(desired: DataFrame, existing: DataFrame, shape: Shape) -> DataFrame:
    """Return the rows of keys whose whole history is recomputed, with their operations.

    :param desired: :func:`history_rows`
    :param existing: :func:`delta_cdc.spark.apply.difference.target_rows` of these keys
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


def merge(
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
    rows, shape = laid_out(context, rows, shape)
    options = context.options
    rows = row_hash.with_hash(rows, shape, options)
    operation, start, end = (sql.column("s", name) for name in (OPERATION, START, END))
    values = from_source(shape.values)
    others = from_source(shape.others)
    if options.row_hash_column is not None:
        values |= from_source([options.row_hash_column])
        others |= from_source([options.row_hash_column])
    assert shape.sequence_type is not None
    close = target_columns.stored_end(options, shape.sequence_type, end)
    insert = {**values, **target_columns.stored(options, shape.sequence_type, start, end)}
    on = keys_match(context, shape)
    checks = []
    if open_only:
        is_open = target_columns.is_open(options, shape.sequence_type, sql.column("t", options.end_column))
        matches = f"{operation} <> '{INSERT}'"
        if difference.IS_FIRST in rows.columns:
            is_first = sql.column("s", difference.IS_FIRST)
            problem, key = difference.checked_key(shape, is_first)
            first_row = f"{operation} = '{INSERT}'"
            checks = [Clause(True, first_row, "update", {**others, **close, **key}, raises=problem)]
            matches = f"({matches} OR {is_first})"
        on += [is_open, matches]
    else:
        on.append(f"{sql.column('t', options.start_column)} = {start}")
    # If the target started without a snapshot, an updated key may have no open row. Then it gets one.
    missing = f"{operation} = '{UPDATE}' AND ({end} IS NULL OR {start} < {end})"
    clauses = (
        *checks,
        Clause(True, f"{operation} = '{DELETE}'", "delete"),
        Clause(True, f"{operation} = '{CLOSE}'", "update", close),
        Clause(True, f"{operation} = '{UPDATE}'", "update", {**others, **close}),
        Clause(False, f"({operation} = '{INSERT}' OR {missing})", "insert", insert),
    )
    confs = LAZY if lazy else {}
    return Merge(context.spec.target_uri, rows, (*on, *pruning), tuple(clauses), confs=confs)


# -- history before a boundary stays ------------------------------------------------------------------
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


def since(existing: DataFrame, firsts: DataFrame, shape: Shape) -> tuple[DataFrame, DataFrame]:
    """Return the target's rows that a key's first change ends, and all rows since then; others stay.

    :param existing: rows of the target
    :param firsts: keys and :data:`FIRST`
    :return: at most one row per key that begins before its first change, and is not over before it; and
        these rows with those that begin at the change or after it
    """
    rows = existing.join(firsts, on=list(shape.keys)).withColumn(_IS_BEFORE, F.col(START) < F.col(FIRST))
    newest = F.max(F.when(F.col(_IS_BEFORE), F.col(START))).over(shape.per_key)
    reaches = F.col(FOUND_END).isNull() | (F.col(FOUND_END) >= F.col(FIRST))
    rows = rows.withColumn(_SPANNING, newest)
    is_base = F.col(_IS_BEFORE) & reaches & (F.col(START) == F.col(_SPANNING))
    rows = rows.withColumn(_IS_BASE, is_base).where(F.col(_IS_BASE) | ~F.col(_IS_BEFORE))
    overlapping = rows.drop(_IS_BEFORE, _SPANNING, FIRST)
    return overlapping.where(_IS_BASE).drop(_IS_BASE), overlapping.drop(_IS_BASE)


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
