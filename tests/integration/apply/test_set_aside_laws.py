"""Random changes, rules, repairs and replays of a history of a feed, against a model in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.apply.test_set_aside import BY_N, INVALID, REPLAY, Orders, made
from tests.support.engine import table_rows
from tests.support.random_logs import seeds

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

KEYS, ROUNDS = range(1, 61), 5
#: The least valid amount of a rule; None: no rule.
LIMITS = (-9, 0, 5)

#: The version that is loaded.
LOADED = 3

Row = tuple[int, int, int | None]
Interval = tuple[int, int, int, int | None]


@dataclass(frozen=True)
class Event:
    """A change of one key.

    :param amount: the new amount; None for a delete
    :param place: where it belongs in the history; None: nowhere
    :param raw: the row that the quarantine shows
    """

    version: int
    amount: int | None
    place: int | None
    raw: Row

    def reason(self, limit: int | None) -> str | None:
        if self.place is None:
            return "null_sequence"
        broken = self.amount is not None and limit is not None and self.amount < limit
        return "rule amount_positive" if broken else None


def intervals(key: int, events: list[Event], rows: list[Interval]) -> list[Interval]:
    """Return the history of a key after events that are valid; the last of its rows may be open."""
    rows = list(rows)
    for event in events:
        assert event.place is not None
        if rows and rows[-1][3] is None:
            if rows[-1][1] == event.amount:
                continue
            rows[-1] = (*rows[-1][:3], event.place)
        if event.amount is not None:
            rows.append((key, event.amount, event.place, None))
    return rows


@dataclass
class Model:
    """What the target and the quarantine have to contain."""

    events: dict[int, list[Event]] = field(default_factory=dict)
    history: dict[int, list[Interval]] = field(default_factory=dict)
    aside: list[tuple[str, int, Row]] = field(default_factory=list)

    def valid(self, key: int, since: int, limit: int | None) -> list[Event]:
        return [e for e in self.events[key] if e.version >= since and e.reason(limit) is None]

    def stopped(self, key: int, since: int, limit: int | None) -> list[tuple[str, int, Row]]:
        reasons = [(e.reason(limit), key, e.raw) for e in self.events[key] if e.version >= since]
        return [(reason, key, raw) for reason, key, raw in reasons if reason is not None]

    def applied(self, since: int, limit: int | None) -> None:
        for key in self.events:
            valid = self.valid(key, since, limit)
            self.history[key] = intervals(key, valid, self.history.get(key, []))
            self.aside += self.stopped(key, since, limit)

    def replayed(self, limit: int | None) -> None:
        """Compute the keys in quarantine again. A row of the load that is not there stays as it is."""
        keys, held = {key for _, key, _ in self.aside}, {one[1:] for one in self.aside}
        self.aside = []
        for key in keys:
            first = [e for e in self.events[key][:1] if e.version == LOADED and (key, e.raw) not in held]
            since = LOADED + 1 if first else LOADED
            self.aside += self.stopped(key, since, limit)
            self.history[key] = intervals(key, [*first, *self.valid(key, since, limit)], [])

    def repaired(self, since: int, limit: int | None) -> None:
        """Compute history since a version again; what is older stays."""
        for key, events in self.events.items():
            rows, starts = self.history[key], {(row[1], row[2]) for row in self.history[key]}
            places = [e.place for e in self.valid(key, since, limit) if e.place is not None]
            again = [e for e in events if e.version >= since and e.reason(limit) is not None]
            places += [e.place for e in again if e.place is not None and (e.amount, e.place) in starts]
            for one in self.stopped(key, since, limit):
                if all(one[1:] != held[1:] for held in self.aside):
                    self.aside.append(one)
            if not places:
                continue
            first = min(places)
            older = [row for row in rows if row[2] < first]
            if older and (older[-1][3] is None or older[-1][3] >= first):
                older[-1] = (*older[-1][:3], None)
            self.history[key] = intervals(key, self.valid(key, since, limit), older)


class Story:
    """A source whose rows change at random, its target, and the model."""

    def __init__(self, orders: Orders, draw: random.Random, *, own: bool) -> None:
        self.orders, self.draw, self.own = orders, draw, own
        self.model, self.rows, self.version, self.text = Model(), dict[int, Row](), 1, list[str]()

    def drawn(self, key: int) -> Row:
        lacks = self.own and self.draw.random() < 0.2
        return (key, self.draw.choice([-12, -5, 2, 7, 9]), None if lacks else self.version * 10)

    def place(self, row: Row) -> int | None:
        return row[2] if self.own else self.version

    def begin(self) -> int:
        """Make the version that is loaded, and load it with a limit, which is returned."""
        self.orders.sql("DELETE FROM {}")
        self.version = LOADED
        self.load()
        limit: int = self.draw.choice(LIMITS)
        self.run(limit)
        return limit

    def load(self) -> None:
        self.rows = {key: self.drawn(key) for key in KEYS if self.draw.random() < 0.6}
        self.orders.sql(f"INSERT INTO {{}} VALUES {_values(self.rows.values())}")
        for key in KEYS:
            row = self.rows.get(key)
            found = [] if row is None else [Event(self.version, row[1], self.place(row), row)]
            self.model.events[key] = found

    def change(self) -> None:
        """Commit a version that inserts, updates and deletes rows."""
        self.version += 1
        news: list[tuple[int, int | None, int | None]] = []
        for key in self.draw.sample(KEYS, 25):
            old, new = self.rows.get(key), self.drawn(key)
            if old is not None and (new[1:] == old[1:] or self.draw.random() < 0.3):
                before = None if old[2] is None else old[2] + 1
                place = before if self.own else self.version
                self.model.events[key].append(Event(self.version, None, place, old))
                news.append((key, None, None))
                del self.rows[key]
                continue
            if self.own or old is None or new[1] != old[1]:
                self.model.events[key].append(Event(self.version, new[1], self.place(new), new))
            news.append(new)
            self.rows[key] = new
        self.orders.sql(
            f"MERGE INTO {{}} t USING (SELECT * FROM VALUES {_values(news)} AS v(id, amount, n)) s "
            "ON t.id = s.id "
            "WHEN MATCHED AND s.amount IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT *"
        )

    def run(self, limit: int | None, **more: Any) -> None:
        rules = {"amount_positive": {"check": f"amount >= {limit}", "on_break": "quarantine"}}
        self.text.append(f"version {self.version}, limit {limit}: {more or 'apply'}")
        self.orders.run(None if limit is None else rules, **more)

    def expect_equal(self) -> None:
        found: dict[int, list[Interval]] = {key: [] for key in KEYS}
        for row in self.orders.history():
            found[row[0]].append(row)
        for key in KEYS:
            expected = self.model.history[key]
            assert sorted(found[key], key=lambda row: row[2]) == expected, self.described(key)
        stored = Counter((reason, int(key), amount) for reason, key, amount in self.orders.aside())
        assert stored == Counter((why, key, raw[1]) for why, key, raw in self.model.aside), self.described()

    def described(self, key: int | None = None) -> str:
        return "\n".join([*self.text, *map(str, self.model.events.get(key or 0, ()))])


def _values(rows: Any) -> str:
    texts = (", ".join("NULL" if value is None else str(value) for value in row) for row in rows)
    return ", ".join(f"({text})" for text in texts)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(6, first=1))
def test_histories_are_those_of_the_model(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    draw, own = random.Random(f"set aside {seed}"), seed % 2 == 0
    options = {**BY_N, **INVALID} if own else {"stored_as_scd_type": 2, "except_column_list": ["n"]}
    orders = made(spark, tmp_path, "id INT, amount INT, n INT", "(0, 0, 0)", **options)
    story = Story(orders, draw, own=own)
    limit: int | None = story.begin()
    story.model.applied(0, limit)
    story.expect_equal()
    for _ in range(ROUNDS):
        since = story.version + 1
        for _ in range(draw.randint(1, 2)):
            story.change()
        limit = draw.choice(LIMITS) if story.model.aside else draw.choice((None, *LIMITS))
        story.run(limit)
        story.model.applied(since, limit)
        story.expect_equal()
        choice = draw.random()
        if choice < 0.35:
            limit, since = draw.choice(LIMITS), draw.randint(4, story.version)
            story.run(limit, mode="repair", starting_version=since)
            story.model.repaired(since, limit)
            story.expect_equal()
        elif choice < 0.7 and story.model.aside:
            limit = draw.choice((None, *LIMITS))
            story.run(limit, **REPLAY)
            story.model.replayed(limit)
            story.expect_equal()
    if story.model.aside:
        story.run(None, **REPLAY)
        story.model.replayed(None)
        story.expect_equal()
    for key in KEYS:
        whole = intervals(key, story.model.valid(key, 0, None), [])
        assert story.model.history[key] == whole, "at the end, nothing is missing"


class Unruled(Orders):
    """The same source, and a target of its own."""

    @property
    def target(self) -> str:
        return str(self.folder / "unruled")


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "seed"), [("soft", 1), ("soft", 2), ("new_version", 1)])
def test_deleted_rows_that_stay_are_those_of_a_target_without_rules(
    spark: SparkSession, tmp_path: Path, mode: str, seed: int
) -> None:
    """Such a row begins before a delete that marks it, and may be repaired from a version between the two."""
    draw = random.Random(f"deleted rows {seed}")
    options = {"stored_as_scd_type": 2, "except_column_list": ["n"], "delete_mode": mode}
    orders = made(spark, tmp_path, "id INT, amount INT, n INT", "(0, 0, 0)", **options)
    story = Story(orders, draw, own=False)
    story.begin()
    for _ in range(4):
        for _ in range(draw.randint(1, 2)):
            story.change()
        story.run(draw.choice(LIMITS))
        choice = draw.random()
        if choice < 0.6:
            since = draw.randint(LOADED + 1, story.version)
            story.run(draw.choice(LIMITS), mode="repair", starting_version=since)
        elif choice < 0.8:
            story.run(draw.choice(LIMITS), **REPLAY)
    story.run(None, **REPLAY)
    assert orders.aside() == []
    unruled = Unruled(spark, tmp_path, options)
    unruled.run(pipeline="unruled", initial_load={"from_version": LOADED + 1})
    found, expected = (
        Counter(tuple(sorted(row.items(), key=str)) for row in table_rows(spark, uri))
        for uri in (orders.target, unruled.target)
    )
    assert found == expected, story.described()
