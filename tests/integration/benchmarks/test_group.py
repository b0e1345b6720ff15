"""The benchmark of groups, in its smallest cell: both arms end with the rows of their sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import job
from tests.support.benchmarks import benchmark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program() -> Iterator[ModuleType]:
    with benchmark("group") as module:
        yield module


def test_the_smallest_cell(
    program: ModuleType, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def here(lake: Any, spec: Any) -> Any:
        # In the session that is there: the start of an application is what is measured, not what is checked.
        lake.applications += 1
        return job.run(spark, spec)

    monkeypatch.setattr(program.Lake, "_submit", here)
    how = {"number": 3, "repeats": 1, "warm_ups": 0, "at_once": 1}
    with benchmark("report") as report:
        kept = report.Kept(None)
    program.measure(kept, tmp_path / "one", [2], **how)
    assert [arm["applications"] for arm in kept.cells["2 of 3"]["arms"].values()] == [1, 2]
    assert "| 2 of 3 | 1, 2 | 1 |" in program.markdown(kept.cells)

    # An arm that leaves a table out is noticed.
    whole = program.Lake.one_by_one
    monkeypatch.setattr(
        program.Lake, "one_by_one", lambda lake, changed, at_once: whole(lake, changed[:1], at_once)
    )
    with pytest.raises(program.Disagreement):
        program.measure(kept, tmp_path / "other", [2], **how)
