"""Confs that are set for a moment: what was there comes back, whatever happens."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.errors import SparkRestricted
from delta_cdc.spark.meaning import MEANING
from delta_cdc.spark.sealed.commit import sealed
from delta_cdc.spark.sessions import (
    _OF_DELTA,
    _configure,
    confs_for_a_moment,
    confs_of_whole_plans,
    effective,
    hide_statements,
)
from tests.support.logs import LogTable, seal

if TYPE_CHECKING:
    from collections.abc import Mapping


class Confs:
    """The confs of a session, one of which cannot be set.

    :param defaults: the values of confs that are not set
    """

    def __init__(self, refused: str = "", defaults: Mapping[str, str] | None = None, **known: str) -> None:
        self.known, self.refused, self.defaults = known, refused, defaults or {}

    @property
    def getAll(self) -> dict[str, str]:  # noqa: N802 - PySpark's name
        return dict(self.known)

    def get(self, name: str, *default: str | None) -> str | None:
        return self.known.get(name, *default) if default else {**self.defaults, **self.known}[name]

    def set(self, name: str, value: str) -> None:
        if name == self.refused:
            raise ValueError(name)
        self.known[name] = value

    def unset(self, name: str) -> None:
        self.known.pop(name, None)


def session(refused: str = "", **known: Any) -> Any:
    return SimpleNamespace(conf=Confs(refused, **known))


class Connected(SimpleNamespace):
    """A session of Spark Connect, which reads many confs in one request."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self, **known: Any) -> None:
        super().__init__(conf=Confs(**known), client=self)

    def get_config_dict(self, *names: str) -> dict[str, str | None]:
        return {name: self.conf.get(name) for name in names}


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
    theirs = dict.fromkeys(MEANING, "another")
    made = session(**theirs)
    _configure(made)
    assert {name: made.conf.known[name] for name in MEANING} == {k: v[0] for k, v in MEANING.items()}
    for refused in MEANING:
        with pytest.raises(SparkRestricted, match=refused):
            _configure(session(refused, **theirs))


def test_a_session_with_the_defaults_may_refuse_to_set_them() -> None:
    for name, values in MEANING.items():
        for value in (*values, values[-1].lower()):
            made = session(name, **{name: value})
            _configure(made)
            assert made.conf.known[name] == value
        _configure(session(name))


@pytest.mark.parametrize("kind", [session, Connected])
def test_a_default_of_the_environment_is_no_default_of_spark(kind: Any) -> None:
    """``SPARK_ANSI_SQL_MODE`` sets no conf: it is another default."""
    theirs = {name: values[0] for name, values in MEANING.items()} | {"spark.sql.ansi.enabled": "false"}
    made = kind(defaults=theirs)
    _configure(made)
    assert made.conf.known["spark.sql.ansi.enabled"] == "true"
    assert not made.conf.known.keys() & (MEANING.keys() - {"spark.sql.ansi.enabled"})


def test_a_server_that_does_not_know_one_of_the_confs() -> None:
    assert effective(Connected(a="1"), ["a", "b"]) == {"a": "1", "b": None}


@pytest.mark.parametrize("name", _OF_DELTA)
def test_a_conf_of_delta_that_a_cluster_has(name: str) -> None:
    made = session(**{name: "another"})
    _configure(made)
    assert made.conf.known.get(name) == _OF_DELTA[name]
    made = session()
    _configure(made)
    assert name not in made.conf.known


def test_a_session_that_hides_its_statements_shows_a_plan() -> None:
    assert confs_of_whole_plans(session()) == {}
    made: Any = Connected()
    hide_statements(made)
    (pattern,) = made.conf.known.values()
    assert re.sub(pattern, "", "== Analyzed\nLogical Plan ==") == ""
    with confs_for_a_moment(made, confs_of_whole_plans(made)):
        (shown,) = made.conf.known.values()
        assert re.sub(shown, "x", "== Analyzed\nLogical Plan ==") == "== Analyzed\nLogical Plan =="
    assert list(made.conf.known.values()) == [pattern]


def test_a_seal_does_not_stay_where_its_confs_cannot_all_be_set(tmp_path: Any) -> None:
    made = session("spark.databricks.delta.commitInfo.userMetadata")
    source = LogTable(tmp_path / "source").create()
    with pytest.raises(SparkRestricted, match="userMetadata"), sealed(made, seal(1, 0, source=source)):
        raise AssertionError("not reached")
    assert made.conf.getAll == {}
