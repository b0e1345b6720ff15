"""The submit hook: Airflow's own, but strict about connections and with a filtered log of Spark.

Only this module uses private attributes of Airflow's hook, because some facts of a run have no public name.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import signal
import subprocess
import threading
from collections import deque
from contextlib import ExitStack
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import DEFAULT_SPARK_BINARY, SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException, AirflowNotFoundException

from airflow_delta_cdc import engine
from airflow_delta_cdc.hooks.table import extra_of, is_true
from delta_cdc.core import private_files
from delta_cdc.core.errors import (
    DeployModeUnsupported,
    EnvironmentNotReady,
    InvalidConfiguration,
    JobFailed,
    SparkConnectionNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from delta_cdc.launch.run_folder import RunFolder

#: The arguments of Airflow's :class:`SparkSubmitOperator` that an operator accepts; the hook has the same
#: names. The provider itself sets the others (``application``, ``java_class``, …).
SUBMIT_ARGUMENTS = (
    "archives",
    "conf",
    "deploy_mode",
    "driver_class_path",
    "driver_memory",
    "env_vars",
    "exclude_packages",
    "executor_cores",
    "executor_memory",
    "files",
    "jars",
    "keytab",
    "name",
    "num_executors",
    "packages",
    "post_submit_commands",
    "principal",
    "properties_file",
    "proxy_user",
    "py_files",
    "repositories",
    "spark_binary",
    "status_poll_interval",
    "total_executor_cores",
    "track_driver_via_k8s_api",
    "use_krb5ccache",
    "verbose",
    "yarn_queue",
    "yarn_rm_auth",
    "yarn_track_via_rm_api",
)

#: The default confs of every session and application; the user's confs win.
UTC = {"spark.sql.session.timeZone": "UTC"}

#: The master of a run without a connection.
EMBEDDED_MASTER = "local[*]"

#: The number of log lines kept to explain an application that died without a result.
TAIL_LINES = 20

#: Seconds for a killed application to stop, and for a cluster to answer a kill request. Airflow's supervisor
#: ends a task by SIGKILL 5 s after SIGTERM.
KILL_GRACE = 3.0
#: The same, after an error in the task, as a timeout: no supervisor waits.
CLUSTER_KILL_TIMEOUT = 30.0

#: The confs that make ``spark-submit`` wait for the end of its application.
_WAITS_ON_KUBERNETES = "spark.kubernetes.submission.waitAppCompletion"
_WAITS_ON_YARN = "spark.yarn.submit.waitAppCompletion"
#: The statuses of an application on a cluster that has not ended.
_ACTIVE_ON_KUBERNETES = ("PENDING", "RUNNING")
_ACTIVE_ON_YARN = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")

#: The exit codes after a crash of the JVM, as a parent process and as a shell see them.
CRASHES = (-6, -7, -11, 134, 135, 139)
_KILLED = "it was killed, probably by the kernel, because the memory of the machine or container ran out"
#: What exit codes show of the cause.
_CAUSES = {
    -9: _KILLED,
    137: _KILLED,
    52: "Spark ended it after an OutOfMemoryError of Java",
    **dict.fromkeys(CRASHES, "the JVM crashed"),
}

#: The connection types of Airflow's hook: the field of the form, or the scheme of a connection as a URI.
_CONN_TYPES = ("spark", "yarn", "k8s", "local")

_NOISE_STARTS = ("at ", "... ", ":: ", "Using Spark's default log4j", "Setting default log level")
_NOISE_LEVELS = (" INFO ", " DEBUG ")


class DeltaCdcSubmitHook(SparkSubmitHook):
    """Run ``spark-submit`` with an absolute binary, a complete child environment and a filtered log.

    :param conn_id: Spark connection, or None for a local Spark inside the worker (``local[*]``)
    :param log_file: file for every line of Spark's output; None logs the lines only at debug level
    :param kwargs: the other arguments of :class:`SparkSubmitHook`
    :raises SparkConnectionNotFound: the named connection doesn't exist. (The base hook would go on with
        master ``yarn``.)
    :raises DeployModeUnsupported: the connection cannot run a Python application in this deploy mode
    :raises EnvironmentNotReady: a package that the connection's master needs is not installed here
    """

    def __init__(self, *, conn_id: str | None, log_file: Path | None = None, **kwargs: Any) -> None:
        self._log_file = log_file
        self._extra: dict[str, Any] = {}
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._killed = False
        self._private_environment: dict[str, str] = {}
        self._load_spark_defaults = False
        self._folder: RunFolder | None = None
        self._secrets: list[Path] = []
        super().__init__(conn_id=conn_id or "", **kwargs)
        self._yarn_track_via_rm_api = self._yarn_track_via_rm_api or self._extra_flag(
            "yarn_track_via_rm_api", default=bool(self._extra.get(self._YARN_RM_WEBAPP_ADDRESS_EXTRA_KEY))
        )
        self._track_driver_via_k8s_api = self._track_driver_via_k8s_api or self._extra_flag(
            "track_driver_via_k8s_api", default=False
        )

    # -- the kind of run ------------------------------------------------------------------------
    @property
    def master(self) -> str:
        """Return the master URL."""
        return str(self._connection["master"])

    @property
    def is_cluster(self) -> bool:
        """Return whether the driver runs on the cluster, not in this worker."""
        return bool(self._connection["deploy_mode"] == "cluster")

    @property
    def is_kubernetes(self) -> bool:
        """Return whether the master is Kubernetes."""
        return bool(self._is_kubernetes)

    @property
    def is_tracked(self) -> bool:
        """Return whether a retry can find a running application again."""
        return self.is_cluster and (
            (self._is_yarn and self._yarn_track_via_rm_api)
            or (self._is_kubernetes and self._track_driver_via_k8s_api)
        )

    @property
    def confs(self) -> dict[str, Any]:
        """The confs for ``spark-submit``."""
        return self._conf

    @confs.setter
    def confs(self, confs: Mapping[str, Any]) -> None:
        self._conf = dict(confs)

    @property
    def properties_file(self) -> str | None:
        """Return the path of the properties file for ``spark-submit``."""
        return self._properties_file

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of ``spark-submit``; None if it has not ended, or was never started."""
        return self._submit_sp.returncode if self._submit_sp is not None else None

    @property
    def was_killed(self) -> bool:
        """Return whether :meth:`on_kill` stopped the application."""
        return self._killed

    def connection_setting(self, name: str) -> Any:
        """Return a setting: the argument, or else the value in the connection's extra."""
        return self._connection.get(name)

    # -- connection -----------------------------------------------------------------------------
    def _resolve_connection(self) -> dict[str, Any]:
        if not self._conn_id:
            return self._embedded_connection()
        try:
            connection = self.get_connection(self._conn_id)
        except AirflowNotFoundException as error:
            raise SparkConnectionNotFound(
                f"The Spark connection {self._conn_id!r} does not exist.",
                remedy="create it (connection type spark), or leave spark_conn_id out to run Spark inside "
                "the worker.",
            ) from error
        self._extra = extra_of(connection)
        if connection.conn_type == "spark_connect":
            raise DeployModeUnsupported(
                f"The connection {self._conn_id!r} is a Spark Connect connection, and applications are "
                "started by spark-submit.",
                remedy="name a connection of type spark.",
            )
        if connection.conn_type not in _CONN_TYPES:
            raise InvalidConfiguration(
                f"The connection {self._conn_id!r} is of type {connection.conn_type}, not of type spark.",
                remedy="name a connection of type spark in spark_conn_id.",
            )
        if connection.conn_type == "spark" and not connection.host:
            raise InvalidConfiguration(
                f"The connection {self._conn_id!r} has no host.",
                remedy="enter the master there, such as yarn, spark://host:7077 or k8s://https://host:443.",
            )
        resolved = super()._resolve_connection()
        self._refuse_impossible(resolved)
        return resolved

    def _embedded_connection(self) -> dict[str, Any]:
        if self._deploy_mode == "cluster":
            raise DeployModeUnsupported(
                "deploy_mode is cluster, but no connection names the cluster. Without a connection, Spark "
                "runs in the worker.",
                remedy="set spark_conn_id to a connection (a template may be empty), or remove deploy_mode.",
            )
        return {
            "master": EMBEDDED_MASTER,
            "queue": None,
            "deploy_mode": None,
            "spark_binary": self.spark_binary or DEFAULT_SPARK_BINARY,
            "namespace": None,
            "principal": self._principal,
            "keytab": self._keytab,
            "rest_scheme": "http",
            "rest_port": 6066,
            "rest_endpoint": None,
        }

    def _refuse_impossible(self, resolved: dict[str, Any]) -> None:
        master, mode = str(resolved["master"]), resolved["deploy_mode"]
        if mode not in (None, "", "client", "cluster"):
            raise InvalidConfiguration(
                f"The connection {self._conn_id!r} sets deploy mode {mode!r}.",
                remedy="set deploy-mode in its extra to client or cluster.",
            )
        if mode == "cluster" and (master.startswith(("spark://", "local"))):
            raise DeployModeUnsupported(
                f"The connection {self._conn_id!r} sets deploy mode cluster on {master}, which Spark does "
                "not support for Python applications.",
                remedy="use deploy mode client, or a YARN or Kubernetes master.",
            )
        if "k8s" in master and not _installed("airflow.providers.cncf.kubernetes"):
            raise EnvironmentNotReady(
                f"The connection {self._conn_id!r} names the Kubernetes master {master}, and the "
                "Kubernetes provider is not installed here.",
                remedy="install apache-airflow-providers-cncf-kubernetes on the worker.",
            )

    def _extra_flag(self, name: str, *, default: bool) -> bool:
        return is_true(self._extra.get(name, self._extra.get(name.replace("_", "-"), default)))

    # -- command and environment ----------------------------------------------------------------
    def _get_spark_binary_path(self) -> list[str]:
        binary = self._connection["spark_binary"]
        if binary in (None, DEFAULT_SPARK_BINARY):
            return [str(engine.submit_binary())]
        path = shutil.which(binary)
        if path is None:
            raise EnvironmentNotReady(
                f"The connection {self._conn_id!r} wants {binary}, which is not on the worker's PATH.",
                remedy="install it there, or remove spark-binary from the connection's extra.",
            )
        return [path]

    def _build_spark_submit_command(self, application: str) -> list[str]:
        command = [
            *self._get_spark_binary_path(),
            *self._build_spark_common_args(),
            *(["--load-spark-defaults"] if self._load_spark_defaults else []),
            application,
            *(self._application_args or []),
        ]
        self._env = {
            **engine.child_environment(driver_here=not self.is_cluster),
            **self._private_environment,
            **({} if self.is_cluster else {private_files.VARIABLE: os.pathsep.join(map(str, self._secrets))}),
            **(self._env or {}),
        }
        self.log.debug("spark-submit command: %s", self._mask_cmd(command))
        return command

    def add_private_environment(self, variables: Mapping[str, str]) -> None:
        """Set variables of the child process only. (The base class also makes confs of ``env_vars``.)"""
        self._private_environment.update(variables)

    def add_private_file(self, path: Path) -> Path:
        """Let Spark delete a file with secrets as soon as it has read the file; return its path."""
        self._secrets.append(path)
        return path

    def hold(self, folder: RunFolder) -> None:
        """Let the child process hold the lock of the run's folder, and keep its temporary files there."""
        self._folder = folder
        if not self.is_cluster:
            # What the child's environment lacks, it takes from the worker's.
            self.add_private_environment(folder.environment(os.environ))

    def use_private_properties(self, write: Callable[[str], Path]) -> None:
        """Pass confs to ``spark-submit`` by a file that includes the user's own properties file.

        :param write: writes the file, given the text of the user's file, and returns its path
        :raises InvalidConfiguration: the user's file cannot be read
        """

        own = self._properties_file
        path = write(engine.properties_file_text(own) if own else "")
        self._properties_file = str(self.add_private_file(path))
        # Without a properties file, spark-submit would have read its defaults.
        self._load_spark_defaults = not own

    def use_files(
        self,
        *,
        application_args: list[str],
        py_files: str,
        files: str | None = None,
        jars: str | None = None,
    ) -> None:
        """Set the files of a run; each replaces that of the constructor, unless it is None.

        :param application_args: arguments of the application
        """
        self._application_args = application_args
        self._py_files = py_files
        self._files = files if files is not None else self._files
        self._jars = jars if jars is not None else self._jars

    @property
    def driver_class_path(self) -> str | None:
        """The class path of the driver."""
        return self._driver_class_path

    @driver_class_path.setter
    def driver_class_path(self, class_path: str | None) -> None:
        self._driver_class_path = class_path

    # -- running --------------------------------------------------------------------------------
    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Run the application; return the driver's id if the cluster has one.

        In client mode, the call returns when the application ends.

        :param application: path or URI of the application file
        :raises JobFailed: ``spark-submit`` ended with an error; the message holds the exit code and at most
            the last 20 lines that may explain it
        """
        if self._killed:
            raise self._job_failed()
        # In an own process group, so that the JVM, its Python driver and the shell are killed together.
        kwargs.setdefault("start_new_session", True)
        # Any byte may be in the output, as that of a native library.
        kwargs.setdefault("encoding", "utf-8")
        kwargs.setdefault("errors", "replace")
        if self._folder is not None and self._folder.lock is not None:
            kwargs.setdefault("pass_fds", (self._folder.lock,))
        try:
            return super().submit(application, **kwargs)
        except AirflowException as error:
            raise self._job_failed() from error
        except BaseException:
            # Airflow calls on_kill after a timeout, too. But a process that has ended is no sign any more of
            # an application that runs on a cluster.
            self._stop(CLUSTER_KILL_TIMEOUT)
            raise

    def _job_failed(self) -> JobFailed:
        process = self._submit_sp
        if self._killed:
            return JobFailed("The Spark application was killed.", remedy="clear the task to run it again.")
        code = process.returncode if process is not None else None
        where = f" The whole log of Spark is in {self._log_file}." if self._log_file else ""
        tail = "".join(f"\n    {line}" for line in self._tail)
        cause = f" ({_CAUSES[code]})" if code in _CAUSES else ""
        remedy = "see the lines above; a retry is safe, whatever the application had written."
        if cause and code not in CRASHES:
            remedy = (
                "give the driver more memory (driver_memory), or the job less work at once; a retry is safe, "
                "whatever the application had written."
            )
        return JobFailed(
            f"The Spark application on {self.master} ended with exit code {code}{cause} and without a result."
            f"{where}{tail}\n",
            remedy=remedy,
        )

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        log = self.log
        if self._killed:
            # While the process was being started.
            self._stop(KILL_GRACE)
        # The base class reads application ids from the lines, and logs every line at INFO: make that DEBUG.
        self._log = _Quiet(log)  # type: ignore[assignment]
        try:
            super()._process_spark_submit_log(self._sorted_lines(itr, log))
        finally:
            self._log = log

    def _sorted_lines(self, lines: Iterable[str], log: Any) -> Iterator[str]:
        """Log the engine's lines, write every line to the file, and keep those that may explain an error."""
        with ExitStack() as stack:
            write = self._file_writer(stack, log)
            for raw in lines:
                line = raw.rstrip("\r\n")
                write(line)
                if line.startswith(engine.LINE_PREFIX):
                    log.info("%s", line[len(engine.LINE_PREFIX) :])
                    continue
                if _may_explain(line):
                    self._tail.append(line.strip())
                yield line
                if self.is_cluster and self._yarn_application_id:
                    # spark-submit has sent the confs to the cluster. Only then does it print the id.
                    self._delete_secrets()

    def _file_writer(self, stack: ExitStack, log: Any) -> Callable[[str], None]:
        """Return a function that appends a line to the file of the log; a full disk ends the file, not Spark.

        :param stack: closes the file
        """
        if self._log_file is None:
            return lambda _: None
        # Without a buffer: if an application hangs, its last line helps most.
        target = stack.enter_context(self._log_file.open("ab", buffering=0))
        is_whole = True

        def write(line: str) -> None:
            nonlocal is_whole
            if not is_whole:
                return
            try:
                target.write(f"{line}\n".encode())
            except OSError as error:
                is_whole = False
                log.warning("The log of Spark ends here, because its file cannot be written: %s", error)

        return write

    def _delete_secrets(self) -> None:
        while self._secrets:
            self._secrets.pop().unlink(missing_ok=True)

    # -- an application of a cluster that a retry finds again (is_tracked) ------------------------
    def submit_tracked(self, application: str) -> str:
        """Submit an application, and return its id without waiting for its end.

        :raises JobFailed: ``spark-submit`` ended with an error
        :raises RuntimeError: ``spark-submit`` printed no id
        :raises InvalidConfiguration: a conf makes ``spark-submit`` wait for the end
        """
        waits = _WAITS_ON_KUBERNETES if self.is_kubernetes else _WAITS_ON_YARN
        if not self.is_kubernetes and str(self._conf.get(waits, "")).strip().lower() == "true":
            raise InvalidConfiguration(
                f"The conf {waits} is true. A retry can only find the application if spark-submit ends as "
                "soon as the application has an id.",
                remedy="remove the conf, or set durable=False.",
            )
        self._conf[waits] = "false"
        self.submit(application)
        if not self.is_kubernetes:
            return _required(self._yarn_application_id, "YARN application id")
        return f"{self._connection['namespace']}:{_required(self._kubernetes_driver_pod, 'driver pod')}"

    def status_of(self, external_id: str) -> str:
        """Return the status of an application: YARN's status, or the phase of its driver pod.

        :param external_id: the id that :meth:`submit_tracked` returned
        """
        if not self.is_kubernetes:
            return self.query_yarn_application_status(external_id)
        # Imported here, because it is slow and not installed everywhere.
        kube_client = importlib.import_module("airflow.providers.cncf.kubernetes.kube_client")
        namespace, _, pod = external_id.partition(":")
        try:
            driver_pod = kube_client.get_kube_client().read_namespaced_pod(pod, namespace)
        except kube_client.ApiException as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return "NotFound"
            raise
        return str(driver_pod.status.phase or "Pending")

    def is_active(self, status: str) -> bool:
        """Return whether an application of this status runs, or will run."""
        return status.upper() in (_ACTIVE_ON_KUBERNETES if self.is_kubernetes else _ACTIVE_ON_YARN)

    def wait_for(self, external_id: str) -> bool:
        """Wait for the end of an application.

        :return: whether the hook saw its end; a pod may vanish earlier
        :raises RuntimeError: the application failed, or cannot be tracked any more
        """
        if self.is_kubernetes:
            self._kubernetes_driver_pod = external_id.partition(":")[2]
            return self._poll_k8s_driver_via_api() == "Succeeded"
        # Of an application that an earlier try submitted: on_kill needs it.
        self._yarn_application_id = external_id
        try:
            self._start_yarn_application_status_tracking(external_id)
        finally:
            self._run_post_submit_commands()
        return True

    # -- killing --------------------------------------------------------------------------------
    def on_kill(self) -> None:
        """Stop the application, if one was started, within a bounded time: by signal, or by the cluster.

        A signal handler calls this method, so it looks up no connection.
        """
        self._killed = True
        self._stop(KILL_GRACE)

    def _stop(self, wait: float) -> None:
        """Stop the application, if one was started.

        :param wait: the most seconds for the answer of a cluster. The request goes on in the background
        """
        found_again = self._yarn_application_id or self._kubernetes_driver_pod
        if self._submit_sp is None and not found_again:
            return
        slow = False
        if self.is_cluster:
            # The base class waits for commands of the cluster without a limit.
            killer = threading.Thread(target=super().on_kill, daemon=True)
            killer.start()
            killer.join(wait)
            slow = killer.is_alive()
        stopped = self._stop_process()
        # Only now: the signal may have come while the task was writing its log.
        if slow:
            self.log.warning("The cluster did not confirm the kill within %s s.", wait)
        if not stopped:
            self.log.warning("The Spark application did not stop within %s s; it was killed.", KILL_GRACE)

    def _stop_process(self) -> bool:
        """Stop ``spark-submit``, and its children; return whether it stopped by itself."""
        process = self._submit_sp
        if process is None or process.poll() is not None:
            return True
        stopped = True
        _signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=KILL_GRACE)
        except subprocess.TimeoutExpired:
            stopped = False
        # Also after a clean end of the JVM, because its Python driver is in the same group.
        _signal_group(process.pid, signal.SIGKILL)
        return stopped


class _Quiet:
    """A logger that logs ``info`` messages at debug level."""

    def __init__(self, log: Any) -> None:
        self._inner = log

    def info(self, message: str, *args: Any, **kwargs: Any) -> None:
        # Lines of a driver may hold percent signs.
        if args:
            self._inner.debug(message, *args, **kwargs)
        else:
            self._inner.debug("%s", message, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _required(value: str | None, description: str) -> str:
    if not value:
        raise RuntimeError(f"spark-submit gave no {description}.")
    return value


def _may_explain(line: str) -> bool:
    text = line.strip()
    return (
        bool(text) and not text.startswith(_NOISE_STARTS) and not any(n in line[:60] for n in _NOISE_LEVELS)
    )


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        # The whole group has ended already.
        return


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
