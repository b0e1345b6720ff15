"""How CSV is quoted: by RFC 4180, unless options name other marks.

A value that begins with a quote ends at the next quote that is not doubled; the separator or the end of the
record follows. Such a value may hold separators, line breaks and doubled quotes. In a value that does not
begin with a quote, a quote is a character like any other (as Python's ``csv`` and Spark read it).

>>> rfc = Quoting.of({})
>>> [rfc.values(text) for text in ('1,"a ""b"", c"', '1,"a"b', '1,"a', '1,5" wide')]
[['1', 'a "b", c'], None, None, ['1', '5" wide']]
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_cdc.ingest.lines import is_true, option

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The end of a text, in both dialects of regular expressions.
_END = r"(?![\s\S])"


@dataclass(frozen=True)
class Quoting:
    """The marks between and around values, as regular expressions of Java (and of Python 3.11).

    All loops are possessive: a record is read once from left to right, and Java takes no stack frame for a
    step that it might have to take back.

    :param separator: between values
    :param quote: around values; "" where nothing is quoted
    :param escape: before a quote inside a quoted value; the quote itself where quotes are doubled
    :param before: what a reader leaves out before a value; ``after`` the same behind it
    """

    separator: str
    quote: str
    escape: str
    before: str = ""
    after: str = ""

    @staticmethod
    def of(options: Mapping[str, str]) -> Quoting:
        """Return what reader options say; RFC 4180 where they are silent."""
        separator = (option(options, "sep", "delimiter") or ",").replace("\\t", "\t")
        given = option(options, "quote")
        quote = '"' if given is None else given.strip("\0")
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
        """What stands between the quotes of a value."""
        mark, escape = re.escape(self.quote), re.escape(self.escape)
        if self.escape == self.quote:
            return rf"(?:[^{mark}]++|{mark}{mark})*+"
        return rf"(?:[^{mark}{escape}]++|{escape}[\s\S])*+"

    @property
    def _opened(self) -> str:
        """A quoted value without its end."""
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
        """Return the values of a record; None where it is not quoted as it should be."""
        value, found, at = re.compile(self._value), [], 0
        while True:
            match = value.match(text, at)
            if match is None:
                return None
            found.append(self._unquoted(match[0]))
            if match.end() == len(text):
                return found
            if not text.startswith(self.separator, match.end()):
                return None
            at = match.end() + len(self.separator)

    def _unquoted(self, value: str) -> str:
        inner = re.fullmatch(
            rf"{self.before}{re.escape(self.quote)}([\s\S]*){re.escape(self.quote)}{self.after}", value
        )
        if not self.quote or inner is None:
            return value
        marks = re.escape(self.quote) + re.escape(self.escape)
        return re.sub(rf"{re.escape(self.escape)}([{marks}])", r"\1", inner[1])

    def record(self) -> str:
        """Return what matches a record that is quoted as it should be, and nothing else."""
        return rf"^{self._value}(?:{re.escape(self.separator)}{self._value})*+{_END}"

    def opens(self) -> str:
        """Return what matches a line, the first of its record, that ends inside of a quoted value."""
        return rf"^(?:{self._value}{re.escape(self.separator)})*+{self._opened}"

    def stays_open(self) -> str:
        """Return what matches a line that begins inside of a quoted value and ends inside of one."""
        mark, separator = re.escape(self.quote), re.escape(self.separator)
        escaped = "" if self.escape == self.quote else rf"(?:{re.escape(self.escape)})?+"
        closed = rf"{self._inside}{mark}{self.after}{separator}(?:{self._value}{separator})*+"
        return rf"^(?:{self._inside}{escaped}{_END}|{closed}{self._opened})"
