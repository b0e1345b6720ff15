"""Pinned plans in Airflow's task state store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue


class TaskPins:
    """Keeps a plan across the tries of one task, so that a retry plans the same and knows its own commit.

    It is forgotten once the result is published (:func:`delta_cdc.run.watermarks.published`). A pin that is
    lost costs nothing but a longer range and an asset event: the target's log is what proves.

    :param context: the task's context; without a task state store nothing is kept
    """

    def __init__(self, context: Context) -> None:
        self._store = context.get("task_state_store")

    def get(self, key: str) -> dict[str, Any] | None:
        """Return what was pinned, or None."""
        value = self._store.get(key) if self._store is not None else None
        return value if isinstance(value, dict) else None

    def set(self, key: str, value: dict[str, Any]) -> None:
        """SavedPlan a value (JSON)."""
        if self._store is not None:
            self._store.set(key, cast("JsonValue", value))

    def delete(self, key: str) -> None:
        """Forget a pin; one that isn't there is no error."""
        if self.get(key) is not None and self._store is not None:
            self._store.delete(key)
