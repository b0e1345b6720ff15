"""How many Spark jobs a step may start beside its write: each costs time, however few rows there are.

The table in docs/contributing/performance-budget.md says what each of them is for.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes, ingest_changes
from delta_cdc.spark.sealed import commit, steps
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

KEYED: dict[str, Any] = {"pipeline": "budget", "keys": ["id"]}
LOG: dict[str, Any] = {**KEYED, "source_kind": "change_log", "sequence_by": "at", "apply_as_deletes": "gone"}


def started(spark: SparkSession) -> int:
    """Return the number of jobs that the application has started so far."""
    jobs: int = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()
    return jobs


@pytest.fixture
def beside_writes(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], int]:
    """Return a function that counts the jobs of a call, without those of its sealed statements."""
    in_writes = 0
    sealed = commit.sealed

    @contextmanager
    def counted(*arguments: Any) -> Iterator[None]:
        nonlocal in_writes
        before = started(spark)
        try:
            with sealed(*arguments):
                yield
        finally:
            in_writes += started(spark) - before

    def count(call: Callable[[], Any]) -> int:
        before, writes_before = started(spark), in_writes
        call()
        return started(spark) - before - (in_writes - writes_before)

    monkeypatch.setattr(commit, "sealed", counted)
    # The commits need the state of their logs. If nothing loads it beside the batch, they run its jobs;
    # their number depends on what Delta still has in its cache.
    monkeypatch.setattr(steps, "logs_loaded", lambda *_: nullcontext())
    return count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "jobs"),
    [
        (KEYED, 3),
        ({**KEYED, "stored_as_scd_type": 2}, 3),
        ({**KEYED, "rules": {"named": "name > ''"}}, 3),
    ],
    ids=["type 1", "type 2", "rules"],
)
def test_a_feed(
    spark: SparkSession, tmp_path: Path, beside_writes: Any, arguments: dict[str, Any], jobs: int
) -> None:
    """Materialise and count; the source's commit file; the target's."""
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    spark.range(2000).selectExpr("id", "'a' AS name").write.format("delta").option(
        "delta.enableChangeDataFeed", "true"
    ).save(source)
    apply_changes(spark, source, target, **arguments)
    found = [jobs + 1]
    # Other work of the session, such as a checkpoint of Delta, may start a job at the same time.
    while min(found) > jobs and len(found) <= 3:
        spark.sql(f"UPDATE delta.`{source}` SET name = name || 'b' WHERE id % 400 = 0")
        found.append(beside_writes(lambda: apply_changes(spark, source, target, **arguments)))
    assert min(found) == jobs


@pytest.mark.parametrize(
    ("arguments", "jobs"),
    slow_but([(LOG, 6), ({**LOG, "stored_as_scd_type": 2}, 6)], ({**LOG, "stored_as_scd_type": 2}, 6)),
    ids=["type 1", "type 2"],
)
def test_a_log(
    spark: SparkSession, tmp_path: Path, beside_writes: Any, arguments: dict[str, Any], jobs: int
) -> None:
    source, target = str(tmp_path / "log"), str(tmp_path / "target")
    rows = "id", "'a' AS name", "1 AS at", "false AS gone"
    spark.range(2000).selectExpr(*rows).write.format("delta").save(source)
    apply_changes(spark, source, target, **arguments)
    found = [jobs + 1]
    # Other work of the session, such as a checkpoint of Delta, may start a job at the same time.
    while min(found) > jobs and len(found) <= 3:
        at = 1 + len(found)
        events = spark.range(0, 2000, 400).selectExpr("id", "'b' AS name", f"{at} AS at", "false AS gone")
        events.write.format("delta").mode("append").save(source)
        found.append(beside_writes(lambda: apply_changes(spark, source, target, **arguments)))
    assert min(found) == jobs


def ingested(spark: SparkSession, landing: str, log: str) -> Any:
    options = {"sequence_by": "at"}
    return ingest_changes(spark, landing, log, keys=["id"], adapter_options=options, pipeline="in")


@pytest.mark.slow
def test_an_ingest(spark: SparkSession, tmp_path: Path, beside_writes: Any) -> None:
    """Read and count the records; the log's commit file."""
    landing, log = tmp_path / "landing", str(tmp_path / "log")
    landing.mkdir()
    found = []
    for number in range(3):
        lines = [json.dumps({"id": key, "at": number, "name": "n"}) for key in range(50)]
        (landing / f"{number}.json").write_text("\n".join(lines))
        found.append(beside_writes(lambda: ingested(spark, str(landing), log)))
    assert min(found[1:]) == 2
