"""Plans an apply: an initial load, the changes after the watermark, a staged batch, or a seal alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from delta_cdc import checks, gates
from delta_cdc.errors import (
    ChangeFeedDisabled,
    InvalidConfiguration,
    NotInsertOnly,
    RangeNotContiguous,
    SourceHistoryChanged,
    SourceTableReplaced,
    VersionsExpired,
)
from delta_cdc.log.schema import leaf_paths
from delta_cdc.log.store import canonical_uri, spark_uri
from delta_cdc.log.table import DeltaLog, run_sync
from delta_cdc.plan import events, intervals, modes, quarantine, ranges
from delta_cdc.plan.ranges import load_step
from delta_cdc.plan.request import ApplyRequest, Memory
from delta_cdc.plan.result import Plan
from delta_cdc.plan.sight import carrying, look
from delta_cdc.plan.staging import open_batch
from delta_cdc.properties import CHANGE_FEED, feed_on
from delta_cdc.retention import reseal_due
from delta_cdc.spec import ApplySpec, QueryOptions, Staging, Step
from delta_cdc.versions import VersionRange

if TYPE_CHECKING:
    from typing import Literal

    from delta_cdc.log.table import TableState
    from delta_cdc.plan.ranges import Nothing
    from delta_cdc.plan.sight import Sight
    from delta_cdc.spec import ApplyOptions
    from delta_cdc.watermark import Seal


def plan_apply(request: ApplyRequest, memory: Memory | None = None) -> Plan:
    """Decide what an apply has to do; see :func:`plan_apply_async`."""
    return run_sync(plan_apply_async(request, memory))


async def plan_apply_async(request: ApplyRequest, memory: Memory | None = None) -> Plan:
    """Identify, reconcile, choose the range, and pass the gates. Starts no process and writes nothing.

    :param memory: what is known of earlier tries; the logs are what counts
    :raises DeltaCdcError: a named error with its remedy for everything that stops the flow
    """
    request.check()
    sight = await look(request, memory or Memory())
    if request.mode == "interval":
        found = await intervals.resolved(request, sight)
        if isinstance(found, Plan):
            return found
        request, sight = found
    if request.mode == "reset" and sight.proof is not None:
        return await _reset(request, sight)
    seal, refused = sight.seal, sight.proof.refused if sight.proof is not None else None
    if refused is not None:
        return _worked(request, sight, await modes.reload(request, sight, refused))
    drifted: tuple[str, ...] = ()
    if seal is not None:
        drifted = checks.check_drift(
            seal,
            request.options,
            canonical_uri(request.target),
            request.on_drift,
            leaf_paths(sight.source.schema_string),
        )
        sight = replace(sight, found=(*sight.found, *drifted))
    if seal is None:
        return await _first(request, sight)
    if request.mode == "repair":
        if drifted and request.on_drift == "repair":
            raise modes.reload_first(request, sight, seal)
        return await _repair(request, sight, seal)
    if request.mode == "reload" or (drifted and request.on_drift == "repair"):
        return await _reload(request, sight, seal)
    return await _onwards(request, sight, seal)


async def _first(request: ApplyRequest, sight: Sight) -> Plan:
    """Plan the first commit of a target, whichever mode was asked for: there is nothing to compare with."""
    if request.mode == "repair":
        raise modes.nothing_to_repair(request)
    if request.staging is not None:
        return await _from_staging(request, sight, request.staging)
    return await _load(*await quarantine.resumed(request, sight))


async def _onwards(request: ApplyRequest, sight: Sight, seal: Seal) -> Plan:
    """Plan what comes after the watermark, or a reload where that is not to be had and a policy says so."""
    try:
        if request.staging is None:
            return await _from_watermark(*await quarantine.resumed(request, sight), seal)
        await gates.check_identity(sight.log, sight.source, seal)
    except (SourceTableReplaced, SourceHistoryChanged) as error:
        if request.on_source_replaced != "reload":
            raise
        return _worked(request, sight, await modes.reload(request, sight, error))
    except VersionsExpired as error:
        if request.on_versions_expired != "reload":
            raise
        return _worked(request, sight, await modes.reload(request, sight, error))
    return await _from_staging(request, sight, request.staging)


# -- modes --------------------------------------------------------------------------------------
def _worked(request: ApplyRequest, sight: Sight, work: modes.Work) -> Plan:
    return _planned(request, sight, work.at_end, work.steps, work.notes, work.versions)


async def _reload(request: ApplyRequest, sight: Sight, seal: Seal) -> Plan:
    because: SourceTableReplaced | SourceHistoryChanged | None = None
    notes: tuple[str, ...] = ()
    try:
        identity = await gates.check_identity(sight.log, sight.source, seal)
        notes = (identity.note,) if identity.note else ()
    except (SourceTableReplaced, SourceHistoryChanged) as error:
        if request.on_source_replaced != "reload":
            raise
        because = error
    work = await modes.reload(request, sight, because)
    return _worked(request, sight, replace(work, notes=(*notes, *work.notes)))


async def _repair(request: ApplyRequest, sight: Sight, seal: Seal) -> Plan:
    asked = _asked(request.options)
    if asked.is_net:
        # Which keys have changed is asked, whatever became of them.
        asked = QueryOptions("full_delta")
    copies = request.options.source_kind == "snapshot" and not request.options.takes_events
    try:
        found = await modes.repair(request, sight, seal, asked, one_by_one=copies)
    except ChangeFeedDisabled:
        if checks.needs_history(request.options) or request.options.takes_events:
            raise
        # Which keys a version changed is told by its two ends, too.
        found = await modes.repair(request, sight, seal, asked, one_by_one=True)
    if isinstance(found, modes.Work):
        return _worked(request, sight, found)
    return sight.nothing(seal.watermark, *found.notes)


async def _reset(request: ApplyRequest, sight: Sight) -> Plan:
    """Plan a load in the place of all rows."""
    assert sight.proof is not None
    target, refused = canonical_uri(request.target), sight.proof.refused
    why = f"{refused.message} " if refused is not None else ""
    plan = await _load(request, sight)
    assert isinstance(plan.spec, ApplySpec)
    at = len(sight.before)
    steps = plan.spec.steps
    reset = replace(steps[at], kind="reset")
    spec = replace(plan.spec, steps=(*steps[:at], reset, *steps[at + 1 :]))
    note = f"{why}All rows of {target} are thrown away and loaded anew (reset)."
    return replace(plan, spec=spec, notes=(note, *plan.notes))


# -- after the watermark ------------------------------------------------------------------------
async def _from_watermark(request: ApplyRequest, sight: Sight, seal: Seal) -> Plan:
    chosen = await ranges.choose(sight, seal)
    if not isinstance(chosen, ranges.Chosen):
        return await _seal_alone(request, sight, seal, chosen)
    made, said = await _steps(request, sight, chosen, sight.next_number, seal.applied_from)
    known = events.since(seal.horizons, chosen.tracked_from)
    # Where another pipeline's state is taken over first, the engine takes them from there.
    before = tuple(replace(step, known_horizons=known) for step in sight.before)
    sight = replace(sight, before=before)
    first = replace(
        made[0],
        planned_on=sight.planned_on,
        highest_sequence=seal.highest_sequence,
        truncate_sequences=seal.truncate_sequences,
        known_horizons=known,
        loaded_version=seal.loaded_version,
        configuration=seal.configuration,
    )
    notes = (*chosen.notes, *said)
    return _planned(request, sight, chosen.at_end, (first, *made[1:]), notes, chosen.versions)


async def _steps(
    request: ApplyRequest, sight: Sight, chosen: ranges.Chosen, number: int, applied_from: int
) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    columns, ending = chosen.at_end.schema_columns, chosen.versions.ending_version
    checks.check_columns(request.options, columns, sight.source.uri, ending)
    try:
        return await ranges.steps(
            sight,
            chosen,
            _asked(request.options),
            number=number,
            applied_from=applied_from,
            versions=request.milestone_versions,
            size=request.milestone_bytes,
            one_by_one=_is_copied(request.options),
        )
    except ChangeFeedDisabled as error:
        if not request.options.insert_only:
            raise
        # Without the feed a commit that only adds can be read, so this one does more.
        raise NotInsertOnly(
            f"{error.message} The pipeline {request.pipeline} is insert_only.",
            remedy="give keys, drop insert_only and load a new target; or keep to inserts in the source.",
        ) from error


def _asked(options: ApplyOptions) -> QueryOptions:
    """Return what of the changes matters.

    Of events, which rows came. Else to type 1 their net effect by key, and to type 2 each of them; also to
    type 1 where a change carries some of the columns only, or a deleted row stays.
    """
    if options.insert_only or options.takes_events:
        return QueryOptions("append_only")
    if not _needs_every(options):
        return QueryOptions("min_delta", keys=options.keys)
    return QueryOptions("full_delta")


def _is_copied(options: ApplyOptions) -> bool:
    """Tell whether each version is a full copy whose files say nothing of what changed."""
    return options.source_kind == "snapshot" and not options.takes_events and _needs_every(options)


def _needs_every(options: ApplyOptions) -> bool:
    """Tell whether the changes between the ends of a range matter: a soft delete leaves the last values."""
    return options.stored_as_scd_type == 2 or options.is_partial or options.delete_mode == "soft"


def _planned(
    request: ApplyRequest,
    sight: Sight,
    at_end: TableState,
    steps: tuple[Step, ...],
    notes: tuple[str, ...],
    versions: VersionRange | None,
) -> Plan:
    spec = ApplySpec(
        pipeline=request.pipeline,
        run_id=request.run_id,
        source_uri=spark_uri(request.source),
        source_table_id=at_end.table_id,
        target_uri=spark_uri(request.target),
        options=request.options,
        steps=(*sight.before, *steps),
        single_driver=request.single_driver,
        quarantine_uri=request.quarantine or "",
        dry_run=request.dry_run,
    )
    ending = spec.steps[-1].ending_version
    return Plan(
        sight.source, sight.proof, sight.pin_key, ending, versions, spec, notes=(*sight.notes, *notes)
    )


# -- nothing to apply ---------------------------------------------------------------------------
async def _seal_alone(request: ApplyRequest, sight: Sight, seal: Seal, found: Nothing) -> Plan:
    """Plan no rows: nothing at all, or a seal that is due.

    :raises SchemaChangeInRange: a seal is due, and would carry the watermark over a column that was lost
    """
    if sight.before:
        return _planned(request, sight, sight.source, (), found.notes, None)
    assert sight.proof is not None
    due = reseal_due(sight.source, sight.proof, sight.now_ms)
    if due is None:
        return sight.nothing(found.ending, *found.notes)
    notes = await gates.check_schema(sight.log, found.commits) if found.commits else ()
    step = replace(
        carrying(seal, "reseal"),
        starting_version=min(seal.watermark + 1, found.ending),
        ending_version=found.ending,
        seal_number=sight.next_number,
        source_commit_hash=found.source_commit_hash,
        planned_on=sight.planned_on,
        known_horizons=events.since(seal.horizons, found.tracked_from),
    )
    return _planned(request, sight, sight.source, (step,), (*found.notes, *notes, due), None)


# -- initial load -------------------------------------------------------------------------------
async def _load(request: ApplyRequest, sight: Sight) -> Plan:
    """Plan the first commit of a target, and the changes after it where it starts in the past."""
    ranges.refuse_beyond(sight)
    if request.initial_load != "snapshot" and sight.starting is not None:
        raise InvalidConfiguration(
            f"The start {sight.starting} and initial_load {request.initial_load!r} are both given, and the "
            f"target {canonical_uri(request.target)} has no watermark yet.",
            remedy="leave the start out for the first run.",
        )
    ends = (sight.source.version, sight.pinned_end, sight.ending)
    ending = min(end for end in ends if end is not None)
    first = _first_version(request, sight)
    if first is None:
        load, at = await load_step(sight, ending, declared=request.declares_state)
        return _load_alone(request, sight, load, at)
    _check_first(sight, first, ending)
    load, at = await _load_before(sight, first, declared=request.declares_state)
    found = await ranges.choose_after(sight, first - 1, ending, ()) if first <= ending else None
    if not isinstance(found, ranges.Chosen):
        return _load_alone(request, sight, load, at)
    load = replace(load, horizons=events.since(load.horizons, found.tracked_from))
    made, said = await _steps(request, sight, found, load.seal_number + 1, 0)
    return _planned(request, sight, found.at_end, (load, *made), (*found.notes, *said), found.versions)


def _load_alone(request: ApplyRequest, sight: Sight, load: Step, at: TableState) -> Plan:
    version = load.ending_version
    checks.check_columns(request.options, at.schema_columns, sight.source.uri, version)
    versions = None if load.is_empty else VersionRange(version, version)
    warnings = feed_warning(at) if request.options.source_kind == "change_feed" else ()
    return _planned(request, sight, at, (load,), warnings, versions)


def _first_version(request: ApplyRequest, sight: Sight) -> int | None:
    """Return the first version whose changes are applied; None where the load covers everything."""
    load = request.initial_load
    if isinstance(load, dict):
        return load["from_version"] if "from_version" in load else load["none_at"] + 1
    return None if load == "none" else sight.starting


def _check_first(sight: Sight, first: int, ending: int) -> None:
    newest, uri = sight.source.version, sight.source.uri
    if first > newest + 1 or (first > newest and not _declares(sight)):
        raise RangeNotContiguous(
            f"Version {first}, from which changes are to be applied, does not exist yet: the newest version "
            f"of {uri} is {newest}.",
            remedy=f"start at {newest} or before.",
        )
    if first > ending and not _declares(sight):
        raise RangeNotContiguous(
            f"starting_version {first} of {uri} lies after the end {ending}.",
            remedy="end at the starting version or after it.",
        )


def _declares(sight: Sight) -> bool:
    return isinstance(sight.request, ApplyRequest) and sight.request.declares_state


async def _load_before(sight: Sight, first: int, *, declared: bool) -> tuple[Step, TableState]:
    if first > 0:
        return await load_step(sight, first - 1, declared=declared)
    at = await sight.at(0)
    step = Step(
        kind="load",
        starting_version=-1,
        ending_version=-1,
        seal_number=sight.next_number,
        applied_from=0,
        source_commit_hash="",
        source_columns=at.schema_columns,
        planned_on=sight.planned_on,
    )
    return step, at


def feed_warning(state: TableState) -> tuple[str, ...]:
    """Say what the next run of a source without a change feed has to do."""
    if feed_on(state.configuration):
        return ()
    warning = (
        f"The change data feed of {state.uri} is off in version {state.version}. This load needs none; the "
        "next run reads changes at greater cost (row ids, or both ends compared by key), or fails where "
        "nothing else can serve, unless it is turned on first (DeltaEnableChangeDataFeedOperator, "
        f"{CHANGE_FEED})."
    )
    return (warning,)


# -- staging ------------------------------------------------------------------------------------
async def _from_staging(request: ApplyRequest, sight: Sight, uri: str) -> Plan:
    seal = sight.seal
    if seal is not None:
        await gates.check_identity(sight.log, sight.source, seal)
    found = await open_batch(sight, DeltaLog(uri, request.storage_options))
    if found is None:
        text = f"Staging {canonical_uri(uri)} has no open batch of pipeline {request.pipeline}."
        if seal is None:
            return sight.nothing(-1, text)
        idle = await ranges.choose(sight, seal)
        if isinstance(idle, ranges.Chosen):
            # Work for the read; the watermark stays, and so does its seal's turn.
            idle = ranges.Nothing(seal.watermark, seal.source_commit_hash, ())
        return await _seal_alone(request, sight, seal, replace(idle, notes=(*idle.notes, text)))
    batch, commit = found
    ending = batch.watermark
    other = await gates.other_history(sight.log, sight.source, batch)
    if other is not None:
        raise SourceHistoryChanged(
            f"The batch {VersionRange(batch.step.starting_version, ending)} in staging "
            f"{canonical_uri(uri)} was read from another history of {sight.source.uri}: {other}.",
            remedy="read again (DeltaReadChangesOperator): a batch of the table as it is takes its place.",
        )
    at = await sight.at(ending)
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
        staging=Staging(spark_uri(uri), commit.version, kind),
        highest_sequence=seal.highest_sequence if seal is not None else None,
        truncate_sequences=seal.truncate_sequences if seal is not None else (),
        loaded_version=seal.loaded_version if seal is not None else -1,
        configuration=seal.configuration if seal is not None else {},
    )
    return _planned(request, sight, at, (step,), (), VersionRange(step.starting_version, ending))
