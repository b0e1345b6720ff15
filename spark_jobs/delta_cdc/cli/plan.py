"""``delta-cdc plan``: what the next run would do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.application import refuse_templates, told_of
from delta_cdc.cli.common import bounds, newest_seal, refuse
from delta_cdc.cli.pipelines import (
    FIRST_LOAD,
    Chosen,
    before_the_first_load,
    chosen,
    groups_of,
    options_told,
    source_of,
    takes_pipelines,
)
from delta_cdc.core.arguments import MODES
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.option_schema import APPLY, INGEST, filled
from delta_cdc.core.spec import ApplyOptions, IngestOptions
from delta_cdc.core.validation import ingest_options_of
from delta_cdc.planning.apply import plan_apply
from delta_cdc.planning.ingest import plan_ingest
from delta_cdc.planning.ingest_request import IngestRequest
from delta_cdc.run import batch
from delta_cdc.run import table_arguments as engine
from delta_cdc.run.detect_changes import detect_changes
from delta_cdc.run.table_arguments import apply_request

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from delta_cdc.core.watermark import Seal
    from delta_cdc.run.batch import Piece

_OF_AN_APPLY = ("starting_version", "ending_version", "ending_timestamp", "max_versions",
                "versions_per_commit", "bytes_per_commit", "repair_keys", "repair_quarantined",
                "discard_history", *FIRST_LOAD)  # fmt: skip
_OF_AN_INGEST = ("max_files", "max_offsets", "glob", "kafka_options")
_OF_BOTH = ("starting_timestamp", "max_bytes")


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    plan = commands.add_parser(
        "plan",
        help="show what the next run of a pipeline would do, from the logs alone (starts no Spark)",
        description="Without a watermark it tells the initial load. What is configured is taken from the "
        "configuration, or from the seal; --key, --source-kind and --sequence-by stand in for a seal before "
        "there is one. Exit code 1: something stops a pipeline.",
    )
    takes_pipelines(plan)
    bounded = plan.add_argument_group("bounds, as the operator's arguments of the same names")
    bounds(bounded, bounded)
    for name in ("max-versions", "max-bytes", "versions-per-commit", "bytes-per-commit"):
        bounded.add_argument(f"--{name}", type=int, metavar="N")
    mode = plan.add_argument_group("what the run is to do")
    mode.add_argument("--mode", choices=MODES, default="incremental", help="default: incremental")
    mode.add_argument("--repair-keys", metavar="SQL", help="repair: predicate over the key columns")
    mode.add_argument("--repair-quarantined", action="store_true", help="repair: the keys in quarantine")
    mode.add_argument("--discard-history", action="store_true", help="reset of type 2: its history may go")
    before_the_first_load(plan)
    ingest = plan.add_argument_group("a look at what an ingest would take")
    ingest.add_argument(
        "--ingest", action="store_true",
        help="the ingest alone; SOURCE is a folder of files or kafka://<host:port>,…/<topic>,…, and TARGET "
        "its change log",
    )  # fmt: skip
    for name in ("max-files", "max-offsets"):
        ingest.add_argument(f"--{name}", type=int, metavar="N")
    ingest.add_argument("--glob", metavar="PATTERN", help="over the files' own names")
    ingest.add_argument("--kafka-options", type=Path, metavar="FILE",
                        help="JSON file with the configuration of Kafka's client")  # fmt: skip
    plan.set_defaults(run=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    if arguments.ingest:
        refuse(arguments, _OF_AN_APPLY, "with --ingest")
        if arguments.mode != "incremental":
            raise InvalidConfiguration("--mode given with --ingest.", remedy="leave it out.")
    else:
        refuse(arguments, _OF_AN_INGEST, "without --ingest")
    found = chosen(arguments)
    if found[0].table is not None:
        return _plan_configured(arguments, found)
    for one in found:
        if len(found) > 1:
            print(one.pipeline)
        seal = newest_seal(str(one.target), one.pipeline)
        is_log = arguments.ingest or (seal is not None and ingest_options_of(seal) is not None)
        (_plan_ingest if is_log else _plan_apply)(arguments, one, seal)
    return 0


def _plan_apply(arguments: argparse.Namespace, one: Chosen, seal: Seal | None) -> None:
    request = apply_request(
        vars(arguments),
        pipeline=one.pipeline,
        source=source_of(one, seal),
        target=str(one.target),
        # Without options, a load requires nothing of the rows.
        options=options_told(arguments, seal) or ApplyOptions(insert_only=True),
    )
    print(plan_apply(request))


def _plan_ingest(arguments: argparse.Namespace, one: Chosen, seal: Seal | None) -> None:
    source = source_of(one, seal)
    told = ingest_options_of(seal) if seal is not None else None
    kafka = source.strip().lower().startswith("kafka://")
    # An observation needs no keys: it reads no record.
    options = told or IngestOptions(source_kind="kafka" if kafka else "files", insert_only=True)
    request = filled(
        IngestRequest,
        INGEST,
        vars(arguments),
        pipeline=one.pipeline,
        source=source,
        log=str(one.target),
        options=options,
        kafka_options=_client_options(arguments.kafka_options),
    )
    print(plan_ingest(request))


def _plan_configured(arguments: argparse.Namespace, found: list[Chosen]) -> int:
    """Plan pipelines of a configuration; the command line overrides their arguments."""
    refuse(arguments, FIRST_LOAD, "with a configuration")
    tables = [one.table for one in found if one.table is not None]
    refuse_templates(tables)
    told = told_of(groups_of(found))
    kafka = _client_options(arguments.kafka_options) or told["kafka_options"]
    pieces = []
    for table in tables:
        given = {**table.arguments, **_overriding(arguments, table.arguments)}
        options = {"storage_options": told["storage_options"], "kafka_options": kafka}
        pieces.append(_of_the_ingest(arguments, batch.piece(given, **options)))
    looked = detect_changes(pieces)
    for one in looked:
        if len(looked) > 1:
            print(one.pipeline)
        print(one.plan or one.found)
    return 1 if any(one.error is not None for one in looked) else 0


def _overriding(arguments: argparse.Namespace, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the command line's overrides of a table's arguments."""
    names = (*_OF_AN_APPLY, "max_files", "max_offsets", "glob", *_OF_BOTH)
    found = {name: value for name in names if (value := getattr(arguments, name)) not in (None, False)}
    if arguments.mode != "incremental":
        found["mode"] = arguments.mode
    known = INGEST if engine.is_ingested(table) else APPLY
    unknown = [f"--{name.replace('_', '-')}" for name in found if name not in known]
    if unknown:
        raise InvalidConfiguration(
            f"{', '.join(unknown)} given for {table['pipeline']}, which has no use for it.",
            remedy="leave it out, or name pipelines that have.",
        )
    return found


def _of_the_ingest(arguments: argparse.Namespace, piece: Piece) -> Piece:
    if not arguments.ingest:
        return piece
    if piece.ingest is None:
        raise InvalidConfiguration(
            f"--ingest given, and {piece.pipeline} has no change log.", remedy="leave it out."
        )
    return replace(piece, apply=None)


def _client_options(file: Path | None) -> dict[str, str] | None:
    if file is None:
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidConfiguration(
            f"{file} cannot be read: {error}.", remedy="name a file that holds a JSON object."
        ) from error
    if not isinstance(found, dict):
        raise InvalidConfiguration(f"{file} holds no JSON object.", remedy="write one.")
    return {str(name): str(value) for name, value in found.items()}
