"""Reads of changes that are refused: before Spark reads a row, or by the rows themselves. Never a guess.

What the log alone tells is in tests/unit/plan/test_changes_refusals.py, what a query says of made-up rows in
test_queries.py, and a reader that is none in test_feed.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import read_changes
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.reserved_columns import METADATA_COLUMNS
from delta_cdc.core.sql import table as sql_name
from delta_cdc.spark.changes.feed import FORBIDDEN_CONFS
from delta_cdc.spark.changes.queries import named_in_plan
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED, ROWS = "'delta.enableChangeDataFeed' = 'true'", "'delta.enableRowTracking' = 'true'"
COLUMNS = "id INT, n INT, v STRING, m MAP<STRING, INT>"
#: What each version does to the table ``id, n, v, m`` of the cases below.
CASES = (
    f"CREATE TABLE {{}} ({COLUMNS}) USING delta TBLPROPERTIES ({FEED}, {ROWS})",
    "INSERT INTO {} VALUES (1, 1, 'a', NULL), (2, 2, 'b', map('k', 1))",
    "INSERT INTO {} VALUES (1, 6, 'again', NULL)",
    "DELETE FROM {} WHERE n = 6",
    "INSERT INTO {} VALUES (4, 4, 'x', NULL), (4, 5, 'y', NULL)",
    "DELETE FROM {} WHERE id = 4",
    "UPDATE {} SET id = 7 WHERE id IN (1, 2)",
    "UPDATE {} SET id = n",
    "INSERT INTO {} VALUES (NULL, 8, 'c', NULL), (9, 9, 'd', NULL)",
)
CAPTURES = ("change_files", "row_tracking", "snapshot_diff")
#: Two rows of one key: where they meet, and an example that the message names.
NOT_UNIQUE: dict[str, tuple[int, int, str]] = {
    "inserted together": (4, 4, "id = 4"),
    "inserted twice over": (1, 2, "id = 1"),
    "two keys become one": (6, 6, "id = 7"),
    "one key becomes two": (7, 7, "id = 7"),
}


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    return made(spark, tmp_path_factory.mktemp("refusals") / "table", *CASES)


def made(spark: SparkSession, path: Path, *statements: str) -> str:
    """Run statements on a table; ``{}`` is its name."""
    for statement in statements:
        spark.sql(statement.format(sql_name(str(path))))
    return str(path)


def refused(spark: SparkSession, path: str, name: str, *words: str, **asked: Any) -> DeltaCdcError:
    """Read all rows and demand the named error, which leaves the table as it was."""
    before = files(path)
    error = _error(spark, path, **asked)
    assert type(error).__name__ == name, error
    assert error.remedy
    for word in words:
        assert word in error.message, error
    assert files(path) == before
    return error


def _error(spark: SparkSession, path: str, **asked: Any) -> DeltaCdcError:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        read_changes(spark, path, **asked).collect()
    if isinstance(raised.value, DeltaCdcError):
        return raised.value
    named = named_in_plan(raised.value)
    assert named is not None, raised.value
    return named


def files(path: str) -> set[tuple[str, int]]:
    return {(str(file), file.stat().st_mtime_ns) for file in Path(path).rglob("*") if file.is_file()}


# -- what only the rows tell --------------------------------------------------------------------
@pytest.mark.parametrize("method", slow_but(CAPTURES, "snapshot_diff"))
@pytest.mark.parametrize("case", slow_but(NOT_UNIQUE, "two keys become one", "inserted together"))
def test_a_key_of_two_rows(spark: SparkSession, table: str, case: str, method: str) -> None:
    starting, ending, example = NOT_UNIQUE[case]
    span = {"starting_version": starting, "ending_version": ending, "keys": "id", "method": method}
    words = (table, f"versions {starting}", example)
    refused(spark, table, "KeyNotUnique", *words, **span, query="min_delta")


@pytest.mark.parametrize("asked", [{"query": "upsert"}, {"query": "full_delta", "where": "true"}])
def test_a_key_of_two_rows_is_refused_by_every_query_that_has_keys(
    spark: SparkSession, table: str, asked: dict[str, Any]
) -> None:
    refused(spark, table, "KeyNotUnique", "id = 4", starting_version=4, ending_version=4, keys="id", **asked)


@pytest.mark.parametrize("method", CAPTURES)
def test_a_key_that_is_null(spark: SparkSession, table: str, method: str) -> None:
    span = {"starting_version": 8, "query": "min_delta", "method": method}
    refused(spark, table, "NullKey", table, "id = NULL", **span, keys="id")
    assert read_changes(spark, table, **span, keys="id", where="id IS NOT NULL").count() == 1


# -- what the session and the columns tell ------------------------------------------------------
@pytest.mark.parametrize("conf", FORBIDDEN_CONFS)
def test_a_session_in_which_loss_would_be_silent(spark: SparkSession, table: str, conf: str) -> None:
    spark.conf.set(conf, "true")
    try:
        refused(spark, table, "ForbiddenConf", conf, starting_version=1)
    finally:
        spark.conf.unset(conf)


NET = {"query": "min_delta", "keys": "id"}


@pytest.mark.parametrize(
    ("asked", "name", "word"),
    [
        ({"ending_version": 9}, "RangeNotContiguous", " 8."),
        ({"ending_version": 9, **NET, "method": "row_tracking"}, "RangeNotContiguous", " 8."),
        ({"starting_timestamp": "2026-01-01T00:00:00Z"}, "InvalidConfiguration", "starting_timestamp"),
        ({**NET, "keys": "nope"}, "ColumnNotFound", "'nope'"),
        ({**NET, "select": ["n", "v"]}, "ColumnNotFound", "'id'"),
        ({**NET, "where": "nope > 1"}, "InvalidExpression", "where"),
        ({**NET, "where": "n"}, "InvalidExpression", ""),
        ({**NET, "where": "_change_type = 'insert'"}, "InvalidExpression", "where"),
        ({"select": ["id", "_commit_version AS x"]}, "InvalidExpression", "select"),
        ({"select": ["id", "v AS __delta_cdc_order"]}, "ReservedColumnName", "__delta_cdc_order"),
    ],
)
def test_arguments_that_name_nothing(
    spark: SparkSession, table: str, asked: dict[str, Any], name: str, word: str
) -> None:
    given = {"starting_version": 3, "ending_version": 3, **asked}
    refused(spark, table, name, word, **given)


def test_a_name_that_the_catalog_does_not_know(spark: SparkSession) -> None:
    with pytest.raises(DeltaCdcError) as error:
        read_changes(spark, "spark_catalog.default.nowhere", starting_version=0)
    assert type(error.value).__name__ == "TableNotFound"


# -- real tables whose log refuses --------------------------------------------------------------
@pytest.mark.slow
def test_row_tracking_that_comes_later(spark: SparkSession, tmp_path: Path) -> None:
    """The backfill of row ids makes versions of its own; before the last of them, rows have no ids."""
    path = made(
        spark,
        tmp_path / "late",
        "CREATE TABLE {} (id INT, v STRING) USING delta",
        "INSERT INTO {} VALUES (1, 'a'), (2, 'b')",
        f"ALTER TABLE {{}} SET TBLPROPERTIES ({ROWS})",
        "UPDATE {} SET v = 'x' WHERE id = 1",
        "DELETE FROM {} WHERE id = 2",
    )
    newest = spark.sql(f"DESCRIBE HISTORY {sql_name(path)} LIMIT 1").collect()[0]["version"]
    asked = {"starting_version": 1, "ending_version": newest}
    refused(spark, path, "ReadMethodUnavailable", "Version 1", "row_tracking", **asked, method="row_tracking")
    refused(spark, path, "ReadMethodUnavailable", "Version 1", "row_tracking", **asked, query="min_delta")
    # The versions that turned it on change no data.
    after = {**asked, "starting_version": 2}
    told = read_changes(spark, path, **after, method="row_tracking").drop(METADATA_COLUMNS[2])
    assert sorted(map(tuple, told.collect())) == [
        (1, "a", "update_preimage", newest - 1),
        (1, "x", "update_postimage", newest - 1),
        (2, "b", "delete", newest),
    ]
    net = read_changes(spark, path, **asked, **NET)
    assert [tuple(row)[:3] for row in net.collect()] == [(1, "x", "insert")]


@pytest.mark.slow
def test_files_that_vacuum_took(spark: SparkSession, tmp_path: Path) -> None:
    at_once = "'delta.deletedFileRetentionDuration' = 'interval 0 hours'"
    path = made(
        spark,
        tmp_path / "vacuumed",
        f"CREATE TABLE {{}} (id INT, v STRING) USING delta TBLPROPERTIES ({FEED}, {ROWS}, {at_once})",
        "INSERT INTO {} VALUES (1, 'a'), (2, 'b')",
        "UPDATE {} SET v = 'x' WHERE id = 1",
    )
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    # Delta lists folders with as many tasks; the default is made for clusters.
    session.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
    session.sql(f"VACUUM {sql_name(path)} RETAIN 0 HOURS")
    spark.sql(f"ALTER TABLE {sql_name(path)} UNSET TBLPROPERTIES ('delta.deletedFileRetentionDuration')")
    for method in CAPTURES:
        error = refused(spark, path, "VersionsExpired", "version 2", starting_version=2, method=method, **NET)
        assert "VACUUM" in error.message
