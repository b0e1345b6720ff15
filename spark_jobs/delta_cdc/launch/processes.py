"""End a child process, and all processes that it has started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

#: Seconds that a process has to end after SIGTERM.
_GRACE = 3.0


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop all remaining processes of a process group.

    :param process: the group's leader (started with ``start_new_session``), which may have ended
    """
    if process.poll() is None:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            # SIGKILL follows.
            process.wait(_GRACE)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        # The whole group has already ended.
        return
