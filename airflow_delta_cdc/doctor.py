"""``airflow delta-cdc doctor``: what ``delta-cdc doctor`` checks, and the connections that Airflow keeps.

Airflow asks :func:`get_cli_commands` at every start of its command line, so nothing else is imported here.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from airflow.cli.cli_config import CLICommand

    from delta_cdc.doctor import Check, Finding, Hider, Questions

_HELP = "Check what the Delta CDC provider needs"


def get_cli_commands() -> list[CLICommand]:
    """Return the group ``airflow delta-cdc`` with its one command."""
    from airflow.cli.cli_config import ActionCommand, GroupCommand

    doctor = ActionCommand(
        name="doctor",
        help=_HELP,
        description="One line for each check: status, what was found, and what to do where something is "
        "wrong. Exit code 0: nothing failed (warnings may be told); 1: something did; 2: wrong usage. "
        "Secrets are never printed.",
        func=doctor_command,
        args=_arguments(),
    )
    return [GroupCommand(name="delta-cdc", help="Delta CDC provider", subcommands=(doctor,))]


def _arguments() -> tuple[Any, ...]:
    """Return the arguments of ``delta-cdc doctor``, and those that name connections, as Airflow has them."""
    from airflow.cli.cli_config import Arg

    from delta_cdc.cli.doctor import options

    class Collected(list[Any]):
        def add_argument(self, *flags: str, **told: Any) -> None:
            self.append(Arg(flags=flags, **told))  # type: ignore[no-untyped-call]

    found = Collected()
    found.add_argument("--spark-conn-id", help="Spark connection: its master, or its Spark Connect server")
    found.add_argument("--delta-conn-id", help="connection of type delta: reads --storage and --table")
    options(found)
    return tuple(found)


def doctor_command(arguments: argparse.Namespace) -> None:
    """Make the checks, print what they found, and end with the exit code."""
    from delta_cdc.cli.doctor import questions
    from delta_cdc.doctor import Questions, examined, told
    from delta_cdc.errors import InvalidConfiguration

    try:
        asked = Questions(**questions(arguments))
    except InvalidConfiguration as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(2)
    # As Airflow's own commands do: else connections are looked for in the environment and in secrets backends
    # alone, not in Airflow's database.
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    hide = asked.hide
    checks = Connections(asked, hide, spark=arguments.spark_conn_id, delta=arguments.delta_conn_id).checks()
    entries = examined(checks, timeout=asked.timeout, hide=hide)
    with _report() as out:
        code = told(entries, out, as_json=arguments.json)
    sys.exit(code)


@contextmanager
def _report() -> Iterator[TextIO]:
    """Give standard output to the report alone: what Airflow logs there goes to standard error meanwhile."""
    sys.stdout.flush()
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(out), "w", encoding="utf-8") as report:
            yield report
    finally:
        sys.stdout.flush()
        os.dup2(out, 1)
        os.close(out)


class Connections:
    """All that is asked, and what the connections tell: each is looked up within the time of a check.

    :param asked: what was asked beside them
    :param hide: learns the secrets of the connections before anything is told
    :param spark: id of a Spark connection
    :param delta: id of a connection of type ``delta``
    """

    def __init__(
        self, asked: Questions, hide: Hider, *, spark: str | None = None, delta: str | None = None
    ) -> None:
        self._asked = asked
        self._hide = hide
        self._spark = spark
        self._delta = delta
        self._server: str | None = None
        self._hook: Any = None
        self._test_table: str | None = None
        self._is_known = False

    def checks(self) -> Iterator[Check]:
        """Yield the checks one after the other; some come only once an earlier one was made."""
        from delta_cdc.doctor import Check

        yield Check("airflow-config", self._configuration)
        if self._delta:
            yield Check("delta-connection", self._delta_connection)
            if not self._is_known:
                # What was to be reached with it would be asked in another name.
                self._asked = replace(self._asked, storage=None, tables=())
            elif self._test_table and not (self._asked.storage or self._asked.tables):
                self._asked = replace(self._asked, tables=(self._test_table,))
        yield from self._asked.checks()
        if self._spark:
            yield Check("spark-connection", self._spark_connection)
            yield from self._of_spark()

    # -- what Airflow keeps ---------------------------------------------------------------------
    def _configuration(self) -> Finding:
        from airflow_delta_cdc.applications.exchange import results_uri
        from airflow_delta_cdc.applications.submitted import hands_over_jars
        from delta_cdc.doctor.report import ok

        jars = "auto" if hands_over_jars() else "provided"
        return ok(f"[delta_cdc] delta_jars is {jars}, results_uri is {results_uri() or 'not set'}")

    def _delta_connection(self) -> Finding:
        from airflow_delta_cdc.hooks.table import DeltaTableHook, merged
        from delta_cdc.doctor.report import ok
        from delta_cdc.masking import secrets

        hook = DeltaTableHook(str(self._delta))
        options = hook.storage_options()
        self._hide.secrets.update(secrets(options or {}))
        told = merged(options, self._asked.storage_options)
        self._asked = replace(self._asked, storage_options=told or None)
        self._test_table = hook.get_connection(str(self._delta)).extra_dejson.get("test_table")
        self._is_known = True
        names = ", ".join(sorted(told)) or "nothing: the identity of the machine is used"
        return ok(f"{self._delta} tells {names}")

    def _spark_connection(self) -> Finding:
        from airflow_delta_cdc.hooks.connect import DeltaCdcConnectHook, is_connect
        from airflow_delta_cdc.hooks.submit import DeltaCdcSubmitHook
        from delta_cdc.doctor.report import ok

        conn_id = str(self._spark)
        if is_connect(conn_id):
            hook = DeltaCdcConnectHook(conn_id)
            found = hook.server
            password = hook.get_connection(conn_id).password
            if password:
                self._hide.secrets.add(password)
            self._server = hook.get_connection_url()
            return ok(f"{conn_id} is a Spark Connect server, {found}")
        self._hook = DeltaCdcSubmitHook(conn_id=conn_id)
        mode = "cluster" if self._hook.is_cluster else "client"
        return ok(f"{conn_id} is {self._hook.master}, deploy mode {mode}")

    def _of_spark(self) -> Iterator[Check]:
        """Yield what there is to ask of the Spark that the connection names."""
        from delta_cdc.doctor import Check
        from delta_cdc.doctor.report import skipped

        if self._server is not None:
            yield from self._asked.checks_of_spark(self._server)
        elif self._hook is not None:
            address, job = self._asked.checks_of_spark(self._hook.master)
            yield address
            if not self._hook.is_cluster:
                yield job
                return
            yield Check("results-folder", self._results_folder)
            yield Check(
                job.name, lambda: skipped("the driver runs on the cluster: run a task with the connection")
            )

    def _results_folder(self) -> Finding:
        """Go the way that specs and results go between this worker and a driver on the cluster."""
        from airflow_delta_cdc.applications.exchange import needed_results_uri, options_for
        from delta_cdc.doctor.report import ok
        from delta_cdc.doctor.store import RoundTrip

        uri = needed_results_uri(f"The connection {self._spark!r} runs applications in deploy mode cluster")
        # As a task reaches it: with its connection, if that is for the same kind of store.
        options = options_for(uri, self._asked.storage_options)
        # All of them: the last one deletes what the first one wrote.
        found = [check.look() for check in RoundTrip(uri, options, self._asked.timeout).checks()]
        right = ok(f"{uri} can be written, listed, read and emptied from here")
        return next((one for one in found if one.status == "failed"), right)


def main() -> None:
    """Run the command without Airflow's own command line: ``python -m airflow_delta_cdc.doctor``."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m airflow_delta_cdc.doctor", description=_HELP)
    for argument in _arguments():
        argument.add_to_parser(parser)
    doctor_command(parser.parse_args())


if __name__ == "__main__":
    main()
