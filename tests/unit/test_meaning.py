"""What a target was built with is compared by what it means, not by how it is written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_cdc.core import validation
from delta_cdc.core.options import ApplyOptions
from delta_cdc.delta_log.schema_changes import leaf_paths
from tests.support.logs import seal

if TYPE_CHECKING:
    from delta_cdc.core.watermark import Seal

#: The leaves of the source; ``info`` is a struct. ``id`` is the key, ``at`` the sequence.
COLUMNS = ("id", "at", "name", "City", "amount", "odd name")
PATHS = (*((name,) for name in COLUMNS), ("info", "x"), ("info", "y"), ("info", "deep", "z"))
TYPE_2 = ApplyOptions(keys=("id",), stored_as_scd_type=2, sequence_by="at", delete_sequence="now()")
FEED = ApplyOptions(keys=("id",))

VALUES = [name for name in (*COLUMNS, "info") if name != "id"]
LEAVES = [path for path in PATHS if path != ("id",)]


def built_with(options: ApplyOptions, columns: tuple[str, ...] | None = (*COLUMNS, "info")) -> Seal:
    """Return the seal of a target; without columns, the source was too wide for a seal."""
    told = {} if columns is None else validation.described_columns(options, columns, ["at"])
    return seal(100, 3, configuration={**validation.described(options), **told})


def drifts(was: ApplyOptions, now: ApplyOptions, **sealed: Any) -> set[str]:
    return set(validation.drifts(built_with(was, **sealed), now, "/target", PATHS))


# -- a plain model: the set that a spelling stands for --------------------------------------------
def tracked(include: list[str] | None, left_out: list[str] | None) -> set[str]:
    names = {name.lower() for name in VALUES}
    if include is not None:
        return {name.lower() for name in include} - {"id"}
    if left_out is not None:
        return names - {name.lower() for name in left_out}
    return names - {"at"}


def landing(include: list[str] | None, left_out: list[str] | None) -> set[str]:
    names = {"id", *(name.lower() for name in VALUES)}
    if include is not None:
        return {"id", *(name.lower() for name in include)}
    return names - {name.lower() for name in left_out or ()}


def keeping(flag: bool, include: list[str] | None, left_out: list[str] | None) -> set[str]:
    listed = include if include is not None else left_out
    if listed is None:
        return {".".join(path).lower() for path in LEAVES} if flag else set()
    found = set()
    for path in LEAVES:
        ways = {".".join(path[:end]).lower() for end in range(1, len(path) + 1)}
        named = any(name.lower() in ways for name in listed)
        if named == (include is not None):
            found.add(".".join(path).lower())
    return found


@st.composite
def lists(
    draw: st.DrawFn, names: list[str], *, empty: bool = True
) -> tuple[list[str] | None, list[str] | None]:
    """Return an include list, an except list, or none of them, in some order and case, with repetitions."""
    kind = draw(st.sampled_from(["none", "include", "except"]))
    chosen = draw(
        st.lists(st.sampled_from(names), min_size=0 if empty or kind == "except" else 1, max_size=9)
    )
    spelled = [draw(st.sampled_from([name, name.upper(), name.lower()])) for name in chosen]
    return (spelled if kind == "include" else None, spelled if kind == "except" else None)


def tupled(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


@settings(max_examples=400, deadline=None)
@given(one=lists(VALUES), other=lists(VALUES), told=st.booleans())
def test_the_tracked_columns(one: Any, other: Any, told: bool) -> None:
    was, now = (
        replace(
            TYPE_2,
            track_history_column_list=tupled(include),
            track_history_except_column_list=tupled(left_out),
        )
        for include, left_out in (one, other)
    )
    wanted = set() if tracked(*one) == tracked(*other) else {"tracked"}
    assert drifts(was, now, **({} if told else {"columns": None})) == wanted


@settings(max_examples=300, deadline=None)
@given(one=lists(VALUES, empty=False), other=lists(VALUES, empty=False), told=st.booleans())
def test_the_columns_that_land(one: Any, other: Any, told: bool) -> None:
    was, now = (
        replace(FEED, column_list=tupled(include), except_column_list=tupled(left_out))
        for include, left_out in (one, other)
    )
    found = drifts(was, now, **({} if told else {"columns": None}))
    assert bool(found) == (landing(*one) != landing(*other))
    assert found <= {"column_list", "except_column_list"}


_NULLS = [*VALUES, "info.x", "INFO.deep", "info.deep.z"]


@settings(max_examples=300, deadline=None)
@given(one=lists(_NULLS), other=lists(_NULLS), flags=st.tuples(st.booleans(), st.booleans()))
def test_the_columns_whose_nulls_keep_what_was_there(one: Any, other: Any, flags: tuple[bool, bool]) -> None:
    was, now = (
        replace(
            FEED,
            ignore_null_updates=flag,
            ignore_null_updates_column_list=tupled(include),
            ignore_null_updates_except_column_list=tupled(left_out),
        )
        for flag, (include, left_out) in zip(flags, (one, other), strict=True)
    )
    same = keeping(flags[0], *one) == keeping(flags[1], *other)
    assert bool(drifts(was, now)) == (not same)


# -- one by one -----------------------------------------------------------------------------------


def test_a_column_that_came_since_is_in_no_row_of_the_target() -> None:
    was = replace(TYPE_2, track_history_column_list=("name",))
    before = ("id", "at", "name")
    for now in (
        replace(TYPE_2, track_history_except_column_list=("at",)),
        replace(TYPE_2, track_history_column_list=("name", "amount")),
        TYPE_2,
    ):
        assert drifts(was, now, columns=before) == set()
        assert drifts(was, now) == {"tracked"}
    gone = replace(TYPE_2, track_history_column_list=("name", "gone"))
    assert drifts(gone, was, columns=("id", "at", "name", "gone")) == set(), "nor is one that went since"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((), ("*",), True),
        (("id", "name"), ("NAME", "`Id`"), True),
        (("id", "name AS n"), ("id", "name  as N"), True),
        (("id", "upper(name) AS n"), ("upper(name)  AS n", "id"), True),
        (("id", "upper(name) AS n"), ("id", "UPPER(name) AS n"), False),
        (("id", "name"), ("id", "City"), False),
        (("*", "upper(name) AS n"), ("upper(name) AS n", "*"), True),
        (("*",), ("*", "upper(name) AS n"), False),
    ],
)
def test_projections(one: tuple[str, ...], other: tuple[str, ...], same: bool) -> None:
    was, now = replace(FEED, select=one), replace(FEED, select=other)
    assert drifts(was, now) == (set() if same else {"select"})


def test_a_projection_and_a_list_of_columns() -> None:
    was = replace(FEED, select=("id", "name"))
    assert drifts(was, replace(FEED, column_list=("NAME",))) == set()
    assert drifts(was, replace(FEED, except_column_list=("at",))) == {"select", "except_column_list"}


def test_what_only_spark_knows_is_not_refused() -> None:
    """Spark names a projection without a name, so nobody here knows what an except list leaves."""
    was = replace(TYPE_2, select=("id", "at", "upper(name)"), track_history_column_list=("upper(name)",))
    now = replace(was, track_history_column_list=None, track_history_except_column_list=("at",))
    assert drifts(was, now) == set()
    assert drifts(was, replace(was, track_history_column_list=("at",))) == {"tracked"}


def test_a_sequence_that_is_an_expression() -> None:
    """The seal says which columns Spark found in it; where it does not, they may be any that it names."""
    was = replace(TYPE_2, sequence_by="greatest(at, City)")
    for names, same in (
        (("name", "amount", "odd name", "info"), False),
        (("name", "City", "amount", "odd name", "info"), True),
    ):
        now = replace(was, track_history_column_list=names)
        assert drifts(was, now) == (set() if same else {"tracked"})
        assert drifts(was, now, columns=None) == set()
    assert drifts(was, replace(was, track_history_column_list=("name",)), columns=None) == {"tracked"}


def test_order_and_case_of_names_never_count() -> None:
    was = ApplyOptions(keys=("id", "name"), partition_by={"City": None, "day": "date(at)"})
    now = ApplyOptions(
        keys=("NAME", "ID"), partition_by={"DAY": "date(at)", "city": None}, cluster_by=("at",)
    )
    assert drifts(was, now) == drifts(now, was) == set()


def test_a_source_too_wide_for_a_seal() -> None:
    """Then the columns of now count."""
    wide = tuple(f"column_{number:05d}" for number in range(3000))
    told = validation.described_columns(TYPE_2, wide, ())
    assert len(json.dumps(told)) < 1000
    assert validation.described_columns(FEED, wide[:1000], ()) == {"source_columns": list(wide[:1000])}


def test_leaves_of_a_schema() -> None:
    struct = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True}]}
    nothing = {"type": "struct", "fields": []}
    fields = [
        ("id", "long"),
        ("info", struct),
        ("none", nothing),
        ("many", {"type": "array", "elementType": struct}),
    ]
    described = [{"name": name, "type": of, "nullable": True} for name, of in fields]
    schema = json.dumps({"type": "struct", "fields": described})
    assert leaf_paths(schema) == (("id",), ("info", "x"), ("none",), ("many",))
