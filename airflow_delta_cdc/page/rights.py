"""What a user may read: Airflow has rights of their own for runs, task instances, XComs, logs and assets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.configuration import conf
from airflow.models.dag import DagModel

from airflow_delta_cdc.page.state import LOGS, RUNS, TASKS, XCOMS, Rights

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_ENTITIES = {
    RUNS: DagAccessEntity.RUN,
    TASKS: DagAccessEntity.TASK_INSTANCE,
    XCOMS: DagAccessEntity.XCOM,
    LOGS: DagAccessEntity.TASK_LOGS,
}


def readable(user: Any, session: Any) -> set[str]:
    """Return the DAGs that a user may read."""
    return get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session)


def of(user: Any, dag_ids: Collection[str], session: Any) -> Rights:
    """Return what a user may read of some DAGs that it may read, and of assets."""
    details = _details(dag_ids, session)
    hidden = {
        name: frozenset(dag_ids) - _allowed(user, "GET", entity, details)
        for name, entity in _ENTITIES.items()
    }
    return Rights(hidden, events=may_read_events(user))


def may_read_events(user: Any) -> bool:
    """Return whether a user may read the events of assets, as Airflow's own route for them asks."""
    return get_auth_manager().is_authorized_asset(method="GET", user=user)


def may_run(user: Any, dag_ids: Collection[str], session: Any) -> set[str]:
    """Return the DAGs among some whose runs a user may start."""
    return _allowed(user, "POST", DagAccessEntity.RUN, _details(dag_ids, session))


def _allowed(user: Any, method: Any, entity: DagAccessEntity, details: Mapping[str, Any]) -> set[str]:
    """Return the DAGs of which a user may read or write one kind of things.

    It takes one call if that is all of them; otherwise, one for each DAG: auth managers have no call that
    tells them apart.
    """
    manager = get_auth_manager()
    requests: dict[str, Any] = {
        dag_id: {"method": method, "access_entity": entity, "details": one} for dag_id, one in details.items()
    }
    if not requests or manager.batch_is_authorized_dag(list(requests.values()), user=user):
        return set(requests)
    return {dag_id for dag_id, one in requests.items() if manager.is_authorized_dag(**one, user=user)}


def _details(dag_ids: Collection[str], session: Any) -> dict[str, DagDetails]:
    if not conf.getboolean("core", "multi_team", fallback=False):
        return {dag_id: DagDetails(id=dag_id) for dag_id in dag_ids}
    teams = DagModel.get_dag_id_to_team_name_mapping(list(dag_ids), session=session)
    return {dag_id: DagDetails(id=dag_id, team_name=teams.get(dag_id)) for dag_id in dag_ids}
