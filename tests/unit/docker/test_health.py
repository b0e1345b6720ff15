"""What a container's health check says, asked as Docker asks: by a process and its exit code."""

from __future__ import annotations

import json
import os
import re
import runpy
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

HEALTH = Path(__file__).resolve().parents[3] / "docker" / "health.py"


class Answers(BaseHTTPRequestHandler):
    """Gives one answer to whatever it is asked."""

    text = ""

    def do_GET(self) -> None:
        body = self.text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Answers,), {})) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


def asked(*arguments: str, **variables: str) -> tuple[int, str]:
    """Return exit code and complaint."""
    done = subprocess.run(
        [sys.executable, str(HEALTH), *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr.strip()


def test_airflow_is_asked_about_one_part(server: ThreadingHTTPServer) -> None:
    url = f"http://127.0.0.1:{server.server_port}"
    handler: Any = server.RequestHandlerClass
    handler.text = json.dumps({"scheduler": {"status": "healthy"}, "dag_processor": {"status": "unhealthy"}})
    assert asked("scheduler", DELTA_CDC_API_SERVER=url) == (0, "")
    assert asked("dag-processor", DELTA_CDC_API_SERVER=url) == (1, "dag-processor: is unhealthy")
    # A part that nobody has heard of yet, and an answer that is none.
    assert asked("triggerer", DELTA_CDC_API_SERVER=url)[0] == 1
    handler.text = "<html>"
    assert asked("scheduler", DELTA_CDC_API_SERVER=url)[0] == 1


def test_nobody_answers() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = str(held.getsockname()[1])
        code, complaint = asked("store", STORE_PORT=port)
        assert (code, complaint.split(":")[0]) == (1, "store")


def test_without_an_argument_it_is_the_role_that_was_started(tmp_path: Path) -> None:
    """`run` leaves its role for the image's own HEALTHCHECK; a command is no role, and is left in peace."""
    run = HEALTH.with_name("run.sh")
    subprocess.run(["sh", str(run), "true"], env={**os.environ, "TMPDIR": str(tmp_path)}, check=True)
    assert asked(TMPDIR=str(tmp_path)) == (0, "")
    (tmp_path / "delta-cdc-role").write_text("triggerer\n", encoding="utf-8")
    code, complaint = asked(TMPDIR=str(tmp_path), DELTA_CDC_API_SERVER="http://127.0.0.1:9")
    assert (code, complaint.split(":")[0]) == (1, "triggerer")


def test_a_check_can_say_why_before_docker_ends_it() -> None:
    folder = HEALTH.parent
    health = runpy.run_path(str(HEALTH))
    compose = yaml.safe_load((folder / "compose.yaml").read_text())
    limits = {
        check["test"][-1]: float(check["timeout"].removesuffix("s"))
        for service in compose["services"].values()
        if (check := service.get("healthcheck", {})).get("test", [])[:2] == ["CMD", "health"]
    }
    (default,) = re.findall(r"--timeout=(\d+)s", (folder / "Dockerfile").read_text())
    limits["any"] = float(default)
    assert {"store", "spark-master", "spark-connect", "worker", "any"} <= limits.keys()
    margin = 5.0
    for role, limit in limits.items():
        own = health["CELERY_PATIENCE" if role == "worker" else "PATIENCE"]
        assert own + margin <= limit, role


def test_a_setup_that_fails_leaves_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("AIRFLOW_ADMIN_PASSWORD", "of the admin")
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION", "ENDPOINT_URL"):
        monkeypatch.setenv(f"AWS_{name}", "hidden-from-all")
    made = runpy.run_path(str(HEALTH.with_name("setup.py")))
    asked: list[str] = []

    def airflow(*arguments: str) -> None:
        asked.append(arguments[0])
        if arguments[0] == "connections":
            assert "hidden-from-all" in Path(arguments[-1]).read_text()
            raise subprocess.CalledProcessError(1, arguments)

    made["setup"].__globals__["_airflow"] = airflow
    with pytest.raises(subprocess.CalledProcessError):
        made["setup"]()
    assert asked == ["db", "connections"]
    assert not any("hidden-from-all" in path.read_text() for path in (tmp_path / "secrets").iterdir())
