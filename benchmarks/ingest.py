"""What it costs to bring files of events into a change log and on into a target, as SCD type 1.

Ours are ``ingest_changes`` and ``apply_changes``, with all their planning and proving. Theirs is a plain
Structured Streaming query (``availableNow``) over the same files, started for each delivery as a scheduler
would: ``from_json``, an append to a log, and a MERGE by hand of the latest event of each key. It knows
neither invalid records nor late events nor a file that comes twice, and a lost checkpoint doubles all that it
ever read.

Both start from copies of the same rows and must end with the same rows, in every round. They take turns in
one warm Spark session, in a new order each round. Then a look that finds nothing new is timed.

    python benchmarks/ingest.py                    # all cells: about half an hour
    python benchmarks/ingest.py --small            # does it run?
    python benchmarks/ingest.py --markdown docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apply import cpu_clock, machine
from apply_report import markdown_table, published
from arms import Arm, Disagreement, race, ratio
from ingest_arms import ADAPTER_OPTIONS, DECLARED, Cell, Deliveries, Run, ours, ways

from delta_cdc import arguments
from delta_cdc.flow import Piece, run_bundle
from delta_cdc.jars import cache_home
from delta_cdc.plan import IngestRequest, plan_ingest
from delta_cdc.session import embedded_session

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession

#: What is aimed at, as a ratio of medians.
AT_MOST = 1.10
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

    :return: seconds and CPU seconds by arm
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
        run.name: {
            "seconds": [round(second, 4) for second in arm.seconds],
            "cpu": [round(second, 2) for second in run.cpu[warm_ups:]],
        }
        for run, arm in zip(runs, arms, strict=True)
    }


# -- nothing new --------------------------------------------------------------------------------
def looks(session: SparkSession, folder: Path, tables: int, files: int, repeats: int) -> dict[str, Any]:
    """Time looks that find nothing new: no process may be started.

    :return: milliseconds, for all tables together
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
    return {"milliseconds": [round(1_000 * seconds, 2) for seconds in times]}


def _request(landing: Path, log: Path) -> IngestRequest:
    options = arguments.ingest_options(
        source=str(landing),
        format="json",
        adapter="plain",
        adapter_options=ADAPTER_OPTIONS,
        keys=["id"],
        schema=DECLARED,
        format_options=None,
        insert_only=False,
        on_invalid="quarantine",
        cluster_by=None,
        log_properties=None,
    )
    return IngestRequest(pipeline="benchmark", source=str(landing), log=str(log), options=options)


def _look(requests: Sequence[IngestRequest]) -> float:
    begin = time.perf_counter()
    if len(requests) == 1:
        assert plan_ingest(requests[0]).spec is None, "there was something new"
    else:
        pieces = [Piece(ingest=request, apply=None) for request in requests]
        found = run_bundle(pieces, run_id="look", execute=_refuse, say=lambda line: None)
        assert not any(one.error or (one.ingested and one.ingested.applied) for one in found)
    return time.perf_counter() - begin


def _refuse(*args: object, **kwargs: object) -> Any:
    raise AssertionError("a process was started")


# -- report -------------------------------------------------------------------------------------
def markdown(figures: dict[str, Any], cells: Iterable[Cell]) -> str:
    """Return the tables."""
    found = figures["machine"]
    rows = []
    for cell in cells:
        arms = figures["cells"][cell.name]
        mine, theirs = arms["ours"], arms["by hand"]
        compared = ratio(mine["seconds"], theirs["seconds"])
        median = statistics.median(mine["seconds"])
        rows.append(
            (
                f"{cell.batches} × {cell.events:,} in {cell.files} files",
                f"{cell.rows:,}",
                f"{median:.2f}",
                f"{cell.batches * cell.events / median:,.0f}",
                f"{statistics.median(theirs['seconds']):.2f}",
                compared,
                f"≤ {AT_MOST:.2f}" + (", **missed**" if compared.value > AT_MOST else ""),
                f"{ratio(mine['cpu'], theirs['cpu']).value:.2f}",
            )
        )
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
    looked = [
        (tables, f"{files:,}", *_spread(entry["milliseconds"])) for tables, files, entry in figures["looks"]
    ]
    rounds = len(next(iter(figures["cells"].values()))["ours"]["seconds"])
    return (
        f"{found['cores']} cores, {rounds} round(s), load before them {found['load']}.\n\n"
        + markdown_table(heading, rows)
        + "\n"
        + markdown_table(["tables", "files in the folder of each", "median, ms", "10 % – 90 %, ms"], looked)
    )


def _spread(values: Sequence[float]) -> tuple[str, str]:
    ordered = sorted(values)
    low, high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]
    return f"{statistics.median(ordered):.1f}", f"{low:.1f} – {high:.1f}"


def measure(
    folder: Path, cells: Sequence[Cell], looked: Sequence[tuple[int, int]], *, repeats: int, warm_ups: int
) -> dict[str, Any]:
    """Measure everything in one session."""
    before = machine()
    session = embedded_session("ingest", **{"spark.driver.memory": "6g"})
    try:
        return {
            "machine": before,
            "cells": {
                cell.name: run_cell(session, folder, cell, repeats, warm_ups=warm_ups) for cell in cells
            },
            "looks": [
                (tables, files, looks(session, folder, tables, files, max(3, 4 * repeats)))
                for tables, files in looked
            ],
        }
    finally:
        session.stop()


def main() -> int:
    """Measure and print; 1 where the arms gave different rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = cache_home() / "benchmark-ingest"
    parser.add_argument("--small", action="store_true", help="the smallest tables, one round: a smoke run")
    parser.add_argument("--repeats", type=int, default=5, help="rounds that count, %(default)s")
    parser.add_argument("--warm-ups", type=int, default=1, help="rounds before them, %(default)s")
    parser.add_argument("--folder", type=Path, default=default, help="where tables are kept, %(default)s")
    parser.add_argument("--markdown", type=Path, help="page for the tables, between its marks if it has any")
    asked = parser.parse_args()
    try:
        if asked.small:
            with tempfile.TemporaryDirectory() as folder:
                figures = measure(Path(folder), [SMALL], SMALL_LOOKS, repeats=1, warm_ups=0)
            print(markdown(figures, [SMALL]))
            return 0
        folder = asked.folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        figures = measure(folder, CELLS, LOOKS, repeats=asked.repeats, warm_ups=asked.warm_ups)
    except Disagreement as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    (folder / "results.json").write_text(json.dumps(figures, indent=1))
    text = markdown(figures, CELLS)
    published(asked.markdown or folder / "results.md", text, program="ingest")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
