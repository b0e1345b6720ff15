"""Which records of a topic come next: from what is recorded to the ends that the broker tells."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from delta_cdc.core.errors import OffsetsExpired, TopicReplaced
from delta_cdc.core.spec import OffsetRange
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.ingest_batches import Chosen, partition_name
from delta_cdc.planning.quarantine import newest_seal
from delta_cdc.planning.taken_files import INGESTED, beside
from delta_cdc.planning.topics import Looks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delta_cdc.planning.ingest_batches import Standing
    from delta_cdc.planning.ingest_request import IngestRequest
    from delta_cdc.planning.topics import Bounds

    Key = tuple[str, int]


async def choose(request: IngestRequest, standing: Standing, looks: Looks | None = None) -> Chosen:
    """Ask the brokers, and choose.

    :param looks: connections that several plans share
    :raises SourceNotFound: there is no such topic
    :raises OffsetsExpired: records after the last one taken are gone, and that is not to be passed over
    :raises TopicReplaced: a partition ends before the last record taken, or is gone
    """
    return chosen(request, standing, await _bounds(request, looks))


def chosen(request: IngestRequest, standing: Standing, bounds: Mapping[Key, Bounds]) -> Chosen:
    """Choose records of the partitions whose bounds are known.

    A partition that was never looked at is part of the batch, even if it has no record for it: only what has
    a position can be seen to have lost records.
    """
    positions = standing.counted.positions
    ids = _ids(bounds)
    _refuse_replaced(request, positions, standing.topics, bounds, ids)
    starts: dict[Key, int] = {}
    notes = []
    for key, bound in bounds.items():
        position = positions.get(key)
        if position is None:
            starts[key] = bound.earliest if bound.starting is None else bound.starting
        else:
            starts[key] = max(position, bound.earliest)
            if position < bound.earliest:
                notes.append(_expired(request, key, position, bound.earliest))
    available = {key: max(0, bounds[key].end - start) for key, start in starts.items()}
    shares = _spread(available, request.max_offsets)
    ranges = tuple(
        _range(standing, key, starts[key], starts[key] + count)
        for key, count in sorted(shares.items())
        if count or key not in positions
    )
    rest = sum(available.values()) - sum(shares.values())
    if not any(shares.values()):
        return Chosen(None, tuple(notes), looked=len(bounds))
    return Chosen(
        "ingest",
        tuple(notes),
        offsets=ranges,
        left={"offsets": rest} if rest else {},
        looked=len(bounds),
        topics=ids,
        ends=_ends(standing, bounds),
    )


async def recorded(
    request: IngestRequest, standing: Standing, ranges: Iterable[OffsetRange], looks: Looks | None = None
) -> Chosen:
    """Return the records of a batch that a try before recorded, as far as the brokers still have them.

    :raises SourceNotFound: there is no such topic any more
    :raises OffsetsExpired: some of them are gone, or not named by the source, and that is not to be passed
        over
    :raises TopicReplaced: a partition ends before the last of them, or is another topic's by now
    """
    batch, bounds, known = tuple(ranges), await _bounds(request, looks), await _recorded_topics(request)
    ids = _ids(bounds)
    ends = {(one.topic, one.partition): one.ending_offset for one in batch}
    _refuse_replaced(request, ends, {**standing.topics, **known}, bounds, ids)
    found, notes = [], []
    for one in batch:
        key = one.topic, one.partition
        bound = bounds.get(key)
        earliest = one.ending_offset if bound is None else min(bound.earliest, one.ending_offset)
        if earliest > one.starting_offset:
            notes.append(_expired(request, key, one.starting_offset, earliest))
        found.append(_range(standing, key, max(one.starting_offset, earliest), one.ending_offset))
    return Chosen(
        "ingest",
        tuple(notes),
        offsets=tuple(found),
        looked=len(bounds),
        topics={**known, **ids},
        ends=_ends(standing, bounds),
    )


async def _bounds(request: IngestRequest, looks: Looks | None) -> Mapping[Key, Bounds]:
    given = (request.source_uri, request.kafka_options or {}, request.starting_ms)
    return await asyncio.to_thread((looks or Looks()).offsets, *given)


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


def _again(standing: Standing, key: Key, starting: int, count: int) -> bool:
    """Tell whether some of the records may be in the log already."""
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
) -> None:
    topics = {topic for topic, _ in bounds}
    for topic, known in known_ids.items():
        if ids.get(topic, known) != known:
            raise _replaced(
                f"Topic {topic} has the id {ids[topic]}, and pipeline {request.pipeline} has ingested the "
                f"one with the id {known}"
            )
    for (topic, partition), position in positions.items():
        if topic not in topics:
            # No longer named by the source.
            continue
        bound = bounds.get((topic, partition))
        if bound is None or bound.end < position:
            found = "is not there" if bound is None else f"ends at offset {bound.end}"
            raise _replaced(
                f"Partition {partition} of topic {topic} {found}, and pipeline {request.pipeline} has "
                f"ingested it up to offset {position}"
            )


def _replaced(what: str) -> TopicReplaced:
    return TopicReplaced(
        f"{what}: the topic was made anew.",
        remedy="ingest the new topic under another pipeline name and into a log of its own: its positions "
        "are those of the old one again; or bring the old topic back.",
    )


def _expired(request: IngestRequest, key: Key, position: int, earliest: int) -> str:
    topic, partition = key
    lost = (
        f"Records {position} to {earliest - 1} of partition {partition} of topic {topic} are gone, and "
        f"pipeline {request.pipeline} had not ingested them"
    )
    if request.on_expired == "fail":
        raise OffsetsExpired(
            f"{lost}.",
            remedy='set on_expired to "continue" to go on without them; raise the retention of the topic, or '
            "run more often.",
        )
    return f"{lost}: it goes on without them."


def _spread(available: Mapping[Key, int], most: int | None) -> dict[Key, int]:
    """Spread a number of records evenly: what one partition lacks, the others get."""
    if most is None or sum(available.values()) <= most:
        return dict(available)
    shares: dict[Key, int] = {}
    left, open_ = most, len(available)
    for key, count in sorted(available.items(), key=lambda item: (item[1], item[0])):
        shares[key] = min(count, -(-left // open_))
        left, open_ = left - shares[key], open_ - 1
    return shares
