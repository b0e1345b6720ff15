"""Run one maintenance spec on one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from delta_cdc.core.errors import ConcurrentModification
from delta_cdc.core.reasons import reason
from delta_cdc.spark.changes import feed
from delta_cdc.spark.maintain import erase, expire, optimize, vacuum
from delta_cdc.spark.sealed.commit import is_conflict
from delta_cdc.spark.sealed.commit_safety import refuse_unsafe_log_store
from delta_cdc.spark.sessions import private_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from delta_cdc.core.spec import JobResult, MaintenanceSpec

#: The function that runs each type of maintenance.
RUNS: dict[str, Callable[[SparkSession, Any], JobResult]] = {
    "optimize": optimize.run,
    "vacuum": vacuum.run,
    "expire": expire.run,
    "erase": erase.run,
}


def run(spark: SparkSession, spec: MaintenanceSpec) -> JobResult:
    """Run one spec in a private session.

    :return: ``tables`` has one entry, the outcome
    :raises ConcurrentModification: another writer changed the same files first
    :raises DeltaCdcError: see the modules of the jobs
    """
    feed.refuse_forbidden_confs(spark)
    try:
        with private_session(spark) as session:
            refuse_unsafe_log_store(session, spec.table_uri, single_driver=spec.single_driver)
            return RUNS[spec.job](session, spec)
    except Exception as error:
        if not is_conflict(error):
            raise
        raise ConcurrentModification(
            f"Another writer changed {spec.table_uri} at the same moment ({reason(error)}).",
            remedy="run again; nothing is lost, and completed steps are not repeated.",
        ) from error
