"""Table properties that planner and job both read: one spelling, one rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Turns the change data feed on.
CHANGE_FEED = "delta.enableChangeDataFeed"
#: Delta still reads the name the feed had at first.
_CHANGE_FEED_NAMES = (CHANGE_FEED, "delta.enableChangeDataCapture")


def feed_on(properties: Mapping[str, str]) -> bool:
    """Tell from a table's properties whether its change data feed is on; Delta reads values in any case."""
    return any(properties.get(name, "").lower() == "true" for name in _CHANGE_FEED_NAMES)
