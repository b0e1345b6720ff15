"""Ingest changes from files or Kafka into a change log, and apply them to a target."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc.arguments import attributes, pipeline_name, renderers, taken
from airflow_delta_cdc.assets import declare_assets
from airflow_delta_cdc.lazy import Lazy
from airflow_delta_cdc.links import TABLE_LINKS
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from airflow_delta_cdc.operators.saved_plans import TaskSavedPlans
from delta_cdc.core import arguments
from delta_cdc.core.option import SETTINGS, TEXT, kinds, parameters
from delta_cdc.core.options import INGEST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_delta_cdc import jobs, publishing
    from delta_cdc.core.option import Kind
else:
    jobs, publishing = Lazy("airflow_delta_cdc.jobs"), Lazy("airflow_delta_cdc.publishing")


class DeltaIngestChangesOperator(DeltaCdcOperator):
    """Ingest the changes in files or Kafka topics into a change log, and apply the log to a target.

    A change log is an append-only Delta table of events. The task ingests each record of a file or topic
    exactly once, even if a file arrives again under the same name, or a try is killed. Records that are not
    valid events go into the quarantine ``<log>__quarantine``. With a ``target``, the same Spark application
    applies the log to the target, as SCD type 1 or 2. If nothing is new, the task starts no process and
    writes nothing. For many tables in one application, use :func:`airflow_delta_cdc.dags.build_dags`.

    You can omit ``sequence_by`` and ``apply_as_deletes``, because the log's table properties contain them.
    ``max_bytes`` and ``starting_timestamp`` limit the ingest, not the apply. ``cluster_by`` is for both the
    log and the target. A dry run shows what an ingest would read now, and how the apply would process the
    events that the log already has.

    The XCom ``return_value`` is a dict. Without a target, it is the dict of the ingest: applied, pipeline,
    seal, log_table, log_table_id, log_version, counts, left, bytes_written, seconds, attempts_lost,
    timestamp. With a target, it is the dict of the apply (``docs/reference/results.md``), and its key
    ``ingested`` has the dict of the ingest. Each table that the task wrote gets an asset event.
    :data:`delta_cdc.core.options.INGEST` documents the options.

    :param kafka_options: options of the Kafka client, with librdkafka's names, which override those of
        ``kafka_conn_id``. The DAG shows them, so they must not contain secrets (templated)
    :param kafka_conn_id: Airflow connection of type ``kafka``, whose extra contains the options of the client
        (templated)
    :param kwargs: arguments of :class:`DeltaCdcOperator`: connections, ``storage_options``, Spark settings
    :raises DeltaCdcError: the pipeline failed; the error names the remedy
    """

    kinds: ClassVar[dict[str, Kind]] = {
        **kinds(INGEST),
        "kafka_options": SETTINGS,
        "kafka_conn_id": TEXT,
        **DeltaCdcOperator.kinds,
    }
    template_fields = (
        *attributes(parameters(INGEST, templated=True)),
        "kafka_options",
        "kafka_conn_id",
        *DeltaCdcOperator.template_fields,
    )
    template_fields_renderers: ClassVar[dict[str, str]] = renderers(INGEST)
    ui_color = "#f7dce0"
    operator_extra_links = TABLE_LINKS

    #: See :class:`DeltaApplyChangesOperator`.
    dry_run: Any

    def __init__(
        self,
        *,
        # -- options: INGEST
        pipeline: str | None = None,
        source: str,
        target: str | None = None,
        log: str,
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
        freshness: float | str | None = None,
        format: str = "json",  # noqa: A002 - the option's name everywhere
        adapter: str = "plain",
        adapter_options: Mapping[str, Any] | str | None = None,
        schema: str | None = None,
        format_options: Mapping[str, Any] | str | None = None,
        glob: str | None = None,
        lexical_order: bool | str = False,
        follow_links: bool | str = False,
        replay: bool | str = False,
        limits: Mapping[str, Any] | str | None = None,
        policies: Mapping[str, Any] | str | None = None,
        layout: Mapping[str, Any] | str | None = None,
        repair: Mapping[str, Any] | str | None = None,
        # -- end
        kafka_options: Mapping[str, str] | None = None,
        kafka_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # -- assigned: INGEST without pipeline
        self.source = source
        self.target = target
        self.log_table = log
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
        self.freshness = freshness
        self.format = format
        self.adapter = adapter
        self.adapter_options = adapter_options
        self.schema = schema
        self.format_options = format_options
        self.glob = glob
        self.lexical_order = lexical_order
        self.follow_links = follow_links
        self.replay = replay
        self.limits = limits
        self.policies = policies
        self.layout = layout
        self.repair = repair
        # -- end
        self.kafka_options = kafka_options
        self.kafka_conn_id = kafka_conn_id
        self.pipeline = pipeline_name(pipeline, target, log)
        self.check_literals()
        self.producing = declare_assets(self, log, self.pipeline, written=(log, target))

    def table_arguments(self) -> dict[str, Any]:
        """Return the options of the ingest."""
        return taken(self, INGEST)

    def execute(self, context: Context) -> dict[str, Any]:
        """Plan without Spark, run at most one application per attempt, confirm from the logs, and publish."""
        table_arguments = self.table_arguments()
        # Without a log, the target would be applied directly from the source.
        arguments.required("log", table_arguments["log"])
        (pipeline_job,) = jobs.planned(jobs.pipeline_jobs(self, context, [table_arguments]))
        if pipeline_job.ingest is not None and not pipeline_job.ingest.is_kafka:
            # This task has one table, so Kafka options are meant for it; a table of files refuses them.
            pipeline_job = replace(
                pipeline_job, ingest=replace(pipeline_job.ingest, kafka_options=self.options_of_kafka())
            )
        if arguments.flag("dry_run", self.dry_run):
            return publishing.would_do(self, context, pipeline_job)
        return publishing.run_pipeline_job(
            self, context, table_arguments, pipeline_job, TaskSavedPlans(context)
        )
