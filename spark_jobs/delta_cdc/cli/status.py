"""``delta-cdc status``: the progress of pipelines."""

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
        description="Prints source version, watermark, lag and until when it can be caught up with. Exit "
        "code 1: somebody should look, as nothing is proved, or more than half of a retention has passed.",
    )
    takes_pipelines(status)
    status.add_argument("--json", action="store_true", help="print everything, the newest seals too, as JSON")
    status.set_defaults(run=_status)


def _status(arguments: argparse.Namespace) -> int:
    # A pipeline that ingests and applies has two tables whose logs record its progress.
    asked = [(one, place) for one in chosen(arguments) for place in one.written]
    pairs = [(one.pipeline, place) for one, place in asked]
    # Before the first run only the caller knows the source; a change log does not exist then either.
    sources = [one.source if one.log is None else None for one, _ in asked]
    found = run_sync(status_of_all(pairs, [one.storage_options for one, _ in asked], sources))
    named = []
    for entry in found:
        if not isinstance(entry, Status | DeltaCdcError):
            raise entry
        named.append(entry)
    if arguments.json:
        print(json.dumps([_as_json(*both) for both in zip(pairs, named, strict=True)], indent=2))
    else:
        for both in zip(pairs, named, strict=True):
            print("\n".join(_status_lines(*both)))
    return 1 if any(isinstance(entry, DeltaCdcError) or entry.findings for entry in named) else 0


def _as_json(pair: tuple[str, str], found: Status | DeltaCdcError) -> dict[str, Any]:
    if isinstance(found, DeltaCdcError):
        return {"pipeline": pair[0], "target": pair[1], "error": found.to_dict()}
    return found.to_dict()


def _status_lines(pair: tuple[str, str], found: Status | DeltaCdcError) -> Iterator[str]:
    yield pair[0]
    if isinstance(found, DeltaCdcError):
        yield f"  {type(found).__name__}: {found}"
        return
    yield f"  target     {found.target} (version {_or_none(found.target_version)})"
    if found.ingest is not None:
        yield f"  source     {found.source or 'unknown'}"
        yield from (f"  {name:<10} {text}" for name, text in found.ingest.lines())
    else:
        yield f"  source     {found.source or 'unknown'} (version {_or_none(found.source_version)})"
    if found.committed is not None:
        commits, bytes_, seconds = found.lag_commits or 0, found.lag_bytes or 0, found.lag_seconds or 0
        lag = f"{commits} commits with changes, {size(bytes_)}, the oldest {span(int(seconds * 1000))} old"
        yield f"  watermark  {found.committed}"
        yield f"  lag        {found.lag_versions} versions" + (f": {lag}" if commits else ": no changes")
        yield f"  good until {found.readable_until or 'unknown'}"
    for finding in found.findings:
        yield f"  !          {finding}"


def _or_none(version: int | None) -> str:
    return "none" if version is None else str(version)
