"""``delta-cdc promote``: let the shadow of a target replace it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.application import Application, settings_of
from delta_cdc.cli.common import single_driver
from delta_cdc.cli.pipelines import refuse_templates, takes_pipelines, the_one
from delta_cdc.cli.shadow import pair_of, takes_original, work_of
from delta_cdc.config import load
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.options import APPLY, INGEST
from delta_cdc.core.shadow import RUNS, lines
from delta_cdc.run.shadow import promote

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from delta_cdc.cli.pipelines import Chosen
    from delta_cdc.core.shadow import Pair


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    parser = commands.add_parser(
        "promote",
        help="let the shadow of a target replace it (starts Spark here)",
        description="Name the shadow: a pipeline with shadow_of. The command shows what it would do, and "
        "whether it may; with --yes, it does it: the original pipeline goes on in the shadow's target, and "
        "catalog names are exchanged. A command that was interrupted is run again. Exit code 1: the shadow "
        "must not be promoted now.",
    )
    takes_pipelines(parser)
    takes_original(parser)
    parser.add_argument(
        "--runs", type=int, default=RUNS, metavar="N",
        help=f"number of newest comparisons that must agree; default: {RUNS}",
    )  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="do it; without it, nothing is written")
    single_driver(parser, "")
    parser.set_defaults(run=_promote)


def _promote(arguments: argparse.Namespace) -> int:
    if arguments.runs < 1:
        raise InvalidConfiguration(
            f"--runs is {arguments.runs}.", remedy="give a whole number >= 1.", argument="runs"
        )
    one = the_one(arguments)
    pair, settings = pair_of(arguments, one), settings_of([one])
    refuse_templates(one)
    with Application(settings) as application:
        work = work_of(arguments, pair, settings, application)
        report = promote(work, runs=arguments.runs, dry_run=not arguments.yes)
    print("\n".join(report.lines))
    for text in report.refused:
        print(f"Not now: {text}")
    if not report.refused:
        print("\n".join(_configuration(arguments, pair, one)))
        if not arguments.yes:
            print("Nothing was written. Add --yes to do it.")
    return 1 if report.refused else 0


def _configuration(arguments: argparse.Namespace, pair: Pair, one: Chosen) -> Iterator[str]:
    """Yield what to change in the configuration."""
    if one.group is None:
        yield f"Then give {pair.original} the options of {pair.shadow}, and no longer run {pair.shadow}."
        return
    ((_, original),) = load(arguments.tables[0]).chosen(None, [pair.original])
    yield f"Then change {pair.original} in the configuration, and remove {pair.shadow}:"
    of_ingest = ("source", "source_kind", *(name for name in INGEST if name not in APPLY))
    kept = of_ingest if "log" in original.arguments else ()
    changes = lines(original.arguments, one.table.arguments, kept)
    groups = {INGEST[name].group for name in changes if name in INGEST} - {""}
    for group in sorted(groups):
        # A group is one mapping, so it is shown as a whole.
        values = {**original.arguments, **changes}
        names = [name for name in values if name in INGEST and INGEST[name].group == group]
        changes[group] = {
            INGEST[name].key: values[name] for name in names if values[name] is not None
        } or None
        changes = {name: value for name, value in changes.items() if name not in names}
    for name, value in changes.items():
        yield (
            f"  {name}: {json.dumps(value, ensure_ascii=False)}" if value is not None else f"  remove {name}"
        )
