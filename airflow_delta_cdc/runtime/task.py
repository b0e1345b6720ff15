"""What a runtime asks of the task that it runs Spark for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import Logger
    from pydantic import JsonValue

#: What an operator takes of the arguments of Airflow's :class:`SparkSubmitOperator`; the submit hook takes
#: them by the same names. The other ones (``application``, ``java_class``, …) the provider sets itself.
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


class SparkTask(Protocol):
    """A task that has a runtime.

    It has an attribute for each of :data:`SUBMIT_ARGUMENTS`, too; those that a runtime looks at are declared.
    """

    spark_conn_id: str | None
    conf: dict[str, Any] | None
    driver_class_path: str | None
    files: str | None
    jars: str | None
    packages: str | None
    py_files: str | None
    durable: bool
    openlineage_inject_parent_job_info: bool
    openlineage_inject_transport_info: bool
    external_id_key: str

    @property
    def log(self) -> Logger:
        """Return the task's log."""

    def options_of_storage(self) -> dict[str, str] | None:
        """Return the storage options of the task's tables."""

    def options_of_kafka(self) -> dict[str, str] | None:
        """Return the options of Kafka's client."""

    def execute_resumable(self, context: Context) -> Any:
        """Find the application that an earlier try has stored, or submit one, and wait for its end."""

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Return the status of a stored application."""
