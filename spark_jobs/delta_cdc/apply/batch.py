"""The batch: validated, netted, materialised once. Counts, bounds and refusals all come from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_cdc.errors import KeyNotUnique, NullKey, NullSequence, WrongReader
from delta_cdc.sql import column, literal, quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


@dataclass(frozen=True)
class Batch:
    """A materialised batch and what one scan over it told.

    :param bounds: key column -> (least, greatest) value, as collected
    """

    rows: DataFrame
    totals: dict[str, Any]
    bounds: dict[str, tuple[Any, Any]] = field(default_factory=dict)


def materialise(
    rows: DataFrame, keys: Sequence[str], totals: Mapping[str, Column], only: Column | None = None
) -> Batch:
    """Compute ``rows`` once (local checkpoint) and collect totals and key bounds in one scan.

    :param only: which rows the bounds cover; all by default
    """
    from pyspark.sql import functions as F

    rows = rows.localCheckpoint()
    covered = F.lit(True) if only is None else only
    wanted = dict(totals)
    bounded = [key for key in keys if has_literal(rows.schema[key].dataType)]
    for key in bounded:
        value = F.when(covered, F.col(quote(key)))
        wanted[f"min {key}"], wanted[f"max {key}"] = F.min(value), F.max(value)
    found = rows.agg(*[value.alias(name) for name, value in wanted.items()]).collect()[0].asDict()
    bounds = {key: (found.pop(f"min {key}"), found.pop(f"max {key}")) for key in bounded}
    return Batch(rows=rows, totals=found, bounds=bounds)


def has_literal(data_type: DataType) -> bool:
    """Tell whether bounds of this type are collected: what has no literal could only fail in Python.

    Spark's timestamps and dates reach beyond Python's year 9999; of the two, only dates serve as keys often.
    """
    from pyspark.sql import types as T

    return isinstance(data_type, T.IntegralType | T.DecimalType | T.StringType | T.DateType)


def pruning(batch: Batch) -> list[str]:
    """Return the literals for ON: there is no dynamic file pruning, only constants skip files."""
    conditions = []
    for key, (least, greatest) in batch.bounds.items():
        low, high = literal(least), literal(greatest)
        if low is not None and high is not None:
            name = column("t", key)
            conditions.append(f"{name} = {low}" if low == high else f"{name} BETWEEN {low} AND {high}")
    return conditions


def null_key(keys: Sequence[str]) -> Column:
    """Tell whether any key column is NULL."""
    from pyspark.sql import functions as F

    result = F.lit(False)
    for key in keys:
        result = result | F.col(quote(key)).isNull()
    return result


def samples(rows: DataFrame, keys: Sequence[str], condition: Column) -> str:
    """Return up to three offending keys, for the error's text."""
    found = rows.where(condition).select(*[quote(key) for key in keys]).limit(3).collect()
    return "; ".join(", ".join(f"{key} = {row[key]!r}" for key in keys) for row in found)


def refuse_null_keys(count: int, source: str, versions: str, keys: Sequence[str]) -> None:
    """:raises NullKey: where ``count`` > 0"""
    if count:
        raise NullKey(
            f"{count} row(s) of {source}, {versions}, have NULL in a key column ({', '.join(keys)}).",
            remedy="choose keys that are never NULL, or leave such rows out with where.",
        )


def refuse_duplicates(count: int, source: str, versions: str, sample: str) -> None:
    """:raises KeyNotUnique: where ``count`` > 0"""
    if count:
        raise KeyNotUnique(
            f"{count} key(s) of {source}, {versions}, belong to more than one row (for instance {sample}).",
            remedy="add columns to keys until a row is unique, or remove the duplicates from the source.",
        )


def refuse_unknown_types(count: int, source: str, versions: str) -> None:
    """:raises WrongReader: where ``count`` > 0"""
    if count:
        raise WrongReader(
            f"{count} change row(s) of {source}, {versions}, have a _change_type that Delta's change feed "
            "does not know.",
            remedy="check which connector reads the change feed; nothing was applied.",
        )


def refuse_null_sequences(count: int, source: str, versions: str, sample: str, expression: str) -> None:
    """:raises NullSequence: where ``count`` > 0"""
    if count:
        raise NullSequence(
            f"{count} change(s) of {source}, {versions}, have no sequence: {expression} gives NULL "
            f"(for instance {sample}).",
            remedy="use an expression that is never NULL, for instance with coalesce.",
        )
