"""Refuse rows that cannot be applied: the reasons, and the error of each, with keys of some rows."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame

from delta_cdc.core import quarantine
from delta_cdc.core.errors import (
    DeltaCdcError,
    InvalidEvent,
    KeyNotUnique,
    NullKey,
    NullSequence,
    SequenceNotIncreasing,
    TooLate,
    WrongReader,
)
from delta_cdc.core.sql import quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.spark.apply.prepared_step import StepContext
    from delta_cdc.spark.apply.rows import Shape

#: Prefix of the error that a MERGE raises (``raise_error``) for two rows with one key. The key follows it.
DUPLICATE_MARK = "delta_cdc:KeyNotUnique:"

#: Reasons for which rows are refused or quarantined: the names of totals, and of reasons in a quarantine.
NULL_KEY, NULL_SEQUENCE = quarantine.NULL_KEY, "null_sequence"
UNKNOWN_TYPE, DUPLICATE, DISORDER = "unknown_type", "duplicate", "disorder"
UNKNOWN_COLUMN, LATE = "unknown_column", "late_beyond_horizon"
#: Reason -> error, text after the number of rows, remedy. The first reason that a batch has is raised.
_REFUSALS: dict[str, tuple[type[DeltaCdcError], str, str]] = {
    UNKNOWN_TYPE: (
        WrongReader,
        "change row(s) of {place}, have a _change_type that Delta's change feed does not know.",
        "check which connector reads the change feed; nothing was applied.",
    ),
    LATE: (
        TooLate,
        "event(s) of {place}, arrived below the lateness horizon of the log (for instance {sample}).",
        (
            "ignore such events with policies={'on_late': 'discard'} (the log needs row tracking). Or delete "
            "them from the log and run once with mode='reload': the range keeps the versions that added them."
        ),
    ),
    NULL_KEY: (
        NullKey,
        "row(s) of {place}, have NULL (or, in a partition column, an empty text) in a key column ({keys}).",
        (
            "leave such rows out with where, or put them into quarantine with policies={'on_invalid': "
            "'quarantine'}. Or correct them at the source and, if the target exists already, run once with "
            "mode='reload'."
        ),
    ),
    DUPLICATE: (
        KeyNotUnique,
        "key(s) of {place}, belong to more than one row (for instance {sample}).",
        (
            "add columns to keys until a row is unique. Or remove the duplicates from the source and, if "
            "the target exists already, run once with mode='reload': the range keeps the versions with the "
            "duplicates."
        ),
    ),
    NULL_SEQUENCE: (
        NullSequence,
        "change(s) of {place}, have no sequence: {sequence} gives NULL (for instance {sample}).",
        "use an expression that is never NULL, for instance with coalesce.",
    ),
    UNKNOWN_COLUMN: (
        InvalidEvent,
        "event(s) of {place}, name columns in {columns} that do not exist (for instance {sample}).",
        "correct them at their source, or set such events aside with policies={'on_invalid': 'quarantine'}.",
    ),
    DISORDER: (
        SequenceNotIncreasing,
        (
            "change(s) of {place}, have a sequence ({sequence}) that does not lie above the one before of "
            "their key (for instance {sample})."
        ),
        (
            "use sequence_by='_commit_version', or an expression that grows with every change. If the one "
            "before is of a row that the target had before its first seal (none_at), lower its start there."
        ),
    ),
}


def correction(options: ApplyOptions, *, of_any_version: bool, may_end_early: bool = False) -> str:
    """Return what a user does about wrong rows in the source, for a remedy.

    :param of_any_version: a version between the ends of the range may have the wrong rows. A newer version
        that corrects them does not help then: the range keeps the older one
    :param may_end_early: the next range may end before a newer version that corrects them
    """
    if options.insert_only:
        return (
            "correct the rows at the source and run once with mode='reset', which loads the target again: "
            "the range keeps the version that added them"
        )
    if not (of_any_version or may_end_early):
        return "correct these rows in the source"
    if of_any_version and options.takes_events:
        return (
            "delete these events from the source and run once with mode='reload': later events do not "
            "replace them"
        )
    return (
        "correct the rows at the source and, if the target exists already, run once with mode='reload': the "
        "range keeps the versions with the wrong rows"
    )


def refuse(
    counts: Mapping[str, Any],
    rows: DataFrame,
    shape: Shape,
    context: StepContext,
    conditions: Mapping[str, Column] = MappingProxyType({}),
    versions: str = "",
) -> None:
    """Refuse rows that cannot be applied.

    :param counts: number of rows for each reason
    :param rows: with the key columns
    :param conditions: for each reason whose error shows sample keys, the condition of its rows
    :param versions: the versions for the message; those of the step by default
    :raises DeltaCdcError: for the first reason of :data:`_REFUSALS` whose count is above 0
    """
    for reason, (error, text, remedy) in _REFUSALS.items():
        count = counts.get(reason)
        if not count:
            continue
        condition = conditions.get(reason)
        problem = text.format(
            place=f"{context.source}, {versions or context.versions}",
            keys=", ".join(shape.keys),
            sequence=", ".join(context.options.sequences),
            columns=context.options.columns_to_update,
            sample="" if condition is None else samples(rows, shape.keys, condition),
        )
        raise error(f"{count} {problem}", remedy=remedy)


def samples(rows: DataFrame, keys: Sequence[str], condition: Column) -> str:
    """Return up to three offending keys, for the error's text."""
    key_texts = [f"cast({quote(key)} AS string) AS {quote(key)}" for key in keys]
    sample_rows = rows.where(condition).selectExpr(*key_texts).distinct().limit(3).collect()
    return "; ".join(", ".join(f"{key} = {row[key]}" for key in keys) for row in sample_rows)
