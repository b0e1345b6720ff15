"""The page of the configuration: its tables of keys, and every file that it shows."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import yaml

from delta_cdc.cli import command_line
from delta_cdc.config import lint, load, models

_DOCS = Path(__file__).parents[3] / "docs"
_PAGE = (_DOCS / "reference" / "configuration.md").read_text(encoding="utf-8")
_OTHERS = ("coming-from/configuration-table.md", "tutorials/many-tables.md")
_FILES = [
    block
    for text in (_PAGE, *((_DOCS / name).read_text(encoding="utf-8") for name in _OTHERS))
    for block in re.findall(r"```yaml\n(.*?)```", text, re.S)
]


def test_tables_of_keys_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("docs_keys", _DOCS / "keys.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.page() == _PAGE, "run python docs/keys.py"
    for name in (*models.table_keys(), *models.dag_keys()):
        # An option has its meaning on its own page.
        assert _PAGE.count(f"\n| `{name}` |") + _PAGE.count(f"[`{name}`](options.md)") == 1, name


@pytest.mark.parametrize("text", _FILES)
def test_every_file_on_the_page_is_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pipelines.yaml"
    path.write_text(text)
    assert [str(finding) for finding in lint(path)] == []
    # Nothing on the page needs the strict reading to be right.
    of_values = load(yaml.safe_load(text))
    assert [group.fingerprint for group in load(path).groups] == [one.fingerprint for one in of_values.groups]


def test_the_mistake_that_is_shown_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sales.yaml").write_text(_FILES[0].replace("stored_as_scd_type", "stored_as_scd_typ"))
    (finding,) = lint("sales.yaml")
    assert f"\n{finding}\n" in _PAGE


def test_every_command_that_the_page_names_is_one() -> None:
    help_text = command_line().format_help()
    named = re.findall(r"\[`delta-cdc (\w+)`\]\(commands/(\w+)\.md\)", _PAGE)
    assert len(named) > 5
    for command, page in named:
        assert command == page
        assert re.search(rf"^    {command} ", help_text, re.M), command
