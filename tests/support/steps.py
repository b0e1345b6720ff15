"""Steps by their kind, for tests."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from delta_cdc.core import spec as specs

if TYPE_CHECKING:
    from delta_cdc.core.watermark import TableVersion

CLASSES: dict[str, Any] = {
    kind: cls for cls in get_args(specs.Step) for kind in get_args(get_type_hints(cls)["kind"])
}


def step(
    kind: str,
    starting_version: int,
    watermark: TableVersion,
    seal_number: int,
    source_columns: tuple[str, ...] = (),
    **more: Any,
) -> Any:
    """Return the step of a kind; what the kind does not have must be empty or derived."""
    given = {"kind": kind, "watermark": watermark, "seal_number": seal_number, **more}
    optional = {"starting_version": starting_version, "source_columns": source_columns}
    names = {field.name for field in fields(CLASSES[kind])}
    given |= {name: value for name, value in optional.items() if name in names}
    return CLASSES[kind](**{name: value for name, value in given.items() if name in names or value})
