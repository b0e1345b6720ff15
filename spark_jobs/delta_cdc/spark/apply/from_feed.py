"""Apply a feed's changes. The feed contains the states before and after, so nothing reads the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_cdc.core import reserved_columns
from delta_cdc.core.errors import NotInsertOnly, NullKey
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark import quarantine
from delta_cdc.spark.apply import (
    batches,
    difference,
    history,
    latest,
    layout,
    ordering,
    refusals,
    row_hash,
    schema,
    timeline,
    value_rules,
)
from delta_cdc.spark.apply.difference import OPERATION
from delta_cdc.spark.apply.entries import BASE, DELETED, END, FOUND_DELETED, FROM_NOTHING, START
from delta_cdc.spark.apply.prepared_step import PreparedStep, StepContext
from delta_cdc.spark.apply.sequences import as_text
from delta_cdc.spark.changes import feed, states
from delta_cdc.spark.changes import rows as captured
from delta_cdc.spark.changes.equality import same

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.core.spec import ApplySpec
    from delta_cdc.core.steps import Step
    from delta_cdc.spark.apply.rows import Shape

_NULL_SEQUENCE = f"{PLAN_PREFIX}null_sequence"


def change_rows(context: StepContext, where: str | None = None) -> DataFrame:
    """Return the change rows of a step, without any filter or projection.

    :param where: see :func:`delta_cdc.spark.changes.rows.change_rows`
    """
    step, staging = context.step, context.step.read.staging
    if staging is not None:
        return captured.staged_rows(context.session, staging, step.source_columns)
    return captured.change_rows(
        context.session,
        context.source,
        context.step.read.ranges,
        step.source_columns,
        at=step.at,
        manifests_uri=context.spec.manifests_uri,
        where=where,
    )


def merge(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    """Prepare the MERGE of a range of changes.

    :raises RowsBreakRules: the range has rows that break a rule; nothing is decided about them
    """
    context = StepContext.of(session, spec, step)
    quarantines = spec.options.on_invalid == "quarantine"
    raw = step.source_columns if quarantines else ()
    changes, shape = context.read(change_rows(context, context.options.where), raw)
    schema.check_target(context, shape)
    try:
        return _merge(context, changes, shape)
    except NullKey:
        if not quarantines:
            raise
    # Only a range with such rows needs this second pass.
    null_key = batches.null_key(shape)
    quarantine.set_aside(context, changes.where(null_key & feed.is_after()), shape, F.lit(refusals.NULL_KEY))
    return _merge(context, changes.where(~null_key), shape)


def _merge(context: StepContext, changes: DataFrame, shape: Shape) -> PreparedStep:
    if context.has_history:
        tested = bool(context.options.rules)
        by_version = states.version_states(changes, shape.keys, shape.values, tested=tested)
        batch = _history(context, by_version, shape)
    else:
        batch = _states(context, changes, shape)
    totals, pruning = batch.totals, batches.pruning(batch)
    source = batch.rows.where(difference.is_merged())
    if context.has_history:
        statement = history.merge(context, source, shape, pruning, open_only=True, lazy=False)
    else:
        statement = latest.merge(context, source, shape, pruning)
    return difference.prepared(
        context,
        statement,
        shape,
        totals.get("highest"),
        changed=totals[batches.CHANGES],
        rewritten=totals["rewritten"],
        # Another job read the staged batch.
        size=context.step.read.changed_bytes,
    )


def _materialised(
    context: StepContext,
    rows: DataFrame,
    shape: Shape,
    totals: Mapping[str, Column],
    conditions: Mapping[str, Column],
    counted: Sequence[str],
) -> batches.Batch:
    """Materialise the rows of a range with their counts; refuse keys and events that cannot be applied.

    :param rows: rows for the MERGE; those without operation only serve the counts and checks
    :param totals: further totals
    :param conditions: reason to refuse a row -> its condition
    :param counted: names of totals that the seal keeps
    """
    changed = difference.is_changed()
    batch = batches.materialise(
        rows,
        shape,
        {
            batches.CHANGES: F.count_if(changed),
            batches.MERGED: F.count_if(difference.is_merged()),
            "rewritten": F.count_if(changed & F.col(difference.EXISTED)),
            "events": F.coalesce(F.sum(states.EVENTS), F.lit(0)),
            refusals.UNKNOWN_TYPE: F.coalesce(F.sum(states.UNKNOWN), F.lit(0)),
            refusals.NULL_KEY: F.count_if(batches.null_key(shape)),
            **{reason: F.count_if(condition) for reason, condition in conditions.items()},
            **totals,
        },
        only=difference.is_merged(),
        with_ranges=layout.skips_files(context),
    )
    refusals.refuse(batch.totals, batch.rows, shape, context, conditions)
    if batch.totals.get(states.BROKEN):
        raise value_rules.RowsBreakRules
    context.counts = {**{name: batch.totals[name] for name in counted}, **context.counts}
    return batch


def _states(context: StepContext, changes: DataFrame, shape: Shape) -> batches.Batch:
    """Return the net change of every key, type 1."""
    of_rules = _columns_of_rules(context)
    net = states.net_states(changes, shape.keys, shape.values, tested=bool(of_rules))
    last = net.withColumns(
        {BASE: F.col(states.BEFORE), FOUND_DELETED: F.lit(False), FROM_NOTHING: F.lit(False)}
    )
    changed = latest.operations(last, shape, context.options, compared=True)
    # Without this, an insert and then the delete of another row with the same key would change nothing.
    came_and_went = F.col(DELETED) & F.col(BASE).isNull()
    operation = F.coalesce(F.col(OPERATION), F.when(came_and_went, difference.ABSENT))
    changed = changed.withColumn(OPERATION, operation)
    existed = F.col(BASE).isNotNull().alias(difference.EXISTED)
    checked: list[str | Column] = [existed, states.DUPLICATE, states.UNKNOWN, states.EVENTS, *of_rules]
    return _materialised(
        context,
        difference.flat(changed, shape, checked),
        shape,
        {
            "suppressed": F.count_if(~difference.is_changed()),
            **{name: F.count_if(name) for name in of_rules},
        },
        {refusals.DUPLICATE: F.col(states.DUPLICATE)},
        (batches.CHANGES, "suppressed", "events"),
    )


def _columns_of_rules(context: StepContext) -> tuple[str, ...]:
    """Return the column with the broken rules, if the pipeline has rules."""
    return (states.BROKEN,) if context.options.rules else ()


def _history(context: StepContext, by_version: DataFrame, shape: Shape) -> batches.Batch:
    """Return the rows of history that begin, change or end, type 2."""
    assert shape.sequence_type is not None
    of_rules = _columns_of_rules(context)
    entries = timeline.of_states(by_version, shape, of_rules)
    entries = entries.where(is_change(BASE, shape) | F.col(states.DUPLICATE) | F.col(states.UNKNOWN))
    totals = {
        states.DUPLICATE: F.max(states.DUPLICATE),
        _NULL_SEQUENCE: F.max(F.col(states.SEQUENCE).isNull()),
        states.UNKNOWN: F.count_if(states.UNKNOWN),
        states.EVENTS: F.count("*"),
        **{name: F.max(value_rules.breaks_any()) for name in of_rules},
    }
    changed = history.against_states(history.runs(entries, shape, totals, of_feed=True))
    start, end, is_new = F.col(START), F.col(END), F.col(history.RUN) > 0
    has_base = F.col(BASE).isNotNull().alias(difference.EXISTED)
    checked: list[str | Column] = [has_base, difference.IS_FIRST, history.RUN, *totals]
    existed = F.col(difference.EXISTED)
    batch = _materialised(
        context,
        difference.flat(changed, shape, checked),
        shape,
        {
            "opened": F.count_if(F.col(OPERATION) == difference.INSERT),
            "closed": F.count_if(existed & end.isNotNull()),
            "updated": F.count_if(existed & end.isNull()),
            "highest": as_text(F.max(F.when(is_new, start)), shape.sequence_type),
            **{name: F.count_if(name) for name in of_rules},
        },
        {
            refusals.DUPLICATE: F.coalesce(F.col(states.DUPLICATE), F.lit(False)),
            refusals.NULL_SEQUENCE: F.coalesce(F.col(_NULL_SEQUENCE), F.lit(False)),
            refusals.DISORDER: is_new & end.isNotNull() & ~(start < end),
        },
        ("events", "opened", "closed", "updated"),
    )
    boundaries = batch.rows.where(is_new).withColumnRenamed(START, states.SEQUENCE)
    ordering.refuse_inside_history(context, boundaries, shape)
    return batch


def is_change(before: str, shape: Shape) -> Column:
    """Return whether the states before and after an event differ.

    :param before: the column with the state before
    """
    has_before, has_after = F.col(before).isNotNull(), F.col(states.AFTER).isNotNull()
    unchanged = has_before & has_after & same(before, states.AFTER, shape.schema, shape.values)
    return (has_before | has_after) & ~unchanged


def append(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    """Prepare the append of a range of inserts."""
    context = StepContext.of(session, spec, step)
    changes, shape = context.read(change_rows(context))
    schema.check_target(context, shape)
    others = (
        changes.where(~F.col(reserved_columns.CHANGE_TYPE).eqNullSafe("insert"))
        .groupBy(reserved_columns.COMMIT_VERSION, reserved_columns.CHANGE_TYPE)
        .count()
        .orderBy(reserved_columns.COMMIT_VERSION)
        .limit(1)
        .collect()
    )
    if others:
        version, kind = others[0][reserved_columns.COMMIT_VERSION], others[0][reserved_columns.CHANGE_TYPE]
        if kind not in (*reserved_columns.BEFORE_TYPES, *reserved_columns.AFTER_TYPES):
            refusals.refuse({refusals.UNKNOWN_TYPE: others[0]["count"]}, changes, shape, context)
        raise NotInsertOnly(
            f"Version {version} of {spec.source_uri} has {others[0]['count']} {kind} row(s), but "
            f"the pipeline {spec.pipeline} is insert_only.",
            remedy="give keys and drop insert_only, or leave such rows out with where.",
        )
    value_rules.check(context, changes, shape)
    values = context.commented(changes.select(*[quote(name) for name in shape.values]))
    values = row_hash.with_hash(values, shape, spec.options)
    writer = values.write.format("delta").mode("append").option("mergeSchema", "true")
    return PreparedStep(
        lambda: writer.save(spec.target_uri),
        context.counts,
        shape=shape,
        inserts=values,
        alters=context.alters,
    )
