"""``delta-cdc why``: for each value of a row, the change that set it and the run that applied it."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.application import Application, settings_of
from delta_cdc.cli.common import last_by, refuse
from delta_cdc.cli.pipelines import refuse_templates, takes_pipelines, the_one
from delta_cdc.config.why import request_of
from delta_cdc.core.arguments import conflict, size
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.planning.why import MOST_BYTES, WhyRequest
from delta_cdc.run.why import run_why

if TYPE_CHECKING:
    from delta_cdc.cli.pipelines import Chosen


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    why = commands.add_parser(
        "why",
        help="show where each value of a row comes from, and what did not get into it (starts Spark here)",
        description="The command reads one key: its rows in the target, and its changes in the source. For "
        "each value it prints the change that set it, and the run that applied that. Nothing is written.",
    )
    takes_pipelines(why)
    why.add_argument(
        "--key", action="append", required=True, metavar="COLUMN=VALUE", type=_pair,
        help="a key column and its value; repeat it for each key column",
    )  # fmt: skip
    why.add_argument("--column", action="append", metavar="NAME", help="print only this column; repeatable")
    why.add_argument(
        "--at", metavar="VERSION|TIME",
        help="the target as of a version, or of a time (ISO 8601 with offset); default: the newest version",
    )  # fmt: skip
    why.add_argument(
        "--max-bytes", type=_size, default=MOST_BYTES, metavar="SIZE",
        help="the most bytes to read of one table, such as 20GiB; default: 1GiB",
    )  # fmt: skip
    target = why.add_argument_group("for one target, without a configuration")
    target.add_argument("--source", metavar="TABLE", help="the source, if it was moved")
    last_by(target)
    why.add_argument("--json", action="store_true", help="print the answer as JSON")
    why.set_defaults(run=_run)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not COLUMN=VALUE")
    return name.strip(), value


def _size(text: str) -> int:
    try:
        found = size("--max-bytes", text)
    except InvalidConfiguration:
        found = None
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size like 20GiB")
    return found


def _run(arguments: argparse.Namespace) -> int:
    one = the_one(arguments)
    refuse_templates(one)
    settings = settings_of([one])
    request = _request(arguments, one, settings["storage_options"])
    with Application(settings, [request]) as application:
        answer = run_why(request, execute=application.execute, say=partial(print, file=sys.stderr))
    if arguments.column:
        answer = answer.only(arguments.column)
    print(json.dumps(answer.to_dict(), indent=2) if arguments.json else answer)
    return 0 if answer.rows else 1


def _request(
    arguments: argparse.Namespace, one: Chosen, storage_options: dict[str, str] | None
) -> WhyRequest:
    keys = dict(arguments.key)
    if len(keys) < len(arguments.key):
        raise InvalidConfiguration("--key names a column twice.", remedy="give each key column one value.")
    common: dict[str, Any] = {
        "key": keys,
        "at": arguments.at,
        "most_bytes": arguments.max_bytes,
        "run_id": "delta-cdc-why",
        "storage_options": storage_options,
    }
    if one.group is None:
        if one.source is not None:
            refuse(arguments, ("source",), "with SOURCE TARGET")
        policies = (
            {"on_conflict": conflict("last_by", {"last_by": arguments.last_by})} if arguments.last_by else {}
        )
        source = one.source or arguments.source
        return WhyRequest(
            pipeline=one.pipeline, target=str(one.target), source=source, policies=policies, **common
        )
    refuse(arguments, ("source", "last_by"), "with a configuration")
    return request_of(one.table.arguments, **common)
