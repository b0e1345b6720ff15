"""An Airflow worker to be killed: runs one task of a DAG file, for the first time or again.

The first try goes through ``dag.test()``. Another try is made as the scheduler makes it after a heartbeat
time-out or a click on *Clear*: same run, same rows in the state stores, a new try of the task instance.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import DAG


def run(dag: DAG, logical_date: datetime) -> None:
    """Run the DAG's one task for the first time."""
    dag.test(logical_date=logical_date)


def again(dag: DAG, logical_date: datetime) -> None:
    """Run the task once more, in the run that is there."""
    from airflow.models.dagrun import DagRun
    from airflow.sdk.definitions.dag import _run_task
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState

    task = dag.tasks[0]
    with create_session() as session:
        dag_run = session.query(DagRun).filter_by(dag_id=dag.dag_id, logical_date=logical_date).one()
        dag_run.state = DagRunState.RUNNING
        instance = dag_run.get_task_instance(task.task_id, session=session)
        assert instance is not None
        instance.prepare_db_for_next_try(session)
        instance.try_number += 1
        instance.state = None
        session.flush()
        session.expunge(instance)
    _run_task(ti=instance, task=task)


def found(dag: DAG, logical_date: datetime) -> dict[str, Any]:
    """Say what Airflow knows of the run afterwards."""
    from airflow.models.asset import AssetEvent
    from airflow.models.dagrun import DagRun
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        dag_run = session.query(DagRun).filter_by(dag_id=dag.dag_id, logical_date=logical_date).one()
        instance = dag_run.get_task_instance(dag.tasks[0].task_id, session=session)
        assert instance is not None
        mine = {"dag_id": dag.dag_id, "run_id": dag_run.run_id}
        xcoms = {
            row.key: XComModel.deserialize_value(row) for row in session.query(XComModel).filter_by(**mine)
        }
        events = session.query(AssetEvent).filter_by(source_dag_id=dag.dag_id, source_run_id=dag_run.run_id)
        return {
            "state": str(instance.state),
            "tries": instance.try_number,
            "xcoms": xcoms,
            "events": [event.extra for event in events],
        }


def main() -> None:
    """Do one thing and write what Airflow knows afterwards to standard output."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["run", "again"])
    parser.add_argument("file")
    parser.add_argument("logical_date", type=datetime.fromisoformat)
    arguments = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    # Whatever Airflow prints belongs to the log, not to the answer.
    os.dup2(2, 1)
    dag = runpy.run_path(arguments.file)["dag"]
    {"run": run, "again": again}[arguments.action](dag, arguments.logical_date)
    print(json.dumps(found(dag, arguments.logical_date), default=str), file=answers, flush=True)


if __name__ == "__main__":
    sys.exit(main())
