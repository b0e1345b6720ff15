"""``airflow delta-cdc doctor`` beside a real Airflow: the connections that its database holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_connections_of_the_database(tmp_path: Path) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")},
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }

    def airflow(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("airflow")), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert airflow("db", "migrate").returncode == 0
    lake = {"conn_type": "delta", "login": "AKIA1", "password": "very/secret+key", "extra": {"region": "r"}}
    assert airflow("connections", "add", "lake", "--conn-json", json.dumps(lake)).returncode == 0
    done = airflow("delta-cdc", "doctor", "--delta-conn-id", "lake", "--json")
    report = json.loads(done.stdout)
    found = {check["name"]: check for check in report["checks"]}
    assert found["delta-connection"]["status"] == "ok", found["delta-connection"]
    assert "AWS_SECRET_ACCESS_KEY" in found["delta-connection"]["found"]
    assert lake["password"] not in done.stdout + done.stderr
