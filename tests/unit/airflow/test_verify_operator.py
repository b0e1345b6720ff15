"""What the verify operator asks for, shows and raises; a stand-in takes the place of Spark."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_cdc.assets import delta_asset
from airflow_delta_cdc.operators import DeltaVerifyOperator
from airflow_delta_cdc.operators.verify import xcom_rows
from delta_cdc.core.checks import CHECKS, Verification, finding, ok
from delta_cdc.core.errors import InvalidConfiguration, JobFailed, TableNotFound, VerificationFailed
from delta_cdc.core.spec import JobResult
from delta_cdc.core.watermark import TableVersion
from delta_cdc.planning.reconcile import WatermarkBackup
from tests.support.logs import seal
from tests.support.tables import Tables
from tests.unit.airflow.test_apply_operator import AssetStores, Ti
from tests.unit.airflow.test_base_operator import Store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.airflow.conftest import StandIn

WRONG = finding("unique_keys", "1 key(s) have more than one row.", "RESTORE it.", samples=("id = 1",))


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    made = Tables.made_in(tmp_path)
    made.sealed(5)
    return made


def verify(**given: Any) -> tuple[Any, Ti]:
    """Run a task; return what it returns, or raises, and what it pushed."""
    stores, ti = given.pop("stores", AssetStores()), Ti()
    file, filled = given.pop("file", "/dags/one.py"), given.pop("filled", {})
    task = DeltaVerifyOperator(task_id="verify", **given)
    context = {
        "ti": ti,
        "run_id": "manual__1",
        "task": task,
        "dag": SimpleNamespace(fileloc=file),
        "task_state_store": Store(),
        "asset_state_store": stores,
        **filled,
    }
    try:
        return task.execute(context), ti  # type: ignore[arg-type]
    except Exception as error:  # noqa: BLE001 - what was pushed before it counts as well
        return error, ti


def answers(stand_in: StandIn, *parts: JobResult) -> None:
    """Let the application end with a result."""
    text = JobResult("committed", parts=parts).to_json()
    stand_in.does(f"cat > \"$result\" <<'END'\n{text}\nEND")


def test_none_is_the_name_of_a_pipeline(tables: Tables) -> None:
    rows, _ = verify(checks=["seal"], pipeline="none", target=tables.target.uri, on_finding="report")
    assert [(row["pipeline"], row["status"]) for row in rows] == [("none", "finding")]
    error, _ = verify(pipeline="none", config="c.yaml")
    assert "config and pipeline are given" in str(error)


def test_the_logs_alone_start_nothing(tables: Tables, stand_in: StandIn) -> None:
    rows, ti = verify(checks=["seal", "watermark"], pipeline="p", target=tables.target.uri)
    shown = [(row["check"], row["status"], row["version"]) for row in rows]
    assert shown == [("seal", "ok", 0), ("watermark", "ok", 0)]
    assert ti.pushed == {"return_value": rows}
    assert not stand_in.was_started


def test_findings_fail_the_task_after_they_were_published(tables: Tables, stand_in: StandIn) -> None:
    answers(stand_in, JobResult("committed", tables=(ok("null_keys").to_dict(), WRONG.to_dict())))
    given = {"pipeline": "p", "target": tables.target.uri}
    error, ti = verify(**given)
    assert isinstance(error, VerificationFailed)
    assert ("unique_keys" in error.message, "id = 1" in error.message) == (True, True)
    assert stand_in.spec["job"] == "batch"
    assert stand_in.spec["parallel"] == 4
    assert [part["checks"] for part in stand_in.spec["parts"]] == [
        ["null_keys", "unique_keys", "equals_source"]
    ]
    rows = ti.pushed["return_value"]
    assert [row["check"] for row in rows if row["status"] == "finding"] == ["unique_keys"]
    assert [row["check"] for row in rows] == [name for name in CHECKS if name != "equals_source"]
    rows, _ = verify(on_finding="report", **given)
    assert [row["check"] for row in rows if row["status"] == "finding"] == ["unique_keys"]
    # A target that could not be looked at fails the task in any case.
    answers(stand_in, JobResult("failed", error=JobFailed("gone.", remedy="again.").to_dict()))
    error, _ = verify(on_finding="report", **given)
    assert isinstance(error, JobFailed)


def test_a_configuration_beside_the_dag(tables: Tables, stand_in: StandIn, tmp_path: Path) -> None:
    flow = {"source": tables.source.uri, "target": "{{ lake }}/target", "keys": ["id"], "where": "id <> '{'"}
    other = {**flow, "target": "{{ lake }}/other"}
    written = {"pipelines": {"p": {**flow, "group": "g"}, "q": other}, "groups": {"g": {}}}
    (tmp_path / "flows.yaml").write_text(json.dumps(written))
    given = {"config": "flows.yaml", "file": str(tmp_path / "dag.py"), "checks": "seal"}
    given["on_finding"] = "report"

    def looked_at(**more: Any) -> list[tuple[str, str]]:
        rows, _ = verify(**given, **more, filled={"lake": str(tmp_path)})
        return [(row["pipeline"], row["status"]) for row in rows]

    assert looked_at() == [("p", "ok"), ("q", "finding")]
    assert looked_at(group="g") == [("p", "ok")]
    assert looked_at(tables=["q"]) == [("q", "finding")]
    written["pipelines"]["q"] = {**other, "where": "{{ 1 / 0 }}"}
    (tmp_path / "flows.yaml").write_text(json.dumps(written))
    assert looked_at(group="g") == [("p", "ok")]
    error, ti = verify(**given, filled={"lake": str(tmp_path)})
    assert "Cannot render the templates of q: ZeroDivisionError" in str(error)
    assert [row["status"] for row in ti.pushed["return_value"]] == ["ok"], "of p"
    error, _ = verify(**{**given, "tables": ["r"]}, filled={"lake": ""})
    assert "no pipeline 'r'" in str(error)


def test_the_copy_of_the_seal_is_looked_at_where_the_source_is_named(tables: Tables) -> None:
    stores = AssetStores()
    ahead = WatermarkBackup(
        seal(900, 5, source=tables.source), TableVersion(tables.target.table_id, 8)
    ).to_dict()
    stores.kept[delta_asset(tables.source.uri).uri, "committed:p"] = {"backup": ahead}
    given = {"pipeline": "p", "target": tables.target.uri, "checks": ["backup"], "stores": stores}
    error, _ = verify(source=tables.source.uri, **given)
    assert "seal 900" in str(error)
    (row,), _ = verify(**given)
    assert row["status"] == "skipped"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"pipeline": "p"}, "target is None"),
        ({"target": "/t"}, "pipeline is None"),
        ({"pipeline": "p", "target": "/t", "config": "c.yaml"}, "config and pipeline, target"),
        ({"pipeline": "p", "target": "/t", "group": "g"}, "group given without config"),
        ({"pipeline": "p", "target": "/t", "checks": ["all"]}, "checks is 'all'"),
    ],
)
def test_what_cannot_be_meant(given: dict[str, Any], told: str) -> None:
    error, _ = verify(**given)
    assert isinstance(error, InvalidConfiguration)
    assert told in str(error)


def test_an_xcom_holds_what_fits() -> None:
    sound = Verification("p", "/t", 1, tuple(ok(name, "x" * 500) for name in CHECKS))
    broken = Verification("q", "/u", 1, (WRONG,))
    assert len(xcom_rows([sound, broken])) == len(CHECKS) + 1
    *wrong, rest = xcom_rows([sound] * 100 + [broken])[:2]
    assert wrong == broken.to_rows()
    assert (rest["check"], rest["status"], rest["detail"]) == ("all", "ok", "11 ok, 0 skipped.")
    assert len(xcom_rows([sound] * 100)) == 100
    assert 0 < len(xcom_rows([broken] * 1_000)) < 1_000


def test_a_table_that_cannot_be_found_stops_no_other(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = {"source": tables.source.uri, "keys": ["id"]}
    written = {
        "p": {**flow, "target": tables.target.uri},
        "named": {**flow, "target": "main.sales.new"},
        "unset": {**flow, "target": "${NOWHERE_TO_BE_FOUND}/t"},
    }
    (tmp_path / "flows.yaml").write_text(json.dumps({"pipelines": written}))

    asked: list[list[str]] = []

    def located(operator: Any, context: Any, names: list[str]) -> dict[str, Any]:
        asked.append(names)
        missing = TableNotFound("There is no main.sales.new.", remedy="check it.")
        return {name: missing if name == "main.sales.new" else name for name in names}

    monkeypatch.setattr("airflow_delta_cdc.operators.verify.each_located", located)
    given = {"config": "flows.yaml", "file": str(tmp_path / "dag.py"), "checks": "seal"}
    error, ti = verify(**given)
    assert isinstance(error, VerificationFailed)
    assert "main.sales.new" in error.message
    assert len(asked) == 1
    assert [(row["pipeline"], row["status"]) for row in ti.pushed["return_value"]] == [
        ("named", "finding"),
        ("p", "ok"),
    ]
    error, _ = verify(**given, tables=["unset", "p"], on_finding="report")
    assert isinstance(error, InvalidConfiguration)
    assert "unset" in error.message
