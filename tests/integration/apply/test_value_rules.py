"""Rows that break a rule are refused, set aside or counted, whatever the source and the kind of step."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes, verify_table
from delta_cdc.core.errors import ConfigurationDrift, InvalidExpression, RuleBroken, TargetConstraintViolated
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.value_rules import value_rules
from tests.support.engine import Quarantining, newest, newest_seal, staged, table_rows
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
QUARANTINE = {"amount_positive": {"check": "amount >= 0", "on_break": "quarantine"}}
FLAG = {"amount_positive": {"check": "amount >= 0", "on_break": "flag"}}
COUNT = "rule:amount_positive"


@dataclass
class Orders:
    """A source, and a target that a pipeline applies it to."""

    spark: SparkSession
    folder: Path
    options: dict[str, Any]

    @property
    def source(self) -> str:
        return str(self.folder / "orders")

    @property
    def target(self) -> str:
        return str(self.folder / "now")

    def sql(self, *statements: str) -> Orders:
        for statement in statements:
            self.spark.sql(statement.format(f"delta.`{self.source}`"))
        return self

    def run(self, rules: Any = None, **more: Any) -> dict[str, int]:
        """Apply, and return the counts."""
        given = {"pipeline": "orders", "keys": ["id"], "rules": rules, **self.options, **more}
        return apply_changes(self.spark, self.source, self.target, **given).counts

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        columns = columns or ("id", "amount")
        found = [tuple(row[name] for name in columns) for row in table_rows(self.spark, self.target)]
        return sorted(found, key=str)

    def history(self) -> list[tuple[Any, ...]]:
        return sorted(self.rows("id", "amount", "__START_AT", "__END_AT"), key=str)

    def aside(self) -> list[tuple[Any, ...]]:
        """Return reason, key and amount of the rows in quarantine."""
        stored = table_rows(self.spark, f"{self.target}__quarantine")
        return sorted(
            (row["reason"], json.loads(row["keys"])["id"], json.loads(row["raw"])["amount"]) for row in stored
        )

    def expect_healthy(self) -> None:
        """Expect that a verification takes a row in quarantine for no missing row."""
        found = verify_table(self.spark, self.target, pipeline="orders", checks=["equals_source"])
        assert [check.status for check in found.checks] == ["ok"], found.findings


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Orders:
    """Two rows, loaded."""
    orders = Orders(spark, tmp_path, {})
    orders.sql(
        f"CREATE TABLE {{}} (id INT, amount INT, note STRING) USING delta {FEED}",
        "INSERT INTO {} VALUES (1, 10, 'a'), (2, 20, 'a')",
    )
    return orders


def test_fail_writes_nothing(feed: Orders) -> None:
    feed.run({"amount_positive": "amount >= 0"})
    feed.sql("UPDATE {} SET amount = -1 WHERE id = 1", "INSERT INTO {} VALUES (3, NULL, 'a')")
    before = newest(feed.target)
    with pytest.raises(RuleBroken) as raised:
        feed.run({"amount_positive": "amount >= 0"})
    message = str(raised.value)
    assert "2 row(s)" in message
    assert "break the rule amount_positive: amount >= 0 is not true" in message
    assert "id = 1" in message
    assert "id = 3" in message
    assert newest(feed.target) == before
    # The source is corrected; the range keeps the version with the wrong rows.
    feed.sql("UPDATE {} SET amount = 30 WHERE id IN (1, 3)")
    with pytest.raises(RuleBroken):
        feed.run({"amount_positive": "amount >= 0"})
    feed.run({"amount_positive": "amount >= 0"}, mode="reload")
    assert feed.rows() == [(1, 30), (2, 20), (3, 30)]


@pytest.mark.slow
def test_a_row_that_the_target_refuses_is_set_aside_by_a_new_rule(feed: Orders) -> None:
    """The failed try has written the quarantine, for the same range and the same seal."""
    feed.run(QUARANTINE)
    # A job that was killed before its first commit of the quarantine has left a data file.
    left = Path(f"{feed.target}__quarantine")
    feed.spark.range(1).coalesce(1).write.parquet(str(left))
    (left / "_SUCCESS").unlink()
    (left / "_delta_log").mkdir()
    feed.spark.sql(f"ALTER TABLE delta.`{feed.target}` ADD CONSTRAINT few CHECK (amount < 100)")
    feed.sql("INSERT INTO {} VALUES (3, -3, 'a'), (4, 400, 'a')")
    with pytest.raises(TargetConstraintViolated, match="id = 4"):
        feed.run(QUARANTINE)
    few = {"few": {"check": "amount < 100", "on_break": "quarantine"}}
    assert feed.run({**QUARANTINE, **few})["quarantined"] == 2
    assert feed.rows() == [(1, 10), (2, 20)]
    assert [key for _, key, _ in feed.aside()] == ["3", "4"]


@pytest.mark.slow
def test_a_row_that_the_target_refuses_is_corrected_in_the_source(feed: Orders) -> None:
    """Beside it, another row went to the quarantine before the commit failed."""
    feed.run(QUARANTINE)
    feed.spark.sql(f"ALTER TABLE delta.`{feed.target}` ADD CONSTRAINT few CHECK (amount < 100)")
    feed.sql("INSERT INTO {} VALUES (3, -3, 'a'), (4, 400, 'a')")
    for _ in range(2):
        with pytest.raises(TargetConstraintViolated, match="id = 4"):
            feed.run(QUARANTINE)
    feed.sql("UPDATE {} SET amount = 40 WHERE id = 4", "INSERT INTO {} VALUES (5, -5, 'a')")
    counts = feed.run(QUARANTINE)
    assert (counts["inserted"], counts["quarantined"]) == (1, 2)
    assert feed.rows() == [(1, 10), (2, 20), (4, 40)]
    assert [key for _, key, _ in feed.aside()] == ["3", "5"]


@pytest.mark.slow
def test_a_row_without_a_value_breaks_a_rule_and_a_delete_breaks_none(feed: Orders) -> None:
    feed.sql("INSERT INTO {} VALUES (3, NULL, 'a')")
    rules = {**QUARANTINE, "at_most_10": {"check": "amount <= 10", "on_break": "flag"}}
    counts = feed.run(rules)
    assert (counts["quarantined"], counts[COUNT], counts["inserted"]) == (1, 1, 2)
    assert counts["rule:at_most_10"] == 2, "each rule counts all rows that break it"
    assert feed.rows() == [(1, 10), (2, 20)], "a row that is only counted is applied"
    assert feed.aside() == [("rule amount_positive", "3", None)]
    feed.sql("DELETE FROM {} WHERE id = 3", "DELETE FROM {} WHERE id = 1")
    assert "quarantined" not in feed.run(rules)
    assert feed.rows() == [(2, 20)]


@pytest.mark.slow
@pytest.mark.parametrize("versions_per_commit", slow_but([None, 1], None))
def test_quarantine_keeps_the_older_row(feed: Orders, versions_per_commit: int | None) -> None:
    """The result does not depend on how the range is split into commits."""
    limits = {"versions_per_commit": versions_per_commit}
    feed.run(QUARANTINE)
    feed.sql(
        "UPDATE {} SET amount = 11 WHERE id = 1",
        "UPDATE {} SET amount = -11 WHERE id = 1",
        "UPDATE {} SET amount = -20 WHERE id = 2",
        "INSERT INTO {} VALUES (3, -30, 'a')",
        "UPDATE {} SET amount = 21 WHERE id = 2",
        "UPDATE {} SET amount = amount WHERE id = 3",
    )
    counts = feed.run(QUARANTINE, limits=limits)
    assert counts["quarantined"] == counts[COUNT] == 3
    assert feed.rows() == [(1, 11), (2, 21)]
    assert feed.aside() == [
        ("rule amount_positive", key, n) for key, n in (("1", -11), ("2", -20), ("3", -30))
    ]
    feed.expect_healthy()
    # The next range begins after a state that the target lacks.
    feed.sql("UPDATE {} SET amount = 31 WHERE id = 3", "UPDATE {} SET amount = 11 WHERE id = 1")
    feed.run(QUARANTINE, limits=limits)
    assert feed.rows() == [(1, 11), (2, 21), (3, 31)]


@pytest.mark.slow
@pytest.mark.parametrize("versions_per_commit", slow_but([None, 1], 1))
def test_history_has_no_row_that_was_set_aside(feed: Orders, versions_per_commit: int | None) -> None:
    rules = {"known": {"check": "note <> 'x'", "on_break": "quarantine"}}
    given: dict[str, Any] = {
        "stored_as_scd_type": 2,
        "track_history_column_list": ["amount"],
        "limits": {"versions_per_commit": versions_per_commit},
    }
    feed.run(rules, **given)
    feed.sql("UPDATE {} SET amount = 11, note = 'x' WHERE id = 1")
    feed.run(rules, **given)
    # Against the row that was set aside, only a column changes that is not tracked.
    feed.sql("UPDATE {} SET note = 'b' WHERE id = 1", "UPDATE {} SET amount = 12, note = 'x' WHERE id = 1")
    counts = feed.run(rules, **given)
    assert counts["rule:known"] == 1
    assert feed.history() == [(1, 10, 1, 3), (1, 11, 3, None), (2, 20, 1, None)]
    feed.expect_healthy()


@pytest.mark.slow
@pytest.mark.parametrize("scd_type", [1, 2])
def test_flag_applies_and_counts(feed: Orders, scd_type: int) -> None:
    feed.run(FLAG, stored_as_scd_type=scd_type)
    feed.sql("UPDATE {} SET amount = -1 WHERE id = 1", "UPDATE {} SET note = 'b'")
    counts = feed.run(FLAG, stored_as_scd_type=scd_type)
    # Both versions of the row break it.
    assert counts[COUNT] == 2
    assert "quarantined" not in counts
    assert [row for row in feed.rows() if row[1] < 0] == [(1, -1)] * scd_type
    feed.sql("UPDATE {} SET amount = 1 WHERE id = 1")
    assert COUNT not in feed.run(FLAG, stored_as_scd_type=scd_type)


@pytest.mark.slow
@pytest.mark.parametrize("scd_type", slow_but([1, 2], 1))
def test_a_changed_rule_and_a_replay(feed: Orders, scd_type: int) -> None:
    """What keeps the new rule comes from the quarantine to its place; the rest stays."""
    given = {"stored_as_scd_type": scd_type}
    feed.run(QUARANTINE, **given)
    feed.sql(
        "UPDATE {} SET amount = -5 WHERE id = 1",
        "INSERT INTO {} VALUES (3, -50, 'a')",
        "UPDATE {} SET amount = 12 WHERE id = 1",
        "INSERT INTO {} VALUES (4, -6, 'a')",
    )
    feed.run(QUARANTINE, **given)
    assert [key for _, key, _ in feed.aside()] == ["1", "3", "4"]
    changed = {"amount_positive": {"check": "amount >= -9", "on_break": "quarantine"}}
    again = {**given, "mode": "repair", "repair": {"quarantined": True}}
    feed.run(changed, **again)
    assert feed.aside() == [("rule amount_positive", "3", -50)]
    if scd_type == 1:
        assert feed.rows() == [(1, 12), (2, 20), (4, -6)]
    else:
        assert feed.history() == [
            (1, -5, 2, 4), (1, 10, 1, 2), (1, 12, 4, None), (2, 20, 1, None), (4, -6, 5, None)
        ]  # fmt: skip


@pytest.mark.parametrize("scd_type", slow_but([1, 2]))
def test_a_pipeline_with_a_new_name_replays_what_the_old_one_set_aside(feed: Orders, scd_type: int) -> None:
    given = {"stored_as_scd_type": scd_type}
    feed.run(QUARANTINE, **given)
    feed.sql("UPDATE {} SET amount = -5 WHERE id = 1", "INSERT INTO {} VALUES (3, -6, 'a')")
    feed.run(QUARANTINE, **given)
    renamed = {**given, "pipeline": "renamed", "take_over_from": "orders"}
    if scd_type == 2:
        with pytest.raises(ConfigurationDrift, match="still has rows of orders"):
            feed.run(None, **renamed)
    feed.run(QUARANTINE, **renamed)
    assert {row["pipeline"] for row in table_rows(feed.spark, f"{feed.target}__quarantine")} == {"renamed"}
    feed.run(None, **renamed, mode="repair", repair={"quarantined": True})
    assert feed.aside() == []
    assert [row for row in feed.rows() if row[1] < 0] == [(1, -5), (3, -6)]


@pytest.mark.slow
def test_a_history_without_its_rules_is_replayed_first(feed: Orders) -> None:
    """The feed has the state before a change, which the target lacks: it is in quarantine."""
    given = {"stored_as_scd_type": 2}
    feed.run(QUARANTINE, **given)
    feed.sql("UPDATE {} SET amount = -5 WHERE id = 1")
    feed.run(QUARANTINE, **given)
    feed.sql("UPDATE {} SET amount = 12 WHERE id = 1")
    for mode in ({}, {"mode": "repair", "repair": {"keys": "id = 2"}}):
        with pytest.raises(ConfigurationDrift, match="amount_positive"):
            feed.run(None, **given, **mode)
    feed.run(None, **given, mode="repair", repair={"quarantined": True})
    feed.run(None, **given)
    assert feed.history() == [(1, -5, 2, 3), (1, 10, 1, 2), (1, 12, 3, None), (2, 20, 1, None)]


@pytest.mark.slow
def test_repairs_of_a_history_take_nothing_from_the_quarantine(feed: Orders) -> None:
    given = {"stored_as_scd_type": 2}
    feed.run(QUARANTINE, **given)
    feed.sql("UPDATE {} SET amount = -5 WHERE id = 1", "UPDATE {} SET amount = 12 WHERE id = 1")
    feed.run(QUARANTINE, **given)
    expected = [(1, 10, 1, 3), (1, 12, 3, None), (2, 20, 1, None)]
    assert feed.history() == expected
    for start in (2, 3):
        feed.run(QUARANTINE, **given, mode="repair", starting_version=start)
        assert feed.history() == expected
        assert feed.aside() == [("rule amount_positive", "1", -5)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", slow_but(["reload", "reset"], "reload"))
def test_the_whole_target_again(feed: Orders, mode: str) -> None:
    feed.sql("INSERT INTO {} VALUES (3, -1, 'a')")
    feed.run(QUARANTINE)
    feed.sql("UPDATE {} SET amount = -2 WHERE id = 1")
    feed.run(QUARANTINE, mode=mode)
    # A reset has deleted the older row.
    assert feed.rows() == ([(1, 10)] if mode == "reload" else []) + [(2, 20)]
    assert feed.aside() == [("rule amount_positive", "1", -2), ("rule amount_positive", "3", -1)]


@pytest.mark.slow
def test_a_reload_does_not_set_a_row_aside_again(feed: Orders) -> None:
    """The quarantine has the row of the source, also the columns that the target does not get."""
    given = {"stored_as_scd_type": 2, "select": ["id", "amount * 2 AS doubled"]}
    rules = {"positive": {"check": "doubled >= 0", "on_break": "quarantine"}}
    feed.run(rules, **given)
    feed.sql("UPDATE {} SET amount = -5 WHERE id = 1")
    assert feed.run(rules, **given)["quarantined"] == 1
    assert feed.aside() == [("rule positive", "1", -5)]
    assert "quarantined" not in feed.run(rules, **given, mode="reload")
    assert feed.aside() == [("rule positive", "1", -5)]


@pytest.mark.slow
def test_inserts_alone(feed: Orders) -> None:
    given = {"keys": None, "insert_only": True}
    feed.sql("INSERT INTO {} VALUES (3, -1, 'a')")
    assert feed.run(FLAG, **given)[COUNT] == 1
    feed.sql("INSERT INTO {} VALUES (4, -1, 'a'), (5, 1, 'a')")
    with pytest.raises(RuleBroken, match=r"1 row\(s\)"):
        feed.run({"amount_positive": "amount >= 0"}, **given)
    assert feed.run(FLAG, **given)[COUNT] == 1
    assert [key for key, _ in feed.rows()] == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_a_check_reads_the_columns_of_the_target(feed: Orders) -> None:
    select = ["id", "amount * 2 AS doubled"]
    with pytest.raises(InvalidExpression, match="rules amount_positive"):
        feed.run(QUARANTINE, select=select)
    with pytest.raises(InvalidExpression, match="not true or false"):
        feed.run({"amount": "doubled"}, select=select)
    feed.run({"small": {"check": "doubled < 30", "on_break": "quarantine"}}, select=select)
    assert feed.rows("id", "doubled") == [(1, 20)]


# -- events ---------------------------------------------------------------------------------------
@pytest.fixture
def log(spark: SparkSession, tmp_path: Path) -> Orders:
    """Events of two keys."""
    options = {
        "source_kind": "change_log",
        "sequence_by": "n",
        "apply_as_deletes": "op = 'D'",
        "except_column_list": ["op", "n"],
    }
    orders = Orders(spark, tmp_path, options)
    orders.sql(
        "CREATE TABLE {} (id INT, amount INT, op STRING, n INT) USING delta",
        "INSERT INTO {} VALUES (1, 10, 'U', 1), (2, 20, 'U', 1), (3, -30, 'U', 1)",
    )
    return orders


@pytest.mark.slow
def test_events(log: Orders) -> None:
    counts = log.run(QUARANTINE)
    assert counts["quarantined"] == counts[COUNT] == 1
    log.sql("INSERT INTO {} VALUES (1, -11, 'U', 5), (2, -1, 'D', 5), (3, 31, 'U', 5)")
    log.run(QUARANTINE)
    assert log.rows() == [(1, 10), (3, 31)]
    # A late event: all events of its key are read, and those in quarantine stay there, once.
    log.sql("INSERT INTO {} VALUES (3, 30, 'U', 3), (3, -33, 'U', 2)")
    log.run(QUARANTINE)
    assert log.rows() == [(1, 10), (3, 31)]
    assert [amount for *_, amount in log.aside()] == [-11, -33, -30]
    with pytest.raises(RuleBroken, match="amount >= -20 is not true"):
        log.run({"amount_positive": "amount >= -20"}, mode="repair", repair={"quarantined": True})
    changed = {"amount_positive": {"check": "amount >= -11", "on_break": "quarantine"}}
    log.run(changed, mode="repair", repair={"quarantined": True})
    assert log.rows() == [(1, -11), (3, 31)]
    assert [amount for *_, amount in log.aside()] == [-33, -30]
    log.expect_healthy()


@pytest.mark.slow
def test_a_rule_that_is_newer_than_an_event(log: Orders) -> None:
    """An event that was applied leaves the target only for the quarantine."""
    log.run()
    assert log.rows() == [(1, 10), (2, 20), (3, -30)]
    log.sql("INSERT INTO {} VALUES (3, 5, 'U', 0)")
    with pytest.raises(RuleBroken, match="id = 3"):
        log.run({"amount_positive": "amount >= 0"})
    log.run(QUARANTINE)
    assert log.rows() == [(1, 10), (2, 20), (3, 5)]
    assert log.aside() == [("rule amount_positive", "3", -30)]
    assert "quarantined" not in log.run(QUARANTINE, mode="reload")


@pytest.mark.slow
def test_history_of_events(log: Orders) -> None:
    given = {"stored_as_scd_type": 2}
    log.run(QUARANTINE, **given)
    log.sql(
        "INSERT INTO {} VALUES (1, -11, 'U', 5), (3, 31, 'U', 5)", "INSERT INTO {} VALUES (1, 12, 'U', 6)"
    )
    log.run(QUARANTINE, **given)
    expected = [(1, 10, 1, 6), (1, 12, 6, None), (2, 20, 1, None), (3, 31, 5, None)]
    assert log.history() == expected
    log.expect_healthy()
    for mode in ("reload", "reset"):
        log.run(QUARANTINE, **given, mode=mode, discard_history=mode == "reset")
        assert log.history() == expected
        assert [amount for *_, amount in log.aside()] == [-11, -30]
    log.run(FLAG, **given, mode="repair", repair={"quarantined": True})
    assert log.history() == [
        (1, -11, 5, 6), (1, 10, 1, 5), (1, 12, 6, None), (2, 20, 1, None), (3, -30, 1, 5), (3, 31, 5, None)
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("scd_type", slow_but([1, 2], 1))
def test_a_key_in_quarantine_is_not_absent_from_its_snapshot(
    spark: SparkSession, tmp_path: Path, scd_type: int
) -> None:
    options = {"source_kind": "snapshot", "snapshot_version_column": "day", "except_column_list": ["day"]}
    orders = Orders(spark, tmp_path, {**options, "stored_as_scd_type": scd_type})
    orders.sql(
        "CREATE TABLE {} (id INT, amount INT, day INT) USING delta",
        "INSERT INTO {} VALUES (1, 10, 1), (2, 20, 1), (3, -3, 1)",
    )
    orders.run(QUARANTINE)
    orders.sql("INSERT INTO {} VALUES (1, -1, 2), (2, 20, 2), (3, -3, 2)")
    orders.run(QUARANTINE)
    assert orders.rows() == [(1, 10), (2, 20)]
    orders.sql("INSERT INTO {} VALUES (2, 21, 3)")
    orders.run(QUARANTINE)
    current = [(2, 21)]
    history = [(1, 10, 1, 3), (2, 20, 1, 3), (2, 21, 3, None)]
    assert (orders.rows() if scd_type == 1 else orders.history()) == (current if scd_type == 1 else history)
    orders.expect_healthy()
    orders.run(QUARANTINE, mode="reload")
    assert (orders.rows() if scd_type == 1 else orders.history()) == (current if scd_type == 1 else history)


@pytest.mark.slow
def test_full_copies(spark: SparkSession, tmp_path: Path) -> None:
    orders = Orders(spark, tmp_path, {"source_kind": "snapshot"})
    orders.sql(
        "CREATE TABLE {} (id INT, amount INT) USING delta",
        "INSERT INTO {} VALUES (1, 10), (2, 20)",
    )
    orders.run(QUARANTINE)
    orders.sql("INSERT OVERWRITE {} VALUES (1, -1), (2, 21)")
    assert orders.run(QUARANTINE)["quarantined"] == 1
    orders.sql("INSERT OVERWRITE {} VALUES (1, -1), (2, 22)")
    assert "quarantined" not in orders.run(QUARANTINE)
    assert orders.rows() == [(1, 10), (2, 22)]
    orders.expect_healthy()


@pytest.mark.slow
@pytest.mark.parametrize("source_kind", slow_but(["change_feed", "change_log", "snapshot"], "change_feed"))
def test_soft_deletes(spark: SparkSession, tmp_path: Path, source_kind: str) -> None:
    """A soft-deleted row breaks no rule; what comes again for its key is tested, and does not revive it."""
    of_events = {"sequence_by": "n", "apply_as_deletes": "op = 'D'", "except_column_list": ["op", "n"]}
    options = {"source_kind": source_kind, **(of_events if source_kind == "change_log" else {})}
    orders = Orders(spark, tmp_path, {**options, "delete_mode": "soft"})
    columns = "id INT, amount INT" if source_kind == "snapshot" else "id INT, amount INT, op STRING, n INT"
    orders.sql(f"CREATE TABLE {{}} ({columns}) USING delta {FEED}")

    def state(*rows: tuple[int, int], at: int, deleted: int | None = None) -> None:
        """Let the source have these rows, and no longer the key that is deleted."""
        shown = ", ".join(f"({key}, {amount}, 'U', {at})" for key, amount in rows)
        if source_kind == "snapshot":
            orders.sql(
                "INSERT OVERWRITE {} SELECT id, amount FROM VALUES " + shown + " AS t(id, amount, op, n)"
            )
        elif source_kind == "change_log":
            gone = f", ({deleted}, -99, 'D', {at})" if deleted else ""
            orders.sql("INSERT INTO {} VALUES " + shown + gone)
        else:
            orders.sql(
                "MERGE INTO {} t USING (SELECT * FROM VALUES "
                + shown
                + " AS s(id, amount, op, n)) s ON t.id = s.id WHEN MATCHED AND t.amount <> s.amount "
                "THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE"
            )

    state((1, 10), (2, 20), at=1)
    orders.run(QUARANTINE)
    state((2, 20), at=2, deleted=1)
    assert "quarantined" not in orders.run(QUARANTINE)
    shown = ("id", "amount", "_deleted")
    # The row of a delete event, whose values no rule tests, leaves the older ones.
    assert orders.rows(*shown) == [(1, 10, True), (2, 20, False)]
    state((1, -1), (2, -2), at=3)
    counts = orders.run(QUARANTINE)
    assert counts["quarantined"] == counts[COUNT] == 2
    assert orders.rows(*shown) == [(1, 10, True), (2, 20, False)]
    assert [aside[1:] for aside in orders.aside()] == [("1", -1), ("2", -2)]
    orders.expect_healthy()
    state((1, 11), (2, 22), at=4)
    orders.run(QUARANTINE)
    assert orders.rows(*shown) == [(1, 11, False), (2, 22, False)]


@pytest.mark.slow
@pytest.mark.parametrize("scd_type", [1, 2])
def test_a_staged_batch_is_tested_as_its_source(spark: SparkSession, tmp_path: Path, scd_type: int) -> None:
    source, staging = str(tmp_path / "source"), str(tmp_path / "staging")
    spark.sql(f"CREATE TABLE delta.`{source}` (id INT, amount INT) USING delta {FEED}")
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (1, 10), (2, -20), (3, 30)")
    spark.sql(f"UPDATE delta.`{source}` SET amount = -11 WHERE id = 1")
    spark.sql(f"UPDATE delta.`{source}` SET amount = 31 WHERE id = 3")
    spark.sql(f"DELETE FROM delta.`{source}` WHERE id = 2")
    rules = {**value_rules("rules", QUARANTINE), **value_rules("rules", {"few": "amount < 1000"})}
    options = ApplyOptions(keys=("id",), stored_as_scd_type=scd_type, rules=rules)
    flow = Quarantining(spark, source, str(tmp_path / "target"), options)
    assert flow.stage(staging, 0, 1, "snapshot").status == "committed"
    result = flow.load(1, staging=staged(staging, "snapshot"))
    assert result.status == "committed", result
    loaded = newest_seal(flow.target)
    assert loaded is not None
    assert loaded.step.counts[COUNT] == loaded.step.counts["quarantined"] == 1
    assert flow.stage(staging, 2, 4).status == "committed"
    assert flow.apply(4, staging=staged(staging)).status == "committed"
    applied = newest_seal(flow.target)
    assert applied is not None
    assert applied.step.counts[COUNT] == applied.step.counts["quarantined"] == 1
    history = "__START_AT" if scd_type == 2 else "id"
    current = [(row["id"], row["amount"]) for row in flow.rows() if row[history] is not None]
    assert sorted(current) == ([(1, 10), (3, 31)] if scd_type == 1 else [(1, 10), (3, 30), (3, 31)])
    spark.sql(f"UPDATE delta.`{source}` SET amount = 5000 WHERE id = 3")
    assert flow.stage(staging, 5, 5).status == "committed"
    refused = flow.apply(5, staging=staged(staging))
    assert refused.status == "failed"
    assert refused.error is not None
    assert refused.error["class"] == "RuleBroken"
    assert "break the rule few: amount < 1000 is not true (for instance id = 3)" in refused.error["message"]
