"""Apply events: compute the rows of the affected keys from events, and write the difference to the target.

A batch is *in order* if the sequence of every event is above the highest one applied so far. Then the
target's open row is the current state of its key. Keys with a late event are recomputed from all of their
events in the log; if a truncate is late, or a log is loaded or reloaded, all keys are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_cdc.core import reserved_columns
from delta_cdc.core.adapters import TRUNCATE
from delta_cdc.core.errors import (
    ConfigurationDrift,
    InvalidConfiguration,
    SnapshotNotAscending,
)
from delta_cdc.core.reserved_columns import DELETED_COLUMN
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.core.validation import BESIDE
from delta_cdc.core.watermark import newest
from delta_cdc.spark import quarantine, written_rows
from delta_cdc.spark.apply import (
    batches,
    copies,
    difference,
    events,
    from_feed,
    history,
    latest,
    layout,
    load,
    ordering,
    refusals,
    row_hash,
    rows,
    schema,
    target_columns,
    tied_events,
    timeline,
    times,
    value_rules,
)
from delta_cdc.spark.apply.entries import BASE, DELETED, END, FOUND_DELETED, PLACE, START, inherited
from delta_cdc.spark.apply.prepared_step import PreparedStep, StepContext
from delta_cdc.spark.apply.sequences import as_text, from_text, greater
from delta_cdc.spark.apply.timeline import KeySelection
from delta_cdc.spark.changes import states
from delta_cdc.spark.sessions import shuffle_for
from delta_cdc.spark.silence_loggers import quietly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import DataType

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.core.spec import ApplySpec
    from delta_cdc.core.steps import Step
    from delta_cdc.spark.apply.events import Events
    from delta_cdc.spark.apply.rows import Shape


#: Number of truncates that a seal keeps; they only show that the log has some.
_KEPT_TRUNCATES = 100
#: An unknown number of rows, greater than every limit.
_UNKNOWN = 1 << 40
_NEW = f"{PLAN_PREFIX}new"


# -- reading ------------------------------------------------------------------------------------
def batch_rows(context: StepContext) -> DataFrame:
    """Return the rows added in the step's range, with the version that added them."""
    if in_hand(context.session, context.source, context.step):
        kept = written_rows.rows(context.session, context.step.source_columns)
        if kept is not None:
            return kept
    changes = from_feed.change_rows(context)
    inserted = changes.where(F.col(reserved_columns.CHANGE_TYPE) == "insert")
    columns = [quote(name) for name in context.step.source_columns]
    return inserted.select(*columns, reserved_columns.COMMIT_VERSION)


def in_hand(session: SparkSession, source: str, step: Step) -> bool:
    """Return whether the session keeps the rows of a step's range, because it just wrote them."""
    return (
        step.kind == "apply"
        and step.read.staging is None
        and written_rows.has_range(session, source, step.starting_version, step.watermark)
    )


def all_rows(context: StepContext, *, with_versions: bool = False) -> DataFrame:
    """Return all rows of the source as of the step, with the version that added them if it is needed.

    Of the events below the allowed lateness, some count and others arrived too late. The version that added
    an event distinguishes them; only a log with row tracking records it.

    :param with_versions: the caller needs the versions, where they are recorded
    """
    step, source_rows = context.step, _as_of_step(context)
    if step.at < 0:
        source_rows = source_rows.limit(0)
    added = F.lit(None).cast("bigint")
    if (step.horizons or with_versions) and _tracks_rows(source_rows):
        added = F.col("_metadata.row_commit_version")
    columns = [quote(name) for name in step.source_columns]
    return source_rows.select(*columns, added.alias(reserved_columns.COMMIT_VERSION))


def _as_of_step(context: StepContext) -> DataFrame:
    reader = context.session.read.format("delta").option("versionAsOf", max(context.step.at, 0))
    return reader.load(context.source)


def _tracks_rows(source_rows: DataFrame) -> bool:
    try:
        with quietly():
            return bool(source_rows.select("_metadata.row_commit_version").columns)
    except AnalysisException:
        return False


def _checked(context: StepContext, source_events: Events) -> tuple[batches.Batch, DataFrame, DataFrame]:
    """Return the checked batch, its valid events, and rows with the sequences of all snapshots or events."""
    batch = events.checked(context, source_events)
    discarded = batch.totals[refusals.LATE]
    if discarded and not _tracks_rows(_as_of_step(context)):
        raise InvalidConfiguration(
            f"{discarded} event(s) of {context.source}, {context.versions}, are too late and would be "
            "discarded, but the log has no row tracking. Later runs that recompute their keys could not "
            "discard them again.",
            remedy="set delta.enableRowTracking on the log, or delete these events from it.",
        )
    # A snapshot counts even if all of its rows are filtered out, quarantined, or of erased keys.
    erases = bool(context.spec.erased.source or context.spec.erased.ledger)
    partly = context.options.where is not None or context.quarantined is not None or erases
    valid = batch.rows.where(F.col(events.REASON).isNull()).withColumn(tied_events.IN_BATCH, F.lit(True))
    return batch, valid, source_events.sequences if partly else batch.rows


# -- a range ------------------------------------------------------------------------------------
def apply(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    """Prepare the MERGE of a range of a change log, or of a table of snapshots."""
    context = StepContext.of(session, spec, step)
    source_events = events.of_step(context, batch_rows(context), counted=True)
    batch, valid, sequences = _checked(context, source_events)
    shape, totals = source_events.shape, batch.totals
    refuse_other_order(context, shape)
    schema.check_target(context, shape)
    highest, truncates, pruning = totals["highest"], totals["truncates"], batches.pruning(batch)
    context.truncated = context.truncated or bool(truncates)
    if context.options.source_kind == "change_log" and not truncates:
        context.size = totals["events"]
    if not _is_small(context) or totals["late"]:
        # More events than those of the batch are read.
        shuffle_for(session, few_rows=False)
    if context.options.source_kind == "snapshot":
        highest, pruning = _newest(context, sequences, shape), []
        held = held_events(context, batch.rows)
        computed = [
            _in_order(context, batch, valid, shape, (), everything=True, snapshots=sequences, held=held)
        ]
    elif totals["late_truncates"]:
        computed, pruning = [from_all_events(context, KeySelection(), valid, shape, ())], []
    else:
        computed = _by_lateness(context, batch, valid, shape, pruning)
        pruning = [] if truncates else pruning
    return prepared(
        context,
        computed,
        shape,
        pruning,
        highest=highest,
        truncates=tuple(dict.fromkeys((*step.truncate_sequences, *truncates))),
    )


def held_events(context: StepContext, source_events: DataFrame) -> DataFrame | None:
    """Return the events that a rule keeps from being applied; None without rules."""
    if not context.options.rules:
        return None
    return source_events.where(value_rules.is_reason(F.col(events.REASON)))


def refuse_other_order(context: StepContext, shape: Shape) -> None:
    """Refuse a sequence whose type differs from the type that the target was built with.

    :raises ConfigurationDrift: names both types
    """
    assert shape.order_type is not None
    recorded = context.step.before.configuration if context.step.before is not None else {}
    old, new = recorded.get("sequence_by_type"), shape.order_type.simpleString()
    if old is not None and old != new:
        raise ConfigurationDrift(
            f"{context.spec.target_uri} was built with a sequence of type {old}; sequence_by gives {new}.",
            remedy=f"keep the type of sequence_by, or build a new target beside the old one ({BESIDE}).",
        )


def _newest(context: StepContext, sequences: DataFrame, shape: Shape) -> str | None:
    """Return the sequence of the newest snapshot, and count the rows of those that a range brings.

    :raises SnapshotNotAscending: a snapshot is not newer than the last applied one
    """
    late, new = copies.counted(context, sequences, shape)
    if late:
        raise SnapshotNotAscending(
            f"{sum(copy.rows for copy in late)} row(s) of {context.source}, {context.versions}, belong to a "
            f"snapshot that is not newer than {context.step.highest_sequence}, the last one applied.",
            remedy="deliver snapshots whole and in order; mode='reload' takes the newest one as it is.",
        )
    if context.step.kind == "apply":
        context.copies = copies.to_compare(context, (), new, lambda: all_rows(context), shape)
    return new[-1].name if new else None


def _by_lateness(
    context: StepContext, batch: batches.Batch, valid: DataFrame, shape: Shape, pruning: Sequence[str]
) -> list[ComputedRows]:
    everything, applied = bool(batch.totals["truncates"]), context.step.highest_sequence
    if not batch.totals["late"]:
        return [_in_order(context, batch, valid, shape, pruning, everything=everything)]
    assert applied is not None
    assert shape.order_type is not None
    late = F.col(states.SEQUENCE) <= from_text(applied, shape.order_type)
    keys = valid.where(late).select(*shape.key_columns).distinct().localCheckpoint()
    selection = KeySelection(keys, small=_is_small(context))
    recomputed = from_all_events(context, selection, valid, shape, pruning)
    in_order = valid.join(keys, on=list(shape.keys), how="left_anti")
    if not everything and in_order.isEmpty():
        return [recomputed]
    current = _in_order(context, batch, in_order, shape, pruning, everything=everything, without=keys)
    return [recomputed, current]


def _is_small(context: StepContext) -> bool:
    """Return whether the affected keys are few."""
    return context.size is not None and context.size <= layout.MOST_SENT


# -- recomputing --------------------------------------------------------------------------------
@dataclass(frozen=True)
class ComputedRows:
    """The rows to be written for some keys.

    :param rows: from :func:`delta_cdc.spark.apply.difference.flat`
    :param compared: ``rows`` excludes rows that the target already has unchanged
    :param lazy: Spark reads the target to compute ``rows``
    :param open_only: of a history, ``rows`` changes only open rows
    """

    rows: DataFrame
    compared: bool
    lazy: bool = True
    open_only: bool = True


def current_rows(context: StepContext, shape: Shape, pruning: Sequence[str] = ()) -> DataFrame:
    """Return the rows of the target; of a history, only the open rows."""
    return difference.target_rows(context, shape, pruning, open_only=True)


def operations(
    context: StepContext,
    entries: DataFrame,
    shape: Shape,
    *,
    compared: bool = True,
    partial: bool = True,
    growing: bool = False,
    in_place: bool = True,
) -> DataFrame:
    """Return the operations that change the target from the base of each timeline to its last event.

    :param partial: some events may lack columns
    """
    if partial:
        entries = inherited(entries, shape, context.options)
    if context.has_history:
        runs = history.runs(entries, shape)
        changed = history.against_base(runs, shape, growing=growing, in_place=in_place)
    else:
        last = latest.last_states(entries, shape)
        changed = latest.operations(last, shape, context.options, compared=compared)
    return _written(changed, shape)


def _written(rows: DataFrame, shape: Shape) -> DataFrame:
    return difference.flat(rows.where(difference.is_changed()), shape)


def _in_order(
    context: StepContext,
    batch: batches.Batch,
    valid: DataFrame,
    shape: Shape,
    pruning: Sequence[str],
    *,
    everything: bool,
    without: DataFrame | None = None,
    snapshots: DataFrame | None = None,
    held: DataFrame | None = None,
) -> ComputedRows:
    """Compute rows of keys from the new events, and from the target's current rows if these matter.

    Of type 1, the current rows do not matter if every event carries all columns, and rows have no times.

    :param valid: valid events of ``batch``, whose totals say what to expect
    :param everything: all keys of the target are affected (truncates, snapshots), not only those with events
    :param without: keys to exclude
    :param snapshots: the sequences of the snapshots; None for a log
    :param held: see :func:`delta_cdc.spark.apply.timeline.with_absences`
    """
    resolved = tied_events.resolved(context, valid, shape) if batch.totals["shared"] else valid
    is_truncate = F.col(events.KIND) == TRUNCATE
    entries = timeline.of_events(resolved.where(~is_truncate), shape)
    partial = bool(batch.totals["partial"])
    compared = context.has_history or everything or partial or shape.time_type is not None
    if compared:
        if everything:
            pruning, selection = (), KeySelection(without=without)
        else:
            keys = entries.select(*shape.key_columns)
            selection = KeySelection(keys, small=_is_small(context))
        current = selection.of(current_rows(context, shape, pruning), shape)
        entries = timeline.of_target(current, entries, shape).unionByName(entries)
    if snapshots is not None:
        entries = timeline.with_absences(entries, snapshots, shape, held)
    elif everything:
        entries = timeline.with_truncates(entries, resolved.where(is_truncate), shape)
    changed = operations(context, entries, shape, compared=compared, partial=partial)
    return ComputedRows(changed, compared, lazy=compared)


def from_all_events(
    context: StepContext,
    selection: KeySelection,
    batch: DataFrame | None,
    shape: Shape,
    pruning: Sequence[str],
) -> ComputedRows:
    """Recompute rows of keys from all of their events in the source.

    :param batch: the new events, for counts; None if no event is new
    """
    options, step = context.options, context.step
    target = difference.target_rows(context, shape, pruning)
    existing, earlier = selection.of(target, shape), None
    if options.source_kind == "snapshot" and context.has_history:
        earlier, existing = _since_oldest(context, existing, shape)
    entries = desired_entries(context, selection, batch, shape, pruning, earlier)
    entries = inherited(entries, shape, options)
    if context.has_history:
        desired = history.history_rows(history.runs(entries, shape))
        bound = _lateness_bound(context, shape)
        if bound is not None:
            desired, existing = history.from_horizon(desired, existing, shape, bound)
        return by_start(desired, existing, shape)
    # Each key of this batch has a timeline, unless all of its events are quarantined.
    lazy = step.kind != "apply" or selection == KeySelection() or options.on_conflict == "quarantine"
    is_oldest = None if shape.time_type is None else _may_lack_older(context, shape)
    if is_oldest is not None:
        entries, lazy = times.not_after(entries, existing, shape, is_oldest), True
    if lazy:
        # Delete rows of the target whose key has no event in the log.
        entries = timeline.of_target(existing, entries, shape, dead=True).unionByName(entries)
        no_base = F.lit(None).cast(entries.schema[BASE].dataType)
        entries = entries.withColumn(BASE, no_base)
    last = latest.last_states(entries, shape)
    changed = latest.operations(last, shape, options, compared=False)
    return ComputedRows(_written(changed, shape), compared=False, lazy=lazy)


def _may_lack_older(context: StepContext, shape: Shape) -> Column | None:
    """Return whether the source may have had events older than an entry, and has them no longer.

    :return: None if it has all events
    """
    order_type = shape.order_type
    assert order_type is not None
    if context.options.source_kind == "snapshot":
        oldest = _oldest(context, order_type)
        return None if oldest is None else F.col(PLACE) <= from_text(oldest, order_type)
    bound = _lateness_bound(context, shape)
    return None if bound is None else F.col(PLACE) < bound


def _lateness_bound(context: StepContext, shape: Shape) -> Column | None:
    """Return the lowest sequence that the log's allowed lateness admits; None if it has no bound."""
    bound = context.step.lateness_bound
    assert shape.order_type is not None
    return from_text(bound, shape.order_type) if bound is not None else None


def _oldest(context: StepContext, order_type: DataType) -> str | None:
    """Return the sequence of the oldest snapshot that the source has, as text."""
    sequences = events.of_step(context, all_rows(context)).sequences
    oldest = as_text(F.min(states.SEQUENCE), order_type).alias("oldest")
    text: str | None = sequences.agg(oldest).collect()[0]["oldest"]
    return text


def by_start(desired: DataFrame, existing: DataFrame, shape: Shape) -> ComputedRows:
    """Return the rows to write for keys whose history is recomputed.

    :param desired: see :func:`delta_cdc.spark.apply.history.against_rows`
    :param existing: the rows of the target
    """
    changed = history.against_rows(desired, existing, shape)
    return ComputedRows(_written(changed, shape), compared=True, open_only=False)


def _since_oldest(context: StepContext, existing: DataFrame, shape: Shape) -> tuple[DataFrame, DataFrame]:
    """Keep history that is older than the oldest snapshot of the source.

    :return: two sets of rows of the target: the row of each key that is open at the oldest snapshot; and all
        rows that are open, or that end at or after this snapshot
    """
    order_type = shape.order_type
    assert order_type is not None
    oldest_text = _oldest(context, order_type)
    if oldest_text is None:
        return existing.limit(0), existing.limit(0)
    since = from_text(oldest_text, order_type)
    end = F.col(difference.FOUND_END)
    overlapping = existing.where(end.isNull() | (end >= since))
    return overlapping.where(F.col(START) < since), overlapping


def desired_entries(
    context: StepContext,
    selection: KeySelection,
    batch: DataFrame | None,
    shape: Shape,
    pruning: Sequence[str],
    earlier: DataFrame | None,
) -> DataFrame:
    """Return the timeline of keys from all of their events in the source, including truncates.

    :param earlier: rows of the target that are older than the events
    """
    options = context.options
    source_events = events.of_step(context, all_rows(context), keep_raw=context.has_history)
    bound = _lateness_bound(context, shape)
    if context.has_history and bound is not None:
        # The history below the bound was made without what the quarantine has, and it stays.
        rows, is_below = source_events.rows, F.col(states.SEQUENCE) < bound
        source_events = replace(source_events, rows=quarantine.without_held(context, rows, shape, is_below))
    valid = source_events.rows.where(F.col(events.REASON).isNull())
    is_truncate = F.col(events.KIND) == TRUNCATE
    key_events, held = _key_events(context, selection, source_events, shape, pruning, counts=batch is None)
    # Replayed events are treated as new.
    is_new = F.lit(context.step.read.quarantined)
    if context.step.read.quarantined:
        # Events that are still invalid stay in the quarantine, under the new seal. It has no discarded ones.
        is_invalid = F.col(events.REASON) != refusals.LATE
        quarantine.count_left(context, shape)
        invalid = selection.of(source_events.rows.where(is_invalid), shape)
        quarantine.set_aside(context, invalid, shape, F.col(events.REASON))
    if batch is not None:
        position_columns = [*shape.keys, states.SEQUENCE]
        new_positions = batch.select(*[quote(name) for name in position_columns]).distinct()
        key_events = key_events.join(
            new_positions.withColumn(tied_events.IN_BATCH, F.lit(True)), on=position_columns, how="left"
        )
        is_new = F.coalesce(F.col(tied_events.IN_BATCH), F.lit(False))
    resolved, admitted = key_events.withColumn(tied_events.IN_BATCH, is_new), key_events
    if not key_events.where(events.SHARED).isEmpty():
        resolved = tied_events.resolved(context, resolved, shape)
        places = resolved.select(*shape.key_columns, states.SEQUENCE)
        admitted = key_events.join(places, on=[*shape.keys, states.SEQUENCE], how="left_semi")
    quarantine.settle(context, admitted, shape)
    entries = timeline.of_events(resolved, shape)
    if options.delete_mode == "soft" and not context.has_history:
        # A rule may be newer than a row. It stops the row's events, but the source has not deleted the key.
        all_events = key_events if held is None else key_events.unionByName(held)
        entries = timeline.with_beginnings(entries, all_events, shape)
    if options.source_kind == "snapshot":
        if earlier is not None:
            entries = timeline.of_target(earlier, entries, shape).unionByName(entries)
        return timeline.with_absences(entries, source_events.sequences, shape, held)
    if context.truncated:
        entries = timeline.with_truncates(entries, valid.where(is_truncate), shape)
    return entries


def _key_events(
    context: StepContext,
    selection: KeySelection,
    source_events: Events,
    shape: Shape,
    pruning: Sequence[str],
    *,
    counts: bool,
) -> tuple[DataFrame, DataFrame | None]:
    """Return the valid events of keys, without truncates, and those that a rule keeps from being applied.

    :param counts: see :func:`_test_again`
    """
    options, is_valid = context.options, F.col(events.REASON).isNull()
    wanted = is_valid | value_rules.is_reason(F.col(events.REASON)) if options.rules else is_valid
    key_events = source_events.rows.where(wanted)
    if options.apply_as_truncates:
        key_events = key_events.where(F.col(events.KIND) != TRUNCATE)
    key_events = key_events.alias("t")
    for condition in pruning:
        key_events = key_events.where(F.expr(condition))
    key_events = selection.of(key_events, shape)
    key_events = events.marked(key_events, shape).localCheckpoint()
    if context.only_compares:
        key_events = events.reconsidered(context, key_events, shape)
    held = held_events(context, key_events)
    if held is not None:
        if not context.only_compares:
            _test_again(context, key_events, shape, counts=counts)
        key_events = key_events.where(is_valid)
    if options.source_kind == "change_log" and not context.only_compares:
        context.highest = _greatest(context, key_events, shape)
    return key_events, held


def _greatest(context: StepContext, key_events: DataFrame, shape: Shape) -> str | None:
    """Return the greatest sequence of events that are applied again, and of those before them."""
    assert shape.order_type is not None
    greatest = as_text(F.max(states.SEQUENCE), shape.order_type).alias("greatest")
    found = key_events.agg(greatest).collect()[0]["greatest"]
    return greater(context.session, shape.order_type, context.highest, found)


def _test_again(context: StepContext, key_events: DataFrame, shape: Shape, *, counts: bool) -> None:
    """Refuse events of keys that are computed again, or set them aside, if they break a rule.

    A rule may be newer than an event. An event that an earlier step has applied must not disappear from the
    target without a trace.

    :param counts: count the rows that break a rule. Those of a range are counted already
    """
    named = [value.alias(name) for name, value in value_rules.totals(context.options).items()]
    totals = key_events.agg(*named).collect()[0].asDict()
    value_rules.refuse(context, totals, key_events, shape)
    if counts:
        value_rules.count(context, totals)
    if value_rules.sets_aside(context.options, totals) and not context.step.read.quarantined:
        stopped = key_events.where(value_rules.is_reason(F.col(events.REASON)))
        quarantine.set_aside(context, stopped, shape, F.col(events.REASON), unless_held=True)


def prepared(
    context: StepContext,
    computed: Sequence[ComputedRows],
    shape: Shape,
    pruning: Sequence[str],
    *,
    highest: str | None = None,
    truncates: Sequence[str] = (),
) -> PreparedStep:
    """Return the step with the MERGE that writes the computed rows.

    See :func:`delta_cdc.spark.apply.difference.prepared`.
    """
    source, *others = (part.rows for part in computed)
    for other in others:
        source = source.unionByName(other)
    # Rows with equal values stay as they are where that costs nothing, because all of a small target is read,
    # and where a reader would take such a row for a change.
    compares = context.spec.target_shows_writes or layout.is_small(context.spec.target_bytes)
    if context.has_history:
        open_only = all(part.open_only for part in computed)
        merge = history.merge(context, source, shape, pruning, open_only=open_only, lazy=True)
    else:
        merge = latest.merge(
            context,
            source,
            shape,
            pruning,
            compares=compares and not all(part.compared for part in computed),
            lazy=any(part.lazy for part in computed),
        )
    # An event changes one row, or at most three rows of history.
    changed = _UNKNOWN if context.size is None else context.size * (3 if context.has_history else 1)
    return difference.prepared(
        context,
        merge,
        shape,
        highest,
        newest(tuple(truncates), _KEPT_TRUNCATES),
        changed=changed,
        rewritten=context.size or 0,
        size=sum(read_range.size for read_range in context.step.read.ranges),
    )


# -- states whose events carry some of the columns ------------------------------------------------
def apply_states(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    """Prepare the MERGE of a range of a change feed whose upserts may set only some columns."""
    context = StepContext.of(session, spec, step)
    changes, shape = states_of(context)
    schema.check_target(context, shape)
    batch = checked_states(context, changes, shape)
    pruning = batches.pruning(batch)
    valid = batch.rows.where(F.col(events.REASON).isNull())
    if context.has_history:
        ordering.refuse_disorder(context, valid, shape)
    context.size = batch.totals["events"]
    entries = timeline.of_events(valid, shape, reserved_columns.ORDER)
    selection = KeySelection(entries.select(*shape.key_columns), small=_is_small(context))
    current = selection.of(current_rows(context, shape, pruning), shape)
    if not context.has_history:
        current = _with_duplicate_check(current, valid, shape)
    entries = timeline.of_target(current, entries, shape).unionByName(entries)
    computed = ComputedRows(operations(context, entries, shape, growing=True, in_place=False), compared=True)
    return prepared(context, [computed], shape, pruning, highest=batch.totals["highest"])


def _with_duplicate_check(current: DataFrame, valid: DataFrame, shape: Shape) -> DataFrame:
    """Let Spark raise for a duplicate: the source inserts a key that has an undeleted row in the target."""
    keys = shape.key_columns
    is_new = F.min_by(F.col(states.BEFORE).isNull(), reserved_columns.ORDER).alias(_NEW)
    joined = current.join(valid.groupBy(*keys).agg(is_new), on=list(shape.keys))
    is_alive = F.lit(True)
    if FOUND_DELETED in current.columns:
        is_alive = ~F.col(FOUND_DELETED)
    error = F.raise_error(F.concat(F.lit(refusals.DUPLICATE_MARK), keys[0].cast("string")))
    state = F.when(F.col(_NEW) & is_alive, error).otherwise(F.col(difference.FOUND))
    return joined.withColumn(difference.FOUND, state).drop(_NEW)


def states_of(context: StepContext, begun: DataFrame | None = None) -> tuple[DataFrame, Shape]:
    """Return the events of a change feed, each with the state before it, and their shape.

    :param begun: keys whose row as of the load is the first event
    """
    options = context.options
    by_version, shape = _by_version(context, from_feed.change_rows(context, options.where))
    if begun is not None:
        loaded, _ = _by_version(context, _loaded_rows(context, by_version, begun, shape))
        by_version = by_version.unionByName(loaded)
    return events.of_states(by_version, shape, options, context.step.source_columns), shape


def _by_version(context: StepContext, changes: DataFrame) -> tuple[DataFrame, Shape]:
    """Return change rows per key and version (:func:`states.version_states`), and the shape of the states."""
    options = context.options
    raw = context.step.source_columns if quarantine.may_hold(context) else ()
    read, shape = context.read(changes, raw=raw)
    carried = () if options.columns_to_update is None else (rows.CARRIED,)
    kept = (*((rows.RAW,) if raw else ()), *((rows.TIME,) if options.has_times else ()))
    values = (*shape.values, *carried, *kept)
    return states.version_states(read, shape.keys, values, tested=bool(options.rules)), shape


def _loaded_rows(context: StepContext, by_version: DataFrame, begun: DataFrame, shape: Shape) -> DataFrame:
    """Return the rows that some keys had when the target was loaded, as change rows of that version.

    Neither the load's version of the source nor the quarantine is read. A key's first change since the load
    has its row before; a key without a change still has this row.

    :param by_version: the changes since the load, with the rows of the source
    """
    keys, columns = list(shape.keys), context.step.source_columns
    assert context.step.before is not None
    version = context.step.before.loaded_version
    row_before = F.col(states.BEFORE).getField(rows.RAW)
    per_key = by_version.join(begun, on=keys, how="left_semi").groupBy(*shape.key_columns)
    changed = per_key.agg(F.min_by(row_before, reserved_columns.ORDER).alias(rows.RAW)).select(rows.RAW)
    snapshot, _ = load.read(context, raw=columns)
    unchanged = snapshot.join(begun, on=keys, how="left_semi")
    unchanged = unchanged.join(by_version, on=keys, how="left_anti").select(rows.RAW)
    found = changed.where(F.col(rows.RAW).isNotNull()).union(unchanged).select(f"{rows.RAW}.*")
    found = load.stamped(context, found.withColumn(reserved_columns.CHANGE_TYPE, F.lit("insert")), version)
    return found.withColumn(reserved_columns.ORDER, F.col(reserved_columns.COMMIT_VERSION))


def checked_states(context: StepContext, changes: DataFrame, shape: Shape) -> batches.Batch:
    """Materialise the events of a feed once; refuse or quarantine invalid events."""
    valid, order_type = F.col(events.REASON).isNull(), shape.order_type
    highest = F.lit(None).cast("string")
    if order_type is not None:
        highest = as_text(F.max(F.when(valid, F.col(states.SEQUENCE))), order_type)
    # Rows without a key have no identity, so they cannot be duplicates.
    is_duplicate = F.col(states.DUPLICATE) & ~batches.null_key(shape)
    batch = batches.materialise(
        changes.withColumn(states.DUPLICATE, is_duplicate),
        shape,
        {
            "events": F.count("*"),
            refusals.UNKNOWN_TYPE: F.count_if(states.UNKNOWN),
            refusals.DUPLICATE: F.count_if(states.DUPLICATE),
            **{reason: F.count_if(F.col(events.REASON) == reason) for reason in events.INVALID},
            **value_rules.totals(context.options),
            "highest": highest,
        },
        only=valid,
        with_ranges=layout.skips_files(context),
    )
    context.count(events=batch.totals["events"])
    events.refuse_invalid(context, batch, shape)
    return batch


# -- load ---------------------------------------------------------------------------------------
def first(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    """Prepare a load: apply all events of the source to a new target, or replace all rows of the target."""
    context = StepContext.of(session, spec, step)
    source_events = events.of_step(context, all_rows(context))
    batch, valid, sequences = _checked(context, source_events)
    shape, highest, truncates = source_events.shape, batch.totals["highest"], batch.totals["truncates"]
    is_truncate = F.col(events.KIND) == TRUNCATE
    resolved = valid.where(~is_truncate)
    if batch.totals["shared"]:
        resolved = tied_events.resolved(context, resolved, shape)
    if step.kind == "reset":
        quarantine.settle(context, resolved, shape)
    entries = timeline.of_events(resolved, shape)
    if context.options.source_kind == "snapshot":
        entries = timeline.with_absences(entries, sequences, shape, held_events(context, batch.rows))
        highest = _newest(context, sequences, shape)
    if truncates:
        entries = timeline.with_truncates(entries, valid.where(is_truncate), shape)
    rows = desired_rows(inherited(entries, shape, context.options), shape, context.options)
    if step.read.is_empty:
        rows = rows.limit(0)
    return load.prepared(context, step, rows, shape, highest, newest(tuple(truncates), _KEPT_TRUNCATES))


def desired_rows(whole: DataFrame, shape: Shape, options: ApplyOptions) -> DataFrame:
    """Return the rows of a target, flat, that a timeline produces."""
    values = [
        F.col(quote(name)) if name in shape.keys else F.col(states.AFTER).getField(name).alias(name)
        for name in shape.values
    ]
    if options.stored_as_scd_type == 2:
        assert shape.sequence_type is not None
        added = target_columns.as_columns(
            target_columns.stored(options, shape.sequence_type, quote(START), quote(END))
        )
        computed = history.history_rows(history.runs(whole, shape)).select(*values, *added)
        return row_hash.with_hash(computed, shape, options)
    last = latest.last_states(whole, shape)
    of_row = [F.col(column).alias(name) for name, column in times.columns(options).items()]
    if options.delete_mode == "soft":
        rows_with_values = last.where(F.col(states.AFTER).isNotNull())
        computed = rows_with_values.select(*values, F.col(DELETED).alias(DELETED_COLUMN), *of_row)
    else:
        computed = last.where(~F.col(DELETED)).select(*values, *of_row)
    return row_hash.with_hash(computed, shape, options)
