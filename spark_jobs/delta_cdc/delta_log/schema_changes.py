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
    """Return which column of ``before`` is missing, or has another name or another type, in ``after``.

    This ignores new columns, nullability, comments, all other metadata, and the case of names.

    :param before: ``metaData.schemaString`` of the older version
    :param after: ``metaData.schemaString`` of the newer version
    :param by_id: match columns by column-mapping id if both sides have ids; only within one table, because a
        recreated table starts counting again
    :return: for example ``name was dropped``; None if every column still exists
    """
    return _struct(json.loads(before), json.loads(after), "", by_id)


def leaf_paths(schema: str) -> tuple[tuple[str, ...], ...]:
    """Return the path of names to each leaf of a table: columns and fields of structs.

    :param schema: ``metaData.schemaString``
    """
    return tuple(_leaves(json.loads(schema), ()))


def _leaves(struct: dict[str, Any], prefix: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for field in struct["fields"]:
        path, type_ = (*prefix, field["name"]), field["type"]
        if isinstance(type_, dict) and type_.get("type") == "struct" and type_["fields"]:
            yield from _leaves(type_, path)
        else:
            yield path


def _struct(before: dict[str, Any], after: dict[str, Any], path: str, by_id: bool) -> str | None:
    names = {field["name"].lower(): field for field in after["fields"]}
    ids = {_id(field): field for field in after["fields"]}
    for field in before["fields"]:
        name, counterpart = f"{path}{field['name']}", names.get(field["name"].lower())
        if by_id and _id(field) is not None and None not in ids:
            counterpart = ids.get(_id(field))
        if counterpart is None:
            return f"{name} was dropped or renamed"
        if counterpart["name"].lower() != field["name"].lower():
            return f"{name} was renamed to {path}{counterpart['name']}"
        change = _type(field["type"], counterpart["type"], name, by_id)
        if change is not None:
            return change
    return None


def _type(before: Any, after: Any, path: str, by_id: bool) -> str | None:
    kind = _kind(before)
    if kind != _kind(after):
        return f"{path} changed its type from {_type_text(before)} to {_type_text(after)}"
    if kind == "struct":
        return _struct(before, after, f"{path}.", by_id)
    if kind == "array":
        return _type(before["elementType"], after["elementType"], f"{path}.element", by_id)
    if kind == "map":
        key = _type(before["keyType"], after["keyType"], f"{path}.key", by_id)
        return key or _type(before["valueType"], after["valueType"], f"{path}.value", by_id)
    return None


def moved_column(before: MetaData, after: MetaData) -> str | None:
    """Return which column has another name (or id) in the files of the two versions; else None.

    This happens after a REPLACE by a table with column mapping: by the new names, old files read as NULL.
    """
    new_names = _physical(after)
    old_names = _physical(before).items()
    return next((path for path, name in old_names if new_names.get(path, name) != name), None)


def _physical(metadata: MetaData) -> dict[str, tuple[str, int | None]]:
    """Return the name and id of each column in the files, by path."""
    mode = metadata.configuration.get(_MODE, "none")
    schema = json.loads(metadata.schema_string)
    return dict(_in_files(schema, "", is_mapped=mode != "none", by_id=mode == "id"))


def _in_files(
    type_: Any, path: str, *, is_mapped: bool, by_id: bool
) -> Iterator[tuple[str, tuple[str, int | None]]]:
    if not isinstance(type_, dict):
        return
    for field in type_.get("fields", ()):
        field_path = f"{path}.{field['name'].lower()}" if path else field["name"].lower()
        physical_name = (field.get("metadata") or {}).get(_PHYSICAL_NAME, field["name"])
        # Readers look up names in files case-insensitively.
        name = (physical_name if is_mapped else field["name"]).lower()
        yield field_path, (name, _id(field) if by_id else None)
        yield from _in_files(field["type"], field_path, is_mapped=is_mapped, by_id=by_id)
    for inside in ("elementType", "keyType", "valueType"):
        yield from _in_files(type_.get(inside), f"{path}.{inside}", is_mapped=is_mapped, by_id=by_id)


def _kind(type_: Any) -> str:
    if not isinstance(type_, dict):
        return str(type_).replace(" ", "").lower()
    # Two user-defined types are the same only if their whole definitions are equal.
    kind = str(type_.get("type"))
    return kind if kind in ("struct", "array", "map") else json.dumps(type_, sort_keys=True)


def _type_text(type_: Any) -> str:
    return str(type_.get("type")) if isinstance(type_, dict) else str(type_)


def _id(field: dict[str, Any]) -> int | None:
    column_id = (field.get("metadata") or {}).get(_ID)
    return None if column_id is None else int(column_id)
