"""A run triggered through Airflow's REST API with a range of versions applies just that range."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.session import embedded_session
from demo.places import Places
from demo.server import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

_DAG = "orders_current"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    return Places(tmp_path_factory.mktemp("rest"))


@pytest.fixture(scope="module")
def session(places: Places) -> SparkSession:
    """Make ``orders`` with the versions 0-5: the table, three rows, and four changes of one row."""
    spark = embedded_session("test-rest-trigger", quick_start=True)
    table = _table(places.table("orders"))
    spark.sql(
        f"CREATE TABLE {table} (o_orderkey BIGINT, o_totalprice BIGINT) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    spark.sql(f"INSERT INTO {table} VALUES (1, 10), (2, 20), (3, 30)")
    for version in (2, 3, 4, 5):
        spark.sql(f"UPDATE {table} SET o_totalprice = {version * 100} WHERE o_orderkey = 1")
    return spark


@pytest.fixture(scope="module")
def server(places: Places, session: SparkSession) -> Iterator[Server]:
    with Server(places) as running:
        running.start()
        running.wait_until_ready(_DAG)
        session_id = running.session
        assert len(_alive_in(session_id)) > 4, "all parts of Airflow are in one session"
        yield running
    assert _alive_in(session_id) == [], "the server left processes behind"


def test_only_the_triggered_range_is_applied(server: Server, session: SparkSession, places: Places) -> None:
    loaded = _run(server, {"ending_version": 2})
    assert (loaded["applied"], loaded["version"]) == (True, 2)
    assert _rows(session, places.table("orders_current")) == [(1, 200), (2, 20), (3, 30)]

    applied = _run(server, {"starting_version": 3, "ending_version": 3})

    assert applied["applied"] is True
    assert (applied["starting_version"], applied["ending_version"], applied["version"]) == (3, 3, 3)
    assert _rows(session, places.table("orders_current")) == [(1, 300), (2, 20), (3, 30)]
    assert applied["target_version"] == _newest(session, places.table("orders_current"))


def test_an_empty_form_applies_all_that_is_left(
    server: Server, session: SparkSession, places: Places
) -> None:
    done = _run(server, {})

    assert done["version"] == 5
    assert _rows(session, places.table("orders_current")) == _rows(session, places.table("orders"))


def test_the_form_refuses_what_is_no_version(server: Server) -> None:
    with pytest.raises(OSError, match="HTTP Error 4"):
        server.trigger(_DAG, {"ending_version": -1})


def _run(server: Server, conf: dict[str, Any]) -> dict[str, Any]:
    run_id = server.trigger(_DAG, conf)
    assert server.finish(_DAG, run_id) == "success"
    published: dict[str, Any] = server.result(_DAG, run_id, "apply")
    return published


def _rows(spark: SparkSession, table: Path) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(f"SELECT * FROM {_table(table)} ORDER BY 1").collect()]


def _newest(spark: SparkSession, table: Path) -> int:
    newest = spark.sql(f"DESCRIBE HISTORY {_table(table)} LIMIT 1").first()
    assert newest is not None
    return int(newest["version"])


def _table(path: Path) -> str:
    return f"delta.`{path}`"


def _alive_in(session: int) -> list[str]:
    """Return the processes of a session, known by what ``ps`` says and not by what the server knows."""
    listed = subprocess.run(["ps", "-eo", "sid=,stat=,args="], capture_output=True, text=True, check=True)
    lines = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    return [line[2] for line in lines if int(line[0]) == session and not line[1].startswith("Z")]
