"""Show the rows of a change query: for people as a table, for programs as JSON lines, CSV or Parquet.

All formats have the same order: by version, then by key, the preimage before the postimage. Spark counts the
rows while it reads them, so a truncated table can show the total, and the source is read only once.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.reserved_columns import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    METADATA_COLUMNS,
    NEW,
    OLD,
    UPDATE,
)
from delta_cdc.core.sql import quote
from delta_cdc.core.text_table import aligned, clipped, plural
from delta_cdc.spark.changes.equality import has_equality
from delta_cdc.spark.changes.feed import is_after

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, Observation
    from pyspark.sql.types import DataType

FORMATS = ("table", "json", "csv", "parquet")
#: The most terminal columns of a value in a table; the other formats have the whole value.
WIDEST = 40
#: The most characters of a value that Spark returns for a table; an escape may need several columns.
_HANDED_OVER = 4 * WIDEST
_CHANGE_TYPES = ("insert", "update_preimage", "update_postimage", UPDATE, "delete")
#: Microseconds and offset: Spark's default timestamp format would lose them.
_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_JSON = {**_TIMES, "ignoreNullFields": "false"}
#: RFC 4180; NULL is an empty field, and an empty text a pair of quotes.
_CSV = {
    **_TIMES,
    "header": "true",
    "escape": '"',
    "nullValue": "",
    "emptyValue": '""',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}


def check(output_format: str, path: Path | None, limit: int | None) -> None:
    """Reject invalid combinations of options, before anything is read.

    :raises InvalidConfiguration: names the option
    """
    if limit is not None and limit < 1:
        raise _invalid(f"limit is {limit}", "give a number >= 1.")
    if path is None:
        if output_format == "parquet":
            raise _invalid("format is parquet without an output", "name a file with --output.")
        return
    if output_format == "table":
        raise _invalid("an output is given for a table", "choose --format csv, json or parquet for a file.")
    if "://" in str(path) or not path.parent.is_dir():
        raise _invalid(f"output {path} lies in no folder of this machine", "name a local file.")
    _refuse_existing(path)


def _refuse_existing(path: Path) -> None:
    if path.exists():
        raise _invalid(f"output {path} exists already", "remove it, or name another file.")


def _invalid(problem: str, remedy: str) -> InvalidConfiguration:
    return InvalidConfiguration(f"The output cannot be written: {problem}.", remedy=remedy)


# -- for people ---------------------------------------------------------------------------------
def table(rows: DataFrame, keys: Sequence[str], limit: int, *, wide: bool = False) -> tuple[list[str], str]:
    """Read the rows of a change query; return the lines of a table, and a text with the counts.

    :param rows: the rows that :func:`delta_cdc.read_changes` returns
    :param keys: the key columns, if there are any: rows are sorted by them
    :param limit: the number of rows to show
    :param wide: each row has the states before and after a change
    """
    from pyspark.sql import types as T

    counted, observation = _counted(rows)
    shown = _first(counted, keys, limit, wide=wide)
    schema = rows.schema
    names = [COMMIT_VERSION, CHANGE_TYPE, *values(rows), COMMIT_TIMESTAMP]
    columns = [_as_text(name, schema[name].dataType).alias(f"_{index}") for index, name in enumerate(names)]
    values_ = shown.select(*columns).collect()
    texts = [isinstance(schema[name].dataType, T.StringType) for name in names]
    right = [isinstance(schema[name].dataType, T.NumericType) for name in names]
    cells = [[cell(value, text) for value, text in zip(row, texts, strict=True)] for row in values_]
    header = [clipped(name, WIDEST) for name in names]
    return list(aligned(header, cells, right)), counts_text(_counts(rows, observation), limit)


def cell(value: str | None, is_text: bool) -> str:
    """Return a value's text in a table: at most :data:`WIDEST` wide, on one line."""
    if value is None:
        return "NULL"
    if is_text and (value in ("", "NULL") or value != value.strip()):
        # Otherwise it would look like NULL, or be invisible.
        value = f"'{value}'"
    return clipped(value, WIDEST)


def _as_text(name: str, data_type: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    value = F.col(quote(name))
    if name == COMMIT_TIMESTAMP:
        return F.date_format(value, "yyyy-MM-dd HH:mm:ssXXX")
    if isinstance(data_type, T.TimestampType):
        return F.concat(value.cast("string"), F.date_format(value, "XXX"))
    if isinstance(data_type, T.BinaryType):
        return F.concat(F.lit("0x"), F.substring(F.hex(value), 1, _HANDED_OVER))
    if _is_nested(data_type):
        value = F.to_json(value, _JSON)
    return F.substring(value.cast("string"), 1, _HANDED_OVER)


# -- for programs -------------------------------------------------------------------------------
def write(
    rows: DataFrame,
    keys: Sequence[str],
    output_format: str,
    *,
    limit: int | None,
    path: Path | None,
    wide: bool = False,
) -> str:
    """Write the rows of a change query to a file or to standard output; return a text with the counts.

    Spark writes one temporary file, so this process's memory use does not grow with the rows, and readers of
    ``path`` see the whole file or none.

    :param rows: the rows that :func:`delta_cdc.read_changes` returns
    :param output_format: ``json`` (one object per line), ``csv`` or ``parquet``
    :param limit: the number of rows to write; None writes all
    :param path: the file; None is standard output
    :param wide: each row has the states before and after a change
    :raises InvalidConfiguration: another process has created a file of that name
    """
    from pyspark.sql import functions as F

    counted, observation = _counted(rows)
    shown = _first(counted, keys, limit, wide=wide)
    # Next to the file, on the same file system, so that the result can be renamed.
    folder = Path(tempfile.mkdtemp(prefix=".delta-cdc-", dir=None if path is None else path.parent.resolve()))
    try:
        target = str(folder / "rows")
        if output_format == "json":
            row_struct = F.struct(*[quote(name) for name in rows.columns])
            shown.select(F.to_json(row_struct, _JSON).alias("value")).write.text(target)
        elif output_format == "csv":
            plain = [_plain(name, rows.schema[name].dataType).alias(name) for name in rows.columns]
            shown.select(*plain).write.options(**_CSV).csv(target)
        else:
            shown.write.parquet(target)
        (part,) = folder.glob("rows/part-*")
        if path is None:
            with part.open(encoding="utf-8", newline="") as text:
                shutil.copyfileobj(text, sys.stdout)
        else:
            _refuse_existing(path)
            part.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return counts_text(_counts(rows, observation), limit)


def csv_line(names: Iterable[str]) -> str:
    """Return the header of a CSV file without rows, as Spark would write it."""
    import csv
    import io

    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(names)
    return line.getvalue()


def _plain(name: str, data_type: DataType) -> Column:
    """Return a value in a form that a CSV field can hold."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    value = F.col(quote(name))
    if isinstance(data_type, T.BinaryType):
        return F.base64(value)
    return F.to_json(value, _JSON) if _is_nested(data_type) else value


# -- both ---------------------------------------------------------------------------------------
def _is_nested(data_type: DataType) -> bool:
    from pyspark.sql import types as T

    return isinstance(data_type, T.ArrayType | T.MapType | T.StructType | T.VariantType)


def values(rows: DataFrame) -> list[str]:
    """Return the columns that come from the table or the projection, without metadata columns."""
    return [name for name in rows.columns if name not in METADATA_COLUMNS]


def key_names(rows: DataFrame, *, wide: bool) -> list[str]:
    """Return the columns among which the keys are; in a wide row, those of the states before and after."""
    return rows.select(f"{NEW}.*").columns if wide else values(rows)


def _counted(rows: DataFrame) -> tuple[DataFrame, Observation]:
    """Return the rows, and an observation that counts them by change type while they are read."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    observation = Observation()
    kinds = [F.count_if(F.col(CHANGE_TYPE) == name).alias(name) for name in _CHANGE_TYPES]
    return rows.observe(observation, *kinds), observation


def _counts(rows: DataFrame, observation: Observation) -> Mapping[str, int]:
    """Return what was observed: nothing, where Spark finds while planning that there is no row."""
    try:
        return observation.get
    except Exception:
        if not rows.isEmpty():
            raise
        return {}


def counts_text(by_type: Mapping[str, int], limit: int | None) -> str:
    """Return a text with the number of rows, by change type, and with the number of shown rows."""
    total = sum(by_type.values())
    rows = plural(total, "row")
    if limit is not None and limit < total:
        rows = f"the first {limit} of {rows}"
    kinds = ", ".join(f"{name} {by_type[name]}" for name in _CHANGE_TYPES if by_type.get(name))
    return f"{rows} ({kinds})" if kinds else rows


def _first(rows: DataFrame, keys: Sequence[str], limit: int | None, *, wide: bool) -> DataFrame:
    """Return the rows sorted, in one partition. Without keys, the first column replaces them."""
    from pyspark.sql import functions as F

    sortable = [name for name in values(rows) if has_equality(rows.schema[name].dataType)]
    names = map(quote, list(keys) or sortable[:1])
    first = [F.col(name) for name in names]
    if wide and keys:
        first = [F.coalesce(F.col(f"{NEW}.{quote(key)}"), F.col(f"{OLD}.{quote(key)}")) for key in keys]
    by = [F.col(COMMIT_VERSION), *first, is_after(), *map(F.col, map(quote, sortable))]
    if limit is not None:
        return rows.orderBy(*by).limit(limit)
    # A global sort would read the source twice, the first time to sample its sort columns.
    return rows.repartition(1).sortWithinPartitions(*by)
