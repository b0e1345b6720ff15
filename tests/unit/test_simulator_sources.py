"""The simulator, with two sources that append to one change log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.simulator.sources import SOURCES_DEFECTS, drawn, found_in_sources, outcome

if TYPE_CHECKING:
    from tests.simulator.defects import Defect

#: As many as play in two seconds.
_SCHEDULES = 60


def test_schedules_keep_every_rule() -> None:
    texts = [failure.text() for seed in range(_SCHEDULES) if (failure := outcome(drawn(seed))) is not None]
    assert not texts, "\n\n".join(texts)


@pytest.mark.parametrize("defect", SOURCES_DEFECTS, ids=lambda defect: defect.rule)
def test_a_planted_defect_is_found(defect: Defect) -> None:
    assert found_in_sources(defect) is not None
