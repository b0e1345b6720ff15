"""From source rows to rows in the target's shape: filter, projection, partition columns, sequence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_cdc.changes.feed import COMMIT_TIMESTAMP, COMMIT_VERSION, METADATA_COLUMNS, SEQUENCE, is_before
from delta_cdc.errors import ColumnNotFound, InvalidExpression, ReservedColumnName
from delta_cdc.sql import PLAN_PREFIX, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    """

    keys: tuple[str, ...]
    values: tuple[str, ...]
    tracked: tuple[str, ...]
    partitions: tuple[str, ...]
    schema: StructType
    sequence_type: DataType | None


def resolve(rows: DataFrame, argument: str, expressions: Sequence[str]) -> DataFrame:
    """Project ``rows`` by SQL expressions of the argument ``argument``.

    :raises InvalidExpression: where Spark cannot parse or resolve one
    """
    from pyspark.errors import AnalysisException, ParseException

    try:
        return rows.selectExpr(*expressions)
    except (AnalysisException, ParseException) as error:
        reason = str(error).strip().splitlines()[0]
        raise InvalidExpression(
            f"{argument} = {list(expressions)!r} does not resolve against the source: {reason}",
            remedy=f"correct {argument}; it is Spark SQL over the source's columns.",
        ) from error


def _match(names: Iterable[str], wanted: Sequence[str], argument: str, where: str) -> tuple[str, ...]:
    """Return ``wanted`` as ``names`` spell them; Spark resolves columns without case."""
    by_lower = {name.lower(): name for name in names}
    missing = [name for name in wanted if name.lower() not in by_lower]
    if missing:
        raise ColumnNotFound(
            f"{argument}: column {', '.join(map(repr, missing))} does not exist in {where} "
            f"(it has {', '.join(by_lower.values())}).",
            remedy=f"name existing columns in {argument}.",
        )
    return tuple(by_lower[name.lower()] for name in wanted)


def refuse_metadata_names(columns: Iterable[str], where: str) -> None:
    """Refuse columns that the feed's own would hide.

    :raises ReservedColumnName: naming them
    """
    bad = [name for name in columns if name.lower() in METADATA_COLUMNS]
    if bad:
        raise ReservedColumnName(
            f"{where} has the column {', '.join(map(repr, bad))}, a name that the feed needs for itself.",
            remedy="rename the column.",
        )


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


def _sequence(rows: DataFrame, options: ApplyOptions) -> Column:
    """Return the sequence of a feed row: of its new state, or of the delete of its old one."""
    from pyspark.sql import functions as F

    for argument, text in (
        ("sequence_by", options.sequence_by),
        ("delete_sequence", options.delete_sequence),
    ):
        if text is not None:
            resolve(rows, argument, [text])
    upsert = F.expr(options.sequence_by)
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
    if not isinstance(data_type, ordered):
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
    for text in (options.sequence_by, options.delete_sequence):
        if text is None or text in _METADATA_SEQUENCES:
            continue
        for name in rows.columns:
            try:
                rows.drop(name).selectExpr(text)
            except AnalysisException:
                read.add(name.lower())
    return read


#: Functions whose value is not the state's own: another one with every look.
_MOVING = re.compile(
    r"(?<![\w.`])(rand|randn|random|uuid|shuffle|monotonically_increasing_id|spark_partition_id|input_file_name"
    r"|now|curdate|current_date|current_timestamp|localtimestamp|current_time|unix_timestamp)\s*\(",
    re.IGNORECASE,
)
_MOVING_WORDS = re.compile(
    r"(?<![\w.`])(current_date|current_timestamp|localtimestamp|current_time)(?![\w`])", re.IGNORECASE
)
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`")


def refuse_moving(argument: str, expressions: Sequence[str], columns: Sequence[str]) -> None:
    """Refuse expressions that give another value with every look (chance, the clock, the file).

    They act on states, before and after a commit, which are read at different times: a row that left such a
    filter silently would never be deleted.

    :raises InvalidExpression: naming the function
    """
    known = {name.lower() for name in columns}
    for text in expressions:
        bare = _QUOTED.sub("''", text)
        found = _MOVING.search(bare) or next(
            (match for match in _MOVING_WORDS.finditer(bare) if match[1].lower() not in known), None
        )
        if found:
            raise InvalidExpression(
                f"{argument} = {text!r} uses {found[1]}, whose value changes from one look to the next.",
                remedy=f"make {argument} a function of the row alone.",
            )


def projected(rows: DataFrame, options: ApplyOptions, keep: Sequence[str]) -> DataFrame:
    """Filter and project rows of the source, and add the partition columns that are expressions.

    :param keep: columns that pass through beside the projection (the feed's metadata, the sequence)
    """
    from pyspark.sql import functions as F

    partitioning = [text for text in options.partition_by.values() if text is not None]
    for argument, texts in (
        ("where", [options.where] if options.where else []),
        ("select", options.select),
        ("partition_by", partitioning),
    ):
        refuse_moving(argument, texts, rows.columns)
    if options.where:
        resolve(rows.drop(*keep), "where", [options.where])
        rows = rows.where(F.expr(options.where))
    if options.select:
        every = [quote(name) for name in rows.columns if name not in keep]
        chosen = [text for item in options.select for text in (every if item.strip() == "*" else [item])]
        rows = _beside(rows, "select", chosen, keep)
    derived = {name: text for name, text in options.partition_by.items() if text is not None}
    if derived:
        every = [quote(name) for name in rows.columns if name not in keep]
        partitions = [f"{text} AS {quote(name)}" for name, text in derived.items()]
        rows = _beside(rows, "partition_by", [*every, *partitions], keep)
    return rows


def _beside(rows: DataFrame, argument: str, expressions: Sequence[str], keep: Sequence[str]) -> DataFrame:
    """Project beside the columns ``keep``, which the expressions must not read.

    They act on states: a value made of the commit's version or time would differ with every cut of the range.
    """
    refuse_metadata_names(resolve(rows.drop(*keep), argument, expressions).columns, argument)
    return rows.selectExpr(*expressions, *[quote(name) for name in keep])


def shape_of(rows: DataFrame, source_rows: DataFrame, options: ApplyOptions, source: str) -> Shape:
    """Check the columns that the options name against the projected rows.

    :param rows: projected rows, with :data:`SEQUENCE` for type 2
    :param source_rows: the rows before projection; the sequence expressions refer to them
    :raises ColumnNotFound: for a key, tracked or partition column that is not there
    :raises ReservedColumnName: for a column whose name the feed or the target needs
    """
    plan = {SEQUENCE, *METADATA_COLUMNS}
    values = [name for name in rows.columns if name not in plan]
    _refuse_reserved(values, options, source)
    doubled = {name for name in values if [v.lower() for v in values].count(name.lower()) > 1}
    if doubled:
        raise InvalidExpression(
            f"select and partition_by give {', '.join(sorted(map(repr, doubled)))} more than once.",
            remedy="name each column of the target once.",
        )
    keys = _match(values, options.keys, "keys", source)
    partitions = _match(values, list(options.partition_by), "partition_by", source)
    sequence_type, added = None, []
    if options.stored_as_scd_type == 2:
        added = [options.start_column, options.end_column]
        sequence_type = rows.schema[SEQUENCE].dataType
        _check_orderable(sequence_type, options)
    _match([*values, *added], options.cluster_by or (), "cluster_by", source)
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
        return _match(values, options.track_history_column_list, "track_history_column_list", source)
    excluded = set(_match(values, options.track_history_except_column_list or (),
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
