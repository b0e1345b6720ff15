"""What a Kafka connection tells the client, and that its secrets are masked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_delta_cdc.kafka import kafka_options
from delta_cdc.core.errors import InvalidConfiguration, KafkaConnectionNotFound

SECRET = "s3cr3t of nobody"


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Any:
    def create(extra: Any, conn_type: str = "kafka") -> str:
        told = {"conn_type": conn_type, "extra": extra if isinstance(extra, str) else json.dumps(extra)}
        monkeypatch.setenv("AIRFLOW_CONN_BROKERS", json.dumps(told))
        return "brokers"

    return create


def test_the_extra_is_the_clients_configuration(connect: Any) -> None:
    """As the Kafka provider of Airflow has it; callbacks are of its own operators. Explicit options win."""
    extra = {
        "bootstrap.servers": "one:9092,two:9092",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
    }
    conn_id = connect({**extra, "error_cb": "my.module.called_back", "group.id": None})
    texts = {**extra, "enable.auto.commit": "false", "session.timeout.ms": "6000"}
    assert kafka_options(conn_id, None) == texts
    own = {"session.timeout.ms": "7", "client.id": "me"}
    assert kafka_options(conn_id, own) == {**texts, **own}
    assert kafka_options(None, own) == own
    assert kafka_options(None, None) is None


def test_secrets_are_masked(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[str] = []
    monkeypatch.setattr("airflow_delta_cdc.kafka.mask_secret", masked.append)
    names = ("sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret", "ssl.key.pem",
             "ssl.keystore.key", "sasl.jaas.config")  # fmt: skip
    kafka_options(connect({"sasl.username": "me", **{n: f"{SECRET} {n}" for n in names}}), None)
    assert sorted(masked) == sorted(f"{SECRET} {name}" for name in names)


def test_a_connection_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow.sdk.execution_time.supervisor.ensure_secrets_backend_loaded", lambda *_: [])
    with pytest.raises(KafkaConnectionNotFound, match="'nowhere'"):
        kafka_options("nowhere", None)


@pytest.mark.parametrize(
    ("extra", "conn_type", "said"),
    [({}, "delta", "of type delta"), ("not json", "kafka", "no JSON object"), ("[1]", "kafka", "no JSON")],
)
def test_a_connection_that_cannot_be_meant(connect: Any, extra: Any, conn_type: str, said: str) -> None:
    with pytest.raises(InvalidConfiguration, match=said):
        kafka_options(connect(extra, conn_type), None)
