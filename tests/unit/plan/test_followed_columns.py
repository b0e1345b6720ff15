"""Which schema changes an apply follows by its policy, and how they split its range."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core import validation
from delta_cdc.core.change_log import COLUMNS, LOG_COLUMNS
from delta_cdc.core.column_changes import ColumnChange
from delta_cdc.core.errors import InvalidConfiguration, SchemaChangeInRange, TargetSchemaClash
from delta_cdc.core.spec import ApplySpec
from tests.support.logs import LogTable, field_of
from tests.support.tables import KEYED, Tables

if TYPE_CHECKING:
    from delta_cdc.core.steps import Step

ID, NAME, SIZE = (
    field_of("id", "integer", mapped=1),
    field_of("name", mapped=2),
    field_of("size", "integer", mapped=3),
)
WIDE = field_of("size", "long", mapped=3)
TITLE = field_of("title", mapped=2)
MAPPED = {"delta.columnMapping.mode": "name"}


@pytest.fixture
def mapped(tables: Tables) -> Tables:
    """A source and a target with column mapping, sealed up to version 6."""
    tables.source.configuration |= MAPPED
    tables.source.alter(ID, NAME, SIZE, operation="REPLACE COLUMNS")
    tables.target.configuration = dict(MAPPED)
    tables.target.fields = [ID, NAME, SIZE]
    tables.sealed(6)
    return tables


def steps(tables: Tables, policy: str, **options: Any) -> list[Step]:
    """Return the steps of an apply with a policy."""
    chosen = replace(KEYED, **{"schema_evolution": policy, **options})
    spec = tables.apply(options=chosen).spec
    assert isinstance(spec, ApplySpec)
    return list(spec.steps)  # type: ignore[arg-type]


def ranges(found: list[Step]) -> list[tuple[int, int]]:
    return [(step.starting_version, step.ending_version) for step in found]


@pytest.mark.parametrize(
    ("after", "policies"),
    [
        ([ID, NAME, WIDE], "'widen' or 'keep_dropped' or 'mirror'"),
        ([ID, NAME], "'keep_dropped' or 'mirror'"),
        ([ID, TITLE, SIZE], "'mirror'"),
    ],
)
def test_the_default_is_strict_and_names_the_policies_that_follow(
    mapped: Tables, after: list[Any], policies: str
) -> None:
    mapped.source.alter(*after)
    mapped.source.append()
    for policy in ("additive", "none"):
        with pytest.raises(SchemaChangeInRange) as failed:
            steps(mapped, policy)
        assert f"set schema_evolution in policies to {policies}" in str(failed.value)
    with pytest.raises(SchemaChangeInRange) as failed:
        mapped.read()
    assert "schema_evolution" not in str(failed.value)


def test_the_remedy_follows_the_later_changes_of_the_range_too(mapped: Tables) -> None:
    mapped.source.alter(ID, NAME, WIDE)
    mapped.source.append()
    mapped.source.alter(ID, NAME)
    with pytest.raises(SchemaChangeInRange, match="size changed its type") as failed:
        steps(mapped, "additive")
    text = "to 'keep_dropped' or 'mirror', which follows all changes of the range"
    assert text in str(failed.value)
    # No policy follows a column of another type: then the first change alone decides.
    mapped.source.alter(ID, field_of("name", "integer", mapped=2))
    with pytest.raises(
        SchemaChangeInRange, match="'widen' or 'keep_dropped' or 'mirror', which follows this"
    ):
        steps(mapped, "additive")


@pytest.mark.parametrize(
    ("policy", "after", "message"),
    [
        ("widen", [ID, NAME], "schema_evolution"),
        ("widen", [ID, TITLE, SIZE], "schema_evolution"),
        ("keep_dropped", [ID, TITLE, SIZE], "schema_evolution"),
        # No policy follows what Delta cannot widen.
        (
            "mirror",
            [ID, NAME, field_of("size", "float", mapped=3)],
            "size changed its type",
        ),
    ],
)
def test_a_change_beyond_the_policy_is_refused(
    mapped: Tables, policy: str, after: list[Any], message: str
) -> None:
    mapped.source.alter(*after)
    with pytest.raises(SchemaChangeInRange, match=message):
        steps(mapped, policy)


def test_a_range_is_split_at_each_change_that_old_rows_do_not_show(mapped: Tables) -> None:
    mapped.source.append()
    mapped.source.alter(ID, NAME, WIDE, field_of("more", mapped=4))
    mapped.source.append()
    mapped.source.alter(ID, TITLE, WIDE, field_of("more", mapped=4))
    mapped.source.alter(ID, TITLE, WIDE)
    mapped.source.append()
    found = steps(mapped, "mirror")
    assert ranges(found) == [(7, 7), (8, 9), (10, 12)]
    assert [step.column_changes for step in found] == [
        (),
        (),
        (ColumnChange("renamed", ("name",), after="title"), ColumnChange("dropped", ("more",))),
    ]
    assert [step.source_columns for step in found] == [
        ("id", "name", "size"),
        ("id", "name", "size", "more"),
        ("id", "title", "size"),
    ]


@pytest.mark.parametrize("policy", ["additive", "mirror"])
def test_a_range_is_split_where_a_name_gets_another_case(mapped: Tables, policy: str) -> None:
    """As by overwriteSchema. The target keeps its own."""
    mapped.source.append()
    mapped.source.alter(ID, field_of("Name", mapped=2), SIZE)
    mapped.source.append()
    found = steps(mapped, policy)
    assert ranges(found) == [(7, 7), (8, 9)]
    assert [step.source_columns for step in found] == [("id", "name", "size"), ("id", "Name", "size")]
    assert [step.column_changes for step in found] == [(), ()]


def test_a_change_of_columns_alone_is_work(mapped: Tables) -> None:
    mapped.source.alter(ID, NAME, WIDE)
    assert mapped.apply(options=replace(KEYED, schema_evolution="additive")).spec is None
    found = steps(mapped, "widen")
    assert ranges(found) == [(7, 7)]
    assert found[0].read.ranges == ()


def test_a_name_that_is_used_again_takes_a_step_of_its_own(mapped: Tables) -> None:
    """From the names alone, a retry could not tell how many of three renames of a swap its target has."""
    mapped.source.alter(ID, field_of("between", mapped=2), SIZE)
    mapped.source.alter(ID, field_of("between", mapped=2), field_of("name", "integer", mapped=3))
    mapped.source.alter(ID, field_of("size", mapped=2), field_of("name", "integer", mapped=3))
    mapped.source.append()
    found = steps(mapped, "mirror")
    assert ranges(found) == [(7, 7), (8, 8), (9, 10)]
    renames = [[(change.path[0], change.after) for change in step.column_changes] for step in found]
    assert renames == [[("name", "between")], [("size", "name")], [("between", "size")]]


@pytest.mark.parametrize("collections", [1, 2])
def test_a_nested_field_whose_name_is_used_again_takes_a_step_of_its_own(
    mapped: Tables, collections: int
) -> None:
    """An ALTER adds it: a retry would drop the new field for the old one, again and again."""

    def nested(*numbers: int) -> dict[str, Any]:
        fields = [field_of("x", mapped=5), *(field_of("y", mapped=number) for number in numbers)]
        inner: Any = {"type": "struct", "fields": fields}
        for _ in range(collections):
            inner = {"type": "array", "elementType": inner, "containsNull": True}
        return field_of("deep", inner, mapped=4)

    mapped.source.alter(ID, NAME, nested(6))
    mapped.target.fields = [ID, NAME, nested(6)]
    mapped.target.set_properties(**MAPPED)
    mapped.sealed(7)
    mapped.source.alter(ID, NAME, nested())
    mapped.source.alter(ID, NAME, nested(7))
    mapped.source.append()
    assert ranges(steps(mapped, "mirror")) == ([(8, 10)] if collections == 1 else [(8, 8), (9, 10)])
    reload = {"options": replace(KEYED, schema_evolution="mirror"), "mode": "reload"}
    if collections == 1:
        assert mapped.apply(**reload).spec is not None
        return
    with pytest.raises(SchemaChangeInRange, match="got names of other columns"):
        mapped.apply(**reload)


def test_comments_and_nullability_are_followed_without_a_step_of_their_own(mapped: Tables) -> None:
    mapped.source.append()
    mapped.source.alter(ID, field_of("name", mapped=2, comment="what it is called"), SIZE)
    mapped.source.append()
    (step,) = steps(mapped, "widen")
    assert step.column_changes == (ColumnChange("comment", ("name",), after="what it is called"),)
    assert steps(mapped, "additive")[0].column_changes == ()


@pytest.mark.parametrize(
    "options",
    [
        {"sequence_by": "size + 1", "delete_sequence": "size", "stored_as_scd_type": 2},
        {"partition_by": {"part": "size % 10"}},
        {"cluster_by": ("size",)},
    ],
)
@pytest.mark.parametrize("after", [[ID, NAME, WIDE], [ID, NAME], [ID, NAME, field_of("s", mapped=3)]])
def test_a_column_that_an_option_uses_stays_as_it_is(
    mapped: Tables, options: dict[str, Any], after: list[Any]
) -> None:
    mapped.sealed(6, 101, configuration=validation.described(replace(KEYED, **options)))
    mapped.source.alter(*after)
    with pytest.raises(SchemaChangeInRange, match=f"and {next(iter(options))} uses it"):
        steps(mapped, "mirror", **options)


@pytest.mark.parametrize("key", [[], [field_of("id", "long", mapped=1)], [field_of("key", mapped=1)]])
def test_a_key_stays_as_it_is(mapped: Tables, key: list[Any]) -> None:
    mapped.source.alter(*key, NAME, SIZE)
    with pytest.raises(SchemaChangeInRange, match="and keys uses it"):
        steps(mapped, "mirror")


def test_a_kept_column_is_not_filled_by_another_of_its_name(mapped: Tables) -> None:
    mapped.source.alter(ID, NAME)
    mapped.source.append()
    mapped.source.alter(ID, NAME, field_of("size", "integer", mapped=4))
    with pytest.raises(SchemaChangeInRange, match="has a column of that name already"):
        steps(mapped, "keep_dropped")
    # The target of a mirror has dropped it before.
    assert ranges(steps(mapped, "mirror")) == [(7, 9)]


def test_a_kept_column_is_not_filled_by_one_that_comes_later_in_the_range(mapped: Tables) -> None:
    """The target gets the first one with the range itself, or is made by it."""
    first, second = (field_of("note", mapped=number) for number in (4, 5))
    for after in ([ID, NAME, SIZE, first], [ID, NAME, SIZE], [ID, NAME, SIZE, second]):
        mapped.source.alter(*after)
        mapped.source.append()
    text = "keeps a column of that name, which was dropped before"
    with pytest.raises(SchemaChangeInRange, match=text) as failed:
        steps(mapped, "keep_dropped")
    assert "Remedy: apply up to version 10 (ending_version)." in str(failed.value)
    assert ranges(steps(mapped, "mirror")) == [(7, 8), (9, 12)]


EVENTS: dict[str, Any] = {"source_kind": "change_log", "sequence_by": ("id",), "keys": ("id",)}


@pytest.mark.parametrize(
    ("after", "options", "message"),
    [
        ([ID, TITLE, SIZE], {"columns_to_update": "given"}, "name was renamed to title, and older events"),
        ([ID, TITLE, SIZE], {"columns_to_update": COLUMNS}, "name was renamed to title, and older events"),
        ([ID, NAME], {"columns_to_update": "given"}, "size was dropped or renamed, and older events name"),
        ([ID, NAME], {"columns_to_update": COLUMNS}, None),
        ([ID, NAME, WIDE], {"columns_to_update": "given"}, None),
        ([ID, TITLE, SIZE], {"ignore_null_updates": True}, None),
        (
            [ID, NAME],
            {"schema_evolution": "keep_dropped", "stored_as_scd_type": 2},
            "would compute a history without it",
        ),
        ([ID, NAME], {"schema_evolution": "keep_dropped"}, None),
        ([ID, NAME], {"stored_as_scd_type": 2}, None),
        (
            [ID, NAME],
            {"schema_evolution": "keep_dropped", "stored_as_scd_type": 2, "source_kind": "change_feed"},
            None,
        ),
    ],
)
def test_events_that_are_read_again_by_other_columns_give_the_same_rows(
    mapped: Tables, after: list[Any], options: dict[str, Any], message: str | None
) -> None:
    chosen = {**EVENTS, "schema_evolution": "mirror", **options}
    if chosen["source_kind"] == "change_feed":
        del chosen["sequence_by"]
    chosen = replace(KEYED, **chosen)
    listing = [field_of(name, mapped=7) for name in [options.get("columns_to_update")] if name]
    mapped.source.alter(ID, NAME, SIZE, *listing)
    mapped.sealed(7, 101, configuration=validation.described(chosen))
    mapped.source.alter(*after, *listing)
    mapped.source.append()
    if message is None:
        assert mapped.apply(options=chosen).spec is not None
        return
    with pytest.raises(SchemaChangeInRange, match=message) as failed:
        mapped.apply(options=chosen)
    assert f"RESTORE {mapped.source.uri} to version 7" in failed.value.remedy


@pytest.mark.parametrize("mode", ["incremental", "reload"])
@pytest.mark.parametrize("policy", ["keep_dropped", "mirror"])
def test_a_new_column_does_not_mix_with_the_targets_own(mapped: Tables, policy: str, mode: str) -> None:
    """As one that an earlier policy kept: its old rows would have values of another column."""
    mapped.target.fields = [ID, NAME, SIZE, field_of("Note", mapped=9)]
    mapped.target.set_properties(**MAPPED)
    mapped.source.alter(ID, NAME, SIZE, field_of("note", mapped=4))
    mapped.source.append()
    chosen = replace(KEYED, schema_evolution=policy)
    with pytest.raises(SchemaChangeInRange, match=r"(has a|another) column of that name") as failed:
        mapped.apply(options=chosen, mode=mode)
    assert "rename or drop the target's column" in failed.value.remedy
    # What the target leaves out takes no name.
    chosen = replace(chosen, column_list=("id", "name"))
    mapped.sealed(6, 101, configuration=validation.described(chosen))
    assert mapped.apply(options=chosen, mode=mode).spec is not None


@pytest.mark.parametrize("policy", ["keep_dropped", "mirror"])
def test_a_reload_puts_no_new_column_into_a_kept_one(mapped: Tables, policy: str) -> None:
    mapped.source.alter(ID, NAME)
    mapped.source.alter(ID, NAME, field_of("size", "integer", mapped=4))
    mapped.source.append()
    chosen = replace(KEYED, schema_evolution=policy)
    if policy == "mirror":
        assert mapped.apply(options=chosen, mode="reload").spec is not None
        return
    with pytest.raises(SchemaChangeInRange, match="a reload at version 9 would mix their values"):
        mapped.apply(options=chosen, mode="reload")


@pytest.mark.parametrize("policy", ["additive", "mirror"])
def test_a_dropped_column_that_a_restore_brought_back_needs_a_reload(mapped: Tables, policy: str) -> None:
    """Rows that did not change have its values again, and the target has NULL."""
    mapped.source.configuration["delta.columnMapping.maxColumnId"] = "3"
    mapped.source.alter(ID, NAME)
    mapped.sealed(7)
    mapped.target.fields = [ID, NAME]
    mapped.target.set_properties(**MAPPED)
    mapped.source.alter(ID, NAME, SIZE, operation="RESTORE")
    mapped.source.append()
    with pytest.raises(SchemaChangeInRange, match="the column size came back") as caught:
        steps(mapped, policy)
    assert "mode='reload'" in caught.value.remedy
    spec = mapped.apply(options=replace(KEYED, schema_evolution=policy), mode="reload").spec
    assert isinstance(spec, ApplySpec)
    assert [step.kind for step in spec.steps] == ["reload"]


@pytest.mark.parametrize(
    "options",
    [
        {"except_column_list": ("size",)},
        {"column_list": ("id", "size")},
        {"select": ("id", "size AS width")},
        {"where": "size > 3"},
        {"apply_as_deletes": "`SIZE` = 0"},
    ],
)
def test_an_option_takes_no_new_column_for_an_older_one_of_its_name(
    mapped: Tables, options: dict[str, Any]
) -> None:
    """Else, for one, the values that an except_column_list names are in the target, by their new name."""
    (option,) = options
    mapped.source.alter(ID, NAME, field_of("length", "integer", mapped=3), operation="RENAME COLUMN")
    mapped.source.append()
    assert len(steps(mapped, "mirror")) == 1
    mapped.source.alter(
        ID, NAME, field_of("length", "integer", mapped=3), field_of("size", "integer", mapped=4)
    )
    mapped.source.append()
    with pytest.raises(SchemaChangeInRange, match=f"has its name since, and {option} names it"):
        # As the seal of a target that was built with this option.
        mapped.apply(options=replace(KEYED, schema_evolution="mirror", **options), on_drift="accept")


@pytest.mark.parametrize("options", [{"column_list": ("id", "name")}, {"except_column_list": ("SIZE",)}])
@pytest.mark.parametrize("after", [[ID, NAME], [ID, NAME, field_of("length", "integer", mapped=3)]])
def test_a_column_that_is_not_taken_leaves_the_targets_own_of_its_name(
    mapped: Tables, options: dict[str, Any], after: list[Any]
) -> None:
    chosen = replace(KEYED, schema_evolution="mirror", **options)
    mapped.sealed(6, 101, configuration=validation.described(chosen))
    mapped.source.alter(*after)
    mapped.source.append()
    # A list of columns to leave out cannot keep a column that is gone.
    now = {name: value for name, value in options.items() if name == "column_list"}
    given = replace(KEYED, schema_evolution="mirror", **now)
    spec = mapped.apply(options=given, on_drift="accept").spec
    assert isinstance(spec, ApplySpec)
    assert [step.column_changes for step in spec.steps] == [()]


def test_only_a_target_with_column_mapping_mirrors(mapped: Tables) -> None:
    mapped.target.set_properties()
    mapped.source.alter(ID, NAME)
    with pytest.raises(TargetSchemaClash, match="maps no columns"):
        steps(mapped, "mirror")
    assert ranges(steps(mapped, "keep_dropped")) == [(7, 7)]


@pytest.mark.parametrize(
    ("after", "remedy"),
    [
        ([ID, TITLE, SIZE], "Remedy: run {alter}. Then set schema_evolution in policies to 'mirror', which"),
        (
            [ID, NAME],
            "to 'keep_dropped' or 'mirror', which follows this change ('mirror' only after {alter});",
        ),
        ([ID, NAME, WIDE], "to 'widen' or 'keep_dropped' or 'mirror', which follows this change; or"),
    ],
)
def test_the_first_refusal_names_all_that_a_policy_needs(
    mapped: Tables, after: list[Any], remedy: str
) -> None:
    mapped.target.set_properties()
    mapped.source.alter(*after)
    mapped.source.append()
    with pytest.raises(SchemaChangeInRange) as failed:
        steps(mapped, "none")
    alter = (
        f"ALTER TABLE delta.`{mapped.target.uri}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name'), "
        "if all its readers know column mapping"
    )
    assert remedy.format(alter=alter) in str(failed.value)


@pytest.mark.parametrize("policy", ["additive", "widen", "keep_dropped", "mirror"])
@pytest.mark.parametrize("after", [[ID, NAME], [ID, TITLE, SIZE]], ids=["dropped", "renamed"])
def test_a_reload_leaves_no_lost_column_in_the_target(mapped: Tables, after: list[Any], policy: str) -> None:
    """Its old values would look like the newest ones."""
    mapped.source.alter(*after)
    mapped.source.append()
    chosen = replace(KEYED, schema_evolution=policy)
    if policy == "mirror" or (policy == "keep_dropped" and len(after) == 2):
        assert mapped.apply(options=chosen, mode="reload").spec is not None
    else:
        with pytest.raises(SchemaChangeInRange, match="would leave its old values in the target") as failed:
            mapped.apply(options=chosen, mode="reload")
        assert "'mirror'" in failed.value.remedy
        assert 'mode="reset"' in failed.value.remedy
        mapped.apply(options=chosen, mode="reset")


def test_a_reload_leads_out_of_a_log_whose_older_part_is_damaged(mapped: Tables) -> None:
    mapped.source.append()
    mapped.source.checkpoint()
    (mapped.source.path / "_delta_log" / f"{3:020}.json").write_text("{")
    (step,) = mapped.apply(options=replace(KEYED, schema_evolution="additive"), mode="reload").spec.steps
    assert (step.kind, step.column_changes) == ("reload", ())


@pytest.mark.parametrize("policy", ["additive", "keep_dropped", "mirror"])
def test_a_reload_of_an_unknown_schema_leaves_no_lost_column(mapped: Tables, policy: str) -> None:
    """The seal has the names of the columns that the source had."""
    recorded = {**validation.described(KEYED), "source_columns": ["id", "NAME", "size"]}
    mapped.sealed(6, 101, configuration=recorded)
    mapped.source.alter(ID, NAME)
    mapped.source.append()
    mapped.source.checkpoint()
    (mapped.source.path / "_delta_log" / f"{3:020}.json").write_text("{")
    chosen = replace(KEYED, schema_evolution=policy)
    if policy == "additive":
        with pytest.raises(SchemaChangeInRange, match="would leave its old values in the target"):
            mapped.apply(options=chosen, mode="reload")
        return
    (step,) = mapped.apply(options=chosen, mode="reload").spec.steps
    assert step.column_changes == (ColumnChange("dropped", ("size",)),)


def test_a_reload_needs_no_policy_for_a_column_that_the_target_lacks(mapped: Tables) -> None:
    mapped.target.fields = [ID, NAME]
    mapped.target.set_properties()
    left_out: dict[str, Any] = {"column_list": ("id", "name")}
    mapped.sealed(6, 101, configuration=validation.described(replace(KEYED, **left_out)))
    mapped.source.alter(ID, NAME)
    mapped.source.append()
    assert mapped.apply(options=replace(KEYED, **left_out), mode="reload").spec is not None


@pytest.mark.parametrize(
    ("after", "remedy"),
    [
        ([ID, NAME], "Remedy: apply up to version "),
        (
            [ID, NAME, WIDE],
            "Remedy: set schema_evolution in policies to 'widen', which follows this change; or",
        ),
    ],
)
def test_a_remedy_names_no_policy_that_a_change_log_refuses(
    mapped: Tables, after: list[Any], remedy: str
) -> None:
    mapped.target.fields = [ID, NAME, SIZE, *(field_of(name) for name in LOG_COLUMNS)]
    mapped.target.set_properties()
    mapped.source.alter(*after)
    mapped.source.append()
    events: dict[str, Any] = {"target_kind": "change_log", "sequence_by": ("id",), "delete_sequence": "id"}
    mapped.sealed(6, 101, configuration=validation.described(replace(KEYED, **events)))
    with pytest.raises(SchemaChangeInRange) as failed:
        steps(mapped, "none", **events)
    assert remedy in str(failed.value)
    for policy in ("keep_dropped", "mirror"):
        with pytest.raises(InvalidConfiguration, match="use 'widen', or leave it out"):
            steps(mapped, policy, **events)


def test_a_field_that_cannot_be_kept_names_the_statement_before_mirror(mapped: Tables) -> None:
    mapped.target.set_properties()
    inner = {"type": "struct", "fields": [field_of("a", mapped=5), field_of("b", mapped=6)]}
    mapped.source.alter(ID, NAME, field_of("s", inner, mapped=4))  # type: ignore[arg-type]
    mapped.target.fields = [ID, NAME, field_of("s", inner, mapped=4)]  # type: ignore[arg-type]
    mapped.sealed(7)
    less = {"type": "struct", "fields": inner["fields"][:1]}
    mapped.source.alter(ID, NAME, field_of("s", less, mapped=4))  # type: ignore[arg-type]
    with pytest.raises(SchemaChangeInRange, match=r"Remedy: run ALTER TABLE .* Then set schema_evolution"):
        steps(mapped, "keep_dropped")


def test_select_names_the_columns_of_the_target(mapped: Tables) -> None:
    mapped.source.alter(ID, NAME)
    (step,) = steps(mapped, "mirror", select=("id", "name"))
    assert step.column_changes == ()
    options: dict[str, Any] = {"select": ("*", "1 AS one")}
    mapped.sealed(6, 101, configuration=validation.described(replace(KEYED, **options)))
    with pytest.raises(SchemaChangeInRange, match="select takes all columns"):
        steps(mapped, "mirror", **options)


def test_a_repair_across_a_rename_names_the_ranges_that_it_can_read(mapped: Tables) -> None:
    """One step reads both sides of such a change with one schema: no policy helps a repair."""
    mapped.source.append()
    mapped.source.alter(ID, TITLE, SIZE)
    mapped.source.append()
    history = replace(KEYED, stored_as_scd_type=2, sequence_by="_commit_version", schema_evolution="mirror")
    before = {"loaded_version": 5, "configuration": validation.described(history)}
    mapped.sealed(9, 101, **before)
    LogTable(mapped.target.path.with_name("target__quarantine"), table_id="q").create().append()
    given: dict[str, Any] = {"mode": "repair", "options": history, "starting_version": 7}
    with pytest.raises(SchemaChangeInRange, match=r"name was renamed.*repair a range after that change"):
        mapped.apply(**given)
    given = {**given, "repair_quarantined": True, "starting_version": None}
    with pytest.raises(SchemaChangeInRange, match=r"after that change; older rows stay in quarantine"):
        mapped.apply(**given)
    assert mapped.apply(**{**given, "starting_version": 9}).spec is not None
