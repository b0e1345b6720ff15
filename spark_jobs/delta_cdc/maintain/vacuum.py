"""Deletes the files that a table does not need any more.

How long they are kept says the table's own property alone: since Delta 4.1 ``RETAIN`` is ignored. Whether a
consumer would miss them is found out before, from the logs (:mod:`delta_cdc.maintain.vacuuming`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from delta_cdc.errors import InvalidConfiguration
from delta_cdc.spec import JobResult
from delta_cdc.sql import string, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delta_cdc.spec import VacuumSpec

log = logging.getLogger(__name__)

#: By its start and end in the table's log the next run knows whether there is anything to do.
_LOGGED = "spark.databricks.delta.vacuum.logging.enabled"
_PARTITIONS = ("spark.sql.shuffle.partitions", "spark.sql.sources.parallelPartitionDiscovery.parallelism")
#: Files that one task may have to list and to compare.
_FILES_PER_TASK = 5_000
#: A dry run names no more files than that.
MOST_NAMED = 1_000
_NO_LITE = "DELTA_CANNOT_VACUUM_LITE"


def run(session: SparkSession, spec: VacuumSpec) -> JobResult:
    """Set the properties of a spec, and delete files; or say which would be deleted.

    :raises InvalidConfiguration: ``lite``, and the log does not reach back far enough
    """
    if spec.properties and not spec.dry_run:
        listed = ", ".join(f"{string(name)} = {string(value)}" for name, value in spec.properties.items())
        session.sql(f"ALTER TABLE {table(spec.table_uri)} SET TBLPROPERTIES ({listed})")
        log.info("%s: set %s", spec.table_uri, listed)
    session.conf.set(_LOGGED, "true")
    _fit(session, spec.files)
    text = f"VACUUM {table(spec.table_uri)}{' LITE' if spec.lite else ''}{' DRY RUN' if spec.dry_run else ''}"
    log.info("%s", text)
    try:
        rows = session.sql(text).collect()
    except Exception as error:
        if _NO_LITE not in str(error):
            raise
        raise InvalidConfiguration(
            f"The log of {spec.table_uri} does not tell all files that were removed since the last VACUUM.",
            remedy="run once without lite, which lists the table's folder.",
        ) from error
    if not spec.dry_run:
        return JobResult("committed", tables=({"table": spec.table_uri},))
    for row in rows:
        log.info("would delete %s", row["path"])
    found = {"table": spec.table_uri, "files": len(rows)}
    return JobResult("planned", counts={"files": len(rows)}, tables=(found,))


def _fit(session: SparkSession, files: int | None) -> None:
    """Give small tables few tasks: VACUUM lists and shuffles in thousands, whatever there is."""
    if files is None:
        return
    wanted = max(2, -(-files // _FILES_PER_TASK))
    for name in _PARTITIONS:
        given = session.conf.get(name, None)
        if given is None or wanted < int(given):
            session.conf.set(name, str(wanted))
