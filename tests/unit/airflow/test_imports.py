"""What a DAG file pays for importing the provider."""

from __future__ import annotations

from importlib import import_module

import pytest

from airflow_delta_cdc import engine, operators
from tests.support.imports import loaded

HEAVY = (
    *("pyspark", "pandas", "pyarrow", "numpy", "grpc", "deltalake", "obstore", "pydantic", "openlineage"),
    *("yaml", "aiohttp", "requests", "jinja2", "sqlalchemy", "pendulum", "confluent_kafka", "fastavro"),
)
#: Modules of ``core`` with so many dataclasses that their import takes longer than that of all others.
ONLY_FOR_RUNS = {f"delta_cdc.core.{name}" for name in ("spec", "steps", "requests", "shadow", "watermark")}
#: Modules of the provider that the parsing of a DAG file does not need.
ONLY_FOR_TASKS = {"publishing", "lineage", "runtime", "hooks.submit", "hooks.connect", "approval"}


@pytest.mark.parametrize(
    "modules",
    [
        {"airflow_delta_cdc.operators", "airflow_delta_cdc.sensors", "airflow_delta_cdc.triggers"},
        {"airflow_delta_cdc.dags", "airflow_delta_cdc.decorators", "airflow_delta_cdc.hooks.table"},
    ],
    ids=["operators", "dags"],
)
def test_importing_pulls_nothing_heavy(modules: set[str]) -> None:
    new = loaded(*(f"from {name} import *" for name in modules))
    assert modules <= new
    assert not {name.split(".")[0] for name in new} & set(HEAVY)
    assert not ONLY_FOR_RUNS & new
    assert {name.split(".")[1] for name in new if name.startswith("delta_cdc.")} <= {"_version", "core"}


@pytest.mark.parametrize(("name", "module"), sorted(operators._MODULES.items()))
def test_an_operator_loads_no_other_one_and_nothing_that_only_a_run_needs(name: str, module: str) -> None:
    new = loaded(f"from airflow_delta_cdc.operators import {name}")
    ours = _ours(new)
    found = {part for part in ours if part.startswith("operators.")}
    assert found <= {f"operators.{part}" for part in (module, "base", "care", "saved_plans")}
    assert not ours & ONLY_FOR_TASKS


def test_a_file_of_groups_loads_nothing_that_only_a_run_needs() -> None:
    ours = _ours(loaded("from airflow_delta_cdc.dags import build_dags"))
    assert "groups.table" in ours
    assert not ours & {*ONLY_FOR_TASKS, "jobs", "lookups", "names"}


def _ours(modules: set[str]) -> set[str]:
    return {name.removeprefix("airflow_delta_cdc.") for name in modules if name.startswith("airflow_delta")}


def test_a_name_that_is_no_operator_is_refused() -> None:
    assert sorted(operators._MODULES) == sorted(operators.__all__)
    with pytest.raises(AttributeError, match="has no 'DeltaUnknownOperator'"):
        getattr(operators, "DeltaUnknown" + "Operator")


@pytest.mark.parametrize("name", sorted(engine.NAMES))
def test_each_name_of_the_engine_is_there(name: str) -> None:
    module, there = engine.NAMES[name]
    assert getattr(engine, name) is getattr(import_module(module), there)


def test_a_name_that_is_not_listed_is_none() -> None:
    with pytest.raises(AttributeError, match="has no 'run_everything': add its import"):
        getattr(engine, "run_" + "everything")
