"""Records of external change sets, and those who deliver them: files in a folder, and a topic.

A record is a line of JSON. A line that begins with ``bad`` is no event until the adapter is corrected; one
that begins with ``junk`` never is.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import SourceNotFound, StoreUnavailable
from delta_cdc.planning.topics import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delta_cdc.core.spec import OffsetRange
    from tests.simulator.ingest_world import IngestWorld
    from tests.simulator.store import Stored
    from tests.simulator.world import Event


#: How the content of a file begins that nothing can be read from.
UNREADABLE = (b"damaged", b"killer", b"\x1f")


def decoded(raw: str, *, corrected: bool) -> tuple[dict[str, Any], str | None]:
    """Return the event of a record; an empty dict and the reason, if it has no event."""
    if raw.startswith("bad ") and corrected:
        raw = raw.removeprefix("bad ")
    if not raw.startswith("{"):
        return {}, "is no object"
    event: dict[str, Any] = json.loads(raw)
    return event, None


def position(**given: Any) -> dict[str, Any]:
    """Return the position of a record."""
    return {**dict.fromkeys(("file", "row", "topic", "partition", "offset")), **given}


class Records:
    """Makes records; each one is another event."""

    def __init__(self) -> None:
        self._serial = 0

    def line(self, number: int) -> str:
        self._serial += 1
        event = {
            "id": (number + self._serial) % 4,
            "op": "delete" if (number + self._serial) % 7 == 0 else "upsert",
            "value": self._serial,
            "eid": f"e{self._serial}",
            # Some events arrive after later ones of their key.
            "seq": self._serial * 10 - (number % 3) * 25,
        }
        text = json.dumps(event)
        kind = (number + 3 * self._serial) % 8
        return f"bad {text}" if kind == 3 else f"junk {self._serial}" if kind == 6 else text


@dataclass
class Folder:
    """Who delivers files into a folder.

    :param contents: every content that a file ever had, by its key
    """

    world: IngestWorld
    name: str
    records: Records
    contents: dict[str, list[bytes]] = field(default_factory=dict)
    _files: int = 0
    _gone: dict[str, Stored] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        return sorted(key for key in self.world.store.objects if key.startswith(f"{self.name}/"))

    def happen(self, event: Event) -> None:
        """Do one thing to the files."""
        name = event.name
        if self.world.schedule.ordered and name not in ("deliver", "several"):
            # The user guarantees the order of the names.
            name = "deliver"
        if name not in ("deliver", "several", "late", "killer") and not self.keys:
            name = "deliver"
        self.world.coverage["source", name] += 1
        getattr(self, f"_{name}")(event.number)

    def put(self, key: str, lines: Iterable[str], what: str) -> None:
        self.put_bytes(key, "".join(f"{line}\n" for line in lines).encode(), what)

    def put_bytes(self, key: str, content: bytes, what: str) -> None:
        self.world.tell(f"{what} {key}: {content[:90]!r}")
        self.world.store.write(key, content)
        self.contents.setdefault(key, []).append(content)

    def _new(self, number: int, prefix: str = "f") -> tuple[str, list[str]]:
        self._files += 1
        lines = [self.records.line(number + i) for i in range(number % 3 + 1)]
        return f"{self.name}/{prefix}{self._files:04d}.json", lines

    def _chosen(self, number: int) -> tuple[str, list[str]]:
        key = self.keys[number % len(self.keys)]
        content = self.world.store.objects[key].content
        if content.startswith(UNREADABLE):
            # What the file was meant to be.
            sound = [one for one in self.contents[key] if not one.startswith(UNREADABLE)]
            content = sound[-1] if sound else b""
        return key, content.decode().splitlines()

    def _deliver(self, number: int) -> None:
        self.put(*self._new(number), "delivered")

    def _several(self, number: int) -> None:
        for _ in range(3):
            self._deliver(number)

    def _late(self, number: int) -> None:
        """A name that sorts before all others."""
        self.put(*self._new(number, "a"), "late")

    def _grow(self, number: int) -> None:
        key, lines = self._chosen(number)
        self.put(key, [*lines, self.records.line(number)], "longer")

    def _rewrite(self, number: int) -> None:
        """Another content under the same name, without the first record."""
        key, lines = self._chosen(number)
        self.put(key, [*lines[1:], self.records.line(number)], "rewritten")

    def _repeat(self, number: int) -> None:
        self.put(*self._chosen(number), "again")

    def _copy(self, number: int) -> None:
        """Deliver a file again under another name: for an ingest, these are other events."""
        _, lines = self._chosen(number)
        key, _ = self._new(number, "c")
        self.put(key, lines, "copied")

    def _rename(self, number: int) -> None:
        self._copy(number)
        self._remove(number)

    def _remove(self, number: int) -> None:
        key, _ = self._chosen(number)
        self.world.tell(f"removed {key}")
        self._gone[key] = self.world.store.objects.pop(key)

    def _back(self, number: int) -> None:
        """Bring a file back that was removed, as it was."""
        if gone := sorted(set(self._gone) - set(self.keys)):
            key = gone[number % len(gone)]
            self.world.tell(f"back {key}")
            self.world.store.objects[key] = self._gone.pop(key)

    def _damage(self, number: int) -> None:
        key, lines = self._chosen(number)
        if number % 2:
            self.put_bytes(key, b"\x1f\x8b" + f"{number}".encode(), "damaged")
        else:
            self.put(key, ["damaged", *lines], "damaged")

    def _killer(self, number: int) -> None:
        key, lines = self._new(number, "k")
        self.put(key, ["killer", *lines], "delivered")

    def allowed(self, key: str) -> Counter[str]:
        """Return how often each line may be taken: as often as the delivery with most of them has it."""
        most: Counter[str] = Counter()
        for content in self.contents.get(key, ()):
            most |= Counter(content.decode(errors="replace").splitlines())
        return most


@dataclass
class Partition:
    """A partition.

    :param earliest: the first offset that can be read
    :param end: the offset after the last record
    :param records: offset -> record; compaction leaves offsets without one
    """

    earliest: int = 0
    end: int = 0
    records: dict[int, str] = field(default_factory=dict)


@dataclass
class Topic:
    """A topic, and what its brokers answer.

    :param past: every record that was ever readable, by partition and offset
    :param removed: those of them that no ingest has to take: they were compacted, or are of an older topic
    """

    world: IngestWorld
    records: Records
    topic_id: str = "topic-1"
    partitions: list[Partition] = field(default_factory=lambda: [Partition(), Partition()])
    past: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    removed: set[tuple[int, int]] = field(default_factory=set)

    @property
    def kept(self) -> dict[tuple[int, int], set[str]]:
        """Return the records that an ingest has to take."""
        return {at: raws for at, raws in self.past.items() if at not in self.removed}

    def happen(self, event: Event) -> None:
        """Do one thing to the topic."""
        self.world.coverage["source", event.name] += 1
        self.world.tell(f"topic: {event.name}")
        getattr(self, f"_{event.name}")(event.number)

    def _produce(self, number: int) -> None:
        for count in range(number % 4 + 1):
            at = (number + count // 2) % len(self.partitions)
            one = self.partitions[at]
            one.records[one.end] = self.records.line(number + count)
            self.past.setdefault((at, one.end), set()).add(one.records[one.end])
            self.removed.discard((at, one.end))
            one.end += 1
        if number % 5 == 0:
            # The marker of a transaction.
            self.partitions[at].end += 1

    def _partition(self, number: int) -> None:
        self.partitions.append(Partition())

    def _expire(self, number: int) -> None:
        at = number % len(self.partitions)
        one = self.partitions[at]
        earliest = min(one.end, one.earliest + 1 + number % 3)
        dropped = [offset for offset in one.records if offset < earliest]
        for offset in dropped:
            del one.records[offset]
        record = self.world.record
        rows: list[Any] = record.rows(record.snapshot()) if record.newest >= 0 else []
        if not any(row["partition"] == at for row in rows):
            # No run has looked at the partition yet, or the record is lost: an ingest begins at the oldest.
            self.removed.update((at, offset) for offset in dropped)
        one.earliest = earliest
        self.world.damage.add("expired")

    def _compact(self, number: int) -> None:
        one = self.partitions[number % len(self.partitions)]
        offsets = sorted(one.records)[:-1]
        for offset in offsets[:: 2 + number % 2]:
            del one.records[offset]
            self.removed.add((self.partitions.index(one), offset))

    def _recreate(self, number: int) -> None:
        self.topic_id = f"topic-{number}-{self.world.hub.steps}"
        self.partitions = [Partition() for _ in self.partitions[: 1 + number % 2]]
        self.removed.update(self.past)
        self.world.damage.add("topic_gone")
        for more in range(number % 5):
            self._produce(number + more)

    # -- the brokers ------------------------------------------------------------------------------------
    def offsets(
        self, source: str, options: Any = None, since: int | None = None
    ) -> dict[tuple[str, int], Bounds]:
        """Answer a look at the bounds of all partitions."""
        if self.world.hub.step("offsets") in ("error", "lost"):
            raise StoreUnavailable("simulated: the brokers do not answer", remedy="run again.")
        if not self.partitions:
            raise SourceNotFound("simulated: no topic", remedy="create it.")
        return {
            ("t", number): Bounds(one.earliest, one.end, None, self.topic_id)
            for number, one in enumerate(self.partitions)
        }

    def read(self, ranges: Iterable[OffsetRange]) -> list[tuple[str, dict[str, Any]]]:
        """Return the records of ranges of offsets, as Spark's reader does with ``failOnDataLoss``."""
        found = []
        for one in ranges:
            if one.starting_offset >= one.ending_offset:
                continue
            if one.partition >= len(self.partitions):
                raise NoRecords("Kafka: UnknownTopicOrPartition")
            partition = self.partitions[one.partition]
            if one.starting_offset < partition.earliest or one.ending_offset > partition.end:
                raise NoRecords("KAFKA_DATA_LOSS: some Kafka records are gone (OffsetOutOfRange)")
            found += [
                (record, position(topic=one.topic, partition=one.partition, offset=offset))
                for offset in range(one.starting_offset, one.ending_offset)
                if (record := partition.records.get(offset)) is not None
            ]
        return found


class NoRecords(Exception):
    """What Spark's reader raises for offsets that are not there."""
