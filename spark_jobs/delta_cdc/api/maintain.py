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
    """Delete the events of a change log that no consumer needs any more, and raise its allowed lateness
    (``horizon``).

    Each call first deletes the events behind the current ``horizon``, once every consumer has applied all
    events that arrived before it was set; and then sets the new one. So the next call deletes the events
    behind a new ``horizon``. A ``horizon`` is never lowered.

    :param spark: a session with Delta's extension and catalog; left as it is
    :param log: path, URI or catalog name of the change log
    :param consumers: all pipelines that apply events from it, each with ``pipeline`` and ``target`` (path,
        URI or catalog name). Events that one of them needs, for late events at or after ``horizon``, stay
    :param horizon: the new boundary of allowed lateness, a sequence as Spark casts it to a string; None keeps
        the current one
    :param keep: instead, its distance behind the newest event that all consumers have applied, a Delta
        interval such as ``interval 7 days``; for sequences that are times
    :param dry_run: count what would be deleted, and write nothing
    :param single_driver: only one Spark driver at a time writes to the log; needed on S3 without a log store
        for several writers
    :param storage_options: options of the object store for reading the logs without Spark
    :return: ``table``, ``status`` (``done`` or ``nothing``), ``horizon``, ``deleted`` (rows) and ``note``
    :raises InvalidConfiguration: there is no consumer, one reads rows and not events, or ``horizon`` is not
        one of their sequences, or above all that they have applied
    :raises ConsumerUnreadable: a consumer's progress cannot be read
    :raises ConcurrentModification: another writer won the race; nothing is lost
    """
    spec = ExpireSpec("", located(spark, log), horizon, dry_run=dry_run, single_driver=single_driver)
    readers = [
        replace(
            one,
            target=located(spark, one.target),
            source=located(spark, one.source) if one.source is not None else None,
        )
        for one in consumers_of(list(consumers))
    ]
    options = dict(storage_options) if storage_options else None
    plan = run_sync(plan_expiry(spec, readers, keep=keep, storage_options=options))
    (row,), errors = run({spec.table_uri: plan}, execute=partial(job.run, spark), run_id="")
    raise_failed(errors)
    logger.info("%s", row)
    return row
