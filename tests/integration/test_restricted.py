"""A Spark that refuses confs, as managed platforms do: what only saves time goes on, all else is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.conf import RuntimeConfig

from delta_cdc import job
from delta_cdc.api.changes import apply_changes
from delta_cdc.api.verify import verify_table
from delta_cdc.core.errors import SparkRestricted
from delta_cdc.core.spec import OptimizeSpec, VacuumSpec
from delta_cdc.core.sql import table
from delta_cdc.spark.sessions import LAST_COMMIT
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from pyspark.sql import SparkSession

SEAL = (
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
    "spark.databricks.delta.commitInfo.userMetadata",
)
#: All that a session has to take; the time zone is UTC already.
NEEDED = ("spark.sql.variable.substitute", *SEAL)


def restricted(monkeypatch: pytest.MonkeyPatch, allowed: Collection[str]) -> set[str]:
    """Let sessions take some confs only; return the names of those that they refuse, as they occur.

    Those of Delta cannot be read either, but the one that Delta sets itself.
    """
    original, read, refused = RuntimeConfig.set, RuntimeConfig.get, set()

    def unreadable(self: RuntimeConfig, key: str, *default: Any) -> Any:
        if key.startswith("spark.databricks.") and key not in (*allowed, LAST_COMMIT):
            raise ValueError(f"[CONFIG_NOT_AVAILABLE] Configuration {key} is not available.")
        return read(self, key, *default)

    def refusing(self: RuntimeConfig, key: str, value: object) -> None:
        if key not in allowed:
            refused.add(key)
            raise ValueError(f"[CONFIG_NOT_AVAILABLE] Configuration {key} is not available.")
        original(self, key, value)  # type: ignore[arg-type]

    monkeypatch.setattr(RuntimeConfig, "set", refusing)
    monkeypatch.setattr(RuntimeConfig, "get", unreadable)
    return refused


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "source")
    feed = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    spark.sql(f"CREATE TABLE {table(path)} (id INT, v STRING) USING delta {feed}")
    spark.sql(f"INSERT INTO {table(path)} VALUES (1, 'a'), (2, 'b')")
    return path


@pytest.mark.parametrize("scd_type", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_what_only_saves_time_may_be_refused(
    spark: SparkSession, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scd_type: int
) -> None:
    target = str(tmp_path / "target")
    given = {"pipeline": "p", "keys": ["id"], "stored_as_scd_type": scd_type}
    refused = restricted(monkeypatch, NEEDED)
    assert apply_changes(spark, source, target, **given).applied
    spark.sql(f"UPDATE {table(source)} SET v = 'a2' WHERE id = 1")
    spark.sql(f"DELETE FROM {table(source)} WHERE id = 2")
    assert apply_changes(spark, source, target, **given).applied
    rows = spark.read.format("delta").load(target).where("__END_AT IS NULL" if scd_type == 2 else "true")
    assert [(row["id"], row["v"]) for row in rows.select("id", "v").collect()] == [(1, "a2")]
    assert len(refused) > 5, "the test has to meet what it is about"


@pytest.mark.slow
def test_maintenance_without_the_confs_that_save_time(
    spark: SparkSession, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tag of an OPTIMIZE is one of them: without it, a later run does the same again."""
    target = str(tmp_path / "target")
    assert apply_changes(spark, source, target, pipeline="p", keys=["id"]).applied
    refused = restricted(monkeypatch, set(NEEDED) - {SEAL[2]})
    assert verify_table(spark, target, pipeline="p").findings == ()
    for spec in (
        OptimizeSpec(run_id="r", table_uri=target),
        VacuumSpec(run_id="r", table_uri=target, files=9),
    ):
        assert job.run(spark, spec).error is None
    assert SEAL[2] in refused


@pytest.mark.parametrize("name", slow_but(NEEDED, NEEDED[0]))
def test_whatever_rows_depend_on_is_refused_by_name(
    spark: SparkSession, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    target = tmp_path / "target"
    restricted(monkeypatch, set(NEEDED) - {name})
    with pytest.raises(SparkRestricted, match=name) as caught:
        apply_changes(spark, source, str(target), pipeline="p", keys=["id"])
    assert "CONFIG_NOT_AVAILABLE" in caught.value.message
    assert (f"{name}=false" in caught.value.remedy) == (name not in SEAL)
    assert not target.exists()


@pytest.mark.slow
def test_a_feed_whose_columns_cannot_be_chosen(
    spark: SparkSession, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are read where its columns are those of the range's end; else the reason is named."""
    target = str(tmp_path / "target")
    restricted(monkeypatch, NEEDED)
    apply_changes(spark, source, target, pipeline="p", keys=["id"], ending_version=1)
    spark.sql(f"INSERT INTO {table(source)} VALUES (3, 'c')")
    spark.sql(f"ALTER TABLE {table(source)} ADD COLUMN later STRING")
    assert apply_changes(spark, source, target, pipeline="p", keys=["id"], ending_version=2).applied
