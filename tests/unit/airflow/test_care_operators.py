"""Optimize, vacuum and expiry as tasks: what they ask for, what they publish, and when they start nothing."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import jinja2
import pytest

from airflow_delta_cdc.operators import (
    DeltaEraseOperator,
    DeltaExpireEventsOperator,
    DeltaOptimizeOperator,
    DeltaVacuumOperator,
)
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from delta_cdc.core import validation
from delta_cdc.core.errors import (
    ConcurrentModification,
    InvalidConfiguration,
    TableNotFound,
    TablesFailed,
    VacuumWouldLose,
)
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.properties import LATENESS_HORIZON
from delta_cdc.core.spec import (
    BatchSpec,
    EraseSpec,
    ExpireSpec,
    JobResult,
    OptimizeSpec,
    ResolveSpec,
    VacuumSpec,
)
from tests.support.logs import LogTable, seal
from tests.support.tables import Tables

if TYPE_CHECKING:
    from delta_cdc.core.spec import Spec
    from tests.unit.airflow.conftest import Records

GONE = "main.sales.gone"
LOG = ApplyOptions(keys=("id",), source_kind="change_log", sequence_by="at")


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """A log with events in versions 1-5, and a target that has them all."""
    made = Tables.made_in(tmp_path)
    configuration = {**validation.described(LOG), "sequence_by_type": "bigint"}
    made.sealed(5, configuration=configuration, highest_sequence="40")
    return made


class Spark:
    """Stands for the application: notes what it is asked to do, and answers as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.applications = 0
        self.specs: list[Any] = []
        self.answers: dict[str, JobResult] = {}
        self.tables: list[dict[str, Any]] = []
        monkeypatch.setattr(DeltaCdcOperator, "run_job", lambda _, context, spec: self.run(spec))
        monkeypatch.setattr(DeltaCdcOperator, "forget_job", lambda _, context: None)

    def run(self, spec: Spec) -> JobResult:
        if isinstance(spec, ResolveSpec):
            return JobResult("committed", tables=tuple(self.tables))
        assert isinstance(spec, BatchSpec)
        self.applications += 1
        self.specs.extend(spec.parts)
        return JobResult("committed", parts=tuple(self._one(part) for part in spec.parts))

    def _one(self, spec: Any) -> JobResult:
        done = JobResult("committed", tables=({"table": spec.table_uri, "deleted": 3, "horizon": "30"},))
        return self.answers.get(spec.table_uri, done)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    return Spark(monkeypatch)


def context(**more: Any) -> Any:
    return {"run_id": "r", **more}


def consumers(tables: Tables) -> list[dict[str, str]]:
    return [{"pipeline": "p", "target": tables.target.uri}]


# -- optimize ---------------------------------------------------------------------------------------
def test_optimize_asks_for_what_it_was_told(
    tables: Tables, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE", str(Path(tables.source.uri).parent))
    given: dict[str, Any] = {"where": "p = 1", "zorder_by": ["a", "b"], "single_driver": "true", "full": ""}
    (row,) = DeltaOptimizeOperator(task_id="t", table="${LAKE}/source", **given).execute(context())
    (spec,) = spark.specs
    wanted = {"where": "p = 1", "zorder_by": ("a", "b"), "single_driver": True}
    assert spec == OptimizeSpec(run_id="r", table_uri=tables.source.uri, **wanted)
    assert (row["table"], row["status"]) == (tables.source.uri, "done")
    assert spec.locations == [tables.source.uri]


def test_several_tables_share_one_application(tables: Tables, spark: Spark, tmp_path: Path) -> None:
    more = LogTable(tmp_path / "more").create()
    more.append()
    more.append()
    empty = LogTable(tmp_path / "empty").create()
    failed = ConcurrentModification("Somebody was quicker.", remedy="again.")
    spark.answers[more.uri] = JobResult("failed", error=failed.to_dict())
    named = [tables.source.uri, empty.uri, more.uri, str(tmp_path / "nothing")]
    operator = DeltaOptimizeOperator(task_id="t", tables=named)
    with pytest.raises(TablesFailed, match=r"ConcurrentModification: Somebody .*TableNotFound"):
        operator.execute(context())
    assert spark.applications == 1
    assert all(isinstance(spec, OptimizeSpec) for spec in spark.specs)
    assert [spec.table_uri for spec in spark.specs] == [tables.source.uri, more.uri]
    (row,) = DeltaOptimizeOperator(task_id="t", table=empty.uri).execute(context())
    assert (row["status"], row["note"], spark.applications) == ("nothing", "the table is empty", 1)
    with pytest.raises(TableNotFound):
        DeltaOptimizeOperator(task_id="t", table=named[-1]).execute(context())
    for given in ({}, {"table": "/a", "tables": ["/b"]}, {"tables": []}):
        with pytest.raises(InvalidConfiguration, match="tables"):
            DeltaOptimizeOperator(task_id="t", **given).execute(context())
    why = TableNotFound("There is no session.", remedy="make one.")
    spark.run = lambda spec: JobResult("failed", error=why.to_dict())  # type: ignore[method-assign]
    with pytest.raises(TableNotFound, match="no session"):
        DeltaOptimizeOperator(task_id="t", tables=[tables.source.uri, more.uri]).execute(context())


def test_a_name_that_is_gone_does_not_stop_the_other_tables(tables: Tables, spark: Spark) -> None:
    spark.tables = [{"table": GONE, "error": TableNotFound(f"{GONE} does not exist.", remedy="x.").to_dict()}]
    operator = DeltaOptimizeOperator(task_id="t", tables=[tables.source.uri, GONE])
    with pytest.raises(TableNotFound, match=GONE):
        operator.execute(context())
    assert [spec.table_uri for spec in spark.specs] == [tables.source.uri]


# -- vacuum ----------------------------------------------------------------------------------------
def test_vacuum_names_who_would_lose(tables: Tables, spark: Spark) -> None:
    tables.source.append(at=1_000)
    operator = DeltaVacuumOperator(task_id="t", table=tables.source.uri, consumers=consumers(tables))
    with pytest.raises(VacuumWouldLose, match=r"p \(.*version 6"):
        operator.execute(context())
    assert spark.specs == []
    operator.extend_retention = "True"
    operator.execute(context())
    (spec,) = spark.specs
    assert isinstance(spec, VacuumSpec)
    assert set(spec.properties) == {"delta.deletedFileRetentionDuration", "delta.logRetentionDuration"}


def test_vacuum_says_what_it_deleted(tables: Tables, spark: Spark) -> None:
    run = spark.run

    def vacuums(spec: Spec) -> JobResult:
        metrics = {"numDeletedFiles": "4", "sizeOfDataToDelete": "70"}
        tables.source.commit("VACUUM START", metrics=metrics)
        tables.source.commit("VACUUM END", metrics=metrics)
        return run(spec)

    spark.run = vacuums  # type: ignore[method-assign]
    operator = DeltaVacuumOperator(
        task_id="t", table=tables.source.uri, consumers=consumers(tables), full=False
    )
    (row,) = operator.execute(context())
    (spec,) = spark.specs
    assert isinstance(spec, VacuumSpec)
    assert (spec.lite, spec.files, spec.dry_run) == (True, 5, False)
    assert (row["files"], row["bytes"], row["retention"]) == (4, 70, "7.0 days")
    assert "version" not in row


def test_consumers_by_a_configuration(tables: Tables, spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(tables.source.uri).parent
    monkeypatch.setenv("LAKE", str(folder))
    (folder / "pipelines.yaml").write_text(
        "pipelines:\n  p: {source: '${LAKE}/source', target: '${LAKE}/target', keys: [id]}\n"
        "  q: {source: '${LAKE}/other', target: '${LAKE}/unknown', keys: [id]}\n"
    )
    tables.source.append(at=1_000)
    operator = DeltaVacuumOperator(task_id="t", table=tables.source.uri, config="pipelines.yaml")
    dag = SimpleNamespace(fileloc=str(folder / "dag.py"), get_template_env=lambda **_: None)
    with pytest.raises(VacuumWouldLose, match=r"p \(.*version 6"):
        operator.execute(context(dag=dag))
    assert spark.specs == []


@pytest.mark.parametrize(
    ("of_p", "of_q", "problem"),
    [
        (
            {"target": "{{ folder }}/{{ id }}"},
            {},
            "Pipeline p has not committed .* whose location a template",
        ),
        (
            {"source": "{{ folder }}/a-{{ id }}", "target": "{{ folder }}/b-{{ id }}"},
            {},
            "Pipeline p has not",
        ),
        ({"target": "{{ 1 / 0 }}"}, {}, "Cannot render the templates of p: ZeroDivisionError"),
        ({"source": "{{ 1 / 0 }}", "target": "{{ folder }}/{{ id }}"}, {}, "the templates of p: Zero"),
        ({}, {"target": "{{ 1 / 0 }}"}, None),
        ({}, {"where": "{{ 1 / 0 }}"}, None),
    ],
)
def test_a_consumer_with_templates_of_another_dag(
    tables: Tables, spark: Spark, monkeypatch: pytest.MonkeyPatch, of_p: Any, of_q: Any, problem: str | None
) -> None:
    """What another DAG renders differently, or this one cannot render, may have run."""
    folder = Path(tables.source.uri).parent
    p = {"source": tables.source.uri, "target": tables.target.uri, "keys": ["id"], **of_p}
    q = {"source": f"{folder}/else", "target": f"{folder}/q", "keys": ["id"], **of_q}
    (folder / "pipelines.yaml").write_text(json.dumps({"pipelines": {"p": p, "q": q}}))
    operator = DeltaVacuumOperator(task_id="t", table=tables.source.uri, config="pipelines.yaml")
    monkeypatch.setattr(operator, "get_template_env", lambda *_, **__: jinja2.Environment())
    dag = SimpleNamespace(fileloc=str(folder / "dag.py"))
    given = context(dag=dag, folder=str(folder), id="maintenance")
    if problem is None:
        operator.execute(given)
    else:
        with pytest.raises(VacuumWouldLose, match=problem):
            operator.execute(given)
    assert bool(spark.specs) == (problem is None)


def test_who_is_named_has_to_be_the_one(tables: Tables, spark: Spark, tmp_path: Path) -> None:
    def run(*consumers: dict[str, str]) -> None:
        DeltaVacuumOperator(task_id="t", table=tables.source.uri, consumers=consumers).execute(context())

    with pytest.raises(VacuumWouldLose, match="Pipeline p has not committed"):
        run({"pipeline": "p", "target": str(tmp_path / "tarjet")})
    other = LogTable(tmp_path / "other", table_id="other").create()
    elsewhere = LogTable(tmp_path / "elsewhere")
    elsewhere.write_seal(seal(1, 0, source=other))
    assert spark.specs == []
    # One list of consumers serves several tasks: that of another table is left out.
    run({"pipeline": "p", "target": elsewhere.uri})
    # The same table by another name.
    link = tmp_path / "link"
    link.symlink_to(tables.source.uri)
    run({"pipeline": "p", "target": tables.target.uri, "source": str(link)})
    assert len(spark.specs) == 2
    with pytest.raises(VacuumWouldLose, match="Pipeline p has not committed"):
        run({"pipeline": "p", "target": str(tmp_path / "tarjet"), "source": str(link)})


def test_a_consumer_without_a_place_is_named_and_stops_nobody_else(
    tables: Tables, spark: Spark, tmp_path: Path
) -> None:
    named = {"pipeline": "q", "target": "${NOWHERE}/t"}
    operator = DeltaVacuumOperator(
        task_id="t", table=tables.source.uri, consumers=[*consumers(tables), named]
    )
    with pytest.raises(VacuumWouldLose, match=r"the progress of q .*NOWHERE"):
        operator.execute(context())
    assert spark.specs == []
    operator.consumers = [*consumers(tables), {**named, "source": str(tmp_path / "else")}]
    operator.execute(context())
    assert len(spark.specs) == 1


# -- expiry ---------------------------------------------------------------------------------------
def test_expiry_of_a_log(tables: Tables, spark: Spark) -> None:
    operator = DeltaExpireEventsOperator(
        task_id="t", table=tables.source.uri, consumers=consumers(tables), horizon=30
    )
    (row,) = operator.execute(context())
    (spec,) = spark.specs
    assert isinstance(spec, ExpireSpec)
    assert (spec.below, spec.horizon) == (None, "30")
    assert (row["status"], row["deleted"], row["horizon"]) == ("done", 3, "30")
    tables.source.set_properties(**{LATENESS_HORIZON: "30"})
    tables.source.append()
    operator.horizon, operator.dry_run = "30", "true"  # type: ignore[method-assign, assignment]
    operator.execute(context())
    assert isinstance(spark.specs[1], ExpireSpec)
    assert (spark.specs[1].below, spark.specs[1].dry_run) == ("30", True)
    # Nothing is deleted that somebody has not got.
    tables.sealed(3, 101, configuration=validation.described(LOG))
    (row,) = operator.execute(context())
    assert (row["status"], "waits until p" in row["note"]) == ("nothing", True)
    operator.consumers = None
    with pytest.raises(InvalidConfiguration, match="No consumer"):
        operator.execute(context())
    assert len(spark.specs) == 2


def test_every_argument_is_rendered() -> None:
    """What a task is given is rendered, so every argument that may be a template is a template field."""
    for cls in (DeltaOptimizeOperator, DeltaVacuumOperator, DeltaExpireEventsOperator):
        own = set(cls.__init__.__wrapped__.__annotations__) - {"return", "kwargs"}  # type: ignore[attr-defined]
        assert own <= set(cls.template_fields)


# -- erase ------------------------------------------------------------------------------------------
def test_an_erasure_goes_through_the_configuration(
    tables: Tables, spark: Spark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAKE", str(tmp_path))
    (tmp_path / "pipelines.yaml").write_text(
        """
pipelines:
  first: {source: /elsewhere, target: "${LAKE}/source", keys: [id]}
  p: {source: "${LAKE}/source", target: "${LAKE}/target", keys: [id]}
  other: {source: /elsewhere, target: "${LAKE}/other", keys: [id]}
"""
    )
    operator = DeltaEraseOperator(
        task_id="t", key={"id": 17}, config="pipelines.yaml", pipelines="first", quarantined_records="true"
    )
    dag = SimpleNamespace(fileloc=str(tmp_path / "dag.py"))
    monkeypatch.setattr(DeltaEraseOperator, "render_template", lambda _, value, context: value)
    rows = operator.execute(context(dag=dag))
    assert [type(spec) for spec in spark.specs] == [EraseSpec, EraseSpec]
    assert [spec.table_uri for spec in spark.specs] == [tables.source.uri, tables.target.uri]
    assert all(spec.keys == ({"id": "17"},) and spec.deletes_records for spec in spark.specs)
    assert [(row["table"], row["status"]) for row in rows] == [
        (tables.source.uri, "done"),
        (tables.target.uri, "done"),
        (f"{tables.source.uri}__quarantine", "nothing"),
        (f"{tables.target.uri}__quarantine", "nothing"),
    ]
    assert rows[0]["version"] == tables.source.version


@pytest.mark.parametrize("dry_run", [True, False])
def test_the_log_of_an_erasure_says_whether_it_was_a_dry_run(
    tables: Tables, spark: Spark, records: Records, monkeypatch: pytest.MonkeyPatch, *, dry_run: bool
) -> None:
    monkeypatch.setattr(DeltaEraseOperator, "log", records)
    entry = {"pipeline": "p", "target": tables.target.uri}
    DeltaEraseOperator(task_id="t", key={"id": 17}, tables=[entry], dry_run=dry_run).execute(context())
    report = next(text for text in records.at("info") if "old_versions_until" in text)
    assert report.startswith(
        "Dry run: nothing was written." if dry_run else "The erased rows, and until when"
    )


def test_what_is_no_key_is_hidden_too(tables: Tables) -> None:
    entry = {"pipeline": "p", "target": tables.target.uri}
    operator = DeltaEraseOperator(task_id="t", key="{{ params.id }}", tables=[entry])  # type: ignore[arg-type]
    operator.render_template_fields({"params": {"id": 174_174}}, operator.get_template_env())  # type: ignore[arg-type]
    assert operator.key == "***"
    with pytest.raises(InvalidConfiguration, match="key is no mapping"):
        operator.read_arguments()


def test_an_erasure_of_named_tables(tables: Tables, spark: Spark) -> None:
    entry = {"pipeline": "p", "source": "kafka://broker/t", "target": tables.target.uri}
    operator = DeltaEraseOperator(task_id="t", key='{"id": "17"}', tables=[entry], dry_run="true")  # type: ignore[arg-type]
    operator.execute(context())
    (spec,) = spark.specs
    assert (spec.table_uri, spec.dry_run, spec.remembers) == (tables.target.uri, True, True)
    given: dict[str, Any]
    for given, problem in (
        ({"tables": [entry], "key": {}}, "key has no value"),
        ({"tables": [entry], "key": {"id": " "}}, "key has no value"),
        ({}, "config and tables"),
        ({"tables": [entry], "config": "a.yaml"}, "config and tables"),
        ({"tables": [entry], "group": "g"}, "config and tables"),
        ({"tables": [{"target": "/t"}]}, "tables has an entry"),
        ({"tables": [{**entry, "keys": "id"}]}, "tables has an entry"),
    ):
        with pytest.raises(InvalidConfiguration, match=problem):
            DeltaEraseOperator(**{"task_id": "t", "key": {"id": "1"}, **given}).execute(context())
    with pytest.raises(InvalidConfiguration, match="has the columns id"):
        DeltaEraseOperator(task_id="t", key={"name": "1"}, tables=[entry]).execute(context())
    assert spark.applications == 1


@pytest.mark.parametrize("key", [{"id": "{{ params.id }}"}, '{"id": "{{ params.id }}"}'])
def test_the_rendered_arguments_hide_the_erased_key(tables: Tables, spark: Spark, key: Any) -> None:
    entry = {"pipeline": "p", "target": tables.target.uri}
    operator = DeltaEraseOperator(task_id="t", key=key, tables=[entry])
    operator.render_template_fields({"params": {"id": 174_174}}, operator.get_template_env())  # type: ignore[arg-type]
    assert str(operator.key) == "{'id': '***'}"
    assert "174174" not in str({name: getattr(operator, name) for name in operator.template_fields})
    operator.read_arguments()
    operator.execute(context())
    (spec,) = spark.specs
    assert isinstance(spec, EraseSpec)
    assert spec.keys == ({"id": "174174"},)
