"""Read files that AWS Database Migration Service writes to S3: CSV, Parquet and JSON.

``Op`` contains the operation of a change: ``I``, ``U`` or ``D``. A row of a full load has no ``Op`` (or
``I``, with ``includeOpForFullLoad``) and is in a file named ``LOAD…``. Such a row is an upsert that sorts
below every change.

If the task writes a change sequence (``change_sequence``), this is the order. Otherwise, the order is the
timestamp of the commit (``timestamp_column``, if the task writes it), then the name of the file, which is its
time, then the row in the file. The row matters because the changes of one transaction share a timestamp and
are in order in the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core import change_log
from delta_cdc.core.sql import quote
from delta_cdc.spark.ingest.adapters import parsing, plain, values

if TYPE_CHECKING:
    from delta_cdc.core.change_log import Context

OPERATIONS = {"i": change_log.UPSERT, "u": change_log.UPSERT, "d": change_log.DELETE}
#: The first part of the sequence of full loads, and of changes.
_LOADED, _CHANGED = "0", "1"
_LOAD_FILE = r"^LOAD[0-9A-Fa-f]+"
#: A change sequence has a time of 16 digits and a counter of 19 digits.
_CHANGE_DIGITS, _NAME_WIDTH, _ROW_DIGITS = 35, 32, 12


def events(records: DataFrame, context: Context) -> DataFrame:
    """Return the events of a batch of records."""
    options = context.options
    frame = parsing.started(records)
    parsed_types = parsing.record_types(frame)
    meta_columns = [options["operation_column"]]
    if options["change_sequence"]:
        meta_columns.append(options["change_sequence"])
    columns = parsing.layout(frame, context, meta_columns)
    stamp = options["timestamp_column"]
    if stamp is not None and not any(name.lower() == stamp.lower() for name in columns):
        columns[stamp] = values.plain_value(T.TimestampType())
    left_out = [*meta_columns, *options["except_column_list"]]
    payload = parsing.payload_columns(columns, context, left_out)
    frame = parsing.opened(parsing.started(records, list(columns)), list(columns))
    frame = parsing.valued(frame, columns, context.keys)
    operation_text = F.col(quote(meta_columns[0])).cast("string")
    if parsed_types is not None and not any(name.lower() == meta_columns[0].lower() for name in parsed_types):
        operation_text = F.lit(None).cast("string")
    is_load = _file_name().rlike(_LOAD_FILE)
    is_absent = operation_text.isNull() | (F.trim(operation_text) == "")
    op, error = plain.operation(operation_text, OPERATIONS, {})
    # A record without operation that is not from a full load is an invalid event.
    op = F.when(is_absent & is_load, change_log.UPSERT).otherwise(op)
    no_op = F.concat(F.lit("no value for "), F.lit(meta_columns[0]), F.lit(", and no file of a full load"))
    error = F.when(is_absent, F.when(~is_load, no_op)).otherwise(error)
    sequence, lacking = _sequence(options, is_load)
    timestamp = F.col(quote(stamp)).try_cast("timestamp") if stamp is not None else None
    return parsing.events(
        frame,
        payload,
        op=op,
        sequence=sequence,
        lacking=lacking,
        error=error,
        source_timestamp=timestamp,
        no_payload=None if context.declared is not None else left_out,
    )


def _file_name() -> Column:
    file = F.coalesce(F.col(parsing.POSITION).getField("file"), F.lit(""))
    return F.regexp_extract(file, r"([^/]*)$", 1)


def _sequence(options: dict[str, Any], is_load: Column) -> tuple[Column, str]:
    """Return the sequence, and the error for a record without one."""
    position = F.col(parsing.POSITION)
    if options["change_sequence"]:
        name = options["change_sequence"]
        number = values.digits(F.col(quote(name)).cast("string"), _CHANGE_DIGITS)
        # All rows of full loads have one sequence, below every change, because a full load has each key once.
        fixed_number = F.when(is_load, F.lit("0" * _CHANGE_DIGITS)).otherwise(number)
        phase = F.when(is_load, _LOADED).otherwise(_CHANGED)
        return parsing.joined([phase, fixed_number]), f"no value for {name}, or no whole number in it"
    name = F.regexp_extract(_file_name(), r"^([^.]*)", 1)
    fixed = F.when(F.length(name).between(1, _NAME_WIDTH), F.rpad(name, _NAME_WIDTH, "."))
    row = values.digits(position.getField("row").cast("string"), _ROW_DIGITS)
    parts = [F.when(is_load, _LOADED).otherwise(_CHANGED)]
    if options["timestamp_column"]:
        moment = F.col(quote(options["timestamp_column"])).try_cast("timestamp")
        moment_text = F.date_format(moment, "yyyy-MM-dd HH:mm:ss.SSSSSS")
        in_range = F.when(F.year(moment).between(0, 9999), moment_text)
        parts.append(F.when(is_load, F.lit("0000-00-00 00:00:00.000000")).otherwise(in_range))
    lacking = f"no value for {options['timestamp_column'] or 'the file'}, or no file to order by"
    return parsing.joined([*parts, fixed, row]), lacking
