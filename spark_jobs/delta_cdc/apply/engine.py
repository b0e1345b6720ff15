"""Runs the steps of one apply spec: each step is one sealed commit in the target."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from delta_cdc import checks, phases
from delta_cdc.apply import again, from_events, from_feed, layout, load, quarantine
from delta_cdc.apply import batch as b
from delta_cdc.apply.commit import (
    Outcome,
    Seen,
    commit,
    look,
    looking,
    overtaken,
)
from delta_cdc.apply.constraints import Into
from delta_cdc.apply.work import Work
from delta_cdc.changes import feed
from delta_cdc.log_stores import refuse_unsafe_log_store
from delta_cdc.reasons import reason
from delta_cdc.sessions import private_session
from delta_cdc.spec import JobResult, step_fingerprint
from delta_cdc.sql import table
from delta_cdc.watermark import PlannedOn, Seal, SealStep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delta_cdc.apply.rows import Shape
    from delta_cdc.spec import ApplyOptions, ApplySpec, Step
    from delta_cdc.watermark import StepKind

log = logging.getLogger(__name__)

#: Behind an older one there is nothing left that it could keep out.
_KEPT_HORIZONS = 50

#: How often a step is computed where machines of the cluster keep dying.
_ATTEMPTS = 3


@dataclass(frozen=True)
class _Done:
    """What became of a step; its counts and highest sequence hold where it committed."""

    step: Step
    outcome: Outcome
    work: Work


def run(spark: SparkSession, spec: ApplySpec) -> JobResult:
    """Run the steps of ``spec`` in order.

    :return: ``committed`` when every step was; otherwise the status of the step that was not
    :raises DeltaCdcError: for bad input; nothing of the failing step is written
    """
    feed.refuse_forbidden_confs(spark)
    refuse_unsafe_log_store(spark, spec.target_uri, single_driver=spec.single_driver)
    with private_session(spark) as session:
        if spec.dry_run:
            return _dry_run(session, spec)
        return _run_steps(session, spec)


def _run_steps(session: SparkSession, spec: ApplySpec) -> JobResult:
    counts: dict[str, int] = {}
    previous: _Done | None = None
    for at, step in enumerate(spec.steps):
        milestone = _milestone(spec, at)
        if milestone:
            log.info("%s: %s", milestone, _told(spec, step))
        if previous is not None:
            followed = _following(session, spec, step, previous)
            if isinstance(followed, str):
                return JobResult("stale", counts=counts, message=followed)
            step = followed
        previous = _run_step_again(session, spec, step)
        if previous.outcome.status != "committed":
            return JobResult(previous.outcome.status, counts=counts, message=previous.outcome.message)
        done = previous.work.counts
        counts = {name: counts.get(name, 0) + done.get(name, 0) for name in {**counts, **done}}
        if milestone:
            log.info("%s is version %s of %s", milestone, previous.outcome.version, spec.target_uri)
    return JobResult(status="committed", counts=counts)


def _milestone(spec: ApplySpec, at: int) -> str:
    """Return which one a step is, of several that each apply a part of the range; else nothing."""
    parts = [place for place, step in enumerate(spec.steps) if step.kind == "apply"]
    return f"Milestone {parts.index(at) + 1} of {len(parts)}" if len(parts) > 1 and at in parts else ""


def _dry_run(session: SparkSession, spec: ApplySpec) -> JobResult:
    """Find out what the first step with rows would do. What comes after it depends on its commit."""
    moving = (at for at, step in enumerate(spec.steps) if step.kind not in ("adopt", "reseal"))
    place = next(moving, 0)
    step = spec.steps[place]
    step = replace(step, horizons=horizons_of(step))
    work = _prepare(session, spec, step)
    if work.merge is not None:
        statement, counts = work.merge.statement, work.merge.counted(session)
    else:
        inserted = work.inserts.count() if work.inserts is not None else 0
        verb = "REPLACE ALL ROWS OF" if step.kind == "reset" else "APPEND TO"
        statement, counts = f"{verb} {table(spec.target_uri)}: {inserted} rows", {"inserted": inserted}
    more = len(spec.steps) - 1 - place
    told = f"{_told(spec, step)}; {more} more commit(s) would follow" if more else _told(spec, step)
    return JobResult("planned", {**counts, **work.counts}, told, statements=(statement,))


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
        truncate_sequences=previous.work.truncate_sequences,
        known_horizons=previous.step.horizons,
        loaded_version=_loaded(previous.step),
    )


def _run_step_again(session: SparkSession, spec: ApplySpec, step: Step) -> _Done:
    """Run a step, and once more as often as an executor dies with rows in it that the step had computed.

    Those rows are kept without what they were made of (local checkpoints), so Spark itself can't.
    """
    for attempt in range(1, _ATTEMPTS):
        try:
            return _run_step(session, spec, step)
        except Exception as error:
            if b.LOST_ROWS not in str(error):
                raise
            log.warning(
                "an executor was lost with rows of %s; computing them again (attempt %s of %s)",
                _told(spec, step),
                attempt + 1,
                _ATTEMPTS,
            )
    return _run_step(session, spec, step)


def _run_step(session: SparkSession, spec: ApplySpec, step: Step) -> _Done:
    what = _told(spec, step)
    step = replace(step, horizons=horizons_of(step))
    log.info("preparing %s", what)
    seen: Seen | None = None
    if step.planned_on is None:
        work, reason = _prepared(session, spec, step)
    else:
        with looking(session, spec.target_uri) as now:
            work, reason = _prepared(session, spec, step)
            if reason is None:
                seen = now()
                reason = overtaken(session, spec.target_uri, step.planned_on, seen)
    if reason is not None:
        return _Done(step, Outcome("stale", message=reason), work)
    seal = _seal(spec, step, work)
    if work.quarantined is not None:
        reason = quarantine.write(session, spec, step, seal, work.quarantined)
        if reason is not None:
            return _Done(step, Outcome("stale", message=reason), work)
        phases.reached("quarantined")
    known = ", ".join(f"{count} {name}" for name, count in work.counts.items())
    log.info("committing %s to %s (%s)", what, spec.target_uri, known or "append")
    try:
        outcome = commit(session, seal, work.write, _into(session, spec, work))
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


def _into(session: SparkSession, spec: ApplySpec, work: Work) -> Into:
    """Return what a refusal of the target is told by."""
    merge, inserts = work.merge, work.inserts
    keys = work.shape.keys if work.shape is not None else ()
    if merge is not None:
        return Into(spec.target_uri, lambda: merge.written(session), keys)
    return Into(spec.target_uri, None if inserts is None else lambda: inserts, keys)


def horizons_of(step: Step) -> tuple[tuple[int, str], ...]:
    """Return the lateness horizons that hold for a step, each since the version at which it came up.

    A range tells the one that held in it; since when is in the seal before. One that was taken back holds no
    more, and horizons only rise while there is one.
    """
    if step.kind in ("reseal", "adopt"):
        return step.known_horizons
    if not step.horizons or not step.known_horizons:
        return step.horizons
    if step.known_horizons[-1][1] == step.horizons[-1][1]:
        return step.known_horizons
    return (*step.known_horizons, *step.horizons)[-_KEPT_HORIZONS:]


def _prepared(session: SparkSession, spec: ApplySpec, step: Step) -> tuple[Work, str | None]:
    """Prepare a step; also say why it no longer fits its source, or None."""
    work = _prepare(session, spec, step)
    phases.reached("planned")
    return work, feed.changed_source(session, spec.source_uri, step)


def _loaded(step: Step) -> int:
    return step.ending_version if step.kind in ("load", "declare", "reset") else step.loaded_version


def _told(spec: ApplySpec, step: Step) -> str:
    if step.kind == "apply":
        return f"{_range(step)} of {spec.source_uri}"
    if step.kind in ("load", "reset", "reload") and not step.is_empty:
        return f"a {step.kind} of version {step.ending_version} of {spec.source_uri}"
    if step.kind == "repair":
        chosen = step.keys_where or ("what is quarantined" if step.replayed else "")
        return f"a repair of {chosen or _range(step)} of {spec.source_uri}"
    return f"a seal without rows for version {step.ending_version} of {spec.source_uri}"


def _range(step: Step) -> str:
    return f"versions {step.starting_version}-{step.ending_version}"


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
        if step.replayed:
            quarantine.forget(session, spec.quarantine_uri, spec.pipeline, step.seal_number)
    except Exception as error:  # noqa: BLE001 - optional work after a commit must not fail the commit
        log.warning("after the commit to %s: %s", spec.target_uri, reason(error))


def _prepare(session: SparkSession, spec: ApplySpec, step: Step) -> Work:
    if step.kind in ("load", "declare", "reset"):
        takes_events = spec.options.takes_events and not spec.options.insert_only
        return from_events.first(session, spec, step) if takes_events else load.load(session, spec, step)
    if step.kind == "reload":
        return again.reload(session, spec, step)
    if step.kind == "repair":
        return again.repair(session, spec, step)
    if step.kind != "apply":
        return _seal_alone(session, spec, step)
    if spec.options.insert_only:
        return from_feed.append(session, spec, step)
    if spec.options.takes_events:
        return from_events.apply(session, spec, step)
    if spec.options.is_partial:
        return from_events.apply_states(session, spec, step)
    return from_feed.merge(session, spec, step)


def _seal_alone(session: SparkSession, spec: ApplySpec, step: Step) -> Work:
    """An append of no rows: it records the transaction, and the seal beside it."""

    def write() -> None:
        nothing = session.read.format("delta").load(spec.target_uri).limit(0)
        nothing.write.format("delta").mode("append").save(spec.target_uri)

    return Work(write, {}, step.highest_sequence, truncate_sequences=step.truncate_sequences)


def _seal(spec: ApplySpec, step: Step, work: Work) -> Seal:
    return Seal(
        pipeline=step.pipeline or spec.pipeline,
        number=step.seal_number,
        source_table_id=spec.source_table_id,
        source_uri=spec.source_uri,
        applied_from=step.applied_from,
        watermark=step.at,
        source_commit_hash=step.source_commit_hash,
        highest_sequence=work.highest_sequence,
        truncate_sequences=work.truncate_sequences,
        horizons=step.horizons,
        loaded_version=_loaded(step),
        configuration=_configuration(spec.options, work.shape, step),
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


def _configuration(options: ApplyOptions, shape: Shape | None, step: Step) -> dict[str, object]:
    if shape is None:
        return step.configuration
    sequence, followed = shape.order_type, {*shape.tracked, *shape.keys}
    untracked = [name for name in shape.values if name not in followed]
    return {
        **checks.described(options),
        **checks.described_columns(options, step.source_columns, untracked),
        "sequence_by_type": sequence.simpleString() if sequence is not None else None,
    }
