"""Defects that are known and not mended: each test says what should be."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes, expire_events, job
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.planning.erasure import Flow
from delta_cdc.run.erase import Erasure, run
from delta_cdc.run.maintain import raise_failed
from delta_cdc.run.shadow import promote
from delta_cdc.spark import catalog
from tests.integration.test_shadow import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


def erased(spark: SparkSession, *flows: Flow, key: dict[str, str], **more: Any) -> Any:
    report = run(Erasure(keys=(key,), flows=flows, **more), execute=partial(job.run, spark), run_id="erase")
    raise_failed(report.errors)
    return report


# -- quarantine -------------------------------------------------------------------------------------
LOG: dict[str, Any] = {
    "source_kind": "change_log",
    "keys": ["k"],
    "sequence_by": "s",
    "apply_as_deletes": "op = 'D'",
    "except_column_list": ["op", "s"],
    "stored_as_scd_type": 2,
}
RULE = {"short": {"check": "length(v) < 3", "on_break": "quarantine"}}


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="a replay computes keys without what expired")
@pytest.mark.parametrize(
    ("events", "history"),
    [
        ([("a", 5), ("wrong", 6), ("c", 8)], [("a", 5, 6), ("wrong", 6, 8), ("c", 8, None)]),
        ([("a", 5), ("wrong", 6)], [("a", 5, 6), ("wrong", 6, None)]),
    ],
    ids=["closed", "spanning"],
)
def test_a_replay_of_what_is_later_than_allowed(
    spark: SparkSession, tmp_path: Path, events: Any, history: Any
) -> None:
    log, target = str(tmp_path / "log"), str(tmp_path / "target")
    spark.sql(
        f"CREATE TABLE delta.`{log}` (k INT, v STRING, op STRING, s INT) USING delta "
        "TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
    )
    rows = [(1, v, "U", s) for v, s in events] + [(2, "z", "U", 40)]
    spark.createDataFrame(rows, "k int, v string, op string, s int").write.format("delta").mode(
        "append"
    ).save(log)
    apply_changes(spark, log, target, pipeline="p", rules=RULE, **LOG)
    held = spark.read.format("delta").load(f"{target}__quarantine")
    assert held.count() == 1
    given: dict[str, Any] = {"consumers": [{"pipeline": "p", "target": target}], "horizon": "10"}
    expire_events(spark, log, **given)
    more = spark.createDataFrame([(2, "y", "U", 50)], "k int, v string, op string, s int")
    more.write.format("delta").mode("append").save(log)
    apply_changes(spark, log, target, pipeline="p", rules=RULE, **LOG)
    with suppress(DeltaCdcError):
        apply_changes(
            spark, log, target, pipeline="p", rules={}, mode="repair", repair={"quarantined": True}, **LOG
        )
    left = spark.read.format("delta").load(f"{target}__quarantine").count()
    found = spark.read.format("delta").load(target).where("k = 1").orderBy("__START_AT")
    found = [tuple(row) for row in found.select("v", "__START_AT", "__END_AT").collect()]
    assert found == history or (left == 1 and found[0][0] == "a"), (found, left)


# -- shadows ----------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="an erasure does not say that no row has the key")
def test_a_key_of_a_char_column(spark: SparkSession, tmp_path: Path) -> None:
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    spark.sql(
        f"CREATE TABLE delta.`{source}` (code CHAR(5), v STRING) USING delta TBLPROPERTIES "
        "('delta.enableChangeDataFeed' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{source}` VALUES ('AB', 'Ottilie'), ('CD', 'b')")
    apply_changes(spark, source, target, pipeline="p", keys=["code"])
    report = erased(spark, Flow("p", source, target=target), key={"code": "AB"})
    left = spark.read.format("delta").load(target).where("rtrim(code) = 'AB'").count()
    assert left == 0 or report.rows[0]["note"], str(report)


@pytest.fixture
def named(spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "_DELTAS_CATALOG", "another")
        spark.sql(f"CREATE SCHEMA shadows LOCATION '{tmp_path / 'gold'}'")
        lake = Lake(spark, tmp_path)
        lake.now, lake.next = "shadows.now", "shadows.next"
        yield lake
    spark.sql("DROP SCHEMA shadows CASCADE")


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="the remedy takes the live target")
def test_a_new_shadow_under_the_name_of_the_promoted_one(named: Lake) -> None:
    """The default location of the name has the promoted table, which the remedy would take over."""
    lake = named
    assert lake.both().status == "agreed"
    promote(lake.work(), runs=1, dry_run=False)
    lake.spark.sql("DROP TABLE shadows.next")
    with pytest.raises(DeltaCdcError) as failed:
        lake.run_next(shadow_of=None)
    assert "location" in failed.value.remedy
