"""Draw schedules of ingests from seeds, and play them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from tests.simulator.ingest_world import IngestSchedule, play
from tests.simulator.promises import PROMISES
from tests.simulator.schedules import Failure
from tests.simulator.world import Event, faults_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulator.promises import Promise
    from tests.simulator.schedules import Coverage

#: The ends of the names of the steps that faults aim at; "" is any step.
_AIMS = (
    *("", "", "head", "get", "list", "offsets", "read_log", "hash", "start", "read_source", "submit"),
    *("record.commit", "record.commit", "quarantine.commit", "log.commit", "log.commit", "commit"),
    *("write_data", "answer", "answer", "state_get", "state_set", "state_delete", "xcom", "settle.commit"),
    *("announced", "backup_get", "backup_set", "success", "success", "sleep"),
)
_FILES = (
    *("deliver", "deliver", "several", "late", "grow", "grow", "rewrite", "repeat", "copy", "rename"),
    *("remove", "back", "damage", "damage", "killer"),
)
_TOPIC = ("produce", "produce", "produce", "produce", "partition", "compact", "compact", "expire", "recreate")
_AIRFLOW = (
    *("kill_worker", "kill_worker", "mark_success", "clear", "lose_store", "duplicate", "edit_plan"),
    *("edit_xcom", "clock"),
)
#: What may happen to the tables if no pipeline applies the log: that apply refuses a log that lost events.
_DAMAGE = (
    *("restore log", "restore log", "restore log", "restore log__ingested", "drop log__ingested"),
    *("drop log", "drop both", "optimize log", "optimize log__ingested"),
)
_CARE = ("optimize log", "optimize log__ingested", "drop log__ingested", "restore log__ingested")
#: What may happen to the quarantine.
_ASIDE = ("restore", "restore", "restore", "drop", "optimize")
#: The stores of these schedules. A store that overwrites a commit is played by the schedules of applies.
_STORES = (
    *("gs", "abfss", "s3, conditional writes", "s3, DynamoDB", "s3, listings that lag"),
    *("disk, our log store", "disk, files that are seen while they are written"),
)
#: The steps of a run, by their whole names: a part of all faults is drawn evenly from the pairs of a step and
#: a fault.
_STEPS = (
    *(f"plan.{name}" for name in ("announced", "get", "head", "list", "offsets", "sleep")),
    *(f"plan.{name}" for name in ("state_get", "state_set", "state_delete")),
    *(f"confirm.{name}" for name in ("announced", "get", "head", "list")),
    *(f"confirm.{name}" for name in ("state_get", "state_set", "state_delete")),
    *(f"publish.{name}" for name in ("backup_set", "state_delete", "success", "xcom")),
    *(f"job.{name}" for name in ("commit", "hash", "read_log", "read_source", "start", "write_data")),
    *(
        f"{of}.{name}"
        for of in ("log", "record", "quarantine")
        for name in ("commit", "read_log", "write_data")
    ),
    *("task.answer", "task.submit"),
)
#: The same of runs that also apply the log, stage it, or replay the quarantine.
_TARGET = tuple(
    f"then.{name}"
    for name in ("commit", "get", "hash", "head", "list", "read_log", "read_source", "write_data")
)
_STAGING = (
    *("deliver.commit", "deliver.read_log"),
    *(f"staging.{name}" for name in ("commit", "read_log", "write_data")),
)
_SETTLE = tuple(f"settle.{name}" for name in ("commit", "read_log", "write_data"))
#: The last step at which an event of a schedule happens.
_LONGEST = 420


def drawn(seed: int) -> IngestSchedule:
    """Return the schedule of a seed."""
    random = Random(seed)
    source = random.choice(("files", "files", "topic"))
    use = random.choice(("", "", "target", "target", "staging"))
    promise = PROMISES[random.choice(_STORES)]
    settles = source == "files" and random.random() < 0.1
    events = [
        *_delivered(random, source),
        *_runs(random, use),
        *_faults(random, promise, use, settles=settles),
        *(_settled(random) if settles else ()),
        *_accidents(random, _CARE if use else _DAMAGE),
        *(_vanished(random) if source == "files" and random.random() < 0.1 else ()),
        # Drawn apart, so that older seeds keep their events.
        *(_set_aside(Random(f"quarantine {seed}")) if seed % 5 == 1 else ()),
    ]
    return IngestSchedule(
        seed,
        "type1",
        promise.scheme,
        tuple(events),
        lag=promise.lag,
        torn=promise.torn,
        stale=promise.stale,
        source=source,
        target=use == "target",
        # Not drawn, so that older seeds keep their events.
        beside=use == "target" and seed % 3 == 0,
        ordered=source == "files" and random.random() < 0.15,
        limit=random.choice((None, None, 1, 2)),
        etags=random.random() < 0.8,
        continues=random.random() < 0.3,
        staging=use == "staging",
        versions_per_commit=random.choice((None, 1, 2)) if use == "staging" else None,
    )


def _delivered(random: Random, source: str) -> Iterator[Event]:
    """Yield what arrives; at least one file or record is there at the beginning."""
    first = "deliver" if source == "files" else "produce"
    what, names = ("files", _FILES) if source == "files" else ("topic", _TOPIC)
    yield Event(0, what, first, number=random.randrange(100))
    for _ in range(random.randint(2, 6)):
        at = random.randrange(_LONGEST)
        yield Event(at, what, random.choice(names), number=random.randrange(100))
    if random.random() < 0.2:
        yield Event(random.randrange(_LONGEST), "adapter", "correct")


def _runs(random: Random, use: str) -> Iterator[Event]:
    yield Event(1, "run", "p", number=2)
    for _ in range(random.randint(1, 3)):
        mode = ".replay" if random.random() < 0.15 else ""
        yield Event(random.randrange(_LONGEST), "run", f"p{mode}", number=random.randrange(1, 100))
    if random.random() < 0.2:
        for _ in range(2):
            at = random.randrange(_LONGEST)
            yield Event(at, "others_files", "deliver", number=random.randrange(100))
            yield Event(at + 1, "run", "q", number=random.randrange(100))
    if use == "staging":
        for _ in range(random.randint(1, 3)):
            yield Event(random.randrange(80, _LONGEST), "run", "s", number=random.randrange(100))


def _faults(random: Random, promise: Promise, use: str, *, settles: bool) -> Iterator[Event]:
    of_use = {"target": _TARGET, "staging": _STAGING}.get(use, ())
    for _ in range(random.choice((0, 1, 1, 2, 2, 3, 4))):
        aim = random.choice(_AIMS if random.random() < 0.6 else (*_STEPS, *of_use, *of_use, *of_use))
        if settles and random.random() < 0.7:
            aim = random.choice(_SETTLE)
        faults = faults_of(aim, promise) if aim else ("crash", "freeze", "error", "lost", "short", "throttle")
        at, number = random.randrange(_LONGEST), random.randrange(10_000)
        yield Event(at, "fault", random.choice(faults), aim, number)


def _settled(random: Random) -> Iterator[Event]:
    """Yield a correction of the adapter, and a replay, which then has records to remove from quarantine."""
    at = random.randrange(200, _LONGEST)
    yield Event(at, "files", "deliver", number=random.randrange(100))
    yield Event(at + 40, "adapter", "correct")
    yield Event(at + 80, "run", "p.replay", number=random.randrange(1, 100))


def _accidents(random: Random, of_tables: tuple[str, ...]) -> Iterator[Event]:
    for _ in range(random.choice((0, 0, 1, 1, 2))):
        at, number = random.randrange(40, _LONGEST), random.randrange(100)
        what, names = random.choice((("airflow", _AIRFLOW), ("tables", of_tables)))
        yield Event(at, what, random.choice(names), number=number)


def _set_aside(random: Random) -> Iterator[Event]:
    """Yield what other writers do to the quarantine."""
    for _ in range(random.choice((1, 1, 2))):
        name = f"{random.choice(_ASIDE)} log__quarantine"
        yield Event(random.randrange(40, _LONGEST), "tables", name, number=random.randrange(100))


def _vanished(random: Random) -> Iterator[Event]:
    """A file vanishes between the record of its batch and the next try, and comes back later."""
    at, number = random.randrange(_LONGEST), random.randrange(1, 100)
    yield Event(at, "files", "several", number=number)
    yield Event(at + 1, "run", "p", number=number)
    yield Event(at + 1, "fault", "crash", "log.commit", number % 20 + 17)
    yield Event(at + 40, "files", "remove", number=number)
    yield Event(at + 200, "files", "back", number=number)


#: A file that ended the application grows, is read, and the step after the commit of its events fails.
READ_AGAIN = IngestSchedule(
    701959,
    "type1",
    "file",
    (
        Event(0, "files", "deliver", number=45),
        Event(281, "files", "deliver", number=61),
        Event(188, "files", "deliver", number=70),
        Event(176, "files", "killer", number=71),
        Event(310, "files", "grow", number=63),
        Event(1, "run", "p", number=2),
        Event(376, "run", "p", number=10),
        Event(210, "run", "p", number=50),
        Event(108, "fault", "crash", "settle.read_log", 397),
    ),
    versions_per_commit=1,
    torn=True,
    staging=True,
)
#: A log is dropped while a job works: Spark's append makes another table.
RECREATED = IngestSchedule(
    750171,
    "type1",
    "gs",
    (
        Event(0, "topic", "produce", number=60),
        Event(227, "topic", "produce", number=42),
        Event(1, "run", "p", number=2),
        Event(347, "run", "p", number=92),
        Event(126, "fault", "freeze", "record.commit", 8472),
        Event(388, "tables", "drop log", number=11),
    ),
    source="topic",
    limit=2,
)
#: A RESTORE undoes the batch of a file that cannot be read.
UNDONE = IngestSchedule(
    1,
    "type1",
    "gs",
    (
        Event(0, "files", "deliver", number=2),
        Event(1, "run", "p"),
        Event(100, "files", "deliver", number=3),
        Event(101, "files", "damage"),
        Event(110, "run", "p"),
        Event(250, "tables", "restore log"),
        Event(260, "run", "p"),
    ),
)
#: Log and record are dropped while two pipelines work; one makes the log again, the other plans again.
DROPPED = IngestSchedule(
    701991,
    "type1",
    "s3",
    (
        Event(0, "topic", "produce", number=13),
        Event(204, "topic", "produce", number=31),
        Event(9, "topic", "recreate", number=2),
        Event(1, "topic", "compact", number=86),
        Event(1, "run", "p", number=2),
        Event(385, "run", "p", number=36),
        Event(180, "run", "p", number=99),
        Event(30, "others_files", "deliver", number=46),
        Event(31, "run", "q", number=77),
        Event(366, "others_files", "deliver", number=95),
        Event(367, "run", "q", number=12),
        Event(142, "fault", "throttle", "job.commit", 5260),
        Event(418, "tables", "drop both", number=16),
    ),
    lag=40,
    source="topic",
)


#: Both tables of a log are dropped, then a replay takes records whose files are ingested again after it.
REPLAYED = IngestSchedule(
    990061,
    "type1",
    "s3",
    (
        Event(0, "files", "deliver", number=70),
        Event(121, "files", "grow", number=19),
        Event(153, "files", "several", number=57),
        Event(154, "run", "p", number=57),
        Event(382, "tables", "drop both", number=38),
        Event(406, "others_files", "deliver", number=59),
        Event(407, "run", "q", number=94),
        Event(425, "adapter", "correct"),
        Event(465, "run", "p.replay", number=38),
    ),
    etags=False,
)


#: A RESTORE undoes a replay, whose records are in quarantine no more.
REPLAY_UNDONE = IngestSchedule(
    995389,
    "type1",
    "file",
    (
        Event(0, "files", "deliver", number=0),
        Event(162, "adapter", "correct", number=0),
        Event(58, "run", "p", number=22),
        Event(220, "run", "p.replay", number=50),
        Event(327, "tables", "restore log", number=72),
    ),
)
#: A RESTORE undoes a batch, while the next one is recorded, and not in the log.
UNDONE_BEFORE = IngestSchedule(
    995773,
    "type1",
    "s3",
    (
        Event(1, "files", "grow", number=27),
        Event(270, "files", "late", number=89),
        Event(1, "run", "p", number=2),
        Event(265, "run", "p", number=79),
        Event(396, "tables", "restore log", number=52),
        Event(352, "files", "several", number=16),
        Event(353, "run", "p", number=16),
        Event(353, "fault", "crash", "log.commit", 33),
    ),
    ordered=True,
    limit=1,
    etags=False,
    continues=True,
)
#: The quarantine is dropped while its replay is recorded, and not in the log.
QUARANTINE_DROPPED = IngestSchedule(
    2013971,
    "type1",
    "abfss",
    (
        Event(0, "files", "deliver", number=88),
        Event(1, "run", "p", number=2),
        Event(91, "run", "p.replay", number=15),
        Event(102, "fault", "lost", "record.commit", 2196),
        Event(164, "tables", "drop log__quarantine", number=35),
    ),
    staging=True,
    etags=False,
)


@dataclass(frozen=True)
class IngestFailure(Failure):
    """A schedule that breaks a rule."""

    schedule: IngestSchedule

    def text(self, lines: int = 14) -> str:
        """Return the schedule as a story."""
        one = self.schedule
        events = [f"  {event}" for event in one.events]
        end = f"{type(self.error).__name__}: {self.error}"
        return "\n".join([f"seed {one.seed}: ingest of {one.text}", *events, *self.world.story[-lines:], end])


def outcome(schedule: IngestSchedule, coverage: Coverage | None = None) -> IngestFailure | None:
    """Play a schedule; return how it fails, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            play(schedule, coverage)
    except Exception as error:  # noqa: BLE001 - an error of the simulator's own is a failure, too
        return IngestFailure(schedule, error)
    return None
