"""From rows of the database to the JSON of the page."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.models import import_all_models
from airflow.models.asset import AssetAliasModel, AssetEvent
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.sdk import DAG
from airflow.sdk.log import mask_secret
from airflow.serialization.serialized_objects import DagSerialization
from sqlalchemy import create_engine, insert, select
from sqlalchemy.event import listen
from sqlalchemy.orm import Session

from airflow_delta_cdc.assets import ALIAS_OF_PIPELINE
from airflow_delta_cdc.dags import build_dags
from airflow_delta_cdc.form import run_arguments, run_params, why_arguments, why_params
from airflow_delta_cdc.operators import (
    DeltaApplyChangesOperator,
    DeltaIngestChangesOperator,
    DeltaWhyOperator,
)
from airflow_delta_cdc.page import queries, state
from airflow_delta_cdc.page.declared import Declared, Explaining, declared, explaining
from airflow_delta_cdc.page.errors import ERROR_KEY, on_task_instance_failed
from airflow_delta_cdc.page.state import Dag, Event, Rights, Run, Stored, Task, Value
from delta_cdc.core import left_out
from delta_cdc.core.errors import NullKey

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
ERROR = {"class": "NullKey", "message": "m", "remedy": "r"}


# -- pipelines of DAGs ------------------------------------------------------------------------------
def serialized(dag: DAG) -> dict[str, Any]:
    """Return a DAG as the metadata database holds it."""
    text = json.dumps({"__version": 3, "dag": DagSerialization.serialize_dag(dag)}, default=str)
    found: dict[str, Any] = json.loads(text)
    return found


def of_group(*names: str, dag_id: str = "shop") -> tuple[Declared, ...]:
    tables = {
        name: {"group": "shop", "source": f"/lake/{name}", "target": f"/lake/{name}_now", "keys": ["id"]}
        for name in names
    }
    return declared(dag_id, serialized(build_dags({"groups": {"shop": {}}, "pipelines": tables})[dag_id]))


def test_a_group_has_its_tables() -> None:
    second, first = of_group("orders", "customers")
    assert (first.pipeline, first.group, first.task_ids) == ("orders", "shop", ("apply",))
    assert first.is_mapped
    assert (second.source, second.target) == ("/lake/customers", "/lake/customers_now")
    assert dict(first.form)["mode"] == "incremental"
    assert "tables" in dict(first.form)
    (backfill, _) = of_group("orders", "customers", dag_id="shop__backfill")
    assert dict(backfill.form)["mode"] == "backfill"


def test_a_group_with_long_arguments_still_has_its_tables() -> None:
    found = of_group(*(f"table_{number:04}" for number in range(200)))
    assert len(found) == 200
    # Airflow shortens the arguments; the tables are in what runs publish.
    assert found[7] == Declared("table_0007", "shop", ("apply",), True, "shop", None, None, found[0].form)


def test_operators_have_their_pipelines() -> None:
    with DAG("one", params=run_params()) as dag:
        DeltaApplyChangesOperator(
            task_id="bring", pipeline="p", source="/lake/a", target="/lake/b", keys=["id"], **run_arguments()
        )
        DeltaIngestChangesOperator(task_id="ingest", source="/landing", log="/lake/log", keys=["id"])
    bring, ingest = declared("one", serialized(dag))
    assert (bring.pipeline, bring.task_ids, bring.is_mapped, bring.group) == ("p", ("bring",), False, None)
    assert (bring.source, bring.target) == ("/lake/a", "/lake/b")
    assert ingest.target == "/lake/log"
    assert declared("other", serialized(DAG("other"))) == declared("broken", {}) == ()


# -- one pipeline -----------------------------------------------------------------------------------
ALONE = Declared("p", "one", ("apply",), False, None, "/lake/a", "/lake/b", (("mode", "incremental"),))
MAPPED = Declared("p", "shop", ("apply",), True, "shop", None, None, ())


def run(number: int = 1, run_state: str = "success", *, dag_id: str = "one", hours: float = 1) -> Run:
    start = NOW - timedelta(hours=hours)
    end = start + timedelta(seconds=42) if run_state in ("success", "failed") else None
    return Run(number, dag_id, f"run_{number}", run_state, "scheduled", start, end)


def task(
    task_state: str, *, task_id: str = "apply", number: int = 1, dag_id: str = "one", **more: Any
) -> Task:
    known = {"map_index": -1, "name": None, "start": None, "end": None, "try_number": 2, **more}
    return Task(dag_id=dag_id, run_id=f"run_{number}", task_id=task_id, state=task_state, **known)


def value(key: str, content: Any, *, number: int = 1, task_id: str = "apply", map_index: int = -1) -> Value:
    return Value(number, task_id, map_index, key, content)


def published(version: int = 7, **more: Any) -> dict[str, Any]:
    return {
        "pipeline": "p",
        "source_table": "/lake/a",
        "target_table": "/lake/b",
        "version": version,
        "counts": {"inserted": 3, "deleted": 1},
        "timestamp": NOW.isoformat(),
        **more,
    }


def lag(versions: int = 0, seconds: float = 0, **more: Any) -> dict[str, Any]:
    return {"source_version": 7 + versions, "versions": versions, "seconds": seconds, **more}


def item(
    *, of: Declared = ALONE, is_paused: bool = False, events: tuple[Event, ...] = (), **rows: Any
) -> dict[str, Any]:
    dags = {of.dag_id: Dag(of.dag_id, is_paused, True)}
    shown = state.overview(Stored(dags=dags, pipelines=[of], events=events, **rows), NOW)
    (found,) = shown["pipelines"]
    # What a route answers.
    decoded: dict[str, Any] = json.loads(json.dumps(found))
    return decoded


def done(**content: Any) -> dict[str, Any]:
    """Return a green run that published something, by default that nothing is left."""
    return {"runs": [run()], "values": [value("return_value", published(**{"lag": lag(), **content}))]}


def failed(*tasks: Task, error: str = "", number: int = 1, **more: Any) -> dict[str, Any]:
    """Return a failed run with some tasks, of which one has stored an error."""
    values = [value(ERROR_KEY, ERROR, task_id=error, number=number)] if error else []
    return {"runs": [run(number, "failed", **more)], "tasks": tasks, "values": values}


def ago(**span: float) -> str:
    return (NOW - timedelta(**span)).isoformat()


def event(version: int, run_id: str = "gone", **content: Any) -> Event:
    return Event("p", "one", run_id, "apply", -1, published(version, **content), NOW)


def test_a_pipeline_that_has_applied_everything() -> None:
    found = item(**done(seconds={"start": 5.5, "work": 9.3}))
    assert (found["state"], found["findings"]) == ("ok", [])
    assert (found["version"], found["source_version"], found["lag_versions"]) == (7, 7, 0)
    moved = {"inserted": 3, "updated": 0, "deleted": 1, "closed": 0}
    assert (found["rows"], found["quarantined"]) == (moved, 0)
    wanted = {"dag_id": "one", "run_id": "run_1", "run_type": "scheduled", "state": "success"}
    wanted |= {"is_dry_run": False, "started": "2026-03-01T02:00:00+00:00", "seconds": 14.8}
    assert found["run"] == wanted


@pytest.mark.parametrize(
    "content",
    [
        {"lag": {"seconds": 9e10}},
        {"lag": {"seconds": -9e12}},
        {"lag": {"seconds": 60, "freshness": 1e14}},
        {"lag": {"seconds": 60, "readable_until": "0001-01-01T00:00:00+14:00"}},
        {"lag": {"seconds": 60}, "timestamp": "0001-01-01T00:00:00+14:00"},
        {"lag": {"seconds": 60}, "timestamp": "9999-12-31T23:59:59-14:00"},
    ],
)
def test_times_that_cannot_be_do_not_hide_the_page(content: dict[str, Any]) -> None:
    """Who may write an XCom or an event would hide all pipelines."""
    assert item(**done(**content))["version"] == 7
    assert item(events=[event(7, **content)])["version"] == 7


_NO_ERROR = "read the log of Airflow's scheduler or executor"
#: What is stored, what the page shows, and parts of its first finding.
STATES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = {
    "left changes": (
        done(lag=lag(9, 3600)),
        {"state": "behind", "lag_versions": 9, "behind_since": "2026-03-01T02:00:00+00:00"},
        {"text": "9 versions are not applied"},
    ),
    "left older ones than its freshness": (done(lag=lag(9, 3600, freshness=3000)), {"state": "late"}, {}),
    "left ones within its freshness": (done(lag=lag(9, 3600, freshness=7200)), {"state": "ok"}, {}),
    "in time two hours ago": (
        done(timestamp=ago(hours=2), lag=lag(1, 600, freshness=3600, late=False)),
        {"state": "late"},
        {},
    ),
    "soon cannot go on": (
        done(lag=lag(readable_until=ago(days=-1))),
        {"state": "expiring"},
        {"level": "warning", "remedy": "mode reload"},
    ),
    "cannot go on": (done(lag=lag(readable_until=ago(days=1))), {"state": "expiring"}, {"level": "error"}),
    "in quarantine": (
        done(counts={"quarantined": 2}),
        {"quarantined": 2},
        {
            "text": "put 2 rows in quarantine, each with its reason: /lake/b__quarantine.",
            # A command would take the rules and policies of the seal.
            "remedy": "correct the source, run the pipeline, then start a run with mode repair and "
            'repair_quarantined (in code: repair={"quarantined": True}).',
        },
    ),
    # The records of a change log are not beside the target.
    "in the quarantine of its log": (
        done(ingested={"counts": {"quarantined": 1}, "log_table": "/lake/log"}),
        {"quarantined": 1},
        {
            "text": "1 row in quarantine, each with its reason: /lake/log__quarantine.",
            "remedy": "correct the options or the records there (or deliver a file again, corrected, under "
            "its name), then start a run with mode repair and "
            'repair_quarantined (in code: repair={"quarantined": True}).',
        },
    ),
    "of columns that schema leaves out": (
        done(ingested={"counts": {"events": 3, "left_out:tier": 1}}, counts={"inserted": 3}),
        {"state": "ok", "left_out": ["tier"]},
        {
            "level": "warning",
            "text": "The option schema leaves out the column(s) 'tier' of the records.",
            "remedy": left_out.REMEDY,
        },
    ),
    "of rows that break a rule": (
        done(counts={"inserted": 3, "rule:amount_positive": 2, "rule:forged": "many"}),
        {"state": "ok", "rules": {"amount_positive": 2, "forged": 0}},
        {"level": "warning", "text": "2 rows of the last run broke the rule amount_positive."},
    ),
    "of a target that differs from its shadow": (
        done(
            counts={"inserted": 3},
            shadow=[{"status": "differing", "original": "b", "shadow": "b_next"}, {"status": "agreed"}, 7],
        ),
        {"state": "ok", "differing": ["b and its shadow b_next"]},
        {"level": "warning", "text": "Their rows differ: b and its shadow b_next."},
    ),
    "ended without an error": (
        failed(task("failed")),
        {"state": "failed", "error": None},
        {"text": "Task apply ended without a stored error.", "remedy": _NO_ERROR},
    ),
    "is tried again": (failed(task("up_for_retry")), {"state": "retrying"}, {"text": "Task apply"}),
    "a run without tasks": (failed(), {"state": "failed"}, {"text": "The run run_1 ended without"}),
    "stopped by the task before": (
        failed(task("upstream_failed"), task("failed", task_id="wait"), error="wait"),
        {"state": "failed", "error": ERROR},
        {},
    ),
    "a failure after it": (
        {**failed(task("failed", task_id="report")), "values": done()["values"]},
        {"state": "ok"},
        {},
    ),
    "at work": (
        {
            "runs": [run(2, "running"), run(1)],
            "tasks": [task("running", number=2)],
            "values": done()["values"],
        },
        {"state": "running", "version": 7},
        {},
    ),
    "at work on what the run before it left": (
        {"runs": [run(2, "running"), run(1)], "values": done(lag=lag(9, 3600))["values"]},
        {"state": "running", "lag_versions": 9},
        {"level": "note", "remedy": "wait for the end of the active run."},
    ),
    "at work, and late": (
        {"runs": [run(2, "running"), run(1)], "values": done(lag=lag(9, 3600, freshness=60))["values"]},
        {"state": "late"},
        {},
    ),
    "retried by a run at work": (
        {"runs": [run(1, "running")], "tasks": [task("up_for_retry")]},
        {"state": "retrying"},
        {},
    ),
    "never run": ({"is_paused": True}, {"state": "never"}, {"level": "note"}),
    "no run is left": ({"events": (event(5, lag=lag()),)}, {"state": "ok", "version": 5}, {}),
    "an older run": ({**done(timestamp=ago(days=1)), "events": (event(9, lag=lag()),)}, {"version": 9}, {}),
    "a detection that failed": (
        {
            "of": MAPPED,
            **failed(
                task("failed", dag_id="shop", task_id="detect_changes"), error="detect_changes", dag_id="shop"
            ),
        },
        {"state": "failed", "error": ERROR},
        {},
    ),
    "left out": (
        {
            "of": MAPPED,
            "runs": [run(dag_id="shop")],
            "values": [value("tables", {"p": {"status": "left out"}}, task_id="detect_changes")],
        },
        {"run": None},
        {},
    ),
    "included with another pipeline that the form names": (
        {
            "of": replace(MAPPED, form=(("tables", None),)),
            "runs": [run(dag_id="shop")._replace(has_form=True, tables=("customers",))],
            "values": [value("tables", {"p": {"status": "nothing", "version": 4}}, task_id="detect_changes")],
        },
        {"version": 4},
        {},
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_the_state_of_a_pipeline(name: str) -> None:
    rows, expected, finding = STATES[name]
    found = item(**rows)
    assert {name: found.get(name) for name in expected} == expected
    for part, text in finding.items():
        assert text in found["findings"][0][part]


def test_a_failed_task_shows_its_error_and_the_watermark_before_it() -> None:
    before = done(counts={"quarantined": 2}, lag=lag(bytes=0))
    rows = failed(task("failed", number=2), error="apply", number=2)
    found = item(**{**rows, **{name: [*rows[name], *before[name]] for name in ("runs", "values")}})
    assert (found["state"], found["error"], found["version"]) == ("failed", ERROR, 7)
    assert found["findings"] == [{"level": "error", "text": "NullKey: m", "remedy": "r"}]
    # These would be of the run before.
    assert not {"rows", "quarantined", "lag_versions", "lag_bytes"} & set(found)
    shown = {name: found["run"][name] for name in ("task_id", "try_number", "run_id")}
    assert shown == {"task_id": "apply", "try_number": 2, "run_id": "run_2"}


@pytest.mark.parametrize(
    ("before", "after", "as_of"),
    [
        # Newer commits, which that run did not know, may be removed earlier.
        (2, None, ago(hours=2)),
        # A commit of the run that failed then.
        (0.5, None, None),
        # The run has looked, and published it.
        (2, lag(3, 60, readable_until=ago(days=-5)), None),
    ],
)
def test_an_older_deadline_is_marked_after_a_failed_run(
    before: float, after: dict[str, Any] | None, as_of: str | None
) -> None:
    old = done(timestamp=ago(hours=before), lag=lag(readable_until=ago(days=-30)))
    rows = failed(task("failed", number=2), error="apply", number=2)
    more = [value("return_value", published(lag=after), number=2)] if after else []
    found = item(
        **{**rows, "runs": [*rows["runs"], *old["runs"]], "values": [*rows["values"], *old["values"], *more]}
    )
    assert (found["state"], found.get("readable_as_of")) == ("failed", as_of)
    assert found["readable_until"] == (ago(days=-5) if after else ago(days=-30))
    assert "readable_as_of" not in state._OF_ONE, "the list shows it"


def test_a_pipeline_after_one_that_failed_was_not_run() -> None:
    """The error and its remedy are those of another pipeline."""
    now, later = (
        Declared(f"p_{name}", "one", (name,), False, None, None, None, ()) for name in ("now", "hist")
    )
    rows: dict[str, Any] = {
        "runs": [run(1, "failed")],
        "tasks": [
            task("failed", task_id="now", start=NOW - timedelta(seconds=9), end=NOW),
            task("upstream_failed", task_id="hist"),
        ],
        "values": [value(ERROR_KEY, ERROR, task_id="now")],
    }
    found = apart(now, later, **rows)
    assert found["p_now"]["findings"][0] == {"level": "error", "text": "NullKey: m", "remedy": "r"}
    blocked = {
        "level": "error",
        "text": "Not run, because task now failed: NullKey: m",
        "remedy": "for task now: r",
    }
    assert (found["p_hist"]["state"], found["p_hist"]["findings"][0]) == ("failed", blocked)
    assert (found["p_hist"]["run"]["task_id"], found["p_hist"]["run"]["seconds"]) == ("now", None)
    stored = Stored(dags={}, pipelines=[later], **rows)
    assert [one["failure"] for one in state.runs(stored)] == [blocked]
    assert [one["failure"] for one in state.describe_task(stored, "hist", -1)] == [blocked]


@pytest.mark.parametrize("has_choice", [True, False])
@pytest.mark.parametrize("tables", [("other",), ("other", "p"), ()])
def test_a_run_of_other_tables_decides_nothing(tables: tuple[str, ...], has_choice: bool) -> None:
    """It is queued, so no task has found out yet. A form without a choice of tables means nothing by them."""
    chooses = replace(ALONE, form=(("mode", "incremental"), *([("tables", [])] if has_choice else [])))
    found = item(
        of=chooses,
        runs=[run(3, "queued")._replace(has_form=True, tables=tables), run(2, "failed"), run(1)],
        tasks=[task("failed", number=2)],
        values=[value(ERROR_KEY, ERROR, number=2), value("return_value", published(lag=lag()), number=1)],
    )
    is_out = has_choice and tables == ("other",)
    assert (found["state"], found["run"]["run_id"]) == (
        ("failed", "run_2") if is_out else ("running", "run_3")
    )


@pytest.mark.parametrize(
    "conf", [None, "text", 7, {}, {"tables": "p"}, {"tables": [7, None]}, {"tables": {}}]
)
def test_forms_that_are_not_ours_name_no_tables(conf: Any) -> None:
    assert queries._chosen(conf) == frozenset()
    assert queries._chosen({"tables": ["p", 7]}) == {"p"}


@pytest.mark.parametrize(
    ("known_by", "dry_state"),
    [("form", "success"), ("form", "failed"), ("form", "running"), ("operator", "success")],
)
def test_a_dry_run_decides_nothing(known_by: str, dry_state: str) -> None:
    """It wrote nothing, so the failure before it is still the newest that is known."""
    would = published(counts={"inserted": 500, "quarantined": 7}, dry_run={}, starting_version=8)
    found = item(
        runs=[run(3, dry_state)._replace(is_dry_run=known_by == "form"), run(2, "failed"), run(1)],
        tasks=[task("failed", number=2), *([task("failed", number=3)] if dry_state == "failed" else [])],
        values=[
            value("return_value", would, number=3),
            value(ERROR_KEY, ERROR, number=2),
            value("return_value", published(lag=lag()), number=1),
        ],
    )
    assert (found["state"], found["run"]["run_id"]) == ("failed", "run_2")
    assert not {"rows", "quarantined"} & set(found)
    assert [one["text"] for one in found["findings"]] == ["NullKey: m"]


@pytest.mark.parametrize(
    ("tasks", "error", "is_counted"),
    [
        ([task("failed", task_id="detect", number=2)], "InvalidConfiguration", False),
        ([task("failed", task_id="detect", number=2)], "TableNotFound", False),
        ([task("up_for_retry", task_id="detect", number=2)], "TableNotFound", False),
        ([], None, False),
        ([task("failed", number=2)], "InvalidConfiguration", False),
        ([task("failed", number=2)], "TableNotFound", True),
    ],
    ids=["form", "detection", "retry", "no task", "form of its own task", "its own work"],
)
def test_a_run_with_a_form_that_fails_before_its_work_decides_nothing(
    tasks: list[Task], error: str | None, is_counted: bool
) -> None:
    rows: dict[str, Any] = {
        "tasks": [task("failed", number=1), *tasks],
        "values": [
            value(ERROR_KEY, ERROR, number=1),
            *(value(ERROR_KEY, {**ERROR, "class": error}, number=2, task_id=one.task_id) for one in tasks),
        ],
    }
    by_hand = run(2, "failed")._replace(has_form=True)
    found = item(runs=[by_hand, run(1, "failed")], **rows)
    assert (found["state"], found["run"]["run_id"]) == ("failed", "run_2" if is_counted else "run_1")
    # The list of runs has it.
    assert len(state.runs(Stored(dags={}, pipelines=[ALONE], runs=[by_hand], **rows))) == 1
    # Without a form, it is what happens to each run: nothing is applied any more.
    assert item(runs=[run(2, "failed"), run(1, "failed")], **rows)["run"]["run_id"] == "run_2"


def test_runs_that_may_decide() -> None:
    """Forms that fail, and others that leave tables out, hide no run of all tables."""
    engine = create_engine("sqlite://")
    DagRun.metadata.create_all(engine, tables=[DagRun.metadata.tables["dag_run"]])
    runs: list[tuple[int, str, str, dict[str, Any] | None]] = [
        (1, "scheduled", "success", {}),
        (2, "manual", "failed", None),
        (3, "manual", "failed", {}),
        (4, "manual", "failed", {"tables": ["typo"]}),
        (5, "manual", "success", {"tables": ["other"]}),
        (6, "manual", "success", {"dry_run": True}),
        (7, "manual", "running", {}),
        (8, "backfill", "success", {"dry_run": True}),
    ]
    with Session(engine) as session:
        for number, run_type, run_state, conf in runs:
            row = {"id": number, "dag_id": "one", "run_id": f"run_{number}", "run_type": run_type}
            more = {"state": run_state, "conf": conf, "run_after": NOW, "log_template_id": None}
            session.execute(insert(DagRun).values(**row, **more))
        assert queries._newest_run_ids(session, ["one"]) == {7, 5, 3}
        assert session.scalars(select(DagRun.id).where(queries._HAS_FORM)).all() == [4, 5, 6]


@pytest.mark.parametrize(
    "hidden", [(), ("task instances",), ("XComs",), ("task instances", "XComs")], ids=str
)
def test_rows_that_the_user_may_not_read_are_not_loaded(hidden: tuple[str, ...]) -> None:
    """Of each DAG by itself."""
    # The tables refer to those of other models.
    import_all_models()
    engine = create_engine("sqlite://")
    tables = [DagRun.metadata.tables[name] for name in ("dag_run", "task_instance", "xcom")]
    DagRun.metadata.create_all(engine, tables=tables)
    with Session(engine) as session:
        for number, dag_id in enumerate(("one", "other"), 1):
            at = {"dag_id": dag_id, "run_id": "r", "task_id": "apply", "map_index": -1}
            row = {"id": number, "dag_id": dag_id, "run_id": "r", "run_type": "manual", "state": "failed"}
            session.execute(insert(DagRun).values(**row, conf={}, run_after=NOW, log_template_id=None))
            session.execute(insert(TaskInstance), [{**at, "state": "failed", "pool": "p", "try_number": 1}])
            error = {"key": ERROR_KEY, "value": json.dumps(ERROR), "dag_run_id": number}
            session.execute(insert(XComModel), [{**at, **error}])
        rights = Rights({name: {"one"} for name in hidden})
        both = [ALONE, replace(ALONE, dag_id="other")]
        found = queries._read_runs(session, [1, 2], both, rights)
    readable = {
        "task instances": {row.dag_id for row in found["tasks"]},
        "XComs": {{1: "one", 2: "other"}[row.run] for row in found["values"]},
    }
    for name, dag_ids in readable.items():
        assert dag_ids == ({"other"} if name in hidden else {"one", "other"})


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ('{"version": 7}', {"version": 7}),
        ('{"version": 7, "rate": NaN}', {"version": 7, "rate": None}),
        ("no JSON", "no JSON"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, None),
        (
            '{"__classname__": "no.such.Class", "__version__": 1, "__data__": NaN}',
            {"__classname__": "no.such.Class", "__version__": 1, "__data__": None},
        ),
        ({"version": 7}, {"version": 7}),
        ({"version": 7, "rate": float("nan")}, {"version": 7, "rate": None}),
    ],
    ids=["JSON", "NaN", "text", "deep", "class", "value", "value with NaN"],
)
def test_the_value_of_any_xcom(stored: Any, expected: Any) -> None:
    assert queries._decoded(json.dumps(stored)) == expected


@pytest.mark.parametrize("text", [None, "null", '{"a":' * 100_000 + "1" + "}" * 100_000])
def test_an_xcom_without_a_readable_value(text: str | None) -> None:
    assert queries._decoded(text) is None


@pytest.mark.parametrize("read", [(), ("XComs",)], ids=str)
def test_an_event_is_read_only_if_its_task_is_not_known(read: tuple[str, ...]) -> None:
    """Neither that nor another look begins at an index that has the rows of all times."""
    import_all_models()
    engine = create_engine("sqlite://")
    names = ("dag_run", "task_instance", "xcom", "asset_event", "asset_alias", "asset_alias_asset_event")
    metadata = DagRun.metadata
    metadata.create_all(engine, tables=[metadata.tables[name] for name in names])
    statements: list[tuple[str, Any]] = []
    listen(engine, "before_cursor_execute", lambda *given: statements.append(given[2:4]))
    at = {"dag_id": "one", "task_id": "apply", "map_index": -1}
    with Session(engine) as session:
        session.execute(insert(AssetAliasModel), [{"id": 1, "name": "delta_cdc:p", "group": "asset"}])
        # So many that a database weighs which index to begin at.
        for number in range(1, 400):
            row = {"id": number, "dag_id": "one", "run_id": str(number), "run_type": "manual"}
            session.execute(
                insert(DagRun).values(**row, state="success", conf={}, run_after=NOW, log_template_id=None)
            )
        for number in (1, 2):
            content = {"key": "return_value", "value": json.dumps(published(number))}
            edited = {"key": "return_value", "value": json.dumps({"pipeline": ["a"]}), "map_index": 7}
            session.execute(
                insert(XComModel), [{**at, "run_id": str(number), "dag_run_id": number, **edited}]
            )
            session.execute(
                insert(XComModel), [{**at, "run_id": str(number), "dag_run_id": number, **content}]
            )
            source = {"source_dag_id": "one", "source_task_id": "apply", "source_map_index": -1}
            event = {"id": number, "asset_id": 1, "source_run_id": str(number), "timestamp": NOW, **source}
            session.execute(insert(AssetEvent), [{**event, "extra": published(number, by="event")}])
        of_alias = metadata.tables["asset_alias_asset_event"]
        session.execute(insert(of_alias), [{"alias_id": 1, "event_id": number} for number in (1, 2)])
        statements.clear()
        rights = Rights() if "XComs" in read else Rights({"XComs": {"one"}})
        of_runs = queries._read_runs(session, range(2, 400), [ALONE], rights)
        (found,) = queries._newest_events(session, of_runs)
        assert (found.run_id, found.extra["version"]) == ("2", 2)
        assert ("by" in found.extra) is ("XComs" not in read)
        assert any("asset_event.extra" in text for text, _ in statements) is ("XComs" not in read)
        plans = [
            str(row)
            for text, values in list(statements)
            for row in session.connection().exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values)
        ]
    assert not [plan for plan in plans if "ti_state" in plan or "idx_xcom_key" in plan], plans


def hidden(*names: str, events: bool = True) -> Rights:
    return Rights({name: {"one"} for name in names}, events=events)


@pytest.mark.parametrize("kind", ["task instances", "XComs"])
def test_what_is_hidden_is_neither_good_nor_bad(kind: str) -> None:
    """After a failed run, a user who lacks one of the two cannot tell which of its pipelines failed."""
    rows: dict[str, Any] = {"values": [value("return_value", published())]} if kind != "XComs" else {}
    found = item(runs=[run(1, "failed")], rights=hidden(kind), **rows)
    assert (found["state"], found["run"]["state"], found["hidden"]) == ("hidden", "hidden", [kind])
    assert "error" not in found
    assert not [one for one in found["findings"] if one["level"] == "error"]
    assert item(runs=[run(1, "success")], rights=hidden(kind), **rows)["state"] == "ok"
    assert item(runs=[run(1, "running")], rights=hidden(kind), **rows)["state"] == "running"


def test_without_runs_to_read_it_is_unknown_whether_there_is_one() -> None:
    assert item(rights=hidden("runs"))["state"] == "hidden"
    assert item()["state"] == "never"
    found = item(events=(event(5, lag=lag()),), rights=hidden("runs"))
    assert (found["state"], found["version"], found["hidden"]) == ("hidden", 5, ["runs"])
    assert item(rights=hidden(events=False))["hidden"] == ["asset events"]


def test_a_link_to_a_log_is_for_readers_of_logs() -> None:
    rows = failed(task("failed"))
    assert item(**rows)["run"]["has_log"]
    assert not item(**rows, rights=hidden("task logs"))["run"]["has_log"]
    for rights, names in (
        (hidden(), {"run_id", "task_id", "has_log"}),
        (hidden("task instances"), {"run_id"}),
        (hidden("runs"), set()),
    ):
        (commit,) = state.commits([event(5)], rights)
        assert set(commit) & {"run_id", "task_id", "has_log"} == names


_ODD = {
    "pipeline": "p",
    "version": "7",
    "counts": 3,
    "lag": [],
    "seconds": {"work": "x"},
    "timestamp": "then",
}


@pytest.mark.parametrize(
    "broken", [None, 7, "s3://elsewhere/1.json", [], {"pipeline": 3}, {"pipeline": "p"}, _ODD]
)
def test_values_of_another_shape_are_no_figures(broken: Any) -> None:
    """An XCom backend may store a reference, and people may store anything."""
    found = item(runs=[run()], values=[value("return_value", broken), value("tables", broken)])
    assert (found["state"], found.get("version")) == ("ok", None)


# -- groups -----------------------------------------------------------------------------------------
def grouped(
    summary: dict[str, Any] | None, *tasks: Task, run_state: str = "failed", **rows: Any
) -> dict[str, Any]:
    values = [] if summary is None else [value("tables", {"p": summary}, task_id="detect_changes")]
    return item(
        of=MAPPED,
        runs=[run(1, run_state, dag_id="shop")],
        tasks=tasks,
        values=[*values, *rows.pop("values", ())],
        **rows,
    )


def test_a_table_without_work_is_up_to_date_although_others_failed() -> None:
    other = task("failed", dag_id="shop", map_index=0, name="other")
    found = grouped({"status": "nothing", "version": 7, "target": "/lake/b", "lag": lag()}, other)
    assert (found["state"], found["version"], found["target"]) == ("ok", 7, "/lake/b")


def test_a_failed_table_shows_how_far_it_is_behind() -> None:
    start = NOW - timedelta(minutes=4)
    own = task("failed", dag_id="shop", map_index=3, name="p", start=start, end=start + timedelta(seconds=1))
    summary = {"status": "work", "version": 7, "lag": lag(4, 60)}
    found = grouped(summary, own, values=[value(ERROR_KEY, ERROR, map_index=3)])
    assert (found["state"], found["error"], found["lag_versions"]) == ("failed", ERROR, 4)
    assert (found["run"]["map_index"], found["run"]["seconds"]) == (3, 1.0)


def test_the_scheduled_dag_stands_for_a_pipeline_and_the_backfill_is_listed() -> None:
    both = [
        Declared("p", dag_id, ("apply",), True, "shop", None, None, (("mode", mode),))
        for dag_id, mode in (("shop__backfill", "backfill"), ("shop", "incremental"))
    ]
    dags = {"shop": Dag("shop", False, True), "shop__backfill": Dag("shop__backfill", False, False)}
    (found,) = state.overview(Stored(dags=dags, pipelines=both), NOW)["pipelines"]
    assert found["dag_id"] == "shop"
    assert [one["dag_id"] for one in found["dags"]] == ["shop__backfill", "shop"]
    # One may not say its target: Airflow shortens long arguments.
    (found,) = apart(replace(both[1], target="/lake/b"), both[0]).values()
    assert [one["dag_id"] for one in found["dags"]] == ["shop", "shop__backfill"]


def apart(*pipelines: Declared, **rows: Any) -> dict[str, dict[str, Any]]:
    dags = {one.dag_id: Dag(one.dag_id, False, True) for one in pipelines}
    shown = state.overview(Stored(dags=dags, pipelines=pipelines, **rows), NOW)["pipelines"]
    return {one["id"]: one for one in shown}


def test_pipelines_of_one_name_with_other_targets_stay_apart() -> None:
    """Names default to the last part of the target."""
    d, e = (replace(ALONE, dag_id=dag_id, target=f"/{dag_id}/b") for dag_id in ("d", "e"))
    newest = event(9, "run_1", lag=lag())._replace(dag_id="e")
    rows: dict[str, Any] = {"runs": [run(1, dag_id="e"), run(2, "failed", dag_id="d")]}
    rows |= {"tasks": [task("failed", number=2, dag_id="d")], "values": done()["values"], "events": [newest]}
    found = apart(d, e, **rows)
    assert {key: (one["state"], one["dag_id"]) for key, one in found.items()} == {
        "p@/d/b": ("failed", "d"),
        "p@/e/b": ("ok", "e"),
    }
    assert "version" not in found["p@/d/b"]
    assert state.trends([newest], [d, e]) == {"p@/e/b": [4]}
    assert state.of([d, e], "p@/e/b") == [e]
    assert state.of([d, e], "p") == [d, e]


def test_tasks_of_one_dag_that_write_other_targets_are_other_pipelines() -> None:
    with DAG("both") as dag:
        for place in ("here", "there"):
            DeltaApplyChangesOperator(
                task_id=place, source=f"/raw/{place}", target=f"/{place}/b", keys=["id"]
            )
    here, there = declared("both", serialized(dag))
    assert [(one.pipeline, one.task_ids, one.target) for one in (here, there)] == [
        ("b", ("here",), "/here/b"),
        ("b", ("there",), "/there/b"),
    ]
    rows: dict[str, Any] = {
        "runs": [run(1, "failed", dag_id="both")],
        "tasks": [task("failed", dag_id="both", task_id="there")],
        "values": [value("return_value", published(pipeline="b", lag=lag()), task_id="here")],
    }
    found = apart(here, there, **rows)
    assert {key: one["state"] for key, one in found.items()} == {"b@/here/b": "ok", "b@/there/b": "failed"}
    stored = Stored(dags={}, pipelines=[here, there], **rows)
    for task_id in ("here", "there"):
        (meant,) = state.describe_task(stored, task_id, -1)
        assert meant["id"] == f"b@/{task_id}/b"


def test_what_one_task_meant() -> None:
    rows: dict[str, Any] = {
        "dags": {"shop": Dag("shop", False, True)},
        "pipelines": [MAPPED, Declared("q", "shop", ("apply",), True, "shop", None, None, ())],
        "runs": [run(1, "failed", dag_id="shop")],
        "tasks": [task("failed", dag_id="shop", map_index=1, name="q")],
        "values": [
            value("return_value", published(lag=lag()), map_index=0),
            value("tables", {"p": {"status": "work"}, "q": {"status": "work"}}, task_id="detect_changes"),
            value(ERROR_KEY, ERROR, map_index=1),
        ],
    }

    def shown(task_id: str, map_index: int) -> list[tuple[str, str]]:
        return [
            (one["pipeline"], one["state"]) for one in state.describe_task(Stored(**rows), task_id, map_index)
        ]

    assert shown("apply", 0) == [("p", "success")]
    assert shown("apply", 1) == [("q", "failed")]
    assert shown("detect_changes", -1) == [("p", "success"), ("q", "failed")]


# -- totals and history -----------------------------------------------------------------------------
def test_the_most_urgent_comes_first_and_totals_add_up() -> None:
    names = {
        "calm": published(lag=lag()),
        "slow": published(lag=lag(2, 60)),
        "red": published(lag=lag(5, 60)),
    }
    stored = Stored(
        dags={name: Dag(name, False, True) for name in names},
        pipelines=[Declared(name, name, ("apply",), False, None, None, None, ()) for name in names],
        runs=[
            run(at, "failed" if name == "red" else "success", dag_id=name) for at, name in enumerate(names)
        ],
        tasks=[task("failed", number=2, dag_id="red")],
        values=[
            value("return_value", {**content, "pipeline": name}, number=at)
            for at, (name, content) in enumerate(names.items())
        ],
    )
    shown = state.overview(stored, NOW)
    assert [one["pipeline"] for one in shown["pipelines"]] == ["red", "slow", "calm"]
    assert {name: count for name, count in shown["totals"]["states"].items() if count} == {
        "failed": 1,
        "behind": 1,
        "ok": 1,
    }
    assert (shown["totals"]["rows"]["inserted"], shown["totals"]["lag_versions"]) == (9, 7)
    none = state.overview(replace(stored, values=[]), NOW)
    assert set(none["totals"]) == {"pipelines", "states"}, "unknown is not 0"


def test_trends_and_commits() -> None:
    events = [
        event(9, "r2")._replace(start=NOW - timedelta(seconds=9), end=NOW),
        event(8, "r1", counts={"updated": 1}),
        event(7, "r0", counts={"inserted": 0, "closed": 3}),
    ]
    assert state.trends(events, [ALONE]) == {"p@/lake/b": [3, 1, 4]}
    newest, older, closing = state.commits(events)
    assert (newest["version"], newest["run_id"], newest["task_seconds"]) == (9, "r2", 9.0)
    assert (older["rows"]["updated"], older["started"]) == (1, None)
    assert closing["rows"]["closed"] == 3, "a delete in a history"


def test_a_clean_run_does_not_hide_what_earlier_ones_left_in_quarantine() -> None:
    record = {"counts": {"quarantined": 1}, "log_table": "/lake/log"}
    events = [
        event(8, "r1", counts={"quarantined": 2}, timestamp=ago(days=1)),
        event(7, "r0", counts={"quarantined": 1}, timestamp=ago(days=2)),
        event(6, "r0", ingested=record),
        event(5, "r0", counts={"quarantined": "many"}),
    ]
    rows, records = state.earlier_quarantined(events, item(**done()))
    assert rows["text"] == (
        "Earlier commits (below) put 3 rows in quarantine, each with its reason: /lake/b__quarantine. "
        f"The newest of these commits is of {ago(days=1)}."
    )
    assert rows["remedy"].startswith("to see how many are still there, run delta-cdc status")
    assert "put 1 row in quarantine, each with its reason: /lake/log__quarantine." in records["text"]
    assert "the records there" in records["remedy"]
    # While the next run is at work, the figures are those of the last commit, which has its own finding.
    newest = event(9, "run_1", counts={"quarantined": 5})
    at_work = {**done(counts={"quarantined": 5}), "runs": [run(2, "running"), run()]}
    assert item(**at_work)["newly_quarantined"][0]["rows"] == 5
    (found,) = state.earlier_quarantined([newest, *events[:1]], item(**at_work))
    assert found["text"].startswith("Earlier commits (below) put 2 rows ")
    assert found["remedy"].endswith("delta-cdc status with the configuration."), (
        "the first one names the rest"
    )
    # After a failed run, no figures of the last commit are shown.
    failed_since = {**at_work, "runs": [run(2, "failed"), run()]}
    assert "newly_quarantined" not in item(**failed_since)
    assert "put 5 rows" in next(state.earlier_quarantined([newest], item(**failed_since)))["text"]


def held(rows: int, table: str = "/lake/b", *, is_log: bool = False) -> dict[str, Any]:
    return {"table": table, "rows": rows, "is_log": is_log}


def test_a_clean_run_does_not_hide_what_is_in_quarantine() -> None:
    """The list had the rows of the last run alone: a red night looked clean after the next run."""
    night = published(counts={"quarantined": 3}, in_quarantine=held(3), timestamp=ago(hours=9))
    night["ingested"] = {"log_table": "/lake/log", "in_quarantine": held(1, "/lake/log", is_log=True)}
    morning = published(in_quarantine=held(2), lag=lag())
    values = [value("return_value", night), value("return_value", morning, number=2)]
    rows = {"runs": [run(2), run(1, hours=9)], "values": values}
    found = item(**rows)
    # The newest figures of each quarantine count: a run may say nothing of one.
    assert (found["quarantined"], found["held_rows"]) == (0, 3)
    assert sorted(one["text"] for one in found["findings"]) == [
        "1 row in quarantine, each with its reason: /lake/log__quarantine.",
        "2 rows in quarantine, each with its reason: /lake/b__quarantine.",
    ]
    assert list(state.earlier_quarantined([event(run_id="r0", **night)], found)) == []
    dags = {"one": Dag("one", False, True)}
    stored = Stored(dags=dags, pipelines=[ALONE], runs=[run(2), run(1, hours=9)], values=values)
    assert state.overview(stored, NOW)["totals"]["quarantined"] == 3
    # A repair has emptied both; the runs since then had no work.
    tables = {"p": {"status": "nothing", "in_quarantine": [held(0), held(0, "/lake/log", is_log=True)]}}
    empty = {"runs": [run(3, hours=0), *rows["runs"]], "values": [*values, value("tables", tables, number=3)]}
    repaired = item(**empty)
    assert (repaired["held_rows"], repaired["findings"]) == (0, [])


def test_what_a_failed_run_or_none_says_of_a_quarantine() -> None:
    newest = event(7, in_quarantine=held(4), timestamp=ago(hours=2))
    assert item(events=(newest,))["held_rows"] == 4
    after = failed(task("failed", number=2), error="apply", number=2)
    assert item(**after, events=(newest,))["held_rows"] == 4
    assert "held_rows" not in item(**done())
    for wrong in (None, 5, [5], {"rows": 5}, held(5, ""), {**held(5), "rows": "many"}):
        assert "held_rows" not in item(**done(in_quarantine=wrong))


@pytest.mark.parametrize("name", ["reload", "repair_of_a_range", "soft_deletes", "dry_run"])
def test_figures_of_what_tasks_publish(name: str) -> None:
    """The golden files hold the XComs of real flows. What a dry run would do is not shown as done."""
    file = Path(__file__).parents[2] / "golden" / "published" / f"{name}.json"
    content = json.loads(file.read_text())["xcom"]
    found = state.figures(content)
    if name == "dry_run":
        assert (found["is_dry_run"], found["version"], found["lag_versions"]) == (True, 2, 3)
        assert not {"rows", "quarantined", "starting_version", "ending_version"} & set(found)
        return
    assert (found["version"], found["target_version"]) == (content["version"], content["target_version"])
    assert (found["source"], found["target"]) == ("/lake/source", "/lake/target")
    kinds = ("inserted", "updated", "deleted", "closed")
    assert found["rows"] == {kind: content["counts"].get(kind, 0) for kind in kinds}


# -- errors of failed tasks -------------------------------------------------------------------------
class Instance:
    def __init__(self, broken: bool = False) -> None:
        self.pushed: dict[str, Any] = {}
        self.broken = broken

    def xcom_push(self, key: str, value: Any) -> None:
        if self.broken:
            raise OSError("the API does not answer")
        self.pushed[key] = value


def test_a_named_error_is_published_without_secrets() -> None:
    instance = Instance()
    on_task_instance_failed(task_instance=instance, error=NullKey("m", remedy="r"))
    assert instance.pushed == {ERROR_KEY: ERROR}
    mask_secret("hunter2-of-the-store")
    # A shortened message must not end in a part of a secret.
    message = "m" * 3990 + "hunter2-of-the-store" + "m" * 5000
    error = NullKey(message, remedy="say hunter2-of-the-store")
    on_task_instance_failed(task_instance=instance, error=error)
    assert "hunter2" not in str(instance.pushed)
    assert instance.pushed[ERROR_KEY]["remedy"] == "say ***"
    assert len(instance.pushed[ERROR_KEY]["message"]) < 4100


@pytest.mark.parametrize("error", [None, "killed", ValueError("of another package")])
def test_other_errors_are_not_published(error: Any, caplog: Any) -> None:
    instance = Instance()
    on_task_instance_failed(task_instance=instance, error=error)
    assert instance.pushed == {}
    on_task_instance_failed(task_instance=Instance(broken=True), error=NullKey("m", remedy="r"))
    assert "could not be published" in caplog.text, "a database that does not answer"


# -- DAGs that explain rows -------------------------------------------------------------------------
def _explained_by(dag: DAG) -> list[tuple[str, str | None]]:
    return [(one.pipeline, one.target) for one in explaining(dag.dag_id, serialized(dag))]


def test_a_dag_that_explains_rows_has_its_pipelines() -> None:
    tables = {
        name: {"group": "shop", "source": f"/lake/{name}", "target": f"/lake/{name}_now", "keys": ["id"]}
        for name in ("orders", "customers")
    }
    dags = build_dags({"groups": {"shop": {"why": True}}, "pipelines": tables})
    customers, orders = explaining("shop__why", serialized(dags["shop__why"]))
    assert (customers.pipeline, orders.pipeline, orders.target) == ("customers", "orders", "/lake/orders_now")
    assert (orders.task_id, orders.group, orders.fields) == (
        "why",
        "shop",
        ("pipeline", "key", "columns", "at"),
    )
    assert explaining("shop", serialized(dags["shop"])) == ()
    own = {"pipeline": "p", "target": "/t"}
    for params, given, found in (
        (why_params(), own, [("p", "/t")]),
        (why_params(), {**own, "target": "{{ t }}"}, [("p", None)]),
        (why_params(pipelines=["p", "q"]), {"config": "c.yaml", "pipeline": "{{ params.pipeline }}"},
         [("p", None), ("q", None)]),
        (why_params(), {"config": "c.yaml", "pipeline": "{{ params.pipeline }}"}, []),
        ({}, {**own, "key": "id=1"}, []),
    ):  # fmt: skip
        with DAG("own", params=params) as dag:
            DeltaWhyOperator(task_id="why", **{**(why_arguments() if params else {}), **given})
        assert _explained_by(dag) == found
    with DAG("both", params=why_params()) as dag:
        DeltaWhyOperator(task_id="why", **own, **why_arguments())
        DeltaApplyChangesOperator(task_id="apply", pipeline="p", source="/s", target="/t", keys=["id"])
    assert _explained_by(dag) == [], "its runs would write"


@pytest.mark.parametrize("name", [["a", "b"], {"a": 1}, None, 7])
def test_a_list_of_tables_of_another_operator_is_not_ours(name: Any) -> None:
    alias = {"__type": "asset_alias", "__var": {"name": f"{ALIAS_OF_PIPELINE}orders"}}
    other = {"task_id": "audit", "task_type": "DeltaWhyOperator", "tables": [{"pipeline": name}]}
    ours = {"task_id": "apply", "outlets": [alias]}
    tasks = [{"__var": task} for task in (other, ours)]
    (found,) = declared("d", {"dag": {"tasks": tasks}})
    assert found.pipeline == "orders"
    assert explaining("d", {"dag": {"tasks": tasks[:1], "params": [["key", {}]]}}) == ()


def test_which_pipeline_a_task_explains() -> None:
    def explains(declared_one: Declared, **given: Any) -> bool:
        known = {
            "pipeline": "p",
            "dag_id": "w",
            "task_id": "why",
            "target": None,
            "group": None,
            "fields": (),
        }
        return Explaining(**{"fields": (), **known, **given}).explains(declared_one)

    (one,) = declared("shop", serialized(build_dags({"pipelines": {"p": {
        "source": "/s", "target": "s3://lake/p", "keys": ["id"]}}})["p"]))  # fmt: skip
    assert explains(one)
    assert explains(one, target="s3a://lake/p/")
    assert not explains(one, target="s3://lake/other")
    assert not explains(one, pipeline="q")
    # A task may name what no apply takes: its DAG fails, not the page of this pipeline.
    assert not explains(one, target="dbfs:/lake/p")
    shortened = replace(one, target=None)
    assert explains(shortened, target="s3://lake/p", group=one.group)
    assert not explains(shortened, group="another")
