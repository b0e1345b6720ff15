"""Read rows with an operation column: flat JSON, CSV or Parquet.

Without such a column, every record is an upsert. If the key of a record changed, separate columns
(``old_keys``) contain its old key. Such a record becomes two events: a delete of the old key and an upsert of
the new key.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core import change_log
from delta_cdc.core.adapters import ROW
from delta_cdc.core.errors import InvalidExpression
from delta_cdc.core.sql import quote
from delta_cdc.spark.changes import states
from delta_cdc.spark.ingest.adapters import parsing, values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.core.change_log import Context
    from delta_cdc.spark.ingest.adapters.values import Value

#: The operations of values that ``operations`` does not list. Values match without regard to case.
OPERATIONS = {
    "i": change_log.UPSERT,
    "insert": change_log.UPSERT,
    "u": change_log.UPSERT,
    "update": change_log.UPSERT,
    "upsert": change_log.UPSERT,
    "d": change_log.DELETE,
    "delete": change_log.DELETE,
}
#: An expression uses this name for the offset of a record, and :data:`ROW` for its row number in the file.
OFFSET = "_offset"
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*\Z")


def events(records: DataFrame, context: Context) -> DataFrame:
    """Return the events of a batch of records.

    :raises InvalidExpression: an expression does not resolve with the record's columns, or is not sortable
    :raises ColumnNotFound: the records lack a column
    """
    options = context.options
    frame = parsing.started(records)
    meta_columns = _meta_columns(options)
    columns = parsing.layout(frame, context, meta_columns)
    extra_columns = _named_columns(options, columns)
    columns |= {name: values.plain_value(T.StringType()) for name in extra_columns}
    left_out = [*meta_columns, *extra_columns, *options["except_column_list"]]
    payload = parsing.payload_columns(columns, context, left_out)
    frame = parsing.opened(parsing.started(records, list(columns)), list(columns))
    frame = parsing.valued(frame, columns, context.keys)
    position = F.col(parsing.POSITION)
    frame = frame.withColumns(
        {ROW: position.getField("row"), OFFSET: position.getField("offset")}
        if not {ROW, OFFSET} & {name.lower() for name in columns}
        else {}
    )
    op, error = _operation(frame, options)
    listed_names = _listed(frame, options)
    if listed_names is not None:
        error = F.coalesce(error, _unknown_name(listed_names, list(columns)))
    frame, op, sequence = _with_old_keys(frame, options, op, sequence_of(frame, options, context))
    null_text = F.lit(None).cast("string")
    timestamp = None
    if options["source_timestamp"] is not None:
        (timestamp,) = resolved(frame, "source_timestamp", (options["source_timestamp"],))
        timestamp = timestamp.try_cast("timestamp")
    return parsing.events(
        frame,
        payload,
        op=op,
        sequence=sequence,
        lacking=null_text if options["sequence_by"] is None else lacking(options),
        error=error,
        source_timestamp=timestamp,
        carried=listed_names,
        no_payload=None if context.declared is not None else left_out,
    )


def _meta_columns(options: dict[str, Any]) -> list[str]:
    """Return the columns that describe the event and are not part of its row."""
    names = [options["operation_column"], options["columns_to_update"], *(options["old_keys"] or {}).values()]
    return [name for name in names if name is not None]


def _named_columns(options: dict[str, Any], columns: Mapping[str, Value]) -> list[str]:
    """Return names in ``sequence_by`` and ``source_timestamp`` that are not columns, to read as text."""
    texts = [*(options["sequence_by"] or ()), options["source_timestamp"] or ""]
    existing_names = {name.lower() for name in (*columns, ROW, OFFSET)}
    return [text for text in dict.fromkeys(texts) if _NAME.match(text) and text.lower() not in existing_names]


# -- operation ----------------------------------------------------------------------------------
def _operation(frame: DataFrame, options: dict[str, Any]) -> tuple[Column, Column]:
    name = options["operation_column"]
    if name is None:
        return F.lit(change_log.UPSERT), F.lit(None).cast("string")
    return operation(F.col(quote(name)).cast("string"), OPERATIONS, options["operations"] or {})


def operation(value: Column, usual: dict[str, str], given: dict[str, str]) -> tuple[Column, Column]:
    """Return the operation of a value in an operation column, and the error for an unknown value.

    :param usual: the default operations by value in lower case; values match without regard to case
    :param given: the user's operations by value; they take precedence, and values match exactly
    """
    trimmed = F.trim(value)
    op = F.lit(None).cast("string")
    for texts, column in ((usual, F.lower(trimmed)), (given, trimmed)):
        for kind in dict.fromkeys(texts.values()):
            matching_texts = [text.strip() for text, meant in texts.items() if meant == kind]
            op = F.when(column.isin(matching_texts), kind).otherwise(op)
    shown_value = F.coalesce(F.substring(trimmed, 1, 40), F.lit(""))
    error = F.when(op.isNull(), F.concat(F.lit("unknown operation '"), shown_value, F.lit("'")))
    return op, error


# -- sequence -----------------------------------------------------------------------------------
def resolved(frame: DataFrame, option: str, texts: Sequence[str]) -> list[Column]:
    """Return the user's expressions as columns.

    :raises InvalidExpression: an expression does not resolve
    """
    states.resolve(frame, f"adapter_options {option}", texts)
    return [F.expr(text) for text in texts]


def sequence_of(frame: DataFrame, options: dict[str, Any], context: Context) -> Column:
    """Return the sequence of ``sequence_by``: one value, or parts of a fixed width as one text.

    A text column without a type in ``schema`` sorts by number: "1000" is above "999".

    :raises InvalidExpression: there are several parts, and one has no text of a fixed width
    """
    texts = options["sequence_by"]
    if texts is None:
        return F.lit(None).cast(context.sequence_type or "bigint")
    parts = resolved(frame, "sequence_by", texts)
    types = [field.dataType for field in frame.select(*parts).schema.fields]
    declared = {name.lower() for name in context.declared.names} if context.declared else set()
    # If the sequences of the log are such texts, whole numbers get the same format.
    as_texts = (T.StringType, T.IntegralType) if context.sequence_type == "string" else (T.StringType,)
    numbered = [
        isinstance(data_type, as_texts) and bool(_NAME.match(text)) and text.lower() not in declared
        for text, data_type in zip(texts, types, strict=True)
    ]
    parts = [
        values.numbers(column.cast("string")) if as_number else column
        for column, as_number in zip(parts, numbered, strict=True)
    ]
    types = [T.StringType() if as_number else kind for kind, as_number in zip(types, numbered, strict=True)]
    if len(parts) == 1 and not options.get("old_keys"):
        return in_type(parts[0], types[0], context)
    fixed_parts = []
    for text, column, data_type, as_number in zip(texts, parts, types, numbered, strict=True):
        fixed_part = column if as_number else values.part(column, data_type)
        if fixed_part is None:
            raise InvalidExpression(
                f"sequence_by has the part {text!r} of type {data_type.simpleString()}, which has no text of "
                "a fixed width; with several parts (or old_keys), each needs one.",
                remedy="use whole numbers, dates and timestamps as parts, or write one expression whose text "
                "order is the order, for instance with lpad.",
            )
        fixed_parts.append(fixed_part)
    return parsing.joined(fixed_parts)


def lacking(options: dict[str, Any]) -> str:
    """Return the error for a record without a sequence."""
    return f"no value for sequence_by, or a text that is no number ({', '.join(options['sequence_by'])})"


def in_type(sequence: Column, data_type: T.DataType, context: Context) -> Column:
    """Return a sequence with the sequence type of the log."""
    if context.sequence_type is None:
        return sequence
    log_type = T.DataType.fromDDL(context.sequence_type)
    if isinstance(log_type, T.StringType) and not isinstance(data_type, T.StringType):
        raise InvalidExpression(
            f"sequence_by is of type {data_type.simpleString()}, but the log's sequences are texts: the "
            "two cannot be compared.",
            remedy="give the column in schema the type that it had when the log was created (or no type), or "
            "start a new log.",
        )
    return values.converted(sequence, data_type, log_type)


# -- changed keys, listed columns --------------------------------------------------------------
def _with_old_keys(
    frame: DataFrame, options: dict[str, Any], op: Column, sequence: Column
) -> tuple[DataFrame, Column, Column]:
    """Split a record whose old key differs from its key into two events: a delete, then its own event."""
    old = options["old_keys"]
    if not old:
        return frame, op, sequence
    frame = frame.withColumns({f"{parsing.INDEX}op": op, f"{parsing.INDEX}sequence": sequence})
    pairs = []
    for key, column in old.items():
        key_type = parsing.type_of(frame, key)
        old_type = parsing.type_of(frame, column)
        pairs.append((key, values.converted(F.col(quote(column)), old_type, key_type)))
    # A NULL old key (for instance in an insert) does not mean that the key changed.
    key_differs = parsing.any_of([value.isNotNull() & (value != F.col(quote(key))) for key, value in pairs])
    is_change = (F.col(f"{parsing.INDEX}op") == change_log.UPSERT) & F.coalesce(key_differs, F.lit(False))
    frame = parsing.split_in_two(frame, is_change)
    is_old = F.col(parsing.INDEX) == 0
    frame = frame.withColumns(
        {
            key: F.when(is_old, F.coalesce(value, F.col(quote(key)))).otherwise(F.col(quote(key)))
            for key, value in pairs
        }
    )
    op = F.when(is_old, change_log.DELETE).otherwise(F.col(f"{parsing.INDEX}op"))
    sequence = parsing.joined([F.col(f"{parsing.INDEX}sequence"), F.col(parsing.INDEX).cast("string")])
    return frame, op, sequence


def _listed(frame: DataFrame, options: dict[str, Any]) -> Column | None:
    """Return the record's list of the columns that it carries, from an array or a text with commas."""
    name = options["columns_to_update"]
    if name is None:
        return None
    column = F.col(quote(name))
    if isinstance(parsing.type_of(frame, name), T.ArrayType):
        return column.cast("array<string>")
    # A JSON array is still text at this point. A damaged array becomes a single, unknown name.
    json_names = F.coalesce(values.texts(column), F.array(column))
    is_json = F.ltrim(column).startswith("[")
    split_names = F.transform(F.split(column, ","), lambda name: F.trim(name))
    return F.when(is_json, json_names).when(F.length(F.trim(column)) > 0, split_names)


def _unknown_name(listed_names: Column, columns: Sequence[str]) -> Column:
    """Return the error for a list that contains a name which neither the record nor the log has."""
    known_names = [F.lit(name.lower()) for name in columns]
    record_names = F.transform(F.col(parsing.CARRIED), lambda name: F.lower(name))

    def is_odd(name: Column) -> Column:
        is_known = F.lower(name).isin(*known_names) | F.array_contains(record_names, F.lower(name))
        return ~F.coalesce(is_known, F.lit(False))

    unknown_names = F.filter(listed_names, is_odd)
    first_name = F.coalesce(F.get(unknown_names, F.lit(0)), F.lit("null"))
    return F.when(
        F.size(unknown_names) > 0, F.concat(F.lit("columns_to_update names no column: "), first_name)
    )
