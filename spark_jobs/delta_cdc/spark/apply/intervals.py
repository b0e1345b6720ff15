"""Compute the desired rows of a key from its timeline.

An entry of the timeline is an event, or a *base*: the state of the key before its events. Entries have the
columns of events (:mod:`delta_cdc.spark.apply.events`), and each key has one entry per position: :data:`RANK`
(a base comes before all events) and :data:`PLACE` (the sequence; for a feed, the commit's version). Every
recomputed key has an entry for each truncate.

Worked example, tracked = name, type 2::

    base      (1, ann, city a)  from 3
    events    5: ann, city b     tracked columns equal: the run continues
              7: bob, city b     a new run starts
              9: delete
    rows      (1, ann, city b) [3, 7)     the base's start, values of the run's last event
              (1, bob, city b) [7, 9)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from delta_cdc.core.sql import PLAN_PREFIX
from delta_cdc.spark.apply import partial_columns
from delta_cdc.spark.apply.events import AUTHORED, KIND, UPSERT
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import same

if TYPE_CHECKING:
    from delta_cdc.core.spec import ApplyOptions
    from delta_cdc.spark.apply.rows import Shape

RANK, PLACE = f"{PLAN_PREFIX}rank", f"{PLAN_PREFIX}place"
#: Values (struct) of the target's row that a base represents; NULL for events. A run that begins with a base
#: matches the target's row by its start.
BASE = f"{PLAN_PREFIX}base"
START, END = f"{PLAN_PREFIX}start", f"{PLAN_PREFIX}end"
#: The kind of a base without a row: the key had no row before its events.
NO_ROW = "no row"
#: Type 1: whether a key ends deleted, the target's row is soft-deleted, and the base is :data:`NO_ROW`.
DELETED, FOUND_DELETED = f"{PLAN_PREFIX}deleted", f"{PLAN_PREFIX}existing_deleted"
FROM_NOTHING = f"{PLAN_PREFIX}from_nothing"
_LIFE, _RUN, _BOUNDARY = f"{PLAN_PREFIX}life", f"{PLAN_PREFIX}run", f"{PLAN_PREFIX}boundary"
_PREVIOUS = f"{PLAN_PREFIX}previous"


def _order() -> list[Column]:
    """Return the order of entries. A truncate precedes events of its sequence: it does not affect them."""
    return [F.col(RANK), F.col(PLACE), F.col(KIND) == UPSERT]


def _key_window(shape: Shape) -> WindowSpec:
    return shape.per_key.orderBy(*_order())


def inherited(entries: DataFrame, shape: Shape, options: ApplyOptions) -> DataFrame:
    """Fill the columns that an upsert does not carry with the values of the state before it.

    After a delete, an upsert takes no older values. If events carry all columns, nothing changes.
    """
    if not options.is_partial:
        return entries
    window = _key_window(shape)
    is_upsert = F.col(KIND) == UPSERT
    with_life = entries.withColumn(_LIFE, F.sum((~is_upsert).cast("int")).over(window))
    keys = shape.key_columns
    within = Window.partitionBy(*keys, _LIFE).orderBy(*_order())
    parts, state = partial_columns.leaves(shape, options), F.col(states.AFTER)
    values = []
    for position, leaf in enumerate(parts):
        carries = is_upsert & F.coalesce(F.get(F.col(AUTHORED), F.lit(position)), F.lit(True))
        value = F.when(carries, F.struct(leaf.of(state).alias("v")))
        values.append(F.last(value, ignorenulls=True).over(within).getField("v"))
    full_state = partial_columns.rebuilt(parts, shape, state, values)
    return with_life.withColumn(states.AFTER, F.when(is_upsert, full_state)).drop(_LIFE)


def runs(entries: DataFrame, shape: Shape) -> DataFrame:
    """Return the rows of history, type 2.

    :param entries: after :func:`inherited`
    :return: keys, start, end (NULL: open), values (struct), base (of the run's first entry). Rows that end at
        their start are included only with a base, so that the target's row is deleted
    """
    keys = shape.key_columns
    window = _key_window(shape)
    is_upsert = F.col(KIND) == UPSERT
    before = entries.withColumn(_PREVIOUS, F.lag(states.AFTER).over(window))
    goes_on = (
        is_upsert & F.col(_PREVIOUS).isNotNull() & same(_PREVIOUS, states.AFTER, shape.schema, shape.tracked)
    )
    numbered = before.withColumn(_BOUNDARY, (~goes_on).cast("int")).drop(_PREVIOUS)
    numbered = numbered.withColumn(_RUN, F.sum(_BOUNDARY).over(window))
    order = F.struct(*_order())
    run_rows = numbered.groupBy(*keys, _RUN).agg(
        F.min_by(KIND, order).alias(KIND),
        F.min_by(states.SEQUENCE, order).alias(START),
        F.max_by(states.AFTER, order).alias(states.AFTER),
        F.min_by(BASE, order).alias(BASE),
    )
    following = Window.partitionBy(*keys).orderBy(_RUN)
    ended = run_rows.withColumn(END, F.lead(START).over(following)).where(F.col(KIND) == UPSERT)
    has_width = F.col(END).isNull() | F.col(START).isNull() | (F.col(START) < F.col(END))
    return ended.where(has_width | F.col(BASE).isNotNull()).drop(_RUN, KIND)


def last_states(entries: DataFrame, shape: Shape) -> DataFrame:
    """Return the state of every key after its timeline, type 1.

    :param entries: after :func:`inherited`; a base that is soft-deleted is a delete
    :return: keys, values (struct; for a deleted key those of its last upsert, NULL if it had none), deleted,
        base (as in :func:`runs`) and its soft-delete flag, and whether the key began with :data:`NO_ROW`
    """
    keys = shape.key_columns
    order = F.struct(*_order())
    has_values = F.col(states.AFTER).isNotNull()
    return entries.groupBy(*keys).agg(
        F.max_by(states.AFTER, F.when(has_values, order)).alias(states.AFTER),
        (F.max_by(KIND, order) != UPSERT).alias(DELETED),
        F.first(BASE, ignorenulls=True).alias(BASE),
        F.max(FOUND_DELETED).alias(FOUND_DELETED),
        F.max(F.col(KIND) == NO_ROW).alias(FROM_NOTHING),
    )
