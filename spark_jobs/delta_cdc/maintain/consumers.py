"""Who reads a table, and what each of them has not read yet: told from the logs, without a JVM."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_cdc import gates
from delta_cdc.checks import check_pipeline
from delta_cdc.errors import (
    ConsumerUnreadable,
    DeltaCdcError,
    InvalidConfiguration,
    NotADeltaTable,
    TableNotFound,
    VersionsExpired,
)
from delta_cdc.maintain import marks
from delta_cdc.plan import staging
from delta_cdc.reconcile import reconcile_async

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.log.actions import Commit
    from delta_cdc.log.table import DeltaLog, TableState
    from delta_cdc.watermark import Seal

_KEYS = ("pipeline", "source", "target")


@dataclass(frozen=True)
class Consumer:
    """A pipeline that reads a table.

    :param source: path or URI of what it reads; None takes what the seal in its target names
    :param target: path or URI of where its watermark stands: its target, or the staging table of a sink of
        one's own
    :param expected: it has run: without a watermark its target is not the right one
    :param unknown: why its tables cannot be told from their names
    """

    pipeline: str
    source: str | None
    target: str
    expected: bool = False
    unknown: DeltaCdcError | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Held:
    """What a table holds for a consumer.

    :param watermark: the last version that it has; None where nothing is proved yet
    :param unread: the first version after it that changes data; None where there is none
    :param since: the time of that version, epoch milliseconds; None also where it was cleaned from the log
    :param seal: what proves the watermark
    :param refused: why its watermark cannot be told
    :param note: what people should know
    """

    consumer: Consumer
    watermark: int | None = None
    unread: int | None = None
    since: int | None = None
    seal: Seal | None = None
    refused: DeltaCdcError | None = None
    note: str = ""

    def is_past(self, version: int) -> bool:
        """Return whether nothing up to and including a version is left for it to read."""
        return self.refused is None and (self.unread is None or self.unread > version)


def consumers_of(given: object) -> tuple[Consumer, ...]:
    """Read consumers as the operators take them: mappings of ``pipeline``, ``target`` and, if need be,
    ``source``. Who names one knows that it is there.

    :raises InvalidConfiguration: for anything else
    """
    if given is None or given == "":
        return ()
    if not isinstance(given, list | tuple):
        raise _unreadable(given)
    return tuple(entry if isinstance(entry, Consumer) else _consumer(entry) for entry in given)


def _consumer(entry: Any) -> Consumer:
    if not isinstance(entry, dict) or not {"pipeline", "target"} <= set(entry) <= set(_KEYS):
        raise _unreadable(entry)
    if not all(isinstance(value, str) and value.strip() for value in entry.values() if value is not None):
        raise _unreadable(entry)
    check_pipeline(entry["pipeline"])
    return Consumer(entry["pipeline"], entry.get("source"), entry["target"], expected=True)


def _unreadable(given: object) -> InvalidConfiguration:
    return InvalidConfiguration(
        f"consumers holds {given!r}.",
        remedy='give a list of {"pipeline": …, "target": …}, with "source" where it is known.',
    )


def held(
    table: str,
    consumers: Sequence[Consumer],
    *,
    storage_options: Mapping[str, str] | None = None,
) -> list[Held]:
    """Return what a table holds for its consumers; see :func:`held_async`."""
    from delta_cdc.log.table import run_sync

    return run_sync(held_async(table, consumers, storage_options=storage_options))


async def held_async(
    table: str,
    consumers: Sequence[Consumer],
    *,
    storage_options: Mapping[str, str] | None = None,
) -> list[Held]:
    """Compare the watermarks that consumers have sealed with a table.

    :param consumers: those of other tables are left out. A location can be spelt in several ways, so the id
        of the table that a seal names counts, too
    :return: one entry per consumer, in order. One whose watermark cannot be told is among them
    :raises DeltaCdcError: the table's own log cannot be read
    """
    from delta_cdc.log.table import DeltaLog

    options = dict(storage_options) if storage_options else None
    log = DeltaLog(table, options)
    state = await log.snapshot()
    looks = [_looked(log, state, consumer, options) for consumer in consumers]
    return [found for found in await asyncio.gather(*looks) if found is not None]


async def _looked(
    log: DeltaLog, state: TableState, consumer: Consumer, options: dict[str, str] | None
) -> Held | None:
    from delta_cdc.log.table import DeltaLog

    named = _names(consumer.source, log)
    try:
        if consumer.unknown is not None:
            raise consumer.unknown
        seal = await _sealed(DeltaLog(consumer.target, options), consumer.pipeline)
    except DeltaCdcError as error:
        is_other = named is False and await _is_other(consumer, state, options)
        return None if is_other else Held(consumer, refused=error)
    if seal is None:
        is_other = named is False and await _is_other(consumer, state, options)
        return None if is_other else _unproved(consumer)
    if not (named or _names(seal.source_uri, log) or seal.source_table_id == state.table_id):
        return None
    try:
        identity = await gates.check_identity(log, state, seal)
    except DeltaCdcError as error:
        return Held(consumer, refused=error)
    found = await _unread(log, state, seal)
    note = identity.note or ""
    if isinstance(found, VersionsExpired):
        note = f"{found.message} What it has not read is gone already."
        return Held(consumer, seal.watermark, seal.watermark + 1, seal=seal, note=note)
    if found is None:
        return Held(consumer, seal.watermark, seal=seal, note=note)
    return Held(consumer, seal.watermark, found.version, found.timestamp, seal, note=note)


def _names(source: str | None, log: DeltaLog) -> bool | None:
    """Tell whether a location is that of a table; None where it is none, or not known."""
    from delta_cdc.log.store import canonical_uri

    if source is None:
        return None
    try:
        return canonical_uri(source) == log.uri
    except DeltaCdcError:
        return None


async def _is_other(consumer: Consumer, state: TableState, options: dict[str, str] | None) -> bool:
    """Tell whether another table lies where a consumer reads, or none: no seal of it says so."""
    from delta_cdc.log.table import DeltaLog

    assert consumer.source is not None
    try:
        return (await DeltaLog(consumer.source, options).snapshot()).table_id != state.table_id
    except (TableNotFound, NotADeltaTable):
        return True
    except DeltaCdcError:
        return False


def _unproved(consumer: Consumer) -> Held:
    if not consumer.expected:
        return Held(consumer, note="nothing is proved yet: its first run loads what is there then")
    return Held(
        consumer,
        refused=ConsumerUnreadable(
            f"No run of {consumer.pipeline} has sealed anything in {consumer.target}.",
            remedy="correct target; or leave the consumer out until it has run once.",
        ),
    )


async def _sealed(target: DeltaLog, pipeline: str) -> Seal | None:
    """Return the seal of what has arrived; a batch in staging has not, until it is committed."""
    proof = await reconcile_async(target, pipeline)
    seal = proof.seal if proof is not None else None
    if seal is None or seal.step.kind != "read":
        return seal
    sink = await staging.sink(target, pipeline)
    return sink.proof.seal if sink is not None else None


async def _unread(log: DeltaLog, state: TableState, seal: Seal) -> Commit | VersionsExpired | None:
    """Return the first commit after the watermark that changes data; what an expiry deletes, nobody reads."""
    try:
        commits = await log.commits(range(seal.watermark + 1, state.version + 1))
    except VersionsExpired as error:
        return error
    changing = (commit for commit in commits if commit.changes_data)
    return next((commit for commit in changing if marks.expired_below(commit.info) is None), None)


def now_ms() -> int:
    """Return the time in epoch milliseconds."""
    return time.time_ns() // 1_000_000
