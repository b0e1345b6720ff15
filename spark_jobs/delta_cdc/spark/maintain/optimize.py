"""Rewrite the files of a table with OPTIMIZE or REORG. No row changes, so change readers see no change."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from delta_cdc.core import maintenance_tags
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.reasons import reason
from delta_cdc.core.spec import JobResult
from delta_cdc.core.sql import quote, table
from delta_cdc.spark.sessions import require_confs, set_where_allowed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delta_cdc.core.spec import OptimizeSpec

log = logging.getLogger(__name__)

#: Delta's error classes for a layout that the table does not support.
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
    """Run one OPTIMIZE, or REORG to purge rows that deletion vectors mask.

    A maintenance tag in its commit lets a later run recognise that the same work is done.

    :raises InvalidConfiguration: the table does not support this layout; nothing was written
    """
    text = statement(spec)
    log.info("%s", text)
    try:
        tag = maintenance_tags.written("optimize", **spec.tag)
        with marked(session, tag, required=False):
            metrics = session.sql(text).collect()[0]["metrics"]
    except Exception as error:
        if not any(name in str(error) for name in _UNFIT):
            raise
        raise InvalidConfiguration(
            f"{spec.table_uri} cannot be laid out by {text!r}: {reason(error)}",
            remedy="correct where, zorder_by or full; a clustered table takes none of the first two.",
        ) from error
    counts = {"files_added": metrics["numFilesAdded"], "files_removed": metrics["numFilesRemoved"]}
    outcome = {
        **counts,
        "bytes_added": metrics["filesAdded"]["totalSize"],
        "bytes_removed": metrics["filesRemoved"]["totalSize"],
    }
    if spec.purge and not counts["files_removed"]:
        # Delta 4.4 skips files that are clustered already, even if they contain masked rows.
        outcome["note"] = "nothing was purged: Delta leaves files that are clustered already as they are"
    return JobResult("committed", counts=counts, tables=(outcome,))


def statement(spec: OptimizeSpec) -> str:
    """Return the SQL of a spec; ``where`` is the user's own Spark SQL."""
    where = f" WHERE {spec.where}" if spec.where is not None else ""
    if spec.purge:
        return f"REORG TABLE {table(spec.table_uri)}{where} APPLY (PURGE)"
    zorder = f" ZORDER BY ({', '.join(map(quote, spec.zorder_by))})" if spec.zorder_by else ""
    return f"OPTIMIZE {table(spec.table_uri)}{' FULL' if spec.full else ''}{where}{zorder}"


@contextmanager
def marked(session: SparkSession, text: str, *, required: bool = True) -> Iterator[None]:
    """Write a maintenance tag into the commit of the statement inside the ``with`` block.

    :param required: whether others must recognise the commit; without its tag, only work is repeated
    :raises SparkRestricted: the session refuses the conf, and the tag is required
    """
    tag = {maintenance_tags.CONF: text}
    if required:
        require_confs(session, tag, at_start=False)
    taken = required or set_where_allowed(session, tag)
    try:
        yield
    finally:
        if taken:
            session.conf.unset(maintenance_tags.CONF)
