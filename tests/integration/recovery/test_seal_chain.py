"""A commit file that was overwritten, in real tables: the next run finds and names it, and can be led out."""

from __future__ import annotations

import re
import shutil
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes, ingest_changes
from delta_cdc.core import errors
from tests.integration.recovery.test_staging import Steps
from tests.support.holding import hooked
from tests.support.world import Source, expected, held, listing, seals

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


def commit_file(table: str, version: int) -> Path:
    return Path(table, "_delta_log", f"{version:020}.json")


def put_in_place(table: str, version: int, other: str) -> None:
    """Put another driver's commit of a version in place, with its files: what a rename does on a disk."""
    shutil.copytree(other, table, dirs_exist_ok=True, ignore=shutil.ignore_patterns("_delta_log"))
    shutil.copyfile(commit_file(other, version), commit_file(table, version))


def refused(table: str, run: Callable[[], Any], version: int) -> errors.TargetHistoryChanged:
    """Return the error of a run that starts no job and writes nothing."""
    before, started = listing(table), list[str]()
    with (
        hooked(started.append),
        pytest.raises(errors.TargetHistoryChanged, match=f"Version {version} ") as found,
    ):
        run()
    assert (started, listing(table)) == ([], before)
    return found.value


def test_every_commit_is_chained(
    target: str, apply: Callable[..., Any], through: Callable[..., None]
) -> None:
    """The first step creates the table; each later one of a run or job is planned on the one before."""
    through(1, 10)
    apply(ending_version=14, versions_per_commit=2)
    first, *others = seals(target)
    assert first["step"]["planned_on"] is None
    assert len(others) == 2
    for seal in others:
        planned = seal["step"]["planned_on"]
        # After a load, a commit of the table's layout may lie between.
        assert seal["at"] - 2 <= planned["version"] < seal["at"]
        assert (
            planned["commit_hash"] == sha256(commit_file(target, planned["version"]).read_bytes()).hexdigest()
        )


@pytest.mark.slow
def test_a_driver_that_wakes_late(
    spark: SparkSession,
    source: Source,
    target: str,
    tmp_path: Path,
    apply: Callable[..., Any],
    through: Callable[..., None],
) -> None:
    """Two drivers have the same seal; the frozen one renames its commit over the other's, one run later."""
    through(1, 12)
    other, seen = str(tmp_path / "other"), str(tmp_path / "seen")
    shutil.copytree(target, other)
    apply(ending_version=16)
    overwritten = seals(target)[-1]["at"]
    apply(ending_version=20)
    flow: dict[str, Any] = {"pipeline": "flow", "keys": ["id"]}
    apply_changes(spark, source.path, other, **flow, ending_version=15)
    assert seals(other)[-1]["number"] == seals(target)[-2]["number"]
    put_in_place(target, overwritten, other)
    # Another process reads it: nothing of it is cached.
    shutil.move(target, seen)

    def run(**given: Any) -> Any:
        return apply_changes(spark, source.path, seen, **flow, **given)

    error = refused(seen, run, overwritten)
    refused(seen, lambda: run(mode="reload"), overwritten)
    intact = re.search(r"RESTORE the table to version (\d+)", error.remedy)
    assert intact is not None
    spark.sql(f"RESTORE TABLE delta.`{seen}` TO VERSION AS OF {intact[1]}").collect()
    run()
    assert held(spark, seen) == expected(source, 1, 30)
    source.update(spark, {1: ("after", 1)})
    assert run().applied
    assert held(spark, seen) == expected(source, 1, 30)


@pytest.mark.slow
def test_overwritten_since_planning(
    spark: SparkSession, source: Source, target: str, tmp_path: Path, apply: Callable[..., Any]
) -> None:
    """The job compares the file before its MERGE, and plans again; the new plan finds the break."""
    apply(ending_version=12)
    apply(ending_version=14)
    other = str(tmp_path / "other")
    shutil.copytree(target, other)
    apply(ending_version=16)
    apply_changes(spark, source.path, other, pipeline="flow", keys=["id"], ending_version=15)
    newest = seals(target)[-1]["at"]
    points: list[str] = []

    def wake(point: str) -> None:
        if point == "planned" and "planned" not in points:
            put_in_place(target, newest, other)
        points.append(point)

    with hooked(wake):
        result = apply(ending_version=20)
    # The first plan was given up before it committed; the second one starts at the other driver's watermark.
    assert points.count("planned") == 2
    assert points.count("before_commit") == 1
    assert (result.versions.starting_version, result.versions.ending_version) == (16, 20)


@pytest.mark.slow
def test_staging_and_ingest(spark: SparkSession, source: Source, target: str, tmp_path: Path) -> None:
    staging = str(tmp_path / "staging")
    steps = Steps(spark, source, target, staging, 1)
    steps.read(10)
    steps.apply()
    steps.read(20, 4)
    first = seals(staging)[-3]["at"]
    Path(staging, "_delta_log", f"{first:020}.crc").unlink(missing_ok=True)
    text = commit_file(staging, first).read_text()
    commit_file(staging, first).write_text(text.replace('"modificationTime":1', '"modificationTime":2'))
    refused(staging, steps.apply, first)
    refused(staging, lambda: steps.read(20), first)
    shutil.rmtree(staging)
    steps.read(20)
    steps.apply()
    assert held(spark, target) == expected(source, 1, 10, 20)

    landing, log = tmp_path / "landing", str(tmp_path / "log")
    landing.mkdir()

    def ingest(name: str) -> Any:
        (landing / f"{name}.json").write_text(f'{{"id": "{name}"}}\n')
        return ingest_changes(
            spark,
            str(landing),
            log,
            pipeline="flow",
            keys=["id"],
            schema="id STRING",
            adapter_options={"sequence_by": "_row"},
        )

    for name in "abc":
        ingest(name)
    overwritten = seals(log)[-2]["at"]
    text = commit_file(log, overwritten).read_text()
    commit_file(log, overwritten).write_text(text.replace('"modificationTime":1', '"modificationTime":2'))
    error = refused(log, lambda: ingest("d"), overwritten)
    intact = re.search(r"RESTORE the table to version (\d+)", error.remedy)
    assert intact is not None
    seen = str(tmp_path / "seen")
    shutil.copytree(log, seen)
    spark.sql(f"RESTORE TABLE delta.`{log}` TO VERSION AS OF {intact[1]}").collect()
    assert ingest("e").applied
    rows = spark.read.format("delta").load(log).select("id").collect()
    assert sorted(row["id"] for row in rows) == list("abcde")
