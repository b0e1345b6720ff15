"""Read the change rows of a range from data files, through its file manifest, without the change feed.

A file manifest (:mod:`delta_cdc.delta_log.file_manifests`) is a separate Delta table that lists files of the
source; its partition column :data:`SIDES` shows when each file was added and removed. Delta reads the files,
with deletion vectors, column mapping and row ids.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_cdc.core.errors import ReadMethodUnavailable
from delta_cdc.core.manifest_columns import (
    AFTER_MARK,
    BEFORE_MARK,
    CHANGED_MARK,
    DELETED_MARK,
    INSERTED_MARK,
    MARKS,
    SIDE_TIME,
    SIDE_VERSION,
    SIDES,
    location,
)
from delta_cdc.core.reserved_columns import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    METADATA_COLUMNS,
    ORDER,
    ROW_ID,
    ROW_VERSION,
)
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.core.storage_options import hadoop_uri
from delta_cdc.spark.changes import feed, states

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.steps import ReadRange

#: Ends the text of the error that Spark raises for rows that share a row id.
SHARED_REMEDY = "read them by another method, and inform the table's writers: its row ids are not unique."

_SIDE = f"{PLAN_PREFIX}side"
_BEFORE, _AFTER = f"{PLAN_PREFIX}before", f"{PLAN_PREFIX}after"
_N_BEFORE, _N_AFTER = f"{PLAN_PREFIX}n_before", f"{PLAN_PREFIX}n_after"
_TIME, _ROW, _TYPE, _STATE = (f"{PLAN_PREFIX}{name}" for name in ("time", "row", "type", "state"))


def change_rows(
    session: SparkSession,
    read_range: ReadRange,
    manifests_uri: str,
    columns: Sequence[str],
    *,
    tracking: Sequence[str] = (),
    where: str | None = None,
) -> DataFrame:
    """Read the change rows of a range from its file manifest.

    ``row_tracking`` matches the rows before and after each commit (in a net range: before the first and after
    the last commit) by row id. A row on one side only was inserted or deleted. A row on both sides was
    updated if its row commit version differs; otherwise it only moved to another file. The other read methods
    treat rows of added files as inserted and rows of removed files as deleted; change files contain the
    change type of their rows.

    The order of all rows of a net range is its last version. Their commit is that of the row's last change if
    row tracking records it, otherwise the last version.

    :param columns: the table's columns as of the end of the range for which the manifest was written
    :param tracking: :data:`ROW_ID` and :data:`ROW_VERSION`, as far as they are needed; only row tracking has
        them
    :param where: see :func:`delta_cdc.spark.changes.rows.change_rows`
    :return: ``columns``, ``_change_type`` (string), ``_commit_version`` (long), ``_commit_timestamp``
        (timestamp), :data:`ORDER` (long), and ``tracking`` (long)
    """
    if tracking and read_range.method != "row_tracking":
        raise ValueError(f"{read_range.method} knows no row ids")
    manifest = session.read.format("delta").load(hadoop_uri(location(manifests_uri, read_range)))
    marks = str(manifest.schema[SIDES].metadata.get(MARKS, ""))
    output_columns = [quote(name) for name in (*columns, *METADATA_COLUMNS, ORDER)] + [*tracking]
    if read_range.method == "change_files":
        return _feed_rows(manifest, columns, marks).select(*output_columns)
    file_rows = _read(manifest, read_range, columns)
    if read_range.method == "row_tracking" and not read_range.net:
        # Spark moves no filter before the matching of rows. The states of a row that only moved to another
        # file are equal, so the filter takes both or none. In a net range, the state after a change has also
        # the version of that change.
        file_rows = states.filtered(file_rows, where, (SIDES, ROW_ID, ROW_VERSION))
    has_added_or_removed = marks.strip(BEFORE_MARK + AFTER_MARK) != "" or not marks
    parts = (
        [_added_or_removed(_part(file_rows, "[id]", marks), read_range, columns)]
        if has_added_or_removed
        else []
    )
    if BEFORE_MARK in marks:
        parts.append(_matched(_part(file_rows, "[+-]", marks), read_range, columns))
    rows = parts[0].select(*output_columns)
    return rows.union(parts[1].select(*output_columns)) if len(parts) > 1 else rows


def _read(manifest: DataFrame, read_range: ReadRange, columns: Sequence[str]) -> DataFrame:
    names = [quote(name) for name in (*columns, SIDES)]
    if read_range.method != "row_tracking":
        null_id = F.lit(None).cast("bigint")
        return manifest.select(*names, null_id.alias(ROW_ID), null_id.alias(ROW_VERSION))
    return manifest.select(*names, *feed.tracked(manifest))


def _feed_rows(manifest: DataFrame, columns: Sequence[str], marks: str) -> DataFrame:
    """Return the rows of the change data feed."""
    names = [quote(name) for name in columns]
    if CHANGED_MARK in marks:
        names.append(CHANGE_TYPE)
    if SIDE_VERSION in manifest.columns:
        version_and_time = (F.col(SIDE_VERSION).alias(ORDER), F.col(SIDE_TIME).alias(_TIME))
        file_rows = manifest.select(*names, F.col(SIDES).alias(_SIDE), *version_and_time)
    else:
        file_rows = _part(manifest.select(*names, SIDES), f"[{marks}]", marks)
    return file_rows.select(
        *[quote(name) for name in columns],
        _kind(marks).alias(CHANGE_TYPE),
        F.col(ORDER).alias(COMMIT_VERSION),
        F.timestamp_millis(F.col(_TIME)).alias(COMMIT_TIMESTAMP),
        F.col(ORDER),
    )


def _kind(marks: str) -> Column:
    """Return the change type of a row by the tag of its side."""
    kinds = {CHANGED_MARK: F.col(CHANGE_TYPE), DELETED_MARK: F.lit("delete"), INSERTED_MARK: F.lit("insert")}
    kind = None
    for mark in marks:
        kind = (
            kinds[mark]
            if kind is None
            else F.when(F.col(_SIDE).startswith(mark), kinds[mark]).otherwise(kind)
        )
    return F.lit(None).cast("string") if kind is None else kind


def _part(file_rows: DataFrame, marks: str, present: str) -> DataFrame:
    """Return each row once per matching side of its file, with the side, its version (ORDER) and its time.

    :param marks: the tags of the sides to return, as a regular expression
    :param present: all tags of the file manifest
    """
    column_names = [quote(name) for name in file_rows.columns if name != SIDES]
    side = F.col(_SIDE)
    is_all = not re.sub(marks, "", present)
    # The filter on the partition column skips files without such a side.
    rows = file_rows if is_all else file_rows.where(F.col(SIDES).rlike(marks))
    rows = rows.select(*column_names, F.explode(F.split(SIDES, ",")).alias(_SIDE))
    return (rows if is_all else rows.where(side.rlike(f"^{marks}"))).select(
        *column_names,
        side,
        F.regexp_extract(side, "[0-9]+", 0).cast("bigint").alias(ORDER),
        F.substring_index(side, "@", -1).cast("bigint").alias(_TIME),
    )


def _added_or_removed(file_rows: DataFrame, read_range: ReadRange, columns: Sequence[str]) -> DataFrame:
    """Return the rows of added files as inserted, and those of removed files as deleted."""
    inserted = F.col(_SIDE).startswith(INSERTED_MARK)
    version, time = _commit(read_range, F.when(inserted, F.col(ROW_VERSION)))
    return file_rows.select(
        *[quote(name) for name in columns],
        F.when(inserted, "insert").otherwise("delete").alias(METADATA_COLUMNS[0]),
        version.alias(COMMIT_VERSION),
        F.timestamp_millis(time).alias(COMMIT_TIMESTAMP),
        F.col(ORDER),
        F.col(ROW_ID),
        F.col(ROW_VERSION),
    )


def _matched(file_rows: DataFrame, read_range: ReadRange, columns: Sequence[str]) -> DataFrame:
    """Return the changes found by matching row ids before and after."""
    state = F.struct(
        *[F.col(quote(name)).alias(f"{PLAN_PREFIX}{index}") for index, name in enumerate(columns)],
        F.col(ROW_VERSION).alias(ROW_VERSION),
    )
    before, after = F.col(_SIDE).startswith(BEFORE_MARK), F.col(_SIDE).startswith(AFTER_MARK)
    # All rows of a net range have one order, and without it a net query by row ids needs no second shuffle.
    by = [ROW_ID] if read_range.net else [ROW_ID, ORDER]
    pairs = file_rows.groupBy(*by).agg(
        *[F.first(name).alias(name) for name in (ORDER, _TIME) if name not in by],
        F.first(F.when(before, state), ignorenulls=True).alias(_BEFORE),
        F.first(F.when(after, state), ignorenulls=True).alias(_AFTER),
        F.count_if(before).alias(_N_BEFORE),
        F.count_if(after).alias(_N_AFTER),
    )
    return _transitions(pairs, read_range, columns)


def _transitions(pairs: DataFrame, read_range: ReadRange, columns: Sequence[str]) -> DataFrame:
    """Return the change rows of pairs (row id, state before, state after)."""
    existed, exists = F.col(_N_BEFORE) > 0, F.col(_N_AFTER) > 0
    versions = [F.col(f"{side}.{ROW_VERSION}") for side in (_BEFORE, _AFTER)]

    def row(kind: str, side: str) -> Column:
        return F.struct(F.lit(kind).alias(_TYPE), F.col(side).alias(_STATE))

    changes = (
        F.when((F.col(_N_BEFORE) > 1) | (F.col(_N_AFTER) > 1), F.raise_error(_shared(read_range)))
        .when(~existed, F.array(row("insert", _AFTER)))
        .when(~exists, F.array(row("delete", _BEFORE)))
        .when(
            ~versions[0].eqNullSafe(versions[1]),
            F.array(row("update_preimage", _BEFORE), row("update_postimage", _AFTER)),
        )
    )
    version, time = _commit(read_range, versions[1])
    exploded = pairs.select(
        ROW_ID, ORDER, version.alias(COMMIT_VERSION), time.alias(_TIME), F.explode(changes).alias(_ROW)
    )
    change = F.col(_ROW)
    state = change[_STATE]
    return exploded.select(
        *[state[f"{PLAN_PREFIX}{at}"].alias(name) for at, name in enumerate(columns)],
        change[_TYPE].alias(METADATA_COLUMNS[0]),
        F.col(COMMIT_VERSION),
        F.timestamp_millis(F.col(_TIME)).alias(COMMIT_TIMESTAMP),
        F.col(ORDER),
        F.col(ROW_ID),
        state[ROW_VERSION].alias(ROW_VERSION),
    )


def _commit(read_range: ReadRange, row_version: Column) -> tuple[Column, Column]:
    """Return version and time (epoch milliseconds) of a pair's last change."""
    if not read_range.net or read_range.method != "row_tracking":
        return F.col(ORDER), F.col(_TIME)
    # RESTORE brings back rows whose row commit version is older than the range.
    versions, times = zip(*read_range.timestamps, strict=True)
    times_by_version = F.map_from_arrays(F.lit(list(versions)), F.lit(list(times)))
    time = F.try_element_at(times_by_version, row_version)
    return F.when(time.isNotNull(), row_version).otherwise(F.col(ORDER)), F.coalesce(time, F.col(_TIME))


def _shared(read_range: ReadRange) -> Column:
    return F.concat(
        F.lit(
            f"{ReadMethodUnavailable.__name__}: Versions {read_range.starting_version}-"
            f"{read_range.ending_version} cannot be read by row_tracking: the row id "
        ),
        F.coalesce(F.col(ROW_ID).cast("string"), F.lit("NULL")),
        F.lit(" stands for several rows at version "),
        F.col(ORDER).cast("string"),
        F.lit(f". Remedy: {SHARED_REMEDY}"),
    )
