"""The verification as a function, for a plain PySpark session with Delta."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from delta_cdc import job
from delta_cdc.api.changes import located
from delta_cdc.core import arguments
from delta_cdc.core.checks import CHECKS, Verification
from delta_cdc.planning.verify import VerifyRequest
from delta_cdc.run.verify import run_verify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


def verify_table(
    spark: SparkSession,
    target: str,
    *,
    pipeline: str,
    source: str | None = None,
    current: str | None = None,
    current_pipeline: str | None = None,
    on_conflict: str | Mapping[str, Sequence[str]] = "fail",
    checks: Sequence[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Verification:
    """Verify that a target matches its pipeline; write nothing.

    All checks read one version of the target, and the source as of the watermark. The options of the pipeline
    come from the target's seal.

    :param spark: a session with Delta's extension and catalog; the call does not change its settings
    :param target: path, URI or catalog name
    :param pipeline: the pipeline that fills the target
    :param source: path, URI or catalog name of the target's source; None takes the location in the seal
    :param current: a target of the other SCD type with the same keys: the call compares the current rows with
        the open rows of the history
    :param current_pipeline: the pipeline that fills ``current``; None takes the only one in that table's log
    :param on_conflict: for a change log: the value of this option in the pipeline, because the seal does not
        contain it
    :param checks: names of :data:`delta_cdc.core.checks.CHECKS`; None makes all checks
    :param storage_options: options of the object store for reading the logs without Spark
    :return: the version of the target, and its checks; ``findings`` has those that found something
    :raises InvalidConfiguration: the arguments are invalid
    :raises DeltaCdcError: a table cannot be read
    """
    request = VerifyRequest(
        pipeline=pipeline,
        target=located(spark, target),
        source=located(spark, source) if source is not None else None,
        current=located(spark, current) if current is not None else None,
        current_pipeline=current_pipeline,
        on_conflict=arguments.conflict("on_conflict", on_conflict) or "fail",
        wanted=CHECKS if checks is None else tuple(checks),
        storage_options=dict(storage_options) if storage_options else None,
    )
    (result,) = run_verify([request], execute=partial(job.run, spark), say=logger.info)
    if result.error is not None:
        raise result.error
    return result
