"""The erasure of a key as a function, for a plain PySpark session with Delta."""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from delta_cdc import job
from delta_cdc.api.changes import located
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.planning.consumers import consumers_of
from delta_cdc.planning.erasure import Flow, readers, with_downstream
from delta_cdc.run.erase import Erasure, run
from delta_cdc.run.maintain import raise_failed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from delta_cdc.planning.consumers import Consumer

logger = logging.getLogger(__name__)

_FIELDS = tuple(field.name for field in fields(Flow))


def erase_key(
    spark: SparkSession,
    tables: Sequence[Mapping[str, str]],
    *,
    key: Mapping[str, object],
    consumers: Sequence[Consumer | Mapping[str, str]] = (),
    purge: bool = False,
    quarantined_records: bool = False,
    dry_run: bool = False,
    single_driver: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Remove a key from the tables of pipelines for good, and let the tables remember that it was erased.

    The call deletes the rows of the key from change logs and targets, their quarantine and staging tables. No
    replay, reload, redelivery or late event brings them back. If a call was interrupted, call again: it finds
    what is done.

    :param spark: a session with Delta's extension and catalog; the call does not change its settings
    :param tables: one entry per pipeline: ``pipeline``, and ``source``, ``log``, ``target`` and ``staging``
        as far as it has them (path, URI or catalog name). Name also the pipelines that read these tables: the
        call knows no others
    :param key: all key columns with their values, as text that CAST reads
    :param consumers: pipelines, each with ``pipeline`` and ``target``, that must have read a table before
        ``purge`` deletes its old files
    :param purge: also remove rows behind deletion vectors from the current files, and VACUUM the tables
    :param quarantined_records: also delete the records in the quarantine of an ingest that contain the values
        of the key; without it, the call counts them, because such a record may be of another key
    :param dry_run: count what the call would delete, and write nothing
    :param single_driver: you make sure that only one Spark driver at a time writes to the tables; needed on
        S3 if Spark's log store is not safe for several drivers, and on disks without hard links
    :param storage_options: options of the object store for reading the logs without Spark
    :return: one dict per table, see ``DeltaEraseOperator``
    :raises InvalidConfiguration: an argument is invalid, the columns are not the key of a table, or a value
        does not fit its column
    :raises ColumnNotFound: a table has no such column
    :raises ConcurrentModification: another writer committed first; call again
    :raises TableNotFound: a target or change log does not exist
    """
    if not key:
        raise InvalidConfiguration(
            "key names no column.", remedy="give a value for each key column of the tables.", argument="key"
        )
    given = [_flow(spark, entry) for entry in tables]
    flows = with_downstream(given, given)
    named = [replace(one, target=located(spark, one.target)) for one in consumers_of(list(consumers))]
    work = Erasure(
        keys=({name: str(value) for name, value in key.items()},),
        flows=flows,
        consumers=(*named, *readers(flows)),
        purge=purge,
        deletes_records=quarantined_records,
        dry_run=dry_run,
        single_driver=single_driver,
    )
    report = run(
        work,
        execute=partial(job.run, spark),
        run_id="erase_key",
        storage_options=dict(storage_options) if storage_options else None,
    )
    logger.info("Outside the reach of this call:\n%s", "\n".join(report.outside))
    raise_failed(report.errors)
    return report.rows


def _flow(spark: SparkSession, entry: Mapping[str, str]) -> Flow:
    """Return a pipeline with the locations of its tables.

    :raises InvalidConfiguration: an entry has no table, or unknown keys
    """
    unknown = set(entry) - set(_FIELDS)
    if unknown or "pipeline" not in entry or not {"log", "target"} & set(entry):
        raise InvalidConfiguration(
            f"tables has an entry with the keys {', '.join(entry) or 'of no table'}.",
            remedy=f"give pipeline, and the tables by {', '.join(_FIELDS[1:])}; at least log or target.",
            argument="tables",
        )
    log, target, staging = (
        located(spark, entry[name]) if name in entry else None for name in ("log", "target", "staging")
    )
    return Flow(entry["pipeline"], entry.get("source"), log, target, staging)
