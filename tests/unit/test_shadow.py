"""Shadows, without Spark: pairs, samples, results in a commit, when to promote, and the exchange of names."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as T

from delta_cdc.config import load
from delta_cdc.core.arguments import pipeline_tables
from delta_cdc.core.errors import InvalidConfiguration, PromotionRefused
from delta_cdc.core.shadow import (
    MOST_SAMPLES,
    SAMPLE_ROWS,
    Agreement,
    Comparison,
    Move,
    Names,
    Pair,
    Sample,
    Standing,
    lines,
    next_move,
    pairs,
    refusals,
    share_of,
    shares,
    shortened,
    status_of,
)
from delta_cdc.core.watermark import TableVersion
from delta_cdc.delta_log.actions import Commit, CommitInfo, Txn
from delta_cdc.planning.shadow import recorded_in
from delta_cdc.spark.shadow import common_type, meeting_type

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PAIR = Pair("now", "/now", "next", "/next")
AGREED = Comparison(
    status="agreed",
    original="now",
    shadow="next",
    original_table=TableVersion("a", 4),
    shadow_table=TableVersion("b", 7),
    source=TableVersion("s", 5),
    rows=3,
    at="2027-01-01T00:00:00+00:00",
    run_id="r",
)
CHANGED = Sample("changed", {"id": "1"}, {"v": "1.10"}, {"v": None})
DIFFERING = replace(AGREED, status="differing", counts={"changed": 1}, samples=(CHANGED,))


# -- pairs and samples ------------------------------------------------------------------------------
def test_pairs_of_either_side() -> None:
    assert pairs("next", "/next", {"now": "/now"}, {}) == (PAIR,)
    assert pairs("now", "/now", {}, {"next": "/next"}) == (PAIR,)
    assert pairs("now", "/now", {}, {}) == ()


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (None, {}),
        ("", {}),
        ("now", {"now": ""}),
        ({"now": " /now "}, {"now": "/now"}),
        ('{"now": "/now"}', {"now": "/now"}),
    ],
)
def test_the_option(given: Any, read: dict[str, str]) -> None:
    assert pipeline_tables("shadow_of", given) == read


@pytest.mark.parametrize("given", [17, ["now"], {"now": ""}, {"now": 17}])
def test_no_option(given: Any) -> None:
    with pytest.raises(InvalidConfiguration):
        pipeline_tables("shadow_of", given)


@pytest.mark.parametrize(
    ("rows", "number"), [(None, 1), (0, 1), (SAMPLE_ROWS, 1), (2 * SAMPLE_ROWS, 2), (10**9, 10**5)]
)
def test_a_sample_is_bounded(rows: int | None, number: int) -> None:
    assert shares(rows) == number


def test_each_version_compares_another_share() -> None:
    assert [share_of(version, 3) for version in (-1, 0, 1, 2, 3)] == [0, 0, 1, 2, 0]
    assert share_of(17, 1) == 0


# -- results ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("counts", "status"), [({}, "agreed"), ({"extra": 0}, "agreed"), ({"missing": 1}, "differing")]
)
def test_the_verdict(counts: dict[str, int], status: str) -> None:
    assert status_of(counts) == status


def test_a_result_comes_back_from_its_commit() -> None:
    commit = _commit(DIFFERING.tag())
    assert recorded_in(commit, "next") == DIFFERING
    assert recorded_in(commit, "other") is None


@pytest.mark.parametrize(
    "changes",
    [{"txns": ()}, {"n_adds": 1}, {"n_removes": 1}, {"info": CommitInfo("WRITE", user_metadata="{}")}],
)
def test_a_tag_that_leaked_is_no_result(changes: dict[str, Any]) -> None:
    assert recorded_in(replace(_commit(AGREED.tag()), **changes), "next") is None


def test_a_long_result_fits_into_a_commit() -> None:
    names = tuple(f"column_{number}" for number in range(4_000))
    samples = tuple(
        Sample("extra", {"id": str(n)}, shadow=dict.fromkeys(names[:200], "v" * 100)) for n in range(9)
    )
    whole = Comparison.from_tag(replace(AGREED, samples=(CHANGED,) * 9).tag())
    assert whole is not None
    assert len(whole.samples) == MOST_SAMPLES
    without = Comparison.from_tag(replace(AGREED, samples=samples, counts={"extra": 9}).tag())
    assert without is not None
    assert (without.samples, without.counts) == ((), {"extra": 9})
    text = replace(AGREED, only_shadow=names).tag()
    short = Comparison.from_tag(text)
    assert len(text) < 32 * 1024
    assert short is not None
    assert short.only_shadow[-1] == "3980 more"


def test_values_are_shortened() -> None:
    assert shortened(None) is None
    assert shortened("short") == "short"
    assert len(shortened("x" * 1000) or "") == 120


def test_what_people_read() -> None:
    assert str(AGREED) == "agreed at version 5 of the source (all current rows: 3)"
    text = str(replace(DIFFERING, share=7))
    assert text == "differing at version 5 of the source (1 of 7 current rows: 3; 1 keys changed)"
    assert DIFFERING.details() == ["id = 1: v: 1.10 in the original, NULL in the shadow"]
    assert str(Sample("missing", {}, {"v": "1"})) == "v = 1: only in the original"
    assert str(Sample("extra", {"id": "2"}, {}, {"v": "1"})) == "id = 2: only in the shadow"
    text = replace(AGREED, only_original=("a",), only_shadow=("b",), incomparable=("c (int, binary)",))
    assert [line.partition(":")[2] for line in text.details()] == [" a", " b", " c (int, binary)"]
    assert str(Agreement.of([AGREED, AGREED, DIFFERING])).endswith("2 agreed in a row")


# -- when to promote --------------------------------------------------------------------------------
def standing(*comparisons: Comparison, **changes: Any) -> Standing:
    at = TableVersion("s", 5)
    found = Standing(TableVersion("a", 4), TableVersion("b", 8), at, at, comparisons)
    return replace(found, **changes)


NOT_COMPARED = Comparison(status="not_compared", original="now", shadow="next", why="x")


@pytest.mark.parametrize(
    ("found", "runs", "parts"),
    [
        (standing(AGREED, AGREED, AGREED), 3, []),
        (standing(AGREED, AGREED, AGREED, DIFFERING), 3, []),
        (standing(AGREED), 1, []),
        (standing(), 1, ["0 agreed in a row, and there are 0"]),
        (standing(AGREED, AGREED), 3, ["2 agreed in a row, and there are 2"]),
        (standing(AGREED, DIFFERING, AGREED), 3, ["1 agreed in a row", "1 keys changed", "v: 1.10"]),
        (standing(AGREED, NOT_COMPARED, AGREED), 3, ["1 agreed in a row", "not compared: x"]),
        (standing(AGREED, changed_since=True), 1, ["one of them changed since"]),
        (standing(AGREED, lacks_erasures=True), 1, ["Keys were erased from the target of now, and not"]),
        (standing(replace(AGREED, source=TableVersion("s", 4))), 1, ["one of them changed since"]),
        (
            standing(AGREED, original_at=TableVersion("s", 6)),
            1,
            ["now stands at version 6", "next at version 5"],
        ),
        (standing(AGREED, original_at=TableVersion("t", 5)), 1, ["different sources"]),
    ],
)
def test_when_a_shadow_may_be_promoted(found: Standing, runs: int, parts: list[str]) -> None:
    text = " ".join(refusals(PAIR, found, runs))
    assert bool(text) == bool(parts), text
    assert [part for part in parts if part not in text] == [], text


# -- names ------------------------------------------------------------------------------------------
NAMES = Names("s.now", "s.next")
A, B = "a", "b"


def after(state: Mapping[str, str | None], move: Move) -> dict[str, str | None]:
    """Return the tables of the names after a statement."""
    at = dict(state)
    if move.kind == "repoint":
        at[move.name] = move.to
    else:
        assert at.get(move.to) is None, "a rename overwrites no name"
        at[move.to], at[move.name] = at[move.name], None
    return at


@pytest.mark.parametrize("repoints", [True, False])
def test_every_state_of_an_exchange_leads_to_its_end(repoints: bool) -> None:
    at: dict[str, str | None] = {NAMES.original: A, NAMES.shadow: B}
    states = [at]
    while (move := next_move(NAMES, at, A, B, repoints=repoints)) is not None:
        at = after(at, move)
        states.append(at)
    assert (at[NAMES.original], at[NAMES.shadow], at.get(NAMES.parked)) == (B, A, None)
    assert len(states) == (3 if repoints else 4)
    if repoints:
        assert all(state[NAMES.original] is not None for state in states), "a reader always finds a table"
    # A crash may come after any statement, and the next attempt may exchange in the other way.
    for start in states:
        at = dict(start)
        while (move := next_move(NAMES, at, A, B, repoints=not repoints)) is not None:
            at = after(at, move)
        assert (at[NAMES.original], at[NAMES.shadow], at.get(NAMES.parked)) == (B, A, None)


def test_every_other_state_is_refused() -> None:
    known = {(A, B, None), (B, B, None), (None, B, A), (B, None, A), (B, A, None)}
    for state in product((A, B, "c", None), repeat=3):
        at = dict(zip(NAMES.all, state, strict=True))
        if state in known:
            next_move(NAMES, at, A, B, repoints=True)
            continue
        with pytest.raises(PromotionRefused, match=r"s\.now is"):
            next_move(NAMES, at, A, B, repoints=True)


# -- the configuration --------------------------------------------------------------------------------
def test_lines_to_change() -> None:
    original = {"pipeline": "now", "target": "/now", "keys": "id", "where": "n > 1", "shadowed_by": {}}
    shadow = {"pipeline": "next", "target": "/next", "keys": "id", "select": ["id"], "shadow_of": {}}
    assert lines(original, shadow) == {"target": "/next", "where": None, "select": ["id"]}
    assert lines(original, shadow, ("where", "log")) == {"target": "/next", "select": ["id"]}


def test_a_configuration_links_both(tmp_path: Path) -> None:
    file = tmp_path / "flows.yaml"
    of_now = {
        "source": "/files",
        "log": "/log",
        "target": "/now",
        "insert_only": True,
        "shadowed_by": {"elsewhere": "/e"},
    }
    of_next = {"source": "/log", "target": "s.next", "insert_only": True, "shadow_of": "now"}
    file.write_text(
        json.dumps({"pipelines": {"now": of_now, "next": of_next, "other": {**of_next, "target": "/o"}}})
    )
    found = {table.pipeline: table.arguments for table in load(str(file)).tables()}
    assert found["next"]["shadow_of"] == found["other"]["shadow_of"] == {"now": "/now"}
    assert found["now"]["shadowed_by"] == {"next": "s.next", "other": "/o", "elsewhere": "/e"}
    assert "shadowed_by" not in found["next"]


# -- types --------------------------------------------------------------------------------------------
BIG, SMALL = T.LongType(), T.ShortType()


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (BIG, BIG, BIG),
        (SMALL, BIG, T.DecimalType(19, 0)),
        (BIG, T.DecimalType(10, 2), T.DecimalType(21, 2)),
        (T.DecimalType(10, 2), T.DecimalType(20, 5), T.DecimalType(20, 5)),
        (T.DecimalType(38, 0), T.DecimalType(10, 2), None),
        (T.FloatType(), T.DoubleType(), T.DoubleType()),
        (BIG, T.DoubleType(), None),
        (T.DecimalType(10, 2), T.DoubleType(), None),
        (T.DateType(), T.TimestampNTZType(), T.TimestampNTZType()),
        (T.DateType(), T.TimestampType(), None),
        (T.TimestampType(), T.TimestampNTZType(), None),
        (T.StringType(), BIG, T.StringType()),
        (T.StringType(), T.DecimalType(10, 2), None),
        (T.StringType(), T.BinaryType(), None),
        (T.ArrayType(SMALL, False), T.ArrayType(BIG), T.ArrayType(T.DecimalType(19, 0))),
        (T.MapType(SMALL, BIG), T.MapType(SMALL, T.BinaryType()), None),
        (
            T.StructType([T.StructField("a", SMALL), T.StructField("b", BIG)]),
            T.StructType([T.StructField("B", BIG), T.StructField("A", SMALL)]),
            T.StructType([T.StructField("a", SMALL), T.StructField("b", BIG)]),
        ),
        (T.StructType([T.StructField("a", SMALL)]), T.StructType([T.StructField("b", SMALL)]), None),
    ],
)
def test_common_types(one: T.DataType, other: T.DataType, common: T.DataType | None) -> None:
    for first, second in ((one, other), (other, one)):
        found = common_type(first, second)
        assert (found is None) == (common is None)
        if not isinstance(one, T.StructType) and found is not None:
            assert found == common


@pytest.mark.parametrize(("exact", "scale"), [(BIG, 0), (T.DecimalType(12, 2), 2)])
def test_where_a_decimal_meets_a_double(exact: T.DataType, scale: int) -> None:
    common = meeting_type(exact, T.DoubleType())
    assert common == meeting_type(T.DoubleType(), exact)
    assert isinstance(common, T.StructType)
    assert common["exact"].dataType == T.DecimalType(38, scale)
    assert meeting_type(SMALL, BIG) == common_type(SMALL, BIG)
    assert meeting_type(T.DoubleType(), T.StringType()) is None


def _commit(text: str) -> Commit:
    return Commit(
        version=8,
        sha256="",
        modified=0,
        info=CommitInfo("WRITE", user_metadata=text),
        txns=(Txn("delta-cdc-shadow/next", 3),),
    )
