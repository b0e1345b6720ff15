"""The sensor: what it waits for, and from where on."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk.exceptions import (
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferred,
)
from deltalake import write_deltalake

from airflow_delta_cdc import names
from airflow_delta_cdc.sensors import DeltaVersionSensor
from airflow_delta_cdc.triggers import DeltaVersionSensorTrigger
from airflow_delta_cdc.triggers.patience import MOST_REFUSALS
from delta_cdc.core.errors import (
    InvalidConfiguration,
    SourceTableReplaced,
    StoreRefused,
    StoreUnavailable,
    TableNameMoved,
    TableNameUnresolved,
    TargetWithoutWatermark,
)
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.waiting import Condition, Watch
from tests.support.logs import LogTable, changed, seal
from tests.unit.airflow.tables import append
from tests.unit.airflow.test_base_operator import Store

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import PokeReturnValue


DAY = 86_400_000


def sensor(table: object, **arguments: Any) -> DeltaVersionSensor:
    return DeltaVersionSensor(task_id="wait", table=str(table), **arguments)


def poke(task: DeltaVersionSensor, store: Store | None = None) -> PokeReturnValue:
    context: Any = {"task_state_store": store or Store()}
    return task.poke(context)


def test_the_baseline_is_pinned_at_the_first_look(tmp_path: Path) -> None:
    table, store = tmp_path / "t", Store()
    append(table, [1])
    assert not poke(sensor(table), store).is_done
    append(table, [2])
    assert not poke(sensor(table)).is_done, "without the pin the change is missed"
    assert poke(sensor(table), store).is_done
    # It knows which table it was.
    shutil.rmtree(table)
    append(table, [2])
    with pytest.raises(SourceTableReplaced):
        poke(sensor(table), store)
    found = poke(sensor(table, allow_recreation=True), store)
    assert found.xcom_value["reason"] == "table_recreated"


def test_the_baseline_without_a_state_store(tmp_path: Path) -> None:
    """As on Airflow before 3.3: one process keeps it, and a sensor in many processes is refused."""
    append(tmp_path / "t", [1])
    without: Any = {}
    task = sensor(tmp_path / "t")
    assert not task.poke(without).is_done
    append(tmp_path / "t", [2])
    assert task.poke(without).is_done
    task = sensor(tmp_path / "t", mode="reschedule", deferrable=False)
    with pytest.raises(InvalidConfiguration, match="no baseline") as caught:
        task.poke(without)
    assert "deferrable" in caught.value.remedy
    assert (
        sensor(tmp_path / "t", mode="reschedule", deferrable=False, baseline_version=0).poke(without).is_done
    )


def test_pipeline_and_target(tmp_path: Path) -> None:
    table, target = tmp_path / "t", tmp_path / "target"
    append(table, [1])
    found = poke(sensor(table, pipeline="p", target=str(target)))
    assert found.xcom_value["previous_version"] is None, "without a target everything is new"
    append(target, [1])
    with pytest.raises(TargetWithoutWatermark):
        poke(sensor(table, pipeline="none", target=str(target)))
    for alone in ({"pipeline": "p"}, {"pipeline": "none"}, {"target": "/t"}):
        with pytest.raises(InvalidConfiguration, match="only one of pipeline and target"):
            poke(sensor(table, **alone))


def test_the_watermark_knows_which_table_it_was(tmp_path: Path) -> None:
    now = time.time_ns() // 1_000_000
    source = LogTable(tmp_path / "source").create(at=now)
    source.append(at=now)
    target = LogTable(tmp_path / "target").create(at=now)
    target.write_seal(seal(100, 1, source=source, kind="load"), at=now)
    task = sensor(source.uri, pipeline="p", target=target.uri)
    assert not poke(task).is_done
    source.append(at=now)
    assert (poke(task).xcom_value["previous_version"], poke(task).xcom_value["version"]) == (1, 2)

    shutil.rmtree(source.path)
    again = LogTable(source.path, table_id="another").create(at=now)
    for _ in range(3):
        again.append(at=now + 1)
    with pytest.raises(SourceTableReplaced, match="another"):
        poke(task)
    task.allow_recreation = True
    assert poke(task).xcom_value["reason"] == "table_recreated"


def test_an_idle_pipeline_is_let_through_to_seal_anew(tmp_path: Path) -> None:
    """Else the apply task behind the sensor would never run, and the watermark leave the log."""
    now = time.time_ns() // 1_000_000
    source = LogTable(tmp_path / "source").create(at=now)
    source.append(at=now)
    target = LogTable(tmp_path / "target")
    target.write_seal(seal(100, 1, source=source, kind="load"), at=now - 3 * DAY)
    task = sensor(source.uri, pipeline="p", target=target.uri)
    assert not poke(task).is_done
    wait = deferred(task)
    due = wait.trigger.serialize()[1]["seal_due_at"]
    assert due == now - 3 * DAY + 7 * DAY // 2
    os.utime(target.file(0), ((now - 4 * DAY) / 1000,) * 2)
    found = poke(task).xcom_value
    assert (found["reason"], found["version"], found["previous_version"]) == ("seal_due", 1, 1)


def deferred(task: DeltaVersionSensor, **kept: Any) -> TaskDeferred:
    context: Any = {"task_state_store": Store(**kept)}
    with pytest.raises(TaskDeferred) as raised:
        task.execute(context)
    return raised.value


def test_deferring_hands_the_baseline_to_the_trigger(tmp_path: Path) -> None:
    append(tmp_path / "t", [1])
    times = {"poke_interval": 5, "timeout": 60}
    task = sensor(tmp_path / "t", **times, min_versions="2", baseline_version=0, operations="Merge")
    wait = deferred(task)
    assert isinstance(wait.trigger, DeltaVersionSensorTrigger)
    expected = {"table": str(tmp_path / "t"), "baseline": {"version": 0}, "min_versions": 2}
    expected |= {"operations": ["merge"], "partitions": None, "allow_recreation": False}
    expected |= {"seal_due_at": None, "poll_interval": 5.0, "delta_conn_id": None, "storage_options": None}
    arguments = wait.trigger.serialize()[1]
    assert {name: arguments[name] for name in expected} == expected
    assert (wait.method_name, wait.timeout) == ("execute_complete", timedelta(seconds=60))


def test_the_triggers_arguments_mean_the_same(tmp_path: Path) -> None:
    rows = pa.table({"day": ["a"], "hour": [1], "n": [1]})
    write_deltalake(str(tmp_path / "t"), rows, partition_by=["day", "hour"])
    task = sensor(tmp_path / "t", partitions={"day": ["b", None], "hour": 2}, operations=["WRITE", "merge"])
    arguments = deferred(task).trigger.serialize()[1]
    again = Condition.of(operations=arguments["operations"], partitions=arguments["partitions"])
    assert again == task._condition()
    assert json.loads(json.dumps(arguments)) == arguments


def test_secrets_of_the_connection_stay_out_of_the_trigger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "t", [1])
    monkeypatch.setenv(
        "AIRFLOW_CONN_LAKE",
        json.dumps(
            {"conn_type": "delta", "login": "AKIA", "password": "hidden!", "extra": {"storage": "s3"}}
        ),
    )
    task = sensor(tmp_path / "t", delta_conn_id="lake", storage_options={"region": "x"})
    assert "hidden!" in str(task._storage_options())
    arguments = deferred(task).trigger.serialize()[1]
    assert (arguments["delta_conn_id"], arguments["storage_options"]) == ("lake", {"region": "x"})
    assert "hidden!" not in str(arguments)


def test_poking_survives_a_store_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "t", [1])

    async def unavailable(self: Watch) -> None:
        raise StoreUnavailable("503", remedy="wait.")

    monkeypatch.setattr(Watch, "look", unavailable)
    assert not poke(sensor(tmp_path / "t", baseline_version=0)).is_done
    # Deferred, the triggerer goes on looking.
    assert deferred(sensor(tmp_path / "t", baseline_version=0))


@pytest.mark.parametrize("has_pipeline", [True, False])
def test_a_sensor_waits_for_the_store_of_its_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_pipeline: bool
) -> None:
    source, target = LogTable(tmp_path / "source").create(), LogTable(tmp_path / "target").create()
    target.write_seal(seal(100, 0, source=source, kind="load"))
    given = {"pipeline": "p", "target": target.uri} if has_pipeline else {}

    async def unavailable(*_: Any) -> None:
        raise StoreUnavailable("503", remedy="wait.")

    with monkeypatch.context() as away:
        away.setattr(DeltaLog, "snapshot", unavailable)
        assert not poke(sensor(source.uri, deferrable=False, **given)).is_done
        task = sensor(source.uri, timeout=60, poke_interval=5, **given)
        first = deferred(task)
        assert isinstance(first.trigger, DateTimeTrigger)
        assert (first.method_name, first.timeout) == ("look_again", timedelta(seconds=60))
    later: Any = {"task_state_store": Store()}
    with pytest.raises(TaskDeferred) as again:
        task.look_again(later, event=1, **{**(first.kwargs or {}), "until": time.time() + 30})
    assert isinstance(again.value.trigger, DeltaVersionSensorTrigger)
    assert again.value.timeout is not None, "what is left of the first one"
    assert timedelta(seconds=25) < again.value.timeout <= timedelta(seconds=30)
    with pytest.raises(TaskDeferred) as late:
        task.look_again(later, until=time.time() - 9)
    assert late.value.timeout == timedelta(0)


def test_a_name_that_an_operator_has_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTA_CDC_HOME", str(tmp_path / "cache"))
    append(tmp_path / "t", [1])
    context: Any = {"task_state_store": Store()}
    task = sensor("main.sales.orders", baseline_version=0)
    with pytest.raises(TableNameUnresolved):
        task.execute(context)
    found = names.Location("main.sales.orders", str(tmp_path / "t"), "id", "")
    names.NameCache({}, (), None).set(found)
    assert deferred(task).trigger.serialize()[1]["table"] == str(tmp_path / "t")
    append(tmp_path / "t", [2])
    assert poke(task).xcom_value["version"] == 1
    # The catalog of another connection has another table of this name.
    append(tmp_path / "other", [1])
    names.NameCache({}, (), None).set(replace(found, location=str(tmp_path / "other"), spark_conn_id="c"))
    with pytest.raises(TableNameMoved, match=r"/t \(Spark in the worker\); .*/other \(c\)"):
        task.execute(context)


def test_an_open_batch_of_a_sink_is_work(tmp_path: Path) -> None:
    """A batch was read, and its delivery failed: the source has nothing newer, the sink lacks the batch."""
    source = LogTable(tmp_path / "s").create()
    source.append()
    source.append()
    staging = LogTable(tmp_path / "staging", table_id="staging-id")
    staging.create()
    made: Any = changed(
        seal(100, source.version, source=source, start=0, kind="read"),
        configuration={"batch": "snapshot", "complete": True, "committed": None, "ending": source.version},
    )
    staging.write_seal(made, operation="WRITE")
    waiting = sensor(source.uri, pipeline="p", target=staging.uri)
    assert poke(waiting).is_done
    done = changed(
        seal(101, source.version, source=source, start=0, kind="commit"),
        configuration=made.state.configuration,
    )
    staging.write_seal(done, operation="WRITE")
    assert not poke(waiting).is_done


@pytest.mark.parametrize("mode", ["poke", "reschedule"])
@pytest.mark.parametrize("edited", ["many", -(10**9), 10**9])
def test_a_right_that_stays_missing_ends_the_pokes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, edited: Any
) -> None:
    """In mode reschedule, each check has a process of its own."""
    append(tmp_path / "t", [1])
    store = Store(refusals=edited)
    answers = [True] * 5 + [False] + [True] * 6

    def made() -> DeltaVersionSensor:
        return sensor(tmp_path / "t", baseline_version=0, deferrable=False, mode=mode)

    one = made()

    def check() -> PokeReturnValue:
        return poke(one if mode == "poke" else made(), store)

    async def look(self: Watch) -> None:
        if answers.pop(0):
            raise StoreRefused("403", remedy="give the right.")

    monkeypatch.setattr(Watch, "look", look)
    for _ in range(len(answers) - 1):
        assert not check().is_done
    with pytest.raises(StoreRefused):
        check()
    # A retry begins again.
    answers += [True]
    assert not check().is_done


def test_a_refused_baseline_ends_a_deferred_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two checks, the triggerer only waits; then a new process looks."""

    def refused(*_: Any, **__: Any) -> None:
        raise StoreRefused("403", remedy="give the right.")

    monkeypatch.setattr(DeltaVersionSensor, "_watermark", refused)
    # As on Airflow before 3.3, without a task state store.
    context: Any = {}
    kwargs: dict[str, Any] = {"until": 2e9}
    for _ in range(MOST_REFUSALS - 1):
        with pytest.raises(TaskDeferred) as deferred:
            sensor(tmp_path / "t", pipeline="p", target="/t").look_again(context, **kwargs)
        kwargs = deferred.value.kwargs or {}
    with pytest.raises(StoreRefused):
        sensor(tmp_path / "t", pipeline="p", target="/t").look_again(context, **kwargs)


REPLACED = SourceTableReplaced("another table.", remedy="look.")


def look_fails(task: DeltaVersionSensor, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a sensor run into an error, as the worker runs it."""
    context: Any = {"task_state_store": Store()}
    found = {"event": {"error": REPLACED.to_dict()}}
    timeout = {"error": "Trigger timeout"}

    async def look(self: Watch) -> None:
        raise AirflowTaskTimeout("execution_timeout") if when == "killed" else REPLACED

    if when == "in the triggerer":
        task.execute_complete(context, found["event"])
    elif when == "resumed":
        task.resume_execution("execute_complete", found, context)
    elif when == "timeout" and task.deferrable:
        task.resume_execution("__fail__", timeout, context)
    else:
        if when != "timeout":
            monkeypatch.setattr(Watch, "look", look)
        task.execute(context)


@pytest.mark.parametrize("how", [{}, {"soft_fail": True}, {"never_fail": True}])
@pytest.mark.parametrize(
    ("deferrable", "when"),
    [
        *((True, when) for when in ("first look", "in the triggerer", "resumed", "timeout", "killed")),
        *((False, when) for when in ("first look", "timeout", "killed")),
    ],
)
def test_the_state_of_a_task_whose_look_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deferrable: bool, when: str, how: dict[str, bool]
) -> None:
    """``never_fail`` failed at the first look if the sensor was deferrable."""
    append(tmp_path / "t", [1])
    task = sensor(tmp_path / "t", poke_interval=0, timeout=0, deferrable=deferrable, **how)
    errors: dict[str, type[BaseException]] = {"timeout": AirflowSensorTimeout, "killed": AirflowTaskTimeout}
    error = errors.get(when, SourceTableReplaced)
    is_skipped = how.get("never_fail") or (how.get("soft_fail") and when in errors)
    with pytest.raises(AirflowSkipException if is_skipped else error):
        look_fails(task, when, monkeypatch)


def test_a_sensor_that_never_fails_is_still_rescheduled(tmp_path: Path) -> None:
    append(tmp_path / "t", [1])
    task = sensor(tmp_path / "t", mode="reschedule", deferrable=False, never_fail=True)
    context: Any = {
        "task_state_store": Store(),
        "ti": SimpleNamespace(get_first_reschedule_date=lambda _: None),
    }
    with pytest.raises(AirflowRescheduleException):
        task.execute(context)
    for deferrable in (True, False):
        wrong = sensor(tmp_path / "t", pipeline="p", never_fail=True, deferrable=deferrable)
        with pytest.raises(AirflowSkipException):
            wrong.execute(context)


def test_what_is_there_already_needs_no_triggerer(tmp_path: Path) -> None:
    append(tmp_path / "t", [1])
    append(tmp_path / "t", [2])
    context: Any = {"task_state_store": Store()}
    task = sensor(tmp_path / "t", deferrable=True, baseline_version="0")
    assert task.execute(context)["version"] == 1
    assert task.execute_complete(context, {"version": 1}) == {"version": 1}
