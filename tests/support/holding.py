"""Hooks for :mod:`delta_cdc.core.failpoints`: hold a job at a point, or end it there.

In one process, :class:`Gate` holds a thread. In a driver of its own, a test names :func:`in_driver` in
``DELTA_CDC_PHASE_HOOK`` and says in the environment what is to happen. Nothing here sleeps: a holder waits
for an event or for the other end of a named pipe.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from delta_cdc.core import failpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Seconds after which a test that waits for a thread or a process gives up: a failure, not a pace.
PATIENCE = 180.0

_HOOK = "tests.support.holding:in_driver"
_POINT, _ACTION, _PIPES = "TEST_PHASE_POINT", "TEST_PHASE_ACTION", "TEST_PHASE_PIPES"
_TIMES = "TEST_PHASE_TIMES"
#: How often a driver has come to its point.
_came: list[str] = []


class Gate:
    """Holds the first job that comes to ``point`` in the thread named ``thread``.

    :param thread: None holds whichever thread comes first
    """

    def __init__(self, point: str, thread: str | None = None) -> None:
        self.point = point
        self.thread = thread
        self.arrived = threading.Event()
        self._open = threading.Event()

    def __call__(self, point: str) -> None:
        if point != self.point or self.arrived.is_set():
            return
        if self.thread is not None and threading.current_thread().name != self.thread:
            return
        self.arrived.set()
        assert self._open.wait(PATIENCE), f"nobody opened the gate at {self.point}"

    def wait(self) -> None:
        assert self.arrived.wait(PATIENCE), f"nobody came to {self.point}"

    def open(self) -> None:
        self._open.set()


@contextmanager
def hooked(*hooks: Callable[[str], None]) -> Iterator[None]:
    """Install hooks for the time of a block."""
    removers = [failpoints.install(hook) for hook in hooks]
    try:
        yield
    finally:
        for remove in removers:
            remove()


def once(point: str, action: Callable[[], object]) -> Callable[[str], None]:
    """Return a hook that runs ``action`` the first time a job comes to ``point``."""
    done = threading.Event()

    def hook(reached: str) -> None:
        if reached == point and not done.is_set():
            done.set()
            action()

    return hook


class Running(threading.Thread):
    """A call in a thread of its own; :meth:`result` gives what it returned or raises what it raised."""

    def __init__(self, call: Callable[[], object], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._call = call
        self._returned: object = None
        self._raised: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._returned = self._call()
        except BaseException as error:  # noqa: BLE001 - raised again in result()
            self._raised = error

    def result(self) -> object:
        self.join(PATIENCE)
        assert not self.is_alive(), f"{self.name} does not come to its end"
        if self._raised is not None:
            raise self._raised
        return self._returned


# -- in a driver of its own -----------------------------------------------------------------------
def in_driver(point: str) -> None:
    """The hook itself: at the named point, kill the driver with its JVM, or hold it."""
    if point != os.environ[_POINT]:
        return
    _came.append(point)
    if len(_came) < int(os.environ.get(_TIMES, "1")):
        return
    if os.environ[_ACTION] == "kill":
        os.killpg(os.getpgrp(), signal.SIGKILL)
    pipes = Path(os.environ[_PIPES])
    if not (pipes / "arrived").exists():
        return
    (pipes / "arrived").write_text(f"{os.getpid()} {os.getpgrp()}")
    (pipes / "arrived").unlink()
    (pipes / "open").read_text()


def killing(point: str, times: int = 1) -> dict[str, str]:
    """Return the environment of a driver that kills itself and its JVM at ``point``.

    :param times: which time it comes there
    """
    return {"DELTA_CDC_PHASE_HOOK": _HOOK, _POINT: point, _ACTION: "kill", _TIMES: str(times)}


class DriverGate:
    """Holds a driver of another process at ``point``, through two named pipes.

    :param folder: where the pipes are made
    """

    def __init__(self, point: str, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        os.mkfifo(folder / "arrived")
        os.mkfifo(folder / "open")
        self.environment = {
            "DELTA_CDC_PHASE_HOOK": _HOOK,
            _POINT: point,
            _ACTION: "hold",
            _PIPES: str(folder),
        }

    def wait(self) -> int:
        """Wait until the driver is at the point; returns its process group."""
        waiting = Running(lambda: (self._folder / "arrived").read_text(), "waiting for the driver")
        return int(str(waiting.result()).split()[1])

    def open(self) -> None:
        (self._folder / "open").write_text("")
