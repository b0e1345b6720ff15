"""Apply the changes of a Delta table to another one, exactly once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc.arguments import is_literal, is_template
from airflow_delta_cdc.assets import delta_asset, pipeline_alias
from airflow_delta_cdc.mirror import kept
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from airflow_delta_cdc.operators.pins import TaskPins
from airflow_delta_cdc.tables import announce_apply, shortened
from delta_cdc import tables
from delta_cdc.errors import DeltaCdcError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from delta_cdc.flow import Pins
    from delta_cdc.plan import ApplyRequest


class DeltaApplyChangesOperator(DeltaCdcOperator):
    """Bring a target table up to its source: every change exactly once, as SCD type 1 or type 2.

    Without a target, the source is loaded as of its newest version. After that every run applies the
    changes between the watermark, which stands in the target's own log, and the source's newest version.
    With nothing to apply no process is started and nothing is written. Expressions and predicates are Spark
    SQL.

    A dry run writes nothing: the log shows the steps, the counts and the statements, and the dict has a key
    ``dry_run`` with all three (long statements are cut there).

    The XCom ``return_value`` and the key ``watermark`` hold the same dict: pipeline, seal, source_table,
    source_table_id, version, starting_version, ending_version, applied, target_table, target_table_id,
    target_version, counts, timestamp. When something was applied, the target's asset gets an event through
    the alias ``delta_cdc:<pipeline>``.

    :param pipeline: the flow's name in the target's log. It must stay the same as long as the target lives,
        and no two flows into one target may share it. (templated)
    :param source: path, URI or catalog name of the source, ``${ENV}`` allowed (templated)
    :param target: path, URI or catalog name of the target, ``${ENV}`` allowed. A target that isn't there yet
        has no name. (templated)
    :param source_kind: ``change_feed``: a table whose changes count; ``change_log``: an append-only table of
        events, which may come late and twice; ``snapshot``: full copies, one per version or per value of
        ``snapshot_version_column`` (templated)
    :param keys: columns that identify a row; may be empty only with ``insert_only`` (templated)
    :param insert_only: append only: the source never updates or deletes
    :param stored_as_scd_type: 1 keeps the current rows, 2 keeps every version of them (templated)
    :param sequence_by: a change log: the order of events, an expression or a list of them, compared one after
        the other; required. Else type 2 only: what start and end hold: ``_commit_version`` (default),
        ``_commit_timestamp``, or an expression over the columns (templated)
    :param delete_sequence: a change feed: the same for deletes; required where ``sequence_by`` is an
        expression, because a delete in the feed carries the old values (templated)
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
    :param where: predicate on rows: one that leaves it is deleted, one that enters is inserted (templated)
    :param select: projections; ``*`` stands for all columns (templated)
    :param apply_as_deletes: predicate over the source's columns: where it is true, an event of a change log
        is a delete, and a row of another source is none (templated)
    :param apply_as_truncates: a change log: predicate; where it is true, the event has no key and deletes
        everything of a lower sequence (templated)
    :param column_list: of the projected columns, those that land; keys always do (templated)
    :param except_column_list: of the projected columns, those that don't land (templated)
    :param track_history_column_list: type 2: only changes of these columns make a new version (templated)
    :param track_history_except_column_list: type 2: all columns but these do (templated)
    :param ignore_null_updates: a NULL keeps the value that was there (templated)
    :param ignore_null_updates_column_list: only in these columns, or leaves of structs (``a.b``) (templated)
    :param ignore_null_updates_except_column_list: in all columns but these (templated)
    :param columns_to_update: column of the source with an array of the names of the columns that the event
        carries; the others keep their values. NULL means all (templated)
    :param start_column: type 2: name of the start column (templated)
    :param end_column: type 2: name of the end column; NULL in the current version (templated)
    :param on_tie: a change log: different events of one key at one sequence: ``fail``, ``quarantine``, or
        ``{"last_by": [<column>, ...]}``: the greatest wins (templated)
    :param on_invalid: an event without key or sequence: ``fail``, or ``quarantine`` into the table
        ``<target>__quarantine`` (templated)
    :param delete_mode: ``hard``, or ``soft`` (type 1): a deleted row stays, with ``_deleted`` true
        (templated)
    :param initial_load: ``snapshot``; ``{"from_version": N}``: the snapshot of N - 1 and the changes since;
        ``none`` or ``{"none_at": V}``: no rows are loaded, and what the target holds counts as the source at
        its newest version, or at V (templated)
    :param partition_by: columns, or a mapping from a new column to its expression (templated)
    :param cluster_by: clustering columns; None takes the first keys, an empty list none (templated)
    :param target_properties: table properties of a target that is created here (templated)
    :param publish_changes: give a target that is created here a change data feed of its own
    :param schema_evolution: ``additive``, or ``none`` to refuse new columns (templated)
    :param mode: ``incremental``, also where it is empty; ``backfill``, the same, as forms call it;
        ``dry_run``, the same with ``dry_run``; ``repair``: the keys of a range at or below the watermark, of
        ``repair_keys`` or of the quarantine are computed again, and the watermark stays; ``reload``: all keys
        are; ``reset``: the target is thrown away and loaded anew; ``interval``: from the starting to the
        ending timestamp, exclusive: a first fill up to there, or the repair of what is applied already
        (templated)
    :param discard_history: ``reset`` of type 2: the history that goes with it may go (templated)
    :param repair_keys: ``repair``: predicate over the key columns, instead of a range (templated)
    :param repair_quarantined: ``repair``: the keys that stand in the quarantine table (templated)
    :param on_late: a change log: an event below the lateness horizon: ``fail`` or ``discard`` (templated)
    :param on_drift: other options than the target was built with: ``fail``; ``accept``: they hold from now
        on; ``repair``: and the target is reloaded with them (templated)
    :param on_source_replaced: the source was made again: ``fail`` or ``reload`` (templated)
    :param on_target_replaced: somebody else replaced or overwrote the target: ``fail`` or ``reload``
        (templated)
    :param on_versions_expired: versions to apply are gone: ``fail`` or ``reload`` (templated)
    :param adopt_from: the pipeline that built the target: this one goes on at its watermark, and runs under
        the old name fail from then on (templated)
    :param snapshot_version_column: ``snapshot``: each value of this column, ascending, is one full copy
        (templated)
    :param single_driver: nothing but one Spark driver at a time ever writes to the target; needed on S3
        without a log store for several writers, and without effect elsewhere
    :param dry_run: plan, count and show the statements, and write nothing (templated)
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
        "source_kind",
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
        "apply_as_deletes",
        "apply_as_truncates",
        "column_list",
        "except_column_list",
        "track_history_column_list",
        "track_history_except_column_list",
        "ignore_null_updates",
        "ignore_null_updates_column_list",
        "ignore_null_updates_except_column_list",
        "columns_to_update",
        "start_column",
        "end_column",
        "on_tie",
        "on_invalid",
        "delete_mode",
        "initial_load",
        "partition_by",
        "cluster_by",
        "target_properties",
        "schema_evolution",
        "mode",
        "discard_history",
        "repair_keys",
        "repair_quarantined",
        "on_late",
        "on_drift",
        "on_source_replaced",
        "on_target_replaced",
        "on_versions_expired",
        "adopt_from",
        "snapshot_version_column",
        "dry_run",
        "staging",
        "storage_options",
        *DeltaCdcOperator.template_fields,
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "where": "sql",
        "select": "py",
        "apply_as_deletes": "sql",
        "apply_as_truncates": "sql",
        "repair_keys": "sql",
        "target_properties": "json",
    }
    ui_color = "#cfe8fc"

    def __init__(
        self,
        *,
        pipeline: str,
        source: str,
        target: str,
        source_kind: str = "change_feed",
        keys: Sequence[str] | str | None = None,
        insert_only: bool = False,
        stored_as_scd_type: int | str = 1,
        sequence_by: Sequence[str] | str | None = None,
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
        select: Sequence[str] | str | None = None,
        apply_as_deletes: str | None = None,
        apply_as_truncates: str | None = None,
        column_list: Sequence[str] | None = None,
        except_column_list: Sequence[str] | None = None,
        track_history_column_list: Sequence[str] | None = None,
        track_history_except_column_list: Sequence[str] | None = None,
        ignore_null_updates: bool | str = False,
        ignore_null_updates_column_list: Sequence[str] | None = None,
        ignore_null_updates_except_column_list: Sequence[str] | None = None,
        columns_to_update: str | None = None,
        start_column: str = "__START_AT",
        end_column: str = "__END_AT",
        on_tie: str | Mapping[str, Sequence[str]] = "fail",
        on_invalid: str = "fail",
        delete_mode: str = "hard",
        initial_load: str | Mapping[str, int | str] = "snapshot",
        partition_by: Sequence[str] | Mapping[str, str | None] | None = None,
        cluster_by: Sequence[str] | None = None,
        target_properties: Mapping[str, Any] | None = None,
        publish_changes: bool = False,
        schema_evolution: str = "additive",
        mode: str | None = "incremental",
        discard_history: bool | str = False,
        repair_keys: str | None = None,
        repair_quarantined: bool | str = False,
        on_late: str = "fail",
        on_drift: str = "fail",
        on_source_replaced: str = "fail",
        on_target_replaced: str = "fail",
        on_versions_expired: str = "fail",
        adopt_from: str | None = None,
        snapshot_version_column: str | None = None,
        single_driver: bool = False,
        dry_run: bool | str = False,
        staging: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.source = source
        self.target = target
        self.source_kind = source_kind
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
        self.start_column = start_column
        self.end_column = end_column
        self.on_tie = on_tie
        self.on_invalid = on_invalid
        self.delete_mode = delete_mode
        self.initial_load = initial_load
        self.partition_by = partition_by
        self.cluster_by = cluster_by
        self.target_properties = target_properties
        self.publish_changes = publish_changes
        self.schema_evolution = schema_evolution
        self.mode = mode
        self.discard_history = discard_history
        self.repair_keys = repair_keys
        self.repair_quarantined = repair_quarantined
        self.on_late = on_late
        self.on_drift = on_drift
        self.on_source_replaced = on_source_replaced
        self.on_target_replaced = on_target_replaced
        self.on_versions_expired = on_versions_expired
        self.adopt_from = adopt_from
        self.snapshot_version_column = snapshot_version_column
        self.single_driver = single_driver
        # Hides BaseOperator.dry_run(), which only prints template fields, and which Airflow does not call.
        self.dry_run = dry_run  # type: ignore[method-assign, assignment]
        self.staging = staging
        self.storage_options = storage_options
        self.declare_assets()

    def declare_assets(self) -> None:
        """Tell Airflow what the task reads and announces, which it needs to know while it parses."""
        # A templated table has no asset.
        if is_literal(self.source):
            self.add_inlets([delta_asset(self.source)])
        if not is_template(self.pipeline):
            self.add_outlets([pipeline_alias(self.pipeline)])

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Plan, run at most one Spark application per attempt, confirm from the target's log, publish."""
        from airflow_delta_cdc.names import located_request
        from delta_cdc.flow import NoPins, published, run_apply

        request = self._request(context)
        # A dry run must not decide where the range of the work ends that comes after it.
        pins: Pins = NoPins() if request.dry_run else TaskPins(context)
        try:
            result = run_apply(
                located_request(self, context, request),
                execute=partial(self.run_job, context),
                pins=pins,
                mirror=partial(kept, context, self.inlets, self.source, self.pipeline),
                say=self.log.info,
            )
        except DeltaCdcError:
            self.forget_job(context)
            raise
        self.forget_job(context)
        if request.dry_run:
            return self._show(context, result.to_dict())
        answer = self._publish(context, result.to_dict(), result.mirror)
        # Last: a try that dies before this publishes again, one that is cleared after it has nothing to do.
        published(result, pins)
        return answer

    def _request(self, context: Context) -> ApplyRequest:
        given = {name: getattr(self, name) for name in (*tables.APPLY_DEFAULTS, "dry_run", "staging")}
        _, request = tables.requests(given, run_id=self.work_id(context), **self.connected())
        assert request is not None
        return request

    # -- publishing -----------------------------------------------------------------------------
    def _publish(
        self, context: Context, published: dict[str, Any], mirror: dict[str, Any] | None
    ) -> dict[str, Any]:
        context["ti"].xcom_push(key="watermark", value=published)
        announce_apply(context, self.inlets, vars(self), published, mirror)
        return published

    def _show(self, context: Context, published: dict[str, Any]) -> dict[str, Any]:
        """Publish what a dry run found out, which the log has told; what is kept of the watermark stays."""
        shown = shortened(published)
        context["ti"].xcom_push(key="watermark", value=shown)
        return shown
