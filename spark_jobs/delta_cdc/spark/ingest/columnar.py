"""Read records from Parquet files.

Files with the same schema form a group, so that the reader knows the columns of each record.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from delta_cdc.core.errors import SourceUnreadable
from delta_cdc.core.reasons import reason
from delta_cdc.core.sql import quote
from delta_cdc.ingest import sources
from delta_cdc.spark.ingest import lines as text
from delta_cdc.spark.ingest.widening import wider

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.core.spec import SourceFile

    #: Files that share one schema.
    Group = tuple[T.StructType, list[SourceFile]]

_REMEDY = "write the files with types of one family, or deliver those with other types to a log of their own."
_THREADS = 8
#: Spark's error class for a Parquet type that it does not support; the error does not name the file.
ILLEGAL = "PARQUET_TYPE_ILLEGAL"


def read(
    session: SparkSession, files: Sequence[SourceFile], options: Mapping[str, str]
) -> tuple[list[tuple[T.StructType, DataFrame]], T.StructType]:
    """Return the rows of Parquet files, in groups of files with the same columns, and the columns of all.

    The rows have the columns of :mod:`delta_cdc.ingest.sources` that say where they come from.

    :raises SourceUnreadable: no type holds all values of a column; the error names two such files
    """
    groups = _groups(session, files, options)
    parts = []
    for schema, group in groups:
        rows = session.read.options(**options).schema(schema).parquet(*text.paths(group))
        row = rows.metadataColumn("_metadata").getField("row_index").alias(sources.ROW)
        columns = [rows[quote(field.name)] for field in schema.fields]
        parts.append((schema, rows.select(*columns, *text.place(rows), row)))
    return parts, _widest(groups)


# -- groups of files -----------------------------------------------------------------------------
def _groups(session: SparkSession, files: Sequence[SourceFile], options: Mapping[str, str]) -> list[Group]:
    """Group the files by their schemas, which are in their footers."""
    by_columns: dict[tuple[tuple[str, ...], ...], list[SourceFile]] = defaultdict(list)
    for file in files:
        by_columns[file.columns, file.untyped].append(file)
    groups: list[Group] = []
    for (columns, _), group in by_columns.items():
        schema = _merged(session, group, options) if columns or len(group) == 1 else None
        groups += [(schema, group)] if schema is not None else _one_by_one(session, group, options)
    return groups


def _merged(
    session: SparkSession, files: Sequence[SourceFile], options: Mapping[str, str]
) -> T.StructType | None:
    """Return the common schema of files with the same columns; None if their types differ."""
    merge = "true" if len(files) > 1 else "false"
    reader = session.read.options(**options).option("mergeSchema", merge)
    try:
        return reader.parquet(*text.paths(files)).schema
    except Exception as error:
        # Compare the text, because the error from the JVM has no class in Python.
        if "CANNOT_MERGE" in str(error) or ILLEGAL in str(error):
            return None
        raise


def _one_by_one(
    session: SparkSession, files: Sequence[SourceFile], options: Mapping[str, str]
) -> list[Group]:
    def schema(file: SourceFile) -> T.StructType:
        try:
            return session.read.options(**options).parquet(*text.paths([file])).schema
        except Exception as error:
            if ILLEGAL not in str(error):
                raise
            raise SourceUnreadable(
                f"{file.uri} has a column of a type that Spark does not read ({ILLEGAL}): {reason(error)}",
                remedy="write it with another type, for instance timestamps in microseconds.",
            ) from error

    with ThreadPoolExecutor(_THREADS) as pool:
        schemas = list(pool.map(schema, files))
    groups: dict[str, Group] = {}
    for file, file_schema in zip(files, schemas, strict=True):
        groups.setdefault(file_schema.json(), (file_schema, []))[1].append(file)
    return list(groups.values())


def _widest(groups: Sequence[Group]) -> T.StructType:
    """Return a schema that holds the records of all files; NULL for a column without a type."""
    widest: dict[str, tuple[T.StructField, SourceFile]] = {}
    for schema, files in groups:
        for field in schema.fields:
            given = T.NullType() if field.name in files[0].untyped else field.dataType
            first_field, first_file = widest.get(
                field.name.lower(), (T.StructField(field.name, given), files[0])
            )
            if isinstance(first_field.dataType, T.NullType):
                first_file = files[0]
            kind = wider(first_field.dataType, given)
            if kind is None:
                raise SourceUnreadable(
                    f"The column {field.name} is {first_field.dataType.simpleString()} in {first_file.uri} "
                    f"and {field.dataType.simpleString()} in {files[0].uri}: no type holds both.",
                    remedy=_REMEDY,
                )
            widest[field.name.lower()] = (T.StructField(first_field.name, kind), first_file)
    return T.StructType([field for field, _ in widest.values()])
