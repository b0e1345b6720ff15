"""A loop in a thread of its own, and blocking work in the caller's."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from delta_cdc.run.caller import CallerThread, run_beside

NAME: ContextVar[str] = ContextVar("NAME", default="")


def test_blocking_work_runs_in_the_callers_thread() -> None:
    async def main(caller: CallerThread) -> tuple[int, int, str]:
        loop = asyncio.get_running_loop()
        outside = await loop.run_in_executor(caller, threading.get_ident)
        return outside, threading.get_ident(), NAME.get()

    NAME.set("the caller's context")
    outside, inside, name = run_beside(main)
    assert outside == threading.get_ident() != inside
    assert name == "the caller's context"


def test_an_error_of_blocking_work_reaches_who_awaits_it() -> None:
    def fail() -> None:
        raise ValueError("outside")

    async def main(caller: CallerThread) -> str:
        with pytest.raises(ValueError, match="outside"):
            await asyncio.get_running_loop().run_in_executor(caller, fail)
        return "went on"

    assert run_beside(main) == "went on"


def test_an_error_of_the_coroutine_is_raised() -> None:
    async def main(caller: CallerThread) -> None:
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        run_beside(main)


def test_an_interrupt_cancels_the_coroutine() -> None:
    cancelled = threading.Event()

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def main(caller: CallerThread) -> None:
        waiting = asyncio.get_running_loop().run_in_executor(caller, interrupt)
        try:
            await waiting
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        run_beside(main)
    assert cancelled.wait(10)
