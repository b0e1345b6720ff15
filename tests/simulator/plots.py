"""Families of schedules, each aimed at one rule that ordinary schedules hardly reach.

A plot names the events that lead to the rule. A seed moves their times a little, and draws the kind of the
target and the store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.simulator.promises import PROMISES
from tests.simulator.schedules import outcome as outcome
from tests.simulator.world import Event, Schedule

#: A store that refuses to create a commit file twice, and one that replaces it.
_SAFE = ("gs", "abfss", "s3, conditional writes", "disk, our log store")
_UNSAFE = ("s3, one driver's store", "disk, Delta's log store")
_KINDS = ("type1", "type2", "append")


@dataclass(frozen=True)
class Plot:
    """Events, and where they can happen.

    :param gaps: as in a schedule
    """

    events: tuple[Event, ...]
    kinds: tuple[str, ...] = _KINDS
    stores: tuple[str, ...] = _SAFE
    gaps: bool = True


def _run(at: int, number: int = 2, name: str = "p") -> Event:
    return Event(at, "run", name, number=number)


def _source(at: int, name: str = "update", number: int = 1) -> Event:
    return Event(at, "source", name, number=number)


def _target(at: int, name: str, number: int = 1) -> Event:
    return Event(at, "target", name, number=number)


def _freeze(at: int, step: str, steps: int = 150, *, notice: int = 36) -> Event:
    """Freeze a process for some steps, at most 210.

    :param notice: after how many steps Airflow misses it, if it is a task
    """
    return Event(at, "fault", "freeze", step, steps * 37 + notice)


def _stuck(at: int, step: str, steps: int) -> Event:
    """Freeze a job for some steps, while Airflow kills its task, and tries again."""
    number = steps * 37
    return Event(at, "fault", "freeze", step, number + (number % 2 == 0))


#: Each run takes some 40 to 90 steps, and the next event of a plot leaves it the time.
_TWO = (_run(0), _source(150), _run(151))
_THREE = (*_TWO, _source(300), _run(301))

PLOTS = {
    "source put back while a job runs": Plot(
        (*_TWO, _source(300), _run(301), _freeze(302, "job.start"), _source(400, "put_back", 7)),
    ),
    "copy of a lost seal": Plot((*_TWO, _target(300, "put_back", 1), _target(310, "clean", 7), _run(320))),
    "restored, then cleaned": Plot((*_TWO, _target(300, "restore", 1), _target(310, "clean", 7), _run(320))),
    "taken over twice": Plot(
        (
            _run(0),
            Event(150, "form", "take_over", number=2),
            _source(300),
            _run(301, name="q"),
            _source(450),
            _run(451, name="q"),
            _target(600, "restore", 1),
            Event(610, "form", "take_over", number=2),
        ),
    ),
    "source put back": Plot((_run(0), _source(1), _source(150), _run(151), _source(300, "put_back", 7))),
    "source without a snapshot": Plot(
        (
            _run(0),
            _source(150),
            _run(151),
            *(_source(300 + n) for n in range(3)),
            _source(310, "clean", 15),
        ),
    ),
    "source put back, then cleaned": Plot(
        (
            _run(0),
            _source(150),
            _source(151),
            _run(152),
            _source(300, "put_back", 7),
            _source(301),
            _source(302, "clean", 1),
            _source(303),
        ),
        ("type1", "type2"),
    ),
    "restored before it is published": Plot(
        (*_TWO, _freeze(185, "confirm.list", 20), _target(193, "restore", 1)),
    ),
    "reload": Plot((_run(0), _source(150), Event(151, "form", "reload", number=2)), ("type1",)),
    "target put back while a job runs": Plot(
        (*_THREE, _freeze(302, "job.read_log", 200), _target(420, "put_back", 1)),
    ),
    "target overwritten while a job runs": Plot(
        (*_THREE, _freeze(302, "job.read_log", 200), _target(420, "overwrite")),
    ),
    "a number twice": Plot(
        (
            _run(0),
            _source(150),
            _stuck(150, "job.commit_put", 200),
            _run(151),
            _target(199, "optimize"),
        ),
        ("append",),
        _UNSAFE,
        gaps=False,
    ),
    "a seal overwritten": Plot(
        (
            _run(0),
            _stuck(25, "job.commit_put", 210),
            _source(60),
            _run(61),
            _target(150, "checkpoint"),
            _source(300),
        ),
        _KINDS,
        _UNSAFE,
        gaps=False,
    ),
    "a publish that was frozen": Plot(
        (
            Event(0, "group", "g", number=3),
            _freeze(2, "publish.put", 210),
            _source(120),
            Event(222, "group", "g", number=3),
        ),
    ),
    "numbers given again": Plot(
        (*_THREE, _target(450, "put_back", 1), Event(452, "fault", "crash", "publish.xcom", 1), _run(455, 3)),
    ),
    "a commit overwritten": Plot(
        (_run(0), _source(150), _stuck(150, "job.commit_put", 210), _run(151), _source(245), _run(246)),
        ("type1", "type2"),
        _UNSAFE,
    ),
}


def plotted(name: str, seed: int) -> Schedule:
    """Return the schedule of a plot and a seed."""
    plot, random = PLOTS[name], Random(seed)
    promise = PROMISES[random.choice(plot.stores)]
    shift, before, events = 0, 0, []
    for event in plot.events:
        # What follows soon belongs to the same moment.
        shift += random.randrange(12) if event.at - before > 40 else random.randrange(3) if event.at else 0
        before = event.at
        events.append(replace(event, at=event.at + shift))
    return Schedule(
        seed,
        random.choice(plot.kinds),
        promise.scheme,
        tuple(events),
        safe=promise.safe,
        group=any(event.what == "group" for event in events),
        gaps=plot.gaps,
    )


def drawn(seed: int) -> Schedule:
    """Return the schedule of a seed: each plot in its turn."""
    turn, name = divmod(seed, len(PLOTS))
    return plotted(list(PLOTS)[name], turn)
