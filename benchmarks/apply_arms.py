"""The arms of the benchmark of applying changes: ours, and what people would run instead.

Each brings a target up to a source, from version ``first`` to ``last`` of it. What they share is the target's
layout and the session; what is not ours is written as well as one would by hand: the change feed is read
once, pre-images are left out, each key is looked up once.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from apply_tables import ATTRIBUTES, COLUMNS, END, START, arguments

from delta_cdc import apply_changes
from delta_cdc.core.sql import table as sql_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from apply_cells import Cell
    from apply_tables import Source
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Way:
    """One way to bring a target up to date.

    :param layout: of the target it starts from; see :meth:`apply_tables.Workshop.target`
    :param run: what is timed
    :param cannot: says why a cell is left out; None where it isn't
    :param names: the arm's own names of columns -> ours
    """

    name: str
    layout: str
    run: Callable[[SparkSession, Cell, Source, Path], object]
    cannot: Callable[[Cell], str | None]
    names: tuple[tuple[str, str], ...] = ()


# -- ours ---------------------------------------------------------------------------------------
def ours(session: SparkSession, cell: Cell, source: Source, target: Path) -> object:
    """Apply as our users do: plan, run, confirm."""
    return apply_changes(session, str(source.path), str(target), **arguments(cell))


# -- by hand ------------------------------------------------------------------------------------
def feed(session: SparkSession, cell: Cell, source: Source) -> DataFrame:
    """Read what the change feed says about states after a commit, and deletes; of a log its new events."""
    reader = session.read.format("delta").option("readChangeFeed", "true")
    rows = reader.option("startingVersion", source.first).option("endingVersion", source.last)
    found = rows.load(str(source.path)).where("_change_type <> 'update_preimage'")
    if cell.kind == "change_feed":
        return found
    kind = "IF(operation = 'D', 'delete', 'update_postimage') AS _change_type"
    return found.selectExpr(*COLUMNS, kind, "sequence AS _commit_version")


def by_hand(session: SparkSession, cell: Cell, source: Source, target: Path) -> object:
    """Run the MERGE that a good engineer writes.

    No literals in ON: finding the bounds of a batch takes a pass over it of its own, which pays in one cell
    and costs in the others.
    """
    feed(session, cell, source).createOrReplaceTempView("changes")
    merge = _HISTORY if cell.scd_type == 2 else _CURRENT
    return session.sql(merge.format(target=sql_table(str(target)))).collect()


_LISTED = ", ".join(COLUMNS)
_GIVEN = ", ".join(f"s.{name}" for name in COLUMNS)
_SET = ", ".join(f"t.{name} = s.{name}" for name in ATTRIBUTES)

_CURRENT = f"""
    MERGE INTO {{target}} AS t
    USING (
        SELECT * FROM (
            SELECT *, row_number() OVER (PARTITION BY id ORDER BY _commit_version DESC) AS newest FROM changes
        ) WHERE newest = 1
    ) AS s
    ON t.id = s.id
    WHEN MATCHED AND s._change_type = 'delete' THEN DELETE
    WHEN MATCHED THEN UPDATE SET {_SET}
    WHEN NOT MATCHED AND s._change_type <> 'delete' THEN INSERT ({_LISTED}) VALUES ({_GIVEN})
"""

# A key's first change meets its open row; what is to be inserted has no key to meet anything with.
_HISTORY = f"""
    WITH versions AS (
        SELECT *, row_number() OVER in_order AS place, lead(_commit_version) OVER in_order AS until
        FROM changes WINDOW in_order AS (PARTITION BY id ORDER BY _commit_version)
    )
    MERGE INTO {{target}} AS t
    USING (
        SELECT id AS met, * FROM versions WHERE place = 1 AND _change_type <> 'insert'
        UNION ALL
        SELECT NULL AS met, * FROM versions WHERE _change_type <> 'delete'
    ) AS s
    ON t.id = s.met AND t.{END} IS NULL
    WHEN MATCHED THEN UPDATE SET t.{END} = s._commit_version
    WHEN NOT MATCHED AND s.met IS NULL
        THEN INSERT ({_LISTED}, {START}, {END}) VALUES ({_GIVEN}, s._commit_version, s.until)
"""


# -- by hand, equal work ------------------------------------------------------------------------
def by_hand_checked(session: SparkSession, cell: Cell, source: Source, target: Path) -> object:
    """Keep the promises of an apply of type 1 by hand, for this table: the statement that grew up.

    It starts at the version that the target's last commit names, refuses a key of two rows and a type of
    change that it does not know, drops rows that end as they began, counts, and commits rows and version at
    once, so that a second run of the same range changes nothing.
    """
    table = sql_table(str(target))
    session.sql(f"DESCRIBE HISTORY {table} LIMIT 1").select("userMetadata").collect()
    reader = session.read.format("delta").option("readChangeFeed", "true")
    rows = reader.option("startingVersion", source.first).option("endingVersion", source.last)
    rows.load(str(source.path)).createOrReplaceTempView("changes")
    net = session.sql(_NET).persist()
    net.createOrReplaceTempView("net")
    confs = {
        "spark.databricks.delta.write.txnAppId": "by hand",
        "spark.databricks.delta.write.txnVersion": str(source.last),
        "spark.databricks.delta.commitInfo.userMetadata": str(source.last),
    }
    try:
        twice, unknown, _ = net.selectExpr("count_if(twice)", "count_if(unknown)", "count(operation)").first()
        if twice or unknown:
            raise ValueError(f"{twice} keys belong to two rows, {unknown} have an unknown type of change")
        for name, value in confs.items():
            session.conf.set(name, value)
        return session.sql(_CHECKED.format(target=table)).collect()
    finally:
        for name in confs:
            session.conf.unset(name)
        net.unpersist()


_STATE = f"struct({', '.join(ATTRIBUTES)})"

_NET = f"""
    WITH sides AS (
        SELECT *, _change_type IN ('insert', 'update_postimage') AS written,
            _change_type NOT IN ('insert', 'update_postimage', 'delete', 'update_preimage') AS strange
        FROM changes
    ), neighbours AS (
        SELECT *, lead(written) OVER in_order AS following FROM sides
        WINDOW in_order AS (PARTITION BY id ORDER BY _commit_version, written)
    ), wholes AS (
        SELECT *, first_value(IF(written, NULL, {_STATE})) OVER whole AS before,
            max(written <=> following) OVER whole AS twice, max(strange) OVER whole AS unknown
        FROM neighbours WINDOW whole AS (
            PARTITION BY id ORDER BY _commit_version, written
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        )
    )
    SELECT {_LISTED}, twice, unknown, CASE
        WHEN NOT written THEN IF(before IS NULL, NULL, 'delete')
        WHEN NOT (before <=> {_STATE}) THEN 'upsert'
    END AS operation FROM wholes WHERE following IS NULL
"""

_CHECKED = f"""
    MERGE INTO {{target}} AS t USING (SELECT * FROM net WHERE operation IS NOT NULL) AS s ON t.id = s.id
    WHEN MATCHED AND s.operation = 'delete' THEN DELETE
    WHEN MATCHED THEN UPDATE SET {_SET}
    WHEN NOT MATCHED AND s.operation = 'upsert' THEN INSERT ({_LISTED}) VALUES ({_GIVEN})
"""


# -- mack ---------------------------------------------------------------------------------------
MACK_NAMES = (("effective_time", START), ("end_time", END))


def mack(session: SparkSession, cell: Cell, source: Source, target: Path) -> object:
    """Call mack with the feed's post-images: it wants one change per key, and none that deletes."""
    from delta.tables import DeltaTable  # noqa: TID251 - what mack takes

    updates = feed(session, cell, source).selectExpr(*COLUMNS, "_commit_version AS effective_time")
    upsert = importlib.import_module("mack").type_2_scd_upsert
    return upsert(DeltaTable.forPath(session, str(target)), updates, "id", list(ATTRIBUTES))


def _not_by_mack(cell: Cell) -> str | None:
    if importlib.util.find_spec("mack") is None or importlib.util.find_spec("delta") is None:
        return "mack is not installed"
    if cell.scd_type != 2:
        return "writes type 2 alone"
    if cell.mix == "mixed":
        return "knows no deletes, and one change per key"
    return None


# -- rewriting ----------------------------------------------------------------------------------
def rank_and_overwrite(session: SparkSession, cell: Cell, source: Source, target: Path) -> object:
    """Rank rows and changes of the touched partitions together, and overwrite these."""
    changes = feed(session, cell, source).selectExpr(*COLUMNS, "_change_type", "_commit_version")
    touched = [row[0] for row in changes.select("month").distinct().collect()]
    kept = session.read.format("delta").load(str(target)).where(f"month IN ({', '.join(map(str, touched))})")
    both = changes.union(kept.selectExpr(*COLUMNS, "'kept'", "CAST(-1 AS BIGINT)"))
    ranked = both.selectExpr("*", "rank() OVER (PARTITION BY id ORDER BY _commit_version DESC) AS place")
    rows = ranked.where("place = 1 AND _change_type <> 'delete'").select(*COLUMNS)
    writer = rows.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic")
    return writer.save(str(target))


def overwrite(session: SparkSession, cell: Cell, source: Source, target: Path) -> object:
    """Write the whole source again."""
    rows = session.read.format("delta").option("versionAsOf", source.last).load(str(source.path))
    return rows.write.format("delta").mode("overwrite").save(str(target))


def _type_1(cell: Cell) -> str | None:
    return None if cell.scd_type == 1 else "keeps no history"


def _type_1_of_a_feed(cell: Cell) -> str | None:
    if cell.kind == "change_log":
        return "needs the source's rows, a log has events"
    return _type_1(cell)


# -- delta-rs -----------------------------------------------------------------------------------
def delta_rs(session: SparkSession, cell: Cell, source: Source, target: Path) -> object:
    """Read the feed and merge without Spark; the newest change of each key is picked by Arrow."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    read = DeltaTable(str(source.path)).load_cdf(source.first, source.last)
    rows = pa.table(read)
    # Arrow's compute functions know no string views, in which delta-rs gives text.
    plain = [f.with_type(pa.string()) if f.type == pa.string_view() else f for f in rows.schema]
    rows = rows.cast(pa.schema(plain))
    rows = rows.filter(pc.not_equal(rows["_change_type"], "update_preimage"))
    newest = rows.group_by("id").aggregate([("_commit_version", "max")])
    newest = newest.rename_columns({"_commit_version_max": "_commit_version"})
    batch = rows.join(newest, ["id", "_commit_version"], join_type="inner").select([*COLUMNS, "_change_type"])
    merger = DeltaTable(str(target)).merge(batch, "t.id = s.id", source_alias="s", target_alias="t")
    return (
        merger.when_matched_delete("s._change_type = 'delete'")
        .when_matched_update({name: f"s.{name}" for name in ATTRIBUTES})
        .when_not_matched_insert({name: f"s.{name}" for name in COLUMNS}, "s._change_type <> 'delete'")
        .execute()
    )


def _by_hand(cell: Cell) -> str | None:
    return None


def _checked_by_hand(cell: Cell) -> str | None:
    return None if cell.scd_type == 1 and cell.kind == "change_feed" else "was written for type 1 of a feed"


WAYS = (
    Way("ours", "ours", ours, _by_hand),
    Way("MERGE by hand", "ours", by_hand, _by_hand),
    Way("by hand, equal work", "ours", by_hand_checked, _checked_by_hand),
    Way("mack", "mack", mack, _not_by_mack, MACK_NAMES),
    Way("RANK and overwrite", "partitioned", rank_and_overwrite, _type_1),
    Way("full overwrite", "plain", overwrite, _type_1_of_a_feed),
    Way("delta-rs", "plain", delta_rs, _type_1_of_a_feed),
)


def find_peers(folder: Path) -> None:
    """Let Python find packages that were installed into a folder of their own."""
    if folder.is_dir() and str(folder) not in sys.path:
        sys.path.append(str(folder))
        importlib.invalidate_caches()
