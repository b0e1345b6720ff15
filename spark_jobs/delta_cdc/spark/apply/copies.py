"""Count the rows of full copies in one table, by the column that distinguishes the copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from delta_cdc.core.guard import Copy
from delta_cdc.spark.apply import events
from delta_cdc.spark.apply.sequences import as_text, from_text
from delta_cdc.spark.changes import states

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from delta_cdc.spark.apply.prepared_step import StepContext
    from delta_cdc.spark.apply.rows import Shape


def counted(context: StepContext, sequences: DataFrame, shape: Shape) -> tuple[list[Copy], list[Copy]]:
    """Return the copies of some rows, ascending: those up to the last one applied, and those after it.

    :param sequences: rows with the sequences of the copies
    """
    order_type, applied, sequence = shape.order_type, context.step.highest_sequence, F.col(states.SEQUENCE)
    assert order_type is not None
    is_new = F.lit(True) if applied is None else sequence > from_text(applied, order_type)
    found = (
        sequences.where(sequence.isNotNull())
        .groupBy(sequence)
        .agg(F.count("*").alias("rows"))
        .orderBy(sequence)
        .select(as_text(sequence, order_type).alias("name"), "rows", is_new.alias("is_new"))
        .collect()
    )
    old, new = (
        [Copy(row["name"], row["rows"]) for row in found if row["is_new"] is is_it] for is_it in (False, True)
    )
    return old, new


def to_compare(
    context: StepContext,
    old: Sequence[Copy],
    new: Sequence[Copy],
    source_rows: Callable[[], DataFrame],
    shape: Shape,
) -> tuple[Copy, ...]:
    """Return the copies that count for a step, each with the rows of the one before it, if limits need them.

    If only the rows of the newest copy matter, only that one counts.

    :param old: copies up to the last one applied, as far as they are counted
    :param new: copies after it
    :param source_rows: gives all rows of the source, to count those of the last copy applied if ``old`` lacks
        it
    """
    applied, guard = context.step.highest_sequence, context.spec.guard
    if not new:
        return tuple(old[-1:])
    counting = new if context.options.needs_every_change or context.options.rules else new[-1:]
    if applied is None:
        # Nothing shows which copy was applied before.
        return tuple(new[-1:])
    if guard.limits_rows or guard.reason_to_ask(context.step.seal_number) is not None:
        return tuple(counting)
    assert shape.order_type is not None
    last = next((copy.rows for copy in old if copy.name == applied), None)
    if last is None:
        sequences = events.of_step(context, source_rows()).sequences
        last = sequences.where(F.col(states.SEQUENCE) == from_text(applied, shape.order_type)).count()
    before = [last, *(copy.rows for copy in counting)]
    return tuple(Copy(copy.name, copy.rows, rows) for copy, rows in zip(counting, before, strict=False))
