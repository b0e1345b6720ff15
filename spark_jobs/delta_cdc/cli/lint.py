"""``delta-cdc lint``: list all problems of a configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from delta_cdc.config import MORE, checked
from delta_cdc.core.text_table import plural

if TYPE_CHECKING:
    import argparse


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    lint = commands.add_parser(
        "lint",
        help="check configurations (starts no Spark, uses no network)",
        description="The command prints one line for each problem: file:line:column, what is wrong, and the "
        "remedy. Exit code 1: there are problems.",
    )
    lint.add_argument(
        "sources", nargs="+", metavar="FILE",
        help="a configuration: a file, or a folder of *.yaml and *.yml files",
    )  # fmt: skip
    lint.add_argument("--json", action="store_true", help="print the findings as JSON")
    lint.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    results = [checked(source) for source in arguments.sources]
    findings = [finding for found, _ in results for finding in found]
    # Report the checked files even if there are no findings.
    lines = [*map(str, findings), f"{plural(len(findings), 'finding')} in {', '.join(arguments.sources)}"]
    lines += [MORE] if any(is_partial for _, is_partial in results) else []
    text = "\n".join(lines)
    print(json.dumps([one.to_dict() for one in findings], indent=2) if arguments.json else text)
    return 1 if findings else 0
