"""Find out which columns an event carries (partial columns), and build a state from them.

A ``Leaf`` is a column; or a field of a struct column, if events may carry single fields. Every event carries
the keys, so these are no leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import and_, or_
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType

from delta_cdc.core.errors import ColumnNotFound
from delta_cdc.core.options import NULL_LISTS
from delta_cdc.core.sql import quote
from delta_cdc.spark.changes.equality import balanced, is_list_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.spark.apply.rows import Shape


@dataclass(frozen=True)
class Leaf:
    """A column (one part), or a field of a struct column."""

    path: tuple[str, ...]
    data_type: DataType

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that include this column or field: its own and those of its structs."""
        return tuple(".".join(self.path[: at + 1]).lower() for at in range(len(self.path)))

    def of(self, state: Column) -> Column:
        """Return this column's or field's value in a state (struct column)."""
        for name in self.path:
            state = state.getField(name)
        return state

    def path_in(self, state: str) -> str:
        """Return SQL of this column's or field's value in a state.

        :param state: the name of a struct column
        """
        return ".".join(map(quote, (state, *self.path)))


def leaves(shape: Shape, options: ApplyOptions) -> tuple[Leaf, ...]:
    """Return the partial columns of the rows, in order.

    :raises ColumnNotFound: a configured list names an unknown column
    """
    all_leaves: list[Leaf] = []
    for name in shape.values:
        if name in _whole(shape):
            continue
        column = Leaf((name,), shape.schema[name].dataType)
        fields = list(_fields(column))
        is_split = options.columns_to_update is not None or any(_keeps_null(leaf, options) for leaf in fields)
        all_leaves += fields if is_split else [column]
    _refuse_unknown_names(shape, options)
    return tuple(all_leaves)


def _whole(shape: Shape) -> tuple[str, ...]:
    """Return the columns that every event carries: the keys, and the mark of deleted rows."""
    return (*shape.keys, shape.flag)


def _fields(leaf: Leaf) -> Iterator[Leaf]:
    if not isinstance(leaf.data_type, T.StructType) or not leaf.data_type.fields:
        yield leaf
        return
    for field in leaf.data_type.fields:
        yield from _fields(Leaf((*leaf.path, field.name), field.dataType))


def _keeps_null(leaf: Leaf, options: ApplyOptions) -> bool:
    """Return whether a NULL in this column or field keeps the previous value."""
    listed, left_out = options.ignore_null_updates_column_list, options.ignore_null_updates_except_column_list
    if listed is not None:
        return not {name.lower() for name in listed}.isdisjoint(leaf.names)
    if left_out is not None:
        return {name.lower() for name in left_out}.isdisjoint(leaf.names)
    return options.ignore_null_updates


def _refuse_unknown_names(shape: Shape, options: ApplyOptions) -> None:
    known_names = _known_names(shape)
    for argument in NULL_LISTS:
        missing = [name for name in getattr(options, argument) or () if name.lower() not in known_names]
        if missing:
            raise ColumnNotFound(
                f"{argument} names {', '.join(map(repr, missing))}, which is not a column, or a field of a "
                f"struct, of the rows ({', '.join(shape.values)}).",
                remedy=f"name existing columns in {argument}; a field of a struct is written as a.b.",
            )


def _known_names(shape: Shape) -> set[str]:
    all_names = {key.lower() for key in shape.keys}
    for name in shape.values:
        if name == shape.flag:
            continue
        for leaf in _fields(Leaf((name,), shape.schema[name].dataType)):
            all_names |= set(leaf.names)
    return all_names


def authored(
    parts: Sequence[Leaf], shape: Shape, options: ApplyOptions, state: Column, carried: Column
) -> Column:
    """Return which columns and fields an upsert carries, as booleans in order; NULL if it carries all.

    :param state: struct of the upsert's values
    :param carried: array of the names that it carries (``columns_to_update``); NULL means all
    """
    if not options.is_partial or not parts:
        return F.lit(None).cast("array<boolean>")
    if options.columns_to_update is None:
        kept_nulls = [leaf.of(state).isNull() for leaf in parts if _keeps_null(leaf, options)]
        flags = [leaf.of(state).isNotNull() if _keeps_null(leaf, options) else F.lit(True) for leaf in parts]
        return F.when(balanced(or_, [F.lit(False), *kept_nulls]), F.array(*flags))
    names = F.transform(carried, F.lower)
    columns = F.array(*[F.lit(name) for name in dict.fromkeys(leaf.path[0].lower() for leaf in parts)])
    carries_leaf = [F.arrays_overlap(names, F.array(*[F.lit(name) for name in leaf.names])) for leaf in parts]
    # A NULL element makes the comparison NULL; it names no column.
    flags = [F.coalesce(flag, F.lit(False)) for flag in carries_leaf]
    lacks_column = F.size(F.array_except(columns, names)) > 0
    # Nearly all events list exactly the columns of the rows. Compiled code finds this; Spark interprets
    # array_except, and Spark 4.2 reads its configuration for each element.
    values = [name for name in shape.values if name != shape.flag]
    lists_all = is_list_of(carried, dict.fromkeys([*shape.keys, *values]))
    return F.when(~F.coalesce(lists_all, F.lit(False)) & lacks_column, F.array(*flags))


def names_unknown(shape: Shape, options: ApplyOptions, carried: Column, columns: Sequence[str]) -> Column:
    """Return whether an event names a column that does not exist (``columns_to_update``).

    :param columns: columns of the source; an event may also name columns that the target does not get
    """
    if options.columns_to_update is None:
        return F.lit(False)
    landing = {name.lower() for name in shape.values}
    others = {name.lower() for name in columns} - landing
    known_names = [F.lit(name) for name in sorted(_known_names(shape) | others)]
    field_prefixes = [F.lit(f"{name}.") for name in sorted(others)]

    def is_unknown(name: Column) -> Column:
        lower = F.lower(name)
        is_known = lower.isin(*known_names)
        for prefix in field_prefixes:
            is_known = is_known | lower.startswith(prefix)
        return name.isNull() | ~is_known

    has_unknown = F.exists(carried, is_unknown)
    return F.coalesce(has_unknown, F.lit(False))


def rebuilt(parts: Sequence[Leaf], shape: Shape, state: Column, values: Sequence[Column]) -> Column:
    """Build a state (struct of all values) from the values of its columns and fields.

    A struct that was split into fields becomes NULL if all of its fields are NULL.

    :param state: struct that contains the keys
    :param values: one value for each of ``parts``
    """
    by_path = {leaf.path: value for leaf, value in zip(parts, values, strict=True)}
    columns = []
    for name in shape.values:
        value = (
            state.getField(name)
            if name in _whole(shape)
            else _value((name,), shape.schema[name].dataType, by_path)
        )
        columns.append(value.alias(name))
    return F.struct(*columns)


def _value(path: tuple[str, ...], data_type: DataType, by_path: dict[tuple[str, ...], Column]) -> Column:
    if path in by_path:
        return by_path[path]
    assert isinstance(data_type, T.StructType)
    fields = [_value((*path, f.name), f.dataType, by_path).alias(f.name) for f in data_type.fields]
    leaf_values = [value for other, value in by_path.items() if other[: len(path)] == path]
    return F.when(~balanced(and_, [value.isNull() for value in leaf_values]), F.struct(*fields))
