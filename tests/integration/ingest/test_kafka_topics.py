"""The look at topics of a real broker: no JVM of ours, no consumer group."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from delta_cdc.core.errors import SourceNotFound, SourceUnreadable, StoreUnavailable
from delta_cdc.planning import topics

if TYPE_CHECKING:
    from tests.support.kafka_broker import Broker


def numbers(
    found: dict[tuple[str, int], topics.Bounds],
) -> dict[tuple[str, int], tuple[int, int, int | None]]:
    return {partition: (one.earliest, one.end, one.starting) for partition, one in found.items()}


def test_bounds_of_every_partition(kafka: Broker) -> None:
    kafka.create_topic("look-a", partitions=2)
    kafka.create_topic("look-b")
    kafka.send("look-a", [("k", "1", 1000), ("k", "2", 5000), ("k", "3", 9000), None])
    kafka.send("look-a", [("k", "1", 1000)], partition=1)
    kafka.delete_records("look-a", 1)
    source = f"kafka://{kafka.servers}/look-a,look-b"
    options = {"client.id": "look"}
    looks = topics.Looks()
    assert numbers(looks.offsets(source, options)) == {
        ("look-a", 0): (1, 4, None),
        ("look-a", 1): (0, 1, None),
        ("look-b", 0): (0, 0, None),
    }
    assert numbers(looks.offsets(source, options, 5001)) == {
        ("look-a", 0): (1, 4, 2),
        # No record as young as that: from the end on.
        ("look-a", 1): (0, 1, 1),
        ("look-b", 0): (0, 0, 0),
    }
    assert len(looks._clients) == 1
    before = {one.topic_id for one in topics.Looks().offsets(f"kafka://{kafka.servers}/look-b").values()}
    kafka.delete_topic("look-b")
    kafka.create_topic("look-b")
    after = {one.topic_id for one in topics.Looks().offsets(f"kafka://{kafka.servers}/look-b").values()}
    assert len(before | after) == 2
    # Nothing was left behind with the broker.
    assert kafka.admin.list_consumer_groups().result().valid == []


def test_only_finished_transactions_count(kafka: Broker) -> None:
    kafka.create_topic("look-t")
    with kafka.producer(transactional_id="look") as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("look-t", "a")
        producer.commit_transaction(30)
        producer.begin_transaction()
        producer.produce("look-t", "b")
        producer.flush(30)
        source = f"kafka://{kafka.servers}/look-t"
        assert numbers(topics.Looks().offsets(source)) == {("look-t", 0): (0, 2, None)}
        uncommitted = topics.Looks().offsets(source, {"isolation.level": "read_uncommitted"})
        assert numbers(uncommitted) == {("look-t", 0): (0, 3, None)}
        producer.abort_transaction(30)
    # The broker answers before it has written the mark of the end into the partition.
    deadline = time.monotonic() + 30
    while (found := numbers(topics.Looks().offsets(source))) != {("look-t", 0): (0, 4, None)}:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def test_a_topic_that_does_not_exist_is_named(kafka: Broker) -> None:
    kafka.create_topic("look-c")
    with pytest.raises(SourceNotFound, match="do not have the topic look-none"):
        topics.Looks().offsets(f"kafka://{kafka.servers}/look-c,look-none")
    assert "look-none" not in kafka.admin.list_topics(timeout=10).topics


def test_brokers_that_do_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics, "TIMEOUT", 1.0)
    with pytest.raises(StoreUnavailable, match=r"Connection refused|timed out") as caught:
        topics.Looks().offsets("kafka://127.0.0.1:1/a")
    assert caught.value.retryable


@pytest.mark.slow
def test_a_user_and_a_password(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka.create_topic("look-s")
    source = f"kafka://{kafka.secured_servers}/look-s"
    assert numbers(topics.Looks().offsets(source, kafka.login)) == {("look-s", 0): (0, 0, None)}
    monkeypatch.setattr(topics, "TIMEOUT", 2.0)
    with pytest.raises(SourceUnreadable, match="Invalid username or password") as caught:
        topics.Looks().offsets(source, {**kafka.login, "sasl.password": "geheim"})
    assert "geheim" not in str(caught.value)
