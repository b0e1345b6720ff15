"""Locks between processes; the end of a child process and of all processes that it has started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import IO, Any

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


def locked(file: int | IO[Any]) -> bool:
    """Lock a file, unless another process has locked it; return whether this process has the lock.

    Child processes that inherit the open file hold the lock too. It ends with the last of them, however they
    end. Where the file system has no locks, the answer is false.
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        # The whole group has already ended.
        return
