"""``airflow delta-cdc doctor``: the checks of ``delta-cdc doctor``, and checks of Airflow's connections."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine
from airflow_delta_cdc.hooks.connect import DeltaCdcConnectHook, is_connect
from airflow_delta_cdc.hooks.submit import DeltaCdcSubmitHook
from airflow_delta_cdc.hooks.table import DeltaTableHook, merged
from airflow_delta_cdc.runtime.exchange import needed_results_uri, options_for, results_uri
from airflow_delta_cdc.runtime.submit import hands_over_jars
from delta_cdc.core.secrets import secrets

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from delta_cdc.doctor import Check, Questions, Result


def add(parser: Any) -> None:
    """Add the arguments for connections to the parser of ``delta-cdc doctor``, and their checks."""
    parser.add_argument(
        "--spark-conn-id", metavar="ID", help="Spark connection: its master, or its Spark Connect server"
    )
    parser.add_argument(
        "--delta-conn-id", metavar="ID", help="connection of type delta: reads --storage and --table"
    )
    parser.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    questions = engine.doctor_questions(given)
    to_hide = questions.secrets
    checks = Connections(questions, to_hide, spark=given.spark_conn_id, delta=given.delta_conn_id).checks()
    entries = engine.examined_checks(checks, timeout=questions.timeout, secrets=to_hide)
    return engine.print_checks(entries, sys.stdout, as_json=given.json)


class Connections:
    """The checks with Airflow's connections; a check looks its connection up, within the check's time limit.

    :param questions: the checks that the command line requests, and their settings
    :param to_hide: receives the secrets of the connections before anything is printed
    :param spark: id of a Spark connection
    :param delta: id of a connection of type ``delta``
    """

    def __init__(
        self, questions: Questions, to_hide: set[str], *, spark: str | None = None, delta: str | None = None
    ) -> None:
        self._questions = questions
        self._secrets = to_hide
        self._spark = spark
        self._delta = delta
        self._server: str | None = None
        self._hook: Any = None
        self._test_table: str | None = None
        self._is_known = False

    def checks(self) -> Iterator[Check]:
        """Yield the checks in order; some depend on the result of an earlier check."""

        yield engine.Check("airflow-config", self._configuration)
        if self._delta:
            yield engine.Check("delta-connection", self._delta_connection)
            if not self._is_known:
                # Without the connection, these checks would use another identity.
                self._questions = replace(self._questions, storage=None, tables=())
            elif self._test_table and not (self._questions.storage or self._questions.tables):
                self._questions = replace(self._questions, tables=(self._test_table,))
        yield from self._questions.checks()
        if self._spark:
            yield engine.Check("spark-connection", self._spark_connection)
            yield from self._of_spark()

    # -- Airflow's settings and connections ----------------------------------------------------------
    def _configuration(self) -> Result:
        jars = "auto" if hands_over_jars() else "provided"
        return engine.check_ok(
            f"[delta_cdc] delta_jars is {jars}, results_uri is {results_uri() or 'not set'}"
        )

    def _delta_connection(self) -> Result:
        hook = DeltaTableHook(str(self._delta))
        options = hook.storage_options()
        self._secrets.update(secrets(options or {}))
        options = merged(options, self._questions.storage_options)
        self._questions = replace(self._questions, storage_options=options or None)
        self._test_table = hook.get_connection(str(self._delta)).extra_dejson.get("test_table")
        self._is_known = True
        names = ", ".join(sorted(options)) or "nothing: the identity of the machine is used"
        return engine.check_ok(f"{self._delta} gives {names}")

    def _spark_connection(self) -> Result:
        conn_id = str(self._spark)
        if is_connect(conn_id):
            hook = DeltaCdcConnectHook(conn_id)
            server = hook.server
            password = hook.get_connection(conn_id).password
            self._secrets.update(filter(None, (password, *hook.headers.values())))
            self._server = hook.url
            return engine.check_ok(f"{conn_id} is a Spark Connect server, {server}")
        self._hook = DeltaCdcSubmitHook(conn_id=conn_id)
        mode = "cluster" if self._hook.is_cluster else "client"
        return engine.check_ok(f"{conn_id} is {self._hook.master}, deploy mode {mode}")

    def _of_spark(self) -> Iterator[Check]:
        """Yield the checks of the Spark that the connection names."""

        if self._server is not None:
            yield from self._questions.checks_of_spark(self._server)
        elif self._hook is not None:
            address, job, *others = self._questions.checks_of_spark(self._hook.master)
            yield address
            if not self._hook.is_cluster:
                yield from (job, *others)
                return
            yield engine.Check("results-folder", self._results_folder)
            yield engine.Check(
                job.name,
                lambda: engine.check_skipped(
                    "the driver runs on the cluster: run a task with the connection"
                ),
            )

    def _results_folder(self) -> Result:
        """Write and read in the folder by which this worker and a driver on the cluster exchange files."""

        uri = needed_results_uri(f"The connection {self._spark!r} runs applications in deploy mode cluster")
        # A task uses its connection in the same way: only if the store is of the same kind.
        options = options_for(uri, self._questions.storage_options)
        # Make all checks even after a failure: the last one deletes the file of the first one.
        results = [check.look() for check in engine.RoundTrip(uri, options, self._questions.timeout).checks()]
        success = engine.check_ok(f"{uri} can be written, listed, read and emptied from here")
        return next((result for result in results if result.status == "failed"), success)
