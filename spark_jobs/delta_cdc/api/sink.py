"""The commit of a watermark as a function, for a plain PySpark session with Delta."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from delta_cdc import job
from delta_cdc.core.requests import CommitRequest
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from delta_cdc.core.watermark import TableVersion

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
) -> TableVersion:
    """Commit the watermark of the open batch in a staging table, once your sink has the batch.

    Until the commit, each read returns the same batch; then the next batch starts right after this one. So
    your sink gets each batch at least once, even after a crash. A repeated commit does nothing.

    :param spark: a session with Delta's extension and catalog; a repeated commit does not use it
    :param staging: path or URI of the staging table
    :param pipeline: the pipeline's name, the same as in the read
    :param ending_version: last version of the batch that has arrived, as the read returned it; None commits
        the batch that is open now
    :param single_driver: you make sure that only this driver writes to staging; needed on S3 if Spark's log
        store is not safe for several drivers, and on disks without hard links
    :param storage_options: options of the object store for reading the log without Spark
    :param run_id: the run's id, for the staging table's log; "" generates a new one for each call. Concurrent
        calls must not share one
    :return: the watermark that the staging table has now
    :raises NoOpenBatch: staging has no batch yet, or the batch is not complete
    :raises OtherBatchOpen: the open batch is not the one that ends at ``ending_version``
    """
    request = CommitRequest(
        pipeline=pipeline,
        staging=staging,
        ending_version=ending_version,
        single_driver=single_driver,
        run_id=run_id,
        storage_options=dict(storage_options) if storage_options else None,
    )
    committed = run(request, Services(execute=partial(job.run, spark), say=log.info)).watermark
    assert committed is not None
    return committed
