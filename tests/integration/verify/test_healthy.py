"""Targets of every kind, through all that can lawfully happen to them: a verification finds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.verify.targets import EVENT, FEED, LOG, Targets, do, expect_healthy, put

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    Table = Callable[[str], str]


def changed_source(spark: SparkSession, path: str) -> str:
    """Make a table in whose second version on each key meets something else."""
    do(
        spark,
        f"CREATE TABLE delta.`{path}` (k INT, v STRING, d DOUBLE, m MAP<STRING, INT>, u INT) "
        f"USING delta {FEED}",
        f"""INSERT INTO delta.`{path}` VALUES (1, 'a', double('-0.0'), map('x', 1, 'y', 2), 10),
            (2, 'b', double('NaN'), NULL, 10), (3, 'c', NULL, NULL, 10), (4, NULL, double(1.5), NULL, 10)""",
        f"UPDATE delta.`{path}` SET v = v || '2', u = 11 WHERE k < 4",
        f"DELETE FROM delta.`{path}` WHERE k IN (3, 4)",
        f"INSERT INTO delta.`{path}` SELECT 4, 'again', double(2.5), NULL, 2000",
        f"UPDATE delta.`{path}` SET v = NULL, d = NULL, u = 13 WHERE k = 1",
        f"ALTER TABLE delta.`{path}` ADD COLUMNS (more STRUCT<a: INT, b: STRING>)",
    )
    return path


@pytest.mark.slow
def test_targets_of_a_feed(spark: SparkSession, tmp_table: Table) -> None:
    source = changed_source(spark, tmp_table("source"))
    made = Targets(spark, tmp_table)
    made.add("current", source, keys=["k"])
    made.add("history", source, keys=["k"], stored_as_scd_type=2)
    made.run(initial_load={"from_version": 2})
    found = made.checks(history={"current": made.target("current")})
    expect_healthy(found)
    assert found["history"]["current_equals_history"].status == "ok"


@pytest.mark.slow
def test_other_targets_of_a_feed(spark: SparkSession, tmp_table: Table) -> None:
    source = changed_source(spark, tmp_table("source"))
    made = Targets(spark, tmp_table)
    dated: dict[str, Any] = {"sequence_by": "u", "delete_sequence": "u + 1000", "stored_as_scd_type": 2}
    made.add("dated", source, keys=["k"], start_column="since", end_column="until", **dated)
    made.add("listed", source, keys=["k"], sequence_by=["u", "k"], delete_sequence="struct(u + 1000, k)",
             stored_as_scd_type=2)  # fmt: skip
    shown = {"where": "k <> 2 OR v = 'b'", "select": ["k AS id", "upper(v) AS v", "d", "u"]}
    made.add("soft", source, keys=["id"], delete_mode="soft", apply_as_deletes="u = 13", **shown)
    made.add("known", source, keys=["k"], ignore_null_updates=True, stored_as_scd_type=2)
    made.add("nulls", source, keys=["k"], ignore_null_updates=True)
    made.add("few", source, keys=["k"], stored_as_scd_type=2, track_history_column_list=["v"],
             column_list=["v", "u"])  # fmt: skip
    made.add("parted", source, keys=["k"], partition_by={"p": "k % 2"})
    made.add("copies", source, keys=["k"], source_kind="snapshot", stored_as_scd_type=2)
    made.run(initial_load={"from_version": 2})
    # More columns, and rows that were mended, loaded anew, and taken back.
    do(
        spark,
        f"INSERT INTO delta.`{source}` VALUES (5, 'e', double(1), NULL, 10, named_struct('a', 1, 'b', NULL))",
    )
    made.run()
    made.run("dated", "few", mode="reload")
    made.run("nulls", mode="repair", repair_keys="k > 1")
    do(
        spark,
        f"OPTIMIZE delta.`{made.target('parted')}`",
        f"RESTORE TABLE delta.`{made.target('copies')}` TO VERSION AS OF 1",
        f"CREATE TABLE delta.`{made.target('declared')}` (k INT, v STRING, d DOUBLE) USING delta",
        f"INSERT INTO delta.`{made.target('declared')}` VALUES (1, 'nobody looked', 0)",
    )
    made.add("declared", source, keys=["k"], column_list=["v", "d"], initial_load="none")
    made.run("declared")
    expect_healthy(made.checks(), incomparable=("declared",))


@pytest.mark.slow
def test_targets_of_a_log(spark: SparkSession, tmp_table: Table) -> None:
    log = tmp_table("log")
    do(spark, f"CREATE TABLE delta.`{log}` ({EVENT}) USING delta "
       "TBLPROPERTIES ('delta.enableRowTracking' = 'true')")  # fmt: skip
    made = Targets(spark, tmp_table)
    made.add("history", log, stored_as_scd_type=2, track_history_column_list=["v"], on_late="discard", **LOG)
    made.add("soft", log, delete_mode="soft", on_late="discard", on_invalid="quarantine", **LOG)
    put(spark, log, *[(k, "a", 1, "I", 10) for k in (1, 2, 3, 4)], *[(k, "b", 2, "U", 20) for k in (1, 2, 3)],
        (3, None, None, "D", 21))  # fmt: skip
    made.run()
    # Events that come late, twice, and behind a truncate.
    put(
        spark,
        log,
        (1, "x", 3, "U", 15),
        (1, "x", 3, "U", 15),
        (None, None, None, "T", 12),
        (4, "c", 1, "U", 30),
    )
    made.run()
    # Behind the horizon only the last event of each key is left; what comes there after it counts nowhere.
    do(
        spark,
        f"ALTER TABLE delta.`{log}` SET TBLPROPERTIES ('delta_cdc.latenessHorizon' = '25')",
        f"DELETE FROM delta.`{log}` WHERE s < 20 AND op <> 'T'",
    )
    put(spark, log, (2, "late", 0, "U", 14), (1, "y", 4, "U", 40), (3, "back", 1, "I", 41))
    made.run()
    found = made.checks()
    expect_healthy(found)
    assert "before the lateness horizon, 25, stay" in found["history"]["equals_source"].detail


@pytest.mark.slow
def test_targets_of_other_sources(spark: SparkSession, tmp_table: Table) -> None:
    copies, rows, partial = tmp_table("copies"), tmp_table("rows"), tmp_table("partial")
    made = Targets(spark, tmp_table)
    schema = "k int, v string, at int"
    put(spark, copies, (1, "a", 1), (2, "b", 1), (1, "a2", 2), (3, "c", 2), (1, "a2", 3), schema=schema)
    of_copies: dict[str, Any] = {"source_kind": "snapshot", "snapshot_version_column": "at", "keys": ["k"]}
    made.add("snapshots", copies, except_column_list=["at"], **of_copies)
    made.add("snapshot_history", copies, stored_as_scd_type=2, except_column_list=["at"], **of_copies)
    put(spark, rows, (1, "a", 1), (1, "a", 1), (2, None, 2), (None, "c", 0), schema=schema)
    made.add("inserts", rows, insert_only=True, where="at > 0", select=["*", "at % 2 AS odd"])
    made.add("keyed", rows, keys=["k", "at"], where="k > 1 OR k IS NULL", on_invalid="quarantine")
    put(
        spark,
        partial,
        (1, "a", 1, "I", 10),
        (1, None, 2, "U", 20),
        (1, "c", None, "U", 30),
        (2, None, 1, "I", 5),
    )
    made.add("partial", partial, ignore_null_updates=True, stored_as_scd_type=2, **LOG)
    made.run()
    put(spark, partial, (1, None, 7, "U", 15), (2, None, None, "D", 6))
    put(spark, copies, (1, "a4", 4), (4, "d", 4), schema=schema)
    put(spark, rows, (3, "d", 3), (3, "d", 4), schema=schema)
    made.run()
    # The oldest copies are gone: history from before them stands.
    do(spark, f"DELETE FROM delta.`{copies}` WHERE at < 3")
    expect_healthy(made.checks())
