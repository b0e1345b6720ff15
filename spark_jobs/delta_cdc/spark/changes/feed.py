"""Read rows of the change feed with Delta's reader.

A feed row is the *state* of a row before one commit (``delete``, ``update_preimage``) or after it
(``insert``, ``update_postimage``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from delta_cdc.core.errors import (
    ForbiddenConf,
    SchemaChangeInRange,
    SparkRestricted,
    VersionsExpired,
    WrongReader,
)
from delta_cdc.core.reserved_columns import (
    AFTER_TYPES,
    BEFORE_TYPES,
    CHANGE_TYPE,
    METADATA_COLUMNS,
    ROW_ID,
    ROW_VERSION,
)
from delta_cdc.core.sql import quote, table
from delta_cdc.spark.sealed.commit_files import commit_hash
from delta_cdc.spark.sessions import SCHEMA_AS_OF, confs_for_a_moment, is_connect, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.steps import Staging, Step

_SKIPS = "missing or unreadable changes would be skipped in silence"
_MIXES = "until Delta 4.4.1, a log on S3 is then read with files of folders inside and beside it"
#: The confs that give other rows instead of an error, and how.
FORBIDDEN_CONFS = {
    "spark.sql.files.ignoreMissingFiles": _SKIPS,
    "spark.sql.files.ignoreCorruptFiles": _SKIPS,
    "spark.databricks.delta.changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled": _SKIPS,
    # A conf of Hadoop: given at the start of Spark, and in a session.
    "spark.hadoop.delta.enableFastS3AListFrom": _MIXES,
    "delta.enableFastS3AListFrom": _MIXES,
}


def refuse_forbidden_confs(session: SparkSession) -> None:
    """Refuse a session whose confs would hide loss of data.

    :raises ForbiddenConf: names the conf
    """
    for name, consequence in FORBIDDEN_CONFS.items():
        if str(value_of(session, name)).lower() == "true":
            raise ForbiddenConf(
                f"The Spark conf {name} is true: {consequence}.",
                remedy=f"unset {name} for this job; if files are missing, the range must be loaded again.",
            )


def change_rows(
    session: SparkSession,
    source: str,
    starting_version: int,
    ending_version: int,
    columns: Sequence[str],
    *,
    at: int,
) -> DataFrame:
    """Read the change feed of ``[starting_version, ending_version]``.

    :param columns: the table's columns as of version ``at``
    :param at: the version whose columns and types the rows get, at least ``ending_version``, whatever the
        session's own schema mode is. By default, Delta's reader uses the newest ones, and then cannot read
        older changes after a type was widened or the table was replaced
    :return: ``columns`` + ``_change_type`` (string), ``_commit_version`` (long), ``_commit_timestamp``
    :raises WrongReader: the reader ignored ``readChangeFeed`` and returned the table itself
    :raises SchemaChangeInRange: the schema has changed since, and it cannot be chosen in this session: a
        user's Spark Connect session, or one that refuses the confs for it
    """
    reader = (
        session.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", starting_version)
        .option("endingVersion", ending_version)
    )
    rows = _load_as_of(session, reader, source, at)
    if rows is not None:
        refuse_without_metadata(rows, source)
    else:
        rows = reader.load(source)
        refuse_without_metadata(rows, source)
        _refuse_other_schema(session, rows, source, columns, at)
    return rows.select(*[quote(name) for name in (*columns, *METADATA_COLUMNS)])


def refuse_without_metadata(rows: DataFrame, source: str) -> None:
    """Refuse rows without a change type.

    :param source: origin of the rows, for the message
    :raises WrongReader: the reader ignored ``readChangeFeed``, or the table holds no change rows
    """
    missing = [name for name in METADATA_COLUMNS if name not in rows.columns]
    if missing:
        raise WrongReader(
            f"Reading the change feed of {source} gave no column {', '.join(missing)}: the reader ignored "
            "readChangeFeed.",
            remedy="run on Spark with Delta Lake's own reader; other engines return the whole table here.",
        )


def _load_as_of(session: SparkSession, reader: DataFrameReader, source: str, at: int) -> DataFrame | None:
    """Load with the schema as of a version; None if the session cannot choose it.

    The session gets the confs for the moment of the load, in which Delta resolves the schema. Over Connect,
    each use of a DataFrame analyses its plan again, so the session must have them for good: the engine's own
    do (:mod:`delta_cdc.spark.sessions`), and a user's session is not touched.
    """
    confs = SCHEMA_AS_OF
    if is_connect(session):
        if any(value_of(session, name) != value for name, value in confs.items()):
            return None
        confs = {}
    try:
        with confs_for_a_moment(session, confs):
            return reader.option("versionAsOf", at).load(source)
    except SparkRestricted:
        return None


def _refuse_other_schema(
    session: SparkSession, rows: DataFrame, source: str, columns: Sequence[str], at: int
) -> None:
    """Refuse rows whose schema differs from that of a version."""
    types_then = {field.name: field.dataType for field in snapshot_rows(session, source, at, columns).schema}
    types_now = {field.name: field.dataType for field in rows.schema}
    changed_columns = [name for name in columns if types_now.get(name) != types_then[name]]
    if changed_columns:
        raise SchemaChangeInRange(
            f"The change feed of {source} can only be read with a schema newer than that of version {at}: "
            f"{', '.join(changed_columns)} changed since.",
            remedy="read it with a Spark session that is not remote and may set "
            f"{' and '.join(SCHEMA_AS_OF)}, or with a later ending_version.",
        )


def snapshot_rows(
    session: SparkSession,
    source: str,
    version: int,
    columns: Sequence[str],
    staging: Staging | None = None,
    *,
    tracking: Sequence[str] = (),
) -> DataFrame:
    """Read the table as of ``version``, or the staged copy of that snapshot.

    :param tracking: :data:`ROW_ID` and :data:`ROW_VERSION`, as far as they are needed
    """
    uri, at = (staging.uri, staging.version) if staging is not None else (source, version)
    rows = session.read.format("delta").option("versionAsOf", at).load(uri)
    return rows.select(*[quote(name) for name in columns], *(tracked(rows, tracking) if tracking else ()))


def tracked(rows: DataFrame, tracking: Sequence[str] = (ROW_ID, ROW_VERSION)) -> list[Column]:
    """Return columns of row tracking of a Delta table that Spark reads."""
    # Not "_metadata.row_id": the table may have a column of the name _metadata.
    metadata = rows.metadataColumn("_metadata")
    names = {ROW_ID: "row_id", ROW_VERSION: "row_commit_version"}
    return [metadata[names[name]].alias(name) for name in tracking]


def commit_timestamp(session: SparkSession, source: str, version: int) -> Column:
    """Return the commit timestamp of ``version`` as a literal, equal to that in the change feed.

    Delta returns history newest first, so the number of read entries grows until it includes the version.
    """
    limit = 16
    while True:
        history = session.sql(f"DESCRIBE HISTORY {table(source)} LIMIT {limit}")
        rows = history.select("version", F.unix_micros("timestamp").alias("micros")).collect()
        for row in rows:
            if row["version"] == version:
                return F.timestamp_micros(F.lit(row["micros"]))
        if len(rows) < limit:
            raise VersionsExpired(
                f"The history of {source} no longer has version {version}, so its commit time is unknown.",
                remedy="run with a newer ending_version, or use sequence_by='_commit_version'.",
            )
        limit *= 8


def changed_source(session: SparkSession, source: str, step: Step) -> str | None:
    """Return why the source is not the table that was planned for; None if it is that table.

    Between planning and reading, a table can be dropped and created again at the same location. The hash of
    the commit file at the end of the range distinguishes the two tables.
    """
    if not step.read.reads_source or step.watermark.commit_hash is None:
        # The source's log may no longer contain the watermark's version.
        return None
    if commit_hash(session, source, step.at) == step.watermark.commit_hash:
        return None
    return f"version {step.at} of {source} is not the one planned for: the source was replaced"


def is_before() -> Column:
    """Return whether a feed row is a state before its commit."""
    return F.col(CHANGE_TYPE).isin(*BEFORE_TYPES)


def is_after() -> Column:
    """Return whether a feed row is a state after its commit."""
    return F.col(CHANGE_TYPE).isin(*AFTER_TYPES)
