"""Deadlines of DAGs whose pipelines have a freshness, as Airflow stores and calls them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG, AsyncCallback, DeadlineReference
from airflow.serialization.serialized_objects import DagSerialization
from airflow.triggers.callback import CallbackTrigger

from airflow_delta_cdc.dags import build_dags
from airflow_delta_cdc.deadline import freshness_deadline, log_missed
from delta_cdc.core.errors import InvalidConfiguration


async def notified() -> None:
    """Do nothing; a callback of a user."""


def waits() -> None:
    """Do nothing; a function that is not async."""


def built(group: Any = None, own: Any = None, **freshness: str) -> dict[str, DAG]:
    tables = {
        name: {"group": "g", "source": f"/lake/{name}_in", "target": f"/lake/{name}", "keys": ["id"]}
        for name in ("a", "b", "c")
    }
    for name, span in freshness.items():
        tables[name]["freshness"] = span
    return build_dags({"groups": {"g": group or {}}, "pipelines": tables}, **(own or {}))


def test_a_run_of_a_group_has_the_shortest_freshness_as_deadline() -> None:
    dags = built({"on_late_callback": "airflow_delta_cdc.deadline.log_missed"}, a="2 hours", c="30 minutes")
    (deadline,) = dags["g"].deadline or ()
    assert deadline.interval == timedelta(minutes=30)
    assert deadline.reference == DeadlineReference.DAGRUN_QUEUED_AT
    assert not dags["g__backfill"].deadline
    assert not built()["g"].deadline
    assert not built(a="2 hours")["g"].deadline, "dag.test() fails for a DAG with a deadline"
    stored = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dags["g"]))
    assert len(stored.deadline or ()) == 1


def test_callbacks_of_the_configuration() -> None:
    names = [f"{__name__}.notified", "somewhere.else_"]
    deadlines = built({"on_late_callback": names}, a="1 minute")["g"].deadline or ()
    assert [one.callback.path for one in deadlines] == names
    with pytest.raises(InvalidConfiguration, match=r"waits.*is not awaitable.*name an async function"):
        freshness_deadline("1 minute", waits)
    with pytest.raises(InvalidConfiguration, match="give a duration like '30 minutes'"):
        freshness_deadline("")
    own = freshness_deadline(60)
    assert built(own={"deadline": own}, a="1 day")["g"].deadline == [own], "arguments of the DAG win"


def test_airflow_calls_the_callback(caplog: Any) -> None:
    deadline = freshness_deadline("30 minutes")
    assert isinstance(deadline.callback, AsyncCallback)
    assert deadline.callback == AsyncCallback(log_missed)
    context = {"dag_run": {"dag_id": "sales", "dag_run_id": "scheduled__1"}}
    trigger = CallbackTrigger(deadline.callback.path, {**deadline.callback.kwargs, "context": context})

    async def events() -> list[Any]:
        return [event.payload async for event in trigger.run()]

    assert [one["state"] for one in asyncio.run(events())] == ["running", "success"]
    assert "Late: the run scheduled__1 of sales has not ended within the freshness" in caplog.text
