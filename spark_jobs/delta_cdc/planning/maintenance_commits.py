"""Recognises maintenance commits in a log, by their tag and their operation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from delta_cdc.core import maintenance_tags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta_cdc.delta_log.actions import CommitInfo

_CLAUSES = ("matchedPredicates", "notMatchedPredicates", "notMatchedBySourcePredicates")


def expired_below(info: CommitInfo) -> str | None:
    """Return the bound below which an expiry's commit deleted events; None for every other commit.

    Such a commit is a MERGE with our maintenance tag and only a delete clause.
    """
    said = maintenance_tags.read(info.user_metadata, "expire")
    if said is None or info.operation != "MERGE" or not _only_deletes(info.operation_parameters):
        return None
    below = said.get("below")
    return below if isinstance(below, str) else None


def _only_deletes(parameters: Mapping[str, Any]) -> bool:
    matched, *others = (_clauses(parameters.get(name)) for name in _CLAUSES)
    return matched == ["delete"] and others == [[], []]


def _clauses(given: Any) -> list[Any]:
    """Return the actions of a MERGE's clauses, which the log stores as JSON inside JSON."""
    try:
        clauses = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        return [None]
    if not isinstance(clauses, list):
        return [None]
    return [clause.get("actionType") if isinstance(clause, dict) else None for clause in clauses]
