"""Summarise the rounds of a comparison: medians, ratios with an interval, where two lines cross."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_DRAWS = 2_000
#: What the interval leaves out on either side.
_TAIL = 0.025


@dataclass(frozen=True)
class Ratio:
    """A ratio of medians with its interval of 95 %.

    :param rounds: how many it was drawn from; one has no interval
    """

    value: float
    low: float
    high: float
    rounds: int

    def __str__(self) -> str:
        if self.rounds == 1:
            return f"{self.value:.2f} (one round)"
        return f"{self.value:.2f} ({self.low:.2f}–{self.high:.2f})"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Return median(ours) / median(theirs), with a bootstrap interval over whole rounds.

    Few rounds give a narrow guess: of two or three, the interval is between the best and the worst one.

    :param ours: one figure per round
    :param theirs: the same rounds, in the same order
    :raises ValueError: for no rounds, or not as many of each
    """
    rounds = list(zip(ours, theirs, strict=True))
    if not rounds:
        raise ValueError("A ratio needs a round: none was measured.")
    dice = random.Random(0)
    found = sorted(_of_medians(dice.choices(rounds, k=len(rounds))) for _ in range(_DRAWS))
    cut = int(_DRAWS * _TAIL)
    return Ratio(_of_medians(rounds), found[cut], found[-1 - cut], len(rounds))


def _of_medians(rounds: Iterable[tuple[float, float]]) -> float:
    ours, theirs = zip(*rounds, strict=True)
    below = statistics.median(theirs)
    return statistics.median(ours) / below if below else math.nan


def median(values: Sequence[float], digits: int = 1) -> str:
    """Return the median as text."""
    return f"{statistics.median(values):.{digits}f}"


def spread(values: Sequence[float], share: float = 0.0, digits: int = 1) -> str:
    """Return the least and the greatest as text.

    :param share: of the values to leave out at either end
    """
    ordered = sorted(values)
    cut = int(len(ordered) * share)
    return f"{ordered[cut]:.{digits}f}–{ordered[-1 - cut]:.{digits}f}"


def aim(most: float | None, found: float, digits: int = 2) -> str:
    """Return what was aimed at, and whether it was missed; nothing where nothing was.

    :param most: the bound, which may be reached
    """
    if most is None:
        return ""
    return f"≤ {most:,.{digits}f}" + (", **missed**" if found > most else "")


def compared(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], most: float | None = None, digits: int = 1
) -> tuple[str, str, Ratio, str, str]:
    """Return what every table of a comparison says of two arms.

    :param ours: ``seconds`` and ``cpu``, a figure per round
    :param theirs: the same of the other arm
    :param most: what is aimed at for the ratio of seconds
    :return: both medians, their ratio, the aim, and the ratio of CPU seconds
    """
    seconds = ratio(ours["seconds"], theirs["seconds"])
    cpu = f"{ratio(ours['cpu'], theirs['cpu']).value:.2f}"
    medians = median(ours["seconds"], digits), median(theirs["seconds"], digits)
    return *medians, seconds, aim(most, seconds.value), cpu


def crossings(points: Iterable[tuple[float, float]]) -> list[float]:
    """Return where a ratio passes 1: on straight lines between its points, both axes in logarithms.

    :param points: sizes and ratios, by ascending size, all above zero
    """
    return [
        math.exp(_at_zero(*((math.log(size), math.log(value)) for size, value in both)))
        for both in pairwise(points)
        if (both[0][1] > 1.0) != (both[1][1] > 1.0)
    ]


def _at_zero(below: tuple[float, float], above: tuple[float, float]) -> float:
    return below[0] + (above[0] - below[0]) * below[1] / (below[1] - above[1])


def markdown_table(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def print_table(title: str, heading: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table in Markdown, below a title."""
    print(f"\n### {title}\n\n{markdown_table(heading, rows)}", end="", flush=True)
