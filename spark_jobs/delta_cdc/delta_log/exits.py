"""Let the threads of obstore return before Python ends.

A thread of obstore's runtime (Rust) wakes the event loop that waits for its answer: it calls
``call_soon_threadsafe``, and gives Python's lock away for a moment. If the program ends in this moment,
Python before 3.14 ends the thread as soon as it asks for the lock again. Rust cannot unwind that, so the
whole process ends with SIGABRT, although its work is done: PyO3's issue 2102.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

#: The most seconds that the end of a process waits. A thread needs microseconds.
LONGEST = 1.0
_PAUSE = 0.0005


def wait_for_threads() -> None:
    """Wait until no thread from outside of Python wakes an event loop, at most :data:`LONGEST` seconds."""
    deadline = time.monotonic() + LONGEST
    while any(map(wakes_a_loop, sys._current_frames().values())) and time.monotonic() < deadline:
        time.sleep(_PAUSE)


def wakes_a_loop(frame: FrameType) -> bool:
    """Return whether a thread begins in a function of asyncio; a thread of Python begins elsewhere."""
    first = frame
    while first.f_back is not None:
        first = first.f_back
    return str(first.f_globals.get("__name__", "")).startswith("asyncio.")
