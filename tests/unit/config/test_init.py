"""``delta-cdc init`` and ``discover`` where nothing has to be counted: they start no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import write_deltalake

from delta_cdc.cli import main
from delta_cdc.cli.proposing import Known, Proposing, Search
from delta_cdc.config import lint, load
from tests.support.logs import LogTable

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.config.proposals import Proposal

_APPENDED = {"delta.appendOnly": "true"}


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("delta_cdc.cli.common.get_session", refused)


def _table(path: Path, *, properties: dict[str, str] | None = None, **columns: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_deltalake(str(path), pa.table(columns or {"url": ["a"]}), configuration=properties)
    return str(path)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two tables whose rows can only be added, and one beside them that this package keeps."""
    for name in ("clicks", "deep/views", "deep/tmp_1", "clicks__quarantine", "x__ingested"):
        _table(tmp_path / "bronze" / name, properties=_APPENDED)
    return tmp_path / "bronze"


def _proposed(table: str, **given: Any) -> Proposal:
    (found,) = Proposing(Search(tables=table, target="/t", **given), Known()).run().proposals
    return found


def test_init_writes_a_file_that_lint_accepts(lake: Path, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "made.yaml"
    command = ["init", f"{lake}/", "--target", "/silver/{name}/now", "--leave-out", "tmp_*", "--group", "web"]
    assert main([*command, "--output", str(file)]) == 0
    assert capsys.readouterr() == ("", "")
    assert lint(file) == []
    (group,) = load(file).groups
    assert group.settings["discover"] == {
        "tables": str(lake),
        "target": "/silver/{name}/now",
        "leave_out": ["tmp_*"],
    }
    assert {table.pipeline: table.arguments for table in group.tables} == {
        name: {
            "pipeline": name,
            "source": f"{lake}/{path}",
            "target": f"/silver/{path}/now",
            "insert_only": True,
        }
        for name, path in (("clicks", "clicks"), ("deep_views", "deep/views"))
    }
    # The same without a file; and a file that exists stays.
    assert main(command) == 0
    assert capsys.readouterr().out == file.read_text()
    assert main([*command, "--output", str(file)]) == 2
    assert "cannot be written: File exists" in capsys.readouterr().err


def test_paths_do_not_depend_on_the_working_folder(
    lake: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lake.parent)
    assert main(["init", "bronze", "--target", "./silver"]) == 0
    text = capsys.readouterr().out
    assert f"tables: {lake}\n" in text
    assert f"target: {lake.parent}/silver/deep/views\n" in text
    assert main(["init", "bronze", "--target", "main.silver", "--leave-out", "*/*"]) == 0
    assert "target: main.silver.clicks\n" in capsys.readouterr().out


def test_what_cannot_be_searched_is_named(tmp_path: Path, capsys: Any) -> None:
    assert main(["init", str(tmp_path / "none"), "--target", "/t"]) == 1
    assert "There is no folder" in capsys.readouterr().err
    (tmp_path / "bronze").mkdir()
    assert main(["init", str(tmp_path / "bronze"), "--target", "/t"]) == 2
    assert "has no table for which a pipeline can be proposed" in capsys.readouterr().err
    source = _table(tmp_path / "bronze" / "clicks", properties=_APPENDED)
    assert main(["init", source, "--target", str(tmp_path / "bronze")]) == 2
    assert "clicks: source and target are the same table" in capsys.readouterr().err


def test_a_table_whose_keys_are_not_known_has_a_reason(tmp_path: Path) -> None:
    whole = _proposed(_table(tmp_path / "a", amount=[1.5], city=["x"]))
    assert (whole.missing, "keys" in whole.values) == ("no column has the name of a key", False)
    empty = _proposed(_table(tmp_path / "b", id=pa.array([], pa.int64())))
    assert empty.missing == "the table has no rows, so that no key can be proven"
    large = _proposed(_table(tmp_path / "c", id=[1], ordered_on=["x"]), max_bytes=10)
    assert large.missing.startswith("id is not counted: the table has ")
    assert large.missing.endswith(", and --max-bytes is 10 B")
    # A NULL that the log shows needs no count.
    nulls = _proposed(_table(tmp_path / "d", id=[1, None], uuid=[None, "x"]))
    assert nulls.missing == (
        "no candidate is unique without NULL: id has NULLs; uuid has NULLs; id, uuid has NULLs"
    )
    # Of events, only the table's own order is proposed, in a comment.
    events = _proposed(_table(tmp_path / "e", op=["u"], event_time=pa.array([0], pa.timestamp("us", "UTC"))))
    assert "sequence_by: event_time" in events.comments[""][0]
    made = LogTable(tmp_path / "f", configuration={"delta_cdc.changeLog": "true", **_APPENDED}).create()
    made.append()
    log = _proposed(made.uri)
    assert "its rows are events" in log.missing


def test_discover_finds_what_no_pipeline_has(lake: Path, tmp_path: Path, capsys: Any) -> None:
    file, given = tmp_path / "p.yaml", f"tables: {lake}, target: {lake}/out, leave_out: '*tmp*'"
    text = f"""
groups: {{g: {{discover: {{{given}}}}}}}
pipelines:
  one:
    group: g
    source: file://{lake}/clicks/
    target: {lake}/out/clicks
    insert_only: true
"""
    file.write_text(text)
    _table(lake / "out" / "clicks")
    assert main(["discover", str(file)]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("pipelines:\n  deep_views:\n    group: g\n")
    assert printed.count("group: g") == 1
    assert file.read_text() == text
    # A pipeline of the same name exists; a table without a key would stop the others, so it is not added.
    _table(lake / "one", properties=_APPENDED)
    _table(lake / "two", amount=[1.5])
    file.write_text(text.replace("leave_out", "add: true, leave_out"))
    assert main(["discover", str(file), "--group", "g"]) == 1
    shown = capsys.readouterr()
    assert f"2 pipelines added to {file}: deep_views, one_2" in shown.out
    assert "TODO keys" in shown.out
    assert shown.err == f"no key:   {lake}/two: no column has the name of a key\n"
    assert [table.pipeline for table in load(file).tables()] == ["deep_views", "one", "one_2"]
    assert main(["discover", str(file)]) == 1
    assert "pipelines added" not in capsys.readouterr().out
    (lake / "two").rename(tmp_path / "two")
    assert main(["discover", str(file)]) == 0
    assert capsys.readouterr().out == "# g: no new table\n"


def test_discover_needs_a_group_with_discover(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("pipelines: {p: {source: /s, target: /t, keys: id}}\n")
    assert main(["discover", str(file)]) == 2
    assert "No group has discover" in capsys.readouterr().err
    file.write_text("pipelines: {p: {source: /s, target: /t, keys: id, discover: {tables: /s}}}\n")
    (finding,) = lint(file)
    assert finding.message.startswith("discover of the pipeline p is {'tables': '/s'}.")


def test_a_damaged_table_stops_no_other(lake: Path, capsys: Any) -> None:
    (lake / "bad" / "_delta_log").mkdir(parents=True)
    (lake / "bad" / "_delta_log" / f"{0:020d}.json").write_text("{no")
    _table(lake / "pri$ce", properties=_APPENDED)
    _table(lake / "{{ x }}", properties=_APPENDED)
    assert main(["init", str(lake), "--target", "/t"]) == 1
    shown = capsys.readouterr()
    assert shown.out.count("insert_only: true") == 3
    assert [line.split(": ")[1:3] for line in shown.err.splitlines()] == [
        [f"{lake}/bad", "CorruptLog"],
        [f"{lake}/pri$ce", "its name has a $ or a template, which a configuration would replace"],
        [f"{lake}/{{{{ x }}}}", "its name has a $ or a template, which a configuration would replace"],
    ]


def test_missing_keys_of_many_tables_hide_no_other_finding(tmp_path: Path, capsys: Any) -> None:
    """More findings than lint lists; and a DAG's id that cannot be used is found all the same."""
    for number in range(210):
        LogTable(tmp_path / "lake" / f"t{number}").create()
    file = tmp_path / "made.yaml"
    assert main(["init", str(tmp_path / "lake"), "--target", "/t", "--output", str(file)]) == 1
    assert capsys.readouterr().err.count("no key: ") == 210
    assert file.read_text().count("TODO keys") == 210
    assert main(["init", str(tmp_path / "lake"), "--target", "/t", "--group", "no name"]) == 2
    assert "The group's name 'no name' cannot be used" in capsys.readouterr().err
