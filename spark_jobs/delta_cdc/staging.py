"""Staging: the changes of a range, kept in a table of their own in one sealed commit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from delta_cdc import phases
from delta_cdc.apply import layout
from delta_cdc.apply.commit import commit, look, overtaken, private_session, refuse_unsafe_log_store
from delta_cdc.changes import feed
from delta_cdc.spec import JobResult, step_fingerprint
from delta_cdc.watermark import Seal, SealStep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.spec import ReadSpec

log = logging.getLogger(__name__)


def run(spark: SparkSession, spec: ReadSpec) -> JobResult:
    """Write one batch; it replaces the one before, in the same commit.

    The table holds the source's columns and the feed's metadata columns. Its own change data feed stays off,
    also where the session's default turns it on: the columns would clash.
    """
    feed.refuse_forbidden_confs(spark)
    refuse_unsafe_log_store(spark, spec.staging_uri, single_driver=spec.single_driver)
    session = private_session(spark)
    step = spec.step
    log.info("reading %s of %s", _what(spec), spec.source_uri)
    rows = _rows(session, spec)
    phases.reached("planned")
    other = feed.changed_source(session, spec.source_uri, step)
    if other is not None:
        return JobResult(status="stale", message=other)
    if step.planned_on is not None:
        reason = overtaken(session, spec.staging_uri, step.planned_on, look(session, spec.staging_uri))
        if reason is not None:
            return JobResult(status="stale", message=reason)
    seal = Seal(
        pipeline=spec.pipeline,
        number=step.seal_number,
        source_table_id=spec.source_table_id,
        source_uri=spec.source_uri,
        applied_from=step.applied_from,
        watermark=step.ending_version,
        source_commit_hash=step.source_commit_hash,
        configuration={"batch": spec.kind},
        step=SealStep(
            kind="read",
            starting_version=step.starting_version,
            ending_version=step.ending_version,
            fingerprint=step_fingerprint(spec, step.seal_number),
            run_id=spec.run_id,
            planned_on=step.planned_on,
        ),
    )
    options = {"overwriteSchema": "true", "delta.enableChangeDataFeed": "false"}
    writer = rows.write.format("delta").mode("overwrite").options(**options, **layout.mapping(rows.columns))
    outcome = commit(session, seal, lambda: writer.save(spec.staging_uri))
    if outcome.status == "committed":
        log.info("staged %s in version %s of %s", _what(spec), outcome.version, spec.staging_uri)
    return JobResult(status=outcome.status, message=outcome.message)


def _what(spec: ReadSpec) -> str:
    if spec.kind == "snapshot":
        return f"the snapshot of version {spec.step.ending_version}"
    return f"versions {spec.step.starting_version}-{spec.step.ending_version}"


def _rows(session: SparkSession, spec: ReadSpec) -> DataFrame:
    from pyspark.sql import functions as F

    step = spec.step
    if spec.kind == "changes":
        return feed.change_rows(
            session, spec.source_uri, step.first_read, step.ending_version, step.source_columns
        )
    rows = feed.snapshot_rows(session, spec.source_uri, step.ending_version, step.source_columns)
    moment = feed.commit_timestamp(session, spec.source_uri, step.ending_version)
    return (
        rows.withColumn(feed.CHANGE_TYPE, F.lit("insert"))
        .withColumn(feed.COMMIT_VERSION, F.lit(step.ending_version).cast("bigint"))
        .withColumn(feed.COMMIT_TIMESTAMP, moment)
    )
