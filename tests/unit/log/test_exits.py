"""The end of a process waits for threads of obstore that wake an event loop."""

from __future__ import annotations

import _thread
import asyncio
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from delta_cdc.delta_log import exits

if TYPE_CHECKING:
    from collections.abc import Iterator

#: As obstore's runtime does: a thread without Python frames of its own calls the loop.
PROGRAM = """
import _thread, asyncio, os, threading, time
import delta_cdc.delta_log.store

class Loop(asyncio.SelectorEventLoop):
    def _write_to_self(self):
        started.set()
        time.sleep(0.3)
        os.write(1, b"woken")

started = threading.Event()
_thread.start_new_thread(Loop().call_soon_threadsafe, (print,))
started.wait()
"""


class Held(asyncio.SelectorEventLoop):
    """A loop that takes long to be woken."""

    def __init__(self) -> None:
        self.started, self.open = threading.Event(), threading.Event()
        super().__init__()

    def _write_to_self(self) -> None:
        self.started.set()
        self.open.wait(10)


@pytest.fixture
def loop() -> Iterator[Held]:
    """A loop that a thread from outside wakes."""
    made = Held()
    _thread.start_new_thread(made.call_soon_threadsafe, (print,))
    made.started.wait(10)
    yield made
    made.open.set()
    exits.wait_for_threads()
    made.close()


def test_a_thread_that_wakes_a_loop_is_waited_for(loop: Held) -> None:
    ended = threading.Thread(target=exits.wait_for_threads)
    ended.start()
    ended.join(0.2)
    assert ended.is_alive()
    loop.open.set()
    ended.join(10)
    assert not ended.is_alive()


def test_a_thread_that_stays_is_not_waited_for(loop: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exits, "LONGEST", 0.05)
    exits.wait_for_threads()
    assert not loop.open.is_set()


def test_a_loop_of_a_thread_of_python_is_not_waited_for() -> None:
    """Such as a daemon's that runs as long as the process."""
    loop = asyncio.new_event_loop()
    running = threading.Thread(target=loop.run_forever)
    running.start()
    found = [exits.wakes_a_loop(frame) for frame in sys._current_frames().values()]
    loop.call_soon_threadsafe(loop.stop)
    running.join()
    loop.close()
    assert not any(found)


def test_a_process_ends_after_the_thread() -> None:
    command = [sys.executable, "-c", PROGRAM]
    pipe = subprocess.PIPE
    done = subprocess.run(command, stdout=pipe, stderr=pipe, check=False, env=_paths())
    assert (done.returncode, done.stdout, done.stderr) == (0, b"woken", b"")


def _paths() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
