"""Run many coroutines with a limit on how many run at once."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from itertools import islice
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
    from typing import Any

T = TypeVar("T")
U = TypeVar("U")

#: Number of tables that are read at once. Each table takes several requests, and memory for its log. With a
#: higher number, object stores begin to throttle, and a worker that observes hundreds of tables runs out of
#: sockets and memory. With a lower number, it mostly waits for answers.
AT_ONCE = 16
#: Bytes of files that the coroutines of one event loop read at once, however many they are.
IN_FLIGHT = 64 * 1024 * 1024
#: A larger file counts as this many bytes: it is read in pieces.
MOST_OF_FILE = 16 * 1024 * 1024


class Budget:
    """Bytes that coroutines share. Each gets its part in the order in which they ask.

    A coroutine that has a part must not ask for another one.
    """

    def __init__(self, size: int = IN_FLIGHT) -> None:
        self._size = self._free = size
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    def part(self, size: int) -> int:
        """Return how much a file of this many bytes takes."""
        return min(size, MOST_OF_FILE, self._size)

    def take_now(self, amount: int) -> bool:
        """Take a part if it is free and no other coroutine waits; return whether it was taken."""
        if self._queue or amount > self._free:
            return False
        self._free -= amount
        return True

    async def take(self, amount: int) -> None:
        """Take a part; wait for it."""
        if self.take_now(amount):
            return
        turn = asyncio.get_running_loop().create_future()
        self._queue.append((amount, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._queue.remove((amount, turn))
                self.give_back(0)
            else:
                self.give_back(amount)
            raise

    def give_back(self, amount: int) -> None:
        """Return a part; those who wait get theirs."""
        self._free += amount
        while self._queue and self._queue[0][0] <= self._free:
            taken, turn = self._queue.popleft()
            self._free -= taken
            turn.set_result(None)

    @asynccontextmanager
    async def taken(self, size: int) -> AsyncIterator[None]:
        """Hold the part of a file of this many bytes during a block."""
        amount = self.part(size)
        await self.take(amount)
        try:
            yield
        finally:
            self.give_back(amount)


_BUDGETS: WeakKeyDictionary[asyncio.AbstractEventLoop, Budget] = WeakKeyDictionary()


def budget() -> Budget:
    """Return the budget of the running event loop."""
    loop = asyncio.get_running_loop()
    shared = _BUDGETS.get(loop)
    if shared is None:
        shared = _BUDGETS[loop] = Budget()
    return shared


async def both(one: Awaitable[T], other: Awaitable[U]) -> tuple[T, U]:
    """Run two coroutines at once.

    An error of the first one is raised at once, and stops the other; an error of the other one only after the
    first one has succeeded. So of two errors a user sees the same one again, whichever comes earlier.
    """
    first, second = asyncio.ensure_future(one), asyncio.ensure_future(other)
    try:
        return await first, await second
    finally:
        await _stop(first, second)


async def gathered(coroutines: Iterable[Coroutine[Any, Any, T]], *, limit: int = AT_ONCE) -> list[T]:
    """Run coroutines to their end, a limited number at once.

    The first error stops the running coroutines, and the others do not start.

    :param coroutines: a generator, so that each coroutine is made only when it can run
    :return: their results, in their order
    """
    results: dict[int, T] = {}

    async def keep(index: int, coroutine: Coroutine[Any, Any, T]) -> None:
        results[index] = await coroutine

    await _run_all(coroutines, keep, limit)
    return [results[index] for index in range(len(results))]


async def settled(
    coroutines: Iterable[Coroutine[Any, Any, T]], *, limit: int = AT_ONCE
) -> list[T | Exception]:
    """Run coroutines as :func:`gathered` does, but return each error as the result of its coroutine."""
    results: dict[int, T | Exception] = {}

    async def keep(index: int, coroutine: Coroutine[Any, Any, T]) -> None:
        try:
            results[index] = await coroutine
        except Exception as error:  # noqa: BLE001 - returned to the caller
            results[index] = error

    await _run_all(coroutines, keep, limit)
    return [results[index] for index in range(len(results))]


async def _run_all(
    coroutines: Iterable[Coroutine[Any, Any, T]],
    keep: Callable[[int, Coroutine[Any, Any, T]], Awaitable[None]],
    limit: int,
) -> None:
    waiting = enumerate(coroutines)

    async def take(index: int, coroutine: Coroutine[Any, Any, T]) -> None:
        await keep(index, coroutine)
        for further, following in waiting:
            await keep(further, following)

    first = list(islice(waiting, limit))
    running = [asyncio.ensure_future(take(index, coroutine)) for index, coroutine in first]
    try:
        await asyncio.gather(*running)
    finally:
        await _stop(*running)
        for _, coroutine in first:
            # A task that was stopped before its start never awaits its coroutine, and Python warns of it.
            coroutine.close()


async def _stop(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
