"""How long the page's list takes in an Airflow with many pipelines.

It fills a metadata database: 1,000 pipelines in 314 DAGs, of which two DAGs (51 pipelines) have 1,000 runs
each, and all others 24. Each round starts a new process with Airflow's own API application. ``module`` is the
process's first request at all, for the page's script, which a browser needs before it can request the list.
``cold`` is the first request for the list, right after that; ``opened`` is the first one in another process,
which before that showed the entry's picture, as each of Airflow's pages does, and had time to read ahead;
``warm`` is the median of the next ones. A request goes through all of Airflow's middleware and rights,
without a network.

    python benchmarks/page.py
    python benchmarks/page.py --against ../an-older-checkout    # both, in turn
    python benchmarks/page.py --browser                         # and in Chromium
    python benchmarks/page.py --database postgresql             # needs its server, psycopg2 and asyncpg
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from demo.places import PROJECT
from demo.postgres import Postgres
from tests.support import browser, page_examples
from tests.support.page_server import PASSWORD, Page

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Milliseconds.
AIM = 200
_WARM = 10
#: Hours since the first run; the DAGs that have run all the time, and since when the others have.
_HOURS, _OTHERS_SINCE, _AT_ONCE = 1000, 976, 25


def server(code: Path, home: Path, database: str) -> Page:
    """Return a new process that serves the page of a checkout."""
    return Page(home, database=database, path=[str(code), str(code / "spark_jobs"), str(PROJECT)])


def timed(page: Page, path: str = "/api/pipelines") -> dict[str, Any]:
    """Return the answer to one request, with its milliseconds of time and of CPU.

    :raises RuntimeError: it was refused
    """
    answer = page.get(path)
    if answer["status"] != 200:
        raise RuntimeError(f"{path}: {answer['status']} {answer['body'][:500]}")
    return {**answer, "ms": answer["seconds"] * 1000, "cpu": answer["cpu"] * 1000}


def pipelines(answer: dict[str, Any]) -> Any:
    """Return the pipelines of a list, with all that it shows of them."""
    return json.loads(answer["body"])["pipelines"]


def filled(process: Page, *, small: bool) -> None:
    """Write the DAGs and their runs, the oldest first."""
    few = {"groups": 1, "tables": 50, "alone": 1}
    many = {"groups": 2, "tables": 25, "alone": 5} if small else {"groups": 14, "tables": 50, "alone": 300}
    hours, others_since = (30, 10) if small else (_HOURS, _OTHERS_SINCE)
    process.ask(fill={"dags": page_examples.thousand(**many, runs=range(0))["dags"], "runs": []})
    for begin in range(0, hours, _AT_ONCE):
        numbers = range(begin, min(begin + _AT_ONCE, hours))
        for number in numbers:
            some = few if number < others_since else many
            made = page_examples.thousand(**some, runs=range(number, number + 1))["runs"]
            for run in made:
                run["ago"] += (hours - 1 - number) * 3600
            process.ask(fill={"dags": [], "runs": made})


def measured(
    codes: dict[str, Path], home: Path, database: str, repeats: int
) -> dict[str, dict[str, list[float]]]:
    """Return by code what each round took: cold and warm, time and CPU."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in codes}
    for number in range(repeats):
        names = list(codes)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            with server(codes[name], home, database) as process:
                module = timed(process, "/page.js")
                cold = timed(process)
            with server(codes[name], home, database) as process:
                timed(process, "/logo.svg")
                process.ask(prepared=True)
                opened = timed(process)
                warm = [timed(process) for _ in range(_WARM)]
            if pipelines(opened) != pipelines(cold):
                raise RuntimeError(f"{name}: the lists differ")
            for key, value in {
                "module": module["ms"],
                "module CPU": module["cpu"],
                "cold": cold["ms"],
                "cold CPU": cold["cpu"],
                "opened": opened["ms"],
                "opened CPU": opened["cpu"],
                "warm": median(one["ms"] for one in warm),
                "warm CPU": median(one["cpu"] for one in warm),
                "bytes": len(cold["body"]),
                "queries": len(warm[-1]["sql"]),
            }.items():
                found[name].setdefault(key, []).append(value)
    return found


#: Notes when the first row is there.
_OBSERVE = """
new MutationObserver(() => {
  const found = document.querySelector("[data-testid=delta-cdc-pipelines] tbody tr");
  if (found && globalThis.firstRow === undefined) globalThis.firstRow = performance.now();
}).observe(document, { childList: true, subtree: true });
"""
_OF_LIST = """
const of = performance.getEntriesByType("resource").filter(({ name }) => name.includes("/delta-cdc/api/"));
const list = of.find(({ name }) => name.includes("/api/pipelines"));
return { requests: of.length, "list to first row": globalThis.firstRow - list.responseEnd,
  "list requested to there": list.responseEnd - list.startTime };
"""
#: Does one thing, and returns the milliseconds until the table shows it.
_ACT = """
const [act, done] = arguments;
const table = document.querySelector("[data-testid=delta-cdc-pipelines] tbody");
const before = table.textContent;
const begun = performance.now();
if (act === "search") {
  const field = document.querySelector("[aria-label=Search]");
  Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, "_t7");
  field.dispatchEvent(new Event("input", { bubbles: true }));
} else [...document.querySelectorAll("button")].find((one) => one.textContent === "Next").click();
const look = () => {
  const now = document.querySelector("[data-testid=delta-cdc-pipelines] tbody");
  if (now && now.textContent !== before) done(performance.now() - begun);
  else requestAnimationFrame(look);
};
look();
"""


def in_browser(code: Path, home: Path, database: str, repeats: int) -> dict[str, list[float]]:
    """Return what Chromium needed: requests, and milliseconds."""
    found: dict[str, list[float]] = {}
    with server(code, home, database) as page, browser.chromium(home / "chromium") as chrome:
        page.serve()
        window = browser.Window(chrome, page.url)
        window.log_in("admin", PASSWORD)
        chrome.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _OBSERVE})
        for _ in range(repeats):
            window.open("/plugin/delta-cdc")
            window.see("[data-testid=delta-cdc-pipelines] svg rect")
            figures = {
                **chrome.execute_script(_OF_LIST),
                "next 50 rows": chrome.execute_async_script(_ACT, "next"),
                "search": chrome.execute_async_script(_ACT, "search"),
            }
            for key, value in figures.items():
                found.setdefault(key, []).append(value)
    return found


def lines(database: str, found: dict[str, dict[str, list[float]]]) -> Iterator[str]:
    """Yield a line of a table for each code."""
    for name, figures in found.items():
        cells = [
            f"{median(values):.0f} ({min(values):.0f}–{max(values):.0f})"
            for key, values in figures.items()
            if key not in ("bytes", "queries")
        ]
        sizes = f"{figures['bytes'][0] / 1024:.0f} | {figures['queries'][0]:.0f}"
        yield f"| {database} | {name} | {' | '.join(cells)} | {sizes} |"


def main() -> int:
    """Measure; 1 if a median is above the aim."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", type=Path, help="another checkout to measure in turn")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--browser", action="store_true", help="look at this checkout's page, too")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a smoke run")
    parser.add_argument("--home", type=Path, help="keep the database here, and use it again")
    options = parser.parse_args()
    codes = {"this": PROJECT, **({"against": options.against.resolve()} if options.against else {})}
    with ExitStack() as stack:
        home = options.home or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-page-"))
        )
        home.mkdir(parents=True, exist_ok=True)
        database = f"sqlite:///{home / 'airflow.db'}"
        is_new = not (home / "airflow.db").exists()
        if options.database == "postgresql":
            postgres = stack.enter_context(Postgres())
            account = f"{postgres.user}:{postgres.password}"
            database = f"postgresql+psycopg2://{account}@{postgres.host}:{postgres.port}/{postgres.database}"
            is_new = True
        if is_new:
            with server(PROJECT, home, database) as process:
                filled(process, small=options.small)
        repeats = 2 if options.small else options.repeats
        found = measured(codes, home, database, repeats)
        seen = in_browser(PROJECT, home, database, repeats) if options.browser else {}
    print("milliseconds: median (least – most)\n")
    names = ["module", "cold", "opened", "warm"]
    heads = ["database", "code", *(f"{one}{more}" for one in names for more in ("", ", CPU"))]
    print(f"| {' | '.join([*heads, 'KiB', 'queries'])} |\n|{'---|' * (len(heads) + 2)}")
    print("\n".join(lines(options.database, found)))
    for name, values in seen.items():
        print(f"browser, {name}: {median(values):.0f} ({min(values):.0f}–{max(values):.0f})")
    worst = max(median(found["this"][key]) for key in ("cold", "opened", "warm"))
    return int(worst > AIM and not options.small)


if __name__ == "__main__":
    raise SystemExit(main())
