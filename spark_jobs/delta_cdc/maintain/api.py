"""The expiry of change logs as a function, for a plain PySpark session with Delta."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from delta_cdc.maintain.consumers import Consumer

logger = logging.getLogger(__name__)


def expire_events(
    spark: SparkSession,
    log: str,
    *,
    consumers: Sequence[Consumer | Mapping[str, str]],
    horizon: str | None = None,
    keep: str | None = None,
    dry_run: bool = False,
    single_driver: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Delete the events of a change log that nobody needs any more, and raise its lateness horizon.

    Each call first deletes what lies behind the horizon that is in effect, once every consumer has all that
    came before that horizon was set; and then sets the new one. So what is behind a new horizon is deleted by
    the next call. A horizon is never lowered.

    :param spark: a session with Delta's extension and catalog; left as it is
    :param log: path, URI or catalog name of the change log
    :param consumers: all pipelines that apply events from it, each with ``pipeline`` and ``target`` (path,
        URI or catalog name). What one of them needs, for late events at or after the horizon, stays
    :param horizon: the new lateness horizon, a sequence as Spark casts it to a string; None leaves it
    :param keep: instead, by how much it lies behind the newest event that all consumers have applied, a Delta
        interval such as ``interval 7 days``; for sequences that are times
    :param dry_run: count what would be deleted, and write nothing
    :param single_driver: only one Spark driver at a time writes to the log; needed on S3 without a log store
        for several writers
    :param storage_options: options of the object store for reading the logs without Spark
    :return: ``table``, ``status`` (``done`` or ``nothing``), ``horizon``, ``deleted`` (rows) and ``note``
    :raises InvalidConfiguration: there is no consumer, one reads rows and not events, or the horizon is none
        of their sequences, or above all that they have applied
    :raises ConsumerUnreadable: how far a consumer is cannot be told
    :raises ConcurrentModification: another writer won the race; nothing is lost
    """
    from dataclasses import replace

    from delta_cdc import job
    from delta_cdc.api import located
    from delta_cdc.log.table import run_sync
    from delta_cdc.maintain.consumers import consumers_of
    from delta_cdc.maintain.expiry import ExpireRequest, plan_expiry
    from delta_cdc.maintain.flow import Work, raise_failed, run

    given = [
        replace(
            one,
            target=located(spark, one.target),
            source=located(spark, one.source) if one.source is not None else None,
        )
        for one in consumers_of(list(consumers))
    ]
    request = ExpireRequest(
        table=located(spark, log),
        consumers=given,
        horizon=horizon,
        keep=keep,
        dry_run=dry_run,
        single_driver=single_driver,
        storage_options=dict(storage_options) if storage_options else None,
    )
    planned = run_sync(plan_expiry(request))
    works = run(
        [Work(request.table, planned.spec, planned.found)], execute=partial(job.run, spark), run_id=""
    )
    raise_failed(works)
    logger.info("%s", works[0].row)
    return works[0].row
