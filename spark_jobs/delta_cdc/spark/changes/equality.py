"""Compare values null-safe and by name, including types that Spark's ``<=>`` does not support (MAP, VARIANT).

All functions return SQL, so that a statement and a DataFrame use the same rule.
"""

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


def nullable(data_type: DataType) -> DataType:
    """Return the type with nullable parts: Spark casts no value with nullable parts to a type without."""
    if isinstance(data_type, T.StructType):
        fields = [T.StructField(field.name, nullable(field.dataType)) for field in data_type.fields]
        return T.StructType(fields)
    if isinstance(data_type, T.ArrayType):
        return T.ArrayType(nullable(data_type.elementType))
    if isinstance(data_type, T.MapType):
        return T.MapType(nullable(data_type.keyType), nullable(data_type.valueType))
    return data_type


def laid_out_as(data_type: DataType, target: DataType) -> DataType:
    """Return a type with the fields of structs in a target's order; then those that the target lacks.

    A field that only the target has is there too. The types of the other parts stay as they are.
    """
    if isinstance(data_type, T.StructType) and isinstance(target, T.StructType):
        own = {field.name.lower(): field for field in data_type.fields}
        fields = []
        for at in target.fields:
            found = own.pop(at.name.lower(), None)
            placed = at.dataType if found is None else laid_out_as(found.dataType, at.dataType)
            fields.append(T.StructField(at.name if found is None else found.name, placed))
        return T.StructType([*fields, *own.values()])
    if isinstance(data_type, T.ArrayType) and isinstance(target, T.ArrayType):
        return T.ArrayType(laid_out_as(data_type.elementType, target.elementType))
    if isinstance(data_type, T.MapType) and isinstance(target, T.MapType):
        key = laid_out_as(data_type.keyType, target.keyType)
        return T.MapType(key, laid_out_as(data_type.valueType, target.valueType))
    return data_type


def conformed(value: str, data_type: DataType, wanted: DataType, depth: int = 0) -> str:
    """Return SQL of a value in the type of the values that it meets.

    Fields of structs match by name, without regard to case, also inside arrays and maps, as a write matches
    them. A field that the value lacks is NULL. Spark itself would match them by position. A value of the same
    type stays as it is.

    :param value: SQL of the value
    :param data_type: its type
    :param wanted: the type that it gets; nullability does not matter
    :param depth: number of enclosing lambdas
    """
    if nullable(data_type) == nullable(wanted):
        return value
    if not isinstance(wanted, T.StructType | T.ArrayType | T.MapType) or type(data_type) is not type(wanted):
        return f"CAST({value} AS {ddl(wanted)})"
    rebuilt = _rebuilt(value, data_type, wanted, depth, conformed)
    return f"map_from_entries({rebuilt})" if isinstance(wanted, T.MapType) else rebuilt


def comparable(value: str, data_type: DataType, wanted: DataType | None = None, depth: int = 0) -> str:
    """Return SQL of a value that ``<=>`` can compare, and that is equal exactly if the value is equal.

    Two maps are equal if they have the same entries, in any order. Two variants are equal if they have the
    same type and the same value at every path: a date differs from its text, a double from a float, and a
    variant null from NULL. How a number is encoded does not matter: integers of all widths have one type, and
    trailing zeros of a decimal do not count.

    :param value: SQL of the value
    :param data_type: its type
    :param wanted: the type of the values that it meets, see :func:`conformed`; by default its own
    :param depth: number of enclosing lambdas
    """
    wanted = data_type if wanted is None else wanted
    if has_equality(wanted):
        return conformed(value, data_type, wanted, depth)
    if isinstance(wanted, T.VariantType):
        return _variant_text(conformed(value, data_type, wanted, depth))
    if type(data_type) is not type(wanted):
        value, data_type = conformed(value, data_type, wanted, depth), wanted
    rebuilt = _rebuilt(value, data_type, wanted, depth, comparable)
    return f"array_sort({rebuilt})" if isinstance(wanted, T.MapType) else rebuilt


def _rebuilt(value: str, data_type: DataType, wanted: DataType, depth: int, part: Callable[..., str]) -> str:
    """Return SQL of a struct, an array, or the entries of a map, of which ``part`` makes the parts."""
    item = f"e{depth}"
    if isinstance(wanted, T.StructType) and isinstance(data_type, T.StructType):
        found = {field.name.lower(): field for field in data_type.fields}
        parts = []
        for field in wanted.fields:
            own = found.get(field.name.lower())
            text, own_type = (
                (f"CAST(NULL AS {ddl(field.dataType)})", field.dataType)
                if own is None
                else (f"{value}.{quote(own.name)}", own.dataType)
            )
            parts.append(f"{part(text, own_type, field.dataType, depth)} AS {quote(field.name)}")
        return f"CASE WHEN {value} IS NOT NULL THEN struct({', '.join(parts)}) END"
    if isinstance(wanted, T.ArrayType) and isinstance(data_type, T.ArrayType):
        element = part(item, data_type.elementType, wanted.elementType, depth + 1)
        return f"transform({value}, {item} -> {element})"
    assert isinstance(wanted, T.MapType)
    assert isinstance(data_type, T.MapType)
    key = part(f"{item}.key", data_type.keyType, wanted.keyType, depth + 1)
    entry = part(f"{item}.value", data_type.valueType, wanted.valueType, depth + 1)
    return f"transform(map_entries({value}), {item} -> struct({key}, {entry}))"


def ddl(data_type: DataType) -> str:
    """Return a type as Spark's SQL has it; ``simpleString`` does not quote the names of fields."""
    if isinstance(data_type, T.StructType):
        return f"STRUCT<{', '.join(f'{quote(f.name)}: {ddl(f.dataType)}' for f in data_type.fields)}>"
    if isinstance(data_type, T.ArrayType):
        return f"ARRAY<{ddl(data_type.elementType)}>"
    if isinstance(data_type, T.MapType):
        return f"MAP<{ddl(data_type.keyType)}, {ddl(data_type.valueType)}>"
    return data_type.simpleString()


def _variant_text(value: str) -> str:
    """Return SQL of a text that is the same for equal variants only: the JSON text, followed by types.

    JSON does not show the types. ``schema_of_variant`` shows them, but merges those of an array's elements.
    Elements of different types whose JSON may be the same merge to ``DOUBLE``, ``FLOAT``, ``DECIMAL`` or
    ``VARIANT``. If an array has such a type, the text has the types of all parts instead, level by level.
    """
    json, schema = f"to_json({value})", f"schema_of_variant({value})"
    # The document has at most as many levels as opening brackets.
    most_levels = f"length({json}) - length(translate({json}, '[{{', ''))"
    parts = (
        "coalesce(try_cast(x AS ARRAY<VARIANT>), map_values(try_cast(x AS MAP<STRING, VARIANT>)), "
        "CAST(array() AS ARRAY<VARIANT>))"
    )
    all_types = (
        f"aggregate(sequence(0, {most_levels}), named_struct('types', '', 'level', array({value})), "
        "(a, i) -> CASE WHEN size(a.level) = 0 THEN a ELSE named_struct("
        "'types', concat(a.types, ' ', array_join(transform(a.level, x -> schema_of_variant(x)), ' ')), "
        f"'level', flatten(transform(a.level, x -> {parts}))) END, a -> a.types)"
    )
    first_array = f"substr({schema}, nullif(instr({schema}, 'ARRAY<'), 0))"
    return (
        f"concat({json}, CASE WHEN {first_array} RLIKE 'DOUBLE|FLOAT|DECIMAL|VARIANT' THEN {all_types} "
        f"ELSE {schema} END)"
    )


def same(left: str, right: str | None, schema: StructType, columns: Sequence[str]) -> Column:
    """Return whether two struct columns have equal values in ``columns``, null-safe.

    :param left: name of a struct column of the type ``schema``
    :param right: the same; None means the row itself
    """
    compared = []
    for name in columns:
        field = schema[name]
        paths = [quote(name) if side is None else f"{quote(side)}.{quote(name)}" for side in (left, right)]
        sides = [F.expr(comparable(path, field.dataType)) for path in paths]
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
