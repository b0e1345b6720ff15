"""A whole Airflow on this machine: UI and API, scheduler, triggerer, DAG processor; and its end."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import psutil

from demo import airflow_home
from demo.places import PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from demo.places import Places

USER = "admin"
#: Seconds a server, or a DAG run, may take before something must be wrong.
START_LIMIT = 600.0
RUN_LIMIT = 600.0
#: Seconds processes are given to end by themselves.
GRACE = 10.0
_STOP_ROUNDS = 5
_PAUSE = 0.5
_FINISHED = ("success", "failed")


class Server:
    """``airflow standalone`` in a process group of its own, reachable from this machine only.

    Use it as a context manager: leaving it ends every process it started, Spark's among them.

    :param places: where its home and tables are
    :param port: port of UI and API; None takes 8080 if it is free, else any free one
    :param settings: further environment variables
    """

    def __init__(self, places: Places, *, port: int | None = None, **settings: str) -> None:
        self._places = places
        free = free_ports(3)
        self.port = port or (8080 if _is_free(8080) else free[0])
        self.url = f"http://127.0.0.1:{self.port}"
        self.password = self._password()
        self._token = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions: set[int] = set()
        self._settings = airflow_home.environment(
            places,
            AIRFLOW__API__HOST="127.0.0.1",
            AIRFLOW__API__PORT=str(self.port),
            AIRFLOW__API__BASE_URL=self.url,
            AIRFLOW__API__EXPOSE_CONFIG="False",
            AIRFLOW__CORE__EXECUTION_API_SERVER_URL=f"{self.url}/execution/",
            AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS=f"{USER}:admin",
            AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE=str(self._password_file),
            AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION="False",
            AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT=str(free[1]),
            AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT=str(free[2]),
            AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME="0.2",
            AIRFLOW__API__WORKERS="1",
            AIRFLOW__CORE__PARALLELISM="4",
            # A busy machine answers late; a task whose start is not answered in time fails.
            AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT="60",
            **settings,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- life -----------------------------------------------------------------------------------
    def start(self) -> None:
        """Start the processes; those an earlier, killed server left behind are ended first.

        :raises RuntimeError: if the database can't be made
        """
        self.stop()
        airflow_home.prepare(self._places, self._settings)
        with self._places.log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "airflow", "standalone"],
                env=self._settings,
                cwd=PROJECT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._sessions.add(self._process.pid)

    def wait_until_ready(self, *dag_ids: str) -> None:
        """Return when all parts are healthy and the DAGs can be triggered.

        :raises RuntimeError: if that takes longer than :data:`START_LIMIT` seconds, or the server dies
        """
        for _ in self.patience(START_LIMIT, "Airflow did not start"):
            if self._is_healthy() and all(self._knows(dag_id) for dag_id in dag_ids):
                return

    def stop(self) -> None:
        """End every process of this Airflow, in whatever session it is; also those a killed server left."""
        for _ in range(_STOP_ROUNDS):
            processes = list(self.processes())
            if not processes:
                break
            for process in processes:
                _tell(process, kill=False)
            _, alive = psutil.wait_procs(processes, timeout=GRACE)
            for process in alive:
                _tell(process, kill=True)
        if self._process is not None:
            self._process.wait()
            self._process = None

    @property
    def session(self) -> int:
        """Return the id of the session that the server leads."""
        assert self._process is not None, "not started"
        return self._process.pid

    def wait(self) -> None:
        """Return when the server has ended by itself."""
        if self._process is not None:
            self._process.wait()

    def processes(self) -> Iterator[psutil.Process]:
        """Find the processes of this Airflow.

        Spark leads sessions of its own, and is known by the Airflow home in its environment. Airflow's own
        parts overwrite their environment with a title, and are known by their session.
        """
        everything = [(process, _session(process), _home(process)) for process in psutil.process_iter()]
        home = self._settings["AIRFLOW_HOME"]
        self._sessions |= {session for _, session, of in everything if of == home and session is not None}
        self._sessions.discard(os.getsid(0))
        for process, session, of in everything:
            if process.pid != os.getpid() and (of == home or session in self._sessions):
                yield process

    # -- REST API -------------------------------------------------------------------------------
    def trigger(self, dag_id: str, conf: dict[str, Any] | None = None) -> str:
        """Trigger a DAG through the REST API; return the id of its run.

        :param conf: values for the DAG's Params
        """
        answer = self.call(
            "POST", f"/api/v2/dags/{dag_id}/dagRuns", {"logical_date": None, "conf": conf or {}}
        )
        return str(answer["dag_run_id"])

    def finish(self, dag_id: str, run_id: str) -> str:
        """Return a run's final state, when it has one.

        :raises RuntimeError: if that takes longer than :data:`RUN_LIMIT` seconds
        """
        for _ in self.patience(RUN_LIMIT, f"the run {run_id} of {dag_id} did not end"):
            state = self.call("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")["state"]
            if state in _FINISHED:
                return str(state)
        raise AssertionError("unreachable")

    def result(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> Any:
        """Return what a task returned (XCom ``return_value``).

        :param map_index: of a mapped task
        """
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/return_value"
        return self.call("GET", f"{path}?deserialize=true&map_index={map_index}")["value"]

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> str:
        """Return what a task's log says, a line per entry and per error."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}"
        entries = self.call("GET", f"{path}?full_content=true")["content"]
        lines = []
        for entry in entries:
            found = entry if isinstance(entry, dict) else {"event": entry}
            errors = [
                f"{error['exc_type']}: {error['exc_value']}" for error in found.get("error_detail") or ()
            ]
            lines += [str(found["event"]), *errors]
        return "\n".join(lines)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Call the REST API as the administrator.

        :raises urllib.error.HTTPError: if Airflow refuses
        """
        if not self._token:
            login = {"username": USER, "password": self.password}
            self._token = self._http("POST", "/auth/token", login)["access_token"]
        return self._http(method, path, body, {"Authorization": f"Bearer {self._token}"})

    def _http(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **(headers or {})},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def _is_healthy(self) -> bool:
        try:
            parts = self._http("GET", "/api/v2/monitor/health")
        except OSError:
            return False
        names = ("metadatabase", "scheduler", "triggerer", "dag_processor")
        return all((parts.get(name) or {}).get("status") == "healthy" for name in names)

    def _knows(self, dag_id: str) -> bool:
        try:
            return bool(self.call("GET", f"/api/v2/dags/{dag_id}")["dag_id"])
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return False
            raise

    # -- details --------------------------------------------------------------------------------
    def patience(self, seconds: float, what: str) -> Iterator[None]:
        """Yield again and again, with pauses.

        :param what: says what did not happen
        :raises RuntimeError: when the time is over, or the server is dead
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self._process is not None and self._process.poll() is not None:
                raise RuntimeError(
                    f"Airflow ended with exit code {self._process.returncode}; see {self._places.log}"
                )
            yield
            time.sleep(_PAUSE)
        raise RuntimeError(f"{what} within {seconds:.0f} s; see {self._places.log}")

    @property
    def _password_file(self) -> Any:
        return self._places.airflow_home / "passwords.json"

    def _password(self) -> str:
        """Return the administrator's password; the first time, make one up."""
        if not self._password_file.exists():
            self._password_file.parent.mkdir(parents=True, exist_ok=True)
            self._password_file.touch(mode=0o600)
            self._password_file.write_text(json.dumps({USER: secrets.token_urlsafe(9)}))
        return str(json.loads(self._password_file.read_text())[USER])


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except OSError:
        # Gone, or another user's.
        return None


def _home(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("AIRFLOW_HOME")
    except psutil.Error:
        return None


def _tell(process: psutil.Process, *, kill: bool) -> None:
    try:
        if kill:
            process.kill()
        else:
            process.terminate()
    except psutil.NoSuchProcess:
        # It ended by itself in the meantime.
        return


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_ports(count: int) -> list[int]:
    """Return so many free ports."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
