"""Sessions of our own: neither their confs nor their views are seen by anybody else's."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from delta_cdc.sql import string

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

#: Delta tells here which version a session committed last.
LAST_COMMIT = "spark.databricks.delta.lastCommitVersionInSession"

_CONFS = {
    "spark.sql.session.timeZone": "UTC",
    # ${env:…} in a key, a column name or a path is text, nothing to fill in.
    "spark.sql.variable.substitute": "false",
    # Every value that depends on another doubles what Spark infers: dozens of columns would take it minutes.
    "spark.sql.constraintPropagation.enabled": "false",
    # The batch is checkpointed before the MERGE; Delta would write it out a second time.
    "spark.databricks.delta.merge.materializeSource": "none",
}

#: With these, a change feed can be read with the columns of an older version. Over Connect a plan is analysed
#: with every use, so they have to stay.
SCHEMA_AS_OF = "spark.databricks.delta.changeDataFeed.allowTimeTravelOptionsForSchema"
_CONNECT_CONFS = {
    SCHEMA_AS_OF: "true",
    "spark.databricks.delta.changeDataFeed.defaultSchemaModeForColumnMappingTable": "legacy",
}

#: What was cloned from a session of Spark Connect and is open, by that session's id.
_open: dict[str, list[SparkSession]] = {}
#: The ids of those that were ended.
_ended: set[str] = set()
_opening = threading.Lock()

#: Seconds that a server is given to note that it has interrupted something.
_NOTED = 1.0
#: Seconds that a server is given to forget a session.
_RELEASED = 15.0

#: What an error says where a server of Spark Connect, or what it knew of a session, is gone.
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
    """Tell whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def asking_java(*calls: tuple[str, ...]) -> str:
    """Return the query that gives what static methods of the driver's JVM return, over Connect as well.

    The row to which they are added stands in the query, so that the optimizer works it out. With no such row,
    a task would, in an executor.

    :param calls: class, method, and the texts that it takes. What is null comes back as the text ``null``
    """
    called = ", ".join(f"java_method({', '.join(map(string, call))})" for call in calls)
    return f"SELECT {called} FROM VALUES (0)"


#: Asks Delta's own JAR for its version; a table is not needed.
DELTA_VERSION_QUERY = asking_java(("io.delta.package", "VERSION"))


def delta_version(spark: SparkSession) -> str:
    """Return the version of the Delta that a session runs with.

    :raises Exception: Spark's own error, where there is no Delta on its class path
    """
    return str(spark.sql(DELTA_VERSION_QUERY).collect()[0][0])


@contextmanager
def private_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Give a session of our own with ``spark``'s runtime confs and UTC as its time zone.

    The seal's confs would leak into every other commit of a shared session (auto-compaction, ALTER).
    Over Connect, the server forgets it at the end, whatever happened.
    """
    if is_connect(spark):
        with _cloned(spark) as session:
            _set(session, {**_CONFS, **_CONNECT_CONFS})
            yield session
        return
    session = spark.newSession()
    known = dict(session.conf.getAll)
    # newSession forgets runtime confs.
    for key, value in dict(spark.conf.getAll).items():
        # Names that Spark does not know are a user's own, as those of a file system: they count as well.
        settable = session.conf.isModifiable(key) or not key.startswith("spark.")
        if key != LAST_COMMIT and known.get(key) != value and settable:
            session.conf.set(key, value)
    _set(session, _CONFS)
    yield session


def _set(session: SparkSession, confs: dict[str, str]) -> None:
    for key, value in confs.items():
        session.conf.set(key, value)


@contextmanager
def _cloned(spark: Any) -> Iterator[SparkSession]:
    """Clone a session of Spark Connect, and make it the active one of this thread meanwhile."""
    _send_plain_strings()
    session = spark.cloneSession()
    # A clone has its own client, with PySpark's own patience: more than ten minutes.
    session.client.set_retry_policies(spark.client.get_retry_policies())
    with _opening:
        siblings = _open.setdefault(spark.session_id, [])
        siblings.append(session)
        is_ended = spark.session_id in _ended
    if is_ended:
        # Cloned just before, so that nobody who ended the others knew of it.
        end(session)
    active = type(session)._active_session
    before = getattr(active, "session", None)
    # Types are parsed from text by whichever session is active.
    active.session = session
    try:
        yield session
    finally:
        active.session = before
        with _opening:
            siblings.remove(session)
            if not siblings:
                _open.pop(spark.session_id, None)
        close(session)


def _send_plain_strings() -> None:
    """Let casts say string where they mean it.

    PySpark's client names the collation of each string type, and for Spark one that is named is another type
    than the plain one: ``string collate UTF8_BINARY`` would stand in the schema of tables that are made so,
    and other readers don't know it. Holds for the whole process: it is what a string means everywhere else.
    """
    expressions: Any = import_module("pyspark.sql.connect.expressions")
    send = getattr(expressions, "pyspark_types_to_proto_types", None)
    if send is None or getattr(send, "is_plain", False):
        # Another release of PySpark may have it elsewhere; a table with such a type is right all the same.
        return

    def plain(data_type: Any) -> Any:
        return _without_collation(send(data_type))

    plain.is_plain = True  # type: ignore[attr-defined]
    expressions.pyspark_types_to_proto_types = plain


def _without_collation(message: Any) -> Any:
    """Take the default collation out of a type as Spark Connect sends it."""
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
    """Keep what a session runs out of sight, where statements hold secrets.

    A server of Spark Connect shows the text of each request, options of readers among it, on its page and in
    its event log.
    """
    if is_connect(session):
        session.conf.set("spark.sql.redaction.string.regex", "(?s).+")


def analysed(frame: DataFrame) -> DataFrame:
    """Return a DataFrame whose plan Spark has looked at, so that what is wrong with it is raised here.

    A classic session looks when it is made; one of Spark Connect not before it is asked for something.
    """
    _ = frame.columns
    return frame


def close(session: Any) -> None:
    """Let a server of Spark Connect forget a session, and close the connection to it.

    Best effort: a server that cannot be reached, or does not answer for :data:`_RELEASED` seconds, forgets by
    its own clock.
    """
    # Not by stop(): it would wait without an end, with a lock that every other session needs.
    releasing = threading.Thread(target=_asked, args=(session, "release_session"), daemon=True)
    releasing.start()
    releasing.join(_RELEASED)
    session.release_session_on_close = False
    session.stop()


def end(spark: Any) -> None:
    """Interrupt what a session of Spark Connect, and all that were cloned from it, are running.

    They take nothing more: the next statement of a job that goes on fails.
    """
    with _opening:
        clones = list(_open.get(spark.session_id, ()))
        _ended.add(spark.session_id)
    sessions = [spark, *clones]
    interrupted = [_asked(session, "interrupt_all") for session in sessions]
    if any(interrupted):
        # A session that is released before the server has noted the end of what ran in it stays on its books.
        time.sleep(_NOTED)
    for session in sessions:
        # Not stop(): it waits for a lock that the interrupted thread may hold.
        _asked(session, "release_session")


def _asked(session: Any, what: str) -> Any:
    try:
        return getattr(session.client, what)()
    except Exception as error:  # noqa: BLE001 - the others have to be told as well
        log.warning("%s of a session failed: %s: %s", what, type(error).__name__, error)
        return None


def is_lost(error: BaseException) -> bool:
    """Tell whether an error says that a server of Spark Connect, or the session there, is gone.

    By text: the engine imports nothing of Spark Connect.
    """
    # PySpark lets some errors of gRPC through as they are.
    code = getattr(error, "getGrpcStatusCode", None) or getattr(error, "code", None)
    if callable(code) and getattr(code(), "name", "") == "UNAVAILABLE":
        return True
    text = str(error)
    return type(error).__module__.startswith(("pyspark.", "grpc")) and any(part in text for part in _LOST)
