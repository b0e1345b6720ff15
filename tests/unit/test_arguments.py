"""Rendered template values back to what they mean."""

from __future__ import annotations

import pytest

from delta_cdc.core import arguments
from delta_cdc.core.errors import InvalidConfiguration


@pytest.mark.parametrize("value", [None, "", "  ", "None", "none", "null"])
def test_empty_form_fields_mean_not_given(value: object) -> None:
    assert arguments.whole_number("starting_version", value) is None
    assert arguments.text("where", value) is None
    assert arguments.names("keys", value) is None


@pytest.mark.parametrize(("value", "number"), [(0, 0), (12, 12), ("12", 12), (" 7 ", 7)])
def test_versions_come_as_numbers_or_rendered_text(value: object, number: int) -> None:
    assert arguments.whole_number("starting_version", value) == number


@pytest.mark.parametrize("value", ["-1", -1, "1.5", "latest", True, "0x10", [1], "1 2"])
def test_what_is_no_version_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidConfiguration, match="starting_version"):
        arguments.whole_number("starting_version", value)


def test_max_versions_is_at_least_one() -> None:
    with pytest.raises(InvalidConfiguration, match="max_versions"):
        arguments.whole_number("max_versions", "0", minimum=1)


def test_a_single_name_needs_no_list() -> None:
    assert arguments.names("keys", "id") == ("id",)
    assert arguments.names("keys", ["a", "b"]) == ("a", "b")


def test_an_empty_list_is_a_list() -> None:
    assert arguments.names("cluster_by", []) == ()


@pytest.mark.parametrize("value", [[1], 7, True, {"id": 1}])
def test_names_are_texts(value: object) -> None:
    with pytest.raises(InvalidConfiguration, match="keys"):
        arguments.names("keys", value)


def test_partition_by_as_list_and_as_mapping() -> None:
    assert arguments.partitions("partition_by", ["region"]) == {"region": None}
    assert arguments.partitions("partition_by", {"year": "year(day)", "region": ""}) == {
        "year": "year(day)",
        "region": None,
    }
    assert arguments.partitions("partition_by", None) == {}


def test_initial_load() -> None:
    assert arguments.initial_load("initial_load", "snapshot") == "snapshot"
    assert arguments.initial_load("initial_load", "") is None
    assert arguments.initial_load("initial_load", {"from_version": "3"}) == {"from_version": 3}
    assert arguments.initial_load("initial_load", {"from_version": ""}) is None
    assert arguments.initial_load("initial_load", "none") == "none"
    assert arguments.initial_load("initial_load", {"none_at": "7"}) == {"none_at": 7}


def test_a_declared_version_is_never_guessed() -> None:
    """An empty field of a form must not come to mean the newest version."""
    for nothing in ("", None, "None"):
        with pytest.raises(InvalidConfiguration, match="none_at"):
            arguments.initial_load("initial_load", {"none_at": nothing})


@pytest.mark.parametrize("value", ["everything", {"from": 3}, {"from_version": "x"}, 3])
def test_another_initial_load_is_refused(value: object) -> None:
    with pytest.raises(InvalidConfiguration, match="initial_load"):
        arguments.initial_load("initial_load", value)


def test_properties_are_delta_text() -> None:
    assert arguments.properties("target_properties", {"delta.appendOnly": True, "n": 3}) == {
        "delta.appendOnly": "true",
        "n": "3",
    }


@pytest.mark.parametrize("value", ["", "None", None, 5])
def test_required_texts(value: object) -> None:
    with pytest.raises(InvalidConfiguration, match="pipeline"):
        arguments.required("pipeline", value)


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (True, True),
        (False, False),
        ("True", True),
        (" false ", False),
        ("", False),
        (None, False),
        ("None", False),
    ],
)
def test_a_flag_comes_as_boolean_or_rendered_text(value: object, meant: bool) -> None:
    assert arguments.flag("dry_run", value) is meant


@pytest.mark.parametrize("value", ["yes", "0", 1, 0.0, [True]])
def test_what_is_no_flag_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidConfiguration, match="dry_run"):
        arguments.flag("dry_run", value)


def test_a_sequence_is_an_expression_or_several() -> None:
    assert (
        arguments.sequences("sequence_by", None)
        == arguments.sequences("sequence_by", "")
        == "_commit_version"
    )
    assert arguments.sequences("sequence_by", "at") == arguments.sequences("sequence_by", ["at"]) == "at"
    assert arguments.sequences("sequence_by", ["lsn", "n"]) == ("lsn", "n")


@pytest.mark.parametrize("value", [[], ["at", ""], [1], 7])
def test_another_sequence_is_refused(value: object) -> None:
    with pytest.raises(InvalidConfiguration, match="sequence_by"):
        arguments.sequences("sequence_by", value)


def test_what_is_done_about_conflicting_events() -> None:
    assert arguments.conflict("on_conflict", None) is None
    assert arguments.conflict("on_conflict", "quarantine") == "quarantine"
    assert arguments.conflict("on_conflict", {"last_by": "n"}) == ("n",)
    assert arguments.conflict("on_conflict", {"last_by": ["at", "n"]}) == ("at", "n")


@pytest.mark.parametrize(
    "value", ["last_by", "first", {"last_by": []}, {"last_by": [""]}, {"last_by": ["n"], "or": 1}, {}, ["n"]]
)
def test_another_way_is_refused(value: object) -> None:
    with pytest.raises(InvalidConfiguration, match="on_conflict"):
        arguments.conflict("on_conflict", value)


@pytest.mark.parametrize(
    ("table", "part"),
    [
        ("/lake/orders", "orders"),
        ("s3://lake/silver/orders/", "orders"),
        ("main.silver.orders", "orders"),
        ("orders", "orders"),
        ("s3://lake/{{ params.a / 2 }}/orders", "orders"),
        ("/lake/x_{{ params.a / 2 }}", "x_{{ params.a / 2 }}"),
        ("main.{{ params.table }}", "{{ params.table }}"),
        (
            "/lake/{{ params.a / 2 }}_{% if b / 2 %}x{% endif %}",
            "{{ params.a / 2 }}_{% if b / 2 %}x{% endif %}",
        ),
        ("", ""),
    ],
)
def test_the_last_part_of_a_tables_name(table: str, part: str) -> None:
    assert arguments.last_part(table) == part
