"""Runs one spec on a Spark session and names what went wrong."""

from __future__ import annotations

import logging
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING

from delta_cdc import phases
from delta_cdc.apply import constraints, engine
from delta_cdc.apply.batch import DUPLICATE_MARK, LOST_ROWS
from delta_cdc.changes.queries import named_in_plan
from delta_cdc.errors import (
    ChangeFeedDisabled,
    DeltaCdcError,
    EnvironmentNotReady,
    ExecutorLost,
    InvalidExpression,
    KeyNotUnique,
    NotADeltaTable,
    SchemaChangeInRange,
    SparkServerLost,
    TableNotFound,
    VersionsExpired,
)
from delta_cdc.reasons import reason, unnamed
from delta_cdc.sessions import is_lost
from delta_cdc.spec import (
    ApplySpec,
    BundleSpec,
    CareSpec,
    CommitSpec,
    EnableSpec,
    IngestSpec,
    JobResult,
    ReadSpec,
    ResolveSpec,
    VerifySpec,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from delta_cdc.spec import Spec

    #: All but a bundle.
    Job = ApplySpec | ReadSpec | CommitSpec | IngestSpec | VerifySpec | CareSpec | EnableSpec | ResolveSpec

log = logging.getLogger(__name__)

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
        ("DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta", "Cannot find catalog plugin class"),
        EnvironmentNotReady,
        "put Delta's JARs on the class path of Spark's driver: delta-cdc jars lists them.",
    ),
    (
        (LOST_ROWS,),
        ExecutorLost,
        "retry; where it happens again, see why executors die: memory, or machines that are taken away.",
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
        ("UNRESOLVED_COLUMN", "UNRESOLVED_ROUTINE", "PARSE_SYNTAX_ERROR", "DATATYPE_MISMATCH"),
        InvalidExpression,
        "correct the SQL expressions of the configuration.",
    ),
)


@dataclass(frozen=True)
class Secrets:
    """What a job is told beside its spec, because a spec names no secret.

    :param storage_options: of the object store, for what a job plans itself (:mod:`delta_cdc.ingest.then`);
        None takes what the environment names
    :param kafka_options: how to reach the brokers; None takes what the environment names
    :param scratch: see :func:`delta_cdc.ingest.then.run`
    """

    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    kafka_options: Mapping[str, str] | None = field(default=None, repr=False)
    scratch: str | None = None


def run(
    spark: SparkSession,
    spec: Spec,
    *,
    storage_options: Mapping[str, str] | None = None,
    kafka_options: Mapping[str, str] | None = None,
    scratch: str | None = None,
    part_done: Callable[[JobResult], object] | None = None,
) -> JobResult:
    """Run a spec.

    :param storage_options: see :class:`Secrets`
    :param kafka_options: see :class:`Secrets`
    :param scratch: see :class:`Secrets`
    :param part_done: of a bundle: told after each part but the last one what there is of the
        result; the parts that are not done yet are ``unreached``
    :return: what the job says about itself; ``failed`` carries the named error
    """
    secrets = Secrets(storage_options, kafka_options, scratch)
    if isinstance(spec, BundleSpec):
        return _run_parts(spark, spec, secrets, part_done)
    return _run_one(spark, spec, secrets)


def _run_one(spark: SparkSession, spec: Job, secrets: Secrets) -> JobResult:
    phases.reached("started")
    try:
        result = _dispatch(spark, spec, secrets)
    except Exception as error:  # noqa: BLE001 - whatever it is, the result says it by name
        return failed(error, _place(spec))
    phases.reached("finished")
    return result


def failed(error: Exception, place: str) -> JobResult:
    """Return the result of a job that ended with an error, named."""
    failure = named(error, place)
    if failure is not error:
        # Ours say all there is to say; of others the whole story belongs in the log.
        traceback.print_exception(error)
    return JobResult(status="failed", error=failure.to_dict(), message=str(failure))


def _run_parts(
    spark: SparkSession, spec: BundleSpec, secrets: Secrets, done: Callable[[JobResult], object] | None
) -> JobResult:
    """Run the parts of a bundle, several at a time; what becomes of one is no matter to the others.

    Each has a session of its own (:func:`delta_cdc.sessions.private_session`), so that neither seals nor
    confs of one are seen by another.

    :return: ``committed``: all were run; how each of them ended is in its own result
    """
    count = len(spec.parts)
    found = [JobResult("unreached", message="not reached yet")] * count
    one_by_one = Lock()

    def run_part(at: int) -> None:
        part = spec.parts[at]
        log.info("part %s of %s: %s", at + 1, count, part.pipeline)
        result = _run_one(spark, part, secrets)
        if result.error is not None:
            log.info("%s failed: %s", part.pipeline, result.message)
        with one_by_one:
            found[at] = result
            if done is not None and any(other.status == "unreached" for other in found):
                done(JobResult("committed", parts=tuple(found)))

    if min(spec.parallel, count) <= 1:
        for at in range(count):
            run_part(at)
    else:
        with ThreadPoolExecutor(min(spec.parallel, count), thread_name_prefix="part") as pool:
            for running in [pool.submit(run_part, at) for at in range(count)]:
                running.result()
    return JobResult("committed", parts=tuple(found))


def _dispatch(spark: SparkSession, spec: Job, secrets: Secrets) -> JobResult:
    from delta_cdc import features, names, sink, staging
    from delta_cdc.maintain.engine import run as maintain
    from delta_cdc.verify.engine import run as verify

    if isinstance(spec, ApplySpec):
        return engine.run(spark, spec)
    if isinstance(spec, IngestSpec):
        return _ingested(spark, spec, secrets)
    if isinstance(spec, ReadSpec):
        return staging.run(spark, spec)
    if isinstance(spec, CommitSpec):
        return sink.run(spark, spec)
    if isinstance(spec, ResolveSpec):
        return names.run(spark, spec)
    if isinstance(spec, VerifySpec):
        return verify(spark, spec)
    if isinstance(spec, CareSpec):
        return maintain(spark, spec)
    assert isinstance(spec, EnableSpec)
    return features.run(spark, spec)


def _ingested(spark: SparkSession, spec: IngestSpec, secrets: Secrets) -> JobResult:
    """Ingest, and apply from the log what it holds then: also where another driver has ingested."""
    from delta_cdc.ingest import engine as ingest
    from delta_cdc.ingest import kafka, then

    try:
        result = ingest.run(spark, spec, secrets.kafka_options)
    except Exception as error:
        known = kafka.named(error, spec)
        if known is None:
            raise
        raise known from error
    if spec.then is None or result.status not in ("committed", "skipped"):
        return result
    return replace(result, then=then.run(spark, spec.then, secrets.storage_options, secrets.scratch))


def _place(spec: Job) -> str:
    """Return where a job was when it failed, for errors that don't say it themselves."""
    if isinstance(spec, ResolveSpec):
        return ", ".join(spec.tables)
    if isinstance(spec, EnableSpec):
        return ", ".join(spec.tables) or f"schema {spec.schema}"
    if isinstance(spec, IngestSpec):
        return f"{spec.source_uri}, batch {spec.step.seal_number}, into {spec.log_uri}"
    if isinstance(spec, VerifySpec):
        return f"{spec.target_uri}, version {spec.target_version}"
    if isinstance(spec, CareSpec):
        return spec.pipeline
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
    if is_lost(error):
        first = _first_lost(error)
        return SparkServerLost(
            f"{place}: the connection to the Spark Connect server was lost, or its session is gone "
            f"({type(first).__name__}: {_short(first)}).",
            remedy="retry: what was committed before, the next try finds in the table's log, and goes on "
            "from there. Why the server went away stands in its own log.",
        )
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
    refused = constraints.named(error, f"{place}:")
    if refused is not None:
        return refused
    for classes, cls, remedy in _KNOWN:
        if any(name in text for name in classes):
            return cls(f"{place}: {reason(error)}", remedy=remedy)
    return unnamed(
        error,
        f"{place}:",
        remedy="retry: what was committed before, the next try finds. Where it fails again, look at Spark's "
        "log for the whole story.",
    )


def _first_lost(error: BaseException) -> BaseException:
    """Return the error by which a loss was noticed: what tidies up behind it fails as well, and hides it."""
    first, earlier = error, error.__context__
    while earlier is not None:
        first = earlier if is_lost(earlier) else first
        earlier = earlier.__context__
    return first


def _short(error: BaseException) -> str:
    """Return what an error of gRPC says, which has it in a line of its own."""
    details = [line for line in str(error).splitlines() if "details = " in line]
    return details[0].strip().removeprefix("details = ") if details else reason(error)
