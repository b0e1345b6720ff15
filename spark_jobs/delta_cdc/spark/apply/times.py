"""Type 1: the times when the source made a row, and last changed it.

A *life* of a key begins with an insert, and ends with a delete. The row has the time of the change that began
its life, and of the last change that altered a value of the target. Both come from the changes, in their
order, so the order in which they arrive does not matter.

An entry of a timeline has the two times that it gives a row (:data:`~delta_cdc.spark.apply.entries.CREATED`,
:data:`~delta_cdc.spark.apply.entries.CHANGED`): an event its own time twice, a base those of the target's
row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delta_cdc.core.adapters import UPSERT
from delta_cdc.core.reserved_columns import TIMES
from delta_cdc.core.sql import PLAN_PREFIX
from delta_cdc.spark.apply.difference import FOUND_CHANGED, FOUND_CREATED
from delta_cdc.spark.apply.entries import (
    CHANGED,
    CREATED,
    FOUND_DELETED,
    NO_ROW,
    RANK,
    order,
    order_window,
)
from delta_cdc.spark.apply.events import KIND
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import same

if TYPE_CHECKING:
    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.spark.apply.rows import Shape

_BEGINS, _ENDS, _CHANGES = f"{PLAN_PREFIX}begins", f"{PLAN_PREFIX}ends", f"{PLAN_PREFIX}changes"
_PREVIOUS = f"{PLAN_PREFIX}previous"


def flagged(entries: DataFrame, shape: Shape) -> DataFrame:
    """Mark the entries that give a key's row its times, for :func:`of_last_life`.

    :param entries: after :func:`delta_cdc.spark.apply.entries.inherited`
    """
    window = order_window(shape)
    is_upsert, is_base = F.col(KIND) == UPSERT, F.col(RANK) == 0
    # A row of the target whose state does not matter is an entry like a delete, but its key was alive.
    is_alive = is_upsert | (is_base & ~F.coalesce(FOUND_DELETED, F.lit(True)))
    was_upsert, was_alive = (F.lag(flag).over(window) for flag in (is_upsert, is_alive))
    begins = is_upsert & ~F.coalesce(was_upsert, F.lit(False))
    previous = F.lag(states.AFTER).over(window)
    placed = entries.withColumns(
        {_PREVIOUS: previous, _BEGINS: begins, _ENDS: ~is_upsert & F.coalesce(was_alive, F.lit(True))}
    )
    differs = is_upsert & ~same(_PREVIOUS, states.AFTER, shape.schema, shape.values)
    is_state = F.col(KIND) != NO_ROW
    return placed.withColumns(
        {
            _BEGINS: F.col(_BEGINS) | (is_base & is_state),
            _CHANGES: F.col(_BEGINS) | differs | (F.col(_ENDS) & is_state),
        }
    )


def of_last_life() -> list[Column]:
    """Return the aggregates over the flagged entries of a key: its row's times, and those of the base."""
    in_order, of_base = F.struct(*order()), F.col(RANK) == 0
    return [
        F.max_by(CREATED, F.when(F.col(_BEGINS), in_order)).alias(CREATED),
        F.max_by(CHANGED, F.when(F.col(_CHANGES), in_order)).alias(CHANGED),
        F.max(F.when(of_base, F.col(CREATED))).alias(FOUND_CREATED),
        F.max(F.when(of_base, F.col(CHANGED))).alias(FOUND_CHANGED),
    ]


def are_those_of_base() -> Column:
    """Return whether a key's times are those that the target has."""
    pairs = ((CREATED, FOUND_CREATED), (CHANGED, FOUND_CHANGED))
    created, changed = (F.col(new).eqNullSafe(F.col(found)) for new, found in pairs)
    return created & changed


def not_after(entries: DataFrame, existing: DataFrame, shape: Shape, is_oldest: Column) -> DataFrame:
    """Keep the times of the target's rows where the source may no longer have the changes that they are from.

    :param entries: of all events of some keys that the source still has
    :param existing: :func:`delta_cdc.spark.apply.difference.target_rows`
    :param is_oldest: whether events older than an entry may be gone. Such an entry may repeat values, or
        follow the begin of its life
    """
    known = existing.select(*shape.key_columns, FOUND_CREATED, FOUND_CHANGED)
    joined = entries.join(known, on=list(shape.keys), how="left")
    for name, found in ((CREATED, FOUND_CREATED), (CHANGED, FOUND_CHANGED)):
        earlier = F.least(name, found)
        joined = joined.withColumn(name, F.when(is_oldest, earlier).otherwise(F.col(name)))
    return joined.select(*entries.columns)


def columns(options: ApplyOptions) -> dict[str, str]:
    """Return the columns with times that a target has: name -> the column of a computed row."""
    named = {getattr(options, name): column for name, column in zip(TIMES, (CREATED, CHANGED), strict=True)}
    return {name: column for name, column in named.items() if name is not None}
