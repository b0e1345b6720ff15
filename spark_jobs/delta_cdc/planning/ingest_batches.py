"""Determines which batches of an ingest are in the change log, and how to handle the others.

A run records a batch in the table beside the log, then appends its events, both under one number. The seal
in effect in the log defines which numbers it contains: from its ``applied_from`` to its own number, without
its ``void`` ranges, which a RESTORE undid or which were never appended. So every number below the next one
that is not in the log is void from then on, regardless of the table beside it.

If that table or the seal is lost, the table's rows no longer count: recording restarts with the next number,
and everything without a record from then on is compared with the log itself, whose events contain their
origin.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

from delta_cdc.core.change_log import LOG_COLUMNS
from delta_cdc.core.concurrency import both
from delta_cdc.core.errors import TargetRecreated, TargetReplaced, TargetWithoutWatermark, WatermarkExpired
from delta_cdc.core.quarantine import settling_of
from delta_cdc.core.validation import described_ingest
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.observe import first_number
from delta_cdc.planning.reconcile import reconcile_async
from delta_cdc.planning.taken_files import Batch, Counted, beside, taken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta_cdc.core.options import IngestOptions
    from delta_cdc.core.requests import IngestRequest
    from delta_cdc.core.spec import OffsetRange, SourceFile
    from delta_cdc.core.watermark import Seal
    from delta_cdc.planning.memory import Memory
    from delta_cdc.planning.reconcile import RecordedWatermark
    from delta_cdc.planning.taken_files import Taken

#: Number of hash characters that a seal stores for each vanished file.
_LETTERS = 12
#: Most characters of a seal's configuration, of the 65536 that the whole seal may have.
_MOST = 48_000
#: Most void ranges; above this, storing each rollback costs more than restarting the record.
_MOST_VOID = 500
#: How often to read log and record again while they change.
_LOOKS = 5


async def prove(request: IngestRequest, memory: Memory) -> RecordedWatermark | None:
    """Return the pipeline's recorded state (:func:`~delta_cdc.planning.reconcile.reconcile_async`).

    A seal whose commit was cleaned from the log is not an error: the events themselves contain their origin.

    :raises TargetReplaced: another writer replaced, overwrote or truncated the log
    :raises TargetHistoryChanged: a commit of the log was overwritten, forged or put back from a backup
    :raises TargetWithoutWatermark: the table has rows, and no ingest created it
    """
    log = DeltaLog(request.log, request.storage_options)
    try:
        recorded = await reconcile_async(
            log,
            request.pipeline,
            backup=memory.backup,
            declared=True,
            forgiven=(WatermarkExpired, TargetRecreated),
            thorough=True,
        )
    except TargetReplaced as error:
        raise TargetReplaced(
            error.message.replace("The target", "The change log", 1),
            remedy="RESTORE the log to the version before the replacement. Or, if you do not need its "
            f"events, move the log and {beside(request.log, '__ingested')} away. The next run then ingests "
            "everything again.",
        ) from error
    if recorded is not None and recorded.seal is None and recorded.refused is None and not recorded.empty:
        missing = [name for name in LOG_COLUMNS if name not in recorded.target.schema_columns]
        if missing:
            raise TargetWithoutWatermark(
                f"The table {recorded.target.uri} (version {recorded.target.version}) has rows, but is not "
                f"a change log of an ingest: it has no column {missing[0]}.",
                remedy="set log to a location without a table. The first batch creates the log.",
            )
    return recorded


@dataclass(frozen=True)
class Standing:
    """The batches that count, and the number of the next one.

    :param fallback: the first number for a log that does not exist yet
    """

    recorded: RecordedWatermark | None
    taken: Taken
    fallback: int

    @property
    def seal(self) -> Seal | None:
        """Return the seal in effect."""
        return self.recorded.seal if self.recorded is not None else None

    @property
    def known(self) -> dict[str, Any]:
        """Return the configuration of the seal in effect, about the earlier batches."""
        return self.seal.state.configuration if self.seal is not None else {}

    @cached_property
    def pending(self) -> int | None:
        """Return the number of the batch that is recorded but not in the log; None without such a batch."""
        if self._begun is None or self.batch.kind is None or self.taken.damaged:
            return None
        return self._begun

    @cached_property
    def batch(self) -> Batch:
        """Return the record of the batch that is not in the log; empty without such a batch."""
        return Batch() if self._begun is None else self.taken.batch(self._begun)

    @cached_property
    def number(self) -> int:
        """Return the number of the next batch."""
        if self.pending is not None:
            return self.pending
        first = self.recorded.next_number if self.recorded is not None else self.fallback
        recorded = self.taken.number
        return first if recorded is None else max(first, recorded + 1)

    @property
    def applied_from(self) -> int:
        """Return the number of the first batch that counts."""
        if self.seal is None or self.found_lost:
            return self.number
        return self.seal.state.applied_from

    @cached_property
    def void(self) -> list[list[int]]:
        """Return the ranges of numbers that the next seal marks as void.

        They are needed even if recording restarts: records that a void batch left in quarantine are compared
        with new ones, so that none is there twice.
        """
        ranges = [list(bounds) for bounds in self.known.get("void", ())]
        if len(ranges) > _MOST_VOID:
            return []
        if self.seal is None:
            # A RESTORE may have undone earlier batches, or their log was dropped: all files come again.
            return [[0, self.number - 1]]
        if self.number <= self.seal.number + 1:
            return ranges
        return [*ranges, [self.seal.number + 1, self.number - 1]]

    @property
    def counted(self) -> Counted:
        """Return what the batches in the log ingested."""
        return Counted() if self.found_lost else self._recorded

    @cached_property
    def _recorded(self) -> Counted:
        if self.seal is None:
            return Counted()
        return self.taken.counted(self.seal.state.applied_from, self.seal.number, self.known.get("void", ()))

    @cached_property
    def found_lost(self) -> str:
        """Return why the record of ingested data is unreliable, as observed now; "" if it is reliable."""
        if self.recorded is None:
            return ""
        if self.recorded.refused is not None:
            return self.recorded.refused.message
        if self.taken.damaged:
            return f"The record of ingested data is damaged ({self.taken.damaged})."
        if self.taken.silent is not None and not self.known.get("lost"):
            return f"The record of ingested data lacks the last batch of pipeline {self.taken.silent}."
        if self.seal is None:
            alone = not self.recorded.empty and not self.taken.has_others
            return f"The log {self.recorded.target.uri} has events without a record." if alone else ""
        if self._has_lost_replay:
            return (
                f"A RESTORE of the log {self.recorded.target.uri} undid a replay: the quarantine does not "
                "have its records any more."
            )
        if self._begun is not None and self.batch.kind is None:
            return f"The record of ingested data has no file of batch {self._begun}."
        if len(self.known.get("void", ())) > _MOST_VOID:
            return f"The log {self.recorded.target.uri} was rolled back more than {_MOST_VOID} times."
        expected = self.known.get("before", 0) + self.known.get("rows", 0)
        if "rows" in self.known and expected != self._recorded.rows:
            return (
                f"The record of ingested data, {beside(self.recorded.target.uri, '__ingested')}, has "
                f"{self._recorded.rows} of {expected} entries."
            )
        return ""

    @property
    def is_odd(self) -> bool:
        """Return whether log and record differ in their newest batch.

        They may have been read while a run was between its two commits, or they may differ permanently.
        """
        is_behind = self.seal is not None and self.number > self.seal.number + 1
        has_begun = self.taken.number is not None and self.seal is None
        return self.pending is not None or bool(self.found_lost) or is_behind or has_begun

    @property
    def doubtful(self) -> bool:
        """Return whether data without a record may already have been ingested."""
        return bool(self.found_lost) or bool(self.known.get("lost"))

    @property
    def doubted_until(self) -> dict[str, int]:
        """Return where partitions ended when the record was lost: later records were not ingested before."""
        return {} if self.found_lost else dict(self.known.get("lost_until", {}))

    @property
    def topics(self) -> dict[str, str]:
        """Return the brokers' own ids of the topics that were ingested, by name."""
        return dict(self.known.get("topics", {}))

    @cached_property
    def vanished(self) -> frozenset[str]:
        """Return the hashes (:func:`mark`) of files that were recorded but missing when a run read them."""
        return frozenset(self.known.get("missing", ()))

    def is_vanished(self, uri: str) -> bool:
        """Return whether a file was missing the last time a run recorded and read it."""
        return bool(self.vanished) and mark(uri) in self.vanished

    def configuration(self, options: IngestOptions, chosen: Chosen) -> dict[str, Any]:
        """Return the next seal's configuration, about the batches up to its own. The job adds ``rows``."""
        present = {mark(file.uri) for file in chosen.files if not file.missing}
        absent = {mark(file.uri) for file in chosen.files if file.missing}
        missing = sorted((self.vanished - present) | absent)
        entries: dict[str, Any] = {"before": self.counted.rows, "void": self.void, **settling_of(self.known)}
        entries |= _fitting(entries, missing=missing)
        if self.doubtful or chosen.undone or (missing and "missing" not in entries):
            until = self.doubted_until if chosen.ends is None else chosen.ends
            entries |= {"lost": True, **_fitting(entries, lost_until=until)}
        entries |= _fitting(entries, topics={**self.topics, **chosen.topics})
        return {**entries, **_fitting(entries, ingest=described_ingest(options))}

    @property
    def _has_lost_replay(self) -> bool:
        """Return whether a RESTORE undid a replay: of its records, only the files are left."""
        if self.seal is None or self._stored is None:
            return False
        return self.taken.has_replays(self.seal.number + 1, self._stored)

    @property
    def _begun(self) -> int | None:
        """Return the number of the newest recorded batch, if it was never in the log; None otherwise.

        If a RESTORE undid the batch before it, it is not finished either: the next batch has all that came
        after the batches in the log, so that these stay without a gap.
        """
        recorded, stored = self.taken.number, self._stored
        if recorded is None or (stored is not None and recorded <= stored):
            return None
        if stored is not None and (self.seal is None or self.seal.number < stored):
            return None
        # If the log never had a batch of this pipeline but the record has several, the log was dropped: then
        # do not finish any of them.
        return None if stored is None and self.taken.first != recorded else recorded

    @property
    def _stored(self) -> int | None:
        """Return the newest number ever in the log, also if a RESTORE undid it; None without any."""
        if self.recorded is None or not self.recorded.was_sealed:
            return None
        return self.recorded.next_number - 1


@dataclass(frozen=True)
class Chosen:
    """The next batch.

    :param kind: of its step; None: there is nothing to ingest
    :param notes: notes for users, one sentence each
    :param recorded: an earlier try recorded the batch
    :param left: what the limits leave for another run: ``files`` and ``bytes``, or ``offsets``
    :param looked: how many files or partitions were observed
    :param topics: the brokers' own ids of the observed topics, by name
    :param ends: the ends of partitions by :func:`partition_name`, if the record was just found to be lost
    :param undone: of a replay: it may read records of batches that are void, whose files come again
    """

    kind: Literal["ingest", "replay", "renew"] | None
    notes: tuple[str, ...] = ()
    files: tuple[SourceFile, ...] = ()
    offsets: tuple[OffsetRange, ...] = ()
    recorded: bool = False
    left: dict[str, int] = field(default_factory=dict)
    looked: int = 0
    topics: dict[str, str] = field(default_factory=dict)
    ends: dict[str, int] | None = None
    undone: bool = False


def _fitting(made: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return an addition to a seal's configuration; an empty dict if it is empty or does not fit.

    A seal is small. Leaving an entry out costs comparisons with the log, or a convenience, never an event.
    """
    ((_, value),) = more.items()
    return dict(more) if value and len(json.dumps({**made, **more})) <= _MOST else {}


def partition_name(topic: str, partition: int) -> str:
    """Return a partition's name in a seal."""
    return f"{topic}/{partition}"


def mark(uri: str) -> str:
    """Return the short hash under which a seal stores a file."""
    return sha256(uri.encode()).hexdigest()[:_LETTERS]


async def look_at(request: IngestRequest, memory: Memory, saved: int | None, now_ms: int) -> Standing:
    """Return a consistent state of log and record.

    Another process may be between its two commits, or may make several commits meanwhile. So if log and
    record do not match, this reads the record again, after the log, and accepts it if the log is unchanged.

    :param saved: an earlier try's number for a log that does not exist yet
    :raises DeltaCdcError: see :func:`prove` and :func:`delta_cdc.planning.taken_files.taken`
    """
    place = (request.log, request.pipeline, request.storage_options)
    recorded, record = await both(prove(request, memory), taken(*place))
    fallback = first_number(saved, now_ms)
    standing = Standing(recorded, record, fallback)
    for _ in range(_LOOKS):
        if not standing.is_odd:
            break
        standing = Standing(recorded, await taken(*place), fallback)
        if not await _has_changed(request, recorded):
            break
        recorded = await prove(request, memory)
        standing = Standing(recorded, await taken(*place), fallback)
    return standing


async def _has_changed(request: IngestRequest, recorded: RecordedWatermark | None) -> bool:
    """Return whether the log has changed since it was read."""
    log = DeltaLog(request.log, request.storage_options)
    if recorded is not None:
        return await log.newest_version(after=recorded.target.version) != recorded.target.version
    return await log.has_commit(0)
