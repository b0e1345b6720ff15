"""Run many coroutines with a limit on how many run at once."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Iterable
    from typing import Any

T = TypeVar("T")
U = TypeVar("U")

#: Number of tables that are read at once. Each table takes several requests, and memory for its log. With a
#: higher number, object stores begin to throttle, and a worker that observes hundreds of tables runs out of
#: sockets and memory. With a lower number, it mostly waits for answers.
AT_ONCE = 16


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
    waiting = enumerate(coroutines)
    results: dict[int, T] = {}

    async def take(index: int, coroutine: Coroutine[Any, Any, T]) -> None:
        results[index] = await coroutine
        for further, following in waiting:
            results[further] = await following

    running = [asyncio.ensure_future(take(*first)) for first in islice(waiting, limit)]
    try:
        await asyncio.gather(*running)
    finally:
        await _stop(*running)
    return [results[index] for index in range(len(results))]


async def _stop(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def settled(
    coroutines: Iterable[Coroutine[Any, Any, T]], *, limit: int = AT_ONCE
) -> list[T | Exception]:
    """Run coroutines as :func:`gathered` does, but return each error as the result of its coroutine."""

    async def outcome(coroutine: Coroutine[Any, Any, T]) -> T | Exception:
        try:
            return await coroutine
        except Exception as error:  # noqa: BLE001 - returned to the caller
            return error

    return await gathered(map(outcome, coroutines), limit=limit)
