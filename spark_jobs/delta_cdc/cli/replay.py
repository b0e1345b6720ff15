"""``delta-cdc replay``: what is in quarantine, once more."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.checks import ingest_options_of, options_of
from delta_cdc.cli.common import json_object, named, newest_seal, pipeline_and_table, refuse, session
from delta_cdc.errors import TableNotFound
from delta_cdc.spec import IngestOptions

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession

    from delta_cdc.spec import ApplySpec, JobResult
    from delta_cdc.watermark import Seal

_OF_A_LOG = ("adapter", "adapter_options", "format_options", "schema", "keys")


def add(commands: Any) -> None:
    """Declare the subcommand."""
    replay = commands.add_parser(
        "replay",
        help="try again what is in quarantine, after mending (starts Spark here, if there is anything)",
        description="Of a change log, the records are read again; what is an event now goes into the log. Of "
        "a target, the rows of the keys are computed again. Both take from their seal what they were made "
        "with; the options below stand in for it. Exit code 1: some of it still has to stay in quarantine.",
    )
    replay.add_argument("pair", metavar="PIPELINE=TABLE", help="a pipeline, and its change log or target")
    log = replay.add_argument_group("for a change log, as the arguments of ingest_changes")
    log.add_argument("--adapter", metavar="NAME")
    log.add_argument("--adapter-options", type=json_object, metavar="JSON")
    log.add_argument("--format-options", type=json_object, metavar="JSON")
    log.add_argument("--schema", metavar="DDL")
    log.add_argument("--key", dest="keys", action="append", metavar="COLUMN", help="repeatable")
    target = replay.add_argument_group("for a target")
    target.add_argument(
        "--last-by", action="append", metavar="COLUMN",
        help="of events with one sequence the greatest wins, repeatable; as on_tie",
    )  # fmt: skip
    replay.add_argument(
        "--single-driver", action="store_true",
        help="nothing else writes to the table meanwhile; needed on S3, unless Spark's defaults name a log "
        "store for several drivers",
    )  # fmt: skip
    replay.set_defaults(run=_replay)


def _replay(arguments: argparse.Namespace) -> int:
    from delta_cdc.ingest.taken import QUARANTINE, beside
    from delta_cdc.log.table import run_sync
    from delta_cdc.plan.quarantine import holds_records

    pipeline, table = pipeline_and_table(arguments.pair)
    seal = newest_seal(table, pipeline)
    if seal is None:
        raise TableNotFound(
            f"There is no table of pipeline {pipeline} at {table}.",
            remedy="write PIPELINE=TABLE, as the task has pipeline and log, or target.",
        )
    quarantine = beside(table, QUARANTINE)
    # What an ingest takes is no table, so its seal names none.
    is_log = not seal.source_table_id
    refuse(arguments, ("last_by",) if is_log else _OF_A_LOG,
            f"for {table}, which is {'a' if is_log else 'no'} change log")  # fmt: skip
    if not run_sync(holds_records(quarantine, pipeline)):
        print(f"Nothing of {pipeline} is in quarantine ({quarantine}).")
        return 0
    with session(locations=[table, seal.source_uri]) as spark, named(table):
        again = _ingest_again if is_log else _apply_again
        counts = again(spark, arguments, seal, table)
    rest = run_sync(holds_records(quarantine, pipeline))
    print(", ".join(f"{count} {name}" for name, count in counts.items()) or "nothing moved")
    if rest:
        print(f"Some of it has to stay in quarantine: {quarantine} says why.", file=sys.stderr)
    return 1 if rest else 0


def _ingest_again(spark: SparkSession, arguments: argparse.Namespace, seal: Seal, log: str) -> dict[str, int]:
    from delta_cdc.api import ingest_changes

    names = ("format", "adapter", "adapter_options", "keys", "schema", "format_options", "insert_only",
             "on_invalid")  # fmt: skip
    # A seal leaves out what would make it too long.
    told = ingest_options_of(seal) or IngestOptions()
    known = {name: getattr(told, name) for name in names}
    given = {name: getattr(arguments, name) for name in _OF_A_LOG if getattr(arguments, name)}
    done = ingest_changes(
        spark,
        seal.source_uri,
        log,
        pipeline=seal.pipeline,
        replay=True,
        single_driver=arguments.single_driver,
        **{**known, **given},
    )
    return done.counts


def _apply_again(
    spark: SparkSession, arguments: argparse.Namespace, seal: Seal, target: str
) -> dict[str, int]:
    from delta_cdc import job
    from delta_cdc.flow import run_apply
    from delta_cdc.log.slices import prepared
    from delta_cdc.plan import ApplyRequest
    from delta_cdc.scratch import folder_for

    def execute(spec: ApplySpec) -> JobResult:
        segments = [segment for step in spec.steps for segment in step.segments]
        return job.run(spark, prepared(spec, folder_for(spark, segments, None)))

    ties = tuple(arguments.last_by or ())
    options = replace(
        options_of(seal),
        on_tie="last_by" if ties else "quarantine",
        tie_order=ties,
        on_invalid="quarantine",
    )
    request = ApplyRequest(
        pipeline=seal.pipeline,
        source=seal.source_uri,
        target=target,
        options=options,
        mode="repair",
        repair_quarantined=True,
        single_driver=arguments.single_driver,
    )
    return run_apply(request, execute=execute).counts
