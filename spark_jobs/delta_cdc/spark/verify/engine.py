"""Run one verify spec: read the target as of one version and compare it with other tables."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from delta_cdc.core.checks import CURRENT_EQUALS_HISTORY, EQUALS_SOURCE, OF_ROWS, finding, skipped
from delta_cdc.core.errors import (
    ConflictingEvents,
    DeltaCdcError,
    JobFailed,
    JobRefused,
    LogGap,
    NotADeltaTable,
    TableNotFound,
    VersionsExpired,
)
from delta_cdc.core.spec import JobResult
from delta_cdc.spark import named_errors
from delta_cdc.spark.changes import feed
from delta_cdc.spark.sessions import private_session, set_where_allowed
from delta_cdc.spark.verify import current, rows, source

if TYPE_CHECKING:
    from collections.abc import Callable

    from delta_cdc.core.checks import Check
    from delta_cdc.core.spec import VerifySpec

log = logging.getLogger(__name__)

#: Errors which show that a version of the source is no longer readable.
_GONE = (LogGap, NotADeltaTable, TableNotFound, VersionsExpired)
_BY_NAME = "spark.databricks.delta.timeTravel.resolveOnIdentifier.enabled"


def run(spark: SparkSession, spec: VerifySpec) -> JobResult:
    """Run the checks of a spec.

    :return: ``tables`` has one entry per check; the status is ``stale`` if the version of the target is no
        longer readable
    :raises DeltaCdcError: the target is unreadable, or the failure does not concern its correctness
    """
    feed.refuse_forbidden_confs(spark)
    log.info("checking version %s of %s", spec.target_version, spec.target_uri)
    with private_session(spark) as session:
        # The paths of tables contain the version (rows.address).
        set_where_allowed(session, {_BY_NAME: "true"})
        try:
            checks = rows.checked(session, spec, [name for name in spec.checks if name in OF_ROWS])
            if CURRENT_EQUALS_HISTORY in spec.checks:
                checks.append(current.compared(session, spec))
        except Exception as error:
            failure = _named(error, spec)
            if not isinstance(failure, VersionsExpired):
                raise failure from error
            return JobResult("stale", error=failure.to_dict(), message=str(failure))
        if EQUALS_SOURCE in spec.checks:
            checks.append(_if_possible(spec, lambda: source.compared(session, spec)))
    return JobResult("committed", tables=tuple(check.to_dict() for check in checks))


def _if_possible(spec: VerifySpec, check: Callable[[], Check]) -> Check:
    """Return the comparison with the source, or the reason why it is impossible.

    Invalid rows of the source, or options that no longer fit these rows, are a finding, because the next run
    fails with the same error.
    """
    try:
        return check()
    except Exception as error:
        failure = _named(error, spec)
        if isinstance(failure, JobFailed | JobRefused):
            raise failure from error
        text = f"{type(failure).__name__}: {failure.message}"
        if isinstance(failure, _GONE) or (
            isinstance(failure, ConflictingEvents) and not spec.knows_on_conflict
        ):
            return skipped(EQUALS_SOURCE, f"{text} {failure.remedy}")
        return finding(EQUALS_SOURCE, text, failure.remedy)


def _named(error: Exception, spec: VerifySpec) -> DeltaCdcError:
    return named_errors.named(error, f"{spec.target_uri}, version {spec.target_version}")
