"""``delta-cdc changes`` as far as it goes without Spark: usage, plans, ranges in which nothing changed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.cli import main, output
from tests.support.logs import FEED, LogTable
from tests.support.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

    Said = pytest.CaptureFixture[str]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogTable:
    """Version 1 appends, version 2 is an OPTIMIZE, version 3 appends; starting Spark is an error."""

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("delta_cdc.cli.common.get_session", refused)
    # Another test of the same run may have left a session.
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    made = LogTable(tmp_path / "table", configuration=dict(FEED)).create()
    made.append()
    made.optimize()
    made.append()
    return made


def test_a_plan_is_printed_and_times_are_bounds_too(table: LogTable, capsys: Said) -> None:
    """A start rounds up, an end rounds down; commits are a second apart."""
    asked = ["--from", "1", "--query", "min_delta", "--key", "id", "--plan"]
    assert main(["changes", table.uri, *asked]) == 0
    said = capsys.readouterr().out
    assert f"table      {table.uri}\nversions   1-3\n" in said
    assert "read       1-3 by change_files, 200 B: " in said
    bounds = ["--from-time", "2027-01-15T08:00:00.500Z", "--to-time", "2027-01-15T08:00:02.500Z"]
    assert main(["changes", table.uri, *bounds, "--plan"]) == 0
    assert "versions   1-2\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        (["--from", "4"], "0 rows in no version: the newest one is 3"),
        (["--from", "2", "--to", "2"], "0 rows in versions 2-2, none of which changes data"),
    ],
    ids=["a range without versions", "OPTIMIZE"],
)
def test_nothing_starts_no_spark(
    table: LogTable, tmp_path: Path, capsys: Said, bounds: list[str], told: str
) -> None:
    assert main(["changes", table.uri, *bounds]) == 0
    assert capsys.readouterr().out == f"{told}\n"
    header = "id,name,_change_type,_commit_version,_commit_timestamp\n"
    for wanted, text in (("json", ""), ("csv", header)):
        assert main(["changes", table.uri, *bounds, "--format", wanted]) == 0
        said = capsys.readouterr()
        assert (said.out, said.err) == (text, f"{told}\n")
    file = tmp_path / "rows.csv"
    assert main(["changes", table.uri, *bounds, "--format", "csv", "--output", str(file)]) == 0
    assert file.read_text() == header
    wide = ["--format", "csv", "--wide", "--key", "id"]
    assert main(["changes", table.uri, *bounds, *wide]) == 0
    assert capsys.readouterr().out == "old,new,_change_type,_commit_version,_commit_timestamp\n"
    assert main(["changes", table.uri, *bounds, "--format", "csv", "--row-ids"]) == 0
    assert capsys.readouterr().out == header.replace("name,", "name,_row_id,_row_commit_version,")


@pytest.mark.parametrize("asked", [["--format", "parquet"], ["--format", "csv", "--select", "upper(name) n"]])
def test_names_and_types_that_only_spark_knows(table: LogTable, tmp_path: Path, asked: list[str]) -> None:
    file = str(tmp_path / "rows")
    with pytest.raises(AssertionError, match="Spark was started"):
        main(["changes", table.uri, "--from", "4", *asked, "--output", file])


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--query", "upsert"], "keys"),
        (["--query", "upsert", "--key", "id", "--raw"], "raw is given"),
        (["--where", "id > 1"], "where"),
        (["--limit", "0"], "limit is 0"),
        (["--format", "parquet"], "--output"),
        (["--output", "rows.txt"], "--format"),
        (["--format", "csv", "--output", "{folder}/absent/rows.csv"], "in no folder"),
        (["--format", "csv", "--output", "s3://bucket/rows.csv"], "in no folder"),
        (["--format", "csv", "--output", "{folder}/taken"], "exists already"),
        (["--from-time", "yesterday"], "starting_timestamp"),
        (["--query", "net"], "invalid choice"),
        ([], "one of the arguments --from"),
        (["--from", "1", "--from-time", "2026-01-01T00:00:00Z"], "not allowed with"),
    ],
    ids=lambda asked: " ".join(asked)[:40] if isinstance(asked, list) else "",
)
def test_wrong_usage(table: LogTable, tmp_path: Path, capsys: Said, asked: list[str], told: str) -> None:
    """Exit code 2; nothing is read and nothing is written."""
    (tmp_path / "taken").write_text("mine")
    given = [text.format(folder=tmp_path) for text in asked]
    start = [] if "--from" in given or "--from-time" in given or not given else ["--from", "1"]
    try:
        code: Any = main(["changes", table.uri, *start, *given])
    except SystemExit as left:
        code = left.code
    assert code == 2
    said = capsys.readouterr()
    assert told in said.err
    assert said.out == ""
    assert (tmp_path / "taken").read_text() == "mine"


def test_named_errors_are_one_line(table: LogTable, capsys: Said) -> None:
    assert main(["changes", table.uri, "--from", "1", "--to", "9"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("RangeNotContiguous: ending_version 9 does not exist yet")
    assert said.err.count("\n") == 1
    assert "Remedy: " in said.err


def test_a_closed_pipe_is_no_error(table: LogTable) -> None:
    """As with ``delta-cdc … | head -0``."""
    command = [sys.executable, "-m", "delta_cdc.cli", "changes", table.uri, "--from", "1", "--plan"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as shown:
        assert shown.stdout is not None
        assert shown.stderr is not None
        shown.stdout.close()
        said = shown.stderr.read()
    assert (shown.returncode, said) == (0, b"")


def test_counts_tell_what_was_cut() -> None:
    assert output.counts_text({"insert": 3, "delete": 0}, None) == "3 rows (insert 3)"
    assert output.counts_text({"insert": 1, "delete": 0}, 1) == "1 row (insert 1)"
    assert output.counts_text({"insert": 3, "delete": 1}, 2) == "the first 2 of 4 rows (insert 3, delete 1)"
    assert output.counts_text({"insert": 0}, 20) == "0 rows"


def test_columns_are_aligned_as_a_terminal_shows_them() -> None:
    texts = ["広い", "e\u0301", "two\nlines\x1b[31m", "x" * 99, "広" * 99, "", "NULL", " a ", None]
    shown = [
        "広い",
        "e\u0301",
        "two\\nlines\\x1b[31m",
        f"{'x' * 39}…",
        f"{'広' * 19}…",
        "''",
        "'NULL'",
        "' a '",
    ]
    rows = [[str(number), output.cell(text, True)] for number, text in enumerate(texts, 2)]
    lines = [f"{number:2}  {text}" for number, text in enumerate([*shown, "NULL"], 2)]
    assert list(output.aligned(["n", "text"], rows, [True, False])) == [" n  text", f"--  {'-' * 40}", *lines]


# -- delta-cdc plan -------------------------------------------------------------------------------
@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """A source with versions 0-5 (all but 0 change data), one per second; no target."""
    return Tables.made_in(tmp_path)


def planned(tables: Tables, *given: str) -> int:
    return main(["plan", tables.source.uri, tables.target.uri, "--pipeline", "p", *given])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--source-kind", "change_log", "--key", "id"], "sequence_by is missing"),
        (["--mode", "repair"], "nothing selects the keys"),
        (
            ["--mode", "repair", "--repair-keys", "id > 1", "--repair-quarantined"],
            "repair_keys and repair_quarantined are given",
        ),
        (["--repair-keys", "id > 1"], "set mode to 'repair'"),
        (["--discard-history"], "discard_history is given with mode 'incremental'"),
        (["--mode", "redo"], "invalid choice"),
    ],
)
def test_a_plan_that_cannot_be_meant(tables: Tables, capsys: Said, given: list[str], told: str) -> None:
    try:
        code: Any = planned(tables, *given)
    except SystemExit as left:
        code = left.code
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert told in said.err


def test_what_the_seal_says_is_not_said_again(tables: Tables, capsys: Said) -> None:
    tables.sealed(2)
    assert planned(tables) == 0
    assert planned(tables, "--key", "id", "--sequence-by", "name") == 2
    assert "keys, sequence_by given, and the pipeline has a watermark" in capsys.readouterr().err


def test_a_plan_of_another_mode(tables: Tables, capsys: Said) -> None:
    tables.sealed(2)
    bounds = ["--starting-version", "1", "--ending-version", "2"]
    for mode, more in (
        ("reload", []),
        ("reset", []),
        ("repair", bounds),
        ("repair", ["--repair-keys", "id > 1"]),
    ):
        assert planned(tables, "--mode", mode, *more) == 0
        said = capsys.readouterr().out
        assert f"{mode:11}" in said
        assert "nothing: no process is started" not in said


@pytest.mark.parametrize("command", ["plan", "run"])
def test_what_fits_one_pipeline_only(tables: Tables, capsys: Said, command: str) -> None:
    pairs = [f"{name}={tables.target.uri}" for name in ("p", "q")]
    assert main([command, *pairs, "--from", "1"]) == 2
    assert (
        "--starting-version given for 2 pipelines, and each has its own versions" in capsys.readouterr().err
    )
    assert main([command, *pairs, "--mode", "reset"]) == 2
    assert "--mode reset given for 2 pipelines, whose rows it would delete" in capsys.readouterr().err


def test_a_first_load_without_keys(tables: Tables, capsys: Said) -> None:
    """The plan says that the run would need a key."""
    uris = [tables.source.uri, f"{tables.target.uri}_new", "--pipeline", "p"]
    assert main(["plan", *uris]) == 0
    assert "p: the plan checks no keys, because --key is missing.\n" in capsys.readouterr().err
    assert main(["plan", *uris, "--key", "id"]) == 0
    assert "--key" not in capsys.readouterr().err


def test_a_log_before_its_first_load(tables: Tables, capsys: Said) -> None:
    asked = ["--source-kind", "change_log", "--sequence-by", "name"]
    assert planned(tables, *asked, "--key", "id") == 0
    assert "load       " in capsys.readouterr().out
    assert planned(tables, *asked, "--key", "id", "--key", "parcel") == 1
    assert "ColumnNotFound: The column parcel of keys does not exist" in capsys.readouterr().err
