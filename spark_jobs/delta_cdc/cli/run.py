"""``delta-cdc run``: the pipelines of a configuration once, in a Spark of this process."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.application import Application, refuse_templates, told_of
from delta_cdc.cli.common import tables_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from delta_cdc.flow import PieceResult

_PARALLEL = 8


def add(commands: Any) -> None:
    """Declare the subcommand."""
    run = commands.add_parser(
        "run",
        help="run the pipelines of a file once (starts Spark here, if there is anything to do)",
        description="Looks at all of them without Spark, and runs those with work in one application on this "
        "machine. Connections are Airflow's, and not used. Exit code 1: some pipelines failed.",
    )
    run.add_argument("file", metavar="FILE|FOLDER", help="the configuration")
    run.add_argument("--group", metavar="NAME", help="only the pipelines of this group")
    run.add_argument(
        "--pipeline", dest="pipelines", action="append", metavar="NAME", help="only this one, repeatable"
    )
    run.add_argument("--json", action="store_true", help="print what became of each as JSON")
    run.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from delta_cdc.flow import run_bundle
    from delta_cdc.tables import piece

    chosen = tables_of(arguments.file, arguments.group, arguments.pipelines)
    told = told_of([group for group, _ in chosen])
    run_id = f"delta-cdc-run-{uuid.uuid4().hex[:12]}"
    tables = [table for _, tables in chosen for table in tables]
    refuse_templates(tables)
    pieces = [
        piece(
            table.arguments,
            run_id=run_id,
            storage_options=told["storage_options"],
            kafka_options=told["kafka_options"],
        )
        for table in tables
    ]
    parallel = max(int(group.settings.get("max_parallel_tables", _PARALLEL)) for group, _ in chosen)
    asked = [request for piece in pieces for request in (piece.ingest, piece.apply) if request is not None]
    with Application(told, asked) as application:
        results = run_bundle(
            pieces, execute=application.execute, run_id=run_id, parallel=parallel, say=_unsaid
        )
    _show(results, as_json=arguments.json)
    return 1 if any(result.error is not None for result in results) else 0


def _unsaid(_: str) -> None:
    """What a flow says of each table is in the table of results."""


def _show(results: Sequence[PieceResult], *, as_json: bool) -> None:
    rows = [_row(result) for result in results]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    from delta_cdc.grid import grid

    shown = [
        {**row, "counts": ", ".join(f"{n} {name}" for name, n in row["counts"].items() if n)} for row in rows
    ]
    print(grid([{name: value for name, value in row.items() if name != "error"} for row in shown]))
    for row in rows:
        if row["error"]:
            print(f"{row['pipeline']}: {row['error']}")


def _row(result: PieceResult) -> dict[str, Any]:
    applied, ingested = result.applied, result.ingested
    done = [one for one in (ingested, applied) if one is not None and one.applied]
    status = "failed" if result.error is not None else "applied" if done else "nothing"
    if done and applied is None and result.error is None:
        status = "ingested"
    counts: dict[str, int] = {}
    for one in done:
        counts |= one.counts
    watermark = applied.watermark if applied is not None else None
    return {
        "pipeline": result.pipeline,
        "result": status,
        "versions": str(applied.versions) if applied is not None and applied.versions else "",
        "watermark": watermark.version if watermark is not None else None,
        "counts": counts,
        "error": f"{type(result.error).__name__}: {result.error}" if result.error is not None else None,
    }
