"""A Kafka broker of the tests' own: one KRaft node on free ports, with its log in a temporary folder.

Its JARs come from Maven Central at the first use (:mod:`tests.support.maven`), so nothing is installed and no
test needs to be skipped.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from delta_cdc.launch.environment import java_binary
from tests.support.maven import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

#: A message: value, or key and value, or key, value and timestamp (epoch milliseconds).
Message = str | bytes | None | tuple[Any, ...]

#: Who may use the second listener of the broker that tests share; a password that has to be quoted.
USER, PASSWORD = "eve", 'p"w\\ d'

_HOST = "127.0.0.1"
_START_SECONDS = 60
_STOP_SECONDS = 20
_CLUSTER_ID = "deltaCdcTestsCluster00"
#: Answers of the broker, or of the client by its metadata, until the broker leads a new partition.
_NOT_YET_LED = (
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
)

# Small, and at once: one partition per internal topic, no wait for more consumers or more segments.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}{more_listeners}
advertised.listeners=PLAINTEXT://{host}:{port}{more_listeners}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT
log.dirs={logs}
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=2
log.cleaner.dedupe.buffer.size=4194304
log.cleaner.io.buffer.size=65536
log.cleaner.backoff.ms=200
log.retention.check.interval.ms=3600000
"""


class Broker:
    """A running broker.

    :param folder: for its log and its output; made here, left in place
    :param users: name -> password: a second listener, :attr:`secured_servers`, asks for them (SASL/PLAIN)
    """

    def __init__(self, folder: Path, users: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._users = dict(users or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: AdminClient | None = None
        ports = free_ports(3)
        self.servers = f"{_HOST}:{ports[0]}"
        self.secured_servers = f"{_HOST}:{ports[2]}"
        self._ports = ports

    @property
    def output(self) -> Path:
        """Return the file with all that the broker says."""
        return self._folder / "broker.log"

    # -- running --------------------------------------------------------------------------------
    def start(self) -> None:
        """Start it, on what its log holds already, and wait until it answers."""
        classes = os.pathsep.join(str(jar) for jar in locked("kafka-broker").jars())
        command = [
            str(java_binary()),
            *("-Xmx256m", "-Xms256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
            *("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classes),
            *("kafka.Kafka", str(self._configured())),
        ]
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                # A group of its own: an interrupt of the test run must not reach it before its clients.
                start_new_session=True,
            )
        self._await_answer()

    def stop(self) -> None:
        """Stop it in order, or by force if it does not; its log stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process, self._admin = self._process, None, None
        if process is None:
            return
        signal_group(process, number)
        try:
            process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            signal_group(process, signal.SIGKILL)
            process.wait()

    def _configured(self) -> Path:
        """Write the configuration and, as the storage tool does, what says whose folder this is."""
        logs, properties = self._folder / "logs", self._folder / "server.properties"
        logs.mkdir(parents=True, exist_ok=True)
        mark = logs / "meta.properties"
        if not mark.exists():
            mark.write_text(
                f"version=1\ncluster.id={_CLUSTER_ID}\nnode.id=1\ndirectory.id=deltaCdcTestsFolder001\n"
            )
        port, controller_port, secured = self._ports
        text = _PROPERTIES.format(
            host=_HOST,
            port=port,
            controller_port=controller_port,
            logs=logs,
            more_listeners=f",SASL_PLAINTEXT://{_HOST}:{secured}" if self._users else "",
        )
        properties.write_text(text + self._sasl())
        return properties

    def _sasl(self) -> str:
        if not self._users:
            return ""
        # Escaped twice: for the login module, and as the value of a property.
        quoted = {
            user: re.sub(r'(["\\])', r"\\\1", password).replace("\\", "\\\\")
            for user, password in self._users.items()
        }
        known = " ".join(f'user_{name}="{password}"' for name, password in quoted.items())
        return (
            "sasl.enabled.mechanisms=PLAIN\n"
            "listener.name.sasl_plaintext.plain.sasl.jaas.config="
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {known};\n"
        )

    def _await_answer(self) -> None:
        admin = AdminClient(
            # Quickly, and quietly: until it listens, every try is refused.
            {"bootstrap.servers": self.servers, "reconnect.backoff.max.ms": 200, "log_level": 0}
        )
        for _ in range(_START_SECONDS):
            try:
                admin.list_topics(timeout=1)
            except KafkaException:
                self._must_live()
                continue
            self._admin = admin
            return
        self.kill()
        raise RuntimeError(f"The broker did not answer within {_START_SECONDS} s.\n{self._last_words()}")

    def _must_live(self) -> None:
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            raise RuntimeError(f"The broker ended with exit code {code}.\n{self._last_words()}")

    def _last_words(self) -> str:
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-40:])

    @property
    def login(self) -> dict[str, str]:
        """Return what a client of :attr:`secured_servers` is told, in librdkafka's words."""
        user, password = next(iter(self._users.items()))
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password,
        }

    # -- topics ---------------------------------------------------------------------------------
    @property
    def admin(self) -> AdminClient:
        """Return a client for the administration of the running broker."""
        assert self._admin is not None, "the broker does not run"
        return self._admin

    def create_topic(self, name: str, *, partitions: int = 1, **config: str) -> None:
        """Make a topic; ``config`` with underscores for dots."""
        topic = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=1,
            config={key.replace("_", "."): value for key, value in config.items()},
        )
        _done(self.admin.create_topics([topic], operation_timeout=30))
        self._await_partitions(name, partitions)

    def add_partitions(self, name: str, total: int) -> None:
        """Raise the number of partitions."""
        _done(self.admin.create_partitions([NewPartitions(name, total)], operation_timeout=30))
        self._await_partitions(name, total)

    def _await_partitions(self, name: str, total: int) -> None:
        """Wait until the controller has made the partitions, and the broker leads each of them."""
        # The broker reports a leader some milliseconds before it leads, and its own epoch lags as long.
        asked = {TopicPartition(name, number): OffsetSpec.latest() for number in range(total)}
        end = time.monotonic() + _START_SECONDS
        while True:
            self._must_live()
            try:
                # The client takes new partitions from this answer only.
                _done(self.admin.describe_topics(TopicCollection([name])))
                _done(self.admin.list_offsets(asked, request_timeout=30))
                return
            except KafkaException as error:
                if error.args[0].code() not in _NOT_YET_LED or time.monotonic() > end:
                    raise
                time.sleep(0.02)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until it is gone."""
        _done(self.admin.delete_topics([name], operation_timeout=30))
        while name in self.admin.list_topics(timeout=10).topics:
            self._must_live()

    def delete_records(self, name: str, before: int, *, partition: int = 0) -> None:
        """Delete all records below an offset, as retention does."""
        _done(self.admin.delete_records([TopicPartition(name, partition, before)]))

    def send(
        self, topic: str, messages: Iterable[Message], *, partition: int = 0, **client: str | int
    ) -> None:
        """Write messages in order, and wait until the broker has them all.

        :param client: more of the producer's configuration, with underscores for dots
        """
        with self.producer(**client) as producer:
            for message in messages:
                self._produce(producer, topic, message, partition)

    def messages_until(self, topic: str, is_last: Callable[[bytes], bool], *, limit: float = 120) -> int:
        """Wait for a message in a topic of one partition; return how many there are up to it.

        :param is_last: whether a value is the one that is waited for
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "tests",
                "enable.auto.commit": False,
                "allow.auto.create.topics": False,
                "topic.metadata.refresh.interval.ms": 200,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            count, end = 0, time.monotonic() + limit
            while time.monotonic() < end:
                message = consumer.poll(1)
                if message is None or message.error():
                    self._must_live()
                    continue
                count += 1
                if is_last(message.value() or b""):
                    return count
        finally:
            consumer.close()
        raise RuntimeError(f"What was waited for is not among the {count} messages of {topic}.")

    @contextmanager
    def producer(self, **client: str | int) -> Iterator[Producer]:
        """Give a producer; at the end of the block all it was given has arrived."""
        own = {key.replace("_", "."): value for key, value in client.items()}
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5, "log_level": 0, **own})
        yield producer
        left = producer.flush(30)
        if left:
            raise RuntimeError(f"{left} messages did not reach the broker.")

    @staticmethod
    def _produce(producer: Producer, topic: str, message: Message, partition: int) -> None:
        parts: Sequence[Any] = message if isinstance(message, tuple) else (None, message)
        key, value, *timestamp = parts
        more = {"timestamp": timestamp[0]} if timestamp else {}
        while True:
            try:
                producer.produce(topic, value, key, partition=partition, **more)
                return
            except BufferError:
                producer.poll(1)


@contextmanager
def broker(folder: Path, users: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """Run a broker for the length of a block."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        running = Broker(folder, users)
        stack.callback(running.stop)
        running.start()
        yield running


def _done(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result(timeout=60)


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a process and all that it started."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        # It ended by itself: that is what was wanted.
        return


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((_HOST, 0))
        return [one.getsockname()[1] for one in sockets]
