"""Erase a customer from `customer_history` and from its old files, and let the table remember it.

A run by hand has a form: the key, and whether to only count. No later run of `customer_history` brings the
customer back, whether it reloads or applies an old change. The source `customer` has to forget it on its own.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param
from example_settings import table

from airflow_delta_cdc.operators import DeltaEraseOperator

HISTORY = {"pipeline": "customer_history", "source": table("customer"), "target": table("customer_history")}

with DAG(
    "erase_customer",
    description="removes one customer from its history for good",
    schedule=None,
    max_active_runs=1,
    params={
        "key": Param(type="integer", title="Customer", description_md="The value of `c_custkey`."),
        "dry_run": Param(True, type="boolean", title="Only count", description_md="Off: delete the rows."),
    },
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
):
    DeltaEraseOperator(
        task_id="erase",
        key={"c_custkey": "{{ params.key }}"},
        tables=[HISTORY],
        purge=True,
        dry_run="{{ params.dry_run }}",
    )
