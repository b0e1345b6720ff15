"""A pipeline with another name, or whose table is gone, begins nothing that another one goes on with."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.errors import OffsetsExpired, TargetWithoutWatermark, TopicReplaced
from delta_cdc.core.requests import ReadRequest
from delta_cdc.core.watermark import TableVersion
from delta_cdc.planning.memory import Memory
from delta_cdc.planning.read import plan_read
from delta_cdc.planning.reconcile import WatermarkBackup
from delta_cdc.planning.topics import Looks
from tests.support.ingest_model import Broker, Topics
from tests.support.logs import EPOCH, FEED, LogTable, changed, seal

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.planning.plan import Plan
    from tests.support.tables import Tables


def _steps(plan: Plan) -> list[tuple[str, int, int]]:
    return [(step.kind, step.starting_version, step.ending_version) for step in plan.steps]


# -- the target of an apply -------------------------------------------------------------------------
@pytest.mark.parametrize("load", ["none", {"none_at": 1}])
def test_a_baseline_is_not_set_again_under_another_name(tables: Tables, load: Any) -> None:
    """Version 5 would be lost, or 2 to 4 applied twice."""
    tables.target.create()
    tables.target.append()
    tables.sealed(1, kind="baseline")
    tables.sealed(4, 101)
    with pytest.raises(TargetWithoutWatermark, match="p goes on with it") as caught:
        tables.apply(pipeline="q", initial_load=load)
    assert "set take_over_from to p" in str(caught.value)
    plan = tables.apply(pipeline="q", initial_load=load, take_over_from="p")
    assert _steps(plan) == [("take_over", 4, 4), ("take_over", 4, 4), ("apply", 5, 5)]


def test_rows_from_before_the_first_seal_get_a_baseline_under_another_name(tables: Tables) -> None:
    """The way out that the error of a RESTORE names."""
    tables.target.create()
    tables.target.append()
    tables.sealed(4, kind="baseline")
    tables.target.restore(1)
    assert _steps(tables.apply(pipeline="q", initial_load={"none_at": 3})) == [
        ("baseline", 3, 3),
        ("apply", 4, 5),
    ]


def test_a_target_without_rows_has_one_owner(tables: Tables, tmp_path: Path) -> None:
    other = LogTable(tmp_path / "other", table_id="other-id", configuration=dict(FEED)).create()
    other.append()
    tables.target.write_seal(seal(100, 0, source=tables.source, kind="load"), rows=False)
    with pytest.raises(TargetWithoutWatermark, match="p goes on with it"):
        tables.apply(pipeline="q", source=other.uri)
    assert _steps(tables.apply()) == [("apply", 1, 5)]
    (step,) = tables.apply(pipeline="q", source=other.uri, mode="reset").steps
    assert step.kind == "reset"


@pytest.mark.parametrize("load", ["none", {"none_at": 1}])
def test_a_target_that_is_gone_gets_no_baseline(tables: Tables, load: Any) -> None:
    tables.target.create()
    tables.sealed(3, kind="baseline")
    sealed = seal(100, 3, source=tables.source, kind="baseline")
    copy = WatermarkBackup(sealed, TableVersion(tables.target.table_id, 1)).to_dict()
    shutil.rmtree(tables.target.path)
    with pytest.raises(TargetWithoutWatermark, match="does not exist, though pipeline p had"):
        tables.apply(initial_load=load, backup=lambda: copy)
    assert _steps(tables.apply(backup=lambda: copy)) == [("load", 5, 5)]
    # Without a copy, nothing shows that it was there.
    assert _steps(tables.apply(initial_load=load))[0][0] == "baseline"


def test_the_staging_table_of_another_sink_is_no_new_one(tables: Tables) -> None:
    """Its newest batch has no rows, so that the table has none."""
    mark = {"table_id": tables.source.table_id, "version": 4, "commit_hash": tables.source.sha256(4)}
    batch = {"batch": "changes", "complete": True, "options": {}, "ending": 4, "committed": mark}
    made = changed(seal(100, 4, source=tables.source, start=3, kind="read"), configuration=batch)
    tables.staging.create()
    tables.staging.write_seal(made, rows=False)
    tables.staging.write_seal(
        changed(seal(101, 4, source=tables.source, kind="commit"), configuration={}), rows=False
    )
    request = ReadRequest(pipeline="p", source=tables.source.uri, staging=tables.staging.uri)
    assert _steps(plan_read(request, Memory(now_ms=EPOCH))) == [("apply", 5, 5)]
    with pytest.raises(TargetWithoutWatermark, match="the watermark of p, and none of pipeline q"):
        plan_read(replace(request, pipeline="q"), Memory(now_ms=EPOCH))


# -- topics -----------------------------------------------------------------------------------------
@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(Looks, "offsets", made)
    return made


def test_records_that_no_name_of_a_pipeline_has_ingested_are_missed(tmp_path: Path, broker: Broker) -> None:
    world = Topics(tmp_path)
    broker.has(0, 0, 10)
    world.ingest()
    world.pipeline = "q"
    broker.has(0, 8, 12)
    (one,) = world.plan().spec.offsets
    assert (one.starting_offset, one.ending_offset, one.again) == (8, 12, True)
    broker.has(0, 50, 60)
    with pytest.raises(OffsetsExpired, match="Records 10 to 49 of partition 0"):
        world.plan()
    plan = world.plan(on_expired="continue")
    assert [(one.starting_offset, one.again) for one in plan.spec.offsets] == [(50, False)]
    assert "Records 10 to 49" in plan.notes[0]


@pytest.mark.parametrize("source", ["kafka://h:9092/t", "kafka://us:9092/t"])
def test_another_topic_of_the_same_name_is_no_part_of_a_log(
    tmp_path: Path, broker: Broker, source: str
) -> None:
    """It was made again, or is one of another cluster: its offsets are those of other records."""
    world = Topics(tmp_path)
    broker.has(0, 0, 10, topic_id="one")
    world.ingest()
    broker.has(0, 0, 8, topic_id="two")
    world.pipeline = "q"
    with pytest.raises(TopicReplaced, match="p has ingested into the same log the one with the id one"):
        world.plan(source=source)
    broker.has(0, 0, 12, topic_id="one")
    assert [one.again for one in world.plan(source=source).spec.offsets] == [True]
