"""Operators and hooks without a JVM: a stand-in for spark-submit records how it was started."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

if "AIRFLOW_HOME" not in os.environ:
    # Airflow writes its configuration there when it is imported, which test modules do.
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="delta-cdc-airflow-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)

Connect = Callable[..., str]

_STAND_IN = """#!/bin/sh
printf '%s\\n' "$@" > "{record}/arguments"
env > "{record}/environment"
cp "$(printf '%s\\n' "$@" | grep -A1 -x -e --spec | tail -1)" "{record}/spec.json" 2>/dev/null
result="$(printf '%s\\n' "$@" | grep -A1 -x -e --result | tail -1)"
{script}
"""


class StandIn:
    """A ``spark-submit`` of our own: a shell script that notes its arguments and does what a test says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.binary = folder / "spark3-submit"
        self.does("exit 0")

    def does(self, script: str) -> None:
        self.binary.write_text(_STAND_IN.format(record=self.folder, script=script))
        self.binary.chmod(self.binary.stat().st_mode | stat.S_IXUSR)

    @property
    def was_started(self) -> bool:
        return (self.folder / "arguments").exists()

    @property
    def arguments(self) -> list[str]:
        return (self.folder / "arguments").read_text().splitlines()

    def option(self, name: str) -> list[str]:
        given = self.arguments
        return [given[at + 1] for at, argument in enumerate(given) if argument == name]

    @property
    def confs(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for pair in self.option("--conf"))  # type: ignore[misc]

    @property
    def environment(self) -> dict[str, str]:
        lines = (self.folder / "environment").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)  # type: ignore[misc]

    @property
    def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "spec.json").read_text())
        return found


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """The stand-in, found as ``spark-submit`` of the package and as ``spark3-submit`` on PATH."""
    folder = tmp_path / "stand-in"
    folder.mkdir()
    made = StandIn(folder)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("delta_cdc.launch.environment.submit_binary", lambda: made.binary)
    return made


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Create an Airflow connection; gives its id."""

    def create(conn_id: str = "spark_test", *, conn_type: str = "spark", host: str, **extra: Any) -> str:
        monkeypatch.setenv(
            f"AIRFLOW_CONN_{conn_id.upper()}",
            json.dumps({"conn_type": conn_type, "host": host, "extra": extra}),
        )
        return conn_id

    return create


class Records:
    """What was logged at which level."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def at(self, level: str) -> list[str]:
        return [text for had, text in self.lines if had == level]

    def __getattr__(self, level: str) -> Callable[..., None]:
        def write(message: str, *args: Any, **_: Any) -> None:
            self.lines.append((level, message % args if args else message))

        return write


@pytest.fixture
def records() -> Records:
    return Records()
