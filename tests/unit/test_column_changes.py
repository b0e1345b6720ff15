"""Which changes of columns two schemas show, and which of them Delta's type widening allows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delta_cdc.core.column_changes import ColumnChange, compare, restored, reuses_name, widens
from tests.support.logs import field_of, struct_of


def text_of(*fields: dict[str, Any]) -> str:
    return json.dumps(struct_of(*fields))


def changes(before: list[Any], after: list[Any], *, by_id: bool = True) -> list[str]:
    return [str(change) for change in compare(text_of(*before), text_of(*after), by_id=by_id)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([field_of("a")], [field_of("A"), field_of("b")], ["b was added"]),
        ([field_of("a", "integer")], [field_of("a", "long")], ["a changed its type from integer to long"]),
        ([field_of("a"), field_of("b")], [field_of("b")], ["a was dropped or renamed"]),
        ([field_of("a", mapped=1)], [field_of("b", mapped=1)], ["a was renamed to b"]),
        (
            [field_of("a", mapped=1), field_of("b", mapped=2)],
            [field_of("b", mapped=1), field_of("a", mapped=2)],
            ["a was renamed to b", "b was renamed to a"],
        ),
        ([field_of("a", mapped=1)], [field_of("a", mapped=2)], ["a was dropped or renamed", "a was added"]),
        (
            [field_of("s", struct_of(field_of("x", "integer", mapped=2)), mapped=1)],
            [field_of("t", struct_of(field_of("y", "long", mapped=2)), mapped=1)],
            ["s was renamed to t", "s.x was renamed to s.y", "t.y changed its type from integer to long"],
        ),
        (
            [field_of("a", {"type": "array", "elementType": "integer", "containsNull": True})],
            [field_of("a", {"type": "array", "elementType": "long", "containsNull": True})],
            ["a.element changed its type from integer to long"],
        ),
    ],
)
def test_what_changed(before: list[Any], after: list[Any], expected: list[str]) -> None:
    assert changes(before, after) == expected


def upgraded(name: str, number: int, before: str = "") -> dict[str, Any]:
    """Return a column of a table that got column mapping."""
    return field_of(name, mapped=number, file_name=before or name)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([upgraded("a", 1), upgraded("b", 2)], []),
        ([upgraded("a", 1), upgraded("c", 2, "b")], ["b was renamed to c"]),
        ([upgraded("b", 1, "a"), upgraded("a", 2, "b")], ["a was renamed to b", "b was renamed to a"]),
        ([upgraded("a", 1), field_of("b", mapped=3)], ["b was dropped or renamed", "b was added"]),
        # All rows were written again, as by overwriteSchema.
        ([field_of("a", mapped=1), field_of("b", mapped=2)], []),
    ],
)
def test_column_mapping_was_turned_on_between(after: list[Any], expected: list[str]) -> None:
    assert changes([field_of("a"), field_of("b")], after) == expected


def test_a_column_that_came_back_has_an_id_that_was_given_before() -> None:
    inner = struct_of(field_of("x", mapped=3), field_of("y", mapped=4))
    of_array = {"type": "array", "elementType": inner, "containsNull": True}
    whole = text_of(field_of("a", mapped=1), field_of("b", of_array, mapped=2), field_of("c", mapped=5))
    less = {**of_array, "elementType": struct_of(field_of("x", mapped=3))}
    before = text_of(field_of("a", mapped=1), field_of("b", less, mapped=2))
    assert restored(before, whole, 5) == ("b.element.y", "c")
    assert restored(before, whole, 4) == ("b.element.y",), "c is new"
    assert restored(whole, before, 5) == ()


def test_ids_count_only_within_one_table() -> None:
    before, after = [field_of("a", mapped=1)], [field_of("b", mapped=1)]
    assert changes(before, after, by_id=False) == ["a was dropped or renamed", "b was added"]


def test_comments_and_nullability() -> None:
    before = [field_of("a", nullable=False), field_of("b", comment="old"), field_of("c", comment="same")]
    after = [
        field_of("a", comment="first"),
        field_of("b", nullable=False),
        field_of("c", comment="same"),
        field_of("d", comment="new"),
    ]
    assert list(compare(text_of(*before), text_of(*after), by_id=False)) == [
        ColumnChange("comment", ("a",), after="first"),
        ColumnChange("nullable", ("a",)),
        ColumnChange("added", ("d",)),
        ColumnChange("comment", ("d",), after="new"),
    ]


@pytest.mark.parametrize(
    ("before", "after", "reused"),
    [
        ([field_of("a", mapped=1), field_of("b", mapped=2)], [field_of("b", mapped=1)], True),
        (
            [field_of("a", mapped=1), field_of("b", mapped=2)],
            [field_of("b", mapped=1), field_of("A", mapped=2)],
            True,
        ),
        ([field_of("a", mapped=1), field_of("b", mapped=2)], [field_of("c", mapped=1)], False),
        # The new column of the old name is added by the rows, so the drop alone is by name.
        ([field_of("a", mapped=1)], [field_of("a", mapped=2)], False),
    ],
)
def test_names_that_are_used_again(before: list[Any], after: list[Any], reused: bool) -> None:
    assert reuses_name(compare(text_of(*before), text_of(*after), by_id=True)) is reused


#: From which types to which others Delta widens.
WIDENED = """\
byte short, byte long, short integer, integer long, integer double, float double, date timestamp_ntz, \
decimal(10,2) decimal(12,2), decimal(10,2) decimal(12,4), integer decimal(10,0), integer decimal(12,2), \
long decimal(20,0)"""
OTHERS = """\
long double, long float, integer float, integer string, date timestamp, decimal(10,2) decimal(10,4), \
decimal(10,2) decimal(11,4), decimal(10,2) double, integer decimal(9,0), integer decimal(11,2), \
long decimal(19,0), long long, decimal(10,2) decimal(10,2)"""


@pytest.mark.parametrize("pair", WIDENED.split(", "))
def test_types_that_delta_widens(pair: str) -> None:
    before, after = pair.split()
    assert widens(before, after)
    assert not widens(after, before)


@pytest.mark.parametrize("pair", OTHERS.split(", "))
def test_types_that_delta_does_not_widen(pair: str) -> None:
    assert not widens(*pair.split())
