"""The ways in which an operator runs one spec in Spark; its Spark connection decides which one it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from airflow_delta_cdc.hooks.connect import is_connect
from airflow_delta_cdc.runtime.connect import ConnectRuntime
from airflow_delta_cdc.runtime.submit import SubmitRuntime

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_delta_cdc.operators.base import DeltaCdcOperator
    from delta_cdc.core.spec import JobResult, Spec


class SparkRuntime(Protocol):
    """One way to run specs. An operator has one; it is made for each spec."""

    @property
    def master(self) -> str:
        """Return where Spark runs, without anything secret.

        :raises DeltaCdcError: the connection doesn't exist, or cannot be used
        """

    def run(self, context: Context, spec: Spec) -> JobResult:
        """Run one spec and return the job's own result.

        A result with status ``failed`` is returned, not raised: the commit may be there all the same, and
        the target's log decides.

        :raises JobFailed: the job ended without a result
        """

    def kill(self) -> None:
        """Stop what runs, within a bounded time; called from a signal handler, so nothing is looked up."""


def runtime_for(task: DeltaCdcOperator) -> SparkRuntime:
    """Return the way to run the specs of a task: the type of its Spark connection decides.

    :param task: whose connection counts
    """
    return ConnectRuntime(task) if is_connect(task.spark_conn_id) else SubmitRuntime(task)
