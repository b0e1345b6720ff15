"""Plans what goes beyond the changes after the watermark: repair, reload and reset.

A repair computes some keys again and leaves the watermark where it is. A reload compares all keys with the
source as of a version, and a reset puts a load in the place of all rows. Each is a step under the next seal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from delta_cdc import checks, gates
from delta_cdc.changes.feed import COMMIT_VERSION
from delta_cdc.errors import (
    ConfigurationDrift,
    InvalidConfiguration,
    LogGap,
    NotAppendOnly,
    RangeNotContiguous,
    RangeTooLong,
    SourceHistoryChanged,
    SourceTableReplaced,
    VersionsExpired,
)
from delta_cdc.log.schema import leaf_paths
from delta_cdc.log.store import canonical_uri
from delta_cdc.log.table import DeltaLog
from delta_cdc.plan import events, quarantine, ranges
from delta_cdc.spec import QueryOptions, Step
from delta_cdc.versions import VersionRange

if TYPE_CHECKING:
    from delta_cdc.errors import DeltaCdcError
    from delta_cdc.log.actions import Commit
    from delta_cdc.log.table import TableState
    from delta_cdc.plan.ranges import Nothing
    from delta_cdc.plan.request import ApplyRequest
    from delta_cdc.plan.sight import Sight
    from delta_cdc.spec import ApplyOptions
    from delta_cdc.watermark import Seal


@dataclass(frozen=True)
class Work:
    """Steps, the source as of their end, and what they cover."""

    steps: tuple[Step, ...]
    at_end: TableState
    versions: VersionRange
    notes: tuple[str, ...]


# -- reload -------------------------------------------------------------------------------------
async def reload(request: ApplyRequest, sight: Sight, because: DeltaCdcError | None) -> Work:
    """Plan the difference between the target and the source as of its newest version, or of a given one.

    :param because: the error that makes it necessary; None where it was asked for
    :raises RangeNotContiguous: it would take the watermark back
    :raises SourceTableReplaced: the history of the target counts in versions of a table that is gone
    :raises SourceHistoryChanged: likewise
    :raises VersionsExpired: history would miss events that maintenance has deleted from a log
    """
    ranges.refuse_beyond(sight)
    seal = sight.seal
    other_source = isinstance(because, SourceTableReplaced | SourceHistoryChanged)
    if other_source and because is not None:
        _refuse_counted(request.options, because)
    ending = _ending(sight, None if other_source or seal is None else seal.watermark)
    if seal is not None and not other_source:
        await _refuse_outlived(request, sight, seal, ending)
    step, at = await ranges.load_step(sight, ending)
    step = replace(step, kind="reload")
    if seal is None or other_source:
        # Nothing that the target holds is known to be right, so nothing of it stands behind the horizon.
        step = replace(step, horizons=(), loaded_version=ending)
    if seal is not None:
        # What the target holds was applied up to there, whatever table it came from; a log tells it anew.
        anew = other_source and request.options.takes_events
        step = replace(
            step,
            applied_from=0 if other_source else seal.applied_from,
            highest_sequence=None if anew else seal.highest_sequence,
            truncate_sequences=() if anew else seal.truncate_sequences,
            known_horizons=() if anew else await _horizons(request, sight, seal, ending),
            loaded_version=ending if other_source else seal.loaded_version,
            configuration={} if anew else seal.configuration,
        )
    checks.check_columns(request.options, at.schema_columns, sight.source.uri, ending)
    why = because.message if because is not None else ""
    text = (
        f"{why} All keys of {canonical_uri(request.target)} are compared with version {ending} of "
        f"{sight.source.uri} (reload)."
    )
    return Work((step,), at, VersionRange(ending, ending), (text.strip(),))


def _ending(sight: Sight, watermark: int | None) -> int:
    """Return the version that a reload brings the target to.

    :param watermark: it must not lie before; None where the versions there are another table's
    """
    if watermark is not None and sight.ending is not None and sight.ending < watermark:
        raise RangeNotContiguous(
            f"A reload of version {sight.ending} of {sight.source.uri} would take the watermark back: it is "
            f"{watermark}.",
            remedy=f"end at {watermark} or after it, or leave the end out; to go back, RESTORE the target.",
        )
    pinned = sight.pinned_end
    if pinned is not None and watermark is not None and pinned < watermark:
        pinned = None
    ends = (sight.source.version, sight.ending, pinned)
    return min(end for end in ends if end is not None)


async def _horizons(
    request: ApplyRequest, sight: Sight, seal: Seal, ending: int
) -> tuple[tuple[int, str], ...]:
    """Return the horizons that the seal knows, as rows count that are tracked as of a version."""
    if not seal.horizons:
        return ()
    version = await events.tracked_from(sight.log, sight.source, seal.watermark + 1, ending)
    if version is None:
        # Events are only discarded where rows are tracked; and where none were, all that are there count.
        version = -1 if request.options.on_late == "discard" else ending
    return events.since(seal.horizons, version)


async def _refuse_outlived(request: ApplyRequest, sight: Sight, seal: Seal, ending: int) -> None:
    """Refuse to cut history again from a log that was expired before the target had all of its events.

    So it is after a RESTORE of the target: maintenance waits for every consumer. Of type 1 the log keeps what
    the rows are made of.
    """
    options = request.options
    if not options.takes_events or options.stored_as_scd_type == 1 or ending <= seal.watermark:
        return
    arrivals = events.Arrivals(sight.log, sight.source)
    try:
        commits = await arrivals.read(seal.watermark + 1, ending)
    except (NotAppendOnly, VersionsExpired, LogGap):
        # What became of the events cannot be told any more; that is why a reload is asked for.
        return
    lost = events.outlived(commits, arrivals)
    if lost is not None:
        raise VersionsExpired(
            f"Events of version {lost.version} of {sight.source.uri} were deleted behind its horizon "
            f"since, and {canonical_uri(request.target)} has not got them (its watermark is "
            f"{seal.watermark}): a reload would leave a hole in its history.",
            remedy="run without mode: what was deleted is read as of the version before, while its files are "
            'there; or begin the history anew with mode="reset" and discard_history.',
        )


def _refuse_counted(options: ApplyOptions, because: DeltaCdcError) -> None:
    """Versions of another table cannot go on in a history of versions."""
    used = (*options.sequences, options.delete_sequence or "")
    if checks.needs_history(options) and any(COMMIT_VERSION in text.lower() for text in used):
        raise type(because)(
            f"{because.message} The history in the target counts in versions of the table before.",
            remedy='load a new target; or throw the history away with mode="reset" and discard_history.',
        ) from because


# -- repair -------------------------------------------------------------------------------------
async def repair(
    request: ApplyRequest, sight: Sight, seal: Seal, asked: QueryOptions, *, one_by_one: bool
) -> Work | Nothing:
    """Plan the keys that a range changed, that a predicate chooses, or that stand in quarantine.

    :param asked: what of the changes matters
    :param one_by_one: see :func:`delta_cdc.plan.captures.choose`
    :raises RangeNotContiguous: the range is not applied yet
    :raises RangeTooLong: it takes a plan that no driver should hold
    :raises VersionsExpired: the source cannot be read as of the watermark any more
    """
    await gates.check_identity(sight.log, sight.source, seal)
    first, last = _named(sight, seal)
    if checks.needs_history(request.options):
        first = _in_history(sight, seal, first)
    if request.repair_quarantined and await _nothing_in_quarantine(request):
        text = f"Nothing is in quarantine beside {canonical_uri(request.target)}: there is nothing to repair."
        return ranges.Nothing(seal.watermark, seal.source_commit_hash, (text,))
    at = await sight.at(seal.watermark)
    if seal.watermark < sight.source.version:
        gates.check_retention(await sight.log.commit(seal.watermark), sight.source, sight.now_ms)
    checks.check_columns(request.options, at.schema_columns, sight.source.uri, seal.watermark)
    named = Step(
        kind="repair",
        starting_version=min(first, last),
        ending_version=last,
        seal_number=sight.next_number,
        applied_from=seal.applied_from,
        source_commit_hash=seal.source_commit_hash,
        source_columns=at.schema_columns,
        planned_on=sight.planned_on,
        highest_sequence=seal.highest_sequence,
        truncate_sequences=seal.truncate_sequences,
        known_horizons=seal.horizons,
        loaded_version=seal.loaded_version,
        configuration=seal.configuration,
        watermark=seal.watermark,
        keys_where=request.repair_keys,
        replayed=request.repair_quarantined,
        horizons=events.horizon_at(at) if request.options.takes_events else (),
    )
    by_range = request.repair_keys is None and not request.repair_quarantined
    needs_history = checks.needs_history(request.options)
    if not (by_range or (needs_history and first <= seal.watermark)):
        # The source as it is tells it all; also where no change followed the load.
        return Work((named,), at, VersionRange(min(first, last), last), ())
    read_to = seal.watermark if needs_history else last
    found = await _read(sight, asked, first, read_to, one_by_one=one_by_one)
    if isinstance(found, ranges.Nothing):
        return found if by_range else Work((named,), at, VersionRange(first, last), found.notes)
    made, notes = found
    if needs_history and len(made) > 1:
        raise RangeTooLong(
            f"Versions {first}-{read_to} of {sight.source.uri} are too many to cut history from in one "
            "commit.",
            remedy="start later: history before the start stands.",
        )
    steps = tuple(_part(named, at_, one, whole=len(made) == 1) for at_, one in enumerate(made))
    return Work(steps, at, VersionRange(first, last), notes)


def _part(named: Step, at: int, read: Step, *, whole: bool) -> Step:
    """Return the repair of what one plan can read of a range."""
    step = replace(named, seal_number=named.seal_number + at, segments=read.segments)
    if whole:
        return step
    planned = named.planned_on if at == 0 else None
    return replace(
        step, starting_version=read.starting_version, ending_version=read.ending_version, planned_on=planned
    )


async def _read(
    sight: Sight, asked: QueryOptions, first: int, last: int, *, one_by_one: bool
) -> tuple[tuple[Step, ...], tuple[str, ...]] | Nothing:
    arrivals = ranges.arrivals_of(sight)
    commits: tuple[Commit, ...] = await ranges.reader(sight, arrivals)(first, last)
    if not any(commit.changes_data for commit in commits):
        text = f"No commit in versions {first}-{last} of {sight.source.uri} changes data."
        return ranges.Nothing(last, commits[-1].sha256, (text,))
    notes = await gates.check_schema(sight.log, commits)
    chosen = ranges.Chosen(commits, await sight.at(last), notes, arrivals)
    made, said = await ranges.steps(sight, chosen, asked, number=0, applied_from=0, one_by_one=one_by_one)
    return made, (*notes, *said)


def _in_history(sight: Sight, seal: Seal, first: int) -> int:
    """Return the version from which history is cut again: what lies before the load was never told.

    :raises RangeNotContiguous: an explicit start lies there
    """
    loaded = seal.loaded_version
    if first > loaded:
        return first
    if sight.starting is not None:
        raise RangeNotContiguous(
            f"The history in {canonical_uri(sight.request.target or '')} begins with the load of version "
            f"{loaded} of {sight.source.uri}: it says nothing of version {first}.",
            remedy=f'start at {loaded + 1} or after it; mode="reload" compares the open rows as they are.',
        )
    return loaded + 1


def _named(sight: Sight, seal: Seal) -> tuple[int, int]:
    """Return the versions that are named, or all that are applied."""
    uri, watermark = sight.source.uri, seal.watermark
    if watermark < 0:
        raise RangeNotContiguous(
            f"Nothing of {uri} is applied yet (pipeline {seal.pipeline}): there is nothing to repair.",
            remedy='run it with mode "incremental" first.',
        )
    first = seal.applied_from if sight.starting is None else sight.starting
    last = watermark if sight.ending is None else sight.ending
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
    return state is None or state.num_files == 0


def reload_first(request: ApplyRequest, sight: Sight, seal: Seal) -> ConfigurationDrift:
    """Build the error for a repair of some keys where other options make all of them be computed again."""
    source = leaf_paths(sight.source.schema_string)
    found = checks.drifts(seal, request.options, canonical_uri(request.target), source)
    return ConfigurationDrift(
        f"{found[0].text} A repair of some keys would seal the options that are given now: then no later run "
        "would find the other keys to be built with others.",
        remedy='run it with mode "incremental" or "reload" first, which computes all keys again; or set '
        'on_drift to "accept" to repair these keys alone.',
    )


def nothing_to_repair(request: ApplyRequest) -> InvalidConfiguration:
    """Build the error for a repair of a target that holds nothing of this pipeline."""
    return InvalidConfiguration(
        f"mode is 'repair', and {canonical_uri(request.target)} holds nothing of pipeline "
        f"{request.pipeline} yet.",
        remedy='load it first, with mode "incremental".',
    )
