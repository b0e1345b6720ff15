"""What the pages about change queries say beside their examples: names, numbers, options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from delta_cdc.cli import main
from delta_cdc.core import errors
from delta_cdc.core.spec import Query, ReadMethod
from delta_cdc.planning import read_methods

_DOCS = Path(__file__).parents[3] / "docs"
_PAGES = ("explanation/change-queries.md", "howto/read-changes.md")


@pytest.fixture(scope="module")
def page() -> str:
    return "\n".join((_DOCS / name).read_text(encoding="utf-8") for name in _PAGES)


def test_every_query_and_capture_has_its_row(page: str) -> None:
    queries = re.findall(r"^\| [^|]+ \| `(\w+)`[^|]*\| [^|]+ \|$", page, re.M)
    assert set(get_args(Query)) <= set(queries)
    first_cells = re.findall(r"^\| `(\w+)` \|", page, re.M)
    assert set(get_args(ReadMethod)) - {"auto"} <= set(first_cells)


def test_numbers_are_those_of_the_code(page: str) -> None:
    assert f"at most {read_methods.MOST_VERSIONS} versions with changes one by one" in page
    assert f"at most {read_methods.MOST_SEGMENTS} segments" in page
    assert f"at most {read_methods.MOST_COMPARED} of these" in page
    assert f"{read_methods.WORTHWHILE // 1024**2} MiB of changes or more" in page
    assert f"are more than {read_methods.CROSSOVER:g} times smaller" in page


def test_names_of_errors_exist(page: str) -> None:
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S)
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", prose)) - {"DeltaReadChangesOperator"}
    assert {"ChangeFeedDisabled", "RangeTooLong", "KeyNotUnique"} <= named
    assert [name for name in sorted(named) if not hasattr(errors, name)] == []


def test_every_option_of_the_command_is_one(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["changes", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    texts = [page, (_DOCS.parent / "README.md").read_text(encoding="utf-8")]
    commands = re.findall(r"delta-cdc changes .*", "\n".join(texts))
    used = {option for command in commands for option in re.findall(r"(--[a-z-]+)", command)}
    assert len(used) > 5
    assert used <= known
