"""Sources that name topics."""

from __future__ import annotations

import pytest

from delta_cdc.core import topics
from delta_cdc.core.errors import InvalidConfiguration


@pytest.mark.parametrize(
    ("source", "servers", "names"),
    [
        ("kafka://h:1/a", "h:1", ("a",)),
        ("kafka://h1:9092,h-2.local:9093/a,b.c_d-1", "h1:9092,h-2.local:9093", ("a", "b.c_d-1")),
        ("kafka://h/a", "h:9092", ("a",)),
        ("KAFKA://[::1]:9/a", "[::1]:9", ("a",)),
        ("kafka:///a", "", ("a",)),
    ],
)
def test_a_source_is_taken_apart(source: str, servers: str, names: tuple[str, ...]) -> None:
    assert topics.is_topics(source)
    assert topics.parse(source) == topics.Topics(servers, names)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("kafka://h:1/", "names no topics"), ("kafka://h:1", "names no topics"),
        ("kafka://h:1/a,", "names no topics"), ("kafka://h:1/a/b", "'a/b' is no name of a topic"),
        ("kafka://h:1/a*", "'a*' is no name"), ("kafka://h:1/..", "'..' is no name"),
        ("kafka://h:1/" + "a" * 250, "is no name"), ("kafka://h:1/a?x=1", "names no topics"),
        ("kafka://h:1/a,b,a", "twice"), ("kafka://user@h:1/a", "the broker 'user@h:1'"),
        ("kafka://h:port/a", "the broker 'h:port'"), ("kafka://h:1,/a", "the broker ''"),
        ("s3://bucket/a", "names no topics"),
        ("kafka://[::1:9092/a", "is no address"), ("kafka://\u2100/a", "is no address"),
    ],
)  # fmt: skip
def test_another_source_is_refused(source: str, said: str) -> None:
    with pytest.raises(InvalidConfiguration, match=r"kafka://<host>|once") as caught:
        topics.parse(source)
    assert said in str(caught.value)


def test_files_are_no_topics() -> None:
    assert not any(
        topics.is_topics(source) for source in ("/kafka", "s3://kafka/x", "kafka", "file:///kafka")
    )


def test_brokers_come_from_the_source_or_the_options() -> None:
    options = {"bootstrap.servers": "o1:1, o2:2"}
    assert topics.servers_of("kafka://h:1/a", options) == "h:1"
    assert topics.servers_of("kafka:///a", options) == "o1:1,o2:2"
    with pytest.raises(InvalidConfiguration, match=r"bootstrap\.servers"):
        topics.servers_of("kafka:///a", None)
