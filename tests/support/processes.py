"""Processes that tests look for."""

from __future__ import annotations

from pathlib import Path


def is_running(process: int) -> bool:
    """Tell whether a process runs; one that has ended and that nobody has asked about does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
