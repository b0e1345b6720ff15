"""Proposed pipelines as YAML, and added to a configuration without another change."""

from __future__ import annotations

from pathlib import Path

import pytest

from delta_cdc.config import lint, load, proposals
from delta_cdc.config.proposals import Proposal, add, comment, entries, group_name, pipeline_name, written
from delta_cdc.config.yaml_text import yaml_key
from delta_cdc.core.errors import InvalidConfiguration


def _proposal(name: str, *, whole: bool = True, **more: object) -> Proposal:
    values = {"source": f"/s/{name}", "target": f"/t/{name}", **({"keys": ["id"]} if whole else {}), **more}
    return Proposal(
        name, values, {"source": ["why\n  keys: [x]"], "": ["more"]}, missing="" if whole else "why"
    )


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    odd = Proposal(
        "1e5", {"source": "/s/yes: no #1", "target": "/t/null", "keys": ["no", "12", "a'b", "{x}"]}
    )
    text = written([_proposal("a"), odd], "true", {"discover": {"tables": "/s", "target": "/t"}}, "x" * 300)
    file = tmp_path / "made.yaml"
    file.write_text(text)
    assert lint(file) == []
    (group,) = load(file).groups
    assert (group.name, group.settings["discover"]["tables"]) == ("true", "/s")
    tables = {table.pipeline: table.arguments for table in group.tables}
    assert tables["1e5"]["keys"] == ["no", "12", "a'b", "{x}"]
    assert tables["1e5"]["source"] == "/s/yes: no #1"
    # A comment never becomes a line of its own.
    assert tables["a"]["keys"] == ["id"]
    assert all(len(line) <= 110 for line in comment("word " * 100, "    "))


def test_a_pipeline_without_keys_is_refused_by_lint_until_they_are_there(tmp_path: Path) -> None:
    file = tmp_path / "made.yaml"
    file.write_text(written([_proposal("a", whole=False)], "g", {}, "test"))
    (finding,) = lint(file)
    assert finding.message == "The pipeline a: keys are missing."
    assert "# TODO keys" in file.read_text()
    assert _proposal("a", whole=False).problem() == ""
    assert "are the same table" in _proposal("a", target="/s/a").problem()


def test_a_name_of_any_length_is_one_key(tmp_path: Path) -> None:
    """PyYAML writes a long key with a question mark, in lines of its own."""
    name, file = "x" * 200, tmp_path / "made.yaml"
    text = written([_proposal(name)], "g", {}, "test")
    file.write_text(text)
    assert lint(file) == []
    assert [table.pipeline for table in load(file).tables()] == [name]
    assert yaml_key("1e5") == "'1e5'"
    assert yaml_key("a: b " * 300).count("\n") == 0


def test_values_that_may_be_secrets_are_only_named() -> None:
    text = written([_proposal("a")], "g", {"conf": {"spark.a": "b"}}, "test", ["spark.token", "spark.x"])
    assert "# TODO conf: spark.token, spark.x: not written" in text
    assert "TODO" not in written([_proposal("a")], "g", {}, "test")


def test_names() -> None:
    assert pipeline_name("sales/order items", ()) == "sales_order_items"
    assert pipeline_name("a b", {"a_b", "a_b_2"}) == "a_b_3"
    assert pipeline_name("__ünï", ()) == "n_"
    assert pipeline_name("…", ()) == "table"
    assert len(pipeline_name("x" * 400, ())) < 200
    assert [group_name(one) for one in ("/lake/bronze/", "main.sales", "kafka://h:1/shop.public.")] == [
        "bronze",
        "main.sales",
        "shop.public",
    ]


_OLD = """\
# mine
groups: {g: {}}
pipelines:
   old:   # of before
      group: g
      source: /s/old
      target: /t/old
      keys: id"""


def test_a_file_gets_new_pipelines_at_its_end(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(_OLD)
    file.chmod(0o640)
    assert add(file, [_proposal("a"), _proposal("b")], "g") == file
    assert file.read_text().startswith(f"{_OLD}\n   a:\n     group: g\n")
    assert [table.pipeline for table in load(file).tables()] == ["a", "b", "old"]
    assert file.stat().st_mode & 0o777 == 0o640


def test_the_ends_of_lines_stay(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    before = f"\ufeff{_OLD}".replace("\n", "\r\n").encode()
    file.write_bytes(before)
    add(file, [_proposal("a")], "g")
    after = file.read_bytes()
    assert after.startswith(before)
    assert after.count(b"\n") == after.count(b"\r\n") > before.count(b"\n") + 5
    assert [table.pipeline for table in load(file).tables()] == ["a", "old"]


def test_the_folder_may_be_the_working_folder_and_have_much_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.yml").write_text(_OLD)
    (tmp_path / "gone").symlink_to("nowhere")
    monkeypatch.chdir(tmp_path)
    assert add(Path(), [_proposal("a")], "g") == Path("discovered-g.yaml")
    assert [table.pipeline for table in load(tmp_path).tables()] == ["a", "old"]


def test_a_folder_gets_a_file_of_new_pipelines(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(_OLD)
    for name in ("a", "b"):
        assert add(tmp_path, [_proposal(name)], "g") == tmp_path / "discovered-g.yaml"
    assert (tmp_path / "p.yaml").read_text() == _OLD
    assert (tmp_path / "discovered-g.yaml").read_text().startswith(entries([_proposal("a")], "g"))
    assert [table.pipeline for table in load(tmp_path).tables()] == ["a", "b", "old"]


@pytest.mark.parametrize(
    "text",
    [
        "groups: {g: {}}\npipelines: {old: {group: g, source: /s/old, target: /t/old, keys: id}}\n",
        f"{_OLD}\ndefaults: {{owner: me}}\n",
        # The new pipeline has the target of an old one.
        _OLD.replace("/t/old", "/t/a"),
        _OLD.replace("old:", "a:"),
    ],
)
def test_a_file_that_cannot_be_added_to_stays_as_it_is(tmp_path: Path, text: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text)
    with pytest.raises(InvalidConfiguration):
        add(file, [_proposal("a")], "g")
    assert file.read_text() == text
    assert list(tmp_path.iterdir()) == [file]


def test_an_addition_that_changes_another_pipeline_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(_OLD)
    text = proposals._appended(file, [_proposal("a")], "g").replace("/s/old", "/s/other")
    monkeypatch.setattr(proposals, "_appended", lambda *_: text)
    with pytest.raises(InvalidConfiguration, match="other pipelines would change"):
        add(file, [_proposal("a")], "g")
    assert file.read_text() == _OLD


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the DAGs of Airflow are mounted read-only."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    file = tmp_path / "p.yaml"
    file.write_text(_OLD)
    monkeypatch.setattr(proposals, "replacing", refused)
    with pytest.raises(InvalidConfiguration, match="it cannot be written: Read-only file system") as raised:
        add(file, [_proposal("a")], "g")
    assert "add the printed lines yourself" in raised.value.remedy
