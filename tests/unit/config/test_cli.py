"""The commands that take a file of pipelines, without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import config
from delta_cdc.cli import main
from delta_cdc.config.schema import as_text
from delta_cdc.planning import status
from tests.support.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("delta_cdc.cli.common.get_session", refused)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.yaml"
    path.write_text("pipelines:\n  p: {source: /s, target: /t, key: id}\n  q: {}\n")
    return path


def test_lint(tmp_path: Path, broken: Path, capsys: Said) -> None:
    right = tmp_path / "right.yaml"
    right.write_text("pipelines: {p: {source: /s, target: /t, keys: id}}\n")
    assert main(["lint", str(right)]) == 0
    assert capsys.readouterr().out == f"0 findings in {right}\n"
    assert main(["lint", str(right), str(broken)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        f"{broken}:2:31: 'key' is no key of the pipeline p. Remedy: did you mean 'keys'?"
    )
    assert [line.split(" Remedy")[0] for line in lines[1:3]] == [
        f"{broken}:3:3: The pipeline q has no source.",
        f"{broken}:3:3: The pipeline q has no target.",
    ]
    # Whether p is complete is unknown, because its key may be a misspelled one.
    assert lines[3:] == [f"3 findings in {right}, {broken}", "More checks follow when these are corrected."]
    assert main(["lint", "--json", str(broken)]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told == [finding.to_dict() for finding in config.lint(broken)]
    assert told[0].keys() == {"file", "line", "column", "message", "remedy"}
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == as_text()
    with pytest.raises(SystemExit) as ended:
        main(["lint"])
    assert ended.value.code == 2


def test_status_of_all_pipelines_of_a_file(
    tmp_path: Path, broken: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables.made_in(tmp_path / "tables")
    tables.sealed(2)
    monkeypatch.setenv("LAKE", str(tmp_path))
    path = tmp_path / "pipelines.yml"
    target = tables.target.uri.replace(str(tmp_path), "${LAKE}")
    entries = {
        "p": {"source": tables.source.uri, "target": target, "keys": ["id"]},
        "new": {"source": tables.source.uri, "target": "${LAKE}/new", "keys": ["id"]},
        "q": {"source": "/files", "log": "${LAKE}/log", "target": "${LAKE}/none", "insert_only": True},
    }
    path.write_text(json.dumps({"pipelines": entries}))
    assert main(["status", str(path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [entry["pipeline"] for entry in told] == ["new", "p", "q", "q"]
    # Without a seal, the file says what it will be loaded from.
    assert told[0]["source"] == tables.source.uri
    assert told[1]["committed"] == 2
    # What is ingested and applied has a log and a target.
    assert [entry.get("target") for entry in told[2:]] == [f"{tmp_path}/log", f"{tmp_path}/none"]
    assert main(["status", str(broken)]) == 2
    assert "3 findings in the configuration" in capsys.readouterr().err
    real = status.status_async

    async def fails(pipeline: str, *given: Any, **more: Any) -> Any:
        if pipeline == "new":
            raise ZeroDivisionError("by a value that another system wrote")
        return await real(pipeline, *given, **more)

    monkeypatch.setattr(status, "status_async", fails)
    assert main(["status", str(path), "--json"]) == 1
    broken_one, other, *_ = json.loads(capsys.readouterr().out)
    assert "ZeroDivisionError: by a value" in broken_one["error"]["message"]
    assert other["committed"] == 2, "one table's error leaves the others alone"
    assert main(["status", str(path), "--metrics"]) == 0
    assert 'delta_cdc_problems{pipeline="new"} 1' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--group", "sals"], "has no group 'sals'. Remedy: did you mean 'sales'?"),
        (["--pipeline", "order"], "has no pipeline 'order'. Remedy: did you mean 'orders'?"),
        (["--group", "sales", "--pipeline", "parts"], "has no pipeline 'parts'."),
        ([], "The groups other, parts, sales have different conf. Remedy: run them one at a time"),
        (["--group", "other"], "pipelines.yaml:5: where contains a template, which only Airflow renders."),
    ],
)
def test_a_run_that_cannot_be_meant(tmp_path: Path, capsys: Said, given: list[str], said: str) -> None:
    path = tmp_path / "pipelines.yaml"
    path.write_text(
        "groups: {sales: {conf: {a: 1}}}\n"
        "pipelines:\n"
        "  orders: {group: sales, source: /s, target: /t, keys: id}\n"
        "  parts: {source: /s, target: /t2, keys: id}\n"
        "  other: {source: /s, target: /t3, keys: id, where: \"d > '{{ ds }}'\"}\n"
    )
    assert main(["run", str(path), *given]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("${NOPE}/rooms", "The table '${NOPE}/rooms' names an"),
        ("/{{ ds }}/rooms", "source contains a template, which only Airflow renders."),
    ],
)
def test_what_is_not_known_here_stops_its_pipeline_alone(
    tmp_path: Path, capsys: Said, source: str, problem: str
) -> None:
    tables = Tables.made_in(tmp_path / "tables")
    tables.sealed(5)
    path = tmp_path / "pipelines.yaml"
    path.write_text(
        "pipelines:\n"
        f"  a: {{source: '{source}', target: /t, keys: id}}\n"
        f"  p: {{source: {tables.source.uri}, target: {tables.target.uri}, keys: id}}\n"
    )
    message = f"InvalidConfiguration: The pipeline a in {path}:2: {problem}"
    assert main(["plan", str(path)]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"a\n{message}")
    assert "\np\n" in out
    assert main(["run", str(path), "--json"]) == 1
    first, second = json.loads(capsys.readouterr().out)
    assert (first["pipeline"], first["result"]) == ("a", "failed")
    assert first["error"].startswith(message)
    assert (second["pipeline"], second["result"]) == ("p", "nothing")
    for command in ("plan", "run"):
        assert main([command, str(path), "a"]) == 2
        assert capsys.readouterr().err.startswith(message)


@pytest.mark.parametrize(
    ("source", "target", "problem"),
    [
        ("/rooms", "${NOPE}/t", "The table '${NOPE}/t' names an environment variable that is not set here."),
        ("${NOPE}/rooms", "/t", "The table '${NOPE}/rooms' names an environment variable that is not set"),
        ("/rooms", "{{ lake }}/t", "target is '{{ lake }}/t', a template: the table is only known at run"),
        ("{{ lake }}/rooms", "/t", "source is '{{ lake }}/rooms', a template: the table is only known at"),
    ],
)
def test_the_status_of_a_place_that_is_not_known_here(
    tmp_path: Path, capsys: Any, source: str, target: str, problem: str
) -> None:
    """It is the problem of its own pipeline, and the others have their status."""
    tables = Tables.made_in(tmp_path / "tables")
    tables.sealed(5)
    path = tmp_path / "pipelines.yaml"
    path.write_text(
        "groups: {g: {schedule: '@hourly'}}\ndefaults: {group: g, keys: id}\npipelines:\n"
        f"  a: {{source: '{source}', target: '{target}'}}\n"
        f"  p: {{source: {tables.source.uri}, target: {tables.target.uri}}}\n"
    )
    assert main(["status", str(path), "--advise"]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"a\n  InvalidConfiguration: The pipeline a in {path}:4: {problem}")
    assert "\np\n  target " in out
    assert "no table" not in out
    assert main(["status", str(path), "--json"]) == 1
    first, second = json.loads(capsys.readouterr().out)
    assert (first["pipeline"], first["target"]) == ("a", target)
    assert first["error"]["message"].startswith(f"The pipeline a in {path}:4: {problem}")
    assert (second["pipeline"], second["committed"]) == ("p", 5)
    assert main(["status", str(path), "--metrics"]) == 0
    assert '_problems{pipeline="a"} 1.0\n' in capsys.readouterr().out
    # The other pipelines of the group count for the advice about its schedule.
    assert main(["status", str(path), "p", "--advise"]) == 0


def test_the_status_of_a_change_log_needs_no_source(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "pipelines.yaml"
    path.write_text(
        f"pipelines: {{p: {{source: '${{NOPE}}/{{{{ ds }}}}', log: {tmp_path}/l, insert_only: true}}}}\n"
    )
    main(["status", str(path)])
    assert capsys.readouterr().out.startswith(f"p\n  target     {tmp_path}/l (no table: ")


def test_a_run_without_work_starts_no_spark(tmp_path: Path, capsys: Said) -> None:
    tables = Tables.made_in(tmp_path / "tables")
    tables.sealed(5)
    path = tmp_path / "pipelines.yaml"
    entry = {"source": tables.source.uri, "target": tables.target.uri, "keys": ["id"]}
    absent = {**entry, "source": str(tmp_path / "none"), "target": str(tmp_path / "none2")}
    path.write_text(json.dumps({"pipelines": {"p": entry, "q": absent}}))
    assert main(["run", str(path), "--pipeline", "p"]) == 0
    header, _, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["pipeline", "result", "versions", "watermark", "counts"]
    assert row.split() == ["p", "nothing", "5"]
    assert main(["run", str(path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(row["pipeline"], row["result"]) for row in found] == [("p", "nothing"), ("q", "failed")]
    assert found[1]["error"].startswith("TableNotFound: ")
