"""The question where a row comes from, as a function for a plain PySpark session with Delta."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from delta_cdc import job
from delta_cdc.api.changes import located
from delta_cdc.core import arguments
from delta_cdc.core.steps import ranges_of
from delta_cdc.delta_log.file_manifests import prepared
from delta_cdc.manifest_folder import folder_for
from delta_cdc.planning.why import MOST_BYTES, WhyRequest
from delta_cdc.run.why import run_why

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from delta_cdc.core.spec import BatchSpec, JobResult
    from delta_cdc.core.why import Answer

logger = logging.getLogger(__name__)


def explain_row(
    spark: SparkSession,
    target: str,
    *,
    pipeline: str,
    key: Mapping[str, object],
    source: str | None = None,
    at: int | str | None = None,
    on_conflict: str | Mapping[str, Sequence[str]] = "fail",
    max_bytes: int = MOST_BYTES,
    scratch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Answer:
    """Return where each value of a row comes from, and what did not get into the row; write nothing.

    The call reads the rows of one key in the target, and the changes of the key in its source, as far as the
    source still has them. The options of the pipeline come from the target's seal.

    :param spark: a session with Delta's extension and catalog; the call does not change its settings
    :param target: path, URI or catalog name
    :param pipeline: the pipeline that fills the target
    :param key: each key column with its value, as text that CAST reads
    :param source: path, URI or catalog name of the target's source; None takes the location in the seal
    :param at: a version of the target, or a time (ISO 8601 with offset); None: the newest version
    :param on_conflict: for a change log: the value of this option in the pipeline, because the seal does not
        contain it
    :param max_bytes: the most bytes to read of one table. Of a longer feed, the call reads the newest part
    :param scratch: see :func:`delta_cdc.read_changes`
    :param storage_options: options of the object store for reading the logs without Spark
    :return: the rows with the origin of each value; ``print`` shows the answer
    :raises InvalidConfiguration: an argument is invalid
    :raises RangeTooLong: the source is a change log, and more than ``max_bytes`` of it may have the key
    :raises DeltaCdcError: a table cannot be read
    """
    request = WhyRequest(
        pipeline=pipeline,
        target=located(spark, target),
        source=located(spark, source) if source is not None else None,
        key={name: str(value) for name, value in key.items()},
        policies={"on_conflict": arguments.conflict("on_conflict", on_conflict) or "fail"},
        at=None if at is None else str(at),
        most_bytes=max_bytes,
        run_id="explain_row",
        storage_options=dict(storage_options) if storage_options else None,
    )

    def execute(batch: BatchSpec) -> JobResult:
        parts = tuple(
            prepared(part, folder_for(spark, ranges_of(part.steps), scratch), request.storage_options)
            for part in batch.parts
        )
        return job.run(spark, replace(batch, parts=parts), storage_options=request.storage_options)

    return run_why(request, execute=execute, say=logger.info)
