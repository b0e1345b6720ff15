"""The sensor: what it waits for, and from where on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from airflow_delta_cdc.sensors import DeltaVersionSensor
from airflow_delta_cdc.triggers import DeltaVersionTrigger
from delta_cdc.errors import InvalidConfiguration, TableNameUnresolved, TargetWithoutProof
from tests.unit.airflow.tables import append
from tests.unit.airflow.test_base_operator import Store

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import PokeReturnValue


def sensor(table: object, **arguments: Any) -> DeltaVersionSensor:
    return DeltaVersionSensor(task_id="wait", table=str(table), **arguments)


def poke(task: DeltaVersionSensor, store: Store | None = None) -> PokeReturnValue:
    context: Any = {"task_state_store": store or Store()}
    return task.poke(context)


def test_an_explicit_baseline(tmp_path: Path) -> None:
    append(tmp_path / "t", [1])
    assert not poke(sensor(tmp_path / "t", baseline_version="0")).is_done
    append(tmp_path / "t", [2])
    found = poke(sensor(tmp_path / "t", baseline_version="0"))
    assert found.is_done
    assert found.xcom_value["version"] == 1


def test_the_baseline_is_pinned_at_the_first_look(tmp_path: Path) -> None:
    append(tmp_path / "t", [1])
    store = Store()
    assert not poke(sensor(tmp_path / "t"), store).is_done
    append(tmp_path / "t", [2])
    assert not poke(sensor(tmp_path / "t")).is_done, "without the pin the change is missed"
    assert poke(sensor(tmp_path / "t"), store).is_done


def test_without_a_target_everything_is_new(tmp_path: Path) -> None:
    append(tmp_path / "t", [1])
    found = poke(sensor(tmp_path / "t", pipeline="p", target=str(tmp_path / "target")))
    assert found.xcom_value["previous_version"] is None


def test_a_target_without_proof_is_said(tmp_path: Path) -> None:
    append(tmp_path / "t", [1])
    append(tmp_path / "target", [1])
    with pytest.raises(TargetWithoutProof):
        poke(sensor(tmp_path / "t", pipeline="p", target=str(tmp_path / "target")))


@pytest.mark.parametrize("arguments", [{"pipeline": "p"}, {"target": "/t"}])
def test_pipeline_and_target_go_together(tmp_path: Path, arguments: dict[str, str]) -> None:
    with pytest.raises(InvalidConfiguration, match="only one of pipeline and target"):
        poke(sensor(tmp_path / "t", **arguments))


def test_deferring_hands_the_baseline_to_the_trigger(tmp_path: Path) -> None:
    append(tmp_path / "t", [1])
    task = sensor(tmp_path / "t", deferrable=True, poke_interval=5, min_versions="2", baseline_version=0)
    context: Any = {"task_state_store": Store()}
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context)
    trigger = deferred.value.trigger
    assert isinstance(trigger, DeltaVersionTrigger)
    assert trigger.serialize()[1] == {
        "table": str(tmp_path / "t"),
        "baseline_version": 0,
        "min_versions": 2,
        "poll_interval": 5.0,
        "storage_options": None,
    }
    assert deferred.value.method_name == "execute_complete"


def test_what_is_there_already_needs_no_triggerer(tmp_path: Path) -> None:
    append(tmp_path / "t", [1])
    context: Any = {"task_state_store": Store()}
    found = sensor(tmp_path / "t", deferrable=True, baseline_version=-0, pipeline=None).execute_complete(
        context, {"version": 1}
    )
    assert found == {"version": 1}
    append(tmp_path / "t", [2])
    assert sensor(tmp_path / "t", deferrable=True, baseline_version=0).execute(context)["version"] == 1


def test_the_triggers_error_comes_back_by_its_name(tmp_path: Path) -> None:
    error = TableNameUnresolved("a.b is a name.", remedy="give the location.")
    context: Any = {}
    with pytest.raises(TableNameUnresolved, match="is a name"):
        sensor(tmp_path / "t").execute_complete(context, {"error": error.to_dict()})


def test_the_interval_comes_from_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sensor("/t").poke_interval == 30.0
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__POLL_INTERVAL", "7")
    assert sensor("/t").poke_interval == 7.0
    assert sensor("/t", poke_interval=3).poke_interval == 3.0
