"""Links of tasks: to Spark's UI, to the page of the pipeline, and to the asset of its target."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, urlencode

from airflow.providers.common.compat.sdk import (
    AirflowNotFoundException,
    BaseHook,
    MappedOperator,
    conf,
)
from airflow.sdk import BaseOperatorLink

from airflow_delta_cdc.assets import delta_asset, pipeline_alias
from delta_cdc.core import arguments
from delta_cdc.core.errors import DeltaCdcError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The path of the page "Delta CDC" in Airflow's UI, and its parameter.
PAGE, PAGE_PIPELINE = "plugin/delta-cdc", "pipeline"
#: The setting with the URL of Spark's UI, of ``[delta_cdc]`` and in the extra of a Spark connection, and what
#: the id of the application replaces there.
SPARK_UI, APPLICATION = "spark_ui", "{application}"


class LinkedTask(Protocol):
    """What the links read of an operator."""

    outlets: list[Any]
    #: The configured URL of Spark's UI, and the id of the newest application; "" without.
    spark_ui: str
    application_id: str

    def table_arguments(self) -> Mapping[str, Any] | None:
        """Return the arguments of the operator's table."""


class _TaskLink(BaseOperatorLink):
    """A link of a task; the UI leaves out an empty URL."""

    def get_link(self, operator: LinkedTask | MappedOperator, *, ti_key: Any) -> str:  # type: ignore[override]
        """Return the URL."""
        # Airflow asks with the mapped operator if the task failed before its arguments were rendered.
        if isinstance(operator, MappedOperator):
            return ""
        try:
            return self.url(operator)
        except DeltaCdcError:
            # The task fails with this error of its configuration itself.
            return ""

    @abstractmethod
    def url(self, operator: LinkedTask) -> str:
        """Return the URL."""


class SparkLink(_TaskLink):
    """Spark's UI, or its history server, for the application of the task; none without Spark."""

    name = "Spark"
    xcom_key = "link_spark"

    def url(self, operator: LinkedTask) -> str:
        """Return the URL."""
        if APPLICATION in operator.spark_ui and not operator.application_id:
            return ""
        return operator.spark_ui.replace(APPLICATION, operator.application_id)


class PipelineLink(_TaskLink):
    """The page of the pipeline in Airflow."""

    name = "Delta CDC"
    xcom_key = "link_pipeline"

    def url(self, operator: LinkedTask) -> str:
        """Return the URL."""
        pipeline = (operator.table_arguments() or {}).get("pipeline")
        # The page knows the pipelines whose aliases are among the outlets: not reads, nor templated names.
        if not pipeline or pipeline_alias(pipeline) not in operator.outlets:
            return ""
        return _in_airflow(PAGE, **{PAGE_PIPELINE: pipeline})


class TargetLink(_TaskLink):
    """The asset of the target, or of the change log without a target."""

    name = "Target"
    xcom_key = "link_target"

    def url(self, operator: LinkedTask) -> str:
        """Return the URL of the list of assets, reduced to this one; a worker does not know its id."""
        given = operator.table_arguments() or {}
        table = next((given[name] for name in ("target", "log") if arguments.is_given(given.get(name))), None)
        return "" if table is None else _in_airflow("assets", name_pattern=delta_asset(table).name)


#: The links of the operators that move rows.
TABLE_LINKS = (PipelineLink(), TargetLink(), SparkLink())


def configured_spark_ui(spark_conn_id: str | None) -> str:
    """Return the URL of Spark's UI that the connection has in its extra, or else ``[delta_cdc] spark_ui``."""
    of_connection = None
    if spark_conn_id:
        try:
            of_connection = BaseHook.get_connection(spark_conn_id).extra_dejson.get(SPARK_UI)
        except AirflowNotFoundException:
            # The hook raises the named error.
            return ""
    return str(of_connection or conf.get("delta_cdc", SPARK_UI, fallback="") or "")


def _in_airflow(path: str, **parameters: str) -> str:
    base_url = conf.get("api", "base_url", fallback="/").rstrip("/")
    return f"{base_url}/{path}?{urlencode(parameters, quote_via=quote)}"
