"""What is kept about sessions of Spark Connect, and what is replaced in PySpark's client. Needs no server."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import types as T
from pyspark.sql.connect import expressions

from delta_cdc.core.errors import EnvironmentNotReady, VersionsUnsupported
from delta_cdc.core.spark_versions import CONNECT_SINCE
from delta_cdc.spark import sessions

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

    def get(self, name: str, default: str | None) -> str | None:
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


def test_a_lost_server_is_no_refusal() -> None:
    lost: Any = Platform(error="INVALID_HANDLE.SESSION_CLOSED")
    with pytest.raises(SparkRefusal):
        sessions.set_where_allowed(lost, {"refused": "1"})


def test_the_name_is_replaced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Undone at the end, whatever another test has put there.
    monkeypatch.setattr(expressions, NAME, getattr(expressions, NAME))
    sessions._send_plain_strings()
    first = getattr(expressions, NAME)
    sessions._send_plain_strings()
    assert getattr(expressions, NAME) is first
    sent = first(T.ArrayType(T.MapType(T.StringType(), T.StringType())))
    assert not sent.array.element_type.map.key_type.string.collation
