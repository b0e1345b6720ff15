"""Explain a row of `orders_current`: which change set each value, and which run applied it.

Start a run by hand with a key, such as `o_orderkey=7`. The page "Delta CDC" starts such runs, too.
"""

from __future__ import annotations

from airflow.sdk import DAG
from example_settings import table

from airflow_delta_cdc.form import why_arguments, why_params
from airflow_delta_cdc.operators import DeltaWhyOperator

with DAG(
    "orders_why",
    description="where the values of a row of orders_current come from",
    schedule=None,
    max_active_runs=1,
    params=why_params(),
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
):
    DeltaWhyOperator(
        task_id="why", pipeline="orders_current", target=table("orders_current"), **why_arguments()
    )
