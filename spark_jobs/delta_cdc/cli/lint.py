"""``delta-cdc lint``: everything that is wrong with a configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from delta_cdc.config import lint

if TYPE_CHECKING:
    import argparse


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    lint = commands.add_parser(
        "lint",
        help="check files of pipelines (starts no Spark, and asks no network)",
        description="Prints one line for each thing that is wrong: file:line:column, what it is, and the "
        "remedy. A folder's *.yaml and *.yml are one configuration. Exit code 1: there is something.",
    )
    lint.add_argument("sources", nargs="+", metavar="FILE|FOLDER", help="each a configuration of its own")
    lint.add_argument("--json", action="store_true", help="print the findings as JSON")
    lint.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    found = [finding for source in arguments.sources for finding in lint(source)]
    if arguments.json:
        print(json.dumps([finding.to_dict() for finding in found], indent=2))
    else:
        for finding in found:
            print(finding)
        # Report the checked files even if there are no findings.
        print(f"{len(found)} finding{'' if len(found) == 1 else 's'} in {', '.join(arguments.sources)}")
    return 1 if found else 0
