"""Apply a feed's changes. The feed contains the states before and after, so nothing reads the target."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_cdc.core import reserved_columns
from delta_cdc.core.errors import NotInsertOnly, NullKey, NullSequence
from delta_cdc.core.sql import quote
from delta_cdc.spark.apply import batch as b
from delta_cdc.spark.apply import layout, rows, scd1, scd2, schema
from delta_cdc.spark.apply.prepared_step import PreparedStep, StepContext
from delta_cdc.spark.changes import feed, states
from delta_cdc.spark.changes import rows as captured

if TYPE_CHECKING:
    from delta_cdc.core.spec import ApplySpec, ApplyStep
    from delta_cdc.spark.apply.rows import Shape

log = logging.getLogger(__name__)


def change_rows(context: StepContext) -> DataFrame:
    """Return the change rows of a step, without any filter or projection."""
    step, staging = context.step, context.staging
    if staging is not None:
        return captured.staged_rows(context.session, staging, step.source_columns)
    return captured.change_rows(
        context.session,
        context.source,
        context.read_ranges,
        step.source_columns,
        at=step.at,
        manifests_uri=context.spec.manifests_uri,
    )


def merge(session: SparkSession, spec: ApplySpec, step: ApplyStep) -> PreparedStep:
    """Prepare the MERGE of a range of changes."""
    context = StepContext.of(session, spec, step)
    quarantines = spec.options.on_invalid == "quarantine"
    raw = step.source_columns if quarantines else ()
    changes, shape = rows.read(change_rows(context), spec.options, spec.source_uri, raw=raw)
    evolve = schema.check_target(context, shape)
    try:
        by_version = states.version_states(changes, shape.keys, shape.values)
        return _merge(context, by_version, shape, evolve=evolve)
    except (NullKey, NullSequence):
        if not quarantines:
            raise
    # Only a range with such rows needs this second pass.
    return _merge(context, _without_invalid(context, changes, shape), shape, evolve=evolve)


def _merge(context: StepContext, by_version: DataFrame, shape: Shape, *, evolve: bool) -> PreparedStep:
    options, target = context.options, context.spec.target_uri
    if context.has_history:
        batch = scd2.validated(context, scd2.segments(scd2.classified(by_version, shape), shape), shape)
        scd2.refuse_not_above_history(context, scd2.boundaries(batch), shape)
        statement = scd2.merge(target, shape, options, batch, evolve=evolve)
        count_names = ["events", "opened", "closed", "updated"]
    else:
        net = scd1.net_changes(by_version, shape, soft=rows.marks_deletes(options))
        batch = scd1.validated(context, net, shape)
        statement = scd1.merge(target, shape, options, batch, evolve=evolve)
        count_names = ["changes", "suppressed", "events"]
    log.debug("%s", statement.statement)
    totals = batch.totals
    statement = layout.tuned(
        context.session,
        statement,
        options,
        changed=totals["changes"],
        rewritten=totals["rewritten"],
        # Another job read the staged batch.
        size=sum(read_range.size for read_range in context.read_ranges) if context.staging is None else None,
    )
    context.counts = {**{name: totals[name] for name in count_names}, **context.counts}
    return context.prepared(statement, shape, totals.get("highest"))


def _without_invalid(context: StepContext, changes: DataFrame, shape: Shape) -> DataFrame:
    """Quarantine states with a NULL key, and events without a sequence.

    :return: the other states, per key and version
    """
    null_key = b.null_key(shape)
    context.set_aside(changes.where(null_key & feed.is_after()), shape, F.lit(b.NULL_KEY))
    values = (*shape.values, rows.RAW)
    by_version = states.version_states(changes.where(~null_key), shape.keys, values)
    if shape.sequence_type is None:
        return by_version
    events = scd2.classified(by_version, shape)
    raw = F.coalesce(*[F.col(state).getField(rows.RAW) for state in (states.AFTER, states.BEFORE)])
    without_sequence = events.where(scd2.lacks_sequence())
    context.set_aside(
        without_sequence, shape, F.lit(b.NULL_SEQUENCE), event=raw, version=reserved_columns.ORDER
    )
    return scd2.in_order_only(events, shape)


def append(session: SparkSession, spec: ApplySpec, step: ApplyStep) -> PreparedStep:
    """Prepare the append of a range of inserts."""
    context = StepContext.of(session, spec, step)
    changes, shape = rows.read(change_rows(context), spec.options, spec.source_uri)
    schema.check_target(context, shape)
    others = (
        changes.where(F.col(reserved_columns.CHANGE_TYPE) != "insert")
        .groupBy(reserved_columns.COMMIT_VERSION, reserved_columns.CHANGE_TYPE)
        .count()
        .orderBy(reserved_columns.COMMIT_VERSION)
        .limit(1)
        .collect()
    )
    if others:
        version, kind = others[0][reserved_columns.COMMIT_VERSION], others[0][reserved_columns.CHANGE_TYPE]
        raise NotInsertOnly(
            f"Version {version} of {spec.source_uri} has {others[0]['count']} {kind} row(s), but "
            f"the pipeline {spec.pipeline} is insert_only.",
            remedy="give keys and drop insert_only, or leave such rows out with where.",
        )
    values = changes.select(*[quote(name) for name in shape.values])
    writer = values.write.format("delta").mode("append").option("mergeSchema", "true")
    return PreparedStep(lambda: writer.save(spec.target_uri), shape=shape, inserts=values)
