"""The benchmark of a pipeline: what it says of its arms, all of them or some."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.benchmarks import BENCHMARKS, benchmark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

_LIST = """
import json, sys
sys.path.insert(0, sys.argv[1])
import reach_dags
from airflow.sdk import DAG
dags = [dag for dag in vars(reach_dags).values() if isinstance(dag, DAG)]
print("@@" + json.dumps({
    dag.dag_id: {task.task_id: getattr(task, "conf", None) for task in dag.tasks} for dag in dags
}))
"""
SECONDS = {"stock": 100.0, "stock-tuned": 50.0, "embedded": 30.0, "connect": 25.0}


@pytest.fixture(scope="module")
def reach() -> Iterator[ModuleType]:
    with benchmark("reach") as module:
        yield module


def told(reach: ModuleType, *names: str) -> list[list[str]]:
    arms: dict[str, Any] = {
        name: {"seconds": [SECONDS[name]] * 2, "jvms": [1, 1], "tasks": [{"wait": 2.0}, {"wait": 4.0}]}
        for name in names
    }
    cell = {"machine": {"load": 0, "cores": 2}, "rows": 10, "changes": 1, "idle": 1.0, "arms": arms}
    text = reach.markdown({"five steps": cell})
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    assert rows[0][3:6] == [": stock (95 %)", "aim", ": stock-tuned (95 %)"]
    return rows[2:]


def test_aims_are_about_stock_and_the_tuned_rival_is_told_beside(reach: ModuleType) -> None:
    rows = {row[0]: row[3:6] for row in told(reach, *SECONDS)}
    assert rows == {
        "stock": ["", "", ""],
        "stock-tuned": ["0.50 (0.50–0.50)", "", ""],
        "embedded": ["0.30 (0.30–0.30)", "≤ 0.35", "0.60 (0.60–0.60)"],
        "connect": ["0.25 (0.25–0.25)", "≤ 0.20, **missed**", "0.50 (0.50–0.50)"],
    }


def test_some_arms(reach: ModuleType) -> None:
    (row,) = told(reach, "embedded")
    assert row == ["embedded", "30.0", "30.0–30.0", "", "", "", "1 (aim 1)", "wait 3.0"]
    rows = told(reach, "stock-tuned", "connect")
    assert [row[3:6] for row in rows] == [["", "", ""], ["", "", "0.50 (0.50–0.50)"]]


@pytest.mark.slow
def test_tuned_is_stock_but_for_its_partitions(reach: ModuleType, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path),
        "REACH_FOLDER": str(tmp_path / "lake"),
        "REACH_STEP": "step.py",
        "REACH_JARS": "a.jar",
    }
    command = [sys.executable, "-c", _LIST, str(BENCHMARKS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    dags = json.loads(done.stdout.split("@@")[1])
    assert set(dags) == set(reach.AIMS)
    partitions = {"spark.sql.shuffle.partitions": "2", "spark.databricks.delta.snapshotPartitions": "2"}
    assert list(dags["stock"]) == ["enable", "wait", "read", "scd1", "scd2"]
    assert dags["stock-tuned"] == {step: {**confs, **partitions} for step, confs in dags["stock"].items()}
    assert not any(name in confs for confs in dags["stock"].values() for name in partitions)
