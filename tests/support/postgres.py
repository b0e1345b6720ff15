"""A PostgreSQL server for tests; without PostgreSQL on the machine they are skipped, and say so loudly."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from demo.postgres import Postgres, PostgresMissing, programs

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Postgres", "server"]


@contextmanager
def server() -> Iterator[Postgres]:
    """Start a server of the test's own; stopped and removed at the end of the block.

    Skips the test where PostgreSQL is not installed. ``Postgres`` has ``host``, ``port``, ``user`` (a
    superuser), ``password`` and ``database``, and ``execute``, ``rows``, ``value`` to use it.
    """
    try:
        programs()
    except PostgresMissing as missing:
        # A skip alone is a letter in a long line; a warning is told in full at the end of the run.
        warnings.warn(f"NOT TESTED: {missing}", stacklevel=3)
        pytest.skip(str(missing))
    with Postgres() as running:
        yield running
