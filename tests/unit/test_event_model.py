"""The judge of the events path is judged: published examples, ties, and its own laws."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.support import event_model as model
from tests.support.event_model import Event, Rules
from tests.support.oracle import plain, rows_of

USER = Rules(keys=("userId",), columns={"name": None, "city": None})
#: One key, one value.
ONE = Rules(keys=("id",), columns={"v": None})
#: A value, one beside it, a struct in a struct, a map.
WIDE = Rules(
    keys=("id",), columns={"v": None, "n": None, "s": {"a": None, "deep": {"b": None, "c": None}}, "m": None}
)


def user(key: int, name: str | None, city: str | None, kind: str, sequence: int) -> Event:
    made = Event((key,), sequence, values={"name": name, "city": city})
    return replace(made, kind="delete") if kind == "DELETE" else made


def put(sequence: int, v: str) -> Event:
    return Event((1,), sequence, values={"v": v})


EVENTS_U = [
    user(124, "Raul", "Oaxaca", "INSERT", 1),
    user(123, "Isabel", "Monterrey", "INSERT", 1),
    user(125, "Mercedes", "Tijuana", "INSERT", 2),
    user(126, "Lily", "Cancun", "INSERT", 2),
    user(123, None, None, "DELETE", 6),
    user(125, "Mercedes", "Guadalajara", "UPDATE", 6),
    user(125, "Mercedes", "Mexicali", "UPDATE", 5),
    user(123, "Isabel", "Chihuahua", "UPDATE", 5),
]


def one(events: list[Event], rules: Rules = ONE) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in model.type_1(events, rules)), key=repr)


def soft(events: list[Event], rules: Rules = ONE) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in model.type_1_soft(events, rules)), key=repr)


def two(events: list[Event], rules: Rules = ONE) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in model.type_2(events, rules)), key=repr)


# -- examples that others published -------------------------------------------------------------
def test_the_documented_example_of_type_1() -> None:
    assert one(EVENTS_U, USER) == [
        (124, "Raul", "Oaxaca"),
        (125, "Mercedes", "Guadalajara"),
        (126, "Lily", "Cancun"),
    ]


def test_the_documented_example_of_type_2() -> None:
    assert two(EVENTS_U, USER) == [
        (123, "Isabel", "Chihuahua", 5, 6),
        (123, "Isabel", "Monterrey", 1, 5),
        (124, "Raul", "Oaxaca", 1, None),
        (125, "Mercedes", "Guadalajara", 6, None),
        (125, "Mercedes", "Mexicali", 5, 6),
        (125, "Mercedes", "Tijuana", 2, 5),
        (126, "Lily", "Cancun", 2, None),
    ]


# -- ties ---------------------------------------------------------------------------------------
TIED = [put(2, "b"), put(2, "c")]


def test_tied_events_are_taken_out() -> None:
    rules = replace(ONE, on_conflict="quarantine")
    events = [put(1, "a"), *TIED, put(3, "d"), Event((None,), 4), Event((1,), None)]
    assert two(events, rules) == [(1, "a", 1, 3), (1, "d", 3, None)]
    assert model.taken_out(events, rules) == [events[4], events[5], *TIED]
    assert two(TIED, rules) == []
    assert one(TIED, rules) == soft(TIED, rules) == []


# -- laws ---------------------------------------------------------------------------------------
def drawn(draw: random.Random) -> list[Event]:
    """Draw a few events of two keys; tied ones differ in their order."""
    events: list[Event] = []
    for number in range(draw.randint(1, 9)):
        kind = draw.choice(["upsert", "upsert", "upsert", "delete", "truncate"])
        key = () if kind == "truncate" else (draw.randint(1, 2),)
        values = {
            "v": draw.choice(["a", "b", None]),
            "n": draw.choice([1, None]),
            "s": draw.choice([None, {"a": "x", "deep": {"b": 1, "c": None}}, {"deep": {"c": "y"}}]),
        }
        columns = draw.choice([None, None, (), ("v",), ("n", "s.deep"), ("s.a", "V")])
        event = Event(key, draw.randint(1, 6), kind, values, columns, (number,))  # type: ignore[arg-type]
        events += [event] * draw.choice([1, 1, 2])
    return events


SETTINGS: list[dict[str, Any]] = [
    {},
    {"tracked": ("v",)},
    {"ignore_null_updates": True},
    {"ignore_null_updates_column_list": ("v", "s.deep.b")},
    {"ignore_null_updates_except_column_list": ("s",)},
    {"columns_to_update": True},
]
HISTORY = ("id", "v", "n", "s", "m", model.START, model.END)


@pytest.mark.parametrize("on_conflict", ["last_by", "quarantine"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_laws_of_the_model(settings: dict[str, Any], on_conflict: Any) -> None:
    rules = replace(WIDE, on_conflict=on_conflict, **settings)
    draw = random.Random(str(settings))
    for _ in range(300):
        events = drawn(draw)
        history = model.type_2(events, rules)
        shuffled = draw.sample(events, len(events))
        assert rows_of(model.type_2(shuffled, rules), HISTORY) == rows_of(history, HISTORY)
        assert not model.faults(history, rules.keys)
        now = rows_of(model.type_1(events, rules), HISTORY[:-2])
        assert rows_of(model.opened(history), HISTORY[:-2]) == now
        assert rows_of(model.alive(model.type_1_soft(events, rules)), HISTORY[:-2]) == now


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_moment_is_what_was_said_last(settings: dict[str, Any]) -> None:
    """The same told without a fold: a leaf holds what was last said of it since the key was last deleted."""
    rules = replace(WIDE, on_conflict="last_by", **settings)
    draw = random.Random(f"moments {settings}")
    for _ in range(150):
        events = drawn(draw)
        history = model.type_2(events, replace(rules, tracked=None))
        for moment in range(1, 8):
            found = [
                row
                for row in history
                if row[model.START] <= moment and (row[model.END] is None or moment < row[model.END])
            ]
            for key in (1, 2):
                shown = [plain([row[name] for name in rules.columns]) for row in found if row["id"] == key]
                assert shown == _at(events, rules, (key,), moment)


def _at(events: list[Event], rules: Rules, key: model.Key, moment: int) -> list[Any]:
    mine = [event for event in events if event.key == key and event.sequence <= moment]
    last = {s: max(e.order for e in mine if e.sequence == s) for s in {e.sequence for e in mine}}
    upserts = {s: [e for e in mine if e.sequence == s] for s in last}
    gone = [event.sequence - 0.5 for event in events if event.kind == "truncate" and event.sequence <= moment]
    said: list[tuple[int, dict[Any, Any]]] = []
    for sequence, group in upserts.items():
        told = model.settled(group, rules)
        assert told is not None
        if told.said is None:
            gone.append(sequence)
        else:
            said.append((sequence, told.said))
    said = sorted(((s, leaves) for s, leaves in said if s > max(gone, default=0)), key=lambda pair: pair[0])
    if not said:
        return []
    state = {leaf: ([x[leaf] for _, x in said if leaf in x] or [None])[-1] for leaf in rules.leaves}
    return [plain(list(rules.shown(state).values()))]


def test_faults_are_found() -> None:
    row = {"id": 1, "v": "a"}

    def history(*spans: tuple[Any, Any]) -> list[str]:
        return model.faults([{**row, model.START: s, model.END: e} for s, e in spans], ("id",))

    assert not history((1, 2), (2, 5), (7, None))
    assert history((1, None), (2, None))
    assert history((1, 1))
    assert history((2, 1))
    assert history((None, 1))
    assert history((1, 3), (2, 4))
    assert history((1, None), (2, 4))
