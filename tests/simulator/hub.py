"""Processes in one thread: greenlets that a seeded generator schedules, and event loops without a selector.

A process gives the baton back at each *step*: a request to a store, a call of Airflow's, a statement of
Spark's. Everything between two steps is atomic, as for any program that shares nothing but its stores.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context
    from random import Random

T = TypeVar("T")


class Deadlock(AssertionError):
    """No process can go on, or one never ends."""


@dataclass(eq=False)
class Process:
    """A process of the simulated world.

    :param phase: what it does now, for the table of coverage
    :param dead: it runs no more code
    :param frozen: it runs no code until it is woken
    :param committed: the commit files that it wrote
    """

    name: str
    phase: str = ""
    dead: bool = False
    frozen: bool = False
    done: bool = False
    result: Any = None
    error: BaseException | None = None
    waits_for: Process | None = None
    committed: list[str] = field(default_factory=list)
    greenlet: Any = field(default=None, repr=False)

    @property
    def ended(self) -> bool:
        return self.done or self.dead


class Hub:
    """Runs processes one step at a time.

    :param random: chooses who goes on
    :param decide: called before each step with the process and the name of the step; returns a fault or None
    """

    def __init__(self, random: Random, decide: Callable[[Process, str], str | None]) -> None:
        self.random = random
        self.decide = decide
        self.processes: list[Process] = []
        self.steps = 0
        #: Epoch milliseconds. Each step takes one.
        self.now = 1_800_000_000_000
        self._main = getcurrent()
        self._running: Process | None = None

    @property
    def running(self) -> Process:
        assert self._running is not None
        return self._running

    @property
    def ready(self) -> list[Process]:
        """Return the processes that can go on."""
        return [
            one
            for one in self.processes
            if not (one.frozen or one.done or one.dead)
            and (one.waits_for is None or one.waits_for.done or one.waits_for.dead)
        ]

    def spawn(self, name: str, work: Callable[[], Any], phase: str = "") -> Process:
        process = Process(name, phase)

        def body() -> None:
            try:
                process.result = work()
            except GreenletExit:
                raise
            except Exception as error:  # noqa: BLE001 - whoever waits for the process judges it
                process.error = error
            process.done = True

        process.greenlet = greenlet(body, self._main)
        self.processes.append(process)
        return process

    def run(self, until: Callable[[], bool] | None = None, most: int = 20_000) -> None:
        """Let processes go on until none can, or until a condition holds."""
        for _ in range(most):
            if until is not None and until():
                return
            ready = self.ready
            if not ready:
                return
            chosen = ready[0] if len(ready) == 1 else self.random.choice(ready)
            self.go(chosen)
        raise Deadlock(f"after {most} steps, these still run: {[p.name for p in self.ready]}")

    def go(self, process: Process) -> None:
        """Let a process run to its next step."""
        self._running = process
        try:
            process.greenlet.switch()
        finally:
            self._running = None
        if process.done or process.dead:
            self.processes.remove(process)

    # -- called inside a process -----------------------------------------------------------------
    def step(self, name: str) -> str | None:
        """Give the baton back before a step; return the fault that the step meets.

        A crash does not return, and a freeze returns once the process is woken.
        """
        process = self._running
        assert process is not None
        self._yield()
        self.steps += 1
        self.now += 1
        fault = self.decide(process, f"{process.phase}.{name}" if process.phase else name)
        if fault == "freeze":
            process.frozen = True
            self._yield()
            return None
        if fault == "crash":
            self.die()
        return fault

    def wait(self, other: Process) -> None:
        """Wait for the end of another process."""
        self.running.waits_for = other
        self._yield()
        self.running.waits_for = None

    def die(self) -> None:
        """End the running process: it runs no more code, not even to clean up."""
        self.running.dead = True
        self._yield()
        raise AssertionError("a dead process ran")

    def _yield(self) -> None:
        loop = asyncio._get_running_loop()
        if loop is None:
            self._main.switch()
            return
        asyncio._set_running_loop(None)
        self._main.switch()
        asyncio._set_running_loop(loop)


class _Soon(asyncio.Handle):
    """A callback of the next turn: most of a world's callbacks, so its start does only what is needed."""

    __slots__ = ()

    def __init__(self, callback: Any, args: Any, loop: Loop, context: Context | None) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False


class Loop(asyncio.AbstractEventLoop):
    """The event loop of one process: no selector, no thread, no clock but the world's."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        ready = self._ready
        try:
            task = asyncio.Task(main, loop=self)
            while not task.done():
                if not ready:
                    if not self._timers:
                        raise Deadlock("a coroutine waits for nothing")
                    when, _, timer = heapq.heappop(self._timers)
                    self._hub.now = max(self._hub.now, int(when * 1000))
                    ready.append(timer)
                handle = ready.popleft()
                if not handle._cancelled:
                    # As Handle._run, which calls call_exception_handler.
                    with_errors = handle._context.run  # type: ignore[attr-defined]
                    try:
                        with_errors(handle._callback, *handle._args)  # type: ignore[attr-defined]
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException:  # noqa: BLE001 - such as those of a cancelled gather
                        pass
            return task.result()
        finally:
            asyncio._set_running_loop(before)

    def time(self) -> float:
        return self._hub.now / 1000

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = _Soon(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, len(self._timers), timer))
        return timer

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **given: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, **given)

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Run a blocking call at once: of one process, nothing else goes on meanwhile."""
        future: asyncio.Future[T] = asyncio.Future(loop=self)
        asyncio._set_running_loop(None)
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whoever awaits the future gets it
            future.set_exception(error)
        finally:
            asyncio._set_running_loop(self)
        return future

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore errors that nothing awaits, as those of a cancelled gather."""
