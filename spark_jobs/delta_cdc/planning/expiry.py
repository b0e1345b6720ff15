"""Plans an expiry of a change log from the logs alone: what its consumers have applied, and what is due."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from delta_cdc.core import validation
from delta_cdc.core.errors import ConsumerUnreadable, InvalidConfiguration, VersionsExpired
from delta_cdc.core.properties import EXPIRED_BELOW, LATENESS_HORIZON, tracks_rows
from delta_cdc.core.retention import FILE_RETENTION, interval_ms, milliseconds_of
from delta_cdc.core.spec import ExpireSpec, Reader
from delta_cdc.core.uris import spark_uri
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.consumers import held_async, now_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.delta_log.table import TableState
    from delta_cdc.planning.consumers import Consumer, Held

_APPEND_ONLY = "delta.appendOnly"
#: Sequence types that support subtracting an interval, as Delta's schema names them.
_TIMES = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True, kw_only=True)
class ExpireRequest:
    """The arguments of an expiry.

    :param table: path or URI of the change log
    :param consumers: the pipelines that apply events from it
    :param horizon: the new allowed-lateness bound, as Spark casts the sequence to a string; None keeps the
        current one
    :param keep: instead of ``horizon``, the bound's distance behind the newest event: a Delta interval such
        as ``interval 7 days``, for sequences that are times
    """

    table: str
    consumers: Sequence[Consumer]
    horizon: str | None = None
    keep: str | None = None
    dry_run: bool = False
    single_driver: bool = False
    run_id: str = ""
    storage_options: dict[str, str] | None = field(default=None, repr=False)

    def check(self) -> None:
        """Validate the arguments.

        :raises InvalidConfiguration: names the arguments
        """
        if self.horizon is not None and self.keep is not None:
            raise InvalidConfiguration("horizon and keep are both given.", remedy="give one of the two.")
        if self.keep is not None and interval_ms(self.keep) < 0:
            raise InvalidConfiguration(f"keep is {self.keep!r}.", remedy="give an interval of 0 or more.")
        if not self.consumers:
            raise InvalidConfiguration(
                f"No consumer of {self.table} is named, and events are only deleted once all have them.",
                remedy="name them with consumers, or the configuration that has them with config.",
            )


@dataclass(frozen=True)
class Expiry:
    """The plan of an expiry.

    :param spec: the job; None if nothing is to be done
    :param found: for users: ``table``, ``horizon``, ``deleted`` (0) and ``note``
    """

    spec: ExpireSpec | None
    found: dict[str, Any]
    held: tuple[Held, ...]


async def plan_expiry(request: ExpireRequest) -> Expiry:
    """Plan an expiry. Starts no process and writes nothing.

    :raises InvalidConfiguration: see :class:`ExpireRequest`; or a consumer reads rows of the log, not events
    :raises ConsumerUnreadable: the watermark of a consumer cannot be determined
    """
    request.check()
    log = DeltaLog(request.table, request.storage_options)
    state = await log.snapshot()
    held = tuple(await held_async(request.table, request.consumers, storage_options=request.storage_options))
    _refuse_append_only(state)
    _refuse(log.uri, held)
    readers = tuple(_reader(one) for one in held if one.seal is not None)
    now = state.configuration.get(LATENESS_HORIZON)
    wanted = _wanted(request, log.uri, held)
    due = await _due(log, state, held, now)
    unproved = [one.consumer.pipeline for one in held if one.seal is None]
    if unproved or not readers:
        # The consumer's first run loads the events in the log at that time; which it needs is unknown yet.
        due = _Due(waits=f"waits until {', '.join(unproved) or 'a consumer'} has run once")
    if due.waits:
        # Keep the current bound, too: otherwise a consumer that is always a little behind never reaches one.
        wanted = None
    found = {"table": log.uri, "horizon": now, "deleted": 0, "note": due.waits or due.note}
    if due.below is None and (wanted is None or wanted == now):
        return Expiry(None, {**found, "note": found["note"] or "nothing to do"}, held)
    spec = ExpireSpec(
        run_id=request.run_id,
        table_uri=spark_uri(request.table),
        table_id=state.table_id,
        readers=readers,
        below=due.below,
        since=due.since,
        horizon=wanted,
        dry_run=request.dry_run,
        single_driver=request.single_driver,
    )
    return Expiry(spec, found, held)


def _refuse_append_only(state: TableState) -> None:
    if state.configuration.get(_APPEND_ONLY, "").lower() == "true":
        raise InvalidConfiguration(
            f"{state.uri} has {_APPEND_ONLY}, by which Delta deletes nothing from it.",
            remedy=f"ALTER TABLE … UNSET TBLPROPERTIES ('{_APPEND_ONLY}'), or keep that log whole.",
        )


def _refuse(log: str, held: Sequence[Held]) -> None:
    for one in held:
        if one.refused is not None:
            raise unreadable(log, one)
        options = validation.options_of(one.seal) if one.seal is not None else None
        if options is not None and (options.source_kind != "change_log" or options.insert_only):
            raise InvalidConfiguration(
                f"The pipeline {one.consumer.pipeline} reads the rows of {log}, not its events, so that it "
                "would see a deletion as a change.",
                remedy="keep that log whole; or apply from it with source_kind='change_log'.",
            )


def unreadable(table: str, one: Held) -> ConsumerUnreadable:
    """Build the error for a consumer whose watermark cannot be determined."""
    refused = one.refused
    assert refused is not None
    return ConsumerUnreadable(
        f"How far the consumer {one.consumer.pipeline} of {table} is cannot be told from "
        f"{one.consumer.target}: {type(refused).__name__}: {refused.message}",
        remedy=f"{refused.remedy.rstrip('.')}; or leave this consumer out, where it is none any more.",
    )


def _reader(one: Held) -> Reader:
    assert one.seal is not None
    seal = one.seal
    return Reader(
        seal.pipeline, validation.options_of(seal), seal.state.horizons, seal.state.highest_sequence
    )


# -- what is due ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Due:
    """The deletion that is due.

    :param below: the allowed-lateness bound below which to delete events; None for no deletion
    :param since: the version that set it
    :param waits: what the deletion waits for
    :param note: why a due deletion is skipped
    """

    below: str | None = None
    since: int = -1
    waits: str = ""
    note: str = ""


async def _due(log: DeltaLog, state: TableState, held: Sequence[Held], now: str | None) -> _Due:
    if now is None or state.configuration.get(EXPIRED_BELOW) == now:
        return _Due()
    since = await _set_in(log, state, now)
    waiting = [one for one in held if not one.is_past(since)]
    if waiting:
        told = ", ".join(f"{one.consumer.pipeline} (watermark {one.watermark})" for one in waiting)
        return _Due(waits=f"waits until {told} has version {since}, which set the horizon {now}")
    if not tracks_rows(state.configuration) and await _is_out_of_reach(log, state, since):
        # The next bound starts at a version that the log still holds.
        return _Due(
            note=f"which events came before the horizon {now} was set cannot be told: version {since} is out "
            "of reach, and the rows are not tracked (delta.enableRowTracking); the next horizon deletes them"
        )
    return _Due(now, since)


async def _set_in(log: DeltaLog, state: TableState, horizon: str) -> int:
    """Return the version that set the bound in effect, or a later one if the log does not reach that far."""
    history, found = log.history(), state.version
    for version in range(state.version, -1, -1):
        commit = await history.get(version)
        if commit is None:
            return min(found, version + 1)
        if commit.metadata is None:
            continue
        if commit.metadata.configuration.get(LATENESS_HORIZON) != horizon:
            return found
        found = version
    return found


async def _is_out_of_reach(log: DeltaLog, state: TableState, version: int) -> bool:
    """Return whether the log can no longer be read as of a version, or will soon become unreadable there."""
    try:
        commit = await log.commit(version)
    except VersionsExpired:
        return True
    kept = milliseconds_of(FILE_RETENTION, state.configuration)
    return now_ms() - commit.timestamp > kept - kept // 10


# -- the new allowed-lateness bound ---------------------------------------------------------------
def _wanted(request: ExpireRequest, log: str, held: Sequence[Held]) -> str | None:
    """Return the requested allowed-lateness bound, as text; None for no change."""
    if request.keep is None:
        return request.horizon
    span = timedelta(milliseconds=interval_ms(request.keep))
    ends = [_behind(one, span, log) for one in held if one.seal is not None]
    known = [end for end in ends if end is not None]
    # Events that only some of the consumers have applied are newer than this.
    return min(known) if known and len(known) == len(ends) else None


def _behind(one: Held, span: timedelta, log: str) -> str | None:
    """Return the highest sequence that a consumer has applied, minus a span of time.

    The events set this bound, not the clock: so events that follow a pause of the source are not late.
    """
    assert one.seal is not None
    kind, highest = one.seal.state.configuration.get("sequence_by_type"), one.seal.state.highest_sequence
    if kind not in _TIMES:
        raise InvalidConfiguration(
            f"keep is given, and pipeline {one.consumer.pipeline} orders the events of {log} by {kind}, "
            "which is no time.",
            remedy="give horizon, a sequence.",
        )
    if highest is None:
        return None
    moment = datetime.fromisoformat(highest) - span
    return moment.date().isoformat() if kind == "date" else _as_cast(moment)


def _as_cast(moment: datetime) -> str:
    """Format a time as Spark casts it: without trailing zeros in its fraction."""
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    fraction = f"{moment.microsecond:06d}".rstrip("0")
    return f"{text}.{fraction}" if fraction else text
