"""A pipeline with several sources becomes one pipeline per source, and one that applies their log."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from delta_cdc.config import json_schema, lint, load
from delta_cdc.core.errors import InvalidConfiguration

SOURCES: dict[str, Any] = {
    "eu": {"source": "/eu", "where": "a > 1", "select": ["id", "at"]},
    "old": {"source": "/old", "once": True, "sequence_by": "changed"},
}
CUSTOMERS: dict[str, Any] = {
    "target": "/t/",
    "keys": ["id"],
    "sequence_by": "at",
    "delete_sequence": "_commit_timestamp",
    "sources": SOURCES,
}


def _file(**changes: Any) -> dict[str, Any]:
    given = {**CUSTOMERS, **changes}
    return {"pipelines": {"customers": {name: value for name, value in given.items() if value != "none"}}}


def _found(**changes: Any) -> dict[str, dict[str, Any]]:
    return {table.pipeline: table.arguments for table in load(_file(**changes)).tables()}


def test_each_source_is_a_pipeline_and_one_applies_their_log() -> None:
    collecting = {
        "keys": ["id"],
        "sequence_by": "at",
        "delete_sequence": "_commit_timestamp",
        "target": "/t__log",
        "target_kind": "change_log",
    }
    assert _found() == {
        "customers": {
            "pipeline": "customers",
            "source": "/t__log",
            "source_kind": "change_log",
            "target": "/t/",
            "keys": ["id"],
            "sequence_by": "_sequence",
            "apply_as_deletes": "_op = 'delete'",
            "except_column_list": ["_op", "_sequence", "_columns", "_source_timestamp", "_position"],
        },
        "customers.eu": {**collecting, "pipeline": "customers.eu", **SOURCES["eu"]},
        "customers.old": {**collecting, "pipeline": "customers.old", **SOURCES["old"]},
    }
    (group,) = load(_file()).groups
    assert (group.name, [table.pipeline for table in group.tables]) == (
        "customers",
        ["customers.eu", "customers.old", "customers"],
    ), "the sources come first"


def test_what_is_written_for_all_sources_is_their_default_and_not_the_targets() -> None:
    found = _found(
        where="b > 2",
        source_kind="snapshot",
        stored_as_scd_type=2,
        log="/log",
        policies={"on_conflict": {"last_by": ["_position"]}, "schema_evolution": "widen"},
        limits={"max_deleted": "5 %", "max_versions": 3},
    )
    eu, old, applied = found["customers.eu"], found["customers.old"], found["customers"]
    assert (eu["where"], old["where"], applied.get("where")) == ("a > 1", "b > 2", None)
    assert (eu["target"], applied["source"], "log" in applied) == ("/log", "/log", False)
    assert (eu["source_kind"], applied["source_kind"]) == ("snapshot", "change_log")
    assert ("stored_as_scd_type" in eu, applied["stored_as_scd_type"]) == (False, 2)
    assert ("on_conflict" in eu, "on_conflict" in applied) == (False, True)
    assert ("max_deleted" in eu, applied["max_deleted"]) == (False, "5 %")
    assert all(one["max_versions"] == 3 and one["schema_evolution"] == "widen" for one in found.values())


def test_a_delete_among_events_has_its_own_sequence() -> None:
    found = _found(sources={"eu": {"source": "/eu", "source_kind": "change_log"}, "us": {"source": "/us"}})
    assert "delete_sequence" not in found["customers.eu"]
    assert found["customers.us"]["delete_sequence"] == "_commit_timestamp"


def test_an_empty_value_of_a_source_overrides_the_common_one() -> None:
    found = _found(where="b > 2", sources={"eu": {"source": "/eu", "where": None}})
    assert "where" not in found["customers.eu"]


@pytest.mark.parametrize("name", ["apply_as_truncates", "columns_to_update"])
def test_what_events_mean_is_never_dropped(name: str) -> None:
    """A group may give these to its other tables; for tables of events, they would matter."""
    file = {**_file(), "defaults": {name: "a"}}
    load(file)
    file["pipelines"]["customers"]["sources"] = {"eu": {"source": "/eu", "source_kind": "change_log"}}
    with pytest.raises(InvalidConfiguration, match=f"customers has {name}, and several sources"):
        load(file)


@pytest.mark.parametrize(
    ("changes", "message", "remedy"),
    [
        ({"sources": {}}, "sources of the pipeline customers has no source.", "names"),
        ({"sources": ["eu"]}, "sources of the pipeline customers has no source.", "names"),
        ({"sources": {"e u": {"source": "/eu"}}}, "The name 'e u' cannot be used.", "letters"),
        ({"sources": {"a.b": {"source": "/eu"}}}, "The name 'a.b' cannot be used.", "letters"),
        ({"sources": {"eu": "/eu"}}, "The source 'eu' of the pipeline customers is no mapping.", "keys"),
        ({"sources": {"eu": {}}}, "The pipeline customers.eu has no source.", "write source:"),
        ({"sources": {"eu": {"source": "/eu", "keys": ["a"]}}}, "'keys' is no key of the source eu", ""),
        ({"sources": {"eu": {"source": "/eu", "once": "often"}}}, "once of the source eu of", "true or"),
        ({"source": "/s"}, "customers has source and sources.", "in each of the sources"),
        ({"target": "none"}, "customers has sources and no target.", "write target:"),
        ({"once": True}, "customers has once, and several sources.", "one of the sources"),
        ({"initial_load": "snapshot"}, "customers has initial_load, and several sources.", "one of the"),
        ({"insert_only": True}, "customers has insert_only, and several sources.", "remove"),
        ({"own_application": True}, "customers has own_application, and several", "share one application"),
        ({"sequence_by": "none"}, "customers.eu has no sequence_by, which orders the changes of all", "time"),
        ({"sequence_by": ["at", "_COMMIT_version"]}, "customers.eu is ordered by _commit_version", "time"),
        ({"delete_sequence": "none"}, "delete_sequence is missing", "set delete_sequence"),
        ({"delete_sequence": "_commit_version"}, "customers.eu is ordered by _commit_version", "time"),
        ({"sources": {"eu": {"source": "/t__log"}}}, "source and target are the same table", "different"),
        ({"log": "/t"}, "are the same table", "two different tables"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], message: str, remedy: str) -> None:
    texts = [(finding.message, finding.remedy) for finding in lint(_file(**changes))]
    assert any(message in text and remedy in todo for text, todo in texts), texts
    with pytest.raises(InvalidConfiguration):
        load(_file(**changes))


@pytest.mark.parametrize("alone", ["in", "orders"])
@pytest.mark.parametrize(
    "writer",
    [
        {"source": "/files", "log": "/logs/orders", "adapter": "debezium", "keys": ["id"]},
        {
            "source": "/s",
            "target": "/logs/orders",
            "target_kind": "change_log",
            "keys": ["id"],
            "sequence_by": "at",
            "delete_sequence": "at",
        },
    ],
)
def test_a_log_and_those_that_apply_it_share_an_application(alone: str, writer: dict[str, Any]) -> None:
    """Otherwise the apply would not wait for what this run appends to the log."""
    orders = {"source": "/logs/orders/", "source_kind": "change_log", "target": "/t", "keys": ["id"]}
    pipelines = {"in": writer, "orders": orders}
    file = {"groups": {"g": {}}, "defaults": {"group": "g"}, "pipelines": pipelines}
    assert lint(file) == []
    pipelines[alone] = {**pipelines[alone], "own_application": True}
    (finding,) = lint(file)
    assert finding.message == (
        f"The pipeline {alone} has own_application, "
        "but one run writes the log of in and applies it in orders."
    )
    assert "give orders a group of its own" in finding.remedy
    # In groups of their own, each has its own application anyway.
    assert lint({"pipelines": pipelines}) == []


def test_no_other_pipeline_has_the_log_or_the_name() -> None:
    other = {"source": "/s", "keys": ["id"]}
    pipelines = _file()["pipelines"]
    taken = {"pipelines": {**pipelines, "other": {**other, "target": "/t__log"}}}
    assert ["other have the same target" in one.message for one in lint(taken)] == [True]
    named = {"pipelines": {**pipelines, "customers.eu": {**other, "target": "/u"}}}
    assert ["the pipeline customers.eu, which exists" in one.message for one in lint(named)] == [True]
    # Pipelines that append to one log are not in each other's way.
    event = {**other, "sequence_by": "at", "delete_sequence": "at", "target_kind": "change_log"}
    both = {name: {**event, "target": "/log"} for name in ("a", "b")}
    assert lint({"pipelines": both}) == []
    one = {**pipelines["customers"], "log": "/shared"}
    shared = {"customers": one, "partners": {**one, "target": "/p"}}
    assert any("same target, '/shared'" in one.message for one in lint({"pipelines": shared}))


def test_a_name_stands_for_its_sources_where_a_run_is_meant() -> None:
    configuration = load(
        {"pipelines": {**_file()["pipelines"], "q": {"source": "/s", "target": "/q", "keys": "id"}}}
    )

    def chosen(**how: Any) -> list[str]:
        return [table.pipeline for _, table in configuration.chosen(None, ["customers"], **how)]

    assert chosen() == ["customers"]
    assert chosen(with_sources=True) == ["customers.eu", "customers.old", "customers"]


def test_a_removed_source_is_known_and_not_read() -> None:
    configuration = load(_file(sources={**SOURCES, "us": {"removed": True}}))
    tables = {table.pipeline: table for table in configuration.tables()}
    assert sorted(tables) == ["customers", "customers.eu", "customers.old"]
    consumed = {consumer.pipeline: consumer.source for consumer in configuration.consumers()}
    assert consumed == {"customers": "/t__log", "customers.eu": "/eu"}, "an old version of /old is not needed"
    assert tables["customers"].sources == ("customers.eu", "customers.old", "customers.us")


def test_the_schema_knows_the_keys_of_a_source() -> None:
    editor = jsonschema.Draft202012Validator(json_schema())
    editor.validate(_file())
    with pytest.raises(jsonschema.ValidationError):
        editor.validate(_file(sources={"eu": {"source": "/eu", "target": "/t"}}))


def test_the_sources_of_a_pipeline_with_a_new_name_take_theirs_over() -> None:
    sources = {**SOURCES, "us": {"source": "/us", "take_over_from": "customers.usa"}}
    found = _found(take_over_from="clients", sources=sources)
    assert {name: table.get("take_over_from") for name, table in found.items()} == {
        "customers": "clients",
        "customers.eu": "clients.eu",
        "customers.old": "clients.old",
        "customers.us": "customers.usa",
    }
    # A source that is newer than the name has no predecessor; the run finds out.
    inheriting = [name for name, table in found.items() if table.get("inherits_take_over")]
    assert sorted(inheriting) == ["customers.eu", "customers.old"]
    own = _found(take_over_from="clients", sources={"eu": {"source": "/eu", "take_over_from": None}})
    assert not {"take_over_from", "inherits_take_over"} & own["customers.eu"].keys()
