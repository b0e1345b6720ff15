"""In a whole Airflow: DAGs that run once for each changed partition, and a reset that a person approves."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from airflow_delta_cdc.approval import APPROVE
from demo.places import PROJECT, Places
from demo.server import USER, Server, free_ports
from tests.support import browser

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

_APPLY, _TOTALS = "orders_by_status", "orders_by_status_totals"

# A DAG that waits for the whole table, and the recipe of docs/howto/partitions.md for a watched source.
_OTHERS = """
from airflow.sdk import DAG, PartitionedAssetTimetable, task
from airflow_delta_cdc.assets import delta_asset, partitions_asset
from airflow_delta_cdc.operators import DeltaApplyChangesOperator
from airflow_delta_cdc.triggers import watched_asset

with DAG("whole", schedule=[delta_asset({target!r})], max_active_runs=1):

    @task
    def note(triggering_asset_events=None):
        # Under this key only: the events of an alias are there a second time, under the alias.
        return [event.extra["partitions"] for event in triggering_asset_events[delta_asset({target!r})]]

    note()

# The form offers no reset.
with DAG("careful", schedule=None, params={{"mode": "incremental"}}, max_active_runs=1):
    DeltaApplyChangesOperator(
        task_id="apply",
        pipeline="careful",
        source={orders!r},
        target={careful!r},
        keys=["o_orderkey"],
        policies={{"approval_for": ["reset", "reload", "drift"], "on_limit": "wait"}},
        mode="{{{{ params.mode }}}}",
    )

PARTITIONS = partitions_asset({watched!r})

WATCHED = watched_asset({watched!r}, poll_interval=0.3, list_partitions=True)

with DAG("watched", schedule=[WATCHED]):

    @task(outlets=[PARTITIONS])
    def announce(triggering_asset_events=None, outlet_events=None):
        for events in triggering_asset_events.values():
            for event in events:
                outlet_events[PARTITIONS].add_partitions(event.extra["payload"]["partitions"])

    announce()

with DAG("rebuild", schedule=PartitionedAssetTimetable(assets=PARTITIONS), max_active_runs=1):

    @task
    def rebuild(partition_key=None):
        return partition_key

    rebuild()
"""


def orders(*rows: tuple[int, str | None, int]) -> pa.Table:
    names = ("o_orderkey", "o_orderstatus", "o_totalprice")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    return pa.table(
        {
            "o_orderkey": pa.array(columns["o_orderkey"], pa.int64()),
            "o_orderstatus": pa.array(columns["o_orderstatus"], pa.string()),
            "o_totalprice": pa.array(columns["o_totalprice"], pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    made = Places(tmp_path_factory.mktemp("partitions"))
    rows = orders((1, "O", 10), (2, "O", 20), (3, "F", 30), (4, "it's 50 %/é", 40), (5, None, 50))
    write_deltalake(str(made.table("orders")), rows, configuration={"delta.enableChangeDataFeed": "true"})
    dags = made.root / "dags"
    dags.mkdir()
    for name in ("example_settings", "orders_by_status"):
        shutil.copy(PROJECT / "dags" / f"{name}.py", dags)
    names = {"target": _APPLY, "watched": "watched", "orders": "orders", "careful": "careful"}
    tables = {name: str(made.table(table)) for name, table in names.items()}
    (dags / "others.py").write_text(_OTHERS.format(**tables))
    return made


@pytest.fixture(scope="module")
def server(places: Places) -> Iterator[Server]:
    (port,) = free_ports(1)
    with Server(places, port=port, AIRFLOW__CORE__DAGS_FOLDER=str(places.root / "dags")) as running:
        running.start()
        running.wait_until_ready(_APPLY, _TOTALS, "whole", "watched", "rebuild", "careful")
        yield running


@pytest.fixture(scope="module")
def pages(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """Airflow's pages in a headless browser, logged in."""
    browser.require("runs of partitions, and an approval")
    with browser.chromium(tmp_path_factory.mktemp("chromium")) as window:
        opened = Pages(window, server.url)
        opened.log_in(USER, server.password)
        yield opened


class Pages(browser.Window):
    """The browser with Airflow's pages."""

    def show(self, server: Server, dag_id: str, key: str) -> None:
        """Open the page of a DAG's run for a partition, and wait until it shows the key."""
        runs = server.call("GET", f"/api/v2/dags/{dag_id}/dagRuns?limit=100")["dag_runs"]
        run = next(run for run in runs if run["partition_key"] == key)
        self.open(f"/dags/{dag_id}/runs/{quote(run['dag_run_id'], safe='')}")
        self.see(f"//*[contains(text(), '{key}')]")

    def keep(self, name: str) -> None:
        """Keep a picture of the page among the artefacts."""
        folder = PROJECT / ".cache" / "screenshots"
        folder.mkdir(parents=True, exist_ok=True)
        assert self.chrome.save_screenshot(str(folder / f"{name}.png"))


def keys(server: Server, dag_id: str, after: int = 0) -> list[str | None]:
    """Return the partitions of a DAG's runs that have succeeded, in the order of the names."""
    runs = server.call("GET", f"/api/v2/dags/{dag_id}/dagRuns?order_by=id&limit=100")["dag_runs"]
    assert "failed" not in {run["state"] for run in runs}
    return sorted(run["partition_key"] for run in runs[after:] if run["state"] == "success")


def until(server: Server, dag_id: str, expected: list[str], after: int = 0) -> None:
    """Wait until a DAG ran for just these partitions."""
    for _ in server.patience(300, f"{dag_id} did not run for {expected}"):
        if keys(server, dag_id, after) == sorted(expected):
            return


def totals(places: Places) -> dict[str | None, tuple[int, int]]:
    table = DeltaTable(str(places.table(_TOTALS)))
    answer = QueryBuilder().register("t", table).execute("SELECT o_orderstatus, orders, price FROM t")
    rows = pa.table(answer.read_all()).to_pylist()
    return {row["o_orderstatus"]: (row["orders"], int(row["price"])) for row in rows}


def applied(server: Server) -> dict[str, Any]:
    run_id = server.trigger(_APPLY)
    assert server.finish(_APPLY, run_id) == "success", server.log(_APPLY, run_id, "apply")
    return dict(server.result(_APPLY, run_id, "apply"))


def audited(places: Places, event: str) -> int:
    """Return how often Airflow's audit log has an entry."""
    with closing(sqlite3.connect(places.airflow_home / "airflow.db")) as database:
        (number,) = database.execute("SELECT COUNT(*) FROM log WHERE event = ?", [event]).fetchone()
        return int(number)


def test_only_the_changed_partitions_are_computed_again(server: Server, places: Places, pages: Pages) -> None:
    null = "o_orderstatus=__HIVE_DEFAULT_PARTITION__"
    special = "o_orderstatus=it%27s%2050%20%25%2F%C3%A9"
    loaded = applied(server)
    first = ["o_orderstatus=F", "o_orderstatus=O", null, special]
    assert sorted(loaded["partitions"]) == sorted(first)
    until(server, _TOTALS, first)
    assert totals(places) == {"O": (2, 30), "F": (1, 30), "it's 50 %/é": (1, 40), None: (1, 50)}

    # The status of an order changes: both partitions, and no other one.
    DeltaTable(str(places.table("orders"))).update({"o_orderstatus": "'F'"}, predicate="o_orderkey = 2")
    assert applied(server)["partitions"] == ["o_orderstatus=F", "o_orderstatus=O"]
    until(server, _TOTALS, ["o_orderstatus=F", "o_orderstatus=O"], after=4)
    assert totals(places) == {"O": (1, 10), "F": (2, 50), "it's 50 %/é": (1, 40), None: (1, 50)}

    # The last row of a partition goes.
    DeltaTable(str(places.table("orders"))).delete("o_orderkey IN (4, 5)")
    assert sorted(applied(server)["partitions"]) == sorted([null, special])
    until(server, _TOTALS, [null, special], after=6)
    assert totals(places) == {"O": (1, 10), "F": (2, 50)}

    # Nothing to apply: no event, and no run.
    nothing = applied(server)
    assert (nothing["applied"], "partitions" in nothing) == (False, False)
    assert len(keys(server, _TOTALS)) == 8
    assert audited(places, "missing partition key") == 0, "an event of the whole table went to this DAG"

    # Who waits for the table gets one event for each run, as before.
    for _ in server.patience(120, "the DAG of the whole table did not run"):
        runs = server.call("GET", "/api/v2/dags/whole/dagRuns?order_by=id")["dag_runs"]
        noted = [
            server.result("whole", run["dag_run_id"], "note") for run in runs if run["state"] == "success"
        ]
        if len([event for events in noted for event in events]) >= 3:
            break
    assert {run["partition_key"] for run in runs} == {None}
    assert sorted(len(event) for events in noted for event in events) == [2, 2, 4]

    pages.show(server, _TOTALS, "o_orderstatus=F")
    pages.keep("partitioned_run")


def test_a_person_approves_a_reset_in_the_browser(server: Server, places: Places, pages: Pages) -> None:
    table = str(places.table("careful"))
    first = server.trigger("careful")
    assert server.finish("careful", first) == "success", server.log("careful", first, "apply")
    loaded = DeltaTable(table).version()
    reset = server.trigger("careful", {"mode": "reset"})
    instance = f"/api/v2/dags/careful/dagRuns/{reset}/taskInstances/apply"
    for _ in server.patience(300, "the reset does not wait"):
        if server.call("GET", instance)["state"] == "awaiting_input":
            break
    assert DeltaTable(table).version() == loaded
    pages.open(f"/dags/careful/runs/{reset}/tasks/apply/required_actions")
    pages.see("//*[contains(text(), 'approval_for has reset')]")
    pages.keep("approval_of_a_reset")
    # An answer before the scheduler has seen the end of the first part makes Airflow fail the task.
    for _ in server.patience(120, "the scheduler does not see that the reset waits"):
        lines = places.log.read_text().splitlines()
        if any("Received executor event" in line and reset in line for line in lines):
            break
    pages.see(f"[data-testid='hitl-option-{APPROVE}']").click()
    assert server.finish("careful", reset) == "success", server.log("careful", reset, "apply", 1)
    assert DeltaTable(table).version() > loaded


def test_the_partitions_of_a_watched_source(server: Server, places: Places, pages: Pages) -> None:
    table = str(places.table("watched"))

    def write(*days: str | None) -> None:
        rows = pa.table({"day": pa.array(days, pa.string()), "n": range(len(days))})
        write_deltalake(table, rows, mode="append", partition_by=["day"])

    write("1", "2")
    # The first event is of the whole table.
    until(server, "rebuild", ["all"])
    write("2", None)
    until(server, "rebuild", ["day=2", "day=__HIVE_DEFAULT_PARTITION__"], after=1)
    # Files that were only rewritten change no partition.
    write("2")
    DeltaTable(table).optimize.compact()
    write("3")
    until(server, "rebuild", ["day=2", "day=3"], after=3)
    pages.show(server, "rebuild", "day=__HIVE_DEFAULT_PARTITION__")
    pages.keep("partition_of_a_watched_source")
