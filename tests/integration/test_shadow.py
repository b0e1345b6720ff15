"""A second target beside the first: compared after each run, and promoted to replace it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes, erase_key, job
from delta_cdc.cli import main
from delta_cdc.core import codec
from delta_cdc.core.errors import (
    ConcurrentModification,
    PipelineTakenOver,
    PromotionRefused,
    TableNameMoved,
)
from delta_cdc.core.shadow import Comparison, Pair
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.shadow import comparisons
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from delta_cdc.run.shadow import Work, compare, promote
from delta_cdc.run.table_arguments import apply_request
from delta_cdc.spark import catalog
from delta_cdc.spark import shadow as engine
from tests.support.engine import newest, newest_seal
from tests.support.holding import hooked, once

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome


class Killed(BaseException):
    pass


def killed() -> None:
    raise Killed


class Lake:
    """A source, a target ``now``, and its shadow ``next``."""

    def __init__(self, spark: SparkSession, folder: Path, **next_options: Any) -> None:
        self.spark, self.folder = spark, folder
        self.source, self.now, self.next = (str(folder / name) for name in ("orders", "now", "next"))
        self.next_options = {"keys": ["id"], "stored_as_scd_type": 2, **next_options}
        self.sql(
            "CREATE TABLE {source} (id INT, region STRING, amount DECIMAL(10,2), note STRING) USING delta "
            "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        )
        self.sql("INSERT INTO {source} VALUES (1, 'a', 1.10, 'x'), (2, 'b', 2.20, NULL), (3, 'a', 3.30, 'z')")

    @property
    def pair(self) -> Pair:
        return Pair("orders_now", self.now, "orders_next", self.next)

    def sql(self, text: str) -> list[Any]:
        names = {name: f"delta.`{getattr(self, name)}`" for name in ("source", "now", "next")}
        return self.spark.sql(text.format(**names)).collect()

    def run_now(self, **options: Any) -> Outcome:
        options = {"keys": ["id"], "shadowed_by": {"orders_next": self.next}, **options}
        return apply_changes(self.spark, self.source, self.now, pipeline="orders_now", **options)

    def run_next(self, **options: Any) -> Outcome:
        options = {**self.next_options, "shadow_of": {"orders_now": self.now}, **options}
        return apply_changes(self.spark, self.source, self.next, pipeline="orders_next", **options)

    def both(self) -> Comparison:
        self.run_now()
        return found(self.run_next())

    def work(self, pair: Pair | None = None) -> Work:
        return Work(pair or self.pair, partial(job.run, self.spark), run_id="by-hand")

    def recorded(self) -> tuple[Comparison, ...]:
        return run_sync(comparisons(DeltaLog(self.next), None, "orders_next"))


def found(outcome: Outcome) -> Comparison:
    assert outcome.shadow is not None
    (row,) = outcome.shadow
    return codec.decoded(Comparison, row)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


# -- after each run -------------------------------------------------------------------------------
@pytest.mark.slow
def test_both_runs_compare_type_1_with_type_2(lake: Lake) -> None:
    first = found(lake.run_now())
    assert (first.status, lake.next in first.why) == ("not_compared", True)
    outcome = lake.run_next()
    agreed = found(outcome)
    assert (agreed.status, agreed.rows, agreed.counts, agreed.by_key) == ("agreed", 3, {}, True)
    assert json.loads(json.dumps(outcome.to_dict()["shadow"]))[0]["status"] == "agreed", "it is published"
    assert agreed.only_original == agreed.only_shadow == ()
    assert agreed.source is not None
    assert agreed.source.version == 1
    assert lake.recorded() == (agreed,)
    seal = newest_seal(lake.next)
    assert seal is not None
    assert agreed.run_id == seal.step.run_id, "the run is that of the seal"

    lake.sql("UPDATE {source} SET amount = 9.90 WHERE id = 1")
    lake.sql("DELETE FROM {source} WHERE id = 2")
    other = found(lake.run_next())
    assert (other.status, "stands at version 1" in other.why) == ("not_compared", True)
    again = found(lake.run_now())
    assert (again.status, again.rows) == ("agreed", 2)
    assert lake.recorded() == (again, agreed)
    version = newest(lake.next)
    assert lake.run_now().shadow is None, "a run without work compares nothing"
    assert newest(lake.next) == version
    lake.sql("DELETE FROM {source} WHERE id = 3")
    assert "shadow" not in lake.run_now(shadowed_by=None).to_dict()


@pytest.mark.slow
def test_differences_by_key(lake: Lake) -> None:
    lake.both()
    lake.sql("UPDATE {next} SET amount = 1.11, note = NULL WHERE id = 1")
    lake.sql("DELETE FROM {now} WHERE id = 2")
    lake.sql("DELETE FROM {next} WHERE id = 3")
    result = compare(lake.work(), whole=True)
    assert (result.status, result.counts) == ("differing", {"changed": 1, "missing": 1, "extra": 1})
    by_kind = {sample.difference: sample for sample in result.samples}
    changed = by_kind["changed"]
    assert changed.key == {"id": "1"}
    assert changed.original == {"amount": "1.10", "note": "x"}
    assert changed.shadow == {"amount": "1.11", "note": None}
    assert by_kind["extra"].key == {"id": "2"}
    assert by_kind["extra"].shadow == {"region": "b", "amount": "2.20", "note": None}
    assert by_kind["missing"].key == {"id": "3"}
    assert lake.recorded()[0] == result
    assert (result.run_id, result.share) == ("by-hand", 1)


@pytest.mark.slow
def test_other_keys_and_columns(spark: SparkSession, tmp_path: Path) -> None:
    """The shadow lacks the original's key, so equal rows are counted; types that differ meet exactly."""
    lake = Lake(
        spark,
        tmp_path,
        keys=["region"],
        stored_as_scd_type=1,
        select=["region", "CAST(amount AS DECIMAL(20,5)) AS amount", "1 AS version"],
    )
    lake.sql("DELETE FROM {source} WHERE id = 3")
    agreed = lake.both()
    assert (agreed.status, agreed.by_key, agreed.rows) == ("agreed", False, 2)
    assert (agreed.only_original, agreed.only_shadow) == (("id", "note"), ("version",))
    lake.sql("UPDATE {next} SET amount = 1.10001 WHERE region = 'a'")
    result = compare(lake.work(), whole=False)
    assert (result.status, result.counts) == ("differing", {"missing": 1, "extra": 1})
    values = {sample.difference: (sample.original, sample.shadow) for sample in result.samples}
    assert values["missing"] == ({"region": "a", "amount": "1.10000"}, {})
    assert values["extra"] == ({}, {"region": "a", "amount": "1.10001"})
    # A row that is equal to another one, without the key that the shadow lacks.
    lake.sql("INSERT INTO {now} VALUES (9, 'b', 2.20, NULL)")
    assert compare(lake.work(), whole=True).counts == {"missing": 2, "extra": 1}


@pytest.mark.slow
def test_a_retry_publishes_what_the_first_try_compared(lake: Lake) -> None:
    lake.run_now()
    given = {"source": lake.source, "target": lake.next, "shadow_of": {"orders_now": lake.now}}
    request = apply_request({**given, **lake.next_options}, pipeline="orders_next", run_id="r1")
    services = Services(execute=partial(job.execute, lake.spark, None, None), since=-1)
    with pytest.raises(Killed), hooked(once("finished", killed)):
        run(request, services)
    (recorded,) = lake.recorded()
    assert recorded.run_id == "r1"
    assert found(run(request, services)) == recorded
    assert run(replace(request, run_id="r2"), services).shadow is None


def test_an_error_of_the_comparison_is_a_result(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.run_now()

    def fails(*_: Any) -> Any:
        raise RuntimeError("no room")

    monkeypatch.setattr(engine, "compared", fails)
    outcome = lake.run_next()
    assert outcome.applied
    assert (found(outcome).status, "no room" in found(outcome).why) == ("not_compared", True)
    monkeypatch.undo()
    assert lake.recorded() == ()
    seal = newest_seal(lake.next)
    assert seal is not None
    assert seal.watermark.version == 1


def test_numbers_of_different_types_meet_without_rounding(spark: SparkSession) -> None:
    pairs: list[tuple[str, str, bool]] = [
        ("DOUBLE(0.1)", "0.10", True),
        ("FLOAT(0.1)", "0.10", True),
        ("DOUBLE(0.104)", "0.10", False),
        ("DOUBLE(-0.0)", "0.00", True),
        ("DOUBLE(1234567.89)", "1234567.89", True),
        ("DOUBLE(1e300)", "0.00", False),
        ("DOUBLE('NaN')", "NULL", False),
        ("CAST(NULL AS DOUBLE)", "NULL", True),
        ("CAST(NULL AS DOUBLE)", "0.00", False),
        ("DOUBLE(9007199254740993)", "9007199254740993.00", False),
    ]
    for one, other, is_same in pairs:
        row = spark.sql(f"SELECT {one} AS a, CAST({other} AS DECIMAL(20,2)) AS b")
        (first, second) = (field.dataType for field in row.schema.fields)
        common = engine.meeting_type(first, second)
        assert common is not None
        same = f"{engine.met('a', first, common)} <=> {engine.met('b', second, common)}"
        assert row.selectExpr(f"{same} AS same").collect()[0]["same"] is is_same, (one, other)


# -- promote: paths -------------------------------------------------------------------------------
@pytest.mark.slow
def test_promote_by_paths_goes_on_exactly_once(lake: Lake) -> None:
    lake.both()
    with pytest.raises(PromotionRefused, match=r"1 agreed in a row, and there are 1"):
        promote(lake.work(), dry_run=False)
    lake.sql("INSERT INTO {source} VALUES (4, 'c', 4, NULL)")
    lake.both()
    version = newest(lake.next)
    dry = promote(lake.work(), runs=2)
    assert (dry.refused, newest(lake.next)) == ((), version)
    assert any("would take over" in line for line in dry.lines)
    with pytest.raises(Killed), hooked(once("committed", killed)):
        promote(lake.work(), runs=2, dry_run=False)
    assert newest(lake.next) == version + 1, "the seal that ends the shadow's pipeline"
    assert "would finish to take over" in promote(lake.work(), runs=2).lines[0]
    done = promote(lake.work(), runs=2, dry_run=False)
    assert "took over" in done.lines[0]
    assert "has taken over" in promote(lake.work(), runs=2, dry_run=False).lines[0], "it is done"

    lake.sql("DELETE FROM {source} WHERE id = 4")
    outcome = apply_changes(lake.spark, lake.source, lake.next, pipeline="orders_now", **lake.next_options)
    assert (outcome.counts.get("closed", outcome.counts.get("deleted")), outcome.applied) == (1, True)
    assert outcome.versions is not None
    assert outcome.versions.starting_version == outcome.versions.ending_version == 3
    rows = lake.sql("SELECT id, __START_AT, __END_AT FROM {next} ORDER BY id")
    assert [(row[0], row[2] is None) for row in rows] == [
        (1, True),
        (2, True),
        (3, True),
        (4, False),
    ]
    with pytest.raises(PipelineTakenOver):
        lake.run_next()


@pytest.mark.slow
def test_a_difference_or_a_change_refuses(lake: Lake) -> None:
    lake.both()
    lake.sql("UPDATE {next} SET amount = 7 WHERE id = 1")
    with pytest.raises(PromotionRefused, match="changed since"):
        promote(lake.work(), runs=1, dry_run=False)
    compare(lake.work(), whole=True)
    with pytest.raises(
        PromotionRefused, match=r"0 agreed in a row.*1 keys changed.*1.10 in the original, 7.00"
    ):
        promote(lake.work(), runs=1, dry_run=False)
    lake.sql("INSERT INTO {source} VALUES (4, 'c', 4, NULL)")
    lake.run_now()
    refused = promote(lake.work(), runs=1).refused
    assert any("stands at version 2 of the source, and orders_next at version 1" in text for text in refused)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["now", "next"])
def test_a_commit_between_the_check_and_the_takeover_is_noticed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    from delta_cdc.run import shadow

    lake.both()
    lake.sql("INSERT INTO {source} VALUES (4, 'c', 4, NULL)")
    planned = shadow.plan_apply_async

    async def raced(request: Any) -> Any:
        if which == "now":
            lake.run_now(shadowed_by=None)
        plan = await planned(request)
        if which == "next":
            lake.run_next(shadow_of=None)
        return plan

    monkeypatch.setattr(shadow, "plan_apply_async", raced)
    with pytest.raises(ConcurrentModification, match="not promoted"):
        promote(lake.work(), runs=1, dry_run=False)
    monkeypatch.undo()
    lake.run_now()
    lake.run_next()
    assert "took over" in promote(lake.work(), runs=1, dry_run=False).lines[0]


@pytest.mark.slow
def test_no_promotion_of_a_shadow_that_does_not_remember_all_erased_keys(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path, stored_as_scd_type=1)
    lake.run_now()
    now = {"pipeline": "orders_now", "source": lake.source, "target": lake.now}
    # Before there is a shadow; the source loses the key, too.
    erase_key(spark, [now], key={"id": 3})
    lake.sql("DELETE FROM {source} WHERE id = 3")
    lake.both()
    # Later, another key is erased from both.
    shadow = {"pipeline": "orders_next", "source": lake.source, "target": lake.next}
    erase_key(spark, [now, shadow], key={"id": 2})
    lake.sql("INSERT INTO {source} VALUES (4, 'c', 4, NULL)")
    lake.run_next()
    lake.run_now()
    with pytest.raises(
        PromotionRefused, match="Keys were erased from the target of orders_now, and not from"
    ):
        promote(lake.work(), runs=1, dry_run=False)
    erase_key(spark, [shadow], key={"id": 3})
    assert "took over" in promote(lake.work(), runs=1, dry_run=False).lines[0]


# -- promote: names -------------------------------------------------------------------------------
@pytest.fixture
def named(spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    with pytest.MonkeyPatch.context() as patch:
        # The catalog of this session is in memory, and lasts as long as this test.
        patch.setattr(catalog, "_DELTAS_CATALOG", "another")
        spark.sql(f"CREATE SCHEMA shadows LOCATION '{tmp_path / 'gold'}'")
        lake = Lake(spark, tmp_path)
        lake.now, lake.next = "shadows.now", "shadows.next"
        yield lake
    spark.sql("DROP SCHEMA shadows CASCADE")


def ids(lake: Lake) -> list[str | None]:
    details = [catalog.existing_detail(lake.spark, f"shadows.{name}") for name in ("now", "next")]
    return [detail and detail["id"] for detail in details]


@pytest.mark.slow
@pytest.mark.parametrize("renames", [False, True])
def test_promote_by_names_and_resume_after_each_statement(
    named: Lake, monkeypatch: pytest.MonkeyPatch, renames: bool
) -> None:
    lake = named
    assert lake.both().status == "agreed"
    old, new = ids(lake)
    if renames:
        from delta_cdc.spark import exchange

        made = exchange._made

        def refuses(session: Any, move: Any, locations: Any) -> None:
            if move.kind == "repoint":
                raise RuntimeError("this catalog moves no table")
            made(session, move, locations)

        monkeypatch.setattr(exchange, "_made", refuses)
    kills = 0
    while True:
        try:
            with hooked(once("moved", killed)):
                promote(lake.work(), runs=1, dry_run=False)
            break
        except Killed:
            kills += 1
            if not renames:
                # A reader finds the name in every state.
                assert ids(lake)[0] == new
    assert kills == (3 if renames else 2)
    assert ids(lake) == [new, old]
    lake.sql("UPDATE {source} SET amount = 5 WHERE id = 1")
    outcome = apply_changes(lake.spark, lake.source, lake.now, pipeline="orders_now", **lake.next_options)
    assert outcome.applied
    assert len(lake.spark.sql("SELECT * FROM shadows.now WHERE id = 1").collect()) == 2
    properties = [lake.spark.sql(f"SHOW TBLPROPERTIES shadows.{name}").collect() for name in ("now", "next")]
    names = [{row[0]: row[1] for row in rows}["delta_cdc.catalogName"] for rows in properties]
    assert names == ["shadows.now", "shadows.next"]


@pytest.mark.slow
def test_another_table_with_a_name_stops_the_exchange(named: Lake) -> None:
    lake = named
    lake.both()
    lake.spark.sql("CREATE TABLE shadows.now__before_promote (a INT) USING delta")
    with pytest.raises(Exception, match="of another one"):
        promote(lake.work(), runs=1, dry_run=False)
    assert "orders_now" not in str(newest_seal(str(lake.folder / "gold" / "next")))


@pytest.mark.slow
def test_a_second_shadow_of_the_same_name_can_be_promoted(named: Lake) -> None:
    lake = named
    assert lake.both().status == "agreed"
    promote(lake.work(), runs=1, dry_run=False)
    # The original goes on in it, with its options; and gets a new shadow, whose pipeline has the old name.
    lake.run_now(shadowed_by=None, **lake.next_options)
    lake.next, lake.next_options = "shadows.third", {"keys": ["id"], "stored_as_scd_type": 1}
    lake.run_next()
    old, new = (catalog.existing_detail(lake.spark, name)["id"] for name in (lake.now, lake.next))
    promote(lake.work(), runs=1, dry_run=False)
    found = [catalog.existing_detail(lake.spark, name)["id"] for name in (lake.now, lake.next)]
    assert found == [new, old]


# -- the command ----------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_configuration(lake: Lake, capsys: Any) -> None:
    file = lake.folder / "flows.yaml"
    entry = {"source": lake.source, "target": lake.now, "keys": ["id"]}
    shadow = {**entry, "target": lake.next, "stored_as_scd_type": 2, "shadow_of": "orders_now"}
    file.write_text(json.dumps({"pipelines": {"orders_now": entry, "orders_next": shadow}}))
    assert main(["run", str(file)]) == 0
    assert [one.status for one in lake.recorded()] == ["agreed"]
    assert main(["shadow", "compare", str(file), "orders_next", "--all"]) == 0
    assert "agreed at version 1 of the source (all current rows: 3)" in capsys.readouterr().out
    assert main(["status", str(file)]) == 0
    assert "agreed at version 1" in capsys.readouterr().out
    assert main(["promote", str(file), "orders_next"]) == 1
    assert "Not now: Of the 3 newest" in capsys.readouterr().out
    assert main(["promote", str(file), "orders_now"]) == 2
    assert "name its shadow, orders_next" in capsys.readouterr().err
    assert main(["promote", str(file), "orders_next", "--runs", "2", "--yes"]) == 0
    shown = capsys.readouterr().out
    assert f'  target: "{lake.next}"' in shown
    assert "  stored_as_scd_type: 2" in shown


@pytest.mark.slow
def test_a_new_shadow_under_the_name_of_the_promoted_one(named: Lake) -> None:
    """The default location of the name has the promoted table."""
    lake = named
    assert lake.both().status == "agreed"
    promote(lake.work(), runs=1, dry_run=False)
    lake.spark.sql("DROP TABLE shadows.next")
    with pytest.raises(TableNameMoved, match=r"has the table shadows\.now") as failed:
        lake.run_next(shadow_of=None)
    assert "'target_location'" in failed.value.remedy
    lake.run_next(shadow_of=None, layout={"target_location": str(lake.folder / "beside")})
    assert catalog.existing_detail(lake.spark, "shadows.next")["location"].endswith("/beside")
