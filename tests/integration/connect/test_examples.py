"""The examples, by a connection to a Spark Connect server and nothing else: no JVM starts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.airflow import test_examples as embedded
from tests.integration.airflow import test_sinks, test_table_care
from tests.integration.airflow.conftest import Airflow, Outcome, running
from tests.integration.connect.conftest import TOKEN
from tests.integration.connect.test_connect import sessions_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.connect_server import ConnectServer

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

_DAG = re.compile(r'with DAG\(\s*"\w+",')
_GIVEN = ' default_args={"spark_conn_id": "remote"},'


class Served(Airflow):
    """Its DAGs have the connection as a default, and start no application."""

    def dag(self, name: str, text: str) -> Path:
        for other in (self.home / "dags").glob("*.py"):
            # Each example says in the environment where its tables are, when it is parsed.
            other.unlink()
        for configuration in (self.home / "dags").glob("*.yaml"):
            said = configuration.read_text()
            if "spark_conn_id" not in said:
                configuration.write_text(
                    said.replace("defaults:\n", "defaults:\n  spark_conn_id: remote\n", 1)
                )
        return super().dag(name, _DAG.sub(lambda found: found[0] + _GIVEN, text))

    def run(self, file: Path, **how: Any) -> Outcome:
        done = super().run(file, **how)
        # The example of maintenance makes its own data with a Spark inside the worker.
        assert not [process for process in done.processes if any("delta_cdc_job" in part for part in process)]
        assert TOKEN not in done.log
        return done


@pytest.fixture(scope="module")
def served(server: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """An Airflow whose Spark is the server."""
    home = tmp_path_factory.mktemp("airflow")
    remote = {"conn_type": "spark_connect", "host": "localhost", "port": server.port, "password": TOKEN}
    results = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", results.as_uri())
        with running(home, Served, remote=remote) as made:
            yield made
    assert not [path for path in results.rglob("*") if path.is_file()], "slices go with their job"
    assert sessions_of(server) == 0


def test_maintenance(served: Airflow, tmp_path: Path) -> None:
    """Events, an apply, OPTIMIZE, VACUUM, the expiry of events, verification."""
    test_table_care.test_four_nights(served, tmp_path)


def test_a_function_of_the_users(served: Airflow, tmp_path: Path) -> None:
    """Reads to staging, the function, and the commit of the watermark."""
    file = test_sinks.example(served, "orders_to_sqlite", tmp_path)
    for rows in ([(1, "O", 10.0), (2, "O", 20.0)], [(3, "P", 30.0)]):
        test_sinks.orders(tmp_path / "orders", *rows)
        done = served.run(file)
        assert done.state == "success", done.log
        assert not [process for process in done.processes if "spark" in process[0]]
    assert test_sinks.sink(tmp_path) == [(1, "O", 10.0), (2, "O", 20.0), (3, "P", 30.0)]
    assert done.xcom("load") == {"up_to_version": 1, "rows": 1}


def test_late_events(served: Airflow, tmp_path: Path) -> None:
    embedded.test_a_log_with_late_events(served, tmp_path)


def test_full_copies(served: Airflow, tmp_path: Path) -> None:
    embedded.test_full_copies(served, tmp_path)


def test_a_group(served: Airflow, tmp_path: Path) -> None:
    """Six tables of every kind, most of them in one bundle of several at a time; one comes from files."""
    file = test_sinks.example(served, "configured_group", tmp_path)
    for _ in range(2):
        assert served.run(file, dag="configured_group_sources").state == "success"
        done = served.run(file, dag="configured_group")
        assert done.state == "success", done.log

    def found(name: str) -> list[tuple[Any, ...]]:
        return sorted((row["id"], row["customer"], row["state"]) for row in embedded.rows(tmp_path / name))

    assert found("shop_orders_now") == found("shop_archive") == found("shop_orders")
    history = embedded.rows(tmp_path / "shop_orders_history")
    now = [(row["id"], row["customer"], row["state"]) for row in history if row[embedded.END] is None]
    assert sorted(now) == found("shop_orders")
    assert len(history) > len(now)
    assert len(embedded.rows(tmp_path / "shop_customers")) > 0
    assert len(done.xcom("publish")) == 6
