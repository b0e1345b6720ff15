"""The flow of an ingest."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from delta_cdc.core.spec import IngestSpec, JobResult
from delta_cdc.core.text_table import plural
from delta_cdc.core.uris import canonical_uri, short_name
from delta_cdc.planning.ingest import IngestPlan, plan_ingest_async
from delta_cdc.planning.ingest_request import IngestRequest
from delta_cdc.planning.written import bytes_of
from delta_cdc.run.loop import Own, Run, Say, run_alone
from delta_cdc.run.outbox import merged, unannounced
from delta_cdc.run.outcomes import IngestResult, counted, total
from delta_cdc.run.saved_plans import PlansInMemory, SavedPlans

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from delta_cdc.core.spec import ApplyRequest
    from delta_cdc.planning.topics import Looks
    from delta_cdc.run.outbox import Announced, Sealed

logger = logging.getLogger(__name__)

#: Kinds of steps that append a batch.
_MOVING = ("ingest", "replay")


def run_ingest(
    request: IngestRequest,
    *,
    execute: Callable[[IngestSpec], JobResult],
    saved_plans: SavedPlans | None = None,
    say: Say = logger.info,
    max_attempts: int = 5,
    sleep: Callable[[float], None] = time.sleep,
    then: ApplyRequest | None = None,
    looks: Looks | None = None,
    announced: Announced | None = None,
) -> IngestResult:
    """Write the next batch of a source into its change log, and confirm it in the log.

    A batch that an earlier try recorded but did not append comes first, alone. If the source has no new
    input, ``execute`` is not called.

    :param execute: runs the spec in Spark
    :param saved_plans: keeps the plan over retries of the same work, until the caller calls
        :func:`delta_cdc.run.watermarks.published`; None keeps it for this call only
    :param say: takes one line per step
    :param max_attempts: the highest number of plans, if races are lost
    :param sleep: waits for a number of seconds before the next plan
    :param then: the apply that the same application runs from the log afterwards. A separate flow confirms
        its outcome (:func:`delta_cdc.run.apply.run_apply`)
    :param looks: connections to Kafka that several flows share
    :param announced: what the caller has announced (:mod:`delta_cdc.run.outbox`): the result includes every
        batch with events that was not. With None, it includes only the batch of this work
    :raises ConcurrentModification: another writer won every race
    :raises OutcomeUnknown: the job reported a commit that the log does not show
    :raises DeltaCdcError: the named error that the job or a check reported
    """
    return run_alone(
        lambda execute, sleep: Ingesting(
            request, execute, saved_plans, say, max_attempts, sleep, then, looks, announced=announced
        ).run(),
        execute,
        sleep,
    )


class Ingesting(Run[IngestRequest, IngestPlan, IngestSpec, IngestResult]):
    """One ingest, step by step; see :func:`run_ingest`."""

    def __init__(
        self,
        request: IngestRequest,
        execute: Callable[[IngestSpec], Awaitable[JobResult]],
        saved_plans: SavedPlans | None,
        say: Say,
        max_attempts: int,
        sleep: Callable[[float], Awaitable[None]],
        then: ApplyRequest | None,
        looks: Looks | None,
        done_by: str = "an earlier try",
        announced: Announced | None = None,
    ) -> None:
        super().__init__(request, execute, saved_plans or PlansInMemory(), None, say, max_attempts, sleep)
        self._then = then
        self._looks = looks
        self._left_behind = False
        self._done_by = done_by
        self._announced = announced

    async def run(self) -> IngestResult:
        done = await super().run()
        # The request is the replay. If the first run appended an unfinished batch, the replay still has to
        # run.
        return await super().run() if self.request.replay and self._left_behind else done

    async def plan(self) -> IngestPlan:
        plan = await plan_ingest_async(self.request, replace(self.memory(), looks=self._looks))
        self._left_behind = plan.spec is not None and plan.spec.recorded and plan.spec.step.kind != "replay"
        if self._then is None or plan.spec is None:
            return plan

        return replace(plan, spec=replace(plan.spec, after=replace(self._then, storage_options=None)))

    def written_table(self) -> str:
        return canonical_uri(self.request.log)

    def described(self, plan: IngestPlan) -> str:
        return f"{plan.description} into {self.written_table()}"

    async def without_job(self, plan: IngestPlan) -> IngestResult | None:
        """Return the batch of an earlier try as the result, even if input is new: one run appends one
        batch."""
        earlier = await self._earlier(plan)
        return await self._publish_earlier(plan, earlier, self._done_by) if earlier else None

    async def publish_nothing(self, plan: IngestPlan) -> IngestResult:
        if earlier := await self._earlier(plan):
            return await self._publish_earlier(plan, earlier, self._done_by)
        if due := await self._due(plan, ()):
            return await self._publish_earlier(plan, due, "earlier runs, and not announced yet")
        if self.request.replay:
            reason = f"the quarantine has no records of pipeline {self.request.pipeline}"
        else:
            unit = "partition" if self.request.is_kafka else "file"
            looked_at = f"{plural(plan.looked, unit)} of {plan.source}"
            reason = f"found nothing new for {self.written_table()} in {looked_at}"
        self.say(f"Nothing to ingest: {reason}.")
        return self._result(plan, ())

    async def publish(self, plan: IngestPlan, own: Own, result: JobResult | None) -> IngestResult:
        then = result.then if result is not None else None
        seal, commit = own.found[-1]
        if seal.step.kind not in _MOVING:
            name = short_name(self.written_table())
            self.say(f"0 rows: renewed the seal of {name} in version {commit.version}, seal {seal.number}.")
            due = await self._due(plan, ())
            done = self._result(plan, due or ((seal, commit),))
            return replace(done, applied=bool(due), seal=seal.number, log_version=commit.version, then=then)
        done = self._result(plan, await self._due(plan, ((seal, commit),)))
        self.say(
            f"Ingested {counted(done.counts)} into {short_name(self.written_table())}: version "
            f"{commit.version}, seal {seal.number}."
        )
        if done.left:
            self.say(f"The next run takes the rest: {counted(done.left)}.")
        return replace(done, then=then)

    async def _earlier(self, plan: IngestPlan) -> Sealed:
        """Return the newest batch of the earlier tries of this work; an empty tuple without one."""
        saved_plan = self.saved(plan.plan_key)
        if not saved_plan.fingerprints:
            return ()
        kinds = ("replay",) if self.request.replay else _MOVING
        commits = await self._commits(*saved_plan.fingerprints, after=saved_plan.planned_version)
        return tuple(pair for pair in commits if pair[0].step.kind in kinds)[-1:]

    async def _due(self, plan: IngestPlan, ours: Sealed) -> Sealed:
        """Return the batches that the result is about, oldest first: that of this work, and each one that
        was not announced."""
        return merged(await unannounced(self.log, "log", plan.recorded, self._announced), ours)

    async def _publish_earlier(self, plan: IngestPlan, batches: Sealed, done_by: str) -> IngestResult:
        done = self._result(plan, await self._due(plan, batches))
        self.say(
            f"Already ingested by {done_by}: {counted(done.counts)}, into {self.written_table()}, "
            f"version {done.log_version}, seal {done.seal}."
        )
        return done

    def _result(self, plan: IngestPlan, batches: Sealed) -> IngestResult:
        recorded = plan.recorded
        seal_number = recorded.seal.number if recorded is not None and recorded.seal is not None else None
        version = recorded.target.version if recorded is not None else None
        table_id = recorded.target.table_id if recorded is not None else None
        if recorded is None and batches and batches[0][1].metadata is not None:
            table_id = batches[0][1].metadata.id
        return IngestResult(
            applied=bool(batches),
            pipeline=self.request.pipeline,
            seal=batches[-1][0].number if batches else seal_number,
            log_table=self.written_table(),
            log_table_id=table_id,
            log_version=batches[-1][1].version if batches else version,
            counts=total(seal.step.counts for seal, _ in batches),
            left=plan.left,
            plan_key=plan.plan_key,
            bytes_written=bytes_of(commit for _, commit in batches),
            effort=self.effort,
        )
