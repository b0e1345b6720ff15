"""Reading Delta's change feed: with the schema as of the range's end, whatever came later."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from delta_cdc.core import reserved_columns
from delta_cdc.core.errors import SchemaChangeInRange, WrongReader
from delta_cdc.core.options import QueryOptions
from delta_cdc.core.sql import table as sql_name
from delta_cdc.spark.changes import feed
from delta_cdc.spark.changes.queries import answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.conf import RuntimeConfig

CONFS = (
    "spark.databricks.delta.changeDataFeed.allowTimeTravelOptionsForSchema",
    "spark.databricks.delta.changeDataFeed.defaultSchemaModeForColumnMappingTable",
)
FEED = "'delta.enableChangeDataFeed' = 'true'"
WIDENING, MAPPING = "'delta.enableTypeWidening' = 'true'", "'delta.columnMapping.mode' = 'name'"
#: Table -> what each version does to it. What comes after version 2 cannot be read with its schema.
TABLES = {
    "widened, then replaced": (
        f"CREATE TABLE {{}} (id INT, v INT) USING delta TBLPROPERTIES ({FEED}, {WIDENING})",
        "INSERT INTO {} VALUES (1, 10)",
        "ALTER TABLE {} ADD COLUMN w STRING",
        "ALTER TABLE {} ALTER COLUMN v TYPE BIGINT",
        f"CREATE OR REPLACE TABLE {{}} USING delta TBLPROPERTIES ({FEED}) AS SELECT 'r' AS id, 1 AS other",
    ),
    "dropped and renamed": (
        f"CREATE TABLE {{}} (id INT, v INT) USING delta TBLPROPERTIES ({FEED}, {MAPPING})",
        "INSERT INTO {} VALUES (1, 10)",
        "ALTER TABLE {} ADD COLUMN w STRING",
        "ALTER TABLE {} DROP COLUMN w",
        "ALTER TABLE {} RENAME COLUMN v TO v2",
    ),
}


def made(spark: SparkSession, path: Path, statements: Sequence[str]) -> str:
    for statement in statements:
        spark.sql(statement.format(sql_name(str(path))))
    return str(path)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("feeds")
    return {
        name: made(spark, folder / str(number), statements)
        for number, (name, statements) in enumerate(TABLES.items())
    }


def told(rows: DataFrame, *columns: str) -> list[tuple[object, ...]]:
    """Return rows of changes as (type, version, values), in the order of a key's history."""
    found = [
        (row["_change_type"], row["_commit_version"], *[row[name] for name in columns])
        for row in rows.collect()
    ]
    return sorted(found, key=lambda row: (row[1], row[0] in ("insert", "update_postimage"), row[2:]))


@pytest.mark.parametrize("name", TABLES)
def test_an_old_range_is_read_with_the_columns_it_had_at_its_end(
    spark: SparkSession, tables: dict[str, str], name: str
) -> None:
    rows = feed.change_rows(spark, tables[name], 0, 2, ["id", "v", "w"], at=2)
    assert rows.select("id", "v", "w").schema.simpleString() == "struct<id:int,v:int,w:string>"
    assert told(rows, "id", "v", "w") == [("insert", 1, 1, 10, None)]


@pytest.mark.parametrize("name", TABLES)
def test_a_part_of_a_range_has_the_columns_of_the_whole(
    spark: SparkSession, tables: dict[str, str], name: str
) -> None:
    rows = feed.change_rows(spark, tables[name], 0, 1, ["id", "v", "w"], at=2)
    assert told(rows, "id", "v", "w") == [("insert", 1, 1, 10, None)]


@pytest.mark.parametrize("given", [None, ("false", "endVersion")])
def test_the_session_keeps_its_confs(
    spark: SparkSession, tables: dict[str, str], given: tuple[str, str] | None
) -> None:
    if given:
        for conf, value in zip(CONFS, given, strict=True):
            spark.conf.set(conf, value)
    try:
        for name in TABLES:
            feed.change_rows(spark, tables[name], 0, 2, ["id", "v", "w"], at=2)
        with pytest.raises(Exception, match=r"DELTA_"):
            feed.change_rows(spark, tables[name], 0, 99, ["id"], at=99)
        assert tuple(spark.conf.get(conf, None) for conf in CONFS) == (given or (None, None))
    finally:
        for conf in CONFS:
            spark.conf.unset(conf)


def test_threads_of_one_session_do_not_disturb_each_other(
    spark: SparkSession, tables: dict[str, str]
) -> None:
    def read(number: int) -> list[str]:
        name = list(TABLES)[number % len(TABLES)]
        return feed.change_rows(spark, tables[name], 0, 2, ["id", "v", "w"], at=2).columns

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(read, range(24)))
    assert found == [["id", "v", "w", *reserved_columns.METADATA_COLUMNS]] * 24
    assert [spark.conf.get(conf, None) for conf in CONFS] == [None, None]


class _Remote:
    """A session as Spark Connect's: by its module's name, which is how it is told."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def read(self) -> DataFrameReader:
        return self._spark.read

    @property
    def conf(self) -> RuntimeConfig:
        return self._spark.conf


def test_a_remote_session_cannot_choose_the_schema(spark: SparkSession, tables: dict[str, str]) -> None:
    remote: SparkSession = _Remote(spark)  # type: ignore[assignment]
    replaced, renamed = (tables[name] for name in TABLES)
    with pytest.raises(SchemaChangeInRange, match=r"version 2: id, v, w changed"):
        feed.change_rows(remote, replaced, 0, 2, ["id", "v", "w"], at=2)
    assert len(told(feed.change_rows(remote, renamed, 0, 2, ["id", "v", "w"], at=2), "id")) == 1


def test_a_reader_that_ignores_the_change_feed(
    spark: SparkSession, tables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.readwriter import DataFrameReader

    table = spark.read.format("delta").load(tables["dropped and renamed"])
    monkeypatch.setattr(DataFrameReader, "load", lambda self, path: table)
    with pytest.raises(WrongReader, match="_change_type"):
        feed.change_rows(spark, "/lake/t", 0, 2, ["id"], at=2)


# -- the queries over real feeds ----------------------------------------------------------------
#: Vanlightly's history and one of four answers, in one table: text keys are the one, numbers the other.
HISTORY = (
    (
        "CREATE TABLE {} USING delta TBLPROPERTIES ({}) AS SELECT * FROM VALUES ('jack', 'apple'), "
        "('sarah', 'orange'), ('john', 'pineapple'), ('1', 'a'), ('2', 'b'), ('3', 'c') t(id, v)"
    ),
    "UPDATE {} SET v = IF(id = '1', 'a2', 'banana') WHERE id IN ('1', 'jack')",
    "DELETE FROM {} WHERE id IN ('2', 'john')",
    "INSERT INTO {} VALUES ('4', 'd')",
    "UPDATE {} SET v = 'a3' WHERE id = '1'",
    "DELETE FROM {} WHERE id IN ('3', '4')",
    "INSERT INTO {} VALUES ('3', 'c2')",
)


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], str]:
    made_already: dict[bool, str] = {}

    def make(vectors: bool) -> str:
        if vectors not in made_already:
            path = tmp_path_factory.mktemp("histories") / f"{vectors}"
            properties = f"{FEED}, 'delta.enableDeletionVectors' = '{str(vectors).lower()}'"
            first = HISTORY[0].format("{}", properties)
            made_already[vectors] = made(spark, path, [first, *HISTORY[1:]])
        return made_already[vectors]

    return make


@pytest.mark.slow
@pytest.mark.parametrize("vectors", [True, False], ids=["deletion vectors", "no deletion vectors"])
def test_one_history_and_its_answers(
    spark: SparkSession, history: Callable[[bool], str], vectors: bool
) -> None:
    from pyspark.sql import functions as F

    source = history(vectors)

    def ask(query: str, starting: int, ending: int, where: str) -> list[tuple[object, ...]]:
        rows = feed.change_rows(spark, source, starting, ending, ["id", "v"], at=ending).where(where)
        rows = rows.withColumn(reserved_columns.ORDER, F.col(reserved_columns.COMMIT_VERSION))
        options = QueryOptions(query=query, keys=("id",))  # type: ignore[arg-type]
        return told(answer(rows, options, source=source, versions="v", columns=["id", "v"]), "id", "v")

    people, numbers = "id > 'a'", "id < 'a'"
    pre, post = "update_preimage", "update_postimage"
    inserts = [
        ("insert", 0, "jack", "apple"),
        ("insert", 0, "john", "pineapple"),
        ("insert", 0, "sarah", "orange"),
    ]
    update = [(pre, 1, "jack", "apple"), (post, 1, "jack", "banana")]
    gone = ("delete", 2, "john", "pineapple")
    assert ask("full_delta", 0, 2, people) == [*inserts, *update, gone]
    assert ask("append_only", 0, 2, people) == inserts
    for query in ("upsert", "min_delta"):
        assert ask(query, 0, 2, people) == [("insert", 0, "sarah", "orange"), ("insert", 1, "jack", "banana")]
    assert ask("upsert", 1, 2, people) == update[1:]
    assert ask("min_delta", 1, 2, people) == [*update, gone]

    assert ask("append_only", 1, 6, numbers) == [("insert", 3, "4", "d"), ("insert", 6, "3", "c2")]
    assert ask("upsert", 1, 6, numbers) == [(post, 4, "1", "a3"), (post, 6, "3", "c2")]
    assert ask("min_delta", 1, 6, numbers) == [
        ("delete", 2, "2", "b"), (pre, 4, "1", "a"), (post, 4, "1", "a3"),
        (pre, 6, "3", "c"), (post, 6, "3", "c2"),
    ]  # fmt: skip
    assert ask("full_delta", 1, 6, numbers) == [
        (pre, 1, "1", "a"), (post, 1, "1", "a2"), ("delete", 2, "2", "b"), ("insert", 3, "4", "d"),
        (pre, 4, "1", "a2"), (post, 4, "1", "a3"), ("delete", 5, "3", "c"), ("delete", 5, "4", "d"),
        ("insert", 6, "3", "c2"),
    ]  # fmt: skip
