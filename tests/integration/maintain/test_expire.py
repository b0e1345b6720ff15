"""Expiry of change logs: it changes no row of any target, whatever comes at or after the horizon."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes, expire_events, job
from delta_cdc.core import failpoints, validation
from delta_cdc.core.errors import (
    ConsumerUnreadable,
    InvalidConfiguration,
    TooLate,
    VersionsExpired,
)
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.spec import ExpireSpec
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.consumers import Consumer
from delta_cdc.planning.expiry import plan_expiry
from delta_cdc.spark.maintain import expire
from tests.support.drawn_applies import drawn_log
from tests.support.engine import metadata, newest, newest_seal
from tests.support.event_flow import LogFlow, expired
from tests.support.event_streams import (
    FLAVOURS,
    SPAN,
    TIED,
    TRUNCATED,
    Flavour,
    append,
    create_log,
    delivered_late,
    drawn_world,
)
from tests.support.logs import changed, seal
from tests.support.random_logs import seeds
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    Table = Callable[[str], str]

HORIZON, EXPIRED = "delta_cdc.latenessHorizon", "delta_cdc.expiredBelow"
TRACKED = "TBLPROPERTIES ('delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = 'true')"


# -- the law --------------------------------------------------------------------------------------
def check(
    spark: SparkSession, tmp_table: Table, flavour: Flavour, seed: int, count: int, targets: int
) -> None:
    """Apply a log to several targets while it is expired, and compare every history with the model."""
    draw = random.Random(f"{seed} {flavour.name} targets")
    configurations = [drawn_log(draw, flavour, by_number=True) for _ in range(targets)]
    tracked = flavour is TRUNCATED or seed % 2 == 0
    world = drawn_world(seed, flavour, range(count))
    log = tmp_table("log")
    create_log(spark, log)
    if tracked:
        spark.sql(f"ALTER TABLE delta.`{log}` SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    flows = [
        LogFlow(spark, log, tmp_table(f"target {at}"), one.arguments, pipeline=f"p{at}")
        for at, one in enumerate(configurations)
    ]
    deleted = 0
    batches = delivered_late(world)
    for number, batch in enumerate(batches):
        append(spark, log, [posted.row(history) for history, posted in batch])
        if number % 2 == 0 and number + 1 < len(batches):
            continue
        for flow in flows:
            flow.apply()
        # What comes later is of the window before at the earliest.
        deleted += expired(flows, min(max(0, number - 1) * SPAN, world.windows * SPAN - 1))
    assert deleted > count / 2, "hardly anything was deleted, so little is shown"
    for flow, one in zip(flows, configurations, strict=True):
        found: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in flow.rows():
            found[row["history"]].append(row)
        for history in world.histories:
            events = world.events(history, one.sequence)
            drawn = (one.arguments, seed, history, world.histories[history])
            assert not one.differs(found[history], events), drawn


@pytest.mark.slow
@pytest.mark.parametrize("flavour", [TRUNCATED, TIED], ids=lambda flavour: flavour.name)
def test_an_expired_log_gives_the_rows_of_the_whole_one(
    spark: SparkSession, tmp_table: Table, flavour: Flavour
) -> None:
    for seed in seeds(1, first=3):
        check(spark, tmp_table, flavour, seed, 150, 2)


@pytest.mark.slow
@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda flavour: flavour.name)
@pytest.mark.parametrize("seed", seeds(2))
def test_an_expired_log_over_many_histories(
    spark: SparkSession, tmp_table: Table, flavour: Flavour, seed: int
) -> None:
    check(spark, tmp_table, flavour, seed, 800, 4)


# -- which events stay ------------------------------------------------------------------------------
EVENT = "k int, a string, b string, op string, s long"
PUT: list[tuple[Any, ...]] = [
    *[(1, "x", "x", "U", 1), (1, None, None, "D", 2), (1, "x", "x", "U", 4)],
    *[(1, "y", None, "U", 6), (1, None, "y", "U", 8), (1, "z", None, "U", 12)],
    *[(2, "x", "x", "U", 3), (2, None, None, "D", 5)],
    # Two that differ: what becomes of them is not told by the log.
    *[(3, "x", "x", "U", 2), (3, "y", None, "U", 3), (3, "z", None, "U", 3)],
    *[(4, "x", "x", "U", 6), (4, "y", None, "U", 9), (4, "x", "x", "U", 10)],
    *[(5, "x", "x", "U", 4), (5, "test", None, "U", 8)],
    *[(6, "x", None, "U", 1), (6, "x", None, "U", 1), (6, None, "x", "U", 2), (6, None, "x", "U", 2)],
    # One of two is what a deleted row keeps.
    *[(8, "y", None, "U", 3), (8, "z", None, "U", 3), (8, None, None, "D", 5)],
    *[(None, "no key", None, "U", 1), (7, "no sequence", None, "U", None)],
    *[(None, None, None, "T", 3), (None, None, None, "T", 7)],
]
BASE = ApplyOptions(
    keys=("k",),
    source_kind="change_log",
    sequence_by="s",
    apply_as_deletes="op = 'D'",
    except_column_list=("op", "s"),
)


def options(**more: Any) -> ApplyOptions:
    return replace(BASE, **more)


PARTIAL = {"ignore_null_updates": True}
SOFT = {"delete_mode": "soft"}
CUT = {"apply_as_truncates": "op = 'T'"}
#: How the log is read -> key -> sequences that stay; of the keys that are not named all do.
STAYS: list[tuple[list[ApplyOptions], dict[int | None, list[int]]]] = [
    ([options()], {1: [8, 12], 2: [5], 4: [9, 10], 5: [8], 6: [2, 2], 8: [5]}),
    ([options(stored_as_scd_type=2)], {1: [8, 12], 2: [5], 4: [9, 10], 5: [8], 6: [2, 2], 8: [5]}),
    ([options(**SOFT)], {1: [8, 12], 2: [3, 5], 4: [9, 10], 5: [8], 6: [2, 2]}),
    ([options(**PARTIAL)], {1: [2, 6, 8, 12], 2: [5], 5: [4, 8], 8: [5]}),
    ([options(**PARTIAL, **SOFT)], {1: [2, 6, 8, 12], 2: [3, 5], 5: [4, 8]}),
    (
        [options(**PARTIAL, **CUT)],
        {1: [2, 8, 12], 2: [5], 4: [9, 10], 5: [8], None: [1, 7], 6: [1, 1, 2, 2], 8: [5]},
    ),
    (
        [options(where="a IS NULL OR a <> 'test'")],
        {1: [8, 12], 2: [5], 4: [9, 10], 5: [4], 6: [2, 2], 8: [5]},
    ),
    ([options(), options(**PARTIAL)], {1: [2, 6, 8, 12], 2: [5], 5: [4, 8], 8: [5]}),
]


@pytest.mark.parametrize("every", slow_but([1, 3], 3))
def test_which_events_stay(spark: SparkSession, tmp_table: Table, every: int) -> None:
    from pyspark.sql import functions as F

    log = tmp_table("log")
    spark.createDataFrame(PUT, EVENT).coalesce(1).write.format("delta").save(log)
    rows = spark.read.format("delta").load(log)
    named = rows.select("k", "s", expire._text(F.struct(*rows.columns)).alias(expire.ROW))
    for read, stays in STAYS[1::every] if every > 1 else STAYS:
        readers = tuple(changed(seal(1, 0), configuration=validation.described(one)) for one in read)
        spec = ExpireSpec(
            run_id="r", table_uri=log, table_id=metadata(log)["id"], readers=readers, below="10", since=0
        )
        gone = expire.expired(spark, spec, "10", is_tracked=False)
        found: dict[Any, list[Any]] = defaultdict(list)
        for k, s in named.join(gone, expire.ROW, "left_anti").select("k", "s").collect():
            found[k].append(s)
        whole: dict[Any, list[Any]] = defaultdict(list)
        for k, *_, s in PUT:
            whole[k].append(s)
        expected = {k: sorted(stays.get(k, s), key=str) for k, s in whole.items()}
        assert {k: sorted(s, key=str) for k, s in found.items()} == expected, readers


# -- one log, step by step ----------------------------------------------------------------------------
LOG: dict[str, Any] = {
    "source_kind": "change_log",
    "keys": ["k"],
    "sequence_by": "s",
    "apply_as_deletes": "op = 'D'",
    "except_column_list": ["op", "s"],
    "stored_as_scd_type": 2,
}


def put(spark: SparkSession, log: str, *rows: tuple[Any, ...]) -> None:
    made = spark.createDataFrame([(k, v, None, op, s) for k, v, op, s in rows], EVENT).coalesce(1)
    made.write.format("delta").mode("append").save(log)


def held(spark: SparkSession, table: str) -> list[tuple[Any, ...]]:
    rows = spark.read.format("delta").load(table).select("k", "a", "__START_AT", "__END_AT").collect()
    return sorted(map(tuple, rows), key=str)


def sequences(spark: SparkSession, log: str) -> list[int]:
    return sorted(row["s"] for row in spark.read.format("delta").load(log).collect())


def properties(log: str) -> dict[str, str]:
    found: dict[str, str] = metadata(log)["configuration"]
    return {name: found[name] for name in (HORIZON, EXPIRED) if name in found}


class Died(Exception):
    """The driver is gone."""


def dying(at: str) -> Callable[[], None]:
    def hook(point: str) -> None:
        if point == at:
            raise Died(at)

    return failpoints.install(hook)


class Consumed:
    """A log, and two targets that are made from it."""

    def __init__(self, spark: SparkSession, table: Table) -> None:
        self._spark = spark
        self.log, self.target, self.other = table("log"), table("target"), table("other")
        self.consumers = [Consumer("p", None, self.target), Consumer("q", self.log, self.other)]
        spark.sql(f"CREATE TABLE delta.`{self.log}` ({EVENT}) USING delta {TRACKED}")
        put(spark, self.log, (1, "a", "U", 10), (1, "b", "U", 20), (1, "c", "U", 40), (2, "a", "U", 10))

    def apply(self, pipeline: str = "p", **more: Any) -> None:
        target = self.target if pipeline == "p" else self.other
        apply_changes(self._spark, self.log, target, pipeline=pipeline, **{**LOG, **more})

    def expire(self, below: str | None = None, **more: Any) -> dict[str, Any]:
        return expire_events(self._spark, self.log, consumers=self.consumers, horizon=below, **more)


@pytest.mark.slow
def test_waits_dies_races_and_goes_on(spark: SparkSession, tmp_table: Table) -> None:
    """The driver dies between the two commits of an expiry."""
    flow = Consumed(spark, tmp_table)
    none = flow.expire("30")
    assert (none["status"], none["note"]) == ("nothing", "waits until p, q has run once")
    flow.apply()
    assert flow.expire("30")["note"] == "waits until q has run once"
    flow.apply("q")
    with pytest.raises(InvalidConfiguration, match=r"'x' of .* is no bigint"):
        flow.expire("x")
    with pytest.raises(InvalidConfiguration, match="lies above 40"):
        flow.expire("41")
    with pytest.raises(InvalidConfiguration, match="bigint, which is not a time"):
        flow.expire(keep="interval 1 day")
    with pytest.raises(InvalidConfiguration, match="No consumer"):
        expire_events(spark, flow.log, consumers=[], horizon="30")
    assert properties(flow.log) == {}
    assert flow.expire("30", dry_run=True)["horizon"] == "30"
    assert properties(flow.log) == {}
    assert flow.expire("30")["horizon"] == "30"
    assert properties(flow.log) == {HORIZON: "30"}
    assert len(sequences(spark, flow.log)) == 4, "nothing is deleted behind a horizon that was only just set"

    # An event before the horizon was set would hold it up; this one came after.
    put(spark, flow.log, (1, "d", "U", 50))
    counted = flow.expire(dry_run=True)
    assert counted["deleted"] == 1
    stale = run_sync(
        plan_expiry(ExpireSpec(run_id="r", table_uri=flow.log, horizon="35"), flow.consumers)
    ).spec
    remove = dying("expired")
    try:
        with pytest.raises(Exception, match="expired"):
            flow.expire("40")
    finally:
        remove()
    assert sequences(spark, flow.log) == [10, 20, 40, 50]
    assert properties(flow.log) == {HORIZON: "30"}
    again = flow.expire("40")
    assert (again["deleted"], again["horizon"]) == (0, "40")
    assert properties(flow.log) == {HORIZON: "40", EXPIRED: "30"}
    # A run that was planned at the same moment: it deletes nothing more, and lowers nothing.
    assert stale is not None
    assert job.run(spark, stale).status == "committed"
    assert properties(flow.log) == {HORIZON: "40", EXPIRED: "30"}
    assert sequences(spark, flow.log) == [10, 20, 40, 50]


@pytest.mark.slow
def test_what_comes_too_late(spark: SparkSession, tmp_table: Table) -> None:
    """One of two consumers lags."""
    flow = Consumed(spark, tmp_table)
    for pipeline in ("p", "q"):
        flow.apply(pipeline)
    flow.expire("30")
    set_in = newest(flow.log)
    put(spark, flow.log, (1, "d", "U", 50))
    assert flow.expire("40")["deleted"] == 1
    assert properties(flow.log) == {HORIZON: "40", EXPIRED: "30"}
    waiting = flow.expire("45")
    assert waiting["status"] == "nothing"
    assert "waits until p (watermark" in waiting["note"]
    assert properties(flow.log) == {HORIZON: "40", EXPIRED: "30"}
    flow.apply()
    assert "waits until q (watermark" in flow.expire()["note"]
    # Late, and before the horizon that q has not got yet: lawful for nobody any more.
    put(spark, flow.log, (2, "late", "U", 39))
    with pytest.raises(TooLate):
        flow.apply()
    flow.apply(policies={"on_late": "discard"})
    flow.apply("q", policies={"on_late": "discard"})
    expected = [(1, "a", 10, 20), (1, "b", 20, 40), (1, "c", 40, 50), (1, "d", 50, None), (2, "a", 10, None)]
    assert held(spark, flow.target) == held(spark, flow.other) == expected
    assert flow.expire()["deleted"] == 0, (
        "the one of key 2 that was late is no reason to delete the one before"
    )
    assert sequences(spark, flow.log) == [10, 20, 39, 40, 50]
    put(spark, flow.log, (1, "e", "U", 45), (2, "b", "U", 40))
    flow.apply(policies={"on_late": "discard"})
    expected[2:] = [
        (1, "c", 40, 45),
        (1, "d", 50, None),
        (1, "e", 45, 50),
        (2, "a", 10, 40),
        (2, "b", 40, None),
    ]
    assert held(spark, flow.target) == expected
    assert set_in < newest(flow.log)
    spark.sql(f"RESTORE delta.`{flow.other}` TO VERSION AS OF 0")
    spark.sql(f"TRUNCATE TABLE delta.`{flow.other}`")
    with pytest.raises(ConsumerUnreadable, match="q of"):
        flow.expire()


@pytest.mark.slow
def test_a_target_that_was_restored_behind_a_deletion(spark: SparkSession, tmp_table: Table) -> None:
    """It gets its rows from the log as it was, or an error with a name: never rows with a hole."""
    log, target = tmp_table("log"), tmp_table("target")
    spark.sql(f"CREATE TABLE delta.`{log}` ({EVENT}) USING delta {TRACKED}")
    asked = {"pipeline": "p", **LOG}
    put(spark, log, (1, "a", "U", 10), (2, "a", "U", 40))
    apply_changes(spark, log, target, **asked)
    first = newest(target)
    # In order for key 1, late for the log: cut again from the log.
    put(spark, log, (1, "b", "U", 20), (1, "c", "U", 25), (2, "b", "U", 41))
    apply_changes(spark, log, target, **asked)
    consumers = [{"pipeline": "p", "target": target}]
    expire_events(spark, log, consumers=consumers, horizon="30")
    assert expire_events(spark, log, consumers=consumers)["deleted"] == 2
    put(spark, log, (1, "d", "U", 35))
    apply_changes(spark, log, target, **asked)
    right = held(spark, target)
    assert [row for row in right if row[0] == 1] == [
        (1, "a", 10, 20),
        (1, "b", 20, 25),
        (1, "c", 25, 35),
        (1, "d", 35, None),
    ]
    spark.sql(f"RESTORE delta.`{target}` TO VERSION AS OF {first}")
    with pytest.raises(VersionsExpired, match="A reload would lose them"):
        apply_changes(spark, log, target, mode="reload", **asked)
    apply_changes(spark, log, target, **asked)
    assert held(spark, target) == right
    seal = newest_seal(target)
    assert seal is not None
    assert seal.state.horizons[-1][1] == "30"

    # And where the log cannot be read as it was, the error says so.
    spark.sql(f"RESTORE delta.`{target}` TO VERSION AS OF {first}")
    kept = {"delta.deletedFileRetentionDuration": "interval 0 hours"}
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in kept.items())
    spark.sql(f"ALTER TABLE delta.`{log}` SET TBLPROPERTIES ({listed})")
    with pytest.raises(VersionsExpired):
        apply_changes(spark, log, target, **asked)


@pytest.mark.slow
def test_events_expire_after_their_log_got_a_column(spark: SparkSession, tmp_table: Table) -> None:
    """Their rows have one column more than when the horizon was set; the log tracks no rows."""
    flow = Consumed(spark, tmp_table)
    flow.log = tmp_table("untracked")
    flow.consumers = [Consumer("p", None, flow.target)]
    spark.sql(f"CREATE TABLE delta.`{flow.log}` ({EVENT}) USING delta")
    put(spark, flow.log, (1, "a", "U", 10), (1, "b", "U", 20), (1, "c", "U", 40))
    flow.apply()
    flow.expire("30")
    spark.sql(f"ALTER TABLE delta.`{flow.log}` ADD COLUMN more STRUCT<x: INT> AFTER k")
    assert flow.expire()["deleted"] == 1
    assert sequences(spark, flow.log) == [20, 40]


@pytest.mark.slow
def test_a_sequence_of_times_and_a_consumer_of_rows(spark: SparkSession, tmp_table: Table) -> None:
    log, target, copy = tmp_table("log"), tmp_table("target"), tmp_table("copy")
    spark.sql(f"CREATE TABLE delta.`{log}` (k int, v string, op string, s timestamp) USING delta {TRACKED}")
    spark.sql(
        f"INSERT INTO delta.`{log}` VALUES (1, 'a', 'U', '2026-01-01 00:00:00.5'), "
        "(1, 'b', 'U', '2026-01-02 00:00:00'), (1, 'c', 'U', '2026-01-09 00:00:00.25')"
    )
    apply_changes(spark, log, target, pipeline="p", **LOG)
    consumers = [{"pipeline": "p", "source": log, "target": target}]
    done = expire_events(spark, log, consumers=consumers, keep="interval 2 days")
    assert done["horizon"] == "2026-01-07 00:00:00.25"
    assert expire_events(spark, log, consumers=consumers, keep="interval 2 days")["deleted"] == 1
    assert expire_events(spark, log, consumers=consumers, keep="interval 2 days")["status"] == "nothing"
    apply_changes(spark, log, copy, pipeline="c", insert_only=True)
    with pytest.raises(InvalidConfiguration, match="as rows, not as events"):
        expire_events(spark, log, consumers=[*consumers, {"pipeline": "c", "target": copy}], keep="1 day")


RULE = {"short": {"check": "length(v) < 3", "on_break": "quarantine"}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("events", "history"),
    [
        ([("a", 5), ("wrong", 6), ("c", 8)], [("a", 5, 8), ("c", 8, None)]),
        ([("a", 5), ("wrong", 6)], [("a", 5, None)]),
    ],
    ids=["closed", "spanning"],
)
def test_a_replay_of_what_is_later_than_allowed(
    spark: SparkSession, tmp_path: Path, events: Any, history: Any
) -> None:
    """It stays in quarantine, and no later run counts it either; a newer event of its key is replayed."""
    log, target = str(tmp_path / "log"), str(tmp_path / "target")
    spark.sql(
        f"CREATE TABLE delta.`{log}` (k INT, v STRING, op STRING, s INT) USING delta "
        "TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
    )
    rows = [(1, v, "U", s) for v, s in events] + [(2, "z", "U", 40), (1, "newer", "U", 30)]
    ddl = "k int, v string, op string, s int"
    append(spark, log, rows, ddl)
    apply_changes(spark, log, target, pipeline="p", rules=RULE, **LOG)
    held = spark.read.format("delta").load(f"{target}__quarantine")
    assert held.count() == 2
    given: dict[str, Any] = {"consumers": [{"pipeline": "p", "target": target}], "horizon": "10"}
    expire_events(spark, log, **given)
    append(spark, log, [(2, "y", "U", 50)], ddl)
    apply_changes(spark, log, target, pipeline="p", rules=RULE, **LOG)
    replay: dict[str, Any] = {"mode": "repair", "repair": {"quarantined": True}}
    *earlier, (value, start, _) = history
    for _ in range(2):
        done = apply_changes(spark, log, target, pipeline="p", rules={}, **replay, **LOG)
        assert done.counts["quarantined"] == 1
        expected = [*earlier, (value, start, 30), ("newer", 30, None)]
        assert history_of(spark, target) == expected
        assert [row["sequence"] for row in held.collect()] == ["6"]
    append(spark, log, [(1, "late", "U", 20)], ddl)
    apply_changes(spark, log, target, pipeline="p", rules={}, **LOG)
    assert history_of(spark, target) == [*earlier, (value, start, 20), ("late", 20, 30), ("newer", 30, None)]
    apply_changes(spark, log, target, pipeline="p", rules={}, mode="reload", **LOG)
    assert history_of(spark, target) == [*earlier, (value, start, 20), ("late", 20, 30), ("newer", 30, None)]


def history_of(spark: SparkSession, target: str) -> list[tuple[Any, ...]]:
    found = spark.read.format("delta").load(target).where("k = 1").orderBy("__START_AT")
    return [tuple(row) for row in found.select("v", "__START_AT", "__END_AT").collect()]
