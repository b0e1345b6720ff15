"""The benchmark of applying changes, in its smallest cell: every arm ends with the same rows."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from pyspark.sql import SparkSession

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    yield import_module("apply")
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def shop(benchmark: ModuleType, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return benchmark.Workshop(spark, tmp_path_factory.mktemp("benchmark"))


def test_the_smallest_cell(benchmark: ModuleType, shop: Any, tmp_path: Path) -> None:
    cell, results = benchmark.TINY, tmp_path / "results.json"
    figures = benchmark.run_cell(shop, cell, 1, warm_ups=0)
    benchmark.Report(results).add(cell, {**figures, "machine": benchmark.machine()})
    kept = benchmark.Report(results)
    found = kept.figures(cell)
    assert set(found["arms"]) == {"ours", "MERGE by hand"}
    assert set(found["left_out"]) == {"mack", "RANK and overwrite", "full overwrite", "delta-rs"}
    assert all(arm["written"]["data"] > 0 for arm in found["arms"].values())
    assert "| MERGE by hand |" in kept.markdown([cell])


def test_other_rows_are_noticed(benchmark: ModuleType, shop: Any) -> None:
    ours, by_hand = benchmark.WAYS[:2]
    ways = (by_hand, replace(ours, run=lambda *_: None))
    arms = [benchmark.Run(shop, way, benchmark.TINY).arm() for way in ways]
    with pytest.raises(benchmark.Disagreement):
        benchmark.race("nothing done", arms, 1, warm_ups=0)
