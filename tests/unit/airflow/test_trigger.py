"""The sensor's trigger: one event, no crash."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_cdc.triggers import DeltaVersionSensorTrigger
from airflow_delta_cdc.triggers.patience import JITTER, LONGEST_BACKOFF, MOST_REFUSALS, Patience
from delta_cdc.core.errors import StoreRefused, StoreUnavailable
from delta_cdc.planning.waiting import Watch
from tests.unit.airflow.tables import append

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.triggers.base import TriggerEvent


def trigger(table: object, **arguments: Any) -> DeltaVersionSensorTrigger:
    return DeltaVersionSensorTrigger(
        table=str(table), **{"baseline": {"version": 0}, "poll_interval": 0.01, **arguments}
    )


async def first_event(of: DeltaVersionSensorTrigger) -> TriggerEvent:
    async with asyncio.timeout(60), aclosing(of.run()) as events:  # type: ignore[type-var]
        return await anext(events)


def patience(interval: float = 10.0) -> Patience:
    return Patience("/t", interval, logging.getLogger("airflow.test"))


def test_serializing_round_trip() -> None:
    condition = {"min_versions": 3, "operations": ["MERGE"], "partitions": {"day": ["a", None]}}
    made = trigger("/t", **condition, delta_conn_id="lake", storage_options={"region": "x"})
    path, arguments = made.serialize()
    assert path == "airflow_delta_cdc.triggers.sensor.DeltaVersionSensorTrigger"
    assert DeltaVersionSensorTrigger(**arguments).serialize() == made.serialize()
    assert json.loads(json.dumps(arguments)) == arguments
    assert arguments["storage_options"] == {"region": "x"}


def test_fires_once_the_change_comes_and_then_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path / "t", [1])
    looked = asyncio.Event()
    look = Watch.look

    async def noted(self: Watch) -> Any:
        found = await look(self)
        looked.set()
        return found

    monkeypatch.setattr(Watch, "look", noted)

    async def scenario() -> list[TriggerEvent]:
        async def all_events() -> list[TriggerEvent]:
            return [event async for event in trigger(tmp_path / "t").run()]

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
    trouble = [
        OSError("reset"),
        RuntimeError("throttled"),
        TimeoutError(),
        StoreUnavailable("503", remedy="-"),
    ]
    real = Watch.look

    async def shaky(self: Watch) -> Any:
        if trouble:
            raise trouble.pop()
        return await real(self)

    monkeypatch.setattr(Watch, "look", shaky)
    event = asyncio.run(first_event(trigger(tmp_path / "t")))
    assert event.payload["version"] == 1
    assert not trouble


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"table": "main.sales.orders"}, "TableNameUnresolved"),
        ({"partitions": {"nothing": 1}}, "InvalidConfiguration"),
        ({"baseline": {"version": 9}}, "SourceTableReplaced"),
        ({"delta_conn_id": "nowhere"}, "DeltaConnectionNotFound"),
    ],
)
def test_what_waiting_cannot_repair_is_a_named_error(
    tmp_path: Path, arguments: dict[str, Any], error: str
) -> None:
    append(tmp_path / "t", [1])
    event = asyncio.run(first_event(trigger(**{"table": tmp_path / "t", **arguments})))
    assert event.payload["error"]["class"] == error
    if error == "SourceTableReplaced":
        allowed = trigger(tmp_path / "t", **arguments, allow_recreation=True)
        assert asyncio.run(first_event(allowed)).payload["reason"] == "table_recreated"


def test_a_damaged_log_is_looked_at_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(3):
        append(tmp_path / "t", [i])
    # As a table looks for a moment while it is being deleted.
    hole = tmp_path / "t" / "_delta_log" / f"{1:020d}.json"
    kept = hole.read_bytes()
    hole.unlink()

    event = asyncio.run(first_event(trigger(tmp_path / "t")))
    assert event.payload["error"]["class"] in ("LogGap", "VersionsExpired")

    real = Patience.failed

    def repaired(self: Patience, error: Exception) -> None:
        hole.write_bytes(kept)
        real(self, error)

    monkeypatch.setattr(Patience, "failed", repaired)
    assert asyncio.run(first_event(trigger(tmp_path / "t"))).payload["version"] == 2


def test_a_right_that_stays_missing_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sensor has a long timeout; a refusal may pass, as with credentials that are renewed."""
    append(tmp_path / "t", [1])
    append(tmp_path / "t", [2])
    looks: list[int] = []
    real = Watch.look

    async def refused(self: Watch) -> Any:
        looks.append(1)
        if len(looks) > passes_after:
            return await real(self)
        raise StoreRefused("403", remedy="give the right.")

    monkeypatch.setattr(Watch, "look", refused)
    monkeypatch.setattr(Patience, "length", lambda _: 0.0)
    passes_after = MOST_REFUSALS - 1
    assert asyncio.run(first_event(trigger(tmp_path / "t"))).payload["version"] == 1
    looks.clear()
    passes_after = 100
    error = asyncio.run(first_event(trigger(tmp_path / "t"))).payload["error"]
    assert (error["class"], len(looks)) == ("StoreRefused", MOST_REFUSALS)


def test_credentials_are_read_again_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path / "t", [1])
    append(tmp_path / "t", [2])
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "delta", "extra": {"region": "old"}}))
    options: list[Any] = []
    real = Watch.__init__

    def note(self: Watch, *args: Any, **given: Any) -> None:
        options.append(given["storage_options"])
        real(self, *args, **given)

    async def expired(self: Watch) -> Any:
        monkeypatch.setenv(
            "AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "delta", "extra": {"region": "new"}})
        )
        monkeypatch.setattr(Watch, "look", look)
        raise StoreUnavailable("403", remedy="renew.")

    look = Watch.look
    monkeypatch.setattr(Watch, "__init__", note)
    monkeypatch.setattr(Watch, "look", expired)
    monkeypatch.setattr(Watch, "reopen", lambda self, new: options.append(new))
    asyncio.run(first_event(trigger(tmp_path / "t", delta_conn_id="lake")))
    assert options == [{"AWS_REGION": "old"}, {"AWS_REGION": "new"}]


def test_backoff_grows_to_a_cap_and_starts_anew() -> None:
    waiting = patience()
    lengths = []
    for _ in range(3):
        lengths.append(waiting.length())
        waiting.failed(OSError())
    assert lengths == [10.0, 20.0, 40.0]
    for _ in range(1000):
        waiting.failed(OSError())
    assert waiting.length() == LONGEST_BACKOFF
    waiting.fine()
    assert waiting.length() == 10.0
    slow = patience(900.0)
    slow.failed(OSError())
    assert slow.length() == 900.0


def test_pauses_differ() -> None:
    waiting = patience()
    waiting.pause()
    pauses = {waiting.pause() for _ in range(100)}
    assert len(pauses) > 90
    assert all(10.0 * (1 - JITTER) <= pause <= 10.0 * (1 + JITTER) for pause in pauses)
    # First looks are spread over the interval.
    first = [patience().pause() for _ in range(1000)]
    assert 0 <= min(first) <= max(first) <= 10.0 * (1 + JITTER)
    assert all(sum(low <= pause < low + 5.5 for pause in first) > 300 for low in (0, 5.5))


def test_the_log_tells_changes_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    waiting = Patience("/t", 1.0, logging.getLogger("test"))
    for _ in range(5):
        waiting.failed(OSError("reset"))
    waiting.failed(StoreUnavailable("The store said 503.", remedy="wait."))
    waiting.fine()
    waiting.fine()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "Cannot check /t. The trigger tries again: OSError: reset"),
        ("WARNING", "Cannot check /t. The trigger tries again: The store said 503."),
        ("INFO", "The check of /t succeeds again, after 6 failed checks."),
    ]
