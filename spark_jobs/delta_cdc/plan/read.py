"""Plans a read: the changes after the watermark, or a first snapshot, into a staging table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from delta_cdc import checks, gates
from delta_cdc.errors import InvalidConfiguration
from delta_cdc.log.store import canonical_uri, spark_uri
from delta_cdc.log.table import DeltaLog, run_sync
from delta_cdc.plan import ranges
from delta_cdc.plan.apply import feed_warning, load_step
from delta_cdc.plan.request import Memory
from delta_cdc.plan.result import Plan
from delta_cdc.plan.sight import look
from delta_cdc.plan.staging import open_batch, turn
from delta_cdc.spec import ReadSpec
from delta_cdc.versions import VersionRange

if TYPE_CHECKING:
    from typing import Literal

    from delta_cdc.log.actions import Commit
    from delta_cdc.log.table import TableState
    from delta_cdc.plan.request import ReadRequest
    from delta_cdc.plan.sight import Sight
    from delta_cdc.spec import Step
    from delta_cdc.watermark import Seal


def plan_read(request: ReadRequest, memory: Memory | None = None) -> Plan:
    """Decide what a read into staging has to do; see :func:`plan_read_async`."""
    return run_sync(plan_read_async(request, memory))


async def plan_read_async(request: ReadRequest, memory: Memory | None = None) -> Plan:
    """Decide which versions are to be staged; an open batch is returned as it is (``Plan.batch``).

    :param memory: what is known of earlier tries; the logs are what counts
    :raises DeltaCdcError: a named error with its remedy for everything that stops the flow
    """
    request.check()
    sight = await look(request, memory or Memory())
    staging = DeltaLog(request.staging, request.storage_options)
    found, discarded = await _batch_to_return(sight, staging)
    if found is not None:
        versions = VersionRange(found[0].step.starting_version, found[0].watermark)
        text = f"Staging {staging.uri} already holds the open batch {versions} of {sight.source.uri}."
        return replace(sight.nothing(versions.ending_version, text), versions=versions, batch=found)
    if sight.seal is None:
        step, at = await _snapshot(request, sight)
        notes = (*discarded, *feed_warning(at))
        return await _planned(request, sight, staging, step, at, "snapshot", notes)
    chosen = await ranges.choose(sight, sight.seal)
    if not isinstance(chosen, ranges.Chosen):
        return sight.nothing(chosen.ending, *discarded, *chosen.notes)
    (step,) = await ranges.steps(
        sight, chosen, number=0, applied_from=sight.seal.applied_from, versions=None, size=None
    )
    notes = (*discarded, *chosen.notes)
    return await _planned(request, sight, staging, step, chosen.at_end, "changes", notes)


async def _planned(
    request: ReadRequest,
    sight: Sight,
    staging: DeltaLog,
    step: Step,
    at: TableState,
    kind: Literal["changes", "snapshot"],
    notes: tuple[str, ...],
) -> Plan:
    checks.check_feed_columns(at.schema_columns, sight.source.uri, step.ending_version)
    number, planned_on = await turn(staging, request.pipeline, sight.next_number)
    spec = ReadSpec(
        pipeline=request.pipeline,
        run_id=request.run_id,
        source_uri=spark_uri(request.source),
        source_table_id=at.table_id,
        staging_uri=spark_uri(request.staging),
        step=replace(step, seal_number=number, planned_on=planned_on),
        kind=kind,
        single_driver=request.single_driver,
    )
    versions = VersionRange(step.starting_version, step.ending_version)
    return Plan(
        sight.source,
        sight.proof,
        sight.pin_key,
        step.ending_version,
        versions,
        spec,
        notes=(*sight.notes, *notes),
    )


async def _batch_to_return(
    sight: Sight, staging: DeltaLog
) -> tuple[tuple[Seal, Commit] | None, tuple[str, ...]]:
    found = await open_batch(sight, staging)
    other = await gates.other_history(sight.log, sight.source, found[0]) if found is not None else None
    if other is None:
        return found, ()
    text = f"The open batch in staging {staging.uri} was read from another history of {sight.source.uri}"
    return None, (f"{text} ({other}) and is replaced.",)


async def _snapshot(request: ReadRequest, sight: Sight) -> tuple[Step, TableState]:
    if sight.starting is not None:
        raise InvalidConfiguration(
            f"The start {sight.starting} is given, and the target {canonical_uri(request.target)} has no "
            "watermark yet: the first batch is a snapshot.",
            remedy="leave the start out, or load the target with DeltaApplyChangesOperator first.",
        )
    ranges.refuse_beyond(sight)
    ends = (sight.source.version, sight.pinned_end, sight.ending)
    return await load_step(sight, min(end for end in ends if end is not None))
