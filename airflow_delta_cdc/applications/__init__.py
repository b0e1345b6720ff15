"""The ways in which an operator runs one spec in Spark. Which one it is, the connection says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_delta_cdc.operators.base import DeltaCdcOperator
    from delta_cdc.spec import JobResult, Spec


class Application(Protocol):
    """One way to run specs."""

    @property
    def master(self) -> str:
        """Return where Spark runs, without anything secret.

        :raises DeltaCdcError: the connection doesn't exist, or cannot be used
        """

    def run(self, context: Context, spec: Spec) -> JobResult:
        """Run one spec and return what the job said about itself.

        A result with status ``failed`` is returned, not raised: the commit may be there all the same, and
        the target's log decides.

        :raises JobFailed: the job ended without a result
        """

    def kill(self) -> None:
        """Stop what runs, within a bounded time; called from a signal handler, so nothing is looked up."""


def application_for(operator: DeltaCdcOperator) -> Application:
    """Return the way to run the specs of an operator: the type of its Spark connection decides.

    :param operator: whose connection counts
    """
    from airflow_delta_cdc.hooks.connect import is_connect

    if is_connect(operator.spark_conn_id):
        from airflow_delta_cdc.applications.connect import ConnectApplication

        return ConnectApplication(operator)
    from airflow_delta_cdc.applications.submitted import SubmittedApplication

    return SubmittedApplication(operator)
