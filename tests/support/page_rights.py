"""An auth manager that tells apart what Airflow has rights of their own for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A user who may read DAGs, and nothing of them that has a right of its own.
READER = "reader"
_OF_READER = frozenset({"RUN", "TASK_INSTANCE", "XCOM", "TASK_LOGS", "ASSET"})


class RightsAuthManager(SimpleAuthManager):
    """Airflow's simple auth manager; it refuses some kinds of things to everybody, or to :data:`READER`."""

    #: Names of kinds that are refused (``DagAccessEntity``, or ``ASSET``), each with a DAG, or None for all.
    refused: ClassVar[set[tuple[str, str | None]]] = set()
    #: The number of questions about one DAG, and about a batch of them.
    calls: ClassVar[dict[str, int]] = {}

    def is_authorized_dag(self, *, access_entity: Any = None, details: Any = None, **given: Any) -> bool:
        self.calls["one"] = self.calls.get("one", 0) + 1
        return self._may(access_entity, details, given["user"]) and super().is_authorized_dag(
            access_entity=access_entity, details=details, **given
        )

    def batch_is_authorized_dag(self, requests: Sequence[Any], *, user: Any) -> bool:
        """Answer in one call, as auth managers do that ask another server."""
        self.calls["batch"] = self.calls.get("batch", 0) + 1
        return all(
            self._may(one.get("access_entity"), one.get("details"), user)
            and super(RightsAuthManager, self).is_authorized_dag(user=user, **one)
            for one in requests
        )

    def is_authorized_asset(self, *, user: Any, **given: Any) -> bool:
        allowed = ("ASSET", None) not in self.refused and user.username != READER
        return allowed and super().is_authorized_asset(user=user, **given)

    def _may(self, entity: Any, details: Any, user: Any) -> bool:
        if entity is None:
            return True
        if user.username == READER and entity.name in _OF_READER:
            return False
        dag_id = details.id if details is not None else None
        return not {(entity.name, None), (entity.name, dag_id)} & self.refused
