"""How benchmarks end: figures kept by cell, a page with them, a status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.benchmarks import benchmark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

BEGIN, END = "<!-- figures of benchmarks/group.py: begin -->", "<!-- figures of benchmarks/group.py: end -->"


@pytest.fixture(scope="module")
def report() -> Iterator[ModuleType]:
    with benchmark("report") as module:
        yield module


def asked(report: ModuleType, tmp_path: Path, *more: str) -> Any:
    parser = report.shared_arguments("group", "What it is.", small="one")
    return parser.parse_args(["--folder", str(tmp_path / "kept"), *more])


def told(cells: dict[str, Any]) -> str:
    return "".join(f"{name}: {cell['value']}\n" for name, cell in sorted(cells.items()))


def test_cells_are_kept_as_soon_as_they_are_done(report: ModuleType, tmp_path: Path) -> None:
    kept = report.Kept(tmp_path / "new" / "results.json")
    kept.add("one", {"value": 1})
    kept.add("two", {"value": 2})
    # What died later has lost nothing, and another run measures one cell alone.
    again = report.Kept(tmp_path / "new" / "results.json")
    again.add("two", {"value": 3})
    found = json.loads((tmp_path / "new" / "results.json").read_text())
    assert {name: cell["value"] for name, cell in found.items()} == {"one": 1, "two": 3}
    assert all({"when", "load", "cores", "python"} == set(cell["machine"]) for cell in found.values())


def test_figures_are_kept_published_and_printed(
    report: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    done = report.conclude(
        asked(report, tmp_path, "--markdown", str(page)), lambda kept: kept.add("one", {"value": 1}), told
    )
    assert done == 0
    assert page.read_text() == f"before\n\n{BEGIN}\none: 1\n{END}\n\nafter\n"
    assert "one: 1" in capsys.readouterr().out
    assert list(json.loads((tmp_path / "kept" / "results.json").read_text())) == ["one"]
    for value in (1, 2):
        measure = lambda kept, value=value: kept.add("one", {"value": value})  # noqa: E731
        assert report.conclude(asked(report, tmp_path), measure, told) == 0
    assert (tmp_path / "kept" / "results.md").read_text() == f"{BEGIN}\none: 2\n{END}\n", "without a page"


@pytest.mark.parametrize("text", ["", BEGIN, END], ids=["no marks", "no end", "no begin"])
def test_a_page_without_a_place_is_refused_before_anything_is_measured(
    report: ModuleType, tmp_path: Path, text: str
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{text}\nhers\n")
    measured: list[Any] = []
    with pytest.raises(SystemExit, match="no place for figures"):
        report.conclude(asked(report, tmp_path, "--markdown", str(page)), measured.append, told)
    assert not measured
    assert page.read_text() == f"{text}\nhers\n"


def test_a_smoke_run_keeps_nothing(
    report: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = report.conclude(
        asked(report, tmp_path, "--small"), lambda kept: kept.add("one", {"value": 1}), told
    )
    assert done == 0
    assert "one: 1" in capsys.readouterr().out
    assert not (tmp_path / "kept").exists()


def test_arms_that_disagree_publish_nothing(
    report: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with benchmark("arms") as arms:

        def measure(kept: Any) -> None:
            kept.add("one", {"value": 1})
            arms.agree("round 3", {"ours": 1, "theirs": 2})

        assert report.conclude(asked(report, tmp_path), measure, told) == 1
    assert capsys.readouterr().err == "Disagreement: round 3: {'ours': 1, 'theirs': 2}\n"
    # What was measured before is not lost.
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["results.json"]


def test_everyone_goes_first_in_turn() -> None:
    with benchmark("arms") as arms:
        rounds = [arms.in_turns(["a", "b", "c"], turn) for turn in range(-1, 3)]
    assert rounds == [["c", "a", "b"], ["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]


def test_circumstances(report: ModuleType) -> None:
    def cell(rounds: int, load: float) -> dict[str, Any]:
        return {"machine": {"load": load, "cores": 2}, "arms": {"ours": {"seconds": [1.0] * rounds}}}

    assert report.circumstances([]) == "No figures yet.\n"
    assert (
        report.circumstances([cell(1, 0.2)]) == "2 cores, 1 round; load beforehand 0.2: little ran beside.\n"
    )
    found = report.circumstances([cell(5, 0.3), cell(3, 1.4)])
    assert found == (
        "2 cores, 3 or 5 rounds; load beforehand 0.3 to 1.4: other programs took much of the machine.\n"
    )
