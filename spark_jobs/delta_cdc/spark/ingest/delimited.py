"""Read records from CSV files.

The header of a file defines its columns. Files with the same header form a group, so values never shift into
other columns. The raw text of a record is its line (or lines, if a quoted value has line breaks). If the file
has a header, the raw text begins with it, so a later run can parse the record without its file.

Quoting follows RFC 4180 unless options set other marks (:mod:`delta_cdc.spark.ingest.quoting`). A wrongly
quoted line is an invalid record, because Spark's parser would guess its values.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import Window, WindowSpec

from delta_cdc.core import reader_options
from delta_cdc.core.change_log import POSITION, PUBLISHED, RAW, RECORD, UNDECODED
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark.ingest import lines as text
from delta_cdc.spark.ingest.quoting import Quoting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.core.spec import SourceFile

_PARSED, _CORRUPT, _HEADER = f"{PLAN_PREFIX}parsed", f"{PLAN_PREFIX}corrupt", f"{PLAN_PREFIX}header"
_PATTERNS = {
    "dateFormat": "DateType",
    "timestampFormat": "TimestampType",
    "timestampNTZFormat": "TimestampNTZType",
}
#: Options of a whole file. The parser of a line does not use them.
_OF_FILES = ("header", "multiline", "encoding", "charset", "linesep")
MISQUOTED = "its values are not quoted as format_options say (by default as RFC 4180 says)"
#: For Spark's parser, NUL means that a mark (comment, escape) is not set, so a quoted value would lose NUL.
WITH_NUL = "it has a NUL character, which CSV does not allow"
#: The reason for each line of a quoted value without end. All these lines are doubtful, because the opening
#: quote is probably a mistake.
UNCLOSED = "a quoted value has no end in its file"
#: A record with more lines counts as a quoted value without end, because a record must fit in memory.
MOST_LINES = 10_000

_ROW, _RECORD, _UNCLOSED_ROW = (f"{PLAN_PREFIX}{name}" for name in ("row", "record", "unclosed_row"))
_OPENS, _STAYS, _TURNS = (f"{PLAN_PREFIX}{name}" for name in ("opens", "stays", "turns"))
_WITHIN, _ENDS_WITHIN = f"{PLAN_PREFIX}within", f"{PLAN_PREFIX}ends_within"


@dataclass(frozen=True)
class _Columns:
    """The columns of a group of files, in order.

    :param header: the unchanged header line of the files; "" without a header
    :param patterns: names of the Spark types for which the options give a pattern
    :param is_quoted: whether the header is one correctly quoted line
    """

    header: str
    names: tuple[str, ...]
    types: Mapping[str, T.DataType]
    patterns: frozenset[str] = frozenset()
    is_quoted: bool = True

    @property
    def flaw(self) -> str:
        """Return why values cannot be assigned to columns; "" if they can."""
        if "\ufffd" in self.header:
            return "the header of its file is not UTF-8"
        if not self.is_quoted:
            return "the header of its file is not quoted as format_options say, or has a line break in a name"
        earlier_names: set[str] = set()
        for name in self.names:
            if name.lower() in earlier_names:
                return f"the header of its file names the column {name} twice"
            earlier_names.add(name.lower())
        return ""

    def type_of(self, name: str) -> T.DataType:
        """Return the type for the parser: text, except for dates and times if the options give a pattern.

        Text is safer, because the adapter converts texts strictly, and the parser would round and truncate.
        """
        known_type = self.types.get(name.lower(), T.StringType())
        return known_type if type(known_type).__name__ in self.patterns else T.StringType()

    def ddl(self, *, as_text: bool = False) -> str:
        types = ["string" if as_text else self.type_of(name).simpleString() for name in self.names]
        columns = [f"{quote(name)} {kind}" for name, kind in zip(self.names, types, strict=True)]
        return ", ".join([*columns, f"{quote(_CORRUPT)} string"])


def read(
    session: SparkSession,
    files: Sequence[SourceFile],
    options: Mapping[str, str],
    types: Sequence[T.StructType | None],
    *,
    needs_rows: bool,
) -> DataFrame:
    """Return the records of CSV files.

    :param types: known types of columns: those of the option ``schema``, then those of the log. Other columns
        are text
    :raises InvalidConfiguration: the files have no header, and the options have no ``schema``
    """
    known_types, quoting = _known(types), Quoting.of(options)
    has_header = reader_options.is_true(options, "header")
    # Quoted values may have line breaks, unless the option says "false".
    may_span = (reader_options.option(options, "multiLine") or "true").lower() != "false"
    headless = None if has_header else _Columns("", _declared(types), known_types, _patterns(options))
    if has_header or may_span:
        found = _headers(session, files, options, quoting) if files else {}
    else:
        found = {file.uri: ("", False) for file in files}
    groups: dict[tuple[str, bool], list[SourceFile]] = defaultdict(list)
    for file in files:
        # A file without an entry has no lines, so it has no records.
        if file.uri in found:
            header, spans = found[file.uri]
            groups[header if has_header else "", spans and may_span].append(file)
    parts = []
    for (header, spans), group in groups.items():
        columns = headless or _columns(header, options, known_types)
        part = _Lines(session, group, options, quoting, columns)
        found_lines = part.assembled(needs_rows) if spans else part.alone(needs_rows)
        parts.append(_part(found_lines, columns, options))
    return _united(parts) if parts else _empty(session, types)


def again(records: DataFrame, options: Mapping[str, str], types: Sequence[T.StructType | None]) -> DataFrame:
    """Parse records again from their raw text.

    :param records: RAW, PUBLISHED and POSITION
    """
    known_types = _known(types)
    if not reader_options.is_true(options, "header"):
        return _part(records, _Columns("", _declared(types), known_types, _patterns(options)), options).rows
    split = F.split(RAW, "\n", 2)
    split_records = records.select(
        F.get(split, F.lit(0)).alias(_HEADER),
        F.coalesce(F.get(split, F.lit(1)), F.lit("")).alias(RAW),
        PUBLISHED,
        POSITION,
    )
    parts = []
    for row in split_records.select(_HEADER).distinct().collect():
        columns = _columns(row[_HEADER], options, known_types)
        parts.append(_part(split_records.where(F.col(_HEADER) == row[_HEADER]), columns, options))
    return _united(parts) if parts else _empty(records.sparkSession, types)


def _patterns(options: Mapping[str, str]) -> frozenset[str]:
    return frozenset(
        kind for name, kind in _PATTERNS.items() if reader_options.option(options, name) is not None
    )


def _known(types: Sequence[T.StructType | None]) -> dict[str, T.DataType]:
    known_types: dict[str, T.DataType] = {}
    for schema in types:
        for field in schema.fields if schema is not None else ():
            known_types.setdefault(field.name.lower(), field.dataType)
    return known_types


def _declared(types: Sequence[T.StructType | None]) -> tuple[str, ...]:
    declared = types[0]
    if declared is None:
        raise InvalidConfiguration(
            "The CSV files have no header, and no schema is given.",
            remedy="give schema with all columns of the files, in their order; or, where the first line of "
            'each file is its header, format_options {"header": "true"}.',
        )
    return tuple(declared.names)


def _empty(session: SparkSession, types: Sequence[T.StructType | None]) -> DataFrame:
    """Return an empty frame with the known columns, for a batch whose files have no lines."""
    null = F.lit(None)
    empty = session.range(0).select(
        null.cast("string").alias(RAW),
        null.cast("timestamp").alias(PUBLISHED),
        text.place(null, null).alias(POSITION),
    )
    known_names = next((schema.names for schema in types if schema is not None), [])
    return _part(empty, _Columns("", tuple(known_names), _known(types)), {}).rows


def _columns(header: str, options: Mapping[str, str], known_types: Mapping[str, T.DataType]) -> _Columns:
    """Return the columns of a header line. The position names a column without name, as in Spark (_c0)."""
    names = Quoting.of(options).values(header)
    column_names = tuple(name.strip() or f"_c{place}" for place, name in enumerate(names or ()))
    return _Columns(header, column_names, known_types, _patterns(options), is_quoted=names is not None)


# -- lines --------------------------------------------------------------------------------------
def _split_lines(
    session: SparkSession, files: Sequence[SourceFile], options: Mapping[str, str]
) -> tuple[DataFrame, Column]:
    """Return the lines of files, and their texts.

    In RFC 4180, CR LF ends a line, but most writers write LF alone. The text keeps the CR, because a line
    break inside a value must not change. :func:`_without_carriage_return` removes the CR at the end of a
    record. A CR without LF does not end a line.
    """
    lines = text.split_lines(session, files, {"lineSep": "\n", **options})
    return lines, text.decoded(lines, options)


def _without_carriage_return(record: Column, options: Mapping[str, str]) -> Column:
    """Return a record without the CR of its line break."""
    if reader_options.option(options, "lineSep") is not None:
        return record
    return F.when(record.endswith("\r"), F.left(record, F.length(record) - 1)).otherwise(record)


def _is_comment(line: Column, options: Mapping[str, str]) -> Column:
    comment = reader_options.option(options, "comment")
    return line.startswith(comment) if comment else F.lit(False)


def _headers(
    session: SparkSession, files: Sequence[SourceFile], options: Mapping[str, str], quoting: Quoting
) -> dict[str, tuple[str, bool]]:
    """Return the first line of each file, except empty lines and comments, and whether records span lines.

    Nearly all files have one record per line. If no line leaves a quoted value open, each line is a record.
    """
    lines, line = _split_lines(session, files, options)
    line = _without_carriage_return(line, options)
    opens = _opens(line, quoting) & ~_is_comment(line, options)
    records, _ = text.in_files(lines, [line.alias(RAW), opens.alias(_OPENS)])
    records = records.where((F.col(RAW) != "") & ~_is_comment(F.col(RAW), options))
    first = F.min_by(RAW, F.struct(*text.IN_ORDER))
    rows = records.groupBy(text.FILE).agg(first.alias(RAW), F.bool_or(_OPENS).alias(_OPENS)).collect()
    return {row[text.FILE]: (row[RAW], row[_OPENS]) for row in rows}


def _opens(line: Column, quoting: Quoting) -> Column:
    """Return whether a line that begins a record ends inside a quoted value."""
    if not quoting.quote:
        return F.lit(False)
    return F.contains(line, F.lit(quoting.quote)) & line.rlike(quoting.opens())


@dataclass(frozen=True)
class _Lines:
    """Converts lines of files with the same columns to records: RAW, UNDECODED, PUBLISHED and POSITION."""

    session: SparkSession
    files: Sequence[SourceFile]
    options: Mapping[str, str]
    quoting: Quoting
    columns: _Columns

    def alone(self, needs_rows: bool) -> DataFrame:
        """Return one record per line."""
        lines, line = _split_lines(self.session, self.files, self.options)
        place = text.numbered if needs_rows else text.located
        return self._records(place(lines, text.as_raw(_without_carriage_return(line, self.options))))

    def _records(self, records: DataFrame) -> DataFrame:
        """Remove empty lines, comments and headers."""
        # A file that was concatenated from several files repeats the header.
        is_no_record = F.col(RAW).isin("", self.columns.header) | _is_comment(F.col(RAW), self.options)
        return records.where(~is_no_record)

    def assembled(self, needs_rows: bool) -> DataFrame:
        """Return records that may span lines. The row number of a record is that of its first line."""
        lines = self._in_records()
        ordered = F.sort_array(F.collect_list(F.struct(_ROW, RAW)))
        line_break = reader_options.option(self.options, "lineSep") or "\n"
        joined_lines = F.array_join(F.transform(ordered, lambda line: line.getField(RAW)), line_break)
        grouped = lines.groupBy(text.FILE, _RECORD, _UNCLOSED_ROW).agg(
            joined_lines.alias(RAW), F.min(_ROW).alias(_ROW), F.first(PUBLISHED).alias(PUBLISHED)
        )
        raw, undecoded = text.as_raw(_without_carriage_return(F.col(RAW), self.options))
        unclosed = F.when(F.col(_UNCLOSED_ROW).isNotNull(), UNCLOSED)
        row = F.col(_ROW) if needs_rows else F.lit(None)
        place = text.place(F.col(text.FILE), row)
        reason = F.coalesce(undecoded, unclosed)
        return self._records(grouped.select(raw, reason.alias(UNDECODED), PUBLISHED, place.alias(POSITION)))

    def _in_records(self) -> DataFrame:
        """Return the lines, each with the number of its record in the file.

        Each line of a quoted value without end (:data:`UNCLOSED`) becomes a separate record, because it gets
        its own _UNCLOSED_ROW.
        """
        rows, in_order = self._states()
        ends_within = F.when(F.col(_WITHIN), F.col(_STAYS)).otherwise(F.col(_OPENS))
        record = F.sum((~F.col(_WITHIN)).cast("int")).over(in_order)
        rows = rows.select("*", ends_within.alias(_ENDS_WITHIN), record.alias(_RECORD))
        last = F.max(F.struct(_RECORD, _ROW, _ENDS_WITHIN)).over(Window.partitionBy(text.FILE))
        lines = F.count(F.lit(1)).over(Window.partitionBy(text.FILE, _RECORD))
        is_unclosed = last.getField(_ENDS_WITHIN) & (F.col(_RECORD) == last.getField(_RECORD))
        unclosed = F.when(is_unclosed | (lines > MOST_LINES), F.col(_ROW))
        return rows.withColumn(_UNCLOSED_ROW, unclosed)

    def _states(self) -> tuple[DataFrame, WindowSpec]:
        """Return the lines with :data:`_WITHIN`: whether a line begins inside a quoted value.

        Each line sets, unsets, keeps or inverts this state. So the state at the start of a line is the state
        after the last line that sets or unsets it, inverted once for each later line that inverts it.
        """
        lines, line = _split_lines(self.session, self.files, self.options)
        opens = _opens(line, self.quoting) & ~_is_comment(line, self.options)
        plain = ~F.contains(line, F.lit(self.quoting.quote))
        stays = plain | line.rlike(self.quoting.stays_open())
        columns = [line.alias(RAW), opens.alias(_OPENS), stays.alias(_STAYS)]
        rows, in_order = text.in_files(lines, columns)
        turn = (F.col(_OPENS) & ~F.col(_STAYS)).cast("int")
        row = F.row_number().over(in_order) - 1
        rows = rows.select("*", row.alias(_ROW), F.sum(turn).over(in_order).alias(_TURNS))
        before = in_order.rowsBetween(Window.unboundedPreceding, -1)
        is_fixed = F.col(_OPENS) == F.col(_STAYS)
        fixed = F.max(F.when(is_fixed, F.struct(_ROW, _OPENS, _TURNS))).over(before)
        turns = F.col(_TURNS) - turn - F.coalesce(fixed.getField(_TURNS), F.lit(0))
        within = F.coalesce(fixed.getField(_OPENS), F.lit(False)) != (turns % 2 == 1)
        return rows.withColumn(_WITHIN, within), in_order


def _parsing(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Spark's parser.

    By default, the parser uses the backslash as escape, and reads a quoted empty value as NULL. These options
    make it an empty text: ``nullValue`` is the NUL character, which no valid record contains.
    """
    quoting = Quoting.of(options)
    given = {name: value for name, value in options.items() if name.lower() not in _OF_FILES}
    usual = {"nullValue": "\0"} if reader_options.option(options, "nullValue") is None else {}
    return {**usual, **({"escape": quoting.escape} if quoting.quote else {}), **given}


def _flaw(options: Mapping[str, str]) -> Column:
    """Return why a record is not valid CSV by the options; NULL if it is valid."""
    quoting, raw = Quoting.of(options), F.col(RAW)
    if reader_options.option(options, "unescapedQuoteHandling") is not None:
        # This option of the user decides how Spark handles such records.
        return F.lit(None).cast("string")
    special = F.contains(raw, F.lit("\r"))
    if quoting.quote:
        special = special | F.contains(raw, F.lit(quoting.quote))
    misquoted = F.when(special & ~raw.rlike(quoting.record()), MISQUOTED)
    return F.when(F.contains(raw, F.lit("\0")), WITH_NUL).otherwise(misquoted)


# -- records ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Part:
    """Records with the same columns; :data:`RECORD` is NULL if values cannot be assigned to columns."""

    rows: DataFrame
    columns: _Columns


def _part(lines: DataFrame, columns: _Columns, options: Mapping[str, str]) -> _Part:
    raw = F.concat(F.lit(columns.header + "\n"), F.col(RAW)) if columns.header else F.col(RAW)
    if columns.flaw:
        rows = lines.withColumn(RAW, raw)
        null, flaw = F.lit(None), F.lit(columns.flaw)
        return _Part(text.completed(rows, record=null, present=(), undecoded=flaw), columns)
    parsing = {**_parsing(options), "columnNameOfCorruptRecord": _CORRUPT}
    lines = lines.withColumn(_PARSED, F.from_csv(RAW, columns.ddl(), parsing))
    parsed = F.col(_PARSED)
    as_text = F.from_csv(RAW, columns.ddl(as_text=True), parsing)
    misfit = F.when(
        parsed.getField(_CORRUPT).isNotNull() | parsed.isNull(), _reason(parsed, as_text, columns)
    )
    record = F.struct(*[_value(parsed, columns, name).alias(name) for name in columns.names])
    undecoded = F.col(UNDECODED) if UNDECODED in lines.columns else F.lit(None)
    misfit = F.coalesce(undecoded, _flaw(options), misfit)
    rows = lines.select(raw.alias(RAW), _PARSED, misfit.alias(UNDECODED), PUBLISHED, POSITION)
    present = columns.names if columns.header else None
    return _Part(text.completed(rows, record=record, present=present, undecoded=F.col(UNDECODED)), columns)


def _value(parsed: Column, columns: _Columns, name: str) -> Column:
    """Return a value. An empty text becomes NULL if the known type of its column is not text."""
    value, known_type = parsed.getField(name), columns.types.get(name.lower(), T.StringType())
    is_text = isinstance(known_type, T.StringType) or not isinstance(columns.type_of(name), T.StringType)
    return value if is_text else F.nullif(value, F.lit(""))


def _reason(parsed: Column, as_text: Column, columns: _Columns) -> Column:
    """Return why a line does not fit its columns."""
    misfits = [
        F.when(
            as_text.getField(name).isNotNull() & parsed.getField(name).isNull(),
            F.concat(F.lit(f"{name} is no {columns.type_of(name).simpleString()}: "), as_text.getField(name)),
        )
        for name in columns.names
    ]
    wrong_number = F.lit(f"it does not have the {len(columns.names)} columns of its file")
    return F.when(as_text.getField(_CORRUPT).isNotNull(), wrong_number).otherwise(
        F.coalesce(*misfits, wrong_number)
    )


def _united(parts: Sequence[_Part]) -> DataFrame:
    """Combine the records of several groups. A record has NULL in columns that its group lacks."""
    names: dict[str, str] = {}
    for part in parts:
        for name in part.columns.names if not part.columns.flaw else ():
            names.setdefault(name.lower(), name)
    return reduce(lambda a, b: a.unionByName(b), [_widened(part, names) for part in parts])


def _widened(part: _Part, names: Mapping[str, str]) -> DataFrame:
    own_names = {} if part.columns.flaw else {name.lower(): name for name in part.columns.names}
    values = []
    for key, name in names.items():
        kind = part.columns.type_of(name)
        value = F.col(RECORD).getField(own_names[key]) if key in own_names else F.lit(None).cast(kind)
        values.append(value.alias(name))
    return part.rows.withColumn(RECORD, F.struct(*values))
