"""The XComs of a group, changed between the tasks: nothing in them is believed."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from airflow_delta_cdc.groups import xcoms
from delta_cdc.core.errors import ConfigurationChanged, DeltaCdcError, InvalidXCom, NullKey
from delta_cdc.run.batch import PipelineResult
from delta_cdc.run.detect_changes import plan_ending_at
from tests.support.filled import fill
from tests.unit.airflow.test_groups import (
    S1,
    S2,
    Flow,
    Ti,
    answered,
    applied,
    context,
    detect,
    grow,
    item,
    plain,
    prints,
    publish,
    run_spark,
    table,
    task,
    with_log,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HUGE, DEEP = 10**400, json.loads("[" * 900 + "]" * 900)

#: What a user may write instead of the work of one table.
FORGED: dict[str, Any] = {
    "its arguments": item("a", table=None) | {"table": plain("a", target="/evil", adapter="os.path")},
    "its target": item("a", target="/evil"),
    "another pipeline": item("elsewhere"),
    "a pipeline of another type": item("a") | {"pipeline": ["a"]},
    "no pipeline": {name: value for name, value in item("a").items() if name != "pipeline"},
    "a key of the state store": item("a", stamp="published"),
    "a version that does not exist": item("a", since=-2),
    "an end of another type": item("a", ends={"pin:a:s": "9"}),
    "an end that does not exist": item("a", ends={"pin:a:s": -9}),
    "a plan with options": item(
        "a", ends={"pin:a:s": {"ending_version": 9, "seal_number": 7, "where": "true"}}
    ),
    "a huge number": item("a", since=HUGE),
    "a huge text": item("a", found="x" * 10**6),
    "many values": item("a", ends={f"pin:{at}": 1 for at in range(10**4)}),
    "a deep value": item("a", ends=DEEP),
    "no number": item("a", since=float("nan")),
    "a truth value": item("a", since=True),
    "a location of another type": item("a", located={"target": 1}),
    "a name for a location": item("a", located={"target": "main.evil.t"}),
    "an empty location": item("a", located={"target": ""}),
    "a location with a line break": item("a", located={"target": "/lake/a\n/evil"}),
    "a location with half a character": item("a", located={"target": "/lake/\ud800"}),
    "null": None,
    "a text": "a",
    "a list": [item("a")],
    "another kind of value": item("a", found=object()),
}


def test_a_forged_list_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow(monkeypatch)
    for value in (None, {}, "a", 7, [item("a"), item("a")]):
        with pytest.raises(InvalidXCom):
            run_spark(value, context(), plain("a"))
    assert flow.calls == 0


@pytest.mark.parametrize("name", FORGED)
def test_forged_work_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    flow = Flow(monkeypatch, PipelineResult(pipeline="a", applied=applied("a")))
    one = task(FORGED[name], plain("a"))
    one.render_template_fields(context())
    assert one.table_arguments() in (None, plain("a"))
    refused = ConfigurationChanged if name == "another pipeline" else InvalidXCom
    with pytest.raises(refused):
        one.execute(context())
    with pytest.raises(refused):
        run_spark([FORGED[name]], context(), plain("a"))
    assert flow.calls == 0


def test_the_form_and_not_the_xcom_chooses_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow(monkeypatch, PipelineResult(pipeline="b", applied=applied("b")))
    both = (plain("a"), plain("b"))
    chosen = context(params={"tables": ["a"]})
    with pytest.raises(ConfigurationChanged, match="The run does not include a pipeline 'b'"):
        run_spark([item("b")], chosen, *both)
    with pytest.raises(ConfigurationChanged, match="The run does not include a pipeline 'b'"):
        task(item("b"), *both).execute(chosen)
    assert flow.calls == 0
    task(item("b"), *both).execute(context())
    assert flow.calls == 1


def test_the_form_and_not_the_xcom_sets_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash of other arguments is no way in: the arguments are those of the DAG and the form."""
    flow = Flow(monkeypatch, PipelineResult(pipeline="a", applied=applied("a")))
    forged = item("a", table=plain("a", mode="reload", target="/evil"))
    with pytest.raises(ConfigurationChanged):
        task(forged).execute(context())
    with pytest.raises(ConfigurationChanged):
        task(item("a", failed=False, table=plain("a", where="true"))).execute(context())
    assert flow.calls == 0
    # A failed detection has no hash to compare with.
    task({**forged, "failed": True}).execute(context())
    (pipeline_job,) = flow.pipeline_jobs
    assert pipeline_job.apply is not None
    assert (pipeline_job.apply.target, pipeline_job.apply.mode) == ("/lake/a", "incremental")


def test_a_location_counts_for_a_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing compares the location of a path with a catalog."""
    flow = Flow(monkeypatch, PipelineResult(pipeline="a", applied=applied("a")))
    for located in ({"source": "/evil", "target": "/evil"}, {"log": "/evil", "anything": "/evil"}):
        task(item("a", located=located)).execute(context())
        (pipeline_job,) = flow.pipeline_jobs
        assert pipeline_job.apply is not None
        assert (pipeline_job.apply.source, pipeline_job.apply.target) == ("/lake/s", "/lake/a")
    logged = with_log("a", log="main.sales.log", target="main.sales.a")
    located = {"log": "/lake/log", "target": "/lake/a"}
    task(item("a", table=logged, located=located), logged).execute(context())
    ingest, apply = flow.pipeline_jobs[0].ingest, flow.pipeline_jobs[0].apply
    assert ingest is not None
    assert apply is not None
    # The job compares each with the catalog before it writes.
    assert (ingest.log, ingest.log_name) == ("/lake/log", "main.sales.log")
    assert (apply.source_name, apply.target_name) == ("main.sales.log", "main.sales.a")


def test_a_saved_plan_is_about_the_work_of_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work that a plan was saved for comes from the form, not from the XCom."""
    flow = Flow(monkeypatch, PipelineResult(pipeline="a", applied=applied("a")))
    reload = plain("a", mode="reload")
    one = item("a", table=reload, ends={"pin:a:s": 5})
    run_spark([one], context(params={"mode": "reload"}), plain("a"))
    (pipeline_job,) = flow.pipeline_jobs
    assert pipeline_job.saved_plans is not None
    plan = pipeline_job.saved_plans.get("pin:a:s")
    assert pipeline_job.apply is not None
    assert pipeline_job.apply.mode == "reload"
    assert plan == plan_ending_at(pipeline_job.apply, 5)


#: What a user may write instead of an answer of ``run_spark``.
ANSWERS: dict[str, Any] = {
    "of another type": [1],
    "null about the table": {"a": None},
    "an unknown status": {"a": {"item_stamp": S1, "status": "splendid"}},
    "an unknown field": {"a": {"item_stamp": S1, "status": "applied", "target": "/evil"}},
    "an error without a message": {
        "a": {"item_stamp": S1, "status": "failed", "error": {"class": "NullKey"}}
    },
    "an error of another type": {"a": {"item_stamp": S1, "status": "failed", "error": "x"}},
    "an effort below 0": {"a": {"item_stamp": S1, "effort": {"seconds": {"plan": -1.0}}}},
    "an effort that is no number": {"a": {"item_stamp": S1, "effort": {"seconds": {"plan": float("inf")}}}},
    "a plan of another type": {"a": {"item_stamp": S1, "saved_plans": {"pin:a:s": 9}}},
    "a plan with a huge number": {"a": {"item_stamp": S1, "saved_plans": {"pin:a:s": {"seal_number": HUGE}}}},
    "a dry run without a result": {"a": {"item_stamp": S1, "status": "planned", "dry_run": {}}},
    "a deep dry run": {"a": {"item_stamp": S1, "status": "planned", "dry_run": {"dry_run": DEEP}}},
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_forged_answer_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    flow = Flow(monkeypatch, PipelineResult(pipeline="a", applied=applied("a")))
    with pytest.raises(InvalidXCom):
        task(item("a")).execute(context(ti=Ti(**{"run_spark.return_value": ANSWERS[name]})))
    assert flow.calls == 0


def test_a_forged_dry_run_announces_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow(monkeypatch)
    forged = {"applied": True, "pipeline": "b", "dry_run": {"counts": {}}}
    given = answered(status="planned", dry_run=forged)
    given["params"] = {"dry_run": True}
    answer = task(item("a", table=plain("a", dry_run=True))).execute(given)
    assert (answer["applied"], answer["pipeline"], flow.calls) == (False, "a", 0)
    # Nor can an answer make a dry run of a run, or one of another detection count.
    Flow(monkeypatch, PipelineResult(pipeline="a", applied=applied("a")))
    assert task(item("a")).execute(answered(status="planned", dry_run={"dry_run": {"counts": {}}}))["applied"]
    forged = {
        "item_stamp": S2,
        "status": "failed",
        "error": NullKey("f", remedy="-").to_dict(),
        "try_stamp": "x",
    }
    assert task(item("a")).execute(context(ti=Ti(**{"run_spark.return_value": {"a": forged}})))["applied"]


# -- publish --------------------------------------------------------------------------------------
def test_the_group_names_the_targets_of_the_dag(tmp_path: Path) -> None:
    """Who reads a target by the event of a group reads the one of the DAG."""
    one = table(tmp_path, "busy")
    grow(tmp_path, "busy", 1)
    _, summary = detect(one)
    evil = {**summary["busy"], "target": "/evil", "target_version": 7, "version": 7}
    tasks = [{**applied("busy").to_dict(), "target_table": "/evil", "pipeline": "evil"}]
    given = context(
        ti=Ti(**{"detect_changes.tables": {"busy": evil, "evil": evil}, "apply.return_value": tasks})
    )
    versions = {"target": one["target"], "target_version": 7, "version": 7, "table_id": "", "seals": {}}
    assert publish(given, one) == {"busy": versions}
    assert not any(accessor.asset_alias_events for accessor in given["outlet_events"]._dict.values())


def test_a_target_by_name_is_published_by_its_name(tmp_path: Path) -> None:
    """Its location, which only an XCom has, serves to read versions, and is not announced."""
    grow(tmp_path, "busy", 1)
    fill(table(tmp_path, "busy"))
    by_name = table(tmp_path, "busy", target="main.sales.busy")
    for target, found in ((str(tmp_path / "busy"), 0), ("main.evil.t", None), (None, None), ([1], None)):
        summary = {"status": "left out", "target": target}
        given = context(ti=Ti(**{"detect_changes.tables": {"busy": summary}}))
        if found is None:
            with pytest.raises(InvalidXCom):
                publish(given, by_name)
        else:
            versions = {"target": "main.sales.busy", "target_version": 0, "version": 0, "seals": {}}
            versions["table_id"] = str(DeltaTable(str(tmp_path / "busy")).metadata().id)
            assert publish(given, by_name) == {"busy": versions}


@pytest.mark.parametrize(
    ("summary", "task_xcom"),
    [
        ([1], None),
        ({"busy": None}, None),
        ({"busy": {"status": "done"}}, None),
        ({"busy": {"status": "work", "source": "/evil"}}, None),
        ({"busy": {"status": "work", "target": ["/evil"]}}, None),
        ({"busy": {"status": "work", "version": HUGE}}, None),
        ({"busy": {"status": "work", "announced": {"target": "7"}}}, None),
        ({}, [{"pipeline": "busy", "ingested": 7}]),
        ({}, "x"),
        ({}, [{"pipeline": 1}]),
        ({}, [{"pipeline": "busy", "log_version": "7"}]),
        ({}, [{"pipeline": "busy", "counts": DEEP}]),
    ],
    ids=str,
)
def test_forged_versions_are_refused_by_name(tmp_path: Path, summary: Any, task_xcom: Any) -> None:
    ti = Ti(**{"detect_changes.tables": summary, "apply.return_value": task_xcom})
    with pytest.raises(InvalidXCom):
        publish(context(ti=ti), table(tmp_path, "busy"))


# -- at random ------------------------------------------------------------------------------------
def _values(draw: random.Random) -> Any:
    numbers = [None, True, 0, -1, HUGE, 1.5, float("nan")]
    texts = ["", "a", "/evil", "\ud800", "x" * 10**6, b"a"]
    return draw.choice([*numbers, *texts, [], {}, DEEP, {"a": 1}, {1: 2}, [item("a")], object()])


def _mutated(value: Any, draw: random.Random) -> Any:
    """Return a value with one random change, at any depth."""
    if isinstance(value, dict) and value and draw.random() < 0.8:
        name = draw.choice(list(value))
        how = draw.randrange(4)
        if how == 0:
            return {key: inner for key, inner in value.items() if key != name}
        if how == 1:
            return {**value, draw.choice(["table", "target", "pipeline", "x", ""]): _values(draw)}
        return {**value, name: _mutated(value[name], draw)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        at = draw.randrange(len(value))
        return [*value[:at], _mutated(value[at], draw), *value[at + draw.randrange(2) :]]
    return _values(draw)


def _mutations(value: Any, seed: int) -> Iterator[Any]:
    draw = random.Random(seed)
    for _ in range(4000):
        mutated = value
        for _ in range(draw.randrange(1, 4)):
            mutated = _mutated(mutated, draw)
        yield mutated


ANSWER = {
    "item_stamp": S1,
    "status": "failed",
    "try_stamp": "x",
    "error": NullKey("m", remedy="r").to_dict(),
    "effort": {"seconds": {"plan": 1.5}, "attempts_lost": 1},
    "saved_plans": {"pin:a:s": {"ending_version": 9, "fingerprints": ["f"]}, "since:a:t": {"version": 3}},
    "dry_run": {"applied": False, "dry_run": {"counts": {"inserted": 1}}},
}
SUMMARY = {"status": "work", "target_version": 3, "version": 9, "target": "/lake/a", "found": "x"}
READERS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "work": (
        [item("a"), item("b", located={"target": "/lake/b"})],
        lambda one: xcoms.items(one, ["a", "b"])[0],
    ),
    "answer": ({"a": ANSWER}, lambda one: xcoms.answer(one, "a", S1)),
    "summaries": ({"a": SUMMARY, "b": SUMMARY}, xcoms.summaries),
    "published": (
        [applied("a").to_dict()],
        lambda one: xcoms.published(one if type(one) is list else [one], {}),
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_random_values_are_read_or_refused_by_name(name: str) -> None:
    honest, read = READERS[name]
    read(honest)
    refused = 0
    for mutated in _mutations(honest, seed=37):
        try:
            found = read(mutated)
        except InvalidXCom:
            refused += 1
            continue
        if name == "work":
            assert {one.pipeline for one in found} <= {"a", "b"}
            assert all(len(one.found) <= 300_000 for one in found)
        if name == "answer" and found.status == "failed":
            assert isinstance(xcoms.error_of(found), DeltaCdcError)
    assert 1000 < refused < 4000, refused


def test_the_work_of_65_tables_is_small(tmp_path: Path) -> None:
    """The arguments are in the DAG, however long they are."""
    tables = [table(tmp_path, f"t{at:02}", select=["x" * 1000]) for at in range(65)]
    grow(tmp_path, "t00", 1)
    found, _ = detect(*[{**one, "source": tables[0]["source"]} for one in tables])
    assert len(found) == 65
    assert found[0]["fingerprint"] == prints(tables[0])
    assert len(json.dumps(found)) <= 20 * 1024
