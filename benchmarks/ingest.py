"""What it costs to bring files of events into a change log and on into a target, as SCD type 1.

Ours are ``ingest_changes`` and ``apply_changes``, with all their planning and proving. Theirs is a plain
Structured Streaming query (``availableNow``) over the same files, started for each delivery as a scheduler
would: ``from_json``, an append to a log, and a MERGE by hand of the latest event of each key. It knows
neither invalid records nor late events nor a file that comes twice, and a lost checkpoint doubles all that it
ever read.

Both start from copies of the same rows and must end with the same rows, in every round. They take turns in
one warm Spark session, in a new order each round. Then a look that finds nothing new is timed.

    python benchmarks/ingest.py                    # all cells: about half an hour
    python benchmarks/ingest.py --only 1000000-1x100000-20
    python benchmarks/ingest.py --small            # does it run?
    python benchmarks/ingest.py --markdown docs/contributing/benchmarks.md
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apply import cpu_clock
from arms import Arm, race
from ingest_arms import ADAPTER_OPTIONS, DECLARED, Cell, Deliveries, Run, ours, ways
from report import circumstances, conclude, shared_arguments
from summary import compared, markdown_table, median, spread

from delta_cdc import get_session
from delta_cdc.core.requests import IngestRequest
from delta_cdc.planning.ingest import plan_ingest
from delta_cdc.run.batch import PipelineJob, run_batch
from delta_cdc.run.loop import Services
from delta_cdc.run.table_arguments import ingest_options

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession
    from report import Cells, Kept

#: What is aimed at, as a ratio of medians.
AT_MOST = 1.60
CELLS = (
    Cell(rows=1_000_000, batches=1, events=100_000, files=20),
    Cell(rows=1_000_000, batches=1, events=1_000_000, files=40),
    Cell(rows=1_000_000, batches=10, events=10_000, files=4),
    Cell(rows=100_000, batches=10, events=1_000, files=2),
)
SMALL = Cell(rows=1_000, batches=2, events=500, files=2)
#: Tables of a look, and files in the folder that each of them looks at.
LOOKS = ((1, 1_000), (65, 1_000))
SMALL_LOOKS = ((2, 10),)


def run_cell(
    session: SparkSession, folder: Path, cell: Cell, repeats: int, *, warm_ups: int
) -> dict[str, Any]:
    """Let both arms take turns.

    :return: seconds and CPU seconds by arm, as they are kept
    :raises Disagreement: where the arms gave different rows
    """
    place = folder / cell.name
    deliveries = Deliveries(session, place, cell)
    clock = cpu_clock(session)
    runs = [Run(name, session, deliveries, place, clock=clock, **way) for name, way in ways().items()]
    arms = [Arm(run.name, run.run, run.answer, prepare=run.prepare) for run in runs]
    try:
        race(cell.name, arms, repeats, warm_ups=warm_ups)
    finally:
        for run in runs:
            run.clear()
    return {
        "arms": {
            run.name: {
                "seconds": [round(second, 4) for second in arm.seconds],
                "cpu": [round(second, 2) for second in run.cpu[warm_ups:]],
            }
            for run, arm in zip(runs, arms, strict=True)
        }
    }


# -- nothing new --------------------------------------------------------------------------------
def looks(session: SparkSession, folder: Path, tables: int, files: int, repeats: int) -> dict[str, Any]:
    """Time looks that find nothing new: no process may be started.

    :return: seconds, for all tables together, as they are kept
    """
    place = folder / f"looks-{files}"
    deliveries = Deliveries(session, place, Cell(rows=files, batches=0, events=0, files=files))
    prepared = place / "prepared"
    if not prepared.exists():
        deliveries.reset()
        prepared.mkdir()
        ours(session, deliveries.landing, prepared)
    requests = []
    for number in range(tables):
        copy = place / f"table-{number}"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(prepared, copy)
        requests.append(_request(deliveries.landing, copy / "log"))
    plain, subprocess.Popen = subprocess.Popen, _refuse  # type: ignore[assignment,misc]
    try:
        times = [_look(requests) for _ in range(repeats + 1)][1:]
    finally:
        subprocess.Popen = plain  # type: ignore[misc]
    return {"arms": {"ours": {"seconds": [round(second, 5) for second in times]}}}


def _request(landing: Path, log: Path) -> IngestRequest:
    options = ingest_options(
        {"source": str(landing), "adapter_options": ADAPTER_OPTIONS, "keys": ["id"], "schema": DECLARED}
    )
    return IngestRequest(pipeline="benchmark", source=str(landing), log=str(log), options=options)


def _look(requests: Sequence[IngestRequest]) -> float:
    begin = time.perf_counter()
    if len(requests) == 1:
        assert plan_ingest(requests[0]).spec is None, "there was something new"
    else:
        pipeline_jobs = [PipelineJob(ingest=request, apply=None) for request in requests]
        found = run_batch(pipeline_jobs, Services(execute=_refuse, say=lambda line: None), run_id="look")
        assert not any(one.error or (one.ingested and one.ingested.applied) for one in found)
    return time.perf_counter() - begin


def _refuse(*args: object, **kwargs: object) -> Any:
    raise AssertionError("a process was started")


# -- report -------------------------------------------------------------------------------------
def markdown(figures: Cells, cells: Iterable[Cell], looked: Iterable[tuple[int, int]]) -> str:
    """Return the tables.

    :param figures: by the cells' names
    :param cells: in the order to tell them
    :param looked: tables and files of looks
    """
    found = [(cell, figures[cell.name]) for cell in cells if cell.name in figures]
    rows = []
    for cell, figure in found:
        mine, theirs, *rest = compared(figure["arms"]["ours"], figure["arms"]["by hand"], AT_MOST, digits=2)
        events = cell.batches * cell.events / statistics.median(figure["arms"]["ours"]["seconds"])
        delivered = f"{cell.batches} × {cell.events:,} in {cell.files} files"
        rows.append((delivered, f"{cell.rows:,}", mine, f"{events:,.0f}", theirs, *rest))
    heading = [
        "events",
        "rows of the target",
        "ours, s",
        "events per second",
        "by hand, s",
        "ours : by hand (95 %)",
        "aim",
        "CPU, ours : by hand",
    ]
    times = []
    for tables, files in looked:
        if (name := _look_name(tables, files)) in figures:
            milliseconds = [1_000 * second for second in figures[name]["arms"]["ours"]["seconds"]]
            times.append((tables, f"{files:,}", median(milliseconds), spread(milliseconds, share=0.1)))
    return "\n".join(
        (
            circumstances(figure for _, figure in found),
            markdown_table(heading, rows),
            markdown_table(["tables", "files in the folder of each", "median, ms", "10 %–90 %, ms"], times),
        )
    )


def _look_name(tables: int, files: int) -> str:
    return f"look-{tables}-{files}"


def measure(
    kept: Kept,
    folder: Path,
    cells: Sequence[Cell],
    looked: Sequence[tuple[int, int]],
    *,
    repeats: int,
    warm_ups: int,
) -> None:
    """Measure everything in one session; each cell is kept as soon as it is done."""
    session = get_session("ingest", **{"spark.driver.memory": "6g"})
    try:
        for cell in cells:
            kept.add(cell.name, run_cell(session, folder, cell, repeats, warm_ups=warm_ups))
        for tables, files in looked:
            found = looks(session, folder, tables, files, max(3, 4 * repeats))
            kept.add(_look_name(tables, files), found)
    finally:
        session.stop()


def main() -> int:
    """Measure and print; 1 where the arms gave different rows."""
    by_name = {cell.name: cell for cell in CELLS}
    parser = shared_arguments("ingest", __doc__, small="the smallest tables, one round")
    parser.add_argument("--only", nargs="+", choices=list(by_name), default=list(by_name), metavar="CELL")
    arguments = parser.parse_args()
    cells, looked = (
        ([SMALL], SMALL_LOOKS) if arguments.small else ([by_name[name] for name in arguments.only], LOOKS)
    )
    return conclude(
        arguments,
        partial(_measured, arguments, cells, looked),
        partial(markdown, cells=[SMALL] if arguments.small else CELLS, looked=looked),
    )


def _measured(
    asked: argparse.Namespace, cells: Sequence[Cell], looked: Sequence[tuple[int, int]], kept: Kept
) -> None:
    if asked.small:
        with tempfile.TemporaryDirectory() as folder:
            measure(kept, Path(folder), cells, looked, repeats=1, warm_ups=0)
        return
    folder = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    measure(kept, folder, cells, looked, repeats=asked.repeats, warm_ups=asked.warm_ups)


if __name__ == "__main__":
    raise SystemExit(main())
