"""``make demo``: initial load, three rounds of changes, one without, and the check."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from demo import airflow_home, report, source
from demo.check import Check, Finding, history_of, rows_of
from demo.runner import Runner
from demo.source import Source

if TYPE_CHECKING:
    from demo.places import Places
    from demo.runner import Run

#: The flows, and the row key of each one's tables.
PIPELINES = ("orders_current", "customer_history")
_CUSTOMER_COLUMNS = [
    "c_name",
    "c_address",
    "c_nationkey",
    "c_phone",
    "c_acctbal",
    "c_mktsegment",
    "c_comment",
]
_ROUNDS = 3


def run(places: Places) -> int:
    """Run the demo in an empty folder; return the exit code: 0 if every row is as it should be."""
    shutil.rmtree(places.root, ignore_errors=True)
    places.root.mkdir(parents=True)
    report.say("Changes of two Delta tables, moved by Airflow, each exactly once.")
    report.say(f"Everything is in {places.root}; what isn't shown here is in demo.log.")
    report.headline(f"TPC-H orders and customer, scale factor {source.SCALE_FACTOR}")
    # Two seconds: in the round without changes the sensor has to give way at some time.
    settings = airflow_home.environment(
        places, DELTA_CDC_EXAMPLE_WAIT="2", DELTA_CDC_EXAMPLE_DEFERRABLE="false"
    )
    with ThreadPoolExecutor(1) as aside:
        database = aside.submit(airflow_home.prepare, places, settings)
        source.generate(places)
        with Source(places) as tables:
            for name, rows in tables.create().items():
                report.say(f"      {name:<10}{rows:>9,} rows")
            database.result()
            with Runner(places, settings) as runner:
                loaded = _rounds(places, tables, runner)
            results = _check(tables, loaded["customer_history"])
    report.say()
    if not all(result.holds for result in results):
        report.say("The tables are NOT as they should be.")
        return 1
    report.say("Every row is where it should be. Next: `make up` for the same in Airflow's UI.")
    return 0


def _rounds(places: Places, tables: Source, runner: Runner) -> dict[str, int]:
    """Run the DAGs round by round; return the version of the source that each pipeline loaded first."""
    # dag.test(): the tasks, XCom, state stores and assets are Airflow's own; only the scheduler is left out.
    report.headline("Airflow: change data feed on")
    before = airflow_home.applications(places)
    done = runner.run("enable_change_data_feed", date=_date(0))
    started = airflow_home.applications(places) - before
    for entry in done.results["enable"]:
        name = entry["table"].rpartition("/")[2]
        report.say(f"      {name:<18} readable from version {entry['first_readable_version']}")
    report.say(f"      {done.seconds:.1f} seconds, {started} Spark application(s)")
    report.headline("Initial load")
    report.columns()
    loaded = _apply(places, runner, 1)
    for number in range(1, _ROUNDS + 1):
        report.headline(f"Round {number}: new orders, deletes, prices; segments and addresses")
        tables.change(number)
        _apply(places, runner, number + 1)
    report.headline("Round without changes")
    _apply(places, runner, _ROUNDS + 2)
    return loaded


def _apply(places: Places, runner: Runner, number: int) -> dict[str, int]:
    """Run every pipeline once; return their watermarks."""
    watermarks = {}
    for dag_id in PIPELINES:
        before = airflow_home.applications(places)
        done: Run = runner.run(dag_id, date=_date(number))
        published = done.results["apply"]
        started = airflow_home.applications(places) - before
        report.pipeline(published, seconds=done.seconds, applications=started)
        watermarks[dag_id] = int(published["version"])
    return watermarks


def _check(tables: Source, loaded: int) -> list[Finding]:
    """Compare both targets with what DuckDB makes of the sources.

    :param loaded: version of ``customer`` with which its history begins
    """
    report.headline("Check: DuckDB against snapshots of the sources")
    orders, orders_current = rows_of(tables.export("orders")), rows_of(tables.export("orders_current"))
    history = rows_of(tables.export("customer_history"))
    last = tables.version("customer")
    snapshots = tables.export("customer", newest_only=False, first=loaded)
    commits = tables.export_commits("customer")
    cut = history_of(snapshots, commits, key="c_custkey", columns=_CUSTOMER_COLUMNS)
    newest = rows_of(snapshots / f"version={last}")
    with Check() as check:
        results = [
            check.same_rows("orders_current = orders", orders, orders_current),
            check.same_rows(f"customer_history = made from {last - loaded + 1} snapshots", cut, history),
            check.same_rows(
                "open rows of customer_history = customer",
                newest,
                f"SELECT * EXCLUDE (__START_AT, __END_AT) FROM ({history}) WHERE __END_AT IS NULL",
            ),
        ]
    report.findings(results)
    return results


def _date(number: int) -> str:
    """Return a logical date of its own for each run."""
    return f"2026-01-01T{number:02d}:00:00+00:00"
