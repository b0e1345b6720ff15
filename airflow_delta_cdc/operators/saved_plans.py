"""Saved plans in Airflow's task state store."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

from airflow_delta_cdc.compat import one_question

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

#: The most characters of a key in Airflow's task state store.
_MOST_OF_A_KEY = 512


class TaskSavedPlans:
    """Save plans across the tries of one task, so that a retry plans the same and recognizes its own commit.

    A plan is deleted once the result is published (:func:`delta_cdc.run.saved_plans.forget_saved_plans`). A
    lost plan costs only a longer range: the target's log proves the commit, and each run announces what no
    event has announced.

    :param context: the task's context; without a task state store, no plan is saved
    """

    def __init__(self, context: Context) -> None:
        self._store = context.get("task_state_store")

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the saved plan, or None."""
        with one_question:
            value = self._store.get(_stored(key)) if self._store is not None else None
        return value if isinstance(value, dict) else None

    def set(self, key: str, value: dict[str, Any]) -> None:
        """Save a plan (JSON)."""
        if self._store is not None:
            with one_question:
                self._store.set(_stored(key), cast("JsonValue", value))

    def delete(self, key: str) -> None:
        """Delete a saved plan; a missing one is no error."""
        if self.get(key) is not None and self._store is not None:
            with one_question:
                self._store.delete(_stored(key))


def _stored(key: str) -> str:
    """Return the key in Airflow's store; a hash replaces the end of a key that is too long for Airflow."""
    if len(key) <= _MOST_OF_A_KEY:
        return key
    ending = f"…{sha256(key.encode()).hexdigest()}"
    return key[: _MOST_OF_A_KEY - len(ending)] + ending
