"""Asking Spark whether something resolves, without its loggers telling everybody that it does not."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def quietly() -> Iterator[None]:
    """Silence the loggers that write an error with its whole stack to stderr when it reaches Python.

    For errors that are answers, or that are named and raised by the caller.
    """
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    heard = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, before in zip(loggers, heard, strict=True):
            logger.disabled = before
