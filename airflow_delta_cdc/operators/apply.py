"""Apply the changes of a Delta table to another one, exactly once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import attributes, pipeline_name, renderers, taken
from airflow_delta_cdc.assets import declare_assets
from airflow_delta_cdc.lazy import Lazy
from airflow_delta_cdc.links import TABLE_LINKS
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from airflow_delta_cdc.operators.saved_plans import TaskSavedPlans
from delta_cdc.core.option import kinds, parameters
from delta_cdc.core.options import APPLY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_delta_cdc import approval, jobs, publishing
    from delta_cdc.core.option import Kind
else:
    approval, jobs = Lazy("airflow_delta_cdc.approval"), Lazy("airflow_delta_cdc.jobs")
    publishing = Lazy("airflow_delta_cdc.publishing")


class DeltaApplyChangesOperator(DeltaCdcOperator):
    """Apply the changes of a source to a target table, each exactly once, as SCD type 1 or type 2.

    If the target does not exist, the first run loads the newest version of the source. Every later run
    applies the changes after the watermark: the last version of the source that the target contains, which
    the target's log records. If there are no changes, the task starts no process and writes nothing.
    Expressions and predicates are Spark SQL. A dry run writes nothing: the task log shows the commits, the
    steps, the statements and the counts of a real run.

    XCom ``return_value`` (a dict) and asset event: ``docs/reference/results.md``. Metrics, freshness, lineage
    and links: ``docs/howto/monitoring.md``. :data:`delta_cdc.core.options.APPLY` documents the options.

    :param kwargs: arguments of :class:`DeltaCdcOperator`: connections, ``storage_options``, Spark settings
    :raises DeltaCdcError: the pipeline failed; the error names the remedy
    """

    kinds: ClassVar[dict[str, Kind]] = {
        **kinds(APPLY),
        **DeltaCdcOperator.kinds,
    }
    template_fields = (*attributes(parameters(APPLY, templated=True)), *DeltaCdcOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = renderers(APPLY)
    ui_color = "#cfe8fc"
    operator_extra_links = TABLE_LINKS

    #: Hides ``BaseOperator.dry_run()``, which prints template fields, and which Airflow does not call.
    dry_run: Any

    def __init__(
        self,
        *,
        # -- options: APPLY
        pipeline: str | None = None,
        source: str,
        target: str,
        keys: Sequence[str] | str | None = None,
        insert_only: bool = False,
        source_kind: str | None = None,
        target_kind: str = "table",
        stored_as_scd_type: int | str = 1,
        sequence_by: Sequence[str] | str | None = None,
        delete_sequence: str | None = None,
        where: str | None = None,
        select: Sequence[str] | str | None = None,
        apply_as_deletes: str | None = None,
        apply_as_truncates: str | None = None,
        column_list: Sequence[str] | str | None = None,
        except_column_list: Sequence[str] | str | None = None,
        track_history_column_list: Sequence[str] | str | None = None,
        track_history_except_column_list: Sequence[str] | str | None = None,
        ignore_null_updates: bool | str = False,
        ignore_null_updates_column_list: Sequence[str] | str | None = None,
        ignore_null_updates_except_column_list: Sequence[str] | str | None = None,
        columns_to_update: str | None = None,
        delete_mode: str = "hard",
        snapshot_version_column: str | None = None,
        rules: Mapping[str, Any] | str | None = None,
        starting_version: int | str | None = None,
        ending_version: int | str | None = None,
        starting_timestamp: str | None = None,
        ending_timestamp: str | None = None,
        single_driver: bool = False,
        initial_load: str | Mapping[str, int | str] = "snapshot",
        mode: str = "incremental",
        discard_history: bool | str = False,
        approve: str | None = None,
        take_over_from: str | None = None,
        shadow_of: Mapping[str, str] | str | None = None,
        shadowed_by: Mapping[str, str] | str | None = None,
        once: bool | str = False,
        dry_run: bool | str = False,
        staging: str | None = None,
        freshness: float | str | None = None,
        limits: Mapping[str, Any] | str | None = None,
        policies: Mapping[str, Any] | str | None = None,
        layout: Mapping[str, Any] | str | None = None,
        repair: Mapping[str, Any] | str | None = None,
        # -- end
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # -- assigned: APPLY without pipeline
        self.source = source
        self.target = target
        self.keys = keys
        self.insert_only = insert_only
        self.source_kind = source_kind
        self.target_kind = target_kind
        self.stored_as_scd_type = stored_as_scd_type
        self.sequence_by = sequence_by
        self.delete_sequence = delete_sequence
        self.where = where
        self.select = select
        self.apply_as_deletes = apply_as_deletes
        self.apply_as_truncates = apply_as_truncates
        self.column_list = column_list
        self.except_column_list = except_column_list
        self.track_history_column_list = track_history_column_list
        self.track_history_except_column_list = track_history_except_column_list
        self.ignore_null_updates = ignore_null_updates
        self.ignore_null_updates_column_list = ignore_null_updates_column_list
        self.ignore_null_updates_except_column_list = ignore_null_updates_except_column_list
        self.columns_to_update = columns_to_update
        self.delete_mode = delete_mode
        self.snapshot_version_column = snapshot_version_column
        self.rules = rules
        self.starting_version = starting_version
        self.ending_version = ending_version
        self.starting_timestamp = starting_timestamp
        self.ending_timestamp = ending_timestamp
        self.single_driver = single_driver
        self.initial_load = initial_load
        self.mode = mode
        self.discard_history = discard_history
        self.approve = approve
        self.take_over_from = take_over_from
        self.shadow_of = shadow_of
        self.shadowed_by = shadowed_by
        self.once = once
        self.dry_run = dry_run
        self.staging = staging
        self.freshness = freshness
        self.limits = limits
        self.policies = policies
        self.layout = layout
        self.repair = repair
        # -- end
        self.pipeline = pipeline_name(pipeline, target)
        self.check_literals()
        self.producing = declare_assets(self, source, self.pipeline, written=(target,))

    def table_arguments(self) -> dict[str, Any]:
        """Return the options of the apply."""
        return taken(self, APPLY)

    def execute(self, context: Context) -> dict[str, Any]:
        """Plan, run at most one Spark application per attempt, confirm from the target's log, and publish."""
        table_arguments = self.table_arguments()
        (pipeline_job,) = jobs.planned(jobs.pipeline_jobs(self, context, [table_arguments]))
        assert pipeline_job.apply is not None
        if pipeline_job.apply.dry_run:
            # A dry run changes neither the copy of the watermark nor the saved plan of the next run.
            return publishing.would_do(self, context, pipeline_job)
        saved_plans = TaskSavedPlans(context)
        with approval.asking(self, context, table_arguments), self.application(context) as execute:
            services = engine.Services(
                execute=execute,
                saved_plans=saved_plans,
                backup=pipeline_job.backup,
                announced=pipeline_job.announced,
                say=partial(self.log.info, "%s: %s", pipeline_job.pipeline),
            )
            result = engine.run(pipeline_job.apply, services)
        return publishing.publish(
            self,
            context,
            table_arguments,
            engine.PipelineResult(pipeline=pipeline_job.pipeline, applied=result),
            result.to_dict(),
            forget_plans=partial(engine.forget_saved_plans, result, saved_plans),
        )
