"""Aligned text tables for logs and terminals."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: The maximum width of a value, in terminal columns; of a longer value, only the beginning is shown.
WIDEST = 60


def grid(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = (), *, widest: int = WIDEST) -> str:
    """Return rows as a text table: a header, a rule, and a line for each row.

    Numbers are right-aligned, None is empty, lists and mappings are written with commas, and unprintable
    characters are escaped, so that every row is one line.

    :param rows: the rows, as mappings by column name; a row may lack columns
    :param columns: which columns, in which order; empty: all, in order of appearance
    :param widest: the maximum width of a value, in terminal columns
    :return: the lines, without a final end of line; empty without rows and columns
    """
    names = list(columns) or list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        return ""
    numbers = [_is_number(name, rows) for name in names]
    cells = [[clipped(_text(row.get(name)), widest) for name in names] for row in rows]
    return "\n".join(aligned([clipped(name, widest) for name in names], cells, numbers))


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterator[str]:
    """Yield header, rule and rows with columns of equal width.

    :param header: one text per column
    :param rows: texts of one line each
    :param right: which columns are right-aligned
    """
    widths = [max(map(width, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = []
        for cell, wide, to_right in zip(cells, widths, right, strict=True):
            gap = " " * (wide - width(cell))
            padded.append(gap + cell if to_right else cell + gap)
        return "  ".join(padded).rstrip()

    yield line(header)
    yield "  ".join("-" * wide for wide in widths)
    yield from map(line, rows)


def clipped(text: str, widest: int) -> str:
    """Return a text for display in a terminal: one line, no control characters, limited width."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    if width(shown) <= widest:
        return shown
    while width(shown) > widest - 1:
        shown = shown[:-1]
    return f"{shown}…"


def width(text: str) -> int:
    """Return how many terminal columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def _is_number(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    values = [row[name] for row in rows if row.get(name) is not None]
    return bool(values) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(_text, value))
    return str(value)


def plural(count: int, word: str) -> str:
    """Return a count and a word, which gets an s unless the count is 1."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def named_counts(counts: Mapping[str, int]) -> str:
    """Return counts and their names as one text, such as ``1 event, 2 inserted``; "" without any.

    :param counts: by names; those of things are in the plural. A rule's name is as the user wrote it
    """
    return ", ".join(
        plural(count, name[:-1]) if name.endswith("s") and ":" not in name else f"{count} {name}"
        for name, count in counts.items()
    )
