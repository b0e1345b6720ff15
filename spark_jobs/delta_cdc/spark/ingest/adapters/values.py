"""Convert text to typed values strictly: numbers, times, bytes and nested values.

All functions take and return columns, and use only Spark SQL. A value that does not fit its type becomes
NULL, so NULL from a text that is not NULL marks a misfit. The functions never truncate, round or guess. They
only drop fractions of a microsecond, because no Spark type holds these.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core.validation import invalid
from delta_cdc.spark.changes.equality import balanced

if TYPE_CHECKING:
    from collections.abc import Callable

#: With this number of digits, a text restores every double exactly.
_DOUBLE_DIGITS = 17
#: The pattern ends with ``\z``, because ``$`` also matches before a final line break.
_EXPONENT = r"[eE]([+-]?\d+)\s*\z"
_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*\z"
_MANTISSA = r"^\s*[+-]?([0-9.]*)"
_TIME_OF_DAY = r"(\d{1,2}:\d{1,2}(:\d{1,2}([.,]\d*)?)?)"
_DATE = r"^\s*[+-]?\d{4,6}-\d{1,2}-\d{1,2}"
_ZONE = r"\s?(Z|UTC|GMT|[+-]\d{1,2}(:?\d{2})?(:?\d{2})?|\[?[A-Za-z]+/[A-Za-z_/]+\]?)"
#: A day, optionally with the time midnight. Any other time of day does not match, because it would be lost.
_ONLY_DATE = rf"{_DATE}([T ]0{{1,2}}:0{{1,2}}(:0{{1,2}}([.,]0*)?)?({_ZONE})?)?\s*\z"
_LOCAL_TIMESTAMP = rf"{_DATE}([T ]{_TIME_OF_DAY})?\s*\z"
_TIMESTAMP = rf"{_DATE}([T ]{_TIME_OF_DAY}({_ZONE})?)?\s*\z"


# -- one text, one value ------------------------------------------------------------------------
def scalar(text: Column, data_type: T.DataType) -> Column:
    """Return a text as a value of a type; NULL if the text is invalid.

    :param text: numbers in decimal notation, with or without exponent; ISO dates and timestamps (without a
        zone, the session's zone applies); bytes in base64; booleans as true/false, t/f, yes/no, y/n or 1/0
    :raises InvalidConfiguration: no text converts to this type
    """
    if isinstance(data_type, T.StringType):
        return text
    if isinstance(data_type, T.VariantType):
        return F.when(is_json_value(text), F.try_parse_json(text))
    for kind, make in _MAKERS.items():
        if isinstance(data_type, kind):
            return make(text, data_type)
    raise invalid(
        f"a column has the type {data_type.simpleString()}, to which no text converts",
        "define it as string, and convert it when you read the log.",
    )


def _matching(pattern: str) -> Callable[[Column, T.DataType], Column]:
    return lambda text, data_type: F.when(text.rlike(pattern), F.trim(text).try_cast(data_type))


def _date(text: Column, data_type: T.DataType) -> Column:
    day = F.regexp_extract(text, f"({_DATE})", 1)
    return F.when(text.rlike(_ONLY_DATE), F.trim(day).try_cast(data_type))


def _decimal(text: Column, data_type: T.DataType) -> Column:
    """Convert a decimal. More fraction digits than the scale of the type do not fit (Spark would round)."""
    assert isinstance(data_type, T.DecimalType)
    value, whole_digits = text.try_cast(data_type), data_type.precision - data_type.scale
    # Nearly all numbers have this form. This pattern alone costs a fifth of parsing the text.
    plain_number = rf"^[+-]?[0-9]{{1,{max(1, whole_digits)}}}(\.[0-9]{{0,{data_type.scale}}})?\z"
    exponent = F.coalesce(F.regexp_extract(F.trim(text), _EXPONENT, 1).try_cast("int"), F.lit(0))
    mantissa = F.regexp_extract(text, _MANTISSA, 1)
    places = F.length(F.regexp_extract(mantissa, r"\.(\d*)$", 1)) - exponent
    # Zeros at the end do not count, on either side of the decimal point.
    zeros = F.length(F.regexp_extract(F.translate(mantissa, ".", ""), "(0*)$", 1))
    fits = (places - zeros <= data_type.scale) | ~mantissa.rlike("[1-9]")
    return F.when(text.rlike(plain_number), value).when(text.rlike(_NUMBER) & fits, value)


def _floating(text: Column, data_type: T.DataType) -> Column:
    """Convert a floating point number. Too many digits, or a value beyond the range, do not fit."""
    digits = F.translate(F.regexp_extract(text, _MANTISSA, 1), ".", "")
    significant = F.length(F.rtrim(F.ltrim(digits, F.lit("0")), F.lit("0")))
    value = text.try_cast(data_type)
    is_infinite = F.abs(value) == F.lit(float("inf")).cast(data_type)
    # Nearly all numbers have this form. This pattern alone costs a fraction of the rules for the others.
    is_short = text.rlike(r"^-?[0-9]{1,12}(?:\.[0-9]{1,4})?\z")
    # Java also accepts a trailing d or f as a type suffix, and hexadecimal numbers.
    is_named = F.lower(text).rlike(r"inf|nan")
    fits = is_named | (text.rlike(_NUMBER) & (significant <= _DOUBLE_DIGITS) & ~is_infinite)
    return F.when(is_short | fits, value)


def _bytes(text: Column, encoding: str) -> Column:
    if encoding == "base64url":
        return F.try_to_binary(F.translate(text, "-_", "+/"), F.lit("base64"))
    if encoding == "hex":
        even = F.length(text) % 2 == 0
        return F.when(even & text.rlike(r"^[0-9A-Fa-f]*\z"), F.unhex(text))
    return F.try_to_binary(text, F.lit("base64"))


_MAKERS: dict[type[T.DataType], Callable[[Column, T.DataType], Column]] = {
    T.DecimalType: _decimal,
    T.FractionalType: _floating,
    T.IntegralType: lambda text, data_type: text.try_cast(data_type),
    T.BooleanType: lambda text, data_type: text.try_cast(data_type),
    T.DateType: _date,
    T.TimestampNTZType: _matching(_LOCAL_TIMESTAMP),
    T.TimestampType: _matching(_TIMESTAMP),
    T.BinaryType: lambda text, _: _bytes(text, "base64"),
}


def converted(value: Column, given: T.DataType, wanted: T.DataType) -> Column:
    """Return a typed value as a value of another type; NULL if it does not fit.

    A value fits if the reverse conversion restores it.
    """
    if given == wanted:
        return value
    if isinstance(given, T.StringType):
        return scalar(value, wanted)
    if isinstance(wanted, T.StringType):
        if isinstance(given, T.StructType | T.ArrayType | T.MapType):
            return F.to_json(value)
        return F.base64(value) if isinstance(given, T.BinaryType) else value.cast(wanted)
    if isinstance(given, T.StructType) and isinstance(wanted, T.StructType):
        return _struct_converted(value, given, wanted)
    if isinstance(given, T.ArrayType) and isinstance(wanted, T.ArrayType):
        given_element, wanted_element = given.elementType, wanted.elementType
        elements = F.transform(value, lambda element: converted(element, given_element, wanted_element))
        has_misfit = F.exists(
            value,
            lambda element: element.isNotNull() & converted(element, given_element, wanted_element).isNull(),
        )
        return F.when(~F.coalesce(has_misfit, F.lit(False)), elements)
    cast_value = value.try_cast(wanted)
    return F.when(cast_value.try_cast(given).eqNullSafe(value), cast_value)


def _struct_converted(value: Column, given: T.StructType, wanted: T.StructType) -> Column:
    """Convert each field. A missing field is NULL; the result has no fields that ``wanted`` lacks."""
    by_lower = {field.name.lower(): field for field in given.fields}
    fields, misfits = [], [F.lit(False)]
    for field in wanted.fields:
        given_field = by_lower.get(field.name.lower())
        if given_field is None:
            fields.append(F.lit(None).cast(field.dataType).alias(field.name))
            continue
        part = value.getField(given_field.name)
        converted_part = converted(part, given_field.dataType, field.dataType)
        misfits.append(part.isNotNull() & converted_part.isNull())
        fields.append(converted_part.alias(field.name))
    return F.when(value.isNotNull() & ~balanced(or_, misfits), F.struct(*fields))


def merged(one: T.DataType, other: T.DataType) -> T.DataType:
    """Return the first type. Objects at any depth also get the members of the other type."""
    if isinstance(one, T.StructType) and isinstance(other, T.StructType):
        other_fields = {field.name.lower(): field for field in other.fields}
        fields = [
            T.StructField(f.name, merged(f.dataType, other_fields[f.name.lower()].dataType))
            if f.name.lower() in other_fields
            else f
            for f in one.fields
        ]
        own_names = {field.name.lower() for field in one.fields}
        fields += [T.StructField(f.name, f.dataType) for f in other.fields if f.name.lower() not in own_names]
        return T.StructType(fields)
    if isinstance(one, T.ArrayType) and isinstance(other, T.ArrayType):
        return T.ArrayType(merged(one.elementType, other.elementType))
    return one


def spelt_otherwise(one: T.DataType, other: T.DataType) -> list[str]:
    """Return the members of ``other`` whose names differ from names of ``one`` only in case."""
    if isinstance(one, T.ArrayType) and isinstance(other, T.ArrayType):
        return spelt_otherwise(one.elementType, other.elementType)
    names: list[str] = []
    if isinstance(one, T.StructType) and isinstance(other, T.StructType):
        fields_by_name = {field.name.lower(): field for field in one.fields}
        for field in other.fields:
            same_field = fields_by_name.get(field.name.lower())
            if same_field is not None:
                names += [field.name] if same_field.name != field.name else []
                names += spelt_otherwise(same_field.dataType, field.dataType)
    return names


# -- encodings ----------------------------------------------------------------------------------
def decimal_text(unscaled: Column, scale: Column) -> Column:
    """Return a decimal as text.

    :param unscaled: the bytes of a whole number in two's complement, the highest byte first
    :param scale: the number of digits after the decimal point; a negative scale adds zeros
    :return: a whole number and a power of ten (``-125E-2``); NULL beyond 38 digits
    """
    digits = F.hex(unscaled)
    is_negative = digits.rlike("^[89A-F]")
    # The complement of a negative number is its absolute value minus one.
    inverted = F.translate(F.lpad(digits, 32, "F"), "0123456789ABCDEF", "FEDCBA9876543210")
    padded = F.when(is_negative, inverted).otherwise(F.lpad(digits, 32, "0"))
    high, low = [F.conv(F.substring(padded, start, 16), 16, 10).cast("decimal(38,0)") for start in (1, 17)]
    size = F.try_add(F.try_multiply(high, F.lit(str(2**64)).cast("decimal(38,0)")), low)
    size = F.try_add(size, F.when(is_negative, 1).otherwise(0).cast("decimal(38,0)"))
    sign = F.when(is_negative, F.lit("-")).otherwise(F.lit(""))
    text = F.concat(sign, size.cast("string"), F.lit("E"), (-scale).cast("string"))
    return F.when(F.length(unscaled).between(1, 16), text)


#: The microseconds of one unit, as a fraction (numerator, denominator).
_TO_MICROS: dict[str, tuple[int, int]] = {
    "s": (1_000_000, 1),
    "ms": (1_000, 1),
    "us": (1, 1),
    "ns": (1, 1_000),
}


def _micros(text: Column, unit: str) -> Column:
    """Return a whole number of units in microseconds, rounded down."""
    number, (factor, divisor) = text.try_cast("bigint"), _TO_MICROS[unit]
    if divisor == 1:
        return F.try_multiply(number, F.lit(factor)) if factor > 1 else number
    towards_zero = F.call_function("div", number, F.lit(divisor).cast("bigint"))
    return towards_zero - F.when((number < 0) & (number % divisor != 0), 1).otherwise(0)


def epoch_timestamp(text: Column, unit: str) -> Column:
    """Return the timestamp that is a number of units after 1970 (UTC). Drop fractions of a microsecond.

    :param unit: ``s``, ``ms``, ``us`` or ``ns``
    """
    micros = _micros(text, unit)
    # Spark computes timestamps after the year 9999, but cannot show them.
    return F.when(F.abs(micros) <= 253_402_300_799_999_999, F.timestamp_micros(micros))


def epoch_date(text: Column) -> Column:
    """Return the date that is a number of days after 1970-01-01."""
    days = text.try_cast("int")
    return F.when(F.abs(days) <= 2_932_896, F.date_from_unix_date(days))


def time_of_day(text: Column, unit: str) -> Column:
    """Return a time since midnight as ``HH:MM:SS.ffffff``. In MySQL it may be negative or exceed a day."""
    micros = _micros(text, unit)
    size = F.abs(micros)
    seconds = F.call_function("div", size, F.lit(1_000_000).cast("bigint"))
    hours = F.call_function("div", seconds, F.lit(3600).cast("bigint"))
    hours_text = hours.cast("string")
    return F.concat(
        F.when(micros < 0, F.lit("-")).otherwise(F.lit("")),
        F.lpad(hours_text, F.greatest(F.length(hours_text), F.lit(2)), F.lit("0")),
        *[
            part
            for mark, number, width in (
                (":", F.call_function("div", seconds, F.lit(60).cast("bigint")) % 60, 2),
                (":", seconds % 60, 2),
                (".", size % 1_000_000, 6),
            )
            for part in (F.lit(mark), F.lpad(number.cast("string"), width, "0"))
        ],
    )


# -- parts of sequences -------------------------------------------------------------------------
#: The number of digits of 64 bits. More would be too wide, because Delta's statistics keep only the first 32
#: characters of a text.
_WIDTH = 20


def digits(text: Column, width: int) -> Column:
    """Return a whole number from 0 as text of a fixed width. Such texts sort by number.

    :return: NULL if the text is not such a number, or the number is wider
    """
    padded = F.right(F.concat(F.lit("0" * width), F.trim(text)), F.lit(width))
    return F.when(text.rlike(rf"^ *0*[0-9]{{1,{width}}} *\z"), padded)


def numbers(text: Column) -> Column:
    """Return whole numbers, separated by ``/`` or ``:``, as one text. Such texts sort by number.

    :return: NULL if the text has other parts, or a number has more than 20 digits
    """
    parts = F.split(text, "[/:]")
    padded = F.transform(parts, lambda number: F.lpad(number, _WIDTH, "0"))
    is_one_number = text.rlike(rf"^[0-9]{{1,{_WIDTH}}}\z")
    fits = text.rlike(rf"^[0-9]{{1,{_WIDTH}}}([/:][0-9]{{1,{_WIDTH}}})*\z")
    # Spark interprets transform(), and most sequences are one number.
    return F.when(is_one_number, F.lpad(text, _WIDTH, "0")).when(fits, F.array_join(padded, "/"))


def part(value: Column, data_type: T.DataType) -> Column | None:
    """Return a value as text. The texts sort in the order of the values.

    :param value: a whole number, a date or a timestamp
    :return: None for other types, because they have no such text
    """
    if isinstance(data_type, T.IntegralType | T.DecimalType):
        if isinstance(data_type, T.DecimalType) and data_type.scale:
            return None
        # Use at least the width of numbers(), because ``schema`` may define the column's type later.
        width = max(_WIDTH, data_type.precision if isinstance(data_type, T.DecimalType) else 0)
        # A negative number becomes its distance to the greatest number of this width, so that -1 is above -2.
        nines = F.lit("9" * width).cast("decimal(38,0)")
        distance = F.try_add(nines, value.cast("decimal(38,0)")).cast("string")
        negative = F.concat(F.lit("-"), F.lpad(distance, width, "0"))
        return F.when(value < 0, negative).otherwise(F.lpad(value.cast("string"), width, "0"))
    if isinstance(data_type, T.DateType):
        return F.when(F.year(value).between(0, 9999), F.date_format(value, "yyyy-MM-dd"))
    if isinstance(data_type, T.TimestampType | T.TimestampNTZType):
        timestamp_text = F.date_format(value, "yyyy-MM-dd HH:mm:ss.SSSSSS")
        return F.when(F.year(value).between(0, 9999), timestamp_text)
    return None


# -- trees of values ----------------------------------------------------------------------------
@dataclass(frozen=True)
class Value:
    """The type of a column, and the encoding of its values.

    :param data_type: the type of the column
    :param coding: the encoding of one value: ``text`` (:func:`scalar`), ``decimal:<scale>`` (base64 of
        :func:`decimal_text`), ``scaled`` (an object of scale and value), ``decimal_or_scaled:<scale>``,
        ``days``, ``epoch:<unit>``, these two with ``_or_text``, ``time:<unit>``,
        ``bytes:<base64|base64url|hex>``
    :param fields: the fields of a struct
    :param element: the element of an array, or the value of a map
    :param misspelt: members whose names have another case in records of the batch than in the log
    """

    data_type: T.DataType
    coding: str = "text"
    fields: tuple[tuple[str, Value], ...] = ()
    element: Value | None = None
    misspelt: tuple[str, ...] = ()


def plain_value(data_type: T.DataType) -> Value:
    """Return the plain encoding of a type and of its parts."""
    if isinstance(data_type, T.StructType):
        fields = tuple((field.name, plain_value(field.dataType)) for field in data_type.fields)
        return Value(data_type, fields=fields)
    if isinstance(data_type, T.ArrayType):
        return Value(data_type, element=plain_value(data_type.elementType))
    if isinstance(data_type, T.MapType):
        if not isinstance(data_type.keyType, T.StringType):
            raise invalid(
                f"a column has the type {data_type.simpleString()}",
                "define it as map<string, …>: in JSON, the keys of a map are texts.",
            )
        return Value(data_type, element=plain_value(data_type.valueType))
    return Value(data_type)


def aimed(value: Value, wanted: T.DataType) -> Value:
    """Return the same encoding with another type, that of the log or of the user."""
    if value.fields and isinstance(wanted, T.StructType):
        encodings = dict(value.fields)
        fields = tuple(
            (f.name, aimed(encodings[f.name], f.dataType) if f.name in encodings else plain_value(f.dataType))
            for f in wanted.fields
        )
        fields += tuple((name, below) for name, below in value.fields if name not in wanted.names)
        return Value(_struct(fields), value.coding, fields=fields)
    if value.element is not None and isinstance(wanted, T.ArrayType | T.MapType):
        inner = wanted.elementType if isinstance(wanted, T.ArrayType) else wanted.valueType
        element = aimed(value.element, inner)
        return Value(_around(wanted, element.data_type), value.coding, element=element)
    if value.fields or value.element is not None:
        # A text type holds the whole JSON text. For other types, no value fits.
        return plain_value(wanted)
    return Value(wanted, value.coding) if value.coding != "text" else plain_value(wanted)


def _struct(fields: tuple[tuple[str, Value], ...]) -> T.StructType:
    return T.StructType([T.StructField(name, value.data_type) for name, value in fields])


def _around(outer: T.DataType, inner: T.DataType) -> T.DataType:
    if isinstance(outer, T.MapType):
        return T.MapType(outer.keyType, inner)
    return T.ArrayType(inner)


def wire(value: Value) -> T.DataType:
    """Return the schema of an encoded value. All leaf values are strings."""
    if value.coding == "scaled":
        return T.StructType().add("scale", "string").add("value", "string")
    if value.fields:
        return T.StructType([T.StructField(name, wire(below)) for name, below in value.fields])
    if value.element is not None:
        inner = wire(value.element)
        is_map = isinstance(value.data_type, T.MapType)
        return T.MapType(T.StringType(), inner) if is_map else T.ArrayType(inner)
    return T.StringType()


#: By default, Spark's JSON reader accepts more than JSON. It also ignores text after the first value, and no
#: option changes this; so use :func:`is_json_value`.
JSON_OPTIONS = {"mode": "PERMISSIVE", "allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}


#: Text that no record contains; :func:`is_json_value` checks that.
_END = "__delta_cdc_end"


def is_json_value(text: Column) -> Column:
    """Return whether a text is exactly one JSON value, strictly by RFC 8259; false for NULL.

    Spark's readers ignore text after the first value. So this function parses ``[<text>,"<end>"]``: ``<end>``
    is the second element only if the text before it is one value. ``1],[2`` ends the array too early, and
    ``1, 2`` has another second element. A text that spells ``<end>`` itself, or could do so by escapes, is
    parsed twice instead, inside an object and inside an array: text that closes or extends the object does
    not fit the array, and vice versa.
    """
    with_end = F.try_parse_json(F.concat(F.lit("["), text, F.lit(f',"{_END}"]')))
    is_followed = F.try_variant_get(with_end, "$[1]", "string") == _END
    in_object = F.try_parse_json(F.concat(F.lit('{"v":'), text, F.lit("}")))
    in_array = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
    fits_both = in_object.isNotNull() & (in_array == 1)
    may_spell = text.contains("\\u") | text.contains(_END)
    return F.coalesce(F.when(may_spell, fits_both).otherwise(is_followed), F.lit(False))


def texts(text: Column) -> Column:
    """Return a JSON array as an array of texts; NULL if the text is not a JSON array."""
    return F.when(is_json_value(text), F.from_json(text, "array<string>", JSON_OPTIONS))


def decoded(text: Column, value: Value) -> Column:
    """Return a text as a value; NULL if a part of the value does not fit.

    :param text: plain text, or JSON for nested values
    """
    shape = wire(value)
    if isinstance(shape, T.StringType):
        return _leaf(text, value)
    wrapper = T.StructType().add("v", shape).add("broken", "string")
    options = {**JSON_OPTIONS, "columnNameOfCorruptRecord": "broken"}
    parsed = F.from_json(F.concat(F.lit('{"v":'), text, F.lit("}")), wrapper, options)
    fitted, misfits = _fitted(parsed.getField("v"), value)
    return F.when(parsed.getField("broken").isNull() & ~misfits & is_json_value(text), fitted)


def _fitted(parsed: Column, value: Value) -> tuple[Column, Column]:
    """Return a value that is built from its parts, and whether a part does not fit."""
    if value.fields and value.coding == "text":
        parts = {name: _fitted(parsed.getField(name), below) for name, below in value.fields}
        built = F.struct(*[fitted.alias(name) for name, (fitted, _) in parts.items()])
        return F.when(parsed.isNotNull(), built), balanced(
            or_, [is_misfit for _, is_misfit in parts.values()]
        )
    if value.element is not None:
        element = value.element
        if isinstance(value.data_type, T.MapType):
            built = F.transform_values(parsed, lambda _, item: _fitted(item, element)[0])
            is_misfit = F.exists(F.map_values(parsed), lambda item: _fitted(item, element)[1])
        else:
            built = F.transform(parsed, lambda item: _fitted(item, element)[0])
            is_misfit = F.exists(parsed, lambda item: _fitted(item, element)[1])
        return built, F.coalesce(is_misfit, F.lit(False))
    fitted = _leaf(parsed, value)
    return fitted, parsed.isNotNull() & fitted.isNull()


def _leaf(text: Column, value: Value) -> Column:
    kind, _, detail = value.coding.partition(":")
    data_type = value.data_type
    if kind == "decimal":
        return _number(decimal_text(_bytes(text, "base64"), F.lit(int(detail))), int(detail), data_type)
    if kind == "scaled":
        scale = text.getField("scale").try_cast("int")
        return _number(decimal_text(_bytes(text.getField("value"), "base64"), scale), 18, data_type)
    if kind == "decimal_or_scaled":
        scaled_type = T.StructType().add("scale", "string").add("value", "string")
        scaled_object = F.from_json(F.when(is_json_value(text), text), scaled_type, JSON_OPTIONS)
        scaled_number = _leaf(scaled_object, Value(data_type, "scaled"))
        return F.when(text.startswith("{"), scaled_number).otherwise(
            _leaf(text, Value(data_type, f"decimal:{detail}"))
        )
    if kind == "bytes":
        return converted(_bytes(text, detail), T.BinaryType(), data_type)
    if kind == "text":
        return scalar(text, data_type)
    if kind.endswith("_or_text"):
        number = _moment(text, kind.removesuffix("_or_text"), detail, data_type)
        return F.when(text.rlike(r"^\s*-?\d+\s*\z"), number).otherwise(scalar(text, data_type))
    return _moment(text, kind, detail, data_type)


def _number(text: Column, scale: int, data_type: T.DataType) -> Column:
    if isinstance(data_type, T.StringType):
        return _decimal(text, T.DecimalType(38, min(max(scale, 0), 38))).cast(data_type)
    if isinstance(data_type, T.IntegralType):
        return converted(_decimal(text, T.DecimalType(38, 0)), T.DecimalType(38, 0), data_type)
    return scalar(text, data_type)


def _moment(text: Column, kind: str, unit: str, data_type: T.DataType) -> Column:
    if isinstance(data_type, T.IntegralType):
        return text.try_cast(data_type)
    if kind == "days":
        return converted(epoch_date(text), T.DateType(), data_type)
    if kind == "time":
        return converted(time_of_day(text, unit), T.StringType(), data_type)
    return converted(epoch_timestamp(text, unit), T.TimestampType(), data_type)
