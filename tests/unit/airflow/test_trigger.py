"""The trigger: one event, no crash."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc.triggers import DeltaVersionTrigger
from airflow_delta_cdc.triggers.version import LONGEST_BACKOFF
from delta_cdc.waiting import Watch
from tests.unit.airflow.tables import append

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from airflow.triggers.base import TriggerEvent


def trigger(table: object, **arguments: Any) -> DeltaVersionTrigger:
    return DeltaVersionTrigger(
        table=str(table), **{"baseline_version": 0, "poll_interval": 0.01, **arguments}
    )


async def first_event(of: DeltaVersionTrigger) -> TriggerEvent:
    async with asyncio.timeout(60), aclosing(of.run()) as events:  # type: ignore[type-var]
        return await anext(events)


def test_serializing_round_trip() -> None:
    made = trigger("/t", min_versions=3, storage_options={"region": "x"})
    path, arguments = made.serialize()
    assert path == "airflow_delta_cdc.triggers.version.DeltaVersionTrigger"
    assert DeltaVersionTrigger(**arguments).serialize() == made.serialize()
    assert arguments["storage_options"] == {"region": "x"}


def test_fires_for_what_is_there_already(tmp_path: Path) -> None:
    append(tmp_path / "t", [1])
    append(tmp_path / "t", [2])
    event = asyncio.run(first_event(trigger(tmp_path / "t")))
    assert event.payload["version"] == 1
    assert event.payload["previous_version"] == 0


def test_fires_once_the_change_comes_and_then_ends(tmp_path: Path) -> None:
    append(tmp_path / "t", [1])
    looked = asyncio.Event()

    async def scenario() -> list[TriggerEvent]:
        waiting = trigger(tmp_path / "t")
        pause = waiting.pause
        waiting.pause = lambda failures: (looked.set(), pause(failures))[1]  # type: ignore[method-assign]

        async def all_events() -> list[TriggerEvent]:
            return [event async for event in waiting.run()]

        task = asyncio.create_task(all_events())
        await looked.wait()
        assert not task.done()
        append(tmp_path / "t", [2])
        return await asyncio.wait_for(task, 60)

    events = asyncio.run(scenario())
    assert [event.payload["version"] for event in events] == [1]


def test_survives_a_failing_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path / "t", [1])
    append(tmp_path / "t", [2])
    real, trouble = Watch.look, [OSError("connection reset"), RuntimeError("throttled"), TimeoutError()]

    async def shaky(self: Watch) -> Any:
        if trouble:
            raise trouble.pop()
        return await real(self)

    monkeypatch.setattr(Watch, "look", shaky)
    event = asyncio.run(first_event(trigger(tmp_path / "t")))
    assert event.payload["version"] == 1
    assert not trouble


def test_what_waiting_cannot_repair_is_a_named_error() -> None:
    event = asyncio.run(first_event(trigger("main.sales.orders")))
    assert event.payload["error"]["class"] == "TableNameUnresolved"


def test_backoff_grows_to_a_cap() -> None:
    waiting = trigger("/t", poll_interval=10.0)
    assert [waiting.pause(failures) for failures in (0, 1, 2)] == [10.0, 20.0, 40.0]
    assert waiting.pause(1000) == LONGEST_BACKOFF
    assert trigger("/t", poll_interval=900.0).pause(5) == 900.0
