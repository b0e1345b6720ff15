"""Tables on a real S3-compatible server: one connection for the sensor, the planner and Spark."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.integration.airflow.test_examples import rows
from tests.integration.airflow.test_ingest import announced, drop, succeeded, values
from tests.support import world
from tests.support.lake import lake_on
from tests.support.s3_gateway import SECRET_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.integration.airflow.conftest import Airflow, Outcome
    from tests.support.lake import Lake
    from tests.support.s3_gateway import Gateway

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

_FILE = """
import os

from airflow.sdk import DAG
from airflow_delta_cdc.dags import build_dags
from airflow_delta_cdc.sensors import DeltaVersionSensor

os.environ["AIRFLOW_CONN_STORE"] = {connection!r}

dags = build_dags({configuration!r}, default_args={{"retries": 0}})
with DAG("wait", schedule=None) as wait:
    DeltaVersionSensor(
        task_id="wait",
        table={source!r},
        pipeline="history",
        target={target!r},
        delta_conn_id="store",
    )
dags["wait"] = wait
"""


@pytest.fixture
def lake(s3: Gateway) -> Iterator[Lake]:
    with lake_on(s3) as made:
        yield made


def configuration(root: str, name: str, only: Sequence[str] = ()) -> dict[str, Any]:
    """Return a group with a table of each kind, or only some, all of them below a folder."""
    shared = {"group": name, "keys": ["id"], "single_driver": True}
    feed = {**shared, "source": f"{root}/orders", "initial_load": {"from_version": 1}}
    pipelines = {
        "current": {**feed, "target": f"{root}/current"},
        "history": {**feed, "target": f"{root}/history", "stored_as_scd_type": 2},
        "copies": {
            **shared,
            "source": f"{root}/copies_of",
            "target": f"{root}/copies",
            "source_kind": "snapshot",
            "stored_as_scd_type": 2,
            "initial_load": {"from_version": 1},
        },
        "events": {
            **shared,
            "source": f"{root}/landing",
            "log": f"{root}/events_log",
            "target": f"{root}/events",
            "schema": "id INT, name STRING, n INT",
            "adapter_options": {"operation_column": "op", "sequence_by": "n"},
        },
    }
    return {
        "groups": {name: {"delta_conn_id": "store", "max_parallel_tables": 2, "backfill": False}},
        "pipelines": {one: pipelines[one] for one in only or pipelines},
    }


TABLES = ("current", "history", "copies", "events", "events_log")


def write(table: Path, given: Sequence[tuple[int, str]], *, mode: str = "append", feed: bool = True) -> None:
    data = pa.table({"id": pa.array([i for i, _ in given], pa.int64()), "name": [name for _, name in given]})
    properties = {"delta.enableChangeDataFeed": "true"} if feed else {}
    write_deltalake(str(table), data, mode=mode, configuration=properties)  # type: ignore[call-overload]


def begin(folder: Path) -> None:
    write(folder / "orders", [(1, "a"), (2, "b"), (3, "c")])
    write(folder / "orders", [(4, "d")])
    DeltaTable(str(folder / "orders")).delete("id = 1")
    write(folder / "copies_of", [(1, "x"), (2, "y")], feed=False)
    write(folder / "copies_of", [(2, "Y"), (3, "z")], feed=False, mode="overwrite")
    drop(folder / "landing", "a.json", {"op": "I", "id": 1, "name": "e", "n": 1})


def go_on(folder: Path) -> None:
    DeltaTable(str(folder / "orders")).update(updates={"name": "'B'"}, predicate="id = 2")
    write(folder / "orders", [(1, "again")])
    write(folder / "copies_of", [(3, "Z")], feed=False, mode="overwrite")
    drop(
        folder / "landing", "b.json", {"op": "U", "id": 1, "name": "E", "n": 2}, {"op": "D", "id": 1, "n": 3}
    )


def dag_file(airflow: Airflow, lake: Lake, root: str, name: str, only: Sequence[str] = ()) -> Path:
    text = _FILE.format(
        connection=lake.connection,
        configuration=configuration(root, name, only),
        source=f"{root}/orders",
        target=f"{root}/history",
    )
    return airflow.dag(name, text)


def upload(lake: Lake, folder: Path) -> None:
    for name in ("orders", "copies_of", "landing"):
        lake.upload(folder / name)


def nothing_is_seen(done: Outcome) -> None:
    """The secret is nowhere: not in a log, an XCom, an event or on a command line."""
    for told in (done.log, json.dumps(done.tasks), json.dumps(done.events), json.dumps(done.processes)):
        assert SECRET_KEY not in told
        assert json.dumps(SECRET_KEY)[1:-1] not in told


def test_a_group_on_s3(airflow: Airflow, lake: Lake, tmp_path: Path) -> None:
    """A load and an apply, copies compared by their files, and files with their target: one application."""
    begin(tmp_path)
    upload(lake, tmp_path)
    file = dag_file(airflow, lake, f"s3://{lake.name}", "lake", ("history", "copies", "events"))
    waited = succeeded(airflow.run(file, dag="wait"))
    assert waited.submits == 0
    assert waited.xcom("wait")["version"] == 2
    done = succeeded(airflow.run(file, dag="lake"))
    assert done.submits == 1
    history = values(lake.folder / "history", "id", "name", "__START_AT", "__END_AT")
    assert history == [(1, "a", 0, 2), (2, "b", 0, None), (3, "c", 0, None), (4, "d", 1, None)]
    copies = values(lake.folder / "copies", "id", "name", "__START_AT", "__END_AT")
    assert copies == [(1, "x", 0, 1), (2, "Y", 1, None), (2, "y", 0, 1), (3, "z", 1, None)]
    assert values(lake.folder / "events", "id", "name", "n") == [(1, "e", 1)]
    assert announced(done) >= {lake.uri(name) for name in TABLES if name != "current"}
    nothing_is_seen(done)
    idle = succeeded(airflow.run(file, dag="lake", forbid_processes=True))
    assert idle.tasks["apply"]["state"] == "skipped"


def test_targets_on_s3_are_those_on_a_disk(airflow: Airflow, lake: Lake, tmp_path: Path) -> None:
    """The same group twice, on S3 and on a disk, with a second round of changes: rows and seals."""
    disk = tmp_path / "disk"
    disk.mkdir()
    begin(disk)
    upload(lake, disk)
    files = [
        (dag_file(airflow, lake, str(disk), "on_disk"), "on_disk"),
        (dag_file(airflow, lake, f"s3://{lake.name}", "on_s3"), "on_s3"),
    ]
    for round_ in range(2):
        for file, name in files:
            done = succeeded(airflow.run(file, dag=name))
            assert done.submits == 1
            nothing_is_seen(done)
        for name in TABLES:
            assert everything(lake.folder / name) == everything(disk / name), name
            if name != "events_log":
                assert state(lake.path(name), name) == state(str(disk / name), name), name
        if round_ == 0:
            go_on(disk)
            upload(lake, disk)
    shutil.rmtree(disk)


def everything(table: Path) -> list[str]:
    # Where a file was, and when it was written, differs.
    own = {"_position", "_source", "_file", "_ingested_at", "_modified"}
    return sorted(str({k: v for k, v in row.items() if k not in own}) for row in rows(table))


def state(table: str, pipeline: str) -> list[Any]:
    """Return what each seal says, without where, when and by whom it was made."""
    told = world.seals(table, pipeline)
    assert told
    # All sources but this one are copies; the log of events is made in each place.
    made_here = ("table_id", "commit_hash") if pipeline == "events" else ()
    for seal in told:
        for name in ("number", "source_uri"):
            del seal[name]
        for name in made_here:
            del seal["state"]["applied_to"][name]
        for name in ("fingerprint", "run_id", "planned_on"):
            del seal["step"][name]
    return told
