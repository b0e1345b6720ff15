"""``airflow delta-cdc``: commands of ``delta-cdc``, with the options that Airflow's connections give."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import doctor, engine
from airflow_delta_cdc.commands import COMMANDS
from airflow_delta_cdc.hooks.table import storage_options
from airflow_delta_cdc.kafka import kafka_options
from delta_cdc.core.errors import InvalidConfiguration

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

PROG = "airflow delta-cdc"
#: The command that looks at connections themselves.
_DOCTOR = "doctor"
#: Each connection with the options that it gives, and the function that looks them up.
_CONNECTIONS = {
    "delta_conn_id": ("storage_options", storage_options),
    "kafka_conn_id": ("kafka_options", kafka_options),
}


def run(given: argparse.Namespace) -> None:
    """Run the command that Airflow's command line has read, and end the process with the exit code."""
    sys.exit(main([given.subcommand, *given.arguments]))


def main(argv: Sequence[str]) -> int:
    """Run a command and return the exit code.

    :param argv: its name and its arguments
    """
    # Airflow's own commands set this, too: without it, Airflow does not look for connections in its database.
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    with _output():
        return engine.run_command(argv, _parser())


def _parser() -> Any:
    """Return the engine's parser with the commands that Airflow's command line has, and their connections."""
    parser = engine.command_line(PROG, connected, only=COMMANDS)
    assert parser.commands is not None
    for name, command in parser.commands.parsers.items():
        if name == _DOCTOR:
            doctor.add(command)
            continue
        connections = command.add_argument_group("connections of Airflow")
        connections.add_argument(
            "--delta-conn-id", metavar="ID", help="connection of type delta, instead of that of the group"
        )
        connections.add_argument(
            "--kafka-conn-id", metavar="ID", help="connection of type kafka, instead of that of the group"
        )
    return parser


def connected(given: argparse.Namespace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a group with the options that its connections give, as its tasks get them.

    :param given: the arguments of the command line; the connections that they name come first
    :raises InvalidConfiguration: a connection contains a template, or cannot be used
    :raises DeltaConnectionNotFound: a connection does not exist
    :raises KafkaConnectionNotFound: a connection does not exist
    """
    found = dict(settings)
    for name, (options, looked_up) in _CONNECTIONS.items():
        of_the_group = found.pop(name, None)
        conn_id = getattr(given, name) or of_the_group
        for part, value in ((name, conn_id), (options, found.get(options))):
            if engine.is_template(value):
                # Not the value: options may hold a secret.
                raise InvalidConfiguration(
                    f"{part} of a group contains a template, which only a task renders.",
                    remedy=f"name the connection with --{name.replace('_', '-')}; write other options as "
                    "values.",
                )
        if conn_id:
            found[options] = looked_up(conn_id, found.get(options))
    return found


@contextmanager
def _output() -> Iterator[None]:
    """Reserve standard output for the command: Airflow's logs go to standard error meanwhile."""
    sys.stdout.flush()
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(out), "w", encoding="utf-8") as answer, redirect_stdout(answer):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(out, 1)
        os.close(out)


if __name__ == "__main__":
    # Without Airflow's own command line: python -m airflow_delta_cdc.command_line doctor
    sys.exit(main(sys.argv[1:]))
