"""Topics of a real broker into a change log: planned without a JVM, every record once."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import ingest_changes
from delta_cdc.core import failpoints
from delta_cdc.core.errors import OffsetsExpired, SourceNotFound, TopicReplaced
from delta_cdc.core.requests import IngestRequest
from delta_cdc.planning.ingest import plan_ingest
from delta_cdc.run.table_arguments import ingest_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession

    from delta_cdc.planning.ingest import IngestPlan
    from delta_cdc.run.outcomes import Outcome
    from tests.support.kafka_broker import Broker

ADAPTER = {"operation_column": "op", "sequence_by": "n", "except_column_list": ["op", "n"]}
SCHEMA = "id INT, v STRING, op STRING, n BIGINT"


class Killed(BaseException):
    """Ends a job as a kill does: nothing that handles errors sees it."""


class NoSpark:
    """A session that must not be used."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"Spark was asked for {name}")


@dataclass
class Stream:
    """A topic, and the log that its records go to."""

    spark: SparkSession
    kafka: Broker
    topic: str
    log: str
    servers: str = ""
    sent: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return f"kafka://{self.servers or self.kafka.servers}/{self.topic}"

    def send(self, count: int, partition: int = 0, **more: Any) -> None:
        """Write events; ``n`` tells one from another."""
        self.kafka.send(self.topic, self._events(count, **more), partition=partition)

    def _events(self, count: int, **more: Any) -> Iterable[tuple[Any, ...]]:
        for _ in range(count):
            self.sent += 1
            event = {"id": self.sent % 3, "v": f"v{self.sent}", "op": "update", "n": self.sent}
            yield (str(self.sent % 3), json.dumps({**event, **more}))

    def ingest(self, spark: Any = None, **given: Any) -> Outcome:
        return ingest_changes(
            spark or self.spark,
            self.source,
            self.log,
            pipeline="p",
            keys=["id"],
            adapter_options=ADAPTER,
            schema=SCHEMA,
            **{**self.options, **given},
        )

    def plan(self, **given: Any) -> IngestPlan:
        options = ingest_options(
            {"source": self.source, "adapter_options": ADAPTER, "keys": ["id"], "schema": SCHEMA}
        )
        return plan_ingest(
            IngestRequest(pipeline="p", source=self.source, log=self.log, options=options, **given)
        )

    def planned(self, **given: Any) -> list[tuple[int, int, int]]:
        """Return what the next batch would take: partition, starting and ending offset.

        Partitions without a record are recorded, too, so that what expires in them is noticed; not told here.
        """
        spec = self.plan(**given).spec
        return [
            (one.partition, one.starting_offset, one.ending_offset)
            for one in (spec.offsets if spec else ())
            if one.starting_offset < one.ending_offset
        ]

    def numbers(self) -> list[int]:
        """Return ``n`` of all events in the log."""
        rows = self.spark.read.format("delta").load(self.log).select("_sequence").collect()
        return sorted(row[0] for row in rows)

    def everything(self) -> list[int]:
        return list(range(1, self.sent + 1))


@pytest.fixture
def stream(
    spark: SparkSession, kafka: Broker, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[..., Stream]:
    """Return a function that makes a topic of the test's own."""

    def made(partitions: int = 1, **config: str) -> Stream:
        topic = "".join(mark if mark.isalnum() else "-" for mark in request.node.name)
        kafka.create_topic(topic, partitions=partitions, **config)
        return Stream(spark, kafka, topic, str(tmp_path / "log"))

    return made


def killed_at(point: str, run: Callable[[], object]) -> None:
    def kill(reached: str) -> None:
        if reached == point:
            raise Killed(point)

    remove = failpoints.install(kill)
    try:
        with pytest.raises(Killed):
            run()
    finally:
        remove()


@pytest.mark.slow
def test_what_a_look_finds(stream: Callable[..., Stream]) -> None:
    """Without Spark: what is next is what the log's record and the broker say, and nothing else."""
    one = stream(partitions=2)
    assert one.ingest(NoSpark()).applied is False
    one.kafka.send(one.topic, [("0", "{}", 1_000), ("0", "{}", 9_000)])
    # A partition without a record as young as that begins at its end.
    assert one.planned(starting_timestamp="1970-01-01T00:00:05Z") == [(0, 1, 2)]
    one.kafka.delete_topic(one.topic)
    one.kafka.create_topic(one.topic, partitions=2)
    one.send(5)
    one.send(2, partition=1)
    one.kafka.send(one.topic, ["{"], partition=1)
    assert one.planned(max_offsets=4) == [(0, 0, 2), (1, 0, 2)]
    # What one partition lacks, the other one gets.
    assert one.planned(max_offsets=7) == [(0, 0, 4), (1, 0, 3)]
    first = one.ingest()
    assert (first.counts["events"], first.counts["quarantined"]) == (7, 1)
    assert one.numbers() == one.everything()
    again = one.ingest(NoSpark())
    assert (again.applied, again.seal) == (False, first.seal)

    one.send(6)
    one.kafka.add_partitions(one.topic, 3)
    one.send(2, partition=2)
    # The beginning was left out for its age only where nothing was taken yet.
    assert one.planned(starting_timestamp="2000-01-01T00:00:00Z") == [(0, 5, 11), (2, 0, 2)]
    plan = one.plan(max_offsets=3)
    assert plan.left == {"offsets": 5}
    one.kafka.delete_records(one.topic, 8)
    with pytest.raises(OffsetsExpired, match=r"Records 5 to 7 of partition 0"):
        one.plan()
    assert one.planned(on_expired="continue") == [(0, 8, 11), (2, 0, 2)]
    assert "Records 5 to 7" in " ".join(one.plan(on_expired="continue").notes)

    # The new topic holds more than the old one did, so offsets alone would not tell.
    one.kafka.delete_topic(one.topic)
    with pytest.raises(SourceNotFound):
        one.plan()
    one.kafka.create_topic(one.topic, partitions=3)
    one.send(20)
    one.send(20, partition=1)
    with pytest.raises(TopicReplaced, match="the topic was deleted and created again"):
        one.plan()


@pytest.mark.slow
@pytest.mark.parametrize("point", ["planned", "recorded", "quarantined", "before_commit", "committed"])
def test_every_record_once_wherever_a_job_dies(stream: Callable[..., Stream], point: str) -> None:
    one = stream(partitions=2)
    one.send(3)
    one.kafka.send(one.topic, ["{"])
    killed_at(point, one.ingest)
    # It arrived after the batch was recorded, and belongs to the next one.
    one.send(2, partition=1)
    for _ in range(2):
        one.ingest()
    assert one.ingest(NoSpark()).applied is False
    assert one.numbers() == one.everything()
    rejected = one.spark.read.format("delta").load(f"{one.log}__quarantine")
    assert [row["raw"] for row in rejected.collect()] == ["{"]
    if point == "recorded":
        killed_at("before_commit", lambda: (one.send(4), one.ingest(limits={"max_offsets": 3})))
        assert one.planned() == one.planned(max_offsets=1)
        left = 0
        while one.ingest(limits={"max_offsets": 3}).applied:
            left += 1
        assert left == 2
        assert one.numbers() == one.everything()


@pytest.mark.slow
def test_a_lost_record_doubles_nothing_and_loses_nothing(stream: Callable[..., Stream]) -> None:
    one = stream(partitions=2)
    one.send(3)
    one.send(2, partition=1)
    one.ingest()
    one.send(2)
    shutil.rmtree(f"{one.log}__ingested")
    assert one.planned() == [(0, 0, 5), (1, 0, 2)]
    result = one.ingest()
    assert (result.counts["events"], result.counts["repeated"]) == (2, 5)
    one.send(1, partition=1)
    assert one.planned() == [(1, 2, 3)]
    one.ingest()
    assert one.numbers() == one.everything()


@pytest.mark.slow
def test_retention_takes_records_before_and_during_a_job(stream: Callable[..., Stream]) -> None:
    one = stream()
    one.send(4)
    one.ingest()
    one.send(4)
    remove = failpoints.install(
        lambda point: one.kafka.delete_records(one.topic, 6) if point == "started" else None
    )
    try:
        with pytest.raises(OffsetsExpired, match=r"offset \[4, 8\)"):
            one.ingest()
    finally:
        remove()
    assert one.numbers() == [1, 2, 3, 4]
    with pytest.raises(OffsetsExpired, match="Records 4 to 5"):
        one.ingest(NoSpark())
    assert one.ingest(policies={"on_expired": "continue"}).counts["events"] == 2
    assert one.numbers() == [1, 2, 3, 4, 7, 8]
    assert one.ingest(NoSpark()).applied is False


@pytest.mark.slow
def test_transactions_and_a_user(stream: Callable[..., Stream]) -> None:
    """Only what was committed lands, up to the first transaction that is open; read with a password."""
    one = stream()
    one.servers = one.kafka.secured_servers
    one.options = {"kafka_options": one.kafka.login}
    with one.kafka.producer(transactional_id="ingest") as producer:
        producer.init_transactions(30)
        for ending in ("commit", "abort", "commit", "open"):
            producer.begin_transaction()
            for _, value in one._events(2):
                producer.produce(one.topic, value)
            producer.flush(30)
            if ending == "commit":
                producer.commit_transaction(30)
            elif ending == "abort":
                producer.abort_transaction(30)
        assert one.ingest().counts["events"] == 4
        assert one.ingest(NoSpark()).applied is False
        producer.commit_transaction(30)
    assert one.ingest().counts["events"] == 2
    assert one.numbers() == [1, 2, 5, 6, 7, 8]
    assert one.ingest(NoSpark()).applied is False
    written = [path.read_bytes() for path in Path(one.log).parent.rglob("*") if path.is_file()]
    assert written
    assert not any(b"sasl" in text for text in written)


@pytest.mark.slow
def test_many_batches_in_any_order_end_in_the_same_rows(stream: Callable[..., Stream]) -> None:
    """Bounds, partitions and a newer partition make no difference to what is in the log."""
    one = stream(partitions=3)
    for partition in (2, 0, 1, 1, 0):
        one.send(3, partition)
    while one.ingest(limits={"max_offsets": 4}).applied:
        pass
    one.kafka.add_partitions(one.topic, 4)
    one.send(2, 3)
    one.ingest()
    assert one.numbers() == one.everything()
    positions = one.spark.read.format("delta").load(one.log).select("_position.topic", "_position.partition")
    assert {tuple(row) for row in positions.collect()} == {(one.topic, number) for number in range(4)}
