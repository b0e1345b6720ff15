"""Resolve conflicting events: merge several events of one key and sequence into one, or refuse them.

Upserts merge into one if they agree on every column (or struct field) that more than one of them carries;
exact duplicates are the simplest case. A delete wins over upserts. If upserts disagree, they conflict, and
the options decide.
"""

from __future__ import annotations

from operator import or_
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from delta_cdc.core import reserved_columns
from delta_cdc.core.adapters import DELETE, UPSERT
from delta_cdc.core.errors import ConflictingEvents, KeyNotUnique
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark import quarantine
from delta_cdc.spark.apply import partial_columns, refusals
from delta_cdc.spark.apply.events import AUTHORED, KIND, LAST_BY, SHARED
from delta_cdc.spark.apply.rows import TIME
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import balanced, comparable

if TYPE_CHECKING:
    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.spark.apply.prepared_step import StepContext
    from delta_cdc.spark.apply.rows import Shape

#: Flag of an event that is new.
IN_BATCH = f"{PLAN_PREFIX}in_batch"
_CONFLICT, _DIFFERENT = f"{PLAN_PREFIX}conflict", f"{PLAN_PREFIX}different"
_GREATEST = f"{PLAN_PREFIX}greatest"


def resolved(context: StepContext, events: DataFrame, shape: Shape) -> DataFrame:
    """Reduce events to one per key and sequence; quarantine conflicting events if the options request it.

    :param events: valid events with :data:`IN_BATCH` and :data:`~delta_cdc.spark.apply.events.SHARED`; some
        share a sequence, and truncates pass through
    :raises ConflictingEvents: upserts disagree, and ``on_conflict`` is ``fail`` or ``last_by`` gives them no
        order
    :raises KeyNotUnique: the same, for a snapshot
    """
    group = [*shape.key_columns, F.col(states.SEQUENCE)]
    names = [*shape.keys, states.SEQUENCE]
    tied = events.where(SHARED)
    merged_events = _one_each(tied, shape, context.options, group).localCheckpoint()
    totals = merged_events.agg(
        F.count_if(F.col(_DIFFERENT) & F.col(IN_BATCH)).alias("tied"),
        F.count_if(_CONFLICT).alias("conflicts"),
    ).collect()[0]
    context.count(tied=totals["tied"])
    if totals["conflicts"]:
        conflicting = merged_events.where(_CONFLICT)
        if context.options.on_conflict != "quarantine":
            _refuse(context, totals["conflicts"], refusals.samples(conflicting, names, F.lit(True)))
        # This also removes conflicting events that were applied earlier: the key is recomputed without them.
        # A repair may be the first step with this policy, and a reload reads events that no step has read.
        again = context.step.kind in ("repair", "reload") and not context.step.read.quarantined
        new_positions = (conflicting if again else conflicting.where(IN_BATCH)).select(*group)
        removed = tied.join(new_positions, on=names, how="left_semi")
        if not context.only_compares:
            quarantine.set_aside(context, removed, shape, F.lit("tied"), unless_held=again)
        merged_events = merged_events.where(~F.col(_CONFLICT))
    without_conflict = events.where(~F.col(SHARED))
    column_names = [quote(name) for name in events.columns if name in merged_events.columns]
    return without_conflict.select(*column_names).unionByName(merged_events.select(*column_names))


def _refuse(context: StepContext, count: int, sample: str) -> NoReturn:
    options, source, versions = context.options, context.source, context.versions
    cause = "last_by gives them no order" if options.last_by else "on_conflict is 'fail'"
    problem = (
        f"Different events of one key have the same sequence in {versions} of {source}, or before "
        f"({count} case(s), for instance {sample.replace(states.SEQUENCE, 'sequence')}), and {cause}."
    )
    if options.source_kind == "snapshot":
        raise KeyNotUnique(
            f"A snapshot of {source}, {versions}, has different rows with one key. {problem}",
            remedy="add columns to keys until a row is unique. Or remove the duplicates from the source, and "
            "run once with mode='reload': the range keeps the versions with both rows.",
        )
    raise ConflictingEvents(
        problem,
        remedy="make sequence_by more precise (a list of expressions; for an ingest, with a new log and a "
        "new target). Or define which event wins: "
        "policies={'on_conflict': {'last_by': [columns]}}. Or put these events into quarantine: "
        "policies={'on_conflict': 'quarantine'}. Or, if a file was corrected and delivered again, delete its "
        "old events from the log, and run once with mode='reload'.",
    )


def _one_each(tied: DataFrame, shape: Shape, options: ApplyOptions, group: list[Column]) -> DataFrame:
    """Return one event per group, with two flags: its events differ, and its events conflict."""
    counts = F.lit(True)
    if options.last_by:
        tied = tied.withColumn(_GREATEST, F.max(LAST_BY).over(Window.partitionBy(*group)))
        counts = F.col(LAST_BY).eqNullSafe(F.col(_GREATEST))
    parts = partial_columns.leaves(shape, options)
    all_merged = _combined(F.lit(True), parts, shape)
    merged = F.struct(*[value.alias(name) for name, value in all_merged.items()])
    if options.last_by:
        last_merged = _combined(counts, parts, shape)
        last_event = F.struct(*[value.alias(name) for name, value in last_merged.items()])
        merged = F.when(
            all_merged[_CONFLICT] | all_merged[_DIFFERENT] & (all_merged[KIND] == DELETE), last_event
        ).otherwise(merged)
    groups = tied.groupBy(*group).agg(
        merged.alias("m"),
        all_merged[_DIFFERENT].alias(_DIFFERENT),
        F.max(IN_BATCH).alias(IN_BATCH),
        F.max(reserved_columns.COMMIT_VERSION).alias(reserved_columns.COMMIT_VERSION),
    )
    columns = [F.col(f"m.{name}").alias(name) for name in all_merged if name != _DIFFERENT]
    return groups.select(*group, *columns, _DIFFERENT, IN_BATCH, reserved_columns.COMMIT_VERSION)


def _combined(counts: Column, parts: tuple[partial_columns.Leaf, ...], shape: Shape) -> dict[str, Column]:
    """Return aggregates that merge the events of a group into one and show whether they disagree.

    :param counts: condition that selects the events to use
    """
    is_upsert = counts & (F.col(KIND) == UPSERT)
    n_deletes, n_upserts = F.count_if(counts & (F.col(KIND) == DELETE)), F.count_if(is_upsert)
    flags = F.col(AUTHORED)
    values, conflicts, uneven, carried = [], [], [], []
    for position, leaf in enumerate(parts):
        carries = is_upsert & F.coalesce(F.get(flags, F.lit(position)), F.lit(True))
        value = leaf.of(F.col(states.AFTER))
        compared = F.when(carries, F.struct(F.expr(comparable(leaf.path_in(states.AFTER), leaf.data_type))))
        conflicts.append(~F.min(compared).eqNullSafe(F.max(compared)))
        # What all events leave out makes no difference between them.
        uneven.append((F.count_if(carries) > 0) & (F.count_if(carries) != n_upserts))
        carried.append(F.max(carries))
        # The struct keeps NULL, which is a valid value.
        values.append(F.first(F.when(carries, F.struct(value.alias("v"))), ignorenulls=True).getField("v"))
    disagree = balanced(or_, [F.lit(False), *conflicts])
    any_state = F.first(F.when(is_upsert, F.col(states.AFTER)), ignorenulls=True)
    state = partial_columns.rebuilt(parts, shape, any_state, values) if parts else any_state
    deleted = n_deletes > 0
    is_uneven = balanced(or_, [F.lit(False), *uneven])
    times = {}
    if shape.time_type is not None:
        # An equal event changes nothing, so the first time counts; parts are complete with the last one.
        is_delete = counts & (F.col(KIND) == DELETE)
        of_upserts = [make(F.when(is_upsert, F.col(TIME))) for make in (F.max, F.min)]
        of_state = F.when(is_uneven, of_upserts[0]).otherwise(of_upserts[1])
        times[TIME] = F.when(deleted, F.min(F.when(is_delete, F.col(TIME)))).otherwise(of_state)
    return {
        KIND: F.when(deleted, DELETE).otherwise(UPSERT),
        states.AFTER: F.when(~deleted, state),
        AUTHORED: F.when(~deleted & F.first(flags, ignorenulls=True).isNotNull(), F.array(*carried)),
        _CONFLICT: ~deleted & disagree,
        _DIFFERENT: (deleted & (n_upserts > 0)) | disagree | (~deleted & is_uneven),
        **times,
    }
