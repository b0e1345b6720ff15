"""What Delta itself logs for the events that make or break a proof."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delta_cdc.core.errors import TargetReplaced, TransactionRetentionSet, WatermarkExpired
from delta_cdc.core.watermark import PipelineState, Seal, SealStep, TableVersion, app_id
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.reconcile import reconcile
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delta_cdc.planning.reconcile import RecordedWatermark


class Target:
    """A table written by real Spark, with our seals and with what others do to it."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.path = path
        self.name = f"delta.`{path}`"

    def sealed(self, number: int, watermark: int, rows: int = 5) -> None:
        step = SealStep("apply", watermark, watermark, f"f{number}", "r")
        made = Seal("p", number, "/source", PipelineState(TableVersion("source", watermark, "hash"), 0), step)
        writer = (
            self.spark.range(rows).selectExpr("id", "id % 3 AS part").write.format("delta").mode("append")
        )
        sealing = {"txnAppId": app_id("p"), "txnVersion": str(number), "userMetadata": made.to_json()}
        writer.options(**sealing).save(self.path)

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.format(t=self.name)).collect()

    def recorded(self) -> RecordedWatermark:
        found = reconcile(DeltaLog(self.path), "p")
        assert found is not None
        return found

    def proven(self) -> tuple[int, int]:
        found = self.recorded()
        assert found.seal is not None
        return found.seal.watermark.version, found.next_number


@pytest.fixture
def target(spark: SparkSession, tmp_path: Path) -> Target:
    made = Target(spark, str(tmp_path / "target with 100%25 ü"))
    made.sealed(100, 5)
    made.sealed(101, 8)
    return made


@pytest.mark.slow
def test_restore_by_version_and_of_a_restore(target: Target) -> None:
    target.sql("RESTORE TABLE {t} TO VERSION AS OF 0")
    assert target.proven() == (5, 102)
    target.sealed(102, 6)
    target.sql("RESTORE TABLE {t} TO VERSION AS OF 2")
    assert target.proven() == (5, 103)
    target.sql("RESTORE TABLE {t} TO VERSION AS OF 3")
    assert target.proven() == (6, 103)


@pytest.mark.slow
def test_a_restore_by_a_time_needs_a_restore_by_version(target: Target) -> None:
    """Delta's log does not name the zone of the time, so the restored version is not guessed."""
    first = run_sync(DeltaLog(target.path).commit(0))
    moment = datetime.fromtimestamp((first.timestamp + 1) / 1000, UTC)
    target.sql("RESTORE TABLE {t} TO TIMESTAMP AS OF '" + moment.isoformat() + "'")
    restored = run_sync(DeltaLog(target.path).commit(2)).info
    assert restored.operation_parameters["version"] is None
    with pytest.raises(WatermarkExpired, match="RESTORE to a time"):
        target.recorded()
    target.sql("RESTORE TABLE {t} TO VERSION AS OF 1")
    assert target.proven() == (8, 102)


@pytest.mark.parametrize(
    "statement",
    slow_but(
        [
            "CREATE OR REPLACE TABLE {t} USING delta AS SELECT 1L AS id, 2L AS part",
            "REPLACE TABLE {t} (id LONG) USING delta",
            "INSERT OVERWRITE {t} SELECT 1L, 1L",
            "TRUNCATE TABLE {t}",
            "DELETE FROM {t}",
            "DELETE FROM {t} WHERE true",
        ],
        "DELETE FROM {t}",
    ),
)
def test_a_replacement_ends_the_proof_and_restore_brings_it_back(target: Target, statement: str) -> None:
    target.sql(statement)
    with pytest.raises(TargetReplaced, match="RESTORE the target to version 1"):
        target.recorded()
    target.sql("RESTORE TABLE {t} TO VERSION AS OF 1")
    assert target.proven() == (8, 102)


@pytest.mark.slow
def test_overwriting_by_the_writer_ends_the_proof(target: Target) -> None:
    rows = target.spark.range(3).selectExpr("id", "id AS part", "1 AS more")
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(target.path)
    with pytest.raises(TargetReplaced):
        target.recorded()


@pytest.mark.slow
def test_changes_of_some_rows_leave_the_proof(target: Target) -> None:
    target.sql("INSERT INTO {t} REPLACE WHERE id = 1 SELECT 1L, 1L")
    target.sql("DELETE FROM {t} WHERE id = 2")
    target.sql("UPDATE {t} SET part = 9")
    target.sql("INSERT INTO {t} SELECT 7L, 7L")
    target.sql("OPTIMIZE {t}")
    target.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    assert target.proven() == (8, 102)


@pytest.mark.slow
def test_overwriting_some_partitions_leaves_the_proof(spark: SparkSession, tmp_path: Path) -> None:
    made = Target(spark, str(tmp_path / "parts"))
    made.sql("CREATE TABLE {t} (id LONG, part LONG) USING delta PARTITIONED BY (part)")
    made.sealed(100, 5)
    rows = spark.range(1).selectExpr("id", "1L AS part")
    writer = rows.write.format("delta").mode("overwrite")
    writer.option("partitionOverwriteMode", "dynamic").save(made.path)
    assert made.proven() == (5, 101)


@pytest.mark.slow
def test_a_table_dropped_and_made_again_has_no_proof(target: Target) -> None:
    import shutil

    shutil.rmtree(target.path)
    target.sql("CREATE TABLE {t} (id LONG, part LONG) USING delta")
    found = target.recorded()
    assert (found.seal, found.empty) == (None, True)
    assert found.next_number == found.target.created_time
    target.sealed(found.next_number, 1)
    target.sql("RESTORE TABLE {t} TO VERSION AS OF 0")
    again = target.recorded()
    assert (again.seal, again.next_number) == (None, found.next_number + 1)


def test_all_rows_masked_by_deletion_vectors_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    made = Target(spark, str(tmp_path / "masked"))
    made.sql("CREATE TABLE {t} (id LONG) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.range(0, 10, 1, 1).write.format("delta").mode("append").save(made.path)
    log = DeltaLog(made.path)
    made.sql("DELETE FROM {t} WHERE id < 4")
    assert not run_sync(log.snapshot()).is_empty
    masked = run_sync(log.files(2))
    assert [count for *_, count in masked] == [4]
    made.sql("DELETE FROM {t} WHERE id >= 4")
    assert run_sync(log.snapshot()).is_empty
    assert made.recorded().empty


def test_transaction_retention(target: Target) -> None:
    target.sql(
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 30 days')"
    )
    with pytest.raises(TransactionRetentionSet):
        target.recorded()


@pytest.mark.slow
def test_a_checkpointed_log_gives_the_same_proof(target: Target) -> None:
    for number in range(102, 114):
        target.sealed(number, number)
    assert list(Path(target.path, "_delta_log").glob("*.checkpoint.parquet"))
    assert target.proven() == (113, 114)
