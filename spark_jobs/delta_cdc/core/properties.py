"""Table properties that planner and job both read: shared names and rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Turns the change data feed on.
CHANGE_FEED = "delta.enableChangeDataFeed"
#: Delta still reads the feed's original property name.
_CHANGE_FEED_NAMES = (CHANGE_FEED, "delta.enableChangeDataCapture")
#: Of a change log, the allowed lateness: events below this sequence are refused if they arrive later, and may
#: be removed if they exist.
LATENESS_HORIZON = "delta_cdc.latenessHorizon"
#: Of a change log: maintenance has deleted all events that it may delete below this sequence.
EXPIRED_BELOW = "delta_cdc.expiredBelow"
#: The catalog name under which a target was registered.
CATALOG_NAME = "delta_cdc.catalogName"
#: Lets rows only be added.
APPEND_ONLY = "delta.appendOnly"
#: Of a target or a change log: keys were erased from it. The value changes with each erasure, so a run that
#: was planned before it is planned again.
ERASED = "delta_cdc.erased"
#: Of the table of erased keys beside it: the secret of the keyed hash (hex), and the key columns (JSON).
ERASED_SECRET, ERASED_COLUMNS = "delta_cdc.erasedSecret", "delta_cdc.erasedColumns"
#: The columns of which a table's files have bounds; a table that this engine creates has it.
STATISTICS_COLUMNS = "delta.dataSkippingStatsColumns"
#: Of a change log: marks the table as one.
CHANGE_LOG = "delta_cdc.changeLog"
#: ``name`` or ``id``: columns have ids, and names of their own in the files.
COLUMN_MAPPING = "delta.columnMapping.mode"
#: The greatest id that a column of the table ever had.
GREATEST_COLUMN_ID = "delta.columnMapping.maxColumnId"
#: Allows the type of a column to widen.
TYPE_WIDENING = "delta.enableTypeWidening"
#: Gives every row a stable id.
ROW_TRACKING = "delta.enableRowTracking"
#: Masks the rows that a commit deletes or updates, and does not write their files again.
DELETION_VECTORS = "delta.enableDeletionVectors"
#: A MERGE of the engine writes the files of a target up to this size again, with deletion vectors or without.
WHOLE_FILES_TARGET = 8 * 1024**2
_ROW_IDS = "delta.rowTracking.materializedRowIdColumnName"
_SUSPENDED = "delta.rowTrackingSuspended"


def feed_on(properties: Mapping[str, str]) -> bool:
    """Return whether a table's properties turn its change data feed on; Delta ignores the case of values."""
    return any(properties.get(name, "").lower() == "true" for name in _CHANGE_FEED_NAMES)


def row_id_column(properties: Mapping[str, str]) -> str | None:
    """Return the column in which a table's files keep row ids; None if some rows have no id."""
    return properties.get(_ROW_IDS) if tracks_rows(properties) else None


def tracks_rows(properties: Mapping[str, str]) -> bool:
    """Return whether a table's properties make each row store the version that added it."""
    on = properties.get(ROW_TRACKING, "").lower() == "true"
    return on and properties.get(_SUSPENDED, "").lower() != "true"
