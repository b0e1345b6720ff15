"""The benchmark of starts, its second part on a small table: both profiles load and apply the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.benchmarks import benchmark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program() -> Iterator[ModuleType]:
    with benchmark("start") as module:
        yield module


def test_the_smallest_cell(
    program: ModuleType, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lazy = False

    def here(way: Any, work: str, **names: Any) -> None:
        # In the session that is there: the start of a process is what is measured, not what is checked.
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
        if not (lazy and way.name == "full" and Path(names["target"]).exists()):
            exec(work, {"spark": spark, **names})
        for kept in (way.session, way.seconds, way.cpu):
            kept.append(1.0)

    monkeypatch.setattr(program.Way, "run", here)
    with benchmark("report") as report:
        kept = report.Kept(None)
    program.sizes(kept, tmp_path / "one", [500], repeats=2)
    load, apply = (kept.cells[name] for name in ("load-500", "apply-500"))
    # What an operator takes the work for: the source; then the changes, and the target.
    assert load["size"] > 500
    assert apply["size"] > 500
    assert [len(arm["seconds"]) for arm in (*load["arms"].values(), *apply["arms"].values())] == [2] * 4
    assert "| apply | 500 |" in program.markdown(kept.cells)

    # A profile that applies nothing is noticed.
    lazy = True
    with benchmark("arms") as arms, pytest.raises(arms.Disagreement, match="apply of 500 rows, round 0"):
        program.sizes(kept, tmp_path / "other", [500], repeats=1)
