"""Published examples of change sets and their answers, and some made by hand, in many orders and cuts.

All examples lie side by side in one log, each several times: keyed by (``case``, ``take``, ``id``), where
every take brings the same events in another order and in other batches.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import event_model as model
from tests.support.event_flow import LogFlow
from tests.support.event_model import Event, Rules
from tests.support.event_streams import FIRST, append, create_log
from tests.support.oracle import rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

KEYS = ("case", "take", "id")
VALUES = {"v": None, "w": None, "n": None}
RULES = Rules(keys=KEYS, columns=VALUES)
DDL = "case string, take int, id int, v string, w string, n int, operation string, sequenceNum int, place int"
TAKES, BATCHES = 12, 3


@dataclass(frozen=True)
class Said:
    """One event of an example."""

    id: int
    seq: int
    v: str | None = None
    n: int | None = None
    w: str | None = None
    operation: str | None = "UPDATE"
    place: int = 0

    def row(self, case: str, take: int) -> tuple[Any, ...]:
        return (case, take, self.id, self.v, self.w, self.n, self.operation, self.seq, self.place)

    def event(self, case: str, take: int) -> Event:
        kind = "delete" if self.operation == "DELETE" else "upsert"
        values = {"v": self.v, "w": self.w, "n": self.n}
        return Event((case, take, self.id), self.seq, kind, values, order=(self.place,))  # type: ignore[arg-type]


def gone(id_: int, seq: int, v: str | None = None) -> Said:
    return Said(id_, seq, v, operation="DELETE")


def user(id_: int, name: str | None, city: str | None, operation: str, seq: int) -> Said:
    return Said(id_, seq, name, w=city, operation=operation)


#: Examples whose ties settle themselves.
EXAMPLES: dict[str, list[Said]] = {
    "users": [
        user(124, "Raul", "Oaxaca", "INSERT", 1),
        user(123, "Isabel", "Monterrey", "INSERT", 1),
        user(125, "Mercedes", "Tijuana", "INSERT", 2),
        user(126, "Lily", "Cancun", "INSERT", 2),
        user(123, None, None, "DELETE", 6),
        user(125, "Mercedes", "Guadalajara", "UPDATE", 6),
        user(125, "Mercedes", "Mexicali", "UPDATE", 5),
        user(123, "Isabel", "Chihuahua", "UPDATE", 5),
    ],
    "runs": [
        Said(1, 5, "Alice", 5),
        Said(1, 10, "Alice", 10),
        Said(1, 15, "Alice", 15),
        Said(1, 20, "Charlie", 20),
    ],
    "nulls, type 1": [Said(1, 1, "before"), gone(1, 2), Said(1, 3), Said(1, 4, "after"), Said(1, 5)],
    "nulls, type 2": [Said(1, 10, "source", 1), Said(1, 20, None, 2)],
    "flags": [
        Said(1, 10, n=10, operation="I"),
        Said(1, 11, n=11, operation="U"),
        gone(1, 13),
        Said(2, 10, n=20, operation="U"),
        gone(3, 10),
    ],
    "flags, rows before": [
        *(Said(key, 1, n=key) for key in (1, 2, 3)),
        Said(1, 10, n=10, operation="I"),
        Said(1, 11, n=11, operation="U"),
        gone(1, 13),
        Said(2, 10, n=20, operation="U"),
        gone(3, 10),
    ],
    "flags, a late one below a delete": [gone(3, 10), Said(3, 5, n=29)],
    # made by hand
    "a gap": [Said(1, 1, "a"), gone(1, 2), gone(1, 3), Said(1, 5, "a")],
    "twice": [Said(1, 1, "a"), Said(1, 1, "a"), Said(1, 2, "b"), Said(1, 2, "b")],
    "a split run": [Said(1, 1, "a", 1), Said(1, 5, "a", 5), Said(1, 9, "a", 9), Said(1, 7, "b", 7)],
    "a run cut by a delete": [Said(1, 1, "a", 1), Said(1, 9, "a", 9), gone(1, 5)],
    "there and back": [Said(1, 1, "a"), Said(1, 2, "b"), Said(1, 3, "a")],
    "null and back": [Said(1, 1, "a"), Said(1, 2), Said(1, 3), Said(1, 4, "a")],
    "a delete alone": [gone(1, 1), gone(2, 1), Said(2, 3, "a")],
    "delete and upsert first": [gone(1, 2), Said(1, 2, "b"), Said(1, 3, None, 3)],
    "a delete takes its upsert with it": [
        *[Said(1, 2, "a"), gone(1, 2)],
        *[Said(2, 1, "a"), Said(2, 2, "b"), gone(2, 2)],
        *[gone(3, 1), Said(3, 2, "a"), gone(3, 2), gone(3, 4)],
    ],
    "a key change": [Said(1, 1, "a", 7), gone(1, 2), Said(2, 2, "a", 7)],
    "two keys swap": [Said(1, 1, "a"), Said(2, 1, "b"), Said(1, 2, "b"), Said(2, 2, "a")],
    "inherited across a late one": [
        Said(1, 1, "a", 1),
        Said(1, 5, None, 5),
        Said(1, 3, "b"),
        Said(1, 9, "b"),
    ],
    "inherited up to a late delete": [Said(1, 1, "a", 1), Said(1, 5, None, 5), gone(1, 3), Said(1, 9, "b")],
    "all null": [Said(1, 1), Said(1, 2), gone(1, 3), Said(1, 4)],
    "no operation": [Said(1, 1, "a", operation=None), Said(1, 2, "b", operation="?")],
}
#: Examples that need a rule for ties.
TIED: dict[str, list[Said]] = {
    "the greater place": [Said(1, 1, "a"), Said(1, 2, "b", place=1), Said(1, 2, "c", place=2)],
    "an upsert after a delete": [Said(1, 1, "a"), replace(gone(1, 2), place=1), Said(1, 2, "b", place=2)],
    "a delete after an upsert": [Said(1, 1, "a"), replace(gone(1, 2), place=2), Said(1, 2, "b", place=1)],
    "halves": [Said(1, 1, "a", 1, "x"), Said(1, 2, "b", place=1), Said(1, 2, None, 2, place=2)],
    "halves at one place": [Said(1, 1, "a", 1, "x"), Said(1, 2, "b"), Said(1, 2, None, 2)],
    "halves and a third": [Said(1, 2, "b"), Said(1, 2, None, 2), Said(1, 2, "c", place=1)],
    "halves above a third": [Said(1, 2, "b", place=1), Said(1, 2, None, 2, place=1), Said(1, 2, "c")],
    "three": [Said(1, 2, "a", place=3), Said(1, 2, "b", place=5), Said(1, 2, "c", place=4), Said(1, 4, "c")],
    "the same at two places": [Said(1, 2, "a", place=1), Said(1, 2, "a", place=2), Said(1, 2, "a", place=2)],
}
#: A tie that a delete settles, in whatever batch it comes.
SETTLED = {
    "delete and upsert together": [Said(1, 1, "a"), gone(1, 2, "x"), Said(1, 2, "b"), Said(1, 2, "c")],
}


@dataclass(frozen=True)
class Configuration:
    """How the examples are applied.

    :param published: what others say is the answer, by example
    """

    scd_type: int
    arguments: dict[str, Any] = field(default_factory=dict)
    rules: Rules = RULES
    examples: dict[str, list[Said]] = field(default_factory=lambda: EXAMPLES)
    published: dict[str, set[tuple[Any, ...]]] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        more: tuple[str, ...] = (model.START, model.END) if self.scd_type == 2 else ()
        return (*KEYS, *VALUES, *((model.DELETED,) if self.is_soft else more))

    @property
    def is_soft(self) -> bool:
        return self.arguments.get("delete_mode") == "soft"

    def expected(self, events: Sequence[Event]) -> list[model.Row]:
        if self.scd_type == 2:
            return model.type_2(events, self.rules)
        return model.type_1_soft(events, self.rules) if self.is_soft else model.type_1(events, self.rules)


USERS = {(124, "Raul", "Oaxaca", None), (125, "Mercedes", "Guadalajara", None), (126, "Lily", "Cancun", None)}
USERS_HISTORY = {
    (123, "Isabel", "Monterrey", None, 1, 5),
    (123, "Isabel", "Chihuahua", None, 5, 6),
    (124, "Raul", "Oaxaca", None, 1, None),
    (125, "Mercedes", "Tijuana", None, 2, 5),
    (125, "Mercedes", "Mexicali", None, 5, 6),
    (125, "Mercedes", "Guadalajara", None, 6, None),
    (126, "Lily", "Cancun", None, 2, None),
}
FLAGS = {(1, None, None, 10, 10, 11), (1, None, None, 11, 11, 13), (2, None, None, 20, 10, None)}
LAST = {"on_conflict": {"last_by": ["place"]}}
SOFT = {"delete_mode": "soft"}

CONFIGURATIONS: dict[str, Configuration] = {
    "type 1": Configuration(
        1,
        published={
            "users": USERS,
            "flags": {(2, None, None, 20)},
            "flags, rows before": {(2, None, None, 20)},
            "flags, a late one below a delete": set(),
        },
    ),
    "type 1 soft": Configuration(
        1,
        SOFT,
        published={
            "users": {(123, "Isabel", "Chihuahua", None, True), *((*row, False) for row in USERS)},
            "a delete takes its upsert with it": {(2, "a", None, None, True)},
        },
    ),
    "type 1 soft, quarantine": Configuration(
        1,
        {"on_conflict": "quarantine", **SOFT},
        replace(RULES, on_conflict="quarantine"),
        {**TIED, **SETTLED},
        published={
            "delete and upsert together": {(1, "a", None, None, True)},
            "halves above a third": set(),
        },
    ),
    "type 2": Configuration(
        2,
        published={
            "users": USERS_HISTORY,
            "flags": FLAGS,
            "flags, a late one below a delete": {(3, None, None, 29, 5, 10)},
        },
    ),
    "type 2 tracks v": Configuration(
        2,
        {"track_history_column_list": ["v"]},
        replace(RULES, tracked=("v",)),
        published={"runs": {(1, "Alice", None, 15, 5, 20), (1, "Charlie", None, 20, 20, None)}},
    ),
    "type 1, nulls ignored": Configuration(
        1,
        {"ignore_null_updates": True},
        replace(RULES, ignore_null_updates=True),
        published={"nulls, type 1": {(1, "after", None, None)}},
    ),
    "type 2, nulls of v ignored": Configuration(
        2,
        {"ignore_null_updates_column_list": ["v"]},
        replace(RULES, ignore_null_updates_column_list=("v",)),
        published={"nulls, type 2": {(1, "source", None, 1, 10, 20), (1, "source", None, 2, 20, None)}},
    ),
    "type 2, last by": Configuration(
        2,
        LAST,
        replace(RULES, on_conflict="last_by"),
        {
            case: said
            for case, said in TIED.items()
            if case not in ("halves at one place", "halves and a third", "halves above a third")
        },
    ),
    "type 2, nulls ignored, last by": Configuration(
        2,
        {"ignore_null_updates": True, **LAST},
        replace(RULES, ignore_null_updates=True, on_conflict="last_by"),
        TIED,
        published={
            "halves at one place": {(1, "a", "x", 1, 1, 2), (1, "b", "x", 2, 2, None)},
            "halves above a third": {(1, "b", None, 2, 2, None)},
        },
    ),
    "type 1, nulls ignored, quarantine": Configuration(
        1,
        {"ignore_null_updates": True, "on_conflict": "quarantine"},
        replace(RULES, ignore_null_updates=True, on_conflict="quarantine"),
        {**EXAMPLES, **TIED, **SETTLED},
        published={
            "halves": {(1, "b", "x", 2)},
            "the greater place": {(1, "a", None, None)},
            "three": {(1, "c", None, None)},
        },
    ),
}


def batches(examples: dict[str, list[Said]]) -> list[list[tuple[Any, ...]]]:
    """Cut every take of every example; the first brings its events in order, the second all at once."""
    made: list[list[tuple[Any, ...]]] = [[] for _ in range(BATCHES)]
    for case, said in examples.items():
        draw = random.Random(case)
        for take in range(TAKES):
            order = draw.sample(said, len(said))
            if take == 0:
                order = sorted(said, key=lambda one: one.seq)
            places = sorted(draw.choices(range(BATCHES), k=len(order)))
            if take == 1:
                places = [BATCHES - 1] * len(order)
            for one, place in zip(order, places, strict=True):
                made[place].append(one.row(case, take))
    return made


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that gives the log of some examples, written when first asked for."""
    logs: dict[tuple[str, ...], str] = {}

    def give(examples: dict[str, list[Said]]) -> str:
        names = tuple(examples)
        if names not in logs:
            logs[names] = str(tmp_path_factory.mktemp("examples") / "log")
            create_log(spark, logs[names], DDL, KEYS)
            for batch in batches(examples):
                append(spark, logs[names], batch, DDL)
        return logs[names]

    return give


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_examples(spark: SparkSession, tmp_path: Path, written: Any, name: str) -> None:
    configuration = CONFIGURATIONS[name]
    arguments = {
        "keys": list(KEYS),
        "stored_as_scd_type": configuration.scd_type,
        "sequence_by": "sequenceNum",
        "apply_as_deletes": "operation = 'DELETE'",
        "except_column_list": ["operation", "sequenceNum", "place"],
        **configuration.arguments,
    }
    flow = LogFlow(spark, written(configuration.examples), str(tmp_path / "target"), arguments)
    for batch in range(BATCHES):
        flow.apply(FIRST + batch)
    _compare(configuration, flow.rows())


def _compare(configuration: Configuration, found: Sequence[model.Row]) -> None:
    wrong: list[tuple[Any, ...]] = []
    for case, said in configuration.examples.items():
        for take in range(TAKES):
            here = [row for row in found if (row["case"], row["take"]) == (case, take)]
            expected = configuration.expected([one.event(case, take) for one in said])
            if rows_of(here, configuration.columns) != rows_of(expected, configuration.columns):
                wrong.append((case, take, here, expected))
            answer = {tuple(row[column] for column in configuration.columns[2:]) for row in here}
            if answer != configuration.published.get(case, answer):
                wrong.append((case, take, here, configuration.published[case]))
    assert not wrong, f"{len(wrong)} takes differ: " + "\n".join(map(str, wrong[:5]))
    assert {row["case"] for row in found} <= set(configuration.examples)


# -- periodic copies ----------------------------------------------------------------------------
COPY_DDL = "case int, id int, v string, n int, day string"
COPIES = 6


def copies() -> list[dict[tuple[int, int], tuple[str | None, int | None]]]:
    """Draw full copies of a table; case 0 is the published example, in its first two copies."""
    draw = random.Random(6)
    values: list[tuple[str | None, int | None]] = [("a", 1), ("b", 1), (None, 1), ("a", None)]
    places = [(case, key) for case in range(1, 60) for key in range(3)]
    drawn = [{place: draw.choice(values) for place in places if draw.random() < 0.6} for _ in range(COPIES)]
    drawn[0] |= {(0, 1): ("a1", None), (0, 2): ("a2", None)}
    for later in drawn[1:]:
        later |= {(0, 2): ("b2", None), (0, 3): ("a3", None)}
    return drawn


def copied_events() -> list[Event]:
    """A key that a copy does not have was deleted at that copy."""
    events, before = [], set[tuple[int, int]]()
    for number, copy in enumerate(copies(), start=1):
        events += [Event(key, f"T{number}", "delete") for key in before - set(copy)]
        events += [Event(key, f"T{number}", values={"v": v, "n": n}) for key, (v, n) in copy.items()]
        before = set(copy)
    return events


@pytest.mark.slow
@pytest.mark.parametrize("scd_type", [1, 2])
def test_periodic_copies(spark: SparkSession, tmp_path: Path, scd_type: int) -> None:
    source = str(tmp_path / "source")
    create_log(spark, source, COPY_DDL, ("case", "id"))
    rows = [
        [(*key, *values, f"T{number}") for key, values in copy.items()]
        for number, copy in enumerate(copies(), start=1)
    ]
    # One commit, one copy; and one commit with two.
    for commit in (rows[:1], rows[1:3], rows[3:4], rows[4:]):
        append(spark, source, [row for copy in commit for row in copy], COPY_DDL)
    arguments = {
        "source_kind": "snapshot",
        "keys": ["case", "id"],
        "stored_as_scd_type": scd_type,
        "snapshot_version_column": "day",
        "except_column_list": ["day"],
    }
    flow = LogFlow(spark, source, str(tmp_path / "target"), arguments)
    for batch in (0, 2, 3):
        flow.apply(FIRST + batch)
    rules = Rules(keys=("case", "id"), columns={"v": None, "n": None})
    columns = ("case", "id", "v", "n", *((model.START, model.END) if scd_type == 2 else ()))
    expected = (model.type_1 if scd_type == 1 else model.type_2)(copied_events(), rules)
    assert rows_of(flow.rows(), columns) == rows_of(expected, columns)
    published = {
        1: {(2, "b2", None), (3, "a3", None)},
        2: {
            (1, "a1", None, "T1", "T2"),
            (2, "a2", None, "T1", "T2"),
            (2, "b2", None, "T2", None),
            (3, "a3", None, "T2", None),
        },
    }
    found = {tuple(row[name] for name in columns[1:]) for row in flow.rows("case = 0")}
    assert found == published[scd_type]
