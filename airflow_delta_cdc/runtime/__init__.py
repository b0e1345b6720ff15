"""The three ways to run one spec of an operator in Spark; the Spark connection of the task decides.

* Without a connection: ``spark-submit`` starts Spark in a child process of the worker (``submit``,
  ``embedded``).
* With a connection of type ``spark``: ``spark-submit`` submits an application to a cluster (``submit``). In
  deploy mode cluster, the application may be tracked, so that a retry finds it again. Without tracking, a
  retry submits a new one.
* With a connection of type ``spark_connect``: a running server executes the statements (``connect``).

A session in the worker's own process (``worker_session``) runs no spec. It is only for
``@task.delta_changes``, which passes a DataFrame to a function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from airflow_delta_cdc.hooks.connect import is_connect
from airflow_delta_cdc.runtime.connect import ConnectRuntime
from airflow_delta_cdc.runtime.submit import SubmitRuntime

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_delta_cdc.runtime.task import SparkTask
    from delta_cdc.core.spec import JobResult, Spec


class SparkRuntime(Protocol):
    """One way to run specs. An operator makes a new runtime for each spec."""

    @property
    def master(self) -> str:
        """Return the master URL or the server's address, without secrets.

        :raises DeltaCdcError: the connection doesn't exist, or cannot be used
        """

    def run(self, context: Context, spec: Spec) -> JobResult:
        """Run one spec and return the job's own result.

        A result with status ``failed`` is returned, not raised: the job may still have committed, and the
        target's log decides.

        :raises JobFailed: the job ended without a result
        """

    def kill(self) -> None:
        """Stop the job within a bounded time. A signal handler calls this, so it looks up no connection."""


def runtime_for(task: SparkTask) -> SparkRuntime:
    """Return the runtime for the type of a task's Spark connection.

    :param task: provides the connection
    """
    return ConnectRuntime(task) if is_connect(task.spark_conn_id) else SubmitRuntime(task)
