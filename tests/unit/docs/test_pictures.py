"""The committed pictures are what their code draws, and each is on a page."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import page_examples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

_DOCS = Path(__file__).parents[3] / "docs"
_FOLDER = _DOCS / "pictures"
_PICTURES = sorted(_FOLDER.glob("*.svg"))
_MODULES = ("canvas", "diagrams", "plots", "files")


@pytest.fixture(scope="module")
def code() -> Iterator[dict[str, ModuleType]]:
    """The modules of ``docs/pictures``, which find each other beside them."""
    sys.path.insert(0, str(_FOLDER))
    try:
        yield {name: import_module(name) for name in _MODULES}
    finally:
        sys.path.remove(str(_FOLDER))
        for name in _MODULES:
            sys.modules.pop(name, None)


def test_the_files_are_up_to_date(code: dict[str, ModuleType]) -> None:
    written = code["files"].files()
    for file, text in written.items():
        assert file.read_text(encoding="utf-8") == text, "run python docs/pictures"
    assert sorted(file for file in written if file.suffix == ".svg") == _PICTURES


def test_every_picture_is_on_a_page_and_described() -> None:
    shown = set()
    for page in _DOCS.rglob("*.md"):
        for alt, link in re.findall(r"!\[([^\]]*)\]\((\S+)\)", page.read_text(encoding="utf-8")):
            assert len(alt) > 10, f"{page.name}: {link}"
            shown.add((page.parent / link).resolve())
    assert set(_PICTURES) <= shown


def test_the_page_of_a_failed_run_agrees_with_itself() -> None:
    """Its error is the engine's, of versions above the watermark, and the tasks after it did not run."""
    run = next(run for run in reversed(page_examples.company()["runs"]) if run["dag_id"] == "sales")
    values = {one["key"]: one["value"] for one in run["xcoms"] if one["key"] != "return_value"}
    error, customers = values["delta_cdc_error"], values["tables"]["customers"]
    assert error["message"].startswith("3 row(s) of s3://lake/bronze/customers, versions 65-71, have NULL")
    assert (customers["version"], customers["lag"]["source_version"]) == (64, 71)
    states = {task["task_id"]: task["state"] for task in run["tasks"] if "map_index" not in task}
    assert states == {"run_spark": "success", "publish": "upstream_failed"}
