"""Find the type that holds all values of two types without loss: of two files, or of a batch and its log."""

from __future__ import annotations

from pyspark.sql import types as T

#: The number of digits of each integer type as a decimal.
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
#: For each type, the types that hold all its values exactly.
_WIDER = {
    "tinyint": ("smallint", "int", "bigint", "float", "double"),
    "smallint": ("int", "bigint", "float", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}


def wider(one: T.DataType, other: T.DataType) -> T.DataType | None:
    """Return the narrowest type that holds all values of both; None if no such type exists.

    The type of NULL fits every type. Struct fields match by name without regard to case; the result also has
    the fields that only one type has.
    """
    if one == other or isinstance(other, T.NullType):
        return one
    if isinstance(one, T.NullType):
        return other
    if isinstance(one, T.StructType) and isinstance(other, T.StructType):
        return _structs(one, other)
    if isinstance(one, T.ArrayType) and isinstance(other, T.ArrayType):
        element = wider(one.elementType, other.elementType)
        return T.ArrayType(element) if element is not None else None
    if isinstance(one, T.MapType) and isinstance(other, T.MapType):
        key, value = wider(one.keyType, other.keyType), wider(one.valueType, other.valueType)
        return T.MapType(key, value) if key is not None and value is not None else None
    return _atomic(one, other)


def _atomic(first: T.DataType, second: T.DataType) -> T.DataType | None:
    texts = (T.StringType, T.CharType, T.VarcharType)
    if isinstance(first, texts) and isinstance(second, texts):
        # Lengths and collations do not matter.
        return T.StringType()
    for narrow, wide in ((first, second), (second, first)):
        if wide.simpleString() in _WIDER.get(narrow.simpleString(), ()):
            return wide
    decimals = [_as_decimal(kind) for kind in (first, second)]
    if decimals[0] is None or decimals[1] is None:
        return None
    return _decimal(decimals[0], decimals[1])


def _as_decimal(kind: T.DataType) -> T.DecimalType | None:
    if isinstance(kind, T.DecimalType):
        return kind
    digits = _DIGITS.get(kind.simpleString())
    return T.DecimalType(digits, 0) if digits is not None else None


def _decimal(first: T.DecimalType, second: T.DecimalType) -> T.DecimalType | None:
    scale = max(first.scale, second.scale)
    precision = max(first.precision - first.scale, second.precision - second.scale) + scale
    return T.DecimalType(precision, scale) if precision <= 38 else None


def _structs(first: T.StructType, second: T.StructType) -> T.DataType | None:
    unmatched = {field.name.lower(): field for field in second.fields}
    fields = []
    for field in first.fields:
        match = unmatched.pop(field.name.lower(), None)
        kind = field.dataType if match is None else wider(field.dataType, match.dataType)
        if kind is None:
            return None
        fields.append(T.StructField(field.name, kind))
    return T.StructType([*fields, *[T.StructField(f.name, f.dataType) for f in unmatched.values()]])
