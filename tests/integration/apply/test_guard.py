"""A run that would change more than its limits allow commits nothing, until a person approves exactly it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes
from delta_cdc.core.errors import LimitExceeded
from tests.support.engine import newest
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome

#: How each kind of pipeline reads the same table: a feed of 20 rows, and the same changes as events of a log.
KINDS: dict[str, dict[str, Any]] = {
    "type 1": {"stored_as_scd_type": 1},
    "soft": {"stored_as_scd_type": 1, "delete_mode": "soft"},
    "type 2": {"stored_as_scd_type": 2},
    "log, type 1": {"source_kind": "change_log", "sequence_by": "n", "apply_as_deletes": "gone"},
    "log, type 2": {
        "source_kind": "change_log",
        "sequence_by": "n",
        "apply_as_deletes": "gone",
        "stored_as_scd_type": 2,
    },
    "type 2, deleted rows stay": {
        "stored_as_scd_type": 2,
        "delete_mode": "new_version",
        "layout": {"end_value": "1000000", "current_column": "is_current"},
    },
}


class Case:
    """One source of 20 rows for all kinds, and a target for each."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.feed, self.log = str(folder / "feed"), str(folder / "log")
        rows = spark.range(20).selectExpr("id", "id AS n", "false AS gone")
        on = {"delta.enableChangeDataFeed": "true"}
        rows.write.format("delta").options(**on).save(self.feed)
        rows.write.format("delta").save(self.log)

    def source(self, kind: str) -> str:
        return self.log if "log" in kind else self.feed

    def target(self, kind: str) -> str:
        return str(self.folder / f"target {kind}")

    def apply(self, kind: str, **arguments: Any) -> Outcome:
        return apply_changes(
            self.spark,
            self.source(kind),
            self.target(kind),
            **{"pipeline": "p", "keys": ["id"], **KINDS[kind], **arguments},
        )

    def change(self, deletes: range, updates: range, inserts: range) -> None:
        """Change the same keys in both sources."""
        base = 1000 * newest(self.feed) + 1000
        for gone, keys in ((False, updates), (False, inserts), (True, deletes)):
            events = self.spark.range(keys.start, keys.stop).selectExpr(
                "id", f"id + {base} AS n", f"{str(gone).lower()} AS gone"
            )
            events.coalesce(1).write.format("delta").mode("append").save(self.log)
        feed = f"delta.`{self.feed}`"
        updated, deleted = (f"id >= {keys.start} AND id < {keys.stop}" for keys in (updates, deletes))
        self.spark.sql(f"UPDATE {feed} SET n = n + {base} WHERE {updated}")
        self.spark.sql(f"DELETE FROM {feed} WHERE {deleted}")
        new = self.spark.range(inserts.start, inserts.stop)
        new = new.selectExpr("id", f"id + {base} AS n", "false AS gone")
        new.write.format("delta").mode("append").save(self.feed)

    def living(self, kind: str) -> set[int]:
        rows = self.spark.read.format("delta").load(self.target(kind))
        dead = {
            "soft": "_deleted",
            "type 2": "__END_AT IS NOT NULL",
            "log, type 2": "__END_AT IS NOT NULL",
            "type 2, deleted rows stay": "_deleted OR NOT is_current",
        }
        return {row["id"] for row in rows.where(f"NOT ({dead.get(kind, 'false')})").collect()}


@pytest.fixture(scope="module")
def case(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Case:
    made = Case(spark, tmp_path_factory.mktemp("guard"))
    # Of 20 rows, 6 go, 4 change, and 3 come; a key that comes and goes inside the range is no row.
    made.change(range(6), range(6, 10), range(20, 23))
    return made


def approval_in(error: LimitExceeded) -> str:
    found = re.search(r"approve = (\d+-[0-9a-f]{12})", error.remedy)
    assert found is not None, error.remedy
    assert error.approval == found[1], "what the form offers and what a person reads are one"
    return found[1]


@pytest.mark.parametrize("kind", slow_but(KINDS, "type 1"))
def test_beyond_a_limit_nothing_is_written_until_it_is_approved(case: Case, kind: str) -> None:
    case.apply(kind, ending_version=0)
    before, version = case.living(kind), newest(case.target(kind))
    assert before == set(range(20))
    for limits, text in (
        ({"max_deleted": "29 %"}, "it would delete or close 6 of 20 rows (30.0 %), and max_deleted is 29 %"),
        ({"max_changed": 12}, "it would change 13 of 20 rows (65.0 %), and max_changed is 12"),
        ({"max_deleted": 5}, "it would delete or close 6 of 20 rows (30.0 %), and max_deleted is 5"),
    ):
        with pytest.raises(LimitExceeded) as found:
            case.apply(kind, limits=limits)
        assert text in found.value.message
        assert not found.value.retryable
    limits = {"max_deleted": 5}
    assert re.search(r"id = [0-5]; id = [0-5]; id = [0-5]\.", str(found.value))
    text = approval_in(found.value)
    planned = case.apply(kind, limits=limits, dry_run=True)
    assert planned.dry_run is not None
    assert planned.dry_run["error"]["class"] == "LimitExceeded"
    assert text in planned.dry_run["error"]["remedy"]
    with pytest.raises(LimitExceeded, match="which is for another change"):
        case.apply(kind, limits=limits, approve="3-000000000000")
    # A write of somebody else: what the person saw is no longer what would happen.
    case.spark.sql(f"ALTER TABLE delta.`{case.target(kind)}` SET TBLPROPERTIES (mine = '1')")
    assert (newest(case.target(kind)), case.living(kind)) == (version + 1, before)
    with pytest.raises(LimitExceeded, match="which is for another change") as found:
        case.apply(kind, limits=limits, approve=text)
    assert case.apply(kind, limits=limits, approve=approval_in(found.value)).applied
    assert case.living(kind) == set(range(6, 23))


@pytest.mark.slow
def test_up_to_its_limits_a_run_goes_on(case: Case, tmp_path: Path) -> None:
    for kind in ("type 1", "log, type 2"):
        applied = apply_changes(
            case.spark,
            case.source(kind),
            str(tmp_path / kind),
            **{"pipeline": "p", "keys": ["id"], **KINDS[kind], "ending_version": 0},
        )
        assert applied.applied
        result = apply_changes(
            case.spark,
            case.source(kind),
            str(tmp_path / kind),
            **{"pipeline": "p", "keys": ["id"], **KINDS[kind]},
            limits={"max_deleted": "30 %", "max_changed": 13},
        )
        assert result.applied


@pytest.mark.slow
def test_a_load_of_too_few_rows_and_a_reset_that_loses_most(case: Case, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"pipeline": "p", "keys": ["id"]}
    target = str(tmp_path / "target")
    with pytest.raises(LimitExceeded, match="it would write 20 rows, and min_source_rows is 21"):
        apply_changes(
            case.spark, case.feed, target, **arguments, ending_version=0, limits={"min_source_rows": 21}
        )
    assert not (tmp_path / "target").exists()
    apply_changes(case.spark, case.feed, target, **arguments, ending_version=0)
    version = newest(target)
    with pytest.raises(LimitExceeded, match="it would delete or close 20 of 20 rows"):
        apply_changes(
            case.spark,
            case.feed,
            target,
            **arguments,
            mode="reset",
            where="id > 100",
            limits={"max_deleted": "10 %"},
        )
    assert newest(target) == version


@pytest.mark.slow
@pytest.mark.parametrize("scd", slow_but([1, 2], 1))
def test_a_step_that_is_stopped_has_altered_nothing(spark: SparkSession, tmp_path: Path, scd: int) -> None:
    source, target = f"delta.`{tmp_path / 'source'}`", str(tmp_path / "target")
    spark.sql(
        f"CREATE TABLE {source} (id BIGINT, name STRING) USING delta TBLPROPERTIES "
        "('delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"INSERT INTO {source} SELECT id, 'a' FROM range(10)")

    def apply(**arguments: Any) -> Outcome:
        return apply_changes(
            spark,
            str(tmp_path / "source"),
            target,
            pipeline="p",
            keys=["id"],
            stored_as_scd_type=scd,
            policies={"schema_evolution": "mirror"},
            limits={"max_deleted": 3},
            **arguments,
        )

    apply()
    version = newest(target)
    spark.sql(f"ALTER TABLE {source} RENAME COLUMN name TO label")
    spark.sql(f"DELETE FROM {source} WHERE id < 4")
    planned = apply(dry_run=True)
    assert planned.dry_run is not None
    assert planned.dry_run["error"]["class"] == "LimitExceeded"
    with pytest.raises(LimitExceeded, match="delete or close 4 of 10") as found:
        apply()
    assert newest(target) == version
    assert apply(approve=approval_in(found.value)).applied
    rows = spark.read.format("delta").load(target)
    living = rows.where("__END_AT IS NULL") if scd == 2 else rows
    assert sorted(row["id"] for row in living.select("id", "label").collect()) == list(range(4, 10))


def days(spark: SparkSession, folder: Path, target: str, scd: int) -> tuple[Any, Any]:
    """Return how copies get into one table, a column says of which day, and how they are applied."""

    def put(day: int, rows: range) -> None:
        added = spark.range(rows.start, rows.stop).selectExpr("id", f"{day} AS day")
        added.coalesce(1).write.format("delta").mode("append").save(str(folder / "source"))

    def apply(**arguments: Any) -> Outcome:
        return apply_changes(
            spark,
            str(folder / "source"),
            str(folder / target),
            pipeline="p",
            keys=["id"],
            source_kind="snapshot",
            snapshot_version_column="day",
            except_column_list=["day"],
            stored_as_scd_type=scd,
            **arguments,
        )

    return put, apply


@pytest.mark.slow
@pytest.mark.parametrize("scd", [1, 2])
def test_a_copy_of_a_day_that_lacks_rows_is_refused(spark: SparkSession, tmp_path: Path, scd: int) -> None:
    put, apply = days(spark, tmp_path, "target", scd)
    put(1, range(1000))
    apply()
    version = newest(str(tmp_path / "target"))
    put(2, range(10))
    with pytest.raises(LimitExceeded, match=r"day = 2 of .* has 10 rows, and min_source_rows is 900"):
        apply(limits={"min_source_rows": 900})
    with pytest.raises(
        LimitExceeded, match=r"day = 2 of .* has 10 rows, and the copy before it has 1000"
    ) as found:
        apply()
    planned = apply(dry_run=True)
    assert planned.dry_run is not None
    assert planned.dry_run["error"]["class"] == "LimitExceeded"
    with pytest.raises(LimitExceeded, match="it would delete or close 990 of 1000 rows"):
        apply(limits={"max_deleted": "50 %"})
    assert newest(str(tmp_path / "target")) == version
    # The next copy is whole: a current table takes it alone, a history has each of them.
    put(3, range(900))
    if scd == 1:
        assert "error" not in apply(dry_run=True).dry_run
    else:
        with pytest.raises(LimitExceeded, match=r"day = 2 of"):
            apply()
    assert apply(approve=approval_in(found.value)).applied
    rows = spark.read.format("delta").load(str(tmp_path / "target"))
    assert rows.where("__END_AT IS NULL" if scd == 2 else "true").count() == 10
    # After a copy of fewer than 1,000 rows, any number will do.
    assert apply().applied


@pytest.mark.slow
def test_the_other_rows_of_a_copy_of_a_day_come_later(spark: SparkSession, tmp_path: Path) -> None:
    put, apply = days(spark, tmp_path, "target", 2)
    put(1, range(1000))
    apply()
    put(2, range(10))
    for mode in ("incremental", "reload"):
        with pytest.raises(
            LimitExceeded, match=r"day = 2 of .* has 10 rows, and the copy before it has 1000"
        ):
            apply(mode=mode)
    put(2, range(10, 990))
    with pytest.raises(LimitExceeded, match=r"day = 2 of .* has 990 rows, and min_source_rows is 991"):
        apply(mode="reload", limits={"min_source_rows": 991})
    assert apply(mode="reload").applied
    rows = spark.read.format("delta").load(str(tmp_path / "target"))
    assert (rows.count(), rows.where("__END_AT IS NULL").count()) == (1000, 990)


#: By what needs an approval: what the run does, and the reason in the error.
RUNS: dict[str, tuple[dict[str, Any], str]] = {
    "reset": ({"mode": "reset"}, "it would delete and load all rows, and approval_for has reset"),
    "reload": ({"mode": "reload"}, "it would compute all rows again, and approval_for has reload"),
    "drift": (
        {"where": "id < 19", "policies": {"on_drift": "accept"}},
        "and approval_for has drift",
    ),
    "drift, reload": (
        {"where": "id < 19", "policies": {"on_drift": "repair"}},
        "and approval_for has drift; it would compute all rows again, and approval_for has reload",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_person_approves_what_replaces_rows(case: Case, tmp_path: Path, name: str) -> None:
    target, (chosen, why) = str(tmp_path / "target"), RUNS[name]

    def apply(**arguments: Any) -> Outcome:
        given = {"pipeline": "p", "keys": ["id"], **chosen, **arguments}
        given["policies"] = {**chosen.get("policies", {}), "approval_for": name.split(", ")}
        return apply_changes(case.spark, case.feed, target, **given)

    # The first load replaces nothing, so it needs no approval.
    first = {"mode": "incremental", "where": None, "ending_version": 0}
    assert apply(**first).applied
    version, rows = newest(target), case.spark.read.format("delta").load(target)
    with pytest.raises(LimitExceeded) as found:
        apply()
    assert why in found.value.message
    if name == "reset":
        assert "of 20 keys, 6 would go; " in found.value.message
    else:
        # A repair also ends the row that the new options leave out.
        ended = 7 if name == "drift, reload" else 6
        assert f"it would end {ended} and change " in found.value.message
        assert " of 20 rows." in found.value.message
    assert newest(target) == version
    text = approval_in(found.value)
    planned = apply(dry_run=True)
    assert planned.dry_run is not None
    assert text in planned.dry_run["error"]["remedy"]
    with pytest.raises(LimitExceeded, match="which is for another change"):
        apply(approve="3-000000000000")
    # What the source got since is not approved, and waits.
    case.change(range(0), range(7, 8), range(0))
    approved = apply(approve=text)
    assert approved.applied
    assert approved.watermark is not None
    assert approved.watermark.version == int(text.partition("-")[0])
    rows = case.spark.read.format("delta").load(target)
    # Incremental, the new options hold for new changes only.
    last = 23 if not name.startswith("drift") else 20 if name == "drift" else 19
    assert {row["id"] for row in rows.collect()} == set(range(6, last))
    # With that approval, nothing else passes.
    if name in ("reset", "reload"):
        with pytest.raises(LimitExceeded, match="which is for another change"):
            apply(approve=text)
    else:
        # The options are those of the seal now.
        assert apply().applied


@pytest.mark.slow
def test_one_approval_passes_limits_too(case: Case, tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    arguments: dict[str, Any] = {
        "pipeline": "p",
        "insert_only": True,
        "limits": {"max_deleted": 1},
        "policies": {"approval_for": "reset"},
    }
    apply_changes(case.spark, case.log, target, **arguments)
    version = newest(target)
    with pytest.raises(
        LimitExceeded, match=r"approval_for has reset; it would delete or close .* max_deleted is 1"
    ) as found:
        apply_changes(case.spark, case.log, target, **arguments, mode="reset")
    assert newest(target) == version
    text = approval_in(found.value)
    assert apply_changes(case.spark, case.log, target, **arguments, mode="reset", approve=text).applied


@pytest.mark.slow
def test_a_take_over_is_committed_before_an_approval(case: Case, tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    apply_changes(case.spark, case.feed, target, pipeline="old", keys=["id"])
    arguments: dict[str, Any] = {
        "pipeline": "new",
        "keys": ["id"],
        "take_over_from": "old",
        "mode": "reset",
        "policies": {"approval_for": "reset"},
    }
    loaded = newest(target)
    planned = apply_changes(case.spark, case.feed, target, **arguments, dry_run=True)
    assert planned.dry_run is not None
    assert "Nothing was written." in planned.dry_run["error"]["message"]
    with pytest.raises(LimitExceeded, match="The take-over is committed; nothing else was written") as found:
        apply_changes(case.spark, case.feed, target, **arguments)
    taken = newest(target)
    assert taken > loaded
    text = approval_in(found.value)
    with pytest.raises(LimitExceeded, match="Nothing was written") as again:
        apply_changes(case.spark, case.feed, target, **arguments)
    assert (newest(target), approval_in(again.value)) == (taken, text)
    assert apply_changes(case.spark, case.feed, target, **arguments, approve=text).applied
