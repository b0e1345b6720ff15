"""Turn source rows into rows of the target: filter, projection, partition columns, sequence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import and_
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType, StringType, StructType

from delta_cdc.core.errors import InvalidConfiguration, InvalidExpression
from delta_cdc.core.reserved_columns import (
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    DELETED_COLUMN,
    METADATA_COLUMNS,
    ORDER,
)
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark import column_needs
from delta_cdc.spark.apply import target_columns
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import balanced
from delta_cdc.spark.changes.feed import is_before
from delta_cdc.spark.changes.states import BROKEN, SEQUENCE
from delta_cdc.spark.sessions import analysed
from delta_cdc.spark.silence_loggers import quietly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.options import ApplyOptions

#: Column with the source's row, for the quarantine.
RAW = f"{PLAN_PREFIX}raw"
#: Column with the names of the columns that a row of the source carries.
CARRIED = f"{PLAN_PREFIX}carried"
#: For a target that gets events: the sequence of the row itself, also of a row that was deleted.
OWN_SEQUENCE = f"{PLAN_PREFIX}own_sequence"
#: For a target with times of its rows: the time of the change.
TIME = f"{PLAN_PREFIX}time"
_METADATA_SEQUENCES = (COMMIT_VERSION, COMMIT_TIMESTAMP)


@dataclass(frozen=True)
class Shape:
    """The columns of rows for the target, without the columns that SCD type 2 adds.

    :param keys: key columns, spelled as in the rows
    :param values: all columns in target order, including keys
    :param tracked: columns whose change opens a new row of history
    :param partitions: partition columns, if this engine creates the target
    :param sequence_type: type of the start and end columns; None for type 1
    :param order_type: type of the sequence by which events are ordered; None for type 1 of a feed
    :param flag: the column of ``values`` by which a history marks deleted rows; "" if it keeps none
    :param time_type: type of the times of rows (:mod:`delta_cdc.spark.apply.times`); None without them
    """

    keys: tuple[str, ...]
    values: tuple[str, ...]
    tracked: tuple[str, ...]
    partitions: tuple[str, ...]
    schema: StructType
    sequence_type: DataType | None
    order_type: DataType | None = None
    flag: str = ""
    time_type: DataType | None = None

    @property
    def key_columns(self) -> list[Column]:
        """Return the key columns."""
        return [F.col(quote(key)) for key in self.keys]

    @property
    def others(self) -> list[str]:
        """Return the columns that are not keys."""
        return [name for name in self.values if name not in self.keys]

    @property
    def state(self) -> Column:
        """Return a row's state: a struct of its values."""
        return F.struct(*[F.col(quote(name)) for name in self.values])

    @property
    def per_key(self) -> WindowSpec:
        """Return the window over all rows of a key."""
        return Window.partitionBy(*self.key_columns)


def combined(expressions: Sequence[str]) -> Column:
    """Return a sequence: one expression, or a struct of several, which compares field by field."""
    parts = [F.expr(text) for text in expressions]
    return parts[0] if len(parts) == 1 else _struct(parts)


def _struct(parts: Sequence[Column]) -> Column:
    """Return a struct of the parts of a sequence.

    If a part is NULL, the whole is NULL; otherwise Spark would order the struct below all others.
    """
    complete = balanced(and_, [F.lit(True), *[part.isNotNull() for part in parts]])
    return F.when(complete, F.struct(*[part.alias(f"_{at}") for at, part in enumerate(parts, 1)]))


def _sequence(rows: DataFrame, options: ApplyOptions) -> Column:
    """Return the sequence of a feed row: that of its new state, or that of the delete of its old state."""
    states.resolve(rows, "sequence_by", options.sequences)
    if options.delete_sequence is not None:
        states.resolve(rows, "delete_sequence", [options.delete_sequence])
    upsert = combined(options.sequences)
    if options.delete_sequence is None:
        return upsert
    delete = F.expr(options.delete_sequence)
    types = [rows.select(part.alias("s")).schema["s"].dataType for part in (upsert, delete)]
    if _part_types(types[0]) != _part_types(types[1]):
        raise InvalidExpression(
            f"delete_sequence = {options.delete_sequence!r} is of type {types[1].simpleString()}, but "
            f"sequence_by = {options.sequence_by!r} of type {types[0].simpleString()}.",
            remedy="give both the same type, for instance with CAST; a list of expressions is matched by "
            "struct(…).",
        )
    if isinstance(types[1], T.StructType):
        delete = _struct([delete.getField(field.name) for field in types[1].fields])
    return F.when(is_before(), delete).otherwise(upsert)


def _part_types(data_type: DataType) -> list[str]:
    """Return the types of a sequence's parts, ignoring a struct's field names."""
    if not isinstance(data_type, T.StructType):
        return [data_type.simpleString()]
    return ["struct", *[field.dataType.simpleString() for field in data_type.fields]]


def _check_orderable(data_type: DataType, options: ApplyOptions) -> None:
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


def _check_comparable(keys: Sequence[str], schema: StructType) -> None:
    """Refuse keys that Spark cannot compare.

    :raises InvalidConfiguration: names the key
    """
    for key in keys:
        kind = schema[key].dataType
        if _is_incomparable(kind):
            raise InvalidConfiguration(
                f"The key {key} is of type {kind.simpleString()}, and Spark cannot compare its values.",
                remedy="give other keys, or make one of its parts a column with select.",
                argument="keys",
            )


def _is_incomparable(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_is_incomparable(field.dataType) for field in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _is_incomparable(kind.elementType)
    return isinstance(kind, T.MapType | T.VariantType)


def sequence_columns(rows: DataFrame, options: ApplyOptions) -> set[str]:
    """Return the columns that the sequence expressions read (lower case); by default they are not tracked.

    Spark decides, so no SQL parser is needed: an expression reads a column if it does not resolve without it.
    """
    read: set[str] = set()
    for text in (*options.sequences, options.delete_sequence):
        if text is None or text in _METADATA_SEQUENCES:
            continue
        for name in rows.columns:
            if name.lower().replace("`", "``") not in text.lower():
                continue
            try:
                with quietly():
                    analysed(rows.drop(name).selectExpr(text))
            except AnalysisException:
                read.add(name.lower())
    return read


def projected(rows: DataFrame, options: ApplyOptions, keep: Sequence[str]) -> DataFrame:
    """Filter and project rows of the source, and add the partition columns that are expressions.

    :param keep: columns that the projection keeps unchanged (the feed's metadata, the sequence)
    """
    derived = {name: text for name, text in options.partition_by.items() if text is not None}
    rows = states.projected(_alive(rows, options, keep), options.where, options.select, keep)
    if derived:
        all_columns = [quote(name) for name in rows.columns if name not in keep]
        partitions = [f"{text} AS {quote(name)}" for name, text in derived.items()]
        rows = states.beside(rows, "partition_by", [*all_columns, *partitions], keep)
    values = [name for name in rows.columns if name not in keep]
    landing = _landing(values, options, set(derived))
    rows = rows if landing == values else rows.select(*[quote(name) for name in (*landing, *keep)])
    return _without_empty_partitions(column_needs.bare(rows), options)


def _without_empty_partitions(rows: DataFrame, options: ApplyOptions) -> DataFrame:
    """Turn an empty text in a partition column into NULL, as Delta does when it stores the row.

    Otherwise, the row would differ from the stored one in each comparison.
    """
    names = {name.lower() for name in options.partition_by}
    texts = [
        field
        for field in rows.schema.fields
        if field.name.lower() in names and isinstance(field.dataType, StringType)
    ]
    if not texts:
        return rows
    values = {field.name: F.nullif(F.col(quote(field.name)), F.lit("")) for field in texts}
    # A computed column has no comment.
    comments = {field.name: field.metadata for field in texts if field.metadata}
    return column_needs.with_metadata(rows.withColumns(values), comments)


def _alive(rows: DataFrame, options: ApplyOptions, keep: Sequence[str]) -> DataFrame:
    """Drop states that ``apply_as_deletes`` marks as deleted; for events, the caller evaluates it."""
    deleted = options.apply_as_deletes
    if deleted is None or options.takes_events:
        return rows
    states.check_predicate(rows.drop(*keep), "apply_as_deletes", deleted)
    return rows.where(~F.coalesce(F.expr(deleted), F.lit(False)))


def _landing(values: Sequence[str], options: ApplyOptions, derived: set[str]) -> list[str]:
    """Return the columns for the target, in order; keys and computed partition columns are always included.

    :raises InvalidConfiguration: a key is excluded
    :raises ColumnNotFound: a name is not a projected column
    """
    where, names, except_names = "the projected rows", options.column_list, options.except_column_list
    keys = {name.lower() for name in options.keys}
    if names is not None:
        included = set(states.match(values, names, "column_list", where)) | derived
        return [name for name in values if name in included or name.lower() in keys]
    excluded = set(states.match(values, except_names or (), "except_column_list", where))
    excluded_keys = sorted(name for name in excluded if name.lower() in keys)
    if excluded_keys:
        raise InvalidConfiguration(
            f"except_column_list leaves out the key {', '.join(map(repr, excluded_keys))}.",
            remedy="remove the key from except_column_list. MERGE needs the keys in the target.",
        )
    if options.columns_to_update is not None:
        # This column describes the event, not the row.
        excluded |= {name for name in values if name.lower() == options.columns_to_update.lower()}
    return [name for name in values if name not in excluded]


def read(
    source_rows: DataFrame, options: ApplyOptions, source: str, *, raw: Sequence[str] = ()
) -> tuple[DataFrame, Shape]:
    """Filter and project rows of a feed or a snapshot; return them and their shape.

    :param source_rows: with the feed's metadata columns
    :param raw: columns of the source to keep as :data:`RAW`
    :return: values, the feed's metadata columns, :data:`SEQUENCE`, with rules
        :data:`~delta_cdc.spark.changes.states.BROKEN`, and, if rows list the columns that they carry,
        :data:`CARRIED`
    """
    keep = [name for name in (*METADATA_COLUMNS, ORDER) if name in source_rows.columns]
    added = {SEQUENCE: _sequence(source_rows, options) if _has_order(options) else F.lit(None).cast("bigint")}
    if raw:
        added[RAW] = F.struct(*[F.col(quote(name)) for name in raw])
    if options.columns_to_update is not None:
        plain = source_rows.drop(*keep)
        added[CARRIED] = carried(plain, options)
    if options.writes_events:
        added[OWN_SEQUENCE] = combined(options.sequences)
    if options.has_times:
        added[TIME] = F.col(COMMIT_TIMESTAMP)
    keep += added
    completed = target_columns.bounded(source_rows.withColumns(added), options)
    rows = projected(completed, options, keep)
    shape = shape_of(rows, source_rows, options, source, keep)
    return flagged(tested(rows, options, keep), shape, options)


def tested(rows: DataFrame, options: ApplyOptions, keep: Sequence[str]) -> DataFrame:
    """Add :data:`~delta_cdc.spark.changes.states.BROKEN` to rows: the names of the rules that they break.

    :param rows: as the target would store them, and the columns ``keep``, which the checks must not read
    :return: without rules, ``rows``
    :raises InvalidExpression: a check does not resolve, is not a predicate, or depends on more than the row
    """
    if not options.rules:
        return rows
    values = rows.drop(*keep)
    names = []
    for name, rule in options.rules.items():
        states.check_predicate(values, f"rules {name}", rule.check)
        holds = F.coalesce(F.expr(rule.check).cast("boolean"), F.lit(False))
        names.append(F.when(~holds, F.lit(name)))
    return rows.withColumn(BROKEN, F.filter(F.array(*names), lambda name: name.isNotNull()))


def flagged(rows: DataFrame, shape: Shape, options: ApplyOptions) -> tuple[DataFrame, Shape]:
    """Add ``_deleted`` to the rows of a source and to their shape, if a history keeps deleted rows.

    A row of the source is not deleted. A delete sets the value (:func:`delta_cdc.spark.apply.history.runs`).
    """
    if shape.sequence_type is None or not options.keeps_deleted:
        return rows, shape
    field = T.StructField(DELETED_COLUMN, T.BooleanType())
    tracked = (DELETED_COLUMN,) if options.delete_mode == "new_version" else ()
    return rows.withColumn(DELETED_COLUMN, F.lit(False)), replace(
        shape,
        values=(*shape.values, DELETED_COLUMN),
        tracked=(*shape.tracked, *tracked),
        schema=T.StructType([*shape.schema.fields, field]),
        flag=DELETED_COLUMN,
    )


def carried(plain: DataFrame, options: ApplyOptions) -> Column:
    """Return the names of the columns that a row of the source carries; NULL means all.

    :raises InvalidExpression: ``columns_to_update`` is not an array of texts
    """
    name = options.columns_to_update
    if name is None:
        return F.lit(None).cast("array<string>")
    (column,) = states.match(plain.columns, [name], "columns_to_update", "the source")
    data_type = plain.schema[column].dataType
    if not (isinstance(data_type, T.ArrayType) and isinstance(data_type.elementType, T.StringType)):
        raise InvalidExpression(
            f"columns_to_update = {name!r} is of type {data_type.simpleString()}, not an array of texts.",
            remedy="set columns_to_update to an array column with the names of an event's columns.",
        )
    return F.col(quote(column))


def shape_of(
    rows: DataFrame, source_rows: DataFrame, options: ApplyOptions, source: str, keep: Sequence[str]
) -> Shape:
    """Check that the projected rows have the columns that the options name; return the rows' shape.

    :param rows: projected rows, with :data:`SEQUENCE` for type 2 and for events
    :param source_rows: the rows before projection; the sequence expressions refer to them
    :param keep: columns of the rows that the target does not get
    :raises ColumnNotFound: a key, tracked or partition column does not exist
    :raises ReservedColumnName: a column has a name that the feed or the target needs
    """
    values = [name for name in rows.columns if name not in keep]
    added = tuple(options.added_columns)
    others = f", or choose another {' or '.join(options.added_columns.values())}" if added else ""
    states.refuse_reserved(values, source, added, remedy=f"rename it with select{others}.")
    states.refuse_doubled(values, "select or partition_by")
    keys = states.match(values, options.keys, "keys", source)
    _check_comparable(keys, rows.schema)
    current = () if options.current_column is None else (options.current_column,)
    partitions = states.match([*values, *current], list(options.partition_by), "partition_by", source)
    order_type = rows.schema[SEQUENCE].dataType if _has_order(options) else None
    if order_type is not None:
        _check_orderable(order_type, options)
    states.match([*values, *added], options.cluster_by or (), "cluster_by", source)
    return Shape(
        keys=keys,
        values=tuple(values),
        tracked=_tracked(values, keys, source_rows, options, source),
        partitions=partitions,
        schema=rows.select(*[quote(name) for name in values]).schema,
        sequence_type=order_type if options.stored_as_scd_type == 2 else None,
        order_type=order_type,
        time_type=rows.schema[TIME].dataType if TIME in rows.columns else None,
    )


def _has_order(options: ApplyOptions) -> bool:
    """Return whether a sequence orders the rows. Commits order the states of type 1, so these need none."""
    return options.stored_as_scd_type == 2 or options.takes_events or options.writes_events


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
