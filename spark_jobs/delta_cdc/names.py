"""What only Spark's catalogs know: where the table behind a name lies, and which one it is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from delta_cdc.errors import NotADeltaTable, TableNotFound
from delta_cdc.sessions import analysed
from delta_cdc.spec import JobResult
from delta_cdc.sql import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delta_cdc.spec import ResolveSpec

log = logging.getLogger(__name__)

#: Error classes of Delta and Spark for something that is there, but is no Delta table.
_NO_DELTA = ("EXPECT_TABLE_NOT_VIEW", "NOT_A_DELTA", "MISSING_DELTA", "DELTA_TABLE_ONLY_OPERATION")

#: The same for nothing at all. A catalog that is not configured is taken for a part of a namespace.
_ABSENT = ("NOT_FOUND", "MISSING_DELTA", "DOES_NOT_EXIST", "REQUIRES_SINGLE_PART_NAMESPACE")

_REMEDY = (
    "correct the name, and see that the application runs with the confs of that catalog; a table that is not "
    "there yet is named by its path, or made with CREATE TABLE first."
)


def run(spark: SparkSession, spec: ResolveSpec) -> JobResult:
    """Look every name of a spec up. Nothing is written.

    :return: per name ``{table, table_id, location}``; of several, one that is none has ``{table, error}``
    :raises TableNotFound: naming the table, where it is the only one
    :raises NotADeltaTable: likewise, for a view, or a table of another format
    """
    found = []
    for name in spec.tables:
        try:
            row = delta_detail(spark, name, remedy=_REMEDY)
        except (TableNotFound, NotADeltaTable) as error:
            if len(spec.tables) == 1:
                raise
            found.append({"table": name, "error": error.to_dict()})
            continue
        log.info("%s lies at %s", name, row["location"])
        found.append({"table": name, "table_id": row["id"], "location": row["location"]})
    return JobResult(status="committed", tables=tuple(found))


def delta_detail(session: SparkSession, name: str, *, remedy: str) -> dict[str, Any]:
    """Return Delta's description of a table, as ``DESCRIBE DETAIL`` gives it.

    :param name: path, URI or catalog name
    :param remedy: what to do where nothing has that name
    :raises TableNotFound: where nothing is there
    :raises NotADeltaTable: for a view, or a table of another format
    """
    try:
        row = session.sql(f"DESCRIBE DETAIL {table(name)}").collect()[0].asDict()
    except Exception as error:
        text = str(error)
        if any(part in text for part in _NO_DELTA) and _something_is_at(session, name):
            raise NotADeltaTable(
                f"{name} is not a Delta table.", remedy="name a Delta table, or convert it to Delta first."
            ) from error
        if not _says_absent(error):
            raise
        raise TableNotFound(f"{name} does not exist.", remedy=remedy) from error
    if row["format"] != "delta":
        raise NotADeltaTable(
            f"{name} is a {row['format']} table, not a Delta table.", remedy="convert it to Delta first."
        )
    return row


def _says_absent(error: Exception) -> bool:
    """Tell a name that nothing has from a catalog that does not answer."""
    from pyspark.errors import AnalysisException

    # A metastore that is away makes an AnalysisException, too.
    condition = error.getCondition() or "" if isinstance(error, AnalysisException) else ""
    return any(part in condition for part in _ABSENT)


def _something_is_at(session: SparkSession, name: str) -> bool:
    """Tell an empty place from one with other files: of a path, Delta says the same in both cases."""
    from pyspark.errors import AnalysisException

    if "/" not in name:
        return True
    try:
        analysed(session.read.format("binaryFile").load(name))
    except AnalysisException:
        return False
    return True
