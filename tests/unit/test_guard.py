"""Limits of what a run changes: shares and numbers, which effect exceeds them, and what approves one step."""

from __future__ import annotations

from typing import Any

import pytest

from delta_cdc.core.arguments import approval_text, row_limit
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.guard import Effect, Guard, approval, approved_version, described, most, nothing_written
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.watermark import TableVersion
from delta_cdc.run.table_arguments import requests

WORK: dict[str, Any] = {
    "pipeline": "p",
    "options": ApplyOptions(keys=("id",)),
    "kind": "apply",
    "versions": (3, 7),
    "source": TableVersion("s", 7, "a" * 64),
    "target": TableVersion("t", 4, "b" * 64),
}


@pytest.mark.parametrize(
    ("limit", "rows", "allowed"),
    [
        (0, 10, 0),
        (7, 10, 7),
        ("0 %", 10, 0),
        ("5 %", 1000, 50),
        ("5%", 19, 0),
        ("100 %", 3, 3),
        ("0.5 %", 400, 2),
    ],
)
def test_a_limit_is_a_number_or_a_share_that_is_rounded_down(
    limit: int | str, rows: int, allowed: int
) -> None:
    assert row_limit("max_deleted", limit) == limit
    assert most(limit, rows) == allowed


@pytest.mark.parametrize("value", ["101 %", "-1", -1, "5 percent", "5 % of it", "1e2 %", True, 0.5, "٥ %"])
def test_any_other_limit_is_refused(value: Any) -> None:
    with pytest.raises(InvalidConfiguration, match="max_deleted"):
        row_limit("max_deleted", value)


@pytest.mark.parametrize(
    ("guard", "names"),
    [
        (Guard(), []),
        (Guard(max_deleted=20, max_changed=30), []),
        (Guard(max_deleted=19), ["max_deleted is 19"]),
        (Guard(max_deleted="20 %"), []),
        (Guard(max_deleted="19.9 %", max_changed="29 %"), ["max_deleted is 19.9 %", "max_changed is 29 %"]),
        (Guard(max_changed=0), ["max_changed is 0"]),
    ],
)
def test_what_exceeds_a_limit(guard: Guard, names: list[str]) -> None:
    texts = list(guard.exceeded(Effect(rows=100, deleted=20, changed=30)))
    assert [any(name in text for text in texts) for name in names] == [True] * len(names)
    assert len(texts) == len(names)


def test_a_replacement_says_what_it_did_not_compare() -> None:
    """A reset can change the value of every row that it keeps."""
    assert described(Effect(9, 2, 5), replaces=False) == "it would end 2 and change 5 of 9 rows"
    text = described(Effect(rows=9, deleted=2, changed=5), replaces=True)
    assert "of 9 keys, 2 would go; 3 new keys would come" in text
    assert "not compared" in text
    assert "change" not in text


def test_what_is_written_before_a_step_that_is_stopped() -> None:
    assert nothing_written([]) == "Nothing was written."
    assert nothing_written(["take_over", "take_over"]).startswith("The take-over is committed;")
    assert nothing_written(["take_over", "apply"]).startswith("The commits of the run before this one stay;")


def test_a_share_of_no_rows_protects_nothing() -> None:
    assert list(Guard(max_changed="1 %").exceeded(Effect(rows=0, deleted=0, changed=100))) == []
    assert len(list(Guard(max_changed=99).exceeded(Effect(rows=0, deleted=0, changed=100)))) == 1


def test_a_batch_that_cannot_exceed_a_limit_is_not_counted() -> None:
    assert Guard(max_deleted="1 %").allows_any(0)
    assert Guard(max_deleted=5, max_changed=9).allows_any(5)
    assert not Guard(max_deleted=5, max_changed=9).allows_any(6)
    # What share it is depends on the target.
    assert not Guard(max_deleted="50 %").allows_any(1)


def test_one_step_needs_an_approval() -> None:
    guard = Guard(asks=(7, "it is a reset"))
    assert guard.reason_to_ask(7) == "it is a reset"
    assert (guard.reason_to_ask(8), Guard().reason_to_ask(7)) == (None, None)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (None, None),
        ("reset", ("reset",)),
        (["drift", "reset", "drift"], ("reset", "drift")),
        ("['reload', 'drift']", ("reload", "drift")),
    ],
)
def test_which_runs_need_an_approval(given: Any, read: Any) -> None:
    _, apply = requests({"source": "/s", "target": "/t", "keys": ["id"], "approval_for": given})
    assert apply is not None
    assert apply.approval_for == read


@pytest.mark.parametrize("wrong", ["repair", ["reset", "Reload"], 3, {"reset": True}])
def test_another_kind_of_run_cannot_be_approved(wrong: Any) -> None:
    with pytest.raises(InvalidConfiguration, match="approval_for"):
        requests({"source": "/s", "target": "/t", "keys": ["id"], "approval_for": wrong})


def test_an_approval_is_of_one_step_and_one_effect() -> None:
    effect = Effect(10, 5, 6)
    text = approval(7, effect, **WORK)
    assert approval(7, Effect(10, 5, 6), **WORK) == text
    others = [
        approval(7, Effect(10, 5, 7), **WORK),
        approval(7, effect, **{**WORK, "source": TableVersion("s", 7, "c" * 64)}),
        approval(7, effect, **{**WORK, "target": TableVersion("t", 5, "b" * 64)}),
        approval(7, effect, **{**WORK, "options": ApplyOptions(keys=("id",), where="id > 1")}),
        approval(7, effect, **{**WORK, "kind": "reload"}),
        approval(7, effect, **{**WORK, "pipeline": "q"}),
    ]
    assert len({text, *others}) == 7
    assert approved_version(text) == 7


@pytest.mark.parametrize(
    "value", ["yes", "7", "7-", "7-0a1b2c3d4e5", "x-0a1b2c3d4e5f", "7-0A1B2C3D4E5F", "-7-0a1b2c3d4e5f"]
)
def test_a_text_that_approves_nothing_is_refused(value: str) -> None:
    assert approved_version(value) is None
    with pytest.raises(InvalidConfiguration, match="LimitExceeded"):
        approval_text("approve", value)


@pytest.mark.parametrize(
    ("given", "end"),
    [
        ({}, 12),
        ({"starting_version": 9}, 12),
        ({"ending_version": 9}, 9),
        ({"ending_timestamp": "2026-01-01T00:00:00Z"}, None),
        ({"staging": "/staging"}, None),
        ({"mode": "repair", "repair_keys": "id = 1"}, None),
        ({"mode": "reset"}, 12),
        ({"mode": "reset", "initial_load": "snapshot"}, 12),
        ({"mode": "reset", "starting_version": 3}, None),
        ({"mode": "reset", "initial_load": {"from_version": 3}}, None),
    ],
)
def test_an_approved_run_ends_where_the_approved_step_ended(given: dict[str, Any], end: int | None) -> None:
    arguments = {"source": "/s", "target": "/t", "keys": ["id"], "approve": " 12-0a1b2c3d4e5f ", **given}
    _, apply = requests(arguments)
    assert apply is not None
    assert (apply.ending_version, apply.guard.approved) == (end, "12-0a1b2c3d4e5f")
