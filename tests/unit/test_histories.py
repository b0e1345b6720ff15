"""The campaign of histories, without Spark: its clerk agrees with the oracle, and a failure shrinks."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.histories import feed
from tests.histories.runs import Failure, drawn_steps, shrunk
from tests.support import histories, oracle


@pytest.mark.parametrize("scd", [1, 2])
def test_the_clerk_and_the_oracle_agree(scd: int) -> None:
    """Two models that share no code; the second looks at all versions of a key at once."""
    scripts = {str(space): histories.drawn(random.Random(space), 7) for space in range(200)}
    played = histories.played(scripts, 7).history()
    source: Any = feed.Source(None, "", 0, (), feed.Options(scd, {}, "mirror"))  # type: ignore[arg-type]
    source.types = [{"v": "STRING", "u": "INT"}] * 7
    source.states = [
        {(int(space), id_): {**row, "space": int(space)} for (space, id_), row in state.items()}
        for _, state in played
    ]
    target = feed.Target(source)
    target.load(0)
    target.advance(6, "mirror")
    columns = ["space", "id", "v", "u", *((feed.START, feed.END) if scd == 2 else ())]
    history = list(enumerate(source.states))
    expected = oracle.scd2(history, tracked=["v", "u"]) if scd == 2 else oracle.scd1(history)
    found = [row for rows in target.by_space().values() for row in rows]
    assert oracle.rows_of(found, columns) == oracle.rows_of(expected, columns)


def test_a_failure_shrinks_to_the_key_space_and_the_steps_that_matter() -> None:
    steps = drawn_steps(1)
    needed = {steps[2], steps[-1]}

    def play(spaces: Any, steps: Any) -> Failure | None:
        fails = 7 in spaces and needed <= set(steps)
        return Failure(1, tuple(spaces), tuple(steps), "wrong", None) if fails else None

    failure = play(range(20), steps)
    assert failure is not None
    least = shrunk(failure, play)
    assert (least.spaces, set(least.steps)) == ((7,), needed)
