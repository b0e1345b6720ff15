"""Chooses the next records of a topic: from the recorded positions to the ends that the broker reports."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from delta_cdc.core.adapters import OFFSET, orders_by_offset
from delta_cdc.core.errors import InvalidConfiguration, OffsetsExpired, StoreUnavailable, TopicReplaced
from delta_cdc.core.kafka_options import isolation_level
from delta_cdc.core.spec import OffsetRange
from delta_cdc.core.text_table import plural
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.ingest_batches import Chosen, partition_name
from delta_cdc.planning.quarantine import newest_seal
from delta_cdc.planning.taken_files import INGESTED, beside
from delta_cdc.planning.topics import Looks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from delta_cdc.core.requests import IngestRequest
    from delta_cdc.planning.ingest_batches import Standing
    from delta_cdc.planning.topics import Bounds

    Key = tuple[str, int]

#: Partitions with lost records that an error names.
_MOST_NAMED = 3


async def choose(request: IngestRequest, standing: Standing, looks: Looks | None = None) -> Chosen:
    """Request the bounds of the partitions from the brokers, and choose the next records.

    :param looks: connections that several plans share
    :raises SourceNotFound: the topic does not exist
    :raises OffsetsExpired: the topic dropped records that were not taken yet, and ``on_expired`` is ``fail``
    :raises TopicReplaced: a partition ends below the last record taken, or was deleted
    :raises InvalidConfiguration: see :func:`chosen`
    """
    bounds = await _bounds(request, looks)
    await _refuse_topics_of_others(request, standing, bounds)
    positions = standing.counted.positions
    unfinished = await _unfinished(request, positions, bounds, looks)
    found = chosen(request, standing, bounds, unfinished)
    waits = (
        f"{_open(request, key, bounds[key].end, positions[key])}. The run waits until it ends."
        for key in sorted(unfinished)
    )
    return replace(found, notes=(*waits, *found.notes))


def chosen(
    request: IngestRequest,
    standing: Standing,
    bounds: Mapping[Key, Bounds],
    unfinished: Collection[Key] = (),
) -> Chosen:
    """Choose records of the partitions whose bounds are known.

    A pipeline without a position in a partition may have had another name: it misses what the topic dropped
    after the last record that any pipeline took into the log. A new partition is part of the batch even if it
    has no records: it needs a position, so that a later run can detect lost records. Before that, it is one
    that was added to a known topic, whose first record has the offset 0.

    :param unfinished: partitions that end below their positions only because of an open transaction
    :raises InvalidConfiguration: the log orders events by their offsets, and a topic has more partitions now
    """
    positions = standing.counted.positions
    ids = _ids(bounds)
    _refuse_replaced(request, positions, standing.topics, bounds, ids, unfinished)
    topics = {topic for topic, _ in positions}
    starts: dict[Key, int] = {}
    lost: list[tuple[Key, int, int]] = []
    for key, bound in bounds.items():
        position = positions.get(key)
        if position is None and bound.starting is not None:
            starts[key] = bound.starting
        elif position is None:
            starts[key] = bound.earliest
            known = _end_of_others(standing, key)
            if known is None and key[0] in topics:
                known = 0
            if known is not None and known < bound.earliest:
                lost.append((key, known, bound.earliest))
        else:
            starts[key] = max(position, bound.earliest)
            if position < bound.earliest:
                lost.append((key, position, bound.earliest))
    notes = _expired(request, lost)
    available = {key: max(0, bounds[key].end - start) for key, start in starts.items()}
    shares = _spread(available, request.max_offsets)
    ranges = tuple(
        _range(standing, key, starts[key], starts[key] + count)
        for key, count in sorted(shares.items())
        if count or key not in positions
    )
    rest = sum(available.values()) - sum(shares.values())
    if not any(shares.values()):
        return Chosen(None, notes, looked=len(bounds))
    _refuse_added(request, standing, bounds)
    return Chosen(
        "ingest",
        (*notes, *_several_topics(request, standing, bounds)),
        offsets=ranges,
        left={"offsets": rest} if rest else {},
        looked=len(bounds),
        topics=ids,
        ends=_ends(standing, bounds),
    )


async def recorded(
    request: IngestRequest, standing: Standing, ranges: Iterable[OffsetRange], looks: Looks | None = None
) -> Chosen:
    """Return the records of a batch that an earlier try recorded, as far as the brokers still have them.

    :raises SourceNotFound: the topic no longer exists
    :raises OffsetsExpired: the topic dropped some of the records, or the source no longer names the topic,
        and ``on_expired`` is ``fail``
    :raises TopicReplaced: a partition ends below the last record, or now belongs to another topic
    :raises StoreUnavailable: some of the records belong to a transaction that is still open
    """
    batch, bounds, known = tuple(ranges), await _bounds(request, looks), await _recorded_topics(request)
    ids = _ids(bounds)
    ends = {(one.topic, one.partition): one.ending_offset for one in batch}
    unfinished = await _unfinished(request, ends, bounds, looks)
    _refuse_replaced(request, ends, {**standing.topics, **known}, bounds, ids, unfinished)
    for key in sorted(unfinished):
        raise StoreUnavailable(
            f"{_open(request, key, bounds[key].end, ends[key])}.",
            remedy="wait for the end of the transaction, and run again; or set isolation.level to "
            "read_uncommitted again.",
        )
    found: list[OffsetRange] = []
    lost: list[tuple[Key, int, int]] = []
    for one in batch:
        key = one.topic, one.partition
        bound = bounds.get(key)
        earliest = one.ending_offset if bound is None else min(bound.earliest, one.ending_offset)
        if earliest > one.starting_offset:
            lost.append((key, one.starting_offset, earliest))
        found.append(_range(standing, key, max(one.starting_offset, earliest), one.ending_offset))
    return Chosen(
        "ingest",
        _expired(request, lost),
        offsets=tuple(found),
        looked=len(bounds),
        topics={**known, **ids},
        ends=_ends(standing, bounds),
    )


async def _bounds(request: IngestRequest, looks: Looks | None) -> Mapping[Key, Bounds]:
    arguments = (request.source_uri, request.kafka_options or {}, request.starting_ms)
    return await asyncio.to_thread((looks or Looks()).offsets, *arguments)


async def _unfinished(
    request: IngestRequest, positions: Mapping[Key, int], bounds: Mapping[Key, Bounds], looks: Looks | None
) -> frozenset[Key]:
    """Return the partitions that end below their positions only because of an open transaction.

    A run with the isolation level ``read_uncommitted`` has ingested records beyond the end that
    ``read_committed`` sees.
    """
    short = {key for key, bound in bounds.items() if bound.end < positions.get(key, 0)}
    if not short or isolation_level(request.kafka_options) == "read_uncommitted":
        return frozenset()
    options = {**(request.kafka_options or {}), "isolation.level": "read_uncommitted"}
    written = await _bounds(replace(request, kafka_options=options), looks)
    return frozenset(key for key in short if key in written and written[key].end >= positions[key])


def _open(request: IngestRequest, key: Key, end: int, position: int) -> str:
    topic, partition = key
    return (
        f"Partition {partition} of topic {topic} ends at offset {end} for isolation.level read_committed, "
        f"because a transaction is open, and pipeline {request.pipeline} has ingested it up to offset "
        f"{position} with read_uncommitted"
    )


async def _recorded_topics(request: IngestRequest) -> dict[str, str]:
    """Return the ids of topics as they were when the newest batch was recorded."""
    log = DeltaLog(beside(request.log, INGESTED), request.storage_options)
    seal = await newest_seal(log, await log.newest_version(), request.pipeline)
    return dict(seal.state.configuration.get("topics", {})) if seal is not None else {}


def _ids(bounds: Mapping[Key, Bounds]) -> dict[str, str]:
    return {topic: bound.topic_id for (topic, _), bound in sorted(bounds.items()) if bound.topic_id}


def _ends(standing: Standing, bounds: Mapping[Key, Bounds]) -> dict[str, int] | None:
    if not standing.found_lost:
        return None
    return {partition_name(*key): bound.end for key, bound in bounds.items()}


def _range(standing: Standing, key: Key, starting: int, ending: int) -> OffsetRange:
    again = ending > starting and _again(standing, key, starting, ending - starting)
    return OffsetRange(*key, starting, ending, again=again)


def _end_of_others(standing: Standing, key: Key) -> int | None:
    """Return the end of what other pipelines took from a partition into the same log."""
    ends = (one.ending_offset for one in standing.taken.others_ranges if (one.topic, one.partition) == key)
    return max(ends, default=None)


async def _refuse_topics_of_others(
    request: IngestRequest, standing: Standing, bounds: Mapping[Key, Bounds]
) -> None:
    """Refuse a topic of which another pipeline took a namesake into the same log.

    Its records would be taken for those of the same offsets, which the log has.

    :raises TopicReplaced: names both topics
    """
    mine = {topic for topic, _ in standing.counted.positions}
    shared = {one.topic for one in standing.taken.others_ranges} - mine
    ids = {topic: known for topic, known in _ids(bounds).items() if topic in shared}
    if not ids or standing.recorded is None:
        return
    log = DeltaLog(request.log, request.storage_options)
    newest = await log.newest_version()
    for name in sorted(standing.taken.others):
        seal = await newest_seal(log, newest, name)
        topics = {} if seal is None else seal.state.configuration.get("topics", {})
        _refuse_other_ids(ids, topics, f"{name} has ingested into the same log")


def _again(standing: Standing, key: Key, starting: int, count: int) -> bool:
    """Return whether some of the records may be in the log already."""
    if standing.counted.positions.get(key, 0) > starting:
        return True
    if standing.doubtful and starting < standing.doubted_until.get(partition_name(*key), starting + count):
        return True
    return any(
        (other.topic, other.partition) == key
        and other.starting_offset < starting + count
        and starting < other.ending_offset
        for other in standing.taken.others_ranges
    )


def _refuse_replaced(
    request: IngestRequest,
    positions: Mapping[Key, int],
    known_ids: Mapping[str, str],
    bounds: Mapping[Key, Bounds],
    ids: Mapping[str, str],
    unfinished: Collection[Key],
) -> None:
    topics = {topic for topic, _ in bounds}
    _refuse_other_ids(ids, known_ids, f"{request.pipeline} has ingested")
    for (topic, partition), position in positions.items():
        if topic not in topics:
            # The source no longer names this topic.
            continue
        bound = bounds.get((topic, partition))
        if bound is None:
            raise _replaced(
                f"Partition {partition} of topic {topic} is not there, and pipeline {request.pipeline} has "
                f"ingested it up to offset {position}"
            )
        if bound.end < position and (topic, partition) not in unfinished:
            raise _replaced(
                f"Partition {partition} of topic {topic} ends at offset {bound.end}, and pipeline "
                f"{request.pipeline} has ingested it up to offset {position}"
            )


def _compares_offsets(request: IngestRequest) -> bool:
    options = request.options
    return not options.insert_only and orders_by_offset(options.adapter, options.adapter_options)


def _known(standing: Standing) -> set[Key]:
    """Return the partitions of which the log has records, of all its pipelines."""
    return {
        *standing.counted.positions,
        *((one.topic, one.partition) for one in standing.taken.others_ranges),
    }


def _several_topics(
    request: IngestRequest, standing: Standing, bounds: Mapping[Key, Bounds]
) -> tuple[str, ...]:
    """Return a warning if a topic is new to a log of other topics, and the log orders events by offsets.

    No refusal: each topic may have keys of its own, such as those of one region.
    """
    topics, known = {topic for topic, _ in bounds}, {topic for topic, _ in _known(standing)}
    added, every = sorted(topics - known), sorted(topics | known)
    if not added or len(every) == 1 or not _compares_offsets(request):
        return ()
    names = ", ".join(every[:_MOST_NAMED]) + (", …" if len(every) > _MOST_NAMED else "")
    note = (
        f"The log orders events by {OFFSET}, and gets events of {plural(len(every), 'topic')} ({names}): the "
        "offsets of different topics do not compare. If a key can be in more than one of them, stop the "
        "pipeline, and ingest into a new log, with sequence_by in adapter_options that names what grows with "
        "each change of a key."
    )
    return (note,)


def _refuse_added(request: IngestRequest, standing: Standing, bounds: Mapping[Key, Bounds]) -> None:
    """Refuse partitions that were added to a topic, if the log orders events by their offsets.

    A producer chooses the partition of a key by the number of partitions. So changes of a key go to another
    partition from then on, whose offsets do not continue those before.

    :raises InvalidConfiguration: names a new partition
    """
    if not _compares_offsets(request):
        return
    known = _known(standing)
    topics = {topic for topic, _ in known}
    added = sorted(key for key in bounds if key[0] in topics and key not in known)
    if added:
        topic, partition = added[0]
        raise InvalidConfiguration(
            f"Partition {partition} of topic {topic} was added after pipeline {request.pipeline} had "
            f"ingested others, and the log orders events by {OFFSET}: a change of a key in the new partition "
            "may have a lower offset than an older change of the key in another one.",
            remedy="ingest into a new log, with another pipeline name, and with sequence_by in "
            "adapter_options that names what grows with each change of a key. If all changes of each key are "
            f"in one partition, keep {OFFSET} in the new log.",
            argument="adapter_options",
        )


def _refuse_other_ids(ids: Mapping[str, str], known_ids: Mapping[str, str], ingested: str) -> None:
    """Refuse topics whose ids differ from known ones.

    :param ingested: the pipeline that knows them, and what it did, for people
    """
    for topic, known in known_ids.items():
        if ids.get(topic, known) != known:
            raise _replaced(
                f"Topic {topic} has the id {ids[topic]}, and pipeline {ingested} the one with the id {known}"
            )


def _replaced(reason: str) -> TopicReplaced:
    return TopicReplaced(
        f"{reason}: the topic was deleted and created again, or is one of another cluster.",
        remedy="ingest the new topic with another pipeline name into a new log, because its offsets repeat "
        "those of the old topic. Or restore the old topic.",
    )


def _expired(request: IngestRequest, lost: Sequence[tuple[Key, int, int]]) -> tuple[str, ...]:
    """Return a note for each partition whose records are gone.

    :param lost: partition, its first record that was not taken, and its earliest record
    :raises OffsetsExpired: some are gone, and ``on_expired`` is ``fail``; the message names the first ones,
        and how many there are in all
    """
    gone = [
        f"Records {position} to {earliest - 1} of partition {partition} of topic {topic} are gone"
        for (topic, partition), position, earliest in lost
    ]
    ingested = f"pipeline {request.pipeline} had not ingested them"
    if not gone or request.on_expired != "fail":
        return tuple(f"{text}, and {ingested}: the run continues without them." for text in gone)
    number = sum(earliest - position for _, position, earliest in lost)
    more = f" (up to {plural(number, 'record')} of {plural(len(gone), 'partition')})" if gone[1:] else ""
    raise OffsetsExpired(
        f"{'; '.join(gone[:_MOST_NAMED])}{more}, and {ingested}.",
        remedy='set on_expired to "continue" to continue without them; raise the retention of the topic, '
        "or run more often.",
    )


def _spread(available: Mapping[Key, int], limit: int | None) -> dict[Key, int]:
    """Spread a number of records evenly over partitions; if a partition has too few, the others get more."""
    if limit is None or sum(available.values()) <= limit:
        return dict(available)
    shares: dict[Key, int] = {}
    remaining, n_open = limit, len(available)
    for key, count in sorted(available.items(), key=lambda item: (item[1], item[0])):
        shares[key] = min(count, -(-remaining // n_open))
        remaining, n_open = remaining - shares[key], n_open - 1
    return shares
