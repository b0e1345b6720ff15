"""Table properties that planner and job both read: one spelling, one rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Turns the change data feed on.
CHANGE_FEED = "delta.enableChangeDataFeed"
#: Delta still reads the name the feed had at first.
_CHANGE_FEED_NAMES = (CHANGE_FEED, "delta.enableChangeDataCapture")
#: Of a change log: events below this sequence that come later are refused; what lies below it may be removed.
LATENESS_HORIZON = "delta_cdc.latenessHorizon"
#: Of a change log: all that maintenance deletes behind this sequence is deleted.
EXPIRED_BELOW = "delta_cdc.expiredBelow"
#: Gives every row an id that stays.
ROW_TRACKING = "delta.enableRowTracking"
_ROW_IDS = "delta.rowTracking.materializedRowIdColumnName"
_SUSPENDED = "delta.rowTrackingSuspended"


def feed_on(properties: Mapping[str, str]) -> bool:
    """Tell from a table's properties whether its change data feed is on; Delta reads values in any case."""
    return any(properties.get(name, "").lower() == "true" for name in _CHANGE_FEED_NAMES)


def row_id_column(properties: Mapping[str, str]) -> str | None:
    """Return where a table's files keep row ids; None where not all of its rows have one."""
    return properties.get(_ROW_IDS) if tracks_rows(properties) else None


def tracks_rows(properties: Mapping[str, str]) -> bool:
    """Tell from a table's properties whether each row knows the version that it came with."""
    on = properties.get(ROW_TRACKING, "").lower() == "true"
    return on and properties.get(_SUSPENDED, "").lower() != "true"
