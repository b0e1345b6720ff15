"""S3 from a cluster, and from a server of Spark Connect: the same targets, and the same refusal."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_delta_cdc.operators import DeltaApplyChangesOperator, DeltaEnableChangeDataFeedOperator
from delta_cdc.core.errors import UnsafeLogStore
from delta_cdc.launch.jars import class_path
from delta_cdc.launch.log_store import log_store_confs
from tests.integration.airflow.test_examples import rows
from tests.integration.cluster.test_standalone import context
from tests.support.connect_server import connect_server
from tests.support.faulty_proxy import no_fault
from tests.support.lake import IgnoresTheCondition
from tests.support.s3_gateway import ACCESS_KEY, REGION, SECRET_KEY
from tests.support.spark_cluster import SMALL, spark_cluster
from tests.support.world import listing

if TYPE_CHECKING:
    from tests.support.lake import Lake

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def connected(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the one connection of the store, and put lists of files on it."""
    monkeypatch.setenv("AIRFLOW_CONN_STORE", lake.connection)
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", lake.uri("results"))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))


def write(lake: Lake, name: str, ids: list[int], *, mode: str = "append", feed: bool = True) -> None:
    data = pa.table({"id": pa.array(ids, pa.int64())})
    write_deltalake(  # type: ignore[call-overload]
        lake.uri(name), data, mode=mode, configuration=FEED if feed else {}, storage_options=lake.direct
    )


def operator(lake: Lake, source: str, **more: Any) -> DeltaApplyChangesOperator:
    return DeltaApplyChangesOperator(
        task_id=f"apply_{source}",
        pipeline=source,
        source=lake.uri(source),
        target=lake.uri(f"{source}_target"),
        keys=["id"],
        delta_conn_id="store",
        **more,
    )


def is_right(lake: Lake, **more: Any) -> None:
    """Refused where the store ignores conditions; then a feed, and copies by lists of files, twice each."""
    write(lake, "feed", [1, 2])
    write(lake, "copies", [1, 2], feed=False)
    # Another bucket, as a driver remembers what it found out about one.
    other = dataclasses.replace(lake, name=f"{lake.name}-other", folder=Path(f"{lake.folder}-other"))
    other.folder.mkdir()
    write(other, "feed", [1, 2])
    lake.proxy.faults = IgnoresTheCondition(lake)
    with pytest.raises(UnsafeLogStore):
        operator(other, "feed", **more).execute(context())
    lake.proxy.faults = no_fault
    assert not listing(other.path("feed_target"))
    kinds: dict[str, dict[str, Any]] = {
        "feed": {"stored_as_scd_type": 2},
        "copies": {"source_kind": "snapshot"},
    }
    for name, how in kinds.items():
        assert operator(lake, name, **how, **more).execute(context())["applied"]
    write(lake, "feed", [3])
    write(lake, "copies", [2, 3], mode="overwrite", feed=False)
    for name, how in kinds.items():
        assert operator(lake, name, **how, **more).execute(context())["applied"]
    held = {name: sorted(row["id"] for row in rows(lake.folder / f"{name}_target")) for name in kinds}
    assert held == {"feed": [1, 2, 3], "copies": [2, 3]}
    assert not list((lake.folder / "results").rglob("*.json")), "lists of files are deleted afterwards"


def enabled(lake: Lake, **more: Any) -> None:
    """Turn the feed of a table on, which commits to the source of other writers."""
    write(lake, "plain", [1], feed=False)

    def enable(**how: Any) -> list[dict[str, Any]]:
        return DeltaEnableChangeDataFeedOperator(
            task_id="enable", table=lake.uri("plain"), delta_conn_id="store", **how, **more
        ).execute(context())

    (done,) = enable()
    assert (done["table"], done["changed"], done["first_readable_version"]) == (lake.uri("plain"), True, 1)
    (again,) = enable()
    assert again["changed"] is False


@pytest.mark.usefixtures("connected")
def test_a_standalone_cluster(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its executors have neither credentials nor S3's file system: both come with the application."""
    with spark_cluster(tmp_path / "cluster", workers=1) as cluster:
        monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "spark", "host": cluster.url}))
        is_right(lake, spark_conn_id="cluster", conf=SMALL)


@pytest.mark.usefixtures("connected")
def test_a_server_of_spark_connect(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server reaches the store as it was started, the worker reads logs with its connection."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    of_store = {
        "spark.driver.extraClassPath": class_path([lake.uri("")]),
        "spark.hadoop.fs.s3a.endpoint": lake.proxy.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": REGION,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        **log_store_confs([lake.uri("")], {}),
    }
    (tmp_path / "server").mkdir()
    with connect_server(tmp_path / "server", **of_store) as server:
        remote = {"conn_type": "spark_connect", "host": "localhost", "port": server.port}
        monkeypatch.setenv("AIRFLOW_CONN_REMOTE", json.dumps(remote))
        is_right(lake, spark_conn_id="remote")
        enabled(lake, spark_conn_id="remote")
        assert SECRET_KEY not in server.log
