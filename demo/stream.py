"""``make demo-postgres``: a PostgreSQL under load, followed by Airflow into Delta tables, and compared."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from demo import airflow_home, report, stream_check, workload
from demo.check import Check, Finding, rows_of
from demo.landing import Draining, Landing
from demo.places import PROJECT
from demo.postgres import Postgres, PostgresFailed, programs
from demo.runner import Runner
from demo.source import Source
from demo.workload import TABLES

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from demo.places import Places

_DAG = "pgbench_changes"
_ROUNDS = 3
#: Transactions per second: a load that leaves something of two cores to Spark.
_RATE = 200
_CLIENTS = 4
_ACCOUNTS = 40_000


def run(places: Places) -> int:
    """Run the demo in an empty folder; return the exit code: 0 if every row is as it should be.

    :raises PostgresMissing: if PostgreSQL is not installed
    """
    programs()
    shutil.rmtree(places.root, ignore_errors=True)
    places.root.mkdir(parents=True)
    landed = places.root / "landed"
    report.say(
        "Changes of a PostgreSQL under load: decoded, landed as files, brought by Airflow into tables."
    )
    report.say(f"Everything is in {places.root}; what isn't shown here is in demo.log.")
    settings = airflow_home.environment(
        places,
        AIRFLOW__CORE__DAGS_FOLDER=str(PROJECT / "demo" / "dags"),
        DELTA_CDC_DEMO_LANDED=str(landed),
    )
    report.headline("PostgreSQL, and a replication slot that is older than the first row")
    with ThreadPoolExecutor(1) as aside, Postgres() as server:
        database = aside.submit(airflow_home.prepare, places, settings)
        report.say(f"      {server.value('SELECT version()').split(' (')[0]}, port {server.port}")
        landing = Landing(server, landed, tables=tuple(table.name for table in TABLES))
        landing.open()
        workload.create(server)
        workload.fill(server, accounts=_ACCOUNTS)
        report.say(f"      {landing.drain():,} events have landed: pgbench's accounts, row by row")
        database.result()
        with Runner(places, settings) as runner:
            _rounds(places, server, landing, runner)
        results = _check(places, server, landed)
    report.say()
    if not all(result.holds for result in results):
        report.say("The tables are NOT as they should be.")
        return 1
    report.say("Every row is where it should be, and every event counted once.")
    return 0


def _rounds(places: Places, server: Postgres, landing: Landing, runner: Runner) -> None:
    """Follow the load while it runs, once more when it has ended, and once when there is nothing new."""
    with _load(places.root, server) as load, Draining(landing) as draining:
        for number in range(1, _ROUNDS + 1):
            report.headline(f"Round {number}, while {_CLIENTS} clients change rows")
            _follow(places, runner, number)
            if load.poll() is not None:
                raise PostgresFailed(f"pgbench ended before its time: {_told(load)}")
        _end(load, server)
        draining.finish()
    total = ", ".join(f"{landing.landed[table.name]:,} of {table.name}" for table in TABLES)
    report.headline("The load has ended: a last round")
    report.say(f"      landed in all: {total}")
    _follow(places, runner, _ROUNDS + 1)
    report.headline("Round without changes")
    _follow(places, runner, _ROUNDS + 2)


@contextmanager
def _load(folder: Path, server: Postgres) -> Iterator[subprocess.Popen[str]]:
    """Run pgbench, its own transactions and ours, until the end of the block."""
    # pgbench's own transactions touch accounts that are not there, too: no event comes of that.
    scripts = ["--builtin", "tpcb-like@4", *workload.scripts(folder, *TABLES, accounts=_ACCOUNTS)]
    load = server.start_client("pgbench", "-n", "-c", str(_CLIENTS), "-R", str(_RATE), "-T", "3600", *scripts)
    try:
        yield load
    finally:
        _end(load, server)


def _end(load: subprocess.Popen[str], server: Postgres) -> None:
    """End the load, and wait for the statements that the server has begun for it."""
    load.terminate()
    load.wait()
    while server.value("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'") != "0":
        continue


def _told(load: subprocess.Popen[str]) -> str:
    assert load.stdout is not None
    return load.stdout.read().strip()[-1000:]


def _follow(places: Places, runner: Runner, number: int) -> None:
    """Run the DAG once."""
    before = airflow_home.applications(places)
    done = runner.run(_DAG, date=f"2026-01-01T{number:02d}:00:00+00:00")
    started = airflow_home.applications(places) - before
    report.stream_columns()
    for table in TABLES:
        current = done.results[f"{table.name}_current"]
        ingested = (current.get("ingested") or {}).get("counts", {})
        report.stream(f"{table.name} current", {**current.get("counts", {}), **ingested})
        history = done.results[f"{table.name}_history"]
        report.stream(f"{table.name} history", history["counts"] if history["applied"] else {})
    report.say(f"      {done.seconds:.1f} seconds, {started} Spark application(s)")


def _check(places: Places, server: Postgres, landed: Path) -> list[Finding]:
    """Compare with PostgreSQL's rows, and with histories that DuckDB computes from the files that landed."""
    report.headline("Check: PostgreSQL's rows, and DuckDB over the files that landed")
    results = []
    with Source(places) as tables, Check() as check:
        for table in TABLES:
            name = table.name
            rows = stream_check.export(server, table, places.exports)
            events, current, history = (
                rows_of(tables.export(f"{name}_{part}")) for part in ("events", "current", "history")
            )
            cut = stream_check.history(landed, table)
            latest = f"SELECT * EXCLUDE (__START_AT, __END_AT) FROM ({history}) WHERE __END_AT IS NULL"
            results += [
                check.same_rows(
                    f"{name}: every event once",
                    stream_check.sequences(landed, table),
                    f"SELECT _sequence AS seq FROM ({events})",
                ),
                check.same_rows(f"{name}: current = PostgreSQL", rows, current),
                check.same_rows(f"{name}: open rows = PostgreSQL", rows, latest),
                check.same_rows(f"{name}: history = states that lasted", cut, history),
            ]
    report.findings(results)
    return results
