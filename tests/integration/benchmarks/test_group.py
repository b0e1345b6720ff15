"""The benchmark of groups, in its smallest cell: both arms end with the rows of their sources."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from pyspark.sql import SparkSession

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    yield import_module("group")
    sys.path.remove(str(BENCHMARKS))


def test_the_smallest_cell(
    benchmark: ModuleType, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def here(lake: Any, spec: Any) -> Any:
        # In the session that is there: the start of an application is what is measured, not what is checked.
        lake.applications += 1
        return job.run(spark, spec)

    monkeypatch.setattr(benchmark.Lake, "_submit", here)
    how = {"number": 3, "repeats": 1, "warm_ups": 0, "at_once": 1}
    figures = benchmark.measure(tmp_path / "one", [2], **how)
    assert [arm["applications"] for arm in figures["cells"][2].values()] == [1, 2]
    assert "| 2 of 3 | 1, 2 |" in benchmark.markdown(figures)

    # An arm that leaves a table out is noticed.
    whole = benchmark.Lake.one_by_one
    monkeypatch.setattr(
        benchmark.Lake, "one_by_one", lambda lake, changed, at_once: whole(lake, changed[:1], at_once)
    )
    with pytest.raises(benchmark.Disagreement):
        benchmark.measure(tmp_path / "other", [2], **how)
