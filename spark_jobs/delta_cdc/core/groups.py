"""What the reader of configurations and the DAG factory both need to know of a group's DAGs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The end of the id of a group's DAG for backfills; the rest is the id of its other DAG.
BACKFILL_SUFFIX = "__backfill"
#: The end of the id of the DAG that explains the rows of a group's targets.
WHY_SUFFIX = "__why"
#: The schedule that runs when a source of the group has a new version.
ON_CHANGE = "on_change"
#: The remedy if such a group has a source that cannot be watched.
WATCHABLE_REMEDY = (
    "set the group's schedule to a cron. Only Delta tables with a literal path or URI can be watched."
)


def dag_ids(dag_id: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the ids of a group's DAGs, each with its suffix; "" is the suffix of the DAG with the schedule.

    :param dag_id: the id of that DAG
    :param settings: of the group
    """
    suffixes = ["", BACKFILL_SUFFIX] if settings.get("backfill") is not False else [""]
    if settings.get("why") is True:
        suffixes.append(WHY_SUFFIX)
    return {f"{dag_id}{suffix}": suffix for suffix in suffixes}
