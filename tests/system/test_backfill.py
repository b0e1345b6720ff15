"""A backfill of 300 versions in milestones of 100, in one application: killed, retried, named again."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from delta_cdc import job
from delta_cdc.core.errors import VersionsExpired
from delta_cdc.core.versions import VersionRange
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from delta_cdc.run.saved_plans import forget_saved_plans
from tests.support.holding import killing
from tests.support.world import Source, expected, held, listing, ranges, seals
from tests.system.driver import FilePlans, request

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from delta_cdc.core.spec import ApplySpec, JobResult
    from delta_cdc.run.outcomes import Outcome

_ALL = {"mode": "backfill", "starting_version": 1, "ending_version": 300, "versions_per_commit": 100}
_PARTS = [(1, 100), (101, 200), (201, 300)]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Versions 0-300, and one more that no backfill here is about."""
    made = Source(str(tmp_path_factory.mktemp("backfill") / "source")).create(None)
    made.grow(None, random.Random(300), 301)
    assert made.newest == 301
    return made


@pytest.fixture
def backfill(spark: SparkSession, source: Source) -> Callable[..., Outcome]:
    """Run a request in this process's warm session."""

    def backfilled(
        target: Path,
        scd: int,
        *,
        saved_plans: FilePlans | None = None,
        execute: Callable[[ApplySpec], JobResult] | None = None,
        say: Callable[[str], None] = print,
        **asked: Any,
    ) -> Outcome:
        result = run(
            request(source.path, str(target), scd, **asked),
            Services(execute=execute or partial(job.run, spark), saved_plans=saved_plans, say=say),
        )
        if saved_plans is not None:
            forget_saved_plans(result, saved_plans)
        return result

    return backfilled


def never(_: ApplySpec) -> JobResult:
    raise AssertionError("there is nothing to run")


def up_to(source: Source, version: int) -> Source:
    return Source(source.path, source.states[: version + 1])


@pytest.mark.slow
@pytest.mark.parametrize("scd", [1, 2])
def test_killed_in_the_second_milestone(
    spark: SparkSession, source: Source, backfill: Callable[..., Outcome], tmp_path: Path, scd: int
) -> None:
    target, saved_plans = tmp_path / "target", tmp_path / "pins.json"
    backfill(target, scd, ending_version=0)
    arguments = [source.path, str(target), str(scd), str(saved_plans), json.dumps(_ALL)]
    dead = subprocess.run(
        [sys.executable, "-m", "tests.system.driver", *arguments],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            **killing("before_commit", times=2),
        },
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    assert dead.returncode == -9, dead.stderr[-4000:]
    assert ranges(str(target))[1:] == _PARTS[:1]
    told = [line.partition(": ")[2] for line in dead.stderr.splitlines()]
    assert [line for line in told if line.startswith("Commit ")] == [
        f"Commit 1 of 3: the apply of {Path(source.path).name}: versions 1-100",
        f"Commit 1 of 3 is version {seals(str(target))[-1]['at']}",
        f"Commit 2 of 3: the apply of {Path(source.path).name}: versions 101-200",
    ]

    # The source has gone on in the meantime; the retry does what the run was about.
    result = backfill(target, scd, saved_plans=FilePlans(saved_plans), **_ALL)

    assert result.applied
    assert result.versions == VersionRange(1, 300)
    assert ranges(str(target))[1:] == _PARTS
    assert held(spark, str(target), scd) == expected(up_to(source, 300), scd, 0)
    if scd == 2:
        # The rows are right by the model; an unbroken run has the same, commit by commit.
        unbroken = tmp_path / "unbroken"
        backfill(unbroken, scd, ending_version=0)
        backfill(unbroken, scd, **_ALL)
        assert ranges(str(unbroken)) == ranges(str(target))
        assert held(spark, str(unbroken), scd) == held(spark, str(target), scd)

    # Named again, it is a no-op that says so.
    said: list[str] = []
    before = listing(str(target))
    for bounds in (_ALL, {"mode": "backfill", "starting_version": 101, "ending_version": 200}):
        again = backfill(target, scd, execute=never, say=said.append, **bounds)
        assert not again.applied
    assert listing(str(target)) == before
    assert [line for line in said if "already applied and are left out (the watermark is 300)" in line]


@pytest.mark.slow
def test_a_new_target_from_an_old_version_and_the_repair_of_a_range(
    spark: SparkSession, source: Source, backfill: Callable[..., Outcome], tmp_path: Path
) -> None:
    target = str(tmp_path / "target")
    result = backfill(tmp_path / "target", 1, **{**_ALL, "starting_version": 150})
    assert result.applied
    assert ranges(target) == [(149, 149), (150, 249), (250, 300)]
    right = expected(up_to(source, 300), 1, 149)
    assert held(spark, target) == right

    changed = [
        key for key in source.states[300] if source.states[160].get(key) != source.states[165].get(key)
    ]
    spark.sql(f"UPDATE delta.`{target}` SET name = 'damaged' WHERE id = {changed[0]}")
    assert held(spark, target) != right
    repaired = backfill(tmp_path / "target", 1, mode="repair", starting_version=161, ending_version=165)
    assert repaired.watermark is not None
    assert (repaired.watermark.version, repaired.counts["updated"]) == (300, 1)
    assert held(spark, target) == right


@pytest.mark.slow
def test_expired_versions_are_said_before_anything_runs(
    backfill: Callable[..., Outcome], source: Source, tmp_path: Path
) -> None:
    shorter = source.copy(tmp_path / "shorter")
    DeltaTable(shorter.path).create_checkpoint()
    for version in range(101):
        (tmp_path / "shorter" / "_delta_log" / f"{version:020}.json").unlink()
    asked = request(shorter.path, str(tmp_path / "target"), 1, **{**_ALL, "starting_version": 50})
    with pytest.raises(VersionsExpired, match=r"[Vv]ersion \d+ .*Remedy: "):
        run(asked, Services(execute=never))
    assert not (tmp_path / "target").exists()
