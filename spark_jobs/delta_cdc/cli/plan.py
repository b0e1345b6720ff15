"""``delta-cdc plan``: what the next run would do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from delta_cdc.arguments import MODES, sequences
from delta_cdc.checks import ingest_options_of, options_of
from delta_cdc.cli.common import newest_seal, refuse
from delta_cdc.errors import InvalidConfiguration
from delta_cdc.spec import ApplyOptions, IngestOptions, SourceKind

if TYPE_CHECKING:
    import argparse

    from delta_cdc.watermark import Seal

_OF_AN_APPLY = ("starting_version", "ending_version", "ending_timestamp", "max_versions",
                "milestone_versions", "milestone_bytes", "repair_keys", "repair_quarantined",
                "discard_history", "source_kind", "keys", "sequence_by")  # fmt: skip


def add(commands: Any) -> None:
    """Declare the subcommand."""
    plan = commands.add_parser(
        "plan",
        help="show what the next run of a pipeline would do, from the logs alone (starts no Spark)",
        description="Without a watermark it tells the initial load. Configuration is taken from the seal; "
        "--key, --source-kind and --sequence-by stand in for it before there is one.",
    )
    plan.add_argument("source", help="path or URI of the source table")
    plan.add_argument("target", help="path or URI of the target table")
    plan.add_argument("--pipeline", required=True, help="the pipeline's name")
    bounds = plan.add_argument_group("bounds, as the operator's arguments of the same names")
    for name in ("starting-version", "ending-version", "max-versions", "max-bytes"):
        bounds.add_argument(f"--{name}", type=int, metavar="N")
    for name in ("milestone-versions", "milestone-bytes"):
        bounds.add_argument(f"--{name}", type=int, metavar="N")
    for name in ("starting-timestamp", "ending-timestamp"):
        bounds.add_argument(f"--{name}", metavar="TIME")
    mode = plan.add_argument_group("what the run is to do")
    mode.add_argument("--mode", choices=MODES, default="incremental", help="default: incremental")
    mode.add_argument("--repair-keys", metavar="SQL", help="repair: predicate over the key columns")
    mode.add_argument("--repair-quarantined", action="store_true", help="repair: the keys in quarantine")
    mode.add_argument("--discard-history", action="store_true", help="reset of type 2: its history may go")
    told = plan.add_argument_group("before the first load")
    told.add_argument("--source-kind", choices=get_args(SourceKind), help="default: change_feed")
    told.add_argument("--key", dest="keys", action="append", metavar="COLUMN", help="repeatable")
    told.add_argument("--sequence-by", action="append", metavar="SQL", help="repeatable; of a change log")
    ingest = plan.add_argument_group("a look at what an ingest would take")
    ingest.add_argument(
        "--ingest", action="store_true",
        help="SOURCE is a folder of files or kafka://<host:port>,…/<topic>,…, and TARGET its change log",
    )  # fmt: skip
    for name in ("max-files", "max-offsets"):
        ingest.add_argument(f"--{name}", type=int, metavar="N")
    ingest.add_argument("--glob", metavar="PATTERN", help="over the files' own names")
    ingest.add_argument("--kafka-options", type=Path, metavar="FILE",
                        help="JSON file with the configuration of Kafka's client")  # fmt: skip
    plan.set_defaults(run=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    if arguments.ingest:
        return _plan_ingest(arguments)
    refuse(arguments, ("max_files", "max_offsets", "glob", "kafka_options"), "without --ingest")
    from delta_cdc.log.table import DeltaLog
    from delta_cdc.plan import ApplyRequest, plan_apply
    from delta_cdc.reconcile import reconcile

    proof = reconcile(DeltaLog(arguments.target), arguments.pipeline)
    seal = proof.seal if proof is not None else None
    names = ("starting_version", "ending_version", "starting_timestamp", "ending_timestamp", "max_versions",
             "max_bytes", "milestone_versions", "milestone_bytes", "mode", "repair_keys",
             "repair_quarantined", "discard_history")  # fmt: skip
    request = ApplyRequest(
        pipeline=arguments.pipeline,
        source=arguments.source,
        target=arguments.target,
        options=_options(arguments, seal),
        **{name: getattr(arguments, name) for name in names},
    )
    print(plan_apply(request))
    return 0


def _plan_ingest(arguments: argparse.Namespace) -> int:
    from delta_cdc.plan import IngestRequest, plan_ingest

    refuse(arguments, _OF_AN_APPLY, "with --ingest")
    if arguments.mode != "incremental":
        raise InvalidConfiguration("--mode given with --ingest.", remedy="leave it out.")
    seal = newest_seal(arguments.target, arguments.pipeline)
    told = ingest_options_of(seal) if seal is not None else None
    kafka = arguments.source.strip().lower().startswith("kafka://")
    # A look needs no keys: it reads no record.
    options = told or IngestOptions(source_kind="kafka" if kafka else "files", insert_only=True)
    names = ("starting_timestamp", "max_files", "max_bytes", "max_offsets", "glob")
    request = IngestRequest(
        pipeline=arguments.pipeline,
        source=arguments.source,
        log=arguments.target,
        options=options,
        kafka_options=_client_options(arguments.kafka_options),
        **{name: getattr(arguments, name) for name in names},
    )
    print(plan_ingest(request))
    return 0


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


def _options(arguments: argparse.Namespace, seal: Seal | None) -> ApplyOptions:
    """Return the options of the seal, or, where there is none, what the command line says of them."""
    names = ("source_kind", "keys", "sequence_by")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name)}
    if seal is not None:
        if given:
            raise InvalidConfiguration(
                f"{', '.join(given)} given, and the pipeline has a watermark (seal {seal.number}).",
                remedy="leave them out: the seal says what the target was built with.",
            )
        return options_of(seal)
    return ApplyOptions(
        keys=tuple(given.get("keys", ())),
        source_kind=given.get("source_kind", ApplyOptions.source_kind),
        sequence_by=sequences(given.get("sequence_by")),
        # Where nothing is said, a load asks for nothing of the rows.
        insert_only=not given,
    )
