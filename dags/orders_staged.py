"""Read and apply in two tasks, with a staging table between them.

`read` writes the changes since the target's watermark into staging; `apply` brings them into the target.
Until `apply` has succeeded, `read` returns the same batch. Put checks of your own between the two.

One apply task without staging does the same work in one Spark application; see `orders_current`.
"""

from __future__ import annotations

from airflow.sdk import DAG
from example_settings import table

from airflow_delta_cdc.form import range_arguments, range_params
from airflow_delta_cdc.operators import DeltaApplyChangesOperator, DeltaReadChangesOperator

SOURCE, STAGING, TARGET = table("orders"), table("orders_staging"), table("orders_staged")

with DAG(
    "orders_staged",
    description="orders → staging → orders_staged, two tasks",
    schedule=None,
    max_active_runs=1,
    params=range_params(),
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
):
    read = DeltaReadChangesOperator(
        task_id="read",
        pipeline="orders_staged",
        table=SOURCE,
        staging=STAGING,
        target=TARGET,
        **range_arguments(),
    )
    apply = DeltaApplyChangesOperator(
        task_id="apply",
        pipeline="orders_staged",
        source=SOURCE,
        staging=STAGING,
        target=TARGET,
        keys=["o_orderkey"],
    )
    read >> apply
