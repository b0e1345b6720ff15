"""Turn a decoded value into exactly the value of its column, or find that it does not fit.

A decoded value is what :class:`~delta_cdc.ingest.record.Record` contains. :func:`converter` returns, once for
a column, the function for its values: it returns None for None, the value as Arrow takes it, or
:data:`MISFIT`. No function here truncates, rounds or guesses. They only drop fractions of a microsecond,
because no type of Spark holds these. None raises for what a record contains, and none needs more than linear
time: no number is computed before its size is known.

| type | as Arrow takes it |
|---|---|
| whole numbers | ``int`` within the bits of the type |
| decimal | ``Decimal`` of exactly the type's scale |
| date | days since 1970 |
| timestamp, timestamp_ntz | microseconds since 1970 |
| variant | JSON text |
| map | list of pairs |
| struct | ``dict`` with all fields of the type |
"""

from __future__ import annotations

import re
import struct
from base64 import b64encode
from binascii import a2b_base64, unhexlify
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache, partial
from json.encoder import encode_basestring, encode_basestring_ascii
from math import isfinite
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from delta_cdc.ingest.record import Invalid, Number
from delta_cdc.ingest.records.json import value as json_value
from delta_cdc.ingest.types import BITS, STRING, Type

_Convert = Callable[[Any], Any]


class _Misfit:
    """The class of :data:`MISFIT`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISFIT"


#: The result for a value that does not fit its type.
MISFIT: Final = _Misfit()


@dataclass(frozen=True)
class Encoding:
    """The type of a column, and how records write its values.

    :param type: the type of the column
    :param coding: how a value is written: ``text`` (as itself, or as text), ``decimal:<scale>`` (the bytes of
        a whole number, or their base64), ``scaled`` (an object of scale and value),
        ``decimal_or_scaled:<scale>``, ``days``, ``iso`` (a text whose ``Z`` means no zone), ``days_or_iso``,
        ``epoch:<unit>``, ``time:<unit>``, these two with ``_or_text``, ``bytes:<base64|base64url|hex>``,
        ``extended`` (MongoDB's extended JSON, at any depth)
    :param fields: the fields of a struct
    :param element: the element of an array, or the value of a map
    """

    type: Type
    coding: str = "text"
    fields: tuple[tuple[str, Encoding], ...] = ()
    element: Encoding | None = None


def plain(kind: Type) -> Encoding:
    """Return the plain encoding of a type and of its parts."""
    return _parted(kind, "text")


def _parted(kind: Type, coding: str) -> Encoding:
    fields = tuple((name, _parted(part, coding)) for name, part in kind.fields)
    element = None if kind.element is None else _parted(kind.element, coding)
    return Encoding(kind, coding, fields, element)


def aimed(encoding: Encoding, wanted: Type) -> Encoding:
    """Return the same encoding with another type, that of the log or of the user."""
    if encoding.type == wanted:
        return encoding
    if encoding.coding == "extended":
        return _parted(wanted, "extended")
    if encoding.fields and wanted.name == "struct":
        own = dict(encoding.fields)
        fields = tuple(
            (name, aimed(own[name], kind) if name in own else plain(kind)) for name, kind in wanted.fields
        )
        return Encoding(wanted, encoding.coding, fields)
    if encoding.element is not None and wanted.element is not None:
        return Encoding(wanted, encoding.coding, element=aimed(encoding.element, wanted.element))
    if encoding.fields or encoding.element is not None or encoding.coding == "text":
        # A text type holds the whole JSON text. For other types, no value fits.
        return plain(wanted)
    return Encoding(wanted, encoding.coding)


def converter(encoding: Encoding) -> _Convert:
    """Return the function that turns decoded values into values of the column."""
    kind, _, detail = encoding.coding.partition(":")
    return _CODINGS[kind](encoding, detail)


# -- numbers ------------------------------------------------------------------------------------
#: Blanks around a value do not count.
_BLANKS = " \t\n\r\x0b\x0c"
#: All repetitions are possessive, so that a match is linear.
_NUMBER = re.compile(r"([+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++))(?:[eE][+-]?+[0-9]++)?+")
_UNFIT = (InvalidOperation, Inexact)
_WHOLE = Context(prec=40, traps=list(_UNFIT))
_ONE = Decimal(1)
#: Texts of numbers beyond the finite ones.
_NAMED = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), float("inf")),
    **dict.fromkeys(("-inf", "-infinity"), float("-inf")),
    **dict.fromkeys(("nan", "+nan", "-nan"), float("nan")),
}
#: Up to here, each whole number is a double.
_DOUBLE_WHOLE = 2**53
#: With this number of digits, a text restores each number of the type exactly.
_DOUBLE_DIGITS, _FLOAT_DIGITS = 17, 9
#: The least numbers with all their digits.
_DOUBLE_NORMAL, _FLOAT_NORMAL = 2.0**-1022, 2.0**-126
#: The most bits of a whole number that is written out.
_MOST_BITS = 10_000


def _fitting(read: _Convert) -> _Convert:
    """Return the converter of a reader, which returns None for what does not fit."""

    def convert(value: Any) -> Any:
        if value is None:
            return None
        found = read(value)
        return MISFIT if found is None else found

    return convert


def _decimal(text: str) -> Decimal | None:
    """Return a text in decimal notation as a number; None if it is no number, or has an absurd exponent."""
    text = text.strip(_BLANKS)
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        # Its exponent has more than 18 digits.
        return None if match[1].strip("+-0.") else Decimal(0)


def _decimal_of(value: Any) -> Decimal | None:
    """Return a finite number as a decimal, a float by its shortest text; None for all else."""
    if isinstance(value, str):
        return _decimal(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value) if value.bit_length() <= _MOST_BITS else None
    if isinstance(value, float):
        value = Decimal(repr(float(value)))
    return value if isinstance(value, Decimal) and value.is_finite() else None


def _exactly(number: Decimal | None, unit: Decimal, context: Context) -> Decimal | None:
    """Return a number with the digits after the point of a unit; None if it has more, or is too long."""
    try:
        return None if number is None else number.quantize(unit, None, context)
    except _UNFIT:
        return None


def _integer(value: Any) -> int | None:
    """Return a whole number of at most 40 digits, however it is written; None for all else."""
    if isinstance(value, int):
        return None if isinstance(value, bool) else int(value)
    if isinstance(value, str) and len(value) < 20 and value.isdigit() and value.isascii():
        return int(value)
    found = _exactly(_decimal_of(value), _ONE, _WHOLE)
    return None if found is None else int(found)


def _whole(kind: Type) -> _Convert:
    half = 1 << (BITS[kind.name] - 1)
    low, high = -half, half - 1

    def convert(value: Any) -> Any:
        if type(value) is int:
            return value if low <= value <= high else MISFIT
        if value is None:
            return None
        number = _integer(value)
        return number if number is not None and low <= number <= high else MISFIT

    return convert


def _decimals(kind: Type) -> _Convert:
    scale, most = kind.scale, kind.precision - kind.scale
    unit = Decimal((0, (1,), -scale))
    context = Context(prec=kind.precision, traps=list(_UNFIT))

    def convert(value: Any) -> Any:
        if isinstance(value, str):
            whole, _, places = value.partition(".")
            if whole.removeprefix("-").isdigit() and (places.isdigit() or not places) and value.isascii():
                found: Decimal | None = Decimal(value)
                if len(places) == scale and len(whole) <= most:
                    # These are digits of the type.
                    return found
            else:
                found = _decimal(value)
        elif value is None:
            return None
        else:
            found = _decimal_of(value)
        found = _exactly(found, unit, context)
        return MISFIT if found is None else found

    return convert


def _double(value: Any) -> Any:
    kind = type(value)
    if kind is float or value is None:
        return value
    if kind is Number and len(value) <= 20 and value[-1:] != "0":
        whole, _, places = value.partition(".")
        whole = whole.removeprefix("-")
        if places.isdigit() and whole.isdigit() and len(whole.lstrip("0")) + len(places) <= _DOUBLE_DIGITS:
            # A fraction of few digits: neither its size nor its digits are beyond a double.
            return float(value)
    if isinstance(value, float) or (kind is int and -_DOUBLE_WHOLE <= value <= _DOUBLE_WHOLE):
        return float(value)
    found = _floated(value, float, _DOUBLE_DIGITS, _DOUBLE_NORMAL)
    return MISFIT if found is None else found


def _single(value: Any) -> float | None:
    if isinstance(value, float):
        found = _rounded(value)
        return found if found == value or value != value else None
    return _floated(value, _rounded, _FLOAT_DIGITS, _FLOAT_NORMAL)


def _rounded(value: str | float) -> float:
    """Return the nearest number of 32 bits; infinity if it is too large."""
    try:
        return float(struct.unpack("f", struct.pack("f", float(value)))[0])
    except OverflowError:
        return float("inf")


def _floated(value: Any, read: Callable[[str], float], digits: int, normal: float) -> float | None:
    """Return the floating point number for a text or an exact number, if it is this number.

    It is if it is equal, or if its first digits are all those of the text. A fraction may also have as many
    digits as restore each number of the type, because it may be written with more digits than needed.
    """
    text = _number_text(value)
    named = _NAMED.get(text.lower()) if len(text) < 10 else None
    match = _NUMBER.fullmatch(text)
    if named is not None or match is None:
        return named
    found = read(text)
    mantissa = match[1]
    significant = mantissa.lstrip("+-0.").replace(".", "").rstrip("0")
    if not significant:
        return found
    exact = _decimal(text)
    if exact is None or found in (float("inf"), float("-inf")):
        return None
    if Decimal(found) == exact:
        return found
    count = len(significant)
    if count > _DOUBLE_DIGITS or len(text) == len(mantissa.replace(".", "")):
        # Whole numbers without point and exponent are exact, or do not fit.
        return None
    if count <= digits and abs(found) >= normal and exact.adjusted() - count + 1 < 0:
        return found
    first = f"{abs(found):.{count - 1}e}".partition("e")[0].replace(".", "")
    return found if first == significant else None


def _number_text(value: Any) -> str:
    """Return the text of what may be a number; "" for all else."""
    if isinstance(value, str):
        return value.strip(_BLANKS)
    is_number = isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= _MOST_BITS
    return str(value) if is_number or isinstance(value, Decimal) else ""


# -- booleans and texts -------------------------------------------------------------------------
_BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}


def _boolean(value: Any) -> bool | None:
    if isinstance(value, str):
        text = value.strip(_BLANKS)
        return _BOOLEANS.get(text.lower()) if len(text) <= 5 else None
    return bool(value) if type(value) in (bool, int) and value in (0, 1) else None


def _string(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return value if value.isascii() or _is_text(value) else MISFIT
    if value is None:
        return None
    make = _TEXTS.get(kind)
    if make is None:
        make = next((make for base, make in _TEXTS.items() if isinstance(value, base)), _never)
    return make(value)


def _is_text(text: str) -> bool:
    """Return whether a text is without half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _decimal_text(value: Decimal) -> str:
    if not value.is_finite():
        return _not_finite(value)
    text = str(value)
    # The notation with exponent only where the plain one would be long.
    return f"{value:f}" if "E" in text and abs(value.adjusted()) <= 400 else text


def _not_finite(value: float | Decimal) -> str:
    """Return how Spark writes a number that is not finite."""
    text = str(value).lower().lstrip("s")
    return "NaN" if "nan" in text else "-Infinity" if text.startswith("-") else "Infinity"


def _base64_text(data: bytes) -> str:
    return b64encode(data).decode()


def _never(value: Any) -> Any:
    return None if value is None else MISFIT


# -- bytes --------------------------------------------------------------------------------------
_WITHOUT_BLANKS = dict.fromkeys(map(ord, _BLANKS))
_URL_SAFE = str.maketrans("-_", "+/")


def _base64(text: str) -> bytes:
    """Return the bytes of base64, with or without line breaks.

    Without its padding, a text may be something else: ``12`` a number, ``0x0102`` hexadecimal digits.

    :raises ValueError: it is not base64, or lacks its padding
    """
    try:
        return a2b_base64(text, strict_mode=True)
    except ValueError:
        return a2b_base64(text.translate(_WITHOUT_BLANKS), strict_mode=True)


def _base64url(text: str) -> bytes:
    """Return the bytes of base64 for URLs, with or without padding.

    :raises ValueError: it is not base64
    """
    text = text.translate(_URL_SAFE).translate(_WITHOUT_BLANKS)
    return _base64(text if "=" in text else text + "=" * (-len(text) % 4))


def _hex(text: str) -> bytes:
    """Return the bytes of hexadecimal digits, with or without ``0x`` before them.

    :raises ValueError: it has other characters, or half of a byte
    """
    return unhexlify(text[2:] if text[:2] in ("0x", "0X") else text)


#: How texts write bytes.
_BYTES: dict[str, Callable[[str], bytes]] = {
    "base64": _base64,
    "base64url": _base64url,
    "hex": _hex,
}


def _bytes_of(value: Any, read: Callable[[str], bytes] = _base64) -> bytes | None:
    if isinstance(value, bytes):
        return value
    # A number is not base64, though its digits may look like it.
    if not isinstance(value, str) or isinstance(value, Number):
        return None
    try:
        return read(value)
    except ValueError:
        return None


# -- dates and times ----------------------------------------------------------------------------
_DAY = 86_400_000_000
_SECOND = 1_000_000
#: The years 1 to 9999 in days and microseconds since 1970: no other reader of Delta shows more.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_FIRST, _LAST = _FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DATE = r"([+-]?)([0-9]{4,6})-([0-9]{1,2})-([0-9]{1,2})"
_REGION = r"[A-Za-z]+(?:/[A-Za-z0-9_+-]+)+"
_ZONE = (
    rf"Z|UTC|GMT|{_REGION}|\[{_REGION}\]"
    rf"|[+-][0-9]{{1,2}}(?::?[0-9]{{2}})?(?::?[0-9]{{2}})?(?:\[{_REGION}\])?"
)
#: GoldenGate writes a colon between the date and the time.
_MOMENT = re.compile(
    rf"{_DATE}(?:[T :]([0-9]{{1,2}}):([0-9]{{1,2}})(?::([0-9]{{1,2}})(?:[.,]([0-9]*+))?)?"
    rf"(?:[ \t]?({_ZONE}))?)?"
)
#: Python reads more than this: 24 o'clock, and what is between the seconds and a zone.
_USUAL = re.compile(r"(\d{4}-\d\d-\d\d[T ](?!24)\d\d:\d\d:\d\d(?:\.\d++)?)(Z|[+-]\d\d:\d\d)?", re.ASCII)
_OFFSET = re.compile(r"([+-])([0-9]{1,2})(?::?([0-9]{2}))?(?::?([0-9]{2}))?(?:\[(.*)\])?")
_MOST_OFFSET = 18 * 3600
#: The longest text of a moment: all parts, and a fraction. A longer one is no moment.
_MOST_MOMENT = 200
#: The microseconds of one unit, as a fraction (numerator, denominator).
_UNITS = {"d": (_DAY, 1), "s": (_SECOND, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}


def _within(micros: int) -> int | None:
    return micros if _FIRST <= micros <= _LAST else None


def _since(moment: datetime) -> int:
    """Return the microseconds from 1970 to a moment; one without zone is in UTC."""
    delta = moment - (_LOCAL_EPOCH if moment.tzinfo is None else _EPOCH)
    return (delta.days * 86_400 + delta.seconds) * _SECOND + delta.microseconds


def _read_moment(text: str, zoned: bool) -> int | None:
    """Return the microseconds of a text; None if it is no moment.

    :param zoned: the text may name a zone; without one, it is in UTC
    """
    local, zone = _usual_moment(text)
    if local is None:
        match = _MOMENT.fullmatch(text.strip(_BLANKS)) if len(text) <= _MOST_MOMENT else None
        if match is None:
            return None
        local, zone = _local(match), match[9]
    if local is None or (zone and not zoned):
        return None
    if not zone or zone == "Z":
        return _since(local)
    offset = _offset(zone, local)
    return None if offset is None else _within(_since(local) - offset * _SECOND)


def _usual_moment(text: str) -> tuple[datetime | None, str | None]:
    """Return a moment that Python itself reads, and its zone."""
    match = _USUAL.fullmatch(text)
    if match is None:
        return None, None
    moment, zone = match.groups()
    try:
        return datetime.fromisoformat(moment), zone
    except ValueError:
        return None, None


def _local(match: re.Match[str]) -> datetime | None:
    year, month, day, hour, minute, second = (int(part or 0) for part in match.group(2, 3, 4, 5, 6, 7))
    micros = int(f"{match[8]:0<6.6}") if match[8] else 0
    try:
        found = datetime(year, month, day, hour, minute, second, micros)  # noqa: DTZ001
    except ValueError:
        return None
    return None if match[1] == "-" else found


def _offset(text: str, local: datetime) -> int | None:
    """Return the seconds between a zone and UTC; None for an unknown zone, or if a clock change repeats or
    skips the time.
    """
    if text in ("Z", "UTC", "GMT"):
        return 0
    if text[0] in "+-":
        return _fixed_offset(text)
    zone = _zone(text.strip("[]"))
    if zone is None:
        return None
    try:
        offsets = {zone.utcoffset(local.replace(fold=fold)) for fold in (0, 1)}
    except OverflowError:
        # At the ends of Python's calendar.
        return None
    offset = offsets.pop()
    return None if offsets or offset is None else int(offset.total_seconds())


@lru_cache(maxsize=1_000)
def _fixed_offset(text: str) -> int | None:
    match = _OFFSET.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.group(2, 3, 4))
    size = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or size > _MOST_OFFSET or (match[5] and _zone(match[5]) is None):
        return None
    return -size if match[1] == "-" else size


@lru_cache(maxsize=1_000)
def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        # Unknown; not a name of a zone; the name of a folder of zones.
        return None


def _timestamps(zoned: bool) -> _Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, str):
            found = _read_moment(value, zoned)
        elif isinstance(value, datetime):
            found = _within(_since(value))
        elif isinstance(value, date):
            found = (value.toordinal() - _EPOCH_DAY) * _DAY
        else:
            return _never(value)
        return MISFIT if found is None else found

    return convert


def _day(value: Any) -> int | None:
    if isinstance(value, str):
        return _read_day(value)
    if isinstance(value, datetime):
        return _midnight(_since(value))
    return value.toordinal() - _EPOCH_DAY if isinstance(value, date) else None


def _read_day(text: str) -> int | None:
    if len(text) == 10 and text[4] == "-" == text[7]:
        try:
            return date.fromisoformat(text).toordinal() - _EPOCH_DAY
        except ValueError:
            # No date, or one with a blank.
            pass
    match = _MOMENT.fullmatch(text.strip(_BLANKS)) if len(text) <= _MOST_MOMENT else None
    local = None if match is None else _local(match)
    if match is None or local is None or (match[8] or "").strip("0"):
        return None
    return _midnight(_since(local))


def _midnight(micros: int) -> int | None:
    """Return the day of a moment; any other time of day than midnight would be lost."""
    days, rest = divmod(micros, _DAY)
    return None if rest or not _FIRST_DAY <= days <= _LAST_DAY else days


def _day_text(days: int) -> str:
    return date.fromordinal(days + _EPOCH_DAY).isoformat()


def _moment_text(micros: int) -> str:
    """Return a moment within the years 1 to 9999 as Spark shows it, in UTC."""
    days, rest = divmod(micros, _DAY)
    clock = _clock_text(rest)
    return f"{_day_text(days)} {clock.rstrip('0') if rest % _SECOND else clock[:8]}"


def _clock_text(micros: int) -> str:
    """Return a time since midnight as ``HH:MM:SS.ffffff``. In MySQL it may be negative or exceed a day."""
    seconds, rest = divmod(abs(micros), _SECOND)
    sign = "-" if micros < 0 else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:06d}"


def _clock(value: time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * _SECOND + value.microsecond


def _in_micros(value: Any, unit: str) -> int | None:
    """Return a whole number of units, within 64 bits, in microseconds, rounded down."""
    number = _integer(value)
    if number is None or not -(2**63) <= number < 2**63:
        return None
    factor, divisor = _UNITS[unit]
    return number * factor // divisor


def epoch_micros(value: Any, unit: str) -> int | None:
    """Return the moment that is a number of units after 1970, in microseconds.

    :param unit: ``s``, ``ms``, ``us`` or ``ns``
    :return: None if the value is no whole number, or beyond the years 1 to 9999
    """
    micros = _in_micros(value, unit)
    return None if micros is None else _within(micros)


#: The largest number of each unit that is a moment before the year 10000.
_LARGEST = [(unit, _LAST * _UNITS[unit][1] // _UNITS[unit][0]) for unit in ("s", "ms", "us", "ns")]


def timestamp_micros(value: Any) -> int | None:
    """Return the moment that a value means, in microseconds since 1970, for display only.

    A number counts seconds, milliseconds, microseconds or nanoseconds: the first of these that is a moment
    before the year 10000.
    """
    if isinstance(value, (date, str)) and not isinstance(value, Number):
        found = _ZONED(value)
        return None if found is MISFIT else int(found)
    number = _integer(value)
    if number is None:
        exact = _decimal_of(value)
        if exact is None or not -20 < exact.adjusted() < 20:
            return None
        # Seconds with a fraction.
        return _within(int(exact.scaleb(6, _WIDE).to_integral_value("ROUND_FLOOR", _WIDE)))
    unit = next((unit for unit, largest in _LARGEST if abs(number) <= largest), None)
    return None if unit is None else epoch_micros(number, unit)


_WIDE = Context(prec=60, traps=[])
_ZONED = _timestamps(zoned=True)


# -- JSON ---------------------------------------------------------------------------------------
class _Written(str):
    """Text that is JSON already."""

    __slots__ = ()


def json_text(value: Any) -> str:
    """Return the compact JSON of a decoded value. Each number is as it was, bytes are base64, dates ISO."""
    text = _json(value, encode_basestring)
    # Half of a surrogate pair is no text, so that it must be an escape.
    return text if _is_text(text) else _json(value, encode_basestring_ascii)


def _json(value: Any, quoted: Callable[[str], str]) -> str:
    """Return the JSON of a value, without recursion."""
    written: list[str] = []
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            parts = [(f",{quoted(str(name))}:", member) for name, member in item.items()]
        elif isinstance(item, list | tuple):
            parts = [(",", element) for element in item]
        else:
            written.append(_scalar_json(item, quoted))
            continue
        begin, end = "{}" if isinstance(item, dict) else "[]"
        written.append(begin)
        waiting.append(_Written(end))
        for at in range(len(parts) - 1, -1, -1):
            mark, part = parts[at]
            waiting += (part, _Written(mark if at else mark[1:]))
    return "".join(written)


def _scalar_json(value: Any, quoted: Callable[[str], str]) -> str:
    if isinstance(value, str):
        return str(value) if isinstance(value, _Written | Number) else quoted(value)
    if value is None:
        return "null"
    if isinstance(value, datetime):
        return quoted(value.isoformat().replace("+00:00", "Z"))
    if isinstance(value, Decimal) and value.is_finite():
        return str(Decimal(value))
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f'"{hex(value)}"'
    text = _string(value)
    if text is MISFIT:
        return quoted(f"<{type(value).__name__}>")
    is_bare = isinstance(value, int) or (isinstance(value, float) and isfinite(value))
    return str(text) if is_bare else quoted(text)


def _moment_or_misfit(value: datetime) -> Any:
    micros = _within(_since(value))
    return MISFIT if micros is None else _moment_text(micros)


#: How values of each class become text. A class comes before its base.
_TEXTS: dict[type, _Convert] = {
    Number: str,
    str: lambda value: str(value) if _is_text(value) else MISFIT,
    bool: lambda value: "true" if value else "false",
    int: lambda value: str(int(value)) if value.bit_length() <= _MOST_BITS else MISFIT,
    float: lambda value: repr(float(value)) if isfinite(value) else _not_finite(value),
    Decimal: _decimal_text,
    **dict.fromkeys((dict, list, tuple), json_text),
    bytes: _base64_text,
    datetime: _moment_or_misfit,
    date: date.isoformat,
    time: lambda value: _clock_text(_clock(value)),
    timedelta: lambda value: _clock_text(value // timedelta(microseconds=1)),
    UUID: str,
}
#: Spark's parser refuses longer numbers, and its variants hold decimals of this number of digits.
_MOST_NUMBER, _VARIANT_DIGITS = 1_000, 38


def _variant(value: Any) -> Any:
    """Return JSON; a text must be JSON itself."""
    if value is None:
        return None
    if isinstance(value, str) and not isinstance(value, Number):
        found = _parsed(value)
        return MISFIT if found is MISFIT or not _is_variant(found) else value.strip(_BLANKS)
    return json_text(value) if _is_variant(value) else MISFIT


def _parsed(text: str) -> Any:
    """Return the value of a JSON text."""
    found = json_value(text.encode(errors="surrogatepass"))
    return MISFIT if isinstance(found, Invalid) else found


def _is_variant(value: Any) -> bool:
    """Return whether Spark's variant holds all numbers and texts of a value exactly."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend(item)
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
        elif isinstance(item, str) and not isinstance(item, Number):
            if not item.isascii() and not _is_text(item):
                return False
        elif not _is_variant_number(item):
            return False
    return True


def _is_variant_number(value: Any) -> bool:
    """Return whether a variant holds a number: as decimal, or as double. All but numbers is text."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Number):
        return True
    text = _scalar_json(value, str)
    if len(text) > _MOST_NUMBER:
        return False
    whole, _, places = text.lstrip("-").partition(".")
    digits = (whole + places).lstrip("0")
    if not digits or (digits.isdigit() and max(len(digits), len(places)) <= _VARIANT_DIGITS):
        return True
    found = _double(Number(text))
    return found is not MISFIT and isfinite(found)


# -- nested values ------------------------------------------------------------------------------
def _opened(value: Any, kind: type) -> Any:
    """Return an object or a list; a text may be its JSON."""
    if isinstance(value, str) and value.lstrip(_BLANKS)[:1] in ("{", "["):
        value = _parsed(value)
    return value if isinstance(value, kind) else MISFIT


def _structs(encoding: Encoding) -> _Convert:
    fields = [(name, converter(below)) for name, below in encoding.fields]
    names = {name for name, _ in fields}
    lowered = {name.lower() for name in names}

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            if value is None:
                return None
            value = _opened(value, dict)
            if value is MISFIT:
                return MISFIT
        found, count = {}, 0
        for name, make in fields:
            if name in value:
                part = make(value[name])
                if part is MISFIT:
                    return MISFIT
                found[name] = part
                count += 1
            else:
                found[name] = None
        return MISFIT if count < len(value) and _has_respelt(value, names, lowered) else found

    return convert


def _has_respelt(members: Iterable[Any], names: set[str], lowered: set[str]) -> bool:
    """Return whether members that are no fields differ from a field, or from each other, in case only."""
    seen = set(lowered)
    for member in members:
        if member in names:
            continue
        lower = str(member).lower()
        if lower in seen:
            return True
        seen.add(lower)
    return False


def _arrays(encoding: Encoding) -> _Convert:
    assert encoding.element is not None
    make = converter(encoding.element)

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not list:
            value = _opened(value, list)
            if value is MISFIT:
                return MISFIT
        found = list(map(make, value))
        return found if MISFIT not in found else MISFIT

    return convert


def _maps(encoding: Encoding) -> _Convert:
    assert encoding.element is not None
    assert encoding.type.key is not None
    make, make_key = converter(encoding.element), converter(plain(encoding.type.key))
    is_text, has_hash = encoding.type.key == STRING, not encoding.type.key.is_nested

    def convert(value: Any) -> Any:
        if value is None:
            return None
        pairs = _pairs(value)
        if pairs is None:
            return MISFIT
        found = [(make_key(key), make(item)) for key, item in pairs]
        for key, item in found:
            if key is MISFIT or item is MISFIT or key is None:
                return MISFIT
        if not is_text and has_hash and len({key for key, _ in found}) < len(found):
            return MISFIT
        return found

    return convert


def _pairs(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """Return the pairs of a map: an object, or a list of pairs as Arrow gives it."""
    if isinstance(value, list):
        is_map = all(isinstance(pair, tuple) and len(pair) == 2 for pair in value)
        return value if is_map else None
    value = _opened(value, dict)
    return None if value is MISFIT else value.items()


_SCALARS: dict[str, _Convert] = {
    "boolean": _fitting(_boolean),
    "float": _fitting(_single),
    "double": _double,
    "string": _string,
    "binary": _fitting(_bytes_of),
    "date": _fitting(_day),
    "timestamp": _ZONED,
    "timestamp_ntz": _timestamps(zoned=False),
    "variant": _variant,
}
_MADE: dict[str, Callable[[Type], _Convert]] = {**dict.fromkeys(BITS, _whole), "decimal": _decimals}
_NESTED: dict[str, Callable[[Encoding], _Convert]] = {"struct": _structs, "array": _arrays, "map": _maps}


# -- codings ------------------------------------------------------------------------------------
def _text(encoding: Encoding, _: str = "") -> _Convert:
    kind = encoding.type
    if kind.is_nested:
        is_whole = len(encoding.fields) == len(kind.fields) and (encoding.element is None) == (
            kind.element is None
        )
        return _NESTED[kind.name](encoding if is_whole else plain(kind))
    if kind.name in _MADE:
        return _MADE[kind.name](kind)
    return _SCALARS.get(kind.name, _never)


#: The most bytes of a number, and the largest scale, that are written as text. Databases have less.
_MOST_UNSCALED, _MOST_SCALE = 1_024, 20_000


def _unscaled(value: Any, scale: int | None) -> Decimal | None:
    """Return the number of a whole number's bytes (two's complement) and its digits after the point."""
    data = _bytes_of(value)
    if not data or len(data) > _MOST_UNSCALED or scale is None or not -(2**31) <= scale < 2**31:
        return None
    whole = int.from_bytes(data, "big", signed=True)
    if len(data) <= 16 and 0 <= scale <= 38:
        return Decimal(whole).scaleb(-scale, _WHOLE)
    return Decimal(f"{whole}E{-scale}")


def _scaled(kind: Type, places: int) -> _Convert:
    """Return what makes a value of a finite number.

    :param places: digits after the point of a text
    """
    convert = _text(plain(kind))
    unit, context = Decimal((0, (1,), -min(max(places, 0), 38))), Context(prec=38, traps=list(_UNFIT))

    def made(number: Decimal | None) -> Any:
        if number is None:
            return MISFIT
        if kind.name != "string":
            return convert(number)
        found = _exactly(number, unit, context)
        if found is None and not -_MOST_SCALE <= int(number.as_tuple().exponent) <= _MOST_SCALE:
            return MISFIT
        return f"{number if found is None else found:f}"

    return made


def _unscaleds(coding: str, encoding: Encoding, detail: str) -> _Convert:
    """Return what reads decimals of Connect: bytes of a known scale, objects of scale and value, or both.

    Connect may also write numbers (``decimal.format=NUMERIC``). A number of JSON is never base64.
    """
    convert, scale = _text(plain(encoding.type)), int(detail or 0)
    bare, scaled = _scaled(encoding.type, scale), _scaled(encoding.type, 18)

    def decode(value: Any) -> Any:
        if value is None or isinstance(value, Decimal):
            return convert(value)
        if isinstance(value, int | Number):
            return bare(_decimal_of(value))
        is_object = isinstance(value, dict) or (isinstance(value, str) and value[:1] == "{")
        if coding == "decimal" or not (is_object or coding == "scaled"):
            return bare(_unscaled(value, scale))
        found = _opened(value, dict)
        if found is MISFIT:
            return MISFIT
        return scaled(_unscaled(found.get("value"), _integer(found.get("scale"))))

    return decode


def _bytes(encoding: Encoding, detail: str) -> _Convert:
    makes: dict[str, Callable[[bytes], Any]] = {"binary": bytes, "string": _base64_text}
    read, make = _BYTES[detail], makes.get(encoding.type.name)

    def decode(value: Any) -> Any:
        data = _bytes_of(value, read)
        return None if data is None or make is None else make(data)

    return _fitting(decode)


#: What microseconds are in a column: of a moment, of a day, of a time of day.
_OF_MOMENT: dict[str, _Convert] = {
    "timestamp": int,
    "timestamp_ntz": int,
    "date": _midnight,
    "string": _moment_text,
}
_OF_DAY: dict[str, _Convert] = {**_OF_MOMENT, "string": lambda micros: _day_text(micros // _DAY)}
_OF_TIME: dict[str, _Convert] = {"string": _clock_text}


def _counted(makes: dict[str, _Convert], encoding: Encoding, unit: str) -> _Convert:
    """Return what reads a count of units. A column of whole numbers keeps the count; so does a text, if no
    calendar has the moment.
    """
    convert = _text(plain(encoding.type))
    if encoding.type.name in BITS:
        return convert
    make, read = makes.get(encoding.type.name), _in_micros if makes is _OF_TIME else epoch_micros
    is_text = encoding.type == STRING and makes is not _OF_TIME

    def decode(value: Any) -> Any:
        if value is None or isinstance(value, date | time | timedelta):
            return convert(value)
        micros = read(value, unit)
        if micros is None and is_text and type(value) is int:
            # Beyond the calendar, such as PostgreSQL's infinity.
            return convert(value)
        found = None if micros is None or make is None else make(micros)
        return MISFIT if found is None else found

    return decode


_DAYS, _EPOCHS, _TIMES = (partial(_counted, makes) for makes in (_OF_DAY, _OF_MOMENT, _OF_TIME))


def _iso(encoding: Encoding, _: str = "") -> _Convert:
    """Return what reads dates and times without zone, which Debezium's ``isostring`` writes with a ``Z``."""
    convert = _text(plain(encoding.type))
    if encoding.type.name not in _OF_MOMENT or encoding.type == STRING:
        return convert
    return lambda value: convert(value[:-1] if type(value) is str and value[-1:] == "Z" else value)


def _or_text(
    make: Callable[[Encoding, str], _Convert], read: Callable[[Encoding], _Convert] = _text
) -> Callable[[Encoding, str], _Convert]:
    """Return what reads a number by one coding, and other texts by another one."""

    def both(encoding: Encoding, detail: str) -> _Convert:
        number, convert = make(encoding, detail), read(Encoding(encoding.type))

        def decode(value: Any) -> Any:
            text = value.strip(_BLANKS) if type(value) is str else "0"
            return (number if text.removeprefix("-").isdigit() and text.isascii() else convert)(value)

        return decode

    return both


# -- MongoDB's extended JSON --------------------------------------------------------------------
#: The older subtype 3 has no certain order of bytes.
_UUID_SUBTYPES = ("4", "04")


def _extended(encoding: Encoding, _: str) -> _Convert:
    """Return what reads extended JSON: relaxed, canonical, and the older form that Debezium writes."""
    kind = encoding.type
    if kind.name == "variant":
        return lambda value: json_text(value) if value is not None and _is_variant(value) else _never(value)
    convert = _text(_parted(kind, "extended"))
    special = {"string": _extended_text, "binary": _extended_bytes}.get(kind.name)
    is_whole = kind.name in BITS

    def decode(value: Any) -> Any:
        if type(value) is dict:
            wrapper = _wrapper(value)
            if wrapper is not None:
                found = special(wrapper, value) if special else _unwrapped(wrapper, value[wrapper], is_whole)
                return MISFIT if found is None else convert(found)
        elif type(value) is str and kind.name == "binary":
            return MISFIT
        return convert(value)

    return decode


def _wrapper(value: dict[str, Any]) -> str | None:
    """Return the name that says which type an object wraps; None for a document."""
    if len(value) == 1:
        (name,) = value
        return name if name in _WRAPPERS else None
    if len(value) == 2:
        return _PAIRS.get(frozenset(value))
    return None


_PAIRS = {
    frozenset(("$binary", "$type")): "$binary",
    frozenset(("$regex", "$options")): "$regex",
    frozenset(("$code", "$scope")): "$code",
}
_TEXT_WRAPPERS = ("$oid", "$uuid", "$symbol", "$numberDecimal", "$numberDouble")
_WHOLE_WRAPPERS = ("$numberLong", "$numberInt")
_OTHER_WRAPPERS = ("$regularExpression", "$regex", "$code", "$minKey", "$maxKey", "$undefined", "$dbPointer")
_WRAPPERS = frozenset((*_TEXT_WRAPPERS, *_WHOLE_WRAPPERS, *_OTHER_WRAPPERS, "$date", "$binary", "$timestamp"))


def _unwrapped(wrapper: str, inner: Any, is_whole: bool) -> Any:
    """Return a wrapped value as a decoded one; None if it has none.

    :param is_whole: for a column of whole numbers: the 64 bits that MongoDB stores
    """
    if wrapper in _TEXT_WRAPPERS:
        return inner if isinstance(inner, str) else None
    if wrapper in _WHOLE_WRAPPERS:
        return _integer(inner)
    if wrapper == "$date":
        return _date(inner, is_whole)
    if wrapper != "$timestamp" or not isinstance(inner, dict):
        return None
    if not is_whole:
        return inner
    # Seconds, and a place in the second.
    seconds, place = _integer(inner.get("t")), _integer(inner.get("i"))
    is_stamp = seconds is not None and place is not None and 0 <= seconds < 2**31 and 0 <= place < 2**32
    return (seconds << 32) | place if is_stamp else None  # type: ignore[operator]


def _date(inner: Any, is_whole: bool) -> Any:
    """Return a date of MongoDB (a text, milliseconds, or their wrapper) as a moment, or as milliseconds."""
    if type(inner) is str:
        micros, millis = _read_moment(inner, zoned=True), None
        if micros is not None and micros % 1000 == 0:
            millis = micros // 1000
    else:
        if isinstance(inner, dict):
            inner = inner.get("$numberLong") if len(inner) == 1 else None
        millis = _integer(inner)
        micros = epoch_micros(millis, "ms")
    if is_whole:
        return millis
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)


def _binary_of(value: dict[str, Any]) -> tuple[bytes | None, str]:
    """Return bytes, and their subtype."""
    inner = value["$binary"]
    text, subtype = inner, value.get("$type")
    if isinstance(inner, dict):
        text, subtype = inner.get("base64"), inner.get("subType")
    return _bytes_of(text), str(subtype) if isinstance(subtype, str | int) else ""


def _extended_text(wrapper: str, value: dict[str, Any]) -> Any:
    """Return a wrapped value as text: the value itself, or the JSON of what no other type holds."""
    if wrapper == "$binary":
        data, subtype = _binary_of(value)
        return (
            UUID(bytes=data) if data is not None and subtype in _UUID_SUBTYPES and len(data) == 16 else data
        )
    is_json = wrapper == "$timestamp" or wrapper in _OTHER_WRAPPERS
    return value if is_json else _unwrapped(wrapper, value[wrapper], is_whole=False)


def _extended_bytes(wrapper: str, value: dict[str, Any]) -> bytes | None:
    """Return the bytes of a wrapped value."""
    inner = value[wrapper]
    if wrapper == "$binary":
        return _binary_of(value)[0]
    if isinstance(inner, str) and wrapper in ("$oid", "$uuid"):
        return _bytes_of(inner.replace("-", "") if wrapper == "$uuid" else inner, unhexlify)
    return None


_CODINGS: dict[str, Callable[[Encoding, str], _Convert]] = {
    "text": _text,
    **{name: partial(_unscaleds, name) for name in ("decimal", "scaled", "decimal_or_scaled")},
    "days": lambda encoding, _: _DAYS(encoding, "d"),
    "days_or_iso": _or_text(lambda encoding, _: _DAYS(encoding, "d"), _iso),
    "iso": _iso,
    "epoch": _EPOCHS,
    "epoch_or_text": _or_text(_EPOCHS),
    "time": _TIMES,
    "time_or_text": _or_text(_TIMES),
    "bytes": _bytes,
    "extended": _extended,
}
