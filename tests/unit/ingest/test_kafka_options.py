"""One set of options, told to both clients of Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delta_cdc.errors import InvalidConfiguration
from delta_cdc.ingest import kafka_options

if TYPE_CHECKING:
    from pathlib import Path

KEY = "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\n"
CHAIN = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
COMMITTED = {"isolation.level": "read_committed"}


def login(module: str, user: str, password: str) -> str:
    return f'{module} required username="{user}" password="{password}";'


# id -> (options, as librdkafka names them, as Java names them)
CASES: dict[str, tuple[dict[str, str], dict[str, str], dict[str, str]]] = {
    "nothing": ({}, {}, COMMITTED),
    "brokers and groups": (
        {"bootstrap.servers": "b:1", "group.id": "g", "auto.offset.reset": "latest"},
        {},
        COMMITTED,
    ),
    "both alike": (
        {"security.protocol": "SSL", "client.id": "me"},
        {"security.protocol": "SSL", "client.id": "me"},
        {"security.protocol": "SSL", "client.id": "me", **COMMITTED},
    ),
    "one alone": (
        {"fetch.max.bytes": "1", "socket.timeout.ms": "2"},
        {"socket.timeout.ms": "2"},
        {"fetch.max.bytes": "1", **COMMITTED},
    ),
    "uncommitted": ({"isolation.level": "read_uncommitted"}, {}, {"isolation.level": "read_uncommitted"}),
    "user, librdkafka": (
        {"sasl.mechanisms": "PLAIN", "sasl.username": 'a"b', "sasl.password": "c\\d;"},
        {"sasl.mechanism": "PLAIN", "sasl.username": 'a"b', "sasl.password": "c\\d;"},
        {"sasl.mechanism": "PLAIN", "sasl.jaas.config": login(PLAIN, 'a\\"b', "c\\\\d;"), **COMMITTED},
    ),
    "user, Java": (
        {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": login(SCRAM, 'a\\"b', "c\\\\d;")},
        {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": 'a"b', "sasl.password": "c\\d;"},
        {
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": login(SCRAM, 'a\\"b', "c\\\\d;"),
            **COMMITTED,
        },
    ),
    "user, over lines": (
        {
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN} required\n  username = u\n  password="p w" ;\n',
        },
        {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p w"},
        {"sasl.mechanism": "PLAIN", "sasl.jaas.config": login(PLAIN, "u", "p w"), **COMMITTED},
    ),
    "authority, librdkafka": (
        {"ssl.ca.location": "/ca.crt", "ssl.endpoint.identification.algorithm": "none"},
        {"ssl.ca.location": "/ca.crt", "ssl.endpoint.identification.algorithm": "none"},
        {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.crt",
            "ssl.endpoint.identification.algorithm": "",
            **COMMITTED,
        },
    ),
    "authority, Java": (
        {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.crt"},
        {"ssl.ca.location": "/ca.crt"},
        {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.crt", **COMMITTED},
    ),
    "authority, its text": (
        {"ssl.truststore.certificates": CHAIN},
        {"ssl.ca.pem": CHAIN},
        {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": CHAIN, **COMMITTED},
    ),
    "identity, Java's one file": (
        {"ssl.keystore.location": "/me.pem", "ssl.key.password": "p"},
        {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem", "ssl.key.password": "p"},
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "/me.pem",
            "ssl.key.password": "p",
            **COMMITTED,
        },
    ),
    "identity, PKCS 12": (
        {"ssl.keystore.location": "/me.P12", "ssl.keystore.password": "p"},
        {"ssl.keystore.location": "/me.P12", "ssl.keystore.password": "p"},
        {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": "/me.P12",
            "ssl.keystore.password": "p",
            **COMMITTED,
        },
    ),
    "identity, its text": (
        {"ssl.certificate.pem": CHAIN, "ssl.keystore.key": KEY},
        {"ssl.certificate.pem": CHAIN, "ssl.key.pem": KEY},
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": CHAIN,
            "ssl.keystore.key": KEY,
            **COMMITTED,
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_both_clients_are_told_the_same(case: str) -> None:
    options, librdkafka, java = CASES[case]
    kafka_options.check(options)
    assert kafka_options.for_librdkafka(options) == librdkafka
    assert kafka_options.for_java(options) == java
    # What Java is told can be handed on as it is.
    assert kafka_options.for_java(java) == java


def test_two_files_of_a_certificate_become_one_for_java(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text(CHAIN)
    (tmp_path / "k.pem").write_text(KEY)
    options = {
        "ssl.certificate.location": str(tmp_path / "c.pem"),
        "ssl.key.location": str(tmp_path / "k.pem"),
    }
    assert kafka_options.for_librdkafka(options) == options
    assert kafka_options.for_java(options) == CASES["identity, its text"][2]
    (tmp_path / "k.pem").write_text(KEY.replace("PRIVATE", "RSA PRIVATE"))
    with pytest.raises(InvalidConfiguration, match="PKCS #8"):
        kafka_options.for_java(options)
    (tmp_path / "k.pem").unlink()
    with pytest.raises(InvalidConfiguration, match="cannot be read"):
        kafka_options.for_java(options)


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "misspelt": ({"security.protocoll": "SSL"}, "did you mean security.protocol?"),
    "as Spark has it": ({"kafka.security.protocol": "SSL"}, "did you mean security.protocol?"),
    "unknown": ({"acks": "all"}, "'acks'"),
    "Kerberos": ({"sasl.mechanism": "GSSAPI"}, "'GSSAPI'"),
    "isolation": ({"isolation.level": "serializable"}, "'serializable'"),
    "half a user": ({"sasl.mechanism": "PLAIN", "sasl.username": "u"}, "only one"),
    "a user twice": ({"sasl.username": "u", "sasl.jaas.config": "x"}, "one of the two forms"),
    "no mechanism": ({"sasl.username": "u", "sasl.password": "p"}, "no sasl.mechanism"),
    "another login": (
        {"sasl.mechanism": "PLAIN", "sasl.jaas.config": login("com.sun.Krb5LoginModule", "u", "geheim")},
        "no login",
    ),
    "no login": ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "geheim"}, "no login"),
    "Java's trust store": ({"ssl.truststore.location": "/t.jks"}, "not in PEM"),
    "Java's key store": ({"ssl.keystore.location": "/k.jks"}, "only Java"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_told_to_both_is_refused_by_name(case: str) -> None:
    options, said = REFUSED[case]
    with pytest.raises(InvalidConfiguration) as caught:
        kafka_options.check(options)
    assert said in str(caught.value)
    assert "geheim" not in str(caught.value)
