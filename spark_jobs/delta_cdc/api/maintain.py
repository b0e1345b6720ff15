"""The expiry of change logs as a function, for a plain PySpark session with Delta."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from delta_cdc import job
from delta_cdc.api.changes import located
from delta_cdc.core.spec import ExpireSpec
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.consumers import consumers_of
from delta_cdc.planning.expiry import plan_expiry
from delta_cdc.run.maintain import raise_failed, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from delta_cdc.planning.consumers import Consumer

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
    """Delete the events of a change log that no consumer needs any more, and raise its ``horizon``.

    The ``horizon`` is the lowest sequence that a late event may have. If every consumer has applied all
    events that were in the log when the current ``horizon`` was set, a call deletes the events below it, and
    sets the new one, which is never lower. Otherwise it does neither, and ``note`` names the consumer that is
    behind.

    :param spark: a session with Delta's extension and catalog; the call does not change its settings
    :param log: path, URI or catalog name of the change log
    :param consumers: all pipelines that apply events from the log, each with ``pipeline`` and ``target``
        (path, URI or catalog name). The call keeps older events that a consumer needs to apply late events at
        or above the ``horizon``
    :param horizon: the new ``horizon``, a sequence as Spark casts it to a string; None keeps the current one
    :param keep: instead of ``horizon``: the distance between the ``horizon`` and the newest event that all
        consumers have applied, a Delta interval such as ``interval 7 days``; only for sequences that are
        times
    :param dry_run: count the events that the call would delete, and write nothing
    :param single_driver: you make sure that only one Spark driver at a time writes to the log; needed on S3
        if Spark's log store is not safe for several drivers, and on disks without hard links
    :param storage_options: options of the object store for reading the logs without Spark
    :return: ``table``, ``status`` (``done`` or ``nothing``), ``horizon``, ``deleted`` (rows) and ``note``
    :raises InvalidConfiguration: there is no consumer; a consumer reads rows, not events; ``horizon`` does
        not have the type of the consumers' sequence, or is above all events that they have applied
    :raises ConsumerUnreadable: the log of a consumer's target does not show the consumer's watermark
    :raises ConcurrentModification: another writer committed first; the call changed nothing
    """
    spec = ExpireSpec(
        run_id="",
        table_uri=located(spark, log),
        horizon=horizon,
        dry_run=dry_run,
        single_driver=single_driver,
    )
    readers = [
        replace(
            consumer,
            target=located(spark, consumer.target),
            source=located(spark, consumer.source) if consumer.source is not None else None,
        )
        for consumer in consumers_of(list(consumers))
    ]
    options = dict(storage_options) if storage_options else None
    plan = run_sync(plan_expiry(spec, readers, keep=keep, storage_options=options))
    (row,), errors = run({spec.table_uri: plan}, execute=partial(job.run, spark), run_id="")
    raise_failed(errors)
    logger.info("%s", row)
    return row
