"""The page in Airflow's own application: routes and rights, and what Chromium shows."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from demo.places import PROJECT
from demo.server import free_ports
from tests.support import browser, page_examples
from tests.support.page_server import PASSWORD, READER, Page
from tests.support.path_proxy import PathProxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.airflow.conftest import Airflow

#: Each route of the page, with parameters that find something.
_ROUTES = {
    "/page.js": "",
    "/logo.svg": "",
    "/api/pipelines": "",
    "/api/trends": "?name=customers@s3://lake/silver/customers&name=parcel_history@s3://lake/silver/parcel_history",
    "/api/pipeline": "?name=customers",
    "/api/task": "?dag_id=sales&run_id=scheduled__23&task_id=apply&map_index=3",
}
_ROLES = ("viewer", "user", "op", "admin")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with Page(tmp_path_factory.mktemp("page")) as made:
        made.ask(fill=page_examples.nights())
        yield made


# -- rights -----------------------------------------------------------------------------------------
def test_each_route_only_reads_and_is_in_the_table(page: Page) -> None:
    """A new route fails here until the tests below try it, too."""
    routes = page.ask(routes=True)["routes"]
    assert sorted(routes) == sorted([path, "GET"] for path in _ROUTES)


@pytest.mark.parametrize("path", _ROUTES)
def test_a_call_without_a_user_is_refused(page: Page, path: str) -> None:
    for how in ({"role": None}, {"role": None, "by": "garbage"}):
        answer = page.get(path + _ROUTES[path], **how)
        assert answer["status"] in (401, 403)
        assert "customers" not in answer["body"]
        assert not [text for text in answer["sql"] if "dag_run" in text or "xcom" in text]


@pytest.mark.parametrize("role", _ROLES)
@pytest.mark.parametrize("path", _ROUTES)
def test_each_role_may_read(page: Page, path: str, role: str) -> None:
    for by in ("cookie", "token"):
        answer = page.get(path + _ROUTES[path], role, by=by)
        assert answer["status"] == 200, answer
        # The JWT's revocation list is Airflow's own look; nothing here writes.
        assert all(text.startswith("SELECT") for text in answer["sql"]), answer["sql"]


@pytest.mark.parametrize("path", _ROUTES)
def test_a_user_without_rights_sees_no_pipeline(page: Page, path: str) -> None:
    answer = page.get(path + _ROUTES[path], "admin", dag_ids=[])
    assert answer["status"] == (404 if path in ("/api/pipeline", "/api/task") else 200)
    for name in ("customers", "parcel_history", "NullKey", "s3://lake"):
        assert name not in answer["body"]


@pytest.mark.parametrize("path", [path for path in _ROUTES if path.startswith("/api/")])
def test_a_user_sees_the_pipelines_of_dags_it_may_read(page: Page, path: str) -> None:
    answer = page.get(path + _ROUTES[path], "viewer", dag_ids=["parcels"])
    assert "customers" not in answer["body"]
    if path in ("/api/pipelines", "/api/trends"):
        assert "parcel_history" in answer["body"]


def test_an_event_of_a_dag_that_the_user_may_not_read_does_not_count(page: Page) -> None:
    """The backfill's DAG has the same tables, and no run; the events come from the other DAG."""
    shown = page.listed(dag_ids=["sales__backfill"])
    assert shown["orders_history"]["state"] == "never"
    assert "version" not in shown["orders_history"]
    one = json.loads(page.get("/api/pipeline?name=orders_history", dag_ids=["sales__backfill"])["body"])
    assert (one["commits"], one["runs"], [dag["dag_id"] for dag in one["dags"]]) == (
        [],
        [],
        ["sales__backfill"],
    )


#: Of each kind that Airflow has a right of its own for: what only those see who have it, by route.
_SHOWN: dict[str, dict[str, str]] = {
    "RUN": {
        "/api/pipelines": '"run_id":"scheduled__23"',
        "/api/pipeline": '"run_id":"scheduled__23"',
        "/api/task": '"pipeline":"customers"',
    },
    "TASK_INSTANCE": {
        "/api/pipelines": '"map_index":',
        "/api/pipeline": '"map_index":',
        "/api/task": '"state":"failed"',
    },
    "XCOM": {"/api/pipelines": "NullKey", "/api/pipeline": "NullKey", "/api/task": "NullKey"},
    "TASK_LOGS": {"/api/pipelines": '"has_log":true', "/api/pipeline": '"has_log":true'},
    "ASSET": {"/api/trends": "customers", "/api/pipeline": '"target_version":'},
}
_NAMES = {
    "RUN": "runs",
    "TASK_INSTANCE": "task instances",
    "XCOM": "XComs",
    "TASK_LOGS": "task logs",
    "ASSET": "asset events",
}


@pytest.mark.parametrize("role", ["viewer", "admin"])
@pytest.mark.parametrize("path", [path for path in _ROUTES if path.startswith("/api/")])
@pytest.mark.parametrize("kind", _SHOWN)
def test_what_has_a_right_of_its_own_is_left_out(page: Page, kind: str, path: str, role: str) -> None:
    """Route x kind x role; whoever lacks one right still sees the rest, and why something is missing."""
    refused = page.get(path + _ROUTES[path], role, refused=[[kind, None]])
    seen = page.get(path + _ROUTES[path], role)["body"]
    marker = _SHOWN[kind].get(path)
    if marker is not None:
        assert marker in seen
        # The figures of the target are in XComs, too.
        of_event = kind == "ASSET" and path == "/api/pipeline"
        shown = json.dumps(json.loads(refused["body"])["commits"]) if of_event else refused["body"]
        assert marker not in shown
    if (kind, path) == ("RUN", "/api/task"):
        assert refused["status"] == 404
        return
    assert refused["status"] == 200
    if path != "/api/trends":
        assert _NAMES[kind] in json.loads(refused["body"])["hidden"]
        assert json.loads(seen)["hidden"] == []
    others = (known for name, known in _SHOWN.items() if name not in (kind, "TASK_INSTANCE", "TASK_LOGS"))
    if kind in ("TASK_LOGS", "ASSET"):
        for known in others:
            assert known.get(path, "") in refused["body"] or kind == "ASSET"


@pytest.mark.parametrize("kind", [kind for kind in _SHOWN if kind != "ASSET"])
def test_a_right_is_that_of_one_dag(page: Page, kind: str) -> None:
    shown = page.listed(refused=[[kind, "sales"], [kind, "sales__backfill"]])
    assert (shown["customers"]["state"], shown["parcel_history"]["state"]) == (
        "failed" if kind == "TASK_LOGS" else "hidden",
        "expiring",
    )


def test_who_may_read_dags_alone_sees_their_pipelines_alone(page: Page) -> None:
    everything = [[kind, None] for kind in _SHOWN]
    shown = page.listed(refused=everything)
    assert {one["state"] for one in shown.values()} == {"hidden"}
    assert {name for one in shown.values() for name in one} == {
        *("id", "pipeline", "group", "dag_id", "is_paused", "source", "target", "state"),
    }
    answer = page.get("/api/pipeline?name=customers", refused=everything)
    found = json.loads(answer["body"])
    assert (found["commits"], found["runs"], found["hidden"]) == ([], [], list(_NAMES.values()))
    assert not [text for text in answer["sql"] if "FROM xcom" in text and "IN (NULL)" not in text]


def test_a_right_to_read_is_none_to_start(page: Page) -> None:
    for role, refused, may_run in (
        ("viewer", [], False),
        ("user", [], True),
        ("user", [["RUN", None]], False),
    ):
        found = json.loads(page.get("/api/pipeline?name=order_lines", role, refused=refused)["body"])
        assert {dag["may_run"] for dag in found["dags"]} == {may_run}


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect"])
def test_no_route_describes_the_others(page: Page, path: str) -> None:
    assert page.get(path, "admin")["status"] == 404


def test_the_plugin_is_valid_for_airflow(page: Page) -> None:
    """Airflow drops a whole plugin with one invalid entry, with only a warning."""
    answer = page.ask(get={"path": "/api/v2/plugins", "role": "admin"})
    (ours,) = [one for one in json.loads(answer["body"])["plugins"] if one["name"] == "delta_cdc"]
    assert [one["destination"] for one in ours["react_apps"]] == ["nav", "dag", "task_instance"]


# -- what the routes answer -------------------------------------------------------------------------
def test_the_list(page: Page) -> None:
    shown = page.listed()
    assert {name: one["state"] for name, one in shown.items()} == {
        page_examples.SCRIPT: "failed",
        "customers": "failed",
        "parcel_history": "expiring",
        "order_lines": "behind",
        "old_orders": "never",
        "orders_history": "ok",
        "payments": "ok",
        "refunds": "ok",
    }
    assert shown["customers"]["error"]["class"] == "NullKey"
    assert (shown["customers"]["version"], shown["customers"]["source_version"]) == (64, 71)
    assert shown["payments"]["quarantined"] == 3
    assert set(page.listed("/api/pipelines?dag_id=parcels")) == {"parcel_history"}


def test_one_pipeline(page: Page) -> None:
    def shown(role: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(page.get("/api/pipeline?name=order_lines", role)["body"])
        return found

    found = shown("viewer")
    assert [dag["may_run"] for dag in found["dags"]] == [False, False]
    assert [dag["may_run"] for dag in shown("user")["dags"]] == [True, True]
    assert all("order_lines" in dag["pipelines"] and len(dag["pipelines"]) == 5 for dag in found["dags"])
    assert (len(found["commits"]), len(found["runs"])) == (24, 24)
    assert (found["commits"][0]["starting_version"], found["commits"][0]["ending_version"]) == (65, 66)
    assert found["runs"][0]["figures"]["lag_versions"] == 9


def test_texts_of_people_stay_text(page: Page) -> None:
    answer = page.get("/api/pipelines")
    assert answer["headers"]["content-type"] == "application/json"
    assert answer["headers"]["x-content-type-options"] == "nosniff"
    assert page.listed()[page_examples.SCRIPT]["error"]["remedy"] == f"add {page_examples.SCRIPT}."


@pytest.mark.slow
def test_a_thousand_pipelines_take_no_more_queries(page: Page) -> None:
    page.get("/api/pipelines")  # reads the pipelines of all DAGs, once
    few = page.get("/api/pipelines")
    page.ask(fill=page_examples.thousand(groups=20, tables=50, alone=0, runs=range(1)))
    page.get("/api/pipelines")  # reads the pipelines of the new DAGs
    many = page.get("/api/pipelines")
    assert len(json.loads(many["body"])["pipelines"]) == 1008
    assert len(many["sql"]) <= len(few["sql"]) <= 10
    # Four kinds of things, and the list of the DAGs one by one, as Airflow's own list of DAGs asks.
    n_dags = len({one["dag_id"] for one in json.loads(many["body"])["pipelines"]})
    assert many["calls"]["batch"] == few["calls"]["batch"] == 4
    assert many["calls"]["one"] <= 2 * n_dags
    partly = page.get("/api/pipelines", refused=[["XCOM", "sales"]])
    assert partly["calls"]["one"] - many["calls"]["one"] <= 2 * n_dags
    # Airflow shortens the arguments of so many tables, so the group stands for their targets.
    names = "&".join(f"name=g3_t{number}@group_3" for number in range(50))
    trends = page.get(f"/api/trends?{names}")
    assert len(trends["sql"]) <= 5
    assert len(json.loads(trends["body"])) == 49
    assert page.get(f"/api/trends?{names}&{names}&{names}")["status"] == 422


def test_a_process_reads_ahead_as_soon_as_its_entry_is_shown(tmp_path: Path) -> None:
    """The first list then only reads what a later one reads, and what its user may see."""
    with Page(tmp_path) as fresh:
        fresh.ask(fill=page_examples.nights())
        fresh.prepare()
        first = fresh.get("/api/pipelines", refused=[["XCOM", "sales"]])
        later = fresh.get("/api/pipelines", refused=[["XCOM", "sales"]])
    assert "customers" in first["body"]
    assert first["sql"] == later["sql"]
    assert not [text for text in first["sql"] if "serialized_dag.data" in text]
    shown = [json.loads(one["body"])["pipelines"] for one in (first, later)]
    assert shown[0] == shown[1]


def test_a_changed_dag_is_read_again(page: Page) -> None:
    tables = {name: page_examples.table(name) for name in ("first", "second")}
    for names in (["first"], ["first", "second"]):
        page.ask(
            fill={
                "dags": [{"group": "grown", "pipelines": {name: tables[name] for name in names}}],
                "runs": [],
            }
        )
        assert set(page.listed("/api/pipelines?dag_id=grown")) == set(names)


def test_a_name_of_several_pipelines_shows_them_all(page: Page) -> None:
    twins = [
        {"dag_id": place, "pipelines": {"twin": {"source": "/raw", "target": f"/{place}/twin"}}}
        for place in ("here", "there")
    ]
    page.ask(fill={"dags": twins, "runs": []})
    both = json.loads(page.get("/api/pipeline?name=twin")["body"])["pipelines"]
    assert sorted(one["id"] for one in both) == ["twin@/here/twin", "twin@/there/twin"]
    one = json.loads(page.get("/api/pipeline?name=twin@/there/twin")["body"])
    assert [dag["dag_id"] for dag in one["dags"]] == ["there"]


# -- errors of failed tasks -------------------------------------------------------------------------
_FAILING = """
from airflow.sdk import DAG
from airflow_delta_cdc.form import run_arguments, run_params
from airflow_delta_cdc.operators import DeltaApplyChangesOperator

with DAG("failing", schedule=None, params=run_params()) as dag:
    DeltaApplyChangesOperator(
        task_id="apply", pipeline="p", source="/no/where", target="/no/target", keys=["id"], **run_arguments()
    )
"""


def test_a_failed_task_publishes_its_error(airflow: Airflow) -> None:
    file = airflow.dag("failing", _FAILING)
    missing = airflow.run(file, forbid_processes=True)
    assert missing.xcom("apply", "delta_cdc_error")["class"] == "TableNotFound"
    # The form is refused before the task executes.
    refused = airflow.run(file, conf={"mode": "repair"}, forbid_processes=True)
    assert refused.xcom("apply", "delta_cdc_error")["class"] == "InvalidConfiguration"


# -- in the browser ---------------------------------------------------------------------------------
class Window(browser.Window):
    """The browser with the page."""

    def theme(self, name: str) -> None:
        self.chrome.execute_script("localStorage.setItem('theme', arguments[0])", name)

    def keep(self, name: str) -> None:
        """Keep a picture of the page among the artefacts."""
        folder = PROJECT / ".cache" / "screenshots"
        folder.mkdir(parents=True, exist_ok=True)
        assert self.chrome.save_screenshot(str(folder / f"{name}.png"))


@pytest.fixture(scope="module")
def window(page: Page, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    browser.require("the page Delta CDC")
    page.serve()
    with browser.chromium(tmp_path_factory.mktemp("chromium"), width=1500, height=1100) as chrome:
        opened = Window(chrome, page.url)
        opened.log_in("admin", PASSWORD)
        yield opened


def test_from_the_list_to_the_error_in_one_click(window: Window) -> None:
    window.open("/plugin/delta-cdc")
    window.see("//*[@data-testid='delta-cdc-pipelines']//a[text()='customers']").click()
    finding = window.see("[data-testid=delta-cdc-findings]").text
    assert "NullKey: 3 row(s) of s3://lake/bronze/customers" in finding
    assert "What to do: leave such rows out" in finding
    link = window.see("//*[@data-testid='delta-cdc-findings']//a[text()='Log of the task']")
    assert str(link.get_attribute("href")).endswith("/dags/sales/runs/scheduled__23/tasks/apply/mapped/3")


def test_the_entry_in_the_navigation_has_its_picture(window: Window) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    window.open("/plugin/delta-cdc")
    picture = window.see("img[src*='delta-cdc/logo.svg']")
    wide = "return arguments[0].complete ? arguments[0].naturalWidth : 0"
    WebDriverWait(window.chrome, 60).until(lambda chrome: chrome.execute_script(wide, picture) > 0)


@pytest.mark.slow
def test_the_list_and_a_pipeline_in_each_theme(window: Window) -> None:
    colors = set()
    for theme in ("light", "dark"):
        window.theme(theme)
        window.open("/plugin/delta-cdc?group=sales")
        window.see("[data-testid=delta-cdc-pipelines] svg rect")
        finding = window.see("//*[@data-testid='delta-cdc-pipelines']//strong/..")
        assert finding.text.startswith("What to do: leave such rows out")
        script = (
            "return ['color', 'backgroundColor'].map((name) => getComputedStyle(arguments[0])[name]).join()"
        )
        colors.add(window.chrome.execute_script(script, finding))
        window.keep(f"page_overview_{theme}")
        window.see("[aria-label=Search]").send_keys("order_l")
        window.see("//tbody[count(tr)=1]//a[text()='order_lines']")
        window.open("/plugin/delta-cdc?pipeline=order_lines")
        window.see("[data-testid=delta-cdc-commits]")
        window.keep(f"page_pipeline_{theme}")
    assert len(colors) == 2, "the page has the colors of the theme"


def test_texts_of_people_run_no_script(window: Window) -> None:
    window.open("/plugin/delta-cdc?q=strange")
    window.see("//td//a")
    shown = window.see("[data-testid=delta-cdc-pipelines]").text
    assert page_examples.SCRIPT in shown
    assert f"What to do: add {page_examples.SCRIPT}." in shown
    window.see("//td//a").click()
    assert page_examples.SCRIPT in window.see("[data-testid=delta-cdc-findings]").text
    assert window.chrome.title != "owned"
    assert not window.chrome.execute_script("return document.querySelectorAll('img[src=x]').length")


@pytest.mark.slow
def test_the_tabs(window: Window) -> None:
    window.open("/dags/sales")
    window.see("//a[normalize-space()='Delta CDC' and contains(@href, 'delta-cdc-dag')]").click()
    assert "NullKey" in window.see("[data-testid=delta-cdc-pipelines]").text
    window.open("/dags/sales/runs/scheduled__23/tasks/apply/mapped/3")
    window.see("//a[normalize-space()='Delta CDC' and contains(@href, 'delta-cdc-task')]").click()
    shown = window.see("[data-testid=delta-cdc-task]").text
    assert "What to do: leave such rows out" in shown
    assert "Watermark 64 of 71" in shown
    window.keep("page_task")


def test_a_backfill_is_previewed_doubted_refused_and_started(window: Window, page: Page) -> None:
    window.open("/plugin/delta-cdc?pipeline=order_lines")
    window.see("[data-testid=delta-cdc-backfill]").click()
    window.see("[name=versions_per_commit]").send_keys("5")
    assert (
        window.see("[data-testid=delta-cdc-preview]").text == "9 versions, 248 KiB, 2 commits: versions 67–75"
    )
    window.see("[name=ending_version]").send_keys("99")
    assert "the newest one was 75 at " in window.see("[data-testid=delta-cdc-doubt]").text
    window.keep("page_backfill")
    send = "[data-testid=delta-cdc-send]"
    is_off = f"return document.querySelector('{send}').disabled"
    assert not window.chrome.execute_script(is_off), "the source may have grown since"
    window.see("[name=ending_version]").clear()
    window.see("[name=ending_version]").send_keys("66")
    assert "applied already" in window.see("[data-testid=delta-cdc-refused]").text
    assert window.chrome.execute_script(is_off)
    window.see("[name=ending_version]").clear()
    window.see("[name=ending_version]").send_keys("70")
    window.see(send).click()
    window.see("//a[starts-with(text(), 'Started: ')]")
    answer = page.ask(get={"path": "/api/v2/dags/sales__backfill/dagRuns", "role": "viewer"})
    (started,) = json.loads(answer["body"])["dag_runs"]
    form = {name: value for name, value in started["conf"].items() if value}
    assert form == {
        "mode": "backfill",
        "tables": ["order_lines"],
        "ending_version": 70,
        "versions_per_commit": 5,
    }


def test_a_reload_asks_for_one_table(window: Window) -> None:
    window.open("/plugin/delta-cdc?pipeline=order_lines")
    window.see("[data-testid=delta-cdc-reload]").click()
    window.see("[name=ending_version]").send_keys("70")
    window.see("[name=dry_run]").click()
    assert window.see("//*[starts-with(text(), 'POST ')]").text == (
        "POST api/v2/dags/sales/dagRuns "
        '{"conf":{"mode":"reload","ending_version":70,"dry_run":true,"tables":["order_lines"]}}'
    )
    window.keep("page_reload")


def test_a_run_of_a_dag_without_a_choice_of_tables_names_all_its_pipelines(
    window: Window, page: Page
) -> None:
    tables = {name: page_examples.table(name) for name in ("left", "right")}
    page.ask(fill={"dags": [{"dag_id": "by_hand", "pipelines": tables}], "runs": []})
    window.open("/plugin/delta-cdc?pipeline=left")
    window.see("[data-testid=delta-cdc-repair]").click()
    assert window.see("[data-testid=delta-cdc-doubt]").text.endswith(
        "all its pipelines take part: left, right."
    )


@pytest.mark.slow
def test_a_reader_of_dags_sees_what_is_left_out(page: Page, window: Window, tmp_path: Path) -> None:
    with browser.chromium(tmp_path / "chromium", width=1500, height=1100) as chrome:
        reader = Window(chrome, page.url)
        reader.log_in(READER, PASSWORD)
        reader.open("/plugin/delta-cdc?pipeline=customers")
        line = reader.see("[data-testid=delta-cdc-hidden]").text
        assert line == (
            "Not shown, because you do not have permission to read them: runs, task instances, XComs, "
            "task logs, asset events."
        )
        assert not chrome.execute_script("return document.querySelector('[data-testid=delta-cdc-backfill]')")
        reader.keep("page_reader")
        reader.open("/plugin/delta-cdc")
        reader.see("[data-testid=delta-cdc-hidden]")
        assert "Not shown" in reader.see("[data-testid=delta-cdc-pipelines]").text
        reader.keep("page_reader_list")


# -- below a path, behind a proxy -------------------------------------------------------------------
@pytest.fixture
def proxied(page: Page, tmp_path: Path) -> Iterator[PathProxy]:
    """``airflow api-server`` below ``/airflow``, on the same database, and the proxy before it."""
    browser.require("the page Delta CDC behind a proxy")
    server, own = free_ports(2)
    environment = {
        **page.environment,
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{own}/airflow",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(64),
    }
    command = ["api-server", "--host", "127.0.0.1", "--port", str(server), "--proxy-headers"]
    with (tmp_path / "api-server.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "airflow", *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        with PathProxy("/airflow", own, server) as proxy:
            yield proxy
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return int(answer.status) == 200
    except OSError:
        return False


@pytest.mark.slow
def test_below_a_path_behind_a_proxy(page: Page, proxied: PathProxy, tmp_path: Path) -> None:
    """Each link, request and picture of the page stays below the path."""
    from selenium.webdriver.support.wait import WebDriverWait

    end = time.monotonic() + 300
    while not _answers(f"{proxied.url}/api/v2/monitor/health"):
        assert time.monotonic() < end, (tmp_path / "api-server.log").read_text()[-5000:]
        time.sleep(0.5)
    with browser.chromium(tmp_path / "chromium", width=1500, height=1100) as chrome:
        window = Window(chrome, proxied.url)
        window.log_in("admin", PASSWORD)
        # Before that, Airflow refuses its own UI.
        proxied.answers.clear()
        picture = window.see("img[src*='delta-cdc/logo.svg']")
        wide = "return arguments[0].complete ? arguments[0].naturalWidth : 0"
        WebDriverWait(chrome, 60).until(lambda chrome: chrome.execute_script(wide, picture) > 0)
        picture.click()
        window.see("[data-testid=delta-cdc-pipelines] svg rect")
        window.see("//*[@data-testid='delta-cdc-pipelines']//a[text()='customers']").click()
        window.see("[data-testid=delta-cdc-findings]")
        assert chrome.current_url.startswith(f"{proxied.url}/plugin/delta-cdc?pipeline=customers")
        link = window.see("//*[@data-testid='delta-cdc-findings']//a[text()='Log of the task']")
        task = f"{proxied.url}/dags/sales/runs/scheduled__23/tasks/apply/mapped/3"
        assert link.get_attribute("href") == task
        link.click()
        window.see("//a[normalize-space()='Delta CDC' and contains(@href, 'delta-cdc-task')]").click()
        assert "What to do: leave such rows out" in window.see("[data-testid=delta-cdc-task]").text
        window.see("//*[@data-testid='delta-cdc-task']//a[text()='customers']").click()
        window.see("//a[text()='sales']").click()
        window.see("//a[normalize-space()='Delta CDC' and contains(@href, 'delta-cdc-dag')]").click()
        window.see("//*[@data-testid='delta-cdc-pipelines']//a[text()='payments']").click()
        window.see("//a[text()='\u2190 All pipelines']").click()
        # The form, and the run that it starts.
        window.see("[aria-label=Search]").send_keys("parcel_h")
        window.see("//tbody[count(tr)=1]//a[text()='parcel_history']").click()
        window.see("[data-testid=delta-cdc-incremental]").click()
        window.see("[data-testid=delta-cdc-send]").click()
        started = window.see("//a[starts-with(text(), 'Started: ')]")
        run_id = started.text.removeprefix("Started: ")
        started.click()
        # Not by its name, which is in the document's invisible title, too.
        of_run = f"{proxied.url}/dags/parcels/runs/manual__"
        WebDriverWait(chrome, 300).until(lambda chrome: chrome.current_url.startswith(of_run))
        window.see("//body//*[contains(text(), 'Queued')]")
        window.keep("page_behind_proxy")
        # A page that is loaded where it is, and not reached by a link.
        window.open("/plugin/delta-cdc?pipeline=customers")
        window.see("[data-testid=delta-cdc-findings]")
    answer = page.ask(get={"path": f"/api/v2/dags/parcels/dagRuns/{run_id}", "role": "viewer"})
    assert answer["status"] == 200, answer
    paths = {path for _, path, _ in proxied.answers}
    assert any(path.startswith("/airflow/delta-cdc/api/trends") for path in paths)
    refused = [one for one in proxied.answers if one[2] >= 400 and "favicon" not in one[1]]
    assert not refused, refused


# -- why is this row so -----------------------------------------------------------------------------
def _since(version: int, target_version: int) -> dict[str, Any]:
    return {
        "version": version,
        "time": "2026-03-01T02:40:00+00:00",
        "record": {},
        "sequence": None,
        "target_version": target_version,
        "applied_at": "2026-03-01T03:00:12+00:00",
        "run_id": "shop/scheduled__2026-03-01T03:00:00+00:00",
        "work": "apply",
    }


_ROW = [
    {"column": "id", "value": "17", "since": _since(3, 2), "note": ""},
    {"column": "status", "value": '"shipped"', "since": _since(41, 20), "note": ""},
    {"column": "city", "value": None, "since": None, "note": "older than version 3 of the source"},
]
_ANSWER = {
    "pipeline": "baskets",
    "target": "s3://lake/silver/baskets",
    "key": {"id": "17"},
    "version": 20,
    "source": "s3://lake/bronze/baskets",
    "watermark": 41,
    "options": {},
    "gone": None,
    "upstream": None,
    "rows": [{"values": _ROW, "start": None, "end": None, "deleted": False, "opened": None, "closed": None}],
    "not_taken": [{"why": "an older sequence", "where": _since(40, 19), "values": {"status": '"packed"'}}],
    "notes": ["Only versions 3 to 41 of the source were read."],
}


def test_a_row_is_explained_on_the_page(window: Window, page: Page) -> None:
    tables = {name: page_examples.table(name) for name in ("baskets", "wishes")}
    page.ask(
        fill={"dags": [{"group": "shop", "pipelines": tables, "why": True, "paused": False}], "runs": []}
    )
    window.open("/plugin/delta-cdc?pipeline=baskets")
    window.see("[data-testid=delta-cdc-why]").click()
    send = "[data-testid=delta-cdc-why-send]"
    is_off = f"return document.querySelector('{send}').disabled"
    key = window.see("[name=why_key]")
    assert window.chrome.execute_script(is_off), "a question needs a key"
    key.send_keys("id=17")
    window.see(send).click()
    window.see("//a[starts-with(text(), 'Started: ')]")
    answer = page.ask(get={"path": "/api/v2/dags/shop__why/dagRuns", "role": "viewer"})
    (run,) = json.loads(answer["body"])["dag_runs"]
    form = {name: value for name, value in run["conf"].items() if value}
    assert form == {"pipeline": "baskets", "key": "id=17"}
    ended = {"dag_id": "shop__why", "task_id": "why", "state": "success"}
    page.ask(answer_run={**ended, "key": "return_value", "value": _ANSWER})
    shown = window.see("[data-testid=delta-cdc-answer]").text
    assert "baskets: id = 17" in shown
    assert "shipped" in shown
    assert "version 41 of the source, 1 Mar 2026" in shown
    assert "older than version 3 of the source" in shown
    assert "an older sequence" in shown
    assert "Only versions 3 to 41" in shown
    window.see("//a[contains(@href, '/dags/shop/runs/scheduled__2026-03-01')]")
    window.keep("page_why")


def test_the_dag_that_explains_a_pipeline(page: Page) -> None:
    tables = {"lamps": page_examples.table("lamps")}
    page.ask(fill={"dags": [{"group": "light", "pipelines": tables, "why": True}], "runs": []})

    def why(role: str, **how: Any) -> Any:
        return json.loads(page.get("/api/pipeline?name=lamps", role, **how)["body"])["why"]

    assert why("user") == {
        "dag_id": "light__why",
        "task_id": "why",
        "fields": ["key", "columns", "at"],
        "is_paused": False,
        "may_run": True,
    }
    assert why("viewer")["may_run"] is False
    assert why("user", dag_ids=["light"]) is None, "a DAG that the user may not read"
    assert json.loads(page.get("/api/pipeline?name=order_lines", "user")["body"])["why"] is None
