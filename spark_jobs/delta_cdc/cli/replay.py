"""``delta-cdc replay``: process quarantined records again."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from delta_cdc import job
from delta_cdc.api.changes import ingest_changes
from delta_cdc.cli.common import json_object, last_by, named, newest_seal, refuse, session
from delta_cdc.cli.pipelines import chosen, takes_pipelines
from delta_cdc.core.arguments import conflict
from delta_cdc.core.errors import TableNotFound
from delta_cdc.core.spec import ApplyRequest, IngestOptions, segments_of
from delta_cdc.core.validation import ingest_options_of, options_of
from delta_cdc.delta_log.file_manifests import prepared
from delta_cdc.delta_log.table import run_sync
from delta_cdc.manifest_folder import folder_for
from delta_cdc.planning.quarantine import holds_records
from delta_cdc.planning.taken_files import QUARANTINE, beside
from delta_cdc.run.apply import run_apply

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession

    from delta_cdc.cli.pipelines import Chosen
    from delta_cdc.core.spec import ApplySpec, JobResult
    from delta_cdc.core.watermark import Seal

_OF_A_LOG = ("adapter", "adapter_options", "format_options", "schema", "keys")


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    replay = commands.add_parser(
        "replay",
        help="try again what is in quarantine, after mending (starts Spark here, if there is anything)",
        description="Of a change log, the records are read again; what is an event now goes into the log. Of "
        "a target, the rows of the keys are computed again. Both take from their seal what they were made "
        "with; the options below stand in for it. Exit code 1: some of it still has to stay in quarantine.",
    )
    takes_pipelines(replay)
    log = replay.add_argument_group("for a change log, as the arguments of ingest_changes")
    log.add_argument("--adapter", metavar="NAME")
    log.add_argument("--adapter-options", type=json_object, metavar="JSON")
    log.add_argument("--format-options", type=json_object, metavar="JSON")
    log.add_argument("--schema", metavar="DDL")
    log.add_argument("--key", "--keys", dest="keys", action="append", metavar="COLUMN", help="repeatable")
    last_by(replay.add_argument_group("for a target"))
    replay.add_argument(
        "--single-driver", action="store_true",
        help="nothing else writes to the table meanwhile; needed on S3, unless Spark's defaults name a log "
        "store for several drivers",
    )  # fmt: skip
    replay.set_defaults(run=_replay)


def _replay(arguments: argparse.Namespace) -> int:
    found = [_Place(one, place, _sealed(one, place)) for one in chosen(arguments) for place in one.written]
    for is_log, names in ((True, ("last_by",)), (False, _OF_A_LOG)):
        # An option applies to a log, or to a target; for a pipeline with both it goes to the matching one.
        if all(place.is_log == is_log for place in found):
            what = f"for {found[0].uri}, which is {'a' if is_log else 'no'} change log"
            refuse(arguments, names, what)
    # Replay all of them, even if some records of one have to stay.
    return max([_replayed(arguments, place) for place in found])


@dataclass(frozen=True)
class _Place:
    """A table whose quarantine is replayed."""

    of: Chosen
    uri: str
    seal: Seal

    @property
    def is_log(self) -> bool:
        """Return whether it is a change log: an ingest reads no table, so its seal names none."""
        return self.seal.state.applied_to is None

    @property
    def configured(self) -> dict[str, Any]:
        """Return the arguments in the configuration."""
        return self.of.table.arguments if self.of.table is not None else {}


def _sealed(one: Chosen, table: str) -> Seal:
    seal = newest_seal(table, one.pipeline, one.storage_options)
    if seal is None:
        raise TableNotFound(
            f"There is no table of pipeline {one.pipeline} at {table}.",
            remedy="write PIPELINE=TABLE, as the task has pipeline and log, or target.",
        )
    return seal


def _replayed(arguments: argparse.Namespace, place: _Place) -> int:
    pipeline, table, seal = place.of.pipeline, place.uri, place.seal
    options = place.of.storage_options
    quarantine = beside(table, QUARANTINE)
    if not run_sync(holds_records(quarantine, pipeline, options)):
        print(f"Nothing of {pipeline} is in quarantine ({quarantine}).")
        return 0
    with session(locations=[table, seal.source_uri], storage_options=options) as spark, named(table):
        again = _ingest_again if place.is_log else _apply_again
        counts = again(spark, arguments, place)
    rest = run_sync(holds_records(quarantine, pipeline, options))
    print(", ".join(f"{count} {name}" for name, count in counts.items()) or "nothing moved")
    if rest:
        print(f"Some of it has to stay in quarantine: {quarantine} says why.", file=sys.stderr)
    return 1 if rest else 0


def _ingest_again(spark: SparkSession, arguments: argparse.Namespace, place: _Place) -> dict[str, int]:
    seal = place.seal
    names = ("format", "adapter", "adapter_options", "keys", "schema", "format_options", "insert_only")
    # A seal omits options that would make it too long.
    told = ingest_options_of(seal) or IngestOptions()
    known = {name: getattr(told, name) for name in names}
    # The configuration wins: a user who corrects it expects the replay to use it.
    known |= {name: value for name, value in place.configured.items() if name in names}
    given = {name: getattr(arguments, name) for name in _OF_A_LOG if getattr(arguments, name)}
    done = ingest_changes(
        spark,
        seal.source_uri,
        place.uri,
        pipeline=seal.pipeline,
        replay=True,
        policies={"on_invalid": place.configured.get("on_invalid", told.on_invalid)},
        single_driver=arguments.single_driver or bool(place.configured.get("single_driver")),
        storage_options=place.of.storage_options,
        **{**known, **given},
    )
    return done.counts


def _apply_again(spark: SparkSession, arguments: argparse.Namespace, place: _Place) -> dict[str, int]:
    def execute(spec: ApplySpec) -> JobResult:
        segments = segments_of(spec.steps)
        folder = folder_for(spark, segments, None)
        return job.run(spark, prepared(spec, folder, storage), storage_options=storage)

    seal, storage = place.seal, place.of.storage_options
    configured = conflict("on_conflict", place.configured.get("on_conflict"))
    last_by = arguments.last_by or (configured if isinstance(configured, tuple) else ())
    options = replace(
        options_of(seal),
        on_conflict=tuple(last_by) or "quarantine",
        on_invalid="quarantine",
    )
    request = ApplyRequest(
        pipeline=seal.pipeline,
        source=seal.source_uri,
        target=place.uri,
        options=options,
        mode="repair",
        repair_quarantined=True,
        single_driver=arguments.single_driver or bool(place.configured.get("single_driver")),
        storage_options=storage,
    )
    return run_apply(request, execute=execute).counts
