"""The table of events: what the target's log proves, and what it no longer proves."""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from delta_cdc.core.errors import (
    LogGap,
    NotADeltaTable,
    PipelineTakenOver,
    SealUnreadable,
    TargetChangedUnderneath,
    TargetRecreated,
    TargetReplaced,
    TargetWithoutWatermark,
    TransactionRetentionSet,
    WatermarkExpired,
)
from delta_cdc.core.watermark import SEAL_FORMAT, TableVersion
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.reconcile import RecordedWatermark, WatermarkBackup, reconcile, reconcile_async
from delta_cdc.spark.sealed.commit import TableState, overtaken
from tests.support.logs import EPOCH, LogTable, seal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def target(tmp_path: Path) -> LogTable:
    """Version 0 carries seal 100 (watermark 5), version 1 seal 101 (watermark 8)."""
    made = LogTable(tmp_path / "target")
    made.write_seal(seal(100, 5, kind="load"))
    made.write_seal(seal(101, 8, planned_on=TableVersion("id-1", 0)))
    return made


def look(table: LogTable) -> RecordedWatermark:
    recorded = reconcile(DeltaLog(table.uri), "p")
    assert recorded is not None
    return recorded


def proven(table: LogTable) -> tuple[int, int]:
    """Return (watermark, next seal number)."""
    recorded = look(table)
    assert recorded.seal is not None
    return recorded.seal.watermark.version, recorded.next_number


def replanned(table: LogTable, watermark: int, version: int, **changes: Any) -> None:
    """Write seal 102, planned on a version."""
    table.write_seal(seal(102, watermark, planned_on=TableVersion("id-1", version)), **changes)


#: What may happen to the target -> its watermark, and the number of the next seal.
PROVEN: dict[str, tuple[Callable[[LogTable], Any], tuple[int, int]]] = {
    "nothing": (lambda t: None, (8, 102)),
    "append": (lambda t: t.append(), (8, 102)),
    "a long log": (lambda t: [t.optimize() for _ in range(30)], (8, 102)),
    "delete": (lambda t: t.delete('["(id#1 = 1)"]'), (8, 102)),
    "replaceWhere": (lambda t: t.overwrite(predicate="id < 3"), (8, 102)),
    "dynamic": (lambda t: t.overwrite(isDynamicPartitionOverwrite=True), (8, 102)),
    "properties": (lambda t: t.set_properties(delta__appendOnly="false"), (8, 102)),
    "update": (lambda t: t.commit("UPDATE", t.add(), *t.removes(), parameters={"predicate": "[]"}), (8, 102)),
    "merge": (lambda t: t.commit("MERGE", t.add(), *t.removes()), (8, 102)),
    "stream": (
        lambda t: t.commit("STREAMING UPDATE", t.add(), parameters={"outputMode": "Append"}),
        (8, 102),
    ),
    "our own overwrite": (
        lambda t: t.write_seal(seal(102, 9), operation="WRITE", parameters={"mode": "Overwrite"}),
        (9, 103),
    ),
    "a leaked seal": (
        lambda t: t.optimize(user_metadata=seal(101, 9, planned_on=TableVersion("id-1", 0)).to_json()),
        (8, 102),
    ),
    "another pipeline": (lambda t: t.write_seal(seal(900, 77, pipeline="q")), (8, 102)),
    "harmless commits since the plan": (lambda t: (t.optimize(), t.append(), replanned(t, 9, 1)), (9, 103)),
    "a restore": (lambda t: t.restore(0), (5, 102)),
    "a restore below the plan": (lambda t: (t.restore(0), replanned(t, 6, 2)), (6, 103)),
    "a restore of a restore": (lambda t: (t.restore(0), replanned(t, 6, 2), t.restore(2)), (5, 103)),
    "a restore before a restore": (lambda t: (t.restore(0), replanned(t, 6, 2), t.restore(1)), (8, 103)),
    "a restore of what followed": (
        lambda t: (t.restore(0), replanned(t, 6, 2), t.restore(1), t.restore(3)),
        (6, 103),
    ),
}


@pytest.mark.parametrize(("happens", "expected"), PROVEN.values(), ids=PROVEN)
def test_what_a_log_proves(
    target: LogTable, happens: Callable[[LogTable], Any], expected: tuple[int, int]
) -> None:
    happens(target)
    assert proven(target) == expected
    commit = look(target).commit
    assert commit is not None
    assert commit.version == {5: 0, 6: 3, 8: 1}.get(expected[0], target.version)


def test_what_a_crash_left_behind_is_no_table(tmp_path: Path) -> None:
    assert reconcile(DeltaLog(str(tmp_path / "absent")), "p") is None
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "part-00000-x.snappy.parquet").write_bytes(b"")
    assert reconcile(DeltaLog(str(tmp_path)), "p") is None


def test_foreign_files_are_not_a_target(tmp_path: Path) -> None:
    (tmp_path / "part-00000-x.snappy.parquet").write_bytes(b"")
    with pytest.raises(NotADeltaTable):
        reconcile(DeltaLog(str(tmp_path)), "p")


@pytest.mark.parametrize(
    "foreign",
    [
        lambda t: t.overwrite(),
        lambda t: t.overwrite(canOverwriteSchema=True),
        lambda t: t.truncate(),
        lambda t: t.delete('["true"]'),
        lambda t: t.delete("[]"),
        lambda t: t.commit(
            "STREAMING UPDATE", t.add(), *t.removes(), parameters={"outputMode": "Complete", "queryId": "q"}
        ),
        lambda t: t.replace_table("id-2"),
        lambda t: t.replace_table("id-2", "REPLACE TABLE"),
        lambda t: t.replace_table("id-2", "some operation without a name"),
    ],
)
def test_a_foreign_replacement_ends_the_proof(target: LogTable, foreign: Callable[[LogTable], int]) -> None:
    foreign(target)
    target.append()
    with pytest.raises(TargetReplaced, match="RESTORE the target to version 1"):
        look(target)


def test_a_table_that_a_job_made_again_is_not_proven(tmp_path: Path) -> None:
    """The target was dropped while the job worked; Spark's append made another one."""
    made = LogTable(tmp_path / "again", table_id="id-2")
    made.write_seal(seal(102, 9, planned_on=TableVersion("id-1", 1)))
    with pytest.raises(TargetRecreated, match=r"version 0, .* was planned on version 1"):
        look(made)
    # A reset has all rows.
    complete = LogTable(tmp_path / "complete", table_id="id-2")
    complete.write_seal(seal(102, 9, kind="reset", planned_on=TableVersion("id-1", 1)))
    assert proven(complete) == (9, 103)


def test_a_restore_is_noted(target: LogTable) -> None:
    assert look(target).notes == ()
    target.restore(0)
    assert "restored in version 2 to version 0" in look(target).notes[0]


def test_restore_undoes_a_replacement_and_does_it_again(target: LogTable) -> None:
    target.overwrite()
    target.append()
    target.restore(2)
    with pytest.raises(TargetReplaced):
        look(target)
    target.restore(1)
    assert proven(target) == (8, 102)
    target.replace_table("id-2")
    target.table_id = "id-1"
    target.restore(1)
    assert proven(target) == (8, 102)


def test_restore_to_a_time_is_refused_until_a_restore_by_version(target: LogTable) -> None:
    """Delta logs the time in the writer's time zone, and does not log the zone."""
    restored = target.restore(1, timestamp="2020-01-01 00:00:01.500")
    with pytest.raises(WatermarkExpired, match=f"Version {restored} .* is a RESTORE to a time") as caught:
        look(target)
    assert "by its number" in caught.value.remedy
    target.restore(1)
    assert proven(target) == (8, 102)


def test_a_txn_of_another_number_is_no_seal(target: LogTable) -> None:
    txn = {"txn": {"appId": "delta-cdc/p", "version": 150}}
    target.commit("WRITE", target.add(), txn, user_metadata=seal(151, 12).to_json())
    with pytest.raises(SealUnreadable, match="Version 2 of the target"):
        look(target)


def test_a_target_that_a_newer_release_wrote_is_refused_until_it_is_restored(target: LogTable) -> None:
    """This is the rollback of docs/reference/upgrade.md."""
    for number in (102, 103):
        later = {**json.loads(seal(number, 9).to_json()), "delta_cdc": SEAL_FORMAT + 1}
        txn = {"txn": {"appId": "delta-cdc/p", "version": number}}
        target.commit("MERGE", target.add(), txn, user_metadata=json.dumps(later))
    with pytest.raises(
        SealUnreadable, match=f"format {SEAL_FORMAT + 1}; this release reads format {SEAL_FORMAT}"
    ) as caught:
        look(target)
    assert "Upgrade and rollback" in caught.value.remedy
    target.restore(1)
    assert proven(target) == (8, 104)


@pytest.mark.parametrize(
    "between",
    [
        lambda t: t.restore(0),
        lambda t: t.truncate(),
        lambda t: t.overwrite(),
        lambda t: t.replace_table("id-2"),
    ],
)
def test_changed_between_planning_and_commit(target: LogTable, between: Callable[[LogTable], int]) -> None:
    between(target)
    target.write_seal(seal(102, 9, planned_on=TableVersion("id-1", 1)))
    with pytest.raises(TargetChangedUnderneath, match=r"RESTORE the (target|table) to version 2"):
        look(target)


def test_the_sealed_commit_was_cleaned(target: LogTable) -> None:
    from deltalake import DeltaTable

    target.append()
    target.append()
    DeltaTable(target.uri).create_checkpoint()
    for version in (0, 1, 2):
        target.file(version).unlink()
    with pytest.raises(WatermarkExpired, match="log retention removed version 2"):
        look(target)


def test_commits_between_plan_and_seal_were_cleaned(target: LogTable) -> None:
    """Only a run that published the seal proves what the commits that are gone did."""
    target.optimize()
    sealed = seal(102, 9, planned_on=TableVersion("id-1", 1))
    target.write_seal(sealed)
    target.checkpoint(0, 1, 2)
    for copy in (None, seal(102, 8, planned_on=TableVersion("id-1", 1)), sealed):
        kept = None if copy is None else WatermarkBackup(copy, TableVersion("id-1", 3)).to_dict()
        found = partial(reconcile, DeltaLog(target.uri), "p", backup=lambda kept=kept: kept)
        if copy is sealed:
            recorded = found()
            assert recorded is not None
            assert recorded.seal == sealed
            assert recorded.commit is not None
        else:
            with pytest.raises(WatermarkExpired, match="Log retention removed version 2 between them"):
                found()


def test_a_job_commits_nothing_after_commits_that_were_cleaned() -> None:
    optimize = {"version": 3, "operation": "OPTIMIZE", "operationParameters": {}}
    now, planned = TableState("id-1", 3, False, {}), TableVersion("id-1", 1)
    for rows, wanted in (([optimize], "were cleaned"), ([optimize, {**optimize, "version": 2}], "")):
        found = SimpleNamespace(collect=lambda rows=rows: rows)
        session: Any = SimpleNamespace(
            sql=lambda text, found=found: SimpleNamespace(select=lambda *names: found)
        )
        assert wanted in (overtaken(session, "/t", planned, now) or "")
        assert bool(wanted) == (overtaken(session, "/t", planned, now) is not None)


def test_a_hole_in_the_targets_log(target: LogTable) -> None:
    target.append()
    target.append()
    target.file(2).unlink()
    with pytest.raises(LogGap) as caught:
        look(target)
    assert "move the table away" in caught.value.remedy
    assert "source" not in caught.value.remedy


def test_transaction_retention_is_refused(target: LogTable) -> None:
    name = "delta.setTransactionRetentionDuration"
    target.set_properties(**{name: "interval 1 day"})
    with pytest.raises(TransactionRetentionSet, match="UNSET TBLPROPERTIES"):
        look(target)


@pytest.mark.parametrize("sets_baseline", [False, True])
def test_a_lost_transaction_is_not_taken_for_a_first_run(target: LogTable, sets_baseline: bool) -> None:
    """As after delta.setTransactionRetentionDuration was set for a while, and a checkpoint was written."""
    target.checkpoint()
    (file,) = target.file(0).parent.glob("*.checkpoint.parquet")
    actions = pq.read_table(file)
    pq.write_table(actions.filter(pc.is_null(actions["txn"])), file)
    target.append()
    with pytest.raises(TargetWithoutWatermark, match="version 2 has lost their transaction"):
        run_sync(reconcile_async(DeltaLog(target.uri), "p", declared=sets_baseline))
    found = run_sync(reconcile_async(DeltaLog(target.uri), "another", declared=True))
    assert found is not None
    assert found.seal is None


def test_rows_without_a_seal_of_ours(target: LogTable, tmp_path: Path) -> None:
    with pytest.raises(TargetWithoutWatermark, match="seals of other pipelines: p"):
        reconcile(DeltaLog(target.uri), "renamed")
    made = LogTable(tmp_path / "t").create()
    made.append()
    with pytest.raises(TargetWithoutWatermark) as failed:
        look(made)
    assert "other pipelines" not in str(failed.value)


def test_two_planners_of_an_empty_table_want_the_same_number(tmp_path: Path) -> None:
    made = LogTable(tmp_path / "t", created=EPOCH + 77).create()
    proofs = [look(made), look(made)]
    assert [recorded.next_number for recorded in proofs] == [EPOCH + 77] * 2
    assert all(recorded.seal is None and recorded.empty for recorded in proofs)


def test_restored_to_before_the_first_seal_and_empty(tmp_path: Path) -> None:
    made = LogTable(tmp_path / "t").create()
    made.write_seal(seal(100, 5, kind="load"))
    made.restore(0)
    recorded = look(made)
    assert (recorded.seal, recorded.next_number, recorded.empty) == (None, 101, True)


# -- what a caller can go on without ------------------------------------------------------------
FORGIVEN = (TargetReplaced, TargetWithoutWatermark)


def forgiven(table: LogTable) -> RecordedWatermark:
    recorded = run_sync(reconcile_async(DeltaLog(table.uri), "p", forgiven=FORGIVEN))
    assert recorded is not None
    return recorded


def test_an_error_that_is_forgiven_leaves_the_number_that_comes_next(target: LogTable) -> None:
    assert forgiven(target).refused is None
    target.truncate()
    recorded = forgiven(target)
    assert (recorded.seal, recorded.next_number, recorded.target.version) == (None, 102, 2)
    assert isinstance(recorded.refused, TargetReplaced)
    with pytest.raises(TargetReplaced):
        look(target)


def test_a_table_by_hand_that_is_forgiven_has_one_first_number(tmp_path: Path) -> None:
    table = LogTable(tmp_path / "other").create()
    table.append()
    assert [forgiven(table).next_number for _ in range(2)] == [EPOCH, EPOCH]
    assert isinstance(forgiven(table).refused, TargetWithoutWatermark)


def test_other_errors_are_not_forgiven(target: LogTable) -> None:
    target.truncate()
    target.write_seal(seal(102, 9, planned_on=TableVersion("id-1", 1)))
    with pytest.raises(TargetChangedUnderneath):
        forgiven(target)


def test_an_adopted_target_stays_adopted_whatever_happened_to_it(target: LogTable) -> None:
    target.write_seal(seal(102, 8, planned_on=TableVersion("id-1", 1), successor="q"), rows=False)
    target.truncate()
    for asked in (look, forgiven):
        with pytest.raises(PipelineTakenOver):
            asked(target)


@pytest.mark.parametrize("kind", ["repair", "reload", "reset"])
def test_a_restore_over_any_step(target: LogTable, kind: str) -> None:
    """The watermark is the one true where it goes; a repair does not change it, and counts by its number."""
    given = {"operation": "WRITE", "parameters": {"mode": "Overwrite"}} if kind == "reset" else {}
    planned = TableVersion("id-1", 1)
    target.write_seal(seal(102, 8 if kind == "repair" else 12, kind=kind, planned_on=planned), **given)
    assert proven(target) == (8 if kind == "repair" else 12, 103)
    target.restore(0)
    assert proven(target) == (5, 103)
    target.restore(2)
    assert proven(target) == (8 if kind == "repair" else 12, 103)
    target.restore(1)
    assert proven(target) == (8, 103)


def test_what_came_between_planning_and_a_reset_is_gone_with_it(target: LogTable) -> None:
    target.replace_table("id-1")
    made = seal(102, 12, kind="reset", planned_on=TableVersion("id-1", 1))
    target.write_seal(made, operation="WRITE", parameters={"mode": "Overwrite"})
    assert proven(target) == (12, 103)
    target.truncate()
    with pytest.raises(TargetReplaced):
        look(target)
