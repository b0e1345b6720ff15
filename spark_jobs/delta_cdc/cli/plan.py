"""``delta-cdc plan``: show what the next run would do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.application import settings_of
from delta_cdc.cli.common import bounds, json_file, refuse
from delta_cdc.cli.pipelines import (
    FIRST_LOAD,
    before_the_first_load,
    chosen,
    configured_work,
    recorded_work,
    refuse_only_errors,
    takes_pipelines,
)
from delta_cdc.core.arguments import MODES
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.option_schema import APPLY, INGEST
from delta_cdc.run.detect_changes import detect_changes
from delta_cdc.run.table_arguments import is_ingested

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from delta_cdc.cli.pipelines import Chosen
    from delta_cdc.run.batch import PipelineJob

_OF_AN_APPLY = ("starting_version", "ending_version", "ending_timestamp", "max_versions",
                "versions_per_commit", "bytes_per_commit", "repair_keys", "repair_quarantined",
                "discard_history", *FIRST_LOAD)  # fmt: skip
_OF_AN_INGEST = ("max_files", "max_offsets", "glob", "kafka_options")
_OF_BOTH = ("starting_timestamp", "max_bytes")


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    plan = commands.add_parser(
        "plan",
        help="show what the next run of pipelines would do, from the logs alone (starts no Spark)",
        description="Without a watermark, the next run is the initial load. The options come from the "
        "configuration, or else from the target's seal. Before the first load, they come from --key, "
        "--source-kind and --sequence-by. Exit code 1: a pipeline cannot run.",
    )
    takes_pipelines(plan)
    limits = plan.add_argument_group("bounds, with the names of the operator's arguments")
    bounds(limits, limits)
    for name, text in (
        ("max-versions", "maximum number of versions in the run"),
        ("max-bytes", "maximum size of the changes in the run, in bytes"),
        ("versions-per-commit", "maximum number of versions in one commit"),
        ("bytes-per-commit", "maximum size of the changes in one commit, in bytes"),
    ):
        limits.add_argument(f"--{name}", type=int, metavar="N", help=text)
    mode = plan.add_argument_group("what the run is to do")
    mode.add_argument("--mode", choices=MODES, default="incremental", help="default: incremental")
    mode.add_argument("--repair-keys", metavar="SQL", help="repair: the keys that match this predicate")
    mode.add_argument("--repair-quarantined", action="store_true", help="repair: the keys in quarantine")
    mode.add_argument("--discard-history", action="store_true", help="reset of type 2: delete the history")
    before_the_first_load(plan)
    ingest = plan.add_argument_group("what an ingest would take")
    ingest.add_argument(
        "--ingest", action="store_true",
        help="plan the ingest alone; SOURCE is a folder of files or kafka://<host:port>,…/<topic>,…, and "
        "TARGET its change log",
    )  # fmt: skip
    for name, text in (
        ("max-files", "maximum number of files"),
        ("max-offsets", "Kafka: maximum number of records"),
    ):
        ingest.add_argument(f"--{name}", type=int, metavar="N", help=f"{text} in the run")
    ingest.add_argument("--glob", metavar="PATTERN", help="only files whose names match")
    ingest.add_argument("--kafka-options", type=json_file, metavar="FILE",
                        help="JSON file with the configuration of Kafka's client")  # fmt: skip
    plan.set_defaults(run=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    if arguments.ingest:
        refuse(arguments, _OF_AN_APPLY, "with --ingest")
        if arguments.mode != "incremental":
            raise InvalidConfiguration("--mode given with --ingest.", remedy="leave it out.")
    else:
        refuse(arguments, _OF_AN_INGEST, "without --ingest")
    pipelines = chosen(arguments)
    if pipelines[0].group is None:
        pipeline_jobs = [recorded_work(arguments, one, is_plan=True) for one in pipelines]
    else:
        refuse(arguments, FIRST_LOAD, "with a configuration")
        settings = settings_of(pipelines)
        pipeline_jobs = [_configured(arguments, one, settings) for one in pipelines]
    refuse_only_errors(pipeline_jobs)
    plans = detect_changes(pipeline_jobs)
    if len(plans) == 1 and plans[0].error is not None:
        raise plans[0].error
    for one in plans:
        if len(plans) > 1:
            print(one.pipeline)
        print(one.plan or one.found)
    return 1 if any(one.error is not None for one in plans) else 0


def _configured(arguments: argparse.Namespace, one: Chosen, settings: Mapping[str, Any]) -> PipelineJob:
    """Return the work of a configured pipeline; the command line overrides its arguments."""
    table = one.table.arguments
    names = (*_OF_AN_APPLY, "max_files", "max_offsets", "glob", *_OF_BOTH)
    overrides = {name: value for name in names if (value := getattr(arguments, name)) not in (None, False)}
    if arguments.mode != "incremental":
        overrides["mode"] = arguments.mode
    options = INGEST if is_ingested(table) else APPLY
    unknown = [f"--{name.replace('_', '-')}" for name in overrides if name not in options]
    if unknown:
        raise InvalidConfiguration(
            f"{', '.join(unknown)} given for {table['pipeline']}, where it has no meaning.",
            remedy="leave it out, or name only pipelines where it has one.",
        )
    work = configured_work(
        one,
        {**table, **overrides},
        storage_options=settings["storage_options"],
        kafka_options=arguments.kafka_options or settings["kafka_options"],
    )
    if not arguments.ingest or work.error is not None:
        return work
    if work.ingest is None:
        raise InvalidConfiguration(
            f"--ingest given, and {work.pipeline} has no change log.", remedy="leave it out."
        )
    return replace(work, apply=None)
