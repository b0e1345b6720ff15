"""The hook for Spark Connect, as far as no server is needed."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_cdc.hooks import connect as hooks
from airflow_delta_cdc.hooks.connect import DeltaCdcConnectHook, connect_mode
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from airflow_delta_cdc.runtime import runtime_for
from airflow_delta_cdc.runtime.connect import ConnectRuntime
from airflow_delta_cdc.runtime.submit import SubmitRuntime
from delta_cdc.core.errors import (
    EnvironmentNotReady,
    InvalidConfiguration,
    JobFailed,
    SparkServerLost,
    TargetConstraintViolated,
)
from delta_cdc.spark import named_errors
from delta_cdc.spark.sessions import is_lost

if TYPE_CHECKING:
    from tests.unit.airflow.conftest import Connect

MODE = "SPARK_CONNECT_MODE_ENABLED"
TOKEN = "se/cr;et=t%ok"


def connection(monkeypatch: pytest.MonkeyPatch, **said: Any) -> str:
    given = {"conn_type": "spark_connect", "password": TOKEN, **said}
    monkeypatch.setenv("AIRFLOW_CONN_REMOTE", json.dumps(given))
    return "remote"


@pytest.mark.parametrize(
    ("said", "server"),
    [
        ({"host": "spark", "port": 1}, "sc://spark:1"),
        ({"host": "sc://spark"}, "sc://spark:15002"),
        ({"host": "sc://spark:7/"}, None),
        ({"host": "sc://spark/path"}, None),
        ({"host": "somebody@spark"}, None),
        ({}, None),
    ],
)
def test_the_address_of_a_server(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, Any], server: str | None
) -> None:
    hook = DeltaCdcConnectHook(connection(monkeypatch, **said))
    if server is not None:
        assert hook.server == server
        return
    with pytest.raises(InvalidConfiguration, match="names no server") as refused:
        _ = hook.server
    assert TOKEN not in f"{refused.value!r}{refused.value.__context__!r}"


def test_the_connection_says_how_a_job_is_run(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(conn_id: str | None) -> Any:
        return runtime_for(DeltaCdcOperator(task_id="any", spark_conn_id=conn_id))

    assert isinstance(of(None), SubmitRuntime)
    assert isinstance(of(connect(host="local[2]")), SubmitRuntime)
    served = of(connection(monkeypatch, host="spark", port=1))
    assert isinstance(served, ConnectRuntime)
    assert served.master == "sc://spark:1"
    assert isinstance(of("absent"), SubmitRuntime), "which says by name that there is none"


@pytest.mark.parametrize("given", [None, "0"])
def test_the_mode_is_put_back(monkeypatch: pytest.MonkeyPatch, given: str | None) -> None:
    monkeypatch.delenv(MODE, raising=False)
    if given is not None:
        monkeypatch.setenv(MODE, given)
    first, second = connect_mode(), connect_mode()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert os.environ[MODE] == "1", "the second one is inside"
    second.__exit__(None, None, None)
    assert os.environ.get(MODE) == given


class Rpc(Exception):
    """An error of gRPC, as PySpark's client sees it."""

    __module__ = "grpc._channel"

    def __init__(self, name: str, text: str = "") -> None:
        self.name = name
        super().__init__(text)

    def code(self) -> Any:
        return SimpleNamespace(name=self.name)


def broken_off(said: str, name: str = "UNAVAILABLE") -> str:
    """Return what gRPC prints of a call that ended."""
    return (
        "<_MultiThreadedRendezvous of RPC that terminated with:\n\tstatus = "
        f"StatusCode.{name}\n"
        f'\tdetails = "{said}"\n\tdebug_error_string = "{name}:{said}"\n>'
    )


def test_what_says_that_a_server_is_lost() -> None:
    assert is_lost(Rpc("UNAVAILABLE"))
    assert is_lost(Rpc("INTERNAL", "[INVALID_HANDLE.SESSION_CHANGED] The handle is invalid."))
    assert not is_lost(Rpc("INTERNAL", "[DIVIDE_BY_ZERO]"))
    assert not is_lost(ValueError("INVALID_HANDLE.SESSION_CHANGED"))
    named = named_errors.named(Rpc("UNAVAILABLE", broken_off("connection\nrefused")), "a into b")
    assert isinstance(named, SparkServerLost)
    assert named.retryable
    assert "(Rpc: UNAVAILABLE: connection refused)" in named.message
    # In Airflow, a retry has a new session; in a program, the lost one would fail for ever.
    assert "retry with a new one (SparkSession.builder.remote(…).create())" in named.remedy
    # What tidies up behind a loss meets it again; the first one says what happened.
    later = Rpc("INTERNAL", "[NO_ACTIVE_SESSION] No active Spark session found.")
    later.__context__ = ValueError("of no interest")
    later.__context__.__context__ = Rpc("UNAVAILABLE", broken_off("connection reset"))
    assert "(Rpc: UNAVAILABLE: connection reset)" in named_errors.named(later, "a into b").message
    assert isinstance(named_errors.named(Rpc("INTERNAL", "boom"), "a into b"), JobFailed)
    absent = RuntimeError("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. Make sure")
    assert isinstance(named_errors.named(absent, "a into b"), EnvironmentNotReady)
    replaced = RuntimeError("Table does not support reads: delta.`file:/lake/a`.")
    named = named_errors.named(replaced, "a into b")
    assert isinstance(named, EnvironmentNotReady)
    assert "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension" in named.remedy


def test_a_new_table_for_iceberg_gets_no_deletion_vectors() -> None:
    """A cluster's default may ask for it: then there is no table whose property could change."""
    text = "[DELTA_ICEBERG_COMPAT_VIOLATION.DELETION_VECTORS_SHOULD_BE_DISABLED] The validation has failed."
    named = named_errors.named(RuntimeError(text), "/lake/a")
    assert isinstance(named, TargetConstraintViolated)
    assert "target_properties={'delta.enableDeletionVectors': 'false'}" in named.remedy


def test_a_default_catalog_that_knows_no_paths_is_named() -> None:
    condition = "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"
    text = f"[{condition}] Unsupported data source type for direct query on files: "
    named = named_errors.named(RuntimeError(f"{text}delta SQLSTATE: 0A000; line 1 pos 26"), "/lake/a")
    assert isinstance(named, EnvironmentNotReady)
    assert not named.retryable
    assert "spark.sql.defaultCatalog=spark_catalog" in named.remedy
    assert "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog" in named.remedy
    altered = "[SCHEMA_NOT_FOUND] The schema `spark_catalog`.`delta` cannot be found. Verify the spelling"
    assert named_errors.named(RuntimeError(altered), "/lake/a").remedy == named.remedy
    other = named_errors.named(RuntimeError(f"{text}jdbc SQLSTATE: 0A000"), "/lake/a")
    assert not isinstance(other, EnvironmentNotReady)


@pytest.mark.parametrize("name", ["UNAVAILABLE", "UNAUTHENTICATED", ""])
def test_what_a_server_says_is_told_in_full(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """But for the token."""
    hook = DeltaCdcConnectHook(connection(monkeypatch, host="spark", port=1))
    error: Any = Rpc("INTERNAL", broken_off(f"no {TOKEN};\nlast error: none", name or "INTERNAL"))
    if name:
        error.getGrpcStatusCode = lambda: SimpleNamespace(name=name)
    said = hook._named(error).message
    assert said.endswith(f": Rpc: {name or 'INTERNAL'}: no ***; last error: none")


@pytest.mark.parametrize("refuses_java", [False, True])
def test_a_server_that_does_not_tell_the_version_of_its_delta(
    monkeypatch: pytest.MonkeyPatch, caplog: Any, refuses_java: bool
) -> None:
    """Its JARs are missing, or it lets no query call Java: then the pair is not compared."""
    monkeypatch.setattr(hooks.engine, "refuses_java", lambda _: refuses_java)

    def refused(_: Any) -> str:
        raise ValueError("[ROUTINE_NOT_FOUND] java_method")

    monkeypatch.setattr(hooks.engine, "delta_version", refused)
    hook = DeltaCdcConnectHook(connection(monkeypatch, host="spark"))
    session: Any = None
    if not refuses_java:
        with pytest.raises(EnvironmentNotReady, match="Cannot read the version of Delta"):
            hook._check_delta(session, "4.2.0")
        return
    hook._check_delta(session, "4.2.0")
    assert "does not let a query call Java" in caplog.text


def test_headers_of_a_managed_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """They go with each request, as PySpark's client sends them, and are seen nowhere."""
    from pyspark.sql.connect.client.core import DefaultChannelBuilder
    from pyspark.sql.connect.session import SparkSession

    headers = {"x-cluster": "one;two=3", "x-proxy-auth": TOKEN}
    conn_id = connection(monkeypatch, host="spark", port=1, extra={"headers": headers})
    hook = DeltaCdcConnectHook(conn_id)
    assert dict(DefaultChannelBuilder(hook.url).metadata()) == headers
    builders: list[Any] = []

    def created(self: Any) -> Any:
        builders.append(self._channel_builder)
        return SimpleNamespace(client=SimpleNamespace(set_retry_policies=lambda _: None))

    monkeypatch.setattr(SparkSession.Builder, "create", created)
    hook._connected()
    assert dict(builders[0].metadata()) == headers
    assert hook._named(ValueError(f"no {headers['x-cluster']}")).message.endswith("no ***")
    for wrong in ("x", {"X-Upper": "1"}, {"token": "1"}, {"x": 1}, {"x y": "1"}):
        hook = DeltaCdcConnectHook(connection(monkeypatch, host="spark", extra={"headers": wrong}))
        with pytest.raises(InvalidConfiguration, match="extra headers of the connection 'remote'"):
            _ = hook.headers


@pytest.mark.parametrize("disconnected", [False, True])
def test_a_server_that_is_given_up_stays_so(monkeypatch: pytest.MonkeyPatch, disconnected: bool) -> None:
    """Each request has its own time, but for those after the one that was given up."""
    grpc = pytest.importorskip("grpc")

    class Away(Rpc, grpc.RpcError):  # type: ignore[misc, name-defined]
        def code(self) -> Any:
            return getattr(grpc.StatusCode, self.name)

        def trailing_metadata(self) -> None:
            return None

    clock = [0.0]
    monkeypatch.setattr(hooks.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr("pyspark.sql.connect.client.retries.extract_retry_info", lambda error: None)
    policy = hooks._patience(30.0)
    for start in (0.0, 25.0, 50.0):
        clock[0] = start
        assert policy.to_state().can_retry(Away("UNAVAILABLE")), "each healed at its first retry"
    request = policy.to_state()
    assert request.can_retry(Away("UNAVAILABLE"))
    assert not request.can_retry(Away("INVALID_ARGUMENT"))
    clock[0] = 79.0
    assert request.can_retry(Away("UNAVAILABLE"))
    assert request.can_retry(Away("INTERNAL", "INVALID_CURSOR.DISCONNECTED"))
    clock[0] = 80.0
    # Whatever it is that PySpark would ask again for: it has an end.
    last = Away("INTERNAL", "INVALID_CURSOR.DISCONNECTED") if disconnected else Away("UNAVAILABLE")
    assert not request.can_retry(last)
    assert not policy.to_state().can_retry(Away("UNAVAILABLE"))
