"""Strict CSV: RFC 4180, unless ``format_options`` set other marks.

A value that begins with a quote ends at the next single (not doubled) quote. Then the separator or the end of
the record follows. Such a value may contain separators, line breaks and doubled quotes. In any other value, a
quote is an ordinary character. The reader knows whether a value was quoted, so that ``NULL`` and ``"NULL"``
are two values. Wrong quoting is an :class:`Invalid`, because any value would be a guess.

The raw text of a record is its line, or its lines if a quoted value has line breaks. If the file has a
header, the raw text begins with it, so that :func:`again` needs no file.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.reader_options import option
from delta_cdc.ingest.record import Invalid
from delta_cdc.ingest.records.csv_times import Times, times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from delta_cdc.ingest.types import Type

MISQUOTED = "its values are not quoted as format_options say (by default as RFC 4180 says)"
WITH_NUL = "it has a NUL character, which CSV does not allow"
#: The reason for each line of a quoted value without end. All these lines are doubtful, because the opening
#: quote is probably a mistake.
UNCLOSED = "a quoted value has no end in its file"
MISQUOTED_HEADER = "the header of its file is not quoted as format_options say, or has a line break in a name"
#: All lines of the file may be in its header.
BROKEN_HEADER = (
    "the header of its file has a line break outside of quotes: set lineSep in format_options to what ends "
    "the lines of the file, and deliver the file again"
)
NO_HEADER = (
    "the header of its file names no column that schema or the log has, so it is probably a record: begin "
    "the file with its header, and deliver it again"
)
#: A value with more lines counts as a quoted value without end, because a record must fit in memory.
MOST_LINES = 10_000
#: The prefix of the raw text of a record whose bytes are not in the encoding.
BASE64 = "base64:"

#: What a value is that the record does not have.
_MISSING: Any = object()
_BLANKS = "".join(chr(code) for code in range(1, 33) if chr(code) not in "\r\n")
#: What ends lines in some files, besides LF.
_BREAKS = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_PATTERNS = {"date": "dateFormat", "timestamp": "timestampFormat", "timestamp_ntz": "timestampNTZFormat"}
#: Encodings of Python that files do not have, or whose characters depend on what lies before the line.
_NO_ENCODINGS = ("charmap", "hz", "idna", "iso2022", "mbcs", "oem", "punycode", "raw_", "unicode_", "utf-7")


# -- dialects -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Dialect:
    """How files are written.

    :param separator: the mark between values
    :param quote: the mark around values; "" if values are never quoted
    :param escape: the mark before a quote inside a quoted value; same as ``quote`` if doubled
    :param comment: the mark of lines that are no records; "" without comments
    :param header: the first record of a file has the names of its columns
    :param multi_line: quoted values may contain line breaks
    :param line_sep: the end of a record; "" means LF or CR LF
    :param null: the text that means NULL if it is not quoted; "" makes quoted empty values NULL, too
    :param missing: the text that means that the record does not have the column, if it is not quoted
    :param empty: the value of ``""``
    :param leading: blanks before a value do not belong to it
    :param trailing: blanks after a value do not belong to it
    :param encoding: the encoding of the files, as the options name it
    :param codec: Python's encoding of the lines that a reader gets
    :param is_whole: files cannot be split into lines as bytes; :func:`lines_of` splits them
    :param patterns: pattern of dates and times, by the names of the types
    :param zone: the zone of timestamps that a pattern describes
    """

    separator: str = ","
    quote: str = '"'
    escape: str = '"'
    comment: str = ""
    header: bool = False
    multi_line: bool = True
    line_sep: str = ""
    null: str | None = None
    missing: str | None = None
    empty: str = ""
    leading: bool = False
    trailing: bool = False
    encoding: str = "UTF-8"
    codec: str = "utf-8"
    is_whole: bool = False
    patterns: tuple[tuple[str, str], ...] = ()
    zone: str | None = None
    locale: str = ""

    @staticmethod
    def of(options: Mapping[str, str]) -> Dialect:
        """Return the dialect of reader options; RFC 4180 by default.

        :raises InvalidConfiguration: an option has a value that is unknown, or contradicts another
        """
        quote = _mark(options, "quote", '"')
        encoding = option(options, "encoding", "charset") or "UTF-8"
        codec, is_whole = _codec(encoding)
        found = Dialect(
            separator=_unescaped(_given(options, ",", "sep", "delimiter")),
            quote=quote,
            escape=_mark(options, "escape", quote) or quote,
            comment=_mark(options, "comment", ""),
            header=_flag(options, "header", default=False),
            multi_line=_flag(options, "multiLine", default=True),
            line_sep=option(options, "lineSep") or "",
            null=option(options, "nullValue"),
            missing=option(options, "missingValue"),
            empty=option(options, "emptyValue") or "",
            leading=_flag(options, "ignoreLeadingWhiteSpace", default=False),
            trailing=_flag(options, "ignoreTrailingWhiteSpace", default=False),
            encoding="UTF-8" if codec == "utf-8" and not is_whole else encoding,
            codec="utf-8" if is_whole else codec,
            is_whole=is_whole,
            patterns=_patterns(options),
            zone=option(options, "timeZone"),
            locale=option(options, "locale") or "",
        )
        _check(found, options)
        return found


def check(options: Mapping[str, str]) -> None:
    """Refuse options that no file can be read with.

    :raises InvalidConfiguration: names the option
    """
    Dialect.of(options)


def _refused(message: str, remedy: str) -> InvalidConfiguration:
    return InvalidConfiguration(f"format_options: {message}.", remedy=f"{remedy}.", argument="format_options")


def _check(dialect: Dialect, options: Mapping[str, str]) -> None:
    sep = dialect.separator
    if not sep or "\n" in sep or "\r" in sep or (dialect.quote and dialect.quote in sep):
        raise _refused(f"sep is {sep!r}", "give one or more characters without quotes and line breaks")
    if dialect.missing is not None and dialect.missing == dialect.null:
        raise _refused(
            f"nullValue and missingValue are both {dialect.null!r}", "give each its own text, or only one"
        )
    handling = option(options, "unescapedQuoteHandling")
    if handling is not None and handling.upper() != "RAISE_ERROR":
        raise _refused(
            f"unescapedQuoteHandling is {handling!r}, which guesses values",
            "leave it out: such records go to quarantine; for files that never quote, set quote to ''",
        )
    escaping = _mark(options, "charToEscapeQuoteEscaping", dialect.escape) or dialect.escape
    if escaping != dialect.escape:
        raise _refused(
            "charToEscapeQuoteEscaping is not the escape", "leave it out: the escape escapes itself"
        )
    for name, pattern in dialect.patterns:
        _times_of(dialect, name, pattern)


def _given(options: Mapping[str, str], default: str, *names: str) -> str:
    value = option(options, *names)
    return default if value is None else value


def _unescaped(text: str) -> str:
    r"""Return a separator that may be written as ``\t``, ``\\`` or ``\u0001``."""
    return re.sub(
        r"\\(t|\\|u[0-9a-fA-F]{4})",
        lambda match: {"t": "\t", "\\": "\\"}.get(match[1]) or chr(int(match[1][1:], 16)),
        text,
    )


def _mark(options: Mapping[str, str], name: str, default: str) -> str:
    """Return a mark of one character; "" if it is not set, which some write as NUL."""
    value = _given(options, default, name).strip("\0")
    if len(value) > 1:
        raise _refused(f"{name} is {value!r}", "give one character")
    return value


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = (option(options, name) or str(default)).lower()
    if value not in ("true", "false"):
        raise _refused(f"{name} is {value!r}", "give true or false")
    return value == "true"


def _patterns(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    given = ((kind, option(options, name)) for kind, name in _PATTERNS.items())
    return tuple((kind, pattern) for kind, pattern in given if pattern is not None)


# -- encodings ----------------------------------------------------------------------------------
def _codec(name: str) -> tuple[str, bool]:
    """Return Python's name of an encoding, and whether files in it cannot be split into lines as bytes.

    :raises InvalidConfiguration: it is unknown
    """
    ascii_bytes = bytes(range(128))
    try:
        codec = codecs.lookup(name).name
        is_whole = ascii_bytes.decode(codec) != ascii_bytes.decode("ascii")
    except UnicodeDecodeError:
        is_whole = True
    except (LookupError, ValueError) as error:
        raise _unknown_encoding(name) from error
    if codec.startswith(_NO_ENCODINGS):
        raise _unknown_encoding(name)
    return ("utf-8", False) if codec == "utf-8-sig" else (codec, is_whole)


def _unknown_encoding(name: str) -> InvalidConfiguration:
    return _refused(f"the encoding {name!r} is unknown", "give one such as UTF-8, ISO-8859-1 or windows-1252")


def _marked(error: UnicodeError) -> tuple[str, int]:
    """Replace bytes without meaning by half of a surrogate pair, which no UTF-8 has."""
    assert isinstance(error, UnicodeDecodeError)
    return "\udc80", error.end


codecs.register_error("delta_cdc_marked", _marked)


def lines_of(data: bytes, encoding: str, line_sep: str = "") -> Iterator[bytes]:
    """Yield the lines of a file, for the reader of a dialect with this encoding; without a byte order mark.

    Lines of encodings that have more bytes for a line break are given in UTF-8. A line with bytes that mean
    nothing stays one that the reader refuses. UTF-16 without a byte order mark has the order of bytes in
    which ASCII characters occur.

    :param encoding: of the dialect
    :param line_sep: of the dialect
    """
    codec, is_whole = _codec(encoding)
    separator = (line_sep or "\n").encode("utf-8" if is_whole else codec)
    if is_whole:
        if codec == "utf-16" and not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            codec = "utf-16-be" if data[::2].count(0) > data[1::2].count(0) else "utf-16-le"
        text = data.decode(codec, "delta_cdc_marked").removeprefix("\ufeff")
        data = text.encode("utf-8", "surrogatepass")
    elif codec == "utf-8":
        data = data.removeprefix(codecs.BOM_UTF8)
    begin = 0
    while begin < len(data):
        end = data.find(separator, begin)
        if end < 0:
            end = len(data)
        yield data[begin:end]
        begin = end + len(separator)


# -- the grammar --------------------------------------------------------------------------------
_CLOSED, _OPEN, _WRONG = "closed", "open", "wrong"


class _Grammar:
    """Reads texts of records, also line by line: a quoted value may go on in the next line."""

    def __init__(self, dialect: Dialect, missing: Any = _MISSING) -> None:
        self._separator, self._quote, self._escape = dialect.separator, dialect.quote, dialect.escape
        self._leading, self._trailing = dialect.leading, dialect.trailing
        self._break = dialect.line_sep or "\n"
        self._blanks = "".join(mark for mark in _BLANKS if mark != dialect.separator)
        quote, escape = re.escape(dialect.quote), re.escape(dialect.escape)
        self._marks = re.compile(f"[{quote}{escape}]") if quote and quote != escape else None
        self._escaped = re.compile(f"{escape}([{quote}{escape}])") if self._marks else None
        #: What an unquoted text means, if it is not itself.
        self._meanings: dict[str, Any] = {"": None}
        if dialect.null is not None:
            self._meanings[dialect.null] = None
        if dialect.missing is not None:
            self._meanings[dialect.missing] = missing
        self._quoted_empty = None if dialect.null == "" else dialect.empty

    def unquoted(self, text: str) -> list[Any]:
        """Return the values of a record without any quote."""
        values: list[Any] = text.split(self._separator)
        if self._leading or self._trailing:
            values = [self._stripped(value) for value in values]
        meanings = self._meanings
        if any(map(values.__contains__, meanings)):
            return [meanings.get(value, value) for value in values]
        return values

    def all_quoted(self, text: str) -> list[Any] | None:
        """Return the values of a record that are all quoted, without a quote inside; None for any other."""
        quote = self._quote
        if text[:1] != quote or text[-1:] != quote or len(text) < 2:
            return None
        values: list[Any] = text[1:-1].split(f"{quote}{self._separator}{quote}")
        if text.count(quote) != 2 * len(values) or self._marks is not None:
            return None
        if "" in values:
            return [value or self._quoted_empty for value in values]
        return values

    def read(self, text: str, end: int, values: list[Any], pieces: list[str], *, within: bool) -> str:
        """Read a record, or one of its lines, and return how it ends.

        :param end: where the record ends in the text, unless a quoted value goes on
        :param values: gets the values that end here
        :param pieces: lines of a quoted value that has not ended yet
        :param within: the text begins inside of a quoted value
        """
        at, separator = 0, self._separator
        while True:
            if not within:
                begin = self._opening(text, at)
                if begin < 0:
                    stop = text.find(separator, at, end)
                    value = text[at : end if stop < 0 else stop]
                    if "\r" in value or "\n" in value:
                        return _WRONG
                    values.append(self._plain(value))
                    if stop < 0:
                        return _CLOSED
                    at = stop + len(separator)
                    continue
                at = begin
            close = self._closing(text, at)
            pieces.append(text[at:] if close < 0 else text[at:close])
            if close < 0:
                return _OPEN
            values.append(self._between(pieces))
            pieces.clear()
            within = False
            at = self._after(text, close + 1, end)
            if at == end:
                return _CLOSED
            if not text.startswith(separator, at):
                return _WRONG
            at += len(separator)

    def _opening(self, text: str, at: int) -> int:
        """Return where the text in quotes begins; -1 if the value is not quoted."""
        if not self._quote:
            return -1
        if self._leading:
            at = self._after_blanks(text, at, len(text))
        return at + 1 if text.startswith(self._quote, at) else -1

    def _closing(self, text: str, at: int) -> int:
        """Return where the closing quote is; -1 if the value goes on."""
        quote = self._quote
        if self._marks is None:
            while True:
                at = text.find(quote, at)
                if at < 0 or not text.startswith(quote, at + 1):
                    return at
                at += 2
        while True:
            mark = self._marks.search(text, at)
            if mark is None or mark[0] == quote:
                return -1 if mark is None else mark.start()
            at = mark.end() + 1

    def _after(self, text: str, at: int, end: int) -> int:
        return self._after_blanks(text, at, end) if self._trailing else at

    def _after_blanks(self, text: str, at: int, end: int) -> int:
        while at < end and text[at] in self._blanks and not text.startswith(self._separator, at):
            at += 1
        return at

    def _between(self, pieces: list[str]) -> str | None:
        text = self._break.join(pieces)
        if not text:
            return self._quoted_empty
        if self._escaped is not None:
            return self._escaped.sub(r"\1", text) if self._escape in text else text
        return text.replace(self._quote * 2, self._quote)

    def _stripped(self, text: str) -> str:
        if self._leading:
            text = text.lstrip(self._blanks)
        return text.rstrip(self._blanks) if self._trailing else text

    def _plain(self, text: str) -> Any:
        text = self._stripped(text)
        return self._meanings.get(text, text)


# -- records ------------------------------------------------------------------------------------
class Row(NamedTuple):
    """A record.

    :param raw: its text, after the header of its file and a line break if the file has a header
    :param row: the number of its first line in the file, from 0
    :param values: the values by name, without those that are missing; or why it has none; None for a header
    """

    raw: str
    row: int
    values: dict[str, str | None] | Invalid | None


class Converter(NamedTuple):
    """How texts of a column are written as dates or times.

    :param kind: the column's type, for reasons
    :param read: what makes a text ISO 8601
    """

    kind: str
    read: Times


def converters(dialect: Dialect, types: Mapping[str, Type]) -> dict[str, Converter]:
    """Return the converters of columns that the dialect has a pattern for, by lower name."""
    by_kind = {kind: _times_of(dialect, kind, pattern) for kind, pattern in dialect.patterns}
    return {
        name.lower(): Converter(str(kind), by_kind[kind.name])
        for name, kind in types.items()
        if kind.name in by_kind
    }


def _times_of(dialect: Dialect, kind: str, pattern: str) -> Times:
    zone = dialect.zone if kind == "timestamp" else None
    return times(pattern, zone, option=_PATTERNS[kind], locale=dialect.locale)


class _Line(NamedTuple):
    text: str
    data: bytes
    row: int
    is_broken: bool


class Reader:
    """Reads the records of files, line by line. After :meth:`end`, it is ready for the next file.

    :param dialect: how the files are written
    :param names: the names of the columns; None if the first record of each file has them
    :param converters: of columns of dates and times, by lower name
    :param is_known: whether a column has a name: a first line without such a name is no header
    """

    def __init__(
        self,
        dialect: Dialect,
        names: Sequence[str] | None,
        converters: Mapping[str, Converter] | None = None,
        is_known: Callable[[str], bool] | None = None,
    ) -> None:
        self._grammar, self._codec, self._encoding = _Grammar(dialect), dialect.codec, dialect.encoding
        self._header_grammar = _Grammar(replace(dialect, null=None, missing="", empty=""), missing="")
        self._quote, self._comment, self._multi_line = dialect.quote, dialect.comment, dialect.multi_line
        self._break = (dialect.line_sep or "\n").encode(dialect.codec, "replace")
        self._is_cr_dropped = not dialect.line_sep
        self._has_missing = dialect.missing is not None
        self._given_names = None if names is None else tuple(names)
        self._converters = dict(converters or {})
        self._is_known = is_known
        marks = {*dialect.separator, dialect.quote, dialect.escape}
        self._breaks = {ord(mark): "\n" for mark in _BREAKS if mark not in marks}
        self._reset()

    def _reset(self) -> None:
        self._has_begun = False
        self._header: str | None = None
        self._prefix = ""
        #: Why the header of the file is wrong; "" if it is right.
        self.flaw = ""
        self._lines: list[_Line] = []
        self._values: list[Any] = []
        self._pieces: list[str] = []
        #: Whether the open value has too many lines already.
        self._is_lost = False
        self._names: tuple[str, ...] = ()
        self._converted: list[tuple[str, Converter]] = []
        if self._given_names is not None:
            self._name(self._given_names)

    def _name(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._converted = [
            (name, self._converters[name.lower()]) for name in names if name.lower() in self._converters
        ]

    # -- lines ----------------------------------------------------------------------------------
    def feed(self, line: bytes, row: int) -> list[Row]:
        """Return the records that end in a line.

        :param line: without its line break
        :param row: its number in the file, from 0
        """
        is_broken = False
        try:
            text = line.decode(self._codec)
        except UnicodeDecodeError:
            text, is_broken = line.decode(self._codec, "replace"), True
        if not self._has_begun:
            self._has_begun = True
            text = text.removeprefix("\ufeff")
        if self._lines or self._is_lost:
            return self._read(_Line(text, line, row, is_broken), within=True)
        if self._comment and text.startswith(self._comment):
            return []
        whole = text[:-1] if self._is_cr_dropped and text.endswith("\r") else text
        if not whole or whole == self._header:
            return []
        if self._header is None and self._given_names is None:
            # A header that goes on in the next line is a record, too.
            if self.take_header(whole, line if is_broken else None):
                return self._begin(_Line(text, line, row, is_broken))
            return [Row(self._prefix.removesuffix("\n"), row, Invalid(self.flaw))] if self.flaw else []
        if is_broken or self.flaw or "\0" in whole:
            return self._begin(_Line(text, line, row, is_broken))
        return self._usual(whole, text, line, row)

    def _usual(self, whole: str, text: str, line: bytes, row: int) -> list[Row]:
        """Return the record that begins in a line, by a short way if it also ends there."""
        if self._quote and self._quote in whole:
            values = self._grammar.all_quoted(whole)
            if values is None:
                return self._begin(_Line(text, line, row, is_broken=False))
        elif "\r" in whole or (not self._is_cr_dropped and "\n" in whole):
            return [Row(self._prefix + whole, row, Invalid(MISQUOTED))]
        else:
            values = self._grammar.unquoted(whole)
        return [Row(self._prefix + whole, row, self._named(values))]

    def end(self) -> list[Row]:
        """Return the records that the end of the file leaves, and get ready for the next file."""
        rows = self._unclosed()
        self._reset()
        return rows

    def take_header(self, header: str, broken: bytes | None = None) -> bool:
        """Take the names of the columns from a header, and return whether it goes on in the next line.

        :param broken: its bytes, if they are not in the encoding
        """
        values: list[str] = []
        ends = self._header_grammar.read(header, len(header), values, [], within=False)
        names = tuple(name.strip() or f"_c{place}" for place, name in enumerate(values))
        self._header = header if broken is None else _base64(broken.removesuffix(b"\r"))
        self._prefix = self._header + "\n"
        if broken is not None:
            self.flaw = f"the header of its file is not {self._encoding}"
        elif self._is_split(header):
            self.flaw = BROKEN_HEADER
        elif ends != _CLOSED or "\0" in header:
            self.flaw = MISQUOTED_HEADER
        else:
            self.flaw = self._flaw_of(names)
        self._name(() if self.flaw else names)
        return ends == _OPEN and self._multi_line

    def _is_split(self, header: str) -> bool:
        """Return whether a header has line breaks outside of quotes, and would be right without them."""
        text = header.translate(self._breaks).strip("\n")
        if "\n" not in text:
            return False
        found = [
            self._header_grammar.read(part, len(part), [], [], within=False)
            for part in (text, text.replace("\n", ""))
        ]
        return found == [_WRONG, _CLOSED]

    def _flaw_of(self, names: tuple[str, ...]) -> str:
        """Return why the names of a header cannot be those of columns; "" if they can."""
        lower = [name.lower() for name in names]
        twice = next((name for at, name in enumerate(names) if name.lower() in lower[:at]), None)
        if self._is_known is not None and not any(map(self._is_known, names)):
            return NO_HEADER
        return "" if twice is None else f"the header of its file names the column {twice} twice"

    def _begin(self, line: _Line) -> list[Row]:
        self._values, self._pieces = [], []
        return self._read(line, within=False)

    def _read(self, line: _Line, *, within: bool) -> list[Row]:
        """Read a line with a quote, or one inside of a quoted value."""
        text = line.text
        has_cr = self._is_cr_dropped and text.endswith("\r")
        ends = self._grammar.read(text, len(text) - has_cr, self._values, self._pieces, within=within)
        if ends == _OPEN and not self._multi_line:
            ends = _WRONG
        self._lines.append(line)
        if self._is_lost or len(self._lines) > MOST_LINES:
            self._is_lost = ends == _OPEN
            self._values, self._pieces = [], []
            return self._unclosed()
        if ends == _OPEN:
            return []
        lines, self._lines = self._lines, []
        return self._joined(lines, is_wrong=ends == _WRONG)

    def _joined(self, lines: list[_Line], *, is_wrong: bool) -> list[Row]:
        """Return the record of some lines."""
        text = (self._break.decode(self._codec)).join([line.text for line in lines])
        if self._is_cr_dropped and text.endswith("\r"):
            text = text[:-1]
        row, is_broken = lines[0].row, any(line.is_broken for line in lines)
        if is_broken or self.flaw or "\0" in text:
            data = self._break.join([line.data for line in lines])
            return [self._invalid(text, data, row, is_broken)]
        values = Invalid(MISQUOTED) if is_wrong else self._named(self._values)
        return [Row(self._prefix + text, row, values)]

    def _unclosed(self) -> list[Row]:
        """Return the lines of a quoted value without end, each as an invalid record."""
        lines, self._lines = self._lines, []
        rows = []
        for text, data, row, is_broken in lines:
            whole = text[:-1] if self._is_cr_dropped and text.endswith("\r") else text
            is_header = whole == self._header and not self.flaw
            if not whole or is_header or (self._comment and whole.startswith(self._comment)):
                continue
            rows.append(self._invalid(whole, data, row, is_broken, UNCLOSED))
        return rows

    def _invalid(self, text: str, data: bytes, row: int, is_broken: bool, reason: str = WITH_NUL) -> Row:
        """Return a record that has no values, whatever its text is."""
        if is_broken:
            cr = b"\r" if self._is_cr_dropped else b""
            text, reason = _base64(data.removesuffix(cr)), f"not {self._encoding}"
        return Row(self._prefix + text, row, Invalid(self.flaw or reason))

    # -- values ---------------------------------------------------------------------------------
    def record(self, text: str) -> dict[str, str | None] | Invalid:
        """Return the values of the text of one record."""
        if text.startswith(BASE64):
            try:
                text = base64.b64decode(text[len(BASE64) :], validate=True).decode(self._codec)
            except UnicodeDecodeError:
                return Invalid(self.flaw or f"not {self._encoding}")
            except binascii.Error:
                # A value that only looks like it.
                pass
        if self.flaw:
            return Invalid(self.flaw)
        if "\0" in text:
            return Invalid(WITH_NUL)
        values: list[Any] = []
        ends = self._grammar.read(text, len(text), values, [], within=False)
        is_one_line = self._multi_line or self._break.decode(self._codec) not in text
        return self._named(values) if ends == _CLOSED and is_one_line else Invalid(MISQUOTED)

    def _named(self, values: list[Any]) -> dict[str, str | None] | Invalid:
        names = self._names
        if len(values) != len(names):
            return Invalid(f"it does not have the {len(names)} columns of its file")
        named = dict(zip(names, values, strict=True))
        if self._has_missing and _MISSING in values:
            named = {name: value for name, value in named.items() if value is not _MISSING}
        for name, converter in self._converted:
            text = named.get(name)
            if text:
                found = converter.read(text)
                if isinstance(found, Invalid):
                    return Invalid(f"{name} is no {converter.kind}: {text[:100]}")
                named[name] = found
        return named


def _base64(data: bytes) -> str:
    return BASE64 + base64.b64encode(data).decode()


def again(
    raw: str,
    dialect: Dialect,
    names: Sequence[str] | None,
    converters: Mapping[str, Converter] | None = None,
    is_known: Callable[[str], bool] | None = None,
) -> Row:
    """Return the record of a raw text, as :class:`Row` has it.

    :param names: the names of the columns; None if the raw text begins with the header
    """
    reader, text, is_header = Reader(dialect, names, converters, is_known), raw, False
    if names is None:
        header, mark, text = raw.partition("\n")
        is_header = not mark
        broken = None
        if header.startswith(BASE64):
            try:
                broken = base64.b64decode(header[len(BASE64) :], validate=True)
                header, broken = broken.decode(dialect.codec), None
            except ValueError:
                # A name that only looks like it, or bytes that are still not in the encoding.
                pass
        reader.take_header(header, broken)
    values = reader.record(text)
    # A header that was wrong, and is right by other options, says nothing.
    return Row(raw, 0, None if is_header and not reader.flaw else values)
