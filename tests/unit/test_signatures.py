"""Texts that follow from other texts are current: parameters that are options, and the engine's names."""

from __future__ import annotations

import pytest

from tools import signatures


@pytest.mark.parametrize("name", signatures.FILES)
def test_a_file_is_current(name: str) -> None:
    text = (signatures.ROOT / name).read_text(encoding="utf-8")
    assert "# -- options: " in text or "# -- names\n" in text
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


def test_the_names_follow_the_imports() -> None:
    """Each import from the engine is an entry, under the name that it has in the file."""
    head = "import re\nfrom delta_cdc.job import run as run_spec, close\nNAMES = {\n    # -- names\n"
    tail = "    # -- end\n}\n"
    names = '    "run_spec": ("delta_cdc.job", "run"),\n    "close": ("delta_cdc.job", "close"),\n'
    assert signatures.written("f.py", f"{head}    1: 1,\n{tail}") == f"{head}{names}{tail}"
