"""Steps by their kind, for tests."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from delta_cdc.core.steps import Changes, Keys, NoRows, Records, Snapshot, StagedRows, Step
from delta_cdc.core.watermark import PipelineState

if TYPE_CHECKING:
    from delta_cdc.core.watermark import TableVersion

READS: dict[str, Any] = {
    "load": Snapshot,
    "reset": Snapshot,
    "baseline": Snapshot,
    "apply": Changes,
    "reload": Keys,
    "repair": Keys,
    "answer": StagedRows,
}


def step(
    kind: str,
    starting_version: int,
    watermark: TableVersion,
    seal_number: int,
    source_columns: tuple[str, ...] = (),
    **more: Any,
) -> Step:
    """Return the step of a kind.

    :param more: fields of the step, and of what it reads; those that this does not have must be empty
    """
    reads = READS.get(kind, NoRows)
    own = {field.name for field in fields(Step)}
    names = {field.name for field in fields(reads)}
    read = {name: more.pop(name) for name in {*more} - own if name in names or more[name]}
    if kind == "baseline" or (kind == "load" and watermark.version < 0):
        read["is_empty"] = True
    return Step(
        kind=kind,  # type: ignore[arg-type]
        read=reads(**read),
        seal_number=seal_number,
        starting_version=starting_version,
        applied_to=watermark,
        source_columns=source_columns,
        **{name: value for name, value in more.items() if name in own},
    )


def ingest_step(kind: Any = "ingest", number: int = 1, applied_from: int = 1, **configuration: Any) -> Step:
    """Return the step of a batch."""
    return Step(
        kind=kind,
        read=NoRows() if kind == "renew" else Records(),
        seal_number=number,
        starting_version=number,
        applied_to=None,
        before=PipelineState(None, applied_from, configuration=configuration),
    )
