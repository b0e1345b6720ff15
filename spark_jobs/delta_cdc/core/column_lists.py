"""Compare lists of columns by meaning: the sets that they select from the columns of a source.

``track_history_column_list=["name"]`` and the except list that leaves only ``name`` give the same history.
So the configuration that a target was built with is compared by the sets, not by the text.

This module runs without Spark. Some facts need Spark (which columns an expression reads, how it names its
value); they leave a set open, as one of several possible sets, and no possible set is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from delta_cdc.core.spec import ApplyOptions

#: A column, or a field of a struct column, as the names along its path.
Path = tuple[str, ...]

_NAME = r"(?:[A-Za-z_]\w*|`(?:[^`]|``)+`)"
_COLUMN = re.compile(rf"\s*({_NAME})\s*")
_NAMED = re.compile(rf"\s*(.*\S)\s+AS\s+({_NAME})\s*", re.IGNORECASE | re.DOTALL)
_METADATA = ("_commit_version", "_commit_timestamp")

#: Replaces a sequence that a seal does not contain: it may read any column.
UNTOLD = "?"


@dataclass(frozen=True)
class Columns:
    """A set of columns, as far as it is known: all of ``least``, and nothing beyond ``most``."""

    least: frozenset[Path]
    most: frozenset[Path]

    def may_be(self, other: Columns) -> bool:
        """Return whether both may be the same set."""
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
    known: dict[str, list[Path]] = {}
    for path in source:
        known.setdefault(path[0].lower(), []).append(_lowered(path))
    values: dict[str, str] = {}
    for text in options.select or ("*",):
        found = _projected(text, known)
        if found is None:
            return None
        values |= found
    keys, made = _names(options.keys), {n for n, text in options.partition_by.items() if text is not None}
    values |= {name.lower(): f"partition_by {options.partition_by[name]}" for name in made}
    if options.column_list is not None:
        chosen = _names((*options.column_list, *made)) | keys
    else:
        out = _names(options.except_column_list or ())
        out |= _names([options.columns_to_update] if options.columns_to_update is not None else [])
        chosen = (set(values) - out) | keys
    values = {name: text for name, text in values.items() if name in chosen}
    leaves = {
        (name, *path[1:]) for name, text in values.items() for path in known.get(_bare(text), [(name,)])
    }
    return Row(values, frozenset(leaves))


def tracked(options: ApplyOptions, row: Row, sequences: Collection[str] | None = None) -> Columns:
    """Return the tracked columns: a change in one makes a new version of a key.

    :param sequences: columns that the sequence reads, if known; by default they are not tracked
    """
    keys, every = _names(options.keys), set(row.values)
    if options.track_history_column_list is not None:
        return _exactly(every & _names(options.track_history_column_list) - keys)
    if options.track_history_except_column_list is not None:
        return _exactly(every - _names(options.track_history_except_column_list) - keys)
    if sequences is not None:
        return _exactly(every - _names(sequences) - keys)
    texts = [text for text in (*options.sequences, options.delete_sequence) if text not in (None, *_METADATA)]
    read = {name for name in every if any(name == _bare(str(text)) for text in texts)}
    # As the engine does: an expression may read each column whose name its text contains.
    maybe = {name for name in every if any(name in str(text).lower() or text == UNTOLD for text in texts)}
    return Columns(_paths(every - maybe - keys), _paths(every - read - keys))


def keeping_nulls(options: ApplyOptions, row: Row) -> Columns:
    """Return the columns, and fields of structs, in which a NULL keeps the old value."""
    keys = _names(options.keys)
    every = frozenset(path for path in row.leaves if path[0] not in keys)
    listed, left_out = options.ignore_null_updates_column_list, options.ignore_null_updates_except_column_list
    if listed is None and left_out is None:
        found = every if options.ignore_null_updates else frozenset()
        return Columns(found, found)
    names = _names(listed if listed is not None else left_out or ())
    inside = frozenset(path for path in every if names & _ways(path))
    # The name is a field of a struct that an expression makes: only a part of its column.
    partly = frozenset(path for path in every if any(n.startswith(f"{'.'.join(path)}.") for n in names))
    if listed is not None:
        return Columns(inside, inside | partly)
    return Columns(every - inside - partly, every - inside)


def _projected(text: str, known: dict[str, list[Path]]) -> dict[str, str] | None:
    """Return the output names of a projection, each with its value; None if that needs Spark."""
    if text.strip() == "*":
        return {name: name for name in known}
    bare = _bare(text)
    if bare in known:
        return {bare: bare}
    named = _NAMED.fullmatch(text)
    if named is None:
        return None
    value = " ".join(named[1].split())
    return {_unquoted(named[2]): _bare(value) if _bare(value) in known else value}


def _bare(text: str) -> str:
    """Return the column that a text names, in lower case; "" for any other expression."""
    found = _COLUMN.fullmatch(text)
    return _unquoted(found[1]) if found is not None else ""


def _unquoted(name: str) -> str:
    return (name[1:-1].replace("``", "`") if name.startswith("`") else name).lower()


def _ways(path: Path) -> set[str]:
    """Return the names that include a leaf field: its own, and those of its parents."""
    return {".".join(path[: at + 1]) for at in range(len(path))}


def _names(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def _lowered(path: Path) -> Path:
    return tuple(name.lower() for name in path)


def _exactly(names: Collection[str]) -> Columns:
    found = _paths(names)
    return Columns(found, found)


def _paths(names: Iterable[str]) -> frozenset[Path]:
    return frozenset((name,) for name in names)
