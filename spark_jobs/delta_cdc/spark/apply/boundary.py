"""Recompute history from a boundary on. History before the boundary stays unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delta_cdc.core.sql import PLAN_PREFIX
from delta_cdc.spark.apply.difference import FOUND, FOUND_END
from delta_cdc.spark.apply.intervals import BASE, END, START
from delta_cdc.spark.changes import states

if TYPE_CHECKING:
    from delta_cdc.spark.apply.rows import Shape

#: The sequence of a key's first change.
FIRST = f"{PLAN_PREFIX}first"
_SPANNING, _HAD = f"{PLAN_PREFIX}spanning", f"{PLAN_PREFIX}had"


def at_horizon(
    runs: DataFrame, existing: DataFrame, shape: Shape, boundary: Column
) -> tuple[DataFrame, DataFrame]:
    """Keep rows that were closed before a boundary, and the start of the row that spans it.

    :param runs: desired rows; some events below the boundary may no longer exist
    :param existing: rows of the target
    :param boundary: a sequence
    :return: desired rows and rows of the target, without the rows that stay unchanged
    """
    keys = shape.key_columns
    reaches = F.col(FOUND_END).isNull() | (F.col(FOUND_END) >= boundary)
    overlapping = existing.where(reaches)
    spanning = overlapping.where(F.col(START) < boundary).groupBy(*keys).agg(F.max(START).alias(_SPANNING))
    desired = runs.where(F.col(END).isNull() | (F.col(END) >= boundary))
    desired = desired.join(spanning, on=list(shape.keys), how="left")
    start = F.when(F.col(START) < boundary, F.coalesce(F.col(_SPANNING), F.col(START))).otherwise(
        F.col(START)
    )
    return desired.withColumn(START, start).drop(_SPANNING), overlapping


def since(
    runs: DataFrame, existing: DataFrame, firsts: DataFrame, shape: Shape
) -> tuple[DataFrame, DataFrame]:
    """Keep history that is older than the first change of each key.

    :param runs: desired rows; a row that was open before the first change (it has a base) takes the start of
        the target's last row before that change
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
    desired = runs.join(firsts.select(*keys, FIRST), on=names).join(spanning, on=names, how="left")
    start = F.when(F.col(BASE).isNull(), F.col(START)).otherwise(F.coalesce(_SPANNING, FIRST))
    desired = desired.withColumn(START, start).where(F.col(END).isNull() | (F.col(START) < F.col(END)))
    # The source had no row before the key's first change, so the target's row ends at that change.
    closed = overlapping.where(~F.col(_HAD) & (F.col(START) < F.col(FIRST))).select(
        *keys, START, F.col(FIRST).alias(END), F.col(FOUND).alias(states.AFTER)
    )
    return desired.select(*keys, START, END, states.AFTER).unionByName(closed), overlapping
