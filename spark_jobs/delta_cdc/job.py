"""Run one spec on a Spark session: in a driver, or in the user's own session.

An ingest may include the apply that follows it. This module plans that apply, from the log that the ingest
wrote. The plan needs obstore; if the driver lacks it, the process that started the application starts another
application for the apply. In the same way, the comparison of a target with its shadow follows an apply.
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
from typing import TYPE_CHECKING, Any

from delta_cdc.core import codec, failpoints, private_files
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.shadow import Comparison, not_compared
from delta_cdc.core.spec import BatchSpec, JobResult
from delta_cdc.core.steps import ranges_of
from delta_cdc.core.uris import is_name
from delta_cdc.delta_log.file_manifests import prepared
from delta_cdc.delta_log.table import run_sync
from delta_cdc.manifest_folder import folder_for
from delta_cdc.planning.shadow import plan_comparison
from delta_cdc.run.apply import Applying
from delta_cdc.run.loop import Services, run_alone
from delta_cdc.spark import catalog, exchange, named_errors, shadow, staging, table_properties
from delta_cdc.spark.apply import engine, from_events
from delta_cdc.spark.ingest import engine as ingest
from delta_cdc.spark.ingest import kafka
from delta_cdc.spark.maintain import engine as maintain
from delta_cdc.spark.named_errors import failed
from delta_cdc.spark.verify.engine import run as verify
from delta_cdc.spark.why import run as why

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from delta_cdc.core.requests import ApplyRequest
    from delta_cdc.core.shadow import Pair
    from delta_cdc.core.spec import ApplySpec, IngestSpec, JobStatus, Spec

    _Run = Callable[[SparkSession, Any], JobResult]

log = logging.getLogger(__name__)


def run(
    spark: SparkSession,
    spec: Spec,
    *,
    storage_options: Mapping[str, str] | None = None,
    kafka_options: Mapping[str, str] | None = None,
    scratch: str | None = None,
    part_done: Callable[[JobResult], object] | None = None,
    part_reads: Callable[[JobResult], object] | None = None,
) -> JobResult:
    """Run a spec.

    :param storage_options: options of the object store, for plans made by the job (:func:`apply_after`);
        None uses the environment's. They are not in the spec, which contains no secret
    :param kafka_options: options to reach the brokers; None uses the environment's
    :param scratch: see :func:`apply_after`
    :param part_done: for a batch: called after each part except the last one, with the current result, in
        which the unfinished parts are ``unreached``
    :param part_reads: for a batch: called in the same way before an ingest begins to read, and before each
        file that it reads alone
    :return: the job's result; ``failed`` carries the named error
    """

    ingested = partial(_ingested, options=storage_options, kafka_options=kafka_options, scratch=scratch)
    applied = partial(_applied, options=storage_options)

    def run_one(job: Spec, reads: Callable[[str], object] = log.debug) -> JobResult:
        began = time.monotonic()
        failpoints.reached("started")
        try:
            run_of: Mapping[str, _Run] = {
                **_RUNS,
                "ingest": partial(ingested, reads=reads),
                "apply": applied,
            }
            result = run_of[job.job](spark, job)
        except Exception as error:  # noqa: BLE001 - the result names the error
            return failed(error, job.place, spark)
        failpoints.reached("finished")
        return _worked(result, began)

    application = _application(spark)
    if not isinstance(spec, BatchSpec):
        return replace(run_one(spec), application=application)
    began = time.monotonic()
    result = _run_parts(spec, run_one, part_done, part_reads)
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


#: The function that runs each type of job, except an ingest and an apply.
_RUNS: dict[str, _Run] = {
    "read": staging.run,
    "resolve": catalog.run,
    "verify": verify,
    "why": why,
    "shadow": shadow.run,
    "exchange": exchange.run,
    **dict.fromkeys(maintain.RUNS, maintain.run),
    "enable": table_properties.run,
}


def _run_parts(
    spec: BatchSpec,
    run_one: Callable[[Spec, Callable[[str], object]], JobResult],
    done: Callable[[JobResult], object] | None,
    reads: Callable[[JobResult], object] | None,
) -> JobResult:
    """Run the parts of a batch, several at a time; the result of a part does not affect the others.

    Each part has its own session (:func:`delta_cdc.spark.sessions.private_session`), which is independent of
    the seals and confs of the other parts. Parts that read each file alone come last, one at a time: if the
    application ends meanwhile, nothing else can be the reason.

    :return: ``committed``: all parts ran; each part's own result shows how it ended
    """
    count = len(spec.parts)
    results = [JobResult("unreached", message="not reached yet")] * count
    lock = Lock()

    def run_part(index: int) -> None:
        part = spec.parts[index]
        log.info("%s: table %s of %s", part.name, index + 1, count)

        def note(what: str) -> None:
            with lock:
                results[index] = replace(results[index], reading=what)
                if reads is not None:
                    reads(JobResult("committed", parts=tuple(results)))

        result = run_one(part, note)
        if result.error is not None:
            # The caller shows the error itself.
            log.info("%s: failed: %s", part.name, result.error["class"])
        with lock:
            if result.status == "failed":
                result = replace(result, reading=results[index].reading)
            results[index] = result
            if done is not None and any(other.status == "unreached" for other in results):
                done(JobResult("committed", parts=tuple(results)))

    alone = [index for index, part in enumerate(spec.parts) if part.reads_alone]
    others = [index for index in range(count) if index not in alone]
    if min(spec.parallel, len(others)) <= 1:
        alone = others + alone
    else:
        pool = ThreadPoolExecutor(min(spec.parallel, len(others)), thread_name_prefix="part")
        try:
            list(pool.map(run_part, others))
        finally:
            # Without an error, all parts have ended. After one, as a timeout of the task, nothing waits for
            # the parts that run: the caller ends their sessions.
            pool.shutdown(wait=False, cancel_futures=True)
    for index in alone:
        run_part(index)
    return JobResult("committed", parts=tuple(results))


def _ingested(
    spark: SparkSession,
    spec: IngestSpec,
    *,
    options: Mapping[str, str] | None,
    kafka_options: Mapping[str, str] | None,
    scratch: str | None,
    reads: Callable[[str], object],
) -> JobResult:
    """Ingest a batch, then apply the log's new content, even if another driver already ingested the batch."""
    after = [
        partial(apply_after, request=request, storage_options=options, scratch=scratch)
        for request in spec.after
    ]
    try:
        return ingest.run(spark, spec, kafka_options, after, reads)
    except Exception as error:
        known_error = kafka.named(error, spec)
        if known_error is None:
            raise
        raise known_error from error


def _applied(spark: SparkSession, spec: ApplySpec, *, options: Mapping[str, str] | None) -> JobResult:
    """Apply, then compare the target with the other one of each pair, if the apply has committed."""
    result = engine.run(spark, spec)
    if result.status != "committed" or not spec.shadows:
        return result
    found = [compare_after(spark, spec, pair, options) for pair in spec.shadows]
    return replace(result, tables=tuple(codec.encoded(one) for one in found))


def compare_after(
    spark: SparkSession, spec: ApplySpec, pair: Pair, storage_options: Mapping[str, str] | None
) -> Comparison:
    """Compare the targets of a pair after an apply. The apply stays committed, whatever happens here.

    :param storage_options: see :func:`apply_after`
    :return: the comparison; ``not_compared`` if it is not possible, or fails
    """
    try:
        if find_spec("obstore") is None:
            return not_compared(pair, "obstore is not installed where the driver runs")
        options = storage_options if storage_options is not None else _from_environment()
        located = replace(
            pair,
            original_target=_location(spark, pair.original_target),
            shadow_target=_location(spark, pair.shadow_target),
        )
        planned = run_sync(
            plan_comparison(
                located,
                run_id=spec.run_id,
                # The user guarantees it for the tables of this pipeline only.
                single_driver=spec.single_driver and spec.pipeline == pair.shadow,
                storage_options=dict(options) if options else None,
            )
        )
        if isinstance(planned, Comparison):
            return planned
        (row,) = shadow.run(spark, planned).tables
        return codec.decoded(Comparison, row)
    except Exception as error:
        log.debug("%s and %s were not compared", pair.original, pair.shadow, exc_info=True)
        failure = named_errors.named(error, f"the comparison of {pair.original} and {pair.shadow}")
        return not_compared(pair, f"{type(failure).__name__}: {failure.message}")


def _location(spark: SparkSession, table: str) -> str:
    """Return the location of a table.

    :raises TableNotFound: the catalog has no such name
    """
    if not is_name(table):
        return table
    return str(catalog.delta_detail(spark, table, remedy="run its pipeline first.")["location"])


#: The variable that names a JSON file, readable only by this user, with the options of the object store.
STORAGE_OPTIONS = "DELTA_CDC_STORAGE_OPTIONS"


def apply_after(
    spark: SparkSession,
    request: ApplyRequest,
    storage_options: Mapping[str, str] | None = None,
    scratch: str | None = None,
) -> JobResult:
    """Apply a change log's events after its target's watermark.

    :param request: without options of the object store
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
    began = time.monotonic()
    try:
        options = storage_options if storage_options is not None else _from_environment()
        request = replace(request, storage_options=dict(options) if options else None)
        say = partial(log.info, "%s: %s", request.pipeline)
        services = Services(execute=partial(execute, spark, options, scratch), say=say)
        outcome = run_alone(Applying, request, services)
    except Exception as error:  # noqa: BLE001 - the ingest stays committed; the result names the error
        result = failed(error, locations, spark)
    else:
        status: JobStatus = "committed" if outcome.applied else "skipped"
        result = JobResult(
            status, counts=dict(outcome.counts), message=f"target version {outcome.target_version}"
        )
    return replace(result, seconds={"work": time.monotonic() - began})


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
