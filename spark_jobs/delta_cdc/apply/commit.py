"""One sealed commit: the last look at the target, the seal's confs, the outcome."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_cdc import phases
from delta_cdc.apply.constraints import Into, refused
from delta_cdc.history import is_restore, replaces_all_rows
from delta_cdc.reasons import reason
from delta_cdc.sessions import LAST_COMMIT
from delta_cdc.sql import table
from delta_cdc.watermark import PlannedOn, Seal, app_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from pyspark.sql import SparkSession

    from delta_cdc.spec import JobStatus

_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"

#: ``commitInfo.userMetadata`` above this is refused: history readers load it for every version.
MAX_SEAL_BYTES = 64 * 1024

_CONFLICTS = (
    "ConcurrentTransactionException",
    "ConcurrentAppendException",
    "ConcurrentDeleteReadException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentWriteException",
    "MetadataChangedException",
    "ProtocolChangedException",
    "DELTA_CONCURRENT_",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "DELTA_PATH_EXISTS",
)


@dataclass(frozen=True)
class Outcome:
    """What became of one sealed statement; ``version`` is set when it committed."""

    status: JobStatus
    message: str = ""
    version: int | None = None


@contextmanager
def sealed(session: SparkSession, seal: Seal) -> Iterator[None]:
    """Set the three confs that make the one statement inside carry the seal."""
    text = seal.to_json()
    if len(text) > MAX_SEAL_BYTES:
        raise ValueError(f"the seal has {len(text)} bytes, more than {MAX_SEAL_BYTES}")
    confs = {_TXN_APP: app_id(seal.pipeline), _TXN_VERSION: str(seal.number), _USER_METADATA: text}
    for key, value in confs.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key in confs:
            session.conf.unset(key)


@dataclass(frozen=True)
class Seen:
    """The target as a job finds it.

    :param moment: when its newest version was committed
    :param is_laid_out: whether it has, or ever had, clustering columns, or partitions
    """

    table_id: str
    version: int
    moment: datetime
    is_laid_out: bool
    properties: dict[str, str]

    def lacks_clustering(self, ours: dict[str, str]) -> bool:
        """Tell whether a load of ours died before it declared the clustering.

        A table that somebody else made, or whose clustering was taken off by hand, stays as it is.

        :param ours: the properties that a load gives a table; the one of statistics tells whose it is
        """
        statistics = "delta.dataSkippingStatsColumns"
        made_here = statistics in ours and self.properties.get(statistics) == ours[statistics]
        return made_here and not self.is_laid_out


def look(session: SparkSession, target: str) -> Seen:
    """Return the target as it is now."""
    detail = session.sql(f"DESCRIBE DETAIL {table(target)}").collect()[0]
    version, moment = _newest(session, target)
    return Seen(
        table_id=detail["id"],
        version=version,
        moment=moment,
        is_laid_out=bool(detail["partitionColumns"]) or "clustering" in detail["tableFeatures"],
        properties=dict(detail["properties"]),
    )


def _newest(session: SparkSession, target: str) -> tuple[int, datetime]:
    history = session.sql(f"DESCRIBE HISTORY {table(target)} LIMIT 1")
    version, moment = history.select("version", "timestamp").collect()[0]
    return version, moment


@contextmanager
def looking(session: SparkSession, target: str) -> Iterator[Callable[[], Seen]]:
    """Look at the target while something else is done, which takes Delta a second where its log is unread.

    :return: a function that returns the target as it is when it is called: what was seen holds where the
        newest version still is the same commit
    """
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(look, session, target)

        def now() -> Seen:
            # A look that failed, for instance because the table was made anew meanwhile, is none.
            seen = early.result() if early.exception() is None else None
            if seen is not None and _newest(session, target) == (seen.version, seen.moment):
                return seen
            return look(session, target)

        yield now


def overtaken(session: SparkSession, target: str, planned_on: PlannedOn, now: Seen) -> str | None:
    """Say why a plan made on ``planned_on`` no longer fits the target; None where it still does.

    The compare-and-swap sees other seals, but no RESTORE, REPLACE, overwrite or TRUNCATE: the transaction
    identifiers survive all of them.

    :param now: the target right before the commit, from :func:`look`
    """
    if now.table_id != planned_on.table_id:
        return f"the target {target} was replaced (table id {now.table_id}, planned on {planned_on.table_id})"
    newer = now.version - planned_on.version
    if newer < 0:
        return f"the target {target} is at version {now.version}, planned on version {planned_on.version}"
    if newer == 0:
        return None
    history = session.sql(f"DESCRIBE HISTORY {table(target)} LIMIT {newer}")
    for row in history.select("version", "operation", "operationParameters").collect():
        operation = row["operation"]
        undone = is_restore(operation) or replaces_all_rows(operation, row["operationParameters"])
        if row["version"] > planned_on.version and undone:
            return (
                f"version {row['version']} of the target {target} is a {row['operation']} made since planning"
            )
    return None


def commit(session: SparkSession, seal: Seal, write: Callable[[], object], into: Into) -> Outcome:
    """Run the sealed statement of a step, between the points of a job that tests know."""
    phases.reached("before_commit")
    outcome = attempt(session, seal, write, into)
    if outcome.status == "committed":
        phases.reached("committed")
    return outcome


def attempt(session: SparkSession, seal: Seal, write: Callable[[], object], into: Into) -> Outcome:
    """Run one sealed statement and find out what became of it.

    Delta skips a write with a known transaction without saying so; whether a commit was made shows in the
    version that the session committed last, which is unset before.

    :raises TargetConstraintViolated: the table refuses rows for a rule of its own
    :raises TargetSchemaClash: likewise, for its columns
    """
    session.conf.unset(LAST_COMMIT)
    try:
        with sealed(session, seal):
            write()
    except Exception as error:
        if is_conflict(error):
            return Outcome("conflict", message=reason(error))
        named = refused(error, into)
        if named is None:
            raise
        raise named from error
    version = session.conf.get(LAST_COMMIT, None)
    if version is None:
        return Outcome("skipped", message=f"a seal >= {seal.number} of pipeline {seal.pipeline} exists")
    return Outcome("committed", version=int(version))


def is_conflict(error: BaseException) -> bool:
    """Tell whether a writer lost a race.

    By text: over Connect, and without delta's Python package, the exception's class does not say it.
    """
    return any(name in str(error) for name in _CONFLICTS)
