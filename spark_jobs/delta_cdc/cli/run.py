"""``delta-cdc run``: run the pipelines of a configuration once, with Spark in this process."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.application import Application, refuse_templates, told_of
from delta_cdc.cli.common import newest_seal, refuse
from delta_cdc.cli.pipelines import (
    FIRST_LOAD,
    before_the_first_load,
    chosen,
    groups_of,
    options_told,
    source_of,
    takes_pipelines,
)
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.spec import ApplyRequest
from delta_cdc.core.text_table import grid
from delta_cdc.core.validation import ingest_options_of
from delta_cdc.planning.ingest_request import IngestRequest
from delta_cdc.run.batch import Piece, piece, run_bundle

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from delta_cdc.cli.pipelines import Chosen
    from delta_cdc.run.batch import PieceResult

_PARALLEL = 8


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    run = commands.add_parser(
        "run",
        help="run pipelines once (starts Spark here, if there is anything to do)",
        description="Looks at all of them without Spark, and runs those with work in one application on this "
        "machine. Connections are Airflow's, and not used. Without a configuration the seal says what the "
        "target was built with. Exit code 1: some pipelines failed.",
    )
    takes_pipelines(run)
    before_the_first_load(run)
    run.add_argument(
        "--single-driver", action="store_true",
        help="without a configuration: nothing else writes to the target meanwhile; needed on S3, unless "
        "Spark's defaults name a log store for several drivers",
    )  # fmt: skip
    run.add_argument("--json", action="store_true", help="print what became of each as JSON")
    run.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    run_id = f"delta-cdc-run-{uuid.uuid4().hex[:12]}"
    pieces, told, parallel = _asked(arguments, run_id)
    asked = [request for piece in pieces for request in (piece.ingest, piece.apply) if request is not None]
    with Application(told, asked) as application:
        results = run_bundle(
            pieces, execute=application.execute, run_id=run_id, parallel=parallel, say=_unsaid
        )
    _show(results, as_json=arguments.json)
    return 1 if any(result.error is not None for result in results) else 0


def _asked(arguments: argparse.Namespace, run_id: str) -> tuple[list[Piece], dict[str, Any], int]:
    """Return the work, its application's settings, and how many tables to process concurrently."""
    found = chosen(arguments)
    tables = [one.table for one in found if one.table is not None]
    if not tables:
        return [_of_a_seal(arguments, one, run_id) for one in found], {}, _PARALLEL
    refuse(arguments, (*FIRST_LOAD, "single_driver"), "with a configuration")
    groups = groups_of(found)
    told = told_of(groups)
    refuse_templates(tables)
    options = {name: told[name] for name in ("storage_options", "kafka_options")}
    pieces = [piece(table.arguments, run_id=run_id, **options) for table in tables]
    return pieces, told, max(int(group.settings.get("max_parallel_tables", _PARALLEL)) for group in groups)


def _of_a_seal(arguments: argparse.Namespace, one: Chosen, run_id: str) -> Piece:
    """Return the work of a pipeline whose options are in its seal."""
    target = str(one.target)
    seal = newest_seal(target, one.pipeline)
    common: dict[str, Any] = {"run_id": run_id, "single_driver": arguments.single_driver}
    common |= {"pipeline": one.pipeline, "source": source_of(one, seal)}
    batch = ingest_options_of(seal) if seal is not None else None
    if batch is not None:
        refuse(arguments, FIRST_LOAD, "for a change log that has a seal")
        return Piece(ingest=IngestRequest(log=target, options=batch, **common))
    options = options_told(arguments, seal)
    if options is None:
        raise InvalidConfiguration(
            f"Nothing says how {one.pipeline} builds {target}: there is no seal yet.",
            remedy="name the keys with --key, and the rest as --help says; or write a configuration.",
        )
    return Piece(apply=ApplyRequest(target=target, options=options, **common))


def _unsaid(_: str) -> None:
    """Drop a flow's messages on each table: the table of results contains them."""


def _show(results: Sequence[PieceResult], *, as_json: bool) -> None:
    rows = [_row(result) for result in results]
    if as_json:
        print(json.dumps(rows, indent=2))
        return

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
