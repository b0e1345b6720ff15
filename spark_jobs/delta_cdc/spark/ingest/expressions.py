"""Order events by the user's SQL expressions, which Spark evaluates over the typed columns of a record."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core.adapters import OFFSET, ROW
from delta_cdc.core.change_log import POSITION, SEQUENCE, SOURCE_TIMESTAMP
from delta_cdc.core.errors import InvalidExpression
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.ingest.batch import OTHERS
from delta_cdc.spark.changes import states

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ROW, _INDEX = f"{PLAN_PREFIX}row", f"{PLAN_PREFIX}index"
#: The number of digits of 64 bits.
_WIDTH = 20


def evaluated(
    rows: DataFrame,
    adapter: Any,
    typed: Collection[str],
    log_type: T.DataType | None,
) -> DataFrame:
    """Return decoded rows with the sequence, and the timestamp, that expressions give.

    :param rows: from :class:`delta_cdc.spark.ingest.decoding.Decoding`
    :param adapter: has ``expressions`` (of ``sequence_by``), or a ``timestamp_expression``
    :param typed: the columns of the option ``schema``, in lower case
    :param log_type: the type of the log's sequence; None before its first batch
    :raises InvalidExpression: an expression does not resolve with the record's columns, or gives no order
    """
    position = F.col(POSITION)
    added = {ROW: position.getField("row"), OFFSET: position.getField("offset")}
    if OTHERS in rows.columns:
        fields = rows.schema[OTHERS].dataType
        assert isinstance(fields, T.StructType)
        added |= {field.name: F.col(OTHERS).getField(field.name) for field in fields.fields}
    # Only the members of the record have names in this frame: a row may lack what its record has.
    row = F.struct(*[F.col(quote(name)) for name in rows.columns if name not in (OTHERS, SEQUENCE)])
    frame = rows.select(
        row.alias(_ROW), F.col(SEQUENCE).alias(_INDEX), *[value.alias(name) for name, value in added.items()]
    )
    sequence, moment = F.col(_INDEX), F.col(_ROW).getField(SOURCE_TIMESTAMP)
    if adapter.expressions:
        sequence = _sequence(frame, adapter.expressions, typed, log_type, adapter.has_index)
    if adapter.timestamp_expression is not None:
        ((found, _),) = _resolved(frame, "source_timestamp", [adapter.timestamp_expression])
        moment = found.try_cast("timestamp")
    computed = {SEQUENCE: sequence, SOURCE_TIMESTAMP: moment}
    return frame.select(
        *[
            computed.get(name, F.col(_ROW).getField(name)).alias(name)
            for name in rows.columns
            if name != OTHERS
        ]
    )


def _resolved(frame: DataFrame, option: str, texts: Sequence[str]) -> list[tuple[Column, T.DataType]]:
    """Return the values of expressions, with their types. Where one raises for a row, its value is NULL."""
    states.resolve(frame, f"adapter_options {option}", texts)
    columns = [F.expr(text) for text in texts]
    kinds = [field.dataType for field in frame.select(*columns).schema.fields]
    return [
        (column if _NAME.fullmatch(text) else _tried(column, kind), kind)
        for text, column, kind in zip(texts, columns, kinds, strict=True)
    ]


def _tried(value: Column, kind: T.DataType) -> Column:
    """Return a value; NULL where it raises. One bad record must not stop its batch.

    Of Spark's functions that try, only this one also covers what its argument raises. So the value goes
    through it as bytes of its text, which gives back the same value for each type that has an order.
    """
    if isinstance(kind, T.TimestampType):
        # As a text of the session's zone, an hour that a clock change repeats would be ambiguous.
        return F.timestamp_micros(_tried(F.unix_micros(value), T.LongType()))
    if not isinstance(kind, T.StringType | T.NumericType | T.DateType | T.TimestampNTZType):
        return value
    return F.decode(F.try_to_binary(value.cast("string"), F.lit("utf-8")), "utf-8").cast(kind)


def _sequence(
    frame: DataFrame,
    texts: Sequence[str],
    typed: Collection[str],
    log_type: T.DataType | None,
    has_index: bool,
) -> Column:
    parts = _resolved(frame, "sequence_by", texts)
    # If the sequences of the log are such texts, whole numbers get the same format.
    as_texts = (T.StringType, T.IntegralType) if isinstance(log_type, T.StringType) else (T.StringType,)
    fixed = []
    for text, (column, kind) in zip(texts, parts, strict=True):
        if isinstance(kind, as_texts) and _NAME.fullmatch(text) and text.lower() not in typed:
            fixed.append(_numbers(column.cast("string")))
        elif len(parts) == 1 and not has_index:
            return _in_type(column, kind, log_type)
        else:
            fixed.append(_part(text, column, kind))
    all_parts = [*fixed, F.col(_INDEX)] if has_index else fixed
    if len(all_parts) == 1:
        return all_parts[0]
    return F.concat(*[each for part in all_parts for each in (F.lit("/"), part)][1:])


def _in_type(sequence: Column, kind: T.DataType, log_type: T.DataType | None) -> Column:
    if log_type is None or kind == log_type:
        return sequence
    if isinstance(log_type, T.StringType) and not isinstance(kind, T.StringType):
        raise InvalidExpression(
            f"sequence_by is of type {kind.simpleString()}, but the log's sequences are texts: the two "
            "cannot be compared.",
            remedy="give the column in schema the type that it had when the log was created (or no type), or "
            "start a new log.",
        )
    value = sequence.try_cast(log_type)
    return F.when(value.try_cast(kind).eqNullSafe(sequence), value)


def _numbers(text: Column) -> Column:
    """Return whole numbers as :func:`delta_cdc.ingest.ordering.numbers` does."""
    padded = F.transform(F.split(text, "[/:]"), lambda number: F.lpad(number, _WIDTH, "0"))
    fits = text.rlike(rf"^[0-9]{{1,{_WIDTH}}}([/:][0-9]{{1,{_WIDTH}}})*\z")
    return F.when(fits, F.array_join(padded, "/"))


def _part(text: str, value: Column, kind: T.DataType) -> Column:
    """Return a value as :func:`delta_cdc.ingest.ordering.part` does.

    :raises InvalidExpression: values of the type have no such text
    """
    if isinstance(kind, T.IntegralType) or (isinstance(kind, T.DecimalType) and not kind.scale):
        width = max(_WIDTH, kind.precision if isinstance(kind, T.DecimalType) else 0)
        nines = F.lit("9" * width).cast("decimal(38,0)")
        distance = F.try_add(nines, value.cast("decimal(38,0)")).cast("string")
        negative = F.concat(F.lit("-"), F.lpad(distance, width, "0"))
        return F.when(value < 0, negative).otherwise(F.lpad(value.cast("string"), width, "0"))
    in_range = F.year(value).between(0, 9999) if isinstance(kind, T.DatetimeType) else F.lit(True)
    if isinstance(kind, T.DateType):
        return F.when(in_range, F.date_format(value, "yyyy-MM-dd"))
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        return F.when(in_range, F.date_format(value, "yyyy-MM-dd HH:mm:ss.SSSSSS"))
    raise InvalidExpression(
        f"sequence_by has the part {text!r} of type {kind.simpleString()}, which has no text of "
        "a fixed width; with several parts (or old_keys), each needs one.",
        remedy="use whole numbers, dates and timestamps as parts, or write one expression whose text "
        "order is the order, for instance with lpad.",
    )
