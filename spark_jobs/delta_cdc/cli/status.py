"""``delta-cdc status``: show the progress of pipelines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.pipelines import chosen, takes_pipelines
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.retention import readable as span
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.plan import readable as size
from delta_cdc.planning.status import Status, status_of_all

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    status = commands.add_parser(
        "status",
        help="show how far pipelines are behind their sources, from the logs alone (starts no Spark)",
        description="Prints the source's version, the watermark, the lag, and until when the source's "
        "history lasts. Exit code 1: a pipeline needs attention: it has no valid watermark, or more than "
        "half of a retention has passed.",
    )
    takes_pipelines(status)
    status.add_argument("--json", action="store_true", help="print everything as JSON, with the newest seals")
    status.set_defaults(run=_status)


def _status(arguments: argparse.Namespace) -> int:
    # A pipeline that ingests and applies has two tables whose logs record its progress.
    tables = [(one, table) for one in chosen(arguments) for table in one.written]
    # Before the first run, no log names the source. With a change log, the log itself does not exist yet.
    sources = [one.source if one.log is None else None for one, _ in tables]
    results = run_sync(
        status_of_all(
            [(one.pipeline, table) for one, table in tables],
            [one.storage_options for one, _ in tables],
            sources,
        )
    )
    rows, lines, is_healthy = [], [], True
    for (one, table), result in zip(tables, results, strict=True):
        lines.append(one.pipeline)
        if isinstance(result, DeltaCdcError):
            is_healthy = False
            lines.append(f"  {type(result).__name__}: {result}")
            rows.append({"pipeline": one.pipeline, "target": table, "error": result.to_dict()})
        elif isinstance(result, Status):
            is_healthy = is_healthy and not result.findings
            lines += _lines(result)
            rows.append(result.to_dict())
        else:
            raise result
    print(json.dumps(rows, indent=2) if arguments.json else "\n".join(lines))
    return 0 if is_healthy else 1


def _lines(status: Status) -> Iterator[str]:
    yield f"  target     {status.target} (version {_or_none(status.target_version)})"
    if status.ingest is not None:
        yield f"  source     {status.source or 'unknown'}"
        yield from (f"  {name:<10} {text}" for name, text in status.ingest.lines())
    else:
        yield f"  source     {status.source or 'unknown'} (version {_or_none(status.source_version)})"
    if status.committed is not None:
        commits, bytes_, seconds = status.lag_commits or 0, status.lag_bytes or 0, status.lag_seconds or 0
        lag = f"{commits} commits with changes, {size(bytes_)}, the oldest {span(int(seconds * 1000))} old"
        yield f"  watermark  {status.committed}"
        yield f"  lag        {status.lag_versions} versions" + (f": {lag}" if commits else ": no changes")
        yield f"  good until {status.readable_until or 'unknown'}"
    for finding in status.findings:
        yield f"  !          {finding}"


def _or_none(version: int | None) -> str:
    return "none" if version is None else str(version)
