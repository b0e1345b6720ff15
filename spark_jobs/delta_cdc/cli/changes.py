"""``delta-cdc changes``: what changed in a table. Spark starts here, once there are rows to read."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from delta_cdc.api.changes import plan_changes, read_changes
from delta_cdc.cli import output
from delta_cdc.cli.common import bounds, named, newest_seal, refuse, session
from delta_cdc.cli.pipelines import is_configuration, is_pair, source_of, takes_pipelines, the_one
from delta_cdc.core.arguments import names
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.reserved_columns import METADATA_COLUMNS
from delta_cdc.core.spec import Capture, Query
from delta_cdc.core.validation import options_of
from delta_cdc.spark.changes.states import match

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.cli.pipelines import Chosen
    from delta_cdc.core.watermark import Seal
    from delta_cdc.planning.changes import ChangesPlan

_TABLE_LIMIT = 20


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    changes = commands.add_parser(
        "changes",
        help="show what changed in a table between two versions (starts Spark here, if there is anything)",
        description="Without --to the range ends at the newest version. Both ends are inclusive. Sorted by "
        "version, then key (without keys: the first column), the state before ahead of the one after. Of a "
        "pipeline the table is what its target is applied from, the keys are its keys, and without --from "
        "the range begins behind its watermark: what is not applied yet.",
    )
    takes_pipelines(changes, "TABLE --from N")
    bounds(changes.add_mutually_exclusive_group(), changes.add_mutually_exclusive_group())
    asked = changes.add_argument_group("what is asked, as the parameters of read_changes")
    asked.add_argument("--query", choices=get_args(Query), default="full_delta", help="default: full_delta")
    asked.add_argument(
        "--key", "--keys", dest="keys", action="append", default=[], metavar="COLUMN",
        help="column that identifies a row, repeatable; needed by min_delta, upsert and --where",
    )  # fmt: skip
    asked.add_argument("--capture", choices=get_args(Capture), default="auto", help="default: auto")
    asked.add_argument("--raw", action="store_true", help="full_delta: exactly what the change feed holds")
    asked.add_argument("--where", metavar="SQL", help="predicate on rows: leaving it is a delete")
    asked.add_argument("--select", action="append", metavar="SQL", help="projection of rows, repeatable")
    asked.add_argument(
        "--on-change-commit", choices=("fail", "skip"), default="fail",
        help="capture added_files: what to do at a commit that removes rows",
    )  # fmt: skip
    shown = changes.add_argument_group("how it is shown")
    shown.add_argument("--plan", action="store_true", help="only say how it would be read; starts no Spark")
    shown.add_argument("--format", choices=output.FORMATS, default="table", help="default: table")
    shown.add_argument(
        "--limit", type=int, metavar="N",
        help=f"show so many rows; default: {_TABLE_LIMIT} in a table, all in the other formats",
    )  # fmt: skip
    shown.add_argument("--output", type=Path, metavar="FILE", help="write csv, json or parquet there")
    changes.set_defaults(run=_changes)


def _changes(arguments: argparse.Namespace) -> int:
    output.check(arguments.format, arguments.output, arguments.limit)
    asked_of = ("query", "capture", "raw", "where", "select")
    about = _about(arguments)
    storage = about.storage_options
    asked = {name: getattr(arguments, name) for name in asked_of} | {
        "keys": about.keys,
        "policies": {"on_change_commit": arguments.on_change_commit},
        "storage_options": storage,
    }
    ends = {name: getattr(arguments, name) for name in ("ending_version", "ending_timestamp")}
    plan = plan_changes(about.table, **about.start, **ends, **asked)
    if arguments.plan:
        print(plan)
        return 0
    for note in plan.notes:
        print(note, file=sys.stderr)
    # The output contains the columns' names and types; for a projection only Spark knows them.
    typed = arguments.format == "parquet" or (arguments.format == "csv" and bool(arguments.select))
    if plan.segments or typed:
        where = f"{plan.table.uri}, {_where(plan)}"
        with session(locations=[plan.table.uri], storage_options=storage) as spark, named(where):
            _show(_read(spark, plan, asked), plan, arguments, about.keys)
    else:
        _show_nothing(plan, arguments)
    return 0


@dataclass(frozen=True)
class _About:
    """The subject of the output: a table, its start, and the keys of its rows."""

    table: str
    start: dict[str, Any]
    keys: list[str]
    storage_options: dict[str, str] | None = None


def _about(arguments: argparse.Namespace) -> _About:
    given = ("starting_version", "starting_timestamp")
    start = {name: getattr(arguments, name) for name in given if getattr(arguments, name) is not None}
    texts = arguments.tables
    if len(texts) == 1 and not is_configuration(texts[0]) and not is_pair(texts[0]):
        refuse(arguments, ("pipelines", "group"), "with one table")
        if not start:
            arguments.parser.error("one of the arguments --from/--starting-version "
                                   "--from-time/--starting-timestamp is required")  # fmt: skip
        return _About(texts[0], start, arguments.keys)
    one = the_one(arguments)
    if one.target is None:
        raise InvalidConfiguration(
            f"{one.pipeline} has a change log alone, and nothing is applied from it.",
            remedy=f"name the log: delta-cdc changes {one.log} --from N.",
        )
    seal = newest_seal(one.target, one.pipeline, one.storage_options)
    if not start:
        start = {"starting_version": seal.watermark.version + 1 if seal is not None else 0}
    keys = arguments.keys or _keys(one, seal)
    return _About(source_of(one, seal), start, keys, one.storage_options)


def _keys(one: Chosen, seal: Seal | None) -> list[str]:
    if one.table is not None:
        return list(names("keys", one.table.arguments.get("keys")) or ())
    return list(options_of(seal).keys) if seal is not None else []


def _read(spark: SparkSession, plan: ChangesPlan, asked: dict[str, Any]) -> DataFrame:
    """Read the planned range, regardless of later commits."""
    # Not the user's text: Spark takes a folder without a slash in its name for a catalog name.
    table = plan.table.uri
    if plan.versions is None:
        return read_changes(spark, table, starting_version=plan.table.version + 1, **asked)
    start, end = plan.versions.starting_version, plan.versions.ending_version
    return read_changes(spark, table, starting_version=start, ending_version=end, **asked)


def _show(rows: DataFrame, plan: ChangesPlan, arguments: argparse.Namespace, wanted: list[str]) -> None:
    # full_delta does not use keys, so only the sort would detect a key that is not a column.
    keys = match(output.values(rows), wanted, "keys", plan.table.uri)
    limit, path = arguments.limit, arguments.output
    if arguments.format == "table":
        lines, counts = output.table(rows, keys, limit or _TABLE_LIMIT)
        print(*lines, "", f"{counts} in {_where(plan)}", sep="\n")
        return
    with output.written(rows, keys, arguments.format, limit=limit, beside=path) as (file, counts):
        if path is not None:
            output.keep(file, path)
        else:
            with file.open(encoding="utf-8", newline="") as text:
                shutil.copyfileobj(text, sys.stdout)
    print(f"{counts} in {_where(plan)}", file=sys.stderr)


def _show_nothing(plan: ChangesPlan, arguments: argparse.Namespace) -> None:
    header = (
        output.csv_line([*plan.table.schema_columns, *METADATA_COLUMNS]) if arguments.format == "csv" else ""
    )
    if arguments.output is not None:
        arguments.output.write_text(header, encoding="utf-8")
    else:
        sys.stdout.write(header)
    print(f"0 rows in {_where(plan)}", file=sys.stdout if arguments.format == "table" else sys.stderr)


def _where(plan: ChangesPlan) -> str:
    """Return the range and how it was read, for people."""
    if plan.versions is None:
        return f"no version: the newest one is {plan.table.version}"
    if not plan.segments:
        return f"versions {plan.versions}, none of which changes data"
    return f"versions {plan.versions}, read by {', '.join(dict.fromkeys(s.capture for s in plan.segments))}"
