"""A real Spark Connect server that wants a token, and an Airflow connection that names it."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from typing import TYPE_CHECKING

import pytest

from tests.support.connect_server import ConnectServer, connect_server, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

if "AIRFLOW_HOME" not in os.environ:
    # Airflow writes its configuration there when it is imported, which test modules do.
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="delta-cdc-airflow-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)

#: With characters that mean something in a URL.
TOKEN = "tok/en;of=no%body?#"

#: What the server was started with: for one scheme of S3, and no other.
SAFE_LOG_STORE = "spark.delta.logStore.s3n.impl"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A server, once per module, with a page that tells how many sessions it has."""
    confs = {
        "spark.connect.authenticate.token": TOKEN,
        "spark.ui.enabled": "true",
        "spark.ui.port": str(free_port()),
        SAFE_LOG_STORE: "io.delta.storage.S3DynamoDBLogStore",
    }
    with connect_server(tmp_path_factory.mktemp("server"), **confs) as running:
        yield running


@pytest.fixture
def connected(server: ConnectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Make connections to the server, in an Airflow whose results lie where both can see them."""
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", (tmp_path / "results").as_uri())

    def connection(conn_id: str = "remote", **other: object) -> str:
        said = {
            "conn_type": "spark_connect",
            "host": "localhost",
            "port": server.port,
            "password": TOKEN,
            **other,
        }
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(said))
        return conn_id

    return connection
