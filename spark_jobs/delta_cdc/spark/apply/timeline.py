"""Build the timeline of a key: its events and its row in the target, as entries for intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delta_cdc.core.sql import PLAN_PREFIX
from delta_cdc.spark.apply.difference import FOUND
from delta_cdc.spark.apply.events import AUTHORED, DELETE, KIND, TRUNCATE, UPSERT
from delta_cdc.spark.apply.intervals import BASE, FOUND_DELETED, NO_ROW, PLACE, RANK, START
from delta_cdc.spark.changes import states

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta_cdc.spark.apply.rows import Shape

_VERSIONS, _AT, _NEXT = f"{PLAN_PREFIX}versions", f"{PLAN_PREFIX}at", f"{PLAN_PREFIX}next"


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


def of_events(events: DataFrame, shape: Shape, place: str = states.SEQUENCE) -> DataFrame:
    """Return the timeline entries of events.

    :param place: the column that orders the events
    """
    return events.select(
        *shape.key_columns,
        F.lit(1).alias(RANK),
        F.col(place).alias(PLACE),
        states.SEQUENCE,
        KIND,
        states.AFTER,
        AUTHORED,
        F.lit(None).cast(shape.schema).alias(BASE),
        F.lit(None).cast("boolean").alias(FOUND_DELETED),
    )


def entries(rows: DataFrame, like: DataFrame, shape: Shape, values: Mapping[str, Column]) -> DataFrame:
    """Return rows as timeline entries with their keys and the given values; other columns are NULL.

    :param like: entries, for columns and types
    """
    return rows.select(
        *shape.key_columns,
        *[
            values.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
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
    return entries(existing, like, shape, values)


def with_beginnings(timelines: DataFrame, events: DataFrame, shape: Shape) -> DataFrame:
    """Record, for each key with an upsert event (even a conflicting one), that it had no row before.

    Other keys may have a row in the target that is older than all existing events.

    :param events: all events of these keys, including those that conflicts remove
    """
    keys = events.where(F.col(KIND) == UPSERT).select(*shape.key_columns).distinct()
    return timelines.unionByName(entries(keys, timelines, shape, {RANK: F.lit(0), KIND: F.lit(NO_ROW)}))


def with_truncates(timelines: DataFrame, truncates: DataFrame, shape: Shape) -> DataFrame:
    """Add the truncates to the timeline of every key.

    :param truncates: rows with the sequences of the truncates
    """
    keys = timelines.select(*shape.key_columns).distinct()
    sequences = truncates.select(F.col(states.SEQUENCE)).distinct()
    sequence = F.col(states.SEQUENCE)
    values = {RANK: F.lit(1), PLACE: sequence, states.SEQUENCE: sequence, KIND: F.lit(TRUNCATE)}
    return timelines.unionByName(entries(keys.crossJoin(F.broadcast(sequences)), timelines, shape, values))


def with_absences(timelines: DataFrame, events: DataFrame, shape: Shape) -> DataFrame:
    """Add a delete if a key is in one snapshot, or in the target, but not in the next snapshot.

    :param events: events of all keys; their sequences are the snapshots
    """
    versions = events.agg(F.sort_array(F.collect_set(states.SEQUENCE)).alias(_VERSIONS))
    position = (
        F.when(F.col(RANK) == 0, 0).otherwise(F.array_position(_VERSIONS, F.col(states.SEQUENCE))).cast("int")
    )
    placed = timelines.crossJoin(F.broadcast(versions)).withColumn(_AT, position)
    following = F.lead(_AT).over(shape.per_key.orderBy(_AT))
    absent = placed.withColumn(_NEXT, following).where(
        (F.col(KIND) == UPSERT)
        & (F.col(_AT) < F.size(_VERSIONS))
        & (F.coalesce(F.col(_NEXT), F.size(_VERSIONS) + 1) > F.col(_AT) + 1)
    )
    sequence = F.element_at(F.col(_VERSIONS), F.col(_AT) + 1)
    values = {RANK: F.lit(1), PLACE: sequence, states.SEQUENCE: sequence, KIND: F.lit(DELETE)}
    return timelines.unionByName(entries(absent, timelines, shape, values))
