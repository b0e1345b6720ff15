"""The look at topics, without a JVM: which offsets each partition holds. Needs confluent-kafka.

Everything is asked of the brokers by administrative requests; no consumer group is joined or made.
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

#: Seconds that brokers are given for each of the (two) questions of a look.
TIMEOUT = 20.0


@dataclass(frozen=True)
class Bounds:
    """What one partition holds.

    :param earliest: the first offset that can be read
    :param end: the one after the last; without ``isolation.level`` in the options, the one after the last
        record of a finished transaction
    :param starting: the first record written at or after the asked time, ``end`` where there is none; None
        where no time was asked for
    :param topic_id: which topic of that name it is; another one after it was deleted and made anew
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

        Blocks for some multiple of :data:`TIMEOUT` at most.

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
            # It may remember a refusal that is no longer true.
            self._clients.pop(key, None)
            raise


class _Client:
    def __init__(self, servers: str, options: Mapping[str, str] | None) -> None:
        try:
            from confluent_kafka import IsolationLevel, KafkaException
            from confluent_kafka.admin import AdminClient
        except ImportError as error:
            raise EnvironmentNotReady(
                f"confluent-kafka is not installed, and topics of {servers} are to be looked at.",
                remedy="install airflow-provider-delta-cdc[kafka] on the worker.",
            ) from error
        # What Spark's client would refuse is refused here, before a Spark starts.
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
        # Requests only time out while the client keeps trying: why, is told here alone.
        if error.code() in (error._AUTHENTICATION, error.SASL_AUTHENTICATION_FAILED):
            self._refusal = error.str()
        elif error.code() != error._ALL_BROKERS_DOWN:
            self._trouble = error.str()

    def bounds(self, names: tuple[str, ...], timestamp_ms: int | None) -> dict[tuple[str, int], Bounds]:
        from confluent_kafka import TopicPartition, admin

        # What the package says of its types leaves this one out.
        spec: Any = admin.OffsetSpec  # type: ignore[attr-defined]

        topic_ids = {}
        partitions: list[TopicPartition] = []
        for name, described in self._described(names).items():
            topic_ids[name] = str(described.topic_id)
            partitions += [TopicPartition(name, partition.id) for partition in described.partitions]
        # Asked for at the same time: each question is one request per broker.
        asked = [
            self._asked(partitions, spec.earliest()),
            self._asked(partitions, spec.latest()),
        ]
        if timestamp_ms is not None:
            asked.append(self._asked(partitions, spec.for_timestamp(timestamp_ms)))
        earliest, end, *since = [self._answered(futures) for futures in asked]
        found = {}
        for partition, last in end.items():
            first = since[0][partition] if since else None
            # No such record is -1.
            starting = first if first is None else (last if first < 0 else min(first, last))
            found[partition] = Bounds(earliest[partition], last, starting, topic_ids[partition[0]])
        return found

    def _described(self, names: tuple[str, ...]) -> dict[str, Any]:
        from confluent_kafka import TopicCollection

        futures = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=TIMEOUT)
        return {name: self._result(future, name) for name, future in futures.items()}

    def _asked(self, partitions: Iterable[TopicPartition], what: Any) -> Mapping[TopicPartition, Future[Any]]:
        return self._admin.list_offsets(
            dict.fromkeys(partitions, what), isolation_level=self._isolation, request_timeout=TIMEOUT
        )

    def _answered(self, futures: Mapping[TopicPartition, Future[Any]]) -> dict[tuple[str, int], int]:
        return {
            (one.topic, one.partition): self._result(future, f"{one.topic}, partition {one.partition}").offset
            for one, future in futures.items()
        }

    def _result(self, future: Future[Any], what: str) -> Any:
        from confluent_kafka import KafkaException

        try:
            return future.result(timeout=2 * TIMEOUT)
        except KafkaException as error:
            raise self._named(error.args[0], what) from error
        except TimeoutError as error:
            raise self._silence("no answer") from error

    def _named(self, error: KafkaError, what: str) -> DeltaCdcError:
        # What the client told meanwhile is handed over here.
        self._admin.poll(0)
        if error.code() in (error.UNKNOWN_TOPIC_OR_PART, error._UNKNOWN_TOPIC, error._UNKNOWN_PARTITION):
            return SourceNotFound(
                f"The brokers {self._servers} know no topic {what}.",
                remedy="correct its name, or create it; a topic that is to come is waited for by a retry.",
            )
        refused = (
            error.TOPIC_AUTHORIZATION_FAILED,
            error.CLUSTER_AUTHORIZATION_FAILED,
            error.SASL_AUTHENTICATION_FAILED,
            error._AUTHENTICATION,
        )
        if error.code() in refused or self._refusal:
            return SourceUnreadable(
                f"The brokers {self._servers} refuse {what}: {self._refusal or error.str()}.",
                remedy="correct kafka_options; the user needs the rights Describe and Read on topics.",
            )
        return self._silence(f"{what}: {self._trouble or error.str()}")

    def _silence(self, what: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"The brokers {self._servers} did not say which offsets there are ({what}).",
            remedy="check the brokers and that this worker reaches them; a retry asks again.",
        )
