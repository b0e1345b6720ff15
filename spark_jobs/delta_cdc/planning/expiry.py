"""Plans an expiry of a change log from the logs alone: what its consumers have applied, and what is due."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from delta_cdc.core import validation
from delta_cdc.core.errors import ConsumerUnreadable, InvalidConfiguration, VersionsExpired
from delta_cdc.core.properties import APPEND_ONLY, EXPIRED_BELOW, LATENESS_HORIZON, tracks_rows
from delta_cdc.core.retention import FILE_RETENTION, interval_ms, milliseconds_of
from delta_cdc.core.uris import spark_uri
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.consumers import now_ms, observe_consumers
from delta_cdc.planning.maintenance_commits import backwards
from delta_cdc.planning.plan import JobPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.spec import ExpireSpec
    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.table import TableState
    from delta_cdc.planning.consumers import Consumer

#: Sequence types that support subtracting an interval, as Delta's schema names them.
_TIMES = ("timestamp", "timestamp_ntz", "date")


async def plan_expiry(
    spec: ExpireSpec,
    consumers: Sequence[Consumer],
    *,
    keep: str | None = None,
    storage_options: dict[str, str] | None = None,
) -> JobPlan[ExpireSpec, dict[str, Any]]:
    """Plan an expiry. Starts no process and writes nothing.

    :param consumers: the pipelines that apply events from the log; those of other tables are left out
    :param keep: instead of the spec's ``horizon``, its distance behind the newest event: a Delta interval
        such as ``interval 7 days``, for sequences that are times
    :raises InvalidConfiguration: names the arguments; or a consumer reads rows of the log, not events
    :raises ConsumerUnreadable: the watermark of a consumer cannot be determined
    """
    span = _span(spec, keep)
    if not consumers:
        raise InvalidConfiguration(
            f"No consumer of {spec.table_uri} is set. Events expire only after all consumers applied them.",
            remedy="set consumers, or set config to the configuration that has them.",
        )
    log = DeltaLog(spec.table_uri, storage_options)
    state = await log.snapshot()
    observed = await observe_consumers(log, state, consumers, storage_options)
    _refuse(state, observed)
    readers = tuple(consumer.seal for consumer in observed if consumer.seal is not None)
    horizon = spec.horizon if span is None else _bound_behind(readers, span, log.uri)
    current = state.configuration.get(LATENESS_HORIZON)
    outcome = {"horizon": current, "deleted": 0}
    due = current if current is not None and current != state.configuration.get(EXPIRED_BELOW) else None
    since = await _set_in(log, state, due) if due is not None else None
    waits = _waits(observed, since, due)
    if waits is not None:
        # Keep the current bound, too: a consumer that is always a little late would never reach a moving
        # bound.
        return JobPlan(None, outcome, (waits,))
    notes: tuple[str, ...] = ()
    if since is not None and not tracks_rows(state.configuration) and await _is_lost(log, state, since):
        # The next bound starts at a version that the log still holds.
        note = (
            f"the events from before the horizon {due} was set are unknown: version {since} cannot be read "
            "any more, and the rows are not tracked (delta.enableRowTracking); the next horizon deletes them"
        )
        notes = (note,)
        due = since = None
    if due is None and horizon in (None, current):
        return JobPlan(None, outcome, notes or ("nothing to do",))
    planned = replace(
        spec,
        table_uri=spark_uri(spec.table_uri),
        horizon=horizon,
        table_id=state.table_id,
        readers=readers,
        below=due,
        since=since,
    )
    return JobPlan(planned, outcome, notes)


def _span(spec: ExpireSpec, keep: str | None) -> timedelta | None:
    if keep is None:
        return None
    if spec.horizon is not None:
        raise InvalidConfiguration("horizon and keep are both given.", remedy="give one of the two.")
    if interval_ms(keep) < 0:
        raise InvalidConfiguration(f"keep is {keep!r}.", remedy="give an interval of 0 or more.")
    return timedelta(milliseconds=interval_ms(keep))


def _refuse(state: TableState, observed: Sequence[Consumer]) -> None:
    if state.configuration.get(APPEND_ONLY, "").lower() == "true":
        raise InvalidConfiguration(
            f"{state.uri} has {APPEND_ONLY}, so Delta cannot delete rows from it.",
            remedy=f"ALTER TABLE … UNSET TBLPROPERTIES ('{APPEND_ONLY}'), or do not expire events of it.",
        )
    for consumer in observed:
        if consumer.error is not None:
            raise ConsumerUnreadable(
                f"The progress of the consumer {consumer.pipeline} of {state.uri} cannot be read from "
                f"{consumer.target}: {type(consumer.error).__name__}: {consumer.error.message}",
                remedy=f"{consumer.error.remedy.rstrip('.')}; or remove this consumer if it ended.",
            )
        options = validation.options_of(consumer.seal) if consumer.seal is not None else None
        if options is not None and (options.source_kind != "change_log" or options.insert_only):
            raise InvalidConfiguration(
                f"The pipeline {consumer.pipeline} reads {state.uri} as rows, not as events, so it would "
                "read deleted events as changes.",
                remedy="do not expire events of this log, or apply from it with source_kind='change_log'.",
            )


# -- what is due ----------------------------------------------------------------------------------
def _waits(observed: Sequence[Consumer], since: int | None, horizon: str | None) -> str | None:
    """Return what the expiry waits for; None if it can run."""
    without = [one.pipeline for one in observed if one.seal is None]
    if without or not observed:
        # The consumer's first run loads the events in the log at that time; which it needs is unknown yet.
        return f"waits until {', '.join(without) or 'a consumer'} has run once"
    behind = [
        f"{one.pipeline} (watermark {one.seal.watermark})"
        for one in observed
        if since is not None and one.seal is not None and not one.has_read(since)
    ]
    if not behind:
        return None
    return f"waits until {', '.join(behind)} has version {since}, which set the horizon {horizon}"


async def _set_in(log: DeltaLog, state: TableState, horizon: str) -> int:
    """Return the version that set the bound in effect, or a later one if the log does not reach that far."""
    version = oldest = state.version
    async for commit in backwards(log, state.version, table_id=state.table_id):
        oldest = commit.version
        if commit.metadata is None:
            continue
        if commit.metadata.configuration.get(LATENESS_HORIZON) != horizon:
            return version
        version = commit.version
    return oldest if oldest > 0 else version


async def _is_lost(log: DeltaLog, state: TableState, version: int) -> bool:
    """Return whether the log can no longer be read as of a version, or will soon become unreadable there."""
    try:
        commit = await log.commit(version)
    except VersionsExpired:
        return True
    kept = milliseconds_of(FILE_RETENTION, state.configuration)
    return now_ms() - commit.timestamp > kept - kept // 10


# -- the new allowed-lateness bound ---------------------------------------------------------------
def _bound_behind(readers: Sequence[Seal], span: timedelta, log: str) -> str | None:
    """Return the lowest of the highest sequences that consumers have applied, minus a span of time.

    The events set this bound, not the clock: so events that follow a pause of the source are not late. Events
    that only some of the consumers have applied are newer than this.

    :return: None if a consumer has not applied any event yet
    """
    bounds = []
    for seal in readers:
        kind, highest = seal.state.configuration.get("sequence_by_type"), seal.state.highest_sequence
        if kind not in _TIMES:
            raise InvalidConfiguration(
                f"keep is given, but pipeline {seal.pipeline} orders the events of {log} by {kind}, which is "
                "not a time.",
                remedy="set horizon to a sequence instead of keep.",
            )
        if highest is not None:
            moment = _time(highest, seal, log) - span
            bounds.append(moment.date().isoformat() if kind == "date" else _as_cast(moment))
    return min(bounds) if bounds and len(bounds) == len(readers) else None


def _time(sequence: str, seal: Seal, log: str) -> datetime:
    try:
        return datetime.fromisoformat(sequence)
    except ValueError:
        # Spark's years may have more than four digits.
        raise InvalidConfiguration(
            f"keep is given, but pipeline {seal.pipeline} has applied events of {log} up to {sequence!r}, "
            "which is not a time in the years 1 to 9999.",
            remedy="set horizon to a sequence instead of keep.",
        ) from None


def _as_cast(moment: datetime) -> str:
    """Format a time as Spark casts it: without trailing zeros in its fraction."""
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    fraction = f"{moment.microsecond:06d}".rstrip("0")
    return f"{text}.{fraction}" if fraction else text
