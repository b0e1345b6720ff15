"""What a process keeps between two requests for the list never shows: each answer is that of the rows."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from airflow.models import import_all_models
from airflow.models.dag import DagModel
from airflow.models.dag_version import DagVersion
from airflow.models.serialized_dag import SerializedDagModel
from airflow.sdk import DAG
from sqlalchemy import create_engine, insert
from sqlalchemy.orm import Session

from airflow_delta_cdc.operators import DeltaApplyChangesOperator
from airflow_delta_cdc.page import queries, state
from airflow_delta_cdc.page.memo import Memo
from airflow_delta_cdc.page.state import ERROR_KEY, Dag, Rights, Stored
from tests.unit.airflow.test_page_state import (
    ALONE,
    ERROR,
    NOW,
    event,
    lag,
    published,
    run,
    serialized,
    task,
    value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# -- results that are kept --------------------------------------------------------------------------
def test_a_result_counts_while_its_arguments_are_equal() -> None:
    memo = Memo(10)
    first = memo.of("one", lambda *given: [*given], 1, {"a": 2})
    assert memo.of("one", lambda *given: [*given], 1, {"a": 2}) is first
    assert memo.of("one", lambda *given: [*given], 1, {"a": 3}) == [1, {"a": 3}]
    assert memo.of("other", lambda *given: [*given, "other"], 1, {"a": 3}) == [1, {"a": 3}, "other"]


def test_the_result_that_was_needed_last_is_kept() -> None:
    memo, made = Memo(2), list[str]()

    def of(name: str) -> None:
        memo.of(name, made.append, name)

    for name in ("one", "two", "one", "three", "one", "two"):
        of(name)
    assert made == ["one", "two", "three", "two"]


# -- the list ---------------------------------------------------------------------------------------
CALM = replace(ALONE, pipeline="calm", dag_id="other", target="/lake/calm")
BASE = Stored(
    dags={name: Dag(name, False, True) for name in ("one", "other")},
    pipelines=[ALONE, CALM],
    runs=[run(2, "failed"), run(3, dag_id="other")],
    tasks=[task("failed", number=2)],
    values=[
        value(ERROR_KEY, ERROR, number=2),
        value(
            "return_value",
            published(lag=lag(readable_until=(NOW + timedelta(days=25)).isoformat()), pipeline="calm"),
            number=3,
        ),
    ],
    events=[event(7)],
)


def _later(stored: Stored) -> tuple[Stored, datetime]:
    return stored, NOW + timedelta(days=24)


CHANGES: dict[str, Callable[[Stored], tuple[Stored, datetime]]] = {
    "run": lambda old: (replace(old, runs=[run(2, "running"), old.runs[1]], tasks=[]), NOW),
    "newer run": lambda old: (replace(old, runs=[*old.runs, run(4, "running")]), NOW),
    "task": lambda old: (replace(old, tasks=[task("up_for_retry", number=2)]), NOW),
    "error": lambda old: (
        replace(old, values=[value(ERROR_KEY, {**ERROR, "message": "n"}, number=2), old.values[1]]),
        NOW,
    ),
    "figures": lambda old: (
        replace(
            old,
            values=[old.values[0], value("return_value", published(8, pipeline="calm"), number=3)],
        ),
        NOW,
    ),
    "event": lambda old: (replace(old, events=[event(8)]), NOW),
    "paused": lambda old: (replace(old, dags={**old.dags, "other": Dag("other", True, True)}), NOW),
    "DAG": lambda old: (replace(old, pipelines=[replace(ALONE, group="g"), CALM]), NOW),
    "right": lambda old: (replace(old, rights=Rights({"XComs": {"one"}})), NOW),
    "right to logs": lambda old: (replace(old, rights=Rights({"task logs": {"one"}})), NOW),
    "time": _later,
}


def _pipelines(stored: Stored, now: datetime, memo: Memo) -> Any:
    return json.loads(state.listed(stored, now, memo))["pipelines"]


@pytest.mark.parametrize("name", CHANGES)
def test_the_list_has_each_change(name: str) -> None:
    memo = Memo(100)
    before = _pipelines(BASE, NOW, memo)
    changed, now = CHANGES[name](BASE)
    after = _pipelines(changed, now, memo)
    assert after != before
    assert after == _pipelines(changed, now, Memo())
    assert _pipelines(BASE, NOW, memo) == before


@pytest.mark.parametrize("name", CHANGES)
def test_the_list_is_a_part_of_the_overview(name: str) -> None:
    changed, now = CHANGES[name](BASE)
    whole, shown = state.overview(changed, now), json.loads(state.listed(changed, now, Memo()))
    assert {**whole, "pipelines": None} == {**shown, "pipelines": None}
    for one, of_list in zip(whole["pipelines"], shown["pipelines"], strict=True):
        assert of_list.items() <= {**one, "findings": one["findings"][:1]}.items()
        assert ("findings" in of_list) is (one["state"] in ("failed", "retrying"))
        assert set(one) - set(of_list) <= {"findings", *state._OF_ONE}
        assert set(of_list) & set(state._OF_ONE) <= {"findings"}


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The pipelines and the runs that something was computed for."""
    names: list[Any] = []
    outcome, facts_of = state._outcome, state._facts_of

    def of_pipeline(pipeline: Any, facts: Any) -> Any:
        names.append(pipeline.pipeline)
        return outcome(pipeline, facts)

    def of_run(one: Any, *given: Any) -> Any:
        names.append(one.run_id)
        return facts_of(one, *given)

    monkeypatch.setattr(state, "_outcome", of_pipeline)
    monkeypatch.setattr(state, "_facts_of", of_run)
    return names


def test_only_what_has_changed_is_computed_again(worked: list[Any]) -> None:
    memo = Memo(100)
    _pipelines(BASE, NOW, memo)
    assert sorted(worked) == ["calm", "p", "run_2", "run_3"]
    worked.clear()
    # Rows that a query returns again are equal, and not the same objects.
    again = replace(BASE, runs=[one._replace() for one in BASE.runs], values=[*BASE.values])
    _pipelines(again, NOW, memo)
    assert worked == []
    _pipelines(CHANGES["figures"](BASE)[0], NOW, memo)
    assert sorted(worked) == ["calm", "run_3"]


def test_users_with_other_rights_do_not_replace_what_is_kept(worked: list[Any]) -> None:
    memo = Memo(100)
    for stored in (BASE, *(CHANGES[name](BASE)[0] for name in ("right", "right to logs"))) * 2:
        _pipelines(stored, NOW, memo)
    # Of the other DAG, all may read the same.
    assert sorted(worked) == ["calm", "p", "p", "p", "run_2", "run_2", "run_2", "run_3"]


# -- rows that are kept -----------------------------------------------------------------------------
def test_a_long_xcom_is_not_kept() -> None:
    short, long = (json.dumps(json.dumps({"a": "x" * size})) for size in (10, queries._LONGEST_KEPT))
    assert queries._value(short) is queries._value(short)
    assert queries._value(long) == queries._value(long)
    assert queries._value(long) is not queries._value(long)
    assert queries._value(json.dumps(json.dumps({"a": 1}))) == {"a": 1}


@pytest.fixture
def session() -> Iterator[Session]:
    import_all_models()
    engine = create_engine("sqlite://")
    metadata = DagModel.metadata
    names = ("dag", "dag_version", "serialized_dag")
    metadata.create_all(engine, tables=[metadata.tables[name] for name in names])
    with Session(engine) as made:
        yield made


def _add(session: Session, dag_id: str, content: dict[str, Any], *, is_compressed: bool = False) -> None:
    with DAG(dag_id) as dag:
        DeltaApplyChangesOperator(task_id="apply", pipeline=dag_id, source="/a", target="/b", keys=["id"])
    of_dag = {"dag_id": dag_id, "bundle_name": "b", "is_stale": False, "max_active_tasks": 1}
    session.add(DagModel(**of_dag))
    session.flush()
    version = DagVersion(dag_id=dag_id, version_number=1)
    session.add(version)
    session.flush()
    data = {**serialized(dag), **content}
    stored = (
        {"data": None, "data_compressed": zlib.compress(json.dumps(data).encode())}
        if is_compressed
        else {"data": data, "data_compressed": None}
    )
    table = SerializedDagModel.metadata.tables["serialized_dag"]
    row = {"dag_id": dag_id, "dag_hash": f"{dag_id} 1", "dag_version_id": version.id, **stored}
    session.execute(insert(table), [{"id": version.id, "created_at": NOW, "last_updated": NOW, **row}])


def test_serialized_dags_of_each_form_are_read(session: Session) -> None:
    _add(session, "plain", {})
    _add(session, "compressed", {}, is_compressed=True)
    _add(session, "empty", {"dag": None})
    _, pipelines, _ = queries.Declarations().all(session)
    assert [one.pipeline for one in pipelines] == ["compressed", "plain"]
