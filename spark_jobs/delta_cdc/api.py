"""The engine as functions, for a plain PySpark session with Delta."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from delta_cdc import arguments
from delta_cdc.errors import TableNotFound
from delta_cdc.flow import run_apply, run_ingest
from delta_cdc.log.slices import prepared, write_slices
from delta_cdc.log.store import spark_uri
from delta_cdc.plan import ApplyRequest, ChangesRequest, IngestRequest
from delta_cdc.plan import plan_changes as planned_changes
from delta_cdc.scratch import folder_for, is_local

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.flow import ApplyResult, IngestResult
    from delta_cdc.plan import ChangesPlan
    from delta_cdc.spec import ApplySpec, IngestSpec, JobResult

logger = logging.getLogger(__name__)


def apply_changes(
    spark: SparkSession,
    source: str,
    target: str,
    *,
    pipeline: str,
    source_kind: str = "change_feed",
    keys: Sequence[str] | str | None = None,
    insert_only: bool = False,
    stored_as_scd_type: int = 1,
    sequence_by: Sequence[str] | str | None = None,
    delete_sequence: str | None = None,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: str | None = None,
    ending_timestamp: str | None = None,
    max_versions: int | None = None,
    max_bytes: int | None = None,
    milestone_versions: int | None = None,
    milestone_bytes: int | None = None,
    where: str | None = None,
    select: Sequence[str] | str | None = None,
    apply_as_deletes: str | None = None,
    apply_as_truncates: str | None = None,
    column_list: Sequence[str] | None = None,
    except_column_list: Sequence[str] | None = None,
    track_history_column_list: Sequence[str] | None = None,
    track_history_except_column_list: Sequence[str] | None = None,
    ignore_null_updates: bool = False,
    ignore_null_updates_column_list: Sequence[str] | None = None,
    ignore_null_updates_except_column_list: Sequence[str] | None = None,
    columns_to_update: str | None = None,
    start_column: str = "__START_AT",
    end_column: str = "__END_AT",
    on_tie: str | Mapping[str, Sequence[str]] = "fail",
    on_invalid: str = "fail",
    delete_mode: str = "hard",
    initial_load: str | Mapping[str, int] = "snapshot",
    partition_by: Sequence[str] | Mapping[str, str | None] | None = None,
    cluster_by: Sequence[str] | None = None,
    target_properties: Mapping[str, Any] | None = None,
    publish_changes: bool = False,
    schema_evolution: str = "additive",
    mode: str = "incremental",
    discard_history: bool = False,
    repair_keys: str | None = None,
    repair_quarantined: bool = False,
    on_late: str = "fail",
    on_drift: str = "fail",
    on_source_replaced: str = "fail",
    on_target_replaced: str = "fail",
    on_versions_expired: str = "fail",
    adopt_from: str | None = None,
    snapshot_version_column: str | None = None,
    single_driver: bool = False,
    dry_run: bool = False,
    scratch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    run_id: str = "",
) -> ApplyResult:
    """Bring ``target`` up to ``source``: every change exactly once, as SCD type 1 or type 2.

    Without a target, the source is loaded as of its newest version; after that, each call applies the
    changes between the watermark, which stands in the target's own log, and the source's newest version.
    With nothing to apply, nothing is read by Spark and nothing is written.

    Expressions and predicates are Spark SQL.

    :param spark: a session with Delta's extension and catalog; left as it is
    :param source: path, URI, or catalog name of the source. Its change data feed need not be on for type 1,
        nor where it tracks rows or only adds; see :func:`read_changes`
    :param target: path or URI of the target, or the catalog name of an existing one
    :param pipeline: the flow's name in the target's log; must stay the same as long as the target lives
    :param source_kind: ``change_feed``: a table whose changes count; ``change_log``: an append-only table of
        events, which may come late and twice; ``snapshot``: full copies, one per version or per value of
        ``snapshot_version_column``
    :param keys: columns that identify a row; may be empty only with ``insert_only``
    :param insert_only: append only: the source never updates or deletes
    :param stored_as_scd_type: 1 keeps the current rows, 2 keeps every version of them
    :param sequence_by: a change log: the order of events, an expression or a list of them, compared one after
        the other; required. Else type 2 only: what start and end hold: ``_commit_version`` (default),
        ``_commit_timestamp``, or an expression over the columns
    :param delete_sequence: a change feed: the same for deletes; required where ``sequence_by`` is an
        expression, because a delete in the feed carries the old values
    :param starting_version: first version to apply, inclusive; None goes on at the watermark
    :param ending_version: last version to apply, inclusive; None is the newest one
    :param starting_timestamp: the start as a time, ISO 8601 with offset: the first version at or after it
    :param ending_timestamp: the end as a time: the last version at or before it
    :param max_versions: apply at most so many versions, counted from the first one that changes data
    :param max_bytes: apply at most so many bytes of changes by the log, but at least one version
    :param milestone_versions: commit after at most so many versions; None commits everything at once
    :param milestone_bytes: the same by bytes of changes
    :param where: predicate on rows: one that leaves it is deleted, one that enters is inserted
    :param select: projections; ``*`` stands for all columns
    :param apply_as_deletes: predicate over the source's columns: where it is true, an event of a change log
        is a delete, and a row of another source is none
    :param apply_as_truncates: a change log: predicate; where it is true, the event has no key and deletes
        everything of a lower sequence
    :param column_list: of the projected columns, those that land; keys always do
    :param except_column_list: of the projected columns, those that don't land
    :param track_history_column_list: type 2: only changes of these columns make a new version
    :param track_history_except_column_list: type 2: all columns but these do
    :param ignore_null_updates: a NULL keeps the value that was there
    :param ignore_null_updates_column_list: only in these columns, or leaves of structs (``a.b``)
    :param ignore_null_updates_except_column_list: in all columns but these
    :param columns_to_update: column of the source with an array of the names of the columns that the event
        carries; the others keep their values. NULL means all
    :param start_column: type 2: name of the start column
    :param end_column: type 2: name of the end column; NULL in the current version
    :param on_tie: a change log: different events of one key at one sequence: ``fail``, ``quarantine``, or
        ``{"last_by": [<column>, ...]}``: the greatest wins
    :param on_invalid: an event without key or sequence: ``fail``, or ``quarantine`` into the table
        ``<target>__quarantine``
    :param delete_mode: ``hard``, or ``soft`` (type 1): a deleted row stays, with ``_deleted`` true
    :param initial_load: ``"snapshot"``; ``{"from_version": N}``: a snapshot of N - 1 and the changes since;
        ``"none"`` or ``{"none_at": V}``: no rows are loaded, and what the target holds already counts as the
        source at its newest version, or at V
    :param partition_by: columns, or a mapping from a new column to its expression
    :param cluster_by: clustering columns; None takes the first keys, an empty list none
    :param target_properties: table properties of a target that is created here
    :param publish_changes: give a target that is created here a change data feed of its own
    :param schema_evolution: ``additive``, or ``none`` to refuse new columns
    :param mode: ``incremental``; ``repair``: the keys of a range at or below the watermark, of
        ``repair_keys`` or of the quarantine are computed again, and the watermark stays; ``reload``: all keys
        are; ``reset``: the target is thrown away and loaded anew
    :param discard_history: ``reset`` of type 2: the history that goes with it may go
    :param repair_keys: ``repair``: predicate over the key columns, instead of a range
    :param repair_quarantined: ``repair``: the keys that stand in the quarantine table
    :param on_late: a change log: an event below the lateness horizon: ``fail`` or ``discard``
    :param on_drift: other options than the target was built with: ``fail``; ``accept``: they hold from now
        on; ``repair``: and the target is reloaded with them
    :param on_source_replaced: the source was made again: ``fail`` or ``reload``
    :param on_target_replaced: somebody else replaced or overwrote the target: ``fail`` or ``reload``
    :param on_versions_expired: versions to apply are gone: ``fail`` or ``reload``
    :param adopt_from: the pipeline that built the target: this one goes on at its watermark, and runs under
        the old name fail from then on
    :param snapshot_version_column: ``snapshot``: each value of this column, ascending, is one full copy
    :param single_driver: nothing but this driver ever writes to the target; needed on S3 without a log store
        for several writers, and without effect elsewhere
    :param dry_run: plan, count and return the statements, and write nothing
    :param scratch: path or URI of a folder that this process and Spark's executors reach; needed where the
        source has no change data feed and Spark does not run on this machine alone
    :param storage_options: options of the object store for reading the logs without Spark
    :param run_id: who did it, for the target's log; "" is a new one for each call. Calls
        at the same moment must not share one
    :return: what was applied, the watermark, counts and the target's version
    :raises DeltaCdcError: a named error with its remedy; nothing of the failing step was written
    """
    request = ApplyRequest(
        pipeline=pipeline,
        source=located(spark, source),
        target=located(spark, target),
        options=arguments.apply_options(
            source_kind=source_kind,
            keys=keys,
            insert_only=insert_only,
            stored_as_scd_type=stored_as_scd_type,
            sequence_by=sequence_by,
            delete_sequence=delete_sequence,
            where=where,
            select=select,
            apply_as_deletes=apply_as_deletes,
            apply_as_truncates=apply_as_truncates,
            column_list=column_list,
            except_column_list=except_column_list,
            track_history_column_list=track_history_column_list,
            track_history_except_column_list=track_history_except_column_list,
            ignore_null_updates=ignore_null_updates,
            ignore_null_updates_column_list=ignore_null_updates_column_list,
            ignore_null_updates_except_column_list=ignore_null_updates_except_column_list,
            columns_to_update=columns_to_update,
            start_column=start_column,
            end_column=end_column,
            on_tie=on_tie,
            on_invalid=on_invalid,
            on_late=on_late,
            delete_mode=delete_mode,
            snapshot_version_column=snapshot_version_column,
            partition_by=partition_by,
            cluster_by=cluster_by,
            target_properties=target_properties,
            publish_changes=publish_changes,
            schema_evolution=schema_evolution,
        ),
        starting_version=starting_version,
        ending_version=ending_version,
        starting_timestamp=starting_timestamp,
        ending_timestamp=ending_timestamp,
        max_versions=max_versions,
        max_bytes=max_bytes,
        milestone_versions=milestone_versions,
        milestone_bytes=milestone_bytes,
        adopt_from=adopt_from,
        single_driver=single_driver,
        initial_load=arguments.initial_load(initial_load),
        run_id=run_id,
        scratch=scratch is not None or is_local(spark),
        storage_options=dict(storage_options) if storage_options else None,
        **arguments.run_choices(
            mode=mode,
            discard_history=discard_history,
            repair_keys=repair_keys,
            repair_quarantined=repair_quarantined,
            on_drift=on_drift,
            on_source_replaced=on_source_replaced,
            on_target_replaced=on_target_replaced,
            on_versions_expired=on_versions_expired,
            dry_run=dry_run,
        ),
    )
    return run_apply(request, execute=partial(_run, spark, scratch, request.storage_options), say=logger.info)


def read_changes(
    spark: SparkSession,
    table: str,
    *,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: str | None = None,
    ending_timestamp: str | None = None,
    query: str = "full_delta",
    keys: Sequence[str] | str | None = None,
    capture: str = "auto",
    raw: bool = False,
    where: str | None = None,
    select: Sequence[str] | str | None = None,
    on_change_commit: str = "fail",
    scratch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return what changed in a Delta table between two versions, as one lazy DataFrame.

    How the changes are read is decided here, from the log; rows are read when the DataFrame is. What only
    the rows can show is raised then, by Spark, with our error's name and text in its message:
    :func:`delta_cdc.named_in_plan` gives the error itself.

    :param spark: a session with Delta's extension and catalog; left as it is
    :param table: path, URI or catalog name
    :param starting_version: first version, inclusive; this or ``starting_timestamp`` is needed. The version
        after the newest one gives no rows
    :param ending_version: last version, inclusive; None is the newest one now
    :param starting_timestamp: the start as a time, ISO 8601 with offset: the first version at or after it
    :param ending_timestamp: the end as a time: the last version at or before it
    :param query: ``full_delta``: every change of every commit, with pre-images; ``append_only``: every row
        inserted, as it was inserted; ``min_delta``: the net effect per key: insert, delete, or pre-image and
        post-image; ``upsert``: the last row of every key that net changed and lives at the end
    :param keys: columns that identify a row; needed by ``upsert`` and with ``where``, and by ``min_delta``
        unless the table tracks rows
    :param capture: ``change_files`` (Delta's change data feed), ``row_tracking``, ``snapshot_diff`` (both
        ends compared by key), ``added_files`` (commits that only add), or ``auto``: per segment of the range,
        from the log; :func:`plan_changes` says which and why
    :param raw: ``full_delta``: exactly what the feed holds, rows that a commit wrote back unchanged included
    :param where: Spark SQL predicate on rows: one that leaves it is a delete, one that enters it an insert
    :param select: Spark SQL projections of rows; ``*`` stands for all columns
    :param on_change_commit: ``added_files``: ``fail`` at a commit that removes rows, or ``skip`` it
    :param scratch: path or URI of a folder that this process and Spark's executors reach; needed by all
        captures but ``change_files`` where Spark does not run on this machine alone. A few kilobytes stay
        there until the caller removes them
    :param storage_options: options of the object store for reading the log without Spark
    :return: the table's columns as of the end (or those of ``select``), ``_change_type`` (string: insert,
        update_preimage, update_postimage, delete), ``_commit_version`` (long), ``_commit_timestamp``
        (timestamp). A net row has those of its last change; where only the two ends are compared, the
        version of a delete is the segment's end
    :raises RangeTooLong: too many versions for one DataFrame
    :raises DeltaCdcError: a named error with its remedy; nothing is ever written to the table
    """
    from delta_cdc.changes import feed, queries, rows

    request = _changes_request(
        located(spark, table),
        starting_version=starting_version,
        ending_version=ending_version,
        starting_timestamp=starting_timestamp,
        ending_timestamp=ending_timestamp,
        query=query,
        keys=keys,
        capture=capture,
        raw=raw,
        where=where,
        select=select,
        on_change_commit=on_change_commit,
        storage_options=storage_options,
        scratch=scratch is not None or is_local(spark),
    )
    feed.refuse_forbidden_confs(spark)
    plan = planned_changes(request)
    for note in plan.notes:
        logger.info(note)
    options = request.options
    by_row_id = options.is_net and not options.keys
    if plan.segments:
        folder = folder_for(spark, plan.segments, scratch)
        found = rows.change_rows(
            spark,
            spark_uri(request.table),
            write_slices(
                request.table, plan.segments, folder, at=plan.at, storage_options=request.storage_options
            ),
            plan.columns,
            at=plan.at,
            slices_uri=folder,
            with_row_id=by_row_id,
            schema=plan.schema,
        )
    else:
        found = rows.no_rows(spark, plan.schema, with_row_id=by_row_id)
    return queries.answer(
        found,
        options,
        source=plan.uri,
        versions=f"versions {plan.versions}",
        columns=plan.columns,
        by_row_id=by_row_id,
    )


def plan_changes(
    table: str,
    *,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: str | None = None,
    ending_timestamp: str | None = None,
    query: str = "full_delta",
    keys: Sequence[str] | str | None = None,
    capture: str = "auto",
    raw: bool = False,
    where: str | None = None,
    select: Sequence[str] | str | None = None,
    on_change_commit: str = "fail",
    storage_options: Mapping[str, str] | None = None,
) -> ChangesPlan:
    """Say how :func:`read_changes` would read a range, from the log alone: starts no process.

    The parameters and errors are those of :func:`read_changes`; ``table`` is a path or URI.

    :return: the range and its segments, each with its capture, the reason and its size in bytes; ``print``
        shows it
    """
    return planned_changes(
        _changes_request(
            table,
            starting_version=starting_version,
            ending_version=ending_version,
            starting_timestamp=starting_timestamp,
            ending_timestamp=ending_timestamp,
            query=query,
            keys=keys,
            capture=capture,
            raw=raw,
            where=where,
            select=select,
            on_change_commit=on_change_commit,
            storage_options=storage_options,
        )
    )


def _changes_request(
    table: str,
    *,
    starting_version: int | None,
    ending_version: int | None,
    starting_timestamp: str | None,
    ending_timestamp: str | None,
    storage_options: Mapping[str, str] | None,
    scratch: bool = True,
    **asked: Any,
) -> ChangesRequest:
    return ChangesRequest(
        table=table,
        starting_version=starting_version,
        ending_version=ending_version,
        starting_timestamp=starting_timestamp,
        ending_timestamp=ending_timestamp,
        options=arguments.query_options(**asked),
        scratch=scratch,
        storage_options=dict(storage_options) if storage_options else None,
    )


def _run(
    spark: SparkSession, scratch: str | None, storage_options: dict[str, str] | None, spec: ApplySpec
) -> JobResult:
    from delta_cdc import job

    segments = [segment for step in spec.steps for segment in step.segments]
    folder = folder_for(spark, segments, scratch)
    return job.run(spark, prepared(spec, folder, storage_options))


def ingest_changes(
    spark: SparkSession,
    source: str,
    log: str,
    *,
    pipeline: str,
    keys: Sequence[str] | str | None = None,
    format: str = "json",  # noqa: A002 - as Spark's readers name it
    adapter: str = "plain",
    adapter_options: Mapping[str, Any] | None = None,
    schema: str | None = None,
    format_options: Mapping[str, Any] | None = None,
    insert_only: bool = False,
    starting_timestamp: str | None = None,
    max_files: int | None = None,
    max_bytes: int | None = None,
    max_offsets: int | None = None,
    glob: str | None = None,
    lexical_order: bool = False,
    on_invalid: str = "quarantine",
    on_expired: str = "fail",
    replay: bool = False,
    cluster_by: Sequence[str] | None = None,
    log_properties: Mapping[str, Any] | None = None,
    kafka_options: Mapping[str, str] | None = None,
    single_driver: bool = False,
    storage_options: Mapping[str, str] | None = None,
    run_id: str = "",
) -> IngestResult:
    """Bring what is new in an external change set into a change log: every event exactly once.

    Each call takes one batch: the files, or the records of a topic, that no batch took before, as the table
    ``<log>__ingested`` has it. With nothing new, Spark is not used and nothing is written. A batch that was
    begun and not finished is finished first, alone.

    :param spark: a session with Delta's extension and catalog; left as it is
    :param source: a folder, a file or a pattern (:mod:`delta_cdc.ingest.listing`), or
        ``kafka://<host:port>,…/<topic>,…``
    :param log: path or URI of the change log, or the catalog name of an existing one; the first batch
        makes it
    :param pipeline: the flow's name in the log; must stay the same as long as the log lives
    :param keys: columns that identify a row; needed unless ``insert_only``
    :param format: of files: ``json`` (one object per line), ``csv`` or ``parquet``
    :param adapter: ``plain``, ``debezium``, ``dms``, ``goldengate``, or the dotted name of a function of your
        own (:mod:`delta_cdc.ingest.shape`)
    :param adapter_options: what the adapter is told
    :param schema: the events' columns as Spark SQL DDL; None takes those of the log, and those that the
        records show
    :param format_options: options of Spark's reader
    :param insert_only: every record is a row of its own; no keys
    :param starting_timestamp: files last modified before it, and records written before it to a partition
        that is read for the first time, are left out; ISO 8601 with offset
    :param max_files: at most so many files, the oldest first; None is all
    :param max_bytes: at most so many bytes of files, but at least one file; None is all
    :param max_offsets: at most so many records of a topic, spread over its partitions; None is all
    :param glob: pattern over the files' own names, such as ``*.json``
    :param lexical_order: the names of files only grow: only those after the last one taken are listed. A file
        that is delivered again is not noticed then
    :param on_invalid: a record that cannot be decoded, or has no key or sequence: ``quarantine`` (into
        ``<log>__quarantine``) or ``fail``
    :param on_expired: records that a topic dropped before they were ingested: ``fail`` or ``continue``
    :param replay: take the records in quarantine again, instead of new ones
    :param cluster_by: clustering columns of a log that is made here; None takes the first keys
    :param log_properties: its table properties
    :param kafka_options: options of the Kafka client, for the look at the topic and for the job
    :param single_driver: nothing but this driver ever writes to the log; needed on S3 without a log store for
        several writers
    :param storage_options: options of the object store for looking without Spark
    :param run_id: who did it, for the log; "" is a new one for each call. Calls
        at the same moment must not share one
    :return: what was ingested, with counts, and what the bounds left
    :raises DeltaCdcError: a named error with its remedy; nothing of the failing batch is in the log
    """
    request = IngestRequest(
        pipeline=pipeline,
        source=source,
        log=located(spark, log),
        options=arguments.ingest_options(
            source=source,
            format=format,
            adapter=adapter,
            adapter_options=adapter_options,
            keys=keys,
            schema=schema,
            format_options=format_options,
            insert_only=insert_only,
            on_invalid=on_invalid,
            cluster_by=cluster_by,
            log_properties=log_properties,
        ),
        starting_timestamp=starting_timestamp,
        max_files=max_files,
        max_bytes=max_bytes,
        max_offsets=max_offsets,
        glob=glob,
        lexical_order=lexical_order,
        replay=replay,
        on_expired=on_expired,
        single_driver=single_driver,
        run_id=run_id,
        storage_options=dict(storage_options) if storage_options else None,
        kafka_options=dict(kafka_options) if kafka_options else None,
    )
    return run_ingest(request, execute=partial(_ingest, spark, request), say=logger.info)


def _ingest(spark: SparkSession, request: IngestRequest, spec: IngestSpec) -> JobResult:
    from delta_cdc import job

    return job.run(spark, spec, storage_options=request.storage_options, kafka_options=request.kafka_options)


def located(spark: SparkSession, table: str) -> str:
    """Return the location of a table: a path or URI as it is, a catalog name as Spark resolves it.

    :raises TableNotFound: for a name the catalog does not know
    """
    if "/" in table:
        return table
    from delta_cdc.sql import table as sql_name

    try:
        row = spark.sql(f"DESCRIBE DETAIL {sql_name(table)}").select("location").collect()[0]
    except Exception as error:
        raise TableNotFound(
            f"The catalog has no Delta table {table}.",
            remedy="check the name; a target that does not exist yet is named by its path.",
        ) from error
    return str(row["location"])
