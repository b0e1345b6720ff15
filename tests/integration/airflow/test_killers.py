"""A file that ends its driver, in a real Airflow with a real Spark."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from tests.integration.airflow.test_examples import rows
from tests.integration.airflow.test_ingest import drop, succeeded, values

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.airflow.conftest import Airflow

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

_DAG = """
from datetime import timedelta

from airflow.sdk import DAG
from airflow_delta_cdc.operators import DeltaIngestChangesOperator

with DAG("killer", schedule=None) as dag:
    DeltaIngestChangesOperator(
        task_id="ingest",
        retries=2,
        retry_delay=timedelta(0),
        pipeline="customers",
        source={source!r},
        log={log!r},
        keys=["id"],
        schema="id INT, name STRING",
        adapter_options={{"sequence_by": "id"}},
        driver_memory="512m",
    )
"""


def test_a_file_that_ends_its_driver_goes_to_quarantine(airflow: Airflow, tmp_path: Path) -> None:
    """Its one line needs more memory than the JVM has. The third try ingests the other files."""
    source, log = tmp_path / "landing", tmp_path / "log"
    drop(source, "a.json", {"id": 1, "name": "a"})
    with gzip.open(source / "b.json.gz", "wb", compresslevel=1) as file:
        file.write(b'{"id": 2, "name": "')
        for _ in range(600):
            file.write(b"x" * 1_000_000)
        file.write(b'"}\n')
    drop(source, "c.json", {"id": 3, "name": "c"})

    done = succeeded(airflow.run(airflow.dag("killer", _DAG.format(source=str(source), log=str(log)))))
    assert done.tasks["ingest"]["tries"] == 3
    assert values(log, "id", "name") == [(1, "a"), (3, "c")]
    assert done.xcom("ingest")["counts"] == {"events": 2, "files": 3, "quarantined": 1}
    (row,) = rows(tmp_path / "log__quarantine")
    assert row["position"]["file"].endswith("/landing/b.json.gz")
    assert "while it read this file alone" in row["reason"]
    assert "exit code 52" in row["reason"]
    assert "(Spark ended it after an OutOfMemoryError of Java)" in done.log
    assert "The next try reads each of its files alone" in done.log
    assert f"{source / 'b.json.gz'} goes to quarantine" in done.log
    # Two tries that read the batch at once, and in the third one some that read the files alone.
    assert done.submits >= 4
