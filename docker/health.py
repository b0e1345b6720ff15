#!/usr/bin/env python3
"""Say by the exit code whether a container's role does its work: ``health [ROLE]``.

Without an argument the role is the one that ``run`` was started with. Standard library only: it runs every
few seconds in every container.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

#: Seconds one question may take, and one to a Celery worker. Docker's own limit (compose.yaml, Dockerfile) is
#: longer: who is killed cannot say why.
PATIENCE = 10.0
CELERY_PATIENCE = 60.0

#: Roles that Airflow's API server knows about, by the name it has for them.
AIRFLOW_PARTS = {
    "api-server": "metadatabase",
    "scheduler": "scheduler",
    "triggerer": "triggerer",
    "dag-processor": "dag_processor",
}


def main() -> int:
    """Ask; return 0 if the role is healthy, else 1, with a sentence on stderr."""
    role = sys.argv[1] if len(sys.argv) > 1 else _started_role()
    try:
        complaint = complaint_of(role)
    except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError) as error:
        complaint = f"{type(error).__name__}: {error}"
    if complaint:
        sys.stderr.write(f"{role}: {complaint}\n")
    return 1 if complaint else 0


def complaint_of(role: str) -> str | None:
    """Return what is wrong with a role; None if nothing is."""
    if role in AIRFLOW_PARTS:
        return _airflow(AIRFLOW_PARTS[role])
    if role == "worker":
        return _celery()
    if role == "spark-master":
        return _spark_master(_fetch("http://127.0.0.1:8080/json/"))
    if role == "spark-worker":
        return None if _fetch("http://127.0.0.1:8081/json/")["masterurl"] else "knows no master"
    if role == "spark-connect":
        return _listens(15002)
    if role == "store":
        _answer(f"http://127.0.0.1:{os.environ.get('STORE_PORT', '7070')}/health")
        return None
    # A command, or a role that ends by itself: that it runs is all there is to say.
    return None


def _airflow(part: str) -> str | None:
    """Ask the API server, which knows from the database when each part was last heard of."""
    status = _fetch("http://api-server:8080/api/v2/monitor/health")[part]["status"]
    return None if status == "healthy" else f"is {status}"


def _celery() -> str | None:
    """Ask the worker itself, by way of the broker."""
    app = "airflow.providers.celery.executors.celery_executor.app"
    command = ["celery", "--app", app, "inspect", "ping", "--destination", f"celery@{socket.gethostname()}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CELERY_PATIENCE, check=False)
    return None if done.returncode == 0 else (done.stderr or done.stdout).strip()[-300:] or "no answer"


def _spark_master(answer: Any) -> str | None:
    wanted = int(os.environ.get("SPARK_WORKERS", "0"))
    if answer["status"] != "ALIVE":
        return f"is {answer['status']}"
    alive = int(answer["aliveworkers"])
    return None if alive >= wanted else f"has {alive} workers of {wanted}"


def _listens(port: int) -> str | None:
    with socket.create_connection(("127.0.0.1", port), PATIENCE):
        return None


def _fetch(url: str) -> Any:
    return json.loads(_answer(url))


def _answer(url: str) -> bytes:
    # A proxy of the network outside has nothing to do with these.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=PATIENCE) as answer:
        return bytes(answer.read())


def _started_role() -> str:
    try:
        return (Path(tempfile.gettempdir()) / "delta-cdc-role").read_text(encoding="utf-8").strip()
    except OSError:
        return "unknown"


if __name__ == "__main__":
    sys.exit(main())
