"""Steps without rows: re-sealing, declared state, adoption; and the backup that stands in for a seal."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core import validation
from delta_cdc.core.errors import (
    ConfigurationDrift,
    InvalidConfiguration,
    PipelineTakenOver,
    RangeNotContiguous,
    ReservedColumnName,
    SchemaChangeInRange,
    SealUnreadable,
    TargetSchemaClash,
    TargetWithoutWatermark,
    WatermarkExpired,
)
from delta_cdc.core.options import ApplyOptions, QueryOptions
from delta_cdc.core.versions import VersionRange
from delta_cdc.core.watermark import TableVersion
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.reconcile import WatermarkBackup, reconcile
from delta_cdc.spark.sealed.commit import sealed
from tests.support.logs import EPOCH, FEED, SECOND, field_of, seal, unhashed
from tests.support.tables import KEYED, NOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from delta_cdc.planning.plan import Plan
    from tests.support.tables import Tables

DAY = 86_400 * SECOND


def steps(plan: Plan) -> list[tuple[Any, ...]]:
    return [
        (s.kind, s.read.pipeline, s.starting_version, s.ending_version, s.seal_number) for s in plan.steps
    ]


# -- re-sealing ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("source", "target", "days", "due"),
    [
        ({}, {}, 3.4, False),
        ({}, {}, 3.6, True),
        ({"delta.deletedFileRetentionDuration": "interval 60 days"}, {}, 14.9, False),
        ({"delta.deletedFileRetentionDuration": "interval 60 days"}, {}, 15.1, True),
        ({}, {"delta.logRetentionDuration": "interval 2 days"}, 1.1, True),
        ({"delta.logRetentionDuration": "interval 2 days"}, {}, 1.1, True),
    ],
)
def test_an_idle_pipeline_seals_anew_at_half_of_the_shortest_retention(
    tables: Tables, source: dict[str, str], target: dict[str, str], days: float, due: bool
) -> None:
    tables.source.set_properties(**FEED, **source)
    tables.target.configuration = target
    tables.sealed(6, highest_sequence="41")
    plan = tables.apply(now=EPOCH + int(days * DAY))
    assert (plan.versions, plan.ending_version) == (None, 6)
    if not due:
        assert plan.spec is None
        return
    (step,) = plan.steps
    assert (step.kind, step.starting_version, step.ending_version, step.seal_number) == ("renew", 6, 6, 101)
    assert (step.highest_sequence, step.before.configuration["keys"]) == ("41", ["id"])
    assert unhashed(step.planned_on) == TableVersion("id-1", 0)
    assert "The run renews the seal." in plan.notes[-1]


def test_resealing_moves_the_watermark_over_maintenance(tables: Tables) -> None:
    """Else a source that is only OPTIMIZEd would run away from its watermark."""
    tables.sealed(5)
    tables.source.optimize()
    tables.source.optimize()
    (step,) = tables.apply(now=EPOCH + 4 * DAY).steps
    assert (step.kind, step.starting_version, step.ending_version) == ("renew", 6, 7)
    assert step.watermark.commit_hash == tables.source.sha256(7)


def test_resealing_does_not_carry_the_watermark_over_a_lost_column(tables: Tables) -> None:
    """The gate looks at the schema from the watermark on: behind it, nobody would see the change."""
    tables.sealed(5)
    tables.source.alter(field_of("id"), field_of("renamed"))
    assert tables.apply().spec is None
    with pytest.raises(SchemaChangeInRange, match="version 6"):
        tables.apply(now=EPOCH + 4 * DAY)


def test_a_pipeline_fed_by_staging_seals_anew_too(tables: Tables) -> None:
    """While staging waits for its read, it seals the watermark as it is."""
    staged: dict[str, Any] = {"staging": tables.staging.uri}
    tables.sealed(4)
    (step,) = tables.apply(now=EPOCH + 4 * DAY, **staged).steps
    assert (step.kind, step.starting_version, step.ending_version) == ("renew", 4, 4)
    tables.sealed(5, 101)
    tables.source.optimize()
    assert tables.apply(**staged).spec is None
    (step,) = tables.apply(now=EPOCH + 4 * DAY, **staged).steps
    assert (step.kind, step.ending_version) == ("renew", 6)


def test_work_comes_before_a_seal_that_is_due(tables: Tables) -> None:
    tables.sealed(4)
    assert [step.kind for step in tables.apply(now=EPOCH + 4 * DAY).steps] == ["apply"]


# -- the backup ---------------------------------------------------------------------------------
def backup_of(tables: Tables) -> dict[str, Any]:
    recorded = reconcile(DeltaLog(tables.target.uri), "p")
    assert recorded.seal is not None
    return WatermarkBackup(
        recorded.seal, TableVersion(recorded.target.table_id, recorded.commit.version)
    ).to_dict()


def clean(tables: Tables, more: int = 0) -> None:
    """Clean the target's log up to its seal, and ``more`` commits after it."""
    sealed = tables.target.version
    tables.target.append()
    tables.target.checkpoint(*range(sealed + 1 + more))
    tables.target.append()


def test_a_backup_of_the_newest_seal_is_as_good_as_the_seal(tables: Tables) -> None:
    tables.sealed(3)
    kept = backup_of(tables)
    clean(tables)
    with pytest.raises(WatermarkExpired):
        tables.apply()
    plan = tables.apply(backup=lambda: kept)
    assert plan.versions == VersionRange(4, 5)
    assert plan.steps[0].seal_number == 101
    assert "copy" in plan.notes[0]
    idle = tables.apply(backup=lambda: of_seal(tables), ending_version=3)
    assert [step.kind for step in idle.steps] == ["renew"], "sealed at once"


def test_a_backup_needs_every_commit_after_its_seal(tables: Tables) -> None:
    """A RESTORE among those that are gone would leave no trace: not even in the transaction."""
    tables.sealed(3)
    kept = backup_of(tables)
    clean(tables, more=1)
    with pytest.raises(WatermarkExpired, match="outside of the target has watermark 3 for version 0"):
        tables.apply(backup=lambda: kept)


def of_seal(tables: Tables, table: str = "id-1", **changes: Any) -> dict[str, Any]:
    made = replace(seal(100, 3, source=tables.source), **changes)
    return WatermarkBackup(made, TableVersion(table, 0)).to_dict()


@pytest.mark.parametrize(
    "kept",
    [
        lambda tables: of_seal(tables, number=99),
        lambda tables: of_seal(tables, number=101),
        lambda tables: of_seal(tables, pipeline="other"),
        lambda tables: of_seal(tables, "another"),
        *(lambda _: None, lambda _: 7, lambda _: {}, lambda _: {"seal": 1}),
        lambda tables: {**of_seal(tables), "seal": "x"},
    ],
)
def test_what_is_no_backup_of_the_newest_seal_proves_nothing(
    tables: Tables, kept: Callable[[Tables], Any]
) -> None:
    tables.sealed(3)
    clean(tables)
    assert tables.apply(backup=lambda: of_seal(tables)).versions == VersionRange(4, 5)
    with pytest.raises(WatermarkExpired):
        tables.apply(backup=lambda: kept(tables))


def test_a_backup_does_not_survive_what_happened_since(tables: Tables) -> None:
    """After a replacement that the log still shows, the newest seal is not the one in effect."""
    tables.sealed(3)
    kept = backup_of(tables)
    clean(tables)
    tables.target.overwrite()
    with pytest.raises(WatermarkExpired):
        tables.apply(backup=lambda: kept)


def test_the_backup_is_not_asked_where_the_log_proves(tables: Tables) -> None:
    def never() -> None:
        raise AssertionError("the log proves")

    tables.sealed(3)
    assert tables.apply(backup=never).versions == VersionRange(4, 5)


def test_a_target_that_is_gone_is_loaded_again_with_a_warning(tables: Tables, caplog: Any) -> None:
    tables.sealed(3)
    kept = backup_of(tables)
    shutil.rmtree(tables.target.path)
    assert [step.kind for step in tables.apply(backup=lambda: kept).steps] == ["load"]
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert "does not exist, though pipeline p had watermark 3 in version 0" in warning.getMessage()


def test_a_first_load_warns_of_nothing(tables: Tables, caplog: Any) -> None:
    assert [step.kind for step in tables.apply(backup=lambda: None).steps] == ["load"]
    assert not caplog.records


# -- seals that this release cannot read ---------------------------------------------------------
@pytest.mark.parametrize(
    "metadata",
    [None, '{"delta_cdc": 1}', '{"delta_cdc": 2, "pipeline": "p"}', '{"delta_cdc": 1, "step": 7}', "{"],
)
def test_a_commit_of_ours_without_a_readable_seal_stops(tables: Tables, metadata: str | None) -> None:
    """To pass over it would take the watermark back to the one before."""
    tables.sealed(2)
    txn = {"txn": {"appId": "delta-cdc/p", "version": 101, "lastUpdated": EPOCH}}
    tables.target.commit("MERGE", txn, tables.target.add(), user_metadata=metadata)
    with pytest.raises(SealUnreadable, match="Version 1 of the target"):
        tables.apply()


# -- declared state -----------------------------------------------------------------------------
def made_by_hand(tables: Tables) -> None:
    tables.target.create()
    tables.target.append()


def test_a_target_made_by_hand_is_declared(tables: Tables) -> None:
    made_by_hand(tables)
    with pytest.raises(TargetWithoutWatermark, match="none_at"):
        tables.apply()
    plan = tables.apply(initial_load={"none_at": 3})
    load, apply = plan.steps
    assert (load.kind, load.ending_version) == ("baseline", 3)
    assert unhashed(load.planned_on) == TableVersion("id-1", 1)
    assert load.watermark.commit_hash == tables.source.sha256(3)
    assert (apply.kind, apply.starting_version, apply.ending_version) == ("apply", 4, 5)
    assert apply.seal_number == load.seal_number + 1
    assert plan.versions == VersionRange(4, 5)


@pytest.mark.parametrize("load", ["none", {"none_at": 5}])
def test_declared_at_the_newest_version(tables: Tables, load: Any) -> None:
    (step,) = tables.apply(initial_load=load).steps
    assert (step.kind, step.planned_on) == ("baseline", None), "without a target"
    made_by_hand(tables)
    plan = tables.apply(initial_load=load)
    assert [(s.kind, s.ending_version) for s in plan.steps] == [("baseline", 5)]
    assert plan.versions is None


def test_declared_beyond_the_newest_version(tables: Tables) -> None:
    made_by_hand(tables)
    with pytest.raises(RangeNotContiguous, match="none_at 6, but the newest") as refused:
        tables.apply(initial_load={"none_at": 6})
    assert refused.value.remedy == "set none_at to 5 or less."


def test_a_declared_history_needs_its_columns(tables: Tables) -> None:
    """Otherwise, Spark fails because of a column that the configuration does not name."""
    made_by_hand(tables)
    two = ApplyOptions(keys=("id",), stored_as_scd_type=2)
    with pytest.raises(TargetSchemaClash, match="no column __START_AT, __END_AT"):
        tables.apply(initial_load={"none_at": 3}, options=two)
    named = replace(two, start_column="ID", end_column="name")
    with pytest.raises(ReservedColumnName):
        tables.apply(initial_load={"none_at": 3}, options=named)


def test_a_declaration_changes_nothing_once_there_is_a_seal(tables: Tables) -> None:
    """It may stand in the DAG for years, with a version of long ago, and brings no expired proof back."""
    tables.sealed(3)
    assert tables.apply(initial_load={"none_at": 4}).versions == VersionRange(4, 5)
    clean(tables)
    with pytest.raises(WatermarkExpired):
        tables.apply(initial_load={"none_at": 1})


@pytest.mark.parametrize("load", ["none", {"none_at": 1}])
@pytest.mark.parametrize("back_to", [0, 1], ids=["empty", "made by hand"])
def test_a_declaration_is_for_once(tables: Tables, load: Any, back_to: int) -> None:
    """After a RESTORE to before the first seal it would speak of other rows, or of none."""
    made_by_hand(tables)
    tables.sealed(1, kind="baseline")
    tables.sealed(3, number=101)
    tables.target.restore(back_to)
    with pytest.raises(TargetWithoutWatermark, match="restored to before the first seal"):
        tables.apply(initial_load=load)


def test_a_restore_to_before_the_first_seal_offers_only_what_works(tables: Tables) -> None:
    made_by_hand(tables)
    tables.sealed(1, kind="baseline")
    tables.target.restore(1)
    with pytest.raises(TargetWithoutWatermark, match="restored to before the first seal") as refused:
        tables.apply()
    assert 'mode="reset"' in refused.value.remedy
    assert "none_at" not in refused.value.remedy
    assert tables.apply(mode="reset").spec is not None


def test_a_plan_names_the_newest_commit_of_its_target(tables: Tables) -> None:
    """The job compares this hash, so that it applies nothing to a table that was created again."""
    made_by_hand(tables)
    tables.sealed(1, kind="baseline")
    tables.target.append()
    newest = max(Path(tables.target.uri).glob("_delta_log/*.json"))
    (step, *_) = tables.apply().steps
    assert step.planned_on.commit_hash == hashlib.sha256(newest.read_bytes()).hexdigest()


def test_a_declared_start_and_an_explicit_one(tables: Tables) -> None:
    made_by_hand(tables)
    with pytest.raises(InvalidConfiguration, match="both given"):
        tables.apply(initial_load={"none_at": 1}, starting_version=4)


# -- adoption -----------------------------------------------------------------------------------
def adopt(tables: Tables, **changes: Any) -> Plan:
    return tables.apply(pipeline="q", take_over_from="p", **changes)


def test_adopting_closes_the_old_pipeline_first(tables: Tables) -> None:
    tables.sealed(3, highest_sequence="7")
    with pytest.raises(TargetWithoutWatermark, match="seals of other pipelines: p"):
        tables.apply(pipeline="q")
    plan = adopt(tables)
    assert steps(plan) == [
        ("take_over", "p", 3, 3, 101),
        ("take_over", None, 3, 3, EPOCH),
        ("apply", None, 4, 5, EPOCH + 1),
    ]
    closing, opening, work = plan.steps
    assert (closing.read.successor, opening.read.successor) == ("q", None)
    # The positions of a log's events keep the first name.
    origins = [one.before.configuration["origin"] for one in plan.steps if one.before is not None]
    assert origins == ["p"] * 3
    assert (unhashed(closing.planned_on), unhashed(opening.planned_on), unhashed(work.planned_on)) == (
        TableVersion("id-1", 0),
        None,
        None,
    )
    assert opening.highest_sequence == "7"
    assert opening.before.configuration["keys"] == ["id"]
    assert "takes over" in plan.notes[0]


def closed(tables: Tables, number: int = 101) -> None:
    made = seal(number, 3, source=tables.source, kind="take_over", planned_on=TableVersion("id-1", 0))
    tables.target.write_seal(replace(made, successor="q"), rows=False)


def test_half_an_adoption_is_finished(tables: Tables) -> None:
    """The numbers are those of the first try, so that of two planners one loses."""
    tables.sealed(3)
    closed(tables)
    assert steps(adopt(tables)) == [("take_over", None, 3, 3, EPOCH), ("apply", None, 4, 5, EPOCH + 1)]
    tables.target.write_seal(seal(102, 3, source=tables.source, kind="take_over", pipeline="q"), rows=False)
    assert steps(adopt(tables)) == [("apply", None, 4, 5, 103)], "once more is nothing new"


@pytest.mark.parametrize("now", [NOW, NOW + 300 * DAY])
def test_nothing_new_is_adopted_all_the_same(tables: Tables, now: int) -> None:
    """An adoption waits for no retention."""
    tables.sealed(5)
    plan = adopt(tables, now=now)
    assert [step.kind for step in plan.steps] == ["take_over", "take_over"]
    assert plan.versions is None


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({}, PipelineTakenOver, "taken over by pipeline q at watermark 3"),
        (
            {"pipeline": "r", "take_over_from": "p"},
            PipelineTakenOver,
            "q already took over .* from p",
        ),
        ({"pipeline": "q", "take_over_from": "zzz"}, TargetWithoutWatermark, "seals of other pipelines: p"),
    ],
    ids=["the old pipeline", "a third one", "from another name"],
)
def test_who_cannot_go_on_with_a_target_that_was_taken_over(
    tables: Tables, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    tables.sealed(3)
    closed(tables)
    with pytest.raises(error, match=message):
        tables.apply(**given)


def test_the_target_can_be_taken_back(tables: Tables) -> None:
    tables.sealed(3)
    closed(tables)
    tables.target.write_seal(seal(102, 5, source=tables.source, pipeline="q"))
    plan = tables.apply(take_over_from="q")
    assert steps(plan) == [("take_over", "q", 5, 5, 103), ("take_over", None, 5, 5, 104)]


@pytest.mark.parametrize("has_begun_before", [True, False])
def test_half_an_adoption_is_taken_back_at_the_newest_watermark(
    tables: Tables, has_begun_before: bool
) -> None:
    """r closed q and crashed; older seals of r, at an older watermark, do not count."""
    number = 200
    if has_begun_before:
        made = seal(200, 2, source=tables.source, pipeline="r", kind="load")
        tables.target.write_seal(replace(made, successor="q"), rows=False)
        number = 201
    tables.target.write_seal(seal(number, 4, source=tables.source, pipeline="q"))
    made = seal(number + 1, 4, source=tables.source, kind="take_over", pipeline="q")
    tables.target.write_seal(replace(made, successor="r"), rows=False)
    plan = tables.apply(pipeline="q", take_over_from="r")
    # The number that r's first seal would have.
    numbers = (number + 2, number + 3) if has_begun_before else (EPOCH, EPOCH + 1)
    assert steps(plan) == [
        ("take_over", "r", 4, 4, numbers[0]),
        ("take_over", None, 4, 4, numbers[1]),
        ("apply", None, 5, 5, numbers[1] + 1),
    ]
    assert plan.steps[0].read.successor == "q"


def test_a_pipeline_that_was_adopted_does_not_come_back_by_its_own_adoption(tables: Tables) -> None:
    """p adopted from x, and take_over_from stays in its DAG; then q adopted from p."""
    tables.sealed(2)
    tables.target.write_seal(seal(101, 2, source=tables.source, kind="take_over", pipeline="x"), rows=False)
    made = seal(102, 2, source=tables.source, kind="take_over", pipeline="x")
    tables.target.write_seal(replace(made, successor="p"), rows=False)
    tables.target.write_seal(seal(103, 2, source=tables.source, kind="take_over"), rows=False)
    closed(tables, number=104)
    tables.target.write_seal(seal(105, 5, source=tables.source, pipeline="q"))
    with pytest.raises(PipelineTakenOver, match="taken over by pipeline q"):
        tables.apply(take_over_from="x")


def test_staging_and_adoption_do_not_go_together(tables: Tables) -> None:
    tables.sealed(3)
    with pytest.raises(InvalidConfiguration, match="run once without staging"):
        adopt(tables, staging=tables.staging.uri)


def test_taking_over_nothing(tables: Tables) -> None:
    assert [step.kind for step in adopt(tables).steps] == ["load"], "there is no target"
    tables.target.create()
    assert [step.kind for step in adopt(tables).steps] == ["load"], "it is empty"
    tables.target.append()
    with pytest.raises(TargetWithoutWatermark):
        adopt(tables)


def test_adoption_is_checked_for_drift(tables: Tables) -> None:
    tables.sealed(3)
    with pytest.raises(ConfigurationDrift):
        adopt(tables, options=ApplyOptions(keys=("name",)))


# -- after a repair -----------------------------------------------------------------------------
def test_an_idle_pipeline_that_was_repaired_moves_its_watermark(tables: Tables) -> None:
    """However often it is repaired: the new seal of a repair says nothing of the watermark's age."""
    tables.sealed(5)
    tables.sealed(5, 101, kind="repair")
    assert tables.apply().spec is None, "it stands at the newest version"
    tables.source.optimize()
    plan = tables.apply()
    (step,) = plan.steps
    assert (step.kind, step.ending_version, step.seal_number) == ("renew", 6, 102)
    assert "is of a repair" in plan.notes[-1]
    tables.sealed(6, 102, kind="renew")
    assert tables.apply().spec is None


@pytest.mark.parametrize("kind", ["reload", "reset"])
def test_what_moves_the_watermark_is_as_old_as_its_seal(tables: Tables, kind: str) -> None:
    tables.sealed(5, kind=kind)
    tables.source.optimize()
    assert tables.apply().spec is None


# -- room in a seal -----------------------------------------------------------------------------------
LONG = " OR ".join(f"name = 'name {number}'" for number in range(3_000))


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts a process here fails."""

    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("subprocess.Popen", started)


@pytest.mark.usefixtures("no_process")
@pytest.mark.parametrize(
    ("changes", "named"), [({"where": LONG}, "where"), ({"select": ("*", f"{LONG} AS known")}, "select")]
)
@pytest.mark.parametrize("watermark", [None, 2])
def test_options_for_which_a_seal_has_no_room_are_refused_by_the_plan(
    tables: Tables, changes: dict[str, Any], named: str, watermark: int | None
) -> None:
    options = replace(KEYED, **changes)
    if watermark is not None:
        tables.sealed(watermark, configuration=validation.described(options))
    with pytest.raises(InvalidConfiguration, match="The options of pipeline p are too long") as refused:
        tables.apply(options=options)
    assert f"The longest are {named} " in refused.value.message
    assert (refused.value.retryable, "shorten them" in refused.value.remedy) == (False, True)
    with pytest.raises(InvalidConfiguration, match="The longest are where "):
        tables.read(options=QueryOptions("full_delta", keys=("id",), where=LONG))


def test_many_columns_of_the_source_are_left_out_of_the_seal(tables: Tables) -> None:
    """By their bytes: JSON writes a character that is not of ASCII as six."""
    names = tuple(f"ä{number:04}" + "ö" * 20 for number in range(500))
    assert validation.described_columns(KEYED, names, ()) == {}
    assert validation.described_columns(KEYED, names[:50], ()) == {"source_columns": list(names[:50])}


def test_a_seal_that_outgrows_a_commit_all_the_same_is_refused_by_name(tables: Tables) -> None:
    made = seal(7, 3, source=tables.source, highest_sequence="9" * 70_000)
    with pytest.raises(InvalidConfiguration, match="seal 7 of pipeline p takes 70"), sealed(None, made):  # type: ignore[arg-type]
        raise AssertionError("nothing is written")
