"""Records of topics, read by Spark from a real broker: exactly the offsets that were asked for."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from delta_cdc.core.errors import (
    DeltaCdcError,
    InvalidConfiguration,
    OffsetsExpired,
    SourceNotFound,
    TopicReplaced,
)
from delta_cdc.core.options import IngestOptions
from delta_cdc.core.spec import IngestSpec, OffsetRange
from delta_cdc.ingest import sources
from delta_cdc.spark.ingest import kafka as reader
from tests.support.ingest_specs import ingest_spec

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka_broker import Broker


def batch(kafka: Broker, *offsets: tuple[str, int, int, int]) -> IngestSpec:
    """Return a spec of (topic, partition, starting offset, ending offset)."""
    names = ",".join(dict.fromkeys(one[0] for one in offsets)) or "none"
    ranges = tuple(OffsetRange(*one) for one in offsets)
    return ingest_spec(IngestOptions(source_kind="kafka"), f"kafka://{kafka.servers}/{names}", offsets=ranges)


def records(spark: SparkSession, spec: IngestSpec, options: dict[str, str] | None = None) -> list[Any]:
    found = reader.read(spark, spec, options)
    names = (sources.TOPIC, sources.PARTITION, sources.OFFSET, sources.VALUE, sources.KEY)
    rows = found.select(*names).orderBy(*names[:3]).collect()
    return [(*row[:3], *[None if raw is None else bytes(raw) for raw in row[3:]]) for row in rows]


def refused(spark: SparkSession, spec: IngestSpec) -> DeltaCdcError:
    with pytest.raises(Exception, match="afka") as caught:
        records(spark, spec)
    error = reader.named(caught.value, spec)
    assert error is not None, caught.value
    return error


def test_exactly_the_offsets_of_the_batch(spark: SparkSession, kafka: Broker) -> None:
    """Every kind of record; ranges of several partitions and topics, and two of one partition."""
    kafka.create_topic("read-a", partitions=2)
    kafka.create_topic("read-b")
    kafka.send(
        "read-a", ["before", ("k", "ü", 1000), ("k", None), b"\xff\xfe", (b"\xff", ""), "after", "last"]
    )
    kafka.send("read-a", ["x", "y"], partition=1)
    kafka.send("read-b", ["z"])
    spec = batch(
        kafka,
        ("read-a", 0, 1, 5),
        ("read-a", 1, 1, 2),
        ("read-b", 0, 0, 1),
        ("read-a", 0, 6, 7),
        ("read-a", 1, 2, 2),
    )
    assert records(spark, spec) == [
        ("read-a", 0, 1, "ü".encode(), b"k"),
        ("read-a", 0, 2, None, b"k"),
        ("read-a", 0, 3, b"\xff\xfe", None),
        ("read-a", 0, 4, b"", b"\xff"),
        ("read-a", 0, 6, b"last", None),
        ("read-a", 1, 1, b"y", None),
        ("read-b", 0, 0, b"z", None),
    ]
    found = reader.read(spark, batch(kafka, ("read-a", 0, 1, 2)))
    assert found.schema.simpleString() == reader.read(spark, batch(kafka)).schema.simpleString()
    assert [
        row[0].astimezone(UTC) for row in found.select(F.timestamp_micros(sources.PUBLISHED)).collect()
    ] == [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]
    assert records(spark, batch(kafka)) == []


@pytest.mark.slow
def test_offsets_without_a_record_are_passed_over(spark: SparkSession, kafka: Broker) -> None:
    """Marks of transactions and what they aborted, and what compaction took away."""
    kafka.create_topic("read-t")
    with kafka.producer(transactional_id="read") as producer:
        producer.init_transactions(30)
        for value in ("a", "aborted", "b"):
            producer.begin_transaction()
            producer.produce("read-t", value)
            producer.flush(30)
            if value == "aborted":
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
    spec = batch(kafka, ("read-t", 0, 0, 6))
    assert [(row[2], row[3]) for row in records(spark, spec)] == [(0, b"a"), (4, b"b")]
    uncommitted = records(spark, spec, {"isolation.level": "read_uncommitted"})
    assert [(row[2], row[3]) for row in uncommitted] == [(0, b"a"), (2, b"aborted"), (4, b"b")]


@pytest.mark.slow
def test_records_that_are_gone_are_an_error(spark: SparkSession, kafka: Broker) -> None:
    kafka.create_topic("read-r")
    kafka.send("read-r", [str(number) for number in range(10)])
    kafka.delete_records("read-r", 5)
    error = refused(spark, batch(kafka, ("read-r", 0, 0, 10)))
    assert type(error) is OffsetsExpired
    assert re.search(r"offset \[0, 10\) for topic partition read-r-0", str(error))
    assert [row[2] for row in records(spark, batch(kafka, ("read-r", 0, 5, 10)))] == [5, 6, 7, 8, 9]
    assert type(refused(spark, batch(kafka, ("read-r", 0, 5, 10), ("read-r", 3, 0, 1)))) is TopicReplaced
    assert type(refused(spark, batch(kafka, ("read-none", 0, 5, 10)))) is SourceNotFound
    assert reader.named(ValueError("Kafka"), batch(kafka)) is None


@pytest.mark.slow
def test_options_are_handed_over_by_file_or_conf(
    spark: SparkSession, kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = spark.newSession()
    monkeypatch.delenv(reader.OPTIONS_VARIABLE, raising=False)
    assert reader.handed_over(session) is None
    session.conf.set(reader.OPTIONS_CONF, json.dumps({"client.id": "conf"}))
    assert reader.handed_over(session) == {"client.id": "conf"}
    file = tmp_path / "kafka.json"
    file.write_text(json.dumps({"isolation.level": "read_uncommitted"}))
    monkeypatch.setenv(reader.OPTIONS_VARIABLE, str(file))
    assert reader.handed_over(session) == {"isolation.level": "read_uncommitted"}
    kafka.create_topic("read-o")
    with kafka.producer(transactional_id="read-o") as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("read-o", "aborted")
        producer.flush(30)
        producer.abort_transaction(30)
    assert [row[3] for row in records(session, batch(kafka, ("read-o", 0, 0, 2)))] == [b"aborted"]
    file.write_text('[1, "geheim"')
    with pytest.raises(InvalidConfiguration, match=reader.OPTIONS_VARIABLE) as caught:
        reader.handed_over(session)
    assert "geheim" not in str(caught.value)
