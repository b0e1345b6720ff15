"""Read the changes of a Delta table into a staging table."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc.arguments import expand, is_literal
from airflow_delta_cdc.assets import delta_asset
from airflow_delta_cdc.mirror import kept
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from airflow_delta_cdc.operators.pins import TaskPins
from delta_cdc import arguments
from delta_cdc.errors import DeltaCdcError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from delta_cdc.plan import ReadRequest


class DeltaReadChangesOperator(DeltaCdcOperator):
    """Write the changes since the watermark into a staging table, in one sealed commit.

    One batch is open at a time: until ``DeltaApplyChangesOperator(staging=...)`` has applied it, reading
    again returns the same batch.

    :param pipeline: the flow's name, the same as in the apply task (templated)
    :param table: path, URI or catalog name of the source, ``${ENV}`` allowed (templated)
    :param staging: path or URI of the staging table; it is created where it doesn't exist (templated)
    :param target: path, URI or catalog name of the table whose watermark counts (templated)
    :param starting_version: first version to read, inclusive; None goes on at the watermark (templated)
    :param ending_version: last version to read, inclusive; None is the newest one (templated)
    :param starting_timestamp: the start as a time (ISO 8601 with offset): the first version at or after it
        (templated)
    :param ending_timestamp: the end as a time: the last version at or before it (templated)
    :param max_versions: read at most so many versions, counted from the first one that changes data
        (templated)
    :param max_bytes: read at most so many bytes of changes by the log, but at least one version (templated)
    :param single_driver: nothing but one Spark driver at a time ever writes to staging; needed on S3 without
        a log store for several writers, and without effect elsewhere
    :param storage_options: options of the object store, winning over those of ``delta_conn_id``; no secrets:
        they stand in the DAG (templated)
    :param kwargs: ``spark_conn_id``, ``delta_conn_id``, ``deploy_mode``, all of :class:`SparkSubmitOperator`
    :raises DeltaCdcError: a named error, with its remedy
    """

    template_fields = (
        "pipeline",
        "table",
        "staging",
        "target",
        "starting_version",
        "ending_version",
        "starting_timestamp",
        "ending_timestamp",
        "max_versions",
        "max_bytes",
        "storage_options",
        *DeltaCdcOperator.template_fields,
    )
    ui_color = "#e3f2d9"

    def __init__(
        self,
        *,
        pipeline: str,
        table: str,
        staging: str,
        target: str,
        starting_version: int | str | None = None,
        ending_version: int | str | None = None,
        starting_timestamp: str | None = None,
        ending_timestamp: str | None = None,
        max_versions: int | str | None = None,
        max_bytes: int | str | None = None,
        single_driver: bool = False,
        storage_options: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.table = table
        self.staging = staging
        self.target = target
        self.starting_version = starting_version
        self.ending_version = ending_version
        self.starting_timestamp = starting_timestamp
        self.ending_timestamp = ending_timestamp
        self.max_versions = max_versions
        self.max_bytes = max_bytes
        self.single_driver = single_driver
        self.storage_options = storage_options
        if is_literal(table):
            self.add_inlets([delta_asset(table)])

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Plan, run at most one Spark application per attempt, confirm from the staging table's log."""
        from airflow_delta_cdc.names import located_request
        from delta_cdc.flow import published, run_read

        pins = TaskPins(context)
        try:
            result = run_read(
                located_request(self, context, self._request(context)),
                execute=partial(self.run_job, context),
                pins=pins,
                mirror=partial(kept, context, self.inlets, self.table, self.pipeline),
                say=self.log.info,
            )
        except DeltaCdcError:
            self.forget_job(context)
            raise
        self.forget_job(context)
        published(result, pins)
        return result.to_dict()

    def _request(self, context: Context) -> ReadRequest:
        from delta_cdc.plan import ReadRequest

        number = arguments.whole_number
        return ReadRequest(
            pipeline=arguments.required("pipeline", self.pipeline),
            source=expand(arguments.required("table", self.table)),
            staging=expand(arguments.required("staging", self.staging)),
            target=expand(arguments.required("target", self.target)),
            starting_version=number("starting_version", self.starting_version),
            ending_version=number("ending_version", self.ending_version),
            starting_timestamp=arguments.text(self.starting_timestamp),
            ending_timestamp=arguments.text(self.ending_timestamp),
            max_versions=number("max_versions", self.max_versions, minimum=1),
            max_bytes=number("max_bytes", self.max_bytes, minimum=1),
            single_driver=self.single_driver,
            run_id=context["run_id"],
            storage_options=self.options_of_storage(),
        )
