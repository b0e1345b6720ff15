"""Run the steps of one apply spec: each step is one sealed commit in the target."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from delta_cdc.core import failpoints, validation
from delta_cdc.core.reasons import reason
from delta_cdc.core.spec import JobResult, seal_of
from delta_cdc.core.sql import table
from delta_cdc.core.uris import short_name
from delta_cdc.core.watermark import PipelineState, Seal, TableVersion, newest
from delta_cdc.spark import catalog, quarantine
from delta_cdc.spark.apply import batches, from_events, from_feed, layout, load, refusals, repair
from delta_cdc.spark.apply.commit import (
    CommitResult,
    changed_since,
    commit,
    is_conflict,
    logs_loaded,
    look,
    nothing_added,
    overtaken,
)
from delta_cdc.spark.apply.constraints import Destination, refused
from delta_cdc.spark.apply.prepared_step import PreparedStep
from delta_cdc.spark.changes import feed
from delta_cdc.spark.commit_files import commit_hash
from delta_cdc.spark.commit_safety import refuse_unsafe_log_store
from delta_cdc.spark.sessions import private_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.core.spec import ApplySpec
    from delta_cdc.core.steps import Kind, Step
    from delta_cdc.spark.apply.rows import Shape

log = logging.getLogger(__name__)

#: Number of allowed-lateness limits that a seal keeps. Older limits have no event left to exclude.
_KEPT_HORIZONS = 50

#: How often a step is attempted if executors keep dying.
_ATTEMPTS = 3


def run(spark: SparkSession, spec: ApplySpec) -> JobResult:
    """Run the steps of ``spec`` in order.

    :return: ``committed`` if every step committed; otherwise the status of the step that did not
    :raises DeltaCdcError: for bad input; nothing of the failing step is written
    """
    feed.refuse_forbidden_confs(spark)
    with private_session(spark) as session:
        refuse_unsafe_log_store(session, spec.target_uri, single_driver=spec.single_driver)
        catalog.check(session, spec)
        if spec.dry_run:
            return _dry_run(session, spec)
        return _run_steps(session, spec)


def _run_steps(session: SparkSession, spec: ApplySpec) -> JobResult:
    counts: dict[str, int] = {}
    previous: tuple[Step, PipelineState, int] | None = None
    for position, step in enumerate(spec.steps):
        milestone = _milestone(spec, position)
        if milestone:
            log.info("%s: %s: %s", spec.pipeline, milestone, _described(spec, step))
        if previous is not None:
            next_step = _following(session, spec, step, *previous)
            if isinstance(next_step, str):
                return JobResult("stale", counts=counts, message=next_step)
            step = next_step
        step = with_allowed_lateness(step)
        outcome, prepared = _run_step_again(session, spec, step)
        if outcome.version is None:
            return JobResult(outcome.status, counts=counts, message=outcome.message)
        previous = (step, _state(spec, step, prepared), outcome.version)
        step_counts = prepared.counts
        counts = {name: counts.get(name, 0) + step_counts.get(name, 0) for name in {**counts, **step_counts}}
        if milestone:
            log.info("%s: %s is version %s", spec.pipeline, milestone, outcome.version)
    return JobResult(status="committed", counts=counts)


def _milestone(spec: ApplySpec, position: int) -> str:
    """Return the text ``Commit 1 of 3`` for a step whose range takes several commits; "" for other steps."""
    parts = [index for index, step in enumerate(spec.steps) if step.kind == "apply"]
    return (
        f"Commit {parts.index(position) + 1} of {len(parts)}" if len(parts) > 1 and position in parts else ""
    )


def _dry_run(session: SparkSession, spec: ApplySpec) -> JobResult:
    """Report what the first step with rows would do; count the later steps, which depend on its commit."""
    row_steps = (index for index, step in enumerate(spec.steps) if step.read.has_rows)
    position = next(row_steps, 0)
    step = spec.steps[position]
    step = with_allowed_lateness(step)
    prepared = _prepare(session, spec, step)
    if prepared.merge is not None:
        statement, counts = prepared.merge.statement, prepared.merge.counted(session)
    else:
        inserted = prepared.inserts.count() if prepared.inserts is not None else 0
        verb = "REPLACE ALL ROWS OF" if step.kind == "reset" else "APPEND TO"
        statement, counts = f"{verb} {table(spec.target_uri)}: {inserted} rows", {"inserted": inserted}
    statements = (*prepared.alters, statement)
    later_commits = len(spec.steps) - 1 - position
    message = _described(spec, step) + (
        f"; {later_commits} more commit(s) would follow" if later_commits else ""
    )
    return JobResult("planned", {**counts, **prepared.counts}, message, statements=statements)


def _following(
    session: SparkSession,
    spec: ApplySpec,
    step: Step,
    previous: Step,
    state: PipelineState,
    version: int,
) -> Step | str:
    """Return the step, planned on exactly the version that the previous step committed.

    If the target was restored or replaced after the previous step observed it and before that step
    committed, return the reason as text. This step must not commit then, because the next planner checks
    only the versions after the one that the newest seal was planned on.

    :param state: the state after the previous step
    :param version: the version that the previous step committed
    """
    planned = previous.planned_on
    own_hash = commit_hash(session, spec.target_uri, version)
    if planned is not None and planned.version + 1 == version:
        # No other commit lies between, so the table is still the one planned on.
        planned = TableVersion(planned.table_id, version, own_hash)
    else:
        target_state = look(session, spec.target_uri)
        if planned is not None:
            # A reset replaces all rows itself, whatever happened to them since planning.
            unchanged_since = replace(planned, version=version) if previous.kind == "reset" else planned
            reason = overtaken(session, spec.target_uri, unchanged_since, target_state)
            if reason is not None:
                return reason
        planned = TableVersion(target_state.table_id, version, own_hash)
    return replace(step, planned_on=planned, before=state if step.before is None else step.before)


def _run_step_again(session: SparkSession, spec: ApplySpec, step: Step) -> tuple[CommitResult, PreparedStep]:
    """Run a step; run it again if an executor with its computed rows is lost.

    Spark cannot recompute these rows, because a local checkpoint drops their lineage.
    """
    for attempt in range(1, _ATTEMPTS):
        try:
            return _run_step(session, spec, step)
        except Exception as error:
            if batches.LOST_ROWS not in str(error):
                raise
            log.warning(
                "an executor was lost with rows of %s; computing them again (attempt %s of %s)",
                _described(spec, step),
                attempt + 1,
                _ATTEMPTS,
            )
    return _run_step(session, spec, step)


def _run_step(session: SparkSession, spec: ApplySpec, step: Step) -> tuple[CommitResult, PreparedStep]:
    description = _described(spec, step)
    log.info("%s: preparing %s", spec.pipeline, description)
    prepared, reason = _checked(session, spec, step)
    if reason is None and prepared.alters:
        prepared, reason = _altered(session, spec, step, prepared)
    if reason is not None:
        return CommitResult("stale", message=reason), prepared
    seal = _seal(spec, step, prepared, _state(spec, step, prepared))
    if prepared.quarantined is not None:
        reason = quarantine.write(session, spec, step, seal, prepared.quarantined)
        if reason is not None:
            return CommitResult("stale", message=reason), prepared
        failpoints.reached("quarantined")
    counts = ", ".join(f"{count} {name}" for name, count in prepared.counts.items())
    log.info("%s: committing %s%s", spec.pipeline, description, counts and f": {counts}")
    try:
        outcome = commit(session, seal, prepared.write, _destination(session, spec, prepared))
    except Exception as error:
        # Either the source inserts an existing key, or the target changed after it was observed.
        if refusals.DUPLICATE_MARK in str(error) and step.planned_on is not None:
            reason = overtaken(session, spec.target_uri, step.planned_on, look(session, spec.target_uri))
        if reason is None:
            raise
        return CommitResult("stale", message=reason), prepared
    if outcome.status == "committed":
        log.info("%s: committed version %s, seal %s", spec.pipeline, outcome.version, step.seal_number)
        _tidy(session, spec, step, prepared.shape)
    return outcome, prepared


def _checked(session: SparkSession, spec: ApplySpec, step: Step) -> tuple[PreparedStep, str | None]:
    """Return the prepared step, and why source or target are not as planned; None if they are."""
    layout.fit(session, spec, step)
    with logs_loaded(session, *([] if step.planned_on is None else [spec.target_uri])):
        prepared = _prepare(session, spec, step)
    failpoints.reached("planned")
    with ThreadPoolExecutor(1) as pool:
        changed_target = pool.submit(_changed_target, session, spec, step)
        reason = feed.changed_source(session, spec.source_uri, step) or changed_target.result()
    return prepared, reason


def _altered(
    session: SparkSession, spec: ApplySpec, step: Step, prepared: PreparedStep
) -> tuple[PreparedStep, str | None]:
    """Alter the target's columns, before the step's own commit, and prepare the step again.

    Each statement is a commit without a seal: it moves no rows, and a retry finds its result.

    :return: the step, and why it has to be planned again; None if it has not
    :raises DeltaCdcError: the table refuses a statement
    """
    for position, statement in enumerate(prepared.alters):
        log.info("%s: %s", spec.pipeline, statement)
        try:
            session.sql(statement)
        except Exception as error:
            left = _prepare(session, spec, step).alters
            if is_conflict(error) or not set(prepared.alters[position:]) <= set(left):
                text = f"the target {spec.target_uri} changed while its columns were altered: {reason(error)}"
                return prepared, text
            refusal = refused(error, Destination(spec.target_uri))
            if refusal is None:
                raise
            raise refusal from error
    failpoints.reached("altered")
    # The rows were computed for the columns that the target had before.
    again, problem = _checked(session, spec, step)
    if problem is None and again.alters:
        problem = f"the columns of the target {spec.target_uri} changed since they were altered"
    return again, problem


def _changed_target(session: SparkSession, spec: ApplySpec, step: Step) -> str | None:
    """Return why the target is not as planned; None if it is, or if a step creates it."""
    if step.planned_on is None:
        return None
    changed = changed_since(session, spec.target_uri, step.planned_on, single_driver=spec.single_driver)
    return None if changed is None else changed[1]


def _destination(session: SparkSession, spec: ApplySpec, prepared: PreparedStep) -> Destination:
    """Return where the step writes and which rows, for the error if the target refuses the write."""
    merge, inserts = prepared.merge, prepared.inserts
    keys = prepared.shape.keys if prepared.shape is not None else ()
    if merge is not None:
        return Destination(spec.target_uri, lambda: merge.written(session), keys)
    return Destination(spec.target_uri, None if inserts is None else lambda: inserts, keys)


def with_allowed_lateness(step: Step) -> Step:
    """Return the step with its limits of allowed lateness (``horizons``), each with its first version.

    The plan of a range contains the limit for that range; the previous seal contains the earlier limits and
    their first versions. A limit that the user removed no longer applies. Limits only rise while one is set.
    """
    earlier_limits = step.before.horizons if step.before is not None else ()
    if not step.horizons or not earlier_limits:
        return step
    if earlier_limits[-1][1] == step.horizons[-1][1]:
        return replace(step, horizons=earlier_limits)
    return replace(step, horizons=newest((*earlier_limits, *step.horizons), _KEPT_HORIZONS))


def _described(spec: ApplySpec, step: Step) -> str:
    return f"the {step.kind} of {short_name(spec.source_uri)}: {step}"


def _tidy(session: SparkSession, spec: ApplySpec, step: Step, shape: Shape | None) -> None:
    """Complete the target's layout, register its name and empty the staging table; a failure only warns.

    The step is committed already, and the next run does all again: it completes the layout, its look-up
    registers the name, and its batch replaces this one.
    """
    try:
        is_new = step.planned_on is None
        if shape is not None and (is_new or spec.may_lack_layout):
            layout.complete(session, spec.target_uri, shape, spec.options, is_new=is_new)
        if is_new and spec.target_name:
            catalog.registered(session, spec.target_name, spec.target_uri, spec.target_comment)
        if step.read.staging is not None:
            # The target has these rows now. Later steps read a newer batch.
            session.sql(f"DELETE FROM {table(step.read.staging.uri)}")
        if step.read.quarantined:
            quarantine.forget(session, spec.quarantine_uri, spec.pipeline, step.seal_number)
    except Exception as error:  # noqa: BLE001 - optional work after a commit must not fail the commit
        log.warning(
            "The commit to %s succeeded, but a step after it failed. The next run repeats this step: %s",
            spec.target_uri,
            reason(error),
        )


def _load(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    takes_events = spec.options.takes_events and not spec.options.insert_only
    return from_events.first(session, spec, step) if takes_events else load.load(session, spec, step)


def _apply(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    if spec.options.insert_only:
        return from_feed.append(session, spec, step)
    if spec.options.takes_events:
        return from_events.apply(session, spec, step)
    if spec.options.is_partial:
        return from_events.apply_states(session, spec, step)
    return from_feed.merge(session, spec, step)


def _seal_alone(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    """Prepare an append of no rows: the commit records the transaction and the seal."""
    write = nothing_added(session, spec.target_uri)
    return PreparedStep(write, {}, step.highest_sequence, truncate_sequences=step.truncate_sequences)


#: What prepares the write of a step, by its kind.
_PREPARES: dict[Kind, Callable[[SparkSession, ApplySpec, Step], PreparedStep]] = {
    "load": _load,
    "reset": _load,
    "baseline": _load,
    "apply": _apply,
    "reload": repair.reload,
    "repair": repair.repair,
    "renew": _seal_alone,
    "take_over": _seal_alone,
}


def _prepare(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    return _PREPARES[step.kind](session, spec, step)


def _state(spec: ApplySpec, step: Step, prepared: PreparedStep) -> PipelineState:
    """Return the pipeline state after a step."""
    before = step.before
    if before is None or step.read.begins:
        before = PipelineState(step.watermark, 0, loaded_version=step.at)
    return replace(
        before,
        applied_to=step.watermark,
        highest_sequence=prepared.highest_sequence,
        truncate_sequences=prepared.truncate_sequences,
        horizons=step.horizons if step.read.has_rows else before.horizons,
        configuration=before.configuration
        if prepared.shape is None
        else _configuration(spec.options, prepared.shape, step),
    )


def _seal(spec: ApplySpec, step: Step, prepared: PreparedStep, state: PipelineState) -> Seal:
    return seal_of(spec, step, state, counts=prepared.counts)


def _configuration(options: ApplyOptions, shape: Shape, step: Step) -> dict[str, object]:
    order_type, tracked_or_key = shape.order_type, {*shape.tracked, *shape.keys}
    untracked = [name for name in shape.values if name not in tracked_or_key]
    return {
        **validation.described(options),
        **validation.described_columns(options, step.source_columns, untracked),
        "sequence_by_type": order_type.simpleString() if order_type is not None else None,
    }
