"""What a table itself refuses: which of its rules is broken, and by which rows.

Delta checks rules while it writes, and tells one row of all at most. So the rows are looked for afterwards,
among those that were to be written: a write that succeeds pays nothing for it.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_cdc.apply.batch import samples
from delta_cdc.errors import DeltaCdcError, TargetConstraintViolated, TargetSchemaClash
from delta_cdc.reasons import reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_AGAIN = "a retry would meet the same."
_ROWS = (
    "correct these rows in the source, leave them out with where, change them with select, or change the "
    f"table's rule; {_AGAIN}"
)
#: What Delta and Spark say where a table refuses something -> our name and remedy. First match wins.
_KNOWN: tuple[tuple[tuple[str, ...], type[DeltaCdcError], str], ...] = (
    (
        ("DELTA_CANNOT_MODIFY_APPEND_ONLY",),
        TargetConstraintViolated,
        f"unset delta.appendOnly on the table, or apply inserts alone (insert_only); {_AGAIN}",
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
        (
            "DELTA_FAILED_TO_MERGE_FIELDS",
            "DELTA_MERGE_INCOMPATIBLE_",
            "DELTA_MERGE_UNRESOLVED_EXPRESSION",
            "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAME",
            "DELTA_UNSUPPORTED_COLUMN_MAPPING_",
            "DELTA_UNSUPPORTED_DATA_TYPES",
            "DELTA_UNSUPPORTED_TYPE_CHANGE",
        ),
        TargetSchemaClash,
        f"change the table's columns, or the rows with select; {_AGAIN}",
    ),
)
#: The user's expressions have been resolved before: here it is the table's columns that do not fit.
_OF_COLUMNS = ("DATATYPE_MISMATCH",)
_PART = r"(?:\w+|`(?:[^`]|``)+`)"
_NAME = rf"{_PART}(?:\.{_PART})*"

_CHECK = re.compile(r"CHECK constraint [^(]+ (\(.*\)) violated by row with values:", re.DOTALL)
_NOT_NULL = re.compile(rf"NOT NULL constraint violated for column: ({_NAME})\.\s")
_LENGTH = re.compile(r"Failed check: (\(.*\))\.", re.DOTALL)
_OVERFLOW = re.compile(rf'into the "([^"]+)" type column(?: or variable)? ({_NAME}) ')


@dataclass(frozen=True)
class Into:
    """Where a statement writes, and what.

    :param rows: returns the rows as they were to stand there; None where it writes none
    :param keys: the columns that an error names rows by
    """

    table: str
    rows: Callable[[], DataFrame] | None = None
    keys: tuple[str, ...] = ()


def refused(error: Exception, into: Into) -> DeltaCdcError | None:
    """Return the error for a statement that the table refuses; None where it was something else."""
    said = f"{into.table} refuses what is to be written:"
    found = named(error, said)
    if found is None and any(f"[{name}" in str(error) for name in _OF_COLUMNS):
        found = TargetSchemaClash(f"{said} {reason(error)}", remedy=_KNOWN[-1][2])
    if found is None:
        return None
    sample = _sample(error, into)
    told = f" Of the rows that break this rule: {sample}." if sample else ""
    return type(found)(f"{found.message}{told} Nothing was written to it.", remedy=found.remedy)


def named(error: Exception, said: str) -> DeltaCdcError | None:
    """Return the error for what a table refuses; None where it was something else.

    :param said: what comes before the reason: where it was
    """
    text = str(error)
    for names, cls, remedy in _KNOWN:
        if any(f"[{name}" in text for name in names):
            return cls(f"{said} {reason(error)}", remedy=remedy)
    return None


def broken(text: str) -> str | None:
    """Return the SQL condition of rows that break the rule of an error; None where it does not tell the rule.

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


def _sample(error: Exception, into: Into) -> str:
    """Return the keys of up to three rows that break the rule; "" where they cannot be told."""
    from pyspark.sql import functions as F

    condition = broken(str(error))
    if condition is None or into.rows is None or not into.keys:
        return ""
    try:
        return samples(into.rows(), into.keys, F.expr(condition))
    except Exception as second:  # noqa: BLE001 - what is told already must not be lost for a sample
        log.debug("no rows of %s that break %s: %s", into.table, condition, reason(second))
        return ""
