"""Entries of the timeline of a key, from which its rows in the target are computed.

An entry is an event, or a *base*: the state of the key before its events. Entries have the columns of events
(:mod:`delta_cdc.spark.apply.events`), and each key has one entry per position: :data:`RANK` (a base comes
before all events) and :data:`PLACE` (the sequence; for a feed, the commit's version). A truncate is an entry
of the keys whose rows it ends. An event of a feed also contains the state before it, so the first event of a
key contains the base, and nothing has to read the target.

:mod:`~delta_cdc.spark.apply.timeline` makes the entries. :mod:`~delta_cdc.spark.apply.latest` (type 1) and
:mod:`~delta_cdc.spark.apply.history` (type 2) make rows of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from delta_cdc.core.adapters import UPSERT
from delta_cdc.core.sql import PLAN_PREFIX
from delta_cdc.spark.apply import partial_columns
from delta_cdc.spark.apply.events import AUTHORED, KIND
from delta_cdc.spark.changes import states

if TYPE_CHECKING:
    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.spark.apply.rows import Shape

RANK, PLACE = f"{PLAN_PREFIX}rank", f"{PLAN_PREFIX}place"
#: Values (struct) of the target's row that a base represents; for an event of a feed, the state before it;
#: NULL for other events.
BASE = f"{PLAN_PREFIX}base"
START, END = f"{PLAN_PREFIX}start", f"{PLAN_PREFIX}end"
#: The kind of a base without a row: the key had no row before its events.
NO_ROW = "no row"
#: Type 1: whether a key ends deleted, the target's row is soft-deleted, and the base is :data:`NO_ROW`.
DELETED, FOUND_DELETED = states.DELETED, f"{PLAN_PREFIX}existing_deleted"
FROM_NOTHING = f"{PLAN_PREFIX}from_nothing"
#: The times that an entry gives a row (:mod:`delta_cdc.spark.apply.times`), if the target has such times.
CREATED, CHANGED = f"{PLAN_PREFIX}created", f"{PLAN_PREFIX}changed"
_LIFE = f"{PLAN_PREFIX}life"


def order() -> list[Column]:
    """Return the order of entries. A truncate precedes events of its sequence: it does not affect them."""
    return [F.col(RANK), F.col(PLACE), F.col(KIND) == UPSERT]


def order_window(shape: Shape) -> WindowSpec:
    """Return the window over the entries of a key, in order."""
    return shape.per_key.orderBy(*order())


def inherited(entries: DataFrame, shape: Shape, options: ApplyOptions) -> DataFrame:
    """Fill the columns that an upsert does not carry with the values of the state before it.

    After a delete, an upsert takes no older values. If events carry all columns, nothing changes.
    """
    if not options.is_partial:
        return entries
    window = order_window(shape)
    is_upsert = F.col(KIND) == UPSERT
    with_life = entries.withColumn(_LIFE, F.sum((~is_upsert).cast("int")).over(window))
    keys = shape.key_columns
    within = Window.partitionBy(*keys, _LIFE).orderBy(*order())
    parts, state = partial_columns.leaves(shape, options), F.col(states.AFTER)
    values = []
    for position, leaf in enumerate(parts):
        carries = is_upsert & F.coalesce(F.get(F.col(AUTHORED), F.lit(position)), F.lit(True))
        value = F.when(carries, F.struct(leaf.of(state).alias("v")))
        values.append(F.last(value, ignorenulls=True).over(within).getField("v"))
    full_state = partial_columns.rebuilt(parts, shape, state, values)
    return with_life.withColumn(states.AFTER, F.when(is_upsert, full_state)).drop(_LIFE)
