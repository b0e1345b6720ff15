"""Airflow's own API application, with the page mounted, over a database that a test fills.

Airflow reads its configuration when it is imported, so it has a process of its own: one JSON line in, one
JSON line out. Requests go through the whole application, with Airflow's middleware and authentication.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from datetime import UTC, datetime, timedelta
from pkgutil import resolve_name
from threading import Thread, current_thread
from threading import enumerate as threads
from typing import Any

_QUERIES: list[str] = []
#: The thread of the page that reads ahead.
_PREPARING = "delta-cdc-page"
#: The operators of tasks, by DAG and task.
_OPERATORS: dict[tuple[str, str], str] = {}


def fill(dags: list[dict[str, Any]], runs: list[dict[str, Any]]) -> None:
    """Write DAGs, and runs with their tasks, XComs and events.

    :param dags: each with ``pipelines`` (arguments by name), and ``group`` (one DAG of :func:`build_dags`) or
        ``dag_id`` (one operator per pipeline)
    :param runs: each with ``dag_id``, ``run_id``, ``state``, and lists of ``tasks``, ``xcoms``, ``events``
    """
    from airflow.models.dag import DagModel
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.serialization.definitions.dag import SerializedDAG
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from airflow.utils.session import create_session

    folder = resolve_name("airflow.models.dagbundle:DagBundleModel")
    with create_session() as session:
        if session.get(folder, "tests") is None:
            session.add(folder(name="tests"))
            session.flush()
        made = [dag for one in dags for dag in _made(one)]
        SerializedDAG.bulk_write_to_db("tests", None, made, session=session)
        for dag in made:
            _OPERATORS.update({(dag.dag_id, task.task_id): task.task_type for task in dag.tasks})
            SerializedDagModel.write_dag(LazyDeserializedDAG.from_dag(dag), "tests", session=session)
        session.flush()
        for one in dags:
            if "paused" in one:
                model = session.get(DagModel, one.get("dag_id") or one["group"])
                assert model is not None
                model.is_paused = one["paused"]
        _write(session, runs)


def _made(one: dict[str, Any]) -> list[Any]:
    from airflow.sdk import DAG

    from airflow_delta_cdc.dags import build_dags
    from airflow_delta_cdc.form import run_arguments, run_params
    from airflow_delta_cdc.operators import DeltaApplyChangesOperator

    if "group" in one:
        tables = {
            name: {"group": one["group"], "keys": ["id"], **table} for name, table in one["pipelines"].items()
        }
        groups = {
            one["group"]: {
                "schedule": "@hourly",
                "backfill": one.get("backfill", False),
                "why": one.get("why", False),
            }
        }
        return list(build_dags({"groups": groups, "pipelines": tables}).values())
    with DAG(
        one["dag_id"], schedule="@hourly", start_date=datetime(2026, 1, 1, tzinfo=UTC), params=run_params()
    ) as dag:
        for number, (name, table) in enumerate(one["pipelines"].items()):
            DeltaApplyChangesOperator(
                task_id="apply" if number == 0 else f"apply_{number}",
                pipeline=name,
                keys=["id"],
                **table,
                **run_arguments(),
            )
    return [dag]


def _write(session: Any, runs: list[dict[str, Any]]) -> None:
    """Write runs with what they left behind, each table in one statement."""
    from airflow.models.asset import (
        AssetAliasModel,
        AssetEvent,
        AssetModel,
        asset_alias_asset_event_association_table,
    )
    from airflow.models.dag_version import DagVersion
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from sqlalchemy import insert, select

    described = [_described(**run) for run in runs]
    made = [DagRun(**one["run"]) for one in described]
    for run, one in zip(made, described, strict=True):
        run.end_date = one["end"]
    session.add_all(made)
    session.flush()
    newest = select(DagVersion.dag_id, DagVersion.id).order_by(DagVersion.version_number)
    versions = dict(session.execute(newest).all())
    tasks = [
        {**task, "dag_version_id": versions.get(task["dag_id"])} for one in described for task in one["tasks"]
    ]
    if tasks:
        session.execute(insert(TaskInstance), tasks)
    values = [
        {"dag_run_id": run.id, **value}
        for run, one in zip(made, described, strict=True)
        for value in one["xcoms"]
    ]
    if values:
        session.execute(insert(XComModel), values)
    events = [event for one in described for event in one["events"]]
    if not events:
        return
    names = {f"delta_cdc:{name}": {"group": "asset"} for name, _ in events}
    aliases = _ids(session, AssetAliasModel, AssetAliasModel.name, names)
    uris = {name: f"file:///lake/{name.encode().hex()}" for name, _ in events}
    assets = _ids(
        session,
        AssetModel,
        AssetModel.uri,
        {uri: {"name": uri, "group": "asset", "extra": {}} for uri in uris.values()},
    )
    statement = insert(AssetEvent).returning(AssetEvent.id, sort_by_parameter_order=True)
    numbers = session.scalars(
        statement, [{"asset_id": assets[uris[name]], **event} for name, event in events]
    ).all()
    session.execute(
        insert(asset_alias_asset_event_association_table),
        [
            {"alias_id": aliases[f"delta_cdc:{name}"], "event_id": number}
            for (name, _), number in zip(events, numbers, strict=True)
        ],
    )


def _described(
    dag_id: str,
    run_id: str,
    state: str = "success",
    ago: float = 600,
    seconds: float = 42,
    tasks: Any = (),
    xcoms: Any = (),
    events: Any = (),
    conf: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the rows of one run; of each event, the name of its pipeline and the row."""
    start = datetime.now(UTC) - timedelta(seconds=ago)
    end = start + timedelta(seconds=seconds) if state in ("success", "failed") else None
    there = {(task["task_id"], task.get("map_index", -1)): task for task in tasks}
    for one in (*xcoms, *events):
        there.setdefault((one["task_id"], one.get("map_index", -1)), {"state": "success"})
    of_run = {"dag_id": dag_id, "run_id": run_id}
    return {
        "run": {
            **of_run,
            "run_type": "scheduled",
            "state": state,
            "start_date": start,
            "run_after": start,
            "logical_date": start,
            "conf": conf,
        },
        "end": end,
        "tasks": [
            {
                **of_run,
                "task_id": task_id,
                "map_index": map_index,
                "state": task["state"],
                "start_date": start,
                "end_date": end,
                "try_number": task.get("try_number", 1),
                "pool": "default_pool",
                "operator": _OPERATORS.get((dag_id, task_id)),
                "_rendered_map_index": task.get("name"),
            }
            for (task_id, map_index), task in there.items()
        ],
        "xcoms": [
            {
                **of_run,
                "task_id": one["task_id"],
                "map_index": one.get("map_index", -1),
                "key": one["key"],
                "value": json.dumps(one["value"]),
            }
            for one in xcoms
        ],
        "events": [
            (
                one["pipeline"],
                {
                    "extra": one["extra"],
                    "source_dag_id": dag_id,
                    "source_run_id": run_id,
                    "source_task_id": one["task_id"],
                    "source_map_index": one.get("map_index", -1),
                    "timestamp": end or start,
                },
            )
            for one in events
        ],
    }


def _ids(session: Any, model: Any, column: Any, rows: dict[str, dict[str, Any]]) -> dict[str, int]:
    """Return the ids of rows by one column; insert those that are missing."""
    from sqlalchemy import insert, select

    def found() -> dict[str, int]:
        return dict(session.execute(select(column, model.id).where(column.in_(list(rows)))).all())

    known = found()
    missing = [{column.key: name, **row} for name, row in rows.items() if name not in known]
    if missing:
        session.execute(insert(model), missing)
    return found() if missing else known


def answer_run(dag_id: str, task_id: str, state: str, key: str, value: Any) -> None:
    """End the only run of a DAG: write an XCom of its task, and set the state."""
    from airflow.models.dagrun import DagRun
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import insert, select

    with create_session() as session:
        (run,) = session.scalars(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.state == "queued"))
        session.execute(
            insert(XComModel),
            [
                {
                    "dag_run_id": run.id,
                    "dag_id": dag_id,
                    "run_id": run.run_id,
                    "task_id": task_id,
                    "map_index": -1,
                    "key": key,
                    "value": json.dumps(value),
                }
            ],
        )
        run.state = state


def _noted(*given: Any) -> None:
    # The preparation belongs to no request.
    if current_thread().name != _PREPARING:
        _QUERIES.append(given[2])


class _Requests:
    """Requests to the application, as users of several roles."""

    def __init__(self) -> None:
        from airflow.api_fastapi.app import create_app
        from airflow.settings import engine
        from sqlalchemy import event
        from starlette.testclient import TestClient

        self.client = TestClient(create_app("core"), base_url="http://testserver")
        event.listen(engine, "before_cursor_execute", _noted)

    def get(
        self,
        path: str,
        role: str | None = None,
        dag_ids: list[str] | None = None,
        by: str = "cookie",
        refused: list[list[str | None]] | None = None,
    ) -> dict[str, Any]:
        """Return status, headers, body, number of SQL queries and seconds of one request.

        :param role: role of the user; None for an anonymous call
        :param dag_ids: the only DAGs that the user may read; None for what the role allows
        :param by: how the user proves who it is: ``cookie`` or ``token``, or ``garbage`` for a wrong token
        :param refused: kinds that the user may not read, see :class:`tests.support.page_rights`
        """
        from airflow.api_fastapi.app import get_auth_manager
        from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

        manager: Any = get_auth_manager()
        headers: dict[str, str] = {}
        if by == "garbage":
            headers = {"Authorization": "Bearer nonsense"}
        elif role is not None:
            token = manager.generate_jwt(
                SimpleAuthManagerUser(username=f"a-{role}", role=role), expiration_time_in_seconds=3600
            )
            headers = (
                {"Cookie": f"_token={token}"} if by == "cookie" else {"Authorization": f"Bearer {token}"}
            )
        original = type(manager).filter_authorized_dag_ids
        if dag_ids is not None:
            type(manager).filter_authorized_dag_ids = lambda _, **given: given["dag_ids"] & set(dag_ids)
        self.client.cookies.clear()
        manager.refused.update((name, dag_id) for name, dag_id in refused or ())
        manager.calls.clear()
        _QUERIES.clear()
        began, busy = time.perf_counter(), time.process_time()
        try:
            answer = self.client.get(path, headers=headers, follow_redirects=False)
            seconds, cpu = time.perf_counter() - began, time.process_time() - busy
        finally:
            type(manager).filter_authorized_dag_ids = original
            manager.refused.clear()
        return {
            "calls": dict(manager.calls),
            "status": answer.status_code,
            "body": answer.text,
            "headers": dict(answer.headers),
            "sql": list(_QUERIES),
            "seconds": seconds,
            "cpu": cpu,
        }

    def routes(self) -> list[list[str]]:
        """Return the path and the methods of each route of the page."""
        from airflow_delta_cdc.page.app import app

        return [[route.path, *sorted(route.methods)] for route in app.routes]  # type: ignore[attr-defined]

    def serve(self, port: int) -> None:
        """Serve the application, with Airflow's UI, from now on."""
        import uvicorn

        server = uvicorn.Server(uvicorn.Config(self.client.app, port=port, log_level="warning"))
        thread = Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            # uvicorn has no event for it; a server that cannot start ends its thread.
            thread.join(0.05)
            assert thread.is_alive(), f"the server on port {port} did not start"


def main() -> None:
    """Answer commands until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    # Whatever Airflow prints belongs to the log, not among the answers.
    os.dup2(2, 1)
    from airflow.utils.db import initdb

    initdb()
    requests = _Requests()
    for line in sys.stdin:
        try:
            command = json.loads(line)
            answer: dict[str, Any] = {}
            if "fill" in command:
                fill(**command["fill"])
            elif "answer_run" in command:
                answer_run(**command["answer_run"])
            elif "serve" in command:
                requests.serve(command["serve"])
            elif "prepared" in command:
                answer["threads"] = [one.join() for one in threads() if one.name == _PREPARING]
            elif "routes" in command:
                answer["routes"] = requests.routes()
            else:
                answer = requests.get(**command["get"])
        except Exception as error:  # noqa: BLE001 - the answer carries it to the test
            traceback.print_exc()
            answer = {"broken": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer, default=str), file=answers, flush=True)


if __name__ == "__main__":
    main()
