"""What only the source's columns tell, and what a target was built with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from delta_cdc.core import validation
from delta_cdc.core.errors import ColumnNotFound, ConfigurationDrift, ReservedColumnName
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.rules import check_options
from delta_cdc.spark.changes import states
from tests.support.logs import seal

COLUMNS = ("id", "name", "at", "Info")
FEED = ApplyOptions(keys=("id",))
TYPE_2 = replace(FEED, stored_as_scd_type=2)
LOG = replace(FEED, source_kind="change_log", sequence_by="at")
COPIES = replace(FEED, source_kind="snapshot")


# -- columns ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        (FEED, "column_list", ("id", "nope")),
        (FEED, "except_column_list", ("nope",)),
        (TYPE_2, "track_history_column_list", ("nope",)),
        (TYPE_2, "track_history_except_column_list", ("nope",)),
        (FEED, "keys", ("nope",)),
        (FEED, "partition_by", {"nope": None}),
        (FEED, "cluster_by", ("nope",)),
        (FEED, "ignore_null_updates_column_list", ("nope.x",)),
        (FEED, "ignore_null_updates_except_column_list", ("nope",)),
        (LOG, "columns_to_update", "nope"),
        (LOG, "on_conflict", ("at", "nope")),
        (COPIES, "snapshot_version_column", "nope"),
        (replace(LOG, select=("id",)), "columns_to_update", "nope"),
        (replace(LOG, select=("id",)), "on_conflict", ("nope",)),
    ],
)
def test_a_column_that_is_not_there(options: ApplyOptions, name: str, value: Any) -> None:
    with pytest.raises(ColumnNotFound, match=rf"column nope(\.x)? of {name} .* correct {name}"):
        validation.check_columns(replace(options, **{name: value}), COLUMNS, "/source", 3)


def test_a_column_that_is_not_there_gets_the_nearest_name() -> None:
    with pytest.raises(ColumnNotFound, match=r"Remedy: did you mean Order_ID\? Else correct keys\."):
        validation.check_columns(replace(FEED, keys=("order_idd",)), ("Order_ID", "state"), "/source", 3)
    with pytest.raises(ColumnNotFound, match=r"did you mean Order_ID\? Else name existing columns in keys\."):
        states.match(("Order_ID", "state"), ("order_idd",), "keys", "the projected rows")


@pytest.mark.parametrize(
    "options",
    [
        replace(FEED, column_list=("ID", "NAME"), ignore_null_updates_column_list=("info.x", "name")),
        replace(FEED, column_list=("made",), select=("id", "name AS made")),
        replace(LOG, columns_to_update="AT", on_conflict=("AT",)),
        replace(COPIES, snapshot_version_column="At"),
        replace(FEED, keys=("ID", "First"), partition_by={"first": "left(name, 1)"}),
        replace(TYPE_2, cluster_by=("id", "__START_AT")),
    ],
)
def test_columns_that_are_there(options: ApplyOptions) -> None:
    validation.check_columns(options, COLUMNS, "/source", 3)


def test_the_mark_of_a_soft_delete_is_the_targets_own() -> None:
    columns = (*COLUMNS, "_DELETED")
    validation.check_columns(FEED, columns, "/source", 3)
    with pytest.raises(ReservedColumnName, match="_deleted"):
        validation.check_columns(replace(FEED, delete_mode="soft"), columns, "/source", 3)


@pytest.mark.parametrize(
    ("changes", "name", "remedy"),
    [
        ({"start_column": "at"}, "AT", "set start_column and end_column to other names"),
        ({"current_column": "at"}, "AT", "set current_column to another name"),
        ({"delete_mode": "new_version"}, "_deleted", "set delete_mode to 'hard'"),
    ],
)
def test_a_column_of_a_history_is_the_targets_own(changes: dict[str, Any], name: str, remedy: str) -> None:
    options = replace(TYPE_2, **changes)
    validation.check_columns(TYPE_2, (*COLUMNS, name), "/source", 3)
    with pytest.raises(ReservedColumnName, match=name.lower()) as failed:
        validation.check_columns(options, (*COLUMNS, name), "/source", 3)
    assert remedy in failed.value.remedy
    assert "with select" in failed.value.remedy
    # With select, only Spark knows the columns.
    validation.check_columns(replace(options, select=("*",)), (*COLUMNS, name), "/source", 3)


@pytest.mark.parametrize("name", ["created_column", "changed_column", "row_hash_column"])
def test_a_column_that_the_engine_adds_is_the_targets_own(name: str) -> None:
    options = replace(FEED, **{name: "at"})
    with pytest.raises(ReservedColumnName, match="column at in version 3") as failed:
        validation.check_columns(options, (*COLUMNS[:2], "AT"), "/source", 3)
    assert failed.value.remedy == f"set {name} to another name, or leave it out with select."
    assert validation.options_of(built_with(options)) == options
    assert name not in validation.described(FEED)


def test_a_target_may_be_partitioned_by_its_current_column() -> None:
    options = replace(TYPE_2, current_column="is_current", partition_by={"IS_CURRENT": None})
    validation.check_columns(options, COLUMNS, "/source", 3)
    with pytest.raises(ColumnNotFound, match="IS_CURRENT"):
        validation.check_columns(replace(options, current_column=None), COLUMNS, "/source", 3)


def test_a_seal_records_the_columns_of_a_layout_only_if_they_are_given() -> None:
    """The seals of other pipelines stay as they were."""
    options = replace(TYPE_2, end_value="9999-12-31", current_column="is_current")
    new = {"end_value", "current_column"}
    assert new.isdisjoint(validation.described(TYPE_2))
    assert new <= set(validation.described(options))
    recorded = validation.options_of(built_with(options))
    assert (recorded.end_value, recorded.current_column) == ("9999-12-31", "is_current")
    assert validation.options_of(built_with(TYPE_2)) == TYPE_2


# -- drift --------------------------------------------------------------------------------------
CHANGED: list[tuple[str, ApplyOptions, dict[str, Any]]] = [
    ("tracked", TYPE_2, {"track_history_column_list": ("name",)}),
    ("where", FEED, {"where": "id > 1"}),
    ("select", FEED, {"select": ("id",)}),
    ("column_list", FEED, {"column_list": ("id",)}),
    ("except_column_list", FEED, {"except_column_list": ("name",)}),
    ("ignore_null_updates", FEED, {"ignore_null_updates": True}),
    ("ignore_null_updates_column_list", FEED, {"ignore_null_updates_column_list": ("name",)}),
    ("ignore_null_updates_except_column_list", FEED, {"ignore_null_updates_except_column_list": ("a",)}),
    ("columns_to_update", LOG, {"columns_to_update": "at"}),
    ("apply_as_deletes", FEED, {"apply_as_deletes": "gone"}),
    ("apply_as_truncates", LOG, {"apply_as_truncates": "t"}),
    ("keys", FEED, {"keys": ("name",)}),
    ("scd_type", FEED, {"stored_as_scd_type": 2}),
    ("partition_by", FEED, {"partition_by": {"name": None}}),
    ("source_kind", FEED, {"source_kind": "snapshot"}),
    ("delete_mode", FEED, {"delete_mode": "soft"}),
    ("snapshot_version_column", COPIES, {"snapshot_version_column": "at"}),
    ("start_column", TYPE_2, {"start_column": "since"}),
    ("end_column", TYPE_2, {"end_column": "until"}),
    ("end_value", TYPE_2, {"end_value": "9999-12-31"}),
    ("end_value", replace(TYPE_2, end_value="ZZZ"), {"end_value": "zzz"}),
    ("current_column", TYPE_2, {"current_column": "is_current"}),
    ("delete_mode", TYPE_2, {"delete_mode": "new_version"}),
    ("created_column", FEED, {"created_column": "made"}),
    ("changed_column", FEED, {"changed_column": "changed"}),
    ("row_hash_column", TYPE_2, {"row_hash_column": "hash"}),
]
NEVER = {"keys", "scd_type", "partition_by", "source_kind", "delete_mode", "snapshot_version_column"} | {
    "start_column",
    "end_column",
    "end_value",
    "current_column",
    "created_column",
    "changed_column",
    "row_hash_column",
}


def built_with(options: ApplyOptions) -> Any:
    return seal(100, 3, configuration=validation.described(options))


@pytest.mark.parametrize(("name", "options", "changes"), CHANGED, ids=[row[0] for row in CHANGED])
def test_what_a_target_was_built_with(name: str, options: ApplyOptions, changes: dict[str, Any]) -> None:
    now = replace(options, **changes)
    for was, given in ((options, now), (now, options)):
        assert validation.check_drift(built_with(was), was, "/target") == ()
        with pytest.raises(ConfigurationDrift, match=f"built with {name} = .*, and now {name} = ") as failed:
            validation.check_drift(built_with(was), given, "/target")
        for policy in ("accept", "repair"):
            if name in NEVER:
                assert 'mode="reset"' in failed.value.remedy
                with pytest.raises(ConfigurationDrift):
                    validation.check_drift(built_with(was), given, "/target", policy)
        if name not in NEVER:
            assert 'set on_drift in policies to "accept"' in failed.value.remedy
            notes = validation.check_drift(built_with(was), given, "/target", "accept")
            assert any(f"built with {name}" in note and "accepted" in note for note in notes)


@pytest.mark.parametrize(
    ("options", "again"),
    [
        (FEED, 'stay until a run with mode="reload") or to "repair" (the next run computes them again);'),
        (replace(FEED, stored_as_scd_type=2), 'stay until a run with mode="repair");'),
    ],
    ids=["type 1", "history"],
)
def test_how_rows_come_after_a_drift_that_was_accepted(options: ApplyOptions, again: str) -> None:
    """It is no drift any more then, so on_drift does nothing for them."""
    with pytest.raises(ConfigurationDrift) as failed:
        validation.check_drift(built_with(options), replace(options, where="id > 1"), "/target")
    assert again in failed.value.remedy
    now = replace(options, where="id > 1")
    assert validation.check_drift(built_with(now), now, "/target", "repair") == ()


def test_one_drift_that_is_accepted_does_not_cover_another_and_a_reload_cuts_no_history() -> None:
    both = replace(FEED, where="id > 1", delete_mode="soft")
    with pytest.raises(ConfigurationDrift, match="delete_mode"):
        validation.check_drift(built_with(FEED), both, "/target", "accept")
    now = replace(TYPE_2, where="id > 1")
    with pytest.raises(ConfigurationDrift, match="cannot compute past history") as failed:
        validation.check_drift(built_with(TYPE_2), now, "/target", "repair")
    assert 'mode="repair"' in failed.value.remedy
    log = replace(LOG, stored_as_scd_type=2)
    for built in (FEED, log):
        assert validation.check_drift(built_with(built), replace(built, where="id > 1"), "/target", "repair")
    assert validation.check_drift(built_with(TYPE_2), TYPE_2, "/target", "repair") == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            {"stored_as_scd_type": 2, "sequence_by": "at", "delete_sequence": "now()"},
            {"stored_as_scd_type": 2, "sequence_by": "date(at)", "delete_sequence": "today()"},
        ),
        ({"column_list": ("id", "name")}, {"column_list": ("NAME", "ID")}),
        ({"where": "id  > 1"}, {"where": " id > 1 "}),
        ({"apply_as_deletes": "a  = 1"}, {"apply_as_deletes": "a = 1"}),
        (
            {"ignore_null_updates_column_list": ("name",)},
            {"ignore_null_updates": True, "ignore_null_updates_column_list": ("Name",)},
        ),
        ({"columns_to_update": "cols"}, {"columns_to_update": "COLS"}),
    ],
)
def test_what_is_no_drift(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert validation.check_drift(built_with(replace(FEED, **one)), replace(FEED, **other), "/target") == ()


@pytest.mark.parametrize(
    "options",
    [
        *(FEED, LOG, COPIES),
        replace(LOG, sequence_by=("at", "name")),
        replace(TYPE_2, sequence_by="at", delete_sequence="now()"),
        *(replace(options, **changes) for _, options, changes in CHANGED),
    ],
)
def test_a_seal_tells_the_options_it_was_built_with(options: ApplyOptions) -> None:
    told = validation.options_of(built_with(options))
    assert validation.described(told) == validation.described(options)
    check_options(told)
