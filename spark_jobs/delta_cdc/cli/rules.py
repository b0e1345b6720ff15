"""``delta-cdc rules try``: how many rows of a source break the rules of a pipeline."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from delta_cdc.api.changes import plan_changes, read_changes
from delta_cdc.cli.common import bounds, named, newest_seal, session
from delta_cdc.cli.pipelines import at_its_place, source_of, takes_pipelines, the_one
from delta_cdc.core.arguments import span
from delta_cdc.core.change_log import completed
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.rules import check_options
from delta_cdc.core.text_table import grid, plural
from delta_cdc.core.validation import options_of
from delta_cdc.core.value_rules import value_rules
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.run.table_arguments import requests
from delta_cdc.spark.apply.trial import as_inserts, tried

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.cli.pipelines import Chosen
    from delta_cdc.core.versions import VersionRange
    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.table import TableState

_START = ("starting_version", "starting_timestamp", "since")
_END = ("ending_version", "ending_timestamp")
#: The short form of a duration.
_SHORT = re.compile(r"(\d{1,9})\s*([smhd])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    rules = commands.add_parser(
        "rules",
        help="try rules on the rows of a pipeline's source, before a run uses them (starts Spark here)",
        description="Name one pipeline. The command tests the rows that past changes of the source inserted "
        "or updated; without a range, it tests the current rows. It prints, for each rule, how many rows "
        "break it, and the keys of up to three of them. It writes nothing. Exit code 1: some rows break a "
        "rule.",
    )
    rules.add_argument("action", choices=("try",), help="what to do")
    takes_pipelines(rules)
    rules.usage = rules.usage.replace("%(prog)s", "%(prog)s try")
    rules.add_argument(
        "--rule", dest="rules", action="append", metavar="NAME=CHECK",
        help="try this rule instead of those of the pipeline; repeatable",
    )  # fmt: skip
    start, end = rules.add_mutually_exclusive_group(), rules.add_mutually_exclusive_group()
    bounds(start, end)
    start.add_argument("--since", metavar="TIME", help="the range begins this long ago, such as 30d or 12h")
    rules.set_defaults(run=_try)


def _try(arguments: argparse.Namespace) -> int:
    one = the_one(arguments)
    if one.target is None:
        raise InvalidConfiguration(
            f"{one.pipeline} has a change log alone, and nothing is applied from it.",
            remedy="name a pipeline with a target: rules test the rows of a target.",
        )
    seal = newest_seal(one.target, one.pipeline, one.storage_options)
    source, options = source_of(one, seal), _options(one, seal, arguments.rules)
    table, versions, has_range = _range(arguments, source, one.storage_options)
    if has_range and versions is None:
        print(f"0 rows of {table.uri}: no version of the range has changes")
        return 0
    where = f"{table.uri}, {f'version {table.version}' if versions is None else f'versions {versions}'}"
    options = completed(options, table.configuration)
    check_options(options)
    with session(locations=[table.uri], storage_options=one.storage_options) as spark, named(where):
        changes = _changes(spark, table, versions, one.storage_options)
        number, trials = tried(changes, options, table.uri)
    rows = [
        {"rule": trial.rule, "broken": trial.broken, "check": trial.check, "for instance": trial.samples}
        for trial in trials
    ]
    print(grid(rows), "", f"{plural(number, 'row')} of {where}", sep="\n")
    return 1 if any(trial.broken for trial in trials) else 0


def _options(one: Chosen, seal: Seal | None, given: list[str] | None) -> ApplyOptions:
    """Return the options of a pipeline, with the rules to try.

    :raises InvalidConfiguration: there is no rule to try
    """
    # Without a seal, the columns are those of the source, and no keys are shown.
    options = options_of(seal) if seal is not None else ApplyOptions(insert_only=True)
    if one.group is not None:
        try:
            _, apply = requests(one.table.arguments, storage_options=one.storage_options, ingest=False)
        except InvalidConfiguration as error:
            raise at_its_place(one, error) from error
        assert apply is not None
        options = apply.options
    if given:
        rules = {name.strip(): check for name, _, check in (text.partition("=") for text in given)}
        options = replace(options, rules=value_rules("rules", rules))
    if not options.rules:
        raise InvalidConfiguration(
            f"The pipeline {one.pipeline} has no rules.", remedy="give one with --rule NAME=CHECK."
        )
    return options


def _range(
    arguments: argparse.Namespace, source: str, storage_options: dict[str, str] | None
) -> tuple[TableState, VersionRange | None, bool]:
    """Return the source, the range to read, and whether one is requested.

    The range is None if none is requested, or if it has no changes.
    """
    start, end = (
        {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
        for names in (_START, _END)
    )
    if not start:
        if end:
            arguments.parser.error("one of the arguments --from --from-time --since is required with an end")
        log = DeltaLog(source, dict(storage_options) if storage_options else None)
        return run_sync(log.snapshot()), None, False
    if "since" in start:
        start = {"starting_timestamp": _ago(start["since"])}
    plan = plan_changes(source, **start, **end, storage_options=storage_options)
    return plan.table, plan.versions if plan.read_ranges else None, True


def _ago(text: str) -> str:
    """Return the time that lies a duration before now, ISO 8601.

    :raises InvalidConfiguration: the text is no duration
    """
    short = _SHORT.fullmatch(text.strip())
    seconds = span("since", f"{short[1]} {_UNITS[short[2]]}" if short is not None else text)
    try:
        return (datetime.now(UTC) - timedelta(seconds=seconds or 0)).isoformat()
    except OverflowError:
        raise InvalidConfiguration(
            f"since is {text!r}, which begins before the year 1.", remedy="give a shorter time."
        ) from None


def _changes(
    spark: SparkSession,
    table: TableState,
    versions: VersionRange | None,
    storage_options: dict[str, str] | None,
) -> DataFrame:
    """Return the changes of a range; without one, the rows of a version as inserts."""
    if versions is not None:
        # The range is fixed: commits since the plan do not count.
        return read_changes(
            spark,
            table.uri,
            starting_version=versions.starting_version,
            ending_version=versions.ending_version,
            storage_options=storage_options,
        )
    rows = spark.read.format("delta").option("versionAsOf", table.version).load(table.uri)
    return as_inserts(rows, table.version)
