"""Apply the changes of `orders` when they are committed, instead of when a clock says so.

A watcher in the triggerer looks at the table's log: one small request every five seconds, no Spark, no
worker. A commit that changes data wakes this DAG; OPTIMIZE, VACUUM and new properties do not.

What woke the DAG is only a nudge. Which versions are applied is read from the watermark in the target, so an
event that comes twice, late, or for several commits at once does no harm.

The DAG is paused at first: unpause it to let the watcher look.
"""

from __future__ import annotations

from airflow.sdk import DAG
from example_settings import table

from airflow_delta_cdc.operators import DeltaApplyChangesOperator
from airflow_delta_cdc.triggers import watched_asset

SOURCE, TARGET = table("orders"), table("orders_on_change")

with DAG(
    "orders_on_change",
    description="orders → orders_on_change, whenever orders changes",
    schedule=[watched_asset(SOURCE, poll_interval=5)],
    max_active_runs=1,
    is_paused_upon_creation=True,
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
):
    apply = DeltaApplyChangesOperator(
        task_id="apply",
        pipeline="orders_on_change",
        source=SOURCE,
        target=TARGET,
        keys=["o_orderkey"],
        stored_as_scd_type=1,
    )
