"""A standalone cluster of the tests' own, from the installed Spark: a master and workers on free ports.

Each daemon is the leader of a process group of its own, in which its executors are, too: killed with
:meth:`SparkCluster.kill_worker`, a worker goes as a machine does that loses power.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from delta_cdc.launch.environment import child_environment, spark_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_HOST = "127.0.0.1"
_START_SECONDS = 90
_STOP_SECONDS = 20

#: MiB of each worker, and of the one executor that fits into it: about the least that Spark accepts.
WORKER_MEMORY, EXECUTOR_MEMORY = 700, 640

_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

#: Confs of small applications on this cluster: the defaults are made for hundreds of cores.
SMALL = {
    "spark.driver.host": _HOST,
    "spark.driver.bindAddress": _HOST,
    "spark.ui.enabled": "false",
    "spark.executor.memory": f"{EXECUTOR_MEMORY}m",
    "spark.driver.extraJavaOptions": _QUICK,
    "spark.executor.extraJavaOptions": _QUICK,
    # A handful of rows: to compile a query costs more than to interpret it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
}


class _Daemon:
    """A process whose output is waited for, line by line, and kept in a file."""

    def __init__(self, command: list[str], environment: Mapping[str, str], output: Path) -> None:
        self.output = output
        self._lines: list[str] = []
        self._said = threading.Condition()
        self.process = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=output.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # A group of its own: an interrupt of the test run must not reach it before its clients.
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.output.open("a", encoding="utf-8") as file:
            for line in self.process.stdout:
                file.write(line)
                file.flush()
                with self._said:
                    self._lines.append(line)
                    self._said.notify_all()
        with self._said:
            self._said.notify_all()

    def awaited(self, pattern: str, times: int = 1) -> list[re.Match[str]]:
        """Wait until so many lines match; return the matches."""

        def found() -> list[re.Match[str]]:
            return [match for line in self._lines if (match := re.search(pattern, line))]

        def is_over() -> bool:
            return len(found()) >= times or not self._reader.is_alive()

        with self._said:
            self._said.wait_for(is_over, _START_SECONDS)
            matches = found()
        if len(matches) < times:
            said = "".join(self._lines[-40:])
            raise RuntimeError(f"{self.output.name}: {pattern!r} was not said {times} times:\n{said}")
        return matches

    def end(self, number: signal.Signals) -> None:
        """Signal the whole group, and see to it that nothing of it is left."""
        self.signal(number)
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self.process.wait()
        # Executors that outlived their worker are in the same group.
        self.signal(signal.SIGKILL)
        self._reader.join(_STOP_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            # It ended by itself: that is what was wanted.
            return


class SparkCluster:
    """A running master with its workers, one core each.

    :param folder: for logs, scratch space and the executors' folders; made here, left in place
    :param workers: how many
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._count = workers
        self._master: _Daemon | None = None
        self._workers: list[_Daemon] = []
        #: ``spark://…``, once it runs.
        self.url = ""

    def start(self) -> None:
        """Start the daemons at once, and wait until every worker is registered."""
        for name in ("conf", "scratch", "work"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        # Port 0: the daemon takes a free one and says which.
        self._master = self._daemon("master", "master.Master", "--host", _HOST, "--port", "0")
        self.url = self._master.awaited(r"Starting Spark master at (spark://\S+)")[0].group(1)
        resources = ("--host", _HOST, "--port", "0", "--cores", "1", "--memory", f"{WORKER_MEMORY}M")
        for number in range(self._count):
            work = str(self._folder / "work" / str(number))
            self._workers.append(
                self._daemon(f"worker-{number}", "worker.Worker", *resources, "--work-dir", work, self.url)
            )
        self._master.awaited(r"Registering worker ", self._count)

    def _daemon(self, name: str, java_class: str, *arguments: str) -> _Daemon:
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("SPARK_")},
            **child_environment(),
            # Nobody else's defaults.
            "SPARK_CONF_DIR": str(self._folder / "conf"),
            "SPARK_LOCAL_DIRS": str(self._folder / "scratch"),
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_DAEMON_JAVA_OPTS": _QUICK,
        }
        command = [
            str(spark_home() / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{java_class}",
            *("--webui-port", "0"),
            *arguments,
        ]
        return _Daemon(command, environment, self._folder / f"{name}.log")

    def stop(self) -> None:
        """Stop all of it."""
        for daemon in (*self._workers, *([self._master] if self._master else [])):
            daemon.signal(signal.SIGCONT)
            daemon.end(signal.SIGTERM)
        self._workers, self._master = [], None

    # -- what happens to machines ---------------------------------------------------------------
    def executors_of(self, worker: int) -> list[str]:
        """Return the ids of the executors that a worker was ever asked to start, the newest last."""
        said = self._workers[worker].output.read_text(encoding="utf-8")
        return re.findall(r"Asked to launch executor \S+/(\d+)", said)

    def freeze_worker(self, worker: int) -> None:
        """Stop the clock for a worker and its executors: what they are given to do stays half done."""
        self._workers[worker].signal(signal.SIGSTOP)

    def kill_worker(self, worker: int) -> None:
        """Kill a worker with its executors."""
        self._workers[worker].end(signal.SIGKILL)


@contextmanager
def spark_cluster(folder: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """Run a cluster for the length of a block."""
    with ExitStack() as stack:
        running = SparkCluster(folder, workers)
        stack.callback(running.stop)
        running.start()
        yield running
