"""Threads of one task ask Airflow one after the other."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from airflow_delta_cdc.assets import delta_asset
from airflow_delta_cdc.backup import stored_copy
from airflow_delta_cdc.operators.saved_plans import TaskSavedPlans


class Store:
    """A state store as ``dag.test()`` has it: a second question during an answer fails."""

    def __init__(self) -> None:
        self.is_busy = False

    def __getitem__(self, inlet: Any) -> Store:
        return self

    def get(self, key: str) -> dict[str, Any]:
        self._answered()
        return {"ending_version": 4, "backup": key}

    def set(self, key: str, value: Any) -> None:
        self._answered()

    def delete(self, key: str) -> None:
        self._answered()

    def _answered(self) -> None:
        if self.is_busy:
            raise ImportError("cannot import name 'SUPERVISOR_COMMS'")
        self.is_busy = True
        time.sleep(0.005)
        self.is_busy = False


def test_questions_of_threads_do_not_meet() -> None:
    context: Any = {"task_state_store": Store()}
    plans = TaskSavedPlans(context)
    inlets = [delta_asset("/lake/orders")]
    context["asset_state_store"] = context["task_state_store"]

    def asks(number: int) -> bool:
        key = str(number)
        plans.set(key, {})
        found = plans.get(key), stored_copy(context, inlets, "/lake/orders", key)
        plans.delete(key)
        return None not in found

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(asks, range(16)))
