"""Arms of a comparison on Spark: run in turns, in a new order each time, with equal answers or not at all."""

from __future__ import annotations

import math
import random
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class Disagreement(Exception):
    """Two arms gave different answers: what they took is worth nothing."""


@dataclass
class Arm:
    """One way to an answer.

    :param run: what is timed
    :param answer: what the run gave, as something that can be compared; not timed
    :param prepare: what has to be there before a run; not timed
    """

    name: str
    run: Callable[[], Any]
    answer: Callable[[], Any]
    seconds: list[float] = field(default_factory=list)
    prepare: Callable[[], Any] = lambda: None

    def time(self) -> None:
        """Run once."""
        self.prepare()
        begin = time.perf_counter()
        self.run()
        self.seconds.append(time.perf_counter() - begin)

    @property
    def median(self) -> float:
        """Return the median of the runs' seconds."""
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Ratio:
    """A ratio of medians with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} – {self.high:.2f})"


def race(title: str, arms: Sequence[Arm], repeats: int, *, warm_ups: int = 1, seed: int = 0) -> None:
    """Let the arms take turns and compare their answers after every round.

    :param warm_ups: rounds beforehand that don't count: compiled code and file cache are nobody's merit
    :raises Disagreement: where two arms gave different answers
    """
    order = random.Random(seed)
    for turn in range(warm_ups + repeats):
        for arm in order.sample(list(arms), len(arms)):
            arm.time()
        answers = {arm.name: arm.answer() for arm in arms}
        if len(set(map(str, answers.values()))) != 1:
            raise Disagreement(f"{title}, round {turn}: {answers}")
    for arm in arms:
        del arm.seconds[:warm_ups]
    print(
        f"{title}: {', '.join(f'{arm.name} {arm.median:.2f} s' for arm in arms)}", file=sys.stderr, flush=True
    )


def ratio(ours: Sequence[float], theirs: Sequence[float], *, draws: int = 2_000) -> Ratio:
    """Return median(ours) / median(theirs), with a bootstrap interval over whole rounds."""
    dice = random.Random(0)
    rounds = list(zip(ours, theirs, strict=True))
    found = sorted(_of_medians(dice.choices(rounds, k=len(rounds))) for _ in range(draws))
    return Ratio(_of_medians(rounds), found[int(draws * 0.025)], found[int(draws * 0.975)])


def _of_medians(rounds: Iterable[tuple[float, float]]) -> float:
    ours, theirs = zip(*rounds, strict=True)
    below = statistics.median(theirs)
    return statistics.median(ours) / below if below else math.nan


def print_table(title: str, heading: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table in Markdown."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(heading) + " |")
    print("|" + "---|" * len(heading))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |", flush=True)
