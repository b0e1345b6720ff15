"""The parts of an Airflow as processes that can be killed, frozen and started one by one."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psutil

from demo import airflow_home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from demo.places import Places

#: Seconds until something must be wrong, where no Spark is started.
LIMIT = 180.0
_PAUSE = 0.1


class Part:
    """One process of Airflow, with its children, in a session of its own."""

    def __init__(self, *command: str, environment: dict[str, str], log: Path) -> None:
        self._command = [sys.executable, "-m", "airflow", *command]
        self._environment = environment
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def freeze(self) -> None:
        """Stop all of it where it is: nothing runs until it is thawed or killed."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is tidied up."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def processes(self) -> list[psutil.Process]:
        if self._process is None or not psutil.pid_exists(self._process.pid):
            return []
        # The parent first: frozen, it can't start another one meanwhile.
        parent = psutil.Process(self._process.pid)
        return [parent, *parent.children(recursive=True)]

    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def _signal(self, number: int) -> None:
        for process in self.processes():
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue
        if number == signal.SIGKILL and self._process is not None:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                return


class Parts:
    """An Airflow in parts: API server, scheduler, DAG processor and triggerer.

    :param places: where its home is
    :param dags: the DAG folder, importable too
    """

    def __init__(self, places: Places, dags: Path, **settings: str) -> None:
        self._places = places
        ports = _free_ports(3)
        url = f"http://127.0.0.1:{ports[0]}"
        secret = secrets.token_urlsafe(32)
        own = {
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(ports[0]),
            "AIRFLOW__API__BASE_URL": url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": secret,
            "AIRFLOW__API_AUTH__JWT_SECRET": secret,
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(ports[1]),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(ports[2]),
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
            # A killed triggerer is known to be dead after seconds, not after half a minute.
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "3",
        }
        self.environment = airflow_home.environment(places, **{**own, **settings})
        self.environment["PYTHONPATH"] += os.pathsep + str(dags)
        airflow_home.prepare(places, self.environment)
        #: Scheduler, API server, DAG processor and triggerer.
        self.every = [self._part(name) for name in ("scheduler", "api-server", "dag-processor", "triggerer")]
        self.triggerer = self.every[-1]

    def start(self) -> None:
        for part in self.every:
            part.start()

    def stop(self) -> None:
        for part in self.every:
            part.kill()

    def cli(self, *command: str) -> None:
        """Run a command of Airflow's.

        :raises subprocess.CalledProcessError: if it fails
        """
        subprocess.run(
            [sys.executable, "-m", "airflow", *command], env=self.environment, check=True, capture_output=True
        )

    # -- what the metadata database says --------------------------------------------------------
    def events(self, asset: str) -> list[dict[str, Any]]:
        """Return what an asset's events carry, oldest first."""
        rows = self._rows(
            "SELECT e.extra FROM asset_event e JOIN asset a ON a.id = e.asset_id WHERE a.name = ? "
            "ORDER BY e.id",
            asset,
        )
        return [json.loads(extra).get("payload", json.loads(extra)) for (extra,) in rows]

    def cursors(self, asset: str) -> list[dict[str, Any]]:
        """Return what watchers keep in an asset's state store."""
        rows = self._rows(
            "SELECT s.value FROM asset_state_store s JOIN asset a ON a.id = s.asset_id WHERE a.name = ?",
            asset,
        )
        return [json.loads(value) for (value,) in rows]

    def runs(self, dag_id: str) -> list[str]:
        """Return the states of a DAG's runs, oldest first."""
        return [
            state for (state,) in self._rows("SELECT state FROM dag_run WHERE dag_id = ? ORDER BY id", dag_id)
        ]

    def dags(self) -> list[str]:
        """Return the ids of all DAGs."""
        return [dag_id for (dag_id,) in self._rows("SELECT dag_id FROM dag")]

    def watchers(self) -> list[tuple[str, int]]:
        """Return the names of all watchers, each with the id of its trigger."""
        return [(n, t) for n, t in self._rows("SELECT name, trigger_id FROM asset_watcher ORDER BY name")]

    def last_parsed(self, dag_id: str) -> str:
        """Return when a DAG was last parsed."""
        return str(self._rows("SELECT last_parsed_time FROM dag WHERE dag_id = ?", dag_id)[0][0])

    def states(self, dag_id: str) -> dict[str, str]:
        """Return the states of a DAG's tasks, of the newest run."""
        query = "SELECT task_id, state FROM task_instance WHERE dag_id = ? ORDER BY run_id"
        return dict(self._rows(query, dag_id))

    def xcom(self, dag_id: str, task_id: str) -> Any:
        """Return what a task returned."""
        query = "SELECT value FROM xcom WHERE dag_id = ? AND task_id = ? AND key = 'return_value'"
        value = json.loads(self._rows(query, dag_id, task_id)[0][0])
        return json.loads(value) if isinstance(value, str) else value

    def until(self, what: Callable[[], Any], why: str, limit: float = LIMIT) -> Any:
        """Return what is asked for as soon as it is true.

        :raises AssertionError: when that takes longer than so many seconds
        """
        for _ in _patience(limit):
            found = what()
            if found:
                return found
        raise AssertionError(f"{why}\n{self.log()}")

    def log(self) -> str:
        return "\n".join(part.log()[-6000:] for part in self.every)

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        file = self._places.airflow_home / "airflow.db"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)) as database:
            return database.execute(query, values).fetchall()

    def another_triggerer(self) -> Part:
        """Return a second triggerer, not started; :meth:`stop` ends it, too."""
        (port,) = _free_ports(1)
        environment = {**self.environment, "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(port)}
        made = Part("triggerer", environment=environment, log=self._places.root / "triggerer-2.log")
        self._others.append(made)
        return made

    def owners(self, watcher: str) -> list[int | None]:
        """Return the job of the triggerer that runs a watcher, for each of the watcher's triggers."""
        rows = self._rows(
            "SELECT t.triggerer_id FROM trigger t JOIN asset_watcher w ON w.trigger_id = t.id "
            "WHERE w.name = ?",
            watcher,
        )
        return [job for (job,) in rows]

    def _part(self, name: str) -> Part:
        return Part(name, environment=self.environment, log=self._places.root / f"{name}.log")


def _patience(limit: float) -> Iterator[None]:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        yield
        time.sleep(_PAUSE)


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for probe in held:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in held]
    for probe in held:
        probe.close()
    return ports
