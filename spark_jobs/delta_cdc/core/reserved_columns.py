"""Names of the columns that change rows and targets have besides their table's columns."""

from __future__ import annotations

from delta_cdc.core.sql import PLAN_PREFIX

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
METADATA_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
BEFORE_TYPES = ("delete", "update_preimage")
AFTER_TYPES = ("insert", "update_postimage")
#: The column of a target that marks deleted rows.
DELETED_COLUMN = "_deleted"
#: The version that orders the states of a key: the row's own version; or, if only the two ends of a range are
#: read, the range's last version.
ORDER = f"{PLAN_PREFIX}order"
#: The table's own row id, where row tracking is the read method.
ROW_ID = f"{PLAN_PREFIX}row_id"
#: The last version that inserted or updated the row, where row tracking is the read method.
ROW_VERSION = f"{PLAN_PREFIX}row_version"
#: The names of both for users, as Delta names them.
TRACKING_COLUMNS = ("_row_id", "_row_commit_version")
#: The state of a row before and after a change, in a wide row; and the change type of an update there.
OLD, NEW, UPDATE = "old", "new", "update"
#: Options that name a column of a history, in the order of the columns; None: the target lacks the column.
NAMING = ("start_column", "end_column", "current_column")
#: Options that name a column with a time of the current row, type 1, in the order of the columns.
TIMES = ("created_column", "changed_column")
#: Options of a history whose columns follow from the end of a row.
OF_END = ("end_value", "current_column")
#: Options that older releases did not have. A seal records them only if they are given, so that the seals of
#: other pipelines stay as they were.
SPARSE = (*OF_END, *TIMES, "row_hash_column")
