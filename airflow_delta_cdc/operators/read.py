"""Read the changes of a Delta table into a staging table."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc.arguments import expand, is_literal
from airflow_delta_cdc.assets import delta_asset
from airflow_delta_cdc.mirror import kept
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from airflow_delta_cdc.operators.pins import TaskPins
from delta_cdc import arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk import Context

    from delta_cdc.flow import ReadResult
    from delta_cdc.plan import ReadRequest
    from delta_cdc.spec import JobResult, ReadSpec


class DeltaReadChangesOperator(DeltaCdcOperator):
    """Write the changes since the watermark into a staging table, sealed there.

    With a ``target``, its watermark counts, and ``DeltaApplyChangesOperator(staging=...)`` brings the batch
    in. Without one, the batch is for a step of your own: the first batch is the whole table, as inserts of
    its newest version, and every later one starts behind what ``DeltaCommitWatermarkOperator`` committed
    last. One batch is open at a time: until it was applied or committed, reading again returns the same one.

    A long range is staged milestone by milestone, a commit each, all in one application; a retry goes on
    behind the last one. A batch counts only when it is whole.

    The XCom ``return_value`` holds a dict: pipeline, seal, source_table, source_table_id, version (of the
    watermark), starting_version, ending_version, applied, target_table, target_table_id, target_version,
    staging, staging_version, output, rows, counts, timestamp. ``counts`` has ``rows``, and insert,
    update_preimage, update_postimage and delete beside it, unless the batch was found instead of made: then
    the log tells the rows alone (and all, where files were written).

    :param pipeline: the flow's name, the same as in the apply or commit task (templated)
    :param table: path, URI or catalog name of the source, ``${ENV}`` allowed (templated)
    :param staging: path or URI of the staging table; it is created where it doesn't exist (templated)
    :param target: path, URI or catalog name of the table whose watermark counts; None for a sink of your own
        (templated)
    :param query: ``full_delta``: every change, with pre-images; ``append_only``: every row inserted, as it
        was inserted; ``min_delta``: the net effect per key; ``upsert``: the last row of every key that net
        changed and lives. An apply takes ``full_delta`` only (templated)
    :param keys: columns that identify a row; needed by ``upsert`` and with ``where``, and by ``min_delta``
        unless the table tracks rows (templated)
    :param capture: ``change_files`` (Delta's change data feed), ``row_tracking``, ``snapshot_diff``,
        ``added_files``, or ``auto``: per part of the range, from the log (templated)
    :param where: Spark SQL predicate on rows: one that leaves it is a delete, one that enters an insert
        (templated)
    :param select: Spark SQL projections of rows (templated)
    :param raw: ``full_delta``: exactly what the feed holds, rows written back unchanged included
    :param on_change_commit: ``added_files``: ``fail`` at a commit that removes rows, or ``skip`` it, which
        nothing with a ``target`` can (templated)
    :param output_path: folder for people outside Delta: the batch is written there as files too, into
        ``<starting>-<ending>-<plan>``, before it counts as whole; the XCom's ``output`` is the folder that
        counts (templated)
    :param output_format: of those files, ``parquet`` or ``json`` (templated)
    :param starting_version: first version to read, inclusive; None goes on at the watermark (templated)
    :param ending_version: last version to read, inclusive; None is the newest one (templated)
    :param starting_timestamp: the start as a time (ISO 8601 with offset): the first version at or after it
        (templated)
    :param ending_timestamp: the end as a time: the last version at or before it (templated)
    :param max_versions: read at most so many versions, counted from the first one that changes data
        (templated)
    :param max_bytes: read at most so many bytes of changes by the log, but at least one version (templated)
    :param milestone_versions: stage at most so many versions per commit; None is as many as one plan of
        Spark should hold (templated)
    :param milestone_bytes: the same by bytes of changes (templated)
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
        "query",
        "keys",
        "capture",
        "where",
        "select",
        "on_change_commit",
        "output_path",
        "output_format",
        "starting_version",
        "ending_version",
        "starting_timestamp",
        "ending_timestamp",
        "max_versions",
        "max_bytes",
        "milestone_versions",
        "milestone_bytes",
        "storage_options",
        *DeltaCdcOperator.template_fields,
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"where": "sql", "select": "py"}
    ui_color = "#e3f2d9"

    def __init__(
        self,
        *,
        pipeline: str,
        table: str,
        staging: str,
        target: str | None = None,
        query: str = "full_delta",
        keys: Sequence[str] | None = None,
        capture: str = "auto",
        where: str | None = None,
        select: Sequence[str] | None = None,
        raw: bool = False,
        on_change_commit: str = "fail",
        output_path: str | None = None,
        output_format: str = "parquet",
        starting_version: int | str | None = None,
        ending_version: int | str | None = None,
        starting_timestamp: str | None = None,
        ending_timestamp: str | None = None,
        max_versions: int | str | None = None,
        max_bytes: int | str | None = None,
        milestone_versions: int | str | None = None,
        milestone_bytes: int | str | None = None,
        single_driver: bool = False,
        storage_options: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.table = table
        self.staging = staging
        self.target = target
        self.query = query
        self.keys = keys
        self.capture = capture
        self.where = where
        self.select = select
        self.raw = raw
        self.on_change_commit = on_change_commit
        self.output_path = output_path
        self.output_format = output_format
        self.starting_version = starting_version
        self.ending_version = ending_version
        self.starting_timestamp = starting_timestamp
        self.ending_timestamp = ending_timestamp
        self.max_versions = max_versions
        self.max_bytes = max_bytes
        self.milestone_versions = milestone_versions
        self.milestone_bytes = milestone_bytes
        self.single_driver = single_driver
        self.storage_options = storage_options
        if is_literal(table):
            self.add_inlets([delta_asset(table)])

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Plan, run at most one Spark application per attempt, confirm from the staging table's log."""
        from delta_cdc.flow import published

        pins = TaskPins(context)
        result = self.staged(context, partial(self.run_job, context), pins)
        answer = result.to_dict()
        published(result, pins)
        return answer

    def staged(
        self, context: Context, execute: Callable[[ReadSpec], JobResult], pins: TaskPins
    ) -> ReadResult:
        """Stage the batch, or find it.

        :param execute: runs the spec in Spark
        :raises DeltaCdcError: a named error, with its remedy
        """
        from airflow_delta_cdc.names import located_request
        from delta_cdc.flow import run_read

        try:
            result = run_read(
                located_request(self, context, self._request(context)),
                execute=execute,
                pins=pins,
                mirror=partial(kept, context, self.inlets, self.table, self.pipeline),
                say=self.log.info,
            )
        finally:
            self.forget_job(context)
        return result

    def _request(self, context: Context) -> ReadRequest:
        from delta_cdc.plan import ReadRequest

        number = arguments.whole_number
        return ReadRequest(
            pipeline=arguments.required("pipeline", self.pipeline),
            source=expand(arguments.required("table", self.table)),
            staging=expand(arguments.required("staging", self.staging)),
            target=self._optional(self.target),
            options=arguments.query_options(
                query=self.query,
                keys=self.keys,
                capture=self.capture,
                raw=self.raw,
                where=self.where,
                select=self.select,
                on_change_commit=self.on_change_commit,
            ),
            output_path=self._optional(self.output_path),
            output_format=arguments.text(self.output_format) or "parquet",
            starting_version=number("starting_version", self.starting_version),
            ending_version=number("ending_version", self.ending_version),
            starting_timestamp=arguments.text(self.starting_timestamp),
            ending_timestamp=arguments.text(self.ending_timestamp),
            max_versions=number("max_versions", self.max_versions, minimum=1),
            max_bytes=number("max_bytes", self.max_bytes, minimum=1),
            milestone_versions=number("milestone_versions", self.milestone_versions, minimum=1),
            milestone_bytes=number("milestone_bytes", self.milestone_bytes, minimum=1),
            single_driver=self.single_driver,
            run_id=self.work_id(context),
            scratch=self.has_scratch(),
            storage_options=self.options_of_storage(),
        )

    @staticmethod
    def _optional(table: str | None) -> str | None:
        given = arguments.text(table)
        return expand(given) if given is not None else None
