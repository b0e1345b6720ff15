"""Processes that tests look for."""

from __future__ import annotations

import os
import select

#: Seconds in which the system ends a process that was killed.
_LIMIT = 30.0


def ends(process: int) -> bool:
    """Wait until a process has ended; return whether it has. A kill takes effect a moment after its call."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], _LIMIT)[0])
    finally:
        os.close(handle)
