"""The interface of a task that a runtime runs Spark for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import Logger
    from pydantic import JsonValue


class SparkTask(Protocol):
    """A task that has a runtime.

    It also has an attribute for each of :data:`~airflow_delta_cdc.hooks.submit.SUBMIT_ARGUMENTS`; this
    class lists only those that a runtime reads.
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

    @staticmethod
    def task_key(context: Context) -> str:
        """Return the names of the task, which all its tries share, and no other task."""

    def options_of_storage(self) -> dict[str, str] | None:
        """Return the storage options of the task's tables."""

    def options_of_kafka(self) -> dict[str, str] | None:
        """Return the options of Kafka's client."""

    def execute_resumable(self, context: Context) -> Any:
        """Find the application that an earlier try stored, or submit one, and wait for its end."""

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Return the status of a stored application."""
