"""The command ``delta-cdc``. It needs no Airflow, and no Spark unless a subcommand says so.

A module here is one subcommand: its ``add(commands)`` declares it, and sets the function that runs it. Only
:mod:`delta_cdc.cli.common` and :mod:`delta_cdc.cli.application` are what several of them need.

Exit codes: 0 all is well, 1 a finding (a named error, no proof), 2 wrong usage.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from delta_cdc.cli import archive, changes, doctor, jars, lint, plan, replay, run, schema, status, verify
from delta_cdc.errors import DeltaCdcError, InvalidConfiguration

if TYPE_CHECKING:
    from collections.abc import Sequence

#: In the order in which the help lists them.
_COMMANDS = (run, status, plan, changes, replay, verify, lint, schema, jars, archive, doctor)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        code = int(arguments.run(arguments))
        sys.stdout.flush()
        return code
    except InvalidConfiguration as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    except DeltaCdcError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader, such as head, has had enough; Python would complain again when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="delta-cdc", description="Change data capture between Delta tables, exactly once."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add(commands)
    return parser
