"""Materialise a batch once, with its counts and key bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType

from delta_cdc.core.sql import column, date_literal, literal, quote, time_literal
from delta_cdc.spark.sessions import checkpointed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.spark.apply.rows import Shape


#: Total: the number of rows that change the target.
CHANGES = "changes"
#: Total: the number of rows that take part in the MERGE. If it is 0, the MERGE reads no row of the target.
MERGED = "merged"
#: Maximum number of ranges of one key. Spark checks each range for every row that it reads from the target.
MOST_RANGES = 16
#: Maximum number of values of a key that partitions the target. Delta checks them once for each file.
MOST_PARTITIONS = 100
_BUCKETS = 1024
#: If the values fill at least 1/8 of the span between their bounds, ranges would skip no files.
_DENSE = 8
#: Ranges must leave out this share of the span. Spark checks each of them for every row: they cost a MERGE of
#: 10,000 uniform keys into 1,000,000 rows 0.3 s, and skipped no file.
_LEAST_SKIPPED = 1 / 8


@dataclass(frozen=True)
class Batch:
    """A materialised batch and the results of one scan over it.

    :param bounds: key column -> SQL literals of its (least, greatest) value; None without a value
    :param ranges: key column -> literals of ranges that cover all its values, if the values have large gaps;
        of a key that partitions the target, the values themselves
    """

    rows: DataFrame
    totals: dict[str, Any]
    bounds: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    ranges: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)


def materialise(
    rows: DataFrame,
    shape: Shape,
    totals: Mapping[str, Column],
    only: Column | None = None,
    *,
    with_ranges: bool = True,
) -> Batch:
    """Compute ``rows`` once (local checkpoint) and collect totals and key bounds in one scan.

    Of a key that partitions the target, the scan also collects the values. If other keys have large gaps, a
    second scan, of the stored rows, finds their ranges.

    :param only: condition of the rows that the bounds cover; all rows by default
    :param with_ranges: find the ranges; False for a target that has too few files to skip some
    """
    # The job that computes the totals also computes and stores the rows, so no extra job runs.
    rows = checkpointed(rows)
    # Rows without a key are refused or quarantined; no range covers them.
    covered = ~null_key(shape) if only is None else only & ~null_key(shape)
    aggregates = dict(totals)
    bounded = [key for key in shape.keys if has_literal(rows.schema[key].dataType)]
    partitions = [key for key in bounded if key in shape.partitions]
    for key in bounded:
        value = F.when(covered, _position(rows, key))
        aggregates |= {f"min {key}": F.min(value), f"max {key}": F.max(value)}
        if key in partitions:
            aggregates[f"values {key}"] = F.collect_set(value)
        elif with_ranges and (key == bounded[0] or _is_number(rows, key)):
            aggregates[f"distinct {key}"] = F.approx_count_distinct(value)
    results = rows.agg(*[value.alias(name) for name, value in aggregates.items()]).collect()[0].asDict()
    spans = {key: (results.pop(f"min {key}"), results.pop(f"max {key}")) for key in bounded}
    distinct = {key: results.pop(f"distinct {key}", 0) for key in bounded}
    values = {key: results.pop(f"values {key}") for key in partitions}
    ranges = {key: [(v, v) for v in found] for key, found in values.items() if len(found) <= MOST_PARTITIONS}
    gaps = {
        key: span
        for key, span in spans.items()
        if with_ranges and key not in values and _lie_apart(*span, distinct[key])
    }
    ranges |= _ranges(rows.where(covered), gaps)
    bounds = {
        key: (_literal(rows, key, low), _literal(rows, key, high)) for key, (low, high) in spans.items()
    }
    literals = {key: _literals(rows, key, sorted(parts)) for key, parts in ranges.items()}
    return Batch(rows=rows, totals=results, bounds=bounds, ranges=literals)


def _lie_apart(least: Any, greatest: Any, distinct: int) -> bool:
    """Return whether ranges between the two bounds could skip files."""
    if isinstance(least, int) and isinstance(greatest, int):
        return greatest - least > _DENSE * distinct
    return 1 < distinct <= MOST_RANGES and least != greatest


def _ranges(rows: DataFrame, spans: Mapping[str, tuple[Any, Any]]) -> dict[str, list[tuple[Any, Any]]]:
    """Return up to :data:`MOST_RANGES` ranges that cover all values of a key.

    A key has none if it needs more, or if they would cover nearly all of the span between its bounds. One job
    finds the ranges of all keys that are numbers, dates or times.

    :param spans: key column -> least and greatest value
    """
    ranges: dict[str, list[tuple[Any, Any]]] = {}
    places = []
    for key, (least, greatest) in spans.items():
        value = _position(rows, key)
        if not _is_number(rows, key):
            found = rows.select(value.alias("v")).distinct().limit(MOST_RANGES + 1).collect()
            ranges[key] = [(row["v"], row["v"]) for row in found] if len(found) <= MOST_RANGES else []
            continue
        # Doubles suffice: a value may fall into a neighbouring bucket, but the bounds of each are exact.
        place = (value.cast("double") - F.lit(float(least))) / F.lit(float(greatest - least))
        bucket = F.floor(place * F.lit(_BUCKETS)).alias("bucket")
        places.append(F.struct(F.lit(key).alias("key"), bucket, value.cast("bigint").alias("v")))
    if places:
        every = rows.select(F.inline(F.array(*places))).groupBy("key", "bucket")
        buckets = every.agg(F.min("v").alias("a"), F.max("v").alias("z")).collect()
        for key in {row["key"] for row in buckets}:
            merged = _merged(sorted((row["a"], row["z"]) for row in buckets if row["key"] == key))
            least, greatest = spans[key]
            covered = sum(last - first for first, last in merged)
            if covered <= (1 - _LEAST_SKIPPED) * (greatest - least):
                ranges[key] = merged
    return ranges


def _merged(parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge ranges, in ascending order, across all but the largest gaps."""
    gaps = sorted(range(1, len(parts)), key=lambda index: parts[index][0] - parts[index - 1][1], reverse=True)
    starts = sorted(index for index in gaps[: MOST_RANGES - 1] if parts[index][0] - parts[index - 1][1] > 1)
    ends = [*starts, len(parts)]
    return [(parts[start][0], parts[end - 1][1]) for start, end in zip([0, *starts], ends, strict=True)]


_TIMES = T.TimestampType | T.TimestampNTZType
_NUMBERS = T.IntegralType | T.DateType | _TIMES


def has_literal(data_type: DataType) -> bool:
    """Return whether the batch collects bounds of this type.

    Values of other types have no SQL literal. Strings with a collation are excluded, because their order
    differs from the byte order of file statistics.
    """
    return isinstance(data_type, _NUMBERS | T.DecimalType) or data_type == T.StringType()


def _is_number(rows: DataFrame, key: str) -> bool:
    """Return whether the driver collects a key as whole numbers."""
    return isinstance(rows.schema[key].dataType, _NUMBERS)


def _position(rows: DataFrame, key: str) -> Column:
    """Return a key's value as the driver collects it: days or microseconds since 1970 of dates and times.

    Spark's dates and times reach beyond Python's years 1 to 9999.
    """
    value, data_type = F.col(quote(key)), rows.schema[key].dataType
    if isinstance(data_type, T.DateType):
        return F.unix_date(value)
    # A private session's time zone is UTC, so a time without a zone becomes the same time in UTC.
    return F.unix_micros(value.cast("timestamp")) if isinstance(data_type, _TIMES) else value


def _literal(rows: DataFrame, key: str, value: Any) -> str | None:
    """Return the SQL literal of a value of :func:`_position`; None without one."""
    data_type = rows.schema[key].dataType
    if value is not None and isinstance(data_type, T.DateType):
        return date_literal(value)
    if value is not None and isinstance(data_type, _TIMES):
        return time_literal(value, zoned=isinstance(data_type, T.TimestampType))
    return literal(value)


def _literals(rows: DataFrame, key: str, ranges: Sequence[tuple[Any, Any]]) -> tuple[tuple[str, str], ...]:
    """Return the literals of ranges; empty if a bound has none."""
    texts = [(_literal(rows, key, low), _literal(rows, key, high)) for low, high in ranges]
    valid = tuple((low, high) for low, high in texts if low is not None and high is not None)
    return valid if len(valid) == len(texts) else ()


def pruning(batch: Batch) -> list[str]:
    """Return conditions for ON that skip files: Delta has no dynamic file pruning, so they are constants.

    A batch without rows needs no row of the target. Values with large gaps become ranges joined by OR,
    because Delta skips files only by the least and the greatest value of an IN list (with 64 files of 100
    keys each and five keys far apart, IN read 63 files, OR read 5).
    """
    if batch.totals.get(MERGED) == 0:
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
    """Return whether any key column is NULL. In a partition column, an empty text is NULL by then."""
    result = F.lit(False)
    for key in shape.keys:
        result = result | F.col(quote(key)).isNull()
    return result
