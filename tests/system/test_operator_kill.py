"""The operator's own path: a real task, a real ``spark-submit``; worker and driver are killed one by one."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.holding import DriverGate, killing
from tests.support.world import commits, listing, orphans, ranges, seals
from tests.system.conftest import Kind, Trial, kill
from tests.system.test_sigkill import after_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

pytestmark = pytest.mark.slow

_DAG = """
from airflow.sdk import DAG
from airflow_delta_cdc.operators import DeltaApplyChangesOperator

with DAG({name!r}, schedule=None) as dag:
    DeltaApplyChangesOperator(
        task_id="apply", pipeline="flow", source={source!r}, target={target!r}, keys=["id"],
        stored_as_scd_type={scd},
    )
"""


#: Kills the worker before or after it calls a function, if the environment names the point. The last function
#: comes after the task's work; then Airflow stores its success, with its events.
_KILLED_AT = """

import os
import signal

from airflow_delta_cdc import publishing
from delta_cdc.run import saved_plans


class Ended:
    @staticmethod
    def ended(context, result):
        pass


def dies(module, name):
    real = getattr(module, name)

    def at(point):
        if os.environ.get("DIES_AT") == f"{point} {name}":
            os.kill(os.getpid(), signal.SIGKILL)

    def function(*given, **named):
        at("before")
        found = real(*given, **named)
        at("after")
        return found

    setattr(module, name, function)


dies(publishing, "measured")
dies(publishing, "shown")
dies(publishing, "store_copy")
dies(publishing, "announce_apply")
dies(saved_plans, "forget_saved_plans")
dies(Ended, "ended")
dag.tasks[0]._post_execute_hook = Ended.ended
"""
_FUNCTIONS = ("measured", "shown", "store_copy", "announce_apply", "forget_saved_plans", "ended")


@pytest.fixture(scope="session")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An Airflow with a migrated database of its own."""
    home = tmp_path_factory.mktemp("airflow-system")
    (home / "dags").mkdir()
    with (home / "migrate.log").open("w") as log:
        command = [sys.executable, "-m", "airflow", "db", "migrate"]
        subprocess.run(command, env=environment(home), check=True, stdout=log, stderr=log)
    return home


def environment(home: Path) -> dict[str, str]:
    return {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }


@dataclass
class Task:
    """One task instance after the other of a DAG with one apply task."""

    home: Path
    trial: Trial
    name: str
    day: int = 0

    def __post_init__(self) -> None:
        text = _DAG.format(
            name=self.name, source=self.trial.source.path, target=self.trial.target, scd=self.trial.scd
        )
        self.file.write_text(text)

    @property
    def file(self) -> Path:
        return self.home / "dags" / f"{self.name}.py"

    @property
    def logical_date(self) -> str:
        return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=self.day)).isoformat()

    def start(self, action: str, extra: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a worker for the task's run: ``run``, or ``again`` for another try."""
        with (self.home / f"{self.name}.log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.system.worker", action, str(self.file), self.logical_date],
                env={**environment(self.home), **(extra or {})},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def finish(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        """Wait for a worker; return what Airflow knows of the run."""
        said, _ = process.communicate()
        log = (self.home / f"{self.name}.log").read_text()[-6000:]
        assert process.returncode == 0, log
        found: dict[str, Any] = json.loads(said)
        found["log"] = log
        return found

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Ask, or change, the metadata database."""
        connection = sqlite3.connect(self.home / "airflow.db")
        try:
            found = connection.execute(statement).fetchall()
            connection.commit()
        finally:
            connection.close()
        return found

    @property
    def published(self) -> list[str]:
        """Keys of the XComs of this DAG in the database."""
        return [key for (key,) in self.rows(f"SELECT key FROM xcom WHERE dag_id = '{self.name}'")]

    def check(self, found: dict[str, Any]) -> None:
        """Published as applied with the range, and the target is right."""
        assert found["state"] == "success", found["log"]
        published = found["xcoms"]["return_value"]
        assert published["applied"] is True
        assert published["version"] == self.trial.source.newest
        assert (published["starting_version"], published["ending_version"]) == self.trial.range
        (event,) = found["events"]
        assert event["ending_version"] == self.trial.source.newest
        assert ranges(self.trial.target).count(self.trial.range) == 1
        assert self.trial.rows == self.trial.right


@pytest.fixture
def task(
    airflow_home: Path, trial: Callable[..., Trial], request: pytest.FixtureRequest
) -> Callable[[Kind], Task]:
    def make(kind: Kind) -> Task:
        name = "".join(c if c.isalnum() else "_" for c in request.node.name)
        return Task(airflow_home, trial(kind), name)

    return make


@pytest.mark.parametrize("kind", ["scd2", pytest.param("load", marks=pytest.mark.slow)])
def test_driver_killed_before_the_commit(task: Callable[[Kind], Task], kind: Kind) -> None:
    tried = task(kind)
    versions = tried.trial.versions
    failed = tried.finish(tried.start("run", killing("before_commit")))
    assert failed["state"] == "failed"
    assert "return_value" not in failed["xcoms"]
    assert tried.trial.versions == versions
    tried.check(tried.finish(tried.start("again")))


@pytest.mark.parametrize("kind", ["scd1", pytest.param("load", marks=pytest.mark.slow)])
def test_driver_killed_with_data_on_disk_and_no_log_entry(
    task: Callable[[Kind], Task], tmp_path: Path, kind: Kind
) -> None:
    tried = task(kind)
    versions = tried.trial.versions
    for attempt in range(6):
        gate = DriverGate("before_commit", tmp_path / f"pipes {attempt}")
        worker = tried.start("again" if attempt else "run", gate.environment)
        group = gate.wait()
        gate.open()
        assert after_changes(worker, tried.trial.target, 1)
        os.killpg(group, signal.SIGKILL)
        outcome = tried.finish(worker)
        if tried.trial.versions == versions:
            break
    assert tried.trial.versions == versions
    assert orphans(tried.trial.target)
    assert outcome["state"] == "failed"
    tried.check(tried.finish(tried.start("again")))


@pytest.mark.parametrize("kind", ["load", pytest.param("scd2", marks=pytest.mark.slow)])
def test_driver_killed_after_the_commit(task: Callable[[Kind], Task], kind: Kind) -> None:
    """The same try finds the commit in the log and publishes it."""
    tried = task(kind)
    tried.check(tried.finish(tried.start("run", killing("committed"))))


@pytest.mark.parametrize(("kind", "action"), [("scd2", "again"), ("load", "again"), ("scd1", "run")])
def test_worker_and_driver_killed_between_commit_and_xcom(
    task: Callable[[Kind], Task], tmp_path: Path, kind: Kind, action: str
) -> None:
    """The next try publishes the commit; without a retry, the next run does."""
    tried = task(kind)
    versions = tried.trial.versions
    gate = DriverGate("committed", tmp_path / "pipes")
    worker = tried.start("run", gate.environment)
    group = gate.wait()
    kill(worker)
    os.killpg(group, signal.SIGKILL)
    assert len(tried.trial.versions) == len(versions) + 1
    assert seals(tried.trial.target)[-1]["at"] == tried.trial.versions[-1]
    assert tried.published == []
    before = listing(tried.trial.target)
    tried.day += action == "run"
    tried.check(tried.finish(tried.start(action)))
    assert listing(tried.trial.target) == before


@pytest.mark.parametrize(
    "kind", ["scd1", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("scd2", "load"))]
)
def test_worker_killed_while_its_driver_lives_on(
    task: Callable[[Kind], Task], tmp_path: Path, kind: Kind
) -> None:
    """The retry starts at once; its driver and the orphan come to the MERGE together."""
    tried = task(kind)
    orphan = DriverGate("before_commit", tmp_path / "orphan")
    successor = DriverGate("before_commit", tmp_path / "successor")
    worker = tried.start("run", orphan.environment)
    group = orphan.wait()
    kill(worker)
    os.killpg(group, 0)  # The driver is alive.
    retry = tried.start("again", successor.environment)
    successor.wait()
    os.killpg(group, 0)
    successor.open()
    orphan.open()
    tried.check(tried.finish(retry))


def test_lost_and_edited_copies(task: Callable[[Kind], Task]) -> None:
    """XCom and both state stores are copies: what they say, or that they are gone, changes nothing."""
    tried = task("scd1")
    trial, source = tried.trial, tried.trial.source
    tried.check(tried.finish(tried.start("run")))

    # All of it gone, then a run with something to do.
    for table in ("xcom", "task_state_store", "asset_state_store"):
        tried.rows(f"DELETE FROM {table}")
    known = source.newest
    source.grow(trial.spark, random.Random(21), 2)
    tried.day += 1
    found = tried.finish(tried.start("run"))
    assert found["xcoms"]["return_value"]["starting_version"] == known + 1
    assert found["xcoms"]["return_value"]["version"] == source.newest
    assert trial.rows == trial.right

    # Edited to a lie: a watermark of the future, and one of the past.
    before = listing(trial.target)
    mine, version = f"dag_id = '{tried.name}'", '"version": '
    assert tried.rows("SELECT count(*) FROM asset_state_store") != [(0,)]
    tried.rows(f"UPDATE asset_state_store SET value = replace(value, '{version}', '{version}9')")
    tried.rows(f"UPDATE xcom SET value = replace(value, '{version}', '{version}9') WHERE {mine}")
    tried.day += 1
    found = tried.finish(tried.start("run"))
    assert found["xcoms"]["return_value"]["applied"] is False
    assert found["xcoms"]["return_value"]["version"] == source.newest
    assert found["events"] == []

    # A finished task, cleared and run again: there is nothing to do, and no second event.
    tried.day -= 1
    again = tried.finish(tried.start("again"))
    assert again["state"] == "success"
    assert again["tries"] > 1
    assert again["xcoms"]["return_value"]["applied"] is False
    assert len(again["events"]) == 1
    assert again["xcoms"]["return_value"]["version"] == source.newest
    assert listing(trial.target) == before
    assert max(commits(trial.target)) == seals(trial.target)[-1]["at"]


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_no_commit_stays_unannounced_without_a_retry(task: Callable[[Kind], Task], name: str) -> None:
    """The worker is killed between the end of its driver and the success of its task, in two runs."""
    tried = task("scd1")
    trial, source = tried.trial, tried.trial.source
    tried.file.write_text(tried.file.read_text() + _KILLED_AT)
    (first, _) = trial.range
    for number, when in enumerate(("before", "after")):
        if number:
            source.grow(trial.spark, random.Random(number), 1)
        worker = tried.start("run", {"DIES_AT": f"{when} {name}"})
        worker.wait()
        assert worker.returncode == -signal.SIGKILL
        assert ranges(trial.target)[-1][1] == source.newest
        tried.day += 1
    before = listing(trial.target)
    found = tried.finish(tried.start("run"))
    published, (event,) = found["xcoms"]["return_value"], found["events"]
    for one in (published, event):
        assert (one["starting_version"], one["ending_version"]) == (first, source.newest)
    assert published["applied"] is True
    tried.day += 1
    assert tried.finish(tried.start("run"))["events"] == []
    assert listing(trial.target) == before
    assert trial.rows == trial.right
