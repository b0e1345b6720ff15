"""Applies while the store has a bad day: nothing is lost, nothing is twice, and no outcome is assumed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes
from delta_cdc.cli import main
from delta_cdc.core.errors import DeltaCdcError
from tests.support.faulty_proxy import KINDS, Once, Weather, no_fault
from tests.support.s3_gateway import SECRET_KEY
from tests.support.world import eventful, expected, held, ranges, seals

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome
    from tests.support.faulty_proxy import Request
    from tests.support.lake import Lake
    from tests.support.world import Source

#: How often a run is repeated, as a scheduler repeats a task.
_TRIES = 30


@pytest.fixture
def source(lake: Lake, tmp_path: Path) -> Source:
    """Return the source with the known past; the same is in the bucket."""
    made = eventful(tmp_path / "source")
    lake.upload(made.path)
    return made


def applied(spark: SparkSession, lake: Lake, scd: int, target: str = "target", **more: Any) -> Outcome:
    return apply_changes(
        spark,
        lake.uri("source"),
        lake.uri(target),
        pipeline="flow",
        keys=["id"],
        stored_as_scd_type=scd,
        single_driver=True,
        storage_options=lake.options,
        **more,
    )


def in_the_end(spark: SparkSession, lake: Lake, scd: int, target: str = "target", **more: Any) -> Outcome:
    """Apply, again and again until it succeeds: each failure has to be a named error."""
    for _ in range(_TRIES):
        try:
            return applied(spark, lake, scd, target, **more)
        except DeltaCdcError as error:
            said = error
    raise said


def is_whole(spark: SparkSession, lake: Lake, source: Source, scd: int, target: str = "target") -> None:
    """The target holds what it must, and every version of the source was applied once."""
    lake.proxy.faults = no_fault
    assert held(spark, f"s3a://{lake.name}/{target}", scd) == expected(source, scd, loaded=2)
    steps = ranges(lake.path(target))
    assert steps[0] == (2, 2)
    assert [start for start, _ in steps[1:]] == [end + 1 for _, end in steps[:-1]]
    assert steps[-1][1] == source.newest
    numbers = [seal["number"] for seal in seals(lake.path(target))]
    assert numbers == list(range(numbers[0], numbers[0] + len(steps)))


def to_target(request: Request) -> bool:
    return request.commits and "/target/" in request.key


@pytest.mark.slow
def test_an_answer_that_was_lost_is_asked_for(on_lake: SparkSession, lake: Lake, source: Source) -> None:
    """The commit was made, and Spark is never told: neither of a load, nor of an apply, over and over."""
    for end in (2, source.newest):
        lake.proxy.faults = Once("lost_answer", to_target, times=1_000)
        assert applied(on_lake, lake, 2, ending_version=end).applied
        assert lake.proxy.struck, "it was a commit whose answer was lost"
        lake.proxy.struck.clear()
        lake.proxy.faults = no_fault
        assert ranges(lake.path("target"))[-1][1] == end, "and it was made"
        assert not applied(on_lake, lake, 2, ending_version=end).applied
    is_whole(on_lake, lake, source, 2)


@pytest.mark.slow
def test_a_stormy_apply(
    on_lake: SparkSession,
    lake: Lake,
    source: Source,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And afterwards the command line tells where it stands, with the identity of the machine."""
    lake.proxy.faults = Weather(7, 0.08)
    in_the_end(on_lake, lake, 1, ending_version=2)
    in_the_end(on_lake, lake, 1)
    assert lake.proxy.kinds_struck() >= set(KINDS)
    is_whole(on_lake, lake, source, 1)
    for name, value in lake.options.items():
        monkeypatch.setenv(name, value)
    capsys.readouterr()
    assert main(["status", f"flow={lake.uri('target')}"]) == 0
    told = capsys.readouterr()
    assert "30" in told.out
    assert SECRET_KEY not in told.out + told.err


@pytest.mark.slow
@pytest.mark.parametrize("scd", [1, 2])
def test_stormy_weeks(on_lake: SparkSession, lake: Lake, source: Source, scd: int) -> None:
    """Two dozen applies, each in other weather; some of them fail, and are repeated."""
    rng = random.Random(scd)
    ends = [2, *sorted(rng.sample(range(3, source.newest), 10)), source.newest]
    for number, end in enumerate(ends):
        lake.proxy.faults = Weather(rng.randrange(10_000), rng.choice((0.03, 0.1, 0.25)))
        told = in_the_end(on_lake, lake, scd, ending_version=end, run_id=f"run {number}")
        assert told.watermark is not None
        assert told.watermark.version == end
    is_whole(on_lake, lake, source, scd)
