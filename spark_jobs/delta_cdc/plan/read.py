"""Plans a read: the changes after the watermark, or a first snapshot, into a staging table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from delta_cdc import checks, gates
from delta_cdc.errors import (
    InvalidConfiguration,
    SourceHistoryChanged,
    SourceTableReplaced,
    VersionsExpired,
)
from delta_cdc.log.store import canonical_uri, spark_uri
from delta_cdc.log.table import DeltaLog, run_sync
from delta_cdc.plan import ranges
from delta_cdc.plan.apply import feed_warning
from delta_cdc.plan.ranges import load_step
from delta_cdc.plan.request import Memory
from delta_cdc.plan.result import Plan
from delta_cdc.plan.sight import look
from delta_cdc.plan.staging import (
    COMMITTED,
    IDLE,
    TURN,
    committed,
    described,
    fitting,
    newest_batch,
    sink,
    to_go_on_with,
    turn,
)
from delta_cdc.retention import reseal_due
from delta_cdc.spec import CommitSpec, ReadSpec, Step, fingerprint
from delta_cdc.versions import VersionRange

if TYPE_CHECKING:
    from typing import Literal

    from delta_cdc.log.table import TableState
    from delta_cdc.plan.request import ReadRequest
    from delta_cdc.plan.sight import Sight
    from delta_cdc.plan.staging import Batch
    from delta_cdc.reconcile import Proof


#: Digits of a plan's fingerprint by which a folder of files is its own.
_NAMED_BY = 16
_START_ANEW = (
    "empty the sink, or see that a snapshot over what it holds is right, and name a new staging table: its "
    "first batch is the whole source."
)


@dataclass(frozen=True)
class _Work:
    """What is left to do for a batch: sealed commits, in order, and the source as of its end.

    :param starting: first version of the batch
    :param plain: change rows are staged, and the last step that has rows computes the query
    :param continues: its beginning is staged already
    """

    steps: tuple[Step, ...]
    at_end: TableState
    starting: int
    kind: Literal["changes", "snapshot"]
    plain: bool = False
    continues: bool = False
    notes: tuple[str, ...] = ()


def plan_read(request: ReadRequest, memory: Memory | None = None) -> Plan:
    """Decide what a read into staging has to do; see :func:`plan_read_async`."""
    return run_sync(plan_read_async(request, memory))


async def plan_read_async(request: ReadRequest, memory: Memory | None = None) -> Plan:
    """Decide which versions are to be staged; an open batch is returned as it is (``Plan.batch``).

    The beginning of a batch that an earlier try sealed is gone on with.

    :param memory: what is known of earlier tries; the logs are what counts
    :raises DeltaCdcError: a named error with its remedy for everything that stops the flow
    """
    request.check()
    try:
        return await _decided(request, memory or Memory())
    except (SourceTableReplaced, SourceHistoryChanged, VersionsExpired) as error:
        if request.target is not None:
            raise
        # There is no target to drop.
        raise type(error)(error.message, remedy=_START_ANEW) from error


async def _decided(request: ReadRequest, memory: Memory) -> Plan:
    staging = DeltaLog(request.staging, request.storage_options)
    sight, found = await _look(request, memory, staging)
    fits = await fitting(sight, found)
    output = _output(request, fits.versions) if fits is not None else None
    batch, given_up = await to_go_on_with(request, sight, fits, output=output)
    if batch is not None and batch.is_whole(output):
        text = f"Staging {staging.uri} already holds the open batch {batch.versions} of {sight.source.uri}."
        plan = sight.nothing(batch.seal.watermark, text)
        return replace(plan, versions=batch.versions, batch=(batch.seal, batch.commit))
    work = await _work(request, sight, batch)
    if isinstance(work, ranges.Nothing):
        return await _idle(request, sight, work, given_up)
    return await _planned(request, sight, staging, batch, work, given_up)


async def _look(request: ReadRequest, memory: Memory, staging: DeltaLog) -> tuple[Sight, Batch | None]:
    """Return what is proved, by the target or by staging itself, and the newest batch."""
    if request.target is not None:
        return await look(request, memory), await newest_batch(staging, request.pipeline)
    found = await sink(staging, request.pipeline)

    async def proof() -> Proof | None:
        return found.proof if found is not None else None

    return await look(request, memory, proof), found.batch if found is not None else None


async def _idle(request: ReadRequest, sight: Sight, found: ranges.Nothing, notes: tuple[str, ...]) -> Plan:
    """Plan nothing; or, for a sink that has been idle for long, a seal: nothing on the way has to arrive.

    Else the watermark of a source that is only maintained leaves the source's log some day.

    :raises SchemaChangeInRange: a seal is due, and would carry the watermark over a column that was lost
    """
    notes, proof = (*notes, *found.notes), sight.proof
    if request.target is not None or sight.seal is None or proof is None or proof.commit is None:
        return sight.nothing(found.ending, *notes)
    due = reseal_due(sight.source, proof, sight.now_ms)
    if due is None or found.ending <= sight.seal.watermark:
        return sight.nothing(found.ending, *notes)
    step = Step(
        kind="commit",
        starting_version=sight.seal.watermark + 1,
        ending_version=found.ending,
        seal_number=proof.next_number,
        applied_from=sight.seal.applied_from,
        source_commit_hash=found.source_commit_hash,
        source_columns=(),
        planned_on=sight.planned_on,
        configuration={**sight.seal.configuration, IDLE: True},
    )
    spec = CommitSpec(
        pipeline=request.pipeline,
        run_id=request.run_id,
        source_uri=spark_uri(request.source),
        source_table_id=sight.source.table_id,
        staging_uri=spark_uri(request.staging),
        step=step,
        single_driver=request.single_driver,
    )
    said = (*notes, *await gates.check_schema(sight.log, found.commits), due)
    return Plan(sight.source, proof, sight.pin_key, found.ending, None, spec, notes=(*sight.notes, *said))


# -- what is left to do -------------------------------------------------------------------------
async def _work(request: ReadRequest, sight: Sight, batch: Batch | None) -> _Work | ranges.Nothing:
    if batch is not None:
        return await _rest(request, sight, batch)
    if sight.seal is None:
        return await _snapshot(request, sight)
    chosen = await ranges.choose(sight, sight.seal)
    if not isinstance(chosen, ranges.Chosen):
        return chosen
    made, notes = await _milestones(request, sight, chosen, sight.seal.applied_from)
    starting = chosen.versions.starting_version
    plain = request.options.is_net and len(made) > 1
    if plain:
        made = (*made, _without_rows("answer", made[-1], starting))
    made = _completed(request, made, starting)
    return _Work(made, chosen.at_end, starting, "changes", plain, notes=(*chosen.notes, *notes))


async def _rest(request: ReadRequest, sight: Sight, batch: Batch) -> _Work:
    """Return what is missing from a batch of which the beginning is staged."""
    starting = batch.versions.starting_version
    known = Step(
        kind="complete",
        starting_version=starting,
        ending_version=batch.seal.watermark,
        seal_number=0,
        applied_from=batch.seal.applied_from,
        source_commit_hash=batch.seal.source_commit_hash,
        source_columns=(),
    )
    kind: Literal["changes", "snapshot"] = "snapshot" if batch.kind == "snapshot" else "changes"
    net = request.options.is_net
    if kind == "snapshot" or batch.is_complete or (net and not batch.is_plain):
        # All rows are there; what is missing are files, or nothing but the word.
        at_end = await sight.at(batch.seal.watermark)
        text = f"Staging {request.staging} holds all rows of the batch {batch.versions}: it is completed."
        return _Work((known,), at_end, starting, kind, continues=True, notes=(text,))
    text = f"Staging {request.staging} holds versions {batch.versions}: the read goes on behind them."
    # Its range was decided when it was begun.
    ending = batch.ending_version if sight.ending is None else sight.ending
    bounded = replace(sight, starting=None, ending=None, pinned_end=max(ending, batch.seal.watermark))
    chosen = await ranges.choose(bounded, batch.seal)
    made: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    at_end = await sight.at(batch.seal.watermark)
    if isinstance(chosen, ranges.Chosen):
        made, notes = await _milestones(request, sight, chosen, batch.seal.applied_from)
        at_end = chosen.at_end
    if batch.is_plain:
        last = made[-1] if made else replace(known, source_columns=at_end.schema_columns)
        made = (*made, _without_rows("answer", last, starting))
    made = _completed(request, made, starting) if made else (known,)
    said = (text, *chosen.notes, *notes)
    return _Work(made, at_end, starting, kind, batch.is_plain, continues=True, notes=said)


async def _milestones(
    request: ReadRequest, sight: Sight, chosen: ranges.Chosen, applied_from: int
) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    # Rows that are matched by their ids alone are matched between the two ends of the whole range.
    whole = request.options.is_net and not request.options.keys
    return await ranges.steps(
        sight,
        chosen,
        request.options,
        number=0,
        applied_from=applied_from,
        versions=None if whole else request.milestone_versions,
        size=None if whole else request.milestone_bytes,
    )


def _without_rows(kind: Literal["answer", "complete"], last: Step, starting: int) -> Step:
    return replace(last, kind=kind, starting_version=starting, segments=())


def _completed(request: ReadRequest, steps: tuple[Step, ...], starting: int) -> tuple[Step, ...]:
    """Files are written from what is staged, before the seal that says that they are there."""
    if request.output_path is None:
        return steps
    return (*steps, _without_rows("complete", steps[-1], starting))


async def _snapshot(request: ReadRequest, sight: Sight) -> _Work:
    if sight.starting is not None:
        raise InvalidConfiguration(
            f"The start {sight.starting} is given, and {_baseline(request)} has no watermark yet: the first "
            "batch is a snapshot.",
            remedy="leave the start out, or load the target with DeltaApplyChangesOperator first."
            if request.target is not None
            else "leave the start out; for a range of versions without a watermark there is read_changes.",
        )
    ranges.refuse_beyond(sight)
    ends = (sight.source.version, sight.pinned_end, sight.ending)
    step, at = await load_step(sight, min(end for end in ends if end is not None))
    made = _completed(request, (step,), step.starting_version)
    return _Work(made, at, step.starting_version, "snapshot", notes=feed_warning(at))


def _baseline(request: ReadRequest) -> str:
    if request.target is not None:
        return f"the target {canonical_uri(request.target)}"
    return f"staging {canonical_uri(request.staging)}"


# -- the spec -----------------------------------------------------------------------------------
async def _planned(
    request: ReadRequest,
    sight: Sight,
    staging: DeltaLog,
    batch: Batch | None,
    work: _Work,
    notes: tuple[str, ...],
) -> Plan:
    ending = work.steps[-1].ending_version
    checks.check_feed_columns(work.at_end.schema_columns, sight.source.uri, ending)
    number, planned_on = await turn(staging, request.pipeline, sight.next_number)
    numbered = [replace(step, seal_number=number + at, planned_on=None) for at, step in enumerate(work.steps)]
    numbered[0] = replace(numbered[0], planned_on=planned_on)
    versions = VersionRange(work.starting, ending)
    output = _output(request, versions)
    spec = ReadSpec(
        pipeline=request.pipeline,
        run_id=request.run_id,
        source_uri=spark_uri(request.source),
        source_table_id=work.at_end.table_id,
        staging_uri=spark_uri(request.staging),
        steps=tuple(numbered),
        kind=work.kind,
        starting_version=work.starting,
        continues=work.continues,
        plain=work.plain,
        single_driver=request.single_driver,
        options=request.options,
        configuration={
            **described(request),
            "batch": work.kind,
            "ending": ending,
            **_watermark(request, sight, batch),
        },
        output_format="json" if request.output_format == "json" else "parquet",
    )
    if output is not None:
        # Of this plan alone: one that comes late must not write over files that a batch names.
        spec = replace(spec, output_uri=f"{output['path']}-{fingerprint(spec)[:_NAMED_BY]}")
    return Plan(
        sight.source,
        sight.proof,
        sight.pin_key,
        ending,
        versions,
        spec,
        notes=(*sight.notes, *notes, *work.notes),
    )


def _watermark(request: ReadRequest, sight: Sight, batch: Batch | None) -> dict[str, Any]:
    if request.target is None:
        return {COMMITTED: committed(sight.seal)}
    begun = batch.seal.configuration.get(TURN) if batch is not None else None
    return {TURN: sight.next_number if begun is None else begun}


def _output(request: ReadRequest, versions: VersionRange) -> dict[str, str] | None:
    """Return how the folder of a batch's files begins, and their format; None where none are asked for."""
    if request.output_path is None:
        return None
    name = f"{versions.starting_version:020d}-{versions.ending_version:020d}"
    return {"path": f"{spark_uri(request.output_path)}/{name}", "format": request.output_format}
