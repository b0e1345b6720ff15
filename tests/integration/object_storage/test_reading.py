"""What is read and kept without Spark, on a real S3-compatible store, in fair weather and in bad."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_delta_cdc.runtime import exchange
from airflow_delta_cdc.sensors import DeltaVersionSensor
from airflow_delta_cdc.triggers import DeltaVersionSensorTrigger
from delta_cdc.core.errors import StoreUnavailable
from delta_cdc.delta_log.table import DeltaLog, run_sync
from tests.support.faulty_proxy import Once, Weather, no_fault
from tests.support.s3_gateway import SECRET_KEY
from tests.support.world import eventful

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk.exceptions import TaskDeferred

    from tests.support.faulty_proxy import Kind, Request
    from tests.support.lake import Lake


class Kept:
    """A task's state store."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self.kept.get(key, default)

    def set(self, key: str, value: Any) -> None:
        self.kept[key] = value


@pytest.fixture
def store_conn(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AIRFLOW_CONN_STORE", lake.connection)
    return "store"


def append(lake: Lake, name: str, *ids: int) -> None:
    data = pa.table({"id": pa.array(ids, pa.int64())})
    write_deltalake(lake.uri(name), data, mode="append", storage_options=lake.direct)


def deferred(task: DeltaVersionSensor) -> TaskDeferred:
    from airflow.sdk.exceptions import TaskDeferred

    context: Any = {"task_state_store": Kept(), "run_id": "r", "ti": None}
    with pytest.raises(TaskDeferred) as caught:
        task.execute(context)
    return caught.value


async def fired(trigger: DeltaVersionSensorTrigger) -> Any:
    async for event in trigger.run():
        return event.payload
    raise AssertionError("the trigger ended without an event")


def test_a_sensor_waits_in_bad_weather(lake: Lake, store_conn: str) -> None:
    """Deferred: the trigger is made anew from what it is serialised to, as in the triggerer."""
    append(lake, "orders", 1)
    task = DeltaVersionSensor(
        task_id="wait",
        table=lake.uri("orders"),
        baseline_version="0",
        delta_conn_id=store_conn,
        poke_interval=0.05,
    )
    path, kwargs = deferred(task).trigger.serialize()
    assert SECRET_KEY not in json.dumps(kwargs, default=str)
    trigger = DeltaVersionSensorTrigger(**kwargs)
    assert path.endswith(DeltaVersionSensorTrigger.__name__)

    async def wait() -> Any:
        storm, asked, enough = Weather(5, 0.4), itertools.count(1), asyncio.Event()
        loop = asyncio.get_running_loop()

        def faults(request: Request) -> Kind | None:
            if next(asked) == 20:
                loop.call_soon_threadsafe(enough.set)
            return storm(request)

        lake.proxy.faults = faults
        waiting = asyncio.create_task(fired(trigger))
        await asyncio.wait_for(enough.wait(), 120)
        assert not waiting.done()
        await asyncio.to_thread(append, lake, "orders", 2)
        return await asyncio.wait_for(waiting, 120)

    told = asyncio.run(wait())
    assert lake.proxy.struck
    assert told["version"] == 1, told


def test_the_log_reads_the_same_or_says_that_it_cannot(lake: Lake, tmp_path: Path) -> None:
    """With checkpoints, deletions and thirty commits: never another answer, however the store behaves."""
    source = eventful(tmp_path / "source")
    lake.upload(source.path)
    log = DeltaLog(source.path)
    expected = run_sync(log.snapshot())
    answers, said = 0, list[str]()
    for seed in range(12):
        lake.proxy.faults = Weather(seed, 0.3)
        options = {**lake.options, "max_retries": "1", "retry_timeout": "2s"}
        try:
            found = run_sync(DeltaLog(lake.uri("source"), options).snapshot())
        except StoreUnavailable as error:
            said.append(str(error))
            continue
        answers += 1
        assert (found.version, found.table_id, found.configuration) == (
            expected.version,
            expected.table_id,
            expected.configuration,
        )
    assert answers, "some got through"
    assert SECRET_KEY not in "".join(said)
    assert lake.proxy.struck


def test_the_workers_own_identity_is_not_mixed_with_the_connections(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store believes no key that comes with somebody else's token."""
    append(lake, "orders", 1)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of the worker")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert run_sync(DeltaLog(lake.uri("orders"), lake.options).newest_version()) == 0


def test_wrong_keys_are_said_without_them(lake: Lake) -> None:
    append(lake, "orders", 1)
    wrong = {**lake.options, "AWS_SECRET_ACCESS_KEY": "wr0ng-and-hidden"}
    with pytest.raises(StoreUnavailable, match="refused access") as caught:
        run_sync(DeltaLog(lake.uri("orders"), wrong).newest_version())
    assert "wr0ng-and-hidden" not in str(caught.value)


def test_one_option_does_not_drop_those_of_the_machine(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    append(lake, "orders", 1)
    for name, value in lake.options.items():
        monkeypatch.setenv(name, value)
    for options in (None, {"timeout": "20s"}):
        assert run_sync(DeltaLog(lake.uri("orders"), options).newest_version()) == 0


def test_the_shared_folder_is_reached_by_the_tables_connection(lake: Lake, tmp_path: Path) -> None:
    folder = f"{lake.uri('results')}/job"
    exchange.put_object(f"{folder}/spec.json", b"{}", lake.options)
    file = tmp_path / "a.jar"
    file.write_bytes(b"jar")
    for _ in range(2):
        lake.proxy.faults = no_fault
        exchange.put_file_once(f"{folder}/a.jar", file, lake.options)
        # The second time nothing is written.
        lake.proxy.faults = Once("slow_down", lambda request: request.method == "PUT", times=1_000)
    assert not lake.proxy.struck
    lake.proxy.faults = no_fault
    exchange.put_object(f"{folder}/result/part-0", b"done\n", lake.options)
    assert exchange.read_text(f"{folder}/result", is_local=False, options=lake.options) == "done"
    exchange.delete_folder(folder, lake.options)
    assert exchange.read_text(f"{folder}/result", is_local=False, options=lake.options) is None
