"""The examples of the pages print what the pages say; ``docs/examples.py`` lists these pages."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from pyspark.sql import SparkSession

_DOCS = Path(__file__).parents[3] / "docs"
_GROUPS = ["queries", "events", "tutorials", "coming-from"]
#: A range of versions for each of the four queries, and how many rows it has on the page.
_ANSWERS = {"full_delta": 9, "append_only": 2, "min_delta": 5, "upsert": 2}


@pytest.fixture
def examples() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("docs_examples", _DOCS / "examples.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules["docs_examples"] = script
    spec.loader.exec_module(script)
    yield script
    del sys.modules["docs_examples"]


@pytest.mark.slow
@pytest.mark.parametrize("group", _GROUPS)
def test_the_pages_say_what_the_examples_print(
    spark: SparkSession, examples: ModuleType, tmp_path: Path, group: str
) -> None:
    assert list(examples.GROUPS) == _GROUPS
    names = examples.GROUPS[group]
    pages = [(_DOCS / name).read_text(encoding="utf-8") for name in names]
    printed = examples.rendered([_with_other_answers(page) for page in pages], spark, tmp_path)
    for name, page, rendered in zip(names, pages, printed, strict=True):
        assert rendered == page, f"run python docs/examples.py {group}: {name}"
    for query, rows in _ANSWERS.items() if group == "queries" else ():
        requested = "" if query == "full_delta" else rf" --query {query}(?: --key id)?"
        found = re.search(rf"^\$ .* --from 2 --to 6{requested}\n(?:.+\n)*\n{rows} rows ", printed[0], re.M)
        assert found is not None, query


def _with_other_answers(page: str) -> str:
    """Empty what the page says, so that nothing can be the same because it was left alone."""
    page = re.sub(r"^```text\n.*?^```$", "```text\n```", page, flags=re.M | re.S)
    return re.sub(
        r"^```console\n.*?^```$",
        lambda block: "\n".join(["```console", *re.findall(r"^\$ (?:.*\\\n)*.*$", block[0], re.M), "```"]),
        page,
        flags=re.M | re.S,
    )
