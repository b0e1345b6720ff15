"""``delta-cdc`` on a store that the environment names: its Spark gets what S3 needs, as its reader does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from delta_cdc import ingest_changes
from tests.integration.airflow.test_examples import rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.lake import Lake

_COMMAND = "import sys; from delta_cdc.cli import main; sys.exit(main(sys.argv[1:]))"
_OF_AIRFLOW = "import sys; from airflow_delta_cdc.command_line import end_with; end_with(sys.argv[1:])"


_SESSION = """
import sys
from delta_cdc import get_session
spark = get_session(locations=sys.argv[1:], quick_start=True)
for uri in sys.argv[1:]:
    print(spark.read.format("delta").load(uri).count())
"""


def printed(lake: Lake, *arguments: str, command: str = _COMMAND) -> str:
    """Run a command in a process of its own, and return what it printed.

    Airflow's gets the connection ``store``, any other one the environment of the store.
    """
    environment = {
        **os.environ,
        **({"AIRFLOW_CONN_STORE": lake.connection} if command == _OF_AIRFLOW else lake.options),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", command, *arguments],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_the_changes_of_a_table(lake: Lake) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    for ids in ([1], [2, 3]):
        data = pa.table({"id": pa.array(ids, pa.int64())})
        write_deltalake(  # type: ignore[call-overload]
            lake.uri("t"), data, mode="append", configuration=feed, storage_options=lake.direct
        )
    command = ("changes", lake.uri("t"), "--from", "1", "--format", "json")
    for found in (
        printed(lake, *command),
        printed(lake, *command, "--delta-conn-id", "store", command=_OF_AIRFLOW),
    ):
        assert [json.loads(line)["id"] for line in found.splitlines()] == [2, 3]


@pytest.mark.slow
def test_a_session_of_ones_own(lake: Lake) -> None:
    """It reads what the environment names, by either scheme."""
    data = pa.table({"id": pa.array([1, 2], pa.int64())})
    write_deltalake(lake.uri("own"), data, storage_options=lake.direct)  # type: ignore[call-overload]
    uri = lake.uri("own")
    assert printed(lake, uri, uri.replace("s3://", "s3a://"), command=_SESSION).split() == ["2", "2"]


@pytest.mark.slow
def test_what_is_in_quarantine(on_lake: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """Refused without a word about the driver, as every other commit on S3."""
    (tmp_path / "a.json").write_text('{"id": 1, "op": "I", "n": 1}\n{"id": 2, "op": "NEW", "n": 2}\n')
    adapter = {"operation_column": "op", "sequence_by": "n"}
    ingest_changes(
        on_lake,
        str(tmp_path),
        lake.uri("log"),
        pipeline="p",
        keys=["id"],
        schema="id INT, n INT",
        adapter_options=adapter,
        storage_options=lake.options,
        single_driver=True,
    )
    told = json.dumps({**adapter, "operations": {"NEW": "upsert"}})
    replay = ("replay", f"p={lake.uri('log')}", "--adapter-options", told, "--single-driver")
    assert "1 event" in printed(lake, *replay)
    assert sorted(row["id"] for row in rows(lake.folder / "log")) == [1, 2]
