"""``make up``: the example DAGs in Airflow's UI, with tables that wait to be applied."""

from __future__ import annotations

import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from demo import report, source
from demo.rounds import PIPELINES
from demo.server import USER, Server
from demo.source import Source

if TYPE_CHECKING:
    from demo.places import Places

_ENABLE = "enable_change_data_feed"
_ROUNDS = 3


def run(places: Places, *, port: int | None) -> int:
    """Serve until Ctrl-C; return the exit code.

    The first time, tables are made, loaded once by the DAGs, and changed: there is something to apply.
    Later calls take them as they are.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    ready = places.root / "prepared"
    if not ready.exists():
        shutil.rmtree(places.root, ignore_errors=True)
    places.root.mkdir(parents=True, exist_ok=True)
    with Server(places, port=port) as server:
        if ready.exists():
            report.headline("Starting Airflow")
            server.start()
            server.wait_until_ready(*PIPELINES)
        else:
            _prepare(places, server)
            ready.touch()
        _tell(places, server)
        try:
            server.wait()
        except KeyboardInterrupt:
            report.say("\nStopping Airflow …")
            return 0
    report.say(f"Airflow ended; see {places.log}")
    return 1


def _prepare(places: Places, server: Server) -> None:
    report.headline("Starting Airflow, and making the tables (only the first time, about two minutes)")
    with ThreadPoolExecutor(1) as aside:
        started = aside.submit(server.start)
        source.generate(places)
        with Source(places) as tables:
            tables.create()
            started.result()
            server.wait_until_ready(_ENABLE, *PIPELINES)
            report.headline(f"Running {_ENABLE}")
            _finish(server, {_ENABLE: server.trigger(_ENABLE)})
            report.headline("Running the first loads")
            _finish(server, {dag_id: server.trigger(dag_id) for dag_id in PIPELINES})
            report.headline(f"Changing the sources: {_ROUNDS} rounds")
            for number in range(1, _ROUNDS + 1):
                tables.change(number)


def _finish(server: Server, runs: dict[str, str]) -> None:
    for dag_id, run_id in runs.items():
        state = server.finish(dag_id, run_id)
        report.say(f"      {dag_id:<24} {state}")
        if state != "success":
            raise RuntimeError(f"the DAG {dag_id} ended as {state}")


def _tell(places: Places, server: Server) -> None:
    report.headline("Ready")
    report.say(f"      address   {server.url}")
    report.say(f"      login     {USER}")
    report.say(f"      password  {server.password}")
    report.say()
    report.say(
        "      Open the DAG orders_current or customer_history and press Trigger. The form as it stands"
    )
    report.say(
        "      applies everything new; with a last version, everything up to it. The log of the task apply"
    )
    report.say(f"      says what it did. Tables are in {places.tables}.")
    report.say()
    report.say("      Ctrl-C ends everything; `make up` brings it back as it was.")
