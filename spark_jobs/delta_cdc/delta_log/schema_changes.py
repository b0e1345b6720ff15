"""Columns in a table's log: their paths, and their names in the data files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.core import char_columns, codec
from delta_cdc.core.codec import LARGE_TEXT, UnreadableJson
from delta_cdc.core.properties import COLUMN_MAPPING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delta_cdc.delta_log.actions import MetaData

_ID = "delta.columnMapping.id"
_PHYSICAL_NAME = "delta.columnMapping.physicalName"
#: The parts of types that have types themselves.
_PARTS = {"array": ("elementType",), "map": ("keyType", "valueType")}


def read_schema(text: str) -> dict[str, Any]:
    """Return the JSON of a schema. Every other function here, and ``compare``, relies on its form.

    :param text: ``metaData.schemaString``
    :raises UnreadableJson: it is not JSON of a struct
    """
    # A large schema is read in a thread: others have their turns between its columns.
    schema = codec.parsed(text, patient=len(text) > LARGE_TEXT)
    if not isinstance(schema, dict):
        raise UnreadableJson("it is not an object")
    _check_struct(schema)
    return schema


def _check_struct(struct: dict[str, Any]) -> None:
    fields = struct.get("fields")
    if not isinstance(fields, list):
        raise UnreadableJson("a struct has no fields")
    for field in fields:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str):
            raise UnreadableJson("a field has no name")
        metadata = field.get("metadata") or {}
        if (
            not isinstance(metadata, dict)
            or not isinstance(metadata.get(_ID, 0), int)
            or not isinstance(metadata.get(_PHYSICAL_NAME, ""), str)
            or not isinstance(field.get("nullable"), bool)
        ):
            raise UnreadableJson(f"the field {field['name']} has no nullable, or unusable metadata")
        _check_type(field.get("type"), field["name"])


def _check_type(type_: Any, name: str) -> None:
    if isinstance(type_, str):
        return
    if not isinstance(type_, dict):
        raise UnreadableJson(f"the field {name} has no type")
    if type_.get("type") == "struct":
        _check_struct(type_)
    for part in _PARTS.get(str(type_.get("type")), ()):
        _check_type(type_.get(part), name)


def leaf_paths(schema: str) -> tuple[tuple[str, ...], ...]:
    """Return the path of names to each leaf of a table: columns and fields of structs.

    :param schema: ``metaData.schemaString``
    """
    return tuple(_leaves(read_schema(schema), ()))


def _leaves(struct: dict[str, Any], prefix: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for field in struct["fields"]:
        path, type_ = (*prefix, field["name"]), field["type"]
        if isinstance(type_, dict) and type_.get("type") == "struct" and type_["fields"]:
            yield from _leaves(type_, path)
        else:
            yield path


def char_lengths(schema: str) -> dict[str, int]:
    """Return the lengths of a table's CHAR columns, by lower-case name.

    :param schema: ``metaData.schemaString``
    """
    return char_columns.lengths_of(read_schema(schema)["fields"])


def recased(before: MetaData, after: MetaData) -> bool:
    """Return whether a column has its name in another case: Delta reads no feed across such a version."""
    names = {tuple(map(str.lower, path)): path for path in leaf_paths(before.schema_string)}
    after_paths = leaf_paths(after.schema_string)
    return any(names.get(tuple(map(str.lower, path)), path) != path for path in after_paths)


def moved_column(before: MetaData, after: MetaData) -> str | None:
    """Return which column has another name (or id) in the files of the two versions; else None.

    This happens after a REPLACE by a table with column mapping: by the new names, old files read as NULL.
    """
    new_names = _physical(after)
    old_names = _physical(before).items()
    return next((path for path, name in old_names if new_names.get(path, name) != name), None)


def _physical(metadata: MetaData) -> dict[str, tuple[str, int | None]]:
    """Return the name and id of each column in the files, by path."""
    mode = metadata.configuration.get(COLUMN_MAPPING, "none")
    schema = read_schema(metadata.schema_string)
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


def _id(field: dict[str, Any]) -> int | None:
    column_id = (field.get("metadata") or {}).get(_ID)
    return None if column_id is None else int(column_id)
