"""Sessions of our own: neither their confs nor their views are seen by anybody else's."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

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
_opening = threading.Lock()

#: Seconds that a server is given to note that it has interrupted something.
_NOTED = 1.0

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

    Best effort: a server that cannot be reached forgets by its own clock.
    """
    # A clone lacks the attribute, which PySpark looks at.
    session.release_session_on_close = True
    session.stop()


def end(spark: Any) -> None:
    """Interrupt what a session of Spark Connect, and all that were cloned from it, are running.

    They take nothing more: the next statement of a job that goes on fails.
    """
    with _opening:
        clones = list(_open.get(spark.session_id, ()))
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
        log.warning("A session could not be interrupted: %s", error)
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
