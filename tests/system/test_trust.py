"""Limits, rules, erasing, and the question why, in a whole Airflow and a browser.

All tests share one server. They keep pictures of the pages among the artefacts.
"""

from __future__ import annotations

import re
import shutil
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from selenium.webdriver.common.keys import Keys

from demo.airflow_home import applications
from demo.places import PROJECT, Places
from demo.server import USER, Server, free_ports
from tests.support import browser

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.slow

_DAGS = """
from airflow_delta_cdc.dags import build_dags

lake = {tables!r}
shop = {{"group": "shop", "keys": ["id"]}}
build_dags(
    {{
        "groups": {{"shop": {{"schedule": None, "why": True}}, "plain": {{"schedule": None}}}},
        "pipelines": {{
            "copies": {{
                **shop, "source": f"{{lake}}/copies", "target": f"{{lake}}/copies_now",
                "source_kind": "snapshot",
            }},
            "orders": {{
                **shop, "source": f"{{lake}}/orders", "target": f"{{lake}}/orders_now",
                "limits": {{"max_deleted": "50 %"}},
                "rules": {{
                    "has_customer": {{"check": "customer IS NOT NULL", "on_break": "quarantine"}},
                    "known_country": {{"check": "country IN ('DE', 'FR')", "on_break": "flag"}},
                }},
            }},
            "customer_history": {{
                **shop, "keys": ["c_custkey"], "source": f"{{lake}}/customer",
                "target": f"{{lake}}/customer_history", "stored_as_scd_type": 2,
            }},
            "unexplained": {{
                "group": "plain", "keys": ["id"],
                "source": f"{{lake}}/orders", "target": f"{{lake}}/unexplained",
            }},
        }},
    }},
    default_args={{"retries": 0}},
)
"""
_FEED = {"delta.enableChangeDataFeed": "true"}
#: A key that no other number of the files resembles, and a text that only its rows have.
_ERASED, _SECRET = 5_872_346_109_231, "Erika Mustermann-Zweifel"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """Tables to read from, and the DAGs."""
    made = Places(tmp_path_factory.mktemp("trust"))
    made.tables.mkdir(parents=True)
    copy(made, 2000)
    orders = {"id": [1, 2, 3, 4], "customer": ["a", None, "c", "d"], "country": ["DE", "DE", "XX", "FR"]}
    write_deltalake(str(made.table("orders")), pa.table(orders), configuration=_FEED)
    customers = {"c_custkey": [1, _ERASED], "c_name": ["Ann", _SECRET]}
    write_deltalake(str(made.table("customer")), pa.table(customers), configuration=_FEED)
    dags = made.root / "dags"
    dags.mkdir()
    for name in ("example_settings", "erase_customer"):
        shutil.copy(PROJECT / "dags" / f"{name}.py", dags)
    (dags / "shop.py").write_text(_DAGS.format(tables=str(made.tables)))
    return made


@pytest.fixture(scope="module")
def server(places: Places) -> Iterator[Server]:
    """The Airflow of all tests."""
    (port,) = free_ports(1)
    with Server(places, port=port, AIRFLOW__CORE__DAGS_FOLDER=str(places.root / "dags")) as running:
        running.start()
        running.wait_until_ready("shop", "shop__why", "plain", "erase_customer")
        yield running


@pytest.fixture(scope="module", autouse=True)
def loaded(server: Server) -> str:
    """Load the targets of the group, and return the id of the run."""
    run_id = server.trigger("shop")
    assert server.finish("shop", run_id) == "success"
    return run_id


class Pages(browser.Window):
    """The browser with Airflow's pages."""

    def keep(self, name: str) -> None:
        """Keep a picture of the page among the artefacts."""
        folder = PROJECT / ".cache" / "screenshots"
        folder.mkdir(parents=True, exist_ok=True)
        assert self.chrome.save_screenshot(str(folder / f"{name}.png"))

    def start(self, dag_id: str) -> None:
        """Open the form of a DAG."""
        self.open(f"/dags/{dag_id}")
        self.see("[data-testid=trigger-dag-button]").click()

    def send(self) -> None:
        self.see("[data-testid=trigger-dag-submit]").click()


@pytest.fixture(scope="module")
def pages(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """Airflow's pages in a headless browser, logged in."""
    browser.require("limits, rules, erasing and why")
    with browser.chromium(tmp_path_factory.mktemp("chromium"), width=1500, height=1200) as window:
        opened = Pages(window, server.url)
        opened.log_in(USER, server.password)
        yield opened


def copy(places: Places, number: int) -> None:
    """Replace the full copy by one with so many rows."""
    rows = pa.table({"id": pa.array(range(number), pa.int64()), "name": [f"n{at}" for at in range(number)]})
    write_deltalake(str(places.table("copies")), rows, mode="overwrite")


def count(table: Path) -> int:
    found = QueryBuilder().register("t", DeltaTable(str(table))).execute("SELECT count(*) AS n FROM t")
    return int(pa.table(found.read_all())["n"][0].as_py())


def newest(server: Server, dag_id: str, before: Sequence[str]) -> str:
    """Return the id of the run that the page has started."""
    for _ in server.patience(60, f"{dag_id} got no run"):
        (run,) = server.call("GET", f"/api/v2/dags/{dag_id}/dagRuns?order_by=-run_after&limit=1")["dag_runs"]
        if run["dag_run_id"] not in before:
            return str(run["dag_run_id"])
    raise AssertionError("unreachable")


def runs(server: Server, dag_id: str) -> list[str]:
    return [one["dag_run_id"] for one in server.call("GET", f"/api/v2/dags/{dag_id}/dagRuns")["dag_runs"]]


def applied(server: Server, run_id: str) -> dict[str, dict[str, Any]]:
    """Return the state and the log of each mapped task, by the name of its pipeline."""
    path = f"/api/v2/dags/shop/dagRuns/{run_id}/taskInstances/apply"
    found = {}
    for one in server.call("GET", f"{path}/listMapped")["task_instances"]:
        log = server.call("GET", f"{path}/logs/1?full_content=true&map_index={one['map_index']}")["content"]
        found[one["rendered_map_index"]] = {
            "state": one["state"],
            "map_index": one["map_index"],
            "log": "\n".join(
                f"{entry.get('level', '')}: {entry['event']}" for entry in log if isinstance(entry, dict)
            ),
        }
    return found


# -- rules ------------------------------------------------------------------------------------------
def test_broken_rules_are_in_the_log_and_on_the_page(
    server: Server, places: Places, pages: Pages, loaded: str
) -> None:
    task = applied(server, loaded)["orders"]
    warned = [text for text in task["log"].splitlines() if text.startswith("warning: orders: ")]
    aside = f"are in {places.table('orders_now')}__quarantine, not in the target"
    assert warned == [
        f"warning: orders: 1 row(s) break the rule has_customer (customer IS NOT NULL) and {aside}.",
        "warning: orders: 1 row(s) break the rule known_country (country IN ('DE', 'FR')) and are applied.",
    ]
    assert count(places.table("orders_now")) == 3
    assert count(places.table("orders_now__quarantine")) == 1
    counts = server.result("shop", loaded, "apply", task["map_index"])["counts"]
    assert {name: number for name, number in counts.items() if name.startswith("rule:")} == {
        "rule:has_customer": 1,
        "rule:known_country": 1,
    }
    pages.open("/plugin/delta-cdc?pipeline=orders")
    shown = pages.see("//*[contains(., 'has_customer: 1') and contains(., 'known_country: 1')]")
    assert shown.is_displayed()
    pages.keep("trust_rules_page")
    pages.open(f"/dags/shop/runs/{loaded}/tasks/apply/mapped/{task['map_index']}")
    pages.see("//*[contains(text(), 'break the rule known_country')]")
    pages.keep("trust_rules_log")


# -- why --------------------------------------------------------------------------------------------
def test_a_row_is_explained(pages: Pages, loaded: str) -> None:
    """The button, the run of the real operator, and its answer."""
    pages.open("/plugin/delta-cdc?pipeline=orders")
    pages.see("[data-testid=delta-cdc-why]").click()
    pages.see("[name=why_key]").send_keys("id=4")
    pages.see("[data-testid=delta-cdc-why-send]").click()
    pages.see("//a[starts-with(text(), 'Started: ')]")
    pages.keep("trust_why_waits")
    shown = pages.see("[data-testid=delta-cdc-answer]").text
    assert "orders: id = 4" in shown
    assert "FR" in shown
    assert "version 0 of the source" in shown
    pages.see(f"//*[@data-testid='delta-cdc-answer']//a[contains(text(), '{loaded}')]")
    pages.keep("trust_why_answer")


def test_a_question_that_fails_says_why(pages: Pages) -> None:
    pages.open("/plugin/delta-cdc?pipeline=orders")
    pages.see("[data-testid=delta-cdc-why]").click()
    pages.see("[name=why_key]").send_keys("ident=4")
    pages.see("[data-testid=delta-cdc-why-send]").click()
    text = pages.see("//*[contains(text(), 'InvalidConfiguration: ')]").text
    pages.keep("trust_why_failed")
    assert "is id, and the question names ident" in text
    assert pages.see("//*[contains(text(), 'What to do: ')]").is_displayed()


def test_a_pipeline_without_an_explaining_dag_has_a_hint(pages: Pages) -> None:
    pages.open("/plugin/delta-cdc?pipeline=unexplained")
    hint = pages.see("[data-testid=delta-cdc-why-hint]").text
    pages.keep("trust_why_hint")
    assert "why: true" in hint


# -- limits -----------------------------------------------------------------------------------------
def approve(server: Server, pages: Pages, table: str, text: str) -> str:
    """Fill in the form, and return the id of the run."""
    known = runs(server, "shop")
    pages.start("shop")
    tables = pages.see("//input[@name='element_tables']/preceding::input[@type='text'][1]")
    tables.send_keys(table)
    tables.send_keys(Keys.ENTER)
    pages.see("//*[normalize-space(text())='After LimitExceeded: approve a change']").click()
    pages.see("[name=element_approve]").send_keys(text)
    pages.keep("trust_guard_form")
    pages.send()
    return newest(server, "shop", known)


def stopped(server: Server, run_id: str, table: str) -> tuple[str, str]:
    """Return the error of a table that a limit has stopped, and the text that approves the change."""
    assert server.finish("shop", run_id) == "failed"
    task = applied(server, run_id)[table]
    assert task["state"] == "failed"
    error = task["log"].partition("LimitExceeded: ")[2]
    found = re.search(r"approve = (\d+-[0-9a-f]{12})", error)
    assert found is not None, task["log"]
    return error, found[1]


def test_a_short_copy_is_approved_in_the_form(server: Server, places: Places, pages: Pages) -> None:
    target = places.table("copies_now")
    before, loaded = applications(places), DeltaTable(str(target)).version()
    copy(places, 0)
    empty = server.trigger("shop")
    assert server.finish("shop", empty) == "failed"
    assert "EmptyCopy: The copy in version 1 of" in applied(server, empty)["copies"]["log"]

    copy(places, 900)
    _, text = stopped(server, server.trigger("shop"), "copies")
    assert applications(places) == before, "the source's log is enough"
    assert (DeltaTable(str(target)).version(), count(target)) == (loaded, 2000)
    pages.open("/plugin/delta-cdc?pipeline=copies")
    finding = pages.see("[data-testid=delta-cdc-findings]").text
    pages.keep("trust_guard_page")
    assert f"approve = {text}" in finding

    other, _ = stopped(server, approve(server, pages, "copies", "2-000000000000"), "copies")
    assert "approve is 2-000000000000, which is for another change" in other
    assert (DeltaTable(str(target)).version(), count(target)) == (loaded, 2000)

    # A newer copy is no part of the change that the person saw.
    copy(places, 800)
    run_id = approve(server, pages, "copies", text)
    assert server.finish("shop", run_id) == "success"
    assert (DeltaTable(str(target)).version(), count(target)) == (loaded + 1, 900)


def test_a_change_that_is_planned_otherwise_meanwhile_is_not_approved(
    server: Server, places: Places, pages: Pages
) -> None:
    target = places.table("orders_now")
    DeltaTable(str(places.table("orders"))).delete("id > 1")
    error, text = stopped(server, server.trigger("shop", {"tables": ["orders"]}), "orders")
    assert "it would delete or close 2 of 3 rows (66.7 %), and max_deleted is 50 %" in error
    loaded = DeltaTable(str(target)).version()
    file = places.root / "dags" / "shop.py"
    file.write_text(file.read_text().replace("country IN ('DE', 'FR')", "country = 'DE'"))
    error, changed = stopped(server, approve(server, pages, "orders", text), "orders")
    assert f"approve is {text}, which is for another change" in error
    assert (DeltaTable(str(target)).version(), count(target)) == (loaded, 3)
    run_id = approve(server, pages, "orders", changed)
    assert server.finish("shop", run_id) == "success"
    assert (DeltaTable(str(target)).version(), count(target)) == (loaded + 1, 1)


# -- erase ------------------------------------------------------------------------------------------
def test_a_customer_is_erased_from_the_form(server: Server, places: Places, pages: Pages) -> None:
    target = places.table("customer_history")

    def holding() -> set[str]:
        """Return the current files with bytes of the key or of its name, and the log's newest texts."""
        marks = (struct.pack("<q", _ERASED), str(_ERASED).encode(), _SECRET.encode())
        paths = [target / name for name in DeltaTable(str(target)).file_uris()]
        return {path.name for path in paths for mark in marks if mark in path.read_bytes()}

    def erased(*, for_real: bool) -> tuple[str, list[dict[str, Any]], str]:
        known = runs(server, "erase_customer")
        pages.start("erase_customer")
        pages.see("[name=element_key]").send_keys(str(_ERASED))
        if for_real:
            pages.see("//input[@name='element_dry_run']/ancestor::label").click()
        pages.keep("trust_erase_form")
        pages.send()
        run_id = newest(server, "erase_customer", known)
        assert server.finish("erase_customer", run_id) == "success", server.log(
            "erase_customer", run_id, "erase"
        )
        return (
            run_id,
            server.result("erase_customer", run_id, "erase"),
            server.log("erase_customer", run_id, "erase"),
        )

    assert holding(), "the test would see the key"
    run_id, report, log = erased(for_real=False)
    assert "Dry run: nothing was written." in log
    assert [(row["what"], row["deleted"]) for row in report][:1] == [("target", 1)]
    assert holding()
    assert not places.table("customer_history__erased").exists()

    run_id, report, log = erased(for_real=True)
    assert [(row["what"], row["deleted"]) for row in report][:1] == [("target", 1)]
    assert report[0]["old_versions_until"]
    assert "Outside the reach of this task" in log
    assert "Dry run" not in log
    assert "old_versions_until" in log
    assert holding() == set()
    assert count(target) == 1
    pages.open(f"/dags/erase_customer/runs/{run_id}/tasks/erase")
    pages.see("//*[contains(text(), 'Outside the reach')]")
    pages.keep("trust_erase_log")
    pages.open(f"/dags/erase_customer/runs/{run_id}/tasks/erase/rendered_templates")
    pages.see("//*[contains(text(), 'c_custkey')]")
    pages.keep("trust_erase_rendered")

    # The key is in the form of the run, which its owner deletes, and nowhere else in what the task left.
    path = f"/api/v2/dags/erase_customer/dagRuns/{run_id}/taskInstances/erase"
    fields = server.call("GET", path)["rendered_fields"]
    assert str(_ERASED) not in str(fields)
    assert str(_ERASED) not in str(report)
    assert str(_ERASED) not in log
    assert _SECRET not in log
