"""Build the timeline of a key: entries from its events and from its row in the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from delta_cdc.core import reserved_columns
from delta_cdc.core.adapters import DELETE, TRUNCATE, UPSERT
from delta_cdc.core.sql import PLAN_PREFIX
from delta_cdc.spark.apply.difference import FOUND, FOUND_CHANGED, FOUND_CREATED
from delta_cdc.spark.apply.entries import (
    BASE,
    CHANGED,
    CREATED,
    FOUND_DELETED,
    NO_ROW,
    PLACE,
    RANK,
    START,
)
from delta_cdc.spark.apply.events import AUTHORED, KIND
from delta_cdc.spark.apply.rows import TIME
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import nullable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.spark.apply.rows import Shape

_AT, _FOLLOWING = f"{PLAN_PREFIX}at", f"{PLAN_PREFIX}following"
_VERSION, _NEXT = f"{PLAN_PREFIX}version", f"{PLAN_PREFIX}next"
_TRUNCATE, _BUCKET = f"{PLAN_PREFIX}truncate", f"{PLAN_PREFIX}bucket"
#: The number of buckets, and thus of copies of each truncate.
_BUCKETS = 64


@dataclass(frozen=True)
class KeySelection:
    """Some keys: those in ``keys``, those that match ``predicate`` (Spark SQL), or all.

    :param without: keys to exclude
    :param small: broadcast ``keys``, because they are few. Spark does not trust the size of a checkpoint and
        would shuffle all rows instead
    """

    keys: DataFrame | None = None
    predicate: str | None = None
    without: DataFrame | None = None
    small: bool = False

    def of(self, rows: DataFrame, shape: Shape) -> DataFrame:
        """Return the rows of these keys."""
        if self.without is not None:
            rows = rows.join(self.without, on=list(shape.keys), how="left_anti")
        if self.keys is not None:
            keys = F.broadcast(self.keys) if self.small else self.keys
            return rows.join(keys, on=list(shape.keys), how="left_semi")
        return rows if self.predicate is None else rows.where(F.expr(self.predicate))


def of_events(
    events: DataFrame,
    shape: Shape,
    place: str = states.SEQUENCE,
    *,
    base: Column | None = None,
) -> DataFrame:
    """Return the timeline entries of events.

    :param place: the column that orders the events
    :param base: the state before each event, if its source contains it
    """
    return events.select(
        *shape.key_columns,
        F.lit(1).alias(RANK),
        F.col(place).alias(PLACE),
        states.SEQUENCE,
        KIND,
        states.AFTER,
        AUTHORED,
        (F.lit(None) if base is None else base).cast(nullable(shape.schema)).alias(BASE),
        F.lit(None).cast("boolean").alias(FOUND_DELETED),
        *[time.alias(name) for name, time in timed(shape, F.col(TIME)).items()],
    )


def timed(shape: Shape, time: Column) -> dict[str, Column]:
    """Return the columns of entries with the time of a change; nothing without times of rows."""
    return {} if shape.time_type is None else {CREATED: time, CHANGED: time}


def of_states(changes: DataFrame, shape: Shape, more: Sequence[str] = ()) -> DataFrame:
    """Return the timeline entries of a feed; an event contains the state before it.

    :param changes: :func:`delta_cdc.spark.changes.states.version_states`
    :param more: further columns of ``changes`` to keep
    :return: entries that keep the flags of ``changes``
    """
    return changes.select(
        *shape.key_columns,
        F.lit(1).alias(RANK),
        F.col(reserved_columns.ORDER).alias(PLACE),
        states.SEQUENCE,
        F.when(F.col(states.AFTER).isNull(), DELETE).otherwise(UPSERT).alias(KIND),
        states.AFTER,
        F.col(states.BEFORE).alias(BASE),
        states.DUPLICATE,
        states.UNKNOWN,
        *more,
    )


def entries(rows: DataFrame, like: DataFrame, shape: Shape, values: Mapping[str, Column]) -> DataFrame:
    """Return rows as timeline entries with their keys and the given values; other columns are NULL.

    :param like: entries, for columns and types
    """
    return rows.select(
        *shape.key_columns,
        *[
            values.get(field.name, F.lit(None)).cast(nullable(field.dataType)).alias(field.name)
            for field in like.schema.fields
            if field.name not in shape.keys
        ],
    )


def of_target(existing: DataFrame, like: DataFrame, shape: Shape, *, dead: bool = False) -> DataFrame:
    """Return rows of the target as the timeline entries before all events.

    :param existing: :func:`delta_cdc.spark.apply.difference.target_rows`, at most one per key
    :param like: entries of events, for their types
    :param dead: treat the rows as deleted, so that only events can keep them
    """
    marked = F.col(FOUND_DELETED) if FOUND_DELETED in existing.columns else F.lit(False)
    deleted = F.lit(True) if dead else marked
    values = {
        RANK: F.lit(0),
        KIND: F.when(deleted, DELETE).otherwise(UPSERT),
        states.AFTER: F.when(~deleted, F.col(FOUND)),
        BASE: F.col(FOUND),
        FOUND_DELETED: marked,
    }
    if START in existing.columns:
        values[states.SEQUENCE] = F.col(START)
    if FOUND_CREATED in existing.columns:
        values |= {CREATED: F.col(FOUND_CREATED), CHANGED: F.col(FOUND_CHANGED)}
    return entries(existing, like, shape, values)


def with_beginnings(timelines: DataFrame, events: DataFrame, shape: Shape) -> DataFrame:
    """Record, for each key with an upsert event (even a conflicting one), that it had no row before.

    Other keys may have a row in the target that is older than all existing events.

    :param events: all events of these keys, including those that conflicts remove
    """
    keys = events.where(F.col(KIND) == UPSERT).select(*shape.key_columns).distinct()
    return timelines.unionByName(entries(keys, timelines, shape, {RANK: F.lit(0), KIND: F.lit(NO_ROW)}))


def with_truncates(timelines: DataFrame, truncates: DataFrame, shape: Shape) -> DataFrame:
    """Add the truncates that end a state to the timelines: for each upsert, the next truncate after it.

    Upserts are spread over buckets, and each bucket gets all truncates. A window from the last place to the
    first finds the next truncate. So the work grows with the sum of both numbers, not with their product.

    :param truncates: rows with the sequences of the truncates, and their times if rows have these
    """
    place, truncate, bucket = F.col(PLACE), F.col(_TRUNCATE), F.col(_BUCKET)
    of_upsert = F.pmod(F.hash(*shape.key_columns, place), F.lit(_BUCKETS))
    upserts = timelines.where(F.col(KIND) == UPSERT).select(
        *shape.key_columns, place, of_upsert.alias(_BUCKET)
    )
    sequences = truncates.select(F.col(states.SEQUENCE).alias(PLACE)).distinct()
    buckets = F.explode(F.sequence(F.lit(0), F.lit(_BUCKETS - 1))).alias(_BUCKET)
    sequences = sequences.select(place, place.alias(_TRUNCATE), buckets)
    # A base has no place: it precedes all truncates. A truncate does not end upserts of its own place.
    last_first = Window.partitionBy(bucket).orderBy(place.desc_nulls_last(), truncate.asc_nulls_first())
    newest = F.last(truncate, ignorenulls=True).over(last_first.rowsBetween(Window.unboundedPreceding, 0))
    ends = upserts.unionByName(sequences, allowMissingColumns=True).select(
        *shape.key_columns, F.when(truncate.isNull(), newest).alias(PLACE)
    )
    ends = ends.where(place.isNotNull()).distinct()
    values = {RANK: F.lit(1), PLACE: place, states.SEQUENCE: place, KIND: F.lit(TRUNCATE)}
    if shape.time_type is not None:
        times = truncates.groupBy(F.col(states.SEQUENCE).alias(PLACE)).agg(F.max(TIME).alias(TIME))
        ends = ends.join(F.broadcast(times), PLACE)
        values |= timed(shape, F.col(TIME))
    return timelines.unionByName(entries(ends, timelines, shape, values))


def with_absences(
    timelines: DataFrame, events: DataFrame, shape: Shape, held: DataFrame | None = None
) -> DataFrame:
    """Add a delete if a key is in one snapshot, or in the target, but not in the next snapshot.

    :param events: events of all keys; their sequences are the snapshots
    :param held: keys and sequences of rows in the quarantine: their keys are in the snapshot, too
    """
    # One row per snapshot, with the next one. NULL stands for the target, which precedes all snapshots.
    versions = events.agg(F.sort_array(F.collect_set(states.SEQUENCE)).alias(_NEXT))
    versions = versions.withColumn(_VERSION, F.concat(F.array(F.lit(None)), F.col(_NEXT)))
    successors = versions.select(F.inline(F.arrays_zip(_VERSION, _NEXT)))
    at, following, next_version = F.col(_AT), F.col(_FOLLOWING), F.col(_NEXT)
    present_rows = timelines
    if held is not None:
        place = F.col(states.SEQUENCE)
        values = {RANK: F.lit(1), PLACE: place, states.SEQUENCE: place, KIND: F.lit(UPSERT)}
        present_rows = timelines.unionByName(entries(held, timelines, shape, values))
    placed = present_rows.withColumn(_AT, F.when(F.col(RANK) != 0, F.col(states.SEQUENCE)))
    placed = placed.withColumn(_FOLLOWING, F.lead(at).over(shape.per_key.orderBy(at)))
    present = placed.where(F.col(KIND) == UPSERT)
    joined = present.join(F.broadcast(successors), at.eqNullSafe(F.col(_VERSION)))
    absent = joined.where(next_version.isNotNull() & (following.isNull() | (following > next_version)))
    values = {RANK: F.lit(1), PLACE: next_version, states.SEQUENCE: next_version, KIND: F.lit(DELETE)}
    values |= timed(shape, next_version)
    return timelines.unionByName(entries(absent, timelines, shape, values))
