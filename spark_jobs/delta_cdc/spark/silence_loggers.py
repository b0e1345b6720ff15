"""Check with Spark whether something resolves, without its loggers reporting each failure."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.logger import PySparkLogger

if TYPE_CHECKING:
    from collections.abc import Iterator


_LOCK = threading.Lock()
#: Who is inside, and each logger's state before the first one entered.
_inside: list[object] = []
_before: dict[Any, bool] = {}


@contextmanager
def quietly() -> Iterator[None]:
    """Silence the loggers that write an error with its whole stack to stderr when it reaches Python.

    For errors that are expected, or that the caller names and raises. Several threads may be inside.
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
