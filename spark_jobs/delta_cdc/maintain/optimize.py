"""Lays the files of a table out anew. No row changes, so readers of changes see nothing of it."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from delta_cdc.errors import InvalidConfiguration
from delta_cdc.maintain import marks
from delta_cdc.reasons import reason
from delta_cdc.spec import JobResult
from delta_cdc.sql import quote, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from delta_cdc.spec import OptimizeSpec

log = logging.getLogger(__name__)

#: What Delta says of a table that cannot be laid out as asked for.
_UNFIT = (
    "DELTA_CLUSTERING_WITH_ZORDER_BY",
    "DELTA_CLUSTERING_WITH_PARTITION_PREDICATE",
    "DELTA_OPTIMIZE_FULL_NOT_SUPPORTED",
    "DELTA_NON_PARTITION_COLUMN_REFERENCE",
    "DELTA_ZORDERING_ON_PARTITION_COLUMN",
    "DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST",
    "DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS",
    "UNRESOLVED_COLUMN",
    "PARSE_SYNTAX_ERROR",
)


def run(session: SparkSession, spec: OptimizeSpec) -> JobResult:
    """Run one OPTIMIZE, or REORG to purge masked rows.

    :raises InvalidConfiguration: the table cannot be laid out so; nothing was written
    """
    text = statement(spec)
    log.info("%s", text)
    try:
        with marked(session, mark(spec)):
            row = session.sql(text).collect()[0]
    except Exception as error:
        if not any(name in str(error) for name in _UNFIT):
            raise
        raise InvalidConfiguration(
            f"{spec.table_uri} cannot be laid out by {text!r}: {reason(error)}",
            remedy="correct where, zorder_by or full; a clustered table takes none of the first two.",
        ) from error
    done = row["metrics"]
    found = {
        "table": spec.table_uri,
        "files_added": done["numFilesAdded"],
        "files_removed": done["numFilesRemoved"],
        "bytes_added": done["filesAdded"]["totalSize"],
        "bytes_removed": done["filesRemoved"]["totalSize"],
    }
    if spec.purge and not done["numFilesRemoved"]:
        # Delta 4.4 passes over files that are clustered already, masked rows or not.
        found["note"] = "nothing was purged: Delta leaves files that are clustered already as they are"
    counts = {name: found[name] for name in ("files_added", "files_removed")}
    return JobResult("committed", counts=counts, tables=(found,))


def statement(spec: OptimizeSpec) -> str:
    """Return the SQL of a spec; the predicate is the user's own Spark SQL."""
    where = f" WHERE {spec.where}" if spec.where is not None else ""
    if spec.purge:
        return f"REORG TABLE {table(spec.table_uri)}{where} APPLY (PURGE)"
    along = f" ZORDER BY ({', '.join(map(quote, spec.zorder_by))})" if spec.zorder_by else ""
    return f"OPTIMIZE {table(spec.table_uri)}{' FULL' if spec.full else ''}{where}{along}"


def mark(spec: OptimizeSpec) -> str:
    """Return what the commit says of itself: by it a later run knows that it would do the same again."""
    return marks.written("optimize", **asked(spec))


def asked(spec: OptimizeSpec) -> dict[str, Any]:
    """Return what is asked for, as JSON has it."""
    return {
        "where": spec.where,
        "zorder_by": list(spec.zorder_by),
        "full": spec.full,
        "purge": spec.purge,
    }


@contextmanager
def marked(session: SparkSession, text: str) -> Iterator[None]:
    """Let the one statement inside carry a mark."""
    session.conf.set(marks.CONF, text)
    try:
        yield
    finally:
        session.conf.unset(marks.CONF)
