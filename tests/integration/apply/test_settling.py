"""A row that a step takes out of the quarantine is in one of the two tables, whatever dies between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import explain_row
from tests.integration.apply.test_set_aside import LOOSER, REPLAY, Orders, feed_of, log_of
from tests.integration.apply.test_value_rules import QUARANTINE
from tests.support.engine import newest, table_rows
from tests.support.holding import hooked, once

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


class Killed(BaseException):
    """What a job dies of in these tests: nothing of the engine catches it."""


def dies(orders: Orders, point: str, **run: Any) -> None:
    def die() -> None:
        raise Killed

    with hooked(once(point, die)), pytest.raises(Killed):
        orders.run(LOOSER, **run)


def reasons(orders: Orders, key: int) -> list[str]:
    """Return why an event of a key is not in the target, if it is in quarantine."""
    answer = explain_row(orders.spark, orders.target, pipeline="orders", key={"id": key})
    return [one.why for one in answer.not_taken if "quarantine" in one.why]


def marks(orders: Orders) -> list[int]:
    return [len(row["settled_by"]) for row in table_rows(orders.spark, f"{orders.target}__quarantine")]


@pytest.mark.slow
def test_a_repair_that_dies_after_its_commit(spark: SparkSession, tmp_path: Path) -> None:
    feed = feed_of(spark, tmp_path)
    feed.run(QUARANTINE)
    feed.sql("UPDATE {} SET amount = -5 WHERE id = 1")
    feed.run(QUARANTINE)
    held = [("rule amount_positive", "1", -5)]
    repair: dict[str, Any] = {"mode": "repair", "repair": {"keys": "id < 3"}}
    # A try that never commits marks the row, too, which stays in quarantine.
    dies(feed, "before_commit", **repair)
    assert reasons(feed, 1) == ["it is in quarantine (rule amount_positive)"]
    dies(feed, "committed", **repair)
    assert (feed.rows(), feed.aside(), marks(feed)) == ([(1, -5), (2, 20)], held, [2])
    assert reasons(feed, 1) == []
    # The next run dies, too, at any point.
    feed.sql("INSERT INTO {} VALUES (3, 30)")
    dies(feed, "planned")
    assert feed.aside() == held
    dies(feed, "before_commit")
    assert (feed.rows(), feed.aside()) == ([(1, -5), (2, 20)], [])
    feed.run(LOOSER)
    assert (feed.rows(), feed.aside()) == ([(1, -5), (2, 20), (3, 30)], [])


@pytest.mark.slow
def test_a_late_event_whose_run_dies_after_its_commit(spark: SparkSession, tmp_path: Path) -> None:
    """The run after it sets the same row aside again: the row that the quarantine had does not count."""
    log = log_of(spark, tmp_path, "(1, 10, 'U', 2), (2, 20, 'U', 2)")
    log.run(QUARANTINE)
    log.sql("INSERT INTO {} VALUES (1, -5, 'U', 3), (2, 21, 'U', 3)")
    log.run(QUARANTINE)
    held = [("rule amount_positive", "1", -5)]
    assert log.aside() == held
    log.sql("INSERT INTO {} VALUES (1, 7, 'U', 1)")
    dies(log, "committed")
    assert (log.rows(), log.aside()) == ([(1, -5), (2, 21)], held)
    log.run(QUARANTINE, mode="reload")
    assert (log.rows(), log.aside()) == ([(1, 10), (2, 21)], held)


@pytest.mark.slow
def test_a_replay_that_dies_after_its_commit(spark: SparkSession, tmp_path: Path) -> None:
    """A RESTORE of the target gives the row back to the quarantine, and a reset takes it again."""
    feed = feed_of(spark, tmp_path)
    feed.run(QUARANTINE)
    feed.sql("UPDATE {} SET amount = -5 WHERE id = 1")
    feed.run(QUARANTINE)
    before = newest(feed.target)
    dies(feed, "committed", **REPLAY)
    assert (feed.rows(), marks(feed)) == ([(1, -5), (2, 20)], [1])
    spark.sql(f"RESTORE TABLE delta.`{feed.target}` TO VERSION AS OF {before}")
    assert reasons(feed, 1) == ["it is in quarantine (rule amount_positive)"]
    dies(feed, "committed", **REPLAY)
    assert (feed.rows(), marks(feed)) == ([(1, -5), (2, 20)], [2])
    # The source has another row now, so that a reset does not load the one in quarantine.
    feed.sql("UPDATE {} SET amount = 11 WHERE id = 1")
    feed.run(LOOSER, mode="reset")
    assert (feed.rows(), feed.aside()) == ([(1, 11), (2, 20)], [])
