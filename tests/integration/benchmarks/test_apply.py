"""The benchmark of applying changes, in its smallest cell: every arm ends with the same rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.benchmarks import benchmark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program() -> Iterator[ModuleType]:
    with benchmark("apply") as module:
        yield module


@pytest.fixture(scope="module")
def shop(program: ModuleType, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return program.Workshop(spark, tmp_path_factory.mktemp("benchmark"))


def test_the_smallest_cell(program: ModuleType, shop: Any, tmp_path: Path) -> None:
    cell = program.TINY
    with benchmark("report") as report:
        report.Kept(tmp_path / "results.json").add(cell.name, program.run_cell(shop, cell, 1, warm_ups=0))
        cells = report.Kept(tmp_path / "results.json").cells
    found = cells[cell.name]
    assert set(found["arms"]) == {"ours", "MERGE by hand"}
    assert set(found["left_out"]) == {
        "by hand, equal work",
        "mack",
        "RANK and overwrite",
        "full overwrite",
        "delta-rs",
    }
    assert all(arm["written"]["data"] > 0 for arm in found["arms"].values())
    assert "| MERGE by hand |" in program.markdown(cells, [cell])


def test_other_rows_are_noticed(program: ModuleType, shop: Any) -> None:
    ours, by_hand = program.WAYS[:2]
    ways = (by_hand, replace(ours, run=lambda *_: None))
    arms = [program.Run(shop, way, program.TINY).arm() for way in ways]
    with benchmark("arms") as arms_module, pytest.raises(arms_module.Disagreement):
        program.race("nothing done", arms, 1, warm_ups=0)
