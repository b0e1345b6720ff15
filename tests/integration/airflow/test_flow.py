"""Whole flows in a real Airflow with a real Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.slow import slow_but

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.integration.airflow.conftest import Airflow, Outcome

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

_FLOW = """
from airflow.sdk import DAG, Param
from airflow_delta_cdc.operators import DeltaApplyChangesOperator, DeltaEnableChangeDataFeedOperator

with DAG(
    {name!r},
    schedule=None,
    params={{
        "starting_version": Param(None, type=["null", "integer"]),
        "ending_version": Param(None, type=["null", "integer"]),
    }},
) as dag:
    enable = DeltaEnableChangeDataFeedOperator(task_id="enable", table={source!r})
    apply = DeltaApplyChangesOperator(
        task_id="apply",
        pipeline={name!r},
        source={source!r},
        target={target!r},
        keys=["id"],
        starting_version="{{{{ params.starting_version }}}}",
        ending_version="{{{{ params.ending_version }}}}",
    )
    enable >> apply
"""

XCOM_KEYS = {
    "pipeline",
    "seal",
    "source_table",
    "source_table_id",
    "version",
    "starting_version",
    "ending_version",
    "applied",
    "target_table",
    "target_table_id",
    "target_version",
    "counts",
    "bytes_written",
    "lag",
    "seconds",
    "attempts_lost",
    "timestamp",
}


def write(table: Path, rows: Sequence[tuple[int, str]], **properties: str) -> None:
    data = pa.table({"id": pa.array([i for i, _ in rows], pa.int64()), "name": [name for _, name in rows]})
    write_deltalake(str(table), data, mode="append", configuration=properties or None)


def rows(table: Path) -> list[tuple[int, str]]:
    data = DeltaTable(str(table)).to_pyarrow_table().to_pydict() if not _has_vectors(table) else _scan(table)
    return sorted(zip(data["id"], data["name"], strict=True))


def _has_vectors(table: Path) -> bool:
    return "deletionVectors" in (DeltaTable(str(table)).protocol().reader_features or [])


def _scan(table: Path) -> dict[str, list[Any]]:
    """Read a table with deletion vectors, which only delta-rs's own query engine applies."""
    from deltalake import QueryBuilder

    answer = QueryBuilder().register("t", DeltaTable(str(table))).execute("SELECT id, name FROM t")
    found: dict[str, list[Any]] = pa.table(answer.read_all()).to_pydict()
    return found


def version(table: Path) -> int:
    return DeltaTable(str(table)).version()


def test_enable_load_apply_and_nothing_to_do(airflow: Airflow, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write(source, [(1, "a"), (2, "b")], **{"delta.enableChangeDataFeed": "true"})
    write(source, [(3, "c")])
    file = airflow.dag("flow", _FLOW.format(name="flow", source=str(source), target=str(target)))

    loaded = airflow.run(file)
    assert loaded.state == "success", loaded.log
    assert loaded.submits == 1, "the feed is on already, so only apply starts Spark"
    enabled = loaded.xcom("enable")
    assert [(entry["changed"], entry["first_readable_version"]) for entry in enabled] == [(False, 0)]
    assert rows(target) == [(1, "a"), (2, "b"), (3, "c")]
    # The table is clustered by a commit of its own, after the one that holds the rows and the seal.
    _is_published(loaded, source, target, applied=True, at=0)

    before = version(source)
    write(source, [(4, "d")])
    DeltaTable(str(source)).delete("id = 1")
    DeltaTable(str(source)).update(updates={"name": "'B'"}, predicate="id = 2")
    write(source, [(5, "beyond the end that was asked for")])
    conf = {"starting_version": before + 1, "ending_version": before + 3}
    applied = airflow.run(file, conf=conf)
    assert applied.state == "success", applied.log
    assert applied.submits == 1
    assert rows(target) == [(2, "B"), (3, "c"), (4, "d")]
    published = _is_published(applied, source, target, applied=True, at=version(target))
    assert (published["starting_version"], published["ending_version"]) == (before + 1, before + 3)
    assert published["seal"] > loaded.xcom("apply")["seal"]

    at = version(target)
    idle = airflow.run(file, conf=conf, forbid_processes=True)
    assert idle.state == "success", idle.log
    assert idle.processes == []
    assert version(target) == at
    _is_published(idle, source, target, applied=False, at=at)


def _is_published(outcome: Outcome, source: Path, target: Path, *, applied: bool, at: int) -> dict[str, Any]:
    published: dict[str, Any] = outcome.xcom("apply")
    assert set(published) == XCOM_KEYS
    # Airflow keeps what its links point to in XComs of its own.
    assert [one for one in outcome.tasks["apply"]["xcoms"] if not one.startswith("link_")] == ["return_value"]
    assert published["applied"] is applied
    assert published["source_table_id"] == str(DeltaTable(str(source)).metadata().id)
    assert published["target_version"] == at
    events = [event for event in outcome.events if event["task"] == "apply"]
    if not applied:
        assert events == []
        return published
    assert [event["uri"] for event in events] == [target.as_uri()]
    for key in ("pipeline", "version", "starting_version", "ending_version", "target_version"):
        assert events[0]["extra"][key] == published[key]
    return published


@pytest.mark.slow
def test_a_failed_job_shows_its_named_error(airflow: Airflow, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write(source, [(1, "a"), (1, "b")])
    DeltaTable(str(source)).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    file = airflow.dag("twins", _FLOW.format(name="twins", source=str(source), target=str(target)))
    failed = airflow.run(file)
    assert failed.tasks["enable"]["state"] == "success"
    assert failed.tasks["apply"]["state"] == "failed"
    assert "KeyNotUnique" in failed.log
    assert "org.apache.spark.scheduler" not in failed.log
    assert failed.xcom("apply") is None
    assert failed.events == []
    assert not (target / "_delta_log").exists()


def test_bad_input_starts_no_process(airflow: Airflow, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write(source, [(1, "a")])
    write(source, [(2, "b")])
    DeltaTable(str(source)).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    file = airflow.dag(
        "refused", _FLOW.format(name="refused", source=str(source), target=str(tmp_path / "target"))
    )
    refused = airflow.run(file, conf={"starting_version": 5, "ending_version": 2}, forbid_processes=True)
    assert refused.tasks["enable"]["state"] == "success"
    assert refused.xcom("enable")[0]["first_readable_version"] == 2
    assert refused.tasks["apply"]["state"] == "failed"
    assert "Remedy:" in refused.log
    assert not (tmp_path / "target").exists()


_STAGED = """
from airflow.sdk import DAG
from airflow_delta_cdc.operators import DeltaApplyChangesOperator, DeltaReadChangesOperator

with DAG("staged", schedule=None) as dag:
    read = DeltaReadChangesOperator(
        task_id="read",
        pipeline="staged",
        table={source!r},
        staging={staging!r},
        target={target!r},
        spark_conn_id="spark_local",
    )
    apply = DeltaApplyChangesOperator(
        task_id="apply",
        pipeline="staged",
        source={source!r},
        target={target!r},
        staging={staging!r},
        keys="id",
    )
    read >> apply
"""


@pytest.mark.slow
def test_two_tasks_with_a_staging_table(airflow: Airflow, tmp_path: Path) -> None:
    source, staging, target = tmp_path / "source", tmp_path / "staging", tmp_path / "target"
    write(source, [(1, "a"), (2, "b")])
    DeltaTable(str(source)).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    file = airflow.dag("staged", _STAGED.format(source=str(source), staging=str(staging), target=str(target)))
    outcome = airflow.run(file)
    assert outcome.state == "success", outcome.log
    assert rows(target) == [(1, "a"), (2, "b")]
    (read, apply) = (process for process in outcome.processes if "spark-submit" in process[0])
    assert "local[2]" in read, "the connection's master"
    assert "--jars" in read, "Delta is handed to whatever Spark a connection names"
    assert "local[*]" in apply
    assert outcome.xcom("apply")["source_table_id"] == str(DeltaTable(str(source)).metadata().id)


_WAITING = """
import pyarrow as pa
from airflow.sdk import DAG
from deltalake import DeltaTable, write_deltalake

from airflow_delta_cdc.sensors import DeltaVersionSensor
from delta_cdc.planning.waiting import Watch

look = Watch.look

async def look_then_change(self):
    # The change comes after the first look, so that the sensor has to wait for it. (This file is read more
    # than once, so the table itself tells whether the change was made.)
    found = await look(self)
    if DeltaTable({source!r}).version() == 0:
        write_deltalake({source!r}, pa.table({{"id": [9], "name": ["late"]}}), mode="append")
    return found

Watch.look = look_then_change

with DAG("waiting", schedule=None) as dag:
    DeltaVersionSensor(task_id="wait", table={source!r}, deferrable={deferrable}, poke_interval=0.1)
"""


@pytest.mark.parametrize("deferrable", slow_but([True, False], True))
def test_the_sensor_waits_for_a_change(airflow: Airflow, tmp_path: Path, deferrable: bool) -> None:
    source = tmp_path / "source"
    write(source, [(1, "a")])
    file = airflow.dag("waiting", _WAITING.format(source=str(source), deferrable=deferrable))
    outcome = airflow.run(file, forbid_processes=True)
    assert outcome.state == "success", outcome.log
    found = outcome.xcom("wait")
    assert set(found) == {"table", "table_id", "version", "previous_version", "timestamp", "reason"}
    assert (found["table"], found["reason"]) == (str(source), "new_versions")
    assert found["table_id"] == str(DeltaTable(str(source)).metadata().id)
    assert (found["version"], found["previous_version"]) == (1, 0)
    assert ("DEFERRED" in outcome.log.upper()) is deferrable
