"""Columns that a table cannot hold as it is: names that need column mapping, times without a zone."""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from delta_cdc import apply_changes, commit_watermark, job
from delta_cdc.core import failpoints
from delta_cdc.core.properties import COLUMN_MAPPING
from delta_cdc.core.requests import ReadRequest
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from tests.support.deliveries import SCHEMA, Deliveries, event
from tests.support.engine import metadata
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TIME = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001 - a time without a zone
NTZ = "TIMESTAMP_NTZ'2026-01-02 03:04:05'"
#: A column that the source gets -> the SQL text of a value.
ADDED = {
    "`unit price` INT": "3",
    "at TIMESTAMP_NTZ": NTZ,
    "deep STRUCT<`a b`: INT, at: TIMESTAMP_NTZ>": f"named_struct('a b', 4, 'at', {NTZ})",
    "many ARRAY<STRUCT<`c=d`: INT>>": "array(named_struct('c=d', 5))",
    "named MAP<STRING, STRUCT<`e;f`: INT>>": "map('x', named_struct('e;f', 6))",
}


class Died(BaseException):
    """The end of a process."""


class Lake:
    """A source with column mapping, and sinks that read it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.source = spark, folder, str(folder / "source")
        self.sql(
            "CREATE TABLE {} (id INT, v STRING) USING delta TBLPROPERTIES ("
            "'delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name', "
            "'delta.feature.timestampNtz' = 'supported')",
            "INSERT INTO {} VALUES (1, 'a')",
        )

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.spark.sql(statement.replace("{}", f"delta.`{self.source}`"))

    def add(self, key: int, *columns: str) -> None:
        """Add columns, then a row that has values of them."""
        self.sql(*(f"ALTER TABLE {{}} ADD COLUMN {column}" for column in columns))
        values = ", ".join((str(key), "NULL", *(ADDED[column] for column in columns)))
        self.sql(f"INSERT INTO {{}} SELECT {values}")

    def staging(self, sink: str) -> str:
        return str(self.folder / sink)

    def deliver(self, sink: str, ending: int | None = None, **more: Any) -> list[dict[str, Any]]:
        """Read a batch, commit it, and return its rows with the columns of the source, by their ids."""
        staging = self.staging(sink)
        request = ReadRequest(
            pipeline=sink, source=self.source, staging=staging, ending_version=ending, **more
        )
        batch = run(request, Services(execute=partial(job.run, self.spark)))
        commit_watermark(self.spark, staging, pipeline=sink)
        read = self.spark.read.format("delta").option("versionAsOf", batch.staging_version).load(staging)
        rows = [row.asDict(recursive=True) for row in read.orderBy("id", F.desc("_change_type")).collect()]
        return [{name: value for name, value in row.items() if name[0] != "_"} for row in rows]

    def rows(self, *, start: int = 0, table: str | None = None) -> list[dict[str, Any]]:
        found = self.spark.read.format("delta").load(table or self.source).where(f"id > {start}")
        return [row.asDict(recursive=True) for row in found.orderBy("id").collect()]

    def is_mapped(self, sink: str) -> bool:
        return metadata(self.staging(sink))["configuration"].get(COLUMN_MAPPING, "none") != "none"


@pytest.mark.parametrize("number", slow_but([2, len(ADDED)], 2))
def test_columns_that_come_after_the_first_batch(spark: SparkSession, tmp_path: Path, number: int) -> None:
    lake = Lake(spark, tmp_path)
    lake.deliver("sink")
    lake.add(2, *list(ADDED)[:number])
    assert lake.deliver("sink") == lake.rows(start=1)


@pytest.mark.slow
def test_columns_in_every_kind_of_write(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    for sink in ("whole", "divided"):
        assert lake.deliver(sink) == [{"id": 1, "v": "a"}]
    lake.sql("INSERT INTO {} VALUES (2, 'b')")
    assert lake.deliver("whole") == [{"id": 2, "v": "b"}]
    assert not lake.is_mapped("whole"), "no name needs it yet"
    lake.add(3, *ADDED)
    expected = lake.rows(start=1)
    assert expected[1] == {
        "id": 3,
        "v": None,
        "unit price": 3,
        "at": TIME,
        "deep": {"a b": 4, "at": TIME},
        "many": [{"c=d": 5}],
        "named": {"x": {"e;f": 6}},
    }
    # An overwrite; and a commit that extends what the first commit of the batch wrote.
    assert lake.deliver("whole") == expected[1:]
    assert lake.deliver("divided", versions_per_commit=1) == expected
    # The first load of a sink, and of a target.
    assert lake.deliver("late") == lake.rows()
    target = lake.staging("target")
    apply_changes(spark, lake.source, target, pipeline="p", keys=["id"])
    assert lake.rows(table=target) == lake.rows()
    lake.sql("UPDATE {} SET v = 'z' WHERE id = 3")
    changed = lake.rows(start=2)
    for sink in ("whole", "divided", "late"):
        assert lake.deliver(sink) == [*expected[1:], *changed]
    apply_changes(spark, lake.source, target, pipeline="p", keys=["id"])
    assert lake.rows(table=target) == lake.rows()


@pytest.mark.slow
@pytest.mark.parametrize("column", ADDED)
@pytest.mark.parametrize("commits", [None, 1])
def test_one_column_and_a_death_after_the_statement(
    spark: SparkSession, tmp_path: Path, column: str, commits: int | None
) -> None:
    lake = Lake(spark, tmp_path)
    lake.deliver("sink")
    lake.sql("INSERT INTO {} VALUES (2, 'b')")
    lake.add(3, column)

    def die(point: str) -> None:
        if point == "altered":
            raise Died

    remove = failpoints.install(die)
    try:
        with pytest.raises(Died):
            lake.deliver("sink", versions_per_commit=commits)
    finally:
        remove()
    assert lake.deliver("sink", versions_per_commit=commits) == lake.rows(start=1)
    assert lake.is_mapped("sink") == (column != "at TIMESTAMP_NTZ")


@pytest.mark.slow
def test_a_reset_gets_times_without_a_zone(spark: SparkSession, tmp_path: Path) -> None:
    lake, target = Lake(spark, tmp_path), str(tmp_path / "target")
    given: dict[str, Any] = {"pipeline": "p", "keys": ["id"]}
    apply_changes(spark, lake.source, target, **given)
    lake.add(2, "at TIMESTAMP_NTZ")
    apply_changes(spark, lake.source, target, mode="reset", **given)
    assert lake.rows(table=target) == lake.rows()


@pytest.mark.slow
@pytest.mark.parametrize("column", ["at TIMESTAMP_NTZ", "deep STRUCT<at: TIMESTAMP_NTZ>"])
def test_a_change_log_gets_times_without_a_zone(spark: SparkSession, tmp_path: Path, column: str) -> None:
    flow = Deliveries(spark, tmp_path)
    flow.deliver("a.json", [event("I", 1, 1, name="a", amount=1)])
    flow.ingest()
    flow.apply()
    text = TIME.isoformat()
    name, is_nested = column.split(" ")[0], "STRUCT" in column
    value: Any = {"at": text} if is_nested else text
    flow.deliver("b.json", [event("I", 2, 2, name="b", amount=2, **{name: value})])
    flow.ingest(schema=f"{SCHEMA}, {column}")
    flow.apply()
    for table in ("log", "target"):
        found = {row["id"]: row[name] for row in flow.rows(table)}
        assert found == {1: None, 2: {"at": TIME} if is_nested else TIME}


@pytest.mark.parametrize("scd_type", slow_but([1, 2], 1))
def test_no_default_of_a_source_gets_into_a_target(
    spark: SparkSession, tmp_path: Path, scd_type: int
) -> None:
    """Else a row that comes after the source has dropped the column would get a value of no writer."""
    lake, target = Lake(spark, tmp_path), str(tmp_path / "target")
    lake.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')")
    options: dict[str, Any] = {"keys": ["id"], "stored_as_scd_type": scd_type, "pipeline": "p"}

    def apply() -> dict[int, str | None]:
        apply_changes(spark, lake.source, target, policies={"schema_evolution": "keep_dropped"}, **options)
        return {row.id: row["a.b"] for row in spark.read.format("delta").load(target).collect()}

    apply_changes(spark, lake.source, target, **options)
    lake.deliver("sink")
    lake.sql(
        "ALTER TABLE {} ADD COLUMN `a.b` STRING COMMENT 'c'",
        "ALTER TABLE {} ALTER COLUMN `a.b` SET DEFAULT 'Y'",
        "INSERT INTO {} (id, v) VALUES (2, 'b')",
    )
    assert apply() == {1: None, 2: "Y"}
    assert lake.deliver("sink") == [{"id": 2, "v": "b", "a.b": "Y"}]
    lake.sql("ALTER TABLE {} DROP COLUMN `a.b`", "INSERT INTO {} VALUES (3, 'c')")
    assert apply() == {1: None, 2: "Y", 3: None}
    for table in (target, lake.staging("sink")):
        fields = json.loads(metadata(table)["schemaString"])["fields"]
        kept = {name for field in fields for name in field["metadata"]}
        assert {name for name in kept if not name.startswith("delta.columnMapping.")} <= {"comment"}
