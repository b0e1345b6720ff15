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
from delta_cdc.run.outcomes import IngestResult, counted
from delta_cdc.run.saved_plans import PlansInMemory, SavedPlans

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from delta_cdc.core.spec import ApplyRequest
    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.planning.topics import Looks

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
    :raises ConcurrentModification: another writer won every race
    :raises OutcomeUnknown: the job reported a commit that the log does not show
    :raises DeltaCdcError: the named error that the job or a check reported
    """
    return run_alone(
        lambda execute, sleep: Ingesting(
            request, execute, saved_plans, say, max_attempts, sleep, then, looks
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
    ) -> None:
        super().__init__(request, execute, saved_plans or PlansInMemory(), None, say, max_attempts, sleep)
        self._then = then
        self._looks = looks
        self._left_behind = False
        self._done_by = done_by

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
        return await self._earlier(plan)

    async def publish_nothing(self, plan: IngestPlan) -> IngestResult:
        earlier = await self._earlier(plan)
        if earlier is not None:
            return earlier
        if self.request.replay:
            reason = f"the quarantine has no records of pipeline {self.request.pipeline}"
        else:
            unit = "partition" if self.request.is_kafka else "file"
            looked_at = f"{plural(plan.looked, unit)} of {plan.source}"
            reason = f"found nothing new for {self.written_table()} in {looked_at}"
        self.say(f"Nothing to ingest: {reason}.")
        return self._result(plan, None)

    async def publish(self, plan: IngestPlan, own: Own, result: JobResult | None) -> IngestResult:
        then = result.then if result is not None else None
        seal, commit = own.found[-1]
        if seal.step.kind not in _MOVING:
            name = short_name(self.written_table())
            self.say(f"0 rows: renewed the seal of {name} in version {commit.version}, seal {seal.number}.")
            return replace(self._result(plan, (seal, commit)), applied=False, then=then)
        done = self._result(plan, (seal, commit))
        self.say(
            f"Ingested {counted(done.counts)} into {short_name(self.written_table())}: version "
            f"{commit.version}, seal {seal.number}."
        )
        if done.left:
            self.say(f"The next run takes the rest: {counted(done.left)}.")
        return replace(done, then=then)

    async def _earlier(self, plan: IngestPlan) -> IngestResult | None:
        saved_plan = self.saved(plan.plan_key)
        if not saved_plan.fingerprints:
            return None
        kinds = ("replay",) if self.request.replay else _MOVING
        commits = await self._commits(*saved_plan.fingerprints, after=saved_plan.planned_version)
        ours = [(seal, commit) for seal, commit in commits if seal.step.kind in kinds]
        if not ours:
            return None
        seal, commit = ours[-1]
        done = self._result(plan, (seal, commit))
        self.say(
            f"Already ingested by {self._done_by}: {counted(done.counts)}, into {self.written_table()}, "
            f"version {commit.version}, seal {seal.number}."
        )
        return done

    def _result(self, plan: IngestPlan, batch: tuple[Seal, Commit] | None) -> IngestResult:
        recorded = plan.recorded
        seal_number = recorded.seal.number if recorded is not None and recorded.seal is not None else None
        version = recorded.target.version if recorded is not None else None
        table_id = recorded.target.table_id if recorded is not None else None
        if recorded is None and batch is not None and batch[1].metadata is not None:
            table_id = batch[1].metadata.id
        return IngestResult(
            applied=batch is not None,
            pipeline=self.request.pipeline,
            seal=batch[0].number if batch is not None else seal_number,
            log_table=self.written_table(),
            log_table_id=table_id,
            log_version=batch[1].version if batch is not None else version,
            counts=dict(batch[0].step.counts) if batch is not None else {},
            left=plan.left,
            plan_key=plan.plan_key,
            bytes_written=bytes_of([batch[1]]) if batch is not None else 0,
            effort=self.effort,
        )
