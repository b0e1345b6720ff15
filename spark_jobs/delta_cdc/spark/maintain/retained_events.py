"""Select the events below a ``horizon`` that a consumer still needs to apply later events correctly.

A ``horizon`` is the lowest sequence that the log's allowed lateness admits.

The last event of each key stays, because later events apply to its state. If events may carry only some of
the columns, all events stay that set a value of the current row. A deleted row that stays
in its target (soft delete) keeps its last values, so the events that set these stay.

An event is *sure* if it is the only one of its key and sequence. The outcome of conflicting events depends on
the option ``on_conflict``, which the target does not record: they may merge, one may win, or all may go to
quarantine. So conflicting events stay, and so does the last sure event before them.

Worked example, ``horizon`` 10, events of one key (with the columns that each carries)::

    1: a, b     2: delete     4: a, b     6: a     8: b     12: a
                ^ stays: ends the row of 1
                              ^ goes: 6 and 8 overwrite both columns
                                          ^ stays  ^ stays  ^ not below the horizon
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delta_cdc.core.adapters import DELETE, TRUNCATE, UPSERT
from delta_cdc.core.sql import PLAN_PREFIX
from delta_cdc.spark.apply import partial_columns
from delta_cdc.spark.apply.events import AUTHORED, KIND
from delta_cdc.spark.changes import states

if TYPE_CHECKING:
    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.spark.apply.rows import Shape

#: An event's content, as text: two events of a key and sequence with the same content count as one.
CONTENT = f"{PLAN_PREFIX}content"
_SURE, _BASE, _KIND = f"{PLAN_PREFIX}sure", f"{PLAN_PREFIX}base", f"{PLAN_PREFIX}last_kind"
_DIED, _TRUNCATED = f"{PLAN_PREFIX}died", f"{PLAN_PREFIX}truncated"
_TRUNCATES = f"{PLAN_PREFIX}truncates"
_LEAF = f"{PLAN_PREFIX}leaf"


def needed(events: DataFrame, shape: Shape, options: ApplyOptions) -> DataFrame:
    """Return the events that stay.

    :param events: valid events below the ``horizon``: keys, SEQUENCE, KIND, AUTHORED, :data:`CONTENT`, and
        any further columns, which are passed on
    """
    is_truncate = F.col(KIND) == TRUNCATE
    key_events, position_columns = events.where(~is_truncate), [*shape.keys, states.SEQUENCE]
    kept = key_events.join(
        _kept_positions(key_events, events.where(is_truncate), shape, options), position_columns, "left_semi"
    )
    if options.apply_as_truncates is None:
        return kept
    return kept.unionByName(_truncates(events.where(is_truncate), options))


def _truncates(events: DataFrame, options: ApplyOptions) -> DataFrame:
    """Return the truncates that stay: the last one.

    With soft deletes and partial columns all truncates stay, because a row keeps its older values column by
    column.
    """
    if options.keeps_deleted and options.is_partial:
        return events
    last = events.agg(F.max(states.SEQUENCE).alias(states.SEQUENCE))
    return events.join(F.broadcast(last), states.SEQUENCE, "left_semi").select(*events.columns)


def _kept_positions(
    key_events: DataFrame, truncates: DataFrame, shape: Shape, options: ApplyOptions
) -> DataFrame:
    """Return the keys and sequences of the events that stay."""
    sequence, window = F.col(states.SEQUENCE), shape.per_key
    groups = key_events.groupBy(*shape.key_columns, sequence).agg(
        (F.count_distinct(CONTENT) == 1).alias(_SURE),
        F.min(KIND).alias(KIND),
        F.first(AUTHORED).alias(AUTHORED),
    )
    last = F.when(F.col(_SURE), sequence)
    base = F.max(last).over(window)
    if options.keeps_deleted:
        # Keep the last values of a deleted row too; only conflicting events may have them.
        upsert = F.when(F.col(_SURE) & (F.col(KIND) == UPSERT), sequence)
        alone = F.when(F.min(_SURE).over(window), base)
        base = F.coalesce(F.max(upsert).over(window), alone)
    groups = groups.withColumns({_BASE: base, _KIND: F.max_by(KIND, last).over(window)})
    on_top = F.col(_BASE).isNull() | (sequence >= F.col(_BASE))
    position_columns = [*shape.key_columns, sequence]
    if not options.is_partial:
        return groups.where(on_top).select(*position_columns)
    groups_with_life = _add_life(groups, truncates, shape, options)
    in_life = _in_life(options)
    boundary = sequence.eqNullSafe(F.col(_DIED))
    stay = groups_with_life.where(on_top | boundary | (in_life & ~F.col(_SURE))).select(*position_columns)
    sets_values = in_life & F.col(_SURE) & (F.col(KIND) == UPSERT) & (sequence <= F.col(_BASE))
    return stay.unionByName(_authors(groups_with_life.where(sets_values), shape, options)).distinct()


def _add_life(groups: DataFrame, truncates: DataFrame, shape: Shape, options: ApplyOptions) -> DataFrame:
    """Add ``_DIED`` and ``_TRUNCATED``: the sequences of the last delete and truncate before ``_BASE``."""
    sequence = F.col(states.SEQUENCE)
    deletes = F.col(_SURE) & (F.col(KIND) == DELETE) & (sequence < F.col(_BASE))
    groups_with_life = groups.withColumn(_DIED, F.max(F.when(deletes, sequence)).over(shape.per_key))
    if options.apply_as_truncates is None:
        return groups_with_life.withColumn(
            _TRUNCATED, F.lit(None).cast(groups.schema[states.SEQUENCE].dataType)
        )
    truncate_sequences = truncates.agg(F.collect_set(states.SEQUENCE).alias(_TRUNCATES))
    last_truncate = F.array_max(F.filter(_TRUNCATES, lambda truncate: truncate <= F.col(_BASE)))
    return (
        groups_with_life.crossJoin(F.broadcast(truncate_sequences))
        .withColumn(_TRUNCATED, last_truncate)
        .drop(_TRUNCATES)
    )


def _in_life(options: ApplyOptions) -> Column:
    sequence = F.col(states.SEQUENCE)
    after = F.col(_DIED).isNull() | (sequence > F.col(_DIED))
    since = F.col(_TRUNCATED).isNull() | (sequence >= F.col(_TRUNCATED))
    if options.keeps_deleted:
        return after & since
    # Later events inherit no values from a deleted row.
    return after & since & (F.col(_KIND) == UPSERT)


def _authors(upserts: DataFrame, shape: Shape, options: ApplyOptions) -> DataFrame:
    """Return the keys and sequences of the upserts that last set each partial column."""
    all_columns = F.array_repeat(F.lit(True), len(partial_columns.leaves(shape, options)))
    leaves = upserts.select(
        *shape.key_columns,
        states.SEQUENCE,
        F.posexplode(F.coalesce(F.col(AUTHORED), all_columns)).alias(_LEAF, _SURE),
    )
    last = (
        leaves.where(F.col(_SURE))
        .groupBy(*shape.key_columns, _LEAF)
        .agg(F.max(states.SEQUENCE).alias(states.SEQUENCE))
    )
    return last.select(*shape.key_columns, states.SEQUENCE)
