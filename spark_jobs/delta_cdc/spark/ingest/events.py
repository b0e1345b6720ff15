"""Turn records into events: check them, cast them to the log's types, and count them, in one pass."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core import left_out
from delta_cdc.core.adapters import DELETE, IGNORE, TRUNCATE, UPSERT
from delta_cdc.core.change_log import COLUMNS, LOG_COLUMNS, OP, POSITION, RAW, SEQUENCE, SOURCE_TIMESTAMP
from delta_cdc.core.errors import (
    InvalidConfiguration,
    InvalidRecord,
    TargetSchemaClash,
)
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.core.text_table import plural
from delta_cdc.ingest import batch
from delta_cdc.spark import column_needs, erased_keys
from delta_cdc.spark.apply.refusals import LATE
from delta_cdc.spark.apply.schema import lacking, widening
from delta_cdc.spark.apply.sequences import from_text
from delta_cdc.spark.ingest import redelivery
from delta_cdc.spark.ingest.widening import may_widen, wider
from delta_cdc.spark.sessions import checkpointed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.core.spec import IngestSpec
    from delta_cdc.spark.ingest.decoding import Decoding

log = logging.getLogger(__name__)

#: Why a row is an invalid event, and whether an earlier batch may contain the row.
_REASON, _AGAIN = f"{PLAN_PREFIX}reason", f"{PLAN_PREFIX}again"
_ERASED = f"{PLAN_PREFIX}erased"
_SAMPLES = 3
#: A scan of the log filters by file name if the batch has at most this many redelivered files.
_LISTED_FILES = 500


@dataclass(frozen=True)
class Known:
    """The schema of an existing change log.

    :param payload: the columns of the payload
    :param sequence: the type of the sequence
    """

    payload: T.StructType
    sequence: T.DataType


@dataclass(frozen=True)
class Batch:
    """A batch that was read and checked, but not yet written: events in the log's schema, and rejects.

    :param spec: the spec, with unreadable files marked
    :param have: the log's schema; None if the log does not exist
    :param events: columns of the payload, then :data:`~delta_cdc.core.change_log.LOG_COLUMNS`
    :param rejects: RAW, POSITION and ``reason`` of the records for quarantine; None if all records are valid
    :param settled: only for a replay: RAW and POSITION of the records that became events or are ignored
    :param alters: the statements that must alter the log first; the batch is read again after them
    """

    spec: IngestSpec
    have: Known | None
    events: DataFrame
    payload: T.StructType
    sequence: T.DataType
    counts: dict[str, int] = field(default_factory=dict)
    rejects: DataFrame | None = None
    settled: DataFrame | None = None
    alters: tuple[str, ...] = ()


def known(session: SparkSession, uri: str) -> Known:
    """Return the schema of a change log.

    :raises TargetSchemaClash: the table is not a change log
    """
    schema = session.read.format("delta").load(uri).schema
    missing = [name for name in LOG_COLUMNS if name not in schema.names]
    if missing:
        raise TargetSchemaClash(
            f"{uri} is not a change log: it has no column {', '.join(missing)}.",
            remedy="use a separate log for these records. The first batch creates it.",
        )
    payload = T.StructType([f for f in schema.fields if f.name not in LOG_COLUMNS])
    return Known(payload, schema[SEQUENCE].dataType)


def prepared(
    session: SparkSession, spec: IngestSpec, decoding: Decoding, have: Known | None, held: DataFrame | None
) -> Batch:
    """Return the checked batch of the records of a decoding.

    :param decoding: the records
    :param have: the log's schema; None if the log does not exist
    :param held: the rows of the log; needed if an earlier batch may contain records of this one
    :raises InvalidRecord: some records are invalid, and the options do not allow quarantine
    :raises ColumnNotFound: a key column is neither in a record nor in the log
    :raises TargetSchemaClash: a column's type differs from the log's
    """
    decoding.look()
    while True:
        rows, payload, sequence = _checked(spec, decoding, have)
        rows = _ignored_if_erased(session, spec, rows)
        # One job parses and counts the rows. Later steps read its checkpoint.
        rows = checkpointed(rows)
        counts, found = _counted_with_unknown(rows)
        layout = decoding.layout()
        decoding.learn(found)
        if decoding.layout() == layout:
            break
    if names := decoding.dropped():
        # For whoever calls the function in a session; a task warns by the counts.
        log.warning("%s: %s Remedy: %s", spec.source_uri, left_out.sentence(names), left_out.REMEDY)
        counts |= left_out.counts_of(names)
    problem = decoding.adapter.problem
    if problem is not None and not rows.where(F.col(_REASON) == problem.message).isEmpty():
        raise problem
    _refuse(spec, rows, counts)
    valid_rows = rows.where(F.col(_REASON).isNull())
    columns = [quote(name) for name in (*payload.names, *LOG_COLUMNS)]
    events = valid_rows.where(F.col(OP) != IGNORE).select(*columns, _AGAIN)
    if held is not None and (spec.step.kind == "replay" or redelivery.flagged(spec) is not None):
        events = _without_held(spec, events, held, payload.names)
        new_counts = _counted(events.withColumn(_REASON, F.lit(None).cast("string")))
        counts["repeated"] = counts["events"] - new_counts["events"]
        counts |= {name: new_counts[name] for name in ("events", "deletes", "truncates")}
    rejects = None
    if counts["quarantined"]:
        rejects = rows.where(F.col(_REASON).isNotNull()).select(RAW, POSITION, F.col(_REASON).alias("reason"))
    settled = valid_rows.select(RAW, POSITION) if spec.step.kind == "replay" else None
    alters: tuple[str, ...] = ()
    if have is not None:
        needs = column_needs.statements(session, spec.log_uri, [payload], have.payload)
        alters = (*needs, *_widening(spec, payload, have))
    return Batch(spec, have, events.drop(_AGAIN), payload, sequence, counts, rejects, settled, alters)


def _ignored_if_erased(session: SparkSession, spec: IngestSpec, rows: DataFrame) -> DataFrame:
    """Return rows in which the records of erased keys are ignored, whether they are valid events or not."""
    if not spec.erased.ledger:
        return rows
    ledger = erased_keys.read(session, spec.erased.ledger)
    if not {name.lower() for name in ledger.columns} <= {name.lower() for name in rows.columns}:
        # No record of the batch has a key.
        return rows
    flagged = ledger.flagged(rows, spec.log_uri, _ERASED)
    is_erased = F.col(_ERASED)
    operation = F.when(is_erased, F.lit(IGNORE)).otherwise(F.col(OP))
    return flagged.withColumns({OP: operation, _REASON: F.when(~is_erased, F.col(_REASON))})


def nothing(session: SparkSession, spec: IngestSpec, have: Known) -> Batch:
    """Return an empty batch, for a spec without readable records."""
    empty = session.read.format("delta").load(spec.log_uri).limit(0)
    return Batch(spec, have, empty, have.payload, have.sequence)


# -- what the adapter returned --------------------------------------------------------------------
def _checked(
    spec: IngestSpec, decoding: Decoding, log_schema: Known | None
) -> tuple[DataFrame, T.StructType, T.DataType]:
    """Return the rows with payload and log columns, the payload's schema, and the type of the sequence.

    Each row has the reason why it is invalid, and RAW if a later step needs it.
    """
    decoded, given, given_sequence = decoding.rows()
    payload_columns = _payload(spec, given, log_schema)
    sequence = _sequence_type(spec, given_sequence, log_schema)
    order = F.col(SEQUENCE).cast(sequence)
    unread = [_unread(field) for field in given.fields if isinstance(field.dataType, T.VariantType)]
    reason = F.coalesce(F.col(batch.REASON), *unread, *_reasons(spec, order, sequence))
    flag = redelivery.flagged(spec)
    rows = decoded.select(
        *[value.alias(f.name) for f, value in payload_columns],
        OP,
        order.alias(SEQUENCE),
        COLUMNS,
        SOURCE_TIMESTAMP,
        POSITION,
        reason.alias(_REASON),
        RAW,
        (F.lit(False) if flag is None else F.coalesce(flag, F.lit(False))).alias(_AGAIN),
        batch.UNKNOWN,
    )
    return rows, T.StructType([f for f, _ in payload_columns]), sequence


def _payload(
    spec: IngestSpec, given: T.StructType, log_schema: Known | None
) -> list[tuple[T.StructField, Column]]:
    """Return the columns of the payload, with the log's names and types, and their expressions."""
    fields_by_name = {f.name.lower(): f for f in given.fields}
    columns = []
    for known_field in log_schema.payload.fields if log_schema is not None else ():
        field = fields_by_name.pop(known_field.name.lower(), None)
        if field is not None:
            value = _value(field)
            kind = _cast_type(spec, known_field, field.dataType)
            value = value if kind is None else value.cast(kind)
            columns.append((T.StructField(known_field.name, kind or field.dataType), value))
    columns += [(T.StructField(f.name, f.dataType), _value(f)) for f in fields_by_name.values()]
    return columns


def _value(field: T.StructField) -> Column:
    """Return a column of the decoded rows; a variant comes as its text."""
    value = F.col(quote(field.name))
    return F.try_parse_json(value) if isinstance(field.dataType, T.VariantType) else value


def _unread(field: T.StructField) -> Column:
    """Return the reason for a text that Spark does not take as a variant, such as one that is too large."""
    text = F.col(quote(field.name))
    is_lost = text.isNotNull() & F.try_parse_json(text).isNull()
    return F.when((F.col(OP) == UPSERT) & is_lost, f"column {field.name} is no variant")


def _cast_type(spec: IngestSpec, known_field: T.StructField, batch_type: T.DataType) -> T.DataType | None:
    """Return the type to cast a column to, which is the log's; None if the column needs no cast.

    A nested column with new fields needs no cast, because the commit adds these fields to the log.
    """
    if batch_type == known_field.dataType:
        return None
    common_type = wider(known_field.dataType, batch_type)
    if common_type == known_field.dataType and not isinstance(
        batch_type, T.StructType | T.ArrayType | T.MapType
    ):
        return known_field.dataType
    if common_type is None or not isinstance(batch_type, T.StructType | T.ArrayType | T.MapType):
        if common_type is not None and may_widen(
            spec.options, known_field.name, known_field.dataType, common_type
        ):
            return common_type
        raise TargetSchemaClash(
            f"The column {known_field.name} is {known_field.dataType.simpleString()} in {spec.log_uri}, and "
            f"{batch_type.simpleString()} in the batch.",
            remedy="set the log's type in schema, so that only records whose values do not fit are invalid. "
            "Or ingest the records into another log. Or, if Delta can widen the log's type, set "
            "schema_evolution in policies to 'widen' (a key keeps its type).",
        )
    return None


def _widening(spec: IngestSpec, payload: T.StructType, log_schema: Known) -> tuple[str, ...]:
    """Return the statements by which the log's columns take the types of a batch."""
    fields = {field.name: field for field in payload.fields}
    parts: dict[tuple[str, ...], T.DataType] = {}
    for known_field in log_schema.payload.fields:
        field = fields.get(known_field.name)
        if field is not None and may_widen(
            spec.options, known_field.name, known_field.dataType, field.dataType
        ):
            lacking(known_field.dataType, field.dataType, (known_field.name,), parts)
    return widening(spec.log_uri, parts)


def _sequence_type(spec: IngestSpec, batch_type: T.DataType, log_schema: Known | None) -> T.DataType:
    if isinstance(batch_type, T.NullType):
        return log_schema.sequence if log_schema is not None else T.StringType()
    unordered = (T.StructType, T.ArrayType, T.MapType, T.VariantType, T.BooleanType, T.BinaryType)
    if isinstance(batch_type, unordered):
        raise InvalidConfiguration(
            f"The sequence that the adapter {spec.options.adapter} returns is {batch_type.simpleString()}.",
            remedy="give one value with an order: a number, a time, or text of a fixed width.",
        )
    if log_schema is None:
        return batch_type
    if wider(log_schema.sequence, batch_type) != log_schema.sequence:
        raise TargetSchemaClash(
            f"The sequence is {log_schema.sequence.simpleString()} in {spec.log_uri}, and "
            f"{batch_type.simpleString()} in the batch.",
            remedy="keep to one sequence for one log, or begin a new log.",
        )
    return log_schema.sequence


# -- which rows are events ------------------------------------------------------------------------
def _reasons(spec: IngestSpec, order: Column, sequence: T.DataType) -> list[Column]:
    """Return further reasons why a row is invalid, the most important first; each may be NULL."""
    operation = F.col(OP)
    if spec.options.insert_only:
        is_forbidden = operation.isin(DELETE, TRUNCATE)
        return [F.when(is_forbidden, F.concat(operation, F.lit(" of a source that is insert_only")))]
    is_event = operation != IGNORE
    reasons = [F.when(is_event & order.isNull(), "null sequence")]
    if spec.horizon is not None:
        reasons.append(F.when(is_event & (order < from_text(spec.horizon, sequence)), LATE))
    return reasons


def _counted_with_unknown(rows: DataFrame) -> tuple[dict[str, int], list[str]]:
    """Return the counts, and what the records showed of unknown columns."""
    more = [F.collect_list(batch.UNKNOWN).alias(batch.UNKNOWN)]
    if _ERASED in rows.columns:
        more.append(F.count_if(_ERASED).alias("erased"))
    totals = rows.agg(*_totals(), *more).collect()[0].asDict()
    found = totals.pop(batch.UNKNOWN)
    totals["ignored"] -= totals.get("erased", 0)
    return totals, found


def _counted(rows: DataFrame) -> dict[str, int]:
    return dict(rows.agg(*_totals()).collect()[0].asDict())


def _totals() -> list[Column]:
    is_valid, operation = F.col(_REASON).isNull(), F.col(OP)
    return [
        F.count_if(is_valid & (operation != IGNORE)).alias("events"),
        F.count_if(is_valid & (operation == DELETE)).alias("deletes"),
        F.count_if(is_valid & (operation == TRUNCATE)).alias("truncates"),
        F.count_if(is_valid & (operation == IGNORE)).alias("ignored"),
        F.count_if(~is_valid).alias("quarantined"),
        F.count_if(F.col(_REASON) == LATE).alias("late"),
    ]


def _refuse(spec: IngestSpec, rows: DataFrame, counts: Mapping[str, int]) -> None:
    """Refuse invalid records if the options do not allow quarantine. Late records are not an error."""
    invalid_count = counts["quarantined"] - counts["late"]
    if not invalid_count or spec.options.on_invalid == "quarantine":
        return
    invalid_rows = rows.where(F.col(_REASON).isNotNull() & (F.col(_REASON) != LATE))
    reasons = _most_frequent(invalid_rows, _REASON)
    samples = invalid_rows.select(F.to_json(POSITION).alias("at"), F.substring(RAW, 1, 200).alias("raw"))
    reasons_text = _listed(reasons, invalid_count)
    samples_text = "; ".join(f"{row['at']}: {row['raw']}" for row in samples.limit(_SAMPLES).collect())
    verb = "is no valid event" if invalid_count == 1 else "are not valid events"
    raise InvalidRecord(
        f"{plural(invalid_count, 'record')} of {spec.source_uri} {verb} ({reasons_text}), "
        f"for instance {samples_text}.",
        remedy="correct them in their source, correct the adapter's options, or let such records go to "
        "quarantine (on_invalid in policies).",
    )


def _most_frequent(rows: DataFrame, reason: str) -> list[tuple[str, int]]:
    """Return the most frequent reasons, with their counts."""
    found = rows.groupBy(reason).count().orderBy(F.desc("count"), reason).limit(_SAMPLES).collect()
    return [(row[0], row[1]) for row in found]


def samples(rejects: DataFrame | None) -> tuple[list[tuple[str, int]], list[str]]:
    """Return the most frequent reasons of rejects with their counts, and the texts of some records."""
    if rejects is None:
        return [], []
    raws = rejects.where(F.col(RAW).isNotNull()).select(RAW).limit(_SAMPLES).collect()
    return _most_frequent(rejects, "reason"), [row[0] for row in raws]


def _listed(reasons: Sequence[tuple[str, int]], total: int) -> str:
    """Return reasons with their counts as a text, and how many records have none of them.

    :param total: the number of all records
    """
    texts = [f"{plural(count, 'time')} {reason}" for reason, count in reasons]
    others = total - sum(count for _, count in reasons)
    return ", ".join(texts) + (f", and {plural(others, 'other')}" if others else "")


# -- redelivered events ---------------------------------------------------------------------------
def _without_held(
    spec: IngestSpec, events: DataFrame, log_rows: DataFrame, payload: Sequence[str]
) -> DataFrame:
    """Remove the events that the log already has.

    :param payload: all columns of the batch
    """
    replayed = spec.step.kind == "replay"
    may_repeat = F.lit(True) if replayed else F.col(_AGAIN)
    possible_repeats, new_events = events.where(may_repeat), events.where(~may_repeat)
    if spec.offsets and not replayed:
        not_held = redelivery.without(possible_repeats, log_rows)
    else:
        types = redelivery.compared(events.drop(_AGAIN), log_rows)
        files = [file.uri for file in spec.files if file.again]
        if not replayed and len(files) <= _LISTED_FILES:
            log_rows = log_rows.where(F.col(f"{POSITION}.file").isin(files))
        # By the file alone: a replayed record may have come again since, in another row.
        place = redelivery.place(exact=False)
        not_held = redelivery.beyond(
            possible_repeats,
            log_rows,
            F.struct(place.alias("place"), redelivery.identity(possible_repeats, types).alias("event")),
            F.struct(place.alias("place"), redelivery.identity(log_rows, types).alias("event")),
            # A row without key has no order: nothing would make it one with its earlier delivery.
            () if spec.options.insert_only else payload,
        )
    # Compare only once, because the log may have more rows at the commit.
    return new_events.unionByName(not_held.localCheckpoint())
