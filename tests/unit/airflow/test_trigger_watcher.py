"""The watcher's trigger, in the triggerer's shared streams and on the state store's real accessor."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, asynccontextmanager
from datetime import date, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import (
    AssetStateStoreResult,
    ErrorResponse,
    GetAssetStateStoreByName,
    OKResponse,
    SetAssetStateStoreByName,
)
from airflow.triggers.shared_stream import AckTimeout, SharedStreamManager
from deltalake import DeltaTable, write_deltalake

from airflow_delta_cdc.assets import delta_asset
from airflow_delta_cdc.sensors import DeltaVersionSensor
from airflow_delta_cdc.triggers import DeltaVersionTrigger, version, watched_asset
from airflow_delta_cdc.triggers.patience import Patience
from delta_cdc.core.errors import InvalidConfiguration, TableNameUnresolved
from delta_cdc.planning.waiting import Condition, Watch
from tests.unit.airflow.tables import append

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


#: Every pause between two looks.
_PAUSES: list[float] = []


@pytest.fixture(autouse=True)
def _pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Patience.pause

    def noted(self: Patience) -> float:
        _PAUSES.append(real(self))
        # However many looks failed, tests don't wait for minutes.
        return min(_PAUSES[-1], 0.02)

    monkeypatch.setattr(Patience, "pause", noted)


class Supervisor:
    """The other side of the triggerer's pipe: keeps the asset state store."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Any] = {}
        self.broken = False
        self.unknown: set[str] = set()

    async def asend(self, message: Any) -> Any:
        if self.broken:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))
        if isinstance(message, GetAssetStateStoreByName):
            value = self.kept.get((message.name, message.key))
            if value is None:
                return ErrorResponse(error=ErrorType.ASSET_STORE_NOT_FOUND)
            return AssetStateStoreResult(value=value)
        assert isinstance(message, SetAssetStateStoreByName)
        if message.name in self.unknown:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))
        self.kept[message.name, message.key] = message.value
        return OKResponse(ok=True)

    def seen(self, asset: str) -> list[int]:
        return [value["version"] for (name, _), value in self.kept.items() if name == asset]


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    made = Supervisor()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", made, raising=False)
    monkeypatch.setattr(version, "EVENTS_APART", 0.0)
    return made


class Running:
    """A watcher in the manager of the triggerer; the test is the supervisor that stores events."""

    def __init__(self, manager: SharedStreamManager, trigger: DeltaVersionTrigger) -> None:
        self._manager, self._key = manager, trigger.shared_stream_key()
        self._number = id(trigger)
        raw = manager.subscribe(trigger_id=self._number, trigger=trigger, key=self._key)
        self._events: Any = trigger.filter_shared_stream(raw)
        self._next: asyncio.Task[Any] = asyncio.create_task(anext(self._events))

    async def event(self) -> tuple[dict[str, Any], int]:
        """Return the next event's payload and the number under which it has to be confirmed."""
        event = await asyncio.wait_for(self._next, 60)
        number = self._manager.bind_pending_event(trigger_id=self._number, key=self._key)
        assert number is not None
        self._next = asyncio.create_task(anext(self._events))
        await asyncio.sleep(0)
        return event.payload, number

    async def quiet(self) -> bool:
        """Tell whether nothing comes in many looks."""
        enough = len(_PAUSES) + 10
        await until(lambda: self._next.done() or len(_PAUSES) >= enough)
        return not self._next.done()

    async def failure(self) -> BaseException | None:
        await asyncio.wait([self._next], timeout=60)
        return self._next.exception()

    def stored(self, number: int) -> None:
        self._manager.confirm_persisted([number])

    async def end(self) -> None:
        self._next.cancel()
        await asyncio.wait([self._next])
        await self._manager.unsubscribe(self._number, self._key)


@asynccontextmanager
async def running(*triggers: DeltaVersionTrigger, ack_timeout: float = 300) -> AsyncIterator[Any]:
    manager = SharedStreamManager(ack_timeout=ack_timeout)
    started = [Running(manager, trigger) for trigger in triggers]
    try:
        yield started[0] if len(started) == 1 else started
    finally:
        for one in started:
            await one.end()


def watcher(table: object, asset: str = "orders", **arguments: Any) -> DeltaVersionTrigger:
    return DeltaVersionTrigger(table=str(table), **{"asset_name": asset, "poll_interval": 0.01, **arguments})


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - it waits for what others do
            await asyncio.sleep(0.01)


def versions(payload: dict[str, Any]) -> tuple[int | None, int]:
    return payload["previous_version"], payload["version"]


# -- arguments ------------------------------------------------------------------------------------
def test_serializing_round_trip() -> None:
    partitions = {"day": (date(2026, 1, 2), None), "n": {3}}
    made = watcher("/t", min_versions=2, operations={"Merge"}, partitions=partitions, delta_conn_id="lake")
    path, arguments = made.serialize()
    assert path == "airflow_delta_cdc.triggers.version.DeltaVersionTrigger"
    assert arguments["partitions"] == {"day": [None, "2026-01-02"], "n": ["3"]}
    assert arguments["operations"] == ["merge"]
    assert DeltaVersionTrigger(**json.loads(json.dumps(arguments))).serialize() == made.serialize()


def test_the_interval_is_that_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = DeltaVersionSensor(task_id="wait", table="/t")
    assert sensor.poke_interval == 30.0
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__POLL_INTERVAL", "7")
    assert DeltaVersionTrigger(table="/t", asset_name="a").serialize()[1]["poll_interval"] == 7.0
    assert DeltaVersionSensor(task_id="wait", table="/t").poke_interval == 7.0
    assert DeltaVersionSensor(task_id="wait", table="/t", poke_interval=3).poke_interval == 3.0
    for wrong in ("-1", "0", "nan", "inf"):
        monkeypatch.setenv("AIRFLOW__DELTA_CDC__POLL_INTERVAL", wrong)
        with pytest.raises(InvalidConfiguration, match=rf"\[delta_cdc\] poll_interval is {wrong}\."):
            DeltaVersionTrigger(table="/t", asset_name="a")
        with pytest.raises(InvalidConfiguration, match="poll_interval"):
            DeltaVersionSensor(task_id="wait", table="/t")
        assert DeltaVersionTrigger(table="/t", asset_name="a", poll_interval=3).poll_interval == 3.0


def test_a_watched_asset_is_never_one_that_tasks_name() -> None:
    arguments: list[dict[str, Any]] = [{}, {"min_versions": 2}, {"operations": "MERGE"}, {"poll_interval": 1}]
    assets = [
        delta_asset("/t/a b"),
        watched_asset("/t"),
        *(watched_asset("/t/a b", **one) for one in arguments),
    ]
    assert len({asset.name for asset in assets}) == len({asset.uri for asset in assets}) == len(assets)
    assert all(asset.uri.isascii() and " " not in asset.uri for asset in assets)
    # Different watchers never share a stream, and the same arguments give the same asset.
    keys = {watcher("/t", **one).shared_stream_key() for one in (*arguments, {"asset": "other"})}
    assert len(keys) == len(arguments) + 1
    one, again = (watched_asset(f"{scheme}://lake/t", min_versions=2) for scheme in ("s3a", "s3"))
    assert (one.name, one.uri) == (again.name, again.uri)
    assert [w.trigger.serialize() for w in one.watchers] == [w.trigger.serialize() for w in again.watchers]
    (watching,) = one.watchers
    assert watching.trigger.asset_name == one.name  # type: ignore[attr-defined]


def test_an_interval_as_a_sensor_takes_it() -> None:
    """``poll_interval=timedelta(seconds=10)`` was a TypeError."""
    ten = [
        watched_asset("/t", poll_interval=given) for given in (10, 10.0, timedelta(seconds=10), "10 seconds")
    ]
    assert {asset.name for asset in ten} == {ten[0].name}
    assert {asset.watchers[0].trigger.serialize()[1]["poll_interval"] for asset in ten} == {10.0}
    assert watched_asset("/t", poll_interval=None).watchers[0].trigger.poll_interval == 30.0
    for wrong in ("soon", -1, timedelta(0), True, [1]):
        with pytest.raises(InvalidConfiguration, match="poll_interval"):
            watched_asset("/t", poll_interval=wrong)


@pytest.mark.parametrize(
    "wrong", [{"partitions": {"day": []}}, {"min_versions": 0}, {"operations": 1}, {"poll_interval": 0}]
)
def test_a_wrong_condition_is_refused_when_the_dag_is_parsed(wrong: dict[str, Any]) -> None:
    with pytest.raises((InvalidConfiguration, TypeError)):
        watcher("/t", **wrong)
    with pytest.raises(TableNameUnresolved):
        watched_asset("main.sales.orders")


def test_only_a_watcher_that_lists_partitions_reads_whole_commits(
    tmp_path: Path, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t"
    write_deltalake(str(table), pa.table({"day": [1], "id": [1]}), partition_by=["day"])
    whole: list[Condition] = []
    listed = Condition.listed

    def recorded(condition: Condition) -> Any:
        whole.append(condition)
        return listed(condition)

    monkeypatch.setattr(Condition, "listed", recorded)

    async def scenario(**arguments: Any) -> list[str] | None:
        async with running(watcher(table, **arguments)) as one:
            _, number = await one.event()
            one.stored(number)
            day = 2 + len(DeltaTable(str(table)).file_uris())
            rows = pa.table({"day": [day, day + 1], "id": [1, 2]})
            write_deltalake(str(table), rows, mode="append")
            return (await one.event())[0].get("partitions")

    assert asyncio.run(scenario()) is None
    assert whole == []
    assert asyncio.run(scenario(list_partitions=True, asset="other")) == ["day=5", "day=6"]
    assert len(whole) == 1


# -- the cursor -----------------------------------------------------------------------------------
def test_the_cursor_moves_only_when_the_event_is_stored(tmp_path: Path, supervisor: Supervisor) -> None:
    table = tmp_path / "t"
    append(table, [1])

    async def never_confirmed(ack_timeout: float) -> None:
        async with running(watcher(table), ack_timeout=ack_timeout) as one:
            assert versions((await one.event())[0]) == (None, 0)
            if ack_timeout < 1:
                assert isinstance(await one.failure(), AckTimeout)
            else:
                assert await one.quiet()
        assert supervisor.seen("orders") == []

    async def again() -> None:
        async with running(watcher(table)) as one:
            payload, number = await one.event()
            assert versions(payload) == (None, 0)
            assert await one.quiet()
            one.stored(number)
            await until(lambda: supervisor.seen("orders") == [0])
            append(table, [2])
            assert versions((await one.event())[0]) == (0, 1)

    async def several_versions_are_one_event() -> None:
        async with running(watcher(table)) as one:
            assert versions((await one.event())[0]) == (0, 2)
            assert await one.quiet()

    asyncio.run(never_confirmed(300))
    asyncio.run(never_confirmed(0.05))
    asyncio.run(again())
    append(table, [3])
    asyncio.run(several_versions_are_one_event())


def test_events_are_confirmed_in_order(tmp_path: Path, supervisor: Supervisor) -> None:
    table = tmp_path / "t"
    append(table, [1])

    async def scenario() -> None:
        async with running(watcher(table), watcher(table, "other")) as (one, other):
            _, first = await one.event()
            _, of_the_other = await other.event()
            other.stored(of_the_other)
            await until(lambda: supervisor.seen("other") == [0])
            assert supervisor.seen("orders") == []
            append(table, [2])
            payload, second = await one.event()
            assert versions(payload) == (0, 1)
            one.stored(second)
            assert await one.quiet()
            assert supervisor.seen("orders") == [], "the first one is not stored yet"
            one.stored(first)
            await until(lambda: supervisor.seen("orders") == [1])

    asyncio.run(scenario())


def test_without_acknowledgement_the_cursor_stays(tmp_path: Path, supervisor: Supervisor) -> None:
    append(tmp_path / "t", [1])

    async def scenario() -> None:
        async with asyncio.timeout(60), aclosing(watcher(tmp_path / "t").run()) as events:  # type: ignore[type-var]
            assert versions((await anext(events)).payload) == (None, 0)
            append(tmp_path / "t", [2])
            assert versions((await anext(events)).payload) == (0, 1)
        assert supervisor.kept == {}

    asyncio.run(scenario())


def test_commits_in_quick_succession_make_one_event(
    tmp_path: Path, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow starts no run for an event that comes before its scheduler has seen the one before it."""
    table = tmp_path / "t"
    append(table, [1])
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if seconds > 1:
            append(table, [3])

    monkeypatch.setattr(version, "EVENTS_APART", 5.0)
    monkeypatch.setattr(version, "asyncio", SimpleNamespace(sleep=sleep))

    async def scenario() -> None:
        async with aclosing(watcher(table).run()) as events:  # type: ignore[type-var]
            assert versions((await anext(events)).payload) == (None, 0)
            append(table, [2])
            assert versions((await anext(events)).payload) == (0, 2)

    asyncio.run(scenario())
    assert [seconds for seconds in slept if seconds > 1] == [pytest.approx(5.0, abs=0.5)]


def test_an_unclean_outcome_goes_back_to_the_cursor(tmp_path: Path, supervisor: Supervisor) -> None:
    from airflow.triggers.shared_stream import AdvanceItem, AdvanceOutcome

    table = tmp_path / "t"
    append(table, [1])

    async def scenario() -> None:
        producer = DeltaVersionTrigger.create_shared_stream_producer(watcher(table).serialize()[1])
        stream = producer.open_stream()
        payload, first = await anext(stream)
        append(table, [2])
        payload, second = await anext(stream)
        assert versions(payload) == (0, 1)
        lost, kept = AdvanceOutcome(acked=0, failed=1), AdvanceOutcome(acked=1, failed=0)
        await producer.advance([AdvanceItem(first, lost), AdvanceItem(second, kept)])
        assert supervisor.seen("orders") == []
        assert versions((await anext(stream))[0]) == (None, 1)

    asyncio.run(scenario())


def test_a_table_made_again_while_the_triggerer_was_down(tmp_path: Path, supervisor: Supervisor) -> None:
    import shutil

    table = tmp_path / "t"
    append(table, [1])
    append(table, [2])

    async def first() -> None:
        async with running(watcher(table)) as one:
            _, number = await one.event()
            one.stored(number)
            await until(lambda: supervisor.seen("orders") == [1])

    async def second() -> None:
        async with running(watcher(table)) as one:
            payload, number = await one.event()
            assert (payload["reason"], versions(payload)) == ("table_recreated", (1, 1))
            one.stored(number)
            await until(lambda: {v["table_id"] for v in supervisor.kept.values()} == {payload["table_id"]})

    asyncio.run(first())
    shutil.rmtree(table)
    append(table, [8])
    append(table, [9])
    asyncio.run(second())


# -- trouble --------------------------------------------------------------------------------------
def test_nothing_ends_the_stream(
    tmp_path: Path, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t"
    real, trouble = Watch.look, [OSError("reset"), RuntimeError("?"), TimeoutError(), ValueError("bug")]

    async def shaky(self: Watch) -> Any:
        if trouble:
            raise trouble.pop()
        return await real(self)

    monkeypatch.setattr(Watch, "look", shaky)

    async def scenario() -> None:
        async with running(watcher(table)) as one:
            await until(lambda: not trouble)
            append(table, [1])
            assert versions((await one.event())[0]) == (None, 0)

    asyncio.run(scenario())


def test_a_store_that_does_not_answer_is_not_an_empty_one(tmp_path: Path, supervisor: Supervisor) -> None:
    table = tmp_path / "t"
    append(table, [1])
    supervisor.kept["orders", watcher(table).cursor_key()] = {"version": 0}
    supervisor.broken = True

    async def scenario() -> None:
        async with running(watcher(table)) as one:
            assert await one.quiet()
            supervisor.broken = False
            assert await one.quiet()
            append(table, [2])
            assert versions((await one.event())[0]) == (0, 1)

    asyncio.run(scenario())


def test_a_cursor_that_could_not_be_kept_is_kept_later(
    tmp_path: Path, supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    table = tmp_path / "t"
    append(table, [1])
    supervisor.unknown.add("orders")

    async def scenario() -> None:
        async with running(watcher(table)) as one:
            _, number = await one.event()
            one.stored(number)
            assert await one.quiet(), "and the event comes once only"
            assert supervisor.seen("orders") == []
            supervisor.unknown.clear()
            await until(lambda: supervisor.seen("orders") == [0])

    asyncio.run(scenario())
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "'orders'" in warnings[0]


def test_refused_recreation_ends_when_the_cursor_is_deleted(tmp_path: Path, supervisor: Supervisor) -> None:
    table = tmp_path / "t"
    append(table, [1])
    one_watcher = watcher(table, allow_recreation=False)
    supervisor.kept["orders", one_watcher.cursor_key()] = {"version": 5}

    async def scenario() -> None:
        async with running(one_watcher) as one:
            assert await one.quiet()
            supervisor.kept.clear()
            assert versions((await one.event())[0]) == (None, 0)

    asyncio.run(scenario())
