"""Observes source and target: their current state, and the recorded watermark in the target."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from delta_cdc.core.change_log import ORIGIN
from delta_cdc.core.concurrency import both
from delta_cdc.core.errors import (
    InvalidConfiguration,
    PipelineTakenOver,
    RangeNotContiguous,
    TargetWithoutWatermark,
)
from delta_cdc.core.retention import expired
from delta_cdc.core.steps import NoRows, Step
from delta_cdc.core.times import epoch_ms
from delta_cdc.core.uris import canonical_uri
from delta_cdc.core.watermark import app_id
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.memory import plan_key
from delta_cdc.planning.reconcile import (
    RecordedWatermark,
    adopted_by,
    copied_seal,
    owners_of,
    reconcile_async,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from delta_cdc.core.requests import Request
    from delta_cdc.core.watermark import Seal, TableVersion
    from delta_cdc.delta_log.table import TableState
    from delta_cdc.planning.memory import Memory

logger = logging.getLogger(__name__)

#: How long a retry of a load reuses the seal number of the earlier try, in milliseconds.
_NUMBER_AGE = 7 * 86_400_000


R = TypeVar("R", bound="Request")


@dataclass(frozen=True)
class Observation(Generic[R]):
    """The current state of source and target, from their logs.

    :param starting: the explicit start, resolved to a version
    :param ending: the explicit end, resolved to a version
    :param before: steps that must run before all others (those of taking over another pipeline)
    :param found: notes about what the look has found
    :param asks: why a person must approve the run: a sentence without a subject; "" if none must
    :param drops_limits: the request had limits that the next run has again, and this one has not
    """

    request: R
    log: DeltaLog
    source: TableState
    recorded: RecordedWatermark | None
    now_ms: int
    first_number: int
    starting: int | None
    ending: int | None
    saved_end: int | None
    before: tuple[Step, ...] = ()
    found: tuple[str, ...] = ()
    asks: str = ""
    drops_limits: bool = False

    @property
    def seal(self) -> Seal | None:
        """Return the seal in effect."""
        return self.recorded.seal if self.recorded is not None else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the notes of reconciling and taking over."""
        return (*(self.recorded.notes if self.recorded is not None else ()), *self.found)

    @property
    def next_number(self) -> int:
        """Return the only seal number that can commit next."""
        return self.recorded.next_number if self.recorded is not None else self.first_number

    @property
    def planned_on(self) -> TableVersion | None:
        """Return the target's version; None without a target, or if :attr:`before` writes to it first."""
        if self.recorded is None or self.before:
            return None
        return self.recorded.target_version

    @property
    def plan_key(self) -> str:
        """Return the key of the plan that is saved for a retry."""
        return plan_key(self.request.pipeline, self.source.table_id)

    async def at(self, version: int) -> TableState:
        """Return the source as of a version."""
        return self.source if version == self.source.version else await self.log.snapshot(version)


async def look(
    request: R, memory: Memory, prove: Callable[[], Awaitable[RecordedWatermark | None]] | None = None
) -> Observation[R]:
    """Identify source and target, reconcile, and resolve the explicit bounds to versions.

    :param prove: returns the recorded watermark if it is not in a target
    :raises DeltaCdcError: see :func:`delta_cdc.planning.reconcile.reconcile_async`
    """
    log = DeltaLog(request.source, request.storage_options)
    source, recorded = await both(
        log.snapshot(), recorded_in_target(request, memory) if prove is None else prove()
    )
    _refuse_declared_again(request, recorded)
    if request.target is not None:
        if recorded is None:
            await _warn_of_loss(request, memory)
        else:
            await _refuse_rows_of_others(request, recorded)
    now = time.time_ns() // 1_000_000 if memory.now_ms is None else memory.now_ms
    key = plan_key(request.pipeline, source.table_id)
    observed = Observation(
        request=request,
        log=log,
        source=source,
        recorded=recorded,
        now_ms=now,
        first_number=first_number(memory.number(key), now),
        starting=await _start(request, log, source),
        ending=await _end(request, log, source),
        saved_end=memory.end(key),
    )
    return await taking_over(observed)


async def recorded_in_target(request: Request, memory: Memory) -> RecordedWatermark | None:
    """Return the recorded watermark; None without a target.

    :raises InvalidConfiguration: the target is the staging table of a sink
    :raises DeltaCdcError: see :func:`delta_cdc.planning.reconcile.reconcile_async`
    """
    assert request.target is not None
    target = DeltaLog(request.target, request.storage_options)
    takes_over = request.predecessor is not None
    # The rows of a change log may be events of other pipelines.
    appends = request.applied is not None and request.applied.writes_events
    declared = takes_over or request.sets_baseline or appends
    recorded = await reconcile_async(
        target,
        request.pipeline,
        backup=memory.backup,
        declared=declared,
        closed=takes_over,
        forgiven=request.forgiven,
        thorough=True,
    )
    if recorded is not None and recorded.seal is not None and recorded.seal.step.kind in ("read", "commit"):
        raise InvalidConfiguration(
            f"{target.uri} is the staging table of a sink of pipeline {request.pipeline}, and no target.",
            remedy="to deliver its changes, run the DAG of the sink; or name a target of its own.",
            argument="target",
        )
    return recorded


async def _refuse_rows_of_others(request: Request, recorded: RecordedWatermark) -> None:
    """Refuse to begin a target that another pipeline goes on with, because the pipeline has another name now.

    A baseline would take the version that it names, or the newest one, for the one that the rows have.

    :raises TargetWithoutWatermark: names the pipelines whose watermark is in effect
    """
    begins = recorded.seal is None and recorded.refused is None and request.predecessor is None
    appends = request.applied is not None and request.applied.writes_events
    if not begins or appends or not (request.sets_baseline or recorded.empty):
        return
    if TargetWithoutWatermark in request.forgiven:
        # A reset takes the target of another pipeline on purpose.
        return
    owners = await owners_of(DeltaLog(recorded.target.uri, request.storage_options), request.pipeline)
    if owners:
        raise TargetWithoutWatermark(
            f"Pipeline {request.pipeline} has no watermark in the target {recorded.target.uri} (version "
            f"{recorded.target.version}), and {', '.join(owners)} goes on with it.",
            remedy="if the pipeline had that name before, set take_over_from to "
            f"{next(iter(owners))}; otherwise use a new target.",
        )


async def _warn_of_loss(request: Request, memory: Memory) -> None:
    """Warn if a target without a table had a watermark: it was dropped or moved, and is loaded again.

    :raises TargetWithoutWatermark: a baseline would take the new, empty table for rows of a version
    """
    target = canonical_uri(request.target or "")
    copy = await copied_seal(memory.backup)
    if copy is not None and request.sets_baseline:
        raise TargetWithoutWatermark(
            f"{target} does not exist, though pipeline {copy.seal.pipeline} had {copy.seal.reach} in version "
            f"{copy.target.version} of its target. With initial_load, a new table would begin without rows.",
            remedy="put the table back if it was dropped or moved by mistake; otherwise leave initial_load "
            "out: the next run loads the source.",
        )
    if copy is not None:
        logger.warning(
            "%s does not exist, though pipeline %s had %s in version %s of its target: a load makes it "
            "again, without the history that only this table had. If the table was dropped or moved by "
            "mistake, put it back first.",
            target,
            copy.seal.pipeline,
            copy.seal.reach,
            copy.target.version,
        )


def _refuse_declared_again(request: Request, recorded: RecordedWatermark | None) -> None:
    """Refuse to set a baseline twice: it only applies to the rows from before the first seal."""
    lost = recorded is not None and recorded.seal is None and recorded.refused is None
    if request.sets_baseline and lost and recorded is not None and recorded.was_sealed:
        raise TargetWithoutWatermark(
            f"The target {recorded.target.uri} (version {recorded.target.version}) was restored to before "
            f"the first seal of pipeline {request.pipeline}, whose baseline was set with initial_load.",
            remedy="RESTORE it to the version of the first seal or a later one. Or drop it. Or, if you know "
            "the source version V that the target has, continue with a new pipeline name and initial_load "
            '{"none_at": V}.',
        )


def first_number(saved: int | None, now_ms: int) -> int:
    """Return the first seal number of a new table: the time, so it exceeds those of an earlier table there.

    A retry reuses the number of the earlier try, whose driver may still be running: both then do the same
    load, and only the first of them can create the table.
    """
    return saved if saved is not None and now_ms - _NUMBER_AGE < saved <= now_ms else now_ms


async def _start(request: Request, log: DeltaLog, source: TableState) -> int | None:
    if request.starting_timestamp is None:
        return request.starting_version
    if request.ends_before:
        # What is applied already may be gone: whoever reads the beginning of the interval looks again.
        moment = epoch_ms("starting_timestamp", request.starting_timestamp)
        version = await log.version_at(moment, bound="start", state=source)
    else:
        version = await first_version(log, request.starting_timestamp, source)
    return source.version + 1 if version is None else version


async def first_version(log: DeltaLog, timestamp: str, state: TableState) -> int | None:
    """Return the first version at or after a time; None if it is later than the newest version.

    :param timestamp: as ``starting_timestamp`` of a request
    :param state: the table's newest state
    :raises VersionsExpired: the log no longer has all commits since then
    """
    moment = epoch_ms("starting_timestamp", timestamp)
    version = await log.version_at(moment, bound="start", state=state)
    if not version:
        return version
    before = await log.version_at(moment, bound="end", state=state)
    if version > (-1 if before is None else before) + 1:
        raise expired(
            f"The log of {log.uri} does not have all commits since {timestamp}: the first one that it has is "
            f"version {version}.",
            or_else="set a later starting_timestamp; or ",
        )
    return version


async def _end(request: Request, log: DeltaLog, source: TableState) -> int | None:
    if request.ending_timestamp is None:
        return request.ending_version
    moment = epoch_ms("ending_timestamp", request.ending_timestamp)
    if request.ends_before:
        # The end of an interval is exclusive: the next one begins there.
        version = await log.version_at(moment - 1, bound="end", state=source)
        return -1 if version is None else version
    version = await log.version_at(moment, bound="end", state=source)
    if version is None:
        raise RangeNotContiguous(
            f"ending_timestamp {request.ending_timestamp} is before the oldest commit that the log of "
            f"{source.uri} still has.",
            remedy="set a later time, or remove it.",
        )
    return version


# -- taking over --------------------------------------------------------------------------------
async def taking_over(observed: Observation[R]) -> Observation[R]:
    """Return the observation, with the steps of a take-over if the request asks for one that is not done."""
    request, recorded = observed.request, observed.recorded
    takes_over = recorded is None or recorded.refused is None
    if request.predecessor is None or request.target is None or not takes_over:
        return observed
    target = DeltaLog(request.target, request.storage_options)
    return await _with_takeover(observed, target, request.predecessor)


async def predecessors_seal(request: Request) -> Seal | None:
    """Return the seal that a pipeline takes over; None without one, or if another pipeline has taken it."""
    if request.predecessor is None or request.target is None:
        return None
    log = DeltaLog(request.target, request.storage_options)
    found = await reconcile_async(log, request.predecessor, closed=True, declared=True)
    seal = None if found is None else found.seal
    return seal if seal is not None and seal.successor in (None, request.pipeline) else None


async def _with_takeover(observed: Observation[R], target: DeltaLog, name: str) -> Observation[R]:
    """Take over another pipeline's recorded watermark, unless this pipeline has its own.

    The other pipeline's closing seal comes first, and this pipeline's first seal number follows from it: so
    only one of two concurrent planners can take over, regardless of the step at which they conflict. So too
    if the other pipeline has closed this one, and has no first seal yet: its number is used to close it.
    """
    recorded, pipeline = observed.recorded, observed.request.pipeline
    own = None if recorded is None else recorded.seal
    if recorded is None or (own is not None and own.successor is None):
        return observed
    if own is not None and own.successor != name:
        raise adopted_by(recorded.target, own)
    may_lack = own is not None or await _is_new_source(observed, target, name)
    other = await reconcile_async(target, name, closed=True, declared=may_lack)
    if other is None or (other.seal is None and own is None):
        # The table is empty and has no seal: there is nothing to take over, so load it.
        return observed
    seal = other.seal
    if own is not None and (seal is None or seal.number < own.number):
        # Older seals of the other pipeline have an older watermark.
        seal, other = replace(own, successor=None), replace(recorded, next_number=other.next_number)
    assert seal is not None
    seal = replace(seal, state=replace(seal.state, configuration={ORIGIN: name, **seal.state.configuration}))
    if seal.successor is not None and seal.successor != pipeline:
        raise PipelineTakenOver(
            f"Pipeline {seal.successor} already took over the target {recorded.target.uri} from {name}.",
            remedy=f"set take_over_from to {seal.successor}.",
        )
    step = Step(
        kind="take_over",
        read=NoRows(),
        starting_version=seal.watermark.version,
        applied_to=seal.watermark,
        seal_number=seal.number,
        before=seal.state,
    )
    steps, closing = [], seal.number
    if seal.successor is None:
        closing = max(other.next_number, own.number + 1 if own is not None else 0)
        steps.append(replace(step, seal_number=closing, read=NoRows(name, pipeline)))
    number = max(closing + 1, recorded.next_number)
    steps.append(replace(step, seal_number=number, read=NoRows(inherits=(name, closing))))
    # The version in which the seal was found: the log may have grown since ``recorded`` was read.
    steps[0] = replace(steps[0], planned_on=other.target_version)
    own_seal = replace(seal, pipeline=pipeline, number=number, successor=None)
    return replace(
        observed,
        recorded=replace(other, seal=own_seal, next_number=number + 1),
        before=tuple(steps),
        found=(_taken_over(pipeline, name, recorded.target.uri, seal),),
    )


async def _is_new_source(observed: Observation[R], target: DeltaLog, name: str) -> bool:
    """Return whether a source that inherits a predecessor had none: it is newer than the pipeline's name.

    A predecessor that had a seal is never a reason to load. Nor is the name of another pipeline that goes on
    with the same source: the pipeline may have had a third name.
    """
    request, pipeline = observed.request, observed.request.pipeline
    if not request.may_lack_predecessor or app_id(name) in await target.transactions():
        return False
    going_on = {
        other.rpartition(".")[0]
        for other, seal in (await owners_of(target, pipeline)).items()
        if seal.state.applied_to is not None and seal.state.applied_to.table_id == observed.source.table_id
    }
    # The same pipeline may load a table again under the name of another source.
    return going_on <= {pipeline.rpartition(".")[0]}


def _taken_over(pipeline: str, predecessor: str, target: str, seal: Seal) -> str:
    return f"Pipeline {pipeline} takes over {target} from {predecessor} at watermark {seal.watermark}."
