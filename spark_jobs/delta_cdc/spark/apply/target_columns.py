"""The columns of a history that follow from its start and end: how rows get them, and how they are read back.

Inside the engine, a row of a history has a start and an end, and the end of an open row is NULL. The options
``end_value`` and ``current_column`` change how a target stores this. :func:`plain` undoes them where rows of
the target are read, and :func:`stored` and :func:`stored_end` apply them where rows are written. So nothing
else depends on them.

With ``delete_mode`` other than ``hard``, the column ``_deleted`` of a history is a value of the row
(:func:`delta_cdc.spark.apply.rows.flagged`), which a delete sets.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType

from delta_cdc.core import sql
from delta_cdc.core.errors import InvalidConfiguration, SequenceNotBelowEnd
from delta_cdc.core.reserved_columns import DELETED_COLUMN, TIMES
from delta_cdc.core.sql import quote
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import ddl
from delta_cdc.spark.changes.queries import raised

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delta_cdc.core.options import ApplyOptions

#: More digits of a second than a timestamp has.
_TOO_EXACT = re.compile(r"\.\d{7,}")
#: The beginning of a time that is not relative to today.
_DATE = re.compile(r"[+-]?\d{4,}-\d")


# -- rows of the target ----------------------------------------------------------------------------
def plain(rows: DataFrame, options: ApplyOptions) -> DataFrame:
    """Return rows of a target as the engine computes them: the end of an open row is NULL.

    :return: without the columns that :func:`stored` computes again
    """
    if options.stored_as_scd_type != 2:
        return rows
    if options.current_column is not None:
        rows = rows.drop(options.current_column)
    if options.end_value is not None:
        end = options.end_column
        rows = rows.withColumn(end, F.expr(f"nullif({quote(end)}, {_end(options, end_type(rows, options))})"))
    return rows


def end_type(rows: DataFrame, options: ApplyOptions) -> DataType | None:
    """Return the type of the end column of a target; None without ``end_value``, which alone needs it."""
    if options.end_value is None:
        return None
    types = {field.name.lower(): field.dataType for field in rows.schema.fields}
    return types[options.end_column.lower()]


def is_open(options: ApplyOptions, data_type: DataType | None, end: str) -> str:
    """Return the SQL condition that a row of a history is open.

    :param data_type: of the end column
    :param end: SQL of the stored value of the end column
    """
    if options.end_value is None:
        return f"{end} IS NULL"
    return f"({end} IS NULL OR {end} = {_end(options, data_type)})"


def gone(options: ApplyOptions, data_type: DataType | None) -> dict[str, Callable[[str], str]]:
    """Return which columns show that a row of a target is no current row; empty: every row is current.

    :param data_type: of the end column
    :return: column -> its test: takes the SQL of a stored value, returns the SQL of a condition. A row is
        gone if one of these is true
    """
    tests: dict[str, Callable[[str], str]] = {}
    if options.stored_as_scd_type == 2:
        tests[options.end_column] = lambda end: f"NOT ({is_open(options, data_type, end)})"
    if options.keeps_deleted:
        tests[DELETED_COLUMN] = lambda flag: f"coalesce({flag}, false)"
    return tests


def current(rows: DataFrame, options: ApplyOptions) -> DataFrame:
    """Return the current rows of a target: of a history the open ones; without deleted rows."""
    for name, test in gone(options, end_type(rows, options)).items():
        rows = rows.where(f"NOT ({test(quote(name))})")
    return rows


# -- rows to write ---------------------------------------------------------------------------------
def stored(options: ApplyOptions, data_type: DataType, start: str, end: str) -> dict[str, str]:
    """Return the start column of a history and the columns of :func:`stored_end`.

    :return: column -> SQL of its value
    """
    return {options.start_column: start, **stored_end(options, data_type, end)}


def stored_end(options: ApplyOptions, data_type: DataType | None, end: str) -> dict[str, str]:
    """Return the columns of a history that depend on the end of a row.

    :param data_type: of the sequence
    :param end: SQL of the end; NULL for an open row
    :return: column -> SQL of its value
    """
    value = end if options.end_value is None else f"coalesce({end}, {_end(options, data_type)})"
    columns = {options.end_column: value}
    if options.current_column is not None:
        columns[options.current_column] = f"({end} IS NULL)"
    return columns


def as_columns(values: Mapping[str, str]) -> list[Column]:
    """Return columns of their SQL."""
    return [F.expr(value).alias(name) for name, value in values.items()]


def types(
    options: ApplyOptions, sequence_type: DataType | None, time_type: DataType | None
) -> dict[str, DataType]:
    """Return the types of the columns that are no values of the rows, in their order in the target.

    :param sequence_type: of the start and end columns
    :param time_type: of the times of rows
    """
    kinds: dict[str, DataType] = {"row_hash_column": T.StringType()}
    if time_type is not None:
        kinds |= dict.fromkeys(TIMES, time_type)
    if sequence_type is None:
        kinds["delete_mode"] = T.BooleanType()
    else:
        kinds |= {
            **dict.fromkeys(("start_column", "end_column"), sequence_type),
            "current_column": T.BooleanType(),
        }
    return {name: kinds[option] for name, option in options.added_columns.items() if option in kinds}


def wrong(options: ApplyOptions, data_type: DataType | None) -> str:
    """Return the SQL condition that a stored row has other values than :func:`stored_end` gives.

    :param data_type: :func:`end_type`
    """
    end, tests = quote(options.end_column), []
    if options.end_value is not None:
        tests += [f"{end} IS NULL", f"{end} > {_end(options, data_type)}"]
    if options.current_column is not None:
        tests.append(f"NOT ({quote(options.current_column)} <=> ({is_open(options, data_type, end)}))")
    return " OR ".join(tests) or "false"


def corrected(options: ApplyOptions, data_type: DataType | None, uri: str) -> str:
    """Return the UPDATE of a target after which no row is :func:`wrong`, for a person.

    :param data_type: :func:`end_type`
    """
    end = quote(options.end_column)
    if options.end_value is not None:
        # Nothing is above the end of open rows, so such a row is one of these.
        end = f"CASE WHEN {end} < {_end(options, data_type)} THEN {end} END"
    values = stored_end(options, data_type, end)
    if options.end_value is None:
        del values[options.end_column]
    sets = ", ".join(f"{quote(name)} = {value}" for name, value in values.items())
    # Without a zone in its text, the value depends on that of the session, as in a job.
    where = "in a session with spark.sql.session.timeZone = UTC, "
    where = where if isinstance(data_type, T.TimestampType) else ""
    return f"{where}UPDATE {sql.table(uri)} SET {sets} WHERE {wrong(options, data_type)}"


# -- the end of open rows --------------------------------------------------------------------------
def bounded(rows: DataFrame, options: ApplyOptions) -> DataFrame:
    """Let Spark raise :class:`~delta_cdc.core.errors.SequenceNotBelowEnd` for a sequence at or above the end
    of open rows.

    :param rows: with :data:`~delta_cdc.spark.changes.states.SEQUENCE`
    :raises InvalidConfiguration: ``end_value`` is no value of the sequence's type
    """
    if options.end_value is None:
        return rows
    data_type = rows.schema[states.SEQUENCE].dataType
    _check_end(rows.sparkSession, options.end_value, data_type)
    return rows.withColumn(states.SEQUENCE, below_end(F.col(states.SEQUENCE), options, data_type))


def below_end(sequence: Column, options: ApplyOptions, data_type: DataType | None) -> Column:
    """Return a sequence; Spark raises an error if it is not below the end of open rows."""
    if options.end_value is None:
        return sequence
    parts: list[str | Column] = [
        "the sequence ",
        sequence.cast("string"),
        f" is not below the end_value {options.end_value}.",
    ]
    too_high = sequence >= F.expr(_end(options, data_type))
    return F.when(too_high, raised(SequenceNotBelowEnd, parts)).otherwise(sequence)


def _end(options: ApplyOptions, data_type: DataType | None) -> str:
    assert options.end_value is not None
    assert data_type is not None
    return f"CAST({sql.string(options.end_value)} AS {ddl(data_type)})"


def _check_end(session: SparkSession, text: str, data_type: DataType) -> None:
    is_one_value = not isinstance(data_type, T.StructType)
    value = None
    if is_one_value:
        cast = f"CAST(try_cast({sql.string(text)} AS {ddl(data_type)}) AS STRING)"
        value = session.sql(f"SELECT {cast} AS value").collect()[0]["value"]
    if value is None or not _is_exact(text.strip(), value, data_type):
        shown = "" if value is None else f" (the nearest one is {value})"
        raise InvalidConfiguration(
            f"end_value is {text!r}, which is no value of the type {data_type.simpleString()} of the sequence"
            f"{shown}.",
            remedy="give a value of this type above every sequence, such as 9999-12-31 for a date or a time.",
            argument="end_value",
        )


def _is_exact(text: str, value: str, data_type: DataType) -> bool:
    """Return whether a value is the one that a text means, and no rounded one."""
    if isinstance(data_type, T.NumericType):
        try:
            return Decimal(text) == Decimal(value)
        except InvalidOperation:
            return False
    if isinstance(data_type, T.TimestampType | T.TimestampNTZType):
        return _DATE.match(text) is not None and _TOO_EXACT.search(text) is None
    return text == value
