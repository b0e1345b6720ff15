"""Compare rows null-safe, including types that Spark's ``<=>`` does not support (MAP, VARIANT)."""

from __future__ import annotations

from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType, StructType

from delta_cdc.core.sql import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def has_equality(data_type: DataType) -> bool:
    """Return whether ``<=>`` can compare the type, and Spark can group by it."""
    if isinstance(data_type, T.ArrayType):
        return has_equality(data_type.elementType)
    if isinstance(data_type, T.StructType):
        return all(has_equality(f.dataType) for f in data_type.fields)
    return not isinstance(data_type, T.MapType | T.VariantType)


def is_list_of(names: Column, expected: Iterable[str]) -> Column:
    """Return whether an array of texts has exactly the expected names, in any order; NULL for NULL.

    Upper and lower case differ, also if the array has a collation that ignores case.
    """
    # Without the first cast, Spark cannot compare an array that has a collation.
    listed = F.sort_array(names.cast("array<string>"))
    return listed == F.array(*map(F.lit, sorted(expected, key=str.encode))).cast("array<string>")


def comparable(value: Column, data_type: DataType) -> Column:
    """Return a value that ``<=>`` can compare, and that is equal exactly if ``value`` is equal.

    Maps are compared as sorted entries, because their order has no meaning; variants as text.
    """
    if has_equality(data_type):
        return value
    if isinstance(data_type, T.VariantType):
        return F.to_json(value)
    if isinstance(data_type, T.ArrayType):
        element = data_type.elementType
        return F.transform(value, lambda item: comparable(item, element))
    if isinstance(data_type, T.StructType):
        parts = [comparable(value.getField(f.name), f.dataType).alias(f.name) for f in data_type.fields]
        return F.when(value.isNotNull(), F.struct(*parts))
    assert isinstance(data_type, T.MapType)
    key, item = data_type.keyType, data_type.valueType
    return F.array_sort(
        F.transform(
            F.map_entries(value),
            lambda entry: F.struct(
                comparable(entry["key"], key).alias("key"), comparable(entry["value"], item).alias("value")
            ),
        )
    )


def comparable_sql(value: str, data_type: DataType, depth: int = 0) -> str:
    """Return SQL equivalent to :func:`comparable`, for text statements.

    :param value: SQL of the value
    :param depth: number of enclosing lambdas
    """
    if has_equality(data_type):
        return value
    if isinstance(data_type, T.VariantType):
        return f"to_json({value})"
    item = f"e{depth}"
    if isinstance(data_type, T.ArrayType):
        return f"transform({value}, {item} -> {comparable_sql(item, data_type.elementType, depth + 1)})"
    if isinstance(data_type, T.StructType):
        parts = ", ".join(
            comparable_sql(f"{value}.{quote(f.name)}", f.dataType, depth) for f in data_type.fields
        )
        return f"CASE WHEN {value} IS NOT NULL THEN struct({parts}) END"
    assert isinstance(data_type, T.MapType)
    key = comparable_sql(f"{item}.key", data_type.keyType, depth + 1)
    entry = comparable_sql(f"{item}.value", data_type.valueType, depth + 1)
    return f"array_sort(transform(map_entries({value}), {item} -> struct({key}, {entry})))"


def same(left: str, right: str | None, schema: StructType, columns: Sequence[str]) -> Column:
    """Return whether two struct columns have equal values in ``columns``, null-safe.

    :param left: name of a struct column of the type ``schema``
    :param right: the same; None means the row itself
    """
    compared = []
    for name in columns:
        field = schema[name]
        paths = [quote(name) if side is None else f"{quote(side)}.{quote(name)}" for side in (left, right)]
        sides = [comparable(F.col(path), field.dataType) for path in paths]
        compared.append(sides[0].eqNullSafe(sides[1]))
    return balanced(and_, compared) if compared else F.lit(True)


def balanced(operator: Callable[[Any, Any], Any], parts: Sequence[Column]) -> Column:
    """Combine columns as a balanced tree, because Spark's recursion overflows on a chain of hundreds.

    :param parts: at least one column
    """
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    whole: Column = operator(balanced(operator, parts[:half]), balanced(operator, parts[half:]))
    return whole
