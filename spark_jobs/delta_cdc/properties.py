"""Table properties that planner and job both read: one spelling, one rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Turns the change data feed on.
CHANGE_FEED = "delta.enableChangeDataFeed"
#: Delta still reads the name the feed had at first.
_CHANGE_FEED_NAMES = (CHANGE_FEED, "delta.enableChangeDataCapture")
#: Gives every row an id that stays.
ROW_TRACKING = "delta.enableRowTracking"
_ROW_IDS = "delta.rowTracking.materializedRowIdColumnName"
_SUSPENDED = "delta.rowTrackingSuspended"


def feed_on(properties: Mapping[str, str]) -> bool:
    """Tell from a table's properties whether its change data feed is on; Delta reads values in any case."""
    return any(properties.get(name, "").lower() == "true" for name in _CHANGE_FEED_NAMES)


def tracks_rows(properties: Mapping[str, str]) -> bool:
    """Tell from a table's properties whether its rows have ids, those that were there before included."""
    on = properties.get(ROW_TRACKING, "").lower() == "true"
    return on and _ROW_IDS in properties and properties.get(_SUSPENDED, "").lower() != "true"
