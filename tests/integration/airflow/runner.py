"""Runs DAG files with ``dag.test()`` in a process of its own: one JSON line in, one JSON line out.

Airflow reads its configuration when it is imported, so tests that need an ``AIRFLOW_HOME`` of their own need
a process of their own; one for all of them, because importing and migrating takes seconds.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def _processes_counted(started: list[list[str]], *, allowed: bool) -> Iterator[None]:
    real = subprocess.Popen.__init__

    def count(self: Any, args: Any, *rest: Any, **how: Any) -> None:
        started.append([str(args)] if isinstance(args, str) else [str(arg) for arg in args])
        if not allowed:
            raise AssertionError(f"a process was started: {args}")
        real(self, args, *rest, **how)

    subprocess.Popen.__init__ = count  # type: ignore[method-assign]
    try:
        yield
    finally:
        subprocess.Popen.__init__ = real  # type: ignore[method-assign]


def _run(command: dict[str, Any]) -> dict[str, Any]:
    from airflow.models.asset import AssetEvent
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    dag = runpy.run_path(command["file"])["dag"]
    started: list[list[str]] = []
    with _processes_counted(started, allowed=not command.get("forbid_processes", False)):
        run = dag.test(
            logical_date=datetime.fromisoformat(command["logical_date"]), run_conf=command.get("conf")
        )
    with create_session() as session:
        tasks = {
            instance.task_id: {"state": str(instance.state), "tries": instance.try_number, "xcoms": {}}
            for instance in run.get_task_instances(session=session)
        }
        for row in session.query(XComModel).filter_by(dag_id=run.dag_id, run_id=run.run_id):
            tasks[row.task_id]["xcoms"][row.key] = XComModel.deserialize_value(row)
        events = [
            {"uri": event.asset.uri, "extra": event.extra, "task": event.source_task_id}
            for event in session.query(AssetEvent).filter_by(
                source_dag_id=run.dag_id, source_run_id=run.run_id
            )
        ]
    return {"state": str(run.state), "tasks": tasks, "events": events, "processes": started}


def main() -> None:
    """Answer commands until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    # Whatever Airflow prints belongs to the log, not among the answers.
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            answer = _run(json.loads(line))
        except Exception as error:  # noqa: BLE001 - the answer carries it to the test
            answer = {"broken": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer, default=str), file=answers, flush=True)


if __name__ == "__main__":
    main()
