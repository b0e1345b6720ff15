"""A real Spark Connect server with Delta, in a process group of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_cdc.launch.environment import child_environment, submit_binary
from delta_cdc.launch.jars import class_path, delta_jars, installed_delta
from delta_cdc.launch.session import CLASS_PATH, embedded_confs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
#: Where Delta keeps its version.
_VERSION_CLASS = "io/delta/package$.class"
#: Seconds for a server to come up on a machine that has other things to do.
_PATIENCE = 120.0


@dataclass
class ConnectServer:
    """One server; after :meth:`kill`, :meth:`start` brings up another one at the same address."""

    folder: Path
    port: int
    confs: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    patience: float = _PATIENCE

    @property
    def url(self) -> str:
        return f"sc://localhost:{self.port}"

    @property
    def log(self) -> str:
        """Return what the servers have written so far."""
        return (self.folder / "server.log").read_text(errors="replace")

    def start(self) -> None:
        """Start the server and wait until its port is open."""
        with (self.folder / "server.log").open("ab") as log:
            before = log.tell()
            self.process = subprocess.Popen(
                self._command(),
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **child_environment(), "SPARK_NO_DAEMONIZE": "1"},
                start_new_session=True,
                cwd=self.folder,
            )
        self._wait(before)

    def _command(self) -> list[str]:
        given = [argument for name, value in self.confs.items() for argument in ("--conf", f"{name}={value}")]
        return [str(submit_binary()), "--class", _CLASS, *given, "spark-internal"]

    def _wait(self, before: int) -> None:
        assert self.process is not None
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended: {self.log[before:][-3000:]}")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                # Nothing to wait on but the port: the process says nothing when it is ready.
                try:
                    self.process.wait(0.1)
                except subprocess.TimeoutExpired:
                    continue
            else:
                return
        raise AssertionError(f"the server did not come up: {self.log[before:][-3000:]}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the server and all that it started."""
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """Kill the server as a machine that loses power would."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.send(signal.SIGKILL)
        self.process.wait()
        self.process = None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def delta_of_version(folder: Path, version: str) -> dict[str, str]:
    """Return the confs of a server whose Delta is ours, but for what it says of its version.

    :param folder: for the class that says it
    :param version: as long as ours
    """
    assert len(version) == len(installed_delta())
    for jar in delta_jars().jars():
        with zipfile.ZipFile(jar) as files:
            if _VERSION_CLASS in files.namelist():
                said = files.read(_VERSION_CLASS)
    ours = installed_delta().encode()
    assert said.count(ours) == 1
    changed = folder / _VERSION_CLASS
    changed.parent.mkdir(parents=True)
    changed.write_bytes(said.replace(ours, version.encode()))
    return {CLASS_PATH: os.pathsep.join((str(folder), class_path()))}


@contextmanager
def connect_server(folder: Path, *, delta: bool = True, **confs: str) -> Iterator[ConnectServer]:
    """Start a server of two threads, and end it afterwards.

    :param folder: for its log and its warehouse
    :param delta: whether it knows Delta
    :param confs: more confs, with two underscores for a point
    """
    port = free_port()
    ours = embedded_confs(2, quick_start=True)
    if not delta:
        ours = {name: value for name, value in ours.items() if "extensions" not in name}
    given = {
        **ours,
        "spark.driver.memory": "1g",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        **{name.replace("__", "."): value for name, value in confs.items()},
    }
    server = ConnectServer(folder, port, given)
    try:
        server.start()
        yield server
    finally:
        server.kill()
