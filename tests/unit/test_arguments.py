"""Rendered template values back to what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delta_cdc.core import arguments
from delta_cdc.core.errors import InvalidConfiguration

if TYPE_CHECKING:
    from collections.abc import Callable


#: How an argument is read -> what is given, and what it means.
MEANT: list[tuple[Callable[[str, object], object], object, object]] = [
    # Empty fields of a form are not given.
    *((read, nothing, None) for read in (arguments.whole_number, arguments.text, arguments.names)
      for nothing in (None, "", "  ", "None", "none", "null")),
    *((arguments.pipeline, nothing, None) for nothing in (None, "", "  ", "None", "null")),
    *((read, f" {name} ", name) for read in (arguments.pipeline, arguments.required_pipeline)
      for name in ("p", "none")),
    *((arguments.whole_number, given, 12) for given in (12, "12", " 12 ")),
    (arguments.whole_number, 0, 0),
    (arguments.names, "id", ("id",)),
    (arguments.names, ["a", "b"], ("a", "b")),
    (arguments.names, [], ()),
    (arguments.partitions, ["region"], {"region": None}),
    (arguments.partitions, {"year": "year(day)", "region": ""}, {"year": "year(day)", "region": None}),
    (arguments.partitions, None, {}),
    (arguments.initial_load, "snapshot", "snapshot"),
    (arguments.initial_load, "none", "none"),
    (arguments.initial_load, "", None),
    (arguments.initial_load, {"from_version": "3"}, {"from_version": 3}),
    (arguments.initial_load, {"from_version": ""}, None),
    (arguments.initial_load, {"none_at": "7"}, {"none_at": 7}),
    (arguments.properties, {"delta.appendOnly": True, "n": 3}, {"delta.appendOnly": "true", "n": "3"}),
    *((arguments.size, given, 20 << 30) for given in (20 << 30, "20GiB", " 20 gib", str(20 << 30))),
    (arguments.size, "", None),
    (arguments.key_values, "id=17", {"id": "17"}),
    (arguments.key_values, " id = 17,line=3 ", {"id": "17", "line": "3"}),
    (arguments.key_values, "name=a=b", {"name": "a=b"}),
    (arguments.key_values, {"id": 17, "open": True, "name": ""}, {"id": "17", "open": "true", "name": ""}),
    (arguments.key_values, '{"name": "Doe, Jane"}', {"name": "Doe, Jane"}),
    (arguments.key_values, "None", None),
    *((arguments.flag, given, True) for given in (True, "True")),
    *((arguments.flag, given, False) for given in (False, " false ", "", None, "None")),
    *((arguments.sequences, given, "_commit_version") for given in (None, "")),
    *((arguments.sequences, given, "at") for given in ("at", ["at"])),
    (arguments.conflict, None, None),
    (arguments.conflict, "quarantine", "quarantine"),
    (arguments.conflict, {"last_by": "n"}, ("n",)),
    (arguments.conflict, {"last_by": ["at", "n"]}, ("at", "n")),
]  # fmt: skip

#: How an argument is read -> what is refused.
REFUSED: dict[Callable[[str, object], object], tuple[object, ...]] = {
    arguments.whole_number: ("-1", -1, "1.5", "latest", True, "0x10", [1], "1 2"),
    lambda name, value: arguments.whole_number(name, value, minimum=1): ("0",),
    arguments.names: ([1], 7, True, {"id": 1}),
    # An empty field of a form must not come to mean the newest version.
    arguments.initial_load: (
        *("everything", {"from": 3}, {"from_version": "x"}, 3),
        *({"none_at": nothing} for nothing in ("", None, "None")),
    ),
    arguments.size: ("0", -1, 1.5, True, "20 GB", "GiB", "1_0", "1" * 16, [1]),
    arguments.key_values: (
        *("17", "id", "id=", "=17", "name=Doe, Jane", "id=1, ID=2", "{id", 17, [1], {}, True),
        *({"id": None}, {"id": [1]}, {"": 1}, {1: 1}, {"id": 1, "ID ": 2}),
    ),
    arguments.required: ("", "None", None, 5),
    arguments.pipeline: (5, True, ["p"]),
    arguments.required_pipeline: ("", " ", "None", None, 5),
    arguments.flag: ("yes", "0", 1, 0.0, [True]),
    arguments.sequences: ([], ["at", ""], [1], 7),
    arguments.conflict: (
        *("last_by", "first", {"last_by": []}, {"last_by": [""]}, {"last_by": ["n"], "or": 1}, {}, ["n"]),
    ),
}


@pytest.mark.parametrize(("read", "given", "meant"), MEANT)
def test_what_a_value_means(read: Callable[[str, object], object], given: object, meant: object) -> None:
    found = read("an_argument", given)
    assert (found, type(found)) == (meant, type(meant))


@pytest.mark.parametrize(
    ("read", "given"), [(read, one) for read, refused in REFUSED.items() for one in refused]
)
def test_what_is_refused_by_name(read: Callable[[str, object], object], given: object) -> None:
    with pytest.raises(InvalidConfiguration, match="an_argument") as caught:
        read("an_argument", given)
    assert caught.value.argument == "an_argument"


@pytest.mark.parametrize(
    ("table", "part"),
    [
        ("/lake/orders", "orders"),
        ("s3://lake/silver/orders/", "orders"),
        ("main.silver.orders", "orders"),
        ("orders", "orders"),
        ("s3://lake/{{ params.a / 2 }}/orders", "orders"),
        ("main.{{ params.table }}", "{{ params.table }}"),
        ("/lake/{{ a / 2 }}_{% if b / 2 %}x{% endif %}", "{{ a / 2 }}_{% if b / 2 %}x{% endif %}"),
        ("", ""),
    ],
)
def test_the_last_part_of_a_tables_name(table: str, part: str) -> None:
    assert arguments.last_part(table) == part
