"""The judge of the events path is judged: published examples, examples made by hand, and its own laws."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.support import event_model as model
from tests.support.event_model import Event, Rules, Tied, Unknown
from tests.support.oracle import plain, rows_of

USER = Rules(keys=("userId",), columns={"name": None, "city": None})
#: One key, one value.
ONE = Rules(keys=("id",), columns={"v": None})
#: A value, one beside it, a struct in a struct, a map.
WIDE = Rules(
    keys=("id",),
    columns={"v": None, "n": None, "s": {"a": None, "deep": {"b": None, "c": None}}, "m": None},
)


def user(key: int, name: str | None, city: str | None, kind: str, sequence: int) -> Event:
    made = Event((key,), sequence, values={"name": name, "city": city})
    return replace(made, kind="delete") if kind == "DELETE" else made


def put(sequence: Any, v: Any = None, key: int = 1, **values: Any) -> Event:
    return Event((key,), sequence, values={"v": v, **values})


def delete(sequence: Any, key: int = 1, **values: Any) -> Event:
    return Event((key,), sequence, "delete", values)


def truncate(sequence: Any) -> Event:
    return Event((), sequence, "truncate")


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


def test_runs_collapse_and_show_their_last_values() -> None:
    rules = replace(WIDE, columns={"v": None, "n": None}, tracked=("v",))
    events = [put(5, "Alice", n=5), put(10, "Alice", n=10), put(15, "Alice", n=15), put(20, "Charlie", n=20)]
    assert two(events, rules) == [(1, "Alice", 15, 5, 20), (1, "Charlie", 20, 20, None)]


def test_ignored_nulls_of_type_1() -> None:
    rules = replace(ONE, ignore_null_updates=True)
    assert one([put(1, "before"), delete(2), put(3), put(4, "after"), put(5)], rules) == [(1, "after")]


def test_ignored_nulls_of_type_2() -> None:
    both = replace(WIDE, columns={"v": None, "n": None}, ignore_null_updates_column_list=("v",))
    events = [put(10, "source", n=1), put(20, None, n=2)]
    assert two(events, both) == [(1, "source", 1, 10, 20), (1, "source", 2, 20, None)]
    alone = replace(ONE, ignore_null_updates_column_list=("v",))
    assert two([put(10, "source"), put(20, None)], alone) == [(1, "source", 10, None)]


def test_periodic_snapshots() -> None:
    """A key that is missing in a copy was deleted at that copy."""
    events = [put(1, "a1", 1), put(1, "a2", 2), delete(2, 1), put(2, "b2", 2), put(2, "a3", 3)]
    assert two(events) == [
        (1, "a1", 1, 2),
        (2, "a2", 1, 2),
        (2, "b2", 2, None),
        (3, "a3", 2, None),
    ]


TABLE_1 = [
    put("16:02:00", 10, 1),
    put("16:02:01", 11, 1),
    delete("16:02:03", 1, v=11),
    put("16:02:00", 20, 2),
    delete("16:02:00", 3, v=30),
]


def test_the_articles_table() -> None:
    assert one(TABLE_1) == [(2, 20)]
    history = [
        (1, 10, "16:02:00", "16:02:01"),
        (1, 11, "16:02:01", "16:02:03"),
        (2, 20, "16:02:00", None),
    ]
    assert two(TABLE_1) == history
    late = put("16:01:00", 29, 3)
    assert two([*TABLE_1, late]) == [*history, (3, 29, "16:01:00", "16:02:00")]
    assert one([*TABLE_1, late]) == [(2, 20)]


# -- examples made by hand ----------------------------------------------------------------------
def test_an_event_twice_is_one() -> None:
    again = put(1, {"a": 1, "b": 2}), put(1, {"b": 2, "a": 1})
    assert two([*again, *again]) == [(1, {"a": 1, "b": 2}, 1, None)]
    assert two([put(1, 0.0), put(1, -0.0)]) == [(1, 0.0, 1, None)]


def test_a_delete_leaves_a_gap() -> None:
    assert two([put(1, "a"), delete(2), delete(3), put(5, "a")]) == [(1, "a", 1, 2), (1, "a", 5, None)]


def test_a_late_event_splits_a_run() -> None:
    events = [put(1, "a"), put(5, "a"), put(9, "a")]
    assert two(events) == [(1, "a", 1, None)]
    assert two([*events, put(7, "b")]) == [(1, "a", 1, 7), (1, "a", 9, None), (1, "b", 7, 9)]


def test_a_split_run_shows_the_last_values_of_each_part() -> None:
    rules = replace(WIDE, columns={"v": None, "n": None}, tracked=("v",))
    events = [put(1, "a", n=1), put(5, "a", n=5), put(9, "a", n=9), put(7, "b", n=7)]
    assert two(events, rules) == [(1, "a", 5, 1, 7), (1, "a", 9, 9, None), (1, "b", 7, 7, 9)]


def test_a_late_delete_splits_a_run() -> None:
    assert two([put(1, "a"), put(9, "a"), delete(5)]) == [(1, "a", 1, 5), (1, "a", 9, None)]


def test_a_change_to_or_from_null_is_a_change() -> None:
    assert two([put(1, "a"), put(2, None), put(3, None), put(4, "a")]) == [
        (1, "a", 1, 2),
        (1, "a", 4, None),
        (1, None, 2, 4),
    ]


def test_nothing_tracked_is_one_row_per_life() -> None:
    rules = replace(ONE, tracked=())
    assert two([put(1, "a"), put(2, "b"), delete(3), put(4, "c")], rules) == [
        (1, "b", 1, 3),
        (1, "c", 4, None),
    ]


def test_a_delete_ends_inheritance() -> None:
    rules = replace(WIDE, columns={"v": None, "n": None}, ignore_null_updates=True)
    events = [put(1, "a", n=1), delete(2), put(3, "b")]
    assert two(events, rules) == [(1, "a", 1, 1, 2), (1, "b", None, 3, None)]


def test_a_late_event_changes_what_was_inherited() -> None:
    rules = replace(WIDE, columns={"v": None, "n": None}, ignore_null_updates=True)
    events = [put(1, "a", n=1), put(5, None, n=5)]
    assert two(events, rules) == [(1, "a", 1, 1, 5), (1, "a", 5, 5, None)]
    assert two([*events, put(3, "b")], rules) == [(1, "a", 1, 1, 3), (1, "b", 1, 3, 5), (1, "b", 5, 5, None)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (None, (None, (7, None)))),
        ({"ignore_null_updates": True}, ("a", ("x", (7, "y")))),
        ({"ignore_null_updates_column_list": ("V",)}, ("a", (None, (7, None)))),
        ({"ignore_null_updates_column_list": ("s",)}, (None, ("x", (7, "y")))),
        ({"ignore_null_updates_column_list": ("s.deep",)}, (None, (None, (7, "y")))),
        ({"ignore_null_updates_except_column_list": ("s.deep.c", "n")}, ("a", ("x", (7, None)))),
        ({"ignore_null_updates_except_column_list": ("v", "s")}, (None, (None, (7, None)))),
    ],
)
def test_leaves_of_structs(settings: dict[str, Any], expected: tuple[Any, ...]) -> None:
    rules = replace(WIDE, **settings)
    events = [
        put(1, "a", s={"a": "x", "deep": {"b": 6, "c": "y"}}),
        put(2, None, s={"a": None, "deep": {"b": 7, "c": None}}),
    ]
    ((_, v, _, s, _),) = one(events, rules)
    assert (v, s) == expected


def test_a_struct_of_nulls_is_null() -> None:
    assert one([put(1, "a", s={"a": None, "deep": {"b": None}})], WIDE) == [(1, "a", None, None, None)]
    assert one([put(1, "a", s={"a": "x", "deep": {}})], WIDE) == [(1, "a", None, ("x", None), None)]


def carried(sequence: int, columns: tuple[str, ...] | None, v: Any = None, **values: Any) -> Event:
    return replace(put(sequence, v, **values), columns=columns)


def test_columns_to_update() -> None:
    rules = replace(WIDE, columns_to_update=True)
    full = carried(1, None, "a", n=1, s={"a": "x", "deep": {"b": 2, "c": "y"}}, m={"k": 1})
    then = carried(2, ("N", "s.Deep.c"), "not said", n=None, s={"a": "z", "deep": {"b": 9, "c": None}})
    assert one([full, then], rules) == [(1, "a", None, ("x", (2, None)), {"k": 1})]
    assert one([full, carried(2, ("s",), s=None)], rules) == [(1, "a", 1, None, {"k": 1})]
    assert one([full, carried(2, (), "z")], rules) == one([full], rules)
    assert one([carried(2, ("id",), "z")], rules) == [(1, None, None, None, None)]
    with pytest.raises(Unknown):
        one([carried(2, ("w",))], rules)


def test_an_update_that_carries_nothing_new_is_no_version() -> None:
    rules = replace(WIDE, columns_to_update=True)
    assert len(two([carried(1, None, "a"), carried(2, (), "b"), carried(3, ("v",), "a")], rules)) == 1


# -- soft deletes -------------------------------------------------------------------------------
def test_a_soft_delete_keeps_the_last_values() -> None:
    assert soft([put(1, "a"), put(2, "b"), delete(3), delete(4)]) == [(1, "b", True)]
    assert soft([put(1, "a"), delete(3), put(2, "late")]) == [(1, "late", True)]
    assert soft([delete(3)]) == []
    assert soft([delete(3), put(2, "late")]) == [(1, "late", True)]
    assert soft([put(1, "a")]) == [(1, "a", False)]


def test_a_soft_delete_that_is_revived_inherits_nothing() -> None:
    rules = replace(WIDE, columns={"v": None, "n": None}, ignore_null_updates=True)
    assert soft([put(1, "a", n=1), delete(2), put(3, None, n=3)], rules) == [(1, None, 3, False)]


# -- ties ---------------------------------------------------------------------------------------
TIED = [put(2, "b"), put(2, "c")]


def last_by(*orders: int, rules: Rules = ONE) -> list[tuple[Any, ...]]:
    events = [replace(event, order=(order,)) for event, order in zip(TIED, orders, strict=True)]
    return one([put(1, "a"), *events], replace(rules, on_conflict="last_by"))


def test_a_tie_is_refused() -> None:
    with pytest.raises(Tied):
        one(TIED)


def test_the_last_by_another_column_wins() -> None:
    assert last_by(1, 2) == [(1, "c")]
    assert last_by(2, 1) == [(1, "b")]
    with pytest.raises(Tied):
        last_by(1, 1)


def test_the_last_by_another_column_wins_against_a_delete() -> None:
    rules = replace(ONE, on_conflict="last_by")
    pair = [replace(put(2, "b"), order=(5,)), replace(delete(2), order=(4,))]
    assert one(pair, rules) == [(1, "b")]
    assert one([replace(pair[0], order=(3,)), pair[1]], rules) == []


def test_a_delete_wins_against_upserts() -> None:
    for rules in (ONE, replace(ONE, on_conflict="quarantine")):
        assert two([put(1, "a"), delete(2, v="d"), delete(2), *TIED], rules) == [(1, "a", 1, 2)]


def test_tied_events_are_taken_out() -> None:
    rules = replace(ONE, on_conflict="quarantine")
    events = [put(1, "a"), *TIED, put(3, "d"), Event((None,), 4), Event((1,), None)]
    assert two(events, rules) == [(1, "a", 1, 3), (1, "d", 3, None)]
    assert model.taken_out(events, rules) == [events[4], events[5], *TIED]
    assert two(TIED, rules) == []
    assert one(TIED, rules) == soft(TIED, rules) == []


def test_upserts_that_agree_where_both_speak_are_one() -> None:
    rules = replace(WIDE, columns={"v": None, "n": None}, ignore_null_updates=True)
    assert one([put(1, "a"), put(1, None, n=1), put(1, "a", n=1)], rules) == [(1, "a", 1)]
    with pytest.raises(Tied):
        one([put(1, "a"), put(1, None, n=1), put(1, "b")], rules)
    # Without it, a null is a value like others.
    with pytest.raises(Tied):
        one([put(1, "a"), put(1, None, n=1)], replace(rules, ignore_null_updates=False))


# -- truncates ----------------------------------------------------------------------------------
def test_a_truncate_deletes_what_is_below_it() -> None:
    events = [put(1, "a"), put(1, "b", 2), truncate(3), put(3, "c"), put(5, "d", 2), truncate(3)]
    assert two(events) == [(1, "a", 1, 3), (1, "c", 3, None), (2, "b", 1, 3), (2, "d", 5, None)]
    assert one(events) == [(1, "c"), (2, "d")]
    assert soft([put(1, "a"), truncate(3)]) == [(1, "a", True)]


def test_a_truncate_acts_on_what_arrives_later() -> None:
    assert two([truncate(3), put(1, "late")]) == [(1, "late", 1, 3)]
    assert one([truncate(3), put(1, "late")]) == []
    assert one([truncate(3), delete(4)]) == []


def test_a_truncate_ends_inheritance_and_runs() -> None:
    rules = replace(WIDE, columns={"v": None, "n": None}, ignore_null_updates=True)
    assert two([put(1, "a", n=1), truncate(3), put(3, "a")], rules) == [
        (1, "a", 1, 1, 3),
        (1, "a", None, 3, None),
    ]


# -- sequences of several parts -----------------------------------------------------------------
def test_parts_are_compared_one_after_the_other() -> None:
    assert two([put((1, 9), "a"), put((2, 0), "b")]) == [(1, "a", (1, 9), (2, 0)), (1, "b", (2, 0), None)]


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
