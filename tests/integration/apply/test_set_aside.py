"""What a step sets aside is in quarantine, and counts as not applied until a replay."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import erase_key, explain_row, job, verify_table
from delta_cdc.core.errors import ConfigurationDrift, NullSequence, SequenceNotIncreasing
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.requests import ApplyRequest, ReadRequest
from delta_cdc.core.value_rules import value_rules
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from tests.integration.apply.test_value_rules import FEED, FLAG, QUARANTINE
from tests.integration.apply.test_value_rules import Orders as Base
from tests.support.engine import table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOSER = {"amount_positive": {"check": "amount >= -9", "on_break": "quarantine"}}
REPLAY: dict[str, Any] = {"mode": "repair", "repair": {"quarantined": True}}
INVALID: dict[str, Any] = {"policies": {"on_invalid": "quarantine"}}
LOG: dict[str, Any] = {
    "source_kind": "change_log",
    "sequence_by": "n",
    "apply_as_deletes": "op = 'D'",
    "except_column_list": ["op", "n"],
}
BY_N: dict[str, Any] = {"stored_as_scd_type": 2, "sequence_by": "n", "delete_sequence": "n + 1"}


class Orders(Base):
    """A source, and a target that may have no quarantine yet."""

    def aside(self) -> list[tuple[Any, ...]]:
        """Return reason, key and amount of the rows in quarantine."""
        uri = f"{self.target}__quarantine"
        if not (Path(uri) / "_delta_log").exists():
            return []
        found = [
            (row["reason"], json.loads(row["keys"]).get("id"), json.loads(row["raw"])["amount"])
            for row in table_rows(self.spark, uri)
        ]
        return sorted(found, key=str)


def made(
    spark: SparkSession, folder: Path, columns: str, rows: str, feed: str = FEED, **options: Any
) -> Orders:
    orders = Orders(spark, folder, options)
    return orders.sql(f"CREATE TABLE {{}} ({columns}) USING delta {feed}", f"INSERT INTO {{}} VALUES {rows}")


def feed_of(spark: SparkSession, folder: Path, rows: str = "(1, 10), (2, 20)", **options: Any) -> Orders:
    return made(spark, folder, "id INT, amount INT", rows, **options)


def by_n(spark: SparkSession, folder: Path, rows: str, **options: Any) -> Orders:
    return made(spark, folder, "id INT, amount INT, n INT", rows, **{**BY_N, **options})


def log_of(spark: SparkSession, folder: Path, rows: str, feed: str = "", **options: Any) -> Orders:
    return made(spark, folder, "id INT, amount INT, op STRING, n INT", rows, feed, **{**LOG, **options})


@pytest.mark.slow
def test_an_event_below_a_replayed_one_is_late(spark: SparkSession, tmp_path: Path) -> None:
    log = log_of(spark, tmp_path, "(1, 10, 'U', 1)")
    log.run(QUARANTINE)
    log.sql("INSERT INTO {} VALUES (1, -5, 'U', 100)")
    log.run(QUARANTINE)
    log.run(FLAG, **REPLAY)
    assert (log.rows(), log.aside()) == ([(1, -5)], [])
    log.sql("INSERT INTO {} VALUES (1, 12, 'U', 50)")
    log.run(FLAG)
    assert log.rows() == [(1, -5)], "n = 50 is older than n = 100"


@pytest.mark.slow
def test_a_history_takes_an_event_below_a_replayed_one(spark: SparkSession, tmp_path: Path) -> None:
    log = log_of(spark, tmp_path, "(1, 10, 'U', 1)", stored_as_scd_type=2)
    log.run(QUARANTINE)
    log.sql("INSERT INTO {} VALUES (1, -5, 'U', 100)")
    log.run(QUARANTINE)
    log.run(FLAG, **REPLAY)
    assert log.history() == [(1, -5, 100, None), (1, 10, 1, 100)]
    log.sql("INSERT INTO {} VALUES (1, 12, 'U', 50)")
    log.run(FLAG)
    assert log.history() == [(1, -5, 100, None), (1, 10, 1, 50), (1, 12, 50, 100)]


@pytest.mark.slow
def test_an_event_below_one_that_a_looser_rule_admits_is_late(spark: SparkSession, tmp_path: Path) -> None:
    """Without a replay: the key is computed again because of a late event."""
    log = log_of(spark, tmp_path, "(1, 10, 'U', 1)")
    log.run(QUARANTINE)
    log.sql("INSERT INTO {} VALUES (1, -5, 'U', 100)")
    log.run(QUARANTINE)
    log.sql("INSERT INTO {} VALUES (1, 9, 'U', 0)")
    log.run(FLAG)
    assert log.rows() == [(1, -5)]
    log.sql("INSERT INTO {} VALUES (1, 12, 'U', 50)")
    log.run(FLAG)
    assert log.rows() == [(1, -5)]


@pytest.mark.slow
def test_a_truncate_below_a_replayed_event_leaves_it(spark: SparkSession, tmp_path: Path) -> None:
    log = log_of(spark, tmp_path, "(1, 10, 'U', 1)", apply_as_truncates="op = 'T'")
    log.run(QUARANTINE)
    log.sql("INSERT INTO {} VALUES (1, -5, 'U', 100)")
    log.run(QUARANTINE)
    log.run(FLAG, **REPLAY)
    log.sql("INSERT INTO {} VALUES (NULL, NULL, 'T', 60)")
    log.run(FLAG)
    assert log.rows() == [(1, -5)], "a truncate deletes rows with a lower sequence"


@pytest.mark.slow
def test_the_order_is_tested_after_a_replay(spark: SparkSession, tmp_path: Path) -> None:
    feed = by_n(spark, tmp_path, "(1, 10, 1)")
    feed.run(QUARANTINE)
    feed.sql("UPDATE {} SET amount = -5, n = 100")
    feed.run(QUARANTINE)
    feed.run(None, **REPLAY)
    assert feed.history() == [(1, -5, 100, None), (1, 10, 1, 100)]
    feed.sql("UPDATE {} SET amount = 12, n = 50")
    with pytest.raises(SequenceNotIncreasing):
        feed.run(None)


@pytest.mark.slow
def test_a_replay_tests_the_order(spark: SparkSession, tmp_path: Path) -> None:
    feed = by_n(spark, tmp_path, "(1, 10, 1)")
    feed.run(QUARANTINE)
    feed.sql("UPDATE {} SET amount = -5, n = 100")
    feed.run(QUARANTINE)
    feed.sql("UPDATE {} SET amount = 12, n = 50")
    feed.run(QUARANTINE)
    assert feed.history() == [(1, 10, 1, 50), (1, 12, 50, None)]
    with pytest.raises(SequenceNotIncreasing):
        feed.run(None, **REPLAY)
    assert feed.history() == [(1, 10, 1, 50), (1, 12, 50, None)]


@pytest.mark.slow
def test_a_reload_sets_rows_without_key_aside(spark: SparkSession, tmp_path: Path) -> None:
    feed = feed_of(spark, tmp_path, **INVALID)
    feed.run()
    feed.sql("INSERT INTO {} VALUES (NULL, 5), (3, 30)")
    feed.run(mode="reload")
    feed.run()
    assert feed.rows() == [(1, 10), (2, 20), (3, 30)]
    assert feed.aside() == [("null_key", None, 5)]


@pytest.mark.slow
def test_a_reload_of_a_log_sets_invalid_events_aside(spark: SparkSession, tmp_path: Path) -> None:
    log = log_of(spark, tmp_path, "(1, 10, 'U', 1)", **INVALID)
    log.run()
    log.sql("INSERT INTO {} VALUES (2, 20, 'U', NULL)")
    log.run(mode="reload")
    log.run()
    assert log.rows() == [(1, 10)]
    assert log.aside() == [("null_sequence", "2", 20)]


@pytest.mark.slow
def test_a_reload_of_a_log_refuses_invalid_events(spark: SparkSession, tmp_path: Path) -> None:
    log = log_of(spark, tmp_path, "(1, 10, 'U', 1)")
    log.run()
    log.sql("INSERT INTO {} VALUES (2, 20, 'U', NULL)")
    with pytest.raises(NullSequence):
        log.run()
    with pytest.raises(NullSequence):
        log.run(mode="reload")


@pytest.mark.slow
def test_a_reload_of_a_log_sets_conflicting_events_aside(spark: SparkSession, tmp_path: Path) -> None:
    log = log_of(spark, tmp_path, "(1, 10, 'U', 1)", policies={"on_conflict": "quarantine"})
    log.run()
    log.sql("INSERT INTO {} VALUES (2, 20, 'U', 5), (2, 21, 'U', 5)")
    log.run(mode="reload")
    log.run()
    assert log.rows() == [(1, 10)]
    assert log.aside() == [("tied", "2", 20), ("tied", "2", 21)]


@pytest.mark.slow
def test_a_repair_under_another_policy_sets_conflicting_events_aside(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = log_of(spark, tmp_path, "(1, 10, 'U', 1), (2, 20, 'U', 5), (2, 21, 'U', 5)")
    log.run(policies={"on_conflict": {"last_by": ["amount"]}})
    assert log.rows() == [(1, 10), (2, 21)]
    log.run(policies={"on_conflict": "quarantine"}, mode="repair", repair={"keys": "id = 2"})
    assert log.rows() == [(1, 10)]
    assert log.aside() == [("tied", "2", 20), ("tied", "2", 21)]


@pytest.mark.slow
def test_a_loaded_row_that_is_still_invalid_stays_in_quarantine(spark: SparkSession, tmp_path: Path) -> None:
    feed = by_n(spark, tmp_path, "(1, 10, 1), (2, 20, NULL)", **INVALID)
    feed.run()
    feed.sql("UPDATE {} SET amount = 11, n = 2 WHERE id = 1")
    feed.run()
    assert feed.aside() == [("null_sequence", "2", 20)]
    feed.run(**REPLAY)
    assert [row for row in feed.history() if row[0] == 2] == []
    assert feed.aside() == [("null_sequence", "2", 20)]


@pytest.mark.slow
def test_a_staged_batch_waits_for_the_replay_of_dropped_rules(spark: SparkSession, tmp_path: Path) -> None:
    feed = made(spark, tmp_path, "id INT, amount INT, note STRING", "(1, 10, 'a')")
    services: Any = Services(execute=partial(job.run, spark))
    flow = {"pipeline": "orders", "target": feed.target, "source": feed.source}
    staging = str(tmp_path / "staging")
    options = ApplyOptions(
        keys=("id",),
        stored_as_scd_type=2,
        track_history_column_list=("amount",),
        rules=value_rules("rules", QUARANTINE),
    )

    def step(given: ApplyOptions) -> None:
        run(ReadRequest(staging=staging, **flow), services)
        run(ApplyRequest(staging=staging, options=given, **flow), services)

    step(options)
    feed.sql("UPDATE {} SET amount = -5")
    step(options)
    assert (feed.history(), feed.aside()) == ([(1, 10, 1, None)], [("rule amount_positive", "1", -5)])
    feed.sql("UPDATE {} SET note = 'b'")
    with pytest.raises(ConfigurationDrift, match="amount_positive"):
        step(replace(options, rules={}))
    assert feed.history() == [(1, 10, 1, None)], "the value 10 was current from 1 to 3"


@pytest.mark.slow
def test_a_loaded_row_that_was_set_aside_and_cured_is_replayed(spark: SparkSession, tmp_path: Path) -> None:
    feed = feed_of(spark, tmp_path, "(1, 10), (3, -30)", stored_as_scd_type=2)
    feed.run(QUARANTINE)
    feed.sql("UPDATE {} SET amount = 31 WHERE id = 3")
    feed.run(QUARANTINE)
    assert feed.history() == [(1, 10, 1, None), (3, 31, 2, None)]
    feed.run(None, **REPLAY)
    of_3 = [row for row in feed.history() if row[0] == 3]
    assert (of_3, feed.aside()) in (
        ([(3, -30, 1, 2), (3, 31, 2, None)], []),
        ([(3, 31, 2, None)], [("rule amount_positive", "3", -30)]),
    ), "in the target or in quarantine, not in neither"


@pytest.mark.slow
def test_a_loaded_row_that_was_set_aside_and_cured_is_replayed_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = feed_of(spark, tmp_path, "(1, 10), (3, -30), (4, -40)", stored_as_scd_type=2)
    feed.run(QUARANTINE)
    feed.sql("UPDATE {} SET amount = 31 WHERE id = 3", "DELETE FROM {} WHERE id = 4")
    feed.run(QUARANTINE)
    feed.run(None, **REPLAY)
    assert feed.history() == [(1, 10, 1, None), (3, -30, 1, 2), (3, 31, 2, None), (4, -40, 1, 3)]
    assert feed.aside() == []


@pytest.mark.slow
def test_a_loaded_row_that_was_set_aside_begins_with_the_load(spark: SparkSession, tmp_path: Path) -> None:
    feed = feed_of(spark, tmp_path, "(1, 10), (3, -30)", stored_as_scd_type=2)
    feed.run(QUARANTINE)
    feed.sql("UPDATE {} SET amount = 11 WHERE id = 1")
    feed.run(QUARANTINE)
    feed.run(None, **REPLAY)
    assert [row for row in feed.history() if row[0] == 3] == [(3, -30, 1, None)], "as without the rule"


@pytest.mark.slow
def test_a_looser_rule_for_one_of_two_versions(spark: SparkSession, tmp_path: Path) -> None:
    feed = feed_of(spark, tmp_path, "(1, 10), (3, -30)", stored_as_scd_type=2)
    feed.run(QUARANTINE)
    feed.sql("UPDATE {} SET amount = -5 WHERE id = 3", "UPDATE {} SET amount = 7 WHERE id = 3")
    feed.run(QUARANTINE)
    feed.run(LOOSER, **REPLAY)
    assert [row for row in feed.history() if row[0] == 3] == [(3, -5, 2, 3), (3, 7, 3, None)]
    assert feed.aside() == [("rule amount_positive", "3", -30)]


@pytest.mark.slow
def test_a_state_without_sequence_is_cured_in_the_next_range(spark: SparkSession, tmp_path: Path) -> None:
    feed = by_n(spark, tmp_path, "(1, 10, 1)", **INVALID)
    feed.run()
    feed.sql("UPDATE {} SET amount = 11, n = NULL")
    feed.run()
    assert feed.aside() == [("null_sequence", "1", 11)]
    feed.sql("UPDATE {} SET n = 30")
    feed.run()
    assert feed.history() == [(1, 10, 1, 30), (1, 11, 30, None)]


@pytest.mark.slow
def test_a_repair_keeps_a_state_that_was_cured(spark: SparkSession, tmp_path: Path) -> None:
    feed = by_n(spark, tmp_path, "(1, 10, 1)", **INVALID)
    feed.run()
    feed.sql("UPDATE {} SET amount = 11, n = NULL", "UPDATE {} SET n = 30")
    feed.run()
    feed.run(mode="repair", starting_version=2)
    assert feed.history() == [(1, 10, 1, 30), (1, 11, 30, None)]


@pytest.mark.slow
def test_a_delete_without_sequence_and_a_new_row_later(spark: SparkSession, tmp_path: Path) -> None:
    feed = by_n(spark, tmp_path, "(3, 10, 10)", delete_sequence="nullif(n + 1, 11)", **INVALID)
    feed.run()
    feed.sql("DELETE FROM {} WHERE id = 3")
    feed.run()
    assert feed.aside() == [("null_sequence", "3", 10)]
    feed.sql("INSERT INTO {} VALUES (3, 12, 60)")
    feed.run()
    assert feed.history() == [(3, 10, 10, 60), (3, 12, 60, None)]


@pytest.mark.slow
def test_a_reset_does_not_set_a_row_without_key_aside_twice(spark: SparkSession, tmp_path: Path) -> None:
    feed = feed_of(spark, tmp_path, "(1, 10), (NULL, 5)", **INVALID)
    feed.run()
    assert feed.aside() == [("null_key", None, 5)]
    feed.run(mode="reset")
    assert feed.aside() == [("null_key", None, 5)]


@pytest.mark.slow
def test_a_reset_after_a_new_column_sets_no_row_aside_twice(spark: SparkSession, tmp_path: Path) -> None:
    feed = feed_of(spark, tmp_path, "(1, 10), (NULL, 5), (2, -5)", **INVALID)
    feed.run(QUARANTINE)
    expected = [("null_key", None, 5), ("rule amount_positive", "2", -5)]
    assert feed.aside() == expected
    feed.sql("ALTER TABLE {} ADD COLUMN city STRING")
    feed.run(QUARANTINE, mode="reset")
    assert feed.aside() == expected
    feed.sql("UPDATE {} SET city = 'x' WHERE id = 2")
    feed.run(QUARANTINE, mode="reload")
    assert len(feed.aside()) == 3, "the row has another value now"


@pytest.mark.slow
def test_a_held_event_is_not_missing_after_a_new_column(spark: SparkSession, tmp_path: Path) -> None:
    log = log_of(spark, tmp_path, "(1, 10, 'U', 1), (2, -5, 'U', 1)")
    log.run(QUARANTINE)
    log.sql("ALTER TABLE {} ADD COLUMN city STRING", "INSERT INTO {} VALUES (3, 30, 'U', 2, 'x')")
    log.run(QUARANTINE)
    log.expect_healthy()


@pytest.mark.slow
def test_a_delete_of_a_row_without_key(spark: SparkSession, tmp_path: Path) -> None:
    """What the quarantine gets must not depend on whether another row breaks a rule."""
    feed = feed_of(spark, tmp_path, "(1, 10), (NULL, 5)", **INVALID)
    feed.run(QUARANTINE)
    feed.sql("DELETE FROM {} WHERE id IS NULL", "UPDATE {} SET amount = -12 WHERE id = 1")
    feed.run(QUARANTINE)
    assert [row for row in feed.aside() if row[0] == "null_key"] == [("null_key", None, 5)]


@pytest.mark.slow
def test_a_repair_from_a_later_start_leaves_earlier_history(spark: SparkSession, tmp_path: Path) -> None:
    feed = feed_of(spark, tmp_path, "(1, 10)", stored_as_scd_type=2)
    feed.run(QUARANTINE)
    feed.sql("UPDATE {} SET amount = -5", "UPDATE {} SET amount = 12")
    feed.run(QUARANTINE)
    assert feed.history() == [(1, 10, 1, 3), (1, 12, 3, None)]
    feed.run(LOOSER, mode="repair", starting_version=3)
    assert feed.history() == [(1, 10, 1, 3), (1, 12, 3, None)], "history before the start stays"


@pytest.mark.slow
def test_a_replay_from_a_later_start_leaves_earlier_history(spark: SparkSession, tmp_path: Path) -> None:
    feed = feed_of(spark, tmp_path, "(1, 10)", stored_as_scd_type=2)
    feed.run(QUARANTINE)
    feed.sql("UPDATE {} SET amount = -5", "UPDATE {} SET amount = 12")
    feed.run(QUARANTINE)
    feed.run(None, **REPLAY, starting_version=3)
    assert feed.history() == [(1, 10, 1, 3), (1, 12, 3, None)], "history before the start stays"
    assert feed.aside() == [("rule amount_positive", "1", -5)]


@pytest.mark.slow
def test_without_a_feed_each_version_is_tested(spark: SparkSession, tmp_path: Path) -> None:
    orders = feed_of(spark, tmp_path, feed="")
    orders.run(QUARANTINE)
    orders.sql("UPDATE {} SET amount = 11 WHERE id = 1", "UPDATE {} SET amount = -11 WHERE id = 1")
    orders.run(QUARANTINE)
    assert orders.rows() == [(1, 11), (2, 20)]


@pytest.mark.slow
def test_why_of_a_copy_in_quarantine(spark: SparkSession, tmp_path: Path) -> None:
    options = {"source_kind": "snapshot", "snapshot_version_column": "day", "except_column_list": ["day"]}
    orders = made(spark, tmp_path, "id INT, amount INT, day INT", "(1, 10, 1), (2, 20, 1)", "", **options)
    orders.run(QUARANTINE)
    orders.sql("INSERT INTO {} VALUES (1, -1, 2), (2, 20, 2)")
    orders.run(QUARANTINE)
    assert orders.rows() == [(1, 10), (2, 20)]
    answer = explain_row(spark, orders.target, pipeline="orders", key={"id": 1})
    assert {one.column: one.since is not None for one in answer.rows[0].values}["amount"]


@pytest.mark.slow
def test_why_of_a_row_that_is_older_than_its_rule(spark: SparkSession, tmp_path: Path) -> None:
    log = log_of(spark, tmp_path, "(1, 10, 'U', 1), (3, -30, 'U', 1)")
    log.run()
    log.sql("INSERT INTO {} VALUES (1, 11, 'U', 2), (4, -1, 'U', 2)")
    log.run(QUARANTINE)
    answer = explain_row(spark, log.target, pipeline="orders", key={"id": 3})
    assert all(one.since is not None for one in answer.rows[0].values if one.column != "id")
    assert answer.not_taken == ()
    answer = explain_row(spark, log.target, pipeline="orders", key={"id": 4})
    assert answer.rows == ()
    rule = "rule amount_positive"
    assert sorted(one.why for one in answer.not_taken) == [f"it is in quarantine ({rule})", rule]


@pytest.mark.slow
def test_why_of_a_row_whose_oldest_change_was_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    """Before that change, the source had the row that the target keeps."""
    orders = feed_of(spark, tmp_path, "(1, 10)")
    orders.run(QUARANTINE)
    orders.sql("UPDATE {} SET amount = -5")
    orders.run(QUARANTINE)
    newest = run_sync(DeltaLog(orders.source).commit(2)).bytes_to_read
    question = {"pipeline": "orders", "key": {"id": 1}, "max_bytes": newest}
    (row,) = explain_row(spark, orders.target, **question).rows
    assert [(one.value, one.note.partition(" version")[0]) for one in row.values] == [
        ("1", "older than"),
        ("10", "older than"),
    ]


@pytest.mark.slow
def test_a_dropped_policy_waits_for_the_replay(spark: SparkSession, tmp_path: Path) -> None:
    feed = by_n(spark, tmp_path, "(1, 10, 1)", **INVALID)
    feed.run()
    feed.sql("UPDATE {} SET amount = 11, n = NULL")
    feed.run()
    feed.sql("UPDATE {} SET n = 30")
    with pytest.raises(ConfigurationDrift, match="on_invalid 'quarantine'"):
        feed.run(policies={})
    feed.run()
    assert feed.history() == [(1, 10, 1, 30), (1, 11, 30, None)]


@pytest.mark.slow
def test_a_dropped_policy_does_not_wait_for_rows_without_key(spark: SparkSession, tmp_path: Path) -> None:
    feed = by_n(spark, tmp_path, "(1, 10, 1), (NULL, 5, 1)", **INVALID)
    feed.run()
    assert feed.aside() == [("null_key", None, 5)]
    feed.sql("UPDATE {} SET amount = 11, n = 2 WHERE id = 1")
    feed.run(policies={})
    assert feed.history() == [(1, 10, 1, 2), (1, 11, 2, None)]


@pytest.mark.slow
def test_a_replay_with_a_key_column_in_another_case(spark: SparkSession, tmp_path: Path) -> None:
    feed = feed_of(spark, tmp_path, "(1, 10), (3, -3)")
    feed.run(QUARANTINE, select=["id", "amount"])
    assert feed.aside() == [("rule amount_positive", "3", -3)]
    feed.run(None, select=["ID", "amount"], policies={"on_drift": "accept"}, **REPLAY)
    found = sorted(row["id"] if "id" in row else row["ID"] for row in table_rows(spark, feed.target))
    assert (found, len(table_rows(spark, f"{feed.target}__quarantine"))) in (([1, 3], 0), ([1], 1))


@pytest.mark.slow
def test_a_reload_with_a_newer_rule_marks_no_row_deleted(spark: SparkSession, tmp_path: Path) -> None:
    log = log_of(spark, tmp_path, "(1, 10, 'U', 1), (3, -30, 'U', 1)", delete_mode="soft")
    log.run()
    log.run(QUARANTINE, mode="reload")
    assert log.aside() == [("rule amount_positive", "3", -30)]
    shown = log.rows("id", "amount", "_deleted")
    assert (3, -30, True) not in shown, "the source has not deleted this key"
    assert shown == [(1, 10, False)]


@pytest.mark.slow
def test_a_row_that_is_older_than_its_rule_is_healthy(spark: SparkSession, tmp_path: Path) -> None:
    log = log_of(spark, tmp_path, "(1, 10, 'U', 1), (3, -30, 'U', 1)")
    log.run()
    log.sql("INSERT INTO {} VALUES (1, 11, 'U', 2)")
    log.run(QUARANTINE)
    assert log.rows() == [(1, 11), (3, -30)], "it stays until it is computed again"
    found = verify_table(spark, log.target, pipeline="orders", checks=["equals_source"])
    assert [check.status for check in found.checks] == ["ok"], found.findings


@pytest.mark.slow
def test_a_repair_with_a_newer_rule_leaves_a_row_in_one_table(spark: SparkSession, tmp_path: Path) -> None:
    feed = feed_of(spark, tmp_path, "(1, 10)", stored_as_scd_type=2)
    feed.run()
    feed.sql("UPDATE {} SET amount = -5")
    feed.run()
    feed.run(QUARANTINE, mode="repair", starting_version=2)
    both = (feed.history(), feed.aside())
    assert both in (
        ([(1, 10, 1, None)], [("rule amount_positive", "1", -5)]),
        ([(1, -5, 2, None), (1, 10, 1, 2)], []),
    ), "in the target or in quarantine, not in both"


@pytest.mark.slow
@pytest.mark.parametrize("scd_type", [1, 2])
@pytest.mark.parametrize("kind", ["feed", "log"])
def test_a_row_that_a_repair_admits_leaves_the_quarantine(
    spark: SparkSession, tmp_path: Path, kind: str, scd_type: int
) -> None:
    """The row that still breaks the rule stays, until a reload without the rule takes it, too."""
    if kind == "feed":
        orders = feed_of(spark, tmp_path, "(1, 10), (2, 10)", stored_as_scd_type=scd_type)
        change, repair = "UPDATE {} SET amount = IF(id = 1, -5, -50)", {"repair": {"keys": "id < 3"}}
    else:
        orders = log_of(spark, tmp_path, "(1, 10, 'U', 1), (2, 10, 'U', 1)", stored_as_scd_type=scd_type)
        change, repair = "INSERT INTO {} VALUES (1, -5, 'U', 2), (2, -50, 'U', 2)", {"starting_version": 2}
    orders.run(QUARANTINE)
    orders.sql(change)
    orders.run(QUARANTINE)
    assert [key for _, key, _ in orders.aside()] == ["1", "2"]
    assert orders.run(LOOSER, mode="repair", **repair)["settled"] == 1
    assert [row for row in orders.rows() if row[1] < 0] == [(1, -5)]
    assert orders.aside() == [("rule amount_positive", "2", -50)]
    orders.run(FLAG, mode="reload")
    assert [row for row in orders.rows() if row[1] < 0] == [(1, -5), (2, -50)]
    assert orders.aside() == []


@pytest.mark.slow
def test_a_replay_leaves_discarded_events_alone(spark: SparkSession, tmp_path: Path) -> None:
    tracked = "TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
    late = {"policies": {"on_late": "discard"}}
    log = log_of(spark, tmp_path, "(1, 10, 'U', 10), (1, -5, 'U', 20), (2, 1, 'U', 30)", tracked, **late)
    log.run(QUARANTINE)
    log.sql(
        "ALTER TABLE {} SET TBLPROPERTIES ('delta_cdc.latenessHorizon' = '15')",
        "INSERT INTO {} VALUES (1, 7, 'U', 3)",
    )
    assert log.run(QUARANTINE)["discarded"] == 1
    assert log.aside() == [("rule amount_positive", "1", -5)]
    log.run(FLAG, **REPLAY)
    assert log.rows() == [(1, -5), (2, 1)]
    assert log.aside() == []


@pytest.mark.slow
def test_an_erased_key_leaves_the_quarantine_whatever_its_case(spark: SparkSession, tmp_path: Path) -> None:
    orders = made(spark, tmp_path, "ID INT, amount INT", "(1, 10), (3, -3)")
    spark.sql(f"CREATE TABLE delta.`{orders.target}` (id INT, amount INT) USING delta")
    orders.run(QUARANTINE)
    uri = f"{orders.target}__quarantine"
    assert len(table_rows(spark, uri)) == 1
    tables = [{"pipeline": "orders", "source": orders.source, "target": orders.target}]
    erase_key(spark, tables, key={"id": 3})
    assert table_rows(spark, uri) == []
