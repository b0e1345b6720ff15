"""Which tables ``DeltaEraseOperator`` erases from, and which consumers it leaves old files for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_cdc.operators import DeltaEraseOperator
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.spec import BatchSpec, EraseSpec, JobResult, ResolveSpec, VacuumSpec
from delta_cdc.planning import vacuum
from tests.support.logs import EPOCH, SECOND
from tests.support.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

DAY = 86_400 * SECOND
CONFIGURATION = """
pipelines:
  first: {source: /elsewhere, target: "${LAKE}/source", keys: [id]}
  p: {source: "${LAKE}/source", target: "${LAKE}/target", keys: [id]}
"""


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    # The locations of names are kept there.
    monkeypatch.setenv("DELTA_CDC_HOME", str(tmp_path / "home"))
    return Tables.made_in(tmp_path)


class Spark:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.specs: list[Any] = []
        self.names: list[dict[str, Any]] = []
        monkeypatch.setattr(DeltaCdcOperator, "run_job", lambda _, context, spec: self.run(spec))
        monkeypatch.setattr(DeltaCdcOperator, "forget_job", lambda _, context: None)

    def run(self, spec: Any) -> JobResult:
        if isinstance(spec, ResolveSpec):
            return JobResult("committed", tables=tuple(self.names))
        assert isinstance(spec, BatchSpec)
        self.specs.extend(spec.parts)
        done = JobResult("committed", tables=({"deleted": 1},))
        return JobResult("committed", parts=tuple(done for _ in spec.parts))


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    return Spark(monkeypatch)


@pytest.mark.parametrize("how", ["config", "tables"])
def test_the_task_purges_nothing_that_a_consumer_needs(
    tables: Tables, spark: Spark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    tables.sealed(2)
    monkeypatch.setattr(vacuum, "now_ms", lambda: EPOCH + 30 * DAY)
    monkeypatch.setenv("LAKE", str(tmp_path))
    (tmp_path / "pipelines.yaml").write_text(CONFIGURATION)
    flows = [
        {"pipeline": "first", "target": tables.source.uri},
        {"pipeline": "p", "source": tables.source.uri, "target": tables.target.uri},
    ]
    given = {"config": "pipelines.yaml", "pipelines": "first"} if how == "config" else {"tables": flows}
    operator = DeltaEraseOperator(task_id="t", key={"id": 17}, purge=True, **given)
    monkeypatch.setattr(DeltaEraseOperator, "render_template", lambda _, value, context: value)
    dag = SimpleNamespace(fileloc=str(tmp_path / "dag.py"))
    rows = operator.execute({"run_id": "r", "dag": dag})
    vacuumed = [spec.table_uri for spec in spark.specs if isinstance(spec, VacuumSpec)]
    assert tables.source.uri not in vacuumed, rows


def test_the_task_erases_downstream_of_a_table_by_its_other_name(
    tables: Tables, spark: Spark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tables.sealed(2)
    monkeypatch.setenv("LAKE", str(tmp_path))
    text = CONFIGURATION.replace('source: "${LAKE}/source"', "source: main.source")
    (tmp_path / "pipelines.yaml").write_text(text)
    detail = {"table": "main.source", "location": tables.source.uri, "table_id": tables.source.table_id}
    spark.names = [detail]
    operator = DeltaEraseOperator(task_id="t", key={"id": 17}, config="pipelines.yaml", pipelines="first")
    monkeypatch.setattr(DeltaEraseOperator, "render_template", lambda _, value, context: value)
    dag = SimpleNamespace(fileloc=str(tmp_path / "dag.py"))
    operator.execute({"run_id": "r", "dag": dag})
    erased = [spec.table_uri for spec in spark.specs if isinstance(spec, EraseSpec)]
    assert tables.target.uri in erased


def test_a_pipeline_whose_templates_fail_is_refused_alone(
    tables: Tables, spark: Spark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    tables.sealed(2)
    monkeypatch.setenv("LAKE", str(tmp_path))
    late = '  late: {source: "{{ 1 / 0 }}/source", target: /late, keys: [id], where: "{{ 1 / 0 }}"}\n'
    fine = '  p: {source: "${LAKE}/source", target: "${LAKE}/target", keys: [id], where: "{{ 1 / 0 }}"}\n'
    (tmp_path / "pipelines.yaml").write_text(f"pipelines:\n{late}{fine}")
    context: Any = {"run_id": "r", "dag": SimpleNamespace(fileloc=str(tmp_path / "dag.py"))}

    def erased(**given: Any) -> list[str]:
        spark.specs.clear()
        operator = DeltaEraseOperator(task_id="t", key={"id": 17}, config="pipelines.yaml", **given)
        operator.execute(context)
        return [spec.table_uri for spec in spark.specs if isinstance(spec, EraseSpec)]

    # A template outside of a pipeline's tables does not matter.
    assert tables.target.uri in erased(pipelines="p")
    assert "If that pipeline reads these tables, erase the key there too" in capsys.readouterr().out
    with pytest.raises(InvalidConfiguration, match="Cannot render the templates of late"):
        erased()
    assert tables.target.uri in [spec.table_uri for spec in spark.specs if isinstance(spec, EraseSpec)]


def test_a_staging_table_alone_is_refused(tables: Tables, spark: Spark) -> None:
    entry = {"pipeline": "p", "source": tables.source.uri, "staging": tables.staging.uri}
    with pytest.raises(InvalidConfiguration, match="tables has an entry"):
        DeltaEraseOperator(task_id="t", key={"id": 1}, tables=[entry]).execute({"run_id": "r"})
