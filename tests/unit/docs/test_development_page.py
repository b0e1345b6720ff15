"""The page for maintainers says where each module is to be looked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_PROJECT = Path(__file__).parents[3]


@pytest.mark.parametrize("package", ["spark_jobs/delta_cdc", "airflow_delta_cdc"])
def test_every_module_has_its_place(package: str) -> None:
    page = (_PROJECT / "docs" / "development.md").read_text()
    rows = page.partition(f"`{package}/`:\n\n")[2].partition("\n\n")[0]
    placed = re.findall(r"`(\w+)`", rows)
    there = {
        path.stem
        for path in (_PROJECT / package).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    } - {"__init__", "_version"}
    assert sorted(placed) == sorted(there)
