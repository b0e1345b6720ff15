"""A Spark session in the worker's own process, for tasks that hand a DataFrame to a function."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine
from airflow_delta_cdc.hooks.connect import DeltaCdcConnectHook, is_connect
from airflow_delta_cdc.runtime.connect import interrupt, refuse_arguments, session_confs
from airflow_delta_cdc.runtime.submit import hands_over_jars, submit_hook
from airflow_delta_cdc.runtime.submit_hook import SUBMIT_ARGUMENTS, UTC
from delta_cdc.core.errors import DeployModeUnsupported, InvalidConfiguration
from delta_cdc.core.storage_options import spark_storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from airflow_delta_cdc.operators.base import DeltaCdcOperator
    from airflow_delta_cdc.runtime.submit_hook import DeltaCdcSubmitHook

_JARS = "spark.jars"
#: Arguments of ``spark-submit``, and the confs by which a session takes them.
_AS_CONFS = {
    "driver_memory": "spark.driver.memory",
    "exclude_packages": "spark.jars.excludes",
    "executor_cores": "spark.executor.cores",
    "executor_memory": "spark.executor.memory",
    "jars": _JARS,
    "keytab": "spark.kerberos.keytab",
    "num_executors": "spark.executor.instances",
    "packages": "spark.jars.packages",
    "principal": "spark.kerberos.principal",
    "repositories": "spark.jars.repositories",
    "total_executor_cores": "spark.cores.max",
    "yarn_queue": "spark.yarn.queue",
}
#: Those that are about a process of ``spark-submit``, which there is not.
_FOR_SUBMITTING = (
    "openlineage_inject_parent_job_info",
    "openlineage_inject_transport_info",
    *(
        name
        for name in SUBMIT_ARGUMENTS
        if name not in (*_AS_CONFS, "conf", "deploy_mode", "name", "status_poll_interval", "verbose")
    ),
)
#: What a connection's extras say of the same.
_OF_CONNECTION = {
    "queue": "spark.yarn.queue",
    "namespace": "spark.kubernetes.namespace",
    "keytab": "spark.kerberos.keytab",
    "principal": "spark.kerberos.principal",
}


def refuse_submit_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that only a process of ``spark-submit`` could honour.

    :param arguments: as the operator was given them
    :raises InvalidConfiguration: names those that are set
    """
    given = [name for name in _FOR_SUBMITTING if arguments.get(name)]
    if given:
        raise InvalidConfiguration(
            f"{', '.join(given)} given, and Spark starts in the worker's own process, without spark-submit.",
            remedy="say it with conf, or by the worker's environment; or use DeltaReadChangesOperator and a "
            "task of your own.",
        )


class WorkerSession:
    """Starts Spark in this process when it is first needed, and stops it at the end.

    Without a connection that is a local Spark; a connection of type ``spark`` names the master, one of type
    ``spark_connect`` a server.

    :param operator: whose connection, confs and JARs count
    :param name: of the session
    :param directory: a folder that only this user can read, for as long as the session lives
    """

    def __init__(self, operator: DeltaCdcOperator, directory: Path, name: str) -> None:
        self._operator = operator
        self._name = name
        self._directory = directory
        self._hook: DeltaCdcSubmitHook | None = None
        self._spark: SparkSession | None = None
        self._stack = contextlib.ExitStack()

    @property
    def master(self) -> str:
        """Return where Spark runs; a server's address for Spark Connect.

        :raises SparkConnectionNotFound: the named connection doesn't exist
        """
        remote = self._remote()
        return remote.server if remote is not None else self._submit_hook().master

    def get(self, locations: Iterable[str]) -> SparkSession:
        """Return the session.

        :param locations: of the tables; a new session gets the confs of their storage
        :raises DeployModeUnsupported: the connection starts drivers elsewhere
        """
        if self._spark is None:
            self._spark = self._started(list(locations))
        return self._spark

    def kill(self) -> None:
        """Interrupt what runs on a server; a Spark of the worker's own ends with its process."""
        if self._spark is not None and engine.is_connect_session(self._spark):
            interrupt(self._spark, self._operator.log)

    def stop(self) -> None:
        """Stop the session, if it was started."""
        self._stack.close()

    # -- starting -------------------------------------------------------------------------------
    def _started(self, locations: list[str]) -> SparkSession:
        remote = self._remote()
        if remote is not None:
            refuse_arguments(self._operator)
            return self._stack.enter_context(remote.session(session_confs(self._operator)))
        hook = self._submit_hook()
        if hook.is_cluster:
            raise DeployModeUnsupported(
                f"The connection {self._operator.spark_conn_id!r} asks for deploy mode cluster, and the "
                "function of this task runs in the worker, with the driver.",
                remedy="use deploy mode client, or DeltaReadChangesOperator and a task of your own.",
            )
        storage = spark_storage(self._operator.options_of_storage(), locations)
        is_local = hook.master.startswith("local")
        with engine.storage_confs(storage, self._directory, is_local=is_local) as confs:
            self._stack.callback(self._stop_own)
            return self._classic(hook, confs, locations)

    def _stop_own(self) -> None:
        if self._spark is not None:
            self._spark.stop()

    def _classic(
        self, hook: DeltaCdcSubmitHook, confs: Mapping[str, str], locations: list[str]
    ) -> SparkSession:
        asked = {**self._of_connection(hook), **self._of_operator()}
        own = {**confs, **asked, **(self._operator.conf or {})}
        if not self._operator.spark_conn_id:
            # Delta is among the JARs of the user's own.
            jars = not (self._operator.packages or self._operator.jars)
            return engine.embedded_session(self._name, locations=locations, jars=jars, **own)
        from pyspark.sql import SparkSession

        os.environ.update(engine.child_environment())
        everything = {**engine.delta_confs(), **UTC, **own, **self._jars(locations)}
        return _built(SparkSession.builder.master(hook.master).appName(self._name), everything)

    def _of_operator(self) -> dict[str, str]:
        """Return the confs that mean what the operator was given as arguments."""
        found = {conf: getattr(self._operator, name) for name, conf in _AS_CONFS.items()}
        return {conf: str(value) for conf, value in found.items() if value}

    @staticmethod
    def _of_connection(hook: DeltaCdcSubmitHook) -> dict[str, str]:
        found = {conf: hook.of_connection(name) for name, conf in _OF_CONNECTION.items()}
        return {conf: str(value) for conf, value in found.items() if value}

    def _jars(self, locations: list[str]) -> dict[str, str]:
        """Return where the session gets Delta from, and what the user's conf adds; arguments win."""
        if self._operator.packages or self._operator.jars or not hands_over_jars():
            return {}

        jars = [
            *map(str, engine.needed_jars(locations)),
            engine.spark_default(_JARS, self._operator.conf or {}),
        ]
        return {_JARS: ",".join(filter(None, jars))}

    def _submit_hook(self) -> DeltaCdcSubmitHook:
        if self._hook is None:
            self._hook = submit_hook(self._operator)
        return self._hook

    def _remote(self) -> DeltaCdcConnectHook | None:
        conn_id = self._operator.spark_conn_id
        return DeltaCdcConnectHook(conn_id) if conn_id and is_connect(conn_id) else None


def _built(builder: Any, confs: Mapping[str, Any]) -> SparkSession:
    made: SparkSession = builder.config(map=dict(confs)).getOrCreate()
    return made
