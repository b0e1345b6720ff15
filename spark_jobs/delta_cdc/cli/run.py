"""``delta-cdc run``: run the pipelines of a configuration once, with Spark in this process."""

from __future__ import annotations

import json
import sys
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.application import Application, settings_of
from delta_cdc.cli.common import refuse, single_driver
from delta_cdc.cli.work import jobs_of, takes_work, working
from delta_cdc.core import left_out
from delta_cdc.core.quarantine import then_replay, where_rows_are
from delta_cdc.core.text_table import grid, named_counts
from delta_cdc.run.batch import run_batch
from delta_cdc.run.loop import Services

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from delta_cdc.run.batch import PipelineResult

_PARALLEL = 8
#: The counts of an ingest and an apply of all kinds fit in.
_WIDEST = 250


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    run = commands.add_parser(
        "run",
        help="run pipelines once (starts Spark here, if there is work)",
        description="The command plans all pipelines without Spark, and runs those that have work in one "
        "application on this machine. It does not use Airflow's connections. The options come from the "
        "configuration, or else from the target's seal. Before the first load, they come from --key, "
        "--source-kind and --sequence-by. Standard error shows the progress. Exit code 1: a pipeline failed.",
    )
    takes_work(run)
    single_driver(run, "without a configuration: ")
    run.add_argument("--json", action="store_true", help="print the result of each pipeline as JSON")
    run.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    run_id = f"delta-cdc-run-{uuid.uuid4().hex[:12]}"
    pipelines = working(arguments)
    groups = [one.group for one in pipelines if one.group is not None]
    if groups:
        refuse(arguments, ("single_driver",), "with a configuration")
    settings = settings_of(pipelines)
    pipeline_jobs = jobs_of(arguments, pipelines, settings, run_id=run_id)
    requests = [
        request for one in pipeline_jobs for request in (one.ingest, one.apply) if request is not None
    ]
    parallel = max(
        (group.settings.get("max_parallel_tables", _PARALLEL) for group in groups), default=_PARALLEL
    )
    with Application(settings, requests) as application:
        results = run_batch(
            pipeline_jobs,
            # Standard output has the results alone, for programs.
            Services(execute=application.execute, say=partial(print, file=sys.stderr, flush=True)),
            run_id=run_id,
            parallel=int(parallel),
        )
    rows = [_row(result) for result in results]
    errors = [f"{row['pipeline']}: {row['error']}" for row in rows if row["error"]]
    text = "\n".join([grid([_for_people(row) for row in rows], widest=_WIDEST), *errors])
    print(json.dumps(rows, indent=2) if arguments.json else text)
    file = arguments.tables[0] if groups else ""
    for result in results:
        sys.stderr.writelines(f"{line}\n" for line in _about_quarantine(result, file))
    return 1 if errors else 0


def _about_quarantine(result: PipelineResult, file: str) -> Iterator[str]:
    """Yield where the rows are that the run put into quarantine, what it left out, and what to do with them.

    :param file: the configuration, from which a replay takes the options; "" without one
    """
    for outcome in (result.ingested, result.applied):
        count = outcome.counts.get("quarantined", 0) if outcome is not None and outcome.applied else 0
        if outcome is not None and count:
            is_log = outcome.kind == "ingest"
            table = str(outcome.log_table if is_log else outcome.target_table)
            where = where_rows_are(count, table)
            remedy = then_replay(result.pipeline, table, file, is_log=is_log)
            yield f"{result.pipeline}: {where} Remedy: {remedy}"
        names = left_out.columns_in(outcome.counts) if outcome is not None else []
        if names:
            yield f"{result.pipeline}: {left_out.sentence(names)} Remedy: {left_out.REMEDY}"


def _row(result: PipelineResult) -> dict[str, Any]:
    applied, error = result.applied, result.error
    changed = [one for one in (result.ingested, applied) if one is not None and one.applied]
    status = "failed" if error else "nothing" if not changed else "ingested" if applied is None else "applied"
    watermark = applied.watermark if applied is not None else None
    return {
        "pipeline": result.pipeline,
        "result": status,
        "versions": str(applied.versions) if applied is not None and applied.versions else "",
        "watermark": watermark.version if watermark is not None else None,
        "counts": {name: count for one in changed for name, count in one.counts.items()},
        "error": f"{type(error).__name__}: {error}" if error else None,
    }


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    counts = named_counts({name: count for name, count in row["counts"].items() if count})
    return {name: value for name, value in row.items() if name != "error"} | {"counts": counts}
