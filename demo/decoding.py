"""Reads what ``test_decoding``, PostgreSQL's own output plugin for logical decoding, says about changes.

It speaks in lines for people: ``table public.t: UPDATE: old-key: id[integer]:1 new-tuple: id[integer]:2``.
Text is in single quotes, which are doubled inside and the only escape; numbers and booleans stand bare. A
value of several lines is one value of the answer, not several: what is read here are values, not lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from demo.postgres import Row

#: Values of a row by column; None is NULL. A column that the change does not carry is not there.
Values = dict[str, str | None]

_NAME = r'(?:[a-z_][a-z0-9_$]*|"(?:[^"]|"")+")'
_TABLE = rf"{_NAME}\.{_NAME}"
_CHANGE = re.compile(rf"table (?P<tables>{_TABLE}(?:, {_TABLE})*): (?P<operation>[A-Z]+): ", re.DOTALL)
# A type may be an array, or have a name with brackets of its own, which is quoted then.
_COLUMN = re.compile(
    rf"(?P<name>{_NAME})"
    r'\[(?P<type>(?:"(?:[^"]|"")+"|\[\]|[^"\[\]])+)\]:'
    r"(?:(?P<bits>B)?'(?P<text>[^']*(?:''[^']*)*)'|(?P<bare>[^ ']+))(?: |$)",
    re.DOTALL,
)
_BEGIN = re.compile(r"BEGIN (\d+)$")
_COMMIT = re.compile(r"COMMIT (\d+)(?: \(at (.+)\))?$")

_OLD, _NEW = "old-key: ", "new-tuple: "
_NOTHING = "(no-tuple-data)"
_UNCHANGED = "unchanged-toast-datum"


class NotUnderstood(RuntimeError):
    """A line of ``test_decoding`` that this module cannot read."""


@dataclass(frozen=True)
class Change:
    """One change of one row, or the end of all rows of a table.

    :param table: qualified name, without quotes
    :param operation: ``INSERT``, ``UPDATE``, ``DELETE`` or ``TRUNCATE``
    :param old: of an update that changed the key, or of a table that logs whole rows, and of a delete: the
        replica identity before it, without columns that were NULL
    :param new: of an insert or update: the row after it
    :param unchanged: columns of the row that were stored out of line, are as before, and are not in ``new``
    """

    table: str
    operation: str
    old: Values = field(default_factory=dict)
    new: Values = field(default_factory=dict)
    unchanged: tuple[str, ...] = ()


@dataclass(frozen=True)
class Transaction:
    """What one transaction did, in order.

    :param xid: its id
    :param lsn: where its commit ends in the write-ahead log: later transactions have a higher one
    :param committed_at: when it was committed, as PostgreSQL says it; "" where it was not requested
    """

    xid: int
    lsn: int
    committed_at: str
    changes: tuple[Change, ...]


def transactions(rows: Iterable[Row]) -> Iterator[Transaction]:
    """Gather the rows of ``pg_logical_slot_peek_changes`` and its like (``lsn, xid, data``).

    :raises NotUnderstood: for a line that ``test_decoding`` does not write, or a transaction without its end
    """
    changes: list[Change] | None = None
    for lsn, xid, data in rows:
        assert lsn is not None, "a change without its place in the write-ahead log"
        assert xid is not None, "a change without its transaction"
        assert data is not None, "a change without text"
        if _BEGIN.match(data):
            changes = []
        elif (end := _COMMIT.match(data)) and changes is not None:
            yield Transaction(int(xid), location(lsn), end[2] or "", tuple(changes))
            changes = None
        elif changes is not None:
            changes += parsed(data)
        else:
            raise NotUnderstood(f"{lsn}: outside of a transaction: {data[:200]!r}")
    if changes is not None:
        raise NotUnderstood("the last transaction has no end")


def location(lsn: str) -> int:
    """Return a place in the write-ahead log, for instance ``0/1A2B3C``, as a number of bytes."""
    high, _, low = lsn.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def parsed(data: str) -> list[Change]:
    """Read one change; a TRUNCATE of several tables is as many.

    :raises NotUnderstood: for anything else
    """
    found = _CHANGE.match(data)
    if found is None:
        raise NotUnderstood(f"not a change: {data[:200]!r}")
    tables = [_unquoted(name) for name in re.findall(_TABLE, found["tables"])]
    operation, rest = found["operation"], data[found.end() :]
    if operation == "TRUNCATE":
        return [Change(table, operation) for table in tables]
    (table,) = tables
    if operation == "DELETE":
        # The replica identity, or all of the row: nothing names which.
        old, _ = _columns(rest)
        return [Change(table, operation, old=old)]
    old_text, new_text = _halves(rest)
    old, _ = _columns(old_text)
    new, unchanged = _columns(new_text)
    return [Change(table, operation, old, new, unchanged)]


def _halves(text: str) -> tuple[str, str]:
    """Split what an insert or update says into the row before and the row after."""
    if not text.startswith(_OLD):
        return "", text
    end = len(_OLD)
    while column := _COLUMN.match(text, end):
        end = column.end()
    if not text.startswith(_NEW, end):
        raise NotUnderstood(f"no row after the old key: {text[:200]!r}")
    return text[len(_OLD) : end], text[end + len(_NEW) :]


def _columns(text: str) -> tuple[Values, tuple[str, ...]]:
    """Read the columns of a row: values, and names of those that are not carried."""
    values: Values = {}
    unchanged: list[str] = []
    if text == _NOTHING:
        return values, ()
    at = 0
    while at < len(text):
        column = _COLUMN.match(text, at)
        if column is None:
            raise NotUnderstood(f"not a column: {text[at : at + 200]!r}")
        at = column.end()
        name = _unquoted(column["name"])
        if column["text"] is not None:
            values[name] = column["text"].replace("''", "'")
        elif column["bare"] == _UNCHANGED:
            unchanged.append(name)
        else:
            values[name] = None if column["bare"] == "null" else column["bare"]
    return values, tuple(unchanged)


def _unquoted(name: str) -> str:
    """Return an identifier, qualified or not, as it is called."""
    parts = re.findall(_NAME, name)
    return ".".join(part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts)
