"""Read some records of topics, without a JVM, to find the tables of Debezium whose changes they have.

A client that is assigned to partitions reads them: it joins no consumer group, and stores no offset. Needs
confluent-kafka.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from delta_cdc.core import codec
from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.errors import (
    EnvironmentNotReady,
    InvalidConfiguration,
    SourceUnreadable,
    StoreUnavailable,
)
from delta_cdc.core.kafka_options import for_java, for_librdkafka, for_registry, isolation_level
from delta_cdc.core.text_table import plural
from delta_cdc.core.topics import parse, servers_of
from delta_cdc.ingest.adapters.guess import likely_adapter
from delta_cdc.ingest.record import Invalid
from delta_cdc.ingest.records.json import value as json_value
from delta_cdc.ingest.records.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Records that are read of one topic: the newest of each partition.
MOST_RECORDS = 100
#: Seconds for one topic.
TIMEOUT = 20.0
#: A name that makes the address of a prefix one of a topic, for the checks of addresses.
_NAME = "x"
#: Not joined: a client needs a name for its group, also if it is assigned to partitions.
_GROUP = "delta-cdc-init"
#: Topics of Debezium and Kafka Connect that have no table's changes.
_NO_TABLES = ("__", "_schemas", "connect-")
_CONNECTORS = ("postgresql", "mysql", "mariadb", "sqlserver", "oracle")
#: The first byte of an Avro record with the id of its schema, and the bytes before its values.
_MAGIC, _FRAME = 0, 5


@dataclass(frozen=True)
class Record:
    """One message, without what is not needed here."""

    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class SampledTable:
    """What the records of a topic say of the table whose changes they have.

    :param keys: the columns of the records' keys
    :param evidence: lines on the records' format
    :param key_evidence: lines on the key
    """

    keys: tuple[str, ...]
    format: str
    evidence: tuple[str, ...]
    key_evidence: tuple[str, ...]


class TopicReader:
    """Lists topics with a prefix, and reads some records of each.

    :param address: ``kafka://<brokers>/<prefix>``; an empty prefix means all topics
    :param kafka_options: see :mod:`delta_cdc.core.kafka_options`
    :raises InvalidConfiguration: the address or the options cannot be understood
    :raises EnvironmentNotReady: confluent-kafka is not installed
    """

    def __init__(self, address: str, kafka_options: Mapping[str, str] | None = None) -> None:
        whole = f"{address}{'' if urlsplit(address).path else '/'}{_NAME}"
        (name,) = parse(whole).names
        self.prefix = name.removesuffix(_NAME)
        self._servers = servers_of(whole, kafka_options)
        self._base = address.removesuffix(self.prefix) if self.prefix else f"{address.rstrip('/')}/"
        self._consumer = self._made(kafka_options)

    def _made(self, kafka_options: Mapping[str, str] | None) -> Any:
        try:
            from confluent_kafka import Consumer, KafkaException
        except ImportError as error:
            raise EnvironmentNotReady(
                f"confluent-kafka is not installed, so the topics at {self._servers} cannot be read.",
                remedy="install airflow-provider-delta-cdc[kafka].",
            ) from error
        for_java(kafka_options)
        own = {
            "bootstrap.servers": self._servers,
            "group.id": _GROUP,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
            "isolation.level": isolation_level(kafka_options),
            "log_level": 0,
        }
        try:
            return Consumer({**own, **for_librdkafka(kafka_options)})
        except KafkaException as error:
            raise InvalidConfiguration(
                f"The client of the brokers {self._servers} cannot be made: {error.args[0].str()}.",
                remedy="correct kafka_options.",
            ) from error

    def source(self, topic: str) -> str:
        """Return the address of a topic."""
        return f"{self._base}{topic}"

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def topics(self) -> list[str]:
        """Return the topics with the prefix, sorted; internal ones of Kafka and Debezium are left out.

        :raises StoreUnavailable: the brokers do not answer
        """
        from confluent_kafka import KafkaException

        try:
            found = self._consumer.list_topics(timeout=TIMEOUT).topics
        except KafkaException as error:
            raise self._unavailable("the list of topics", error.args[0].str()) from error
        return sorted(n for n in found if n.startswith(self.prefix) and not n.startswith(_NO_TABLES))

    def sample(self, topic: str) -> list[Record]:
        """Return the newest records of each partition of a topic, :data:`MOST_RECORDS` in all.

        :raises SourceUnreadable: the brokers refuse the topic
        :raises StoreUnavailable: the brokers do not answer
        """
        from confluent_kafka import KafkaException, TopicPartition

        try:
            described = self._consumer.list_topics(topic, timeout=TIMEOUT).topics[topic]
            if described.error is not None:
                raise SourceUnreadable(
                    f"The brokers {self._servers} refuse the topic {topic}: {described.error.str()}.",
                    remedy="correct kafka_options; the user needs the rights Describe and Read on topics.",
                )
            share = max(1, MOST_RECORDS // max(1, len(described.partitions)))
            starts = []
            for number in described.partitions:
                low, high = self._consumer.get_watermark_offsets(
                    TopicPartition(topic, number), timeout=TIMEOUT
                )
                if high > low:
                    starts.append(TopicPartition(topic, number, max(low, high - share)))
            self._consumer.assign(starts)
            return self._read(len(starts))
        except KafkaException as error:
            raise self._unavailable(topic, error.args[0].str()) from error

    def _read(self, partitions: int) -> list[Record]:
        records: list[Record] = []
        ended, deadline = 0, time.monotonic() + TIMEOUT
        while ended < partitions and len(records) < MOST_RECORDS and time.monotonic() < deadline:
            message = self._consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                records.append(Record(message.key(), message.value()))
            elif error.code() == error._PARTITION_EOF:
                ended += 1
            elif error.code() == error.TOPIC_AUTHORIZATION_FAILED:
                raise SourceUnreadable(
                    f"The brokers {self._servers} refuse the topic: {error.str()}.",
                    remedy="give the user the right Read on the topic.",
                )
        return records

    def _unavailable(self, subject: str, cause: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"The brokers {self._servers} did not give {subject} ({cause}).",
            remedy="check that the brokers run, and that this machine can reach them.",
        )


def sampled_table(
    records: Sequence[Record], kafka_options: Mapping[str, str] | None = None
) -> SampledTable | str:
    """Return what the records of a topic say; or a text, if they are not the changes of one table.

    The key of a record is the key of the row in its database, or the columns of ``message.key.columns``, so
    no count is needed. All records must agree.

    :param kafka_options: with the address of the registry, for records in Avro
    :raises SourceUnreadable: the registry refuses the credentials
    :raises StoreUnavailable: the registry does not answer
    """
    values = [record for record in records if record.value is not None]
    if not values:
        return "it has no records, so that nothing is known of them"
    in_avro = {record.value[0] == _MAGIC for record in values if record.value}
    if in_avro == {True}:
        return _in_avro(values, kafka_options)
    return _in_json(values)


def _in_json(records: Sequence[Record]) -> SampledTable | str:
    texts = [str(record.value, "utf-8", "replace") for record in records if record.value is not None]
    messages = [_payload(record.value) for record in records]
    changes = [
        message
        for message, _ in messages
        if isinstance(message, dict) and isinstance(message.get("source"), dict) and "op" in message
    ]
    if not changes:
        likely = likely_adapter(texts)
        hint = f"; they look as if they were for the adapter {likely}" if likely else ""
        return f"its records are no change events of Debezium{hint}"
    tables = sorted({_table(change) for change in changes})
    if len(tables) > 1:
        return f"its records are the changes of {len(tables)} tables: {', '.join(tables[:3])}"
    if problem := _connector_problem(change["source"].get("connector") for change in changes):
        return problem
    found = {_key_columns(record) for record in records}
    if len(found) != 1 or not (keys := next(iter(found))):
        return "its records have no key with columns, or different ones, so that no key is known"
    rows = [row for change in changes for row in (change.get("after"), change.get("before")) if row]
    lacking = [name for name in keys if not any(isinstance(row, dict) and name in row for row in rows)]
    if lacking:
        return f"the rows of its records have no column {lacking[0]}, which their keys have"
    has_schema = all(schema for _, schema in messages)
    types = (
        "Their schemas give the types of the columns."
        if has_schema
        else "They have no schema: look at the types that delta-cdc decode shows, and set schema and the "
        "options of the adapter for dates, times and decimals."
    )
    evidence = f"{plural(len(changes), 'record')} are change events of {tables[0]}, in JSON. {types}"
    return SampledTable(keys, "json", (evidence,), (_key_evidence(keys, len(records)),))


def _key_evidence(keys: Sequence[str], number: int) -> str:
    return f"The key of each of {plural(number, 'record')} has these columns: {', '.join(keys)}."


def _connector_problem(connectors: Iterable[Any]) -> str:
    unknown = sorted({str(one) for one in connectors if one not in _CONNECTORS})
    return f"the connector {unknown[0]} needs sequence_by; see the adapter debezium" if unknown else ""


def _payload(data: bytes | None) -> tuple[Any, bool]:
    """Return a JSON message without its schema, and whether it has one."""
    found: Any = json_value(data) if data is not None else None
    if isinstance(found, Invalid):
        return None, False
    if isinstance(found, dict) and set(found) == {"schema", "payload"}:
        return found["payload"], found["schema"] is not None
    return found, False


def _table(change: Mapping[str, Any]) -> str:
    source = change["source"]
    parts = [source.get("db"), source.get("schema"), source.get("table")]
    return ".".join(str(part) for part in parts if part)


def _key_columns(record: Record) -> tuple[str, ...]:
    key, _ = _payload(record.key)
    return tuple(key) if isinstance(key, dict) else ()


def _in_avro(records: Sequence[Record], kafka_options: Mapping[str, str] | None) -> SampledTable | str:
    if not any(name.startswith("schema.registry.") for name in kafka_options or {}):
        return "its records are in Avro; name the registry in --kafka-options (schema.registry.url)"
    registry = Registry.of(for_registry(kafka_options))
    values = {_schema(registry, record.value) for record in records}
    keys = {_schema(registry, record.key) for record in records}
    fields = [_fields(text) for text in values]
    if not all({"op", "source", "after"} <= set(names) for names in fields):
        return "its records are in Avro, and no change events of Debezium"
    found = {tuple(_fields(text)) for text in keys}
    if len(found) != 1 or not (columns := next(iter(found))):
        return "its records have no key with columns, or different ones, so that no key is known"
    evidence = f"{plural(len(records), 'record')} are change events in Avro, with schemas of the registry."
    return SampledTable(columns, "avro", (evidence,), (_key_evidence(columns, len(records)),))


def _schema(registry: Registry, data: bytes | None) -> str:
    """Return the schema of a part of a record; "" if it has none."""
    if data is None or len(data) < _FRAME or data[0] != _MAGIC:
        return ""
    return registry.schema(int.from_bytes(data[1:_FRAME], "big")) or ""


def _fields(schema: str) -> list[str]:
    """Return the names of the fields of a schema that is a record; none of another one."""
    try:
        fields = codec.parsed(schema).get("fields") if schema else None
    except (UnreadableJson, AttributeError):
        fields = None
    return [str(one["name"]) for one in fields or () if isinstance(one, dict) and "name" in one]
