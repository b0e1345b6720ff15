"""The engine as functions, for a plain PySpark session with Delta."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from delta_cdc import job
from delta_cdc.core.option import filled, flat
from delta_cdc.core.options import APPLY, INGEST_ALONE, READ, QueryOptions
from delta_cdc.core.requests import ChangesRequest, IngestRequest
from delta_cdc.core.spec import TargetName
from delta_cdc.core.uris import spark_uri
from delta_cdc.delta_log.file_manifests import write_manifests
from delta_cdc.manifest_folder import folder_for, is_local
from delta_cdc.planning.changes import plan_changes as planned_changes
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from delta_cdc.run.table_arguments import apply_request, ingest_request, pipeline_of, placed
from delta_cdc.spark.catalog import delta_detail, target_of
from delta_cdc.spark.changes import feed, queries, rows
from delta_cdc.spark.named_errors import named
from delta_cdc.spark.sessions import other_meaning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.core.requests import ApplyRequest
    from delta_cdc.core.spec import IngestSpec, JobResult
    from delta_cdc.planning.changes import ChangesPlan
    from delta_cdc.run.outcomes import Outcome

logger = logging.getLogger(__name__)


def apply_changes(
    spark: SparkSession,
    source: str,
    target: str,
    *,
    # -- options: APPLY without source, target, freshness, staging
    pipeline: str | None = None,
    keys: Sequence[str] | str | None = None,
    insert_only: bool = False,
    source_kind: str | None = None,
    target_kind: str = "table",
    stored_as_scd_type: int = 1,
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
    ignore_null_updates: bool = False,
    ignore_null_updates_column_list: Sequence[str] | str | None = None,
    ignore_null_updates_except_column_list: Sequence[str] | str | None = None,
    columns_to_update: str | None = None,
    delete_mode: str = "hard",
    snapshot_version_column: str | None = None,
    rules: Mapping[str, Any] | None = None,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: str | None = None,
    ending_timestamp: str | None = None,
    single_driver: bool = False,
    initial_load: str | Mapping[str, int | str] = "snapshot",
    mode: str = "incremental",
    discard_history: bool = False,
    approve: str | None = None,
    take_over_from: str | None = None,
    shadow_of: Mapping[str, str] | str | None = None,
    shadowed_by: Mapping[str, str] | str | None = None,
    once: bool = False,
    dry_run: bool = False,
    limits: Mapping[str, Any] | str | None = None,
    policies: Mapping[str, Any] | str | None = None,
    layout: Mapping[str, Any] | str | None = None,
    repair: Mapping[str, Any] | str | None = None,
    # -- end
    scratch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    run_id: str = "",
) -> Outcome:
    """Apply the changes of ``source`` to ``target``, each exactly once, as SCD type 1 or type 2.

    If the target does not exist, the first call loads the newest version of the source. Each later call
    applies the changes after the watermark: the last version of the source that the target contains. The
    target's log records the watermark. If there are no changes, Spark reads and writes nothing.

    Expressions and predicates are Spark SQL. :data:`delta_cdc.core.options.APPLY` documents the options.

    :param spark: a session with Delta's extension and catalog; the call does not change its settings
    :param scratch: path or URI of a folder that this process and Spark's executors can reach. If Spark also
        runs on other machines, all read methods except ``change_files`` need the folder
    :param storage_options: options of the object store for reading the logs without Spark
    :param run_id: the run's id, for the target's log; "" generates a new one for each call. Concurrent calls
        must not share one
    :return: the applied versions, the watermark, counts and the target's version
    :raises DeltaCdcError: the call failed, and the failing step wrote nothing; the error names the remedy
    """
    arguments = {
        "source": source,
        "target": target,
        # -- given: APPLY without source, target, freshness, staging
        "pipeline": pipeline,
        "keys": keys,
        "insert_only": insert_only,
        "source_kind": source_kind,
        "target_kind": target_kind,
        "stored_as_scd_type": stored_as_scd_type,
        "sequence_by": sequence_by,
        "delete_sequence": delete_sequence,
        "where": where,
        "select": select,
        "apply_as_deletes": apply_as_deletes,
        "apply_as_truncates": apply_as_truncates,
        "column_list": column_list,
        "except_column_list": except_column_list,
        "track_history_column_list": track_history_column_list,
        "track_history_except_column_list": track_history_except_column_list,
        "ignore_null_updates": ignore_null_updates,
        "ignore_null_updates_column_list": ignore_null_updates_column_list,
        "ignore_null_updates_except_column_list": ignore_null_updates_except_column_list,
        "columns_to_update": columns_to_update,
        "delete_mode": delete_mode,
        "snapshot_version_column": snapshot_version_column,
        "rules": rules,
        "starting_version": starting_version,
        "ending_version": ending_version,
        "starting_timestamp": starting_timestamp,
        "ending_timestamp": ending_timestamp,
        "single_driver": single_driver,
        "initial_load": initial_load,
        "mode": mode,
        "discard_history": discard_history,
        "approve": approve,
        "take_over_from": take_over_from,
        "shadow_of": shadow_of,
        "shadowed_by": shadowed_by,
        "once": once,
        "dry_run": dry_run,
        "limits": limits,
        "policies": policies,
        "layout": layout,
        "repair": repair,
        # -- end
    }
    given = flat(APPLY, arguments)
    request = apply_request(
        given,
        pipeline=pipeline_of(given),
        run_id=run_id,
        scratch=scratch is not None or is_local(spark),
        storage_options=dict(storage_options) if storage_options else None,
    )
    request = placed(request, located(spark, request.source), located(spark, request.target, request))
    execute = partial(job.execute, spark, request.storage_options, scratch)
    return run(request, Services(execute=execute, say=logger.info))


def read_changes(
    spark: SparkSession,
    table: str,
    *,
    # -- options: CHANGES
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: str | None = None,
    ending_timestamp: str | None = None,
    query: str = "full_delta",
    keys: Sequence[str] | str | None = None,
    method: str = "auto",
    raw: bool = False,
    wide: bool = False,
    row_ids: bool = False,
    only_surviving: bool = False,
    where: str | None = None,
    select: Sequence[str] | str | None = None,
    policies: Mapping[str, Any] | str | None = None,
    # -- end
    scratch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the changes of a Delta table between two versions, as one lazy DataFrame.

    This call reads only the log, and chooses the read method. Spark reads the rows when it evaluates the
    DataFrame. If Spark then finds an error in the rows, such as a duplicated key, it raises its own
    exception. Pass this exception to :func:`delta_cdc.named_in_plan`, which returns the named error in it.

    :data:`delta_cdc.core.options.READ` documents the options.

    :param spark: a session with Delta's extension and catalog; the call does not change its settings
    :param table: path, URI or catalog name
    :param starting_version: first version, inclusive; set this or ``starting_timestamp``. The version after
        the newest one gives no rows
    :param ending_version: last version, inclusive; None is the newest one now
    :param starting_timestamp: the range begins with the first version at or after this time, such as
        ``2026-01-31T18:00:00+00:00``. The time must have an offset; names of time zones are not allowed
    :param scratch: path or URI of a folder that this process and Spark's executors can reach. If Spark also
        runs on other machines, all read methods except ``change_files`` need the folder. The call leaves a
        few kilobytes in it, which you may delete after your last use of the DataFrame
    :param storage_options: options of the object store for reading the log without Spark
    :return: the table's columns as of the end (or those of ``select``), ``_change_type`` (string: insert,
        update_preimage, update_postimage, delete), ``_commit_version`` (long), ``_commit_timestamp``
        (timestamp). With ``row_ids``, also ``_row_id`` and ``_row_commit_version`` (long). With ``wide``,
        all except the last three are in the structs ``old`` and ``new``, NULL without that state, and
        ``_change_type`` is insert, update or delete. A row of ``min_delta`` or ``upsert`` has the version and
        the timestamp of its last change, or, if the read method does not know them, of the last commit with
        changes in the part that the method compared
    :raises RangeTooLong: the range has too many versions for one DataFrame
    :raises DeltaCdcError: the read failed; the error names the remedy. The call never writes to the table
    """
    arguments = {
        "table": table,
        # -- given: CHANGES
        "starting_version": starting_version,
        "ending_version": ending_version,
        "starting_timestamp": starting_timestamp,
        "ending_timestamp": ending_timestamp,
        "query": query,
        "keys": keys,
        "method": method,
        "raw": raw,
        "wide": wide,
        "row_ids": row_ids,
        "only_surviving": only_surviving,
        "where": where,
        "select": select,
        "policies": policies,
        # -- end
    }
    given = flat(READ, arguments)
    request = filled(
        ChangesRequest,
        READ,
        given,
        table=located(spark, table),
        options=filled(QueryOptions, READ, given),
        scratch=scratch is not None or is_local(spark),
        storage_options=dict(storage_options) if storage_options else None,
    )
    feed.refuse_forbidden_confs(spark)
    plan = planned_changes(request)
    for note in plan.notes:
        logger.info(note)
    options = request.options
    others = other_meaning(spark) if options.where or options.select else {}
    if others:
        # The DataFrame belongs to the user's session, which evaluates it later.
        logger.warning(
            "where and select may mean something else in this session than in a run, which has Spark's "
            "defaults: %s",
            ", ".join(f"{name} is {value}" for name, value in others.items()),
        )
    if plan.read_ranges:
        folder = folder_for(spark, plan.read_ranges, scratch)
        changed_rows = rows.change_rows(
            spark,
            spark_uri(request.table),
            write_manifests(
                plan.log,
                plan.read_ranges,
                folder,
                at=plan.table.version,
                storage_options=request.storage_options,
            ),
            plan.table.schema_columns,
            at=plan.table.version,
            manifests_uri=folder,
            tracking=options.tracking,
            where=options.where,
        )
    else:
        changed_rows = rows.no_rows(spark, plan.table.schema_string, tracking=options.tracking)
    return queries.answer(
        changed_rows,
        options,
        source=plan.table.uri,
        versions=f"versions {plan.versions}",
        columns=plan.table.schema_columns,
    )


def plan_changes(
    table: str,
    *,
    # -- options: CHANGES
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: str | None = None,
    ending_timestamp: str | None = None,
    query: str = "full_delta",
    keys: Sequence[str] | str | None = None,
    method: str = "auto",
    raw: bool = False,
    wide: bool = False,
    row_ids: bool = False,
    only_surviving: bool = False,
    where: str | None = None,
    select: Sequence[str] | str | None = None,
    policies: Mapping[str, Any] | str | None = None,
    # -- end
    storage_options: Mapping[str, str] | None = None,
) -> ChangesPlan:
    """Plan how :func:`read_changes` would read a range, from the log alone, without Spark.

    The parameters and errors are those of :func:`read_changes`.

    :param table: path or URI
    :param starting_version: first version, inclusive; set this or ``starting_timestamp``
    :param starting_timestamp: see :func:`read_changes`
    :param storage_options: options of the object store for reading the log
    :return: the whole range and its parts, each with its read method (``method``), the reason
        and its size in bytes; ``print`` shows the plan
    """
    arguments = {
        "table": table,
        # -- given: CHANGES
        "starting_version": starting_version,
        "ending_version": ending_version,
        "starting_timestamp": starting_timestamp,
        "ending_timestamp": ending_timestamp,
        "query": query,
        "keys": keys,
        "method": method,
        "raw": raw,
        "wide": wide,
        "row_ids": row_ids,
        "only_surviving": only_surviving,
        "where": where,
        "select": select,
        "policies": policies,
        # -- end
    }
    given = flat(READ, arguments)
    options = filled(QueryOptions, READ, given)
    storage = dict(storage_options) if storage_options else None
    return planned_changes(filled(ChangesRequest, READ, given, options=options, storage_options=storage))


def ingest_changes(
    spark: SparkSession,
    source: str,
    log: str,
    *,
    # -- options: INGEST_ALONE without source, log
    pipeline: str | None = None,
    keys: Sequence[str] | str | None = None,
    insert_only: bool = False,
    format: str = "json",  # noqa: A002 - the option's name everywhere
    adapter: str = "plain",
    adapter_options: Mapping[str, Any] | None = None,
    schema: str | None = None,
    format_options: Mapping[str, Any] | None = None,
    starting_timestamp: str | None = None,
    glob: str | None = None,
    lexical_order: bool = False,
    follow_links: bool = False,
    replay: bool = False,
    single_driver: bool = False,
    limits: Mapping[str, Any] | str | None = None,
    policies: Mapping[str, Any] | str | None = None,
    layout: Mapping[str, Any] | str | None = None,
    # -- end
    kafka_options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    run_id: str = "",
) -> Outcome:
    """Append the new events of files or Kafka topics to a change log, each exactly once.

    Each call ingests one batch: the files, or the records of topics, that no earlier batch contains. The
    table ``<log>__ingested`` records the batches. If there is no new file or record, the call does not use
    Spark, and writes nothing. If an earlier batch is unfinished, the call finishes only that batch.

    :data:`delta_cdc.core.options.INGEST` documents the options.

    :param spark: a session with Delta's extension and catalog; the call does not change its settings
    :param kafka_options: options of the Kafka client, for the plan and for the job
    :param storage_options: options of the object store for reading the source and the log without Spark
    :param run_id: the run's id, for the log; "" generates a new one for each call. Concurrent calls must not
        share one
    :return: the ingested batch, its counts, and how much the limits left for later calls
    :raises DeltaCdcError: the call failed, and the log has no event of the failing batch; the error names the
        remedy
    """
    arguments = {
        "source": source,
        "log": log,
        # -- given: INGEST_ALONE without source, log
        "pipeline": pipeline,
        "keys": keys,
        "insert_only": insert_only,
        "format": format,
        "adapter": adapter,
        "adapter_options": adapter_options,
        "schema": schema,
        "format_options": format_options,
        "starting_timestamp": starting_timestamp,
        "glob": glob,
        "lexical_order": lexical_order,
        "follow_links": follow_links,
        "replay": replay,
        "single_driver": single_driver,
        "limits": limits,
        "policies": policies,
        "layout": layout,
        # -- end
    }
    given = flat(INGEST_ALONE, arguments)
    request = ingest_request(
        given,
        log=located(spark, log),
        pipeline=pipeline_of(given),
        run_id=run_id,
        storage_options=dict(storage_options) if storage_options else None,
        kafka_options=dict(kafka_options) if kafka_options else None,
    )
    return run(request, Services(execute=partial(_ingest, spark, request), say=logger.info))


def _ingest(spark: SparkSession, request: IngestRequest, spec: IngestSpec) -> JobResult:
    return job.run(spark, spec, storage_options=request.storage_options, kafka_options=request.kafka_options)


def located(spark: SparkSession, table: str, apply: ApplyRequest | None = None) -> str:
    """Return the location of a table: a path or URI unchanged, a catalog name as Spark resolves it.

    :param apply: the apply whose target the table is: it may create the table
    :raises TableNotFound: the catalog has no table of this name
    :raises NotADeltaTable: the name is a view, or a table of another format
    :raises DeltaCdcError: the catalog did not answer, or refused the request
    """
    if "/" in table:
        return table

    try:
        if apply is None:
            return str(delta_detail(spark, table, remedy="check the name.")["location"])
        name = TargetName(table, apply.target_location or "", apply.target_comment or "", apply.dry_run)
        return str(target_of(spark, name)["location"])
    except Exception as error:
        raise named(error, f"The look-up of {table} in the catalog") from error
