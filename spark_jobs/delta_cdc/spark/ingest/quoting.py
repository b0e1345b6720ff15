"""CSV quoting rules as regular expressions: RFC 4180, unless options set other marks.

A value that begins with a quote ends at the next single (not doubled) quote. Then the separator or the end of
the record follows. Such a value may contain separators, line breaks and doubled quotes. In any other value, a
quote is an ordinary character (as in Python's ``csv`` and in Spark).

>>> rfc = Quoting.of({})
>>> [rfc.values(text) for text in ('1,"a ""b"", c"', '1,"a"b', '1,"a', '1,5" wide')]
[['1', 'a "b", c'], None, None, ['1', '5" wide']]
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_cdc.core.reader_options import is_true, option

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The end of a text, in the regular expressions of both languages.
_END = r"(?![\s\S])"


@dataclass(frozen=True)
class Quoting:
    """The marks between and around values, as regular expressions of Java (and of Python 3.11).

    All loops are possessive: an expression reads a record once, from left to right, without backtracking. So
    Java's stack does not grow.

    :param separator: the mark between values
    :param quote: the mark around values; "" if values are never quoted
    :param escape: the mark that precedes a quote inside a quoted value; same as ``quote`` if doubled
    :param before: the blanks that a reader skips before a value
    :param after: the blanks that it skips after a value
    """

    separator: str
    quote: str
    escape: str
    before: str = ""
    after: str = ""

    @staticmethod
    def of(options: Mapping[str, str]) -> Quoting:
        """Return the quoting of reader options; RFC 4180 by default."""
        separator = (option(options, "sep", "delimiter") or ",").replace("\\t", "\t")
        quote_option = option(options, "quote")
        quote = '"' if quote_option is None else quote_option.strip("\0")
        blanks = rf"(?:(?!{re.escape(separator)})[\x01-\x09\x0b\x0c\x0e-\x20])*+"
        return Quoting(
            separator,
            quote,
            option(options, "escape") or quote,
            blanks if is_true(options, "ignoreLeadingWhiteSpace") else "",
            blanks if is_true(options, "ignoreTrailingWhiteSpace") else "",
        )

    @property
    def _inside(self) -> str:
        """Return a pattern for the text between the quotes of a value."""
        mark, escape = re.escape(self.quote), re.escape(self.escape)
        if self.escape == self.quote:
            return rf"(?:[^{mark}]++|{mark}{mark})*+"
        return rf"(?:[^{mark}{escape}]++|{escape}[\s\S])*+"

    @property
    def _opened(self) -> str:
        """Return a pattern for a quoted value without its closing quote."""
        escaped = "" if self.escape == self.quote else rf"(?:{re.escape(self.escape)})?+"
        return rf"{self.before}{re.escape(self.quote)}{self._inside}{escaped}{_END}"

    @property
    def _value(self) -> str:
        separator = re.escape(self.separator)
        plain = rf"[^{separator}\r\n]*+"
        if len(self.separator) > 1:
            plain = rf"(?:(?!{separator})[^\r\n])*+"
        if not self.quote:
            return plain
        mark = re.escape(self.quote)
        return rf"(?:{self.before}{mark}{self._inside}{mark}{self.after}|(?!{self.before}{mark}){plain})"

    def values(self, text: str) -> list[str] | None:
        """Return the values of a record; None if its quoting is wrong."""
        value, fields, position = re.compile(self._value), [], 0
        while True:
            match = value.match(text, position)
            if match is None:
                return None
            fields.append(self._unquoted(match[0]))
            if match.end() == len(text):
                return fields
            if not text.startswith(self.separator, match.end()):
                return None
            position = match.end() + len(self.separator)

    def _unquoted(self, value: str) -> str:
        inner = re.fullmatch(
            rf"{self.before}{re.escape(self.quote)}([\s\S]*){re.escape(self.quote)}{self.after}", value
        )
        if not self.quote or inner is None:
            return value
        marks = re.escape(self.quote) + re.escape(self.escape)
        return re.sub(rf"{re.escape(self.escape)}([{marks}])", r"\1", inner[1])

    def record(self) -> str:
        """Return a pattern that matches a record if and only if its quoting is correct."""
        return rf"^{self._value}(?:{re.escape(self.separator)}{self._value})*+{_END}"

    def opens(self) -> str:
        """Return a pattern for a record's first line that ends inside a quoted value."""
        return rf"^(?:{self._value}{re.escape(self.separator)})*+{self._opened}"

    def stays_open(self) -> str:
        """Return a pattern for a line that begins and ends inside a quoted value."""
        mark, separator = re.escape(self.quote), re.escape(self.separator)
        escaped = "" if self.escape == self.quote else rf"(?:{re.escape(self.escape)})?+"
        closed = rf"{self._inside}{mark}{self.after}{separator}(?:{self._value}{separator})*+"
        return rf"^(?:{self._inside}{escaped}{_END}|{closed}{self._opened})"
