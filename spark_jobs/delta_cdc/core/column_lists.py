"""Compare lists of columns by meaning: the sets that they select from the columns of a source.

``track_history_column_list=["name"]`` and the except list that leaves only ``name`` give the same history.
So the configuration that a target was built with is compared by the sets, not by the text.

This module runs without Spark, but only Spark knows which columns an expression reads and how it names its
value. So a set may be known only in part, and two sets that may be equal are not refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from delta_cdc.core.options import ApplyOptions

#: A column, or a field of a struct column, as the names along its path.
Path = tuple[str, ...]

_NAME = r"(?:[A-Za-z_]\w*|`(?:[^`]|``)+`)"
_COLUMN = re.compile(rf"\s*({_NAME})\s*")
_ALIASED = re.compile(rf"\s*+(.*\S)\s++AS\s++({_NAME})\s*+", re.IGNORECASE | re.DOTALL)
_METADATA = ("_commit_version", "_commit_timestamp")


def did_you_mean(missing: Iterable[str], existing: Iterable[str]) -> str:
    """Return the start of a remedy with the columns whose names are like missing ones; "" without any.

    :return: such as ``did you mean id? Else ``
    """
    by_lower = {name.lower(): name for name in existing}
    near = [get_close_matches(name.lower(), by_lower, n=1) for name in missing]
    found = [by_lower[name] for names in near for name in names]
    return f"did you mean {', '.join(found)}? Else " if found else ""


@dataclass(frozen=True)
class Columns:
    """A set of columns that may be known only in part: it contains ``least``, and ``most`` contains it."""

    least: frozenset[Path | str]
    most: frozenset[Path | str]

    @classmethod
    def of(cls, least: Iterable[Path | str], most: Iterable[Path | str] | None = None) -> Columns:
        """Return a known set; or, with ``most``, a set that ``most`` limits."""
        return cls(frozenset(least), frozenset(least if most is None else most))

    def may_be(self, other: Columns) -> bool:
        """Return whether the two sets may be equal."""
        return self.least <= other.most and other.least <= self.most


@dataclass(frozen=True)
class Row:
    """The columns of a row written to the target: the value of each by its name, and its leaf fields."""

    values: dict[str, str]
    leaves: frozenset[Path]


def landing(options: ApplyOptions, source: Iterable[Path]) -> Row | None:
    """Return the row written to the target; None if a projection's name cannot be read without Spark.

    :param source: leaf fields of the source's columns
    """
    columns: dict[str, list[Path]] = {}
    for path in source:
        columns.setdefault(path[0].lower(), []).append(tuple(name.lower() for name in path))
    values: dict[str, str] = {}
    for text in options.select or ("*",):
        projected = _projected(text, columns)
        if projected is None:
            return None
        values |= projected
    partitions = {
        name.lower(): f"partition_by {sql}" for name, sql in options.partition_by.items() if sql is not None
    }
    values |= partitions
    if options.column_list is not None:
        chosen = _names((*options.column_list, *partitions))
    else:
        update = (options.columns_to_update,) if options.columns_to_update is not None else ()
        chosen = set(values) - _names((*(options.except_column_list or ()), *update))
    chosen |= _names(options.keys)
    values = {name: text for name, text in values.items() if name in chosen}
    leaves = {
        (name, *path[1:]) for name, text in values.items() for path in columns.get(_bare(text), [(name,)])
    }
    return Row(values, frozenset(leaves))


def tracked(options: ApplyOptions, row: Row, sequences: Sequence[str] | None = None) -> Columns:
    """Return the tracked columns: a change in one makes a new version of a key.

    :param sequences: columns that the sequence reads, if known; by default they are not tracked
    """
    every = set(row.values) - _names(options.keys)
    if options.track_history_column_list is not None:
        return Columns.of(every & _names(options.track_history_column_list))
    except_list = options.track_history_except_column_list
    excluded = except_list if except_list is not None else sequences
    if excluded is not None:
        return Columns.of(every - _names(excluded))
    texts = [text for text in (*options.sequences, options.delete_sequence) if text not in (None, *_METADATA)]
    certain = {_bare(str(text)) for text in texts}
    # The engine assumes the same: an expression may read each column whose name its text contains.
    possible = {name for name in every if any(name in str(text).lower() for text in texts)}
    return Columns.of(every - possible, every - certain)


def keeping_nulls(options: ApplyOptions, row: Row) -> Columns:
    """Return the columns, and fields of structs, in which a NULL keeps the old value."""
    keys = _names(options.keys)
    every = {path for path in row.leaves if path[0] not in keys}
    included, excluded = (
        options.ignore_null_updates_column_list,
        options.ignore_null_updates_except_column_list,
    )
    if included is None and excluded is None:
        return Columns.of(every if options.ignore_null_updates else ())
    names = _names(included if included is not None else excluded or ())
    # A list names a leaf field by its own path, or by the path of a parent.
    inside = {path for path in every if any(".".join(path[:end]) in names for end in range(1, len(path) + 1))}
    # The name is a field of a struct that an expression makes, so it covers only a part of the column.
    partly = {path for path in every if any(name.startswith(f"{'.'.join(path)}.") for name in names)}
    if included is not None:
        return Columns.of(inside, inside | partly)
    return Columns.of(every - inside - partly, every - inside)


def _projected(text: str, columns: Collection[str]) -> dict[str, str] | None:
    """Return the output names of a projection, each with its value; None if that needs Spark."""
    if text.strip() == "*":
        return {name: name for name in columns}
    bare = _bare(text)
    if bare in columns:
        return {bare: bare}
    aliased = _ALIASED.fullmatch(text)
    if aliased is None:
        return None
    value = " ".join(aliased[1].split())
    return {_unquoted(aliased[2]): _bare(value) if _bare(value) in columns else value}


def _bare(text: str) -> str:
    """Return the column that a text names, in lower case; "" for any other expression."""
    column = _COLUMN.fullmatch(text)
    return _unquoted(column[1]) if column is not None else ""


def _unquoted(name: str) -> str:
    return (name[1:-1].replace("``", "`") if name.startswith("`") else name).lower()


def _names(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}
