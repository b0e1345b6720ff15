"""Which batch a staging table holds, and whether it still continues the target."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from delta_cdc.errors import NotADeltaTable, TableNotFound, TargetWithoutProof
from delta_cdc.reconcile import Backwards, seal_of
from delta_cdc.watermark import PlannedOn, app_id

if TYPE_CHECKING:
    from delta_cdc.log.actions import Commit
    from delta_cdc.log.table import DeltaLog
    from delta_cdc.plan.sight import Sight
    from delta_cdc.watermark import Seal


async def open_batch(sight: Sight, staging: DeltaLog) -> tuple[Seal, Commit] | None:
    """Return the staged batch that continues the target, if there is one.

    A batch is a function of the source and its range alone, so one that starts right after the watermark is
    right whatever happened since; its number tells it from one that was applied before a RESTORE.

    :raises TargetWithoutProof: the staging table holds rows that this pipeline did not put there
    """
    found = await _newest_read(staging, sight.request.pipeline)
    if found is None or found[0].source_table_id != sight.source.table_id:
        return None
    batch, seal = found[0], sight.seal
    if seal is None:
        fits = batch.configuration.get("batch") == "snapshot"
        return found if fits and (sight.proof is None or batch.number >= sight.next_number) else None
    fits = batch.step.starting_version == seal.watermark + 1 and batch.number >= sight.next_number
    return found if fits and batch.configuration.get("batch") == "changes" else None


async def _newest_read(staging: DeltaLog, pipeline: str) -> tuple[Seal, Commit] | None:
    """Return the newest sealed batch of a staging table, taken back batches (RESTORE) aside."""
    try:
        state = await staging.snapshot()
    except (TableNotFound, NotADeltaTable):
        if await staging.left_over():
            return None
        raise
    if await staging.transaction(app_id(pipeline)) is None:
        if not await asyncio.to_thread(lambda: state.is_empty):
            raise TargetWithoutProof(
                f"The staging table {staging.uri} (version {state.version}) holds rows that pipeline "
                f"{pipeline} did not put there.",
                remedy="name a staging table of its own for every pipeline.",
            )
        return None
    back = Backwards(staging)
    for version in range(state.version, -1, -1):
        commit = await back.get(version)
        if commit is None:
            break
        seal = seal_of(commit, pipeline)
        if seal is not None and seal.step.kind == "read":
            return seal, commit
    return None


async def turn(staging: DeltaLog, pipeline: str, number: int) -> tuple[int, PlannedOn | None]:
    """Return the number and state to write a batch on.

    A batch that was read but never applied leaves staging a number ahead after the target was restored; a
    new batch has to come after it, or Delta would skip it.
    """
    try:
        state = await staging.snapshot()
    except (TableNotFound, NotADeltaTable):
        return number, None
    stored = await staging.transaction(app_id(pipeline))
    return max(number, (stored or 0) + 1), PlannedOn(state.table_id, state.version)
