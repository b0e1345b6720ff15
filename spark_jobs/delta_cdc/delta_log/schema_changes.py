"""Compare a table's columns between two of its schemas, from the log alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delta_cdc.delta_log.actions import MetaData

_ID = "delta.columnMapping.id"
_MODE, _PHYSICAL_NAME = "delta.columnMapping.mode", "delta.columnMapping.physicalName"


def lost_column(before: str, after: str, *, by_id: bool) -> str | None:
    """Return which column of ``before`` is missing, has another name or another type in ``after``.

    Ignores new columns, nullability, comments, all other metadata, and the case of names.

    :param before: ``metaData.schemaString`` of the older version
    :param after: that of the newer one
    :param by_id: match columns by column-mapping id if both sides have one; only within one table, because a
        recreated table starts counting again
    :return: such as ``name was dropped``; None if every column still exists
    """
    return _struct(json.loads(before), json.loads(after), "", by_id)


def leaf_paths(schema: str) -> tuple[tuple[str, ...], ...]:
    """Return the path of names to each leaf of a table: columns and fields of structs.

    :param schema: ``metaData.schemaString``
    """
    return tuple(_leaves(json.loads(schema), ()))


def _leaves(struct: dict[str, Any], way: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for field in struct["fields"]:
        path, of = (*way, field["name"]), field["type"]
        if isinstance(of, dict) and of.get("type") == "struct" and of["fields"]:
            yield from _leaves(of, path)
        else:
            yield path


def _struct(before: dict[str, Any], after: dict[str, Any], path: str, by_id: bool) -> str | None:
    names = {field["name"].lower(): field for field in after["fields"]}
    ids = {_id(field): field for field in after["fields"]}
    for field in before["fields"]:
        name, found = f"{path}{field['name']}", names.get(field["name"].lower())
        if by_id and _id(field) is not None and None not in ids:
            found = ids.get(_id(field))
        if found is None:
            return f"{name} was dropped or renamed"
        if found["name"].lower() != field["name"].lower():
            return f"{name} was renamed to {path}{found['name']}"
        lost = _type(field["type"], found["type"], name, by_id)
        if lost is not None:
            return lost
    return None


def _type(before: Any, after: Any, path: str, by_id: bool) -> str | None:
    kind = _kind(before)
    if kind != _kind(after):
        return f"{path} changed its type from {_shown(before)} to {_shown(after)}"
    if kind == "struct":
        return _struct(before, after, f"{path}.", by_id)
    if kind == "array":
        return _type(before["elementType"], after["elementType"], f"{path}.element", by_id)
    if kind == "map":
        key = _type(before["keyType"], after["keyType"], f"{path}.key", by_id)
        return key or _type(before["valueType"], after["valueType"], f"{path}.value", by_id)
    return None


def moved_column(before: MetaData, after: MetaData) -> str | None:
    """Return which column both versions have, but under another name (or id) in their files; else None.

    This happens after a REPLACE by a table with column mapping: a reader of old files by the new names finds
    NULL.
    """
    now = _physical(after)
    known = _physical(before).items()
    return next((path for path, name in known if now.get(path, name) != name), None)


def _physical(metadata: MetaData) -> dict[str, tuple[str, int | None]]:
    """Return the name and id of each column in the files, by path."""
    mode = metadata.configuration.get(_MODE, "none")
    schema = json.loads(metadata.schema_string)
    return dict(_in_files(schema, "", is_mapped=mode != "none", by_id=mode == "id"))


def _in_files(
    of: Any, path: str, *, is_mapped: bool, by_id: bool
) -> Iterator[tuple[str, tuple[str, int | None]]]:
    if not isinstance(of, dict):
        return
    for field in of.get("fields", ()):
        own = f"{path}.{field['name'].lower()}" if path else field["name"].lower()
        given = (field.get("metadata") or {}).get(_PHYSICAL_NAME, field["name"])
        # Readers look up names in files case-insensitively.
        name = (given if is_mapped else field["name"]).lower()
        yield own, (name, _id(field) if by_id else None)
        yield from _in_files(field["type"], own, is_mapped=is_mapped, by_id=by_id)
    for inside in ("elementType", "keyType", "valueType"):
        yield from _in_files(of.get(inside), f"{path}.{inside}", is_mapped=is_mapped, by_id=by_id)


def _kind(of: Any) -> str:
    if not isinstance(of, dict):
        return str(of).replace(" ", "").lower()
    # A user-defined type is the same only if all of its definition is.
    kind = str(of.get("type"))
    return kind if kind in ("struct", "array", "map") else json.dumps(of, sort_keys=True)


def _shown(of: Any) -> str:
    return str(of.get("type")) if isinstance(of, dict) else str(of)


def _id(field: dict[str, Any]) -> int | None:
    found = (field.get("metadata") or {}).get(_ID)
    return None if found is None else int(found)
