"""``delta-cdc import``: the YAML file that is equivalent to AUTO CDC code."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from delta_cdc.config import Code, imported
from delta_cdc.config.yaml_text import write_new, yaml_of


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    parser = commands.add_parser(
        "import",
        help="write AUTO CDC code, Python or SQL, as a configuration (starts no Spark, runs no code)",
        description="The command reads create_auto_cdc_flow and create_auto_cdc_from_snapshot_flow in "
        "Python, or AUTO CDC INTO and APPLY CHANGES INTO in SQL, and prints the equivalent YAML. It does not "
        "run the code. On standard error, it names what it leaves out. A clause without an equivalent is an "
        "error with its place. Exit code 2: the code cannot be read.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the code: a *.py or *.sql file")
    parser.add_argument(
        "--source", dest="sources", action="append", type=_pair, default=[], metavar="NAME=TABLE",
        help="the Delta table that a source of the code stands for: a path, a URI or a catalog name; "
        "repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--target", dest="targets", action="append", type=_pair, default=[], metavar="NAME=TABLE",
        help="the same for a target; repeatable",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the YAML to this new file")
    parser.set_defaults(run=_run)


def _pair(text: str) -> tuple[str, str]:
    name, _, table = text.partition("=")
    if not name.strip() or not table.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=TABLE")
    return name.strip(), table.strip()


def _run(arguments: argparse.Namespace) -> int:
    code = Code(sources=dict(arguments.sources), targets=dict(arguments.targets))
    content, notices = imported(arguments.file, code)
    for notice in notices:
        sys.stderr.write(f"{notice}\n")
    text = yaml_of(content)
    if arguments.output is None:
        print(text, end="")
        return 0
    write_new(arguments.output, text)
    return 0
