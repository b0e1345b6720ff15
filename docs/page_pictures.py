"""Make the pictures of the page: ``python docs/page_pictures.py``; needs Chromium (``tools/chromium.sh``).

It fills an Airflow of its own with the nights of a company, and photographs the page.
"""

from __future__ import annotations

import base64
import sys
import tempfile
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support import browser, page_examples
from tests.support.page_server import PASSWORD, Page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

_WIDTH = 1280
_FOLDER = Path(__file__).parent
#: Seconds for plots and pictures of the UI, which have no event.
_SETTLE = 2


def answer(page: Page) -> None:
    """End the run that explains a row."""
    where = {"record": {}, "sequence": None, "work": "apply"}
    applied = datetime.now(UTC) - timedelta(hours=1)
    first = {
        **where,
        "version": 3,
        "time": "2026-11-02T02:40:00+00:00",
        "target_version": 2,
        "applied_at": "2026-11-02T03:00:12+00:00",
        "run_id": "crm/scheduled__2026-11-02T03:00:00",
    }
    newest = {
        **where,
        "version": 706,
        "time": (applied - timedelta(minutes=46)).isoformat(timespec="seconds"),
        "target_version": 353,
        "applied_at": applied.isoformat(timespec="seconds"),
        "run_id": f"crm/scheduled__{applied:%Y-%m-%dT%H}:00:00",
    }
    values = [
        {"column": "contact_id", "value": "20417", "since": first, "note": ""},
        {"column": "email", "value": '"keller@example.com"', "since": newest, "note": ""},
        {"column": "phone", "value": None, "since": None, "note": "older than version 3 of the source"},
    ]
    older = {**newest, "version": 705}
    value = {
        "pipeline": "contacts",
        **page_examples.table("contacts"),
        "key": {"contact_id": "20417"},
        "version": 353,
        "watermark": 706,
        "options": {},
        "gone": None,
        "upstream": None,
        "rows": [
            {"values": values, "start": None, "end": None, "deleted": False, "opened": None, "closed": None}
        ],
        "not_taken": [
            {"why": "an older sequence", "where": older, "values": {"email": '"kller@example.com"'}}
        ],
        "notes": ["Only versions 3 to 706 of the source were read."],
    }
    page.ask(
        answer_run={
            "dag_id": "crm__why", "task_id": "why", "state": "success", "key": "return_value", "value": value
        }
    )  # fmt: skip


def keep(chrome: Chrome, name: str, height: int, *, top: str = "") -> None:
    """Write one picture, in the page's width and a height.

    :param top: selector of what is scrolled to the top
    """
    size = {"width": _WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    if top:
        chrome.execute_script("document.querySelector(arguments[0]).scrollIntoView()", top)
    time.sleep(_SETTLE)
    shot: dict[str, Any] = chrome.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    (_FOLDER / f"page-{name}.png").write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def shown(made: dict[str, Any]) -> Iterator[tuple[Page, Chrome, browser.Window]]:
    """Serve an Airflow with some runs, and log in.

    :param made: what its database holds
    """
    with tempfile.TemporaryDirectory(prefix="page-pictures-") as folder:
        home = Path(folder)
        with Page(home) as page, browser.chromium(home / "chromium", width=_WIDTH) as chrome:
            page.ask(fill=made)
            page.serve()
            window = browser.Window(chrome, page.url)
            window.log_in("admin", PASSWORD)
            chrome.execute_script("localStorage.setItem('theme', 'light')")
            yield page, chrome, window


def main() -> int:
    """Make all pictures."""
    made = page_examples.company()
    with shown(made) as (page, chrome, window):
        window.open("/plugin/delta-cdc")
        window.see("[data-testid=delta-cdc-pipelines] svg rect")
        keep(chrome, "overview", 900)
        window.open("/plugin/delta-cdc?pipeline=order_lines")
        window.see("[data-testid=delta-cdc-backfill]").click()
        window.see("[name=versions_per_commit]").send_keys("5")
        window.see("[name=ending_version]").send_keys("99")
        window.see("[data-testid=delta-cdc-doubt]")
        keep(chrome, "backfill", 860)
        window.open("/plugin/delta-cdc?pipeline=contacts")
        window.see("[data-testid=delta-cdc-why]").click()
        window.see("[name=why_key]").send_keys("contact_id=20417")
        window.see("[data-testid=delta-cdc-why-send]").click()
        window.see("//a[starts-with(text(), 'Started: ')]")
        answer(page)
        window.see("[data-testid=delta-cdc-answer]")
        keep(chrome, "why", 700, top="[data-testid=delta-cdc-why]")
    # Beside a task, Airflow's grid has room for two runs: of more, the failed one would be out of sight.
    sales = [run for run in made["runs"] if run["dag_id"] == "sales"][-2:]
    index = next(task["map_index"] for task in sales[-1]["tasks"] if task["state"] == "failed")
    with shown({**made, "runs": sales}) as (_, chrome, window):
        window.open(f"/dags/sales/runs/{sales[-1]['run_id']}/tasks/apply/mapped/{index}")
        window.see("//a[normalize-space()='Delta CDC' and contains(@href, 'delta-cdc-task')]").click()
        window.see("[data-testid=delta-cdc-task]")
        keep(chrome, "task", 560)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
