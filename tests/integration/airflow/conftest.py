"""A real Airflow with a database of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Outcome:
    """What one DAG run left behind.

    :param log: what Airflow logged meanwhile
    """

    state: str
    tasks: dict[str, dict[str, Any]]
    events: list[dict[str, Any]]
    processes: list[list[str]]
    log: str
    run: str = ""

    def xcom(self, task: str, key: str = "return_value") -> Any:
        return self.tasks[task]["xcoms"].get(key)

    @property
    def submits(self) -> int:
        return sum("spark-submit" in one[0] for one in self.processes)


@dataclass
class Airflow:
    """Runs DAG files, each run with a logical date of its own."""

    home: Path
    process: subprocess.Popen[str]
    log: Path
    runs: int = field(default=0)

    def run(
        self,
        file: Path,
        *,
        dag: str | None = None,
        conf: dict[str, Any] | None = None,
        forbid_processes: bool = False,
        answers: dict[str, str] | None = None,
    ) -> Outcome:
        """Run the DAG of a file.

        :param dag: one of those in the file's ``dags``; None is its ``dag``
        :param answers: what a person chooses when a task waits for one, by the task's id
        """
        self.runs += 1
        return self._ask(
            file=str(file),
            dag=dag,
            conf=conf,
            forbid_processes=forbid_processes,
            answers=answers,
            logical_date=(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=self.runs)).isoformat(),
        )

    def clear(self, file: Path, run: str, *tasks: tuple[str, int | None], dag: str | None = None) -> Outcome:
        """Clear tasks of a run, each by its id and map index, and let the run come to its end again."""
        return self._ask(file=str(file), dag=dag, run=run, clear=tasks)

    def _ask(self, **command: Any) -> Outcome:
        before = self.log.stat().st_size
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        with self.log.open() as log:
            log.seek(before)
            said = log.read()
        assert line, said
        answer = json.loads(line)
        assert "broken" not in answer, answer["broken"] + said
        return Outcome(**answer, log=said)

    def dag(self, name: str, text: str) -> Path:
        """Write a DAG file into the DAG folder."""
        file = self.home / "dags" / f"{name}.py"
        file.write_text(text)
        return file


@pytest.fixture(scope="session")
def one_airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """An Airflow that answers; its database is migrated once per process."""
    with running(tmp_path_factory.mktemp("airflow")) as made:
        yield made


@pytest.fixture
def airflow(one_airflow: Airflow) -> Iterator[Airflow]:
    """The same Airflow, without the DAG files of earlier tests.

    ``dag.test()`` may parse the whole folder, and a file of another test would set its environment again.
    """
    yield one_airflow
    for file in (one_airflow.home / "dags").iterdir():
        if file.is_file():
            file.unlink()


@contextmanager
def running(home: Path, kind: type[Airflow] = Airflow, **connections: dict[str, Any]) -> Iterator[Airflow]:
    """Start an Airflow with a database of its own.

    :param home: an empty folder
    :param connections: by their ids
    """
    (home / "dags").mkdir()
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW_CONN_SPARK_LOCAL": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(said) for name, said in connections.items()},
    }
    log = home / "runner.log"
    with log.open("w") as sink:
        subprocess.run(
            [sys.executable, "-m", "airflow", "db", "migrate"],
            env=environment,
            check=True,
            stdout=sink,
            stderr=sink,
        )
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("runner.py"))],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
        )
    yield kind(home=home, process=process, log=log)
    assert process.stdin is not None
    process.stdin.close()
    process.wait(60)
