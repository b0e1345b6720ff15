"""Run a coroutine in an event loop of its own thread; blocking work runs in the caller's own thread.

Airflow's clients, a Spark session and signal handlers belong to the thread of the task. Planning many tables
at once needs an event loop. So the loop gets a thread, and the caller's thread runs the jobs that the loop
submits.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Executor, Future
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class CallerThread(Executor):
    """Runs what is submitted in the thread that called :func:`run_beside`."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Queue a call; the future has its result."""
        future: Future[T] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 - whoever awaits the future gets it
                future.set_exception(error)

        self._calls.put(call)
        return future

    def serve(self) -> None:
        """Run the queued calls, until :meth:`stop` is called."""
        while (call := self._calls.get()) is not None:
            call()

    def stop(self) -> None:
        """Let :meth:`serve` return after the calls that are queued already."""
        self._calls.put(None)


def run_beside(main: Callable[[CallerThread], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end in an event loop of its own thread.

    :param main: makes the coroutine; takes the executor for blocking calls, which run in this thread
    :raises BaseException: what the coroutine raised, or what ended a blocking call or the waiting of this
        thread, such as KeyboardInterrupt; then the coroutine is cancelled
    """
    caller = CallerThread()
    done: Future[T] = Future()
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = Future()

    async def run() -> T:
        started.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await main(caller)

    def work() -> None:
        try:
            done.set_result(asyncio.run(run()))
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            done.set_exception(error)
        finally:
            caller.stop()

    context = copy_context()
    threading.Thread(target=context.run, args=(work,), name="delta-cdc-loop", daemon=True).start()
    try:
        caller.serve()
    except BaseException:
        loop, task = started.result()
        if task is not None:
            # A loop that has just ended is closed.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)
        raise
    return done.result()
