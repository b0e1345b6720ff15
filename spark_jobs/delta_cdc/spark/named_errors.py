"""Turn errors of Spark and Delta into our named errors, each with a remedy."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from delta_cdc.core.commit_safety import REFUSED_COMMIT
from delta_cdc.core.errors import (
    ChangeFeedDisabled,
    DeltaCdcError,
    EnvironmentNotReady,
    ExecutorLost,
    InvalidExpression,
    JobFailed,
    JobRefused,
    KeyNotUnique,
    NotADeltaTable,
    ReadMethodUnavailable,
    SchemaChangeInRange,
    SparkServerLost,
    StoreUnavailable,
    TableNotFound,
    UnsafeLogStore,
    VersionsExpired,
)
from delta_cdc.core.reasons import reason, unnamed
from delta_cdc.core.retention import VERSIONS_EXPIRED_REMEDY
from delta_cdc.core.spec import JobResult
from delta_cdc.spark.apply.refusals import DUPLICATE_MARK
from delta_cdc.spark.changes.queries import named_in_plan
from delta_cdc.spark.sealed import constraints
from delta_cdc.spark.sealed.steps import LOST_ROWS
from delta_cdc.spark.sessions import is_lost, restriction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DELTAS_CATALOG = "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
_DELTA_REMEDY = (
    "start Spark with the confs spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension (beside others "
    f"in a list) and {_DELTAS_CATALOG}."
)
#: What Spark says of a table's path if its current catalog is not Delta's: queries and MERGE, and ALTER.
_NO_PATHS = (
    "DIRECT_QUERY] Unsupported data source type for direct query on files: delta",
    "[SCHEMA_NOT_FOUND] The schema `spark_catalog`.`delta` cannot be found",
)
_PATHS_REMEDY = (
    "let Delta's catalog be the current one, because no other knows tables by their paths: start Spark with "
    f"{_DELTAS_CATALOG}, and set spark.sql.defaultCatalog=spark_catalog for this job. Give other catalogs, "
    "such as Iceberg's, names of their own, and write their tables with all three parts."
)

#: Error classes of Delta and Spark -> our name and remedy. First match wins.
_KNOWN: tuple[tuple[tuple[str, ...], type[DeltaCdcError], str], ...] = (
    (
        ("DELTA_CHANGE_DATA_FEED_INCOMPATIBLE", "DELTA_BLOCK_COLUMN_MAPPING_AND_CDC"),
        SchemaChangeInRange,
        "apply up to the version before the change (ending_version), then load the target again after it.",
    ),
    (
        ("DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta", "Cannot find catalog plugin class"),
        EnvironmentNotReady,
        "put Delta's JARs on the class path of Spark's driver: delta-cdc jars lists them.",
    ),
    (
        ("Table does not support reads: delta", "DELTA_CONFIGURE_SPARK_SESSION"),
        EnvironmentNotReady,
        _DELTA_REMEDY,
    ),
    (
        _NO_PATHS,
        EnvironmentNotReady,
        _PATHS_REMEDY,
    ),
    (
        ("(Permission denied)", "java.nio.file.AccessDeniedException", "AccessControlException"),
        StoreUnavailable,
        "give the user of Spark's driver and executors the right to read and write these files.",
    ),
    (
        (REFUSED_COMMIT,),
        UnsafeLogStore,
        "put the table on another disk, or set single_driver=True if no second driver can ever write to it.",
    ),
    (
        (LOST_ROWS,),
        ExecutorLost,
        "retry; where it happens again, see why executors die: memory, or machines that are taken away.",
    ),
    (
        ("DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA",),
        ReadMethodUnavailable,
        (
            "run once with mode='reload': another writer removed files without what the feed needs of them "
            "(extendedFileMetadata), so Delta cannot read these versions."
        ),
    ),
    (
        ("DELTA_MISSING_CHANGE_DATA",),
        ChangeFeedDisabled,
        "turn the feed on (DeltaEnableChangeDataFeedOperator) and load the target again.",
    ),
    (
        (
            "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND",
            "DELTA_VERSION_NOT_FOUND",
            "DELTA_TRUNCATED_TRANSACTION_LOG",
            "FAILED_READ_FILE.FILE_NOT_EXIST",
            "DELTA_FILE_NOT_FOUND",
        ),
        VersionsExpired,
        VERSIONS_EXPIRED_REMEDY,
    ),
    (
        ("DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "[PATH_NOT_FOUND]"),
        TableNotFound,
        "check the path of the table.",
    ),
    (("DELTA_TABLE_ONLY_OPERATION", "DELTA_MISSING_DELTA_TABLE"), NotADeltaTable, "name a Delta table."),
    (
        ("UNRESOLVED_COLUMN", "UNRESOLVED_ROUTINE", "PARSE_SYNTAX_ERROR", "DATATYPE_MISMATCH"),
        InvalidExpression,
        "correct the SQL expressions of the configuration.",
    ),
)


def failed(error: Exception, place: str, spark: SparkSession) -> JobResult:
    """Return the result of a failed job, with its named error.

    :param spark: the session of the job. If the error has no name, or one that a refusal may have, the
        session shows whether it allows what each job needs
    """
    failure = named(error, place)
    if failure is not error and type(failure) in (InvalidExpression, JobFailed, JobRefused):
        failure = restriction(spark) or failure
    if failure is not error:
        # The engine's errors are complete. For other errors, the log needs the whole traceback.
        traceback.print_exception(error)
    return JobResult(status="failed", error=failure.to_dict(), message=str(failure))


def named(error: Exception, place: str) -> DeltaCdcError:
    """Return a named error. The engine's errors stay; those of Spark and Delta are named by error class.

    :param place: tables and versions, for the message
    """
    if isinstance(error, DeltaCdcError):
        return error
    if is_lost(error):
        first = _first_lost(error)
        return SparkServerLost(
            f"{place}: the connection to the Spark Connect server was lost, or its session is gone "
            f"({reason(first)}).",
            remedy="retry; with a session of your own, retry with a new one "
            "(SparkSession.builder.remote(…).create()). The next try finds a commit in the table's log, and "
            "continues from there. The server's own log shows why the server stopped.",
        )
    raised = named_in_plan(error)
    if raised is not None:
        return raised
    text = str(error)
    if DUPLICATE_MARK in text:
        key = text.split(DUPLICATE_MARK, 1)[1].split(" SQLSTATE")[0].strip()
        return KeyNotUnique(
            f"{place}: the source inserts a key that the target already has (for instance {key}).",
            remedy="two rows of the source share a key: add columns to keys until a row is unique. Or remove "
            "the duplicate and run once with mode='reload': the range keeps the versions with both rows. If "
            "another tool wrote a row with this key into the target, delete that row. After an accepted "
            "change of where, run once with mode='reload'.",
        )
    refused = constraints.named(error, f"{place}:")
    if refused is not None:
        return refused
    for classes, cls, remedy in _KNOWN:
        if any(name in text for name in classes):
            return cls(f"{place}: {reason(error)}", remedy=remedy)
    return unnamed(
        error,
        f"{place}:",
        remedy="retry. The next try finds a commit that was already made. If it fails, see Spark's log.",
    )


def _first_lost(error: BaseException) -> BaseException:
    """Return the error that first showed a loss. Cleanup after it fails too, and hides it."""
    first, earlier = error, error.__context__
    while earlier is not None:
        first = earlier if is_lost(earlier) else first
        earlier = earlier.__context__
    return first
