"""What the reader of configurations and the DAG factory both need to know of a group's DAGs."""

from __future__ import annotations

#: The end of the id of a group's DAG for backfills; the rest is the id of its other DAG.
BACKFILL_SUFFIX = "__backfill"
#: The schedule that runs when a source of the group has a new version.
ON_CHANGE = "on_change"
#: The remedy if such a group has a source that cannot be watched.
WATCHABLE_REMEDY = (
    "set the group's schedule to a cron. Only Delta tables with a literal path or URI can be watched."
)
