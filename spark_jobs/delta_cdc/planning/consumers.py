"""Finds what the consumers of a table have not read yet, from the logs alone, without a JVM."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_cdc.core.concurrency import gathered
from delta_cdc.core.errors import (
    ConsumerUnreadable,
    DeltaCdcError,
    InvalidConfiguration,
    NotADeltaTable,
    TableNotFound,
    VersionsExpired,
)
from delta_cdc.core.uris import canonical_uri
from delta_cdc.core.validation import check_pipeline
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning import maintenance_commits, preconditions, staging
from delta_cdc.planning.reconcile import reconcile_async

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import TableState

_KEYS = ("pipeline", "source", "target")


@dataclass(frozen=True)
class Consumer:
    """A pipeline that reads a table.

    :param source: path or URI of its source; None uses the source in its target's seal
    :param target: path or URI of the table with its watermark: its target, or the staging table of a custom
        sink
    :param expected: the pipeline has run, so a target without a watermark is the wrong one
    :param unknown: why its tables cannot be derived from their names
    """

    pipeline: str
    source: str | None
    target: str
    expected: bool = False
    unknown: DeltaCdcError | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Held:
    """What a table still has to keep for a consumer.

    :param watermark: the last version that it has; None before its first recorded watermark
    :param unread: the first later version that changes data; None if no such version exists
    :param since: the time of that version, epoch milliseconds; None also if log cleanup removed it
    :param seal: the seal that records the watermark
    :param refused: why its watermark cannot be determined
    :param note: a note for users
    """

    consumer: Consumer
    watermark: int | None = None
    unread: int | None = None
    since: int | None = None
    seal: Seal | None = None
    refused: DeltaCdcError | None = None
    note: str = ""

    def is_past(self, version: int) -> bool:
        """Return whether it has read everything up to and including a version."""
        return self.refused is None and (self.unread is None or self.unread > version)


def consumers_of(given: object) -> tuple[Consumer, ...]:
    """Parse the operators' consumers: mappings of ``pipeline``, ``target`` and optionally ``source``.

    A consumer that is named is expected to have run.

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
    """Return what a table has to keep for its consumers; see :func:`held_async`."""
    return run_sync(held_async(table, consumers, storage_options=storage_options))


async def held_async(
    table: str,
    consumers: Sequence[Consumer],
    *,
    storage_options: Mapping[str, str] | None = None,
) -> list[Held]:
    """Compare the recorded watermarks of consumers with a table.

    :param consumers: consumers of other tables are left out. A location can be spelt in several ways, so a
        match of the table id in the seal also counts
    :return: one entry per consumer, in order, including those whose watermark cannot be determined
    :raises DeltaCdcError: the table's own log cannot be read
    """
    options = dict(storage_options) if storage_options else None
    log = DeltaLog(table, options)
    state = await log.snapshot()
    looks = (_looked(log, state, consumer, options) for consumer in consumers)
    return [found for found in await gathered(looks) if found is not None]


async def _looked(
    log: DeltaLog, state: TableState, consumer: Consumer, options: dict[str, str] | None
) -> Held | None:
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
    read = seal.state.applied_to
    if not (named or _names(seal.source_uri, log) or (read is not None and read.table_id == state.table_id)):
        return None
    try:
        identity = await preconditions.check_identity(log, state, seal)
    except DeltaCdcError as error:
        return Held(consumer, refused=error)
    found = await _unread(log, state, seal)
    note = identity.note or ""
    if isinstance(found, VersionsExpired):
        note = f"What it has not read is gone already. {found}"
        return Held(consumer, seal.watermark.version, seal.watermark.version + 1, seal=seal, note=note)
    if found is None:
        return Held(consumer, seal.watermark.version, seal=seal, note=note)
    return Held(consumer, seal.watermark.version, found.version, found.timestamp, seal, note=note)


def _names(source: str | None, log: DeltaLog) -> bool | None:
    """Return whether a location is that of the table; None if it is not given or invalid."""
    if source is None:
        return None
    try:
        return canonical_uri(source) == log.uri
    except DeltaCdcError:
        return None


async def _is_other(consumer: Consumer, state: TableState, options: dict[str, str] | None) -> bool:
    """Return whether the consumer's source is another table or does not exist, without using a seal."""
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
    """Return the seal of the last committed data; a batch in staging only counts once it is committed."""
    proof = await reconcile_async(target, pipeline)
    seal = proof.seal if proof is not None else None
    if seal is None or seal.step.kind != "read":
        return seal
    sink = await staging.sink(target, pipeline)
    return sink.proof.seal if sink is not None else None


async def _unread(log: DeltaLog, state: TableState, seal: Seal) -> Commit | VersionsExpired | None:
    """Return the first commit after the watermark that changes data; deletions by an expiry do not count."""
    try:
        commits = await log.commits(range(seal.watermark.version + 1, state.version + 1))
    except VersionsExpired as error:
        return error
    changing = (commit for commit in commits if commit.changes_data)
    return next(
        (commit for commit in changing if maintenance_commits.expired_below(commit.info) is None), None
    )


def now_ms() -> int:
    """Return the time in epoch milliseconds."""
    return time.time_ns() // 1_000_000
