"""Lines of text files, each with its place, and what the readers of all formats share.

Exactly the files that were planned are read, each under the name it was planned by: Spark takes no part of a
name for a pattern.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from delta_cdc.errors import InvalidConfiguration
from delta_cdc.ingest.shape import KEY, POSITION, POSITION_DDL, PRESENT, PUBLISHED, RAW, RECORD, UNDECODED
from delta_cdc.sql import PLAN_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.window import WindowSpec

    from delta_cdc.spec import SourceFile

#: Options of Spark's readers that say how values are written. All others would change which records there
#: are, or hide those that cannot be read.
_CSV = (
    "sep delimiter encoding charset quote escape comment header lineSep multiLine locale timeZone "
    "ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace nullValue emptyValue "
    "dateFormat timestampFormat timestampNTZFormat charToEscapeQuoteEscaping unescapedQuoteHandling "
    "maxColumns maxCharsPerColumn"
)
_ALLOWED = {
    "json": "lineSep encoding charset",
    "csv": _CSV,
    "parquet": "datetimeRebaseMode int96RebaseMode",
}
_PATTERN = re.compile(r"([\\\[\]{}*?])")
#: What RAW begins with where a line's bytes are no text.
BASE64 = "base64:"
_UTF8 = ("utf-8", "utf8")
#: In others, a line feed is more than one byte: files cannot be cut at it.
_LINE_WISE = (*_UTF8, "us-ascii", "ascii", "iso-8859-", "latin", "windows-", "cp1")

#: The file of a line, as it was planned.
FILE = f"{PLAN_PREFIX}path"
_START, _ID = f"{PLAN_PREFIX}start", f"{PLAN_PREFIX}id"
#: What orders the records of a file, in frames of :func:`in_files`.
IN_ORDER = (_START, _ID)


def check_format_options(file_format: str, options: Mapping[str, str]) -> None:
    """Refuse reader options that are unknown, or under which records would be lost or doubled.

    :raises InvalidConfiguration: names the option, and the nearest that there is
    """
    known = {name.lower(): name for name in _ALLOWED[file_format].split()}
    for name in options:
        if name.lower() not in known:
            near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
            meant = f"did you mean {known[near[0]]}? " if near else ""
            raise InvalidConfiguration(
                f"format_options: {name!r} cannot be given for {file_format}.",
                remedy=f"{meant}These can: {', '.join(sorted(known.values()))}.",
            )
    encoding = option(options, "encoding", "charset") or _UTF8[0]
    if not encoding.lower().startswith(_LINE_WISE):
        raise InvalidConfiguration(
            f"format_options: files in {encoding} cannot be cut into lines.",
            remedy="deliver them in UTF-8, or in an encoding of one byte.",
        )


def option(options: Mapping[str, str], *names: str) -> str | None:
    """Return a reader option under any of its names, which have no case."""
    given = {name.lower(): value for name, value in options.items()}
    return next((given[name.lower()] for name in names if name.lower() in given), None)


def is_true(options: Mapping[str, str], name: str) -> bool:
    """Tell whether a reader option is on."""
    return (option(options, name) or "false").lower() == "true"


def paths(files: Sequence[SourceFile]) -> list[str]:
    """Return files as Spark's readers take them: what would be a pattern in a name is escaped."""
    return [as_path(file.uri) for file in files]


def as_path(uri: str) -> str:
    """Return one name in which nothing is a pattern."""
    return _PATTERN.sub(r"\\\1", uri)


def located(records: DataFrame, columns: Sequence[Column], row: Column | None = None) -> DataFrame:
    """Return some columns of what was read from files, and where each record came from.

    :param row: the place of a record in its file; None is unknown
    :return: ``columns``, PUBLISHED and POSITION
    """
    from pyspark.sql import functions as F

    meta = records.metadataColumn("_metadata")
    position = place(_uri(meta.getField("file_path")), F.lit(None) if row is None else row)
    modified = meta.getField("file_modification_time").cast("timestamp")
    return records.select(*columns, modified.alias(PUBLISHED), position.alias(POSITION))


def completed(
    records: DataFrame,
    *,
    record: Column | None = None,
    present: Sequence[str] | None = None,
    undecoded: Column | None = None,
) -> DataFrame:
    """Return records in the shape that adapters are given.

    :param records: RAW, PUBLISHED and POSITION, and what the other arguments are made of
    """
    from pyspark.sql import functions as F

    none = F.lit(None).cast("string")
    columns = [F.col(RAW)]
    if record is not None:
        names = F.lit(None) if present is None else F.array(*[F.lit(name) for name in present])
        columns += [record.alias(RECORD), names.cast("array<string>").alias(PRESENT)]
    columns += [none.alias(KEY), (none if undecoded is None else undecoded).alias(UNDECODED)]
    return records.select(*columns, PUBLISHED, POSITION)


def read(
    session: SparkSession, files: Sequence[SourceFile], options: Mapping[str, str], *, needs_rows: bool
) -> DataFrame:
    """Return the lines of files: RAW, UNDECODED, PUBLISHED and POSITION.

    Rows count blank lines, too.
    """
    lines = cut(session, files, options)
    text = decoded(lines, options)
    return (numbered if needs_rows else located)(lines, as_raw(text))


def cut(session: SparkSession, files: Sequence[SourceFile], options: Mapping[str, str]) -> DataFrame:
    """Return the lines of files as Spark cuts them; a byte order mark at a file's beginning is dropped."""
    text = session.read
    separator = option(options, "lineSep")
    if separator:
        text = text.option("lineSep", separator)
    return text.text(paths(files))


def decoded(lines: DataFrame, options: Mapping[str, str]) -> Column:
    """Return the text of lines that :func:`cut` returned; bytes that are no UTF-8 stay as they are."""
    from pyspark.sql import functions as F

    line, encoding = lines["value"], option(options, "encoding", "charset") or _UTF8[0]
    return line if encoding.lower() in _UTF8 else F.decode(line.cast("binary"), encoding)


def as_raw(text: Column) -> list[Column]:
    """Return a record's RAW and UNDECODED.

    Bytes that are no text stay what they are, as base64: Spark would put another character in the place of
    each.
    """
    from pyspark.sql import functions as F

    broken = ~F.is_valid_utf8(text)
    raw = F.when(broken, F.concat(F.lit(BASE64), F.base64(text.cast("binary")))).otherwise(text)
    return [raw.alias(RAW), F.when(broken, F.lit("not UTF-8")).alias(UNDECODED)]


def numbered(records: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Return what :func:`located` does, with rows that are counted from 0 in each file.

    The parts that Spark cuts a file into are told by where they begin; inside a part it reads in order. So
    the numbers are the same however it cuts.
    """
    from pyspark.sql import functions as F

    found, in_order = in_files(records, columns)
    names = found.columns[: len(columns)]
    row = F.row_number().over(in_order) - 1
    return found.select(*names, PUBLISHED, place(F.col(FILE), row).alias(POSITION))


def in_files(records: DataFrame, columns: Sequence[Column]) -> tuple[DataFrame, WindowSpec]:
    """Return some columns of records, with PUBLISHED and FILE, and the records' order in their files."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    meta = records.metadataColumn("_metadata")
    found = records.select(
        *columns,
        _uri(meta.getField("file_path")).alias(FILE),
        meta.getField("file_modification_time").cast("timestamp").alias(PUBLISHED),
        meta.getField("file_block_start").alias(_START),
        F.monotonically_increasing_id().alias(_ID),
    )
    return found, Window.partitionBy(FILE).orderBy(_START, _ID)


def no_place() -> Column:
    """Return the POSITION of no record."""
    from pyspark.sql import functions as F

    return place(F.lit(None), F.lit(None))


def place(file: Column, row: Column) -> Column:
    """Return the POSITION of a record of a file."""
    from pyspark.sql import functions as F

    none = F.lit(None)
    return F.struct(file, row, none, none, none).cast(POSITION_DDL)


def _uri(file_path: Column) -> Column:
    """Return a file's name as it was planned: Spark's own spelling escapes it, and names the local scheme."""
    from pyspark.sql import functions as F

    # A plus sign stands for itself in a path; for a space it stands in forms only.
    text = F.url_decode(F.replace(file_path, F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(text, "^file:/+", "/")
