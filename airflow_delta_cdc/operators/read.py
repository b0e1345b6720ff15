"""Read the changes of a Delta table into a staging table."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import attributes, renderers, taken
from airflow_delta_cdc.assets import declare_assets
from airflow_delta_cdc.backup import stored_copy
from airflow_delta_cdc.links import TABLE_LINKS
from airflow_delta_cdc.lookups import located
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from airflow_delta_cdc.operators.saved_plans import TaskSavedPlans
from delta_cdc.core.option import filled, kinds, parameters
from delta_cdc.core.options import READ, QueryOptions
from delta_cdc.core.times import iso

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk import Context

    from delta_cdc.core.option import Kind
    from delta_cdc.core.requests import ReadRequest
    from delta_cdc.core.spec import JobResult, ReadSpec
    from delta_cdc.run.outcomes import Outcome


class StagingOperator(DeltaCdcOperator):
    """Base of the read operator and of ``@task.delta_changes``, which read changes into a staging table."""

    kinds: ClassVar[dict[str, Kind]] = {
        **kinds(READ),
        **DeltaCdcOperator.kinds,
    }
    template_fields = (*attributes(parameters(READ, templated=True)), *DeltaCdcOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = renderers(READ)
    ui_color = "#e3f2d9"
    operator_extra_links = TABLE_LINKS

    def __init__(
        self,
        *,
        # -- options: READ
        pipeline: str,
        table: str,
        staging: str,
        target: str | None = None,
        query: str = "full_delta",
        keys: Sequence[str] | str | None = None,
        method: str = "auto",
        raw: bool = False,
        wide: bool = False,
        row_ids: bool = False,
        only_surviving: bool = False,
        where: str | None = None,
        select: Sequence[str] | str | None = None,
        starting_version: int | str | None = None,
        ending_version: int | str | None = None,
        starting_timestamp: str | None = None,
        ending_timestamp: str | None = None,
        single_driver: bool = False,
        limits: Mapping[str, Any] | str | None = None,
        policies: Mapping[str, Any] | str | None = None,
        # -- end
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # -- assigned: READ
        self.pipeline = pipeline
        self.table = table
        self.staging = staging
        self.target = target
        self.query = query
        self.keys = keys
        self.method = method
        self.raw = raw
        self.wide = wide
        self.row_ids = row_ids
        self.only_surviving = only_surviving
        self.where = where
        self.select = select
        self.starting_version = starting_version
        self.ending_version = ending_version
        self.starting_timestamp = starting_timestamp
        self.ending_timestamp = ending_timestamp
        self.single_driver = single_driver
        self.limits = limits
        self.policies = policies
        # -- end
        self.check_literals()
        declare_assets(self, table)

    def table_arguments(self) -> dict[str, Any]:
        """Return the options of the read."""
        return taken(self, READ)

    def staged(
        self, context: Context, execute: Callable[[ReadSpec], JobResult], saved_plans: TaskSavedPlans
    ) -> Outcome:
        """Stage the next batch, or find the open one.

        :param execute: runs the spec in Spark
        :raises DeltaCdcError: the read failed; the error names the remedy
        """

        with self.application(context):
            services = engine.Services(
                execute=execute,
                saved_plans=saved_plans,
                backup=partial(stored_copy, context, self.inlets, self.table, self.pipeline),
                say=self.log.info,
            )
            result = engine.run(self._located(context, self._request(context)), services)
        self.published = result.to_dict()
        return result

    def _located(self, context: Context, request: ReadRequest) -> ReadRequest:
        """Return a request with locations for catalog names."""
        locations = located(self, context, [request.source, *([request.target] if request.target else [])])
        target = locations[request.target] if request.target else None
        return replace(request, source=locations[request.source], target=target)

    def _request(self, context: Context) -> ReadRequest:
        values = self.table_arguments()
        return filled(
            engine.ReadRequest,
            READ,
            values,
            source=READ["table"].read(self.table),
            options=filled(QueryOptions, READ, values),
            starting_timestamp=iso("starting_timestamp", self.starting_timestamp),
            ending_timestamp=iso("ending_timestamp", self.ending_timestamp),
            run_id=self.work_id(context),
            scratch=self.has_scratch(),
            storage_options=self.options_of_storage(),
        )


class DeltaReadChangesOperator(StagingOperator):
    """Write a batch into a staging table: the changes after the watermark.

    With a ``target``, the batch starts after the target's watermark, and
    ``DeltaApplyChangesOperator(staging=...)`` applies it. Without a target, the batch is for your own task:
    the first batch is the newest version of the whole table, as inserts; every later batch starts after the
    last one that ``DeltaCommitWatermarkOperator`` committed. Until one of these operators has applied or
    committed the batch, each read returns the same batch.

    The task stages a long range in several commits, all in one application; a retry continues after the last
    one. An apply or a commit accepts only a complete batch.

    The XCom ``return_value`` is a dict: pipeline, seal, source_table, source_table_id, version (of the
    watermark), starting_version, ending_version, applied, target_table, target_table_id, target_version,
    staging, staging_version, rows, counts, bytes_written, seconds, attempts_lost, timestamp.
    ``counts`` has ``rows``, insert, update_preimage, update_postimage and delete; with ``wide``, ``rows``,
    insert, update and delete. If an earlier try or run staged the batch, ``counts`` may have only ``rows``.

    :data:`delta_cdc.core.options.READ` documents the options.

    :param kwargs: arguments of :class:`DeltaCdcOperator`: connections, ``storage_options``, Spark settings
    :raises DeltaCdcError: the read failed; the error names the remedy
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Plan, run at most one Spark application per attempt, confirm from the staging table's log."""

        saved_plans = TaskSavedPlans(context)
        result = self.staged(context, partial(self.run_job, context), saved_plans)
        watermark = result.to_dict()
        engine.forget_saved_plans(result, saved_plans)
        return watermark
