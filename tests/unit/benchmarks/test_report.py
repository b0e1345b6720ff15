"""What a benchmark does not publish: figures without a place, and of arms that disagree."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    "text",
    [pytest.param("", id="no marks"), pytest.param(BEGIN, id="no end"), pytest.param(END, id="no begin")],
)
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
