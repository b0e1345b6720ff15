"""Reads which offsets each partition of a topic holds, without a JVM. Needs confluent-kafka.

Sends only administrative requests to the brokers; neither joins nor creates a consumer group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import (
    DeltaCdcError,
    EnvironmentNotReady,
    InvalidConfiguration,
    SourceNotFound,
    SourceUnreadable,
    StoreUnavailable,
)
from delta_cdc.core.kafka_options import for_java, for_librdkafka, isolation_level
from delta_cdc.core.topics import parse, servers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future

    from confluent_kafka import KafkaError, TopicPartition
    from confluent_kafka.admin import AdminClient

#: Timeout in seconds for each of the two requests of a look.
TIMEOUT = 20.0


@dataclass(frozen=True)
class Bounds:
    """The readable offsets of one partition.

    :param earliest: the first offset that can be read
    :param end: the offset after the last record; without ``isolation.level`` in the options, the offset after
        the last record of a finished transaction
    :param starting: the first record written at or after the given time, or ``end`` without such a record;
        None without a given time
    :param topic_id: differs if a topic was deleted and created again under the same name
    """

    earliest: int
    end: int
    starting: int | None
    topic_id: str


class Looks:
    """Connections to brokers: one client per list of brokers and options."""

    def __init__(self) -> None:
        self._clients: dict[tuple[Any, ...], _Client] = {}

    def offsets(
        self,
        source: str,
        kafka_options: Mapping[str, str] | None = None,
        starting_timestamp_ms: int | None = None,
    ) -> dict[tuple[str, int], Bounds]:
        """Return the bounds of every partition of the topics of a source.

        The call blocks for at most a few times :data:`TIMEOUT`.

        :param source: see :func:`delta_cdc.core.topics.parse`
        :param kafka_options: see :mod:`delta_cdc.core.kafka_options`
        :param starting_timestamp_ms: epoch milliseconds: find the first record at or after it, too
        :raises SourceNotFound: a topic does not exist
        :raises SourceUnreadable: the brokers refuse these credentials, or access to the topic
        :raises StoreUnavailable: the brokers do not answer, or a partition has no leader now
        :raises InvalidConfiguration: the source or the options cannot be understood
        :raises EnvironmentNotReady: confluent-kafka is not installed
        """
        topics, servers = parse(source), servers_of(source, kafka_options)
        key = (servers, *sorted((kafka_options or {}).items()))
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = _Client(servers, kafka_options)
        try:
            return client.bounds(topics.names, starting_timestamp_ms)
        except DeltaCdcError:
            # The client may keep a refusal that is no longer true.
            self._clients.pop(key, None)
            raise


class _Client:
    def __init__(self, servers: str, options: Mapping[str, str] | None) -> None:
        try:
            from confluent_kafka import IsolationLevel, KafkaException
            from confluent_kafka.admin import AdminClient
        except ImportError as error:
            raise EnvironmentNotReady(
                f"confluent-kafka is not installed, so the offsets of topics at {servers} cannot be read.",
                remedy="install airflow-provider-delta-cdc[kafka] on the worker.",
            ) from error
        # Options that Spark's client would refuse are refused here, so no Spark starts for them.
        for_java(options)
        uncommitted = isolation_level(options) == "read_uncommitted"
        self._isolation = IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED
        self._servers = servers
        self._refusal = self._trouble = ""
        own: dict[str, Any] = {"bootstrap.servers": servers, "error_cb": self._note, "log_level": 0}
        try:
            self._admin: AdminClient = AdminClient({**own, **for_librdkafka(options)})
        except KafkaException as error:
            raise InvalidConfiguration(
                f"The client of the brokers {servers} cannot be made: {error.args[0].str()}.",
                remedy="correct kafka_options.",
            ) from error

    def _note(self, error: KafkaError) -> None:
        # While the client keeps trying, requests only time out; only this callback gets the cause.
        if error.code() in (error._AUTHENTICATION, error.SASL_AUTHENTICATION_FAILED):
            self._refusal = error.str()
        elif error.code() != error._ALL_BROKERS_DOWN:
            self._trouble = error.str()

    def bounds(self, names: tuple[str, ...], timestamp_ms: int | None) -> dict[tuple[str, int], Bounds]:
        from confluent_kafka import TopicPartition, admin

        # The type information of the package lacks this class.
        spec: Any = admin.OffsetSpec  # type: ignore[attr-defined]

        topic_ids = {}
        partitions: list[TopicPartition] = []
        for name, described in self._described(names).items():
            topic_ids[name] = str(described.topic_id)
            partitions += [TopicPartition(name, partition.id) for partition in described.partitions]
        # All requests are sent before the first answer is awaited; each needs one request per broker.
        answers_due = [
            self._request_offsets(partitions, spec.earliest()),
            self._request_offsets(partitions, spec.latest()),
        ]
        if timestamp_ms is not None:
            answers_due.append(self._request_offsets(partitions, spec.for_timestamp(timestamp_ms)))
        earliest, end, *since = [self._offsets(futures) for futures in answers_due]
        bounds_by_partition = {}
        for partition, last in end.items():
            first = since[0][partition] if since else None
            # -1 means that no such record exists.
            starting = first if first is None else (last if first < 0 else min(first, last))
            bounds_by_partition[partition] = Bounds(
                earliest[partition], last, starting, topic_ids[partition[0]]
            )
        return bounds_by_partition

    def _described(self, names: tuple[str, ...]) -> dict[str, Any]:
        from confluent_kafka import TopicCollection

        futures = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=TIMEOUT)
        return {name: self._result(future, name) for name, future in futures.items()}

    def _request_offsets(
        self, partitions: Iterable[TopicPartition], offset_spec: Any
    ) -> Mapping[TopicPartition, Future[Any]]:
        return self._admin.list_offsets(
            dict.fromkeys(partitions, offset_spec), isolation_level=self._isolation, request_timeout=TIMEOUT
        )

    def _offsets(self, futures: Mapping[TopicPartition, Future[Any]]) -> dict[tuple[str, int], int]:
        return {
            (partition.topic, partition.partition): self._result(
                future, f"{partition.topic}, partition {partition.partition}"
            ).offset
            for partition, future in futures.items()
        }

    def _result(self, future: Future[Any], subject: str) -> Any:
        from confluent_kafka import KafkaException

        try:
            return future.result(timeout=2 * TIMEOUT)
        except KafkaException as error:
            raise self._named(error.args[0], subject) from error
        except TimeoutError as error:
            raise self._unavailable("no answer") from error

    def _named(self, error: KafkaError, subject: str) -> DeltaCdcError:
        # The poll runs the callback for the errors since the last poll.
        self._admin.poll(0)
        if error.code() in (error.UNKNOWN_TOPIC_OR_PART, error._UNKNOWN_TOPIC, error._UNKNOWN_PARTITION):
            return SourceNotFound(
                f"The brokers {self._servers} do not have the topic {subject}.",
                remedy="correct its name, or create it. If the topic is created later, a retry finds it.",
            )
        refused = (
            error.TOPIC_AUTHORIZATION_FAILED,
            error.CLUSTER_AUTHORIZATION_FAILED,
            error.SASL_AUTHENTICATION_FAILED,
            error._AUTHENTICATION,
        )
        if error.code() in refused or self._refusal:
            return SourceUnreadable(
                f"The brokers {self._servers} refuse {subject}: {self._refusal or error.str()}.",
                remedy="correct kafka_options; the user needs the rights Describe and Read on topics.",
            )
        return self._unavailable(f"{subject}: {self._trouble or error.str()}")

    def _unavailable(self, cause: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"The brokers {self._servers} did not report the offsets of the topics ({cause}).",
            remedy="check that the brokers run, and that this worker can reach them. A retry is safe.",
        )
