"""Recognises maintenance commits in a log, by their tag and their operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.core import codec, maintenance_tags
from delta_cdc.planning.seal_chain import Back, SealChain, any_seal_of, restored_version, restores

if TYPE_CHECKING:
    from collections.abc import Collection

    from delta_cdc.core.spec import OptimizeSpec
    from delta_cdc.delta_log.actions import Commit, CommitInfo
    from delta_cdc.delta_log.table import DeltaLog

#: Number of commits to search for the last maintenance; if it lies further back, it is due again.
MOST_COMMITS = 2_000


def backwards(log: DeltaLog, newest: int, most: int | None = None, *, table_id: str | None = None) -> Back:
    """Return the commits from a version back.

    :param most: the largest number of commits
    :param table_id: see :class:`~delta_cdc.planning.seal_chain.SealChain`
    :raises TargetHistoryChanged: a commit was overwritten, forged or put back from a backup
    """
    history = SealChain(log.history(), newest, uri=log.uri, table_id=table_id)
    return Back(history, newest, max(-1, newest - most) if most is not None else -1)


def expired_below(info: CommitInfo) -> str | None:
    """Return the bound below which an expiry's commit deleted events; None for every other commit.

    Such a commit is a MERGE with our maintenance tag and only a delete clause.
    """
    tag = maintenance_tags.read(info.user_metadata, "expire")
    if tag is None or info.operation != "MERGE" or not _only_deletes(info):
        return None
    below = tag.get("below")
    return below if isinstance(below, str) else None


def erases(info: CommitInfo) -> bool:
    """Return whether a commit is that of an erasure: it only deletes rows of erased keys."""
    is_tagged = maintenance_tags.read(info.user_metadata, "erase") is not None
    return is_tagged and info.operation == "MERGE" and _only_deletes(info)


def is_foreign(commit: Commit) -> bool:
    """Return whether a commit changed rows of a target, and neither a pipeline nor our maintenance made it.

    A RESTORE is not one: the seal in effect accounts for it.
    """
    if not commit.changes_data or restores(commit) or any_seal_of(commit) is not None:
        return False
    return not erases(commit.info) and expired_below(commit.info) is None


def in_effect(log: DeltaLog, newest: int) -> Back:
    """Return the newest commits from a version back, without those that a RESTORE to a version undid."""

    def restored(commit: Commit) -> int:
        version = restored_version(commit)
        return commit.version - 1 if version is None else version

    return Back(log.history(), newest, max(-1, newest - MOST_COMMITS), restored=restored)


async def foreign_commits(
    log: DeltaLog, newest: int, most: int, after: Collection[str] = ("load", "reset", "baseline")
) -> list[str]:
    """Return the operations and versions of commits that others made to a target, newest first.

    :param most: so many are looked for
    :param after: kinds of seals before which nothing counts
    """
    found: list[str] = []
    async for commit in in_effect(log, newest):
        seal = any_seal_of(commit)
        if is_foreign(commit):
            found.append(f"{commit.info.operation or 'a commit'} in version {commit.version}")
        if len(found) == most or (seal is not None and seal.step.kind in after):
            break
    return found


def _only_deletes(info: CommitInfo) -> bool:
    matched, *others = (
        _parameter(info, name)
        for name in ("matchedPredicates", "notMatchedPredicates", "notMatchedBySourcePredicates")
    )
    return _actions(matched) == ["delete"] and others == [[], []]


def _actions(clauses: Any) -> list[Any]:
    """Return the actions of the clauses of a MERGE."""
    if not isinstance(clauses, list):
        return [None]
    return [clause.get("actionType") if isinstance(clause, dict) else None for clause in clauses]


def repeats(info: CommitInfo, spec: OptimizeSpec) -> bool:
    """Return whether a commit is an OPTIMIZE that did what a spec requests, ours or another writer's."""
    if info.operation != "OPTIMIZE":
        return False
    tag = maintenance_tags.read(info.user_metadata, "optimize")
    if tag is not None:
        return all(tag.get(name) == value for name, value in spec.tag.items())
    return (
        spec.where is None
        and _parameter(info, "predicate") == []
        and _parameter(info, "zOrderBy") == list(spec.zorder_by)
        and (not spec.full or _parameter(info, "isFull") is True)
        and _parameter(info, "auto") in (None, False)
    )


def _parameter(info: CommitInfo, name: str) -> Any:
    """Return a parameter of the operation; the log stores most of them as JSON inside JSON."""
    value = info.operation_parameters.get(name)
    try:
        return codec.parsed(value) if isinstance(value, str) else value
    except ValueError:
        return value
