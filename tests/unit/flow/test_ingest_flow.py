"""An ingest from plan to result: every way a job can end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_cdc.core.errors import ConcurrentModification, InvalidRecord, OutcomeUnknown
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.quarantine import Held
from delta_cdc.core.requests import ApplyRequest
from delta_cdc.core.spec import IngestSpec, JobResult
from delta_cdc.run.outcomes import Outcome
from delta_cdc.run.saved_plans import PlansInMemory, forget_saved_plans
from tests.support.ingest_model import DONE, Boom, World, seal_of
from tests.support.logs import LogTable

if TYPE_CHECKING:
    from pathlib import Path

DAY = 86_400_000


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.deliver("a.json", ["1", "2"])
    return made


def never(spec: IngestSpec) -> JobResult:
    raise AssertionError("no job was to run")


def test_a_batch_is_ingested_and_told(world: World) -> None:
    done = world.ingest()
    assert (done.applied, done.seal) == (True, world.log_txns["p"])
    assert done.counts == {"events": 2, "files": 1}
    assert (done.log_version, done.log_table_id, done.left) == (0, "log-1", {})
    told = "pipeline seal applied log_table log_table_id log_version counts left bytes_written"
    assert list(done.to_dict()) == [*told.split(), "seconds", "attempts_lost", "timestamp"]
    assert done.bytes_written == 100
    assert any(line.startswith("Ingested 2 events, 1 file into ") for line in world.said)


def test_nothing_new_starts_nothing(world: World, tmp_path: Path) -> None:
    first = world.ingest()
    again = world.ingest(never)
    assert (again.applied, again.seal, again.log_version) == (False, first.seal, 0)
    assert "1 file of" in world.said[-1]
    assert "found nothing new for" in world.said[-1]
    none = World(tmp_path / "none").ingest(never)
    assert (none.applied, none.seal, none.log_version, none.log_table_id) == (False, None, None, None)


def test_what_the_bounds_leave_is_told(world: World) -> None:
    world.deliver("b.json", ["3"])
    done = world.ingest(max_files=1)
    assert done.left == {"files": 1, "bytes": 2}
    assert world.said[-1].startswith("The next run takes the rest: 1 file, 2 bytes")


def test_a_job_that_dies_after_its_commit_has_committed(world: World) -> None:
    done = world.unpublished(lambda spec: world.engine(spec, "committed"))
    assert done.applied
    assert done.counts["events"] == 2
    assert "The job failed after its commit" in " ".join(world.said)


def test_a_worker_that_died_before_it_published(world: World) -> None:
    """What its job brought is the result of the retry: one batch is one piece of work."""
    first = world.unpublished()
    world.deliver("b.json", ["3"])
    again = world.unpublished(never)
    assert again.applied
    assert (again.seal, again.counts) == (first.seal, first.counts)
    forget_saved_plans(again, world.saved_plans)
    assert world.ingest().counts == {"events": 1, "files": 1}


def test_a_driver_that_outlived_its_worker(world: World) -> None:
    """It goes on while the retry runs the same batch: one commits, and both are one piece of work."""
    with pytest.raises(Boom):
        world.unpublished(lambda spec: world.engine(spec, "recorded"))
    (first,) = world.ran

    def meanwhile(spec: IngestSpec) -> JobResult:
        file = first.files[0].uri
        world.append(seal_of(first, rows=1, events=2), [(file, "1"), (file, "2")])
        return world.engine(spec)

    done = world.unpublished(meanwhile)
    assert (done.applied, done.counts["events"]) == (True, 2)
    assert "Already ingested by an earlier try of this run" in world.said[-1]
    assert world.events == world.delivered


def test_the_retry_knows_the_commit_of_the_driver_that_lived_on(world: World) -> None:
    specs: list[IngestSpec] = []

    def gone(spec: IngestSpec) -> JobResult:
        specs.append(spec)
        raise Boom("the worker")

    with pytest.raises(Boom):
        world.unpublished(gone)
    world.engine(specs[0])
    done = world.unpublished(never)
    assert (done.applied, done.counts["events"]) == (True, 2)
    assert "Already ingested by an earlier try of this run" in world.said[-1]


def test_a_lost_race_is_planned_again(world: World) -> None:
    other = World(world.root, pipeline="p")
    other.log, other.record = world.log, world.record
    calls: list[IngestSpec] = []

    def raced(spec: IngestSpec) -> JobResult:
        calls.append(spec)
        if len(calls) == 1:
            # Somebody else is faster, with the same files.
            world.engine(replace(spec, run_id="other"))
        return world.engine(spec)

    done = world.ingest(raced)
    assert (done.applied, len(calls)) == (False, 1)
    assert world.events == world.delivered


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (JobResult("conflict"), ConcurrentModification, "5 times"),
        (
            JobResult("failed", error=InvalidRecord("Bad.", remedy="mend it.").to_dict()),
            InvalidRecord,
            "Bad",
        ),
        (DONE, OutcomeUnknown, "does not have it"),
    ],
    ids=["lost races", "a named error", "a lie"],
)
def test_how_a_job_may_fail(world: World, result: JobResult, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        world.unpublished(lambda spec: result)


def test_a_seal_alone_is_no_batch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.ingest()
    monkeypatch.setattr("time.time_ns", lambda: (world.log.created + 20 * DAY) * 1_000_000)
    done = world.ingest()
    assert (done.applied, done.seal) == (False, world.log_txns["p"])
    assert world.said[-1].startswith("0 rows: renewed the seal")


def test_what_the_same_application_applies(world: World) -> None:
    then = ApplyRequest(
        pipeline="p",
        source=str(world.root / "log"),
        target=str(world.root / "target"),
        options=ApplyOptions(keys=("id",), source_kind="change_log", sequence_by="_sequence"),
        run_id="r",
        storage_options={"secret": "x"},
    )
    told = JobResult("committed", then=(JobResult("skipped"),))

    def run(spec: IngestSpec) -> JobResult:
        world.engine(spec)
        return told

    done = world.unpublished(run, then=then)
    assert isinstance(done, Outcome)
    assert done.then == (JobResult("skipped"),)
    (spec,) = world.ran
    assert "secret" not in str(spec.after)
    assert spec.after == (replace(then, storage_options=None),)


def test_the_rows_in_quarantine_are_published_once_there_is_one(world: World, caplog: Any) -> None:
    """Also by a run without new files: a person may have deleted some."""
    assert "in_quarantine" not in world.ingest().to_dict()
    quarantine = LogTable(world.root / "log__quarantine", table_id="q").create()
    quarantine.append()
    pq.write_table(pa.table({"pipeline": ["p", "other"]}), quarantine.path / "part-00001-0.parquet")
    found = {"table": str(world.root / "log"), "rows": 1, "is_log": True}
    assert world.ingest().to_dict()["in_quarantine"] == found
    quarantine.file(quarantine.version).write_text("{")
    assert "in_quarantine" not in world.ingest().to_dict()
    (line,) = caplog.messages
    assert line.startswith(f"Cannot count the rows in the quarantine {quarantine.path}: ")


def test_a_replay_comes_after_what_was_left_behind(world: World) -> None:
    advice = "The next run applies these events to the targets of the log."
    world.ingest()
    assert advice not in world.said
    quarantine = LogTable(world.root / "log__quarantine", table_id="q").create()
    quarantine.append()
    pq.write_table(pa.table({"pipeline": ["p"]}), quarantine.path / "part-00001-0.parquet")
    world.deliver("b.json", ["3"])
    with pytest.raises(Boom):
        world.unpublished(lambda spec: world.engine(spec, "recorded"))
    world.ran.clear()
    done = world.ingest(replay=True)
    assert done.held == Held(str(world.root / "log"), 10, is_log=True)
    assert [spec.step.kind for spec in world.ran] == ["ingest", "replay"]
    assert done.seal == world.log_txns["p"]
    assert world.events == world.delivered
    assert advice in world.said


def test_what_earlier_runs_did_not_announce_is_part_of_the_result(world: World) -> None:
    first = world.ingest()
    for name in ("b.json", "c.json"):
        # The run dies, without a retry.
        world.deliver(name, ["3"])
        world.unpublished()
        world.saved_plans = PlansInMemory()

    def events(table: str, uri: str, table_id: str, newest: int) -> int | None:
        assert (table, uri, table_id) == ("log", str(world.root / "log"), "log-1")
        return first.seal

    done = world.unpublished(never, announced=events)
    assert (done.applied, done.seal, done.log_version) == (True, world.log_txns["p"], 2)
    assert done.counts == {"events": 2, "files": 2}
    world.deliver("d.json", ["4"])
    done = world.ingest(announced=events)
    assert (done.log_version, done.counts) == (3, {"events": 3, "files": 3})
    done = world.ingest(never, announced=lambda *_: done.seal)
    assert not done.applied
