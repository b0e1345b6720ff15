"""Defects that were planted: each is found, by its name, with its key, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delta_cdc.cli import main
from tests.integration.verify.targets import FEED, LOG, Targets, do, findings, put

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


@pytest.fixture
def made(spark: SparkSession, tmp_table: Callable[[str], str]) -> Targets:
    """Targets of a feed, of a log and of inserts, declared; a test fills those that it needs."""
    feed, log = tmp_table("feed"), tmp_table("log")
    do(
        spark,
        f"CREATE TABLE delta.`{feed}` (k INT, v STRING) USING delta {FEED}",
        f"INSERT INTO delta.`{feed}` VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e'), (6, 'f')",
    )
    put(spark, log, *[(k, "a", k, "I", 10) for k in range(1, 7)], *[(k, "b", k, "U", 20) for k in (1, 2, 3)],
        (6, None, None, "D", 30), (7, "a", 7, "U", 40), (7, None, None, "D", 40))  # fmt: skip
    made = Targets(spark, tmp_table)
    made.add("current", feed, keys=["k"])
    made.add("history", feed, keys=["k"], stored_as_scd_type=2)
    made.add("log_history", log, stored_as_scd_type=2, **LOG)
    made.add("log_soft", log, delete_mode="soft", **LOG)
    made.add("inserts", feed, insert_only=True)
    return made


def test_every_planted_defect_is_found(spark: SparkSession, made: Targets) -> None:
    names = ("current", "history", "inserts")
    made.run(*names)
    at = {name: f"delta.`{made.target(name)}`" for name in names}
    do(
        spark,
        f"INSERT INTO {at['current']} VALUES (1, 'a'), (NULL, 'x'), (NULL, 'y'), (99, 'surplus')",
        f"DELETE FROM {at['current']} WHERE k = 2",
        f"UPDATE {at['current']} SET v = 'by hand' WHERE k = 3",
        # Two open rows; an overlap with the open row, and one of closed rows; no width, and no start.
        f"INSERT INTO {at['history']} VALUES (4, 'd', 5, NULL), (5, 'x', 0, 3), (6, 'x', -9, -3), "
        "(6, 'x', -5, -1), (1, 'x', 0, 0), (3, 'x', NULL, -1), (99, 'other', 1, NULL), (NULL, 'x', 1, NULL)",
        f"DELETE FROM {at['history']} WHERE k = 2",
        f"UPDATE {at['history']} SET v = 'by another hand' WHERE k = 3 AND `__START_AT` = 1",
        f"DELETE FROM {at['inserts']} WHERE k = 1",
        f"INSERT INTO {at['inserts']} VALUES (2, 'b')",
    )
    found = made.checks(*names, history={"current": made.target("current")})
    assert findings(found["current"]) == {
        "null_keys": (2, {"k = NULL"}),
        "unique_keys": (1, {"k = 1"}),
        "equals_source": (3, {"missing: k = 2", "surplus: k = 99", "changed: k = 3"}),
    }
    assert findings(found["history"]) == {
        "null_keys": (1, {"k = NULL"}),
        "one_open_row": (1, {"k = 4"}),
        "overlaps": (2, {"k = 5", "k = 6"}),
        "start_before_end": (2, {"k = 1", "k = 3"}),
        "equals_source": (3, {"missing: k = 2", "surplus: k = 99", "changed: k = 3"}),
        "current_equals_history": (2, {"changed: k = 3", "changed: k = 99"}),
    }
    ((count, samples),) = findings(found["inserts"]).values()
    assert (count, samples) == (2, {"missing: k = 1, v = a", "surplus: k = 2, v = b"})
    alone = made.checks("history", history={"wanted": ("overlaps",)})["history"]
    assert list(alone) == ["overlaps"]
    assert alone["overlaps"].count == 2


@pytest.mark.slow
def test_every_planted_defect_in_targets_of_a_log_is_found(spark: SparkSession, made: Targets) -> None:
    names = ("log_history", "log_soft")
    made.run(*names)
    at = {name: f"delta.`{made.target(name)}`" for name in names}
    do(
        spark,
        f"DELETE FROM {at['log_history']} WHERE k = 1 AND `__END_AT` = 20",
        f"UPDATE {at['log_history']} SET v = 'by hand' WHERE k = 2 AND `__END_AT` = 20",
        f"INSERT INTO {at['log_history']} VALUES (4, 'a', 4, 5, 8)",
        f"UPDATE {at['log_soft']} SET _deleted = k <> 6 WHERE k IN (1, 6)",
        # Its only upsert lost against the delete of its sequence.
        f"INSERT INTO {at['log_soft']} VALUES (7, 'a', 7, true)",
    )
    found = made.checks(*names)
    assert findings(found["log_history"]) == {
        "equals_source": (
            3,
            {
                "missing: k = 1, __START_AT = 10",
                "changed: k = 2, __START_AT = 10",
                "surplus: k = 4, __START_AT = 5",
            },
        )
    }
    assert findings(found["log_soft"]) == {
        "equals_source": (3, {"missing: k = 1", "surplus: k = 6", "surplus: k = 7"})
    }


@pytest.mark.slow
def test_the_remedies_put_it_right(
    spark: SparkSession, made: Targets, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("log_history", "log_soft", "history")
    pair = f"history={made.target('history')}"
    made.run(*names)
    do(
        spark,
        f"INSERT INTO delta.`{made.target('log_history')}` VALUES (4, 'a', 4, 5, 18), (4, 'a', 4, 30, NULL)",
        f"UPDATE delta.`{made.target('log_soft')}` SET _deleted = k <> 6 WHERE k IN (1, 6)",
        f"INSERT INTO delta.`{made.target('history')}` VALUES (4, 'd', 5, NULL)",
    )
    assert [set(findings(checks)) for checks in made.checks(*names).values()] == [
        {"one_open_row", "overlaps", "equals_source"},
        {"equals_source"},
        {"one_open_row"},
    ]
    assert main(["verify", pair, "--checks", "one_open_row,overlaps"]) == 1
    said = capsys.readouterr().out
    assert "1 WRONG" in said
    assert "history, one_open_row: 1 key(s) have more than one open row. (k = 4) Remedy: RESTORE" in said
    made.run("log_history", mode="repair", repair_keys="k = 4")
    made.run("log_soft", mode="reload")
    do(spark, f"RESTORE TABLE delta.`{made.target('history')}` TO VERSION AS OF 1")
    assert [findings(checks) for checks in made.checks(*names).values()] == [{}, {}, {}]
    assert main(["verify", pair]) == 0


@pytest.mark.slow
def test_a_writer_at_the_same_moment_is_not_seen(spark: SparkSession, made: Targets) -> None:
    made.run("history")
    history = made.target("history")

    def write() -> None:
        do(spark, f"UPDATE delta.`{history}` SET v = 'later' WHERE k = 1")

    made.meanwhile = write
    assert findings(made.checks("history")["history"]) == {}
    # So fast a writer that the version is gone when its rows are to be read: all is looked at anew.
    do(
        spark,
        f"RESTORE TABLE delta.`{history}` TO VERSION AS OF 1",
        f"ALTER TABLE delta.`{history}` SET TBLPROPERTIES "
        "('delta.deletedFileRetentionDuration' = 'interval 0 seconds')",
    )
    times = iter([write, lambda: None])
    made.meanwhile = lambda: next(times)()
    assert findings(made.checks("history")["history"]) == {"equals_source": (1, {"changed: k = 1"})}


@pytest.mark.slow
def test_what_cannot_be_compared_is_skipped_and_the_rest_is_not(spark: SparkSession, made: Targets) -> None:
    made.run("current", "inserts", "log_soft")
    do(spark, f"INSERT INTO delta.`{made.target('current')}` VALUES (1, 'a')")
    feed = Path(made.made["current"][0])
    do(spark, f"DELETE FROM delta.`{feed}` WHERE k = 6")
    for file in feed.glob("*.parquet"):
        # As VACUUM would do it, some weeks later.
        file.unlink()
    put(spark, made.made["log_soft"][0], (1, "c", 1, "U", 10))
    found = made.checks("current", "inserts", "log_soft")
    assert findings(found["current"]) == {"unique_keys": (1, {"k = 1"})}
    for name in ("current", "inserts"):
        check = found[name]["equals_source"]
        assert (check.status, "VersionsExpired" in check.detail) == ("skipped", True)
    # An event of a tie is in the log, and not applied yet.
    assert found["log_soft"]["equals_source"].status == "ok"
    made.run("log_soft", on_conflict={"last_by": ["v"]})
    tied = made.checks("log_soft")["log_soft"]["equals_source"]
    assert (tied.status, "ConflictingEvents" in tied.detail) == ("skipped", True)
    # Key 7 has an upsert and a delete at one sequence, and was applied before last_by decided between them.
    checks = made.checks("log_soft", log_soft={"on_conflict": ("v",)})["log_soft"]
    assert findings(checks) == {"equals_source": (1, {"missing: k = 7"})}
    made.run("log_soft", on_conflict={"last_by": ["v"]}, mode="reload")
    checks = made.checks("log_soft", log_soft={"on_conflict": ("v",)})["log_soft"]
    assert checks["equals_source"].status == "ok"
