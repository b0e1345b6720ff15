"""Records of CSV files.

A file is read by its own header: files with other columns, or the same in another order, are groups of their
own, so no value ever shifts. A record's raw text is its line, with the header line above where there is one:
it can be read again without its file.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from delta_cdc.errors import InvalidConfiguration
from delta_cdc.ingest import lines as text
from delta_cdc.ingest.shape import POSITION, PUBLISHED, RAW, RECORD, UNDECODED
from delta_cdc.sql import PLAN_PREFIX, quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from delta_cdc.spec import SourceFile

_PARSED, _CORRUPT, _HEADER = f"{PLAN_PREFIX}parsed", f"{PLAN_PREFIX}corrupt", f"{PLAN_PREFIX}header"
_PATTERNS = {
    "dateFormat": "DateType",
    "timestampFormat": "TimestampType",
    "timestampNTZFormat": "TimestampNTZType",
}
#: Of the files, not of the values in a line.
_OF_FILES = ("header", "multiline", "encoding", "charset", "linesep")


@dataclass(frozen=True)
class _Columns:
    """The columns of some files, in order.

    :param header: the header line as it stands in them; "" where they have none
    :param patterns: names of Spark's types for which the user gave a pattern
    """

    header: str
    names: tuple[str, ...]
    types: Mapping[str, DataType]
    patterns: frozenset[str] = frozenset()

    @property
    def flaw(self) -> str:
        """Return why values cannot be told apart by column; "" where they can."""
        if "\ufffd" in self.header:
            return "the header of its file is not UTF-8"
        seen: set[str] = set()
        for name in self.names:
            if name.lower() in seen:
                return f"the header of its file names the column {name} twice"
            seen.add(name.lower())
        return ""

    def type_of(self, name: str) -> DataType:
        """Return the type that a column is parsed as: text, but for times of a pattern of the user's own.

        The adapter makes values of texts, and strictly: the parser would round and cut.
        """
        from pyspark.sql import types as T

        found = self.types.get(name.lower(), T.StringType())
        return found if type(found).__name__ in self.patterns else T.StringType()

    def ddl(self, *, as_text: bool = False) -> str:
        kinds = ["string" if as_text else self.type_of(name).simpleString() for name in self.names]
        named = [f"{quote(name)} {kind}" for name, kind in zip(self.names, kinds, strict=True)]
        return ", ".join([*named, f"{quote(_CORRUPT)} string"])


def read(
    session: SparkSession,
    files: Sequence[SourceFile],
    options: Mapping[str, str],
    types: Sequence[StructType | None],
    *,
    needs_rows: bool,
) -> DataFrame:
    """Return the records of CSV files.

    :param types: what is known of columns by their names, the declared ones first; other columns are text
    :raises InvalidConfiguration: the files have no header, and nothing is declared
    """
    known = _known(types)
    if text.is_true(options, "header"):
        firsts = text.first_lines(session, files, options) if files else {}
        groups: dict[str, list[SourceFile]] = defaultdict(list)
        for file in files:
            if file.uri in firsts:
                groups[firsts[file.uri]].append(file)
        parts = [
            _part(_records(session, header, group, options, known, needs_rows), options)
            for header, group in groups.items()
        ]
        return _united(parts) if parts else _none(session, types)
    columns = _Columns("", _declared(types), known, _patterns(options))
    return _part((_lines(session, columns, files, options, needs_rows), columns), options).rows


def again(records: DataFrame, options: Mapping[str, str], types: Sequence[StructType | None]) -> DataFrame:
    """Return records anew from their raw text.

    :param records: RAW, PUBLISHED and POSITION
    """
    from pyspark.sql import functions as F

    known = _known(types)
    if not text.is_true(options, "header"):
        return _part((records, _Columns("", _declared(types), known, _patterns(options))), options).rows
    split = F.split(RAW, "\n", 2)
    cut = records.select(
        F.get(split, F.lit(0)).alias(_HEADER),
        F.coalesce(F.get(split, F.lit(1)), F.lit("")).alias(RAW),
        PUBLISHED,
        POSITION,
    )
    parts = []
    for row in cut.select(_HEADER).distinct().collect():
        columns = _Columns(row[_HEADER], _names(row[_HEADER], options), known, _patterns(options))
        parts.append(_part((cut.where(F.col(_HEADER) == row[_HEADER]), columns), options))
    return _united(parts) if parts else _none(records.sparkSession, types)


def _patterns(options: Mapping[str, str]) -> frozenset[str]:
    return frozenset(kind for name, kind in _PATTERNS.items() if text.option(options, name) is not None)


def _known(types: Sequence[StructType | None]) -> dict[str, DataType]:
    found: dict[str, DataType] = {}
    for schema in types:
        for field in schema.fields if schema is not None else ():
            found.setdefault(field.name.lower(), field.dataType)
    return found


def _declared(types: Sequence[StructType | None]) -> tuple[str, ...]:
    declared = types[0]
    if declared is None:
        raise InvalidConfiguration(
            "The CSV files have no header, and no schema is given.",
            remedy="give schema with all columns of the files, in their order; or, where the first line of "
            'each file is its header, format_options {"header": "true"}.',
        )
    return tuple(declared.names)


def _none(session: SparkSession, types: Sequence[StructType | None]) -> DataFrame:
    """Return no records, of the columns that are known: what files without a line have."""
    from pyspark.sql import functions as F

    none = F.lit(None)
    empty = session.range(0).select(
        none.cast("string").alias(RAW),
        none.cast("timestamp").alias(PUBLISHED),
        text.no_place().alias(POSITION),
    )
    known = next((schema.names for schema in types if schema is not None), [])
    return _part((empty, _Columns("", tuple(known), _known(types))), {}).rows


def _names(header: str, options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names in a header line; a column without one is named by its place, as Spark does."""
    separator = (text.option(options, "sep", "delimiter") or ",").replace("\\t", "\t")
    given = text.option(options, "quote")
    mark = '"' if given is None else given
    if len(separator) > 1:
        names = [name.strip(mark) if mark else name for name in header.split(separator)]
    elif len(mark) == 1:
        names = next(csv.reader([header], delimiter=separator, quotechar=mark))
    else:
        names = next(csv.reader([header], delimiter=separator, quoting=csv.QUOTE_NONE))
    return tuple(name.strip() or f"_c{place}" for place, name in enumerate(names))


# -- lines --------------------------------------------------------------------------------------
def _records(
    session: SparkSession,
    header: str,
    files: Sequence[SourceFile],
    options: Mapping[str, str],
    known: Mapping[str, DataType],
    needs_rows: bool,
) -> tuple[DataFrame, _Columns]:
    columns = _Columns(header, _names(header, options), known, _patterns(options))
    return _lines(session, columns, files, options, needs_rows), columns


def _lines(
    session: SparkSession,
    columns: _Columns,
    files: Sequence[SourceFile],
    options: Mapping[str, str],
    needs_rows: bool,
) -> DataFrame:
    """Return the lines of files, without their headers; what spans lines is parsed already."""
    from pyspark.sql import functions as F

    if text.is_true(options, "multiLine") and not columns.flaw:
        return _spanning(session, columns, files, options, needs_rows)
    lines = text.read(session, files, options, needs_rows=needs_rows)
    comment = text.option(options, "comment")
    if comment:
        lines = lines.where(~F.col(RAW).startswith(comment))
    # Files that were put together from parts have it in the middle, too.
    return lines.where(F.col(RAW) != columns.header) if columns.header else lines


def _spanning(
    session: SparkSession,
    columns: _Columns,
    files: Sequence[SourceFile],
    options: Mapping[str, str],
    needs_rows: bool,
) -> DataFrame:
    """Return records of files whose values may hold line feeds: each file is parsed as a whole."""
    from pyspark.sql import functions as F

    reader = session.read.options(**options).option("enforceSchema", "true")
    reader = reader.option("columnNameOfCorruptRecord", _CORRUPT).schema(columns.ddl())
    found = reader.csv(text.paths(files))
    values = F.struct(*[F.col(quote(name)) for name in columns.names])
    raw = F.coalesce(F.col(_CORRUPT), F.to_csv(values, _parsing(options)))
    parsed = F.struct(*[F.col(quote(name)) for name in (*columns.names, _CORRUPT)])
    # The parser has put it in the place of bytes that are no text.
    broken = F.when(F.contains(raw, F.lit("\ufffd")), F.lit("not UTF-8"))
    wanted = [raw.alias(RAW), parsed.alias(_PARSED), broken.alias(UNDECODED)]
    return text.numbered(found, wanted) if needs_rows else text.located(found, wanted)


def _parsing(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name.lower() not in _OF_FILES}


# -- records ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Part:
    """Records with the same columns; their :data:`RECORD` is NULL where columns cannot be told apart."""

    rows: DataFrame
    columns: _Columns


def _part(found: tuple[DataFrame, _Columns], options: Mapping[str, str]) -> _Part:
    from pyspark.sql import functions as F

    lines, columns = found
    raw = F.concat(F.lit(columns.header + "\n"), F.col(RAW)) if columns.header else F.col(RAW)
    if columns.flaw:
        rows = lines.withColumn(RAW, raw)
        nothing, flaw = F.lit(None), F.lit(columns.flaw)
        return _Part(text.completed(rows, record=nothing, present=(), undecoded=flaw), columns)
    parsing = {**_parsing(options), "columnNameOfCorruptRecord": _CORRUPT}
    if _PARSED not in lines.columns:
        lines = lines.withColumn(_PARSED, F.from_csv(RAW, columns.ddl(), parsing))
    parsed = F.col(_PARSED)
    as_text = F.from_csv(RAW, columns.ddl(as_text=True), parsing)
    misfit = F.when(
        parsed.getField(_CORRUPT).isNotNull() | parsed.isNull(), _reason(parsed, as_text, columns)
    )
    record = F.struct(*[parsed.getField(name).alias(name) for name in columns.names])
    if UNDECODED in lines.columns:
        misfit = F.coalesce(F.col(UNDECODED), misfit)
    rows = lines.select(raw.alias(RAW), _PARSED, misfit.alias(UNDECODED), PUBLISHED, POSITION)
    present = columns.names if columns.header else None
    return _Part(text.completed(rows, record=record, present=present, undecoded=F.col(UNDECODED)), columns)


def _reason(parsed: Column, as_text: Column, columns: _Columns) -> Column:
    """Say why a line does not fit its columns."""
    from pyspark.sql import functions as F

    wrong = [
        F.when(
            as_text.getField(name).isNotNull() & parsed.getField(name).isNull(),
            F.concat(F.lit(f"{name} is no {columns.type_of(name).simpleString()}: "), as_text.getField(name)),
        )
        for name in columns.names
    ]
    number = F.lit(f"it has not the {len(columns.names)} columns of its file")
    return F.when(as_text.getField(_CORRUPT).isNotNull(), number).otherwise(F.coalesce(*wrong, number))


def _united(parts: Sequence[_Part]) -> DataFrame:
    """Put records of several groups together: each keeps its own columns, and has NULL in the others'."""
    names: dict[str, str] = {}
    for part in parts:
        for name in part.columns.names if not part.columns.flaw else ():
            names.setdefault(name.lower(), name)
    return reduce(lambda a, b: a.unionByName(b), [_widened(part, names) for part in parts])


def _widened(part: _Part, names: Mapping[str, str]) -> DataFrame:
    from pyspark.sql import functions as F

    own = {} if part.columns.flaw else {name.lower(): name for name in part.columns.names}
    values = []
    for key, name in names.items():
        kind = part.columns.type_of(name)
        value = F.col(RECORD).getField(own[key]) if key in own else F.lit(None).cast(kind)
        values.append(value.alias(name))
    return part.rows.withColumn(RECORD, F.struct(*values))
