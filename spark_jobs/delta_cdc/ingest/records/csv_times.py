"""Dates and times as a pattern of Java writes them (``dateFormat``, ``timestampFormat``), as ISO 8601.

A pattern becomes a regular expression once. The letters are those of dates and times that data files have:
``y u M L d H h a m s S X x Z``, text in quotes, and optional parts in brackets. Any other letter is refused
before the run, because a guess would shift times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from string import ascii_letters
from zoneinfo import ZoneInfo

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.ingest.record import Invalid

#: Returns the ISO 8601 form of a text, or why it has none.
Times = Callable[[str], str | Invalid]

_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_BY_NAME = {name[:size]: number for number, name in enumerate(_MONTHS, 1) for size in (3, len(name))}
#: Letters of two digits, or of one or two if the letter is single: the names of their groups.
_TWO_DIGITS = {"M": "month", "L": "month", "d": "day", "H": "hour", "h": "half", "m": "minute", "s": "second"}
_OFFSETS = {
    "X": (r"Z|[+-]\d{2}(?:\d{2})?", r"Z|[+-]\d{4}", r"Z|[+-]\d{2}:\d{2}"),
    "x": (r"[+-]\d{2}(?:\d{2})?", r"[+-]\d{4}", r"[+-]\d{2}:\d{2}"),
    "Z": (r"[+-]\d{4}", r"[+-]\d{4}", r"[+-]\d{4}"),
}
#: Quoted texts (also without an end), runs of one letter, and other characters.
_TOKENS = re.compile(r"'(?:[^']|'')*+'?|" + "|".join(f"{letter}+" for letter in ascii_letters) + r"|[\s\S]")
_TIMES = ("hour", "half", "minute", "second", "fraction")


def times(
    pattern: str, zone: str | None = None, *, option: str = "timestampFormat", locale: str = ""
) -> Times:
    """Return the function that reads the texts of a pattern.

    :param pattern: a pattern of Java's DateTimeFormatter
    :param zone: the zone of texts without offset; None leaves them without one
    :param option: the option with the pattern, for errors
    :param locale: the locale of the names of months; only English is known
    :raises InvalidConfiguration: the pattern has an unknown letter, no year, or a half day that is a guess;
        the zone is unknown
    """
    groups, expression = _expression(pattern, option)
    if "year" not in groups:
        raise _refused(pattern, option, "has no year", "write the whole date: yyyy-MM-dd")
    flaw = _flaw_of_half_days(groups)
    if flaw:
        raise _refused(
            pattern, option, flaw, "use h with a for hours of 1 to 12, or H without a for hours of 0 to 23"
        )
    if "name" in groups and locale and not locale.lower().startswith("en"):
        raise _refused(
            pattern, option, f"has names of months in the locale {locale}", "use MM; only English is known"
        )
    match, region = re.compile(expression, re.IGNORECASE | re.ASCII).fullmatch, _zone(zone)
    # The day of a timestamp begins in its zone.
    has_time = region is not None or any(name in groups for name in _TIMES)

    def read(text: str) -> str | Invalid:
        found = match(text)
        if found is None:
            return Invalid(f"not as {pattern}")
        parts = found.groupdict()
        iso = _iso(parts, has_time=has_time)
        if iso is None:
            return Invalid("no such date or time")
        offset = parts.get("offset")
        if offset:
            return iso + _offset(offset)
        return iso if region is None else _in(region, iso)

    return read


def _refused(pattern: str, option: str, flaw: str, remedy: str) -> InvalidConfiguration:
    return InvalidConfiguration(
        f"format_options: {option} {pattern!r} {flaw}.", remedy=f"{remedy}.", argument="format_options"
    )


def _zone(name: str | None) -> ZoneInfo | None:
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        raise InvalidConfiguration(
            f"format_options: timeZone {name!r} is unknown.",
            remedy="give a name of the tz database, such as Europe/Berlin.",
            argument="format_options",
        ) from error


# -- patterns -----------------------------------------------------------------------------------
def _flaw_of_half_days(groups: Mapping[str, tuple[int, ...]]) -> str:
    """Return why the hour of a text may be a guess: h and a come together, and without H; "" if it is not."""
    if "noon" in groups and "hour" in groups:
        return "has H together with a"
    if groups.keys().isdisjoint(("half", "noon")):
        return ""
    if "noon" not in groups or "half" not in groups:
        return "has h without a" if "half" in groups else "has a without h"
    return "" if groups["half"] == groups["noon"] else "has h and a in different brackets"


def _expression(pattern: str, option: str) -> tuple[dict[str, tuple[int, ...]], str]:
    """Return the names of the groups, each with the brackets that it is in, and the regular expression."""
    groups: dict[str, tuple[int, ...]] = {}
    pieces: list[str] = []
    #: The brackets that are open: the places where they begin.
    scopes: list[tuple[int, ...]] = [()]
    for token in _TOKENS.findall(pattern):
        if token == "[":
            scopes.append((*scopes[-1], len(pieces)))
        elif token == "]":
            scopes.pop()
        if not scopes:
            break
        if token.isascii() and token.isalpha():
            name, part = _part(token[0], len(token), pattern, option)
            if name in groups:
                raise _refused(pattern, option, f"has {token} twice", "give each part of a date once")
            groups[name] = scopes[-1]
            pieces.append(f"(?P<{name}>{part})")
        else:
            pieces.append(_literal(token, pattern, option))
    if len(scopes) != 1:
        raise _refused(pattern, option, "has a bracket without its other one", "close each [ by a ]")
    return groups, "".join(pieces)


def _literal(token: str, pattern: str, option: str) -> str:
    """Return the expression of what is no letter of a pattern."""
    if token in ("[", "]"):
        return "(?:" if token == "[" else ")?"
    if token in ("{", "}", "#"):
        raise _refused(pattern, option, f"has {token}, which Java reserves", "put it in single quotes")
    if not token.startswith("'"):
        return re.escape(token)
    if len(token) < 2 or not token.endswith("'"):
        raise _refused(pattern, option, "has a quote without end", "close it, or write it twice")
    return re.escape(token[1:-1].replace("''", "'") or "'")


def _part(letter: str, size: int, pattern: str, option: str) -> tuple[str, str]:
    """Return the group for a run of one letter, and the expression in it."""
    if letter in "yu" and size in (1, 2, 4):
        return "year", r"\d{2}" if size == 2 else r"\d{4}"
    if letter in "ML" and size in (3, 4):
        names = (name[:3] if size == 3 else name for name in _MONTHS)
        return "name", "|".join(names)
    if letter in _TWO_DIGITS and size in (1, 2):
        return _TWO_DIGITS[letter], r"\d{1,2}" if size == 1 else r"\d{2}"
    if letter == "S" and size <= 9:
        return "fraction", rf"\d{{1,{size}}}"
    if letter == "a" and size == 1:
        return "noon", "AM|PM"
    if letter in _OFFSETS and size <= 3:
        return "offset", _OFFSETS[letter][size - 1]
    raise _refused(
        pattern,
        option,
        f"has {letter * size}, which is not known",
        "use y, M, d, H, h, a, m, s, S, X, x or Z",
    )


# -- texts --------------------------------------------------------------------------------------
def _iso(parts: Mapping[str, str | None], *, has_time: bool) -> str | None:
    """Return the date, and the time if the pattern has one; None if it does not exist."""
    year = parts.get("year")
    if year is None:
        return None
    name = parts.get("name")
    month = _BY_NAME[name.lower()] if name else int(parts.get("month") or 1)
    hour, half = int(parts.get("hour") or 0), parts.get("half")
    if half is not None:
        if not 1 <= int(half) <= 12:
            return None
        hour = int(half) % 12 + (12 if (parts.get("noon") or "").lower() == "pm" else 0)
    minute, second = int(parts.get("minute") or 0), int(parts.get("second") or 0)
    try:
        day = date(int(year) + (2000 if len(year) == 2 else 0), month, int(parts.get("day") or 1))
    except ValueError:
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    if not has_time:
        return day.isoformat()
    fraction = parts.get("fraction")
    return f"{day.isoformat()}T{hour:02}:{minute:02}:{second:02}{'.' + fraction if fraction else ''}"


def _offset(text: str) -> str:
    """Return an offset with its colon."""
    digits = text[1:].replace(":", "")
    return "Z" if text in ("Z", "z") else f"{text[0]}{digits[:2]}:{digits[2:] or '00'}"


def _in(region: ZoneInfo, iso: str) -> str | Invalid:
    """Return a local time with the offset of its zone; of two offsets, the first, as in Java."""
    local = datetime.fromisoformat(iso[:19]).replace(tzinfo=region)
    offset = local.utcoffset()
    if offset is None:
        return iso
    try:
        exists = local.astimezone(UTC).astimezone(region).replace(tzinfo=None) == local.replace(tzinfo=None)
    except OverflowError:
        return Invalid("no such date or time")
    if not exists:
        return Invalid("a time that its zone leaves out")
    seconds = int(offset.total_seconds())
    sign, seconds = ("-", -seconds) if seconds < 0 else ("+", seconds)
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    return f"{iso}{sign}{hours:02}:{minutes:02}" + (f":{left:02}" if left else "")
