"""Create private sessions, whose confs and views no other session sees."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from pyspark.storagelevel import StorageLevel

from delta_cdc.core.errors import EnvironmentNotReady, SparkRestricted, VersionsUnsupported
from delta_cdc.core.reasons import reason
from delta_cdc.core.spark_versions import CONNECT_SINCE, release
from delta_cdc.core.sql import string
from delta_cdc.spark.meaning import MEANING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

log = logging.getLogger(__name__)

_T = TypeVar("_T")

#: Conf in which Delta stores the version that a session committed last.
LAST_COMMIT = "spark.databricks.delta.lastCommitVersionInSession"
#: Conf by which Delta compacts small files after a commit; it takes precedence over the table's property.
AUTO_COMPACT = "spark.databricks.delta.autoCompact.enabled"

_CONFS = {
    "spark.sql.session.timeZone": "UTC",
    # ${env:…} in a key, a column name or a path is plain text, not a variable.
    "spark.sql.variable.substitute": "false",
}
#: Without these, work takes longer and gives the same rows.
_FASTER = {
    # Each dependent value doubles the inferred constraints; dozens of columns would take minutes.
    "spark.sql.constraintPropagation.enabled": "false",
    # The batch has a checkpoint before the MERGE; Delta would write it a second time.
    "spark.databricks.delta.merge.materializeSource": "none",
}

#: With these confs, Delta accepts ``versionAsOf`` together with ``readChangeFeed`` as the version of the
#: schema; the second conf is for tables with column mapping, which by default use the schema of
#: ``endingVersion`` and accept no other. If a session refuses them, a feed has the newest columns.
SCHEMA_AS_OF = {
    "spark.databricks.delta.changeDataFeed.allowTimeTravelOptionsForSchema": "true",
    "spark.databricks.delta.changeDataFeed.defaultSchemaModeForColumnMappingTable": "legacy",
}

#: Conf by which Delta may read a table as it was before another program's commit.
_STALENESS = "spark.databricks.delta.stalenessLimit"
#: Conf by which new tables refuse an update or a delete. A target or staging table needs both.
_APPEND_ONLY = "spark.databricks.delta.properties.defaults.appendOnly"
#: Conf by which new tables forget the transactions of seals.
_TRANSACTION_RETENTION = "spark.databricks.delta.properties.defaults.setTransactionRetentionDuration"
#: Conf by which the columns of new tables have other names in the files. The planner reads the files of an
#: ingest's record and of a quarantine without Spark.
_COLUMN_MAPPING = "spark.databricks.delta.properties.defaults.columnMapping.mode"
#: The values of these confs in a private session, if the user's session has any; None: unset. They are
#: Delta's: before its classes are loaded, Spark does not know them, nor their defaults.
_OF_DELTA = {
    _STALENESS: "0",
    _APPEND_ONLY: "false",
    _TRANSACTION_RETENTION: None,
    _COLUMN_MAPPING: None,
}

#: Conf by which Spark hides parts of the plans and statements that it shows.
_REDACTION = "spark.sql.redaction.string.regex"
#: The patterns that match all text, and none.
_ALL, _NOTHING = "(?s).+", "(?!)"

#: Open clones of Spark Connect sessions, by the original session's id.
_open: dict[str, list[SparkSession]] = {}
#: Ended sessions. Weak references let them be collected, because an Airflow worker may run for months.
_ended: WeakSet[Any] = WeakSet()
_opening = threading.Lock()
#: By session, the confs of each new session that it creates: always the same, and slow to read.
_new_session_confs: WeakKeyDictionary[Any, dict[str, str]] = WeakKeyDictionary()
#: Held while a user's session has the confs of the engine.
_lent = threading.RLock()
#: The private sessions that are in use.
_private: WeakSet[Any] = WeakSet()

#: Seconds to wait for a server to register an interruption.
_NOTED = 1.0
#: Seconds to wait for a server to release a session.
_RELEASED = 15.0

#: Module and function in PySpark's client that convert the type of a cast into a message.
_TYPES = ("pyspark.sql.connect.expressions", "pyspark_types_to_proto_types")

#: Error texts which show that a Spark Connect server was lost, or has dropped a session.
_LOST = (
    "INVALID_HANDLE.SESSION_",
    "INVALID_HANDLE.OPERATION_NOT_FOUND",
    "NO_ACTIVE_SESSION",
    "RESPONSE_ALREADY_RECEIVED",
    "incorrect server side session identifier",
    "StatusCode.UNAVAILABLE",
    "Cannot invoke RPC on closed channel",
)


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is a Spark Connect session."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def asking_java(*calls: tuple[str, ...]) -> str:
    """Return a query for the results of static methods in the driver's JVM; it works over Connect as well.

    The query contains a literal row, so that the optimizer evaluates the calls in the driver. Without it, a
    task would evaluate them in an executor.

    :param calls: class, method, and its text arguments. A null result becomes the text ``null``
    """
    called = ", ".join(f"java_method({', '.join(map(string, call))})" for call in calls)
    return f"SELECT {called} FROM VALUES (0)"


#: Calls a method that every JVM has, to test whether queries may call Java.
JAVA_QUERY = asking_java(("java.lang.System", "lineSeparator"))
#: Reads the version from Delta's own JAR, without a table.
DELTA_VERSION_QUERY = asking_java(("io.delta.package", "VERSION"))


def delta_version(spark: SparkSession) -> str:
    """Return the version of Delta that a session uses.

    :raises Exception: Spark's own error, if Delta is not on its class path
    """
    return str(spark.sql(DELTA_VERSION_QUERY).collect()[0][0])


@contextmanager
def private_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield a private session with ``spark``'s runtime confs, but those that decide what an expression means.

    Its time zone is UTC, and the confs of :mod:`delta_cdc.spark.meaning` have Spark's defaults: rows depend
    on the configuration and on the source, not on the session.
    In a shared session, the seal's confs would leak into every other commit (auto-compaction, ALTER).
    Over Connect, the server always releases the session at the end. The private session of a private session
    is that session itself: an ingest and its apply share one.
    """
    if spark in _private:
        yield spark
        return
    with _new_session(spark) as session:
        _private.add(session)
        try:
            yield session
        finally:
            _private.discard(session)


@contextmanager
def _new_session(spark: SparkSession) -> Iterator[SparkSession]:
    if is_connect(spark):
        with _cloned(spark) as session:
            _configure(session)
            yield session
        return
    session = spark.newSession()
    session_confs = _new_session_confs.get(spark)
    if session_confs is None:
        _require_one_version(spark)
        session_confs = _new_session_confs[spark] = dict(session.conf.getAll)
    # newSession does not copy runtime confs. Copy names that Spark does not know, too: a user set them, for
    # instance for a file system, or as Delta's properties of new tables.
    changed = {
        key: value
        for key, value in dict(spark.conf.getAll).items()
        if key != LAST_COMMIT and session_confs.get(key) != value
    }
    # A session that refuses a conf did not get it from its user either.
    set_where_allowed(session, changed)
    _configure(session)
    _make_active(session)
    try:
        yield session
    finally:
        # Spark may have ended meanwhile: the error of the work is the one that counts.
        with suppress(Exception):
            _make_active(spark)


def _make_active(session: SparkSession) -> None:
    """Make a classic session the active one of this thread.

    Spark reads the name of a type (``cast("timestamp")``) with the confs of the active session, whichever
    session the rows belong to.
    """
    # Of PySpark's public functions, only this one does it.
    session.createDataFrame([], StructType([]))


def _configure(session: SparkSession) -> None:
    require_confs(session, _CONFS)
    # Most sessions have the defaults: then nothing is set, so a platform may refuse the confs.
    require_confs(session, {name: MEANING[name][0] for name in other_meaning(session)})
    for name, value in _OF_DELTA.items():
        if value_of(session, name) not in (None, "", value):
            require_confs(session, {name: value})
    set_where_allowed(session, {**SCHEMA_AS_OF, **_FASTER})


def other_meaning(session: SparkSession) -> dict[str, str]:
    """Return the confs by which an expression may mean something else in a session than in a run."""
    return {
        name: value
        for name, value in effective(session, MEANING).items()
        if value and value.upper() not in map(str.upper, MEANING[name])
    }


def _require_one_version(spark: SparkSession) -> None:
    """Check that PySpark's code and its JVM are of one release.

    :raises VersionsUnsupported: pyspark-client of another release was installed over pyspark
    """
    if release(pyspark.__version__) != release(spark.version):
        raise VersionsUnsupported(
            f"The session runs Spark {spark.version}, and the code of pyspark in "
            f"{pyspark.__path__[0]} is {pyspark.__version__}.",
            remedy="install pyspark and pyspark-client again, both in the version of that Spark.",
        )


#: Bytes of input, by the source's log or listing, up to which one task shuffles all rows.
FEW_BYTES = 4 * 1024**2
#: The confs for it. A private session keeps the user's values under other names.
_ONE_TASK = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}
_KEPT = "delta_cdc."


def shuffle_for(session: SparkSession, *, few_rows: bool) -> None:
    """Set how the next statements of a private session shuffle.

    Spark's own values are meant for much data: for a few thousand rows, every additional task and every
    adaptive re-optimization costs more than it saves (measured: ``benchmarks/apply.py``).

    :param few_rows: in one task and without adaptive execution; otherwise as in the user's session
    """
    for name, value in _ONE_TASK.items():
        set_or_restore(session, name, value if few_rows else None)


def set_or_restore(session: SparkSession, name: str, value: str | None) -> None:
    """Set a conf of a private session that only saves time; None restores the user's value or the default."""
    users_value = value_of(session, _KEPT + name)
    if users_value is None:
        # Delta's confs have no value, not even a default, before its classes are loaded.
        users_value = value_of(session, name) or ""
        if not set_where_allowed(session, {_KEPT + name: users_value}):
            return
    set_where_allowed(session, {name: (users_value if value is None else value) or None})


@contextmanager
def confs_for_a_moment(session: SparkSession, confs: Mapping[str, str]) -> Iterator[None]:
    """Set confs of a session that may belong to the user; always restore the previous values.

    Threads wait for each other, because otherwise two of them could restore each other's values.

    :raises SparkRestricted: names a conf that the session refuses
    """
    with _lent:
        previous = {name: value_of(session, name) for name in confs}
        try:
            require_confs(session, confs)
            yield
        finally:
            set_where_allowed(session, previous)


def require_confs(session: SparkSession, confs: Mapping[str, str | None], *, at_start: bool = True) -> None:
    """Set confs that correct rows depend on.

    A session that refuses a conf, but has its value already, is as good.

    :param confs: None unsets a conf
    :param at_start: whether the user may set the conf when Spark starts, instead
    :raises SparkRestricted: names the conf that the session refuses
    :raises Exception: the server of the session was lost
    """
    for name, value in confs.items():
        try:
            _set(session, name, value)
        except Exception as error:
            if is_lost(error):
                raise
            if value_of(session, name) == value:
                continue
            start = f"start that Spark with {name}={value}, or " if at_start and value is not None else ""
            raise SparkRestricted(
                f"This Spark does not let a session set {name}, which the work needs: {reason(error)}",
                remedy=f"{start}run on a Spark whose sessions may set it: see "
                "docs/howto/platforms/restrictions.md.",
            ) from error


def value_of(session: SparkSession, name: str) -> str | None:
    """Return the value that a conf was set to; None if it was not, or cannot be read."""
    return _read(lambda: session.conf.get(name, None))


def effective(session: Any, names: Collection[str]) -> Mapping[str, str | None]:
    """Return the values by which a session works: where a conf was not set, its default.

    A default depends on the release, and some on the environment of Spark (``SPARK_ANSI_SQL_MODE``).

    :return: None for a conf that has no default, that this Spark does not know, or that cannot be read
    """
    # One request; a server that does not know one of the confs refuses it.
    at_once = _read(lambda: session.client.get_config_dict(*names)) if is_connect(session) else None
    return at_once or {name: _read(partial(session.conf.get, name)) for name in names}


def _read(read: Callable[[], _T]) -> _T | None:
    try:
        return read()
    except Exception as error:
        if is_lost(error):
            raise
        return None


def _set(session: SparkSession, name: str, value: str | None) -> None:
    if value is None:
        session.conf.unset(name)
    else:
        session.conf.set(name, value)


def set_where_allowed(session: SparkSession, confs: Mapping[str, str | None]) -> list[str]:
    """Set confs that the work can do without; return the names of those that the session took.

    A managed platform may refuse a conf that the same release of Spark takes elsewhere.

    :param confs: None unsets a conf
    :raises Exception: the server of the session was lost
    """
    taken = []
    for name, value in confs.items():
        try:
            _set(session, name, value)
        except Exception as error:
            if is_lost(error):
                raise
            log.info("This Spark does not let a session set %s. The job continues without this conf.", name)
        else:
            taken.append(name)
    return taken


@contextmanager
def _cloned(spark: Any) -> Iterator[SparkSession]:
    """Clone a Spark Connect session; the clone is this thread's active session inside the ``with`` block."""
    require_clones(spark)
    _send_plain_strings()
    session = _clone(spark)
    # The client of a clone has PySpark's default retries, which take more than ten minutes.
    session.client.set_retry_policies(spark.client.get_retry_policies())
    with _opening:
        siblings = _open.setdefault(spark.session_id, [])
        siblings.append(session)
        is_ended = spark in _ended
    if is_ended:
        # Another thread ended the session and its clones before this clone was registered.
        end(session)
    session_class = type(session)._active_session
    previous = getattr(session_class, "session", None)
    # PySpark parses types from text with the active session.
    session_class.session = session
    try:
        yield session
    finally:
        session_class.session = previous
        with _opening:
            siblings.remove(session)
            if not siblings:
                _open.pop(spark.session_id, None)
        close(session)


def _clone(spark: Any) -> Any:
    try:
        return spark.cloneSession()
    except Exception as error:
        if is_lost(error) or not _answers(spark, "SELECT 1"):
            raise
        raise SparkRestricted(
            f"The Spark Connect server refuses to clone a session: {reason(error)}",
            remedy="run on a server that clones sessions, or give a connection of type spark: the confs of "
            "a commit must not reach other statements. See docs/howto/platforms/restrictions.md.",
        ) from error


def _answers(spark: Any, query: str) -> bool:
    try:
        spark.sql(query).collect()
    except Exception as error:
        if is_lost(error):
            raise
        return False
    return True


def refuses_java(spark: SparkSession) -> bool:
    """Return whether Spark answers queries, but none that calls static methods of Java (:func:`asking_java`).

    A Spark whose catalog names a missing class answers no query at all: that is no refusal.
    """
    return not _answers(spark, JAVA_QUERY) and _answers(spark, "SELECT upper('a') FROM VALUES (0)")


def checkpointed(rows: DataFrame) -> DataFrame:
    """Return rows that the next job computes and stores, in a local checkpoint.

    The checkpoint is serialised: a million rows as objects keep the garbage collector busy for longer than it
    takes to write and read them.
    """
    return rows.localCheckpoint(eager=False, storageLevel=StorageLevel.MEMORY_AND_DISK)


def restriction(spark: SparkSession) -> SparkRestricted | None:
    """Return why a Spark that works cannot keep rows that it computed; None if it can, or does not work.

    A job that failed without a known reason asks this. Nothing is computed, unless Spark refuses.
    """
    try:
        spark.range(1).localCheckpoint(eager=False)
    except Exception as error:  # noqa: BLE001 - the job's own error is the better one
        try:
            spark.range(1).collect()
        except Exception:  # noqa: BLE001 - Spark does not work at all
            return None
        return SparkRestricted(
            f"This Spark refuses DataFrame.localCheckpoint, by which a commit writes the rows that were "
            f"checked: {reason(error)}",
            remedy="run on a Spark that allows it: see docs/howto/platforms/restrictions.md.",
        )
    return None


def require_clones(spark: Any) -> None:
    """Check that a Spark Connect session can be cloned.

    :raises VersionsUnsupported: PySpark's client is too old for it
    """
    if not hasattr(spark, "cloneSession"):
        raise VersionsUnsupported(
            f"The client of Spark Connect in pyspark {pyspark.__version__} cannot clone a session.",
            remedy=f"install pyspark and pyspark-client {CONNECT_SINCE} or newer here and on the server, or "
            "give a connection of type spark.",
        )


def _send_plain_strings() -> None:
    """Make casts send plain strings.

    PySpark's client names the collation of each string type, and Spark distinguishes a named collation from
    the plain type. Tables created this way would have ``string collate UTF8_BINARY`` in their schema, which
    other readers don't support. The change affects the whole process; elsewhere both types mean the same.

    :raises EnvironmentNotReady: the installed PySpark lacks the function to replace
    """
    module, name = _TYPES
    try:
        expressions: Any = import_module(module)
        to_message = getattr(expressions, name)
    except (ImportError, AttributeError) as error:
        raise EnvironmentNotReady(
            f"The installed PySpark has no {module}.{name}. Over Spark Connect, the strings of new tables "
            "would have a collation, which other readers do not support.",
            remedy="install the release of pyspark-client that this package requires.",
        ) from error
    if getattr(to_message, "is_plain", False):
        return

    def plain(data_type: Any) -> Any:
        return _without_collation(to_message(data_type))

    plain.is_plain = True  # type: ignore[attr-defined]
    setattr(expressions, name, plain)


def _without_collation(message: Any) -> Any:
    """Remove the default collation from a type as Spark Connect sends it."""
    kind = message.WhichOneof("kind")
    if kind == "string" and message.string.collation == "UTF8_BINARY":
        message.string.ClearField("collation")
    elif kind == "array":
        _without_collation(message.array.element_type)
    elif kind == "map":
        _without_collation(message.map.key_type)
        _without_collation(message.map.value_type)
    elif kind == "struct":
        for field in message.struct.fields:
            _without_collation(field.data_type)
    return message


def hide_statements(session: SparkSession) -> None:
    """Hide a session's statements, because they may hold secrets.

    A Spark Connect server shows the text of each request, including reader options, on its page and in its
    event log.

    :raises SparkRestricted: the session refuses the conf
    """
    if is_connect(session):
        require_confs(session, {_REDACTION: _ALL})


def confs_of_whole_plans(session: SparkSession) -> dict[str, str]:
    """Return the confs with which a session shows its plans without hiding a part of them."""
    return {_REDACTION: _NOTHING} if effective(session, [_REDACTION]).get(_REDACTION) else {}


def analysed(frame: DataFrame) -> DataFrame:
    """Return a DataFrame whose plan Spark has analysed, so that its errors are raised here.

    A classic session analyses a plan at creation; a Spark Connect session only at the first request.
    """
    _ = frame.columns
    return frame


def close(session: Any) -> None:
    """Release a session on a Spark Connect server, and close the connection to it.

    If the server is unreachable, or does not answer within :data:`_RELEASED` seconds, it releases the session
    after a timeout of the server.
    """
    # stop() could wait forever while it holds a lock that every other session needs.
    releasing = threading.Thread(target=_request, args=(session, "release_session"), daemon=True)
    releasing.start()
    releasing.join(_RELEASED)
    session.release_session_on_close = False
    session.stop()


def end(spark: Any) -> None:
    """Interrupt all statements of a Spark Connect session and of its clones, and release these sessions.

    They accept no more requests, so the next statement of a job that continues fails.
    """
    with _opening:
        clones = list(_open.get(spark.session_id, ()))
        _ended.add(spark)
    sessions = [spark, *clones]
    interrupted = [_request(session, "interrupt_all") for session in sessions]
    if any(interrupted):
        # If a session is released before the server has registered its interruption, the server keeps it.
        time.sleep(_NOTED)
    for session in sessions:
        # stop() waits for a lock that the interrupted thread may hold.
        _request(session, "release_session")


def _request(session: Any, method_name: str) -> Any:
    try:
        return getattr(session.client, method_name)()
    except Exception as error:  # noqa: BLE001 - the other sessions must be released as well
        log.warning("%s of a session failed: %s: %s", method_name, type(error).__name__, error)
        return None


def is_lost(error: BaseException) -> bool:
    """Return whether an error means that a Spark Connect server was lost, or has dropped the session.

    Checks the text, because the engine imports no module of Spark Connect.
    """
    # PySpark passes some gRPC errors through unchanged.
    code = getattr(error, "getGrpcStatusCode", None) or getattr(error, "code", None)
    if callable(code) and getattr(code(), "name", "") == "UNAVAILABLE":
        return True
    text = str(error)
    return type(error).__module__.startswith(("pyspark.", "grpc")) and any(part in text for part in _LOST)
