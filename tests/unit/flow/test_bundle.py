"""Many tables, one application."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.cli.run import _about_quarantine
from delta_cdc.core import validation
from delta_cdc.core.errors import (
    ConflictingEvents,
    DeltaCdcError,
    InvalidConfiguration,
    JobFailed,
    LimitExceeded,
    TargetHistoryChanged,
    WatermarkExpired,
)
from delta_cdc.core.spec import ApplySpec, BatchSpec, IngestSpec, JobResult, step_fingerprint
from delta_cdc.core.watermark import Seal, SealStep
from delta_cdc.run import batch
from delta_cdc.run.batch import PipelineJob, PipelineResult, run_batch, since_key
from delta_cdc.run.loop import Services
from delta_cdc.run.outcomes import Outcome
from delta_cdc.run.saved_plans import PlansInMemory, forget_saved_plans
from delta_cdc.run.table_arguments import requests
from tests.support.ingest_model import Boom, World
from tests.support.logs import LogTable, state_after

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from delta_cdc.core.requests import ApplyRequest
    from delta_cdc.core.steps import Step


@dataclass
class Table:
    """One table: its world, and the target that its log is applied to."""

    world: World
    target: LogTable
    #: Of a pipeline that only applies a log: the log, and its name.
    log: str = ""
    name: str = ""

    @property
    def apply(self) -> ApplyRequest:
        of_log = {"source": self.log, "source_kind": "change_log", "sequence_by": "_sequence"}
        _, apply = requests(
            {
                "pipeline": self.name or self.world.pipeline,
                "keys": ["id"],
                "target": self.target.uri,
                **(of_log if self.log else {"log": str(self.world.root / "log")}),
            },
            run_id="r",
            ingest=False,
        )
        assert apply is not None
        return apply

    @property
    def pipeline_job(self) -> PipelineJob:
        return PipelineJob(ingest=self.world.request(), apply=self.apply)

    def applied(self, spec: ApplySpec) -> JobResult:
        """Do what an apply does to its target's log."""
        for step in spec.steps:
            self.target.write_seal(sealed(spec, step))
        return JobResult("committed")


_DIED = JobFailed("it ended after 1 of 3 parts.", remedy="again")


def sealed(spec: ApplySpec, step: Step) -> Seal:
    return Seal(
        pipeline=spec.pipeline,
        number=step.seal_number,
        source_uri=spec.source_uri,
        state=state_after(step, validation.described(spec.options)),
        step=SealStep(
            kind=step.kind,  # type: ignore[arg-type]
            starting_version=step.starting_version,
            ending_version=step.ending_version,
            fingerprint=step_fingerprint(spec, step.seal_number),
            run_id=spec.run_id,
            planned_on=step.planned_on,
            counts={},
        ),
    )


@dataclass
class Lake:
    """Tables, and the application that runs their jobs."""

    root: Path
    tables: dict[str, Table] = field(default_factory=dict)
    bundles: list[BatchSpec] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)
    said: list[str] = field(default_factory=list)
    saved_plans: PlansInMemory = field(default_factory=PlansInMemory)
    #: What a part does in the place of the ordinary.
    instead: dict[str, Callable[[IngestSpec | ApplySpec], JobResult]] = field(default_factory=dict)
    applies: bool = True

    def add(self, name: str) -> Table:
        world = World(self.root / name, pipeline=name)
        self.tables[name] = Table(world, LogTable(world.root / "target", table_id=f"target-{name}"))
        return self.tables[name]

    def execute(self, spec: BatchSpec) -> JobResult:
        self.bundles.append(spec)
        self.threads.add(threading.get_ident())
        return JobResult("committed", parts=tuple(self.part(part) for part in spec.parts))

    def part(self, spec: IngestSpec | ApplySpec) -> JobResult:
        instead = self.instead.pop(spec.pipeline, None)
        if instead is not None:
            return instead(spec)
        table = next(one for one in self.tables.values() if spec.pipeline in (one.name, one.world.pipeline))
        if isinstance(spec, ApplySpec):
            return self.tables[spec.pipeline].applied(spec)
        result = table.world.engine(spec)
        if result.status != "committed" or not self.applies:
            return result
        return replace(result, then=tuple(map(self.applied_after, spec.after)))

    def applied_after(self, request: ApplyRequest) -> JobResult:
        from delta_cdc.run.flows import run

        table = next(one for one in self.tables.values() if one.apply.target == request.target)
        done = run(request, Services(execute=table.applied, say=lambda line: None))
        return JobResult("committed" if done.applied else "skipped", seconds={"work": 2.0})

    def run(
        self, execute: Any = None, pipeline_jobs: list[PipelineJob] | None = None
    ) -> dict[str, PipelineResult]:
        made = run_batch(
            pipeline_jobs or [table.pipeline_job for table in self.tables.values()],
            Services(
                execute=execute or self.execute,
                saved_plans=self.saved_plans,
                say=self.said.append,
                sleep=lambda seconds: None,
            ),
            run_id="r",
        )
        names = [result.pipeline for result in made]
        return {
            ("in" if name not in self.tables else name): one for name, one in zip(names, made, strict=True)
        }

    def publish(self, results: dict[str, PipelineResult]) -> None:
        for result in results.values():
            for done in (result.ingested, result.applied):
                if done is not None:
                    forget_saved_plans(done, self.saved_plans)
            self.saved_plans.delete(since_key(self.tables[result.pipeline].apply))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    for name in ("one", "two", "three"):
        made.add(name).world.deliver("a.json", [name])
    return made


#: What ``did`` says of a table: its ingest and its apply committed something, and there is no error.
DONE, IDLE = (True, True, ""), (False, False, "")


def parts(lake: Lake) -> list[list[str]]:
    return [[f"{part.job} {part.pipeline}" for part in bundle.parts] for bundle in lake.bundles]


def did(results: dict[str, PipelineResult]) -> dict[str, tuple[bool | None, bool | None, str]]:
    """Return of each table whether its ingest and its apply committed something, and its error."""
    return {
        name: (
            None if one.ingested is None else one.ingested.applied,
            None if one.applied is None else one.applied.applied,
            "" if one.error is None else type(one.error).__name__,
        )
        for name, one in results.items()
    }


def all_are(done: tuple[bool | None, bool | None, str], **others: Any) -> dict[str, Any]:
    return {"one": done, "two": done, "three": done, **others}


def test_all_in_one_application(lake: Lake) -> None:
    results = lake.run()
    assert parts(lake) == [["ingest one", "ingest two", "ingest three"]]
    assert lake.threads == {threading.get_ident()}, "in the caller's own thread"
    assert list(results) == ["one", "two", "three"]
    assert did(results) == all_are(DONE), "another process applied it, but for this run"
    assert all(table.target.version == 0 for table in lake.tables.values())
    assert any(line.startswith("two: ") and ": Ingested " in line for line in lake.said)


def test_only_tables_with_work(lake: Lake) -> None:
    lake.publish(lake.run())
    lake.bundles.clear()
    assert did(lake.run()) == all_are(IDLE)
    assert lake.bundles == [], "nothing anywhere starts nothing"
    lake.tables["two"].world.deliver("b.json", ["x"])
    assert did(lake.run()) == all_are(IDLE, two=DONE)
    assert parts(lake) == [["ingest two"]]


def test_a_log_that_was_not_applied_yet(lake: Lake) -> None:
    """An ingest without work, and an apply with some: the apply is the part."""
    lake.tables["one"].world.ingest()
    assert did(lake.run()) == all_are(DONE, one=(False, True, ""))
    assert parts(lake) == [["apply one", "ingest two", "ingest three"]]


class Two:
    """A log that one pipeline ingests, and two others apply into targets of their own; a file is new."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        lake.tables = {"in": lake.tables.pop("one")}
        table = lake.tables["in"]
        for name in ("rows", "history"):
            target = LogTable(lake.root / name, table_id=name)
            lake.tables[name] = replace(table, target=target, log=str(table.world.root / "log"), name=name)
        self.run()
        # First loads may be large: they are beside each other in an application of their own.
        assert parts(lake) == [["ingest one"], ["apply rows", "apply history"]]
        lake.saved_plans = PlansInMemory()
        table.world.deliver("b.json", ["x"])

    def jobs(self, **changed: Any) -> list[PipelineJob]:
        appliers = [self.lake.tables[name].apply for name in ("rows", "history")]
        ingest = PipelineJob(ingest=self.lake.tables["in"].world.request())
        return [PipelineJob(apply=appliers[0]), ingest, PipelineJob(apply=replace(appliers[1], **changed))]

    def run(self, **changed: Any) -> dict[str, tuple[bool | None, bool | None, str]]:
        return did(self.lake.run(pipeline_jobs=self.jobs(**changed)))

    @property
    def parts(self) -> list[list[str]]:
        """What each application did since the first loads."""
        return parts(self.lake)[2:]


@pytest.fixture
def two(lake: Lake) -> Two:
    return Two(lake)


BOTH = {"rows": (None, True, ""), "in": (True, None, ""), "history": (None, True, "")}


def test_the_application_of_an_ingest_does_the_applies_of_other_pipelines(lake: Lake, two: Two) -> None:
    assert two.run() == BOTH
    assert two.parts == [["ingest one"]]
    assert any("rows: Already applied by the application of the ingest: " in line for line in lake.said)
    lake.saved_plans = PlansInMemory()
    idle = {"rows": (None, False, ""), "in": (False, None, ""), "history": (None, False, "")}
    assert (two.run(), two.parts) == (idle, [["ingest one"]])


def test_one_application_does_only_some_applies(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_MOST_FOLLOWERS", 1)
    assert two.run() == BOTH
    assert two.parts == [["ingest one"], ["apply history"]]


def test_the_time_of_each_apply_is_that_of_its_pipeline(lake: Lake, two: Two) -> None:
    done = lake.run(pipeline_jobs=two.jobs())
    work = {name: one.effort.seconds.get("work", 0.0) for name, one in done.items()}
    assert work == {"rows": 2.0, "history": 2.0, "in": -4.0}, "the model's ingest itself takes no time"


def test_an_error_of_one_target_is_not_that_of_the_others(lake: Lake, two: Two) -> None:
    """Its version cannot be read before the ingest."""
    jobs = two.jobs()
    assert jobs[0].apply is not None
    jobs[0] = PipelineJob(apply=replace(jobs[0].apply, target="main.silver.rows"))
    assert did(lake.run(pipeline_jobs=jobs)) == {**BOTH, "rows": (None, None, "TableNameUnresolved")}
    assert two.parts == [["ingest one"]]


def test_an_apply_of_two_ingests_waits_for_both(lake: Lake, two: Two) -> None:
    rows, ingest, history = two.jobs()
    assert ingest.ingest is not None
    other = replace(ingest.ingest, pipeline="other", source=str(lake.root / "other"))
    (lake.root / "other").mkdir()
    results = lake.run(pipeline_jobs=[rows, ingest, PipelineJob(ingest=other), history])
    assert [one.error for one in results.values()] == [None] * len(results)
    assert two.parts == [["ingest one"], ["apply rows", "apply history"]]


@pytest.mark.parametrize(
    "changed",
    [
        {"max_versions": 1},
        {"storage_options": {"key": "of another store"}},
        {"shadowed_by": {"next": "/lake/next"}},
    ],
    ids=str,
)
def test_an_apply_that_needs_an_application_of_its_own(two: Two, changed: dict[str, Any]) -> None:
    assert two.run(**changed) == BOTH
    assert two.parts == [["ingest one"], ["apply history"]]


@pytest.mark.parametrize(
    ("error", "rounds", "outcome"),
    [
        (ConflictingEvents("Tied.", remedy="untie."), [], (None, None, "ConflictingEvents")),
        (LimitExceeded("Too many.", remedy="approve."), [], (None, None, "LimitExceeded")),
        (WatermarkExpired("Gone.", remedy="drop it."), [["apply rows"]], (None, True, "")),
    ],
    ids=["failed", "stopped by a limit", "lacked something"],
)
def test_an_apply_of_another_pipeline_that_failed_there(
    lake: Lake, two: Two, error: DeltaCdcError, rounds: list[Any], outcome: Any
) -> None:
    """It stops neither the ingest nor the other one."""

    def failing(spec: IngestSpec | ApplySpec) -> JobResult:
        assert isinstance(spec, IngestSpec)
        done = lake.tables["in"].world.engine(spec)
        failed = JobResult("failed", error=error.to_dict())
        return replace(done, then=(failed, lake.applied_after(spec.after[1])))

    lake.instead["one"] = failing
    assert two.run() == {**BOTH, "rows": outcome}
    assert two.parts[1:] == rounds


@pytest.mark.parametrize("changed", [{"max_versions": 1}, {"max_bytes": 1}, {"mode": "reload"}])
def test_an_apply_that_would_do_more_a_second_time_is_done_once(lake: Lake, changed: dict[str, Any]) -> None:
    one = lake.tables["one"]
    lake.publish(lake.run(pipeline_jobs=[one.pipeline_job]))
    one.world.deliver("b.json", ["x"])
    lake.run(pipeline_jobs=[replace(one.pipeline_job, apply=replace(one.apply, **changed))])
    assert parts(lake)[-2:] == [["ingest one"], ["apply one"]]
    (ingest,) = lake.bundles[-2].parts
    assert isinstance(ingest, IngestSpec)
    assert ingest.after == ()


def test_applies_alone_and_ingests_alone(lake: Lake) -> None:
    lake.tables["one"].world.ingest()
    apply = PipelineJob(apply=lake.tables["one"].apply)
    ingest = PipelineJob(ingest=lake.tables["two"].world.request())
    results = lake.run(pipeline_jobs=[apply, ingest])
    assert parts(lake) == [["apply one", "ingest two"]]
    assert did(results) == {"one": (None, True, ""), "two": (True, None, "")}
    assert lake.tables["two"].target.version == -1
    with pytest.raises(InvalidConfiguration, match="neither an ingest nor an apply"):
        _ = PipelineJob().pipeline


def test_one_alone_has_its_name_too(lake: Lake) -> None:
    lake.run(pipeline_jobs=[lake.tables["one"].pipeline_job])
    starts = {line.partition(": ")[0] for line in lake.said}
    assert starts == {"one"}


def test_one_that_cannot_be_planned(lake: Lake) -> None:
    pipeline_jobs = [table.pipeline_job for table in lake.tables.values()]
    gone = replace(lake.tables["two"].world.request(), source=str(lake.root / "nowhere"))
    pipeline_jobs[1] = replace(pipeline_jobs[1], ingest=gone)
    assert did(lake.run(pipeline_jobs=pipeline_jobs)) == all_are(DONE, two=(None, None, "SourceNotFound"))
    assert parts(lake) == [["ingest one", "ingest three"]]


@pytest.mark.parametrize(
    ("error", "rounds", "two"),
    [
        (ConflictingEvents("Tied.", remedy="untie."), [], (True, None, "ConflictingEvents")),
        # The backup of a seal, or credentials: the driver has none, and the worker has.
        (WatermarkExpired("Gone.", remedy="drop it."), [["apply two"]], DONE),
    ],
    ids=["failed", "lacked something"],
)
def test_an_apply_that_failed_in_the_same_application(
    lake: Lake, error: DeltaCdcError, rounds: list[Any], two: Any
) -> None:
    """It is tried again by the worker if the driver lacked something for it, and else not."""

    def failing(spec: IngestSpec | ApplySpec) -> JobResult:
        assert isinstance(spec, IngestSpec)
        done = lake.tables["two"].world.engine(spec)
        return replace(done, then=(JobResult("failed", error=error.to_dict()),))

    lake.instead["two"] = failing
    assert did(lake.run()) == all_are(DONE, two=two)
    assert parts(lake)[1:] == rounds


def test_the_try_after_rows_that_could_not_be_applied_takes_their_correction(lake: Lake) -> None:
    """The same task, cleared: it would else find its earlier batch, and meet the same rows for ever."""
    error = ConflictingEvents("Tied.", remedy="untie.")

    def failing(spec: IngestSpec | ApplySpec) -> JobResult:
        assert isinstance(spec, IngestSpec)
        done = lake.tables["two"].world.engine(spec)
        return replace(done, then=(JobResult("failed", error=error.to_dict()),))

    lake.instead["two"] = failing
    first = lake.run()["two"]
    assert first.ingested is not None
    # Without a correction, the try finds its batch, and applies it again.
    again = lake.run()["two"]
    assert again.ingested is not None
    assert again.ingested.seal == first.ingested.seal
    lake.publish({"two": again})
    for name in ("x", "y"):
        lake.tables["two"].world.deliver(f"{name}.json", [name])
        if name == "x":
            lake.instead["two"] = failing
        done = lake.run()["two"]
        assert done.ingested is not None
    assert done.error is None
    assert done.ingested.counts["files"] == 1
    assert done.ingested.seal == again.ingested.seal + 2


def test_a_target_whose_commit_was_overwritten_fails_alone(lake: Lake) -> None:
    """A seal of the next run is planned on it; the run after that finds the other commit."""
    for name in "bc":
        lake.publish(lake.run())
        for table in lake.tables.values():
            table.world.deliver(f"{name}.json", [name])
    lake.publish(lake.run())
    target = lake.tables["two"].target
    target.file(1).write_text(target.file(1).read_text().replace("part-00001-0", "part-00001-7"))
    for table in lake.tables.values():
        table.world.deliver("d.json", ["d"])
    written = target.version
    lake.applies = False
    results = lake.run()
    assert isinstance(results["two"].error, TargetHistoryChanged)
    assert target.version == written
    assert [results[name].error for name in ("one", "three")] == [None, None]


def test_an_apply_that_could_not_run_there_comes_in_a_second_round(lake: Lake) -> None:
    lake.applies = False
    assert did(lake.run()) == all_are(DONE)
    assert parts(lake)[1:] == [["apply one", "apply two", "apply three"]]


def test_one_that_lost_a_race_meets_no_other_again(lake: Lake) -> None:
    lake.instead["two"] = lambda spec: JobResult("conflict")
    assert did(lake.run()) == all_are(DONE)
    assert parts(lake) == [["ingest one", "ingest two", "ingest three"], ["ingest two"]]


def test_an_application_that_dies_on_its_way(lake: Lake) -> None:
    """What is committed is found in the logs; what is not, fails and is left to the next try."""

    def dying(spec: BatchSpec) -> JobResult:
        lake.bundles.append(spec)
        lake.part(spec.parts[0])
        raise Boom("killed")

    results = lake.run(dying)
    assert did(results) == all_are((None, None, "JobFailed"), one=DONE)
    assert "killed" in str(results["two"].error)
    lake.bundles.clear()
    assert did(lake.run()) == all_are(DONE), "it was not published, so it still counts as this run's"
    assert parts(lake) == [["ingest two", "ingest three"]]
    assert all(table.world.events == table.world.delivered for table in lake.tables.values())


def test_an_application_of_which_only_some_is_known(lake: Lake) -> None:
    def cut(spec: BatchSpec) -> JobResult:
        return JobResult("committed", parts=(lake.part(spec.parts[0]),))

    results = lake.run(cut)
    assert did(results) == all_are((None, None, "JobFailed"), one=DONE)
    assert "before it came to this table" in str(results["two"].error)
    assert [result.unanswered for result in results.values()] == [False, True, True]


def test_what_an_application_did_not_come_to_may_be_there_all_the_same(lake: Lake) -> None:
    """It was killed behind a commit, and before it could tell."""

    def cut(spec: BatchSpec) -> JobResult:
        lake.part(spec.parts[0])
        gone = JobResult("unreached")
        return JobResult("failed", parts=(gone, lake.part(spec.parts[1]), gone), error=_DIED.to_dict())

    results = lake.run(cut)
    assert did(results) == all_are(DONE, three=(None, None, "JobFailed"))
    assert (str(results["three"].error), results["three"].unanswered) == (str(_DIED), True)


def test_one_that_fails_was_answered_stops_no_other_and_runs_once(lake: Lake) -> None:
    lake.instead["two"] = lambda spec: JobResult("failed", error=_DIED.to_dict())
    results = lake.run()
    assert len(lake.bundles) == 1
    assert did(results) == all_are(DONE, two=(None, None, "JobFailed"))
    assert not any(result.unanswered for result in results.values())


def test_how_many_run_at_once_is_told_to_the_application(lake: Lake) -> None:
    run_batch([lake.tables["one"].pipeline_job], Services(execute=lake.execute), run_id="r", parallel=7)
    assert [bundle.parallel for bundle in lake.bundles] == [7]


def test_a_piece_may_have_pins_and_a_start_of_its_own(lake: Lake) -> None:
    """What the run committed behind its start is its own, though none of its pins knows of it."""
    one = lake.tables["one"]
    one.world.ingest()
    lake.run(pipeline_jobs=[PipelineJob(apply=one.apply)])
    for since, ours in ((-1, True), (0, False)):
        job = PipelineJob(apply=one.apply, saved_plans=PlansInMemory(), since=since)
        assert did(lake.run(pipeline_jobs=[job])) == {"one": (None, ours, "")}


def test_what_stops_the_caller_stops_everything(lake: Lake) -> None:
    before = threading.active_count()

    def stopped(spec: BatchSpec) -> JobResult:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lake.run(stopped)
    for thread in threading.enumerate():
        if thread.name.startswith("delta-cdc-"):
            thread.join(timeout=30)
    assert threading.active_count() == before


def test_what_went_into_quarantine_is_shown_with_the_next_step() -> None:
    """For each table that the run wrote, if this run wrote it."""

    def lines(ingested: int, applied: int, file: str = "", *, is_new: bool = True) -> list[str]:
        common: dict[str, Any] = {"pipeline": "p", "seal": 1, "applied": is_new}
        found = [{"quarantined": count, "events": 5} for count in (ingested, applied)]
        result = PipelineResult(
            pipeline="p",
            ingested=Outcome(kind="ingest", counts=found[0], log_table="/lake/log", **common),
            applied=Outcome(kind="apply", counts=found[1], target_table="/lake/made", **common),
        )
        return list(_about_quarantine(result, file))

    (line,) = lines(2, 0)
    assert line == (
        "p: 2 rows in quarantine, each with its reason: /lake/log__quarantine. "
        "Remedy: correct the options or the records there (or deliver a file again, corrected, "
        "under its name), then run: delta-cdc replay p=/lake/log"
    )
    assert [line.rpartition(" ")[2] for line in lines(2, 1)] == ["p=/lake/log", "p=/lake/made"]
    # Only the configuration has what a user corrects there, such as schema_evolution.
    assert lines(2, 0, "cdc.yaml")[0].endswith("delta-cdc replay cdc.yaml p")
    assert lines(2, 1, is_new=False) == lines(0, 0) == []
