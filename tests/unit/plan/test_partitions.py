"""Which records of a topic come next."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.errors import InvalidConfiguration, OffsetsExpired, StoreUnavailable, TopicReplaced
from delta_cdc.core.options import IngestOptions
from delta_cdc.planning.topics import Bounds, Looks
from tests.support.ingest_model import Boom, Broker, Topics

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.core.spec import IngestSpec
    from delta_cdc.planning.ingest import IngestPlan


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(Looks, "offsets", made)
    return made


@pytest.fixture
def world(tmp_path: Path, broker: Broker) -> Topics:
    return Topics(tmp_path)


def ranges(plan: IngestPlan) -> list[tuple[int, int, int, bool]]:
    found = [(o.partition, o.starting_offset, o.ending_offset, o.again) for o in spec_of(plan).offsets]
    return [one for one in found if one[1] < one[2]]


def spec_of(plan: IngestPlan) -> IngestSpec:
    assert plan.spec is not None
    return plan.spec


def held(world: Topics) -> list[str]:
    events = world.events
    assert all(count == 1 for count in events.values())
    return sorted(f"{name} {at}" for name, at in events)


def recorded(world: Topics) -> None:
    with pytest.raises(Boom):
        world.unpublished(lambda spec: world.engine(spec, "recorded"))


def test_from_the_earliest_on(world: Topics, broker: Broker) -> None:
    broker.has(0, 3, 5)
    broker.has(1, 0, 0)
    plan = world.plan()
    assert ranges(plan) == [(0, 3, 5, False)]
    assert (plan.looked, plan.left) == (2, {})
    assert broker.asked == [("kafka://h:9092/t", {"a": "b"}, None)]
    assert spec_of(plan).source_uri == "kafka://h:9092/t"
    assert spec_of(plan).step.configuration["topics"] == {"t": "id-t"}
    assert "lost_until" not in spec_of(plan).step.configuration
    assert plan.description == "2 records of 1 partition of kafka://h:9092/t"
    world.ingest()
    assert held(world) == ["t/0 3", "t/0 4"]
    assert world.plan().spec is None
    broker.has(0, 3, 7)
    broker.has(2, 0, 1)
    assert ranges(world.plan()) == [(0, 5, 7, False), (2, 0, 1, False)]


def test_a_start_in_time_is_for_partitions_without_a_position(world: Topics, broker: Broker) -> None:
    broker.has(0, 0, 9, starting=4)
    moment = "2027-01-15T08:00:00+00:00"
    world.ingest(starting_timestamp=moment)
    assert broker.asked[-1][2] == 1_800_000_000_000
    broker.has(1, 0, 9, starting=9)
    assert held(world) == [f"t/0 {at}" for at in range(4, 9)]
    assert world.plan(starting_timestamp=moment).spec is None


@pytest.mark.parametrize(
    ("ends", "most", "shares"),
    [
        ((10, 10), 4, [2, 2]),
        ((1, 10), 6, [1, 5]),
        ((10, 1, 1), 8, [6, 1, 1]),
        ((10, 10, 10), 1, [1, 0, 0]),
        ((2, 2), 9, [2, 2]),
        ((5, 0), 3, [3, 0]),
    ],
)
def test_the_bound_is_spread(
    world: Topics, broker: Broker, ends: tuple[int, ...], most: int, shares: list[int]
) -> None:
    for partition, end in enumerate(ends):
        broker.has(partition, 0, end)
    plan = world.plan(max_offsets=most)
    assert ranges(plan) == [(at, 0, count, False) for at, count in enumerate(shares) if count]
    rest = sum(ends) - sum(shares)
    assert plan.left == ({"offsets": rest} if rest else {})


def test_records_that_are_gone(world: Topics, broker: Broker) -> None:
    broker.has(0, 0, 5)
    world.ingest()
    broker.has(0, 7, 9)
    with pytest.raises(OffsetsExpired, match=r"Records 5 to 6 of partition 0 of topic t are gone"):
        world.plan()
    plan = world.plan(on_expired="continue")
    assert ranges(plan) == [(0, 7, 9, False)]
    assert "continues without them" in plan.notes[0]


def test_records_of_several_partitions_that_are_gone(world: Topics, broker: Broker) -> None:
    """Whoever goes on without them has to know how many they are."""
    for partition in range(5):
        broker.has(partition, 0, 5)
    world.ingest()
    for partition in range(5):
        broker.has(partition, 7, 9)
    with pytest.raises(OffsetsExpired, match=r"partition 0 of .*partition 2 of") as caught:
        world.plan()
    assert "partition 3" not in caught.value.message
    assert "(up to 10 records of 5 partitions), and pipeline" in caught.value.message
    assert len(world.plan(on_expired="continue").notes) == 5


def test_a_topic_made_anew(world: Topics, broker: Broker) -> None:
    broker.has(0, 0, 5)
    world.ingest()
    broker.has(0, 0, 4)
    with pytest.raises(TopicReplaced, match="ends at offset 4"):
        world.plan()
    broker.has(0, 0, 50, topic_id="another")
    with pytest.raises(TopicReplaced, match="has the id another"):
        world.plan()
    del broker.bounds["t", 0]
    broker.has(1, 0, 4)
    with pytest.raises(TopicReplaced, match="Partition 0 of topic t is not there"):
        world.plan()
    broker.bounds.clear()
    broker.has(0, 0, 1, topic="u")
    plan = world.plan()
    assert ranges(plan) == [(0, 0, 1, False)], "t is not named any more"
    assert spec_of(plan).step.configuration["topics"] == {"t": "id-t", "u": "id-u"}


def test_a_recorded_batch_comes_first(world: Topics, broker: Broker) -> None:
    broker.has(0, 0, 5)
    broker.has(1, 0, 1)
    recorded(world)
    broker.has(0, 0, 9)
    plan = world.plan(max_offsets=1)
    assert ranges(plan) == [(0, 0, 5, False), (1, 0, 1, False)]
    assert spec_of(plan).recorded
    world.drain()
    assert len(held(world)) == 10


def test_a_restore_undoes_the_batch_before_one_that_was_recorded(world: Topics, broker: Broker) -> None:
    """Finished, the recorded batch would hide the offsets before it."""
    for end in (2, 5):
        broker.has(0, 0, end)
        world.ingest()
    broker.has(0, 0, 7)
    recorded(world)
    world.log.restore(0)
    assert ranges(world.plan()) == [(0, 2, 7, False)]
    world.drain()
    assert len(held(world)) == 7


def test_a_lost_record_compares_up_to_where_the_topic_ended(world: Topics, broker: Broker) -> None:
    broker.has(0, 0, 5)
    world.ingest()
    world.lose_record()
    plan = world.plan(max_offsets=3)
    assert ranges(plan) == [(0, 0, 3, True)]
    assert spec_of(plan).step.configuration["lost_until"] == {"t/0": 5}
    world.ingest(max_offsets=3)
    broker.has(0, 0, 8)
    broker.has(1, 0, 1)
    assert ranges(world.plan(max_offsets=3)) == [(0, 3, 5, True), (1, 0, 1, True)]
    world.ingest()
    broker.has(0, 0, 9)
    assert ranges(world.plan()) == [(0, 8, 9, False)], "what came since was never taken before"
    world.drain()
    assert len(held(world)) == 10


@pytest.mark.parametrize(("lost", "start"), [(False, 2), (True, 0)], ids=["restored", "dropped"])
def test_a_log_that_lost_events(world: Topics, broker: Broker, lost: bool, start: int) -> None:
    """One that was dropped begins at the earliest again."""
    for end in (2, 5, 7):
        broker.has(0, 0, end)
        world.ingest()
    if lost:
        world.lose_log()
    else:
        world.log.restore(0)
    assert ranges(world.plan()) == [(0, start, 7, False)]
    recorded(world)
    world.drain()
    assert len(held(world)) == 7


def test_another_pipeline_of_the_same_log(world: Topics, broker: Broker) -> None:
    broker.has(0, 0, 5)
    broker.has(1, 0, 0)
    world.ingest()
    world.pipeline = "q"
    broker.has(0, 0, 6)
    broker.has(1, 0, 1)
    assert ranges(world.plan()) == [(0, 0, 6, True), (1, 0, 1, False)]
    world.drain()
    assert len(held(world)) == 7


def test_a_partition_without_a_share_has_a_position_from_then_on(world: Topics, broker: Broker) -> None:
    """Else nobody could tell that its records went before they were ingested."""
    broker.has(0, 0, 2)
    broker.has(1, 0, 0)
    broker.has(2, 4, 9)
    world.ingest(max_offsets=1)
    for partition in (1, 2):
        broker.has(1, 0, 0)
        broker.has(2, 4, 9)
        broker.has(partition, 7, 9)
        with pytest.raises(OffsetsExpired, match=rf"to 6 of partition {partition} of topic t are gone"):
            world.plan()
    broker.has(2, 4, 9)
    broker.has(1, 0, 3)
    world.drain()
    assert len(held(world)) == 10


def test_a_partition_that_was_added_begins_at_its_first_offset(world: Topics, broker: Broker) -> None:
    """A run without records keeps no position, so what goes before the next batch would not be missed."""
    broker.has(0, 0, 2)
    world.ingest()
    broker.has(1, 0, 0)
    assert world.plan().spec is None
    broker.has(1, 3, 5)
    # A topic that is new may have lost records long ago.
    broker.has(0, 7, 9, topic="u")
    with pytest.raises(OffsetsExpired, match="Records 0 to 2 of partition 1 of topic t are gone"):
        world.plan()
    plan = world.plan(on_expired="continue")
    assert ranges(plan) == [(1, 3, 5, False), (0, 7, 9, False)]
    assert len(plan.notes) == 1
    world.drain(on_expired="continue")
    assert world.plan().spec is None


BY_OFFSET: dict[str, dict[str, Any]] = {
    "plain": {"sequence_by": ("_Offset",)},
    "mongodb": {"document": "d", "sequence_by": ("_offset", "source.ord")},
    "canal": {},
    "dms": {},
}
BY_ANOTHER: dict[str, dict[str, Any]] = {
    "plain": {"sequence_by": ("n", "_offset")},
    "canal": {"sequence_by": ("_tidb.commitTs",)},
    "dms": {"sequence_by": ("metadata.commit-timestamp",)},
    "maxwell": {},
}


def with_adapter(name: str, options: dict[str, Any], **more: Any) -> dict[str, Any]:
    keys = () if more.get("insert_only") else ("id",)
    return {
        "options": IngestOptions(
            adapter=name, adapter_options=options, source_kind="kafka", keys=keys, **more
        )
    }


@pytest.mark.parametrize("name", BY_OFFSET)
def test_offsets_order_no_partition_that_was_added(world: Topics, broker: Broker, name: str) -> None:
    given = with_adapter(name, BY_OFFSET[name])
    broker.has(0, 0, 5)
    broker.has(0, 0, 5, topic="u")
    world.ingest(**given)
    broker.has(1, 0, 0)
    assert world.plan(**given).spec is None, "keys move with the first record"
    broker.has(0, 0, 6)
    for pipeline in ("p", "q"):
        world.pipeline = pipeline
        with pytest.raises(
            InvalidConfiguration, match=r"Partition 1 of topic t was added .* by _offset"
        ) as found:
            world.plan(**given)
        assert "new log" in found.value.remedy
        assert found.value.argument == "adapter_options"


@pytest.mark.parametrize("name", [*BY_ANOTHER, "insert_only"])
def test_another_order_takes_partitions_that_were_added(world: Topics, broker: Broker, name: str) -> None:
    given = with_adapter(name, BY_ANOTHER[name]) if name in BY_ANOTHER else {}
    given = given or with_adapter("plain", {"sequence_by": "_offset"}, insert_only=True)
    broker.has(0, 0, 5)
    world.ingest(**given)
    broker.has(1, 0, 2)
    assert ranges(world.plan(**given)) == [(1, 0, 2, False)]


@pytest.mark.parametrize(("name", "warns"), [*((name, True) for name in BY_OFFSET), ("maxwell", False)])
def test_offsets_of_two_topics_do_not_compare(
    world: Topics, broker: Broker, name: str, *, warns: bool
) -> None:
    """A note where a topic comes into the log, not of every batch: each topic may have keys of its own."""
    given = with_adapter(name, BY_OFFSET.get(name, {}))
    broker.has(0, 0, 5)
    assert world.plan(**given).notes == ()
    broker.has(0, 0, 5, topic="u")
    for pipeline in ("p", "q"):
        world.pipeline = pipeline
        note = " ".join(world.plan(**given).notes)
        topics = "2 topics (t, u)" if pipeline == "p" else "3 topics (t, u, v)"
        assert (f"The log orders events by _offset, and gets events of {topics}" in note) is warns
        assert ("sequence_by in adapter_options" in note) is warns
        if pipeline == "p":
            world.ingest(**given)
            broker.has(0, 0, 6)
            assert world.plan(**given).notes == ()
            broker.has(0, 0, 5, topic="v")


class Transactions(Broker):
    """A broker with open transactions: a client that reads only committed records sees earlier ends."""

    def __init__(self) -> None:
        super().__init__()
        self.committed: dict[int, int] = {}

    def __call__(self, *arguments: Any, looks: Any = None) -> dict[tuple[str, int], Bounds]:
        found = super().__call__(*arguments, looks=looks)
        if arguments[1].get("isolation.level") == "read_uncommitted":
            return found
        return {
            key: replace(bound, end=self.committed.get(key[1], bound.end)) for key, bound in found.items()
        }


UNCOMMITTED = {"kafka_options": {"isolation.level": "read_uncommitted"}}


def test_another_isolation_level_waits_for_the_end_of_a_transaction(
    world: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Transactions()
    monkeypatch.setattr(Looks, "offsets", broker)
    broker.has(0, 0, 5)
    broker.has(1, 0, 5)
    broker.committed = {0: 2}
    world.ingest(**UNCOMMITTED)
    plan = world.plan()
    assert plan.spec is None
    assert (
        "ends at offset 2 for isolation.level read_committed, because a transaction is open" in plan.notes[0]
    )
    broker.has(1, 0, 7)
    assert ranges(world.plan()) == [(1, 5, 7, False)], "the other partition goes on"
    world.ingest()
    broker.committed = {}
    broker.has(0, 0, 6)
    plan = world.plan()
    assert (ranges(plan), plan.notes) == ([(0, 5, 6, False)], ())
    # A topic that is shorter for every client is another one.
    broker.has(0, 0, 4)
    with pytest.raises(TopicReplaced, match="ends at offset 4"):
        world.plan()


def test_a_recorded_batch_of_an_open_transaction(world: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Transactions()
    monkeypatch.setattr(Looks, "offsets", broker)
    broker.has(0, 0, 5)
    broker.committed = {0: 2}
    with pytest.raises(Boom):
        world.unpublished(lambda spec: world.engine(spec, "recorded"), **UNCOMMITTED)
    with pytest.raises(StoreUnavailable, match=r"ends at offset 2 for isolation\.level read_committed"):
        world.plan()
    assert ranges(world.plan(**UNCOMMITTED)) == [(0, 0, 5, False)]
    broker.committed = {}
    assert ranges(world.plan()) == [(0, 0, 5, False)]


def test_a_recorded_batch_whose_records_are_gone(world: Topics, broker: Broker) -> None:
    broker.has(0, 0, 5)
    broker.has(1, 0, 5)
    recorded(world)
    broker.has(0, 3, 9)
    broker.has(1, 8, 9)
    with pytest.raises(OffsetsExpired, match="Records 0 to 2 of partition 0"):
        world.plan()
    plan = world.plan(on_expired="continue")
    assert ranges(plan) == [(0, 3, 5, False)]
    assert spec_of(plan).recorded
    assert len(plan.notes) == 3
    world.drain(on_expired="continue")
    assert held(world) == [*[f"t/0 {at}" for at in range(3, 9)], "t/1 8"]


def test_a_recorded_batch_of_another_topic(world: Topics, broker: Broker) -> None:
    broker.has(0, 0, 5)
    recorded(world)
    broker.has(0, 0, 9, topic_id="another")
    with pytest.raises(TopicReplaced, match="has the id another"):
        world.plan()
    broker.has(0, 0, 4)
    with pytest.raises(TopicReplaced, match="ends at offset 4"):
        world.plan()
    broker.has(0, 0, 9)
    plan = world.plan()
    assert spec_of(plan).step.configuration["topics"] == {"t": "id-t"}


def test_a_recorded_batch_of_a_topic_that_is_not_named_any_more(world: Topics, broker: Broker) -> None:
    broker.has(0, 0, 5)
    recorded(world)
    broker.bounds.clear()
    broker.has(0, 0, 1, topic="u")
    with pytest.raises(OffsetsExpired, match="Records 0 to 4 of partition 0 of topic t"):
        world.plan()
    assert ranges(world.plan(on_expired="continue")) == []
    world.drain(on_expired="continue")
    assert held(world) == ["u/0 0"]
