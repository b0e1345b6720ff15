"""The command ``delta-cdc``. It needs no Airflow, and no Spark except for some subcommands.

A module here is one subcommand: its ``add(commands)`` adds its parser, and sets the function that runs it.
Shared code is in :mod:`delta_cdc.cli.pipelines` (which tables), :mod:`delta_cdc.cli.common` and
:mod:`delta_cdc.cli.application`.

Exit codes: 0 success, 1 a finding (a named error, no recorded watermark), 2 wrong usage.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from delta_cdc.cli import (
    archive,
    changes,
    decode,
    discover,
    doctor,
    erase,
    import_code,
    init,
    jars,
    lint,
    plan,
    promote,
    replay,
    rules,
    run,
    schema,
    shadow,
    status,
    verify,
    views,
    why,
)
from delta_cdc.cli.common import exit_code
from delta_cdc.core.errors import DeltaCdcError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

#: In the order in which the help lists them.
_COMMANDS = (
    run,
    status,
    plan,
    changes,
    decode,
    replay,
    rules,
    verify,
    why,
    views,
    shadow,
    promote,
    erase,
    init,
    discover,
    lint,
    import_code,
    schema,
    jars,
    archive,
    doctor,
)
#: From the arguments of a command line and the settings of a group: the settings with what connections give.
Connect = Callable[[argparse.Namespace, Mapping[str, Any]], Mapping[str, Any]]
#: Names that other tools have for a subcommand.
_ALSO = {"validate": "lint", "check": "lint"}


def main(argv: Sequence[str] | None = None, parser: Parser | None = None) -> int:
    """Run one subcommand and return the exit code.

    :param parser: as :func:`command_line` returns it; None: that of ``delta-cdc``
    """
    arguments = (parser or command_line()).parse_args(argv)
    try:
        code = int(arguments.run(arguments))
        sys.stdout.flush()
        return code
    except DeltaCdcError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return exit_code(error)
    except BrokenPipeError:
        # The reader, such as head, closed the pipe; without this Python would fail again in its final flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


class Commands:
    """The subcommands of a parser.

    :param action: what argparse's ``add_subparsers`` returned
    """

    def __init__(self, action: Any) -> None:
        self._action = action
        self.parsers: dict[str, Parser] = {}
        #: The line of each subcommand in the help.
        self.lines: dict[str, str] = {}

    def add_parser(self, name: str, **settings: Any) -> Parser:
        """Add a subcommand and return its parser.

        :param settings: of the parser, as in argparse; ``help`` is the line in the help of all subcommands
        """
        parser: Parser = self._action.add_parser(name, **settings)
        self.parsers[name], self.lines[name] = parser, settings["help"]
        return parser


class Parser(argparse.ArgumentParser):
    """Reports an unknown argument with the usage of the subcommand that received it."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        #: All arguments, those of groups too, in the order in which they were added.
        self.arguments: list[argparse.Action] = []
        self.commands: Commands | None = None
        super().__init__(*args, **settings)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """Add an argument, and return it."""
        action = super().add_argument(*names, **settings)
        self.arguments.append(action)
        return action

    def add_argument_group(self, *args: Any, **settings: Any) -> Any:
        """Add a group of arguments, and return it."""
        return self._listed(super().add_argument_group(*args, **settings))

    def add_mutually_exclusive_group(self, **settings: Any) -> Any:
        """Add a group of arguments of which at most one may be given, and return it."""
        return self._listed(super().add_mutually_exclusive_group(**settings))

    def _listed(self, group: Any) -> Any:
        """Return a group whose arguments will be in the list of this parser's arguments."""
        add_to_group = group.add_argument

        def add_argument(*names: Any, **settings: Any) -> argparse.Action:
            action: argparse.Action = add_to_group(*names, **settings)
            self.arguments.append(action)
            return action

        group.add_argument = add_argument
        return group

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; an unknown argument is an error of this subcommand, not of the whole command."""
        if self.commands is None:
            # Before missing arguments are reported: the unknown option may be a misspelled one.
            options = takewhile(lambda text: text != "--", args or ())
            self._refuse([text.partition("=")[0] for text in options if text.startswith("--")])
        else:
            self._refuse_command(self.commands, next(iter(sys.argv[1:] if args is None else args), "-"))
        parsed, rest = super().parse_known_args(args, namespace)
        if rest:
            is_file = rest[0].endswith((".yaml", ".yml"))
            # People give the file of their pipelines to each subcommand; some look at something else.
            hint = f". lint checks a configuration, and status its tables: delta-cdc lint {rest[0]}"
            self.error(f"unknown arguments: {' '.join(rest)}{hint if is_file else ''}")
        return parsed, rest

    def _refuse(self, names: Sequence[str]) -> None:
        options = [option for action in self.arguments for option in action.option_strings]
        for name in names:
            if " " not in name and not any(option.startswith(name) for option in options):
                near = get_close_matches(name, options, n=1)
                hint = f"did you mean {near[0]}?" if near else "--help lists all options."
                self.error(f"unknown option {name}: {hint}")

    def _refuse_command(self, commands: Commands, name: str) -> None:
        names = list(commands.parsers)
        if not name.startswith("-") and name not in names:
            near = [_ALSO[name]] if name in _ALSO else get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(names)}."
            self.error(f"unknown command {name}: {hint}")


def command_line(
    prog: str = "delta-cdc",
    connect: Connect = lambda _, settings: settings,
    only: Collection[str] | None = None,
) -> Parser:
    """Return the parser of the command, with its subcommands.

    :param connect: see :data:`Connect`
    :param only: the names of the modules of some subcommands; None: all
    """
    parser = Parser(prog=prog, description="Change data capture between Delta tables, exactly once.")
    parser.commands = commands = Commands(parser.add_subparsers(required=True, metavar="COMMAND"))
    for command in _COMMANDS:
        if only is None or command.__name__.rpartition(".")[2] in only:
            command.add(commands)
    for subcommand in commands.parsers.values():
        subcommand.set_defaults(parser=subcommand, connect=connect)
    return parser
