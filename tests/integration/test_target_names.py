"""Targets by catalog name: created, registered, found again; renamed and dropped names are noticed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import delta_cdc
from delta_cdc import job
from delta_cdc.core import failpoints
from delta_cdc.core.errors import (
    InvalidConfiguration,
    TableNameGone,
    TableNameMoved,
    TableNotFound,
    TargetWithoutWatermark,
)
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from delta_cdc.run.table_arguments import requests
from delta_cdc.spark import catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome


class Lake:
    """Two schemas of a session's catalog, and one source."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.gold = folder / "the gold"
        self.silver = folder / "silver"
        spark.sql(f"CREATE SCHEMA names_silver LOCATION '{self.silver}'")
        spark.sql(f"CREATE SCHEMA names_gold LOCATION '{self.gold}'")
        self.sql(
            "CREATE TABLE names_silver.orders (id BIGINT, v STRING) USING delta "
            "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        )
        self.insert(1)

    def sql(self, text: str) -> list[Any]:
        return self.spark.sql(text).collect()

    def insert(self, key: int) -> None:
        self.sql(f"INSERT INTO names_silver.orders VALUES ({key}, 'v{key}')")

    def apply(self, target: str, source: str = "names_silver.orders", **arguments: Any) -> Outcome:
        return delta_cdc.apply_changes(self.spark, source, target, keys=["id"], **arguments)

    def keys(self, target: str) -> list[int]:
        return sorted(row["id"] for row in self.sql(f"SELECT id FROM {target}"))

    def detail(self, name: str) -> Any:
        return self.sql(f"DESCRIBE DETAIL {name}")[0]


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with pytest.MonkeyPatch.context() as patch:
        # The catalog of this session is in memory, and lasts as long as these tests.
        patch.setattr(catalog, "_DELTAS_CATALOG", "another")
        yield Lake(spark, tmp_path_factory.mktemp("lake"))
    spark.sql("DROP SCHEMA names_silver CASCADE")
    spark.sql("DROP SCHEMA names_gold CASCADE")


def test_a_new_target_gets_a_location_and_its_name(lake: Lake) -> None:
    comment = r"what's current \ now"
    result = lake.apply(
        "names_gold.now", layout={"target_comment": comment, "target_properties": {"team": "sales"}}
    )
    assert result.applied
    assert result.target_table == str(lake.gold / "now")
    detail = lake.detail("names_gold.now")
    assert detail["location"].removeprefix("file:") == str(lake.gold / "now")
    assert detail["description"] == comment
    assert detail["properties"]["team"] == "sales"
    assert lake.keys("names_gold.now") == lake.keys("names_silver.orders")
    # A reader that knows no catalog.
    by_location = DeltaTable(str(lake.gold / "now"))
    assert by_location.metadata().id == detail["id"]
    assert by_location.metadata().description == comment
    lake.insert(2)
    assert lake.apply("names_gold.now").counts["inserted"] == 1
    assert lake.keys("names_gold.now") == [1, 2]
    rows = {row[0]: row[1] for row in lake.sql("DESCRIBE TABLE EXTENDED names_gold.now")}
    assert (rows["Type"], rows["Comment"]) == ("EXTERNAL", comment)


@pytest.mark.slow
def test_a_target_may_have_a_location_of_its_own(lake: Lake, tmp_path: Path) -> None:
    elsewhere = {"target_location": str(tmp_path / "elsewhere")}
    lake.apply("names_gold.elsewhere", layout=elsewhere)
    assert not (lake.gold / "elsewhere").exists()
    assert lake.keys(f"delta.`{tmp_path}/elsewhere`") == lake.keys("names_gold.elsewhere")
    assert not lake.apply("names_gold.elsewhere").applied, "the catalog knows the location"
    with pytest.raises(TableNameMoved, match="target_location is"):
        lake.apply("names_gold.elsewhere", layout={"target_location": str(tmp_path / "third")})


def test_a_location_that_has_a_location_is_refused(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="target_location"):
        lake.apply(str(tmp_path / "t"), layout={"target_location": str(tmp_path / "u")})


def test_a_dry_run_registers_nothing(lake: Lake) -> None:
    lake.apply("names_gold.dry", dry_run=True)
    assert not (lake.gold / "dry").exists()
    assert lake.sql("SHOW TABLES IN names_gold LIKE 'dry'") == []


def test_a_crash_before_the_name_is_repaired(lake: Lake) -> None:
    def crash(point: str) -> None:
        if point == "committed":
            raise KeyboardInterrupt

    remove = failpoints.install(crash)
    try:
        with pytest.raises(KeyboardInterrupt):
            lake.apply("names_gold.crashed")
    finally:
        remove()
    assert lake.sql("SHOW TABLES IN names_gold LIKE 'crashed'") == []
    assert (lake.gold / "crashed" / "_delta_log").exists()
    assert not lake.apply("names_gold.crashed", dry_run=True).applied
    assert lake.sql("SHOW TABLES IN names_gold LIKE 'crashed'") == []
    assert not lake.apply("names_gold.crashed").applied, "the commit was made, only the name is missing"
    assert lake.keys("names_gold.crashed") == lake.keys("names_silver.orders")


@pytest.mark.slow
@pytest.mark.parametrize("statement", ["DROP TABLE {}", "ALTER TABLE {} RENAME TO {}_renamed"])
def test_a_name_that_is_gone_is_not_given_again(lake: Lake, statement: str) -> None:
    target = f"names_gold.gone_{len(statement)}"
    lake.apply(target)
    before = DeltaTable(str(lake.gold / target.split(".")[1])).version()
    lake.sql(statement.replace("{}", target))
    with pytest.raises(TableNameGone, match="dropped or renamed") as raised:
        lake.apply(target)
    assert DeltaTable(str(lake.gold / target.split(".")[1])).version() == before
    # The remedy is a statement that works.
    lake.sql(raised.value.remedy.partition("the name back: ")[2])
    assert not lake.apply(target).applied


@pytest.mark.slow
def test_another_table_of_the_name_is_not_written(lake: Lake, tmp_path: Path) -> None:
    """The planner looks at the table that has the name now, and refuses rows without a watermark."""
    lake.apply("names_gold.moved")
    lake.sql(f"CREATE TABLE delta.`{tmp_path}/other` USING delta AS SELECT 7L AS id, 'theirs' AS v")
    lake.sql(f"ALTER TABLE names_gold.moved SET LOCATION '{tmp_path}/other'")
    with pytest.raises(TargetWithoutWatermark):
        lake.apply("names_gold.moved")
    assert lake.keys(f"delta.`{tmp_path}/other`") == [7]


@pytest.mark.slow
def test_what_changes_after_the_plan_is_noticed_by_the_job(lake: Lake, tmp_path: Path) -> None:
    lake.apply("names_gold.late")
    lake.insert(50)
    here = str(lake.gold / "late")
    lake.sql(
        f"CREATE TABLE names_gold.theirs USING delta LOCATION '{tmp_path}/theirs' "
        f"AS SELECT 7L AS id, 'theirs' AS v"
    )

    def between(statement: str) -> None:
        def change(point: str) -> None:
            if point == "started":
                remove()
                lake.sql(statement)

        remove = failpoints.install(change)

    between(f"ALTER TABLE names_gold.late SET LOCATION '{tmp_path}/theirs'")
    with pytest.raises(TableNameMoved, match="this run was planned for"):
        lake.apply("names_gold.late")
    lake.sql(f"ALTER TABLE names_gold.late SET LOCATION '{here}'")
    between("DROP TABLE names_gold.late")
    with pytest.raises(TableNameGone):
        lake.apply("names_gold.late")
    assert 50 not in lake.keys(f"delta.`{here}`")
    assert lake.keys(f"delta.`{tmp_path}/theirs`") == [7]
    lake.sql(f"CREATE TABLE names_gold.late USING delta LOCATION '{here}'")
    between("ALTER TABLE names_silver.orders RENAME TO names_silver.orders_renamed")
    with pytest.raises(TableNameGone, match="orders"):
        lake.apply("names_gold.late")
    lake.sql("ALTER TABLE names_silver.orders_renamed RENAME TO names_silver.orders")
    assert lake.apply("names_gold.late").counts["inserted"] == 1


def test_a_change_log_at_another_location_is_not_written(lake: Lake, tmp_path: Path) -> None:
    """The planner may have taken the location of a log from an XCom or a cache."""
    lake.sql("CREATE TABLE names_silver.log (id BIGINT) USING delta")
    landing = tmp_path / "landing"
    landing.mkdir()
    (landing / "a.json").write_text('{"id": 1, "n": 1}')
    given = {
        "pipeline": "named",
        "source": str(landing),
        "log": str(tmp_path / "theirs"),
        "keys": ["id"],
        "adapter_options": {"sequence_by": "n"},
    }
    batch, _ = requests(given)
    assert batch is not None
    execute = partial(job.run, lake.spark)
    with pytest.raises(TableNameMoved, match="this run was planned for"):
        run(replace(batch, log_name="names_silver.log"), Services(execute=execute))
    with pytest.raises(TableNameGone):
        run(replace(batch, log_name="names_silver.no_log"), Services(execute=execute))
    assert not (tmp_path / "theirs").exists()
    assert run(batch, Services(execute=execute)).applied


def test_a_schema_is_not_created(lake: Lake) -> None:
    with pytest.raises(TableNotFound, match="nor does its schema"):
        lake.apply("names_platinum.now")


def test_a_catalog_in_memory_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(catalog, "_DELTAS_CATALOG", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    with pytest.raises(TableNotFound, match="in its memory"):
        lake.apply("names_gold.forgotten")
    assert not (lake.gold / "forgotten").exists()
