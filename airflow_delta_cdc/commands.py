"""The provider's part of Airflow's command line: the group ``airflow delta-cdc``.

Airflow calls :func:`get_cli_commands` at every start of its command line, so this module has the names of the
commands alone. :mod:`airflow_delta_cdc.command_line` reads their arguments, when one runs.
"""

from __future__ import annotations

import argparse
from typing import Any

from airflow.cli.cli_config import ActionCommand, Arg, CLICommand, GroupCommand, lazy_load_command

#: The commands of ``delta-cdc`` that Airflow's command line has, too, with their lines in its help.
COMMANDS = {
    "status": "show how far pipelines are behind their sources, from the logs alone",
    "plan": "show what the next run of pipelines would do, from the logs alone",
    "changes": "show what changed in a table between two versions",
    "why": "show where each value of a row comes from, and what did not get into it",
    "verify": "check that targets match their sources",
    "rules": "try rules on the rows of a pipeline's source, before a run uses them",
    "replay": "process the records in quarantine again, after a correction",
    "views": "show the versions that a group published together",
    "doctor": "check what the Delta CDC provider needs",
}


class Unread(Arg):
    """All arguments of a command, options too: Airflow's parser passes them on as they are."""

    def __init__(self) -> None:
        super().__init__(flags=("arguments",), nargs=argparse.REMAINDER)  # type: ignore[no-untyped-call]

    def add_to_parser(self, parser: Any) -> None:
        """Add the argument; no text is an option of this parser, not even ``--help``."""
        parser.prefix_chars = "\0"
        super().add_to_parser(parser)


def get_cli_commands() -> list[CLICommand]:
    """Return the group ``airflow delta-cdc`` with its commands."""
    commands = tuple(
        ActionCommand(
            name=name,
            help=text,
            func=lazy_load_command("airflow_delta_cdc.command_line.run"),
            args=(Unread(),),
        )
        for name, text in COMMANDS.items()
    )
    text = "Look at Delta CDC pipelines, with Airflow's connections"
    return [GroupCommand(name="delta-cdc", help=text, subcommands=commands)]
