"""One set of options for two Kafka clients: librdkafka reads offsets, the Java client reads data for Spark.

Options have librdkafka's names, as in Airflow's connections. Ten common ones (users, certificates) are
translated for the Java client; the others go to librdkafka only. Options that begin with ``kafka.``, Spark's
spelling, go to the Java client only, and override translated ones. Those that begin with ``schema.registry.``
go to neither: they are for the registry with the schemas of the messages. Standard library only.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from delta_cdc.core.errors import InvalidConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Names the brokers, for a source that names topics only (``kafka:///topic``).
BOOTSTRAP = "bootstrap.servers"

_OF_JAVA, _OF_REGISTRY = "kafka.", "schema.registry."
#: The options for a schema registry, without their prefix, named as Confluent's client names them; and
#: ``use-id``, as Apicurio's deserializer has it.
REGISTRY = ("url", "basic.auth.user.info", "bearer.auth.token", "ssl.ca.location", "use-id")
#: Options for consumers in a group, which a connection may hold. They have no effect here, because the engine
#: requests offsets by number.
_WITHOUT_MEANING = (
    BOOTSTRAP,
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "group.id",
    "group.instance.id",
    "heartbeat.interval.ms",
    # Set separately, for reading only.
    "isolation.level",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
    "session.timeout.ms",
)
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_PKCS8 = ("-----BEGIN PRIVATE KEY-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----")


def isolation_level(options: Mapping[str, str] | None) -> Literal["read_committed", "read_uncommitted"]:
    """Return the isolation level; by default, only records of committed transactions are read.

    :raises InvalidConfiguration: for an unknown level
    """
    given = options or {}
    level = given.get("isolation.level", "read_committed")
    if level not in ("read_committed", "read_uncommitted"):
        raise InvalidConfiguration(
            f"kafka_options has isolation.level {level!r}.", remedy="set it to read_committed, or remove it."
        )
    return "read_uncommitted" if level == "read_uncommitted" else "read_committed"


def for_librdkafka(options: Mapping[str, str] | None) -> dict[str, str]:
    """Return the options for librdkafka, without the brokers."""
    return {
        name: value
        for name, value in (options or {}).items()
        if name not in _WITHOUT_MEANING and not name.startswith((_OF_JAVA, _OF_REGISTRY))
    }


def for_registry(options: Mapping[str, str] | None) -> dict[str, str]:
    """Return the options for the schema registry, without their prefix.

    :raises InvalidConfiguration: there is no such option, or no address
    """
    given = {
        name.removeprefix(_OF_REGISTRY): value
        for name, value in (options or {}).items()
        if name.startswith(_OF_REGISTRY)
    }
    unknown = sorted(set(given) - set(REGISTRY))
    if unknown:
        raise InvalidConfiguration(
            f"kafka_options has {_OF_REGISTRY}{unknown[0]}, which is no option of a schema registry.",
            remedy=f"these are: {', '.join(_OF_REGISTRY + name for name in REGISTRY)}.",
            argument="kafka_options",
        )
    if given.get("use-id", "globalId") not in ("contentId", "globalId"):
        raise InvalidConfiguration(
            f"kafka_options has {_OF_REGISTRY}use-id {given['use-id']!r}.",
            remedy="set it to contentId or globalId, as the producers of Apicurio have it; or leave it out.",
            argument="kafka_options",
        )
    if not given.get("url", "").strip():
        raise InvalidConfiguration(
            f"Messages of the format avro need their schemas, and {_OF_REGISTRY}url is not given.",
            remedy=f"give the registry's address as {_OF_REGISTRY}url in the extra of the Kafka connection "
            "(kafka_conn_id), or in kafka_options; or set format to json.",
            argument="kafka_options",
        )
    return given


def for_java(options: Mapping[str, str] | None) -> dict[str, str]:
    """Return the options in the Java client's names, without the brokers.

    The files of a certificate and its key are read here and passed by content: Java wants both in one.

    :raises InvalidConfiguration: the Java client does not support the user or the certificate, or a file
        cannot be read
    """
    settings = options or {}
    explicit = {
        name.removeprefix(_OF_JAVA): value for name, value in settings.items() if name.startswith(_OF_JAVA)
    }
    converted: dict[str, str] = {"isolation.level": isolation_level(settings)}
    for name in ("security.protocol", "ssl.key.password"):
        if name in settings:
            converted[name] = settings[name]
    mechanism = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms")
    if mechanism:
        converted["sasl.mechanism"] = mechanism
    if ("sasl.username" in settings or "sasl.password" in settings) and "sasl.jaas.config" not in explicit:
        converted["sasl.jaas.config"] = _jaas(
            mechanism, settings.get("sasl.username"), settings.get("sasl.password")
        )
    algorithm = settings.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        is_checked = algorithm.strip().lower() not in ("", "none")
        converted["ssl.endpoint.identification.algorithm"] = "https" if is_checked else ""
    if "ssl.ca.location" in settings:
        converted |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": settings["ssl.ca.location"]}
    return {**converted, **_identity(settings), **explicit}


def _jaas(mechanism: str | None, user: str | None, password: str | None) -> str:
    if mechanism not in _LOGIN_MODULES or user is None or password is None:
        raise InvalidConfiguration(
            "kafka_options has a user, and not all of sasl.username, sasl.password, and sasl.mechanism "
            f"as one of {', '.join(_LOGIN_MODULES)}.",
            remedy="give all three; for another mechanism, give the login of Spark's client as "
            "kafka.sasl.jaas.config.",
        )
    quoted = [re.sub(r'(["\\])', r"\\\1", text) for text in (user, password)]
    return f'{_LOGIN_MODULES[mechanism]} required username="{quoted[0]}" password="{quoted[1]}";'


def _identity(settings: Mapping[str, str]) -> dict[str, str]:
    names = ("ssl.certificate.location", "ssl.key.location")
    if not any(name in settings for name in names):
        return {}
    certificate, key = (_read(name, settings.get(name)) for name in names)
    if not any(mark in key for mark in _PKCS8):
        raise InvalidConfiguration(
            "The private key in kafka_options is not in PKCS #8, and Java's client reads no other.",
            remedy="convert it with openssl pkcs8 -topk8.",
        )
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": certificate,
        "ssl.keystore.key": key,
    }


def _read(option: str, file: str | None) -> str:
    try:
        return Path(file or "").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfiguration(
            f"{option} in kafka_options is {file!r}, which cannot be read: {error}.",
            remedy="name a PEM file that is on the worker and on the machine of Spark's driver; a "
            "certificate needs its key, and a key its certificate.",
        ) from error
