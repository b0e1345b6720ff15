"""The flow of a commit of a delivery: it records that a staged batch has arrived at its sink.

Delta's commits are made in :mod:`delta_cdc.spark.sealed.commit`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from delta_cdc.core.requests import CommitRequest
from delta_cdc.core.spec import JobResult, ReadSpec
from delta_cdc.core.uris import canonical_uri
from delta_cdc.core.versions import VersionRange
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.commit import CommitPlan, plan_commit_async
from delta_cdc.planning.staging import newest_commit, sink
from delta_cdc.run.loop import Own, Run
from delta_cdc.run.outcomes import Outcome

if TYPE_CHECKING:
    from delta_cdc.core.watermark import Seal


class Committing(Run[CommitRequest, CommitPlan, ReadSpec]):
    """The commit of the open batch of a staging table.

    If the batch is already committed, no job runs. If an earlier try of the same run (``request.run_id``)
    committed it, the outcome is that of the earlier try.
    """

    #: The batch of the first plan: this batch has arrived, even if staging holds a later one now.
    versions: VersionRange | None = None

    async def plan(self) -> CommitPlan:
        plan = await plan_commit_async(self.request)
        if self.versions is None and plan.spec is not None:
            self.versions = VersionRange(*plan.steps[0].versions)
            self.request = replace(self.request, ending_version=self.versions.ending_version)
        return plan

    def written_table(self) -> str:
        return canonical_uri(self.request.staging)

    def described(self, plan: CommitPlan) -> str:
        return f"the commit of versions {self.versions} in {self.written_table()}"

    async def publish_nothing(self, plan: CommitPlan) -> Outcome:
        if self.versions is not None:
            self.say(f"Another run has committed versions {self.versions}: {self._watermark(plan)}.")
            return self._result(plan, None)
        versions = await _own_batch(self.request)
        if versions is None or self.request.ending_version not in (None, versions.ending_version):
            self.say(f"Nothing to commit: {self._watermark(plan, 'is already')}.")
            return self._result(plan, None)
        self.say(f"An earlier try of this run committed versions {versions}: {self._watermark(plan)}.")
        return self._result(plan, versions)

    async def publish(self, plan: CommitPlan, own: Own, result: JobResult | None) -> Outcome:
        done = await plan_commit_async(self.request)
        self.say(f"Committed versions {self.versions}: {self._watermark(done)}.")
        return self._result(done, self.versions)

    def _watermark(self, plan: CommitPlan, verb: str = "is") -> str:
        assert plan.recorded.seal is not None
        return f"the watermark in {self.written_table()} {verb} {plan.recorded.seal.watermark}"

    def _result(self, plan: CommitPlan, versions: VersionRange | None) -> Outcome:
        return _result_of(self.request, plan.recorded.seal, plan.recorded.target.version, versions)


async def _own_batch(request: CommitRequest) -> VersionRange | None:
    log = DeltaLog(request.staging, request.storage_options)
    seal = await newest_commit(log, request.pipeline)
    if seal is None or not request.run_id or seal.step.run_id != request.run_id:
        return None
    return VersionRange(seal.step.starting_version, seal.step.ending_version)


def committed_by_run(request: CommitRequest) -> Outcome | None:
    """Return the newest committed batch if ``request.run_id`` committed it, in an earlier try that died.

    :return: None if another run committed the newest batch, or if no batch was committed
    """
    versions = run_sync(_own_batch(request))
    return None if versions is None else replace(committed_so_far(request), applied=True, versions=versions)


def committed_so_far(request: CommitRequest) -> Outcome:
    """Return the last commit of a staging table; commit nothing, even if a batch is open.

    :raises InvalidConfiguration: staging is filled for a target; then the target has the watermark
    """
    sink_state = run_sync(sink(DeltaLog(request.staging, request.storage_options), request.pipeline))
    seal = sink_state.recorded.seal if sink_state is not None else None
    version = sink_state.recorded.target.version if sink_state is not None else None
    return _result_of(request, seal, version, None)


def _result_of(
    request: CommitRequest, seal: Seal | None, version: int | None, versions: VersionRange | None
) -> Outcome:
    return Outcome(
        kind="commit",
        applied=versions is not None,
        versions=versions,
        watermark=seal.watermark if seal is not None else None,
        pipeline=request.pipeline,
        seal=seal.number if seal is not None else None,
        source_table=canonical_uri(seal.source_uri) if seal is not None else None,
        staging=canonical_uri(request.staging),
        staging_version=version,
    )
