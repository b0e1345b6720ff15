"""Runs DAGs in a process of its own, so that Airflow's log goes to a file and the demo's lines stay readable.

The other side of this module is itself: ``python -m demo.runner <fd>`` reads one JSON request per line and
answers on the given file descriptor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from demo.places import PROJECT

if TYPE_CHECKING:
    from demo.places import Places


@dataclass(frozen=True)
class Run:
    """What came out of one DAG run.

    :param state: state of the run: ``success`` or ``failed``
    :param tasks: task id -> state
    :param results: task id -> XCom ``return_value``
    :param seconds: how long it took
    """

    state: str
    seconds: float
    tasks: dict[str, str] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)


class Runner:
    """A process that runs DAGs with ``dag.test()``: real tasks, XCom, state stores and assets, no scheduler.

    :param places: where the log is
    :param settings: the process's environment
    """

    def __init__(self, places: Places, settings: dict[str, str]) -> None:
        reading, writing = os.pipe()
        with places.log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "demo.runner", str(writing)],
                env=settings,
                cwd=PROJECT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(writing,),
                text=True,
            )
        os.close(writing)
        self._answers: IO[str] = os.fdopen(reading)
        self._log = places.log

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._answers.close()

    def run(self, dag_id: str, *, date: str, conf: dict[str, Any] | None = None) -> Run:
        """Run a DAG once.

        :param date: logical date (ISO-8601); each run of a DAG needs its own
        :param conf: values for the DAG's Params
        :raises RuntimeError: if the run fails
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"dag_id": dag_id, "date": date, "conf": conf}) + "\n")
        self._process.stdin.flush()
        line = self._answers.readline()
        if not line:
            raise RuntimeError(f"the process that runs the DAGs died; see {self._log}")
        run = Run(**json.loads(line))
        if run.state != "success":
            states = ", ".join(f"{task} {state}" for task, state in run.tasks.items())
            raise RuntimeError(f"the DAG {dag_id} ended as {run.state} ({states}); see {self._log}")
        return run


def _serve(answers: IO[str]) -> None:
    from airflow.dag_processing.dagbag import BundleDagBag

    folder = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    bag = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="dags-folder")
    if bag.import_errors:
        raise RuntimeError(f"DAG files that can't be imported: {bag.import_errors}")
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps(_run_once(bag, request)) + "\n")
        answers.flush()


def _run_once(bag: Any, request: dict[str, Any]) -> dict[str, Any]:
    import pendulum

    begin = time.monotonic()
    dag_run = bag.dags[request["dag_id"]].test(
        logical_date=pendulum.parse(request["date"]), run_conf=request["conf"]
    )
    seconds = time.monotonic() - begin
    tasks = {ti.task_id: str(ti.state) for ti in dag_run.get_task_instances()}
    results = {task: _result(dag_run, task) for task in tasks}
    return {"state": str(dag_run.state), "seconds": seconds, "tasks": tasks, "results": results}


def _result(dag_run: Any, task_id: str) -> Any:
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        value = session.scalar(
            select(XComModel.value).where(
                XComModel.dag_id == dag_run.dag_id,
                XComModel.run_id == dag_run.run_id,
                XComModel.task_id == task_id,
                XComModel.key == "return_value",
            )
        )
    return json.loads(value) if isinstance(value, str) else value


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[1]), "w") as channel:
        _serve(channel)
