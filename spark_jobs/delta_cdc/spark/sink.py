"""Custom sinks: the user's own task delivers a batch, and this module commits its watermark."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from delta_cdc.core import failpoints
from delta_cdc.core.spec import JobResult, step_fingerprint
from delta_cdc.core.watermark import PipelineState, Seal, SealStep
from delta_cdc.spark.apply.commit import commit, look, nothing_added
from delta_cdc.spark.apply.constraints import Destination
from delta_cdc.spark.commit_safety import refuse_unsafe_log_store
from delta_cdc.spark.sessions import private_session

if TYPE_CHECKING:
    from delta_cdc.core.spec import CommitSpec

log = logging.getLogger(__name__)


def run(spark: SparkSession, spec: CommitSpec) -> JobResult:
    """Seal a staging table: an empty commit that records how far its sink has come."""
    refuse_unsafe_log_store(spark, spec.staging_uri, single_driver=spec.single_driver)
    with private_session(spark) as session:
        return _sealed(session, spec)


def _sealed(session: SparkSession, spec: CommitSpec) -> JobResult:
    step = spec.step
    failpoints.reached("planned")
    seen = look(session, spec.staging_uri)
    if step.planned_on is not None and seen.table_id != step.planned_on.table_id:
        return JobResult("stale", message=f"the staging table {spec.staging_uri} was replaced")
    seal = Seal(
        pipeline=spec.pipeline,
        number=step.seal_number,
        source_uri=spec.source_uri,
        state=PipelineState(step.watermark, step.applied_from, configuration=step.configuration),
        step=SealStep(
            kind="commit",
            starting_version=step.starting_version,
            ending_version=step.ending_version,
            fingerprint=step_fingerprint(spec, step.seal_number),
            run_id=spec.run_id,
            planned_on=step.planned_on,
        ),
    )
    outcome = commit(session, seal, nothing_added(session, spec.staging_uri), Destination(spec.staging_uri))
    if outcome.status == "committed":
        log.info("committed version %s in %s", step.ending_version, spec.staging_uri)
    return JobResult(status=outcome.status, message=outcome.message)
