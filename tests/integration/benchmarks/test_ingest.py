"""The benchmark of ingesting, in its smallest cell: both arms end with the same rows."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from pyspark.sql import SparkSession

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    yield import_module("ingest")
    sys.path.remove(str(BENCHMARKS))


def test_the_smallest_cell(
    benchmark: ModuleType, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = benchmark.SMALL
    found = benchmark.run_cell(spark, tmp_path, cell, 1, warm_ups=0)
    assert set(found) == {"ours", "by hand"}
    ((tables, files),) = benchmark.SMALL_LOOKS
    looked = benchmark.looks(spark, tmp_path, tables, files, 1)
    figures = {
        "machine": benchmark.machine(),
        "cells": {cell.name: found},
        "looks": [(tables, files, looked)],
    }
    text = benchmark.markdown(figures, [cell])
    assert f"| 2 × 500 in 2 files | {cell.rows:,} |" in text
    assert f"| {tables} | {files} |" in text

    # An arm that leaves a delivery out is noticed.
    ways = benchmark.ways()
    lazy = {**ways, "by hand": {**ways["by hand"], "take": lambda *_: None}}
    monkeypatch.setattr(benchmark, "ways", lambda: lazy)
    with pytest.raises(benchmark.Disagreement):
        benchmark.run_cell(spark, tmp_path, replace(cell, batches=1), 1, warm_ups=0)
