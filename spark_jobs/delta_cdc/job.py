"""Run one spec on a Spark session: in a driver, or in the user's own session.

An ingest may include the apply that follows it. This module plans that apply, from the log that the ingest
wrote. The plan needs obstore; if the driver lacks it, the process that started the application starts another
application for the apply.
"""

from __future__ import annotations

import json
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any, get_args

from delta_cdc.core import codec, failpoints, private_files
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.spec import (
    ApplySpec,
    BatchSpec,
    CareSpec,
    CommitSpec,
    EnableSpec,
    IngestSpec,
    JobResult,
    ReadSpec,
    ResolveSpec,
    VerifySpec,
    ranges_of,
)
from delta_cdc.delta_log.file_manifests import prepared
from delta_cdc.manifest_folder import folder_for
from delta_cdc.run.apply import run_apply
from delta_cdc.spark import catalog, staging, table_properties
from delta_cdc.spark.apply import engine, from_events
from delta_cdc.spark.ingest import engine as ingest
from delta_cdc.spark.ingest import kafka
from delta_cdc.spark.maintain.engine import run as maintain
from delta_cdc.spark.named_errors import failed
from delta_cdc.spark.verify.engine import run as verify

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from delta_cdc.core.spec import ApplyRequest, Spec

    #: All specs except a batch.
    Job = ApplySpec | ReadSpec | CommitSpec | IngestSpec | VerifySpec | CareSpec | EnableSpec | ResolveSpec

log = logging.getLogger(__name__)


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

    :param storage_options: options of the object store, for plans made by the job (:func:`apply_after`);
        None uses the environment's. They are not in the spec, which contains no secret
    :param kafka_options: options to reach the brokers; None uses the environment's
    :param scratch: see :func:`apply_after`
    :param part_done: for a batch: called after each part except the last one, with the current result, in
        which the unfinished parts are ``unreached``
    :return: the job's result; ``failed`` carries the named error
    """

    def run_one(job: Job) -> JobResult:
        began = time.monotonic()
        failpoints.reached("started")
        try:
            if isinstance(job, IngestSpec):
                result = _ingested(spark, job, storage_options, kafka_options, scratch)
            else:
                result = _RUNS[type(job)](spark, job)
        except Exception as error:  # noqa: BLE001 - the result names the error
            return failed(error, _locations(job), spark)
        failpoints.reached("finished")
        return _worked(result, began)

    application = _application(spark)
    if not isinstance(spec, BatchSpec):
        return replace(run_one(spec), application=application)
    began = time.monotonic()
    result = _run_parts(spec, run_one, part_done)
    return replace(_worked(result, began), application=application)


def _application(spark: SparkSession) -> str:
    try:
        return spark.conf.get("spark.app.id", "") or ""
    except Exception as error:  # noqa: BLE001 - the job itself gives the error of a session that is lost
        log.debug("The application has no id: %s", error)
        return ""


def _worked(result: JobResult, began: float) -> JobResult:
    """Return a result with the seconds since its job began (by the monotonic clock)."""
    return replace(result, seconds={"work": time.monotonic() - began})


#: The function that runs each type of spec, except an ingest.
_RUNS: dict[type, Callable[[SparkSession, Any], JobResult]] = {
    ApplySpec: engine.run,
    ReadSpec: staging.run,
    CommitSpec: staging.commit_delivered,
    ResolveSpec: catalog.run,
    VerifySpec: verify,
    **dict.fromkeys(get_args(CareSpec), maintain),
    EnableSpec: table_properties.run,
}


def _run_parts(
    spec: BatchSpec, run_one: Callable[[Job], JobResult], done: Callable[[JobResult], object] | None
) -> JobResult:
    """Run the parts of a batch, several at a time; the result of a part does not affect the others.

    Each part has its own session (:func:`delta_cdc.spark.sessions.private_session`), which is independent of
    the seals and confs of the other parts.

    :return: ``committed``: all parts ran; each part's own result shows how it ended
    """
    count = len(spec.parts)
    results = [JobResult("unreached", message="not reached yet")] * count
    lock = Lock()

    def run_part(index: int) -> None:
        part = spec.parts[index]
        log.info("%s: part %s of %s", part.pipeline, index + 1, count)
        result = run_one(part)
        if result.error is not None:
            # The caller shows the error itself.
            log.info("%s: failed: %s", part.pipeline, result.error["class"])
        with lock:
            results[index] = result
            if done is not None and any(other.status == "unreached" for other in results):
                done(JobResult("committed", parts=tuple(results)))

    if min(spec.parallel, count) <= 1:
        for index in range(count):
            run_part(index)
    else:
        with ThreadPoolExecutor(min(spec.parallel, count), thread_name_prefix="part") as pool:
            list(pool.map(run_part, range(count)))
    return JobResult("committed", parts=tuple(results))


def _ingested(
    spark: SparkSession,
    spec: IngestSpec,
    storage_options: Mapping[str, str] | None,
    kafka_options: Mapping[str, str] | None,
    scratch: str | None,
) -> JobResult:
    """Ingest a batch, then apply the log's new content, even if another driver already ingested the batch."""
    request = spec.after
    after = None
    if request is not None:
        after = partial(apply_after, request=request, storage_options=storage_options, scratch=scratch)
    try:
        return ingest.run(spark, spec, kafka_options, after)
    except Exception as error:
        known_error = kafka.named(error, spec)
        if known_error is None:
            raise
        raise known_error from error


def _locations(spec: Job) -> str:
    """Return the locations of a failed job, for errors that do not name them."""
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


#: The variable that names a JSON file, readable only by this user, with the options of the object store.
STORAGE_OPTIONS = "DELTA_CDC_STORAGE_OPTIONS"


def apply_after(
    spark: SparkSession,
    request: ApplyRequest,
    storage_options: Mapping[str, str] | None = None,
    scratch: str | None = None,
) -> JobResult:
    """Apply a change log's events after its target's watermark.

    :param request: the ingest's request, without options of the object store
    :param storage_options: None uses the file that :data:`STORAGE_OPTIONS` names, if it is set
    :param scratch: a folder for file manifests that this process and Spark's executors can reach; None if
        Spark runs only on this machine
    :return: ``committed``; ``skipped`` if there was nothing to do; ``planned`` if it did not run, because
        this driver cannot read logs without Spark; ``failed`` with the named error. The ingest remains
        committed in every case
    """
    if find_spec("obstore") is None:
        return JobResult("planned", message="not run: obstore is not installed where the driver runs")
    locations = f"{request.source} into {request.target}"
    log.info("%s: applying the log", request.pipeline)
    try:
        options = storage_options if storage_options is not None else _from_environment()
        request = replace(request, storage_options=dict(options) if options else None)
        say = partial(log.info, "%s: %s", request.pipeline)
        outcome = run_apply(request, execute=partial(execute, spark, options, scratch), say=say)
    except Exception as error:  # noqa: BLE001 - the ingest stays committed; the result names the error
        return failed(error, locations, spark)
    message = f"target version {outcome.target_version}"
    return JobResult(
        "committed" if outcome.applied else "skipped", counts=dict(outcome.counts), message=message
    )


def execute(
    spark: SparkSession, storage_options: Mapping[str, str] | None, scratch: str | None, spec: ApplySpec
) -> JobResult:
    """Run an apply in this process, with its file manifests in a folder that Spark's executors can reach.

    A range whose rows the session keeps needs no manifest.
    """
    steps = [step for step in spec.steps if not from_events.in_hand(spark, spec.source_uri, step)]
    if not steps:
        return run(spark, spec)
    read_ranges = ranges_of(steps)
    folder = folder_for(spark, read_ranges, scratch)
    options = dict(storage_options) if storage_options else None
    return run(spark, prepared(spec, folder, options))


def _from_environment() -> dict[str, str] | None:
    path = os.environ.get(STORAGE_OPTIONS)
    if not path:
        return None
    try:
        options = codec.parsed(private_files.text_of(path))
    except (OSError, ValueError) as error:
        raise InvalidConfiguration(
            f"{STORAGE_OPTIONS} names {path}, which cannot be read: {error}.",
            remedy="name a JSON file with the options of the object store, or leave the variable unset.",
        ) from error
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
