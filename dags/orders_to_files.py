"""Hand what changed in `orders` to people outside Delta, as Parquet files: three tasks.

`read` stages the batch. `deliver` reads it with the package `deltalake`, which needs no Spark, and writes it
to `orders_files/<starting>-<ending>`. `commit` says that the batch has arrived: until then, `read` returns
the same one, and `deliver` writes the same file again.
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
    description="orders → Parquet files, a folder per batch",
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
    )

    @task
    def deliver(batch: dict[str, Any]) -> str:
        from deltalake import DeltaTable
        from pyarrow import parquet

        if batch["staging_version"] is None:
            raise AirflowSkipException("nothing new")
        rows = DeltaTable(batch["staging"], version=batch["staging_version"]).to_pyarrow_table()
        # A batch that is read again, also with other options, begins with the same version.
        folder = Path(FILES) / f"{batch['starting_version']:020d}"
        folder.mkdir(parents=True, exist_ok=True)
        # By rename: a reader never finds half a file.
        unfinished = folder / ".changes.parquet"
        parquet.write_table(rows, unfinished)
        unfinished.replace(folder / "changes.parquet")
        return str(folder)

    commit = DeltaCommitWatermarkOperator(
        task_id="commit",
        pipeline="orders_to_files",
        staging=STAGING,
        ending_version="{{ ti.xcom_pull('read')['ending_version'] }}",
    )
    deliver(read.output) >> commit
