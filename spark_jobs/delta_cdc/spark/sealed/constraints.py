"""Name errors of writes that the target refuses: which rule is broken, and by which rows.

Delta checks its rules during the write and reports at most one row. This module searches for the other rows
after a failure only, so a successful write costs nothing extra.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from delta_cdc.core.errors import DeltaCdcError, TargetConstraintViolated, TargetSchemaClash
from delta_cdc.core.properties import COLUMN_MAPPING
from delta_cdc.core.reasons import reason, too_long_a_name
from delta_cdc.core.sql import literal, quote
from delta_cdc.spark.apply.refusals import samples

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

_AGAIN = "a retry would fail in the same way."
CHANGE_THE_RULE = f"change the table's rule; {_AGAIN}"
_OF_OTHER_COLUMNS = (
    "the rule names a column that the run does not write: only the table has it, and mode='reset' drops it. "
    f"Let the rule take NULL, give the column a DEFAULT (reset drops that, too), or drop the rule; {_AGAIN}"
)
_ROWS = f"correct these rows where they come from, or {CHANGE_THE_RULE}"
#: Error classes of Delta and Spark for a refused write -> our name and remedy. First match wins.
_KNOWN: tuple[tuple[tuple[str, ...], type[DeltaCdcError], str], ...] = (
    (
        ("DELTA_CANNOT_MODIFY_APPEND_ONLY",),
        TargetConstraintViolated,
        f"unset delta.appendOnly on the table, or apply inserts alone (insert_only); {_AGAIN}",
    ),
    (
        ("DELTA_ICEBERG_COMPAT_VIOLATION.DELETION_VECTORS_SHOULD_BE_DISABLED",),
        TargetConstraintViolated,
        (
            "for a new table, set target_properties={'delta.enableDeletionVectors': 'false'} (of a log: "
            "log_properties), as Iceberg's readers know no deletion vectors. Of a table that exists, set "
            f"this property, and run REORG TABLE … APPLY (PURGE); {_AGAIN}"
        ),
    ),
    (
        (
            "DELTA_IDENTITY_COLUMN",
            "DELTA_GENERATED_COLUMN",
            "DELTA_ICEBERG_COMPAT",
            "DELTA_UNIVERSAL_FORMAT_VIOLATION",
            "DELTA_MISSING_NOT_NULL_COLUMN_VALUE",
        ),
        TargetConstraintViolated,
        f"change that column or property of the table, or what is written there with select; {_AGAIN}",
    ),
    (
        (
            "DELTA_VIOLATE_CONSTRAINT",
            "DELTA_NOT_NULL_CONSTRAINT",
            "NOT_NULL_ASSERT_VIOLATION",
            "DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
            "EXCEED_LIMIT_LENGTH",
            "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE",
            "CAST_OVERFLOW_IN_TABLE_INSERT",
            "DELTA_FAILED_CAST_PARTITION_VALUE",
            "DELTA_PARTITION_COLUMN_CAST_FAILED",
        ),
        TargetConstraintViolated,
        _ROWS,
    ),
    (
        ("DELTA_INVALID_CHARACTERS_IN_COLUMN_NAME",),
        TargetSchemaClash,
        (
            f"if all readers of the table know column mapping, set its property {COLUMN_MAPPING} to 'name' "
            "(ALTER TABLE … SET TBLPROPERTIES). Or rename the columns where they come from or with select, "
            f"or leave them out with except_column_list (of an ingest, in adapter_options); {_AGAIN}"
        ),
    ),
    (
        (
            "DELTA_FAILED_TO_MERGE_FIELDS",
            "DELTA_MERGE_INCOMPATIBLE_",
            "DELTA_MERGE_UNRESOLVED_EXPRESSION",
            "DELTA_UNSUPPORTED_COLUMN_MAPPING_",
            "DELTA_UNSUPPORTED_DATA_TYPES",
            "DELTA_UNSUPPORTED_TYPE_CHANGE",
            "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
            "DELTA_UNSUPPORTED_DROP_",
            "DELTA_UNSUPPORTED_RENAME_COLUMN",
            "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE",
            "DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE",
        ),
        TargetSchemaClash,
        f"change the table's columns, or the rows with select; {_AGAIN}",
    ),
)
#: By now the user's expressions have been resolved, so this error means that the table's columns do not fit.
_OF_COLUMNS = ("DATATYPE_MISMATCH",)
_PART = r"(?:\w+|`(?:[^`]|``)+`)"
_NAME = rf"{_PART}(?:\.{_PART})*"

# Each begins with the first place of its words, so that a text is read once.
_CHECK = re.compile(
    r"\A(?>.*?CHECK constraint (?:(?!CHECK constraint )[^(])++(?<= ))(\(.*\)) violated by row with values:",
    re.DOTALL,
)
_NOT_NULL = re.compile(rf"NOT NULL constraint violated for column: ({_NAME})\.\s")
_LENGTH = re.compile(r"\A(?>.*?Failed check: (?=\())(\(.*\))\.", re.DOTALL)
_OVERFLOW = re.compile(rf'into the "([^"]+)" type column(?: or variable)? ({_NAME}) ')


@dataclass(frozen=True)
class Destination:
    """Where a statement writes, and which rows.

    :param rows: returns the rows as the table would hold them; None if the statement writes none
    :param keys: the columns by which an error identifies rows
    :param remedy: what a user does about rows that a rule of the table refuses
    """

    table: str
    rows: Callable[[], DataFrame] | None = None
    keys: tuple[str, ...] = ()
    remedy: str = _ROWS


def refused(error: Exception, into: Destination) -> DeltaCdcError | None:
    """Return the error for a statement that the table refuses; None for other errors."""
    problem = f"{into.table} refuses what is to be written:"
    refusal = named(error, problem)
    if refusal is None and any(f"[{name}" in str(error) for name in _OF_COLUMNS):
        refusal = TargetSchemaClash(f"{problem} {reason(error)}", remedy=_KNOWN[-1][2])
    if refusal is None:
        return None
    sample = _sample(error, into)
    example = f" Of the rows that break this rule: {sample}." if sample else ""
    message = f"{refusal.message}{example} Nothing was written to it."
    remedy = refusal.remedy
    if remedy == _ROWS:
        remedy = _OF_OTHER_COLUMNS if sample is None else into.remedy
    return type(refusal)(message, remedy=remedy, argument=refusal.argument)


def named(error: Exception, problem: str) -> DeltaCdcError | None:
    """Return the error for a write that the table refuses; None for other errors.

    :param problem: start of the message: where it happened
    """
    text = str(error)
    for names, cls, remedy in _KNOWN:
        if any(f"[{name}" in text for name in names):
            return cls(f"{problem} {reason(error)}", remedy=remedy)
    name = too_long_a_name(error)
    if name is None:
        return None
    column, is_partition, _ = name.partition("=")
    cause_text = f"a value of the partition column {unquote(column)} makes" if is_partition else "this needs"
    return TargetConstraintViolated(
        f"{problem} {cause_text} a name that the storage takes for too long. {reason(error)}",
        remedy=f"shorten such values with select, or partition the table by another column; {_AGAIN}",
    )


def broken(text: str) -> str | None:
    """Return the SQL condition of rows that break the rule in an error; None if the error names no rule.

    :param text: Delta's message
    """
    if check := _CHECK.search(text):
        return f"NOT coalesce({check[1]}, false)"
    if column := _NOT_NULL.search(text):
        parent = column[1].rpartition(".")[0]
        return f"{column[1]} IS NULL" + (f" AND {parent} IS NOT NULL" if parent else "")
    if length := _LENGTH.search(text):
        return f"NOT {length[1]}"
    if overflow := _OVERFLOW.search(text):
        return f"{overflow[2]} IS NOT NULL AND try_cast({overflow[2]} AS {overflow[1]}) IS NULL"
    return None


def _in_folder(error: Exception) -> str | None:
    """Return the condition of rows whose partition folder has too long a name; None for other errors."""
    column, is_partition, value = (too_long_a_name(error) or "").partition("=")
    partition_value = literal(unquote(value)) if is_partition else None
    return f"{quote(unquote(column))} = {partition_value}" if partition_value else None


def _sample(error: Exception, into: Destination) -> str | None:
    """Return the keys of up to three rows that break the rule.

    :returns: "" if they cannot be found; None if the rule names a column that the rows do not have
    """
    condition = broken(str(error)) or _in_folder(error)
    if condition is None or into.rows is None or not into.keys:
        return ""
    try:
        rows = into.rows()
        # Spark would find a missing column in what the rows were made of.
        _ = rows.sparkSession.createDataFrame([], rows.schema).where(condition).schema
        return samples(rows, into.keys, F.expr(condition))
    except Exception as sampling_error:  # noqa: BLE001 - a failing sample must not hide the original error
        log.debug("no rows of %s that break %s: %s", into.table, condition, reason(sampling_error))
        return None if "[UNRESOLVED_COLUMN" in str(sampling_error) else ""
