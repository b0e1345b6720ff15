"""The pages for maintainers say where each module is to be looked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.lint_engine import LAYERS

_PROJECT = Path(__file__).parents[3]
_PAGE = _PROJECT / "docs" / "contributing" / "development.md"


@pytest.mark.parametrize("package", ["spark_jobs/delta_cdc", "airflow_delta_cdc"])
def test_every_module_has_its_place(package: str) -> None:
    page = _PAGE.read_text()
    section = (
        page.partition(f", `{package}/`")[2]
        .partition("In the provider,")[0]
        .partition("[Where to find things]")[0]
    )
    cells = [row.split("|")[1:] for row in section.splitlines() if row.startswith("| ")]
    column = 0 if package.startswith("spark_jobs") else 1
    placed = [name for row in cells for name in re.findall(r"`(\w+)`", row[column])]
    there = {
        path.stem
        for path in (_PROJECT / package).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    } - {"__init__", "_version"}
    assert sorted(placed) == sorted(there)


def test_the_page_has_the_layers_of_the_lint() -> None:
    page = _PAGE.read_text()
    rows = {
        row.split("|")[1].strip(" `"): row.split("|")[3] for row in page.splitlines() if row.count("|") == 4
    }
    for layer, below in LAYERS.items():
        assert set(re.findall(r"`(\w+)`", rows[layer])) == set(below)


def test_modules_that_the_page_names_are_there() -> None:
    section = (_PAGE.parent / "where.md").read_text()
    named = re.findall(r"`(\w+/[\w/]+\.py)`", section)
    assert len(named) > 5
    places = {
        name: _PROJECT
        / (
            ""
            if name.startswith(("airflow_delta_cdc/", "tests/", "tools/", "docs/"))
            else "spark_jobs/delta_cdc"
        )
        / name
        for name in named
    }
    assert [name for name, path in places.items() if not path.exists()] == []
