"""The parameters of operators and functions are those that the options describe."""

from __future__ import annotations

import pytest

from tools import signatures


@pytest.mark.parametrize("name", signatures.FILES)
def test_a_file_is_current(name: str) -> None:
    text = (signatures.ROOT / name).read_text(encoding="utf-8")
    assert "# -- options: " in text
    assert signatures.written(name, text) == text, "run tools/signatures.py"


def test_a_region_is_written_anew() -> None:
    """Whatever is in a region is replaced, with the indentation of its marker."""
    marker = "    # -- options: BOUNDS without ending_version, ending_timestamp\n"
    head, tail = f"def f(\n{marker}", "    # -- end\n)\n"
    text = f"{head}    old: int,\n{tail}"
    function = "    starting_version: int | None = None,\n    starting_timestamp: str | None = None,\n"
    assert signatures.written("spark_jobs/f.py", text) == f"{head}{function}{tail}"
    operator = function.replace("int |", "int | str |")
    assert signatures.written("airflow_delta_cdc/f.py", text) == f"{head}{operator}{tail}"
