"""Checks of a custom Spark: is it reachable, is its version ours, does it load Delta, does a MERGE work."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

from delta_cdc.core.reasons import reason
from delta_cdc.core.storage_options import hadoop_uri, properties_text, spark_storage
from delta_cdc.doctor import store
from delta_cdc.doctor.machine import spark_version
from delta_cdc.doctor.report import Check, Finding, failed, ok, skipped, warning
from delta_cdc.launch.environment import child_environment, release, spark_home, submit_binary
from delta_cdc.launch.jars import installed_delta, jar_sets
from delta_cdc.launch.processes import stop
from delta_cdc.launch.session import delta_confs
from delta_cdc.spark.sessions import DELTA_VERSION_QUERY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.launch.jars import JarSet

_CONNECT_PORT = 15002
_PROBE = Path(__file__).with_name("probe.py")
#: The expected number of correct rows in :mod:`delta_cdc.doctor.probe`.
_MERGED = 3
#: Settings for three rows.
_SMALL = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.databricks.delta.snapshotPartitions": "2",
}
_DELTA_EXTENSION = "DeltaSparkSessionExtension"
_TELLING = re.compile(
    r"Exception|Error|ERROR|WARN .*(not accepted|refused|Failed)|Initial job has not accepted"
)
_NOISE = ("at ", "... ", "Traceback", "File ")


class Spark:
    """Checks a master, or a Connect server.

    :param url: ``local[*]``, ``spark://…``, ``yarn``, ``k8s://…``, or ``sc://…`` for Spark Connect
    :param folder: URI of a place for the probe's own table; None runs only a query
    :param storage_options: of that place
    :param confs: the user's own confs; they override ours
    :param timeout: seconds for each check
    """

    def __init__(
        self,
        url: str,
        *,
        folder: str | None,
        storage_options: Mapping[str, str] | None,
        confs: Mapping[str, str],
        timeout: float,
    ) -> None:
        self._url = url
        self._options = storage_options
        self._confs = dict(confs)
        self._timeout = timeout
        self._table = f"{folder.rstrip('/')}/{store.PREFIX}_table_{uuid4().hex}" if folder else None
        self._is_there = False
        self._process: subprocess.Popen[bytes] | None = None
        self._is_given_up = False

    @property
    def _is_connect(self) -> bool:
        return self._url.startswith("sc://")

    def checks(self) -> list[Check]:
        """Return the checks, in the order in which they must run."""
        name = "connect" if self._is_connect else "master"
        return [Check(f"{name}-address", self._address), Check(f"{name}-job", self._job, self._give_up)]

    # -- is it reachable ------------------------------------------------------------------------
    def _address(self) -> Finding:
        if self._url.startswith("local"):
            self._is_there = True
            return skipped(f"{self._url} is this machine")
        if self._url.startswith("yarn"):
            return self._yarn()
        addresses = addresses_of(self._url)
        if not addresses:
            return failed(
                f"{self._url} names no host and port",
                "write local[*], spark://host:7077, k8s://https://host:6443, yarn or sc://host:15002.",
            )
        refused = [why for host, port in addresses if (why := _refused(host, port, self._timeout))]
        if len(refused) == len(addresses):
            return failed("; ".join(refused), "start the server, or correct host, port or firewall.")
        self._is_there = True
        if refused:
            return warning("; ".join(refused), "see why one of several masters is away.")
        return ok(", ".join(f"{host}:{port}" for host, port in addresses) + " can be reached")

    def _yarn(self) -> Finding:
        for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
            folder = os.environ.get(name)
            if folder and (Path(folder) / "yarn-site.xml").is_file():
                self._is_there = True
                return ok(f"{name} is {folder}, which has a yarn-site.xml")
        return failed(
            "neither HADOOP_CONF_DIR nor YARN_CONF_DIR names a folder with a yarn-site.xml",
            "set HADOOP_CONF_DIR on the worker to the configuration of the cluster.",
        )

    # -- does it work ---------------------------------------------------------------------------
    def _job(self) -> Finding:
        if not self._is_there:
            return skipped("it cannot be reached")
        if self._url.startswith("k8s:"):
            return skipped("a job needs an image and rights of its own there: run a task with the connection")
        missing = [jars.title for jars in self._jar_sets() if not jars.is_resolved()]
        if missing:
            return skipped(f"the {' and the '.join(missing)} that it needs are not there yet")
        directory = Path(tempfile.mkdtemp(prefix="delta-cdc-doctor-"))
        try:
            answer, log = self._run(directory)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        left = self._forget(is_made="merged" in answer)
        return self._judged(answer, log, left)

    def _run(self, directory: Path) -> tuple[dict[str, Any], str]:
        """Run the probe; return its last answer, and the informative lines of Spark's log."""
        asked, answer, log = (directory / name for name in ("asked.json", "answer.json", "spark.log"))
        table = hadoop_uri(self._table) if self._table else None
        questions = {
            "remote": self._url if self._is_connect else None,
            "folder": table,
            "extension": _DELTA_EXTENSION,
            "delta": DELTA_VERSION_QUERY,
        }
        _write(asked, json.dumps(questions))
        probe = directory / "delta_cdc_probe.py"
        shutil.copyfile(_PROBE, probe)
        environment = dict(os.environ)
        if self._is_connect:
            # Without a JVM; a foreign SPARK_HOME or master must not interfere.
            command = [sys.executable, str(probe)]
            for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "MASTER"):
                environment.pop(name, None)
        else:
            command = [*self._submit(directory, environment), str(probe)]
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [*command, str(asked), str(answer)],
                env=environment,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._process = process
            is_over = not self._is_given_up and _ends(process, self._timeout)
            # Read the log before the stop: messages of the stop would hide the cause.
            words = _last_words(log)
            stop(process)
        told = json.loads(answer.read_text(encoding="utf-8")) if answer.is_file() else {"step": "start"}
        return {**told, "is_over": is_over, "code": process.returncode}, words

    def _give_up(self) -> None:
        """End the application, whose result is no longer awaited. The caller deletes what it left."""
        self._is_given_up = True
        if self._process is not None:
            stop(self._process)

    def _jar_sets(self) -> tuple[JarSet, ...]:
        """Return the JARs to pass to Spark."""
        given = self._confs.get("spark.jars") or self._confs.get("spark.jars.packages")
        if self._is_connect or given:
            return ()
        return jar_sets([self._table] if self._table else [])

    def _submit(self, directory: Path, environment: dict[str, str]) -> list[str]:
        """Return the command line; secrets go by the environment and a file that only this user can read."""
        storage = spark_storage(self._options, [self._table] if self._table else [])
        needed = [jar for jars in self._jar_sets() for jar in jars.jars()]
        environment.update({**child_environment(), **storage.environment})
        is_local = self._url.startswith("local")
        confs = {
            **delta_confs(),
            **_SMALL,
            **storage.confs,
            **storage.public_credentials,
            # On one machine, Spark needs no copies and no public address.
            **(
                {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
                if is_local
                else {}
            ),
            **self._confs,
        }
        file = directory / "spark.properties"
        _write(file, properties_text({**storage.secrets(beside_environment=True), **confs}))
        where = ("--driver-class-path", os.pathsep) if is_local else ("--jars", ",")
        return [
            str(submit_binary()),
            *("--master", self._url, "--name", "delta-cdc doctor", "--properties-file", str(file)),
            "--load-spark-defaults",
            *((where[0], where[1].join(map(str, needed))) if needed else ()),
        ]

    def _forget(self, *, is_made: bool) -> str:
        """Delete the probe's table; return where it remains, if it does.

        :param is_made: Spark reports that it created the table
        """
        if self._table is None:
            return ""
        try:
            if not store.forget(self._table, self._options, self._timeout) and is_made:
                return f"{self._table}, on a disk of Spark's machines that this one does not see"
        except Exception:  # noqa: BLE001 - the finding names the table; the round trip reports the reason
            return self._table
        return ""

    def _judged(self, answer: dict[str, Any], log: str, left: str) -> Finding:
        more = f"; {log}" if log else ""
        if not answer["is_over"]:
            return failed(
                f"{self._url}: no end within {self._timeout:g} s, at the step '{answer['step']}'{more}",
                "see whether the cluster has free cores and memory, and whether it reaches this machine's "
                "ports; a slow one is given more time with --timeout.",
            )
        if "error" in answer:
            return failed(
                f"{self._url}: the step '{answer['step']}' failed: {_said(answer)}", _remedy(answer)
            )
        if answer["step"] != "done":
            return failed(
                f"{self._url}: the application ended with exit code {answer['code']}, at the step "
                f"'{answer['step']}'{more}",
                "run spark-submit by hand with this master to see the whole log.",
            )
        return self._compared(answer, left)

    def _compared(self, answer: dict[str, Any], left: str) -> Finding:
        ours = spark_version(spark_home()) or ""
        text = f"{self._url}: Spark {answer['version']}"
        if release(answer["version"]) != release(ours):
            return failed(
                f"{text}; this machine has {ours}", "run one version of Spark on both sides (major.minor)."
            )
        if self._is_connect and _DELTA_EXTENSION not in answer["extensions"]:
            return failed(
                f"{text}, without Delta's extension (spark.sql.extensions is {answer['extensions']!r})",
                "start the server with Delta's JARs on its class path, and with its extension and catalog.",
            )
        if "delta" in answer:
            text = f"{text}, Delta {answer['delta']}"
            if release(answer["delta"]) != release(installed_delta()):
                return failed(
                    f"{text}; this provider is for Delta {installed_delta()}",
                    f"put the JARs of Delta {release(installed_delta())} on the class path there, in the "
                    "place of the others: delta-cdc jars lists them.",
                )
        if self._table is None:
            return ok(f"{text}, a query ran (name a place with --storage to try a MERGE)")
        if answer.get("merged") != _MERGED:
            return failed(
                f"{text}; after a MERGE {answer.get('merged')} of {_MERGED} rows were right",
                "keep this Spark from writing tables until the reason is known.",
            )
        if left:
            return warning(f"{text}, a MERGE ran; its table was left at {left}", "delete the folder by hand.")
        return ok(f"{text}, a MERGE into a Delta table ran")


def addresses_of(url: str) -> list[tuple[str, int]]:
    """Return the hosts and ports in a URL of a master or server."""
    text = url.removeprefix("k8s://")
    if "://" not in text:
        text = f"https://{text}"
    scheme, _, rest = text.partition("://")
    authority = rest.partition("/")[0].partition(";")[0]
    default = {"sc": _CONNECT_PORT, "spark": 7077, "http": 80, "https": 443}.get(scheme)
    found = []
    for one in authority.split(","):
        try:
            parts = urlsplit(f"//{one}")
            host, port = parts.hostname, parts.port or default
        except ValueError:
            return []
        if not host or port is None:
            return []
        found.append((host, port))
    return found


def _refused(host: str, port: int, timeout: float) -> str:
    """Return why the connection fails; empty if it succeeds."""
    try:
        socket.create_connection((host, port), timeout=min(timeout, 10.0)).close()
    except OSError as error:
        return f"{host}:{port} cannot be reached ({error.strerror or error})"
    return ""


def _ends(process: subprocess.Popen[bytes], timeout: float) -> bool:
    """Return whether a process ends in time."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout)
    return process.poll() is not None


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    telling = [line for line in lines if _TELLING.search(line) and not line.startswith(_NOISE)]
    return f"Spark said: {telling[-1]}" if telling else ""


def _said(answer: Mapping[str, Any]) -> str:
    """Return the reason of an error that another Python process reported."""
    name, text = answer["error"]
    return reason(type(name, (Exception,), {})(text))


def _remedy(answer: Mapping[str, Any]) -> str:
    error = ": ".join(answer["error"])
    absent = "put Delta's JARs on the class path: delta-cdc jars lists them."
    known: Sequence[tuple[str, str]] = (
        ("UNAUTHENTICATED", "correct the token of the connection."),
        ("DATA_SOURCE_NOT_FOUND", absent),
        ("ClassNotFound", "put the missing JARs on the class path: delta-cdc jars lists ours."),
        ("Permission", "give the user of Spark the right to write there."),
        ("AccessDenied", "give the identity of Spark the right to write there."),
    )
    fitting = next((remedy for text, remedy in known if text in error), None)
    if fitting:
        return fitting
    if answer["step"] == "delta":
        return absent
    if answer["step"] == "merge":
        return "see whether Spark's machines reach the storage, and with whose credentials."
    return "see the log of the server or of the master for the whole story."


def _write(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
