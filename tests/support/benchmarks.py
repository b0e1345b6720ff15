"""The programs of ``benchmarks/``, which find their modules beside them, as modules for tests."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@contextmanager
def benchmark(name: str) -> Iterator[ModuleType]:
    """Yield a module of ``benchmarks/``."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield import_module(name)
    finally:
        sys.path.remove(str(BENCHMARKS))
