"""Hundreds of tables are read a few at a time."""

from __future__ import annotations

import ast
import asyncio
import gc
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import airflow_delta_cdc
import delta_cdc
from delta_cdc.core.concurrency import AT_ONCE, both, gathered, settled
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning import consumers
from delta_cdc.planning import status as statuses
from delta_cdc.planning.consumers import Consumer
from tests.support.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

MANY = 200


class Crowd:
    """Coroutines that count how many of them have been made and have not come to their end."""

    def __init__(self) -> None:
        self.alive = self.most = self.made = 0

    def one(self, *_: Any, **__: Any) -> Coroutine[Any, Any, int]:
        self.alive, self.made = self.alive + 1, self.made + 1
        self.most = max(self.most, self.alive)
        return self._wait(self.made)

    async def _wait(self, number: int) -> int:
        for _ in range(number % 7):
            await asyncio.sleep(0)
        self.alive -= 1
        return number


@pytest.mark.parametrize("run", [gathered, settled])
def test_never_more_than_the_limit_are_alive(run: Callable[..., Any]) -> None:
    crowd = Crowd()
    assert run_sync(run(crowd.one() for _ in range(MANY))) == list(range(1, MANY + 1))
    assert (crowd.most, crowd.alive) == (AT_ONCE, 0)
    crowd = Crowd()
    run_sync(run((crowd.one() for _ in range(MANY)), limit=3))
    assert crowd.most == 3


def test_an_error_stops_the_others() -> None:
    crowd, stopped = Crowd(), []

    async def endless() -> int:
        try:
            return await asyncio.Event().wait()
        finally:
            stopped.append(True)

    async def failing() -> int:
        await asyncio.sleep(0)
        raise ValueError("one of them")

    def some() -> Any:
        yield endless()
        yield failing()
        while True:
            yield endless()

    with pytest.raises(ValueError, match="one of them"):
        run_sync(gathered(some(), limit=4))
    assert len(stopped) == 3
    assert crowd.made == 0


def test_what_is_stopped_before_its_start_leaves_no_warning() -> None:
    """Python would print into the log of a task that a coroutine was never awaited."""

    async def never() -> None:
        raise AssertionError

    async def main() -> None:
        for gathers in (gathered, settled):
            task = asyncio.ensure_future(gathers([never(), never()]))
            asyncio.get_running_loop().call_soon(task.cancel)
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0)

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    # Other tests may have left open files, which are collected here.
    assert [str(one.message) for one in found if issubclass(one.category, RuntimeWarning)] == []


def test_an_error_takes_the_place_of_an_answer() -> None:
    async def one(number: int) -> int:
        if number % 2:
            raise ValueError(number)
        return number

    found = run_sync(settled(one(number) for number in range(4)))
    assert [str(answer) for answer in found] == ["0", "1", "2", "3"]
    assert [type(answer) for answer in found] == [int, ValueError, int, ValueError]


def test_the_status_and_the_consumers_of_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd, log = Crowd(), DeltaLog(Tables.made_in(tmp_path).source.uri)
    state = run_sync(log.snapshot())
    monkeypatch.setattr(statuses, "status_async", crowd.one)
    monkeypatch.setattr(consumers, "_observed", crowd.one)
    run_sync(statuses.status_of_all([("p", "/t")] * MANY))
    assert (crowd.made, crowd.most) == (MANY, AT_ONCE)
    run_sync(consumers.observe_consumers(log, state, [Consumer("p", None, "/t")] * MANY))
    assert (crowd.made, crowd.most) == (2 * MANY, AT_ONCE)


def test_nothing_of_any_length_is_gathered_without_a_limit() -> None:
    """``asyncio.gather`` is for a few that are written out; what comes from a list goes by ``gathered``."""
    found = []
    for package in (delta_cdc, airflow_delta_cdc):
        assert package.__file__ is not None
        for path in sorted(Path(package.__file__).parent.rglob("*.py")):
            if path.name == "concurrency.py":
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                starred = any(isinstance(given, ast.Starred) for given in node.args)
                if (node.func.attr == "gather" and starred) or node.func.attr == "create_task":
                    found.append(f"{path}:{node.lineno}")
    assert found == []


def test_of_two_errors_the_first_coroutines_is_raised() -> None:
    """Whichever comes earlier: a run that is started again must not show another error."""

    async def failing(seconds: float, error: Exception) -> None:
        await asyncio.sleep(seconds)
        raise error

    for slow, fast in ((0.02, 0.0), (0.0, 0.02)):
        with pytest.raises(KeyError):
            asyncio.run(both(failing(slow, KeyError()), failing(fast, ValueError())))
    with pytest.raises(ValueError, match="alone"):
        asyncio.run(both(asyncio.sleep(0.02), failing(0, ValueError("alone"))))
    assert asyncio.run(both(asyncio.sleep(0, 1), asyncio.sleep(0, "two"))) == (1, "two")


@pytest.mark.parametrize("is_cancelled", [True, False], ids=["cancelled from outside", "the first one fails"])
def test_of_two_coroutines_none_goes_on(is_cancelled: bool) -> None:
    ended: list[str] = []

    async def endless(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async def failing() -> None:
        await asyncio.sleep(0.01)
        raise KeyError

    async def run() -> None:
        running = asyncio.ensure_future(both(endless("one") if is_cancelled else failing(), endless("other")))
        await asyncio.sleep(0.02 if is_cancelled else 0)
        if is_cancelled:
            running.cancel()
        await running

    with pytest.raises(asyncio.CancelledError if is_cancelled else KeyError):
        asyncio.run(asyncio.wait_for(run(), timeout=5))
    assert ended == (["one", "other"] if is_cancelled else ["other"])
