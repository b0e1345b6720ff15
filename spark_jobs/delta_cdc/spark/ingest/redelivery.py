"""Find the rows of redelivered files and offsets that the log does not have yet.

A redelivered file may be unchanged, longer or changed. Only the rows that earlier deliveries lacked are new.
The comparison counts equal rows: if a file had two equal rows and now has three, one row is new.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core.change_log import COLUMNS, LOG_COLUMNS, OP, POSITION, SEQUENCE
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark.changes.equality import comparable
from delta_cdc.spark.ingest.widening import wider

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.spec import IngestSpec

_KEY, _NUMBER, _HELD = f"{PLAN_PREFIX}key", f"{PLAN_PREFIX}number", f"{PLAN_PREFIX}held"
_CARRIED = f"{PLAN_PREFIX}carried"
#: The columns of the log that, with the payload, identify an event. COLUMNS is not one of these, because its
#: value depends on the columns that were known when a batch took the event (:func:`carries_more`).
_TELLING = (OP, SEQUENCE)


def flagged(spec: IngestSpec) -> Column | None:
    """Return a condition for the records that an earlier batch may contain; None if no record can match."""
    files = [file.uri for file in spec.files if file.again]
    if files:
        if len(files) == len(spec.files):
            return F.lit(True)
        return F.col(f"{POSITION}.file").isin(files)
    parts = [
        (F.col(f"{POSITION}.topic") == part.topic) & (F.col(f"{POSITION}.partition") == part.partition)
        for part in spec.offsets
        if part.again
    ]
    if not parts:
        return None
    return F.lit(True) if len(parts) == len(spec.offsets) else reduce(or_, parts)


def place(*, exact: bool) -> Column:
    """Return the origin of a record.

    For a record of a topic, the origin is its exact position. For a record of a file, it is the file alone,
    because rows may have moved.

    :param exact: also use the row in the file
    """
    position = F.col(POSITION)
    row = position.getField("row") if exact else F.lit(None).cast("bigint")
    return F.struct(
        position.getField("file").alias("file"),
        row.alias("row"),
        *[position.getField(name).alias(name) for name in ("topic", "partition", "offset")],
    )


def identity(rows: DataFrame, types: dict[str, T.DataType]) -> Column:
    """Return a value that is the same for two rows of one event.

    :param types: the columns to compare, each with a type that fits both sides; a column that ``rows`` lacks
        is NULL
    """
    names_by_lower = {name.lower(): name for name in rows.columns}
    parts = []
    for name, kind in types.items():
        column_name = names_by_lower.get(name.lower())
        value = "NULL" if column_name is None else quote(column_name)
        column_type = T.NullType() if column_name is None else rows.schema[column_name].dataType
        if isinstance(kind, T.StringType) and not isinstance(column_type, T.AtomicType | T.NullType):
            value, column_type = f"to_json({value})", kind
        parts.append(F.expr(comparable(value, column_type, kind)).alias(name))
    return F.struct(*parts)


def compared(events: DataFrame, log: DataFrame) -> dict[str, T.DataType]:
    """Return the columns to compare events with their log, each with its type."""
    types = {field.name: field.dataType for field in log.schema.fields}
    names_by_lower = {name.lower(): name for name in types}
    for field in events.schema.fields:
        log_name = names_by_lower.setdefault(field.name.lower(), field.name)
        log_type = types.get(log_name, field.dataType)
        nested = not isinstance(log_type, T.AtomicType)
        # If no type holds both, structs, arrays and maps are compared as JSON.
        types[log_name] = wider(log_type, field.dataType) or (T.StringType() if nested else log_type)
    return {name: kind for name, kind in types.items() if name not in LOG_COLUMNS or name in _TELLING}


def beyond(
    rows: DataFrame, held: DataFrame, own: Column, theirs: Column, columns: Sequence[str] = ()
) -> DataFrame:
    """Return the rows that exceed those in ``held``: the difference of two multisets.

    :param own: the identity of a row, of a comparable type
    :param theirs: the identity of a row of ``held``
    :param columns: of events whose value NULL differs from none: those that an event without a list carries
    """
    place = F.struct(F.col(f"{POSITION}.row"), F.col(f"{POSITION}.offset"))
    numbers = F.row_number().over(Window.partitionBy(_KEY).orderBy(place))
    counted = rows.withColumn(_KEY, own).withColumn(_NUMBER, numbers).alias("r")
    totals = [F.count("*").alias(_HELD)]
    if columns:
        lists_all = F.count_if(F.col(COLUMNS).isNull()) == 0
        lists = F.array_distinct(F.flatten(F.collect_list(COLUMNS)))
        totals.append(F.when(lists_all, lists).alias(_CARRIED))
    listed = [F.col(COLUMNS)] if columns else []
    held_counts = held.select(theirs.alias(_KEY), *listed).groupBy(_KEY).agg(*totals).alias("h")
    joined = counted.join(held_counts, F.col(f"r.{_KEY}") == F.col(f"h.{_KEY}"), "left")
    is_more = F.col(_NUMBER) > F.coalesce(F.col(_HELD), F.lit(0))
    if columns:
        is_more |= carries_more(F.col(f"r.{COLUMNS}"), F.col(f"h.{_CARRIED}"), columns)
    return joined.where(is_more).select("r.*").drop(_KEY, _NUMBER)


def carries_more(own: Column, theirs: Column, columns: Sequence[str]) -> Column:
    """Return whether an event carries a column that equal events in the log lack: its NULL is new.

    This is so after a column was added to the schema, because missing is not NULL.

    :param own: the columns that the event lists; NULL: all
    :param theirs: those that the log's events list together; NULL: one of them carries all
    :param columns: all columns of the batch
    """
    everything = F.array(*[F.lit(name) for name in columns])
    carried = F.transform(F.coalesce(own, everything), F.lower)
    return F.coalesce(F.size(F.array_except(carried, F.transform(theirs, F.lower))) > 0, F.lit(False))


def without(rows: DataFrame, held: DataFrame) -> DataFrame:
    """Return the rows of records that are not in ``held``, by topic, partition and offset.

    One record may yield several events, which one commit wrote.
    """
    held_records = held.select(place(exact=True).alias(_KEY)).distinct()
    keyed_rows = rows.withColumn(_KEY, place(exact=True))
    return keyed_rows.join(held_records, _KEY, "left_anti").select(
        *[F.col(quote(name)) for name in rows.columns]
    )
