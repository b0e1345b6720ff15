"""Looks into the log of a table, and logs of which each has an outcome of its own: for faulty stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.requests import ApplyRequest
from delta_cdc.planning.apply import plan_apply_async
from delta_cdc.planning.memory import Memory
from tests.support.logs import EPOCH, FEED, LogTable, seal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from delta_cdc.delta_log.table import DeltaLog


async def _all(actions: AsyncIterator[Any]) -> list[Any]:
    return [action async for action in actions]


LOOKS: dict[str, Callable[[DeltaLog], Awaitable[Any]]] = {
    "newest": lambda log: log.newest_version(),
    "newest after": lambda log: log.newest_version(after=1),
    "far behind": lambda log: log.newest_version(after=-1),
    "oldest": lambda log: log.oldest_version(),
    "find": lambda log: log.find(2),
    "commit": lambda log: log.commit(2),
    "commits": lambda log: log.commits(range(4)),
    "snapshot": lambda log: log.snapshot(),
    "older snapshot": lambda log: log.snapshot(1),
    "transaction": lambda log: log.transaction("delta-cdc/p"),
    "files": lambda log: log.files(3),
    "actions": lambda log: _all(log.actions(2)),
    "has commit": lambda log: log.has_commit(2),
    "has file": lambda log: log.has_file("part-00001-0.parquet"),
    "fingerprint": lambda log: log.fingerprint(2),
    "version at": lambda log: log.version_at(EPOCH + 1_500, bound="start"),
    "left over": lambda log: log.left_over(),
}


def comparable(answer: Any) -> Any:
    """Return an answer for a comparison with that of another store."""
    return (answer.version, answer.table_id, answer.num_files) if hasattr(answer, "table_id") else answer


def worlds(root: Path) -> dict[str, tuple[LogTable, LogTable | None]]:
    """Sources and targets, each with an outcome of its own: a plan, or the error of one gate."""
    made: dict[str, tuple[LogTable, LogTable | None]] = {}

    def pair(name: str, target: bool = True) -> LogTable:
        source = LogTable(root / name / "source", table_id=f"{name}-id", configuration=FEED).create()
        for _ in range(4):
            source.append()
        made[name] = source, _target(root / name / "target", source) if target else None
        return source

    source = pair("increment")
    for _ in range(6):
        source.append()
    source.optimize()
    pair("quiet")
    pair("only optimized").optimize()
    pair("load", target=False)
    source = pair("cleaned")
    for _ in range(5):
        source.append()
    source.checkpoint(*range(8))
    source = pair("feed off")
    source.set_properties()
    source.overwrite()
    source = pair("gap")
    for _ in range(3):
        source.append()
    source.file(6).unlink()
    pair("made again")
    source = made["made again"][0]
    for version in range(5):
        source.file(version).unlink()
    again = LogTable(source.path, table_id="another", configuration=FEED, created=EPOCH + 1).create()
    for _ in range(6):
        again.append(at=EPOCH + 1)
    pair("target replaced")
    target = made["target replaced"][1]
    target.overwrite()
    return made


def _target(path: Path, source: LogTable) -> LogTable:
    made = LogTable(path, table_id=f"target of {source.table_id}")
    made.write_seal(seal(1_000, 3, source=source, kind="load"))
    made.write_seal(seal(1_001, 4, source=source))
    return made


async def planned(source: str, target: str, storage_options: dict[str, str] | None = None) -> str:
    """Return what an apply plans.

    :raises DeltaCdcError: a gate refuses it, or the store did not answer
    """
    request = ApplyRequest(
        pipeline="p",
        source=source,
        target=target,
        options=ApplyOptions(keys=("id",)),
        storage_options=storage_options,
    )
    plan = await plan_apply_async(request, Memory(now_ms=EPOCH + 60_000))
    return f"{plan}\n{plan.spec}"


#: What an apply plans in each of the worlds.
OUTCOMES = {
    "increment": "versions 5-11",
    "quiet": "nothing: no process",
    "only optimized": "nothing: no process",
    "load": "the snapshot of version 4",
    "cleaned": "VersionsExpired",
    "feed off": "by snapshot_diff",
    "gap": "LogGap",
    "made again": "SourceTableReplaced",
    "target replaced": "TargetReplaced",
}
