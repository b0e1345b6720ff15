"""The end of a server is the end of all of it: processes that hide their environment, or lead a session."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from demo.places import Places
from demo.server import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Prints a line when it is ready, then waits for the end of its input, which never comes.
_WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"
# As Airflow's parts: a child in the same session without the home, and one with it that leads another.
_PARTS = f"""
import os, subprocess, sys
wait = [sys.executable, "-c", {_WAIT!r}]
plain = {{k: v for k, v in os.environ.items() if k != "AIRFLOW_HOME"}}
hidden = subprocess.Popen(wait, env=plain, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
apart = subprocess.Popen(wait, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
hidden.stdout.readline(), apart.stdout.readline()
print(hidden.pid, apart.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(Places(tmp_path))


@pytest.fixture
def parts(server: Server, tmp_path: Path) -> Iterator[list[psutil.Process]]:
    leader = subprocess.Popen(
        [sys.executable, "-c", _PARTS],
        env={"AIRFLOW_HOME": str(Places(tmp_path).airflow_home)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert leader.stdout is not None
    pids = [leader.pid, *map(int, leader.stdout.readline().split())]
    processes = [psutil.Process(pid) for pid in pids]
    yield processes
    for process in processes:
        if process.is_running():
            process.kill()
    leader.communicate()


def test_a_killed_servers_processes_are_found_and_ended(server: Server, parts: list[psutil.Process]) -> None:
    assert {process.pid for process in server.processes()} == {process.pid for process in parts}

    server.stop()

    assert [p for p in parts if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []


def test_another_airflow_is_left_alone(parts: list[psutil.Process], tmp_path: Path) -> None:
    other = Server(Places(tmp_path / "other"))

    other.stop()

    assert list(other.processes()) == []
    assert all(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in parts)


def test_the_password_is_kept_and_private(server: Server, tmp_path: Path) -> None:
    file = Places(tmp_path).airflow_home / "passwords.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert Server(Places(tmp_path)).password == server.password
    assert Server(Places(tmp_path / "other")).password != server.password
