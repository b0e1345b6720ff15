"""Plans the commit of a delivery: of a batch that a custom task has written to its sink.

Delta's commits are made in :mod:`delta_cdc.spark.sealed.commit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_cdc.core.errors import NoOpenBatch, OtherBatchOpen
from delta_cdc.core.rules import check_pipeline
from delta_cdc.core.spec import ReadSpec
from delta_cdc.core.steps import NoRows, Step
from delta_cdc.core.uris import spark_uri
from delta_cdc.core.watermark import PipelineState
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.staging import sink

if TYPE_CHECKING:
    from delta_cdc.core.requests import CommitRequest, ReadRequest
    from delta_cdc.core.watermark import TableVersion
    from delta_cdc.planning.reconcile import RecordedWatermark
    from delta_cdc.planning.staging import Batch, Sink


@dataclass(frozen=True)
class CommitPlan:
    """The plan of a commit.

    :param found: the staging table as observed
    :param spec: the job; None if the batch was already committed
    """

    found: Sink
    spec: ReadSpec | None
    plan_key: str = ""
    notes: tuple[str, ...] = ()

    @property
    def recorded(self) -> RecordedWatermark:
        """Return the recorded watermark."""
        return self.found.recorded

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the step, if there is one."""
        return self.spec.steps if self.spec is not None else ()

    @property
    def ending_version(self) -> int | None:
        """Return the last version of the batch."""
        return self.steps[-1].ending_version if self.spec is not None else None


async def plan_commit_async(request: CommitRequest) -> CommitPlan:
    """Find the open batch. Starts no process and writes nothing.

    :raises NoOpenBatch: nothing was read yet, or the batch is not complete
    :raises OtherBatchOpen: the open batch is not the requested one
    """
    check_pipeline(request.pipeline)
    staging = DeltaLog(request.staging, request.storage_options)
    sink_state = await sink(staging, request.pipeline)
    if sink_state is None or sink_state.newest is None:
        raise NoOpenBatch(
            f"Staging {staging.uri} holds no batch of pipeline {request.pipeline}.",
            remedy="read first (DeltaReadChangesOperator without a target, or @task.delta_changes).",
        )
    last_seal, wanted = sink_state.recorded.seal, request.ending_version
    batch = (
        sink_state.batch if sink_state.batch is not None and sink_state.batch.configuration.complete else None
    )
    if last_seal is not None and (wanted is not None and wanted <= last_seal.watermark.version):
        return CommitPlan(sink_state, None)
    if batch is not None and wanted in (None, batch.seal.watermark.version):
        return CommitPlan(sink_state, _spec(request, sink_state, batch))
    if last_seal is not None and wanted is None and sink_state.newest.step.kind == "commit":
        return CommitPlan(sink_state, None)
    raise _refused(staging, sink_state, wanted)


def _refused(staging: DeltaLog, sink_state: Sink, wanted: int | None) -> NoOpenBatch | OtherBatchOpen:
    assert sink_state.newest is not None
    pipeline = sink_state.newest.pipeline
    if sink_state.batch is not None and sink_state.batch.configuration.complete:
        return OtherBatchOpen(
            f"Version {wanted} is to be committed for pipeline {pipeline}, and the open batch of staging "
            f"{staging.uri} is {sink_state.batch.versions}.",
            remedy=f"commit {sink_state.batch.seal.watermark} once that batch has arrived.",
        )
    if sink_state.batch is not None:
        message = (
            f"Staging {staging.uri} of pipeline {pipeline} holds only the beginning of a batch, "
            f"{sink_state.batch.versions}."
        )
    elif sink_state.newest.step.kind == "commit":
        message = (
            f"Staging {staging.uri} of pipeline {pipeline} has no open batch; its watermark is "
            f"{sink_state.newest.watermark}."
        )
    else:
        message = (
            f"Staging {staging.uri} of pipeline {pipeline} holds a batch whose rows another writer changed "
            "after they were read."
        )
    return NoOpenBatch(message, remedy="read again, and process the new batch.")


def _spec(request: CommitRequest, sink_state: Sink, batch: Batch) -> ReadSpec:
    seal = batch.seal
    state = PipelineState(
        seal.watermark, seal.state.applied_from, configuration={"options": batch.configuration.options}
    )
    recorded = sink_state.recorded
    first = seal.step.starting_version
    return commit_spec(request, seal.source_uri, first, state, recorded.next_number, recorded.target_version)


def commit_spec(
    request: CommitRequest | ReadRequest,
    source_uri: str,
    starting_version: int,
    state: PipelineState,
    number: int,
    planned_on: TableVersion | None,
) -> ReadSpec:
    """Return the job that seals a staging table, because everything up to a version was delivered.

    :param source_uri: as Spark names it
    :param starting_version: first version of the batch
    :param state: the state to seal; its watermark is the last version that was delivered
    :param number: of the seal
    """
    step = Step(
        kind="commit",
        read=NoRows(),
        starting_version=starting_version,
        applied_to=state.applied_to,
        seal_number=number,
        planned_on=planned_on,
        before=state,
    )
    return ReadSpec(
        pipeline=request.pipeline,
        run_id=request.run_id,
        source_uri=source_uri,
        staging_uri=spark_uri(request.staging),
        steps=(step,),
        kind="changes",
        starting_version=starting_version,
        applied_from=state.applied_from,
        single_driver=request.single_driver,
    )
