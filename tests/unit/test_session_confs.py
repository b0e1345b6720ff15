"""Confs that are set for a moment: what was there comes back, whatever happens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from delta_cdc.core.errors import SparkRestricted
from delta_cdc.spark.sealed.commit import sealed
from delta_cdc.spark.sessions import _MEANING, _configure, confs_for_a_moment
from tests.support.logs import LogTable, seal


class Confs:
    """The confs of a session, one of which cannot be set."""

    def __init__(self, refused: str = "", **known: str) -> None:
        self.known, self.refused = known, refused

    @property
    def getAll(self) -> dict[str, str]:  # noqa: N802 - PySpark's name
        return dict(self.known)

    def get(self, name: str, default: str | None) -> str | None:
        return self.known.get(name, default)

    def set(self, name: str, value: str) -> None:
        if name == self.refused:
            raise ValueError(name)
        self.known[name] = value

    def unset(self, name: str) -> None:
        self.known.pop(name, None)


def session(refused: str = "", **known: str) -> Any:
    return SimpleNamespace(conf=Confs(refused, **known))


def test_they_come_back() -> None:
    made = session(a="1")
    with confs_for_a_moment(made, {"a": "2", "b": "3"}):
        assert made.conf.getAll == {"a": "2", "b": "3"}
    assert made.conf.getAll == {"a": "1"}


def test_they_come_back_where_one_cannot_be_set() -> None:
    made = session("c", a="1")
    with (
        pytest.raises(SparkRestricted, match="set c,"),
        confs_for_a_moment(made, {"a": "2", "b": "3", "c": "4"}),
    ):
        raise AssertionError("not reached")
    assert made.conf.getAll == {"a": "1"}


def test_expressions_mean_what_they_mean_by_default() -> None:
    theirs = dict.fromkeys(_MEANING, "another")
    made = session(**theirs)
    _configure(made)
    assert {name: made.conf.known[name] for name in _MEANING} == {k: v[0] for k, v in _MEANING.items()}
    for refused in _MEANING:
        with pytest.raises(SparkRestricted, match=refused):
            _configure(session(refused, **theirs))


def test_a_session_with_the_defaults_may_refuse_to_set_them() -> None:
    for name, values in _MEANING.items():
        for value in (*values, values[-1].lower()):
            made = session(name, **{name: value})
            _configure(made)
            assert made.conf.known[name] == value
        _configure(session(name))


def test_a_seal_does_not_stay_where_its_confs_cannot_all_be_set(tmp_path: Any) -> None:
    made = session("spark.databricks.delta.commitInfo.userMetadata")
    source = LogTable(tmp_path / "source").create()
    with pytest.raises(SparkRestricted, match="userMetadata"), sealed(made, seal(1, 0, source=source)):
        raise AssertionError("not reached")
    assert made.conf.getAll == {}
