"""How the result of a driver on a cluster comes back: Spark writes a folder, the worker reads it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from airflow_delta_cdc.runtime.exchange import delete_folder, read_text
from delta_cdc import __main__ as application
from delta_cdc.core import spec as specs
from delta_cdc.core.errors import KeyNotUnique
from delta_cdc.core.spec import EnableSpec, JobResult

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def _read(uri: str) -> JobResult | None:
    text = read_text(uri, is_local=False)
    return JobResult.from_json(text) if text is not None else None


def test_the_worker_reads_what_the_driver_wrote(spark: SparkSession, tmp_path: Path) -> None:
    uri = (tmp_path / "run" / "result").as_uri()
    error = KeyNotUnique("Two rows share 'ключ' = \\\"1\\\".\nSee: :result", remedy="clean the source.")
    first = JobResult(status="failed", error=error.to_dict(), message=str(error))
    second = JobResult(status="committed", counts={"inserted": 3})
    assert _read(uri) is None
    application.write_result(spark, uri, first)
    assert _read(uri) == first
    application.write_result(spark, uri, second)
    assert _read(uri) == second
    delete_folder(uri)
    assert _read(uri) is None
    application.write_result(spark, uri, first)
    assert _read(uri) == first


@pytest.mark.slow
def test_an_application_reports_to_a_uri(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The session is the one of all tests: the application must not stop it.
    monkeypatch.setattr(application._Driver, "stop", lambda driver: None)
    table = tmp_path / "table"
    spark.range(3).write.format("delta").save(str(table))
    work = EnableSpec(run_id="r", tables=(str(table),), properties={"delta.enableChangeDataFeed": "true"})
    file = tmp_path / "spec.json"
    file.write_text(specs.to_json(work))
    uri = (tmp_path / "results" / "result").as_uri()
    sha = specs.sha256(specs.to_json(work))
    assert application.main(["--spec", str(file), "--sha256", sha, "--result", uri]) == 0
    result = _read(uri)
    assert result is not None
    assert [entry["changed"] for entry in result.tables] == [True]

    file.write_text("{}")
    assert application.main(["--spec", str(file), "--sha256", sha, "--result", uri]) == 1
    unread = _read(uri)
    assert unread is not None
    assert unread.error is not None
    assert unread.error["class"] == "SpecUnreadable"
    assert json.loads(unread.to_json())["status"] == "failed"
