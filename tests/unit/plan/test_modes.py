"""Repair, reload and reset, and the policies that make a reload of an error."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core import validation
from delta_cdc.core.errors import (
    ChangeFeedDisabled,
    ConfigurationDrift,
    InvalidConfiguration,
    PipelineTakenOver,
    RangeNotContiguous,
    RangeTooLong,
    SourceHistoryChanged,
    SourceTableReplaced,
    TargetChangedUnderneath,
    TargetReplaced,
    TargetWithoutWatermark,
    TransactionRetentionSet,
    VersionsExpired,
    WatermarkExpired,
)
from delta_cdc.core.options import APPLY, ApplyOptions
from delta_cdc.core.spec import ApplySpec, fingerprint, from_json, to_json
from delta_cdc.core.versions import VersionRange
from delta_cdc.core.watermark import TableVersion
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning import read_methods
from delta_cdc.planning.reconcile import reconcile
from tests.support.logs import EPOCH, FEED, SECOND, LogTable, changed, seal, unhashed
from tests.support.tables import KEYED, NOW, Tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from delta_cdc.core.steps import Step
    from delta_cdc.planning.plan import Plan

DAY = 86_400 * SECOND
TYPE_2 = replace(KEYED, stored_as_scd_type=2)
LOG = replace(KEYED, source_kind="change_log", sequence_by="at")
INSERTS = ApplyOptions(insert_only=True)


def steps(plan: Plan) -> tuple[Step, ...]:
    assert isinstance(plan.spec, ApplySpec)
    assert from_json(to_json(plan.spec)) == plan.spec
    return plan.spec.steps


def built(tables: Tables, watermark: int, options: ApplyOptions = KEYED, **changes: Any) -> None:
    tables.sealed(watermark, configuration=validation.described(options), **changes)


# -- what is refused ----------------------------------------------------------------------------
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"discard_history": True}, "discard_history is given with mode 'incremental'"),
    ({"repair_keys": "id = 1"}, "repair_keys and mode 'incremental' are given"),
    ({"mode": "reload", "repair_quarantined": True}, "repair_quarantined and mode 'reload' are given"),
    ({"mode": "repair"}, "nothing selects the keys"),
    ({"mode": "repair", "ending_version": 3}, "the range has no start"),
    (
        {"mode": "repair", "starting_version": 1, "ending_version": 2, "repair_keys": "true"},
        "repair_keys and a range are given",
    ),
    ({"mode": "repair", "repair_keys": "abs(id) = 1"}, "'abs' cannot stand at character 1 "),
    ({"mode": "repair", "repair_keys": "id = 1 OR v = 1"}, "'v' cannot stand at character 11 "),
    (
        {"mode": "repair", "repair_quarantined": True, "repair_keys": "true"},
        "repair_keys and repair_quarantined are",
    ),
    ({"mode": "reset", "options": TYPE_2}, "set discard_history"),
    ({"mode": "reset", "initial_load": {"none_at": 1}}, "initial_load is {'none_at': 1}"),
    ({"mode": "reload", "starting_version": 2}, "starting_version and mode 'reload'"),
    ({"mode": "reload", "max_versions": 2}, "max_versions and mode 'reload'"),
    ({"mode": "repair", "repair_keys": "true", "bytes_per_commit": 2}, "bytes_per_commit and mode 'repair'"),
    ({"mode": "reset", "staging": "/staging/x"}, "staging and mode 'reset'"),
    ({"mode": "reload", "options": INSERTS}, "insert_only and mode 'reload' are given"),
    (
        {"options": INSERTS, "on_versions_expired": "reload", "on_drift": "repair"},
        "insert_only and on_versions_expired 'reload', on_drift 'repair' are given",
    ),
    ({"options": LOG, "staging": "/staging/x"}, "staging and source_kind 'change_log'"),
]


@pytest.mark.parametrize(("changes", "said"), REFUSED, ids=[row[1][:40] for row in REFUSED])
def test_requests_that_cannot_be_meant(tables: Tables, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfiguration) as failed:
        tables.apply(**changes)
    assert said in str(failed.value)
    assert failed.value.argument in APPLY


# -- repair -------------------------------------------------------------------------------------
def test_the_keys_of_a_range_are_repaired_under_the_next_seal(tables: Tables) -> None:
    built(tables, 4, highest_sequence="9")
    plan = tables.apply(mode="repair", starting_version=2, ending_version=3)
    (step,) = steps(plan)
    assert (step.kind, step.starting_version, step.ending_version) == ("repair", 2, 3)
    assert (step.watermark.version, step.at, step.seal_number) == (4, 4, 101)
    assert (step.watermark.commit_hash, step.highest_sequence) == (tables.source.sha256(4), "9")
    assert (unhashed(step.planned_on), step.read.where, step.read.quarantined) == (
        TableVersion("id-1", 0),
        None,
        False,
    )
    assert [(s.starting_version, s.ending_version) for s in step.read.ranges] == [(2, 3)]
    assert plan.versions == VersionRange(2, 3)
    assert "the keys that 2-3 changed, as of version 4" in str(plan)


@pytest.mark.parametrize(
    ("options", "end", "read"), [(TYPE_2, 3, (2, 4)), (LOG, None, (2, 4))], ids=["history", "log"]
)
def test_a_repair_reads_from_its_start_up_to_the_watermark(
    tables: Tables, options: ApplyOptions, end: int | None, read: tuple[int, int]
) -> None:
    built(tables, 4, options, truncate_sequences=("3",))
    (step,) = steps(tables.apply(mode="repair", starting_version=2, ending_version=end, options=options))
    assert (step.starting_version, step.ending_version, step.watermark.version) == (2, end or 4, 4)
    assert step.truncate_sequences == ("3",)
    assert [(s.starting_version, s.ending_version) for s in step.read.ranges] == [read]


@pytest.mark.parametrize(
    ("options", "read"), [(KEYED, []), (LOG, []), (TYPE_2, [(1, 4)])], ids=["type 1", "log", "history"]
)
def test_chosen_keys_are_repaired(tables: Tables, options: ApplyOptions, read: list[Any]) -> None:
    built(tables, 4, options)
    plan = tables.apply(mode="repair", repair_keys="id = 'a'", options=options)
    (step,) = steps(plan)
    assert (step.read.where, step.starting_version, step.ending_version, step.at) == ("id = 'a'", 0, 4, 4)
    assert [(s.starting_version, s.ending_version) for s in step.read.ranges] == read
    assert "the keys where id = 'a', as of version 4" in str(plan)
    # From a start: what is older may be gone, or too much for one plan.
    later = {"mode": "repair", "repair_keys": "true", "starting_version": 3, "options": options}
    if not read:
        with pytest.raises(InvalidConfiguration, match="starting_version and keys to repair are given"):
            tables.apply(**later)
        return
    (step,) = steps(tables.apply(**later))
    assert [(s.starting_version, s.ending_version) for s in step.read.ranges] == [(3, 4)]


def test_a_repair_reads_what_a_version_changed_without_a_feed(tables: Tables) -> None:
    """Of type 1; history can't be told from the ends of a range."""
    tables.source.set_properties()
    tables.source.overwrite()
    tables.source.overwrite()
    built(tables, 8)
    (step,) = steps(tables.apply(mode="repair", starting_version=7))
    assert [(s.method, s.starting_version, s.ending_version, s.net) for s in step.read.ranges] == [
        ("snapshot_diff", 7, 7, True),
        ("snapshot_diff", 8, 8, True),
    ]
    built(tables, 8, TYPE_2, number=101)
    with pytest.raises(ChangeFeedDisabled):
        tables.apply(mode="repair", starting_version=7, options=TYPE_2)


def test_a_repair_beyond_the_watermark(tables: Tables) -> None:
    built(tables, 3)
    for given in ({"starting_version": 4}, {"starting_version": 2, "ending_version": 4}):
        with pytest.raises(RangeNotContiguous, match="the watermark of pipeline p is 3"):
            tables.apply(mode="repair", **given)


def test_a_repair_of_nothing(tables: Tables) -> None:
    with pytest.raises(InvalidConfiguration, match="pipeline p has not written to"):
        tables.apply(mode="repair", starting_version=1)
    built(tables, 5)
    tables.source.optimize()
    built(tables, 6, number=101)
    plan = tables.apply(mode="repair", starting_version=6)
    assert plan.spec is None
    assert "No commit in versions 6-6" in plan.notes[-1]


def test_a_repair_needs_the_source_as_of_the_watermark(tables: Tables) -> None:
    built(tables, 4)
    with pytest.raises(VersionsExpired):
        tables.apply(mode="repair", repair_keys="true", now=NOW + 8 * DAY)
    built(tables, 5, number=101)
    assert steps(tables.apply(mode="repair", repair_keys="true", now=NOW + 8 * DAY))


def test_a_repair_of_another_source(tables: Tables, tmp_path: Path) -> None:
    built(tables, 2)
    with pytest.raises(SourceTableReplaced):
        tables.apply(
            mode="repair",
            repair_keys="true",
            source=other_source(tables, tmp_path),
            on_source_replaced="reload",
        )


def test_history_is_not_repaired_from_before_its_load(tables: Tables) -> None:
    """The load brought rows as they were: no change before it is in the target."""
    built(tables, 5, TYPE_2, loaded_version=3)
    given: dict[str, Any] = {"mode": "repair", "options": TYPE_2}
    with pytest.raises(RangeNotContiguous, match="begins with the load of version 3"):
        tables.apply(starting_version=3, **given)
    (step,) = steps(tables.apply(repair_keys="true", **given))
    assert (step.starting_version, step.ending_version, step.before.loaded_version) == (4, 5, 3)
    assert [(s.starting_version, s.ending_version) for s in step.read.ranges] == [(4, 5)]
    built(tables, 5, TYPE_2, number=101, loaded_version=5)
    (step,) = steps(tables.apply(repair_keys="true", **given))
    assert (step.kind, step.read.ranges, step.watermark.version) == ("repair", (), 5), (
        "the source as it is tells it all"
    )
    built(tables, 5, KEYED, number=102, loaded_version=5)
    assert steps(tables.apply(mode="repair", starting_version=1)), "the state is that of the watermark"


@pytest.mark.parametrize(
    "given",
    [{}, {"mode": "repair", "repair_keys": "true"}, {"mode": "reload"}, {"now": NOW + 40 * DAY}],
    ids=["apply", "repair", "reload", "renew"],
)
def test_every_step_knows_what_the_seal_before_it_knew(tables: Tables, given: dict[str, Any]) -> None:
    """And the engine tells another type of sequence by its configuration."""
    horizons = ((1, "3"),)
    built(
        tables,
        5 if "now" in given else 4,
        LOG,
        loaded_version=2,
        horizons=horizons,
        truncate_sequences=("4",),
    )
    (step,) = steps(tables.apply(options=LOG, **given))
    before = step.before
    assert (before.loaded_version, before.horizons, step.truncate_sequences) == (2, horizons, ("4",))
    assert before.configuration == validation.described(LOG)


def test_a_long_repair(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_methods, "MOST_VERSIONS", 2)
    built(tables, 5)
    made = steps(tables.apply(mode="repair", starting_version=1))
    assert [(s.starting_version, s.ending_version) for s in made] == [(1, 2), (3, 4), (5, 5)]
    assert [s.seal_number for s in made] == [101, 102, 103]
    assert [s.at for s in made] == [5, 5, 5]
    assert [s.planned_on is None for s in made] == [False, True, True]
    built(tables, 5, TYPE_2, number=101)
    with pytest.raises(RangeTooLong, match="Versions 1-5"):
        tables.apply(mode="repair", starting_version=1, options=TYPE_2)


def test_a_replay_takes_the_keys_in_quarantine(tables: Tables) -> None:
    built(tables, 4)
    empty = tables.apply(mode="repair", repair_quarantined=True)
    assert empty.spec is None
    assert "there is nothing to repair" in empty.notes[-1]
    beside = LogTable(tables.target.path.with_name("target__quarantine")).create()
    assert tables.apply(mode="repair", repair_quarantined=True).spec is None
    beside.append()
    plan = tables.apply(mode="repair", repair_quarantined=True)
    (step,) = steps(plan)
    assert (step.kind, step.read.quarantined, step.read.ranges, step.at) == ("repair", True, (), 4)
    assert isinstance(plan.spec, ApplySpec)
    assert plan.spec.quarantine_uri == beside.uri
    assert "the keys in quarantine" in str(plan)


# -- reload -------------------------------------------------------------------------------------
def test_a_reload_moves_the_watermark_to_the_newest_version(tables: Tables) -> None:
    built(tables, 3, highest_sequence="7", truncate_sequences=("2",))
    plan = tables.apply(mode="reload")
    (step,) = steps(plan)
    assert (step.kind, step.starting_version, step.ending_version, step.at) == ("reload", 5, 5, 5)
    assert (step.seal_number, unhashed(step.planned_on)) == (101, TableVersion("id-1", 0))
    assert (step.watermark.commit_hash, step.highest_sequence) == (tables.source.sha256(5), "7")
    assert (step.truncate_sequences, step.source_columns) == (("2",), ("id", "name"))
    assert plan.versions == VersionRange(5, 5)
    assert "the difference to version 5" in str(plan)
    (step,) = steps(tables.apply(4, mode="reload"))
    assert step.ending_version == 4, "a retry keeps its end"
    (step,) = steps(tables.apply(2, mode="reload"))
    assert step.ending_version == 5, "an end before the watermark is of older work"
    assert steps(tables.apply(mode="reload", ending_version=3))[0].ending_version == 3
    with pytest.raises(RangeNotContiguous, match="would move the watermark back from 3"):
        tables.apply(mode="reload", ending_version=2)
    with pytest.raises(RangeNotContiguous, match="newest version"):
        tables.apply(mode="reload", ending_version=6)


@pytest.mark.parametrize("mode", ["reload", "reset"])
def test_without_a_target_it_is_a_load(tables: Tables, mode: str) -> None:
    (step,) = steps(tables.apply(mode=mode))
    assert step.kind == "load"


def other_source(tables: Tables, tmp_path: Path, **properties: str) -> str:
    again = LogTable(tmp_path / "again", table_id="other", configuration={**FEED, **properties}).create()
    again.append(at=EPOCH + DAY)
    return again.uri


def test_a_source_that_was_made_again_is_reloaded_if_so_said(tables: Tables, tmp_path: Path) -> None:
    known = {"horizons": ((1, "3"),), "loaded_version": 0}
    built(tables, 4, LOG, highest_sequence="7", truncate_sequences=("2",), **known)
    uri = other_source(tables, tmp_path, **{"delta_cdc.latenessHorizon": "3"})
    for mode in ("incremental", "reload"):
        with pytest.raises(SourceTableReplaced):
            tables.apply(source=uri, mode=mode, options=LOG)
        plan = tables.apply(source=uri, mode=mode, options=LOG, on_source_replaced="reload")
        (step,) = steps(plan)
        assert (step.kind, step.ending_version, step.before.applied_from) == ("reload", 1, 0)
        assert (step.highest_sequence, step.truncate_sequences, step.horizons) == (None, (), ())
        assert (step.before.horizons, step.before.loaded_version, step.before.configuration) == ((), 1, {})
        assert isinstance(plan.spec, ApplySpec)
        assert plan.spec.steps[-1].watermark.table_id == "other"
        assert "another table now" in plan.notes[-1]
        assert "(reload)" in plan.notes[-1]


def test_another_history_is_reloaded_too(tables: Tables) -> None:
    built(tables, 4)
    text = tables.source.file(4).read_text()
    tables.source.file(4).write_text(text.replace("Append", "append"))
    with pytest.raises(SourceHistoryChanged):
        tables.apply()
    (step,) = steps(tables.apply(on_source_replaced="reload"))
    assert (step.kind, step.ending_version) == ("reload", 5)
    tables.source.file(5).unlink()
    tables.source.file(4).unlink()
    (step,) = steps(tables.apply(on_source_replaced="reload"))
    assert step.ending_version == 3, "the versions are another history's"


@pytest.mark.parametrize(
    ("options", "goes_on"),
    [
        (TYPE_2, False),
        (replace(TYPE_2, sequence_by="at", delete_sequence="_commit_version"), False),
        (replace(TYPE_2, sequence_by="_commit_timestamp"), True),
        (KEYED, True),
        (replace(LOG, stored_as_scd_type=2), True),
    ],
)
def test_a_history_of_versions_does_not_go_on_in_another_table(
    tables: Tables, tmp_path: Path, options: ApplyOptions, goes_on: bool
) -> None:
    built(tables, 4, options)
    given = {"source": other_source(tables, tmp_path), "options": options, "on_source_replaced": "reload"}
    if goes_on:
        assert steps(tables.apply(**given))[0].kind == "reload"
    else:
        with pytest.raises(SourceTableReplaced, match="are versions of the earlier table"):
            tables.apply(**given)


def test_expired_versions_are_reloaded_if_so_said(tables: Tables) -> None:
    built(tables, 3)
    late = NOW + 8 * DAY
    plan = tables.apply(now=late, on_versions_expired="reload")
    (step,) = steps(plan)
    assert (step.kind, step.ending_version, step.seal_number) == ("reload", 5, 101)
    assert "longer than delta.deletedFileRetentionDuration" in plan.notes[-1]
    with pytest.raises(VersionsExpired):
        tables.apply(now=late, on_versions_expired="reload", ending_version=4)


# -- a target that is not as we left it ---------------------------------------------------------
@pytest.mark.parametrize(
    "happens",
    [lambda t: t.truncate(), lambda t: t.overwrite(), lambda t: t.replace_table("id-2")],
    ids=["truncate", "overwrite", "replace"],
)
def test_a_target_that_was_replaced_is_reloaded_if_so_said(
    tables: Tables, happens: Callable[[LogTable], int]
) -> None:
    built(tables, 3, highest_sequence="7")
    happens(tables.target)
    with pytest.raises(TargetReplaced, match="on_target_replaced"):
        tables.apply()
    with pytest.raises(TargetReplaced):
        tables.apply(mode="reload")
    plan = tables.apply(on_target_replaced="reload")
    (step,) = steps(plan)
    assert (step.kind, step.ending_version, step.seal_number) == ("reload", 5, 101)
    assert unhashed(step.planned_on) == TableVersion(tables.target.table_id, 1)
    assert step.before is None, "nothing that the target holds is known to be right"
    assert "was replaced after version 0" in plan.notes[-1]
    # What is committed then proves like any other seal.
    made = seal(101, 5, source=tables.source, kind="reload", planned_on=step.planned_on)
    tables.target.write_seal(changed(made, configuration=validation.described(KEYED)))
    assert tables.apply().spec is None


@pytest.mark.parametrize("mode", ["incremental", "reset"])
def test_a_target_that_was_adopted_is_not_taken_back_by_a_policy(tables: Tables, mode: str) -> None:
    built(tables, 3)
    made = seal(101, 3, source=tables.source, planned_on=TableVersion("id-1", 0), successor="other")
    tables.target.write_seal(made, rows=False)
    tables.target.truncate()
    with pytest.raises(PipelineTakenOver):
        tables.apply(on_target_replaced="reload", mode=mode)


# -- reset --------------------------------------------------------------------------------------
def test_a_reset_is_a_load_in_the_place_of_all_rows(tables: Tables) -> None:
    built(tables, 3, TYPE_2, highest_sequence="7")
    plan = tables.apply(mode="reset", options=TYPE_2, discard_history=True)
    (step,) = steps(plan)
    assert (step.kind, step.ending_version, step.before) == ("reset", 5, None)
    assert (step.seal_number, unhashed(step.planned_on)) == (101, TableVersion("id-1", 0))
    assert (step.highest_sequence, step.truncate_sequences) == (None, ())
    assert "Reset: the run deletes all rows" in plan.notes[0]
    assert "the snapshot of version 5, which replaces all rows" in str(plan)


def test_a_reset_may_start_in_the_past(tables: Tables) -> None:
    built(tables, 5)
    reset, changes = steps(tables.apply(mode="reset", starting_version=3))
    assert (reset.kind, reset.ending_version, reset.seal_number) == ("reset", 2, 101)
    assert (changes.kind, changes.starting_version, changes.seal_number) == ("apply", 3, 102)
    reset, _ = steps(tables.apply(mode="reset", starting_version=0))
    assert (reset.kind, reset.read.is_empty) == ("reset", True)


def test_a_reset_ignores_what_it_throws_away(tables: Tables, tmp_path: Path) -> None:
    built(tables, 3, TYPE_2)
    (step,) = steps(tables.apply(mode="reset", source=other_source(tables, tmp_path)))
    assert (step.kind, step.ending_version, step.seal_number) == ("reset", 1, 101)
    tables.target.truncate()
    assert steps(tables.apply(mode="reset"))[0].seal_number == 101


def by_hand(tables: Tables) -> None:
    tables.target.create()
    tables.target.append()


def underneath(tables: Tables) -> None:
    built(tables, 3)
    tables.target.truncate()
    made = seal(101, 4, source=tables.source, planned_on=TableVersion("id-1", 0))
    tables.target.write_seal(made)


def expired(tables: Tables) -> None:
    built(tables, 3)
    tables.target.append()
    tables.target.checkpoint(0)


@pytest.mark.parametrize(
    ("happens", "error", "number"),
    [
        (by_hand, TargetWithoutWatermark, EPOCH),
        (underneath, TargetChangedUnderneath, 102),
        (expired, WatermarkExpired, 101),
    ],
)
def test_a_reset_needs_no_proof(
    tables: Tables, happens: Callable[[Tables], None], error: type[Exception], number: int
) -> None:
    happens(tables)
    for given in ({}, {"on_target_replaced": "reload"}, {"mode": "reload"}):
        with pytest.raises(error):
            tables.apply(**given)
    plan = tables.apply(mode="reset")
    (step,) = steps(plan)
    assert (step.kind, step.seal_number) == ("reset", number)
    assert unhashed(step.planned_on) == TableVersion("id-1", tables.target.version)
    assert tables.target.uri in plan.notes[0]


def test_a_reset_does_not_forget_how_transactions_are_kept(tables: Tables) -> None:
    built(tables, 3)
    tables.target.set_properties(**{"delta.setTransactionRetentionDuration": "interval 1 day"})
    with pytest.raises(TransactionRetentionSet):
        tables.apply(mode="reset")


def sealed_reset(tables: Tables, number: int, watermark: int, planned: int) -> None:
    """Write what a reset commits: an overwrite of our own."""
    made = seal(
        number, watermark, source=tables.source, kind="reset", planned_on=TableVersion("id-1", planned)
    )
    made = changed(made, configuration=validation.described(KEYED))
    tables.target.write_seal(made, operation="WRITE", parameters={"mode": "Overwrite"})


def test_a_reset_of_our_own_is_no_replacement(tables: Tables) -> None:
    """Nor does it matter what lay underneath. One that is taken back doesn't count, but for its number."""
    built(tables, 3)
    tables.target.truncate()
    sealed_reset(tables, 101, 5, planned=0)
    assert tables.apply().spec is None
    for watermark in (5, 3):
        recorded = reconcile(DeltaLog(tables.target.uri), "p")
        assert (recorded.seal.watermark.version, recorded.next_number) == (watermark, 102)
        tables.target.restore(0)


# -- drift --------------------------------------------------------------------------------------
def test_drift_is_accepted_or_repaired_by_a_reload(tables: Tables) -> None:
    built(tables, 3)
    now = replace(KEYED, where="id > 'a'")
    with pytest.raises(ConfigurationDrift):
        tables.apply(options=now)
    plan = tables.apply(options=now, on_drift="accept")
    assert [step.kind for step in steps(plan)] == ["apply"]
    assert "built with where = all, and now where = id > 'a'" in plan.notes[0]
    built(tables, 5, number=101)
    plan = tables.apply(options=now, on_drift="repair")
    assert [step.kind for step in steps(plan)] == ["reload"], "though nothing is new"
    assert "is accepted" in plan.notes[0]
    assert tables.apply(options=KEYED, on_drift="repair").spec is None, "no drift, no reload"


def test_drift_is_not_repaired_by_a_repair_of_some_keys(tables: Tables) -> None:
    """Its seal would carry the new options, and the reload of all other keys would never come."""
    built(tables, 5)
    now = replace(KEYED, where="id > 'a'")
    some: dict[str, Any] = {"mode": "repair", "repair_keys": "true"}
    with pytest.raises(ConfigurationDrift, match="now where = id > 'a' is given") as failed:
        tables.apply(options=now, on_drift="repair", **some)
    assert "would record the new options in the seal" in failed.value.message
    assert 'mode "incremental" or "reload" first' in failed.value.remedy
    for given in ({"options": now, "on_drift": "accept"}, {"on_drift": "repair"}):
        assert [step.kind for step in steps(tables.apply(**some, **given))] == ["repair"]


def test_a_dry_run_is_the_same_plan(tables: Tables) -> None:
    built(tables, 3)
    plan, dry = tables.apply(), tables.apply(dry_run=True)
    assert isinstance(plan.spec, ApplySpec)
    assert isinstance(dry.spec, ApplySpec)
    assert (plan.spec.dry_run, dry.spec.dry_run) == (False, True)
    assert plan.spec.steps == dry.spec.steps


# -- runs that need an approval -----------------------------------------------------------------------
NEEDS = ("reset", "reload", "drift")


def reason(plan: Plan) -> str | None:
    """Return why a person must approve the plan's first step; None if none must."""
    (first, *later) = steps(plan)
    assert isinstance(plan.spec, ApplySpec)
    guard = plan.spec.guard
    assert {guard.reason_to_ask(step.seal_number) for step in later} <= {None}
    return guard.reason_to_ask(first.seal_number)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"mode": "reset"}, "reset"),
        ({"mode": "reload"}, "reload"),
        ({"options": replace(KEYED, where="id > 1"), "on_drift": "accept"}, "drift"),
        (
            {"options": replace(KEYED, where="id > 1"), "on_drift": "accept", "versions_per_commit": 1},
            "drift",
        ),
    ],
)
def test_a_run_of_this_name_needs_an_approval(tables: Tables, given: dict[str, Any], name: str) -> None:
    built(tables, 3)
    found = reason(tables.apply(**given, approval_for=NEEDS))
    assert found is not None
    assert found.endswith(f"and approval_for has {name}")
    others = tuple(other for other in NEEDS if other != name)
    for needs in (None, others):
        assert reason(tables.apply(**given, approval_for=needs)) is None
    # The name of the reason is no part of the plan: a retry recognizes its commit.
    approved, plain = tables.apply(**given, approval_for=NEEDS), tables.apply(**given)
    assert fingerprint(approved.spec) == fingerprint(plain.spec)  # type: ignore[arg-type]


def test_a_reload_by_a_policy_needs_an_approval(tables: Tables, tmp_path: Path) -> None:
    built(tables, 4)
    given = {"source": other_source(tables, tmp_path), "on_source_replaced": "reload"}
    for mode in ("incremental", "reload"):
        found = reason(tables.apply(**given, mode=mode, approval_for=("reload",)))
        assert found == "it would compute all rows again, and approval_for has reload"
    now = replace(KEYED, where="id > 1")
    found = reason(tables.apply(options=now, on_drift="repair", approval_for=NEEDS))
    assert found is not None
    assert found.count("approval_for has") == 2, "new options, and a reload"


def test_what_replaces_nothing_needs_no_approval(tables: Tables) -> None:
    for mode in ("incremental", "reload", "reset"):
        assert reason(tables.apply(mode=mode, approval_for=NEEDS)) is None
    built(tables, 3)
    assert reason(tables.apply(approval_for=NEEDS)) is None
