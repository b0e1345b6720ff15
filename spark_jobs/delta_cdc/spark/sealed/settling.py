"""Take rows out of a quarantine with a commit to another table, whatever dies between the two commits.

1. Before its commit, a step marks the rows that it writes into its table. Each try has a mark of its own, so
   the marks of a try that never commits mean nothing.
2. The seal of the commit records the mark. From then on, a row with this mark is not in quarantine.
3. After the commit, the step deletes the rows with the mark. If the run dies before, the next step deletes
   them, before its own commit; until then, readers leave them out.

A row keeps the marks of several tries: two drivers may compute the same rows, and only one commits.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_cdc.core.quarantine import SETTLED_BY, SETTLING
from delta_cdc.core.sql import PLAN_PREFIX, quote, string, table
from delta_cdc.spark import catalog

if TYPE_CHECKING:
    from delta_cdc.core.watermark import Seal

#: How many marks a row keeps: the newest ones.
_MOST_MARKS = 8


@dataclass(frozen=True)
class Settled:
    """The rows that a step takes out of a quarantine.

    :param uri: location of the quarantine
    :param condition: SQL over the aliases ``q`` of the quarantine and ``s`` of ``rows``
    :param rows: each row of the quarantine matches at most one of them; None: the condition names no ``s``
    :param mark: what this try marks them with
    """

    uri: str
    condition: str
    rows: DataFrame | None = None
    mark: str = field(default_factory=lambda: uuid4().hex)


def recorded(seal: Seal, settled: Settled | None) -> Seal:
    """Return the seal of a step, with the mark of the rows that it takes out, and without an earlier mark."""
    configuration = {name: value for name, value in seal.state.configuration.items() if name != SETTLING}
    if settled is not None:
        configuration[SETTLING] = settled.mark
    return replace(seal, state=replace(seal.state, configuration=configuration))


def mark(session: SparkSession, settled: Settled) -> None:
    """Mark the rows that a step takes out. A quarantine that was dropped since has no such rows."""
    if not catalog.has_table(session, settled.uri):
        return
    _add_column(session, settled.uri)
    view = f"{PLAN_PREFIX}settled_{settled.mark}"
    rows = session.range(1) if settled.rows is None else settled.rows
    rows.createOrReplaceTempView(view)
    marks = f"array_union(array({string(settled.mark)}), coalesce(q.{SETTLED_BY}, array()))"
    try:
        session.sql(
            f"MERGE INTO {table(settled.uri)} AS q USING {quote(view)} AS s ON {settled.condition} "
            f"WHEN MATCHED THEN UPDATE SET {SETTLED_BY} = filter({marks}, (one, at) -> at < {_MOST_MARKS})"
        )
    finally:
        session.catalog.dropTempView(view)


def _add_column(session: SparkSession, uri: str) -> None:
    """Add the column of the marks to a quarantine, which does not begin with it."""
    if _has_column(session, uri):
        return
    try:
        session.sql(f"ALTER TABLE {table(uri)} ADD COLUMNS ({SETTLED_BY} ARRAY<STRING>)")
    except Exception:
        # Another run may have added it at the same time.
        if not _has_column(session, uri):
            raise


def delete(session: SparkSession, uri: str, mark: str) -> None:
    """Delete the rows that a commit took out of a quarantine.

    :param mark: what the seal of this commit records
    """
    if catalog.has_table(session, uri) and _has_column(session, uri):
        session.sql(f"DELETE FROM {table(uri)} WHERE array_contains({SETTLED_BY}, {string(mark)})")


def left(rows: DataFrame, mark: str | None) -> DataFrame:
    """Return the rows of a quarantine that the newest commit did not take out.

    :param mark: what the newest seal in effect records; None if it took nothing out
    """
    if mark is None or SETTLED_BY not in rows.columns:
        return rows
    is_out = F.coalesce(F.array_contains(F.col(SETTLED_BY), mark), F.lit(False))
    return rows.where(~is_out)


def _has_column(session: SparkSession, uri: str) -> bool:
    return SETTLED_BY in session.read.format("delta").load(uri).columns
