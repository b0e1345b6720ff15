"""Every subcommand that takes tables takes them in the same way, and tells what it does not know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.cli import main
from tests.support.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

    Said = pytest.CaptureFixture[str]

#: Each with what it needs to get along without Spark.
COMMANDS: dict[str, list[str]] = {
    "run": [],
    "status": [],
    "plan": [],
    "changes": ["--plan"],
    "replay": [],
    "verify": ["--checks", "seal,watermark"],
}
OTHERS = ["lint", "schema", "jars", "archive", "doctor"]


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """A target that is through with its source, and a configuration beside it; starting Spark is an error."""

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("delta_cdc.cli.common.get_session", refused)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    made = Tables.made_in(tmp_path / "tables")
    made.sealed(5)
    entry = {"source": made.source.uri, "target": made.target.uri, "keys": ["id"], "group": "g"}
    text = json.dumps(
        {"groups": {"g": {}}, "pipelines": {"p": entry, "q": {**entry, "target": str(tmp_path / "none")}}}
    )
    (tmp_path / "flows").mkdir()
    for path in (tmp_path / "flows.yaml", tmp_path / "flows" / "all.yml"):
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    return made


FORMS: dict[str, list[str]] = {
    "a pipeline of a file": ["flows.yaml", "p"],
    "a pipeline of a folder": ["flows", "p"],
    "an option": ["flows.yaml", "--pipeline", "p"],
    "both": ["flows.yaml", "p", "--pipeline", "p", "--group", "g"],
    "two tables": ["{source}", "{target}", "--pipeline", "p"],
    "a pair": ["p={target}"],
}


def run(command: str, form: list[str], tables: Tables) -> int:
    texts = [text.format(source=tables.source.uri, target=tables.target.uri) for text in form]
    return code_of(command, *texts, *COMMANDS[command])


def code_of(*arguments: str) -> Any:
    try:
        return main(list(arguments))
    except SystemExit as left:
        return left.code


@pytest.mark.parametrize("command", COMMANDS)
def test_every_form_is_about_the_same(command: str, tables: Tables, capsys: Said) -> None:
    told = set()
    for name, form in FORMS.items():
        assert run(command, form, tables) == 0, (name, capsys.readouterr().err)
        said = capsys.readouterr().out
        # A configuration says a little more to compare with, and verify tells what it did not need.
        told.add(said.replace("with the options of today", ""))
    assert len(told) == 1
    assert tables.source.uri in said or tables.target.uri in said or "p " in said


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("form", "message"),
    [
        (["{source}", "{target}"], "name it with --pipeline"),
        (["{source}", "{target}", "--pipeline", "p", "--pipeline", "q"], "2 pipelines are named"),
        (["p={target}", "--pipeline", "p"], "--pipeline given with PIPELINE=TARGET"),
        (["p={target}", "--group", "g"], "--group given without a configuration"),
        (["p={target}", "flows.yaml"], "names no pipeline and target"),
        (["flows.yaml", "p={target}"], "names no pipeline and target"),
        (["flows.yaml", "r"], "has no pipeline 'r'"),
        (["flows.yaml", "--group", "h"], "has no group 'h'"),
        (["=x"], "names no pipeline and target"),
    ],
)
def test_what_names_no_tables(
    command: str, form: list[str], message: str, tables: Tables, capsys: Said
) -> None:
    assert run(command, form, tables) == 2
    output = capsys.readouterr()
    assert message in output.err
    # The error alone: the command itself is right, so its usage would only hide the error.
    assert output.err.startswith("InvalidConfiguration: ")
    assert output.err.count("\n") == 1
    assert output.out == ""


# -- what is not known -----------------------------------------------------------------------------
@pytest.mark.parametrize("command", [*COMMANDS, *OTHERS])
def test_an_unknown_option(command: str, capsys: Said) -> None:
    """With the usage of the subcommand, and its nearest option, whatever else is missing."""
    has_json = command in ("status", "run", "verify", "lint", "doctor")
    for given in ([], ["flows.yaml"] if command in COMMANDS else []):
        for option in ("--jsn", "--jsn=1"):
            assert code_of(command, *given, option) == 2
            said = capsys.readouterr()
            assert said.err.startswith(f"usage: delta-cdc {command} ")
            assert "unknown option --jsn: " in said.err
            assert ("did you mean --json?" in said.err) == has_json
            assert said.out == ""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["plan", "a", "b", "--max-versions", "many"], "invalid int value: 'many'"),
        (["plan", "a", "b", "--mode", "redo"], "invalid choice: 'redo'"),
        (["plan", "a", "b", "--pipeline", "p", "--max-files", "3"], "--max-files given without --ingest"),
        (["changes", "a", "--from", "x"], "invalid int value"),
        (["changes", "a", "--from", "1", "--limit", "0"], "limit is 0"),
        (["changes", "a"], "one of the arguments --from"),
        (["replay", "a=b", "--adapter-options", "{"], "is no JSON"),
        (["verify", "a=b", "--checks", "seals"], "did you mean 'seal'"),
        (["run"], "are required"),
        (["jars", "more"], "unknown arguments: more"),
        (
            ["doctor", "lake.yaml"],
            "unknown arguments: lake.yaml. lint checks a configuration, and status its tables: delta-cdc",
        ),
        (["doctor", "--timeout", "0"], "is no number of seconds"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_value(given: list[str], told: str, capsys: Said) -> None:
    assert code_of(*given) == 2
    output = capsys.readouterr()
    assert output.err.startswith((f"usage: delta-cdc {given[0]} ", "InvalidConfiguration: "))
    assert told in output.err
    assert output.out == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("stauts", "unknown command stauts: did you mean status?"),
        ("validate", "unknown command validate: did you mean lint?"),
        ("frobnicate", "unknown command frobnicate: use one of run, status, "),
    ],
)
def test_an_unknown_command(name: str, message: str, capsys: Said) -> None:
    assert code_of(name, "flows.yaml") == 2
    assert message in capsys.readouterr().err
    for given in (["--jsn"], ["stat"], ["--jsn", "plan", "a", "b"], []):
        assert code_of(*given) == 2
        assert capsys.readouterr().err.startswith("usage: delta-cdc [-h] COMMAND")


def test_behind_two_dashes_nothing_is_an_option(tables: Tables, capsys: Said) -> None:
    assert code_of("status", "--", f"--p={tables.target.uri}_2") == 1
    assert capsys.readouterr().out.startswith("--p\n")


# -- what each makes of it -------------------------------------------------------------------------
def test_a_plan_of_all_pipelines_of_a_file(tables: Tables, capsys: Said) -> None:
    assert code_of("plan", "flows.yaml") == 0
    said = capsys.readouterr().out
    assert said.startswith("p\n")
    assert "\nq\n" in said
    assert "the snapshot of version 5" in said
    tables.source.append()
    tables.source.append()
    assert code_of("plan", "flows.yaml", "p", "--versions-per-commit", "1") == 0
    said = capsys.readouterr().out
    assert "versions 6-6" in said
    assert "versions 7-7" in said
    assert code_of("plan", "flows.yaml", "p", "--key", "id") == 2
    assert "given with a configuration" in capsys.readouterr().err
    assert code_of("plan", "flows.yaml", "p", "--ingest") == 2
    assert "has no change log" in capsys.readouterr().err


def test_a_run_without_a_configuration_needs_to_know_the_keys(tables: Tables, capsys: Said) -> None:
    assert code_of("run", tables.source.uri, f"{tables.target.uri}_2", "--pipeline", "p") == 2
    assert "It is unknown how p builds" in capsys.readouterr().err
    assert code_of("run", f"p={tables.target.uri}_2") == 2
    assert "no watermark of pipeline p that names its source" in capsys.readouterr().err


def test_changes_that_are_not_applied_yet(tables: Tables, capsys: Said) -> None:
    tables.source.append()
    asked = ["--plan", "--query", "min_delta"]
    for form in (["flows.yaml", "p"], [f"p={tables.target.uri}"]):
        assert code_of("changes", *form, *asked) == 0
        assert "versions   6-6\n" in capsys.readouterr().out
    assert code_of("changes", "flows.yaml", *asked) == 2
    assert "takes one pipeline, not p, q." in capsys.readouterr().err
