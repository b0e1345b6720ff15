"""Compute the desired rows of a key from its timeline.

An entry of the timeline is an event, or a *base*: the state of the key before its events. Entries have the
columns of events (:mod:`delta_cdc.spark.apply.events`), and each key has one entry per position: :data:`RANK`
(a base comes before all events) and :data:`PLACE` (the sequence; for a feed, the commit's version). A
truncate is an entry of the keys whose rows it ends. An event of a feed also contains the state before it, so
the first event of a key contains the base, and nothing has to read the target.

Worked example, tracked = name, type 2::

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
from pyspark.sql.window import WindowSpec

from delta_cdc.core.adapters import UPSERT
from delta_cdc.core.sql import PLAN_PREFIX
from delta_cdc.spark.apply import partial_columns
from delta_cdc.spark.apply.events import AUTHORED, KIND
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import same

if TYPE_CHECKING:
    from collections.abc import Mapping

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
#: Number of a run of history: 0 continues the base's row, later runs start rows of their own.
RUN = f"{PLAN_PREFIX}run"
_LIFE, _BOUNDARY = f"{PLAN_PREFIX}life", f"{PLAN_PREFIX}boundary"
_PREVIOUS, _FIRST = f"{PLAN_PREFIX}previous", f"{PLAN_PREFIX}first"


def _order() -> list[Column]:
    """Return the order of entries. A truncate precedes events of its sequence: it does not affect them."""
    return [F.col(RANK), F.col(PLACE), F.col(KIND) == UPSERT]


def _order_window(shape: Shape) -> WindowSpec:
    """Return the window over the entries of a key, in order."""
    return shape.per_key.orderBy(*_order())


def inherited(entries: DataFrame, shape: Shape, options: ApplyOptions) -> DataFrame:
    """Fill the columns that an upsert does not carry with the values of the state before it.

    After a delete, an upsert takes no older values. If events carry all columns, nothing changes.
    """
    if not options.is_partial:
        return entries
    window = _order_window(shape)
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


def runs(entries: DataFrame, shape: Shape, totals: Mapping[str, Column] = MappingProxyType({})) -> DataFrame:
    """Return the runs of history, type 2: consecutive entries that belong to one row, or to none.

    :param entries: after :func:`inherited`
    :param totals: further columns: aggregates over the entries of a run
    :return: keys, :data:`RUN`, kind of the run's first entry, start, end (start of the next run; NULL: open),
        values (struct), base (NULL for runs after the first), and ``totals``. If the first entry of a key is
        an event that ends its base, the base's row is a run without start and totals.
    """
    keys = shape.key_columns
    window = _order_window(shape)
    is_upsert = F.col(KIND) == UPSERT
    previous = F.when(F.row_number().over(window) == 1, F.col(BASE)).otherwise(
        F.lag(states.AFTER).over(window)
    )
    before = entries.withColumn(_PREVIOUS, previous)
    goes_on = (
        is_upsert & F.col(_PREVIOUS).isNotNull() & same(_PREVIOUS, states.AFTER, shape.schema, shape.tracked)
    )
    numbered = before.withColumn(_BOUNDARY, (~goes_on).cast("int")).drop(_PREVIOUS)
    numbered = numbered.withColumn(RUN, F.sum(_BOUNDARY).over(window))
    order = F.struct(*_order())
    run_rows = numbered.groupBy(*keys, RUN).agg(
        F.min_by(KIND, order).alias(KIND),
        F.min_by(states.SEQUENCE, order).alias(START),
        F.max_by(states.AFTER, order).alias(states.AFTER),
        F.min_by(BASE, order).alias(BASE),
        *[total.alias(name) for name, total in totals.items()],
    )
    following = Window.partitionBy(*keys).orderBy(RUN)
    ended = run_rows.withColumns(
        {END: F.lead(START).over(following), _FIRST: F.row_number().over(following) == 1}
    )
    own_values = {BASE: F.when(F.col(RUN) == 0, F.col(BASE))}
    base_values = {
        RUN: F.lit(0).cast(ended.schema[RUN].dataType),
        KIND: F.lit(UPSERT),
        END: F.col(START),
        states.AFTER: F.col(BASE),
        BASE: F.col(BASE),
    }
    columns = (RUN, KIND, START, END, states.AFTER, BASE, *totals)
    own_row = F.struct(*[own_values.get(name, F.col(name)).alias(name) for name in columns])
    base_row = F.struct(
        *[
            base_values.get(name, F.lit(None).cast(ended.schema[name].dataType)).alias(name)
            for name in columns
        ]
    )
    ends_base = F.col(_FIRST) & (F.col(RUN) > 0) & F.col(BASE).isNotNull()
    run_structs = F.when(ends_base, F.array(base_row, own_row)).otherwise(F.array(own_row))
    return ended.select(*keys, F.inline(run_structs))


def history_rows(runs: DataFrame) -> DataFrame:
    """Return the rows of history: runs of upserts that end after their start, and the bases' rows."""
    has_width = F.col(END).isNull() | F.col(START).isNull() | (F.col(START) < F.col(END))
    return runs.where((F.col(KIND) == UPSERT) & (has_width | F.col(BASE).isNotNull()))


def last_states(entries: DataFrame, shape: Shape) -> DataFrame:
    """Return the state of every key after its timeline, type 1.

    :param entries: after :func:`inherited`; a base that is soft-deleted is a delete
    :return: keys, values (struct; for a deleted key those of its last upsert, NULL if it had none), deleted,
        base and its soft-delete flag, whether the key began with :data:`NO_ROW`
    """
    keys = shape.key_columns
    order = F.struct(*_order())
    has_values = F.col(states.AFTER).isNotNull()
    return entries.groupBy(*keys).agg(
        F.max_by(states.AFTER, F.when(has_values, order)).alias(states.AFTER),
        (F.max_by(KIND, order) != UPSERT).alias(DELETED),
        F.min_by(BASE, order).alias(BASE),
        F.max(FOUND_DELETED).alias(FOUND_DELETED),
        F.max(F.col(KIND) == NO_ROW).alias(FROM_NOTHING),
    )
