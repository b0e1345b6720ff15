"""Texts that sort as their values: the parts of sequences.

Logs hold such texts, so the text of a value never changes.
"""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from delta_cdc.ingest.types import BITS, Type

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The number of digits of 64 bits. More would be too wide, because Delta's statistics keep only the first 32
#: characters of a text.
_WIDTH = 20
_EPOCH = date(1970, 1, 1).toordinal()
#: The calendar repeats itself after this number of days and years.
_CYCLE_DAYS, _CYCLE_YEARS = 146_097, 400
#: 0000-01-01 and 9999-12-31, in days since 1970.
_FIRST_DAY, _LAST_DAY = -719_528, 2_932_896
_DAY = 86_400_000_000


def digits(text: object, width: int) -> str | None:
    """Return a whole number from 0 as text of a fixed width. Such texts sort by number.

    :param text: a text or a whole number; spaces around it do not count
    :return: None if it is not such a number, or the number is wider
    """
    found = _text(text)
    if found is None:
        return None
    if not found.isdigit():
        found = found.strip(" ")
    if not (found.isdigit() and found.isascii()):
        return None
    if len(found) > width:
        found = found.lstrip("0")
    return found.rjust(width, "0") if len(found) <= width else None


def numbers(text: object) -> str | None:
    """Return whole numbers, separated by ``/`` or ``:``, as one text. Such texts sort by number.

    :return: None if the text has other parts, or a number has more than 20 digits
    """
    found = _text(text)
    if found is None or not found.isascii():
        return None
    if len(found) <= _WIDTH and found.isdigit():
        return found.rjust(_WIDTH, "0")
    parts = found.replace(":", "/").split("/")
    for part_text in parts:
        if len(part_text) > _WIDTH or not part_text.isdigit():
            return None
    return "/".join([part_text.rjust(_WIDTH, "0") for part_text in parts])


def joined(parts: Iterable[str | None]) -> str | None:
    """Join fixed-width parts into one sequence; None if a part is None."""
    found = []
    for part_text in parts:
        if part_text is None:
            return None
        found.append(part_text)
    return "/".join(found)


def has_part(kind: Type) -> bool:
    """Return whether values of a type have texts that sort as they do: whole numbers, dates and times."""
    return kind.name in BITS or kind.name in _MOMENTS or (kind.name == "decimal" and not kind.scale)


def part(value: Any, kind: Type) -> str | None:
    """Return a value as text. The texts sort in the order of the values.

    :param value: what the converter of the type makes: a whole number, days or microseconds since 1970
    :return: None for None, for other types, and for years before 0 or after 9999
    """
    if value is None:
        return None
    if kind.name in BITS:
        return _number(value, _WIDTH)
    if kind.name == "decimal" and not kind.scale:
        # Use at least the width of numbers(), because ``schema`` may define the column's type later.
        return _number(int(value), max(_WIDTH, kind.precision))
    if kind.name == "date":
        return _day(value)
    if kind.name in _MOMENTS:
        days, micros = divmod(value, _DAY)
        day = _day(days)
        seconds, micros = divmod(micros, 1_000_000)
        return day and f"{day} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{micros:06d}"
    return None


_MOMENTS = ("date", "timestamp", "timestamp_ntz")


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        # No number that fits has more than 64 digits.
        return str(value) if value.bit_length() <= 256 else None
    if isinstance(value, Decimal) and value.is_finite() and value.as_tuple().exponent == 0:
        return str(value)
    return None


def _number(value: int, width: int) -> str | None:
    # A negative number becomes its distance to the greatest number of this width, so that -1 is above -2.
    if value < 0:
        found = value + 10**width - 1
        return f"-{found:0{width}d}" if found >= 0 else None
    return f"{value:0{width}d}"


def _day(days: int) -> str | None:
    if not _FIRST_DAY <= days <= _LAST_DAY:
        return None
    if days < 0:
        # Python's calendar begins with the year 1.
        later = date.fromordinal(_EPOCH + days + _CYCLE_DAYS)
        return f"{later.year - _CYCLE_YEARS:04d}-{later.month:02d}-{later.day:02d}"
    return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
