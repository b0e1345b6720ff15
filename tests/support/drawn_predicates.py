"""Random predicates over key columns, with what they mean; and texts that differ from one by some tokens."""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    #: The tokens of a predicate, and its value for a row: true, false or unknown.
    Drawn = tuple[list[str], Callable[[dict[str, Any]], bool | None]]

#: Columns as SQL and by name.
NUMBERS = {"id": "id", "ID": "id", "`we``ird`": "we`ird"}
TEXTS = {"`a.b`": "a.b"}
KEYS = ("id", "we`ird", "a.b")
_VALUES = ("", "a", "ab", "b'", "B%")
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
#: Tokens that a mutated predicate may contain.
NOISE = (
    *(
        "(",
        ")",
        ",",
        "-",
        "+",
        "*",
        ".",
        "'",
        "`",
        '"',
        "--",
        "/*",
        "*/",
        "\\",
        ";",
        "$",
        "\x00",
        "é",
        "5L",
        "1e5",
    ),
    *("AND", "or", "NOT", "IN", "IS", "NULL", "BETWEEN", "LIKE", "TRUE", "SELECT", "FROM", "EXISTS", "CASE"),
    *(
        "id",
        "other",
        "`other`",
        "id.x",
        "now()",
        "rand",
        "repeat",
        "DATE'2024-01-01'",
        "DATE'today'",
        "X'0g'",
    ),
    *("(SELECT max(id) FROM delta.`/lake/secret`)", "cast(id AS string)", "current_user", "IDENTIFIER('id')"),
)


def drawn(draw: Random, depth: int = 0) -> Drawn:
    """Return a predicate's tokens, and its meaning."""
    kind = draw.choice(("and", "or", "not", "one", "one", "one")) if depth < 4 else "one"
    if kind == "one":
        return _condition(draw)
    first, first_value = drawn(draw, depth + 1)
    if kind == "not":
        return ["NOT", "(", *first, ")"], lambda row: _not(first_value(row))
    second, second_value = drawn(draw, depth + 1)
    tokens = ["(", *first, ")", draw.choice((kind, kind.upper())), "(", *second, ")"]
    deciding = kind == "or"

    def value(row: dict[str, Any]) -> bool | None:
        found = {first_value(row), second_value(row)}
        return deciding if deciding in found else None if None in found else not deciding

    return tokens, value


def _condition(draw: Random) -> Drawn:
    is_text = draw.random() < 0.4
    sql, name = draw.choice(sorted((TEXTS if is_text else NUMBERS).items()))
    values = _VALUES if is_text else (-3, 0, 1, 7)
    one, other = draw.choice(values), draw.choice(values)
    negated = draw.random() < 0.3
    no = ["NOT"] if negated else []
    form = draw.choice(("compare", "safe", "null", "in", "between", *(["like"] if is_text else [])))
    if form == "compare":
        sign = draw.choice(sorted(_OPERATORS))
        return [sql, sign, *_literal(one)], _known(name, lambda value: _OPERATORS[sign](value, one))
    if form == "safe":
        return [sql, "<=>", *_literal(one)], lambda row: row[name] == one
    if form == "null":
        return [sql, "IS", *no, "NULL"], lambda row: (row[name] is None) != negated
    if form == "in":
        listed = ["(", *_literal(one), ",", *_literal(other), ")"]
        return [sql, *no, "IN", *listed], _known(name, lambda value: (value in (one, other)) != negated)
    if form == "like":
        pattern = draw.choice(("%", "a%", "_", "%b'"))
        regex = re.escape(pattern).replace("%", ".*").replace("_", ".")
        return [sql, *no, "LIKE", *_literal(pattern)], _known(
            name, lambda value: (re.fullmatch(regex, value) is not None) != negated
        )
    bounds = [*_literal(one), "AND", *_literal(other)]
    return [sql, *no, "BETWEEN", *bounds], _known(name, lambda value: (one <= value <= other) != negated)


def _known(name: str, of_value: Callable[[Any], bool]) -> Callable[[dict[str, Any]], bool | None]:
    return lambda row: None if row[name] is None else of_value(row[name])


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _literal(value: int | str) -> list[str]:
    if isinstance(value, str):
        return ["'" + value.replace("'", "''") + "'"]
    return ["-", str(-value)] if value < 0 else [str(value)]


def mutated(draw: Random, tokens: list[str]) -> str:
    """Return a text with a few tokens of a predicate dropped, replaced, or put in."""
    tokens = list(tokens)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(tokens) + 1)
        tokens[at : at + draw.randint(0, 1)] = draw.choices(NOISE, k=draw.randint(0, 1))
    return draw.choice((" ", " ", "\n", "")).join(tokens)
