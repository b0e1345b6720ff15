"""Avro into a change log: object files, and messages whose schemas a registry has."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from delta_cdc import ingest_changes
from delta_cdc.core.errors import InvalidConfiguration, SourceUnreadable, StoreUnavailable
from tests.support.schema_registry import Served, serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka_broker import Broker

OLD: dict[str, Any] = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "n", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    ],
}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "day", "type": {"type": "int", "logicalType": "date"}}]}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
AT, DAY = datetime(2026, 1, 2, 3, 4, 5, 6, UTC), date(2026, 1, 2)
GIVEN: dict[str, Any] = {"pipeline": "p", "keys": ["id"], "format": "avro"}


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "n": number, "price": Decimal(number) / 8, "at": AT if number % 2 else None, **more}


def columns_of(spark: SparkSession, log: Path) -> list[tuple[Any, ...]]:
    frame = spark.read.format("delta").load(str(log))
    names = [name for name in ("id", "price", "at", "day") if name in frame.columns]
    return sorted((tuple(found) for found in frame.selectExpr("_op", *names).collect()), key=str)


def wanted(numbers: Sequence[int], *more: Any) -> list[tuple[Any, ...]]:
    found = (row(number) for number in numbers)
    return sorted(
        ("upsert", each["id"], each["price"].quantize(Decimal("0.001")), _local(each["at"]), *more)
        for each in found
    )


def _local(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone().replace(tzinfo=None)


@pytest.mark.slow
def test_files(spark: SparkSession, tmp_path: Path) -> None:
    """A damaged file goes to quarantine as a whole; the others arrive, and a later schema adds a column."""
    landing, log = tmp_path / "landing", tmp_path / "log"
    landing.mkdir()

    def deliver(name: str, schema: Any, rows: Sequence[Any]) -> Path:
        with (landing / name).open("wb") as out:
            fastavro.writer(out, schema, rows, sync_interval=500)
        return landing / name

    deliver("1.avro", OLD, [row(number) for number in range(200)])
    broken = deliver("2.avro", OLD, [row(number) for number in range(200, 400)])
    whole = broken.read_bytes()
    broken.write_bytes(whole[:-10])
    options = {"adapter_options": {"sequence_by": "n"}}
    done = ingest_changes(spark, str(landing), str(log), **GIVEN, **options)
    assert (done.counts["events"], done.counts["quarantined"]) == (200, 1)
    assert columns_of(spark, log) == sorted(wanted(range(200)), key=str)
    quarantine = spark.read.format("delta").load(f"{log}__quarantine")
    (found,) = quarantine.select("reason", "position.file").collect()
    assert found["file"] == str(broken)
    assert found["reason"] == "it is damaged: not Avro: a block without the mark at its end"
    broken.write_bytes(whole)
    deliver("3.avro", NEW, [row(400, day=DAY)])
    again = ingest_changes(spark, str(landing), str(log), **GIVEN, **options)
    assert again.counts["events"] == 201
    assert columns_of(spark, log) == sorted([*wanted(range(400), None), *wanted([400], DAY)], key=str)
    assert spark.read.format("delta").load(f"{log}__quarantine").isEmpty()


@pytest.fixture
def registry() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.mark.slow
def test_messages(spark: SparkSession, kafka: Broker, registry: Served, tmp_path: Path) -> None:
    """Messages of Confluent's serializer; a message of an unknown schema waits in quarantine for a replay."""
    log, topic = tmp_path / "log", "avro-messages"
    kafka.create_topic(topic, partitions=2)
    client = SchemaRegistryClient({"url": registry.url})

    def serialized(schema: Any, value: Any, field: Any = MessageField.VALUE) -> bytes:
        raw = AvroSerializer(client, json.dumps(schema))(value, SerializationContext(topic, field))
        assert raw is not None
        return raw

    def key(number: int) -> bytes:
        return serialized(KEY, {"id": number}, MessageField.KEY)

    unknown = b"\0\0\0\0\x63" + serialized(OLD, row(8))[5:]
    kafka.send(topic, [(key(n), serialized(OLD, row(n))) for n in range(4)], partition=0)
    kafka.send(
        topic,
        [(key(4), serialized(NEW, row(4, day=DAY))), (key(8), unknown), (key(1), None)],
        partition=1,
    )
    options: dict[str, Any] = {
        **GIVEN,
        "adapter_options": {"sequence_by": "_offset", "tombstones": "delete"},
        "kafka_options": {
            "schema.registry.url": registry.url,
            "schema.registry.basic.auth.user.info": "reader:geheim",
        },
    }
    source = f"kafka://{kafka.servers}/{topic}"
    done = ingest_changes(spark, source, str(log), **options)
    assert done.counts == {"events": 6, "deletes": 1, "quarantined": 1}
    assert [found for found in columns_of(spark, log) if found[0] == "upsert"] == sorted(
        [*wanted(range(4), None), *wanted([4], DAY)], key=str
    )
    assert [found[:2] for found in columns_of(spark, log) if found[0] == "delete"] == [("delete", 1)]
    quarantine = spark.read.format("delta").load(f"{log}__quarantine")
    (found,) = quarantine.select("reason", "raw").collect()
    assert found["reason"] == "not Avro: the registry has no schema 99"
    assert found["raw"].startswith("base64:")
    # Each schema is requested once for a batch, with the credentials.
    gets = [request for request in registry.requests if request.startswith("GET /schemas/ids/")]
    assert sorted(gets) == [f"GET /schemas/ids/{number}" for number in (1, 2, 3, 99)]
    assert registry.headers[-1]["Authorization"] == "Basic cmVhZGVyOmdlaGVpbQ=="
    registry.schemas += [{"schema": json.dumps(OLD)}] * (99 - len(registry.schemas))
    replayed = ingest_changes(spark, source, str(log), replay=True, **options)
    assert replayed.counts["events"] == 1
    assert (wanted([8], None)[0]) in columns_of(spark, log)


_DOWN = ("/status/503", StoreUnavailable)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "error"), [_DOWN, ("/status/401", SourceUnreadable), ("/text/html", InvalidConfiguration)]
)
def test_a_registry_that_does_not_answer_stops_the_batch(
    spark: SparkSession, kafka: Broker, registry: Served, tmp_path: Path, path: str, error: type[Exception]
) -> None:
    """No message goes to quarantine because a registry is down: the next run reads the same offsets."""
    log, topic = tmp_path / "log", f"avro-registry-down{path.replace('/', '-')}"
    kafka.create_topic(topic)
    kafka.send(topic, [("k", b"\0\0\0\0\x01\x02")], partition=0)
    source = f"kafka://{kafka.servers}/{topic}"
    options: dict[str, Any] = {**GIVEN, "adapter_options": {"sequence_by": "_offset"}}
    given = {"schema.registry.url": registry.url + path, "schema.registry.bearer.auth.token": "geheim"}
    with pytest.raises(error) as caught:
        ingest_changes(spark, source, str(log), kafka_options=given, **options)
    assert "geheim" not in str(caught.value)
    assert not log.exists()
    registry.schemas.append({"schema": json.dumps(KEY)})
    given = {"schema.registry.url": registry.url}
    assert ingest_changes(spark, source, str(log), kafka_options=given, **options).counts == {"events": 1}
    (found,) = spark.read.format("delta").load(str(log)).collect()
    assert (found["id"], found["_op"]) == (1, "upsert")


@pytest.mark.slow
def test_a_registry_without_a_location(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    kafka.create_topic("avro-no-registry")
    kafka.send("avro-no-registry", [("k", b"\0\0\0\0\x01\x02")], partition=0)
    source = f"kafka://{kafka.servers}/avro-no-registry"
    given: dict[str, Any] = {**GIVEN, "adapter_options": {"sequence_by": "_offset"}}
    with pytest.raises(InvalidConfiguration, match=r"schema\.registry\.url is not given"):
        ingest_changes(spark, source, str(tmp_path / "log"), **given)
