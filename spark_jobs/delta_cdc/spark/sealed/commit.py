"""Make one sealed commit: check the target a last time, set the seal's confs, return the outcome."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from delta_cdc.core import failpoints
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.history import is_restore, replaces_all_rows
from delta_cdc.core.reasons import reason
from delta_cdc.core.sql import table
from delta_cdc.core.watermark import MAX_SEAL_BYTES, Seal, TableVersion, app_id
from delta_cdc.spark.sealed.commit_files import compared
from delta_cdc.spark.sealed.constraints import Destination, refused
from delta_cdc.spark.sessions import LAST_COMMIT, require_confs, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delta_cdc.core.spec import JobStatus

_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"

#: How many commits are searched for a later seal.
_NEWEST = 100
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
class CommitResult:
    """The result of one sealed statement; ``version`` is set if it committed."""

    status: JobStatus
    message: str = ""
    version: int | None = None


@contextmanager
def sealed(session: SparkSession, seal: Seal) -> Iterator[None]:
    """Set the three confs that put the seal into the commit of the statement in the ``with`` block.

    :raises SparkRestricted: names a conf that the session refuses
    """
    text = seal.to_json()
    if len(text) > MAX_SEAL_BYTES:
        # Planning refuses options that are too long, so here a value or type from the data is too long.
        raise InvalidConfiguration(
            f"The seal {seal.number} of pipeline {seal.pipeline} takes {len(text)} bytes, and a commit holds "
            f"{MAX_SEAL_BYTES}: nothing was written.",
            remedy="give sequence_by (sequence_column of an ingest) short values, such as numbers or times.",
        )
    with stamped(session, app_id(seal.pipeline), seal.number, text):
        yield


@contextmanager
def stamped(session: SparkSession, app: str, number: int, text: str) -> Iterator[None]:
    """Set the confs that put a transaction and ``userMetadata`` into the commit of the ``with`` block.

    Delta skips the statement if the table has a transaction of this application with this number or a greater
    one.

    :raises SparkRestricted: names a conf that the session refuses
    """
    confs = {_TXN_APP: app, _TXN_VERSION: str(number), _USER_METADATA: text}
    taken = []
    try:
        for key, value in confs.items():
            require_confs(session, {key: value}, at_start=False)
            taken.append(key)
        yield
    finally:
        for key in taken:
            session.conf.unset(key)


@dataclass(frozen=True)
class TableState:
    """The target as a job observes it.

    :param is_laid_out: whether the table has, or once had, clustering columns or partitions
    """

    table_id: str
    version: int
    is_laid_out: bool
    properties: dict[str, str]

    def lacks_clustering(self, ours: dict[str, str]) -> bool:
        """Return whether a load created this table, but crashed before it set the clustering.

        Tables that other writers created, and tables whose clustering a user removed, stay unchanged.

        :param ours: the properties that a load sets; its statistics property identifies tables of this engine
        """
        statistics = "delta.dataSkippingStatsColumns"
        is_ours = statistics in ours and self.properties.get(statistics) == ours[statistics]
        return is_ours and not self.is_laid_out


def look(session: SparkSession, target: str) -> TableState:
    """Return the target's current state. Delta computes it from the whole log, in several Spark jobs."""
    detail = session.sql(f"DESCRIBE DETAIL {table(target)}").collect()[0]
    history = session.sql(f"DESCRIBE HISTORY {table(target)} LIMIT 1").select("version").collect()[0]
    return TableState(
        table_id=detail["id"],
        version=history["version"],
        is_laid_out=bool(detail["partitionColumns"]) or "clustering" in detail["tableFeatures"],
        properties=dict(detail["properties"]),
    )


@contextmanager
def logs_loaded(session: SparkSession, *uris: str) -> Iterator[None]:
    """Load the Delta logs of tables while the statements of the ``with`` block run.

    A commit needs the log's state, which Delta computes in three jobs of little work; the driver has time for
    them during the block.
    """
    if not uris:
        yield
        return

    def load(uri: str) -> None:
        session.sql(f"DESCRIBE DETAIL {table(uri)}").collect()

    with ThreadPoolExecutor(len(uris)) as pool:
        loading = [pool.submit(load, uri) for uri in uris]
        yield
        for future in loading:
            # Ignore errors: a table may not exist yet, and the commit reports all other errors.
            future.exception()


def changed_since(
    session: SparkSession, target: str, planned_on: TableVersion, *, single_driver: bool
) -> tuple[TableState, str | None] | None:
    """Return the target's state, and why the plan no longer fits it (None if it still fits).

    :return: None if the target has not changed since it was planned on
    """
    found = compared(session, target, planned_on, single_driver=single_driver)
    if found == "newest":
        return None
    now = look(session, target)
    reason = overtaken(session, target, planned_on, now)
    if reason is None and found == "other":
        reason = f"version {planned_on} of the target {target} is no longer the commit that was planned on"
    return now, reason


def overtaken(session: SparkSession, target: str, planned_on: TableVersion, now: TableState) -> str | None:
    """Return why a plan made on ``planned_on`` no longer fits the target; None if it still fits.

    The compare-and-swap of seals cannot detect a RESTORE, REPLACE, overwrite or TRUNCATE, because these keep
    the transaction identifiers.

    :param now: the target immediately before the commit, from :func:`look`
    """
    if now.table_id != planned_on.table_id:
        return f"the target {target} was replaced (table id {now.table_id}, planned on {planned_on.table_id})"
    newer_commits = now.version - planned_on.version
    if newer_commits < 0:
        return f"the target {target} is at version {now.version}, planned on version {planned_on.version}"
    if newer_commits == 0:
        return None
    history = session.sql(f"DESCRIBE HISTORY {table(target)} LIMIT {newer_commits}")
    rows = history.select("version", "operation", "operationParameters").collect()
    newer = [row for row in rows if row["version"] > planned_on.version]
    for row in newer:
        operation = row["operation"]
        undoes_commits = is_restore(operation) or replaces_all_rows(operation, row["operationParameters"])
        if undoes_commits:
            return (
                f"version {row['version']} of the target {target} is a {row['operation']} made since planning"
            )
    if len(newer) < newer_commits:
        return f"commits to the target {target} made since planning were cleaned from its log"
    return None


def is_overtaken(
    session: SparkSession, target: str, planned_on: TableVersion, pipeline: str, number: int
) -> bool:
    """Return whether a commit after ``planned_on`` has a seal of the pipeline with this or a later number."""
    rows = session.sql(f"DESCRIBE HISTORY {table(target)} LIMIT {_NEWEST}").select("version", "userMetadata")
    seals = [
        Seal.from_json(row["userMetadata"]) for row in rows.collect() if row["version"] > planned_on.version
    ]
    return any(seal is not None and seal.pipeline == pipeline and seal.number >= number for seal in seals)


def taken_number(pipeline: str, number: int) -> str:
    """Return why a step commits nothing whose number another commit has taken."""
    return f"a seal >= {number} of pipeline {pipeline} exists"


def commit(session: SparkSession, seal: Seal, write: Callable[[], object], into: Destination) -> CommitResult:
    """Run the sealed statement of a step, between two failpoints for tests."""
    failpoints.reached("before_commit")
    outcome = attempt(session, seal, write, into)
    if outcome.status == "committed":
        failpoints.reached("committed")
    return outcome


def attempt(
    session: SparkSession, seal: Seal, write: Callable[[], object], into: Destination
) -> CommitResult:
    """Run one sealed statement and return its outcome.

    Delta silently skips a write whose transaction identifier it already has. The conf with the session's
    last committed version shows whether this statement committed, so it is unset first.

    :raises TargetConstraintViolated: one of the table's rules refuses rows
    :raises TargetSchemaClash: the rows do not fit the table's columns
    """
    require_confs(session, {LAST_COMMIT: None})
    try:
        with sealed(session, seal):
            write()
    except Exception as error:
        if is_conflict(error):
            # Delta's text goes on with the other commit, whose seal fills a page.
            return CommitResult("conflict", message=reason(error).partition(" Conflicting commit:")[0])
        refusal = refused(error, into)
        if refusal is None:
            raise
        raise refusal from error
    version = value_of(session, LAST_COMMIT)
    if version is None:
        return CommitResult("skipped", message=taken_number(seal.pipeline, seal.number))
    return CommitResult("committed", version=int(version))


def written(save: Callable[[], object]) -> CommitResult:
    """Run a statement without a seal; return ``conflict`` if another writer committed first."""
    try:
        save()
    except Exception as error:
        if is_conflict(error):
            return CommitResult("conflict", reason(error))
        raise
    return CommitResult("committed")


def nothing_added(session: SparkSession, uri: str) -> Callable[[], object]:
    """Return a write that appends no rows: its commit records the transaction and the seal."""

    def write() -> None:
        no_rows = session.read.format("delta").load(uri).limit(0)
        no_rows.write.format("delta").mode("append").save(uri)

    return write


def is_conflict(error: BaseException) -> bool:
    """Return whether an error means that another writer committed first.

    Checks the text, because the exception's class does not show it over Connect or without Delta's Python
    package. Checks the class too, because some texts do not name the conflict if that package is installed.
    """
    text = f"{type(error).__name__}: {error}"
    return any(name in text for name in _CONFLICTS)
