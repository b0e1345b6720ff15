"""Finds calls that block an event loop: what reads, waits or starts a process in a thread that runs one."""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OURS = ("/spark_jobs/delta_cdc/", "/airflow_delta_cdc/", "/tests/unit/")
#: What asyncio does by itself, and the first import of a module, are nothing of ours.
_OTHERS = ("/asyncio/", "<frozen importlib", "/importlib/")


@contextmanager
def blocking_calls() -> Iterator[list[str]]:
    """Notice each blocking call that our own code makes in a thread whose event loop is running.

    :return: what was called, and the innermost line of ours that led to it; filled while the block runs
    """
    found: list[str] = []
    with ExitStack() as stack:
        for owner, name in _calls():
            watched = _watched(getattr(owner, name), f"{owner.__name__}.{name}", found)
            stack.enter_context(mock.patch.object(owner, name, watched))
        yield found


def _calls() -> list[tuple[Any, str]]:
    import obstore
    import pyarrow.parquet as parquet  # type: ignore[import-untyped]

    paths = ("open", "exists", "is_file", "is_dir", "iterdir", "glob", "stat", "mkdir", "unlink", "touch")
    return [
        *[(pathlib.Path, name) for name in paths],
        *[(os, name) for name in ("open", "stat", "listdir", "scandir", "fsync", "replace", "unlink")],
        *[(obstore, name) for name in ("get", "get_range", "head", "put", "delete")],
        *[(tempfile, name) for name in ("TemporaryFile", "NamedTemporaryFile", "mkdtemp", "mkstemp")],
        (builtins, "open"),
        (subprocess, "Popen"),
        (socket, "create_connection"),
        (parquet, "read_metadata"),
        (parquet, "ParquetFile"),
        (time, "sleep"),
        # Waiting for another thread, as that of a Kafka client or of run_sync, blocks as well.
        (concurrent.futures.Future, "result"),
        (threading.Thread, "join"),
    ]


def _watched(real: Callable[..., Any], what: str, found: list[str]) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        if asyncio._get_running_loop() is not None and (line := _line_of_ours()) is not None:
            found.append(f"{what} at {line}")
        return real(*given, **named)

    return call


def _line_of_ours() -> str | None:
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if any(other in name for other in _OTHERS):
            return None
        if any(own in name for own in _OURS):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return None
