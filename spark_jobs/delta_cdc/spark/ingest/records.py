"""Read records from files, in the schema that adapters expect (:mod:`delta_cdc.core.change_log`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core.change_log import RAW, UNDECODED
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.reader_options import check_format_options
from delta_cdc.spark.ingest import columnar, delimited, lines
from delta_cdc.spark.sessions import set_where_allowed

if TYPE_CHECKING:
    from delta_cdc.core.spec import IngestOptions, IngestSpec, SourceFile

__all__ = ["again", "check_format_options", "declared", "read", "readable", "unreadable"]

#: The conf that limits the tasks of a listing. By default, Spark lists many files with one task per file.
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"


def read(
    session: SparkSession, spec: IngestSpec, needs_rows: bool, known: T.StructType | None = None
) -> DataFrame:
    """Return the records of a batch's files. Omit files that are unreadable as a whole.

    :param session: a private session, because the function changes its confs
    :param needs_rows: number the records of each file from 0. The numbers are the same at every read; they
        require a sort of each text file
    :param known: the columns of the change log, which give the types of CSV fields that ``schema`` omits
    :raises InvalidConfiguration: a reader option is not allowed, or CSV files have no column names
    :raises SourceUnreadable: columns of Parquet files have incompatible types
    """
    options, files = spec.options, readable(spec)
    check_format_options(options.format, options.format_options)
    set_where_allowed(session, {_LISTING_TASKS: "16"})
    if options.format == "parquet":
        return columnar.read(session, files, options.format_options, needs_rows=needs_rows)
    if options.format == "csv":
        types = (declared(options), known)
        return delimited.read(session, files, options.format_options, types, needs_rows=needs_rows)
    text_lines = lines.read(session, files, options.format_options, needs_rows=needs_rows)
    text_lines = text_lines.where(F.trim(RAW) != "")
    return lines.completed(text_lines, undecoded=text_lines[UNDECODED])


def again(found: DataFrame, options: IngestOptions, known: T.StructType | None) -> DataFrame:
    """Parse records again from their raw text.

    :param found: RAW, PUBLISHED and POSITION
    """
    types = (declared(options), known)
    if options.format == "parquet":
        return columnar.again(found, types)
    if options.format == "csv":
        return delimited.again(found, options.format_options, types)
    return lines.completed(found)


def declared(options: IngestOptions) -> T.StructType | None:
    """Return the columns that the option ``schema`` defines; None without this option.

    :raises InvalidConfiguration: the text names no columns
    """
    if not options.schema:
        return None
    schema = T.StructType.fromDDL(options.schema)
    if not isinstance(schema, T.StructType):
        raise InvalidConfiguration(
            f"schema {options.schema!r} names no columns.",
            remedy='write it as Spark does: "id INT, v STRING".',
        )
    return schema


def readable(spec: IngestSpec) -> list[SourceFile]:
    """Return the files of a batch that Spark can read."""
    unreadable_uris = {file.uri for file, _ in unreadable(spec)}
    return [file for file in spec.files if not file.missing and file.uri not in unreadable_uris]


def unreadable(spec: IngestSpec) -> list[tuple[SourceFile, str]]:
    """Return the files that are unreadable as a whole, each with the reason."""
    reasons = [(file, file.unreadable or _skip_reason(file.uri)) for file in spec.files if not file.missing]
    return [(file, reason) for file, reason in reasons if reason]


def _skip_reason(uri: str) -> str:
    """Return why Spark silently skips a file of this name; "" if it reads the file."""
    name = uri.rsplit("/", 1)[-1]
    if name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_"):
        return "Spark reads no file of such a name; rename it"
    if uri.startswith("/") and ":" in name:
        return "Hadoop's local file system reads no name with a colon; rename it"
    return ""
