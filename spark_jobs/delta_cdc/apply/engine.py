"""Runs the steps of one apply spec: each step is one sealed commit in the target."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from delta_cdc import phases
from delta_cdc.apply import batch as b
from delta_cdc.apply import layout, rows, scd1, scd2, schema
from delta_cdc.apply.commit import (
    Outcome,
    Seen,
    commit,
    first_line,
    look,
    overtaken,
    private_session,
    refuse_unsafe_log_store,
)
from delta_cdc.changes import feed, states
from delta_cdc.changes import rows as captured
from delta_cdc.errors import NotInsertOnly
from delta_cdc.spec import JobResult, step_fingerprint
from delta_cdc.sql import PLAN_PREFIX, quote, table
from delta_cdc.watermark import PlannedOn, Seal, SealStep

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.apply.rows import Shape
    from delta_cdc.spec import ApplyOptions, ApplySpec, Step
    from delta_cdc.watermark import StepKind

log = logging.getLogger(__name__)

_VIEW = f"{PLAN_PREFIX}source"
_ROWS, _HIGHEST = f"{PLAN_PREFIX}rows", f"{PLAN_PREFIX}highest"
_NULL_SEQUENCES = f"{PLAN_PREFIX}null_sequences"


@dataclass(frozen=True)
class _Work:
    """A prepared step: the write, the counts known before it, and the highest sequence for the seal.

    :param shape: of the rows; None where the step moves none and carries a state on
    """

    write: Callable[[], object]
    counts: dict[str, int]
    highest_sequence: str | None
    shape: Shape | None


@dataclass(frozen=True)
class _Done:
    """What became of a step; its counts and highest sequence hold where it committed."""

    step: Step
    outcome: Outcome
    work: _Work


def run(spark: SparkSession, spec: ApplySpec) -> JobResult:
    """Run the steps of ``spec`` in order.

    :return: ``committed`` when every step was; otherwise the status of the step that was not
    :raises DeltaCdcError: for bad input; nothing of the failing step is written
    """
    feed.refuse_forbidden_confs(spark)
    refuse_unsafe_log_store(spark, spec.target_uri, single_driver=spec.single_driver)
    session = private_session(spark)
    counts: dict[str, int] = {}
    previous: _Done | None = None
    for step in spec.steps:
        if previous is not None:
            followed = _following(session, spec, step, previous)
            if isinstance(followed, str):
                return JobResult("stale", counts=counts, message=followed)
            step = followed
        previous = _run_step(session, spec, step)
        if previous.outcome.status != "committed":
            return JobResult(previous.outcome.status, counts=counts, message=previous.outcome.message)
        done = previous.work.counts
        counts = {name: counts.get(name, 0) + done.get(name, 0) for name in {**counts, **done}}
    return JobResult(status="committed", counts=counts)


def _following(session: SparkSession, spec: ApplySpec, step: Step, previous: _Done) -> Step | str:
    """Return the step as planned on what the step before it committed, exactly that version.

    Where a RESTORE or a replacement came between the last look of that step and its commit, only a text that
    says so: nothing may be put on top, because the next planner looks no further back than the newest seal's
    own plan.
    """
    assert previous.outcome.version is not None
    seen = look(session, spec.target_uri)
    if previous.step.planned_on is not None:
        reason = overtaken(session, spec.target_uri, previous.step.planned_on, seen)
        if reason is not None:
            return reason
    return replace(
        step,
        planned_on=PlannedOn(seen.table_id, previous.outcome.version),
        highest_sequence=previous.work.highest_sequence,
    )


def _run_step(session: SparkSession, spec: ApplySpec, step: Step) -> _Done:
    what = _told(spec, step)
    log.info("preparing %s", what)
    work = _prepare(session, spec, step)
    phases.reached("planned")
    other = feed.changed_source(session, spec.source_uri, step)
    if other is not None:
        return _Done(step, Outcome("stale", message=other), work)
    seen: Seen | None = None
    if step.planned_on is not None:
        seen = look(session, spec.target_uri)
        reason = overtaken(session, spec.target_uri, step.planned_on, seen)
        if reason is not None:
            return _Done(step, Outcome("stale", message=reason), work)
    known = ", ".join(f"{count} {name}" for name, count in work.counts.items())
    log.info("committing %s to %s (%s)", what, spec.target_uri, known or "append")
    try:
        outcome = commit(session, _seal(spec, step, work), work.write)
    except Exception as error:
        # A key that is there against expectation: or the target is no longer the one that was looked at.
        reason = _overtaken_since(session, spec, step) if b.DUPLICATE_MARK in str(error) else None
        if reason is None:
            raise
        return _Done(step, Outcome("stale", message=reason), work)
    if outcome.status == "committed":
        log.info("committed version %s of %s, seal %s", outcome.version, spec.target_uri, step.seal_number)
        _tidy(session, spec, step, work.shape, seen)
    return _Done(step, outcome, work)


def _told(spec: ApplySpec, step: Step) -> str:
    if step.kind == "apply":
        return f"versions {step.starting_version}-{step.ending_version} of {spec.source_uri}"
    if step.kind == "load" and not step.is_empty:
        return f"a snapshot of version {step.ending_version} of {spec.source_uri}"
    return f"a seal without rows for version {step.ending_version} of {spec.source_uri}"


def _overtaken_since(session: SparkSession, spec: ApplySpec, step: Step) -> str | None:
    if step.planned_on is None:
        return None
    return overtaken(session, spec.target_uri, step.planned_on, look(session, spec.target_uri))


def _tidy(session: SparkSession, spec: ApplySpec, step: Step, shape: Shape | None, seen: Seen | None) -> None:
    """Complete the target's layout and empty the staging table; the step stands, so failing is a warning.

    Both are done again by the next run: what is missing is still missing then, and the next batch replaces
    this one.
    """
    try:
        if shape is not None:
            layout.complete(session, spec.target_uri, shape, spec.options, seen)
        if step.staging is not None:
            # The batch is in the target; what is read again from here on comes from a newer batch's version.
            session.sql(f"DELETE FROM {table(step.staging.uri)}")
    except Exception as error:  # noqa: BLE001 - optional work after a commit must not fail the commit
        log.warning("after the commit to %s: %s", spec.target_uri, first_line(error))


def _prepare(session: SparkSession, spec: ApplySpec, step: Step) -> _Work:
    if step.kind in ("load", "declare"):
        return _load(session, spec, step)
    if step.kind != "apply":
        return _seal_alone(session, spec, step)
    if spec.options.insert_only:
        return _append(session, spec, step)
    return _merge(session, spec, step)


def _seal_alone(session: SparkSession, spec: ApplySpec, step: Step) -> _Work:
    """An append of no rows: it records the transaction, and the seal beside it."""

    def write() -> None:
        nothing = session.read.format("delta").load(spec.target_uri).limit(0)
        nothing.write.format("delta").mode("append").save(spec.target_uri)

    return _Work(write, {}, step.highest_sequence, None)


def _seal(spec: ApplySpec, step: Step, work: _Work) -> Seal:
    return Seal(
        pipeline=step.pipeline or spec.pipeline,
        number=step.seal_number,
        source_table_id=spec.source_table_id,
        source_uri=spec.source_uri,
        applied_from=step.applied_from,
        watermark=step.ending_version,
        source_commit_hash=step.source_commit_hash,
        highest_sequence=work.highest_sequence,
        configuration=step.configuration if work.shape is None else _configuration(spec.options, work.shape),
        successor=step.successor,
        step=SealStep(
            # The kinds that only staging has are in no apply.
            kind=cast("StepKind", step.kind),
            starting_version=step.starting_version,
            ending_version=step.ending_version,
            fingerprint=step_fingerprint(spec, step.seal_number),
            run_id=spec.run_id,
            planned_on=step.planned_on,
            counts=work.counts,
        ),
    )


def _configuration(options: ApplyOptions, shape: Shape) -> dict[str, object]:
    sequence = shape.sequence_type
    return {
        "keys": list(options.keys),
        "scd_type": options.stored_as_scd_type,
        "sequence_by_type": sequence.simpleString() if sequence is not None else None,
        "tracked": {
            "include": _listed(options.track_history_column_list),
            "except": _listed(options.track_history_except_column_list),
        },
        "where": options.where,
        "select": list(options.select),
        "partition_by": dict(options.partition_by),
        **_history_columns(options),
    }


def _history_columns(options: ApplyOptions) -> dict[str, str]:
    if options.stored_as_scd_type != 2:
        return {}
    return {"start_column": options.start_column, "end_column": options.end_column}


def _listed(columns: tuple[str, ...] | None) -> list[str] | None:
    return None if columns is None else list(columns)


# -- load ---------------------------------------------------------------------------------------
def _load(session: SparkSession, spec: ApplySpec, step: Step) -> _Work:
    from pyspark.sql import functions as F

    # A load before version 0 borrows its schema.
    options, version = spec.options, max(step.ending_version, 0)
    source_rows = feed.snapshot_rows(session, spec.source_uri, version, step.source_columns, step.staging)
    if step.is_empty:
        source_rows = source_rows.limit(0)
    stamped = source_rows.withColumn(feed.CHANGE_TYPE, F.lit("insert")).withColumn(
        feed.COMMIT_VERSION, F.lit(version).cast("bigint")
    )
    if options.stored_as_scd_type == 2 and feed.COMMIT_TIMESTAMP in _sequences(spec).lower():
        moment = feed.commit_timestamp(session, spec.source_uri, version)
    else:
        moment = F.lit(None).cast("timestamp")
    stamped = stamped.withColumn(feed.COMMIT_TIMESTAMP, moment)
    sequenced = rows.with_sequence(stamped, options)
    found = rows.projected(sequenced, options, (*feed.METADATA_COLUMNS, states.SEQUENCE))
    shape = rows.shape_of(found, source_rows, options, spec.source_uri)
    counts, highest = _checked_snapshot(found, shape, spec, version)
    target_rows = found.select(*[quote(name) for name in shape.values])
    if shape.sequence_type is not None:
        target_rows = found.select(
            *[quote(name) for name in shape.values],
            F.col(states.SEQUENCE).alias(options.start_column),
            F.lit(None).cast(shape.sequence_type).alias(options.end_column),
        )
    if step.planned_on is not None:
        schema.check_target(session, spec, target_rows.schema)
        if step.is_empty and shape.sequence_type is not None:
            highest = _highest_in_target(session, spec)
    writer = layout.arranged(target_rows, shape, options).write.format("delta")
    if step.planned_on is None:
        # One commit with data, properties and seal; left-over files of a crash do not disturb this form.
        writer = writer.mode("errorifexists").options(**layout.properties(shape, options))
        if options.partition_by:
            writer = writer.partitionBy(*options.partition_by)
    else:
        writer = writer.mode("append").option("mergeSchema", "true")
    return _Work(lambda: writer.save(spec.target_uri), counts, highest, shape)


def _highest_in_target(session: SparkSession, spec: ApplySpec) -> str | None:
    """Return the greatest sequence in rows that were there before the first seal."""
    start, end = quote(spec.options.start_column), quote(spec.options.end_column)
    highest = f"CAST(greatest(max({start}), max({end})) AS STRING) AS highest"
    found = session.sql(f"SELECT {highest} FROM {table(spec.target_uri)}").collect()[0]["highest"]
    return None if found is None else str(found)


def _sequences(spec: ApplySpec) -> str:
    return f"{spec.options.sequence_by} {spec.options.delete_sequence or ''}"


def _checked_snapshot(
    found: DataFrame, shape: Shape, spec: ApplySpec, version: int
) -> tuple[dict[str, int], str | None]:
    """Refuse null keys, duplicate keys and null sequences of a snapshot; return counts and highest start."""
    from pyspark.sql import functions as F

    versions = f"version {version}"
    if spec.options.insert_only:
        return {}, None
    keys = [F.col(quote(key)) for key in shape.keys]
    per_key = found.groupBy(*keys).agg(
        F.count("*").alias(_ROWS),
        F.count_if(F.col(states.SEQUENCE).isNull()).alias(_NULL_SEQUENCES),
        F.max(states.SEQUENCE).alias(_HIGHEST),
    )
    totals = per_key.agg(
        F.coalesce(F.sum(_ROWS), F.lit(0)).alias("rows"),
        F.count_if(b.null_key(shape)).alias("null_keys"),
        F.count_if(F.col(_ROWS) > 1).alias("duplicates"),
        F.coalesce(F.sum(_NULL_SEQUENCES), F.lit(0)).alias("null_sequences"),
        F.max(_HIGHEST).cast("string").alias("highest"),
    ).collect()[0]
    b.refuse_null_keys(totals["null_keys"], spec.source_uri, versions, shape.keys)
    if totals["duplicates"]:
        sample = b.samples(per_key, shape.keys, F.col(_ROWS) > 1)
        b.refuse_duplicates(totals["duplicates"], spec.source_uri, versions, sample)
    if shape.sequence_type is None:
        return {"rows": totals["rows"]}, None
    if totals["null_sequences"]:
        sample = b.samples(per_key, shape.keys, F.col(_NULL_SEQUENCES) > 0)
        b.refuse_null_sequences(
            totals["null_sequences"], spec.source_uri, versions, sample, spec.options.sequence_by
        )
    return {"rows": totals["rows"]}, totals["highest"]


# -- changes ------------------------------------------------------------------------------------
def _change_rows(session: SparkSession, spec: ApplySpec, step: Step) -> tuple[DataFrame, Shape]:
    columns = step.source_columns
    if step.staging is not None:
        source_rows = captured.staged_rows(session, step.staging, columns)
    else:
        source_rows = captured.change_rows(
            session,
            spec.source_uri,
            step.segments,
            columns,
            at=step.ending_version,
            slices_uri=spec.slices_uri,
        )
    sequenced = rows.with_sequence(source_rows, spec.options)
    found = rows.projected(sequenced, spec.options, (*feed.METADATA_COLUMNS, feed.ORDER, states.SEQUENCE))
    return found, rows.shape_of(found, source_rows, spec.options, spec.source_uri)


def _versions(step: Step) -> str:
    return f"versions {step.starting_version}-{step.ending_version}"


def _merge(session: SparkSession, spec: ApplySpec, step: Step) -> _Work:
    options, source, versions = spec.options, spec.source_uri, _versions(step)
    found, shape = _change_rows(session, spec, step)
    evolve = schema.check_target(session, spec, schema.target_schema(shape, options))
    events = states.version_states(found, shape.keys, shape.values)
    highest = step.highest_sequence
    if options.stored_as_scd_type == 1:
        batch = scd1.validated(scd1.net_changes(events, shape), shape, source, versions)
        view = scd1.changed(batch)
        statement = scd1.merge_sql(spec.target_uri, _VIEW, shape, batch, evolve=evolve)
        kept = ["changes", "suppressed", "events"]
    else:
        cut = scd2.segments(scd2.classified(events, shape), shape)
        batch = scd2.validated(cut, shape, options, source, versions)
        scd2.refuse_not_above_history(
            session, spec.target_uri, batch, shape, options, highest, source, versions
        )
        view = scd2.plan_rows(batch, shape)
        statement = scd2.merge_sql(spec.target_uri, _VIEW, shape, options, batch, evolve=evolve)
        highest = _greater(session, shape, highest, batch.totals["highest"])
        kept = ["events", "opened", "closed", "updated"]
    log.debug("%s", statement)

    def write() -> None:
        view.createOrReplaceTempView(_VIEW)
        session.sql(statement)

    return _Work(write, {name: batch.totals[name] for name in kept}, highest, shape)


def _greater(session: SparkSession, shape: Shape, one: str | None, other: str | None) -> str | None:
    """Return the greater of two sequence values that the seal carries as text."""
    from pyspark.sql import functions as F

    if one is None or other is None:
        return one or other
    assert shape.sequence_type is not None
    values = [F.lit(text).cast(shape.sequence_type) for text in (one, other)]
    found = session.range(1).select(F.greatest(*values).cast("string").alias("greatest")).collect()
    return str(found[0]["greatest"])


def _append(session: SparkSession, spec: ApplySpec, step: Step) -> _Work:
    from pyspark.sql import functions as F

    found, shape = _change_rows(session, spec, step)
    schema.check_target(session, spec, schema.target_schema(shape, spec.options))
    others = (
        found.where(F.col(feed.CHANGE_TYPE) != "insert")
        .groupBy(feed.COMMIT_VERSION, feed.CHANGE_TYPE)
        .count()
        .orderBy(feed.COMMIT_VERSION)
        .limit(1)
        .collect()
    )
    if others:
        raise NotInsertOnly(
            f"Version {others[0][feed.COMMIT_VERSION]} of {spec.source_uri} has {others[0]['count']} "
            f"{others[0][feed.CHANGE_TYPE]} row(s), but the pipeline {spec.pipeline} is insert_only.",
            remedy="give keys and drop insert_only, or leave such rows out with where.",
        )
    values = found.select(*[quote(name) for name in shape.values])
    writer = values.write.format("delta").mode("append").option("mergeSchema", "true")
    return _Work(lambda: writer.save(spec.target_uri), {}, None, shape)
