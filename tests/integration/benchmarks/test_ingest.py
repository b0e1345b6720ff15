"""The benchmark of ingesting, in its smallest cell: both arms end with the same rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

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
    with benchmark("ingest") as module:
        yield module


def test_the_smallest_cell(
    program: ModuleType, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, ((tables, files),) = program.SMALL, program.SMALL_LOOKS
    with benchmark("report") as report:
        kept = report.Kept(None)
    # In the session that is there.
    monkeypatch.setattr(program, "get_session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    program.measure(kept, tmp_path, [cell], program.SMALL_LOOKS, repeats=1, warm_ups=0)
    assert set(kept.cells[cell.name]["arms"]) == {"ours", "by hand"}
    text = program.markdown(kept.cells, [cell], program.SMALL_LOOKS)
    assert f"| 2 × 500 in 2 files | {cell.rows:,} |" in text
    assert f"| {tables} | {files} |" in text

    # An arm that leaves a delivery out is noticed.
    ways = program.ways()
    lazy = {**ways, "by hand": {**ways["by hand"], "take": lambda *_: None}}
    monkeypatch.setattr(program, "ways", lambda: lazy)
    with benchmark("arms") as arms, pytest.raises(arms.Disagreement):
        program.run_cell(spark, tmp_path, replace(cell, batches=1), 1, warm_ups=0)
