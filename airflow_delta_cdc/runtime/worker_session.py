"""A Spark session in the worker's own process, for tasks that pass a DataFrame to a function."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine
from airflow_delta_cdc.hooks.connect import DeltaCdcConnectHook, is_connect
from airflow_delta_cdc.hooks.submit import SUBMIT_ARGUMENTS, UTC
from airflow_delta_cdc.runtime.connect import interrupt, refuse_arguments, session_confs
from airflow_delta_cdc.runtime.submit import hands_over_jars, submit_hook
from delta_cdc.core.errors import DeployModeUnsupported, InvalidConfiguration
from delta_cdc.core.storage_options import spark_storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from airflow_delta_cdc.hooks.submit import DeltaCdcSubmitHook
    from airflow_delta_cdc.runtime.task import SparkTask

_JARS = "spark.jars"
#: Arguments of ``spark-submit``, and the confs with the same effect on a session.
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
#: Arguments that only a process of ``spark-submit`` has a use for.
_FOR_SUBMITTING = (
    "openlineage_inject_parent_job_info",
    "openlineage_inject_transport_info",
    *(
        name
        for name in SUBMIT_ARGUMENTS
        if name not in (*_AS_CONFS, "conf", "deploy_mode", "name", "status_poll_interval", "verbose")
    ),
)
#: Extras of a connection, and the confs with the same effect on a session.
_OF_CONNECTION = {
    "queue": "spark.yarn.queue",
    "namespace": "spark.kubernetes.namespace",
    "keytab": "spark.kerberos.keytab",
    "principal": "spark.kerberos.principal",
}


def refuse_submit_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that only a process of ``spark-submit`` could use.

    :param arguments: arguments of the operator
    :raises InvalidConfiguration: names the arguments that are set
    """
    names = [name for name in _FOR_SUBMITTING if arguments.get(name)]
    if names:
        raise InvalidConfiguration(
            f"{', '.join(names)} cannot be set, because Spark starts in the worker's process, without "
            "spark-submit.",
            remedy="use conf or the worker's environment. Or use DeltaReadChangesOperator and your own task.",
        )


class WorkerSession:
    """Start Spark in this process when it is first needed, and stop it at the end.

    Without a connection, Spark runs locally. A connection of type ``spark`` names the master, one of type
    ``spark_connect`` the server.

    :param operator: provides the connection, confs and JARs
    :param name: name of the session
    :param directory: a folder that only this user can read and that outlives the session
    """

    def __init__(self, operator: SparkTask, directory: Path, name: str) -> None:
        self._operator = operator
        self._name = name
        self._directory = directory
        self._hook: DeltaCdcSubmitHook | None = None
        self._spark: SparkSession | None = None
        self._stack = contextlib.ExitStack()

    @property
    def master(self) -> str:
        """Return the master URL, or the server's address for Spark Connect.

        :raises SparkConnectionNotFound: the named connection doesn't exist
        """
        remote = self._remote()
        return remote.server if remote is not None else self._submit_hook().master

    def get(self, locations: Iterable[str]) -> SparkSession:
        """Return the session.

        :param locations: locations of the tables; a new session gets the confs of their storage
        :raises DeployModeUnsupported: the connection starts drivers on the cluster
        """
        if self._spark is None:
            self._spark = self._started(list(locations))
        return self._spark

    def kill(self) -> None:
        """Interrupt the operations on a server. A Spark in the worker ends with the worker's process."""
        if self._spark is not None and engine.is_connect_session(self._spark):
            interrupt(self._spark, self._operator.log)

    def stop(self) -> None:
        """Stop the session, if it was started.

        An error of this, such as that of a JVM which died, is no error of the work: that is committed, or has
        failed with its own error.
        """
        try:
            self._stack.close()
        except Exception as error:  # noqa: BLE001 - whatever Spark raises: it ends with the process
            self._operator.log.warning("The Spark session could not be stopped: %s", error)

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
        task_confs = {**self._connection_confs(hook), **self._operator_confs()}
        own = {**confs, **task_confs, **(self._operator.conf or {})}
        if not self._operator.spark_conn_id:
            # The user's own JARs contain Delta.
            jars = not (self._operator.packages or self._operator.jars)
            return engine.get_session(self._name, locations=locations, jars=jars, **own)
        from pyspark.sql import SparkSession

        os.environ.update(engine.child_environment())
        everything = {**engine.delta_confs(), **UTC, **own, **engine.extensions(own), **self._jars(locations)}
        return _built(SparkSession.builder.master(hook.master).appName(self._name), everything)

    def _operator_confs(self) -> dict[str, str]:
        """Return the confs with the same effect as the operator's arguments."""
        values = {conf: getattr(self._operator, name) for name, conf in _AS_CONFS.items()}
        return {conf: str(value) for conf, value in values.items() if value}

    @staticmethod
    def _connection_confs(hook: DeltaCdcSubmitHook) -> dict[str, str]:
        values = {conf: hook.connection_setting(name) for name, conf in _OF_CONNECTION.items()}
        return {conf: str(value) for conf, value in values.items() if value}

    def _jars(self, locations: list[str]) -> dict[str, str]:
        """Return the conf with the provider's JARs and those of the user's conf; arguments replace both."""
        if self._operator.packages or self._operator.jars or not hands_over_jars():
            return {}

        jars = [
            *map(str, engine.needed_jars(locations)),
            engine.spark_default(_JARS, self._operator.conf or {}),
        ]
        of_log_store = engine.log_store_confs(self._operator.conf or {})
        return {_JARS: ",".join(filter(None, jars)), **of_log_store}

    def _submit_hook(self) -> DeltaCdcSubmitHook:
        if self._hook is None:
            self._hook = submit_hook(self._operator)
        return self._hook

    def _remote(self) -> DeltaCdcConnectHook | None:
        conn_id = self._operator.spark_conn_id
        return DeltaCdcConnectHook(conn_id) if conn_id and is_connect(conn_id) else None


def _built(builder: Any, confs: Mapping[str, Any]) -> SparkSession:
    session: SparkSession = builder.config(map=dict(confs)).getOrCreate()
    return session
