"""Classify entries of a table's history by their effect on the existing rows.

Both sides use this: the planner reads ``commitInfo`` from the log, the job runs ``DESCRIBE HISTORY``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The forms in which Delta logs a DELETE without a predicate.
_EVERY_ROW = ("[]", '["true"]')


def is_restore(operation: str) -> bool:
    """Return whether an operation is a RESTORE."""
    return operation.upper() == "RESTORE"


def replaces_all_rows(operation: str, parameters: Mapping[str, Any] | None) -> bool:
    """Return whether an operation removed every existing row.

    A partial overwrite (``replaceWhere``, dynamic partitions) does not; it counts as a manual UPDATE.

    :param operation: ``commitInfo.operation``
    :param parameters: ``commitInfo.operationParameters``
    """
    name, values = operation.upper(), parameters or {}
    if name in ("TRUNCATE", "CLONE") or "REPLACE TABLE" in name:
        return True
    if name == "DELETE":
        return str(values.get("predicate") or "[]").replace(" ", "") in _EVERY_ROW
    if name == "STREAMING UPDATE":
        return str(values.get("outputMode", "")).lower() == "complete"
    if name == "WRITE" and str(values.get("mode", "")).lower() == "overwrite":
        dynamic = str(values.get("isDynamicPartitionOverwrite", "")).lower() == "true"
        return not values.get("predicate") and not dynamic
    return False
