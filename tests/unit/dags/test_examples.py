"""The example DAGs parse, and their forms mean what the docs say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_delta_cdc.form import run_arguments, run_params

_PROJECT = Path(__file__).parents[3]
_DAGS = _PROJECT / "dags"
_RANGE = ("starting_version", "ending_version", "starting_timestamp", "ending_timestamp")

_LIST = """
import json, sys
from airflow.dag_processing.dagbag import BundleDagBag
from airflow_delta_cdc.form import run_arguments
from airflow_delta_cdc.assets import delta_asset

def woken_by(dag):
    condition = getattr(dag.timetable, "asset_condition", None)
    return getattr(condition, "objects", [])

bag = BundleDagBag(dag_folder=sys.argv[1], bundle_path=sys.argv[1], bundle_name="examples")
dags = {
    dag_id: {
        "tasks": {t.task_id: type(t).__name__ for t in dag.tasks},
        "params": {name: dag.params.get_param(name).dump() for name in dag.params},
        "active": dag.max_active_runs,
        "paused": dag.is_paused_upon_creation,
        "scheduled": "Cron" in type(dag.timetable).__name__,
        "woken_by": [asset.name for asset in woken_by(dag)],
        "watched": [w.trigger.table for asset in woken_by(dag) for w in asset.watchers],
        "asked": {
            name: getattr(task, name)
            for task in dag.tasks
            if task.task_id == "apply" and not task.is_mapped
            for name in set(run_arguments()) - {"pre_execute"}
        },
        "checked": {
            task.task_id: task._pre_execute_hook.__name__
            for task in dag.tasks
            if getattr(task, "_pre_execute_hook", None)
        },
        "targets": [task.target for task in dag.tasks if getattr(task, "target", None)],
    }
    for dag_id, dag in bag.dags.items()
}
for dag in dags.values():
    dag["announces"] = [delta_asset(target).name for target in dag["targets"]]
print("@@" + json.dumps({"errors": bag.import_errors, "dags": dags}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict:
    # A process and a home of its own: parsing must need neither a database nor this process's settings.
    home = tmp_path_factory.mktemp("airflow")
    done = subprocess.run(
        [sys.executable, "-c", _LIST, str(_DAGS)],
        env={
            **os.environ,
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "PYTHONPATH": os.pathsep.join((str(_PROJECT), str(_PROJECT / "spark_jobs"))),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    answer = next(line for line in done.stdout.splitlines() if line.startswith("@@"))
    return json.loads(answer[2:])


def test_all_parse(found: dict) -> None:
    assert found["errors"] == {}
    files = {path.stem for path in _DAGS.glob("*.py")} - {"example_settings"}
    several = {
        "medallion": {"medallion_bronze", "medallion_silver", "medallion_gold"},
        "configured_chain": {"configured_bronze", "configured_silver", "configured_gold"},
        "orders_by_status": {"orders_by_status", "orders_by_status_totals"},
        "configured_group": {"configured_group", "configured_group__backfill", "configured_group_sources"},
    }
    assert set(found["dags"]) == {dag_id for file in files for dag_id in several.get(file, {file})}


_APPLIED = [
    "orders_current",
    "customer_history",
    "events_from_log",
    "daily_snapshots",
    "backfill_by_versions",
]


@pytest.mark.parametrize("dag_id", _APPLIED)
def test_the_form_is_handed_to_the_operator(found: dict, dag_id: str) -> None:
    dag = found["dags"][dag_id]
    mode = "backfill" if dag_id == "backfill_by_versions" else "incremental"
    params = run_params(mode=mode)
    assert {name: param["value"] for name, param in dag["params"].items()} == {
        name: param.value for name, param in params.items()
    }
    assert dag["asked"] == {name: text for name, text in run_arguments().items() if name != "pre_execute"}
    # Mistakes in the form end in the first task that has to do with it.
    waits = {"wait": "skip_waiting"} if "wait" in dag["tasks"] else {}
    assert dag["checked"] == {**waits, "apply": "checked"}


def test_a_read_takes_a_range(found: dict) -> None:
    assert set(found["dags"]["orders_staged"]["params"]) == set(_RANGE)


def test_one_run_at_a_time(found: dict) -> None:
    assert {dag["active"] for dag in found["dags"].values()} == {1}


def test_every_operator_has_an_example(found: dict) -> None:
    from airflow_delta_cdc import operators, sensors

    used = {name for dag in found["dags"].values() for name in dag["tasks"].values()}
    assert used >= {*operators.__all__, *sensors.__all__}


def test_each_hop_is_woken_by_the_target_of_the_one_before(found: dict) -> None:
    bronze, silver, gold = (found["dags"][f"medallion_{name}"] for name in ("bronze", "silver", "gold"))
    assert silver["woken_by"] == bronze["announces"]
    assert gold["woken_by"] == silver["announces"]
    assert (silver["watched"], gold["watched"]) == ([], [])
    assert len(bronze["watched"]) == 1
    # The one watcher of orders serves both.
    assert bronze["woken_by"] == found["dags"]["orders_on_change"]["woken_by"]
    assert bronze["watched"] == found["dags"]["orders_on_change"]["watched"]


def test_a_chain_by_a_file_is_woken_as_one_by_hand(found: dict) -> None:
    bronze, silver, gold = (found["dags"][f"configured_{name}"] for name in ("bronze", "silver", "gold"))
    assert bronze["watched"] == found["dags"]["medallion_bronze"]["watched"]
    assert [asset.rpartition("/")[2] for asset in (*silver["woken_by"], *gold["woken_by"])] == [
        "configured_bronze",
        "configured_silver",
    ]


def test_what_runs_by_itself_is_paused_at_first(found: dict) -> None:
    scheduled = {"configured_group", "files_to_history", "kafka_to_current", "table_care"}
    assert {name for name, dag in found["dags"].items() if dag["scheduled"]} == scheduled
    for dag in found["dags"].values():
        assert bool(dag["paused"]) is bool(dag["woken_by"] or dag["scheduled"])
