"""What the why operator asks for, shows and raises; a stand-in takes the place of Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_cdc.assets import delta_asset
from airflow_delta_cdc.operators import DeltaWhyOperator
from airflow_delta_cdc.operators.why import xcom_answer
from delta_cdc.core import codec
from delta_cdc.core.errors import DeltaCdcError, InvalidConfiguration, JobFailed, TableNotFound
from delta_cdc.core.spec import JobResult
from delta_cdc.core.why import Answer, Change, ExplainedRow, Found, NotTaken, TargetRow, Value, Where
from tests.support.tables import Tables
from tests.unit.airflow.test_apply_operator import Ti
from tests.unit.airflow.test_base_operator import Store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.airflow.conftest import Records, StandIn

FOUND = Found(
    columns=("id", "v"),
    rows=(TargetRow(("1", '"a"')),),
    changes=(Change("base", values=("1", None)), Change("upsert", "5", ("1", '"a"'), version=5)),
)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    made = Tables.made_in(tmp_path)
    made.sealed(5)
    return made


def why(**given: Any) -> Any:
    """Run a task; return what it returns, or raises."""
    file, filled, records = given.pop("file", "/dags/one.py"), given.pop("filled", {}), given.pop("log", None)
    task = DeltaWhyOperator(task_id="why", **given)
    if records is not None:
        task._cached_logger = records
    context = {
        "ti": Ti(),
        "run_id": "manual__1",
        "task": task,
        "dag": SimpleNamespace(fileloc=file),
        "task_state_store": Store(),
        **filled,
    }
    try:
        return task.execute(context)  # type: ignore[arg-type]
    except DeltaCdcError as error:
        return error


def answers(stand_in: StandIn, *parts: JobResult) -> None:
    """Let the application end with a result."""
    text = JobResult("committed", parts=parts).to_json()
    stand_in.does(f"cat > \"$result\" <<'END'\n{text}\nEND")


def found(answer: Found = FOUND) -> JobResult:
    return JobResult("committed", tables=(codec.encoded(answer),))


def test_the_answer_is_logged_and_returned(tables: Tables, stand_in: StandIn, records: Records) -> None:
    answers(stand_in, found())
    shown = why(pipeline="p", target=tables.target.uri, key="id=1", max_bytes="2GiB", log=records)
    (part,) = stand_in.spec["parts"]
    assert (part["job"], part["key"], part["most_bytes"]) == ("why", {"id": "1"}, 2 << 30)
    assert (shown["pipeline"], shown["key"], shown["version"]) == ("p", {"id": "1"}, 0)
    ((id_, v),) = [row["values"] for row in shown["rows"]]
    assert (v["column"], v["value"], v["since"]["version"]) == ("v", '"a"', 5)
    assert id_["since"] is None
    assert id_["note"]
    text = "\n".join(records.at("info"))
    assert "p: id = 1 in version 0 of" in text
    assert "left_out" not in shown

    shown = why(pipeline="p", target=tables.target.uri, key={"id": 1}, columns="V")
    assert [[one["column"] for one in row["values"]] for row in shown["rows"]] == [["v"]]
    error = why(pipeline="p", target=tables.target.uri, key={"id": 1}, columns=["w"])
    assert isinstance(error, InvalidConfiguration)
    assert "has no column w" in str(error)


def test_none_is_the_name_of_a_pipeline(tables: Tables) -> None:
    error = why(pipeline="none", target=tables.target.uri, key="id=1")
    assert "pipeline none" in str(error)


def test_an_older_version(tables: Tables, stand_in: StandIn) -> None:
    tables.target.append()
    answers(stand_in, found())
    given = {"pipeline": "p", "target": tables.target.uri, "key": "id=1"}
    assert why(**given)["version"] == 1
    assert why(**given, at=0)["version"] == 0
    assert "at is 7" in str(why(**given, at="7"))


def test_an_error_of_the_job_is_that_of_the_task(tables: Tables, stand_in: StandIn) -> None:
    answers(stand_in, JobResult("failed", error=JobFailed("gone.", remedy="again.").to_dict()))
    error = why(pipeline="p", target=tables.target.uri, key="id=1")
    assert isinstance(error, JobFailed)
    assert error.message == "gone."


def test_a_pipeline_of_a_configuration(tables: Tables, stand_in: StandIn, tmp_path: Path) -> None:
    flow = {"source": tables.source.uri, "target": "{{ lake }}/target", "keys": ["id"], "where": "id <> '{'"}
    log = {"log": "/lake/log", "adapter_options": {"sequence_by": "at"}}
    events = {"source": "/landing", "keys": ["id"], **log}
    (tmp_path / "flows.yaml").write_text(json.dumps({"pipelines": {"p": flow}}))
    (tmp_path / "two.yaml").write_text(json.dumps({"pipelines": {"p": flow, "q": events}}))
    answers(stand_in, found())
    given = {"file": str(tmp_path / "dag.py"), "key": "id=1", "filled": {"lake": str(tmp_path)}}
    assert why(config="flows.yaml", **given)["target"] == tables.target.uri
    assert why(config="two.yaml", pipeline="p", **given)["pipeline"] == "p"
    broken = {**flow, "where": "{{ 1 / 0 }}"}
    (tmp_path / "broken.yaml").write_text(json.dumps({"pipelines": {"p": flow, "q": broken}}))
    assert why(config="broken.yaml", pipeline="p", **given)["pipeline"] == "p"
    for more, problem in (
        ({"config": "broken.yaml", "pipeline": "q"}, "Cannot render the templates of q: ZeroDivisionError"),
        ({"config": "two.yaml"}, "two.yaml has 2 pipelines"),
        ({"config": "two.yaml", "pipeline": "r"}, "no pipeline 'r'"),
        ({"config": "two.yaml", "pipeline": "q"}, "No pipeline applies the change log of q"),
        ({"config": "flows.yaml", "target": "/t"}, "config and target are given"),
        ({"config": "flows.yaml", "source": "/s"}, "config and source are given"),
    ):
        error = why(**more, **given)
        assert isinstance(error, InvalidConfiguration)
        assert problem in str(error)


def test_catalog_names_become_locations(
    tables: Tables, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {"main.sales.t": tables.target.uri, "main.sales.s": tables.source.uri}
    sought: list[list[str]] = []

    def located(operator: Any, context: Any, names: list[str]) -> dict[str, str]:
        sought.append(names)
        if "main.sales.gone" in names:
            raise TableNotFound("There is no main.sales.gone.", remedy="check it.")
        return {name: places[name] for name in names}

    monkeypatch.setattr("airflow_delta_cdc.lookups.located", located)
    answers(stand_in, found())
    shown = why(pipeline="p", target="main.sales.t", source="main.sales.s", key="id=1")
    assert (shown["target"], sought) == (tables.target.uri, [["main.sales.t", "main.sales.s"]])
    assert isinstance(why(pipeline="p", target="main.sales.gone", key="id=1"), TableNotFound)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"pipeline": "p", "key": "id=1"}, "target is None"),
        ({"target": "/t", "key": "id=1"}, "pipeline is None"),
        ({"pipeline": "p", "target": "/t"}, "has no key"),
        ({"pipeline": "p", "target": "/t", "key": "{{ none }}"}, "key is"),
    ],
)
def test_what_cannot_be_meant(given: dict[str, Any], problem: str) -> None:
    error = why(**given)
    assert isinstance(error, InvalidConfiguration)
    assert problem in str(error)


def test_a_key_of_other_columns(tables: Tables, stand_in: StandIn) -> None:
    error = why(pipeline="p", target=tables.target.uri, key="ident=1")
    assert isinstance(error, InvalidConfiguration)
    assert "ident" in str(error)
    assert not stand_in.was_started


def test_the_source_is_an_inlet() -> None:
    task = DeltaWhyOperator(task_id="why", pipeline="p", target="/t", source="/s", key="id=1")
    assert task.inlets == [delta_asset("/s")]
    assert DeltaWhyOperator(task_id="x", pipeline="p", target="/t", key="id=1", source="{{ s }}").inlets == []


def test_an_xcom_holds_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(rows: int, size: int, lost: int = 0) -> Answer:
        values = tuple(Value("v", "x" * size, Where(version=1)) for _ in range(1))
        return Answer(
            *("p", "/t", {"id": "1"}, 3, "/s", 5),
            rows=tuple(ExplainedRow(values, start=str(number)) for number in range(rows)),
            not_taken=(NotTaken("late", Where(), {"v": "y" * lost}),) if lost else (),
        )

    small = answer(2, 10, 10)
    assert xcom_answer(replace(small, upstream=small)) == replace(small, upstream=small).to_dict()

    def left(one: Answer) -> tuple[list[str], int]:
        shown = xcom_answer(one)
        assert len(json.dumps(shown)) <= 48 * 1024
        return shown["left_out"], len(shown["rows"])

    big = answer(1, 10, 40_000)
    assert left(replace(big, upstream=big)) == (["upstream"], 1)
    assert left(answer(3, 10_000, 40_000)) == (["not_taken"], 3)
    # The newest rows stay.
    assert left(answer(9, 10_000, 40_000)) == (["not_taken", "5 of 9 rows"], 4)
    assert [row["start"] for row in xcom_answer(answer(9, 10_000))["rows"]] == ["5", "6", "7", "8"]
    assert left(answer(1, 50_000)) == (["1 of 1 rows"], 0)

    # A history with many rows: each is measured a few times, not once for each row that is left out.
    measured = 0
    whole = json.dumps

    def counted(value: Any) -> str:
        nonlocal measured
        text = whole(value)
        measured += len(text)
        return text

    many = answer(2000, 100)
    monkeypatch.setattr("airflow_delta_cdc.operators.why.json.dumps", counted)
    xcom_answer(many)
    assert measured < 5 * len(whole(many.to_dict()))
