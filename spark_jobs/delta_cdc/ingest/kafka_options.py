"""One set of options for two clients of Kafka: librdkafka looks at offsets, Java's client reads for Spark.

An option may have its name in either. What is said of users and certificates is understood and told each
client in its own words; what only one of them knows is told that one. Standard library only.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from delta_cdc.errors import InvalidConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Where the brokers are, for a source that names topics only (``kafka:///topic``).
BOOTSTRAP = "bootstrap.servers"

_BOTH = (
    "security.protocol",
    "client.id",
    "client.rack",
    "client.dns.lookup",
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "retry.backoff.ms",
    "ssl.key.password",
)
_JAVA_ONLY = (
    "check.crcs",
    "default.api.timeout.ms",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "max.partition.fetch.bytes",
    "max.poll.records",
    "receive.buffer.bytes",
    "request.timeout.ms",
    "send.buffer.bytes",
    "ssl.enabled.protocols",
    "ssl.protocol",
)
_LIBRDKAFKA_ONLY = (
    "broker.address.family",
    "debug",
    "log_level",
    "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable",
    "socket.timeout.ms",
)
#: A connection may hold these for consumers in a group. Here offsets are asked for by number.
_WITHOUT_MEANING = (
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "group.id",
    "group.instance.id",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
    "session.timeout.ms",
)
_UNDERSTOOD = (
    BOOTSTRAP,
    "isolation.level",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
    "ssl.endpoint.identification.algorithm",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.type",
)

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_JAAS = re.compile(r"\s*(?P<module>[\w.$]+)\s+required\s+(?P<options>.*?);\s*", re.DOTALL)
_JAAS_OPTION = re.compile(r'(?P<name>\w+)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s";]+))')
_PKCS8 = ("-----BEGIN PRIVATE KEY-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----")
_STORE_TYPES = {".pem": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12"}


@dataclass(frozen=True)
class _Pem:
    """Something in PEM: its text, or the file that holds it."""

    text: str = field(default="", repr=False)
    file: str = ""

    def __bool__(self) -> bool:
        return bool(self.text or self.file)

    def read(self, option: str) -> str:
        if self.text:
            return self.text
        try:
            return Path(self.file).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidConfiguration(
                f"{option} names {self.file}, which cannot be read: {error}.",
                remedy="name a PEM file that is on the worker and on the machine of Spark's driver.",
            ) from error


@dataclass(frozen=True)
class _Identity:
    """Who the client is, in one of three forms.

    :param both: key and certificates in one file
    :param keystore: a PKCS #12 file and its password
    """

    certificate: _Pem = _Pem()
    key: _Pem = _Pem()
    both: _Pem = _Pem()
    keystore: tuple[str, str] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class _Access:
    """What some options say, in nobody's words."""

    shared: dict[str, str]
    java_only: dict[str, str]
    librdkafka_only: dict[str, str]
    isolation: str
    mechanism: str
    login: tuple[str, str] | None = field(repr=False)
    check_host: bool | None
    authority: _Pem
    identity: _Identity


def check(options: Mapping[str, str] | None) -> None:
    """Check that both clients can be told what some options say.

    :param options: by the names of either client
    :raises InvalidConfiguration: an unknown option, or one that cannot be said to both
    """
    _understood(options)


def isolation_level(options: Mapping[str, str] | None) -> Literal["read_committed", "read_uncommitted"]:
    """Return which records are read; without the option those of committed transactions only.

    :raises InvalidConfiguration: see :func:`check`
    """
    return "read_uncommitted" if _understood(options).isolation == "read_uncommitted" else "read_committed"


def for_librdkafka(options: Mapping[str, str] | None) -> dict[str, str]:
    """Return options as librdkafka names them, without the brokers.

    :raises InvalidConfiguration: see :func:`check`
    """
    access = _understood(options)
    told = {**access.shared, **access.librdkafka_only}
    if access.mechanism:
        told["sasl.mechanism"] = access.mechanism
    if access.login:
        told["sasl.username"], told["sasl.password"] = access.login
    if access.check_host is not None:
        told["ssl.endpoint.identification.algorithm"] = "https" if access.check_host else "none"
    identity = access.identity
    if identity.keystore:
        told["ssl.keystore.location"], told["ssl.keystore.password"] = identity.keystore
    certificate, key = identity.certificate or identity.both, identity.key or identity.both
    for name, pem in (("ca", access.authority), ("certificate", certificate), ("key", key)):
        if pem:
            told[f"ssl.{name}.{'pem' if pem.text else 'location'}"] = pem.text or pem.file
    return told


def for_java(options: Mapping[str, str] | None) -> dict[str, str]:
    """Return options as Java's client names them, without the brokers.

    Files of a certificate and its key are read here and told by their content: Java wants both in one.

    :raises InvalidConfiguration: see :func:`check`; or such a file cannot be read
    """
    access = _understood(options)
    told = {**access.shared, **access.java_only, "isolation.level": access.isolation}
    if access.mechanism:
        told["sasl.mechanism"] = access.mechanism
    if access.login:
        told["sasl.jaas.config"] = _jaas(access.mechanism, *access.login)
    if access.check_host is not None:
        told["ssl.endpoint.identification.algorithm"] = "https" if access.check_host else ""
    return {**told, **_java_trust(access.authority), **_java_identity(access.identity)}


# -- understanding --------------------------------------------------------------------------------
def _understood(options: Mapping[str, str] | None) -> _Access:
    given = {name: str(value) for name, value in (options or {}).items()}
    for name in given:
        _refuse_unknown(name)
    mechanism = _mechanism(given)
    return _Access(
        shared=_some(given, _BOTH),
        java_only=_some(given, _JAVA_ONLY),
        librdkafka_only=_some(given, _LIBRDKAFKA_ONLY),
        isolation=_isolation(given),
        mechanism=mechanism,
        login=_login(given, mechanism),
        check_host=_check_host(given),
        authority=_authority(given),
        identity=_identity(given),
    )


def _some(given: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: given[name] for name in names if name in given}


def _refuse_unknown(name: str) -> None:
    known = (*_BOTH, *_JAVA_ONLY, *_LIBRDKAFKA_ONLY, *_WITHOUT_MEANING, *_UNDERSTOOD)
    if name in known:
        return
    near = difflib.get_close_matches(name.removeprefix("kafka."), known, n=1)
    raise InvalidConfiguration(
        f"kafka_options has the option {name!r}, which cannot be told to both clients of Kafka.",
        remedy=f"did you mean {near[0]}?" if near else "remove it.",
    )


def _isolation(given: Mapping[str, str]) -> str:
    level = given.get("isolation.level", "read_committed")
    if level not in ("read_committed", "read_uncommitted"):
        raise InvalidConfiguration(
            f"kafka_options has isolation.level {level!r}.", remedy="set it to read_committed, or remove it."
        )
    return level


def _mechanism(given: Mapping[str, str]) -> str:
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms") or ""
    if mechanism and mechanism not in _LOGIN_MODULES:
        raise InvalidConfiguration(
            f"kafka_options has sasl.mechanism {mechanism!r}.",
            remedy=f"use one of {', '.join(_LOGIN_MODULES)}, or certificates (security.protocol SSL).",
        )
    return mechanism


def _login(given: Mapping[str, str], mechanism: str) -> tuple[str, str] | None:
    user, password, jaas = (given.get(f"sasl.{name}") for name in ("username", "password", "jaas.config"))
    if jaas is not None and (user is not None or password is not None):
        raise InvalidConfiguration(
            "kafka_options has sasl.jaas.config and sasl.username or sasl.password.",
            remedy="keep one of the two forms.",
        )
    if jaas is not None:
        return _login_of_jaas(jaas, mechanism)
    if (user is None) != (password is None):
        raise InvalidConfiguration(
            "kafka_options has only one of sasl.username and sasl.password.", remedy="give both, or none."
        )
    if user is None or password is None:
        return None
    _need_mechanism(mechanism)
    return user, password


def _login_of_jaas(jaas: str, mechanism: str) -> tuple[str, str]:
    match = _JAAS.fullmatch(jaas)
    found = {
        option["name"]: re.sub(r"\\(.)", r"\1", option["quoted"])
        if option["quoted"] is not None
        else option["bare"]
        for option in _JAAS_OPTION.finditer(match["options"] if match else "")
    }
    known = match is not None and match["module"] in _LOGIN_MODULES.values()
    if not known or "username" not in found or "password" not in found:
        # Never the text itself: it holds the password.
        raise InvalidConfiguration(
            "sasl.jaas.config in kafka_options is no login with username and password.",
            remedy='write it as <login module of PLAIN or SCRAM> required username="…" password="…"; or give '
            "sasl.username and sasl.password.",
        )
    _need_mechanism(mechanism)
    return found["username"], found["password"]


def _need_mechanism(mechanism: str) -> None:
    if not mechanism:
        raise InvalidConfiguration(
            "kafka_options has a user and no sasl.mechanism.",
            remedy=f"set sasl.mechanism to one of {', '.join(_LOGIN_MODULES)}.",
        )


def _check_host(given: Mapping[str, str]) -> bool | None:
    algorithm = given.get("ssl.endpoint.identification.algorithm")
    return None if algorithm is None else algorithm.strip().lower() not in ("", "none")


def _authority(given: Mapping[str, str]) -> _Pem:
    location = given.get("ssl.truststore.location", "")
    if location and _store_type(given, "truststore") != "PEM":
        raise InvalidConfiguration(
            f"The trust store {location} in kafka_options is not in PEM, and only Java can read others.",
            remedy="write its certificates into a PEM file, and name that with ssl.truststore.type PEM.",
        )
    return _Pem(
        text=given.get("ssl.ca.pem") or given.get("ssl.truststore.certificates") or "",
        file=given.get("ssl.ca.location") or location,
    )


def _identity(given: Mapping[str, str]) -> _Identity:
    location = given.get("ssl.keystore.location", "")
    if not location:
        return _Identity(
            certificate=_Pem(
                text=given.get("ssl.certificate.pem") or given.get("ssl.keystore.certificate.chain") or "",
                file=given.get("ssl.certificate.location", ""),
            ),
            key=_Pem(
                text=given.get("ssl.key.pem") or given.get("ssl.keystore.key") or "",
                file=given.get("ssl.key.location", ""),
            ),
        )
    kind = _store_type(given, "keystore")
    if kind == "PEM":
        return _Identity(both=_Pem(file=location))
    if kind == "PKCS12":
        return _Identity(keystore=(location, given.get("ssl.keystore.password", "")))
    raise InvalidConfiguration(
        f"The key store {location} in kafka_options is of type {kind}, which only Java can read.",
        remedy="convert it to PKCS12 or PEM, and say so in ssl.keystore.type.",
    )


def _store_type(given: Mapping[str, str], store: str) -> str:
    location = given[f"ssl.{store}.location"]
    by_name = _STORE_TYPES.get(Path(location).suffix.lower(), "JKS")
    return given.get(f"ssl.{store}.type", by_name).upper()


# -- telling Java ---------------------------------------------------------------------------------
def _jaas(mechanism: str, user: str, password: str) -> str:
    quoted = [re.sub(r'(["\\])', r"\\\1", text) for text in (user, password)]
    return f'{_LOGIN_MODULES[mechanism]} required username="{quoted[0]}" password="{quoted[1]}";'


def _java_trust(authority: _Pem) -> dict[str, str]:
    if authority.text:
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.text}
    if authority.file:
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority.file}
    return {}


def _java_identity(identity: _Identity) -> dict[str, str]:
    if identity.keystore:
        location, password = identity.keystore
        return {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": location,
            "ssl.keystore.password": password,
        }
    if identity.both:
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": identity.both.file}
    if not (identity.certificate or identity.key):
        return {}
    key = identity.key.read("ssl.key.location")
    if not any(mark in key for mark in _PKCS8):
        raise InvalidConfiguration(
            "The private key in kafka_options is not in PKCS #8, and Java's client reads no other.",
            remedy="convert it with openssl pkcs8 -topk8.",
        )
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": identity.certificate.read("ssl.certificate.location"),
        "ssl.keystore.key": key,
    }
