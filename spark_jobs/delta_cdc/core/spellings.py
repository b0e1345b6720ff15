"""How a record may spell the value of a key: to find the records of a key that are no valid events.

Such a record is only a text, and its format is unknown. So the text and the spellings are compared after both
are :func:`folded`: without case, without what JSON and CSV put before quotes, and with the characters that
``\\uXXXX`` names. The search prefers too many records to too few.

Standard library only: this module travels to the Spark driver.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
import string as characters
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Literal

from delta_cdc.core.sql import string

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["text", "number", "date", "timestamp", "binary"]

#: A record that is no text begins with this, and then has its bytes.
BASE64 = "base64:"
#: One character as JSON escapes it, also in JSON within JSON. Half of a pair alone is no character.
_ESCAPED = (
    r"\\+u[dD][89abAB][0-9a-fA-F]{2}\\+u[dD][c-fC-F][0-9a-fA-F]{2}|\\+u(?![dD][89a-fA-F])[0-9a-fA-F]{4}"
)
_BEFORE_DIGITS = r"\\+u"
#: The characters that are left out, after those that lose their case. UTF-16 has NULs between letters.
_DROPPED = '\\"'
_FOLDING = str.maketrans(characters.ascii_uppercase, characters.ascii_lowercase, _DROPPED + "\0")
#: What is left of JSON's escapes of control characters.
_CONTROLS = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
#: The fewest characters of a part of base64, so that not each record has it.
_SHORTEST = 6


@dataclass(frozen=True)
class Spelling:
    """A text that a record of the key may have, folded.

    :param is_whole: ``text`` is a regular expression of Java and Python, of digits that count only without
        another digit before or after them
    """

    text: str
    is_whole: bool = False


def folded(text: str) -> str:
    """Return a text as it is compared."""

    def character(found: re.Match[str]) -> str:
        return bytes.fromhex(re.sub(_BEFORE_DIGITS, "", found[0])).decode("utf-16-be")

    return re.sub(_ESCAPED, character, text).translate(_FOLDING)


def folded_sql(raw: str) -> str:
    """Return the SQL of :func:`folded` of a record; one of bytes is searched as it is, and decoded.

    :param raw: SQL of the record's text
    """
    data = f"CAST(try_to_binary(substring({raw}, {len(BASE64) + 1}), 'base64') AS STRING)"
    text = f"IF(startswith({raw}, {string(BASE64)}), concat({raw}, ' ', coalesce({data}, '')), {raw})"
    decoded = f"decode(unhex(regexp_replace(escaped, {string(_BEFORE_DIGITS)}, '')), 'UTF-16BE')"
    plain = (
        f"aggregate(array_distinct(regexp_extract_all({text}, {string(_ESCAPED)}, 0)), {text}, "
        f"(plain, escaped) -> replace(plain, escaped, {decoded}))"
    )
    given = f"concat({string(characters.ascii_uppercase + _DROPPED)}, chr(0))"
    return f"translate({plain}, {given}, {string(characters.ascii_lowercase)})"


def mentions_sql(record: str, spellings: str) -> str:
    """Return the SQL of whether a record has one of the spellings.

    :param record: SQL of :func:`folded_sql`
    :param spellings: SQL of an array of structs ``text``, ``is_whole``
    """
    whole = f"rlike({record}, concat('(?<![0-9])', one.text, '(?![0-9])'))"
    return f"exists({spellings}, one -> IF(one.is_whole, {whole}, contains({record}, one.text)))"


def spellings(text: str, kind: Kind) -> list[Spelling]:
    """Return how a record may have a value.

    :param text: the value as an erased key has it (:func:`delta_cdc.spark.erased_keys.text_sql`)
    :param kind: of its type
    """
    found = dict.fromkeys(_spelled(text, kind))
    return [one for one in found if one.text]


def _spelled(text: str, kind: Kind) -> Iterator[Spelling]:
    if kind != "number":
        yield Spelling(folded(text))
    if kind == "text":
        yield Spelling(folded("".join(_CONTROLS.get(one, one) for one in text)))
    if kind == "number":
        yield from _of_number(text)
    if kind in ("date", "timestamp"):
        yield from _of_time(text)
    data = _bytes(text) if kind == "binary" else text.encode()
    yield from (Spelling(folded(one)) for one in _in_base64(data))


def _bytes(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError:
        return b""


def _in_base64(data: bytes) -> Iterator[str]:
    """Return what base64 makes of bytes, alone and at each place within other bytes."""
    if not data:
        return
    yield base64.b64encode(data).decode()
    for before in range(3):
        bits = 8 * (before + len(data))
        # Characters that have bits of other bytes, too, are unknown.
        first, last = -(-8 * before // 6), bits // 6
        part = base64.b64encode(bytes(before) + data).decode()[first:last]
        if len(part) >= _SHORTEST:
            yield part


def _of_number(text: str) -> Iterator[Spelling]:
    """Return a number as digits, in the notation of floats, and as Debezium has decimals: the bytes of its
    digits."""
    try:
        number = Decimal(text).normalize()
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        yield Spelling(folded(text))
        return
    whole, _, fraction = f"{abs(number):f}".partition(".")
    minus = "-" if number < 0 else ""
    # Also 0017 and 17.50 for 17.5; but 117 is another number.
    yield Spelling(f"{minus}0*{whole}" + (f"[.]{fraction}0*" if fraction else ""), is_whole=True)
    digits, exponent = f"{number:E}".split("E")
    yield Spelling(folded(f"{digits}E{int(exponent)}"))
    yield Spelling(folded(f"{digits}E{int(exponent):+d}"))
    yield Spelling(folded(f"{digits}E{int(exponent):+03d}"))
    sign, parts, _ = number.as_tuple()
    unscaled = int("".join(map(str, parts)))
    scale = max(0, -int(number.as_tuple().exponent))
    for more in range(7 - min(scale, 6)):
        value = (-1 if sign else 1) * unscaled * 10 ** (more + max(0, int(number.as_tuple().exponent)))
        size = (value if value >= 0 else -value - 1).bit_length() // 8 + 1
        yield Spelling(folded(base64.b64encode(value.to_bytes(size, "big", signed=True)).decode()))


def _of_time(text: str) -> Iterator[Spelling]:
    """Return a date or a time with a T, and as a count since 1970 (UTC)."""
    yield Spelling(folded(text.replace(" ", "T")))
    try:
        moment = dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
    except ValueError:
        return
    since = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    micros = since // dt.timedelta(microseconds=1)
    if len(text) == len("2024-02-29"):
        yield Spelling(str(abs(since.days)), is_whole=True)
    for unit in (1, 1_000, 1_000_000):
        if micros % unit == 0:
            yield Spelling(str(abs(micros // unit)), is_whole=True)
    yield Spelling(str(abs(micros) * 1_000), is_whole=True)
