"""Runs one spec on a Spark session and names what went wrong."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from delta_cdc import phases
from delta_cdc.apply import engine
from delta_cdc.apply.batch import DUPLICATE_MARK
from delta_cdc.apply.commit import first_line
from delta_cdc.changes.queries import named_in_plan
from delta_cdc.errors import (
    ChangeFeedDisabled,
    DeltaCdcError,
    InvalidExpression,
    JobFailed,
    KeyNotUnique,
    NotADeltaTable,
    SchemaChangeInRange,
    TableNotFound,
    TargetSchemaClash,
    VersionsExpired,
)
from delta_cdc.spec import (
    ApplySpec,
    BundleSpec,
    CommitSpec,
    EnableSpec,
    IngestSpec,
    JobResult,
    ReadSpec,
    ResolveSpec,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delta_cdc.spec import Spec

_EXPIRED = (
    "start a new target, and raise delta.logRetentionDuration and delta.deletedFileRetentionDuration in time."
)

#: What Delta and Spark say -> our name and remedy. First match wins.
_KNOWN: tuple[tuple[tuple[str, ...], type[DeltaCdcError], str], ...] = (
    (
        ("DELTA_CHANGE_DATA_FEED_INCOMPATIBLE", "DELTA_BLOCK_COLUMN_MAPPING_AND_CDC"),
        SchemaChangeInRange,
        "apply up to the version before the change (ending_version), then build the target anew after it.",
    ),
    (
        ("DELTA_MISSING_CHANGE_DATA",),
        ChangeFeedDisabled,
        "turn the feed on (DeltaEnableChangeDataFeedOperator) and load the target anew.",
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
        _EXPIRED,
    ),
    (
        ("DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "PATH_NOT_FOUND"),
        TableNotFound,
        "check the path of the table.",
    ),
    (("DELTA_TABLE_ONLY_OPERATION", "DELTA_MISSING_DELTA_TABLE"), NotADeltaTable, "name a Delta table."),
    (
        ("DELTA_FAILED_TO_MERGE_FIELDS", "DELTA_NOT_NULL_CONSTRAINT", "DELTA_VIOLATE_CONSTRAINT"),
        TargetSchemaClash,
        "change the target's columns or constraints, or the rows with select and where.",
    ),
    (
        ("UNRESOLVED_COLUMN", "UNRESOLVED_ROUTINE", "PARSE_SYNTAX_ERROR", "DATATYPE_MISMATCH"),
        InvalidExpression,
        "correct the SQL expressions of the configuration.",
    ),
)


def run(spark: SparkSession, spec: Spec) -> JobResult:
    """Run a spec.

    :return: what the job says about itself; ``failed`` carries the named error
    """
    phases.reached("started")
    try:
        result = _dispatch(spark, spec)
    except Exception as error:  # noqa: BLE001 - whatever it is, the result says it by name
        failure = named(error, _place(spec))
        if failure is not error:
            # Ours say all there is to say; of others the whole story belongs in the log.
            traceback.print_exc()
        return JobResult(status="failed", error=failure.to_dict(), message=str(failure))
    phases.reached("finished")
    return result


def _dispatch(spark: SparkSession, spec: Spec) -> JobResult:
    from delta_cdc import features, names, sink, staging

    if isinstance(spec, ApplySpec):
        return engine.run(spark, spec)
    if isinstance(spec, ReadSpec):
        return staging.run(spark, spec)
    if isinstance(spec, CommitSpec):
        return sink.run(spark, spec)
    if isinstance(spec, ResolveSpec):
        return names.run(spark, spec)
    assert isinstance(spec, EnableSpec)
    return features.run(spark, spec)


def _place(spec: Spec) -> str:
    """Return where a job was when it failed, for errors that don't say it themselves."""
    if isinstance(spec, ResolveSpec):
        return ", ".join(spec.tables)
    if isinstance(spec, EnableSpec):
        return ", ".join(spec.tables) or f"schema {spec.schema}"
    if isinstance(spec, BundleSpec):
        return ", ".join(_place(part) for part in spec.parts)
    if isinstance(spec, IngestSpec):
        return f"{spec.source_uri}, batch {spec.step.seal_number}, into {spec.log_uri}"
    steps = spec.steps
    versions = f"versions {steps[0].starting_version}-{steps[-1].ending_version}"
    into = spec.target_uri if isinstance(spec, ApplySpec) else spec.staging_uri
    return f"{spec.source_uri}, {versions}, into {into}"


def named(error: Exception, place: str) -> DeltaCdcError:
    """Give an error its name: ours as it is, Spark's and Delta's by their error class.

    :param place: tables and versions, for the message
    """
    if isinstance(error, DeltaCdcError):
        return error
    raised = named_in_plan(error)
    if raised is not None:
        return raised
    text = str(error)
    if DUPLICATE_MARK in text:
        key = text.split(DUPLICATE_MARK, 1)[1].split(" SQLSTATE")[0].strip()
        return KeyNotUnique(
            f"{place}: the source inserts a key that the target already has (for instance {key}).",
            remedy="two rows of the source share a key: add columns to keys until a row is unique, or remove "
            "the duplicate; a row put into the target by hand under this key has to go, too. After an "
            "accepted change of where, run once with mode='reload'.",
        )
    for classes, cls, remedy in _KNOWN:
        if any(name in text for name in classes):
            return cls(f"{place}: {first_line(error)}", remedy=remedy)
    return JobFailed(
        f"{place}: {type(error).__name__}: {first_line(error)}",
        remedy="look at the Spark log named above for the whole story; a retry repeats the same range.",
    )
