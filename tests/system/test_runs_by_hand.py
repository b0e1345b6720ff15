"""Runs that people or changes start, in a whole Airflow: by REST, by pages, by dates, by a watcher.

All tests share one server, which is the costly part; each says itself what it needs to find.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from demo.airflow_home import applications
from demo.places import PROJECT, Places
from demo.server import USER, Server, free_ports
from tests.support import browser
from tests.support.world import ranges

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

_DETECT = "detect_changes"
#: One operator with the form; the example.
_ONE = "backfill_by_versions"
_EXAMPLES = ("example_settings", _ONE)
_PIPELINE = "orders_backfilled"
#: Versions of the source: a first one with three rows, and changes of one of them.
_NEWEST = 6
#: The day of version 0; each version is a day younger, at noon.
_FIRST_DAY = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=9)

_GROUP = """
from airflow_delta_cdc.dags import build_dags

keyed = {{"source": {source!r}, "keys": ["o_orderkey"], "group": "shop"}}
dags = build_dags(
    {{
        "groups": {{"shop": {{"schedule": None}}}},
        "pipelines": {{
            "orders_now": {{**keyed, "target": {now!r}}},
            "orders_history": {{**keyed, "target": {history!r}, "stored_as_scd_type": 2}},
        }},
    }},
)
"""

# Its last run lies in the past: nothing is scheduled beside the backfill.
_BY_DATE = """
from datetime import datetime, timezone
from airflow.sdk import DAG, CronDataIntervalTimetable
from airflow_delta_cdc.form import run_arguments, run_params
from airflow_delta_cdc.operators import DeltaApplyChangesOperator

with DAG(
    "by_date",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime.fromisoformat({start!r}),
    end_date=datetime.fromisoformat({end!r}),
    catchup=False,
    max_active_runs=1,
    params=run_params(),
):
    DeltaApplyChangesOperator(
        task_id="apply", pipeline="by_date", source={source!r}, target={target!r}, keys=["o_orderkey"],
        **run_arguments(),
    )
"""

_WOKEN = """
from airflow.sdk import DAG, Asset, AssetWatcher, task
from airflow_delta_cdc.triggers import DeltaVersionTrigger

trigger = DeltaVersionTrigger(table={table!r}, asset_name="woken", poll_interval=0.3)
asset = Asset("woken", watchers=[AssetWatcher(name="woken", trigger=trigger)])

with DAG("woken", schedule=[asset], max_active_runs=1, catchup=False):

    @task
    def note(triggering_asset_events=None):
        return [event.extra["payload"] for events in triggering_asset_events.values() for event in events]

    note()
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """A source with its past, and the DAGs."""
    made = Places(tmp_path_factory.mktemp("by_hand"))
    source = made.table("orders")
    source.parent.mkdir(parents=True)
    rows = {"o_orderkey": [1, 2, 3], "o_totalprice": [10, 20, 30]}
    table = pa.table({name: pa.array(values, pa.int64()) for name, values in rows.items()})
    month = {"delta.deletedFileRetentionDuration": "interval 30 days", "delta.enableChangeDataFeed": "true"}
    write_deltalake(str(source), table, configuration=month)
    for version in range(1, _NEWEST + 1):
        DeltaTable(str(source)).update({"o_totalprice": str(version * 100)}, predicate="o_orderkey = 1")
    for version in range(_NEWEST + 1):
        then = (_FIRST_DAY + timedelta(days=version)).timestamp()
        os.utime(source / "_delta_log" / f"{version:020}.json", (then, then))
    dags = made.root / "dags"
    dags.mkdir()
    for name in _EXAMPLES:
        shutil.copy(PROJECT / "dags" / f"{name}.py", dags)
    (dags / "woken.py").write_text(_WOKEN.format(table=str(made.table("woken"))))
    paths = {name: str(made.table(f"shop_{name}")) for name in ("now", "history")}
    (dags / "shop.py").write_text(_GROUP.format(source=str(source), **paths))
    (dags / "by_date.py").write_text(
        _BY_DATE.format(
            source=str(source),
            target=str(made.table("by_date")),
            start=(_FIRST_DAY - timedelta(days=3)).isoformat(),
            end=(_FIRST_DAY + timedelta(days=5)).isoformat(),
        )
    )
    return made


@pytest.fixture(scope="module")
def server(places: Places) -> Iterator[Server]:
    # Never the usual port: another Airflow may be about to take it.
    (port,) = free_ports(1)
    with Server(places, port=port, AIRFLOW__CORE__DAGS_FOLDER=str(places.root / "dags")) as running:
        running.start()
        running.wait_until_ready(_ONE, "shop", "shop__backfill", "by_date", "woken")
        session_id = running.session
        assert len(_alive_in(session_id)) > 4, "all parts of Airflow are in one session"
        yield running
    assert _alive_in(session_id) == [], "the server left processes behind"


@pytest.fixture(scope="module")
def pages(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """Airflow's pages in a headless browser, logged in."""
    browser.require("the trigger form")
    with browser.chromium(tmp_path_factory.mktemp("chromium")) as window:
        opened = Pages(window, server.url)
        opened.log_in(USER, server.password)
        yield opened


# -- by REST, without Spark -----------------------------------------------------------------------
@pytest.mark.parametrize(
    "conf",
    [{"ending_version": -1}, {"ending_version": "4"}, {"mode": "everything"}, {"versions_per_commit": 0}],
    ids=str,
)
def test_values_of_another_type_start_no_run(server: Server, conf: dict[str, Any]) -> None:
    with pytest.raises(OSError, match="HTTP Error 4"):
        server.trigger(_ONE, conf)


def test_a_form_that_contradicts_itself_ends_the_first_task(server: Server, places: Places) -> None:
    before = applications(places)
    wrong = [
        (_ONE, "apply", {"mode": "repair"}, "mode is 'repair', and nothing selects the keys"),
        ("shop", _DETECT, {"mode": "backfill", "ending_version": 3}, "choose exactly one table"),
        ("shop", _DETECT, {"dry_run": True, "tables": ["orders_no"]}, "did you mean 'orders_now'"),
        (_ONE, "apply", {"mode": "backfill", "ending_versoin": 3}, "did you mean 'ending_version'"),
    ]
    runs = [(dag_id, task, server.trigger(dag_id, conf), said) for dag_id, task, conf, said in wrong]
    for dag_id, task, run_id, said in runs:
        assert server.finish(dag_id, run_id) == "failed"
        assert said in server.log(dag_id, run_id, task)
    assert applications(places) == before


# -- by a watcher ---------------------------------------------------------------------------------
def test_a_watcher_wakes_a_dag(server: Server, places: Places) -> None:
    table = places.table("woken")
    for version in (0, 1):
        write_deltalake(str(table), pa.table({"id": [version]}), mode="append")
        (event,) = noted(server, version)
        assert (event["table"], event["version"]) == (str(table), version)
        assert event["table_id"] == str(DeltaTable(str(table)).metadata().id)
        assert event["previous_version"] == (version - 1 if version else None)
    assert event["reason"] == "new_versions"


def noted(server: Server, before: int) -> Any:
    """Return what the run that a watcher has started was given; so many have ended before it."""
    for _ in server.patience(300, "the watcher woke no DAG"):
        runs = server.call("GET", "/api/v2/dags/woken/dagRuns?order_by=run_after")["dag_runs"]
        if len(runs) > before and runs[before]["state"] == "success":
            assert len(runs) == before + 1
            return server.result("woken", runs[before]["dag_run_id"], "note")
    raise AssertionError("unreachable")


# -- in the browser -------------------------------------------------------------------------------
class Pages(browser.Window):
    """The browser with the forms."""

    def fill(self, field: str, text: str) -> None:
        self.see(f"[name=element_{field}]").send_keys(text)

    def keep(self, name: str) -> None:
        """Keep a picture of the page among the artefacts."""
        folder = PROJECT / ".cache" / "screenshots"
        folder.mkdir(parents=True, exist_ok=True)
        assert self.chrome.save_screenshot(str(folder / f"{name}.png"))


def test_a_backfill_from_the_form(server: Server, places: Places, pages: Pages) -> None:
    """Versions 1-4 in milestones of two, into a target that isn't there yet."""
    before = applications(places)
    target = places.table("orders_backfilled")
    pages.open(f"/dags/{_ONE}")
    pages.see("[data-testid=trigger-dag-button]").click()
    pages.fill("starting_version", "1")
    pages.fill("ending_version", "4")
    pages.fill("versions_per_commit", "2")
    pages.keep("trigger_form")
    pages.see("[data-testid=trigger-dag-submit]").click()
    run_id = newest_run(server, _ONE)
    assert server.finish(_ONE, run_id) == "success"
    run = server.call("GET", f"/api/v2/dags/{_ONE}/dagRuns/{run_id}")
    asked = {name: value for name, value in run["conf"].items() if value}
    assert asked == {
        "mode": "backfill",
        "starting_version": 1,
        "ending_version": 4,
        "versions_per_commit": 2,
    }
    pages.open(f"/dags/{_ONE}/runs/{run_id}")
    pages.see("//*[normalize-space()='Success' or normalize-space()='success']")
    pages.keep("backfill_succeeded")
    pages.open(f"/dags/{_ONE}/runs/{run_id}/tasks/apply/xcom")
    pages.see("//*[normalize-space()='return_value']")
    pages.see("[data-testid=expand-all-button]").click()
    pages.see("//*[contains(., 'ending_version')]")
    pages.keep("backfill_xcom")

    # One application, a commit for each milestone behind the load.
    assert applications(places) == before + 1
    assert ranges(str(target), _PIPELINE) == [(0, 0), (1, 2), (3, 4)]
    log = server.log(_ONE, run_id, "apply")
    assert "Commit 2 of 2: versions 3-4 of" in log
    assert current(target) == [(1, 400), (2, 20), (3, 30)]
    published = server.result(_ONE, run_id, "apply")
    assert (published["starting_version"], published["ending_version"]) == (1, 4)


def test_a_refused_form_is_the_first_line_that_the_log_shows(server: Server, pages: Pages) -> None:
    """The check runs in a hook, whose lines Airflow folds away."""
    run_id = server.trigger(_ONE, {"mode": "repair"})
    assert server.finish(_ONE, run_id) == "failed"
    pages.open(f"/dags/{_ONE}/runs/{run_id}/tasks/apply")
    line = pages.see("//*[contains(text(), 'mode is repair, and no field selects keys')]")
    pages.keep("refused_form")
    assert "\nRemedy: fill in a first version" in line.text
    assert "Traceback" not in pages.see("main, body").text
    log = server.log(_ONE, run_id, "apply").splitlines()
    (first,) = (at for at, text in enumerate(log) if text.startswith("InvalidConfiguration: "))
    assert log[first - 1] == "::endgroup::"


def newest_run(server: Server, dag_id: str) -> str:
    """Return the id of the run that the page has started."""
    for _ in server.patience(60, f"{dag_id} got no run"):
        runs = server.call("GET", f"/api/v2/dags/{dag_id}/dagRuns?order_by=-run_after&limit=1")["dag_runs"]
        if runs and runs[0]["conf"].get("starting_version") == 1:
            return str(runs[0]["dag_run_id"])
    raise AssertionError("unreachable")


def test_a_range_named_again_and_a_dry_run(server: Server, places: Places) -> None:
    target = places.table("orders_backfilled")
    filled(server, target)
    before, commits = applications(places), ranges(str(target), _PIPELINE)
    again = {"mode": "backfill", "starting_version": 1, "ending_version": 4}
    run_id, done = run(server, _ONE, again)
    assert not done["applied"]
    assert "already applied and are left out (the watermark is 4)" in server.log(_ONE, run_id, "apply")
    assert applications(places) == before

    run_id, done = run(server, _ONE, {"mode": "dry_run", "ending_version": 5})
    (row,) = done["dry_run"]["table"]
    assert (row["kind"], row["what"].split(",")[0], row["inserted"]) == ("apply", "versions 5-5", 1)
    log = server.log(_ONE, run_id, "apply")
    assert "commit  kind" in log
    assert "MERGE INTO" in log
    assert (applications(places), ranges(str(target), _PIPELINE)) == (before + 1, commits)


# -- each mode, by REST ---------------------------------------------------------------------------
def test_each_mode_of_one_operator(server: Server, places: Places, spark: SparkSession) -> None:
    target = places.table("orders_backfilled")
    filled(server, target)
    noon = _FIRST_DAY + timedelta(days=5)
    _, done = run(server, _ONE, {"mode": "backfill", "ending_timestamp": noon.isoformat()})
    assert (done["applied"], done["version"]) == (True, 5)
    _, done = run(server, _ONE, {"mode": "incremental"})
    assert (done["applied"], done["version"]) == (True, _NEWEST)
    # As it stands, the form of this DAG has mode backfill, and there is nothing left.
    _, done = run(server, _ONE, {})
    assert (done["applied"], done["version"]) == (False, _NEWEST)
    assert current(target) == [(1, 600), (2, 20), (3, 30)]
    right = everything(target)

    for conf in (
        {"mode": "repair", "starting_version": 5},
        {"mode": "repair", "repair_keys": "o_orderkey = 1"},
    ):
        spark.sql(f"UPDATE delta.`{target}` SET o_totalprice = 0 WHERE o_totalprice = 600")
        _, done = run(server, _ONE, conf)
        assert (done["applied"], done["version"]) == (True, _NEWEST)
        assert everything(target) == right
    spark.sql(f"UPDATE delta.`{target}` SET o_totalprice = 0 WHERE o_orderkey = 3")
    _, done = run(server, _ONE, {"mode": "reload"})
    assert done["applied"]
    assert current(target) == [(1, 600), (2, 20), (3, 30)]


def test_each_mode_of_a_group(server: Server, places: Places, spark: SparkSession) -> None:
    now, history = places.table("shop_now"), places.table("shop_history")
    group = Group(server, places, "shop")
    shown = group.run({"mode": "dry_run"})
    assert {name: done["dry_run"]["table"][0]["kind"] for name, done in shown.items()} == {
        "orders_now": "load",
        "orders_history": "load",
    }
    assert not now.exists()
    assert not history.exists()

    backfill = Group(server, places, "shop__backfill")
    one = {"tables": ["orders_history"], "starting_version": 1, "ending_version": 4, "versions_per_commit": 2}
    assert set(backfill.run(one)) == {"orders_history"}
    assert ranges(str(history), "orders_history") == [(0, 0), (1, 2), (3, 4)]
    assert not now.exists()

    done = group.run({})
    assert {name: result["version"] for name, result in done.items()} == {
        "orders_now": _NEWEST,
        "orders_history": _NEWEST,
    }
    assert current(now) == current(history) == [(1, 600), (2, 20), (3, 30)]
    spark.sql(f"UPDATE delta.`{now}` SET o_totalprice = 0 WHERE o_orderkey = 1")
    group.run({"mode": "repair", "tables": ["orders_now"], "starting_version": 6})
    assert current(now) == [(1, 600), (2, 20), (3, 30)]
    spark.sql(f"UPDATE delta.`{now}` SET o_totalprice = 0 WHERE o_orderkey = 2")
    group.run({"mode": "reload", "tables": ["orders_now"]})
    assert current(now) == [(1, 600), (2, 20), (3, 30)]


# -- by dates -------------------------------------------------------------------------------------
def test_a_backfill_by_dates(server: Server, places: Places, spark: SparkSession) -> None:
    """Two days before there is a table, then a load, then the changes; and a day once more, as a repair."""
    target = places.table("by_date")
    days = [day(number) for number in (-2, -1, 0, 1, 2)]
    by_dates(server, days[0], days[-1], "none")
    # Neither the days before the table nor one without a change leaves a commit.
    assert ranges(str(target), "by_date") == [(0, 0), (1, 1), (2, 2)]
    assert current(target) == [(1, 200), (2, 20), (3, 30)]

    spark.sql(f"UPDATE delta.`{target}` SET o_totalprice = 0")
    by_dates(server, days[-2], days[-2], "completed")
    # Version 1 changed key 1, which gets its value at the watermark; nothing was asked for the others.
    assert current(target) == [(1, 200), (2, 0), (3, 0)]
    assert ranges(str(target), "by_date")[-1] == (1, 1)
    run = server.call("GET", "/api/v2/dags/by_date/dagRuns?order_by=-start_date&limit=1")["dag_runs"][0]
    assert (run["run_type"], run["state"]) == ("backfill", "success")
    assert server.result("by_date", run["dag_run_id"], "apply")["version"] == 2


def day(number: int) -> datetime:
    """Return when the interval begins that has a version."""
    return (_FIRST_DAY + timedelta(days=number)).replace(hour=0)


def by_dates(server: Server, first: datetime, last: datetime, reprocess: str) -> None:
    asked = {
        "dag_id": "by_date",
        "from_date": first.isoformat(),
        "to_date": last.isoformat(),
        "max_active_runs": 1,
        "reprocess_behavior": reprocess,
    }
    made = server.call("POST", "/api/v2/backfills", asked)["id"]
    for _ in server.patience(900, "the backfill did not end"):
        if server.call("GET", f"/api/v2/backfills/{made}")["completed_at"]:
            return


# -- shared ---------------------------------------------------------------------------------------
class Group:
    """Runs of a configured group's DAG."""

    def __init__(self, server: Server, places: Places, dag_id: str) -> None:
        self.server, self.places, self.dag_id = server, places, dag_id

    def run(self, conf: dict[str, Any]) -> dict[str, Any]:
        """Trigger it; return what each table published. One application does the work."""
        before = applications(self.places)
        run_id = self.server.trigger(self.dag_id, conf)
        assert self.server.finish(self.dag_id, run_id) == "success"
        assert applications(self.places) == before + 1
        path = f"/api/v2/dags/{self.dag_id}/dagRuns/{run_id}/taskInstances/apply"
        listed = self.server.call("GET", f"{path}/listMapped")["task_instances"]
        return {
            found["rendered_map_index"]: self.server.result(self.dag_id, run_id, "apply", found["map_index"])
            for found in listed
        }


def filled(server: Server, target: Path) -> None:
    """Make sure that the example's target holds versions 0-4."""
    if not target.exists():
        run(server, _ONE, {"mode": "backfill", "starting_version": 1, "ending_version": 4})
    assert ranges(str(target), _PIPELINE)[-1][1] == 4


def run(server: Server, dag_id: str, conf: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Trigger a run and see it succeed; return its id and what ``apply`` published."""
    run_id = server.trigger(dag_id, conf)
    assert server.finish(dag_id, run_id) == "success", server.log(dag_id, run_id, "apply")
    return run_id, server.result(dag_id, run_id, "apply")


def everything(table: Path) -> list[tuple[Any, ...]]:
    found = QueryBuilder().register("t", DeltaTable(str(table))).execute("SELECT * FROM t").read_all()
    return sorted(tuple(row.values()) for row in pa.table(found).to_pylist())


def current(table: Path) -> list[tuple[int, int]]:
    """Return the current rows, of either type."""
    found = QueryBuilder().register("t", DeltaTable(str(table))).execute("SELECT * FROM t").read_all()
    rows = [row for row in pa.table(found).to_pylist() if row.get("__END_AT") is None]
    return sorted((row["o_orderkey"], row["o_totalprice"]) for row in rows)


def _alive_in(session: int) -> list[str]:
    """Return the processes of a session, known by what ``ps`` says and not by what the server knows."""
    listed = subprocess.run(["ps", "-eo", "sid=,stat=,args="], capture_output=True, text=True, check=True)
    lines = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    return [line[2] for line in lines if int(line[0]) == session and not line[1].startswith("Z")]
