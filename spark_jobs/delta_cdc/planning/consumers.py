"""Finds what the consumers of a table have not read yet, from the logs alone, without a JVM."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core import arguments
from delta_cdc.core.concurrency import gathered
from delta_cdc.core.errors import (
    ConsumerUnreadable,
    DeltaCdcError,
    InvalidConfiguration,
    NotADeltaTable,
    TableNotFound,
    VersionsExpired,
)
from delta_cdc.core.rules import check_pipeline
from delta_cdc.core.uris import canonical_uri
from delta_cdc.core.validation import options_of
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning import maintenance_commits, preconditions, staging
from delta_cdc.planning.reconcile import reconcile_async

if TYPE_CHECKING:
    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import TableState


@dataclass(frozen=True)
class Consumer:
    """A pipeline that reads a table; :func:`observe_consumers` adds what the logs show.

    :param source: path or URI of its source; None uses the source in its target's seal
    :param target: path or URI of the table with its watermark: its target, or the staging table of a custom
        sink
    :param expected: the pipeline has run, so a target without a watermark is the wrong one
    :param templated: those of ``source`` and ``target`` that come from templates, which the pipeline's DAG
        may render to other locations: that nothing is at this one proves nothing
    :param error: why its tables are unknown, or its watermark cannot be determined
    :param seal: observed: records its watermark; None before its first recorded watermark
    :param unread: observed: the first version after the watermark that changes data; None if no such version
        exists
    :param since: observed: the time of that version, epoch milliseconds; None also if log cleanup removed it
    :param note: observed: a note for users
    """

    pipeline: str
    source: str | None
    target: str
    expected: bool = False
    templated: tuple[str, ...] = ()
    error: DeltaCdcError | None = field(default=None, compare=False)
    seal: Seal | None = None
    unread: int | None = None
    since: int | None = None
    note: str = ""

    def has_read(self, version: int) -> bool:
        """Return whether it has read everything up to and including a version."""
        return self.error is None and (self.unread is None or self.unread > version)


def consumers_of(given: object) -> tuple[Consumer, ...]:
    """Parse the operators' consumers: mappings of ``pipeline``, ``target`` and optionally ``source``.

    A consumer in this form is expected to have run.

    :raises InvalidConfiguration: for anything else
    """
    given = arguments.spelled(given) if arguments.is_given(given) else ()
    consumers = []
    entry: Any
    for entry in given if isinstance(given, Sequence) and not isinstance(given, str) else [str(given)]:
        if isinstance(entry, Consumer):
            consumers.append(entry)
            continue
        if not _is_consumer(entry):
            raise InvalidConfiguration(
                f"consumers holds {entry!r}.",
                remedy='give a list of {"pipeline": …, "target": …}, with "source" where it is known.',
            )
        check_pipeline(entry["pipeline"])
        consumers.append(Consumer(**{"source": None, **entry}, expected=True))
    return tuple(consumers)


def _is_consumer(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and {"pipeline", "target"} <= set(entry) <= {"pipeline", "target", "source"}
        and all(isinstance(value, str) and value.strip() for value in entry.values() if value is not None)
    )


async def observe_consumers(
    log: DeltaLog,
    state: TableState,
    consumers: Sequence[Consumer],
    storage_options: dict[str, str] | None = None,
) -> list[Consumer]:
    """Compare the recorded watermarks of consumers with a table.

    :param consumers: consumers of other tables are left out. A location can be spelt in several ways, so a
        match of the table id in the seal also counts
    :return: the table's consumers, in order, including those whose watermark cannot be determined
    """
    observed = await gathered(_observed(log, state, consumer, storage_options) for consumer in consumers)
    return [consumer for consumer in observed if consumer is not None]


async def _observed(
    log: DeltaLog, state: TableState, consumer: Consumer, options: dict[str, str] | None
) -> Consumer | None:
    try:
        if consumer.error is not None:
            raise consumer.error
        seal = await _committed(DeltaLog(consumer.target, options), consumer.pipeline)
        if seal is None:
            consumer = _without_seal(consumer)
    except DeltaCdcError as error:
        seal, consumer = None, replace(consumer, error=error)
    if seal is None:
        return None if await _reads_another(consumer, log, state, options) else consumer
    read = seal.state.applied_to
    if not (
        _is_at(consumer.source, log)
        or _is_at(seal.source_uri, log)
        or (read is not None and read.table_id == state.table_id)
    ):
        return None
    try:
        identity = await preconditions.check_identity(log, state, seal)
    except DeltaCdcError as error:
        return replace(consumer, error=error)
    consumer, following = replace(consumer, seal=seal, note=identity.note or ""), seal.watermark.version + 1
    try:
        commits = await log.commits(range(following, state.version + 1))
    except VersionsExpired as error:
        note = f"Versions that it has not read are deleted already. {error}"
        return replace(consumer, unread=following, note=note)
    for commit in commits:
        if commit.changes_data and not _is_passed_over(commit, seal):
            return replace(consumer, unread=commit.version, since=commit.timestamp)
    return consumer


def _is_passed_over(commit: Commit, seal: Seal) -> bool:
    """Return whether a consumer needs no row of a commit: a deletion by an expiry, or by an erasure if the
    consumer reads only what is appended."""
    if maintenance_commits.expired_below(commit.info) is not None:
        return True
    options = options_of(seal)
    return (options.takes_events or options.insert_only) and maintenance_commits.erases(commit.info)


def _is_at(source: str | None, log: DeltaLog) -> bool:
    """Return whether a location is that of the table; False if it is not given or invalid."""
    try:
        return source is not None and canonical_uri(source) == log.uri
    except DeltaCdcError:
        return False


async def _reads_another(
    consumer: Consumer, log: DeltaLog, state: TableState, options: dict[str, str] | None
) -> bool:
    """Return whether a source is another table or does not exist; False if that is unknown."""
    source = consumer.source
    if source is None or _is_at(source, log):
        return False
    try:
        return (await DeltaLog(source, options).snapshot()).table_id != state.table_id
    except (TableNotFound, NotADeltaTable):
        return "source" not in consumer.templated
    except DeltaCdcError:
        return False


def _without_seal(consumer: Consumer) -> Consumer:
    is_templated = "target" in consumer.templated
    if not (consumer.expected or is_templated):
        return replace(consumer, note="it has not run yet: its first run loads the rows of that time")
    of_template = ", whose location a template gives: the DAG of the pipeline may render it to another one"
    raise ConsumerUnreadable(
        f"Pipeline {consumer.pipeline} has not committed to {consumer.target} yet"
        f"{of_template if is_templated else ''}.",
        remedy="correct target, or remove the consumer until its first run.",
    )


async def _committed(target: DeltaLog, pipeline: str) -> Seal | None:
    """Return the seal of the last committed data."""
    recorded = await staging.arrived(target, pipeline, await reconcile_async(target, pipeline))
    return recorded.seal if recorded is not None else None


def now_ms() -> int:
    """Return the time in epoch milliseconds."""
    return time.time_ns() // 1_000_000
