"""Two runs at once, placed by hooks: only the seal decides, and it decides rightly."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import VersionRange, errors
from delta_cdc.apply import commit
from tests.support.holding import Gate, Running, hooked
from tests.support.world import expected, held, ranges, seals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from delta_cdc.flow import ApplyResult
    from tests.support.world import Source

    Apply = Callable[..., ApplyResult]

POINTS = ("planned", "before_commit")


def overlapping(apply: Apply, scd: int, point: str) -> tuple[Any, Any]:
    """Run (10, 20] from plan to commit while (10, 30], planned before it, is held at ``point``."""
    gate = Gate(point, thread="longer")
    with hooked(gate):
        longer = Running(partial(apply, scd, ending_version=30), "longer")
        gate.wait()
        shorter = Running(partial(apply, scd, ending_version=20), "shorter")
        shorter.join()
        gate.open()
        longer.join()
    return shorter, longer


@pytest.mark.parametrize("point", POINTS)
def test_a_run_planned_on_an_old_watermark_plans_again(
    spark: SparkSession,
    source: Source,
    target: str,
    apply: Apply,
    scd: int,
    through: Callable[..., None],
    point: str,
) -> None:
    through(scd, 10)
    shorter, longer = overlapping(apply, scd, point)
    assert shorter.result().versions == VersionRange(11, 20)
    result = longer.result()
    assert result.applied
    assert result.watermark.version == 30
    # The loser's own range would have been 11-30; what it did is what was left.
    assert ranges(target)[1:] == [(11, 20), (21, 30)]
    assert held(spark, target, scd) == expected(source, scd, 10)


def test_without_the_seal_the_same_schedule_gives_wrong_rows(
    spark: SparkSession,
    source: Source,
    target: str,
    apply: Apply,
    scd: int,
    through: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    through(scd, 10)

    @contextmanager
    def unsealed(session: object, seal: object) -> Iterator[None]:
        yield

    monkeypatch.setattr(commit, "sealed", unsealed)
    shorter, longer = overlapping(apply, scd, "planned")
    for run in (shorter, longer):
        with pytest.raises(errors.OutcomeUnknown):
            run.result()
    wrong, right = held(spark, target, scd), expected(source, scd, 10)
    assert wrong != right
    # Keys 1, 2 and 3 have no net change in 11-30, so the later run left them as they were at 20.
    now = {row[0]: row[1] for row in wrong if scd == 1 or row[-1] is None}
    assert now[1] == "b" or scd == 2


@pytest.mark.parametrize("runs", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_same_apply_several_times_at_once(
    spark: SparkSession,
    source: Source,
    target: str,
    apply: Apply,
    scd: int,
    through: Callable[..., None],
    runs: int,
) -> None:
    through(scd, 10)
    results = at_once(apply, scd, runs, ending_version=30)
    assert ranges(target)[1:] == [(11, 30)]
    assert {result.watermark.version for result in results} == {30}
    assert held(spark, target, scd) == expected(source, scd, 10)


@pytest.mark.parametrize("runs", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_initial_loads_at_once(
    spark: SparkSession, source: Source, target: str, apply: Apply, scd: int, runs: int
) -> None:
    results = at_once(apply, scd, runs)
    assert [seal["step"]["kind"] for seal in seals(target)] == ["load"]
    assert {result.watermark.version for result in results} == {30}
    assert held(spark, target, scd) == expected(source, scd, 30)


def test_two_loads_into_an_existing_empty_table(
    spark: SparkSession, source: Source, target: str, apply: Apply
) -> None:
    spark.sql(f"CREATE TABLE delta.`{target}` (id BIGINT, name STRING, amount BIGINT) USING delta")
    at_once(apply, 1, 2)
    assert [seal["step"]["kind"] for seal in seals(target)] == ["load"]
    assert held(spark, target) == expected(source, 1, 30)


def at_once(apply: Apply, scd: int, runs: int, **arguments: Any) -> list[ApplyResult]:
    """Start ``runs`` applies; none goes past its plan before all have made theirs."""
    gates = [Gate("planned", thread=f"run {n}") for n in range(runs)]
    with hooked(*gates):
        threads = [Running(partial(apply, scd, **arguments), f"run {n}") for n in range(runs)]
        for gate in gates:
            gate.wait()
        for gate in gates:
            gate.open()
        return [thread.result() for thread in threads]  # type: ignore[misc]
