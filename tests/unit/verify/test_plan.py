"""What the logs alone tell of a target."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core import spec as specs
from delta_cdc.core import validation
from delta_cdc.core.checks import CHECKS, OF_LOGS, Check, Verification, finding
from delta_cdc.core.errors import (
    ConflictingEvents,
    CorruptLog,
    InvalidConfiguration,
    InvalidExpression,
    JobRefused,
    KeyNotUnique,
    TableNotFound,
    VerificationFailed,
    VersionsExpired,
)
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.spec import BatchSpec, JobResult, VerifySpec
from delta_cdc.core.watermark import TableVersion
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.plan import JobPlan
from delta_cdc.planning.reconcile import WatermarkBackup
from delta_cdc.planning.verify import VerifyRequest, plan_verify_async
from delta_cdc.run.verify import raise_if_wrong, run_verify
from delta_cdc.spark.verify import engine
from tests.support.logs import FEED, LogTable, changed, seal, unhashed
from tests.support.tables import KEYED, NOW, Tables

if TYPE_CHECKING:
    from pathlib import Path

OF_TYPE_1 = ("null_keys", "unique_keys", "equals_source")


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """A source with versions 0-5, and a target that is sealed at 4."""
    made = Tables.made_in(tmp_path)
    made.sealed(2)
    made.sealed(4, number=101)
    return made


Planned = JobPlan[VerifySpec, Verification]


def planned(tables: Tables, now: int = NOW, **changes: Any) -> Planned:
    request = VerifyRequest(**{"pipeline": "p", "target": tables.target.uri, **changes})
    return run_sync(plan_verify_async(request, now_ms=now))


def told(plan: Planned) -> dict[str, str]:
    return {check.check: check.status for check in plan.outcome.checks}


def check_of(plan: Planned, name: str) -> Check:
    return next(check for check in plan.outcome.checks if check.check == name)


def test_a_sound_target(tables: Tables) -> None:
    plan = planned(tables)
    assert (plan.outcome.version, plan.outcome.table) == (1, tables.target.uri)
    assert told(plan) == {
        "seal": "ok",
        "watermark": "ok",
        "backup": "skipped",
        "configuration": "skipped",
        "one_open_row": "skipped",
        "overlaps": "skipped",
        "start_before_end": "skipped",
        "current_equals_history": "skipped",
    }
    assert "watermark 4" in check_of(plan, "seal").detail
    made = plan.spec
    assert made.compared is not None
    assert (made.target_version, made.checks, made.options.keys) == (1, OF_TYPE_1, ("id",))
    step = made.compared
    assert (step.kind, step.ending_version, unhashed(step.planned_on)) == (
        "reload",
        4,
        TableVersion(tables.target.table_id, 1),
    )
    assert made.source_uri == tables.source.uri
    bundle = BatchSpec(run_id="r", parts=(made,), parallel=2)
    assert specs.from_json(specs.to_json(bundle)) == bundle


def test_only_what_is_asked_for(tables: Tables) -> None:
    assert planned(tables, wanted=("watermark", "seal")).spec is None
    plan = planned(tables, wanted=("unique_keys", "overlaps"))
    assert told(plan) == {"overlaps": "skipped"}
    assert plan.spec.checks == ("unique_keys",)
    with pytest.raises(InvalidConfiguration, match="did you mean 'overlaps'"):
        planned(tables, wanted=("overlap",))
    with pytest.raises(InvalidConfiguration, match="empty"):
        planned(tables, wanted=())


def test_history_has_checks_of_its_own(tables: Tables) -> None:
    written = {"keys": ["id"], "scd_type": 2, "start_column": "since", "end_column": "until"}
    tables.sealed(5, number=102, configuration=written)
    plan = planned(tables)
    assert told(plan)["unique_keys"] == "skipped"
    assert plan.spec.checks == ("null_keys", "one_open_row", "overlaps", "start_before_end", "equals_source")
    assert (plan.spec.options.start_column, plan.spec.options.end_column) == ("since", "until")


def test_without_keys_there_is_nothing_to_count_by(tables: Tables) -> None:
    tables.sealed(5, number=102, configuration={"keys": [], "scd_type": 1})
    plan = planned(tables)
    assert told(plan)["unique_keys"] == told(plan)["null_keys"] == "skipped"
    assert plan.spec.compared is not None
    assert plan.spec.checks == ("equals_source",)
    assert plan.spec.options.insert_only
    assert plan.spec.source_keeps_all
    tables.source.set_properties(delta_cdc__latenessHorizon="3")
    expired = planned(tables).spec
    assert not expired.source_keeps_all


# -- the watermark ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("commits", "message"),
    [
        (0, "its log ends before it"),
        (2, "the commit file of that version differs"),
        (5, "file of that version"),
    ],
    ids=["shorter", "as long", "longer"],
)
def test_a_source_that_was_put_back(tables: Tables, commits: int, message: str) -> None:
    """It may have gone on otherwise. The rows are looked at all the same."""
    for version in (3, 4, 5):
        tables.source.file(version).unlink()
    tables.source.version = 2
    for _ in range(commits):
        tables.source.delete("true")
    plan = planned(tables)
    found = check_of(plan, "watermark")
    assert found.status == "finding"
    assert message in found.detail
    assert "on_source_replaced" in found.remedy
    assert told(plan)["equals_source"] == "skipped"
    assert plan.spec.checks == ("null_keys", "unique_keys")


def test_a_source_that_is_another_table_or_gone(tables: Tables, tmp_path: Path) -> None:
    other = LogTable(tmp_path / "other", table_id="other-id", configuration=dict(FEED)).create()
    for _ in range(6):
        other.delete("true")
    found = check_of(planned(tables, source=other.uri), "watermark")
    assert (found.status, "other-id" in found.detail) == ("finding", True)
    shutil.rmtree(tables.source.path)
    plan = planned(tables)
    assert check_of(plan, "watermark").status == "finding"
    assert told(plan)["equals_source"] == "skipped"


def test_a_replaced_source_that_goes_on_is_sound(tables: Tables) -> None:
    tables.source.replace_table("new-id")
    found = check_of(planned(tables), "watermark")
    assert found.status == "ok"
    assert "new-id" in found.detail


def test_a_version_that_nobody_can_read_any_more(tables: Tables) -> None:
    late = NOW + 8 * 86_400_000
    plan = planned(tables, now=late)
    found = check_of(plan, "equals_source")
    assert (found.status, "deletedFileRetentionDuration" in found.detail) == ("skipped", True)
    assert told(plan)["watermark"] == "ok"
    assert plan.spec.checks == ("null_keys", "unique_keys")
    # A change by hand is a finding, even if there is nothing to compare the rows with.
    tables.target.append()
    found = check_of(planned(tables, now=late), "equals_source")
    assert (found.status, found.count) == ("finding", 1)
    assert "no pipeline made these changes of the target: WRITE in version 2." in found.detail
    assert 'mode="reload"' in found.remedy
    # The newest version is there for as long as the table is.
    tables.sealed(5, number=102)
    assert "equals_source" in (planned(tables, now=late).spec or pytest.fail("nothing to do")).checks


# -- the seal -----------------------------------------------------------------------------------
def test_no_table_is_a_finding_and_an_empty_one_is_none(tables: Tables, tmp_path: Path) -> None:
    plan = planned(tables, target=str(tmp_path / "nowhere"))
    assert (plan.outcome.version, plan.spec) == (None, None)
    assert check_of(plan, "seal").status == "finding"
    assert {status for name, status in told(plan).items() if name != "seal"} == {"skipped"}
    empty = LogTable(tmp_path / "empty").create()
    assert set(told(planned(tables, target=empty.uri)).values()) == {"skipped"}


def test_what_is_wrong_with_a_seal_is_told_by_its_name(tables: Tables) -> None:
    assert check_of(planned(tables, pipeline="other"), "seal").status == "finding"
    tables.target.overwrite()
    plan = planned(tables)
    found = check_of(plan, "seal")
    assert (found.status, plan.spec) == ("finding", None)
    assert "was replaced" in found.detail
    assert "RESTORE" in found.remedy
    # With the keys at hand, the rows tell something all the same.
    rows = planned(tables, options=KEYED).spec
    assert (rows.checks, rows.target_version, rows.compared) == (("null_keys", "unique_keys"), 2, None)


def test_a_restored_target_is_sound_at_the_watermark_that_is_true_there(tables: Tables) -> None:
    copy = WatermarkBackup(
        seal(101, 4, source=tables.source), TableVersion(tables.target.table_id, 1)
    ).to_dict()
    tables.target.restore(0)
    plan = planned(tables, backup=lambda: copy)
    assert "watermark 2" in check_of(plan, "seal").detail
    # The log still knows the number of the seal that the RESTORE took back.
    assert told(plan)["backup"] == "ok"
    assert plan.spec.compared.ending_version == 2


def test_a_copy_outside_that_knows_more_than_the_target(tables: Tables) -> None:
    known = WatermarkBackup(seal(101, 4, source=tables.source), TableVersion(tables.target.table_id, 1))
    assert told(planned(tables, backup=known.to_dict))["backup"] == "ok"
    assert told(planned(tables, backup=lambda: {"seal": "nonsense"}))["backup"] == "skipped"
    ahead = replace(
        known,
        seal=changed(known.seal, number=102, applied_to=replace(known.seal.watermark, version=5)),
        target=TableVersion(known.target.table_id, 2),
    )
    found = check_of(planned(tables, backup=ahead.to_dict), "backup")
    assert (found.status, "seal 102, watermark 5" in found.detail) == ("finding", True)
    edited = replace(known, seal=changed(known.seal, applied_to=replace(known.seal.watermark, version=5)))
    assert told(planned(tables, backup=edited.to_dict))["backup"] == "finding"


def test_a_copy_outside_of_another_commit_with_the_same_seal(tables: Tables) -> None:
    """No seal is planned on the newest commit yet, so only the copy shows that it was overwritten."""
    known = WatermarkBackup(
        seal(101, 4, source=tables.source),
        TableVersion(tables.target.table_id, 1, tables.target.sha256(1)),
    )
    assert check_of(planned(tables, backup=known.to_dict), "backup").status == "ok"
    file = tables.target.file(1)
    file.write_text(file.read_text().replace("part-00001-0", "part-00001-7"))
    found = check_of(planned(tables, backup=known.to_dict), "backup")
    assert (found.status, "in another commit" in found.detail) == ("finding", True)


def test_a_change_log_that_is_filled_from_files_has_a_seal_and_nothing_else(tables: Tables) -> None:
    tables.sealed(5, number=102, configuration={"ingest": {}})
    plan = planned(tables)
    assert plan.spec is None
    assert {name for name, status in told(plan).items() if status == "ok"} == {"seal"}


# -- configuration ------------------------------------------------------------------------------
def test_other_options_than_the_target_was_built_with(tables: Tables) -> None:
    assert told(planned(tables, options=KEYED))["configuration"] == "ok"
    other = ApplyOptions(keys=("id",), apply_as_deletes="id > 1", on_conflict="quarantine")
    tables.sealed(5, number=102, configuration=validation.described(KEYED))
    plan = planned(tables, options=other)
    found = check_of(plan, "configuration")
    assert (found.status, found.count, "id > 1" in found.detail) == ("finding", 1, True)
    assert told(planned(tables, options=other, takes_drift=True))["configuration"] == "skipped"
    # What is compared are rows that were made with the others.
    assert (plan.spec.options.apply_as_deletes, plan.spec.options.on_conflict) == (
        None,
        "quarantine",
    )


# -- another target -----------------------------------------------------------------------------
WRITTEN = {"keys": ["id"], "scd_type": 2, "start_column": "a", "end_column": "b"}


@pytest.fixture
def history(tables: Tables, tmp_path: Path) -> LogTable:
    """A history of the same source, by another pipeline, at the same watermark."""
    made = LogTable(tmp_path / "history", table_id="history-id")
    made.write_seal(seal(500, 4, source=tables.source, pipeline="h", configuration=WRITTEN))
    return made


def test_a_history_of_the_same_source(tables: Tables, history: LogTable) -> None:
    made = planned(tables, current=history.uri).spec
    assert (made.current.read.version, made.current.options.end_column) == (0, "b")
    assert "current_equals_history" in made.checks
    bundle = BatchSpec(run_id="r", parts=(made,))
    assert specs.from_json(specs.to_json(bundle)) == bundle


def test_another_watermark_compares_only_where_nothing_changed_in_between(
    tables: Tables, history: LogTable
) -> None:
    tables.source.optimize()
    tables.sealed(5, number=102)
    assert check_of(planned(tables, current=history.uri), "current_equals_history").status == "skipped"
    planned_on = TableVersion("history-id", 0)
    history.write_seal(
        seal(501, 6, source=tables.source, pipeline="h", configuration=WRITTEN, planned_on=planned_on)
    )
    assert "current_equals_history" in planned(tables, current=history.uri).spec.checks


@pytest.mark.parametrize("difference", ["filter", "source"])
def test_targets_of_other_rows_are_not_compared(tables: Tables, history: LogTable, difference: str) -> None:
    written = {**WRITTEN, "where": "id > 1"} if difference == "filter" else WRITTEN
    planned_on = TableVersion("history-id", 0)
    made = seal(501, 4, source=tables.source, pipeline="h", configuration=written, planned_on=planned_on)
    if difference == "source":
        made = changed(made, applied_to=replace(made.watermark, table_id="elsewhere"))
    history.write_seal(made)
    assert told(planned(tables, current=history.uri))["current_equals_history"] == "skipped"


def test_what_can_be_no_other_target(tables: Tables, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="no pipeline"):
        planned(tables, current=tables.source.uri)
    twin = LogTable(tmp_path / "twin", table_id="twin-id")
    twin.write_seal(seal(500, 4, source=tables.source, pipeline="t"))
    with pytest.raises(InvalidConfiguration, match="other type"):
        planned(tables, current=twin.uri)


# -- many tables --------------------------------------------------------------------------------
def requested(tables: Tables, **changes: Any) -> VerifyRequest:
    return VerifyRequest(**{"pipeline": "p", "target": tables.target.uri, **changes})


def parts(*results: JobResult) -> Any:
    asked: list[BatchSpec] = []

    def execute(spec: BatchSpec) -> JobResult:
        asked.append(spec)
        return JobResult("committed", parts=results[: len(spec.parts)])

    execute.asked = asked  # type: ignore[attr-defined]
    return execute


def test_nothing_runs_where_the_logs_tell_it_all(tables: Tables) -> None:
    run = parts()
    (found,) = run_verify([requested(tables, wanted=OF_LOGS)], execute=run)
    assert run.asked == []
    assert [check.check for check in found.checks] == list(OF_LOGS)


def test_many_targets_take_one_application_and_one_that_fails_stops_no_other(
    tables: Tables, tmp_path: Path
) -> None:
    (tmp_path / "broken" / "_delta_log").mkdir(parents=True)
    (tmp_path / "broken" / "_delta_log" / f"{0:020d}.json").write_text("no json")
    wrong = finding("unique_keys", "2 key(s).", "RESTORE it.", count=2, samples=("id = 1",))
    run = parts(
        JobResult("committed", tables=(wrong.to_dict(),)),
        JobResult("failed", error=VersionsExpired("gone.", remedy="do.").to_dict()),
    )
    broken = requested(tables, target=str(tmp_path / "broken"))
    found = run_verify([requested(tables), broken, requested(tables, wanted=("null_keys",))], execute=run)
    assert [len(bundle.parts) for bundle in run.asked] == [2]
    assert [type(one.error).__name__ for one in found] == ["NoneType", "CorruptLog", "VersionsExpired"]
    assert [check.check for check in found[0].checks] == [
        name for name in CHECKS if name not in ("null_keys", "equals_source")
    ]
    with pytest.raises(
        VerificationFailed, match=r"1 check\(s\) of 1 table\(s\).*unique_keys.*id = 1"
    ) as raised:
        raise_if_wrong(found)
    assert raised.value.remedy == "RESTORE it."
    # A target that could not be looked at is no finding, and no success either.
    with pytest.raises(CorruptLog, match="broken"):
        raise_if_wrong(found, findings=False)
    (row,) = [row for one in found for row in one.to_rows() if row["check"] == "unique_keys"]
    assert row == {
        "pipeline": "p",
        "table": tables.target.uri,
        "version": 1,
        "check": "unique_keys",
        "status": "finding",
        "count": 2,
        "detail": "2 key(s).",
        "samples": ["id = 1"],
        "remedy": "RESTORE it.",
    }


def test_a_version_that_went_away_meanwhile_is_looked_at_again(tables: Tables) -> None:
    gone = VersionsExpired("too old.", remedy="do.").to_dict()
    calls: list[int] = []

    def execute(spec: BatchSpec, *, lasting: bool) -> JobResult:
        part = spec.parts[0]
        calls.append(part.target_version)  # type: ignore[union-attr]
        if lasting or len(calls) == 1:
            tables.sealed(4, number=101 + len(calls))
            return JobResult("committed", parts=(JobResult("stale", message="too old", error=gone),))
        return JobResult("committed", parts=(JobResult("committed"),))

    (found,) = run_verify([requested(tables)], execute=partial(execute, lasting=False))
    assert (calls, found.version, found.error) == ([1, 2], 2, None)
    (found,) = run_verify([requested(tables)], execute=partial(execute, lasting=True))
    assert isinstance(found.error, VersionsExpired)


@pytest.mark.parametrize("first", ["baseline", "load"])
def test_rows_that_were_declared_prove_nothing(tmp_path: Path, first: str) -> None:
    tables = Tables.made_in(tmp_path)
    tables.sealed(2, kind=first)
    tables.sealed(4, number=101)
    tables.target.optimize()
    wrong = finding("equals_source", "3 missing.", "reload.", count=3)
    (found,) = run_verify(
        [requested(tables)], execute=parts(JobResult("committed", tables=(wrong.to_dict(),)))
    )
    (check,) = [check for check in found.checks if check.check == "equals_source"]
    assert (check.status, "3 missing" in check.detail) == (
        "skipped" if first == "baseline" else "finding",
        True,
    )


@pytest.mark.parametrize(
    ("error", "knows_on_conflict", "expected"),
    [
        (VersionsExpired("gone.", remedy="do."), True, "skipped"),
        (TableNotFound("gone.", remedy="do."), True, "skipped"),
        (ConflictingEvents("tied.", remedy="do."), False, "skipped"),
        (ConflictingEvents("tied.", remedy="do."), True, "finding"),
        (KeyNotUnique("twice.", remedy="do."), True, "finding"),
        (InvalidExpression("no column.", remedy="do."), True, "finding"),
        (ValueError("broken"), True, None),
    ],
)
def test_what_stops_a_comparison(
    tables: Tables, error: Exception, knows_on_conflict: bool, expected: str | None
) -> None:
    spec = planned(tables).spec
    assert not spec.knows_on_conflict
    assert getattr(planned(tables, on_conflict="quarantine").spec, "knows_on_conflict", None)

    def fails() -> Check:
        raise error

    if expected is None:
        with pytest.raises(JobRefused, match="broken"):
            engine._if_possible(spec, fails)
        return
    found = engine._if_possible(replace(spec, knows_on_conflict=knows_on_conflict), fails)
    assert (found.status, type(error).__name__ in found.detail) == (expected, True)


def test_what_is_told_stays_short() -> None:
    found = finding("overlaps", "x" * 5_000, "do.", samples=tuple("k" * 1_000 for _ in range(50)))
    assert (len(found.samples), len(found.samples[0]), len(found.detail)) == (5, 160, 600)
    assert Check.from_dict(found.to_dict()) == found
    raise_if_wrong([Verification("p", "t", 1, (found,))], findings=False)
