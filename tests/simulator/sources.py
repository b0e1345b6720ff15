"""Schedules of two sources that append to one change log, see :mod:`tests.simulator.schedules`."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.simulator import schedules
from tests.simulator.defects import Defect, found
from tests.simulator.promises import PROMISES
from tests.simulator.schedules import LENGTHS, Failure, outcome
from tests.simulator.world import Event, Schedule

__all__ = ["SOURCES_DEFECTS", "drawn", "found_in_sources", "outcome"]

#: What people do with a log: no mode of a run is for one.
_FORMS = ("take_over",)
#: What happens to the log while a job that appends to it is frozen.
_RACING = (
    *(("run", "r"), ("run", "r"), ("form", "take_over"), ("source2", "update")),
    *(("target", name) for name in ("optimize", "restore", "put_back", "drop", "replace", "clean")),
)

#: Planted defects of a log that several pipelines write, see :mod:`tests.simulator.defects`.
SOURCES_DEFECTS = (
    Defect(
        "A source may begin in a log with events of others.",
        "planning.observe",
        "may be events of other pipelines.\n    appends = request.applied is not None",
        "\n    appends = False and request.applied is not None",
        1,
    ),
    Defect(
        "The seal of another source does not count for this one.",
        "planning.seal_chain",
        "    return seal if seal is not None and seal.pipeline == pipeline else None",
        "    return seal",
        1,
    ),
    Defect(
        "A source under another name takes its watermark over.",
        "planning.observe",
        "    if request.predecessor is None or request.target is None or not takes_over:",
        "    if True:",
        2,
    ),
)


def drawn(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    random = Random(f"sources {seed}")
    length = random.choice(LENGTHS)
    promise = random.choice([one for one in PROMISES.values() if one.safe])
    # Under another name, without a take-over, a source counts as another one.
    work = [replace(one, name="p") if one.what == "run" else one for one in schedules.work(random, length)]
    for _ in range(random.randint(1, 2)):
        at, name = random.randrange(length.last), random.choice(("append", "update", "delete", "optimize"))
        work.append(Event(at, "source2", name, number=random.randrange(100)))
        work.append(Event(random.randrange(length.last), "run", "r", number=random.randrange(100)))
    accidents = [
        one for one in schedules.accidents(random, length) if one.what != "form" or one.name in _FORMS
    ]
    events = [Event(0, "run", "p", number=2), *work, *schedules.faults(random, promise, length), *accidents]
    if random.random() < 0.5:
        # Both make the log, or append to it, at once.
        events.append(Event(random.randrange(8), "run", "r", number=2))
    if random.random() < 0.6:
        events += schedules.race(random, length, _RACING)
    return Schedule(
        seed,
        "log",
        promise.scheme,
        tuple(events),
        lag=promise.lag,
        versions_per_commit=random.choice((None, None, 1, 2)),
        torn=promise.torn,
        stale=promise.stale,
    )


def found_in_sources(defect: Defect, most: int | None = None) -> tuple[int, Failure] | None:
    """Do as :func:`~tests.simulator.defects.found` with schedules of two sources."""
    return found(defect, most, played=lambda _, seed: outcome(drawn(seed)))
