"""Asking Spark whether something resolves, without its loggers telling everybody that it does not."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


_LOCK = threading.Lock()
#: Who is inside, and how each logger was before the first one came.
_inside: list[object] = []
_before: dict[Any, bool] = {}


@contextmanager
def quietly() -> Iterator[None]:
    """Silence the loggers that write an error with its whole stack to stderr when it reaches Python.

    For errors that are answers, or that are named and raised by the caller. Several threads may be inside.
    """
    from pyspark.logger import PySparkLogger

    me = object()
    with _LOCK:
        if not _inside:
            loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
            _before.update((logger, logger.disabled) for logger in loggers)
            for logger in loggers:
                logger.disabled = True
        _inside.append(me)
    try:
        yield
    finally:
        with _LOCK:
            _inside.remove(me)
            if not _inside:
                for logger, was in _before.items():
                    logger.disabled = was
                _before.clear()
