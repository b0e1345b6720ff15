"""Read Debezium's change events in JSON: with envelope, or unwrapped (``ExtractNewRecordState``).

The order is the position in the database's log that the connector reports, never a clock
(:mod:`.debezium_order`). The schema in a message defines the encoding of values (:mod:`.debezium_types`).
Without such a schema, the option ``schema`` and the connector's own options define it; the adapter options
must repeat the connector's options.
"""

from __future__ import annotations

from operator import or_
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delta_cdc.core import change_log
from delta_cdc.spark.changes.equality import balanced, is_list_of
from delta_cdc.spark.ingest.adapters import debezium_order as order
from delta_cdc.spark.ingest.adapters import debezium_types as types
from delta_cdc.spark.ingest.adapters import goldengate, parsing, plain, values
from delta_cdc.spark.ingest.adapters.goldengate import AFTER, BEFORE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta_cdc.core.change_log import Context
    from delta_cdc.spark.ingest.adapters.values import Value

OPERATIONS = {
    "c": change_log.UPSERT,
    "r": change_log.UPSERT,
    "u": change_log.UPSERT,
    "d": change_log.DELETE,
    "t": change_log.TRUNCATE,
    "m": change_log.IGNORE,
}
_SCHEMA, _SCHEMA_ID = f"{parsing.ROW}_schema", f"{parsing.ROW}_schema_id"
_PAYLOAD = f"{parsing.ROW}_payload"
_PLACE, _LACKING = f"{parsing.ROW}_place", f"{parsing.ROW}_lacking"
#: The columns that expressions of ``sequence_by`` may use: the members of the envelope, all as text.
ENVELOPE = ("op", "source", "ts_ms", "ts_us", "ts_ns", "transaction")


def events(records: DataFrame, context: Context) -> DataFrame:
    """Return the events of a batch of messages.

    :raises InvalidConfiguration: an option is missing on which the encoding of values depends
    """
    options = context.options
    frame = parsing.started(records)
    # A topic dumped to a file has the text null for a tombstone. Its row is already NULL, as of a tombstone.
    is_tombstone = F.coalesce(F.trim(F.col(parsing.RAW)) == "null", F.lit(False))
    frame = frame.withColumn(parsing.UNREAD, F.when(~is_tombstone, F.col(parsing.UNREAD)))
    frame = _unpacked(frame, options)
    frame = (
        _of_images(frame, context, options) if not options["unwrapped"] else _of_flat(frame, context, options)
    )
    frame = _with_sequence(frame, options, context)
    columns, ways = types.columns_of(frame, context, options, _SCHEMA, _SCHEMA_ID)
    meta = _meta_names(columns, options)
    left_out = [*meta, *options["except_column_list"]]
    payload = parsing.payload_columns(columns, context, left_out)
    payload_values = {name: value for name, value in columns.items() if name in payload}
    frame = _without_placeholders(parsing.opened(frame, list(payload_values)), payload_values, options)
    frame = parsing.valued(frame, payload_values, context.keys, ways)
    op, error = _operation(options)
    return parsing.events(
        frame,
        payload,
        op=op,
        sequence=F.col(_PLACE),
        lacking=F.col(_LACKING),
        error=error,
        source_timestamp=_timestamp(),
        left_out=F.col(_UNAVAILABLE),
        no_payload=None if context.declared is not None else left_out,
    )


def _timestamp() -> Column:
    """Return the commit time of the change, from the finest clock that the event has (us, ns, ms)."""
    return F.coalesce(
        *[values.epoch_timestamp(order.source(f"ts_{unit}"), unit) for unit in ("us", "ns", "ms")]
    )


# -- from messages to rows ----------------------------------------------------------------------
def _unpacked(frame: DataFrame, options: dict[str, Any]) -> DataFrame:
    """Split messages into schema and payload. A message without schema is itself the payload."""
    raw, message = F.col(parsing.ROW), f"{parsing.ROW}_message"
    frame = frame.withColumn(message, parsing.json_object(raw, ["schema", "payload"]))
    keys = F.col(parsing.CARRIED)
    wrapped = is_list_of(keys, ("schema", "payload")) | is_list_of(keys, ("payload",))
    wrapped = F.coalesce(wrapped, F.lit(False))
    return frame.withColumns(
        {
            _SCHEMA: F.when(wrapped, F.col(message).getField("schema")),
            _SCHEMA_ID: F.when(wrapped, F.xxhash64(F.col(message).getField("schema"))),
            _PAYLOAD: F.when(wrapped, F.col(message).getField("payload")).otherwise(raw),
        }
    ).drop(message)


def _of_images(frame: DataFrame, context: Context, options: dict[str, Any]) -> DataFrame:
    """Return the row images from the envelope. A changed key yields two events."""
    envelope = f"{parsing.ROW}_envelope"
    frame = frame.withColumn(envelope, parsing.json_object(F.col(_PAYLOAD), ["before", "after", *ENVELOPE]))
    members = F.col(envelope)
    frame = frame.withColumns(
        {
            BEFORE: members.getField("before"),
            AFTER: members.getField("after"),
            **{order.member(name): members.getField(name) for name in ENVELOPE},
        }
    ).drop(envelope)
    frame = order.with_source(frame, F.col(order.member("source")))
    is_delete = F.col(order.member("op")) == "d"
    # A delete has the image of the old row. Without this image, use the key of the message.
    before = F.when(is_delete, F.coalesce(F.col(BEFORE), _key_payload())).otherwise(F.col(BEFORE))
    after = F.when(~F.coalesce(is_delete, F.lit(False)), F.col(AFTER))
    frame = frame.withColumns({BEFORE: before, AFTER: after})
    return goldengate.with_key_changes(frame, context.keys)


def _key_payload() -> Column:
    """Return the key of the message as an object, without its schema."""
    key = F.when(parsing.object_flaw(F.col(parsing.KEY)).isNull(), F.col(parsing.KEY))
    members = parsing.json_object(key, ["payload", "schema"])
    has_schema = members.getField("payload").isNotNull() & members.getField("schema").isNotNull()
    return F.when(has_schema, members.getField("payload")).otherwise(key)


def _of_flat(frame: DataFrame, context: Context, options: dict[str, Any]) -> DataFrame:
    """Read the fields that the connector's option ``add.fields`` added to the columns of the row."""
    prefix, fields = options["field_prefix"], f"{parsing.ROW}_fields"
    sources = {
        **{order.member(name): (f"{prefix}{name}",) for name in (*ENVELOPE, "deleted")},
        **{
            order.source_name(name): (f"{prefix}source_{name}", f"{prefix}{name}")
            for name in order.SOURCE_FIELDS
        },
    }
    names = list(dict.fromkeys(_flat_names(prefix)))
    frame = frame.withColumn(fields, parsing.json_object(F.col(_PAYLOAD), names))
    members = {
        column: F.coalesce(*[F.col(fields).getField(name) for name in candidates])
        for column, candidates in sources.items()
    }
    members[order.source_name("connector")] = F.coalesce(
        F.lit(options["connector"]), members[order.source_name("connector")]
    )
    frame = frame.withColumns(members).drop(fields)
    return parsing.with_row(frame.withColumn(parsing.INDEX, F.lit(1)), F.col(_PAYLOAD))


def _meta_names(columns: Mapping[str, Value], options: dict[str, Any]) -> list[str]:
    if not options["unwrapped"]:
        return []
    prefix = options["field_prefix"]
    prefixed = [name for name in columns if name.startswith(prefix)]
    return list(dict.fromkeys([*prefixed, *_flat_names(prefix)]))


def _flat_names(prefix: str) -> list[str]:
    """Return the names that ``add.fields`` may give to fields that order or describe an event."""
    names = [f"{prefix}{name}" for name in (*ENVELOPE, "deleted", *order.SOURCE_FIELDS)]
    return [*names, *[f"{prefix}source_{name}" for name in order.SOURCE_FIELDS]]


# -- unavailable values -------------------------------------------------------------------------
_UNAVAILABLE = f"{parsing.ROW}_unavailable"


def _without_placeholders(
    frame: DataFrame, columns: Mapping[str, Value], options: dict[str, Any]
) -> DataFrame:
    """Replace placeholders of unavailable values by NULL, and list their columns."""
    texts = F.col(parsing.TEXTS)
    placeholders = types.placeholders(options["unavailable_value_placeholder"])
    if not columns:
        return frame.withColumn(_UNAVAILABLE, F.array().cast("array<string>"))
    is_missing = {
        name: F.coalesce(texts.getField(name).isin(*placeholders), F.lit(False)) for name in columns
    }
    missing_names = F.array_compact(
        F.array(*[F.when(condition, F.lit(name)) for name, condition in is_missing.items()])
    )
    # Spark interprets array_compact, and few records have placeholders.
    has_missing = balanced(or_, list(is_missing.values()))
    missing_names = F.when(has_missing, missing_names).otherwise(F.array())
    blanked = F.struct(
        *[F.when(~condition, texts.getField(name)).alias(name) for name, condition in is_missing.items()]
    )
    frame = frame.withColumn(_UNAVAILABLE, missing_names.cast("array<string>"))
    return frame.withColumn(parsing.TEXTS, F.when(texts.isNotNull(), blanked))


# -- operation and order ------------------------------------------------------------------------
def _operation(options: dict[str, Any]) -> tuple[Column, Column]:
    code = F.col(order.member("op"))
    op, error = plain.operation(code, OPERATIONS, {})
    is_absent = code.isNull()
    if options["unwrapped"]:
        deleted = F.lower(F.col(order.member("deleted")))
        op = (
            F.when(deleted == "true", change_log.DELETE)
            .when(is_absent & (deleted == "false"), change_log.UPSERT)
            .otherwise(op)
        )
        is_absent = is_absent & deleted.isNull()
        prefix = options["field_prefix"]
        no_operation = f"no value for {prefix}op or {prefix}deleted, so deletes cannot be recognized"
    else:
        no_operation = "no value for op: no change event"
    error = F.when(is_absent, no_operation).when(op.isNull(), error)
    no_row = F.col(parsing.ROW).isNull() & op.isin(change_log.UPSERT, change_log.DELETE)
    error = F.coalesce(error, F.when(no_row, "no value for after, or of a delete for before or a key"))
    op = F.when(F.col(parsing.INDEX) == 0, change_log.DELETE).otherwise(op)
    if options["table"] is not None:
        op = F.when(~order.is_table(options["table"]), change_log.IGNORE).otherwise(op)
    # Ignore tombstones. They only let the broker remove a key at compaction.
    return F.when(F.col(_PAYLOAD).isNull(), change_log.IGNORE).otherwise(op), error


def _with_sequence(frame: DataFrame, options: dict[str, Any], context: Context) -> DataFrame:
    """Add the position of each event, and the error for an event whose position is unknown.

    The user's expressions can use only the envelope, not the row.
    """
    if options["sequence_by"] is None:
        place, lacking = order.place(
            options["connector"], F.col(order.member("op")), options["snapshot_reads"] == "in_order"
        )
        index = F.col(parsing.INDEX).cast("string")
        return frame.withColumns({_PLACE: parsing.joined([place, index]), _LACKING: lacking})
    source = F.struct(*[order.source(name).alias(name) for name in order.SOURCE_FIELDS])
    envelope = {name: F.col(order.member(name)) for name in ENVELOPE if name != "source"}
    with_envelope = frame.withColumns({**envelope, "source": source})
    place = plain.sequence_of(with_envelope, options, context)
    sequenced = with_envelope.withColumns({_PLACE: place, _LACKING: F.lit("no value for sequence_by")})
    return sequenced.drop(*ENVELOPE)
