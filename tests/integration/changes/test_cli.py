"""``delta-cdc changes`` with real rows: a table, JSON, CSV and Parquet, and what Spark raises on the way."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from delta_cdc import read_changes
from delta_cdc.cli import main
from delta_cdc.core.sql import string
from delta_cdc.core.sql import table as sql_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    Said = pytest.CaptureFixture[str]

ODD = 'a, "quoted"\nline'


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Versions 1-3: two rows with every awkward value and one of NULLs; one updated; one deleted."""
    path = str(tmp_path_factory.mktemp("cli") / "odd % names")
    name = sql_name(path)
    spark.sql(
        f"CREATE TABLE {name} (id INT, `a text` STRING, n DECIMAL(20, 2), at TIMESTAMP, raw BINARY, "
        "nested STRUCT<x: INT, y: ARRAY<STRING>>, m MAP<STRING, INT>) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name')"
    )
    spark.sql(
        f"INSERT INTO {name} SELECT 1, {string(ODD)}, 12345678901234567.89, "
        "TIMESTAMP'2026-03-01 09:30:00.123456Z', X'00FF', "
        "named_struct('x', CAST(NULL AS INT), 'y', array('b', NULL)), map('k', 1) "
        "UNION ALL SELECT 2, '', 0, NULL, NULL, NULL, NULL "
        "UNION ALL SELECT 3, NULL, NULL, NULL, NULL, NULL, NULL"
    )
    spark.sql(f"UPDATE {name} SET n = n + 1 WHERE id = 2")
    spark.sql(f"DELETE FROM {name} WHERE id = 3")
    return path


def _run(*arguments: str, table: str) -> int:
    return main(["changes", table, "--from", "1", *arguments])


def test_a_table_for_people(spark: SparkSession, table: str, capsys: Said) -> None:
    """Sorted by version and key, pre before post; values are clipped, NULL and the empty text told apart."""
    assert spark is not None
    assert _run("--to", "3", "--key", "id", table=table) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    cells = [[text.strip() for text in line.split("  ") if text.strip()] for line in lines[2:8]]
    assert [(row[0], row[1], row[2], row[3]) for row in cells] == [
        ("1", "insert", "1", 'a, "quoted"\\nline'),
        ("1", "insert", "2", "''"),
        ("1", "insert", "3", "NULL"),
        ("2", "update_preimage", "2", "''"),
        ("2", "update_postimage", "2", "''"),
        ("3", "delete", "3", "NULL"),
    ]
    assert cells[0][4:9] == [
        "12345678901234567.89",
        "2026-03-01 09:30:00.123456Z",
        "0x00FF",
        '{"x":null,"y":["b",null]}',
        '{"k":1}',
    ]
    assert [row[4] for row in cells[3:5]] == ["0.00", "1.00"]
    counts = "insert 3, update_preimage 1, update_postimage 1, delete 1"
    assert lines[-1] == f"6 rows ({counts}) in versions 1-3, read by change_files"
    assert said.err == ""


def test_a_table_that_is_cut_says_of_how_many(spark: SparkSession, table: str, capsys: Said) -> None:
    assert spark is not None
    assert _run("--limit", "2", table=table) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 2 + 2
    assert lines[-1].startswith("the first 2 of 6 rows (insert 3, ")


@pytest.mark.parametrize("form", ["json", "csv", "table"])
def test_a_filter_that_no_row_passes(spark: SparkSession, table: str, form: str, capsys: Said) -> None:
    """Spark then observes nothing."""
    assert spark is not None
    assert _run("--format", form, "--where", "false", "--key", "id", table=table) == 0
    assert "0 rows" in "".join(capsys.readouterr())


def test_forms_for_programs(spark: SparkSession, table: str, tmp_path: Path, capsys: Said) -> None:
    """All rows, in the order of the table, each value whole. Twice the count would be a source read twice."""
    expected = read_changes(spark, table, starting_version=1).schema.names
    assert _run("--format", "json", table=table) == 0
    said = capsys.readouterr()
    rows = [json.loads(line, parse_float=str) for line in said.out.splitlines()]
    assert list(rows[0]) == expected
    assert [(row["_commit_version"], row["_change_type"], row["id"]) for row in rows] == [
        (1, "insert", 1),
        (1, "insert", 2),
        (1, "insert", 3),
        (2, "update_preimage", 2),
        (2, "update_postimage", 2),
        (3, "delete", 3),
    ]
    assert rows[0] | {"_commit_timestamp": ""} == {
        "id": 1,
        "a text": ODD,
        "n": "12345678901234567.89",
        "at": "2026-03-01T09:30:00.123456Z",
        "raw": base64.b64encode(b"\x00\xff").decode(),
        "nested": {"x": None, "y": ["b", None]},
        "m": {"k": 1},
        "_change_type": "insert",
        "_commit_version": 1,
        "_commit_timestamp": "",
    }
    assert rows[1]["a text"] == ""
    assert rows[2]["a text"] is None
    assert said.err.startswith("6 rows (insert 3, ")
    assert _run("--format", "csv", "--limit", "2", table=table) == 0
    said = capsys.readouterr()
    fields = list(csv.reader(io.StringIO(said.out, newline="")))
    assert fields[0] == expected
    assert fields[1][:7] == [
        "1",
        ODD,
        "12345678901234567.89",
        "2026-03-01T09:30:00.123456Z",
        base64.b64encode(b"\x00\xff").decode(),
        '{"x":null,"y":["b",null]}',
        '{"k":1}',
    ]
    assert said.out.splitlines()[-1].startswith('2,"",0.00,,,,,insert,1,')
    assert len(fields) == 3
    assert said.err.startswith("the first 2 of 6 rows")
    file = tmp_path / "rows.parquet"
    assert _run("--format", "parquet", "--output", str(file), table=table) == 0
    found = pq.read_table(file)
    assert found.column_names == expected
    assert found.column("id").to_pylist() == [1, 2, 3, 2, 2, 3]
    assert found.column("nested").to_pylist()[0] == {"x": None, "y": ["b", None]}
    assert capsys.readouterr().out == ""
    assert sorted(tmp_path.iterdir()) == [file]


def test_what_the_rows_show_is_named(spark: SparkSession, table: str, tmp_path: Path, capsys: Said) -> None:
    """On one line, with the exit code 1; no half a file stays."""
    assert spark is not None
    file = tmp_path / "rows.csv"
    asked = ["--query", "upsert", "--key", "m['k']", "--select", "*", "--select", "1 AS one"]
    cases = [
        (["--query", "upsert", "--key", "a text", "--format", "csv", "--output", str(file)], "NullKey: "),
        (["--query", "upsert", "--key", "one", "--select", "1 AS one"], "KeyNotUnique: "),
        (["--select", "nothing + 1 AS n"], "InvalidExpression: "),
        (asked, "ColumnNotFound: "),
        (["--key", "absent"], "ColumnNotFound: keys: column 'absent' does not exist in "),
    ]
    for given, told in cases:
        assert _run(*given, table=table) == 1, given
        said = capsys.readouterr()
        assert said.err.startswith(told), given
        assert "Remedy: " in said.err
        assert (said.out, said.err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_what_has_no_name_is_said_shortly(spark: SparkSession, table: str, capsys: Said) -> None:
    assert spark is not None
    assert _run("--where", "raise_error('down') IS NULL", "--key", "id", table=table) == 1
    said = capsys.readouterr()
    assert said.err.startswith("JobRefused: ")
    assert "down" in said.err
    assert "a retry would fail in the same way" in said.err
    assert "\n\n" not in said.err


def test_what_was_planned_is_what_is_read(
    spark: SparkSession, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that arrives while Spark starts is not in the range that was told."""
    path = str(tmp_path / "growing")
    spark.sql(f"CREATE TABLE {sql_name(path)} USING delta AS SELECT 1 AS id")

    @contextmanager
    def late(**_: object) -> Iterator[SparkSession]:
        spark.sql(f"INSERT INTO {sql_name(path)} VALUES (2)")
        yield spark

    monkeypatch.setattr("delta_cdc.cli.changes.session", late)
    monkeypatch.chdir(tmp_path)
    assert main(["changes", "growing", "--from", "0"]) == 0
    assert capsys.readouterr().out.endswith("\n\n1 row (insert 1) in versions 0-0, read by added_files\n")


@pytest.mark.slow
def test_as_a_program_of_its_own(table: str, tmp_path: Path) -> None:
    """With a JVM of its own, whose noise must not get among the rows, and without Airflow in reach."""
    barred = "raise ImportError('Airflow is not there')\n"
    for name in ("airflow", "airflow_delta_cdc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(barred)
    path = [str(tmp_path), *sys.path]
    command = [sys.executable, "-m", "delta_cdc.cli", "changes", table, "--from", "1", "--format", "json"]
    asked = ["--query", "min_delta", "--key", "{}", "--where", "id < 3"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    for key, code in (("id", 0), ("raw", 1)):
        given = [text.format(key) for text in asked]
        ended = subprocess.run(
            [*command, *given], env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == code, ended.stderr
        assert "ERROR" not in ended.stderr
        assert "Traceback" not in ended.stderr
        if code:
            assert ended.stdout == ""
            assert ended.stderr.splitlines()[-1].startswith("NullKey: ")
        else:
            assert [json.loads(line)["id"] for line in ended.stdout.splitlines()] == [1, 2]
