"""Plans a read into a staging table: the changes after the watermark, or a first snapshot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core import validation
from delta_cdc.core.errors import (
    ChangeFeedDisabled,
    InvalidConfiguration,
    LogGap,
    SchemaChangeInRange,
    SourceHistoryChanged,
    SourceTableReplaced,
    VersionsExpired,
)
from delta_cdc.core.rules import check_read
from delta_cdc.core.spec import ReadSpec
from delta_cdc.core.steps import NoRows, StagedRows, Step
from delta_cdc.core.uris import canonical_uri, spark_uri
from delta_cdc.core.versions import VersionRange
from delta_cdc.core.watermark import PipelineState
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning import followed_columns, preconditions, ranges, read_methods
from delta_cdc.planning.apply import feed_warning
from delta_cdc.planning.commit import commit_spec
from delta_cdc.planning.memory import Memory
from delta_cdc.planning.observe import look
from delta_cdc.planning.plan import Plan
from delta_cdc.planning.ranges import load_step
from delta_cdc.planning.renewal import renewal_due
from delta_cdc.planning.staging import (
    COMMITTED,
    IDLE,
    TURN,
    batch_to_continue,
    committed,
    described,
    fitting,
    newest_batch,
    sink,
    turn,
)

if TYPE_CHECKING:
    from typing import Literal

    from delta_cdc.core.requests import ReadRequest
    from delta_cdc.core.watermark import TableVersion
    from delta_cdc.delta_log.table import TableState
    from delta_cdc.planning.observe import Observation
    from delta_cdc.planning.reconcile import RecordedWatermark
    from delta_cdc.planning.staging import Batch


_START_AGAIN = (
    "empty the sink, or make sure that it accepts a snapshot. Then name a new staging table: its "
    "first batch is a snapshot of the source."
)
#: Errors that end what a sink can read by ranges.
_ENDS = (ChangeFeedDisabled, LogGap, SourceTableReplaced, SourceHistoryChanged, VersionsExpired)
_WHAT_IS_BEFORE = "deliver and commit the versions before this one (ending_version). Then "


@dataclass(frozen=True)
class _Work:
    """The remaining work of a batch: its steps in order, one sealed commit each, and the source at its end.

    :param starting: first version of the batch
    :param plain: change rows are staged, and the last step that has rows computes the query
    :param continues: the beginning of the batch is staged already
    """

    steps: tuple[Step, ...]
    at_end: TableState
    starting: int
    kind: Literal["changes", "snapshot"]
    plain: bool = False
    continues: bool = False
    notes: tuple[str, ...] = ()


def plan_read(request: ReadRequest, memory: Memory | None = None) -> Plan:
    """Plan a read into staging; see :func:`plan_read_async`."""
    return run_sync(plan_read_async(request, memory))


async def plan_read_async(request: ReadRequest, memory: Memory | None = None) -> Plan:
    """Plan which versions to stage; return an open batch unchanged (``Plan.batch``).

    If an earlier try sealed the beginning of a batch, the plan continues that batch.

    :param memory: saved state of earlier tries; the logs take precedence
    :raises DeltaCdcError: a named error with its remedy for everything that stops the flow
    """
    check_read(request)
    try:
        return await _plan_request(request, memory or Memory())
    except (*_ENDS, SchemaChangeInRange) as error:
        if request.target is not None:
            raise
        # There is no target to drop, or to load again.
        before = _WHAT_IS_BEFORE if isinstance(error, SchemaChangeInRange) else ""
        raise type(error)(error.message, remedy=f"{before}{_START_AGAIN}") from error


async def _plan_request(request: ReadRequest, memory: Memory) -> Plan:
    staging = DeltaLog(request.staging, request.storage_options)
    lowest, planned_on = await turn(staging, request.pipeline)
    observed, batch_found = await _look(request, memory, staging)
    fits = await fitting(observed, batch_found)
    batch, replaced_notes = await batch_to_continue(observed, fits)
    if batch is not None and batch.configuration.complete:
        text = (
            f"Staging {staging.uri} already holds the open batch {batch.versions} of {observed.source.uri}."
        )
        plan = Plan.nothing(observed, batch.seal.watermark.version, text)
        return replace(plan, versions=batch.versions, batch=(batch.seal, batch.commit))
    work = await _work(observed, batch)
    if isinstance(work, ranges.Nothing):
        return await _idle(observed, work, replaced_notes)
    number = max(observed.next_number, lowest)
    return await _planned(observed, batch, work, replaced_notes, number, planned_on)


async def _look(
    request: ReadRequest, memory: Memory, staging: DeltaLog
) -> tuple[Observation[Any], Batch | None]:
    """Return the observation (watermark from the target, else from staging itself) and the newest batch."""
    if request.target is not None:
        return await look(request, memory), await newest_batch(staging, request.pipeline)
    sink_state = await sink(staging, request.pipeline)

    async def recorded() -> RecordedWatermark | None:
        return sink_state.recorded if sink_state is not None else None

    return await look(request, memory, recorded), sink_state.batch if sink_state is not None else None


async def _idle(observed: Observation[ReadRequest], found: ranges.Nothing, notes: tuple[str, ...]) -> Plan:
    """Return an empty plan; for a sink that has been idle for long, a plan of a seal without rows.

    Without that seal, retention would eventually remove the watermark's version from the log of a source that
    only gets maintenance commits.

    :raises SchemaChangeInRange: a seal is due, and would move the watermark past the loss of a column
    :raises VersionsExpired: a seal is due, and nothing proves that its range continues the applied history
    """
    request = observed.request
    notes, recorded = (*notes, *found.notes), observed.recorded
    if request.target is not None or observed.seal is None or recorded is None or recorded.commit is None:
        return Plan.nothing(observed, found.ended.version, *notes)
    due = renewal_due(observed.source, recorded, observed.now_ms)
    if due is None or found.ended.version <= observed.seal.watermark.version:
        return Plan.nothing(observed, found.ended.version, *notes)
    preconditions.refuse_unproven(found.identity, observed.source, observed.seal)
    state = PipelineState(
        replace(found.ended, table_id=observed.source.table_id),
        observed.seal.state.applied_from,
        configuration={**observed.seal.state.configuration, IDLE: True},
    )
    first = observed.seal.watermark.version + 1
    source = spark_uri(request.source)
    spec = commit_spec(request, source, first, state, recorded.next_number, observed.planned_on)
    followed = await followed_columns.check(observed.log, found.commits)
    return Plan.of(observed, spec, None, *notes, *followed.notes, due)


# -- remaining work -----------------------------------------------------------------------------
async def _work(observed: Observation[ReadRequest], batch: Batch | None) -> _Work | ranges.Nothing:
    request = observed.request
    if batch is not None:
        return await _remaining_work(observed, batch)
    if observed.seal is None:
        return await _snapshot(observed)
    chosen = await ranges.choose(observed, observed.seal)
    if not isinstance(chosen, ranges.Chosen):
        return chosen
    read_steps, notes = await _commit_steps(observed, chosen)
    made = read_steps
    starting = chosen.versions.starting_version
    plain = request.options.spans_commits and len(made) > 1
    if plain:
        made = (*made, _answer(read_steps[-1], starting))
    return _Work(made, chosen.at_end, starting, "changes", plain, notes=(*chosen.notes, *notes))


async def _remaining_work(observed: Observation[ReadRequest], batch: Batch) -> _Work:
    """Return the remaining work of a batch whose beginning is staged."""
    request = observed.request
    starting = batch.versions.starting_version
    completing = Step(
        kind="complete",
        read=NoRows(),
        starting_version=starting,
        applied_to=batch.seal.watermark,
        seal_number=observed.next_number,
    )
    text = f"Staging {request.staging} holds versions {batch.versions}: the read continues after them."
    # The batch's range was decided when it began.
    ending = batch.ending_version if observed.ending is None else observed.ending
    bounded = replace(
        observed,
        request=replace(request, max_versions=None, max_bytes=None),
        starting=None,
        ending=None,
        saved_end=max(ending, batch.seal.watermark.version),
    )
    chosen = await ranges.choose(bounded, batch.seal)
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    at_end = await observed.at(batch.seal.watermark.version)
    if isinstance(chosen, ranges.Chosen):
        steps, notes = await _commit_steps(observed, chosen)
        at_end = chosen.at_end
    if batch.configuration.plain:
        last = steps[-1] if steps else replace(completing, source_columns=at_end.schema_columns)
        steps = (*steps, _answer(last, starting))
    all_notes = (text, *chosen.notes, *notes)
    return _Work(
        steps or (completing,),
        at_end,
        starting,
        "changes",
        batch.configuration.plain,
        continues=True,
        notes=all_notes,
    )


async def _commit_steps(
    observed: Observation[ReadRequest], chosen: ranges.Chosen
) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    # Rows matched only by row id are matched between the two ends of the whole range.
    request = observed.request
    whole = request.options.is_net and request.options.by_row_id
    return await ranges.steps(
        observed,
        chosen,
        request.options,
        number=0,
        versions=None if whole else request.versions_per_commit,
        size=None if whole else request.bytes_per_commit,
    )


def _answer(last: Step, starting: int) -> Step:
    return Step(
        kind="answer",
        read=StagedRows(),
        starting_version=starting,
        applied_to=last.watermark,
        seal_number=last.seal_number,
        source_columns=last.source_columns,
    )


async def _snapshot(observed: Observation[ReadRequest]) -> _Work:
    request = observed.request
    if observed.starting is not None:
        raise InvalidConfiguration(
            f"The start {observed.starting} is given, and {_baseline(request)} has no watermark yet: the "
            "first batch is a snapshot.",
            remedy="leave the start out, or load the target with DeltaApplyChangesOperator first."
            if request.target is not None
            else "leave the start out; for a range of versions without a watermark there is read_changes.",
        )
    ranges.refuse_beyond(observed)
    ends = (observed.source.version, observed.saved_end, observed.ending)
    step, at = await load_step(observed, min(end for end in ends if end is not None))
    read_methods.refuse_untracked_snapshot(at, request.options)
    return _Work((step,), at, step.starting_version, "snapshot", notes=feed_warning(at))


def _baseline(request: ReadRequest) -> str:
    if request.target is not None:
        return f"the target {canonical_uri(request.target)}"
    return f"staging {canonical_uri(request.staging)}"


# -- the spec -----------------------------------------------------------------------------------
async def _planned(
    observed: Observation[ReadRequest],
    batch: Batch | None,
    work: _Work,
    notes: tuple[str, ...],
    number: int,
    planned_on: TableVersion | None,
) -> Plan:
    request = observed.request
    ending = work.steps[-1].ending_version
    validation.check_feed_columns(work.at_end.schema_columns, observed.source.uri, ending)
    numbered = [
        replace(step, seal_number=number + position, planned_on=None)
        for position, step in enumerate(work.steps)
    ]
    numbered[0] = replace(numbered[0], planned_on=planned_on)
    versions = VersionRange(work.starting, ending)
    spec = ReadSpec(
        pipeline=request.pipeline,
        run_id=request.run_id,
        source_uri=spark_uri(request.source),
        staging_uri=spark_uri(request.staging),
        steps=tuple(numbered),
        kind=work.kind,
        starting_version=work.starting,
        applied_from=_applied_from(observed, batch),
        continues=work.continues,
        plain=work.plain,
        single_driver=request.single_driver,
        options=request.options,
        configuration={
            **described(request),
            "batch": work.kind,
            "ending": ending,
            **_watermark(observed, batch),
        },
    )
    validation.check_seal(spec.pipeline, (spec.source_uri, spec.run_id), spec.configuration)
    return Plan.of(observed, spec, versions, *notes, *work.notes)


def _applied_from(observed: Observation[Any], batch: Batch | None) -> int:
    seal = batch.seal if batch is not None else observed.seal
    return seal.state.applied_from if seal is not None else 0


def _watermark(observed: Observation[ReadRequest], batch: Batch | None) -> dict[str, Any]:
    request = observed.request
    if request.target is None:
        return {COMMITTED: committed(observed.seal)}
    begun = batch.configuration.turn if batch is not None else None
    return {TURN: observed.next_number if begun is None else begun}
