"""One set of options, given to both clients of Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delta_cdc.core import kafka_options
from delta_cdc.core.errors import InvalidConfiguration

if TYPE_CHECKING:
    from pathlib import Path

KEY = "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\n"
CHAIN = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
COMMITTED = {"isolation.level": "read_committed"}


def login(module: str, user: str, password: str) -> str:
    return f'{module} required username="{user}" password="{password}";'


USER = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": 'a"b', "sasl.password": "c\\d;"}
OTHER_NAME = {"sasl.mechanisms": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
OWN = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc", "ssl.ca.pem": CHAIN}
ALONE = {"kafka.sasl.jaas.config": "x required;", "kafka.ssl.truststore.location": "/t.jks"}
REGISTRY = {"schema.registry.url": "http://r", "schema.registry.bearer.auth.token": "t"}
AUTHORITY = {"ssl.ca.location": "/ca.crt", "ssl.endpoint.identification.algorithm": "none"}
#: Options, as librdkafka names them, and as Java does besides the isolation.
CASES: dict[str, tuple[dict[str, str], dict[str, str], dict[str, str]]] = {
    "nothing": ({}, {}, {}),
    "brokers and groups": ({"bootstrap.servers": "b:1", "group.id": "g", "auto.offset.reset": "latest"}, {},
        {}),
    "both alike": ({"security.protocol": "SSL"}, {"security.protocol": "SSL"}, {"security.protocol": "SSL"}),
    "one alone": ({"kafka.fetch.max.bytes": "1", "socket.timeout.ms": "2"}, {"socket.timeout.ms": "2"},
        {"fetch.max.bytes": "1"}),
    "uncommitted": ({"isolation.level": "read_uncommitted"}, {}, {"isolation.level": "read_uncommitted"}),
    "a user": (USER, USER,
        {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": login(SCRAM, 'a\\"b', "c\\\\d;")}),
    "a user, the other name": (OTHER_NAME, OTHER_NAME,
        {"sasl.mechanism": "PLAIN", "sasl.jaas.config": login(PLAIN, "u", "p")}),
    "each client's own words": ({**OWN, **ALONE}, OWN, {"sasl.mechanism": "OAUTHBEARER",
        **{name.removeprefix("kafka."): value for name, value in ALONE.items()}}),
    "a registry's": ({**REGISTRY, "client.id": "c"}, {"client.id": "c"}, {}),
    "what Java is given wins": ({"security.protocol": "SSL", "kafka.security.protocol": "PLAINTEXT"},
        {"security.protocol": "SSL"}, {"security.protocol": "PLAINTEXT"}),
    "an authority": (AUTHORITY, AUTHORITY, {"ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.crt", "ssl.endpoint.identification.algorithm": ""}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_client_gets_what_it_understands(case: str) -> None:
    options, librdkafka, java = CASES[case]
    assert kafka_options.for_librdkafka(options) == librdkafka
    assert kafka_options.for_java(options) == {**COMMITTED, **java}


def test_two_files_of_a_certificate_become_one_for_java(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text(CHAIN)
    (tmp_path / "k.pem").write_text(KEY)
    options = {
        "ssl.certificate.location": str(tmp_path / "c.pem"),
        "ssl.key.location": str(tmp_path / "k.pem"),
        "ssl.key.password": "p",
    }
    assert kafka_options.for_librdkafka(options) == options
    assert kafka_options.for_java(options) == {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": CHAIN,
        "ssl.keystore.key": KEY,
        "ssl.key.password": "p",
        **COMMITTED,
    }
    (tmp_path / "k.pem").write_text(KEY.replace("PRIVATE", "RSA PRIVATE"))
    with pytest.raises(InvalidConfiguration, match="PKCS #8"):
        kafka_options.for_java(options)
    (tmp_path / "k.pem").unlink()
    with pytest.raises(InvalidConfiguration, match="cannot be read"):
        kafka_options.for_java(options)


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "isolation": ({"isolation.level": "serializable"}, "'serializable'"),
    "half a user": ({"sasl.mechanism": "PLAIN", "sasl.username": "u"}, "not all of sasl.username"),
    "no mechanism": ({"sasl.username": "u", "sasl.password": "geheim"}, "and sasl.mechanism"),
    "another mechanism": (
        {"sasl.mechanism": "GSSAPI", "sasl.username": "u", "sasl.password": "geheim"},
        "kafka.sasl.jaas.config",
    ),
    "a certificate without its key": ({"ssl.certificate.location": "/c.pem"}, "cannot be read"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_java_does_not_understand_is_refused_by_name(case: str) -> None:
    options, said = REFUSED[case]
    with pytest.raises(InvalidConfiguration) as caught:
        kafka_options.for_java(options)
    assert said in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_options_of_a_registry() -> None:
    given = {"schema.registry.url": "http://r", "schema.registry.use-id": "globalId", "client.id": "c"}
    assert kafka_options.for_registry(given) == {"url": "http://r", "use-id": "globalId"}
    for wrong, message in (
        ({"schema.registry.basic.auth.user": "x"}, "schema.registry.basic.auth.user, which is no option"),
        ({"schema.registry.use-id": "x"}, "use-id 'x'"),
        ({"schema.registry.url": " "}, "schema.registry.url is not given"),
    ):
        with pytest.raises(InvalidConfiguration, match=message) as caught:
            kafka_options.for_registry({**given, **wrong})
        assert caught.value.argument == "kafka_options"
    with pytest.raises(InvalidConfiguration, match="is not given"):
        kafka_options.for_registry(None)
