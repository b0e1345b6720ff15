"""Plan, run, confirm, publish: every way a job can end."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_cdc.core.errors import (
    ConcurrentModification,
    JobFailed,
    KeyNotUnique,
    LimitExceeded,
    OutcomeUnknown,
    SourceTableReplaced,
    StoreUnavailable,
    TargetChangedUnderneath,
)
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.quarantine import Held
from delta_cdc.core.requests import ApplyRequest, CommitRequest, ReadRequest
from delta_cdc.core.spec import ApplySpec, JobResult, ReadSpec, fingerprint, step_fingerprint
from delta_cdc.core.validation import described
from delta_cdc.core.versions import VersionRange
from delta_cdc.core.watermark import Seal, SealStep, TableVersion
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning import read_methods
from delta_cdc.planning.memory import Memory
from delta_cdc.planning.read import plan_read
from delta_cdc.planning.reconcile import WatermarkBackup
from delta_cdc.planning.seal_chain import seal_of
from delta_cdc.run import apply as apply_flow
from delta_cdc.run.commit import committed_by_run
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from delta_cdc.run.saved_plans import PlansInMemory, forget_saved_plans
from delta_cdc.run.watermarks import committed
from tests.support.logs import EPOCH, FEED, LogTable, state_after

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from delta_cdc.core.steps import Step
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.run.outcomes import Outcome

DONE = JobResult(status="committed", seconds={"work": 0.0})


class Boom(RuntimeError):
    """What a killed driver looks like from outside."""


@dataclass
class World:
    """Source, target, staging, and an engine that writes seals into their logs."""

    source: LogTable
    target: LogTable
    staging: LogTable
    said: list[str] = field(default_factory=list)
    ran: list[ApplySpec | ReadSpec] = field(default_factory=list)
    rows: int = 0
    slept: list[float] = field(default_factory=list)
    saved_plans: PlansInMemory = field(default_factory=PlansInMemory)

    @property
    def request(self) -> ApplyRequest:
        return ApplyRequest(
            pipeline="p",
            source=self.source.uri,
            target=self.target.uri,
            options=ApplyOptions(keys=("id",)),
            run_id="r",
        )

    def engine(self, spec: ApplySpec) -> JobResult:
        """Do what the engine does to the target's log."""
        self.ran.append(spec)
        return self.commit(spec, spec.steps)

    def commit(self, spec: ApplySpec, steps: tuple[Step, ...]) -> JobResult:
        for step in steps:
            load = step.kind in ("load", "reset")
            if step.planned_on is None and self.target.version >= 0:
                # What the engine does for a step that follows another one.
                step = replace(step, planned_on=TableVersion(self.target.table_id, self.target.version))
            given: dict[str, Any] = {"operation": "MERGE"}
            if load:
                given = {"operation": "WRITE", "metrics": {"numOutputRows": "50", "numFiles": "1"}}
                given["parameters"] = {"mode": "Overwrite" if step.kind == "reset" else "ErrorIfExists"}
            elif step.kind not in ("apply", "reload", "repair"):
                given = {"operation": "WRITE", "metrics": {"numOutputRows": "0"}, "rows": False}
            made = sealing(spec, step, step.kind, described(spec.options), {"suppressed": 4})
            self.target.write_seal(made, **given)
        return DONE

    def reader(self, spec: ReadSpec, steps: int | None = None) -> JobResult:
        """Do what a read does to the staging table's log, its first ``steps`` steps."""
        self.ran.append(spec)
        for step in spec.steps[:steps]:
            plain = spec.plain and step.kind == "apply"
            state = {**spec.configuration, "complete": step is spec.steps[-1], "plain": plain}
            whole = step.kind in ("load", "answer")
            made = sealing(spec, step, "read", state, {} if whole else {"rows": self.rows})
            made = replace(made, step=replace(made.step, starting_version=spec.starting_version))
            self.rows = 12 if whole else self.rows + 12
            self.staging.write_seal(made, operation="WRITE", metrics={"numOutputRows": "12"})
        return DONE

    def committer(self, spec: ReadSpec) -> JobResult:
        """Do what a commit does to the staging table's log."""
        self.ran.append(spec)
        (step,) = spec.steps
        made = sealing(spec, step, "commit", step.configuration, {})
        self.staging.write_seal(made, operation="WRITE", rows=False)
        return DONE

    def services(self, execute: Any, **more: Any) -> Services:
        given = {"say": self.said.append, "sleep": self.slept.append, "saved_plans": self.saved_plans}
        return Services(execute=execute, **{**given, **more})

    def apply(self, execute: Callable[[ApplySpec], JobResult] | None = None, **changes: Any) -> Outcome:
        """Apply and publish, as a task that lives to its end; see ``unpublished``."""
        result = self.unpublished(execute, **changes)
        forget_saved_plans(result, self.saved_plans)
        return result

    def unpublished(self, execute: Callable[[ApplySpec], JobResult] | None = None, **changes: Any) -> Outcome:
        given = {name: changes.pop(name) for name in ("max_attempts", "announced") if name in changes}
        return run(replace(self.request, **changes), self.services(execute or self.engine, **given))

    def read(self, execute: Callable[[ReadSpec], JobResult] | None = None, **changes: Any) -> Outcome:
        request = ReadRequest(
            pipeline="p", source=self.source.uri, staging=self.staging.uri, target=self.target.uri
        )
        return run(replace(request, **changes), self.services(execute or self.reader))

    def at(self, version: int) -> TableVersion:
        """Return the watermark at a version of the source."""
        return TableVersion("source-id", version, self.source.sha256(version))

    def dies_after(self, spec: ApplySpec | ReadSpec) -> JobResult:
        """A driver that is killed once it has committed."""
        self.engine(spec) if isinstance(spec, ApplySpec) else self.reader(spec)
        raise Boom("driver killed\nwith a long tail")

    def killed(self, run: Callable[..., Outcome], execute: Any = None, **changes: Any) -> None:
        """Run something whose driver is killed, before its commit or as ``execute`` says."""
        with pytest.raises(Boom):
            run(execute or dies, **changes)

    def by_another_run(self, run: Callable[[], Any]) -> None:
        """Let a run with a store of its own come in between."""
        mine, self.saved_plans = self.saved_plans, PlansInMemory()
        run()
        self.saved_plans = mine

    @property
    def seals(self) -> list[Seal]:
        """The seals in the target's log, oldest first."""
        log = DeltaLog(self.target.uri)
        commits = [run_sync(log.commit(version)) for version in range(self.target.version + 1)]
        return [seal for commit in commits if (seal := seal_of(commit, "p")) is not None]

    def saved(self) -> dict[str, Any] | None:
        return self.saved_plans.get(f"pin:p:{self.source.table_id}")

    def next_run(self) -> None:
        """Another run of the task has a store of its own."""
        self.saved_plans = PlansInMemory()
        self.said.clear()

    def heard(self, text: str) -> bool:
        return any(text in line for line in self.said)


def sealing(spec: Any, step: Step, kind: Any, state: Any, counts: dict[str, int]) -> Seal:
    """Return the seal of a step."""
    made = SealStep(
        kind=kind,
        starting_version=step.starting_version,
        ending_version=step.ending_version,
        fingerprint=step_fingerprint(spec, step.seal_number),
        run_id=spec.run_id,
        planned_on=step.planned_on,
        counts=counts,
    )
    pipeline = step.read.pipeline or spec.pipeline
    sealed = Seal(pipeline, step.seal_number, spec.source_uri, state_after(step, state), made)
    return replace(sealed, successor=step.read.successor)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A source at version 3, loaded into the target; versions 4 and 5 follow."""
    source = LogTable(tmp_path / "source", table_id="source-id", configuration=dict(FEED)).create()
    for _ in range(3):
        source.append()
    made = World(source, LogTable(tmp_path / "target"), LogTable(tmp_path / "staging", table_id="st"))
    made.apply()
    source.append()
    source.append()
    made.next_run()
    made.ran.clear()
    return made


def recorded(result: Outcome) -> dict[str, Any]:
    """Return what the log proves of a result, without what depends on the try."""
    found = result.to_dict()
    return {name: found[name] for name in found if name not in ("timestamp", "seconds", "lag")}


def never(spec: object) -> JobResult:
    raise AssertionError("nothing should run")


def dies(spec: object) -> JobResult:
    """A driver that is killed before its commit."""
    raise Boom("driver killed")


def fails(spec: object) -> JobResult:
    return JobResult("failed", error=KeyNotUnique("two rows", remedy="one").to_dict())


def loses(spec: object) -> JobResult:
    return JobResult("conflict", message="somebody was faster")


def outcome(result: Outcome) -> tuple[bool, VersionRange | None, int]:
    """Return what a result says: whether rows were committed, of which versions, and the watermark."""
    assert result.watermark is not None
    return result.applied, result.versions, result.watermark.version


# -- the straight way ---------------------------------------------------------------------------
def test_an_apply_publishes_range_counts_and_watermark(world: World) -> None:
    result = world.apply()
    published = result.to_dict()
    assert published.pop("timestamp").endswith("+00:00")
    assert published.pop("seal") == world.ran[0].steps[0].seal_number  # type: ignore[union-attr]
    assert set(published.pop("seconds")) == {"plan", "start", "work", "confirm"}
    assert published == {
        "pipeline": "p",
        "source_table": world.source.uri,
        "source_table_id": "source-id",
        "version": 5,
        "starting_version": 4,
        "ending_version": 5,
        "applied": True,
        "target_table": world.target.uri,
        "target_table_id": "id-1",
        "target_version": 1,
        "counts": {"inserted": 3, "updated": 2, "deleted": 1, "suppressed": 4},
        "bytes_written": 100,
        "lag": {
            "source_version": 5,
            "versions": 0,
            "bytes": 0,
            "seconds": 0.0,
            "readable_until": "2027-02-14T08:00:01+00:00",
        },
        "attempts_lost": 0,
    }
    assert committed(world.request) == world.at(5)


def test_nothing_to_do_runs_nothing_and_writes_nothing(world: World) -> None:
    world.apply()
    before = world.target.version
    world.next_run()
    result = world.apply(never)
    assert (result.applied, result.versions, result.counts) == (False, None, {})
    assert result.watermark == world.at(5)
    assert (result.to_dict()["starting_version"], result.to_dict()["ending_version"]) == (None, None)
    assert world.target.version == before
    assert world.heard("Nothing to apply")


def test_a_repair_of_nothing_does_not_deny_that_newer_versions_wait(world: World) -> None:
    """As after a replay of the log's own quarantine, whose events the next run applies."""
    world.apply()
    world.source.append()
    world.apply(never, mode="repair", repair_quarantined=True)
    assert world.heard("Nothing to repair")
    assert world.heard("A run without a mode applies what is newer")
    assert not world.heard("Nothing to apply")


def test_the_rows_in_quarantine_are_published_if_a_run_can_put_some_there(world: World) -> None:
    quarantine = LogTable(world.target.path.with_name("target__quarantine")).create()
    quarantine.append()
    pq.write_table(pa.table({"pipeline": ["p", "p"]}), quarantine.path / "part-00001-0.parquet")
    assert world.apply().held is None
    options = replace(world.request.options, on_invalid="quarantine")
    for dry_run, held in ((False, Held(world.target.uri, 10, is_log=False)), (True, None)):
        assert world.apply(options=options, dry_run=dry_run).held == held


def test_two_steps_are_counted_together(world: World, tmp_path: Path) -> None:
    world.target = LogTable(tmp_path / "other")
    result = world.unpublished(starting_version=2)
    assert result.versions == VersionRange(2, 5)
    assert result.counts == {"inserted": 53, "updated": 2, "deleted": 1, "suppressed": 8}
    assert result.target_version == 1
    again = world.unpublished(never, starting_version=2)
    assert recorded(again) == recorded(result), "also by a retry of a try that died"


# -- the log as outbox --------------------------------------------------------------------------
def events(number: int | None) -> Callable[[str, str, str, int], int | None]:
    """Return what tells that an event has announced the seals up to a number."""

    def announced(table: str, uri: str, table_id: str, newest: int) -> int | None:
        assert (table, table_id) == ("target", "id-1")
        assert uri.endswith("/target")
        return number

    return announced


@pytest.fixture
def died(world: World) -> int:
    """Two runs died after their commits: versions 4-5, and 6. Return the number of the seal before them."""
    (load,) = world.seals
    for _ in range(2):
        world.unpublished()
        world.next_run()
        world.source.append()
    world.ran.clear()
    assert (world.source.version, [seal.watermark.version for seal in world.seals]) == (7, [3, 5, 6])
    return load.number


def test_what_earlier_runs_did_not_announce_is_part_of_the_result(world: World, died: int) -> None:
    result = world.apply(announced=events(died))
    assert (result.applied, result.versions) == (True, VersionRange(4, 7))
    assert (result.counts["inserted"], result.bytes_written, result.target_version) == (9, 300, 3)


def test_commits_are_announced_without_work(world: World, died: int) -> None:
    world.apply()
    for announced, versions in ((died, (4, 7)), (died + 1, (6, 7)), (died + 2, (7, 7)), (None, (4, 7))):
        world.next_run()
        result = world.apply(never, announced=events(announced))
        assert (result.applied, result.versions) == (True, VersionRange(*versions)), announced
        assert world.heard("earlier runs that ended before they announced it")
    world.next_run()
    result = world.apply(never, announced=events(died + 3))
    assert (result.applied, result.versions, result.seal) == (False, None, died + 3)


def test_a_retry_still_knows_its_own_commit(world: World, died: int) -> None:
    """Another run may have announced it meanwhile, by an event of its own."""
    world.unpublished()
    result = world.apply(never, announced=events(died + 3))
    assert (result.applied, result.versions) == (True, VersionRange(7, 7))


def test_a_commit_without_rows_is_not_announced(world: World, died: int) -> None:
    newest = world.seals[-1]
    world.source.version -= 1
    world.target.write_seal(
        replace(newest, number=newest.number + 1, step=replace(newest.step, kind="renew")), rows=False
    )
    request = {"ending_version": 6}
    assert not world.apply(never, announced=events(newest.number), **request).applied
    world.next_run()
    result = world.apply(never, announced=events(newest.number - 1), **request)
    assert (result.versions, result.seal) == (VersionRange(6, 6), newest.number + 1)


def test_a_commit_that_a_restore_undid_is_not_announced(world: World, died: int) -> None:
    world.target.restore(1)
    result = world.apply(announced=events(died))
    # Version 6 was undone, and is applied again.
    assert (result.versions, result.counts["inserted"]) == (VersionRange(4, 7), 6)


def test_a_commit_of_a_replaced_target_is_not_announced(world: World, died: int) -> None:
    """Its rows went with the table; the events of the new one, with its own id, begin with the reset."""
    world.target.replace_table("other")
    result = world.apply(mode="reset", announced=lambda *given: None)
    assert (result.versions, result.counts["inserted"]) == (VersionRange(7, 7), 50)


def test_numbers_of_a_lost_history_are_no_announcement(world: World, died: int) -> None:
    """The target's files were put back from a copy; its events are of numbers that are given again."""
    result = world.apply(never, announced=events(died + 3), ending_version=6)
    assert (result.applied, result.versions) == (True, VersionRange(4, 6))


def test_a_range_is_that_of_all_its_commits(world: World, died: int) -> None:
    """A repair computes an older range again; a load has no range, if something follows it."""
    newest = world.seals[-1]
    step = replace(newest.step, kind="repair", starting_version=2, ending_version=3, run_id="other")
    world.target.write_seal(replace(newest, number=newest.number + 1, step=step))
    result = world.apply(announced=events(died), ending_version=6)
    assert result.versions == VersionRange(2, 6)
    world.next_run()
    result = world.apply(announced=events(None), ending_version=6)
    assert result.versions == VersionRange(2, 6)
    assert result.counts["inserted"] == 50 + 3 * 3


def test_a_long_log_without_a_known_event(world: World, died: int) -> None:
    """The walk back has an end."""
    for _ in range(300):
        world.target.optimize()
    assert not world.apply(never, announced=events(None), ending_version=6).applied
    world.next_run()
    request = {"announced": events(died), "ending_version": 6}
    assert not world.apply(never, dry_run=True, **request).applied, "a dry run announces nothing"
    assert world.apply(never, **request).versions == VersionRange(4, 6)


# -- the job goes away --------------------------------------------------------------------------
def test_a_job_that_dies_after_its_commit_is_a_success(world: World) -> None:
    assert outcome(world.apply(world.dies_after)) == (True, VersionRange(4, 5), 5)
    assert world.heard("The job failed after its commit")


def test_the_original_error_survives_an_unreadable_log(world: World) -> None:
    def spoils(spec: ApplySpec) -> JobResult:
        world.engine(spec)
        world.target.file(world.target.version).write_text("{")
        raise Boom("driver killed")

    world.killed(world.apply, spoils)
    assert world.heard("cannot read the log of")


def test_a_try_that_dies_before_it_publishes_publishes_on_its_retry(world: World) -> None:
    """The worker was killed between the commit and the XCom; what came after is not for this try."""
    first = world.unpublished()
    world.source.append()
    again = world.unpublished(never)
    assert (again.applied, again.versions, again.target_version) == (True, VersionRange(4, 5), 1)
    assert recorded(again) == recorded(first)
    assert world.heard("Already applied by an earlier try of this run")
    assert world.heard("The run publishes this result; you need not do anything.")
    forget_saved_plans(again, world.saved_plans)
    assert world.apply().versions == VersionRange(6, 6)


def test_what_came_while_the_job_ran_counts_as_lag(world: World) -> None:
    def meanwhile(spec: ApplySpec) -> JobResult:
        world.source.append()
        world.source.append()
        return world.engine(spec)

    lag = world.apply(meanwhile).lag
    assert lag is not None
    assert (lag["source_version"], lag["versions"]) == (7, 2)
    world.next_run()
    lag = world.apply(ending_version=6).lag
    assert lag is not None
    assert (lag["source_version"], lag["versions"]) == (7, 1)


def test_a_lag_that_cannot_be_read_fails_no_committed_run(world: World, monkeypatch: Any) -> None:
    look = DeltaLog.newest_version

    async def broken(log: DeltaLog, after: int | None = None) -> int:
        if after is not None:
            raise StoreUnavailable("the store is away", remedy="wait")
        return await look(log)

    monkeypatch.setattr(DeltaLog, "newest_version", broken)
    result = world.apply()
    assert (result.applied, result.lag) == (True, None)
    assert world.heard("Cannot compute how far ")


def test_the_seconds_of_a_job_are_not_those_of_its_start(world: World) -> None:
    def slow(spec: ApplySpec) -> JobResult:
        return replace(world.engine(spec), seconds={"work": 1000.0})

    seconds = world.apply(slow).to_dict()["seconds"]
    assert (seconds["work"], seconds["start"]) == (1000, 0)
    assert seconds["plan"] > 0


def test_a_retry_publishes_its_own_range_though_others_went_on(world: World) -> None:
    """Another run sealed on top of what this one committed before it died."""
    first = world.unpublished()
    world.source.append()
    world.by_another_run(lambda: world.apply(run_id="next"))
    world.target.optimize()
    again = world.unpublished(never)
    assert (outcome(again), again.target_version) == ((True, VersionRange(4, 5), 6), 1)
    assert again.counts == first.counts


# -- several milestones -------------------------------------------------------------------------
def first_of_several(world: World, steps: int = 1) -> Callable[[ApplySpec], JobResult]:
    """Return a driver that is killed after its first commits."""

    def killed(spec: ApplySpec) -> JobResult:
        world.commit(spec, spec.steps[:steps])
        raise Boom

    return killed


def test_milestones_are_published_as_one_range(world: World) -> None:
    result = world.apply(versions_per_commit=1)
    assert (result.applied, result.versions) == (True, VersionRange(4, 5))
    assert result.counts == {"inserted": 6, "updated": 4, "deleted": 2, "suppressed": 8}
    assert result.target_version == 2
    assert world.heard("in 2 commits")


def test_many_milestones_are_known_again(world: World) -> None:
    """More than the pin has room for plans."""
    for _ in range(60):
        world.source.append()
    first = world.unpublished(versions_per_commit=1)
    again = world.unpublished(never, versions_per_commit=1)
    assert (again.versions, again.counts) == (VersionRange(4, 65), first.counts)


def test_another_run_between_our_milestones(world: World) -> None:
    """What is ours is published whole, whoever was in between."""
    world.source.append()
    world.killed(world.unpublished, first_of_several(world), versions_per_commit=1)
    world.by_another_run(lambda: world.apply(run_id="twin", ending_version=5))
    result = world.apply(versions_per_commit=1)
    assert (result.versions, result.counts["inserted"]) == (VersionRange(4, 6), 6)


def test_what_was_restored_and_applied_by_another_run_is_not_ours(world: World) -> None:
    world.unpublished()
    world.target.restore(0)
    world.by_another_run(lambda: world.apply(run_id="twin"))
    again = world.unpublished(never)
    assert (again.applied, again.watermark) == (False, world.at(5))


# -- repair, reload and reset -------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked", [{}, {"mode": "repair", "starting_version": 2}, {"mode": "reload", "ending_version": 3}], ids=str
)
def test_a_job_that_only_says_that_it_committed(world: World, asked: dict[str, Any]) -> None:
    """The watermark covers the range of a repair without it."""
    with pytest.raises(OutcomeUnknown):
        world.apply(lambda spec: DONE, **asked)
    assert world.saved() is not None


def test_a_repair_that_was_restored_right_after_its_commit(world: World) -> None:
    def committed_and_restored(spec: ApplySpec) -> JobResult:
        world.engine(spec)
        world.target.restore(0)
        return DONE

    with pytest.raises(OutcomeUnknown):
        world.apply(committed_and_restored, mode="repair", repair_keys="true")


def test_a_repair_that_is_restored_while_it_is_confirmed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watermark is the same without it, so it alone does not tell."""
    found = apply_flow.reconcile_async

    async def after_a_restore(*given: Any, **named: Any) -> Any:
        world.target.restore(0)
        return await found(*given, **named)

    monkeypatch.setattr(apply_flow, "reconcile_async", after_a_restore)
    with pytest.raises(OutcomeUnknown, match="restored or replaced right after it"):
        world.apply(mode="repair", repair_keys="true")


REPEATED: list[dict[str, Any]] = [
    {"mode": "repair", "starting_version": 2, "ending_version": 3},
    {"mode": "repair", "repair_keys": "id = 1"},
    {"mode": "reload"},
    {"mode": "reset"},
    {"mode": "reset", "starting_version": 4},
]


@pytest.mark.parametrize("asked", REPEATED, ids=str)
def test_a_retry_knows_what_it_did_already(world: World, asked: dict[str, Any]) -> None:
    first = world.unpublished(**asked)
    again = world.unpublished(never, **asked)
    assert (again.applied, again.versions, again.counts, again.target_version) == (
        True,
        first.versions,
        first.counts,
        first.target_version,
    )
    assert world.heard("Already applied by an earlier try of this run")
    world.next_run()
    world.ran.clear()
    assert world.apply(**asked).applied, "in a new run it is done again"
    assert len(world.ran) == 1


def test_a_repair_is_not_taken_for_another_one(world: World) -> None:
    """The same task, cleared with other parameters before it could publish."""
    world.unpublished(mode="repair", repair_keys="id = 1")
    world.ran.clear()
    world.unpublished(mode="repair", repair_keys="id = 2")
    assert len(world.ran) == 1
    world.unpublished(mode="repair", starting_version=2)
    assert len(world.ran) == 2
    world.unpublished(never, mode="repair", starting_version=2)


def test_a_repair_that_a_restore_took_back_or_a_kill_is_done_again(world: World) -> None:
    asked = {"mode": "repair", "repair_keys": "id = 1"}
    world.killed(world.unpublished, **asked)
    world.unpublished(**asked)
    world.unpublished(never, **asked)
    world.target.restore(0)
    world.ran.clear()
    world.unpublished(**asked)
    assert len(world.ran) == 1


def test_a_long_repair_of_which_a_part_is_there_is_done_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_methods, "MOST_VERSIONS", 1)
    asked = {"mode": "repair", "starting_version": 1}
    world.killed(world.unpublished, first_of_several(world, 2), **asked)
    result = world.unpublished(**asked)
    assert [len(spec.steps) for spec in world.ran] == [3]
    assert result.versions == VersionRange(1, 3)


def test_a_repair_that_failed_bounds_nothing_but_its_own_retry(world: World) -> None:
    """The same task, cleared to go on with what is new."""
    for mode in ({"mode": "reload", "ending_version": 4}, {"mode": "repair", "repair_keys": "id = 1"}):
        world.killed(world.unpublished, **mode)
    assert outcome(world.unpublished()) == (True, VersionRange(4, 5), 5)
    world.source.append()
    assert world.unpublished(never).versions == VersionRange(4, 5), "its own end stands"
    world.next_run()
    world.killed(world.unpublished)
    world.source.append()
    assert world.unpublished(mode="reload").versions == VersionRange(7, 7), "nor does that of an apply"


def test_a_policy_reloads_once(world: World) -> None:
    world.target.truncate()
    first = world.unpublished(on_target_replaced="reload")
    assert [step.kind for step in world.ran[0].steps] == ["reload"]
    assert first.applied
    again = world.unpublished(never, on_target_replaced="reload")
    assert (again.applied, again.versions) == (True, VersionRange(5, 5))


def test_a_result_leaves_out_the_rows_of_a_table_that_was_replaced(world: World) -> None:
    """A try committed and died. Then another table was put into the same log, which the retry fills."""
    world.unpublished()
    world.target.replace_table("another")
    result = world.unpublished(on_target_replaced="reload")
    assert [spec.steps[0].kind for spec in world.ran] == ["apply", "reload"]
    of_one_commit = {"inserted": 3, "updated": 2, "deleted": 1, "suppressed": 4}
    assert (result.versions, result.counts) == (VersionRange(5, 5), of_one_commit)


def test_a_reset_that_an_earlier_try_commits_after_the_plan(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the time of the plan, no seal was in effect: another writer had overwritten the target."""
    orphans: list[ApplySpec] = []
    world.target.replace_table("another")
    world.killed(world.unpublished, kept(orphans), mode="reset")
    look = apply_flow.Applying.without_job

    async def late(flow: Any, plan: Any) -> Outcome | None:
        world.engine(orphans.pop())
        return await look(flow, plan)

    monkeypatch.setattr(apply_flow.Applying, "without_job", late)
    result = world.unpublished(never, mode="reset")
    (seal,) = [seal for seal in world.seals if seal.step.kind == "reset"]
    assert result.applied
    assert (result.seal, result.watermark) == (seal.number, seal.watermark)


# -- a dry run ----------------------------------------------------------------------------------
def dry(spec: ApplySpec) -> JobResult:
    assert spec.dry_run
    return JobResult(status="planned", counts={"events": 4, "inserted": 2}, statements=("MERGE INTO x",))


def test_a_dry_run_tells_and_writes_nothing(world: World) -> None:
    before = world.target.version
    result = world.unpublished(dry, dry_run=True)
    assert outcome(result) == (False, VersionRange(4, 5), 3)
    assert result.counts == {"events": 4, "inserted": 2}
    (step,) = result.to_dict()["dry_run"]["steps"]
    assert step.startswith("apply: versions 4-5, seal ")
    assert result.to_dict()["dry_run"] == {
        "table": [
            {"commit": 1, "kind": "apply", "what": step.removeprefix("apply: "), "events": 4, "inserted": 2}
        ],
        "steps": [step],
        "statements": ["MERGE INTO x"],
        "counts": {"events": 4, "inserted": 2},
    }
    for line in ("wrote nothing to", "MERGE INTO x", "4 events, 2 inserted"):
        assert world.heard(line)
    (shown,) = [line for line in world.said if "Dry run: " in line]
    header, _, row = shown.splitlines()[-3:]
    assert header.split() == ["commit", "kind", "what", "events", "inserted"]
    assert row.split() == ["1", *step.replace(":", "").split(), "4", "2"]
    assert world.target.version == before
    assert world.saved() is None
    assert "dry_run" not in world.apply().to_dict()


def test_a_long_statement_is_whole_in_the_log(world: World) -> None:
    long = "a" * 99_000
    world.unpublished(lambda _: JobResult("planned", statements=(long, "b")), dry_run=True)
    assert [line for line in world.said if long in line or line.endswith("\nb")] == [
        f"The run would execute:\n{long}",
        "The run would execute:\nb",
    ]


def test_a_dry_run_does_not_end_where_an_earlier_try_did(world: World) -> None:
    world.killed(world.unpublished)
    saved_plan = world.saved()
    assert saved_plan is not None
    world.source.append()
    assert world.unpublished(dry, dry_run=True).versions == VersionRange(4, 6)
    assert world.saved() == saved_plan
    for _ in range(2):
        world.apply()
    result = world.unpublished(never, dry_run=True)
    assert result.to_dict()["dry_run"] == {"table": [], "steps": [], "statements": [], "counts": {}}


def test_a_dry_run_of_several_commits(world: World) -> None:
    """Of a seal alone it starts no job; of milestones it counts the first."""
    result = world.unpublished(never, dry_run=True, pipeline="q", take_over_from="p", ending_version=3)
    found = result.to_dict()["dry_run"]
    assert [line.split(":")[0] for line in found["steps"]] == ["take_over", "take_over"]
    assert [(row["commit"], row["kind"]) for row in found["table"]] == [(1, "take_over"), (2, "take_over")]
    result = world.unpublished(dry, dry_run=True, mode="backfill", ending_version=5, versions_per_commit=1)
    rows = [(row["what"].split(",")[0], row.get("inserted")) for row in result.to_dict()["dry_run"]["table"]]
    assert rows == [("versions 4-4", 2), ("versions 5-5", None)]
    assert world.heard("those of the others depend on it")


# -- lost races ---------------------------------------------------------------------------------
@pytest.mark.parametrize("status", ["conflict", "skipped", "stale"])
def test_a_lost_race_is_planned_again_after_a_pause(world: World, status: Any) -> None:
    tried: list[int] = []

    def loses_twice(spec: ApplySpec) -> JobResult:
        tried.append(spec.steps[0].seal_number)
        if len(tried) <= 2:
            return JobResult(status=status, message=f"OPTIMIZE {len(tried)}")
        return world.engine(spec)

    result = world.apply(loses_twice)
    assert (result.applied, result.to_dict()["attempts_lost"]) == (True, 2)
    assert len(tried) == 3
    one, two = world.slept
    assert 0.25 <= one <= 0.5
    assert 0.5 <= two <= 1.0
    for number in (1, 2):
        assert world.heard(f"({status}: OPTIMIZE {number}). It plans again in ")


def test_losing_every_time_ends(world: World) -> None:
    with pytest.raises(ConcurrentModification, match="12 times"):
        world.apply(loses, max_attempts=12)
    assert len(world.slept) == 11, "after the last try nobody waits"
    assert max(world.slept) <= 30
    assert len(set(world.slept)) == 11, "writers that lost to each other do not meet again"
    assert world.heard("That was the last attempt.")
    with pytest.raises(ConcurrentModification, match="5 times"):
        world.apply(loses)


# -- seals without rows -------------------------------------------------------------------------
def resealed(world: World) -> Outcome:
    world.apply()
    world.source.set_properties(**FEED)
    # The log is written with times to come, and so its seals are never old.
    for table in (world.source, world.target):
        for version in range(table.version + 1):
            os.utime(table.file(version), (1_000_000_000, 1_000_000_000))
    world.next_run()
    world.ran.clear()
    return world.unpublished()


def test_a_seal_without_rows_wakes_nobody(world: World) -> None:
    result = resealed(world)
    assert [step.kind for spec in world.ran for step in spec.steps] == ["renew"]
    assert (outcome(result), result.counts) == ((False, None, 6), {})
    assert world.heard("0 rows: wrote watermark")
    assert outcome(world.unpublished(never)) == (False, None, 6), "nor does that of a try that died"


def test_the_result_carries_the_whole_seal_for_the_backup(world: World) -> None:
    result = world.apply()
    kept = WatermarkBackup.from_dict(result.backup)
    assert kept is not None
    assert (kept.seal.number, kept.seal.watermark.version, kept.target.table_id) == (result.seal, 5, "id-1")
    assert kept.target.version == result.target_version
    assert "backup" not in result.to_dict()


# -- what others did ----------------------------------------------------------------------------
def test_what_a_restore_took_back_is_applied_again(world: World) -> None:
    world.unpublished()
    world.target.restore(0)
    again = world.unpublished()
    assert (again.applied, again.versions, again.target_version) == (True, VersionRange(4, 5), 3)
    assert world.heard("was restored in version 2 to version 0")
    # Of two commits of the same range the second one is in effect: nothing is counted twice.
    assert world.unpublished(never).to_dict()["counts"] == again.counts


def test_a_restore_that_undid_a_repair_is_noted(world: World) -> None:
    world.apply()
    repaired = world.apply(mode="repair", repair_keys="true").target_version
    assert repaired is not None
    world.target.restore(repaired - 1)
    world.apply()
    assert world.heard(f"undid the repair in version {repaired}")
    assert world.heard("RESTORE the quarantine, too")


def kept(orphans: list[Any]) -> Callable[[Any], JobResult]:
    """Return a driver that outlives its worker: its spec is kept for later."""

    def killed(spec: Any) -> JobResult:
        orphans.append(spec)
        raise Boom

    return killed


def test_the_orphan_of_a_killed_worker_is_known_though_the_target_moved(world: World) -> None:
    """The retry plans on a newer version of the target, so its own fingerprint is another one."""
    orphans: list[ApplySpec] = []
    world.killed(world.apply, kept(orphans))
    world.target.optimize()

    def late(spec: ApplySpec) -> JobResult:
        assert fingerprint(spec) != fingerprint(orphans[0])
        world.engine(orphans[0])
        return JobResult(status="skipped")

    assert outcome(world.apply(late)) == (True, VersionRange(4, 5), 5)


@pytest.mark.parametrize("lands", ["before the retry plans", "while it runs"])
def test_the_orphan_of_a_killed_load_is_known(world: World, tmp_path: Path, lands: str) -> None:
    world.target = LogTable(tmp_path / "other")
    orphans: list[ApplySpec] = []

    def late(spec: ApplySpec) -> JobResult:
        assert spec == orphans[0]
        world.engine(orphans[0])
        return JobResult(status="conflict")

    world.killed(world.apply, kept(orphans))
    world.source.append()
    if lands == "before the retry plans":
        world.engine(orphans[0])
    result = world.apply(late if lands == "while it runs" else never)
    assert (outcome(result), result.target_version) == ((True, VersionRange(5, 5), 5), 0)
    assert result.seal == orphans[0].steps[0].seal_number
    # It is not taken again once it is published.
    world.target = LogTable(tmp_path / "third")
    world.apply(run_id="again")
    assert world.target.file(0).read_text().count(str(result.seal)) == 0


def test_the_orphan_of_a_killed_read_is_known(world: World, tmp_path: Path) -> None:
    world.target = LogTable(tmp_path / "other")
    orphans: list[ReadSpec] = []
    world.killed(world.read, kept(orphans))

    def late(spec: ReadSpec) -> JobResult:
        assert spec == orphans[0]
        world.reader(orphans[0])
        return JobResult(status="conflict")

    result = world.read(late)
    assert (result.applied, result.staging_version) == (True, 0)
    forget_saved_plans(result, world.saved_plans)
    assert not world.read(never).applied


@pytest.mark.parametrize(
    "lie",
    [
        {"fingerprints": 7, "planned_version": "x", "seal_number": True, "ending_version": "9"},
        {"fingerprints": [7, None], "planned_version": None, "seal_number": -1, "ending_version": -1},
        {},
    ],
)
def test_an_edited_pin_is_no_pin(world: World, lie: dict[str, Any]) -> None:
    world.saved_plans.set("pin:p:source-id", lie)
    assert world.apply().versions == VersionRange(4, 5)


# -- named errors and unknown outcomes ----------------------------------------------------------
def test_a_failed_job_raises_its_named_error(world: World) -> None:
    for dry_run in (True, False):
        with pytest.raises(KeyNotUnique, match="two rows"):
            world.apply(fails, dry_run=dry_run)
    assert world.saved() is not None


def test_a_try_after_a_failure_because_of_rows_reads_what_was_corrected(world: World) -> None:
    """The same task, cleared: the end of the failed try has the wrong rows for ever."""
    refused = JobResult("failed", error=LimitExceeded("a half-empty source", remedy="look").to_dict())
    for mode, fault in (({"mode": "reload"}, fails), ({}, fails), ({}, lambda spec: refused)):
        world.source.append()
        with pytest.raises((KeyNotUnique, LimitExceeded)):
            world.unpublished(fault, **mode)
        corrected = world.source.append()
        done = world.unpublished(**mode).versions
        assert done is not None
        assert done.ending_version == corrected
        world.next_run()
    # A driver that was killed may still run, so its end stands.
    world.source.append()
    world.killed(world.unpublished)
    world.source.append()
    assert world.unpublished().versions == VersionRange(12, 12)


def test_a_failure_after_the_commit_is_raised_and_then_found(world: World) -> None:
    with pytest.raises(KeyNotUnique):
        world.apply(lambda spec: world.engine(spec) and fails(spec))
    assert world.heard("failed after it had committed version 1")
    assert outcome(world.apply(never)) == (True, VersionRange(4, 5), 5)


def test_a_named_error_of_the_plan_comes_out(world: World) -> None:
    world.source.configuration = {}
    world.source.replace_table("other")
    with pytest.raises(SourceTableReplaced):
        world.apply(never)


# -- races --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("run_id", "versions"), [("twin", None), ("r", VersionRange(4, 5))])
def test_a_loser_whose_range_is_done(world: World, run_id: str, versions: VersionRange | None) -> None:
    """By a twin, it has nothing to do; by a zombie of its own run, it is a success."""

    def late(spec: ApplySpec) -> JobResult:
        world.engine(replace(spec, run_id=run_id))
        return JobResult(status="skipped")

    assert outcome(world.apply(late)) == (versions is not None, versions, 5)


def test_overtaken_after_the_commit_is_a_success(world: World) -> None:
    """The next run sealed on top of us before we looked."""

    def overtaken(spec: ApplySpec) -> JobResult:
        world.engine(spec)
        world.source.append()
        again = replace(
            spec.steps[0],
            starting_version=6,
            applied_to=world.at(6),
            seal_number=spec.steps[0].seal_number + 1,
            planned_on=TableVersion("id-1", world.target.version),
        )
        world.engine(replace(spec, run_id="next", steps=(again,)))
        return DONE

    result = world.apply(overtaken)
    assert (result.applied, result.versions, result.target_version) == (True, VersionRange(4, 5), 1)
    assert result.watermark == world.at(6)


def test_a_restore_between_planning_and_commit_is_named(world: World) -> None:
    def underneath(spec: ApplySpec) -> JobResult:
        world.target.restore(0)
        return world.engine(spec)

    with pytest.raises(TargetChangedUnderneath):
        world.apply(underneath)


# -- read ---------------------------------------------------------------------------------------
def test_read_stages_a_batch_and_then_returns_the_open_one(world: World) -> None:
    result = world.read()
    published = result.to_dict()
    assert (result.applied, result.versions, result.rows) == (True, VersionRange(4, 5), 12)
    assert (published["staging"], published["staging_version"]) == (world.staging.uri, 0)
    assert (published["version"], published["ending_version"]) == (3, 5)
    world.next_run()
    world.source.append()
    result = world.read(never)
    assert (result.applied, result.versions, result.rows) == (False, VersionRange(4, 5), 12)
    assert result.staging_version == 0


def test_nothing_to_read(world: World) -> None:
    world.apply()
    result = world.read(never)
    assert (result.applied, result.versions, result.staging_version, result.rows) == (False, None, None, 0)


def test_read_committed_without_proof_is_unknown(world: World) -> None:
    with pytest.raises(OutcomeUnknown):
        world.read(lambda spec: DONE)


def test_read_then_apply(world: World) -> None:
    world.read()
    assert outcome(world.apply(staging=world.staging.uri)) == (True, VersionRange(4, 5), 5)
    world.next_run()
    assert not world.apply(never, staging=world.staging.uri).applied


def test_the_first_batch_of_a_new_target(world: World, tmp_path: Path) -> None:
    world.target = LogTable(tmp_path / "other")
    result = world.apply(never, staging=world.staging.uri)
    assert (result.applied, result.watermark, result.to_dict()["version"]) == (False, None, None)
    assert world.read().versions == VersionRange(5, 5)
    assert outcome(world.apply(staging=world.staging.uri)) == (True, VersionRange(5, 5), 5)


# -- custom sinks -------------------------------------------------------------------------------
def commit(world: World, execute: Callable[[ReadSpec], JobResult] | None = None, **changes: Any) -> Any:
    request = CommitRequest(pipeline="p", staging=world.staging.uri)
    return run(
        replace(request, **changes), world.services(execute or world.committer, saved_plans=PlansInMemory())
    )


def test_a_batch_is_offered_until_it_is_committed(world: World) -> None:
    first = world.read(target=None)
    published = first.to_dict()
    assert (first.versions, first.watermark) == (VersionRange(5, 5), None)
    assert (published["target_table"], published["target_table_id"]) == (None, None)
    world.next_run()
    world.source.append()
    again = world.read(never, target=None)
    assert (again.applied, again.versions, again.rows) == (False, VersionRange(5, 5), 12)
    done = commit(world)
    assert outcome(done) == (True, VersionRange(5, 5), 5)
    assert done.to_dict()["staging_version"] == world.staging.version == 1
    assert world.heard("Committed versions 5")
    for ending in (None, 5, 3):
        idle = commit(world, never, ending_version=ending)
        assert outcome(idle) == (False, None, 5)
    assert world.heard("Nothing to commit")
    assert committed(ReadRequest(pipeline="p", source=world.source.uri, staging=world.staging.uri)) == (
        world.at(5)
    )
    world.next_run()
    assert world.read(target=None).versions == VersionRange(6, 6)
    commit(world, ending_version=6)
    world.next_run()
    assert (
        world.read(never, target=None).versions,
        world.heard("earlier runs committed all of its changes"),
    ) == (None, True)


def test_a_commit_that_was_made_and_not_published_is_the_runs_own(world: World) -> None:
    world.read(target=None)
    commit(world, run_id="r1")
    for ending in (None, 5):
        again = commit(world, never, run_id="r1", ending_version=ending)
        assert outcome(again) == (True, VersionRange(5, 5), 5)
    assert world.heard("An earlier try of this run committed")
    # A batch that is read since changes nothing about it.
    world.source.append()
    world.next_run()
    world.read(target=None)
    late = commit(world, never, run_id="r1", ending_version=5)
    assert (late.applied, late.versions) == (True, VersionRange(5, 5))
    assert not commit(world, never, run_id="r1", ending_version=4).applied
    for other in ("r2", ""):
        found = commit(world, never, run_id=other, ending_version=5)
        assert (found.applied, found.versions) == (False, None)
    request = CommitRequest(pipeline="p", staging=world.staging.uri, run_id="r1")
    made = committed_by_run(request)
    assert made is not None
    assert outcome(made) == (True, VersionRange(5, 5), 5)
    assert committed_by_run(replace(request, run_id="r2")) is None


def test_a_seal_of_an_idle_sink_is_nobodys_batch(world: World) -> None:
    world.read(target=None)
    commit(world, run_id="r1")
    world.source.optimize()
    found = plan_read(
        ReadRequest(pipeline="p", source=world.source.uri, staging=world.staging.uri, run_id="r2"),
        Memory(now_ms=EPOCH + 4 * 86_400_000),
    )
    assert isinstance(found.spec, ReadSpec)
    world.committer(found.spec)
    request = CommitRequest(pipeline="p", staging=world.staging.uri, run_id="r2")
    assert committed_by_run(request) is None
    made = committed_by_run(replace(request, run_id="r1"))
    assert made is not None
    assert (made.versions, made.watermark) == (VersionRange(5, 5), world.at(6))


def test_a_commit_that_died_before_raises(world: World) -> None:
    world.read(target=None)
    with pytest.raises(Boom):
        commit(world, dies)
    with pytest.raises(KeyNotUnique):
        commit(world, fails)
    with pytest.raises(JobFailed):
        commit(world, lambda spec: JobResult("failed", message="broke"))
    assert world.read(never, target=None).versions == VersionRange(5, 5)


def test_a_commit_names_the_batch_it_saw(world: World) -> None:
    """While it is on its way, a twin commits and reads on: the new batch has arrived nowhere."""
    world.read(target=None)

    def overtaken(spec: ReadSpec) -> JobResult:
        world.committer(spec)
        world.source.append()
        world.next_run()
        world.read(target=None)
        return JobResult(status="skipped")

    done = commit(world, overtaken)
    assert (done.applied, done.watermark.version) == (True, 5)
    assert world.read(never, target=None).versions == VersionRange(6, 6)


def test_a_commit_that_another_run_overtook_leaves_the_next_batch_open(world: World) -> None:
    """The later batch has arrived nowhere, though it is the open one when this run plans again."""
    world.read(target=None)

    def overtaken(spec: ReadSpec) -> JobResult:
        world.committer(replace(spec, run_id="another"))
        world.source.append()
        world.next_run()
        world.read(target=None)
        return JobResult(status="conflict", message="another run was faster")

    done = commit(world, overtaken)
    assert (done.applied, done.watermark.version) == (False, 5)
    assert world.heard("Another run has committed versions")
    assert world.read(never, target=None).versions == VersionRange(6, 6)


def test_a_read_that_died_between_milestones_goes_on(world: World) -> None:
    asked = {"versions_per_commit": 1}

    def halfway(spec: ReadSpec) -> JobResult:
        world.reader(spec, 1)
        raise Boom

    world.killed(world.read, halfway, **asked)
    assert world.saved() is not None
    result = world.read(**asked)
    assert [step.kind for step in world.ran[-1].steps] == ["apply"]  # type: ignore[union-attr]
    assert (result.applied, result.versions) == (True, VersionRange(4, 5))
    assert (result.rows, result.counts) == (24, {"rows": 24})
    world.next_run()
    found = world.read(never, **asked)
    assert (found.applied, found.rows) == (False, 24)


def test_a_batch_found_by_the_try_that_made_it_is_announced(world: World) -> None:
    """The try before committed it, and died before it said so."""

    def dies(spec: ReadSpec) -> JobResult:
        world.reader(spec)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.read(dies)
    result = world.read(never)
    assert (result.applied, result.versions) == (True, VersionRange(4, 5))
    world.next_run()
    assert not world.read(never).applied


def test_counts_of_the_job_are_published(world: World) -> None:
    def counts(spec: ReadSpec) -> JobResult:
        world.reader(spec)
        return JobResult("committed", counts={"rows": 12, "insert": 5, "delete": 7})

    assert world.read(counts).counts == {"rows": 12, "insert": 5, "delete": 7}
    assert world.read(never).counts == {"rows": 12}, "the log tells no change types of the last commit"


def test_an_idle_sink_is_sealed_and_nobody_is_told(world: World) -> None:
    world.read(target=None)
    commit(world)
    world.next_run()
    world.source.optimize()
    os.utime(world.staging.file(1), (1, 1))
    text = world.staging.file(1).read_text()
    world.staging.file(1).write_text(re.sub(r'"timestamp": \d+', '"timestamp": 1000', text))
    os.utime(world.staging.file(1), (1, 1))

    result = world.read(world.committer, target=None)
    assert outcome(result) == (False, None, 6)
    assert world.heard("0 rows: wrote watermark")
    assert world.saved() is not None
    assert world.read(never, target=None).watermark == world.at(6)


def test_a_commit_is_confirmed_by_one_walk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the job, no commit of the target is read twice, although several questions are put to its log."""
    world.apply()
    world.source.append()
    read: list[tuple[str, int]] = []
    find = DeltaLog.find

    async def counted(self: DeltaLog, version: int) -> Commit | None:
        read.append((self.uri, version))
        return await find(self, version)

    def execute(spec: ApplySpec) -> JobResult:
        result = world.engine(spec)
        monkeypatch.setattr(DeltaLog, "find", counted)
        return result

    assert world.apply(execute).applied
    target = [version for uri, version in read if uri == world.target.uri]
    assert target
    assert len(target) == len(set(target))
