"""Check the predicate ``repair_keys``: comparisons of key columns with literals, and nothing else.

A user who may only start a run can write it. So Spark must not see a text that reads a table or a file, or
calls a function: the analysis of a subquery already shows which paths and columns exist.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.sql_tokens import Token, bare, contents, names, tokens

if TYPE_CHECKING:
    from collections.abc import Collection

#: The longest predicate, in characters; its most conditions; its most brackets and NOTs inside each other.
LONGEST, MOST, DEEPEST = 50_000, 500, 50
#: Each of these wildcards multiplies the work for a key.
MOST_WILDCARDS = 5

_COMPARISONS = ("=", "==", "<=>", "<>", "!=", "<", "<=", ">", ">=")
_RESERVED = frozenset({"and", "or", "not", "in", "between", "like", "is", "null", "true", "false"})
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"(?=[\d.]{1,38}(?:[eE]|\Z))(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,2})?", re.ASCII)
_TIME = r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?"
_ZONE = r"Z|[+-](?:0\d|1[0-7]):[0-5]\d"
#: The form of typed literals, by their types.
_TYPED = {
    "date": re.compile(r"\d{4}-\d\d-\d\d", re.ASCII),
    "timestamp": re.compile(rf"{_TIME}(?:{_ZONE})?)?", re.ASCII),
    "timestamp_ltz": re.compile(rf"{_TIME}(?:{_ZONE})?)?", re.ASCII),
    "timestamp_ntz": re.compile(rf"{_TIME})?", re.ASCII),
    "x": re.compile(r"(?:[0-9A-Fa-f]{2})*"),
}


def check_key_predicate(text: str, keys: Collection[str] | None = None) -> None:
    """Refuse a predicate that is more than comparisons of key columns with literals.

    :param text: the predicate; Spark may still refuse the types that it compares
    :param keys: names of the key columns, in any case; None allows any name
    :raises InvalidConfiguration: names the place in the text, and what is allowed
    """
    if len(text) > LONGEST:
        raise _refused(f"repair_keys has {len(text)} characters, more than {LONGEST}", keys)
    _Predicate(text, keys).check()


class _Predicate:
    """Read a predicate from left to right, as Spark's grammar nests its parts."""

    def __init__(self, text: str, keys: Collection[str] | None) -> None:
        self._text, self._keys = text, keys
        self._names = None if keys is None else {key.lower() for key in keys}
        found = (token for token in tokens(text) if token.kind != "gap" or token.text.strip(" \t\r\n"))
        self._tokens = [*found, Token("end", "", len(text))]
        self._at = self._conditions = 0

    def check(self) -> None:
        self._disjunction(0)
        if self._next.kind != "end":
            self._fail()

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _takes(self, *words: str) -> bool:
        """Return whether the next token is one of some words or operators; skip it then."""
        found = self._next.kind in ("name", "other") and self._next.text.lower() in words
        self._at += found
        return found

    def _needs(self, word: str) -> None:
        if not self._takes(word):
            self._fail()

    def _fail(self, because: str = "") -> None:
        token = self._next
        shown = f"{token.text[:40]!r}" if token.text else "the end"
        place = f"character {token.start + 1} of repair_keys, {self._text[:200]!r}"
        raise _refused(f"{shown} cannot stand at {place}{because}", self._keys)

    # -- predicates -----------------------------------------------------------------------------
    def _disjunction(self, depth: int) -> None:
        if depth > DEEPEST:
            self._fail(f": more than {DEEPEST} brackets and NOTs are inside each other")
        self._conjunction(depth)
        while self._takes("or"):
            self._conjunction(depth)

    def _conjunction(self, depth: int) -> None:
        self._negation(depth)
        while self._takes("and"):
            self._negation(depth)

    def _negation(self, depth: int) -> None:
        while self._takes("not"):
            depth += 1
        if self._takes("("):
            self._disjunction(depth + 1)
            self._needs(")")
        elif depth > DEEPEST or self._conditions >= MOST:
            self._fail(
                f": it has more than {MOST} conditions, or {DEEPEST} brackets and NOTs inside each other"
            )
        else:
            self._conditions += 1
            self._condition()

    def _condition(self) -> None:
        if self._operand() == "truth" and (self._next.kind == "end" or self._is_joint()):
            return
        if self._takes(*_COMPARISONS):
            self._operand()
        elif self._takes("is"):
            self._takes("not")
            self._needs("null")
        else:
            self._takes("not")
            self._range()

    def _is_joint(self) -> bool:
        return self._next.text.lower() in ("and", "or", ")")

    def _range(self) -> None:
        if self._takes("between"):
            self._operand()
            self._needs("and")
            self._operand()
        elif self._takes("like"):
            self._pattern()
        else:
            self._needs("in")
            self._needs("(")
            self._operand()
            while self._takes(","):
                self._operand()
            self._needs(")")

    def _pattern(self) -> None:
        token = self._next
        if token.kind != "text" or "\\" in token.text or token.text.count("%") > MOST_WILDCARDS:
            self._fail(f": LIKE takes a text without backslashes, and with at most {MOST_WILDCARDS} '%'")
        self._at += 1

    # -- operands -------------------------------------------------------------------------------
    def _operand(self) -> str:
        """Skip a key or a literal; return ``truth`` for TRUE, FALSE and NULL, which are predicates."""
        if self._takes("true", "false", "null"):
            return "truth"
        if self._takes("+", "-") and self._next.kind != "number":
            self._fail()
        token = self._next
        following = self._tokens[self._at + 1] if token.kind != "end" else token
        if token.kind == "name" and following.kind == "text":
            self._at += _is_typed_literal(token, following)
            if self._next is token:
                self._fail(": this typed literal cannot be read")
        elif not (
            token.kind == "text"
            or (token.kind == "number" and _NUMBER.fullmatch(token.text))
            or (token.kind == "name" and self._is_key(token))
        ):
            self._fail()
        self._at += 1
        return token.kind

    def _is_key(self, token: Token) -> bool:
        """Return whether a name is that of a key, or of a field of a key."""
        parts = names(token.text)
        return all(map(_is_safe, parts)) and (self._names is None or bare(parts[0]).lower() in self._names)


def _is_safe(name: str) -> bool:
    is_plain = _PLAIN_NAME.fullmatch(name) is not None and name.lower() not in _RESERVED
    return is_plain or (name.startswith("`") and len(name) > 2)


def _is_typed_literal(name: Token, text: Token) -> bool:
    """Return whether a name and a text are a date, a time or bytes as Spark reads them."""
    form = _TYPED.get(name.text.lower())
    value = contents(text.text)
    if form is None or text.text[1:-1] != value or not form.fullmatch(value):
        return False
    if name.text.lower() == "x":
        return True
    with suppress(ValueError):
        return bool(datetime.fromisoformat(value))
    return False


def _refused(what: str, keys: Collection[str] | None) -> InvalidConfiguration:
    named = "the key columns" if not keys else f"the key columns ({', '.join(keys)})"
    return InvalidConfiguration(
        f"{what}.",
        remedy=f"compare {named} with numbers, texts, TRUE, FALSE, NULL, DATE'…', TIMESTAMP'…' or X'…' by =, "
        "<=>, <>, <, <=, >, >=, IN, BETWEEN, LIKE or IS NULL, and join such comparisons by AND, OR, NOT and "
        "brackets. Write a name that is no plain word between back-ticks.",
        argument="repair_keys",
    )
