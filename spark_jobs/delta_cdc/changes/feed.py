"""Rows of the change feed as Delta's reader gives them.

Vocabulary: a feed row is a *state* a row had before (``delete``, ``update_preimage``) or has after
(``insert``, ``update_postimage``) one commit.
"""

from __future__ import annotations

import hashlib
import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from delta_cdc.errors import ForbiddenConf, SchemaChangeInRange, VersionsExpired, WrongReader
from delta_cdc.sessions import SCHEMA_AS_OF, is_connect
from delta_cdc.sql import PLAN_PREFIX, quote, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

    from delta_cdc.spec import Staging, Step

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
METADATA_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
BEFORE_TYPES = ("delete", "update_preimage")
AFTER_TYPES = ("insert", "update_postimage")

#: The version by which the states of a key are ordered: the row's own, but for the rows of a segment of which
#: only the two ends are read, where it is the segment's last version.
ORDER = f"{PLAN_PREFIX}order"
#: The table's own id of a row, where the changes are read by row tracking.
ROW_ID = f"{PLAN_PREFIX}row_id"

#: Under these, missing files or unreadable schemas give fewer rows instead of an error.
FORBIDDEN_CONFS = (
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.files.ignoreCorruptFiles",
    "spark.databricks.delta.changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled",
)


def refuse_forbidden_confs(session: SparkSession) -> None:
    """Refuse a session in which loss of data would be silent.

    :raises ForbiddenConf: naming the conf
    """
    for name in FORBIDDEN_CONFS:
        if str(session.conf.get(name, "false")).lower() == "true":
            raise ForbiddenConf(
                f"The Spark conf {name} is true: missing or unreadable changes would be skipped in silence.",
                remedy=f"unset {name} for this job; if files are missing, the range must be loaded anew.",
            )


#: With the first, Delta takes ``versionAsOf`` beside ``readChangeFeed`` as "the schema as of"; with the
#: second also on tables with column mapping, which otherwise have that of ``endingVersion``.
_SCHEMA_AS_OF = (
    {SCHEMA_AS_OF: "true"},
    {"spark.databricks.delta.changeDataFeed.defaultSchemaModeForColumnMappingTable": "legacy"},
)
#: The confs belong to the user's session, so two threads of it must not restore each other's.
_CONFS = threading.Lock()


def change_rows(
    session: SparkSession,
    source: str,
    starting_version: int,
    ending_version: int,
    columns: Sequence[str],
    *,
    at: int,
    schema: StructType | None = None,
) -> DataFrame:
    """Read the change feed of ``[starting_version, ending_version]``.

    :param columns: the table's columns as of version ``at``
    :param at: the version whose columns and types the rows have, not before ``ending_version``. Of its own
        accord Delta's reader takes the newest ones, and cannot read what is older than a type that was
        widened or a table that was replaced
    :param schema: of these columns, where it is known: the newest one is taken where it is the same, which
        spares Delta another snapshot
    :return: ``columns`` + ``_change_type`` (string), ``_commit_version`` (long), ``_commit_timestamp``
    :raises WrongReader: where the reader ignored ``readChangeFeed`` and returned the table itself
    :raises SchemaChangeInRange: in a user's own session of Spark Connect, where the schema cannot be chosen,
        and is another one now
    """
    reader = (
        session.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", starting_version)
        .option("endingVersion", ending_version)
    )
    if not is_connect(session):
        rows = _loaded(session, reader, source, at, schema)
        refuse_without_metadata(rows, source)
    elif session.conf.get(SCHEMA_AS_OF, "false") == "true":
        as_of = reader.option("versionAsOf", at)
        rows = as_of.load(source)
        refuse_without_metadata(rows, source)
    else:
        rows = reader.load(source)
        refuse_without_metadata(rows, source)
        _refuse_other_schema(session, rows, source, columns, at)
    return rows.select(*[quote(name) for name in (*columns, *METADATA_COLUMNS)])


def refuse_without_metadata(rows: DataFrame, source: str) -> None:
    """Refuse rows that do not say what happened to them.

    :param source: where they come from, for the message
    :raises WrongReader: the reader ignored ``readChangeFeed``, or the table holds no change rows
    """
    missing = [name for name in METADATA_COLUMNS if name not in rows.columns]
    if missing:
        raise WrongReader(
            f"Reading the change feed of {source} gave no column {', '.join(missing)}: the reader ignored "
            "readChangeFeed.",
            remedy="run on Spark with Delta Lake's own reader; other engines return the whole table here.",
        )


def _loaded(
    session: SparkSession, reader: DataFrameReader, source: str, at: int, schema: StructType | None
) -> DataFrame:
    """Load with the newest schema where that is the one as of a version, else as of that version."""
    if schema is not None:
        try:
            rows = reader.load(source)
        except Exception as error:
            if "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE" not in str(error):
                raise
        else:
            now = [(field.name, field.dataType) for field in rows.drop(*METADATA_COLUMNS).schema]
            if now == [(field.name, field.dataType) for field in schema]:
                return rows
    return _loaded_as_of(session, reader, source, at)


def _loaded_as_of(session: SparkSession, reader: DataFrameReader, source: str, at: int) -> DataFrame:
    """Load with the schema as of a version. Delta fixes it here, so the confs are needed no longer."""
    confs: dict[str, str] = {}
    for more in _SCHEMA_AS_OF:
        confs |= more
        try:
            with _CONFS, _conf(session, confs):
                return reader.option("versionAsOf", at).load(source)
        except Exception as error:
            # Column mapping: only then the second conf is touched.
            if "DELTA_ILLEGAL_OPTION" not in str(error) or more is _SCHEMA_AS_OF[-1]:
                raise
    raise AssertionError("every attempt returns or raises")


@contextmanager
def _conf(session: SparkSession, confs: Mapping[str, str]) -> Iterator[None]:
    before = {name: session.conf.get(name, None) for name in confs}
    for name, value in confs.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)


def _refuse_other_schema(
    session: SparkSession, rows: DataFrame, source: str, columns: Sequence[str], at: int
) -> None:
    """Over Connect a plan is analysed with every use, so no conf can be set around that.

    A session of ours has it set for good (:mod:`delta_cdc.sessions`); of a user's it is not ours to set.
    """
    then = {field.name: field.dataType for field in snapshot_rows(session, source, at, columns).schema}
    now = {field.name: field.dataType for field in rows.schema}
    other = [name for name in columns if now.get(name) != then[name]]
    if other:
        raise SchemaChangeInRange(
            f"The change feed of {source} can only be read with a schema newer than that of version {at}: "
            f"{', '.join(other)} changed since.",
            remedy="read it with a Spark session that is not remote, or with a later ending_version.",
        )


def snapshot_rows(
    session: SparkSession, source: str, version: int, columns: Sequence[str], staging: Staging | None = None
) -> DataFrame:
    """Read the table as of ``version``, or the staged copy of that snapshot."""
    uri, at = (staging.uri, staging.version) if staging is not None else (source, version)
    return (
        session.read.format("delta")
        .option("versionAsOf", at)
        .load(uri)
        .select(*[quote(name) for name in columns])
    )


def commit_timestamp(session: SparkSession, source: str, version: int) -> Column:
    """Return ``version``'s commit timestamp as a literal, the one the change feed gives its rows.

    History is read newest first, so the look-back doubles until the version is in it.
    """
    from pyspark.sql import functions as F

    limit = 16
    while True:
        history = session.sql(f"DESCRIBE HISTORY {table(source)} LIMIT {limit}")
        rows = history.select("version", F.unix_micros("timestamp").alias("micros")).collect()
        for row in rows:
            if row["version"] == version:
                return F.timestamp_micros(F.lit(row["micros"]))
        if len(rows) < limit:
            raise VersionsExpired(
                f"Version {version} of {source} has left its history, so its commit time is unknown.",
                remedy="run with a newer ending_version, or use sequence_by='_commit_version'.",
            )
        limit *= 8


def changed_source(session: SparkSession, source: str, step: Step) -> str | None:
    """Say why the source is not the table that was planned for; None where it still is.

    Between planning and reading, a table can be dropped and made again at the same place. What tells them
    apart is the commit file at the end of the range, by its hash.
    """
    if step.staging is not None or not step.source_commit_hash or step.kind in ("adopt", "reseal"):
        # No rows are read, and the watermark may be older than the source's log.
        return None
    # The reader takes its path for a pattern.
    folder = re.sub(r"([\\*?\[\]{}^,])", r"\\\1", source.rstrip("/"))
    path = f"{folder}/_delta_log/{step.at:020d}.json"
    try:
        content = session.read.format("binaryFile").load(path).select("content").collect()
    except Exception as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        content = []
    if content and hashlib.sha256(content[0]["content"]).hexdigest() == step.source_commit_hash:
        return None
    return f"version {step.at} of {source} is not the one planned for: the source was made anew"


def is_before() -> Column:
    """Tell whether a feed row is a state before its commit."""
    from pyspark.sql import functions as F

    return F.col(CHANGE_TYPE).isin(*BEFORE_TYPES)


def is_after() -> Column:
    """Tell whether a feed row is a state after its commit."""
    from pyspark.sql import functions as F

    return F.col(CHANGE_TYPE).isin(*AFTER_TYPES)
