"""Delete events of a change log that are older than the allowed lateness, and raise that limit.

The ``horizon`` is the lowest sequence that the log's allowed lateness still admits. Targets stay correct.

1. **delete**: one MERGE deletes the events that arrived before the log got its current ``horizon``, whose
   sequence is below it, and that no consumer needs (:mod:`delta_cdc.spark.maintain.retained_events`). The
   maintenance tag of this commit shows readers of the log that the source retracted no event
2. **raise**: one ALTER sets the new ``horizon`` and records that the events below the old one are deleted

If a run crashes between the two steps, the next run has nothing to delete and only raises. The planner
ensures that every consumer has read all events that arrived before the ``horizon`` was set
(:mod:`delta_cdc.planning.expiry`).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from delta_cdc.core import codec, failpoints, maintenance_tags, reserved_columns, validation
from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.errors import ConcurrentModification, InvalidConfiguration
from delta_cdc.core.properties import EXPIRED_BELOW, LATENESS_HORIZON, tracks_rows
from delta_cdc.core.spec import JobResult
from delta_cdc.core.sql import PLAN_PREFIX, merge, quote, set_properties, string, table
from delta_cdc.spark.apply import events
from delta_cdc.spark.apply.events import AUTHORED, KIND, REASON
from delta_cdc.spark.apply.prepared_step import effective
from delta_cdc.spark.apply.refusals import LATE
from delta_cdc.spark.apply.rows import RAW
from delta_cdc.spark.apply.sequences import as_text, from_text
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import balanced
from delta_cdc.spark.maintain import retained_events
from delta_cdc.spark.maintain.optimize import marked
from delta_cdc.spark.sealed.commit import look

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.core.spec import ExpireSpec
    from delta_cdc.core.watermark import Seal
    from delta_cdc.spark.apply.events import Events

log = logging.getLogger(__name__)

#: A hash that identifies a row of the log. Exact duplicates share it, so they stay or are deleted together.
ROW = f"{PLAN_PREFIX}row"
_READER, _STAYS = f"{PLAN_PREFIX}reader", f"{PLAN_PREFIX}stays"
_VIEW = f"{PLAN_PREFIX}expired"
#: Formats that give different values different texts, as a hash needs.
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd G HH:mm:ss.SSSSSS",
    "timestampNTZFormat": "yyyy-MM-dd G HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd G",
}


def run(session: SparkSession, spec: ExpireSpec) -> JobResult:
    """Run the requested steps of an expiry.

    :return: counts ``deleted``; a dry run counts what it would delete
    :raises InvalidConfiguration: a consumer cannot read the new ``horizon`` as a sequence, or the ``horizon``
        is above the highest sequence that a consumer has applied
    :raises ConcurrentModification: the log was replaced after planning
    """
    table_state = look(session, spec.table_uri)
    if table_state.table_id != spec.table_id:
        raise ConcurrentModification(
            f"{spec.table_uri} is another table than at planning (its id is {table_state.table_id}).",
            remedy="run again, with a new plan.",
        )
    current = table_state.properties.get(LATENESS_HORIZON)
    log_rows = session.read.format("delta").load(spec.table_uri)
    types = _order_types(log_rows, spec)
    horizon = _raised_limit(session, spec, types, current)
    deleted = 0
    if spec.below is not None:
        rows = expired(
            session, spec, spec.below, is_tracked=tracks_rows(table_state.properties)
        ).localCheckpoint()
        deleted = rows.count()
        if deleted and not spec.dry_run:
            deleted = _delete(session, spec, spec.below, rows, types)
    failpoints.reached("expired")
    if not spec.dry_run:
        horizon = _set_limit(session, spec, types, horizon)
    outcome = {"deleted": deleted, "horizon": horizon or current}
    return JobResult(
        "planned" if spec.dry_run else "committed", counts={"deleted": deleted}, tables=(outcome,)
    )


# -- delete ---------------------------------------------------------------------------------------
def _delete(
    session: SparkSession, spec: ExpireSpec, below: str, rows: DataFrame, types: Sequence[DataType]
) -> int:
    """Delete the rows with these hashes (:data:`ROW`); return the number of deleted rows."""
    rows.createOrReplaceTempView(_VIEW)
    columns = session.read.format("delta").load(spec.table_uri).columns
    values = ", ".join(f"t.{quote(name)}" for name in columns)
    options = ", ".join(f"{string(name)}, {string(value)}" for name, value in _JSON.items())
    same_row = f"sha2(to_json(struct({values}), map({options})), 256) = s.{quote(ROW)}"
    statement = merge(
        target=spec.table_uri,
        source_view=_VIEW,
        on=[same_row, *_bounds(spec, below, types)],
        clauses=["WHEN MATCHED THEN DELETE"],
        evolve=False,
    )
    log.info("deleting rows below %s from %s", below, spec.table_uri)
    try:
        with marked(session, maintenance_tags.written("expire", below=below)):
            return int(session.sql(statement).collect()[0]["num_deleted_rows"])
    finally:
        session.catalog.dropTempView(_VIEW)


def _bounds(spec: ExpireSpec, below: str, types: Sequence[DataType]) -> list[str]:
    """Return conditions that skip files: the sequence of every deleted row is below the ``horizon``."""
    bounds = []
    for seal, order_type in zip(spec.readers, types, strict=True):
        options = validation.options_of(seal)
        if isinstance(options.sequence_by, str) and not options.select:
            bound = f"CAST({string(below)} AS {order_type.simpleString()})"
            bounds.append(f"({options.sequence_by}) < {bound}")
    return list(dict.fromkeys(bounds))


def expired(session: SparkSession, spec: ExpireSpec, below: str, *, is_tracked: bool) -> DataFrame:
    """Return the hashes (:data:`ROW`) of the rows that no consumer needs.

    :param is_tracked: the log has row tracking, so each row has the version that added it
    """
    rows = _rows_before(session, spec, is_tracked=is_tracked)
    all_readers = None
    for number, seal in enumerate(spec.readers):
        one_reader = _flagged_rows(rows, spec, below, seal).withColumn(_READER, F.lit(number))
        all_readers = one_reader if all_readers is None else all_readers.unionByName(one_reader)
    assert all_readers is not None
    per_row = all_readers.groupBy(ROW).agg(
        F.count_distinct(F.when(~F.col(_STAYS), F.col(_READER))).alias(_READER),
        F.max(_STAYS).alias(_STAYS),
    )
    return per_row.where((F.col(_READER) == len(spec.readers)) & ~F.col(_STAYS)).select(ROW)


def _rows_before(session: SparkSession, spec: ExpireSpec, *, is_tracked: bool) -> DataFrame:
    """Return the rows of the log that arrived before its ``horizon`` was set.

    A later row below the ``horizon`` is too late for every consumer, so it must not replace an earlier
    event.
    """
    assert spec.since is not None
    rows = session.read.format("delta").load(spec.table_uri)
    if not is_tracked:
        reader, version = session.read.format("delta"), F.lit(None).cast("bigint")
        before = reader.option("versionAsOf", spec.since).load(spec.table_uri)
        return _with_columns(before, rows.schema).withColumn(reserved_columns.COMMIT_VERSION, version)
    columns = [quote(name) for name in rows.columns]
    added_in_version = F.col("_metadata.row_commit_version").alias(reserved_columns.COMMIT_VERSION)
    return rows.select(*columns, added_in_version).where(F.col(reserved_columns.COMMIT_VERSION) <= spec.since)


def _with_columns(rows: DataFrame, schema: StructType) -> DataFrame:
    """Return rows of an older version as the newest version of their table shows them.

    A column of another type inside stays as it is: the hash of its row differs then, so the row stays.
    """
    there = {field.name.lower(): field for field in rows.schema.fields}
    columns = []
    for field in schema.fields:
        found = there.get(field.name.lower())
        value = F.lit(None) if found is None else F.col(quote(found.name))
        is_plain = found is None or not isinstance(found.dataType, (StructType, ArrayType, MapType))
        columns.append((value.cast(field.dataType) if is_plain else value).alias(field.name))
    return rows.select(*columns)


def _flagged_rows(rows: DataFrame, spec: ExpireSpec, below: str, seal: Seal) -> DataFrame:
    """Return the rows below the ``horizon``, with a flag if this consumer needs them (``_STAYS``)."""
    options = validation.options_of(seal)
    all_events = _read(rows, seal, replace(options, where=None), spec)
    assert all_events.shape.order_type is not None
    is_below = F.col(states.SEQUENCE) < from_text(below, all_events.shape.order_type)
    is_event = F.coalesce(F.col(REASON) == LATE, F.lit(True))
    unneeded = all_events.rows.where(is_below & is_event).select(_row(), F.lit(False).alias(_STAYS))
    filtered_events = all_events if options.where is None else _read(rows, seal, options, spec)
    reader_events = filtered_events.rows.where(is_below & F.col(REASON).isNull()).select(
        *filtered_events.shape.key_columns,
        states.SEQUENCE,
        KIND,
        AUTHORED,
        _text(F.struct(KIND, states.AFTER, AUTHORED)).alias(retained_events.CONTENT),
        _row(),
    )
    # The checkpoint reads the log once; later steps use few columns.
    needed_events = retained_events.needed(reader_events.localCheckpoint(), filtered_events.shape, options)
    return unneeded.unionByName(needed_events.select(ROW, F.lit(True).alias(_STAYS)))


def _read(rows: DataFrame, seal: Seal, options: ApplyOptions, spec: ExpireSpec) -> Events:
    """Read rows as the consumer's events, each together with its whole row."""
    options = effective(options)
    return events.of_rows(rows, options, spec.table_uri, seal.state.horizons, keep_raw=True)


def _row() -> Column:
    return _text(F.col(RAW)).alias(ROW)


def _text(value: Column) -> Column:
    return F.sha2(F.to_json(value, _JSON), 256)


# -- raise ----------------------------------------------------------------------------------------
def _order_types(log_rows: DataFrame, spec: ExpireSpec) -> list[DataType]:
    """Return the type of each consumer's sequence."""
    rows = log_rows.limit(0).withColumn(reserved_columns.COMMIT_VERSION, F.lit(None).cast("bigint"))
    shapes = [_read(rows, seal, validation.options_of(seal), spec).shape for seal in spec.readers]
    return [shape.order_type for shape in shapes if shape.order_type is not None]


def _raised_limit(
    session: SparkSession, spec: ExpireSpec, types: Sequence[DataType], current: str | None
) -> str | None:
    """Return the new ``horizon``; None if the log has this or a higher one.

    :raises InvalidConfiguration: a consumer cannot read it as a sequence, or has applied only lower sequences
    """
    if spec.horizon is None or spec.horizon == current:
        return None
    for seal, order_type in zip(spec.readers, types, strict=True):
        highest = seal.state.highest_sequence
        value, is_higher = _compared(session, spec.horizon, order_type, highest)
        if value is None:
            raise InvalidConfiguration(
                f"The horizon {spec.horizon!r} of {spec.table_uri} is no {order_type.simpleString()}, by "
                f"which pipeline {seal.pipeline} orders its events.",
                remedy="write it as Spark casts the sequence to a string.",
            )
        if is_higher:
            raise InvalidConfiguration(
                f"The horizon {spec.horizon!r} of {spec.table_uri} lies above {highest}, the "
                f"highest sequence that pipeline {seal.pipeline} has applied.",
                remedy="set horizon below this sequence, by as much as events may be late (keep does this). "
                "Otherwise the next events would be late.",
            )
    return spec.horizon if _is_higher(session, spec.horizon, current, types) else None


def _is_higher(session: SparkSession, horizon: str, current: str | None, types: Sequence[DataType]) -> bool:
    """Return whether a ``horizon`` is higher than the log's current one."""
    higher = any(_compared(session, horizon, order_type, current)[1] for order_type in types)
    if not higher:
        log.info("The horizon stays at %s, because %s is not higher", current, horizon)
    return higher


def _compared(session: SparkSession, text: str, order_type: DataType, other: str | None) -> tuple[Any, bool]:
    """Return a text as a sequence, and whether it is higher than ``other`` (true if ``other`` is None)."""
    value = _cast_text(text, order_type)
    bound = F.lit(None).cast(order_type) if other is None else _cast_text(other, order_type)
    row = session.range(1).select(as_text(value, order_type), F.coalesce(value > bound, F.lit(True)))
    sequence, is_higher = row.collect()[0]
    return sequence, is_higher


def _cast_text(text: str, order_type: DataType) -> Column:
    """Return a text as a sequence; NULL if it is invalid."""
    if not isinstance(order_type, StructType):
        return F.lit(text).try_cast(order_type)
    try:
        parts = codec.parsed(text)
    except ValueError:
        parts = None
    if not isinstance(parts, list) or len(parts) != len(order_type.fields):
        return F.lit(None).cast(order_type)
    values = [
        F.lit(None if part is None else str(part)).try_cast(field.dataType).alias(field.name)
        for part, field in zip(parts, order_type.fields, strict=True)
    ]
    return F.when(balanced(and_, [value.isNotNull() for value in values]), F.struct(*values))


def _set_limit(
    session: SparkSession, spec: ExpireSpec, types: Sequence[DataType], horizon: str | None
) -> str | None:
    """Set the new ``horizon``, and record the one below which all events are deleted.

    If another writer set a higher ``horizon`` at the same time, set the higher one again.

    :return: the ``horizon`` that was set; None if it did not change
    """
    table_state = look(session, spec.table_uri)
    current, new_properties = table_state.properties.get(LATENESS_HORIZON), {}
    if spec.below is not None and spec.below == current != table_state.properties.get(EXPIRED_BELOW):
        new_properties[EXPIRED_BELOW] = spec.below
    if horizon is not None and _is_higher(session, horizon, current, types):
        new_properties[LATENESS_HORIZON] = horizon
    if new_properties:
        _alter(session, spec.table_uri, new_properties)
        failpoints.reached("raised")
    if LATENESS_HORIZON not in new_properties:
        return None
    for other in _set_since(session, spec.table_uri, table_state.version):
        if other != horizon and _is_higher(session, other, horizon, types):
            horizon = other
            _alter(session, spec.table_uri, {LATENESS_HORIZON: other})
    return horizon


def _alter(session: SparkSession, uri: str, properties: Mapping[str, str]) -> None:
    session.sql(set_properties(uri, properties))
    log.info("%s: set %s", uri, properties)


def _set_since(session: SparkSession, uri: str, version: int) -> list[str]:
    """Return each ``horizon`` that a commit newer than the version set."""
    history = session.sql(f"DESCRIBE HISTORY {table(uri)}").where(f"version > {int(version)}")
    rows = history.where("operation = 'SET TBLPROPERTIES'").select("operationParameters").collect()
    changes = [_object(row["operationParameters"].get("properties", "{}")) for row in rows]
    return [change[LATENESS_HORIZON] for change in changes if LATENESS_HORIZON in change]


def _object(text: str) -> dict[str, Any]:
    """Return the JSON object of another writer's commit; an empty one for any other text."""
    try:
        data = codec.parsed(text)
    except UnreadableJson:
        return {}
    return data if isinstance(data, dict) else {}
