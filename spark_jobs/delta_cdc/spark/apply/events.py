"""Read rows of a source as events: keys, sequence, kind, values, and which columns they carry.

Columns of an event, in addition to the key columns:

- :data:`~delta_cdc.spark.changes.states.SEQUENCE` (typed)
- :data:`KIND`
- :data:`~delta_cdc.spark.changes.states.AFTER` (struct of all values)
- :data:`AUTHORED` (array of booleans, in the order of
  :func:`delta_cdc.spark.apply.partial_columns.leaves`; NULL: all)
- :data:`LAST_BY` (struct; NULL without ``last_by``)
- :data:`REASON` (why the event is invalid; NULL if it is valid)
- :data:`~delta_cdc.spark.changes.states.BROKEN` (the rules that an event breaks that is valid otherwise; only
  with rules)
- :data:`RAW` (the source's row, for the quarantine)
- the commit's version
- :data:`~delta_cdc.spark.apply.rows.TIME` (only for a target with times of its rows)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from delta_cdc.core import reserved_columns
from delta_cdc.core.adapters import DELETE, TRUNCATE, UPSERT
from delta_cdc.core.change_log import COLUMNS, LOG_COLUMNS, SOURCE_TIMESTAMP
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark import quarantine
from delta_cdc.spark.apply import (
    batches,
    layout,
    partial_columns,
    refusals,
    rows,
    target_columns,
    value_rules,
)
from delta_cdc.spark.apply.refusals import LATE, NULL_KEY, NULL_SEQUENCE, UNKNOWN_COLUMN
from delta_cdc.spark.apply.rows import CARRIED, RAW, TIME
from delta_cdc.spark.apply.sequences import as_text, from_text
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import same

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.spark.apply.prepared_step import StepContext
    from delta_cdc.spark.apply.rows import Shape

KIND, AUTHORED = f"{PLAN_PREFIX}event", f"{PLAN_PREFIX}authored"
LAST_BY, REASON = f"{PLAN_PREFIX}last_by", f"{PLAN_PREFIX}reason"
#: Flag: another event has the same key and sequence; false for truncates.
SHARED = f"{PLAN_PREFIX}shared"

#: Reasons for which an event is refused or quarantined.
INVALID = (NULL_KEY, NULL_SEQUENCE, UNKNOWN_COLUMN)


@dataclass(frozen=True)
class Events:
    """Events as a DataFrame (see the module), and the shape of the rows they produce.

    :param sequences: the sequences of all rows of the source, including rows that ``where`` filters out
    """

    rows: DataFrame
    shape: Shape
    sequences: DataFrame


def of_rows(
    source_rows: DataFrame,
    options: ApplyOptions,
    source: str,
    horizons: Sequence[tuple[int, str]] = (),
    *,
    keep_raw: bool = False,
) -> Events:
    """Read rows of a change log, or of a table of snapshots, as events.

    :param source_rows: columns of the source and ``_commit_version`` (NULL if unknown)
    :param options: from :func:`delta_cdc.spark.apply.prepared_step.effective`
    :param horizons: the allowed lateness, see :class:`delta_cdc.core.steps.Step`
    :param keep_raw: keep each whole source row, even if the options do not quarantine
    :raises InvalidExpression: an expression does not resolve, or has the wrong type
    """
    columns = [name for name in source_rows.columns if name != reserved_columns.COMMIT_VERSION]
    plain = source_rows.drop(reserved_columns.COMMIT_VERSION)
    states.resolve(plain, "sequence_by", options.sequences)
    added = {
        states.SEQUENCE: rows.combined(options.sequences),
        KIND: _kind(plain, options),
        CARRIED: rows.carried(plain, options),
        LAST_BY: _last_by(plain, options),
        RAW: F.struct(*[F.col(quote(name)) for name in columns])
        if options.quarantines or keep_raw
        else F.lit(None),
    }
    if options.has_times:
        # Events of an ingest, or of a table, have a sequence that need not be a time.
        of_log = options.source_kind == "change_log" and set(LOG_COLUMNS) <= set(columns)
        added[TIME] = F.col(SOURCE_TIMESTAMP) if of_log else added[states.SEQUENCE]
    keep = (reserved_columns.COMMIT_VERSION, *added)
    completed = target_columns.bounded(source_rows.withColumns(added), options)
    sequences = completed.select(states.SEQUENCE)
    if options.where:
        # A truncate has no values, so the filter does not apply to it.
        states.check_predicate(plain, "where", options.where)
        completed = completed.where((F.col(KIND) == TRUNCATE) | F.expr(options.where))
        options = replace(options, where=None)
    projected = rows.tested(rows.projected(completed, options, keep), options, keep)
    if options.rules:
        keep = (*keep, states.BROKEN)
    shape = rows.shape_of(projected, plain, options, source, keep)
    projected, shape = rows.flagged(projected, shape, options)
    state = shape.state
    parts, carried_names = partial_columns.leaves(shape, options), F.col(CARRIED)
    names_unknown = partial_columns.names_unknown(shape, options, carried_names, columns)
    if options.columns_to_update == COLUMNS and set(LOG_COLUMNS) <= set(columns):
        # An ingest also lists record columns that never had a value, so the table may not have them yet.
        names_unknown = F.lit(False)
    invalid = _reason(shape, horizons, names_unknown)
    # A truncate belongs to no key, whatever its key columns contain.
    has_key = F.col(KIND) != TRUNCATE
    events = projected.select(
        *[F.when(has_key, F.col(quote(key))).alias(key) for key in shape.keys],
        states.SEQUENCE,
        KIND,
        F.when(F.col(KIND) == UPSERT, state).alias(states.AFTER),
        partial_columns.authored(parts, shape, options, state, carried_names).alias(AUTHORED),
        LAST_BY,
        RAW,
        reserved_columns.COMMIT_VERSION,
        invalid.alias(REASON),
        *(
            [F.when(F.col(KIND) == UPSERT, F.col(states.BROKEN)).alias(states.BROKEN)]
            if options.rules
            else []
        ),
        *([TIME] if options.has_times else []),
    )
    return Events(_tested(events, options), shape, sequences)


def of_step(
    context: StepContext, source_rows: DataFrame, *, keep_raw: bool = False, counted: bool = False
) -> Events:
    """Read rows of the source of a step as events (:func:`of_rows`), without those of erased keys.

    :param counted: count the rows of erased keys
    """
    step = context.step
    keep_raw = keep_raw or quarantine.may_hold(context)
    kept = context.without_erased(source_rows, of_source=True, counted=counted)
    events = of_rows(kept, context.options, context.source, step.horizons, keep_raw=keep_raw)
    return replace(events, rows=context.without_erased(events.rows, counted=counted))


def _kind(plain: DataFrame, options: ApplyOptions) -> Column:
    kind = F.lit(UPSERT)
    for argument, text, event_kind in (
        ("apply_as_deletes", options.apply_as_deletes, DELETE),
        ("apply_as_truncates", options.apply_as_truncates, TRUNCATE),
    ):
        if text is not None:
            states.check_predicate(plain, argument, text)
            kind = F.when(F.expr(text), event_kind).otherwise(kind)
    return kind


def _tested(events: DataFrame, options: ApplyOptions) -> DataFrame:
    """Make a rule that stops an event its reason, if the event has no other one."""
    if not options.rules:
        return events
    broken = F.when(F.col(REASON).isNull(), F.col(states.BROKEN))
    tested = events.withColumn(states.BROKEN, broken)
    return tested.withColumn(REASON, F.coalesce(F.col(REASON), value_rules.reason(options)))


def _last_by(plain: DataFrame, options: ApplyOptions) -> Column:
    if not options.last_by:
        return F.lit(None)
    names = states.match(plain.columns, options.last_by, "on_conflict last_by", "the source")
    return F.struct(*[F.col(quote(name)) for name in names])


def _reason(shape: Shape, horizons: Sequence[tuple[int, str]], names_unknown: Column) -> Column:
    is_truncate, sequence = F.col(KIND) == TRUNCATE, F.col(states.SEQUENCE)
    late = F.lit(False)
    assert shape.order_type is not None
    for version, text in horizons:
        late = late | (
            (F.col(reserved_columns.COMMIT_VERSION) > version)
            & (sequence < from_text(text, shape.order_type))
        )
    return (
        F.when(~is_truncate & batches.null_key(shape), NULL_KEY)
        .when(sequence.isNull(), NULL_SEQUENCE)
        .when(~is_truncate & names_unknown, UNKNOWN_COLUMN)
        .when(late, LATE)
    )


def of_states(changes: DataFrame, shape: Shape, options: ApplyOptions, columns: Sequence[str]) -> DataFrame:
    """Read the states of a feed as events.

    :param changes: rows of :func:`delta_cdc.spark.changes.states.version_states`; if events list the columns
        that they carry, the state after has this list as its field :data:`CARRIED`. If the row of the source
        is needed, both states have it as their field :data:`RAW`; for a target with times of its rows, they
        have the field :data:`~delta_cdc.spark.apply.rows.TIME`
    :param columns: columns of the source
    :return: events, with :data:`~delta_cdc.core.reserved_columns.ORDER`, the state before, and the flags of
        ``changes``
    """
    after = F.col(states.AFTER)
    carried_names = F.lit(None).cast("array<string>")
    if options.columns_to_update is not None:
        carried_names = after.getField(CARRIED)
    parts = partial_columns.leaves(shape, options)
    values = F.struct(*[after.getField(name).alias(name) for name in shape.values])
    whole_before = F.col(states.BEFORE)
    values_before = F.struct(*[whole_before.getField(name).alias(name) for name in shape.values])
    before = F.when(whole_before.isNotNull(), values_before)
    time, source_row = [], F.coalesce(F.when(after.isNotNull(), values), before)
    if options.has_times:
        time = [F.coalesce(after, whole_before).getField(TIME).alias(TIME)]
    if has_raw(changes):
        source_row = F.coalesce(after.getField(RAW), whole_before.getField(RAW))
    sequence = F.col(states.SEQUENCE)
    lacks_sequence = sequence.isNull() if shape.order_type is not None else F.lit(False)
    reason = (
        F.when(batches.null_key(shape), NULL_KEY)
        .when(lacks_sequence, NULL_SEQUENCE)
        .when(partial_columns.names_unknown(shape, options, carried_names, columns), UNKNOWN_COLUMN)
    )
    events = changes.select(
        *shape.key_columns,
        sequence.alias(states.SEQUENCE),
        reserved_columns.ORDER,
        F.when(after.isNull(), DELETE).otherwise(UPSERT).alias(KIND),
        F.when(after.isNotNull(), values).alias(states.AFTER),
        F.when(
            after.isNotNull(), partial_columns.authored(parts, shape, options, after, carried_names)
        ).alias(AUTHORED),
        reason.alias(REASON),
        source_row.alias(RAW),
        F.col(reserved_columns.ORDER).alias(reserved_columns.COMMIT_VERSION),
        before.alias(states.BEFORE),
        states.DUPLICATE,
        states.UNKNOWN,
        *([states.BROKEN] if options.rules else []),
        *time,
    )
    faulty = F.col(states.DUPLICATE) | F.col(states.UNKNOWN)
    if options.on_invalid == "quarantine":
        # The row was set aside when it was inserted.
        is_lost = batches.null_key(shape) & F.col(states.AFTER).isNull() & F.col(states.BEFORE).isNotNull()
        events = events.where(faulty | ~is_lost)
    # A row that a commit rewrote unchanged is neither inserted nor updated. The target has it, or the
    # quarantine does.
    both = F.col(states.BEFORE).isNotNull() & F.col(states.AFTER).isNotNull()
    unchanged = both & same(states.BEFORE, states.AFTER, shape.schema, shape.values)
    stopped = F.col(states.SEQUENCE).isNull() if shape.order_type is not None else F.lit(False)
    if options.rules:
        # With an own sequence, the row may have one now: then its state has a place.
        stopped = F.lit(options.is_ordered_by_commit) | stopped | value_rules.is_stopped(options)
    events = events.where(faulty | ~(stopped & unchanged))
    if not options.rules:
        return events
    return _tested(events.withColumn(states.BROKEN, F.when(~unchanged, F.col(states.BROKEN))), options)


def has_raw(changes: DataFrame) -> bool:
    """Return whether the states of changes have the row of the source."""
    state = changes.schema[states.AFTER].dataType
    return isinstance(state, StructType) and RAW in state.names


def reconsidered(context: StepContext, events: DataFrame, shape: Shape) -> DataFrame:
    """Return events; those that a rule stops, but that the quarantine does not have, become valid.

    The rule is newer than such an event, and the target has it. Only events that a rule stops are compared.

    :param events: materialised, because they are read twice
    """
    if not context.options.rules:
        return events
    is_stopped = value_rules.is_reason(F.col(REASON))
    stopped = quarantine.with_held(context, events.where(is_stopped), shape)
    stopped = stopped.withColumn(REASON, F.when(F.col(quarantine.HELD), F.col(REASON))).drop(quarantine.HELD)
    return events.where(~is_stopped).unionByName(stopped)


def marked(events: DataFrame, shape: Shape) -> DataFrame:
    """Shuffle events by key, and add :data:`SHARED`."""
    keys, has_key = shape.key_columns, F.col(KIND) != TRUNCATE
    same_position = Window.partitionBy(*keys, F.col(states.SEQUENCE))
    # One shuffle by the keys serves this window and all later ones.
    return events.repartition(*keys).withColumn(
        SHARED, has_key & (F.count_if(has_key).over(same_position) > 1)
    )


# -- validation ---------------------------------------------------------------------------------
def checked(context: StepContext, events: Events) -> batches.Batch:
    """Materialise a batch of events once; refuse or quarantine invalid events.

    Besides the counts by reason, the totals are ``events``; ``shared``, the number of valid events that share
    key and sequence with another event; ``partial``, the number of valid upserts that lack columns; ``late``,
    the number of events at or below the highest sequence applied so far; ``late_truncates``, the number of
    truncates among these; ``truncates``, the sequences of truncates as text, ascending; and ``highest``, the
    greatest sequence as text.

    "Late" has two meanings: the total ``late`` counts valid events, which are applied; the reason
    :data:`~delta_cdc.spark.apply.refusals.LATE` is of events below the lateness horizon, which are not.
    """
    order_type, step = events.shape.order_type, context.step
    assert order_type is not None
    valid = F.col(REASON).isNull()
    sequence = F.when(valid, F.col(states.SEQUENCE))
    is_truncate = valid & (F.col(KIND) == TRUNCATE)
    late = F.lit(False)
    if step.highest_sequence is not None:
        late = F.coalesce(sequence <= from_text(step.highest_sequence, order_type), F.lit(False))
    batch = batches.materialise(
        marked(events.rows, events.shape),
        events.shape,
        {
            "events": F.count("*"),
            **{reason: F.count_if(_is(reason)) for reason in (*INVALID, LATE)},
            **value_rules.totals(context.options),
            "shared": F.count_if(valid & F.col(SHARED)),
            "partial": F.count_if(valid & (F.col(KIND) == UPSERT) & F.col(AUTHORED).isNotNull()),
            "late": F.count_if(late),
            "late_truncates": F.count_if(late & is_truncate),
            "truncates": _texts(F.when(is_truncate, F.col(states.SEQUENCE)), order_type),
            "highest": as_text(F.max(sequence), order_type),
        },
        only=valid & ~is_truncate,
        with_ranges=layout.skips_files(context),
    )
    refuse_invalid(context, batch, events.shape)
    totals = batch.totals
    context.count(events=totals["events"], late=totals["late"], discarded=totals[LATE])
    return batch


def refuse_invalid(context: StepContext, batch: batches.Batch, shape: Shape) -> None:
    """Refuse invalid events, or quarantine them if the options request it."""
    totals, options = batch.totals, context.options
    accepted = {LATE} if options.on_late == "discard" else set()
    if options.on_invalid == "quarantine":
        accepted |= set(INVALID)
    conditions = {reason: _is(reason) for reason in (NULL_SEQUENCE, UNKNOWN_COLUMN, LATE)} | {
        refusals.DUPLICATE: F.col(states.DUPLICATE)
    }
    counts = {name: total for name, total in totals.items() if name not in accepted}
    refusals.refuse(counts, batch.rows, shape, context, conditions)
    value_rules.refuse(context, totals, batch.rows, shape)
    value_rules.count(context, totals)
    if any(totals[reason] for reason in INVALID) or value_rules.sets_aside(options, totals):
        stopped = batch.rows.where(F.col(REASON).isin(*INVALID) | value_rules.is_reason(F.col(REASON)))
        quarantine.set_aside(context, stopped, shape, F.col(REASON), unless_held=context.reads_again)


def _is(reason: str) -> Column:
    return F.col(REASON) == reason


def _texts(sequences: Column, order_type: DataType) -> Column:
    """Return the distinct values of a sequence as texts, ascending."""
    return F.transform(F.sort_array(F.collect_set(sequences)), lambda value: as_text(value, order_type))


def extent(context: StepContext, source_rows: DataFrame) -> tuple[str | None, tuple[str, ...]]:
    """Return the greatest sequence of valid events and the sequences of truncates, as text.

    A reload goes beyond the watermark: invalid events, which no step may have read, are refused, or
    quarantined.

    :param source_rows: all rows of the source
    """
    found = of_step(context, source_rows)
    order_type, sequence = found.shape.order_type, F.col(states.SEQUENCE)
    assert order_type is not None
    if context.options.source_kind == "snapshot":
        rows, valid, invalid = found.sequences.withColumn(KIND, F.lit(UPSERT)), F.lit(True), {}
    else:
        rows, valid = found.rows, F.col(REASON).isNull()
        invalid = {reason: F.count_if(_is(reason)) for reason in INVALID}
    row = rows.agg(
        as_text(F.max(F.when(valid, sequence)), order_type).alias("highest"),
        _texts(F.when(valid & (F.col(KIND) == TRUNCATE), sequence), order_type).alias("truncates"),
        *[total.alias(reason) for reason, total in invalid.items()],
    ).collect()[0]
    totals = {reason: row[reason] for reason in invalid}
    if any(totals.values()):
        _refuse_unread(context, found, totals)
    return row["highest"], tuple(row["truncates"])


def _refuse_unread(context: StepContext, found: Events, totals: Mapping[str, int]) -> None:
    """Refuse the invalid events of a whole source, or quarantine those that are not there."""
    if context.options.on_invalid == "quarantine":
        invalid = found.rows.where(F.col(REASON).isin(*INVALID))
        quarantine.set_aside(context, invalid, found.shape, F.col(REASON), unless_held=True)
        return
    conditions = {reason: _is(reason) for reason in (NULL_SEQUENCE, UNKNOWN_COLUMN)}
    refusals.refuse(totals, found.rows, found.shape, context, conditions)
