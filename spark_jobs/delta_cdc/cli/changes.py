"""``delta-cdc changes``: show the changes of a table. Spark starts only if there are rows to read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.api.changes import plan_changes, read_changes
from delta_cdc.cli import output
from delta_cdc.cli.common import bounds, flags, given, named, newest_seal, refuse, session
from delta_cdc.cli.pipelines import connected, is_configuration, is_pair, source_of, takes_pipelines, the_one
from delta_cdc.core.arguments import names
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.option import options_in
from delta_cdc.core.options import QueryOptions
from delta_cdc.core.reserved_columns import METADATA_COLUMNS, NEW, OLD, TRACKING_COLUMNS
from delta_cdc.core.validation import options_of
from delta_cdc.spark.changes.states import match

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.planning.changes import ChangesPlan

_TABLE_LIMIT = 20
#: Arguments with the names of the parameters of read_changes.
_START = ("starting_version", "starting_timestamp")
_END = ("ending_version", "ending_timestamp")
_QUERY = options_in(QueryOptions)


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    changes = commands.add_parser(
        "changes",
        help="show what changed in a table between two versions (starts Spark here, if there are changes)",
        description="Name one table, with --from, or one pipeline. For a pipeline, the command shows the "
        "changes of its source, and uses the pipeline's keys; without --from, it shows the changes after the "
        "watermark, which are not applied yet. Without --to, the range ends at the newest version. The "
        "command sorts rows by version, then by key (without keys: by the first column); an update shows the "
        "old row first.",
    )
    takes_pipelines(changes, "TABLE --from N")
    bounds(changes.add_mutually_exclusive_group(), changes.add_mutually_exclusive_group())
    query = changes.add_argument_group("what to read, with the names of the parameters of read_changes")
    flags(query, _QUERY.values())
    shown = changes.add_argument_group("how to show it")
    shown.add_argument("--plan", action="store_true", help="only show the plan of the read; starts no Spark")
    shown.add_argument("--format", choices=output.FORMATS, default="table", help="default: table")
    shown.add_argument(
        "--limit", type=int, metavar="N",
        help=f"show only the first N rows; default: {_TABLE_LIMIT} in a table, all in the other formats",
    )  # fmt: skip
    shown.add_argument("--output", type=Path, metavar="FILE", help="write json, csv or parquet to this file")
    changes.set_defaults(run=_changes)


def _changes(arguments: argparse.Namespace) -> int:
    output.check(arguments.format, arguments.output, arguments.limit)
    table, start, query = _query(arguments)
    plan = plan_changes(table, **start, **{name: getattr(arguments, name) for name in _END}, **query)
    if arguments.plan:
        print(plan)
        return 0
    for note in plan.notes:
        print(note, file=sys.stderr)
    # These formats contain names or types of the columns; only Spark knows those of a projection.
    typed = arguments.format == "parquet" or (arguments.format == "csv" and bool(arguments.select))
    if plan.read_ranges or typed:
        storage = query["storage_options"]
        where = f"{plan.table.uri}, {_where(plan)}"
        with session(locations=[plan.table.uri], storage_options=storage) as spark, named(where):
            _show(_read(spark, plan, query), plan, arguments, query["keys"])
    else:
        _show_nothing(plan, arguments)
    return 0


def _query(arguments: argparse.Namespace) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the table, the start of the range, and the other parameters of read_changes."""
    start = {name: getattr(arguments, name) for name in _START if getattr(arguments, name) is not None}
    query: dict[str, Any] = {"keys": [], **given(arguments, _QUERY.values())}
    table, *others = arguments.tables
    if not others and not is_configuration(table) and not is_pair(table):
        refuse(arguments, ("pipelines", "group"), "with one table")
        if not start:
            arguments.parser.error("one of the arguments --from/--starting-version "
                                   "--from-time/--starting-timestamp is required")  # fmt: skip
        query["storage_options"] = connected(arguments).get("storage_options")
        return table, start, query
    chosen_pipeline = the_one(arguments)
    if chosen_pipeline.target is None:
        raise InvalidConfiguration(
            f"{chosen_pipeline.pipeline} has a change log alone, and nothing is applied from it.",
            remedy=f"name the log: delta-cdc changes {chosen_pipeline.log} --from N.",
        )
    query["storage_options"] = chosen_pipeline.storage_options
    seal = newest_seal(chosen_pipeline.target, chosen_pipeline.pipeline, chosen_pipeline.storage_options)
    if not start:
        start = {"starting_version": seal.watermark.version + 1 if seal is not None else 0}
    if not query["keys"] and chosen_pipeline.group is not None:
        query["keys"] = list(names("keys", chosen_pipeline.table.arguments.get("keys")) or ())
    elif not query["keys"] and seal is not None:
        query["keys"] = list(options_of(seal).keys)
    return source_of(chosen_pipeline, seal), start, query


def _read(spark: SparkSession, plan: ChangesPlan, query: dict[str, Any]) -> DataFrame:
    """Read the planned range, regardless of later commits."""
    # Use the URI, not the user's text: Spark takes a folder name without a slash for a catalog name.
    table = plan.table.uri
    if plan.versions is None:
        return read_changes(spark, table, starting_version=plan.table.version + 1, **query)
    start, end = plan.versions.starting_version, plan.versions.ending_version
    return read_changes(spark, table, starting_version=start, ending_version=end, **query)


def _show(rows: DataFrame, plan: ChangesPlan, arguments: argparse.Namespace, key_names: list[str]) -> None:
    # Check the keys here: full_delta does not use keys, so only the sort would detect an unknown column.
    wide = arguments.wide
    keys = match(output.key_names(rows, wide=wide), key_names, "keys", plan.table.uri)
    if arguments.format == "table":
        lines, counts = output.table(rows, keys, arguments.limit or _TABLE_LIMIT, wide=wide)
        print(*lines, "", f"{counts} in {_where(plan)}", sep="\n")
        return
    counts = output.write(
        rows, keys, arguments.format, limit=arguments.limit, path=arguments.output, wide=wide
    )
    print(f"{counts} in {_where(plan)}", file=sys.stderr)


def _show_nothing(plan: ChangesPlan, arguments: argparse.Namespace) -> None:
    header = ""
    if arguments.format == "csv":
        columns = [*plan.table.schema_columns, *(TRACKING_COLUMNS if arguments.row_ids else ())]
        header = output.csv_line([*([OLD, NEW] if arguments.wide else columns), *METADATA_COLUMNS])
    if arguments.output is not None:
        arguments.output.write_text(header, encoding="utf-8")
    else:
        sys.stdout.write(header)
    print(f"0 rows in {_where(plan)}", file=sys.stdout if arguments.format == "table" else sys.stderr)


def _where(plan: ChangesPlan) -> str:
    """Return the range and how it was read, for people."""
    if plan.versions is None:
        return f"no version: the newest one is {plan.table.version}"
    if not plan.read_ranges:
        return f"versions {plan.versions}, none of which changes data"
    return f"versions {plan.versions}, read by {', '.join(dict.fromkeys(s.method for s in plan.read_ranges))}"
