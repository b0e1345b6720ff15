"""Find the type that holds all values of two types without loss.

The two are the types of a column in two files, in the schemas of two messages, or in a batch and its log.
Numbers widen to numbers, never to text: whole numbers to the larger type, with a decimal to a decimal, floats
to double. A double restores decimals of up to 15 digits. The result is the type that Spark gives to a UNION,
but only if it alters no value.
"""

from __future__ import annotations

from pyspark.sql import types as T

#: The number of digits that Spark gives each integer type as a decimal.
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
#: A double restores every decimal with this number of digits.
_DOUBLE_DIGITS = 15


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


def widest_number(one: T.DataType, other: T.DataType) -> T.DecimalType:
    """Return the type for two types of numbers without a wider one; some of their values do not fit it."""
    scales = [kind.scale if isinstance(kind, T.DecimalType) else 0 for kind in (one, other)]
    return T.DecimalType(38, max(scales) if _is_float(one) == _is_float(other) else max(18, *scales))


def fraction(precision: int) -> T.DataType:
    """Return the type for fractions in decimal notation, by their number of digits."""
    return T.DoubleType() if precision <= _DOUBLE_DIGITS else T.DecimalType(38, 18)


def _atomic(first: T.DataType, second: T.DataType) -> T.DataType | None:
    texts = (T.StringType, T.CharType, T.VarcharType)
    if isinstance(first, texts) and isinstance(second, texts):
        # Lengths and collations do not matter.
        return T.StringType()
    if {first, second} == {T.DateType(), T.TimestampNTZType()}:
        return T.TimestampNTZType()
    if _is_float(first) and _is_float(second):
        return T.DoubleType()
    decimals = [kind for kind in (_as_decimal(first), _as_decimal(second)) if kind is not None]
    if len(decimals) == 2:
        if isinstance(first, T.IntegralType) and isinstance(second, T.IntegralType):
            return max((first, second), key=lambda kind: _DIGITS[kind.simpleString()])
        return _decimal(*decimals)
    is_restored = any(kind.precision <= _DOUBLE_DIGITS for kind in decimals)
    return T.DoubleType() if is_restored and (_is_float(first) or _is_float(second)) else None


def _is_float(kind: T.DataType) -> bool:
    return isinstance(kind, T.FloatType | T.DoubleType)


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
