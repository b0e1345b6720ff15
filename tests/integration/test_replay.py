"""``delta-cdc replay``: what was in quarantine goes where it belongs, once it can be read."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes, ingest_changes
from delta_cdc.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    Said = pytest.CaptureFixture[str]


def rows(spark: SparkSession, table: Path, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(
        tuple(row) for row in spark.read.format("delta").load(str(table)).select(*columns).collect()
    )


@pytest.mark.slow
def test_records_of_a_log(spark: SparkSession, tmp_path: Path, capsys: Said) -> None:
    """An operation nobody had told of, and half a record."""
    source, log = tmp_path / "landing", tmp_path / "log"
    source.mkdir()
    lines = ['{"id": 1, "op": "I", "n": 1}', '{"id": 2, "op": "NEW", "n": 2}', '{"id": 3, "op":']
    (source / "a.json").write_text("\n".join(lines) + "\n")
    adapter = {"operation_column": "op", "sequence_by": "n"}
    ingest_changes(
        spark,
        str(source),
        str(log),
        pipeline="p",
        keys=["id"],
        schema="id INT, n INT",
        adapter_options=adapter,
    )
    assert rows(spark, log, "id") == [(1,)]
    # With what the seal says nothing has changed.
    replay = ["replay", f"p={log}"]
    assert main(replay) == 1
    assert rows(spark, log, "id") == [(1,)]
    told = json.dumps({**adapter, "operations": {"NEW": "upsert"}})
    capsys.readouterr()
    assert main([*replay, "--adapter-options", told]) == 1
    said = capsys.readouterr()
    assert re.search(r"\b1 event\b", said.out)
    assert "1 row still in quarantine" in said.err
    assert rows(spark, log, "id", "n") == [(1, 1), (2, 2)]
    assert rows(spark, tmp_path / "log__quarantine", "raw") == [(lines[2],)]
    # Somebody has looked at it, and it is nothing.
    spark.sql(f"DELETE FROM delta.`{tmp_path / 'log__quarantine'}`")
    capsys.readouterr()
    assert main(replay) == 0
    assert "has no records of pipeline p" in capsys.readouterr().out


@pytest.mark.slow
def test_events_of_a_target(spark: SparkSession, tmp_path: Path, capsys: Said) -> None:
    """Two events of one key and sequence, and nobody had said which of them counts."""
    log, target = tmp_path / "events", tmp_path / "target"
    events = [(1, "a", 1, 1), (1, "b", 1, 2), (2, "c", 1, 1)]
    spark.createDataFrame(events, "id INT, v STRING, n INT, arrived INT").write.format("delta").save(str(log))
    apply_changes(
        spark,
        str(log),
        str(target),
        pipeline="p",
        source_kind="change_log",
        keys=["id"],
        sequence_by="n",
        except_column_list=["n", "arrived"],
        policies={"on_conflict": "quarantine"},
    )
    assert rows(spark, target, "id", "v") == [(2, "c")]
    assert main(["replay", f"p={target}"]) == 1
    assert rows(spark, target, "id", "v") == [(2, "c")]
    capsys.readouterr()
    assert main(["replay", f"p={target}", "--last-by", "arrived"]) == 0
    assert rows(spark, target, "id", "v") == [(1, "b"), (2, "c")]


@pytest.mark.slow
def test_a_pipeline_of_a_file(spark: SparkSession, tmp_path: Path, capsys: Said) -> None:
    """What has been mended in the file is what the records are read by; log and target are both looked at."""
    source, log, target = (tmp_path / name for name in ("landing", "log", "target"))
    source.mkdir()
    (source / "a.json").write_text('{"id": 1, "op": "I", "n": 1}\n{"id": 2, "op": "NEW", "n": 2}\n')
    file = tmp_path / "flows.yaml"
    entry = {
        "source": str(source),
        "log": str(log),
        "target": str(target),
        "keys": ["id"],
        "schema": "id INT, n INT",
    }
    adapter: dict[str, Any] = {"operation_column": "op", "sequence_by": "n"}
    file.write_text(json.dumps({"pipelines": {"p": {**entry, "adapter_options": adapter}}}))
    assert main(["run", str(file)]) == 0
    assert rows(spark, log, "id") == [(1,)]
    assert main(["replay", str(file), "p"]) == 1
    adapter["operations"] = {"NEW": "upsert"}
    file.write_text(json.dumps({"pipelines": {"p": {**entry, "adapter_options": adapter}}}))
    capsys.readouterr()
    assert main(["replay", str(file), "p"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"\b1 event\b", said)
    assert f"The quarantine {target}__quarantine has no records of pipeline p." in said
    assert rows(spark, log, "id", "n") == [(1, 1), (2, 2)]
