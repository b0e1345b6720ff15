"""Reload and repair: compute rows of the target again, and write only the differences.

A key's desired rows come from the source as of the watermark (type 1 of a feed, reload), from the feed since
a version (type 2 of a feed; earlier history stays), or from all of the key's events (change logs, snapshots).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core import reserved_columns
from delta_cdc.core.adapters import DELETE, TRUNCATE, UPSERT
from delta_cdc.core.errors import InvalidConfiguration, NullSequence, SequenceNotIncreasing
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.core.steps import Keys
from delta_cdc.spark import quarantine
from delta_cdc.spark.apply import (
    batches,
    copies,
    difference,
    events,
    from_events,
    history,
    load,
    ordering,
    partial_columns,
    refusals,
    rows,
    schema,
    target_columns,
    timeline,
    value_rules,
)
from delta_cdc.spark.apply.entries import FOUND_DELETED, PLACE, RANK, START
from delta_cdc.spark.apply.from_events import ComputedRows
from delta_cdc.spark.apply.prepared_step import StepContext
from delta_cdc.spark.apply.sequences import as_text
from delta_cdc.spark.apply.timeline import KeySelection
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import same
from delta_cdc.spark.changes.queries import raised

if TYPE_CHECKING:
    from delta_cdc.core.spec import ApplySpec
    from delta_cdc.core.steps import Step
    from delta_cdc.spark.apply.prepared_step import PreparedStep
    from delta_cdc.spark.apply.rows import Shape

_LAST, _OPEN = f"{PLAN_PREFIX}last", f"{PLAN_PREFIX}open"
_DELETED_AT, _MARKED = f"{PLAN_PREFIX}deleted_at", f"{PLAN_PREFIX}marked"


def reload(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    """Prepare the difference between the target and the source as of the step's version."""
    context = StepContext.of(session, spec, step)
    if context.options.takes_events:
        return _from_events(context, KeySelection())
    return _from_snapshot(context, KeySelection())


def repair(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    """Prepare the difference for some keys: those that a range changed, chosen ones, or quarantined ones."""
    context = StepContext.of(session, spec, step)
    options = context.options
    if options.takes_events:
        return _from_events(context, _selected_keys(context) or _keys_of_events(context))
    if options.stored_as_scd_type == 1:
        return _from_snapshot(context, _selected_keys(context) or _keys_of_states(context))
    if options.is_partial:
        raise InvalidConfiguration(
            f"{spec.target_uri}: a history of events with only some of the columns cannot be repaired from a "
            "change feed, because the feed does not record which columns an event had.",
            remedy="use mode='reload' to bring the open rows up to the source.",
        )
    return _from_states(context)


def _selected_keys(context: StepContext) -> KeySelection | None:
    """Return the keys that the step chooses or replays; None if its range determines the keys."""
    read = context.step.read
    assert isinstance(read, Keys)
    if not read.chosen:
        return None
    shape = event_shape(context) if context.options.takes_events else load.read(context)[1]
    if read.where is not None:
        keys = T.StructType([shape.schema[key] for key in shape.keys])
        states.check_predicate(context.session.createDataFrame([], keys), "repair_keys", read.where)
        return KeySelection(predicate=read.where)
    spec, settling = context.spec, context.step.settling
    place = (context.session, spec.quarantine_uri, spec.pipeline)
    quarantined_keys = quarantine.keys_of(*place, shape, settling)
    quarantine.count_renamed(context, shape)
    return KeySelection(keys=quarantined_keys.localCheckpoint())


def _keys(changed: DataFrame, shape: Shape) -> KeySelection:
    keys = changed.select(*shape.key_columns).distinct().where(~batches.null_key(shape))
    return KeySelection(keys=keys.localCheckpoint())


# -- all events of a key ------------------------------------------------------------------------
def event_shape(context: StepContext) -> Shape:
    """Return the shape of the rows that a source of events produces."""
    return events.of_step(context, from_events.all_rows(context).limit(0)).shape


def _keys_of_events(context: StepContext) -> KeySelection:
    """Return the keys of the events of a range; all keys if the range has a truncate."""
    range_events = events.of_step(context, from_events.batch_rows(context))
    if context.options.source_kind == "snapshot":
        # A snapshot also changes the keys that are missing from it.
        return KeySelection()
    if not range_events.rows.where(F.col(events.KIND) == TRUNCATE).isEmpty():
        return KeySelection()
    return _keys(range_events.rows, range_events.shape)


def _from_events(context: StepContext, selection: KeySelection) -> PreparedStep:
    context.truncated = context.options.apply_as_truncates is not None
    shape = event_shape(context)
    schema.check_target(context, shape)
    computed = from_events.from_all_events(context, selection, None, shape, ())
    highest, truncates = None, context.step.truncate_sequences
    if context.step.kind == "reload":
        source_rows = from_events.all_rows(context)
        highest, log_truncates = events.extent(context, source_rows)
        truncates = log_truncates or truncates
        if context.options.source_kind == "snapshot":
            old, new = copies.counted(context, events.of_step(context, source_rows).sequences, shape)
            context.copies = copies.to_compare(context, old, new, lambda: source_rows, shape)
    return from_events.prepared(context, [computed], shape, (), highest=highest, truncates=truncates)


# -- the source as of a version -----------------------------------------------------------------
def _from_snapshot(context: StepContext, selection: KeySelection) -> PreparedStep:
    """Bring chosen keys to the source's state as of the step; delete keys that the source does not have."""
    snapshot, shape = _snapshot(context)
    schema.check_target(context, shape)
    computed, highest = _compared(context, selection, snapshot, shape)
    return from_events.prepared(
        context,
        [computed],
        shape,
        (),
        highest=highest,
        truncates=context.step.truncate_sequences,
    )


def _snapshot(context: StepContext) -> tuple[DataFrame, Shape]:
    """Return the source's rows as of the step, with the source's columns if rows may be set aside."""
    raw = context.step.source_columns if quarantine.may_hold(context) else ()
    return load.read(context, raw=raw)


def _compared(
    context: StepContext,
    selection: KeySelection,
    snapshot: DataFrame,
    shape: Shape,
) -> tuple[ComputedRows, str | None]:
    """Return the rows to write for chosen keys, and their greatest sequence as text.

    :param snapshot: from :func:`delta_cdc.spark.apply.load.read`
    """
    options, history = context.options, context.has_history
    keys = shape.key_columns
    upserts = selection.of(as_upserts(context, snapshot, shape), shape).repartition(*keys).localCheckpoint()
    valid = upserts
    if options.on_invalid == "quarantine":
        _set_aside_unusable(context, upserts, shape)
        valid = upserts.where(~unusable(shape))
    totals = load.checked(context, valid, shape)
    if options.rules:
        value_rules.count(context, totals)
        if value_rules.sets_aside(options, totals):
            # As for unusable rows, the target keeps the row that it has.
            valid = load.without_stopped(context, valid, shape)
    quarantine.settle(context, valid, shape)
    if history:
        valid = _with_history_check(context, selection, valid, shape)
    entries = timeline.of_events(valid, shape, reserved_columns.ORDER)
    current = selection.of(from_events.current_rows(context, shape), shape)
    missing = current.join(upserts, on=list(shape.keys), how="left_anti")
    if shape.flag:
        missing = missing.where(~F.col(FOUND_DELETED))
    deletes = _deletes(context, missing, shape, entries)
    entries = timeline.of_target(current, entries, shape).unionByName(entries).unionByName(deletes)
    sequence_names = {*options.sequences, options.delete_sequence or reserved_columns.COMMIT_VERSION}
    by_commit = sequence_names <= {reserved_columns.COMMIT_VERSION, reserved_columns.COMMIT_TIMESTAMP}
    computed = from_events.operations(context, entries, shape, growing=True, in_place=by_commit)
    highest = None
    if shape.order_type is not None:
        sequences = valid.select(states.SEQUENCE).union(deletes.select(states.SEQUENCE))
        greatest = as_text(F.max(states.SEQUENCE), shape.order_type)
        highest = sequences.agg(greatest.alias("highest")).collect()[0]["highest"]
    return ComputedRows(computed, compared=True), highest


def _set_aside_unusable(context: StepContext, upserts: DataFrame, shape: Shape) -> None:
    """Set the rows aside that have no key or no sequence, as far as no other step does it.

    A reload goes beyond the watermark, to rows that no step has read. A replay deletes what earlier steps
    have set aside. In other repairs, an earlier step has set the rows aside.
    """
    is_replay = context.step.read.quarantined
    if context.only_compares or not (is_replay or context.step.kind == "reload"):
        return
    reason = F.when(batches.null_key(shape), refusals.NULL_KEY).otherwise(refusals.NULL_SEQUENCE)
    quarantine.set_aside(context, upserts.where(unusable(shape)), shape, reason, unless_held=not is_replay)


def as_upserts(context: StepContext, snapshot: DataFrame, shape: Shape) -> DataFrame:
    """Return the rows of a snapshot as upsert events."""
    carried = F.lit(None).cast("array<string>")
    if rows.CARRIED in snapshot.columns:
        carried = F.col(rows.CARRIED)
    state = shape.state
    parts = partial_columns.leaves(shape, context.options)
    return snapshot.select(
        *shape.key_columns,
        states.SEQUENCE,
        F.lit(UPSERT).alias(events.KIND),
        state.alias(states.AFTER),
        partial_columns.authored(parts, shape, context.options, state, carried).alias(events.AUTHORED),
        F.lit(1).cast("bigint").alias(reserved_columns.ORDER),
        *([states.BROKEN] if context.options.rules else []),
        *([rows.TIME] if context.options.has_times else []),
        *[name for name in (rows.RAW, reserved_columns.COMMIT_VERSION) if rows.RAW in snapshot.columns],
    )


def _deletes(context: StepContext, missing: DataFrame, shape: Shape, like: DataFrame) -> DataFrame:
    """Return deletes of rows of the target; their sequence comes from the row or from the commit.

    :param like: entries of the timeline, for the types
    """
    options = context.options
    flat = load.stamped(context, missing.select(f"{difference.FOUND}.*"))
    sequence = F.lit(None)
    if shape.sequence_type is not None:
        expression = options.delete_sequence
        expressions = options.sequences if expression is None else (expression,)
        states.resolve(flat, "delete_sequence" if expression is not None else "sequence_by", expressions)
        problem = "the sequence of a row that the source no longer has is NULL."
        sequence = F.coalesce(rows.combined(expressions), raised(NullSequence, [problem]))
        sequence = target_columns.below_end(sequence, options, shape.sequence_type)
    values = {
        RANK: F.lit(1),
        PLACE: F.lit(1),
        states.SEQUENCE: sequence,
        events.KIND: F.lit(DELETE),
        **timeline.timed(shape, F.col(reserved_columns.COMMIT_TIMESTAMP)),
    }
    return timeline.entries(flat, like, shape, values)


def unusable(shape: Shape) -> Column:
    """Return whether a row of a snapshot has no key, or no position in its key's history."""
    return batches.null_key(shape) | load.lacks_sequence(shape)


def _with_history_check(
    context: StepContext, selection: KeySelection, upserts: DataFrame, shape: Shape
) -> DataFrame:
    """Let Spark raise, when it evaluates the rows, if a row would start inside closed history."""
    options = context.options
    if set(options.sequences) <= {reserved_columns.COMMIT_VERSION}:
        return upserts
    existing = difference.target_rows(context, shape)
    keys = shape.key_columns
    history = (
        selection.of(existing, shape)
        .groupBy(*keys)
        .agg(
            F.max(difference.FOUND_END).alias(_LAST),
            F.max(F.col(difference.FOUND_END).isNull()).alias(_OPEN),
        )
    )
    inside = ~F.coalesce(_OPEN, F.lit(False)) & (F.col(states.SEQUENCE) < F.col(_LAST))
    problem = "a key that comes back has a sequence inside its closed history in the target."
    sequence = F.when(inside, raised(SequenceNotIncreasing, [problem])).otherwise(F.col(states.SEQUENCE))
    joined = upserts.join(history, on=list(shape.keys), how="left")
    return joined.withColumn(states.SEQUENCE, sequence).drop(_LAST, _OPEN)


# -- the feed since a version -------------------------------------------------------------------
def _keys_of_states(context: StepContext) -> KeySelection:
    """Return the keys of the changes of a range, including keys that a filter removes."""
    plain = replace(context.options, where=None, apply_as_deletes=None)
    changes, shape = from_events.states_of(replace(context, options=plain))
    return _keys(changes.where(F.col(reserved_columns.ORDER) <= context.step.ending_version), shape)


def _from_states(context: StepContext) -> PreparedStep:
    """Recompute history from each key's first change that the feed still has; earlier history stays."""
    chosen = _selected_keys(context)
    changes, shape = from_events.states_of(context, _set_aside_by_load(context))
    schema.check_target(context, shape)
    selection = chosen or _keys_of_states(context)
    batch = from_events.checked_states(context, selection.of(changes, shape), shape)
    valid = batch.rows.where(F.col(events.REASON).isNull())
    quarantine.settle(context, valid, shape)
    if not context.options.is_ordered_by_commit:
        # A replay may apply events whose order no step has tested.
        ordering.refuse_descending(context, valid, shape)
    existing = difference.target_rows(context, shape)
    if context.options.sets_changes_aside or context.step.read.quarantined:
        computed = _beyond_target(batch.rows, valid, selection.of(existing, shape), shape)
    else:
        computed = _beyond_states(valid, existing, shape)
    context.highest = batch.totals["highest"]
    # Keys without changes in the feed are compared with the source's rows as of the watermark.
    unchanged = replace(selection, without=batch.rows.select(*shape.key_columns).distinct())
    others, highest = _compared(context, unchanged, *_snapshot(context))
    return from_events.prepared(context, [computed, others], shape, (), highest=highest)


def _set_aside_by_load(context: StepContext) -> DataFrame | None:
    """Return the keys with a row that the load set aside, if the step replays all rows in quarantine."""
    read, spec, before = context.step.read, context.spec, context.step.before
    if not read.quarantined or read.since is not None or before is None:
        return None
    versions = f"commit_version <= {before.loaded_version}"
    shape = load.read(context)[1]
    place = (context.session, spec.quarantine_uri, spec.pipeline)
    keys = quarantine.keys_of(*place, shape, context.step.settling, versions=versions)
    return keys.localCheckpoint()


def _beyond_states(valid: DataFrame, existing: DataFrame, shape: Shape) -> ComputedRows:
    """Return the rows of history since each key's first change; before it, the key had the feed's state."""
    firsts = valid.groupBy(*shape.key_columns).agg(
        F.min_by(states.SEQUENCE, reserved_columns.ORDER).alias(history.FIRST),
        F.min_by(states.BEFORE, reserved_columns.ORDER).alias(states.AFTER),
    )
    entries = timeline.of_events(valid, shape, reserved_columns.ORDER, base=F.col(states.BEFORE))
    desired = history.history_rows(history.runs(entries, shape))
    return from_events.by_start(*history.from_first_change(desired, existing, firsts, shape), shape)


def _beyond_target(
    states_events: DataFrame, valid: DataFrame, existing: DataFrame, shape: Shape
) -> ComputedRows:
    """Return the rows of history since each key's first change; before it, the key had the target's row.

    The feed's state before a change need not have been applied. A change that is set aside, but has its row
    in the target, counts as a first change, too: a rule that is newer than the row stops it, so the row goes.

    :param states_events: all events of some keys
    :param existing: the rows of these keys in the target
    """
    names, sequence = list(shape.keys), F.col(states.SEQUENCE)
    firsts = valid.select(*shape.key_columns, sequence.alias(history.FIRST))
    stopped = states_events.where(F.col(events.REASON).isNotNull() & F.col(states.AFTER).isNotNull())
    stopped = stopped.select(*shape.key_columns, sequence.alias(history.FIRST), states.AFTER)
    applied = existing.join(stopped, on=names).where(
        (F.col(START) == F.col(history.FIRST))
        & same(difference.FOUND, states.AFTER, shape.schema, shape.tracked)
    )
    firsts = firsts.unionByName(applied.select(*shape.key_columns, history.FIRST))
    firsts = firsts.groupBy(*shape.key_columns).agg(F.min(history.FIRST).alias(history.FIRST))
    bases, overlapping = history.since(existing, firsts, shape)
    if shape.flag:
        bases = _as_before(bases, valid, shape)
    entries = timeline.of_events(valid, shape, reserved_columns.ORDER)
    entries = timeline.of_target(bases, entries, shape).unionByName(entries)
    desired = history.history_rows(history.runs(entries, shape))
    return from_events.by_start(desired, overlapping, shape)


def _as_before(bases: DataFrame, valid: DataFrame, shape: Shape) -> DataFrame:
    """Return rows of the target without the marks of deletes that are applied again.

    A row that a delete marks stays the same row.

    :param bases: rows that began before the valid events
    """
    deletes = valid.where(F.col(events.KIND) == DELETE)
    deletes = deletes.select(*shape.key_columns, F.col(states.SEQUENCE).alias(_DELETED_AT))
    ends = F.col(difference.FOUND_END)
    marked = bases.join(deletes, on=list(shape.keys)).where(ends.isNull() | (F.col(_DELETED_AT) < ends))
    marked = marked.select(*shape.key_columns).distinct().withColumn(_MARKED, F.lit(True))
    joined = bases.join(marked, on=list(shape.keys), how="left")
    is_marked = F.coalesce(F.col(_MARKED), F.lit(False))
    plain = F.col(difference.FOUND).withField(quote(shape.flag), F.lit(False))
    columns = {
        difference.FOUND: F.when(is_marked, plain).otherwise(F.col(difference.FOUND)),
        FOUND_DELETED: F.col(FOUND_DELETED) & ~is_marked,
    }
    return joined.withColumns(columns).drop(_MARKED)
