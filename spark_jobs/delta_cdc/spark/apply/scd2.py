"""SCD type 2: compute history as half-open rows from a key's events in order.

Worked example, tracked = name, sequence = commit version::

    before the batch   (1, ann,  city a)  [3, null)
    events             5: ann, city b     touch   (tracked columns equal: the run continues)
                       7: bob, city b     open    (ends the run, starts another)
                       9: deleted         close
    ranges             0: {5}   1: {7}   2: {9}
    rows               current: values of 5, end 7   -> the open row becomes (1, ann, city b) [3, 7)
                       insert:  (1, bob, city b) [7, 9)

An event is a *boundary* (open or close) unless both its states agree on the tracked columns. A range
(``segment``) is a boundary with the touches after it; range 0 holds the touches before the first boundary.
Every range yields the values of its last event, from its own start to the start of the next range. An event
contains the state before it (the feed's pre-image), so nothing reads the target. The MERGE matches the open
row of a key by ``end IS NULL``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from delta_cdc.core import reserved_columns, sql
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark.apply import batch as b
from delta_cdc.spark.apply.merge import Clause, Merge, from_source, keys_match
from delta_cdc.spark.apply.sequences import as_text, from_text
from delta_cdc.spark.changes import states as st
from delta_cdc.spark.changes.equality import same

if TYPE_CHECKING:
    from delta_cdc.core.spec import ApplyOptions
    from delta_cdc.spark.apply.prepared_step import StepContext
    from delta_cdc.spark.apply.rows import Shape

KIND, SEGMENT = f"{PLAN_PREFIX}kind", f"{PLAN_PREFIX}segment"
START, END, FIRST = f"{PLAN_PREFIX}start", f"{PLAN_PREFIX}end", f"{PLAN_PREFIX}first"
ROW = f"{PLAN_PREFIX}row"
_DISORDER = f"{PLAN_PREFIX}disorder"
_PREVIOUS = f"{PLAN_PREFIX}previous"
_EXISTED, _NULL_SEQUENCE = f"{PLAN_PREFIX}existed", f"{PLAN_PREFIX}null_sequence"
#: Plan rows: the key's open row (with or without new values), and rows to add.
CURRENT, CLOSE, INSERT = "current", "close", "insert"


def classified(states: DataFrame, shape: Shape) -> DataFrame:
    """Classify each event: ``open``, ``touch``, ``close`` or ``none`` (nothing changed)."""
    before, after = F.col(st.BEFORE), F.col(st.AFTER)
    has_both = before.isNotNull() & after.isNotNull()
    kind = (
        F.when(before.isNull() & after.isNull(), "none")
        .when(has_both & same(st.BEFORE, st.AFTER, shape.schema, shape.values), "none")
        .when(after.isNull(), "close")
        .when(has_both & same(st.BEFORE, st.AFTER, shape.schema, shape.tracked), "touch")
        .otherwise("open")
    )
    return states.withColumn(KIND, kind)


def lacks_sequence() -> Column:
    """Return whether a classified event has no position in the history of its key."""
    return F.col(st.SEQUENCE).isNull() & (F.col(KIND) != "none")


def in_order_only(events: DataFrame, shape: Shape) -> DataFrame:
    """Remove classified events without a sequence from their keys' histories.

    The next event takes over the state before the removed event. Otherwise a change that began with a removed
    event would be lost.
    """
    key = shape.per_key
    window = key.orderBy(reserved_columns.ORDER)
    broken, first = f"{PLAN_PREFIX}broken", f"{PLAN_PREFIX}first_before"
    marked = events.withColumns(
        {broken: F.max(lacks_sequence()).over(key), first: F.first(st.BEFORE).over(window)}
    )
    with_sequence = marked.where(~lacks_sequence())
    previous_state = F.when(F.row_number().over(window) == 1, F.col(first)).otherwise(
        F.lag(st.AFTER).over(window)
    )
    before = F.when(F.col(broken), previous_state).otherwise(F.col(st.BEFORE))
    return with_sequence.withColumn(st.BEFORE, before).drop(broken, first)


def segments(events: DataFrame, shape: Shape) -> DataFrame:
    """Split a key's events into ranges (``segment``).

    :return: per key and range: kind of its first event, start, end (start of the next range, or NULL), first
        (whether it is the key's first range), values of its last event (struct ``after``), duplicate, and
        disorder (the start of the next range is not above its own start)
    """
    keys = shape.key_columns
    event_window = Window.partitionBy(*keys).orderBy(reserved_columns.ORDER)
    previous_after = F.lag(F.col(st.AFTER).isNotNull()).over(event_window)
    has_two_states = F.greatest(st.N_BEFORE, st.N_AFTER) > 1
    # Two rows share the key: a state before that no change wrote, or a second insert.
    broken = previous_after.isNotNull() & (previous_after != F.col(st.BEFORE).isNotNull())
    boundary = F.col(KIND).isin("open", "close").cast("int")
    numbered = events.withColumn(b.IS_DUPLICATE, has_two_states | F.coalesce(broken, F.lit(False)))
    numbered = numbered.where((F.col(KIND) != "none") | F.col(b.IS_DUPLICATE) | (F.col(st.UNKNOWN) > 0))
    numbered = numbered.withColumn(SEGMENT, F.sum(boundary).over(event_window))
    ranges = numbered.groupBy(*keys, SEGMENT).agg(
        F.min_by(KIND, reserved_columns.ORDER).alias(KIND),
        F.min_by(st.SEQUENCE, reserved_columns.ORDER).alias(START),
        F.max_by(st.AFTER, reserved_columns.ORDER).alias(st.AFTER),
        F.min_by(F.col(st.BEFORE).isNotNull(), reserved_columns.ORDER).alias(_EXISTED),
        F.max(b.IS_DUPLICATE).alias(b.IS_DUPLICATE),
        F.max(F.col(st.SEQUENCE).isNull()).alias(_NULL_SEQUENCE),
        F.sum(st.UNKNOWN).alias(st.UNKNOWN),
        F.count("*").alias(st.EVENTS),
    )
    range_window = Window.partitionBy(*keys).orderBy(SEGMENT)
    next_start = F.lead(START).over(range_window)
    return (
        ranges.withColumn(FIRST, F.row_number().over(range_window) == 1)
        .withColumn(END, next_start)
        .withColumn(_DISORDER, (F.col(SEGMENT) > 0) & next_start.isNotNull() & ~(F.col(START) < next_start))
    )


def validated(context: StepContext, cut: DataFrame, shape: Shape) -> b.Batch:
    """Materialise the ranges; refuse invalid rows, with counts and sample keys."""
    assert shape.sequence_type is not None
    boundary = F.col(KIND).isin("open", "close")
    conditions = {
        b.DUPLICATE: F.col(b.IS_DUPLICATE),
        b.NULL_SEQUENCE: F.col(_NULL_SEQUENCE),
        b.DISORDER: F.col(_DISORDER),
    }
    batch = b.materialise(
        cut,
        shape.keys,
        {
            "events": F.coalesce(F.sum(st.EVENTS), F.lit(0)),
            "changes": F.count("*"),
            "opened": F.count_if(F.col(KIND) == "open"),
            "closed": F.count_if(
                (F.col(FIRST) & boundary & F.col(_EXISTED))
                | ((F.col(KIND) == "touch") & F.col(END).isNotNull())
            ),
            "rewritten": F.count_if(F.col(FIRST) & ((F.col(KIND) == "touch") | (boundary & F.col(_EXISTED)))),
            "updated": F.count_if((F.col(KIND) == "touch") & F.col(END).isNull()),
            b.UNKNOWN_TYPE: F.coalesce(F.sum(st.UNKNOWN), F.lit(0)),
            b.NULL_KEY: F.count_if(b.null_key(shape)),
            **{reason: F.count_if(condition) for reason, condition in conditions.items()},
            "highest": as_text(F.max(F.when(boundary, F.col(START))), shape.sequence_type),
        },
    )
    b.refuse(batch.totals, batch.rows, shape, context, conditions)
    return batch


def refuse_not_above_history(context: StepContext, boundaries: DataFrame, shape: Shape) -> None:
    """Refuse boundaries whose sequence is not above the history of their key, including closed rows.

    A sequence above the highest one applied so far cannot violate the order, so normally no key needs a
    lookup.

    :param boundaries: keys, and the sequences (:data:`START`) at which a row opens or closes
    """
    options, highest = context.options, context.step.highest_sequence
    if highest is None or orders_by_commit(options):
        return
    assert shape.sequence_type is not None
    keys = shape.key_columns
    suspects = boundaries.groupBy(*keys).agg(F.min(START).alias(START))
    suspects = suspects.where(F.col(START) <= from_text(highest, shape.sequence_type))
    if suspects.isEmpty():
        return
    start, end = F.col(quote(options.start_column)), F.col(quote(options.end_column))
    target = context.session.read.format("delta").load(context.spec.target_uri)
    history = target.select(*keys, F.greatest(start, end).alias(_PREVIOUS))
    offending = suspects.join(history, on=list(shape.keys)).where(F.col(START) <= F.col(_PREVIOUS))
    count = offending.select(*keys).distinct().count()
    b.refuse({b.DISORDER: count}, offending, shape, context, {b.DISORDER: F.lit(True)})


def boundaries(batch: b.Batch) -> DataFrame:
    """Return the ranges of a batch that open or close a row."""
    return batch.rows.where(F.col(KIND).isin("open", "close"))


def orders_by_commit(options: ApplyOptions) -> bool:
    """Return whether only the commit's version, which always grows, orders the history."""
    return {*options.sequences, options.delete_sequence} <= {reserved_columns.COMMIT_VERSION, None}


def plan_rows(batch: b.Batch, shape: Shape) -> DataFrame:
    """Turn ranges into the MERGE's source, whose rows are unique by key, row kind and start.

    A key's first range also determines the operation on the key's open row in the target.
    """
    kind, first = F.col(KIND), F.col(FIRST)
    closing = F.struct(F.lit(CLOSE).alias(ROW), F.col(START).alias(START), F.col(START).alias(END))
    current = F.struct(F.lit(CURRENT).alias(ROW), F.col(START).alias(START), F.col(END).alias(END))
    adding = F.struct(F.lit(INSERT).alias(ROW), F.col(START).alias(START), F.col(END).alias(END))
    plan = (
        F.when(kind == "touch", F.array(current))
        .when(first & (kind == "open"), F.array(closing, adding))
        .when(first, F.array(closing))
        .when(kind == "open", F.array(adding))
    )
    return batch.rows.select(
        *shape.key_columns, F.col(st.AFTER), F.inline(plan)
    ).select(
        *shape.key_columns,
        *[
            F.col(f"{st.AFTER}.{quote(name)}").alias(name)
            for name in shape.others
        ],
        ROW, START, END,
    )  # fmt: skip


def merge(target: str, shape: Shape, options: ApplyOptions, batch: b.Batch, *, evolve: bool) -> Merge:
    """Return the MERGE. It matches open rows by key and ``end IS NULL``; rows to add match no row."""
    row, start, end = (sql.column("s", name) for name in (ROW, START, END))
    values = from_source(shape.others)
    close = {options.end_column: end}
    keep_open = {**values, options.end_column: end}
    add = {
        **from_source(shape.values),
        options.start_column: start,
        options.end_column: end,
    }
    on = keys_match(shape.keys)
    on += [f"{sql.column('t', options.end_column)} IS NULL", f"{row} <> '{INSERT}'", *b.pruning(batch)]
    # If the target started without a snapshot, a touched key may have no open row; then the touch opens one.
    missing = f"{row} = '{CURRENT}' AND ({end} IS NULL OR {start} < {end})"
    clauses = (
        Clause(True, f"{row} = '{CLOSE}'", "update", close),
        Clause(True, None, "update", keep_open),
        Clause(False, f"({row} = '{INSERT}' OR {missing})", "insert", add),
    )
    return Merge(target, plan_rows(batch, shape), tuple(on), clauses, evolve)
