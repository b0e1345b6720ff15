"""Checks of a custom Spark: whether it is reachable, has our version, loads Delta, and runs a MERGE."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

from delta_cdc.core import codec
from delta_cdc.core.errors import VersionsUnsupported
from delta_cdc.core.reasons import reason
from delta_cdc.core.spark_versions import pair_of_a_server, release
from delta_cdc.core.storage_options import hadoop_uri, properties_text, spark_storage
from delta_cdc.doctor import store
from delta_cdc.doctor.machine import spark_version
from delta_cdc.doctor.report import Check, Result, failed, ok, skipped, warning
from delta_cdc.launch.environment import child_environment, spark_home, submit_binary
from delta_cdc.launch.jars import jar_sets
from delta_cdc.launch.processes import stop
from delta_cdc.launch.run_folder import RunFolder, run_folder
from delta_cdc.launch.session import delta_confs, extensions
from delta_cdc.launch.storage_secrets import write_private
from delta_cdc.spark.sessions import DELTA_VERSION_QUERY, JAVA_QUERY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delta_cdc.launch.jars import JarSet

_CONNECT_PORT = 15002
_PROBE = Path(__file__).with_name("probe.py")
#: The expected number of correct rows in :mod:`delta_cdc.doctor.probe`.
_MERGED = 3
#: Confs for a job with three rows.
_SMALL = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.databricks.delta.snapshotPartitions": "2",
}
#: The conf by which new tables get a change data feed without a property of their own.
FEED_OF_NEW_TABLES = "spark.databricks.delta.properties.defaults.enableChangeDataFeed"
#: Confs of Delta's reader: whether a value (in lower case) is unwanted, what it does, and what to do.
READING: dict[str, tuple[Callable[[str], bool], str, str]] = {
    "spark.databricks.delta.stalenessLimit": (
        lambda value: re.fullmatch(r"(0\s*[a-z]*)?", value) is None,
        "a session may read a table as it was before another program's commit",
        "leave it unset. Jobs of this package set it to 0 for themselves; other readers see old rows.",
    ),
    "spark.databricks.delta.stats.skipping": (
        lambda value: value == "false",
        "each MERGE reads every file of its target",
        "leave it unset, or set it to true.",
    ),
}
_DELTA_EXTENSION = "DeltaSparkSessionExtension"
_IMPORTANT = re.compile(
    r"Exception|Error|ERROR|Initial job has not accepted|"
    # Only the first word counts, so that a line is read once.
    r"\A(?>.*?WARN ).*(?:not accepted|refused|Failed)"
)
_NOISE = ("at ", "... ", "Traceback", "File ")


class Spark:
    """The checks of a master, or of a Connect server.

    :param url: ``local[*]``, ``spark://…``, ``yarn``, ``k8s://…``, or ``sc://…`` for Spark Connect
    :param folder: URI or path of the folder for the probe's own table; without it, only a query runs
    :param storage_options: options of that folder's store, with delta-rs's names
    :param confs: the user's confs, which override ours
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
        self._confs = confs
        self._timeout = timeout
        self._table = f"{folder.rstrip('/')}/{store.PREFIX}_table_{uuid4().hex}" if folder else None
        self._is_reachable = False
        self._process: subprocess.Popen[bytes] | None = None
        self._is_given_up = False
        #: The value of :data:`FEED_OF_NEW_TABLES`; None before an application has read it.
        self._feed: str | None = None
        #: The values of :data:`READING`, likewise.
        self._confs_of_reading: Mapping[str, str] | None = None
        #: What :mod:`delta_cdc.doctor.probe` found of Python on the executors; empty before it looked.
        self._versions: Mapping[str, str] = {}

    @property
    def _is_connect(self) -> bool:
        return self._url.startswith("sc://")

    def checks(self) -> list[Check]:
        """Return the checks, in the order in which they must run."""
        name = "connect" if self._is_connect else "master"
        return [
            Check(f"{name}-address", self._address),
            Check(f"{name}-job", self._job, self._give_up),
            Check(f"{name}-python", self._python),
            Check(f"{name}-defaults", self._defaults),
            Check(f"{name}-confs", self._reading),
        ]

    # -- the address ----------------------------------------------------------------------------
    def _address(self) -> Result:
        if self._url.startswith("local"):
            self._is_reachable = True
            return skipped(f"{self._url} is this machine")
        if self._url.startswith("yarn"):
            return self._yarn()
        addresses = addresses_of(self._url)
        if not addresses:
            return failed(
                f"{self._url} names no host and port",
                "write local[*], spark://host:7077, k8s://https://host:6443, yarn or sc://host:15002.",
            )
        refused = [refusal for host, port in addresses if (refusal := _refused(host, port, self._timeout))]
        if len(refused) == len(addresses):
            return failed("; ".join(refused), "start the server, or correct host, port or firewall.")
        self._is_reachable = True
        if refused:
            return warning("; ".join(refused), "find out why one of the masters does not answer.")
        return ok(", ".join(f"{host}:{port}" for host, port in addresses) + " can be reached")

    def _yarn(self) -> Result:
        for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
            folder = os.environ.get(name)
            if folder and (Path(folder) / "yarn-site.xml").is_file():
                self._is_reachable = True
                return ok(f"{name} is {folder}, which has a yarn-site.xml")
        return failed(
            "neither HADOOP_CONF_DIR nor YARN_CONF_DIR names a folder with a yarn-site.xml",
            "set HADOOP_CONF_DIR on the worker to the configuration of the cluster.",
        )

    # -- the job --------------------------------------------------------------------------------
    def _job(self) -> Result:
        if not self._is_reachable:
            return skipped("it cannot be reached")
        if self._url.startswith("k8s:"):
            return skipped("a job there needs its own image and rights: run a task with the connection")
        missing = [jars.title for jars in self._jar_sets() if not jars.is_resolved()]
        if missing:
            return skipped(f"the {' and the '.join(missing)} that it needs are not resolved yet")
        with run_folder() as folder:
            folder.keep_log = False
            answer, log = self._run(folder)
        leftover = self._forget(is_made="merged" in answer)
        self._feed, self._confs_of_reading = answer.get("feed"), answer.get("confs")
        self._versions = answer.get("python", {})
        return self._judged(answer, log, leftover)

    def _python(self) -> Result:
        """Check whether Python runs on the executors, with pyarrow: an ingest decodes records there."""
        found = self._versions
        if not found:
            return skipped("no application has looked at Python on the executors")
        if "error" in found:
            why = _reason({"error": [found["name"], found["error"]]})
            return warning(
                f"Python functions do not run on the executors, so no ingest does: {why}",
                "give the executors the Python and the pyarrow of the driver (spark.pyspark.python, or an "
                "archive with a virtual environment).",
            )
        return ok(f"executors have Python {found['python']} with pyarrow {found['pyarrow']}")

    def _defaults(self) -> Result:
        """Check whether tables that sessions of this Spark create have a change data feed."""
        if self._feed is None:
            return skipped("no application has read the confs of its sessions")
        if self._feed.lower() == "true":
            return ok(
                f"{FEED_OF_NEW_TABLES} is true: tables that sessions create here have a change data feed"
            )
        return warning(
            f"{FEED_OF_NEW_TABLES} is {self._feed or 'not set'}: tables that sessions create here have no "
            "change data feed by default",
            "set it to true for each Spark that creates source tables; or turn the feed on for each table, "
            "with DeltaEnableChangeDataFeedOperator.",
        )

    def _reading(self) -> Result:
        """Check the confs by which Delta reads tables otherwise than this package expects."""
        if self._confs_of_reading is None:
            return skipped("no application has read the confs of its sessions")
        found = [
            (name, value, *consequence)
            for name, (wrong, *consequence) in READING.items()
            if wrong((value := self._confs_of_reading.get(name, "")).strip().lower())
        ]
        if not found:
            return ok(f"{' and '.join(READING)} have the values that this package expects")
        problems = "; ".join(f"{name} is {value}: {problem}" for name, value, problem, _ in found)
        return warning(problems, " ".join(remedy for *_, remedy in found))

    def _run(self, folder: RunFolder) -> tuple[dict[str, Any], str]:
        """Run the probe; return its last answer, and the informative lines of Spark's log."""
        directory = folder.path
        request, answer, log = (directory / name for name in ("request.json", "answer.json", "spark.log"))
        content = {
            "remote": self._url if self._is_connect else None,
            "folder": hadoop_uri(self._table) if self._table else None,
            "extension": _DELTA_EXTENSION,
            "delta": DELTA_VERSION_QUERY,
            "java": JAVA_QUERY,
            "feed": FEED_OF_NEW_TABLES,
            "confs": list(READING),
        }
        write_private(request, json.dumps(content))
        probe = directory / "delta_cdc_probe.py"
        shutil.copyfile(_PROBE, probe)
        environment = {**os.environ, **folder.environment(os.environ)}
        if self._is_connect:
            # No JVM is needed; foreign settings of a master must not interfere.
            command = [sys.executable, str(probe)]
            for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "MASTER"):
                environment.pop(name, None)
        else:
            command = [*self._submit(directory, environment), str(probe)]
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [*command, str(request), str(answer)],
                env=environment,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=() if folder.lock is None else (folder.lock,),
            )
            self._process = process
            if not self._is_given_up:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(self._timeout)
            is_over = not self._is_given_up and process.poll() is not None
            # Read the log before the stop: messages of the stop would hide the cause.
            message = _last_message(log)
            stop(process)
        last = codec.parsed(answer.read_text(encoding="utf-8")) if answer.is_file() else {"step": "start"}
        return {**last, "is_over": is_over, "code": process.returncode}, message

    def _give_up(self) -> None:
        """End an application that exceeded its time limit. :meth:`_job` deletes its table."""
        self._is_given_up = True
        if self._process is not None:
            stop(self._process)

    def _jar_sets(self) -> tuple[JarSet, ...]:
        """Return the JARs to pass to Spark."""
        user_jars = self._confs.get("spark.jars") or self._confs.get("spark.jars.packages")
        if self._is_connect or user_jars:
            return ()
        return jar_sets([self._table] if self._table else [])

    def _submit(self, directory: Path, environment: dict[str, str]) -> list[str]:
        """Return the command line; secrets go by the environment and a file that only this user can read."""
        storage = spark_storage(self._options, [self._table] if self._table else [])
        needed = [jar for jars in self._jar_sets() for jar in jars.jars()]
        environment.update({**child_environment(), **storage.environment})
        is_local = self._url.startswith("local")
        confs = {**delta_confs(), **_SMALL, **storage.confs, **storage.public_credentials}
        if is_local:
            # On one machine, Spark needs no copies and no public address.
            confs |= dict.fromkeys(("spark.driver.bindAddress", "spark.driver.host"), "127.0.0.1")
        confs |= {**self._confs, **extensions(self._confs)}
        secrets = storage.secrets(beside_environment=True)
        file = write_private(directory / "spark.properties", properties_text({**secrets, **confs}))
        where = ("--driver-class-path", os.pathsep) if is_local else ("--jars", ",")
        return [
            str(submit_binary()),
            *("--master", self._url, "--name", "delta-cdc doctor", "--properties-file", str(file)),
            "--load-spark-defaults",
            *((where[0], where[1].join(map(str, needed))) if needed else ()),
        ]

    def _forget(self, *, is_made: bool) -> str:
        """Delete the probe's table; return its location if it remains, else "".

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

    def _judged(self, answer: dict[str, Any], log: str, leftover: str) -> Result:
        step, more = f"the step '{answer['step']}'", f"; {log}" if log else ""
        if not answer["is_over"]:
            return failed(
                f"{self._url}: the application did not end within {self._timeout:g} s, at {step}{more}",
                "see whether the cluster has free cores and memory, and whether it reaches this machine's "
                "ports; give a slow one more time with --timeout.",
            )
        if "error" in answer:
            return failed(f"{self._url}: {step} failed: {_reason(answer)}", _remedy(answer))
        if answer["step"] != "done":
            return failed(
                f"{self._url}: the application ended with exit code {answer['code']}, at {step}{more}",
                "run spark-submit by hand with this master to see the whole log.",
            )
        return self._compared(answer, leftover)

    def _compared(self, answer: dict[str, Any], leftover: str) -> Result:
        own_version = spark_version(spark_home()) or ""
        text = f"{self._url}: Spark {answer['version']}"
        if release(answer["version"]) != release(own_version):
            return failed(
                f"{text}; this machine has {own_version}",
                "run one version of Spark on both sides (major.minor).",
            )
        if self._is_connect and _DELTA_EXTENSION not in answer["extensions"]:
            return failed(
                f"{text}, without Delta's extension (spark.sql.extensions is {answer['extensions']!r})",
                "start the server with Delta's JARs on its class path, and with its extension and catalog.",
            )
        if answer.get("delta"):
            text = f"{text}, Delta {answer['delta']}"
            try:
                _, untested = pair_of_a_server(answer["version"], answer["delta"])
            except VersionsUnsupported as error:
                return failed(f"{text}, which is no pair that this package runs on", error.remedy)
            text = f"{text} ({untested})" if untested else text
        if self._table is None:
            return ok(f"{text}, a query ran (name a place with --storage to try a MERGE)")
        if answer.get("merged") != _MERGED:
            return failed(
                f"{text}; after a MERGE {answer.get('merged')} of {_MERGED} rows were right",
                "keep this Spark from writing tables until the reason is clear.",
            )
        if leftover:
            return warning(
                f"{text}, a MERGE ran; its table was left at {leftover}", "delete the folder by hand."
            )
        return ok(f"{text}, a MERGE into a Delta table ran")


def addresses_of(url: str) -> list[tuple[str, int]]:
    """Return the hosts and ports in a URL of a master or server; empty if one of them is missing."""
    text = url.removeprefix("k8s://")
    scheme, _, address_list = (text if "://" in text else f"https://{text}").partition("://")
    default = {"sc": _CONNECT_PORT, "spark": 7077, "http": 80, "https": 443}.get(scheme)
    addresses = []
    for address in re.split("[/;]", address_list)[0].split(","):
        try:
            parts = urlsplit(f"//{address}")
            port = parts.port or default
        except ValueError:
            return []
        if not parts.hostname or port is None:
            return []
        addresses.append((parts.hostname, port))
    return addresses


def _refused(host: str, port: int, timeout: float) -> str:
    """Return why the connection fails; empty if it succeeds."""
    try:
        socket.create_connection((host, port), timeout=min(timeout, 10.0)).close()
    except OSError as error:
        return f"{host}:{port} cannot be reached ({error.strerror or error})"
    return ""


def _last_message(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    important = [line for line in lines if _IMPORTANT.search(line) and not line.startswith(_NOISE)]
    return f"Spark's last message: {important[-1]}" if important else ""


def _reason(answer: Mapping[str, Any]) -> str:
    """Return the reason of an error that another Python process reported."""
    name, text = answer["error"]
    return reason(type(name, (Exception,), {})(text))


def _remedy(answer: Mapping[str, Any]) -> str:
    error = ": ".join(answer["error"])
    absent = "put Delta's JARs on the class path: delta-cdc jars lists them."
    remedies = {
        "UNAUTHENTICATED": "correct the token of the connection.",
        "DATA_SOURCE_NOT_FOUND": absent,
        "ClassNotFound": "put the missing JARs on the class path: delta-cdc jars lists ours.",
        "Permission": "give the user of Spark the right to write there.",
        "AccessDenied": "give the identity of Spark the right to write there.",
    }
    for name, remedy in remedies.items():
        if name in error:
            return remedy
    if answer["step"] == "delta":
        return absent
    if answer["step"] == "merge":
        return "see whether Spark's machines reach the storage, and with whose credentials."
    return "see the log of the server or of the master for the whole error."
