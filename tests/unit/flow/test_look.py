"""A look at many pieces: what each would find to do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from delta_cdc.core.errors import ConfigurationDrift
from delta_cdc.core.quarantine import Held
from delta_cdc.run import batch
from delta_cdc.run.batch import PipelineJob, run_batch
from delta_cdc.run.detect_changes import detect_changes
from delta_cdc.run.loop import Services
from delta_cdc.run.saved_plans import SavedPlan
from tests.support.filled import fill
from tests.support.logs import LogTable
from tests.unit.flow.test_bundle import Lake

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.core.spec import BatchSpec, JobResult
    from delta_cdc.run.detect_changes import DetectedChanges


def grow(table: Path, *keys: int) -> None:
    data = pa.table({"id": pa.array(keys, pa.int64())})
    write_deltalake(str(table), data, mode="append", configuration={"delta.enableChangeDataFeed": "true"})


def feed(folder: Path, name: str, **more: Any) -> dict[str, Any]:
    source, target = str(folder / f"{name}_source"), str(folder / name)
    return {"pipeline": name, "source": source, "target": target, "keys": ["id"], **more}


def seen(*given: dict[str, Any]) -> dict[str, DetectedChanges]:
    return {one.pipeline: one for one in detect_changes([batch.pipeline_job(table) for table in given])}


def test_what_each_would_find(tmp_path: Path) -> None:
    for name in ("quiet", "busy", "new"):
        grow(tmp_path / f"{name}_source", 1, 2)
    quiet, busy, new = (feed(tmp_path, name) for name in ("quiet", "busy", "new"))
    for table in (quiet, busy):
        fill(table)
    grow(tmp_path / "busy_source", 3)
    grow(tmp_path / "busy_source", 4)
    found = seen(quiet, busy, new, feed(tmp_path, "absent"))
    assert list(found) == ["quiet", "busy", "new", "absent"]
    assert {name: one.has_work for name, one in found.items()} == {
        "quiet": False,
        "busy": True,
        "new": True,
        "absent": False,
    }
    assert found["quiet"].found == "nothing new; at watermark 0, the source at version 0"
    assert (found["quiet"].target_version, found["quiet"].version) == (0, 0)
    assert found["busy"].found.startswith("versions 1-2, ")
    assert (found["busy"].since, found["new"].since) == (0, -1)
    assert found["new"].found == "the snapshot of version 0"
    assert (found["new"].target, found["new"].target_version) == (new["target"], None)
    error = found["absent"].error
    assert type(error).__name__ == "TableNotFound", "it stops no other"
    assert found["absent"].found.startswith("TableNotFound: ")


def test_the_work_stays_what_was_found(tmp_path: Path) -> None:
    """What the source gets between the look and the work is left to the next run."""
    grow(tmp_path / "t_source", 1)
    table = feed(tmp_path, "t")
    fill(table)
    grow(tmp_path / "t_source", 2)
    ((key, kept),) = seen(table)["t"].saved_plans.items()
    saved_plan = SavedPlan.read(kept)
    assert key.startswith("pin:t:")
    assert (saved_plan.ending_version, saved_plan.fingerprints, saved_plan.asked) == (1, (), "")
    again = seen({**table, "mode": "repair", "starting_version": 0})["t"]
    assert SavedPlan.read(again.saved_plans[key]).asked != "", "a repair is no bound of what is new"
    assert again.has_work


def test_tables_with_a_log(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    first, second = lake.add("first"), lake.add("second")
    first.world.deliver("a.json", ["x"])
    found = {one.pipeline: one for one in detect_changes([first.pipeline_job, second.pipeline_job])}
    assert found["first"].found.startswith("1 file (")
    assert (found["first"].has_work, found["first"].since, found["first"].saved_plans) == (True, -1, {})
    assert (found["second"].has_work, found["second"].found) == (False, "nothing new")

    lake.publish(lake.run())
    (idle, _) = detect_changes([first.pipeline_job, second.pipeline_job])
    assert not idle.has_work
    assert (idle.target_version, idle.version) == (0, 0)

    first.world.deliver("b.json", ["y"])
    first.world.ingest()
    (behind, _) = detect_changes([first.pipeline_job, second.pipeline_job])
    assert behind.found.startswith("versions 1-1"), "what is in the log, and was not applied"

    (alone,) = detect_changes([replace(first.pipeline_job, apply=None)])
    assert (alone.has_work, alone.target, alone.since) == (False, first.world.request().log, None)
    assert alone.target_version == first.world.log.version


def test_other_options_are_found_before_the_ingest_which_goes_on(tmp_path: Path) -> None:
    """The source may not keep its records until a person corrects the options of the target."""
    lake = Lake(tmp_path)
    one = lake.add("one")
    log: list[str] = []
    one.world.deliver("a.json", ["x"])
    lake.publish(lake.run())
    one.world.deliver("b.json", ["y"])

    def found(**options: Any) -> DetectedChanges:
        other = replace(one.apply, options=replace(one.apply.options, **options))
        (detected,) = detect_changes([replace(one.pipeline_job, apply=other)])
        return detected

    drifted = found(where="id > 1")
    assert isinstance(drifted.error, ConfigurationDrift)
    assert (drifted.has_work, drifted.since) == (True, 0)
    assert drifted.found.startswith("1 file (")
    assert "; then ConfigurationDrift: " in drifted.found
    assert "\nthen       ConfigurationDrift: " in drifted.plan
    assert found().error is None
    # A run reports it before its application starts.
    lake.applies = False
    other = replace(one.apply, options=replace(one.apply.options, where="id > 1"))

    def execute(spec: BatchSpec) -> JobResult:
        log.append("Spark")
        return lake.execute(spec)

    (result,) = run_batch([replace(one.pipeline_job, apply=other)], Services(execute=execute, say=log.append))
    (position,) = [n for n, line in enumerate(log) if "will fail: ConfigurationDrift: " in line]
    assert (position < log.index("Spark"), log.count("Spark")) == (True, 1)
    assert (result.ingested is not None, type(result.error)) == (True, ConfigurationDrift)
    # Without a new file, the plan of the apply finds it.
    assert (found(where="id > 1").has_work, type(found(where="id > 1").error)) == (False, ConfigurationDrift)


def test_what_is_in_quarantine_without_work(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    one = lake.add("one")
    one.world.deliver("a.json", ["x"])
    lake.publish(lake.run())
    apply = replace(one.apply, options=replace(one.apply.options, on_invalid="quarantine"))
    job = replace(one.pipeline_job, apply=apply)
    assert [found.held for found in detect_changes([job])] == [()]
    held = []
    for table, is_log in ((one.world.root / "log", True), (one.target.path, False)):
        quarantine = LogTable(table.with_name(f"{table.name}__quarantine"), table_id="q").create()
        quarantine.append()
        pq.write_table(pa.table({"pipeline": ["one"]}), quarantine.path / "part-00001-0.parquet")
        held.append(Held(str(table), 10, is_log))
    (idle,) = detect_changes([job])
    assert (idle.has_work, idle.held) == (False, tuple(held))
    # A damaged one is an error of the flow that needs it.
    (one.world.root / "log__quarantine" / "part-00001-0.parquet").write_text("")
    pq.write_table(pa.table({"pipeline": ["other"]}), quarantine.path / "part-00001-0.parquet")
    assert [(found.held, found.error) for found in detect_changes([job])] == [
        ((replace(held[1], rows=0),), None)
    ]


@pytest.mark.parametrize("dry", [False, True])
def test_a_repair_of_the_quarantine_of_a_log_is_work(tmp_path: Path, dry: bool) -> None:
    """Also if nothing is in quarantine beside the target."""
    lake = Lake(tmp_path)
    one = lake.add("one")
    one.world.deliver("a.json", ["x"])
    lake.publish(lake.run())
    quarantine = LogTable(one.world.root / "log__quarantine", table_id="q").create()
    quarantine.append()
    pq.write_table(pa.table({"pipeline": ["one"]}), quarantine.path / "part-00001-0.parquet")
    apply = replace(one.apply, mode="repair", repair_quarantined=True, dry_run=dry)
    replay = PipelineJob(ingest=replace(one.world.request(), replay=True), apply=apply)
    (found,) = detect_changes([replay])
    assert (found.has_work, found.error) == (True, None)
    assert found.found == f"the records of {quarantine.path} again"


@pytest.mark.parametrize("mode", ["dry_run", "incremental"])
def test_a_dry_run_looks_at_both(tmp_path: Path, mode: str) -> None:
    """The apply of a dry run is about what the log holds already; a run applies what it brings first."""
    lake = Lake(tmp_path)
    one = lake.add("one")
    one.world.deliver("a.json", ["x"])
    one.world.ingest()
    one.world.deliver("b.json", ["y"])
    apply = replace(one.apply, dry_run=mode == "dry_run")
    (found,) = detect_changes([replace(one.pipeline_job, apply=apply)])
    assert ("; the snapshot of version 0" in found.found) == (mode == "dry_run")
