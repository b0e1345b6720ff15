"""What is kept about sessions of Spark Connect, and what is replaced in PySpark's client. Needs no server."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import types as T
from pyspark.sql.connect import expressions

from delta_cdc.core.errors import EnvironmentNotReady, SparkRestricted, VersionsUnsupported
from delta_cdc.core.spark_versions import CONNECT_SINCE
from delta_cdc.spark import sessions
from delta_cdc.spark.named_errors import failed
from delta_cdc.spark.sealed.commit_safety import refuse_unsafe_log_store

NAME = "pyspark_types_to_proto_types"


class Session:
    """As much of a session of Spark Connect as is asked of it."""

    _active_session = SimpleNamespace(session=None)

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.released = 0
        self.client = SimpleNamespace(
            interrupt_all=list,
            release_session=self.release,
            get_retry_policies=list,
            set_retry_policies=lambda _: None,
        )

    def release(self) -> None:
        self.released += 1

    def cloneSession(self) -> Session:  # noqa: N802 - PySpark's name
        return Session(f"clone of {self.session_id}")

    def stop(self) -> None:
        pass


def test_sessions_that_were_ended_are_forgotten_with_their_objects() -> None:
    before = len(sessions._ended)
    held = Session("held")
    for number in range(1000):
        sessions.end(Session(f"ended {number}"))
    sessions.end(held)
    gc.collect()
    assert len(sessions._ended) == before + 1, "one is still held"
    with sessions._cloned(held) as clone:
        assert clone.released == 1, "a clone of a session that was ended is ended as well"  # type: ignore[attr-defined]
    del held, clone
    gc.collect()
    assert len(sessions._ended) == before
    assert not sessions._open


def test_a_release_of_pyspark_without_the_replaced_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables would be made with ``string collate UTF8_BINARY``, and nobody would be told."""
    monkeypatch.delattr(expressions, NAME)
    named = pytest.raises(EnvironmentNotReady, match=NAME)
    with named, sessions._cloned(Session("any")):
        pass


def test_a_client_that_clones_no_session_is_refused() -> None:
    with (
        pytest.raises(VersionsUnsupported, match="cannot clone a session") as caught,
        sessions._cloned(object()),
    ):
        pass
    assert CONNECT_SINCE in caught.value.remedy


class Platform:
    """A session whose platform takes one conf and no other."""

    def __init__(self, *, error: str = "CANNOT_MODIFY_CONFIG") -> None:
        self.conf = self
        self.values: dict[str, str] = {}
        self._error = error

    def get(self, name: str, default: str | None = None) -> str | None:
        return self.values.get(name, default)

    def set(self, name: str, value: str) -> None:
        if name != "taken":
            raise SparkRefusal(f"[{self._error}] {name}")
        self.values[name] = value

    def unset(self, name: str) -> None:
        self.values.pop(name)


class SparkRefusal(Exception):
    """An error of the client."""

    __module__ = "pyspark.errors"


def test_work_goes_on_without_a_conf_that_a_platform_refuses(caplog: Any) -> None:
    platform: Any = Platform()
    with caplog.at_level("INFO"):
        assert sessions.set_where_allowed(platform, {"taken": "1", "refused": "1"}) == ["taken"]
    assert "refused" in caplog.text
    sessions.shuffle_for(platform, few_rows=True)
    assert platform.values == {"taken": "1"}
    assert sessions.set_where_allowed(platform, {"taken": None}) == ["taken"]
    assert platform.values == {}


LOST = "INVALID_HANDLE.SESSION_CLOSED"


def test_a_lost_server_is_no_refusal() -> None:
    for ask in (sessions.set_where_allowed, sessions.require_confs):
        with pytest.raises(SparkRefusal):
            ask(Platform(error=LOST), {"refused": "1"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("refused", "refuses_java"), [("java_method", True), ("everything", False), ("nothing", False)]
)
def test_a_spark_that_answers_no_query_does_not_refuse_java(refused: str, *, refuses_java: bool) -> None:
    """Its catalog may name a missing class: then Delta's JARs are missing, and the error has to say so."""
    spark: Any = Server(refused)
    assert sessions.refuses_java(spark) is refuses_java


def test_a_conf_that_rows_depend_on_is_required() -> None:
    platform: Any = Platform()
    sessions.require_confs(platform, {"taken": "1"})
    assert platform.values == {"taken": "1"}
    with pytest.raises(SparkRestricted, match=r"set refused, .*CANNOT_MODIFY_CONFIG") as caught:
        sessions.require_confs(platform, {"refused": "1"})
    assert "start that Spark with refused=1" in caught.value.remedy
    with pytest.raises(SparkRestricted) as caught:
        sessions.require_confs(platform, {"refused": "1"}, at_start=False)
    assert "start" not in caught.value.remedy
    platform.values["refused"] = "1"
    sessions.require_confs(platform, {"refused": "1"})


class Server:
    """A server of Spark Connect that refuses some things, by the names of what is called.

    :param refused: ``cloneSession``, ``localCheckpoint``, ``java_method``, or ``everything``
    """

    def __init__(self, *refused: str, error: str = "[NOT_SUPPORTED] not here") -> None:
        self._refused, self._error = refused, error
        self.statements: list[str] = []

    def _do(self, name: str) -> Any:
        if {name, "everything"} & {*self._refused}:
            raise SparkRefusal(self._error)
        return self

    def cloneSession(self) -> Any:  # noqa: N802 - PySpark's name
        return self._do("cloneSession")

    def sql(self, text: str) -> Any:
        self.statements.append(text)
        return self._do("java_method" if "java_method" in text else "sql")

    def range(self, _: int) -> Any:
        return self

    def localCheckpoint(self, *, eager: bool) -> Any:  # noqa: N802 - PySpark's name
        assert not eager, "a cluster without executors would wait for ever"
        return self._do("localCheckpoint")

    def collect(self) -> Any:
        return self._do("collect")


def test_a_server_that_clones_no_session_is_named() -> None:
    refused: Any = Server("cloneSession")
    with pytest.raises(SparkRestricted, match=r"clone a session: .*not here"):
        sessions._clone(refused)
    for other in (Server("everything"), Server("cloneSession", error=LOST)):
        with pytest.raises(SparkRefusal):
            sessions._clone(other)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("refused", "restricted"), [("localCheckpoint", True), ("everything", False), ("", False)]
)
def test_a_job_without_a_known_reason_asks_whether_spark_is_restricted(
    refused: str, restricted: bool
) -> None:
    """Only where Spark works, and refuses: one that is broken may be whole at the next try."""
    spark: Any = Server(refused)
    result = failed(SparkRefusal("[SOMETHING] else"), "/lake/t", spark)
    assert result.error is not None
    assert result.error["class"] == ("SparkRestricted" if restricted else "JobFailed")
    named: Any = Server("everything")
    assert failed(SparkRestricted("a.", remedy="b."), "/lake/t", named).message == "a. Remedy: b."


def test_a_spark_that_hides_its_log_store_writes_to_s3_by_the_users_word_only(caplog: Any) -> None:
    spark: Any = Server("java_method")
    refuse_unsafe_log_store(spark, "/lake/t", single_driver=False)
    with pytest.raises(SparkRestricted, match="which log store commits to s3://lake/t"):
        refuse_unsafe_log_store(spark, "s3://lake/t", single_driver=False)
    refuse_unsafe_log_store(spark, "s3://lake/t", single_driver=True)
    assert "single_driver: This Spark does not let a query call Java" in caplog.text
    broken: Any = Server("collect", error=LOST)
    with pytest.raises(SparkRefusal):
        refuse_unsafe_log_store(broken, "s3://lake/t", single_driver=True)


def test_the_name_is_replaced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Undone at the end, whatever another test has put there.
    monkeypatch.setattr(expressions, NAME, getattr(expressions, NAME))
    sessions._send_plain_strings()
    first = getattr(expressions, NAME)
    sessions._send_plain_strings()
    assert getattr(expressions, NAME) is first
    sent = first(T.ArrayType(T.MapType(T.StringType(), T.StringType())))
    assert not sent.array.element_type.map.key_type.string.collation
