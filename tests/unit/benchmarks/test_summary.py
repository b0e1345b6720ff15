"""What benchmarks make of their rounds: medians, and ratios with an interval."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.support.benchmarks import benchmark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType


@pytest.fixture(scope="module")
def summary() -> Iterator[ModuleType]:
    with benchmark("summary") as module:
        yield module


def test_a_ratio_is_that_of_the_medians(summary: ModuleType) -> None:
    # The mean of the ratios of rounds would be 4.5, the ratio of the means 2.5.
    found = summary.ratio([1.0, 2.0, 12.0], [1.0, 4.0, 1.0])
    assert found.value == 2.0


def test_rounds_stay_together(summary: ModuleType) -> None:
    # A machine that is slow in some rounds is slow for both: the ratio of each round is one half.
    slow = [1.0, 9.0, 2.0, 30.0, 4.0]
    found = summary.ratio(slow, [2 * second for second in slow])
    assert (found.low, found.value, found.high) == (0.5, 0.5, 0.5)


def test_the_interval_holds_the_truth_in_most_experiments(summary: ModuleType) -> None:
    dice, held = random.Random(7), 0
    for _ in range(60):
        ours = [2 * dice.lognormvariate(0, 0.2) for _ in range(15)]
        theirs = [dice.lognormvariate(0, 0.2) for _ in range(15)]
        found = summary.ratio(ours, theirs)
        held += found.low <= 2.0 <= found.high
    assert 52 <= held <= 60


def test_rounds_must_be_pairs(summary: ModuleType) -> None:
    with pytest.raises(ValueError, match="none was measured"):
        summary.ratio([], [])
    with pytest.raises(ValueError, match="shorter"):
        summary.ratio([1.0, 2.0], [1.0])
