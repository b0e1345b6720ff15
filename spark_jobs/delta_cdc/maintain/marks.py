"""What a commit of maintenance says of itself, in ``commitInfo.userMetadata``.

A mark alone proves nothing, because the conf that writes it leaks into commits that follow in the same
session: what the commit did has to fit it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta_cdc.log.actions import CommitInfo

#: The conf that writes ``userMetadata``.
CONF = "spark.databricks.delta.commitInfo.userMetadata"
_MARK, _FORMAT = "delta_cdc_maintenance", 1
_CLAUSES = ("matchedPredicates", "notMatchedPredicates", "notMatchedBySourcePredicates")


def written(kind: str, **said: Any) -> str:
    """Return the text of a mark.

    :param kind: ``expire`` (events behind a horizon were deleted) or ``optimize``
    :param said: JSON values
    """
    return json.dumps({_MARK: _FORMAT, "kind": kind, **said}, sort_keys=True, separators=(",", ":"))


def read(text: str | None, kind: str) -> dict[str, Any] | None:
    """Return what a mark of some kind says; None where the text is none."""
    if not text or _MARK not in text:
        return None
    try:
        data = json.loads(text)
    except ValueError:
        return None
    if not isinstance(data, dict) or data.get(_MARK) != _FORMAT or data.get("kind") != kind:
        return None
    return data


def expired_below(info: CommitInfo) -> str | None:
    """Return the horizon behind which a commit of an expiry deleted events; None for every other commit.

    It is a MERGE with our mark that could do nothing but delete.
    """
    said = read(info.user_metadata, "expire")
    if said is None or info.operation != "MERGE" or not _only_deletes(info.operation_parameters):
        return None
    below = said.get("below")
    return below if isinstance(below, str) else None


def _only_deletes(parameters: Mapping[str, Any]) -> bool:
    matched, *others = (_clauses(parameters.get(name)) for name in _CLAUSES)
    return matched == ["delete"] and others == [[], []]


def _clauses(given: Any) -> list[Any]:
    """Return the actions of a MERGE's clauses, which the log has as JSON inside of JSON."""
    try:
        clauses = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        return [None]
    if not isinstance(clauses, list):
        return [None]
    return [clause.get("actionType") if isinstance(clause, dict) else None for clause in clauses]
