"""What a container's health check says, asked as Docker asks: by a process and its exit code."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

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
