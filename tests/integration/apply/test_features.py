"""Turning features on, and staging a batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delta_cdc import job
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.spec import EnableSpec
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.table_properties import described
from tests.support.engine import Flow, metadata, newest, picked, seal_of, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delta_cdc.core.spec import JobResult

FEED = {"delta.enableChangeDataFeed": "true"}


def readable_since(result: JobResult) -> list[int]:
    return [entry["first_readable_version"] for entry in run_sync(described(result.tables))]


@pytest.mark.slow
def test_enabling_twice_alters_once(spark: SparkSession, tmp_path: Path) -> None:
    plain, ready = str(tmp_path / "pl ain"), str(tmp_path / "ready")
    frame = spark.range(2).selectExpr("id", "'a' v")
    frame.write.format("delta").save(plain)
    frame.write.format("delta").mode("append").save(plain)
    frame.write.format("delta").options(**FEED).save(ready)
    spec = EnableSpec(run_id="r", tables=(plain, ready), properties=FEED)
    first, again = job.run(spark, spec), job.run(spark, spec)
    assert [t["changed"] for t in first.tables] == [True, False]
    assert [t["changed"] for t in again.tables] == [False, False]
    assert readable_since(again) == [2, 0]
    assert first.tables[0]["table_id"] == metadata(plain)["id"]
    assert versions(plain) == [0, 1, 2]
    assert versions(ready) == [0]
    spark.sql(f"ALTER TABLE delta.`{plain}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    assert readable_since(job.run(spark, spec)) == [2, 0]
    spark.sql(f"ALTER TABLE delta.`{plain}` UNSET TBLPROPERTIES ('delta.enableChangeDataFeed')")
    assert readable_since(job.run(spark, spec)) == [5, 0]


def test_one_bad_table_and_none_is_altered(spark: SparkSession, tmp_path: Path) -> None:
    good, clashing = str(tmp_path / "good"), str(tmp_path / "clashing")
    spark.range(1).write.format("delta").save(good)
    spark.sql("SELECT 1 AS id, 'x' AS _change_type").write.format("delta").save(clashing)
    spark.range(1).write.parquet(str(tmp_path / "parquet"))
    for bad, name in (
        (str(tmp_path / "missing"), "TableNotFound"),
        ("no_schema.no_table", "TableNotFound"),
        (str(tmp_path / "parquet"), "NotADeltaTable"),
        (clashing, "ReservedColumnName"),
    ):
        result = job.run(spark, EnableSpec(run_id="r", tables=(good, bad), properties=FEED))
        assert result.status == "failed"
        assert result.error is not None
        assert (result.error["class"], bad in result.error["message"]) == (name, True)
    assert versions(good) == [0]


def add_feature(path: Path) -> None:
    """Add a commit with a feature of writers that no Delta knows."""
    protocol = next(one for v in reversed(versions(str(path))) for one in picked(str(path), v, "protocol"))
    protocol = {**protocol, "writerFeatures": [*protocol.get("writerFeatures", []), "fancy"]}
    commit = path / "_delta_log" / f"{newest(str(path)) + 1:020}.json"
    info = {"timestamp": 1_800_000_000_000, "operation": "UPGRADE PROTOCOL"}
    commit.write_text(f"{json.dumps({'commitInfo': info})}\n{json.dumps({'protocol': protocol})}\n")


@pytest.mark.slow
def test_a_schema(spark: SparkSession) -> None:
    spark.sql("CREATE SCHEMA features")
    try:
        spark.sql("CREATE TABLE features.one USING delta AS SELECT 1 AS id")
        spark.sql("CREATE TABLE features.two USING delta AS SELECT 1 AS id")
        spark.sql("CREATE TABLE features.other USING parquet AS SELECT 1 AS id")
        spark.sql("CREATE VIEW features.seen AS SELECT 1 AS id")
        wanted = {
            **FEED,
            "delta.enableDeletionVectors": "true",
            "delta.logRetentionDuration": "interval 9 days",
        }
        wanted["delta.enableRowTracking"] = "true"
        result = job.run(spark, EnableSpec(run_id="r", schema="features", properties=wanted))
        assert [t["table"] for t in result.tables] == ["features.one", "features.two"]
        found = spark.sql("DESCRIBE DETAIL features.two").collect()[0]["properties"]
        assert {name: found[name] for name in wanted} == wanted
        view = job.run(spark, EnableSpec(run_id="r", tables=("features.seen",), properties=FEED))
        assert view.error is not None
        assert view.error["class"] == "NotADeltaTable"
        # A table of another team, with a feature that this Delta does not know, comes before others.
        location = spark.sql("DESCRIBE DETAIL features.one").collect()[0]["location"].removeprefix("file:")
        spark.sql("CREATE TABLE features.three USING delta AS SELECT 1 AS id")
        add_feature(Path(location))
        more = {"delta.checkpointInterval": "20"}
        some = job.run(spark, EnableSpec(run_id="r", schema="features", properties=more))
        assert some.error is not None
        assert "1 table(s) of features were not altered; 2 are done. features.one: " in some.error["message"]
        assert "in tables" in some.error["remedy"]
        for name in ("two", "three"):
            found = spark.sql(f"DESCRIBE DETAIL features.{name}").collect()[0]["properties"]
            assert found["delta.checkpointInterval"] == "20"
        missing = job.run(spark, EnableSpec(run_id="r", schema="no_such", properties=FEED))
        assert missing.error is not None
        assert missing.error["class"] == "TableNotFound"
    finally:
        spark.sql("DROP SCHEMA features CASCADE")


@pytest.mark.slow
def test_a_batch_replaces_the_one_before_and_has_no_feed_of_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, staging = str(tmp_path / "source"), str(tmp_path / "staging")
    frame = spark.sql("SELECT cast(id AS int) id, 'a' `a b` FROM range(4)")
    frame.write.format("delta").option("delta.columnMapping.mode", "name").save(source)
    spark.sql(f"ALTER TABLE delta.`{source}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    spark.sql(f"UPDATE delta.`{source}` SET `a b` = 'b' WHERE id = 1")
    spark.sql(f"DELETE FROM delta.`{source}` WHERE id = 2")
    flow = Flow(spark, source, str(tmp_path / "target"), ApplyOptions(keys=("id",)))
    default = "spark.databricks.delta.properties.defaults.enableChangeDataFeed"
    spark.conf.set(default, "true")
    try:
        assert flow.stage(staging, 2, 2).status == "committed"
        assert flow.stage(staging, 3, 3).status == "committed"
    finally:
        spark.conf.unset(default)
    rows = spark.read.format("delta").load(staging).collect()
    assert [(row["_change_type"], row["id"], row["_commit_version"]) for row in rows] == [("delete", 2, 3)]
    seal = seal_of(staging, newest(staging))
    assert seal is not None
    assert (seal.step.kind, seal.watermark.version) == ("read", 3)
    assert metadata(staging)["configuration"].get("delta.enableChangeDataFeed") != "true"
    before = versions(staging)
    assert flow.stage(staging, 2, 3, seal_number=seal.number).status == "skipped"
    assert versions(staging) == before
