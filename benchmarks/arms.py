"""Arms of a comparison on Spark: run in turns, in a new order each time, with equal answers or not at all."""

from __future__ import annotations

import random
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_T = TypeVar("_T")


class Worthless(Exception):
    """What was measured is worth nothing."""


class Disagreement(Worthless):
    """Two arms gave different answers."""


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


def agree(where: str, answers: Mapping[str, object]) -> None:
    """Compare what arms gave.

    :param answers: by the arms' names
    :raises Disagreement: where two of them differ
    """
    if len(set(map(str, answers.values()))) > 1:
        raise Disagreement(f"{where}: {dict(answers)}")


def in_turns(arms: Sequence[_T], turn: int) -> list[_T]:
    """Return the arms of a round, the order moved on by one with each: what runs beside changes slowly."""
    first = turn % len(arms)
    return [*arms[first:], *arms[:first]]


def race(title: str, arms: Sequence[Arm], repeats: int, *, warm_ups: int = 1, seed: int = 0) -> None:
    """Let the arms take turns and compare their answers after every round.

    :param warm_ups: rounds beforehand that don't count: compiled code and file cache belong to no arm
    :raises Disagreement: where two arms gave different answers
    """
    order = random.Random(seed)
    for turn in range(warm_ups + repeats):
        for arm in order.sample(list(arms), len(arms)):
            arm.time()
        agree(f"{title}, round {turn}", {arm.name: arm.answer() for arm in arms})
    for arm in arms:
        del arm.seconds[:warm_ups]
    print(
        f"{title}: {', '.join(f'{arm.name} {arm.median:.2f} s' for arm in arms)}", file=sys.stderr, flush=True
    )
