"""Change rows of a segment that is read from data files: through its slice, without Delta's change feed.

A slice (:mod:`delta_cdc.log.slices`) is a Delta table of its own that names files of the source; its
partition column :data:`SIDES` tells when each file came and went. Everything about reading the files
(deletion vectors, column mapping, row ids) is Delta's work.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from delta_cdc.changes.feed import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    METADATA_COLUMNS,
    ORDER,
    ROW_ID,
)
from delta_cdc.errors import CaptureUnavailable
from delta_cdc.sql import PLAN_PREFIX, quote
from delta_cdc.storage import hadoop_uri

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from delta_cdc.spec import Segment

#: Partition column of a slice: the sides of a file, separated by commas. Each is a mark (one of those below),
#: the version and, after ``@``, the commit's timestamp in epoch milliseconds.
SIDES = f"{PLAN_PREFIX}sides"
#: The file's rows are the state before, or after, the commit: rows of both sides are matched by row id.
BEFORE_MARK, AFTER_MARK = "-", "+"
#: The file's rows were deleted, or inserted, whatever the other files of the commit hold.
DELETED_MARK, INSERTED_MARK = "d", "i"
#: The file is a change file: its rows say themselves what happened to them.
CHANGED_MARK = "c"
#: Partition columns of a slice of which every file has one side: its version and its time; SIDES is its mark
#: alone then. Taking them out of a text takes as long, per row, as reading the row.
SIDE_VERSION, SIDE_TIME = f"{PLAN_PREFIX}side_version", f"{PLAN_PREFIX}side_time"

#: Where the schema of a slice tells which marks it has: metadata of the field :data:`SIDES`.
MARKS = "delta_cdc.marks"

#: Ends the text of the error for rows that share a row id, which Spark raises.
SHARED_REMEDY = "read them by another capture, and tell the table's writers that its row ids are not unique."

_SIDE, _ROW_VERSION = f"{PLAN_PREFIX}side", f"{PLAN_PREFIX}row_version"
_BEFORE, _AFTER = f"{PLAN_PREFIX}before", f"{PLAN_PREFIX}after"
_N_BEFORE, _N_AFTER = f"{PLAN_PREFIX}n_before", f"{PLAN_PREFIX}n_after"
_TIME, _ROW, _TYPE, _STATE = (f"{PLAN_PREFIX}{name}" for name in ("time", "row", "type", "state"))


def location(slices_uri: str, segment: Segment) -> str:
    """Return where the slice of a segment lies.

    :param slices_uri: folder of the slices
    """
    return f"{slices_uri.rstrip('/')}/{segment.starting_version:020d}-{segment.ending_version:020d}"


def side(mark: str, version: int, timestamp: int) -> str:
    """Return one side of a file as :data:`SIDES` holds it."""
    return f"{mark}{version}@{timestamp}"


def parts_of(one: str) -> tuple[str, str, str]:
    """Return mark, version and timestamp of what :func:`side` made."""
    version, _, timestamp = one[1:].partition("@")
    return one[0], version, timestamp


def change_rows(
    session: SparkSession,
    segment: Segment,
    slices_uri: str,
    columns: Sequence[str],
    *,
    with_row_id: bool = False,
) -> DataFrame:
    """Read the change rows of a segment from its slice.

    ``row_tracking`` matches the rows before and after each commit (of a net segment: before and after all of
    them) by row id: a row that is on one side only was inserted or deleted; one on both sides was updated
    where its row commit version differs, else only carried over. The other captures take the rows of files
    that came as inserted and those of files that went as deleted; rows of change files are what these say.

    The rows of a net segment are ordered by its last version. Their commit is that of the row's last change
    where row tracking knows it, else the last version.

    :param columns: the table's columns as of the end of the range for which the slice was written
    :param with_row_id: also :data:`ROW_ID`; only row tracking has it
    :return: ``columns``, ``_change_type`` (string), ``_commit_version`` (long), ``_commit_timestamp``
        (timestamp), :data:`ORDER` (long), and :data:`ROW_ID` (long) where asked for
    """
    if with_row_id and segment.capture != "row_tracking":
        raise ValueError(f"{segment.capture} knows no row ids")
    slice_ = session.read.format("delta").load(hadoop_uri(location(slices_uri, segment)))
    marks = str(slice_.schema[SIDES].metadata.get(MARKS, ""))
    wanted = [quote(name) for name in (*columns, *METADATA_COLUMNS, ORDER)] + [ROW_ID] * with_row_id
    if segment.capture == "change_files":
        return _fed(slice_, columns, marks).select(*wanted)
    read = _read(slice_, segment, columns)
    told = marks.strip(BEFORE_MARK + AFTER_MARK) != "" or not marks
    parts = [_told(_part(read, "[id]", marks), segment, columns)] if told else []
    if BEFORE_MARK in marks:
        parts.append(_matched(_part(read, "[+-]", marks), segment, columns))
    rows = parts[0].select(*wanted)
    return rows.union(parts[1].select(*wanted)) if len(parts) > 1 else rows


def _read(slice_: DataFrame, segment: Segment, columns: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F

    names = [quote(name) for name in (*columns, SIDES)]
    if segment.capture != "row_tracking":
        nothing = F.lit(None).cast("bigint")
        return slice_.select(*names, nothing.alias(ROW_ID), nothing.alias(_ROW_VERSION))
    # Not "_metadata.row_id": the table may have a column of the name _metadata.
    hidden = slice_.metadataColumn("_metadata")
    row_version = hidden["row_commit_version"].alias(_ROW_VERSION)
    return slice_.select(*names, hidden["row_id"].alias(ROW_ID), row_version)


def _fed(slice_: DataFrame, columns: Sequence[str], marks: str) -> DataFrame:
    """Return the rows of the change data feed."""
    from pyspark.sql import functions as F

    names = [quote(name) for name in columns]
    if CHANGED_MARK in marks:
        names.append(CHANGE_TYPE)
    if SIDE_VERSION in slice_.columns:
        one_each = (F.col(SIDE_VERSION).alias(ORDER), F.col(SIDE_TIME).alias(_TIME))
        read = slice_.select(*names, F.col(SIDES).alias(_SIDE), *one_each)
    else:
        read = _part(slice_.select(*names, SIDES), f"[{marks}]", marks)
    return read.select(
        *[quote(name) for name in columns],
        _kind(marks).alias(CHANGE_TYPE),
        F.col(ORDER).alias(COMMIT_VERSION),
        F.timestamp_millis(F.col(_TIME)).alias(COMMIT_TIMESTAMP),
        F.col(ORDER),
    )


def _kind(marks: str) -> Column:
    """Return what happened to a row by the mark of its side."""
    from pyspark.sql import functions as F

    kinds = {CHANGED_MARK: F.col(CHANGE_TYPE), DELETED_MARK: F.lit("delete"), INSERTED_MARK: F.lit("insert")}
    found = None
    for mark in marks:
        found = (
            kinds[mark]
            if found is None
            else F.when(F.col(_SIDE).startswith(mark), kinds[mark]).otherwise(found)
        )
    return F.lit(None).cast("string") if found is None else found


def _part(read: DataFrame, marks: str, present: str) -> DataFrame:
    """Give each row once per side of its file that has one of some marks: the side, its version as ORDER, and
    its time.

    :param marks: as a regular expression
    :param present: all marks of the slice
    """
    from pyspark.sql import functions as F

    kept = [quote(name) for name in read.columns if name != SIDES]
    one = F.col(_SIDE)
    is_all = not re.sub(marks, "", present)
    # The partition column is asked first: files without such a side are not read.
    rows = read if is_all else read.where(F.col(SIDES).rlike(marks))
    rows = rows.select(*kept, F.explode(F.split(SIDES, ",")).alias(_SIDE))
    return (rows if is_all else rows.where(one.rlike(f"^{marks}"))).select(
        *kept,
        one,
        F.regexp_extract(one, "[0-9]+", 0).cast("bigint").alias(ORDER),
        F.substring_index(one, "@", -1).cast("bigint").alias(_TIME),
    )


def _told(read: DataFrame, segment: Segment, columns: Sequence[str]) -> DataFrame:
    """Return the rows of files as what happened to the files."""
    from pyspark.sql import functions as F

    inserted = F.col(_SIDE).startswith(INSERTED_MARK)
    version, time = _commit(segment, F.when(inserted, F.col(_ROW_VERSION)))
    return read.select(
        *[quote(name) for name in columns],
        F.when(inserted, "insert").otherwise("delete").alias(METADATA_COLUMNS[0]),
        version.alias(COMMIT_VERSION),
        F.timestamp_millis(time).alias(COMMIT_TIMESTAMP),
        F.col(ORDER),
        F.col(ROW_ID),
    )


def _matched(read: DataFrame, segment: Segment, columns: Sequence[str]) -> DataFrame:
    """Return what row ids tell of the rows before and after."""
    from pyspark.sql import functions as F

    state = F.struct(
        *[F.col(quote(name)).alias(f"{PLAN_PREFIX}{at}") for at, name in enumerate(columns)],
        F.col(_ROW_VERSION).alias(_ROW_VERSION),
    )
    before, after = F.col(_SIDE).startswith(BEFORE_MARK), F.col(_SIDE).startswith(AFTER_MARK)
    pairs = read.groupBy(ROW_ID, ORDER).agg(
        F.first(F.col(_TIME)).alias(_TIME),
        F.first(F.when(before, state), ignorenulls=True).alias(_BEFORE),
        F.first(F.when(after, state), ignorenulls=True).alias(_AFTER),
        F.count_if(before).alias(_N_BEFORE),
        F.count_if(after).alias(_N_AFTER),
    )
    return _transitions(pairs, segment, columns)


def _transitions(pairs: DataFrame, segment: Segment, columns: Sequence[str]) -> DataFrame:
    """Return the change rows of (row id, state before, state after)."""
    from pyspark.sql import functions as F

    was, is_ = F.col(_N_BEFORE) > 0, F.col(_N_AFTER) > 0
    versions = [F.col(f"{which}.{_ROW_VERSION}") for which in (_BEFORE, _AFTER)]

    def row(kind: str, which: str) -> Column:
        return F.struct(F.lit(kind).alias(_TYPE), F.col(which).alias(_STATE))

    changes = (
        F.when((F.col(_N_BEFORE) > 1) | (F.col(_N_AFTER) > 1), F.raise_error(_shared(segment)))
        .when(~was, F.array(row("insert", _AFTER)))
        .when(~is_, F.array(row("delete", _BEFORE)))
        .when(
            ~versions[0].eqNullSafe(versions[1]),
            F.array(row("update_preimage", _BEFORE), row("update_postimage", _AFTER)),
        )
    )
    version, time = _commit(segment, versions[1])
    exploded = pairs.select(
        ROW_ID, ORDER, version.alias(COMMIT_VERSION), time.alias(_TIME), F.explode(changes).alias(_ROW)
    )
    row_ = F.col(_ROW)
    state = row_[_STATE]
    return exploded.select(
        *[state[f"{PLAN_PREFIX}{at}"].alias(name) for at, name in enumerate(columns)],
        row_[_TYPE].alias(METADATA_COLUMNS[0]),
        F.col(COMMIT_VERSION),
        F.timestamp_millis(F.col(_TIME)).alias(COMMIT_TIMESTAMP),
        F.col(ORDER),
        F.col(ROW_ID),
    )


def _commit(segment: Segment, row_version: Column) -> tuple[Column, Column]:
    """Return version and time (epoch milliseconds) of a pair's last change."""
    from pyspark.sql import functions as F

    if not segment.net or segment.capture != "row_tracking":
        return F.col(ORDER), F.col(_TIME)
    # RESTORE brings rows back whose own version lies before the segment.
    versions, times = zip(*segment.timestamps, strict=True)
    told = F.map_from_arrays(F.lit(list(versions)), F.lit(list(times)))
    time = F.try_element_at(told, row_version)
    return F.when(time.isNotNull(), row_version).otherwise(F.col(ORDER)), F.coalesce(time, F.col(_TIME))


def _shared(segment: Segment) -> Column:
    from pyspark.sql import functions as F

    return F.concat(
        F.lit(
            f"{CaptureUnavailable.__name__}: Versions {segment.starting_version}-{segment.ending_version} "
            "cannot be read by row_tracking: the row id "
        ),
        F.coalesce(F.col(ROW_ID).cast("string"), F.lit("NULL")),
        F.lit(" stands for several rows at version "),
        F.col(ORDER).cast("string"),
        F.lit(f". Remedy: {SHARED_REMEDY}"),
    )
