"""Runs many pipelines in one Spark application. Each pipeline plans, confirms, fails and plans again
separately.

Every pipeline runs its ordinary flows as a coroutine; their jobs run in rounds (:mod:`delta_cdc.run.rounds`).
So each flow plans once per job, and the flows that lost a race share the next round.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import (
    DeltaCdcError,
    InvalidConfiguration,
    LimitExceeded,
    NotADeltaTable,
    TableNotFound,
)
from delta_cdc.core.reasons import unnamed
from delta_cdc.core.rules import known_as
from delta_cdc.core.uris import canonical_uri
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.apply import lasting_drift
from delta_cdc.planning.memory import Memory
from delta_cdc.planning.topics import Looks
from delta_cdc.run.apply import Applying
from delta_cdc.run.ingest import Ingesting
from delta_cdc.run.loop import EARLIER_TRY, Say, Services, new_run_id
from delta_cdc.run.outcomes import Effort
from delta_cdc.run.rounds import in_rounds
from delta_cdc.run.saved_plans import PlansInMemory, SavedPlan, SavedPlans
from delta_cdc.run.table_arguments import requests

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from delta_cdc.core.requests import ApplyRequest, IngestRequest
    from delta_cdc.core.spec import IngestSpec, JobResult
    from delta_cdc.run.outbox import Announced
    from delta_cdc.run.outcomes import Outcome
    from delta_cdc.run.rounds import Application

logger = logging.getLogger(__name__)

#: The most applies of other pipelines in the application of an ingest, where they run one after the other.
_MOST_FOLLOWERS = 8


@dataclass(frozen=True, kw_only=True)
class PipelineJob:
    """The work for one table: an ingest, an apply, or an ingest and the apply from its log.

    :param backup: returns the copy of the target's seal that is kept outside the target, for the apply
    :param saved_plans: keeps the plans of this job; None uses those of the batch
    :param since: see :class:`~delta_cdc.run.loop.Services`; with None, the version is read before an ingest
    :param announced: see :class:`~delta_cdc.run.loop.Services`
    :param done_by: see :class:`~delta_cdc.run.loop.Services`
    :param error: why the arguments give no work: the job fails with it, next to the others
    :param name: the pipeline's name, of a job with an error
    """

    ingest: IngestRequest | None = None
    apply: ApplyRequest | None = None
    backup: Callable[[], Any] | None = None
    saved_plans: SavedPlans | None = None
    since: int | None = None
    announced: Announced | None = None
    done_by: str = EARLIER_TRY
    error: DeltaCdcError | None = None
    name: str = ""

    @property
    def pipeline(self) -> str:
        """Return the pipeline's name."""
        if self.error is not None:
            return self.name
        request = self.ingest or self.apply
        if request is None:
            raise InvalidConfiguration(
                "A pipeline job has neither an ingest nor an apply.", remedy="set ingest, apply, or both."
            )
        return request.pipeline


@dataclass(frozen=True, kw_only=True)
class PipelineResult:
    """The outcome of one job.

    :param ingested: None if the job has no ingest, or if the ingest failed
    :param applied: None if the job has no apply, or if the apply did not run or failed
    :param error: why the job failed
    :param unanswered: the job failed because the application ended before it reported the job's outcome
    """

    pipeline: str
    ingested: Outcome | None = None
    applied: Outcome | None = None
    error: DeltaCdcError | None = None
    unanswered: bool = False

    @property
    def effort(self) -> Effort:
        """Return what the ingest and the apply took together."""
        total = Effort()
        for result in (self.ingested, self.applied):
            if result is not None:
                total.add(result.effort.seconds, result.effort.attempts_lost)
        return total


def run_batch(
    pipeline_jobs: Sequence[PipelineJob], services: Services, *, run_id: str = "", parallel: int = 1
) -> list[PipelineResult]:
    """Run many jobs; those that have work run in one application.

    A failed job does not stop the others. A job that applies a change log begins when those that append to
    it have ended (:func:`before`). If no job has work, ``execute`` is not called. It is called again
    only for jobs that lost a race, or whose plan became out of date.

    :param services: for all jobs; ``execute`` runs a batch
    :param run_id: identifies the application; each request has the ``run_id`` of its commits
    :param parallel: how many jobs of an application run at the same time
    :return: one result per job, in order
    """
    looks = Looks()
    failed: set[int] = set()
    earlier = before(pipeline_jobs)
    runs = [
        _PipelineRun(
            job,
            replace(
                services,
                saved_plans=job.saved_plans or services.saved_plans or PlansInMemory(),
                backup=job.backup,
                say=partial(_say, services.say, job.pipeline),
                since=job.since,
                announced=job.announced,
                done_by=job.done_by,
                looks=looks,
            ),
        )
        for job in map(_identified, pipeline_jobs)
    ]
    for position, ends in enumerate(earlier):
        if len(ends) == 1:
            runs[next(iter(ends))].lead(runs[position])

    async def run(position: int, application: Application) -> PipelineResult:
        result = await runs[position].run(application)
        ends = earlier[position]
        is_missing = bool(ends) and isinstance(result.error, TableNotFound)
        if is_missing and await has_no_log_yet(pipeline_jobs[position], are_well=not failed & ends):
            result = replace(result, error=None)
        if result.error is not None:
            failed.add(position)
        return replace(result, unanswered=result.error is not None and application.unanswered)

    positions = range(len(runs))
    return in_rounds(run, positions, services.execute, run_id=run_id, parallel=parallel, before=earlier)


def _say(say: Say, pipeline: str, line: str) -> None:
    say(f"{pipeline}: {line}")


def before(pipeline_jobs: Sequence[PipelineJob]) -> list[set[int]]:
    """Return, for each job, the positions of the jobs that append to the change log that it applies.

    These jobs wait for none themselves.
    """
    jobs = [one if one.error is None else PipelineJob() for one in pipeline_jobs]
    collected: defaultdict[str, set[int]] = defaultdict(set)
    ingested: defaultdict[str, set[int]] = defaultdict(set)
    for position, one in enumerate(jobs):
        if one.apply is not None and one.apply.options.writes_events:
            collected[known_as(one.apply.target)].add(position)
        if one.ingest is not None:
            ingested[known_as(one.ingest.log)].add(position)
    waits: list[set[int]] = [set() for _ in jobs]
    for position, one in enumerate(jobs):
        if one.apply is not None and not one.apply.options.writes_events:
            log = known_as(one.apply.source)
            # A job with an ingest applies what it ingests itself, and what others collect.
            waits[position] = collected[log] | (ingested[log] if one.ingest is None else set())
    return [{position for position in ends if not waits[position]} for ends in waits]


async def has_no_log_yet(pipeline_job: PipelineJob, *, are_well: bool) -> bool:
    """Return whether the change log that a job applies is missing because nothing was appended to it yet.

    :param are_well: whether the jobs that append to the log had no error. If one had, its result says why the
        log is missing; otherwise a log that is missing beside a target that exists was dropped or moved
    :return: also False if storage does not answer, so that the job keeps its error
    """
    apply = pipeline_job.apply
    try:
        if apply is None or await _exists(apply.source, apply):
            return False
        return not are_well or not await _exists(apply.target, apply)
    except DeltaCdcError:
        logger.debug("Pipeline %s: cannot look for its log", pipeline_job.pipeline, exc_info=True)
        return False


async def _exists(table: str, request: ApplyRequest) -> bool:
    try:
        await DeltaLog(table, request.storage_options).newest_version()
    except (TableNotFound, NotADeltaTable):
        return False
    return True


def since_key(request: ApplyRequest) -> str:
    """Return the key under which the target's version before the work is saved."""
    return f"since:{request.pipeline}:{canonical_uri(request.target)}"


async def _version_before(request: ApplyRequest, saved_plans: SavedPlans) -> int:
    """Return the target's version before this work, saved over its tries; -1 for no table."""
    saved = (saved_plans.get(since_key(request)) or {}).get("version")
    if isinstance(saved, int):
        return saved
    try:
        version = await DeltaLog(request.target, request.storage_options).newest_version()
    except (TableNotFound, NotADeltaTable):
        version = -1
    saved_plans.set(since_key(request), {"version": version})
    return version


# -- one job --------------------------------------------------------------------------------------
@dataclass
class _PipelineRun:
    """The flows of one job.

    :param followers: the runs of other pipelines whose applies the application of this ingest does, too
    :param then: what that application reported for the apply of this run; None: nothing
    :param drift_is_known: whether the options of the apply were compared with those of its target
    """

    pipeline_job: PipelineJob
    services: Services
    ingested: Outcome | None = None
    followers: list[_PipelineRun] = field(default_factory=list)
    then: JobResult | None = None
    drift_is_known: bool = False

    def lead(self, other: _PipelineRun) -> None:
        """Do the apply of another run in the application of this ingest, if that can do the same.

        The other run begins afterwards: it confirms the commit, or does what is missing. Comparisons with a
        shadow are only in the result of its own application.
        """
        ingest, apply = self.pipeline_job.ingest, other.pipeline_job.apply
        if ingest is None or apply is None or apply.staging is not None or apply.shadows:
            return
        if _may_come_twice(apply) and apply.storage_options == ingest.storage_options:
            self.followers.append(other)

    async def run(self, application: Application) -> PipelineResult:
        """Run the ingest, the apply, or both; an error becomes part of the result."""
        applied, error = None, None
        try:
            applied = await self._run(application)
        except DeltaCdcError as failure:
            error = failure
            if failure.of_rows and self.ingested is not None:
                self._take_more(self.ingested)
        except Exception as failure:
            logger.debug("Pipeline %s failed", self.pipeline_job.pipeline, exc_info=True)
            error = _without_name(self.pipeline_job.pipeline, failure)
        return PipelineResult(
            pipeline=self.pipeline_job.pipeline, ingested=self.ingested, applied=applied, error=error
        )

    async def _run(self, application: Application) -> Outcome | None:
        if self.pipeline_job.error is not None:
            raise self.pipeline_job.error
        apply, wait = self.pipeline_job.apply, partial(self._wait, application)
        if apply is not None and self.saved_plans.get(since_key(apply)) is not None:
            await self._know_version_before(apply)
        if self.pipeline_job.ingest is not None:
            await self._ingest(self.pipeline_job.ingest, application, wait)
        if (apply_error := _failed_then(self.then)) is not None:
            raise apply_error
        if apply is None or (self.ingested is not None and self.ingested.log_version is None):
            # Without a log there are no changes to apply.
            return None
        services = self.services
        if self.then is not None and self.then.status == "committed":
            services = replace(services, done_by="the application of the ingest")
        applied = await Applying(apply, services, application.run, wait).run()
        if self.then is not None:
            applied.effort.add(self.then.seconds)
        return applied

    async def _ingest(
        self, ingest: IngestRequest, application: Application, wait: Callable[[float], Awaitable[None]]
    ) -> None:
        """Ingest, and let the same application do its own apply and those of the followers."""
        apply = self.pipeline_job.apply
        followers = [one for one in self.followers if await one._may_follow()][:_MOST_FOLLOWERS]
        runs = [*([self] if _may_come_twice(apply) else []), *followers]
        after = tuple(one.pipeline_job.apply for one in runs if one.pipeline_job.apply is not None)

        async def execute(spec: IngestSpec) -> JobResult:
            if apply is not None:
                # First, the version of the target is saved.
                await self._know_version_before(apply)
                await self._announce_drift(apply)
            return await application.run(spec)

        ingesting = Ingesting(replace(ingest, after=after), self.services, execute, wait)
        self.ingested = await ingesting.run()
        for one, result in zip(runs, self.ingested.then, strict=False):
            one.then = result
            self.ingested.effort.add({name: -seconds for name, seconds in result.seconds.items()})

    async def _announce_drift(self, apply: ApplyRequest) -> None:
        """Report before the first job of the ingest that the apply will fail because of other options.

        The ingest goes on: the source may not keep its records until a person corrects the options.
        """
        if not self.drift_is_known:
            self.drift_is_known = True
            error = await lasting_drift(apply, Memory(backup=self.services.backup))
            if error is not None:
                self.services.say(f"After the ingest, this run will fail: {type(error).__name__}: {error}")

    async def _may_follow(self) -> bool:
        """Return whether the apply has a target to add to, whose version is saved now.

        A first load may be large; it runs beside others in an application of its own. An error of the target
        is that of this run alone, which meets it again.
        """
        assert self.pipeline_job.apply is not None
        try:
            await self._know_version_before(self.pipeline_job.apply)
        except DeltaCdcError:
            logger.debug("Pipeline %s: cannot read its target", self.pipeline_job.pipeline, exc_info=True)
            return False
        return self.services.since is not None and self.services.since >= 0

    @property
    def saved_plans(self) -> SavedPlans:
        assert self.services.saved_plans is not None
        return self.services.saved_plans

    def _take_more(self, ingested: Outcome) -> None:
        """Let the next try take one more batch: input that came since may correct the rows."""
        saved_plan = SavedPlan.read(self.saved_plans.get(ingested.plan_key))
        self.saved_plans.set(ingested.plan_key, replace(saved_plan, more=True).to_dict())

    async def _know_version_before(self, apply: ApplyRequest) -> None:
        if self.services.since is None:
            self.services = replace(self.services, since=await _version_before(apply, self.saved_plans))

    async def _wait(self, application: Application, seconds: float) -> None:
        async with application.planned_by_others():
            await asyncio.to_thread(self.services.sleep, seconds)


def _identified(pipeline_job: PipelineJob) -> PipelineJob:
    """Return the job with one ``run_id`` for ingest and apply: the ingest's application may also do the
    apply."""
    run_ids = [request.run_id for request in (pipeline_job.ingest, pipeline_job.apply) if request is not None]
    run_id = next(filter(None, run_ids), None) or new_run_id()
    ingest, apply = pipeline_job.ingest, pipeline_job.apply
    return replace(
        pipeline_job,
        ingest=replace(ingest, run_id=ingest.run_id or run_id) if ingest is not None else None,
        apply=replace(apply, run_id=apply.run_id or run_id) if apply is not None else None,
    )


def _may_come_twice(request: ApplyRequest | None) -> bool:
    """Return whether a second run of the same apply would have no work.

    Such an apply may also run in the ingest's application, because this process always applies afterwards.
    """
    return (
        request is not None
        and request.goes_on
        and request.max_versions is None
        and request.max_bytes is None
        and not request.dry_run
    )


def _failed_then(apply_result: JobResult | None) -> DeltaCdcError | None:
    """Return the named error of an apply in the ingest's application, if a second try would fail in the same
    way: because of the rows, or of how many they are.

    Other errors are left to the worker's own apply: the worker may have credentials and a backup of the
    watermark that the driver does not have.
    """
    if apply_result is None or apply_result.status != "failed" or apply_result.error is None:
        return None
    error = DeltaCdcError.from_dict(apply_result.error)
    return error if error.of_rows or isinstance(error, LimitExceeded) else None


def _without_name(pipeline: str, error: Exception) -> DeltaCdcError:
    named_error = unnamed(
        error,
        f"Pipeline {pipeline} ended with",
        remedy="look into the log of the task and of Spark; the next try finds out what was committed.",
    )
    named_error.__cause__ = error
    return named_error


def pipeline_job(
    given: Mapping[str, Any],
    *,
    run_id: str = "",
    storage_options: dict[str, str] | None = None,
    kafka_options: dict[str, str] | None = None,
    scratch: bool = True,
    ingest: bool = True,
    backup: Callable[[], Any] | None = None,
) -> PipelineJob:
    """Return the work of one table in a batch; see :func:`requests` and :class:`PipelineJob`."""
    batch, apply = requests(
        given,
        run_id=run_id,
        storage_options=storage_options,
        kafka_options=kafka_options,
        scratch=scratch,
        ingest=ingest,
    )
    return PipelineJob(ingest=batch, apply=apply, backup=backup)
