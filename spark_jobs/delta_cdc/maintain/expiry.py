"""Plans an expiry of a change log from the logs alone: what its consumers have, and what is done already."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from delta_cdc import checks
from delta_cdc.errors import ConsumerUnreadable, InvalidConfiguration, VersionsExpired
from delta_cdc.maintain.consumers import held_async, now_ms
from delta_cdc.properties import EXPIRED_BELOW, LATENESS_HORIZON, tracks_rows
from delta_cdc.retention import FILE_RETENTION, interval_ms, milliseconds_of
from delta_cdc.spec import ExpireSpec, Reader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.log.table import DeltaLog, TableState
    from delta_cdc.maintain.consumers import Consumer, Held

_APPEND_ONLY = "delta.appendOnly"
#: Types of a sequence that an interval can be taken from, by how Delta's schema names them.
_TIMES = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True, kw_only=True)
class ExpireRequest:
    """What an expiry is asked to do.

    :param table: path or URI of the change log
    :param consumers: the pipelines that apply events from it
    :param horizon: the new lateness horizon, as Spark casts the sequence to a string; None leaves it
    :param keep: instead, how far behind the newest event it lies, a Delta interval such as ``interval 7
        days``, for sequences that are times
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
        """Refuse what cannot be meant.

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
    """What there is to do.

    :param spec: None where nothing is
    :param found: for people: ``table``, ``horizon``, ``deleted`` (0) and ``note``
    """

    spec: ExpireSpec | None
    found: dict[str, Any]
    held: tuple[Held, ...]


async def plan_expiry(request: ExpireRequest) -> Expiry:
    """Decide what an expiry has to do. Starts no process and writes nothing.

    :raises InvalidConfiguration: see :class:`ExpireRequest`; or a consumer reads rows of the log, not events
    :raises ConsumerUnreadable: how far a consumer is cannot be told
    """
    from delta_cdc.log.store import spark_uri
    from delta_cdc.log.table import DeltaLog

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
        # Its first run takes the events that are there then, and which of them it needs nobody can tell yet.
        due = _Due(waits=f"waits until {', '.join(unproved) or 'a consumer'} has run once")
    if due.waits:
        # The next horizon waits, too: else a consumer that is always a little behind would never be past one.
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
        options = checks.options_of(one.seal) if one.seal is not None else None
        if options is not None and (options.source_kind != "change_log" or options.insert_only):
            raise InvalidConfiguration(
                f"The pipeline {one.consumer.pipeline} reads the rows of {log}, not its events, so that it "
                "would see a deletion as a change.",
                remedy="keep that log whole; or apply from it with source_kind='change_log'.",
            )


def unreadable(table: str, one: Held) -> ConsumerUnreadable:
    """Build the error for a consumer whose watermark cannot be told."""
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
    return Reader(seal.pipeline, checks.options_of(seal), seal.horizons, seal.highest_sequence)


# -- what is due ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Due:
    """Which deletion is due.

    :param below: the horizon behind which events are to be deleted; None where none are
    :param since: the version that set it
    :param waits: what a deletion waits for
    :param note: why none is made that would be due
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
        # A new horizon begins with a version that is at hand.
        return _Due(
            note=f"which events came before the horizon {now} was set cannot be told: version {since} is out "
            "of reach, and the rows are not tracked (delta.enableRowTracking); the next horizon deletes them"
        )
    return _Due(now, since)


async def _set_in(log: DeltaLog, state: TableState, horizon: str) -> int:
    """Return the version that set the horizon in effect, or a later one where the log does not tell."""
    from delta_cdc.reconcile import Backwards

    back, found = Backwards(log), state.version
    for version in range(state.version, -1, -1):
        commit = await back.get(version)
        if commit is None:
            return min(found, version + 1)
        if commit.metadata is None:
            continue
        if commit.metadata.configuration.get(LATENESS_HORIZON) != horizon:
            return found
        found = version
    return found


async def _is_out_of_reach(log: DeltaLog, state: TableState, version: int) -> bool:
    """Tell whether the log cannot be read as of a version any more, or not for long."""
    try:
        commit = await log.commit(version)
    except VersionsExpired:
        return True
    kept = milliseconds_of(FILE_RETENTION, state.configuration)
    return now_ms() - commit.timestamp > kept - kept // 10


# -- the new horizon ------------------------------------------------------------------------------
def _wanted(request: ExpireRequest, log: str, held: Sequence[Held]) -> str | None:
    """Return the horizon that is asked for, as text."""
    if request.keep is None:
        return request.horizon
    span = timedelta(milliseconds=interval_ms(request.keep))
    ends = [_behind(one, span, log) for one in held if one.seal is not None]
    known = [end for end in ends if end is not None]
    # All that is applied somewhere, and not yet everywhere, is newer than this.
    return min(known) if known and len(known) == len(ends) else None


def _behind(one: Held, span: timedelta, log: str) -> str | None:
    """Return the highest sequence that a consumer has applied, less a span of time.

    By events, not by the clock: after a pause of the source what it sends then is not late.
    """
    assert one.seal is not None
    kind, highest = one.seal.configuration.get("sequence_by_type"), one.seal.highest_sequence
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
    """Return a time as Spark casts it: without zeros at the end of its fraction."""
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    fraction = f"{moment.microsecond:06d}".rstrip("0")
    return f"{text}.{fraction}" if fraction else text
