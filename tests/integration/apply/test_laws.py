"""The law of applies: any source, options, order of arrival and cut into runs give the rows of the model.

Each seed draws one configuration and many histories, side by side in one source and one target.
``DELTA_CDC_SEED`` and ``DELTA_CDC_HISTORIES`` replay what a failure names; ``DELTA_CDC_APPLIES`` is the
number of configurations of the long run.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.change_histories import number_of_histories
from tests.support.drawn_applies import drawn_apply
from tests.support.event_flow import LogFlow
from tests.support.event_streams import PLAIN, TIED, as_set, delivered, drawn_world
from tests.support.random_logs import seeds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.drawn_applies import DrawnApply

TEST = "tests/integration/apply/test_laws.py"
#: Source kinds, by the seed.
KINDS = ("change_log", "change_feed", "change_log", "snapshot")
#: Histories of one configuration: in two runs, and in the long one.
FEW, MANY = 150, 2000


def applied(flow: LogFlow, one: DrawnApply) -> int:
    """Apply a source in some runs, with late plans, repetitions and a repair; return the number of runs."""
    draw = random.Random(f"{one.seed} between")
    before, runs = None, 0
    for end in one.played(flow):
        overtaken = flow.planned(end) if before is not None and draw.random() < 0.3 else None
        flow.apply(end)
        if overtaken is not None:
            flow.run_late(overtaken)
        if before is not None and draw.random() < 0.3:
            flow.again(before + 1, end)
        before, runs = end, runs + 1
    if draw.random() < 0.5:
        one.healed(flow, draw)
    return runs


def check(spark: SparkSession, folder: Path, seed: int, count: int, record: Callable[..., None]) -> None:
    """Apply what a seed draws, and compare every history with the model."""
    kind = KINDS[seed % len(KINDS)]
    one = drawn_apply(kind, seed, number_of_histories(count))
    configuration = one.configuration
    flow = LogFlow(spark, str(folder / "source"), str(folder / "target"), configuration.arguments)
    try:
        runs = applied(flow, one)
    except BaseException as error:
        error.add_note(_story(seed, flow))
        raise
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in flow.rows():
        found[int(row[one.history_column])].append(row)
    numbers = {*one.numbers, *found}
    wrong = [number for number in numbers if configuration.differs(found[number], one.events(number))]
    if wrong:
        least = min(wrong, key=lambda number: (len(one.events(number)), number))
        events = "\n".join(f"  {event}" for event in one.events(least))
        expected, got = map(configuration.bag, (configuration.rows(one.events(least)), found[least]))
        pytest.fail(
            f"{len(wrong)} of {len(numbers)} histories differ, as {sorted(wrong)[:20]}\n"
            f"{_story(seed, flow, least)}\nhistory {least}\n{events}\n"
            f"missing: {list((expected - got).elements())}\ntoo many: {list((got - expected).elements())}",
            pytrace=False,
        )
    record("histories", len(numbers))
    record("drawn", f"seed {seed}: {kind}, {len(numbers)} histories in {runs} runs, 0 differ: {_short(one)}")


def _short(one: DrawnApply) -> str:
    return ", ".join(f"{name}={value}" for name, value in one.configuration.arguments.items())


def _story(seed: int, flow: LogFlow, history: int | None = None) -> str:
    histories = "" if history is None else f"DELTA_CDC_HISTORIES={history} "
    return (
        f"seed {seed}: {flow.arguments}, {flow.said}\n"
        f"replay: DELTA_CDC_SEED={seed} {histories}python -m pytest {TEST} -k many"
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [25, 26])
def test_histories_are_those_of_the_model(
    spark: SparkSession, tmp_path: Path, seed: int, record_property: Callable[..., None]
) -> None:
    check(spark, tmp_path, seed, FEW, record_property)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(int(os.environ.get("DELTA_CDC_APPLIES", "50")), first=1))
def test_many_histories_are_those_of_the_model(
    spark: SparkSession, tmp_path: Path, seed: int, record_property: Callable[..., None]
) -> None:
    check(spark, tmp_path, seed, MANY, record_property)


@pytest.mark.parametrize("flavour", [PLAIN, TIED])
def test_both_deliveries_bring_the_same_events(flavour: Any) -> None:
    """Else two tables that agree would say nothing about the order of their events."""
    world = drawn_world(1, flavour, range(50))
    assert as_set(delivered(world, "windows")) == as_set(delivered(world, "shuffled"))
