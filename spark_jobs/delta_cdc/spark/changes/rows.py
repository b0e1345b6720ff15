"""Read the change rows of a range, each part by its read method, as one DataFrame shape.

Every read method yields the table's columns, the feed's metadata columns and :data:`ORDER`, the version that
orders the states of a key. This is the commit's version; but in a part of which only the states at both ends
are known, it is the part's end version for every row. Such a row is a transition between two states like any
other row, so a union combines the parts, and the queries net over all parts at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from delta_cdc.core import codec
from delta_cdc.core.reserved_columns import METADATA_COLUMNS, ORDER
from delta_cdc.core.sql import quote
from delta_cdc.spark.changes import feed, manifests
from delta_cdc.spark.changes.queries import drop_carry_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.steps import ReadRange, Staging


def change_rows(
    session: SparkSession,
    source: str,
    read_ranges: Sequence[ReadRange],
    columns: Sequence[str],
    *,
    at: int,
    manifests_uri: str = "",
    tracking: Sequence[str] = (),
    where: str | None = None,
) -> DataFrame:
    """Read the changes of a range.

    :param source: location of the table
    :param read_ranges: the parts to read, in order; empty gives no rows
    :param columns: the table's columns as of version ``at``
    :param at: the end of the range, which determines the columns
    :param manifests_uri: folder of the file manifests; see :mod:`delta_cdc.delta_log.file_manifests`
    :param tracking: the columns of row tracking (:mod:`delta_cdc.core.reserved_columns`), as far as they
        are needed; every part must then be read by row tracking
    :param where: the predicate by which the caller filters the states that this returns. A read method may
        leave out other states early; of a row that leaves the filter, the change is then a delete
    :return: ``columns``, ``_change_type`` (string), ``_commit_version`` (long), ``_commit_timestamp``
        (timestamp), :data:`ORDER` (long), and ``tracking`` (long)
    """
    parts = []
    for read_range in read_ranges:
        if read_range.by_manifest:
            rows = manifests.change_rows(
                session, read_range, manifests_uri, columns, tracking=tracking, where=where
            )
        elif read_range.needs_manifest:
            versions = f"{read_range.starting_version}-{read_range.ending_version}"
            raise ValueError(f"the file manifest of versions {versions} was not written")
        else:
            starting, ending = read_range.starting_version, read_range.ending_version
            rows = feed.change_rows(session, source, starting, ending, columns, at=at)
            rows = rows.withColumn(ORDER, F.col(METADATA_COLUMNS[1]))
        parts.append(drop_carry_over(rows, columns) if read_range.compare else rows)
    if not parts:
        nothing = feed.snapshot_rows(session, source, at, columns).limit(0)
        return _as_changes(nothing, tracking)
    return _united(parts)


def _united(parts: list[DataFrame]) -> DataFrame:
    """Return the rows of all parts, by a tree of unions: a Spark Connect server refuses deep plans."""
    while len(parts) > 1:
        pairs = [left.union(right) for left, right in zip(parts[::2], parts[1::2], strict=False)]
        parts = [*pairs, *parts[len(pairs) * 2 :]]
    return parts[0]


def no_rows(session: SparkSession, schema: str, *, tracking: Sequence[str] = ()) -> DataFrame:
    """Return an empty DataFrame with the columns of :func:`change_rows`. Nothing is read.

    :param schema: the table's columns as in Delta's log (JSON), so that an old version needs no time travel
    """
    return _as_changes(session.createDataFrame([], StructType.fromJson(codec.parsed(schema))), tracking)


def _as_changes(nothing: DataFrame, tracking: Sequence[str]) -> DataFrame:
    return nothing.select(
        "*",
        F.lit(None).cast("string").alias(METADATA_COLUMNS[0]),
        F.lit(None).cast("bigint").alias(METADATA_COLUMNS[1]),
        # The name "timestamp" would be another type in a session whose timestampType is TIMESTAMP_NTZ.
        F.lit(None).cast(TimestampType()).alias(METADATA_COLUMNS[2]),
        F.lit(None).cast("bigint").alias(ORDER),
        *[F.lit(None).cast("bigint").alias(name) for name in tracking],
    )


def staged_rows(session: SparkSession, staging: Staging, columns: Sequence[str]) -> DataFrame:
    """Return the change rows of a staged batch, with the columns of :func:`change_rows`.

    :param columns: the source's columns as of the batch's end
    """
    rows = session.read.format("delta").option("versionAsOf", staging.version).load(staging.uri)
    feed.refuse_without_metadata(rows, staging.uri)
    order = F.col(ORDER) if ORDER in rows.columns else F.col(METADATA_COLUMNS[1])
    return rows.select(*[quote(name) for name in (*columns, *METADATA_COLUMNS)], order.alias(ORDER))
