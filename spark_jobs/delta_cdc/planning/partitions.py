"""Which partitions of a table some commits changed: from their actions, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_cdc.core.partitions import ALL, MOST_PARTITIONS, partition_key
from delta_cdc.core.properties import COLUMN_MAPPING
from delta_cdc.delta_log.schema_changes import read_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import TableState

_PHYSICAL_NAME = "delta.columnMapping.physicalName"


def logged_names(state: TableState) -> dict[str, str]:
    """Return the name in the log of each partition column; column mapping changes it."""
    logged = {name: name for name in state.partition_columns}
    for column in read_schema(state.schema_string)["fields"]:
        if column["name"] in logged:
            metadata = column.get("metadata") or {}
            logged[column["name"]] = metadata.get(_PHYSICAL_NAME, column["name"])
    return logged


def changed_partitions(commits: Iterable[Commit | None], state: TableState) -> tuple[str, ...] | None:
    """Return the keys of the partitions that some commits changed, sorted; None for an unpartitioned table.

    The keys are those of :mod:`delta_cdc.core.partitions`. A row that moved between partitions changed both.
    A commit that only rewrote files changed none. The result is ``("all",)`` if the changed partitions are
    not known, are more than :data:`MOST_PARTITIONS`, or if a key would be too long.

    :param commits: None is a commit that was cleaned from the log
    :param state: the table after the commits
    """
    if not state.partition_columns:
        return None
    names = logged_names(state)
    is_mapped = state.configuration.get(COLUMN_MAPPING, "none") != "none"
    keys: set[str] = set()
    for commit in commits:
        if commit is not None and not commit.changes_data:
            continue
        if commit is None or not commit.names_partitions or len(commit.partitions) > MOST_PARTITIONS:
            return (ALL,)
        # Spark omits NULL of a removed file, and with column mapping of each file. But a commit that may
        # change the partitioning may also remove files that have no value for a new partition column.
        may_omit = commit.metadata is None or (is_mapped and commit.n_data_removes == 0)
        for partition in commit.partitions:
            key = _key(dict(partition), names, may_omit=may_omit)
            if key is None:
                return (ALL,)
            keys.add(key)
        if len(keys) > MOST_PARTITIONS:
            return (ALL,)
    return tuple(sorted(keys))


def _key(values: Mapping[str, str | None], names: Mapping[str, str], *, may_omit: bool) -> str | None:
    """Return the key of a file's partition; None if the file is of another partitioning.

    :param values: as the log has them
    :param names: the name in the log of each partition column
    :param may_omit: whether a column that is missing is NULL
    """
    logged = set(names.values())
    if values.keys() != logged and not (may_omit and values.keys() < logged):
        return None
    return partition_key({column: values.get(name) for column, name in names.items()})
