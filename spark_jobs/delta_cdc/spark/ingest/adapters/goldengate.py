"""Read Oracle GoldenGate's JSON, modelled by operation or by row, and its delimited text.

``op_type`` is the operation: ``I``, ``U``, ``D``, ``T`` (truncate) and ``K`` (an update of the key, which
needs the image of the old row). ``pos``, the position in the trail, is the order. An event does not carry a
column that is absent (updates may contain only keys and changed columns), or whose ``<column>_isMissing`` is
true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core import change_log
from delta_cdc.core.adapters import KEY_CHANGE
from delta_cdc.core.sql import quote
from delta_cdc.spark.ingest.adapters import parsing, plain, values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.core.change_log import Context
    from delta_cdc.spark.ingest.adapters.values import Value

OPERATIONS = {
    "i": change_log.UPSERT,
    "u": change_log.UPSERT,
    "d": change_log.DELETE,
    "t": change_log.TRUNCATE,
    "k": KEY_CHANGE,
}
#: Fields that describe the operation of a record. They are not columns of the table.
META = ("table", "op_type", "op_ts", "current_ts", "pos", "csn", "xid", "primary_keys", "tokens")
_MISSING = "_isMissing"
_POS_DIGITS = 24
#: The columns with the old and the new row of a record, as JSON text or NULL.
BEFORE, AFTER = f"{parsing.ROW}_before", f"{parsing.ROW}_after"
_META = f"{parsing.ROW}_meta"


def events(records: DataFrame, context: Context) -> DataFrame:
    """Return the events of a batch of records."""
    options = context.options
    frame = parsing.started(records)
    by_row = options["model"] == "row"
    if not by_row:
        frame = _of_operations(frame, context, options)
    meta_columns = _meta_columns(options) if by_row else []
    columns = parsing.layout(frame, context, meta_columns)
    flags = _flags(columns)
    left_out = [*meta_columns, *flags.values(), *options["except_column_list"]]
    payload = parsing.payload_columns(columns, context, left_out)
    columns = {**columns, **{flag: values.plain_value(T.BooleanType()) for flag in flags.values()}}
    frame = parsing.valued(parsing.opened(frame, list(columns)), columns, context.keys)
    if by_row:
        frame = frame.withColumns({_meta(name): F.col(quote(name)).cast("string") for name in meta_columns})
    op, error = plain.operation(F.col(_meta("op_type")), OPERATIONS, options["operations"] or {})
    op, error = _operation(options, op, error, by_row)
    sequence = parsing.joined(
        [
            values.digits(F.col(_meta(options["sequence_column"])), _POS_DIGITS),
            F.col(parsing.INDEX).cast("string") if not by_row else F.lit("1"),
        ]
    )
    lacking = f"no value for {options['sequence_column']}, or no whole number in it"
    missing = F.array(*[F.when(F.col(quote(flag)), F.lit(name)) for name, flag in flags.items()]).cast(
        "array<string>"
    )
    return parsing.events(
        frame,
        payload,
        op=op,
        sequence=sequence,
        lacking=lacking,
        error=error,
        source_timestamp=values.scalar(F.col(_meta("op_ts")), T.TimestampType()),
        left_out=missing if flags else None,
        no_payload=None if context.declared is not None else left_out,
    )


def _meta(name: str) -> str:
    return f"{_META}_{name}"


def _meta_columns(options: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys([*META, options["sequence_column"]]))


def _flags(columns: Mapping[str, Value]) -> dict[str, str]:
    """Return the flags for missing values by column name.

    Every column with the name of a flag is a flag, even if the flagged column has no value in the batch.
    """
    batch_flags = {
        name[: -len(_MISSING)]: name
        for name in columns
        if name.lower().endswith(_MISSING.lower()) and len(name) > len(_MISSING)
    }
    possible_flags = {name: name + _MISSING for name in columns if name not in batch_flags.values()}
    return {**possible_flags, **batch_flags}


def _operation(options: dict[str, Any], op: Column, error: Column, by_row: bool) -> tuple[Column, Column]:
    """Return the operation and the error of the events. One record may yield two events."""
    is_key_change = op == KEY_CHANGE
    no_image = F.lit(True) if by_row else F.col(BEFORE).isNull()
    unknown_old = "a key change without the image before it: its old key is unknown"
    error = F.when(is_key_change & no_image, unknown_old).otherwise(error)
    op = F.when(is_key_change, change_log.UPSERT).otherwise(op)
    if not by_row:
        op = F.when(F.col(parsing.INDEX) == 0, change_log.DELETE).otherwise(op)
        no_row = F.col(parsing.ROW).isNull() & op.isin(change_log.UPSERT, change_log.DELETE)
        error = F.coalesce(error, F.when(no_row, "no value for after, or of a delete for before"))
    if options["table"] is not None:
        is_other_table = ~F.lower(F.col(_meta("table"))).eqNullSafe(options["table"].lower())
        op = F.when(is_other_table, change_log.IGNORE).otherwise(op)
    return op, error


def _of_operations(frame: DataFrame, context: Context, options: dict[str, Any]) -> DataFrame:
    """Return the row images from the envelope. A key update first yields a delete of the old key."""
    names = [*_meta_columns(options), "before", "after"]
    envelope = f"{parsing.ROW}_envelope"
    frame = frame.withColumn(envelope, parsing.json_object(F.col(parsing.ROW), names))
    frame = frame.withColumns(
        {
            BEFORE: F.col(envelope).getField("before"),
            AFTER: F.col(envelope).getField("after"),
            **{_meta(name): F.col(envelope).getField(name) for name in _meta_columns(options)},
        }
    ).drop(envelope)
    return with_key_changes(frame, context.keys)


def with_key_changes(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return one row per image. If the key of a record changed, its old row comes first (index 0).

    :param frame: with :data:`BEFORE` and :data:`AFTER`
    """
    both = F.col(BEFORE).isNotNull() & F.col(AFTER).isNotNull()
    pairs = [(_member(BEFORE, key), _member(AFTER, key)) for key in keys]
    differs = parsing.any_of([a.isNotNull() & b.isNotNull() & (a != b) for a, b in pairs])
    changed = F.coalesce(F.when(both, differs), F.lit(False))
    frame = parsing.split_in_two(frame, changed)
    row = F.when(F.col(parsing.INDEX) == 0, F.col(BEFORE)).otherwise(F.coalesce(F.col(AFTER), F.col(BEFORE)))
    return parsing.with_row(frame, row)


def _member(image: str, key: str) -> Column:
    """Return the value of a key in an image. Names match without regard to case."""
    members = F.from_json(parsing.exact(F.col(image)), "map<string,string>", values.JSON_OPTIONS)
    matching = F.map_filter(members, lambda name, _: F.lower(name) == key.lower())
    return F.get(F.map_values(matching), F.lit(0))
