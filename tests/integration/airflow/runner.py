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
import traceback
from contextlib import contextmanager
from datetime import datetime
from threading import Event, Thread
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


def _dag(command: dict[str, Any]) -> Any:
    found = runpy.run_path(command["file"])
    return found["dags"][command["dag"]] if command.get("dag") else found["dag"]


def _run(command: dict[str, Any]) -> dict[str, Any]:
    started: list[list[str]] = []
    with _processes_counted(started, allowed=not command.get("forbid_processes", False)):
        if command.get("clear"):
            run = _run_again(_dag(command), command["run"], command["clear"])
        else:
            with _answering(command.get("answers") or {}):
                run = _dag(command).test(
                    logical_date=datetime.fromisoformat(command["logical_date"]), run_conf=command.get("conf")
                )
    return {**_left(run), "processes": started}


def _run_again(dag: Any, run_id: str, tasks: list[list[Any]]) -> Any:
    """Clear some tasks of a run, and let it come to its end again.

    :param dag: as its file is now
    :param tasks: ids, each with its map index, or None for all
    """
    from airflow.models.dagrun import DagRun
    from airflow.serialization.serialized_objects import DagSerialization
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState

    scheduled = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    wanted = [task if at is None else (task, at) for task, at in tasks]
    with create_session() as session:
        scheduled.clear(task_ids=wanted, run_id=run_id, dag_run_state=DagRunState.RUNNING, session=session)
        session.commit()
        run = session.query(DagRun).filter_by(dag_id=dag.dag_id, run_id=run_id).one()
        _run_on(dag, run, scheduled, session)
        return run


def _run_on(dag: Any, run: Any, scheduled: Any, session: Any) -> None:
    """Let a run come to its end."""
    from airflow.sdk.definitions.dag import _run_task
    from airflow.utils.state import DagRunState, TaskInstanceState

    run.dag = scheduled
    while run.state == DagRunState.RUNNING:
        session.expire_all()
        ready, _ = run.update_state(session=session)
        for one in ready:
            one.try_number += 1
            one.state = TaskInstanceState.SCHEDULED
        session.commit()
        for one in run.get_task_instances(session=session):
            if one.state == TaskInstanceState.SCHEDULED:
                _run_task(ti=one, task=dag.task_dict[one.task_id])


@contextmanager
def _answering(answers: dict[str, str]) -> Iterator[None]:
    """Answer required actions as Airflow's API does, while ``dag.test()`` waits for them.

    :param answers: option by the task's id
    """
    ended = Event()

    def answer() -> None:
        from airflow.models.hitl import HITLDetail
        from airflow.models.taskinstance import TaskInstance
        from airflow.models.trigger import handle_event_submit
        from airflow.triggers.base import TriggerEvent
        from airflow.utils import timezone
        from airflow.utils.session import create_session

        while not ended.wait(0.5):
            with create_session() as session:
                for detail in session.query(HITLDetail):
                    instance = session.get(TaskInstance, detail.ti_id)
                    # Also if it was answered: dag.test() may write the state that it read before the answer.
                    if instance is None or str(instance.state) != "awaiting_input":
                        continue
                    option = answers[instance.task_id]
                    assert option in detail.options, detail.options
                    detail.responded_by, detail.responded_at = {"id": "1", "name": "Ann"}, timezone.utcnow()
                    detail.chosen_options, detail.params_input = [option], {}
                    event = TriggerEvent(detail.as_resume_event_payload())
                    handle_event_submit(event, task_instance=instance, session=session)

    thread = Thread(target=answer, daemon=True)
    if answers:
        thread.start()
    try:
        yield
    finally:
        ended.set()


def _question(instance: Any, session: Any) -> Any:
    """Return the required action of a task; None without one."""
    from airflow.models.hitl import HITLDetail

    return session.query(HITLDetail).filter_by(ti_id=instance.id).one_or_none()


def _lasted(instance: Any) -> float | None:
    if instance.start_date is None or instance.end_date is None:
        return None
    return float((instance.end_date - instance.start_date).total_seconds())


def _left(run: Any) -> dict[str, Any]:
    """Return what a run left behind. One of a mapped task is named after what it shows: ``apply[orders]``."""
    from airflow.models.asset import AssetEvent
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    def name(instance: Any) -> str:
        mapped = instance.map_index >= 0
        return f"{instance.task_id}[{instance.rendered_map_index}]" if mapped else instance.task_id

    with create_session() as session:
        instances = run.get_task_instances(session=session)
        names = {(one.task_id, one.map_index): name(one) for one in instances}
        tasks: dict[str, Any] = {
            name(one): {
                "state": str(one.state),
                "tries": one.try_number,
                "xcoms": {},
                "index": one.map_index,
                "asked": None if (detail := _question(one, session)) is None else detail.body,
                "seconds": (one.end_date - one.start_date).total_seconds()
                if one.start_date and one.end_date
                else None,
            }
            for one in instances
        }
        for row in session.query(XComModel).filter_by(dag_id=run.dag_id, run_id=run.run_id):
            task = tasks[names[row.task_id, row.map_index]]
            task["xcoms"][row.key] = XComModel.deserialize_value(row)
        events = [
            {"uri": event.asset.uri, "extra": event.extra, "task": event.source_task_id}
            for event in session.query(AssetEvent).filter_by(
                source_dag_id=run.dag_id, source_run_id=run.run_id
            )
        ]
    return {"state": str(run.state), "run": run.run_id, "tasks": tasks, "events": events}


def main() -> None:
    """Answer commands until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    # Whatever Airflow prints belongs to the log, not among the answers.
    os.dup2(2, 1)
    # Airflow's own imports ask the machine for this and that, by processes that are not to be counted: the
    # first DAG of this process, whichever test's it is, would fail where none may be started.
    from airflow.sdk import DAG

    DAG("first", schedule=None)
    for line in sys.stdin:
        try:
            answer = _run(json.loads(line))
        except Exception as error:  # noqa: BLE001 - the answer carries it to the test
            traceback.print_exc()
            answer = {"broken": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer, default=str), file=answers, flush=True)


if __name__ == "__main__":
    main()
