"""The provider's part of Airflow's command line: the group ``airflow delta-cdc``.

Airflow calls :func:`get_cli_commands` at every start of its command line, so the command itself is loaded
only when it runs.
"""

from __future__ import annotations

from typing import Any

from airflow.cli.cli_config import ActionCommand, Arg, CLICommand, GroupCommand, lazy_load_command

from airflow_delta_cdc import engine

HELP = "Check what the Delta CDC provider needs"


def get_cli_commands() -> list[CLICommand]:
    """Return the group ``airflow delta-cdc`` with its one command."""
    doctor = ActionCommand(
        name="doctor",
        help=HELP,
        description=engine.DOCTOR_DESCRIPTION,
        func=lazy_load_command("airflow_delta_cdc.doctor.doctor_command"),
        args=arguments(),
    )
    return [GroupCommand(name="delta-cdc", help="Delta CDC provider", subcommands=(doctor,))]


def arguments() -> tuple[Arg, ...]:
    """Return the arguments of ``delta-cdc doctor`` and those for connections, in Airflow's form."""

    class Collected(list[Arg]):
        def add_argument(self, *flags: str, **how: Any) -> None:
            self.append(Arg(flags=flags, **how))  # type: ignore[no-untyped-call]

    collected = Collected()
    collected.add_argument(
        "--spark-conn-id", help="Spark connection: its master, or its Spark Connect server"
    )
    collected.add_argument("--delta-conn-id", help="connection of type delta: reads --storage and --table")
    engine.doctor_options(collected)
    return tuple(collected)
