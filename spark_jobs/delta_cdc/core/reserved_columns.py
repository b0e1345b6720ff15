"""Names of the columns that change rows have besides their table's columns."""

from __future__ import annotations

from delta_cdc.core.sql import PLAN_PREFIX

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
METADATA_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
BEFORE_TYPES = ("delete", "update_preimage")
AFTER_TYPES = ("insert", "update_postimage")
#: The version that orders the states of a key: the row's own version; or, if only the two ends of a range are
#: read, the range's last version.
ORDER = f"{PLAN_PREFIX}order"
#: The table's own row id, where row tracking is the read method.
ROW_ID = f"{PLAN_PREFIX}row_id"
