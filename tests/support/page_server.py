"""Airflow's API application with the page, in a process of its own: for tests, measurements and pictures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

from demo.places import PROJECT
from demo.server import free_ports

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

#: ``tests.support.page_rights`` imports Airflow.
READER = "reader"
#: Of both users, ``admin`` and :data:`READER`.
PASSWORD = "for this test only"


class Page:
    """The process (:mod:`tests.support.page_process`); it ends with the context.

    :param home: Airflow's home
    :param database: URL of the metadata database; None is a file in the home
    :param path: where Python finds the package; None is where this process does
    """

    def __init__(self, home: Path, *, database: str | None = None, path: list[str] | None = None) -> None:
        passwords = home / "passwords.json"
        passwords.write_text(json.dumps({"admin": PASSWORD, READER: PASSWORD}))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        self.environment = {
            **inherited,
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__AUTH_MANAGER": "tests.support.page_rights.RightsAuthManager",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"admin:admin,{READER}:viewer",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database or f"sqlite:///{home / 'airflow.db'}",
            "PYTHONPATH": os.pathsep.join([*(path or ()), *(one for one in sys.path if one)]),
        }
        self.log = home / "page.log"
        self.url = ""
        with self.log.open("w") as sink:
            self._process = subprocess.Popen(
                [sys.executable, str(PROJECT / "tests" / "support" / "page_process.py")],
                env=self.environment,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(300)

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send one command, and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self.log.read_text()[-5000:]
        answer: dict[str, Any] = json.loads(line)
        assert "broken" not in answer, answer["broken"] + self.log.read_text()[-5000:]
        return answer

    def get(self, path: str, role: str | None = "viewer", **how: Any) -> dict[str, Any]:
        """Request a route of the page, as a user with a role."""
        return self.ask(get={"path": f"/delta-cdc{path}", "role": role, **how})

    def prepare(self) -> None:
        """Show the entry's picture, as each of Airflow's pages does, and wait for what that begins."""
        assert self.get("/logo.svg")["status"] == 200
        self.ask(prepared=True)

    def listed(self, path: str = "/api/pipelines", **how: Any) -> dict[str, dict[str, Any]]:
        """Return the pipelines of a list, by their names."""
        answer = self.get(path, **how)
        assert answer["status"] == 200, answer
        return {one["pipeline"]: one for one in json.loads(answer["body"])["pipelines"]}

    def serve(self) -> None:
        """Serve it to browsers, at ``url``."""
        (port,) = free_ports(1)
        self.ask(serve=port)
        self.url = f"http://127.0.0.1:{port}"
