"""``delta-cdc run``: the pipelines of a file, once, in this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from delta_cdc.cli import main
from delta_cdc.core.sql import quote

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.slow
def test_a_file_is_run(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table, and files by way of their log; what fails stops no other; the second run has nothing to do."""
    path = {name: str(tmp_path / name) for name in ("bronze", "silver", "files", "log", "current", "none")}
    spark.range(3).selectExpr("id", "id * 10 AS n").write.format("delta").save(path["bronze"])
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "1.json").write_text('{"op": "I", "id": 1, "n": 5, "at": 1}\n')
    file = tmp_path / "pipelines.yaml"
    file.write_text(
        f"""
defaults: {{group: small, keys: [id]}}
groups:
  small: {{max_parallel_tables: 2}}
pipelines:
  table: {{source: {path["bronze"]}, target: {path["silver"]}, stored_as_scd_type: 2}}
  files:
    source: {path["files"]}
    log: {path["log"]}
    target: {path["current"]}
    adapter_options: {{operation_column: op, sequence_by: at}}
  absent: {{source: {path["none"]}, target: {path["none"]}_too}}
"""
    )
    assert main(["run", str(file), "--json"]) == 1
    found = {row["pipeline"]: row for row in json.loads(capsys.readouterr().out)}
    assert not found["table"]["error"], found
    assert {name: row["result"] for name, row in found.items()} == {
        "absent": "failed",
        "files": "applied",
        "table": "applied",
    }
    assert found["absent"]["error"].startswith("TableNotFound")
    assert (found["table"]["watermark"], found["table"]["counts"]["inserted"]) == (0, 3)
    rows = {name: spark.sql(f"SELECT id, n FROM delta.{quote(path[name])}") for name in ("silver", "current")}
    assert sorted(tuple(row) for row in rows["silver"].collect()) == [(0, 0), (1, 10), (2, 20)]
    assert [tuple(row) for row in rows["current"].collect()] == [(1, 5)]
    assert main(["run", str(file), "--pipeline", "table", "--pipeline", "files"]) == 0
    output = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in output[2:]] == [["files", "nothing"], ["table", "nothing"]]


@pytest.mark.slow
def test_two_tables_are_run(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before there is a seal the command line says the keys; from then on the seal says everything."""
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    spark.range(3).selectExpr("id", "id * 10 AS n").write.format("delta").option(
        "delta.enableChangeDataFeed", "true"
    ).save(source)
    both = [source, target, "--pipeline", "p"]
    assert main(["run", *both, "--key", "id"]) == 0
    for form, key in ((both, 7), ([f"p={target}"], 8)):
        spark.sql(f"INSERT INTO delta.{quote(source)} VALUES ({key}, 0)")
        capsys.readouterr()
        assert main(["run", *form]) == 0
        output = capsys.readouterr()
        assert output.out.splitlines()[2].split()[:2] == ["p", "applied"]
        # The terminal shows what happens while it happens.
        assert "p: Planned: " in output.err
        assert ", watermark " in output.err
    assert spark.sql(f"SELECT count(*) FROM delta.{quote(target)}").collect()[0][0] == 5
    spark.sql(f"DELETE FROM delta.{quote(target)} WHERE id = 1")
    assert main(["run", *both, "--mode", "reload"]) == 0
    assert spark.sql(f"SELECT count(*) FROM delta.{quote(target)}").collect()[0][0] == 5
    assert main(["run", *both, "--key", "id"]) == 2
    assert "keys given, and the pipeline has a watermark" in capsys.readouterr().err
