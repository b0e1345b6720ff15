"""The steps that all flows share: plan, run the job, confirm the commit in the log; after a lost race,
plan again."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from delta_cdc.core.errors import (
    ConcurrentModification,
    DeltaCdcError,
    JobFailed,
    NotADeltaTable,
    OutcomeUnknown,
    TableNotFound,
)
from delta_cdc.core.reasons import reason
from delta_cdc.core.requests import ApplyRequest, CommitRequest, IngestRequest, ReadRequest
from delta_cdc.core.spec import ApplySpec, IngestSpec, JobResult, ReadSpec, fingerprint, step_fingerprint
from delta_cdc.core.steps import ranges_of
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.memory import Memory
from delta_cdc.planning.plan import range_lines
from delta_cdc.planning.reconcile import own_commits
from delta_cdc.run.caller import CallerThread, run_beside
from delta_cdc.run.outcomes import Effort, Outcome
from delta_cdc.run.saved_plans import Planned, PlansInMemory, SavedPlan, SavedPlans

if TYPE_CHECKING:
    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.planning.plan import Plan
    from delta_cdc.planning.topics import Looks
    from delta_cdc.run.outbox import Announced

Say = Callable[[str], None]

logger = logging.getLogger(__name__)

T = TypeVar("T")
_Request = TypeVar("_Request", ApplyRequest, ReadRequest, IngestRequest, CommitRequest)
_Plan = TypeVar("_Plan", bound=Planned)
_Spec = TypeVar("_Spec", ApplySpec, ReadSpec, IngestSpec)

#: Who has done work that is found done; and what that means for the user who reads it.
EARLIER_TRY, UNANNOUNCED = "an earlier try of this run", "earlier runs that ended before they announced it"
NOTHING_TO_DO = "The run publishes this result; you need not do anything."
#: Seconds to wait after a lost race. The wait doubles each time, up to the longest; half of it is random.
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0


@dataclass(frozen=True)
class Own:
    """The sealed commits of one attempt that are in effect, oldest first.

    :param last: the fingerprint of the plan's last step
    """

    found: tuple[tuple[Seal, Commit], ...]
    last: str

    @property
    def complete(self) -> bool:
        return any(seal.step.fingerprint == self.last for seal, _ in self.found)


@dataclass(frozen=True, kw_only=True)
class Services:
    """What a run gets from its caller.

    :param execute: runs a spec in Spark; called in the caller's own thread
    :param saved_plans: keeps the plan over retries of the same work, until the caller calls
        :func:`delta_cdc.run.saved_plans.forget_saved_plans`; None keeps it for this call only
    :param backup: returns the copy of the seal that is kept outside the target (``Outcome.backup``); called
        only if the sealed commit was cleaned from the target's log
    :param say: takes one line per step
    :param sleep: waits for a number of seconds before the next plan
    :param max_attempts: the highest number of plans, if races are lost
    :param since: version of the target before this work began, -1 without a target. Later commits of the run
        (``request.run_id``) belong to this work, too, even if another process planned them. With None, only
        commits of saved plans do
    :param announced: what the caller has announced (:mod:`delta_cdc.run.outbox`): the outcome includes every
        commit with rows that was not. With None, it includes only commits of this work
    :param done_by: who has done work that is found done, for people
    :param looks: connections to Kafka that several runs share
    """

    execute: Callable[[Any], JobResult]
    saved_plans: SavedPlans | None = None
    backup: Callable[[], Any] | None = None
    say: Say = logger.info
    sleep: Callable[[float], None] = time.sleep
    max_attempts: int = 5
    since: int | None = None
    announced: Announced | None = None
    done_by: str = EARLIER_TRY
    looks: Looks | None = None


class Run(ABC, Generic[_Request, _Plan, _Spec]):
    """The steps of one flow, the same for every kind of job.

    :param execute: runs a spec, in a way that lets other flows go on
    :param sleep: waits for a number of seconds in the same way
    """

    def __init__(
        self,
        request: _Request,
        services: Services,
        execute: Callable[[Any], Awaitable[JobResult]],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.request: _Request = identified(request)
        self._is_unnamed = not request.run_id
        self.services = services
        self.execute: Callable[[Any], Awaitable[JobResult]] = execute
        self.sleep = sleep
        self.saved_plans: SavedPlans = services.saved_plans or PlansInMemory()
        self.say = services.say
        self.effort = Effort()
        #: The log of the written table. It is kept over all tries, so that each commit is read once.
        self.log = self._opened()

    # Each kind of flow defines these methods:
    @abstractmethod
    async def plan(self) -> _Plan:
        """Return the plan of the work."""

    @abstractmethod
    def written_table(self) -> str:
        """Return the table that carries the seal."""

    @abstractmethod
    async def publish_nothing(self, plan: _Plan) -> Outcome:
        """Return the result of a plan that needs no job."""

    @abstractmethod
    async def publish(self, plan: _Plan, own: Own, result: JobResult | None) -> Outcome:
        """Return the result of a commit that the log confirms."""

    def extra_work(self) -> str:
        """Return the work that the request names beside the changes after the watermark; "" for no such
        work."""
        return ""

    async def without_job(self, plan: _Plan) -> Outcome | None:
        """Return the result of a plan that has steps but needs no job, or None."""
        return None

    @abstractmethod
    def described(self, plan: _Plan) -> str:
        """Return what a plan does, as a text for people."""

    async def covered(self, plan: _Plan) -> bool:
        """Return whether a later seal covers this plan's range; by default only the plan's own commit
        does."""
        return False

    async def run(self) -> Outcome:
        """Plan and run until the log has the commit; after a lost race, plan again.

        :raises ConcurrentModification: another writer was faster in every attempt
        """
        for attempt in range(1, self.services.max_attempts + 1):
            with self.effort.stage("plan"):
                plan = await self._planned()
            for note in plan.notes:
                self.say(note)
            if plan.spec is None:
                done = await self.publish_nothing(plan)
                if not done.applied:
                    self.saved_plans.delete(plan.plan_key)
                return done
            known = await self.without_job(plan)
            if known is not None:
                return known
            published = await self._attempt(plan, plan.spec, attempt)  # type: ignore[arg-type]
            if published is not None:
                return published
            self.effort.attempts_lost += 1
        raise ConcurrentModification(
            f"Pipeline {self.request.pipeline} tried {self.services.max_attempts} times to commit to "
            f"{self.written_table()}, and each time another writer committed first.",
            remedy="run again. Let only one run of the pipeline be active at a time (in Airflow, "
            "max_active_runs=1).",
        )

    async def _planned(self) -> _Plan:
        """Return the plan.

        If the caller gives no ``run_id`` but keeps saved plans, plan with the ``run_id`` of the earlier
        tries.
        """
        plan = await self.plan()
        earlier_run_id = self.saved(plan.plan_key).run_id
        if not self._is_unnamed or earlier_run_id in ("", self.request.run_id):
            return plan
        self.request = replace(self.request, run_id=earlier_run_id)
        return await self.plan()

    async def _attempt(self, plan: _Plan, spec: _Spec, attempt: int) -> Outcome | None:
        """Run one plan and return its result; None if another writer was faster."""
        saved_plan = self.saved(plan.plan_key).following(
            plan, fingerprint(spec), _planned_version(spec), spec.steps[0].seal_number, self.extra_work()
        )
        if self._is_unnamed:
            saved_plan = replace(saved_plan, run_id=self.request.run_id)
        self.saved_plans.set(plan.plan_key, saved_plan.to_dict())
        again = f" (attempt {attempt})" if attempt > 1 else ""
        self.say(f"Planned: {self.described(plan)}{again}.")
        for _, text in range_lines("", ranges_of(plan.steps)):
            self.say(f"The run reads versions {text}.")
        try:
            result = await self.execute(spec)
        except Exception as error:  # noqa: BLE001 - whatever ended the job, the log decides
            return await self._after_crash(plan, spec, error)
        self.effort.add(result.seconds)
        with self.effort.stage("confirm"):
            published = await self._confirmed(plan, spec, result)
        if published is None:
            reason_text = (
                f"This run committed nothing to {self.written_table()} "
                f"({result.status}: {result.message or 'no reason'})"
            )
            await pause(reason_text, attempt, self.services.max_attempts, self.say, self.sleep)
        return published

    async def _confirmed(self, plan: _Plan, spec: _Spec, result: JobResult) -> Outcome | None:
        """Return the result of a job as the log confirms it; None if another writer was faster."""
        own = await self._commits_of_plan(plan, spec)
        if result.status == "planned":
            return await self.publish(plan, own, result)
        if result.status == "failed":
            error = self.failed(result, own)
            if not error.retryable:
                # The same end would fail in the same way, whatever a user corrects in a later version. The
                # plans stay: their commits are of this work.
                kept = replace(self.saved(plan.plan_key), ending_version=None)
                self.saved_plans.set(plan.plan_key, kept.to_dict())
            raise error
        if own.complete or (result.status == "committed" and await self.covered(plan)):
            return await self.publish(plan, own, result)
        if result.status == "committed":
            raise OutcomeUnknown(
                f"The job of pipeline {self.request.pipeline} reported a commit, but the log of "
                f"{self.written_table()} does not have it, or a RESTORE undid it right after.",
                remedy="run again. The next run reads from the log whether the commit was made.",
            )
        return None

    def _opened(self) -> DeltaLog:
        return DeltaLog(self.written_table(), self.request.storage_options)

    async def _after_crash(self, plan: _Plan, spec: _Spec, error: Exception) -> Outcome:
        """Return the result of a job that ended with an error, if the log has its commit; else raise the
        error."""
        try:
            own = await self._commits_of_plan(plan, spec)
        except Exception as log_error:
            self.say(
                f"The job failed, and the run cannot read the log of {self.written_table()} to find out "
                f"whether the job committed: {log_error}"
            )
            raise error from log_error
        if not own.complete:
            raise error
        seal, commit = own.found[-1]
        self.say(
            f"The job failed after its commit: version {commit.version} of {self.written_table()}, seal "
            f"{seal.number}. The run continues with this commit. The job's error: {reason(error)}"
        )
        return await self.publish(plan, own, None)

    def failed(self, result: JobResult, own: Own) -> DeltaCdcError:
        """Return the named error of a failed job."""
        for seal, commit in own.found:
            self.say(
                f"The job failed after it had committed version {commit.version} of {self.written_table()}, "
                f"seal {seal.number}."
            )
        return named(result, self.request.pipeline)

    async def _commits_of_plan(self, plan: _Plan, spec: _Spec) -> Own:
        """Return the sealed commits of one plan."""
        # The next step publishes from the same log object, so it does not read these commits again.
        self.log = self._opened()
        commits = await self._commits(fingerprint(spec), after=_planned_version(spec))
        return Own(commits, step_fingerprint(spec, plan.steps[-1].seal_number))

    async def _commits(self, *plans: str, after: int, run_id: str = "") -> tuple[tuple[Seal, Commit], ...]:
        found = await _find_own(self.log, self.request.pipeline, plans, after, run_id)
        # People can edit the store with the saved plans, and name there plans of other runs.
        return tuple(pair for pair in found if pair[0].step.run_id == self.request.run_id)

    def saved(self, key: str) -> SavedPlan:
        return SavedPlan.read(self.saved_plans.get(key))

    def saved_end(self, key: str) -> int | None:
        """Return the end of an earlier try of the same work. The plan of other work sets no bound."""
        saved_plan = self.saved(key)
        return saved_plan.ending_version if saved_plan.asked == self.extra_work() else None

    def memory(self) -> Memory:
        return Memory(
            end=self.saved_end,
            number=lambda key: self.saved(key).seal_number,
            backup=self.services.backup,
        )


def _planned_version(spec: ApplySpec | ReadSpec | IngestSpec) -> int:
    """Return the version of the written table that a job was planned on; -1 without such a version."""
    table_version = spec.steps[0].planned_on
    return table_version.version if table_version is not None else -1


def run_alone(flow: type[Run[Any, Any, Any]], request: Any, services: Services) -> Outcome:
    """Run one flow to its end."""

    async def main(caller: CallerThread) -> Outcome:
        loop = asyncio.get_running_loop()
        return await flow(
            request,
            services,
            lambda spec: loop.run_in_executor(caller, timed, services.execute, spec),
            lambda seconds: asyncio.to_thread(services.sleep, seconds),
        ).run()

    return run_beside(main)


def timed(execute: Callable[[Any], JobResult], spec: Any) -> JobResult:
    """Run a job, and add to its result how long its start took; to those of its parts, if it has any."""
    began = time.monotonic()
    result = execute(spec)
    start = max(0.0, time.monotonic() - began - result.seconds.get("work", 0.0))
    parts = tuple(replace(part, seconds={"start": start, **part.seconds}) for part in result.parts)
    return replace(result, parts=parts, seconds={"start": start, **result.seconds})


def described_range(plan: Plan, table: str, named: Callable[[str], str] = str) -> str:
    """Return which versions a plan moves into a table, as a text for people.

    :param named: returns the name for a location, such as :func:`delta_cdc.core.uris.short_name`
    """
    source, table = named(plan.source.uri), named(table)
    if plan.versions is None:
        return f"a seal for version {plan.ending_version} of {source} in {table}"
    n_commits = len([step for step in plan.steps if step.kind in ("apply", "answer", "complete")])
    suffix = f" in {n_commits} commits" if n_commits > 1 else ""
    is_load = [step.kind for step in plan.steps] == ["load"]
    range_text = f"a load of version {plan.ending_version}" if is_load else f"versions {plan.versions}"
    return f"{range_text} of {source} into {table}{suffix}"


def identified(request: _Request) -> _Request:
    """Return the request with a ``run_id``; a request without one gets a new one.

    The ``run_id`` is part of a plan's fingerprint. Without it, two runs with the same plan would have the
    same fingerprint, and each run would take the commit of the other run for its own.
    """
    return request if request.run_id else replace(request, run_id=new_run_id())


def new_run_id() -> str:
    """Return a unique ``run_id``."""
    return f"call-{uuid.uuid4().hex[:12]}"


async def _find_own(
    log: DeltaLog, pipeline: str, plans: tuple[str, ...], after: int, run_id: str
) -> tuple[tuple[Seal, Commit], ...]:
    try:
        return await own_commits(log, pipeline, plans, after, run_id=run_id)
    except (TableNotFound, NotADeltaTable):
        if await log.left_over():
            return ()
        raise


def named(result: JobResult, pipeline: str) -> DeltaCdcError:
    if result.error is not None:
        return DeltaCdcError.from_dict(result.error)
    return JobFailed(
        f"The job of pipeline {pipeline} failed: {result.message or 'no reason given'}",
        remedy="look into Spark's log; the next try finds out what was committed.",
    )


async def pause(
    reason_text: str, attempt: int, max_attempts: int, say: Say, sleep: Callable[[float], Awaitable[None]]
) -> None:
    """Wait before the next plan, for a random time: without it, the same writers would collide again."""
    if attempt >= max_attempts:
        say(f"{reason_text}. That was the last attempt.")
        return
    longest = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** (attempt - 1))
    seconds = random.uniform(longest / 2, longest)
    say(f"{reason_text}. It plans again in {seconds:.1f} s (attempt {attempt + 1} of {max_attempts}).")
    await sleep(seconds)
