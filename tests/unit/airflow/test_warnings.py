"""What the log of a task warns about: rows that break rules, and rows in quarantine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta_cdc import publishing
from delta_cdc.core.value_rules import ValueRule
from delta_cdc.run.batch import PipelineResult
from delta_cdc.run.outcomes import Outcome

if TYPE_CHECKING:
    from tests.unit.airflow.conftest import Records

RULES = {
    "known": ValueRule("country IN ('DE')", "flag"),
    "owned": ValueRule("owner IS NOT NULL", "quarantine"),
}


def warned(records: Records, **counts: int) -> list[str]:
    applied = Outcome(
        kind="apply", applied=True, pipeline="orders", seal=1, counts=counts, target_table="/now"
    )
    publishing.warn(records, PipelineResult(pipeline="orders", applied=applied), RULES)  # type: ignore[arg-type]
    lines, records.lines = records.at("warning"), []
    return lines


def test_each_broken_rule_is_one_warning_with_what_happened_to_the_rows(records: Records) -> None:
    assert warned(records, inserted=3) == []
    (flagged,) = warned(records, **{"rule:known": 2})
    assert flagged == (
        "orders: 2 row(s) break the rule known (country IN ('DE')) and are applied.\n"
        "Remedy: correct them at the source; or change the rule, after delta-cdc rules try."
    )
    (set_aside,) = warned(records, **{"rule:owned": 2, "quarantined": 2})
    assert set_aside == (
        "orders: 2 row(s) break the rule owned (owner IS NOT NULL) and are in /now__quarantine, not in the "
        "target.\n"
        "Remedy: correct them at the source; or change the rule, then start a run with mode repair and "
        'repair_quarantined (in code: repair={"quarantined": True}).'
    )


def test_rows_in_quarantine_for_another_reason_have_a_warning_of_their_own(records: Records) -> None:
    of_rule, others = warned(records, **{"rule:owned": 2, "quarantined": 5})
    assert of_rule.startswith("orders: 2 row(s) break the rule owned")
    assert others.startswith("orders: 5 events in quarantine, each with its reason: /now__quarantine.\n")


def test_columns_that_the_schema_leaves_out(records: Records) -> None:
    (line,) = warned(records, **{"events": 3, "left_out:tier": 1, "left_out:note": 1})
    assert line.startswith(
        "orders: The option schema leaves out the column(s) 'tier', 'note' of the records.\n"
    )
    assert "Records in the log do not get them later" in line


def test_a_rule_that_the_task_no_longer_has(records: Records) -> None:
    (line,) = warned(records, **{"rule:gone": 2})
    assert line.startswith("orders: 2 row(s) break the rule gone.\nRemedy: ")
