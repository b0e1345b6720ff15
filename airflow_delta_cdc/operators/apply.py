"""Apply the changes of a Delta table to another one, exactly once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc.assets import delta_asset, expand, is_literal, is_template, pipeline_alias
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from airflow_delta_cdc.operators.pins import TaskPins
from delta_cdc import arguments
from delta_cdc.errors import DeltaCdcError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from delta_cdc.plan import ApplyRequest
    from delta_cdc.spec import ApplyOptions


class DeltaApplyChangesOperator(DeltaCdcOperator):
    """Bring a target table up to its source: every change exactly once, as SCD type 1 or type 2.

    Without a target, the source is loaded as of its newest version. After that every run applies the
    changes between the watermark, which stands in the target's own log, and the source's newest version.
    With nothing to apply no process is started and nothing is written.

    The XCom ``return_value`` and the key ``watermark`` hold the same dict: pipeline, seal, source_table,
    source_table_id, version, starting_version, ending_version, applied, target_table, target_table_id,
    target_version, counts, timestamp. When something was applied, the target's asset gets an event through
    the alias ``delta_cdc:<pipeline>``.

    :param pipeline: the flow's name in the target's log. It must stay the same as long as the target lives,
        and no two flows into one target may share it. (templated)
    :param source: path or URI of the source, ``${ENV}`` allowed (templated)
    :param target: path or URI of the target, ``${ENV}`` allowed (templated)
    :param keys: columns that identify a row; may be empty only with ``insert_only`` (templated)
    :param insert_only: append only: the source never updates or deletes
    :param stored_as_scd_type: 1 keeps the current rows, 2 keeps every version of them (templated)
    :param sequence_by: type 2: what start and end hold: ``_commit_version`` (default),
        ``_commit_timestamp``, or a Spark SQL expression over the columns (templated)
    :param delete_sequence: same for deletes; required where ``sequence_by`` is an expression (templated)
    :param starting_version: first version to apply, inclusive; None goes on at the watermark (templated)
    :param ending_version: last version to apply, inclusive; None is the newest one (templated)
    :param max_versions: apply at most so many versions of the source (templated)
    :param where: Spark SQL predicate on rows: one that leaves it is deleted, one that enters is inserted
        (templated)
    :param select: Spark SQL projections (templated)
    :param track_history_column_list: type 2: only changes of these columns make a new version (templated)
    :param track_history_except_column_list: type 2: all columns but these do (templated)
    :param start_column: type 2: name of the start column (templated)
    :param end_column: type 2: name of the end column; NULL in the current version (templated)
    :param initial_load: ``snapshot``, or ``{"from_version": N}`` (templated)
    :param partition_by: columns, or a mapping from a new column to its Spark SQL expression (templated)
    :param cluster_by: clustering columns; None takes the first keys, an empty list none (templated)
    :param target_properties: table properties of a target that is created here (templated)
    :param publish_changes: give a target that is created here a change data feed of its own
    :param schema_evolution: ``additive``, or ``none`` to refuse new columns (templated)
    :param staging: staging table that ``DeltaReadChangesOperator`` filled, to apply from (templated)
    :param storage_options: options of the object store for reading the logs without Spark; no secrets:
        they stand in the DAG (templated)
    :param kwargs: ``spark_conn_id``, ``deploy_mode`` and all of :class:`SparkSubmitOperator`
    :raises DeltaCdcError: a named error, with its remedy, for everything that stops the flow
    """

    template_fields = (
        "pipeline",
        "source",
        "target",
        "keys",
        "stored_as_scd_type",
        "sequence_by",
        "delete_sequence",
        "starting_version",
        "ending_version",
        "max_versions",
        "where",
        "select",
        "track_history_column_list",
        "track_history_except_column_list",
        "start_column",
        "end_column",
        "initial_load",
        "partition_by",
        "cluster_by",
        "target_properties",
        "schema_evolution",
        "staging",
        "storage_options",
        *DeltaCdcOperator.template_fields,
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "where": "sql",
        "select": "py",
        "target_properties": "json",
    }
    ui_color = "#cfe8fc"

    def __init__(
        self,
        *,
        pipeline: str,
        source: str,
        target: str,
        keys: Sequence[str] | None = None,
        insert_only: bool = False,
        stored_as_scd_type: int | str = 1,
        sequence_by: str | None = None,
        delete_sequence: str | None = None,
        starting_version: int | str | None = None,
        ending_version: int | str | None = None,
        max_versions: int | str | None = None,
        where: str | None = None,
        select: Sequence[str] | None = None,
        track_history_column_list: Sequence[str] | None = None,
        track_history_except_column_list: Sequence[str] | None = None,
        start_column: str = "__START_AT",
        end_column: str = "__END_AT",
        initial_load: str | Mapping[str, int | str] = "snapshot",
        partition_by: Sequence[str] | Mapping[str, str | None] | None = None,
        cluster_by: Sequence[str] | None = None,
        target_properties: Mapping[str, Any] | None = None,
        publish_changes: bool = False,
        schema_evolution: str = "additive",
        staging: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.source = source
        self.target = target
        self.keys = keys
        self.insert_only = insert_only
        self.stored_as_scd_type = stored_as_scd_type
        self.sequence_by = sequence_by
        self.delete_sequence = delete_sequence
        self.starting_version = starting_version
        self.ending_version = ending_version
        self.max_versions = max_versions
        self.where = where
        self.select = select
        self.track_history_column_list = track_history_column_list
        self.track_history_except_column_list = track_history_except_column_list
        self.start_column = start_column
        self.end_column = end_column
        self.initial_load = initial_load
        self.partition_by = partition_by
        self.cluster_by = cluster_by
        self.target_properties = target_properties
        self.publish_changes = publish_changes
        self.schema_evolution = schema_evolution
        self.staging = staging
        self.storage_options = storage_options
        # Airflow needs assets while it parses: a templated table has none.
        if is_literal(source):
            self.add_inlets([delta_asset(source)])
        if not is_template(pipeline):
            self.add_outlets([pipeline_alias(pipeline)])

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Plan, run at most one Spark application per attempt, confirm from the target's log, publish."""
        from delta_cdc.flow import published, run_apply

        pins = TaskPins(context)
        try:
            result = run_apply(
                self._request(context),
                execute=partial(self.run_job, context),
                pins=pins,
                say=self.log.info,
            )
        except DeltaCdcError:
            self.forget_job(context)
            raise
        self.forget_job(context)
        answer = self._publish(context, result.to_dict())
        # Last: a try that dies before this publishes again, one that is cleared after it has nothing to do.
        published(result, pins)
        return answer

    def _request(self, context: Context) -> ApplyRequest:
        from delta_cdc.plan import ApplyRequest

        number = arguments.whole_number
        return ApplyRequest(
            pipeline=arguments.required("pipeline", self.pipeline),
            source=expand(arguments.required("source", self.source)),
            target=expand(arguments.required("target", self.target)),
            options=self._options(),
            starting_version=number("starting_version", self.starting_version),
            ending_version=number("ending_version", self.ending_version),
            max_versions=number("max_versions", self.max_versions, minimum=1),
            initial_load=arguments.initial_load(self.initial_load),
            staging=expand(self.staging) if arguments.is_given(self.staging) and self.staging else None,
            run_id=context["run_id"],
            storage_options=dict(self.storage_options) if self.storage_options else None,
        )

    def _options(self) -> ApplyOptions:
        return arguments.apply_options(
            keys=self.keys,
            stored_as_scd_type=self.stored_as_scd_type,
            sequence_by=self.sequence_by,
            delete_sequence=self.delete_sequence,
            where=self.where,
            select=self.select,
            track_history_column_list=self.track_history_column_list,
            track_history_except_column_list=self.track_history_except_column_list,
            insert_only=self.insert_only,
            start_column=self.start_column,
            end_column=self.end_column,
            partition_by=self.partition_by,
            cluster_by=self.cluster_by,
            target_properties=self.target_properties,
            publish_changes=self.publish_changes,
            schema_evolution=self.schema_evolution,
        )

    # -- publishing -----------------------------------------------------------------------------
    def _publish(self, context: Context, published: dict[str, Any]) -> dict[str, Any]:
        context["ti"].xcom_push(key="watermark", value=published)
        self._mirror(context, published)
        if published["applied"]:
            self._announce(context, published)
        return published

    def _announce(self, context: Context, published: dict[str, Any]) -> None:
        names = (
            "pipeline",
            "source_table_id",
            "version",
            "starting_version",
            "ending_version",
            "target_table_id",
            "target_version",
            "counts",
        )
        context["outlet_events"][pipeline_alias(self.pipeline)].add(
            delta_asset(self.target), extra={name: published[name] for name in names}
        )

    def _mirror(self, context: Context, published: dict[str, Any]) -> None:
        """Copy the watermark to the source's asset, where people and other DAGs look for it."""
        inlet = next((asset for asset in self.inlets if asset == _asset_of(self.source)), None)
        if inlet is None:
            return
        try:
            context["asset_state_store"][inlet].set(f"committed:{self.pipeline}", published)
        except Exception as error:  # noqa: BLE001
            # A copy: the target's log holds the watermark, so a task that did its work must not fail here.
            self.log.warning("The watermark could not be copied to the asset state store: %s", error)


def _asset_of(table: Any) -> Any:
    return delta_asset(table) if is_literal(table) else None
