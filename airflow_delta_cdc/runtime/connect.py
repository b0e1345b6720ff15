"""Run jobs over Spark Connect: the engine in the worker's process, the statements in a running server."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine
from airflow_delta_cdc.hooks.connect import DeltaCdcConnectHook
from airflow_delta_cdc.hooks.submit import KILL_GRACE, SUBMIT_ARGUMENTS, UTC
from airflow_delta_cdc.runtime.manifests import manifests_for, scratch_for
from delta_cdc.core.errors import InvalidConfiguration, JobFailed

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import Logger
    from pyspark.sql import SparkSession

    from airflow_delta_cdc.runtime.task import SparkTask
    from delta_cdc.core.spec import JobResult, Spec

#: Arguments that a server can ignore; all others need an own application, which Spark Connect does not start.
_HARMLESS = (
    "conf",
    "name",
    "status_poll_interval",
    "track_driver_via_k8s_api",
    "verbose",
    "yarn_rm_auth",
    "yarn_track_via_rm_api",
)


def refuse_arguments(operator: SparkTask) -> None:
    """Refuse arguments that have no effect on a running server.

    :raises InvalidConfiguration: names the arguments that are set
    """
    refused = [name for name in SUBMIT_ARGUMENTS if name not in _HARMLESS and getattr(operator, name)]
    if refused:
        raise InvalidConfiguration(
            f"{', '.join(refused)} cannot be set, because the connection {operator.spark_conn_id!r} names a "
            "Spark Connect server, which is already running.",
            remedy="remove these arguments, and configure the server.",
        )


def session_confs(operator: SparkTask) -> dict[str, Any]:
    """Return the confs of an operator's session."""
    return {**UTC, **(operator.conf or {})}


def interrupt(spark: SparkSession, log: Logger) -> None:
    """End an own session and its clones, within :data:`KILL_GRACE` seconds."""
    # In a thread: the server may not answer, and a signal handler must end.
    killer = threading.Thread(target=engine.end_session, args=(spark,), daemon=True)
    killer.start()
    killer.join(KILL_GRACE)
    if killer.is_alive():
        log.warning("The server did not confirm the kill within %s s.", KILL_GRACE)


class ConnectRuntime:
    """Run specs over Spark Connect.

    The engine runs in the worker, its statements in the server. If the worker dies, no application is left to
    find again: the target's log shows whether the job committed.

    :param operator: provides the connection and confs
    """

    def __init__(self, operator: SparkTask) -> None:
        self._operator = operator
        self._hook = DeltaCdcConnectHook(str(operator.spark_conn_id))
        self._spark: SparkSession | None = None
        self._killed = False

    @property
    def master(self) -> str:
        """Return the server's address."""
        return self._hook.server

    def run(self, context: Context, spec: Spec) -> JobResult:
        """Run one spec in an own session; see :class:`~airflow_delta_cdc.runtime.SparkRuntime`."""

        operator, master = self._operator, self.master
        refuse_arguments(operator)
        options = operator.options_of_storage()
        kafka = operator.options_of_kafka() if spec.reads_topics else None
        if options:
            operator.log.debug(
                "The task uses the storage connection only to read logs. Spark on %s has its own identity.",
                master,
            )
        with (
            manifests_for(spec, master, Path(), options=options, log=operator.log) as ready,
            scratch_for(spec, options=options, log=operator.log) as scratch,
        ):
            self._stop_if_killed()
            operator.log.info("Running on %s", master)
            with self._hook.session(session_confs(operator)) as spark:
                self._spark = spark
                try:
                    self._stop_if_killed()
                    result = engine.run_spec(
                        spark, ready, storage_options=options, kafka_options=kafka, scratch=scratch
                    )
                    self._stop_if_killed()
                except BaseException:
                    # After a timeout of the task, parts of a group may still run.
                    interrupt(spark, operator.log)
                    raise
                finally:
                    self._spark = None
        return result

    def kill(self) -> None:
        """Interrupt the job's operations on the server, and keep the job from starting others."""
        self._killed = True
        spark = self._spark
        if spark is None:
            return
        interrupt(spark, self._operator.log)

    def _stop_if_killed(self) -> None:
        if self._killed:
            raise JobFailed(
                "The task was killed; its job on Spark Connect was interrupted.",
                remedy="clear the task to run it again. The new try finds a commit that was already made.",
            )
