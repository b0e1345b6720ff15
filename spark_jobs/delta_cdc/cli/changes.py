"""``delta-cdc changes``: what changed in a table. Spark starts here, once there are rows to read."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from delta_cdc import output
from delta_cdc.cli.common import named, session
from delta_cdc.spec import Capture, Query

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.plan import ChangesPlan

_TABLE_LIMIT = 20


def add(commands: Any) -> None:
    """Declare the subcommand."""
    changes = commands.add_parser(
        "changes",
        help="show what changed in a table between two versions (starts Spark here, if there is anything)",
        description="Without --to the range ends at the newest version. Both ends are inclusive. Sorted by "
        "version, then key (without keys: the first column), the state before ahead of the one after.",
    )
    changes.add_argument("table", metavar="TABLE", help="path or URI of the table")
    start = changes.add_mutually_exclusive_group(required=True)
    end = changes.add_mutually_exclusive_group()
    for group, short, long in ((start, "from", "starting"), (end, "to", "ending")):
        name, which = (f"{long}_version", f"{long}_timestamp"), "first" if long == "starting" else "last"
        group.add_argument(f"--{short}", f"--{long}-version", dest=name[0], type=int, metavar="N",
                           help=f"{which} version")  # fmt: skip
        group.add_argument(f"--{short}-time", f"--{long}-timestamp", dest=name[1], metavar="TIME",
                           help="the same as a time, ISO 8601 with offset")  # fmt: skip
    asked = changes.add_argument_group("what is asked, as the parameters of read_changes")
    asked.add_argument("--query", choices=get_args(Query), default="full_delta", help="default: full_delta")
    asked.add_argument(
        "--key", dest="keys", action="append", default=[], metavar="COLUMN",
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
    from delta_cdc.api import plan_changes

    output.check(arguments.format, arguments.output, arguments.limit)
    names = ("query", "keys", "capture", "raw", "where", "select", "on_change_commit")
    asked = {name: getattr(arguments, name) for name in names}
    bounds = ("starting_version", "ending_version", "starting_timestamp", "ending_timestamp")
    plan = plan_changes(arguments.table, **{name: getattr(arguments, name) for name in bounds}, **asked)
    if arguments.plan:
        print(plan)
        return 0
    for note in plan.notes:
        print(note, file=sys.stderr)
    # The columns' names and types are part of what is written; of a projection only Spark knows them.
    typed = arguments.format == "parquet" or (arguments.format == "csv" and bool(arguments.select))
    if plan.segments or typed:
        with session(locations=[plan.uri]) as spark, named(f"{plan.uri}, {_where(plan)}"):
            _show(_read(spark, plan, asked), plan, arguments)
    else:
        _show_nothing(plan, arguments)
    return 0


def _read(spark: SparkSession, plan: ChangesPlan, asked: dict[str, Any]) -> DataFrame:
    """Read what was planned, whatever is committed in the meantime."""
    from delta_cdc.api import read_changes

    # Not as it was written: a folder without a slash in its name is a catalog name to Spark.
    table = plan.uri
    if plan.versions is None:
        return read_changes(spark, table, starting_version=plan.at + 1, **asked)
    start, end = plan.versions.starting_version, plan.versions.ending_version
    return read_changes(spark, table, starting_version=start, ending_version=end, **asked)


def _show(rows: DataFrame, plan: ChangesPlan, arguments: argparse.Namespace) -> None:
    from delta_cdc.changes.states import match

    # full_delta does not use keys, so only the sort would notice one that is no column.
    keys = match(output.values(rows), arguments.keys, "keys", plan.uri)
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
    from delta_cdc.changes.feed import METADATA_COLUMNS

    header = output.csv_line([*plan.columns, *METADATA_COLUMNS]) if arguments.format == "csv" else ""
    if arguments.output is not None:
        arguments.output.write_text(header, encoding="utf-8")
    else:
        sys.stdout.write(header)
    print(f"0 rows in {_where(plan)}", file=sys.stdout if arguments.format == "table" else sys.stderr)


def _where(plan: ChangesPlan) -> str:
    """Return the range and how it was read, for people."""
    if plan.versions is None:
        return f"no version: the newest one is {plan.at}"
    if not plan.segments:
        return f"versions {plan.versions}, none of which changes data"
    return f"versions {plan.versions}, read by {', '.join(dict.fromkeys(s.capture for s in plan.segments))}"
