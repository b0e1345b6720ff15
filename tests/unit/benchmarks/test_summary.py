"""What benchmarks make of their rounds: medians, ratios with an interval, aims, crossings."""

from __future__ import annotations

import math
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


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        # The ratio of the medians: the mean of the ratios of rounds would be 4.5, the ratio of the means 2.5.
        ([1.0, 2.0, 12.0], [1.0, 4.0, 1.0], "2.00 (0.50–12.00)"),
        ([2.0] * 5, [4.0] * 5, "0.50 (0.50–0.50)"),
        ([1.0], [4.0], "0.25 (one round)"),
        # Rounds stay together: a machine that is slow in some rounds is slow for both.
        ([1.0, 9.0, 2.0, 30.0, 4.0], [2.0, 18.0, 4.0, 60.0, 8.0], "0.50 (0.50–0.50)"),
        ([1.0, 2.0, 3.0], [1.0] * 3, "2.00 (1.00–3.00)"),
    ],
)
def test_a_ratio(summary: ModuleType, ours: list[float], theirs: list[float], expected: str) -> None:
    assert str(summary.ratio(ours, theirs)) == expected


@pytest.mark.parametrize("rounds", [3, 5, 8])
def test_the_other_way_round_is_the_inverse(summary: ModuleType, rounds: int) -> None:
    dice = random.Random(rounds)
    ours, theirs = ([dice.uniform(1, 2) for _ in range(rounds)] for _ in range(2))
    found, other = summary.ratio(ours, theirs), summary.ratio(theirs, ours)
    assert other.value == pytest.approx(1 / found.value)
    assert (other.low, other.high) == (pytest.approx(1 / found.high), pytest.approx(1 / found.low))


def test_the_interval_holds_the_truth_in_most_experiments(summary: ModuleType) -> None:
    dice, held = random.Random(7), 0
    for _ in range(60):
        ours = [2 * dice.lognormvariate(0, 0.2) for _ in range(15)]
        found = summary.ratio(ours, [dice.lognormvariate(0, 0.2) for _ in range(15)])
        held += found.low <= 2.0 <= found.high
    assert 52 <= held <= 60


def test_rounds_must_be_pairs(summary: ModuleType) -> None:
    with pytest.raises(ValueError, match="none was measured"):
        summary.ratio([], [])
    with pytest.raises(ValueError, match="shorter"):
        summary.ratio([1.0, 2.0], [1.0])
    assert math.isnan(summary.ratio([1.0], [0.0]).value)


def test_texts(summary: ModuleType) -> None:
    assert summary.spread([3.0, 1.0, 2.04]) == "1.0–3.0"
    assert summary.spread([float(number) for number in range(20)], share=0.1) == "2.0–17.0"
    aims = [summary.aim(0.2, found) for found in (0.2, 0.2001)]
    assert [*aims, summary.aim(None, 5.0)] == ["≤ 0.20", "≤ 0.20, **missed**", ""]
    assert summary.markdown_table(["a", "b"], [(1, "x")]) == "| a | b |\n|---|---|\n| 1 | x |\n"
    ours, theirs = ({"seconds": seconds, "cpu": [4.0] * 3} for seconds in ([1.0, 2.0, 3.0], [4.0] * 3))
    mine, other, ratio, aim, cpu = summary.compared(ours, theirs, 0.4)
    assert (mine, other, str(ratio)) == ("2.0", "4.0", "0.50 (0.25–0.75)")
    assert (aim, cpu) == ("≤ 0.40, **missed**", "1.00")


def test_lines_cross(summary: ModuleType) -> None:
    # 0.5 to 2 is the same way on both sides of 1, in logarithms: the middle between 10 and 1,000 is 100.
    assert summary.crossings([(10, 0.5), (1_000, 2.0)]) == [pytest.approx(100)]
    assert summary.crossings([(10, 2.0), (1_000, 0.5)]) == [pytest.approx(100)]
    assert len(summary.crossings([(1, 0.9), (2, 1.1), (4, 0.9)])) == 2
    assert summary.crossings([(1, 0.8), (2, 0.9)]) == summary.crossings([(1, 1.2)]) == []
