"""Read the changes of a Delta table into a staging table."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import take, taken, template_fields
from airflow_delta_cdc.assets import declare_assets
from airflow_delta_cdc.backup import kept
from airflow_delta_cdc.names import located
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from airflow_delta_cdc.operators.saved_plans import TaskPins
from delta_cdc.core.option_schema import READ, filled, parameters
from delta_cdc.core.spec import QueryOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk import Context

    from delta_cdc.core.spec import JobResult, ReadSpec
    from delta_cdc.planning.request import ReadRequest
    from delta_cdc.run.outcomes import ReadResult


class StagingOperator(DeltaCdcOperator):
    """Base of what reads changes into a staging table: the read operator, and ``@task.delta_changes``."""

    template_fields = (*template_fields(READ), *DeltaCdcOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "where": "sql",
        "select": "py",
        "limits": "json",
        "policies": "json",
    }
    ui_color = "#e3f2d9"

    pipeline: str
    table: str
    staging: str
    starting_timestamp: str | None
    ending_timestamp: str | None
    single_driver: bool

    def __init__(
        self,
        *,
        pipeline: str,
        table: str,
        staging: str,
        target: str | None = None,
        query: str = "full_delta",
        keys: Sequence[str] | None = None,
        method: str = "auto",
        where: str | None = None,
        select: Sequence[str] | None = None,
        raw: bool = False,
        output_path: str | None = None,
        output_format: str = "parquet",
        starting_version: int | str | None = None,
        ending_version: int | str | None = None,
        starting_timestamp: str | None = None,
        ending_timestamp: str | None = None,
        single_driver: bool = False,
        limits: Mapping[str, Any] | str | None = None,
        policies: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        given = locals()
        super().__init__(**kwargs)
        take(self, parameters(READ), given)
        declare_assets(self, table)

    def staged(
        self, context: Context, execute: Callable[[ReadSpec], JobResult], saved_plans: TaskPins
    ) -> ReadResult:
        """Stage the batch, or find it.

        :param execute: runs the spec in Spark
        :raises DeltaCdcError: a named error, with its remedy
        """

        with self.application(context):
            return engine.run_read(
                self._located(context, self._request(context)),
                execute=execute,
                saved_plans=saved_plans,
                backup=partial(kept, context, self.inlets, self.table, self.pipeline),
                say=self.log.info,
            )

    def _located(self, context: Context, request: ReadRequest) -> ReadRequest:
        """Return a request with locations for catalog names."""
        at = located(self, context, [request.source, *([request.target] if request.target else [])])
        target = at[request.target] if request.target else None
        return replace(request, source=at[request.source], target=target)

    def _request(self, context: Context) -> ReadRequest:
        given = taken(self, READ)
        return filled(
            engine.ReadRequest,
            READ,
            given,
            source=READ["table"].read(self.table),
            options=filled(QueryOptions, READ, given),
            starting_timestamp=engine.iso_time("starting_timestamp", self.starting_timestamp),
            ending_timestamp=engine.iso_time("ending_timestamp", self.ending_timestamp),
            run_id=self.work_id(context),
            scratch=self.has_scratch(),
            storage_options=self.options_of_storage(),
        )


class DeltaReadChangesOperator(StagingOperator):
    """Write the changes since the watermark into a staging table, sealed there.

    With a ``target``, its watermark counts, and ``DeltaApplyChangesOperator(staging=...)`` brings the batch
    in. Without one, the batch is for a step of your own: the first batch is the whole table, as inserts of
    its newest version, and every later one starts behind what ``DeltaCommitWatermarkOperator`` committed
    last. One batch is open at a time: until it was applied or committed, reading again returns the same one.

    A long range is staged in several commits, all in one application; a retry goes on
    behind the last one. A batch counts only when it is whole.

    The XCom ``return_value`` holds a dict: pipeline, seal, source_table, source_table_id, version (of the
    watermark), starting_version, ending_version, applied, target_table, target_table_id, target_version,
    staging, staging_version, output, rows, counts, timestamp. ``counts`` has ``rows``, and insert,
    update_preimage, update_postimage and delete beside it, unless the batch was found instead of made: then
    the log tells the rows alone (and all, where files were written).

    The options, what they mean, and which of them belong in ``limits`` and ``policies``:
    :data:`delta_cdc.core.option_schema.READ`.

    :param kwargs: those of :class:`DeltaCdcOperator`: connections, ``storage_options``, all about Spark
    :raises DeltaCdcError: a named error, with its remedy
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Plan, run at most one Spark application per attempt, confirm from the staging table's log."""

        saved_plans = TaskPins(context)
        result = self.staged(context, partial(self.run_job, context), saved_plans)
        answer = result.to_dict()
        engine.forget_saved_plans(result, saved_plans)
        return answer
