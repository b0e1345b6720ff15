"""Which versions to move, and how: everything that is decided before Spark starts, from the logs alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from delta_cdc import checks, gates
from delta_cdc.errors import (
    ChangeFeedDisabled,
    InvalidConfiguration,
    NotADeltaTable,
    RangeNotContiguous,
    SourceHistoryChanged,
    TableNotFound,
    TargetWithoutProof,
)
from delta_cdc.log.store import canonical_uri, spark_uri
from delta_cdc.log.table import DeltaLog, run_sync
from delta_cdc.properties import CHANGE_FEED, feed_on
from delta_cdc.reconcile import Backwards, Proof, reconcile_async, seal_of
from delta_cdc.spec import ApplySpec, ReadSpec, Staging, Step
from delta_cdc.versions import VersionRange
from delta_cdc.watermark import PlannedOn, app_id

if TYPE_CHECKING:
    from delta_cdc.log.actions import Commit
    from delta_cdc.log.table import TableState
    from delta_cdc.spec import ApplyOptions
    from delta_cdc.watermark import Seal

#: Returns what an earlier try of the same work decided, by pin key.
Pinned = Callable[[str], int | None]
_CHUNK = 64
#: For so long a retry of a load takes the seal number of the try before, in milliseconds.
_NUMBER_AGE = 7 * 86_400_000


def _unpinned(_: str) -> int | None:
    return None


@dataclass(frozen=True)
class ApplyRequest:
    """What one apply is asked to do.

    :param starting_version: explicit start (inclusive); without a target: the first version whose changes
        are applied, on top of the snapshot before it
    :param ending_version: explicit end (inclusive)
    :param max_versions: at most so many versions of the source in one commit
    :param initial_load: ``"snapshot"`` or ``{"from_version": N}``
    :param staging: location of a staging table whose open batch is applied instead of the source
    """

    pipeline: str
    source: str
    target: str
    options: ApplyOptions
    starting_version: int | None = None
    ending_version: int | None = None
    max_versions: int | None = None
    initial_load: str | dict[str, int] = "snapshot"
    staging: str | None = None
    run_id: str = ""
    storage_options: dict[str, str] | None = None


@dataclass(frozen=True)
class ReadRequest:
    """What one read into staging is asked to do; the baseline is the target's watermark."""

    pipeline: str
    table: str
    staging: str
    target: str
    starting_version: int | None = None
    ending_version: int | None = None
    max_versions: int | None = None
    run_id: str = ""
    storage_options: dict[str, str] | None = None


@dataclass(frozen=True)
class Plan:
    """What is to be done, decided from the logs.

    :param pin_key: under which the range's end is kept for a retry
    :param ending_version: the end that was decided
    :param versions: what the work covers; None where there is nothing to do
    :param spec: the job; None where there is nothing to do
    :param batch: read: the open batch in staging, where one is there already
    """

    source: TableState
    proof: Proof | None
    pin_key: str
    ending_version: int
    versions: VersionRange | None
    spec: ApplySpec | ReadSpec | None
    notes: tuple[str, ...] = ()
    batch: tuple[Seal, Commit] | None = None


def plan_apply(
    request: ApplyRequest,
    *,
    pinned_end: Pinned = _unpinned,
    pinned_number: Pinned = _unpinned,
    now_ms: int | None = None,
) -> Plan:
    """Decide what an apply has to do; see :func:`plan_apply_async`."""
    return run_sync(
        plan_apply_async(request, pinned_end=pinned_end, pinned_number=pinned_number, now_ms=now_ms)
    )


def plan_read(
    request: ReadRequest,
    *,
    pinned_end: Pinned = _unpinned,
    pinned_number: Pinned = _unpinned,
    now_ms: int | None = None,
) -> Plan:
    """Decide what a read into staging has to do; see :func:`plan_read_async`."""
    return run_sync(
        plan_read_async(request, pinned_end=pinned_end, pinned_number=pinned_number, now_ms=now_ms)
    )


async def plan_apply_async(
    request: ApplyRequest,
    *,
    pinned_end: Pinned = _unpinned,
    pinned_number: Pinned = _unpinned,
    now_ms: int | None = None,
) -> Plan:
    """Identify, reconcile, choose the range, and pass the gates. Starts no process and writes nothing.

    :param pinned_end: returns the end that an earlier try of the same work decided, by pin key
    :param pinned_number: returns the seal number of that try, where it found no target; such a number
        older than a week is not taken again
    :param now_ms: the time in epoch milliseconds
    :raises DeltaCdcError: a named error with its remedy for everything that stops the flow
    """
    _check_request(request)
    sight = await _look(_Wanted.of_apply(request), now_ms, pinned_number)
    if request.staging is not None:
        return await _plan_from_staging(request, sight)
    return await _plan_from_source(request, sight, pinned_end)


async def plan_read_async(
    request: ReadRequest,
    *,
    pinned_end: Pinned = _unpinned,
    pinned_number: Pinned = _unpinned,
    now_ms: int | None = None,
) -> Plan:
    """Decide which versions are to be staged; an open batch is returned as it is (``Plan.batch``).

    :raises DeltaCdcError: a named error with its remedy for everything that stops the flow
    """
    checks.check_pipeline(request.pipeline)
    checks.check_versions(request.starting_version, request.ending_version, request.max_versions)
    _refuse_same(source=request.table, target=request.target, staging=request.staging)
    sight = await _look(_Wanted.of_read(request), now_ms, pinned_number)
    return await _plan_read(request, sight, pinned_end)


# -- identify and reconcile ---------------------------------------------------------------------
@dataclass(frozen=True)
class _Wanted:
    """What apply and read have in common."""

    pipeline: str
    source: str
    target: str
    starting_version: int | None
    ending_version: int | None
    max_versions: int | None
    storage_options: dict[str, str] | None

    @classmethod
    def of_apply(cls, request: ApplyRequest) -> _Wanted:
        return cls(
            request.pipeline,
            request.source,
            request.target,
            request.starting_version,
            request.ending_version,
            request.max_versions,
            request.storage_options,
        )

    @classmethod
    def of_read(cls, request: ReadRequest) -> _Wanted:
        return cls(
            request.pipeline,
            request.table,
            request.target,
            request.starting_version,
            request.ending_version,
            request.max_versions,
            request.storage_options,
        )


@dataclass(frozen=True)
class _Sight:
    """Source and target as their logs show them now."""

    wanted: _Wanted
    log: DeltaLog
    source: TableState
    proof: Proof | None
    now_ms: int
    first_number: int

    @property
    def seal(self) -> Seal | None:
        return self.proof.seal if self.proof is not None else None

    @property
    def notes(self) -> tuple[str, ...]:
        return self.proof.notes if self.proof is not None else ()

    @property
    def next_number(self) -> int:
        return self.proof.next_number if self.proof is not None else self.first_number

    @property
    def planned_on(self) -> PlannedOn | None:
        if self.proof is None:
            return None
        return PlannedOn(self.proof.target.table_id, self.proof.target.version)

    @property
    def pin_key(self) -> str:
        return _pin_key(self.wanted.pipeline, self.source)

    def nothing(self, ending: int, *notes: str) -> Plan:
        return Plan(
            self.source,
            self.proof,
            self.pin_key,
            ending,
            None,
            None,
            (*self.notes, *notes),
        )


async def _look(wanted: _Wanted, now_ms: int | None, pinned_number: Pinned) -> _Sight:
    log = DeltaLog(wanted.source, wanted.storage_options)
    target = DeltaLog(wanted.target, wanted.storage_options)
    source, proof = await asyncio.gather(log.snapshot(), reconcile_async(target, wanted.pipeline))
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    first = _first_number(pinned_number(_pin_key(wanted.pipeline, source)), now)
    return _Sight(wanted, log, source, proof, now, first)


def _pin_key(pipeline: str, source: TableState) -> str:
    return f"pin:{pipeline}:{source.table_id}"


def _first_number(pinned: int | None, now_ms: int) -> int:
    """The seals of a new table start at the time, above those of an earlier table at its place.

    A retry takes the number of the try before it: the driver of that one may be alive, and both loads are
    the same work then. Only the first of them can create the table.
    """
    return pinned if pinned is not None and now_ms - _NUMBER_AGE < pinned <= now_ms else now_ms


# -- apply from the source ----------------------------------------------------------------------
async def _plan_from_source(request: ApplyRequest, sight: _Sight, pinned_end: Pinned) -> Plan:
    seal = sight.seal
    if seal is None:
        return await _plan_load(request, sight, pinned_end)
    checks.check_drift(seal, request.options, canonical_uri(request.target))
    chosen = await _choose(sight, seal, pinned_end)
    if isinstance(chosen, Plan):
        return chosen
    checks.check_columns(
        request.options,
        chosen.at_end.schema_columns,
        sight.source.uri,
        chosen.versions.ending_version,
    )
    step = replace(
        await _changes_step(sight, chosen, seal.applied_from),
        highest_sequence=seal.highest_sequence,
    )
    return _planned(request, sight, chosen.at_end, (step,), chosen.notes)


@dataclass(frozen=True)
class _Chosen:
    """A range with changes that passed its gates, and the source as of its end."""

    versions: VersionRange
    commits: tuple[Commit, ...]
    at_end: TableState
    notes: tuple[str, ...]

    @property
    def first_change(self) -> Commit:
        return next(commit for commit in self.commits if commit.changes_data)


async def _choose(sight: _Sight, seal: Seal, pinned_end: Pinned) -> _Chosen | Plan:
    """Choose the range after the watermark; a Plan where it holds nothing to do."""
    identity = await gates.check_identity(sight.log, sight.source, seal)
    notes: tuple[str, ...] = (identity.note,) if identity.note else ()
    bounds = _bounds(sight, seal.watermark, pinned_end(sight.pin_key))
    notes += bounds.notes
    if bounds.ending <= seal.watermark:
        return sight.nothing(seal.watermark, *notes)
    commits = await _up_to_changes(sight, seal.watermark + 1, bounds)
    ending = commits[-1].version
    if not any(commit.changes_data for commit in commits):
        text = f"No commit in versions {commits[0].version}-{ending} of {sight.source.uri} changes data."
        return sight.nothing(ending, *notes, text)
    at_end = await _state_at(sight, ending)
    chosen = _Chosen(VersionRange(commits[0].version, ending), commits, at_end, notes)
    try:
        return await _pass_gates(sight, chosen)
    except ChangeFeedDisabled as error:
        if identity.replaced:
            raise gates.replaced(sight.source, seal) from error
        raise


async def _pass_gates(sight: _Sight, chosen: _Chosen) -> _Chosen:
    first = chosen.first_change
    reading = tuple(commit for commit in chosen.commits if commit.version >= first.version)
    await gates.check_feed(sight.log, reading, chosen.at_end)
    notes = await gates.check_schema(sight.log, chosen.commits)
    gates.check_retention(first, sight.source, sight.now_ms)
    return replace(chosen, notes=(*chosen.notes, *notes))


@dataclass(frozen=True)
class _Bounds:
    """How far a range may go.

    :param chunk: at most so many versions from the first one that changes data; None = no limit
    """

    ending: int
    chunk: int | None
    notes: tuple[str, ...]


def _bounds(sight: _Sight, committed: int, pinned: int | None) -> _Bounds:
    wanted, newest, uri = sight.wanted, sight.source.version, sight.source.uri
    notes: list[str] = []
    start = wanted.starting_version
    if start is not None and start > committed + 1:
        raise RangeNotContiguous(
            f"starting_version {start} of {uri} would leave versions {committed + 1}-{start - 1} unapplied: "
            f"the watermark of pipeline {wanted.pipeline} is {committed}.",
            remedy=f"start at {committed + 1}, or leave starting_version out.",
        )
    _refuse_beyond(sight)
    ending = wanted.ending_version if wanted.ending_version is not None else newest
    if pinned is not None:
        ending = min(ending, pinned)
    ending = min(ending, newest)
    if start is not None and start <= committed:
        last = min(
            committed,
            wanted.ending_version if wanted.ending_version is not None else committed,
        )
        notes.append(
            f"Versions {start}-{max(last, start)} of {uri} are already applied and are left out (the "
            f"watermark is {committed})."
        )
    elif wanted.ending_version is not None and wanted.ending_version <= committed:
        notes.append(
            f"Everything up to version {wanted.ending_version} of {uri} is already applied (the watermark is "
            f"{committed})."
        )
    return _Bounds(ending, wanted.max_versions if pinned is None else None, tuple(notes))


def _refuse_beyond(sight: _Sight) -> None:
    end, newest = sight.wanted.ending_version, sight.source.version
    if end is not None and end > newest:
        raise RangeNotContiguous(
            f"ending_version {end} does not exist yet: the newest version of {sight.source.uri} is {newest}.",
            remedy=f"end at {newest} or before, or wait for the version.",
        )


async def _up_to_changes(sight: _Sight, starting: int, bounds: _Bounds) -> tuple[Commit, ...]:
    """Read the commits of the range; with a limit, no further than the limit needs.

    The limit is counted from the watermark, unless nothing there changes data: then from the first change,
    because a run of more maintenance commits than ``max_versions`` would otherwise never be passed.
    """
    if bounds.chunk is None:
        return await gates.read_range(sight.log, starting, bounds.ending)
    commits = await gates.read_range(sight.log, starting, min(bounds.ending, starting + bounds.chunk - 1))
    while not any(c.changes_data for c in commits) and commits[-1].version < bounds.ending:
        after = commits[-1].version + 1
        commits += await gates.read_range(sight.log, after, min(bounds.ending, after + _CHUNK - 1))
        first = next((c.version for c in commits if c.changes_data), None)
        if first is not None:
            last = min(bounds.ending, first + bounds.chunk - 1)
            if last > commits[-1].version:
                commits += await gates.read_range(sight.log, commits[-1].version + 1, last)
            commits = tuple(c for c in commits if c.version <= last)
    return commits


async def _state_at(sight: _Sight, version: int) -> TableState:
    return sight.source if version == sight.source.version else await sight.log.snapshot(version)


async def _changes_step(sight: _Sight, chosen: _Chosen, applied_from: int) -> Step:
    return Step(
        kind="apply",
        starting_version=chosen.versions.starting_version,
        ending_version=chosen.versions.ending_version,
        seal_number=sight.next_number,
        applied_from=applied_from,
        source_commit_hash=chosen.commits[-1].sha256,
        source_columns=chosen.at_end.schema_columns,
        planned_on=sight.planned_on,
        first_change=chosen.first_change.version,
    )


def _planned(
    request: ApplyRequest,
    sight: _Sight,
    at_end: TableState,
    steps: tuple[Step, ...],
    notes: tuple[str, ...],
) -> Plan:
    spec = ApplySpec(
        pipeline=request.pipeline,
        run_id=request.run_id,
        source_uri=spark_uri(request.source),
        source_table_id=at_end.table_id,
        target_uri=spark_uri(request.target),
        options=request.options,
        steps=steps,
    )
    starting = steps[0].starting_version if len(steps) == 1 else steps[1].starting_version
    ending = steps[-1].ending_version
    versions = VersionRange(starting, ending) if starting >= 0 else None
    return Plan(
        sight.source,
        sight.proof,
        sight.pin_key,
        ending,
        versions,
        spec,
        (*sight.notes, *notes),
    )


# -- initial load -------------------------------------------------------------------------------
async def _plan_load(request: ApplyRequest, sight: _Sight, pinned_end: Pinned) -> Plan:
    first = _from_version(request)
    _refuse_beyond(sight)
    ends = (sight.source.version, pinned_end(sight.pin_key), request.ending_version)
    ending = min(end for end in ends if end is not None)
    if first is not None:
        return await _plan_from_version(request, sight, first, ending)
    step, at = await _load_step(sight, ending)
    checks.check_columns(request.options, at.schema_columns, sight.source.uri, ending)
    return _planned(request, sight, at, (step,), _feed_warning(at))


def _from_version(request: ApplyRequest) -> int | None:
    if isinstance(request.initial_load, dict):
        return request.initial_load["from_version"]
    return request.starting_version


async def _load_step(sight: _Sight, version: int) -> tuple[Step, TableState]:
    """A snapshot of a version, as one sealed commit, and the source as of that version."""
    at = await _state_at(sight, version)
    commit = await sight.log.commit(version)
    if version < sight.source.version:
        gates.check_retention(commit, sight.source, sight.now_ms)
    step = Step(
        kind="load",
        starting_version=version,
        ending_version=version,
        seal_number=sight.next_number,
        applied_from=0,
        source_commit_hash=commit.sha256,
        source_columns=at.schema_columns,
        planned_on=sight.planned_on,
    )
    return step, at


async def _plan_from_version(request: ApplyRequest, sight: _Sight, first: int, ending: int) -> Plan:
    """The snapshot before a version, then the changes from it: two sealed commits."""
    if first > sight.source.version:
        raise RangeNotContiguous(
            f"Version {first}, from which changes are to be applied, does not exist yet: the newest version "
            f"of {sight.source.uri} is {sight.source.version}.",
            remedy=f"start at {sight.source.version} or before.",
        )
    if first > ending:
        raise RangeNotContiguous(
            f"starting_version {first} of {sight.source.uri} lies after the end {ending}.",
            remedy="end at the starting version or after it.",
        )
    load = await _load_before(sight, first)
    bounds = _Bounds(ending, request.max_versions, ())
    commits = await _up_to_changes(sight, first, bounds)
    ending = commits[-1].version
    at_end = await _state_at(sight, ending)
    checks.check_columns(request.options, at_end.schema_columns, sight.source.uri, ending)
    if not any(commit.changes_data for commit in commits):
        return _planned(request, sight, at_end, (load,), _feed_warning(at_end))
    chosen = await _pass_gates(sight, _Chosen(VersionRange(first, ending), commits, at_end, ()))
    apply = replace(
        await _changes_step(sight, chosen, 0),
        seal_number=load.seal_number + 1,
        planned_on=None,
    )
    return _planned(request, sight, at_end, (load, apply), chosen.notes)


async def _load_before(sight: _Sight, first: int) -> Step:
    if first > 0:
        step, _ = await _load_step(sight, first - 1)
        return step
    at = await _state_at(sight, 0)
    return Step(
        kind="load",
        starting_version=-1,
        ending_version=-1,
        seal_number=sight.next_number,
        applied_from=0,
        source_commit_hash="",
        source_columns=at.schema_columns,
        planned_on=sight.planned_on,
        empty=True,
    )


def _feed_warning(state: TableState) -> tuple[str, ...]:
    if feed_on(state.configuration):
        return ()
    warning = (
        f"The change data feed of {state.uri} is off in version {state.version}: this load needs none, but "
        "the next run will fail unless it is turned on first (DeltaEnableChangeDataFeedOperator, "
        f"{CHANGE_FEED})."
    )
    return (warning,)


# -- staging ------------------------------------------------------------------------------------
async def _open_batch(sight: _Sight, staging: DeltaLog) -> tuple[Seal, Commit] | None:
    """Return the staged batch that continues the target, if there is one.

    A batch is a function of the source and its range alone, so one that starts right after the watermark is
    right whatever happened since; its number tells it from one that was applied before a RESTORE.
    """
    found = await _newest_read(staging, sight.wanted.pipeline)
    if found is None or found[0].source_table_id != sight.source.table_id:
        return None
    batch, seal = found[0], sight.seal
    if seal is None:
        fits = batch.configuration.get("batch") == "snapshot"
        return found if fits and (sight.proof is None or batch.number >= sight.next_number) else None
    fits = batch.step.starting_version == seal.watermark + 1 and batch.number >= sight.next_number
    return found if fits and batch.configuration.get("batch") == "changes" else None


async def _newest_read(staging: DeltaLog, pipeline: str) -> tuple[Seal, Commit] | None:
    """Return the newest sealed batch of a staging table, taken back batches (RESTORE) aside."""
    try:
        state = await staging.snapshot()
    except (TableNotFound, NotADeltaTable):
        if await staging.left_over():
            return None
        raise
    if await staging.transaction(app_id(pipeline)) is None:
        if not await asyncio.to_thread(lambda: state.is_empty):
            raise TargetWithoutProof(
                f"The staging table {staging.uri} (version {state.version}) holds rows that pipeline "
                f"{pipeline} did not put there.",
                remedy="name a staging table of its own for every pipeline.",
            )
        return None
    back = Backwards(staging)
    for version in range(state.version, -1, -1):
        commit = await back.get(version)
        if commit is None:
            break
        seal = seal_of(commit, pipeline)
        if seal is not None and seal.step.kind == "read":
            return seal, commit
    return None


async def _plan_from_staging(request: ApplyRequest, sight: _Sight) -> Plan:
    assert request.staging is not None
    seal = sight.seal
    if seal is not None:
        checks.check_drift(seal, request.options, canonical_uri(request.target))
        await gates.check_identity(sight.log, sight.source, seal)
    found = await _open_batch(sight, DeltaLog(request.staging, request.storage_options))
    committed = seal.watermark if seal is not None else -1
    if found is None:
        text = f"Staging {canonical_uri(request.staging)} has no open batch of pipeline {request.pipeline}."
        return sight.nothing(committed, text)
    batch, commit = found
    ending = batch.watermark
    other = await gates.other_history(sight.log, sight.source, batch)
    if other is not None:
        raise SourceHistoryChanged(
            f"The batch {VersionRange(batch.step.starting_version, ending)} in staging "
            f"{canonical_uri(request.staging)} was read from another history of {sight.source.uri}: {other}.",
            remedy="read again (DeltaReadChangesOperator): a batch of the table as it is takes its place.",
        )
    at = await _state_at(sight, ending)
    checks.check_columns(request.options, at.schema_columns, sight.source.uri, ending)
    kind: Literal["changes", "snapshot"] = "snapshot" if seal is None else "changes"
    step = Step(
        kind="load" if seal is None else "apply",
        starting_version=batch.step.starting_version,
        ending_version=ending,
        seal_number=sight.next_number if sight.proof is not None else batch.number,
        applied_from=seal.applied_from if seal is not None else 0,
        source_commit_hash=batch.source_commit_hash,
        source_columns=at.schema_columns,
        planned_on=sight.planned_on,
        staging=Staging(spark_uri(request.staging), commit.version, kind),
        highest_sequence=seal.highest_sequence if seal is not None else None,
    )
    return _planned(request, sight, at, (step,), ())


async def _plan_read(request: ReadRequest, sight: _Sight, pinned_end: Pinned) -> Plan:
    staging = DeltaLog(request.staging, request.storage_options)
    found, discarded = await _batch_to_return(sight, staging)
    if found is not None:
        versions = VersionRange(found[0].step.starting_version, found[0].watermark)
        text = f"Staging {staging.uri} already holds the open batch {versions} of {sight.source.uri}."
        plan = sight.nothing(versions.ending_version, text)
        return replace(plan, versions=versions, batch=found)
    notes: tuple[str, ...]
    if sight.seal is None:
        step, at = await _read_snapshot(request, sight, pinned_end)
        notes, kind = _feed_warning(at), "snapshot"
    else:
        chosen = await _choose(sight, sight.seal, pinned_end)
        if isinstance(chosen, Plan):
            return replace(chosen, notes=(*discarded, *chosen.notes))
        at, notes, kind = chosen.at_end, chosen.notes, "changes"
        step = await _changes_step(sight, chosen, sight.seal.applied_from)
    checks.check_feed_columns(at.schema_columns, sight.source.uri, step.ending_version)
    number, planned_on = await _staging_turn(staging, request.pipeline, sight.next_number)
    step = replace(step, seal_number=number, planned_on=planned_on)
    spec = ReadSpec(
        pipeline=request.pipeline,
        run_id=request.run_id,
        source_uri=spark_uri(request.table),
        source_table_id=at.table_id,
        staging_uri=spark_uri(request.staging),
        step=step,
        kind="snapshot" if kind == "snapshot" else "changes",
    )
    versions = VersionRange(step.starting_version, step.ending_version)
    return Plan(
        sight.source,
        sight.proof,
        sight.pin_key,
        step.ending_version,
        versions,
        spec,
        (*sight.notes, *discarded, *notes),
    )


async def _batch_to_return(
    sight: _Sight, staging: DeltaLog
) -> tuple[tuple[Seal, Commit] | None, tuple[str, ...]]:
    found = await _open_batch(sight, staging)
    other = await gates.other_history(sight.log, sight.source, found[0]) if found is not None else None
    if other is None:
        return found, ()
    text = f"The open batch in staging {staging.uri} was read from another history of {sight.source.uri}"
    return None, (f"{text} ({other}) and is replaced.",)


async def _read_snapshot(request: ReadRequest, sight: _Sight, pinned_end: Pinned) -> tuple[Step, TableState]:
    if request.starting_version is not None:
        raise InvalidConfiguration(
            f"starting_version {request.starting_version} is given, and the target "
            f"{canonical_uri(request.target)} has no watermark yet: the first batch is a snapshot.",
            remedy="leave starting_version out, or load the target with DeltaApplyChangesOperator first.",
        )
    _refuse_beyond(sight)
    ends = (sight.source.version, pinned_end(sight.pin_key), request.ending_version)
    return await _load_step(sight, min(end for end in ends if end is not None))


async def _staging_turn(staging: DeltaLog, pipeline: str, number: int) -> tuple[int, PlannedOn | None]:
    """Return the number and state to write a batch on.

    A batch that was read but never applied leaves staging a number ahead after the target was restored; a
    new batch has to come after it, or Delta would skip it.
    """
    try:
        state = await staging.snapshot()
    except (TableNotFound, NotADeltaTable):
        return number, None
    stored = await staging.transaction(app_id(pipeline))
    return max(number, (stored or 0) + 1), PlannedOn(state.table_id, state.version)


# -- the request alone --------------------------------------------------------------------------
def _check_request(request: ApplyRequest) -> None:
    checks.check_pipeline(request.pipeline)
    checks.check_versions(request.starting_version, request.ending_version, request.max_versions)
    checks.check_options(request.options)
    _refuse_same(source=request.source, target=request.target, staging=request.staging)
    load = request.initial_load
    if load == "snapshot":
        return
    if not isinstance(load, dict) or set(load) != {"from_version"} or not _is_version(load["from_version"]):
        raise InvalidConfiguration(
            f"initial_load is {load!r}.",
            remedy='use "snapshot", or {"from_version": N} with N >= 0.',
        )
    if request.staging is not None:
        raise InvalidConfiguration(
            "initial_load from_version and staging are both given.",
            remedy="the first batch of a staging table is a snapshot; leave initial_load out.",
        )


def _is_version(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _refuse_same(**tables: str | None) -> None:
    seen: dict[str, str] = {}
    for role, table in tables.items():
        if table is None:
            continue
        uri = canonical_uri(table)
        if uri in seen:
            raise InvalidConfiguration(
                f"{seen[uri]} and {role} are the same table, {uri}.",
                remedy="name two different tables.",
            )
        seen[uri] = role
