"""Split Spark SQL into tokens, in time in proportion to its length.

>>> [token.text for token in tokens("a.b = 'it''s'")]
['a.b', ' ', '=', ' ', "'it''s'"]
"""

from __future__ import annotations

import re
from typing import NamedTuple

# No part gives back what it has read, and what never ends takes the rest: so each text is read once.
_GAP = r"(?> \s+ | --(?: \\\n | [^\r\n] )* | /\*.*?(?: \*/ | \Z ) )"
_STRING = (
    r"""(?> [rR]' ([^']*) ' | [rR]" ([^"]*) " | ' ((?: [^'\\] | \\. | '' )*+) ' """
    r"""| " ((?: [^"\\] | \\. | "" )*+) " )"""
)
_NAME = r"(?> ` (?: [^`] | `` )*+ ` | \w+ )"
# Compiled at first use, because that takes as long as the import of several modules.
_TOKEN = rf"""(?xs)(?P<gap> {_GAP} )
    | (?P<text> {_STRING} (?: {_GAP}*+ {_STRING} )*+ )
    | (?P<name> (?!\d){_NAME} (?: {_GAP}*+ \. {_GAP}*+ {_NAME} )*+ )
    | (?P<number> (?: \d++ (?: \.\d*+ )? | \.\d++ ) (?: [eE][+-]?\d++ )? \w*+ )
    | (?P<other> <=> | [<>!=]= | <> | ["'`].* | . )"""


class Token(NamedTuple):
    """A part of a statement.

    :param kind: ``gap`` (blanks or a comment), ``text`` (adjacent string literals are one), ``name`` (also a
        qualified one, and a keyword), ``number``, or ``other``: an operator, a bracket, or all from a quote
        that nothing closes
    :param text: as written
    :param start: number of characters before it
    """

    kind: str
    text: str
    start: int


def tokens(sql: str) -> list[Token]:
    """Return the tokens of a text; together, they are the text."""
    return [Token(str(match.lastgroup), match[0], match.start()) for match in re.finditer(_TOKEN, sql)]


def contents(text: str) -> str:
    """Return the characters inside the quotes of a token of kind ``text``, with escapes as written."""
    return "".join(
        part or "" for match in re.finditer(rf"(?xs){_STRING} | {_GAP}", text) for part in match.groups()
    )


def names(text: str) -> list[str]:
    """Return the parts of a qualified name, with their back-ticks."""
    return re.findall(rf"(?xs){_NAME}", text)


def bare(name: str) -> str:
    """Return a name without back-ticks."""
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
