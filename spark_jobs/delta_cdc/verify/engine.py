"""Runs one verify spec: reads the target as of one version, and compares it with other tables."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from delta_cdc.changes import feed
from delta_cdc.errors import (
    DeltaCdcError,
    JobFailed,
    JobRefused,
    LogGap,
    NotADeltaTable,
    TableNotFound,
    TiedEvents,
    VersionsExpired,
)
from delta_cdc.sessions import private_session
from delta_cdc.spec import JobResult
from delta_cdc.verify import current, rows, source
from delta_cdc.verify.checks import CURRENT_EQUALS_HISTORY, EQUALS_SOURCE, OF_ROWS, finding, skipped

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from delta_cdc.spec import VerifySpec
    from delta_cdc.verify.checks import Check

log = logging.getLogger(__name__)

#: Why a version of the source cannot be read any more.
_GONE = (LogGap, NotADeltaTable, TableNotFound, VersionsExpired)
_BY_NAME = "spark.databricks.delta.timeTravel.resolveOnIdentifier.enabled"


def run(spark: SparkSession, spec: VerifySpec) -> JobResult:
    """Make the checks of a spec.

    :return: one entry of ``tables`` per check. ``stale``: the version of the target cannot be read any more
    :raises DeltaCdcError: the target cannot be read, or something failed that says nothing about it
    """
    feed.refuse_forbidden_confs(spark)
    with private_session(spark) as session:
        # Tables are named with their version (rows.address).
        session.conf.set(_BY_NAME, "true")
        return _checked(session, spec)


def _checked(session: SparkSession, spec: VerifySpec) -> JobResult:
    log.info("looking at version %s of %s", spec.target_version, spec.target_uri)
    of_rows = [name for name in spec.checks if name in OF_ROWS]
    made: list[Check] = []
    try:
        if of_rows:
            made += rows.checked(session, spec, of_rows)
        if CURRENT_EQUALS_HISTORY in spec.checks:
            made.append(current.compared(session, spec))
    except Exception as error:
        failure = _named(error, spec)
        if not isinstance(failure, VersionsExpired):
            raise failure from error
        return JobResult("stale", error=failure.to_dict(), message=str(failure))
    if EQUALS_SOURCE in spec.checks:
        made.append(_if_possible(spec, lambda: source.compared(session, spec)))
    return JobResult("committed", tables=tuple(one.to_dict() for one in made))


def _if_possible(spec: VerifySpec, check: Callable[[], Check]) -> Check:
    """Return a comparison with the source, or why it cannot be made.

    What is wrong with the source's rows, or no longer fits them, is a finding: the next run will fail of it.
    """
    try:
        return check()
    except Exception as error:
        failure = _named(error, spec)
        if isinstance(failure, JobFailed | JobRefused):
            raise failure from error
        told = f"{type(failure).__name__}: {failure.message}"
        if isinstance(failure, _GONE) or (isinstance(failure, TiedEvents) and not spec.ties_told):
            return skipped(EQUALS_SOURCE, f"{told} {failure.remedy}")
        return finding(EQUALS_SOURCE, told, failure.remedy)


def _named(error: Exception, spec: VerifySpec) -> DeltaCdcError:
    from delta_cdc import job

    return job.named(error, f"{spec.target_uri}, version {spec.target_version}")
