"""The simulator, with a target that has a quarantine and refuses rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.simulator.aside_defects import ASIDE_DEFECTS, FORGOTTEN_LIMITS, OLDER_VERSION, found_aside
from tests.simulator.defects import planted
from tests.simulator.schedules import (
    LATER_NUMBER,
    LEFT_BY_A_RELOAD,
    LISTED_LATE,
    RESUMED,
    drawn,
    outcome,
)

if TYPE_CHECKING:
    from tests.simulator.defects import Defect

#: As many as play in a second.
_SCHEDULES = 40
#: The other defects need more schedules.
_SOON = 30


def test_schedules_keep_every_rule() -> None:
    schedules = [schedule for seed in range(3, 4 * _SCHEDULES, 4) if (schedule := drawn(seed)).aside]
    names = {event.name for schedule in schedules for event in schedule.events}
    assert {"poison", "loosen", "replay"} <= names
    texts = [failure.text() for schedule in schedules if (failure := outcome(schedule)) is not None]
    assert not texts, "\n\n".join(texts)


@pytest.mark.parametrize(
    "defect",
    [pytest.param(one, marks=[pytest.mark.slow] if one.within > _SOON else []) for one in ASIDE_DEFECTS],
    ids=lambda defect: defect.rule,
)
def test_a_planted_defect_is_found(defect: Defect) -> None:
    assert found_aside(defect) is not None


def _planted(rule: str) -> Defect:
    return next(one for one in ASIDE_DEFECTS if one.rule.startswith(rule))


def test_a_number_that_reached_only_the_quarantine_stops_no_run() -> None:
    assert outcome(LATER_NUMBER) is None
    with planted(_planted("A later number")):
        failure = outcome(LATER_NUMBER)
    assert failure is not None
    assert "ConcurrentModification" in str(failure.error)


def test_what_a_refused_reload_set_aside_is_not_set_aside_twice() -> None:
    assert outcome(LEFT_BY_A_RELOAD) is None
    with planted(_planted("Rows that another try")):
        assert outcome(LEFT_BY_A_RELOAD) is not None


def test_the_remedy_of_a_resumed_try_knows_its_limits() -> None:
    assert outcome(RESUMED) is None
    with planted(FORGOTTEN_LIMITS):
        failure = outcome(RESUMED)
    assert failure is not None
    assert "TargetConstraintViolated" in str(failure.error)


def test_the_published_version_is_not_older_than_the_published_seal() -> None:
    assert outcome(LISTED_LATE) is None
    with planted(OLDER_VERSION):
        assert outcome(LISTED_LATE) is not None
