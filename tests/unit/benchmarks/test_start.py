"""The benchmark of starts: what it says of the threshold of small work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.benchmarks import benchmark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

MIB = 1 << 20


@pytest.fixture(scope="module")
def start() -> Iterator[ModuleType]:
    with benchmark("start") as module:
        yield module


def cell(job: str, size: float, quick: float, full: float) -> dict[str, Any]:
    return {
        "machine": {"load": 0.1, "cores": 2},
        "job": job,
        "rows": 1_000,
        "size": int(size * MIB),
        "arms": {
            name: {"seconds": [seconds] * 2, "cpu": [2 * seconds] * 2}
            for name, seconds in (("quick", quick), ("full", full))
        },
    }


def test_the_profile_that_is_picked_is_judged(start: ModuleType) -> None:
    def judged(size: int, quick: float) -> str:
        return str(start.picked(size, start.ratio([quick], [1.0])))

    assert judged(start.SMALL, 0.8) == "quick"
    assert judged(start.SMALL, 1.25) == "quick, **25% slower**"
    assert judged(start.SMALL + 1, 1.25) == "full"
    assert judged(start.SMALL + 1, 0.8) == "full, **25% slower**"


def test_where_the_lines_cross_is_said(start: ModuleType) -> None:
    cells = [
        cell("load", 10, 1.0, 2.0),
        cell("load", 1_000, 2.0, 1.0),
        cell("apply", 10, 1.0, 2.0),
        cell("apply", 1_000, 1.9, 2.0),
    ]
    assert start.verdict(cells) == (
        "- load: both profiles take the same time at 100 MiB.\n"
        "- load: both profiles take the same CPU time at 100 MiB.\n"
    )
    assert "takes less of both at every size" in start.verdict(cells[2:])
    slower = [cell("load", 10, 2.0, 1.0), cell("load", 20, 3.0, 1.0)]
    assert "takes more time at every size" in start.verdict(slower)


def test_each_part_has_its_table_alone(start: ModuleType) -> None:
    runs = {"session": [1.0], "seconds": [2.0], "cpu": [3.0]}
    first = {
        "machine": {"load": 0.1, "cores": 2},
        "arms": {"plain": runs, "ours": {**runs, "seconds": [1.9]}},
    }
    by_size = {"apply": cell("apply", 2, 1.0, 2.0), "later": cell("load", 8, 1.0, 2.0)}
    text = start.markdown({"first": first})
    assert "| ours | 1.0 | 1.9 | 1.9–1.9 | 0.95 (one round) | ≤ 0.65, **missed** | 3.0 | 1.00 |" in text
    assert "quick" not in text
    text = start.markdown(by_size)
    row = "| load | 1,000 | 8.0 | 1.0 | 2.0 | 0.50 (0.50–0.50) | 0.50 | quick |"
    assert row in text
    # Loads come first.
    assert text.index(row) < text.index("| apply | 1,000 | 2.0 |")
    assert "plain" not in text
    assert start.markdown({"first": first, **by_size}).count("2 cores") == 2


def test_a_row_that_was_not_changed_is_seen(start: ModuleType, tmp_path: Path) -> None:
    start.write_deltalake(str(tmp_path / "old"), start._table(500))
    start.write_deltalake(str(tmp_path / "same"), start._table(500))
    start.write_deltalake(str(tmp_path / "new"), start._table(500))
    merge = start.DeltaTable(str(tmp_path / "new")).merge(
        start._table(1), "t.id = s.id", source_alias="s", target_alias="t"
    )
    merge.when_matched_update(updates={"name": "'changed 0'"}).execute()
    assert start._rows(tmp_path / "old") == start._rows(tmp_path / "same")
    assert start._rows(tmp_path / "old") != start._rows(tmp_path / "new")
