"""Plans the modes that do more than apply the changes after the watermark: repair and reload.

A repair computes some keys again and leaves the watermark unchanged. A reload compares all keys with the
source as of a version. (A reset replaces all rows with a load.) Each is a step under the next seal.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core import validation
from delta_cdc.core.errors import (
    ConfigurationDrift,
    InvalidConfiguration,
    LogGap,
    NotAppendOnly,
    RangeNotContiguous,
    RangeTooLong,
    SchemaChangeInRange,
    SourceHistoryChanged,
    SourceTableReplaced,
    VersionsExpired,
)
from delta_cdc.core.properties import feed_on, tracks_rows
from delta_cdc.core.quarantine import settling_of
from delta_cdc.core.reserved_columns import COMMIT_VERSION
from delta_cdc.core.spec import ApplySpec
from delta_cdc.core.steps import Keys, Step
from delta_cdc.core.uris import canonical_uri, spark_uri
from delta_cdc.core.versions import VersionRange
from delta_cdc.core.watermark import PipelineState
from delta_cdc.delta_log.schema_changes import leaf_paths
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning import (
    appended_events,
    erased_keys,
    followed_columns,
    preconditions,
    quarantine,
    ranges,
)
from delta_cdc.planning.plan import Plan

if TYPE_CHECKING:
    from delta_cdc.core.errors import DeltaCdcError
    from delta_cdc.core.options import ApplyOptions, QueryOptions
    from delta_cdc.core.requests import ApplyRequest
    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.planning.observe import Observation
    from delta_cdc.planning.ranges import Nothing


async def planned(
    observed: Observation[ApplyRequest],
    steps: tuple[Step, ...],
    versions: VersionRange | None,
    *notes: str,
) -> Plan:
    """Return the plan of an apply.

    :param steps: those after :attr:`Observation.before`
    :raises InvalidConfiguration: the options are too long for a seal
    """
    request = observed.request
    size, shows_writes, guard = None, True, request.guard
    if observed.asks and steps:
        guard = replace(guard, asks=(steps[0].seal_number, observed.asks))
    if observed.recorded is not None:
        target = DeltaLog(request.target, request.storage_options)
        size = await target.checksum_size(observed.recorded.target.version)
        properties = observed.recorded.target.configuration
        shows_writes = feed_on(properties) or tracks_rows(properties)
    spec = ApplySpec(
        pipeline=request.pipeline,
        run_id=request.run_id,
        source_uri=spark_uri(request.source),
        target_uri=spark_uri(request.target),
        options=request.options,
        steps=(*observed.before, *steps),
        single_driver=request.single_driver,
        quarantine_uri=request.quarantine or "",
        dry_run=request.dry_run,
        may_lack_layout=observed.recorded is None
        or observed.recorded.may_lack_layout(request.options.target_properties),
        target_bytes=size,
        target_shows_writes=shows_writes,
        source_name=request.source_name,
        target_name=request.target_name,
        target_comment=request.target_comment or "",
        guard=guard,
        may_end_early=request.may_end_early or observed.drops_limits,
        shadows=request.shadows,
        erased=await erased_keys.left_out(
            request.target,
            observed.recorded,
            request.storage_options,
            source=(request.source, observed.source.configuration),
        ),
    )
    validation.check_seal_of_apply(spec)
    return Plan.of(observed, spec, versions, *notes)


# -- reload -------------------------------------------------------------------------------------
async def reload(observed: Observation[ApplyRequest], because: DeltaCdcError | None) -> Plan:
    """Plan a comparison of the target with the source as of its newest version, or of a given one.

    :param because: the error that makes the reload necessary; None if the user requested it
    :raises RangeNotContiguous: it would move the watermark back
    :raises SourceTableReplaced: the target's history uses version numbers of a table that no longer exists
    :raises SourceHistoryChanged: likewise
    :raises VersionsExpired: history would miss events that maintenance has deleted from a log
    :raises EmptyCopy: the source consists of full copies, and has no rows
    """
    observed = preconditions.asking(observed, "reload", "it would compute all rows again")
    request = observed.request
    ranges.refuse_beyond(observed)
    seal = observed.seal
    other_source = isinstance(because, SourceTableReplaced | SourceHistoryChanged)
    if other_source and because is not None:
        _refuse_counted(request.options, because)
    ending = _ending(observed, None if other_source or seal is None else seal.watermark.version)
    if seal is not None and not other_source:
        await _refuse_outlived(observed, seal, ending)
    load, at = await ranges.load_step(observed, ending)
    await preconditions.refuse_empty_copy(request, at)
    if request.options.takes_copies:
        await _refuse_broken_copy(observed, None if other_source else seal, ending)
    trusted = seal is not None and not other_source
    step = Step(
        kind="reload",
        read=Keys(),
        starting_version=ending,
        applied_to=load.watermark,
        seal_number=load.seal_number,
        planned_on=load.planned_on,
        before=None
        if seal is None
        else await _state_before(observed, seal, ending, other_source=other_source),
        source_columns=load.source_columns,
        # If no row of the target is known to be right, no allowed-lateness bound applies.
        horizons=load.horizons if trusted else (),
        column_changes=await followed_columns.since_watermark(observed, at),
    )
    validation.check_columns(request.options, at.schema_columns, observed.source.uri, ending)
    note = (
        f"All keys of {canonical_uri(request.target)} are compared with version {ending} of "
        f"{observed.source.uri} (reload)."
    )
    if because is not None:
        note = f"{because.message} {note}"
    return await planned(observed, (step,), VersionRange(ending, ending), note)


async def _refuse_broken_copy(observed: Observation[ApplyRequest], seal: Seal | None, ending: int) -> None:
    """Refuse the copy of a reload that has too few rows.

    :param seal: of the copy before it; None if that is not one of this source
    :raises LimitExceeded: the copy has fewer rows than ``min_source_rows``, or far fewer than the one before
    """
    await preconditions.refuse_small_copy(observed, ending, None)
    if seal is None:
        return
    before = await preconditions.copy_at(observed.log, seal.watermark.version)
    copy = await preconditions.copy_at(observed.log, ending)
    if copy is not None and (before is None or copy.version > before.version):
        preconditions.refuse_shrunk_copy(observed.request, before, copy, needs_approval=bool(observed.asks))


async def _state_before(
    observed: Observation[ApplyRequest], seal: Seal, ending: int, *, other_source: bool
) -> PipelineState:
    """Return the pipeline state before a reload."""
    request = observed.request
    if not other_source:
        return replace(seal.state, horizons=await _horizons(observed, seal, ending))
    # Keep the watermark as the applied state, regardless of its table; event state comes from the new log.
    kept = settling_of(seal.state.configuration)
    new_state = PipelineState(seal.watermark, applied_from=0, loaded_version=ending, configuration=kept)
    if request.options.takes_events:
        return new_state
    return replace(
        seal.state,
        applied_from=0,
        loaded_version=ending,
        horizons=await _horizons(observed, seal, ending),
    )


def _ending(observed: Observation[Any], watermark: int | None) -> int:
    """Return the version to which a reload updates the target.

    :param watermark: the lower limit of that version; None if the watermark counts another table's versions
    """
    if watermark is not None and observed.ending is not None and observed.ending < watermark:
        raise RangeNotContiguous(
            f"A reload of version {observed.ending} of {observed.source.uri} would move the watermark back "
            f"from {watermark}.",
            remedy=f"end at {watermark} or after it, or remove the end. To go back, RESTORE the target.",
        )
    saved = observed.saved_end
    if saved is not None and watermark is not None and saved < watermark:
        saved = None
    ends = (observed.source.version, observed.ending, saved)
    return min(end for end in ends if end is not None)


async def _horizons(
    observed: Observation[ApplyRequest], seal: Seal, ending: int
) -> tuple[tuple[int, str], ...]:
    """Return the seal's allowed-lateness bounds, adjusted to when row tracking was turned on."""
    request = observed.request
    if not seal.state.horizons:
        return ()
    version = await appended_events.tracked_from(
        observed.log, observed.source, seal.watermark.version + 1, ending
    )
    if version is None:
        # Late events are only discarded if rows are tracked; otherwise all existing events count as in time.
        version = -1 if request.options.on_late == "discard" else ending
    return appended_events.since(seal.state.horizons, version)


async def _refuse_outlived(observed: Observation[ApplyRequest], seal: Seal, ending: int) -> None:
    """Refuse to compute history intervals again from a log that lost events before the target applied them.

    This happens after a RESTORE of the target, because maintenance waits for every consumer. Type 1 is not
    affected: the log keeps the events that make up the rows.
    """
    request = observed.request
    options = request.options
    if not options.takes_events or options.stored_as_scd_type == 1 or ending <= seal.watermark.version:
        return
    arrivals = appended_events.Arrivals(observed.log, observed.source)
    try:
        commits = await arrivals.read(seal.watermark.version + 1, ending)
    except (NotAppendOnly, VersionsExpired, LogGap):
        # The log no longer shows how the events changed. A reload is the remedy for this case, so allow it.
        return
    lost = appended_events.outlived(commits, arrivals)
    if lost is not None:
        raise VersionsExpired(
            f"Events of version {lost.version} of {observed.source.uri} expired and were deleted, but "
            f"{canonical_uri(request.target)} does not have them yet (its watermark is {seal.watermark}). A "
            "reload would lose them.",
            remedy="run without mode: this reads the deleted events from the version before the deletion, if "
            'its files still exist. Or start a new history with mode="reset" and discard_history.',
        )


def _refuse_counted(options: ApplyOptions, because: DeltaCdcError) -> None:
    """Refuse a reload from another table if the target's history is ordered by commit version."""
    used = (*options.sequences, options.delete_sequence or "")
    if validation.needs_history(options) and any(COMMIT_VERSION in text.lower() for text in used):
        raise type(because)(
            f"{because.message} The intervals in the target are versions of the earlier table.",
            remedy=f"build a new target beside the old one ({validation.BESIDE}), or discard the history "
            'with mode="reset" and discard_history.',
        ) from because


# -- repair -------------------------------------------------------------------------------------
async def repair(
    observed: Observation[ApplyRequest], seal: Seal, query: QueryOptions, *, one_by_one: bool
) -> Plan:
    """Plan a repair of the keys that a range changed, that a predicate selects, or that are in quarantine.

    :param query: the query that gives the changes
    :param one_by_one: see :func:`delta_cdc.planning.read_methods.choose`
    :raises RangeNotContiguous: the range is not applied yet
    :raises RangeTooLong: the plan is too large for a driver
    :raises VersionsExpired: the source can no longer be read as of the watermark
    """
    request = observed.request
    identity = await preconditions.check_identity(observed.log, observed.source, seal)
    preconditions.refuse_unproven(identity, observed.source, seal)
    first, last = _requested_range(observed, seal)
    since = None
    if validation.needs_history(request.options):
        first = _in_history(observed, seal, first)
        begins_with_load = observed.starting is None and first == seal.state.loaded_version + 1
        since = None if begins_with_load or not request.repair_quarantined else first
    if request.repair_quarantined and await _nothing_in_quarantine(request):
        text = f"Nothing is in quarantine beside {canonical_uri(request.target)}: there is nothing to repair."
        return Plan.nothing(observed, seal.watermark.version, text)
    watermark = seal.watermark.version
    at = await observed.at(watermark)
    if watermark < observed.source.version:
        preconditions.check_retention(await observed.log.commit(watermark), observed.source, observed.now_ms)
    validation.check_columns(request.options, at.schema_columns, observed.source.uri, watermark)
    template = Step(
        kind="repair",
        read=Keys(
            where=request.repair_keys,
            quarantined=request.repair_quarantined,
            ending_version=last,
            since=since,
        ),
        starting_version=min(first, last),
        applied_to=replace(seal.watermark, table_id=at.table_id),
        seal_number=observed.next_number,
        source_columns=at.schema_columns,
        planned_on=observed.planned_on,
        before=seal.state,
        horizons=appended_events.lateness_bounds_at(at) if request.options.takes_events else (),
    )
    by_range = request.repair_keys is None and not request.repair_quarantined
    needs_history = validation.needs_history(request.options)
    if not (by_range or (needs_history and first <= watermark)):
        # The source as of the watermark is sufficient; also if no change followed the load.
        return await planned(observed, (template,), VersionRange(min(first, last), last))
    read_to = watermark if needs_history else last
    parts = await _read(observed, query, first, read_to, one_by_one=one_by_one)
    if isinstance(parts, ranges.Nothing):
        if by_range:
            return Plan.nothing(observed, watermark, *parts.notes)
        return await planned(observed, (template,), VersionRange(first, last), *parts.notes)
    read_steps, notes = parts
    if needs_history and len(read_steps) > 1:
        raise RangeTooLong(
            f"Versions {first}-{read_to} of {observed.source.uri} are too many to compute history from in "
            "one commit.",
            remedy="set a later starting_version, also beside keys. History before it stays as it is.",
        )
    steps = tuple(_part(template, at_, one, whole=len(read_steps) == 1) for at_, one in enumerate(read_steps))
    return await planned(observed, steps, VersionRange(first, last), *notes)


def _part(template: Step, position: int, read_step: Step, *, whole: bool) -> Step:
    """Return the repair of one part of a range, as large as one plan can read."""
    step = replace(template, seal_number=template.seal_number + position)
    step = step.reading(ranges=read_step.read.ranges)
    if whole:
        return step
    step = step.reading(ending_version=read_step.ending_version)
    step = replace(step, starting_version=read_step.starting_version)
    return step if position == 0 else replace(step, planned_on=None, before=None)


async def _read(
    observed: Observation[Any], query: QueryOptions, first: int, last: int, *, one_by_one: bool
) -> tuple[tuple[Step, ...], tuple[str, ...]] | Nothing:
    arrivals = ranges.arrivals_of(observed)
    commits: tuple[Commit, ...] = await ranges.reader(observed, arrivals)(first, last)
    if not any(commit.changes_data for commit in commits):
        text = f"No commit in versions {first}-{last} of {observed.source.uri} changes data."
        return ranges.Nothing(ranges.ended(observed.source, commits[-1]), (text,))
    try:
        followed = await followed_columns.check(observed.log, commits)
    except SchemaChangeInRange as error:
        raise SchemaChangeInRange(error.message, remedy=_after_change(observed.request)) from error
    await followed_columns.refuse_other_columns(observed, last)
    notes = followed.notes
    chosen = ranges.Chosen(commits, await observed.at(last), notes, arrivals)
    steps, step_notes = await ranges.steps(observed, chosen, query, number=0, one_by_one=one_by_one)
    return steps, (*notes, *step_notes)


def _after_change(request: ApplyRequest) -> str:
    """Return what to do if the range of a repair has a change of columns: one step reads one side of it."""
    if not request.repair_quarantined:
        return followed_columns.REPAIR_AFTER
    return (
        "set starting_version to a version after that change; older rows stay in quarantine. Then compare "
        'all keys with mode="reload", which writes their newest rows without the history between, and delete '
        "the older rows from the quarantine (commit_version)."
    )


def _in_history(observed: Observation[Any], seal: Seal, first: int) -> int:
    """Return the version from which history intervals are computed again: the first after the load, or later.

    :raises RangeNotContiguous: an explicit start is not after the load, where history begins
    """
    loaded = seal.state.loaded_version
    if first > loaded:
        return first
    if observed.starting is not None:
        raise RangeNotContiguous(
            f"The history in {canonical_uri(observed.request.target or '')} begins with the load of version "
            f"{loaded} of {observed.source.uri}, so it does not contain version {first}.",
            remedy=f'start at {loaded + 1} or after it; mode="reload" compares the open rows as they are.',
        )
    return loaded + 1


def _requested_range(observed: Observation[Any], seal: Seal) -> tuple[int, int]:
    """Return the explicit range of versions; by default, all applied versions."""
    uri, watermark = observed.source.uri, seal.watermark.version
    if watermark < 0:
        raise RangeNotContiguous(
            f"Pipeline {seal.pipeline} has not applied changes of {uri} yet, so there is nothing to repair.",
            remedy='run it with mode "incremental" first.',
        )
    first = seal.state.applied_from if observed.starting is None else observed.starting
    last = watermark if observed.ending is None else observed.ending
    if first > watermark or last > watermark:
        raise RangeNotContiguous(
            f"Versions {first}-{max(first, last)} of {uri} are not all applied yet: the watermark of "
            f"pipeline {seal.pipeline} is {watermark}.",
            remedy=f'name versions up to {watermark}; newer ones are applied by mode "incremental".',
        )
    return first, last


async def _nothing_in_quarantine(request: ApplyRequest) -> bool:
    assert request.quarantine is not None
    log = DeltaLog(request.quarantine, request.storage_options)
    state = await quarantine.state_of(log)
    return state is None or await asyncio.to_thread(lambda: state.num_files == 0)


def reload_first(observed: Observation[ApplyRequest], seal: Seal) -> ConfigurationDrift:
    """Build the error for a repair of some keys if changed options require computing all keys again."""
    request = observed.request
    source = leaf_paths(observed.source.schema_string)
    drifts = validation.drifts(seal, request.options, canonical_uri(request.target), source)
    return ConfigurationDrift(
        f"{next(iter(drifts.values()))} A repair of some keys would record the new options in the seal. "
        "Later runs could then not detect that the other keys were computed with the old options.",
        remedy='run it with mode "incremental" or "reload" first, which computes all keys again; or set '
        'on_drift in policies to "accept" to repair these keys alone.',
    )


def nothing_to_repair(request: ApplyRequest) -> InvalidConfiguration:
    """Build the error for a repair of a target that holds nothing of this pipeline."""
    return InvalidConfiguration(
        f"mode is 'repair', but pipeline {request.pipeline} has not written to "
        f"{canonical_uri(request.target)} yet.",
        remedy='load it first, with mode "incremental".',
    )
