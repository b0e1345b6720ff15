"""The files of a batch whose applications failed are read alone, one after the other."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delta_cdc import job
from delta_cdc.core.requests import IngestRequest
from delta_cdc.core.spec import BatchSpec, IngestSpec, JobResult
from delta_cdc.run.batch import PipelineJob, run_batch
from delta_cdc.run.loop import Services
from delta_cdc.run.saved_plans import PlansInMemory
from delta_cdc.run.table_arguments import ingest_options
from tests.support.deliveries import Deliveries, event
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def names(flow: Deliveries, spec: IngestSpec) -> tuple[list[str | None], JobResult]:
    """Run a batch; return the names of what was read, in order, and the result of its one part."""
    seen: list[str | None] = []

    def note(so_far: JobResult) -> None:
        (part,) = so_far.parts
        assert part.status == "unreached"
        seen.append(part.reading and Path(part.reading).name)

    (part,) = job.run(flow.spark, BatchSpec(run_id="r", parts=(spec,)), part_reads=note).parts
    return seen, part


@pytest.mark.slow
def test_each_file_then_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    """An error that the batch deals with does not stop the reading: a damaged file, and one that is gone."""
    flow = Deliveries(spark, tmp_path)
    flow.deliver("a.json", [event("I", 1, 1)])
    whole = gzip.compress(b'{"op": "I", "seq": 2, "id": 2}\n' * 20)
    (flow.source / "b.json.gz").write_bytes(whole[:-12])
    flow.deliver("c.json", [event("I", 3, 3)])
    spec = flow.planned()
    seen, part = names(flow, spec)
    assert seen == [""]
    assert part.status == "committed"
    flow.deliver("d.json", [event("I", 4, 4)])
    (flow.source / "e.json.gz").write_bytes(whole[:-12])
    gone = flow.deliver("f.json", [event("I", 6, 6)])
    alone = replace(flow.planned(), reads_alone=True)
    seen, part = names(flow, alone)
    assert seen == ["d.json", "e.json.gz", "f.json", ""]
    assert part.counts == {"events": 2, "files": 3, "quarantined": 1}
    assert part.reading is None
    flow.deliver("g.json", [event("I", 7, 7)])
    gone = flow.deliver("h.json", [event("I", 8, 8)])
    alone = replace(flow.planned(), reads_alone=True)
    gone.unlink()
    seen, part = names(flow, alone)
    assert seen == ["g.json", "h.json", ""]
    assert part.status == "stale"


@pytest.mark.slow
def test_a_process_of_python_that_ends(spark: SparkSession, tmp_path: Path) -> None:
    """The driver lives on. Two tries fail; the third one names the file, and ingests the others."""
    flow = Deliveries(spark, tmp_path)
    for number, name in enumerate(("a", "killer", "z")):
        flow.deliver(f"{name}.json", [event("I", number, number, name=name)])
    request = IngestRequest(
        pipeline="flow",
        source=str(flow.source),
        log=flow.log,
        run_id="r",
        options=ingest_options(
            {
                "source": str(flow.source),
                **flow.arguments(
                    adapter="tests.support.ends_its_process.events", adapter_options={"ends_at": "killer"}
                ),
            }
        ),
    )
    saved_plans, notes = PlansInMemory(), list[str]()
    for try_number in (1, 2, 3):
        (result,) = run_batch(
            [PipelineJob(ingest=request)],
            Services(execute=lambda spec: job.run(spark, spec), saved_plans=saved_plans, say=notes.append),
        )
        assert (result.error is None) == (try_number == 3)
    assert result.ingested is not None
    assert result.ingested.counts == {"events": 2, "files": 3, "quarantined": 1}
    assert {row["name"] for row in flow.rows()} == {"a", "z"}
    ((reason, name, raw),) = flow.quarantined()
    assert (name, raw) == ("killer.json", None)
    assert reason.startswith("the job failed while it read this file alone, after two failures of its batch")
    assert "Python worker exited unexpectedly" in reason


def test_a_file_that_lacks_the_key_column(spark: SparkSession, tmp_path: Path) -> None:
    """Alone it gives no columns of a log; in its batch it has invalid records."""
    flow = Deliveries(spark, tmp_path, given={"schema": None})
    flow.deliver("a.json", [{"op": "I", "seq": 1, "name": "a"}])
    flow.deliver("b.json", [event("I", 2, 2, name="b")])
    seen, part = names(flow, replace(flow.planned(), reads_alone=True))
    assert seen == ["a.json", "b.json", ""]
    assert part.counts == {"events": 1, "files": 2, "quarantined": 1}


@pytest.mark.parametrize("format_", slow_but(["csv", "parquet"], "parquet"))
def test_other_formats(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    flow = Deliveries(spark, tmp_path, format=format_)
    flow.deliver(f"a.{format_}", [event("I", 1, 1, name="a", amount=1)])
    flow.deliver(f"b.{format_}", [event("I", 2, 2, name="b", amount=2)])
    seen, part = names(flow, replace(flow.planned(), reads_alone=True))
    assert seen == [f"a.{format_}", f"b.{format_}", ""]
    assert part.counts == {"events": 2, "files": 2}
