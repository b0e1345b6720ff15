"""What many pieces would find to do: each planned from the logs alone, nothing run and nothing written."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_cdc.core.concurrency import gathered
from delta_cdc.core.errors import DeltaCdcError, NotADeltaTable, TableNotFound
from delta_cdc.core.reasons import unnamed
from delta_cdc.core.spec import ranges_of
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.apply import plan_apply_async
from delta_cdc.planning.ingest import plan_ingest_async
from delta_cdc.planning.plan import readable, told
from delta_cdc.planning.request import Memory
from delta_cdc.planning.topics import Looks
from delta_cdc.run.apply import asked_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.spec import ApplyRequest
    from delta_cdc.planning.ingest import IngestPlan
    from delta_cdc.planning.plan import Plan
    from delta_cdc.run.batch import PipelineJob

logger = logging.getLogger(__name__)

#: Steps that a line names one by one.
_MOST_STEPS = 3


@dataclass(frozen=True, kw_only=True)
class DetectedChanges:
    """What one piece would find to do.

    :param has_work: whether a job would have to run
    :param found: the work, for people: ``versions 4-9, 1.2 MiB``; why there is none; or the error
    :param error: why it could not be planned
    :param since: version of the target before the work, -1 without one; None where nothing is applied
    :param saved_plans: what keeps the work at what was found here, by pin key
        (:class:`delta_cdc.run.saved_plans.SavedPlans`)
    :param target_version: newest version of the target; None without one
    :param version: the target's watermark; None without one
    :param target: location of the target; of the log where nothing is applied
    :param plan: the plans as lines for people
    """

    pipeline: str
    has_work: bool = False
    found: str = ""
    error: DeltaCdcError | None = None
    since: int | None = None
    saved_plans: dict[str, dict[str, Any]] = field(default_factory=dict)
    target_version: int | None = None
    version: int | None = None
    target: str | None = None
    plan: str = ""
    notes: tuple[str, ...] = ()


def detect_changes(pipeline_jobs: Sequence[PipelineJob]) -> list[DetectedChanges]:
    """Plan many pieces; a piece that cannot be planned stops no other.

    What an ingest brings is unknown before it is there, so behind an ingest with work the apply is not
    planned.

    :return: one for each piece, in order
    """
    return run_sync(_look_at_all(pipeline_jobs))


async def _look_at_all(pipeline_jobs: Sequence[PipelineJob]) -> list[DetectedChanges]:
    looks = Looks()
    return await gathered(_look_at(pipeline_job, looks) for pipeline_job in pipeline_jobs)


async def _look_at(pipeline_job: PipelineJob, looks: Looks) -> DetectedChanges:
    pipeline = pipeline_job.pipeline
    try:
        return await _planned(pipeline_job, looks)
    except DeltaCdcError as error:
        return DetectedChanges(pipeline=pipeline, found=f"{type(error).__name__}: {error}", error=error)
    except Exception as error:
        logger.debug("Pipeline %s could not be planned", pipeline, exc_info=True)
        said = f"Pipeline {pipeline} could not be planned:"
        named = unnamed(error, said, remedy="retry: it plans again; see the log of the task.")
        named.__cause__ = error
        return DetectedChanges(pipeline=pipeline, found=f"{type(named).__name__}: {named}", error=named)


async def _planned(pipeline_job: PipelineJob, looks: Looks) -> DetectedChanges:
    ingest, memory = None, Memory(backup=pipeline_job.backup)
    if pipeline_job.ingest is not None:
        ingest = await plan_ingest_async(pipeline_job.ingest, Memory(looks=looks))
    if pipeline_job.apply is None or (ingest is not None and ingest.spec is None and ingest.recorded is None):
        # Without a log there is nothing to apply.
        return _looked(pipeline_job, ingest, None, None)
    if ingest is not None and ingest.spec is not None and not pipeline_job.apply.dry_run:
        return _looked(pipeline_job, ingest, None, await _newest(pipeline_job.apply))
    try:
        plan = await plan_apply_async(pipeline_job.apply, memory)
    except TableNotFound:
        if ingest is None or not pipeline_job.apply.dry_run:
            raise
        return _looked(pipeline_job, ingest, None, await _newest(pipeline_job.apply))
    version = plan.recorded.target.version if plan.recorded is not None else await _newest(pipeline_job.apply)
    return _looked(pipeline_job, ingest, plan, version)


def _looked(
    pipeline_job: PipelineJob, ingest: IngestPlan | None, plan: Plan | None, version: int | None
) -> DetectedChanges:
    """Put plans together.

    :param version: the target's newest one, -1 without a target; None where nothing is applied
    """
    told_of = [_of_ingest(ingest)] if ingest is not None and ingest.spec is not None else []
    told_of += [_of_apply(plan)] if plan is not None and plan.spec is not None else []
    if pipeline_job.apply is None and ingest is not None and ingest.recorded is not None:
        version = ingest.recorded.target.version
    seal = plan.recorded.seal if plan is not None and plan.recorded is not None else None
    plans = [str(one) for one in (ingest, plan) if one is not None]
    return DetectedChanges(
        pipeline=pipeline_job.pipeline,
        has_work=bool(told_of),
        found="; ".join(told_of) or _idle(plan, seal.watermark.version if seal is not None else None),
        since=version if pipeline_job.apply is not None else None,
        saved_plans=_pins(pipeline_job.apply, plan),
        target_version=version if version is not None and version >= 0 else None,
        version=seal.watermark.version if seal is not None else None,
        target=written(pipeline_job),
        plan="\n".join(plans),
        notes=tuple(note for one in (ingest, plan) if one is not None for note in one.notes),
    )


def written(pipeline_job: PipelineJob) -> str | None:
    """Return the table that readers read: the target, or the log of a piece without one."""
    if pipeline_job.apply is not None:
        return pipeline_job.apply.target
    return pipeline_job.ingest.log if pipeline_job.ingest is not None else None


def _pins(request: ApplyRequest | None, plan: Plan | None) -> dict[str, dict[str, Any]]:
    if request is None or plan is None or plan.spec is None:
        return {}
    asked = asked_of(request)
    # What a pin holds by default is left out: there may be hundreds of them in one XCom.
    return {plan.plan_key: {"ending_version": plan.ending_version, **({"asked": asked} if asked else {})}}


def _of_ingest(plan: IngestPlan) -> str:
    return plan.told


def _of_apply(plan: Plan) -> str:
    size = sum(read_range.size for read_range in ranges_of(plan.steps))
    more = len(plan.steps) - _MOST_STEPS
    steps = "; ".join(
        told(step).removesuffix(f", seal {step.seal_number}") for step in plan.steps[:_MOST_STEPS]
    )
    if more > 0:
        steps = f"versions {plan.versions} in {len(plan.steps)} commits"
    return f"{steps}, {readable(size)}" if size else steps


def _idle(plan: Plan | None, watermark: int | None) -> str:
    if plan is None:
        return "nothing new"
    known = f"at watermark {watermark}" if watermark is not None else "no watermark yet"
    return f"nothing new; {known}, the source at version {plan.source.version}"


async def _newest(request: ApplyRequest) -> int:
    try:
        return await DeltaLog(request.target, request.storage_options).newest_version()
    except (TableNotFound, NotADeltaTable):
        return -1
