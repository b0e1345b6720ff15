"""From source rows to rows in the target's shape: filter, projection, partition columns, sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_cdc.changes import states
from delta_cdc.changes.feed import COMMIT_TIMESTAMP, COMMIT_VERSION, METADATA_COLUMNS, ORDER, is_before
from delta_cdc.changes.states import SEQUENCE
from delta_cdc.errors import InvalidExpression, ReservedColumnName
from delta_cdc.sql import PLAN_PREFIX, quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from delta_cdc.spec import ApplyOptions

_METADATA_SEQUENCES = (COMMIT_VERSION, COMMIT_TIMESTAMP)


@dataclass(frozen=True)
class Shape:
    """The rows that land in the target, without the columns that SCD type 2 adds.

    :param keys: key columns as the rows spell them
    :param values: all columns in target order, keys among them
    :param tracked: columns whose change opens a new row of history
    :param partitions: partition columns of a target that is created here
    :param sequence_type: type of the start and end columns; None for type 1
    :param order_type: type of the sequence by which events are ordered; None for type 1 of a feed
    """

    keys: tuple[str, ...]
    values: tuple[str, ...]
    tracked: tuple[str, ...]
    partitions: tuple[str, ...]
    schema: StructType
    sequence_type: DataType | None
    order_type: DataType | None = None


def _refuse_reserved(columns: Sequence[str], options: ApplyOptions, source: str) -> None:
    reserved = {name.lower() for name in METADATA_COLUMNS}
    if options.stored_as_scd_type == 2:
        reserved |= {options.start_column.lower(), options.end_column.lower()}
    bad = [c for c in columns if c.lower() in reserved or c.lower().startswith(PLAN_PREFIX)]
    if bad:
        raise ReservedColumnName(
            f"{source} has the column {', '.join(map(repr, bad))}, a name that the change feed or the target "
            "needs for itself.",
            remedy="rename it with select, or choose other start_column and end_column.",
        )


def combined(expressions: Sequence[str]) -> Column:
    """Return a sequence: one expression as it is, several as a struct, which compares field by field.

    A part that is NULL makes the whole NULL: Spark would order it below all others, which nobody said.
    """
    from pyspark.sql import functions as F

    if len(expressions) == 1:
        return F.expr(expressions[0])
    parts = [F.expr(text).alias(f"_{at}") for at, text in enumerate(expressions, 1)]
    known = F.lit(True)
    for text in expressions:
        known = known & F.expr(text).isNotNull()
    return F.when(known, F.struct(*parts))


def _sequence(rows: DataFrame, options: ApplyOptions) -> Column:
    """Return the sequence of a feed row: of its new state, or of the delete of its old one."""
    from pyspark.sql import functions as F

    states.resolve(rows, "sequence_by", options.sequences)
    if options.delete_sequence is not None:
        states.resolve(rows, "delete_sequence", [options.delete_sequence])
    upsert = combined(options.sequences)
    if options.delete_sequence is None:
        return upsert
    delete = F.expr(options.delete_sequence)
    types = [rows.select(part.alias("s")).schema["s"].dataType for part in (upsert, delete)]
    if types[0] != types[1]:
        raise InvalidExpression(
            f"delete_sequence = {options.delete_sequence!r} is of type {types[1].simpleString()}, but "
            f"sequence_by = {options.sequence_by!r} of type {types[0].simpleString()}.",
            remedy="give both the same type, for instance with CAST.",
        )
    return F.when(is_before(), delete).otherwise(upsert)


def _check_orderable(data_type: DataType, options: ApplyOptions) -> None:
    from pyspark.sql import types as T

    ordered = (T.NumericType, T.StringType, T.DateType, T.TimestampType, T.TimestampNTZType)
    parts = (
        [part.dataType for part in data_type.fields] if isinstance(data_type, T.StructType) else [data_type]
    )
    if not all(isinstance(part, ordered) for part in parts):
        raise InvalidExpression(
            f"sequence_by = {options.sequence_by!r} is of type {data_type.simpleString()}, which gives no "
            "order that start and end columns can hold.",
            remedy="use a number, date, timestamp or string.",
        )


def sequence_columns(rows: DataFrame, options: ApplyOptions) -> set[str]:
    """Return the columns the sequence expressions read (lower case): they are not tracked by default.

    Spark is asked, not a parser of our own: an expression that no longer resolves without a column reads it.
    """
    from pyspark.errors import AnalysisException

    read: set[str] = set()
    for text in (*options.sequences, options.delete_sequence):
        if text is None or text in _METADATA_SEQUENCES:
            continue
        for name in rows.columns:
            try:
                rows.drop(name).selectExpr(text)
            except AnalysisException:
                read.add(name.lower())
    return read


def projected(rows: DataFrame, options: ApplyOptions, keep: Sequence[str]) -> DataFrame:
    """Filter and project rows of the source, and add the partition columns that are expressions.

    :param keep: columns that pass through beside the projection (the feed's metadata, the sequence)
    """
    derived = {name: text for name, text in options.partition_by.items() if text is not None}
    states.refuse_moving("partition_by", list(derived.values()), rows.columns)
    rows = states.projected(rows, options.where, options.select, keep)
    if derived:
        every = [quote(name) for name in rows.columns if name not in keep]
        partitions = [f"{text} AS {quote(name)}" for name, text in derived.items()]
        rows = states.beside(rows, "partition_by", [*every, *partitions], keep)
    return rows


def shape_of(rows: DataFrame, source_rows: DataFrame, options: ApplyOptions, source: str) -> Shape:
    """Check the columns that the options name against the projected rows.

    :param rows: projected rows, with :data:`SEQUENCE` for type 2
    :param source_rows: the rows before projection; the sequence expressions refer to them
    :raises ColumnNotFound: for a key, tracked or partition column that is not there
    :raises ReservedColumnName: for a column whose name the feed or the target needs
    """
    plan = {SEQUENCE, ORDER, *METADATA_COLUMNS}
    values = [name for name in rows.columns if name not in plan]
    _refuse_reserved(values, options, source)
    states.refuse_doubled(values, "select or partition_by")
    keys = states.match(values, options.keys, "keys", source)
    partitions = states.match(values, list(options.partition_by), "partition_by", source)
    sequence_type, added = None, []
    if options.stored_as_scd_type == 2:
        added = [options.start_column, options.end_column]
        sequence_type = rows.schema[SEQUENCE].dataType
        _check_orderable(sequence_type, options)
    states.match([*values, *added], options.cluster_by or (), "cluster_by", source)
    return Shape(
        keys=keys,
        values=tuple(values),
        tracked=_tracked(values, keys, source_rows, options, source),
        partitions=partitions,
        schema=rows.select(*[quote(name) for name in values]).schema,
        sequence_type=sequence_type,
    )


def _tracked(
    values: Sequence[str], keys: Sequence[str], source_rows: DataFrame, options: ApplyOptions, source: str
) -> tuple[str, ...]:
    if options.stored_as_scd_type != 2:
        return ()
    if options.track_history_column_list is not None:
        return states.match(values, options.track_history_column_list, "track_history_column_list", source)
    excluded = set(states.match(values, options.track_history_except_column_list or (),
                          "track_history_except_column_list", source))  # fmt: skip
    if options.track_history_except_column_list is None:
        sequences = sequence_columns(source_rows, options)
        excluded = {name for name in values if name.lower() in sequences}
    return tuple(name for name in values if name not in excluded and name not in keys)


def with_sequence(rows: DataFrame, options: ApplyOptions) -> DataFrame:
    """Add :data:`SEQUENCE` to feed rows: of the state after, or of the delete."""
    from pyspark.sql import functions as F

    if options.stored_as_scd_type != 2:
        return rows.withColumn(SEQUENCE, F.lit(None).cast("bigint"))
    return rows.withColumn(SEQUENCE, _sequence(rows, options))
