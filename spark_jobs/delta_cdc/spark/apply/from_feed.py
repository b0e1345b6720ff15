"""Apply a feed's changes: the feed contains the states before and after, so the target need not be read."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from delta_cdc.core import reserved_columns
from delta_cdc.core.errors import NotInsertOnly, NullKey, NullSequence
from delta_cdc.core.spec import ApplyStep
from delta_cdc.core.sql import quote
from delta_cdc.spark.apply import batch as b
from delta_cdc.spark.apply import layout, quarantine, rows, scd1, scd2, schema
from delta_cdc.spark.apply.prepared_step import Work
from delta_cdc.spark.apply.sequences import greater
from delta_cdc.spark.changes import feed, states
from delta_cdc.spark.changes import rows as captured

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from delta_cdc.core.spec import ApplySpec, RepairStep
    from delta_cdc.spark.apply.rows import Shape

log = logging.getLogger(__name__)


def change_rows(session: SparkSession, spec: ApplySpec, step: ApplyStep) -> tuple[DataFrame, Shape]:
    """Return the change rows of a step, filtered and projected, and their shape."""
    source_rows = read(session, spec, step)
    sequenced = rows.with_sequence(source_rows, spec.options)
    kept = [*reserved_columns.METADATA_COLUMNS, reserved_columns.ORDER, states.SEQUENCE]
    if spec.options.on_invalid == "quarantine":
        sequenced = quarantine.with_raw(sequenced, step.source_columns)
        kept.append(quarantine.RAW)
    found = rows.projected(sequenced, spec.options, kept)
    shape = rows.shape_of(found.drop(quarantine.RAW), source_rows, spec.options, spec.source_uri)
    return found, shape


def read(session: SparkSession, spec: ApplySpec, step: ApplyStep | RepairStep) -> DataFrame:
    """Return the change rows of a step as they are."""
    if isinstance(step, ApplyStep) and step.staging is not None:
        return captured.staged_rows(session, step.staging, step.source_columns)
    return captured.change_rows(
        session,
        spec.source_uri,
        step.segments,
        step.source_columns,
        at=step.at,
        slices_uri=spec.slices_uri,
    )


def _versions(step: ApplyStep) -> str:
    return f"versions {step.starting_version}-{step.ending_version}"


def merge(session: SparkSession, spec: ApplySpec, step: ApplyStep) -> Work:
    """Prepare the MERGE of a range of changes."""
    found, shape = change_rows(session, spec, step)
    evolve = schema.check_target(session, spec, schema.target_schema(shape, spec.options))
    events = states.version_states(found, shape.keys, shape.values)
    try:
        return _merge(session, spec, step, events, shape, evolve=evolve)
    except (NullKey, NullSequence):
        if spec.options.on_invalid != "quarantine":
            raise
    # Only a range that has such rows pays for the search.
    events, aside = _without_invalid(found, shape, spec, step)
    work = _merge(session, spec, step, events, shape, evolve=evolve)
    return replace(work, quarantined=aside, counts={**work.counts, "quarantined": aside.count()})


def _merge(
    session: SparkSession, spec: ApplySpec, step: ApplyStep, events: DataFrame, shape: Shape, *, evolve: bool
) -> Work:
    options, source, versions = spec.options, spec.source_uri, _versions(step)
    highest = step.highest_sequence
    if options.stored_as_scd_type == 1:
        net = scd1.net_changes(events, shape, soft=rows.marks_deletes(options))
        batch = scd1.validated(net, shape, source, versions)
        statement = scd1.merge(spec.target_uri, shape, options, batch, evolve=evolve)
        kept = ["changes", "suppressed", "events"]
    else:
        cut = scd2.segments(scd2.classified(events, shape), shape)
        batch = scd2.validated(cut, shape, options, source, versions)
        scd2.refuse_not_above_history(
            session, spec.target_uri, batch, shape, options, highest, source, versions
        )
        statement = scd2.merge(spec.target_uri, shape, options, batch, evolve=evolve)
        highest = greater(session, shape.sequence_type, highest, batch.totals["highest"])
        kept = ["events", "opened", "closed", "updated"]
    log.debug("%s", statement.statement)
    totals = batch.totals
    # Another job read the staged batch.
    size = sum(segment.size for segment in step.segments) if step.staging is None else None
    rewritten = totals["rewritten"]
    statement = layout.tuned(
        session, statement, options, changed=totals["changes"], rewritten=rewritten, size=size
    )
    counts = {name: totals[name] for name in kept}
    return Work(lambda: statement.run(session), counts, highest, shape, merge=statement)


def _without_invalid(
    found: DataFrame, shape: Shape, spec: ApplySpec, step: ApplyStep
) -> tuple[DataFrame, DataFrame]:
    """Take out states whose key can't be matched again, and events without a position in their key's history.

    :return: the states per key and version that stay; rows for the quarantine
    """
    from pyspark.sql import functions as F

    def aside(
        rows: DataFrame, reason: str, event: str | Column, version: str = reserved_columns.COMMIT_VERSION
    ) -> DataFrame:
        return quarantine.rows(
            rows,
            spec=spec,
            step=step,
            reason=F.lit(reason),
            keys=shape.keys,
            sequence=F.lit(None),
            event=F.col(event) if isinstance(event, str) else event,
            commit_version=F.col(version),
        )

    null_key = b.null_key(shape)
    out = aside(found.where(null_key & feed.is_after()), quarantine.NULL_KEY, quarantine.RAW)
    events = states.version_states(found.where(~null_key), shape.keys, (*shape.values, quarantine.RAW))
    if shape.sequence_type is not None:
        events = scd2.classified(events, shape)
        raw = [F.col(state).getField(quarantine.RAW) for state in (states.AFTER, states.BEFORE)]
        lost = events.where(scd2.lacks_sequence())
        out = out.union(aside(lost, quarantine.NULL_SEQUENCE, F.coalesce(*raw), reserved_columns.ORDER))
        events = scd2.in_order_only(events, shape)
    return events, out.localCheckpoint()


def append(session: SparkSession, spec: ApplySpec, step: ApplyStep) -> Work:
    """Prepare the append of a range of inserts."""
    from pyspark.sql import functions as F

    found, shape = change_rows(session, spec, step)
    schema.check_target(session, spec, schema.target_schema(shape, spec.options))
    others = (
        found.where(F.col(reserved_columns.CHANGE_TYPE) != "insert")
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
    values = found.select(*[quote(name) for name in shape.values])
    writer = values.write.format("delta").mode("append").option("mergeSchema", "true")
    return Work(lambda: writer.save(spec.target_uri), {}, None, shape, inserts=values)
