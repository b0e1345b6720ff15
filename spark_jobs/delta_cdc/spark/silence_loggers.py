"""Silence Spark's loggers while the engine checks whether an expression or a name resolves."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.logger import PySparkLogger

if TYPE_CHECKING:
    from collections.abc import Iterator


_LOCK = threading.Lock()
#: Callers inside :func:`quietly`, and the state of each logger before the first caller entered.
_inside: list[object] = []
_before: dict[Any, bool] = {}


@contextmanager
def quietly() -> Iterator[None]:
    """Silence the loggers that write an error with its whole stack to stderr when it reaches Python.

    Use it for expected errors, and for errors that the caller names and raises. Several threads may enter.
    """
    marker = object()
    with _LOCK:
        if not _inside:
            loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
            _before.update((logger, logger.disabled) for logger in loggers)
            for logger in loggers:
                logger.disabled = True
        _inside.append(marker)
    try:
        yield
    finally:
        with _LOCK:
            _inside.remove(marker)
            if not _inside:
                for logger, was_disabled in _before.items():
                    logger.disabled = was_disabled
                _before.clear()
