"""Draw schedules from seeds, play many, and make a failing one small."""

from __future__ import annotations

import gc
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from tests.simulator.world import Event, Schedule, World, faults_of, play

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Coverage = Counter[tuple[str, str]]

#: The ends of the names of the steps that faults aim at; "" is any step.
_AIMS = (
    *("", "", "head", "get", "list", "read_log", "hash", "start", "read_source", "write_data", "submit"),
    *("commit", "commit", "commit", "answer", "answer", "state_get", "state_set", "state_delete", "xcom"),
    *("announced", "backup_get", "backup_set", "success", "success", "sleep"),
)
_SOURCE = (
    "append",
    "update",
    "update",
    "delete",
    "optimize",
    "append",
    "update",
    "overwrite",
    "restore",
    "replace",
)
_ACCIDENTS = ("recreate", "vacuum")
_TARGET = ("optimize", "vacuum", "restore", "restore", "restore", "overwrite", "replace", "clone", "drop")
_AIRFLOW = (
    "kill_worker",
    "kill_worker",
    "mark_success",
    "clear",
    "lose_store",
    "duplicate",
    "edit_plan",
    "edit_xcom",
    "clock",
)
#: The last step at which an event of a schedule happens.
_LONGEST = 320


#: A job of p was frozen after its last look at a table, and commits into the one that q has made there since.
STRAY = Schedule(
    60024,
    "type1",
    "gs",
    (
        Event(122, "source", "update", number=98),
        Event(234, "run", "q", number=89),
        Event(183, "run", "p", number=58),
        Event(7, "run", "p", number=37),
        Event(91, "fault", "freeze", "read_log", 6186),
        Event(239, "target", "drop", number=75),
    ),
)


#: A RESTORE hides that the commit before it was overwritten.
HIDDEN = Schedule(
    81494,
    "type1",
    "s3",
    (
        Event(0, "run", "p", number=2),
        Event(12, "source", "overwrite", number=32),
        Event(157, "run", "p", number=98),
        Event(299, "target", "restore", number=49),
        Event(111, "fault", "freeze", "commit_put", 7139),
    ),
    safe=False,
)


def drawn(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    random = Random(seed)
    kind = random.choice(("type1", "type1", "type2", "append"))
    safe = random.random() < 0.85
    events = [Event(0, "run", "p", number=2)]
    for _ in range(random.randint(1, 4)):
        at = random.randrange(_LONGEST)
        events.append(Event(at, "source", random.choice(_SOURCE), number=random.randrange(100)))
    for _ in range(random.randint(1, 3)):
        pipeline = "p" if random.random() < 0.9 else "q"
        events.append(Event(random.randrange(_LONGEST), "run", pipeline, number=random.randrange(1, 100)))
    for _ in range(random.choice((0, 1, 1, 2, 2, 3, 4))):
        aim = random.choice(_AIMS)
        names = faults_of(aim) if aim else ("crash", "freeze", "error", "lost", "short")
        at, number = random.randrange(_LONGEST), random.randrange(10_000)
        events.append(Event(at, "fault", random.choice(names), aim, number))
    for _ in range(random.choice((0, 1, 1, 2, 2, 3))):
        what, names = random.choice(
            (("target", _TARGET), ("target", _TARGET), ("airflow", _AIRFLOW), ("airflow", _AIRFLOW))
        )
        if random.random() < 0.1:
            what, names = "source", _ACCIDENTS
        at, name = random.randrange(40, _LONGEST), random.choice(names)
        events.append(Event(at, what, name, number=random.randrange(100)))
    if not safe and random.random() < 0.5:
        at, number = random.randrange(40, _LONGEST), random.randrange(10_000) | 1
        events.append(Event(at, "fault", "freeze", "commit_put", number))
    return Schedule(
        seed,
        kind,
        random.choice(("gs", "s3")),
        tuple(events),
        safe=safe,
        lag=random.choice((0, 0, 0, 40)) if safe else 0,
        versions_per_commit=random.choice((None, None, 1, 2)),
    )


@dataclass(frozen=True)
class Failure:
    """A schedule that breaks a rule."""

    schedule: Schedule
    error: BaseException

    @property
    def world(self) -> World:
        world: World = self.error.world  # type: ignore[attr-defined]
        return world

    def text(self, lines: int = 14) -> str:
        """Return the schedule as a story."""
        one = self.schedule
        safe = "" if one.safe else ", unsafe store"
        head = f"seed {one.seed}: {one.kind} on {one.scheme}{safe}, lag {one.lag}, {one.versions_per_commit}"
        events = [f"  {event}" for event in one.events]
        return "\n".join(
            [head, *events, *self.world.story[-lines:], f"{type(self.error).__name__}: {self.error}"]
        )


def outcome(schedule: Schedule, coverage: Coverage | None = None) -> Failure | None:
    """Play a schedule; return how it fails, or None."""
    try:
        with warnings.catch_warnings():
            # A process that crashed leaves coroutines behind.
            warnings.simplefilter("ignore", RuntimeWarning)
            play(schedule, coverage)
    except Exception as error:  # noqa: BLE001 - an error of the simulator's own is a failure, too
        return Failure(schedule, error)
    return None


def shrunk(failure: Failure, outcome: Callable[[Schedule], Failure | None] = outcome) -> Failure:
    """Return the failure with as few events, and as few special circumstances, as it needs."""
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(failure.schedule):
            found = outcome(smaller)
            if found is not None:
                failure, changed = found, True
                break
    return failure


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    events = schedule.events
    for position in range(len(events)):
        yield replace(schedule, events=events[:position] + events[position + 1 :])
    if schedule.lag:
        yield replace(schedule, lag=0)
    if not schedule.safe:
        yield replace(schedule, safe=True)
    if schedule.versions_per_commit is not None:
        yield replace(schedule, versions_per_commit=None)


def failures(seeds: range, coverage: Coverage) -> Iterator[Failure]:
    """Play the schedules of seeds, and yield those that fail."""
    gc.disable()
    try:
        for count, seed in enumerate(seeds):
            found = outcome(drawn(seed), coverage)
            if count % 50 == 49:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)
                    gc.collect()
            if found is not None:
                yield found
    finally:
        gc.enable()
