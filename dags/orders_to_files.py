"""Hand what changed in `orders` to people outside Delta, as JSON files: three tasks.

`read` stages the batch and writes it under `orders_files/<starting>-<ending>`. `deliver` stands for whatever
takes the files further. `commit` says that the batch has arrived: until then, `read` returns the same one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowSkipException
from example_settings import table

from airflow_delta_cdc.operators import DeltaCommitWatermarkOperator, DeltaReadChangesOperator

SOURCE, STAGING, FILES = table("orders"), table("orders_for_files"), table("orders_files")

with DAG(
    "orders_to_files",
    description="orders → JSON files, a folder per batch",
    schedule=None,
    max_active_runs=1,
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
) as dag:
    read = DeltaReadChangesOperator(
        task_id="read",
        pipeline="orders_to_files",
        table=SOURCE,
        staging=STAGING,
        query="upsert",
        keys=["o_orderkey"],
        output_path=FILES,
        output_format="json",
    )

    @task
    def deliver(batch: dict[str, Any]) -> list[str]:
        if batch["output"] is None:
            raise AirflowSkipException("nothing new")
        return sorted(file.name for file in Path(batch["output"]).glob("*.json"))

    commit = DeltaCommitWatermarkOperator(
        task_id="commit",
        pipeline="orders_to_files",
        staging=STAGING,
        ending_version="{{ ti.xcom_pull('read')['ending_version'] }}",
    )
    deliver(read.output) >> commit
