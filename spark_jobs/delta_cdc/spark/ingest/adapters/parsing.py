"""Parse records into typed columns, and build events from these. All adapters share these helpers.

- :func:`layout` takes the types of the columns from the user, the log, or the values of the batch. If records
  contain schemas, the adapter reads these itself.
- :func:`opened` splits a record into texts, one per column.
- :func:`valued` converts each text to a value, or reports a value that does not fit.
- :func:`events` builds the events.

No Python runs on rows. The columns of a record keep their names in the frames. Internal columns have the
prefix :data:`~delta_cdc.core.sql.PLAN_PREFIX`, so that the user's expressions find only the record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core import change_log
from delta_cdc.core.errors import ColumnNotFound, ReservedColumnName
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark.changes.equality import balanced, is_list_of
from delta_cdc.spark.ingest.adapters import values
from delta_cdc.spark.ingest.adapters.values import JSON_OPTIONS, Value
from delta_cdc.spark.ingest.widening import fraction

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from delta_cdc.core.change_log import Context

#: The JSON object with the columns of the row, as text: the record, or a part of the record.
ROW = f"{PLAN_PREFIX}row"
#: The index of an event among the events of one record.
INDEX = f"{PLAN_PREFIX}index"
#: Why a record is unreadable.
UNREAD = f"{PLAN_PREFIX}unread"
#: The error for a value that does not fit its type: of all columns, and of the key columns only.
MISFIT, KEY_MISFIT = f"{PLAN_PREFIX}misfit", f"{PLAN_PREFIX}key_misfit"
#: The names of the columns that a record has.
CARRIED = f"{PLAN_PREFIX}carried"
#: Whether these names are exactly the columns of the batch, as in nearly all records.
COMPLETE = f"{PLAN_PREFIX}complete"
TEXTS = f"{PLAN_PREFIX}texts"
RAW, POSITION = f"{PLAN_PREFIX}raw", f"{PLAN_PREFIX}position"
RECORD, _PRESENT = f"{PLAN_PREFIX}record", f"{PLAN_PREFIX}present"
KEY, PUBLISHED = f"{PLAN_PREFIX}key", f"{PLAN_PREFIX}published"
#: The internal names of the columns of a frame of records.
_OWN = {
    change_log.RAW: RAW,
    change_log.POSITION: POSITION,
    change_log.RECORD: RECORD,
    change_log.PRESENT: _PRESENT,
    change_log.KEY: KEY,
    change_log.PUBLISHED: PUBLISHED,
    change_log.UNDECODED: UNREAD,
}
NOT_JSON = "not JSON: not exactly one whole object"
#: The reason for a record that only a lenient reader accepts.
NOT_STRICT = "not strict JSON: a name twice in an object, single quotes, or a control character in a text"
HALF_CHARACTER = "a text has only half of a surrogate pair (\\ud800 to \\udfff)"
#: Braces around a text without braces and escapes, and without what Spark's readers accept although it is not
#: JSON: single quotes and control characters.
_FLAT = r"^\{[^{}\\'\x00-\x1f]*+\}\z"
#: Two escapes that together are one character. Any other escape of this range is half of a character.
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = r"\\u[dD][89a-fA-F]"
#: Matches in each number that JSON readers would read as double and that has too many digits for a double.
#: It begins with the point, because Java looks for one character faster than for eight digits.
_LONG_NUMBER = r"\.(?:[0-9]{8}|(?<=[0-9]{8}\.))"
#: Matches, from the end of the last match, text without numbers (including whole quoted strings), then a
#: number. The loops are possessive, because Java uses a stack frame for each step that it may have to undo.
_UP_TO_NUMBER = r'\G((?:[^"0-9-]++|"(?:[^"\\]++|\\.)*+")*+)(-?[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)'


def started(records: DataFrame, columns: Sequence[str] = ()) -> DataFrame:
    """Rename the columns of a frame of records, because columns of the record may have the same names.

    If a JSON record is not exactly one object, its error is set here. Its :data:`ROW` is NULL, as for a blank
    record.

    :param columns: the columns of the batch; a record that :func:`is_usual` needs no further check
    """
    frame = records.withColumnsRenamed({name: own for name, own in _OWN.items() if name in records.columns})
    if RECORD in frame.columns:
        return frame
    frame = frame.withColumn(CARRIED, F.json_object_keys(RAW))
    usual = is_usual(F.col(RAW), F.col(CARRIED), columns)
    flaw = F.when(~usual & ~is_blank(frame), object_flaw(F.col(RAW)))
    frame = frame.withColumn(UNREAD, F.coalesce(F.col(UNREAD), flaw))
    return frame.withColumn(ROW, F.when(F.col(UNREAD).isNull() & ~is_blank(frame), F.col(RAW)))


def with_row(frame: DataFrame, row: Column) -> DataFrame:
    """Set :data:`ROW` to a part of the record, and :data:`CARRIED` to the names of its members."""
    return frame.withColumn(ROW, row).withColumn(CARRIED, F.json_object_keys(ROW))


def is_usual(text: Column, names: Column, columns: Sequence[str]) -> Column:
    """Return whether a text is a JSON object with exactly some columns, by a cheap check; never NULL.

    The reader of the names has found no error up to the closing brace, and nothing can follow this brace. The
    check is false for objects with an object inside, with an escape, or with a single quote.

    :param names: ``json_object_keys`` of the text
    """
    return F.coalesce(text.rlike(_FLAT) & is_list_of(names, columns), F.lit(False))


def is_blank(frame: DataFrame) -> Column:
    """Return whether a JSON record is blank (a tombstone or a line of spaces); false for CSV and Parquet."""
    if RECORD in frame.columns:
        return F.lit(False)
    return F.col(RAW).isNull() | (F.trim(F.col(RAW)) == "")


def object_flaw(text: Column) -> Column:
    """Return why a text is not exactly one JSON object; NULL if it is one."""
    is_object = text.startswith("{") | text.rlike(r"^[ \t\r\n]*\{")
    # An escaped backslash does not begin an escape.
    unpaired = F.regexp_replace(F.replace(text, F.lit("\\\\"), F.lit(" ")), _PAIR, " ")
    lenient = F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))) == 1
    members = F.json_object_keys(F.concat(F.lit('{"v":'), text, F.lit("}")))
    return (
        F.when(text.contains("\\u") & text.rlike(_HALF) & unpaired.rlike(_HALF), HALF_CHARACTER)
        .when(is_object & values.is_json_value(text), None)
        .when(is_object & lenient & (F.size(members) == 1), NOT_STRICT)
        .otherwise(NOT_JSON)
    )


def exact(text: Column) -> Column:
    """Return JSON with long numbers as strings, because Spark's reader would read them as double."""
    return F.when(text.rlike(_LONG_NUMBER), F.regexp_replace(text, _UP_TO_NUMBER, '$1"$2"')).otherwise(text)


def json_object(text: Column, names: Sequence[str]) -> Column:
    """Return the members of a JSON object as a struct of texts; NULL for any other value.

    :param text: one JSON value, such as :data:`ROW` or a part of it
    """
    members = T.StructType([T.StructField(name, T.StringType()) for name in names])
    # Inside an outer object, a value that is not an object becomes NULL instead of a row of NULLs.
    inside = F.concat(F.lit('{"v":'), exact(text), F.lit("}"))
    return F.from_json(inside, T.StructType().add("v", members), JSON_OPTIONS).getField("v")


# -- which columns, of which types --------------------------------------------------------------
def layout(frame: DataFrame, context: Context, own: Iterable[str] = ()) -> dict[str, Value]:
    """Return the columns of the records, each with its encoding.

    The option ``schema`` defines the types. Without it, columns of the log have the log's types. For other
    columns, one pass infers the types from the values of the batch: booleans, whole numbers (``bigint``, or
    ``decimal(38,0)`` for larger numbers), fractions (``double`` up to 15 digits, else ``decimal(38,18)``),
    texts, and objects and arrays of these types. The result omits a column without any value, because it has
    no type yet.

    :param frame: has :data:`ROW`, or has records of CSV or Parquet from :func:`started`
    :param own: columns that describe the record and are not payload; text, unless ``schema`` has them
    """
    parsed_types = record_types(frame)
    misspelt: dict[str, tuple[str, ...]] = {}
    if context.declared is not None:
        column_types = {field.name: field.dataType for field in context.declared.fields}
    else:
        column_types = {field.name: field.dataType for field in context.known.fields} if context.known else {}
        flat = [name for name, kind in column_types.items() if not _is_nested(kind)]
        batch_types = (
            shown_types(frame, [*flat, *own], context.keys) if parsed_types is None else parsed_types
        )
        log_names = {name.lower(): name for name in column_types}
        for name, kind in batch_types.items():
            # Objects may get more members. Other columns of the log keep their types.
            log_name = log_names.get(name.lower(), name)
            if log_name in column_types:
                misspelt[log_name] = tuple(values.spelt_otherwise(column_types[log_name], kind))
                kind = values.merged(column_types[log_name], kind)
            column_types[log_name] = kind
    column_types |= {name: T.StringType() for name in own if not _has(column_types, name)}
    return {
        name: replace(
            values.plain_value(data_type), misspelt=misspelt.get(name, ()) if parsed_types is None else ()
        )
        for name, data_type in column_types.items()
    }


def _is_nested(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return _is_nested(kind.elementType)
    return isinstance(kind, T.StructType)


def _has(names: Iterable[str], name: str) -> bool:
    return name.lower() in {existing.lower() for existing in names}


def record_types(frame: DataFrame) -> dict[str, T.DataType] | None:
    """Return the column types of records that the reader parsed (CSV, Parquet); None for JSON."""
    if RECORD not in frame.columns:
        return None
    record = frame.schema[RECORD].dataType
    assert isinstance(record, T.StructType)
    return {field.name: field.dataType for field in record.fields}


def shown_types(frame: DataFrame, known: Iterable[str], spelt: Sequence[str]) -> dict[str, T.DataType]:
    """Return the types of the members of :data:`ROW` in a batch, except known members. One pass infers them.

    The pass parses only rows with other members: after the first batch of a change log, usually none.

    :param known: members to omit
    :param spelt: preferred spellings, for names that occur in upper and lower case
    """
    keys, known_names = F.col(CARRIED), list(known)
    has_new = (
        F.size(F.array_except(keys, F.array(*map(F.lit, known_names)))) > 0
        if known_names
        else keys.isNotNull()
    )
    # A filter, not a condition inside the aggregate: Spark then checks only the rows that pass it.
    new_rows = frame.where(has_new)
    inferred_ddl = new_rows.agg(F.schema_of_variant_agg(F.try_parse_json(ROW))).collect()[0][0]
    # Spark quotes names that are not plain words.
    ddl = re.sub(
        r"`(?:[^`]|``)*`|\bOBJECT<", lambda m: "STRUCT<" if m[0] == "OBJECT<" else m[0], inferred_ddl
    )
    new_types: dict[str, T.DataType] = {}
    if not ddl.startswith("STRUCT<"):
        return new_types
    schema = T.DataType.fromDDL(ddl)
    assert isinstance(schema, T.StructType)
    for field in sorted(schema.fields, key=lambda field: field.name not in spelt):
        kind = inferred(field.dataType)
        if kind is not None and not _has([*known_names, *new_types], field.name):
            new_types[field.name] = kind
    return new_types


def inferred(seen: T.DataType) -> T.DataType | None:
    """Return the column type for a type that Spark inferred; None if no value occurred."""
    if isinstance(seen, T.NullType):
        return None
    if isinstance(seen, T.StructType):
        member_types = {field.name: inferred(field.dataType) for field in seen.fields}
        fields = [T.StructField(name, kind) for name, kind in member_types.items() if kind is not None]
        return T.StructType(fields) if fields else None
    if isinstance(seen, T.ArrayType):
        element = inferred(seen.elementType)
        return None if element is None else T.ArrayType(element)
    if isinstance(seen, T.DecimalType):
        return fraction(seen.precision) if seen.scale else T.DecimalType(38, 0)
    # Spark infers VARIANT for values of different kinds.
    return T.StringType() if isinstance(seen, T.VariantType) else seen


# -- texts as values ----------------------------------------------------------------------------
@dataclass(frozen=True)
class Alternatives:
    """The encodings of columns, if these differ between records, as the schemas in the records define.

    :param by: the column that has, for each record, the key of its encoding in ``ways``
    :param ways: for each key, the encodings of the columns
    """

    by: Column
    ways: Mapping[int, Mapping[str, Value]]

    def of(self, name: str, otherwise: Value) -> list[tuple[Value, Column | None]]:
        """Return the encodings of a column, each with its condition. The last encoding is the default."""
        by_value: dict[Value, list[int]] = {}
        for way, columns in self.ways.items():
            by_value.setdefault(columns.get(name, otherwise), []).append(way)
        encodings: list[tuple[Value, Column | None]] = [
            (value, self.by.isin(ways)) for value, ways in by_value.items() if value != otherwise
        ]
        return [*encodings, (otherwise, None)]


def opened(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Add the texts of the columns (for Parquet, their values), and the names of the record's columns."""
    if RECORD in frame.columns:
        return _opened_record(frame, columns)
    # A batch may have no columns, but a struct needs one.
    columns = list(columns) or [f"{PLAN_PREFIX}none"]
    by_lower = {name.lower(): name for name in columns}
    respelt_names = F.filter(
        F.col(CARRIED), lambda key: F.lower(key).isin(list(by_lower)) & ~key.isin(columns)
    )
    frame = frame.withColumns(
        {TEXTS: json_object(F.col(ROW), columns), COMPLETE: is_list_of(F.col(CARRIED), columns)}
    )
    no_object = F.col(TEXTS).isNull() | F.col(CARRIED).isNull()
    respelt_error = F.concat(
        F.lit("a column of another case than in the log: "), F.get(respelt_names, F.lit(0))
    )
    unread = (
        F.when(F.col(ROW).isNull(), None)
        .when(no_object, NOT_JSON)
        .when(~F.col(COMPLETE) & (F.size(respelt_names) > 0), respelt_error)
    )
    return frame.withColumn(UNREAD, F.coalesce(F.col(UNREAD), unread))


def _opened_record(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    parsed_types = record_types(frame)
    assert parsed_types is not None
    by_lower = {name.lower(): name for name in parsed_types}
    texts = [
        F.col(f"{RECORD}.{quote(by_lower[name.lower()])}").alias(name)
        for name in columns
        if name.lower() in by_lower
    ]
    present = F.array(*[F.lit(name) for name in parsed_types])
    return frame.withColumns(
        {TEXTS: F.struct(*texts), CARRIED: F.coalesce(F.col(_PRESENT), present), ROW: F.lit("")}
    )


def valued(
    frame: DataFrame, columns: Mapping[str, Value], keys: Sequence[str], ways: Alternatives | None = None
) -> DataFrame:
    """Add the columns of the record as values, and the error for a value that does not fit.

    :param frame: the result of :func:`opened` for the same columns
    :param keys: the columns whose misfit is also an error for deletes
    """
    texts = frame.schema[TEXTS].dataType
    assert isinstance(texts, T.StructType)
    text_types = {field.name: field.dataType for field in texts.fields}
    converted_columns: dict[str, Column] = {}
    for name, value in columns.items():
        if name not in text_types:
            converted_columns[name] = F.lit(None).cast(value.data_type)
            continue
        text = F.col(TEXTS).getField(name)
        if isinstance(value.data_type, T.StringType) and RECORD not in frame.columns:
            text = _with_numbers(text, name)
        if not isinstance(text_types[name], T.StringType):
            converted_columns[name] = values.converted(text, text_types[name], value.data_type)
            continue
        converted_columns[name] = _with_alternatives(
            text, [(value, None)] if ways is None else ways.of(name, value)
        )
    frame = frame.withColumns(converted_columns)
    lower_keys = {key.lower() for key in keys}
    misfits = {name: _misfit(name, value) for name, value in columns.items() if name in text_types}
    key_misfits = [misfit for name, misfit in misfits.items() if name.lower() in lower_keys]
    null_text = F.lit(None).cast("string")
    return frame.withColumns(
        {
            MISFIT: F.coalesce(*misfits.values(), null_text),
            KEY_MISFIT: F.coalesce(*key_misfits, null_text),
        }
    )


def _with_numbers(text: Column, name: str) -> Column:
    """Return the text of an object or array, with long numbers as in the record.

    :func:`exact` has converted long numbers to strings, and a text column would keep these strings.
    """
    members = F.try_parse_json(F.col(ROW)).cast("map<string,string>")
    has_them = (text.startswith("[") | text.startswith("{")) & F.col(ROW).rlike(_LONG_NUMBER)
    return F.when(has_them, F.element_at(members, name)).otherwise(text)


def _misfit(name: str, value: Value) -> Column:
    """Return the error for a value that does not fit."""
    text = F.col(TEXTS).getField(name)
    error = F.when(
        text.isNotNull() & F.col(quote(name)).isNull(),
        f"column {name} is no {value.data_type.simpleString()[:100]}",
    )
    for member in value.misspelt:
        # A string value that looks like the member matches, too. A false error is better than a lost value.
        is_respelt = text.contains(f'"{member}":')
        error = F.coalesce(
            F.when(is_respelt, f"column {name} has a member in another case than the log: {member}"), error
        )
    return error


def _with_alternatives(text: Column, ways: list[tuple[Value, Column | None]]) -> Column:
    *conditional, (default, _) = ways
    decoded = values.decoded(text, default)
    for value, condition in conditional:
        assert condition is not None
        decoded = F.when(condition, values.decoded(text, value)).otherwise(decoded)
    return decoded


# -- events -------------------------------------------------------------------------------------
def refuse_reserved(names: Iterable[str]) -> None:
    """Refuse columns with names that the log reserves.

    :raises ReservedColumnName: the error names these columns
    """
    reserved_names = [
        name for name in names if name.lower() in change_log.LOG_COLUMNS or name.startswith(PLAN_PREFIX)
    ]
    if reserved_names:
        raise ReservedColumnName(
            f"The records have the column(s) {', '.join(reserved_names)}, "
            "names that the change log has for itself.",
            remedy="rename them where they come from, or leave them out with adapter_options "
            f"{{'except_column_list': {reserved_names}}}.",
        )


def payload_columns(
    columns: Mapping[str, Value], context: Context, left_out: Iterable[str]
) -> dict[str, T.DataType]:
    """Return the payload's columns, including the keys.

    :raises ColumnNotFound: the records have columns, but lack a key column
    """
    excluded = {name.lower() for name in left_out}
    payload_types = {name: value.data_type for name, value in columns.items() if name.lower() not in excluded}
    missing = [key for key in context.keys if not _has(payload_types, key)]
    if missing and payload_types:
        raise ColumnNotFound(
            f"The records have no key column {', '.join(map(repr, missing))} "
            f"(they have {', '.join(payload_types)}).",
            remedy="correct keys, or define the columns with schema.",
        )
    refuse_reserved(payload_types)
    # A batch without readable records has no columns.
    return payload_types | {key: T.StringType() for key in missing}


def events(
    frame: DataFrame,
    payload: Mapping[str, T.DataType],
    *,
    op: Column,
    sequence: Column,
    lacking: Column | str,
    error: Column | None = None,
    source_timestamp: Column | None = None,
    left_out: Column | None = None,
    carried: Column | None = None,
    no_payload: Iterable[str] | None = None,
) -> DataFrame:
    """Return the events of the records.

    An event also carries a column that is NULL in the whole batch, although this column has no type yet and
    is not in the payload. Otherwise, an older event that arrives later would restore the value.

    :param frame: the result of :func:`valued`
    :param no_payload: without the option ``schema``, the columns of the record that are not payload; None:
        events carry only columns of the payload
    :param op: one of the four operations; NULL if ``error`` has the reason. A blank record is ignored
    :param lacking: the error for an event whose ``sequence`` is NULL
    :param error: an error of the record, in addition to the errors in the frame
    :param left_out: names that the event does not carry, even if its record has them
    :param carried: exactly the names that the event carries; NULL: the columns that its record has
    """
    if carried is None and RECORD not in frame.columns:
        # Compare names exactly, because a record with another spelling is an invalid event. Only the user may
        # spell the columns that are left out in another way.
        left_out_names = {name.lower() for name in no_payload or ()}
        respelt = [name for name in frame.columns if name.lower() in left_out_names]
        other_names = [*(no_payload or ()), *respelt]
        names = (
            F.array_intersect(F.col(CARRIED), F.array(*map(F.lit, payload)))
            if no_payload is None
            else F.array_except(F.col(CARRIED), F.array(*map(F.lit, other_names)).cast("array<string>"))
        )
        all_names = F.array(*map(F.lit, payload)).cast("array<string>")
        names = F.when(F.col(COMPLETE), all_names).otherwise(names)
    else:
        carried_names = F.col(CARRIED) if carried is None else F.coalesce(carried, F.col(CARRIED))
        lower_names = [F.lit(name.lower()) for name in (payload if no_payload is None else no_payload)]
        is_other = no_payload is not None
        names = F.filter(carried_names, lambda name: F.lower(name).isin(*lower_names) != F.lit(is_other))
    if left_out is not None:
        names = F.when(F.size(left_out) > 0, F.array_except(names, left_out)).otherwise(names)
    null_text = F.lit(None).cast("string")
    op = F.when(is_blank(frame), change_log.IGNORE).otherwise(op)
    problem = F.coalesce(null_text if error is None else error, F.when(sequence.isNull(), lacking))
    misfit = F.when(op == change_log.UPSERT, F.col(MISFIT)).when(op == change_log.DELETE, F.col(KEY_MISFIT))
    reason = (
        F.when(F.col(UNREAD).isNotNull(), F.col(UNREAD))
        .when(op == change_log.IGNORE, None)
        .when(op.isNull(), problem)
        .otherwise(F.coalesce(misfit, problem))
    )
    has_row = op.isin(change_log.UPSERT, change_log.DELETE)
    row = F.struct(
        *[
            (F.col(quote(name)) if _has(frame.columns, name) else F.lit(None).cast(data_type)).alias(name)
            for name, data_type in payload.items()
        ]
    )
    built = frame.select(
        F.col(RAW).alias(change_log.RAW),
        F.col(POSITION).alias(change_log.POSITION),
        op.alias(change_log.OP),
        F.when(op != change_log.IGNORE, sequence).alias(change_log.SEQUENCE),
        F.when(op == change_log.UPSERT, names).alias(change_log.COLUMNS),
        (source_timestamp if source_timestamp is not None else F.lit(None))
        .cast("timestamp")
        .alias(change_log.SOURCE_TIMESTAMP),
        F.when(has_row, row).alias(change_log.PAYLOAD),
        reason.alias(change_log.ERROR),
    )
    # An invalid event gets no operation, so the counts omit it.
    is_event = F.col(change_log.ERROR).isNull()
    return built.withColumn(change_log.OP, F.when(is_event, F.col(change_log.OP)))


def type_of(frame: DataFrame, name: str) -> T.DataType:
    """Return the type of a column of a frame. The name matches without regard to case."""
    matching_field = next(
        (field for field in frame.schema.fields if field.name.lower() == name.lower()), None
    )
    return frame.schema[name].dataType if matching_field is None else matching_field.dataType


def split_in_two(frame: DataFrame, is_split: Column) -> DataFrame:
    """Split a record whose key changed into two rows: :data:`INDEX` 0 has the old key, 1 the new key.

    Other records keep one row, with :data:`INDEX` 1.
    """
    indexes = F.when(is_split, F.array(F.lit(0), F.lit(1))).otherwise(F.array(F.lit(1)))
    return frame.withColumn(INDEX, F.explode(indexes))


def joined(parts: Sequence[Column]) -> Column:
    """Join fixed-width parts into one sequence; NULL if a part is NULL."""
    return parts[0] if len(parts) == 1 else F.concat(*[x for p in parts for x in (F.lit("/"), p)][1:])


def any_of(conditions: Sequence[Column]) -> Column:
    """Return whether any of the conditions holds."""
    return balanced(or_, list(conditions)) if conditions else F.lit(False)
