"""Deletes events of a change log that are older than the allowed lateness, and raises that limit.

The ``horizon`` is the lowest sequence that the log's allowed lateness still admits. Targets stay correct.

1. **delete**: one MERGE deletes the events that arrived before the current ``horizon`` was set, lie below
   it, and are needed by no consumer (:mod:`delta_cdc.spark.maintain.retained_events`). Its maintenance tag
   shows readers of the log that the source retracted no event
2. **raise**: one ALTER sets the new ``horizon``, and records that all below the old one is deleted

After a crash between the two steps, the next run finds those events deleted already. The planner ensures
that every consumer has read all events from before the ``horizon`` was set
(:mod:`delta_cdc.planning.expiry`).
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from operator import and_
from typing import TYPE_CHECKING, Any

from delta_cdc.core import failpoints, maintenance_tags, reserved_columns
from delta_cdc.core.errors import ConcurrentModification, InvalidConfiguration
from delta_cdc.core.properties import EXPIRED_BELOW, LATENESS_HORIZON, tracks_rows
from delta_cdc.core.spec import JobResult
from delta_cdc.core.sql import PLAN_PREFIX, merge, quote, string, table
from delta_cdc.spark.apply import events
from delta_cdc.spark.apply.batch import LATE
from delta_cdc.spark.apply.commit import look
from delta_cdc.spark.apply.events import AUTHORED, KIND, REASON
from delta_cdc.spark.apply.rows import RAW
from delta_cdc.spark.apply.sequences import as_text, from_text
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import balanced
from delta_cdc.spark.maintain import retained_events
from delta_cdc.spark.maintain.optimize import marked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from delta_cdc.core.spec import ExpireSpec, JobStatus, Reader
    from delta_cdc.spark.apply.commit import TableState
    from delta_cdc.spark.apply.events import Events

log = logging.getLogger(__name__)

#: A hash that identifies a row of the log. Exact duplicates share it, so all of them stay or all go.
ROW = f"{PLAN_PREFIX}row"
_READER, _STAYS = f"{PLAN_PREFIX}reader", f"{PLAN_PREFIX}stays"
_VIEW = f"{PLAN_PREFIX}expired"
#: Formats that give different values different texts.
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd G HH:mm:ss.SSSSSS",
    "timestampNTZFormat": "yyyy-MM-dd G HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd G",
}


def run(session: SparkSession, spec: ExpireSpec) -> JobResult:
    """Run the requested steps of an expiry.

    :return: counts ``deleted``; a dry run counts what it would delete
    :raises InvalidConfiguration: the new ``horizon`` is no valid sequence of a consumer, or lies above the
        highest sequence that a consumer has applied
    :raises ConcurrentModification: the log is not the table that the plan is for
    """
    seen = look(session, spec.table_uri)
    if seen.table_id != spec.table_id:
        raise ConcurrentModification(
            f"{spec.table_uri} is another table than a moment ago (its id is {seen.table_id}).",
            remedy="run again: it is planned anew.",
        )
    logged = session.read.format("delta").load(spec.table_uri)
    types = _order_types(logged, spec)
    horizon = _higher(session, spec, types, seen.properties.get(LATENESS_HORIZON))
    deleted = _expired(session, spec, seen, types) if spec.below is not None else 0
    failpoints.reached("expired")
    if not spec.dry_run:
        horizon = _set(session, spec, types, horizon)
    found = {
        "table": spec.table_uri,
        "deleted": deleted,
        "horizon": horizon or seen.properties.get(LATENESS_HORIZON),
    }
    status: JobStatus = "planned" if spec.dry_run else "committed"
    return JobResult(status, counts={"deleted": deleted}, tables=(found,))


# -- delete ---------------------------------------------------------------------------------------
def _expired(session: SparkSession, spec: ExpireSpec, seen: TableState, types: Mapping[str, DataType]) -> int:
    """Delete the rows that no consumer needs; return how many rows that is."""
    assert spec.below is not None
    gone = expired(session, spec, is_tracked=tracks_rows(seen.properties)).localCheckpoint()
    count = gone.count()
    if not count or spec.dry_run:
        return count
    gone.createOrReplaceTempView(_VIEW)
    columns = session.read.format("delta").load(spec.table_uri).columns
    told = ", ".join(f"t.{quote(name)}" for name in columns)
    options = ", ".join(f"{string(name)}, {string(value)}" for name, value in _JSON.items())
    same = f"sha2(to_json(struct({told}), map({options})), 256) = s.{quote(ROW)}"
    text = merge(
        target=spec.table_uri,
        source_view=_VIEW,
        on=[same, *_bounds(spec, types)],
        clauses=["WHEN MATCHED THEN DELETE"],
        evolve=False,
    )
    log.info("deleting %s kinds of rows below %s from %s", count, spec.below, spec.table_uri)
    try:
        with marked(session, maintenance_tags.written("expire", below=spec.below)):
            done = session.sql(text).collect()[0]
    finally:
        session.catalog.dropTempView(_VIEW)
    return int(done["num_deleted_rows"])


def _bounds(spec: ExpireSpec, types: Mapping[str, DataType]) -> list[str]:
    """Return conditions that skip files: every deleted row lies below the ``horizon`` of every consumer."""
    assert spec.below is not None
    found = []
    for reader in spec.readers:
        if isinstance(reader.options.sequence_by, str) and not reader.options.select:
            kind = types[reader.pipeline].simpleString()
            found.append(f"({reader.options.sequence_by}) < CAST({string(spec.below)} AS {kind})")
    return list(dict.fromkeys(found))


def expired(session: SparkSession, spec: ExpireSpec, *, is_tracked: bool) -> DataFrame:
    """Return the rows that no consumer needs, as :data:`ROW`.

    :param is_tracked: the log has row tracking: each row has the version that added it
    """
    from pyspark.sql import functions as F

    rows = _came_before(session, spec, is_tracked=is_tracked)
    told = None
    for number, reader in enumerate(spec.readers):
        more = _lots(rows, spec, reader).withColumn(_READER, F.lit(number))
        told = more if told is None else told.unionByName(more)
    assert told is not None
    lots = told.groupBy(ROW).agg(
        F.count_distinct(F.when(~F.col(_STAYS), F.col(_READER))).alias(_READER),
        F.max(_STAYS).alias(_STAYS),
    )
    return lots.where((F.col(_READER) == len(spec.readers)) & ~F.col(_STAYS)).select(ROW)


def _came_before(session: SparkSession, spec: ExpireSpec, *, is_tracked: bool) -> DataFrame:
    """Return the rows of the log that arrived before its ``horizon`` was set.

    A row that arrived later and lies below it is too late for every consumer, so it must not make an
    earlier event superfluous.
    """
    from pyspark.sql import functions as F

    reader, version = session.read.format("delta"), F.lit(None).cast("bigint")
    if not is_tracked:
        found = reader.option("versionAsOf", spec.since).load(spec.table_uri)
        return found.withColumn(reserved_columns.COMMIT_VERSION, version)
    found = reader.load(spec.table_uri)
    columns = [quote(name) for name in found.columns]
    came = F.col("_metadata.row_commit_version").alias(reserved_columns.COMMIT_VERSION)
    return found.select(*columns, came).where(F.col(reserved_columns.COMMIT_VERSION) <= spec.since)


def _lots(rows: DataFrame, spec: ExpireSpec, reader: Reader) -> DataFrame:
    """Return the rows that a consumer does not need, and those that it needs (``_STAYS``)."""
    from pyspark.sql import functions as F

    assert spec.below is not None
    every = _read(rows, replace(reader, options=replace(reader.options, where=None)), spec)
    assert every.shape.order_type is not None
    below = F.col(states.SEQUENCE) < from_text(spec.below, every.shape.order_type)
    is_event = F.coalesce(F.col(REASON) == LATE, F.lit(True))
    free = every.rows.where(below & is_event).select(_row(), F.lit(False).alias(_STAYS))
    counting = every if reader.options.where is None else _read(rows, reader, spec)
    found = counting.rows.where(below & F.col(REASON).isNull()).select(
        *[quote(key) for key in counting.shape.keys],
        states.SEQUENCE,
        KIND,
        AUTHORED,
        _text(F.struct(KIND, states.AFTER, AUTHORED)).alias(retained_events.SAID),
        _row(),
    )
    # Read the log's rows once; later steps use a few columns only.
    kept = retained_events.needed(found.localCheckpoint(), counting.shape, reader.options)
    return free.unionByName(kept.select(ROW, F.lit(True).alias(_STAYS)))


def _read(rows: DataFrame, reader: Reader, spec: ExpireSpec) -> Events:
    """Read rows as the consumer's events, each together with its whole row."""
    options = events.effective(reader.options)
    return events.of_rows(rows, options, spec.table_uri, reader.horizons, keep_raw=True)


def _row() -> Column:
    from pyspark.sql import functions as F

    return _text(F.col(RAW)).alias(ROW)


def _text(value: Column) -> Column:
    from pyspark.sql import functions as F

    return F.sha2(F.to_json(value, _JSON), 256)


# -- raise ----------------------------------------------------------------------------------------
def _order_types(logged: DataFrame, spec: ExpireSpec) -> dict[str, DataType]:
    """Return the type of each consumer's sequence."""
    from pyspark.sql import functions as F

    rows = logged.limit(0).withColumn(reserved_columns.COMMIT_VERSION, F.lit(None).cast("bigint"))
    found = {}
    for reader in spec.readers:
        order_type = _read(rows, reader, spec).shape.order_type
        assert order_type is not None
        found[reader.pipeline] = order_type
    return found


def _higher(
    session: SparkSession, spec: ExpireSpec, types: Mapping[str, DataType], now: str | None
) -> str | None:
    """Return the new ``horizon``; None if the log has it already, or a higher one.

    :raises InvalidConfiguration: it is no sequence of a consumer, or above the highest that it has applied
    """
    if spec.horizon is None or spec.horizon == now:
        return None
    for reader in spec.readers:
        order_type = types[reader.pipeline]
        values = _compared(session, spec.horizon, order_type, reader.highest_sequence)
        if values["asked"] is None:
            raise InvalidConfiguration(
                f"The horizon {spec.horizon!r} of {spec.table_uri} is no {order_type.simpleString()}, by "
                f"which pipeline {reader.pipeline} orders its events.",
                remedy="write it as Spark casts the sequence to a string.",
            )
        if values["higher"]:
            raise InvalidConfiguration(
                f"The horizon {spec.horizon!r} of {spec.table_uri} lies above {reader.highest_sequence}, the "
                f"highest sequence that pipeline {reader.pipeline} has applied.",
                remedy="choose one behind it, by as much as events may be late (keep does so); else what "
                "comes next would be late.",
            )
    return spec.horizon if _is_higher(session, spec.horizon, now, types) else None


def _is_higher(session: SparkSession, asked: str, now: str | None, types: Mapping[str, DataType]) -> bool:
    """Return whether a ``horizon`` lies above the log's own."""
    higher = any(_compared(session, asked, order_type, now)["higher"] for order_type in types.values())
    if not higher:
        log.info("the horizon is %s, which %s would lower: it stays", now, asked)
    return higher


def _compared(session: SparkSession, asked: str, order_type: DataType, other: str | None) -> dict[str, Any]:
    """Return a text as a sequence, and whether it lies above another (true if ``other`` is None)."""
    from pyspark.sql import functions as F

    wanted = _tried(asked, order_type)
    than = F.lit(None).cast(order_type) if other is None else _tried(other, order_type)
    row = session.range(1).select(
        as_text(wanted, order_type).alias("asked"), F.coalesce(wanted > than, F.lit(True)).alias("higher")
    )
    return dict(row.collect()[0].asDict())


def _tried(text: str, order_type: DataType) -> Column:
    """Return a text as a sequence; NULL if it is invalid."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if not isinstance(order_type, T.StructType):
        return F.lit(text).try_cast(order_type)
    try:
        parts = json.loads(text)
    except ValueError:
        parts = None
    if not isinstance(parts, list) or len(parts) != len(order_type.fields):
        return F.lit(None).cast(order_type)
    values = [
        F.lit(None if part is None else str(part)).try_cast(field.dataType).alias(field.name)
        for part, field in zip(parts, order_type.fields, strict=True)
    ]
    return F.when(balanced(and_, [value.isNotNull() for value in values]), F.struct(*values))


def _set(
    session: SparkSession, spec: ExpireSpec, types: Mapping[str, DataType], horizon: str | None
) -> str | None:
    """Set the new ``horizon``, and the one below which all is deleted.

    If another writer set a higher ``horizon`` meanwhile, set that one again.

    :return: the ``horizon`` that was set; None if it did not change
    """
    before = look(session, spec.table_uri)
    now, wanted = before.properties.get(LATENESS_HORIZON), {}
    if spec.below is not None and spec.below == now != before.properties.get(EXPIRED_BELOW):
        wanted[EXPIRED_BELOW] = spec.below
    if horizon is not None and _is_higher(session, horizon, now, types):
        wanted[LATENESS_HORIZON] = horizon
    if wanted:
        _alter(session, spec.table_uri, wanted)
        failpoints.reached("raised")
    if LATENESS_HORIZON not in wanted:
        return None
    for other in _set_since(session, spec.table_uri, before.version):
        if other != horizon and _is_higher(session, other, horizon, types):
            horizon = other
            _alter(session, spec.table_uri, {LATENESS_HORIZON: other})
    return horizon


def _alter(session: SparkSession, uri: str, properties: Mapping[str, str]) -> None:
    listed = ", ".join(f"{string(name)} = {string(value)}" for name, value in properties.items())
    session.sql(f"ALTER TABLE {table(uri)} SET TBLPROPERTIES ({listed})")
    log.info("%s: set %s", uri, listed)


def _set_since(session: SparkSession, uri: str, version: int) -> list[str]:
    """Return each ``horizon`` that a commit after a version set."""
    history = session.sql(f"DESCRIBE HISTORY {table(uri)}").where(f"version > {int(version)}")
    rows = history.where("operation = 'SET TBLPROPERTIES'").select("operationParameters").collect()
    said = [json.loads(row["operationParameters"].get("properties", "{}")) for row in rows]
    return [given[LATENESS_HORIZON] for given in said if LATENESS_HORIZON in given]
