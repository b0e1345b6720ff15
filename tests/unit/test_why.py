"""Which change set each value of a row, and what the answer looks like. No JVM."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.cli import main
from delta_cdc.core import codec, validation
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.why import (
    Answer,
    Change,
    Erased,
    ExplainedRow,
    Found,
    NotTaken,
    TargetRow,
    Value,
    Where,
    origins,
    until,
)
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.why import WhyRequest, plan_why_async
from tests.support.origins import COLUMNS, as_json, drawn, kept
from tests.support.tables import KEYED, Tables

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.origins import Event


def _changes(events: list[Event]) -> list[Change]:
    """Return the states after some events, as the job reads them."""
    found = []
    for at, event in enumerate(events):
        if event.values is None:
            found.append(Change("delete", str(event.place), None, event.place))
            continue
        values = kept(events[: at + 1])[-1].values
        texts = tuple(as_json(name, values[name]) for name in COLUMNS)
        found.append(Change("upsert", str(event.place), texts, event.place))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_drawn_histories(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(250):
        events = drawn(draw, range(1, draw.randrange(2, 30)), partial=draw.random() < 0.5)
        changes = _changes(events)
        for row in kept(events):
            values = tuple(as_json(name, row.values[name]) for name in COLUMNS)
            target_row = TargetRow(values, str(row.start), None if row.end is None else str(row.end))
            found = [None if one is None else one.version for one in origins(target_row, changes)]
            assert found == [row.since[name] for name in COLUMNS], (events, row)


def test_a_value_that_the_source_does_not_have() -> None:
    changes = [Change("upsert", "1", ("1", "2"), 1), Change("upsert", "2", ("1", "3"), 2)]
    assert origins(TargetRow(("1", "2")), changes) == [changes[0], None]
    assert origins(TargetRow(("1", "3")), [*changes, Change("delete", "3")]) == [None, None]
    assert origins(TargetRow(("1",)), []) == [None]


def test_a_value_older_than_all_changes() -> None:
    changes = [Change("base", None, ("1", "2")), Change("upsert", "5", ("1", "3"), 5)]
    assert origins(TargetRow(("1", "3")), changes) == changes


def test_a_row_that_ended_before_all_changes() -> None:
    row = TargetRow(("1", "0"), "2", "9")
    later = [Change("upsert", "10", ("1", "3"), 10)]
    for changes in ([], later, [Change("base", None, ("1", "2")), *later]):
        assert origins(row, changes, older=True) == [Change("base"), Change("base")]
    # All changes were read, or the row ended later than the first of them.
    assert origins(row, later) == [Change("upsert", "10", ("1", "3"), 10), None]
    ended_later = TargetRow(("1", "0"), "2", "11")
    assert origins(ended_later, later, older=True)[1] is None
    assert origins(TargetRow(("1", "0"), "2"), later, older=True)[1] is None
    # A row that is marked as deleted, and whose delete was not read.
    assert origins(TargetRow(("1",), deleted=True), [], older=True) == [Change("base")]
    assert origins(TargetRow(("1",), deleted=True), []) == [None]
    times = [Change("upsert", "2026-01-02 00:00:00", ("1",), 10)]
    assert origins(TargetRow(("2",), "x", "2026-01-01 10:00:00"), times, older=True) == [Change("base")]


def test_a_deleted_row_has_the_values_before_its_delete() -> None:
    changes = [
        Change("upsert", "1", ("1",), 1),
        Change("delete", "2", None, 2),
        Change("delete", "3", None, 3),
    ]
    deleted = TargetRow(("1",), deleted=True)
    assert until(deleted, changes) == changes[:1]
    assert origins(deleted, changes) == changes[:1]


def test_each_part_of_a_merged_event_sets_its_columns() -> None:
    left = Change("upsert", "1", ("1", None), 3, carried=(0,))
    right = Change("upsert", "1", (None, "2"), 4, carried=(1,))
    merged = Change("upsert", "1", ("1", "2"), 3, parts=(left, right))
    assert origins(TargetRow(("1", "2")), [merged]) == [left, right]


# -- for people --------------------------------------------------------------------------------------
_THEN, _LATER = "2026-11-01T00:00:00+00:00", "2026-11-02T00:00:00+00:00"
_LOADED = Where(1, _THEN, {}, None, 0, _LATER, "nightly", "load")
_EVENT = Where(7, None, {"file": "/in/a.json", "row": 3}, "12", 4, _LATER, "r", "apply")
_VALUES = (
    Value("id", "17", _LOADED),
    Value("status", '"shipped"', _EVENT),
    Value("note", None, note="older than version 1 of the source"),
)
_ANSWER = Answer(
    "orders_now",
    "/lake/now",
    {"id": "17"},
    4,
    "/lake/orders",
    7,
    options={"where": "amount > 0"},
    rows=(ExplainedRow(_VALUES),),
    not_taken=(NotTaken("it repeats another event", _EVENT, {"id": "17", "note": None}),),
    notes=("Something limits this.",),
)


def test_the_text_names_each_change_once() -> None:
    assert str(_ANSWER).split("\n") == [
        "orders_now: id = 17 in version 4 of /lake/now",
        "source: version 7 of /lake/orders",
        "options: where = amount > 0",
        "",
        "  id      17         [1]",
        '  status  "shipped"  [2]',
        "  note    NULL       older than version 1 of the source",
        "",
        "Not taken:",
        "  [2] it repeats another event: id = 17, note = NULL",
        "",
        f"[1] version 1 of the source ({_THEN}), load into version 0 ({_LATER}) by run nightly",
        f"[2] file /in/a.json, row 3, version 7 of the source, apply into version 4 ({_LATER}) by run r",
        "note: Something limits this.",
    ]


def test_history_and_no_row() -> None:
    period = ExplainedRow(_VALUES[:1], "1", "5", opened=_LOADED, closed=_EVENT)
    deleted = ExplainedRow(_VALUES[:1], deleted=True, closed=_EVENT)
    lines = str(Answer("p", "/t", {"k": "1"}, 1, "/s", 1, rows=(period, deleted))).split("\n")
    assert lines[3:7] == ["from 1 [1] to 5 [2]", "  id  17  [1]", "", "deleted [2]"]
    gone = str(Answer("p", "/t", {"k": "1"}, 1, "/s", 1, gone=_EVENT))
    assert "There is no row of this key; the last one ended with [1]." in gone
    assert str(Where()) == "unknown"
    assert str(Where(sequence="12")) == "sequence 12"


def test_only_some_columns_also_upstream() -> None:
    chain = Answer("p", "/t", {"k": "1"}, 1, "/s", 1, rows=_ANSWER.rows, upstream=_ANSWER)
    some = chain.only(["STATUS"])
    assert some.upstream is not None
    for answer in (some, some.upstream):
        assert [one.column for one in answer.rows[0].values] == ["status"]
    with pytest.raises(InvalidConfiguration, match="no column nope"):
        chain.only(["nope"])


def test_json_there_and_back() -> None:
    assert codec.decoded(Answer, _ANSWER.to_dict()) == _ANSWER
    found = Found(("a",), (TargetRow(("1",)),), (Change("upsert", "1", ("1",), parts=(Change("delete"),)),))
    assert codec.decoded(Found, codec.encoded(found)) == found


# -- the command ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--key", "17"], "is not COLUMN=VALUE"),
        ([], "--key"),
        (["--key", "k=1", "--max-bytes", "many"], "no size like 20GiB"),
    ],
)
def test_usage(more: list[str], words: str, capsys: Any) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["why", "p=/nowhere", *more])
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["p=/nowhere", "--key", "k=1", "--key", "k=2"], "names a column twice"),
        (["p=/nowhere", "q=/there", "--key", "k=1"], "takes one pipeline"),
    ],
)
def test_refusals(arguments: list[str], words: str, capsys: Any) -> None:
    assert main(["why", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_an_erased_key_shows_only_its_hash() -> None:
    erased = Erased("5f0c", "2026-03-01T02:40:00+00:00", "erase_key")
    answer = Answer("p", "/t", {"id": "17"}, 3, "/s", 2, erased=erased)
    (line,) = str(answer).split("\n")[2:]
    assert line.startswith("This key was erased at 2026-03-01T02:40:00+00:00 by run erase_key (hash 5f0c).")
    again = codec.decoded(Answer, answer.to_dict())
    assert again == answer
    left = replace(answer, erased=replace(erased, rows=2))
    assert "still has 2 of its rows" in str(left)


def test_a_cleaned_log_shows_no_commit_for_older_versions(tmp_path: Path) -> None:
    """Of the commits that are left, the oldest one need not be the first one that had a version."""
    tables = Tables.made_in(tmp_path)
    configuration = validation.described(KEYED)
    for number, watermark in ((100, 2), (101, 3), (102, 4)):
        kind = "load" if number == 100 else "apply"
        start = 0 if number == 100 else watermark
        tables.sealed(watermark, number, start=start, kind=kind, configuration=configuration)
    request = WhyRequest(pipeline="p", target=tables.target.uri, key={"id": "1"})

    def applied() -> dict[int, int]:
        question = run_sync(plan_why_async(request)).outcome
        return {one: commit.version for one, (commit, _) in run_sync(question._applied([1, 2, 3, 4])).items()}

    assert applied() == {1: 0, 2: 0, 3: 1, 4: 2}
    tables.target.checkpoint(0)
    assert applied() == {3: 1, 4: 2}


@pytest.mark.parametrize("at", ["7", "9" * 5_000])
def test_a_version_that_is_not_there(tmp_path: Path, at: str) -> None:
    """Python reads no number of more than 4,300 digits."""
    tables = Tables.made_in(tmp_path)
    tables.sealed(2, 100, start=0, kind="load", configuration=validation.described(KEYED))
    request = WhyRequest(pipeline="p", target=tables.target.uri, key={"id": "1"}, at=at)
    with pytest.raises(InvalidConfiguration, match="has no such version: its newest version is 0"):
        run_sync(plan_why_async(request))
