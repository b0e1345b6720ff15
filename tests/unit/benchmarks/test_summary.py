"""What benchmarks make of their rounds: medians, ratios with an interval, aims, crossings."""

from __future__ import annotations

import math
import random
import statistics
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


def test_equal_rounds_have_no_spread(summary: ModuleType) -> None:
    found = summary.ratio([2.0] * 5, [4.0] * 5)
    assert (found.low, found.value, found.high) == (0.5, 0.5, 0.5)
    assert str(found) == "0.50 (0.50 – 0.50)"


def test_one_round_has_no_interval(summary: ModuleType) -> None:
    assert str(summary.ratio([1.0], [4.0])) == "0.25 (one round)"


def test_rounds_stay_together(summary: ModuleType) -> None:
    # A machine that is slow in some rounds is slow for both: the ratio of each round is one half.
    slow = [1.0, 9.0, 2.0, 30.0, 4.0]
    found = summary.ratio(slow, [2 * second for second in slow])
    assert (found.low, found.value, found.high) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("rounds", [3, 5, 8])
def test_the_other_way_round_is_the_inverse(summary: ModuleType, rounds: int) -> None:
    dice = random.Random(rounds)
    ours, theirs = ([dice.uniform(1, 2) for _ in range(rounds)] for _ in range(2))
    found, other = summary.ratio(ours, theirs), summary.ratio(theirs, ours)
    assert other.value == pytest.approx(1 / found.value)
    assert (other.low, other.high) == (pytest.approx(1 / found.high), pytest.approx(1 / found.low))


def test_of_three_rounds_the_interval_is_from_the_best_to_the_worst(summary: ModuleType) -> None:
    found = summary.ratio([1.0, 2.0, 3.0], [1.0] * 3)
    assert (found.low, found.value, found.high) == (1.0, 2.0, 3.0)


def test_the_interval_holds_the_truth_in_most_experiments(summary: ModuleType) -> None:
    dice, held = random.Random(7), 0
    for _ in range(60):
        ours = [2 * dice.lognormvariate(0, 0.2) for _ in range(15)]
        theirs = [dice.lognormvariate(0, 0.2) for _ in range(15)]
        found = summary.ratio(ours, theirs)
        held += found.low <= 2.0 <= found.high
    assert 52 <= held <= 60


def test_more_rounds_tell_more(summary: ModuleType) -> None:
    dice = random.Random(3)
    ours, theirs = ([dice.gauss(10, 1) for _ in range(80)] for _ in range(2))
    few, many = summary.ratio(ours[:8], theirs[:8]), summary.ratio(ours, theirs)
    assert many.high - many.low < (few.high - few.low) / 2


def test_rounds_must_be_pairs(summary: ModuleType) -> None:
    with pytest.raises(ValueError, match="none was measured"):
        summary.ratio([], [])
    with pytest.raises(ValueError, match="shorter"):
        summary.ratio([1.0, 2.0], [1.0])


def test_nothing_below_is_no_number(summary: ModuleType) -> None:
    assert math.isnan(summary.ratio([1.0], [0.0]).value)


def test_spread(summary: ModuleType) -> None:
    assert summary.spread([3.0, 1.0, 2.04]) == "1.0 – 3.0"
    assert summary.spread([float(number) for number in range(20)], share=0.1) == "2.0 – 17.0"


def test_an_aim_may_be_reached_and_not_passed(summary: ModuleType) -> None:
    assert summary.aim(0.2, 0.2) == "≤ 0.20"
    assert summary.aim(0.2, 0.2001) == "≤ 0.20, **missed**"
    assert summary.aim(None, 5.0) == ""


def test_two_arms_in_one_row(summary: ModuleType) -> None:
    ours = {"seconds": [1.0, 2.0, 3.0], "cpu": [4.0, 4.0, 4.0]}
    theirs = {"seconds": [4.0, 4.0, 4.0], "cpu": [1.0, 1.0, 1.0]}
    mine, other, seconds, aim, cpu = summary.compared(ours, theirs, 0.4)
    assert (mine, other, str(seconds)) == ("2.0", "4.0", "0.50 (0.25 – 0.75)")
    assert (aim, cpu) == ("≤ 0.40, **missed**", "4.00")


def test_lines_cross(summary: ModuleType) -> None:
    # 0.5 to 2 is the same way on both sides of 1, in logarithms: the middle between 10 and 1,000 is 100.
    assert summary.crossings([(10, 0.5), (1_000, 2.0)]) == [pytest.approx(100)]
    assert summary.crossings([(10, 2.0), (1_000, 0.5)]) == [pytest.approx(100)]
    assert summary.crossings([(1, 0.9), (2, 1.1), (4, 0.9)]) == [
        pytest.approx(2 ** statistics.fmean([0, 1]), rel=0.05),
        pytest.approx(2 ** statistics.fmean([1, 2]), rel=0.05),
    ]
    assert summary.crossings([(1, 0.8), (2, 0.9)]) == []
    assert summary.crossings([(1, 1.2)]) == []


def test_a_table(summary: ModuleType) -> None:
    assert (
        summary.markdown_table(["a", "b"], [(1, "x"), (2, "")])
        == "| a | b |\n|---|---|\n| 1 | x |\n| 2 |  |\n"
    )
