"""Read some records of topics, without a JVM, to find the tables of Debezium whose changes they have.

A client that is assigned to partitions reads them: it joins no consumer group, and stores no offset. Needs
confluent-kafka.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

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
from delta_cdc.ingest.records.avro import MessageDecoder, schema_id
from delta_cdc.ingest.records.json import value as json_value
from delta_cdc.ingest.records.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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
#: The first byte of an Avro record with the id of its schema.
_MAGIC = 0


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
    if in_avro != {True}:
        return _table_of([_Message(*_payload(one.value), _payload(one.key)[0]) for one in values], values)
    if not any(name.startswith("schema.registry.") for name in kafka_options or {}):
        return "its records are in Avro; name the registry in --kafka-options (schema.registry.url)"
    decoded = _decoder(Registry.of(for_registry(kafka_options)), values)
    return _table_of([_Message(decoded(one.value), True, decoded(one.key)) for one in values], None)


class _Message(NamedTuple):
    """The decoded parts of a record; None for what cannot be decoded.

    :param has_schema: whether the types of the value are known
    """

    value: Any
    has_schema: bool
    key: Any


def _table_of(messages: Sequence[_Message], in_json: Sequence[Record] | None) -> SampledTable | str:
    """Return what messages say; or a text, if they are not the changes of one table.

    :param in_json: their records, if they are in JSON; None: they are in Avro
    """
    changes = [one.value for one in messages if _is_change(one.value)]
    if not changes:
        texts = [str(one.value, "utf-8", "replace") for one in in_json or () if one.value is not None]
        likely = likely_adapter(texts)
        hint = f"; they look as if they were for the adapter {likely}" if likely else ""
        in_avro = "in Avro, and " if in_json is None else ""
        return f"its records are {in_avro}no change events of Debezium{hint}"
    if len(changes) < len(messages):
        others = len(messages) - len(changes)
        return f"{others} of its {plural(len(messages), 'record')} are no change events of Debezium"
    tables = sorted({_table(change) for change in changes})
    if len(tables) > 1:
        return f"its records are the changes of {len(tables)} tables: {', '.join(tables[:3])}"
    if problem := _connector_problem(change["source"].get("connector") for change in changes):
        return problem
    found = {tuple(one.key) if isinstance(one.key, dict) else () for one in messages}
    if len(found) != 1 or not (keys := next(iter(found))):
        return "its records have no key with columns, or different ones, so that no key is known"
    rows = [row for change in changes for row in (change.get("after"), change.get("before")) if row]
    lacking = [name for name in keys if not any(isinstance(row, dict) and name in row for row in rows)]
    if lacking:
        return f"the rows of its records have no column {lacking[0]}, which their keys have"
    name = "Avro" if in_json is None else "JSON"
    types = (
        "Their schemas give the types of the columns."
        if all(one.has_schema for one in messages)
        else "They have no schema: look at the types that delta-cdc decode shows, and set schema and the "
        "options of the adapter for dates, times and decimals."
    )
    evidence = f"{plural(len(changes), 'record')} are change events of {tables[0]}, in {name}. {types}"
    return SampledTable(keys, name.lower(), (evidence,), (_key_evidence(keys, len(messages)),))


def _is_change(message: Any) -> bool:
    return isinstance(message, dict) and isinstance(message.get("source"), dict) and "op" in message


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


def _decoder(registry: Registry, records: Sequence[Record]) -> Callable[[bytes | None], Any]:
    """Return what decodes a part of a record in Avro; it returns None for bytes that are no such part."""
    parts = [part for record in records for part in (record.key, record.value) if part is not None]
    ids = {found for part in parts if not isinstance(found := schema_id(part), Invalid)}
    decode = MessageDecoder(
        {one: registry.schema(one.number, is_content=one.is_content) for one in ids}, is_connect=True
    )

    def decoded(part: bytes | None) -> Any:
        found = Invalid("nothing") if part is None else decode(part)
        return None if isinstance(found, Invalid) else found.value

    return decoded
