"""Plans an apply: an initial load, the changes after the watermark, a staged batch, or only a new seal."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from delta_cdc.core import change_log, validation
from delta_cdc.core.errors import (
    ChangeFeedDisabled,
    ConfigurationDrift,
    DeltaCdcError,
    EmptyCopy,
    InvalidConfiguration,
    LogGap,
    NotInsertOnly,
    RangeNotContiguous,
    SourceHistoryChanged,
    SourceTableReplaced,
    TargetSchemaClash,
    VersionsExpired,
    WatermarkExpired,
    invalid,
)
from delta_cdc.core.options import QueryOptions
from delta_cdc.core.properties import CHANGE_FEED, feed_on, tracks_rows
from delta_cdc.core.quarantine import quarantine_of, settling_of
from delta_cdc.core.rules import check_apply, check_options, check_order
from delta_cdc.core.steps import Changes, NoRows, Snapshot, Staging, Step
from delta_cdc.core.uris import canonical_uri, spark_uri
from delta_cdc.core.value_rules import those_that
from delta_cdc.core.versions import VersionRange
from delta_cdc.core.watermark import PipelineState, TableVersion, app_id
from delta_cdc.delta_log.schema_changes import leaf_paths
from delta_cdc.delta_log.table import DeltaLog, TableState, run_sync
from delta_cdc.planning import (
    appended_events,
    date_intervals,
    followed_columns,
    modes,
    preconditions,
    quarantine,
    ranges,
)
from delta_cdc.planning.memory import Memory
from delta_cdc.planning.observe import (
    Observation,
    look,
    predecessors_seal,
    recorded_in_target,
    taking_over,
)
from delta_cdc.planning.plan import Plan
from delta_cdc.planning.ranges import load_step
from delta_cdc.planning.renewal import renewal_due
from delta_cdc.planning.staging import open_batch

if TYPE_CHECKING:
    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.core.requests import ApplyRequest
    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.planning.ranges import Nothing


#: Errors of a source whose changes since the watermark are lost, or are not its changes.
_OF_A_LOST_SOURCE = (
    *(VersionsExpired, LogGap, WatermarkExpired),
    *(SourceTableReplaced, SourceHistoryChanged, EmptyCopy),
)
_ANOTHER_NAME = (
    "give this source another name (without take_over_from). Then it is loaded again, and equal events count "
    "once; rows deleted meanwhile stay."
)


def plan_apply(request: ApplyRequest, memory: Memory | None = None) -> Plan:
    """Plan an apply; see :func:`plan_apply_async`."""
    return run_sync(plan_apply_async(request, memory))


async def plan_apply_async(request: ApplyRequest, memory: Memory | None = None) -> Plan:
    """Identify the tables, reconcile, choose the range, and check the preconditions.

    Starts no process and writes nothing.

    :param memory: saved state of earlier tries; the logs take precedence
    :raises DeltaCdcError: a named error with its remedy for everything that stops the flow
    """
    check_apply(request)
    if request.once:
        done = await _done_once(request, memory or Memory())
        if done is not None:
            return done
    observed = await look(request, memory or Memory())
    observed = replace(observed, request=replace(request, options=_completed(request, observed.source)))
    if request.mode == "interval":
        resolved = await date_intervals.resolved(observed)
        if isinstance(resolved, Plan):
            return resolved
        observed = resolved
    _refuse_other_table(observed)
    try:
        return await _planned(observed)
    except _OF_A_LOST_SOURCE as error:
        if not request.options.writes_events or observed.seal is None:
            raise
        # Its modes and policies are for tables of rows; and its target has the events of other sources, too.
        raise type(error)(error.message, remedy=_ANOTHER_NAME) from error


async def lasting_drift(request: ApplyRequest, memory: Memory) -> ConfigurationDrift | None:
    """Return why an apply will fail whatever its source gets before; None if that is not known.

    The options differ from those that the target was built with. All other errors depend on the source, or
    pass.

    :param memory: as for :func:`plan_apply_async`
    """
    try:
        check_apply(request)
        observed = await look(request, memory)
        if observed.seal is not None and request.mode != "reset":
            _drifted(
                replace(request, options=_completed(request, observed.source)), observed.source, observed.seal
            )
    except ConfigurationDrift as error:
        return error
    except DeltaCdcError:
        return None
    return None


async def _planned(observed: Observation[ApplyRequest]) -> Plan:
    """Return the plan of a run whose source and target are known."""
    request = observed.request
    if request.mode == "reset" and observed.recorded is not None:
        return await _reset(observed)
    seal, refused = observed.seal, observed.recorded.refused if observed.recorded is not None else None
    if refused is not None:
        return await modes.reload(observed, refused)
    drifted: tuple[str, ...] = ()
    if seal is not None:
        drifted = _drifted(request, observed.source, seal)
        observed = replace(observed, found=(*observed.found, *drifted))
        if drifted:
            changes = " ".join(drifted).rstrip(".")
            observed = preconditions.asking(observed, "drift", f"its options have changed: {changes}")
    if seal is None:
        return await _first(observed)
    if request.mode == "repair":
        if drifted and request.on_drift == "repair":
            raise modes.reload_first(observed, seal)
        return await _repair(observed, seal)
    if request.mode == "reload" or (drifted and request.on_drift == "repair"):
        return await _reload(observed, seal)
    return await _continued(observed, seal)


async def _done_once(request: ApplyRequest, memory: Memory) -> Plan | None:
    """Return the plan of a pipeline that has loaded its source once; None if it has to load it.

    It does not look at the source, which may be gone. What the seal says of the source stands for it.
    """
    recorded = await recorded_in_target(request, memory)
    if recorded is None:
        return None
    seal = recorded.seal
    if seal is None or seal.successor is not None:
        seal = await predecessors_seal(request)
    if seal is None:
        return None
    source = TableState(
        uri=canonical_uri(request.source),
        table_id=seal.watermark.table_id,
        version=seal.watermark.version,
        configuration={},
        schema_columns=(),
        schema_string="",
        partition_columns=(),
        created_time=None,
        features=(),
    )
    options = request.options
    observed = Observation(
        request=replace(request, options=change_log.events_of_tables(options))
        if options.writes_events
        else request,
        log=DeltaLog(request.source, request.storage_options),
        source=source,
        recorded=recorded,
        now_ms=time.time_ns() // 1_000_000 if memory.now_ms is None else memory.now_ms,
        first_number=recorded.next_number,
        starting=None,
        ending=None,
        saved_end=None,
        found=(f"{source.uri} is loaded once: version {seal.watermark}. Nothing is read from it.",),
    )
    observed = await taking_over(observed)
    return await _seal_alone(observed, seal, ranges.Nothing(seal.watermark, ()))


def _refuse_other_table(observed: Observation[ApplyRequest]) -> None:
    """Refuse to append events to a table that is no change log: they would become rows of it.

    :raises TargetSchemaClash: it lacks the columns of a log
    """
    if not observed.request.options.writes_events or observed.recorded is None:
        return
    target = observed.recorded.target
    missing = [name for name in change_log.LOG_COLUMNS if name not in target.schema_columns]
    if missing:
        raise TargetSchemaClash(
            f"The target {target.uri} has no column {', '.join(missing)}, so it is no change log, and "
            "target_kind is 'change_log'.",
            remedy="name another table: the run makes a log that does not exist.",
        )


def _drifted(request: ApplyRequest, source: TableState, seal: Seal) -> tuple[str, ...]:
    """Return the accepted changes of options since the seal, one sentence each."""
    target, paths = canonical_uri(request.target), leaf_paths(source.schema_string)
    try:
        return validation.check_drift(seal, request.options, target, request.on_drift, paths)
    except ConfigurationDrift:
        # If the source lacks a named column, a misspelling is the mistake to report.
        validation.check_columns(request.options, source.schema_columns, source.uri, source.version)
        raise


def _completed(request: ApplyRequest, source: TableState) -> ApplyOptions:
    """Return the options, completed with those that a change log describes itself.

    :raises InvalidConfiguration: the order of events, or whether the source is a change log, is unknown
    """
    if request.staging is not None:
        # Staging holds the changes of a table, even if that table is a change log.
        return change_log.completed(request.options, {})
    options = change_log.completed(request.options, source.configuration)
    check_order(options)
    if options.writes_events:
        # The source may describe itself as a change log.
        check_options(options)
        return change_log.events_of_tables(options)
    is_log = all(name in source.schema_columns for name in change_log.LOG_COLUMNS)
    if (
        is_log
        and request.options.source_kind is None
        and options.source_kind != "change_log"
        and options.keys
    ):
        raise invalid(
            f"source_kind is missing, and {source.uri} has the columns of a change log, but no properties "
            "that describe it",
            "set source_kind to 'change_log', with sequence_by='_sequence'; or run the log's ingest again, "
            "which sets the properties; or set it to 'change_feed', to copy the rows of the log as they are.",
            "source_kind",
        )
    return options


async def _first(observed: Observation[ApplyRequest]) -> Plan:
    """Plan the first commit of a target. A repair is an error; all other modes load the target here."""
    request = observed.request
    if request.mode == "repair":
        raise modes.nothing_to_repair(request)
    if request.staging is not None:
        return await _from_staging(observed, request.staging)
    if request.options.writes_events:
        observed = replace(observed, found=(*observed.found, *await _other_sources(observed)))
    return await _load(await quarantine.resumed(observed))


async def _other_sources(observed: Observation[ApplyRequest]) -> tuple[str, ...]:
    """Return a note about the other pipelines of a change log, of which one may be this one's old name."""
    request, prefix = observed.request, app_id("")
    if observed.recorded is None:
        return ()
    apps = await DeltaLog(request.target, request.storage_options).transactions()
    names = sorted(app.removeprefix(prefix) for app in apps if app.startswith(prefix))
    if not names:
        return ()
    note = (
        f"{request.pipeline} is new in {observed.recorded.target.uri}, which has events of "
        f"{', '.join(names)}. If it had another name before, set take_over_from to that name."
    )
    return (note,)


async def _continued(observed: Observation[ApplyRequest], seal: Seal) -> Plan:
    """Plan the changes after the watermark; if they are unavailable and a policy allows it, a reload."""
    request = observed.request
    await quarantine.refuse_missing(observed, seal)
    try:
        if request.staging is None:
            return await _from_watermark(await quarantine.resumed(observed), seal)
        await preconditions.check_identity(observed.log, observed.source, seal)
    except (SourceTableReplaced, SourceHistoryChanged) as error:
        if request.on_source_replaced != "reload":
            raise
        return await modes.reload(observed, error)
    except VersionsExpired as error:
        if request.on_versions_expired != "reload":
            raise
        return await modes.reload(observed, error)
    await _refuse_dropped_rules(observed, seal)
    return await _from_staging(observed, request.staging)


# -- modes --------------------------------------------------------------------------------------
async def _reload(observed: Observation[ApplyRequest], seal: Seal) -> Plan:
    request = observed.request
    because: SourceTableReplaced | SourceHistoryChanged | None = None
    notes: tuple[str, ...] = ()
    try:
        identity = await preconditions.check_identity(observed.log, observed.source, seal)
        notes = (identity.note,) if identity.note else ()
    except (SourceTableReplaced, SourceHistoryChanged) as error:
        if request.on_source_replaced != "reload":
            raise
        because = error
    plan = await modes.reload(observed, because)
    return replace(plan, notes=(*notes, *plan.notes))


async def _repair(observed: Observation[ApplyRequest], seal: Seal) -> Plan:
    request = observed.request
    await quarantine.refuse_missing(observed, seal)
    if not request.repair_quarantined:
        await _refuse_dropped_rules(observed, seal)
    query = query_for(request.options)
    if query.is_net:
        # A repair needs every key that changed, also one whose net change is empty.
        query = QueryOptions("full_delta")
    try:
        return await modes.repair(observed, seal, query, one_by_one=request.options.takes_copies)
    except ChangeFeedDisabled:
        if validation.needs_history(request.options) or request.options.takes_events:
            raise
        # Without the change feed, comparing each version with the one before also gives the changed keys.
        return await modes.repair(observed, seal, query, one_by_one=True)


async def _reset(observed: Observation[ApplyRequest]) -> Plan:
    """Plan a load that replaces all rows."""
    request = observed.request
    assert observed.recorded is not None
    target, refused = canonical_uri(request.target), observed.recorded.refused
    plan = await _load(preconditions.asking(observed, "reset", "it would delete and load all rows"))
    assert plan.spec is not None
    position = len(observed.before)
    steps = plan.spec.steps
    load = steps[position]
    await preconditions.refuse_empty_copy(request, await observed.at(max(load.ending_version, 0)))
    reset = replace(load, kind="reset")
    seal = observed.recorded.seal
    if seal is not None and not observed.before and (left := settling_of(seal.state.configuration)):
        # Of the state before, only what its last step has left to do.
        before = PipelineState(load.watermark, load.at, loaded_version=load.at, configuration=left)
        reset = replace(reset, before=before)
    spec = replace(plan.spec, steps=(*steps[:position], reset, *steps[position + 1 :]))
    note = f"Reset: the run deletes all rows of {target}, and loads the target again."
    if refused is not None:
        note = f"{refused.message} {note}"
    return replace(plan, spec=spec, notes=(note, *plan.notes))


# -- after the watermark ------------------------------------------------------------------------
async def _refuse_dropped_rules(observed: Observation[ApplyRequest], seal: Seal) -> None:
    """Refuse to go on with a history whose rules were dropped before the quarantine was replayed.

    If nothing sets changes aside, a run relies on the target having the state before each change of the feed.
    Of a key with a row in quarantine, the target has an older one.

    :raises ConfigurationDrift: names the rules, and what to do first
    """
    request = observed.request
    options, sealed = request.options, validation.options_of(seal)
    if options.takes_events or not validation.needs_history(options) or options.sets_changes_aside:
        return
    if not sealed.sets_changes_aside:
        return
    quarantine_uri = quarantine_of(request.target)
    # A take-over, which has not happened yet, gives the rows of the other pipeline to this one.
    inherited = [step.read.inherits[0] for step in observed.before if step.read.inherits is not None]
    for pipeline in (seal.pipeline, *inherited):
        if not await quarantine.may_replay(quarantine_uri, pipeline, request.storage_options):
            continue
        names = ", ".join(those_that(sealed.rules, "quarantine"))
        dropped = f"its rules {names}" if names else "on_invalid 'quarantine'"
        raise ConfigurationDrift(
            f"{canonical_uri(request.target)} is a history without {dropped} now, "
            f"and {canonical_uri(quarantine_uri)} still has rows of {pipeline}.",
            remedy="replay them first: run once with mode='repair' and repair={'quarantined': True}, or "
            "delta-cdc replay; or run once with mode='reload'.",
            argument="rules" if names else "policies",
        )


async def _from_watermark(observed: Observation[ApplyRequest], seal: Seal) -> Plan:
    await _refuse_dropped_rules(observed, seal)
    chosen = await ranges.choose(observed, seal)
    if not isinstance(chosen, ranges.Chosen):
        return await _seal_alone(observed, seal, chosen)
    steps, step_notes = await _steps(observed, chosen, observed.next_number)
    await _refuse_broken_copies(observed, seal, steps, chosen.commits)
    known = appended_events.since(seal.state.horizons, chosen.tracked_from)
    before = replace(seal.state, horizons=known)
    first = replace(steps[0], planned_on=observed.planned_on, before=before)
    notes = (*chosen.notes, *step_notes)
    return await modes.planned(observed, (first, *steps[1:]), chosen.versions, *notes)


async def _steps(
    observed: Observation[ApplyRequest], chosen: ranges.Chosen, number: int
) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    request = observed.request
    columns, ending = chosen.at_end.schema_columns, chosen.versions.ending_version
    validation.check_columns(request.options, columns, observed.source.uri, ending)
    read = partial(
        ranges.steps,
        observed,
        chosen,
        query_for(request.options),
        number=number,
        versions=request.versions_per_commit,
        size=request.bytes_per_commit,
    )
    try:
        return await read(one_by_one=_is_copied(request.options))
    except ChangeFeedDisabled as error:
        options = request.options
        if options.rules and not (options.insert_only or options.takes_events or options.needs_every_change):
            # Comparing each version with the one before also gives each state.
            return await read(one_by_one=True)
        if not options.insert_only:
            raise
        # Insert-only commits are readable without the feed, so this commit must also update or delete rows.
        raise NotInsertOnly(
            f"{error.message} The pipeline {request.pipeline} is insert_only.",
            remedy="build a target with keys and without insert_only beside the old one "
            f"({validation.BESIDE}); or keep to inserts in the source.",
        ) from error


async def _refuse_broken_copies(
    observed: Observation[ApplyRequest], seal: Seal, steps: tuple[Step, ...], commits: tuple[Commit, ...]
) -> None:
    """Refuse steps that take a broken full copy: each copy counts, or only the newest one of a step.

    The commits of the range show where a copy may have no rows: one with rows adds a file with rows.

    :raises EmptyCopy: a copy has no rows
    :raises LimitExceeded: a copy has fewer rows than ``min_source_rows``, or far fewer than the one before
    """
    request = observed.request
    if not request.options.takes_copies:
        return
    copies = [commit for commit in commits if commit.changes_data]
    before = await preconditions.copy_at(observed.log, seal.watermark.version)
    for step in steps:
        in_step = [copy for copy in copies if step.starting_version <= copy.version <= step.ending_version]
        for copy in in_step if _is_copied(request.options) else in_step[-1:]:
            if not (copy.adds_rows or request.allow_empty):
                await preconditions.refuse_empty_copy(request, await observed.at(copy.version))
            await preconditions.refuse_small_copy(observed, copy.version, copy)
            needs_approval = bool(observed.asks) and step is steps[0]
            preconditions.refuse_shrunk_copy(request, before, copy, needs_approval=needs_approval)
            before = copy


def query_for(options: ApplyOptions) -> QueryOptions:
    """Return the query that gives the changes an apply needs.

    Events and insert-only tables need the added rows. Type 1 needs the net change by key. Type 2 needs every
    change, and so does type 1 with partial columns, soft deletes or rules, which test each state.
    """
    if options.insert_only or options.takes_events:
        return QueryOptions("append_only")
    if not (options.needs_every_change or options.rules):
        return QueryOptions("min_delta", keys=options.keys)
    return QueryOptions("full_delta")


def _is_copied(options: ApplyOptions) -> bool:
    """Return whether each version is a full copy whose files do not show what changed."""
    return options.takes_copies and (options.needs_every_change or bool(options.rules))


# -- nothing to apply ---------------------------------------------------------------------------
async def _seal_alone(observed: Observation[ApplyRequest], seal: Seal, found: Nothing) -> Plan:
    """Return a plan without rows: an empty plan, or the renewal of a seal that is due.

    :raises SchemaChangeInRange: a seal is due, and its range drops, renames or retypes a column
    :raises VersionsExpired: a seal is due, and nothing proves that its range continues the applied history
    """
    if observed.before:
        return await modes.planned(observed, (), None, *found.notes)
    assert observed.recorded is not None
    due = renewal_due(observed.source, observed.recorded, observed.now_ms)
    if due is None and _lacks_description(observed):
        due = f"{observed.recorded.target.uri} lacks properties of a change log. The run sets them."
    if due is None:
        return Plan.nothing(observed, found.ended.version, *found.notes)
    preconditions.refuse_unproven(found.identity, observed.source, seal)
    followed = await followed_columns.check(observed.log, found.commits, observed)
    step = Step(
        kind="renew",
        read=NoRows(),
        starting_version=min(seal.watermark.version + 1, found.ended.version),
        applied_to=replace(found.ended, table_id=observed.source.table_id),
        seal_number=observed.next_number,
        planned_on=observed.planned_on,
        before=replace(seal.state, horizons=appended_events.since(seal.state.horizons, found.tracked_from)),
    )
    return await modes.planned(observed, (step,), None, *found.notes, *followed.notes, due)


def _lacks_description(observed: Observation[ApplyRequest]) -> bool:
    """Return whether a crash after the first commit of a change log left it without its description."""
    options, recorded = observed.request.options, observed.recorded
    if not options.writes_events or recorded is None:
        return False
    return any(name not in recorded.target.configuration for name in change_log.OF_TABLES)


# -- initial load -------------------------------------------------------------------------------
async def _load(observed: Observation[ApplyRequest]) -> Plan:
    """Plan the first commit of a target, and the later changes if the load starts at a past version."""
    request = observed.request
    ranges.refuse_beyond(observed)
    if request.once and observed.starting is not None:
        # The first commit of such a pipeline is its last one.
        raise invalid(
            f"once and the start {observed.starting} are given",
            "leave one of them out: once loads the newest version.",
            "once",
        )
    if request.initial_load != "snapshot" and observed.starting is not None:
        raise InvalidConfiguration(
            f"The start {observed.starting} and initial_load {request.initial_load!r} are both given, and "
            f"the target {canonical_uri(request.target)} has no watermark yet.",
            remedy="remove the start for the first run.",
        )
    if request.sets_baseline and observed.recorded is not None:
        _check_history_columns(request, observed.recorded.target)
    ends = (observed.source.version, observed.saved_end, observed.ending)
    ending = min(end for end in ends if end is not None)
    first = _first_version(observed)
    if first is None:
        load, at = await load_step(observed, ending, declared=request.sets_baseline)
        return await _load_alone(observed, load, at)
    _check_first(observed, first, ending)
    load, at = await _load_before(observed, first, declared=request.sets_baseline)
    found = await ranges.choose_after(observed, first - 1, ending, ()) if first <= ending else None
    if not isinstance(found, ranges.Chosen):
        return await _load_alone(observed, load, at)
    load = replace(load, horizons=appended_events.since(load.horizons, found.tracked_from))
    steps, step_notes = await _steps(observed, found, load.seal_number + 1)
    return await modes.planned(observed, (load, *steps), found.versions, *found.notes, *step_notes)


async def _load_alone(observed: Observation[ApplyRequest], load: Step, at: TableState) -> Plan:
    request = observed.request
    version = load.ending_version
    validation.check_columns(request.options, at.schema_columns, observed.source.uri, version)
    versions = None if load.read.is_empty else VersionRange(version, version)
    needs_feed = (
        request.options.source_kind == "change_feed" and not request.options.insert_only and not request.once
    )
    warnings = feed_warning(at, needs_every=request.options.needs_every_change) if needs_feed else ()
    return await modes.planned(observed, (load,), versions, *warnings)


def _first_version(observed: Observation[ApplyRequest]) -> int | None:
    """Return the first version whose changes are applied; None if the load covers everything."""
    request = observed.request
    load = request.initial_load
    if isinstance(load, dict):
        return load["from_version"] if "from_version" in load else load["none_at"] + 1
    return None if load == "none" else observed.starting


def _check_history_columns(request: ApplyRequest, target: TableState) -> None:
    """Refuse a baseline of type 2 in a table without the columns of a history."""
    options, existing = request.options, {name.lower() for name in target.schema_columns}
    lacking = {name: option for name, option in options.added_columns.items() if name.lower() not in existing}
    missing = [name for name, option in lacking.items() if option in ("start_column", "end_column")]
    if options.stored_as_scd_type == 2 and lacking and not missing:
        name, option = next(iter(lacking.items()))
        value = f"true where {options.end_column} is NULL or end_value, else false"
        if option == "delete_mode":
            value = "true in the open rows of deleted keys, else false"
        add = f"add it as BOOLEAN, and set it in each row: {value}"
        if option == "row_hash_column":
            add = "add it as STRING: a row gets its hash when it is next written"
        raise TargetSchemaClash(
            f"The target {target.uri} has no column {name}, which {option} needs.",
            remedy=f"{add}; or leave {option} out.",
        )
    if options.stored_as_scd_type == 2 and missing:
        raise TargetSchemaClash(
            f"The target {target.uri} has no column {', '.join(missing)}, so it cannot be the baseline of a "
            "history (type 2).",
            remedy="add the start and end columns with the type of sequence_by (by default BIGINT), and set "
            "the start of each row; or name the table's own columns in start_column and end_column.",
        )


def _check_first(observed: Observation[Any], first: int, ending: int) -> None:
    newest, uri = observed.source.version, observed.source.uri
    if first > newest + 1 and observed.request.sets_baseline:
        raise RangeNotContiguous(
            f"initial_load names none_at {first - 1}, but the newest version of {uri} is {newest}.",
            remedy=f"set none_at to {newest} or less.",
        )
    if first > newest and not observed.request.sets_baseline:
        raise RangeNotContiguous(
            f"Version {first}, from which changes are to be applied, does not exist yet: the newest version "
            f"of {uri} is {newest}.",
            remedy=f"start at {newest} or before.",
        )
    if first > ending and not observed.request.sets_baseline:
        raise RangeNotContiguous(
            f"starting_version {first} of {uri} lies after the end {ending}.",
            remedy="end at the starting version or after it.",
        )


async def _load_before(observed: Observation[Any], first: int, *, declared: bool) -> tuple[Step, TableState]:
    if first > 0:
        return await load_step(observed, first - 1, declared=declared)
    at = await observed.at(0)
    step = Step(
        kind="load",
        read=Snapshot(is_empty=True),
        starting_version=-1,
        applied_to=TableVersion(at.table_id, -1),
        seal_number=observed.next_number,
        source_columns=at.schema_columns,
        planned_on=observed.planned_on,
    )
    return step, at


def feed_warning(state: TableState, *, needs_every: bool = False) -> tuple[str, ...]:
    """Return a warning about the next run if the source has no change feed.

    :param needs_every: the target needs each change, not only the net effect
    """
    if feed_on(state.configuration):
        return ()
    next_run = (
        "the next run fails after an UPDATE or DELETE"
        if needs_every and not tracks_rows(state.configuration)
        else "the next run reads changes at greater cost (row ids, or both ends compared by key)"
    )
    warning = (
        f"The change data feed of {state.uri} is off in version {state.version}. This load needs none, but "
        f"{next_run}, unless the feed is turned on first (DeltaEnableChangeDataFeedOperator, {CHANGE_FEED})."
    )
    return (warning,)


# -- staging ------------------------------------------------------------------------------------
async def _from_staging(observed: Observation[ApplyRequest], uri: str) -> Plan:
    request = observed.request
    seal = observed.seal
    if seal is not None:
        await preconditions.check_identity(observed.log, observed.source, seal)
    staged = await open_batch(observed, DeltaLog(uri, request.storage_options))
    if staged is None:
        text = f"Staging {canonical_uri(uri)} has no open batch of pipeline {request.pipeline}."
        if seal is None:
            return Plan.nothing(observed, -1, text)
        idle = await ranges.choose(observed, seal)
        if isinstance(idle, ranges.Chosen):
            # The read has to stage these changes first: keep the watermark, and renew its seal only if due.
            idle = ranges.Nothing(seal.watermark, ())
        return await _seal_alone(observed, seal, replace(idle, notes=(*idle.notes, text)))
    batch, commit = staged
    ending = batch.watermark.version
    other = await preconditions.other_history(observed.log, observed.source, batch)
    if other is not None:
        raise SourceHistoryChanged(
            f"The batch {VersionRange(batch.step.starting_version, ending)} in staging "
            f"{canonical_uri(uri)} was read from another history of {observed.source.uri}: {other}.",
            remedy="read again (DeltaReadChangesOperator). The new batch replaces this one.",
        )
    at = await observed.at(ending)
    validation.check_columns(request.options, at.schema_columns, observed.source.uri, ending)
    step = Step(
        kind="load",
        read=Snapshot(Staging(spark_uri(uri), commit.version, "snapshot")),
        starting_version=ending,
        applied_to=replace(batch.watermark, table_id=at.table_id),
        seal_number=observed.next_number if observed.recorded is not None else batch.number,
        source_columns=at.schema_columns,
        planned_on=observed.planned_on,
    )
    if seal is not None:
        step = replace(
            step,
            kind="apply",
            read=Changes(staging=Staging(spark_uri(uri), commit.version, "changes")),
            starting_version=batch.step.starting_version,
            before=seal.state,
        )
    return await modes.planned(observed, (step,), VersionRange(step.starting_version, ending))
