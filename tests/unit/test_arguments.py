"""Rendered template values back to what they mean."""

from __future__ import annotations

import pytest

from delta_cdc import arguments
from delta_cdc.arguments import RunChoices
from delta_cdc.errors import InvalidConfiguration
from delta_cdc.spec import IngestOptions


@pytest.mark.parametrize("value", [None, "", "  ", "None", "none", "null"])
def test_empty_form_fields_mean_not_given(value: object) -> None:
    assert arguments.whole_number("starting_version", value) is None
    assert arguments.text(value) is None
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
    assert arguments.partitions(["region"]) == {"region": None}
    assert arguments.partitions({"year": "year(day)", "region": ""}) == {"year": "year(day)", "region": None}
    assert arguments.partitions(None) == {}


def test_initial_load() -> None:
    assert arguments.initial_load("snapshot") == "snapshot"
    assert arguments.initial_load("") == "snapshot"
    assert arguments.initial_load({"from_version": "3"}) == {"from_version": 3}
    assert arguments.initial_load({"from_version": ""}) == "snapshot"
    assert arguments.initial_load("none") == "none"
    assert arguments.initial_load({"none_at": "7"}) == {"none_at": 7}


def test_a_declared_version_is_never_guessed() -> None:
    """An empty field of a form must not come to mean the newest version."""
    for nothing in ("", None, "None"):
        with pytest.raises(InvalidConfiguration, match="none_at"):
            arguments.initial_load({"none_at": nothing})


@pytest.mark.parametrize("value", ["everything", {"from": 3}, {"from_version": "x"}, 3])
def test_another_initial_load_is_refused(value: object) -> None:
    with pytest.raises(InvalidConfiguration, match="initial_load"):
        arguments.initial_load(value)


def test_properties_are_delta_text() -> None:
    assert arguments.properties({"delta.appendOnly": True, "n": 3}) == {"delta.appendOnly": "true", "n": "3"}


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
    assert arguments.sequences(None) == arguments.sequences("") == "_commit_version"
    assert arguments.sequences("at") == arguments.sequences(["at"]) == "at"
    assert arguments.sequences(["lsn", "n"]) == ("lsn", "n")


@pytest.mark.parametrize("value", [[], ["at", ""], [1], 7])
def test_another_sequence_is_refused(value: object) -> None:
    with pytest.raises(InvalidConfiguration, match="sequence_by"):
        arguments.sequences(value)


def test_ways_to_break_a_tie() -> None:
    assert arguments.tie(None) == arguments.tie("fail") == ("fail", ())
    assert arguments.tie("quarantine") == ("quarantine", ())
    assert arguments.tie({"last_by": "n"}) == ("last_by", ("n",))
    assert arguments.tie({"last_by": ["at", "n"]}) == ("last_by", ("at", "n"))


@pytest.mark.parametrize(
    "value", ["last_by", "first", {"last_by": []}, {"last_by": [""]}, {"last_by": ["n"], "or": 1}, {}, ["n"]]
)
def test_another_way_is_refused(value: object) -> None:
    with pytest.raises(InvalidConfiguration, match="on_tie"):
        arguments.tie(value)


def test_a_misspelt_choice_names_the_nearest() -> None:
    asked = dict.fromkeys(RunChoices.__annotations__)
    assert arguments.run_choices(**asked)["mode"] == "incremental"
    with pytest.raises(InvalidConfiguration, match=r"mode is 'relaod'.*did you mean 'reload'\?"):
        arguments.run_choices(**{**asked, "mode": "relaod"})


def test_modes_as_a_form_has_them() -> None:
    asked = dict.fromkeys(RunChoices.__annotations__)
    for mode in arguments.MODES:
        assert arguments.run_choices(**{**asked, "mode": mode}) == {
            **arguments.run_choices(**asked),
            "mode": mode,
        }
    dry = arguments.run_choices(**{**asked, "mode": "dry_run", "dry_run": "False"})
    assert dry == {**arguments.run_choices(**asked), "dry_run": True}


# -- ingests ------------------------------------------------------------------------------------
def test_an_ingest_as_a_form_renders_it() -> None:
    given = arguments.ingest_options(
        source=" kafka://h/t ",
        format="",
        adapter=" debezium ",
        adapter_options='{"connector": "postgresql"}',
        keys="id",
        schema="None",
        format_options={"lineSep": 5, "multiLine": True},
        insert_only="False",
        on_invalid="",
        cluster_by=["id"],
        log_properties={"delta.logRetentionDuration": "interval 60 days"},
    )
    assert given == IngestOptions(
        source_kind="kafka",
        adapter="debezium",
        adapter_options={"connector": "postgresql"},
        keys=("id",),
        format_options={"lineSep": "5", "multiLine": "true"},
        cluster_by=("id",),
        log_properties={"delta.logRetentionDuration": "interval 60 days"},
    )
    assert arguments.ingest_options(source="/in") == IngestOptions()
    own = ("my.module", "my.module.function", "my.module:function")
    assert [arguments.ingest_options(source="/in", adapter=name).adapter for name in own] == list(own)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "jsonl"}, "did you mean 'json'"),
        ({"adapter": "debesium"}, "did you mean 'debezium'"),
        ({"on_invalid": "quarantin"}, "did you mean 'quarantine'"),
        ({"adapter_options": "{"}, "adapter_options is '{'"),
        ({"adapter_options": [1]}, "adapter_options is"),
        ({"format_options": "5"}, "format_options is '5'"),
        ({"insert_only": "maybe"}, "insert_only is 'maybe'"),
    ],
)
def test_an_ingest_that_is_misspelt(changes: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidConfiguration, match=said):
        arguments.ingest_options(source="/in", **changes)


def test_applying_the_log_of_an_ingest() -> None:
    events = ["_op", "_sequence", "_columns", "_source_timestamp", "_position"]
    assert arguments.of_ingested_log({"keys": ["id"], "other": 1, "sequence_by": ""}) == {
        "keys": ["id"],
        "other": 1,
        "source_kind": "change_log",
        "sequence_by": "_sequence",
        "apply_as_deletes": "_op = 'delete'",
        "apply_as_truncates": "_op = 'truncate'",
        "columns_to_update": "_columns",
        "except_column_list": events,
    }
    own = {"sequence_by": "at", "apply_as_deletes": "gone", "column_list": ["a"], "columns_to_update": "cols"}
    found = arguments.of_ingested_log(own)
    assert {name: found[name] for name in own} == own
    assert "except_column_list" not in found
    appended = arguments.of_ingested_log({"insert_only": True})
    assert appended == {"insert_only": True, "source_kind": "change_feed", "except_column_list": events}
    assert "except_column_list" not in arguments.of_ingested_log({"select": ["id", "a + 1 AS b"]})
    assert "except_column_list" in arguments.of_ingested_log({"select": ["*", "a + 1 AS b"]})
