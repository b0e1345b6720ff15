"""Compare the columns of a table between two of its schemas, as Delta's log records them.

Within one table, columns are matched by their column-mapping id if both schemas have ids, so that a rename
differs from a drop; otherwise by name, without regard to case. Example, by id::

    before   id (1) int, name (2), note (3)
    after    id (1) bigint, full_name (2), city (4)
    changes  id widened from integer to long, name renamed to full_name, note dropped, city added
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from delta_cdc.core import codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: The kinds of changes that each policy follows, besides new columns. A policy that follows any also copies
#: comments and relaxes NOT NULL.
FOLLOWED: dict[str, frozenset[str]] = {
    "widen": frozenset({"widened"}),
    "keep_dropped": frozenset({"widened", "dropped"}),
    "mirror": frozenset({"widened", "dropped", "renamed"}),
}
#: The policies of FOLLOWED that a pipeline may have whose target is a change log. Older events keep a dropped
#: column, and NULL in newer ones would replace values in the target.
FOLLOWED_BY_LOGS = ("widen",)
#: Kinds of changes after which old rows cannot be read with the new schema as they were.
_LOSSY = ("widened", "retyped", "dropped", "renamed")

#: The names that a path has for the parts of arrays and maps.
_PARTS = frozenset({"element", "key", "value"})
_ID = "delta.columnMapping.id"
_PHYSICAL_NAME = "delta.columnMapping.physicalName"
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
#: Types to which Delta widens each type, without decimals.
_WIDER = {
    "byte": ("short", "integer", "long", "double"),
    "short": ("integer", "long", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
#: The number of digits of a decimal that holds all values of an integer type.
_DIGITS = {"byte": 10, "short": 10, "integer": 10, "long": 20}


@dataclass(frozen=True)
class ColumnChange:
    """One change of a column, or of a field inside it.

    :param path: its names from the column down; ``element``, ``key`` and ``value`` inside arrays and maps.
        In the names of the older schema for ``dropped`` and ``renamed``, otherwise in those of the newer one
    :param before: the type, for ``widened`` and ``retyped``
    :param after: the new type, the new name, or the new comment
    """

    kind: Literal["added", "widened", "retyped", "dropped", "renamed", "comment", "nullable"]
    path: tuple[str, ...]
    before: str = ""
    after: str = ""

    @property
    def is_lossy(self) -> bool:
        """Return whether the new schema does not show all values of old rows as they were."""
        return self.kind in _LOSSY

    @property
    def name(self) -> str:
        """Return the path as text."""
        return ".".join(self.path)

    def __str__(self) -> str:
        if self.kind in ("widened", "retyped"):
            return f"{self.name} changed its type from {self.before} to {self.after}"
        if self.kind == "renamed":
            return f"{self.name} was renamed to {'.'.join((*self.path[:-1], self.after))}"
        return f"{self.name} was {'dropped or renamed' if self.kind == 'dropped' else self.kind}"


def compare(before: str, after: str, *, by_id: bool) -> tuple[ColumnChange, ...]:
    """Return how the columns of two schemas differ.

    :param before: ``metaData.schemaString`` of the older version
    :param after: ``metaData.schemaString`` of the newer version
    :param by_id: match columns by column-mapping id if both schemas have ids; only within one table, because
        a recreated table starts counting again
    """
    return tuple(_structs(codec.parsed(before), codec.parsed(after), (), (), by_id))


def widens(before: str, after: str) -> bool:
    """Return whether Delta's type widening changes one type into the other; every value stays the same.

    :param before: the type as in Delta's log, such as ``integer`` or ``decimal(10,2)``
    """
    if after in _WIDER.get(before, ()):
        return True
    wide = _DECIMAL.fullmatch(after)
    if wide is None:
        return False
    narrow = _DECIMAL.fullmatch(before)
    digits, scale = (int(narrow[1]), int(narrow[2])) if narrow else (_DIGITS.get(before), 0)
    if digits is None or after == before:
        return False
    more_digits, more_scale = int(wide[1]) - digits, int(wide[2]) - scale
    return more_digits >= more_scale >= 0


def reuses_name(changes: Iterable[ColumnChange], before: Iterable[ColumnChange] = ()) -> bool:
    """Return whether a column that is renamed or added takes the name of one that was dropped or renamed.

    Then the names alone do not show which of the changes a table already has. A column is added together with
    the rows, so it shows; only a field that an ALTER has to add (:func:`nests`) does not.

    :param before: earlier changes, whose columns are gone
    """
    changes = tuple(changes)
    gone = {_lower(c.path) for c in (*before, *changes) if c.kind in ("dropped", "renamed")}
    given = [(*c.path[:-1], c.after) for c in changes if c.kind == "renamed"]
    given += [c.path for c in changes if c.kind == "added" and nests(c.path)]
    return any(_lower(path) in gone for path in given)


def nests(path: tuple[str, ...]) -> bool:
    """Return whether a field is in a collection that is itself in a collection: a MERGE cannot add it."""
    return any(_PARTS.issuperset(pair) for pair in pairwise(path[1:]))


def _lower(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(str.lower, path))


def restored(before: str, after: str, greatest_id: int) -> tuple[str, ...]:
    """Return the columns and fields that came back with the values that they had.

    Within one table, an id is never given to another column.

    :param before: ``metaData.schemaString`` of the older version, with ids
    :param greatest_id: the greatest id that a column of the table had until then
    """
    known = {column_id for _, column_id in _ids(codec.parsed(before), ())}
    found = _ids(codec.parsed(after), ())
    return tuple(name for name, column_id in found if column_id not in known and column_id <= greatest_id)


def column_names(schema: str) -> tuple[str, ...]:
    """Return the names of the columns of ``metaData.schemaString``."""
    return tuple(field["name"] for field in codec.parsed(schema)["fields"])


def _ids(type_: Any, path: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    kind = _kind(type_)
    if kind == "struct":
        for field in type_["fields"]:
            column_id, inner = _id(field), (*path, field["name"])
            if column_id is not None:
                yield ".".join(inner), column_id
            yield from _ids(field["type"], inner)
    elif kind == "array":
        yield from _ids(type_["elementType"], (*path, "element"))
    elif kind == "map":
        for part in ("key", "value"):
            yield from _ids(type_[f"{part}Type"], (*path, part))


def _structs(
    before: dict[str, Any],
    after: dict[str, Any],
    old_path: tuple[str, ...],
    new_path: tuple[str, ...],
    by_id: bool,
) -> Iterator[ColumnChange]:
    matches = _matched(before["fields"], after["fields"], by_id)
    for field, match in zip(before["fields"], matches, strict=True):
        old = (*old_path, field["name"])
        if match is None:
            yield ColumnChange("dropped", old)
            continue
        new = (*new_path, match["name"])
        if match["name"].lower() != field["name"].lower():
            yield ColumnChange("renamed", old, after=match["name"])
        comment = _comment(match)
        if comment and comment != _comment(field):
            yield ColumnChange("comment", new, after=comment)
        if match["nullable"] and not field["nullable"]:
            yield ColumnChange("nullable", new)
        yield from _types(field["type"], match["type"], old, new, by_id)
    for field in after["fields"]:
        if not any(field is match for match in matches):
            new = (*new_path, field["name"])
            yield ColumnChange("added", new)
            if _comment(field):
                yield ColumnChange("comment", new, after=_comment(field))


def _matched(
    before: list[dict[str, Any]], after: list[dict[str, Any]], by_id: bool
) -> list[dict[str, Any] | None]:
    """Return the newer field of each older one; None if it was dropped."""
    ids = {_id(field): field for field in after}
    if by_id and None not in ids and all(_id(field) is not None for field in before):
        return [ids.get(_id(field)) for field in before]
    if by_id and None not in ids and all(_id(field) is None for field in before):
        in_files = {str((field.get("metadata") or {}).get(_PHYSICAL_NAME)): field for field in after}
        if any(field["name"] in in_files for field in before):
            # Column mapping was turned on between the two: the names in the files are those of before.
            return [in_files.get(field["name"]) for field in before]
    names = {field["name"].lower(): field for field in after}
    return [names.get(field["name"].lower()) for field in before]


def _types(
    before: Any, after: Any, old: tuple[str, ...], new: tuple[str, ...], by_id: bool
) -> Iterator[ColumnChange]:
    kind = _kind(before)
    if kind != _kind(after):
        is_wider = isinstance(before, str) and isinstance(after, str) and widens(kind, _kind(after))
        texts = _type_text(before), _type_text(after)
        yield ColumnChange("widened" if is_wider else "retyped", new, *texts)
    elif kind == "struct":
        yield from _structs(before, after, old, new, by_id)
    elif kind == "array":
        inner = before["elementType"], after["elementType"]
        yield from _types(*inner, (*old, "element"), (*new, "element"), by_id)
    elif kind == "map":
        for part in ("key", "value"):
            inner = before[f"{part}Type"], after[f"{part}Type"]
            yield from _types(*inner, (*old, part), (*new, part), by_id)


def _kind(type_: Any) -> str:
    if not isinstance(type_, dict):
        return str(type_).replace(" ", "").lower()
    # Two user-defined types are the same only if their whole definitions are equal.
    kind = str(type_.get("type"))
    return kind if kind in ("struct", "array", "map") else json.dumps(type_, sort_keys=True)


def _type_text(type_: Any) -> str:
    return str(type_.get("type")) if isinstance(type_, dict) else str(type_)


def _comment(field: dict[str, Any]) -> str:
    return str((field.get("metadata") or {}).get("comment") or "")


def _id(field: dict[str, Any]) -> int | None:
    column_id = (field.get("metadata") or {}).get(_ID)
    return None if column_id is None else int(column_id)
