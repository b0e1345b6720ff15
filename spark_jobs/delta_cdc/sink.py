"""Custom sinks: the user's own step brings a batch to where it goes, and its watermark is committed here."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from delta_cdc import phases
from delta_cdc.apply.commit import commit, look
from delta_cdc.apply.constraints import Into
from delta_cdc.log_stores import refuse_unsafe_log_store
from delta_cdc.sessions import private_session
from delta_cdc.spec import JobResult, step_fingerprint
from delta_cdc.watermark import Seal, SealStep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from delta_cdc.spec import CommitSpec
    from delta_cdc.watermark import Watermark

log = logging.getLogger(__name__)


def commit_watermark(
    spark: SparkSession,
    staging: str,
    *,
    pipeline: str,
    ending_version: int | None = None,
    single_driver: bool = False,
    storage_options: Mapping[str, str] | None = None,
    run_id: str = "",
) -> Watermark:
    """Say that the open batch of a staging table has arrived where it was to go.

    Until then, reading again returns the same batch; after it, the next batch starts right behind it. So
    whatever dies in between, each batch is offered at least once, and none is passed over. Committing again
    is no error, and does nothing.

    :param spark: a session with Delta's extension and catalog; not used where there is nothing to do
    :param staging: path or URI of the staging table
    :param pipeline: the flow's name, as the read was given it
    :param ending_version: last version of the batch that has arrived, as the read said it; None is the open
        batch's, whichever that is now
    :param single_driver: nothing but this driver ever writes to staging; needed on S3 without a log store for
        several writers, and without effect elsewhere
    :param storage_options: options of the object store for reading the log without Spark
    :param run_id: who did it, for the staging table's log; "" is a new one for each call. Calls
        at the same moment must not share one
    :return: the watermark that staging proves now
    :raises NoOpenBatch: nothing was read yet, or the batch is not complete
    :raises OtherBatchOpen: the open batch is not the one that ends at ``ending_version``
    """
    from delta_cdc import job
    from delta_cdc.flow import run_commit
    from delta_cdc.plan import CommitRequest

    request = CommitRequest(
        pipeline=pipeline,
        staging=staging,
        ending_version=ending_version,
        single_driver=single_driver,
        run_id=run_id,
        storage_options=dict(storage_options) if storage_options else None,
    )
    done = run_commit(request, execute=partial(job.run, spark), say=log.info).watermark
    assert done is not None
    return done


def run(spark: SparkSession, spec: CommitSpec) -> JobResult:
    """Seal a staging table: an empty commit that says how far its sink has come."""
    refuse_unsafe_log_store(spark, spec.staging_uri, single_driver=spec.single_driver)
    with private_session(spark) as session:
        return _sealed(session, spec)


def _sealed(session: SparkSession, spec: CommitSpec) -> JobResult:
    from delta_cdc.staging import nothing_added

    step = spec.step
    phases.reached("planned")
    seen = look(session, spec.staging_uri)
    if step.planned_on is not None and seen.table_id != step.planned_on.table_id:
        return JobResult("stale", message=f"the staging table {spec.staging_uri} was made anew")
    seal = Seal(
        pipeline=spec.pipeline,
        number=step.seal_number,
        source_table_id=spec.source_table_id,
        source_uri=spec.source_uri,
        applied_from=step.applied_from,
        watermark=step.ending_version,
        source_commit_hash=step.source_commit_hash,
        configuration=step.configuration,
        step=SealStep(
            kind="commit",
            starting_version=step.starting_version,
            ending_version=step.ending_version,
            fingerprint=step_fingerprint(spec, step.seal_number),
            run_id=spec.run_id,
            planned_on=step.planned_on,
        ),
    )
    outcome = commit(session, seal, nothing_added(session, spec.staging_uri), Into(spec.staging_uri))
    if outcome.status == "committed":
        log.info("committed version %s in %s", step.ending_version, spec.staging_uri)
    return JobResult(status=outcome.status, message=outcome.message)
