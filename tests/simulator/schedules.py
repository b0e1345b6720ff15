"""Draw schedules from seeds, play many, and make a failing one small."""

from __future__ import annotations

import gc
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from tests.simulator.promises import PROMISES
from tests.simulator.world import Event, Schedule, World, faults_of, play

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.simulator.promises import Promise

Coverage = Counter[tuple[str, str]]

#: The ends of the names of the steps that faults aim at; "" is any step.
_AIMS = (
    *("", "", "head", "get", "list", "read_log", "hash", "start", "read_source", "write_data", "submit"),
    *("commit", "commit", "commit", "answer", "answer", "state_get", "state_set", "state_delete", "xcom"),
    *("announced", "backup_get", "backup_set", "success", "success", "sleep"),
)
#: The same by their whole names: a part of all faults is drawn evenly from the pairs of a step and a fault.
_STEPS = (
    *(f"confirm.{name}" for name in ("announced", "get", "head", "list", "backup_get")),
    *(f"confirm.{name}" for name in ("state_delete", "state_get", "state_set", "success", "xcom")),
    *(
        f"plan.{name}"
        for name in ("announced", "backup_get", "get", "head", "list", "sleep", "success", "xcom")
    ),
    *(f"publish.{name}" for name in ("announced", "get", "list", "put", "state_delete", "xcom")),
    *(f"plan.{name}" for name in ("state_get", "state_set", "state_delete")),
    *(f"publish.{name}" for name in ("backup_set", "success")),
    *(f"job.{name}" for name in ("commit", "hash", "read_log", "read_source", "start", "write_data")),
    *("task.answer", "task.submit"),
)
_PAIRS = tuple((step, fault) for step in _STEPS for fault in faults_of(step))
#: Steps of the tasks of a group.
_OF_GROUPS = (
    *(f"publish.{name}" for name in ("announced", "get", "list", "put")),
    *(f"confirm.{name}" for name in ("state_delete", "state_set", "success", "xcom")),
    *("plan.state_delete", "plan.success", "plan.xcom"),
)
#: Steps that need more than an ordinary schedule.
_RARE_STEPS = ("plan.backup_get", "confirm.backup_get", "job.commit_put", *_OF_GROUPS)
_RARE = (
    *((step, fault) for step in _RARE_STEPS for fault in faults_of(step)),
    *((f"{phase}.list", "stale") for phase in ("plan", "confirm", "publish")),
    *(("job.commit", fault) for fault in ("torn", "twice")),
)
#: How many of the schedules aim at one of these pairs.
_AIMED = 0.15
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
    "checkpoint",
)
_ACCIDENTS = ("recreate", "recreate", "vacuum", "clean", "clean", "put_back", "put_back")
#: Where a job, or its task, is frozen while others change its tables.
_RACES = (
    *("start", "read_log", "hash", "read_source", "write_data", "commit", "job.hash", "job.hash"),
    *("confirm.list", "confirm.get", "publish.xcom", "plan.list", "state_set", "submit"),
)
_RACING = (
    *(("target", name) for name in ("restore", "restore", "overwrite", "replace", "drop", "optimize")),
    *(("target", "put_back"), ("source", "recreate"), ("source", "put_back"), ("source", "replace")),
    *(("form", "take_over"), ("form", "reset"), ("run", "q")),
)
_TARGET = (
    "optimize",
    "vacuum",
    "restore",
    "restore",
    "restore",
    "overwrite",
    "replace",
    "clone",
    "drop",
    "checkpoint",
    "clean",
    "clean",
    "put_back",
)
_FORM = ("reset", "reload", "take_over", "take_over")
_AIRFLOW = (
    "kill_worker",
    "kill_worker",
    "mark_success",
    "clear",
    "lose_store",
    "duplicate",
    "edit_plan",
    "edit_xcom",
    "edit_backup",
    "lose_events",
    "clock",
)
_ACCIDENTS_OF = (
    ("target", _TARGET),
    ("target", _TARGET),
    ("airflow", _AIRFLOW),
    ("airflow", _AIRFLOW),
    ("form", _FORM),
)


@dataclass(frozen=True)
class Length:
    """How much happens in a schedule.

    :param last: the last step at which an event happens
    :param statements, runs: at most this many, and at least one
    :param faults, accidents: how many, as a choice
    :param groups, races: how many of the schedules have a group, or a race
    """

    last: int
    statements: int
    runs: int
    faults: tuple[int, ...]
    accidents: tuple[int, ...]
    groups: float
    races: float


_LONG = Length(320, 4, 3, (0, 1, 1, 2, 2, 3, 4), (0, 1, 1, 2, 2, 3), 0.2, 0.35)
_MIDDLE = Length(200, 2, 2, (0, 1, 1, 2), (0, 1, 1, 2), 0.1, 0.35)
_SHORT = Length(140, 1, 1, (0, 1, 1), (0, 1), 0.03, 0.35)
#: One is drawn for each schedule.
LENGTHS = (_SHORT, _SHORT, _SHORT, _SHORT, _SHORT, _MIDDLE, _MIDDLE, _LONG)


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
    gaps=False,
)


#: Between two commits of a job, the table is put back from a copy.
BETWEEN = Schedule(
    26,
    "type1",
    "s3",
    (
        Event(0, "run", "p", number=2),
        Event(65, "source", "overwrite", number=5),
        Event(103, "run", "p", number=89),
        Event(113, "fault", "freeze", "", 2362),
        Event(124, "fault", "crash", "commit", 9570),
        Event(62, "fault", "freeze", "commit_put", 125),
        Event(200, "form", "take_over", number=85),
        Event(142, "airflow", "kill_worker", number=32),
        Event(219, "source", "append", number=7),
        Event(220, "run", "p", number=12),
        Event(220, "fault", "freeze", "hash", 5546),
        Event(276, "target", "put_back", number=70),
    ),
    safe=False,
    gaps=False,
)


#: A reset hides that the commit before it was overwritten.
BEHIND = Schedule(
    5207,
    "type1",
    "s3",
    (
        Event(82, "fault", "freeze", "commit_put", 7281),
        Event(211, "form", "reset", number=66),
        Event(68, "form", "reload", number=98),
    ),
    safe=False,
    gaps=False,
)


#: A job wakes after its target was put back and overwritten: another commit has the version of its plan.
REPLACED = Schedule(
    704029,
    "type1",
    "file",
    (
        Event(0, "run", "p", number=2),
        Event(20, "source", "append", number=98),
        Event(99, "source", "update", number=78),
        Event(195, "target", "overwrite", number=86),
        Event(106, "source", "update", number=49),
        Event(107, "run", "p", number=44),
        Event(113, "fault", "freeze", "read_log", 6369),
        Event(163, "target", "put_back", number=70),
    ),
    lag=0,
    versions_per_commit=1,
)


#: A target without keys is dropped while a job works: Spark's append makes another table.
RECREATED = Schedule(
    773058,
    "append",
    "s3",
    (
        Event(0, "run", "p", number=2),
        Event(65, "source", "update", number=27),
        Event(66, "run", "p", number=14),
        Event(66, "fault", "freeze", "job.hash", 3144),
        Event(108, "target", "drop", number=62),
    ),
)

#: A target is put back while a job works, and a checkpoint hides the commit in place of the one that the job
#: was planned on.
CHECKPOINTED = Schedule(
    762892,
    "type1",
    "s3",
    (
        Event(0, "run", "p", number=2),
        Event(38, "source", "append", number=35),
        Event(84, "run", "p", number=2),
        Event(185, "run", "p", number=3),
        Event(41, "fault", "freeze", "commit_put", 7047),
        Event(176, "target", "put_back", number=60),
        Event(274, "target", "checkpoint", number=71),
    ),
    safe=False,
    lag=0,
)

#: A take-over reads the log twice; the closing seal, which comes between, is overwritten later.
CLOSED_BETWEEN = Schedule(
    761928,
    "type2",
    "file",
    (
        Event(0, "run", "p", number=2),
        Event(101, "source", "overwrite", number=66),
        Event(305, "source", "append", number=42),
        Event(132, "source", "append", number=43),
        Event(154, "source", "restore", number=19),
        Event(233, "run", "p", number=32),
        Event(136, "fault", "freeze", "answer", 2089),
        Event(301, "fault", "crash", "read_log", 823),
        Event(88, "fault", "freeze", "commit_put", 6587),
        Event(148, "form", "take_over", number=19),
        Event(70, "fault", "freeze", "job.commit_put", 1376),
        Event(62, "source", "update", number=98),
        Event(63, "run", "p", number=79),
        Event(67, "fault", "freeze", "state_set", 6765),
    ),
    safe=False,
    lag=0,
    versions_per_commit=1,
)


#: Of two first loads, the one with the later number writes the quarantine, and the other one the target.
LATER_NUMBER = Schedule(
    3014503,
    "type2",
    "file",
    (
        Event(0, "run", "p", number=2),
        Event(81, "fault", "freeze", "read_log", 2653),
        Event(162, "airflow", "clear", number=53),
        Event(19, "source", "tear", number=65),
    ),
    aside=True,
)
#: The target refuses a reload, whose rows in quarantine have the number of the next step.
LEFT_BY_A_RELOAD = Schedule(
    3000079,
    "type1",
    "gs",
    (
        Event(12, "source", "update", number=56),
        Event(7, "run", "p", number=19),
        Event(62, "form", "reload", number=2),
        Event(63, "source", "poison", number=50),
    ),
    versions_per_commit=1,
    aside=True,
)
#: A try that died after its commit to the quarantine is resumed without limits, and the target refuses it.
#: The next run has the limits again.
RESUMED = Schedule(
    4111323,
    "type1",
    "file",
    (
        Event(0, "run", "p", number=2),
        Event(198, "source", "update", number=44),
        Event(292, "fault", "crash", "", 2597),
        Event(248, "target", "restore", number=89),
        Event(313, "source", "tear", number=69),
        Event(77, "source", "poison", number=60),
        Event(206, "source", "cure"),
        Event(249, "run", "p", number=37),
    ),
    versions_per_commit=2,
    aside=True,
)
#: A listing that lags lacks the newest of a job's commits.
LISTED_LATE = Schedule(
    3005967,
    "type2",
    "s3",
    (
        Event(0, "run", "p", number=2),
        Event(55, "source", "update", number=28),
        Event(121, "run", "p", number=89),
        Event(79, "source", "put_back", number=13),
        Event(84, "fault", "stale", "confirm.list", 6721),
    ),
    versions_per_commit=1,
    stale=True,
    aside=True,
)


def drawn(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    random = Random(seed)
    kind = random.choice(("type1", "type1", "type2", "append"))
    length = random.choice(LENGTHS)
    step, fault = random.choice(_RARE) if random.random() < _AIMED else ("", "")
    promise = random.choice([one for one in PROMISES.values() if one.has(step, fault)])
    group = random.random() < length.groups or (step in _OF_GROUPS)
    events = [Event(0, "run", "p", number=2), *work(random, length), *faults(random, promise, length)]
    events += accidents(random, length)
    if fault:
        events += _aimed(random, length, step, fault)
    if group:
        events += _group_work(random, length)
    if random.random() < length.races:
        events += race(random, length)
    if promise.torn and random.random() < 0.5:
        events.append(Event(random.randrange(length.last), "source", "tear", number=random.randrange(100)))
    schedule = Schedule(
        seed,
        kind,
        promise.scheme,
        tuple(events),
        safe=promise.safe,
        lag=promise.lag,
        versions_per_commit=random.choice((None, None, 1, 2)),
        torn=promise.torn,
        stale=promise.stale,
        forgiving=random.random() < 0.25,
        group=group,
    )
    has_aside = seed % 4 == 3 and kind != "append" and promise.safe and not group
    # Drawn apart, so that other seeds keep their events.
    return _with_aside(Random(f"aside {seed}"), schedule, length) if has_aside else schedule


def _with_aside(random: Random, schedule: Schedule, length: Length) -> Schedule:
    """Return a schedule whose target has a quarantine, and may refuse rows."""
    events = list(schedule.events)
    if random.random() < 0.5:
        at = random.randrange(length.last)
        events.append(Event(at, "source", "poison", number=random.randrange(100)))
        if random.random() < 0.5:
            events.append(Event(random.randrange(at, length.last + 100), "source", "cure"))
        events.append(Event(at + 1, "run", "p", number=random.randrange(100)))
    if random.random() < 0.3:
        name = random.choice(("restore", "restore", "drop", "optimize"))
        at, number = random.randrange(30, length.last + 60), random.randrange(100)
        events.append(Event(at, "quarantine", name, number=number))
    has_replays = schedule.seed % 3 == 0
    if has_replays:
        events += _replays(random, length)
    return replace(schedule, events=tuple(events), aside=True, replays=has_replays)


def _replays(random: Random, length: Length) -> Iterator[Event]:
    """Yield changes of the rule that sets rows aside, replays and repairs."""
    for name in random.sample(("loosen", "tighten", "loosen", "tighten"), random.randint(1, 4)):
        yield Event(random.randrange(length.last), "rule", name)
    for _ in range(random.randint(1, 2)):
        at, name = (
            random.randrange(40, length.last),
            random.choice(("replay", "replay", "repair", "take_over")),
        )
        yield Event(at, "form", name, number=random.randrange(100))
    yield Event(random.randrange(length.last), "source", "update", number=random.randrange(100))
    yield Event(random.randrange(length.last), "run", "p", number=random.randrange(100))


def work(random: Random, length: Length) -> list[Event]:
    """Return statements of the source, and runs."""
    events = []
    for _ in range(random.randint(1, length.statements)):
        at = random.randrange(length.last)
        events.append(Event(at, "source", random.choice(_SOURCE), number=random.randrange(100)))
    for _ in range(random.randint(1, length.runs)):
        at, pipeline = random.randrange(length.last), "p" if random.random() < 0.9 else "q"
        events.append(Event(at, "run", pipeline, number=random.randrange(1, 100)))
    return events


def race(random: Random, length: Length, others: Sequence[tuple[str, str]] = _RACING) -> list[Event]:
    """Return a run with work, which is frozen at a step while another writer changes its tables.

    :param others: what that writer may do
    """
    at = random.randrange(60, length.last - 60)
    what, name = random.choice(others)
    freeze = (40 + random.randrange(170)) * 37 + random.randrange(37)
    return [
        Event(at, "source", random.choice(("append", "update", "update")), number=random.randrange(100)),
        Event(at + 1, "run", "p", number=random.randrange(100)),
        Event(at + random.randrange(12), "fault", "freeze", random.choice(_RACES), freeze),
        Event(at + 40 + random.randrange(30), what, name, number=random.randrange(100)),
    ]


def _aimed(random: Random, length: Length, step: str, fault: str) -> Iterator[Event]:
    """Yield a fault at a rare step, and what lets a process reach it."""
    at = random.randrange(length.last - 60)
    yield Event(at, "fault", fault, step, random.randrange(10_000))
    if step.endswith("backup_get"):
        # The sealed commit is cleaned, while a task waits for its answer or before it.
        yield Event(at + 1, "source", "append", number=random.randrange(100))
        yield Event(at + 2, "run", "p", number=1)
        if step.startswith("confirm"):
            yield Event(at + 3, "fault", "freeze", "task.answer", 37 * 60 + 1)
        yield Event(at + 45, "target", "clean", number=random.choice((1, 7, 11)))


def _group_work(random: Random, length: Length) -> list[Event]:
    """Return runs of the group, and statements of its other source."""
    events = []
    for _ in range(random.randint(1, 3)):
        at, number = random.randrange(length.last), random.randrange(1, 100)
        events.append(Event(at, "group", "g", number=number))
    for _ in range(random.randint(1, 2)):
        at, name = random.randrange(length.last), random.choice(("append", "update", "delete"))
        events.append(Event(at, "source2", name, number=random.randrange(100)))
    return events


def faults(random: Random, promise: Promise, length: Length) -> list[Event]:
    events = []
    for _ in range(random.choice(length.faults)):
        if random.random() < 0.7:
            aim = random.choice(_AIMS)
            some = ("crash", "freeze", "error", "lost", "short", "throttle")
            name = random.choice(faults_of(aim, promise) if aim else some)
        else:
            aim, name = random.choice(_PAIRS)
        at, number = random.randrange(length.last), random.randrange(10_000)
        events.append(Event(at, "fault", name, aim, number))
    if not promise.safe and random.random() < 0.5:
        at, number = random.randrange(40, length.last), random.randrange(10_000) | 1
        events.append(Event(at, "fault", "freeze", "commit_put", number))
    return events


def accidents(random: Random, length: Length) -> list[Event]:
    """Return what other writers, people and Airflow do."""
    events = []
    for _ in range(random.choice(length.accidents)):
        what, names = random.choice(_ACCIDENTS_OF)
        if random.random() < 0.2:
            what, names = "source", _ACCIDENTS
        at, name = random.randrange(40, length.last), random.choice(names)
        events.append(Event(at, what, name, number=random.randrange(100)))
    return events


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
    if schedule.group and not any(event.what in ("group", "source2") for event in schedule.events):
        yield replace(schedule, group=False)
    for name in ("torn", "stale", "forgiving"):
        if getattr(schedule, name):
            yield replace(schedule, **{name: False})
    if schedule.versions_per_commit is not None:
        yield replace(schedule, versions_per_commit=None)


def _played(seed: int, coverage: Coverage) -> Failure | None:
    return outcome(drawn(seed), coverage)


def failures(
    seeds: range, coverage: Coverage, played: Callable[[int, Coverage], Failure | None] = _played
) -> Iterator[Failure]:
    """Play the schedules of seeds, and yield those that fail.

    :param played: plays the schedule of a seed
    """
    # What was imported needs no collection.
    gc.freeze()
    gc.disable()
    try:
        for count, seed in enumerate(seeds):
            found = played(seed, coverage)
            if count % 50 == 49:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)
                    gc.collect()
            if found is not None:
                yield found
    finally:
        gc.enable()
        gc.unfreeze()
