"""Delete the files that a table does not need any more.

Only a property of the table sets the retention, because Delta ignores ``RETAIN`` since 4.1. First the planner
checks in the logs whether a consumer still needs the files (:mod:`delta_cdc.planning.vacuum`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.spec import JobResult
from delta_cdc.core.sql import set_properties, table
from delta_cdc.spark.sessions import set_where_allowed, value_of

if TYPE_CHECKING:
    from delta_cdc.core.spec import VacuumSpec

log = logging.getLogger(__name__)

#: Makes Delta log the start and the end of a VACUUM; the next run reads there whether work is left.
_LOGGED = "spark.databricks.delta.vacuum.logging.enabled"
_PARTITIONS = ("spark.sql.shuffle.partitions", "spark.sql.sources.parallelPartitionDiscovery.parallelism")
#: How many files one task lists and compares.
_FILES_PER_TASK = 5_000
_NO_LITE = "DELTA_CANNOT_VACUUM_LITE"


def run(session: SparkSession, spec: VacuumSpec) -> JobResult:
    """Set the properties of a spec and delete files; a dry run only logs the files, at most 1,000.

    :raises InvalidConfiguration: ``lite`` is set (in the operator: ``full=False``), and the log does not
        reach back far enough
    """
    if spec.properties and not spec.dry_run:
        session.sql(set_properties(spec.table_uri, spec.properties))
        log.info("%s: set %s", spec.table_uri, spec.properties)
    set_where_allowed(session, {_LOGGED: "true"})
    # VACUUM starts thousands of tasks for a table of any size; small tables need few.
    tasks = max(2, -(-(spec.files or 0) // _FILES_PER_TASK))
    for name in _PARTITIONS if spec.files is not None else ():
        value = value_of(session, name)
        if value is None or tasks < int(value):
            set_where_allowed(session, {name: str(tasks)})
    text = f"VACUUM {table(spec.table_uri)}{' LITE' if spec.lite else ''}{' DRY RUN' if spec.dry_run else ''}"
    log.info("%s", text)
    try:
        rows = session.sql(text).collect()
    except Exception as error:
        if _NO_LITE not in str(error):
            raise
        raise InvalidConfiguration(
            f"The log of {spec.table_uri} lacks files that were removed since the last VACUUM.",
            remedy="run once with full=True (the default), which lists the table's folder.",
        ) from error
    if not spec.dry_run:
        return JobResult("committed")
    for row in rows:
        log.info("would delete %s", row["path"])
    return JobResult("planned", counts={"files": len(rows)}, tables=({"files": len(rows)},))
