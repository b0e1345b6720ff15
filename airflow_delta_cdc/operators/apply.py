"""Apply the changes of a Delta table to another one, exactly once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc.arguments import expand, is_literal, is_template
from airflow_delta_cdc.assets import delta_asset, pipeline_alias
from airflow_delta_cdc.mirror import keep, kept
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
    :param source: path, URI or catalog name of the source, ``${ENV}`` allowed (templated)
    :param target: path, URI or catalog name of the target, ``${ENV}`` allowed. A target that isn't there yet
        has no name. (templated)
    :param keys: columns that identify a row; may be empty only with ``insert_only`` (templated)
    :param insert_only: append only: the source never updates or deletes
    :param stored_as_scd_type: 1 keeps the current rows, 2 keeps every version of them (templated)
    :param sequence_by: type 2: what start and end hold: ``_commit_version`` (default),
        ``_commit_timestamp``, or a Spark SQL expression over the columns (templated)
    :param delete_sequence: same for deletes; required where ``sequence_by`` is an expression (templated)
    :param starting_version: first version to apply, inclusive; None goes on at the watermark (templated)
    :param ending_version: last version to apply, inclusive; None is the newest one (templated)
    :param starting_timestamp: the start as a time (ISO 8601 with offset): the first version at or after it
        (templated)
    :param ending_timestamp: the end as a time: the last version at or before it (templated)
    :param max_versions: apply at most so many versions of the source, counted from the first one that
        changes data (templated)
    :param max_bytes: apply at most so many bytes of changes by the log, but at least one version (templated)
    :param milestone_versions: commit after at most so many versions, all in one application, so that a retry
        goes on behind the last commit; None commits everything at once (templated)
    :param milestone_bytes: the same by bytes of changes (templated)
    :param where: Spark SQL predicate on rows: one that leaves it is deleted, one that enters is inserted
        (templated)
    :param select: Spark SQL projections (templated)
    :param track_history_column_list: type 2: only changes of these columns make a new version (templated)
    :param track_history_except_column_list: type 2: all columns but these do (templated)
    :param start_column: type 2: name of the start column (templated)
    :param end_column: type 2: name of the end column; NULL in the current version (templated)
    :param initial_load: ``snapshot``; ``{"from_version": N}``: the snapshot of N - 1 and the changes since;
        ``none`` or ``{"none_at": V}``: no rows are loaded, and what the target holds counts as the source at
        its newest version, or at V (templated)
    :param partition_by: columns, or a mapping from a new column to its Spark SQL expression (templated)
    :param cluster_by: clustering columns; None takes the first keys, an empty list none (templated)
    :param target_properties: table properties of a target that is created here (templated)
    :param publish_changes: give a target that is created here a change data feed of its own
    :param schema_evolution: ``additive``, or ``none`` to refuse new columns (templated)
    :param adopt_from: the pipeline that built the target: this one goes on at its watermark, and runs under
        the old name fail from then on (templated)
    :param single_driver: nothing but one Spark driver at a time ever writes to the target; needed on S3
        without a log store for several writers, and without effect elsewhere
    :param staging: staging table that ``DeltaReadChangesOperator`` filled, to apply from (templated)
    :param storage_options: options of the object store, winning over those of ``delta_conn_id``; no secrets:
        they stand in the DAG (templated)
    :param kwargs: ``spark_conn_id``, ``delta_conn_id``, ``deploy_mode``, all of :class:`SparkSubmitOperator`
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
        "starting_timestamp",
        "ending_timestamp",
        "max_versions",
        "max_bytes",
        "milestone_versions",
        "milestone_bytes",
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
        "adopt_from",
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
        starting_timestamp: str | None = None,
        ending_timestamp: str | None = None,
        max_versions: int | str | None = None,
        max_bytes: int | str | None = None,
        milestone_versions: int | str | None = None,
        milestone_bytes: int | str | None = None,
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
        adopt_from: str | None = None,
        single_driver: bool = False,
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
        self.starting_timestamp = starting_timestamp
        self.ending_timestamp = ending_timestamp
        self.max_versions = max_versions
        self.max_bytes = max_bytes
        self.milestone_versions = milestone_versions
        self.milestone_bytes = milestone_bytes
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
        self.adopt_from = adopt_from
        self.single_driver = single_driver
        self.staging = staging
        self.storage_options = storage_options
        # Airflow needs assets while it parses: a templated table has none.
        if is_literal(source):
            self.add_inlets([delta_asset(source)])
        if not is_template(pipeline):
            self.add_outlets([pipeline_alias(pipeline)])

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Plan, run at most one Spark application per attempt, confirm from the target's log, publish."""
        from airflow_delta_cdc.names import located_request
        from delta_cdc.flow import published, run_apply

        pins = TaskPins(context)
        try:
            result = run_apply(
                located_request(self, context, self._request(context)),
                execute=partial(self.run_job, context),
                pins=pins,
                mirror=partial(kept, context, self.inlets, self.source, self.pipeline),
                say=self.log.info,
            )
        except DeltaCdcError:
            self.forget_job(context)
            raise
        self.forget_job(context)
        answer = self._publish(context, result.to_dict(), result.mirror)
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
            starting_timestamp=arguments.text(self.starting_timestamp),
            ending_timestamp=arguments.text(self.ending_timestamp),
            max_versions=number("max_versions", self.max_versions, minimum=1),
            max_bytes=number("max_bytes", self.max_bytes, minimum=1),
            milestone_versions=number("milestone_versions", self.milestone_versions, minimum=1),
            milestone_bytes=number("milestone_bytes", self.milestone_bytes, minimum=1),
            adopt_from=arguments.text(self.adopt_from),
            single_driver=self.single_driver,
            initial_load=arguments.initial_load(self.initial_load),
            staging=expand(self.staging) if arguments.is_given(self.staging) and self.staging else None,
            run_id=context["run_id"],
            scratch=self.has_scratch(),
            storage_options=self.options_of_storage(),
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
    def _publish(
        self, context: Context, published: dict[str, Any], mirror: dict[str, Any] | None
    ) -> dict[str, Any]:
        context["ti"].xcom_push(key="watermark", value=published)
        keep(context, self.inlets, self.source, self.pipeline, published, mirror)
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
