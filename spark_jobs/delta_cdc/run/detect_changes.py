"""Detects the work of many jobs. It plans each job from the logs alone; it runs and writes nothing."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.concurrency import gathered
from delta_cdc.core.errors import DeltaCdcError, NotADeltaTable, TableNotFound
from delta_cdc.core.reasons import unnamed
from delta_cdc.core.steps import ranges_of
from delta_cdc.core.text_table import plural
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.apply import lasting_drift, plan_apply_async
from delta_cdc.planning.ingest import plan_ingest_async
from delta_cdc.planning.memory import Memory
from delta_cdc.planning.plan import readable
from delta_cdc.planning.quarantine import held
from delta_cdc.planning.status import MOST_COMMITS, lag_of
from delta_cdc.planning.topics import Looks
from delta_cdc.run.apply import extra_work_of
from delta_cdc.run.batch import before, has_no_log_yet
from delta_cdc.run.outbox import unannounced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.quarantine import Held
    from delta_cdc.core.requests import ApplyRequest
    from delta_cdc.planning.ingest import IngestPlan
    from delta_cdc.planning.plan import Plan
    from delta_cdc.run.batch import PipelineJob

logger = logging.getLogger(__name__)

#: The most steps that a line names one by one.
_MOST_STEPS = 3


@dataclass(frozen=True, kw_only=True)
class DetectedChanges:
    """The work of one pipeline.

    :param has_work: whether a Spark job would have to run, or a commit was not announced yet
    :param appends: whether the work appends to a change log
    :param found: a text for people: the work (``versions 4-9, 1.2 MiB``), why there is no work, or the error
    :param error: why the pipeline could not be planned; with ``has_work``, why its apply will fail after the
        work, which is done all the same: its source may not keep the input until the error is corrected
    :param since: version of the target before the work, -1 without a target; None if the pipeline has no
        apply
    :param saved_plans: plans that bound the later run to the work detected here, by plan key
        (:class:`delta_cdc.run.saved_plans.SavedPlans`)
    :param target_version: newest version of the target; None without a target
    :param table_id: Delta's id of the target; None without a target, or if it is not known
    :param version: the target's watermark; None without a watermark
    :param target: location of the target; location of the log if the pipeline has no apply
    :param plan: the plans as lines for people
    :param lag: how far the target is behind (:meth:`delta_cdc.planning.status.Lag.to_dict`); None if unknown
    :param announced: numbers of the newest announced seals of ``log`` and ``target``; empty if there is other
        work, because then the function does not look
    :param held: the rows in quarantine, of the log and of the target, as far as they have quarantines; empty
        if there is work, because the run that does it looks
    """

    pipeline: str
    has_work: bool = False
    appends: bool = False
    found: str = ""
    error: DeltaCdcError | None = None
    since: int | None = None
    saved_plans: dict[str, dict[str, Any]] = field(default_factory=dict)
    target_version: int | None = None
    table_id: str | None = None
    version: int | None = None
    target: str | None = None
    plan: str = ""
    notes: tuple[str, ...] = ()
    lag: dict[str, Any] | None = None
    announced: dict[str, int] = field(default_factory=dict)
    held: tuple[Held, ...] = ()


def detect_changes(pipeline_jobs: Sequence[PipelineJob]) -> list[DetectedChanges]:
    """Plan many jobs; a job that cannot be planned does not stop the others.

    The rows of an ingest are unknown until the ingest has run. So if an ingest has work, its apply is not
    planned: only its options are compared with those of the target. The same holds for the apply of a change
    log to which other jobs append.

    :return: one result per job, in order
    """
    return run_sync(_detect_all(pipeline_jobs))


async def _detect_all(pipeline_jobs: Sequence[PipelineJob]) -> list[DetectedChanges]:
    looks = Looks()
    earlier = before(pipeline_jobs)
    detected = await gathered(
        _detect(pipeline_job, looks) if not ends else _nothing_yet(pipeline_job)
        for pipeline_job, ends in zip(pipeline_jobs, earlier, strict=True)
    )
    # Those whose source other jobs write: their rows are unknown until these have run.
    found = await gathered(
        _detect(pipeline_job, looks, [detected[position] for position in sorted(ends)])
        for pipeline_job, ends in zip(pipeline_jobs, earlier, strict=True)
        if ends
    )
    later = iter(found)
    return [next(later) if ends else one for one, ends in zip(detected, earlier, strict=True)]


async def _nothing_yet(pipeline_job: PipelineJob) -> DetectedChanges:
    return DetectedChanges(pipeline=pipeline_job.pipeline)


async def _after(
    pipeline_job: PipelineJob, looks: Looks, collected: Sequence[DetectedChanges]
) -> DetectedChanges:
    """Return the work of a job that applies the change log to which other jobs append.

    :param collected: the work of these jobs
    """
    apply = pipeline_job.apply
    busy = [one.pipeline for one in collected if one.appends]
    if apply is not None and busy and not apply.dry_run:
        version = await _newest(apply)
        detected = DetectedChanges(
            pipeline=pipeline_job.pipeline,
            has_work=True,
            found=f"the events of {', '.join(busy)}",
            since=version,
            target_version=version if version >= 0 else None,
            target=apply.target,
            plan=f"to do      the events of {', '.join(busy)}, in {apply.source}",
        )
        return await _with_drift(detected, apply, Memory(backup=pipeline_job.backup))
    try:
        return await _planned(pipeline_job, looks)
    except TableNotFound:
        are_well = all(one.error is None for one in collected)
        if not await has_no_log_yet(pipeline_job, are_well=are_well):
            raise
        found = "nothing: there is no change log yet"
        return DetectedChanges(pipeline=pipeline_job.pipeline, found=found)


async def _detect(
    pipeline_job: PipelineJob, looks: Looks, collected: Sequence[DetectedChanges] = ()
) -> DetectedChanges:
    pipeline = pipeline_job.pipeline
    try:
        if collected and pipeline_job.error is None:
            return await _after(pipeline_job, looks, collected)
        return await _planned(pipeline_job, looks)
    except DeltaCdcError as error:
        return DetectedChanges(pipeline=pipeline, found=f"{type(error).__name__}: {error}", error=error)
    except Exception as error:
        logger.debug("Pipeline %s could not be planned", pipeline, exc_info=True)
        prefix = f"Pipeline {pipeline} could not be planned:"
        named_error = unnamed(error, prefix, remedy="retry: it plans again; see the log of the task.")
        named_error.__cause__ = error
        return DetectedChanges(
            pipeline=pipeline, found=f"{type(named_error).__name__}: {named_error}", error=named_error
        )


async def _planned(pipeline_job: PipelineJob, looks: Looks) -> DetectedChanges:
    if pipeline_job.error is not None:
        raise pipeline_job.error
    ingest, memory = None, Memory(backup=pipeline_job.backup)
    if pipeline_job.ingest is not None:
        ingest = await plan_ingest_async(pipeline_job.ingest, Memory(looks=looks))
    if pipeline_job.apply is None or (ingest is not None and ingest.spec is None and ingest.recorded is None):
        # Without a log there are no changes to apply.
        return await _add_outbox(pipeline_job, ingest, None, _detected(pipeline_job, ingest, None, None))
    if ingest is not None and ingest.spec is not None and not pipeline_job.apply.dry_run:
        detected = _detected(pipeline_job, ingest, None, await _newest(pipeline_job.apply))
        return await _with_drift(detected, pipeline_job.apply, memory)
    try:
        plan = await plan_apply_async(pipeline_job.apply, memory)
    except TableNotFound:
        if ingest is None or not pipeline_job.apply.dry_run:
            raise
        return _detected(pipeline_job, ingest, None, await _newest(pipeline_job.apply))
    version = plan.recorded.target.version if plan.recorded is not None else await _newest(pipeline_job.apply)
    detected = replace(_detected(pipeline_job, ingest, plan, version), lag=await _lag(plan))
    return await _add_outbox(pipeline_job, ingest, plan, detected)


async def _with_drift(detected: DetectedChanges, apply: ApplyRequest, memory: Memory) -> DetectedChanges:
    """Return what was detected, with the error of the apply if no new event can prevent it."""
    error = await lasting_drift(apply, memory)
    if error is None:
        return detected
    then = f"{type(error).__name__}: {error}"
    found, plan = f"{detected.found}; then {then}", f"{detected.plan}\n{'then':<10} {then}"
    return replace(detected, error=error, found=found, plan=plan)


async def _add_outbox(
    pipeline_job: PipelineJob, ingest: IngestPlan | None, plan: Plan | None, detected: DetectedChanges
) -> DetectedChanges:
    """Return what was detected; if there is no work but a commit that was not announced, this is the work."""
    ask = pipeline_job.announced
    if detected.has_work or (pipeline_job.apply is not None and pipeline_job.apply.dry_run):
        return detected
    detected = replace(detected, held=await _held(pipeline_job, ingest, plan))
    if ask is None:
        return detected
    numbers: dict[str, int] = {}

    def noted(table: str, uri: str, table_id: str, number: int) -> int | None:
        last = ask(table, uri, table_id, number)
        if last is not None:
            numbers[table] = last
        return last

    commits = 0
    for table, request, planned in (
        ("log", pipeline_job.ingest, ingest),
        ("target", pipeline_job.apply, plan),
    ):
        if request is not None and planned is not None and planned.recorded is not None:
            log = DeltaLog(planned.recorded.target.uri, request.storage_options)
            commits += len(await unannounced(log, table, planned.recorded, noted))
    if not commits:
        return replace(detected, announced=numbers)
    return replace(detected, has_work=True, found=f"{plural(commits, 'commit')} that no event announced")


async def _held(pipeline_job: PipelineJob, ingest: IngestPlan | None, plan: Plan | None) -> tuple[Held, ...]:
    """Return the rows in the quarantines of a pipeline without work."""
    batch, apply = pipeline_job.ingest, pipeline_job.apply
    looks = []
    if batch is not None and ingest is not None and ingest.recorded is not None:
        place = (batch.log, batch.pipeline, batch.storage_options)
        looks.append(held(*place, ingest.recorded.seal, is_log=True))
    if apply is not None and plan is not None and plan.recorded is not None and apply.quarantine is not None:
        place = (apply.target, apply.pipeline, apply.storage_options)
        looks.append(held(*place, plan.recorded.seal, is_log=False))
    return tuple(one for one in await gathered(looks) if one is not None)


async def _lag(plan: Plan) -> dict[str, Any] | None:
    recorded = plan.recorded
    if recorded is None or recorded.seal is None:
        return None
    try:
        lag = await lag_of(plan.observed.log, plan.source, recorded, recorded.seal, most=MOST_COMMITS)
    except DeltaCdcError as error:
        # The plan stands: it may be the remedy, such as a reload.
        logger.warning(
            "Cannot compute how far %s is behind %s: %s", recorded.target.uri, plan.source.uri, error
        )
        return None
    return lag.to_dict()


def _detected(
    pipeline_job: PipelineJob, ingest: IngestPlan | None, plan: Plan | None, target_version: int | None
) -> DetectedChanges:
    """Return what the plans of one pipeline show.

    :param target_version: the target's newest version, -1 without a target; None if the pipeline has no apply
    """
    work_texts = [_describe_ingest(ingest)] if ingest is not None and ingest.spec is not None else []
    work_texts += [_describe_apply(plan)] if plan is not None and plan.spec is not None else []
    if pipeline_job.apply is None and ingest is not None and ingest.recorded is not None:
        target_version = ingest.recorded.target.version
    recorded = plan.recorded if plan is not None else None
    if pipeline_job.apply is None and ingest is not None:
        recorded = ingest.recorded
    seal = plan.recorded.seal if plan is not None and plan.recorded is not None else None
    of_log = plan if pipeline_job.apply is not None and pipeline_job.apply.options.writes_events else ingest
    plans = [str(planned) for planned in (ingest, plan) if planned is not None]
    return DetectedChanges(
        pipeline=pipeline_job.pipeline,
        has_work=bool(work_texts),
        appends=of_log is not None and of_log.spec is not None,
        found="; ".join(work_texts) or _idle(plan, seal.watermark.version if seal is not None else None),
        since=target_version if pipeline_job.apply is not None else None,
        saved_plans=_saved_plans(pipeline_job.apply, plan),
        target_version=target_version if target_version is not None and target_version >= 0 else None,
        table_id=recorded.target.table_id if recorded is not None else None,
        version=seal.watermark.version if seal is not None else None,
        target=written(pipeline_job),
        plan="\n".join(plans),
        notes=tuple(note for planned in (ingest, plan) if planned is not None for note in planned.notes),
    )


def written(pipeline_job: PipelineJob) -> str | None:
    """Return the table that users read: the target, or the log if the pipeline has no target."""
    if pipeline_job.apply is not None:
        return pipeline_job.apply.target
    return pipeline_job.ingest.log if pipeline_job.ingest is not None else None


def _saved_plans(request: ApplyRequest | None, plan: Plan | None) -> dict[str, dict[str, Any]]:
    if request is None or plan is None or plan.spec is None:
        return {}
    return {plan.plan_key: plan_ending_at(request, plan.ending_version)}


def plan_ending_at(request: ApplyRequest, version: int | None) -> dict[str, Any]:
    """Return a saved plan of an apply that only fixes the end of its range.

    :param version: the last version of the source
    """
    work = extra_work_of(request)
    return {"ending_version": version, **({"asked": work} if work else {})}


def _describe_ingest(plan: IngestPlan) -> str:
    return plan.description


def _describe_apply(plan: Plan) -> str:
    size = sum(read_range.size for read_range in ranges_of(plan.steps))
    n_unnamed = len(plan.steps) - _MOST_STEPS
    steps = "; ".join(str(step) for step in plan.steps[:_MOST_STEPS])
    if n_unnamed > 0:
        steps = f"versions {plan.versions} in {len(plan.steps)} commits"
    return f"{steps}, {readable(size)}" if size else steps


def _idle(plan: Plan | None, watermark: int | None) -> str:
    if plan is None:
        return "nothing new"
    if watermark is None:
        return f"nothing new; no watermark yet, the source at version {plan.source.version}"
    return f"nothing new; at watermark {watermark}, the source at version {plan.source.version}"


async def _newest(request: ApplyRequest) -> int:
    try:
        return await DeltaLog(request.target, request.storage_options).newest_version()
    except (TableNotFound, NotADeltaTable):
        return -1
