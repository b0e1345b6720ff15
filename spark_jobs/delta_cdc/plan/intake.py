"""Where an ingest stands: which batches are in the change log, and what is to be made of all others.

A batch is recorded in the table beside the log before its events are appended, both under one number. The
seal in effect in the log says which numbers are in it: from its ``applied_from`` to its own number, without
the ranges that it calls ``void``, which a RESTORE took back or which never came to be. So every number below
the next one that is not in the log is void from then on, whatever the table beside it says.

Where that table is lost, or the seal is, nothing in it counts any more: recording begins anew with the next
number, and all that has no record from then on is compared with the log itself, whose events say where they
came from.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from delta_cdc.checks import described_ingest
from delta_cdc.errors import ProofExpired, TargetReplaced, TargetWithoutProof
from delta_cdc.ingest.shape import LOG_COLUMNS
from delta_cdc.ingest.taken import Batch, Counted, beside, taken
from delta_cdc.log.table import DeltaLog
from delta_cdc.plan.sight import first_number
from delta_cdc.reconcile import reconcile_async

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from delta_cdc.ingest.taken import Taken
    from delta_cdc.plan.ingest_request import IngestRequest
    from delta_cdc.plan.request import Memory
    from delta_cdc.reconcile import Proof
    from delta_cdc.spec import IngestOptions
    from delta_cdc.watermark import Seal

#: A vanished file is remembered by so many letters.
_LETTERS = 12
#: Letters of a seal's configuration, of the 65536 that the whole seal may have.
_MOST = 48_000
#: The log was rolled back so often that remembering each time costs more than beginning anew.
_MOST_VOID = 500
#: How often log and record are looked at again while they move.
_LOOKS = 5


async def prove(request: IngestRequest, memory: Memory) -> Proof | None:
    """Return what the log proves about the pipeline; see :func:`delta_cdc.reconcile.reconcile_async`.

    A seal whose commit was cleaned from the log is no error: the events themselves say where they came from.

    :raises TargetReplaced: somebody else replaced, overwrote or truncated the log
    :raises TargetWithoutProof: the log has rows, and is none that an ingest made
    """
    log = DeltaLog(request.log, request.storage_options)
    try:
        proof = await reconcile_async(
            log, request.pipeline, mirror=memory.mirror, declared=True, forgiven=(ProofExpired,)
        )
    except TargetReplaced as error:
        raise TargetReplaced(
            error.message.replace("The target", "The change log", 1),
            remedy="RESTORE the log to the version before that; or, where its events may go, move the log "
            f"and {beside(request.log, '__ingested')} away, so that everything is ingested anew.",
        ) from error
    if proof is not None and proof.seal is None and proof.refused is None and not proof.empty:
        missing = [name for name in LOG_COLUMNS if name not in proof.target.schema_columns]
        if missing:
            raise TargetWithoutProof(
                f"The table {proof.target.uri} (version {proof.target.version}) holds rows, and is no change "
                f"log of an ingest: it has no column {missing[0]}.",
                remedy="name a location where no table is yet; the first batch makes the log.",
            )
    return proof


@dataclass(frozen=True)
class Standing:
    """Which batches count, and which number comes next.

    :param fallback: the first number of a log that does not exist yet
    """

    proof: Proof | None
    taken: Taken
    fallback: int

    @property
    def seal(self) -> Seal | None:
        """Return the seal in effect."""
        return self.proof.seal if self.proof is not None else None

    @property
    def known(self) -> dict[str, Any]:
        """Return what the seal in effect says of the batches before."""
        return self.seal.configuration if self.seal is not None else {}

    @cached_property
    def pending(self) -> int | None:
        """Return the number of the batch that is recorded and not in the log; None where there is none."""
        if self._begun is None or self.batch.kind is None or self.taken.damaged:
            return None
        return self._begun

    @cached_property
    def batch(self) -> Batch:
        """Return what is recorded of the batch that is not in the log."""
        return Batch() if self._begun is None else self.taken.batch(self._begun)

    @cached_property
    def number(self) -> int:
        """Return the number of the next batch."""
        if self.pending is not None:
            return self.pending
        first = self.proof.next_number if self.proof is not None else self.fallback
        recorded = self.taken.number
        return first if recorded is None else max(first, recorded + 1)

    @property
    def applied_from(self) -> int:
        """Return the number of the first batch that counts."""
        if self.seal is None or self.found_lost:
            return self.number
        return self.seal.applied_from

    @cached_property
    def void(self) -> list[list[int]]:
        """Return the ranges of numbers that the next seal calls void.

        Also where recording begins anew: what such a batch left in quarantine must not count twice.
        """
        ranges = [list(one) for one in self.known.get("void", ())]
        if self.seal is None or len(ranges) > _MOST_VOID:
            return []
        if self.number <= self.seal.number + 1:
            return ranges
        return [*ranges, [self.seal.number + 1, self.number - 1]]

    @property
    def counted(self) -> Counted:
        """Return what the batches took that are in the log."""
        return Counted() if self.found_lost else self._recorded

    @cached_property
    def _recorded(self) -> Counted:
        if self.seal is None:
            return Counted()
        return self.taken.counted(self.seal.applied_from, self.seal.number, self.known.get("void", ()))

    @cached_property
    def found_lost(self) -> str:
        """Return why the record of what was taken cannot be relied on, seen now; "" where it can."""
        if self.proof is None:
            return ""
        if self.proof.refused is not None:
            return self.proof.refused.message
        if self.taken.damaged:
            return f"The record of what was taken is damaged ({self.taken.damaged})."
        if self.taken.silent is not None and not self.known.get("lost"):
            return f"The record of what was taken has lost what pipeline {self.taken.silent} took last."
        if self.seal is None:
            alone = not self.proof.empty and not self.taken.has_others
            return f"The log {self.proof.target.uri} holds events that no record tells of." if alone else ""
        if self._begun is not None and self.batch.kind is None:
            return f"The record of what was taken knows of batch {self._begun}, and does not tell its files."
        if len(self.known.get("void", ())) > _MOST_VOID:
            return f"The log {self.proof.target.uri} was rolled back more than {_MOST_VOID} times."
        expected = self.known.get("before", 0) + self.known.get("rows", 0)
        if "rows" in self.known and expected != self._recorded.rows:
            return (
                f"The record of what was taken, {beside(self.proof.target.uri, '__ingested')}, has "
                f"{self._recorded.rows} of {expected} entries."
            )
        return ""

    @property
    def is_odd(self) -> bool:
        """Return whether log and record are not at the same batch.

        They may have been looked at while a run was between the two, or have gone apart for good.
        """
        behind = self.seal is not None and self.number > self.seal.number + 1
        begun = self.taken.number is not None and self.seal is None
        return self.pending is not None or bool(self.found_lost) or behind or begun

    @property
    def doubtful(self) -> bool:
        """Return whether something without a record may have been taken all the same."""
        return bool(self.found_lost) or bool(self.known.get("lost"))

    @property
    def doubted_until(self) -> dict[str, int]:
        """Return where partitions ended when the record was lost: what came later was never taken before."""
        return {} if self.found_lost else dict(self.known.get("lost_until", {}))

    @property
    def topics(self) -> dict[str, str]:
        """Return the brokers' own ids of the topics that were ingested, by name."""
        return dict(self.known.get("topics", {}))

    @cached_property
    def vanished(self) -> frozenset[str]:
        """Return the marks of files that were recorded, and were gone when they were to be read."""
        return frozenset(self.known.get("missing", ()))

    def is_vanished(self, uri: str) -> bool:
        """Tell whether a file was gone when it was to be read, the last time it was recorded."""
        return bool(self.vanished) and mark(uri) in self.vanished

    def in_others(self, uri: str) -> bool:
        """Tell whether another pipeline took a file into the same log."""
        return uri in self.taken.others_files

    def configuration(
        self,
        options: IngestOptions,
        topics: Mapping[str, str],
        ends: Mapping[str, int] | None = None,
        *,
        gone: Collection[str] = (),
        came: Collection[str] = (),
    ) -> dict[str, Any]:
        """Return what the next seal says of the batches up to its own; its rows the job adds.

        :param topics: the brokers' own ids of topics, by name
        :param ends: where partitions end now, by :func:`partition_name`
        :param gone: files of the batch that have vanished
        :param came: files of the batch that are read
        """
        missing = sorted((self.vanished - {mark(uri) for uri in came}) | {mark(uri) for uri in gone})
        made: dict[str, Any] = {"before": self.counted.rows, "void": self.void}
        made |= _fitting(made, missing=missing)
        if self.doubtful or (missing and "missing" not in made):
            until = self.doubted_until if ends is None else {**ends}
            made |= {"lost": True, **_fitting(made, lost_until=until)}
        made |= _fitting(made, topics={**self.topics, **topics})
        return {**made, **_fitting(made, ingest=described_ingest(options))}

    @property
    def _begun(self) -> int | None:
        """Return the number of the newest batch, if it is not in the log, nor ever was."""
        recorded, stored = self.taken.number, self._stored
        if recorded is None or (stored is not None and recorded <= stored):
            return None
        # A log that never had a batch of ours, and a record with several: the log was dropped, and the newest
        # of them is no more to be finished than the others.
        return None if stored is None and self.taken.first != recorded else recorded

    @property
    def _stored(self) -> int | None:
        """Return the newest number in the log, taken back or not; None where there never was one."""
        if self.proof is None or not self.proof.was_sealed:
            return None
        return self.proof.next_number - 1


def _fitting(made: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return what may be added to a seal's configuration; nothing where it is empty, or too much.

    A seal is small, and what is left out here costs comparisons with the log, or a convenience, and no event.
    """
    ((_, value),) = more.items()
    return dict(more) if value and len(json.dumps({**made, **more})) <= _MOST else {}


def partition_name(topic: str, partition: int) -> str:
    """Return what a seal calls a partition."""
    return f"{topic}/{partition}"


def mark(uri: str) -> str:
    """Return the short form in which a seal remembers a file."""
    return sha256(uri.encode()).hexdigest()[:_LETTERS]


async def look_at(request: IngestRequest, memory: Memory, pinned: int | None, now_ms: int) -> Standing:
    """Return where the pipeline stands: log and record as they were at one moment.

    A run of another process may be between its two commits, or make several of them meanwhile. So where the
    two do not fit together, the record is read again, after the log, and counts if the log did not move.

    :param pinned: the number that a try before had for a log that does not exist yet
    :raises DeltaCdcError: see :func:`prove` and :func:`delta_cdc.ingest.taken.taken`
    """
    where = (request.log, request.pipeline, request.storage_options)
    proof, record = await asyncio.gather(prove(request, memory), taken(*where))
    fallback = first_number(pinned, now_ms)
    standing = Standing(proof, record, fallback)
    for _ in range(_LOOKS):
        if not standing.is_odd:
            break
        standing = Standing(proof, await taken(*where), fallback)
        if not await _moved(request, proof):
            break
        proof = await prove(request, memory)
        standing = Standing(proof, await taken(*where), fallback)
    return standing


async def _moved(request: IngestRequest, proof: Proof | None) -> bool:
    """Tell whether the log has another version than the one that was looked at."""
    log = DeltaLog(request.log, request.storage_options)
    if proof is not None:
        return await log.newest_version(after=proof.target.version) != proof.target.version
    return await log.has_commit(0)
