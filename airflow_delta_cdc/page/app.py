"""The routes of the page. Each asks Airflow who the user is, and what the user may read; none writes."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Annotated, Any

from airflow.api_fastapi.common.db.common import SessionDep  # noqa: TC002 - FastAPI reads the annotations
from airflow.api_fastapi.core_api.security import GetUserDep, get_user
from airflow.utils.session import create_session
from fastapi import Depends, FastAPI, HTTPException, Query, Response

from airflow_delta_cdc import form
from airflow_delta_cdc.page import queries, rights, state
from airflow_delta_cdc.page.memo import Memo
from airflow_delta_cdc.page.queries import Declarations

if TYPE_CHECKING:
    from airflow_delta_cdc.page.declared import Declared

_log = logging.getLogger(__name__)

#: The maximum number of pipelines in one request for trends: a screen lists as many.
_MOST_NAMES = 100

#: Runs and pipelines whose figures a process keeps: those of a list, for some users with other rights.
_MOST_KEPT = 10_000

_declarations = Declarations()
_memo = Memo(_MOST_KEPT)
#: Held once the preparation has begun, and set by the first request for a list.
_begun, _listing = Lock(), Event()
#: The names of the form's modes and fields.
_form = form.names()
_module = Path(__file__).with_name("page.js").read_text(encoding="utf-8")
_logo = Path(__file__).with_name("logo.svg").read_text(encoding="utf-8")

#: Without FastAPI's pages about its routes. Every route requires a user.
app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(get_user)])


def _prepare() -> None:
    """Read what the list shows, so that the first one of this process is as fast as later ones.

    A list then reads again what may have changed, and only what its user may see.
    """
    try:
        with create_session() as session:
            dags, pipelines, _ = _declarations.all(session)
            if not _listing.is_set():
                stored = queries.stored(session, dags, pipelines, state.EVERYTHING)
                state.listed(stored, datetime.now(UTC), _memo)
    except Exception as error:  # noqa: BLE001 - the request that needs the same answers with its error
        _log.debug("the page could not be prepared: %s", error)


def _begin() -> None:
    """Prepare the list beside the requests, once in a process."""
    if _begun.acquire(blocking=False):
        Thread(target=_prepare, name="delta-cdc-page", daemon=True).start()


def _visible(user: Any, session: Any) -> tuple[dict[str, state.Dag], list[Declared]]:
    """Return the DAGs that have pipelines, and the pipelines of those that the user may read."""
    dags, pipelines, _ = _declarations.all(session)
    readable = rights.readable(user, session)
    return dags, [one for one in pipelines if one.dag_id in readable]


def _explaining(user: Any, session: Any, wanted: list[Declared]) -> dict[str, Any] | None:
    """Return the DAG that explains the rows of a pipeline, for a user who may read it; None without one.

    If there are several, one whose runs the user may start comes first.
    """
    dags, _, tasks = _declarations.all(session)
    found = [one for one in tasks if any(one.explains(pipeline) for pipeline in wanted)]
    may_read = rights.readable(user, session) if found else ()
    found = [one for one in found if one.dag_id in may_read]
    startable = rights.may_run(user, [one.dag_id for one in found], session)
    found.sort(key=lambda one: (one.dag_id not in startable, one.target is None, one.dag_id))
    return next(
        (
            {
                "dag_id": one.dag_id,
                "task_id": one.task_id,
                "fields": one.fields,
                "is_paused": dags[one.dag_id].is_paused,
                "may_run": one.dag_id in startable,
            }
            for one in found
        ),
        None,
    )


def _rights(user: Any, session: Any, pipelines: list[Declared]) -> state.Rights:
    """Return what a user may see of pipelines of DAGs that it may read."""
    return rights.of(user, {one.dag_id for one in pipelines}, session)


def _json(value: Any) -> Response:
    # Not through FastAPI's encoder, which visits each value.
    return _answer(state.as_json(value))


def _answer(text: str) -> Response:
    return Response(
        text,
        media_type="application/json",
        headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
    )


@app.get("/page.js")
def module() -> Response:
    """Return the ES module of the page."""
    _begin()
    return Response(_module, media_type="text/javascript", headers={"Cache-Control": "no-cache"})


@app.get("/logo.svg")
def logo() -> Response:
    """Return the picture of the page's entries, which each of Airflow's pages shows."""
    _begin()
    headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    return Response(_logo, media_type="image/svg+xml", headers=headers)


@app.get("/api/pipelines")
def pipelines(user: GetUserDep, session: SessionDep, dag_id: str | None = None) -> Response:
    """Return all pipelines that the user may see, or those of one DAG, with their totals."""
    _listing.set()
    dags, visible = _visible(user, session)
    wanted = [one for one in visible if dag_id in (None, one.dag_id)]
    may_see = _rights(user, session, wanted)
    stored = queries.stored(session, dags, wanted, may_see)
    return _answer(state.listed(stored, datetime.now(UTC), _memo))


@app.get("/api/trends")
def trends(
    user: GetUserDep, session: SessionDep, name: Annotated[list[str], Query(max_length=_MOST_NAMES)]
) -> Response:
    """Return the rows that the last commits of some pipelines moved.

    :param name: their ids
    """
    _, visible = _visible(user, session)
    found = state.by_id(visible)
    wanted = [one for key in name for one in found.get(key, ())]
    if not rights.may_read_events(user):
        return _json({})
    names, dag_ids = {one.pipeline for one in wanted}, {one.dag_id for one in wanted}
    return _json(state.trends(queries.events_of(session, names, dag_ids), wanted))


@app.get("/api/pipeline")
def pipeline(user: GetUserDep, session: SessionDep, name: str) -> Response:
    """Return one pipeline: its state, commits and runs, what the user may start, and the names in the form.

    :param name: its id; or a name, and if several pipelines have it, the answer is the list of them. It is no
        part of the path, because it may have any character.
    """
    dags, visible = _visible(user, session)
    wanted = state.of(visible, name)
    if not wanted:
        # The same answer, whether the pipeline does not exist or the user may not see it.
        raise HTTPException(
            404, "This pipeline does not exist, or you do not have permission to read its DAG."
        )
    now, may_see = datetime.now(UTC), _rights(user, session, wanted)
    if len(state.by_id(wanted)) > 1:
        return _answer(state.listed(queries.stored(session, dags, wanted, may_see), now, _memo))
    known, events = queries.history(session, dags, wanted, may_see)
    (item,) = state.overview(known, now)["pipelines"]
    item["findings"] += state.earlier_quarantined(events, item)
    startable = rights.may_run(user, [dag["dag_id"] for dag in item["dags"]], session)
    for dag in item["dags"]:
        dag["may_run"] = dag["dag_id"] in startable
        # A run by hand, whose form has no choice of tables, is a run of them all.
        dag["pipelines"] = [one.pipeline for one in visible if one.dag_id == dag["dag_id"]]
    return _json(
        {
            **item,
            "form": _form,
            "why": _explaining(user, session, wanted),
            "commits": state.commits(events, may_see),
            "runs": state.runs(known),
        }
    )


@app.get("/api/task")
def task(
    user: GetUserDep, session: SessionDep, dag_id: str, run_id: str, task_id: str, map_index: int = -1
) -> Response:
    """Return what one task instance meant for its pipelines."""
    dags, visible = _visible(user, session)
    wanted = [one for one in visible if one.dag_id == dag_id]
    may_see = _rights(user, session, wanted)
    run = queries.one_run(session, dags, wanted, run_id, may_see) if wanted else None
    if run is None:
        raise HTTPException(404, "There is no such run, or you may not read it.")
    return _json(
        {"pipelines": state.describe_task(run, task_id, map_index), "hidden": may_see.hidden_of([dag_id])}
    )
