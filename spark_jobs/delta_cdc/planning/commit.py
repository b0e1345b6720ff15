"""Plans the commit of a batch that a custom task has written to its sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_cdc.core.errors import NoOpenBatch, OtherBatchOpen
from delta_cdc.core.spec import CommitSpec, CommitStep
from delta_cdc.core.uris import spark_uri
from delta_cdc.core.watermark import TableVersion
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.staging import sink

if TYPE_CHECKING:
    from delta_cdc.planning.reconcile import RecordedWatermark
    from delta_cdc.planning.request import CommitRequest
    from delta_cdc.planning.staging import Batch, Sink


@dataclass(frozen=True)
class CommitPlan:
    """The plan of a commit.

    :param found: the staging table as observed
    :param spec: the job; None if the batch was already committed
    """

    found: Sink
    spec: CommitSpec | None
    plan_key: str = ""
    notes: tuple[str, ...] = ()

    @property
    def recorded(self) -> RecordedWatermark:
        """Return the recorded watermark."""
        return self.found.recorded

    @property
    def steps(self) -> tuple[CommitStep, ...]:
        """Return the step, if there is one."""
        return self.spec.steps if self.spec is not None else ()

    @property
    def ending_version(self) -> int | None:
        """Return the last version of the batch."""
        return self.spec.step.ending_version if self.spec is not None else None


async def plan_commit_async(request: CommitRequest) -> CommitPlan:
    """Find the open batch. Starts no process and writes nothing.

    :raises NoOpenBatch: nothing was read yet, or the batch is not complete
    :raises OtherBatchOpen: the open batch is not the requested one
    """
    request.check()
    staging = DeltaLog(request.staging, request.storage_options)
    found = await sink(staging, request.pipeline)
    if found is None or found.newest is None:
        raise NoOpenBatch(
            f"Staging {staging.uri} holds no batch of pipeline {request.pipeline}.",
            remedy="read first (DeltaReadChangesOperator without a target, or @task.delta_changes).",
        )
    done, wanted = found.recorded.seal, request.ending_version
    batch = found.batch if found.batch is not None and found.batch.is_complete else None
    if done is not None and (wanted is not None and wanted <= done.watermark.version):
        return CommitPlan(found, None)
    if batch is not None and wanted in (None, batch.seal.watermark.version):
        return CommitPlan(found, _spec(request, found, batch))
    if done is not None and wanted is None and found.newest.step.kind == "commit":
        return CommitPlan(found, None)
    raise _refused(staging, found, wanted)


def _refused(staging: DeltaLog, found: Sink, wanted: int | None) -> NoOpenBatch | OtherBatchOpen:
    assert found.newest is not None
    pipeline = found.newest.pipeline
    if found.batch is not None and found.batch.is_complete:
        return OtherBatchOpen(
            f"Version {wanted} is to be committed for pipeline {pipeline}, and the open batch of staging "
            f"{staging.uri} is {found.batch.versions}.",
            remedy=f"commit {found.batch.seal.watermark} once that batch has arrived.",
        )
    if found.batch is not None:
        held = f"holds the beginning of a batch only, {found.batch.versions}"
    elif found.newest.step.kind == "commit":
        held = f"has no open batch; its watermark is {found.newest.watermark}"
    else:
        held = "holds a batch whose rows somebody else changed since they were read"
    return NoOpenBatch(
        f"Staging {staging.uri} of pipeline {pipeline} {held}.",
        remedy="read again, and process what it gives.",
    )


def _spec(request: CommitRequest, found: Sink, batch: Batch) -> CommitSpec:
    seal = batch.seal
    step = CommitStep(
        starting_version=seal.step.starting_version,
        watermark=seal.watermark,
        seal_number=found.recorded.next_number,
        applied_from=seal.state.applied_from,
        planned_on=TableVersion(found.recorded.target.table_id, found.recorded.target.version),
        configuration={"options": batch.options},
    )
    return CommitSpec(
        pipeline=request.pipeline,
        run_id=request.run_id,
        source_uri=seal.source_uri,
        staging_uri=spark_uri(request.staging),
        step=step,
        single_driver=request.single_driver,
    )
