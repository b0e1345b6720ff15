"""A Kafka Connect worker of the tests' own, with Debezium's connector for PostgreSQL on its class path."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from delta_cdc.launch.environment import java_binary
from tests.support.kafka_broker import free_ports, signal_group
from tests.support.maven import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from demo.postgres import Postgres
    from tests.support.kafka_broker import Broker

_START_SECONDS, _STOP_SECONDS = 120, 30
_PROPERTIES = """\
bootstrap.servers={servers}
listeners=http://127.0.0.1:{port}
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
offset.storage.file.filename={folder}/offsets
plugin.discovery=service_load
topic.creation.enable=true
"""


class Connect:
    """A worker that runs alone, and keeps in a file how far its connectors came.

    :param folder: for that file, and for its output; made here, left in place
    """

    def __init__(self, folder: Path, broker: Broker) -> None:
        self._folder, self._broker = folder, broker
        self._port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None
        self._connectors: dict[str, dict[str, str]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def output(self) -> Path:
        """Return the file with all that the worker says."""
        return self._folder / "connect.log"

    # -- running --------------------------------------------------------------------------------
    def start(self) -> None:
        """Start it, with the connectors it had, and wait until they run."""
        properties = self._folder / "worker.properties"
        properties.write_text(
            _PROPERTIES.format(servers=self._broker.servers, port=self._port, folder=self._folder)
        )
        command = [
            str(java_binary()),
            *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
            *("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",),
            *("-cp", os.pathsep.join(str(jar) for jar in locked("kafka-connect").jars())),
            *("org.apache.kafka.connect.cli.ConnectStandalone", str(properties)),
        ]
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                start_new_session=True,
            )
        self._until(lambda: self._ask("GET", "/connectors") is not None, "answer")
        for name, config in self._connectors.items():
            self._put(name, config)

    def stop(self) -> None:
        """Stop it in order, or by force if it does not."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it: what it did since it last wrote its offsets, it will do again."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        signal_group(process, number)
        try:
            process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            signal_group(process, signal.SIGKILL)
            process.wait()

    # -- connectors -----------------------------------------------------------------------------
    def follow(self, name: str, postgres: Postgres, *, table: str, **config: str) -> str:
        """Start a connector for a table of PostgreSQL, and wait until it runs; return its topic.

        :param name: of connector, slot and topics
        :param table: ``schema.table``
        :param config: more of its configuration, with underscores for dots
        """
        self._connectors[name] = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": postgres.host,
            "database.port": str(postgres.port),
            "database.user": postgres.user,
            "database.password": postgres.password,
            "database.dbname": postgres.database,
            "slot.name": name,
            "publication.name": name,
            "publication.autocreate.mode": "filtered",
            "topic.prefix": name,
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            "table.include.list": table,
            # Left out by default.
            "skipped.operations": "none",
            "slot.retry.delay.ms": "500",
            "slot.max.retries": "60",
            **{key.replace("_", "."): value for key, value in config.items()},
        }
        self._put(name, self._connectors[name])
        return f"{name}.{table}"

    def _put(self, name: str, config: dict[str, str]) -> None:
        def runs() -> bool:
            found = self._ask("GET", f"/connectors/{name}/status") or {}
            states = [found.get("connector", {}), *found.get("tasks", [])]
            failed = [state for state in states if state.get("state") == "FAILED"]
            if failed:
                raise RuntimeError(f"The connector {name} failed: {failed[0].get('trace')}")
            return len(states) > 1 and all(state.get("state") == "RUNNING" for state in states)

        self._until(lambda: self._ask("PUT", f"/connectors/{name}/config", config) is not None, "take it")
        self._until(runs, f"run the connector {name}")

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return what the worker answers; None where it does not know yet, or does not listen."""
        request = Request(
            f"http://127.0.0.1:{self._port}{path}",
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={"Content-Type": "application/json"},
        )
        try:
            with urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except HTTPError as error:
            if error.code in (404, 409, 503):
                return None
            raise RuntimeError(f"{method} {path}: {error.code} {error.read().decode()}") from error
        except (URLError, HTTPException, OSError):
            self._must_live()
            return None

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _START_SECONDS
        while not is_so():
            self._must_live()
            if time.monotonic() > end:
                raise RuntimeError(f"Connect did not {what} within {_START_SECONDS} s.\n{self._last_words()}")
            # Between two questions, not instead of one.
            time.sleep(0.1)

    def _must_live(self) -> None:
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            raise RuntimeError(f"Connect ended with exit code {code}.\n{self._last_words()}")

    def _last_words(self) -> str:
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-60:])


@contextmanager
def connect(folder: Path, broker: Broker) -> Iterator[Connect]:
    """Run a worker for the length of a block."""
    running = Connect(folder, broker)
    try:
        running.start()
        yield running
    finally:
        running.stop()
