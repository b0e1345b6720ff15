"""Read a list of columns as Spark's SQL has it, where there is no Spark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from delta_cdc.ingest import types
from delta_cdc.ingest.record import Invalid

if TYPE_CHECKING:
    from delta_cdc.ingest.types import Type

#: The most levels of a type.
_MOST_DEPTH = 50
_SIMPLE = {
    "boolean": types.BOOLEAN,
    "tinyint": types.BYTE,
    "byte": types.BYTE,
    "smallint": types.SHORT,
    "short": types.SHORT,
    "int": types.INTEGER,
    "integer": types.INTEGER,
    "bigint": types.LONG,
    "long": types.LONG,
    "float": types.FLOAT,
    "real": types.FLOAT,
    "double": types.DOUBLE,
    "string": types.STRING,
    "binary": types.BINARY,
    "date": types.DATE,
    "timestamp": types.TIMESTAMP,
    "timestamp_ltz": types.TIMESTAMP,
    "timestamp_ntz": types.TIMESTAMP_NTZ,
    "variant": types.VARIANT,
    "void": types.VOID,
}
_DECIMALS, _TEXTS = ("decimal", "dec", "numeric"), ("char", "character", "varchar")
_TOKEN = re.compile(
    r"(?P<blank>\s++|--[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)"
    r"|`(?P<quoted>(?:[^`]++|``)++)`"
    r"|(?P<word>\w++)"
    r"|(?P<text>'(?:[^'\\]++|\\.|'')*+'|\"(?:[^\"\\]++|\\.|\"\")*+\")"
    r"|(?P<mark>[<>(),:])",
    re.DOTALL,
)


class _Token(NamedTuple):
    """A part of the text.

    :param kind: ``quoted``, ``word``, ``text``, ``mark``, or ``end``
    """

    kind: str
    text: str


class _NotReadable(Exception):
    """The text is no list of columns; the message is the reason."""


def parse_ddl(text: str) -> Type | Invalid:
    """Return the columns of a text such as ``id INT, v STRING COMMENT 'x'`` as a struct."""
    try:
        return _Reader(_tokens(text)).columns()
    except _NotReadable as error:
        return Invalid(str(error))


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _NotReadable(f"{text[at]!r} is not expected at character {at + 1}")
        at, kind = match.end(), match.lastgroup or ""
        if kind != "blank":
            found.append(_Token(kind, match[kind]))
    return [*found, _Token("end", "the end")]


class _Reader:
    """Reads tokens from left to right."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0

    def columns(self) -> Type:
        """Return the columns, which are all of the text."""
        is_struct = self._next.text.lower() == "struct" and self._tokens[1:2] == [_Token("mark", "<")]
        found = self._type() if is_struct else types.struct(self._fields())
        if self._next.kind != "end":
            raise self._unexpected("a comma or the end")
        return found

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _unexpected(self, wanted: str) -> _NotReadable:
        return _NotReadable(f"{self._next.text[:100]} is written where {wanted} is expected")

    def _take(self, *texts: str) -> str | None:
        """Return the next mark or word if it is one of some, in lower case, and go on."""
        token = self._next
        lower = token.text.lower()
        if token.kind not in ("mark", "word") or lower not in texts:
            return None
        self._at += 1
        return lower

    def _need(self, text: str) -> None:
        if self._take(text) is None:
            raise self._unexpected(text)

    def _fields(self) -> list[tuple[str, Type]]:
        fields = [self._field()]
        while self._take(","):
            fields.append(self._field())
        names: set[str] = set()
        for name, _ in fields:
            if name.lower() in names:
                raise _NotReadable(f"two columns or fields have the name {name}")
            names.add(name.lower())
        return fields

    def _field(self) -> tuple[str, Type]:
        name = self._next
        if name.kind not in ("word", "quoted"):
            raise self._unexpected("a name")
        self._at += 1
        # Fields of a struct have a colon; it may be omitted.
        self._take(":")
        kind = self._type()
        if self._take("not"):
            self._need("null")
        if self._take("comment"):
            if self._next.kind != "text":
                raise self._unexpected("a text in quotes")
            self._at += 1
        return name.text.replace("``", "`") if name.kind == "quoted" else name.text, kind

    def _type(self) -> Type:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise _NotReadable(f"a type has more than {_MOST_DEPTH} levels")
        name = self._next.text.lower() if self._next.kind == "word" else ""
        if not name:
            raise self._unexpected("a type")
        self._at += 1
        found = self._nested(name) or self._atomic(name)
        if found is None:
            raise _NotReadable(f"no type {name[:100]} can be read from records")
        self._depth -= 1
        return found

    def _nested(self, name: str) -> Type | None:
        if name not in ("array", "map", "struct"):
            return None
        self._need("<")
        if name == "struct":
            # An empty struct is Spark's, too.
            found = types.struct([] if self._next == _Token("mark", ">") else self._fields())
        elif name == "array":
            found = types.array(self._type())
        else:
            key = self._type()
            self._need(",")
            found = types.map_of(key, self._type())
        self._need(">")
        return found

    def _atomic(self, name: str) -> Type | None:
        if name in _DECIMALS:
            precision, scale = self._numbers(10, 0)
            if not 1 <= precision <= 38 or scale > precision:
                raise _NotReadable(f"decimal({precision},{scale}) is no type: it may have 1 to 38 digits")
            return types.decimal(precision, scale)
        if name in _TEXTS:
            if self._next != _Token("mark", "("):
                raise self._unexpected("(")
            self._numbers(0)
            return types.STRING
        if name == "string" and self._take("collate"):
            if self._next.kind not in ("word", "quoted"):
                raise self._unexpected("a collation")
            self._at += 1
        return _SIMPLE.get(name)

    def _numbers(self, *defaults: int) -> list[int]:
        """Return the numbers in parentheses after a type; the defaults for those that are missing."""
        found = list(defaults)
        if not self._take("("):
            return found
        for place in range(len(defaults)):
            if place and not self._take(","):
                break
            number = self._next.text
            if self._next.kind != "word" or not (number.isascii() and number.isdigit() and len(number) < 10):
                raise self._unexpected("a number")
            found[place] = int(number)
            self._at += 1
        self._need(")")
        return found
