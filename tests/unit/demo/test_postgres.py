"""A server of one's own: what fails is reported, and nothing of it stays."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from demo import postgres
from demo.postgres import PostgresFailed, PostgresMissing
from tests.support.postgres import server

if TYPE_CHECKING:
    from demo.postgres import Postgres


def test_what_fails_is_said(running: Postgres) -> None:
    with pytest.raises(PostgresFailed, match='column "nothing" does not exist'):
        running.value("SELECT nothing")
    assert running.value("SELECT 1") == "1"


def test_nobody_enters_without_the_password(running: Postgres) -> None:
    command, environment = running.command("psql", "-X", "-w", "-c", "SELECT 1")
    environment["PGPASSWORD"] = "a guess"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "password authentication failed" in done.stderr


def test_nothing_of_it_stays() -> None:
    with server() as mine:
        folder = Path(mine.value("SELECT current_setting('data_directory')")).parent
        process = psutil.Process(int((folder / "data" / "postmaster.pid").read_text().split("\n")[0]))
        assert process.is_running()
        # Somebody who stays connected holds nothing up.
        client = mine.start_client("psql", "-X", "-c", "SELECT pg_sleep(600)")
    assert not folder.exists()
    # Nobody may have looked yet how it ended.
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    assert client.wait() != 0
    client.communicate()


def test_without_postgresql_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres.shutil, "which", lambda name: None)
    monkeypatch.setattr(postgres.Path, "glob", lambda self, pattern: iter(()))
    with pytest.raises(PostgresMissing, match="apt-get install postgresql"):
        postgres.programs()
    with pytest.warns(UserWarning, match="NOT TESTED"), pytest.raises(pytest.skip.Exception), server():
        raise AssertionError("there is no server")


def test_a_start_that_fails_leaves_nothing(running: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    second = postgres.Postgres(port=running.port)
    made: list[str] = []
    plain = postgres.tempfile.mkdtemp
    monkeypatch.setattr(postgres.tempfile, "mkdtemp", lambda **more: made.append(plain(**more)) or made[-1])
    with pytest.raises(PostgresFailed, match="in use"):
        second.__enter__()
    assert len(made) == 1
    assert not Path(made[0]).exists()
