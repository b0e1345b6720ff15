"""Ranges, gates and steps, decided from logs alone."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core import validation
from delta_cdc.core.errors import (
    ChangeFeedDisabled,
    ColumnNotFound,
    ConfigurationDrift,
    InvalidConfiguration,
    NotADeltaTable,
    RangeNotContiguous,
    ReservedColumnName,
    SchemaChangeInRange,
    SourceHistoryChanged,
    SourceTableReplaced,
    TableNotFound,
    TargetWithoutWatermark,
    VersionsExpired,
)
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.retention import interval_ms, milliseconds_of
from delta_cdc.core.spec import ApplySpec, ReadSpec
from delta_cdc.core.steps import Staging
from delta_cdc.core.versions import VersionRange
from delta_cdc.core.watermark import TableVersion
from delta_cdc.planning.apply import plan_apply
from delta_cdc.planning.memory import Memory
from tests.support.logs import EPOCH, FEED, SECOND, changed, field_of, seal, struct_of, unhashed
from tests.support.tables import KEYED, NOW, Tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from delta_cdc.planning.plan import Plan

DAY = 86_400 * SECOND

TYPE_2 = ApplyOptions(keys=("id",), stored_as_scd_type=2)
OF_TYPE_2 = {
    "configuration": {"keys": ["id"], "scd_type": 2, "tracked": {"include": None, "except": None}},
}


def spec_of(plan: Plan) -> ApplySpec:
    assert isinstance(plan.spec, ApplySpec)
    return plan.spec


# -- the range ----------------------------------------------------------------------------------
def test_a_range_starts_after_the_watermark_and_ends_at_the_newest(tables: Tables) -> None:
    tables.sealed(2, highest_sequence="7")
    plan = tables.apply()
    step = spec_of(plan).steps[0]
    assert plan.versions == VersionRange(3, 5)
    assert (step.kind, step.starting_version, step.ending_version, step.seal_number) == ("apply", 3, 5, 101)
    assert step.watermark.commit_hash == tables.source.sha256(5)
    assert unhashed(step.planned_on) == TableVersion("id-1", 0)
    assert (step.highest_sequence, step.read.ranges[0].starting_version, step.before.applied_from) == (
        "7",
        3,
        0,
    )
    assert step.source_columns == ("id", "name")
    assert plan.plan_key == "pin:p:source-id"


def test_nothing_new(tables: Tables) -> None:
    tables.sealed(5)
    plan = tables.apply()
    assert (plan.spec, plan.versions, plan.ending_version) == (None, None, 5)
    tables.source.optimize()
    tables.source.set_properties(**FEED)
    plan = tables.apply()
    assert plan.spec is None
    assert "No commit in versions 6-7" in plan.notes[-1]


@pytest.mark.parametrize(
    ("saved", "given", "end"),
    [
        (4, {}, 4),
        (None, {"max_versions": 2}, 4),
        # Who edits the store of the saved plans cannot lift a limit.
        (5, {"max_versions": 2}, 4),
        (None, {"ending_version": 3}, 3),
        (4, {"ending_version": 5}, 4),
        (9, {}, 5),
        (None, {"starting_version": 3, "ending_version": 4}, 4),
    ],
)
def test_the_end_is_the_nearest_bound(
    tables: Tables, saved: int | None, given: dict[str, int], end: int
) -> None:
    tables.sealed(2)
    assert tables.apply(saved, **given).versions == VersionRange(3, end)


def test_a_run_of_maintenance_longer_than_max_versions_is_passed(tables: Tables) -> None:
    tables.sealed(5)
    for _ in range(7):
        tables.source.optimize()
    for _ in range(4):
        tables.source.append()
    plan = tables.apply(max_versions=2)
    assert plan.versions == VersionRange(6, 14)
    assert spec_of(plan).steps[0].read.ranges[0].starting_version == 13


def test_what_is_applied_is_cut_from_an_explicit_range(tables: Tables) -> None:
    tables.sealed(2)
    plan = tables.apply(starting_version=1)
    assert plan.versions == VersionRange(3, 5)
    assert "Versions 1-2" in plan.notes[0]
    assert "already applied" in plan.notes[0]
    for given in ({"starting_version": 1, "ending_version": 1}, {"ending_version": 2}):
        plan = tables.apply(**given)
        assert plan.spec is None
        assert "already applied" in plan.notes[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((4, None), r"3-3 unapplied"),
        ((None, 6), r"newest version of .* is 5"),
        ((7, 9), r"3-6 unapplied.*ending_version 9 .* is 5.*start at 3.*end at 5"),
    ],
)
def test_a_range_that_does_not_continue_or_does_not_exist_yet(
    tables: Tables, given: tuple[int | None, int | None], message: str
) -> None:
    """Both ends of a wrong range are in one message."""
    tables.sealed(2)
    with pytest.raises(RangeNotContiguous, match=message):
        tables.apply(starting_version=given[0], ending_version=given[1])


def test_a_load_before_a_range_that_does_not_exist_yet(tables: Tables) -> None:
    with pytest.raises(RangeNotContiguous, match=r"starting_version 7 .*ending_version 9 .* is 5"):
        tables.apply(starting_version=7, ending_version=9)
    with pytest.raises(RangeNotContiguous, match="is 5"):
        tables.apply(starting_version=6)


# -- gates --------------------------------------------------------------------------------------


def test_the_feed_is_off(tables: Tables) -> None:
    tables.source.set_properties(**{"delta.enableChangeDataFeed": "false"})
    tables.sealed(6, **OF_TYPE_2)
    tables.source.overwrite()
    with pytest.raises(ChangeFeedDisabled) as failed:
        tables.apply(options=TYPE_2)
    for text in ("delta.enableChangeDataFeed", "version 7", "DeltaEnableChangeDataFeedOperator"):
        assert text in str(failed.value)


def test_the_feed_was_off_in_between(tables: Tables) -> None:
    """Delta refuses a range with such a version, so it is not in any; no row is lost, for it has none."""
    tables.sealed(5, **OF_TYPE_2)
    tables.source.append()
    tables.source.set_properties()
    tables.source.set_properties(**FEED)
    tables.source.append()
    read_ranges = tables.apply(options=TYPE_2).steps[0].read.ranges
    assert [(s.starting_version, s.ending_version) for s in read_ranges] == [(6, 6), (9, 9)]


def test_the_feed_was_turned_on_too_late(tables: Tables) -> None:
    tables.source.set_properties()
    tables.sealed(6)
    tables.source.overwrite()
    tables.source.set_properties(**FEED)
    tables.source.append()
    read_ranges = tables.apply().steps[0].read.ranges
    assert [s.method for s in read_ranges] == ["snapshot_diff", "change_files"], "type 1 needs no more"
    tables.sealed(6, 101, **OF_TYPE_2)
    with pytest.raises(ChangeFeedDisabled, match="version 7"):
        tables.apply(options=TYPE_2)


def test_gates_count_from_the_first_change(tables: Tables) -> None:
    tables.source.set_properties()
    tables.sealed(6)
    tables.source.optimize(at=EPOCH - 100 * DAY)
    tables.source.set_properties(**FEED)
    tables.source.append()
    plan = tables.apply()
    assert plan.versions == VersionRange(7, 9)
    assert spec_of(plan).steps[0].read.ranges[0].starting_version == 9


@pytest.mark.parametrize(
    ("retention", "age", "fits"),
    [
        (None, 6 * DAY, True),
        (None, 8 * DAY, False),
        ("interval 30 days", 29 * DAY, True),
        ("interval 1 hour", 2 * 3_600 * SECOND, False),
    ],
)
def test_retention(tables: Tables, retention: str | None, age: int, fits: bool) -> None:
    extra = {"delta.deletedFileRetentionDuration": retention} if retention else {}
    tables.source.set_properties(**{**FEED, **extra})
    tables.sealed(6)
    tables.source.append()
    expected = nullcontext() if fits else pytest.raises(VersionsExpired, match="deletedFileRetentionDuration")
    with expected:
        assert tables.apply(now=EPOCH + 7 * SECOND + age).versions == VersionRange(7, 7)


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("interval 1 week", 168),
        ("INTERVAL 1 DAY 12 HOURS", 36),
        ("168 hours", 168),
        ("interval 90 minutes", 1.5),
    ],
)
def test_intervals(text: str, hours: float) -> None:
    assert interval_ms(text) == hours * 3_600_000


def test_a_negative_retention() -> None:
    name = "delta.logRetentionDuration"
    with pytest.raises(InvalidConfiguration, match=f"{name} is 'interval -99999999 days'"):
        milliseconds_of(name, {name: "interval -99999999 days"})
    assert milliseconds_of(name, {name: "interval 0 days"}) == 0


@pytest.mark.parametrize("text", ["", "interval", "2 months", "interval x days", "7"])
def test_unreadable_intervals(text: str) -> None:
    with pytest.raises(InvalidConfiguration):
        interval_ms(text)


# -- schema changes -----------------------------------------------------------------------------
ID, NAME = field_of("id"), field_of("name")
NESTED = field_of("at", struct_of(field_of("x", "integer"), field_of("y", "integer")))


def listed(inner: dict[str, Any]) -> dict[str, Any]:
    return field_of("all", {"type": "array", "elementType": struct_of(inner), "containsNull": True})


MAPPED = field_of("by", {"type": "map", "keyType": "string", "valueType": "date", "valueContainsNull": True})


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ([ID, NAME], [ID, field_of("title")], "column name was dropped or renamed"),
        ([ID, NESTED], [ID, field_of("at", struct_of(field_of("x", "integer")))], "column at.y was dropped"),
        ([ID, listed(ID)], [ID, listed(NAME)], "column all.element.id was dropped"),
        (
            [ID, MAPPED],
            [ID, field_of("by", {**MAPPED["type"], "valueType": "timestamp"})],
            "column by.value changed its type from date to timestamp",
        ),
        (
            [field_of("id", mapped=1), field_of("name", mapped=2)],
            [field_of("id", mapped=1), field_of("title", mapped=2)],
            "column name was renamed to title",
        ),
    ],
)
@pytest.mark.parametrize("place", ["before the first change", "after it"])
def test_a_column_that_is_lost_in_the_range(
    tables: Tables, before: list[Any], after: list[Any], said: str, place: str
) -> None:
    """Which changes there are is in tests/unit/test_column_changes.py."""
    tables.source.alter(*before, operation="REPLACE COLUMNS")
    tables.sealed(6)
    if place == "after it":
        tables.source.append()
    altered = tables.source.alter(*after)
    tables.source.append()
    for plan in (tables.apply, tables.read):
        with pytest.raises(SchemaChangeInRange, match=f"version {altered} .CHANGE COLUMN.: {said}") as failed:
            plan()
        assert f"up to version {altered - 1} (ending_version)" in str(failed.value)


def test_a_column_that_is_lost_and_comes_back(tables: Tables) -> None:
    """The two ends agree, and yet old values are gone."""
    tables.sealed(5)
    tables.source.alter(ID)
    tables.source.alter(ID, NAME)
    tables.source.append()
    with pytest.raises(SchemaChangeInRange, match="in version 6"):
        tables.apply()


@pytest.mark.parametrize(
    "after",
    [
        [ID, NAME, field_of("more", "date")],
        [field_of("ID"), field_of("name", comment="said", nullable=False)],
        [field_of("id", mapped=1, file_name="id"), field_of("name", mapped=2, file_name="name")],
        [NAME, ID],
    ],
)
def test_changes_of_the_schema_that_lose_nothing(tables: Tables, after: list[Any]) -> None:
    tables.sealed(5)
    tables.source.alter(*after)
    tables.source.append()
    plan = tables.apply()
    assert (plan.versions, plan.notes) == (VersionRange(6, 7), ())


def test_a_replaced_source_counts_its_columns_anew(tables: Tables) -> None:
    tables.source.alter(field_of("id", mapped=1), field_of("name", mapped=2))
    tables.sealed(6)
    tables.source.fields = [field_of("id", mapped=3), field_of("name", mapped=4)]
    tables.source.replace_table("other")
    assert tables.apply().versions == VersionRange(7, 7)
    tables.source.fields = [ID]
    tables.source.replace_table("another")
    with pytest.raises(SchemaChangeInRange, match="in version 8"):
        tables.apply()


def test_the_schema_before_the_range_is_gone(tables: Tables) -> None:
    tables.sealed(5)
    tables.source.alter(ID, NAME, field_of("more"))
    tables.source.checkpoint(*range(5))
    tables.source.append()
    plan = tables.apply()
    assert plan.versions == VersionRange(6, 7)
    assert "looked for from version 6 on" in plan.notes[0]
    tables.source.alter(ID)
    with pytest.raises(SchemaChangeInRange, match="in version 8"):
        tables.apply()


def test_a_column_that_is_lost_after_the_first_version_of_a_load(tables: Tables) -> None:
    tables.source.alter(ID)
    tables.source.append()
    for first in (0, 3):
        with pytest.raises(SchemaChangeInRange, match="in version 6"):
            tables.apply(starting_version=first)
    assert tables.apply(starting_version=7).versions == VersionRange(7, 7)


# -- identity -----------------------------------------------------------------------------------


def test_the_source_was_replaced_inside_its_log(tables: Tables) -> None:
    tables.sealed(5)
    tables.source.replace_table("other")
    plan = tables.apply()
    assert plan.versions == VersionRange(6, 6)
    assert spec_of(plan).steps[-1].watermark.table_id == "other"
    assert "replaced inside its log" in plan.notes[0]


def test_the_source_was_replaced_inside_its_log_without_feed(tables: Tables) -> None:
    tables.sealed(5)
    tables.source.configuration = {}
    tables.source.replace_table("other")
    with pytest.raises(SourceTableReplaced) as failed:
        tables.apply()
    assert "source_kind 'snapshot'" in failed.value.remedy


def test_a_restored_source_is_a_version_with_changes(tables: Tables) -> None:
    tables.sealed(5)
    tables.source.restore(3)
    assert tables.apply().versions == VersionRange(6, 6)


# -- initial load -------------------------------------------------------------------------------
def test_no_target_is_loaded_from_the_newest_version(tables: Tables) -> None:
    plan = tables.apply()
    (step,) = spec_of(plan).steps
    assert (step.kind, step.starting_version, step.ending_version) == ("load", 5, 5)
    assert (step.seal_number, step.planned_on, step.before, step.read.is_empty) == (NOW, None, None, False)
    assert step.watermark.commit_hash == tables.source.sha256(5)
    assert plan.versions == VersionRange(5, 5)
    assert plan.notes == ()


@pytest.mark.parametrize(("saved", "given"), [(3, {}), (None, {"ending_version": 3})])
def test_a_load_keeps_its_version(tables: Tables, saved: int | None, given: dict[str, int]) -> None:
    (step,) = spec_of(tables.apply(saved, **given)).steps
    assert step.ending_version == 3
    assert step.watermark.commit_hash == tables.source.sha256(3)


def test_a_load_of_an_old_version_is_inside_retention(tables: Tables) -> None:
    with pytest.raises(VersionsExpired):
        tables.apply(3, now=NOW + 8 * DAY)
    assert tables.apply(now=NOW + 8 * DAY).versions == VersionRange(5, 5)


@pytest.mark.parametrize(
    ("saved", "number"),
    [
        (NOW - 5_000, NOW - 5_000),
        (NOW - 6 * DAY, NOW - 6 * DAY),
        (NOW + 1, NOW),
        (NOW - 8 * DAY, NOW),
        (1, NOW),
        (None, NOW),
    ],
)
def test_a_retry_of_a_load_keeps_its_seal_number(tables: Tables, saved: int | None, number: int) -> None:
    """Below the time, as every first number is, and not so old that it may belong to an earlier table."""
    plan = plan_apply(tables.request(), Memory(number=lambda _: saved, now_ms=NOW))
    assert spec_of(plan).steps[0].seal_number == number
    tables.sealed(2)
    plan = plan_apply(tables.request(), Memory(number=lambda _: saved, now_ms=NOW))
    assert spec_of(plan).steps[0].seal_number == 101


def test_an_empty_target_is_loaded_under_its_own_number(tables: Tables) -> None:
    tables.target.create()
    (step,) = spec_of(tables.apply()).steps
    assert (step.seal_number, unhashed(step.planned_on)) == (EPOCH, TableVersion("id-1", 0))


def test_a_load_without_feed_warns(tables: Tables) -> None:
    tables.source.set_properties()
    assert "at greater cost (row ids" in tables.apply().notes[0]
    assert "the next run fails after an UPDATE or DELETE, unless" in tables.apply(options=TYPE_2).notes[0]
    assert tables.apply(options=ApplyOptions(insert_only=True)).notes == ()


@pytest.mark.parametrize("given", [{"starting_version": 3}, {"initial_load": {"from_version": 3}}])
def test_from_a_version(tables: Tables, given: dict[str, Any]) -> None:
    plan = tables.apply(**given)
    load, changes = spec_of(plan).steps
    assert (load.kind, load.ending_version, load.seal_number, load.read.is_empty) == ("load", 2, NOW, False)
    assert load.watermark.commit_hash == tables.source.sha256(2)
    assert (changes.kind, changes.starting_version, changes.ending_version) == ("apply", 3, 5)
    assert (changes.seal_number, changes.planned_on) == (NOW + 1, None)
    assert plan.versions == VersionRange(3, 5)


def test_from_version_0(tables: Tables) -> None:
    load, changes = spec_of(tables.apply(starting_version=0)).steps
    assert (load.read.is_empty, load.ending_version, load.source_columns) == (True, -1, ("id", "name"))
    assert (changes.starting_version, changes.ending_version) == (0, 5)
    made = seal(100, 0, source=tables.source)
    step = replace(made.step, kind="load", starting_version=-1, ending_version=-1)
    tables.target.write_seal(
        changed(made, applied_to=TableVersion(tables.source.table_id, -1), step=step), rows=False
    )
    assert tables.apply().versions == VersionRange(0, 5), "after the empty load"


def test_from_a_version_needs_the_feed(tables: Tables) -> None:
    tables.source.set_properties()
    tables.source.overwrite()
    with pytest.raises(ChangeFeedDisabled):
        tables.apply(starting_version=7, options=TYPE_2)


# -- what is refused before Spark ---------------------------------------------------------------
@pytest.mark.parametrize(
    "changes",
    [
        {"pipeline": ""},
        {"pipeline": "a/b"},
        {"pipeline": "a b"},
        {"starting_version": 4, "ending_version": 3},
        {"initial_load": "none", "staging": "/staging/x"},
        {"take_over_from": "p"},
        {"take_over_from": "a b"},
        {"starting_version": 3, "starting_timestamp": "2027-01-15T08:00:03+00:00"},
        {"ending_version": 3, "ending_timestamp": "2027-01-15T08:00:03+00:00"},
        {"ending_timestamp": "2027-01-15T08:00:03"},
        {"starting_timestamp": "yesterday"},
        {"initial_load": {"from_version": 1}, "staging": "/staging/x"},
    ],
)
def test_requests_that_cannot_be_meant(tables: Tables, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfiguration) as failed:
        tables.apply(**changes)
    assert failed.value.argument == next(iter(changes)) or set(changes) > {failed.value.argument}


def test_source_and_target_are_two_tables(tables: Tables) -> None:
    with pytest.raises(InvalidConfiguration, match="same table"):
        tables.apply(target=tables.source.uri + "/")


def test_columns_the_source_does_not_have(tables: Tables) -> None:
    options = replace(KEYED, cluster_by=("__START_AT",))
    with pytest.raises(ColumnNotFound):
        tables.apply(options=options)
    tables.sealed(3, configuration=validation.described(options))
    with pytest.raises(ColumnNotFound):
        tables.apply(options=options)


@pytest.mark.parametrize("name", ["_change_type", "_COMMIT_VERSION", "_commit_timestamp", "__delta_cdc_x"])
def test_reserved_columns(tables: Tables, name: str) -> None:
    tables.source.columns = ("id", name)
    tables.source.set_properties(**FEED)
    with pytest.raises(ReservedColumnName, match=name):
        tables.apply()
    with pytest.raises(ReservedColumnName, match=name):
        tables.read()


def test_the_history_columns_are_reserved_for_type_2(tables: Tables) -> None:
    tables.source.columns = ("id", "__end_at")
    tables.source.set_properties(**FEED)
    with pytest.raises(ReservedColumnName, match="__END_AT"):
        tables.apply(options=TYPE_2)
    for options in (KEYED, replace(TYPE_2, end_column="until")):
        assert tables.apply(options=options).spec is not None


def test_a_misspelt_key_is_not_called_drift(tables: Tables) -> None:
    tables.sealed(3)
    with pytest.raises(ColumnNotFound, match="column idd of keys does not exist"):
        tables.apply(options=ApplyOptions(keys=("idd",)))


BUILT: dict[str, Any] = {
    "keys": ["id"],
    "scd_type": 2,
    "start_column": "Since",
    "end_column": "until",
    "where": "id > 1\n  AND name = 'x'",
    "select": ["id", "upper( name )  AS name"],
    "partition_by": {"First": "left(name, 1)", "id": None},
}
BUILT_WITH = ApplyOptions(
    keys=("id",),
    stored_as_scd_type=2,
    start_column="since",
    end_column="UNTIL",
    where=" id > 1 AND name = 'x' ",
    select=("id", "upper( name ) AS name"),
    partition_by={"first": "left(name,  1)", "id": None},
)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"start_column": "begin"}, "start_column = Since, and now start_column = begin"),
        ({"where": "id > 1 AND name = 'X'"}, "where"),
        ({"where": None}, "now where = all"),
        ({"select": ("id", "lower(name) AS name")}, "select"),
        (
            {"partition_by": {"first": "left(name, 2)", "id": None}},
            "partition_by = .First: left.name, 1., id.",
        ),
    ],
)
def test_what_the_target_was_built_with_drifted(tables: Tables, changes: dict[str, Any], named: str) -> None:
    """Every option is compared in tests/unit/test_checks.py; here, another spelling is no other option."""
    tables.sealed(3, configuration=BUILT)
    assert tables.apply(options=BUILT_WITH).spec is not None
    with pytest.raises(ConfigurationDrift, match=named):
        tables.apply(options=replace(BUILT_WITH, **changes))


def test_an_option_that_a_seal_does_not_name_had_its_default(tables: Tables) -> None:
    """Such a seal was written by a release that did not have the option yet."""
    tables.sealed(3, configuration={"keys": ["id"], "scd_type": 2})
    options = ApplyOptions(keys=("id",), stored_as_scd_type=2)
    assert tables.apply(options=options).spec is not None
    with pytest.raises(ConfigurationDrift, match="where = all, and now where = id > 1"):
        tables.apply(options=replace(options, where="id > 1"))


def test_the_history_columns_mean_nothing_for_type_1(tables: Tables) -> None:
    tables.sealed(3, configuration={**BUILT, "scd_type": 1, "where": None, "select": [], "partition_by": {}})
    assert tables.apply().spec is not None


def test_no_source(tables: Tables, tmp_path: Path) -> None:
    with pytest.raises(TableNotFound):
        tables.apply(source=str(tmp_path / "absent"))
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "x.csv").write_text("x")
    with pytest.raises(NotADeltaTable):
        tables.apply(source=str(tmp_path / "files"))


# -- staging ------------------------------------------------------------------------------------
def read_spec(plan: Plan) -> ReadSpec:
    assert isinstance(plan.spec, ReadSpec)
    return plan.spec


def test_the_first_batch_is_a_snapshot(tables: Tables) -> None:
    spec = read_spec(tables.read())
    (step,) = spec.steps
    assert (spec.kind, step.kind, step.ending_version) == ("snapshot", "load", 5)
    assert (step.seal_number, step.planned_on) == (NOW, None)
    with pytest.raises(InvalidConfiguration, match="first batch is a snapshot"):
        tables.read(starting_version=3)


def test_a_batch_holds_the_changes_after_the_watermark(tables: Tables) -> None:
    tables.sealed(2)
    spec = read_spec(tables.read())
    (step,) = spec.steps
    assert (spec.kind, step.starting_version, step.ending_version, step.seal_number) == ("changes", 3, 5, 101)
    assert tables.read(max_versions=1).versions == VersionRange(3, 3)


def test_a_batch_that_was_applied_is_no_longer_open(tables: Tables) -> None:
    """Also not after a RESTORE of the target, which takes its own seal back."""
    tables.sealed(2)
    tables.staged(101, 3, 4)
    tables.sealed(4, 101, start=3)
    step = read_spec(tables.read()).steps[0]
    assert (step.starting_version, step.seal_number) == (5, 102)
    tables.target.restore(0)
    step = read_spec(tables.read()).steps[0]
    assert (step.starting_version, step.seal_number) == (3, 102)
    assert tables.apply(staging=tables.staging.uri).spec is None
    tables.staging.truncate()
    assert unhashed(read_spec(tables.read()).steps[0].planned_on) == TableVersion("st", 1)


def test_a_stale_batch_does_not_block_the_next_number(tables: Tables) -> None:
    tables.sealed(2)
    tables.sealed(3, 101, start=3)
    tables.staged(102, 4, 5)
    tables.target.restore(0)
    tables.staged(103, 4, 5)
    assert read_spec(tables.read()).steps[0].seal_number == 104


def test_nothing_new_to_read(tables: Tables) -> None:
    tables.sealed(5)
    plan = tables.read()
    assert (plan.spec, plan.batch, plan.versions) == (None, None, None)


def test_apply_takes_the_open_batch(tables: Tables) -> None:
    tables.sealed(2, highest_sequence="9")
    version = tables.staged(101, 3, 4)
    plan = tables.apply(staging=tables.staging.uri)
    (step,) = spec_of(plan).steps
    assert plan.versions == VersionRange(3, 4)
    assert step.read.staging == Staging(tables.staging.uri, version, "changes")
    assert (step.kind, step.seal_number, step.highest_sequence) == ("apply", 101, "9")
    assert step.watermark.commit_hash == tables.source.sha256(4)


def test_apply_loads_from_a_staged_snapshot(tables: Tables) -> None:
    tables.staged(700, 5, 5, "snapshot")
    (step,) = spec_of(tables.apply(staging=tables.staging.uri)).steps
    assert step.read.staging == Staging(tables.staging.uri, 0, "snapshot")
    assert (step.kind, step.seal_number, step.ending_version) == ("load", 700, 5)


@pytest.mark.parametrize(
    ("start", "end", "batch"), [(3, 3, "changes"), (4, 4, "snapshot"), (5, 5, "changes")]
)
def test_a_batch_that_does_not_continue_the_target(tables: Tables, start: int, end: int, batch: str) -> None:
    tables.sealed(3)
    tables.staged(101, start, end, batch)
    plan = tables.apply(staging=tables.staging.uri)
    assert plan.spec is None
    assert "no open batch" in plan.notes[-1]


def of_another_history(tables: Tables) -> None:
    text = tables.source.file(4).read_text()
    tables.source.file(4).write_text(text.replace("Append", "append"))


def cut_short(tables: Tables) -> None:
    for version in (4, 5):
        tables.source.file(version).unlink()


@pytest.mark.parametrize("batch", ["changes", "snapshot"])
@pytest.mark.parametrize(
    ("happens", "said"),
    [(of_another_history, "commit file of version 4 differs"), (cut_short, "newest version is 3")],
)
def test_a_batch_of_another_history(
    tables: Tables, batch: str, happens: Callable[[Tables], None], said: str
) -> None:
    """The source came back from a backup after the batch was read; at the watermark nothing differs."""
    if batch == "changes":
        tables.sealed(2)
        tables.staged(101, 3, 4)
    else:
        tables.staged(700, 4, 4, "snapshot")
    happens(tables)
    with pytest.raises(SourceHistoryChanged, match=said):
        tables.apply(staging=tables.staging.uri)
    plan = tables.read()
    assert "is replaced" in plan.notes[0]
    assert read_spec(plan).steps[0].ending_version == tables.source_newest()
    assert read_spec(plan).steps[0].seal_number > 101


def test_a_batch_whose_end_was_cleaned_from_the_source(tables: Tables) -> None:
    tables.sealed(2)
    tables.staged(101, 3, 5)
    tables.source.checkpoint(5)
    tables.source.append()
    assert tables.apply(staging=tables.staging.uri).versions == VersionRange(3, 5)


def test_no_staging_table_is_no_batch_and_one_of_somebody_else_is_refused(tables: Tables) -> None:
    assert tables.apply(staging=tables.staging.uri).spec is None
    tables.staging.create()
    tables.staging.append()
    with pytest.raises(TargetWithoutWatermark, match="staging table"):
        tables.apply(staging=tables.staging.uri)
