"""Refuse sequences that do not increase with each change of a key, or that are inside its history."""

from __future__ import annotations

from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delta_cdc.core import reserved_columns
from delta_cdc.core.sql import PLAN_PREFIX
from delta_cdc.spark.apply import difference, events, partial_columns, refusals
from delta_cdc.spark.apply.entries import START
from delta_cdc.spark.apply.sequences import from_text
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import balanced, comparable

if TYPE_CHECKING:
    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.spark.apply.prepared_step import StepContext
    from delta_cdc.spark.apply.rows import Shape

_LEAST, _BEFORE = f"{PLAN_PREFIX}least", f"{PLAN_PREFIX}sequence_before"


def refuse_inside_history(context: StepContext, boundaries: DataFrame, shape: Shape) -> None:
    """Refuse boundaries whose sequence is not above the history of their key, including closed rows.

    A sequence above the highest one applied so far cannot violate the order, so normally no key needs a
    lookup.

    :param boundaries: keys, and the sequences at which a row opens or closes
    :raises SequenceNotIncreasing: names sample keys
    """
    options, highest = context.options, context.step.highest_sequence
    if highest is None or options.is_ordered_by_commit:
        return
    assert shape.sequence_type is not None
    keys = shape.key_columns
    suspects = boundaries.groupBy(*keys).agg(F.min(states.SEQUENCE).alias(_LEAST))
    suspects = suspects.where(F.col(_LEAST) <= from_text(highest, shape.sequence_type))
    if suspects.isEmpty():
        return
    target = difference.target_rows(context, shape)
    history = target.select(*keys, F.greatest(START, difference.FOUND_END).alias(_BEFORE))
    offending = suspects.join(history, on=list(shape.keys)).where(F.col(_LEAST) <= F.col(_BEFORE))
    count = offending.select(*keys).distinct().count()
    refusals.refuse({refusals.DISORDER: count}, offending, shape, context, {refusals.DISORDER: F.lit(True)})


def refuse_disorder(context: StepContext, valid: DataFrame, shape: Shape) -> None:
    """Refuse events of a feed that do not increase, or that are inside the history of their key.

    :param valid: :func:`delta_cdc.spark.apply.events.of_states`
    :raises SequenceNotIncreasing: names sample keys
    """
    if not context.options.is_ordered_by_commit:
        refuse_inside_history(context, refuse_descending(context, valid, shape), shape)


def refuse_descending(context: StepContext, valid: DataFrame, shape: Shape) -> DataFrame:
    """Refuse events of a feed whose sequence is not above that of the event before; return the changes.

    :param valid: :func:`delta_cdc.spark.apply.events.of_states`
    :raises SequenceNotIncreasing: names sample keys
    """
    changes = valid.where(
        F.col(states.BEFORE).isNull()
        | F.col(states.AFTER).isNull()
        | _changes_tracked(shape, context.options)
    )
    previous = F.lag(states.SEQUENCE).over(shape.per_key.orderBy(reserved_columns.ORDER))
    disordered = changes.withColumn(_BEFORE, previous).where(F.col(_BEFORE) >= F.col(states.SEQUENCE))
    count = disordered.count()
    refusals.refuse({refusals.DISORDER: count}, disordered, shape, context, {refusals.DISORDER: F.lit(True)})
    return changes


def _changes_tracked(shape: Shape, options: ApplyOptions) -> Column:
    """Return whether an update carries a new value of a tracked column."""
    changes = [F.lit(False)]
    for position, leaf in enumerate(partial_columns.leaves(shape, options)):
        if leaf.path[0] not in shape.tracked:
            continue
        carries = F.coalesce(F.get(F.col(events.AUTHORED), F.lit(position)), F.lit(True))
        paths = [leaf.path_in(side) for side in (states.BEFORE, states.AFTER)]
        sides = [F.expr(comparable(path, leaf.data_type)) for path in paths]
        changes.append(carries & ~sides[0].eqNullSafe(sides[1]))
    return balanced(or_, changes)
