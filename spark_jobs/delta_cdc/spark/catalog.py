"""Resolve names in Spark's catalogs to the location and the id of a table."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from delta_cdc.core.errors import NotADeltaTable, TableNotFound
from delta_cdc.core.spec import JobResult
from delta_cdc.core.sql import table
from delta_cdc.spark.sessions import analysed

if TYPE_CHECKING:
    from delta_cdc.core.spec import ResolveSpec

log = logging.getLogger(__name__)

#: Error classes of Delta and Spark for an object that exists, but is not a Delta table.
_NO_DELTA = ("EXPECT_TABLE_NOT_VIEW", "NOT_A_DELTA", "MISSING_DELTA", "DELTA_TABLE_ONLY_OPERATION")

#: Error classes for a missing object, complete names: a missing data source, class or log file is a different
#: problem. Spark treats a catalog that is not configured as a part of a namespace.
_ABSENT = frozenset(
    {
        "CATALOG_NOT_FOUND",
        "DELTA_MISSING_DELTA_TABLE",
        "DELTA_NO_RELATION_TABLE",
        "DELTA_PATH_DOES_NOT_EXIST",
        "DELTA_TABLE_NOT_FOUND",
        "PATH_NOT_FOUND",
        "REQUIRES_SINGLE_PART_NAMESPACE",
        "SCHEMA_NOT_FOUND",
        "TABLE_OR_VIEW_NOT_FOUND",
        "VIEW_NOT_FOUND",
    }
)

_REMEDY = (
    "correct the name, and see that the application runs with the confs of that catalog; a table that is not "
    "there yet is named by its path, or made with CREATE TABLE first."
)


def run(spark: SparkSession, spec: ResolveSpec) -> JobResult:
    """Resolve every name of a spec. Nothing is written.

    :return: per name ``{table, table_id, location}``; with several names, an invalid one gets
        ``{table, error}``
    :raises TableNotFound: the only name does not exist
    :raises NotADeltaTable: the only name is a view, or a table of another format
    """
    results = []
    for name in spec.tables:
        try:
            row = delta_detail(spark, name, remedy=_REMEDY)
        except (TableNotFound, NotADeltaTable) as error:
            if len(spec.tables) == 1:
                raise
            results.append({"table": name, "error": error.to_dict()})
            continue
        log.info("%s lies at %s", name, row["location"])
        results.append({"table": name, "table_id": row["id"], "location": row["location"]})
    return JobResult(status="committed", tables=tuple(results))


def delta_detail(session: SparkSession, name: str, *, remedy: str) -> dict[str, Any]:
    """Return Delta's description of a table, as ``DESCRIBE DETAIL`` gives it.

    :param name: path, URI or catalog name
    :param remedy: what to do if no table has that name
    :raises TableNotFound: the name does not exist
    :raises NotADeltaTable: the name is a view, or a table of another format
    """
    try:
        row = session.sql(f"DESCRIBE DETAIL {table(name)}").collect()[0].asDict()
    except Exception as error:
        text = str(error)
        if any(part in text for part in _NO_DELTA) and _something_is_at(session, name):
            raise NotADeltaTable(
                f"{name} is not a Delta table.", remedy="name a Delta table, or convert it to Delta first."
            ) from error
        if not says_absent(error):
            raise
        raise TableNotFound(f"{name} does not exist.", remedy=remedy) from error
    if row["format"] != "delta":
        raise NotADeltaTable(
            f"{name} is a {row['format']} table, not a Delta table.", remedy="convert it to Delta first."
        )
    return row


def says_absent(error: Exception) -> bool:
    """Return whether the error means that the name does not exist. A failing catalog is another error."""
    # An unreachable metastore also raises an AnalysisException.
    condition = error.getCondition() or "" if isinstance(error, AnalysisException) else ""
    return condition in _ABSENT


def _something_is_at(session: SparkSession, name: str) -> bool:
    """Return whether a path has other files. Delta's error is the same for an empty path."""
    if "/" not in name:
        return True
    try:
        analysed(session.read.format("binaryFile").load(name))
    except Exception as error:
        if not says_absent(error):
            raise
        return False
    return True
