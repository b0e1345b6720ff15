"""Plans an OPTIMIZE from the log alone, and skips one that would change nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.uris import spark_uri
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.maintenance_commits import MOST_COMMITS, backwards, repeats
from delta_cdc.planning.plan import JobPlan

if TYPE_CHECKING:
    from delta_cdc.core.spec import OptimizeSpec
    from delta_cdc.delta_log.table import TableState


async def plan_optimize(
    spec: OptimizeSpec, storage_options: dict[str, str] | None = None
) -> JobPlan[OptimizeSpec, dict[str, Any]]:
    """Determine whether an OPTIMIZE would change anything. Starts no process and writes nothing.

    :raises InvalidConfiguration: options of the spec contradict each other
    """
    options = {"zorder_by": bool(spec.zorder_by), "full": spec.full, "where": spec.where is not None}
    for option, others, remedy in (
        ("purge", ("zorder_by", "full"), "run two tasks: one purges the masked rows, the other rewrites"),
        ("full", ("zorder_by", "where"), "full is for clustered tables, which have neither; leave one out"),
    ):
        other = next((name for name in others if options[name]), None)
        if getattr(spec, option) and other is not None:
            raise InvalidConfiguration(f"{option} and {other} are both given.", remedy=f"{remedy}.")
    log = DeltaLog(spec.table_uri, storage_options)
    needless = await _needless(log, await log.snapshot(), spec)
    outcome = dict.fromkeys(("files_added", "files_removed", "bytes_added", "bytes_removed"), 0)
    if needless is not None:
        return JobPlan(None, outcome, (needless,))
    return JobPlan(replace(spec, table_uri=spark_uri(spec.table_uri)), outcome)


async def _needless(log: DeltaLog, state: TableState, spec: OptimizeSpec) -> str | None:
    """Return why an OPTIMIZE would change nothing; None if it may change something."""
    files, masked, folders = await asyncio.to_thread(
        lambda: (state.num_files, state.num_masked_files, state.num_folders)
    )
    if not files:
        return "the table is empty"
    if spec.purge:
        return None if masked else "no row is masked"
    is_plain = not spec.zorder_by and "clustering" not in state.features
    if is_plain and files == folders and not masked:
        # Compaction would commit nothing, so the log would never show that it ran.
        return "there is one file, or one in each partition"
    async for commit in backwards(log, state.version, MOST_COMMITS, table_id=state.table_id):
        if repeats(commit.info, spec):
            return f"no file has come since version {commit.version}, which did the same"
        if commit.n_adds or commit.n_removes or commit.metadata is not None:
            # New properties, such as clustering columns, may require another layout.
            break
    return None
