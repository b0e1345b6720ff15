"""A Spark session in the worker's own process, for tasks that hand a DataFrame to a function."""

from __future__ import annotations

import contextlib
import os
import shlex
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from airflow_delta_cdc.operators.storage import write_private
from delta_cdc.errors import DeployModeUnsupported
from delta_cdc.storage import google_key_confs, properties_text, spark_storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from airflow_delta_cdc.hooks.submit import DeltaCdcSubmitHook
    from airflow_delta_cdc.operators.base import DeltaCdcOperator

_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_CONNECT = "spark_connect"


class WorkerSession:
    """Starts Spark in this process when it is first needed, and stops it at the end.

    Without a connection that is a local Spark; a connection of type ``spark`` names the master, one of type
    ``spark_connect`` a server.

    :param operator: whose connection, confs and JARs count
    :param directory: a folder that only this user can read, for as long as the session lives
    """

    def __init__(self, operator: DeltaCdcOperator, directory: Path) -> None:
        self._operator = operator
        self._directory = directory
        self._hook: DeltaCdcSubmitHook | None = None
        self._spark: SparkSession | None = None

    @property
    def master(self) -> str:
        """Return where Spark runs; a server's address for Spark Connect.

        :raises SparkConnectionNotFound: the named connection doesn't exist
        """
        remote = self._remote()
        return remote if remote is not None else self._submit_hook().master

    def get(self, locations: Iterable[str]) -> SparkSession:
        """Return the session.

        :param locations: of the tables; where they are stored is what a new session is told
        :raises DeployModeUnsupported: the connection starts drivers elsewhere
        """
        if self._spark is None:
            self._spark = self._started(locations)
        return self._spark

    def stop(self) -> None:
        """Stop the session, if it was started."""
        if self._spark is not None:
            self._spark.stop()

    # -- starting -------------------------------------------------------------------------------
    def _started(self, locations: Iterable[str]) -> SparkSession:
        remote = self._remote()
        name = f"{self._operator.dag_id}-{self._operator.task_id}"
        if remote is not None:
            from pyspark.sql import SparkSession

            confs = {**_UTC, **(self._operator.conf or {})}
            return _built(SparkSession.builder.remote(remote).appName(name), confs)
        hook = self._submit_hook()
        if hook.is_cluster:
            raise DeployModeUnsupported(
                f"The connection {self._operator.spark_conn_id!r} asks for deploy mode cluster, and the "
                "function of this task runs in the worker, with the driver.",
                remedy="use deploy mode client, or DeltaReadChangesOperator and a task of your own.",
            )
        confs, environment = self._storage(hook, locations)
        with _environment(environment):
            return self._classic(hook, name, confs)

    def _classic(self, hook: DeltaCdcSubmitHook, name: str, confs: Mapping[str, str]) -> SparkSession:
        from delta_cdc.session import delta_confs, embedded_session

        own = {**confs, **(self._operator.conf or {})}
        if not self._operator.spark_conn_id:
            return embedded_session(name, **own)
        from pyspark.sql import SparkSession

        from delta_cdc.environment import child_environment

        os.environ.update(child_environment())
        given = {**self._jars(), **delta_confs(), **_UTC, **own}
        return _built(SparkSession.builder.master(hook.master).appName(name), given)

    def _jars(self) -> dict[str, str]:
        if self._operator.packages:
            return {"spark.jars.packages": self._operator.packages}
        if self._operator.jars:
            return {"spark.jars": self._operator.jars}
        if not self._operator._hands_over_jars():
            return {}
        from delta_cdc.jars import delta_jars

        return {"spark.jars": ",".join(str(path) for path in delta_jars())}

    def _storage(
        self, hook: DeltaCdcSubmitHook, locations: Iterable[str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return confs, and variables for the JVM: secrets go by file, or by what only the JVM sees."""
        storage = spark_storage(self._operator.options_of_storage(), locations)
        confs = {**storage.confs, **storage.public_credentials}
        if storage.google_key is not None and hook.master.startswith("local"):
            key = write_private(self._directory / "google-key.json", storage.google_key)
            confs |= google_key_confs(str(key))
        environment = dict(storage.environment)
        secrets = storage.secrets(beside_environment=True)
        if secrets:
            file = write_private(self._directory / "storage.properties", properties_text(secrets))
            # PySpark hands what it is configured with to the JVM on the command line; a file it names only.
            given = os.environ.get(_SUBMIT_ARGUMENTS, "pyspark-shell")
            environment[_SUBMIT_ARGUMENTS] = f"--properties-file {shlex.quote(str(file))} {given}"
        return confs, environment

    def _submit_hook(self) -> DeltaCdcSubmitHook:
        if self._hook is None:
            self._hook = self._operator._get_hook()
        return self._hook

    def _remote(self) -> str | None:
        conn_id = self._operator.spark_conn_id
        if not conn_id:
            return None
        try:
            if BaseHook.get_connection(conn_id).conn_type != _CONNECT:
                return None
        except AirflowNotFoundException:
            # The submit hook says so by name.
            return None
        from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

        return str(SparkConnectHook(conn_id).get_connection_url())


_UTC = {"spark.sql.session.timeZone": "UTC"}


def _built(builder: Any, confs: Mapping[str, Any]) -> SparkSession:
    for key, value in confs.items():
        builder = builder.config(key, value)
    made: SparkSession = builder.getOrCreate()
    return made


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a child that is started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
