"""``where`` on partition columns: each answer is that of the versions' rows; other files stay unread."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from delta_cdc import apply_changes, read_changes
from delta_cdc.core.errors import NotInsertOnly
from delta_cdc.delta_log import manifest_feed

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

FEED, TRACKED = "delta.enableChangeDataFeed", "delta.enableRowTracking"
SPECIAL = "a/b=c %2F'ü"
COLUMNS = "id INT, v STRING, p STRING, d DATE, n DECIMAL(6,2), t TIMESTAMP, s SMALLINT, b BOOLEAN"
PARTITIONS = ("p", "d", "n", "t", "s", "b")
#: The partitions, by the last digit of an id.
VALUES = f"""VALUES
    (0, "{SPECIAL}", DATE'2026-01-31', 1.50BD,   TIMESTAMP'2026-01-31 23:59:59.123456', 1S,    true),
    (1, 'plain',     DATE'1582-10-15', -0.01BD,  TIMESTAMP'2026-01-31 00:00:00',        -2S,   false),
    (2, NULL,        NULL,             NULL,     NULL,                                  NULL,  NULL),
    (3, "{SPECIAL}", NULL,             1234.5BD, TIMESTAMP'2026-02-01 00:00:00',        1S,    NULL)
    AS of(k, p, d, n, t, s, b)"""
#: Predicates, from those that only partition columns decide to those that need every file.
WHERES = {
    "special text and a column of the data": f"""p = "{SPECIAL}" AND v <> 'x'""",
    "NULL": "p IS NULL",
    "a date": "d >= DATE'2026-01-01'",
    "a decimal": "n <= 1.5",
    "a timestamp": "t < TIMESTAMP'2026-01-31 12:00:00' OR (t IS NULL AND v = 'y')",
    "a function, in another case": "length(P) > 5 AND coalesce(S, 0) = 1",
    "a list": "s IN (1, 7) AND NOT b <=> false",
    "a partition or a column of the data": "p = 'plain' OR v = 'z'",
}
METHODS = ("change_files", "manifest", "row_tracking", "snapshot_diff")


def _moved(name: str, ids: str, to: int) -> str:
    columns = ", ".join(f"t.{column} = s.{column}" for column in PARTITIONS)
    return f"""MERGE INTO {name} t USING (SELECT * FROM {VALUES} WHERE k = {to}) s ON t.id IN ({ids})
        WHEN MATCHED THEN UPDATE SET {columns}"""


def _new(ids: str, v: str) -> str:
    columns = f"CAST(id AS INT) AS id, '{v}' AS v, {', '.join(PARTITIONS)}"
    return f"SELECT {columns} FROM range({ids}) JOIN {VALUES} ON k = id % 4"


def made(spark: SparkSession, path: str, **properties: str) -> str:
    """Make a table whose rows change in place, and move between partitions, also to NULL and back."""
    name = f"delta.`{path}`"
    given = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    spark.sql(
        f"CREATE TABLE {name} ({COLUMNS}) USING delta PARTITIONED BY ({', '.join(PARTITIONS)}) "
        f"TBLPROPERTIES ({given})"
    )
    spark.sql(f"INSERT INTO {name} {_new('0, 32', 'x')}")
    spark.sql(f"UPDATE {name} SET v = 'y' WHERE id % 3 = 0")
    spark.sql(_moved(name, "0, 1, 3", 2))
    spark.sql(f"DELETE FROM {name} WHERE id IN (4, 5, 6, 7)")
    spark.sql(_moved(name, "0, 2, 9", 0))
    spark.sql(f"INSERT INTO {name} {_new('4, 8', 'z')}")
    rows = (
        spark.read.format("delta")
        .load(path)
        .where("p = 'plain'")
        .selectExpr("id", "IF(id > 20, v, 'z') AS v", *PARTITIONS)
    )
    rows.localCheckpoint().write.format("delta").mode("overwrite").option("replaceWhere", "p = 'plain'").save(
        path
    )
    return path


TABLES: dict[str, dict[str, str]] = {
    "mapped": {FEED: "true", TRACKED: "true", "delta.columnMapping.mode": "name"},
    "plain": {FEED: "true", TRACKED: "true", "delta.enableDeletionVectors": "false"},
    "without a feed": {TRACKED: "true"},
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return the function that makes a table, once, and returns its path."""
    folder = tmp_path_factory.mktemp("partitions")
    return cache(lambda name: made(spark, str(folder / name), **TABLES[name]))


@pytest.fixture(scope="module")
def versions(spark: SparkSession, tables: Callable[[str], str]) -> list[list[Any]]:
    """Return the rows of each version, each with whether it matches each predicate: all tables are equal."""
    matches = [f"coalesce({where}, false) AS m{at}" for at, where in enumerate(WHERES.values())]
    reader = spark.read.format("delta")
    return [
        reader.option("versionAsOf", version).load(tables("mapped")).selectExpr("*", *matches).collect()
        for version in range(8)
    ]


def states(versions: list[list[Any]], version: int, where: str) -> dict[int, tuple[Any, ...]]:
    at = 8 + list(WHERES).index(where)
    return {row["id"]: tuple(row[:8]) for row in versions[version] if row[at]}


def expected(versions: list[list[Any]], where: str, *, net: bool) -> Counter[Any]:
    """Compare the matching rows of one version with those of the version before, by key."""
    changes: Counter[Any] = Counter()
    for first, last in [(0, 7)] if net else [(at - 1, at) for at in range(1, 8)]:
        before, after = states(versions, first, where), states(versions, last, where)
        for key in before.keys() | after.keys():
            old, new = before.get(key), after.get(key)
            if old != new:
                kind = "insert" if old is None else "delete" if new is None else "update"
                changes[kind, None if net else last, old, new] += 1
    return changes


def answer(spark: SparkSession, path: str, method: str, where: str | None) -> DataFrame:
    query = "min_delta" if method == "snapshot_diff" else "full_delta"
    method = "change_files" if method == "manifest" else method
    options: dict[str, Any] = {"query": query, "method": method, "keys": ["id"], "wide": True}
    return read_changes(spark, path, starting_version=1, where=where, **options)


@pytest.fixture
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "manifest":
        monkeypatch.setattr(manifest_feed, "WORTHWHILE", 0)
    return str(request.param)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, indirect=True)
@pytest.mark.parametrize("table", list(TABLES)[:2])
@pytest.mark.parametrize("where", WHERES)
def test_the_answer_is_that_of_all_files(
    spark: SparkSession,
    tables: Callable[[str], str],
    versions: list[list[Any]],
    where: str,
    method: str,
    table: str,
) -> None:
    check(spark, tables(table), method, versions, where)


def check(spark: SparkSession, path: str, method: str, versions: list[list[Any]], where: str) -> None:
    found = answer(spark, path, method, WHERES[where]).collect()
    net = method == "snapshot_diff"
    changes = Counter(
        (row["_change_type"], None if net else row["_commit_version"], row["old"] and tuple(row["old"]),
         row["new"] and tuple(row["new"]))
        for row in found
    )  # fmt: skip
    wanted = expected(versions, where, net=net)
    assert changes == wanted, (method, changes - wanted, wanted - changes)
    assert wanted


def damage(path: str, value: str | None) -> int:
    """Overwrite every data file of the partitions in which no value is this one; return how many."""
    damaged = set()
    for commit in Path(path, "_delta_log").glob("*.json"):
        for line in commit.read_text(encoding="utf-8").splitlines():
            for name, action in json.loads(line).items():
                if name in ("add", "remove", "cdc") and value not in action["partitionValues"].values():
                    damaged.add(unquote(action["path"]))
    for file in damaged:
        whole = Path(path, file)
        whole.write_bytes(b"\0" * whole.stat().st_size)
        whole.with_name(f".{whole.name}.crc").unlink(missing_ok=True)
    return len(damaged)


@pytest.fixture
def copied(tables: Callable[[str], str], tmp_path: Path) -> Callable[[str], str]:
    """Return the function that copies a table and damages the files of all partitions but one."""

    def copy(name: str) -> str:
        path = str(tmp_path / "source")
        shutil.copytree(tables(name), path)
        assert damage(path, SPECIAL) > 10
        return path

    return copy


@pytest.mark.slow
@pytest.mark.parametrize("table", list(TABLES)[:2])
def test_files_of_other_partitions_are_not_read(
    spark: SparkSession,
    copied: Callable[[str], str],
    versions: list[list[Any]],
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They could not be: their bytes are gone. Rows have moved from and to these partitions."""
    path = copied(table)
    where = "special text and a column of the data"
    for name in METHODS:
        with monkeypatch.context() as patch:
            if name == "manifest":
                patch.setattr(manifest_feed, "WORTHWHILE", 0)
            check(spark, path, name, versions, where)
    with pytest.raises(Exception, match="FAILED_READ_FILE"):
        answer(spark, path, METHODS[0], None).collect()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("table", ["mapped", "without a feed"])
def test_an_apply_reads_no_files_of_other_partitions(
    spark: SparkSession,
    tmp_path: Path,
    copied: Callable[[str], str],
    versions: list[list[Any]],
    kind: int,
    table: str,
) -> None:
    """A row that moved to a partition outside of the filter is deleted from the target, or closed there."""
    path, target = copied(table), str(tmp_path / "target")
    where = "special text and a column of the data"
    options: dict[str, Any] = {"keys": ["id"], "where": WHERES[where], "stored_as_scd_type": kind}
    apply_changes(spark, path, target, initial_load={"from_version": 3}, **options)
    rows = spark.read.format("delta").load(target)
    if kind == 2:
        rows = rows.where("__END_AT IS NULL").drop("__START_AT", "__END_AT")
    assert {row["id"]: tuple(row) for row in rows.collect()} == states(versions, 7, where)
    assert states(versions, 2, where).keys() - states(versions, 7, where).keys()


@pytest.mark.slow
def test_an_append_knows_an_update_that_enters_the_filter(spark: SparkSession, tmp_path: Path) -> None:
    """It appends inserts alone, so it filters no rows before it knows what the commit did to them."""
    path, target = str(tmp_path / "source"), str(tmp_path / "target")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id INT, p STRING) USING delta PARTITIONED BY (p) "
        f"TBLPROPERTIES ('{TRACKED}' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'in'), (2, 'out')")
    options: dict[str, Any] = {"insert_only": True, "where": "p = 'in'"}
    apply_changes(spark, path, target, **options)
    spark.sql(f"UPDATE delta.`{path}` SET p = 'in' WHERE id = 2")
    with pytest.raises(NotInsertOnly, match=r"Version 2 .* update_postimage"):
        apply_changes(spark, path, target, **options)
