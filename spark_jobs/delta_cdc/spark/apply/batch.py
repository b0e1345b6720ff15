"""A batch: validated, netted and materialised once. Counts, bounds and refusals all come from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType

from delta_cdc.core.errors import KeyNotUnique, NullKey, NullSequence, WrongReader
from delta_cdc.core.sql import column, date_literal, literal, quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.spark.apply.rows import Shape


#: Prefix of the error that a MERGE raises (``raise_error``) if two rows share a key; the key follows.
DUPLICATE_MARK = "delta_cdc:KeyNotUnique:"

#: Spark's error class if an executor died that held rows of a local checkpoint.
LOST_ROWS = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"


#: Name of a total: how many rows of the batch change the target. If 0, the MERGE reads no row of the target.
CHANGES = "changes"
#: Most ranges of one key. Spark checks each of them for every row that it reads from the target.
MOST_RANGES = 16
_BUCKETS = 1024
#: If the values fill at least 1/8 of the span between their bounds, ranges would skip no files.
_DENSE = 8


@dataclass(frozen=True)
class Batch:
    """A materialised batch and the results of one scan over it.

    :param bounds: key column -> SQL literals of its (least, greatest) value; None if there is none
    :param ranges: key column -> literals of ranges that hold all its values, if the values lie far apart
    """

    rows: DataFrame
    totals: dict[str, Any]
    bounds: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    ranges: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)


def materialise(
    rows: DataFrame, keys: Sequence[str], totals: Mapping[str, Column], only: Column | None = None
) -> Batch:
    """Compute ``rows`` once (local checkpoint) and collect totals and key bounds in one scan.

    :param only: which rows the bounds cover; all by default
    """
    # The job that computes the totals also computes and keeps the rows: no extra job.
    rows = rows.localCheckpoint(eager=False)
    covered = F.lit(True) if only is None else only
    wanted = dict(totals)
    bounded = [key for key in keys if has_literal(rows.schema[key].dataType)]
    for key in bounded:
        value = F.when(covered, F.col(quote(key)))
        for name, bound in ((f"min {key}", F.min(value)), (f"max {key}", F.max(value))):
            # Spark's dates reach beyond Python's years 1 to 9999.
            wanted[name] = bound.cast("string") if _is_date(rows, key) else bound
    for key in bounded[:1]:
        wanted[f"distinct {key}"] = F.approx_count_distinct(F.when(covered, F.col(quote(key))))
    found = rows.agg(*[value.alias(name) for name, value in wanted.items()]).collect()[0].asDict()
    bounds, ranges = {}, {}
    for key in bounded:
        least, greatest = found.pop(f"min {key}"), found.pop(f"max {key}")
        distinct = found.pop(f"distinct {key}", 0)
        text = date_literal if _is_date(rows, key) else literal
        bounds[key] = (text(least), text(greatest))
        if _lie_apart(least, greatest, distinct):
            ranges[key] = _ranges(rows.where(covered), key, least, greatest, distinct)
    return Batch(rows=rows, totals=found, bounds=bounds, ranges=ranges)


def _lie_apart(least: Any, greatest: Any, distinct: int) -> bool:
    """Return whether ranges between the two bounds could skip files."""
    if isinstance(least, int) and isinstance(greatest, int):
        return greatest - least > _DENSE * distinct
    return 1 < distinct <= MOST_RANGES and least != greatest


def _ranges(
    rows: DataFrame, key: str, least: Any, greatest: Any, distinct: int
) -> tuple[tuple[str, str], ...]:
    """Return up to :data:`MOST_RANGES` ranges that hold all values of a key; empty if that is impossible."""
    value = F.col(quote(key))
    if not isinstance(least, int):
        text = date_literal if _is_date(rows, key) else literal
        shown = value.cast("string") if _is_date(rows, key) else value
        found = rows.select(shown.alias("v")).distinct().limit(MOST_RANGES + 1).collect()
        texts = [text(row["v"]) for row in found]
        known = [one for one in texts if one is not None]
        return () if len(texts) > MOST_RANGES or len(known) < len(texts) else tuple((v, v) for v in known)
    # Doubles suffice: a value may fall into a neighbouring bucket, because each bucket's bounds are exact.
    place = (value.cast("double") - F.lit(float(least))) / F.lit(float(greatest - least)) * F.lit(_BUCKETS)
    buckets = rows.groupBy(F.floor(place).alias("bucket")).agg(
        F.min(value).alias("a"), F.max(value).alias("z")
    )
    parts = sorted((row["a"], row["z"]) for row in buckets.collect())
    gaps = sorted(range(1, len(parts)), key=lambda at: parts[at][0] - parts[at - 1][1], reverse=True)
    starts = sorted(at for at in gaps[: MOST_RANGES - 1] if parts[at][0] - parts[at - 1][1] > 1)
    ends = [*starts, len(parts)]
    return tuple(
        (str(parts[start][0]), str(parts[end - 1][1])) for start, end in zip([0, *starts], ends, strict=True)
    )


def has_literal(data_type: DataType) -> bool:
    """Return whether bounds of this type are collected. Types without a literal would only fail in Python.

    A string with a collation is excluded: its order differs from the byte order of file statistics.
    """
    kinds = T.IntegralType | T.DecimalType | T.DateType
    return isinstance(data_type, kinds) or data_type == T.StringType()


def _is_date(rows: DataFrame, key: str) -> bool:
    return isinstance(rows.schema[key].dataType, T.DateType)


def pruning(batch: Batch) -> list[str]:
    """Return the literals for ON: Delta has no dynamic file pruning, so only constants skip files.

    A batch without rows needs no row of the target. Values that lie far apart become ranges joined by OR,
    because Delta's skipping uses only the least and the greatest value of an IN list (of 64 files with 100
    keys each, five keys far apart: IN read 63, OR 5).
    """
    if batch.totals.get(CHANGES) == 0:
        return ["false"]
    conditions = []
    for key, (low, high) in batch.bounds.items():
        ranges = batch.ranges.get(key) or ([(low, high)] if low is not None and high is not None else [])
        name = column("t", key)
        parts = [
            f"{name} = {low}" if low == high else f"{name} BETWEEN {low} AND {high}" for low, high in ranges
        ]
        if parts:
            conditions.append(parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})")
    return conditions


def null_key(shape: Shape) -> Column:
    """Return whether any key column is NULL, or becomes NULL when it is stored.

    Delta stores an empty text in a partition column as NULL, so a later MERGE could not find the row.
    """
    result = F.lit(False)
    for key in shape.keys:
        value = F.col(quote(key))
        result = result | value.isNull()
        if key in shape.partitions:
            result = result | (value.cast("string") == "")
    return result


def samples(rows: DataFrame, keys: Sequence[str], condition: Column) -> str:
    """Return up to three offending keys, for the error's text."""
    shown = [f"cast({quote(key)} AS string) AS {quote(key)}" for key in keys]
    found = rows.where(condition).selectExpr(*shown).limit(3).collect()
    return "; ".join(", ".join(f"{key} = {row[key]}" for key in keys) for row in found)


def refuse_null_keys(count: int, source: str, versions: str, keys: Sequence[str]) -> None:
    """:raises NullKey: where ``count`` > 0"""
    if count:
        raise NullKey(
            f"{count} row(s) of {source}, {versions}, have NULL (or, in a partition column, an empty "
            f"text) in a key column ({', '.join(keys)}).",
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
