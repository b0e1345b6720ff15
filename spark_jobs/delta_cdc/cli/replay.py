"""``delta-cdc replay``: process quarantined records again."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from delta_cdc import job
from delta_cdc.api.changes import ingest_changes
from delta_cdc.cli.common import (
    flags,
    given,
    last_by,
    named,
    newest_seal,
    refuse,
    session,
    single_driver,
)
from delta_cdc.cli.pipelines import chosen, takes_pipelines
from delta_cdc.core import sql
from delta_cdc.core.arguments import conflict
from delta_cdc.core.errors import TableNotFound
from delta_cdc.core.option import options_in
from delta_cdc.core.options import IngestOptions
from delta_cdc.core.quarantine import no_records, quarantine_of
from delta_cdc.core.requests import ApplyRequest
from delta_cdc.core.text_table import named_counts, plural
from delta_cdc.core.validation import ingest_options_of, options_of
from delta_cdc.core.value_rules import value_rules
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.quarantine import other_pipelines, rows_held
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession

    from delta_cdc.cli.pipelines import Chosen
    from delta_cdc.core.watermark import Seal

#: The options of a change log that a replay may correct.
_NAMES = ("adapter", "adapter_options", "format_options", "schema", "keys")
_OF_A_LOG = {name: one for name, one in options_in(IngestOptions).items() if name in _NAMES}


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    replay = commands.add_parser(
        "replay",
        help="process the records in quarantine again, after a correction (starts Spark here, if needed)",
        description="For a change log, the command reads the records again, and adds those that are valid "
        "now to the log. For a target, it computes the rows of the quarantined keys again. The options "
        "come from the configuration, or else from the seal; the arguments below override them. Exit code "
        "1: some records stay in quarantine.",
    )
    takes_pipelines(replay)
    log = replay.add_argument_group("for a change log, with the names of the arguments of ingest_changes")
    flags(log, _OF_A_LOG.values())
    last_by(replay.add_argument_group("for a target"))
    single_driver(replay, "")
    replay.set_defaults(run=_replay)


def _replay(arguments: argparse.Namespace) -> int:
    tables = [(one, table, _seal(one, table)) for one in chosen(arguments) for table in one.written]
    for is_log, names in ((True, ("last_by",)), (False, tuple(_OF_A_LOG))):
        # Each option applies to logs or to targets; a pipeline with both uses it for the matching table.
        if all(_is_log(seal) == is_log for _, _, seal in tables):
            refuse(arguments, names, f"for {tables[0][1]}, which is {'a' if is_log else 'no'} change log")
    # Replay all tables, even if some records of one have to stay in quarantine.
    return max([_replayed(arguments, *table) for table in tables])


def _is_log(seal: Seal) -> bool:
    """Return whether a seal belongs to a change log: an ingest reads no table, so its seal names no table."""
    return seal.state.applied_to is None


def _seal(chosen_pipeline: Chosen, table: str) -> Seal:
    seal = newest_seal(table, chosen_pipeline.pipeline, chosen_pipeline.storage_options)
    if seal is None:
        raise TableNotFound(
            f"There is no table of pipeline {chosen_pipeline.pipeline} at {table}.",
            remedy="write PIPELINE=TABLE, as the task has pipeline and log, or target.",
        )
    return seal


def _replayed(arguments: argparse.Namespace, one: Chosen, table: str, seal: Seal) -> int:
    options = one.storage_options
    quarantine = quarantine_of(table)
    if not run_sync(rows_held(quarantine, one.pipeline, options, seal)):
        # An ingest that got another name leaves its records to the old one; a target has no second owner.
        others = run_sync(other_pipelines(quarantine, one.pipeline, options)) if _is_log(seal) else ()
        print(no_records(table, one.pipeline, others))
        return 0
    common = {
        "pipeline": one.pipeline,
        "source": seal.source_uri,
        "single_driver": arguments.single_driver or bool(one.table.arguments.get("single_driver")),
        "storage_options": options,
    }
    with session(locations=[table, seal.source_uri], storage_options=options) as spark, named(table):
        again = _ingest_again if _is_log(seal) else _apply_again
        configured = one.table.arguments
        if one.group is not None:
            # A configuration without rules has dropped them.
            configured = {"rules": None, **configured}
        if _is_log(seal):
            # A registry of schemas may need them.
            common["kafka_options"] = one.settings.get("kafka_options")
        counts = again(spark, arguments, configured, table, seal, common)
    rest = run_sync(rows_held(quarantine, one.pipeline, options, _seal(one, table)))
    print(named_counts(counts) or "nothing moved")
    if rest:
        query = (
            f"SELECT reason, count(*) FROM {sql.table(quarantine)} "
            f"WHERE pipeline = {sql.string(one.pipeline)} GROUP BY reason"
        )
        print(f"{plural(rest, 'row')} still in quarantine. For the reasons: {query}", file=sys.stderr)
    return 1 if rest else 0


def _ingest_again(
    spark: SparkSession,
    arguments: argparse.Namespace,
    configured: dict[str, Any],
    table: str,
    seal: Seal,
    common: dict[str, Any],
) -> dict[str, int]:
    names = [name for name, one in options_in(IngestOptions).items() if one.recorded and not one.group]
    # A seal omits options that would make it too long.
    recorded = ingest_options_of(seal) or IngestOptions()
    options = {name: getattr(recorded, name) for name in names}
    # The configuration wins over the seal: a user who corrected it expects the replay to use it.
    options |= {name: value for name, value in configured.items() if name in names}
    options |= given(arguments, _OF_A_LOG.values())
    policies = {
        name: value
        for name, one in options_in(IngestOptions).items()
        if one.group == "policies" and (value := configured.get(name, getattr(recorded, name))) is not None
    }
    return ingest_changes(spark, log=table, replay=True, policies=policies, **common, **options).counts


def _apply_again(
    spark: SparkSession,
    arguments: argparse.Namespace,
    configured: dict[str, Any],
    table: str,
    seal: Seal,
    common: dict[str, Any],
) -> dict[str, int]:
    policy = conflict("on_conflict", configured.get("on_conflict"))
    last_by = arguments.last_by or (policy if isinstance(policy, tuple) else ())
    options = replace(options_of(seal), on_invalid="quarantine")
    if last_by or options.source_kind == "change_log":
        # Only events of a change log can be in conflict.
        options = replace(options, on_conflict=tuple(last_by) or "quarantine")
    if "rules" in configured:
        # The quarantine is replayed because its rules have changed, or its rows.
        options = replace(options, rules=value_rules("rules", configured["rules"]))
    request = ApplyRequest(target=table, options=options, mode="repair", repair_quarantined=True, **common)
    execute = partial(job.execute, spark, common["storage_options"], None)
    return run(request, Services(execute=execute)).counts
