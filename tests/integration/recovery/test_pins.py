"""What is kept between the tries of one task: it shortens a retry, and it may be lost or wrong."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import VersionRange, job
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.requests import ApplyRequest
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from delta_cdc.run.saved_plans import forget_saved_plans
from tests.support.holding import Gate, Running, hooked, once
from tests.support.world import expected, held, listing, ranges

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome
    from tests.support.world import Source

    Try = Callable[..., Outcome]


class Kept:
    """A store of pins that survives a try, and can be edited."""

    def __init__(self) -> None:
        self.saved_plans: dict[str, dict[str, Any]] = {}

    def get(self, key: str) -> dict[str, Any] | None:
        return self.saved_plans.get(key)

    def set(self, key: str, value: dict[str, Any]) -> None:
        self.saved_plans[key] = value

    def delete(self, key: str) -> None:
        self.saved_plans.pop(key, None)


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def attempt(spark: SparkSession, source: Source, target: str, kept: Kept) -> Try:
    """Run one try of one task; ``publish=False`` is one that dies before its last line."""

    def attempted(*, publish: bool = True, **request: Any) -> Outcome:
        asked = ApplyRequest(
            pipeline="flow", source=source.path, target=target, options=ApplyOptions(keys=("id",)), **request
        )
        result = run(asked, Services(execute=partial(job.run, spark), saved_plans=kept))
        if publish:
            forget_saved_plans(result, kept)
        return result

    return attempted


class Died(BaseException):
    """The end of a process, for a thread: nothing catches it on the way."""


def dying() -> None:
    raise Died


@pytest.mark.slow
def test_a_retry_repeats_the_range_that_was_planned(
    spark: SparkSession, source: Source, target: str, attempt: Try, through: Callable[..., None]
) -> None:
    through(1, 10)
    with hooked(once("before_commit", dying)), pytest.raises(Died):
        attempt()
    source.update(spark, {1: ("later", 1)})
    assert attempt().versions == VersionRange(11, 30)
    assert attempt().versions == VersionRange(31, 31)
    assert held(spark, target) == expected(source, 1, 10)


@pytest.mark.parametrize("lost", [False, True], ids=["kept", "lost"])
def test_a_try_that_died_between_commit_and_publishing(
    spark: SparkSession,
    source: Source,
    target: str,
    attempt: Try,
    through: Callable[..., None],
    kept: Kept,
    lost: bool,
) -> None:
    through(1, 10)
    with hooked(once("committed", dying)), pytest.raises(Died):
        attempt()
    if lost:
        kept.saved_plans.clear()
    before = listing(target)
    result = attempt()
    assert result.applied is not lost
    assert result.versions == (None if lost else VersionRange(11, 30))
    assert result.watermark is not None
    assert result.watermark.version == 30
    assert listing(target) == before


@pytest.mark.slow
def test_a_try_that_died_just_before_publishing(
    spark: SparkSession, source: Source, target: str, attempt: Try, through: Callable[..., None]
) -> None:
    """The caller publishes after ``run`` has returned; whoever dies there comes back as a new try."""
    through(1, 10)
    unpublished = attempt(publish=False)
    before = listing(target)
    again = attempt()
    assert again.applied
    assert (again.versions, again.counts) == (unpublished.versions, unpublished.counts)
    assert again.target_version == unpublished.target_version
    assert listing(target) == before
    # Published, it is finished: cleared, there is nothing to do, and what came after is not hidden.
    assert not attempt().applied
    assert listing(target) == before
    source.update(spark, {1: ("later", 1)})
    assert attempt().versions == VersionRange(31, 31)
    assert held(spark, target) == expected(source, 1, 10)


@pytest.mark.slow
@pytest.mark.parametrize("end", [99, -5, 3, "30", None, True], ids=str)
def test_edited_pins(
    spark: SparkSession,
    source: Source,
    target: str,
    attempt: Try,
    through: Callable[..., None],
    kept: Kept,
    end: object,
) -> None:
    """At worst, a lie of a lower end makes this try do nothing; the next one does it all."""
    through(1, 10)
    with hooked(once("before_commit", dying)), pytest.raises(Died):
        attempt()
    (key,) = kept.saved_plans
    kept.saved_plans[key] = {"ending_version": end, "fingerprints": 7}
    attempt()
    attempt()
    assert ranges(target)[1:] == [(11, 30)]
    assert held(spark, target) == expected(source, 1, 10)


@pytest.mark.slow
def test_the_same_task_twice_at_once(
    spark: SparkSession, source: Source, target: str, attempt: Try, through: Callable[..., None]
) -> None:
    """A worker that lost its heartbeat and its retry share pins and plan: both publish the one commit."""
    through(1, 10)
    gate = Gate("before_commit", thread="zombie")
    with hooked(gate):
        zombie = Running(attempt, "zombie")
        gate.wait()
        retry = attempt()
        gate.open()
        late = zombie.result()
    assert retry.versions == late.versions == VersionRange(11, 30)  # type: ignore[attr-defined]
    assert ranges(target)[1:] == [(11, 30)]
    assert held(spark, target) == expected(source, 1, 10)
