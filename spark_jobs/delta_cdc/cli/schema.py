"""``delta-cdc schema``: the JSON Schema of a configuration, for editors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.config.schema import as_text

if TYPE_CHECKING:
    import argparse


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    schema = commands.add_parser(
        "schema",
        help="print the JSON Schema of configurations, for completion and checks in an editor",
        description="The command prints a JSON Schema of draft 2020-12.",
    )
    schema.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    print(as_text(), end="")
    return 0
