"""Read lines of text files with their positions. All file readers share the helpers of this module.

The reader reads exactly the planned files, under their planned names. It escapes the names, so that Spark
does not treat part of a name as a pattern.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window, WindowSpec

from delta_cdc.core.change_log import KEY, POSITION, POSITION_DDL, PRESENT, PUBLISHED, RAW, RECORD, UNDECODED
from delta_cdc.core.sql import PLAN_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.core.spec import SourceFile
from delta_cdc.core.reader_options import UTF8, option

_PATTERN = re.compile(r"([\\\[\]{}*?])")
#: The prefix of RAW if the bytes of a line are not UTF-8.
BASE64 = "base64:"

#: The column with the planned name of a line's file.
FILE = f"{PLAN_PREFIX}path"
_START, _ID = f"{PLAN_PREFIX}start", f"{PLAN_PREFIX}id"
#: The columns that order the records of a file, in frames of :func:`in_files`.
IN_ORDER = (_START, _ID)


def paths(files: Sequence[SourceFile]) -> list[str]:
    """Return the paths for Spark's readers, with pattern characters escaped."""
    return [as_path(file.uri) for file in files]


def as_path(uri: str) -> str:
    """Return the path of a file for Spark's readers, with pattern characters escaped."""
    return _PATTERN.sub(r"\\\1", uri)


def located(records: DataFrame, columns: Sequence[Column], row: Column | None = None) -> DataFrame:
    """Return columns of records from files, with the position of each record.

    :param row: the row number of a record in its file; None if unknown
    :return: ``columns``, PUBLISHED and POSITION
    """
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
    """Return records in the schema that adapters expect.

    :param records: has RAW, PUBLISHED, POSITION, and the columns that the other arguments use
    """
    null_text = F.lit(None).cast("string")
    columns = [F.col(RAW)]
    if record is not None:
        names = F.lit(None) if present is None else F.array(*[F.lit(name) for name in present])
        columns += [record.alias(RECORD), names.cast("array<string>").alias(PRESENT)]
    columns += [null_text.alias(KEY), (null_text if undecoded is None else undecoded).alias(UNDECODED)]
    return records.select(*columns, PUBLISHED, POSITION)


def read(
    session: SparkSession, files: Sequence[SourceFile], options: Mapping[str, str], *, needs_rows: bool
) -> DataFrame:
    """Return the lines of files: RAW, UNDECODED, PUBLISHED and POSITION.

    Blank lines count in the row numbers.
    """
    lines = split_lines(session, files, options)
    text = decoded(lines, options)
    return (numbered if needs_rows else located)(lines, as_raw(text))


def split_lines(session: SparkSession, files: Sequence[SourceFile], options: Mapping[str, str]) -> DataFrame:
    """Return the lines of files as Spark splits them, without a byte order mark at the start of a file."""
    text = session.read
    separator = option(options, "lineSep")
    if separator:
        text = text.option("lineSep", separator)
    return text.text(paths(files))


def decoded(lines: DataFrame, options: Mapping[str, str]) -> Column:
    """Return the text of lines from :func:`split_lines`. Bytes that are not UTF-8 stay unchanged."""
    line, encoding = lines["value"], option(options, "encoding", "charset") or UTF8[0]
    return line if encoding.lower() in UTF8 else F.decode(line.cast("binary"), encoding)


def as_raw(text: Column) -> list[Column]:
    """Return a record's RAW and UNDECODED.

    RAW contains invalid UTF-8 as base64, because Spark would replace each invalid byte.
    """
    broken = ~F.is_valid_utf8(text)
    raw = F.when(broken, F.concat(F.lit(BASE64), F.base64(text.cast("binary")))).otherwise(text)
    return [raw.alias(RAW), F.when(broken, F.lit("not UTF-8")).alias(UNDECODED)]


def numbered(records: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Return the same as :func:`located`, with row numbers from 0 in each file.

    Spark splits a file into parts with known start offsets, and reads each part in order. So the numbers do
    not depend on the split.
    """
    ordered, in_order = in_files(records, columns)
    names = ordered.columns[: len(columns)]
    row = F.row_number().over(in_order) - 1
    return ordered.select(*names, PUBLISHED, place(F.col(FILE), row).alias(POSITION))


def in_files(records: DataFrame, columns: Sequence[Column]) -> tuple[DataFrame, WindowSpec]:
    """Return columns of records, with PUBLISHED and FILE, and the order of the records in their files."""
    meta = records.metadataColumn("_metadata")
    rows = records.select(
        *columns,
        _uri(meta.getField("file_path")).alias(FILE),
        meta.getField("file_modification_time").cast("timestamp").alias(PUBLISHED),
        meta.getField("file_block_start").alias(_START),
        F.monotonically_increasing_id().alias(_ID),
    )
    return rows, Window.partitionBy(FILE).orderBy(_START, _ID)


def place(file: Column, row: Column) -> Column:
    """Return the POSITION of a record in a file."""
    null = F.lit(None)
    return F.struct(file, row, null, null, null).cast(POSITION_DDL)


def _uri(file_path: Column) -> Column:
    """Return the planned name of a file. Spark reports an escaped name, with a scheme for local files."""
    # A plus sign in a path means a plus sign, but url_decode would replace it with a space.
    decoded_path = F.url_decode(F.replace(file_path, F.lit("+"), F.lit("%2B")))
    text = F.when(file_path.contains("%"), decoded_path).otherwise(file_path)
    return F.when(text.startswith("file:"), F.regexp_replace(text, "^file:/+", "/")).otherwise(text)
